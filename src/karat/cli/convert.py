"""``karat convert``: write a file in another format."""

from __future__ import annotations

from typing import Annotated

import typer

Source = Annotated[str, typer.Argument(metavar="IN", help="What to read; - is standard input.")]
Target = Annotated[str, typer.Argument(metavar="OUT", help="Where to write; - prints.")]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="What IN holds: run, gold, queries or corpus. Default: detected from IN and OUT.",
    ),
]
From = Annotated[
    str | None, typer.Option("--from", metavar="FORMAT", help="IN's format. Default: detected.")
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="FORMAT", help="OUT's format. Default: by its suffix."),
]

EXAMPLES = """\b
Examples:
  karat convert run.trec run.parquet
  karat convert qrels.txt gold.csv --kind gold
  karat convert log.jsonl.gz - --to trec
"""


def convert(
    source: Source,
    target: Target,
    kind: Kind = None,
    from_format: From = None,
    to_format: To = None,
) -> None:
    """Write a file in another format.

    Prints to standard error which columns the new format cannot store.
    """
    from karat import convert as convert_file
    from karat.cli.streams import heed_interrupts

    heed_interrupts()
    result = convert_file(source, target, kind=kind, from_format=from_format, to_format=to_format)
    typer.echo(f"{source}: {result.rows:,} {result.unit} written as {result.format}", err=True)
    if result.lost:
        typer.echo(f"not carried by {result.format}: {', '.join(result.lost)}", err=True)
