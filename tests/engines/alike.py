"""Scores of two engines held against each other, bit by bit."""

from __future__ import annotations

import numpy as np
import polars as pl

import karat
from karat.measure.aggregates import Evidence


def assert_same_bits(ours: karat.Scores, theirs: karat.Scores) -> None:
    """Everything that a report could tell is the same, to the last bit."""
    assert ours.measures == theirs.measures
    assert ours.query_ids == theirs.query_ids
    for name in ours.table.columns[1:]:
        assert _bits(ours.table[name]) == _bits(theirs.table[name]), name
    assert ours.status.tolist() == theirs.status.tolist()
    assert ours.counts == theirs.counts
    assert ours.conventions == theirs.conventions
    assert ours.lacks == theirs.lacks
    assert ours.meta == theirs.meta
    assert ours.fingerprint == theirs.fingerprint
    assert ours.nothing_found == theirs.nothing_found
    assert ours.cut == theirs.cut
    assert ours.ceilings.keys() == theirs.ceilings.keys()
    for name, (values, _) in ours.ceilings.items():
        assert values.tobytes() == theirs.ceilings[name][0].tobytes(), name
    assert ours.tied.keys() == theirs.tied.keys()
    for name, sides in ours.tied.items():
        other = theirs.tied[name]
        assert [side.tobytes() for side in sides] == [side.tobytes() for side in other], name
    assert ours.evidence.keys() == theirs.evidence.keys()
    # Whether a query's entities were linked is noted only where some query of a block has any.
    for name, evidence in ours.evidence.items():
        assert name == "EL_F1" or _facts(evidence) == _facts(theirs.evidence[name]), name
    # The numbers of the set, with their intervals, ceilings and ranges of ties.
    assert ours.summaries == theirs.summaries
    assert (ours.groups is None) == (theirs.groups is None)
    if ours.groups is not None:
        assert ours.groups.tolist() == theirs.groups.tolist()


def _bits(column: pl.Series) -> list[bytes | None]:
    return [None if value is None else np.float64(value).tobytes() for value in column]


def _facts(evidence: Evidence) -> tuple[object, ...]:
    """How many facts there are of each query; what they are about is numbered as it comes."""
    keys = len(np.unique(evidence.key))
    facts = sorted(zip(evidence.query.tolist(), evidence.value.tolist(), strict=True))
    return facts, keys, evidence.total
