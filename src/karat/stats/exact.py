"""Values on a grid so coarse that float64 sums are exact, and so equal in any order of adding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from karat.errors import UsageError

Values = NDArray[np.float64]
Places = NDArray[np.int64]


def rows_of(columns: Values) -> Values:
    """One contiguous row a column: sums along it do not depend on the other columns."""
    rows = np.ascontiguousarray(columns.T, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise UsageError("a column holds NaN or infinity; leave out the rows without a value")
    return rows


def sums_by(member: Places, rows: Values) -> Values:
    """Each row's sums over the entries with the same member number, 0 up to the largest."""
    count = int(member.max(initial=-1)) + 1
    sums = [np.bincount(member, weights=row, minlength=count) for row in rows]
    return np.array(sums, dtype=np.float64).reshape(len(rows), count)


def on_grid(rows: Values, terms: int | None = None) -> tuple[Values, Values]:
    """Each row in whole multiples of its grid, and the grid of each row.

    Any sum of ``terms`` entries of a row (as many as it has, unless said) stays below 2^53
    multiples, so that a matrix product gives the same bits on any number of threads. What
    rounding loses is at most 2^-51 of the largest value times the number of terms.
    """
    terms = rows.shape[-1] if terms is None else terms
    largest = np.abs(rows).max(axis=-1, initial=0.0)
    exponent = np.frexp(largest)[1] + terms.bit_length() - 52
    # Not below the smallest normal number: beneath it there is no grid to speak of.
    grid = np.ldexp(1.0, np.maximum(exponent, -1022))
    return np.rint(rows / grid[..., None]), grid
