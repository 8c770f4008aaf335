"""Readers of files under any bytes: what is read is whole, and reads again as it was written."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from fuzz.oracle import same
from karat.data.tables import Corpus, Gold, InterleavedError, Queries, Run
from karat.errors import KaratError
from karat.formats.readers import (
    read_corpus,
    read_gold,
    read_queries,
    read_run,
    scan_run,
    write_corpus,
    write_gold,
    write_queries,
    write_run,
)
from karat.formats.registry import FORMATS

READ: dict[str, Callable[..., Any]] = {
    "gold": read_gold,
    "run": read_run,
    "queries": read_queries,
    "corpus": read_corpus,
}
WRITE: dict[str, Callable[..., None]] = {
    "gold": write_gold,
    "run": write_run,
    "queries": write_queries,
    "corpus": write_corpus,
}
TABLES: dict[str, list[Any]] = {
    "gold": [
        Gold.from_dict({"q1": {"d1": 2, "d2": 0}, "q2": {"d#3": 1}}),
        Gold.from_dict({"q1": {"doc:1-20": 1, "doc:40-50": 1}}),
    ],
    "run": [
        Run.from_dict({"q1": {"d1": 0.5, "d2": 0.25}, "q2": {"d#3": 1.0}}),
        Run.from_dict({"q1": ["b", "a"], "q2": ["c"]}),
    ],
    "queries": [
        Queries.from_dict(
            {"q1": {"text": "one", "k": 5, "tags": ["a", "b"]}, "q2": {"text": "two", "k": 3}}
        ),
        Queries.from_dict({"7": {"text": "", "as_of": "2025-01-31", "hard": True}}),
    ],
    "corpus": [
        Corpus.from_dict({"Sc1": "a text", "Sc2": "two\nlines"}),
        Corpus.from_dict({"a": 'say "hi", then', "b": "été"}),
    ],
}
# What a file holds to be a line of its own: blank lines and comments are nothing.
KEYS = {
    "gold": ("query_id", "item_id", "grade"),
    "queries": ("query_id", "text"),
    "corpus": ("item_id", "text"),
}
WORDS = (
    *(b'" "" { } [ ] , : ; # \\ \0 \r \t \r\n \xff \xef\xbb\xbf \xe2\x80\xa8'.split(b" ")),
    *b"null true NaN -1 0 1e999 1e-400 -0.0 .5 5. 0x10 1_000 inf \\ud800 \\u0000".split(b" "),
    *b"query_id item_id chunk_id grade score rank text topk error stages raw".split(b" "),
    *b"latency_ms schema_version start end negative relevant id _id metadata".split(b" "),
    b" ",
    b"\n",
    b"99999999999999999999",
    b"-9223372036854775808",
    b"doc:1-2",
    "٣".encode(),
)
# Of a run in these, what the file cannot say or says twice is left out when it is written.
_PARTIAL = {"dict", "trec"}
_BREAK = b"\f\f"


def path_for(folder: Path, name: str) -> Path:
    suffixes = FORMATS[name].suffixes
    return folder / f"file{suffixes[0] if suffixes else ''}"


@cache
def seeds(name: str, kind: str) -> tuple[bytes, ...]:
    """What karat itself writes, in this format."""
    made = []
    for table in TABLES[kind]:
        with TemporaryDirectory() as folder:
            path = path_for(Path(folder), name)
            try:
                WRITE[kind](table, path, format=name)
            except KaratError:
                continue
            made.append(_bytes_of(path))
    return (*made, *_BY_HAND.get(name, ()))


def seeds_of_all(kind: str) -> tuple[bytes, ...]:
    plain = [form.name for form in FORMATS.values() if kind in form.carries]
    found = [one for name in plain if name not in ("beir", "parquet") for one in seeds(name, kind)]
    return (*found, gzip.compress(found[0], mtime=0))


def read_and_write(folder: Callable[[], Path], name: str, kind: str, data: bytes) -> None:
    """Read bytes as a format; what they hold must survive being written and read again."""
    path = path_for(folder(), name)
    _put(data, path)
    table = READ[kind](path, format=name)
    if kind == "run":
        _check_run(path, name, table)
    _count_lines(data, name, kind, table)
    copy = path.with_name(f"copy{path.suffix}")
    try:
        WRITE[kind](table, copy, format=name)
    except KaratError:
        return  # what the format cannot carry is refused, and said
    again = READ[kind](copy, format=name)
    same(_meaning(table, kind, name), _meaning(again, kind, name), "written and read again")


def read_whatever(folder: Callable[[], Path], kind: str, data: bytes) -> None:
    """Read bytes whose format is told by themselves, under several endings."""
    for suffix in (".txt", ".jsonl", ".tsv", ".json"):
        path = folder() / f"file{suffix}"
        path.write_bytes(data)
        try:
            READ[kind](path)
        except KaratError:
            continue


def _check_run(path: Path, name: str, run: Run) -> None:
    """Blocks hold what the whole does, and strict reading changes nothing but what it refuses."""
    scan = scan_run(path, format=name)
    try:
        blocks = list(scan.blocks())
    except InterleavedError:
        blocks = list(scan.partitions())
    found = sum(one.at("final").hits.height for one in blocks)
    same(found, run.at("final").hits.height, "hits in blocks")
    try:
        strict = read_run(path, format=name, strict=True)
    except KaratError:
        return
    same(strict.hits.rows(), run.hits.rows(), "read strictly")


def _count_lines(data: bytes, name: str, kind: str, table: Any) -> None:
    """No line is lost where each is a row."""
    if (name, kind) not in (("trec", "run"), ("tsv", "queries"), ("jsonl", "corpus")):
        return
    if data[:2] == b"\x1f\x8b" or data[:4] == b"\x28\xb5\x2f\xfd":
        return
    lines = [line.strip(b" \t\r") for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    if name == "tsv":
        lines = [line.strip(b"\r") for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    told = [line for line in lines if line and not (name == "trec" and line.startswith(b"#"))]
    if name == "jsonl":
        told = [line for line in told if line.decode().strip()]
    frame = table.hits if kind == "run" else table.frame
    same(len(told), frame.height, "lines and rows")


def _meaning(table: Any, kind: str, name: str) -> Any:
    if kind == "run":
        hits = table.at("final").hits
        if name in _PARTIAL:
            return set(hits.select("query_id", "item_id").rows())
        return sorted(hits.select("query_id", "item_id").rows())
    frame: pl.DataFrame = table.frame
    if kind == "gold" and "start" in frame.columns:
        spelled = pl.format("{}:{}-{}", "item_id", "start", "end")
        frame = frame.with_columns(item_id=pl.coalesce(spelled, "item_id"))
    return sorted(frame.select(KEYS[kind]).rows())


def _put(data: bytes, path: Path) -> None:
    """A file, or the folder of a BEIR set from its three parts."""
    if path.suffix:
        path.write_bytes(data)
        return
    parts = [*data.split(_BREAK), b"", b""]
    (path / "qrels").mkdir(parents=True, exist_ok=True)
    for name, part in zip(_BEIR, parts, strict=False):
        (path / name).write_bytes(part)


def _bytes_of(path: Path) -> bytes:
    if path.is_file():
        return path.read_bytes()
    files = (path / name for name in _BEIR)
    return _BREAK.join(one.read_bytes() if one.is_file() else b"" for one in files)


_BEIR = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
_BY_HAND: dict[str, tuple[bytes, ...]] = {
    "runlog": (
        (
            b'{"query_id": "q1", "system": "s", "schema_version": 1, "topk": [{"rank": 1, '
            b'"chunk_id": "a", "score": 0.5, "doc_version": "v1", "start": 0, "end": 9}], '
            b'"raw": ["a", "b"], "stages": {"rerank": [{"chunk_id": "a"}]}, '
            b'"latency_ms": {"retrieve": 3.5}, "cost": {"tokens": 12}, "entities": ["x"], '
            b'"as_of": "2025-01-31", "k_raw": 50}\n'
            b'{"query_id": "q2", "error": "timeout", "latency_ms": 7}\n'
        ),
    ),
    "labels": (
        (
            b'{"query_id": "q1", "item_id": "a", "grade": 2, "rater": "eva", "rationale": "yes"}\n'
            b'{"query_id": "q1", "chunk_id": "b", "error": "no answer"}\n'
        ),
    ),
    "memory": (
        (
            b'{"metadata": {"format_version": "2.0"}, "test_cases": [{"memory_id": 17, '
            b'"content": "c", "generated_queries": ["retry policy", '
            b'{"query": "what", "category": "x"}]}]}'
        ),
    ),
    "story": (
        (
            b'Sc1 group begin\n  Anna enters house with "a lamp"\n'
            b'  Sc1 describes "rain"\nSc1 group end'
        ),
        b'[{"query": "who", "relevant": ["Sc1"], "topK": "3"}, "where"]',
        b'{"corpora": {"retrieval_queries": [{"id": 1, "query": "x", "grades": {"a": 2}}]}}',
    ),
    "dict": (b'{"q1": {"a": 1, "b": 0.5}, "q2": {}}', b'{"q1": ["a", "b"]}'),
    "evalset": (b'{"query": "who", "relevant_chunk_ids": ["a", 7], "segment": {"x": [1]}}\n',),
    "dataset": (
        (
            b'{"query_id": "q1", "question": "who", "gold_evidence": ["a", {"chunk_id": "b", '
            b'"grade": 1}], "negatives": ["c"], "as_of": "2025-01-31"}\n'
        ),
    ),
    "trec": (b"q1\tQ0  d1 1 0.5 tag more\n# note\n\nq1 Q0 d2 x 1e-3 tag\r\n", b"q 0 d 1\n"),
    "csv": (
        b'qid,docno,score,note\nq1,"d\n1",0.5,\nq1,d2,.25,"say ""hi"""\n',
        b"query_id,item_id,grade,start,end\nq1,d,1,0,9\n",
        b"id,text\n1,\n2,x\n",
    ),
    "tsv-with-header": (b"query_id\titem_id\trank\nq1\ta\t1\nq1\tb\t2\n",),
    "jsonl": (b'{"_id": 7, "text": "x", "metadata": {"a": [1, "2"], "b": {"c": null}}}\n',),
}
