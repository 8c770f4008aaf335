"""Thresholds for queries without an answer, against scikit-learn, scipy, hand and simulation."""

from __future__ import annotations

import json
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from returned import Queries, Run, logged, staged_of
from scipy.stats import binomtest, norm

import karat
from karat.analysis.diagnose.no_answer import (
    MOST_POINTS,
    EvidenceScores,
    ScoreThreshold,
    _drawn,
    best_threshold,
    no_answer,
    no_answer_measures,
    redraw,
)
from karat.errors import MissingInputError, UsageError

# Four of five find their gold, at these scores; what has no answer gets these best scores.
FOUND = {"a1": 0.9, "a2": 0.8, "a3": 0.7, "a4": 0.4}
NOT_THERE = {"n1": 0.6, "n2": 0.5, "n3": 0.3, "n4": None}


def planted(found=FOUND, without=NOT_THERE, *, lost=("a5",), k=10, keep=0.95, **settings):
    lists = {query: {"gold": score, "low": score - 0.2} for query, score in found.items()}
    lists |= {query: {"other": 0.95} for query in lost}
    lists |= {q: {} if s is None else {"wrong": s, "bad": s - 0.1} for q, s in without.items()}
    asked = {query: {"text": query, "no_answer": query in without} for query in lists}
    gold = {query: ["gold"] for query in (*found, *lost)}
    staged = staged_of(
        Run(lists), gold, no_answer_measures(k, keep=keep), queries=Queries(asked), **settings
    )
    return no_answer(staged, k=k, keep=keep)


def evidence_of(wanted, unwanted):
    units = np.arange(len(wanted) + len(unwanted))
    return EvidenceScores(
        np.array(wanted, float), np.array(unwanted, float), *np.split(units, [len(wanted)])
    )


def test_a_worked_example():
    """From 0.7 three of four keep their gold and nothing false is left; from 0.4 four and two.

    The gap below 0.7 ends at 0.6, and its middle is the threshold.
    """
    found = planted()
    best = found["best"]
    assert found["counts"] == {"no_answer": 4, "unanswered": 0, "answerable": 5, "found": 4}
    assert best["threshold"] == pytest.approx(0.65)
    assert (best["above"], best["up_to"]) == (0.6, 0.7)
    assert (best["kept"]["mean"], best["false_evidence"]["mean"]) == (0.75, 0.0)
    assert best["answered"]["mean"] == 3 / 5
    assert best["youden"] == 0.75
    assert found["without"]["kept"]["mean"] == 1.0
    # n4 got nothing at all, which is right
    assert found["without"]["false_evidence"]["mean"] == 3 / 4
    # 0.9, 0.8 and 0.7 lie above all; 0.4 above 0.3 and nothing
    assert found["area"] == (4 + 4 + 4 + 2) / 16


def test_shares_have_the_interval_of_clopper_and_pearson():
    found = planted()
    for name, successes, n in (("kept", 3, 4), ("answered", 3, 5), ("false_evidence", 0, 4)):
        expected = binomtest(successes, n).proportion_ci(method="exact")
        # Its weights are random ones.
        assert found["best"][name]["ci"] == pytest.approx([expected.low, expected.high], abs=0.02)


def test_of_equally_good_gaps_the_lowest_is_chosen():
    """At 9 one of two and nothing; at 5 both and one of two: J is 0.5 at both."""
    assert best_threshold(evidence_of([9, 5], [7, 1])) == ScoreThreshold(
        threshold=3, above=1, up_to=5
    )


def test_where_nothing_lies_below_the_gap_its_upper_end_is_the_threshold():
    """What came back empty has no score, and what failed none that is known."""
    assert best_threshold(evidence_of([5, 5], [-np.inf, np.inf])) == ScoreThreshold(5, None, 5)


def test_a_gap_without_a_number_inside_is_cut_at_its_upper_end():
    high = float(np.nextafter(1.0, 2.0))
    cut = best_threshold(evidence_of([high], [1.0]))
    assert cut == ScoreThreshold(threshold=high, above=1.0, up_to=high)
    largest = float(np.finfo(np.float64).max)
    assert best_threshold(evidence_of([largest], [-largest])).threshold == 0.0


scores = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12)


@given(scores, scores)
def test_the_choice_is_that_of_brute_force_over_all_scores(wanted, unwanted):
    def youden(s):
        kept = Fraction(sum(one >= s for one in wanted), len(wanted))
        return kept - Fraction(sum(one >= s for one in unwanted), len(unwanted))

    candidates = sorted({*wanted, *unwanted})
    highest = max(map(youden, candidates))
    cut = best_threshold(evidence_of(wanted, unwanted))
    assert cut.up_to == min(s for s in candidates if youden(s) == highest)
    lower = [s for s in candidates if s < cut.up_to]
    assert cut.above == (lower[-1] if lower else None)
    assert cut.threshold == ((lower[-1] + cut.up_to) / 2 if lower else cut.up_to)
    # the middle does what the upper end of its gap does
    assert youden(cut.threshold) == highest


@given(scores, scores)
def test_rates_and_area_are_those_of_scikit_learn(wanted, unwanted):
    from sklearn.metrics import roc_auc_score, roc_curve

    evidence = evidence_of(wanted, unwanted)
    truth, values = [1] * len(wanted) + [0] * len(unwanted), [*wanted, *unwanted]
    false, kept, at = roc_curve(truth, values, drop_intermediate=False)
    chosen = best_threshold(evidence).up_to
    assert chosen == at[np.flatnonzero(np.isclose(kept - false, (kept - false).max()))[-1]]
    for threshold, one, other in zip(at, kept, false, strict=True):
        masks = evidence.kept(threshold)
        assert (masks[0].mean(), masks[1].mean()) == pytest.approx((one, other))
    assert evidence.area == pytest.approx(roc_auc_score(truth, values))


@st.composite
def worlds(draw):
    """Some queries with gold, some without an answer; lists that miss, fail or are empty."""
    lists, gold, asked = [], {}, {}
    for n in range(draw(st.integers(2, 8))):
        query, without = f"q{n}", draw(st.booleans())
        asked[query] = {"text": query, "no_answer": without}
        gold[query] = [] if without else ["g1", "g2"]
        fate = draw(st.sampled_from(["fine", "fine", "fine", "missing", "failed", "empty"]))
        if fate == "missing":
            continue
        items = draw(st.permutations(["g1", "g2", "x", "y"]))[: draw(st.integers(1, 4))]
        hits = [{"chunk_id": i, "score": float(draw(st.integers(0, 5)))} for i in items]
        record = {"query_id": query, "topk": [] if fate == "empty" else hits}
        lists.append(record | ({"error": "timeout", "topk": []} if fate == "failed" else {}))
    return lists, gold, asked


@settings(max_examples=40)
@given(worlds(), st.sampled_from([0.5, 0.8, 0.95, 1.0]), st.sampled_from(["zero", "skip"]))
def test_keeping_a_share_of_the_gold_is_what_the_measure_does(world, keep, missing):
    records, gold, asked = world
    from karat.formats.runlog import run_of_records

    name = no_answer_measures(2, keep=keep)[0]
    try:
        run = run_of_records(records, name="log")
        staged = staged_of(run, gold, [name], queries=Queries(asked), missing=missing)
        found = no_answer(staged, k=2, keep=keep)
    except (MissingInputError, karat.InputError):
        return
    expected = next(iter(staged.final.summaries.values()))
    told = found["keep"]["false_evidence"]
    assert told["mean"] == expected.mean
    assert told["n"] == expected.n
    assert told["ci"] == (None if expected.ci is None else pytest.approx(list(expected.ci)))
    assert found["keep"]["gold"] >= keep


def test_a_query_without_an_answer_that_failed_is_false_evidence_at_every_threshold():
    run = logged({"a": [{"chunk_id": "g", "score": 5.0}], "n": [{"chunk_id": "x", "score": 1.0}]})
    asked = {"a": "a", "n": {"text": "n", "no_answer": True}, "m": {"text": "", "no_answer": True}}
    staged = staged_of(run, {"a": ["g"]}, no_answer_measures(), queries=Queries(asked))
    found = no_answer(staged)
    assert found["counts"]["unanswered"] == 1
    assert found["best"]["false_evidence"]["mean"] == 0.5
    assert found["sweep"][-1]["false_evidence"] == 0.5
    assert any("missing from the run" in note for note in found["notes"])


@pytest.mark.parametrize(("missing", "answerable"), [("zero", 2), ("skip", 1)])
def test_an_answerable_query_without_a_result_is_not_answered_unless_left_out(missing, answerable):
    asked = {"a": "a", "gone": "gone", "n": {"text": "n", "no_answer": True}}
    gold, run = {"a": ["g"], "gone": ["g"]}, Run({"a": {"g": 1.0}, "n": {"x": 0.5}})
    measures = no_answer_measures()
    staged = staged_of(run, gold, measures, queries=Queries(asked), missing=missing)
    found = no_answer(staged)
    assert found["counts"]["answerable"] == answerable
    assert found["best"]["answered"]["mean"] == 1 / answerable


def test_only_the_top_k_counts():
    """Below the first place the gold of a4 does not count."""
    lists = {"a": {"x": 0.9, "gold": 0.8}, "b": {"gold": 0.7}, "n": {"x": 0.2}}
    asked = {q: {"text": q, "no_answer": q == "n"} for q in lists}
    measures = no_answer_measures(1)
    gold = {"a": ["gold"], "b": ["gold"]}
    found = no_answer(staged_of(Run(lists), gold, measures, queries=Queries(asked)), k=1)
    assert found["counts"]["found"] == 1
    assert (found["best"]["above"], found["best"]["up_to"]) == (0.2, 0.7)


def test_the_sweep_holds_every_score_while_they_are_few():
    """And the best threshold between two of them; that of the measure is the lowest of gold."""
    found = planted()
    expected = [0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9]
    assert [point["threshold"] for point in found["sweep"]] == pytest.approx(expected)
    assert [point["kept"] for point in found["sweep"]] == [1, 1, 0.75, 0.75, 0.75, 0.75, 0.5, 0.25]
    false = [0.75, 0.5, 0.5, 0.25, 0, 0, 0, 0]
    assert [point["false_evidence"] for point in found["sweep"]] == false


def test_a_long_sweep_is_thinned_and_the_choice_stays_exact():
    rng = np.random.default_rng(3)
    found = planted(
        {f"a{n}": score for n, score in enumerate(rng.normal(1, 1, 150))},
        {f"n{n}": score for n, score in enumerate(rng.normal(0, 1, 150))},
        boot=100,
    )
    thresholds = [point["threshold"] for point in found["sweep"]]
    assert MOST_POINTS <= len(thresholds) <= MOST_POINTS + 2
    assert thresholds == sorted(thresholds)
    assert found["best"]["threshold"] in thresholds
    wanted = [np.random.default_rng(3).normal(1, 1, 150)]
    assert found["best"]["up_to"] in wanted[0]
    assert max(
        point["kept"] - point["false_evidence"] for point in found["sweep"]
    ) == pytest.approx(found["best"]["youden"])


def test_every_resample_chooses_anew_and_is_tried_on_what_it_left_out(monkeypatch):
    wanted, unwanted = [5.0, 3.0, 2.0, 2.0], [4.0, 1.0, 0.0]
    draws = np.random.default_rng(1).multinomial(4, [0.25] * 4, 30)
    others = np.random.default_rng(2).multinomial(3, [1 / 3] * 3, 30)
    counts = np.concatenate((draws, others), axis=1)
    # The package holds the function under the name of the module.
    module = sys.modules["karat.analysis.diagnose.no_answer"]
    monkeypatch.setattr(module, "_drawn", lambda *_: iter([counts[:10], counts[10:]]))
    thresholds, new_wanted, new_unwanted = redraw(
        evidence_of(wanted, unwanted), resamples=30, seed=0
    )
    for at, row in enumerate(counts.tolist()):
        values, weights = [*wanted, *unwanted], row
        inside = [v for v, w in zip(values[:4], weights[:4], strict=True) for _ in range(w)]
        other = [v for v, w in zip(values[4:], weights[4:], strict=True) for _ in range(w)]
        best = max(
            sorted({*inside, *other}),
            key=lambda s: (
                Fraction(sum(v >= s for v in inside), 4) - Fraction(sum(v >= s for v in other), 3)
            ),
        )
        lower = [v for v in (*inside, *other) if v < best]
        best = (max(lower) + best) / 2 if lower else best
        assert thresholds[at] == best
        left = [v >= best for v, w in zip(wanted, weights[:4], strict=True) if not w]
        assert new_wanted[at] == pytest.approx(np.mean(left) if left else np.nan, nan_ok=True)
        left = [v >= best for v, w in zip(unwanted, weights[4:], strict=True) if not w]
        assert new_unwanted[at] == pytest.approx(np.mean(left) if left else np.nan, nan_ok=True)


def test_resamples_draw_each_kind_as_often_as_the_sample_has_it():
    evidence = EvidenceScores(np.arange(3.0), np.arange(2.0), np.array([0, 0, 1]), np.array([1, 2]))
    for counts in _drawn(evidence, 50, 0):
        # 0 brings wanted values only, 1 both, 2 unwanted ones only: one of each is all there is
        assert (counts == 1).all()


def test_intervals_hold_the_truth_and_the_correction_takes_the_optimism_away():
    """Scores from two normal distributions two apart: the best threshold is half way."""
    rng = np.random.default_rng(11)
    held, optimism, left = [], [], []
    for _ in range(150):
        evidence = evidence_of(rng.normal(2, 1, 80), rng.normal(0, 1, 50))
        thresholds, new_wanted, new_unwanted = redraw(evidence, resamples=300, seed=1)
        low, high = np.quantile(thresholds, [0.025, 0.975])
        held.append(low <= 1 <= high)
        chosen = best_threshold(evidence).threshold
        kept, false = (mask.mean() for mask in evidence.kept(chosen))
        truth = norm.sf(chosen - 2) - norm.sf(chosen)
        optimism.append(kept - false - truth)
        left.append(np.nanmean(new_wanted) - np.nanmean(new_unwanted) - truth)
    # 95 %, less about three standard errors of 150 simulations
    assert np.mean(held) > 0.9
    assert np.mean(optimism) > 0.03
    assert abs(np.mean(left)) < np.mean(optimism) / 3


@pytest.mark.parametrize("apart", [1.5, 3.5, 5.0])
def test_the_interval_of_the_threshold_holds_the_best_one_however_far_the_evidence_lie_apart(apart):
    """Thirty of each from normal distributions; half way between them J is highest."""
    rng = np.random.default_rng(5)
    held = []
    for _ in range(40):
        found, without = rng.normal(apart, 1, 30), rng.normal(0, 1, 30)
        best = planted(
            {f"a{n}": score for n, score in enumerate(found)},
            {f"n{n}": score for n, score in enumerate(without)},
            boot=200,
        )["best"]
        low, high = best["ci"]
        assert low <= best["above"] < best["threshold"] < best["up_to"] <= high
        held.append(low <= apart / 2 <= high)
    # 95 %, less three standard errors of 40 simulations
    assert np.mean(held) > 0.84


def test_the_middle_of_a_wide_gap_does_better_on_new_queries_than_its_end():
    rng = np.random.default_rng(6)
    middle, end = [], []
    for _ in range(100):
        cut = best_threshold(evidence_of(rng.normal(5, 1, 30), rng.normal(0, 1, 30)))
        for told, at in ((middle, cut.threshold), (end, cut.up_to)):
            told.append(norm.sf(at - 5) - norm.sf(at))
    most = norm.sf(-2.5) - norm.sf(2.5)
    assert most - np.mean(middle) < (most - np.mean(end)) / 2


def test_the_interval_of_the_threshold_covers_the_whole_gap():
    """Alike scores of each kind: every resample has the same gap, and cuts in its middle."""
    found = planted(dict.fromkeys("abcd", 8.0), dict.fromkeys("wxyz", 2.0), lost=())
    assert (found["best"]["threshold"], found["best"]["ci"]) == (5.0, [2.0, 8.0])


def test_conversations_are_drawn_as_a_whole():
    """Ten queries, each asked five times in one conversation, tell as much as the ten."""
    rng = np.random.default_rng(2)
    scores = {f"a{n}": s for n, s in enumerate(rng.normal(1, 1, 10))}
    scores |= {f"n{n}": s for n, s in enumerate(rng.normal(0, 1, 10))}

    def best(copies):
        lists, asked, gold = {}, {}, {}
        for query, score in scores.items():
            for copy in range(copies):
                name, without = f"{query}.{copy}", query[0] == "n"
                lists[name] = {"x" if without else "g": score}
                asked[name] = {"text": "", "no_answer": without, "group": query}
                gold |= {} if without else {name: ["g"]}
        staged = staged_of(
            Run(lists),
            gold,
            no_answer_measures(),
            queries=Queries(asked),
            short_lists="complete",
        )
        return no_answer(staged)["best"]

    once, often = best(1), best(5)
    assert once["ci"] == often["ci"]
    for name in ("kept", "false_evidence"):
        assert once[name]["corrected"] == pytest.approx(often[name]["corrected"])
    assert np.ptp(once["ci"]) > 0


def test_one_query_of_a_kind_has_no_interval():
    found = planted(without={"n1": 0.1})
    assert found["best"]["ci"] is None
    assert found["best"]["false_evidence"]["ci"] is None
    assert found["best"]["false_evidence"]["corrected"] is None


def test_scores_that_were_made_equal_query_by_query_are_said_to_be():
    found = planted(dict.fromkeys("abc", 1.0), dict.fromkeys("xyz", 1.0), lost=())
    assert any("normalised query by query" in note for note in found["notes"])
    assert not any("normalised" in note for note in planted()["notes"])


def test_distances_are_said_to_be():
    lists = {
        q: [{"chunk_id": "g", "score": 0.1}, {"chunk_id": "x", "score": 0.5}] for q in ("a", "b")
    }
    lists["n"] = [{"chunk_id": "y", "score": 0.4}, {"chunk_id": "x", "score": 0.7}]
    asked = {q: {"text": q, "no_answer": q == "n"} for q in lists}
    gold = {"a": ["g"], "b": ["g"]}
    staged = staged_of(logged(lists), gold, no_answer_measures(), queries=Queries(asked))
    assert any("as distances do" in note for note in no_answer(staged)["notes"])


def test_what_is_missing_is_named():
    lists = {"a": {"g": 1.0}, "n": {"x": 0.5}}
    gold, asked = {"a": ["g"]}, {"a": "a", "n": {"text": "n", "no_answer": True}}
    measures = no_answer_measures()
    with pytest.raises(MissingInputError, match="marked no_answer: give --queries"):
        no_answer(staged_of(Run(lists), gold, measures))
    ranks_only = Run({query: list(items) for query, items in lists.items()})
    with pytest.raises(MissingInputError, match="needs scores"):
        no_answer(staged_of(ranks_only, gold, measures, queries=Queries(asked)))
    with pytest.raises(MissingInputError, match="no answerable query has gold in its top 10"):
        no_answer(staged_of(Run(lists), {"a": ["z"]}, measures, queries=Queries(asked)))
    staged = staged_of(Run(lists), gold, ["RR"], queries=Queries(asked))
    with pytest.raises(UsageError, match="FalseEvidence@10; score the run by it"):
        no_answer(staged)


def test_the_same_seed_gives_the_same_document():
    rng = np.random.default_rng(0)
    world = [
        {f"a{n}": s for n, s in enumerate(rng.normal(1, 1, 30))},
        {f"n{n}": s for n, s in enumerate(rng.normal(0, 1, 30))},
    ]
    one, again, other = (planted(*world, seed=seed).to_dict() for seed in (0, 0, 1))
    assert json.dumps(one, allow_nan=False) == json.dumps(again)
    assert one["best"]["threshold"] == other["best"]["threshold"]
    assert one["best"]["kept"]["corrected"] != other["best"]["kept"]["corrected"]
