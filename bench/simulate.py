"""Check the four properties of intervals on simulated sets of queries with a known truth.

Checks that intervals of means and of differences hold the truth, are monotone, stay inside the
range and agree with their tests, and how often tests reject where nothing differs. Writes
COVERAGE.md and exits 1 if a promise is broken.
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

from karat.stats.means import Resampling, mean_intervals
from karat.stats.paired import (
    agreeing_with_p,
    all_pairs,
    randomisation,
    randomised,
    t_test,
    wilcoxon,
)

Values = NDArray[np.float64]
Draw = Callable[[float, np.random.Generator, tuple[int, int]], Values]

MEANS = (0.05, 0.5, 0.9, 0.98)
SIZES = (20, 50, 200)
# Simulated sets that share their resamples.
TOGETHER = 250
LEVEL = 0.05
# Enough simulations that chance does not decide a row.
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
# The greatest value that any ranking could reach.
TOPS = {"P@5, one gold": 0.2}
# The minimum coverage of 95 % intervals of means.
LEAST = 0.93


@dataclass(frozen=True)
class Case:
    """Sets of one shape, true mean and size."""

    shape: str
    mean: float
    n: int

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(repr(self).encode()))


@dataclass(frozen=True)
class Outcome:
    """How often the interval was around, below and above the truth."""

    case: Case
    held: float
    below: float
    above: float
    width: float
    outside: int
    falls: int
    simulations: int

    @property
    def met(self) -> str:
        kept = self.held >= LEAST and not self.outside and not self.falls
        return "yes" if kept else "NO"


def cases() -> Iterator[Case]:
    for shape, mean, n in product(SHAPES, MEANS, SIZES):
        if shape != "P@5, one gold":
            yield Case(shape, mean, n)
    for mean, n in product((0.01, 0.1, 0.18, 0.196), SIZES):
        yield Case("P@5, one gold", mean, n)


def simulate(case: Case, simulations: int) -> Outcome:
    rng, groups = case.rng, None
    if case.shape == "by group":
        groups = sizes_of_groups(case.n)
    top = TOPS.get(case.shape, 1.0)
    parts, falls = [], 0
    for seed, start in enumerate(range(0, simulations, TOGETHER)):
        sets = SHAPES[case.shape](case.mean, rng, (case.n, min(TOGETHER, simulations - start)))
        ranges = [(0.0, top)] * sets.shape[1]
        plan = Resampling(seed=seed)
        better = sets.copy()
        chosen = rng.integers(0, len(sets), sets.shape[1])
        columns = np.arange(sets.shape[1])
        own = better[chosen, columns]
        better[chosen, columns] = own + (top - own) * rng.random(len(own))
        both = np.concatenate([sets, better], axis=1)
        found, raised = np.split(mean_intervals(both, plan, ranges=2 * ranges, groups=groups), 2)
        falls += int((raised < found).sum())
        parts.append(found)
    low, high = np.concatenate(parts).T
    # Rounding in the last bit must not count as a miss.
    below, above = np.mean(high < case.mean - 1e-9), np.mean(low > case.mean + 1e-9)
    width = float(np.mean(high - low))
    held = float(1 - below - above)
    outside = int(((low < 0) | (high > top) | (low > high)).sum())
    return Outcome(case, held, float(below), float(above), width, outside, falls, simulations)


@dataclass(frozen=True)
class Differing:
    """Pairs of systems that differ on a share of the queries, and how."""

    sizes: str
    kind: str
    share: float
    n: int

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(repr(self).encode()))

    def draw(self, rng: np.random.Generator, simulations: int) -> tuple[Values, float]:
        """Differences of one row a query, and the true mean."""
        shape = (self.n, simulations)
        far = rng.choice(SIZES_OF_DIFFERENCES[self.sizes], shape)
        up = {"null": 0.5, "mixed": 0.75, "one-sided": 1.0}[self.kind]
        signs = np.where(rng.random(shape) < up, 1.0, -1.0)
        truth = self.share * (2 * up - 1) * float(np.mean(SIZES_OF_DIFFERENCES[self.sizes]))
        return np.where(rng.random(shape) < self.share, far * signs, 0.0), truth

    @property
    def least(self) -> float | None:
        """The required coverage; None if it is only measured."""
        if self.kind == "null":
            return 0.93
        return 0.90 if self.share * self.n >= 15 - 1e-9 else None


SIZES_OF_DIFFERENCES = {
    "1/2 or 1": np.array([0.5, 1.0]),
    "0 to 1": np.arange(0.01, 1.0, 0.01),
}


@dataclass(frozen=True)
class DifferenceOutcome:
    """The coverage of the interval of a difference, and how often it agreed with p."""

    case: Differing
    held: float
    width: float
    moved: float
    broken: int
    simulations: int

    @property
    def met(self) -> str:
        if self.broken:
            return "NO"
        if self.case.least is None:
            return "measured"
        return "yes" if self.held >= self.case.least else "NO"


def differing() -> Iterator[Differing]:
    for sizes, kind, share, n in product(
        SIZES_OF_DIFFERENCES, ("null", "mixed", "one-sided"), (0.05, 0.3, 1.0), (20, 50, 200)
    ):
        yield Differing(sizes, kind, share, n)


def simulate_differences(case: Differing, simulations: int) -> DifferenceOutcome:
    rng = case.rng
    held, widths, moved, broken = 0, [], 0, 0
    for seed, start in enumerate(range(0, simulations, TOGETHER)):
        deltas, truth = case.draw(rng, min(TOGETHER, simulations - start))
        found = randomised(deltas, (0.95,), resamples=2000, seed=seed)
        means = deltas.mean(axis=0).tolist()
        ends = np.clip(found.intervals[0], -1, 1).tolist()
        for (low, high), p, mean in zip(ends, found.p.tolist(), means, strict=True):
            told_low, told_high = agreeing_with_p((low, high), p, LEVEL, mean)
            moved += (low > 1e-12 or high < -1e-12) != (p < LEVEL)
            held += told_low - 1e-9 <= truth <= told_high + 1e-9
            widths.append(told_high - told_low)
            one_story = (told_low > 0 or told_high < 0) == (p < LEVEL)
            broken += not (one_story and -1 <= told_low <= told_high <= 1)
    return DifferenceOutcome(
        case,
        held / simulations,
        float(np.mean(widths)),
        moved / simulations,
        broken,
        simulations,
    )


@dataclass(frozen=True)
class Rejections:
    """How often a test rejected although nothing differs, and its limit."""

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
        _, p = all_pairs(columns[:, :, start : start + TOGETHER], resamples=1000, seed=start)
        alike = np.triu_indices(6, k=1)[1] < 6 - shifted
        wrong[start : start + TOGETHER] = (p[alike] < LEVEL).any(axis=0)
    setting = "all 6 systems alike" if not shifted else f"{6 - shifted} of 6 systems alike"
    return [Rejections("all pairs (max-T)", setting, n, float(wrong.mean()), simulations)]


HEAD = """# Do intervals keep their promises?

Made by `python bench/simulate.py` in {minutes:.0f} minutes on simulated sets of queries whose truth
is known. Four things must hold; the script fails if one does not.

| promise | simulated | result |
|---|---|---|
{promises}

## Means

{simulations:,} simulated sets a row, 95 % intervals from 2,000 random weights. *Below* and *above*
count the intervals that lie wholly below and above the truth. *Falls*: a random value of every set
was raised; so many of the ends went down. *Outside*: so many intervals left the range from 0 to the
greatest value. Required: at least 93 % hold the truth, and no falls and none outside.

"""
DIFFERENCES = """
## Differences

{simulations:,} simulated pairs a row: a share of the queries differs by the sizes named, in either
direction alike (*null*), three of four in one direction (*mixed*) or all of them (*one-sided*).
95 % intervals from the inverted randomisation test with 2,000 random signs. *Moved*: so often p
and the interval would have disagreed by the error of random signs alone, and p decided. Required:
at least 93 % of the intervals hold the truth under the null, and 90 % of the others where 15 or
more queries are expected to differ; where fewer are, the figure is what was measured. All agree
with p, and stay within -1 and 1.

| sizes | direction | differ | n | holds | width | moved | required | met |
|---|---|---:|---:|---:|---:|---:|---:|---|
"""
TESTS = """
## How often tests reject where nothing differs

At a level of 5 %, in five times as many sets as above; required is at most 5 % and two
standard errors of a row above. For all pairs, a rejection is any rejected pair of systems that
are alike.

| test | values | n | rejects | at most | met |
|---|---|---:|---:|---:|---|
"""


def promises(
    means: list[Outcome], differences: list[DifferenceOutcome]
) -> list[tuple[str, str, bool]]:
    """The four properties: their names, what was simulated, and whether they hold."""
    sets = sum(one.simulations for one in means)
    pairs = sum(one.simulations for one in differences)
    null = [one.held for one in differences if one.case.kind == "null"]
    others = [one.held for one in differences if one.case.least == 0.90]
    held = min(one.held for one in means)
    covered = (
        f"means: least {held:.1%}; differences: null {min(null):.1%}, others {min(others):.1%}"
    )
    return [
        ("Monotone", f"{sets:,} sets, one value raised", not any(one.falls for one in means)),
        (
            "Inside the range",
            f"{sets:,} means, {pairs:,} differences",
            not any(one.outside for one in means) and not any(one.broken for one in differences),
        ),
        ("One story", f"{pairs:,} differences", not any(one.broken for one in differences)),
        (
            "Coverage",
            covered,
            held >= LEAST and min(null) >= 0.93 and min(others) >= 0.90,
        ),
    ]


def report(
    outcomes: list[Outcome],
    differences: list[DifferenceOutcome],
    rejections: list[Rejections],
    minutes: float,
) -> str:
    told = [
        f"| {name} | {what} | {'kept' if kept else 'BROKEN'} |"
        for name, what, kept in promises(outcomes, differences)
    ]
    simulations = outcomes[0].simulations
    head = HEAD.format(minutes=minutes, simulations=simulations, promises="\n".join(told))
    lines = [
        "| values | true mean | n | holds | below | above | width | falls | outside | met |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for one in outcomes:
        lines.append(
            f"| {one.case.shape} | {one.case.mean} | {one.case.n} | {one.held:.2%} "
            f"| {one.below:.2%} | {one.above:.2%} | {one.width:.4f} | {one.falls} | {one.outside} "
            f"| {one.met} |"
        )
    pairs = [
        f"| {one.case.sizes} | {one.case.kind} | {one.case.share:.0%} | {one.case.n} "
        f"| {one.held:.2%} | {one.width:.4f} | {one.moved:.2%} "
        f"| {'' if one.case.least is None else f'≥ {one.case.least:.0%}'} | {one.met} |"
        for one in differences
    ]
    rows = [
        f"| {r.test} | {r.setting} | {r.n} | {r.share:.2%} | {r.most:.2%} | {r.met} |"
        for r in rejections
    ]
    parts = [head + "\n".join(lines)]
    parts.append(DIFFERENCES.format(simulations=differences[0].simulations) + "\n".join(pairs))
    parts.append(TESTS + "\n".join(rows))
    return "\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("COVERAGE.md"))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    started = time.monotonic()
    simulations = options.simulations
    with ProcessPoolExecutor(options.processes) as pool:
        tests = [
            pool.submit(reject_pairs, shape, n, MORE * simulations)
            for shape in ("RR@10", "nDCG-like")
            for n in (20, 50, 200)
        ]
        tests += [
            pool.submit(reject_families, shifted, n, MORE * simulations)
            for shifted in (0, 3)
            for n in (20, 50, 200)
        ]
        pairs = partial(simulate_differences, simulations=simulations)
        differences = list(pool.map(pairs, differing()))
        outcomes = list(pool.map(partial(simulate, simulations=simulations), cases()))
        rejections = [one for found in tests for one in found.result()]
    minutes = (time.monotonic() - started) / 60
    told = report(outcomes, differences, rejections, minutes)
    options.out.write_text(told, encoding="utf-8")
    missed = [one for one in [*outcomes, *differences, *rejections] if one.met == "NO"]
    for one in missed:
        print(one, file=sys.stderr)
    for name, what, kept in promises(outcomes, differences):
        print(f"{'pass' if kept else 'FAIL'}: {name} ({what})")
    print(f"{options.out}: {len(missed)} missed, {minutes:.1f} minutes")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
