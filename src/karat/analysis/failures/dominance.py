"""Items that crowd out gold: wrong, and at the top of the lists of many queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from karat.analysis.failures.gold_ranks import ranked_of
from karat.analysis.thresholds import Thresholds
from karat.errors import UsageError
from karat.measures.listing import without_repeats
from karat.measures.numbers import Values
from karat.measures.ranked import Mask
from karat.measures.results import Scores

_COLUMNS = {"row": pl.Int64, "rank": pl.Int64, "item_id": pl.String, "version": pl.String}


@dataclass(frozen=True, eq=False)
class Dominance:
    """The items that dominate, with how many queries, and where they stand.

    ``items`` has item_id and queries, the most frequent first; ``places`` a row for every place
    that one of them takes: row (the query), rank, item_id. ``share`` is how much of the places
    at the top of each query's list they take.
    """

    items: pl.DataFrame
    places: pl.DataFrame
    share: Values

    def above(self, rows: Sequence[int]) -> dict[int, list[str]]:
        """The dominant items in the lists of some queries, each from the top."""
        found: dict[int, list[str]] = {row: [] for row in rows}
        for row, item in self.places.select("row", "item_id").rows():
            if row in found:
                found[row].append(item)
        return found


def tops_of(scores: Scores, k: int) -> pl.DataFrame | None:
    """The first k hits of every query: row, rank, item_id, version; None if none were kept."""
    if scores.lists is None:
        return None
    lists = scores.lists.filter(pl.col("rank") <= k).sort("row", "rank")
    returned = ranked_of(scores).returned
    kept = np.bincount(lists["row"].to_numpy(), minlength=len(returned))
    if (kept < np.minimum(returned, k)).any():
        raise UsageError(f"fewer than the top {k} were kept; score the run with keep={k} or more")
    told = [
        pl.col(name).cast(kind) if name in lists.columns else pl.lit(None, kind).alias(name)
        for name, kind in _COLUMNS.items()
    ]
    return without_repeats(lists).select(told)


def dominance(
    scores: Scores,
    tops: pl.DataFrame,
    best: Values,
    assessed: Mask,
    lines: Thresholds,
    corpus_size: int | None = None,
) -> Dominance:
    """The items that stand above all gold, without being gold, in the top of many queries.

    ``best`` is the rank of each query's best-placed gold in the final list. In a small corpus
    every item stands in many lists, so it must be more of them than equal chance would give
    (see ``_places``); where the corpus is not known, it is what the tops hold.
    """
    ranked = ranked_of(scores)
    correct = ranked.hits.correct(scores.conventions.rel)
    gold = pl.DataFrame({"row": ranked.hits.query[correct], "rank": ranked.hits.rank[correct]})
    row, rank = tops["row"].to_numpy(), tops["rank"].to_numpy()
    above = tops.filter(assessed[row] & (rank < best[row]))
    wrong = above.join(gold, on=["row", "rank"], how="anti", maintain_order="left")
    scored = int((scores.status == "scored").sum())
    # 0.07 × 100 is a little more than 7 in floating point.
    share = math.ceil(round(lines.dominant_share * scored, 9))
    items_in_all = corpus_size or tops["item_id"].n_unique() or 1
    by_chance = lines.dominant_lift * _places(scores, best, assessed, lines.miss) / items_in_all
    needed = max(lines.dominant_queries, share, by_chance)
    items = wrong.group_by("item_id").agg(queries=pl.len()).filter(pl.col("queries") >= needed)
    items = items.sort(["queries", "item_id"], descending=[True, False])
    places = wrong.join(items, on="item_id", how="semi", maintain_order="left")
    taken = np.bincount(places["row"].to_numpy(), minlength=ranked.n)
    shown = np.minimum(ranked.returned, lines.miss)
    return Dominance(items, places.drop("version"), taken / np.maximum(shown, 1))


def _places(scores: Scores, best: Values, assessed: Mask, miss: int) -> float:
    """The places above gold, in the top of every answer, that an item could have taken.

    A list that a threshold shortened has as many as one that is whole: what the system left
    out of some lists makes no item more dominant in the others.
    """
    answered = assessed & (scores.status == "scored").to_numpy()
    returned = ranked_of(scores).returned[answered]
    depth = min(miss, int(returned.max(initial=0)))
    return float(np.minimum(best[answered] - 1, depth).sum())
