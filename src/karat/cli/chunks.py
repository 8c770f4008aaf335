"""``karat chunks``: which way of cutting documents finds more."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

Docs = Annotated[
    str,
    typer.Argument(
        metavar="DOCS", help="Whole documents: a corpus, or a folder of .md and .txt files."
    ),
]
Queries = Annotated[
    str | None,
    typer.Option("--queries", metavar="FILE", help="The queries, with gold inside or in --gold."),
]
Gold = Annotated[
    str | None,
    typer.Option("--gold", metavar="FILE", help="The gold: spans of characters, doc_id:start-end."),
]
Chunkers = Annotated[
    list[str] | None,
    typer.Option(
        "--chunker",
        metavar="CHUNKER",
        help="fixed, sentence or heading, as in fixed:size=1200,overlap=200; repeatable, the first"
        " is the baseline. Default: all three.",
    ),
]
Retriever = Annotated[
    str | None,
    typer.Option(
        "--retriever", metavar="NAME", help="A built-in retriever of items. Default: bm25."
    ),
]
Measures = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="What to report; the first decides; repeatable. Default: R@5, DistinctDocs@5.",
    ),
]
Write = Annotated[
    str | None,
    typer.Option("--write", metavar="FILE", help="Keep the chunks of the one chunker as a corpus."),
]

EXAMPLES = """\b
Examples:
  karat chunks docs/ --queries queries.jsonl
  karat chunks docs.jsonl --queries queries.jsonl --gold spans.tsv -m R@5,R@1000tok -o report.md
  karat chunks docs/ --queries queries.jsonl --chunker fixed:1200/200 --chunker fixed:600/100
  karat chunks docs/ --chunker heading:size=800 --write chunks.jsonl
"""


def chunks(
    docs: Docs,
    queries: Queries = None,
    gold: Gold = None,
    chunker: Chunkers = None,
    retriever: Retriever = None,
    measures: Measures = None,
    settings: options.Settings = None,
    seed: options.Seed = None,
    write: Write = None,
    output: options.OwnOutputs = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Cut documents in several ways, search the chunks, and compare with the first way.

    The gold is spans of characters in the documents, so it holds for every way of cutting. A
    span is found once the chunks so far cover half of it (--set cover=0.5).

    Exits with 1 when another way is confirmed to be worse than the first, with 3 when not one
    query could be scored.

    """
    from karat.cli.chunking import Request, compare_chunkings
    from karat.cli.cuts import show_cuts
    from karat.cli.publish import publish
    from karat.reports.outputs import OWN_FORMS, parse_outputs

    request = Request(
        docs=docs,
        queries=queries,
        gold=gold,
        chunkers=chunker or [],
        retriever=retriever,
        measures=measures,
        settings=settings or [],
        seed=seed,
        outputs=output or [],
        write=write,
        as_json=as_json,
        quiet=quiet,
    )
    outputs = parse_outputs(
        request.outputs, inputs=request.files(), stdout_taken=request.piped, forms=OWN_FORMS
    )
    found = compare_chunkings(request)
    taken = request.piped or any(one.path is None for one in outputs)
    if (found.report is None and as_json) or not (taken or quiet):
        show_cuts(found.cuts, as_json=as_json)
    if found.report is not None:
        publish(found.report, outputs, as_json=as_json, quiet=quiet or write == "-")
