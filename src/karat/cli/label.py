"""``karat pool``, ``judge``, ``calibrate`` and ``next``: choose pairs and judge them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import karat
from karat.cli.command import REQUIRED, argument, command, flag, option
from karat.cli.options import (
    BY,
    CORPUS,
    EXIT_CANNOT_TELL,
    GOLD_FORMAT,
    PROFILE,
    QUERIES,
    QUIET,
    RUN_FORMAT,
    SEED,
    SETTINGS,
    STRICT,
    WITHOUT_TEXTS,
    PageOptions,
    echo,
    notify,
    parse_settings,
    show,
)
from karat.cli.streams import heed_interrupts

if TYPE_CHECKING:
    from karat.reports.outputs import Form, Output


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """How the inputs of a labelling command are read."""

    queries: str | None = QUERIES
    profile: str = PROFILE
    settings: list[str] | None = SETTINGS
    seed: str | None = SEED
    strict: bool = STRICT
    run_format: str | None = RUN_FORMAT
    gold_format: str | None = GOLD_FORMAT

    def arguments(self, *settings: str) -> dict[str, Any]:
        """Return the arguments of a library call, with further settings."""
        heed_interrupts()
        values = dict(vars(self))
        texts = [*(values.pop("settings") or []), *settings]
        return values | {"settings": parse_settings(texts, values.pop("seed"))}


@dataclass(frozen=True, kw_only=True)
class PairInputs(RunInputs):
    """The runs that pairs come from, and existing judgments."""

    runs: list[str] = argument("RUN...", "The runs; - reads standard input.")
    gold: list[str] | None = option(
        "--gold",
        "FILE",
        "Gold and labels so far; repeatable. The first judgment of a pair counts.",
    )
    corpus: str | None = CORPUS

    @property
    def files(self) -> list[str | None]:
        """Every file that is read."""
        return [*self.runs, *(self.gold or []), self.queries, self.corpus]


@dataclass(frozen=True, kw_only=True)
class PairOutputs(PageOptions):
    """Outputs for pairs to judge, and for the page about them."""

    output: list[str] | None = option(
        "-o, --output",
        "OUT",
        "Write the pairs to pairs.jsonl, or the report on them to out.json or out.md; repeatable.",
    )
    without_texts: bool = WITHOUT_TEXTS

    def parse(self, inputs: Sequence[str | None], *more_forms: Form) -> list[Output]:
        """Read every ``-o``; pairs are written as JSONL."""
        from karat.reports.outputs import Form

        about = "the pairs to judge, one per line"
        pairs = Form("pool", ".jsonl", about, "karat.label.pool.to_jsonl")
        return super().parse(inputs, pairs, *more_forms)

    def publish_pairs(self, result: Any, outputs: Sequence[Output]) -> int:
        """Write the result; pairs without a text are refused unless they are wanted."""
        if not self.without_texts and any(output.form.name == "pool" for output in outputs):
            result.check_texts()
        return self.publish(result, outputs)


@command("pool")
def pool(
    inputs: PairInputs,
    output: PairOutputs,
    *,
    depth: int = option("--depth", "N", "How far down each list is pooled. Default: 10.", 10),
    sample: int | None = option(
        "--sample", "N", "Draw this many pairs of the pool, all equally likely."
    ),
    include_judged: bool = flag("--include-judged", "Include pairs that the gold already judges."),
    bias: bool = flag(
        "--bias",
        "Also report whether the gold is fair to every run: leave-one-run-out, RBP residuals,"
        " condensed lists.",
    ),
    measures: list[str] | None = option(
        "-m, --measure", "MEASURE", "A measure for --bias; repeatable. Default: nDCG@10, AP, RBP."
    ),
) -> int:
    """Pool the top of several runs for judging, without judged pairs.

    Writes one pair of a query and an item per line, with texts, in an order that reveals neither
    system nor rank. Without -o it shows how much of each run's top is judged and how large the
    pool would be.

    Examples:
      karat pool bm25.trec dense.jsonl --gold qrels.txt --depth 10
      karat pool bm25.trec dense.jsonl --gold qrels.txt --queries queries.jsonl \\
        --corpus corpus.jsonl --depth 10 -o pool.jsonl
      karat pool bm25.trec dense.jsonl --queries queries.jsonl --corpus corpus.jsonl \\
        --sample 200 --include-judged -o for-people.jsonl
      karat pool bm25.trec dense.jsonl fused.trec --gold qrels.txt --depth 10 --bias -m nDCG@10
    """
    outputs = output.parse(inputs.files)
    pooled = karat.pool(
        depth=depth,
        sample=sample,
        include_judged=include_judged,
        bias=bias,
        measures=measures,
        **inputs.arguments(),
    )
    return output.publish_pairs(pooled, outputs)


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """The model that judges, and how it is called; the names are those of ``karat.judge``."""

    url: str | None = option(
        "--url", "URL", "The base of the endpoint, such as http://127.0.0.1:8080/v1."
    )
    model: str | None = option("--model", "NAME", "The model's name at the endpoint.")
    key_env: str | None = option(
        "--key-env",
        "VARIABLE",
        "The environment variable with the key. Default: OPENAI_API_KEY, if it is set.",
    )
    prompt: str | None = option(
        "--prompt",
        "FILE",
        "Your own prompt, with {query} and {text} in it. Default: karat's prompt.",
    )
    body: str | None = option(
        "--body",
        "JSON",
        "Extra fields for every call, such as '{\"top_p\": 0.1}'; null removes one.",
    )
    judge: str = option(
        "--judge",
        "KIND",
        "model, or overlap: a stand-in that counts shared words, for trials offline.",
        "model",
    )
    concurrency: int | None = option(
        "--concurrency", "N", "How many calls run at once. Default: 4.", most=256
    )
    rate: float | None = option("--rate", "N", "The most calls per second.", least=0.001, most=1e9)
    timeout: float | None = option(
        "--timeout",
        "SECONDS",
        "How long a call may take. Default: 60.",
        least=0.001,
        most=86_400,
    )
    retries: int | None = option(
        "--retries",
        "N",
        "How often to retry a call that may succeed later, after as long as the endpoint asks for,"
        " 300 s at most. Default: 3.",
        least=0,
        most=100,
    )
    max_failures: float = option(
        "--max-failures",
        "SHARE",
        "Above this share of failed pairs the labels are partial. Default: 0.05.",
        0.05,
        least=0,
        most=1,
    )
    resume: bool = flag("--resume", "Resume labels that were interrupted, or retry failed pairs.")
    restart: bool = flag("--restart", "Delete the labels that LABELS holds and start over.")
    cache: str | None = option("--cache", "DIR", "Where judgments are cached. Default: .karat.")
    limit: int | None = option("--limit", "N", "Judge only the first N pairs.")
    price_in: float | None = option(
        "--price-in", "PRICE", "The price of a million prompt tokens.", least=0, most=1e9
    )
    price_out: float | None = option(
        "--price-out", "PRICE", "The price of a million completion tokens.", least=0, most=1e9
    )


@command("judge")
def judge(
    options: JudgeOptions,
    *,
    pool: str = argument("POOL", "Pairs with their texts as JSONL; - is standard input."),
    output: str = option("-o, --output", "LABELS", "The label file, as JSONL.", REQUIRED),
    as_json: bool = flag("--json", "Print the counts as JSON."),
    quiet: bool = QUIET,
) -> int:
    """Have a model grade every pair of a pool: 2, 1 or 0, with a short rationale.

    A pair that cannot be judged is kept with its reason, never as a 0. Exits with 3 when more
    than --max-failures of the pairs failed. An empty pool makes an empty label file.

    Examples:
      karat judge pool.jsonl --url http://127.0.0.1:8080/v1 --model qwen3 -o labels.jsonl
      karat judge pool.jsonl --url https://api.openai.com/v1 --model gpt-4.1-mini \\
        -o labels.jsonl --price-in 0.40 --price-out 1.60 --rate 10
      karat judge pool.jsonl --judge overlap -o labels.jsonl
    """
    from karat.cli.progress import counting

    heed_interrupts()
    silent = quiet or as_json

    def report_wait(seconds: float, why: str) -> None:
        if not silent:
            notify(f"karat: {why}: waiting {seconds:,.0f} s")

    labels = karat.judge(
        pool,
        output,
        **vars(options),
        progress=lambda rater, pairs: counting(rater, pairs, quiet=silent),
        report_wait=report_wait,
    )
    if as_json:
        echo(json.dumps(labels.to_dict(), indent=2, ensure_ascii=False))
    elif not quiet:
        show(labels)
    if not labels.partial:
        return 0
    notify(
        f"karat: partial: {labels.failed:,} of {labels.pairs:,} pairs could not be judged;"
        " retry them with --resume"
    )
    return EXIT_CANNOT_TELL


@command("calibrate")
def calibrate(
    inputs: RunInputs,
    output: PageOptions,
    *,
    judged: str = argument("JUDGED", "The judge's labels; - reads standard input."),
    human: list[str] = option(
        "--human", "FILE", "People's judgments of some of the same pairs; repeatable.", REQUIRED
    ),
    rater: str | None = option(
        "--rater", "NAME", "Whose labels in JUDGED to compare with people's."
    ),
    truth: str = option(
        "--truth",
        "NAME",
        "How several people make one grade: majority or dawid-skene. Default: majority.",
        "majority",
    ),
    rel: str | None = option("--rel", "GRADE", "The lowest relevant grade. Default: 1."),
    run: str | None = option("--run", "RUN", "Correct the precision of this run's top k."),
    k: int | None = option("-k", "K", "How many of the run's top items count. Default: 5."),
    gold: str | None = option(
        "--gold", "FILE", "Gold of the run's items; the judge's labels count for the rest."
    ),
    by: list[str] | None = BY,
    interval: str = option(
        "--interval",
        "NAME",
        "cluster (whole queries), beta, or ppi: prediction-powered, only where people judged a"
        " uniform sample of what is corrected. Default: cluster.",
        "cluster",
    ),
    human_format: str | None = option(
        "--human-format", "FORMAT", "The format of people's judgments."
    ),
) -> int:
    """Compare a judge's labels with people's, and correct its precision for its errors.

    Reports sensitivity, specificity and kappa on the pairs that both judged, and how far several
    people agree. Then it corrects the share that the judge calls relevant, of all its labels or of
    a run's top k, after Rogan and Gladen. The correction is for P@k only.

    Exits with 3 when there is no corrected number: the judge is no better than chance, or people
    called nothing relevant, or everything.

    Examples:
      karat calibrate judged.jsonl --human people.jsonl
      karat calibrate judged.jsonl --human people.jsonl --run dense.jsonl -k 5 --gold qrels.txt
      karat calibrate judged.jsonl --human people.jsonl --queries queries.jsonl --by language
      karat calibrate judged.jsonl --human qrels.txt --rel 2 --interval beta -o calibration.md
      karat calibrate judged.jsonl --human ana.jsonl --human ben.jsonl --truth dawid-skene
      karat calibrate judged.jsonl --human sample.jsonl --interval ppi
    """
    outputs = output.parse([judged, *human, run, gold, inputs.queries])
    result = karat.calibrate(
        judged,
        human,
        rater=rater,
        truth=truth,
        run=run,
        k=k,
        gold=gold,
        by=by or [],
        interval=interval,
        human_format=human_format,
        **inputs.arguments(*([] if rel is None else [f"rel={rel}"])),
    )
    return output.publish(result, outputs)


@command("next")
def next_judgments(
    inputs: PairInputs,
    output: PairOutputs,
    *,
    measure: str | None = option(
        "-m, --measure, --primary",
        "MEASURE",
        "The measure that decides. Default: the profile's first.",
    ),
    margin: float | None = option(
        "--margin",
        "SHARE",
        "For two runs: a change that does not matter. Default: 0.02, 2 % of the mean.",
        least=0,
        most=1e9,
    ),
    margin_kind: str | None = option(
        "--margin-kind", "KIND", "relative (to the baseline, default) or absolute."
    ),
    within: float | None = option(
        "--within",
        "X",
        "For one run: stop when labels can move the measure no further than this. Default: 0.",
        least=0,
        most=1e9,
    ),
    count: int = option("--count", "N", "How many pairs to judge. Default: 20.", 20),
    depth: int | None = option("--depth", "N", "Choose only among the first N of each list."),
) -> int:
    """Choose the judgments that best settle a comparison or narrow a measure's range.

    For two runs it reports whether the verdict can still change, and the unjudged pairs most
    likely to change it; for one, the pairs that keep its measure uncertain. It reports stop when
    no label can change the verdict. Give the pairs to karat judge or to people, and add their
    labels as one more --gold.

    Exits with 3 when a run did not answer: no query, or too few by its own log.

    Examples:
      karat next base.trec new.trec --gold qrels.txt
      karat next base.trec new.trec --gold qrels.txt --gold labels.jsonl -m nDCG@10 \\
        --queries queries.jsonl --corpus corpus.jsonl --count 50 -o next.jsonl
      karat next new.trec --gold qrels.txt -m P@5 --within 0.02
    """
    outputs = output.parse(inputs.files)
    result = karat.next_judgments(
        measure=measure,
        margin=margin,
        margin_kind=margin_kind,
        within=within,
        count=count,
        depth=depth,
        **inputs.arguments(),
    )
    return output.publish_pairs(result, outputs)
