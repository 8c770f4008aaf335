"""The fast path for small TREC files, which needs no Polars: loading it takes longer than they do.

The careful path (``formats.trec``, ``measure.prepare``, ``measure.rank``) defines every result.
This module gives the same bits for plain lines of text, and None for anything else: then the
careful path takes over, and its messages are the only ones.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from karat.data.tables import HIGHEST_GRADE, Order
from karat.formats.blocks import StreamedRun
from karat.formats.readers import plain_gold
from karat.measure.conventions import Conventions
from karat.measure.lists import ListNeeds
from karat.measure.misfits import Meeting
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.rank import HIT_FACTS, Block, Keys, Ties, groups_of, inside
from karat.measure.ranked import Entries, Ints, Ranked
from karat.measure.score_builder import ScoreBuilder, final_scores
from karat.measure.scores import Scores

if TYPE_CHECKING:
    import polars as pl

# Above this size of all runs, Polars is faster by more than loading it takes.
MOST_BYTES = 5_000_000
_SPACE, _TAB, _NEWLINE = b" \t\n"
_NUMBER = b"0123456789.+-eE"
_SPAN = re.compile(rb":[0-9]+-[0-9]+\Z")


def _fields(data: bytes, width: int) -> list[bytes] | None:
    """Return the fields of all lines; None unless each line has ``width``, one blank apart."""
    if not data or not data.isascii() or data.startswith(b"#") or b"\n#" in data:
        return None
    codes = np.frombuffer(data, dtype=np.uint8)
    is_newline, blank = codes == _NEWLINE, codes <= _SPACE
    separator = (codes == _SPACE) | (codes == _TAB)
    if (blank != (separator | is_newline)).any() or blank[0] or (blank[1:] & blank[:-1]).any():
        return None
    ends = np.flatnonzero(is_newline)
    if not blank[-1]:
        ends = np.append(ends, len(codes) - 1)
    elif not is_newline[-1]:
        return None
    if (np.diff(np.cumsum(separator)[ends], prepend=0) != width - 1).any():
        return None
    return data.split()


def _numbers(texts: Sequence[bytes]) -> list[float] | None:
    """Return finite decimal numbers; None if any text is something else."""
    if b"".join(texts).translate(None, _NUMBER):
        return None
    try:
        numbers = list(map(float, texts))
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


@dataclass(frozen=True, eq=False)
class SmallGold:
    """The judgments of a small file, prepared; ``rows`` says where each query's items are."""

    prepared: Prepared
    rows: tuple[dict[bytes, int], ...]


def read_small_gold(path: str | os.PathLike[str], conventions: Conventions) -> SmallGold | None:
    """Read and prepare TREC qrels; None where the careful path has to."""
    whole_lists = conventions.depth is None and conventions.unit != "group"
    read = plain_gold(os.fspath(path), MOST_BYTES)
    if conventions.level != "item" or not whole_lists or read is None:
        return None
    data, source = read
    fields = _fields(data, 4)
    if fields is None:
        return None
    grades = _numbers(fields[3::4])
    if grades is None or max(map(abs, grades)) > HIGHEST_GRADE:
        return None
    if conventions.whole_grades and any(grade % 1 for grade in grades):
        return None
    judged: dict[bytes, dict[bytes, float]] = {}
    for query, item, grade in zip(fields[0::4], fields[2::4], grades, strict=True):
        judged.setdefault(query, {})[item] = grade
    # The best grade first, equal ones by id.
    items = [
        [item for _, item in sorted((-grade, item) for item, grade in of_query.items())]
        for of_query in judged.values()
    ]
    lengths = list(map(len, items))
    # A pair that is judged twice, or ids that are spans of characters.
    if sum(lengths) < len(grades) or all(map(_SPAN.search, fields[2::4])):
        return None
    query_ids = tuple(query.decode() for query in judged)
    first = np.concatenate(([0], np.cumsum(lengths)))
    prepared = Prepared(
        query_ids=query_ids,
        item_ids=tuple(item.decode() for of_query in items for item in of_query),
        grade=np.array(
            [
                grade_of[item]
                for grade_of, of_query in zip(judged.values(), items, strict=True)
                for item in of_query
            ]
        ),
        first=first,
        own_k=np.full(len(query_ids), conventions.k),
        no_answer=np.zeros(len(query_ids), dtype=bool),
        as_of=(),
        entities=(),
        numbers={query_id: number for number, query_id in enumerate(query_ids)},
        corpus=None,
        corpus_size=None,
        conventions=conventions,
        source=source,
    )
    rows = tuple(
        {item: int(start) + at for at, item in enumerate(of_query)}
        for start, of_query in zip(first, items, strict=False)
    )
    return SmallGold(prepared, rows)


def score_small(
    run: StreamedRun,
    gold: SmallGold,
    measures: Sequence[Measure],
    lenient: Sequence[Measure],
    *,
    most: int = MOST_BYTES,
) -> Scores | None:
    """Score a TREC run of at most ``most`` bytes; None where the careful path has to."""
    data = None if run.plain is None or run.strict else run.plain(most)
    fields = None if data is None else _fields(data, 6)
    if fields is None or ListNeeds.of(measures).needs:
        return None
    hits = _Hits.of(fields)
    block = None if hits is None else _rank(hits, gold, run.order)
    if block is None or not block.meeting.found:
        return None
    builder = ScoreBuilder(gold.prepared, measures)
    builder.add_block(block, meta=run.meta, order=run.order)
    partial = builder.partial()
    return final_scores(partial, gold.prepared, lenient, run=run, blocks=builder.blocks)


@dataclass(frozen=True, eq=False)
class _Hits:
    """The hits of a run in file order; those of one query follow each other."""

    query_ids: list[str]
    lengths: Ints
    items: list[bytes]
    scores: Keys
    ranks: Ints

    @classmethod
    def of(cls, fields: Sequence[bytes]) -> _Hits | None:
        queries, ranks = fields[0::6], fields[3::6]
        scores = _numbers(fields[4::6])
        if scores is None or not b"".join(ranks).isdigit() or max(map(len, ranks)) > 15:
            return None
        changes = [at for at in range(1, len(queries)) if queries[at] != queries[at - 1]]
        starts = [0, *changes]
        query_ids = [queries[at].decode() for at in starts]
        if len(set(query_ids)) < len(query_ids):
            return None
        lengths = np.diff([*starts, len(queries)])
        numbers = np.array(list(map(int, ranks)), dtype=np.int64)
        return cls(query_ids, lengths, list(fields[2::6]), np.array(scores), numbers)

    def of_queries(self, keep: Sequence[bool]) -> _Hits:
        """Return the hits of some queries."""
        rows = np.flatnonzero(np.repeat(keep, self.lengths))
        return _Hits(
            [query_id for query_id, kept in zip(self.query_ids, keep, strict=True) if kept],
            self.lengths[np.array(keep)],
            [self.items[row] for row in rows.tolist()],
            self.scores[rows],
            self.ranks[rows],
        )


def _rank(hits: _Hits, small: SmallGold, order: Order) -> Block | None:
    """Rank the hits and find those that are judged, as ``measure.rank`` does."""
    gold, conventions = small.prepared, small.prepared.conventions
    known = [query_id in gold.numbers for query_id in hits.query_ids]
    unknown = sorted(q for q, is_known in zip(hits.query_ids, known, strict=True) if not is_known)
    if unknown:
        hits = hits.of_queries(known)
    codes = np.array([gold.numbers[query_id] for query_id in hits.query_ids], dtype=np.int64)
    starts = np.cumsum(hits.lengths) - hits.lengths
    by_rank = (conventions.order or order) == "rank"
    keys: Keys = -hits.ranks.astype(np.float64) if by_rank else hits.scores
    if not by_rank and conventions.score_type == "float32":
        with np.errstate(over="ignore"):
            keys = keys.astype(np.float32)
    order_of_rows = np.arange(len(keys))
    if inside(keys[1:] > keys[:-1], starts).any():
        owner = np.repeat(np.arange(len(codes)), hits.lengths)
        order_of_rows = np.lexsort((-keys, owner))
        keys = keys[order_of_rows]
    other = hits.scores if by_rank else -hits.ranks.astype(np.float64)
    other = other[order_of_rows]
    # The other order agrees for certain where it never rises; else the careful path counts.
    if inside(other[1:] > other[:-1], starts).any():
        return None
    tied = np.flatnonzero(inside(keys[1:] == keys[:-1], starts))
    places = order_of_rows.tolist()
    if conventions.ties != "given":
        descending = conventions.ties == "id-desc"
        for start, end in zip(*(side.tolist() for side in groups_of(tied)), strict=True):
            group = sorted(places[start:end], key=hits.items.__getitem__, reverse=descending)
            places[start:end] = group
    items = [hits.items[place] for place in places]
    target = gold.target(codes)
    found = []
    ends = zip(starts.tolist(), (starts + hits.lengths).tolist(), codes.tolist(), strict=True)
    offset = 0
    for query, (start, end, code) in enumerate(ends):
        judged = small.rows[code]
        of_query = items[start:end]
        if len(set(of_query)) < len(of_query):
            return None
        first = int(gold.first[code])
        found += [
            (query, rank, start + rank - 1, offset + judged[item] - first)
            for rank, item in enumerate(of_query, 1)
            if item in judged
        ]
        offset += len(judged)
    query_of, rank_of, row_of, judgment = np.array(found, dtype=np.int64).reshape(-1, 4).T
    entries = Entries(
        len(codes), query_of, rank_of, target.grade[judgment], row=np.ascontiguousarray(judgment)
    )
    none = np.empty(0, dtype=np.int64)

    def facts() -> pl.DataFrame:
        return _facts([items[row] for row in row_of], hits.scores[np.array(places)[row_of]])

    return Block(
        codes=codes,
        ranked=Ranked(target, entries, entries, hits.lengths),
        failed=none,
        unknown_queries=unknown,
        repeats=0,
        conflicts=0,
        ties=Ties.of(tied, starts, entries, row_of, none, None) if len(tied) else None,
        facts=facts,
        meeting=Meeting(answers=len(codes), found=bool((entries.grade >= conventions.rel).any())),
    )


def _facts(items: Sequence[bytes], scores: Keys) -> pl.DataFrame:
    """Return what the run says of judged hits."""
    import polars as pl

    columns = {"item_id": [item.decode() for item in items], "score": scores}
    unknown = [pl.lit(None).cast(kind).alias(name) for name, kind in HIT_FACTS.items()]
    return pl.DataFrame(columns).select("item_id", "score", *unknown[1:])
