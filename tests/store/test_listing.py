"""Evaluations page by page, by filters and words, and what belongs to a report."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event

from karat.errors import InputError, UsageError
from karat.store import LabelItem, NotStoredError, Store

from .conftest import small

JANUARY = datetime(2026, 1, 1, 12, tzinfo=UTC)


def saved(store: Store, number: int, *, name: str = "bm25", verdict: str | None = None, **more):
    scores, report = small(name=name)
    now = JANUARY + timedelta(days=number)
    return store.save(scores, {**report, "verdict": verdict}, now=now, **more)


def found(store: Store, **wanted) -> list[int]:
    """The ids on the first page, of which there is only one."""
    listed = store.listed(**wanted)
    assert listed.total == len(listed.evaluations)
    return [one.id for one in listed.evaluations]


@pytest.fixture
def filled(store: Store) -> Store:
    """Four evaluations, each with something of its own."""
    saved(store, 0, tags=["main"], verdict="pass", note="First attempt, 50% done")
    saved(store, 3, name="Dense_v2", verdict="fail", revision="abc123def")
    saved(store, 1, tags=["nightly", "main"], note="süße Möhren")
    saved(store, 2, name="dense", verdict="pass", tags=["Release-1"])
    return store


def test_pages_hold_every_evaluation_once_and_know_how_many_there_are(store):
    for number in range(7):
        saved(store, number)
    pages = [store.listed(limit=3, offset=offset) for offset in (0, 3, 6, 9, 10**30)]
    assert [[one.id for one in page.evaluations] for page in pages] == [
        [7, 6, 5],
        [4, 3, 2],
        [1],
        [],
        [],
    ]
    assert {page.total for page in pages} == {7}
    for wrong in ({"limit": 0}, {"limit": -1}, {"offset": -1}):
        with pytest.raises(UsageError, match="begin at 1 and at 0"):
            store.listed(**wrong)


def test_a_page_has_all_that_a_list_has(filled):
    one, listed = filled.evaluations()[0], filled.listed().evaluations[0]
    assert listed.document() == one.document()
    assert listed.summaries == one.summaries


def test_the_newest_comes_first(filled):
    assert found(filled) == [2, 4, 3, 1]


def test_filters_narrow_it_down_together(filled):
    assert found(filled, verdict="pass") == [4, 1]
    assert found(filled, verdict="pass", tag="main") == [1]
    assert found(filled, system="bm25", tag="main") == [3, 1]
    assert found(filled, gold="FFFF") == [2, 4, 3, 1]
    assert found(filled, gold="0") == []
    assert found(filled, verdict="pas") == []
    assert found(filled, system="bm25\0\udc80") == []
    assert found(filled, tag="\0", verdict="\0", gold="\0") == []


WORDS = {
    "DENSE": [2, 4],
    "attempt": [1],
    "C123": [2],
    "main": [3, 1],
    "release": [4],
    "in memory": [2, 4, 3, 1],
    "main ATTEMPT": [1],
    "main dense": [],
    "  main   main ": [3, 1],
    "": [2, 4, 3, 1],
    "   ": [2, 4, 3, 1],
    "%": [1],
    "50%": [1],
    "_": [2],
    "e_v": [2],
    "/": [],
    "'; DROP TABLE karat_tags; --": [],
    "\0": [],
    "\udc80": [],
}


def test_words_are_looked_for_in_names_notes_tags_and_commits(filled):
    assert {search: found(filled, search=search) for search in WORDS} == WORDS


def test_words_of_other_languages_are_found_in_any_case(filled):
    assert found(filled, search="möhren") == [3]
    assert found(filled, search="MÖHREN") == [3]


def test_a_search_has_an_end(filled):
    assert found(filled, search="x " * 100) == []
    with pytest.raises(UsageError, match="the search has 1,000 characters; give at most 200"):
        filled.listed(search="x" * 1000)


def test_names_are_told_once_and_in_order(filled):
    names = filled.names()
    assert names.systems == ["Dense_v2", "bm25", "dense"]
    assert names.tags == ["Release-1", "main", "nightly"]
    assert names.measures == ["RR", "nDCG@5"]
    assert names.verdicts == ["fail", "pass"]
    assert list(asdict(names)) == ["systems", "tags", "measures", "verdicts"]


def test_systems_saved_together_are_found_together(store, demo):
    scores, report = demo()
    saved(store, 0)
    ids = store.save(scores, report)
    own = store.evaluation(ids[1])
    assert own.system == "dense"
    assert own.document()["report_id"] == own.report_id == 2
    assert [one.id for one in store.together(own.report_id)] == ids
    assert store.report(own.report_id) == report
    assert [one.id for one in store.together(1)] == [1]


def test_what_is_not_there_is_told_by_its_number(store):
    saved(store, 0)
    asked = [
        ("evaluation", store.evaluation),
        ("report", store.together),
        ("report", store.report),
        ("evaluation", lambda id: store.tag(id, ["x"])),
    ]
    for number in (-1, 0, 99, 10**30, -(10**30)):
        for what, ask in asked:
            with pytest.raises(NotStoredError, match=f"^no {what} {number} in "):
                ask(number)
        assert store.part(number, "head") is None


def test_parts_of_a_page_come_back_to_the_byte(store):
    rows = bytes(range(256)) * 5000
    saved(store, 0, parts={"head": b"{}", "rows": rows, "block-0": b""})
    saved(store, 1)
    assert store.part(1, "head") == b"{}"
    assert store.part(1, "rows") == rows
    assert store.part(1, "block-0") == b""
    assert store.part(1, "block-1") is None
    assert store.part(1, "\0") is None
    assert store.part(2, "head") is None


def test_parts_that_cannot_be_kept_are_refused_and_nothing_is_saved(store):
    saved(store, 0)
    with pytest.raises(UsageError, match="too long a name"):
        saved(store, 1, parts={"x" * 256: b""})
    assert store.listed().total == 1


def test_the_stamp_is_another_after_every_change_and_only_then(store, where):
    seen: list[str] = []

    def changed() -> bool:
        before = seen[-1:]
        seen.append(store.stamp())
        return before != seen[-1:]

    saved(store, 0)
    assert changed()
    assert not changed()
    store.listed()
    store.names()
    assert not changed()
    store.tag(1, ["main"], now=JANUARY)
    assert changed()
    store.tag(1, ["main"], now=JANUARY)
    assert changed()
    with Store.open(where) as other:
        own = other.add_label_set("first", [LabelItem("q", "a", "?", "!")])
        assert changed()
        # What raters say is no change of what pages of evaluations show.
        other.judge(own.id, 0, "Ana", 1)
        other.take_back(own.id, "Ana")
        with pytest.raises(UsageError):
            other.judge(own.id, 1, "Ana", 1)
    assert not changed()
    assert len(set(seen)) == 4


def test_a_page_is_a_handful_of_questions_over_a_connection_that_is_there(store):
    for number in range(30):
        saved(store, number, tags=["main"])
    store.listed()
    asked: list[str] = []
    opened: list[object] = []
    engine = store._database.readers
    event.listen(engine, "before_cursor_execute", lambda *told: asked.append(told[2]))
    event.listen(engine, "do_connect", lambda *told: opened.append(told))
    assert len(store.listed().evaluations) == 30
    assert opened == []
    # Begin, tables, version, total, evaluations, summaries, tags.
    assert len(asked) <= 7
    asked.clear()
    store.stamp()
    assert len(asked) <= 4


def test_more_evaluations_than_are_asked_for_at_once_come_back_whole(store, monkeypatch):
    monkeypatch.setattr("karat.store.history._IDS_AT_ONCE", 2)
    for number in range(5):
        saved(store, number, tags=[f"t{number}"])
    found = store.evaluations()[::-1]
    assert [one.tags for one in found] == [(f"t{number}",) for number in range(5)]
    assert all(list(one.summaries) == ["nDCG@5", "RR"] for one in found)
    assert [point.saved.id for point in store.trend("RR")] == [1, 2, 3, 4, 5]


def test_a_trend_has_no_point_where_the_measure_was_not_taken(store):
    saved(store, 0)
    scores, report = small()
    ndcg = [{"nDCG@5": scores[0].summaries["nDCG@5"]}]
    store.save(scores, report, summaries=ndcg, now=JANUARY + timedelta(days=1))
    saved(store, 2)
    assert [point.saved.id for point in store.trend("RR")] == [1, 3]


def test_what_was_read_once_cannot_change_what_is_read_next(store):
    saved(store, 0)
    store.evaluation(1).conventions["order"] = "chaos"
    store.evaluation(1).meta["x"] = 1
    assert store.evaluation(1).conventions["order"] == "rank"
    assert store.evaluation(1).meta == {}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE karat_evaluations SET about = '{' WHERE id = 1",
        "UPDATE karat_measures SET more = '[' WHERE evaluation_id = 1",
        "UPDATE karat_reports SET document = 'x' WHERE id = 1",
    ],
)
def test_a_row_that_cannot_be_read_is_told_in_one_line(store, damage):
    saved(store, 0)
    with store._database.writing() as connection:
        connection.exec_driver_sql(damage)
    with pytest.raises(InputError, match=r"is damaged; restore it from a copy$") as caught:
        (store.report if "reports" in damage else store.evaluation)(1)
    assert caught.value.where == store.name
