"""BEIR folders: corpus.jsonl, queries.jsonl and qrels/*.tsv with a header.

The only format that is a folder. Of several qrels, ``test.tsv`` is read; to read another split,
give its file instead of the folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from karat.data.columns import Duplicates, Source, join_spans
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError
from karat.formats import csvs, jsonl
from karat.formats.files import Input, open_input, write_frame, write_lines
from karat.formats.json_records import json_rows, to_line

_PACKED = ("", ".gz", ".zst")


@dataclass(frozen=True)
class Folder:
    """A BEIR folder that exists."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> Folder:
        """Return the folder; raise InputError if it has none of the files of a BEIR folder."""
        folder = cls(path)
        if not (folder.has_queries or folder.find("corpus.jsonl") or (path / "qrels").is_dir()):
            raise InputError(
                "is a folder without corpus.jsonl, queries.jsonl or qrels; give a file or a "
                "BEIR folder",
                where=str(path),
            )
        return folder

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def stem(self) -> str:
        return self.path.name

    @property
    def source(self) -> Source:
        return Source(self.path.name)

    @property
    def has_queries(self) -> bool:
        return self.find("queries.jsonl") is not None

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
        if self.find("qrels/test.tsv"):
            return self.input("qrels/test.tsv")
        files = sorted(path for p in _PACKED for path in self.path.glob(f"qrels/*.tsv{p}"))
        if len(files) == 1:
            return open_input(files[0])
        names = ", ".join(path.name for path in files)
        problem = (
            f"holds several qrels ({names}); give the file" if files else "holds no qrels/*.tsv"
        )
        raise InputError(f"{problem}; expected qrels/test.tsv", where=str(self.path))


def read_gold(file: Input | Folder, *, duplicates: Duplicates = "agree") -> Gold:
    """Read the judgments of a folder, or one of its qrels files."""
    qrels = file.qrels() if isinstance(file, Folder) else file
    return csvs.read_gold(qrels, duplicates=duplicates, separator="\t")


def read_queries(file: Input | Folder) -> Queries:
    """Read the queries of a folder."""
    return jsonl.read_queries(file.input("queries.jsonl") if isinstance(file, Folder) else file)


def read_corpus(file: Input | Folder) -> Corpus:
    """Read the corpus of a folder; the title stays an attribute."""
    return jsonl.read_corpus(file.input("corpus.jsonl") if isinstance(file, Folder) else file)


def write_gold(gold: Gold, path: str | Path) -> None:
    """Write judgments as qrels/test.tsv; queries without any are dropped."""
    table = join_spans(gold.frame).select(
        pl.col("query_id").alias("query-id"),
        pl.col("item_id").alias("corpus-id"),
        pl.col("grade").alias("score"),
    )
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


def _write(frame: pl.DataFrame, key: str, own: tuple[str, ...], path: Path) -> None:
    lines = []
    for row in json_rows(frame):
        record = {"_id": row.pop(key), **{name: row.pop(name, "") or "" for name in own}}
        rest = {name: value for name, value in row.items() if value is not None}
        lines.append(to_line(record | {"metadata": rest}))
    write_lines(lines, path)
