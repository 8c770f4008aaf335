"""Runs commands as whole processes, in turns, and takes their time and memory.

Imports nothing heavy on purpose: Linux counts the peak memory of the process that starts
another one towards the other's own.
"""

import importlib.util
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median


class CommandFailedError(Exception):
    """A command ended with an error; carries the last thing that it said."""


# An installed package brings its modules compiled; one that is worked on writes them at its
# first run, unless it is told not to.
_INSTALLED = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Sample:
    wall: float  # seconds
    cpu: float
    peak: float  # megabytes
    output: str


@dataclass
class Contender:
    """A command, how often it runs, and the package it needs, if that may be missing."""

    name: str
    command: Sequence[str]
    rounds: int
    package: str | None = None
    samples: list[Sample] = field(default_factory=list)
    problem: str | None = None

    @property
    def best(self) -> float:
        return min(sample.wall for sample in self.samples)

    @property
    def median(self) -> float:
        return median(sample.wall for sample in self.samples)

    @property
    def peak(self) -> float:
        return max(sample.peak for sample in self.samples)


def once(command: Sequence[str]) -> Sample:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=_INSTALLED
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            said = err.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise CommandFailedError(f"exit code {process.returncode}: {said[-1]}")
        cpu = usage.ru_utime + usage.ru_stime
        return Sample(wall, cpu, usage.ru_maxrss * 1024 / 1e6, out.read().decode())


def race(contenders: list[Contender]) -> None:
    """All contenders in turns, so that a noisy moment hits them alike; fewer turns for slow ones.

    Those that run in every round have a first turn that does not count: it warms the caches.
    A contender that cannot run keeps its problem, for the report; karat has to run.
    """
    rounds = max(one.rounds for one in contenders)
    for one in contenders:
        if one.package and importlib.util.find_spec(one.package) is None:
            one.problem = "not installed"
    for turn in range(-1, rounds):
        for one in contenders if turn % 2 else contenders[::-1]:
            every = math.ceil(rounds / one.rounds)
            wanted = turn % every == 0 if turn >= 0 else every == 1 < rounds
            if wanted and not one.problem:
                _take(one, counts=turn >= 0)


def _take(one: Contender, *, counts: bool) -> None:
    try:
        sample = once(one.command)
    except CommandFailedError as error:
        if one.package is None:
            raise SystemExit(f"bench: {one.name}: {error}\n  {' '.join(one.command)}") from error
        one.problem = str(error)
        return
    if counts:
        one.samples.append(sample)
        print(f"  {one.name:<14} {sample.wall:8.2f} s {sample.peak:8.0f} MB", file=sys.stderr)
