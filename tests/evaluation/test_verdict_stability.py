"""Verdicts under bounds: what holds must hold under every labelling, tried one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import karat
from karat.data.tables import Gold, Run
from karat.errors import UsageError

# So few that all labellings can be tried, so many that a test can find a difference.
QUERIES = [f"q{at}" for at in range(7)]
SETTINGS = {"boot": 200, "permutations": 1000}


def made(seed: int) -> tuple[dict[str, list[str]], dict[str, list[str]], dict[str, dict[str, int]]]:
    """Two systems, one ahead, and gold that leaves pairs open: one, or 6 where seeds are even."""
    rng = np.random.default_rng(seed)
    old, new, gold = {}, {}, {}
    left = 1 if seed % 2 else 6
    for query in QUERIES:
        others = [["b", "c", "d"][at] for at in rng.permutation(3)]
        old[query] = [*others[:1], "a", *others[1:]]
        new[query] = ["a", *others]
        gold[query] = {"a": 1, "b": 0, "c": 0, "d": 0}
        for item in ("b", "c"):
            if left and rng.random() < 0.6:
                del gold[query][item]
                left -= 1
    return old, new, gold


def labellings(gold):
    """The gold under every judgment of what it leaves open."""
    open_ = [(query, item) for query in QUERIES for item in "bcd" if item not in gold[query]]
    for grades in product((0, 1), repeat=len(open_)):
        whole = {query: dict(own) for query, own in gold.items()}
        for (query, item), grade in zip(open_, grades, strict=True):
            whole[query][item] = grade
        yield whole


def compared(old, new, gold, measure, **options):
    runs = [Run.from_dict(old, name="old"), Run.from_dict(new, name="new")]
    found = karat.compare(runs, Gold.from_dict(gold), [measure], settings=SETTINGS, **options)
    return found.of("new")


@pytest.mark.parametrize("measure", ["RR", "nDCG@2"])
@pytest.mark.parametrize("seed", range(4))
def test_a_verdict_holds_if_and_only_if_no_labelling_changes_it(measure, seed):
    old, new, gold = made(seed)
    row = compared(old, new, gold, measure, bounds=True)
    tried = [compared(old, new, one, measure) for one in labellings(gold)]
    deltas = [one.delta for one in tried]
    assert row.bounds["delta"] == [pytest.approx(min(deltas)), pytest.approx(max(deltas))]
    verdicts = {one.verdict for one in tried}
    assert (row.bounds["verdict"] == "better") == (verdicts == {"better"})
    assert (row.bounds["verdict"] == "worse") == (verdicts == {"worse"})


def test_the_cases_above_have_verdicts_of_both_kinds():
    held = {compared(*made(seed), "RR", bounds=True).bounds["verdict"] for seed in range(4)}
    assert {"better", "unclear"} <= held


def test_strict_bounds_decide():
    old, new, gold = next(
        case
        for case in map(made, range(20))
        if compared(*case, "RR").verdict == "better"
        and compared(*case, "RR", bounds=True).bounds["verdict"] == "unclear"
    )
    runs = [Run.from_dict(old, name="old"), Run.from_dict(new, name="new")]
    strict = karat.compare(
        runs, Gold.from_dict(gold), ["RR"], settings=SETTINGS, strict_bounds=True
    )
    assert strict.verdict == "unclear"
    assert "could change that" in strict.decisions[0].because


def test_labels_of_one_system_count_in_the_correction_of_another():
    names = [f"q{at}" for at in range(7)]
    gold = Gold.from_dict({query: {"a": 1, "b": 0} for query in names})
    old = Run.from_dict({query: ["b", "a"] for query in names}, name="old")
    # Ahead in six of seven queries: p = 2/64, which must not be doubled.
    new = {query: ["a", "b"] for query in names[:6]} | {names[6]: ["b", "a"]}
    # Clearly worse if u is wrong everywhere, clearly better if it is right, else neither.
    other = Run.from_dict({query: ["u", "b", "a"] for query in names}, name="other")
    runs = [old, Run.from_dict(new, name="new"), other]
    found = karat.compare(runs, gold, ["RR"], bounds=True).of("new")
    assert (found.p, found.p_adjusted) == (2 / 64, 2 / 64)
    assert found.verdict == "better"
    assert found.bounds["delta"] == [found.delta, found.delta]
    assert found.bounds["verdict"] == "unclear"
    half = {query: {"a": 1, "b": 0, "u": at % 2} for at, query in enumerate(names)}
    mixed = karat.compare(runs, Gold.from_dict(half), ["RR"]).of("new")
    assert mixed.verdict == "unclear"


def test_bounds_ask_for_runs_and_for_pairs_with_the_baseline():
    old, new, gold = made(0)
    runs = [Run.from_dict(old, name="old"), Run.from_dict(new, name="new")]
    scores = [karat.evaluate(run, Gold.from_dict(gold), ["RR"]) for run in runs]
    with pytest.raises(UsageError, match="give the runs"):
        karat.compare(scores, bounds=True)
    with pytest.raises(UsageError, match="pairs all"):
        karat.compare(runs, Gold.from_dict(gold), ["RR"], bounds=True, pairs="all")


def entering(label: int | None):
    """One system ahead in ten queries; in thirty others, without relevant gold, the other is."""
    scored, open_ = [f"s{at}" for at in range(10)], [f"o{at}" for at in range(30)]
    old = {query: ["x", "a"] for query in scored} | {query: ["u", "v"] for query in open_}
    new = {query: ["a", "x"] for query in scored} | {query: ["v", "u"] for query in open_}
    gold = {query: {"a": 1, "x": 0} for query in scored}
    own = {"v": 0} if label is None else {"v": 0, "u": label}
    return old, new, gold | {query: dict(own) for query in open_}


def test_nothing_holds_while_a_judgment_could_bring_queries_into_the_mean():
    before = compared(*entering(None), "RR", bounds=True)
    assert (before.verdict, before.n) == ("better", 10)
    assert before.bounds["delta"] == [before.delta, before.delta]
    assert (before.bounds["verdict"], before.bounds["entering"]) == ("unclear", 30)
    # Rightly so: by these judgments it is worse.
    after = compared(*entering(1), "RR", bounds=True)
    assert (after.verdict, after.n, after.bounds["entering"]) == ("worse", 40, 0)
    # Judged as not relevant, they stay out for good.
    closed = compared(*entering(0), "RR", bounds=True)
    assert (closed.bounds["verdict"], closed.bounds["entering"]) == ("better", 0)
    strict = compared(*entering(None), "RR", strict_bounds=True)
    assert strict.verdict == "unclear"
    assert "30 queries without relevant gold would count" in strict.because
