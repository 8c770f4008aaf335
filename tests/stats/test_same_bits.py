"""The same bits on any number of threads, and no scipy before it is needed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BITS = """
import hashlib
import numpy as np
from karat.stats.bootstrap import Resampling, mean_intervals
from karat.stats.paired import all_pairs, randomisation

rng = np.random.default_rng(0)
values = rng.random((3000, 8)) / 3
groups = rng.integers(0, 700, 3000)
pairs = all_pairs(values.reshape(3000, 4, 2), resamples=400)
found = [
    mean_intervals(values, Resampling()),
    mean_intervals(values, Resampling(), groups=groups),
    mean_intervals(np.repeat(values, 8, axis=0), Resampling(resamples=300)),
    randomisation(values[:, 1:] - values[:, :-1], resamples=1000),
    pairs.p,
    pairs.p_adjusted,
]
print(hashlib.sha256(b"".join(part.tobytes() for part in found)).hexdigest())
"""
LAZY = """
import sys
import karat.stats.bootstrap, karat.stats.corrections, karat.stats.order, karat.stats.paired
import karat.stats.power, karat.stats.proportions, karat.stats.replicates
import numpy as np
from karat.stats.bootstrap import Resampling, mean_intervals
from karat.stats.order import percentile_interval

mean_intervals(np.random.default_rng(0).random((30, 3)), Resampling(), tops=[1.0, None, 1.0])
percentile_interval(np.arange(100.0), 0.5)
print(sorted(name for name in sys.modules if name.split(".")[0] == "scipy"))
"""


def run(code: str, threads: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("threads", ["2", "3"])
def test_any_number_of_threads_gives_the_same_bits(threads: str) -> None:
    assert run(BITS, threads) == run(BITS, "1")


def test_intervals_do_not_load_scipy() -> None:
    assert run(LAZY, "1") == "[]"
