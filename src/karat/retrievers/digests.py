"""What a log depends on, as one digest: the system, its files, the corpus, the queries, karat."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from karat.errors import UsageError
from karat.retrievers.blueprints import Blueprint
from karat.retrievers.kinds import maker
from karat.retrievers.protocol import Query
from karat.retrievers.texts import read_aliases, text_rules
from karat.retrievers.workshop import Workshop
from karat.version import __version__

# Larger files are told apart by their size and time: no model is that large, a store may be.
_LARGEST = 2_000_000_000
# Counts up when the same files would be read differently.
_READING = 2


def run_digest(
    blueprint: Blueprint, workshop: Workshop, queries: Sequence[Query], *, k: int
) -> str:
    """The sha256 of all that a log depends on; ``k`` is for a system that does not say its own."""
    own = blueprint.stages.k or k
    digest = hashlib.sha256(f"karat {__version__}\0{_READING}\0{own}\0{blueprint.digest}".encode())
    for name in sorted(_files(blueprint, workshop)):
        digest.update(f"\0{name}\0{_state(workshop.path(name))}".encode())
    reading = json.dumps(dict(workshop.reading), sort_keys=True)
    digest.update(f"\0{workshop.corpus_digest}\0{reading}\0".encode())
    for query in queries:
        told = [query.query_id, query.text, dict(query.attributes)]
        digest.update(json.dumps(told, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def check_files(blueprint: Blueprint, workshop: Workshop) -> None:
    """Refuse the files of a system that cannot be meant, as far as nothing need be built for it."""
    _files(blueprint, workshop)
    given = blueprint.stages.aliases
    aliases = read_aliases(workshop.path(given)) if isinstance(given, str) else given or {}
    try:
        text_rules(blueprint.stages.normalise, aliases)
    except UsageError as error:
        where = f"{blueprint.place}: system {blueprint.name!r}"
        raise UsageError(f"{where}: {error}") from None
    for part in blueprint.parts.values():
        check_files(part, workshop)


def files_of(blueprint: Blueprint, workshop: Workshop) -> set[Path]:
    """The files and folders that a system reads, as seen from here."""
    named = _files(blueprint, workshop) | _stores(blueprint)
    return {workshop.path(name) for name in named}


def _files(blueprint: Blueprint, workshop: Workshop) -> set[str]:
    """The files and folders that a system names."""
    named = {value for value in _texts(blueprint.spec) if _may_be_path(value)}
    lead_to = getattr(maker(blueprint.kind), "files", lambda options, workshop: ())
    named |= set(lead_to(blueprint.options, workshop))
    found = {_source(name, workshop) for name in named}
    inner = [_files(part, workshop) for part in blueprint.parts.values()]
    there = {name for name in found if _exists(workshop.path(name))}.union(*inner)
    return there - _stores(blueprint)


def _source(name: str, workshop: Workshop) -> str:
    """The file behind ``file.py:callable`` or ``module:callable``; any other name as it is."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not attribute.isidentifier():
        return name
    if place.endswith(".py"):
        return place
    steps = place.replace(".", "/")
    for beside in (f"{steps}.py", f"{steps}/__init__.py"):
        if workshop.path(beside).is_file():
            return beside
    try:
        spec = find_spec(place)
    except (ImportError, ValueError):
        spec = None
    return name if spec is None or spec.origin is None else spec.origin


def _stores(blueprint: Blueprint) -> set[str]:
    """Folders of live stores, whose files change by being read: a kind names their keys."""
    keys = getattr(maker(blueprint.kind), "STORES", ())
    own = {blueprint.spec[key] for key in keys if isinstance(blueprint.spec.get(key), str)}
    return own.union(*(_stores(part) for part in blueprint.parts.values()))


def _texts(value: Any) -> list[str]:
    """Every text anywhere in a setting."""
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, Mapping) else value
    if not isinstance(value, (Mapping, list)):
        return []
    return [text for one in inside for text in _texts(one)]


def _may_be_path(text: str) -> bool:
    return 0 < len(text) < 1000 and "\n" not in text and "\0" not in text and "://" not in text


def _exists(path: Path) -> bool:
    """Whether there is such a file; a text that is too long for a name is none."""
    try:
        return path.exists()
    except OSError:
        return False


def _state(path: Path) -> str:
    """What a file holds, or the files of a folder and of a model's ``onnx`` folder in it."""
    if path.is_file():
        return _content(path)
    files = [*path.iterdir(), *(path / "onnx").glob("*")]
    return repr(
        sorted(
            (one.name, _content(one))
            for one in files
            if one.is_file() and not one.name.startswith(".")
        )
    )


def _content(path: Path) -> str:
    """The sha256 of a file, or of a very large one its size and time."""
    stat = path.stat()
    if stat.st_size > _LARGEST:
        return f"{stat.st_size} {stat.st_mtime_ns}"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
