"""Inputs as a caller may give them: a table, a frame with its columns, or the name of a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from karat.columns import Duplicates, to_polars
from karat.errors import InputError
from karat.formats.doors import queries_beside, read_corpus, read_gold, read_queries, read_run
from karat.formats.field_mapping import Fields, Renamed
from karat.formats.registry import Kind
from karat.tables import Blocks, Corpus, Gold, Queries, Run

File = str | os.PathLike[str]
Table = TypeVar("Table", Run, Gold, Queries, Corpus)


class Inputs(NamedTuple):
    """What runs are scored with, as tables."""

    gold: Any
    queries: Any
    corpus: Any


def inputs_of(
    gold: Any,
    queries: Any = None,
    corpus: Any = None,
    *,
    fields: Fields,
    duplicates: Duplicates = "agree",
) -> Inputs:
    """Gold, queries and corpus; without queries those that a gold file itself carries."""
    if queries is None and _is_file(gold):
        queries = queries_beside(os.fspath(gold), fields=fields)
    return Inputs(
        _table("gold", gold, read_gold, Gold, fields, duplicates=duplicates),
        _table("queries", queries, read_queries, Queries, fields),
        _table("corpus", corpus, read_corpus, Corpus, fields),
    )


def run_of(run: Any, *, fields: Fields) -> Run | Blocks | Any:
    """A run; what is none of the forms that one has is left for the caller to refuse."""
    return _table("run", run, read_run, Run, fields)


def _table(
    kind: Kind,
    given: Any,
    read: Callable[..., Table],
    table: type[Table],
    fields: Fields,
    **how: Any,
) -> Any:
    if _is_file(given):
        return read(os.fspath(given), fields=fields, **how)
    if not _is_frame(given):
        return given
    renamed = Renamed.of(fields, kind)
    if renamed is None:
        return table.from_frame(given, **how)
    try:
        return table.from_frame(renamed.frame(to_polars(given)), **how)
    except InputError as error:
        raise renamed.explained(error) from None


def _is_file(given: object) -> bool:
    return isinstance(given, str | os.PathLike)


def _is_frame(given: object) -> bool:
    """Whether it is a Polars, pandas or Arrow table; one of Spark is scored where it is."""
    package = type(given).__module__.partition(".")[0]
    return package in ("polars", "pandas", "pyarrow")
