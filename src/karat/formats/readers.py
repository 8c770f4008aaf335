"""Read and write each kind of table in whatever format its file has.

This module picks the format and opens the file; the format's module does the rest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import polars as pl

from karat.data.columns import Duplicates, Source, to_polars
from karat.data.tables import Blocks, Corpus, Gold, Queries, Run
from karat.errors import InputError
from karat.formats.beir import Folder
from karat.formats.detect import detect_input, format_for_writing, refuse_binary
from karat.formats.field_mapping import Fields, FieldsLike, FileMapping
from karat.formats.files import Input, check_path, open_input
from karat.formats.named_columns import holds_queries
from karat.formats.registry import Format, Kind, format_named

DOCUMENT_SUFFIXES = (".md", ".markdown", ".txt")
_BEIR_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz", "corpus.jsonl.zst")
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
        scan = form.scanner()
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
    if format is None and is_folder_of_documents(path):
        return read_folder(path)
    with _opened(path, "corpus", format, fields) as (file, form):
        return cast("Corpus", _read(form, "corpus", file))


def read_eval_set(
    path: str | Path, *, format: str | None = None, fields: Fields | FieldsLike = None
) -> tuple[Queries, Gold]:
    """Read a file that holds both queries and their gold."""
    together = Fields.of(fields).together()
    with _opened(path, "gold", format, together) as (file, form):
        if not form.both():
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
        if isinstance(file, Folder):
            carried = file.has_queries
        else:
            names = form.column_names()
            carried = form.both() if names is None else holds_queries(names(file))
        return cast("Queries", _read(form, "queries", file)) if carried else None


def is_folder_of_documents(path: str | Path) -> bool:
    """Return True if a path is a folder without a BEIR corpus."""
    folder = Path(path)
    if str(path) == "-" or not folder.is_dir():
        return False
    return not any((folder / name).exists() for name in _BEIR_CORPUS)


def read_folder(path: str | Path) -> Corpus:
    """Read every Markdown or text file as one document, with its path as its id.

    A file in a subfolder is called ``folder/file.md``. Hidden files are skipped.
    """
    folder = Path(path)
    files = sorted(
        (file.relative_to(folder).as_posix(), file)
        for file in folder.rglob("*")
        if file.suffix.lower() in DOCUMENT_SUFFIXES and file.is_file()
    )
    files = [(name, file) for name, file in files if not f"/{name}".count("/.")]
    if not files:
        raise InputError(
            "is a folder without corpus.jsonl, and holds no file that ends in "
            f"{', '.join(DOCUMENT_SUFFIXES[:-1])} or {DOCUMENT_SUFFIXES[-1]}",
            where=str(path),
        )
    digest = hashlib.sha256()
    texts = []
    for name, file in files:
        try:
            name.encode()
        except UnicodeEncodeError:
            shown = name.encode("utf-8", "replace").decode()
            raise InputError("its name is not UTF-8; rename it", where=shown) from None
        text = Input(Source(name), path=file).text()
        texts.append(text)
        # The length separates the end of one file from the start of the next.
        digest.update(f"{name}\0{len(text)}\0{text}".encode())
    frame = pl.DataFrame({"item_id": [name for name, _ in files], "text": texts})
    source = Source(folder.resolve().name, sha256=digest.hexdigest())
    return Corpus.from_frame(frame.with_columns(doc_id="item_id"), source=source)


@contextmanager
def _opened(
    path: str | Path, kind: Kind, format: str | None, fields_like: Fields | FieldsLike
) -> Iterator[tuple[Input | Folder, Format]]:
    """Yield an open file and its format; errors name the mapped columns that the file lacks.

    A mapping given for this file alone must fit it; the caller checks a shared one (``Fields``).
    """
    fields = Fields.of(fields_like)
    mapping = FileMapping.of(fields, kind)
    try:
        yield _open(path, kind, format, mapping)
    except InputError as error:
        if mapping is None:
            raise
        raise mapping.explained(error) from None
    if not isinstance(fields_like, Fields):
        fields.check()


def _open(
    path: str | Path, kind: Kind, format: str | None, mapping: FileMapping | None
) -> tuple[Input | Folder, Format]:
    check_path(path)
    if str(path) != "-" and Path(path).is_dir():
        if format not in (None, "beir"):
            raise InputError(f"is a folder; {format} is read from a file", where=str(path))
        return Folder.at(Path(path)), format_named("beir")
    file = replace(open_input(path), mapping=mapping)
    with file.source.unchanged():
        if format is None:
            return file, detect_input(file, kind)
        if format != "parquet":
            refuse_binary(file, file.head())
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
    try:
        return table_type.from_frame(mapping.frame(to_polars(value)), **options)
    except InputError as error:
        raise mapping.explained(error) from None


def _is_file(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_frame(value: object) -> bool:
    """Return True for a Polars, pandas or Arrow table; Spark tables are scored in Spark."""
    package = type(value).__module__.partition(".")[0]
    return package in ("polars", "pandas", "pyarrow")
