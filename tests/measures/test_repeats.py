"""The same item twice for one query: it keeps its place, earns nothing, and is counted."""

from __future__ import annotations

import itertools
import math
import random

import polars as pl
import pytest
import worlds
from short import Corpus, Gold, Queries, Run, table

import karat
from karat.measure.conventions import PROFILES, conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.registry import MEASURES
from karat.measure.score_builder import ScoreBuilder

TWICE = ["A", "A", "X", "B"]
TREC = {"trec", "trec10"}


def means(run, gold, measures, **options):
    return karat.evaluate(run, gold, measures, **options).means()


@pytest.mark.parametrize("profile", PROFILES)
def test_a_repeat_takes_a_place_outside_of_the_trec_profiles(profile):
    names = ["R@3", "P@3", "DistinctDocs@3", "Redundancy@3", "NumRet"]
    scores = karat.evaluate(
        Run({"q": TWICE}),
        Gold({"q": ["A", "B"]}),
        names,
        profile=profile,
        settings={"order": "rank"},
    )
    closed = (1.0, 2 / 3, 3.0, 0.0, 3.0)
    kept = (0.5, 1 / 3, 2.0, 1 / 3, 4.0)
    expected = closed if profile in TREC else kept
    assert list(scores.means().values()) == pytest.approx(expected)
    assert scores.counts.repeats == 1


def test_either_reading_can_be_set():
    run, gold = Run({"q": TWICE}), Gold({"q": ["A", "B"]})
    assert means(run, gold, "R@3", settings={"repeats": "drop"}) == {"R@3": 1.0}
    trec = {"repeats": "keep", "order": "rank"}
    assert means(run, gold, "R@3", profile="trec", settings=trec) == {"R@3": 0.5}
    with pytest.raises(karat.UsageError, match="repeats is 'twice'; it can be keep, drop"):
        means(run, gold, "R@3", settings={"repeats": "twice"})


def test_a_repeat_is_returned_and_neither_judged_nor_unjudged():
    # Of A, A, X, B the second A is open to nobody: one of four places is unjudged.
    found = means(
        Run({"q": TWICE}), Gold({"q": {"A": 1, "B": 1}}), "Judged@4, Hole@4, RBPres(p=0.5), SetP"
    )
    # RBPres: what is open is rank 3 (0.5^3) and all below rank 4 (0.5^4)
    assert found == {
        "Judged@4": 0.5,
        "Hole@4": 0.25,
        "RBPres(p=0.5)": pytest.approx(0.125 + 0.0625),
        "SetP": 0.5,
    }


def test_a_repeated_judged_item_counts_once_for_bpref():
    # N = 1 judged and not relevant, which stands once above B: 1 - min(1, 2) / min(1, 2) = 0 for B
    gold = Gold({"q": {"A": 1, "B": 1, "N": 0}})
    assert means(Run({"q": ["A", "N", "N", "B"]}), gold, "Bpref") == {"Bpref": 0.5}
    assert means(Run({"q": ["A", "A", "B", "N"]}), gold, "Bpref") == {"Bpref": 1.0}


def test_a_repeat_spends_tokens():
    corpus = Corpus({item: {"text": "one two three"} for item in "AXB"})
    run, gold = Run({"q": TWICE}), Gold({"q": ["A", "B"]})
    # three places of three words each fit into nine: A, A, X
    assert means(run, gold, "R@9tok", corpus=corpus) == {"R@9tok": 0.5}
    assert means(run, gold, "R@9tok", corpus=corpus, settings={"repeats": "drop"}) == {
        "R@9tok": 1.0
    }


def test_by_document_another_chunk_counts_for_p_and_a_repeated_chunk_does_not():
    gold = Gold({"q": ["d"]})
    run = Run({"q": ["d#1", "d#1", "d#2", "e#1"]})
    # correct: d#1 and d#2; d is found once
    found = means(run, gold, "P@4, R@4, nDCG@4", settings={"level": "doc"})
    assert found == {"P@4": 0.5, "R@4": 1.0, "nDCG@4": 1.0}


def test_a_repeated_chunk_finds_no_span():
    frame = {"query_id": ["q"], "item_id": ["d"], "grade": [1], "start": [0], "end": [10]}
    gold = karat.Gold.from_frame(pl.DataFrame(frame))
    run = Run({"q": ["e:0-10", "d:0-10", "d:0-10", "d:2-8"]})
    # d:0-10 at rank 2 and d:2-8 at rank 4 touch the span; the repeat is nothing
    found = means(run, gold, "P@4, RR, R@2, Judged@4", settings={"level": "span"})
    assert found == {"P@4": 0.5, "RR": 0.5, "R@2": 1.0, "Judged@4": 0.5}


def test_diversity_freshness_and_similarity_see_the_place():
    corpus = Corpus({item: {"text": item * 3, "version": "2026-01-01"} for item in "AXB"})
    queries = Queries({"q": {"text": "q", "as_of": "2026-02-01"}})
    columns = ("query_id", "item_id", "score", "similarity")
    run = table(("q", "A", 4.0, 0.9), ("q", "A", 3.0, 0.8), ("q", "B", 2.0, 0.4), columns=columns)
    found = means(
        run,
        Gold({"q": ["A", "B"]}),
        "Novelty@3, Fresh@3, Sim@3, Sim(of='all')@3",
        corpus=corpus,
        queries=queries,
    )
    # the second A is not new; it is not relevant, so Sim of relevant ones is (0.9 + 0.4) / 2
    assert found == {
        "Novelty@3": pytest.approx(2 / 3),
        "Fresh@3": 1.0,
        "Sim@3": pytest.approx(0.65),
        "Sim(of='all')@3": pytest.approx(0.7),
    }


# Measures of judging, and those that look at the items themselves, tell a repeat from a stranger.
SEEN = {"Judged", "Hole", "RBPres"} | {name for name, one in MEASURES.items() if one.needs}


@pytest.mark.parametrize("seed", range(12))
def test_to_every_measure_of_ranks_a_repeat_is_like_an_item_that_nobody_knows(seed):
    chance = random.Random(seed)
    names = [
        spelled
        for name, many in worlds.ALL.items()
        if name not in SEEN
        for spelled in many
        if "tok" not in spelled and "corpus" not in spelled and "items" not in spelled
    ]
    names = [name for name in names if not name.startswith(("latency", "cost", "EL_F1"))]
    items = [f"d{number}" for number in range(8)]
    gold = {q: {i: chance.choice([-1, 0, 1, 2, 3]) for i in items[:6]} for q in ("q1", "q2")}
    gold = {q: {**grades, "d0": 2} for q, grades in gold.items()}
    lists = {q: [chance.choice(items) for _ in range(12)] for q in gold}
    strange = {}
    for query, given in lists.items():
        fresh = (f"new{number}" for number in itertools.count())
        strange[query] = [
            item if item not in given[:at] else next(fresh) for at, item in enumerate(given)
        ]
    for settings in ({}, {"depth": 5}, {"rel": 2}, {"empty_gold": "zero"}):
        repeated, plain = (
            karat.evaluate(Run(run), Gold(gold), names, settings=settings)
            for run in (lists, strange)
        )
        assert repeated.table.equals(plain.table)


def test_the_range_over_tie_orders_puts_an_item_before_its_copies():
    run = table(("q", "A", 1.0), ("q", "A", 1.0), ("q", "X", 1.0), ("q", "Y", 1.0))
    summary = karat.evaluate(run, Gold({"q": ["A"]}), "RR").summaries["RR"]
    # at best A, ..., at worst X, Y, A, A
    assert summary.ties == (pytest.approx(1 / 3), 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_the_range_over_tie_orders_is_that_of_all_orders(seed):
    chance = random.Random(seed)
    items = [chance.choice("ABCDEF") for _ in range(6)]
    gold = {"q": dict.fromkeys(chance.sample("ABCDEF", 2), 1)}
    names = ["RR", "AP", "nDCG@3", "P@2", "R@4"]
    allowed = {"missing_ids": "allow"}
    run = table(*(("q", item, 1.0) for item in items))
    tied = karat.evaluate(run, Gold(gold), names, settings=allowed)
    orders = {f"o{at}": list(order) for at, order in enumerate(set(itertools.permutations(items)))}
    judged = Gold(dict.fromkeys(orders, gold["q"]))
    every = karat.evaluate(Run(orders), judged, names, settings=allowed)
    for name in names:
        values = every.values(name)
        low, high = tied.summaries[name].ties or (tied.means()[name],) * 2
        assert (low, high) == pytest.approx((values.min(), values.max())), name


def test_the_same_list_in_blocks_and_as_one_table_gives_the_same():
    lists = {f"q{at}": TWICE if at % 2 else ["A", "X"] for at in range(40)}
    gold = Gold({query: ["A", "B"] for query in lists})
    whole = karat.evaluate(Run(lists), gold, "R@3, Hole@3, RBPres")
    apart = [karat.evaluate(Run({q: one}), gold, "R@3, Hole@3, RBPres") for q, one in lists.items()]
    for name in ("R@3", "Hole@3", "RBPres"):
        own = [one.values(name)[at] for at, one in enumerate(apart)]
        assert own == whole.values(name).tolist()
    assert whole.trace.ranked.repeated(3).sum() == 20
    assert not math.isnan(whole.means()["R@3"])


@pytest.mark.parametrize("lists", [[["A"], ["A", "A"]], [["A", "A"], ["A"]], [["A"], ["B"]]])
def test_kept_lists_tell_repeats_the_same_way_whether_or_not_a_block_has_one(lists):
    gold = prepare(Gold({"q0": ["A"], "q1": ["A"]}), conventions_of("karat", {}))
    runs = [Run({f"q{at}": items}) for at, items in enumerate(lists)]
    table = ScoreBuilder(gold, parse_measures(["RR"]), keep=3)
    for run in runs:
        table.add(run)
    again = [place > 0 and items[0] == item for items in lists for place, item in enumerate(items)]
    rows = pl.concat(table.partial().lists)
    assert rows["repeat"].to_list() == again
