"""What the store takes and returns: evaluations, label sets and judgments, with their checks."""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from karat.data.columns import NUL_IN_ID, Source
from karat.data.revision import Revision
from karat.errors import InputError, UsageError
from karat.formats.labels import ADJUDICATION, HUMAN
from karat.measure.scores import Scores, Summary

LONGEST_NAME = 255
_LONGEST_RATER = 100
_HIGHEST_GRADE = 100
# Up to a day ahead may be another clock or time zone; more is a mistake.
_CLOCK_TOLERANCE = timedelta(days=1)
_TICK, _LAST_TIME = timedelta(microseconds=1), datetime.max.replace(tzinfo=UTC)
_TAG = re.compile(r"[^\s,:]{1,100}")
_WHOLE_NUMBER = re.compile(r"[+-]?\d+")


class NoHistoryError(InputError):
    """There is no store at a place yet: nothing was ever saved there."""


class NotStoredError(UsageError):
    """An evaluation, a report or a label set that the store does not have."""


class NameTakenError(UsageError):
    """Another label set has the name of a new one."""


@dataclass(frozen=True, eq=False)
class SavedEvaluation:
    """One system, evaluated and saved.

    ``saved_at`` is in UTC and ``version`` is that of karat. Systems that were saved together
    share a ``report_id``. Equal judgments have the same ``fingerprint``, whatever the order of
    the gold's lines.
    """

    id: int
    report_id: int
    saved_at: datetime
    system: str
    summaries: Mapping[str, Summary]
    conventions: Mapping[str, Any]
    version: str
    run: Source
    gold: Source
    queries: Source | None = None
    corpus: Source | None = None
    fingerprint: str = ""
    tags: tuple[str, ...] = ()
    revision: Revision | None = None
    note: str = ""
    verdict: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the evaluation as JSON has it."""
        return {
            "id": self.id,
            "report_id": self.report_id,
            "saved_at": timestamp(self.saved_at),
            "system": self.system,
            "tags": list(self.tags),
            "revision": self.revision and self.revision.document(),
            "note": self.note,
            "verdict": self.verdict,
            "karat": self.version,
            "measures": {
                name: {**_mean_and_ci(summary), "better": summary.better}
                for name, summary in self.summaries.items()
            },
            "conventions": dict(self.conventions),
            "inputs": {
                kind: source and {"name": source.name, "sha256": source.sha256}
                for kind, source in (
                    ("run", self.run),
                    ("gold", self.gold),
                    ("queries", self.queries),
                    ("corpus", self.corpus),
                )
            },
            "meta": dict(self.meta),
        }


@dataclass(frozen=True, eq=False)
class RestoredEvaluation:
    """A saved evaluation with its scores per query, and the report it was part of.

    The store does not keep result lists: ``scores.lists`` is None.
    """

    evaluation: SavedEvaluation
    scores: Scores
    report: Mapping[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class EvaluationPage:
    """A page of a list of evaluations, and their number on all pages."""

    evaluations: list[SavedEvaluation]
    total: int


@dataclass(frozen=True, slots=True)
class StoredNames:
    """Every name that evaluations can be filtered by, sorted."""

    systems: list[str]
    tags: list[str]
    measures: list[str]
    verdicts: list[str]


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One evaluation in the trend of a measure.

    ``change`` is the difference to the system's point before. ``breaks`` names what changed since
    then so that the two cannot be compared: gold, queries or conventions; ``change`` is None then.
    """

    measure: str
    saved: SavedEvaluation
    breaks: tuple[str, ...] = ()
    change: float | None = None

    @property
    def summary(self) -> Summary:
        """Return the summary of the measure."""
        return self.saved.summaries[self.measure]

    def document(self) -> dict[str, Any]:
        """Return the point as JSON has it."""
        saved = self.saved.document()
        listed_keys = ("id", "saved_at", "system", "revision", "tags")
        return {
            **{name: saved[name] for name in listed_keys},
            **_mean_and_ci(self.summary),
            "change": _finite(self.change),
            "breaks": list(self.breaks),
            "gold": saved["inputs"]["gold"],
        }


def timestamp(moment: datetime) -> str:
    """Return a time as ISO 8601 in UTC, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _mean_and_ci(summary: Summary) -> dict[str, Any]:
    ci = summary.ci and [_finite(end) for end in summary.ci]
    return {"mean": _finite(summary.mean), "ci": ci, "n": summary.n}


def _finite(value: float | None) -> float | None:
    """Return a number, or None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class LabelItem:
    """A query and an item that raters judge together, with the texts they read.

    ``position`` is the place in the set, from 0 on; the store sets it. ``facts`` is what else
    raters see, such as ``as_of``.
    """

    query_id: str
    item_id: str
    query: str
    text: str
    position: int = 0
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LabelSet:
    """Items that raters judge one by one; sets of the same items have the same ``digest``."""

    id: int
    name: str
    made_at: datetime
    size: int
    about: str
    digest: str

    def document(self) -> dict[str, Any]:
        """Return the set as JSON has it, without its items."""
        return asdict(self) | {"made_at": timestamp(self.made_at)}


@dataclass(frozen=True, slots=True)
class Judgment:
    """What a rater said of the item at a position; the grade None is "can't tell".

    ``withdrawn_at`` is when it was withdrawn, or None. ``source`` is ``human``, ``judge``,
    ``adjudication``, or whatever an import says.
    """

    id: int
    set_id: int
    position: int
    rater: str
    grade: float | None
    rationale: str
    given_at: datetime
    withdrawn_at: datetime | None = None
    source: str = HUMAN

    @property
    def decides(self) -> bool:
        """Return whether it decides between raters, instead of being one more vote."""
        return self.source == ADJUDICATION

    def document(self) -> dict[str, Any]:
        """Return the judgment as JSON has it."""
        times = {"given_at": self.given_at, "withdrawn_at": self.withdrawn_at}
        return asdict(self) | {name: time and timestamp(time) for name, time in times.items()}


@dataclass(frozen=True, slots=True)
class NewJudgment:
    """A judgment to add; without ``given_at`` it is given now."""

    position: int
    rater: str
    grade: float | None
    rationale: str = ""
    source: str = HUMAN
    given_at: datetime | None = None
    withdrawn_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AddedJudgments:
    """The number of judgments that were added, and of those that were known already."""

    added: int
    known: int


@dataclass(frozen=True, slots=True)
class AddedLabelSet:
    """A label set, whether it is new, and the judgments added to it."""

    set: LabelSet
    new: bool
    judgments: AddedJudgments


def storable_text(text: str) -> str:
    """Return a text that every database accepts: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def storable_name(kind: str, name: str) -> str:
    """Return a name as it is stored; refuse one that is too long."""
    if len(name) > LONGEST_NAME:
        raise UsageError(f"the {kind} {name[:40]!r}… is too long a name; at most {LONGEST_NAME}")
    return storable_text(name)


def as_utc(moment: datetime | None) -> datetime:
    """Return a time in UTC: now, unless one is given."""
    if moment is None:
        return datetime.now(UTC)
    if moment.tzinfo is None:
        raise UsageError("now has no time zone; use datetime.now(UTC)")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise UsageError(f"{moment.isoformat()} is no time in UTC; give another") from None


def not_before(earlier: datetime | None, now: datetime) -> datetime:
    """Return now, or the moment after an earlier event whose clock was ahead."""
    if earlier is None or earlier < now:
        return now
    return earlier + _TICK if earlier < _LAST_TIME else earlier


def too_late(moment: datetime, now: datetime) -> bool:
    """Return whether a time is too far ahead to be another clock's.

    A judgment dated in the future would replace every judgment until then.
    """
    return moment - now > _CLOCK_TOLERANCE


def checked_tags(tags: Sequence[str]) -> list[str]:
    """Return the tags, each once; refuse what could be read as an id or as two tags.

    >>> checked_tags(["12"])
    Traceback (most recent call last):
    karat.errors.UsageError: tag '12' would read as an id; begin it with a letter
    """
    for tag in tags:
        if not isinstance(tag, str) or not _TAG.fullmatch(tag) or not tag.isprintable():
            raise UsageError(f"tag {tag!r}: use 1 to 100 characters, no blank, comma or colon")
        if tag.isdecimal():
            raise UsageError(f"tag {tag!r} would read as an id; begin it with a letter")
    return list(dict.fromkeys(tags))


def checked_rater(name: str) -> str:
    """Return a rater's name as it is stored; equal letters are one rater, however typed.

    >>> checked_rater(" Ana ")
    'Ana'
    """
    return printable_name("rater", name, _LONGEST_RATER)


def printable_name(kind: str, name: str, longest: int = LONGEST_NAME) -> str:
    """Return a rater or the source of a judgment as it is stored; refuse one that is too long."""
    plain = unicodedata.normalize("NFC", name).strip() if isinstance(name, str) else ""
    if not 1 <= len(plain) <= longest or not plain.isprintable():
        raise UsageError(f"{kind} {name!r}: use 1 to {longest} printable characters")
    return plain


def checked_grade(grade: float | None) -> float | None:
    """Return a grade as it is stored; None is "can't tell"."""
    if grade is None:
        return None
    number = not isinstance(grade, bool) and isinstance(grade, int | float)
    # NaN is in no range.
    if not number or not 0 <= grade <= _HIGHEST_GRADE:
        raise UsageError(
            f"grade {grade!r}: give a number from 0 to {_HIGHEST_GRADE}, or none for can't tell"
        )
    return float(grade)


def checked_set_name(name: str) -> str:
    """Return a set's name as it is stored."""
    plain = storable_name("label set", name.strip())
    if not plain:
        raise UsageError("a label set needs a name")
    if _WHOLE_NUMBER.fullmatch(plain):
        raise UsageError(
            f"a label set cannot be called {plain!r}: whole numbers are the ids of sets; give a"
            " name with a letter in it"
        )
    return plain


def checked_items(items: Sequence[LabelItem]) -> list[LabelItem]:
    """Return the items as they are stored, with their positions; refuse a repeated pair."""
    if not items:
        raise UsageError("a label set needs at least one item")
    checked: dict[tuple[str, str], LabelItem] = {}
    for position, item in enumerate(items):
        if "\0" in item.query_id or "\0" in item.item_id:
            names = f"the query {item.query_id[:100]!r} or the item {item.item_id[:100]!r}"
            raise UsageError(f"{names} {NUL_IN_ID}")
        facts = sorted(item.facts.items())
        stored = replace(
            item,
            query_id=storable_text(item.query_id),
            item_id=storable_text(item.item_id),
            query=storable_text(item.query),
            text=storable_text(item.text),
            facts={storable_text(name): storable_text(fact) for name, fact in facts},
            position=position,
        )
        pair = stored.query_id, stored.item_id
        if pair in checked:
            raise UsageError(
                f"the query {pair[0][:100]!r} and the item {pair[1][:100]!r} are in the"
                " set twice; give each pair once"
            )
        checked[pair] = stored
    return list(checked.values())


def digest_of(items: Sequence[LabelItem]) -> str:
    """Return a digest that is equal for the same items in any order."""
    content = sorted(
        [item.query_id, item.item_id, item.query, item.text, dict(item.facts)] for item in items
    )
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
