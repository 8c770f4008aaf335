"""``karat sweep``: a measure over its cut-offs, and where more stops helping."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Runs to look at; - reads standard input."),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What to follow over k, without a cut-off, such as 'R, RR'; repeatable."
        " Default: R and the profile's nDCG.",
    ),
]
Ks = Annotated[
    str | None,
    typer.Option(
        "--k",
        metavar="K,K...",
        help="The cut-offs: ranks, or budgets such as 500tok,1000tok. Default: 1,3,5,10,20, and"
        " 50,100 where lists go that deep.",
    ),
]
Flat = Annotated[
    str | None,
    typer.Option(
        "--flat",
        metavar="SHARE",
        help="What a larger k may still add where a curve counts as flat, as a share of its"
        " highest value. Default: 0.02.",
    ),
]
BudgetOf = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="WHAT",
        help="What to show beside the curve: tokens (the default with --corpus), or the latency"
        " of a stage, such as latency.total.",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write out.json, out.csv, out.md, out.png or out.svg; repeatable.",
    ),
]

EXAMPLES = """\b
Examples:
  karat sweep bm25.trec --gold qrels.txt
  karat sweep bm25.trec dense.jsonl --gold qrels.txt -m R -m RR --k 1,2,3,5 -o curves.svg
  karat sweep run.jsonl --gold qrels.txt --corpus corpus.jsonl --k 500tok,1000tok,2000tok
  karat sweep run.jsonl --gold qrels.txt --queries queries.jsonl --by language
"""


def sweep(
    runs: Runs,
    gold: options.GoldFile,
    measures: Measures = None,
    ks: Ks = None,
    by: options.By = None,
    queries: options.QueriesFile = None,
    corpus: options.CorpusFile = None,
    budget: BudgetOf = None,
    flat: Flat = None,
    profile: options.Profile = "karat",
    settings: options.Settings = None,
    output: Outputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = None,
    strict: options.Strict = False,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
    field: options.Fields = None,
) -> None:
    """Follow measures over their cut-offs: where they flatten, and what k costs.

    Exits with 3 when not one query or cut-off could be measured.

    """
    from karat.analysis.sweep import check_sweep
    from karat.analysis.sweep import sweep as sweep_runs
    from karat.analysis.sweep.curves import FLAT
    from karat.cli.analysis import CSV, PNG, SVG, open_evaluation, parse_page_outputs, publish

    flat_share = FLAT if flat is None else flat
    check_sweep(measures, ks=ks, flat=flat_share, budget=budget)
    files = [*runs, gold, queries, corpus]
    outputs = parse_page_outputs(output, files, as_json=as_json, more_forms=(CSV, PNG, SVG))
    evaluation = open_evaluation(
        runs,
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
    result = sweep_runs(evaluation, *runs, measures=measures, ks=ks, flat=flat_share, budget=budget)
    publish(result, outputs, as_json=as_json, quiet=quiet)
