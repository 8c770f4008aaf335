"""The order that values put systems in: ranks, Kendall's tau of two orders, pairs that turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Means of the same values, added up another way, differ by less than this.
SAME = 1e-12


@dataclass(frozen=True, slots=True)
class Turned:
    """Two systems whose order turns: what lies between them before and after.

    ``first`` is the better one before; both differences are its value less the other's.
    """

    first: str
    second: str
    before: float
    after: float

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        return asdict(self)


def ranks(values: Sequence[float | None], *, lower: bool = False) -> list[int | None]:
    """The rank of each value, 1 for the best; equal ones share theirs, and None has none.

    >>> ranks([0.2, 0.5, None, 0.5]), ranks([0.2, 0.5], lower=True)
    ([3, 1, None, 1], [1, 2])
    """
    sign = -1.0 if lower else 1.0
    known = [sign * value for value in values if value is not None]
    return [
        None if value is None else 1 + sum(other > sign * value + SAME for other in known)
        for value in values
    ]


def tau(before: Sequence[float | None], after: Sequence[float | None]) -> float | None:
    """Kendall's tau-b of two orders of the same systems.

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


def turned(
    names: Sequence[str],
    before: Sequence[float | None],
    after: Sequence[float | None],
    *,
    lower: bool = False,
) -> list[Turned]:
    """The pairs that stand one way before and the other way after; a tie is neither.

    >>> [(one.first, one.second) for one in turned(["a", "b"], [0.1, 0.2], [0.2, 0.1])]
    [('b', 'a')]
    """
    found = []
    for i, j in combinations(range(len(names)), 2):
        deltas = [_between(values[i], values[j]) for values in (before, after)]
        if min(deltas) < -SAME and max(deltas) > SAME:
            ahead = (deltas[0] > 0) is not lower
            one, other = (i, j) if ahead else (j, i)
            sign = 1 if ahead else -1
            found.append(Turned(names[one], names[other], *(sign * delta for delta in deltas)))
    return found


def _between(first: float | None, second: float | None) -> float:
    """The difference, 0 where one of them is not known."""
    return 0.0 if first is None or second is None else first - second


def _signs(values: Sequence[float]) -> NDArray[np.float64]:
    """For each pair of values which is higher: 1, -1, or 0 where they are equal."""
    column = np.array(values, dtype=np.float64)
    between = column[:, None] - column
    return np.where(np.abs(between) > SAME, np.sign(between), 0.0)
