"""The true share behind an imperfect judge's share, with intervals.

A judge finds ``sensitivity`` of what is relevant and passes over ``specificity`` of what is
not. Where both are known, Rogan and Gladen's formula turns the share that it calls relevant
into the share that is. Both come from things that people judged too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
COLUMNS = ("judged", "judged_relevant", "known", "known_relevant", "tp", "fn", "tn", "fp")
# The columns of the judge's good and bad answers.
_RATES = {"sensitivity": (4, 5), "specificity": (6, 7)}


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
        """Return the number of things that people call relevant."""
        return self.tp + self.fn

    @property
    def others(self) -> int:
        """Return the number of things that people call not relevant."""
        return self.tn + self.fp

    @property
    def sensitivity(self) -> float | None:
        """Return the share of relevant things that the judge calls relevant."""
        return self.tp / self.relevant if self.relevant else None

    @property
    def specificity(self) -> float | None:
        """Return the share of non-relevant things that the judge calls non-relevant."""
        return self.tn / self.others if self.others else None

    @property
    def informed(self) -> float | None:
        """Return Youden's J, s + t - 1: 1 for a perfect judge, 0 for one that guesses."""
        if self.sensitivity is None or self.specificity is None:
            return None
        return self.sensitivity + self.specificity - 1


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of a share: things judged by the judge only, and by people."""

    judged: int
    judged_relevant: int
    known: int = 0
    known_relevant: int = 0

    @property
    def raw(self) -> float | None:
        """Return the share as it was counted."""
        every = self.judged + self.known
        return (self.judged_relevant + self.known_relevant) / every if every else None


@dataclass(frozen=True, slots=True)
class DrawnInterval:
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
    true_share = rogan_gladen(share, judge.sensitivity, judge.specificity)
    if true_share is None or not counted.known:
        return true_share
    every = counted.judged + counted.known
    return (true_share * counted.judged + counted.known_relevant) / every


def beta_interval(
    counted: Counted,
    judge: Confusion,
    *,
    confidence: float = 0.95,
    draws: int = BETA_DRAWS,
    seed: int = 0,
) -> DrawnInterval | None:
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
    shares, usable = _corrected_draws(share, sensitivity, specificity)
    if counted.known:
        known = _beta(rng, counted.known_relevant, counted.known - counted.known_relevant, draws)
        weight = counted.judged / (counted.judged + counted.known)
        shares = weight * shares + (1 - weight) * known[usable]
    n = len(shares)
    each_side = tail(confidence)
    low, high = int(each_side * n), int((1 - each_side) * n) - 1
    if high < low:
        return None
    shares = np.sort(shares)
    ends, drawn = (float(shares[low]), float(shares[high])), ("share", *_RATES)
    return DrawnInterval(*ends, float(shares.mean()), draws, draws - n, drawn)


def cluster_interval(groups: Values, plan: Resampling) -> DrawnInterval | None:
    """Return an interval by resampling whole groups, such as the things of one query.

    ``groups`` has one row per group and its counts in ``COLUMNS``. The judged share, sensitivity
    and specificity of a resample all come from the groups drawn for it, so what the share and
    the rates owe to the same things moves together. The ends reach as far as Student's t does
    with one degree of freedom less than there are groups that inform the rarest of the three.

    A rate that was never seen to fail (or to hold), or was seen in one group only, would not
    vary over resamples at all: it is drawn from Beta(good + 1, bad + 1) instead. None with
    fewer than two groups that hold anything judged.
    """
    return _by_cluster([_checked(groups)], plan)


def cluster_difference(first: Values, second: Values, plan: Resampling) -> DrawnInterval | None:
    """Return the interval of the second corrected share less the first, by the same resamples.

    Row g of both is of the same group, and both have the same judge: its tp, fn, tn and fp are
    equal. What both shares owe to the same queries and to the judge's rates cancels, so this is
    shorter than two intervals make believe.
    """
    sides = [_checked(first), _checked(second)]
    if not np.array_equal(sides[0][:, 4:], sides[1][:, 4:]):
        raise UsageError("two shares are compared by one judge, in the same groups")
    return _by_cluster(sides, plan)


def _checked(groups: Values) -> Values:
    table = np.asarray(groups, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != len(COLUMNS):
        raise UsageError(f"a row of groups is {', '.join(COLUMNS)}, not {table.shape[1:]}")
    return table


def _by_cluster(tables: Sequence[Values], plan: Resampling) -> DrawnInterval | None:
    """Return the interval of a corrected share, or of the second share less the first."""
    counts = [int(np.count_nonzero(table[:, 0] + table[:, 2])) for table in tables]
    if min(counts) < 2:
        return None
    judge, informed = tables[0], counts[:1]
    sums = resampled_means(np.hstack([judge, *(table[:, :4] for table in tables[1:])]), plan)
    rng = np.random.default_rng([plan.seed, len(judge), len(COLUMNS)])
    rates, drawn = [], []
    for name, (good, bad) in _RATES.items():
        answers = judge[:, [good, bad]]
        telling = int(np.count_nonzero(answers.sum(axis=1)))
        if telling < 2 or not answers.sum(axis=0).all():
            drawn.append(name)
            goods, bads = answers.sum(axis=0)
            rates.append(_beta(rng, goods, bads, len(sums)))
        else:
            informed.append(telling)
            rates.append(_ratio(sums[:, good], sums[:, good] + sums[:, bad]))
    shares = []
    for start in (0, len(COLUMNS))[: len(tables)]:
        judged, relevant, known, known_relevant = sums[:, start : start + 4].T
        # A resample may hold nothing that the judge judged, and still what people did.
        judged_share = np.where(judged > 0, _ratio(relevant, judged), 0.0)
        true_share, usable = _corrected_draws(judged_share, rates[0], rates[1])
        of_side = np.full(len(sums), np.nan)
        right = true_share * judged[usable] + known_relevant[usable]
        of_side[usable] = _ratio(right, (judged + known)[usable])
        shares.append(of_side)
    every = shares[0] if len(shares) == 1 else shares[1] - shares[0]
    values = np.sort(every[~np.isnan(every)])
    if len(values) < 2:
        return None
    reach = two_sided_t(plan.confidence, min(informed) - 1)
    places = np.array([NORMAL.cdf(-reach), NORMAL.cdf(reach)]) * (len(values) - 1)
    low, high = np.interp(places, np.arange(len(values)), values).tolist()
    skipped = len(every) - len(values)
    return DrawnInterval(low, high, float(values.mean()), len(every), skipped, tuple(drawn))


def _beta(rng: np.random.Generator, good: float, bad: float, draws: int) -> Values:
    return rng.beta(good + 1, bad + 1, draws)


def _ratio(part: Values, whole: Values) -> Values:
    """Return shares, NaN where there is nothing to take a share of."""
    shares: Values = np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return shares


def _corrected_draws(
    share: Values, sensitivity: Values, specificity: Values
) -> tuple[Values, NDArray[np.bool_]]:
    """Return the corrected shares of the draws whose judge beats chance, and which these are."""
    informed = sensitivity + specificity - 1
    usable = np.asarray(informed > 0)
    shares = (share[usable] + specificity[usable] - 1) / informed[usable]
    return np.clip(shares, 0.0, 1.0), usable


@dataclass(frozen=True, slots=True)
class PredictionPowered:
    """A share, its interval, and its evidence.

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


def prediction_powered(groups: Values, *, confidence: float = 0.95) -> PredictionPowered | None:
    """Return the true share behind what a judge counted, from labels of a uniform sample of it.

    ``groups`` has a row for each group of things that belong together, such as those of one
    query, with its counts in the ``COLUMNS`` of a calibration, where tp, fn, tn and fp are only
    those of things that the share is made of and nobody knew before. The judge's word has the
    weight that makes the variance over groups least (Angelopoulos and others, 2023: PPI++).

    The interval is Wilson's, of as many labels as would make the same variance, with Student's
    quantile of one degree of freedom less than there are groups with labels, and one
    disagreement more than was seen in the variance. None where people judged nothing of it.
    """
    side = _powered(groups)
    if side is None:
        return None
    value = min(max(side.share, 0.0), 1.0)
    if side.groups < 2:
        return PredictionPowered(value, None, None, side.weight, side.labels, side.groups)
    variance = _variance(side.pulls, side.groups) + side.one_more
    reach = t_quantile(1 - tail(confidence), side.groups - 1)
    low, high = _wilson(side.share, variance, reach, 1 / side.size)
    low, high = min(low, value), max(high, value)
    return PredictionPowered(value, low, high, side.weight, side.labels, side.groups)


def prediction_powered_difference(
    first: Values, second: Values, *, confidence: float = 0.95
) -> tuple[float, tuple[float, float] | None] | None:
    """Return the second share less the first, and its interval; row g of both is of the same group.

    None where people judged nothing of one of them, no interval where fewer than two groups
    have labels.
    """
    if len(first) != len(second):
        raise UsageError(f"{len(first)} groups and {len(second)}; both shares are of the same")
    a, b = _powered(first), _powered(second)
    if a is None or b is None:
        return None
    value = min(max(b.share - a.share, -1.0), 1.0)
    telling = min(a.groups, b.groups)
    if telling < 2:
        return value, None
    labels_differ = bool(np.not_equal(first[:, 4:], second[:, 4:]).any())
    one_more = max(a.one_more, b.one_more) if labels_differ else 0.0
    reach = t_quantile(1 - tail(confidence), telling - 1)
    half = reach * math.sqrt(_variance(b.pulls - a.pulls, telling) + one_more)
    return value, (max(value - half, -1.0), min(value + half, 1.0))


@dataclass(frozen=True, eq=False)
class _Powered:
    """A prediction-powered share, which may come to lie a little outside of 0 to 1.

    ``pulls`` is how far each group draws the share away from where it would be without it,
    ``one_more`` the variance of one disagreement more, and ``size`` the number of things.
    """

    share: float
    pulls: Values
    weight: float
    labels: int
    groups: int
    one_more: float
    size: float


def _powered(table: Values) -> _Powered | None:
    """Return the share that one side's counts make; None without labels."""
    judged, called, known, right, tp, fn, tn, fp = _checked(table).T
    seen, true, seen_called = tp + fn + tn + fp, tp + fn, tp + fp
    if (seen > judged).any():
        raise UsageError("more labels than judged things; only those of the share's own count")
    labels = int(seen.sum())
    if not labels:
        return None
    people, judge = _pull(true, seen), _pull(seen_called, seen) - _pull(called, judged)
    square = float((judge * judge).sum())
    weight = min(max(float((people * judge).sum()) / square, 0.0), 1.0) if square else 0.0
    size, of_judge = float(judged.sum() + known.sum()), float(judged.sum())
    bias = float(called.sum() / of_judge) - float(seen_called.sum() / labels)
    judged_share = float(true.sum()) / labels + weight * bias
    share = (judged_share * of_judge + float(right.sum())) / size
    counted = judged_share * judged + right
    counted -= share * (judged + known)
    part = of_judge / size
    pulls = np.asarray(part * (people - weight * judge) + counted / size)
    # Few labels may show no disagreement where there is some.
    one_more = (part / labels) ** 2
    groups = int(np.count_nonzero(seen))
    return _Powered(share, pulls, weight, labels, groups, one_more, size)


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
