"""Agreement of raters: cross tables, kappa, alpha, majorities, and each rater's errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from karat.errors import UsageError, unknown
from karat.stats.distributions import Ints, Values

Table = NDArray[np.int64]
Weights = Literal["none", "linear", "quadratic"]
WEIGHTS: tuple[Weights, ...] = ("none", "linear", "quadratic")
Level = Literal["nominal", "ordinal", "interval"]
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval")
ITERATIONS = 1000
TOLERANCE = 1e-6
# What a rater gave at least once is possible at every true grade, though never seen there.
_LEAST_COUNT = 1e-10
# The prior accuracy of raters.
_MOSTLY_RIGHT = 0.8
# Two grades as probable as each other, up to rounding.
_TIED = 1e-9


def cross_table(first: Values, second: Values, grades: Sequence[float]) -> Table:
    """Return how often each grade of one rater (a row) met each grade of the other (a column).

    >>> cross_table(np.array([0.0, 1, 1]), np.array([0.0, 0, 1]), [0, 1]).tolist()
    [[1, 0], [1, 1]]
    """
    known = np.asarray(sorted(grades), dtype=np.float64)
    if len(first) != len(second):
        raise UsageError(f"one rater has {len(first)} grades and the other {len(second)}")
    if not np.isin(first, known).all() or not np.isin(second, known).all():
        raise UsageError(f"a grade is not among {', '.join(f'{grade:g}' for grade in known)}")
    places = np.searchsorted(known, first) * len(known) + np.searchsorted(known, second)
    counts = np.bincount(places.astype(np.int64), minlength=len(known) ** 2)
    return counts.reshape(len(known), len(known)).astype(np.int64)


def kappa(
    table: Table, *, weights: Weights = "none", grades: Sequence[float] | None = None
) -> float | None:
    """Return Cohen's kappa of a cross table: 1 is agreement, 0 what chance alone would give.

    Disagreements count alike, or by the distance between the two grades, or by its square.
    Grades lie one apart unless said. None where chance alone would leave no disagreement,
    because both raters gave one and the same grade throughout.

    >>> kappa(np.array([[20, 5], [10, 15]]))
    0.4
    """
    if weights not in WEIGHTS:
        raise unknown("weights", weights, WEIGHTS)
    counts = np.asarray(table, dtype=np.float64)
    places = np.asarray(np.arange(len(counts)) if grades is None else grades, dtype=np.float64)
    costs = np.abs(places[:, None] - places[None, :])
    if weights != "linear":
        costs = costs**2 if weights == "quadratic" else (costs > 0).astype(np.float64)
    expected = float((costs * np.outer(counts.sum(axis=1), counts.sum(axis=0))).sum())
    if not expected:
        return None
    # Counts are whole numbers, so that dividing last keeps both sums exact.
    return 1 - float((costs * counts).sum()) * float(counts.sum()) / expected


def _votes(items: Ints, grades: Values) -> tuple[Ints, Values, Table]:
    """Return each item and each grade once, and how many judgments give an item each grade."""
    if len(items) != len(grades):
        raise UsageError(f"{len(items)} items and {len(grades)} grades; expected one each")
    item_ids, item = np.unique(items, return_inverse=True)
    scale, place = np.unique(grades, return_inverse=True)
    cells = np.bincount(item * len(scale) + place, minlength=len(item_ids) * len(scale))
    return item_ids, scale, cells.reshape(len(item_ids), len(scale))


def majority(items: Ints, grades: Values) -> tuple[Ints, Values]:
    """Return every item once, and the grade that more of its judgments have than any other.

    NaN where no grade has: ties are not decided here.

    >>> majority(np.array([7, 7, 7, 9, 9]), np.array([2.0, 2, 0, 1, 0]))
    (array([7, 9]), array([ 2., nan]))
    """
    known, scale, votes = _votes(items, grades)
    if not len(scale):
        return known, np.empty(0)
    alone = (votes == votes.max(axis=1, keepdims=True)).sum(axis=1) == 1
    return known, np.where(alone, scale[votes.argmax(axis=1)], np.nan)


def krippendorff_alpha(items: Ints, grades: Values, *, level: Level = "nominal") -> float | None:
    """Return Krippendorff's alpha of judgments: 1 is agreement, 0 what chance alone would give.

    One entry per judgment: which item it is of, and its grade; who gave it does not matter. Items
    may have any number of judgments, and those with a single one take no part. Disagreements
    count alike (``nominal``), by how many judgments lie between the two grades (``ordinal``), or
    by the square of their distance (``interval``).

    None where it cannot be told: no item has two judgments, or all of them are of one grade.

    >>> items, grades = np.array([1, 1, 2, 2, 3, 3]), np.array([0.0, 0, 1, 1, 0, 1])
    >>> round(krippendorff_alpha(items, grades), 4)
    0.4444
    """
    if level not in LEVELS:
        raise unknown("level", level, LEVELS)
    if not np.isfinite(grades).all():
        raise UsageError("a grade is NaN or infinite; leave out judgments without a grade")
    _, scale, votes = _votes(items, grades)
    votes = votes[votes.sum(axis=1) > 1]
    scale, votes = scale[votes.any(axis=0)], votes[:, votes.any(axis=0)]
    # How often each pair of grades met: an item of m judgments has m (m - 1) ordered pairs, each of
    # which counts 1/(m - 1). In whole numbers, so that the order of the judgments changes nothing.
    met = np.zeros((len(scale), len(scale)))
    sizes = votes.sum(axis=1)
    for size in np.unique(sizes).tolist():
        of_size = votes[sizes == size]
        met += (of_size.T @ of_size - np.diag(of_size.sum(axis=0))) / (size - 1)
    often = met.sum(axis=1)
    # The ranks of a grade's judgments, in their middle: between two lie half of both and the rest.
    places = scale if level == "interval" else np.cumsum(often) - often / 2
    costs = (places[:, None] - places[None, :]) ** 2
    if level == "nominal":
        costs = 1 - np.eye(len(scale))
    expected = float((np.outer(often, often) * costs).sum())
    if not expected:
        return None
    return 1 - (float(often.sum()) - 1) * float((met * costs).sum()) / expected


@dataclass(frozen=True, eq=False)
class DawidSkene:
    """The fitted model.

    ``posterior`` has a row for each of ``items`` and a column for each of ``grades``: how
    probable that grade is there. ``prior`` is how common each grade is. ``confusion`` has, for
    each of ``raters``, a row per true grade and a column per given one.
    """

    items: Ints
    raters: Ints
    grades: Values
    posterior: Values
    prior: Values
    confusion: NDArray[np.float64]
    iterations: int
    converged: bool

    def most_likely(self) -> Values:
        """Return the most probable grade of each item; NaN where two are equally probable."""
        ordered = np.sort(self.posterior, axis=1)
        best: Values = self.grades[self.posterior.argmax(axis=1)]
        if len(self.grades) < 2:
            return best
        return np.where(ordered[:, -1] - ordered[:, -2] > _TIED, best, np.nan)


def dawid_skene(
    raters: Ints, items: Ints, grades: Values, *, iterations: int = ITERATIONS
) -> DawidSkene:
    """Fit the model to judgments: who judged what, and with which grade.

    Raters need not judge everything. It starts from each item's votes, and ends when no probability
    of an item moves by more than 1e-6, or after so many iterations.

    >>> rows = np.array([[0, 0, 1], [0, 1, 1], [0, 2, 1], [1, 0, 0], [1, 1, 1], [1, 2, 0]])
    >>> model = dawid_skene(rows[:, 1], rows[:, 0], rows[:, 2].astype(float))
    >>> model.most_likely().tolist(), model.converged
    ([1.0, 0.0], True)
    """
    if not len(raters) == len(items) == len(grades):
        counts = f"{len(raters)} raters, {len(items)} items and {len(grades)} grades"
        raise UsageError(f"{counts} make no judgments; one of each is a judgment")
    if not len(grades) or not np.isfinite(grades).all():
        raise UsageError("judgments are at least one and have finite grades")
    # In one order, so that sums are the same whatever the order of the judgments.
    order = np.lexsort((raters, items))
    all_raters, rater = np.unique(raters[order], return_inverse=True)
    all_items, item = np.unique(items[order], return_inverse=True)
    scale, grade = np.unique(grades[order].astype(np.float64), return_inverse=True)
    if ((np.diff(rater) == 0) & (np.diff(item) == 0)).any():
        raise UsageError("a rater judges an item once; here one judges an item twice")
    k = len(scale)
    cell, cells = rater * k + grade, len(all_raters) * k
    ever_gave = np.bincount(cell, minlength=cells).reshape(-1, 1, k) > 0

    def rates_given(posterior: Values, before: Values) -> Values:
        """Return how often each rater gives each grade where each is true (rater, true, given)."""
        sums = [np.bincount(cell, posterior[item, true], cells) for true in range(k)]
        counts = np.stack(sums, axis=1).reshape(-1, k, k).transpose(0, 2, 1)
        counts = np.where(ever_gave, np.maximum(counts, _LEAST_COUNT), 0.0)
        total = counts.sum(axis=2, keepdims=True)
        return np.asarray(np.divide(counts, total, out=before.copy(), where=total > 0))

    votes = _votes(item, scale[grade])[2]
    posterior = votes / votes.sum(axis=1, keepdims=True)
    # Where nothing else is known, raters are mostly right, and wrong alike with all other grades.
    wrong = (1 - _MOSTLY_RIGHT) / max(k - 1, 1)
    mostly_right = np.where(np.eye(k, dtype=bool), _MOSTLY_RIGHT if k > 1 else 1.0, wrong)
    rates = rates_given(posterior, np.repeat(mostly_right[None], len(all_raters), axis=0))
    done, moved = 0, np.inf
    while done < iterations and moved > TOLERANCE:
        before = posterior
        # How probable each grade of each item is, worked out in logarithms.
        evidence = np.log(rates[rater, :, grade])
        votes_for = [np.bincount(item, column) for column in evidence.T]
        prior = np.log(np.maximum(before.mean(axis=0), _LEAST_COUNT))
        logs = prior + np.stack(votes_for, axis=1)
        chances = np.exp(logs - logs.max(axis=1, keepdims=True))
        posterior = chances / chances.sum(axis=1, keepdims=True)
        rates = rates_given(posterior, rates)
        moved = float(np.abs(posterior - before).max())
        done += 1
    prior = posterior.mean(axis=0)
    return DawidSkene(
        all_items, all_raters, scale, posterior, prior, rates, done, moved <= TOLERANCE
    )
