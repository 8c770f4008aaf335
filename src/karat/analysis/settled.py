"""Can a verdict still change: what it would be under the worst and the best labels.

The two-sided randomisation test of a mean difference is monotone: where the sum is above 0, raising
any query's difference adds nothing to the sets of signs that make one as large, so p can only
fall. Hence a system is better whatever the labels are if it is better with every query's
difference at its lowest, and worse if it is so with every one at its highest; and no labels make it
better that do not where every difference is at its highest.

What is approximate: above 20 differences random signs stand for all of them; the ends of a range
that is not exact are safe and may be out of reach, so that a verdict may be called open which is
not; and ``same`` is read off the intervals at both ends, though labels in between might
have a narrower or a wider one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.compare import compare_scores
from karat.analysis.comparison import NO_DIFFERENCE, Comparison
from karat.analysis.contenders import Contender, distinct_names
from karat.analysis.verdicts import Rule, Verdict
from karat.errors import UsageError
from karat.measures.bounds.ranges import Range
from karat.measures.numbers import Values
from karat.measures.scores import Scores


@dataclass(frozen=True, slots=True)
class Settled:
    """One measure of two systems under all labels of what is unjudged.

    ``at_worst`` and ``at_best`` are the verdicts where every query's difference is the worst and
    the best that it can be for the system. ``holds`` is the verdict if it is the same whatever
    the labels are, else ``unclear``; ``settled`` says that the verdict ``now`` can no longer
    change. ``delta`` is the range of the mean difference, ``comparison`` what is said of it now.
    """

    now: Verdict | None
    at_worst: Verdict | None
    at_best: Verdict | None
    holds: Verdict | None
    settled: bool
    delta: tuple[float, float] | None
    exact: bool
    because: str
    comparison: Comparison

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        names = ("now", "at_worst", "at_best", "holds", "settled", "exact", "because")
        plain = {name: getattr(self, name) for name in names}
        return plain | {"delta": None if self.delta is None else list(self.delta)}


def settled(
    first: Scores,
    second: Scores,
    found: Range,
    rule: Rule,
    measure: str,
    *,
    baseline: Range | None = None,
) -> Settled:
    """Whether the verdict on one measure of a baseline and a system can still change.

    ``found`` holds the lowest and highest difference of each query, system minus baseline, and
    ``baseline`` the ends of the baseline's own values: a margin that is a share of its mean moves
    with them. Without these the margin is taken as it is.
    """
    if measure not in {str(one) for one in first.measures}:
        raise UsageError(f"these scores have no {measure}; score both systems by it")
    rule = replace(rule, primary=measure, pairs="baseline")
    base = first.values(measure)
    now = _compared(first, second, rule, None)
    moves = bool(np.nanmax(found.high - found.low, initial=0.0) > NO_DIFFERENCE)
    ends = [_compared(first, second, rule, base + end) for end in (found.low, found.high)]
    low, high = ends if moves else (now, now)
    worst, best = (high, low) if now.better == "lower" else (low, high)
    holds = holding(worst.verdict, best.verdict)
    margins = _margins(now, rule, baseline)
    final = _final(now, (worst, now, best), holds, margins)
    told = Settled(
        now=now.verdict,
        at_worst=worst.verdict,
        at_best=best.verdict,
        holds=holds,
        settled=final,
        delta=_between(low, high),
        exact=found.exact,
        because="",
        comparison=now,
    )
    return replace(told, because=_because(told, measure))


def _compared(first: Scores, second: Scores, rule: Rule, column: Values | None) -> Comparison:
    """The comparison by the rule's measure, with other values for the system where given."""
    name = str(rule.primary)
    if column is not None:
        values = pl.Series(name, column, dtype=pl.Float64, nan_to_null=True)
        second = replace(second, table=second.table.with_columns(values))
    names = distinct_names([first.system, second.system])
    kept = tuple(measure for measure in first.measures if str(measure) == name)
    pair = [
        Contender(own, (replace(one, measures=kept),))
        for own, one in zip(names, (first, second), strict=True)
    ]
    return compare_scores(pair, rule).of(names[1], name)


def holding(worst: Verdict | None, best: Verdict | None) -> Verdict | None:
    """The verdict that no labels can take away."""
    if worst is None or best is None:
        return None
    if worst == "better" or best == "worse":
        return "better" if worst == "better" else "worse"
    return "same" if worst == best == "same" else "unclear"


def _margins(now: Comparison, rule: Rule, baseline: Range | None) -> tuple[float, float]:
    """The least and the most that the margin may be."""
    if baseline is None:
        return now.margin, now.margin
    known = ~np.isnan(baseline.low)
    if not known.any():
        return now.margin, now.margin
    ends = [rule.margin_for(float(one[known].mean())) for one in (baseline.low, baseline.high)]
    return min(*ends, now.margin), max(*ends, now.margin)


def _final(
    now: Comparison,
    ends: Sequence[Comparison],
    holds: Verdict | None,
    margins: tuple[float, float],
) -> bool:
    """Whether the verdict now is the last: it holds, or is unclear and no other is in reach."""
    least, most = margins
    if now.verdict == "unclear":
        return all(row.verdict == "unclear" and _too_wide(row, most) for row in ends)
    if now.verdict == "same":
        identical = all(not row.wins and not row.losses for row in ends)
        return holds == "same" and (identical or all(_fits(row, least) for row in ends))
    return holds == now.verdict


def _too_wide(row: Comparison, margin: float) -> bool:
    """Whether the interval that shows sameness would not fit into a margin wherever it lay."""
    return row.ci_same is None or row.ci_same[1] - row.ci_same[0] > 2 * margin


def _fits(row: Comparison, margin: float) -> bool:
    """Whether the interval that shows sameness lies within a margin."""
    return row.ci_same is not None and max(map(abs, row.ci_same)) < margin


def _between(low: Comparison, high: Comparison) -> tuple[float, float] | None:
    return None if low.delta is None or high.delta is None else (low.delta, high.delta)


def _because(told: Settled, measure: str) -> str:
    """One sentence on what labels can do to this verdict."""
    if told.now is None:
        return f"{measure} is neither better high nor low, so there is no verdict to change"
    if told.settled:
        return f"the verdict is {told.now} whatever the unjudged items are"
    if told.holds in {"better", "worse"}:
        return f"the verdict is {told.now} now, and {told.holds} once all unjudged items are judged"
    if told.now == told.at_worst == told.at_best:
        return (
            f"the verdict is {told.now} whatever labels do to the difference, but not yet whatever"
            " they do to the baseline, whose mean the margin is a share of"
        )
    return (
        f"the verdict is {told.now} now, {told.at_worst} under the worst labels and"
        f" {told.at_best} under the best"
    )
