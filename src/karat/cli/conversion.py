"""Read a table of any kind, write it in another format, and find out what that one drops."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from karat.cli.interrupts import heed_interrupts
from karat.errors import InputError, UsageError, unknown
from karat.formats import (
    read_corpus,
    read_gold,
    read_queries,
    read_run,
    write_corpus,
    write_gold,
    write_queries,
    write_run,
)
from karat.formats.detect import detect_input, format_for_writing
from karat.formats.files import open_input, refuse_no_path
from karat.formats.registry import FORMATS, KINDS, Format, Kind, format_named
from karat.tables import Corpus, Gold, Queries, Run

Table = Run | Gold | Queries | Corpus

_READ: Mapping[Kind, Callable[..., Table]] = {
    "run": read_run,
    "gold": read_gold,
    "queries": read_queries,
    "corpus": read_corpus,
}
_WRITE: Mapping[Kind, Callable[..., None]] = {
    "run": write_run,
    "gold": write_gold,
    "queries": write_queries,
    "corpus": write_corpus,
}
_UNITS: Mapping[Kind, str] = {
    "run": "hits",
    "gold": "judgments",
    "queries": "queries",
    "corpus": "items",
}


@dataclass(frozen=True)
class Converted:
    """What was written, and which columns the format could not carry."""

    rows: int
    unit: str
    format: str
    lost: tuple[str, ...]


def convert_file(
    source: str,
    target: str,
    *,
    kind: str | None = None,
    from_format: str | None = None,
    to_format: str | None = None,
) -> Converted:
    """Write what ``source`` holds to ``target``; nothing is written if anything is wrong."""
    heed_interrupts()
    refuse_no_path(source)
    refuse_no_path(target)
    if target != "-" and os.path.realpath(source) == os.path.realpath(target):
        raise UsageError("IN and OUT are the same file; choose another name for OUT")
    chosen = _kind(kind) if kind else _guess(source, target, from_format, to_format)
    if target == "-" and to_format is None:
        raise UsageError("OUT is standard output; say its format with --to")
    form = format_for_writing(target, chosen, to_format)
    table = _READ[chosen](source, format=from_format)
    try:
        lost = lost_in(form, chosen, table)
    except InputError as error:
        # What a sample cannot be written as, OUT cannot either.
        raise InputError(error.what, where=target) from None
    _WRITE[chosen](table, target, format=form.name)
    if isinstance(table, Run) and "stage" in lost:
        table = table.at("final")
    return Converted(_frame(table).height, _UNITS[chosen], form.name, lost)


def lost_in(form: Format, kind: Kind, table: Table) -> tuple[str, ...]:
    """What the format does not carry of a table: a few rows are written and read back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"sample{''.join(form.suffixes[:1])}"
        _WRITE[kind](_sample(table), path, format=form.name)
        kept = _contents(_READ[kind](path, format=form.name))
    return tuple(name for name in _contents(table) if name not in kept)


def _kind(text: str) -> Kind:
    for kind in KINDS:
        if kind == text:
            return kind
    raise unknown("kind", text, KINDS)


def _guess(source: str, target: str, from_format: str | None, to_format: str | None) -> Kind:
    """The one kind that both files can hold."""
    kinds: list[Kind] = [
        kind
        for kind in KINDS
        if _can_write(target, kind, to_format)
        and (from_format is None or _carries(from_format, kind))
    ]
    if not kinds:
        raise UsageError(
            f"no format fits both {source!r} and {target!r}; end OUT in .trec, .jsonl, .json, "
            ".csv, .tsv or .parquet, or say --to"
        )
    # A pipe can be read once only, so it is not looked into.
    if len(kinds) > 1 and from_format is None and not _is_pipe(source):
        kinds = _readable(source, kinds)
    if len(kinds) == 1:
        return kinds[0]
    raise UsageError(f"{source!r} could hold {' or '.join(kinds)}; say which with --kind")


def _is_pipe(source: str) -> bool:
    path = Path(source)
    return source == "-" or (path.exists() and not path.is_file() and not path.is_dir())


def _readable(source: str, kinds: list[Kind]) -> list[Kind]:
    """The kinds that the content, whatever its name, could be."""
    if Path(source).is_dir():
        return [kind for kind in kinds if kind in FORMATS["beir"].carries]
    file = open_input(source)
    nameless = replace(file, source=replace(file.source, name="it"))
    forms: dict[Kind, Format] = {}
    for kind in kinds:
        with suppress(InputError):
            forms[kind] = detect_input(nameless, kind)
    if "run" in forms:
        # A table of hits also passes for judgments, its scores for grades.
        return ["run"]
    if "gold" in forms and forms["gold"].name == "trec":
        # Four columns parted by tabs also pass for a query id and a text.
        return ["gold"]
    return list(forms) or kinds


def _carries(name: str, kind: Kind) -> bool:
    return kind in format_named(name).carries


def _can_write(target: str, kind: Kind, to_format: str | None) -> bool:
    if to_format is not None:
        return _carries(to_format, kind)
    try:
        format_for_writing(target, kind, None)
    except UsageError:
        return target == "-"
    return True


def _frame(table: Table) -> pl.DataFrame:
    return table.hits if isinstance(table, Run) else table.frame


def _contents(table: Table) -> list[str]:
    """The names of all that a table holds; a column without a value holds nothing."""
    names = _telling(_frame(table))
    if isinstance(table, Run):
        if table.calls is not None:
            names += [f"calls' {name}" for name in _telling(table.calls) if name != "query_id"]
        names += [f"meta {name}" for name, value in table.meta.items() if value is not None]
    if isinstance(table, Gold) and set(table.query_ids) - set(table.frame["query_id"]):
        names.append("queries without gold")
    return names


def _telling(frame: pl.DataFrame) -> list[str]:
    return [
        name
        for name in frame.columns
        if frame[name].null_count() < frame.height
        and not (frame.schema[name] == pl.Boolean and not frame[name].any())
    ]


def _sample(table: Table) -> Table:
    """A few rows that hold a value of every column, and none where it has gaps."""
    if isinstance(table, Run):
        calls = None if table.calls is None else _some_rows(table.calls)
        return replace(table, hits=_some_rows(table.hits), calls=calls)
    if isinstance(table, Gold):
        frame = _some_rows(table.frame)
        empty = [one for one in table.query_ids if one not in set(table.frame["query_id"])][:1]
        ids = tuple(dict.fromkeys([*frame["query_id"].to_list(), *empty]))
        return replace(table, frame=frame, query_ids=ids)
    return replace(table, frame=_some_rows(table.frame))


def _some_rows(frame: pl.DataFrame) -> pl.DataFrame:
    rows = {
        frame[name].is_not_null().arg_max()
        if frame.schema[name] != pl.Boolean
        else frame[name].fill_null(value=False).arg_max()
        for name in frame.columns
    }
    rows |= {frame[name].is_null().arg_max() for name in frame.columns}
    return frame[sorted(row for row in rows if row is not None)]
