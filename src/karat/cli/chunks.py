"""``karat chunks``: which way of cutting documents finds more."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from karat.cli import options
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.report.outputs import Output

# Formats of a corpus that keep every column.
_WHOLE = ("jsonl", "csv", "tsv-with-header", "parquet")

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
    from karat.analysis.chunks import chunks as cut_and_search
    from karat.cli.options import parse_settings
    from karat.cli.progress import counting
    from karat.cli.publish import publish
    from karat.cli.streams import heed_interrupts
    from karat.pages.terminal import show_page, standard_console
    from karat.report.document import build_report
    from karat.report.outputs import OWN_FORMS, parse_outputs

    files = [name for name in (docs, queries, gold) if name is not None]
    piped = as_json or write == "-"
    outputs = parse_outputs(output or [], inputs=files, stdout_taken=piped, forms=OWN_FORMS)
    heed_interrupts()
    for_scoring = {
        "--gold": gold,
        "--retriever": retriever,
        "-m": measures,
        "--set": settings,
        "--seed": seed,
        "-o": output,
    }
    _check(files, queries, gold, for_scoring, write=write, chunkers=chunker or [])
    if write is not None:
        _check_writing(write, files, outputs, chunker or [], as_json=as_json)
    found = cut_and_search(
        docs,
        queries=queries,
        gold=gold,
        chunkers=chunker or [],
        retriever=retriever,
        measures=measures,
        settings=parse_settings(settings or []),
        seed=seed,
        write=write,
        open_bar=partial(counting, quiet=quiet or piped),
    )
    if as_json and found.task is None:
        _print_json([chunking.to_dict() for chunking in found.chunkings])
    elif not (quiet or piped or any(one.path is None for one in outputs)):
        show_page(found.page(), standard_console())
    if found.task is not None:
        report = build_report(
            found.scores, gold=found.task.gold, queries=found.task.queries, corpus=found.docs
        )
        if found.comparisons is not None:
            report = replace(report, comparisons=found.comparisons)
        publish(report, outputs, as_json=as_json, quiet=quiet or write == "-")


def _check(
    files: Sequence[str],
    queries: str | None,
    gold: str | None,
    for_scoring: Mapping[str, object],
    *,
    write: str | None,
    chunkers: Sequence[str],
) -> None:
    """Refuse what would be ignored, before anything is read."""
    from karat.analysis.chunks import parse_chunkers

    parse_chunkers(chunkers)
    if list(files).count("-") > 1:
        raise UsageError("only one input can be standard input (-)")
    if queries == "-" and gold is None:
        raise UsageError("queries with gold inside are read twice; give a file, not -")
    if queries is not None:
        return
    if write is None:
        raise UsageError("give --queries to compare chunkings, or --write to keep one's chunks")
    for option, value in for_scoring.items():
        if value:
            raise UsageError(f"{option} is for scoring, which needs --queries")


def _check_writing(
    path: str,
    files: Sequence[str],
    outputs: Sequence[Output],
    chunkers: Sequence[str],
    *,
    as_json: bool,
) -> None:
    from karat.formats.detect import format_for_writing

    if len(chunkers) != 1:
        raise UsageError("--write keeps the chunks of one chunker; give one --chunker")
    if path != "-" and format_for_writing(path, "corpus", None).name not in _WHOLE:
        raise UsageError(f"--write {path}: end it in .jsonl, .csv, .tsv or .parquet")
    if path == "-" and as_json:
        raise UsageError("--write - and --json both go to standard output; name a file")
    written = [str(output.path) for output in outputs if output.path is not None]
    if os.path.realpath(path) in map(os.path.realpath, [*files, *written]):
        raise UsageError(f"--write {path} is also an input or output; choose another name")


def _print_json(data: object) -> None:
    from karat.report.outputs import write_stdout

    write_stdout((json.dumps(data, ensure_ascii=False, indent=2) + "\n").encode())
