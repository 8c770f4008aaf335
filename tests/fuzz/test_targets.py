"""Whatever the bytes, a reader or parser gives something that holds together, or one line."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz.mutations import mutated
from fuzz.oracle import held
from fuzz.targets import TARGETS, Target

# Where only this is left of fuzzing, it goes on for as long as it is asked to.
SECONDS = float(os.environ.get("KARAT_FUZZ_SECONDS", "0"))
EXAMPLES = 10_000_000 if SECONDS else 60
# What can take the process down is tried in others, by make fuzz.
HERE = [target for target in TARGETS.values() if not target.apart]


@pytest.mark.parametrize("target", HERE, ids=[target.name for target in HERE])
def test_any_bytes_give_something_whole_or_one_line(target: Target) -> None:
    until = time.monotonic() + SECONDS

    @settings(
        max_examples=EXAMPLES,
        derandomize=not SECONDS,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=mutated(target))
    def check(data: bytes) -> None:
        if not SECONDS or time.monotonic() < until:
            held(target.check, data)

    check()


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_every_target_begins_with_something_that_it_reads(target: Target) -> None:
    assert [held(target.check, seed) for seed in target.seeds()].count(None)
