"""Dawid and Skene's model: what is true, and how each rater errs, from their judgments alone.

Raters have a rate for each grade that they give where another is true; whoever agrees with the
others on what they agree on has a heavier vote. Expectation and maximisation in turn find both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from karat.errors import UsageError, unknown
from karat.stats.distributions import Ints, Values

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
    """What the model found.

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

    >>> said = np.array([[0, 0, 1], [0, 1, 1], [0, 2, 1], [1, 0, 0], [1, 1, 1], [1, 2, 0]])
    >>> found = dawid_skene(said[:, 1], said[:, 0], said[:, 2].astype(float))
    >>> found.most_likely().tolist(), found.converged
    ([1.0, 0.0], True)
    """
    if start not in STARTS:
        raise unknown("start", start, STARTS)
    said = _Said.of(raters, items, grades)
    posterior, rates, prior = said.votes(), said.mostly_right(), np.full(said.k, 1 / said.k)
    if start == "votes":
        rates, prior = said.rates(posterior, rates, least=_LEAST_COUNT), posterior.mean(axis=0)
    least, floor = (_LEAST_COUNT, 0.0) if start == "votes" else (0.0, _LEAST_RATE)
    done, moved = 0, np.inf
    while done < iterations and (tolerance is None or moved > tolerance):
        before = posterior
        posterior = said.posterior(prior, rates, floor=floor)
        prior = posterior.mean(axis=0)
        rates = said.rates(posterior, rates, least=least)
        moved = float(np.abs(posterior - before).max(initial=0.0))
        done += 1
    return DawidSkene(
        said.items,
        said.raters,
        said.grades,
        posterior,
        prior,
        rates,
        done,
        moved <= (TOLERANCE if tolerance is None else tolerance),
    )


@dataclass(frozen=True, eq=False)
class _Said:
    """Judgments in numbers: the places of their rater, item and grade among all of each."""

    raters: Ints
    items: Ints
    grades: Values
    rater: Ints
    item: Ints
    grade: Ints

    @classmethod
    def of(cls, raters: Ints, items: Ints, grades: Values) -> _Said:
        if not len(raters) == len(items) == len(grades):
            counts = f"{len(raters)} raters, {len(items)} items and {len(grades)} grades"
            raise UsageError(f"{counts} make no judgments; one of each is a judgment")
        if not len(grades) or not np.isfinite(grades).all():
            raise UsageError("judgments are at least one and have finite grades")
        # In one order, so that sums are the same whatever the order of the judgments.
        order = np.lexsort((raters, items))
        whose, of, said = raters[order], items[order], grades[order]
        if (np.diff(whose) == 0)[np.diff(of) == 0].any():
            raise UsageError("a rater judges an item once; here one judges an item twice")
        names, rater = np.unique(whose, return_inverse=True)
        things, item = np.unique(of, return_inverse=True)
        known, grade = np.unique(said.astype(np.float64), return_inverse=True)
        return cls(names, things, known, rater, item, grade)

    @property
    def k(self) -> int:
        """How many grades there are."""
        return len(self.grades)

    def votes(self) -> Values:
        """Return the share of an item's raters for each grade."""
        cells = np.bincount(self.item * self.k + self.grade, minlength=len(self.items) * self.k)
        counts = cells.reshape(-1, self.k).astype(np.float64)
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    def mostly_right(self) -> NDArray[np.float64]:
        """Return rates of raters that are mostly right, and wrong alike with all other grades."""
        wrong = (1 - _MOSTLY_RIGHT) / max(self.k - 1, 1)
        one = np.where(np.eye(self.k, dtype=bool), _MOSTLY_RIGHT if self.k > 1 else 1.0, wrong)
        return np.repeat(one[None], len(self.raters), axis=0)

    def rates(
        self, posterior: Values, before: NDArray[np.float64], *, least: float
    ) -> NDArray[np.float64]:
        """Return how often each rater gives each grade where each is true (rater, true, given)."""
        cell = self.rater * self.k + self.grade
        size = len(self.raters) * self.k
        seen = np.bincount(cell, minlength=size).reshape(-1, 1, self.k) > 0
        sums = [np.bincount(cell, posterior[self.item, true], size) for true in range(self.k)]
        given = np.stack(sums, axis=1).reshape(-1, self.k, self.k).transpose(0, 2, 1)
        given = np.where(seen, np.maximum(given, least), 0.0)
        whole = given.sum(axis=2, keepdims=True)
        return np.where(whole > 0, given / np.where(whole > 0, whole, 1.0), before)

    def posterior(
        self, prior: Values, rates: NDArray[np.float64], *, floor: float
    ) -> NDArray[np.float64]:
        """Return how probable each grade of each item is, worked out in logarithms."""
        given = rates[self.rater, :, self.grade]
        telling = np.log(np.maximum(given, floor) if floor else given)
        logs = np.log(np.maximum(prior, floor or _LEAST_COUNT)) + np.stack(
            [np.bincount(self.item, telling[:, true]) for true in range(self.k)], axis=1
        )
        chances = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))
