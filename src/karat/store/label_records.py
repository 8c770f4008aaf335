"""Items to judge, sets of them and judgments, as the store keeps them, and what each may be."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from karat.columns import NUL_IN_ID
from karat.errors import UsageError
from karat.formats.labels import ADJUDICATION, HUMAN
from karat.store.records import spelled
from karat.store.rows import kept_name, kept_text

_LONGEST_RATER, _LONGEST_SOURCE = 100, 255
_HIGHEST_GRADE = 100
# What is set a day ahead may be a clock, or its zone; what is further ahead is a mistake.
_AHEAD = timedelta(days=1)
_WHOLE = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, slots=True)
class LabelItem:
    """A query and an item that raters judge together, with what they read.

    ``position`` is the place in the set, from 0 on; the store gives it. ``facts`` is what else
    raters are told, such as ``as_of``.
    """

    query_id: str
    item_id: str
    query: str
    text: str
    position: int = 0
    facts: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The item as it stands in JSON."""
        return {
            "position": self.position,
            "query_id": self.query_id,
            "item_id": self.item_id,
            "query": self.query,
            "text": self.text,
            "facts": dict(self.facts),
        }


@dataclass(frozen=True, slots=True)
class LabelSet:
    """Items that raters judge one by one; ``digest`` is equal where the items are."""

    id: int
    name: str
    made_at: datetime
    size: int
    about: str
    digest: str

    def document(self) -> dict[str, Any]:
        """The set as it stands in JSON, without its items."""
        return {
            "id": self.id,
            "name": self.name,
            "made_at": spelled(self.made_at),
            "size": self.size,
            "about": self.about,
            "digest": self.digest,
        }


@dataclass(frozen=True, slots=True)
class Judgment:
    """What a rater said of the item at a position; the grade None is "can't tell".

    ``withdrawn_at`` is when it was taken back, None unless it was. ``source`` is where it comes
    from: ``human``, ``judge``, whatever an import says, or ``adjudication``.
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
        """Whether it settles what raters say of the item, instead of being one more vote."""
        return self.source == ADJUDICATION

    def document(self) -> dict[str, Any]:
        """The judgment as it stands in JSON."""
        return {
            "id": self.id,
            "set_id": self.set_id,
            "position": self.position,
            "rater": self.rater,
            "grade": self.grade,
            "rationale": self.rationale,
            "given_at": spelled(self.given_at),
            "withdrawn_at": self.withdrawn_at and spelled(self.withdrawn_at),
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class NewJudgment:
    """A judgment that is to be added; without ``given_at`` it is given now."""

    position: int
    rater: str
    grade: float | None
    rationale: str = ""
    source: str = HUMAN
    given_at: datetime | None = None
    withdrawn_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Added:
    """How many judgments were added, and how many were there already."""

    added: int
    known: int


@dataclass(frozen=True, slots=True)
class AddedSet:
    """A label set, whether it was made now, and what was added to it."""

    set: LabelSet
    new: bool
    judgments: Added


@dataclass(frozen=True, slots=True)
class Tally:
    """How many items a rater has judged, and of how many the rater could not tell."""

    rater: str
    judged: int
    cannot_tell: int


def checked_rater(name: str) -> str:
    """A rater's name as it is stored: the same letters are the same rater, however typed.

    >>> checked_rater(" Ana ")
    'Ana'
    """
    plain = unicodedata.normalize("NFC", name).strip() if isinstance(name, str) else ""
    if not 1 <= len(plain) <= _LONGEST_RATER or not plain.isprintable():
        raise UsageError(f"rater {name!r}: use 1 to {_LONGEST_RATER} printable characters")
    return plain


def checked_source(source: str) -> str:
    """Where a judgment comes from, as it is stored.

    >>> checked_source(" judge ")
    'judge'
    """
    plain = unicodedata.normalize("NFC", source).strip() if isinstance(source, str) else ""
    if not 1 <= len(plain) <= _LONGEST_SOURCE or not plain.isprintable():
        raise UsageError(f"source {source!r}: use 1 to {_LONGEST_SOURCE} printable characters")
    return plain


def checked_grade(grade: float | None) -> float | None:
    """A grade as it is stored; None is "can't tell"."""
    if grade is None:
        return None
    number = not isinstance(grade, bool) and isinstance(grade, int | float)
    # Not a number is in no range.
    if not number or not 0 <= grade <= _HIGHEST_GRADE:
        raise UsageError(
            f"grade {grade!r}: give a number from 0 to {_HIGHEST_GRADE}, or none for can't tell"
        )
    return float(grade)


def checked_set_name(name: str) -> str:
    """A set's name as it is stored."""
    plain = kept_name("label set", name.strip())
    if not plain:
        raise UsageError("a label set needs a name")
    if _WHOLE.fullmatch(plain):
        raise UsageError(
            f"a label set cannot be called {plain!r}: whole numbers are the ids of sets; give a"
            " name with a letter in it"
        )
    return plain


def too_late(moment: datetime, now: datetime) -> bool:
    """Whether a moment is so far ahead that nothing can have been said then.

    A judgment of the future would count above all that is said until then.
    """
    return moment > now + _AHEAD


def checked_items(items: Sequence[LabelItem]) -> list[LabelItem]:
    """The items as they are stored, at their positions; each pair once."""
    if not items:
        raise UsageError("a label set needs at least one item")
    found: dict[tuple[str, str], LabelItem] = {}
    for position, item in enumerate(items):
        if "\0" in item.query_id or "\0" in item.item_id:
            names = f"the query {item.query_id[:100]!r} or the item {item.item_id[:100]!r}"
            raise UsageError(f"{names} {NUL_IN_ID}")
        kept = _kept(item, position)
        pair = kept.query_id, kept.item_id
        if pair in found:
            raise UsageError(
                f"the query {kept.query_id[:100]!r} and the item {kept.item_id[:100]!r} are in the"
                " set twice; give each pair once"
            )
        found[pair] = kept
    return list(found.values())


def digest_of(items: Sequence[LabelItem]) -> str:
    """The same for the same items in whatever order."""
    told = sorted(
        [one.query_id, one.item_id, one.query, one.text, dict(one.facts)] for one in items
    )
    written = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()


def _kept(item: LabelItem, position: int) -> LabelItem:
    return replace(
        item,
        query_id=kept_text(item.query_id),
        item_id=kept_text(item.item_id),
        query=kept_text(item.query),
        text=kept_text(item.text),
        facts={kept_text(name): kept_text(told) for name, told in sorted(item.facts.items())},
        position=position,
    )
