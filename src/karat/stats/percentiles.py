"""The difference between a percentile of two paired columns: resampled, and with sides swapped."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

# Values that are held at one time.
_CELLS = 2_000_000


def resampled_differences(
    a: Values, b: Values, share: float, *, resamples: int, seed: int = 0
) -> Values:
    """B's percentile minus a's, in resamples of the rows."""
    rng = np.random.default_rng([seed, len(a)])
    parts = []
    for size in _chunks(resamples, len(a)):
        rows = rng.integers(0, len(a), size=(size, len(a)))
        parts.append(_differences(a[rows], b[rows], share))
    return np.concatenate(parts)


def swapped_differences(
    a: Values, b: Values, share: float, *, resamples: int, seed: int = 0
) -> Values:
    """The same difference, with the two values of each row swapped or not at random."""
    rng = np.random.default_rng([seed, len(a), 1])
    parts = []
    for size in _chunks(resamples, len(a)):
        swap = rng.integers(0, 2, size=(size, len(a)), dtype=np.int8).astype(bool)
        parts.append(_differences(np.where(swap, b, a), np.where(swap, a, b), share))
    return np.concatenate(parts)


def _chunks(resamples: int, n: int) -> list[int]:
    size = max(1, _CELLS // n)
    return [min(size, resamples - start) for start in range(0, resamples, size)]


def _differences(a: Values, b: Values, share: float) -> Values:
    first, second = (np.percentile(one, 100 * share, axis=1) for one in (a, b))
    return np.asarray(second - first)
