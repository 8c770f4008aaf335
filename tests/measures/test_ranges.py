"""How low and how high each query could be: against every labelling, and by hand."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import worlds
from brute_force import all_extremes
from hypothesis import given, settings
from hypothesis import strategies as st
from short import Gold, Queries, Run

import karat
from karat.measure.conventions import conventions_of
from karat.measure.evaluate_measure import why_unbounded
from karat.measure.names import parse_measures
from karat.measure.prepare import Prepared, prepare
from karat.measure.ranges import Listed, Range, listed, range_of
from karat.measure.registry import MEASURES
from karat.measure.score_builder import score

CUTS = ("@1", "@2", "@3", "@5", "@7", "@k")
GAINS = ("'exp'", "{1: 5, 2: 0.3, 3: 0.2}", "{1: 1, 2: 3, 3: 3}", "{1: 0}")
AREAS = ("All", "R", "WR", "F", "AP", "P", "RR", "DCG", "CG", "ERR", "RBP", "Hit", "nDCG")


def many(name: str, parameters: tuple[str, ...] = (), cuts: tuple[str, ...] = CUTS) -> list[str]:
    return [name + inside + cut for inside in ("", *parameters) for cut in cuts]


RELS = ("(rel=2)", "(rel=3)")
MAY = ("", *CUTS)
FEW = ("", "@2", "@k")
ALL = {
    "Hit": many("Hit", RELS),
    "All": many("All", RELS),
    "R": many("R", RELS),
    "WR": many("WR"),
    "P": many("P", RELS),
    "F": many("F", ("(beta=2)", "(beta=0.5, rel=2)")),
    "RR": many("RR", RELS, FEW),
    "AP": many("AP", ("(norm='k')", "(norm='k', rel=2)", "(rel=3)"), MAY),
    "GMAP": ["GMAP", "GMAP(rel=2)"],
    "DCG": many("DCG", tuple(f"(gain={gain})" for gain in GAINS), FEW),
    "CG": many("CG", tuple(f"(gain={gain})" for gain in GAINS), FEW),
    "nDCG": many("nDCG", tuple(f"(gain={gain})" for gain in GAINS), MAY),
    "ERR": many("ERR", ("(max=3)",), FEW),
    "RBP": many("RBP", ("(p=0.5)", "(rel=2)", "(gain='linear')"), FEW),
    "FPR": ["FPR@1", "FPR(rel=2)@1"],
    "AUC": [f"AUC(of={of!r})@{k}" for of in AREAS for k in (2, 4, 7)] + ["AUC(rel=2)@3"],
    "SetP": many("SetP", RELS, ("",)),
    "SetR": many("SetR", RELS, ("",)),
    "SetF": many("SetF", ("(beta=2)", "(beta=0.5, rel=2)"), ("",)),
    "NumRel": ["NumRel", "NumRel(rel=2)"],
    "NumRelRet": many("NumRelRet", RELS, FEW),
}
# So many unjudged items leave a few hundred labellings to try out.
MOST = {1: 7, 2: 5, 3: 4}
MAPPED = "{1: 5, 2: 0.4}"
SETTINGS = (
    *({}, {"empty_gold": "zero"}, {"rel": 2}, {"missing": "skip"}, {"depth": 4}),
    *({"gain": "exp"}, {"gain": MAPPED}),
)


class Case:
    """Two queries with some judged items; one may come back empty or not at all."""

    def __init__(self, draw) -> None:
        top = draw(st.integers(1, 3))
        fractions = [0.5, 1.5][: top - 1] if draw(st.booleans()) else []
        grades = st.sampled_from([-1, *range(top + 1), *fractions])
        most = MOST[min(3, top + len(fractions))]
        self.gold, self.run = {}, {}
        for query, size in (("q", 7), ("p", 3)):
            items = [f"d{number}" for number in range(size + 2)]
            ranked = draw(st.permutations(items))[: draw(st.integers(0, size))]
            judged = draw(st.sets(st.sampled_from(items)))
            judged |= set([item for item in ranked if item not in judged][most:])
            self.gold[query] = {item: draw(grades) for item in sorted(judged)}
            pooled = [i for i in ranked if self.gold[query].get(i, -1) < 0]
            self.gold[query] |= dict.fromkeys(pooled[most:], 0)
            if ranked or draw(st.booleans()):
                self.run[query] = ranked
        self.run = self.run or {"q": []}
        self.own_k = {"q": draw(st.integers(1, 6)), "p": 2}
        self.settings = {"missing_ids": "allow", **draw(st.sampled_from(SETTINGS))}
        self.profile = draw(st.sampled_from(["karat", "trec"]))
        if self.profile == "trec":
            self.settings = {**self.settings, "order": "rank"}
        elif draw(st.booleans()):
            self.run = {query: with_repeats(draw, items) for query, items in self.run.items()}

    def __repr__(self) -> str:
        return str(vars(self))


def with_repeats(draw, items: list[str]) -> list[str]:
    """The list with some items again, each below its first place."""
    items = list(items)
    for _ in range(draw(st.integers(1, 2)) if items else 0):
        at = draw(st.integers(1, len(items)))
        items.insert(at, draw(st.sampled_from(items[:at])))
    return items


cases = st.composite(Case)()


def ranges(measures, run, gold, *, own_k=None, profile="karat", settings=None):
    """The range of each measure, and what it is a range of."""
    conventions = conventions_of(profile, {"missing_ids": "allow"} | (settings or {}))
    asked = own_k and Queries({query: {"text": query, "k": k} for query, k in own_k.items()})
    prepared = prepare(Gold(gold), conventions, queries=asked)
    one = system(measures, run, prepared)
    return {
        text: range_of(measure, one, prepared)
        for text, measure in zip(measures, one.scores.measures, strict=True)
    }, one


def system(measures: list[str], run, prepared: Prepared) -> Listed:
    chosen = parse_measures(measures, conventions=prepared.conventions)
    return listed(score(Run(run), prepared, chosen, keep=1 << 31))


def ends(measure: str, run, gold, **options) -> tuple[float, float]:
    found, _ = ranges([measure], {"q": run}, {"q": gold}, **options)
    return float(found[measure].low[0]), float(found[measure].high[0])


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=8)
@given(case=cases)
def test_ranges_are_the_extremes_over_all_labellings(name, case):
    own = f"rel={case.settings.get('rel')}", f"gain={case.settings.get('gain')!r}"
    measures = [text for text in ALL[name] if not any(usual in text for usual in own)]
    options = {"own_k": case.own_k, "profile": case.profile, "settings": case.settings}
    found, one = ranges(measures, case.run, case.gold, **options)
    cut = {query: items[: case.settings.get("depth")] for query, items in case.run.items()}
    every = all_extremes(measures, cut, case.gold, **options)
    for text in measures:
        for row, query in enumerate(one.scores.table["query_id"]):
            check(found[text], row, every[text][query], text)


def check(found: Range, row: int, expected: tuple[float, float], text: str) -> None:
    low, high = found.low[row], found.high[row]
    if math.isnan(expected[0]) or found.exact:
        assert (low, high) == pytest.approx(expected, abs=1e-12, nan_ok=True), text
    else:
        assert text.startswith("AUC(of='nDCG')")
        assert low <= expected[0] + 1e-12
        assert high >= expected[1] - 1e-12


def test_recall_falls_with_what_lies_beyond_the_cutoff():
    # Of two gold items one is found. With y relevant it is one of three, with x two of three.
    assert ends("R@2", ["a", "x", "y"], {"a": 1, "z": 1}) == pytest.approx((1 / 3, 2 / 3))


def test_ndcg_falls_as_the_ideal_grows():
    # DCG is 1 / log2 3 = 0.6309; the ideal is 1, with y relevant 1 + 0.6309; with x both are.
    assert ends("nDCG@2", ["x", "a", "y"], {"a": 1}) == pytest.approx((0.630930 / 1.630930, 1))


def test_ndcg_may_be_highest_with_a_grade_in_between():
    # x = 0: 2 / 2.6309; x = 1: 2.5 / 3.1309 = 0.7985; x = 2: 3 / 3.7619 = 0.7975.
    gold = {"a": 2, "b": 0, "z": 1}
    assert ends("nDCG@3", ["a", "b", "x"], gold) == pytest.approx((2 / 2.630930, 2.5 / 3.130930))


def test_average_precision_may_be_lowest_with_some_labels_only():
    # Beyond the cut-off y halves AP; x within it would bring as much as it takes.
    assert ends("AP@2", ["a", "x", "y"], {"a": 1}) == pytest.approx((1 / 2, 1))


def test_an_area_is_not_always_highest_with_all_items_relevant():
    # R@1 and R@2 weigh the same: now 1; with x the gold is two, and R@1 only half: 0.75.
    assert ends("AUC@2", ["a", "x"], {"a": 1}) == pytest.approx((0.75, 1))


def test_queries_with_everything_judged_keep_their_value_to_the_bit():
    measures = [text for texts in ALL.values() for text in texts]
    run = {"q": ["a", "b", "c"], "p": ["x", "a"]}
    found, one = ranges(measures, run, {"q": {"a": 1, "b": 0, "c": 3}, "p": {"a": 2}})
    for text, measure in zip(measures, one.scores.measures, strict=True):
        now = one.values(str(measure))[0]
        assert found[text].low[0] == found[text].high[0] == now


def test_a_query_without_gold_has_no_range_unless_it_counts_as_zero():
    apart, _ = ranges(["R@1"], {"q": ["a"], "p": ["b"]}, {"q": {"z": 1}, "p": {"c": 0}})
    assert np.isnan(apart["R@1"].low[1])
    assert np.isnan(apart["R@1"].high[1])
    zero = {"settings": {"empty_gold": "zero"}}
    assert ends("R@1", ["b"], {"c": 0}, **zero) == (0, 1)


def test_no_label_reaches_a_threshold_above_the_scale():
    zero = {"settings": {"empty_gold": "zero"}}
    for measure in ("AP(rel=4)", "R(rel=4)@2", "Hit(rel=4)@1"):
        assert ends(measure, ["x", "a", "y"], {"a": 3}, **zero) == (0, 0)


def test_longer_lists_of_relevant_items_and_others():
    # Where the number of relevant items is searched, short lists leave too little to choose.
    chance = random.Random(7)
    items = [f"d{number}" for number in range(20)]
    run, gold = {}, {}
    for query in map(str, range(12)):
        run[query] = chance.sample(items, 13)
        known = [*chance.sample(run[query], 5), *items]
        judged = [item for item in known if item not in run[query]] + known[:5]
        gold[query] = {item: chance.choice([0, 1]) for item in judged} | {known[0]: 1}
    measures = ["AP", "AP@6", "AP(norm='k')@6", "nDCG", "nDCG@6"]
    measures += ["AUC@6", "AUC(of='AP')@10", "AUC(of='F')@10", "AUC(of='nDCG')@10"]
    found, one = ranges(measures, run, gold)
    every = all_extremes(measures, run, gold)
    for text in measures:
        assert found[text].exact
        for row, query in enumerate(one.scores.table["query_id"]):
            check(found[text], row, every[text][query], text)


def long_lists(seed: int) -> tuple[dict[str, list[str]], dict[str, dict[str, float]]]:
    chance = random.Random(seed)
    items = [f"d{number}" for number in range(90)]
    run = {f"q{n}": chance.sample(items, chance.choice([5, 40, 80])) for n in range(6)}
    gold = {
        query: {item: chance.choice([0, 0, 1, 2, 0.7]) for item in chance.sample(items, 20)}
        for query in run
    }
    return run, gold


def test_no_labelling_of_long_lists_leaves_its_range():
    measures = [text for texts in ALL.values() for text in texts[:12]]
    run, gold = long_lists(1)
    found, one = ranges(measures, run, gold)
    chance = random.Random(1)
    names = [str(measure) for measure in one.scores.measures]
    for share in (0.02, 0.3, 0.8):
        more = {
            query: {
                item: chance.choice([0.7, 1, 2, 2]) if chance.random() < share else 0
                for item in items
            }
            | gold[query]
            for query, items in run.items()
        }
        scores = karat.evaluate(Run(run), Gold(more), measures)
        for text, name in zip(measures, names, strict=True):
            values = scores.values(name)
            known = ~np.isnan(found[text].low)
            assert (values[known] >= found[text].low[known] - 1e-12).all(), text
            assert (values[known] <= found[text].high[known] + 1e-12).all(), text


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_has_a_range_or_a_reason_why_not(name):
    prepared = prepare(Gold({"q": {"a": 3}}), conventions_of("karat", None))
    for text in worlds.ALL[name]:
        why = why_unbounded(karat.parse_measure(text), prepared)
        in_all = name in ALL and "tok" not in text
        advice = f"{name} has a range: add it to ALL in this file (or take unjudged= out)"
        assert (why is None) == in_all, f"{text}: {why or advice}"


@pytest.mark.parametrize(
    ("measure", "why"),
    [
        ("Judged@5", "Judged@5 counts which items are judged"),
        ("AUC(of='Judged')@5", "AUC(of='Judged')@5 counts which items are judged"),
        ("cost.tokens", "cost.tokens does not depend on which items are relevant"),
        ("R@2000tok", "R@2000tok cuts lists by tokens"),
        ("Bpref", "Bpref is made for incomplete judgments"),
        ("IPrec@0.3", "IPrec@0.3 looks at the rank that the number of relevant items sets"),
        ("Coverage@5", "Coverage@5 is one number of the whole set"),
        ("Coverage(of='corpus')@5", "is one number of the whole set"),
        ("ERR(max=0.5)", "an unjudged item could be of grade 1, above the max=0.5"),
    ],
)
def test_reasons_are_sentences_that_name_the_measure(measure, why):
    prepared = prepare(Gold({"q": {"a": 0.5}}), conventions_of("karat", None))
    assert why in (why_unbounded(karat.parse_measure(measure), prepared) or "")


def test_what_has_no_range_is_refused_with_the_reason():
    prepared = prepare(Gold({"q": {"a": 1}}), conventions_of("karat", {"level": "doc"}))
    one = system(["R@5"], {"q": ["a#1", "b#1"]}, prepared)
    with pytest.raises(karat.UsageError, match="these are of level doc"):
        range_of(one.scores.measures[0], one, prepared)
