"""The commands, their inputs, and what is kept of their outputs."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from karat.cli.main import main

EXPECTED = Path(__file__).parent / "expected"

# The folder of a recipe, and the words of a command in it. Outputs are named out.*.
CASES: dict[str, tuple[str, str]] = {
    "check": (
        "first",
        "check --queries queries.jsonl --gold qrels.txt --corpus corpus.jsonl --json",
    ),
    "check-rag": ("rag", "check karat.yaml --json"),
    "chunks": (
        "rag",
        (
            "chunks documents.jsonl --gold spans.jsonl --queries dataset.jsonl "
            "--chunker fixed:400/80 --chunker sentence -o out.json -o out.csv -o out.md"
        ),
    ),
    "compare": (
        "first",
        (
            "compare bm25.trec dense.jsonl --gold qrels.txt -m nDCG@5,R@5,RR "
            "-o out.json -o out.csv -o out.md -o junit:out.xml"
        ),
    ),
    "compare-by": (
        "rag",
        (
            "compare runs/bm25.jsonl runs/reranked.jsonl --gold dataset.jsonl "
            "--corpus corpus.jsonl --profile rag --by language -o out.json -o out.md -o out.csv"
        ),
    ),
    "compare-pairs": (
        "first",
        (
            "compare bm25.trec dense.jsonl runs/hybrid.jsonl --gold qrels.txt -m nDCG@5,R@5 "
            "--pairs all -o out.json"
        ),
    ),
    "convert-run": ("first", "convert dense.jsonl out.trec"),
    "convert-gold": ("first", "convert qrels.txt out.csv"),
    "diagnose": (
        "rag",
        (
            "diagnose runs/reranked.jsonl --gold dataset.jsonl --corpus corpus.jsonl "
            "--profile rag -o out.json -o out.md"
        ),
    ),
    "eval": (
        "first",
        (
            "eval bm25.trec dense.jsonl --gold qrels.txt --queries queries.jsonl "
            "-m nDCG@5,R@5,RR,AP@5,Hit@1,All@5 --by language "
            "-o out.json -o out.csv -o out.md -o trec:out.txt -o junit:out.xml"
        ),
    ),
    "eval-all-measures": (
        "first",
        (
            "eval dense.jsonl --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl -m "
            '\'Hit@3,R@3,All@3,WR@3,P@3,F@3,RR@3,nDCG@3,nDCG(gain="exp")@3,DCG@3,CG@3,AP@3,'
            'AP(norm="k")@3,GMAP,Rprec,Bpref,infAP,ERR@3,RBP@3,RBPres@3,IPrec@0.5,SetP,SetR,SetF,'
            "NumRet,NumRel,NumRelRet,Judged@3,Hole@3,R@40tok,P@40tok,nDCG@40tok,DistinctDocs@3,"
            'Redundancy@3,Novelty@3,FPR@1,Coverage@3,Coverage(of="items")@3,Coverage(of="corpus")@3,'
            "AUC@5' -o out.json -o out.csv"
        ),
    ),
    "eval-gates": (
        "first",
        (
            "eval bm25.trec --gold qrels.txt --queries queries.jsonl --gates gates.yaml "
            "-o out.json -o junit:out.xml"
        ),
    ),
    "eval-minimal": (
        "first",
        (
            "eval dense.jsonl --gold qrels.txt --queries queries.jsonl --profile minimal "
            "-o minimal:out.json -o misses:out.misses.json"
        ),
    ),
    "eval-memory": (
        "memory",
        (
            "eval runs/baseline_v1.jsonl --gold suite.json --queries suite.json "
            "--corpus suite.json --profile memory -o memory:out.json"
        ),
    ),
    "eval-trec": ("first", "eval bm25.trec --gold qrels.txt --profile trec -o trec:out.txt"),
    "eval-trec10": ("first", "eval bm25.trec --gold qrels.txt --profile trec10 -o trec:out.txt"),
    "ab": (
        "ab",
        (
            "ab --corpus tests/fixtures/rq/corpus.jsonl --queries tests/fixtures/rq/queries.tsv "
            "--truth tests/fixtures/rq/qrels.tsv --configA examples/quality/lexical_fusion.yaml "
            "--configB tests/examples/quality/normalizer_aliases.yaml --out out.json --csv out.csv"
        ),
    ),
    "measures": ("first", "measures --json"),
    "next": (
        "rag",
        (
            "next runs/bm25.jsonl runs/reranked.jsonl --gold dataset.jsonl --corpus corpus.jsonl "
            "--profile rag --count 20 -o out.jsonl --json"
        ),
    ),
    "pool": (
        "rag",
        (
            "pool runs/bm25.jsonl runs/reranked.jsonl --gold dataset.jsonl --queries dataset.jsonl "
            "--corpus corpus.jsonl --depth 3 -o out.jsonl --json"
        ),
    ),
    "run": ("first", "run karat.yaml -o out.json -o out.md"),
    "run-memory": ("memory", "run karat.yaml -o out.json"),
    "run-rag": ("rag", "run karat.yaml -o out.json"),
    "history": ("first", "history --store history.db --json"),
    "stages": (
        "rag",
        (
            "stages runs/reranked.jsonl --gold dataset.jsonl --corpus corpus.jsonl --profile rag "
            "-o out.json -o out.md"
        ),
    ),
    "story": ("story", "story story.cnl --queries queries.json -o story:out.json"),
    "story-bow": (
        "story",
        "story story.cnl --queries queries.json --profile bow -o story:out.json",
    ),
    "stress": (
        "rag",
        "stress karat.yaml --system reranked --sample 20 -o out.json -o out.md",
    ),
    "sweep": (
        "rag",
        "sweep runs/bm25.jsonl --gold dataset.jsonl --profile rag -o out.json -o out.csv -o out.md",
    ),
    "triage": (
        "first",
        (
            "triage dense.jsonl --gold qrels.txt --queries queries.jsonl --corpus corpus.jsonl "
            "--measure nDCG@5 --worst 3 -o out.json -o out.md"
        ),
    ),
}


@dataclass(frozen=True)
class Workspace:
    """The recipes in folders of their own, with run logs whose latencies are made up."""

    folder: Path

    @classmethod
    def prepare(cls, folder: Path) -> Workspace:
        with _inside(folder):
            for recipe in sorted({recipe for recipe, _ in CASES.values()}):
                _call(["init", recipe, recipe, "--quiet"])
        for recipe in ("first", "memory", "rag"):
            with _inside(folder / recipe):
                _call(["search", "karat.yaml", "--quiet"])
                if recipe == "first":
                    _call(shlex.split("eval bm25.trec --gold qrels.txt --save --store history.db"))
                for log in Path("runs").glob("*.jsonl"):
                    _set_latencies(log)
        return cls(folder)

    def run(self, name: str) -> dict[str, Any]:
        """Run a command; return its exit code and what is kept of each output."""
        recipe, words = CASES[name]
        with _inside(self.folder / recipe):
            for old in Path().glob("out.*"):
                old.unlink()
            code, printed = _call(shlex.split(words))
            found: dict[str, Any] = {"command": f"karat {words}", "exit_code": code}
            if printed.startswith(("{", "[")):
                found["stdout"] = _masked(json.loads(printed))
            for path in sorted(Path().glob("out.*")):
                found[path.name] = _kept(path, words)
        return found


def _kept(path: Path, words: str) -> Any:
    text = path.read_text(encoding="utf-8")
    form = words.partition(f":{path.name}")[0].rpartition(" ")[2] if f":{path}" in words else ""
    if form in ("memory", "story", "minimal", "misses", "trec") or words.startswith("ab "):
        return [_without_times(line) for line in text.splitlines()]
    match path.suffix:
        case ".json":
            return _masked(json.loads(text))
        case ".jsonl":
            return [_masked(json.loads(line)) for line in text.splitlines()]
        case ".xml":
            return _element(ElementTree.fromstring(text))
        case ".md":
            return [_numbers(line) for line in text.splitlines() if _is_table_row(line)]
        case ".csv":
            return [",".join(_without_latency(row)) for row in csv.reader(io.StringIO(text))]
        case _:
            return text.splitlines()


def _masked(value: Any, key: str = "") -> Any:
    """The value with prose masked; measured times differ from run to run and are masked too."""
    if "latency" in key or key in ("sha256", "digest", "run_digest", "saved_at", "revision"):
        return "masked"
    if isinstance(value, dict):
        return {name: _masked(one, name) for name, one in sorted(value.items())}
    if isinstance(value, list):
        return [_masked(one, key) for one in value]
    if isinstance(value, str) and (" " in value or len(value) > 60):
        return "…"
    return value


def _element(element: ElementTree.Element) -> list[Any]:
    attributes = {name: _masked(value) for name, value in sorted(element.attrib.items())}
    return [element.tag, attributes, *(_element(child) for child in element)]


def _is_table_row(line: str) -> bool:
    return line.startswith("|") and "latency" not in line and not re.search(r"\bms\b", line)


def _numbers(line: str) -> str:
    return " ".join(re.findall(r"[-+−]?\d+(?:[.,]\d+)*%?", line))


def _without_latency(row: list[str]) -> list[str]:
    return ["latency row"] if any("latency" in cell for cell in row) else row


def _without_times(line: str) -> str:
    return re.sub(r'("(?:p\d+|[a-z_]*latency[a-z_0-9]*|[a-z_]*_ms)": )[-\d.e]+', r"\1…", line)


def _set_latencies(log: Path) -> None:
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    for position, row in enumerate(rows):
        if "latency_ms" in row:
            stages = enumerate(sorted(row["latency_ms"]))
            row["latency_ms"] = {stage: 1 + (7 * position + at) % 50 for at, stage in stages}
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    log.write_text(text, encoding="utf-8")


def _call(words: list[str]) -> tuple[int, str]:
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = main(words)
        printed.flush()
    return code, printed.buffer.getvalue().decode()


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
