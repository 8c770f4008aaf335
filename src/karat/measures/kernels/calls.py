"""Measures of the calls themselves: latency, cost, linked entities."""

from __future__ import annotations

import numpy as np

from karat.errors import MissingInputError, UsageError
from karat.measures.numbers import Evidence, Values
from karat.measures.ranked import Cut, Ranked
from karat.measures.registry import measure


@measure("latency", better="lower", cutoff="path", gold="none", ceiling=None, bounded=False)
def latency(r: Ranked, k: Cut, *, path: str = "total.p50") -> Values:
    """Milliseconds by stage: ``latency.retrieve.p50``, ``.p90``, ``.p95``, ``.p99``, ``.mean``.

    Percentiles by linear interpolation. ``total`` is the sum of all stages unless logged.
    """
    return _logged(r, "latency", path.rpartition(".")[0])


@measure("cost", better="lower", cutoff="path", gold="none", ceiling=None, bounded=False)
def cost(r: Ranked, k: Cut, *, path: str = "tokens") -> Values:
    """What the run logs as spent: ``cost.tokens`` (mean of a query), ``cost.tokens.sum``."""
    return _logged(r, "cost", path.removesuffix(".sum").removesuffix(".mean"))


def _logged(r: Ranked, family: str, what: str) -> Values:
    name = f"{family}.{what}"
    if name not in r.calls:
        known = [key for key in r.calls if key.startswith(f"{family}.")]
        has = f"it logs {', '.join(known)}" if known else f"it logs no {family}"
        raise MissingInputError(f"{name} is not in the run; {has}")
    return r.calls[name]


def _links(r: Ranked, k: Cut) -> Evidence:
    """For each query that got an answer: whether the system said what it linked."""
    said = np.zeros(r.n)
    said[[at for at, linked in enumerate(r.predicted) if linked is not None]] = 1.0
    answered = np.flatnonzero((r.returned > 0) | (said > 0))
    return Evidence(answered, np.zeros(len(answered), np.int64), said[answered])


def _if_any_links(values: Values, evidence: Evidence) -> Values:
    """A system that linked nothing anywhere was not asked to, or does not log it."""
    if len(evidence.value) and not evidence.value.any():
        raise MissingInputError("EL_F1 needs the entities that the system linked, in the run log")
    return values


@measure("EL_F1", cutoff="none", gold="none", ceiling=None, evidence=_links, settle=_if_any_links)
def entity_f1(r: Ranked, k: Cut) -> Values:
    """F1 of the entities a system linked against the query's own."""
    if r.n and not r.target.entities:
        raise MissingInputError("EL_F1 needs each query's entities: give --queries with them")
    values = np.full(r.n, np.nan)
    for place, gold in enumerate(r.target.entities):
        if gold is not None:
            linked = set(r.predicted[place] or ()) if r.predicted else set()
            values[place] = _f1(set(gold), linked)
    return values


def _f1(gold: set[str], linked: set[str]) -> float:
    if not gold and not linked:
        return 1.0
    return 2 * len(gold & linked) / (len(gold) + len(linked))


def check_path(family: str, path: str) -> None:
    """Refuse a latency or cost that is not spelled out."""
    endings = ("p50", "p90", "p95", "p99", "mean")
    stage, _, ending = path.rpartition(".")
    if family == "latency" and (not stage or ending not in endings):
        raise UsageError(
            f"latency.{path} is not known; write latency.<stage>.<{'|'.join(endings)}>,"
            " such as latency.retrieve.p50"
        )
