"""Ranking: where a run meets its gold; order, ties, duplicates and gaps are decided here, once.

``rank`` turns a block of a run into a ``Block``; ``tie_orders`` gives its best and worst order of
ties; ``trace_of`` joins the blocks of a run. Lists that are in order are not sorted, and items
that nobody judged are not joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
from karat.measure.ranked import UNLIMITED, Entries, Ints, Mask, Ranked, Repeats, Target

# Facts about a hit besides its rank.
HIT_FACTS = {
    "score": float,
    "similarity": float,
    "version": str,
    "source": str,
}


Keys = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Block:
    """Some queries of a run, ranked: ``codes`` names them, the rest are counts.

    ``facts`` returns the run's facts about each judged hit.
    """

    codes: Ints
    ranked: Ranked
    failed: Ints
    unknown_queries: list[str]
    repeats: int
    conflicts: int
    ties: Ties | None
    facts: Callable[[], pl.DataFrame]
    meeting: Meeting


def rank(run: Run, gold: Prepared, needs: ListNeeds) -> Block:
    """Rank a block of whole queries and find its judged hits."""
    run = run.at("final")
    conventions = gold.conventions
    by = conventions.order or run.order
    hits, codes, lengths, owner, failed, unknown_queries = _grouped(run, gold)
    keys = _keys(hits, by, run, conventions)
    lists, keys = _in_order(hits, codes, lengths, owner, keys, conventions.ties)
    hashes = short_hash(lists.hits["item_id"])
    again = _repeats(lists, hashes)
    repeats = len(again)
    if repeats and conventions.repeats == "drop":
        keep = np.ones(len(hashes), dtype=bool)
        keep[again] = False
        lengths = lists.lengths - np.bincount(lists.query_at(again), minlength=len(codes))
        hits, keys, hashes, again = lists.hits.filter(keep), keys[keep], hashes[keep], again[:0]
        lists, _ = _in_order(hits, codes, lengths, None, keys, "given")
    target = gold.target(codes)
    judged, found, rows = _met(lists, hashes, again, gold, target)
    meeting = run_side(run, gold, Ranked(target, judged, found, lists.lengths), codes, failed)
    if conventions.depth is not None:
        deep = judged.rank <= conventions.depth
        judged, rows = judged.where(deep), rows[deep]
        found = found.where(found.rank <= conventions.depth)
    returned = np.minimum(lists.lengths, conventions.depth or lists.lengths)
    extras = list_hits(lists, rows, again, run, gold, judged, needs)
    if len(again):
        query = lists.query_at(again)
        ranks = again - lists.starts[query] + 1
        shown = ranks <= (conventions.depth or UNLIMITED)
        extras["repeats"] = Repeats(query[shown], ranks[shown])
    columns = [
        (pl.col(name) if name in lists.hits.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in HIT_FACTS.items()
    ]
    facts = lists.hits[rows].select("item_id", *columns)
    items = lists.hits["item_id"]
    both = {"score", "rank"} <= set(lists.hits.columns)
    tied = len(lists.tied) and not conventions.depth
    return Block(
        codes=codes,
        ranked=Ranked(target, judged, found, returned, **extras),
        failed=failed,
        unknown_queries=unknown_queries,
        repeats=repeats,
        conflicts=_conflicts(lists, by) if both else 0,
        ties=Ties.of(lists.tied, lists.starts, judged, rows, again, items) if tied else None,
        facts=lambda: facts,
        meeting=meeting,
    )


def _keys(hits: pl.DataFrame, by: str | None, run: Run, conventions: Conventions) -> Keys:
    """Return the sort keys of the hits, descending."""
    if hits.is_empty():
        return np.empty(0)
    if by not in hits.columns:
        have, other = ("ranks", "rank") if by == "score" else ("scores", "score")
        raise InputError(
            f"this run has {have} only and cannot be ordered by {by}; use --set order={other}",
            where=run.source.name,
        )
    if by == "rank":
        return -hits["rank"].to_numpy().astype(np.float64)
    score = hits["score"].to_numpy()
    if conventions.score_type == "float64":
        return score
    # A score too large for float32 is infinite there, as it is in C.
    with np.errstate(over="ignore"):
        return score.astype(np.float32)


def _grouped(
    run: Run, gold: Prepared
) -> tuple[pl.DataFrame, Ints, Ints, Ints | None, Ints, list[str]]:
    """Return the hits to score, their queries, how many hits each has, and which query each row
    belongs to (None if the rows of one query follow each other); then the queries that failed,
    and those that are not to be scored.
    """
    hits = run.hits.drop("query_id")
    runs = run.hits["query_id"].rle().struct.unnest()
    codes, lengths = gold.code_of(runs["value"]), runs["len"].to_numpy().astype(np.int64)
    unknown_queries = runs["value"].filter(codes < 0).unique().sort().to_list()
    called = failed = np.empty(0, dtype=np.int64)
    if run.calls is not None:
        called = gold.code_of(run.calls["query_id"])
        if "error" in run.calls.columns:
            wrong = run.calls["error"].is_not_null().to_numpy()
            failed = np.unique(called[wrong & (called >= 0)])
    scored = (codes >= 0) & ~np.isin(codes, failed)
    if not scored.all():
        hits = hits.filter(np.repeat(scored, lengths))
        codes, lengths = codes[scored], lengths[scored]
    owner = None
    is_present = np.bincount(codes, minlength=len(gold.query_ids)) > 0
    present = np.flatnonzero(is_present)
    if len(present) < len(codes):
        owner = np.repeat((np.cumsum(is_present) - 1)[codes], lengths)
        codes, lengths = present, np.bincount(owner, minlength=len(present))
    # Queries that were called and returned nothing.
    silent = np.setdiff1d(called[called >= 0], np.concatenate((failed, codes)))
    codes = np.concatenate((codes, silent))
    lengths = np.concatenate((lengths, np.zeros(len(silent), dtype=np.int64)))
    return hits, codes, lengths, owner, failed, unknown_queries


def _in_order(
    hits: pl.DataFrame, codes: Ints, lengths: Ints, owner: Ints | None, keys: Keys, ties: str
) -> tuple[Lists, Keys]:
    """Sort hits best first within each query, and equal ones by the rule for ties."""
    starts = np.cumsum(lengths) - lengths
    order = None
    if owner is not None or inside(keys[1:] > keys[:-1], starts).any():
        owner = np.repeat(np.arange(len(codes)), lengths) if owner is None else owner
        order = np.argsort(-keys, kind="stable" if ties == "given" else None)
        # Numbers below 65,536 are sorted by counting.
        small = owner.astype(np.uint16) if len(codes) <= 1 << 16 else owner
        order = order[np.argsort(small[order], kind="stable")]
        keys = keys[order]
    tied = np.flatnonzero(inside(keys[1:] == keys[:-1], starts))
    if len(tied) and ties != "given":
        order = _ties_by_id(hits["item_id"], order, tied, descending=ties == "id-desc")
    return Lists(hits if order is None else hits[order], codes, starts, lengths, tied), keys


def inside(pairs: Mask, starts: Ints) -> Mask:
    """Return a mask over neighbouring rows, without the pairs that straddle two queries."""
    pairs[starts[(starts > 0) & (starts <= len(pairs))] - 1] = False
    return pairs


def _ties_by_id(
    items: pl.Series, order: Ints | None, tied: Ints, *, descending: bool
) -> Ints | None:
    """Return an order with tied hits by id; None if all rows stay in place.

    Only groups of ties with a pair in the wrong order are sorted.
    """
    above, below = (tied, tied + 1) if order is None else (order[tied], order[tied + 1])
    first, second = items.gather(above), items.gather(below)
    wrong = ((first < second) if descending else (first > second)).to_numpy()
    # The same item twice with one score: the row that came first stays first.
    wrong |= (first == second).to_numpy() & (above > below)
    if not wrong.any():
        return order
    starts, ends = groups_of(tied)
    group = np.unique(np.searchsorted(starts, tied[wrong], side="right") - 1)
    sizes = ends[group] - starts[group]
    places = np.repeat(starts[group] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    order = np.arange(len(items)) if order is None else order
    rows = order[places]
    frame = pl.DataFrame(
        {"group": np.repeat(group, sizes), "item": items.gather(rows), "row": rows}
    )
    frame = frame.sort("group", "item", "row", descending=[False, descending, False])
    order[places] = frame["row"].to_numpy()
    return order


def groups_of(tied: Ints) -> tuple[Ints, Ints]:
    """Return the first row and the end of each group of tied hits."""
    first = np.diff(tied, prepend=-2) > 1
    return tied[first], tied[np.roll(first, -1)] + 2


def _repeats(lists: Lists, hashes: Ints) -> Ints:
    """Return rows that repeat a higher-ranked item of the same query."""
    length = int(lists.lengths.max(initial=0))
    if length and (lists.lengths == length).all():
        # Lists of one length are sorted at once.
        table = np.sort(hashes.astype(np.uint32).reshape(-1, length), axis=1)
        if not (table[:, 1:] == table[:, :-1]).any():
            return np.empty(0, dtype=np.int64)
    hashes = np.repeat(np.arange(len(lists.codes)), lists.lengths) << np.int64(32) | hashes
    ordered = np.sort(hashes)
    rows = np.flatnonzero(np.isin(hashes, ordered[1:][ordered[1:] == ordered[:-1]]))
    pairs = {"query": lists.query_at(rows), "item": lists.hits["item_id"].gather(rows)}
    again: Ints = rows[~_first_of_each(pl.DataFrame(pairs))]
    return again


def _first_of_each(pairs: pl.DataFrame) -> Mask:
    """Return which rows are the first with their values."""
    return pairs.select(pl.struct(pl.all()).is_first_distinct())[:, 0].to_numpy()


def _met(
    lists: Lists, hashes: Ints, again: Ints, gold: Prepared, target: Target
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
    likely_rows = gold.likely[hashes >> (32 - (len(gold.likely).bit_length() - 1))]
    likely_rows[again] = False
    rows = np.flatnonzero(likely_rows)
    judged_items = gold.rows["item_id"].gather(target.rows)
    judged = pl.DataFrame({"query": target.query, "item": judged_items}).with_row_index("at")
    likely = pl.DataFrame({"query": lists.query_at(rows), "item": items.gather(rows), "row": rows})
    met = likely.join(judged, on=["query", "item"], maintain_order="left")
    rows, query = met["row"].to_numpy(), met["query"].to_numpy()
    at = met["at"].to_numpy().astype(np.int64)
    repeat = ~_first_of_each(met.select("query", "item")) if by_doc else None
    rank = rows - lists.starts[query] + 1
    hits = Entries(target.n, query, rank, target.grade[at], repeat=repeat, row=at)
    return hits, hits, rows


def _conflicts(lists: Lists, by: str | None) -> int:
    """Return in how many queries the given ranks and scores disagree about the order."""
    other = lists.hits["score"].to_numpy() if by == "rank" else -lists.hits["rank"].to_numpy()
    rising = np.flatnonzero(inside(other[1:] > other[:-1], lists.starts))
    if not len(rising):
        return 0
    # Within a group of ties any order agrees, so each group is compared with those above it.
    touched = np.zeros(len(lists.codes), dtype=bool)
    touched[lists.query_at(rising)] = True
    rows = np.flatnonzero(np.repeat(touched, lists.lengths))
    starts = np.flatnonzero(~np.isin(rows, lists.tied + 1))
    groups = pl.DataFrame(
        {
            "query": lists.query_at(rows[starts]),
            "low": np.minimum.reduceat(other[rows], starts),
            "high": np.maximum.reduceat(other[rows], starts),
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
    def of(
        cls,
        tied_rows: Ints,
        starts_of_lists: Ints,
        hits: Entries,
        rows: Ints,
        again: Ints,
        items: pl.Series | None,
    ) -> Ties | None:
        """Return the groups that these hits, at these rows, are in; None if none of them is tied.

        Rows ``again`` repeat an item; ``items`` are those of all rows, and None where none repeats.
        """
        starts, ends = groups_of(tied_rows)
        group = np.searchsorted(starts, rows, side="right") - 1
        tied = (group >= 0) & (rows < ends[group])
        if not tied.any():
            return None
        start = np.where(tied, starts[group], rows) - starts_of_lists[hits.query] + 1
        size = np.where(tied, ends[group] - starts[group], 1)
        copies = np.zeros(len(rows), dtype=np.int64)
        if items is not None and len(again):
            names = ["group", "item"]
            group_again = np.searchsorted(starts, again, side="right") - 1
            inside = (group_again >= 0) & (again < ends[group_again])
            repeats = pl.DataFrame(
                {"group": group_again[inside], "item": items.gather(again[inside])}
            )
            places = {"group": np.where(tied, group, -1), "item": items.gather(rows)}
            counts = pl.DataFrame(places).join(
                repeats.group_by(names).len("copies"), on=names, how="left", maintain_order="left"
            )
            copies = counts["copies"].fill_null(0).cast(pl.Int64).to_numpy()
        return cls(start, size, copies)


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

    ``ranked`` lets any measure of ranks be computed again, at any cut-off. A query that the run
    does not answer has an empty list.
    """

    ranked: Ranked
    blocks: Sequence[Block]
    order: Ints

    @cached_property
    def unjudged(self) -> tuple[Ints, Ints]:
        """The query and the rank of each hit that nobody judged; a repeat is none of them.

        A grade below 0 says that an item was pooled and not judged.
        """
        ranked = self.ranked
        starts = np.cumsum(ranked.returned) - ranked.returned
        is_open = np.ones(int(ranked.returned.sum()), dtype=bool)
        judged = ranked.hits.where(ranked.hits.grade >= 0)
        is_open[starts[judged.query] + judged.rank - 1] = False
        if ranked.repeats is not None:
            is_open[starts[ranked.repeats.query] + ranked.repeats.rank - 1] = False
        places = np.flatnonzero(is_open)
        query = np.repeat(np.arange(ranked.n), ranked.returned)[places]
        return query, places - starts[query] + 1

    @cached_property
    def facts(self) -> pl.DataFrame:
        """The run's facts about each judged hit, null where absent."""
        nothing = pl.DataFrame(schema={"item_id": pl.String, **HIT_FACTS})
        return pl.concat([nothing, *(block.facts() for block in self.blocks)])[self.order]


def trace_of(blocks: Sequence[Block], gold: Prepared) -> Trace:
    """Return the blocks of a run put together, each query in its place."""
    n = len(gold.query_ids)
    returned = np.zeros(n, dtype=np.int64)
    for block in blocks:
        returned[block.codes] = block.ranked.returned
    hits, order = _joined(blocks, [block.ranked.hits for block in blocks], gold)
    found, _ = _joined(blocks, [block.ranked.found for block in blocks], gold)
    repeats = None
    repeats_by_block = [(block.codes, block.ranked.repeats) for block in blocks]
    places = [(codes[r.query], r.rank) for codes, r in repeats_by_block if r is not None]
    if places:
        query, rank = (np.concatenate(side) for side in zip(*places, strict=True))
        order_of_repeats = np.lexsort((rank, query))
        repeats = Repeats(query[order_of_repeats], rank[order_of_repeats])
    ranked = Ranked(gold.target(np.arange(n)), hits, found, returned, repeats=repeats)
    return Trace(ranked, blocks, order)


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
        else block.ranked.target.rows[entries.row]
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
    spans = gold.rows[target.rows].select("item_id", "start", "end", "grade").rows()
    of_query: dict[tuple[int, str], list[int]] = {}
    for at, (asked, span) in enumerate(zip(target.query.tolist(), spans, strict=True)):
        of_query.setdefault((asked, span[0]), []).append(at)
    ordered, rows, query_in_order, ranks_in_order = lists.to_depth()
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
