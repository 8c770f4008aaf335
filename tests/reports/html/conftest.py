"""A folder with two logs, gold, queries and a corpus, small enough to know every answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import karat
from karat.evaluation.evaluation import Evaluation
from karat.reports.document import Report

# Forty items; the gold of a stands at raw rank 37 of the second system, beyond its final list.
ITEMS = [f"d{number}#1" for number in range(1, 41)]
GOLD = {"a": {"d37#1": 2}, "b": {"d1#1": 1, "d2#1": 1}, "c": {"d3#1": 1}, "e": {"gone#1": 1}}
TEXTS = {
    "a": "why was my refund late",
    "b": "when will my order arrive",
    "c": "where is the shop",
    "e": "who answers <b>mail</b>",
}
FIRST = {
    "a": ["d37#1", "d1#1", "d2#1"],
    "b": ["d9#1", "d1#1", "d2#1"],
    "c": ["d3#1", "d20#1", "d21#1"],
    "e": ["d6#1", "d7#1", "d8#1"],
}
SECOND = {
    "a": ITEMS[:12],
    "b": ["d1#1", "d2#1", "d9#1"],
    "c": ["d3#1", "d20#1", "d21#1"],
    "e": [],
}


def log(path: Path, lists: dict[str, list[str]], raw: dict[str, list[str]] | None = None) -> str:
    lines = []
    for query_id, items in lists.items():
        line: dict = {"query_id": query_id, "k": 12, "system": path.stem}
        if query_id == "e" and not items:
            line["error"] = "timed out after 3 s"
        else:
            line["topk"] = hits(items)
            line["latency_ms"] = {"retrieve": 5.0, "total": 8.0}
        if raw is not None and query_id in raw:
            line |= {"k_raw": 40, "raw": hits(raw[query_id])}
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def hits(items: list[str]) -> list[dict]:
    return [
        {"rank": rank, "chunk_id": item, "score": 1 / rank} for rank, item in enumerate(items, 1)
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "first.jsonl", FIRST)
    log(tmp_path / "second.jsonl", SECOND, raw={"a": ITEMS})
    judged = [(query, item, grade) for query, own in GOLD.items() for item, grade in own.items()]
    judged += [("b", "d9#1", 0)]
    (tmp_path / "qrels.txt").write_text("".join(f"{q} 0 {i} {g}\n" for q, i, g in judged))
    asked = [
        {"query_id": query, "text": text, "language": "en" if query < "c" else "pt"}
        for query, text in TEXTS.items()
    ]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    corpus = [{"item_id": item, "text": f"Item {item} on my refund and order."} for item in ITEMS]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in corpus))
    return tmp_path


@pytest.fixture
def compared(folder: Path) -> Report:
    evaluation = Evaluation(
        "qrels.txt",
        queries="queries.jsonl",
        corpus="corpus.jsonl",
        measures=["R@2", "RR@10"],
        settings={"k": 3},
        by=["language"],
        primary="R@2",
        index_cache=Path(".karat"),
    )
    runs = ["first.jsonl", "second.jsonl"]
    return karat.report(evaluation, *runs, primary="R@2")
