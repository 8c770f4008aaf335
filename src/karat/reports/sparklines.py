"""Numbers drawn with letters: a course as blocks of different heights, and a distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from karat.measures.results import Scores, Summary

# From low to high.
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
# So many parts between the lowest value that a query can have and the highest.
BINS = 10
_ROUNDED = 1e-9


def sparkline(values: Sequence[float | None], *, ascii_only: bool = False) -> str:
    """Values as blocks of different heights; a blank where there is none.

    >>> sparkline([0.1, 0.2, None, 0.4])
    '▁▃ █'
    """
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    return "".join(
        blocks[place(value, low, high, len(blocks))]
        if value is not None and math.isfinite(value)
        else " "
        for value in values
    )


def place(value: float, low: float, high: float, places: int) -> int:
    """Which of so many places from low to high a value takes; the middle where all are equal."""
    if high <= low:
        return (places - 1) // 2
    return round((value - low) / (high - low) * (places - 1))


def histogram(values: Iterable[float], top: float | None, *, ascii_only: bool = False) -> str:
    """How many values lie in each tenth of the way from 0 to the top: blank where none does.

    Without a top, the highest value is the end. The fullest part is drawn as high as can be.

    >>> histogram([0, 0, 0, 0, 0.5, 1, 1], 1.0)
    '█    ▂   ▄'
    """
    known = np.array([value for value in values if math.isfinite(value)])
    if not len(known):
        return ""
    low, high = min(0.0, float(known.min())), max(top or 0.0, float(known.max()))
    # A value that should lie on an edge, such as 0.3, may lie a bit below it.
    parts = np.floor((known - low) / ((high - low) or 1.0) * BINS + _ROUNDED).astype(np.int64)
    counts = np.bincount(np.minimum(parts, BINS - 1), minlength=BINS)
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    most = int(counts.max())
    # Rounded up: one query among thousands is still seen.
    return "".join(
        blocks[-(-int(count) * len(blocks) // most) - 1] if count else " " for count in counts
    )


def spreads_of(
    scores: Scores, summaries: Mapping[str, Summary], *, ascii_only: bool = False
) -> dict[str, str]:
    """How the queries' values spread, by measure; not for numbers that are of the whole set."""
    spreads = {}
    for measure in scores.measures:
        name = str(measure)
        if name in summaries and summaries[name].quantiles is not None:
            top = summaries[name].ceiling if measure.definition.ceiling == "k" else None
            top = 1.0 if measure.definition.bounded else top
            spreads[name] = histogram(scores.values(name), top, ascii_only=ascii_only)
    return spreads
