"""Near-duplicate texts: every pair whose sets of words overlap enough, among a million of them.

The join is exact. Two sets that are near enough share at least threshold * size words of either,
rounded up. All but so many words of a set and two more, the rarest ones, hold at least two of
these, so only texts that meet in a pair of rare words are compared, and compared in full.

A long text has too many pairs of rare words. It is compared with the texts that share enough
single words among the rarest: with c more of them in view, two that are near share c of these.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.errors import UsageError

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

# A text of fewer words is compared as it stands, not by its words.
FEWEST_WORDS = 3

# Scripts that put no space between words: each of their characters is taken for a word.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = rf"[[{UNSPACED}]&&\w]|[\w--[{UNSPACED}]]+"


_ROWS_AT_ONCE = 20_000
_BITS = 64
_LOW_BITS = 2**32 - 1

# Some texts: how many different words each has, and the codes of these words
Chunk = tuple[Ints, NDArray[np.int32]]


def folded(texts: pl.Series) -> pl.Series:
    """Each text without what a reader does not see: compatible forms, case, runs of space."""
    fold = (" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts)
    return pl.Series(texts.name, list(fold), dtype=pl.String)


def words_of(texts: pl.Series) -> pl.Series:
    """Return the words of each text in their order, folded; a list of text for each."""
    return folded(texts).str.extract_all(_WORD)


@dataclass(frozen=True, eq=False)
class WordSets:
    """Texts as sets of words, each set once, its words from the rarest to the most frequent.

    ``same`` gives for each text the first that holds the same words. The rest describes these
    firsts, from the smallest set to the largest: ``row`` is the text, ``size`` its number of
    words, ``words[first[i]:first[i + 1]]`` those that occur elsewhere too, and ``bits`` a
    digest of them.
    """

    same: Ints
    row: Ints
    size: Ints
    first: Ints
    words: NDArray[np.int32]
    bits: NDArray[np.uint64]


def word_sets(texts: pl.Series) -> WordSets:
    """Read each text as a set of words; done once, however often the sets are compared."""
    chunks = list(_distinct_words(texts))
    size = np.concatenate([np.empty(0, dtype=np.int64), *(lengths for lengths, _ in chunks)])
    kept, words = _shared_words(chunks)
    first = _offsets(kept)
    same = _firsts_of_short(texts, size)
    whole = np.flatnonzero((size >= FEWEST_WORDS) & (kept == size))
    same[whole] = _firsts(whole, size, first, words)
    row = np.flatnonzero((same == np.arange(len(texts))) & (size >= FEWEST_WORDS))
    row = row[np.argsort(size[row], kind="stable")]
    words, first = gathered(row, first, words), _offsets(kept[row])
    return WordSets(same, row, size[row], first, words, _digests(first, words))


def _distinct_words(texts: pl.Series) -> Iterator[Chunk]:
    """Yield some texts at a time: how many different words each has, and their codes."""
    coded = pl.Series([], dtype=pl.Categorical(pl.Categories.random()))
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        lists = words_of(texts.slice(start, _ROWS_AT_ONCE))
        row = np.repeat(np.arange(len(lists)), lists.list.len().to_numpy())
        # Codes are forgotten with the last column that has them: one is held from turn to turn.
        coded = lists.explode(empty_as_null=False).cast(coded.dtype)
        codes = coded.to_physical().to_numpy().astype(np.int64)
        keys = distinct(row << 32 | codes)
        yield np.bincount(keys >> 32, minlength=len(lists)), (keys & _LOW_BITS).astype(np.int32)


def _shared_words(chunks: list[Chunk]) -> tuple[Ints, NDArray[np.int32]]:
    """The words that occur in several texts: how many each text has, and which, rarest first."""
    frequency = _frequency([codes for _, codes in chunks])
    # Numbered from the rarest, so that sorted words begin with the words that tell most.
    number = np.empty(len(frequency), dtype=np.int64)
    number[np.argsort(frequency, kind="stable")] = np.arange(len(frequency))
    counts, words = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int32)]
    for lengths, codes in chunks:
        shared = frequency[codes] > 1
        row = np.repeat(np.arange(len(lengths)), lengths)[shared]
        keys = np.sort(row << 32 | number[codes[shared]])
        counts.append(np.bincount(row, minlength=len(lengths)))
        words.append((keys & _LOW_BITS).astype(np.int32))
    return np.concatenate(counts), np.concatenate(words)


def _frequency(chunks: list[NDArray[np.int32]]) -> Ints:
    """In how many texts each word occurs."""
    width = 1 + max((int(codes.max(initial=-1)) for codes in chunks), default=-1)
    frequency = np.zeros(width, dtype=np.int64)
    for codes in chunks:
        frequency += np.bincount(codes, minlength=width)
    return frequency


def _firsts_of_short(texts: pl.Series, size: Ints) -> Ints:
    """For each text itself, or the first that is the same where it has too few words to compare."""
    same = np.arange(len(texts))
    short = np.flatnonzero(size < FEWEST_WORDS)
    table = pl.DataFrame({"row": short, "text": folded(texts.gather(short))})
    table = table.filter(pl.col("text") != "").with_columns(first=pl.col("row").min().over("text"))
    same[table["row"].to_numpy()] = table["first"].to_numpy()
    return same


def _firsts(rows: Ints, size: Ints, first: Ints, words: NDArray[np.int32]) -> Ints:
    """For each of the rows the first with the same words; sets of one sum are compared in full."""
    draw = np.random.default_rng(0).integers(2**63, size=words.max(initial=-1) + 1, dtype=np.uint64)
    sums = np.empty(len(rows), dtype=np.uint64)
    for at in slices(len(rows)):
        length = size[rows[at]]
        total = np.cumsum(draw[gathered(rows[at], first, words)], dtype=np.uint64)
        ends = np.cumsum(length)
        before = np.where(ends > length, total[ends - length - 1], 0)
        sums[at] = total[ends - 1] - before
    order = np.lexsort((rows, sums, size[rows]))
    ordered = rows[order]
    one, other = ordered[:-1], ordered[1:]
    alike = (size[one] == size[other]) & (sums[order[:-1]] == sums[order[1:]])
    alike[alike] = _equal(one[alike], other[alike], size, first, words)
    begins = np.concatenate(([True], ~alike))[: len(rows)]
    firsts = np.empty(len(rows), dtype=np.int64)
    firsts[order] = ordered[begins][np.cumsum(begins) - 1]
    return firsts


def _equal(one: Ints, other: Ints, size: Ints, first: Ints, words: NDArray[np.int32]) -> Mask:
    """Return whether two sets of one size hold the same words."""
    equal = np.empty(len(one), dtype=np.bool_)
    for at in slices(len(one)):
        differ = gathered(one[at], first, words) != gathered(other[at], first, words)
        pair, _ = ranges(size[one[at]])
        equal[at] = np.bincount(pair, weights=differ, minlength=len(equal[at])) == 0
    return equal


def _digests(first: Ints, words: NDArray[np.int32]) -> NDArray[np.uint64]:
    """For each set some bits, the more the larger the sets: bits that differ are words that do."""
    n = len(first) - 1
    width = int(np.clip(len(words) // (16 * max(n, 1)) + 1, 1, 8))
    digests = np.zeros((n, width), dtype=np.uint64)
    some = np.flatnonzero(np.diff(first))
    if len(some):
        bit = words % (_BITS * width)
        for column in range(width):
            here = (bit // _BITS == column).astype(np.uint64)
            ones = here << (bit % _BITS).astype(np.uint64)
            digests[some, column] = np.bitwise_or.reduceat(ones, first[some])
    return digests


def ranges(lengths: Ints) -> tuple[Ints, Ints]:
    """For each length its number that many times, and beside it 0, 1, 2, …"""
    own = np.repeat(np.arange(len(lengths)), lengths)
    return own, np.arange(len(own)) - (np.cumsum(lengths) - lengths)[own]


def gathered(rows: Ints, first: Ints, words: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the words of these rows, one row after another."""
    parts = []
    for at in slices(len(rows)):
        own, step = ranges(first[rows[at] + 1] - first[rows[at]])
        parts.append(words[first[rows[at]][own] + step])
    return np.concatenate([*parts, np.empty(0, dtype=np.int32)])


def distinct(keys: Ints) -> Ints:
    """Return each key once, sorted; several times as fast as ``np.unique``."""
    keys = np.sort(keys)
    first: Ints = keys[np.diff(keys, prepend=-1) != 0]
    return first


def _offsets(lengths: Ints) -> Ints:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def slices(n: int) -> Iterator[slice]:
    """So many rows at a time that what is made of them fits into little memory."""
    return (slice(start, start + _ROWS_AT_ONCE) for start in range(0, n, _ROWS_AT_ONCE))


THRESHOLD = 0.8
# What one comparison may cost: a minute or two of candidates, and pairs that nobody will read.
MOST_CANDIDATES = 500_000_000
MOST_PAIRS = 1_000_000
# A set of more words is long. One in so many of its words must be shared among the rarest.
LONG = 500
_ONE_IN = 20
# So many words of long texts are looked up in the time that one candidate takes.
_WORDS_A_CANDIDATE = 10

_BLOCK = 4_000_000


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """Which texts are nearly the same.

    ``same`` gives for each text the first with the same words. ``left`` and ``right`` are
    firsts whose words differ, though not by much. Where there was too much to compare,
    ``complete`` is false, and pairs are missing.
    """

    same: Ints
    left: Ints
    right: Ints
    similarity: NDArray[np.float64]
    complete: bool

    def taking_part(self) -> Mask:
        """Return which texts have a near-duplicate."""
        near = np.bincount(self.same, minlength=len(self.same)) > 1
        near[self.left] = near[self.right] = True
        return near[self.same]

    @property
    def count(self) -> int:
        """How many ``pairs`` there are."""
        return int((self.same != np.arange(len(self.same))).sum()) + len(self.left)

    def pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield each text with the first of the same words, then the pairs of different words."""
        for row in np.flatnonzero(self.same != np.arange(len(self.same))).tolist():
            yield int(self.same[row]), row, 1.0
        for at in range(len(self.left)):
            yield int(self.left[at]), int(self.right[at]), float(self.similarity[at])

    def near(self) -> dict[int, list[int]]:
        """For each first that has any, the other firsts near it."""
        found: dict[int, list[int]] = {}
        for one, other in zip(self.left.tolist(), self.right.tolist(), strict=True):
            found.setdefault(one, []).append(other)
            found.setdefault(other, []).append(one)
        return found


def near_duplicates(
    texts: pl.Series | WordSets,
    *,
    threshold: float = THRESHOLD,
    probes: Mask | None = None,
    most_candidates: int = MOST_CANDIDATES,
    most_pairs: int = MOST_PAIRS,
) -> NearDuplicates:
    """Return every pair of texts whose words have a Jaccard similarity of at least ``threshold``.

    With ``probes`` only the pairs that hold at least one marked text, which takes as long as
    these have candidates, however many texts there are.

    >>> texts = pl.Series(["how to pay by card", "How to pay by card?", "how can I pay by card"])
    >>> near_duplicates(texts).same.tolist(), list(near_duplicates(texts, threshold=0.5).pairs())
    ([0, 0, 2], [(0, 1, 1.0), (0, 2, 0.5714285714285714)])
    """
    if not 0.5 <= threshold <= 1:
        raise UsageError(f"threshold is {threshold!r}; it is a share from 0.5 to 1, such as 0.8")
    sets = texts if isinstance(texts, WordSets) else word_sets(texts)
    # A share such as 0.8 as people mean it: sizes are multiplied by it, and must stay whole.
    join = _Join(sets, Fraction(threshold).limit_denominator(1_000_000), probes)
    complete = join.run(most_candidates, most_pairs)
    one, other = np.divmod(join.found, max(len(sets.row), 1))
    similarity = join.overlap / (sets.size[one] + sets.size[other] - join.overlap)
    left, right = np.sort([sets.row[one], sets.row[other]], axis=0)
    order = np.lexsort((right, left))[:most_pairs]
    return NearDuplicates(sets.same, left[order], right[order], similarity[order], complete)


class _Join:
    """The join at work. A set is named by its place, so that a later one is never smaller."""

    def __init__(self, sets: WordSets, threshold: Fraction, probes: Mask | None) -> None:
        self.sets, self.n = sets, len(sets.row)
        self.up, self.down = threshold.numerator, threshold.denominator
        self.kept = np.diff(sets.first)
        self.alone = sets.size - self.kept
        self.width = int(sets.words.max(initial=0)) + 1
        self.probes = None if probes is None else _any_of(probes, sets)
        # The smallest set that can be near enough (so many words two must share), and the largest.
        self.least = -(-self.up * sets.size // self.down)
        self.most = sets.size * self.down // self.up
        both = np.arange(2 * int(sets.size.max(initial=0)) + 1)
        self.allowed = both - 2 * -(-self.up * both // (self.up + self.down))
        self.found = np.empty(0, dtype=np.int64)
        self.overlap = np.empty(0, dtype=np.int64)
        # Sets are in the order of size, so the long ones are the last.
        self.first_long = int(np.searchsorted(sets.size, LONG, side="right"))

    def run(self, most_candidates: int, most_pairs: int) -> bool:
        """Find the pairs; false if there are more candidates or pairs than that."""
        candidates = 0
        for group, member in self._meetings():
            for left, right in self._candidates(group, member):
                candidates += len(left)
                if candidates > most_candidates:
                    return False
                self._verify(left, right)
                if len(self.found) > most_pairs:
                    return False
        return self._run_long(most_candidates - candidates, most_pairs)

    def _meetings(self) -> Iterator[tuple[Ints, Ints]]:
        """Sets by the pairs of rare words that they hold: the pair's number, and the set."""
        place, position, word, following = self._rare_words()
        edges = np.flatnonzero(np.diff(word, prepend=-1))
        work = np.cumsum(following)[np.append(edges[1:], len(word)) - 1] if len(word) else edges
        # Two words and a set are packed into 63 bits.
        most_words = max(1, 2**62 // (self.width * max(self.n, 1)))
        local = np.cumsum(np.diff(word, prepend=-1) != 0)
        begin = done = 0
        while begin < len(edges):
            fits = int(np.searchsorted(work, done + _BLOCK, side="right"))
            end = min(max(fits, begin + 1), begin + most_words)
            rows = slice(edges[begin], edges[end] if end < len(edges) else len(word))
            own, step = ranges(following[rows])
            second = self.sets.words[
                (self.sets.first[place[rows]] + position[rows] + 1)[own] + step
            ]
            pair = (local[rows] - begin - 1)[own] * self.width + second
            yield _met(pair * self.n + place[rows][own], self.n)
            begin, done = end, int(work[end - 1])

    def _rare_words(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The rare words of all sets: set, position, word and how many follow; by word and set."""
        length = np.clip(self.kept - self.least + 2, 0, self.kept)
        length[self.first_long :] = 0
        place, position = ranges(length)
        following = length[place] - 1 - position
        word = self.sets.words[self.sets.first[place] + position].astype(np.int64)
        asked = np.ones(len(place), dtype=np.bool_) if self.probes is None else self.probes[place]
        others = np.bincount(word[following > 0], minlength=self.width) > 1
        wanted = np.bincount(word[asked & (following > 0)], minlength=self.width) > 0
        use = np.flatnonzero((following > 0) & (others & wanted)[word])
        use = use[np.argsort(word[use], kind="stable")]
        return place[use], position[use], word[use], following[use]

    def _candidates(self, group: Ints, member: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Sets that met and whose sizes allow them to be near."""
        size = self.sets.size[member]
        beyond = int(self.sets.size.max(initial=0)) + 1
        keys = group * beyond + size
        most = np.minimum(self.most[member], beyond - 1)
        end = np.searchsorted(keys, group * beyond + most, "right")
        if self.probes is None:
            asking, start = np.arange(len(member)), np.arange(1, len(member) + 1)
        else:
            asking = np.flatnonzero(self.probes[member])
            start = np.searchsorted(keys, (group * beyond + self.least[member])[asking], "left")
            end = end[asking]
        total = np.cumsum(end - start)
        at = 0
        while at < len(asking):
            fits = int(np.searchsorted(total, (total[at - 1] if at else 0) + _BLOCK, side="right"))
            until = max(fits, at + 1)
            own, step = ranges((end - start)[at:until])
            yield member[asking[at:until][own]], member[start[at:until][own] + step]
            at = until

    def _verify(self, left: Ints, right: Ints) -> None:
        """Keep the pairs that are near enough and new."""
        near = self._may_be_near(left, right) & (left != right)
        left, right = left[near], right[near]
        keys = distinct(np.minimum(left, right) * self.n + np.maximum(left, right))
        at = np.searchsorted(self.found, keys)
        known = np.zeros(len(keys), dtype=np.bool_)
        inside = at < len(self.found)
        known[inside] = self.found[at[inside]] == keys[inside]
        keys = keys[~known]
        overlap = self._overlaps(*np.divmod(keys, self.n))
        left, right = np.divmod(keys, self.n)
        both = self.sets.size[left] + self.sets.size[right]
        near = overlap * (self.up + self.down) >= self.up * both
        at = np.searchsorted(self.found, keys[near])
        self.found = np.insert(self.found, at, keys[near])
        self.overlap = np.insert(self.overlap, at, overlap[near])

    def _may_be_near(self, left: Ints, right: Ints) -> Mask:
        """Whether the words that surely differ are few enough: those alone and different bits."""
        both = self.sets.size[left] + self.sets.size[right]
        alone = self.alone[left] + self.alone[right]
        bits = self.sets.bits[left] ^ self.sets.bits[right]
        ones = pl.Series(bits.ravel()).bitwise_count_ones().to_numpy().reshape(bits.shape)
        return np.asarray(alone + ones.sum(axis=1) <= self.allowed[both])

    def _run_long(self, most_candidates: int, most_pairs: int) -> bool:
        """Find the pairs whose larger set is long, one such set after another."""
        if self.first_long == self.n:
            return True
        seen = _Postings(self)
        budget = most_candidates * _WORDS_A_CANDIDATE
        keys, overlaps, pairs = [self.found], [self.overlap], len(self.found)
        complete = True
        for own in range(self.first_long, self.n):
            budget -= seen.work(own)
            others = seen.sharing(own) if budget >= 0 else np.empty(0, dtype=np.int64)
            budget -= int(self.kept[others].sum())
            if budget < 0 or pairs > most_pairs:
                complete = False
                break
            overlap = self._overlaps_with(own, others)
            both = self.sets.size[own] + self.sets.size[others]
            near = overlap * (self.up + self.down) >= self.up * both
            keys.append(others[near] * self.n + own)
            overlaps.append(overlap[near])
            pairs += int(near.sum())
        self.found, self.overlap = np.concatenate(keys), np.concatenate(overlaps)
        return complete and pairs <= most_pairs

    def _overlaps_with(self, own: int, others: Ints) -> Ints:
        """Return how many words each of the others has in common with one long set."""
        first, words = self.sets.first, self.sets.words
        has = np.zeros(self.width, dtype=np.bool_)
        has[words[first[own] : first[own + 1]]] = True
        counts = [has[words[first[one] : first[one + 1]]].sum() for one in others.tolist()]
        return np.array(counts, dtype=np.int64)

    def _overlaps(self, left: Ints, right: Ints) -> Ints:
        """Return how many words each pair of sets has in common."""
        overlaps = np.empty(len(left), dtype=np.int64)
        for at in slices(len(left)):
            keys = []
            for side in (left[at], right[at]):
                pair, _ = ranges(self.kept[side])
                keys.append(pair * self.width + gathered(side, self.sets.first, self.sets.words))
            both = np.sort(np.concatenate(keys))
            common = both[:-1][both[1:] == both[:-1]] // self.width
            overlaps[at] = np.bincount(common, minlength=len(left[at]))
        return overlaps


class _Postings:
    """The rarest words of all sets that can be near a long one: by word the sets that hold it."""

    def __init__(self, join: _Join) -> None:
        self.join = join
        self.least = join.least
        # In view are so many words that sets which are near share at least ``shared`` of them.
        self.shared = np.maximum(join.sets.size // _ONE_IN, 1)
        length = np.clip(join.kept - join.least + self.shared, 0, join.kept)
        length[join.kept < join.least] = 0
        length[: np.searchsorted(join.sets.size, join.least[join.first_long])] = 0
        place, position = ranges(length)
        word = join.sets.words[join.sets.first[place] + position]
        order = np.argsort(word, kind="stable")
        self.place = place[order]
        # For each word of each set: where the sets of this word begin, and where it stands itself.
        edges = np.flatnonzero(np.diff(word[order], prepend=-1))
        begin = np.repeat(edges, np.diff(edges, append=len(word)))
        self.begin, self.at = np.empty_like(order), np.empty_like(order)
        self.begin[order], self.at[order] = begin, np.arange(len(order))
        self.first = np.concatenate(([0], np.cumsum(length)))
        self.probed = self._probed(join.probes)

    def _probed(self, probes: Mask | None) -> Mask | None:
        """Return which words of each set a marked set before it has too."""
        if probes is None:
            return None
        before = np.concatenate(([0], np.cumsum(probes[self.place])))
        return np.asarray(before[self.at] > before[self.begin])

    def _words(self, own: int) -> tuple[Ints, Ints]:
        """For each word of a set that may lead to another: the stretch of sets before it."""
        span = slice(self.first[own], self.first[own + 1])
        begin, at = self.begin[span], self.at[span]
        if self.probed is None or self.join.probes is None or self.join.probes[own]:
            return begin, at
        return begin[self.probed[span]], at[self.probed[span]]

    def work(self, own: int) -> int:
        """Return how many words of other sets are looked at to find those that share some."""
        begin, at = self._words(own)
        return int((at - begin).sum())

    def sharing(self, own: int) -> Ints:
        """The smaller sets that share so many words in view with this one that they may be near."""
        begin, at = self._words(own)
        word, step = ranges(at - begin)
        held = self.place[begin[word] + step]
        lowest = int(np.searchsorted(self.join.sets.size, self.least[own]))
        counts = np.bincount(held[held >= lowest] - lowest)
        others = np.flatnonzero(counts) + lowest
        enough = counts[others - lowest] >= self.shared[others]
        if self.join.probes is not None and not self.join.probes[own]:
            enough &= self.join.probes[others]
        return others[enough]


def _met(keys: Ints, n: int) -> tuple[Ints, Ints]:
    """Sorted keys as group and member, without the groups of one."""
    keys.sort()
    group, member = np.divmod(keys, n)
    again = group[1:] == group[:-1]
    met = np.concatenate((again, [False])) | np.concatenate(([False], again))
    group, member = group[met[: len(group)]], member[met[: len(group)]]
    return np.cumsum(np.diff(group, prepend=-1) != 0), member


def _any_of(probes: Mask, sets: WordSets) -> Mask:
    """Return the sets that at least one marked text has."""
    marked = np.zeros(len(sets.same), dtype=np.bool_)
    marked[sets.same[probes]] = True
    return marked[sets.row]
