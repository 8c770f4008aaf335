"""Prediction-powered shares: what a judge says of everything, put right by what people say of some.

The judge's share of all things and the mean error of its word on those that people judged too
make an estimate that needs no sensitivity and no specificity. It holds only where people judged
a uniform sample of the very things that the share is made of, so it is asked for by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from karat.errors import UsageError
from karat.stats.calibration import COLUMNS
from karat.stats.exact import Values
from karat.stats.quantiles import tail
from karat.stats.student import t_quantile

# Squared, one disagreement more than was seen: few labels may show none where there are some.
_ONE_MORE = 1.0


@dataclass(frozen=True, slots=True)
class PredictionPowered:
    """A share, its interval, and what it stands on.

    ``weight`` is how much the judge's word counts, 0 to 1: at 0 the estimate is that of people's
    labels alone. ``labels`` are the things that both judged, in ``groups`` groups. The ends are
    None where fewer than two groups have labels.
    """

    value: float
    low: float | None
    high: float | None
    weight: float
    labels: int
    groups: int


def prediction_powered(
    groups: Values, *, confidence: float = 0.95, weight: float | None = None
) -> PredictionPowered | None:
    """The true share behind what a judge counted, from labels of a uniform sample of it.

    ``groups`` has a row for each group of things that belong together, such as those of one
    query, with its counts in the ``COLUMNS`` of a calibration, where tp, fn, tn and fp are only
    those of things that the share is made of and nobody knew before. The judge's word has the
    weight that makes the variance over groups least (Angelopoulos and others, 2023: PPI++); a
    ``weight`` of 1 is the plain recipe.

    The interval is Wilson's, of as many labels as would make the same variance, with Student's
    quantile of one degree of freedom less than there are groups with labels, and one
    disagreement more than was seen in the variance. None where people judged nothing of it.
    """
    parts = _parts(groups)
    if not parts.labels:
        return None
    factor = parts.best_weight() if weight is None else weight
    share = parts.share(factor)
    value = min(max(share, 0.0), 1.0)
    told = parts.telling
    if told < 2:
        return PredictionPowered(value, None, None, factor, parts.labels, told)
    spread = parts.pulls(factor)
    variance = _variance(spread, told) + _ONE_MORE * (parts.part / parts.labels) ** 2
    reach = t_quantile(1 - tail(confidence), told - 1)
    low, high = _wilson(share, variance, reach, 1 / parts.every)
    return PredictionPowered(value, min(low, value), max(high, value), factor, parts.labels, told)


def prediction_powered_difference(
    first: Values, second: Values, *, confidence: float = 0.95
) -> tuple[float, tuple[float, float] | None] | None:
    """The second share less the first, and its interval; row g of both is of the same group.

    None where people judged nothing of one of them, no interval where fewer than two groups
    have labels.
    """
    sides = [_parts(one) for one in (first, second)]
    if len(first) != len(second):
        raise UsageError(f"{len(first)} groups and {len(second)}; both shares are of the same")
    if not all(side.labels for side in sides):
        return None
    weights = [side.best_weight() for side in sides]
    one, other = (side.share(weight) for side, weight in zip(sides, weights, strict=True))
    value = min(max(other - one, -1.0), 1.0)
    told = min(side.telling for side in sides)
    if told < 2:
        return value, None
    pulls = [side.pulls(weight) for side, weight in zip(sides, weights, strict=True)]
    apart = np.asarray(second[:, 4:], dtype=np.float64) - np.asarray(first[:, 4:])
    more = max((side.part / side.labels) ** 2 for side in sides) if apart.any() else 0.0
    reach = t_quantile(1 - tail(confidence), told - 1)
    half = reach * math.sqrt(_variance(pulls[1] - pulls[0], told) + _ONE_MORE * more)
    return value, (max(value - half, -1.0), min(value + half, 1.0))


@dataclass(frozen=True, eq=False)
class _Parts:
    """The counts of each group, and what they sum to."""

    judged: Values
    called: Values
    known: Values
    right: Values
    seen: Values
    true: Values
    seen_called: Values

    @property
    def labels(self) -> int:
        return int(self.seen.sum())

    @property
    def telling(self) -> int:
        """How many groups have labels."""
        return int(np.count_nonzero(self.seen))

    @property
    def every(self) -> float:
        return float(self.judged.sum() + self.known.sum())

    @property
    def part(self) -> float:
        """The part of the share that is the judge's."""
        return float(self.judged.sum()) / self.every

    def best_weight(self) -> float:
        """The weight of the judge's word that makes the variance over groups least."""
        people, judge = self._pulls()
        square = float((judge * judge).sum())
        return min(max(float((people * judge).sum()) / square, 0.0), 1.0) if square else 0.0

    def share(self, weight: float) -> float:
        """The share, which may come to lie a little outside of 0 to 1."""
        judged, right = float(self.judged.sum()), float(self.right.sum())
        return (self._judged_share(weight) * judged + right) / self.every

    def pulls(self, weight: float) -> Values:
        """How far each group draws the share away from where it would be without it."""
        people, judge = self._pulls()
        own = self._judged_share(weight) * self.judged + self.right
        own -= self.share(weight) * (self.judged + self.known)
        return np.asarray(self.part * (people - weight * judge) + own / self.every)

    def _judged_share(self, weight: float) -> float:
        every = float(self.called.sum() / self.judged.sum())
        some = float(self.seen_called.sum() / self.labels)
        return float(self.true.sum()) / self.labels + weight * (every - some)

    def _pulls(self) -> tuple[Values, Values]:
        """Of people's share, and of the judge's on what people saw less that on everything."""
        some = _pull(self.seen_called, self.seen)
        return _pull(self.true, self.seen), some - _pull(self.called, self.judged)


def _parts(groups: Values) -> _Parts:
    table = np.asarray(groups, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(COLUMNS):
        raise UsageError(f"a row of groups is {', '.join(COLUMNS)}, not {table.shape[1:]}")
    judged, called, known, right, tp, fn, tn, fp = table.T
    if (tp + fn + tn + fp > judged).any():
        raise UsageError("more labels than judged things; only those of the share's own count")
    return _Parts(judged, called, known, right, tp + fn + tn + fp, tp + fn, tp + fp)


def _pull(part: Values, whole: Values) -> Values:
    total = whole.sum()
    return np.asarray((part - part.sum() / total * whole) / total)


def _variance(pulls: Values, telling: int) -> float:
    """Of their sum. Groups with labels decide most of it, so they are what is few or many."""
    return math.fsum((pulls * pulls).tolist()) * telling / (telling - 1)


def _wilson(share: float, variance: float, reach: float, least: float) -> tuple[float, float]:
    """Wilson's interval of as many independent things as would have this variance."""
    # At an end itself no number of things has a variance.
    mean = min(max(share, least / 2), 1 - least / 2)
    square = reach * reach * variance / (mean * (1 - mean))
    centre = (mean + square / 2) / (1 + square)
    half = math.sqrt(mean * (1 - mean) * square + square * square / 4) / (1 + square)
    return max(0.0, centre - half), min(1.0, centre + half)
