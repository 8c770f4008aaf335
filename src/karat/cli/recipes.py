"""The recipes that ship with karat: what each is, and how its files come into a folder."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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


def lay_down(
    recipe: str,
    folder: str | None,
    *,
    force: bool = False,
    remedy: str = "name another folder, or give --force",
) -> Laid:
    """Copy a recipe's files; where one is there with another content, nothing is written.

    ``remedy`` is what whoever asked can do about that.
    """
    laid, contents = _planned(recipe, folder)
    other = [name for name in laid.written if (laid.folder / name).exists()]
    if other and not force:
        more = "" if len(other) == 1 else f" and {len(other) - 1:,} more files"
        raise UsageError(f"{laid.folder / other[0]}{more} would be replaced; {remedy}")
    _write(laid.folder, contents)
    return laid


def _planned(recipe: str, folder: str | None) -> tuple[Laid, dict[str, bytes]]:
    """What would be laid down, and what of it has to be written; refuses where it cannot go."""
    if recipe not in RECIPES:
        raise unknown("recipe", recipe, RECIPES)
    if folder is not None and not folder.strip():
        raise UsageError("the folder has no name; give one, such as my-evaluation")
    place = Path(recipe if folder is None else folder)
    wanted = dict(recipe_files(recipe))
    _check_folders(place, wanted)
    same = tuple(name for name, data in wanted.items() if _held(place / name) == data)
    contents = {name: data for name, data in wanted.items() if name not in same}
    return Laid(recipe, place, tuple(contents), same), contents


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


def _check_folders(place: Path, names: Iterable[str]) -> None:
    """Every folder that is needed is one, or can be made."""
    for folder in _folders(place, names):
        if os.path.lexists(folder) and not folder.is_dir():
            what = "a file" if folder.is_file() else "something else"
            raise UsageError(f"{folder} is {what}, and a folder is needed there; name a folder")


def _folders(place: Path, names: Iterable[str]) -> list[Path]:
    """The folders that files lie in, outer ones first."""
    needed = {folder for name in names for folder in (place / name).parents}
    return sorted(needed, key=lambda folder: (len(folder.parts), folder))


def _held(path: Path) -> bytes | None:
    """What the file holds that stands where one is to go; what is no file is not touched."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder, and a file of this name is to be written")
    if path.is_file():
        return path.read_bytes()
    if os.path.lexists(path):
        raise UsageError(
            f"{path} is no file but a pipe, a device or a link to nothing; name another folder"
        )
    return None


def _write(place: Path, contents: dict[str, bytes]) -> None:
    """All files, or none."""
    with _taking_back(_folders(place, contents)), ExitStack() as stack:
        for name, data in contents.items():
            stack.enter_context(replacing(place / name)).write_bytes(data)


@contextmanager
def _taking_back(folders: Iterable[Path]) -> Iterator[None]:
    """Folders that were not there are not there either after a failure."""
    new = [folder for folder in folders if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in reversed(new):
            with suppress(OSError):
                folder.rmdir()
        raise


def going_to(folder: Path) -> str:
    """The command that goes to a folder, whatever it is called.

    >>> going_to(Path("my set")), going_to(Path("-x"))
    ("cd 'my set'", 'cd -- -x')
    """
    name = folder.as_posix()
    return f"cd {'-- ' if name.startswith('-') else ''}{shlex.quote(name)}"


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
        typer.echo(f"\nnext: {going_to(laid.folder)} && karat run   (README.md says more)")
