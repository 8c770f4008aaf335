"""Where a run meets its gold: order, ties, duplicates and gaps are decided here, once.

What is in order is not sorted, what was not judged is not joined, and rows are not moved:
a look at neighbouring rows tells whether anything has to be done.
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
from karat.measures.lists import Lists
from karat.measures.prepare import Prepared, short_hash
from karat.measures.ranked import Entries, Ints, Ranked, Target
from karat.measures.spans import meet_spans
from karat.measures.ties import Ties
from karat.measures.units import doc_of_hits
from karat.tables import Run

Keys = NDArray[np.floating[Any]]
Hashes = NDArray[np.uint64]


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


def rank(run: Run, gold: Prepared, wanted: Wanted) -> Block:
    """Rank a block of whole queries and find its judged hits."""
    run = run.at("final")
    conventions = gold.conventions
    lists, strangers = _grouped(run, gold)
    failed = np.empty(0, dtype=np.int64)
    if run.calls is not None:
        lists, failed = _with_calls(lists, run.calls, gold)
    lists = _in_order(lists, _keys(lists.hits, run, conventions), conventions)
    hashes = short_hash(lists.hits["item_id"])
    again = _duplicates(lists, hashes)
    if len(again):
        lists = lists.without(again)
        lists = _in_order(lists, _keys(lists.hits, run, conventions), conventions)
        hashes = np.delete(hashes, again)
    target = gold.target(lists.codes)
    hits, found, rows = _met(lists, hashes, gold, target)
    if conventions.depth is not None:
        deep = hits.rank <= conventions.depth
        hits, found, rows = (
            hits.where(deep),
            found.where(found.rank <= conventions.depth),
            rows[deep],
        )
    returned = np.minimum(lists.lengths, conventions.depth or lists.lengths)
    extras = list_hits(lists, rows, run, gold, hits, wanted)
    return Block(
        codes=lists.codes,
        ranked=Ranked(target, hits, found, returned, **extras),
        failed=failed,
        strangers=strangers,
        duplicates=len(again),
        conflicts=_conflicts(lists, run, conventions),
        ties=None if conventions.depth else Ties.of(lists, rows),
    )


def _keys(hits: pl.DataFrame, run: Run, conventions: Conventions) -> Keys:
    """What the hits are sorted by, descending."""
    order = conventions.order or run.order
    if order not in hits.columns:
        have, other = ("ranks", "rank") if order == "score" else ("scores", "score")
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
    present = np.flatnonzero(np.bincount(codes, minlength=len(gold.query_ids)))
    if len(present) == len(codes):
        return Lists.of(hits, codes, lengths), strangers
    place = np.searchsorted(present, np.repeat(codes, lengths))
    if gold.conventions.ties == "given":
        order = by_query(place, len(present))
    else:
        # Sorted by score on the way, since every row moves anyway.
        order = np.argsort(-_keys(hits, run, gold.conventions))
        order = order[by_query(place[order], len(present))]
    lengths = np.bincount(place, minlength=len(present))
    return Lists.of(hits[order], present, lengths), strangers


def by_query(place: Ints, n: int) -> Ints:
    """A stable order by query; numbers below 65,536 are sorted by counting."""
    small = place.astype(np.uint16) if n <= 1 << 16 else place
    return np.argsort(small, kind="stable")


def _with_calls(lists: Lists, calls: pl.DataFrame, gold: Prepared) -> tuple[Lists, Ints]:
    """Queries that were called and returned nothing come in; failed ones go out."""
    called = gold.code_of(calls["query_id"])
    failed = np.empty(0, dtype=np.int64)
    if "error" in calls.columns:
        wrong = calls["error"].is_not_null().to_numpy()
        failed = np.unique(called[wrong & (called >= 0)])
    rows = np.repeat(lists.codes, lists.lengths)
    hits = lists.hits
    if len(failed):
        keep = ~np.isin(rows, failed)
        hits, rows = hits.filter(keep), rows[keep]
    answered = np.setdiff1d(called[called >= 0], failed)
    ours = lists.codes[~np.isin(lists.codes, failed)]
    codes = np.concatenate((ours, np.setdiff1d(answered, ours)))
    lengths = np.zeros(len(gold.query_ids), dtype=np.int64)
    lengths += np.bincount(rows, minlength=len(gold.query_ids))
    return Lists.of(hits, codes, lengths[codes]), failed


def _in_order(lists: Lists, keys: Keys, conventions: Conventions) -> Lists:
    """Best first within each query; equal ones by the rule for ties."""
    order = None
    if (lists.inside(keys[1:] > keys[:-1])).any():
        given = conventions.ties == "given"
        order = np.argsort(-keys, kind="stable" if given else None)
        query = np.repeat(np.arange(len(lists.codes)), lists.lengths)
        order = order[by_query(query[order], len(lists.codes))]
        keys = keys[order]
    tied = np.flatnonzero(lists.inside(keys[1:] == keys[:-1]))
    lists = replace(lists, order=order, tied=tied)
    if not len(tied) or conventions.ties == "given":
        return lists
    items = lists.hits["item_id"]
    first, second = items.gather(lists.row_at(tied)), items.gather(lists.row_at(tied + 1))
    down = conventions.ties == "id-desc"
    wrong = ((first < second) if down else (first > second)).to_numpy()
    return _by_id(lists, tied[wrong], descending=down) if wrong.any() else lists


def _by_id(lists: Lists, wrong: Ints, *, descending: bool) -> Lists:
    """Sort by id within those groups of ties that hold a pair in the wrong order."""
    starts, ends = lists.tie_groups()
    group = np.unique(np.searchsorted(starts, wrong, side="right") - 1)
    sizes = ends[group] - starts[group]
    places = np.repeat(starts[group] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    rows = lists.row_at(places)
    frame = pl.DataFrame(
        {
            "group": np.repeat(group, sizes),
            "item": lists.hits["item_id"].gather(rows),
            "row": rows,
        }
    )
    order = np.arange(lists.hits.height) if lists.order is None else lists.order.copy()
    order[places] = frame.sort("group", "item", descending=[False, descending])["row"].to_numpy()
    return replace(lists, order=order)


def _duplicates(lists: Lists, hashes: Hashes) -> Ints:
    """Rows that repeat an item of the same query which stands higher up."""
    query = np.repeat(np.arange(len(lists.codes), dtype=np.uint64) << np.uint64(32), lists.lengths)
    hashes = query | hashes
    ordered = np.sort(hashes)
    twins = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twins):
        return np.empty(0, dtype=np.int64)
    rows = np.flatnonzero(np.isin(hashes, twins))
    rows = rows[np.argsort(lists.place_of(rows))]
    pairs = pl.DataFrame(
        {"query": lists.query_of(rows), "item": lists.hits["item_id"].gather(rows)}
    )
    first = pairs.select(pl.struct("query", "item").is_first_distinct())[:, 0].to_numpy()
    again: Ints = rows[~first]
    return again


def _conflicts(lists: Lists, run: Run, conventions: Conventions) -> int:
    """In how many queries the given ranks and the given scores tell different orders."""
    if "score" not in lists.hits.columns or "rank" not in lists.hits.columns:
        return 0
    ranks, scores = lists.hits["rank"].to_numpy(), lists.hits["score"].to_numpy()
    rising = lists.inside((ranks[1:] < ranks[:-1]) | (scores[1:] > scores[:-1]))
    if not rising.any():
        return 0
    if (conventions.order or run.order) == "rank":
        keys, other = -ranks.astype(np.float64), scores
    else:
        keys, other = scores, -ranks.astype(np.float64)
    query = np.repeat(np.arange(len(lists.codes)), lists.lengths)
    frame = pl.DataFrame({"query": query, "key": keys, "other": other})
    # Within a group of ties any order agrees, so each group is held against those above it.
    groups = frame.group_by("query", "key").agg(low=pl.min("other"), high=pl.max("other"))
    groups = groups.sort("query", "key", descending=[False, True])
    above = pl.col("low").cum_min().shift(1).over("query")
    return groups.filter(pl.col("high") > above)["query"].n_unique()


def _met(
    lists: Lists, hashes: Hashes, gold: Prepared, target: Target
) -> tuple[Entries, Entries, Ints]:
    """The judged hits, the gold units found, and the rows of the hits."""
    if gold.conventions.level == "span":
        return meet_spans(lists, gold, target)
    by_doc = gold.conventions.level == "doc"
    items = lists.hits["item_id"]
    if by_doc:
        items = doc_of_hits(lists.hits, gold)
        hashes = short_hash(items)
    bits = len(gold.likely).bit_length() - 1
    rows = np.flatnonzero(gold.likely[hashes >> np.uint64(32 - bits)])
    gold_rows, query = gold.rows_of(lists.codes)
    judged = pl.DataFrame(
        {"query": query, "item": gold.rows["item_id"].gather(gold_rows)}
    ).with_row_index("at")
    likely = pl.DataFrame({"query": lists.query_of(rows), "item": items.gather(rows), "row": rows})
    met = likely.join(judged, on=["query", "item"], maintain_order="left")
    rows, at = met["row"].to_numpy(), met["at"].to_numpy().astype(np.int64)
    order = np.argsort(lists.place_of(rows))
    rows, at = rows[order], at[order]
    repeat = None
    if by_doc:
        seen = met[order].select(pl.struct("query", "item").is_first_distinct())
        repeat = ~seen[:, 0].to_numpy()
    query = lists.query_of(rows)
    rank = lists.place_of(rows) - lists.starts[query] + 1
    hits = Entries(target.n, query, rank, target.grade[at], repeat=repeat, row=at)
    return hits, hits, rows
