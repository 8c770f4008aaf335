"""``karat eval``: score one or many runs against gold."""

from __future__ import annotations

from typing import Annotated

import typer

Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Runs to score; - reads standard input."),
]
GoldFile = Annotated[
    str, typer.Option("--gold", metavar="FILE", help="The judgments: qrels or any format read.")
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What to report, such as 'nDCG@10, R@{1,5}'; repeatable. Default: the profile's.",
    ),
]
Profile = Annotated[
    str, typer.Option("--profile", metavar="NAME", help="The reading of measures and gaps.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one convention; repeatable."),
]
By = Annotated[
    list[str] | None,
    typer.Option("--by", metavar="COLUMN", help="Also report each value of it; repeatable."),
]
QueriesFile = Annotated[
    str | None,
    typer.Option("--queries", metavar="FILE", help="Queries with attributes; it says which count."),
]
CorpusFile = Annotated[
    str | None, typer.Option("--corpus", metavar="FILE", help="Items with texts and versions.")
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write out.json, out.csv, out.parquet, out.md or trec:out.txt; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON, not as tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print neither tables nor progress.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse an item that a run returns twice for a query.")
]
RunFormat = Annotated[
    str | None,
    typer.Option("--run-format", metavar="FORMAT", help="How the runs are laid out."),
]
GoldFormat = Annotated[
    str | None,
    typer.Option("--gold-format", metavar="FORMAT", help="How the gold is laid out."),
]

EXAMPLES = """\b
Examples:
  karat eval bm25.trec --gold qrels.txt
  karat eval bm25.trec dense.jsonl --gold qrels.txt -m nDCG@10,R@100 -o report.json
  karat eval run.trec --gold qrels.txt --profile trec -o trec:-
  karat eval run.jsonl --gold qrels.txt --queries queries.jsonl --by language
"""


def evaluate(
    runs: Runs,
    gold: GoldFile,
    measures: Measures = None,
    profile: Profile = "karat",
    settings: Settings = None,
    by: By = None,
    queries: QueriesFile = None,
    corpus: CorpusFile = None,
    output: Outputs = None,
    as_json: Json = False,
    quiet: Quiet = False,
    strict: Strict = False,
    run_format: RunFormat = None,
    gold_format: GoldFormat = None,
) -> None:
    """Score one or many runs against gold.

    Exits with 3 when not one query could be scored.

    """
    from karat.cli.publish import publish
    from karat.cli.scoring import Request, score
    from karat.reports.outputs import parse_outputs

    request = Request(
        runs=runs,
        gold=gold,
        measures=measures,
        profile=profile,
        settings=settings or [],
        by=by or [],
        queries=queries,
        corpus=corpus,
        strict=strict,
        run_format=run_format,
        gold_format=gold_format,
        quiet=quiet,
    )
    outputs = parse_outputs(output or [], inputs=request.files(), stdout_taken=as_json)
    publish(score(request), outputs, as_json=as_json, quiet=quiet)
