"""Files that are small, or broken, and stand for gigabytes: each with the door it goes through."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from backports import zstd

MB = 1_000_000
HIT = b"q Q0 d 1 1.0 t\n"
ROW = b"q,d,1.0\n"
HEADER = b"query_id,item_id,score\n"
_PACK = {".gz": gzip.compress, ".zst": zstd.compress}

Maker = Callable[[Path], None]


def packed(unit: bytes, megabytes: int, first: bytes = b"") -> Maker:
    """The same bytes over and over: one packed megabyte, repeated."""

    def make(path: Path) -> None:
        pack = _PACK[path.suffix]
        path.write_bytes(pack(first + unit) + pack(unit * (MB // len(unit))) * megabytes)

    return make


def slowly(path: Path) -> None:
    """A line of gigabytes that packs no better than text does: the length alone gives it away."""
    rest = random.Random(1).randbytes(MB // 100)
    block = b"".join(bytes([65 + byte % 26]) * 100 for byte in rest)
    path.write_bytes(gzip.compress(HIT) + gzip.compress(block, 1) * 2_000)


def members(path: Path) -> None:
    """Twenty thousand gzip files in one, each of which is empty."""
    path.write_bytes(gzip.compress(b"", mtime=0) * 20_000 + gzip.compress(b"no run"))


def one_line(first: bytes = b"") -> Maker:
    """A gigabyte without a line end; most of it is a hole in the file, which nobody gets to."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.write(first)
            for _ in range(90):
                file.write(b"a" * MB)
        os.truncate(path, 1000 * MB)

    return make


def hole(megabytes: int, first: bytes = b"") -> Maker:
    """A file that is nearly all hole: NUL bytes to whoever reads it."""

    def make(path: Path) -> None:
        path.write_bytes(first)
        os.truncate(path, megabytes * MB)

    return make


def holding(data: bytes) -> Maker:
    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


def repeated_rows(path: Path) -> None:
    """A Parquet file of one row, thirty million times: a dictionary and how often it counts."""
    once = pa.DictionaryArray.from_arrays(pa.array(np.zeros(30 * MB, np.int8)), pa.array(["q"]))
    ids = pa.array(np.zeros(30 * MB, np.int32))
    table = pa.table({"query_id": once, "item_id": ids})
    pa.parquet.write_table(table, path, compression="zstd", row_group_size=30 * MB)


def large_page(path: Path) -> None:
    """A Parquet file whose one text is 100 MB of the same letter."""
    table = pa.table({"item_id": ["d"], "text": ["a" * (100 * MB)]})
    pa.parquet.write_table(table, path, compression="zstd", write_statistics=False)


def lying_rows(path: Path) -> None:
    """A Parquet file of 12,345 rows whose footer says that there are 2^40."""
    rows = 12_345
    table = pa.table({"query_id": ["q"] * rows, "item_id": [f"d{n}" for n in range(rows)]})
    pa.parquet.write_table(table, path, write_statistics=False)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8].replace(_varint(2 * rows), _varint(2 << 40))
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def laughs() -> bytes:
    """Nine lines of aliases that stand for a billion words."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for n in range(1, 9):
        lines.append(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]")
    return "\n".join(lines).encode()


def own_keys(rows: int) -> bytes:
    """Records that each name a column of their own."""
    return "".join(f'{{"id": {n}, "text": "", "k{n}": 1}}\n' for n in range(rows)).encode()


WIDE = b"query_id,item_id,score" + b",c" * MB + b"\n" + b"q,d,1" + b",1" * MB + b"\n"
LONG = b'{"q": {"' + b"d" * 100_000 + b'": 1}'
KEYS = json.dumps({"id": "1", "text": "", **{f"k{n}": n for n in range(300_000)}}).encode()
DIGITS = b"9" * MB

# name of the file -> kind, how it is made, and what the refusal says
BOMBS: dict[str, tuple[str, Maker, str]] = {
    "one-byte.trec.gz": ("run", packed(b"a", 2_000), "KARAT_MAX_UNPACKED"),
    "one-byte.trec.zst": ("run", packed(b"a", 2_000), "KARAT_MAX_UNPACKED"),
    "line-ends.trec.gz": ("run", packed(b"\n", 2_000, first=HIT), "KARAT_MAX_UNPACKED"),
    "lines.trec.gz": ("run", packed(HIT, 2_000), "KARAT_MAX_UNPACKED"),
    "lines.trec.zst": ("run", packed(HIT, 2_000), "KARAT_MAX_UNPACKED"),
    "lines.qrels.zst": ("gold", packed(b"q 0 d 1\n", 2_000), "KARAT_MAX_UNPACKED"),
    "lines.csv.gz": ("run", packed(ROW, 2_000, first=HEADER), "KARAT_MAX_UNPACKED"),
    "one-line.csv.zst": ("run", packed(b"a,", 2_000, first=HEADER), "KARAT_MAX_UNPACKED"),
    "open-quote.csv.gz": ("run", packed(b"a\n", 2_000, first=HEADER + b'"'), "KARAT_MAX_UNPACKED"),
    "records.jsonl.gz": (
        "corpus",
        packed(b"\n", 2_000, first=b'{"id": 1, "text": ""}'),
        "KARAT_MAX_UNPACKED",
    ),
    "slowly.trec.gz": ("run", slowly, "KARAT_MAX_LINE"),
    "members.trec.gz": ("run", members, "2 columns; expected 6"),
    "lists.json.gz": ("gold", packed(b"[],", 2_000, first=b'{"q": ['), "KARAT_MAX_UNPACKED"),
    "one-line.trec": ("run", one_line(HIT), "KARAT_MAX_LINE"),
    "one-line.tsv": ("queries", one_line(b"q\ttext\n"), "KARAT_MAX_LINE"),
    "one-line.csv": ("run", one_line(HEADER + ROW), "KARAT_MAX_LINE"),
    "one-line.jsonl": ("corpus", one_line(b'{"id": 1, "text": ""}\n{"'), "KARAT_MAX_LINE"),
    "hole.trec": ("run", hole(1_000), "NUL"),
    "hole-after.trec": ("run", hole(1_000, HIT * 10_000), "KARAT_MAX_LINE"),
    "large.json": ("gold", hole(1_000, LONG), "KARAT_MAX_DOCUMENT"),
    "deep.json": ("gold", holding(b"[" * MB), "nested too deeply, more than 100 levels"),
    "deep.jsonl": ("corpus", holding(b'{"id": 1, "text": "", "a": ' + b"[" * MB), "nested"),
    "wide.csv": ("run", holding(WIDE), "1,000,003 columns; a table of 1 rows may have 10,000"),
    "wide.jsonl": ("corpus", holding(KEYS), "300,002 columns"),
    "own-keys.jsonl": ("corpus", holding(own_keys(20_000)), "may have 1,000"),
    "digits.trec": ("run", holding(b"q Q0 d 1 " + DIGITS + b" t\n"), "a run needs finite scores"),
    "digits.jsonl": (
        "corpus",
        holding(b'{"text": "", "id": ' + DIGITS + b"}"),
        "4300 digits",
    ),
    "digits.json": ("gold", holding(b'{"q": {"d": ' + DIGITS + b"}}"), "4300 digits"),
    "repeated.parquet": ("gold", repeated_rows, "KARAT_MAX_UNPACKED"),
    "repeated-run.parquet": ("run", repeated_rows, "KARAT_MAX_UNPACKED"),
    "page.parquet": ("corpus", large_page, "KARAT_MAX_UNPACKED"),
    "lying.parquet": ("gold", lying_rows, "the Parquet file is damaged"),
    "laughs.yaml": ("gates", holding(laughs()), "100,000 entries, aliases written out"),
    "deep.yaml": ("gates", holding(b"[" * 900_000), "nested too deeply"),
    "packed.yaml.gz": ("config", packed(b"a: 1\n", 20), "a file of settings has at most"),
    "large.yaml": ("config", hole(1_000, b"gold: a\n"), "a file of settings has at most"),
    "laughs-in-config.yaml": ("config", holding(laughs()), "100,000 entries"),
}
