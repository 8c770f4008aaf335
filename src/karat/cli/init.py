"""``karat init``: a working evaluation to start from, laid down in a folder."""

from __future__ import annotations

from typing import Annotated

import typer

Recipe = Annotated[
    str | None,
    typer.Argument(metavar="RECIPE", help="Which one; without it, all are listed."),
]
Folder = Annotated[
    str | None,
    typer.Argument(metavar="DIR", help="Where it goes. Default: a folder named like it."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace files that are there and say something else.")
]
Json = Annotated[bool, typer.Option("--json", help="Print what there is or was written as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing.")]

EXAMPLES = """\b
Examples:
  karat init
  karat init rag && cd rag && karat run
  karat init minimal path/to/folder
"""


def init(
    recipe: Recipe = None,
    folder: Folder = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Lay down a recipe: data, a karat.yaml and a README, ready for karat run.

    Nothing that is there is replaced, unless by --force; what is the same already is left alone.

    """
    from karat.cli.recipes import lay_down, show_laid, show_recipes

    if recipe is None:
        show_recipes(as_json=as_json, quiet=quiet)
    else:
        show_laid(lay_down(recipe, folder, force=force), as_json=as_json, quiet=quiet)
