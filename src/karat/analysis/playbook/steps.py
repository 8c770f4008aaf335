"""Rules of the playbook on what happens to a list once it is retrieved: filtered, reranked."""

from __future__ import annotations

import numpy as np

from karat.analysis.playbook.case import Case, Finding, at_least, mean, short
from karat.analysis.staged import RAW, REORDERING, SIEVES
from karat.errors import MissingInputError


def filters_take_gold(case: Case) -> list[Finding]:
    """R far down the list is clearly lower after the filters than before them."""
    sieves = [name for name in SIEVES if name in case.staged.line]
    if RAW not in case.staged.line or not sieves:
        raise MissingInputError(
            "needs lists before and after a filter: raw, and stages.filter, stages.as_of or"
            " stages.threshold in the log"
        )
    far = case.far
    before, after = case.values("R", far), case.sieved("R", far.k)
    old, new = mean(before), mean(after)
    if not at_least(old - new, case.lines.gap):
        return []
    look_at = f"the {_either(sieves)}"
    sentence = (
        f"filters take out gold: R@{far.k} {short(old)} before and {short(new)} after them;"
        f" look at {look_at}"
    )
    worse = int((after < before).sum())
    figures = {f"R@{far.k}": old, "after": new, "worse": worse, "n": case.n}
    return [Finding("filters_take_gold", sentence, figures, look_at)]


def _either(names: list[str]) -> str:
    """Names as alternatives: ``filter, as_of or threshold``."""
    return " or ".join([*filter(None, [", ".join(names[:-1])]), names[-1]])


def reranker_hurts(case: Case) -> list[Finding]:
    """The final order is worse than the one that the reranker was given."""
    if not case.before_order:
        raise MissingInputError("needs the raw list: raw in the log")
    # What a filter left of a list is all there is of it: how far one can see is the raw list's.
    first, last = case.before_order[0], case.before_order[-1]
    near = case.near
    case.within(case.staged.line[first], near.k, first)
    before, after = case.sieved("nDCG", near.k), case.values("nDCG", near)
    # A list that lost items and kept its order says nothing of a reranker.
    part = case.answered & (case.moved | (before == after))
    before, after = np.where(part, before, np.nan), np.where(part, after, np.nan)
    if not case.moved.any():
        return []
    old, new, p = mean(before), mean(after), case.p_of(after - before)
    if new >= old or p >= case.alpha:
        return []
    what, look_at = _what_reorders(case)
    k = near.k
    sentence = (
        f"nDCG@{k} {short(new, old)} in the final list but {short(old)} in the one before"
        f" ({last}): {what} makes the order worse; look at {look_at}"
    )
    figures = {f"nDCG@{k}": new, last: old, "worse": int((after < before).sum())}
    n = int(part.sum())
    return [Finding("reranker_hurts", sentence, {**figures, "p": p, "n": n}, look_at)]


def _what_reorders(case: Case) -> tuple[str, str]:
    """What gives another order, as far as the log tells, and what to look at."""
    logged = [name for name in REORDERING if name in case.staged.line]
    if logged and not case.named_reranker:
        what = " and ".join(logged)
        return what, f"{what}: how much relevance is given away for variety"
    return "reranking", "the reranker: its model, its input, its language"
