"""What every store does, whatever database it is in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import text

import karat
from karat.data.revision import Revision
from karat.errors import InputError, KaratError, UsageError
from karat.store import NoHistoryError, Store

from .conftest import small

JANUARY = datetime(2026, 1, 1, 12, tzinfo=UTC)


def day(number: int) -> datetime:
    return JANUARY + timedelta(days=number)


def test_what_is_saved_is_listed_with_all_there_is_to_know(store, demo):
    scores, report = demo()
    report = {**report, "verdict": "pass"}
    ids = store.save(
        scores, report, tags=["v2", "main"], revision=Revision("abc123", True), note="a note"
    )
    assert len(ids) == 2
    dense, bm25 = store.evaluations()
    assert [bm25.id, dense.id] == ids
    assert (bm25.system, dense.system) == ("bm25", "dense")
    assert bm25.tags == ("main", "v2")
    assert bm25.revision == Revision("abc123", dirty=True)
    assert (bm25.note, bm25.verdict, bm25.version) == ("a note", "pass", karat.__version__)
    assert bm25.summaries == scores[0].summaries
    assert list(bm25.summaries) == [str(measure) for measure in scores[0].measures]
    assert bm25.conventions["order"] == "score"
    assert dense.conventions["order"] == "rank"
    assert dense.meta["index_version"] == "2025-07-01"
    inputs = report["inputs"]
    found = {"gold": bm25.gold, "queries": bm25.queries, "corpus": bm25.corpus}
    assert {kind: one.sha256 for kind, one in found.items()} == {
        kind: inputs[kind]["sha256"] for kind in found
    }
    assert [one.run.sha256 for one in (bm25, dense)] == [one["sha256"] for one in inputs["runs"]]


def test_summaries_that_are_there_are_not_made_again(store):
    scores, report = small()
    told = {name: replace(one, mean=0.125) for name, one in scores[0].summaries.items()}
    store.save(scores, report, summaries=[told])
    assert store.evaluations()[0].summaries == told


def test_the_clock_is_utc_and_aware_of_it(store):
    scores, report = small()
    abroad = datetime(2026, 1, 1, 2, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5)))
    store.save(scores, report, now=abroad)
    saved_at = store.evaluations()[0].saved_at
    assert saved_at == abroad
    assert saved_at.tzinfo is UTC
    before = datetime.now(UTC)
    store.save(scores, report)
    assert before <= store.evaluations()[0].saved_at <= datetime.now(UTC)
    with pytest.raises(UsageError, match="no time zone"):
        store.save(scores, report, now=datetime(2026, 1, 1))


def test_evaluations_are_found_by_system_tag_and_gold(store):
    store.save(*small(), tags=["main"], now=day(0))
    store.save(*small(name="dense"), now=day(2))
    store.save(*small(sha="abcd" * 16), tags=["main", "new"], now=day(1))
    assert [one.id for one in store.evaluations()] == [2, 3, 1]
    assert [one.id for one in store.evaluations(limit=2)] == [2, 3]
    assert [one.id for one in store.evaluations(system="bm25")] == [3, 1]
    assert [one.id for one in store.evaluations(tag="main")] == [3, 1]
    assert [one.id for one in store.evaluations(tag="new", system="bm25")] == [3]
    assert [one.id for one in store.evaluations(gold="ABCDabcd")] == [3]
    assert store.evaluations(gold="%") == []
    assert store.evaluations(system="nobody") == []


def test_a_baseline_is_found_by_id_or_by_tag(store):
    store.save(*small(), tags=["main"], now=day(0))
    store.save(*small("x"), tags=["main"], now=day(1))
    store.save(*small("x", name="dense"), now=day(2))
    assert store.baseline("1").evaluation.id == 1
    assert store.baseline("main").evaluation.id == 2
    assert store.baseline("main").scores.summaries == small("x")[0][0].summaries
    assert store.baseline("main").report == small("x")[1]
    with pytest.raises(UsageError, match=r"^unknown tag 'mian'; did you mean main\?$"):
        store.baseline("mian")
    with pytest.raises(UsageError, match=r"^no evaluation of 'dense' has the tag 'main'$"):
        store.baseline("main", system="dense")
    for id in ("4", "99999999999999999999", "9" * 5000):
        with pytest.raises(UsageError, match=r"^no evaluation \d+ in .*karat history lists them$"):
            store.baseline(id)


def test_a_tag_stands_for_what_got_it_last(store):
    store.save(*small(), tags=["main"], now=day(0))
    store.save(*small("x"), tags=["main"], now=day(1))
    store.tag(1, ["main", "good"], now=day(2))
    assert store.baseline("main").evaluation.id == 1
    assert store.baseline("good").evaluation.tags == ("good", "main")
    store.tag(2, ["main"], now=day(3))
    assert store.baseline("main").evaluation.id == 2
    with pytest.raises(UsageError, match=r"^no evaluation 3 in"):
        store.tag(3, ["main"])


def test_systems_saved_together_are_told_apart_by_name(store, demo):
    store.save(*demo(), tags=["main"])
    with pytest.raises(UsageError, match=r"take one: main:bm25, main:dense$"):
        store.baseline("main")
    assert store.baseline("main:dense").evaluation.system == "dense"
    assert store.baseline("main", system="bm25").evaluation.system == "bm25"


def test_the_first_tag_is_missed_in_other_words(store):
    store.save(*small())
    with pytest.raises(UsageError, match=r"^unknown tag 'main'; known: none yet$"):
        store.baseline("main")


@pytest.mark.parametrize("tag", ["", "a b", "a,b", "a:b", "12", "a\nb", "x" * 101, "a\x00b", None])
def test_a_tag_that_could_be_misread_is_refused(store, tag):
    with pytest.raises(UsageError, match=r"^tag "):
        store.save(*small(), tags=[tag])


def test_a_trend_goes_from_old_to_new_system_by_system(store):
    store.save(*small("a"), now=day(3), revision="abc")
    store.save(*small("x"), now=day(1))
    store.save(*small("a", name="Zeta"), now=day(0))
    zeta, old, new = store.trend("RR")
    assert [point.saved.id for point in (zeta, old, new)] == [3, 2, 1]
    assert (zeta.change, old.change, new.change) == (
        None,
        None,
        new.summary.mean - old.summary.mean,
    )
    assert (old.summary.mean, new.summary.mean) == (0.375, 0.625)
    assert new.summary.ci == small("a")[0][0].summaries["RR"].ci
    assert (new.summary.n, new.saved.revision, new.saved.gold.sha256) == (
        4,
        Revision("abc"),
        "f" * 64,
    )
    assert [point.saved.id for point in store.trend("mrr", system="Zeta")] == [3]
    assert store.trend("RR", tag="main") == []


def test_a_trend_breaks_where_the_gold_or_the_conventions_change(store, demo):
    store.save(*small(), now=day(0))
    store.save(*small(sha="a" * 64), now=day(1))
    store.save(*small(sha="b" * 64, grade=2), now=day(2))
    scores, report = small(sha="b" * 64, grade=2)
    stricter = replace(scores[0], conventions=replace(scores[0].conventions, rel=2.0))
    store.save([stricter], report, now=day(3))
    points = store.trend("RR")
    # Another file with the same judgments is no other gold.
    assert [point.breaks for point in points] == [(), (), ("gold",), ("conventions",)]
    assert [point.change for point in points] == [None, 0.0, None, None]


def test_a_trend_of_what_was_never_measured_is_refused(store):
    store.save(*small())
    with pytest.raises(UsageError, match="unknown measure in the store 'nDCG@10'; did you mean"):
        store.trend("nDCG@10")
    with pytest.raises(UsageError, match=r"unknown measure 'ndgc' in 'ndgc@5'"):
        store.trend("ndgc@5")


def test_systems_are_saved_all_or_none(store, demo):
    scores, report = demo()
    store.save(scores, report)
    damaged = {name: replace(one, n=None) for name, one in scores[1].summaries.items()}
    with pytest.raises(KaratError):
        store.save(scores, report, summaries=[scores[0].summaries, damaged])
    assert [one.id for one in store.evaluations()] == [2, 1]


def test_nothing_at_all_is_not_saved(store):
    with pytest.raises(UsageError, match="nothing to save"):
        store.save([], {})


def test_reading_what_is_not_there_says_how_to_begin(store, where, tmp_path):
    for read in (
        store.evaluations,
        lambda: store.baseline("main"),
        lambda: store.trend("RR"),
        lambda: store.tag(1, ["main"]),
        store.listed,
        store.names,
        store.stamp,
        lambda: store.evaluation(1),
        lambda: store.together(1),
        lambda: store.report(1),
        lambda: store.part(1, "head"),
        store.label_sets,
        lambda: store.label_set(1),
        lambda: store.label_items(1),
        lambda: store.judge(1, 0, "Ana", 1),
        lambda: store.take_back(1, "Ana"),
        lambda: store.judgments(1),
    ):
        with pytest.raises(NoHistoryError, match="no history here; begin one with karat eval"):
            read()
    store.check()
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_a_newer_karat_is_left_alone(store):
    store.save(*small())
    with store._database.writers.begin() as connection:
        connection.execute(text("UPDATE karat_store SET version = 7"))
    for use in (
        store.evaluations,
        store.check,
        lambda: store.save(*small()),
        lambda: store.tag(1, ["x"]),
        store.listed,
        store.stamp,
        lambda: store.judge(1, 0, "Ana", 1),
    ):
        with pytest.raises(InputError, match=r"newer karat \(store version 7, this one knows 3\)"):
            use()


def test_any_text_can_be_saved(store):
    scores, report = small(name="a\0b\udc80 ü 🥕")
    meta = {"when": datetime(2026, 1, 1, tzinfo=UTC), "nan": float("nan"), "text": "\0\udc80"}
    store.save([replace(scores[0], meta=meta)], report, note="\0")
    found = store.baseline("1")
    assert found.evaluation.system == "a\N{REPLACEMENT CHARACTER}b? ü 🥕"
    assert found.scores.meta["nan"] == "nan"
    with pytest.raises(UsageError, match="too long a name; at most 255"):
        store.save([replace(scores[0], system="x" * 256)], report)


def test_two_hands_on_one_store_see_the_same(store, where):
    store.save(*small())
    with Store.open(where) as other:
        other.save(*small())
        assert [one.id for one in store.evaluations()] == [2, 1]
