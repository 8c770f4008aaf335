"""Many runs on one gold: scored several at a time, told as if one after the other."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import karat
import karat.evaluation.evaluation
import karat.parallel
from karat.evaluation.evaluation import Evaluation
from karat.formats import blocks

RUNS, QUERIES, HITS = 9, 40, 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Runs of different quality, every third in no order, some as logs."""
    place = tmp_path_factory.mktemp("many")
    chance = random.Random(11)
    for number in range(RUNS):
        lines = [
            f"q{query} Q0 d{item} 1 {chance.choice([chance.random(), 0.5])} t{number}\n"
            for query in range(QUERIES)
            for item in chance.sample(range(60), HITS)
        ]
        if number % 3 == 0:
            chance.shuffle(lines)
        (place / f"r{number:02}.trec").write_text("".join(lines))
    with (place / "log.jsonl").open("w") as log:
        for query in range(QUERIES):
            topk = [{"chunk_id": f"d{item}"} for item in chance.sample(range(60), 5)]
            log.write(json.dumps({"query_id": f"q{query}", "topk": topk}) + "\n")
    gold = [
        f"q{query} 0 d{item} {item % 3}\n"
        for query in range(QUERIES)
        for item in chance.sample(range(60), 8)
    ]
    (place / "gold.txt").write_text("".join(gold))
    return place


def runs(folder: Path) -> list[str]:
    return [str(path) for path in (*sorted(folder.glob("r*.trec")), folder / "log.jsonl")]


@pytest.fixture
def four(monkeypatch):
    """As many processors as a larger machine has."""
    monkeypatch.setattr(karat.parallel, "cores", lambda: 4)
    monkeypatch.setattr(karat.evaluation.evaluation, "cores", lambda: 4)


@pytest.mark.parametrize("options", [[], ["--bounds"], ["--by", "language"]])
def test_the_document_is_the_same_one_at_a_time(run, folder, monkeypatch, four, options, tmp_path):
    queries = tmp_path / "queries.jsonl"
    lines = [
        json.dumps({"query_id": f"q{n}", "text": f"text {n}", "language": "de" if n % 2 else "en"})
        for n in range(QUERIES)
    ]
    queries.write_text("\n".join(lines))
    words = ["eval", *runs(folder), "--gold", str(folder / "gold.txt"), "--json", *options]
    words += ["--queries", str(queries)]
    many = run(*words)
    monkeypatch.setattr(karat.parallel, "cores", lambda: 1)
    monkeypatch.setattr(karat.evaluation.evaluation, "cores", lambda: 1)
    one = run(*words)
    assert many.code == one.code == 0
    assert many.out == one.out
    names = [system["name"] for system in json.loads(many.out)["systems"]]
    assert names == [Path(name).stem for name in runs(folder)]


@pytest.mark.parametrize(
    ("gold", "step"), [("gold.txt", "read_plain_gold"), ("gold.tsv", "prepare")]
)
def test_the_gold_is_prepared_once(folder, monkeypatch, four, tmp_path, gold, step):
    rows = (folder / "gold.txt").read_text().replace(" 0 ", "\t").replace(" ", "\t")
    (tmp_path / "gold.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    calls, prepare = [], getattr(karat.evaluation.evaluation, step)

    def counted(*given, **named):
        calls.append(given)
        return prepare(*given, **named)

    monkeypatch.setattr(karat.evaluation.evaluation, step, counted)
    found = Evaluation((folder if gold == "gold.txt" else tmp_path) / gold).score_runs(runs(folder))
    assert len(found.scores) == RUNS + 1
    assert len(calls) == 1


def test_python_gets_the_same_comparison_from_many_at_once(folder, four, monkeypatch):
    gold = karat.read_gold(folder / "gold.txt")
    read = [karat.read_run(name) for name in runs(folder)[:6]]
    many = karat.compare(read, gold, ["nDCG@10", "RR"])
    monkeypatch.setattr(karat.parallel, "cores", lambda: 1)
    one = karat.compare(read, gold, ["nDCG@10", "RR"])
    assert [row.to_dict() for row in many.rows] == [row.to_dict() for row in one.rows]


def test_the_first_broken_run_is_the_one_that_is_told(run, folder, four, tmp_path):
    broken = tmp_path / "broken.trec"
    broken.write_text("q0 Q0 d1 1 nan t\n")
    later = tmp_path / "later.trec"
    later.write_text("q0 Q0 d1\n")
    # The first has much to read before its mistake, the second fails at once.
    slow = tmp_path / "slow.trec"
    slow.write_text("".join(f"q{n} Q0 d1 1 1 t\n" for n in range(300_000)) + "q0 Q0 d1 1 inf t\n")
    names = [*runs(folder)[:3], str(slow), str(later), str(broken)]
    told = run("eval", *names, "--gold", str(folder / "gold.txt"))
    assert told.code == 2
    assert told.err == "karat: slow.trec:300001: score is 'inf'; a run needs finite scores\n"


def test_progress_names_the_runs_in_turn(run, folder, four, monkeypatch):
    monkeypatch.setenv("KARAT_PROGRESS", "json")
    told = run("eval", *runs(folder), "--gold", str(folder / "gold.txt"))
    lines = [json.loads(line) for line in told.err.splitlines()]
    assert [(line["file"], line["done"]) for line in lines] == [
        (name, place) for place, name in enumerate(runs(folder))
    ]


def test_standard_input_can_be_one_of_many(spawn, folder):
    names = runs(folder)[:3]
    told = spawn(
        *("eval", names[0], "-", names[2], "--gold", str(folder / "gold.txt"), "--json"),
        stdin=Path(names[1]).read_bytes(),
    )
    systems = json.loads(told.out)["systems"]
    assert [system["name"] for system in systems] == ["r00", "stdin", "r02"]


def test_runs_share_the_memory_that_there_is(monkeypatch):
    monkeypatch.setenv("KARAT_MEMORY", "2GB")
    alone = blocks.memory_budget().table
    with blocks.concurrent_readers(4) as at_once:
        assert at_once == 4
        assert blocks.memory_budget().table == alone // 4
    assert blocks.memory_budget().table == alone
    with blocks.concurrent_readers(100) as at_once:
        assert at_once == 5
    monkeypatch.setenv("KARAT_MEMORY", "300MB")
    with blocks.concurrent_readers(100) as at_once:
        assert at_once == 1


def test_ctrl_c_ends_many_runs_at_once(folder, tmp_path):
    for number in range(4):
        lines = [f"q{query} Q0 d{number} 1 1 t\n" for query in range(200_000)]
        (tmp_path / f"{number}.trec").write_text("".join(lines))
    names = [str(path) for path in sorted(tmp_path.glob("*.trec"))] * 10
    words = ["-m", "karat", "eval", *names, "--gold", str(folder / "gold.txt")]
    words += ["--set", "missing_ids=allow"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        [sys.executable, *words], **pipes, env={**os.environ, "KARAT_PROGRESS": "json"}
    )
    process.stderr.readline()
    process.stderr.readline()
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == b""
    assert b"Traceback" not in err
    assert time.monotonic() - start < 8
