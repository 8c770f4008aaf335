"""Ranked: lists of hits beside their gold, as flat arrays that kernels compute on.

Sums run in rank order within each query and never across queries, so the bits of a
value do not depend on which queries share a block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.errors import InputError, MissingInputError
from karat.measure.aggregates import Values

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Cut = int | float | str | None

UNLIMITED = 1 << 62


@dataclass(frozen=True, eq=False)
class Entries:
    """Judged items, each with its query, rank and grade; sorted by query, then rank.

    ``repeat`` marks a further chunk of a document (or span) that was met higher up: it
    keeps its rank and brings nothing. ``row`` is the judgment's place in the target, and
    ``best`` the grade of the best unit that an item belongs to, where it may be several.
    """

    n: int
    query: Ints
    rank: Ints
    grade: Values
    repeat: Mask | None = None
    row: Ints | None = None
    best: Values | None = None

    def correct(self, rel: float) -> Mask:
        """Return which entries are relevant, met for the first time or not."""
        return np.greater_equal(self.grade if self.best is None else self.best, rel)

    def relevant(self, rel: float) -> Mask:
        """Return which entries are hits: relevant, and met for the first time."""
        mask: Mask = self.grade >= rel
        return mask if self.repeat is None else mask & ~self.repeat

    def judged_nonrelevant(self, rel: float) -> Mask:
        """Return which entries somebody judged and found not relevant enough."""
        mask: Mask = (self.grade >= 0) & (self.grade < rel)
        return mask if self.repeat is None else mask & ~self.repeat

    def where(self, mask: Mask) -> Entries:
        """Return the marked entries."""
        repeat = None if self.repeat is None else self.repeat[mask]
        row = None if self.row is None else self.row[mask]
        best = None if self.best is None else self.best[mask]
        return Entries(
            self.n, self.query[mask], self.rank[mask], self.grade[mask], repeat, row, best
        )

    @cached_property
    def gain(self) -> Values:
        """Grades as gains: negative ones and repeats bring nothing."""
        gain = np.maximum(self.grade, 0.0)
        return gain if self.repeat is None else np.where(self.repeat, 0.0, gain)

    def count(self, mask: Mask) -> Values:
        """Return how many of the marked entries each query has."""
        return np.bincount(self.query[mask], minlength=self.n).astype(np.float64)

    def sum(self, mask: Mask, values: Values) -> Values:
        """Return the sum of the marked entries' values for each query, added in rank order."""
        return add_up(self.query[mask], values[mask], self.n)

    def so_far(self, mask: Mask) -> Ints:
        """For each entry, how many marked ones its query has up to and including it."""
        total = np.cumsum(mask)
        first = np.searchsorted(self.query, np.arange(self.n))
        before = np.concatenate(([0], total))[first]
        return total - before[self.query]


def add_up(query: Ints, values: Values, n: int) -> Values:
    """Return the sum of values for each of n queries, added one after the other."""
    return np.asarray(np.bincount(query, weights=values, minlength=n), dtype=np.float64)


_TABLES: dict[str | float, Values] = {}


def at_ranks(base: str | float, ranks: Ints) -> Values:
    """Return ``log2`` of rank + 1 at each rank, or a number's powers, ``p ** (rank - 1)``.

    They come from one table, so that the bits are the same everywhere.
    """
    deepest = int(ranks.max(initial=0))
    table = _TABLES.get(base)
    if table is None or len(table) <= deepest:
        table_ranks = range(max(deepest, 1000) + 1)
        if isinstance(base, str):
            table = np.array([math.log2(rank + 1) for rank in table_ranks])
        else:
            table = np.array([base ** max(rank - 1, 0) for rank in table_ranks])
        _TABLES[base] = table
    return table[ranks]


@dataclass(frozen=True, eq=False)
class Target:
    """The gold of some queries: every judgment, best grade first, and what queries bring.

    ``unit`` numbers what is judged (an item, a document, a span) across all queries;
    ``shared`` says that several items of a list may belong to one unit, and ``joined`` that
    one item may hold several units. ``corpus_size`` is how many units a corpus has, where one
    is given that tells. ``rows`` are the judgments' rows in the table of all gold.
    """

    n: int
    query: Ints
    grade: Values
    unit: Ints
    own_k: Ints
    no_answer: Mask
    shared: bool = False
    joined: bool = False
    as_of: tuple[str | None, ...] = ()
    entities: tuple[tuple[str, ...] | None, ...] = ()
    corpus_size: int | None = None
    rows: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def relevant(self, rel: float) -> Values:
        """|G|: the number of gold items at the threshold."""
        return np.bincount(self.query[self.grade >= rel], minlength=self.n).astype(np.float64)

    def judged_nonrelevant(self, rel: float) -> Values:
        """Return how many items were judged and found not relevant enough."""
        mask = (self.grade >= 0) & (self.grade < rel)
        return np.bincount(self.query[mask], minlength=self.n).astype(np.float64)

    @cached_property
    def ideal(self) -> Entries:
        """Every gold item of positive grade, the best first."""
        keep = self.grade > 0
        query, grade = self.query[keep], self.grade[keep]
        first = np.searchsorted(query, np.arange(self.n))
        rank = np.arange(len(query)) - first[query] + 1
        return Entries(self.n, query, rank, grade, row=np.flatnonzero(keep))


@dataclass(frozen=True, eq=False)
class Listing:
    """The top of every list, judged or not: for measures that look at all items."""

    query: Ints
    rank: Ints
    frame: pl.DataFrame
    corpus_size: int | None = None

    def column(self, name: str, measure: str, remedy: str) -> pl.Series:
        """Return a column of the listed hits; the error says which input provides it."""
        if name not in self.frame.columns:
            raise MissingInputError(f"{measure} needs {remedy}")
        return self.frame[name]


@dataclass(frozen=True, eq=False)
class Repeats:
    """The places at which lists return an item again, by query and rank."""

    query: Ints
    rank: Ints


@dataclass(frozen=True, eq=False)
class Ranked:
    """Lists of some queries meeting their gold.

    ``hits`` are the judged items of each list; ``found`` are gold units at the rank where
    each was found, which differ from hits only for spans. ``returned`` counts each list.
    ``repeats`` are the places at which a list returns an item again: they are returned, and
    neither judged nor unjudged.
    """

    target: Target
    hits: Entries
    found: Entries
    returned: Ints
    listing: Listing | None = None
    calls: Mapping[str, Values] = field(default_factory=dict)
    predicted: tuple[tuple[str, ...] | None, ...] = ()
    is_ideal: bool = False
    repeats: Repeats | None = None

    @property
    def n(self) -> int:
        """The number of queries."""
        return self.target.n

    def limit(self, k: Cut) -> Ints:
        """Return the last rank that counts, for each query."""
        if k is None:
            return np.full(self.n, UNLIMITED)
        if isinstance(k, int):
            return np.full(self.n, k)
        if k == "k":
            return self.target.own_k
        return self._fitting(int(str(k).removesuffix("tok")))

    def _fitting(self, budget: int) -> Ints:
        """Return how many items of each list fit into a budget of tokens, in rank order."""
        if self.is_ideal or self.listing is None:
            return np.maximum(self.returned, 1)
        needed = "item token counts or texts: give --corpus (evaluate(…, corpus=…))"
        tokens = self.listing.column("tokens", f"a cut-off of {budget} tokens", needed)
        if tokens.null_count():
            item = self.listing.frame["item_id"].filter(tokens.is_null())[0]
            raise InputError(
                f"a cut-off of {budget} tokens needs each item's length; the corpus lacks {item!r}"
            )
        each = np.bincount(self.listing.query, minlength=self.n)
        ends = np.cumsum(each)
        total = np.concatenate(([0], np.cumsum(tokens.to_numpy().astype(np.int64))))
        before = np.repeat(total[ends - each], each)
        fits = total[1:] - before <= budget
        return np.bincount(self.listing.query[fits], minlength=self.n)

    def top(self, k: Cut, entries: Entries | None = None) -> Mask:
        """Return which hits, or other entries of these lists, lie within the cut-off."""
        entries = self.hits if entries is None else entries
        if k is None:
            return np.ones(len(entries.rank), dtype=bool)
        last = k if isinstance(k, int) else self.limit(k)[entries.query]
        return np.less_equal(entries.rank, last)

    def repeated(self, k: Cut) -> Values:
        """Return how many places within the cut-off return an item again, for each query."""
        if self.repeats is None:
            return np.zeros(self.n)
        inside = self.repeats.rank <= self.limit(k)[self.repeats.query]
        return np.bincount(self.repeats.query[inside], minlength=self.n).astype(np.float64)

    def listed(self, k: Cut) -> tuple[Listing, Mask]:
        """Return the listed items and which of them lie within the cut-off."""
        if self.listing is None:
            raise MissingInputError("this measure looks at whole lists, which were not kept")
        return self.listing, self.listing.rank <= self.limit(k)[self.listing.query]


def is_budget(k: Cut) -> bool:
    """Return whether a cut-off counts tokens instead of ranks."""
    return isinstance(k, str) and k.endswith("tok")


def cut_of_gold(k: Cut) -> Cut:
    """Return a cut-off for what is computed from gold alone: tokens do not cut an ideal list."""
    return None if is_budget(k) else k


def ideal_of(target: Target, depth: int | None = None) -> Ranked:
    """Return the best list there could be, to a depth: all gold, and nothing else."""
    ideal = target.ideal
    returned = np.bincount(ideal.query, minlength=target.n)
    # One item that holds all units would find them all at once.
    found = replace(ideal, rank=np.ones_like(ideal.rank)) if target.joined else ideal
    if depth is not None:
        ideal, found = ideal.where(ideal.rank <= depth), found.where(found.rank <= depth)
    return Ranked(target, ideal, found, returned, is_ideal=True)


def in_best_order(ranked: Ranked, keep: Mask | None = None) -> Ranked:
    """Return the lists with the gold that they hold moved to the top, best grades first.

    ``keep`` takes only some of the gold units found: what a list without the others could be.
    """
    found = ranked.found if keep is None else ranked.found.where(keep)
    found = found.where(found.gain > 0)
    order = np.lexsort((found.rank, -found.grade, found.query))
    query = found.query[order]
    first = np.searchsorted(query, np.arange(found.n))
    rank = np.arange(len(query)) - first[query] + 1
    row = None if found.row is None else found.row[order]
    best = Entries(found.n, query, rank, found.grade[order], row=row)
    return Ranked(ranked.target, best, best, ranked.returned)


@cache
def nobody(*, listed: bool = False) -> Ranked:
    """Return an empty set of queries, to check a measure's parameters before scoring.

    ``listed`` adds lists, for measures that look at them.
    """
    none, nothing = np.empty(0, dtype=np.int64), np.empty(0)
    target = Target(0, none, nothing, none, none, np.empty(0, dtype=bool))
    entries = Entries(0, none, none, nothing, row=none)
    if not listed:
        return Ranked(target, entries, entries, none)
    columns = {
        pl.String: ("item_id", "doc_id", "text", "version"),
        pl.Float64: ("score", "similarity", "grade"),
        pl.Int64: ("tokens", "corpus_row", "corpus_size"),
        pl.Boolean: ("repeat",),
    }
    schema = {name: kind for kind, names in columns.items() for name in names}
    listing = Listing(none, none, pl.DataFrame(schema=schema))
    return Ranked(target, entries, entries, none, listing)


def ratio(numerator: Values, denominator: Values | Ints | float) -> Values:
    """Return a division whose empty denominators give 0; whether that counts is decided later."""
    bottom = np.broadcast_to(np.asarray(denominator, dtype=np.float64), numerator.shape)
    return np.divide(numerator, bottom, out=np.zeros(numerator.shape), where=bottom != 0)
