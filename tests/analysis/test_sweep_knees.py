"""Cut-offs and measures as they are asked for, knees and areas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from swept import staged_of

from karat.analysis.sweep.curves import (
    area_under,
    knee_of,
    parse_curves,
    parse_ks,
    sweep_system,
)
from karat.data.tables import Gold
from karat.errors import UsageError
from karat.formats.runlog import run_of_records


def first_flat(values: list[float], flat: float) -> int | None:
    """The rule, one value after the other."""
    for at, value in enumerate(values):
        if not any(later - value > flat * max(values) + 1e-12 for later in values[at + 1 :]):
            return None if at == len(values) - 1 else at
    return None


@given(
    st.lists(st.integers(0, 50).map(lambda n: n / 50), min_size=3, max_size=9).filter(any),
    st.sampled_from([0.0, 0.02, 0.1, 0.5]),
    st.sampled_from([1.0, 0.05, 30.0]),
)
def test_the_knee_is_the_first_value_that_no_later_one_betters_by_more(values, flat, scale):
    values = [scale * value for value in values]
    assert knee_of(values, flat=flat)[0] == first_flat(values, flat)
    # What should be low, turned upside down, has the same knee.
    highest = max(values)
    low = [highest - value for value in values]
    if max(low) == highest:
        assert knee_of(low, better="lower", flat=flat)[0] == first_flat(values, flat)


def test_a_curve_that_falls_is_flat_from_its_start():
    assert knee_of([0.6, 0.4, 0.3]) == (0, None)


@pytest.mark.parametrize(
    ("values", "better", "because"),
    [
        ([0.1, 0.2, 0.3], "higher", "not flattened yet"),
        ([0.5, 0.5], "higher", "2 cut-offs were measured"),
        ([0.5], "higher", "1 cut-off was measured"),
        ([], "higher", "no cut-offs were measured"),
        ([0.0, 0.0, 0.0], "higher", "0 throughout"),
        ([0.3, 0.3, 0.3], "none", "neither higher nor lower is better"),
    ],
)
def test_without_a_knee_there_is_a_reason(values, better, because):
    place, reason = knee_of(values, better=better)
    assert place is None
    assert because in reason


def test_the_knee_in_the_document_is_a_cut_off_that_was_measured():
    gold = Gold.from_dict({"q1": ["A", "B"], "q2": ["A"]})
    lists = {"q1": ["X", "A", "B", "Y"], "q2": ["X", "A", "Y", "Z"]}
    log = [{"query_id": name, "k": 4, "topk": items} for name, items in lists.items()]
    staged, curves = staged_of(run_of_records(log, name="log"), gold, ["R"], (1, 2, 3, 4, 9))
    line = sweep_system(staged, curves)["measures"]["R"]
    assert [point["mean"] for point in line["points"]] == [0.0, 0.75, 1.0, 1.0, None]
    assert (line["knee"], line["knee_because"]) == (3, None)
    loose = sweep_system(staged, curves, flat=0.25)["measures"]["R"]
    assert loose["knee"] == 2


def test_an_area_is_a_sum_of_trapezoids():
    heights = [np.array([0.0, 1.0]), np.array([0.5, math.nan]), np.array([1.0, 1.0])]
    area = area_under(heights, [1, 2, 4])
    assert area[0] == pytest.approx(np.trapezoid([0, 0.5, 1], [1, 2, 4]) / 3)
    assert math.isnan(area[1])


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1,x", "1e3", "k", "0tok", "9" * 13])
def test_a_cut_off_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="whole number above 0, or a budget such as 500tok"):
        parse_ks(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5,500tok", "mixes ranks and budgets of tokens"),
        ("", "k has 0 cut-offs"),
        (",", "k has 0 cut-offs"),
        (",".join(map(str, range(1, 300))), "k has 299 cut-offs"),
    ],
)
def test_cut_offs_that_do_not_go_together_are_refused(text, message):
    with pytest.raises(UsageError, match=message):
        parse_ks(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("R@5", "'R@5' has a cut-off; write R, and --k 5"),
        ("R@{1,5}", "write R, and --k 1,5"),
        ("ndcg_cut_10", "unknown measure"),
        ("P(rel=2, k=7)", "no curve over k"),
        ("latency.total.p50", "no curve over k; --budget latency.total"),
        ("cost.tokens", "no curve over k"),
        ("Rprec", "Rprec takes no cut-off"),
        ("IPrec", "point of recall"),
        ("ndgc", "unknown measure 'ndgc'.*; did you mean nDCG"),
        ("AUC", "AUC needs a whole cut-off of at least 2"),
        (" ", "no measure named"),
    ],
)
def test_a_measure_without_a_curve_is_refused_with_what_to_do(text, message):
    with pytest.raises(UsageError, match=message):
        parse_curves([text], (1, 5))


def test_measures_may_be_written_in_one_text_and_each_is_taken_once():
    curves = parse_curves(["recall, nDCG(gain={1: 1, 2: 5})", "R  RBP(p=0.5)"], (3,))
    assert [curve.name for curve in curves] == ["R", "nDCG(gain={1: 1, 2: 5})", "RBP(p=0.5)"]
