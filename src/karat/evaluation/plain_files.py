"""The fast path for plain TREC files: bytes are split, compared and ranked without Polars.

The careful path (``formats.trec``, ``measure.prepare``, ``measure.rank``) defines every result.
This module gives the same bits for plain lines of text, and None for anything else: then the
careful path takes over, and its messages are the only ones.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import neg
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from karat.data.tables import HIGHEST_GRADE, Order
from karat.formats.blocks import StreamedRun
from karat.formats.files import BYTE_ORDER_MARK, parse_ahead
from karat.formats.readers import plain_gold
from karat.measure.aggregates import Values
from karat.measure.conventions import Conventions
from karat.measure.lists import ListNeeds
from karat.measure.misfits import Meeting
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.rank import HIT_FACTS, Block, Keys, Ties, inside
from karat.measure.ranked import Entries, Ints, Mask, Ranked
from karat.measure.score_builder import ScoreBuilder, final_scores
from karat.measure.scores import Scores
from karat.parallel import stop_if_cancelled

if TYPE_CHECKING:
    import polars as pl

# Larger gold is faster to read with Polars, by more than loading it takes.
MOST_BYTES = 5_000_000
# What one step works on fits into the caches of a processor.
_CHUNK_BYTES = 1 << 20
# A query with more lines is left to the careful path, and so are longer ids.
_LONGEST_QUERY, _LONGEST_ID = 64 << 20, 256
_SPACE, _TAB, _NEWLINE, _HASH, _DOT, _MINUS = b" \t\n#.-"
_FIRST_FIELD = re.compile(rb"[^ \t\n]+[ \t]")
_NUMBER = b"0123456789.+-eE"
_SPAN = re.compile(rb":[0-9]+-[0-9]+\Z")
# A byte in each of the eight places of a word.
_EACH = 0x0101010101010101
# Two odd numbers with irregular bits, to spread ids over all hashes.
_SPREAD, _SPREAD_AGAIN = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_POWERS = 10.0 ** np.arange(17)
# Below this, float64 holds every whole number.
_EXACT = 2.0**53

Words = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class _Lines:
    """Lines of fields that one blank separates, and the places where fields start and end."""

    data: bytes
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, chunk: bytes, width: int) -> _Lines | None:
        """Find the fields; None unless each line has ``width``, and no line is a comment."""
        try:
            chunk.isascii() or chunk.decode()
        except UnicodeDecodeError:
            return None
        # Eight bytes can be read from any place of a field.
        end = b"" if chunk.endswith(b"\n") else b"\n"
        data = b"".join((b"\n", chunk, end, bytes(8)))
        codes = np.frombuffer(data, np.uint8)[:-8]
        blank, separator = codes <= _SPACE, codes == _SPACE
        if b"\t" in data:
            separator |= codes == _TAB
        places = np.flatnonzero(blank)
        lines, rest = divmod(len(places) - 1, width)
        if rest or (blank[1:] & blank[:-1]).any() or (codes[places[::width]] != _NEWLINE).any():
            return None
        starts, ends = (side.reshape(lines, width) for side in (places[:-1] + 1, places[1:]))
        if (
            np.count_nonzero(separator) != lines * (width - 1)
            or (codes[starts[:, 0]] == _HASH).any()
        ):
            return None
        return cls(data, starts, ends)

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    @cached_property
    def words(self) -> Words:
        """The eight bytes from each place on; the first byte is the lowest."""
        return np.ndarray(len(self.data) - 7, np.dtype("<u8"), self.data, strides=(1,))

    def where(self, mask: Mask) -> _Lines:
        """Return the marked lines."""
        return _Lines(self.data, self.starts[mask], self.ends[mask])

    def texts(self, field: int, rows: Ints) -> list[bytes]:
        """Return a field of some lines."""
        places = zip(
            self.starts[rows, field].tolist(), self.ends[rows, field].tolist(), strict=True
        )
        return [self.data[start:end] for start, end in places]

    def words_of(self, field: int, rows: Ints | slice = slice(None)) -> list[Words] | None:
        """Return a field as columns of words, equal where texts are; None for very long ones."""
        starts = self.starts[rows, field]
        lengths = self.ends[rows, field] - starts
        longest = int(lengths.max(initial=0))
        if longest > _LONGEST_ID:
            return None
        words = []
        for at in range(0, longest, 8):
            read = self.words[np.minimum(starts + at, len(self.words) - 1)]
            # What follows the field is shifted out; a shift by 64 leaves nothing.
            beyond = _bits(8 - np.clip(lengths - at, 0, 8))
            words.append(read << beyond >> beyond)
        return words


def _bits(count: Ints) -> Words:
    """Return the number of bits in so many bytes."""
    return (count << 3).view(np.uint64)


def _hash(words: Sequence[Words], n: int) -> Words:
    """Return a hash of n texts; those of up to eight bytes have different ones."""
    value = np.zeros(n, np.uint64)
    for at, word in enumerate(words):
        # A text has the same hash among longer ones: a word of nothing adds nothing.
        part = word * (_SPREAD + 2 * at)
        part ^= part >> 32
        value += part * (_SPREAD_AGAIN + 2 * at)
    return value


def _pairs(hashes: Words, codes: Ints) -> Words:
    """Return a hash of each item together with the number of its query."""
    return _hash([hashes, codes.view(np.uint64)], len(codes))


def _digits(words: Words, count: Ints) -> tuple[Words, Mask]:
    """Return the number that the first ``count`` bytes of each word spell, and where none is."""
    # The digits end in the highest byte, and zeros lead them.
    digits = (words ^ (0x30 * _EACH)) << _bits(8 - count)
    wrong = ((digits + 0x76 * _EACH) | digits) & (0x80 * _EACH)
    # Pairs of digits, then pairs of these, then both halves.
    digits = digits * 10 + (digits >> 8)
    low, high = digits & 0xFF000000FF, (digits >> 16) & 0xFF000000FF
    number = (low * (1_000_000 << 32 | 100) + high * (10_000 << 32 | 1)) >> 32
    return number, (wrong != 0) | (count > 8) | (count < 1)


def _whole_numbers(lines: _Lines, field: int) -> Ints | None:
    """Return a field of one to eight digits."""
    starts = lines.starts[:, field]
    numbers, wrong = _digits(lines.words[starts], lines.ends[:, field] - starts)
    return None if wrong.any() else numbers.view(np.int64)


def _decimals(lines: _Lines, field: int) -> Values | None:
    """Return a field of finite decimal numbers; None if any text is something else.

    A number of few digits is one whole number divided by a power of ten, and so rounded once.
    """
    starts, ends = lines.starts[:, field], lines.ends[:, field]
    negative = lines.codes[starts] == _MINUS
    starts = starts + negative
    words, lengths = lines.words[starts], ends - starts
    other = words ^ (_DOT * _EACH)
    dots = (other - _EACH) & ~other & (0x80 * _EACH)
    # The bytes below the first dot.
    dot = (np.bitwise_count((dots & -dots) - 1) >> 3).astype(np.int64)
    whole = np.minimum(dot, lengths)
    places = np.maximum(lengths - dot - 1, 0)
    number, wrong = _digits(words, whole)
    after = starts + whole + 1
    far = np.maximum(places - 8, 0)
    part, odd = _digits(lines.words[after + far], places - far)
    fraction = part.astype(np.float64)
    if far.any():
        part, odd_too = _digits(lines.words[after], far)
        fraction += part.astype(np.float64) * 1e8
        odd |= odd_too & (far > 0)
    wrong |= (odd & (lengths > whole)) | (places > 16) | ((dot > 7) & (lengths > 8))
    scale = _POWERS[np.minimum(places, 16)]
    value = number.astype(np.float64) * scale + np.where(places > 0, fraction, 0.0)
    wrong |= value >= _EXACT
    value /= scale
    if negative.any():
        value = np.where(negative, -value, value)
    if wrong.any():
        rows = np.flatnonzero(wrong)
        numbers = _numbers(lines.texts(field, rows))
        if numbers is None:
            return None
        value[rows] = numbers
    return value


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
class PlainGold:
    """The judgments of a plain file, prepared; ``items`` are their ids."""

    prepared: Prepared
    items: list[bytes]

    @cached_property
    def hashes(self) -> Words:
        """A hash of each judged item."""
        lines = _Lines.of(b"\n".join(self.items), 1)
        words = None if lines is None else lines.words_of(0)
        # Ids too long to be compared here occur in no run that is.
        return (
            np.zeros(len(self.items), np.uint64) if words is None else _hash(words, len(self.items))
        )

    @cached_property
    def likely(self) -> Mask:
        """The leading bits of the hashes, so that most hits are passed over: 1/32 full or less."""
        bits = max(12, (16 * len(self.items)).bit_length() + 1)
        likely = np.zeros(1 << bits, dtype=bool)
        likely[self.hashes >> (64 - bits)] = True
        return likely

    @cached_property
    def pairs(self) -> tuple[Words, Ints]:
        """Hashes of queries with their judged items, ascending, and the judgment of each."""
        codes = np.repeat(np.arange(len(self.prepared.query_ids)), np.diff(self.prepared.first))
        pairs = _pairs(self.hashes, codes)
        order = np.argsort(pairs)
        return pairs[order], order

    def judged(self, hashes: Words, codes: Ints, owner: Ints) -> tuple[Ints, Ints]:
        """Return which hits look judged, and the judgment of each.

        ``owner`` gives the place of a hit's query among ``codes``.
        """
        bits = len(self.likely).bit_length() - 1
        rows = np.flatnonzero(self.likely[hashes >> (64 - bits)])
        pairs, judgments = self.pairs
        wanted = _pairs(hashes[rows], codes[owner[rows]])
        at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        match = pairs[at] == wanted
        return rows[match], judgments[at[match]]


def read_plain_gold(path: str | os.PathLike[str], conventions: Conventions) -> PlainGold | None:
    """Read and prepare TREC qrels; None where the careful path has to."""
    whole_lists = conventions.depth is None and conventions.unit != "group"
    read = plain_gold(os.fspath(path), MOST_BYTES)
    if conventions.level != "item" or not whole_lists or read is None:
        return None
    data, source = read[0].removeprefix(BYTE_ORDER_MARK), read[1]
    if _Lines.of(data, 4) is None:
        return None
    fields = data.split()
    queries, items, grades = fields[0::4], fields[2::4], _numbers(fields[3::4])
    if grades is None or max(map(abs, grades)) > HIGHEST_GRADE:
        return None
    if conventions.whole_grades and any(grade % 1 for grade in grades):
        return None
    # A pair that is judged twice, or ids that are spans of characters.
    if len(set(zip(queries, items, strict=True))) < len(items) or all(map(_SPAN.search, items)):
        return None
    codes = {query: code for code, query in enumerate(dict.fromkeys(queries))}
    # The best grade first, equal ones by id.
    rows = sorted(zip(map(codes.__getitem__, queries), map(neg, grades), items, strict=True))
    items = [item for _, _, item in rows]
    query_ids = tuple(query.decode() for query in codes)
    counts = np.bincount([code for code, _, _ in rows])
    prepared = Prepared(
        query_ids=query_ids,
        item_ids=tuple(item.decode() for item in items),
        grade=-np.array([grade for _, grade, _ in rows]),
        first=np.concatenate(([0], np.cumsum(counts))),
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
    return PlainGold(prepared, items)


def score_plain(
    run: StreamedRun, gold: PlainGold, measures: Sequence[Measure], lenient: Sequence[Measure]
) -> Scores | None:
    """Score a TREC run; None where the careful path has to."""
    if run.chunks is None or run.strict or ListNeeds.of(measures).needs:
        return None
    parts: list[_Part] = []
    known: set[str] = set()
    with run.source.unchanged():
        chunks = _of_whole_queries(run.chunks(_CHUNK_BYTES))
        for parsed in parse_ahead(chunks, partial(_rank, gold=gold, order=run.order)):
            stop_if_cancelled()
            part = parsed.result()
            if part is None or not known.isdisjoint(part.query_ids):
                return None
            known.update(part.query_ids)
            parts.append(part)
    block = _joined(parts, gold) if parts else None
    if block is None or not block.meeting.found:
        return None
    builder = ScoreBuilder(gold.prepared, measures)
    builder.add_block(block, meta=run.meta, order=run.order)
    partial_scores = builder.partial()
    return final_scores(partial_scores, gold.prepared, lenient, run=run, blocks=builder.blocks)


def _of_whole_queries(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file so that a query's lines stay together, if they are in the file."""
    waiting = b""
    for chunk in chunks:
        lines = waiting + chunk
        end = _last_query(lines) if len(lines) < _LONGEST_QUERY else len(lines)
        waiting = lines[end:]
        if end:
            yield lines[:end]
    if waiting:
        yield waiting


def _last_query(lines: bytes) -> int:
    """Return where the lines of the last query begin, if they follow each other."""
    end = lines.rfind(b"\n", 0, len(lines) - 1) + 1
    query = _FIRST_FIELD.match(lines, end)
    if query is None:
        return 0
    low = 0
    while low < end:
        middle = lines.rfind(b"\n", low, (low + end) // 2) + 1 or low
        if lines.startswith(query[0], middle):
            end = middle
        else:
            low = lines.find(b"\n", middle) + 1
    return end


@dataclass(frozen=True, eq=False)
class _Part:
    """The judged hits of some queries, by query and rank; ``codes`` are the queries' numbers.

    ``tie_start`` and ``tie_size`` are the first rank and the size of each hit's group of equal
    scores.
    """

    query_ids: list[str]
    codes: Ints
    lengths: Ints
    query: Ints
    rank: Ints
    judgment: Ints
    score: Values
    tie_start: Ints
    tie_size: Ints


@dataclass(frozen=True, eq=False)
class _Hits:
    """The hits of whole queries that are to be scored, in file order."""

    query_ids: list[str]
    """All queries, also those that are not to be scored."""
    codes: Ints
    lengths: Ints
    lines: _Lines
    scores: Values
    ranks: Ints

    @classmethod
    def of(cls, chunk: bytes, gold: PlainGold) -> _Hits | None:
        """Parse the lines of a run."""
        lines = _Lines.of(chunk, 6)
        queries = None if lines is None else lines.words_of(0)
        if lines is None or queries is None:
            return None
        scores, ranks = _decimals(lines, 4), _whole_numbers(lines, 3)
        if scores is None or ranks is None:
            return None
        is_first = np.ones(len(scores), dtype=bool)
        is_first[1:] = np.any([word[1:] != word[:-1] for word in queries], axis=0)
        starts = np.flatnonzero(is_first)
        lengths = np.diff(starts, append=len(scores))
        query_ids = [query.decode() for query in lines.texts(0, starts)]
        numbers = gold.prepared.numbers
        codes = np.array([numbers.get(query_id, -1) for query_id in query_ids], dtype=np.int64)
        if (codes < 0).any():
            known = np.repeat(codes >= 0, lengths)
            lines, scores, ranks = lines.where(known), scores[known], ranks[known]
            codes, lengths = codes[codes >= 0], lengths[codes >= 0]
        return cls(query_ids, codes, lengths, lines, scores, ranks)


def _rank(chunk: bytes, gold: PlainGold, order: Order) -> _Part | None:
    """Rank the hits of whole queries and find those that are judged, as ``measure.rank`` does."""
    hits = _Hits.of(chunk, gold)
    items = None if hits is None else hits.lines.words_of(2)
    if hits is None or items is None or len(set(hits.query_ids)) < len(hits.query_ids):
        return None
    conventions = gold.prepared.conventions
    by_rank = (conventions.order or order) == "rank"
    keys: Keys = -hits.ranks.astype(np.float64) if by_rank else hits.scores
    if not by_rank and conventions.score_type == "float32":
        with np.errstate(over="ignore"):
            keys = keys.astype(np.float32)
    starts = np.cumsum(hits.lengths) - hits.lengths
    owner = np.repeat(np.arange(len(hits.codes)), hits.lengths)
    rows = None
    if inside(keys[1:] > keys[:-1], starts).any():
        rows = np.lexsort((-keys, owner))
        keys = keys[rows]
    other = _at(hits.scores if by_rank else -hits.ranks, rows)
    # The other order agrees for certain where it never rises; else the careful path counts.
    if inside(other[1:] > other[:-1], starts).any():
        return None
    tied = np.flatnonzero(inside(keys[1:] == keys[:-1], starts))
    if len(tied) and conventions.ties != "given":
        rows = _ties_by_id(rows, tied, items, descending=conventions.ties == "id-desc")
    hashes = _at(_hash(items, len(owner)), rows)
    pairs = np.sort(_pairs(hashes, owner))
    if (pairs[1:] == pairs[:-1]).any():
        # An item twice, most likely.
        return None
    places, judgment = gold.judged(hashes, hits.codes, owner)
    texts = hits.lines.texts(2, places if rows is None else rows[places])
    if texts != [gold.items[row] for row in judgment.tolist()]:
        return None
    query = owner[places]
    rank = places - starts[query] + 1
    ties, none = None, np.empty(0, dtype=np.int64)
    if len(tied):
        judged = Entries(len(hits.codes), query, rank, gold.prepared.grade[judgment])
        ties = Ties.of(tied, starts, judged, places, none, None)
    return _Part(
        query_ids=hits.query_ids,
        codes=hits.codes,
        lengths=hits.lengths,
        query=query,
        rank=rank,
        judgment=judgment,
        score=_at(hits.scores, rows)[places],
        tie_start=rank if ties is None else ties.start,
        tie_size=np.ones_like(rank) if ties is None else ties.size,
    )


def _at(values: NDArray[Any], rows: Ints | None) -> NDArray[Any]:
    """Return the values at the rows, or all as they are."""
    return values if rows is None else values[rows]


def _ties_by_id(rows: Ints | None, tied: Ints, items: Sequence[Words], *, descending: bool) -> Ints:
    """Return the rows with each group of ties ordered by id."""
    rows = np.arange(len(items[0])) if rows is None else rows
    is_next = np.zeros(len(rows), dtype=bool)
    is_next[tied + 1] = True
    in_group = is_next.copy()
    in_group[tied] = True
    places = np.flatnonzero(in_group)
    # The first byte becomes the highest, so words are in the order of texts.
    words = [word[rows[places]].byteswap() for word in items]
    keys = [~word for word in words] if descending else words
    order = np.lexsort((*reversed(keys), np.cumsum(~is_next)[places]))
    rows[places] = rows[places][order]
    return rows


def _joined(parts: Sequence[_Part], gold: PlainGold) -> Block:
    """Return all queries of a run as one block."""
    codes, lengths, rank, judgment, score, start, size = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("codes", "lengths", "rank", "judgment", "score", "tie_start", "tie_size")
    )
    before = np.cumsum([0, *(len(part.codes) for part in parts)])
    query = np.concatenate([part.query + n for part, n in zip(parts, before, strict=False)])
    prepared = gold.prepared
    target = prepared.target(codes)
    # Where the judgments of each query begin, among those of all queries of the run.
    counts = prepared.first[codes + 1] - prepared.first[codes]
    moved = np.cumsum(counts) - counts - prepared.first[codes]
    row = judgment + moved[query]
    hits = Entries(len(codes), query, rank, target.grade[row], row=row)
    query_ids = (query_id for part in parts for query_id in part.query_ids)
    return Block(
        codes=codes,
        ranked=Ranked(target, hits, hits, lengths),
        failed=np.empty(0, dtype=np.int64),
        unknown_queries=sorted(name for name in query_ids if name not in prepared.numbers),
        repeats=0,
        conflicts=0,
        ties=Ties(start, size, np.zeros_like(size)) if (size > 1).any() else None,
        facts=lambda: _facts([gold.items[place] for place in judgment.tolist()], score),
        meeting=Meeting(
            answers=len(codes), found=bool((hits.grade >= prepared.conventions.rel).any())
        ),
    )


def _facts(items: Sequence[bytes], scores: Values) -> pl.DataFrame:
    """Return what the run says of judged hits."""
    import polars as pl

    columns = {"item_id": [item.decode() for item in items], "score": scores}
    unknown = [pl.lit(None).cast(kind).alias(name) for name, kind in HIT_FACTS.items()]
    return pl.DataFrame(columns).select("item_id", "score", *unknown[1:])
