"""Several processes at one store, and processes that die while saving."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import insert

from karat.store import LabelItem, Store
from karat.store.schema import JUDGMENTS

# Saves evaluations of 300 queries, and says each id once it is saved.
SAVING = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import made
from karat.store import Store
from karat.data.tables import Gold, Run

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


# Judges every item, takes the last judgment back and gives it again, and saves in between.
JUDGING = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import small
from karat.store import LabelItem, Store

where, rater = sys.argv[2:]
scores, report = small()
summaries = [one.summaries for one in scores]
items = [LabelItem(f"q{i}", "d", "?", "!") for i in range(300)]
print("ready", flush=True)
sys.stdin.readline()
with Store.open(where) as store:
    own = store.add_label_set(rater, items)
    for position in range(300):
        store.judge(own.id, position, rater, position % 4, rationale=f"{rater} {position}")
        if position % 50 == 0:
            assert store.take_back(own.id, rater).position == position
            store.judge(own.id, position, rater, None, rationale="again")
            store.save(scores, report, summaries=summaries, tags=[rater])
            assert len(store.judgments(own.id, rater=rater)) == position + 1
"""
# One rater in several windows: takes back as often as told, and says what it took.
TAKING = """
import sys
from karat.store import Store
print("ready", flush=True)
sys.stdin.readline()
with Store.open(sys.argv[1]) as store:
    for _ in range(100):
        print(store.take_back(1, "Ana").id)
"""


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def at_once(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What processes print that all begin at the same time, and complain of nothing."""
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        begin(process)
    told = [process.communicate(timeout=200) for process in processes]
    assert [err for _, err in told] == [""] * len(processes)
    return [out for out, _ in told]


def saving(where: str, times: int) -> subprocess.Popen[str]:
    return started(SAVING, str(Path(__file__).parent), where, str(times))


def begin(process: subprocess.Popen[str]) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


def test_two_processes_save_at_once_into_a_store_that_neither_has_made(where):
    told = at_once([saving(where, 20) for _ in range(2)])
    ids = [int(id) for out in told for id in out.split()]
    assert len(ids) == len(set(ids)) == 80
    with Store.open(where) as store:
        assert sorted(one.id for one in store.evaluations()) == sorted(ids)


def test_raters_in_several_processes_lose_nothing_and_say_nothing_twice(where):
    """Both make the same set in a store that neither has made."""
    folder = str(Path(__file__).parent)
    at_once([started(JUDGING, folder, where, rater) for rater in ("Ana", "Ben")])
    with Store.open(where) as store:
        assert [one.size for one in store.label_sets()] == [300]
        said = store.judgments(1)
        every = store.judgments(1, every=True)
        assert store.listed().total == 12
    for rater in ("Ana", "Ben"):
        own = {one.position: one.grade for one in said if one.rater == rater}
        assert own == {i: None if i % 50 == 0 else i % 4 for i in range(300)}
        given = [one.rationale for one in every if one.rater == rater]
        assert sorted(given) == sorted([*(f"{rater} {i}" for i in range(300)), *["again"] * 6])
    assert sum(one.withdrawn_at is not None for one in every) == 12
    assert len({one.id for one in every}) == len(every) == 612


def test_a_rater_in_two_processes_takes_back_each_judgment_once(where):
    with Store.open(where) as store:
        store.add_label_set("one", [LabelItem("q", "d", "?", "!")])
        with store._database.writing() as connection:
            row = {"set_id": 1, "position": 0, "rater": "Ana", "rationale": "", "grade": 1.0}
            rows = [row | {"given_at": datetime.now(UTC)}] * 210
            connection.execute(insert(JUDGMENTS), rows)
        told = at_once([started(TAKING, where) for _ in range(2)])
        taken = [int(id) for out in told for id in out.split()]
        assert sorted(taken) == list(range(11, 211))
        assert sum(one.withdrawn_at is None for one in store.judgments(1, every=True)) == 10


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
            assert len(store.baseline(str(id)).scores.query_ids) == 300
        assert store.save([store.baseline("1").scores], {})
