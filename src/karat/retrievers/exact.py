"""Exact search among vectors: one matrix product for many queries, then the top of each."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from karat.retrievers.embedding import unit_rows
from karat.retrievers.ranking import top_rows
from karat.retrievers.vectors import Floats

Metric = Literal["cosine", "dot"]
# Scores that are held at a time, and rows that are scored anew at a time.
_MOST_SCORES = 50_000_000
_BLOCK = 4096
# How far single precision can be off in one multiplication, relative and absolute.
_OFF, _LEAST = 2.0**-24, 2.0**-149


class Found(NamedTuple):
    """The best rows for a query, with their scores and cosines."""

    rows: npt.NDArray[np.intp]
    scores: npt.NDArray[np.float64]
    cosines: npt.NDArray[np.float64]


class Exact:
    """Vectors in memory; equal scores come in the order of the rows.

    The product in single precision chooses candidates, wide enough that its rounding loses
    none; their scores are then worked out one by one in double precision. So a query has the
    same scores alone as among others, and equal vectors have equal scores.
    """

    def __init__(self, rows: Floats, metric: Metric) -> None:
        self.rows = unit_rows(rows) if metric == "cosine" else rows
        self._cosine = metric == "cosine"
        self._lengths = _lengths(self.rows)
        self._longest = float(self._lengths.max(initial=0.0))

    def top(self, queries: Floats, k: int) -> list[Found]:
        """The k best rows for each query."""
        if self._cosine:
            queries = unit_rows(queries)
        found: list[Found] = []
        step = max(1, _MOST_SCORES // max(1, len(self.rows)))
        for start in range(0, len(queries), step):
            some = queries[start : start + step]
            found += [
                self._best(query, rough, k)
                for query, rough in zip(some, some @ self.rows.T, strict=True)
            ]
        return found

    def _best(self, query: Floats, rough: Floats, k: int) -> Found:
        wide = query.astype(np.float64)
        length = float(np.sqrt((wide * wide).sum()))
        off = len(query) * (_OFF * length * self._longest + _LEAST)
        rows = _candidates(rough, k, 2.1 * off)
        dots = np.empty(len(rows))
        for start in range(0, len(rows), _BLOCK):
            block = self.rows[rows[start : start + _BLOCK]].astype(np.float64)
            # Row by row, and so the same whatever else is in the block.
            dots[start : start + len(block)] = np.einsum("ij,j->i", block, wide)
        lengths = length * self._lengths[rows]
        cosines = np.clip(dots / np.where(lengths == 0, 1.0, lengths), -1.0, 1.0)
        best = top_rows(cosines if self._cosine else dots, k)
        scores = cosines if self._cosine else dots
        return Found(rows[best], scores[best], cosines[best])


def _candidates(rough: Floats, k: int, slack: float) -> npt.NDArray[np.intp]:
    """The rows of the k best scores and of those that rounding may have put behind them."""
    if k >= len(rough):
        return np.arange(len(rough))
    least = float(np.partition(rough, len(rough) - k)[len(rough) - k])
    # In single precision as well, or all scores would be widened to be compared.
    floor = np.nextafter(np.float32(least - slack), np.float32(-np.inf))
    return np.flatnonzero(rough >= floor)


def _lengths(rows: Floats) -> npt.NDArray[np.float64]:
    lengths = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        wide = rows[start : start + _BLOCK].astype(np.float64)
        lengths[start : start + len(wide)] = np.sqrt((wide * wide).sum(axis=1))
    return lengths
