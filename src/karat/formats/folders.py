"""Folders: BEIR folders, and folders of documents as a corpus.

A BEIR folder has corpus.jsonl, queries.jsonl and qrels/*.tsv with a header. Of several qrels,
``test.tsv`` is read; to read another split, give its file instead of the folder.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from karat.data.columns import Duplicates, Source, join_spans
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError
from karat.formats.files import Input, open_input, write_frame, write_lines
from karat.formats.json_records import json_rows, to_line
from karat.formats.jsonl import read_corpus as read_jsonl_corpus
from karat.formats.jsonl import read_queries as read_jsonl_queries
from karat.formats.named_columns import read_gold as read_qrels
from karat.formats.registry import Head, Kind

DOCUMENT_SUFFIXES = (".md", ".markdown", ".txt")
_PACKED = ("", ".gz", ".zst")


@dataclass(frozen=True)
class Folder:
    """A BEIR folder that exists."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> Folder:
        """Return the folder; raise InputError if it has none of the files of a BEIR folder."""
        folder = cls(path)
        files = (folder.find("queries.jsonl"), folder.find("corpus.jsonl"))
        if not any(files) and not (path / "qrels").is_dir():
            raise InputError(
                "is a folder without corpus.jsonl, queries.jsonl or qrels; give a file or a "
                "BEIR folder",
                where=str(path),
            )
        return folder

    @property
    def name(self) -> str:
        return self.path.name

    stem = name

    @property
    def source(self) -> Source:
        return Source(self.path.name)

    def find(self, name: str) -> Path | None:
        """Return the path of a file in the folder, packed or not."""
        paths = (self.path / (name + packing) for packing in _PACKED)
        return next((path for path in paths if path.is_file()), None)

    def input(self, name: str) -> Input:
        """Open a file in the folder."""
        path = self.find(name)
        if path is None:
            raise InputError(f"holds no {name}; expected one", where=str(self.path))
        return open_input(path)

    def qrels(self) -> Input:
        """Open the judgments: test.tsv, else the only ones."""
        if path := self.find("qrels/test.tsv"):
            return open_input(path)
        files = sorted(path for p in _PACKED for path in self.path.glob(f"qrels/*.tsv{p}"))
        if len(files) == 1:
            return open_input(files[0])
        names = ", ".join(path.name for path in files)
        problem = f"several qrels ({names}); give the file" if files else "no qrels/*.tsv"
        raise InputError(f"holds {problem}; expected qrels/test.tsv", where=str(self.path))


def sniff(head: Head, kind: Kind) -> bool:
    """Return False: a folder is known by its path."""
    return False


def holds_queries(file: Input | Folder) -> bool:
    """Return True if a folder has queries beside its judgments."""
    return isinstance(file, Folder) and file.find("queries.jsonl") is not None


def read_gold(file: Input | Folder, *, duplicates: Duplicates = "agree") -> Gold:
    """Read the judgments of a folder, or one of its qrels files."""
    qrels = file.qrels() if isinstance(file, Folder) else file
    return read_qrels(qrels, duplicates=duplicates, separator="\t")


def read_queries(file: Input | Folder) -> Queries:
    """Read the queries of a folder."""
    return read_jsonl_queries(file.input("queries.jsonl") if isinstance(file, Folder) else file)


def read_corpus(file: Input | Folder) -> Corpus:
    """Read the corpus of a folder; the title stays an attribute."""
    return read_jsonl_corpus(file.input("corpus.jsonl") if isinstance(file, Folder) else file)


def write_gold(gold: Gold, path: str | Path) -> None:
    """Write judgments as qrels/test.tsv; queries without any are dropped."""
    table = join_spans(gold.frame).select("query_id", "item_id", "grade")
    table.columns = ["query-id", "corpus-id", "score"]
    grades = table["score"]
    if (grades == grades.round()).all() and (grades.abs() < 2**53).all():
        table = table.with_columns(pl.col("score").cast(pl.Int64))
    write_frame(table, _inside(path, "qrels/test.tsv"), separator="\t")


def write_queries(queries: Queries, path: str | Path) -> None:
    """Write queries as queries.jsonl, attributes as metadata."""
    _write(queries.frame, "query_id", ("text",), _inside(path, "queries.jsonl"))


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write items as corpus.jsonl, attributes as metadata."""
    _write(corpus.frame, "item_id", ("title", "text"), _inside(path, "corpus.jsonl"))


def write_eval_set(queries: Queries, gold: Gold, path: str | Path) -> None:
    """Write queries and judgments to one folder."""
    write_queries(queries, path)
    write_gold(gold, path)


def _inside(path: str | Path, name: str) -> Path:
    if str(path) == "-":
        raise InputError("a BEIR folder cannot be written to standard output", where="stdout")
    return Path(path) / name


def _write(frame: pl.DataFrame, key: str, top_level: tuple[str, ...], path: Path) -> None:
    lines = []
    for row in json_rows(frame):
        record = {"_id": row.pop(key), **{name: row.pop(name, "") or "" for name in top_level}}
        rest = {name: value for name, value in row.items() if value is not None}
        lines.append(to_line(record | {"metadata": rest}))
    write_lines(lines, path)


def is_folder_of_documents(path: str | Path) -> bool:
    """Return True if a path is a folder without a BEIR corpus."""
    folder = Path(path)
    return str(path) != "-" and folder.is_dir() and Folder(folder).find("corpus.jsonl") is None


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
