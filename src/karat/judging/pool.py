"""Pools: what several runs return and nobody judged yet, in an order that tells nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from karat.errors import InputError, MissingInputError, UsageError
from karat.judging.tops import PAIR, Tops, asked_of, tops_of
from karat.measures.conventions import Conventions
from karat.tables import Blocks, Corpus, Gold, Queries, Run

# What a rater is shown of an item and of a query; nothing of it comes from a run.
_OF_ITEM = ("doc_id", "title", "version")
_OF_QUERY = ("as_of",)


@dataclass(frozen=True, slots=True)
class Coverage:
    """One run: how much of its top anyone judged, and what it brings to the pool.

    ``alone`` counts the pairs of the whole pool that no other run has in its top.
    """

    system: str
    items: int
    judged: int
    in_pool: int
    alone: int
    gaps: Mapping[str, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The plain data of it; the share is null where nothing was returned."""
        return {
            "name": self.system,
            "items": self.items,
            "judged": self.judged,
            "judged_share": self.judged / self.items if self.items else None,
            "in_pool": self.in_pool,
            "alone": self.alone,
            **self.gaps,
        }


@dataclass(frozen=True, eq=False)
class Pool:
    """Pairs to be judged, in the order in which a rater sees them.

    ``pairs`` has ``query_id`` and ``item_id``, ``query`` and ``text``, and what else is known of
    the item and the query. ``union`` counts the pairs in the top of any run and ``judged`` those
    of them that the gold judges, ``size`` the pairs that were to be judged before a sample was
    drawn of them.
    """

    pairs: pl.DataFrame
    systems: tuple[Coverage, ...]
    depth: int
    seed: int
    queries: int
    union: int
    judged: int
    size: int
    sample: int | None = None
    include_judged: bool = False
    corpus: str | None = None
    queries_file: str | None = None

    @property
    def without_text(self) -> pl.DataFrame:
        """The pairs whose item has no text."""
        return self.pairs.filter(pl.col("text").is_null())

    @property
    def without_query(self) -> pl.DataFrame:
        """The pairs whose query has no text."""
        return self.pairs.filter(pl.col("query").is_null())

    def document(self) -> dict[str, Any]:
        """Everything but the pairs, as plain data."""
        return {
            "depth": self.depth,
            "seed": self.seed,
            "sample": self.sample,
            "include_judged": self.include_judged,
            "queries": self.queries,
            "union": self.union,
            "judged": self.judged,
            "to_judge": self.size,
            "pairs": self.pairs.height,
            "pooled_queries": self.pairs["query_id"].n_unique(),
            "items_without_text": self.without_text["item_id"].n_unique(),
            "queries_without_text": self.without_query["query_id"].n_unique(),
            "systems": [one.document() for one in self.systems],
        }

    def records(self) -> list[dict[str, Any]]:
        """The pairs as a pool file holds them: what is not known is left out."""
        return [
            {name: value for name, value in row.items() if value is not None}
            for row in self.pairs.iter_rows(named=True)
        ]

    def check_texts(self) -> None:
        """Refuse a pool that nobody could judge, and say which file would help."""
        lacking = self.without_query["query_id"].unique().sort()
        if len(lacking):
            many = _some(lacking, self.pairs["query_id"].n_unique(), "queries")
            told = f"{many} of the pool have no text; give the --queries that were asked"
            raise _lacks(told, self.queries_file)
        lacking = self.without_text["item_id"].unique().sort()
        if len(lacking):
            many = _some(lacking, self.pairs["item_id"].n_unique(), "items")
            told = f"{many} of the pool have no text; give the --corpus that the runs searched"
            raise _lacks(told, self.corpus)


def pool_runs(
    runs: Mapping[str, Run | Blocks],
    *,
    depth: int,
    gold: Sequence[Gold] = (),
    queries: Queries | None = None,
    corpus: Corpus | None = None,
    conventions: Conventions | None = None,
    sample: int | None = None,
    include_judged: bool = False,
) -> Pool:
    """The union of the top ``depth`` of every run, less what any of the gold judges.

    Each run is taken in its own order. ``sample`` draws so many of all pairs instead, each as
    likely as any other, and ``include_judged`` leaves in what is judged. All pairs of a query
    follow each other; queries and items stand in an order that depends on the seed and on
    which pairs there are, and on nothing else.

    >>> runs = {"a": Run.from_dict({"q": ["x", "y"]}), "b": Run.from_dict({"q": ["y", "z"]})}
    >>> pool = pool_runs(runs, depth=2, gold=[Gold.from_dict({"q": {"y": 0}})])
    >>> sorted(pool.pairs["item_id"])
    ['x', 'z']
    """
    if not runs:
        raise UsageError("a pool is made of runs; give at least one")
    conventions = conventions or Conventions()
    _check(depth, sample, conventions)
    asked = asked_of(runs.values(), gold=gold, queries=queries)
    if not asked:
        raise InputError("there is no query in the runs; nothing can be pooled")
    tops = {
        name: tops_of(run, asked, depth=depth, conventions=conventions)
        for name, run in runs.items()
    }
    union = _union(list(tops.values()), gold)
    pool = union if include_judged else union.filter(~pl.col("judged"))
    drawn = _shuffled(pool, sample, np.random.default_rng(conventions.seed))
    return Pool(
        _with_texts(drawn, queries, corpus),
        tuple(_coverage(name, one, union, pool) for name, one in tops.items()),
        depth=depth,
        seed=conventions.seed,
        queries=len(asked),
        union=union.height,
        judged=int(union["judged"].sum()),
        size=pool.height,
        sample=sample,
        include_judged=include_judged,
        corpus=None if corpus is None else corpus.source.name,
        queries_file=None if queries is None else queries.source.name,
    )


def _check(depth: int, sample: int | None, conventions: Conventions) -> None:
    if depth < 1:
        raise UsageError(f"depth is {depth}; it is at least 1")
    if sample is not None and sample < 1:
        raise UsageError(f"sample is {sample}; it is at least 1")
    if conventions.level != "item":
        raise UsageError(f"level={conventions.level}: a pool is made of items, not of others")


def _union(tops: Sequence[Tops], gold: Sequence[Gold]) -> pl.DataFrame:
    """Every pair once, by its ids, with the number of runs that have it and whether it is judged.

    The order of the runs and of their lists is lost here, so that nothing later can tell it.
    """
    together = pl.concat([one.hits.select(PAIR) for one in tops])
    union = together.group_by(PAIR).agg(runs=pl.len()).sort(PAIR)
    known = pl.concat([union.select(PAIR).clear(), *(_judged_pairs(one) for one in gold)])
    known = known.unique().with_columns(judged=pl.lit(value=True))
    union = union.join(known, on=PAIR, how="left", maintain_order="left")
    return union.with_columns(pl.col("judged").fill_null(value=False))


def _judged_pairs(gold: Gold) -> pl.DataFrame:
    if "start" in gold.frame.columns:
        raise InputError(
            "this gold holds character spans, which judge no item; leave it out, or give the"
            " judgments of items",
            where=gold.source.name,
        )
    # A grade below 0 is of a pair that was pooled and that nobody judged.
    return gold.frame.filter(pl.col("grade") >= 0).select(PAIR)


def _shuffled(pool: pl.DataFrame, sample: int | None, rng: np.random.Generator) -> pl.DataFrame:
    """Pairs of a query together, queries and items in random order."""
    rows = np.arange(pool.height)
    if sample is not None and sample < len(rows):
        rows = np.sort(rng.choice(rows, sample, replace=False))
    drawn = pool[rows].select(PAIR)
    queries = drawn["query_id"].unique().sort()
    places = pl.DataFrame({"query_id": queries, "place": rng.permutation(len(queries))})
    drawn = drawn.join(places, on="query_id", how="left", maintain_order="left")
    drawn = drawn.with_columns(key=pl.Series(rng.permutation(drawn.height), dtype=pl.Int64))
    return drawn.sort("place", "key").select(PAIR)


def _coverage(name: str, top: Tops, union: pl.DataFrame, pool: pl.DataFrame) -> Coverage:
    own = top.hits.select(PAIR)
    pooled = pool.join(own, on=PAIR, how="semi")
    judged = union.filter("judged").join(own, on=PAIR, how="semi")
    return Coverage(
        name,
        items=own.height,
        judged=judged.height,
        in_pool=pooled.height,
        alone=int((pooled["runs"] == 1).sum()),
        gaps=top.gaps(),
    )


def _with_texts(
    pairs: pl.DataFrame, queries: Queries | None, corpus: Corpus | None
) -> pl.DataFrame:
    texts = {
        "query_id": None
        if queries is None
        else _told(queries.frame, "query_id", "query", _OF_QUERY),
        "item_id": None if corpus is None else _told(corpus.frame, "item_id", "text", _OF_ITEM),
    }
    for key, known in texts.items():
        if known is not None:
            pairs = pairs.join(known, on=key, how="left", maintain_order="left")
    order = [*PAIR, "query", "text", *_OF_ITEM, *_OF_QUERY]
    lacking = [pl.lit(None, pl.String).alias(one) for one in order if one not in pairs.columns]
    return pairs.with_columns(lacking).select(order)


def _told(frame: pl.DataFrame, key: str, text: str, others: Sequence[str]) -> pl.DataFrame:
    """What a rater may be told, as text; nothing but white space is nothing."""
    plain = [one for one in others if one in frame.columns and not frame.schema[one].is_nested()]
    told = frame.select(
        key, pl.col("text").alias(text), *(pl.col(one).cast(pl.String) for one in plain)
    )
    blank = pl.exclude(key).str.strip_chars() == ""
    return told.with_columns(pl.when(~blank).then(pl.exclude(key)))


def _some(lacking: pl.Series, of: int, what: str) -> str:
    return f"{len(lacking):,} of {of:,} {what} (such as {lacking[0]!r})"


def _lacks(told: str, file: str | None) -> MissingInputError:
    place = "" if file is None else f"{file}: "
    return MissingInputError(f"{place}{told}, or take pairs by their ids alone: --without-texts")
