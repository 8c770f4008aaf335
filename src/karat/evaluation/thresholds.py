"""Thresholds of the analyses: what a miss is, what counts as low, high or many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from karat.errors import UsageError, unknown
from karat.pages.serialize import Record


@dataclass(frozen=True, slots=True)
class Thresholds(Record):
    """The thresholds, each of which can be set (``--line miss=5``).

    A query misses if no gold is in its top ``miss``; gold that is not in the top ``deep`` of
    any list was missed completely. ``similarity`` below which relevant gold is embedded badly;
    ``score`` is the system's own score threshold, where its log does not show what it took out.
    An item dominates that stands above the gold of at least ``dominant_queries`` queries and of
    the share ``dominant_share`` of all, and ``dominant_lift`` times as many as if every item were
    equally likely; a query is dominated if such items take the share
    ``dominance`` of its top ``miss``.

    The rest belongs to the playbook: ``near`` and ``far`` are the two cut-offs at which recall
    is compared, ``high`` is a recall that is good, ``gap`` a difference that is
    worth a sentence, ``low_precision`` and ``buried`` the values of P and of nDCG or RR below
    which the top of the list is poor, ``segment_gap`` how far a segment may lie below the rest,
    ``fresh`` the share of items that must not be newer than the query's as_of, ``slower`` how
    much more time (a share) a call may take than the baseline's.
    """

    miss: int = 10
    deep: int = 100
    similarity: float = 0.3
    score: float | None = None
    dominant_queries: int = 3
    dominant_share: float = 0.02
    dominant_lift: float = 2.0
    dominance: float = 0.5
    near: int = 5
    far: int = 50
    high: float = 0.8
    gap: float = 0.15
    low_precision: float = 0.5
    buried: float = 0.6
    segment_gap: float = 0.1
    fresh: float = 1.0
    slower: float = 0.1


_WHOLE = ("miss", "deep", "dominant_queries", "near", "far")
# These can be any number, those any that is not negative; the others are shares.
_ANY, _POSITIVE = ("similarity", "score"), ("slower", "dominant_lift")
# A minimal eval loop looks at five places, and so do its misses.
_OF_PROFILES = {"minimal": {"miss": 5}}


def thresholds_of(profile: str) -> Thresholds:
    """Return the thresholds of a profile."""
    return replace(Thresholds(), **_OF_PROFILES.get(profile, {}))


def parse_thresholds(texts: Sequence[str], profile: str = "karat") -> Thresholds:
    """Return the thresholds of a profile with some changed, each given as ``KEY=VALUE``.

    >>> parse_thresholds(["miss=5", "similarity=0.4"]).miss
    5
    >>> parse_thresholds(["mis=5"])
    Traceback (most recent call last):
    karat.errors.UsageError: unknown line 'mis'; did you mean miss?
    """
    names = [field.name for field in fields(Thresholds)]
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise UsageError(f"--line takes KEY=VALUE, not {text!r}; known: {', '.join(names)}")
        if key not in names:
            raise unknown("line", key, names)
        if key in values:
            raise UsageError(f"--line {key} is given twice")
        values[key] = _number(key, value)
    thresholds = replace(thresholds_of(profile), **values)
    near, far, miss, deep = (getattr(thresholds, name) for name in ("near", "far", "miss", "deep"))
    if near >= far:
        raise UsageError(f"near is {near} and far {far}; far must be the larger one")
    if miss > deep:
        raise UsageError(f"miss is {miss} and deep {deep}; deep must not be smaller")
    return thresholds


def _number(key: str, value: str) -> float | int:
    """Return a threshold as the number that its key takes."""
    try:
        number = math.nan if "_" in value else float(value)
    except ValueError:
        number = math.nan
    if key in _WHOLE:
        expected, fits = "a whole number above 0", 1 <= number <= 1e9 and number == int(number)
    elif key in _ANY:
        expected, fits = "a number", math.isfinite(number)
    elif key in _POSITIVE:
        expected, fits = "a number from 0", 0 <= number <= 1e6
    else:
        expected, fits = "a share from 0 to 1", 0 <= number <= 1
    if not fits:
        raise UsageError(f"{key} is {value!r}; {expected} is expected")
    return int(number) if key in _WHOLE else number
