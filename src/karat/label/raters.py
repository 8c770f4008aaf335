"""Raters of a label set: the next item, progress, agreement, conflicts and one grade per item.

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
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from karat.data.tables import Gold
from karat.errors import InputError, UsageError, unknown
from karat.formats.json_records import whole_if_possible
from karat.formats.labels import ADJUDICATION
from karat.label.labels import JUDGMENTS, TRUTHS, kappas, winning_grades
from karat.stats.agreement import LEVELS, krippendorff_alpha
from karat.store.records import Judgment, LabelItem, checked_rater

SCALE = {0: "not relevant", 1: "related", 2: "relevant", 3: "perfect"}
CANNOT_TELL = "can't tell"
# With fewer common pairs than this, the agreement of two raters is not reported.
FEW = 10
# The ways to make one grade of several raters': the last one leaves out what was not decided.
METHODS = (*TRUTHS, "adjudicated")

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


def rater_progress(rater: str, judged: int, cannot_tell: int, size: int) -> dict[str, Any]:
    """Return the progress of one rater; ``judged`` counts "can't tell" too."""
    return {
        "rater": rater,
        "judged": judged,
        "cannot_tell": cannot_tell,
        "of": size,
        "finished": judged >= size,
    }


def progress(size: int, judgments: Sequence[Judgment]) -> list[dict[str, Any]]:
    """Return the progress of every rater, by name; decisions do not count."""
    judged = Counter(vote.rater for vote in votes(judgments))
    unsure = Counter(vote.rater for vote in votes(judgments) if vote.grade is None)
    return [rater_progress(name, judged[name], unsure[name], size) for name in sorted(judged)]


def agreement(judgments: Sequence[Judgment]) -> list[dict[str, Any]]:
    """Return the agreement of every two raters, by name, on the items that both graded.

    ``n`` counts these items and ``same`` those with the same grade. The share and both kappas
    are None where they are unknown; ``because`` says why.
    """
    raters = sorted({vote.rater for vote in votes(judgments)})
    grades: dict[str, dict[int, float]] = {rater: {} for rater in raters}
    for vote in _graded(judgments):
        grades[vote.rater][vote.position] = vote.grade or 0.0
    return [
        {"raters": [first, second], **_agreement(grades[first], grades[second])}
        for first, second in combinations(grades, 2)
    ]


def _agreement(first: dict[int, float], second: dict[int, float]) -> dict[str, Any]:
    both = [(grade, second[at]) for at, grade in first.items() if at in second]
    n, same = len(both), sum(grade == other for grade, other in both)
    share = plain = linear = because = None
    if n < FEW:
        because = f"not enough: {n} of at least {FEW} items that both graded"
    else:
        share, of_both = same / n, kappas(*np.array(both, dtype=np.float64).T)
        plain, linear = of_both["none"], of_both["linear"]
        if plain is None:
            because = "no kappa: both gave one and the same grade throughout"
    figures = {"share": share, "kappa": plain, "kappa_linear": linear}
    return {"n": n, "same": same, **figures, "because": because}


def _graded(judgments: Iterable[Judgment]) -> list[Judgment]:
    """Return the votes that are a grade, by rater."""
    graded = [vote for vote in votes(judgments) if vote.grade is not None]
    return sorted(graded, key=lambda vote: vote.rater)


def alphas(judgments: Sequence[Judgment]) -> dict[str, float | None]:
    """Return Krippendorff's alpha of all raters, by level; None where it is unknown."""
    graded = _graded(judgments)
    items = np.array([vote.position for vote in graded], dtype=np.int64)
    grades = np.array([vote.grade for vote in graded], dtype=np.float64)
    return {level: krippendorff_alpha(items, grades, level=level) for level in LEVELS}


@dataclass(frozen=True, eq=False)
class ResolvedGrades:
    """One grade per item: the decided one, else the one that wins.

    ``ties`` are items without such a grade; ``cannot_tell`` counts those that were judged but
    that nobody could grade, ``unjudged`` those that nobody judged. None of the three has a grade.
    ``adjudicated`` counts the items with a decision, whatever it was.
    """

    grades: list[tuple[LabelItem, float]]
    ties: list[dict[str, Any]]
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


def resolve(
    items: Sequence[LabelItem], judgments: Sequence[Judgment], method: str = "majority"
) -> ResolvedGrades:
    """Return one grade per item: by majority, by Dawid and Skene's model, or as decided.

    A decision holds whatever the method. If no grade wins, the item is a tie.
    """
    if method not in METHODS:
        raise unknown("way to resolve", method, METHODS)
    if method == "adjudicated":
        judgments = list(decisions(judgments).values())
    graded = _graded(judgments)
    if method == "dawid-skene" and len({vote.rater for vote in graded}) < 2:
        who = "one graded" if graded else "nobody graded"
        raise UsageError(f"Dawid and Skene's model needs at least two raters; {who} anything here")
    pairs = {item.position: (item.query_id, item.item_id) for item in items}
    rows = [
        (*pairs[each.position], each.rater, each.grade, each.decides)
        for each in sorted(judgments, key=lambda each: each.given_at)
    ]
    winning, _ = winning_grades(pl.DataFrame(rows, schema=JUDGMENTS, orient="row"), method)
    by_pair = {(query, item): grade for query, item, grade, _ in winning.iter_rows()}
    grades, ties, unsure = list[tuple[LabelItem, float]](), list[dict[str, Any]](), 0
    for item in sorted(items, key=lambda item: item.position):
        pair = pairs[item.position]
        if pair not in by_pair:
            continue
        grade = by_pair[pair]
        if grade is None:
            unsure += 1
        elif math.isnan(grade):
            of_item = (vote for vote in graded if vote.position == item.position)
            by_rater = {vote.rater: whole_if_possible(float(vote.grade or 0)) for vote in of_item}
            ties.append({"query_id": item.query_id, "item_id": item.item_id, "grades": by_rater})
        else:
            grades.append((item, grade))
    decided = int(winning["decided"].sum())
    return ResolvedGrades(grades, ties, unsure, len(items) - winning.height, decided)


def gold_of(resolved: ResolvedGrades) -> Gold:
    """Return the grades as gold, in the order of the set."""
    rows = [(item.query_id, item.item_id, grade) for item, grade in resolved.grades]
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}
    return Gold.from_frame(pl.DataFrame(rows, schema=schema, orient="row"))


def conflicts(items: Sequence[LabelItem], judgments: Sequence[Judgment]) -> list[dict[str, Any]]:
    """Return items with different grades: largest difference first, then most raters.

    ``judgments`` are the votes by rater, with "can't tell", which contradicts no grade;
    ``decision`` is what settled them, if anything.
    """
    decided = decisions(judgments)
    by_item: dict[int, list[Judgment]] = {}
    for vote in sorted(votes(judgments), key=lambda vote: vote.rater):
        by_item.setdefault(vote.position, []).append(vote)
    differing = []
    for item in sorted(items, key=lambda item: item.position):
        of_item, decision = by_item.get(item.position, []), decided.get(item.position)
        grades = [vote.grade for vote in of_item if vote.grade is not None]
        if len(set(grades)) > 1:
            differing.append(
                {
                    "query_id": item.query_id,
                    "item_id": item.item_id,
                    "spread": max(grades) - min(grades),
                    "judgments": [_judgment_dict(vote) for vote in of_item],
                    "decision": decision and _judgment_dict(decision),
                }
            )
    return sorted(differing, key=lambda each: (-each["spread"], -len(each["judgments"])))


def _judgment_dict(judgment: Judgment) -> dict[str, Any]:
    document = judgment.document()
    return {name: document[name] for name in ("rater", "grade", "rationale", "source", "given_at")}


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
            record["grade"] = whole_if_possible(float(each.grade))
        if each.rationale:
            record["rationale"] = each.rationale
        record |= {"rater": each.rater, "source": each.source, "given_at": _time(each.given_at)}
        if each.withdrawn_at is not None:
            record["withdrawn_at"] = _time(each.withdrawn_at)
        yield json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"


def _time(moment: datetime) -> str:
    """Return a time to the microsecond, so that it is read back unchanged."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def qrels_lines(resolved: ResolvedGrades) -> Iterator[str]:
    """Yield the grades as TREC qrels; an id that a qrels file cannot hold is refused."""
    for item, grade in resolved.grades:
        if item.query_id.startswith("#") or _BLANK.search(item.query_id + item.item_id):
            raise InputError(
                f"query {item.query_id!r}, item {item.item_id!r}: a TREC file cannot carry an id"
                " that holds white space or begins with '#'; export the labels as JSONL"
            )
        yield f"{item.query_id} 0 {item.item_id} {whole_if_possible(grade)}\n"
