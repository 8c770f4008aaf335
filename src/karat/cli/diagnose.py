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
    from karat.cli.analysing import page_outputs, publish_paper
    from karat.cli.diagnosing import diagnosis_of
    from karat.cli.scoring import Request
    from karat.formats.field_mapping import Fields
    from karat.reports.diagnosis import FORMS

    request = Request(
        runs=runs,
        gold=gold,
        profile=profile,
        settings=settings or [],
        by=by or [],
        queries=queries,
        corpus=corpus,
        seed=seed,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        fields=Fields.parse(field or []),
        quiet=quiet,
    )
    outputs = page_outputs(
        request,
        output or [],
        forms=FORMS,
        stdout_taken=as_json,
        inputs=[] if baseline is None else [baseline],
    )
    paper = diagnosis_of(request, measures, k=k, lines=lines or [], baseline=baseline)
    publish_paper(paper, outputs, as_json=as_json, quiet=quiet)
