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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

ABSENT = "not at hand"


class CommandFailedError(Exception):
    """A command ended with an error; carries the last thing that it said."""


# An installed package brings its modules compiled; one that is worked on writes them at its
# first run, unless it is told not to.
_INSTALLED = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Sample:
    wall: float  # seconds
    cpu: float  # seconds, of the user and of the system, on all cores
    peak: float  # megabytes
    output: str


@dataclass
class Contender:
    """A command and how often it runs.

    One that has no ``problem`` and needs no ``package`` has to run: without it there is no race.
    """

    name: str
    command: Sequence[str]
    rounds: int
    package: str | None = None
    problem: str | None = None
    peer: bool = False
    exit_codes: Sequence[int] = (0,)
    before: Callable[[], object] | None = None  # runs before each sample, outside its time
    means: Callable[["Contender"], list[dict[str, float]]] | None = None  # of each run
    tolerance: float = 1e-6  # the largest difference of a mean that is none
    samples: list[Sample] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(sample.wall for sample in self.samples)

    @property
    def median(self) -> float:
        return median(sample.wall for sample in self.samples)

    @property
    def cpu(self) -> float:
        return median(sample.cpu for sample in self.samples)

    @property
    def best_cpu(self) -> float:
        return min(sample.cpu for sample in self.samples)

    @property
    def peak(self) -> float:
        return max(sample.peak for sample in self.samples)


def once(
    command: Sequence[str],
    exit_codes: Sequence[int] = (0,),
    environment: Mapping[str, str] | None = None,
) -> Sample:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**_INSTALLED, **(environment or {})},
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode not in exit_codes:
            said = err.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise CommandFailedError(f"exit code {process.returncode}: {said[-1]}")
        cpu = usage.ru_utime + usage.ru_stime
        return Sample(wall, cpu, usage.ru_maxrss * 1024 / 1e6, out.read().decode())


def race(contenders: list[Contender]) -> None:
    """All contenders in turns, so that a noisy moment hits them alike; fewer turns for slow ones.

    Those that run in every round have a first turn that does not count: it warms the caches.
    A peer that cannot run keeps its problem, for the report; karat has to run.
    """
    rounds = max(contender.rounds for contender in contenders)
    for contender in contenders:
        if contender.package and importlib.util.find_spec(contender.package) is None:
            contender.problem = ABSENT
    for turn in range(-1, rounds):
        for contender in contenders if turn % 2 else contenders[::-1]:
            every = math.ceil(rounds / contender.rounds)
            due = turn % every == 0 if turn >= 0 else every == 1 < rounds
            if due and not contender.problem:
                _take(contender, counts=turn >= 0)


def _take(contender: Contender, *, counts: bool) -> None:
    try:
        if contender.before:
            contender.before()
        sample = once(contender.command, contender.exit_codes)
    except CommandFailedError as error:
        if not contender.peer:
            words = " ".join(contender.command)
            raise SystemExit(f"bench: {contender.name}: {error}\n  {words}") from error
        contender.problem = str(error)
        return
    if counts:
        contender.samples.append(sample)
        times = f"{sample.cpu:8.2f} s CPU {sample.wall:8.2f} s wall {sample.peak:8.0f} MB"
        print(f"  {contender.name:<24} {times}", file=sys.stderr)
