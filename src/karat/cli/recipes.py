"""The recipes that ship with karat: what each is, and how its files come into a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import typer

from karat.errors import UsageError, unknown
from karat.formats.files import replacing

RECIPES = {
    "story": "scenes of a story, searched by hypervectors and by words: MRR above 0.6",
    "rag": "a help centre in three languages: retriever, reranker, segments, gates",
    "memory": "an assistant's memories: a test suite held against a table of targets",
    "ab": "two configs of a retrieval engine, compared offline to the byte",
    "minimal": "a /search service, started and asked: hit rate, recall, misses",
    "first": "the small set on which the pages of the documentation show things",
}
_LEFT_BEHIND = ("__pycache__",)


@dataclass(frozen=True)
class Laid:
    """A recipe in its folder: the files written, and those that were there already."""

    recipe: str
    folder: Path
    written: tuple[str, ...]
    same: tuple[str, ...]


def lay_down(recipe: str, folder: str | None, *, force: bool = False) -> Laid:
    """Copy a recipe's files; where one is there with another content, nothing is written."""
    if recipe not in RECIPES:
        raise unknown("recipe", recipe, RECIPES)
    if folder is not None and not folder.strip():
        raise UsageError("the folder has no name; give one, such as my-evaluation")
    place = Path(recipe if folder is None else folder)
    if place.exists() and not place.is_dir():
        raise UsageError(f"{place} is a file; name a folder")
    wanted = dict(recipe_files(recipe))
    found = {name: _held(place / name) for name in wanted}
    other = [name for name, held in found.items() if held not in (None, wanted[name])]
    if other and not force:
        more = "" if len(other) == 1 else f" and {len(other) - 1:,} more files"
        raise UsageError(
            f"{place / other[0]}{more} would be replaced; name another folder, or give --force"
        )
    same = tuple(name for name, held in found.items() if held == wanted[name])
    _write(place, {name: data for name, data in wanted.items() if name not in same})
    return Laid(recipe, place, tuple(name for name in wanted if name not in same), same)


def recipe_files(recipe: str) -> Iterator[tuple[str, bytes]]:
    """Every file of a recipe by its path in the folder."""
    yield from sorted(_under(files("karat") / "recipes" / recipe, ""))


def _under(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for one in folder.iterdir():
        if one.name in _LEFT_BEHIND:
            continue
        if one.is_dir():
            yield from _under(one, f"{prefix}{one.name}/")
        else:
            yield f"{prefix}{one.name}", one.read_bytes()


def _held(path: Path) -> bytes | None:
    """What stands where a file is to go; a folder there is something else than any file."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder, and a file of this name is to be written")
    return path.read_bytes() if path.exists() else None


def _write(place: Path, contents: dict[str, bytes]) -> None:
    """All files, or none."""
    with ExitStack() as stack:
        for name, data in contents.items():
            stack.enter_context(replacing(place / name)).write_bytes(data)


def show_recipes(*, as_json: bool, quiet: bool) -> None:
    """List what there is."""
    if as_json:
        typer.echo(json.dumps(RECIPES, indent=2, ensure_ascii=False))
    elif not quiet:
        width = max(map(len, RECIPES))
        for name, about in RECIPES.items():
            typer.echo(f"  {name:<{width}}  {about}")
        typer.echo("\nkarat init RECIPE lays one down; karat run in its folder does the rest")


def show_laid(laid: Laid, *, as_json: bool, quiet: bool) -> None:
    """Say what was written, and what to do next."""
    if as_json:
        told = {
            "recipe": laid.recipe,
            "folder": laid.folder.as_posix(),
            "written": list(laid.written),
            "unchanged": list(laid.same),
        }
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
    elif not quiet:
        for name in laid.written:
            typer.echo(f"  {(laid.folder / name).as_posix()}")
        if laid.same:
            typer.echo(f"  {len(laid.same):,} files were there already, unchanged")
        typer.echo(f"\nnext: cd {laid.folder.as_posix()} && karat run   (README.md says more)")
