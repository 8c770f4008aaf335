"""Items to judge, label sets and judgments: what the store returns, and the checks on them."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from karat.data.columns import NUL_IN_ID
from karat.errors import UsageError
from karat.formats.labels import ADJUDICATION, HUMAN
from karat.store.records import timestamp
from karat.store.rows import storable_name, storable_text

_LONGEST_RATER, _LONGEST_SOURCE = 100, 255
_HIGHEST_GRADE = 100
# Up to a day ahead may be another clock or time zone; more is a mistake.
_CLOCK_TOLERANCE = timedelta(days=1)
_WHOLE_NUMBER = re.compile(r"[+-]?\d+")


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

    def document(self) -> dict[str, Any]:
        """Return the item as JSON has it."""
        return asdict(self)


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
        withdrawn_at = self.withdrawn_at and timestamp(self.withdrawn_at)
        return asdict(self) | {
            "given_at": timestamp(self.given_at),
            "withdrawn_at": withdrawn_at,
        }


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


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of items that a rater has judged, and of those with "can't tell"."""

    rater: str
    judged: int
    cannot_tell: int


def checked_rater(name: str) -> str:
    """Return a rater's name as it is stored; equal letters are one rater, however typed.

    >>> checked_rater(" Ana ")
    'Ana'
    """
    return _printable("rater", name, _LONGEST_RATER)


def checked_source(source: str) -> str:
    """Return the source of a judgment as it is stored.

    >>> checked_source(" judge ")
    'judge'
    """
    return _printable("source", source, _LONGEST_SOURCE)


def _printable(kind: str, name: str, longest: int) -> str:
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


def too_late(moment: datetime, now: datetime) -> bool:
    """Return whether a time is too far ahead to be another clock's.

    A judgment dated in the future would replace every judgment until then.
    """
    return moment > now + _CLOCK_TOLERANCE


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
