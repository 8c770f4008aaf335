"""Files damaged at random are scored or refused in one line; nothing else may happen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

PIECES = [b"\n", b" ", b"\t", b'"', b"{", b"}", b"nan", b"1e400", b"\xff", b"\x00", b"null", b"#"]


def damaged(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(data) + 1)
        end = place + chance.randint(1, 30)
        kind = chance.choice(["insert", "cut", "end", "shuffle", "repeat", "carriage returns"])
        if kind == "insert":
            data = data[:place] + chance.choice(PIECES) + data[place:]
        elif kind == "cut":
            data = data[:place] + data[end:]
        elif kind == "end":
            data = data[:place]
        elif kind == "shuffle":
            lines = data.split(b"\n")
            chance.shuffle(lines)
            data = b"\n".join(lines)
        elif kind == "repeat":
            data = data[:end] + data[place:]
        else:
            data = data.replace(b"\n", b"\r\n")
    return data


@pytest.mark.parametrize(
    "name", ["bm25.trec", "dense.jsonl", "qrels.txt", "queries.jsonl", "corpus.jsonl"]
)
def test_a_damaged_file_is_scored_or_refused_in_one_line(run, files, name):
    chance = random.Random(name)
    whole = Path(name).read_bytes()
    arguments = ["--gold", "qrels.txt", "--queries", "queries.jsonl", "--corpus", "corpus.jsonl"]
    outputs = [word for out in ("o.json", "o.csv", "o.md", "trec:o.txt") for word in ("-o", out)]
    for _ in range(16):
        for old in Path().glob("o.*"):
            old.unlink()
        Path(name).write_bytes(damaged(whole, chance))
        runs = [name] if name in ("bm25.trec", "dense.jsonl") else ["bm25.trec", "dense.jsonl"]
        done = run("eval", *runs, *arguments, *outputs, "--quiet")
        assert done.code in (0, 2, 3), done.err
        assert done.out == ""
        assert done.err.count("\n") == (done.code != 0)
        assert len(list(Path().glob("o.*"))) == (0 if done.code == 2 else 4)
