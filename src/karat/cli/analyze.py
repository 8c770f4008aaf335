"""``karat sweep``, ``triage``, ``stages``, ``stress``, ``diagnose`` and ``chunks``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import karat
from karat.cli.command import argument, command, flag, option
from karat.cli.options import (
    BY,
    CORPUS,
    GOLD_FORMAT,
    QUERIES,
    RUN_FORMAT,
    SEED,
    SETTINGS,
    STRICT,
    THRESHOLDS,
    InputOptions,
    PageOptions,
    ScoringOptions,
    echo,
    messages,
    notify,
    parse_settings,
    publish_report,
    show,
)
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.reports.outputs import Form, Output


@dataclass(frozen=True, kw_only=True)
class AnalysedRuns(ScoringOptions):
    """Runs to analyze, and their gold."""

    runs: list[str] = argument("RUN...", "Runs to analyze; - reads standard input.")


@dataclass(frozen=True, kw_only=True)
class CurveOutputs(PageOptions):
    """Outputs for curves."""

    output: list[str] | None = option(
        "-o, --output", "OUT", "Write out.json, out.csv, out.md, out.png or out.svg; repeatable."
    )


@dataclass(frozen=True, kw_only=True)
class ChartOutputs(PageOptions):
    """Outputs for a page with charts."""

    output: list[str] | None = option(
        "-o, --output",
        "OUT",
        "Write out.json, out.md, or the charts: out.png, out.svg; repeatable.",
    )


@dataclass(frozen=True, kw_only=True)
class MissesOutputs(PageOptions):
    """Outputs for a page, and for every miss."""

    output: list[str] | None = option(
        "-o, --output",
        "OUT",
        "Write out.json, out.md, or all misses as misses:misses.json; repeatable.",
    )


def _forms(*names: str) -> list[Form]:
    """Return forms that some analyses have beside JSON and Markdown."""
    from karat.reports.outputs import Form

    extra_forms = {
        "csv": Form("csv", ".csv", "the table of the numbers", "karat.pages.result.to_csv"),
        "png": Form("png", ".png", "the charts as a picture", "karat.pages.result.to_png"),
        "svg": Form("svg", ".svg", "the charts as a drawing", "karat.pages.result.to_svg"),
        "misses": Form(
            "misses",
            None,
            "every miss: query, retrieved, relevant",
            "karat.analysis.triage.to_misses",
        ),
    }
    return [extra_forms[name] for name in names]


@command("sweep")
def sweep(
    inputs: AnalysedRuns,
    output: CurveOutputs,
    *,
    measures: list[str] | None = option(
        "-m, --measure",
        "MEASURE",
        "Measures to plot over k, without a cut-off, such as 'R, RR'; repeatable. Default: R and"
        " the profile's nDCG.",
    ),
    ks: str | None = option(
        "--k",
        "K,K...",
        "The cut-offs: ranks, or budgets such as 500tok,1000tok. Default: 1,3,5,10,20, and 50,100"
        " where lists go that deep.",
    ),
    flat: float = option(
        "--flat",
        "SHARE",
        "A curve is flat where no larger k adds more than this share of its highest"
        " value. Default: 0.02.",
        0.02,
        least=0,
        most=0.99,
    ),
    budget: str | None = option(
        "--budget",
        "WHAT",
        "The budget to show with the curve: tokens (the default with --corpus), or the latency of a"
        " stage, such as latency.total.",
    ),
) -> int:
    """Show how measures change with the cut-off: where they level off, and the cost of k.

    Exits with 3 when no query or cut-off could be measured.

    Examples:
      karat sweep bm25.trec --gold qrels.txt
      karat sweep bm25.trec dense.jsonl --gold qrels.txt -m R -m RR --k 1,2,3,5 -o curves.svg
      karat sweep run.jsonl --gold qrels.txt --corpus corpus.jsonl --k 500tok,1000tok,2000tok
      karat sweep run.jsonl --gold qrels.txt --queries queries.jsonl --by language
    """
    outputs = output.parse(inputs.files(), *_forms("csv", "png", "svg"))
    result = karat.sweep(
        inputs.evaluation(), *inputs.runs, measures=measures, ks=ks, flat=flat, budget=budget
    )
    return output.publish(result, outputs)


@dataclass(frozen=True, kw_only=True)
class TriagedRun(InputOptions):
    """One run to analyze."""

    runs: list[str] = argument("RUN...", "The run to analyze; - reads standard input.")


@command("triage")
def triage(
    inputs: TriagedRun,
    output: MissesOutputs,
    *,
    measure: str | None = option(
        "-m, --measure",
        "MEASURE",
        "The measure that selects bad queries. Default: the profile's first, such as nDCG@10.",
    ),
    worst: int = option("--worst", "N", "How many queries to show. Default: 20.", 20),
    query: list[str] | None = option(
        "--query", "ID", "Show this query in full instead; repeatable."
    ),
    lines: list[str] | None = THRESHOLDS,
    cache: str = option(
        "--cache", "DIR", "Where the index of the corpus is kept. Default: .karat.", ".karat"
    ),
) -> int:
    """Show the worst queries: gold, the run's top 10 and BM25's top 10 side by side.

    Each miss has its failure class and the evidence for it, and each query the command that
    shows it again. With --corpus there are texts, and BM25 searches them.

    Examples:
      karat triage run.jsonl --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl
      karat triage run.jsonl --gold qrels.txt --corpus corpus.jsonl --query q42
      karat triage run.trec --gold eval.jsonl -m R@5 --worst 5 --line miss=5
      karat triage run.jsonl --gold eval.jsonl --by language -o triage.md -o misses:misses.json
    """
    if len(inputs.runs) > 1:
        raise UsageError(
            f"triage takes one run, not {len(inputs.runs)}; give one of them, or compare two"
            " with karat compare"
        )
    outputs = output.parse(inputs.files(), *_forms("misses"))
    if not cache:
        raise UsageError("--cache is empty; name a folder, such as .karat")
    evaluation = inputs.evaluation(
        measures=None if measure is None else [measure], index_cache=Path(cache)
    )
    # The command line without the options for outputs.
    typed = {
        "--gold": inputs.gold,
        "--queries": inputs.queries,
        "--corpus": inputs.corpus,
        "--cache": None if cache == ".karat" else cache,
        "--profile": None if inputs.profile == "karat" else inputs.profile,
        "--run-format": inputs.run_format,
        "--gold-format": inputs.gold_format,
        "-m": [] if measure is None else [measure],
        "--set": inputs.settings,
        "--line": lines,
        "--field": evaluation.fields.texts(),
    }
    words = ["karat", "triage", inputs.runs[0]]
    for name, value in typed.items():
        for word in [value] if isinstance(value, str) else value or []:
            words += [name, word]
    words += ["--strict"] if inputs.strict else []
    result = karat.triage(
        evaluation,
        inputs.runs[0],
        measure=measure,
        worst=worst,
        query_ids=query or [],
        thresholds=lines or (),
        commands=partial(_commands, words),
    )
    return output.publish(result, outputs)


def _commands(words: Sequence[str], query_id: str, meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the command that reproduces a query, and with a karat.yaml the search command."""
    shown = {"reproduce": shlex.join([*words, "--query", query_id])}
    if "config" not in meta or not meta.get("system") or not Path("karat.yaml").is_file():
        return shown
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in query_id)
    again = ["karat", "search", "karat.yaml", "--system", str(meta["system"])]
    again += ["--filter", f"query_id={query_id}", "-o", f"{safe}.jsonl"]
    return {**shown, "ask_again": shlex.join(again)}


@command("stages")
def stages(
    inputs: AnalysedRuns,
    output: PageOptions,
    *,
    measures: list[str] | None = option(
        "-m, --measure",
        "MEASURE",
        "Measures to compare stages by; the first decides; repeatable. Default: nDCG, P, R and RR"
        " at k.",
    ),
    k: int = option("-k", "K", "How many top items of the final list count. Default: 5.", 5),
    depth: int = option(
        "--depth", "N", "How deep raw lists are searched for gold. Default: 50.", 50
    ),
) -> int:
    """Measure each stage by itself: raw retriever, reranker, fusion, router, rewriting, linking.

    Every list in the log is scored on the same gold, and each stage is compared with the one
    before, query by query. The output lists what the log or the queries lack.

    Of two runs, the second of which logs no earlier lists, the first is taken for the raw lists
    of the second.

    Examples:
      karat stages run.jsonl --gold qrels.txt
      karat stages raw.jsonl reranked.jsonl --gold qrels.txt
      karat stages run.jsonl --gold qrels.txt --queries queries.jsonl --by language -o stages.md
      karat stages run.jsonl --gold qrels.txt -k 10 --depth 100 -m nDCG@10,P@10
      karat stages routed.jsonl --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl
    """
    outputs = output.parse(inputs.files())
    evaluation = inputs.evaluation(measures=measures or None)
    result = karat.stages(evaluation, *inputs.runs, measures=measures, k=k, depth=depth)
    return output.publish(result, outputs)


@command("diagnose")
def diagnose(
    inputs: AnalysedRuns,
    output: ChartOutputs,
    *,
    measures: list[str] | None = option(
        "-m, --measure",
        "MEASURE",
        "The measures whose loss from the ceiling is broken down; repeatable. Default: nDCG, R.",
    ),
    k: int = option("-k", "K", "How many of the top items are looked at. Default: 10.", 10),
    baseline: str | None = option(
        "--baseline", "RUN", "An earlier run, to report what became slower."
    ),
    lines: list[str] | None = THRESHOLDS,
) -> int:
    """Report what to fix next: findings, failures, losses, freshness, diversity, latency.

    The output lists what the run's log, the queries or the corpus lack, with the name of the
    field.

    Examples:
      karat diagnose run.jsonl --gold qrels.txt
      karat diagnose run.jsonl --gold eval.jsonl --queries eval.jsonl --corpus corpus.jsonl
      karat diagnose bm25.jsonl hybrid.jsonl --gold qrels.txt --by language -o diagnosis.json
      karat diagnose run.jsonl --gold qrels.txt --line miss=5 --line similarity=0.4
      karat diagnose new.jsonl --gold qrels.txt --baseline old.jsonl -o losses.svg
    """
    outputs = output.parse([*inputs.files(), baseline], *_forms("png", "svg"))
    result = karat.diagnose(
        inputs.evaluation(),
        *inputs.runs,
        measures=measures,
        k=k,
        thresholds=lines or (),
        baseline=baseline,
    )
    return output.publish(result, outputs)


@dataclass(frozen=True, kw_only=True)
class ReportOutputs(PageOptions):
    """Outputs for a report, in karat's own forms."""

    output: list[str] | None = option(
        "-o, --output",
        "OUT",
        "Write out.html, out.json, out.csv, out.parquet, out.md, junit:out.xml or trec:out.txt;"
        " repeatable.",
    )

    def parse(self, inputs: Sequence[str | None], *more_forms: Form) -> list[Output]:
        """Read every ``-o``; an output that cannot be written is refused before any work."""
        from karat.reports.outputs import OWN_FORMS

        return super().parse(inputs, *OWN_FORMS.values(), *more_forms)


@command("chunks")
def chunks(
    output: ReportOutputs,
    *,
    docs: str = argument("DOCS", "Whole documents: a corpus, or a folder of .md and .txt files."),
    queries: str | None = option(
        "--queries", "FILE", "The queries, with gold inside or in --gold."
    ),
    gold: str | None = option("--gold", "FILE", "The gold: spans of characters, doc_id:start-end."),
    chunker: list[str] | None = option(
        "--chunker",
        "CHUNKER",
        "fixed, sentence or heading, as in fixed:size=1200,overlap=200; repeatable, the first is"
        " the baseline. Default: all three.",
    ),
    retriever: str | None = option(
        "--retriever", "NAME", "A built-in retriever of items. Default: bm25."
    ),
    measures: list[str] | None = option(
        "-m, --measure",
        "MEASURE",
        "Measures to report; the first decides; repeatable. Default: R@5, DistinctDocs@5.",
    ),
    settings: list[str] | None = SETTINGS,
    seed: str | None = SEED,
    write: str | None = option(
        "--write", "FILE", "Save the chunks of the only chunker as a corpus."
    ),
) -> int:
    """Cut documents in several ways, search the chunks, and compare with the first way.

    The gold is spans of characters in the documents, so it holds for every way of cutting. A
    span is found once the chunks so far cover half of it (--set cover=0.5).

    Exits with 1 when another way is confirmed to be worse than the first, with 3 when not one
    query could be scored.

    Examples:
      karat chunks docs/ --queries queries.jsonl
      karat chunks docs.jsonl --queries queries.jsonl --gold spans.tsv -m R@5,R@1000tok -o out.md
      karat chunks docs/ --queries queries.jsonl --chunker fixed:1200/200 --chunker fixed:600/100
      karat chunks docs/ --chunker heading:size=800 --write chunks.jsonl
    """
    from karat.cli.progress import counting
    from karat.cli.streams import heed_interrupts

    heed_interrupts()
    if write == "-" and output.as_json:
        raise UsageError("--write - and --json both go to standard output; name a file")
    if output.output and queries is None:
        raise UsageError("-o is for the report on a comparison, which needs --queries")
    outputs = output.parse([docs, queries, gold or queries, write])
    piped = output.as_json or write == "-"
    result = karat.chunks(
        docs,
        queries=queries,
        gold=gold,
        chunkers=chunker or [],
        retriever=retriever,
        measures=measures,
        settings=parse_settings(settings or [], seed),
        write=write,
        open_bar=partial(counting, quiet=output.quiet or piped),
    )
    if output.as_json and result.task is None:
        echo(json.dumps(result.to_dict()["systems"], ensure_ascii=False, indent=2))
    elif not (output.quiet or piped or any(out.path is None for out in outputs)):
        show(result)
    if result.task is None:
        return 0
    report = karat.Report.of(
        result.scores, gold=result.task.gold, queries=result.task.queries, corpus=result.docs
    )
    if result.comparisons is not None:
        report = replace(report, comparisons=result.comparisons)
    quiet = output.quiet or write == "-"
    return publish_report(report, outputs, as_json=output.as_json, quiet=quiet)


# How many queries of a karat.yaml are asked unless named.
_SAMPLE = 100


@command("stress")
def stress(
    output: PageOptions,
    *,
    subject: str | None = argument(
        "RUN_OR_CONFIG",
        "A karat.yaml, whose systems rerank again, or a run. Default: this folder's karat.yaml.",
        None,
    ),
    system: list[str] | None = option("--system", "NAME", "Only this system of it; repeatable."),
    gold: str | None = option("--gold", "FILE", "The judgments, for a run."),
    queries: str | None = QUERIES,
    corpus: str | None = CORPUS,
    insert: int | None = option(
        "--insert", "N", "Insert N hard negatives. Default: 3.", most=10_000
    ),
    at: str | None = option("--at", "RANKS", "Their ranks, as in 1,2,3. Default: the top ranks."),
    negatives: str | None = option(
        "--negatives",
        "own|bm25",
        "The eval set's own, or the best by BM25 that are not gold. Default: own if any.",
    ),
    drop: list[str] | None = option(
        "--drop", "N|gold", "Remove the first N items, or the best gold; repeatable."
    ),
    shuffle: bool = flag("--shuffle", "Put the list in random order."),
    truncate: list[str] | None = option("--truncate", "N", "Leave only the first N; repeatable."),
    sample: int | None = option(
        "--sample",
        "N|all",
        "How many queries to draw by the seed. Default: 100 for a karat.yaml, all for a run.",
        otherwise="all",
    ),
    measures: list[str] | None = option(
        "-m, --measure",
        "MEASURE",
        "Measures that may drop; the first decides; repeatable. Default: nDCG@5, R@5, RR@10.",
    ),
    profile: str | None = option(
        "--profile",
        "NAME",
        "Conventions for measures and gaps. Default: the karat.yaml's, else karat.",
    ),
    settings: list[str] | None = SETTINGS,
    by: list[str] | None = BY,
    seed: str | None = SEED,
    strict: bool = STRICT,
    run_format: str | None = RUN_FORMAT,
    gold_format: str | None = GOLD_FORMAT,
) -> int:
    """Damage the input lists of a reranker, rerun it, and measure the drop.

    Each kind of damage is a scenario of its own; without any, three hard negatives are inserted at
    the top. For the systems of a karat.yaml, the retrieved list is damaged and all later stages
    rerun. A run cannot be reranked: there the list itself is damaged, and the output says so.

    Exits with 3 when no query could be measured before and after.

    Examples:
      karat stress karat.yaml --system hybrid
      karat stress --insert 3 --at 1,2,3 --drop gold --shuffle --truncate 20
      karat stress --negatives bm25 --sample 200 --by language -o stress.json -o stress.md
      karat stress run.jsonl --gold eval.jsonl --insert 2 --at 1,3
    """
    from karat.cli.progress import counting

    quiet = output.quiet or output.as_json
    chosen = measures or ("nDCG@5", "R@5", "RR@10")
    size = sample if isinstance(sample, int) else None
    damage: dict[str, Any] = {
        "insert": insert,
        "at": at,
        "drop": drop or (),
        "shuffle": shuffle,
        "truncate": truncate or (),
        "negatives": negatives,
    }
    if subject is None or Path(subject).suffix.lower() in (".yaml", ".yml"):
        project = karat.Project(
            subject,
            systems=system,
            settings=parse_settings(settings or []),
            notify=lambda message: None if quiet else notify(message),
            open_bar=partial(counting, quiet=quiet),
        )
        for_runs = {"--gold": gold, "--queries": queries, "--corpus": corpus, "--strict": strict}
        for_runs |= {"--run-format": run_format, "--gold-format": gold_format}
        for name, value in for_runs.items():
            if value:
                raise UsageError(f"{name} is for a run; {project.path.name} names its own inputs")
        outputs = output.parse(project.config.files)
        result = project.stress(
            profile=profile,
            measures=chosen,
            by=by or [],
            seed=seed,
            sample_size=_SAMPLE if sample is None else size,
            **damage,
        )
        return output.publish(result, outputs)
    if system:
        raise UsageError("--system names a system of a karat.yaml; a run is of one system only")
    if gold is None and queries is None:
        raise UsageError("a run needs gold; give --gold FILE")
    outputs = output.parse([subject, gold, queries, corpus])
    evaluation = karat.Evaluation(
        gold or queries,
        queries=queries,
        corpus=corpus,
        profile=profile or "karat",
        settings=parse_settings(settings or []),
        seed=seed,
        measures=chosen,
        by=by or [],
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        notify=messages(quiet=quiet),
    )
    result = karat.stress(evaluation, subject, sample_size=size, **damage)
    return output.publish(result, outputs)
