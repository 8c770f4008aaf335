"""When two systems may be called the same, and when nothing can be said of them."""

from __future__ import annotations

import pytest
from compared import gold_of, run_of

from karat.evaluation.api import compare


def _repeated_runs():
    """Runs that miss different halves of the queries: their mean at every query is the same."""
    old = run_of([2] * 30, "old")
    first = run_of([1 if i % 2 else 0 for i in range(30)], "new")
    second = run_of([0 if i % 2 else 1 for i in range(30)], "new")
    return [old, first, second]


def test_a_number_that_is_no_mean_has_no_test_across_repeated_runs():
    found = compare(_repeated_runs(), gold_of(30), ["AP", "GMAP"], replicates=True)
    row = found.of("new", "GMAP")
    # Half of the queries at 1, half at the floor of 0.00001.
    assert row.delta == pytest.approx(1e-5**0.5 - 0.5)
    assert (row.p, row.p_adjusted, row.ci, row.ci_same) == (None, None, None, None)
    assert row.verdict == "unclear"
    assert "have a test across repeated runs" in row.because


def test_a_number_that_is_no_mean_is_tested_between_single_runs():
    found = compare(_repeated_runs()[:2], gold_of(30), ["AP", "GMAP"])
    assert found.of("new", "GMAP").ci is not None
