"""Where each query's best-placed gold stands in every list on a run's way to its answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from karat.analysis.staged import RAW, REORDERING, SIEVES, Staged
from karat.errors import UsageError
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ints, Mask, Ranked
from karat.measures.scores import Scores

# The rank of what is in no list.
ABSENT = np.inf


@dataclass(frozen=True, eq=False)
class Best:
    """The best-placed gold of every query in the lists of one stage.

    ``rank`` is ABSENT where a list holds none; ``row`` is the judgment's row in the gold and
    ``hit`` the place of the hit among the trace's facts, both -1 where there is none.
    """

    rank: Values
    row: Ints
    hit: Ints
    facts: pl.DataFrame
    returned: Ints

    def number(self, name: str) -> Values:
        """What the run says of these hits, a number each; NaN where it says nothing."""
        told = np.full(len(self.rank), np.nan)
        here = self.hit >= 0
        told[here] = self.facts[name].to_numpy()[self.hit[here]]
        return told


@dataclass(frozen=True, eq=False)
class Last:
    """For each query the last of some stages that logged a list for it.

    ``at`` is the stage's place on the way, -1 where none of them did.
    """

    rank: Values
    at: Ints

    @property
    def there(self) -> Mask:
        """The queries for which one of the stages logged a list."""
        return self.at >= 0


@dataclass(frozen=True, eq=False)
class Way:
    """The lists from the retriever's own to the final one, and where gold stands in each.

    ``own`` marks the queries for which a stage logged a list, or passed on an empty one; for
    the others it shows what the next stage does, and nothing is held against it.
    """

    names: tuple[str, ...]
    lists: tuple[Best, ...]
    own: tuple[Mask, ...]
    final: Best

    @property
    def first(self) -> Best:
        """The retriever's own lists, or as early ones as the log has."""
        return self.lists[0] if self.lists else self.final

    @cached_property
    def anywhere(self) -> Values:
        """The best rank of any gold in any of the lists."""
        return self.after(0)

    def before(self, at: int) -> Last:
        """The last list logged before the stage at this place."""
        return self._last(range(at))

    def after(self, at: int) -> Values:
        """The best rank from this stage on."""
        ranks = [best.rank for best in (*self.lists[at:], self.final)]
        best: Values = np.stack(ranks).min(axis=0)
        return best

    @cached_property
    def last(self) -> Last:
        """The last list before the cut at k."""
        return self._last(range(len(self.names)))

    @cached_property
    def sieved(self) -> Last:
        """The last list before anything put it in another order."""
        return self._last(self._places((RAW, *SIEVES)))

    @cached_property
    def reordered(self) -> Last:
        """The last list of a stage that puts items in another order."""
        return self._last(self._places(REORDERING))

    def _places(self, names: tuple[str, ...]) -> list[int]:
        return [at for at, name in enumerate(self.names) if name in names]

    def _last(self, places: range | list[int]) -> Last:
        rank = np.full(len(self.final.rank), ABSENT)
        found = np.full(len(rank), -1)
        for at in places:
            rank = np.where(self.own[at], self.lists[at].rank, rank)
            found = np.where(self.own[at], at, found)
        return Last(rank, found)


def way_of(staged: Staged) -> Way:
    """Where the best-placed gold stands, from list to list."""
    gold = staged.gold
    lists = tuple(best_in(scores, gold) for scores in staged.line.values())
    own = tuple(
        _own(staged, name) | (best.returned == 0)
        for name, best in zip(staged.line, lists, strict=True)
    )
    return Way(tuple(staged.line), lists, own, best_in(staged.final, gold))


def _own(staged: Staged, stage: str) -> Mask:
    """The queries for which a stage has a list; all of them where nobody noted which."""
    own = np.zeros(len(staged.gold.query_ids), dtype=bool)
    if stage not in staged.logged:
        return ~own
    codes = staged.gold.code_of(pl.Series(sorted(staged.logged[stage]), dtype=pl.String))
    own[codes[codes >= 0]] = True
    return own


def ranked_of(scores: Scores) -> Ranked:
    """Where the judged hits of a run stood."""
    if scores.trace is None:
        raise UsageError(
            f"where the hits of {scores.system!r} stood was not kept; score the run itself"
        )
    return scores.trace.ranked


def best_in(scores: Scores, gold: Prepared) -> Best:
    """The best-placed gold of every query in some lists."""
    ranked = ranked_of(scores)
    found = ranked.found
    (places,) = np.nonzero(found.relevant(gold.conventions.rel))
    query, first = np.unique(found.query[places], return_index=True)
    places = places[first]
    rank = np.full(ranked.n, ABSENT)
    row, hit = np.full(ranked.n, -1), np.full(ranked.n, -1)
    rank[query] = found.rank[places]
    row[query] = places if found.row is None else found.row[places]
    hit[query] = _hits_at(ranked, query, found.rank[places])
    facts = pl.DataFrame() if scores.trace is None else scores.trace.facts
    return Best(rank, row, hit, facts, ranked.returned)


def _hits_at(ranked: Ranked, query: Ints, rank: Ints) -> Ints:
    """The place among the judged hits of those at some ranks: a span is found by a hit."""
    wide = int(max(ranked.hits.rank.max(initial=0), rank.max(initial=0))) + 1
    places = np.searchsorted(ranked.hits.query * wide + ranked.hits.rank, query * wide + rank)
    return np.asarray(places, dtype=np.int64)
