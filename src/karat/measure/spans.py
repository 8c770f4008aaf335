"""Gold as character spans: which chunks touch a span, and when enough of it is covered.

Spans outlive a change of chunking. A chunk is relevant if it overlaps a span; a span is
found at the rank where the chunks so far cover the agreed share of its characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from karat.data.columns import doc_of
from karat.errors import MissingInputError
from karat.measure.ranked import Entries, Ints, Target

if TYPE_CHECKING:
    from karat.measure.lists import Lists
    from karat.measure.prepare import Prepared

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
    ordered, rows, query, rank = lists.in_order()
    chunks = chunk_places(ordered, gold)
    docs, starts, ends = (chunks[name].to_list() for name in ("doc", "start", "end"))
    ranks, queries = rank.tolist(), query.tolist()
    covered: dict[int, list[Interval]] = {}
    hits: list[tuple[int, int, int, float, bool, int, float]] = []
    found: list[tuple[int, int, float, int]] = []
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
            covered[at] = _joined(
                [*covered.get(at, []), _overlap(spans[at], starts[row], ends[row])]
            )
            need = gold.conventions.cover * (spans[at][2] - spans[at][1])
            if before < need <= _length(covered[at]):
                found.append((asked, ranks[row], spans[at][3], at))
    return _entries(target.n, hits), _found(target.n, found), rows[_column(hits, 0)]


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


def _overlap(span: tuple[str, int, int, float], start: int, end: int) -> Interval:
    return max(span[1], start), min(span[2], end)


def _joined(intervals: list[Interval]) -> list[Interval]:
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


def _column(rows: list[Any], at: int) -> Ints:
    return np.array([row[at] for row in rows], dtype=np.int64)


def _entries(n: int, hits: list[tuple[int, int, int, float, bool, int, float]]) -> Entries:
    grade = np.array([hit[3] for hit in hits], dtype=np.float64)
    best = np.array([hit[6] for hit in hits], dtype=np.float64)
    repeat = np.array([hit[4] for hit in hits], dtype=bool)
    query, rank, row = (_column(hits, at) for at in (1, 2, 5))
    return Entries(n, query, rank, grade, repeat=repeat, row=row, best=best)


def _found(n: int, found: list[tuple[int, int, float, int]]) -> Entries:
    grade = np.array([one[2] for one in found], dtype=np.float64)
    return Entries(n, _column(found, 0), _column(found, 1), grade, row=_column(found, 3))
