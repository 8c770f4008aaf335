"""Read and write each kind of table in whatever format its file has.

This module picks the format and opens the file; the format's module does the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from karat.data.columns import Duplicates, to_polars
from karat.data.tables import Blocks, Corpus, Gold, Queries, Run
from karat.errors import InputError
from karat.formats.field_mapping import Fields, FieldsLike, FileMapping, explaining
from karat.formats.files import Input, check_path, open_input, refuse_binary
from karat.formats.registry import Format, Kind, detect_input, format_for_writing, format_named

if TYPE_CHECKING:
    from karat.formats.folders import Folder

File = str | os.PathLike[str]
Table = TypeVar("Table", Run, Gold, Queries, Corpus)


def read_gold(
    path: str | Path,
    *,
    format: str | None = None,
    duplicates: Duplicates = "agree",
    fields: Fields | FieldsLike = None,
) -> Gold:
    """Read graded judgments; ``duplicates`` is as in ``Gold.from_frame``.

    ``fields`` maps columns of the file, such as ``{"gold": "gold_ids"}``.
    """
    with _opened(path, "gold", format, fields) as (file, form):
        return cast("Gold", _read(form, "gold", file, duplicates=duplicates))


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
    """
    with _opened(path, "run", format, fields) as (file, form):
        run_name = file.stem if name is None else name
        return cast("Run", _read(form, "run", file, name=run_name, strict=strict))


def scan_run(
    path: str | Path,
    *,
    format: str | None = None,
    name: str | None = None,
    strict: bool = False,
    fields: Fields | FieldsLike = None,
) -> Blocks:
    """Open a run that is read in blocks of whole queries, so that it need not fit in memory."""
    with _opened(path, "run", format, Fields.of(fields)) as (file, form):
        scan = form.optional("scan_run")
        options = {"name": file.stem if name is None else name, "strict": strict}
        if scan is None:
            return cast("Blocks", _read(form, "run", file, **options))
        # A run in blocks is checked for changes again after its last block.
        with file.source.unchanged():
            return cast("Blocks", scan(file, **options))


def read_queries(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsLike = None
) -> Queries:
    """Read queries with their attributes.

    ``fields`` maps columns of the file, such as ``{"text": "utterance"}``.
    """
    with _opened(path, "queries", format, fields) as (file, form):
        return cast("Queries", _read(form, "queries", file))


def read_corpus(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsLike = None
) -> Corpus:
    """Read the items that can be retrieved; a folder of texts is one document per file.

    ``fields`` maps columns of the file, such as ``{"item_id": "uid"}``.
    """
    if format is None and str(path) != "-" and Path(path).is_dir():
        from karat.formats.folders import is_folder_of_documents, read_documents

        if is_folder_of_documents(path):
            return read_documents(path)
    with _opened(path, "corpus", format, fields) as (file, form):
        return cast("Corpus", _read(form, "corpus", file))


def read_eval_set(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsLike = None
) -> tuple[Queries, Gold]:
    """Read a file that holds both queries and their gold."""
    together = Fields.of(fields).together()
    with _opened(path, "gold", format, together) as (file, form):
        if not form.together:
            raise InputError(
                f"is {form.name}, which holds gold without queries; give a file with queries",
                where=file.name,
            )
        gold = _read(form, "gold", file, duplicates="agree")
        return cast("Queries", _read(form, "queries", file)), cast("Gold", gold)


def queries_in_gold(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsLike = None
) -> Queries | None:
    """Return the queries that a gold file itself holds, or None."""
    if str(path) == "-":
        return None
    with _opened(path, "gold", format, Fields.of(fields).together()) as (file, form):
        holds_queries = form.optional("holds_queries")
        held = form.together if holds_queries is None else holds_queries(file)
        return cast("Queries", _read(form, "queries", file)) if held else None


@contextmanager
def _opened(
    path: str | Path, kind: Kind, format: str | None, fields_like: Fields | FieldsLike
) -> Iterator[tuple[Input | Folder, Format]]:
    """Yield an open file and its format; errors name the mapped columns that the file lacks.

    A mapping given for this file alone must fit it; the caller checks a shared one (``Fields``).
    """
    fields = Fields.of(fields_like)
    mapping = FileMapping.of(fields, kind)
    with explaining(mapping):
        yield _open(path, kind, format, mapping)
    if not isinstance(fields_like, Fields):
        fields.check()


def _open(
    path: str | Path, kind: Kind, format: str | None, mapping: FileMapping | None
) -> tuple[Input | Folder, Format]:
    check_path(path)
    if str(path) != "-" and Path(path).is_dir():
        if format not in (None, "beir"):
            raise InputError(f"is a folder; {format} is read from a file", where=str(path))
        from karat.formats.folders import Folder

        return Folder.at(Path(path)), format_named("beir")
    file = open_input(path, mapping)
    with file.source.unchanged():
        if format is None:
            return file, detect_input(file, kind)
        if format != "parquet":
            refuse_binary(file)
    return file, format_named(format)


def _read(form: Format, kind: Kind, file: Input | Folder, **more: Any) -> Any:
    """Read a file, and raise InputError if it changed meanwhile."""
    with file.source.unchanged():
        table = form.reader(kind)(file, **more)
    # For a folder, check the file in it that was read.
    table.source.check()
    return table


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


class Inputs(NamedTuple):
    """Gold, queries and corpus as tables."""

    gold: Any
    queries: Any
    corpus: Any


def load_inputs(
    gold: Any,
    queries: Any = None,
    corpus: Any = None,
    *,
    fields: Fields,
    duplicates: Duplicates = "agree",
) -> Inputs:
    """Return gold, queries and corpus as tables; queries default to those in the gold file."""
    if queries is None and _is_file(gold):
        queries = queries_in_gold(os.fspath(gold), fields=fields)
    return Inputs(
        _table("gold", gold, read_gold, Gold, fields, duplicates=duplicates),
        _table("queries", queries, read_queries, Queries, fields),
        _table("corpus", corpus, read_corpus, Corpus, fields),
    )


def load_run(run: Any, *, fields: Fields) -> Run | Blocks | Any:
    """Return a run as a table; anything that is not a path, dict or frame is returned as it is."""
    return _table("run", run, read_run, Run, fields)


def _table(
    kind: Kind,
    value: Any,
    read: Callable[..., Table],
    table_type: type[Table],
    fields: Fields,
    **options: Any,
) -> Any:
    if _is_file(value):
        return read(os.fspath(value), fields=fields, **options)
    if isinstance(value, Mapping):
        return table_type.from_dict(value)
    if not _is_frame(value):
        return value
    mapping = FileMapping.of(fields, kind)
    if mapping is None:
        return table_type.from_frame(value, **options)
    with explaining(mapping):
        return table_type.from_frame(mapping.frame(to_polars(value)), **options)


def _is_file(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_frame(value: object) -> bool:
    """Return True for a Polars, pandas or Arrow table; Spark tables are scored in Spark."""
    package = type(value).__module__.partition(".")[0]
    return package in ("polars", "pandas", "pyarrow")
