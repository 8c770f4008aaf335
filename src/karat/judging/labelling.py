"""Labelling by hand: what a rater sees next, how far raters are and agree, what they said.

Nothing here knows where items and judgments are kept, nor which system returned an item.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from karat.errors import InputError, UsageError
from karat.formats.labels import ADJUDICATION
from karat.stats.agreement import every_two, kappas

SCALE = {0: "not relevant", 1: "related", 2: "relevant", 3: "perfect"}
CANNOT_TELL = "can't tell"
# Fewer pairs than this that two raters both graded say nothing about how far they agree.
FEW = 10
LONGEST_RATER = 80

_UNWRITTEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_BLANK = re.compile(r"[\s\x00\ufeff]")


class Item(Protocol):
    """A pair that is to be judged, at its place in the order that all raters share."""

    @property
    def position(self) -> int: ...
    @property
    def query_id(self) -> str: ...
    @property
    def item_id(self) -> str: ...


class Said(Protocol):
    """What a rater says of the item at a position; the grade None is "can't tell".

    One whose source is ``adjudication`` is a decision: no vote, and above all of them.
    """

    @property
    def position(self) -> int: ...
    @property
    def rater(self) -> str: ...
    @property
    def grade(self) -> float | None: ...
    @property
    def rationale(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def given_at(self) -> datetime: ...
    @property
    def withdrawn_at(self) -> datetime | None: ...


AnItem = TypeVar("AnItem", bound=Item)
ASaid = TypeVar("ASaid", bound=Said)


def rater_name(name: str) -> str:
    """A rater's name as it is kept: the same letters are the same rater, however typed.

    >>> rater_name("  Ana   Luz ")
    'Ana Luz'
    """
    plain = unicodedata.normalize("NFC", " ".join(name.split()))
    if not plain:
        raise UsageError("a rater needs a name; labels of nobody cannot be told apart")
    if len(plain) > LONGEST_RATER:
        raise UsageError(
            f"the rater's name has {len(plain)} characters; the most is {LONGEST_RATER}"
        )
    if not plain.isprintable():
        raise UsageError("the rater's name holds control characters; write it in plain letters")
    return plain


def rationale_text(text: str) -> str:
    """A rationale without blanks around it; lines are kept, other control characters refused."""
    plain = text.replace("\r\n", "\n").strip()
    if _UNWRITTEN.search(plain):
        raise UsageError("the rationale holds control characters; write it in plain letters")
    return plain


def votes(said: Iterable[ASaid]) -> list[ASaid]:
    """What raters say, without decisions between them."""
    return [one for one in said if one.source != ADJUDICATION]


def decisions(said: Iterable[ASaid]) -> dict[int, ASaid]:
    """The newest decision on each item that one was made on, whoever decided, by position."""
    decided = (one for one in said if one.source == ADJUDICATION)
    return {one.position: one for one in sorted(decided, key=lambda one: one.given_at)}


def next_item(
    items: Sequence[AnItem], said: Sequence[Said], rater: str, *, besides: int | None = None
) -> AnItem | None:
    """The first item that the rater has not judged; None when there is none left.

    Raters share one order, so that whoever stops early has judged what the others judge first.
    ``besides`` leaves out the item that the rater is looking at.
    """
    known = {one.position for one in votes(said) if one.rater == rater}
    waiting = (one for one in items if one.position not in known and one.position != besides)
    return min(waiting, key=lambda one: one.position, default=None)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one rater is; ``judged`` counts "can't tell" too."""

    rater: str
    judged: int
    cannot_tell: int
    size: int

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        return {
            "rater": self.rater,
            "judged": self.judged,
            "cannot_tell": self.cannot_tell,
            "of": self.size,
            "finished": self.judged >= self.size,
        }


def progress(size: int, said: Sequence[Said]) -> list[Progress]:
    """Every rater who said anything, by name; a decision is no progress."""
    said = votes(said)
    judged = Counter(one.rater for one in said)
    unsure = Counter(one.rater for one in said if one.grade is None)
    return [Progress(name, judged[name], unsure[name], size) for name in sorted(judged)]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two raters on the items that both graded.

    ``n`` counts them and ``same`` those with one and the same grade. The share and both kappas
    are None where they cannot be told, ``because`` of something.
    """

    raters: tuple[str, str]
    n: int
    same: int
    share: float | None
    kappa: float | None
    linear: float | None
    because: str | None

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        return {
            "raters": list(self.raters),
            "n": self.n,
            "same": self.same,
            "share": self.share,
            "kappa": self.kappa,
            "kappa_linear": self.linear,
            "because": self.because,
        }


def agreement(said: Sequence[Said], *, few: int = FEW) -> list[Agreement]:
    """Every two raters, by name. What either could not tell is no grade and is not counted."""
    voted = votes(said)
    raters = sorted({one.rater for one in voted})
    grades = sorted({float(one.grade) for one in voted if one.grade is not None})
    pairs, found = combinations(raters, 2), list[Agreement]()
    for tables in every_two(_by_rater(voted, raters, grades), len(grades)):
        n, same = tables.sum(axis=(1, 2)), np.trace(tables, axis1=1, axis2=2)
        linear = kappas(tables, weights="linear", grades=grades)
        columns = (one.tolist() for one in (n, same, kappas(tables), linear))
        found.extend(_agreed(next(pairs), *row, few=few) for row in zip(*columns, strict=True))
    return found


def _by_rater(
    said: Iterable[Said], raters: Sequence[str], grades: Sequence[float]
) -> NDArray[np.int32]:
    """A row for every rater and a column for every item: the number of the grade, -1 for none."""
    graded = [one for one in said if one.grade is not None]
    row, column, number = (
        {name: at for at, name in enumerate(names)}
        for names in (raters, sorted({one.position for one in graded}), grades)
    )
    given = np.full((len(row), len(column)), -1, dtype=np.int32)
    for one in graded:
        given[row[one.rater], column[one.position]] = number[one.grade]
    return given


def _agreed(
    raters: tuple[str, str], n: int, same: int, plain: float, linear: float, *, few: int
) -> Agreement:
    """Two raters who gave ``n`` items a grade; a kappa that is NaN is none."""
    if n < few:
        lacking = f"not enough: {n} of at least {few} items that both graded"
        return Agreement(raters, n, same, None, None, None, lacking)
    if math.isnan(plain):
        because = "no kappa: both gave one and the same grade throughout"
        return Agreement(raters, n, same, same / n, None, None, because)
    return Agreement(raters, n, same, same / n, plain, linear, None)


@dataclass(frozen=True, slots=True)
class Tie:
    """An item on which no grade has more raters than every other."""

    position: int
    query_id: str
    item_id: str
    grades: dict[str, float]

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        grades = {rater: _plain(grade) for rater, grade in self.grades.items()}
        return {"query_id": self.query_id, "item_id": self.item_id, "grades": grades}


@dataclass(frozen=True, eq=False)
class Majority:
    """One grade an item: the one that was decided on, else the one that most raters gave.

    ``ties`` are items without such a grade; ``cannot_tell`` counts those that were judged and
    that nobody could grade, ``unjudged`` those that nobody judged. None of the three has a grade.
    ``adjudicated`` counts the items that a decision was made on, whatever it was.
    """

    grades: list[tuple[Item, float]]
    ties: list[Tie]
    cannot_tell: int
    unjudged: int
    adjudicated: int = 0

    def counts(self) -> dict[str, int]:
        """How many items there are of each kind."""
        return {
            "graded": len(self.grades),
            "ties": len(self.ties),
            "cannot_tell": self.cannot_tell,
            "unjudged": self.unjudged,
        }


def majority(items: Sequence[Item], said: Sequence[Said]) -> Majority:
    """What was decided of each item, else what most raters say; who can't tell has no vote."""
    return settled(
        items, said, {at: _most(list(own.values())) for at, own in graded(votes(said)).items()}
    )


def graded(said: Iterable[Said]) -> dict[int, dict[str, float]]:
    """Who gave which grade to each item that anybody graded, by position and by name."""
    found: dict[int, dict[str, float]] = {}
    for one in sorted(said, key=lambda one: one.rater):
        if one.grade is not None:
            found.setdefault(one.position, {})[one.rater] = float(one.grade)
    return found


def settled(
    items: Sequence[Item], said: Sequence[Said], chosen: Mapping[int, float | None]
) -> Majority:
    """Every item with its decided grade, else with the chosen one, else among those without.

    ``chosen`` has what each graded item gets, None where no grade stands out.
    """
    by_item, decided = graded(votes(said)), decisions(said)
    judged = {one.position for one in said}
    grades: list[tuple[Item, float]] = []
    ties: list[Tie] = []
    unsure = 0
    for item in sorted(items, key=lambda one: one.position):
        at = item.position
        grade = decided[at].grade if at in decided else chosen.get(at)
        if grade is not None:
            grades.append((item, float(grade)))
        elif at in by_item and at not in decided:
            ties.append(Tie(at, item.query_id, item.item_id, by_item[at]))
        elif at in judged:
            unsure += 1
    unjudged = len(items) - len(grades) - len(ties) - unsure
    return Majority(grades, ties, unsure, unjudged, len(decided))


def _most(given: Sequence[float]) -> float | None:
    """The grade with the most votes, None where two have as many."""
    first = Counter(given).most_common(2)
    if not first or (len(first) > 1 and first[0][1] == first[1][1]):
        return None
    return first[0][0]


def label_lines(items: Sequence[Item], said: Sequence[Said]) -> Iterator[str]:
    """Every judgment as a line of a label file, by item, then by rater, then in time.

    What a rater could not tell is a line with an ``error``: it is never a 0.
    """
    at = {one.position: one for one in items}
    for one in sorted(said, key=lambda one: (one.position, one.rater, one.given_at)):
        item = at[one.position]
        record: dict[str, Any] = {"query_id": item.query_id, "item_id": item.item_id}
        if one.grade is None:
            record["error"] = CANNOT_TELL
        else:
            record["grade"] = _plain(one.grade)
        if one.rationale:
            record["rationale"] = one.rationale
        record |= {"rater": one.rater, "source": one.source, "given_at": _spelled(one.given_at)}
        if one.withdrawn_at is not None:
            record["withdrawn_at"] = _spelled(one.withdrawn_at)
        yield json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _spelled(moment: datetime) -> str:
    """To the microsecond, so that what is read back is the same moment."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def qrels_lines(found: Majority) -> Iterator[str]:
    """The grades of the majority as TREC qrels; an id that a qrels file cannot hold is refused."""
    for item, grade in found.grades:
        for what, name in (("query_id", item.query_id), ("item_id", item.item_id)):
            if _BLANK.search(name) or (what == "query_id" and name.startswith("#")):
                raise InputError(
                    f"{what} {name!r} holds white space or begins with '#', which a TREC file"
                    " cannot carry; export the labels as JSONL"
                )
        yield f"{item.query_id} 0 {item.item_id} {_plain(grade)}\n"


def _plain(grade: float) -> float | int:
    return int(grade) if float(grade).is_integer() else grade
