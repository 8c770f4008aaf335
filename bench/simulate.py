"""How often 95 % intervals hold the truth, and how often tests reject where nothing differs.

Simulates sets of queries whose true mean is known. Writes COVERAGE.md and exits 1 if an
interval holds the truth less or more often than required, or a test rejects too often.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

# One thread a process: the cases run side by side. Read when numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from karat.stats.bootstrap import Resampling, mean_intervals
from karat.stats.paired import all_pairs, randomisation, t_test, wilcoxon

Values = NDArray[np.float64]
Draw = Callable[[float, np.random.Generator, tuple[int, int]], Values]

MEANS = (0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98)
SIZES = (20, 50, 100, 200, 500, 2000)
# Simulated sets that share their resamples.
TOGETHER = 500
LEVEL = 0.05
# Tests are simulated more often than their limit allows for, so that luck decides no row.
MORE = 5


def hit(mean: float, rng: np.random.Generator, size: tuple[int, int]) -> Values:
    """0 or 1."""
    return (rng.random(size) < mean).astype(np.float64)


def single_gold_precision(mean: float, rng: np.random.Generator, size: tuple[int, int]) -> Values:
    """P@5 of a single gold item: 0 or 0.2."""
    return 0.2 * hit(5 * mean, rng, size)


def partly_graded(mean: float, rng: np.random.Generator, size: tuple[int, int]) -> Values:
    """0, 1, or anything between."""
    graded = min(mean, 1 - mean)
    rest = (mean - graded / 2) / (1 - graded)
    return np.where(rng.random(size) < graded, rng.random(size), rng.random(size) < rest)


def by_rank(gains: Values, mean: float, rng: np.random.Generator, size: tuple[int, int]) -> Values:
    """The gain at the rank of a single gold item, which is geometric; 0 beyond rank 10."""
    low, high = 0.0, 1.0
    for _ in range(60):
        chance = (low + high) / 2
        reached = (gains * chance * (1 - chance) ** np.arange(len(gains))).sum()
        low, high = (chance, high) if reached < mean else (low, chance)
    return np.append(gains, 0.0)[np.minimum(rng.geometric(chance, size), len(gains) + 1) - 1]


def ndcg_like(mean: float, rng: np.random.Generator, size: tuple[int, int]) -> Values:
    """Failures at 0, perfect lists at 1, and a skewed beta between."""
    zeros, ones = 0.6 * (1 - mean), 0.4 * mean
    centre = (mean - ones) / (1 - zeros - ones)
    between = rng.beta(4 * centre, 4 * (1 - centre), size)
    return np.select([(at := rng.random(size)) < zeros, at < zeros + ones], [0.0, 1.0], between)


def narrow_beta(mean: float, rng: np.random.Generator, size: tuple[int, int]) -> Values:
    """No ends at all, and little spread."""
    return rng.beta(8 * mean, 8 * (1 - mean), size)


def recall_of_two(mean: float, rng: np.random.Generator, size: tuple[int, int]) -> Values:
    """0, 1/2 or 1."""
    return rng.binomial(2, mean, size) / 2


def sizes_of_groups(n: int) -> NDArray[np.int64]:
    """The group of each row: groups of one to four rows."""
    return np.repeat(np.arange(n), 1 + np.arange(n) % 4)


def grouped_recall(mean: float, rng: np.random.Generator, size: tuple[int, int]) -> Values:
    """Recall of two, where the queries of a group are equally hard."""
    group = sizes_of_groups(size[0])
    ease = rng.beta(2 * mean, 2 * (1 - mean), size)[group]
    return rng.binomial(2, ease) / 2


SHAPES: dict[str, Draw] = {
    "0/1": hit,
    "P@5, one gold": single_gold_precision,
    "0/1 and uniform": partly_graded,
    "RR@10": partial(by_rank, 1 / np.arange(1, 11)),
    "nDCG@10, one gold": partial(by_rank, 1 / np.log2(np.arange(2, 12))),
    "nDCG-like": ndcg_like,
    "beta": narrow_beta,
    "R of two gold": recall_of_two,
    "by group": grouped_recall,
}
TWO_VALUED = {"0/1": 1.0, "P@5, one gold": 0.2}


@dataclass(frozen=True)
class Case:
    """Sets of one shape, true mean and size."""

    shape: str
    mean: float
    n: int

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(repr(self).encode()))

    @property
    def weight(self) -> float:
        """The expected number of queries' worth of success, or of failure if that is less."""
        return self.n * min(self.mean, 1 - self.mean)

    @property
    def band(self) -> tuple[float, float]:
        """How often the interval has to hold the truth."""
        return (0.92, 0.98) if self.weight >= 5 - 1e-9 else (0.93, 1.0)


@dataclass(frozen=True)
class Outcome:
    """What came out: how often the interval lay around, below and above the truth."""

    case: Case
    held: float
    below: float
    above: float
    width: float
    exact: float | None
    simulations: int

    @property
    def met(self) -> str:
        low, high = self.case.band
        if self.exact is None:
            return "yes" if low <= self.held <= high else "NO"
        noise = 3.5 * (self.exact * (1 - self.exact) / self.simulations) ** 0.5 + 1e-9
        if abs(self.held - self.exact) > noise:
            return "NO"
        return "yes" if low <= self.exact <= high else "Wilson's own"


def cases() -> Iterator[Case]:
    for shape, mean, n in product(SHAPES, MEANS, SIZES):
        if shape != "P@5, one gold":
            yield Case(shape, mean, n)
    for mean, n in product((0.02, 0.04, 0.1, 0.16, 0.18, 0.19, 0.196), SIZES):
        yield Case("P@5, one gold", mean, n)


def simulate(case: Case, simulations: int) -> Outcome:
    rng, groups = case.rng, None
    if case.shape == "by group":
        groups = sizes_of_groups(case.n)
    parts = []
    for seed, start in enumerate(range(0, simulations, TOGETHER)):
        sets = SHAPES[case.shape](case.mean, rng, (case.n, min(TOGETHER, simulations - start)))
        tops = [1.0] * sets.shape[1]
        parts.append(mean_intervals(sets, Resampling(seed=seed), tops=tops, groups=groups))
    low, high = np.concatenate(parts).T
    # A truth that is itself a possible mean must not be missed by a last bit.
    below, above = np.mean(high < case.mean - 1e-9), np.mean(low > case.mean + 1e-9)
    width = float(np.mean(high - low))
    held = float(1 - below - above)
    return Outcome(case, held, float(below), float(above), width, exact(case), simulations)


def exact(case: Case) -> float | None:
    """The true coverage, from the interval of each possible number of hits."""
    from scipy.stats import binom

    top = TWO_VALUED.get(case.shape)
    if top is None:
        return None
    hits = np.arange(case.n + 1)
    sets = top * (np.arange(case.n)[:, None] < hits)
    low, high = mean_intervals(sets, Resampling(), tops=[1.0] * len(hits)).T
    held = (low <= case.mean + 1e-9) & (case.mean - 1e-9 <= high)
    return float(binom.pmf(hits, case.n, case.mean / top)[held].sum())


@dataclass(frozen=True)
class Rejections:
    """How often a test rejected although nothing differs, and how often it may."""

    test: str
    setting: str
    n: int
    share: float
    simulations: int

    @property
    def most(self) -> float:
        return LEVEL + 2 * (LEVEL * (1 - LEVEL) / (self.simulations / MORE)) ** 0.5

    @property
    def met(self) -> str:
        return "yes" if self.share <= self.most else "NO"


def reject_pairs(shape: str, n: int, simulations: int) -> list[Rejections]:
    """Two systems that are alike: the differences of two sets of the same shape."""
    rng = Case(shape, 0.5, n).rng
    draw = partial(SHAPES[shape], 0.5, rng, (n, simulations))
    deltas = draw() - draw()
    ps = {
        "randomisation": randomisation(deltas, resamples=2000),
        "t": np.array([t_test(delta) for delta in deltas.T]),
        "Wilcoxon": np.array([wilcoxon(delta) for delta in deltas.T]),
    }
    return [
        Rejections(test, shape, n, float(np.mean(p < LEVEL)), simulations) for test, p in ps.items()
    ]


def reject_families(shifted: int, n: int, simulations: int) -> list[Rejections]:
    """Six systems, of which some are better: does any pair of the others seem to differ?"""
    rng = Case("nDCG-like", 0.5, n + shifted).rng
    shared = ndcg_like(0.5, rng, (n, simulations))[:, None, :]
    own = ndcg_like(0.5, rng, (n, 6 * simulations)).reshape(n, 6, simulations)
    columns = (shared + own) / 2
    columns[:, 6 - shifted :] += 0.1 * np.arange(1, shifted + 1)[:, None]
    wrong = np.zeros(simulations)
    for start in range(0, simulations, TOGETHER):
        found = all_pairs(columns[:, :, start : start + TOGETHER], resamples=1000, seed=start)
        alike = found.second < 6 - shifted
        wrong[start : start + TOGETHER] = (found.p_adjusted[alike] < LEVEL).any(axis=0)
    setting = "all 6 systems alike" if not shifted else f"{6 - shifted} of 6 systems alike"
    return [Rejections("all pairs (max-T)", setting, n, float(wrong.mean()), simulations)]


HEAD = """# How often the intervals hold the truth

Made by `python bench/simulate.py` in {minutes:.0f} minutes: {simulations:,} simulated sets a row,
95 % intervals from 2,000 resamples. *Below* and *above* count the intervals that lie wholly
below and above the truth. *Required*: 92–98 % where at least 5 queries' worth of success and
of failure is expected, at least 93 % elsewhere.

Columns of two values get Wilson's interval, whose coverage is a known, uneven function of the
share and n. It is computed *exactly* beside the simulation, which has to agree with it within
3.5 standard errors; the exact figure, not the simulated one, is held against what is required.
Where it falls short, the row says *Wilson's own* and does not fail the run.

{summary}

"""
TESTS = """
## How often tests reject where nothing differs

At a level of 5 %, in five times as many sets as above; required is at most 5 % and two
standard errors of a row above. For all pairs, a rejection is any rejected pair of systems that
are alike.

| test | values | n | rejects | at most | met |
|---|---|---:|---:|---:|---|
"""


def report(outcomes: list[Outcome], rejections: list[Rejections], minutes: float) -> str:
    counts = [sum(one.met == met for one in outcomes) for met in ("yes", "Wilson's own", "NO")]
    summary = "Of {} rows {} meet the requirement, {} are Wilson's own and {} miss it.".format(
        len(outcomes), *counts
    )
    head = HEAD.format(minutes=minutes, simulations=outcomes[0].simulations, summary=summary)
    lines = [
        "| values | true mean | n | holds | exactly | below | above | width | required | met |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for one in outcomes:
        low, high = one.case.band
        band = f"≥ {low:.0%}" if high == 1 else f"{100 * low:.0f}–{high:.0%}"
        known = "" if one.exact is None else f"{one.exact:.1%}"
        lines.append(
            f"| {one.case.shape} | {one.case.mean} | {one.case.n} | {one.held:.2%} | {known} "
            f"| {one.below:.2%} | {one.above:.2%} | {one.width:.4f} | {band} | {one.met} |"
        )
    rows = [
        f"| {r.test} | {r.setting} | {r.n} | {r.share:.2%} | {r.most:.2%} | {r.met} |"
        for r in rejections
    ]
    return head + "\n".join(lines) + "\n" + TESTS + "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("COVERAGE.md"))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    started = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        pairs = [
            pool.submit(reject_pairs, shape, n, MORE * options.simulations)
            for shape in ("RR@10", "nDCG-like")
            for n in (20, 50, 200)
        ]
        pairs += [
            pool.submit(reject_families, shifted, n, MORE * options.simulations)
            for shifted in (0, 3)
            for n in (20, 50, 200)
        ]
        outcomes = list(pool.map(partial(simulate, simulations=options.simulations), cases()))
        rejections = [one for found in pairs for one in found.result()]
    minutes = (time.monotonic() - started) / 60
    options.out.write_text(report(outcomes, rejections, minutes), encoding="utf-8")
    missed = [one for one in [*outcomes, *rejections] if one.met == "NO"]
    for one in missed:
        print(one, file=sys.stderr)
    print(f"{options.out}: {len(missed)} missed, {minutes:.1f} minutes")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
