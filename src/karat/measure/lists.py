"""Lists of hits, and the columns that some measures read besides judged hits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from karat.data.tables import Run
from karat.measure.prepare import Prepared, doc_of_hits, entity_sets
from karat.measure.ranked import UNLIMITED, Entries, Ints, Listing, is_budget

if TYPE_CHECKING:
    from karat.measure.aggregates import Values
    from karat.measure.names import Measure


@dataclass(frozen=True, eq=False)
class Lists:
    """Hits of some queries: those of one query follow each other, best first.

    The list of each of ``codes`` begins at row ``starts`` and has ``lengths`` rows. ``tied`` are
    the rows whose hit ties with the next one.
    """

    hits: pl.DataFrame
    codes: Ints
    starts: Ints
    lengths: Ints
    tied: Ints

    def query_at(self, rows: Ints) -> Ints:
        """Return the query (its number in ``codes``) that each row belongs to."""
        queries: Ints = np.searchsorted(self.starts + self.lengths, rows, side="right")
        return queries

    def to_depth(self, depth: int | None = None) -> tuple[pl.DataFrame, Ints, Ints, Ints]:
        """Return the hits down to a depth, with row number, query and rank of each."""
        shown = self.lengths if depth is None else np.minimum(self.lengths, depth)
        query = np.repeat(np.arange(len(self.codes)), shown)
        rank = np.arange(1, len(query) + 1) - np.repeat(np.cumsum(shown) - shown, shown)
        rows = self.starts[query] + rank - 1
        return (self.hits if len(rows) == len(self.hits) else self.hits[rows]), rows, query, rank


@dataclass(frozen=True, slots=True)
class ListNeeds:
    """The data that measures read besides judged hits (lists, documents, texts), and its depth."""

    needs: frozenset[str] = frozenset()
    depth: int = 0

    @classmethod
    def of(cls, measures: Iterable[Measure], keep: int = 0) -> ListNeeds:
        """Return the needs of these measures, and the lists if their top items are kept."""
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
        ordered, rows_in_order, query, rank = lists.to_depth(depth)
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
    wanted_columns = ["corpus_row"]
    wanted_columns += [name for name in ("text", "tokens") if name in corpus.columns]
    own_columns = [name for name in frame.columns if name not in wanted_columns]
    known = corpus.select("item_id", *wanted_columns)
    if "version" in corpus.columns:
        known = known.with_columns(corpus["version"].cast(pl.String).alias("_version"))
    frame = frame.select(own_columns).join(known, on="item_id", how="left", maintain_order="left")
    if "_version" in frame.columns:
        own = [pl.col("version").cast(pl.String)] if "version" in frame.columns else []
        frame = frame.with_columns(version=pl.coalesce(*own, "_version")).drop("_version")
    # A corpus whose texts stay on disk brings their lengths.
    counts = {
        "tokens": pl.col("tokens").cast(pl.Int64),
        "text": pl.col("text").str.count_matches(r"\S+").cast(pl.Int64),
    }
    counted = pl.coalesce(count for name, count in counts.items() if name in wanted_columns)
    return frame.with_columns(pl.col("corpus_row").fill_null(-1), tokens=counted)


def _call_columns(calls: pl.DataFrame, codes: Ints, gold: Prepared) -> dict[str, Values]:
    """Return latencies and costs by query; an unlogged total is the sum of the stages."""
    of_call = gold.code_of(calls["query_id"])
    logged_stages = {}
    for name in calls.columns:
        if name.startswith(("latency.", "cost.")):
            values = np.full(len(gold.query_ids), np.nan)
            logged = calls[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
            values[of_call[of_call >= 0]] = logged[of_call >= 0]
            logged_stages[name] = values[codes]
    total = logged_stages.pop("latency.total", None)
    stages = [values for name, values in logged_stages.items() if name.startswith("latency.")]
    if stages:
        silent = np.isnan(stages).all(axis=0)
        added = np.where(silent, np.nan, np.nansum(stages, axis=0))
        # One call may log its stages and another, such as one that failed, a total alone.
        total = added if total is None else np.where(np.isnan(total), added, total)
    return logged_stages if total is None else logged_stages | {"latency.total": total}
