"""Judges with known sensitivity and specificity on sets with a known share of relevant items.

``python tests/stats/simulated_judges.py`` prints how often each interval holds the truth, as
docs/calibrate-a-judge.md shows it; the tests do the same with fewer sets.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from karat.stats.bootstrap import Resampling
from karat.stats.calibration import (
    COLUMNS,
    Confusion,
    Counted,
    beta_interval,
    cluster_interval,
    corrected,
)
from karat.stats.proportions import wilson

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class World:
    """Queries with k items each, of which ``share`` is relevant, and a judge that errs.

    ``alike`` says that items of a query are alike: its own share, sensitivity and specificity
    vary about those of the world. People judge ``labels`` pairs: drawn from all, or those of
    whole queries, or of other queries that the share is not made of.
    """

    queries: int
    k: int
    share: float
    sensitivity: float
    specificity: float
    labels: int
    alike: bool = False
    people: Literal["any pairs", "whole queries", "other queries"] = "any pairs"

    def groups(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """One simulated set: the counts of each query in ``COLUMNS``."""
        truth, judge = self._judged(rng, self.queries)
        seen = np.zeros(truth.shape, dtype=bool)
        if self.people == "any pairs":
            seen.ravel()[rng.choice(truth.size, self.labels, replace=False)] = True
        elif self.people == "whole queries":
            seen[rng.choice(self.queries, self.labels // self.k, replace=False)] = True
        table = _counts(truth, judge, seen, shown=True)
        if self.people != "other queries":
            return table
        truth, judge = self._judged(rng, self.labels // self.k)
        others = _counts(truth, judge, np.ones(truth.shape, dtype=bool), shown=False)
        return np.vstack([table, others])

    def _judged(self, rng: np.random.Generator, n: int) -> tuple[Flags, Flags]:
        """What is relevant, and what the judge calls so."""
        share, found, passed = (
            self._rates(rng, rate, n, spread)
            for rate, spread in ((self.share, 1), (self.sensitivity, 4), (self.specificity, 4))
        )
        truth = rng.random((n, self.k)) < share
        chance = rng.random((n, self.k))
        return truth, np.where(truth, chance < found, chance >= passed)

    def _rates(self, rng: np.random.Generator, rate: float, n: int, spread: float):
        if not self.alike:
            return np.full((n, 1), rate)
        return rng.beta(rate * spread, (1 - rate) * spread, (n, 1))


def _counts(truth: Flags, judge: Flags, seen: Flags, *, shown: bool) -> NDArray[np.float64]:
    nothing = np.zeros(len(truth))
    columns = {
        "judged": np.full(len(truth), truth.shape[1] * shown),
        "judged_relevant": judge.sum(axis=1) * shown,
        "known": nothing,
        "known_relevant": nothing,
        "tp": (seen & truth & judge).sum(axis=1),
        "fn": (seen & truth & ~judge).sum(axis=1),
        "tn": (seen & ~truth & ~judge).sum(axis=1),
        "fp": (seen & ~truth & judge).sum(axis=1),
    }
    return np.stack([columns[name] for name in COLUMNS], axis=1).astype(np.float64)


def held(world: World, *, sets: int, resamples: int = 500, seed: int = 0) -> dict[str, float]:
    """How often the raw interval and each corrected one hold the true share.

    A set on which the judge looks no better than chance has no corrected number, and is
    drawn again.
    """
    rng = np.random.default_rng(seed)
    hits = dict.fromkeys(("raw", "beta", "cluster"), 0)
    done = 0
    while done < sets:
        groups = world.groups(rng)
        judged, relevant, _, _, *cells = (int(one) for one in groups.sum(axis=0))
        judge, counted = Confusion(*cells), Counted(judged, relevant)
        if corrected(counted, judge) is None:
            continue
        by_beta = beta_interval(counted, judge, draws=1000, seed=done)
        by_cluster = cluster_interval(groups, Resampling(resamples=resamples, seed=done))
        assert by_beta is not None
        assert by_cluster is not None
        ends = {
            "raw": wilson(relevant / judged, judged),
            "beta": (by_beta.low, by_beta.high),
            "cluster": (by_cluster.low, by_cluster.high),
        }
        for name, (low, high) in ends.items():
            hits[name] += low <= world.share <= high
        done += 1
    return {name: count / sets for name, count in hits.items()}


WORLDS = [
    World(*size, labels=labels, alike=alike, people=people)
    for size, labels in (
        ((200, 5, 0.3, 0.9, 0.77), 200),
        ((200, 5, 0.1, 0.95, 0.95), 60),
        ((40, 20, 0.5, 0.98, 0.98), 400),
        ((40, 20, 0.6, 0.7, 0.65), 400),
    )
    for alike in (False, True)
    for people in ("any pairs", "whole queries", "other queries")
]


if __name__ == "__main__":
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("| queries × items | share, s, t | labels | items of a query | raw | beta | cluster |")
    print("|---|---|---|---|---|---|---|")
    for one in WORLDS:
        rates = f"{one.share:g}, {one.sensitivity:g}, {one.specificity:g}"
        alike = "alike" if one.alike else "independent"
        shares = " | ".join(f"{share:.2f}" for share in held(one, sets=sets).values())
        labels = f"{one.labels} of {one.people}"
        print(f"| {one.queries} × {one.k} | {rates} | {labels} | {alike} | {shares} |", flush=True)
