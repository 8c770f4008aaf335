"""Convert a file of queries, gold, hits or items from one format to another."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import InputError, UsageError, unknown
from karat.formats.files import check_path, open_input
from karat.formats.readers import read_corpus, read_gold, read_queries, read_run
from karat.formats.registry import (
    FORMATS,
    KINDS,
    Format,
    Kind,
    detect_input,
    format_for_writing,
    format_named,
)

Table = Run | Gold | Queries | Corpus

_UNITS: dict[Kind, str] = {
    "run": "hits",
    "gold": "judgments",
    "queries": "queries",
    "corpus": "items",
}


@dataclass(frozen=True)
class Conversion:
    """The result of ``convert``: how many rows were written, and which columns were dropped."""

    rows: int
    unit: str
    format: str
    lost: tuple[str, ...]

    def __str__(self) -> str:
        dropped = f"; dropped: {', '.join(self.lost)}" if self.lost else ""
        return f"{self.rows:,} {self.unit} written as {self.format}{dropped}"


def convert(
    source: str | Path,
    target: str | Path,
    *,
    kind: str | None = None,
    from_format: str | None = None,
    to_format: str | None = None,
) -> Conversion:
    """Write the contents of ``source`` to ``target``, in the format of the target's suffix.

    ``kind`` is ``run``, ``gold``, ``queries`` or ``corpus``. Without it, it is taken from the
    content and the two formats. If anything is wrong, nothing is written.
    """
    check_path(source)
    check_path(target)
    source, target = str(source), str(target)
    if target != "-" and os.path.realpath(source) == os.path.realpath(target):
        raise UsageError("IN and OUT are the same file; choose another name for OUT")
    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    table_kind = next((known for known in KINDS if known == kind), None)
    if table_kind is None:
        table_kind = _guess_kind(source, target, from_format, to_format)
    if target == "-" and to_format is None:
        raise UsageError("OUT is standard output; name its format with --to")
    form = format_for_writing(target, table_kind, to_format)
    table = _read(table_kind, source, from_format)
    try:
        lost = lost_columns(form, table_kind, table)
    except InputError as error:
        # If the format cannot hold the sample, it cannot hold the table either.
        raise InputError(error.what, where=target) from None
    form.writer(table_kind)(table, target)
    if isinstance(table, Run) and "stage" in lost:
        table = table.at("final")
    return Conversion(_frame(table).height, _UNITS[table_kind], form.name, lost)


def lost_columns(form: Format, kind: Kind, table: Table) -> tuple[str, ...]:
    """Return the columns that a format drops, found by writing and reading a few rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"sample{''.join(form.suffixes[:1])}"
        form.writer(kind)(_sample(table), path)
        kept = _filled_columns(_read(kind, path, form.name))
    return tuple(name for name in _filled_columns(table) if name not in kept)


def _read(kind: Kind, path: str | Path, format: str | None) -> Table:
    if kind == "run":
        return read_run(path, format=format)
    if kind == "gold":
        return read_gold(path, format=format)
    if kind == "queries":
        return read_queries(path, format=format)
    return read_corpus(path, format=format)


def _guess_kind(source: str, target: str, from_format: str | None, to_format: str | None) -> Kind:
    """Return the one kind of table that both files can hold."""
    kinds = [
        kind
        for kind in KINDS
        if _can_write(target, kind, to_format)
        and (from_format is None or kind in format_named(from_format).carries)
    ]
    if not kinds:
        raise UsageError(
            f"no format fits both {source!r} and {target!r}; end OUT in .trec, .jsonl, .json, "
            ".csv, .tsv or .parquet, or name its format with --to"
        )
    path = Path(source)
    # A pipe can be read only once, so its content is not sampled.
    is_pipe = source == "-" or (path.exists() and not path.is_file() and not path.is_dir())
    if len(kinds) > 1 and from_format is None and not is_pipe:
        kinds = _readable_kinds(source, kinds)
    if len(kinds) == 1:
        return kinds[0]
    raise UsageError(f"{source!r} could hold {' or '.join(kinds)}; choose one with --kind")


def _can_write(target: str, kind: Kind, to_format: str | None) -> bool:
    if to_format is not None:
        return kind in format_named(to_format).carries
    try:
        format_for_writing(target, kind, None)
    except UsageError:
        return target == "-"
    return True


def _readable_kinds(source: str, kinds: list[Kind]) -> list[Kind]:
    """Return the kinds that the content fits, whatever the file is called."""
    if Path(source).is_dir():
        return [kind for kind in kinds if kind in FORMATS["beir"].carries]
    file = open_input(source)
    nameless = replace(file, source=replace(file.source, name="it"))
    forms: dict[Kind, Format] = {}
    for kind in kinds:
        with suppress(InputError):
            forms[kind] = detect_input(nameless, kind)
    if "run" in forms:
        # A table of hits also reads as judgments, with its scores as grades.
        return ["run"]
    if "gold" in forms and forms["gold"].name == "trec":
        # Four columns separated by tabs also read as a query id and a text.
        return ["gold"]
    return list(forms) or kinds


def _frame(table: Table) -> pl.DataFrame:
    return table.hits if isinstance(table, Run) else table.frame


def _filled_columns(table: Table) -> list[str]:
    """Return the names of everything in a table; a column without a value does not count."""
    names = _filled(_frame(table))
    if isinstance(table, Run):
        if table.calls is not None:
            names += [f"calls' {name}" for name in _filled(table.calls) if name != "query_id"]
        names += [f"meta {name}" for name, value in table.meta.items() if value is not None]
    if isinstance(table, Gold) and set(table.query_ids) - set(table.frame["query_id"]):
        names.append("queries without gold")
    return names


def _filled(frame: pl.DataFrame) -> list[str]:
    return [
        name
        for name in frame.columns
        if frame[name].null_count() < frame.height
        and not (frame.schema[name] == pl.Boolean and not frame[name].any())
    ]


def _sample(table: Table) -> Table:
    """Return a few rows that have a value in every column, and a null where there are any."""
    if isinstance(table, Run):
        calls = None if table.calls is None else _sample_rows(table.calls)
        return replace(table, hits=_sample_rows(table.hits), calls=calls)
    if isinstance(table, Gold):
        frame = _sample_rows(table.frame)
        judged = set(table.frame["query_id"])
        without_gold = [query_id for query_id in table.query_ids if query_id not in judged][:1]
        ids = tuple(dict.fromkeys([*frame["query_id"].to_list(), *without_gold]))
        return replace(table, frame=frame, query_ids=ids)
    return replace(table, frame=_sample_rows(table.frame))


def _sample_rows(frame: pl.DataFrame) -> pl.DataFrame:
    rows = {
        frame[name].is_not_null().arg_max()
        if frame.schema[name] != pl.Boolean
        else frame[name].fill_null(value=False).arg_max()
        for name in frame.columns
    }
    rows |= {frame[name].is_null().arg_max() for name in frame.columns}
    return frame[sorted(row for row in rows if row is not None)]
