"""The sentence behind a verdict says what decided, and nothing that contradicts it."""

from __future__ import annotations

import numpy as np
from compared import gold_of, rr, run_of

from karat.evaluation.api import compare


def test_what_the_point_rule_decides_is_not_called_undecided():
    old = np.tile([1, 2, 3, 1], 10)
    new = old.copy()
    new[:4] += 2
    runs = [run_of(old, "old"), run_of(new, "new")]
    told = compare(runs, gold_of(40), ["RR"]).decisions[0]
    assert (told.verdict, told.regression) == ("unclear", False)
    assert "too close to call" in told.because
    told = compare(runs, gold_of(40), ["RR"], margin_on="mean").decisions[0]
    assert (told.verdict, told.regression) == ("worse", True)
    assert "too close" not in told.because
    margin = f"{0.02 * rr(old).mean():.2g}"
    assert told.because.endswith(f", 40 queries); that is more than the margin of {margin}")


def test_a_sure_loss_within_the_margin_is_not_said_to_be_beyond_it():
    """Ten of sixty queries fall from rank 10 to 11: p is 2 / 1024, and 0.2 % are lost."""
    old = np.array([10] * 10 + [1] * 50)
    new = np.where(old == 10, 11, 1)
    runs = [run_of(old, "old"), run_of(new, "new")]
    told = compare(runs, gold_of(), ["RR"], margin_on="mean").decisions[0]
    assert (told.verdict, told.regression) == ("worse", True)
    assert told.because.endswith(", 60 queries)")
