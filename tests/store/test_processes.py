"""Several processes at one store, and processes that die while saving."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from karat.store import Store

# Saves evaluations of 300 queries, and says each id once it is saved.
SAVING = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import made
from karat.store import Store
from karat.tables import Gold, Run

gold = Gold.from_dict({f"q{i}": {"a": 1} for i in range(300)})
runs = [Run.from_dict({f"q{i}": ["x", "a"] for i in range(300)}, name=n) for n in ("one", "two")]
scores, report = made(gold, *runs)
summaries = [one.summaries for one in scores]
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    with Store.open(sys.argv[2]) as store:
        print(*store.save(scores, report, tags=["main"], summaries=summaries), flush=True)
"""


def saving(where: str, times: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SAVING, str(Path(__file__).parent), where, str(times)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def begin(process: subprocess.Popen[str]) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


def test_two_processes_save_at_once_into_a_store_that_neither_has_made(where):
    both = [saving(where, 20) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        begin(process)
    told = [process.communicate(timeout=100) for process in both]
    assert [err for _, err in told] == ["", ""]
    ids = [int(id) for out, _ in told for id in out.split()]
    assert len(ids) == len(set(ids)) == 80
    with Store.open(where) as store:
        assert sorted(one.id for one in store.evaluations()) == sorted(ids)


@pytest.mark.parametrize("seed", range(4))
def test_a_process_killed_while_saving_leaves_a_store_that_can_be_read(where, seed):
    process = saving(where, 10_000)
    with process:
        assert process.stdout.readline() == "ready\n"
        begin(process)
        told = [process.stdout.readline() for _ in range(3)]
        time.sleep(random.Random(seed).random() / 20)
        process.send_signal(signal.SIGKILL)
        told += process.stdout.readlines()
    ids = {int(id) for line in told for id in line.split()}
    with Store.open(where) as store:
        found = {one.id for one in store.evaluations()}
        # What it said it had saved is there; at most one more save had ended unsaid.
        assert found >= ids
        assert len(found - ids) in (0, 2)
        for id in sorted(found)[-4:]:
            assert store.baseline(str(id)).scores.table.height == 300
        assert store.save([store.baseline("1").scores], {})
