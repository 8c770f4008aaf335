"""Candidates for the next judgments: how likely each pair is relevant, and what that would change.

Also joins the judgments of several files. ``next_judgments`` is the question that uses them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from karat.data.columns import IN_MEMORY, Source
from karat.data.tables import Gold
from karat.label.inputs import PAIR, judged_pairs
from karat.measure.aggregates import Values
from karat.measure.ranges import ABSENT, Effects
from karat.measure.ranked import Ints, Mask
from karat.measure.scores import Scores

# The last rank of each band but the last, and how likely an item of each band is relevant as
# long as nobody has judged any.
BANDS = (1, 3, 5, 10, 20, 50)
PRIOR = (0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02)
# The prior weighs as much as this many judgments.
STRENGTH = 4.0
# Changes below this are rounding errors.
NOTHING = 1e-12
_LISTS = {"row": pl.Int64, "item_id": pl.String, "grade": pl.Float64, "rank": pl.Int64}


@dataclass(frozen=True, eq=False)
class MergedGold:
    """One judgment per pair from several files.

    ``again`` counts the judgments of pairs that an earlier file had judged, ``differently`` those
    of them with another grade.
    """

    gold: Gold
    sources: tuple[Source, ...]
    again: int
    differently: int


def merge_gold(files: Sequence[Gold], query_ids: Sequence[str] = ()) -> MergedGold:
    """Return all judgments; if several files judge a pair, the first one counts.

    A grade below 0 is no judgment, so a later file may bring one. Without any file there are the
    queries of ``query_ids``, and nothing is judged.

    >>> files = [Gold.from_dict({"q": {"a": 2}}), Gold.from_dict({"q": {"a": 0, "b": 1}})]
    >>> merged = merge_gold(files)
    >>> merged.gold.frame.rows(), merged.again, merged.differently
    ([('q', 'a', 2.0), ('q', 'b', 1.0)], 1, 1)
    """
    frame = pl.DataFrame(schema=dict.fromkeys(PAIR, pl.String) | {"grade": pl.Float64})
    again = differently = 0
    for file in files:
        judged = judged_pairs(file).select(*PAIR, "grade")
        known = judged.join(frame, on=PAIR, how="inner", suffix="_before")
        again += known.height
        differently += int((known["grade"] != known["grade_before"]).sum())
        new = judged.join(frame, on=PAIR, how="anti", maintain_order="left")
        frame = pl.concat([frame, new])
    ids = [query for file in files for query in file.query_ids] if files else query_ids
    source = files[0].source if files else IN_MEMORY
    gold = Gold(frame, tuple(dict.fromkeys(ids)), source=source)
    return MergedGold(gold, tuple(file.source for file in files), again, differently)


@dataclass(frozen=True, eq=False)
class JudgedItems:
    """The judged items of one or two runs: their ranks (ABSENT where a list lacks one)."""

    first: Ints
    second: Ints
    relevant: Mask


def judged_items(scores: Sequence[Scores], rel: float) -> JudgedItems:
    """Return what is judged in the lists of one or two runs, each pair once."""
    sides = []
    for name, run in zip(("first", "second"), scores, strict=False):
        lists = run.lists if run.lists is not None else pl.DataFrame(schema=_LISTS)
        judged = lists.filter(pl.col("grade") >= 0)
        sides.append(judged.select("row", "item_id", "grade", pl.col("rank").alias(name)))
    both = sides[0]
    if len(sides) > 1:
        both = both.join(sides[1], on=["row", "item_id", "grade"], how="full", coalesce=True)
    else:
        both = both.with_columns(second=pl.lit(None, pl.Int64))
    both = both.sort("row", "item_id")
    first, second = (
        both[name].cast(pl.Int64).fill_null(ABSENT).to_numpy() for name in ("first", "second")
    )
    return JudgedItems(first, second, both["grade"].to_numpy() >= rel)


def chances(first: Ints, second: Ints, judged: JudgedItems) -> Values:
    """Return each item's chance to be relevant, from what was judged at such ranks.

    Items are grouped by the band of their better rank and by whether both runs return them. A
    group's chance is its share of relevant items among the judged, with a prior that falls with
    the rank and weighs as much as four judgments. Gold that holds only relevant items says nothing
    about chances, so the prior is used alone.

    >>> nothing = JudgedItems(*(np.empty(0, dtype=np.int64),) * 2, np.empty(0, dtype=bool))
    >>> chances(np.array([1, 2, 60]), np.array([1, ABSENT, ABSENT]), nothing).tolist()
    [0.4, 0.3, 0.02]
    """
    prior = np.repeat(PRIOR, 2)
    if judged.relevant.all():
        return prior[_groups(first, second)]
    groups = _groups(judged.first, judged.second)
    seen = np.bincount(groups, minlength=len(prior))
    relevant = np.bincount(groups[judged.relevant], minlength=len(prior))
    share: Values = (relevant + STRENGTH * prior) / (seen + STRENGTH)
    return share[_groups(first, second)]


def _groups(first: Ints, second: Ints) -> Ints:
    """Return the number of each item's group: two per band, for one run and for both."""
    band = np.searchsorted(BANDS, np.minimum(first, second))
    return 2 * band + (np.maximum(first, second) < ABSENT)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Unjudged pairs, with what is known of each before it is judged.

    ``effect`` is the change of the mean if the item is relevant, half way between what the
    highest and the lowest relevant grade do.
    """

    pairs: Effects
    chance: Values
    effect: Values
    queries: int

    @property
    def expected(self) -> Values:
        """The mean size of the change: the effect's size times the chance."""
        return self.chance * np.abs(self.effect)

    @property
    def spread(self) -> Values:
        """The standard deviation of the change, by which pairs are chosen.

        It is 0 both for what cannot matter and for what is known beforehand.
        """
        return np.sqrt(self.chance * (1 - self.chance)) * np.abs(self.effect)

    @property
    def can_matter(self) -> int:
        """The number of pairs that would change the mean by themselves if relevant."""
        return int((np.abs(self.effect) > NOTHING / self.queries).sum())

    def within(self, depth: int) -> Candidates:
        """Return the pairs among the first ``depth`` of a list."""
        rows = np.flatnonzero(np.minimum(self.pairs.first, self.pairs.second) <= depth)
        return Candidates(self.pairs.at(rows), self.chance[rows], self.effect[rows], self.queries)

    def choose(self, count: int, *, sides: bool) -> Ints:
        """Return the positions of the pairs to judge next, the most informative first.

        With ``sides`` the choice alternates between pairs that favour either system: next comes
        the side with the smaller expected gain so far. Which side a pair favours follows from its
        ranks alone. The effect depends on the judgments so far, so choosing sides by it would
        have more of the leader's items judged and increase its lead.
        """
        order = np.argsort(-self.spread, kind="stable")
        order = order[self.spread[order] > NOTHING / self.queries]
        return _alternate(order, self.chance * self.pairs.alone, count) if sides else order[:count]

    def frame(self, positions: Ints, query_ids: tuple[str, ...]) -> pl.DataFrame:
        """Return some of the pairs as a table."""
        pairs = self.pairs.at(positions)
        ranks = {
            name: pl.Series([None if r == ABSENT else r for r in column.tolist()], dtype=pl.Int64)
            for name, column in (("first_rank", pairs.first), ("second_rank", pairs.second))
        }
        return pl.DataFrame(
            {
                "query_id": pl.Series([query_ids[at] for at in pairs.query], dtype=pl.String),
                "item_id": pairs.item_id,
                **ranks,
                "chance": self.chance[positions],
                "effect": self.effect[positions],
                "effect_top": pairs.top / self.queries,
                "effect_least": pairs.least / self.queries,
                "expected": self.expected[positions],
            }
        )


def candidates(pairs: Effects, judged: JudgedItems, queries: int) -> Candidates:
    """Return the unjudged pairs that could change the mean over this many queries.

    A pair whose query has no value is left out: no label would give it one.
    """
    kept = pairs.at(np.flatnonzero(~np.isnan(pairs.top) & ~np.isnan(pairs.least)))
    effect = (kept.top + kept.least) / 2 / max(queries, 1)
    return Candidates(kept, chances(kept.first, kept.second, judged), effect, max(queries, 1))


def _alternate(order: Ints, favour: Values, count: int) -> Ints:
    """Return the first ``count`` pairs, alternating so that both sides gain alike.

    A pair that favours neither side keeps its place in the order.
    """
    side = np.sign(np.where(np.abs(favour) > NOTHING, favour, 0.0))
    waiting = {
        which: deque(at for at in range(len(order)) if side[order[at]] == which)
        for which in (-1.0, 0.0, 1.0)
    }
    taken: list[int] = []
    balance = 0.0
    while len(taken) < min(count, len(order)):
        turn = (-1.0, 0.0, 1.0) if abs(balance) < NOTHING else (0.0, -np.sign(balance))
        able = [which for which in turn if waiting[which]] or [w for w in waiting if waiting[w]]
        first = min(able, key=lambda which: waiting[which][0])
        at = int(order[waiting[first].popleft()])
        taken.append(at)
        balance += favour[at]
    return np.array(taken, dtype=np.int64)
