"""The best rows of an array of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def top_rows(scores: npt.NDArray[Any], k: int) -> npt.NDArray[np.intp]:
    """The rows of the k highest scores, best first; equal scores stay in their order.

    >>> top_rows(np.array([0.1, 0.7, 0.7, 0.3]), 3).tolist()
    [1, 2, 3]
    """
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows = np.flatnonzero(scores >= least)
    else:
        rows = np.arange(len(scores))
    return rows[np.argsort(-scores[rows], kind="stable")][:k]
