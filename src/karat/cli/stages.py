"""``karat stages``: what each stage of a run is worth."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN...",
        help="Run logs with stages, or two runs: the raw lists, then the final ones;"
        " - reads standard input.",
    ),
]
Cut = Annotated[
    str,
    typer.Option("-k", metavar="K", help="How many of the top items count in the end. Default: 5."),
]
Depth = Annotated[
    str,
    typer.Option(
        "--depth", metavar="N", help="How deep raw lists are searched for gold. Default: 50."
    ),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What stages are compared by; the first decides; repeatable."
        " Default: nDCG, P, R and RR at k.",
    ),
]

EXAMPLES = """\b
Examples:
  karat stages run.jsonl --gold qrels.txt
  karat stages raw.jsonl reranked.jsonl --gold qrels.txt
  karat stages run.jsonl --gold qrels.txt --queries queries.jsonl --by language -o stages.md
  karat stages run.jsonl --gold qrels.txt -k 10 --depth 100 -m nDCG@10,P@10
  karat stages routed.jsonl --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl
"""


def stages(
    runs: Runs,
    gold: options.GoldFile,
    measures: Measures = None,
    k: Cut = "5",
    depth: Depth = "50",
    profile: options.Profile = "karat",
    settings: options.Settings = None,
    by: options.By = None,
    queries: options.QueriesFile = None,
    corpus: options.CorpusFile = None,
    output: options.PageOutputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    seed: options.Seed = None,
    strict: options.Strict = False,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
    field: options.Fields = None,
) -> None:
    """Measure each stage by itself: raw retriever, reranker, fusion, router, rewriting, linking.

    Every list that the log holds is scored on the same gold, and each stage is compared with
    the one before, query by query. What the log or the queries do not tell is named.

    Of two runs, the second of which logs no earlier lists, the first is taken for the raw lists
    of the second.

    """
    from karat.analysis.stages import stages as stages_of_runs
    from karat.cli.analysis import open_evaluation, parse_page_outputs, publish
    from karat.cli.numbers import whole

    top, deep = whole("-k", k), whole("--depth", depth)
    outputs = parse_page_outputs(output, [*runs, gold, queries, corpus], as_json=as_json)
    evaluation = open_evaluation(
        runs,
        gold,
        queries=queries,
        corpus=corpus,
        measures=measures,
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
    result = stages_of_runs(evaluation, *runs, measures=measures, k=top, depth=deep)
    publish(result, outputs, as_json=as_json, quiet=quiet)
