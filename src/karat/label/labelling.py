"""Labelling by hand: the next item, progress, agreement, conflicts and one grade per item.

Nothing here knows where items and judgments are stored, or which system returned an item.
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
from typing import Any, Literal, Protocol, TypeVar, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Gold
from karat.errors import InputError, UsageError, unknown
from karat.formats.labels import ADJUDICATION
from karat.stats.agreement import LEVELS, every_two, kappas, krippendorff_alpha
from karat.stats.dawid_skene import dawid_skene

SCALE = {0: "not relevant", 1: "related", 2: "relevant", 3: "perfect"}
CANNOT_TELL = "can't tell"
# With fewer common pairs than this, the agreement of two raters is not reported.
FEW = 10
LONGEST_RATER = 80

_UNWRITTEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_BLANK = re.compile(r"[\s\x00\ufeff]")


class Item(Protocol):
    """A pair to judge, at its position in the order that all raters share."""

    @property
    def position(self) -> int: ...
    @property
    def query_id(self) -> str: ...
    @property
    def item_id(self) -> str: ...


class RaterJudgment(Protocol):
    """A rater's judgment of the item at a position; the grade None is "can't tell".

    One with the source ``adjudication`` is a decision: it is no vote and overrides all votes.
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
ASaid = TypeVar("ASaid", bound=RaterJudgment)


def rater_name(name: str) -> str:
    """Return a rater's name as it is stored: NFC, with single spaces.

    >>> rater_name("  Ana   Luz ")
    'Ana Luz'
    """
    plain = unicodedata.normalize("NFC", " ".join(name.split()))
    if not plain:
        raise UsageError("a rater needs a name, so that labels can be attributed")
    if len(plain) > LONGEST_RATER:
        raise UsageError(
            f"the rater's name has {len(plain)} characters; the most is {LONGEST_RATER}"
        )
    if not plain.isprintable():
        raise UsageError("the rater's name holds control characters; write it in plain letters")
    return plain


def rationale_text(text: str) -> str:
    """Return a rationale without surrounding blanks; lines stay, other controls are refused."""
    plain = text.replace("\r\n", "\n").strip()
    if _UNWRITTEN.search(plain):
        raise UsageError("the rationale holds control characters; write it in plain letters")
    return plain


def votes(said: Iterable[ASaid]) -> list[ASaid]:
    """Return the judgments of raters, without decisions."""
    return [one for one in said if one.source != ADJUDICATION]


def decisions(said: Iterable[ASaid]) -> dict[int, ASaid]:
    """Return the newest decision on each decided item, by position."""
    decided = (one for one in said if one.source == ADJUDICATION)
    return {one.position: one for one in sorted(decided, key=lambda one: one.given_at)}


def next_item(
    items: Sequence[AnItem],
    said: Sequence[RaterJudgment],
    rater: str,
    *,
    besides: int | None = None,
) -> AnItem | None:
    """Return the first item that the rater has not judged; None if there is none left.

    Raters share one order, so early stoppers judge the same items as the others. ``besides``
    leaves out the item that the rater is looking at.
    """
    known = {one.position for one in votes(said) if one.rater == rater}
    waiting = (one for one in items if one.position not in known and one.position != besides)
    return min(waiting, key=lambda one: one.position, default=None)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one rater; ``judged`` counts "can't tell" too."""

    rater: str
    judged: int
    cannot_tell: int
    size: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "rater": self.rater,
            "judged": self.judged,
            "cannot_tell": self.cannot_tell,
            "of": self.size,
            "finished": self.judged >= self.size,
        }


def progress(size: int, said: Sequence[RaterJudgment]) -> list[Progress]:
    """Return the progress of every rater, by name; decisions do not count."""
    said = votes(said)
    judged = Counter(one.rater for one in said)
    unsure = Counter(one.rater for one in said if one.grade is None)
    return [Progress(name, judged[name], unsure[name], size) for name in sorted(judged)]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two raters on the items that both graded.

    ``n`` counts them and ``same`` those with the same grade. The share and both kappas are None
    where they are unknown; ``because`` says why.
    """

    raters: tuple[str, str]
    n: int
    same: int
    share: float | None
    kappa: float | None
    linear: float | None
    because: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "raters": list(self.raters),
            "n": self.n,
            "same": self.same,
            "share": self.share,
            "kappa": self.kappa,
            "kappa_linear": self.linear,
            "because": self.because,
        }


def agreement(said: Sequence[RaterJudgment], *, few: int = FEW) -> list[Agreement]:
    """Return the agreement of every two raters, by name; "can't tell" is not counted."""
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
    said: Iterable[RaterJudgment], raters: Sequence[str], grades: Sequence[float]
) -> NDArray[np.int32]:
    """Return a row per rater and a column per item: the number of the grade, -1 for none."""
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
    if n < few:
        lacking = f"not enough: {n} of at least {few} items that both graded"
        return Agreement(raters, n, same, None, None, None, lacking)
    if math.isnan(plain):
        because = "no kappa: both gave one and the same grade throughout"
        return Agreement(raters, n, same, same / n, None, None, because)
    return Agreement(raters, n, same, same / n, plain, linear, None)


@dataclass(frozen=True, slots=True)
class Tie:
    """An item on which no grade has the most raters."""

    position: int
    query_id: str
    item_id: str
    grades: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        grades = {rater: _plain(grade) for rater, grade in self.grades.items()}
        return {"query_id": self.query_id, "item_id": self.item_id, "grades": grades}


@dataclass(frozen=True, eq=False)
class Majority:
    """One grade per item: the decided one, else the one that most raters gave.

    ``ties`` are items without such a grade; ``cannot_tell`` counts those that were judged but
    that nobody could grade, ``unjudged`` those that nobody judged. None of the three has a grade.
    ``adjudicated`` counts the items with a decision, whatever it was.
    """

    grades: list[tuple[Item, float]]
    ties: list[Tie]
    cannot_tell: int
    unjudged: int
    adjudicated: int = 0

    def counts(self) -> dict[str, int]:
        """Return the number of items of each kind."""
        return {
            "graded": len(self.grades),
            "ties": len(self.ties),
            "cannot_tell": self.cannot_tell,
            "unjudged": self.unjudged,
        }


def majority(items: Sequence[Item], said: Sequence[RaterJudgment]) -> Majority:
    """Return the decided grade of each item, else the majority; "can't tell" is no vote."""
    return settled(
        items, said, {at: _most(list(own.values())) for at, own in graded(votes(said)).items()}
    )


def graded(said: Iterable[RaterJudgment]) -> dict[int, dict[str, float]]:
    """Return the grades of each item, by position and by rater."""
    found: dict[int, dict[str, float]] = {}
    for one in sorted(said, key=lambda one: one.rater):
        if one.grade is not None:
            found.setdefault(one.position, {})[one.rater] = float(one.grade)
    return found


def settled(
    items: Sequence[Item], said: Sequence[RaterJudgment], chosen: Mapping[int, float | None]
) -> Majority:
    """Return every item with its decided grade, else the chosen one, else among those without.

    ``chosen`` has the grade of each graded item, None where no grade wins.
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
    """Return the grade with the most votes; None where two have as many."""
    first = Counter(given).most_common(2)
    if not first or (len(first) > 1 and first[0][1] == first[1][1]):
        return None
    return first[0][0]


def label_lines(items: Sequence[Item], said: Sequence[RaterJudgment]) -> Iterator[str]:
    """Yield every judgment as a line of a label file, by item, then rater, then time.

    A "can't tell" is a line with an ``error``, never a 0.
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
    """Return a time to the microsecond, so that it is read back unchanged."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def qrels_lines(found: Majority) -> Iterator[str]:
    """Yield the grades as TREC qrels; an id that a qrels file cannot hold is refused."""
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


Method = Literal["majority", "dawid-skene", "adjudicated"]
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True, eq=False, slots=True)
class Conflict:
    """An item that raters grade differently; ``decision`` is what settled it, if anything.

    ``votes`` are in the order of the raters' names, with "can't tell" among them.
    """

    item: Item
    votes: list[RaterJudgment]
    decision: RaterJudgment | None

    @property
    def spread(self) -> float:
        """The difference between the highest and the lowest grade."""
        grades = [one.grade for one in self.votes if one.grade is not None]
        return max(grades) - min(grades)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "query_id": self.item.query_id,
            "item_id": self.item.item_id,
            "spread": self.spread,
            "judgments": [_judgment_dict(one) for one in self.votes],
            "decision": None if self.decision is None else _judgment_dict(self.decision),
        }


def conflicts(items: Sequence[Item], said: Sequence[RaterJudgment]) -> list[Conflict]:
    """Return items with different grades: largest difference first, then most raters.

    "Can't tell" contradicts no grade.
    """
    differ = {at for at, own in graded(votes(said)).items() if len(set(own.values())) > 1}
    by_item: dict[int, list[RaterJudgment]] = {at: [] for at in differ}
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


def resolve(
    items: Sequence[Item], said: Sequence[RaterJudgment], method: str = "majority"
) -> Majority:
    """Return one grade per item: by majority, by Dawid and Skene's model, or as decided.

    A decision holds whatever the method. If no grade wins, the item is a tie.
    """
    if method == "majority":
        return majority(items, said)
    if method == "dawid-skene":
        return settled(items, said, _most_likely(votes(said)))
    if method == "adjudicated":
        return majority(items, list(decisions(said).values()))
    raise unknown("way to resolve", method, METHODS)


def gold_of(found: Majority) -> Gold:
    """Return the grades as gold, in the order of the set."""
    rows = [(item.query_id, item.item_id, grade) for item, grade in found.grades]
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}
    return Gold.from_frame(pl.DataFrame(rows, schema=schema, orient="row"))


def alphas(said: Sequence[RaterJudgment]) -> dict[str, float | None]:
    """Return Krippendorff's alpha of all raters, by level; None where it is unknown."""
    told = [one for one in votes(said) if one.grade is not None]
    items = np.array([one.position for one in told], dtype=np.int64)
    grades = np.array([one.grade for one in told], dtype=np.float64)
    return {level: krippendorff_alpha(items, grades, level=level) for level in LEVELS}


def _most_likely(said: Iterable[RaterJudgment]) -> dict[int, float | None]:
    """Return the most probable grade of each item; None where two are equally probable."""
    told = [one for one in said if one.grade is not None]
    names = sorted({one.rater for one in told})
    if len(names) < 2:
        raise UsageError(
            "Dawid and Skene's model learns raters' errors from where they differ, so it needs at"
            f" least two raters; {'one graded' if names else 'nobody graded'} anything here"
        )
    places = {name: at for at, name in enumerate(names)}
    found = dawid_skene(
        np.array([places[one.rater] for one in told], dtype=np.int64),
        np.array([one.position for one in told], dtype=np.int64),
        np.array([one.grade for one in told], dtype=np.float64),
    )
    likely = zip(found.items.tolist(), found.most_likely().tolist(), strict=True)
    return {at: None if np.isnan(grade) else grade for at, grade in likely}


def _judgment_dict(one: RaterJudgment) -> dict[str, Any]:
    return {
        "rater": one.rater,
        "grade": one.grade,
        "rationale": one.rationale,
        "source": one.source,
        "given_at": one.given_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
