"""Several processes that write thousands of judgments at once: all are there, and none twice."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from karat.store import LabelItem, NameTakenError, NewJudgment, Store

from .test_processes import at_once, started

SIZE = 10_000
# One by one as the workbench does, then in batches as an import does; bench/judgments.py writes
# all of them one by one, which takes minutes.
WRITING = """
import sys
from karat.store import LabelItem, NewJudgment, Store

where, rater, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
items = [LabelItem(f"q{at}", "d", "?", "!") for at in range(size)]
said = [NewJudgment(at, rater, at % 4, f"{rater} {at}", "judge") for at in range(size)]
shared = [NewJudgment(at, "both", at % 3, "agreed") for at in range(0, size, 100)]
print("ready", flush=True)
sys.stdin.readline()
with Store.open(where) as store:
    id = store.add_label_set("all", items).id
    for one in said[:40]:
        store.judge(id, one.position, rater, one.grade, rationale=one.rationale, source="judge")
    for start in range(40, size, 498):
        store.judge_many(id, said[start:start + 498])
    print(store.judge_many(id, shared).added, store.judge_many(id, said).added)
"""


def test_two_processes_write_ten_thousand_judgments_each(where):
    raters = ("Ana", "Ben")
    told = at_once([started(WRITING, where, rater, str(SIZE)) for rater in raters])
    with Store.open(where) as store:
        assert [one.size for one in store.label_sets()] == [SIZE]
        every, counts = store.judgments(1, every=True), store.judgments(1)
    # What both bring is added by one of them, and their own a second time by neither.
    assert sorted(told) == ["0 0\n", "100 0\n"]
    found = Counter((one.rater, one.position, one.grade, one.rationale) for one in every)
    own = [(rater, at, at % 4, f"{rater} {at}") for rater in raters for at in range(SIZE)]
    both = [("both", at, at % 3, "agreed") for at in range(0, SIZE, 100)]
    assert found == Counter([*own, *both])
    assert len({one.id for one in every}) == len(every) == len(counts) == 2 * SIZE + 100
    assert {one.source for one in every if one.rater in raters} == {"judge"}


IMPORTING = """
import sys
from karat.cli.main import main
print("ready", flush=True)
sys.stdin.readline()
where, *words = sys.argv[1:]
sys.exit(main(["labels", "import", *words, "--store", where, "--name", "x", "--json"]))
"""


def test_the_same_file_imported_by_two_at_once_is_imported_once(where, tmp_path):
    """Into a store that neither has made."""
    file = tmp_path / "qrels.txt"
    file.write_text("".join(f"q{at} 0 d {at % 3}\n" for at in range(500)))
    said = at_once([started(IMPORTING, where, str(file), "--rater", "Ana") for _ in range(2)])
    told = sorted((one["new"], one["added"], one["known"]) for one in map(json.loads, said))
    assert told == [(False, 0, 500), (True, 500, 0)], "both claim the set, or neither does"
    with Store.open(where) as store:
        assert [(one.name, one.size) for one in store.label_sets()] == [("x", 500)]
        at = {item.position: item.query_id for item in store.label_items(1)}
        said = [(at[one.position], one.grade) for one in store.judgments(1, every=True)]
    assert sorted(said) == sorted((f"q{at}", at % 3) for at in range(500))


def test_of_two_sets_that_get_one_name_at_the_same_time_one_is_refused(where):
    with Store.open(where) as store:
        store.add_label_set("made", [LabelItem("q", "d", "?", "!")])
        for turn in range(5):
            ready = threading.Barrier(2)

            def add(own: int, turn: int = turn, ready: threading.Barrier = ready) -> str:
                items = [LabelItem(f"q{turn}", f"d{own}-{at}", "?", "!") for at in range(200)]
                ready.wait(30)
                try:
                    return store.add_label_set(f"set {turn}", items).name
                except NameTakenError:
                    return "refused"

            with ThreadPoolExecutor(2) as pool:
                assert sorted(pool.map(add, range(2))) == ["refused", f"set {turn}"]
        assert len(store.label_sets()) == 6


def test_a_batch_of_which_one_is_wrong_leaves_nothing_behind_for_others(where):
    with Store.open(where) as store, Store.open(where) as other:
        id = store.add_label_set("one", [LabelItem("q", "d", "?", "!")]).id
        with pytest.raises(Exception, match="position 5"):
            store.judge_many(id, [NewJudgment(0, "Ana", 1), NewJudgment(5, "Ana", 1)])
        assert other.judge_many(id, [NewJudgment(0, "Ana", 1)]).added == 1
        assert len(store.judgments(id, every=True)) == 1
