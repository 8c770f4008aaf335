"""Headroom: what the gold that a run has would be worth in the best order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from karat.analysis.staged import Staged
from karat.analysis.sweeps.curves import Curve, K
from karat.measures.conventions import Conventions
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.ranked import Entries, Ranked, Target, in_best_order, is_budget
from karat.measures.valuing import gain_of, gold_for, values_of

# These count every chunk of a document, of which the best order has one.
_BY_CHUNK = {"P", "F"}


def best_values(staged: Staged, curves: Sequence[Curve], ks: Sequence[K]) -> dict[str, Values]:
    """Each query's value at these cut-offs if all gold in its lists stood at the top.

    The lists are those that the retriever gave, before anything was taken out of them, and the
    final ones. Measures that another order cannot raise, or of which it cannot be told, have none.
    """
    best = best_order(staged)
    if best is None:
        return {}
    chosen = [curve.at[k] for curve in curves for k in ks]
    return {
        str(measure): values_of(measure, best, staged.gold)
        for measure in chosen
        if _can_be_told(measure, best.target, staged.gold.conventions)
    }


def best_order(staged: Staged) -> Ranked | None:
    """The gold that the raw or the final list of each query holds, best grades first."""
    raw, final = staged.raw.trace, staged.final.trace
    if raw is None or final is None:
        return None
    own, others = raw.ranked.found, final.ranked.found
    if raw is final or own.row is None or others.row is None:
        return in_best_order(raw.ranked)
    new = others.where(~np.isin(others.row, own.row))
    return in_best_order(replace(raw.ranked, found=_together(own, new)))


def _together(one: Entries, other: Entries) -> Entries:
    """The entries of both, in no order."""

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(one, name), getattr(other, name)])

    repeat = None if one.repeat is None or other.repeat is None else joined("repeat")
    return Entries(one.n, joined("query"), joined("rank"), joined("grade"), repeat, joined("row"))


def _can_be_told(measure: Measure, target: Target, conventions: Conventions) -> bool:
    """Whether gold first is the best order for it, and the order of units tells its value."""
    definition = measure.definition
    if definition.needs or definition.evidence is not None or definition.better != "higher":
        return False
    # A span may be found by several chunks together, and one chunk may hold several spans.
    if target.joined or is_budget(measure.k):
        return False
    by_chunk = {measure.name, measure.arguments.get("of")} & _BY_CHUNK
    mapped = isinstance(gain_of(measure, conventions), Mapping)
    judged = gold_for(measure) in {"relevant", "graded"}
    return judged and not mapped and not (target.shared and by_chunk)
