"""Ranking: where a run meets its gold; order, ties, duplicates and gaps are decided here, once.

``rank`` turns a block of a run into a ``Block``; ``tie_orders`` gives its best and worst order of
ties; ``trace_of`` joins the blocks of a run. Lists that are in order are not sorted, and items
that nobody judged are not joined: a look at neighbouring rows tells what has to be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.columns import doc_of
from karat.data.tables import Run
from karat.errors import InputError, MissingInputError
from karat.measure.aggregates import Values
from karat.measure.conventions import Conventions
from karat.measure.lists import ListNeeds, Lists, list_hits
from karat.measure.misfits import Meeting, run_side
from karat.measure.prepare import Prepared, doc_of_hits, short_hash
from karat.measure.ranked import UNLIMITED, Entries, Ints, Ranked, Repeats, Target

# What a run may say of a hit besides its place.
HIT_FACTS = {
    "score": pl.Float64,
    "similarity": pl.Float64,
    "version": pl.String,
    "source": pl.String,
}


Keys = NDArray[np.floating[Any]]


Hashes = Ints


@dataclass(frozen=True, eq=False)
class Block:
    """Some queries of a run, ranked: ``codes`` says which, the rest what was seen on the way."""

    codes: Ints
    ranked: Ranked
    failed: Ints
    unknown_queries: list[str]
    repeats: int
    conflicts: int
    ties: Ties | None
    facts: pl.DataFrame
    meeting: Meeting


def rank(run: Run, gold: Prepared, needs: ListNeeds) -> Block:
    """Rank a block of whole queries and find its judged hits."""
    run = run.at("final")
    conventions = gold.conventions
    lists, unknown_queries = _grouped(run, gold)
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
    extras = list_hits(lists, rows, again, run, gold, hits, needs)
    if len(again):
        places = lists.places_of(again)
        query = lists.query_at(places)
        ranks = places - lists.starts[query] + 1
        shown = ranks <= (conventions.depth or UNLIMITED)
        extras["repeats"] = Repeats(query[shown], ranks[shown])
    # What the run says of each judged hit.
    facts = [
        pl.col(name).cast(kind) if name in lists.hits.columns else pl.lit(None, kind).alias(name)
        for name, kind in HIT_FACTS.items()
    ]
    return Block(
        codes=lists.codes,
        ranked=Ranked(target, hits, found, returned, **extras),
        failed=failed,
        unknown_queries=unknown_queries,
        repeats=repeats,
        conflicts=_conflicts(lists, run, conventions)
        if {"score", "rank"} <= set(lists.hits.columns)
        else 0,
        ties=Ties.of(lists, hits, again) if len(lists.tied) and not conventions.depth else None,
        facts=lists.hits[rows].select("item_id", *facts),
        meeting=meeting,
    )


def _keys(hits: pl.DataFrame, run: Run, conventions: Conventions) -> Keys:
    """Return what the hits are sorted by, descending."""
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
    """Return hits by query, and the queries that are not to be scored."""
    hits = run.hits
    runs = hits["query_id"].rle().struct.unnest()
    codes, lengths = gold.code_of(runs["value"]), runs["len"].to_numpy().astype(np.int64)
    unknown_queries: list[str] = []
    if (codes < 0).any():
        unknown_queries = runs["value"].filter(codes < 0).unique().sort().to_list()
        hits = hits.filter(np.repeat(codes >= 0, lengths))
        codes, lengths = codes[codes >= 0], lengths[codes >= 0]
    present = np.flatnonzero(np.bincount(codes, minlength=len(gold.query_ids)))
    if len(present) == len(codes):
        return Lists(hits, codes, lengths), unknown_queries
    numbers = np.zeros(len(gold.query_ids), dtype=np.int64)
    numbers[present] = np.arange(len(present))
    owner = np.repeat(numbers[codes], lengths)
    return Lists(hits, present, np.bincount(owner, minlength=len(present)), owner), unknown_queries


def _with_calls(lists: Lists, calls: pl.DataFrame, gold: Prepared) -> tuple[Lists, Ints]:
    """Add queries that were called and returned nothing, and remove failed ones."""
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
    """Sort hits best first within each query; equal ones by the rule for ties."""
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
    items = lists.hits["item_id"].gather(rows)
    frame = pl.DataFrame({"group": np.repeat(group, sizes), "item": items, "row": rows})
    frame = frame.sort("group", "item", "row", descending=[False, descending, False])
    rows = frame["row"].to_numpy()
    order = np.arange(lists.hits.height) if lists.order is None else lists.order
    order[places] = rows
    return replace(lists, order=order)


def _repeats(lists: Lists, hashes: Hashes) -> Ints:
    """Return rows that repeat an item of the same query which stands higher up."""
    length = int(lists.lengths.max(initial=0))
    if lists.owner is None and length and (lists.lengths == length).all():
        # Lists of one length are sorted at once.
        table = np.sort(hashes.astype(np.uint32).reshape(-1, length), axis=1)
        if not (table[:, 1:] == table[:, :-1]).any():
            return np.empty(0, dtype=np.int64)
    hashes = lists.owners() << np.int64(32) | hashes
    ordered = np.sort(hashes)
    twins = ordered[1:][ordered[1:] == ordered[:-1]]
    rows = lists.row_at(lists.places_of(np.flatnonzero(np.isin(hashes, twins))))
    pairs = pl.DataFrame(
        {"query": lists.query_of(rows), "item": lists.hits["item_id"].gather(rows)}
    )
    first = pairs.select(pl.struct("query", "item").is_first_distinct())[:, 0].to_numpy()
    again: Ints = rows[~first]
    return again


def _met(
    lists: Lists, hashes: Hashes, again: Ints, gold: Prepared, target: Target
) -> tuple[Entries, Entries, Ints]:
    """Return the judged hits, the gold units found, and the rows of the hits.

    Rows ``again`` repeat an item and find nothing.
    """
    if gold.conventions.level == "span":
        return meet_spans(lists, again, gold, target)
    by_doc = gold.conventions.level == "doc"
    items = lists.hits["item_id"]
    if by_doc:
        items = doc_of_hits(lists.hits, gold.corpus)
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


def _conflicts(lists: Lists, run: Run, conventions: Conventions) -> int:
    """Return in how many queries the given ranks and scores disagree about the order."""
    by_rank = (conventions.order or run.order) == "rank"
    ranks = lists.hits["rank"].to_numpy()
    if not by_rank and lists.order is None and not lists.inside(ranks[1:] < ranks[:-1]).any():
        # Rows stand in the order of both; only tied hits were moved.
        return 0
    other = lists.hits["score"].to_numpy() if by_rank else -ranks
    other = lists.at_places(other)
    rising = lists.inside(other[1:] > other[:-1])
    if not rising.any():
        return 0
    # Within a group of ties any order agrees, so each group is compared with those above it.
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


@dataclass(frozen=True, eq=False)
class Ties:
    """For each judged hit, the first rank of its group of equal scores and the group's size.

    ``again`` is how often the same group returns the item again.
    """

    start: Ints
    size: Ints
    again: Ints

    @classmethod
    def of(cls, lists: Lists, hits: Entries, again: Ints) -> Ties | None:
        """Return the groups that these hits are in; None if none of them is tied."""
        if not len(hits.rank):
            return None
        starts, ends = lists.tie_groups()
        places = lists.starts[hits.query] + hits.rank - 1
        group = np.maximum(np.searchsorted(starts, places, side="right") - 1, 0)
        tied = (starts[group] <= places) & (places < ends[group])
        if not tied.any():
            return None
        start = np.where(tied, starts[group], places) - lists.starts[hits.query] + 1
        size = np.where(tied, ends[group] - starts[group], 1)
        own_group = np.where(tied, group, -1)
        return cls(start, size, _copies(lists, starts, ends, places, own_group, again))


def _copies(lists: Lists, starts: Ints, ends: Ints, places: Ints, group: Ints, again: Ints) -> Ints:
    """Return how often the group of each hit returns its item again; -1 is no group."""
    if not len(again):
        return np.zeros(len(places), dtype=np.int64)
    items = lists.hits["item_id"]
    others = lists.places_of(again)
    groups = np.maximum(np.searchsorted(starts, others, side="right") - 1, 0)
    inside = (starts[groups] <= others) & (others < ends[groups])
    names = ["group", "item"]
    copies = (
        pl.DataFrame({"group": groups[inside], "item": items.gather(lists.row_at(others[inside]))})
        .group_by(names)
        .len("copies")
    )
    hits = pl.DataFrame({"group": group, "item": items.gather(lists.row_at(places))})
    counted = hits.join(copies, on=names, how="left", maintain_order="left")
    return counted["copies"].fill_null(0).cast(pl.Int64).to_numpy()


def tie_orders(block: Block) -> tuple[Ranked, Ranked] | None:
    """Return a block with ties at their worst and at their best; None if it cannot matter."""
    ties = block.ties
    if ties is None or block.ranked.target.shared or not (ties.size > 1).any():
        return None
    return _ordered(block.ranked, ties, best=False), _ordered(block.ranked, ties, best=True)


def _ordered(ranked: Ranked, ties: Ties, *, best: bool) -> Ranked:
    """Judged hits of each group of ties at its two ends: relevant ones first, or last."""
    hits = ranked.hits
    worth = hits.grade if best else -hits.grade
    # An item comes before its copies, so at their worst those with copies come first.
    copies = np.zeros_like(ties.again) if best else np.where(hits.grade > 0, ties.again, 0)
    late = (hits.grade > 0) & (not best)
    order = np.lexsort((-worth, -copies, late, ties.start, hits.query))
    query, start, size = hits.query[order], ties.start[order], ties.size[order]
    grade = hits.grade[order]
    leads = (grade > 0) == best
    group = np.cumsum(
        np.concatenate(([True], (query[1:] != query[:-1]) | (start[1:] != start[:-1])))
        if len(query)
        else np.empty(0, dtype=bool)
    )
    count = np.bincount(group, minlength=1)[group] if len(group) else group
    first = np.searchsorted(group, group)
    ordinal = np.arange(len(group)) - first
    rank = np.where(leads, start + ordinal, start + size - count + ordinal)
    if copies.any():
        # Each is followed by its copies: their number from here to the end of the group.
        total = np.cumsum(copies[order][::-1])[::-1]
        after = np.searchsorted(group, group, side="right")
        rank = np.where(leads, rank, rank - (total - np.append(total, 0)[after]))
    entries = Entries(hits.n, query, rank, grade, row=None if hits.row is None else hits.row[order])
    return replace(ranked, hits=entries, found=entries)


@dataclass(frozen=True, eq=False)
class Trace:
    """Every query of a score table, in its order, with all judged hits of its list.

    ``ranked`` lets any measure of ranks be computed again, at any cut-off; ``facts`` has a row
    for each of its hits: item_id, score, similarity, version, source; null where the run has none.
    A query that the run does not answer has an empty list.
    """

    ranked: Ranked
    facts: pl.DataFrame


def trace_of(blocks: Sequence[Block], gold: Prepared) -> Trace:
    """Return the blocks of a run put together, each query in its place."""
    n = len(gold.query_ids)
    returned = np.zeros(n, dtype=np.int64)
    for block in blocks:
        returned[block.codes] = block.ranked.returned
    hits, order = _joined(blocks, [block.ranked.hits for block in blocks], gold)
    found, _ = _joined(blocks, [block.ranked.found for block in blocks], gold)
    nothing = pl.DataFrame(schema={"item_id": pl.String, **HIT_FACTS})
    facts = pl.concat([nothing, *(block.facts for block in blocks)])
    repeats = None
    known = [(block.codes, block.ranked.repeats) for block in blocks]
    places = [(codes[r.query], r.rank) for codes, r in known if r is not None]
    if places:
        query, rank = (np.concatenate(side) for side in zip(*places, strict=True))
        order_of_repeats = np.lexsort((rank, query))
        repeats = Repeats(query[order_of_repeats], rank[order_of_repeats])
    ranked = Ranked(gold.target(np.arange(n)), hits, found, returned, repeats=repeats)
    return Trace(ranked, facts[order])


def _joined(
    blocks: Sequence[Block], parts: Sequence[Entries], gold: Prepared
) -> tuple[Entries, Ints]:
    """Return the entries of all blocks by query and rank, and the order that put them there."""
    nothing = np.empty(0, dtype=np.int64)
    pairs = list(zip(blocks, parts, strict=True))
    query = np.concatenate([nothing, *(block.codes[entries.query] for block, entries in pairs)])
    rank = np.concatenate([nothing, *(entries.rank for entries in parts)])
    grade = np.concatenate([np.empty(0), *(entries.grade for entries in parts)])
    # The place of each entry's judgment among those of all queries.
    rows = [
        np.zeros(len(entries.rank), dtype=np.int64)
        if entries.row is None
        else gold.rows_of(block.codes)[0][entries.row]
        for block, entries in pairs
    ]
    order = np.lexsort((rank, query))
    repeat, best = (
        np.concatenate([getattr(entries, name) for entries in parts])[order]
        if parts and all(getattr(entries, name) is not None for entries in parts)
        else None
        for name in ("repeat", "best")
    )
    row = np.concatenate([nothing, *rows])[order]
    n = len(gold.query_ids)
    return Entries(n, query[order], rank[order], grade[order], repeat, row, best), order


# --- Gold as character spans ------------------------------------------------------------------
#
# Spans outlive a change of chunking. A chunk is relevant if it overlaps a span; a span is found at
# the rank where the chunks so far cover the agreed share of its characters.

Interval = tuple[int, int]


def meet_spans(
    lists: Lists, again: Ints, gold: Prepared, target: Target
) -> tuple[Entries, Entries, Ints]:
    """Judged chunks, spans found, and the rows of the former; rows ``again`` find nothing."""
    gold_rows, place = gold.rows_of(lists.codes)
    spans = gold.rows[gold_rows].select("item_id", "start", "end", "grade").rows()
    of_query: dict[tuple[int, str], list[int]] = {}
    for at, (asked, span) in enumerate(zip(place.tolist(), spans, strict=True)):
        of_query.setdefault((asked, span[0]), []).append(at)
    ordered, rows, query_in_order, ranks_in_order = lists.in_order()
    chunks = chunk_places(ordered, gold)
    docs, starts, ends = (chunks[name].to_list() for name in ("doc", "start", "end"))
    ranks, queries = ranks_in_order.tolist(), query_in_order.tolist()
    covered: dict[int, list[Interval]] = {}
    hits: list[tuple[float, ...]] = []
    found: list[tuple[float, ...]] = []
    passed = set(again.tolist())
    for row, asked in enumerate(queries):
        if passed and int(rows[row]) in passed:
            continue
        touched = [
            at
            for at in of_query.get((asked, docs[row]), ())
            if starts[row] < spans[at][2] and ends[row] > spans[at][1]
        ]
        if not touched:
            continue
        new = [at for at in touched if at not in covered]
        grade = max(spans[at][3] for at in new or touched)
        best = max(spans[at][3] for at in touched)
        hits.append((row, asked, ranks[row], grade, not new, (new or touched)[0], best))
        for at in touched:
            before = _length(covered.get(at, []))
            overlap = max(spans[at][1], starts[row]), min(spans[at][2], ends[row])
            covered[at] = _merged([*covered.get(at, []), overlap])
            need = gold.conventions.cover * (spans[at][2] - spans[at][1])
            if before < need <= _length(covered[at]):
                found.append((asked, ranks[row], spans[at][3], at))
    row, query, rank, grade, repeat, judgment, best = _columns(hits, 7)
    chunk_hits = Entries(
        target.n,
        query.astype(np.int64),
        rank.astype(np.int64),
        grade,
        repeat=repeat.astype(bool),
        row=judgment.astype(np.int64),
        best=best,
    )
    query_found, rank_found, grade_found, judgment_found = _columns(found, 4)
    spans_found = Entries(
        target.n,
        query_found.astype(np.int64),
        rank_found.astype(np.int64),
        grade_found,
        row=judgment_found.astype(np.int64),
    )
    return chunk_hits, spans_found, rows[row.astype(np.int64)]


def chunk_places(hits: pl.DataFrame, gold: Prepared) -> pl.DataFrame:
    """Where each hit lies in its document: from the run, the corpus, or an id ``doc:start-end``."""
    if {"start", "end"} <= set(hits.columns):
        named = [pl.col("doc_id")] if "doc_id" in hits.columns else []
        doc = pl.coalesce(*named, doc_of(pl.col("item_id")))
        joined = hits.select("item_id", "start", "end", doc=doc)
    elif gold.corpus is not None and {"start", "end"} <= set(gold.corpus.columns):
        places = gold.corpus.select("item_id", doc="doc_id", start="start", end="end")
        joined = hits.select("item_id").join(
            places, on="item_id", how="left", maintain_order="left"
        )
    else:
        parts = pl.col("item_id").str.extract_groups(r"^(?<doc>.+):(?<start>\d+)-(?<end>\d+)$")
        joined = hits.select("item_id", parts.alias("parts")).unnest("parts")
        joined = joined.with_columns(pl.col("start", "end").cast(pl.Int64))
    lost = joined.filter(pl.col("start").is_null() | pl.col("end").is_null())
    if lost.height:
        raise MissingInputError(
            f"level=span needs to know where item {lost['item_id'][0]!r} lies in its document: give"
            " --corpus with start and end, or ids of the form doc:start-end"
        )
    return joined.select("doc", "start", "end")


def _merged(intervals: list[Interval]) -> list[Interval]:
    """Return the same characters as intervals that do not overlap."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _length(intervals: list[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def _columns(rows: list[tuple[float, ...]], width: int) -> Values:
    return np.array(rows, dtype=np.float64).reshape(-1, width).T
