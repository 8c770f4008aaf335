"""Krippendorff's alpha against the krippendorff package, by its definition, and where it is not."""

from __future__ import annotations

from itertools import permutations

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.errors import UsageError
from karat.stats.agreement import LEVELS, krippendorff_alpha


def table(seed: int, raters: int, items: int, grades, missing: float):
    """A row a rater, NaN where nothing was said; raters agree half of the time."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(grades, items)
    said = np.where(
        rng.random((raters, items)) < 0.5, truth[None], rng.choice(grades, (raters, items))
    )
    return np.where(rng.random((raters, items)) < missing, np.nan, said.astype(float))


def judgments(said):
    """The same as one entry a judgment."""
    rater, item = np.nonzero(~np.isnan(said))
    return item, said[rater, item]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("raters", [2, 3, 7])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("grades", [(0, 1), (0, 1, 2, 3), (0, 0.5, 4)])
def test_alpha_is_that_of_the_krippendorff_package(grades, missing, raters, level) -> None:
    for seed in range(3):
        said = table(seed, raters, 30, grades, missing)
        theirs = krippendorff.alpha(reliability_data=said, level_of_measurement=level)
        ours = krippendorff_alpha(*judgments(said), level=level)
        assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_the_published_example_of_four_observers(level, alpha) -> None:
    """Krippendorff, Computing Krippendorff's Alpha-Reliability (2011): twelve units."""
    rows = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]
    said = np.array([[np.nan if one == "." else float(one) for one in row] for row in rows])
    assert krippendorff_alpha(*judgments(said), level=level) == pytest.approx(alpha, abs=5e-4)


judged = st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.0, 4.0]), max_size=4), max_size=6)


@settings(max_examples=150)
@given(judged)
def test_interval_alpha_by_its_definition(units) -> None:
    """Mean squared difference within items, over that of any two judgments."""
    paired = [unit for unit in units if len(unit) > 1]
    every = [grade for unit in paired for grade in unit]
    items = np.array([at for at, unit in enumerate(units) for _ in unit], dtype=np.int64)
    grades = np.array([grade for unit in units for grade in unit], dtype=float)
    found = krippendorff_alpha(items, grades, level="interval")
    apart = sum((a - b) ** 2 for a, b in permutations(every, 2))
    if not apart:
        assert found is None
        return
    within = sum(
        sum((a - b) ** 2 for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in paired
    )
    chance = apart / (len(every) * (len(every) - 1))
    assert found == pytest.approx(1 - within / len(every) / chance, abs=1e-9)


def test_raters_who_agree_throughout_have_an_alpha_of_one() -> None:
    items, grades = np.array([1, 1, 1, 2, 2]), np.array([0.0, 0, 0, 2, 2])
    for level in LEVELS:
        assert krippendorff_alpha(items, grades, level=level) == 1


@pytest.mark.parametrize(
    ("items", "grades"),
    [([], []), ([1, 2, 3], [0, 1, 2]), ([1, 1, 2, 2], [1, 1, 1, 1]), ([1, 1, 2], [1, 1, 0])],
    ids=["nothing", "no pair", "one grade", "one grade in pairs"],
)
def test_what_cannot_be_told_is_none(items, grades) -> None:
    for level in LEVELS:
        found = krippendorff_alpha(
            np.array(items, dtype=np.int64), np.array(grades, dtype=float), level=level
        )
        assert found is None


def test_the_order_of_judgments_changes_nothing() -> None:
    items, grades = judgments(table(4, 5, 40, (0, 1, 2), 0.3))
    order = np.random.default_rng(1).permutation(len(items))
    for level in LEVELS:
        assert krippendorff_alpha(items[order], grades[order], level=level) == krippendorff_alpha(
            items, grades, level=level
        )


def test_what_is_no_judgment_is_refused() -> None:
    with pytest.raises(UsageError, match="2 items and 1 grades"):
        krippendorff_alpha(np.array([1, 1]), np.array([1.0]))
    with pytest.raises(UsageError, match="NaN"):
        krippendorff_alpha(np.array([1, 1]), np.array([1.0, np.nan]))
    with pytest.raises(UsageError, match="unknown level 'ordnal'; did you mean ordinal"):
        krippendorff_alpha(np.array([1, 1]), np.array([1.0, 0.0]), level="ordnal")
