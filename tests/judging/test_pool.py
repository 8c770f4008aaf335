"""Pools against a plain union, blind to systems, the same for the same seed."""

from __future__ import annotations

import json
from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import InputError, MissingInputError, UsageError
from karat.formats.readers import read_run
from karat.label.pool import pool, top_hits
from karat.measure.conventions import Conventions, conventions_of

ITEMS = [f"d{at}" for at in range(6)]
QUERIES = ["q1", "q2", "q3"]
# Items with their scores; few scores, so that many tie.
LISTS = st.dictionaries(st.sampled_from(ITEMS), st.sampled_from([1.0, 2.0, 3.0]), max_size=6)
RUNS = st.lists(
    st.dictionaries(st.sampled_from(QUERIES), LISTS, min_size=1), min_size=1, max_size=3
)
JUDGED = st.dictionaries(
    st.sampled_from(QUERIES),
    st.dictionaries(st.sampled_from(ITEMS), st.sampled_from([-2, 0, 1, 2])),
)


def pairs_of(pooled) -> list[tuple[str, str]]:
    return pooled.pairs.select("query_id", "item_id").rows()


def named(runs) -> dict[str, Run]:
    return {f"run{at}": Run.from_dict(lists) for at, lists in enumerate(runs)}


def top(scores: dict[str, float], depth: int) -> list[str]:
    """Best score first, equal ones by id."""
    return sorted(scores, key=lambda item: (-scores[item], item))[:depth]


@settings(deadline=None)
@given(RUNS, JUDGED, st.integers(1, 4), st.booleans())
def test_a_pool_is_the_union_of_the_tops_less_what_is_judged(runs, judged, depth, include):
    union = {
        (query, item)
        for lists in runs
        for query, scores in lists.items()
        for item in top(scores, depth)
    }
    # A grade below 0 is of a pair that was pooled and that nobody judged.
    known = {
        (query, item) for query, own in judged.items() for item, grade in own.items() if grade >= 0
    }
    pooled = pool(named(runs), depth=depth, gold=[Gold.from_dict(judged)], include_judged=include)
    assert len(pairs_of(pooled)) == len(set(pairs_of(pooled)))
    assert set(pairs_of(pooled)) == (union if include else union - known)
    assert (pooled.body["union"], pooled.body["judged"]) == (len(union), len(union & known))
    for one, lists in zip(pooled.body["systems"], runs, strict=True):
        own = {(query, item) for query, scores in lists.items() for item in top(scores, depth)}
        others = {
            (query, item)
            for other in runs
            if other is not lists
            for query, scores in other.items()
            for item in top(scores, depth)
        }
        left = own if include else own - known
        assert (one["items"], one["judged"]) == (len(own), len(own & known))
        assert (one["in_pool"], one["alone"]) == (len(left), len(left - others))


@settings(deadline=None)
@given(RUNS, st.integers(0, 3))
def test_the_pairs_of_a_query_follow_each_other(runs, seed):
    pooled = pool(named(runs), depth=6, profile=Conventions(seed=seed))
    seen = [query for query, _ in pairs_of(pooled)]
    starts = [at for at, query in enumerate(seen) if at == 0 or seen[at - 1] != query]
    assert len(starts) == len(set(seen))


@settings(deadline=None)
@given(RUNS, st.randoms())
def test_the_order_does_not_depend_on_the_order_of_the_runs(runs, chance):
    shuffled = list(named(runs).items())
    chance.shuffle(shuffled)
    other = {f"other{name}": run for name, run in shuffled}
    assert pairs_of(pool(named(runs), depth=3)) == pairs_of(pool(other, depth=3))
    sampled = [pool(some, depth=3, sample=4) for some in (named(runs), other)]
    assert pairs_of(sampled[0]) == pairs_of(sampled[1])


def long_runs() -> dict[str, Run]:
    lists = {f"q{at:02}": [f"d{item:02}" for item in range(20)] for at in range(30)}
    return {"one": Run.from_dict(lists)}


def test_the_order_tells_nothing_of_the_rank():
    """Over many seeds the first item of a run stands anywhere in its query."""
    places = Counter()
    for seed in range(20):
        pairs = pairs_of(pool(long_runs(), depth=20, profile=Conventions(seed=seed)))
        for query in {query for query, _ in pairs}:
            own = [item for name, item in pairs if name == query]
            places[own.index("d00")] += 1
    assert sum(places.values()) == 600
    # 600 places over 20: expected 30 each.
    assert chisquare([places[at] for at in range(20)]).pvalue > 0.001


def test_the_seed_decides_the_order_and_nothing_else():
    once, again, other = (
        pairs_of(pool(long_runs(), depth=5, profile=Conventions(seed=seed))) for seed in (1, 1, 2)
    )
    assert once == again != other
    assert sorted(once) == sorted(other)
    assert [query for query, _ in once] != [query for query, _ in other]


def test_a_sample_is_as_likely_to_hold_any_pair():
    """200 samples of 10 from 40 pairs: each pair is drawn 50 times, give or take."""
    lists = {f"q{at}": [f"d{item}" for item in range(1 + 2 * at)] for at in range(6)}
    run = {"one": Run.from_dict({**lists, "q6": ["a", "b", "c", "d"]})}
    drawn = Counter()
    for seed in range(200):
        pooled = pool(run, depth=20, sample=10, profile=Conventions(seed=seed))
        assert (pooled.body["to_judge"], pooled.pairs.height) == (40, 10)
        drawn.update(pairs_of(pooled))
    assert len(drawn) == 40
    assert chisquare(list(drawn.values())).pvalue > 0.001


def test_a_sample_larger_than_the_pool_is_all_of_it():
    pooled = pool({"one": Run.from_dict({"q": ["a", "b"]})}, depth=5, sample=200)
    assert sorted(pairs_of(pooled)) == [("q", "a"), ("q", "b")]
    assert pooled.to_dict()["pairs"] == 2


def test_a_sample_leaves_out_what_is_judged_unless_it_is_asked_for():
    run = {"one": Run.from_dict({"q": ["a", "b", "c"]})}
    gold = [Gold.from_dict({"q": {"a": 1, "b": 0}})]
    assert pairs_of(pool(run, depth=3, gold=gold, sample=3)) == [("q", "c")]
    every = pool(run, depth=3, gold=gold, sample=3, include_judged=True)
    assert sorted(pairs_of(every)) == [("q", "a"), ("q", "b"), ("q", "c")]


WORLD = {
    "queries": Queries.from_dict(
        {"q1": {"text": "red door", "as_of": "2025-06-01", "language": "en"}, "q2": "blue gate"}
    ),
    "corpus": Corpus.from_dict(
        {
            "a#1": {"text": "the red door", "title": "Doors", "version": 3, "source": "dense"},
            "b#1": {"text": '["not", "a", "list"]'},
        }
    ),
}


def test_no_key_tells_the_system_or_the_rank():
    hits = pl.DataFrame(
        {
            "query_id": ["q1", "q1"],
            "item_id": ["a#1", "b#1"],
            "rank": [1, 2],
            "score": [0.9, 0.1],
            "version": ["secret", "secret"],
            "source": ["dense", "dense"],
        }
    )
    run = Run.from_frame(hits, meta={"system": "secret"}, name="secret")
    pooled = pool({"secret": run}, depth=2, **WORLD)
    records = sorted(pooled.records(), key=lambda record: record["item_id"])
    assert records == [
        {
            "query_id": "q1",
            "item_id": "a#1",
            "query": "red door",
            "text": "the red door",
            "doc_id": "a",
            "title": "Doors",
            "version": "3",
            "as_of": "2025-06-01",
        },
        {
            "query_id": "q1",
            "item_id": "b#1",
            "query": "red door",
            "text": '["not", "a", "list"]',
            "doc_id": "b",
            "as_of": "2025-06-01",
        },
    ]
    assert "secret" not in json.dumps(records)


def test_a_pool_without_texts_says_which_file_is_lacking():
    run = {"one": Run.from_dict({"q1": ["a#1", "b#1", "lost"], "q2": ["b#1"]})}
    queries, corpus = WORLD["queries"], WORLD["corpus"]
    with pytest.raises(MissingInputError, match=r"2 of 2 queries .*'q1'.* --queries"):
        pool(run, depth=3, corpus=corpus).check_texts()
    with pytest.raises(MissingInputError, match=r"3 of 3 items .*'a#1'.* --corpus"):
        pool(run, depth=3, queries=queries).check_texts()
    with pytest.raises(MissingInputError, match=r"1 of 3 items .*'lost'.*--without-texts"):
        pool(run, depth=3, queries=queries, corpus=corpus).check_texts()
    pool(run, depth=2, queries=queries, corpus=corpus).check_texts()


def test_an_item_of_white_space_has_no_text():
    blank = Corpus.from_dict({"a": " \n"})
    pooled = pool({"one": Run.from_dict({"q1": ["a"]})}, depth=1, corpus=blank)
    assert pooled.to_dict()["items_without_text"] == 1
    assert "text" not in pooled.records()[0]


def test_failed_calls_and_missing_queries_are_counted():
    calls = pl.DataFrame({"query_id": ["q1", "q2", "q3"], "error": [None, "timed out", None]})
    hits = pl.DataFrame({"query_id": ["q1", "q2", "q9"], "item_id": ["a", "b", "c"], "rank": 1})
    run = Run.from_frame(hits, calls=calls)
    queries = Queries.from_dict(dict.fromkeys(("q1", "q2", "q3", "q4"), "?"))
    pooled = pool({"one": run}, depth=5, queries=queries)
    # What a failed call returned is not pooled; q3 answered with nothing; q9 is not asked.
    assert pairs_of(pooled) == [("q1", "a")]
    assert pooled.body["systems"][0] == {
        "name": "one",
        "items": 1,
        "judged": 0,
        "judged_share": 0.0,
        "in_pool": 1,
        "alone": 1,
        "answered": 2,
        "missing": 1,
        "failed_calls": 1,
        "not_asked": 1,
        "repeats": 0,
        "order_conflicts": 0,
    }


def test_without_queries_all_that_runs_or_gold_have_are_asked():
    runs = named([{"q1": {"a": 1.0}}, {"q2": {"a": 1.0}}])
    pooled = pool(runs, depth=1, gold=[Gold.from_dict({"q3": {"a": 1}})])
    assert pooled.body["queries"] == 3
    assert [one["missing"] for one in pooled.body["systems"]] == [2, 2]


def test_a_run_that_returns_nothing_has_no_share():
    empty = Run.from_dict({"q1": [], "q2": []})
    pooled = pool({"one": empty, "two": Run.from_dict({"q1": ["a"]})}, depth=1)
    assert [one["judged_share"] for one in pooled.body["systems"]] == [None, 0.0]


def test_a_repeat_takes_a_place_unless_repeats_are_dropped():
    hits = pl.DataFrame({"query_id": "q", "item_id": ["a", "a", "b", "c"], "rank": [1, 2, 3, 4]})
    pooled = pool({"one": Run.from_frame(hits)}, depth=2)
    assert sorted(pairs_of(pooled)) == [("q", "a")]
    assert pooled.body["systems"][0]["repeats"] == 1
    dropped = conventions_of("karat", {"repeats": "drop"})
    pooled = pool({"one": Run.from_frame(hits)}, depth=2, profile=dropped)
    assert sorted(pairs_of(pooled)) == [("q", "a"), ("q", "b")]


def test_each_run_is_taken_in_its_own_order(tmp_path):
    scored = tmp_path / "scored.trec"
    scored.write_text("q Q0 a 1 0.1 x\nq Q0 b 2 0.9 x\n")
    logged = tmp_path / "logged.jsonl"
    topk = [{"chunk_id": "c", "rank": 1, "score": 0.1}, {"chunk_id": "d", "rank": 2, "score": 9}]
    logged.write_text(json.dumps({"query_id": "q", "system": "x", "topk": topk}) + "\n")
    runs = {"scored": read_run(scored), "logged": read_run(logged)}
    assert sorted(pairs_of(pool(runs, depth=1))) == [("q", "b"), ("q", "c")]
    by_rank = conventions_of("karat", {"order": "rank"})
    pooled = pool(runs, depth=1, profile=by_rank)
    assert sorted(pairs_of(pooled)) == [("q", "a"), ("q", "c")]


def test_queries_that_are_spread_over_a_file_are_read_whole(tmp_path):
    from karat.formats.readers import scan_run

    path = tmp_path / "run.trec"
    path.write_text("".join(f"q{at % 2} Q0 d{at} {at} {9 - at} x\n" for at in range(6)))
    hits, _ = top_hits(scan_run(path), ["q0", "q1"], depth=2, conventions=Conventions())
    assert sorted(hits.rows()) == [
        ("q0", "d0", 1),
        ("q0", "d2", 2),
        ("q1", "d1", 1),
        ("q1", "d3", 2),
    ]


def test_a_run_of_other_queries_is_refused():
    run = Run.from_dict({"z1": ["a"]})
    with pytest.raises(InputError, match=r"'z1'.*'q1'"):
        pool({"one": run}, depth=1, queries=Queries.from_dict({"q1": "?"}))


def test_spans_judge_no_item():
    spans = pl.DataFrame({"query_id": "q", "item_id": "a", "grade": 1, "start": 0, "end": 5})
    with pytest.raises(InputError, match="character spans"):
        pool({"one": Run.from_dict({"q": ["a"]})}, depth=1, gold=[Gold.from_frame(spans)])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"depth": 0}, "depth is 0"),
        ({"depth": 1, "sample": 0}, "sample is 0"),
        ({"depth": 1, "profile": Conventions(level="doc")}, "level=doc"),
    ],
)
def test_what_makes_no_pool_is_refused(wrong, told):
    with pytest.raises(UsageError, match=told):
        pool({"one": Run.from_dict({"q": ["a"]})}, **wrong)
    with pytest.raises(UsageError, match="at least one"):
        pool({}, depth=1)
