"""Krippendorff's alpha: how far any number of raters agree, whoever judged what."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from karat.errors import UsageError, unknown
from karat.stats.exact import Places, Values

Level = Literal["nominal", "ordinal", "interval"]
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval")


def krippendorff_alpha(items: Places, grades: Values, *, level: Level = "nominal") -> float | None:
    """Krippendorff's alpha of judgments: 1 is agreement, 0 what chance alone would give.

    One entry a judgment: which item it is of, and its grade; who gave it does not matter. Items
    may have any number of judgments, and those with a single one take no part. Disagreements
    count alike (``nominal``), by how many judgments lie between the two grades (``ordinal``), or
    by the square of their distance (``interval``).

    None where it cannot be told: no item has two judgments, or all of them are of one grade.

    >>> items, grades = np.array([1, 1, 2, 2, 3, 3]), np.array([0.0, 0, 1, 1, 0, 1])
    >>> round(krippendorff_alpha(items, grades), 4)
    0.4444
    """
    if level not in LEVELS:
        raise unknown("level", level, LEVELS)
    if len(items) != len(grades):
        raise UsageError(f"{len(items)} items and {len(grades)} grades; one grade an item each")
    if not np.isfinite(grades).all():
        raise UsageError("a grade is NaN or infinite; leave out judgments without a grade")
    known, met = _met(items, grades)
    often = met.sum(axis=1)
    total = float(often.sum())
    apart = _apart(known, often, level)
    expected = float((np.outer(often, often) * apart).sum())
    if not expected:
        return None
    return 1 - (total - 1) * float((met * apart).sum()) / expected


def _met(items: Places, grades: Values) -> tuple[Values, Values]:
    """The grades of items that were judged twice or more, and how often each pair of them met.

    An item of m judgments has m (m - 1) ordered pairs, each of which counts 1/(m - 1).
    """
    _, item = np.unique(items, return_inverse=True)
    several = np.bincount(item)[item] > 1 if len(item) else np.zeros(0, dtype=bool)
    known, place = np.unique(grades[several], return_inverse=True)
    _, row = np.unique(item[several], return_inverse=True)
    shape = (int(row.max(initial=-1)) + 1, len(known))
    counts = np.bincount(row * shape[1] + place, minlength=shape[0] * shape[1]).reshape(shape)
    sizes = counts.sum(axis=1)
    met = np.zeros((len(known), len(known)))
    for size in np.unique(sizes).tolist():
        # In whole numbers, so that the order of the judgments changes nothing.
        alike = counts[sizes == size]
        pairs = alike.T @ alike - np.diag(alike.sum(axis=0))
        met += pairs / (size - 1)
    return known, met


def _apart(known: Values, often: Values, level: Level) -> NDArray[np.float64]:
    """What a disagreement on each pair of grades counts."""
    if level == "nominal":
        return 1 - np.eye(len(known))
    # The ranks of a grade's judgments, in their middle: between two lie half of both and the rest.
    places = known if level == "interval" else np.cumsum(often) - often / 2
    distances: NDArray[np.float64] = (places[:, None] - places[None, :]) ** 2
    return distances
