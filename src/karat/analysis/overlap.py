"""How alike the lists of two systems are, query by query and on average."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.measures import numbers
from karat.measures.listing import without_repeats
from karat.measures.scores import Scores

# How deep lists are compared, and where Jaccard looks.
DEPTH = 100
TOP = 10
# Ten items hold 86 % of the weight of a rank-biased overlap with this persistence.
PERSISTENCE = 0.9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Means over the queries that both systems answered, of the first 100 items.

    ``jaccard`` is of the first 10, ``rbo`` the extrapolated rank-biased overlap (p = 0.9),
    ``tau`` Kendall's of the items in both lists, None where no query has two of them.
    """

    baseline: str
    system: str
    queries: int
    jaccard: float | None
    rbo: float | None
    tau: float | None
    identical: bool

    def document(self) -> dict[str, Any]:
        """The overlap as it stands in a report."""
        document = asdict(self)
        return document | {f"Jaccard@{TOP}": document.pop("jaccard"), "RBO": document.pop("rbo")}


def overlap(baseline: Scores, system: Scores, names: tuple[str, str]) -> Overlap | None:
    """Compare the top items of two systems; None where they were not kept."""
    a, b = baseline.lists, system.lists
    if a is None or b is None:
        return None
    rows = np.intersect1d(a["row"].unique().to_numpy(), b["row"].unique().to_numpy())
    a, b = (_numbered(one, rows) for one in (a, b))
    common = a.join(b, on=["row", "item_id"], suffix="_b", maintain_order="left")
    at, ra, rb = (common[name].to_numpy() for name in ("row", "rank", "rank_b"))
    lengths = [np.bincount(one["row"].to_numpy(), minlength=len(rows)) for one in (a, b)]
    return Overlap(
        *names,
        queries=len(rows),
        jaccard=numbers.mean(_jaccard(at, ra, rb, lengths)),
        rbo=numbers.mean(_rbo(at, np.maximum(ra, rb), lengths)),
        tau=numbers.mean(_tau(at, ra, rb, len(rows))),
        identical=_same(baseline.lists, system.lists),
    )


def _numbered(lists: pl.DataFrame | None, rows: NDArray[np.int64]) -> pl.DataFrame:
    """The lists of these rows, numbered from 0."""
    if lists is None:
        return pl.DataFrame()
    kept = lists.filter(pl.col("row").is_in(rows.tolist()))
    # Which items, and in which order: each once.
    kept = without_repeats(kept).sort("row", "rank")
    kept = kept.with_columns(rank=pl.int_range(1, pl.len() + 1).over("row"))
    return kept.with_columns(row=np.searchsorted(rows, kept["row"].to_numpy()))


def _same(a: pl.DataFrame | None, b: pl.DataFrame | None) -> bool:
    if a is None or b is None or a.height != b.height:
        return False
    one, other = (lists.select("row", "rank", "item_id").sort("row", "rank") for lists in (a, b))
    return one.equals(other)


def _jaccard(
    at: NDArray[np.int64],
    ra: NDArray[np.int64],
    rb: NDArray[np.int64],
    lengths: list[NDArray[np.int64]],
) -> Floats:
    short = [np.minimum(one, TOP) for one in lengths]
    both = np.bincount(at[(ra <= TOP) & (rb <= TOP)], minlength=len(short[0]))
    return both / (short[0] + short[1] - both)


def _rbo(
    at: NDArray[np.int64], depth: NDArray[np.int64], lengths: list[NDArray[np.int64]]
) -> Floats:
    """Extrapolated RBO (Webber et al. 2010, equation 32) of lists that may differ in length.

    An item in both lists belongs to their overlap from the deeper of its two ranks on, so
    each brings a tail of the weights p^d/d, which is a difference of two cumulated sums.
    """
    p, n = PERSISTENCE, len(lengths[0])
    short, long = np.minimum(*lengths), np.maximum(*lengths)
    d = np.arange(1, DEPTH + 1)
    power = np.concatenate(([0.0], np.cumsum(p**d)))
    share = np.concatenate(([0.0], np.cumsum(p**d / d)))
    agreed = np.bincount(at, weights=share[long[at]] - share[depth - 1], minlength=n)
    found = np.bincount(at, minlength=n)
    found_short = np.bincount(at[depth <= short[at]], minlength=n)
    missing = (power[long] - power[short]) / short - (share[long] - share[short])
    rest = ((found - found_short) / long + found_short / short) * p**long
    return np.asarray((1 - p) / p * (agreed + found_short * missing) + rest)


def _tau(at: NDArray[np.int64], ra: NDArray[np.int64], rb: NDArray[np.int64], n: int) -> Floats:
    """Kendall's tau for each query with at least two items in both lists, else NaN."""
    taus = np.full(n, np.nan)
    order = np.argsort(at, kind="stable")
    ends = np.cumsum(np.bincount(at, minlength=n))
    for row, (start, end) in enumerate(zip(ends - np.diff(ends, prepend=0), ends, strict=True)):
        if end - start > 1:
            first, second = ra[order[start:end]], rb[order[start:end]]
            agree = np.sign(first[:, None] - first) * np.sign(second[:, None] - second)
            taus[row] = agree.sum() / (len(first) * (len(first) - 1))
    return taus
