"""Edits that damage a ranked list: insert, drop, shuffle, truncate.

Pure functions of one list. An edited list holds no item twice, keeps the order of untouched
items, and its scores fall where those of the list did.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import numpy as np

from karat.errors import UsageError

# An item and its score, best first; a list without scores has None for each.
ScoredItem = tuple[str, float | None]

_LARGEST = sys.float_info.max
# The deepest rank and the longest cut that an option may name.
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class ListToEdit:
    """One query's list before an edit, and the negatives that may be put in, hardest first.

    ``gold`` holds the grade above 0 of every item in either that has one.
    """

    query_id: str
    entries: Sequence[ScoredItem]
    gold: Mapping[str, float] = field(default_factory=dict)
    negatives: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EditedList:
    """A list after an edit; ``changed`` is true if it differs from before.

    ``placed`` are the negatives that were put in, of which ``moved`` were in the list already.
    ``short`` says that the edit could not be done in full, ``refused`` how many negatives were
    gold, and ``beyond`` how many stand at the end since the list does not reach their rank.
    """

    entries: tuple[ScoredItem, ...]
    changed: bool = True
    placed: tuple[str, ...] = ()
    moved: int = 0
    short: bool = False
    refused: int = 0
    beyond: int = 0

    @classmethod
    def of(cls, before: ListToEdit, entries: Sequence[ScoredItem], **facts: Any) -> EditedList:
        """Return the edited list."""
        old, new = ([item for item, _ in some] for some in (before.entries, entries))
        return cls(tuple(entries), changed=new != old, **facts)

    @property
    def ids(self) -> list[str]:
        """The items, best first."""
        return [item for item, _ in self.entries]


@dataclass(frozen=True, slots=True)
class Insert:
    """Put hard negatives at certain ranks, the hardest first; other items move down.

    A negative that is in the list already is moved, not doubled, and one that is gold is never
    put in. Where the list is too short for a rank, the negative goes to its end.

    >>> before = ListToEdit("q1", [("a", 0.9), ("b", 0.5)], negatives=["x", "b"])
    >>> Insert((1, 2)).apply(before).ids
    ['x', 'b', 'a']
    """

    ranks: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"insert {len(self.ranks)} at {','.join(map(str, self.ranks))}"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "insert", "at": list(self.ranks)}

    def apply(self, before: ListToEdit) -> EditedList:
        candidates = dict.fromkeys(before.negatives)
        allowed = [candidate for candidate in candidates if candidate not in before.gold]
        chosen = allowed[: len(self.ranks)]
        stays = [entry for entry in before.entries if entry[0] not in chosen]
        ids = [item for item, _ in stays]
        beyond = 0
        for rank, negative in zip(sorted(self.ranks), chosen, strict=False):
            beyond += rank > len(ids) + 1
            ids.insert(rank - 1, negative)
        return EditedList.of(
            before,
            with_scores(ids, stays),
            placed=tuple(chosen),
            moved=len(before.entries) - len(stays),
            short=len(chosen) < len(self.ranks),
            refused=len(candidates) - len(allowed),
            beyond=beyond,
        )


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove the best items, or the best ``gold`` item: the highest where grades are equal."""

    count: int | Literal["gold"]

    @property
    def name(self) -> str:
        return f"drop {self.count}"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "drop", "count": self.count}

    def apply(self, before: ListToEdit) -> EditedList:
        if self.count != "gold":
            short = len(before.entries) < self.count
            return EditedList.of(before, before.entries[self.count :], short=short)
        graded = [item for item, _ in before.entries if item in before.gold]
        best = max(graded, key=lambda item: before.gold[item], default=None)
        others = [entry for entry in before.entries if entry[0] != best]
        return EditedList.of(before, others, short=best is None)


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Put the list in random order, by the seed and the query's id.

    The scores stay in place: the first item has the best one.
    """

    seed: int = 0
    name: str = "shuffle"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "shuffle"}

    def apply(self, before: ListToEdit) -> EditedList:
        ids = [item for item, _ in before.entries]
        Random(seed_of(self.seed, before.query_id)).shuffle(ids)  # noqa: S311 - no secret
        scores = [score for _, score in before.entries]
        return EditedList.of(before, list(zip(ids, scores, strict=True)))


@dataclass(frozen=True, slots=True)
class Truncate:
    """Leave only the first items."""

    count: int

    @property
    def name(self) -> str:
        return f"truncate {self.count}"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "truncate", "count": self.count}

    def apply(self, before: ListToEdit) -> EditedList:
        short = len(before.entries) < self.count
        return EditedList.of(before, before.entries[: self.count], short=short)


# One way to damage a list; ``name`` is what reports call it.
Edit = Insert | Drop | Shuffle | Truncate


def parse_edits(
    *,
    insert: int | None = None,
    at: str | None = None,
    drop: Sequence[str] | None = None,
    shuffle: bool = False,
    truncate: Sequence[str] | None = None,
) -> list[Edit]:
    """Return the edits that options name, each a scenario; by default three negatives on top."""
    edits: list[Edit] = []
    if insert is not None or at is not None:
        edits.append(Insert(_ranks(insert, at)))
    for text in drop or ():
        edits.append(Drop("gold" if text == "gold" else _count("--drop", text, " or gold")))
    edits += [Shuffle()] if shuffle else []
    edits += [Truncate(_count("--truncate", text)) for text in truncate or ()]
    for place, edit in enumerate(edits):
        if edit in edits[:place]:
            raise UsageError(f"--{edit.name} is given twice; keep one")
    return edits or [Insert((1, 2, 3))]


def _count(option: str, text: str, more: str = "") -> int:
    if text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= _MOST:
        return int(text)
    raise UsageError(f"{option} is {text!r}; it must be a whole number from 1 to {_MOST:,}{more}")


def _ranks(insert: int | None, at: str | None) -> tuple[int, ...]:
    if at is None:
        return tuple(range(1, (insert or 0) + 1))
    try:
        ranks = [int(text) for text in at.split(",")]
    except ValueError:
        ranks = [0]
    if not all(1 <= rank <= _MOST for rank in ranks) or len(set(ranks)) < len(ranks):
        raise UsageError(f"--at is {at!r}; it must be different ranks, from 1, as in 1,2,3")
    if insert is not None and insert != len(ranks):
        raise UsageError(f"--insert {insert} contradicts --at {at}, which names {len(ranks)} ranks")
    return tuple(sorted(ranks))


def most_negatives(edits: Sequence[Edit]) -> int:
    """Return how many negatives a query needs for these edits."""
    return max((len(edit.ranks) for edit in edits if isinstance(edit, Insert)), default=0)


def seed_of(seed: int, text: str) -> int:
    """Return a seed for one thing of many, independent of their order."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{text}".encode()).digest()[:8])


def with_scores(ids: Sequence[str], known: Sequence[ScoredItem]) -> tuple[ScoredItem, ...]:
    """Return the items with their scores; new ones get what keeps the order.

    Evenly between the scores around them; above the first just more than it, below the last
    just less. A list without scores stays without.

    >>> with_scores(["a", "x", "b"], [("a", 0.5), ("b", 0.25)])
    (('a', 0.5), ('x', 0.375), ('b', 0.25))
    """
    scores = {item: score for item, score in known if score is not None}
    if len(scores) < len(known):
        return tuple((item, None) for item in ids)
    places = [place for place, item in enumerate(ids) if item in scores]
    values = np.zeros(len(ids))
    if places:
        # Halved and doubled: the difference of two large scores may be too large to hold.
        halves = [scores[ids[place]] / 2 for place in places]
        values = 2 * np.interp(range(len(ids)), places, halves)
    first, last = (places[0], places[-1]) if places else (0, -1)
    for place in reversed(range(first)):
        values[place] = np.nextafter(values[place + 1], _LARGEST)
    for place in range(last + 1, len(ids)):
        values[place] = np.nextafter(values[place - 1] if place else 0.0, -_LARGEST)
    return tuple(
        (item, scores.get(item, float(value))) for item, value in zip(ids, values, strict=True)
    )
