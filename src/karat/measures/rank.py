"""Where a run meets its gold: order, ties, duplicates and gaps are decided here, once.

What is in order is not sorted, what was not judged is not joined, and no id is copied: a
look at neighbouring rows tells whether anything has to be done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.errors import InputError
from karat.measures.conventions import Conventions
from karat.measures.listing import Wanted, list_hits
from karat.measures.prepare import Prepared, short_hash
from karat.measures.ranked import Entries, Ints, Mask, Ranked, Target
from karat.measures.spans import meet_spans
from karat.measures.units import doc_of_hits
from karat.tables import Run


@dataclass(frozen=True, eq=False)
class Block:
    """Some queries of a run, ranked: ``codes`` says which, the rest what was seen on the way."""

    codes: Ints
    ranked: Ranked
    failed: Ints
    strangers: list[str]
    duplicates: int
    conflicts: int
    ties: Ties | None


@dataclass(frozen=True, eq=False)
class Ties:
    """For each judged hit, where its group of equal scores starts and how long it is."""

    start: Ints
    size: Ints


@dataclass(frozen=True, eq=False)
class Lists:
    """Hits in their final order; ``query`` is each row's place among ``codes``."""

    hits: pl.DataFrame
    codes: Ints
    query: Ints
    key: NDArray[np.floating[Any]]

    @property
    def lengths(self) -> Ints:
        """How many hits each query has."""
        return np.bincount(self.query, minlength=len(self.codes))

    @property
    def rank(self) -> Ints:
        """The rank of each row."""
        ends = np.cumsum(self.lengths)
        return np.arange(1, len(self.query) + 1) - np.repeat(ends - self.lengths, self.lengths)

    def take(self, rows: Ints | Mask) -> Lists:
        """Some rows, or all of them in another order."""
        hits = self.hits.filter(rows) if rows.dtype == bool else self.hits[rows]
        return replace(self, hits=hits, query=self.query[rows], key=self.key[rows])


def rank(run: Run, gold: Prepared, wanted: Wanted) -> Block:
    """Rank a block of whole queries and find its judged hits."""
    conventions = gold.conventions
    run = run.at("final")
    lists, strangers = _grouped(run, gold)
    failed = np.empty(0, dtype=np.int64)
    if run.calls is not None:
        lists, failed = _with_calls(lists, run.calls, gold)
    lists = _in_order(lists, conventions)
    lists, duplicates = _without_duplicates(lists)
    conflicts = _conflicts(lists, run, conventions)
    ties = _tie_groups(lists)
    returned = lists.lengths
    if conventions.depth is not None:
        lists, ties = lists.take(lists.rank <= conventions.depth), None
        returned = lists.lengths
    target = gold.target(lists.codes)
    hits, found, rows = _met(lists, gold, target)
    ranked = Ranked(target, hits, found, returned)
    ranked = replace(ranked, **list_hits(lists, rows, run, gold, hits, wanted))
    of_hits = None if ties is None else Ties(ties[0][rows], ties[1][rows])
    return Block(lists.codes, ranked, failed, strangers, duplicates, conflicts, of_hits)


def _key(hits: pl.DataFrame, run: Run, conventions: Conventions) -> NDArray[np.floating[Any]]:
    """What the hits are sorted by, descending."""
    order = conventions.order or run.order
    if order not in hits.columns:
        have = "ranks" if order == "score" else "scores"
        other = "rank" if order == "score" else "score"
        raise InputError(
            f"this run has {have} only and cannot be ordered by {order}; use --set order={other}",
            where=run.source.name,
        )
    if order == "rank":
        return -hits["rank"].to_numpy().astype(np.float64)
    score = hits["score"].to_numpy()
    return score.astype(np.float32) if conventions.score_type == "float32" else score


def _grouped(run: Run, gold: Prepared) -> tuple[Lists, list[str]]:
    """Hits by query, and the queries that are not to be scored."""
    hits = run.hits
    runs = hits["query_id"].rle().struct.unnest()
    codes, lengths = gold.code_of(runs["value"]), runs["len"].to_numpy().astype(np.int64)
    strangers: list[str] = []
    if (codes < 0).any():
        strangers = runs["value"].filter(codes < 0).unique().sort().to_list()
        hits = hits.filter(np.repeat(codes >= 0, lengths))
        codes, lengths = codes[codes >= 0], lengths[codes >= 0]
    key = _key(hits, run, gold.conventions)
    present = np.flatnonzero(np.bincount(codes, minlength=len(gold.query_ids)))
    if len(present) == len(codes):
        query = np.repeat(np.arange(len(codes)), lengths)
        return Lists(hits, codes, query, key), strangers
    place = np.searchsorted(present, np.repeat(codes, lengths))
    lists = Lists(hits, present, place, key)
    return lists.take(_by_query(place, len(present))), strangers


def _by_query(place: Ints, n: int) -> Ints:
    """A stable order by query; numbers below 65,536 are sorted by counting."""
    small = place.astype(np.uint16) if n <= 1 << 16 else place
    return np.argsort(small, kind="stable")


def _with_calls(lists: Lists, calls: pl.DataFrame, gold: Prepared) -> tuple[Lists, Ints]:
    """Queries that were called and returned nothing; failed ones taken out."""
    called = gold.code_of(calls["query_id"])
    failed = np.empty(0, dtype=np.int64)
    if "error" in calls.columns:
        wrong = calls["error"].is_not_null().to_numpy()
        failed = np.unique(called[wrong & (called >= 0)])
    keep = ~np.isin(lists.codes[lists.query], failed)
    codes = np.union1d(np.setdiff1d(lists.codes, failed), np.setdiff1d(called, [-1, *failed]))
    rows = lists if keep.all() else lists.take(keep)
    place = np.searchsorted(codes, rows.codes[rows.query])
    rows = replace(rows, codes=codes, query=place)
    return (
        rows if (place[1:] >= place[:-1]).all() else rows.take(_by_query(place, len(codes)))
    ), failed


def _in_order(lists: Lists, conventions: Conventions) -> Lists:
    """Best first within each query; equal ones by the rule for ties."""
    same = lists.query[1:] == lists.query[:-1]
    if (same & (lists.key[1:] > lists.key[:-1])).any():
        given = conventions.ties == "given"
        order = np.argsort(-lists.key, kind="stable" if given else None)
        lists = lists.take(order[_by_query(lists.query[order], len(lists.codes))])
    if conventions.ties == "given":
        return lists
    tied = np.flatnonzero(same & (lists.key[1:] == lists.key[:-1]))
    if not len(tied):
        return lists
    items = lists.hits["item_id"]
    first, second = items.gather(tied), items.gather(tied + 1)
    down = conventions.ties == "id-desc"
    wrong = ((first < second) if down else (first > second)).to_numpy()
    return _reordered(lists, tied, tied[wrong], descending=down) if wrong.any() else lists


def _reordered(lists: Lists, tied: Ints, wrong: Ints, *, descending: bool) -> Lists:
    """Sort by id within those groups of ties that hold a pair in the wrong order."""
    group = np.ones(len(lists.query), dtype=np.int64)
    group[tied + 1] = 0
    group = np.cumsum(group)
    rows = np.flatnonzero(np.isin(group, group[wrong]))
    frame = pl.DataFrame(
        {"group": group[rows], "item": lists.hits["item_id"].gather(rows), "row": rows}
    )
    order = np.arange(len(group))
    order[rows] = frame.sort("group", "item", descending=[False, descending])["row"].to_numpy()
    return lists.take(order)


def _without_duplicates(lists: Lists) -> tuple[Lists, int]:
    """The same item twice for one query: the best-ranked is kept, those below close up."""
    hashes = lists.query.astype(np.uint64) << np.uint64(32) | short_hash(lists.hits["item_id"])
    ordered = np.sort(hashes)
    twins = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twins):
        return lists, 0
    suspects = np.flatnonzero(np.isin(hashes, twins))
    frame = pl.DataFrame(
        {"query": lists.query[suspects], "item": lists.hits["item_id"].gather(suspects)}
    )
    again = suspects[~frame.select(pl.struct("query", "item").is_first_distinct())[:, 0].to_numpy()]
    keep = np.ones(len(lists.query), dtype=bool)
    keep[again] = False
    return (lists.take(keep) if len(again) else lists), len(again)


def _conflicts(lists: Lists, run: Run, conventions: Conventions) -> int:
    """In how many queries the given ranks and the given scores tell different orders."""
    if "score" not in lists.hits.columns or "rank" not in lists.hits.columns:
        return 0
    by_rank = (conventions.order or run.order) == "rank"
    other = lists.hits["score"].to_numpy() if by_rank else -lists.hits["rank"].to_numpy()
    same = lists.query[1:] == lists.query[:-1]
    if not (same & (other[1:] > other[:-1])).any():
        return 0
    # Within a group of ties any order agrees, so each row is held against earlier groups only.
    starts = np.flatnonzero(np.concatenate(([True], ~same | (lists.key[1:] != lists.key[:-1]))))
    lowest, highest = np.minimum.reduceat(other, starts), np.maximum.reduceat(other, starts)
    frame = pl.DataFrame({"query": lists.query[starts], "lowest": lowest, "highest": highest})
    before = pl.col("lowest").cum_min().shift(1).over("query")
    return frame.filter(pl.col("highest") > before)["query"].n_unique()


def _tie_groups(lists: Lists) -> NDArray[np.int64] | None:
    """For each row the first rank and the size of its group of equal keys; None without ties."""
    same = (lists.query[1:] == lists.query[:-1]) & (lists.key[1:] == lists.key[:-1])
    if not same.any():
        return None
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    sizes = np.diff(np.concatenate((starts, [len(lists.query)])))
    return np.stack([np.repeat(lists.rank[starts], sizes), np.repeat(sizes, sizes)])


def _met(lists: Lists, gold: Prepared, target: Target) -> tuple[Entries, Entries, Ints]:
    """The judged hits, the gold units found, and the rows of the hits."""
    if gold.conventions.level == "span":
        return meet_spans(lists, gold, target)
    items = lists.hits["item_id"]
    if gold.conventions.level == "doc":
        items = doc_of_hits(lists.hits, gold)
    bits = len(gold.likely).bit_length() - 1
    rows = np.flatnonzero(gold.likely[short_hash(items) >> np.uint64(32 - bits)])
    gold_rows, place = gold.rows_of(lists.codes)
    judged = pl.DataFrame(
        {
            "query": place,
            "item": gold.rows["item_id"].gather(gold_rows),
            "place": np.arange(len(place)),
        }
    )
    candidates = pl.DataFrame({"query": lists.query[rows], "item": items.gather(rows), "row": rows})
    met = candidates.join(judged, on=["query", "item"], maintain_order="left")
    rows, at = met["row"].to_numpy(), met["place"].to_numpy()
    repeat = None
    if gold.conventions.level == "doc":
        repeat = ~met.select(pl.struct("query", "item").is_first_distinct())[:, 0].to_numpy()
    hits = Entries(
        target.n, lists.query[rows], lists.rank[rows], target.grade[at], repeat=repeat, row=at
    )
    return hits, hits, rows
