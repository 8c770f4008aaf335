"""How often intervals hold the true share behind what an imperfect judge counted.

Simulates judges with known sensitivity and specificity on sets with a known share of relevant
items, where items of one query may be alike. Writes JUDGES.md, which names every interval of whole
queries that holds the truth less often than required. The tests do the same with fewer sets.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

# One thread a process: the worlds run side by side. Read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from karat.stats.calibration import (
    COLUMNS,
    Confusion,
    Counted,
    beta_interval,
    cluster_interval,
    corrected,
    prediction_powered,
)
from karat.stats.distributions import wilson
from karat.stats.means import Resampling

Flags = NDArray[np.bool_]
Ends = tuple[float, float] | None
NAMES = ("raw", "beta", "cluster", "ppi")
# What bench/simulate.py asks of intervals of means, too.
REQUIRED = 0.93


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

    def _rates(
        self, rng: np.random.Generator, rate: float, n: int, spread: float
    ) -> NDArray[np.float64]:
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


def intervals(groups: NDArray[np.float64], resamples: int, seed: int) -> dict[str, Ends] | None:
    """The raw interval of a set and each corrected one; None where nothing can be corrected."""
    judged, relevant, _, _, *cells = (int(one) for one in groups.sum(axis=0))
    judge, counted = Confusion(*cells), Counted(judged, relevant)
    if corrected(counted, judge) is None:
        return None
    by_beta = beta_interval(counted, judge, draws=1000, seed=seed)
    by_cluster = cluster_interval(groups, Resampling(resamples=resamples, seed=seed))
    return {
        "raw": wilson(relevant / judged, judged),
        "beta": None if by_beta is None else (by_beta.low, by_beta.high),
        "cluster": None if by_cluster is None else (by_cluster.low, by_cluster.high),
        "ppi": _powered(groups),
    }


def _powered(groups: NDArray[np.float64]) -> Ends:
    """None where people judged pairs that the share is not made of."""
    if (groups[:, 4:].sum(axis=1) > groups[:, 0]).any():
        return None
    found = prediction_powered(groups)
    if found is None or found.low is None or found.high is None:
        return None
    return found.low, found.high


@dataclass(frozen=True)
class Held:
    """How often an interval held the truth, and how wide it was; None where there was none."""

    share: float | None
    width: float | None


def held(world: World, *, sets: int, resamples: int = 500, seed: int = 1) -> dict[str, Held]:
    """How often the raw interval and each corrected one hold the true share.

    A set on which the judge looks no better than chance has no corrected number, and is
    drawn again.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[Ends]] = {name: [] for name in NAMES}
    done = 0
    while done < sets:
        ends = intervals(world.groups(rng), resamples, done)
        if ends is None:
            continue
        for name in NAMES:
            found[name].append(ends[name])
        done += 1
    return {name: _held(every, world.share) for name, every in found.items()}


def _held(every: list[Ends], truth: float) -> Held:
    told = [ends for ends in every if ends is not None]
    if not told:
        return Held(None, None)
    return Held(
        sum(low <= truth <= high for low, high in told) / len(told),
        sum(high - low for low, high in told) / len(told),
    )


JUDGES = {
    "a lenient judge": ((200, 5, 0.3, 0.9, 0.77), 200),
    "a good judge, few labels, little relevant": ((200, 5, 0.1, 0.95, 0.95), 60),
    "a good judge, few queries": ((40, 20, 0.5, 0.98, 0.98), 400),
    "a poor judge": ((40, 20, 0.6, 0.7, 0.65), 400),
    "few labels": ((100, 5, 0.5, 0.9, 0.9), 50),
    "many queries": ((1000, 5, 0.2, 0.9, 0.95), 200),
    # The recipes were chosen on the judges above, and not on these.
    "not chosen by: a strict judge": ((60, 10, 0.2, 0.8, 0.9), 120),
    "not chosen by: very few queries": ((25, 10, 0.7, 0.9, 0.6), 100),
    "not chosen by: hardly anything relevant": ((300, 3, 0.05, 0.9, 0.97), 150),
    "not chosen by: nearly all relevant": ((50, 10, 0.9, 0.7, 0.7), 60),
}
WORLDS = [
    (name, World(*size, labels=labels, alike=alike, people=people))
    for name, (size, labels) in JUDGES.items()
    for alike in (False, True)
    for people in ("any pairs", "whole queries", "other queries")
]


def table(worlds: list[tuple[str, World]], results: list[dict[str, Held]]) -> Iterator[str]:
    heads = ["judge", "queries × items", "share, s, t", "labels", "items of a query", *NAMES]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join(['---'] * 5 + ['---:'] * len(NAMES))}|"
    for (name, one), found in zip(worlds, results, strict=True):
        cells = [
            name,
            f"{one.queries} × {one.k}",
            f"{one.share:g}, {one.sensitivity:g}, {one.specificity:g}",
            f"{one.labels} of {one.people}",
            "alike" if one.alike else "independent",
            *(_cell(found[name]) for name in NAMES),
        ]
        yield f"| {' | '.join(cells)} |"


def _cell(one: Held) -> str:
    return "–" if one.share is None else f"{100 * one.share:.1f}% ({one.width:.2f})"


def below(worlds: list[tuple[str, World]], results: list[dict[str, Held]]) -> list[str]:
    """The intervals of whole queries that hold the truth less often than required."""
    found = []
    for (name, one), cells in zip(worlds, results, strict=True):
        for method in ("cluster", "ppi"):
            share = cells[method].share
            if share is not None and share < REQUIRED:
                alike = "alike" if one.alike else "independent"
                told = f"{name}, {one.labels} of {one.people}, {alike}"
                found.append(f"*{method}* of *{told}* ({100 * share:.1f}%)")
    return found


PAGE = """# How often the intervals of a judged share hold the truth

Made by `python bench/judges.py` in {minutes}: {sets:,} simulated sets a row, 95 % intervals,
{resamples:,} resamples, seed {seed}. A cell is how often the interval held the true share, and how
wide it was in the mean. *raw* is Wilson's interval of the judge's own share, *beta* and *cluster*
are those of Rogan and Gladen's correction, *ppi* is prediction-powered; it needs labels of the
pairs that the share is made of, so it has none where people judged other queries.

Required of *cluster* and *ppi*: at least {required:.0%}, as of intervals of means. Of {cells} such
cells {short} below{named} *raw* and *beta* are shown for what they are.

{table}

*Alike*: each query has its own share of relevant items, from Beta(p, 1 − p), and its own
sensitivity and specificity, from Beta(4r, 4(1 − r)). Sets on which the judge looks no better than
chance have no corrected number, and are drawn again.

The recipe of *ppi* was chosen among eight by simulating the other judges with another seed. One
detail of it, that queries with labels and not all queries count in the small-sample factor, was
changed after a look at those *not chosen by*, with another seed again.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("JUDGES.md"))
    chosen = parser.parse_args()
    started = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        simulate = partial(held, sets=chosen.sets, resamples=chosen.resamples, seed=chosen.seed)
        results = list(pool.map(simulate, (one for _, one in WORLDS)))
    named = below(WORLDS, results)
    cells = sum(one[name].share is not None for one in results for name in ("cluster", "ppi"))
    minutes = max(1, round((time.perf_counter() - started) / 60))
    page = PAGE.format(
        minutes=f"{minutes} minute{'s' * (minutes > 1)}",
        sets=chosen.sets,
        resamples=chosen.resamples,
        seed=chosen.seed,
        required=REQUIRED,
        cells=cells,
        short=f"{len(named)} {'is' if len(named) == 1 else 'are'}",
        named=f": {'; '.join(named)}." if named else ".",
        table="\n".join(table(WORLDS, results)),
    )
    chosen.output.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
