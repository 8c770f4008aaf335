"""Read, write and convert each kind of table in whatever format its file has.

This module picks the format and opens the file; the format's module does the rest.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import polars as pl

from karat.data.columns import Duplicates, Source, to_polars
from karat.data.tables import Blocks, Corpus, Gold, Queries, Run
from karat.errors import InputError, UsageError, unknown
from karat.formats.field_mapping import Fields, FieldsLike, FileMapping, explaining
from karat.formats.files import Input, check_path, open_input
from karat.formats.registry import (
    FORMATS,
    KINDS,
    Format,
    Kind,
    detect_input,
    file_in,
    format_for_writing,
    format_named,
    open_file,
)

Table = Run | Gold | Queries | Corpus


def read_gold(
    path: str | Path,
    *,
    format: str | None = None,
    duplicates: Duplicates = "agree",
    fields: Fields | FieldsLike = None,
) -> Gold:
    """Read graded judgments; ``duplicates`` is as in ``Gold.from_frame``.

    ``fields`` maps columns of the file, such as ``{"gold": "gold_ids"}``.

    >>> read_gold("qrels.txt").frame.rows()[0]
    ('q01', 'refunds#1', 2.0)
    """
    with _opened(path, "gold", format, fields) as (file, form):
        return cast("Gold", form.reader("gold")(file, duplicates=duplicates))


def plain_gold(path: str | Path, most: int) -> tuple[bytes, Source] | None:
    """Return the lines of TREC qrels and their file; None for others, and for more bytes."""
    if not Path(path).is_file():
        # A pipe can be read only once, and the careful path will.
        return None
    with _opened(path, "gold", None, None) as (file, form):
        if form.name != "trec" or Path(path).stat().st_size > most:
            return None
        data = b"".join(file.chunks())
        return None if len(data) > most else (data, file.source)


def read_run(
    path: str | Path,
    *,
    format: str | None = None,
    name: str | None = None,
    strict: bool = False,
    fields: Fields | FieldsLike = None,
) -> Run:
    """Read a run; its name is the file's unless ``name`` is given.

    ``fields`` maps columns of the file, such as ``{"item_id": "pid"}``.

    >>> read_run("bm25.trec").hits.rows()[0]
    ('q01', 'refunds#2', 1, 5.5302)
    """
    with _opened(path, "run", format, fields) as (file, form):
        run = form.reader("run")(file, name=file.stem if name is None else name, strict=strict)
        return cast("Run", run.read())


def scan_run(
    path: str | Path,
    *,
    format: str | None = None,
    strict: bool = False,
    fields: Fields | FieldsLike = None,
) -> Blocks:
    """Open a run that is read in blocks of whole queries, so that it need not fit in memory."""
    with _opened(path, "run", format, Fields.of(fields)) as (file, form):
        return cast("Blocks", form.reader("run")(file, name=file.stem, strict=strict))


def read_queries(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsLike = None
) -> Queries:
    """Read queries with their attributes.

    ``fields`` maps columns of the file, such as ``{"text": "utterance"}``.

    >>> read_queries("queries.jsonl").segments
    ['topic', 'difficulty', 'language']
    """
    with _opened(path, "queries", format, fields) as (file, form):
        return cast("Queries", form.reader("queries")(file))


def read_corpus(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsLike = None
) -> Corpus:
    """Read the items that can be retrieved; a folder of texts is one document per file.

    ``fields`` maps columns of the file, such as ``{"item_id": "uid"}``.

    >>> read_corpus("corpus.jsonl").frame["item_id"][0]
    'refunds#1'
    """
    is_folder = format is None and str(path) != "-" and Path(path).is_dir()
    if is_folder and file_in(Path(path), "corpus.jsonl") is None:
        from karat.formats.jsonl import read_documents

        return read_documents(path)
    with _opened(path, "corpus", format, fields) as (file, form):
        return cast("Corpus", form.reader("corpus")(file))


def queries_in_gold(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsLike = None
) -> Queries | None:
    """Return the queries that a gold file itself, or the folder around it, holds; else None."""
    if str(path) == "-":
        return None
    shared = replace(Fields.of(fields), one_file=True)
    if Path(path).is_dir():
        held = file_in(Path(path), "queries.jsonl") is not None
        return read_queries(path, format=format, fields=shared) if held else None
    with _opened(path, "gold", format, shared) as (file, form):
        held = form.together
        if form.module == "named_columns":
            held = form.code.holds_queries(file, **form.options)
        return cast("Queries", form.reader("queries")(file)) if held else None


@contextmanager
def _opened(
    path: str | Path, kind: Kind, format: str | None, fields_like: Fields | FieldsLike
) -> Iterator[tuple[Input, Format]]:
    """Yield an open file and its format; errors name the mapped columns that the file lacks.

    A mapping given for this file alone must fit it; the caller checks a shared one (``Fields``).
    Raises InputError if the file changes inside the block.
    """
    fields = Fields.of(fields_like)
    mapping = FileMapping.of(fields, kind) if fields.given else None
    with explaining(mapping):
        file, form = open_file(path, kind, format, mapping)
        with file.source.unchanged():
            yield file, form
    if mapping is not None and fields is not fields_like:
        fields.check()


def write_gold(gold: Gold, path: str | Path, *, format: str | None = None) -> None:
    """Write judgments; without ``format``, the suffix decides."""
    format_for_writing(path, "gold", format).writer("gold")(gold, path)


def write_run(run: Run, path: str | Path, *, format: str | None = None) -> None:
    """Write a run; without ``format``, the suffix decides."""
    format_for_writing(path, "run", format).writer("run")(run, path)


def write_queries(queries: Queries, path: str | Path, *, format: str | None = None) -> None:
    """Write queries; without ``format``, the suffix decides."""
    format_for_writing(path, "queries", format).writer("queries")(queries, path)


def write_corpus(corpus: Corpus, path: str | Path, *, format: str | None = None) -> None:
    """Write items; without ``format``, the suffix decides."""
    format_for_writing(path, "corpus", format).writer("corpus")(corpus, path)


def write_eval_set(
    queries: Queries, gold: Gold, path: str | Path, *, format: str | None = None
) -> None:
    """Write queries and their gold to one file (or BEIR folder)."""
    format_for_writing(path, "gold", format).writer_of_both()(queries, gold, path)


def load(kind: Kind, value: Any, *, fields: Fields, **options: Any) -> Any:
    """Return a path, a mapping or a frame as a table; anything else as it is.

    Frames of Spark are returned unchanged too: they are scored in Spark.
    """
    read, table_type, _ = _KINDS[kind]
    if isinstance(value, str | os.PathLike):
        return read(os.fspath(value), fields=fields, **options)
    if isinstance(value, Mapping):
        return table_type.from_dict(value)
    if type(value).__module__.partition(".")[0] not in ("polars", "pandas", "pyarrow"):
        return value
    mapping = FileMapping.of(fields, kind)
    if mapping is None:
        return table_type.from_frame(value, **options)
    with explaining(mapping):
        return table_type.from_frame(mapping.frame(to_polars(value)), **options)


# How a kind is read, its table, and what its rows are.
_KINDS: dict[Kind, tuple[Callable[..., Any], Any, str]] = {
    "gold": (read_gold, Gold, "judgments"),
    "run": (read_run, Run, "hits"),
    "queries": (read_queries, Queries, "queries"),
    "corpus": (read_corpus, Corpus, "items"),
}


# Conversion from one format to another.


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

    >>> convert("bm25.trec", "bm25.parquet").rows
    58
    """
    check_path(source)
    check_path(target)
    source, target = str(source), str(target)
    if target != "-" and os.path.realpath(source) == os.path.realpath(target):
        raise UsageError("IN and OUT are the same file; choose another name for OUT")
    if kind is not None and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    guessed = None if kind else _guess_kind(source, target, from_format, to_format)
    table_kind = guessed or cast("Kind", kind)
    if target == "-" and to_format is None:
        raise UsageError("OUT is standard output; name its format with --to")
    form = format_for_writing(target, table_kind, to_format)
    read, _, unit = _KINDS[table_kind]
    table: Table = read(source, format=from_format)
    try:
        lost = lost_columns(form, table_kind, table)
    except InputError as error:
        # If the format cannot hold the sample, it cannot hold the table either.
        raise InputError(error.what, where=target) from None
    form.writer(table_kind)(table, target)
    if isinstance(table, Run) and "stage" in lost:
        table = table.at("final")
    return Conversion(_frame(table).height, unit, form.name, lost)


def lost_columns(form: Format, kind: Kind, table: Table) -> tuple[str, ...]:
    """Return the columns that a format drops, found by writing and reading a few rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"sample{''.join(form.suffixes[:1])}"
        form.writer(kind)(_sample(table), path)
        read, *_ = _KINDS[kind]
        preserved = _filled_columns(read(path, format=form.name))
    return tuple(name for name in _filled_columns(table) if name not in preserved)


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
    return [column.name for column in frame if _has_value(column).any()]


def _has_value(column: pl.Series) -> pl.Series:
    return column.fill_null(value=False) if column.dtype == pl.Boolean else column.is_not_null()


def _sample(table: Table) -> Table:
    """Return a few rows that have a value in every column, and a null where there are any."""
    if isinstance(table, Run):
        calls = None if table.calls is None else _sample_rows(table.calls)
        return replace(table, hits=_sample_rows(table.hits), calls=calls)
    return replace(table, frame=_sample_rows(table.frame))


def _sample_rows(frame: pl.DataFrame) -> pl.DataFrame:
    masks = [mask for column in frame for mask in (_has_value(column), column.is_null())]
    rows = {mask.arg_max() for mask in masks}
    return frame[sorted(row for row in rows if row is not None)]
