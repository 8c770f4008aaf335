"""``karat pool``, ``judge``, ``calibrate``, ``next`` and ``labels``: judgments, and their use."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import karat
from karat.cli.command import REQUIRED, argument, command, flag, option
from karat.cli.options import (
    BY,
    CORPUS,
    EXIT_CANNOT_TELL,
    GOLD_FORMAT,
    JSON,
    PROFILE,
    QUERIES,
    QUIET,
    RUN_FORMAT,
    SEED,
    SETTINGS,
    STORE,
    STRICT,
    WITHOUT_TEXTS,
    PageOptions,
    echo,
    notify,
    parse_settings,
    show,
    tell_waiting,
)
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.pages.result import Result
    from karat.reports.outputs import Form, Output


@dataclass(frozen=True, kw_only=True)
class PairOutputs(PageOptions):
    """Where pairs to judge go, and the page about them."""

    output: list[str] | None = option(
        "-o, --output",
        "OUT",
        "Write the pairs to pairs.jsonl, or the report on them to out.json or out.md; repeatable.",
    )

    def parse(self, inputs: Sequence[str | None], *more_forms: Form) -> list[Output]:
        """Read every ``-o``; pairs are written as JSONL."""
        from karat.reports.outputs import Form

        about = "the pairs to judge, one per line"
        pairs = Form("pool", ".jsonl", about, "karat.label.pool.to_jsonl")
        return super().parse(inputs, pairs, *more_forms)

    def check_texts(self, result: Any, outputs: Sequence[Output]) -> None:
        """Refuse to write pairs that have no text."""
        if any(output.form.name == "pool" for output in outputs):
            result.check_texts()


@command
def pool(
    output: PairOutputs,
    *,
    runs: list[str] = argument("RUN...", "Runs to pool; - reads standard input."),
    gold: list[str] | None = option(
        "--gold",
        "FILE",
        "Gold or labels that exist already; repeatable. The pool leaves these pairs out.",
    ),
    queries: str | None = QUERIES,
    corpus: str | None = CORPUS,
    depth: int = option("--depth", "N", "How far down each list is pooled. Default: 10.", 10),
    sample: int | None = option(
        "--sample", "N", "Draw this many pairs of the pool, all equally likely."
    ),
    include_judged: bool = flag("--include-judged", "Keep pairs that the gold judges."),
    without_texts: bool = WITHOUT_TEXTS,
    bias: bool = flag(
        "--bias",
        "Also report whether the gold is fair to every run: leave-one-run-out, RBP residuals,"
        " condensed lists.",
    ),
    measures: list[str] | None = option(
        "-m, --measure", "MEASURE", "A measure for --bias; repeatable. Default: nDCG@10, AP, RBP."
    ),
    profile: str = PROFILE,
    settings: list[str] | None = option(
        "--set",
        "KEY=VALUE",
        "Change order, ties or seed; with --bias also missing, empty_gold, rel or k; repeatable.",
    ),
    seed: str | None = option("--seed", "N", "The seed of the shuffling. Default: 0."),
    strict: bool = STRICT,
    run_format: str | None = RUN_FORMAT,
    gold_format: str | None = GOLD_FORMAT,
) -> int:
    """Pool the top of several runs for judging, without what is judged already.

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
    _heed_interrupts()
    outputs = output.parse([*runs, *(gold or []), queries, corpus])
    pooled = karat.pool(
        runs,
        depth=depth,
        gold=gold or [],
        queries=queries,
        corpus=corpus,
        sample=sample,
        include_judged=include_judged,
        bias=bias,
        measures=measures,
        profile=profile,
        settings=parse_settings(settings or [], seed),
        run_format=run_format,
        gold_format=gold_format,
        strict=strict,
    )
    if not without_texts:
        output.check_texts(pooled, outputs)
    return output.publish(pooled, outputs)


@command
def judge(
    *,
    pool: str = argument("POOL", "Pairs with their texts as JSONL; - is standard input."),
    output: str = option("-o, --output", "LABELS", "The label file, as JSONL.", REQUIRED),
    url: str | None = option(
        "--url", "URL", "The base of the endpoint, such as http://127.0.0.1:8080/v1."
    ),
    model: str | None = option("--model", "NAME", "The model, as the endpoint calls it."),
    key_env: str | None = option(
        "--key-env",
        "VARIABLE",
        "The environment variable with the key. Default: OPENAI_API_KEY, if it is set.",
    ),
    prompt: str | None = option(
        "--prompt",
        "FILE",
        "Your own prompt, with {query} and {text} in it. Default: karat's prompt.",
    ),
    body: str | None = option(
        "--body",
        "JSON",
        "Further fields of every call, such as '{\"top_p\": 0.1}'; null removes one.",
    ),
    kind: str = option(
        "--judge",
        "KIND",
        "model, or overlap: a stand-in that counts shared words, for trials offline.",
        "model",
    ),
    concurrency: int | None = option(
        "--concurrency", "N", "How many calls run at once. Default: 4.", most=256
    ),
    rate: float | None = option("--rate", "N", "The most calls per second.", least=0.001, most=1e9),
    timeout: float | None = option(
        "--timeout",
        "SECONDS",
        "How long a call may take. Default: 60.",
        least=0.001,
        most=86_400,
    ),
    retries: int | None = option(
        "--retries",
        "N",
        "How often to retry a call that may succeed later, after as long as the endpoint asks for,"
        " 300 s at most. Default: 3.",
        least=0,
        most=100,
    ),
    max_failures: float = option(
        "--max-failures",
        "SHARE",
        "Above this share of failed pairs the labels are partial. Default: 0.05.",
        0.05,
        least=0,
        most=1,
    ),
    resume: bool = flag(
        "--resume", "Resume labels that were interrupted, or ask failed pairs again."
    ),
    restart: bool = flag("--restart", "Delete the labels that LABELS holds and start over."),
    cache: str | None = option("--cache", "DIR", "Where judgments are cached. Default: .karat."),
    limit: int | None = option("--limit", "N", "Judge only the first N pairs."),
    price_in: float | None = option(
        "--price-in", "PRICE", "The price of a million prompt tokens.", least=0, most=1e9
    ),
    price_out: float | None = option(
        "--price-out", "PRICE", "The price of a million completion tokens.", least=0, most=1e9
    ),
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

    _heed_interrupts()
    silent = quiet or as_json

    def report_wait(seconds: float, why: str) -> None:
        if not silent:
            notify(f"karat: {why}: waiting {seconds:,.0f} s")

    labels = karat.judge(
        pool,
        output,
        judge=kind,
        url=url,
        model=model,
        key_env=key_env,
        prompt=prompt,
        body=_json_object(body),
        concurrency=concurrency,
        rate=rate,
        timeout=timeout,
        retries=retries,
        max_failures=max_failures,
        resume=resume,
        restart=restart,
        cache=cache,
        limit=limit,
        price_in=price_in,
        price_out=price_out,
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
        f"karat: partial: {labels.failed:,} of {labels.pairs:,} pairs could not be judged; ask"
        " them again with --resume"
    )
    return EXIT_CANNOT_TELL


def _json_object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    from karat.errors import InputError
    from karat.formats.json_records import parse_json

    try:
        body = parse_json(text, "--body", None)
    except InputError as error:
        raise UsageError(f"--body is {error.what}") from None
    if not isinstance(body, dict):
        raise UsageError('--body is no JSON object; an example is {"cache_prompt": false}')
    return body


@command
def calibrate(
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
    queries: str | None = QUERIES,
    by: list[str] | None = BY,
    interval: str = option(
        "--interval",
        "NAME",
        "cluster (whole queries), beta, or ppi: prediction-powered, only where people judged a"
        " uniform sample of what is corrected. Default: cluster.",
        "cluster",
    ),
    profile: str = PROFILE,
    settings: list[str] | None = option(
        "--set", "KEY=VALUE", "Change rel, ci, boot, unit, seed, order or ties; repeatable."
    ),
    seed: str | None = SEED,
    strict: bool = STRICT,
    human_format: str | None = option(
        "--human-format", "FORMAT", "The format of people's judgments."
    ),
    run_format: str | None = RUN_FORMAT,
    gold_format: str | None = GOLD_FORMAT,
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
    _heed_interrupts()
    outputs = output.parse([judged, *human, run, gold, queries])
    of_run = {"-k": k, "--gold": gold, "--run-format": run_format, "--gold-format": gold_format}
    for name, value in (of_run | {"--strict": strict}).items():
        if run is None and value:
            raise UsageError(f"{name} is for the top of a run; name one with --run")
    if interval == "ppi" and seed is not None:
        raise UsageError("--seed: --interval ppi draws nothing; leave it out")
    rel_setting = [] if rel is None else [f"rel={rel}"]
    result = karat.calibrate(
        judged,
        human,
        rater=rater,
        truth=truth,
        run=run,
        k=k or 5,
        gold=gold,
        queries=queries,
        by=by or [],
        interval=interval,
        profile=profile,
        settings=parse_settings([*(settings or []), *rel_setting], seed),
        human_format=human_format,
        run_format=run_format,
        gold_format=gold_format,
        strict=strict,
    )
    return output.publish(result, outputs)


@command
def next_judgments(
    output: PairOutputs,
    *,
    runs: list[str] = argument("RUN...", "One run, or two: the baseline and the other system."),
    gold: list[str] | None = option(
        "--gold",
        "FILE",
        "Gold and labels so far; repeatable. The first judgment of a pair counts.",
    ),
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
    queries: str | None = QUERIES,
    corpus: str | None = CORPUS,
    without_texts: bool = WITHOUT_TEXTS,
    profile: str = PROFILE,
    settings: list[str] | None = SETTINGS,
    seed: str | None = SEED,
    strict: bool = STRICT,
    run_format: str | None = RUN_FORMAT,
    gold_format: str | None = GOLD_FORMAT,
) -> int:
    """Choose the judgments that would settle a comparison, or tighten a measure, most.

    For two runs it says whether the verdict can still change, and which unjudged pairs are most
    likely to change it; for one, which pairs keep its measure uncertain. It says stop when no
    label can change the verdict. Give the pairs to karat judge or to people, and add their
    labels as one more --gold.

    Exits with 3 when a run did not answer: not one query, or too few by its own log.

    Examples:
      karat next base.trec new.trec --gold qrels.txt
      karat next base.trec new.trec --gold qrels.txt --gold labels.jsonl -m nDCG@10 \\
        --queries queries.jsonl --corpus corpus.jsonl --count 50 -o next.jsonl
      karat next new.trec --gold qrels.txt -m P@5 --within 0.02
    """
    _heed_interrupts()
    outputs = output.parse([*runs, *(gold or []), queries, corpus])
    result = karat.next_judgments(
        runs,
        gold=gold or [],
        measure=measure,
        margin=margin,
        margin_kind=margin_kind,
        within=within,
        count=count,
        depth=depth,
        queries=queries,
        corpus=corpus,
        profile=profile,
        settings=parse_settings(settings or [], seed),
        run_format=run_format,
        gold_format=gold_format,
        strict=strict,
    )
    if not without_texts:
        output.check_texts(result, outputs)
    return output.publish(result, outputs)


# How many rows a terminal shows without --limit.
_LISTED = 20
_SET = option("--set", "SET", "The set: its id or name. Default: the only one.")
_NAME = option("--name", "NAME", "The name of the new set.")
_QUERY = option("--query", "ID", "The query of the pair.", REQUIRED)
_ITEM = option("--item", "ID", "The item of the pair.", REQUIRED)
_LIMIT = option("--limit", "N", "How many. Default: 20, and all with --json.")
_OF_RATER = option("--rater", "NAME", "Only the judgments of this rater.")


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """The store that holds the labels, and how a result is shown."""

    store: str | None = STORE
    as_json: bool = JSON
    quiet: bool = QUIET

    @property
    def place(self) -> Mapping[str, Any]:
        """Where the labels are, as the functions of ``karat.label`` take it."""
        return {"store": self.store, "waiting": tell_waiting}

    def show(self, result: Result) -> int:
        """Print the result."""
        return PageOptions(output=None, as_json=self.as_json, quiet=self.quiet).publish(result)

    def limit(self, given: int | None) -> int | None:
        """Return how many rows to show."""
        return given if given is not None or self.as_json else _LISTED


@command
def labels_list(options: LabelOptions) -> int:
    """List the label sets, and the progress of their raters.

    Judgments are kept with their pair, rater, time, rationale and source. No judgment is ever
    overwritten or deleted: one that was replaced or withdrawn stays but does not count. The
    commands are labels list, new, import, conflicts, adjudicate, withdraw, agreement, export and
    log.

    Examples:
      karat labels
      karat labels list --store postgresql://me@db/karat --json
      karat labels import judged.jsonl people.jsonl --name returns
      karat labels conflicts --set returns
      karat labels export --set returns --resolve majority -o qrels.txt
    """
    from karat.label.label_store import list_label_sets

    return options.show(list_label_sets(**options.place))


@command
def labels_new(
    options: LabelOptions,
    *,
    pool: str = argument("POOL", "Pairs with their texts, as karat pool writes them."),
    name: str | None = _NAME,
) -> int:
    """Make a set of a pool.

    The same pairs again, in any order, are the set that exists.

    Examples:
      karat labels new pool.jsonl
      karat labels new pool.jsonl --name 'returns, May'
    """
    from karat.label.label_store import new_label_set

    return options.show(new_label_set(pool, name, **options.place))


@command
def labels_import(
    options: LabelOptions,
    *,
    files: list[str] = argument("FILE...", "Label lines, or gold in any format that is read."),
    which: str | None = _SET,
    name: str | None = _NAME,
    rater: str | None = option(
        "--rater", "NAME", "The rater of judgments that name none; gold needs one."
    ),
    source: str | None = option(
        "--source", "TEXT", "Where the judgments come from. Default: what the file says."
    ),
    queries: str | None = option("--queries", "FILE", "The queries' texts, with --name."),
    corpus: str | None = option("--corpus", "FILE", "The items' texts, with --name."),
    form: str | None = option("--format", "FORMAT", "The format of the files."),
) -> int:
    """Add judgments from files.

    To an existing set, or with --name to a new one of the files' pairs. Takes label lines with
    their raters and rationales (karat judge and the workbench write them) and gold of any
    format, as one rater's. All of it is added or nothing; judgments that exist already are not
    added again. A pair that a judge failed on is left out, never a 0.

    Examples:
      karat labels import judged.jsonl people.jsonl --set returns
      karat labels import qrels.txt --rater Ana --name returns
      karat labels import gold.csv --rater Ana --name returns --queries queries.jsonl
    """
    from karat.label.label_store import import_labels

    _heed_interrupts()
    result = import_labels(
        files,
        label_set=which,
        name=name,
        rater=rater,
        source=source,
        queries=queries,
        corpus=corpus,
        format=form,
        **options.place,
    )
    return options.show(result)


@command
def labels_conflicts(
    options: LabelOptions,
    *,
    which: str | None = _SET,
    every: bool = flag("--all", "Show decided pairs too."),
    limit: int | None = _LIMIT,
) -> int:
    """Show where raters differ.

    The pairs with the largest differences come first, with each rater's grade and rationale.
    "Can't tell" contradicts no grade.

    Examples:
      karat labels conflicts
      karat labels conflicts --set returns --all
    """
    from karat.label.label_store import label_conflicts

    shown = options.limit(limit)
    return options.show(label_conflicts(which, include_decided=every, limit=shown, **options.place))


@command
def labels_adjudicate(
    options: LabelOptions,
    *,
    query: str = _QUERY,
    item: str = _ITEM,
    grade: str = option("--grade", "GRADE", "A number, or none: the pair gets no grade.", REQUIRED),
    rater: str = option("--rater", "NAME", "Who decides.", REQUIRED),
    which: str | None = _SET,
    rationale: str = option("--rationale", "TEXT", "Why.", ""),
) -> int:
    """Decide on the grade of a pair.

    A decision overrides what raters say, which is kept. The newest decision counts. It is stored
    as a judgment whose source is adjudication; karat labels withdraw takes it back.

    Examples:
      karat labels adjudicate --set returns --query q07 --item refunds#2 --grade 2 --rater Ana
    """
    from karat.label.label_store import adjudicate

    # Python reads more texts as numbers than people write.
    if grade != "none" and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,17})?", grade) is None:
        raise UsageError(f"--grade is {grade!r}; give a number from 0 to 100, or none")
    result = adjudicate(
        query,
        item,
        None if grade == "none" else float(grade),
        rater=rater,
        rationale=rationale,
        label_set=which,
        **options.place,
    )
    return options.show(result)


@command
def labels_withdraw(
    options: LabelOptions,
    *,
    query: str = _QUERY,
    item: str = _ITEM,
    rater: str = option("--rater", "NAME", "Whose judgment it is.", REQUIRED),
    which: str | None = _SET,
) -> int:
    """Take back a judgment.

    Takes back the newest judgment of a rater on a pair, or a decision. It stays in the log. The
    rater's earlier judgment of the pair counts again.

    Examples:
      karat labels withdraw --set returns --query q07 --item refunds#2 --rater Ana
    """
    from karat.label.label_store import withdraw_judgment

    result = withdraw_judgment(query, item, rater=rater, label_set=which, **options.place)
    return options.show(result)


@command
def labels_agreement(options: LabelOptions, *, which: str | None = _SET) -> int:
    """Show how far raters agree.

    Every two raters by Cohen's kappa, all of them by Krippendorff's alpha.

    Examples:
      karat labels agreement
      karat labels agreement --set returns --json
    """
    from karat.label.label_store import label_agreement

    return options.show(label_agreement(which, **options.place))


@command
def labels_export(
    options: LabelOptions,
    *,
    resolve: str = option(
        "--resolve",
        "HOW",
        "To gold: majority, dawid-skene or adjudicated; to label lines: every, or log with what"
        " was replaced and withdrawn.",
        REQUIRED,
    ),
    which: str | None = _SET,
    rater: str | None = _OF_RATER,
    output: list[str] | None = option(
        "-o, --output",
        "OUT",
        "Write gold.txt, gold.csv, gold.jsonl, … or FORMAT:OUT, as beir:folder; repeatable.",
    ),
    strict: bool = flag("--strict", "Refuse to leave ties out."),
) -> int:
    """Write gold, or every judgment.

    Gold has one grade per pair; every judgment is a line that import reads back. A decided pair
    has that grade, however others are resolved. A pair on which no grade wins is a tie: it is not
    written, and the command lists it.

    Examples:
      karat labels export --resolve majority -o qrels.txt -o gold.jsonl
      karat labels export --set returns --resolve dawid-skene -o beir:returns
      karat labels export --set returns --resolve every -o labels.jsonl
    """
    from karat.label.label_export import export_labels

    _heed_interrupts()
    outputs = output or []
    piped = any(text == "-" or text.endswith(":-") for text in outputs)
    if piped and options.as_json:
        raise UsageError("--json and -o - both go to standard output; write one to a file")
    result = export_labels(
        outputs, resolve, label_set=which, rater=rater, strict=strict, **options.place
    )
    if not piped:
        return options.show(result)
    for line in () if options.quiet else result.page().notes:
        notify(str(line))
    return 0


@command
def labels_log(
    options: LabelOptions,
    *,
    which: str | None = _SET,
    rater: str | None = _OF_RATER,
    limit: int | None = _LIMIT,
) -> int:
    """List every judgment ever given.

    The newest comes first; replaced and withdrawn judgments are marked.

    Examples:
      karat labels log
      karat labels log --set returns --rater Ana
    """
    from karat.label.label_store import label_log

    shown = options.limit(limit)
    return options.show(label_log(which, rater=rater, limit=shown, **options.place))


def _heed_interrupts() -> None:
    from karat.cli.streams import heed_interrupts

    heed_interrupts()
