"""Inputs that do not fit, and short lists: Spark says what the local engine says, in its words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

QUERIES = 24


def log(answers: dict[str, dict]) -> str:
    """A run log: what each query's call gave."""
    lines = [{"query_id": query, "query": query} | answer for query, answer in answers.items()]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def hits(*items: str) -> list[dict]:
    return [{"item_id": item, "rank": rank} for rank, item in enumerate(items, start=1)]


def every(answer, count: int = QUERIES) -> str:
    return log({f"q{at}": answer(at) for at in range(count)})


# The run, and what its gold calls the item of each query.
CASES = {
    "other ids": (every(lambda at: {"topk": hits(f"x{at}", f"y{at}")}), "gold-{}"),
    "another spelling": (every(lambda at: {"topk": hits(f"D{at}")}), "d{}"),
    "a prefix": (every(lambda at: {"topk": hits(f"msmarco-{at}")}), "{}"),
    "chunks of documents": (every(lambda at: {"topk": hits(f"d{at}#1", f"d{at}#2")}), "d{}"),
    "documents of chunks": (every(lambda at: {"topk": hits(f"d{at}")}), "d{}#0"),
    "empty": (every(lambda at: {"topk": []}), "d{}"),
    "empty or failed": (every(lambda at: {"topk": []} if at % 3 else {"error": "no"}), "d{}"),
    "failed": (every(lambda at: {"error": f"no {at % 5}"}), "d{}"),
    "nothing left of an earlier stage": (
        every(lambda at: {"topk": [], "raw": hits(f"d{at}")}),
        "d{}",
    ),
    "ids of an earlier stage alone": (
        every(lambda at: {"topk": hits("z"), "raw": hits(f"d{at}")}),
        "d{}",
    ),
    "ids shared with an earlier stage": (
        every(lambda at: {"topk": hits("z"), "raw": hits(f"d{at}", "z")}),
        "d{}",
    ),
    "other ids in an earlier stage too": (
        every(lambda at: {"topk": [], "raw": hits(f"x{at}")}),
        "gold-{}",
    ),
    "for another query": (every(lambda at: {"topk": hits(f"d{at + 1}")}), "d{}"),
    "few": (every(lambda at: {"topk": hits(f"x{at}")}, 4), "d{}"),
    "other queries": (log({f"p{at}": {"topk": hits("a")} for at in range(QUERIES)}), "a"),
    "one found": (every(lambda at: {"topk": hits(f"x{at}" if at else "d0")}), "d{}"),
    "repeats": (every(lambda at: {"topk": hits("x", "x", f"d{at % 7}", f"d{at}", "x")}), "d{}"),
}


# A log that says where it ends, lists of one length, and lists that only their ends are.
SHORT = {
    "cut by the log": every(lambda at: {"k": 3, "topk": hits("x", f"d{at}")}),
    "cut by the first line": every(lambda at: {"k": 4 + at, "topk": hits("x", f"d{at}")}),
    "of one length": every(lambda at: {"topk": hits("x", "y", f"d{at}")}),
    "of many lengths": every(lambda at: {"topk": hits(f"d{at}", *"xyz"[: at % 3])}),
    "longer than the log says": every(lambda at: {"k": 2, "topk": hits("x", "y", f"d{at}")}),
}
CASES |= {name: (text, "d{}") for name, text in SHORT.items()}
# What is not refused: a zero that is real, or a relevant item that was found.
FINE = {"ids shared with an earlier stage", "for another query", "few", "one found", "repeats"}
FINE |= {*SHORT}


def told(out: str) -> dict[str, Any]:
    """A report without what only whole lists tell, which stay with the local engine."""
    report = json.loads(out) if out else {"systems": []}
    for name in ("findings", "findings_of"):
        report.pop(name, None)
    for system in report["systems"]:
        for name in ("failures", "sweep", "waterfalls", "latency"):
            system.pop(name, None)
    return report


@pytest.mark.parametrize("case", [*CASES, "empty, allowed", "other ids, allowed"])
@pytest.mark.usefixtures("small_blocks", "spark")
def test_both_engines_say_the_same(run, tmp_path, monkeypatch, case):
    kind, _, allowed = case.partition(", ")
    text, item = CASES[kind]
    monkeypatch.chdir(tmp_path)
    Path("run.jsonl").write_text(text)
    count = text.count("\n")
    Path("gold.txt").write_text("".join(f"q{at} 0 {item.format(at)} 1\n" for at in range(count)))
    words = [
        "eval",
        "run.jsonl",
        "--gold",
        "gold.txt",
        "-m",
        "RR, R@3, P@5, nDCG@10",
        "--json",
        "--no-bounds",
    ]
    words += ["--set", "missing_ids=allow"] if allowed else []
    local, there = (run(*words, "--engine", engine) for engine in ("local", "spark"))
    assert local.code == (0 if allowed or kind in FINE else 2), local.err
    assert (there.code, there.err) == (local.code, local.err)
    assert told(there.out) == told(local.out)
