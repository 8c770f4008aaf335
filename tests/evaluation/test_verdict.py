"""One function decides: the primary measure alone gives the verdict, all else is a caution."""

from __future__ import annotations

import pytest
from compared import gold_of, run_of

from karat.data.tables import Gold, Run
from karat.errors import UsageError
from karat.evaluation.api import compare
from karat.evaluation.verdict import Comparison, Rule, decide, judge_row
from karat.measure.conventions import PROFILES
from karat.measure.names import parse_measure


def row(measure="nDCG@5", **figures):
    """A row of 100 queries whose baseline is 0.5; by default nothing changed."""
    known = {
        "segment": None,
        "primary": measure == "nDCG@5",
        "better": "higher",
        "n": 100,
        "baseline_mean": 0.5,
        "system_mean": 0.5,
        "delta": 0.0,
        "ci": (-0.05, 0.05),
        "ci_same": (-0.04, 0.04),
        "p": 1.0,
        "p_adjusted": 1.0,
        "margin": 0.01,
    }
    return Comparison("old", "new", measure, **{**known, **figures})


UP = {"delta": 0.1, "ci": (0.05, 0.15), "ci_same": (0.06, 0.14), "p": 0.001, "p_adjusted": 0.001}
DOWN = {
    "delta": -0.1,
    "ci": (-0.15, -0.05),
    "ci_same": (-0.14, -0.06),
    "p": 0.001,
    "p_adjusted": 0.001,
}


def decided(*rows, **rule):
    own = Rule(**rule)
    return decide([judge_row(one, own, alpha=0.05, identical=False) for one in rows])


def test_another_measure_beyond_the_margin_is_a_caution_and_not_the_verdict():
    found = decided(row(**UP), row("DistinctDocs@5", **DOWN))
    assert (found.verdict, found.measure, found.regression) == ("better", "nDCG@5", False)
    (caution,) = found.cautions
    assert (caution.measure, caution.segment, caution.delta) == ("DistinctDocs@5", None, -0.1)
    assert "DistinctDocs@5 fell by 0.10" in caution.because


def test_a_caution_is_a_regression_only_where_no_measure_may_regress():
    rows = row(**UP), row("DistinctDocs@5", **DOWN)
    found = decided(*rows, no_regression="all")
    assert (found.verdict, found.regression) == ("better", True)
    assert [one.regression for one in found.cautions] == [True]
    assert not decided(*rows, no_regression="primary").regression


@pytest.mark.parametrize(
    ("figures", "caution"),
    [
        # the interval reaches into the margin of 0.01
        ({"delta": -0.05, "ci": (-0.09, -0.005), "p": 0.03}, False),
        ({"delta": -0.05, "ci": (-0.09, -0.01), "p": 0.03}, False),
        ({"delta": -0.05, "ci": (-0.09, -0.011), "p": 0.03}, True),
        # where less is better, more is a loss
        ({"better": "lower", "delta": 0.05, "ci": (0.02, 0.09), "p": 0.01}, True),
        ({"better": "lower", "delta": -0.05, "ci": (-0.09, -0.02), "p": 0.01}, False),
        ({"better": "none", "delta": -0.05, "ci": (-0.09, -0.02), "p": 0.01}, False),
        ({"delta": -0.05, "ci": None, "p": 0.01}, False),
    ],
)
def test_a_caution_is_an_interval_wholly_below_the_margin(figures, caution):
    found = decided(row(**UP), row("P@5", **{"p_adjusted": 1.0, **figures}))
    assert bool(found.cautions) == caution


def test_worse_on_the_primary_measure_is_a_regression_even_within_the_margin():
    slight = {"delta": -0.004, "ci": (-0.007, -0.001), "ci_same": (-0.006, -0.002)}
    found = decided(row(**slight, p=0.01, p_adjusted=0.01), row("P@5", **UP))
    assert (found.verdict, found.regression, found.cautions) == ("worse", True, ())


def test_what_only_the_correction_leaves_open_is_unclear_and_no_regression():
    found = decided(row(**{**DOWN, "p": 0.03, "p_adjusted": 0.06, "tests": 2}))
    assert (found.verdict, found.regression, found.cautions) == ("unclear", False, ())
    assert "after correction for 2 tests" in found.because


def test_a_segment_that_is_worse_after_correction_is_a_caution():
    here = {"segment": {"language": "pt"}, "n": 20}
    found = decided(
        row(**UP),
        row(**{**DOWN, **here}),
        row(**{**DOWN, **here, "segment": {"language": "es"}, "p_adjusted": 0.06}),
        row("P@5", **{**DOWN, **here}),
    )
    assert (found.verdict, found.regression) == ("better", False)
    assert [dict(one.segment) for one in found.cautions] == [{"language": "pt"}]
    assert "language pt" in found.cautions[0].because
    assert not decided(row(**UP), row(**{**DOWN, **here}), no_regression="all").regression


def test_the_point_rule_takes_the_mean_itself():
    unsure = {"delta": -0.02, "ci": (-0.06, 0.02), "ci_same": (-0.05, 0.01), "p": 0.4}
    unsure["p_adjusted"] = 0.4
    assert decided(row(**unsure)).verdict == "unclear"
    found = decided(row(**unsure), margin_on="mean")
    assert (found.verdict, found.regression) == ("worse", True)
    found = decided(row(**UP), row("P@5", **unsure), margin_on="mean")
    assert (found.verdict, found.regression, len(found.cautions)) == ("better", False, 1)
    found = decided(row(**UP), row("P@5", **unsure), margin_on="mean", no_regression="all")
    assert found.regression
    within = {**unsure, "delta": -0.01}
    assert decided(row(**within), margin_on="mean").verdict == "unclear"


def test_a_decision_is_plain_data_with_its_cautions():
    told = decided(row(**UP), row("P@5", **DOWN)).to_dict()
    assert set(told) == {
        *("baseline", "system", "measure", "verdict", "regression", "because", "bounds"),
        "cautions",
    }
    (caution,) = told["cautions"]
    assert caution["measure"] == "P@5"
    assert caution["ci"] == [-0.15, -0.05]
    assert {"segment", "delta", "p", "p_adjusted", "n", "because", "regression"} < set(caution)


def test_the_words_of_a_rule_are_checked():
    with pytest.raises(UsageError, match="no_regression"):
        Rule(no_regression="some")


PRIMARY = {
    "karat": "nDCG@10",
    "trec": "AP",
    "trec10": "AP",
    "story": "RR",
    "memory": "Hit@1",
    "minimal": "Hit@k",
}


def test_every_profile_declares_a_primary_measure_that_it_reports():
    for profile in PROFILES.values():
        own_conventions = profile.conventions
        own = [str(parse_measure(name, conventions=own_conventions)) for name in profile.measures]
        assert str(parse_measure(profile.primary, conventions=own_conventions)) in own, profile.name
    assert {name: PROFILES[name].primary for name in PRIMARY} == PRIMARY
    assert PROFILES["rag"].primary.startswith("nDCG")
    assert PROFILES["rag"].primary.endswith("@5")
    assert PROFILES["ab"].primary.startswith("nDCG")
    assert PROFILES["ab"].primary.endswith("@k")
    strict = [name for name, one in PROFILES.items() if one.no_regression == "all"]
    assert strict == ["memory"]


OLD, NEW = [1, 2, 3, 4] * 5, [1, 1, 3, 4] * 5


def runs():
    return [run_of(OLD, "old"), run_of(NEW, "new")]


@pytest.mark.parametrize("profile", list(PROFILES))
def test_the_profile_chooses_the_measure_that_decides(profile):
    found = compare(runs(), gold_of(20), profile=profile, settings={"order": "rank"})
    conventions = PROFILES[profile].conventions
    wanted = str(parse_measure(PROFILES[profile].primary, conventions=conventions))
    assert found.rule.primary == found.decisions[0].measure == wanted
    assert (found.primary.source, found.primary.note) == ("profile", None)
    assert found.rule.no_regression == PROFILES[profile].no_regression


def test_without_the_profiles_measure_the_first_named_decides_and_says_so():
    found = compare(runs(), gold_of(20), ["NumRet", "RR", "R@5"])
    assert (found.rule.primary, found.primary.source) == ("RR", "measures")
    assert "nDCG@10" in found.primary.note
    found = compare(runs(), gold_of(20), ["RR", "nDCG@10"])
    assert (found.rule.primary, found.primary.source) == ("nDCG@10", "profile")
    found = compare(runs(), gold_of(20), ["RR", "nDCG@10"], primary="RR")
    assert (found.rule.primary, found.primary.source) == ("RR", "named")
    found = compare(runs(), gold_of(20), ["RR"], primary="R@5")
    assert (found.rule.primary, found.primary.source) == ("R@5", "named")


def test_a_measure_without_a_direction_cannot_decide():
    with pytest.raises(UsageError, match="NumRet"):
        compare(runs(), gold_of(20), ["NumRet", "RR"], primary="NumRet")


def test_the_number_of_tests_stands_beside_the_corrected_p():
    third = run_of([1, 2, 2, 4] * 5, "third")
    found = compare([*runs(), third], gold_of(20), ["nDCG@10", "RR", "R@1"])
    assert [one.tests for one in found.rows if one.primary] == [2, 2]
    assert [one.tests for one in found.rows if not one.primary] == [4] * 4


def test_better_with_a_loss_elsewhere():
    """Every first item moves up to rank 1; the second gold item is lost by all."""
    gold = Gold.from_dict({f"q{i}": ["a", "b"] for i in range(20)})
    old = Run.from_dict({f"q{i}": ["x", "y", "z", "a", "b"] for i in range(20)}, name="old")
    new = Run.from_dict({f"q{i}": ["a", "x", "y", "z", "w"] for i in range(20)}, name="new")
    found = compare([old, new], gold, ["RR", "R@5"], primary="RR")
    assert (found.verdict, found.regression) == ("better", False)
    assert [one.measure for one in found.decisions[0].cautions] == ["R@5"]
    strict = compare([old, new], gold, ["RR", "R@5"], primary="RR", no_regression="all")
    assert (strict.verdict, strict.regression) == ("better", True)
    ranks = {"order": "rank"}
    memory = compare([old, new], gold, ["Hit@1", "R@5"], profile="memory", settings=ranks)
    assert (memory.verdict, memory.regression) == ("better", True)
