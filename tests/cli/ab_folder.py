"""What the tests of ``karat ab`` share: a small folder of files, and how results are read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ab"
CORPUS = """
{"id": "d1", "text": "apple tart recipe with cinnamon and butter"}
{"id": "d2", "text": "banana bread with walnuts and chocolate chips"}
{"id": "d3", "text": "introduction to large language models (LLM) and transformers"}
{"id": "d4", "text": "CUDA / NVIDIA CUDA driver installation walkthrough for GPUs"}
{"id": "d5", "text": "zebra facts: habitat, diet, and behavior in the wild"}
"""
QUERIES = "q1\tapple tart\nq2\tbanana bread\nq3\tzebra\nq4\tllm tutorial\nq5\tcuda install\n"
QRELS = "q1\td1\t2\nq2\td2\t2\nq3\td5\t1\nq4\td3\t2\nq5\td4\t1\n"
FUSED = "t2: {quality: {enabled: true, fusion: {mode: score_interp, alpha_semantic: 0.6}}}\n"
GATED = "perf: {enabled: true, metrics: {report_memory: true}}\n" + FUSED
BASE = "t2: {quality: {enabled: false}}\n"
TABLES = ("--queries", "queries.tsv", "--truth", "qrels.tsv")
CONFIGS = ("--configA", "a.yaml", "--configB", "b.yaml")
SEARCHED = ("ab", "--corpus", "corpus.jsonl", *TABLES, *CONFIGS, "--out", "out/ab.json")
GIVEN = ("ab", *TABLES, *CONFIGS, "--runA", "a.trec", "--runB", "b.trec", "--out", "ab.json")


def lay_down() -> None:
    """A small corpus with queries, judgments, two configs and two runs, in the current folder."""
    write("corpus.jsonl", CORPUS)
    write("queries.tsv", QUERIES)
    write("qrels.tsv", QRELS)
    write("a.yaml", BASE)
    write("b.yaml", FUSED)
    write("a.trec", "q1 Q0 d1 1 0.5 a\n")
    write("b.trec", "q1 Q0 d2 1 0.5 b\n")


def write(name: str, text: str) -> None:
    Path(name).write_bytes(text.encode())


def document(name: str = "out/ab.json") -> dict:
    return json.loads(Path(name).read_bytes())


def sha256(name: str) -> str:
    return hashlib.sha256(Path(name).read_bytes()).hexdigest()


def refused(done, *words: str) -> None:
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("karat: ")
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err
