"""Unjudged items of ranked lists, and the same lists with some of them judged."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from karat.errors import UsageError
from karat.measures.listing import without_repeats
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import UNLIMITED, Entries, Ints, Ranked, Target
from karat.measures.results import Scores

# The rank of an item that a list does not hold.
ABSENT = UNLIMITED
MOST_STEPS = 100.0
_PAIR = ("query", "item_id")


@dataclass(frozen=True, eq=False)
class Unjudged:
    """Items that nobody judged, each once a query, by query and then by rank.

    ``query`` is the query's row in the score table. An item whose grade is below 0 was pooled
    and not judged, so it is one of them.
    """

    query: Ints
    rank: Ints
    item_id: pl.Series

    def counts(self, n: int) -> Ints:
        """How many there are of each of n queries."""
        return np.bincount(self.query, minlength=n)


@dataclass(frozen=True, eq=False)
class Listed:
    """What one system returned: where judged items stand, where unjudged ones, and its values.

    ``ranked`` knows no grade below 0: what was pooled and not judged is unjudged.
    """

    ranked: Ranked
    unjudged: Unjudged
    scores: Scores

    def values(self, measure: str) -> Values:
        """What a measure is now, query by query; NaN where a query has no value."""
        return self.scores.values(measure)


@dataclass(frozen=True, eq=False)
class Common:
    """The unjudged items of two systems, each pair once; a rank is ABSENT where a list lacks it."""

    query: Ints
    first: Ints
    second: Ints
    item_id: pl.Series


def listed(scores: Scores) -> Listed:
    """A system's lists, of which all items were kept when it was scored."""
    if scores.trace is None or scores.lists is None:
        raise UsageError(f"the scores of {scores.system} come without whole lists; score it again")
    grade = pl.col("grade")
    once = without_repeats(scores.lists)
    rows = once.filter(grade.is_null() | (grade < 0)).sort("row", "rank")
    found = Unjudged(
        rows["row"].cast(pl.Int64).to_numpy(),
        rows["rank"].cast(pl.Int64).to_numpy(),
        rows["item_id"],
    )
    return Listed(_without_pooled(scores.trace.ranked), found, scores)


def in_common(first: Listed, second: Listed) -> Common:
    """What is unjudged in either of two systems, by query and item."""
    sides = [
        pl.DataFrame({"query": one.query, "item_id": one.item_id, name: one.rank})
        for name, one in (("first", first.unjudged), ("second", second.unjudged))
    ]
    both = sides[0].join(sides[1], on=_PAIR, how="full", coalesce=True).sort(_PAIR)
    ranks = both.select(pl.col("first", "second").fill_null(ABSENT))
    return Common(
        both["query"].to_numpy(),
        ranks["first"].to_numpy(),
        ranks["second"].to_numpy(),
        both["item_id"],
    )


def possible_grades(gold: Prepared) -> Values:
    """What an item may be judged: whole grades up to the gold's highest, and any that it uses.

    The gold of every query counts, since raters judge all of them on one scale. No scale of
    raters has more than some steps: above ``MOST_STEPS`` only grades in use are possible.
    """
    used = gold.grade[gold.grade > 0]
    top = used.max(initial=max(1.0, gold.top_grade))
    whole = np.arange(0.0, np.floor(min(top, MOST_STEPS)) + 1)
    return np.unique(np.concatenate((whole, used, [top])))


def judged_more(ranked: Ranked, of: Ints, query: Ints, rank: Ints, grade: Values) -> Ranked:
    """Lists again, each with further judgments, as many lists as ``of`` has entries.

    List v repeats the one of query ``of[v]``. The further judgments are rows of ``query`` (which
    list, a number into ``of``), ``rank`` (ABSENT where the list lacks the item) and ``grade``.

    >>> target = Target(1, np.array([0]), np.array([1.0]), np.array([1]), np.array([5]),
    ...     np.array([False]))
    >>> hits = Entries(1, np.array([0]), np.array([2]), np.array([1.0]))
    >>> lists = Ranked(target, hits, hits, np.array([3]))
    >>> more = judged_more(lists, np.array([0, 0]), np.array([1]), np.array([1]), np.array([2.0]))
    >>> more.hits.rank.tolist(), more.hits.query.tolist(), more.target.grade.tolist()
    ([2, 1, 2], [0, 1, 1], [1.0, 2.0, 1.0])
    """
    target = _target_with(ranked.target, of, query, grade)
    rows, owner = _repeated(ranked.hits.query, ranked.n, of)
    here = rank < ABSENT
    owners = np.concatenate((owner, query[here]))
    ranks = np.concatenate((ranked.hits.rank[rows], rank[here]))
    grades = np.concatenate((ranked.hits.grade[rows], grade[here]))
    order = np.lexsort((ranks, owners))
    hits = Entries(len(of), owners[order], ranks[order], grades[order])
    return Ranked(target, hits, hits, ranked.returned[of])


def _target_with(target: Target, of: Ints, query: Ints, grade: Values) -> Target:
    """The gold of the repeated queries with further judgments, best grades first."""
    rows, owner = _repeated(target.query, target.n, of)
    owners = np.concatenate((owner, query))
    grades = np.concatenate((target.grade[rows], grade))
    order = np.lexsort((-grades, owners))
    return Target(
        n=len(of),
        query=owners[order],
        grade=grades[order],
        # What is judged anew is nothing that any gold has; no measure of one query asks further.
        unit=np.concatenate((target.unit[rows], -np.arange(1, len(query) + 1)))[order],
        own_k=target.own_k[of],
        no_answer=target.no_answer[of],
    )


def _repeated(query: Ints, n: int, of: Ints) -> tuple[Ints, Ints]:
    """The rows of some queries, one after the other, and the place in ``of`` that each is for."""
    counts = np.bincount(query, minlength=n)
    starts = (np.cumsum(counts) - counts)[of]
    sizes = counts[of]
    owner = np.repeat(np.arange(len(of)), sizes)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return starts[owner] + within, owner


def _without_pooled(ranked: Ranked) -> Ranked:
    """The lists without what was pooled and not judged."""
    target = ranked.target
    kept = target.grade >= 0
    if kept.all():
        return ranked
    target = replace(
        target, query=target.query[kept], grade=target.grade[kept], unit=target.unit[kept]
    )
    hits = ranked.hits.where(ranked.hits.grade >= 0)
    hits = replace(hits, row=None)
    return replace(ranked, target=target, hits=hits, found=hits)
