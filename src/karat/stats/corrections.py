"""p values of a family of tests, corrected for how many there are; None is no test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Each p, so that one wrong rejection anywhere is as rare as the level says.

    >>> holm([0.01, None, 0.04])
    [0.02, None, 0.04]
    """

    def stepped(ordered: list[float]) -> list[float]:
        m = len(ordered)
        return list(accumulate(((m - i) * p for i, p in enumerate(ordered)), max))

    return _in_order(ps, stepped)


def benjamini_hochberg(ps: Sequence[float | None]) -> list[float | None]:
    """Each p, so that the expected share of wrong rejections among all is as the level says.

    >>> benjamini_hochberg([0.01, None, 0.04])
    [0.02, None, 0.04]
    """

    def stepped(ordered: list[float]) -> list[float]:
        m = len(ordered)
        # m / rank times p, in an order of operations that never falls below p.
        raw = [p * (m / rank) for rank, p in enumerate(ordered, start=1)]
        return list(accumulate(reversed(raw), min))[::-1]

    return _in_order(ps, stepped)


def _in_order(
    ps: Sequence[float | None], stepped: Callable[[list[float]], list[float]]
) -> list[float | None]:
    """Correct the known p values from the smallest up, and put each back in its place."""
    known = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    for (_, place), value in zip(known, stepped([p for p, _ in known]), strict=True):
        corrected[place] = min(1.0, value)
    return corrected
