"""Recipes: the evaluations that ship with karat, and how one is written into a folder."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from karat.errors import UsageError, unknown
from karat.formats.files import atomic_write

RECIPES = {
    "story": "scenes of a story, searched by hypervectors and by words: MRR above 0.6",
    "rag": "a help centre in three languages: retriever, reranker, segments, gates",
    "memory": "an assistant's memories: a test suite with a table of targets",
    "ab": "two configs of a retrieval engine, compared offline to the byte",
    "minimal": "a /search service, started and searched: hit rate, recall, misses",
    "first": "the small set that the pages of the documentation use",
}


@dataclass(frozen=True)
class WrittenRecipe:
    """A recipe in its folder: the files written, and those that were there already.

    >>> WrittenRecipe("rag", Path("my set"), ("karat.yaml",), ()).cd
    "cd 'my set'"
    """

    recipe: str
    folder: Path
    written: tuple[str, ...]
    same: tuple[str, ...]

    @property
    def cd(self) -> str:
        """The shell command that goes to the folder."""
        name = self.folder.as_posix()
        return f"cd {'-- ' if name.startswith('-') else ''}{shlex.quote(name)}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "recipe": self.recipe,
            "folder": self.folder.as_posix(),
            "written": list(self.written),
            "unchanged": list(self.same),
        }


def recipes() -> dict[str, str]:
    """Return every recipe by its name, with what it is.

    >>> "rag" in recipes()
    True
    """
    return RECIPES


def init(
    recipe: str,
    folder: str | None = None,
    *,
    force: bool = False,
    remedy: str = "name another folder, or give --force",
) -> WrittenRecipe:
    """Copy a recipe's files into a folder, by default one named like it.

    Nothing is written if a file is there with another content, unless ``force`` is set;
    ``remedy`` is what the caller can do about that.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     "karat.yaml" in init("rag", folder).written
    True
    """
    if recipe not in RECIPES:
        raise unknown("recipe", recipe, RECIPES)
    if folder is not None and not folder.strip():
        raise UsageError("the folder has no name; give one, such as my-evaluation")
    place = Path(recipe if folder is None else folder)
    contents = dict(recipe_files(recipe))
    same = tuple(name for name, data in contents.items() if _content(place / name) == data)
    new = {name: data for name, data in contents.items() if name not in same}
    other = [name for name in new if (place / name).exists()]
    if other and not force:
        more = "" if len(other) == 1 else f" and {len(other) - 1:,} more files"
        raise UsageError(f"{place / other[0]}{more} would be replaced; {remedy}")
    folders = {folder for name in new for folder in (place / name).parents}
    with _removed_on_failure(folders), ExitStack() as stack:
        for name, data in new.items():
            stack.enter_context(atomic_write(place / name)).write_bytes(data)
    return WrittenRecipe(recipe, place, tuple(new), same)


def recipe_files(recipe: str) -> Iterator[tuple[str, bytes]]:
    """Yield every file of a recipe by its path in the folder."""
    folder = Path(__file__).parents[1] / "recipes" / recipe
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    for name in sorted(names):
        if "__pycache__" not in name:
            yield name, (folder / name).read_bytes()


def _content(path: Path) -> bytes | None:
    """Return the bytes of a file, None if there is none; refuse anything but a file."""
    if path.is_file():
        return path.read_bytes()
    if os.path.lexists(path):
        raise UsageError(f"{path} is not a file; move it away, or name another folder")
    return None


@contextmanager
def _removed_on_failure(folders: Iterable[Path]) -> Iterator[None]:
    """Remove folders that did not exist before if the block fails."""
    new = [folder for folder in folders if not folder.exists()]
    try:
        yield
    except BaseException:
        # Inner folders have longer names than those around them.
        for folder in sorted(new, key=lambda folder: len(folder.parts), reverse=True):
            with suppress(OSError):
                folder.rmdir()
        raise
