"""Where raters differ, and the one grade of each item that comes of what they said.

Nothing is thrown away by it: what was said stays as it is, wherever it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from karat.errors import UsageError, unknown
from karat.judging.labelling import (
    Item,
    Majority,
    Said,
    decisions,
    graded,
    majority,
    settled,
    votes,
)
from karat.stats.alpha import LEVELS, krippendorff_alpha
from karat.stats.dawid_skene import dawid_skene
from karat.tables import Gold

Method = Literal["majority", "dawid-skene", "adjudicated"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True, eq=False, slots=True)
class Conflict:
    """An item that raters gave different grades; ``decision`` is what settled it, if anything.

    ``votes`` are in the order of the raters' names, with those who could not tell.
    """

    item: Item
    votes: list[Said]
    decision: Said | None

    @property
    def spread(self) -> float:
        """How far the highest grade is from the lowest."""
        grades = [one.grade for one in self.votes if one.grade is not None]
        return max(grades) - min(grades)

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        return {
            "query_id": self.item.query_id,
            "item_id": self.item.item_id,
            "spread": self.spread,
            "judgments": [_word(one) for one in self.votes],
            "decision": None if self.decision is None else _word(self.decision),
        }


def conflicts(items: Sequence[Item], said: Sequence[Said]) -> list[Conflict]:
    """Items with different grades, the widest apart first, then those with the most raters.

    Who can't tell contradicts nobody.
    """
    differ = {at for at, own in graded(votes(said)).items() if len(set(own.values())) > 1}
    by_item: dict[int, list[Said]] = {at: [] for at in differ}
    for one in sorted(votes(said), key=lambda one: one.rater):
        if one.position in differ:
            by_item[one.position].append(one)
    decided = decisions(said)
    found = [
        Conflict(item, by_item[item.position], decided.get(item.position))
        for item in items
        if item.position in differ
    ]
    return sorted(found, key=lambda one: (-one.spread, -len(one.votes), one.item.position))


def resolve(items: Sequence[Item], said: Sequence[Said], method: str = "majority") -> Majority:
    """One grade an item, by what most say, by Dawid and Skene's model, or as was decided.

    A decision stands whatever the method. Where no grade stands out the item is a tie.
    """
    if method == "majority":
        return majority(items, said)
    if method == "dawid-skene":
        return settled(items, said, _most_likely(votes(said)))
    if method == "adjudicated":
        return majority(items, list(decisions(said).values()))
    raise unknown("way to resolve", method, METHODS)


def gold_of(found: Majority) -> Gold:
    """The grades as gold, in the order of the set."""
    rows = [(item.query_id, item.item_id, grade) for item, grade in found.grades]
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}
    return Gold.from_frame(pl.DataFrame(rows, schema=schema, orient="row"))


def alphas(said: Sequence[Said]) -> dict[str, float | None]:
    """Krippendorff's alpha of all raters together, by level; None where it cannot be told."""
    told = [one for one in votes(said) if one.grade is not None]
    items = np.array([one.position for one in told], dtype=np.int64)
    grades = np.array([one.grade for one in told], dtype=np.float64)
    return {level: krippendorff_alpha(items, grades, level=level) for level in LEVELS}


def _most_likely(said: Iterable[Said]) -> dict[int, float | None]:
    """The most probable grade of each item, None where two are as probable as each other."""
    told = [one for one in said if one.grade is not None]
    names = sorted({one.rater for one in told})
    if len(names) < 2:
        raise UsageError(
            "Dawid and Skene's model learns how raters err from where they differ, and needs at"
            f" least two of them; {'one graded' if names else 'nobody graded'} anything here"
        )
    places = {name: at for at, name in enumerate(names)}
    found = dawid_skene(
        np.array([places[one.rater] for one in told], dtype=np.int64),
        np.array([one.position for one in told], dtype=np.int64),
        np.array([one.grade for one in told], dtype=np.float64),
    )
    likely = zip(found.items.tolist(), found.most_likely().tolist(), strict=True)
    return {at: None if np.isnan(grade) else grade for at, grade in likely}


def _word(one: Said) -> dict[str, Any]:
    """What one rater said."""
    return {
        "rater": one.rater,
        "grade": one.grade,
        "rationale": one.rationale,
        "source": one.source,
        "given_at": one.given_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
