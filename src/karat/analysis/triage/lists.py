"""The lists of a few queries, as a run returned them, each hit with its judgment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from karat.errors import UsageError
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ranked
from karat.measures.results import Scores


def ranked_in(scores: Scores) -> Ranked:
    """The lists as they met their gold."""
    if scores.trace is None:
        raise UsageError("scores from a store do not say where items stood; score the run itself")
    return scores.trace.ranked


def listed(
    scores: Scores, gold: Prepared, rows: Sequence[int], k: int
) -> dict[int, list[dict[str, Any]]]:
    """The first k hits of some queries, each with its judgment."""
    ranked = ranked_in(scores)
    found: dict[int, list[dict[str, Any]]] = {row: [] for row in rows}
    grades = _grades(ranked, rows)
    for hit in _hits(scores, rows, k):
        row, again = hit.pop("row"), hit.pop("repeat")
        grade = grades.get((row, hit["rank"]))
        right = grade is not None and grade >= gold.conventions.rel
        told = {"score": None, **hit, "grade": grade, "gold": right}
        found[row].append({**told, "repeat": True} if again else told)
    if any(len(hits) < min(k, ranked.returned[row]) for row, hits in found.items()):
        raise UsageError(f"fewer than the top {k} were kept; score the run with keep={k} or more")
    return found


def _hits(scores: Scores, rows: Sequence[int], k: int) -> Iterator[dict[str, Any]]:
    """What was kept of the first k hits of some queries, by row and rank."""
    if scores.lists is not None:
        own = pl.col("row").is_in(list(rows)) & (pl.col("rank") <= k)
        told = [
            name
            for name in ("row", "rank", "item_id", "score", "repeat")
            if name in scores.lists.columns
        ]
        yield from scores.lists.filter(own).select(told).sort("row", "rank").iter_rows(named=True)


def _grades(ranked: Ranked, rows: Sequence[int]) -> dict[tuple[int, int], float]:
    """The grade of each judged hit of some queries, by row and rank.

    A further chunk of a document that is judged has that document's grade.
    """
    hits = ranked.hits
    own = hits.where(np.isin(hits.query, np.array(rows, dtype=np.int64)))
    grade = own.grade if own.best is None else own.best
    places = zip(own.query.tolist(), own.rank.tolist(), strict=True)
    return dict(zip(places, grade.tolist(), strict=True))
