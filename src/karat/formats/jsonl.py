"""Queries and corpora in JSONL, BEIR folders, and folders of documents as a corpus.

JSONL has objects with an id, a text and attributes. A nested ``meta`` or ``metadata`` is flattened;
a ``title`` stays an attribute. A BEIR folder has corpus.jsonl, queries.jsonl and qrels/*.tsv with
a header. Of several qrels, ``test.tsv`` is read; to read another split, give its file instead of
the folder.

``layout`` is ``beir`` for folders and for files of their layout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from karat.data.columns import (
    ITEM_NAMES,
    QUERY_NAMES,
    TEXT_NAMES,
    Duplicates,
    Source,
    join_spans,
    mapping_hint,
)
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError
from karat.formats.files import Input, write_frame, write_lines
from karat.formats.json_records import JsonRecord, frame_of, json_rows, read_records, to_line
from karat.formats.registry import Head, Kind

DOCUMENT_SUFFIXES = (".md", ".markdown", ".txt")
_META = ("meta", "metadata")


def sniff(head: Head, kind: Kind, *, layout: str | None = None) -> bool:
    """Return True for an object with a text; of a corpus, also with an id."""
    return bool(head.keys & set(TEXT_NAMES) and (kind == "queries" or head.keys & set(ITEM_NAMES)))


def read_gold(file: Input, *, layout: str, duplicates: Duplicates = "agree") -> Gold:
    """Read judgments in the layout of BEIR, with a header."""
    from karat.formats.named_columns import read_gold as read_qrels

    return read_qrels(file, duplicates=duplicates, separator="\t")


def read_queries(file: Input, *, layout: str | None = None) -> Queries:
    """Read queries under any of the usual names for their id and text."""
    rows, lines = _rows(file, "query_id", QUERY_NAMES)
    return Queries.from_frame(rows, lines=lines, source=file.source)


def read_corpus(file: Input, *, layout: str | None = None) -> Corpus:
    """Read items under any of the usual names for their id and text."""
    rows, lines = _rows(file, "item_id", ITEM_NAMES)
    return Corpus.from_frame(rows, lines=lines, source=file.source)


def _rows(file: Input, key: str, names: Sequence[str]) -> tuple[pl.DataFrame, pl.Series]:
    """Return the records as rows, and their lines."""
    rows, lines = [], []
    for record in read_records(file):
        rows.append(_row(record, key, names))
        lines.append(record.line)
    if not rows:
        raise InputError("is empty; at least one object is expected", where=file.name)
    frame = frame_of(rows, (key, "text"), where=file.name)
    return frame, pl.Series("line", lines, dtype=pl.Int64)


def _row(record: JsonRecord, key: str, names: Sequence[str]) -> dict[str, Any]:
    remaining = dict(record.value)
    id_key = next((name for name in names if remaining.get(name) is not None), None)
    text_key = next((name for name in TEXT_NAMES if isinstance(remaining.get(name), str)), None)
    if id_key is None or text_key is None:
        field, keys = (key, names) if id_key is None else ("text", TEXT_NAMES)
        hint = mapping_hint(field, "KEY")
        raise record.error(f"no {field}; expected one of {', '.join(keys)}; {hint}")
    row = {key: record.as_id(remaining.pop(id_key), id_key), "text": remaining.pop(text_key)}
    for inner in _META:
        if isinstance(remaining.get(inner), dict):
            nested = remaining.pop(inner)
            remaining |= {name: value for name, value in nested.items() if name not in remaining}
    if key == "item_id" and remaining.get("doc_id") is not None:
        remaining["doc_id"] = record.as_id(remaining["doc_id"], "doc_id")
    return row | {name: value for name, value in remaining.items() if name not in row}


def write_gold(gold: Gold, path: str | Path, *, layout: str) -> None:
    """Write judgments as qrels/test.tsv; queries without any are dropped."""
    table = join_spans(gold.frame).select("query_id", "item_id", "grade")
    table.columns = ["query-id", "corpus-id", "score"]
    grades = table["score"]
    if (grades == grades.round()).all() and (grades.abs() < 2**53).all():
        table = table.with_columns(pl.col("score").cast(pl.Int64))
    write_frame(table, _path_of("qrels/test.tsv", path, layout), separator="\t")


def write_queries(queries: Queries, path: str | Path, *, layout: str | None = None) -> None:
    """Write one object per query, with every attribute; in BEIR folders as metadata."""
    rows = json_rows(queries.frame)
    if layout is not None:
        rows = (_beir_row(row, "query_id", "text") for row in rows)
    write_lines(map(to_line, rows), _path_of("queries.jsonl", path, layout))


def write_corpus(corpus: Corpus, path: str | Path, *, layout: str | None = None) -> None:
    """Write one object per item, with every attribute; in BEIR folders as metadata."""
    rows = json_rows(corpus.frame)
    if layout is not None:
        rows = (_beir_row(row, "item_id", "title", "text") for row in rows)
    write_lines(map(to_line, rows), _path_of("corpus.jsonl", path, layout))


def write_eval_set(queries: Queries, gold: Gold, path: str | Path, *, layout: str) -> None:
    """Write queries and judgments to one folder."""
    write_queries(queries, path, layout=layout)
    write_gold(gold, path, layout=layout)


def _path_of(name: str, path: str | Path, layout: str | None) -> str | Path:
    """Return the path of a file: in a BEIR folder its place, else the path itself."""
    if layout is None:
        return path
    if str(path) == "-":
        raise InputError("a BEIR folder cannot be written to standard output", where="stdout")
    return Path(path) / name


def _beir_row(row: dict[str, Any], key: str, *names: str) -> dict[str, Any]:
    record = {"_id": row.pop(key), **{name: row.pop(name, "") or "" for name in names}}
    return record | {"metadata": {name: v for name, v in row.items() if v is not None}}


def read_documents(path: str | Path) -> Corpus:
    """Read every Markdown or text file as one document, with its path as its id.

    A file in a subfolder is called ``folder/file.md``. Hidden files are skipped.
    """
    folder = Path(path)
    files = sorted(
        (file.relative_to(folder).as_posix(), file)
        for file in folder.rglob("*")
        if file.suffix.lower() in DOCUMENT_SUFFIXES and file.is_file()
    )
    files = [(name, file) for name, file in files if "/." not in f"/{name}"]
    if not files:
        *suffixes, last = DOCUMENT_SUFFIXES
        raise InputError(
            "is a folder without corpus.jsonl, and holds no file that ends in "
            f"{', '.join(suffixes)} or {last}",
            where=str(path),
        )
    digest = hashlib.sha256()
    texts = []
    for name, file in files:
        shown = name.encode("utf-8", "replace").decode()
        if shown != name:
            raise InputError("its name is not UTF-8; rename it", where=shown)
        text = Input(Source(name), path=file).text()
        texts.append(text)
        # The length separates the end of one file from the start of the next.
        digest.update(f"{name}\0{len(text)}\0{text}".encode())
    names = [name for name, _ in files]
    frame = pl.DataFrame({"item_id": names, "text": texts, "doc_id": names})
    source = Source(folder.resolve().name, sha256=digest.hexdigest())
    return Corpus.from_frame(frame, source=source)
