"""Runs with known ranks, for the tests of comparisons."""

from __future__ import annotations

import numpy as np

from karat.data.tables import Gold, Run

N = 60


def gold_of(n=N):
    return Gold.from_dict({f"q{i:03}": ["a"] for i in range(n)})


def run_of(ranks, name):
    """A run that finds the one gold item of query i at the rank given (0: not at all)."""
    lists = {}
    for i, rank in enumerate(ranks):
        items = [f"x{j}" for j in range(12)]
        if rank:
            items.insert(int(rank) - 1, "a")
        lists[f"q{i:03}"] = items
    return Run.from_dict(lists, name=name)


def two_runs(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 6, n), rng.integers(0, 5, n)


def rr(ranks):
    return np.array([1 / rank if rank else 0.0 for rank in ranks])
