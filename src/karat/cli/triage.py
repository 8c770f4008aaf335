"""``karat triage``: the worst queries beside their gold and BM25."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options
from karat.own_folder import OWN_FOLDER

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN", help="The run to look into; - reads standard input."),
]
Measure = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What makes a query bad. Default: the profile's first, such as nDCG@10.",
    ),
]
Worst = Annotated[
    str, typer.Option("--worst", metavar="N", help="How many queries to show. Default: 20.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--query", metavar="ID", help="Show this query in full instead; repeatable."),
]
Cache = Annotated[
    str,
    typer.Option(
        "--cache", metavar="DIR", help="Where the index of the corpus is kept. Default: .karat."
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write out.json, out.md, or all misses as misses:misses.json; repeatable.",
    ),
]

EXAMPLES = """\b
Examples:
  karat triage run.jsonl --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl
  karat triage run.jsonl --gold qrels.txt --corpus corpus.jsonl --query q42
  karat triage run.trec --gold eval.jsonl -m R@5 --worst 5 --line miss=5
  karat triage run.jsonl --gold eval.jsonl --by language -o triage.md -o misses:out/misses.json
"""


def triage(
    runs: Runs,
    gold: options.GoldFile,
    queries: options.QueriesFile = None,
    corpus: options.CorpusFile = None,
    measure: Measure = None,
    worst: Worst = "20",
    query: Ids = None,
    lines: options.Lines = None,
    by: options.By = None,
    cache: Cache = OWN_FOLDER,
    profile: options.Profile = "karat",
    settings: options.Settings = None,
    output: Outputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    strict: options.Strict = False,
    run_format: options.RunFormat = None,
    gold_format: options.GoldFormat = None,
    field: options.Fields = None,
) -> None:
    """Show the worst queries: gold, the run's top 10 and BM25's top 10 side by side.

    Each miss stands with its failure class and what speaks for it, and each query with the
    command that shows it again. With --corpus there are texts, and BM25 searches them on the
    spot.

    """
    from karat.cli.scoring import Request
    from karat.cli.triaging import FORMS, Wish, publish, triage_run
    from karat.formats.field_mapping import Fields
    from karat.reports.outputs import parse_outputs

    request = Request(
        runs=runs,
        gold=gold,
        measures=None if measure is None else [measure],
        profile=profile,
        settings=settings or [],
        by=by or [],
        queries=queries,
        corpus=corpus,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        fields=Fields.parse(field or []),
        quiet=quiet,
    )
    outputs = parse_outputs(output or [], inputs=request.files(), stdout_taken=as_json, forms=FORMS)
    wish = Wish(request, worst=worst, query_ids=query or [], lines=lines or [], cache=cache)
    publish(triage_run(wish), outputs, as_json=as_json, quiet=quiet)
