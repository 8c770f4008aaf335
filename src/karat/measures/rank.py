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
from karat.measures.misfits import Meeting, run_side
from karat.measures.prepare import Prepared, short_hash
from karat.measures.ranked import UNLIMITED, Entries, Ints, Ranked, Repeats, Target
from karat.measures.spans import meet_spans
from karat.measures.ties import Ties
from karat.measures.traces import facts_of
from karat.measures.units import doc_of_hits
from karat.tables import Run

Keys = NDArray[np.floating[Any]]
Hashes = Ints


@dataclass(frozen=True, eq=False)
class Block:
    """Some queries of a run, ranked: ``codes`` says which, the rest what was seen on the way."""

    codes: Ints
    ranked: Ranked
    failed: Ints
    strangers: list[str]
    repeats: int
    conflicts: int
    ties: Ties | None
    facts: pl.DataFrame
    meeting: Meeting


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
    again = _repeats(lists, hashes)
    repeats = len(again)
    if repeats and conventions.repeats == "drop":
        lists = lists.without(again)
        lists = _in_order(lists, _keys(lists.hits, run, conventions), conventions)
        hashes, again = np.delete(hashes, again), again[:0]
    target = gold.target(lists.codes)
    hits, found, rows = _met(lists, hashes, again, gold, target)
    meeting = run_side(run, gold, Ranked(target, hits, found, lists.lengths), lists.codes, failed)
    if conventions.depth is not None:
        deep = hits.rank <= conventions.depth
        hits, found, rows = (
            hits.where(deep),
            found.where(found.rank <= conventions.depth),
            rows[deep],
        )
    returned = np.minimum(lists.lengths, conventions.depth or lists.lengths)
    extras = list_hits(lists, rows, again, run, gold, hits, wanted)
    if len(again):
        extras["repeats"] = _repeated(lists, again, conventions.depth)
    return Block(
        codes=lists.codes,
        ranked=Ranked(target, hits, found, returned, **extras),
        failed=failed,
        strangers=strangers,
        repeats=repeats,
        conflicts=_conflicts(lists, run, conventions),
        ties=None if conventions.depth else Ties.of(lists, hits, again),
        facts=facts_of(lists.hits, rows),
        meeting=meeting,
    )


def _keys(hits: pl.DataFrame, run: Run, conventions: Conventions) -> Keys:
    """What the hits are sorted by, descending."""
    order = conventions.order or run.order
    if hits.is_empty():
        return np.empty(0)
    if order not in hits.columns:
        have, other = ("ranks", "rank") if order == "score" else ("scores", "score")
        raise InputError(
            f"this run has {have} only and cannot be ordered by {order}; use --set order={other}",
            where=run.source.name,
        )
    if order == "rank":
        return -hits["rank"].to_numpy().astype(np.float64)
    score = hits["score"].to_numpy()
    if conventions.score_type == "float64":
        return score
    # A score too large for float32 is infinite there, as it is in C.
    with np.errstate(over="ignore"):
        return score.astype(np.float32)


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
        return Lists(hits, codes, lengths), strangers
    numbers = np.zeros(len(gold.query_ids), dtype=np.int64)
    numbers[present] = np.arange(len(present))
    owner = np.repeat(numbers[codes], lengths)
    return Lists(hits, present, np.bincount(owner, minlength=len(present)), owner), strangers


def _with_calls(lists: Lists, calls: pl.DataFrame, gold: Prepared) -> tuple[Lists, Ints]:
    """Queries that were called and returned nothing come in; failed ones go out."""
    called = gold.code_of(calls["query_id"])
    failed = np.empty(0, dtype=np.int64)
    if "error" in calls.columns:
        wrong = calls["error"].is_not_null().to_numpy()
        failed = np.unique(called[wrong & (called >= 0)])
    if len(failed):
        lists = lists.without(np.flatnonzero(np.isin(lists.codes, failed)[lists.owners()]))
    silent = np.setdiff1d(called[called >= 0], np.concatenate((failed, lists.codes)))
    codes = np.concatenate((lists.codes, silent))
    lengths = np.concatenate((lists.lengths, np.zeros(len(silent), dtype=np.int64)))
    lists = replace(lists, codes=codes, lengths=lengths)
    return lists.of_queries(~np.isin(codes, failed)), failed


def _in_order(lists: Lists, keys: Keys, conventions: Conventions) -> Lists:
    """Best first within each query; equal ones by the rule for ties."""
    order = None
    if lists.owner is not None or lists.inside(keys[1:] > keys[:-1]).any():
        given = conventions.ties == "given"
        order = np.argsort(-keys, kind="stable" if given else None)
        owner = lists.owners()
        # Numbers below 65,536 are sorted by counting.
        small = owner.astype(np.uint16) if len(lists.codes) <= 1 << 16 else owner
        order = order[np.argsort(small[order], kind="stable")]
        keys = keys[order]
    tied = np.flatnonzero(lists.inside(keys[1:] == keys[:-1]))
    lists = replace(lists, order=order, tied=tied)
    if not len(tied) or conventions.ties == "given":
        return lists
    items = lists.hits["item_id"]
    above, below = lists.row_at(tied), lists.row_at(tied + 1)
    first, second = items.gather(above), items.gather(below)
    down = conventions.ties == "id-desc"
    wrong = ((first < second) if down else (first > second)).to_numpy()
    # The same item twice with one score: the row that came first stays first.
    wrong |= (first == second).to_numpy() & (above > below)
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
    rows = frame.sort("group", "item", "row", descending=[False, descending, False])[
        "row"
    ].to_numpy()
    if lists.order is None:
        return replace(lists, moved=(places, rows))
    lists.order[places] = rows
    return lists


def _repeats(lists: Lists, hashes: Hashes) -> Ints:
    """Rows that repeat an item of the same query which stands higher up."""
    hashes = lists.owners() << np.int64(32) | hashes
    ordered = np.sort(hashes)
    twins = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twins):
        return np.empty(0, dtype=np.int64)
    rows = lists.row_at(lists.places_of(np.flatnonzero(np.isin(hashes, twins))))
    pairs = pl.DataFrame(
        {"query": lists.query_of(rows), "item": lists.hits["item_id"].gather(rows)}
    )
    first = pairs.select(pl.struct("query", "item").is_first_distinct())[:, 0].to_numpy()
    again: Ints = rows[~first]
    return again


def _repeated(lists: Lists, rows: Ints, depth: int | None) -> Repeats:
    """The places of these rows, to a depth."""
    places = lists.places_of(rows)
    query = lists.query_at(places)
    rank = places - lists.starts[query] + 1
    shown = rank <= (depth or UNLIMITED)
    return Repeats(query[shown], rank[shown])


def _conflicts(lists: Lists, run: Run, conventions: Conventions) -> int:
    """In how many queries the given ranks and the given scores tell different orders."""
    if "score" not in lists.hits.columns or "rank" not in lists.hits.columns:
        return 0
    by_rank = (conventions.order or run.order) == "rank"
    other = lists.hits["score"].to_numpy() if by_rank else -lists.hits["rank"].to_numpy()
    other = lists.at_places(other)
    rising = lists.inside(other[1:] > other[:-1])
    if not rising.any():
        return 0
    # Within a group of ties any order agrees, so each group is held against those above it.
    places = lists.places_in(np.unique(lists.query_at(np.flatnonzero(rising))))
    starts = np.flatnonzero(~np.isin(places, lists.tied + 1))
    groups = pl.DataFrame(
        {
            "query": lists.query_at(places[starts]),
            "low": np.minimum.reduceat(other[places], starts),
            "high": np.maximum.reduceat(other[places], starts),
        }
    )
    above = pl.col("low").cum_min().shift(1).over("query")
    return groups.filter(pl.col("high") > above)["query"].n_unique()


def _met(
    lists: Lists, hashes: Hashes, again: Ints, gold: Prepared, target: Target
) -> tuple[Entries, Entries, Ints]:
    """The judged hits, the gold units found, and the rows of the hits; none in rows ``again``."""
    if gold.conventions.level == "span":
        return meet_spans(lists, again, gold, target)
    by_doc = gold.conventions.level == "doc"
    items = lists.hits["item_id"]
    if by_doc:
        items = doc_of_hits(lists.hits, gold)
        hashes = short_hash(items)
    bits = len(gold.likely).bit_length() - 1
    likely_ones = gold.likely[hashes >> (32 - bits)]
    likely_ones[again] = False
    rows = np.flatnonzero(likely_ones)
    gold_rows, query = gold.rows_of(lists.codes)
    judged = pl.DataFrame(
        {"query": query, "item": gold.rows["item_id"].gather(gold_rows)}
    ).with_row_index("at")
    likely = pl.DataFrame({"query": lists.query_of(rows), "item": items.gather(rows), "row": rows})
    met = likely.join(judged, on=["query", "item"], maintain_order="left")
    places = lists.places_of(met["row"].to_numpy())
    rows = lists.row_at(places)
    met = met[np.searchsorted(met["row"].to_numpy(), rows)]
    at = met["at"].to_numpy().astype(np.int64)
    repeat = None
    if by_doc:
        seen = met.select(pl.struct("query", "item").is_first_distinct())
        repeat = ~seen[:, 0].to_numpy()
    query = lists.query_at(places)
    rank = places - lists.starts[query] + 1
    hits = Entries(target.n, query, rank, target.grade[at], repeat=repeat, row=at)
    return hits, hits, rows
