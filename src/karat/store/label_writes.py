"""Many judgments added at once: all of them or none, and nothing that is there already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select

from karat.errors import UsageError
from karat.formats.labels import ADJUDICATION
from karat.store.label_records import (
    Added,
    NewJudgment,
    checked_grade,
    checked_rater,
    checked_source,
    too_late,
)
from karat.store.rows import after, kept_text, utc
from karat.store.schema import JUDGMENTS

Row = dict[str, Any]
# Of whose words the newest counts: a rater's votes on an item, or all decisions on it.
_Key = tuple[str | None, int]


def check_position(set_id: int | str, position: int, size: int) -> None:
    """Refuse a position that the set does not have."""
    whole = isinstance(position, int) and not isinstance(position, bool)
    if not whole or not 0 <= position < size:
        raise UsageError(f"label set {set_id} has no position {position}; it has 0 to {size - 1}")


def judgment_rows(set_id: int, given: Iterable[NewJudgment], now: datetime) -> list[Row]:
    """Judgments as rows; ``timed`` says that one brought its own time."""
    return [
        {
            "set_id": set_id,
            "position": one.position,
            "rater": checked_rater(one.rater),
            "grade": checked_grade(one.grade),
            "rationale": kept_text(one.rationale),
            "source": checked_source(one.source),
            "given_at": now if one.given_at is None else _moment("given_at", one.given_at, now),
            "withdrawn_at": one.withdrawn_at and _moment("withdrawn_at", one.withdrawn_at, now),
            "timed": one.given_at is not None,
        }
        for one in given
    ]


def _moment(name: str, moment: datetime, now: datetime) -> datetime:
    """A time that a judgment brought with it."""
    told = utc(moment)
    if too_late(told, now):
        raise UsageError(f"{name} is {told.isoformat()}, which is still to come; check the clock")
    return told


def after_others(connection: Connection, row: Row) -> datetime:
    """When something that is said now was said: after all that it replaces.

    What is replaced may have the time of another clock, which is ahead.
    """
    own = JUDGMENTS.c.position == row["position"], JUDGMENTS.c.withdrawn_at.is_(None)
    if row["source"] == ADJUDICATION:
        others = JUDGMENTS.c.source == ADJUDICATION
    else:
        others = (JUDGMENTS.c.rater == row["rater"]) & (JUDGMENTS.c.source != ADJUDICATION)
    newest = select(func.max(JUDGMENTS.c.given_at)).where(
        JUDGMENTS.c.set_id == row["set_id"], *own, others
    )
    return after(connection.execute(newest).scalar(), row["given_at"])


def add_judgments(connection: Connection, set_id: int, rows: Sequence[Row]) -> Added:
    """Add rows of one set that are not there yet, in the caller's transaction.

    A row without a time of its own is there if it is what counts; one with its time, if it
    was ever given. The caller keeps others from adding to the set meanwhile.
    """
    if not rows:
        return Added(0, 0)
    known = _Known(connection, set_id, rows)
    fresh = [row for row in rows if known.takes(row)]
    if fresh:
        kept = [{name: row[name] for name in row if name != "timed"} for row in fresh]
        connection.execute(insert(JUDGMENTS), kept)
    return Added(len(fresh), len(rows) - len(fresh))


class _Known:
    """What was said before, as far as it can be what the rows say, or what they replace."""

    def __init__(self, connection: Connection, set_id: int, rows: Sequence[Row]) -> None:
        self._counts: dict[_Key, Any] = {}
        self._ever: set[tuple[Any, ...]] = set()
        places = [row["position"] for row in rows]
        chosen = select(JUDGMENTS).where(
            JUDGMENTS.c.set_id == set_id,
            JUDGMENTS.c.position.between(min(places), max(places)),
        )
        raters = {row["rater"] for row in rows}
        if len(raters) == 1:
            decided = JUDGMENTS.c.source == ADJUDICATION
            chosen = chosen.where(JUDGMENTS.c.rater.in_(raters) | decided)
        for row in connection.execute(chosen.order_by(JUDGMENTS.c.id)).mappings():
            self._note(row)

    def takes(self, row: Row) -> bool:
        """Whether the row says something new; from then on it does not.

        One without a time of its own is said after what it replaces.
        """
        before = self._counts.get(_key(row))
        if row["timed"]:
            there = _event(row) in self._ever
        else:
            there = before is not None and _said(before) == _said(row)
        if not there:
            if before is not None and not row["timed"] and row["withdrawn_at"] is None:
                row["given_at"] = after(before["given_at"], row["given_at"])
            self._note(row)
        return not there

    def _note(self, row: Any) -> None:
        self._ever.add(_event(row))
        before = self._counts.get(_key(row))
        newest = before is None or before["given_at"] <= row["given_at"]
        if row["withdrawn_at"] is None and newest:
            self._counts[_key(row)] = row


def _key(row: Any) -> _Key:
    return None if row["source"] == ADJUDICATION else row["rater"], row["position"]


def _said(row: Any) -> tuple[str, float | None, str]:
    return row["rater"], row["grade"], row["rationale"]


def _event(row: Any) -> tuple[Any, ...]:
    return (*_key(row), *_said(row), row["given_at"])
