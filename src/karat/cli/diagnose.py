"""``karat diagnose``: what to fix next, from everything that a run's log tells."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Runs to look into; - reads standard input."),
]
Cut = Annotated[
    str,
    typer.Option("-k", metavar="K", help="How many of the top items are looked at. Default: 10."),
]
Baseline = Annotated[
    str | None,
    typer.Option("--baseline", metavar="RUN", help="An earlier run, to tell what became slower."),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write out.json, out.md, or the charts: out.png, out.svg; repeatable.",
    ),
]

EXAMPLES = """\b
Examples:
  karat diagnose run.jsonl --gold qrels.txt
  karat diagnose run.jsonl --gold eval.jsonl --queries eval.jsonl --corpus corpus.jsonl
  karat diagnose bm25.jsonl hybrid.jsonl --gold qrels.txt --by language -o diagnosis.json
  karat diagnose run.jsonl --gold qrels.txt --line miss=5 --line similarity=0.4
  karat diagnose new.jsonl --gold qrels.txt --baseline old.jsonl -o losses.svg
"""


def diagnose(
    runs: Runs,
    gold: options.GoldFile,
    measures: options.Measures = None,
    k: Cut = "10",
    baseline: Baseline = None,
    lines: options.Lines = None,
    profile: options.Profile = "karat",
    settings: options.Settings = None,
    by: options.By = None,
    queries: options.QueriesFile = None,
    corpus: options.CorpusFile = None,
    output: Outputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = None,
    strict: options.Strict = False,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
    field: options.Fields = None,
) -> None:
    """Say what to fix next: findings, failures, losses, freshness, diversity, latency.

    What a run's log, the queries or the corpus do not tell is named, with the field that would.
    The measures are those whose loss from the ceiling is broken down: nDCG and R unless named.

    """
    from karat.analysis.diagnosis import diagnose as diagnose_runs
    from karat.cli.analysis import PNG, SVG, open_evaluation, parse_page_outputs, publish
    from karat.cli.numbers import whole
    from karat.evaluation.thresholds import parse_thresholds

    depth, thresholds = whole("-k", k), parse_thresholds(lines or [], profile)
    files = [*runs, *([] if baseline is None else [baseline])]
    outputs = parse_page_outputs(
        output, [*files, gold, queries, corpus], as_json=as_json, more_forms=(PNG, SVG)
    )
    evaluation = open_evaluation(
        files,
        gold,
        queries=queries,
        corpus=corpus,
        profile=profile,
        settings=settings,
        by=by,
        seed=seed,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        field=field,
        quiet=quiet,
    )
    result = diagnose_runs(
        evaluation, *runs, measures=measures, k=depth, thresholds=thresholds, baseline=baseline
    )
    publish(result, outputs, as_json=as_json, quiet=quiet)
