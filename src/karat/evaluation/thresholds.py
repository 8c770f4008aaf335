"""Where looking into a run draws its lines: what a miss is, what counts as low, high or many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from karat.errors import UsageError, unknown


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The lines, each of which can be drawn elsewhere (``--line miss=5``).

    A query misses if no gold is in its top ``miss``; gold that is not in the top ``deep`` of
    any list was missed completely. ``similarity`` below which relevant gold is embedded badly;
    ``score`` is the system's own score threshold, where its log does not show what it took out.
    An item dominates that stands above the gold of at least ``dominant_queries`` queries and of
    the share ``dominant_share`` of all, and ``dominant_lift`` times as many as if every item were
    equally likely; a query is dominated if such items take the share
    ``dominance`` of its top ``miss``.

    The rest belongs to the playbook: ``near`` and ``far`` are the two cut-offs at which recall
    is held against each other, ``high`` is a recall that is good, ``gap`` a difference that is
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

    def document(self) -> dict[str, Any]:
        """Return the lines as they stand in a report."""
        return asdict(self)


_WHOLE = ("miss", "deep", "dominant_queries", "near", "far")
# These can be any number, those any that is not negative; the others are shares.
_ANY, _POSITIVE = ("similarity", "score"), ("slower", "dominant_lift")


# A minimal eval loop looks at five places, and so do its misses.
_OF_PROFILES = {"minimal": {"miss": 5}}


def thresholds_of(profile: str) -> Thresholds:
    """Return the lines of a profile."""
    return replace(Thresholds(), **_OF_PROFILES.get(profile, {}))


def parse_thresholds(texts: Sequence[str], profile: str = "karat") -> Thresholds:
    """Return the lines of a profile with some drawn elsewhere, each given as ``KEY=VALUE``.

    >>> parse_thresholds(["miss=5", "similarity=0.4"]).miss
    5
    >>> parse_thresholds(["mis=5"])
    Traceback (most recent call last):
    karat.errors.UsageError: unknown line 'mis'; did you mean miss?
    """
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, told = (part.strip() for part in text.partition("="))
        names = [field.name for field in fields(Thresholds)]
        if not equals or not told:
            raise UsageError(f"--line takes KEY=VALUE, not {text!r}; known: {', '.join(names)}")
        if key not in names:
            raise unknown("line", key, names)
        if key in values:
            raise UsageError(f"--line {key} is given twice")
        values[key] = _value(key, told)
    drawn = replace(thresholds_of(profile), **values)
    if drawn.near >= drawn.far:
        raise UsageError(f"near is {drawn.near} and far {drawn.far}; far must be the larger one")
    if drawn.miss > drawn.deep:
        raise UsageError(f"miss is {drawn.miss} and deep {drawn.deep}; deep must not be smaller")
    return drawn


def _value(key: str, told: str) -> float | int:
    try:
        number = math.nan if "_" in told else float(told)
    except ValueError:
        number = math.nan
    if key in _WHOLE:
        if 1 <= number <= 1e9 and number == int(number):
            return int(number)
        raise UsageError(f"{key} is {told!r}; a whole number above 0 is expected")
    if key in _ANY:
        if math.isfinite(number):
            return number
        raise UsageError(f"{key} is {told!r}; a number is expected")
    if 0 <= number <= (1e6 if key in _POSITIVE else 1):
        return number
    kind = "a number from 0" if key in _POSITIVE else "a share from 0 to 1"
    raise UsageError(f"{key} is {told!r}; {kind} is expected")
