"""What some measures want besides judged hits: the items themselves, and the calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from karat.measures.prepare import Prepared, entity_sets
from karat.measures.ranked import UNLIMITED, Entries, Ints, Listing, is_budget
from karat.measures.units import doc_of_hits
from karat.tables import Run

if TYPE_CHECKING:
    from karat.measures.lists import Lists
    from karat.measures.names import Measure
    from karat.measures.numbers import Values


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the measures at hand will look at, and how deep."""

    needs: frozenset[str] = frozenset()
    depth: int = 0

    @classmethod
    def by(cls, measures: Iterable[Measure]) -> Wanted:
        """What these measures want."""
        needs: set[str] = set()
        depth = 0
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

    def with_lists(self, depth: int) -> Wanted:
        """The same, and the top items of each query."""
        return Wanted(self.needs | {"list"}, max(depth, self.depth)) if depth else self


def list_hits(
    lists: Lists,
    rows: Ints,
    again: Ints,
    run: Run,
    gold: Prepared,
    hits: Entries,
    wanted: Wanted,
) -> dict[str, Any]:
    """The listing, the calls and the linked entities, as far as they are wanted."""
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
            parts["predicted"] = _predicted(run.calls, lists.codes, gold)
    return parts


def without_repeats(lists: pl.DataFrame) -> pl.DataFrame:
    """Lists without the places at which they return an item again; ranks stay as they are."""
    return lists.filter(~pl.col("repeat"))


def _with_attributes(
    frame: pl.DataFrame, run: Run, gold: Prepared, needs: frozenset[str]
) -> pl.DataFrame:
    if "docs" in needs:
        frame = frame.with_columns(doc_of_hits(frame, gold).alias("doc_id"))
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
    """Latencies and costs of each query; a call's total is the sum of its stages unless logged."""
    known = {
        name: _aligned(calls, name, codes, gold)
        for name in calls.columns
        if name.startswith(("latency.", "cost."))
    }
    total = known.pop("latency.total", None)
    stages = [values for name, values in known.items() if name.startswith("latency.")]
    if stages:
        logged = ~np.isnan(stages).all(axis=0)
        added = np.where(logged, np.nansum(stages, axis=0), np.nan)
        # One call may log its stages and another, such as one that failed, a total alone.
        total = added if total is None else np.where(np.isnan(total), added, total)
    return known if total is None else known | {"latency.total": total}


def _aligned(calls: pl.DataFrame, name: str, codes: Ints, gold: Prepared) -> Values:
    values = np.full(len(gold.query_ids), np.nan)
    of_call = gold.code_of(calls["query_id"])
    logged = calls[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    values[of_call[of_call >= 0]] = logged[of_call >= 0]
    return values[codes]


def _predicted(
    calls: pl.DataFrame, codes: Ints, gold: Prepared
) -> tuple[tuple[str, ...] | None, ...]:
    linked = dict(
        zip(gold.code_of(calls["query_id"]).tolist(), entity_sets(calls["entities"]), strict=True)
    )
    return tuple(linked.get(code) for code in codes.tolist())
