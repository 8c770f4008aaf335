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
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from karat.data.tables import HIGHEST_GRADE, Order
from karat.formats.blocks import StreamedRun
from karat.formats.files import parse_ahead
from karat.formats.readers import plain_gold
from karat.measure.aggregates import Values
from karat.measure.conventions import Conventions
from karat.measure.lists import ListNeeds
from karat.measure.misfits import Meeting
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.rank import HIT_FACTS, Block, Keys, Ties, inside
from karat.measure.ranked import Entries, Ints, Ranked
from karat.measure.score_builder import ScoreBuilder, final_scores
from karat.measure.scores import Scores
from karat.parallel import stop_if_cancelled

if TYPE_CHECKING:
    import polars as pl

# Larger gold is faster to read with Polars, by more than loading it takes.
MOST_BYTES = 5_000_000
# What one step works on fits into the caches of a processor.
_CHUNK_BYTES = 1 << 19
# Freed memory that the C library keeps, at least.
_KEPT_BYTES = 16 << 20
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
_MOST_PLACES = 16
_POWERS = 10.0 ** np.arange(_MOST_PLACES + 1)
# Below this, float64 holds every whole number.
_EXACT = 2.0**53

Words = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class _Lines:
    """Lines of fields that one blank separates; ``blanks`` are the places before each field.

    The last of ``blanks`` is the one after all fields.
    """

    data: bytes
    width: int
    blanks: Ints
    words: Words
    """The eight bytes from each place on; the first byte is the lowest."""

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
        blanks = np.flatnonzero(blank)
        lines, rest = divmod(len(blanks) - 1, width)
        if rest or (blank[1:] & blank[:-1]).any() or (codes[blanks[::width]] != _NEWLINE).any():
            return None
        if np.count_nonzero(separator) != lines * (width - 1):
            return None
        # Looking for one byte is ten times as fast as looking for two.
        if b"#" in data and b"\n#" in data:
            return None
        words = np.ndarray(len(data) - 7, np.dtype("<u8"), data, strides=(1,))
        return cls(data, width, blanks, words)

    def field(self, number: int) -> tuple[Ints, Ints]:
        """Return where a field of each line starts, and its length."""
        starts = self.blanks[number : -1 : self.width] + 1
        return starts, self.blanks[number + 1 :: self.width] - starts

    def texts(self, number: int, rows: Ints) -> list[bytes]:
        """Return a field of some lines."""
        starts = self.blanks[rows * self.width + number] + 1
        ends = self.blanks[rows * self.width + number + 1]
        both = zip(starts.tolist(), ends.tolist(), strict=True)
        return [self.data[start:end] for start, end in both]

    def words_of(self, number: int) -> list[Words] | None:
        """Return a field as columns of words, equal where texts are; None for very long ones."""
        starts, lengths = self.field(number)
        longest = int(lengths.max(initial=0))
        if longest > _LONGEST_ID:
            return None
        words = []
        for at in range(0, longest, 8):
            read = self.words[np.minimum(starts + at, len(self.words) - 1)]
            # What follows the field is shifted out; a shift by 64 leaves nothing.
            beyond = (8 - np.clip(lengths - at, 0, 8) << 3).view(np.uint64)
            words.append(read << beyond >> beyond)
        return words


def _hash(words: Sequence[Words]) -> Words:
    """Return a hash of each text; those of up to eight bytes have different ones."""
    value = np.zeros_like(words[0])
    for at, word in enumerate(words):
        # A text has the same hash among longer ones: a word of nothing adds nothing.
        part = word * (_SPREAD + 2 * at)
        part ^= part >> 32
        value += part * (_SPREAD_AGAIN + 2 * at)
    return value


def _digits(words: Words, count: Ints) -> tuple[Words, Words]:
    """Return the number that the first ``count`` bytes of each word spell, 1 to 8 of them.

    Then a word that is not 0 where some byte is no digit.
    """
    # The digits end in the highest byte, and zeros lead them.
    digits = (words ^ (0x30 * _EACH)) << (8 - count << 3).view(np.uint64)
    wrong = ((digits + 0x76 * _EACH) | digits) & (0x80 * _EACH)
    # Pairs of digits, then pairs of these, then both halves.
    digits = digits * 10 + (digits >> 8)
    low, high = digits & 0xFF000000FF, (digits >> 16) & 0xFF000000FF
    number = low * (1_000_000 << 32 | 100) + high * (10_000 << 32 | 1)
    return (number >> 32).view(np.uint64), wrong.view(np.uint64)


def _decimals(lines: _Lines, field: int) -> Values | None:
    """Return a field of finite decimal numbers; None if any text is something else.

    A number of few digits is one whole number divided by a power of ten, and so rounded once.
    """
    starts, lengths = lines.field(field)
    words = lines.words[starts]
    negative = (words & 0xFF) == _MINUS
    if negative.any():
        starts, lengths = starts + negative, lengths - negative
        words = lines.words[starts]
    # The lowest bit of those that mark a dot, and the number of bytes below it.
    other = words ^ (_DOT * _EACH)
    dots = (other - _EACH) & ~other & (0x80 * _EACH)
    dot = (np.bitwise_count((dots & -dots) - 1) >> 3).astype(np.int64)
    whole = np.minimum(dot, lengths)
    number, wrong = _digits(words, whole)
    odd = (whole < 1) | ((dot > 7) & (lengths > 8))
    value = number.astype(np.float64)
    # A number without a dot has -1 places.
    places = lengths - whole - 1
    most = int(places.max())
    if most > 0:
        fraction, far = starts + whole + 1, 0
        if most > 8:
            odd |= places > _MOST_PLACES
            places = np.minimum(places, _MOST_PLACES)
            far = np.maximum(places - 8, 0)
            number, wrong_digits = _digits(lines.words[fraction], far)
            value = value * _POWERS[far] + number
            wrong |= wrong_digits
        number, wrong_digits = _digits(lines.words[fraction + far], places - far)
        near = np.maximum(places - far, 0)
        value = value * _POWERS[near] + number
        wrong |= wrong_digits
        odd |= value >= _EXACT
        value /= _POWERS[near + far]
    np.negative(value, out=value, where=negative)
    rows = np.flatnonzero(odd | (wrong != 0))
    if len(rows):
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
    """The judgments of a plain file, prepared; ``items`` are their ids.

    ``pairs`` are hashes of each item together with the number of its query.
    """

    prepared: Prepared
    items: list[bytes]
    pairs: Words


def read_plain_gold(path: str | os.PathLike[str], conventions: Conventions) -> PlainGold | None:
    """Read and prepare TREC qrels; None where the careful path has to."""
    whole_lists = conventions.depth is None and conventions.unit != "group"
    read = plain_gold(os.fspath(path), MOST_BYTES)
    if conventions.level != "item" or not whole_lists or read is None:
        return None
    data, source = read
    lines = _Lines.of(data, 4)
    words, grades = (None, None) if lines is None else (lines.words_of(2), _decimals(lines, 3))
    if words is None or grades is None or np.abs(grades).max() > HIGHEST_GRADE:
        return None
    if conventions.whole_grades and (grades % 1).any():
        return None
    fields = data.split()
    queries, items = fields[0::4], fields[2::4]
    # A pair that is judged twice, or ids that are spans of characters.
    if len(set(zip(queries, items, strict=True))) < len(items) or all(map(_SPAN.search, items)):
        return None
    codes = {query: code for code, query in enumerate(dict.fromkeys(queries))}
    # The best grade first, equal ones by id.
    code_of = np.array([codes[query] for query in queries])
    order = np.lexsort((*(word.byteswap() for word in reversed(words)), -grades, code_of))
    items = [items[row] for row in order.tolist()]
    query_ids = tuple(query.decode() for query in codes)
    prepared = Prepared(
        query_ids=query_ids,
        item_ids=tuple(item.decode() for item in items),
        grade=grades[order],
        first=np.concatenate(([0], np.cumsum(np.bincount(code_of)))),
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
    pairs = _hash([_hash(words), code_of.view(np.uint64)])
    return PlainGold(prepared, items, pairs[order])


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
            if not parts:
                # Freeing this tells the C library to keep what is freed from now on, for the next
                # chunk; else it returns most to the system, and asks for it again.
                np.empty(_KEPT_BYTES, np.uint8)
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
    """Yield the lines of a file; the last query of a chunk waits for the next one's lines."""
    lines = b""
    for chunk in chunks:
        lines += chunk
        last = lines.rfind(b"\n", 0, len(lines) - 1) + 1
        query = _FIRST_FIELD.match(lines, last)
        if query is None or len(lines) > _LONGEST_QUERY:
            yield lines
            lines = b""
            continue
        # Where the last query begins, if its lines follow each other.
        low, end = 0, last
        while low < end:
            middle = lines.rfind(b"\n", low, (low + end) // 2) + 1 or low
            if lines.startswith(query[0], middle):
                end = middle
            else:
                low = lines.find(b"\n", middle) + 1
        if end:
            yield lines[:end]
            lines = lines[end:]
    if lines:
        yield lines


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
    rows: Ints
    """The line of each hit; those of some queries may be left out."""
    items: list[Words]
    scores: Values
    ranks: Ints

    @classmethod
    def of(cls, chunk: bytes, gold: PlainGold) -> _Hits | None:
        """Parse the lines of a run."""
        lines = _Lines.of(chunk, 6)
        if lines is None:
            return None
        queries, items = lines.words_of(0), lines.words_of(2)
        scores, (starts, digits) = _decimals(lines, 4), lines.field(3)
        if queries is None or items is None or scores is None or digits.max() > 8:
            return None
        numbers, wrong = _digits(lines.words[starts], digits)
        if wrong.any():
            return None
        ranks = numbers.view(np.int64)
        changes = np.zeros(len(scores) + 1, dtype=bool)
        changes[[0, -1]] = True
        for word in queries:
            changes[1:-1] |= word[1:] != word[:-1]
        starts = np.flatnonzero(changes)
        lengths = starts[1:] - starts[:-1]
        query_ids = [query.decode() for query in lines.texts(0, starts[:-1])]
        of_gold = gold.prepared.numbers
        codes = np.array([of_gold.get(query_id, -1) for query_id in query_ids], dtype=np.int64)
        rows = np.arange(len(scores))
        if (codes < 0).any():
            rows = np.flatnonzero(np.repeat(codes >= 0, lengths))
            items, scores, ranks = [word[rows] for word in items], scores[rows], ranks[rows]
            codes, lengths = codes[codes >= 0], lengths[codes >= 0]
        return cls(query_ids, codes, lengths, lines, rows, items, scores, ranks)


def _rank(chunk: bytes, gold: PlainGold, order: Order) -> _Part | None:
    """Rank the hits of whole queries and find those that are judged, as ``measure.rank`` does."""
    hits = _Hits.of(chunk, gold)
    if hits is None or len(set(hits.query_ids)) < len(hits.query_ids):
        return None
    conventions = gold.prepared.conventions
    by_rank = (conventions.order or order) == "rank"
    keys: Keys = -hits.ranks.astype(np.float64) if by_rank else hits.scores
    if not by_rank and conventions.score_type == "float32":
        with np.errstate(over="ignore"):
            keys = keys.astype(np.float32)
    starts = np.cumsum(hits.lengths) - hits.lengths
    owner = np.repeat(np.arange(len(hits.codes)), hits.lengths)
    # In what order the hits are taken: as they are, or sorted.
    order_of: Ints | slice = slice(None)
    if inside(keys[1:] > keys[:-1], starts).any():
        order_of = np.lexsort((-keys, owner))
        keys = keys[order_of]
    other = (hits.scores if by_rank else -hits.ranks)[order_of]
    # The other order agrees for certain where it never rises; else the careful path counts.
    if inside(other[1:] > other[:-1], starts).any():
        return None
    tied = np.flatnonzero(inside(keys[1:] == keys[:-1], starts))
    if len(tied) and conventions.ties != "given":
        order_of = np.arange(len(keys))[order_of]
        _sort_ties(order_of, tied, hits.items, descending=conventions.ties == "id-desc")
    # A hash of each item together with its query.
    pairs = _hash([_hash(hits.items), hits.codes[owner].view(np.uint64)])[order_of]
    ordered = np.sort(pairs)
    if (ordered[1:] == ordered[:-1]).any():
        # An item twice, most likely.
        return None
    first = gold.prepared.first
    ranges = [np.arange(first[code], first[code + 1]) for code in hits.codes.tolist()]
    judgments = np.concatenate([np.empty(0, dtype=np.int64), *ranges])
    judgments = judgments[np.argsort(gold.pairs[judgments])]
    judged = gold.pairs[judgments]
    # Most hits are passed over by looking at some bits of their hashes.
    likely = np.zeros(1 << 16, dtype=bool)
    likely[judged >> 48] = True
    places = np.flatnonzero(likely[(pairs >> 48).view(np.int64)])
    at = np.minimum(np.searchsorted(judged, pairs[places]), len(judged) - 1)
    match = judged[at] == pairs[places]
    places, judgment = places[match], judgments[at[match]]
    items = hits.lines.texts(2, hits.rows[order_of][places])
    if items != [gold.items[row] for row in judgment.tolist()]:
        return None
    query = owner[places]
    rank = places - starts[query] + 1
    ties, none = None, np.empty(0, dtype=np.int64)
    if len(tied):
        entries = Entries(len(hits.codes), query, rank, gold.prepared.grade[judgment])
        ties = Ties.of(tied, starts, entries, places, none, None)
    return _Part(
        query_ids=hits.query_ids,
        codes=hits.codes,
        lengths=hits.lengths,
        query=query,
        rank=rank,
        judgment=judgment,
        score=hits.scores[order_of][places],
        tie_start=rank if ties is None else ties.start,
        tie_size=np.ones_like(rank) if ties is None else ties.size,
    )


def _sort_ties(rows: Ints, tied: Ints, items: Sequence[Words], *, descending: bool) -> None:
    """Order each group of ties by id, in place."""
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
