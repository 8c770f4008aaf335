"""Damage done to a ranked list on purpose: items put in, taken out, mixed up, cut off.

Pure functions of one list. An edited list holds no item twice, keeps the order of what was not
touched, and its scores fall wherever those of the list did.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

Score = float | None
# An item and its score, best first; a list without scores has None for each.
Entry = tuple[str, Score]

_LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Case:
    """One query's list before an edit, and the negatives that may be put in, hardest first.

    ``gold`` holds the grade above 0 of every item in either that has one.
    """

    query_id: str
    entries: Sequence[Entry]
    gold: Mapping[str, float] = field(default_factory=dict)
    negatives: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Edited:
    """A list after an edit; ``changed`` says that it is another one than before.

    ``placed`` are the negatives that were put in, of which ``moved`` stood in the list already.
    ``short`` says that the edit could not be done in full, ``refused`` how many negatives were
    gold, and ``beyond`` how many stand at the end since the list does not reach their rank.
    """

    entries: tuple[Entry, ...]
    changed: bool = True
    placed: tuple[str, ...] = ()
    moved: int = 0
    short: bool = False
    refused: int = 0
    beyond: int = 0

    @classmethod
    def of(cls, case: Case, entries: Sequence[Entry], **told: Any) -> Edited:
        """The list that became of a case."""
        ids, before = ([item_id for item_id, _ in one] for one in (entries, case.entries))
        return cls(tuple(entries), changed=ids != before, **told)

    @property
    def ids(self) -> list[str]:
        """The items, best first."""
        return [item_id for item_id, _ in self.entries]


class Edit(Protocol):
    """One way to damage a list; ``name`` is what reports call it."""

    @property
    def name(self) -> str: ...
    def apply(self, case: Case) -> Edited: ...
    def document(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Insert:
    """Hard negatives at certain ranks, the hardest first; what stood there moves down.

    A negative that is in the list already is moved, not doubled, and one that is gold is never
    put in. Where the list is too short for a rank, the negative stands at its end.

    >>> case = Case("q1", [("a", 0.9), ("b", 0.5)], negatives=["x", "b"])
    >>> Insert((1, 2)).apply(case).ids
    ['x', 'b', 'a']
    """

    ranks: tuple[int, ...]

    @property
    def name(self) -> str:
        """Such as ``insert 3 at 1,2,3``."""
        return f"insert {len(self.ranks)} at {','.join(map(str, self.ranks))}"

    def document(self) -> dict[str, Any]:
        """The edit as plain data."""
        return {"kind": "insert", "at": list(self.ranks)}

    def apply(self, case: Case) -> Edited:
        """The list with the negatives in it."""
        candidates = dict.fromkeys(case.negatives)
        unlike = [one for one in candidates if one not in case.gold]
        chosen = unlike[: len(self.ranks)]
        moving = set(chosen)
        stays = [entry for entry in case.entries if entry[0] not in moving]
        ids: list[str] = []
        rest, wanted = [item_id for item_id, _ in stays], list(chosen)
        beyond = 0
        while rest or wanted:
            at = self.ranks[len(chosen) - len(wanted)] if wanted else None
            if wanted and (at == len(ids) + 1 or not rest):
                beyond += at != len(ids) + 1
                ids.append(wanted.pop(0))
            else:
                ids.append(rest.pop(0))
        return Edited.of(
            case,
            with_scores(ids, stays),
            placed=tuple(chosen),
            moved=len(case.entries) - len(stays),
            short=len(chosen) < len(self.ranks),
            refused=len(candidates) - len(unlike),
            beyond=beyond,
        )


@dataclass(frozen=True, slots=True)
class Drop:
    """The best items taken out."""

    count: int

    @property
    def name(self) -> str:
        """Such as ``drop 3``."""
        return f"drop {self.count}"

    def document(self) -> dict[str, Any]:
        """The edit as plain data."""
        return {"kind": "drop", "count": self.count}

    def apply(self, case: Case) -> Edited:
        """The list without its first items."""
        return Edited.of(case, case.entries[self.count :], short=len(case.entries) < self.count)


@dataclass(frozen=True, slots=True)
class DropGold:
    """The best gold item taken out, the highest where grades are equal: what is the rest worth?"""

    name: str = "drop gold"

    def document(self) -> dict[str, Any]:
        """The edit as plain data."""
        return {"kind": "drop", "count": "gold"}

    def apply(self, case: Case) -> Edited:
        """The list without its best gold item."""
        graded = [item_id for item_id, _ in case.entries if item_id in case.gold]
        best = max(graded, key=lambda item_id: case.gold[item_id], default=None)
        kept = [entry for entry in case.entries if entry[0] != best]
        return Edited.of(case, kept, short=best is None)


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The list in random order, by the seed and the query's id.

    The scores stay where they are: what comes first has the best of them.
    """

    seed: int = 0
    name: str = "shuffle"

    def document(self) -> dict[str, Any]:
        """The edit as plain data."""
        return {"kind": "shuffle"}

    def apply(self, case: Case) -> Edited:
        """The items mixed up."""
        ids = [item_id for item_id, _ in case.entries]
        Random(seed_of(self.seed, case.query_id)).shuffle(ids)  # noqa: S311 - no secret
        scores = [score for _, score in case.entries]
        return Edited.of(case, list(zip(ids, scores, strict=True)))


@dataclass(frozen=True, slots=True)
class Truncate:
    """Only the first items left."""

    count: int

    @property
    def name(self) -> str:
        """Such as ``truncate 20``."""
        return f"truncate {self.count}"

    def document(self) -> dict[str, Any]:
        """The edit as plain data."""
        return {"kind": "truncate", "count": self.count}

    def apply(self, case: Case) -> Edited:
        """The first items of the list."""
        return Edited.of(case, case.entries[: self.count], short=len(case.entries) < self.count)


def seed_of(seed: int, text: str) -> int:
    """A seed for one thing of many, so that their order plays no role."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{text}".encode()).digest()[:8])


def with_scores(ids: Sequence[str], known: Sequence[Entry]) -> tuple[Entry, ...]:
    """The items with their scores; new ones get what keeps the order.

    Evenly between the scores around them; above the first just more than it, below the last
    just less. A list without scores stays without.

    >>> with_scores(["a", "x", "b"], [("a", 0.5), ("b", 0.25)])
    (('a', 0.5), ('x', 0.375), ('b', 0.25))
    """
    scores = dict(known)
    if any(score is None for score in scores.values()):
        return tuple((item_id, None) for item_id in ids)
    entries: list[Entry] = []
    waiting: list[str] = []
    for item_id in ids:
        if item_id not in scores:
            waiting.append(item_id)
            continue
        if waiting:
            above = entries[-1][1] if entries else None
            entries += zip(waiting, _between(above, scores[item_id], len(waiting)), strict=True)
            waiting = []
        entries.append((item_id, scores[item_id]))
    last = entries[-1][1] if entries else 0.0
    return (*entries, *zip(waiting, _between(last, None, len(waiting)), strict=True))


def _between(above: Score, below: Score, count: int) -> list[float]:
    """So many scores from one to the other; where one is missing, next to the other."""
    if above is not None and below is not None:
        # Weights and not a step: the difference of two large scores may be too large to hold.
        shares = [place / (count + 1) for place in range(1, count + 1)]
        low, high = sorted((above, below))
        scores = [min(max((1 - one) * above + one * below, low), high) for one in shares]
        return sorted(scores, reverse=above >= below)
    if below is None:
        return _steps(above or 0.0, -_LARGEST, count)
    return _steps(below, _LARGEST, count)[::-1]


def _steps(start: float, towards: float, count: int) -> list[float]:
    """The next numbers that a float can hold."""
    scores: list[float] = []
    for _ in range(count):
        start = math.nextafter(start, towards)
        scores.append(start)
    return scores
