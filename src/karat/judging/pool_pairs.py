"""Two runs by RBP under one labelling: how far apart judgments could put them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from karat.judging.pool_lists import JudgedRun
from karat.judging.pool_orders import SAME
from karat.measures import numbers
from karat.measures.bounds.differences import difference_range
from karat.measures.bounds.unjudged import Listed, listed
from karat.measures.names import Measure
from karat.measures.prepare import Prepared

# All ranks below the last one that is kept weigh less than this together.
_NO_WEIGHT = 1e-15


@dataclass(frozen=True, slots=True)
class Difference:
    """The second run's RBP less the first one's: now, and at least and at most.

    ``low`` and ``high`` are over all common labellings of what the two return and nobody judged.
    ``below`` and ``above`` are how much further the ranks below the end of the first list, and of
    the second one, could move them. All are means over the queries that both have a value for.
    """

    first: str
    second: str
    queries: int
    now: float
    low: float
    high: float
    below: float
    above: float

    @property
    def open(self) -> str | None:
        """What leaves the order open: equal, unjudged, beyond (only ranks below the end), None."""
        if abs(self.now) <= SAME:
            return "equal"
        if _both_signs(self.low, self.high):
            return "unjudged"
        return "beyond" if _both_signs(self.low - self.below, self.high + self.above) else None

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        return {
            "systems": [self.first, self.second],
            "queries": self.queries,
            "delta": self.now,
            "range": [self.low, self.high],
            "range_beyond": [self.low - self.below, self.high + self.above],
            "open": self.open,
        }


def ranks_that_weigh(measures: Sequence[Measure]) -> int:
    """How many ranks have a weight in any of some RBPs.

    >>> from karat.measures.names import parse_measure
    >>> ranks_that_weigh([parse_measure("RBP(p=0.5)")])
    50
    """
    given = [one.arguments.get("p", one.definition.parameters["p"]) for one in measures]
    # A p that is none is refused by the measure itself.
    return max(
        (math.ceil(math.log(_NO_WEIGHT) / math.log(p)) for p in given if 0 < p < 1), default=1
    )


def differences(rbp: Measure, judged: Sequence[JudgedRun], gold: Prepared) -> list[Difference]:
    """Every pair of runs that have a query in common, in the order in which they are given."""
    lists = [(one, listed(one.scores)) for one in judged]
    found = (_between(rbp, first, second, gold) for first, second in combinations(lists, 2))
    return [one for one in found if one is not None]


def _between(
    rbp: Measure,
    first: tuple[JudgedRun, Listed],
    second: tuple[JudgedRun, Listed],
    gold: Prepared,
) -> Difference | None:
    (one, ours), (other, theirs) = first, second
    # What is known of a pair is kept as long as both its lists are: a copy lets go of it.
    reach = difference_range(rbp, ours, replace(theirs), gold)
    rows = ~np.isnan(reach.low)
    if not rows.any():
        return None
    now = theirs.values(str(rbp)) - ours.values(str(rbp))
    each = (now, reach.low, reach.high, one.beyond(rbp), other.beyond(rbp))
    means = [numbers.mean(values[rows]) or 0.0 for values in each]
    return Difference(one.name, other.name, int(rows.sum()), *means)


def _both_signs(low: float, high: float) -> bool:
    return low < -SAME and high > SAME
