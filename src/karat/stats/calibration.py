"""The true share behind a share that an imperfect judge counted, and how sure one can be of it.

A judge finds ``sensitivity`` of what is relevant and passes over ``specificity`` of what is
not. Where both are known, Rogan and Gladen's formula turns the share that it calls relevant
into the share that is. Both come from things that people judged too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from karat.errors import UsageError
from karat.stats.distributions import NORMAL, Values, t_quantile, tail, two_sided_t
from karat.stats.means import Resampling, resampled_means

Method = Literal["cluster", "beta", "ppi"]

METHODS: tuple[Method, ...] = ("cluster", "beta", "ppi")
BETA_DRAWS = 5000


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often a judge and people agree on what is relevant (``tp``, ``tn``) and what is not.

    >>> judge = Confusion(tp=360, fn=40, tn=460, fp=140)
    >>> judge.sensitivity, round(judge.specificity, 4)
    (0.9, 0.7667)
    """

    tp: int = 0
    fn: int = 0
    tn: int = 0
    fp: int = 0

    @property
    def relevant(self) -> int:
        """What people call relevant."""
        return self.tp + self.fn

    @property
    def others(self) -> int:
        """What people call not relevant."""
        return self.tn + self.fp

    @property
    def sensitivity(self) -> float | None:
        """The share of what is relevant that the judge calls so."""
        return self.tp / self.relevant if self.relevant else None

    @property
    def specificity(self) -> float | None:
        """The share of what is not relevant that the judge calls so."""
        return self.tn / self.others if self.others else None

    @property
    def informed(self) -> float | None:
        """Youden's J, s + t - 1: 1 for a perfect judge, 0 for one that guesses."""
        if self.sensitivity is None or self.specificity is None:
            return None
        return self.sensitivity + self.specificity - 1


@dataclass(frozen=True, slots=True)
class Counted:
    """What a share is made of: things that only the judge judged, and things that people did."""

    judged: int
    judged_relevant: int
    known: int = 0
    known_relevant: int = 0

    @property
    def raw(self) -> float | None:
        """The share as it was counted."""
        every = self.judged + self.known
        return (self.judged_relevant + self.known_relevant) / every if every else None


@dataclass(frozen=True, slots=True)
class Interval:
    """The ends of an interval, and how it came about.

    ``mean`` is that of the draws. Of these, ``skipped`` had a judge no better than chance, or
    told nothing of it. ``drawn`` names what came from a Beta distribution.
    """

    low: float
    high: float
    mean: float
    draws: int
    skipped: int
    drawn: tuple[str, ...] = ()


def rogan_gladen(share: float, sensitivity: float, specificity: float) -> float | None:
    """Return the true share behind a judged one, (q + t - 1)/(s + t - 1), between 0 and 1.

    None for a judge no better than chance, whose word says nothing.

    >>> round(rogan_gladen(0.74, 0.9, 460 / 600), 12)
    0.76
    """
    informed = sensitivity + specificity - 1
    if informed <= 0:
        return None
    return min(max((share + specificity - 1) / informed, 0.0), 1.0)


def corrected(counted: Counted, judge: Confusion) -> float | None:
    """Return the true share: what people judged counts as they said, the rest is corrected.

    None where the judge is no better than chance, one of its rates is not known, or it judged
    nothing of what the share is made of.
    """
    if not counted.judged or judge.sensitivity is None or judge.specificity is None:
        return None
    share = counted.judged_relevant / counted.judged
    found = rogan_gladen(share, judge.sensitivity, judge.specificity)
    if found is None or not counted.known:
        return found
    every = counted.judged + counted.known
    return (found * counted.judged + counted.known_relevant) / every


def beta_interval(
    counted: Counted,
    judge: Confusion,
    *,
    confidence: float = 0.95,
    draws: int = BETA_DRAWS,
    seed: int = 0,
) -> Interval | None:
    """Return an interval by draws from Beta distributions, as if all things were independent.

    The judged share comes from Beta(K + 1, N - K + 1), sensitivity from Beta(TP + 1, FN + 1)
    and specificity from Beta(TN + 1, FP + 1); draws with s + t <= 1 are skipped, and the ends
    are the sorted draws at int(a/2 n) and int((1 - a/2) n) - 1.
    """
    if not counted.judged:
        return None
    rng = np.random.default_rng(seed)
    share = _beta(rng, counted.judged_relevant, counted.judged - counted.judged_relevant, draws)
    sensitivity = _beta(rng, judge.tp, judge.fn, draws)
    specificity = _beta(rng, judge.tn, judge.fp, draws)
    found, kept = _corrected_draws(share, sensitivity, specificity)
    if counted.known:
        known = _beta(rng, counted.known_relevant, counted.known - counted.known_relevant, draws)
        weight = counted.judged / (counted.judged + counted.known)
        found = weight * found + (1 - weight) * known[kept]
    n = len(found)
    each_side = tail(confidence)
    low, high = int(each_side * n), int((1 - each_side) * n) - 1
    if high < low:
        return None
    found = np.sort(found)
    return Interval(
        float(found[low]),
        float(found[high]),
        float(found.mean()),
        draws,
        draws - n,
        ("share", "sensitivity", "specificity"),
    )


COLUMNS = ("judged", "judged_relevant", "known", "known_relevant", "tp", "fn", "tn", "fp")
# Where good and bad answers of the judge stand among them.
_RATES = {"sensitivity": (4, 5), "specificity": (6, 7)}


def cluster_interval(groups: Values, plan: Resampling) -> Interval | None:
    """Return an interval by resampling whole groups, such as the things of one query.

    ``groups`` has one row per group and its counts in ``COLUMNS``. The judged share, sensitivity
    and specificity of a resample all come from the groups drawn for it, so what the share and
    the rates owe to the same things moves together. The ends reach as far as Student's t does
    with one degree of freedom less than there are groups that inform the rarest of the three.

    A rate that was never seen to fail (or to hold), or was seen in one group only, would not
    vary over resamples at all: it is drawn from Beta(good + 1, bad + 1) instead. None with
    fewer than two groups that hold anything judged.
    """
    table = _checked(groups)
    if np.count_nonzero(table[:, 0] + table[:, 2]) < 2:
        return None
    drawn = _Drawn.of(table, plan)
    return _between(drawn.shares(0), drawn, plan)


def cluster_difference(first: Values, second: Values, plan: Resampling) -> Interval | None:
    """Return the interval of the second corrected share less the first, by the same resamples.

    Row g of both is of the same group, and both have the same judge: its tp, fn, tn and fp are
    equal. What both shares owe to the same queries and to the judge's rates cancels, so this is
    shorter than two intervals make believe.
    """
    one, other = _checked(first), _checked(second)
    if not np.array_equal(one[:, 4:], other[:, 4:]):
        raise UsageError("two shares are compared by one judge, in the same groups")
    holding = (side[:, 0] + side[:, 2] for side in (one, other))
    if min(map(np.count_nonzero, holding)) < 2:
        return None
    drawn = _Drawn.of(np.hstack([one, other[:, :4]]), plan)
    return _between(drawn.shares(len(COLUMNS)) - drawn.shares(0), drawn, plan)


def _checked(groups: Values) -> Values:
    table = np.asarray(groups, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(COLUMNS):
        raise UsageError(f"a row of groups is {', '.join(COLUMNS)}, not {table.shape[1:]}")
    return table


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Resamples: the mean counts of each, the judge's rates, and how many groups tell them."""

    sums: Values
    rates: tuple[Values, Values]
    drawn: tuple[str, ...]
    informed: int

    @classmethod
    def of(cls, table: Values, plan: Resampling) -> _Drawn:
        sums = resampled_means(table, plan)
        rng = np.random.default_rng([plan.seed, len(table), len(COLUMNS)])
        rates, informed = [], [int(np.count_nonzero(table[:, 0] + table[:, 2]))]
        drawn = tuple(name for name, places in _RATES.items() if _too_little(table[:, places]))
        for name, (good, bad) in _RATES.items():
            if name in drawn:
                rates.append(_beta(rng, table[:, good].sum(), table[:, bad].sum(), len(sums)))
            else:
                rates.append(_ratio(sums[:, good], sums[:, good] + sums[:, bad]))
                informed.append(int(np.count_nonzero(table[:, good] + table[:, bad])))
        return cls(sums, (rates[0], rates[1]), drawn, min(informed))

    def shares(self, at: int) -> Values:
        """Return the corrected share of every resample, its counts from this column on.

        NaN where a resample tells none.
        """
        judged, relevant, known, known_relevant = self.sums[:, at : at + 4].T
        # A resample may hold nothing that the judge judged, and still what people did.
        share = np.where(judged > 0, _ratio(relevant, judged), 0.0)
        found, kept = _corrected_draws(share, *self.rates)
        shares = np.full(len(share), np.nan)
        right = found * judged[kept] + known_relevant[kept]
        shares[kept] = _ratio(right, (judged + known)[kept])
        return shares


def _between(values: Values, drawn: _Drawn, plan: Resampling) -> Interval | None:
    """Return the interval of what the resamples tell; None where fewer than two do."""
    found = np.sort(values[~np.isnan(values)])
    if len(found) < 2:
        return None
    reach = two_sided_t(plan.confidence, drawn.informed - 1)
    shares = np.array([NORMAL.cdf(-reach), NORMAL.cdf(reach)])
    low, high = np.interp(shares * (len(found) - 1), np.arange(len(found)), found).tolist()
    mean, skipped = float(found.mean()), len(values) - len(found)
    return Interval(low, high, mean, len(values), skipped, drawn.drawn)


def _too_little(answers: Values) -> bool:
    """Return whether good and bad answers, one row per group, would hardly vary over resamples."""
    return bool(np.count_nonzero(answers.sum(axis=1)) < 2 or not answers.sum(axis=0).all())


def _beta(rng: np.random.Generator, good: float, bad: float, draws: int) -> Values:
    return rng.beta(good + 1, bad + 1, draws)


def _ratio(part: Values, whole: Values) -> Values:
    """Shares, NaN where there is nothing to take a share of."""
    shares: Values = np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return shares


def _corrected_draws(
    share: Values, sensitivity: Values, specificity: Values
) -> tuple[Values, NDArray[np.bool_]]:
    """Return the corrected shares of the draws whose judge beats chance, and which these are."""
    informed = sensitivity + specificity - 1
    kept = np.asarray(informed > 0)
    found = (share[kept] + specificity[kept] - 1) / informed[kept]
    return np.clip(found, 0.0, 1.0), kept


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
    """Return the true share behind what a judge counted, from labels of a uniform sample of it.

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
    """Return the second share less the first, and its interval; row g of both is of the same group.

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
        """Return the weight of the judge's word that makes the variance over groups least."""
        people, judge = self._pulls()
        square = float((judge * judge).sum())
        return min(max(float((people * judge).sum()) / square, 0.0), 1.0) if square else 0.0

    def share(self, weight: float) -> float:
        """Return the share, which may come to lie a little outside of 0 to 1."""
        judged, right = float(self.judged.sum()), float(self.right.sum())
        return (self._judged_share(weight) * judged + right) / self.every

    def pulls(self, weight: float) -> Values:
        """Return how far each group draws the share away from where it would be without it."""
        people, judge = self._pulls()
        own = self._judged_share(weight) * self.judged + self.right
        own -= self.share(weight) * (self.judged + self.known)
        return np.asarray(self.part * (people - weight * judge) + own / self.every)

    def _judged_share(self, weight: float) -> float:
        every = float(self.called.sum() / self.judged.sum())
        some = float(self.seen_called.sum() / self.labels)
        return float(self.true.sum()) / self.labels + weight * (every - some)

    def _pulls(self) -> tuple[Values, Values]:
        """Return the pulls on people's share, and on the judge's bias."""
        some = _pull(self.seen_called, self.seen)
        return _pull(self.true, self.seen), some - _pull(self.called, self.judged)


def _parts(groups: Values) -> _Parts:
    table = _checked(groups)
    judged, called, known, right, tp, fn, tn, fp = table.T
    if (tp + fn + tn + fp > judged).any():
        raise UsageError("more labels than judged things; only those of the share's own count")
    return _Parts(judged, called, known, right, tp + fn + tn + fp, tp + fn, tp + fp)


def _pull(part: Values, whole: Values) -> Values:
    total = whole.sum()
    return np.asarray((part - part.sum() / total * whole) / total)


def _variance(pulls: Values, telling: int) -> float:
    """Return the variance of the sum; groups with labels decide most of it."""
    return math.fsum((pulls * pulls).tolist()) * telling / (telling - 1)


def _wilson(share: float, variance: float, reach: float, least: float) -> tuple[float, float]:
    """Return Wilson's interval of as many independent things as would have this variance."""
    # At an end itself no number of things has a variance.
    mean = min(max(share, least / 2), 1 - least / 2)
    square = reach * reach * variance / (mean * (1 - mean))
    centre = (mean + square / 2) / (1 + square)
    half = math.sqrt(mean * (1 - mean) * square + square * square / 4) / (1 + square)
    return max(0.0, centre - half), min(1.0, centre + half)
