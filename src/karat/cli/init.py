"""``karat init``: a working evaluation to start from, written into a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

Recipe = Annotated[
    str | None,
    typer.Argument(metavar="RECIPE", help="Which recipe; without it, all are listed."),
]
Folder = Annotated[
    str | None,
    typer.Argument(metavar="DIR", help="The folder. Default: one named like the recipe."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that differ.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print the recipes, or the files written, as JSON.")
]
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
    """Write a recipe into a folder: data, a karat.yaml and a README, ready for karat run.

    Files that are there with another content are replaced only with --force.

    """
    from karat.project.recipes import RECIPES, cd_command, write_recipe

    if recipe is None:
        lines = [f"  {name:<{max(map(len, RECIPES))}}  {about}" for name, about in RECIPES.items()]
        lines.append("\nkarat init RECIPE writes one; run it with karat run in its folder")
        _show(RECIPES, lines, as_json=as_json, quiet=quiet)
        return
    done = write_recipe(recipe, folder, force=force)
    lines = [f"  {(done.folder / name).as_posix()}" for name in done.written]
    if done.same:
        lines.append(f"  {len(done.same):,} files were there already, unchanged")
    lines.append(f"\nnext: {cd_command(done.folder)} && karat run   (see README.md)")
    _show(done.to_dict(), lines, as_json=as_json, quiet=quiet)


def _show(document: Mapping[str, Any], lines: Sequence[str], *, as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif not quiet:
        typer.echo("\n".join(lines))
