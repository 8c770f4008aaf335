"""Charts made of characters: sparklines and histograms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

# From low to high; the terminal replaces one by the other where it must.
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
BINS = 10
_ROUNDED = 1e-9


def sparkline(values: Sequence[float | None]) -> str:
    """Return values as blocks of different heights; a blank where there is none.

    >>> sparkline([0.1, 0.2, None, 0.4])
    '▁▃ █'
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    return "".join(
        BLOCKS[position(value, low, high, len(BLOCKS))]
        if value is not None and math.isfinite(value)
        else " "
        for value in values
    )


def position(value: float, low: float, high: float, places: int) -> int:
    """Return which of ``places`` steps from low to high a value takes."""
    if high <= low:
        return (places - 1) // 2
    return round((value - low) / (high - low) * (places - 1))


def histogram(values: Iterable[float], top: float | None) -> str:
    """Return how many values lie in each tenth from 0 to the top; blank where none does.

    Without a top, the highest value is the end. The fullest tenth has the highest block.

    >>> histogram([0, 0, 0, 0, 0.5, 1, 1], 1.0)
    '█    ▂   ▄'
    """
    known = np.array([value for value in values if math.isfinite(value)])
    if not len(known):
        return ""
    low, high = min(0.0, float(known.min())), max(top or 0.0, float(known.max()))
    # Rounding may put a value that lies on an edge, such as 0.3, just below it.
    parts = np.floor((known - low) / ((high - low) or 1.0) * BINS + _ROUNDED).astype(np.int64)
    counts = np.bincount(np.minimum(parts, BINS - 1), minlength=BINS)
    most = int(counts.max())
    # Rounded up, so that one query among thousands is visible.
    return "".join(
        BLOCKS[-(-int(count) * len(BLOCKS) // most) - 1] if count else " " for count in counts
    )
