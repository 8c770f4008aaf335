"""Agreement of raters: cross tables, kappa, alpha, majorities, and what each rater gets wrong."""

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


def cross_table(first: Values, second: Values, grades: Sequence[float]) -> Table:
    """Return how often each grade of one rater (a row) met each grade of the other (a column).

    >>> cross_table(np.array([0.0, 1, 1]), np.array([0.0, 0, 1]), [0, 1]).tolist()
    [[1, 0], [1, 1]]
    """
    known = np.asarray(sorted(grades), dtype=np.float64)
    if len(first) != len(second):
        raise UsageError(f"one rater has {len(first)} grades and the other {len(second)}")
    if not np.isin(first, known).all() or not np.isin(second, known).all():
        raise UsageError(f"a grade is not among {', '.join(f'{one:g}' for one in known)}")
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
    counts = np.asarray(table, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise UsageError(f"a cross table is square, not {' × '.join(map(str, counts.shape))}")
    costs = _costs(np.arange(len(counts)) if grades is None else grades, weights)
    expected = float((costs * np.outer(counts.sum(axis=1), counts.sum(axis=0))).sum())
    if not expected:
        return None
    # Counts are whole numbers, so that dividing last keeps both sums exact.
    return 1 - float((costs * counts).sum()) * float(counts.sum()) / expected


def majority(items: Ints, grades: Values) -> tuple[Ints, Values]:
    """Return every item once, and the grade that more of its judgments have than any other.

    NaN where no grade has: a tie is nobody's to decide here.

    >>> majority(np.array([7, 7, 7, 9, 9]), np.array([2.0, 2, 0, 1, 0]))
    (array([7, 9]), array([ 2., nan]))
    """
    if len(items) != len(grades):
        raise UsageError(f"{len(items)} items and {len(grades)} grades; expected one each")
    known, item = np.unique(items, return_inverse=True)
    scale, place = np.unique(grades, return_inverse=True)
    cells = np.bincount(item * len(scale) + place, minlength=len(known) * len(scale))
    votes = cells.reshape(len(known), len(scale))
    most = votes.max(axis=1, keepdims=True, initial=0)
    alone = (votes == most).sum(axis=1) == 1
    if not len(scale):
        return known, np.empty(0)
    return known, np.where(alone, scale[votes.argmax(axis=1)], np.nan)


def _costs(grades: Sequence[float] | Table, weights: Weights) -> Values:
    """Return what each disagreement counts."""
    places = np.asarray(grades, dtype=np.float64)
    apart = np.abs(places[:, None] - places[None, :])
    if weights == "none":
        return (apart > 0).astype(np.float64)
    if weights not in ("linear", "quadratic"):
        raise UsageError(f"unknown weights {weights!r}; known: none, linear, quadratic")
    return np.asarray(apart if weights == "linear" else apart**2)


Level = Literal["nominal", "ordinal", "interval"]
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval")


def krippendorff_alpha(items: Ints, grades: Values, *, level: Level = "nominal") -> float | None:
    """Return Krippendorff's alpha of judgments: 1 is agreement, 0 what chance alone would give.

    One entry a judgment: which item it is of, and its grade; who gave it does not matter. Items
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
    if len(items) != len(grades):
        raise UsageError(f"{len(items)} items and {len(grades)} grades; expected one each")
    if not np.isfinite(grades).all():
        raise UsageError("a grade is NaN or infinite; leave out judgments without a grade")
    known, met = _met(items, grades)
    often = met.sum(axis=1)
    total = float(often.sum())
    apart = _apart(known, often, level)
    expected = float((np.outer(often, often) * apart).sum())
    if not expected:
        return None
    return 1 - (total - 1) * float((met * apart).sum()) / expected


def _met(items: Ints, grades: Values) -> tuple[Values, Values]:
    """Return the grades of items judged twice or more, and how often each pair of them met.

    An item of m judgments has m (m - 1) ordered pairs, each of which counts 1/(m - 1).
    """
    _, item = np.unique(items, return_inverse=True)
    several = np.bincount(item)[item] > 1 if len(item) else np.zeros(0, dtype=bool)
    known, place = np.unique(grades[several], return_inverse=True)
    _, row = np.unique(item[several], return_inverse=True)
    shape = (int(row.max(initial=-1)) + 1, len(known))
    counts = np.bincount(row * shape[1] + place, minlength=shape[0] * shape[1]).reshape(shape)
    sizes = counts.sum(axis=1)
    met = np.zeros((len(known), len(known)))
    for size in np.unique(sizes).tolist():
        # In whole numbers, so that the order of the judgments changes nothing.
        alike = counts[sizes == size]
        pairs = alike.T @ alike - np.diag(alike.sum(axis=0))
        met += pairs / (size - 1)
    return known, met


def _apart(known: Values, often: Values, level: Level) -> NDArray[np.float64]:
    """Return what a disagreement on each pair of grades counts."""
    if level == "nominal":
        return 1 - np.eye(len(known))
    # The ranks of a grade's judgments, in their middle: between two lie half of both and the rest.
    places = known if level == "interval" else np.cumsum(often) - often / 2
    distances: NDArray[np.float64] = (places[:, None] - places[None, :]) ** 2
    return distances


Start = Literal["votes", "even"]
STARTS: tuple[Start, ...] = ("votes", "even")
ITERATIONS = 1000
TOLERANCE = 1e-6
# What a rater gave at least once is possible at every true grade, though never seen there.
_LEAST_COUNT = 1e-10
# The recipe of the course floors rates instead, and starts from raters who are mostly right.
_LEAST_RATE, _MOSTLY_RIGHT = 1e-6, 0.8
# Two grades as probable as each other, up to rounding.
_TIED = 1e-9


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
    raters: Ints,
    items: Ints,
    grades: Values,
    *,
    start: Start = "votes",
    iterations: int = ITERATIONS,
    tolerance: float | None = TOLERANCE,
) -> DawidSkene:
    """Fit the model to judgments: who judged what, and with which grade.

    Raters need not judge everything. It starts from each item's ``votes``, or from ``even``
    odds of all grades and raters who are right in 8 of 10 cases, which is the recipe of the RAG
    lesson's course for two grades (with 50 iterations and no tolerance). It ends when no
    probability of an item moves by more than the tolerance, or after so many iterations.

    >>> rows = np.array([[0, 0, 1], [0, 1, 1], [0, 2, 1], [1, 0, 0], [1, 1, 1], [1, 2, 0]])
    >>> model = dawid_skene(rows[:, 1], rows[:, 0], rows[:, 2].astype(float))
    >>> model.most_likely().tolist(), model.converged
    ([1.0, 0.0], True)
    """
    if start not in STARTS:
        raise unknown("start", start, STARTS)
    judged = _Judgments.of(raters, items, grades)
    k = len(judged.grades)
    # Where nothing else is known, raters are mostly right, and wrong alike with all other grades.
    wrong = (1 - _MOSTLY_RIGHT) / max(k - 1, 1)
    mostly_right = np.where(np.eye(k, dtype=bool), _MOSTLY_RIGHT if k > 1 else 1.0, wrong)
    rates = np.repeat(mostly_right[None], len(judged.raters), axis=0)
    votes = np.zeros((len(judged.items), k))
    np.add.at(votes, (judged.item, judged.grade), 1.0)
    posterior, prior = votes / votes.sum(axis=1, keepdims=True), np.full(k, 1 / k)
    least, floor = 0.0, _LEAST_RATE
    if start == "votes":
        least, floor = _LEAST_COUNT, 0.0
        rates, prior = judged.rates(posterior, rates, least=least), posterior.mean(axis=0)
    done, moved = 0, np.inf
    while done < iterations and (tolerance is None or moved > tolerance):
        before = posterior
        posterior = judged.posterior(prior, rates, floor=floor)
        prior = posterior.mean(axis=0)
        rates = judged.rates(posterior, rates, least=least)
        moved = float(np.abs(posterior - before).max(initial=0.0))
        done += 1
    converged = moved <= (TOLERANCE if tolerance is None else tolerance)
    return DawidSkene(
        judged.items, judged.raters, judged.grades, posterior, prior, rates, done, converged
    )


@dataclass(frozen=True, eq=False)
class _Judgments:
    """Judgments in numbers: the places of their rater, item and grade among all of each."""

    raters: Ints
    items: Ints
    grades: Values
    rater: Ints
    item: Ints
    grade: Ints

    @classmethod
    def of(cls, raters: Ints, items: Ints, grades: Values) -> _Judgments:
        if not len(raters) == len(items) == len(grades):
            counts = f"{len(raters)} raters, {len(items)} items and {len(grades)} grades"
            raise UsageError(f"{counts} make no judgments; one of each is a judgment")
        if not len(grades) or not np.isfinite(grades).all():
            raise UsageError("judgments are at least one and have finite grades")
        # In one order, so that sums are the same whatever the order of the judgments.
        order = np.lexsort((raters, items))
        all_raters, rater = np.unique(raters[order], return_inverse=True)
        all_items, item = np.unique(items[order], return_inverse=True)
        all_grades, grade = np.unique(grades[order].astype(np.float64), return_inverse=True)
        if ((np.diff(rater) == 0) & (np.diff(item) == 0)).any():
            raise UsageError("a rater judges an item once; here one judges an item twice")
        return cls(all_raters, all_items, all_grades, rater, item, grade)

    def rates(
        self, posterior: Values, before: NDArray[np.float64], *, least: float
    ) -> NDArray[np.float64]:
        """Return how often each rater gives each grade where each is true (rater, true, given)."""
        k = len(self.grades)
        cell = self.rater * k + self.grade
        size = len(self.raters) * k
        seen = np.bincount(cell, minlength=size).reshape(-1, 1, k) > 0
        sums = [np.bincount(cell, posterior[self.item, true], size) for true in range(k)]
        given = np.stack(sums, axis=1).reshape(-1, k, k).transpose(0, 2, 1)
        given = np.where(seen, np.maximum(given, least), 0.0)
        total = given.sum(axis=2, keepdims=True)
        shares: NDArray[np.float64] = np.divide(given, total, out=before.copy(), where=total > 0)
        return shares

    def posterior(
        self, prior: Values, rates: NDArray[np.float64], *, floor: float
    ) -> NDArray[np.float64]:
        """Return how probable each grade of each item is, worked out in logarithms."""
        evidence = np.log(np.maximum(rates[self.rater, :, self.grade], floor))
        logs = np.log(np.maximum(prior, floor or _LEAST_COUNT)) + np.stack(
            [np.bincount(self.item, column) for column in evidence.T], axis=1
        )
        chances = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))
