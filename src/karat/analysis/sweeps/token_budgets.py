"""What a cut-off costs: the tokens of the items above it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.analysis.staged import Staged
from karat.measures.intervals import plan_of
from karat.measures.numbers import Values, mean
from karat.measures.scores import Scores
from karat.stats.means import mean_intervals


@dataclass(frozen=True, slots=True)
class TokenPoint:
    """The tokens of the first k items, over the queries all of whose items are known."""

    k: int
    mean: float | None
    ci: tuple[float, float] | None
    n: int
    beyond_log: bool = False

    def document(self) -> dict[str, Any]:
        """The point as it stands in a report."""
        return asdict(self) | {"ci": None if self.ci is None else list(self.ci)}


@dataclass(frozen=True, slots=True)
class TokenLine:
    """The tokens at each cut-off; ``unknown_items`` were returned and have no known length.

    ``counted`` is ``words`` where nobody gave token counts.
    """

    points: tuple[TokenPoint, ...]
    unknown_items: int
    counted: Literal["tokens", "words"]

    def document(self) -> dict[str, Any]:
        """The line as it stands in a report."""
        points = [point.document() for point in self.points]
        unknown = {"counted": self.counted, "unknown_items": self.unknown_items}
        return {"kind": "tokens", "points": points, **unknown}


def token_line(staged: Staged, ks: Sequence[int], measured: Sequence[int]) -> TokenLine | None:
    """What each cut-off costs; None where the length of no item is known."""
    scores, corpus = staged.final, staged.gold.corpus
    lists = _lengths(scores)
    if lists is None or lists["tokens"].null_count() == lists.height:
        return None
    deepest = max(measured, default=0)
    top = lists.filter(pl.col("rank") <= deepest)
    columns = {k: _tokens_at(scores, top, k) for k in measured}
    ends = _intervals(columns, scores)
    points = [
        TokenPoint(k, mean(columns[k]), ends[k], int((~np.isnan(columns[k])).sum()))
        if k in columns
        else TokenPoint(k, None, None, 0, beyond_log=True)
        for k in ks
    ]
    unknown = top.filter(pl.col("tokens").is_null())["item_id"].n_unique()
    told = corpus is None or "tokens" in corpus.columns
    return TokenLine(tuple(points), unknown, "tokens" if told else "words")


def _lengths(scores: Scores) -> pl.DataFrame | None:
    """The kept lists with each item's tokens, null where they are not known."""
    if scores.lists is None or "tokens" not in scores.lists.columns:
        return None
    return scores.lists


def _tokens_at(scores: Scores, lists: pl.DataFrame, k: int) -> Values:
    """The tokens of each query's first k items; NaN where one is unknown or nothing was asked."""
    top = lists.filter(pl.col("rank") <= k)
    n = scores.table.height
    tokens = top["tokens"].fill_null(float("nan")).to_numpy()
    values = np.bincount(top["row"].to_numpy(), weights=tokens, minlength=n)
    asked = (scores.status == "scored").to_numpy()
    asked[lists["row"].unique().to_numpy()] = True
    return np.where(asked, values, np.nan)


def _intervals(columns: dict[int, Values], scores: Scores) -> dict[int, tuple[float, float] | None]:
    """The interval of each mean; columns over the same queries are resampled together."""
    found: dict[int, tuple[float, float] | None] = dict.fromkeys(columns)
    if scores.conventions.interval == "none":
        return found
    together: dict[bytes, list[int]] = {}
    for k, values in columns.items():
        together.setdefault(np.isnan(values).tobytes(), []).append(k)
    for some in together.values():
        rows: NDArray[np.bool_] = ~np.isnan(columns[some[0]])
        ends = mean_intervals(
            np.stack([columns[k][rows] for k in some], axis=1),
            plan_of(scores.conventions),
            groups=None if scores.groups is None else scores.groups[rows],
        )
        for k, (low, high) in zip(some, ends.tolist(), strict=True):
            found[k] = None if math.isnan(low) else (low, high)
    return found
