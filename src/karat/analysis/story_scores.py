"""Retrieval quality of a story from a run that was scored: its lists are the rankings.

A log may end before the scenes do; what cannot be known from it is refused, never 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import polars as pl

from karat.analysis.skipped import PROFILE
from karat.analysis.story_quality import Found, Quality, Ranking, story_quality
from karat.errors import MissingInputError, UsageError
from karat.formats.story import Asked
from karat.measures.conventions import PROFILES
from karat.measures.scores import Scores
from karat.tables import Corpus, Gold, Queries

# What the metric leaves no choice about; k, ties, order and the like stay the caller's.
_FIXED = ("level", "empty_gold", "depth")


def quality_of(
    scores: Scores, gold: Gold, queries: Queries | None, corpus: Corpus | None
) -> Quality:
    """What ``karat story`` would find, had it ranked the scenes as this run does."""
    _check(scores, queries)
    asked = _asked(queries, gold, scores.conventions.rel) if queries is not None else []
    lists = _Lists.of(scores, corpus)
    k = scores.conventions.k
    status = dict(zip(scores.table["query_id"], scores.status, strict=True))

    def rank(one: Asked) -> Ranking:
        if status[one.query_id] == "scored":
            lists.check(one, one.k or k)
        return lists.of_query.get(one.query_id, [])

    quality = story_quality(asked, rank, k=k)
    skip = scores.conventions.missing == "skip"
    told = [_with_trouble(found, status[found.query_id], skip=skip) for found in quality.queries]
    return replace(quality, queries=tuple(told))


def _check(scores: Scores, queries: Queries | None) -> None:
    usual = PROFILES[PROFILE].conventions
    for name in _FIXED:
        value = getattr(scores.conventions, name)
        if value != getattr(usual, name):
            raise UsageError(f"output story: has no {name}={value}; leave out that setting")
    if queries is None:
        raise MissingInputError(
            "output story: shows what was asked, and the gold holds no texts; "
            "name the queries: --queries queries.json"
        )


def _asked(queries: Queries, gold: Gold, rel: float) -> list[Asked]:
    """The queries with their gold, as they stand in a file of a story's queries."""
    relevant: dict[str, set[str]] = {}
    judged = gold.frame.filter(pl.col("grade") >= rel)
    for query_id, item_id in judged.select("query_id", "item_id").iter_rows():
        relevant.setdefault(query_id, set()).add(item_id)
    ids, texts = queries.frame["query_id"], queries.frame["text"]
    own = queries.frame.get_column("k", default=pl.Series([None] * len(ids)))
    # Scoring has refused what is no whole number.
    cuts = own.cast(pl.Float64, strict=False).to_list()
    return [
        Asked(name, text.strip(), frozenset(relevant.get(name, ())), None if k is None else int(k))
        for name, text, k in zip(ids, texts, cuts, strict=True)
    ]


def _with_trouble(found: Found, status: str, *, skip: bool) -> Found:
    """A query that was never answered says so: it counts as 0, or not at all."""
    if found.recall is None or status not in ("failed", "missing"):
        return found
    if skip:
        return Found(found.query_id, found.text, trouble=status)
    return replace(found, trouble=status)


@dataclass(frozen=True)
class _Lists:
    """A run's lists by query, and what is known of where they end.

    ``most`` is how many hits it was asked for, None if that cannot be told.
    """

    system: str
    of_query: Mapping[str, Ranking]
    scenes: frozenset[str] | None
    most: int | None

    @classmethod
    def of(cls, scores: Scores, corpus: Corpus | None) -> _Lists:
        ids = scores.table["query_id"].to_list()
        lists: dict[str, list[tuple[str, float | None]]] = {}
        for row, item_id, score in _hits(scores):
            lists.setdefault(ids[row], []).append((item_id, score))
        # Only karat's own logs surely mean by k what is meant here, and say it of every call.
        k = scores.meta.get("k") if "run_digest" in scores.meta else None
        dropped = scores.counts.repeats and scores.conventions.repeats == "drop"
        whole = isinstance(k, int) and not dropped
        scenes = None if corpus is None else frozenset(corpus.frame["item_id"])
        return cls(scores.system, lists, scenes, k if whole else None)

    def check(self, one: Asked, k: int) -> None:
        """Refuse a list that ends too early to tell the query's rank or recall."""
        length = len(self.of_query.get(one.query_id, []))
        if self.most is not None and length < self.most:
            return
        if self.scenes is not None and length >= len(self.scenes):
            return
        found = {scene for scene, _ in self.of_query.get(one.query_id, [])}
        left = (one.relevant if self.scenes is None else one.relevant & self.scenes) - found
        if left and (length < k or not found & one.relevant):
            raise self._too_short(one, length, left)

    def _too_short(self, one: Asked, length: int, left: Collection[str]) -> UsageError:
        enough, hint = "above the number of scenes", "; --corpus tells which there are"
        if self.scenes is not None:
            enough, hint = f"{len(self.scenes):,} or more", ""
        return UsageError(
            f"output story: the list of {self.system} for query {one.query_id!r} ends after "
            f"{length:,} scenes without {' or '.join(sorted(left))}; "
            f"search again with its k {enough}{hint}"
        )


def _hits(scores: Scores) -> list[tuple[int, str, float | None]]:
    if scores.lists is None:
        return []
    frame = scores.lists.sort("row", "rank")
    if "score" not in frame.columns:
        frame = frame.with_columns(score=pl.lit(None, dtype=pl.Float64))
    return list(frame.select("row", "item_id", "score").iter_rows())
