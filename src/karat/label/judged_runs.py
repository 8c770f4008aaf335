"""A judged run seen in other ways: on less gold, without unjudged items, and as RBP with residuals.

Also the order that values put systems in, and what changes it. ``pool_bias`` draws conclusions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.measure import aggregates
from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import values_of
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.ranges import difference_range, listed
from karat.measure.ranked import Ints, Mask, Ranked, Target
from karat.measure.scores import Scores, number_of

# Means of the same values, added up in another order, differ by less than this.
SAME = 1e-12
# Where a band of ranks ends; the last one ends at the depth of the pool.
_BAND_ENDS = (5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """A scored run that can be scored again; every mean is over the same queries."""

    name: str
    scores: Scores
    ranked: Ranked
    gold: Prepared

    @classmethod
    def of(cls, name: str, scores: Scores, gold: Prepared) -> JudgedRun:
        """Return the run with its scores on the whole gold."""
        if scores.trace is None:
            raise TypeError("scores without a trace cannot be scored again")
        # A query that loses its last relevant item stays in the mean.
        conventions = replace(gold.conventions, empty_gold="zero")
        return cls(name, scores, scores.trace.ranked, replace(gold, conventions=conventions))

    def value(self, measure: Measure) -> float | None:
        """Return the value on the whole gold."""
        return self.scores.number(measure, np.ones(self.ranked.n, dtype=bool))

    def value_on(self, measure: Measure, ranked: Ranked) -> float | None:
        """Return the value on other lists or other gold, over the queries that have one now."""
        values = self._query_values(measure, ranked, measure)
        return number_of(measure)(values, aggregates.NOTHING)

    def _query_values(self, measure: Measure, ranked: Ranked, counted: Measure) -> Values:
        rows = ~np.isnan(self.scores.values(str(counted)))
        values = values_of(measure, ranked, self.gold)[rows]
        return np.where(np.isnan(values), measure.definition.worst, values)

    def contributed(self, depth: int) -> Ints:
        """Return which judgments of the gold are of items in the run's top."""
        hits = self.ranked.hits
        rows = np.empty(0, dtype=np.int64) if hits.row is None else hits.row
        return rows[hits.rank <= depth]

    def without(self, target: Target, removed: Mask) -> Ranked:
        """Return the lists on gold without some judgments; ``target`` is that gold."""
        hits = self.ranked.hits
        remaining = hits.where(~removed[hits.row]) if hits.row is not None else hits
        remaining = replace(remaining, row=None)
        return replace(self.ranked, target=target, hits=remaining, found=remaining)

    def condensed(self) -> Ranked:
        """Return the lists without unjudged items; the others move up."""
        hits = self.ranked.hits.where(self.ranked.hits.grade >= 0)
        hits = replace(hits, rank=hits.so_far(np.ones(len(hits.rank), dtype=bool)))
        length = np.bincount(hits.query, minlength=hits.n)
        return replace(self.ranked, hits=hits, found=hits, returned=length)

    def bands(self, depth: int) -> list[dict[str, Any]]:
        """Return the judged items by rank, over the queries that have any judgment.

        The share is None for ranks at which nothing was returned.
        """
        hits, has_judgment = self.ranked.hits, judged_queries(self.ranked.target)
        returned = self.ranked.returned[has_judgment]
        judged = hits.rank[(hits.grade >= 0) & has_judgment[hits.query]]
        ends = [0, *(end for end in _BAND_ENDS if end < depth), depth]
        bands = []
        for start, end in pairwise(ends):
            items = int((np.minimum(returned, end) - np.minimum(returned, start)).sum())
            known = int(((judged > start) & (judged <= end)).sum())
            share = known / items if items else None
            bands.append(
                {"from": start + 1, "to": end, "items": items, "judged": known, "share": share}
            )
        return bands

    def residual(self, rbp: Measure) -> dict[str, float] | None:
        """Return the lowest and highest value that a run's RBP can have; None without a value.

        Between the two lies the weight of ``unjudged`` items, and of the ranks ``beyond`` the end
        of a list or the cut-off.
        """
        low = self.value(rbp)
        if low is None:
            return None
        weight = Measure("RBPres", rbp.k, tuple((k, v) for k, v in rbp.params if k == "p"))
        rows = ~np.isnan(self.scores.values(str(rbp)))
        beyond = self.beyond(rbp)[rows]
        open_weight = self._query_values(weight, self.ranked, rbp)
        unjudged = aggregates.mean(np.maximum(open_weight - beyond, 0.0)) or 0.0
        below = aggregates.mean(beyond) or 0.0
        high = min(low + unjudged + below, 1.0)
        return {"low": low, "high": high, "unjudged": unjudged, "beyond": below}

    def beyond(self, rbp: Measure) -> Values:
        """Return the weight of the ranks below the end of each list, or below the cut-off."""
        p = float(rbp.arguments.get("p", rbp.definition.parameters["p"]))
        ends = np.minimum(self.ranked.returned, self.ranked.limit(rbp.k))
        return np.array([p**end for end in ends.tolist()])


def judged_queries(target: Target) -> Mask:
    """Return which queries have a judgment, relevant or not."""
    return np.bincount(target.query[target.grade >= 0], minlength=target.n) > 0


def without_judgments(target: Target, removed: Mask) -> Target:
    """Return gold without some of its judgments; every query stays."""
    remaining = ~removed
    return replace(
        target,
        query=target.query[remaining],
        grade=target.grade[remaining],
        unit=target.unit[remaining],
    )


def ranks(values: Sequence[float | None], *, lower: bool = False) -> list[int | None]:
    """Return the rank of each value, 1 for the best; equal values share theirs, None has none.

    >>> ranks([0.2, 0.5, None, 0.5]), ranks([0.2, 0.5], lower=True)
    ([3, 1, None, 1], [1, 2])
    """
    sign = -1.0 if lower else 1.0
    known_values = [sign * value for value in values if value is not None]
    return [
        None if value is None else 1 + sum(other > sign * value + SAME for other in known_values)
        for value in values
    ]


def tau(before: Sequence[float | None], after: Sequence[float | None]) -> float | None:
    """Return Kendall's tau-b of two orders of the same systems.

    None where fewer than two have both values, or where one side ties them all.

    >>> tau([0.1, 0.2, 0.3], [0.1, 0.3, 0.2])
    0.3333333333333333
    """
    both = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
    first, second = (_signs([pair[side] for pair in both]) for side in (0, 1))
    pairs = float(np.abs(first).sum()), float(np.abs(second).sum())
    if not all(pairs):
        return None
    return float((first * second).sum()) / math.sqrt(pairs[0] * pairs[1])


def _signs(values: Sequence[float]) -> NDArray[np.float64]:
    """Return for each pair of values which is higher: 1, -1, or 0 where they are equal."""
    column = np.array(values, dtype=np.float64)
    difference = column[:, None] - column
    return np.where(np.abs(difference) > SAME, np.sign(difference), 0.0)


def swaps(
    names: Sequence[str],
    before: Sequence[float | None],
    after: Sequence[float | None],
    *,
    lower: bool = False,
) -> list[dict[str, Any]]:
    """Return the pairs of systems that change places; a tie on either side is no change.

    ``first`` is the better one before; both differences are its value less the other's.

    >>> [(swap["first"], swap["second"]) for swap in swaps(["a", "b"], [0.1, 0.2], [0.2, 0.1])]
    [('b', 'a')]
    """
    columns = zip(names, before, after, strict=True)
    known_pairs = [(name, v, w) for name, v, w in columns if v is not None and w is not None]
    turned = []
    for first, second in combinations(known_pairs, 2):
        if (second[1] > first[1]) is not lower:
            first, second = second, first
        now, then = first[1] - second[1], first[2] - second[2]
        if _both_signs(min(now, then), max(now, then)):
            turned.append({"first": first[0], "second": second[0], "before": now, "after": then})
    return turned


def rbp_differences(
    rbp: Measure, runs: Sequence[JudgedRun], gold: Prepared
) -> list[dict[str, Any]]:
    """Return the second run's RBP less the first one's, for every two with a common query.

    ``range`` is over all labels that the unjudged items of the two could have; ``range_beyond``
    adds what the ranks below the end of their lists could change. ``open`` says what leaves the
    order open: equal, unjudged, beyond (only ranks below the end) or None.
    """
    lists = [(run, listed(run.scores)) for run in runs]
    differences = []
    for (first, first_list), (second, second_list) in combinations(lists, 2):
        reach = difference_range(rbp, first_list, second_list, gold)
        rows = ~np.isnan(reach.low)
        if not rows.any():
            continue
        deltas = second_list.values(str(rbp)) - first_list.values(str(rbp))
        columns = (deltas, reach.low, reach.high, first.beyond(rbp), second.beyond(rbp))
        delta, low, high, below, above = (
            aggregates.mean(values[rows]) or 0.0 for values in columns
        )
        undecided = None
        if abs(delta) <= SAME:
            undecided = "equal"
        elif _both_signs(low, high):
            undecided = "unjudged"
        elif _both_signs(low - below, high + above):
            undecided = "beyond"
        differences.append(
            {
                "systems": [first.name, second.name],
                "queries": int(rows.sum()),
                "delta": delta,
                "range": [low, high],
                "range_beyond": [low - below, high + above],
                "open": undecided,
            }
        )
    return differences


def _both_signs(low: float, high: float) -> bool:
    return low < -SAME and high > SAME
