"""Labelling by hand: the next item, progress, agreement, conflicts and one grade per item.

Items have a position, query_id and item_id. Judgments have a position, rater, grade, rationale,
source, given_at and withdrawn_at; the grade None is "can't tell". A judgment with the source
adjudication is a decision: it is no vote and overrides all votes. Nothing here knows where they
are stored, or which system returned an item.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from karat.data.tables import Gold
from karat.errors import InputError, UsageError, unknown
from karat.formats.labels import ADJUDICATION
from karat.stats import agreement as statistics
from karat.stats.agreement import dawid_skene
from karat.store.records import Judgment, LabelItem, checked_rater

SCALE = {0: "not relevant", 1: "related", 2: "relevant", 3: "perfect"}
CANNOT_TELL = "can't tell"
# With fewer common pairs than this, the agreement of two raters is not reported.
FEW = 10

_UNWRITTEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_BLANK = re.compile(r"[\s\x00\ufeff]")


def rater_name(name: str) -> str:
    """Return a rater's name as it is stored: NFC, with single spaces.

    >>> rater_name("  Ana   Luz ")
    'Ana Luz'
    """
    return checked_rater(" ".join(name.split()))


def rationale_text(text: str) -> str:
    """Return a rationale without surrounding blanks; lines stay, other controls are refused."""
    plain = text.replace("\r\n", "\n").strip()
    if _UNWRITTEN.search(plain):
        raise UsageError("the rationale holds control characters; write it in plain letters")
    return plain


def votes(judgments: Iterable[Judgment]) -> list[Judgment]:
    """Return the judgments of raters, without decisions."""
    return [judgment for judgment in judgments if judgment.source != ADJUDICATION]


def decisions(judgments: Iterable[Judgment]) -> dict[int, Judgment]:
    """Return the newest decision on each decided item, by position."""
    by_time = sorted(judgments, key=lambda judgment: judgment.given_at)
    return {each.position: each for each in by_time if each.source == ADJUDICATION}


def next_item(
    items: Iterable[LabelItem],
    judgments: Iterable[Judgment],
    rater: str,
    *,
    besides: int | None = None,
) -> LabelItem | None:
    """Return the first item that the rater has not judged; None if there is none left.

    Raters share one order, so early stoppers judge the same items as the others. ``besides``
    leaves out the item that the rater is looking at.
    """
    known = {judgment.position for judgment in votes(judgments) if judgment.rater == rater}
    waiting = (item for item in items if item.position not in known | {besides})
    return min(waiting, key=lambda item: item.position, default=None)


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


def progress(size: int, judgments: Sequence[Judgment]) -> list[Progress]:
    """Return the progress of every rater, by name; decisions do not count."""
    judged = Counter(vote.rater for vote in votes(judgments))
    unsure = Counter(vote.rater for vote in votes(judgments) if vote.grade is None)
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
    share: float | None = None
    kappa: float | None = None
    linear: float | None = None
    because: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        body = asdict(self)
        return {**body, "raters": list(self.raters), "kappa_linear": body.pop("linear")}


def agreement(judgments: Sequence[Judgment], *, few: int = FEW) -> list[Agreement]:
    """Return the agreement of every two raters, by name; "can't tell" is not counted."""
    graded = _graded(judgments)
    raters = sorted({vote.rater for vote in votes(judgments)})
    scale, places = np.unique([vote.grade for vote in graded], return_inverse=True)
    _, columns = np.unique([vote.position for vote in graded], return_inverse=True)
    # A row per rater and a column per item: the number of the grade, -1 for none.
    table = np.full((len(raters), columns.max(initial=-1) + 1), -1, dtype=np.int32)
    table[np.searchsorted(raters, [vote.rater for vote in graded]), columns] = places
    pairs, agreements = combinations(raters, 2), list[Agreement]()
    for tables in statistics.every_two(table, len(scale)):
        n, same = tables.sum(axis=(1, 2)), np.trace(tables, axis1=1, axis2=2)
        plain = statistics.kappas(tables)
        linear = statistics.kappas(tables, weights="linear", grades=scale.tolist())
        rows = zip(n.tolist(), same.tolist(), plain.tolist(), linear.tolist(), strict=True)
        agreements += [_agreement(next(pairs), *row, few=few) for row in rows]
    return agreements


def _agreement(
    raters: tuple[str, str], n: int, same: int, plain: float, linear: float, *, few: int
) -> Agreement:
    if n < few:
        because = f"not enough: {n} of at least {few} items that both graded"
        return Agreement(raters, n, same, because=because)
    if math.isnan(plain):
        because = "no kappa: both gave one and the same grade throughout"
        return Agreement(raters, n, same, same / n, because=because)
    return Agreement(raters, n, same, same / n, plain, linear)


def _graded(judgments: Iterable[Judgment]) -> list[Judgment]:
    """Return the votes that are a grade, by rater."""
    graded = [vote for vote in votes(judgments) if vote.grade is not None]
    return sorted(graded, key=lambda vote: vote.rater)


def alphas(judgments: Sequence[Judgment]) -> dict[str, float | None]:
    """Return Krippendorff's alpha of all raters, by level; None where it is unknown."""
    graded = _graded(judgments)
    items = np.array([vote.position for vote in graded], dtype=np.int64)
    grades = np.array([vote.grade for vote in graded], dtype=np.float64)
    return {
        level: statistics.krippendorff_alpha(items, grades, level=level)
        for level in statistics.LEVELS
    }


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

    grades: list[tuple[LabelItem, float]]
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


Method = Literal["majority", "dawid-skene", "adjudicated"]
METHODS: tuple[Method, ...] = get_args(Method)


def resolve(
    items: Sequence[LabelItem], judgments: Sequence[Judgment], method: str = "majority"
) -> Majority:
    """Return one grade per item: by majority, by Dawid and Skene's model, or as decided.

    A decision holds whatever the method. If no grade wins, the item is a tie.
    """
    if method not in METHODS:
        raise unknown("way to resolve", method, METHODS)
    decided = decisions(judgments)
    if method == "adjudicated":
        judgments = list(decided.values())
    graded = _graded(judgments)
    winners = _winners(graded, method)
    by_item: dict[int, dict[str, float]] = {}
    for vote in graded:
        by_item.setdefault(vote.position, {})[vote.rater] = float(vote.grade or 0)
    judged = {judgment.position for judgment in judgments}
    grades: list[tuple[LabelItem, float]] = []
    ties: list[Tie] = []
    unsure = 0
    for item in sorted(items, key=lambda item: item.position):
        at = item.position
        grade = decided[at].grade if at in decided else winners.get(at)
        if grade is not None and not math.isnan(grade):
            grades.append((item, float(grade)))
        elif at in by_item and at not in decided:
            ties.append(Tie(at, item.query_id, item.item_id, by_item[at]))
        else:
            unsure += at in judged
    unjudged = len(items) - len(grades) - len(ties) - unsure
    return Majority(grades, ties, unsure, unjudged, len(decided))


def _winners(graded: Sequence[Judgment], method: str) -> dict[int, float]:
    """Return the grade that wins on each graded item; NaN where none does."""
    positions = np.array([vote.position for vote in graded], dtype=np.int64)
    grades = np.array([vote.grade for vote in graded], dtype=np.float64)
    if method != "dawid-skene":
        known, winners = statistics.majority(positions, grades)
    else:
        names, raters = np.unique([vote.rater for vote in graded], return_inverse=True)
        if len(names) < 2:
            raise UsageError(
                "Dawid and Skene's model learns raters' errors from where they differ, so it needs"
                f" at least two raters; {'one graded' if graded else 'nobody graded'} anything here"
            )
        fitted = dawid_skene(raters, positions, grades)
        known, winners = fitted.items, fitted.most_likely()
    return dict(zip(known.tolist(), winners.tolist(), strict=True))


def gold_of(resolved: Majority) -> Gold:
    """Return the grades as gold, in the order of the set."""
    rows = [(item.query_id, item.item_id, grade) for item, grade in resolved.grades]
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}
    return Gold.from_frame(pl.DataFrame(rows, schema=schema, orient="row"))


@dataclass(frozen=True, eq=False, slots=True)
class Conflict:
    """An item that raters grade differently; ``decision`` is what settled it, if anything.

    ``votes`` are in the order of the raters' names, with "can't tell" among them. ``spread`` is
    the difference between the highest and the lowest grade.
    """

    item: LabelItem
    votes: list[Judgment]
    decision: Judgment | None
    spread: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "query_id": self.item.query_id,
            "item_id": self.item.item_id,
            "spread": self.spread,
            "judgments": [_judgment_dict(vote) for vote in self.votes],
            "decision": None if self.decision is None else _judgment_dict(self.decision),
        }


def conflicts(items: Sequence[LabelItem], judgments: Sequence[Judgment]) -> list[Conflict]:
    """Return items with different grades: largest difference first, then most raters.

    "Can't tell" contradicts no grade.
    """
    decided = decisions(judgments)
    by_item: dict[int, list[Judgment]] = {}
    for vote in sorted(votes(judgments), key=lambda vote: vote.rater):
        by_item.setdefault(vote.position, []).append(vote)
    differing = []
    for item in items:
        of_item = by_item.get(item.position, [])
        grades = [vote.grade for vote in of_item if vote.grade is not None]
        if len(set(grades)) > 1:
            spread = max(grades) - min(grades)
            differing.append(Conflict(item, of_item, decided.get(item.position), spread))
    return sorted(differing, key=lambda each: (-each.spread, -len(each.votes), each.item.position))


def _judgment_dict(judgment: Judgment) -> dict[str, Any]:
    return {
        "rater": judgment.rater,
        "grade": judgment.grade,
        "rationale": judgment.rationale,
        "source": judgment.source,
        "given_at": judgment.given_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def label_lines(items: Sequence[LabelItem], judgments: Sequence[Judgment]) -> Iterator[str]:
    """Yield every judgment as a line of a label file, by item, then rater, then time.

    A "can't tell" is a line with an ``error``, never a 0.
    """
    by_position = {item.position: item for item in items}
    for each in sorted(judgments, key=lambda each: (each.position, each.rater, each.given_at)):
        item = by_position[each.position]
        record: dict[str, Any] = {"query_id": item.query_id, "item_id": item.item_id}
        if each.grade is None:
            record["error"] = CANNOT_TELL
        else:
            record["grade"] = _plain(each.grade)
        if each.rationale:
            record["rationale"] = each.rationale
        record |= {"rater": each.rater, "source": each.source, "given_at": _time(each.given_at)}
        if each.withdrawn_at is not None:
            record["withdrawn_at"] = _time(each.withdrawn_at)
        yield json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _time(moment: datetime) -> str:
    """Return a time to the microsecond, so that it is read back unchanged."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def qrels_lines(resolved: Majority) -> Iterator[str]:
    """Yield the grades as TREC qrels; an id that a qrels file cannot hold is refused."""
    for item, grade in resolved.grades:
        for column, name in (("query_id", item.query_id), ("item_id", item.item_id)):
            if _BLANK.search(name) or (column == "query_id" and name.startswith("#")):
                raise InputError(
                    f"{column} {name!r} holds white space or begins with '#', which a TREC file"
                    " cannot carry; export the labels as JSONL"
                )
        yield f"{item.query_id} 0 {item.item_id} {_plain(grade)}\n"


def _plain(grade: float) -> float | int:
    return int(grade) if float(grade).is_integer() else grade
