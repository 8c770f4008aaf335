"""``karat demo``: the built-in help centre, from search to verdict and findings."""

from __future__ import annotations

from typing import Annotated

import typer

from karat.cli import options

Folder = Annotated[
    str,
    typer.Argument(metavar="DIR", help="Where its files go. Default: karat-demo."),
]

EXAMPLES = """\b
Examples:
  karat demo
  karat demo path/to/folder
  karat demo -o report.json
"""


def demo(
    folder: Folder = "karat-demo",
    output: options.OwnOutputs = None,
    quiet: options.Quiet = False,
) -> None:
    """Take the tour: a help centre in three languages, and a reranker that may have helped.

    Lays the recipe rag down in a folder, searches it with two systems, compares them, holds the
    new one against gates, and says what to fix next. The report stays in the folder.

    """
    from karat.cli.touring import show_tour, tour

    shown = tour(folder, output or [], quiet=quiet)
    if not quiet:
        show_tour(shown)
