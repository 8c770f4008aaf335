"""Small files that stand for a lot: refused soon, in little memory, with the limit named."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fuzz.bombs import BOMBS, HIT, MB, packed
from karat.errors import UsageError
from karat.formats.files import LIMITS
from karat.formats.readers import read_run
from karat.measure.names import parse_measures

# One process reads them all: what it takes is what the worst of them takes.
READ_ALL = """
import json, sys, time
from pathlib import Path
from karat.evaluation.gate_files import read_gate_file
from karat.project.config import read_config
from karat.errors import KaratError
from karat.formats.readers import read_corpus, read_gold, read_queries, scan_run

def read_run(path):
    return list(scan_run(path).blocks())

def peak():
    # What getrusage tells counts the process that this one was made of.
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024

doors = {"run": read_run, "gold": read_gold, "queries": read_queries, "corpus": read_corpus,
         "gates": read_gate_file, "config": read_config}
for line in sys.stdin:
    kind, path = line.split()
    start = time.process_time()
    try:
        doors[kind](Path(path))
        said = ""
    except KaratError as error:
        said = str(error)
    print(json.dumps({
        "name": Path(path).name,
        "said": said,
        "seconds": time.process_time() - start,
        "memory": peak(),
    }), flush=True)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("bombs")
    asked = []
    for name, (kind, make, _) in BOMBS.items():
        make(folder / name)
        asked.append(f"{kind} {folder / name}")
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL],
        input="\n".join(asked).encode(),
        capture_output=True,
        env={**os.environ, "POLARS_MAX_THREADS": "2"},
        timeout=600,
    )
    for name in BOMBS:
        (folder / name).unlink()
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["name"]: one for one in told}


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_file_that_stands_for_gigabytes_is_refused_in_one_line(
    outcomes: dict[str, dict[str, Any]], name: str
) -> None:
    outcome = outcomes[name]
    assert BOMBS[name][2] in outcome["said"]
    assert outcome["said"].startswith(name)
    assert len(outcome["said"]) < 3_000
    assert outcome["seconds"] < 5


def test_no_such_file_takes_more_than_a_gigabyte(outcomes: dict[str, dict[str, Any]]) -> None:
    assert len(outcomes) == len(BOMBS)
    assert max(one["memory"] for one in outcomes.values()) < 1_000 * MB


def test_the_command_line_refuses_a_bomb_with_exit_code_2(tmp_path: Path, spawn: Any) -> None:
    run, gold = tmp_path / "run.trec.gz", tmp_path / "gold.qrels"
    packed(HIT, 500)(run)
    gold.write_bytes(b"q 0 d 1\n")
    result = spawn("eval", str(run), "--gold", str(gold))
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "run.trec.gz: " in result.err
    assert "unpacks to more than 32 MB" in result.err
    assert "set KARAT_MAX_UNPACKED to more" in result.err


def test_a_pipe_without_end_is_refused(tmp_path: Path, spawn: Any) -> None:
    gold = tmp_path / "gold.qrels"
    gold.write_bytes(b"q 0 d 1\n")
    result = spawn("eval", "/dev/zero", "--gold", str(gold), KARAT_MAX_DOCUMENT="50MB")
    assert result.code == 2
    assert "zero: is larger than 50 MB" in result.err


def test_limits_are_raised_by_their_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.trec.zst"
    packed(HIT, 70)(path)
    with pytest.raises(Exception, match="KARAT_MAX_UNPACKED"):
        read_run(path)
    monkeypatch.setenv("KARAT_MAX_UNPACKED", "1GB")
    assert read_run(path).hits.height == 1 + 70 * (MB // len(HIT))


@pytest.mark.parametrize("limit", LIMITS, ids=[limit.variable for limit in LIMITS])
def test_a_limit_that_is_no_size_is_refused(limit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("many", "-1", "0", "1e9", "9" * 40, "nan"):
        monkeypatch.setenv(limit.variable, wrong)
        with pytest.raises(UsageError, match=limit.variable):
            limit.bytes()


def test_a_file_that_packs_well_is_read_whatever_its_size(tmp_path: Path) -> None:
    path = tmp_path / "run.trec.gz"
    lines = (
        f"q{n // 1000} Q0 d{n % 1000} {n % 1000} {1 / (n + 1):.6f} t\n" for n in range(200_000)
    )
    path.write_bytes(gzip.compress("".join(lines).encode()))
    assert read_run(path).hits.height == 200_000


@pytest.mark.parametrize(
    "text",
    [
        "nDCG@1" + "0" * 10_000,
        f"P(rel={'9' * 100_000})@5",
        "nDCG(gain={" + "1:" * 50_000 + "})",
        "P(rel=" + "(" * 100_000,
        "R@{" + "1," * 20_000,
        "('a" * 30_000,
        "P(rel=" + "-" * 100_000 + "1)@5",
        "P(rel=2" + "**9" * 1_000 + ")@5",
    ],
    ids=["k", "parameter", "map", "brackets", "braces", "quotes", "signs", "powers"],
)
def test_a_measure_of_a_hundred_thousand_letters_is_read_or_refused_at_once(text: str) -> None:
    said = ""
    start = time.process_time()
    try:
        parse_measures(text)
    except UsageError as error:
        said = str(error)
    assert len(said) < 3_000
    assert time.process_time() - start < 5
