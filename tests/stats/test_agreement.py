"""Cohen's kappa against sklearn's and by its definition, where there is none, and what most say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.errors import UsageError
from karat.stats.agreement import cross_table, kappa, majority

THEIRS = {"none": None, "linear": "linear", "quadratic": "quadratic"}


def ratings(seed: int, grades: int, n: int = 60):
    """Two raters who agree half of the time."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, grades, n)
    return first, np.where(rng.random(n) < 0.5, first, rng.integers(0, grades, n))


@pytest.mark.parametrize("weights", THEIRS)
@pytest.mark.parametrize("grades", [2, 3, 5])
@pytest.mark.parametrize("seed", range(8))
def test_kappa_is_sklearns_kappa(seed: int, grades: int, weights) -> None:
    from sklearn.metrics import cohen_kappa_score, confusion_matrix

    first, second = ratings(seed, grades)
    labels = list(range(grades))
    theirs = cohen_kappa_score(first, second, labels=labels, weights=THEIRS[weights])
    table = cross_table(first, second, labels)
    assert table.tolist() == confusion_matrix(first, second, labels=labels).tolist()
    assert kappa(table, weights=weights) == pytest.approx(theirs, abs=1e-12)


def test_a_grade_that_nobody_gave_changes_nothing() -> None:
    from sklearn.metrics import cohen_kappa_score

    first, second = ratings(1, 3)
    wide = cross_table(first, second, [0, 1, 2, 3])
    assert kappa(wide, weights="quadratic") == pytest.approx(
        cohen_kappa_score(first, second, weights="quadratic"), abs=1e-12
    )


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 4.0]), st.sampled_from([0.0, 1.0, 4.0])),
        min_size=1,
        max_size=12,
    )
)
def test_distances_are_those_of_the_grades_themselves(pairs) -> None:
    """Disagreement as met, over that of any grade of one rater with any of the other."""
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    met = sum(abs(a - b) for a, b in pairs) / len(pairs)
    chance = sum(abs(a - b) for a in first for b in second) / len(pairs) ** 2
    found = kappa(cross_table(first, second, [0, 1, 4]), weights="linear", grades=[0, 1, 4])
    if chance == 0:
        assert found is None
    else:
        assert found == pytest.approx(1 - met / chance, abs=1e-12)


def test_raters_with_one_grade_throughout_have_no_kappa() -> None:
    assert kappa(np.array([[7, 0], [0, 0]])) is None
    assert kappa(np.zeros((3, 3), dtype=np.int64)) is None
    # One of them varies: agreement is what chance gives.
    assert kappa(np.array([[7, 3], [0, 0]])) == 0


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(UsageError, match="weights"):
        kappa(np.eye(2, dtype=np.int64), weights="cubic")
    with pytest.raises(UsageError, match="not among 0, 1"):
        cross_table(np.array([2.0]), np.array([0.0]), [0, 1])
    with pytest.raises(UsageError, match="one rater has 1 grades"):
        cross_table(np.array([1.0]), np.array([0.0, 1.0]), [0, 1])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 1.0, 2.5])), max_size=20))
def test_the_majority_is_what_a_counter_says(said) -> None:
    items, grades = majority(
        np.array([item for item, _ in said], dtype=np.int64), np.array([g for _, g in said])
    )
    assert items.tolist() == sorted({item for item, _ in said})
    for item, found in zip(items, grades, strict=True):
        first, *rest = Counter(grade for one, grade in said if one == item).most_common(2)
        if rest and rest[0][1] == first[1]:
            assert np.isnan(found)
        else:
            assert found == first[0]


def test_votes_without_an_item_are_refused() -> None:
    with pytest.raises(UsageError, match="1 items and 2 grades"):
        majority(np.array([1]), np.array([1.0, 2.0]))
