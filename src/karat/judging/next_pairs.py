"""Which pairs to judge next: those whose judgment is likely to move a number most."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import polars as pl

from karat.judging.next_chances import Judged, chances
from karat.measures.bounds.effects import Effects
from karat.measures.bounds.unjudged import ABSENT
from karat.measures.numbers import Values
from karat.measures.ranked import Ints

# Changes below this are how floating point writes "none".
NOTHING = 1e-12


@dataclass(frozen=True, eq=False)
class Candidates:
    """Unjudged pairs with what is known of each before anyone looks.

    ``effect`` is what the mean changes by if the item is relevant, half way between what the
    highest and the lowest relevant grade do. ``expected`` is its size times the chance that it is
    relevant. ``spread`` is the standard deviation of the change, which decides: it is 0 both for
    what cannot matter and for what is known beforehand.
    """

    pairs: Effects
    chance: Values
    effect: Values
    queries: int

    @property
    def expected(self) -> Values:
        """The mean size of the change."""
        return self.chance * np.abs(self.effect)

    @property
    def spread(self) -> Values:
        """How far the change is likely to lie from what is expected of it."""
        return np.sqrt(self.chance * (1 - self.chance)) * np.abs(self.effect)

    @property
    def can_matter(self) -> int:
        """How many of them would change the mean by themselves if they are relevant."""
        return int((np.abs(self.effect) > self._nothing).sum())

    @property
    def _nothing(self) -> float:
        return NOTHING / self.queries

    def within(self, depth: int) -> Candidates:
        """Those that stand among the first so many of a list."""
        rows = np.flatnonzero(np.minimum(self.pairs.first, self.pairs.second) <= depth)
        return Candidates(self.pairs.at(rows), self.chance[rows], self.effect[rows], self.queries)

    def chosen(self, count: int, *, sides: bool) -> Ints:
        """The places of those to judge next, the most informative first.

        With ``sides`` what speaks for the one system and what speaks for the other take turns:
        next comes the side for which less was to be expected so far. What a pair speaks for is
        taken from its ranks alone. By the effect, which depends on what was found, whoever leads
        would have more of its items judged, and lead the more.
        """
        order = np.argsort(-self.spread, kind="stable")
        order = order[self.spread[order] > self._nothing]
        return _in_turns(order, self.chance * self.pairs.alone, count) if sides else order[:count]

    def frame(self, places: Ints, query_ids: tuple[str, ...]) -> pl.DataFrame:
        """Some of them as a table."""
        pairs = self.pairs.at(places)
        ranks = {
            name: pl.Series([None if r == ABSENT else r for r in column.tolist()], dtype=pl.Int64)
            for name, column in (("first_rank", pairs.first), ("second_rank", pairs.second))
        }
        return pl.DataFrame(
            {
                "query_id": pl.Series([query_ids[at] for at in pairs.query], dtype=pl.String),
                "item_id": pairs.item_id,
                **ranks,
                "chance": self.chance[places],
                "effect": self.effect[places],
                "effect_top": pairs.top / self.queries,
                "effect_least": pairs.least / self.queries,
                "expected": self.expected[places],
            }
        )


def candidates(pairs: Effects, judged: Judged, queries: int) -> Candidates:
    """The unjudged pairs that could change the mean over so many queries.

    A pair whose query has no value is left out: no label would give it one.
    """
    kept = pairs.at(np.flatnonzero(~np.isnan(pairs.top) & ~np.isnan(pairs.least)))
    effect = (kept.top + kept.least) / 2 / max(queries, 1)
    return Candidates(kept, chances(kept.first, kept.second, judged), effect, max(queries, 1))


def _in_turns(order: Ints, speaks: Values, count: int) -> Ints:
    """The first so many, from both sides in such turns that what speaks for them evens out.

    What speaks for neither has no turn, and comes where its place is.
    """
    side = np.sign(np.where(np.abs(speaks) > NOTHING, speaks, 0.0))
    waiting = {
        which: deque(at for at in range(len(order)) if side[order[at]] == which)
        for which in (-1.0, 0.0, 1.0)
    }
    taken: list[int] = []
    ahead = 0.0
    while len(taken) < min(count, len(order)):
        turn = (-1.0, 0.0, 1.0) if abs(ahead) < NOTHING else (0.0, -np.sign(ahead))
        able = [which for which in turn if waiting[which]] or [w for w in waiting if waiting[w]]
        first = min(able, key=lambda which: waiting[which][0])
        at = int(order[waiting[first].popleft()])
        taken.append(at)
        ahead += speaks[at]
    return np.array(taken, dtype=np.int64)
