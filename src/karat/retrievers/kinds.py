"""The kinds of retrievers: the built-in ones, adapters to real systems, and those of plugins.

A kind is a module with ``Options`` (a form), ``make(options, workshop, parts)`` and, if it
is made of other retrievers, ``parts(options)``; ``STORES`` names options that are folders of a
live store, whose files change by being read, and ``files(options, workshop)`` files that its
options do not name but lead to. A package adds one through the entry point group
``karat.retrievers``; its value is such a module or an object with the same names.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from karat.errors import UsageError, unknown
from karat.formats.forms import Form
from karat.retrievers.callables import told
from karat.retrievers.forms import Spec
from karat.retrievers.protocol import Finder

if TYPE_CHECKING:
    from karat.retrievers.workshop import Workshop

GROUP = "karat.retrievers"


@dataclass(frozen=True)
class Kind:
    """One kind of retriever; a live one asks something whose state no digest can tell."""

    name: str
    about: str
    module: str
    live: bool = False


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("bm25", "words, ranked by BM25 (bm25s)", "karat.retrievers.bm25"),
        Kind("bow", "words, ranked by the cosine of their counts", "karat.retrievers.bow"),
        Kind("vsa", "hypervectors of words, ranked by cosine", "karat.retrievers.vsa"),
        Kind("dense", "embeddings, searched exactly (fastembed)", "karat.retrievers.dense"),
        Kind("sparse", "sparse embeddings (fastembed)", "karat.retrievers.sparse"),
        Kind("fuse", "several retrievers' lists made one", "karat.retrievers.fuse"),
        Kind("route", "one of several retrievers, chosen query by query", "karat.retrievers.route"),
        Kind("quality", "a config of karat ab's engine", "karat.retrievers.quality.retriever"),
        Kind("http", "any search service over HTTP", "karat.retrievers.http.service", live=True),
        Kind("python", "a callable of yours", "karat.retrievers.python", live=True),
        Kind("langchain", "a LangChain retriever", "karat.retrievers.langchain", live=True),
        Kind("qdrant", "a Qdrant collection", "karat.retrievers.qdrant", live=True),
        Kind("pgvector", "a table of pgvector", "karat.retrievers.pgvector", live=True),
        Kind("chroma", "a Chroma collection", "karat.retrievers.chroma", live=True),
    )
}


class Maker(Protocol):
    """What a kind's module offers."""

    Options: type[Form]

    def make(self, options: Any, workshop: Workshop, parts: Mapping[str, Finder]) -> Finder: ...


def is_live(name: str) -> bool:
    """Whether a kind asks something outside; a plugin's kind may."""
    return name not in KINDS or KINDS[name].live


@cache
def known_kinds() -> tuple[str, ...]:
    """The names of all kinds, those of plugins last."""
    plugins = sorted(entry.name for entry in entry_points(group=GROUP))
    return (*KINDS, *(name for name in plugins if name not in KINDS))


def maker(name: str) -> Maker:
    """The module of a kind; an unknown one is answered with the nearest."""
    if name in KINDS:
        built_in: Any = importlib.import_module(KINDS[name].module)
        return built_in  # type: ignore[no-any-return]
    entry = next((one for one in entry_points(group=GROUP) if one.name == name), None)
    if entry is None:
        raise unknown("retriever", name, known_kinds())
    try:
        loaded: Any = entry.load()
    except Exception as error:
        raise UsageError(f"retriever {name!r} ({entry.value}) fails: {told(error)}") from error
    for needed in ("Options", "make"):
        if not hasattr(loaded, needed):
            raise UsageError(
                f"retriever {name!r} ({entry.value}) has no {needed}; it is no karat retriever"
            )
    return loaded  # type: ignore[no-any-return]


def parts_of(made_by: Maker, options: Form) -> dict[str, Spec]:
    """The retrievers that a retriever is made of, by their names in the log."""
    parts = getattr(made_by, "parts", None)
    return {} if parts is None else dict(parts(options))
