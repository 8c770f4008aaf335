"""The same bits on any number of threads, and no scipy where numbers are compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import karat

BITS = """
import hashlib
import numpy as np
from karat.stats.means import Resampling, mean_intervals
from karat.stats.paired import all_pairs, randomised

rng = np.random.default_rng(0)
values = rng.random((3000, 8)) / 3
groups = rng.integers(0, 700, 3000)
ranges = [(0.0, 0.5)] * 8
tested = randomised(values[:, 1:] - values[:, :-1], (0.95, 0.9), resamples=1000)
pairs = all_pairs(values.reshape(3000, 4, 2), resamples=400)
found = [
    mean_intervals(values, Resampling()),
    mean_intervals(values, Resampling(), ranges=ranges),
    mean_intervals(values, Resampling(), groups=groups),
    mean_intervals(values, Resampling(), ranges=ranges, groups=groups),
    mean_intervals(np.repeat(values, 8, axis=0), Resampling(resamples=300)),
    mean_intervals(np.repeat(values, 8, axis=0), Resampling(resamples=300), ranges=ranges),
    tested.p,
    *tested.intervals,
    *pairs,
]
print(hashlib.sha256(b"".join(part.tobytes() for part in found)).hexdigest())
"""
LAZY = """
import sys
import karat.stats.paired, karat.stats.means, karat.stats.power
import numpy as np
from karat.stats.means import Resampling, mean_intervals
from karat.stats.means import percentile_interval
from karat.stats.distributions import clopper_pearson

ranges = [(0.0, 1.0), None, (0.0, 1.0)]
mean_intervals(np.random.default_rng(0).random((30, 3)), Resampling(), ranges=ranges)
percentile_interval(np.arange(100.0), 0.5)
clopper_pearson(3, 20)
print(sorted(name for name in sys.modules if name.split(".")[0] == "scipy"))
"""
TESTS = """
import sys
import karat
from karat.evaluation.api import compare

gold = karat.Gold.from_dict({f"q{i}": ["a"] for i in range(60)})
old, new = (
    karat.Run.from_dict({f"q{i}": ["x"] * (i % step) + ["a"] for i in range(60)}, name=str(step))
    for step in (2, 3)
)
compare([old, new], gold, ["RR", "Hit@1"])
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


def test_tests_of_differences_do_not_load_scipy() -> None:
    assert run(TESTS, "1") == "[]"


def test_nothing_that_users_wait_for_imports_scipy_stats() -> None:
    source = Path(karat.__file__).parent
    named = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"from scipy(\.stats)? import .*stats|scipy\.stats", path.read_text("utf-8"))
    ]
    assert named == []
