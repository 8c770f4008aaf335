"""Lists of hits: their order, and the columns that some measures read besides judged hits.

Rows stay where they are; ``order`` says which row stands at which place. Places of one
query are consecutive, so a place minus the query's first place, plus one, is a rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Run
from karat.measure.prepare import Prepared, doc_of_hits, entity_sets
from karat.measure.ranked import UNLIMITED, Entries, Ints, Listing, Mask, is_budget

if TYPE_CHECKING:
    from karat.measure.aggregates import Values
    from karat.measure.names import Measure


Column = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Lists:
    """Hits of some queries.

    ``owner`` is each row's query (its number in ``codes``), left out where the rows of one
    query follow each other; ``order`` is left out where rows stand in their places already.
    ``tied`` are the places whose hit ties with the next one's.
    """

    hits: pl.DataFrame
    codes: Ints
    lengths: Ints
    owner: Ints | None = None
    order: Ints | None = None
    tied: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @cached_property
    def starts(self) -> Ints:
        """The first place of each query."""
        return np.cumsum(self.lengths) - self.lengths

    def inside(self, pairs: Mask) -> Mask:
        """Return a mask over neighbouring pairs, without those that straddle two queries."""
        pairs[self.starts[(self.starts > 0) & (self.starts <= len(pairs))] - 1] = False
        return pairs

    def query_of(self, rows: Ints) -> Ints:
        """Return the query (its number in ``codes``) that each row belongs to."""
        if self.owner is not None:
            return self.owner[rows]
        return self.query_at(rows)

    def owners(self) -> Ints:
        """Return the query of every row."""
        if self.owner is not None:
            return self.owner
        return np.repeat(np.arange(len(self.codes)), self.lengths)

    def row_at(self, places: Ints) -> Ints:
        """Return the row at each place."""
        return places if self.order is None else self.order[places]

    def places_of(self, rows: Ints) -> Ints:
        """Return the places of some rows, in ascending order."""
        if self.order is None:
            return np.sort(rows)
        marked = np.zeros(self.hits.height, dtype=bool)
        marked[rows] = True
        return np.flatnonzero(marked[self.order])

    def at_places(self, column: Column) -> Column:
        """Return a column of the rows, put in the order of places."""
        return column if self.order is None else np.take(column, self.order)

    def query_at(self, places: Ints) -> Ints:
        """Return the query (its number in ``codes``) that each place belongs to."""
        queries: Ints = np.searchsorted(np.cumsum(self.lengths), places, side="right")
        return queries

    def places_in(self, queries: Ints) -> Ints:
        """Return all places of some queries."""
        sizes = self.lengths[queries]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        places: Ints = np.repeat(self.starts[queries], sizes) + within
        return places

    def tie_groups(self) -> tuple[Ints, Ints]:
        """Return first place and end of each group of tied hits."""
        first = np.diff(self.tied, prepend=-2) > 1
        last = np.roll(first, -1)
        return self.tied[first], self.tied[last] + 2

    def without(self, rows: Ints) -> Lists:
        """Return the same lists with some rows taken out; the rest close up, in no order yet."""
        keep = np.ones(self.hits.height, dtype=bool)
        keep[rows] = False
        lengths = self.lengths - np.bincount(self.query_of(rows), minlength=len(self.codes))
        owner = None if self.owner is None else self.owner[keep]
        return Lists(self.hits.filter(keep), self.codes, lengths, owner)

    def of_queries(self, keep: Mask) -> Lists:
        """Return the lists of some queries; those left out must be empty."""
        if keep.all():
            return self
        owner = None if self.owner is None else (np.cumsum(keep) - 1)[self.owner]
        return Lists(self.hits, self.codes[keep], self.lengths[keep], owner)

    def in_order(self, depth: int | None = None) -> tuple[pl.DataFrame, Ints, Ints, Ints]:
        """Return the hits in rank order, to a depth, with row number, query and rank of each."""
        shown = self.lengths if depth is None else np.minimum(self.lengths, depth)
        query = np.repeat(np.arange(len(self.codes)), shown)
        rank = np.arange(1, len(query) + 1) - np.repeat(np.cumsum(shown) - shown, shown)
        rows = self.row_at(self.starts[query] + rank - 1)
        still = self.order is None and len(rows) == self.hits.height
        return (self.hits if still else self.hits[rows]), rows, query, rank


@dataclass(frozen=True, slots=True)
class ListNeeds:
    """What measures read besides judged hits (lists, documents, texts, tokens), and how deep."""

    needs: frozenset[str] = frozenset()
    depth: int = 0

    @classmethod
    def of(cls, measures: Iterable[Measure], keep: int = 0) -> ListNeeds:
        """Return what these measures read, and the lists if their top items are kept."""
        needs: set[str] = {"list"} if keep else set()
        depth = keep
        for measure in measures:
            wants: set[str] = set(measure.definition.needs)
            if is_budget(measure.k):
                wants |= {"list", "tokens"}
            if measure.arguments.get("of") == "corpus":
                wants |= {"list", "corpus"}
            if wants:
                depth = max(depth, measure.k if isinstance(measure.k, int) else UNLIMITED)
            needs |= wants
        return cls(frozenset(needs), depth)


def list_hits(
    lists: Lists,
    rows: Ints,
    again: Ints,
    run: Run,
    gold: Prepared,
    hits: Entries,
    wanted: ListNeeds,
) -> dict[str, Any]:
    """Return the listing, the calls and the linked entities, as far as they are needed."""
    parts: dict[str, Any] = {}
    if "list" in wanted.needs:
        depth = min(wanted.depth, gold.conventions.depth or UNLIMITED)
        ordered, rows_in_order, query, rank = lists.in_order(depth)
        once = hits.grade if hits.repeat is None else np.where(hits.repeat, np.nan, hits.grade)
        grade = np.full(lists.hits.height, np.nan)
        grade[rows] = once
        # In every block, so that the table is the same however a run was divided.
        repeat = np.zeros(lists.hits.height, dtype=bool)
        repeat[again] = True
        frame = ordered.with_columns(
            grade=pl.Series(grade[rows_in_order]), repeat=pl.Series(repeat[rows_in_order])
        )
        if gold.corpus is not None or "docs" in wanted.needs or "score_kind" in run.meta:
            frame = _with_attributes(frame, run, gold, wanted.needs)
        parts["listing"] = Listing(
            query,
            rank,
            frame,
            corpus_size=None if gold.corpus is None else gold.corpus.height,
        )
    if run.calls is not None:
        parts["calls"] = _call_columns(run.calls, lists.codes, gold)
        if "entities" in run.calls.columns:
            of_call = gold.code_of(run.calls["query_id"]).tolist()
            linked = dict(zip(of_call, entity_sets(run.calls["entities"]), strict=True))
            parts["predicted"] = tuple(linked.get(code) for code in lists.codes.tolist())
    return parts


def without_repeats(lists: pl.DataFrame) -> pl.DataFrame:
    """Return lists without repeated items; ranks stay as they are."""
    return lists.filter(~pl.col("repeat"))


def _with_attributes(
    frame: pl.DataFrame, run: Run, gold: Prepared, needs: frozenset[str]
) -> pl.DataFrame:
    if "docs" in needs:
        frame = frame.with_columns(doc_of_hits(frame, gold.corpus))
    cosine = run.meta.get("score_kind") == "cosine" and "score" in frame.columns
    if "similarity" not in frame.columns and cosine:
        frame = frame.with_columns(similarity=pl.col("score"))
    if gold.corpus is None:
        return frame
    corpus = gold.corpus.with_row_index("corpus_row").with_columns(
        pl.col("corpus_row").cast(pl.Int64)
    )
    wanted = ["corpus_row"]
    wanted += [name for name in ("text", "tokens") if name in corpus.columns]
    kept = [name for name in frame.columns if name not in wanted]
    known = corpus.select("item_id", *wanted)
    if "version" in corpus.columns:
        known = known.with_columns(corpus["version"].cast(pl.String).alias("_version"))
    frame = frame.select(kept).join(known, on="item_id", how="left", maintain_order="left")
    if "_version" in frame.columns:
        own = [pl.col("version").cast(pl.String)] if "version" in frame.columns else []
        frame = frame.with_columns(version=pl.coalesce(*own, "_version")).drop("_version")
    # A corpus whose texts stay on disk brings their lengths.
    counts = {
        "tokens": pl.col("tokens").cast(pl.Int64),
        "text": pl.col("text").str.count_matches(r"\S+").cast(pl.Int64),
    }
    counted = pl.coalesce(count for name, count in counts.items() if name in wanted)
    return frame.with_columns(pl.col("corpus_row").fill_null(-1), tokens=counted)


def _call_columns(calls: pl.DataFrame, codes: Ints, gold: Prepared) -> dict[str, Values]:
    """Return latencies and costs by query; an unlogged total is the sum of the stages."""
    of_call = gold.code_of(calls["query_id"])
    known = {}
    for name in calls.columns:
        if name.startswith(("latency.", "cost.")):
            values = np.full(len(gold.query_ids), np.nan)
            logged = calls[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
            values[of_call[of_call >= 0]] = logged[of_call >= 0]
            known[name] = values[codes]
    total = known.pop("latency.total", None)
    stages = [values for name, values in known.items() if name.startswith("latency.")]
    if stages:
        silent = np.isnan(stages).all(axis=0)
        added = np.where(silent, np.nan, np.nansum(stages, axis=0))
        # One call may log its stages and another, such as one that failed, a total alone.
        total = added if total is None else np.where(np.isnan(total), added, total)
    return known if total is None else known | {"latency.total": total}
