"""The rule of the playbook on latency: calls that take longer than those of a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from karat.analysis.latency.latencies import TOTAL, latency_of, score_calls, stages_of
from karat.analysis.playbook.case import Case, Finding, Mask, at_least
from karat.analysis.setwise import compare_numbers
from karat.analysis.staged import Staged
from karat.errors import MissingInputError
from karat.measures import numbers
from karat.measures.numbers import Values
from karat.stats.corrections import holm

_SHARES = {"p50": 0.5, "p90": 0.9}


@dataclass(frozen=True, slots=True)
class _Rise:
    """A time in milliseconds that was and is; None where the stage was not there."""

    name: str
    old: float | None
    new: float

    @property
    def by(self) -> float:
        return self.new - (self.old or 0.0)

    def document(self) -> dict[str, float | None]:
        return {"baseline": self.old, "system": self.new}


def slower(case: Case) -> list[Finding]:
    """Calls take longer than the baseline's, by a share that matters and not by chance."""
    base = case.baseline
    if base is None:
        raise MissingInputError("needs a baseline run")
    if base.gold.query_ids != case.staged.gold.query_ids:
        raise MissingInputError("needs a baseline that was asked the same queries")
    old, new = _times(base), _times(case.staged)
    known = ~np.isnan(old[TOTAL]) & ~np.isnan(new[TOTAL])
    if not known.any():
        raise MissingInputError("needs queries that both logs have a latency_ms for")
    rose = _rises(case, old[TOTAL], new[TOTAL], known)
    if not rose:
        return []
    share = _SHARES[rose[0][0].name]
    stages = {name: own for name, own in new.items() if name != TOTAL}
    grown = [_rise(name, old.get(name), stages[name], known, share) for name in stages]
    most = max((one for one in grown if one is not None), key=lambda one: one.by, default=None)
    return [_slower(case, rose, most, int(known.sum()))]


def _times(staged: Staged) -> dict[str, Values]:
    """The time of each stage, query by query."""
    try:
        measures = {stage: latency_of(stage, "mean") for stage in stages_of(staged)}
    except MissingInputError:
        raise MissingInputError("needs latency_ms in both logs") from None
    scores = score_calls(staged, list(measures.values()))
    return {stage: scores.values(str(measure)) for stage, measure in measures.items()}


def _rises(case: Case, old: Values, new: Values, known: Mask) -> list[tuple[_Rise, float]]:
    """The percentiles of the total that rose by enough, each with the p of a test of both."""
    conventions, groups = case.staged.final.conventions, case.staged.final.groups
    own = None if groups is None else groups[known]
    tests = [
        compare_numbers(latency_of(TOTAL, name), old[known], new[known], conventions, own)
        for name in _SHARES
    ]
    ps = holm([None if test is None else test.p for test in tests])
    rose = []
    for (name, share), test, p in zip(_SHARES.items(), tests, ps, strict=True):
        rise = _rise(name, old, new, known, share)
        if rise is None or test is None or p is None or p >= case.alpha:
            continue
        sure = test.ci is None or test.ci[0] > 0
        if sure and rise.by > 0 and at_least(rise.by, case.lines.slower * (rise.old or 0.0)):
            rose.append((rise, p))
    return rose


def _rise(name: str, old: Values | None, new: Values, known: Mask, share: float) -> _Rise | None:
    """A percentile of both over the queries that both answered."""
    after = numbers.percentile(new[known], share)
    before = None if old is None else numbers.percentile(old[known], share)
    return None if after is None else _Rise(name, before, after)


def _slower(case: Case, rose: list[tuple[_Rise, float]], most: _Rise | None, n: int) -> Finding:
    figures: dict[str, Any] = {
        f"latency.{TOTAL}.{rise.name}": {**rise.document(), "p": p} for rise, p in rose
    }
    told = " and ".join(f"latency.{TOTAL}.{rise.name} {_grew(rise)}" for rise, _ in rose)
    told = f"{told}: calls are slower than the baseline's"
    if most is not None and most.by > 0:
        told += f", most of all {most.name}, {_grew(most)}"
        figures["stage"] = {"name": most.name, **most.document()}
    depth = _depths(case)
    if depth:
        told += f"; {depth.pop('told')}"
        figures["k_raw"] = depth
    where = most.name if most is not None and most.by > 0 else "each stage"
    look_at = f"the profile of {where}, a lower k_raw, a cache of frequent queries"
    return Finding("slower", f"{told}; look at {look_at}", {**figures, "n": n}, look_at)


def _grew(rise: _Rise) -> str:
    if rise.old is None:
        return f"{rise.new:.3g} ms, which the baseline does not log"
    more = f" (+{100 * (rise.new / rise.old - 1):.0f} %)" if rise.old else ""
    return f"from {_ms(rise.old)} to {_ms(rise.new)} ms{more}"


def _ms(value: float) -> str:
    """Three digits, and all of a larger number."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _depths(case: Case) -> dict[str, Any]:
    """How many items each of the two retrieves, as far as the logs tell."""
    old, new = (
        one.final.meta.get("k_raw") if one is not None else None
        for one in (case.baseline, case.staged)
    )
    if new is None:
        return {}
    moved = old is not None and old != new
    told = f"k_raw went from {old} to {new}" if moved else f"k_raw is {new}"
    return {"told": told, "baseline": old, "system": new}
