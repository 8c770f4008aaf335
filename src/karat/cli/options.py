"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

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
Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="FIELD=COLUMN",
        help="Read one of karat's fields from a column of yours, such as gold=gold_ids or"
        " corpus.item_id=uid; repeatable.",
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="COLUMN",
        help="Also report each value of it, or of two crossed: 'language*topic'; repeatable.",
    ),
]
QueriesFile = Annotated[
    str | None,
    typer.Option("--queries", metavar="FILE", help="Queries with attributes; it says which count."),
]
CorpusFile = Annotated[
    str | None, typer.Option("--corpus", metavar="FILE", help="Items with texts and versions.")
]
GatesFile = Annotated[
    str | None,
    typer.Option("--gates", metavar="FILE", help="Limits that must hold, as YAML; else exit 1."),
]
JudgedFile = Annotated[
    str | None,
    typer.Option(
        "--judged", metavar="FILE", help="A judge's labels: P and nDCG also on gold and labels."
    ),
]
HumanFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--human",
        metavar="FILE",
        help="People's judgments of some of what --judged judges: P@k corrected for its errors;"
        " repeatable.",
    ),
]
Bounds = Annotated[
    bool | None,
    typer.Option(
        "--bounds/--no-bounds",
        help="What figures could be, whatever the unjudged items are."
        " Default: told of runs of up to 200,000 hits.",
        show_default=False,
    ),
]
StrictBounds = Annotated[
    bool,
    typer.Option("--strict-bounds", help="Decide only what holds whatever the unjudged items are."),
]
Seed = Annotated[
    str | None,
    typer.Option("--seed", metavar="N", help="What resampling starts from. Default: 0."),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write out.html, out.json, out.csv, out.parquet, out.md, junit:out.xml, trec:out.txt,"
        " or what another tool writes: story: memory: ab: minimal: misses:; repeatable.",
    ),
]
OwnOutputs = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write out.html, out.json, out.csv, out.parquet, out.md, junit:out.xml or"
        " trec:out.txt; repeatable.",
    ),
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="TIME",
        help="The time that memory: reports. Default: SOURCE_DATE_EPOCH, else null.",
    ),
]
PageOutputs = Annotated[
    list[str] | None,
    typer.Option("-o", "--output", metavar="OUT", help="Write out.json or out.md; repeatable."),
]
Lines = Annotated[
    list[str] | None,
    typer.Option(
        "--line",
        metavar="KEY=VALUE",
        help="Draw a line elsewhere: what a miss is (miss=5), what counts as low; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON, not as tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print neither tables nor progress.")]
NoRegression = Annotated[
    str | None,
    typer.Option(
        "--no-regression",
        metavar="WHICH",
        help="What may not get worse: primary (the default), or all measures (profile memory).",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse an item that a run returns twice for a query.")
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="ENGINE",
        help="local, spark or spark=MASTER: Spark reads Parquet, CSV, TSV, TREC and JSONL, "
        "folders, patterns and URLs, and gives the same numbers.",
    ),
]
RunFormat = Annotated[
    str | None,
    typer.Option("--run-format", metavar="FORMAT", help="How the runs are laid out."),
]
GoldFormat = Annotated[
    str | None,
    typer.Option("--gold-format", metavar="FORMAT", help="How the gold is laid out."),
]
