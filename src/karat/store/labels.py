"""Label sets and judgments in the store; nothing that a rater said is ever deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from karat.errors import UsageError
from karat.formats.labels import ADJUDICATION, HUMAN
from karat.store.database import Database
from karat.store.records import (
    AddedJudgments,
    AddedLabelSet,
    Judgment,
    LabelItem,
    LabelSet,
    NameTakenError,
    NewJudgment,
    NotStoredError,
    as_utc,
    checked_grade,
    checked_items,
    checked_rater,
    checked_set_name,
    digest_of,
    not_before,
    printable_name,
    storable_text,
    too_late,
)
from karat.store.schema import (
    JUDGMENTS,
    LABEL_ITEMS,
    LABEL_SETS,
    VERSIONS,
    clamp_id,
    new_id,
)


class LabelStore:
    """The label sets of a store, and what raters say of their items.

    Of several judgments of a rater on an item, the newest counts. A judgment whose source is
    ``adjudication`` is a decision: it is no vote, counts beside the votes, and replaces all
    earlier decisions on the item, whoever made them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_label_set(
        self, name: str, items: Sequence[LabelItem], *, about: str = "", now: datetime | None = None
    ) -> LabelSet:
        """Add a set of items to judge, or return the set that has the same items in any order.

        Items get their positions from their order. Names are unique, and no whole numbers, which
        are ids.
        """
        return self.add_judged_set(name, items, about=about, now=now).set

    def add_judged_set(
        self,
        name: str,
        items: Sequence[LabelItem],
        judgments: Sequence[NewJudgment] = (),
        *,
        about: str = "",
        now: datetime | None = None,
    ) -> AddedLabelSet:
        """Add a set as ``add_label_set`` does, with judgments, in one transaction.

        The position of a judgment is that of its item in ``items``. If several processes add the
        same set at once, one of them gets ``new=True``.
        """
        items, name, moment = checked_items(items), checked_set_name(name), as_utc(now)
        _check_positions(name, judgments, len(items))
        digest = digest_of(items)
        row: dict[str, Any] = {
            "name": name,
            "made_at": moment,
            "about": storable_text(about),
            "digest": digest,
            "size": len(items),
        }
        same_items = select(LABEL_SETS).where(LABEL_SETS.c.digest == digest).with_for_update()
        with self._database.writing() as connection:
            # Others who add a set at the same time wait here, and then find this one.
            connection.execute(select(VERSIONS.c.id).with_for_update())
            existing = connection.execute(same_items).mappings().first()
            if existing is not None:
                label_set = LabelSet(**existing)
                judgments = _moved_to_set(connection, label_set.id, items, judgments)
            else:
                same_name = select(LABEL_SETS.c.id).where(LABEL_SETS.c.name == name)
                if (taken := connection.execute(same_name).scalar()) is not None:
                    raise NameTakenError(
                        f"label set {taken} is called {name!r} already, and has other pairs or"
                        " texts; give this one another name"
                    )
                set_id = new_id(connection.execute(insert(LABEL_SETS).values(row)))
                label_set = LabelSet(id=set_id, **row)
                rows = [
                    {"set_id": set_id, **asdict(item), "facts": json.dumps(item.facts)}
                    for item in items
                ]
                connection.execute(insert(LABEL_ITEMS), rows)
            added = _add_new_judgments(connection, label_set.id, judgments, moment)
            return AddedLabelSet(label_set, existing is None, added)

    def label_sets(self) -> list[LabelSet]:
        """Return all label sets, newest first."""
        with self._database.reading() as connection:
            newest_first = select(LABEL_SETS).order_by(LABEL_SETS.c.id.desc())
            return [LabelSet(**row) for row in connection.execute(newest_first).mappings()]

    def label_set(self, id: int) -> LabelSet:
        """Return one label set."""
        with self._database.reading() as connection:
            return self._label_set(connection, id)

    def label_items(self, set_id: int) -> list[LabelItem]:
        """Return the items of a label set, in their order."""
        columns = [column for column in LABEL_ITEMS.c if column.name != "set_id"]
        in_set = select(*columns).where(LABEL_ITEMS.c.set_id == clamp_id(set_id))
        with self._database.reading() as connection:
            self._label_set(connection, set_id)
            rows = connection.execute(in_set.order_by(LABEL_ITEMS.c.position)).mappings().all()
        return [LabelItem(**{**row, "facts": json.loads(row["facts"])}) for row in rows]

    def judge(
        self,
        set_id: int,
        position: int,
        rater: str,
        grade: float | None,
        *,
        rationale: str = "",
        source: str = HUMAN,
        now: datetime | None = None,
    ) -> Judgment:
        """Add a rater's judgment: a grade from 0 to 100, or None for "can't tell".

        What it replaces stays in the store and no longer counts. Its time is now, or just after
        what it replaces.
        """
        judgment = NewJudgment(position, rater, grade, rationale, source)
        row = _judgment_row(set_id, judgment, as_utc(now))
        with self._judging(set_id) as (connection, size):
            _check_positions(set_id, [judgment], size)
            if now is None:
                replaced = _KnownJudgments(connection, set_id, [row]).counting(row)
                row["given_at"] = not_before(replaced and replaced["given_at"], row["given_at"])
            id = new_id(connection.execute(insert(JUDGMENTS).values(row)))
        return Judgment(id=id, **row)

    def judge_many(
        self, set_id: int, judgments: Sequence[NewJudgment], *, now: datetime | None = None
    ) -> AddedJudgments:
        """Add judgments in one transaction, all of them or none.

        Known judgments are not added again: those with the same grade and rationale as the one
        that counts or, if they have their own time, the same said at that time. A time more than
        a day ahead is refused.
        """
        moment = as_utc(now)
        with self._judging(set_id) as (connection, size):
            _check_positions(set_id, judgments, size)
            return _add_new_judgments(connection, set_id, judgments, moment)

    def take_back(self, set_id: int, rater: str, *, now: datetime | None = None) -> Judgment | None:
        """Withdraw the rater's newest vote that counts; return None if there is none.

        The rater's vote before it counts again.
        """
        votes = select(JUDGMENTS).where(
            JUDGMENTS.c.set_id == clamp_id(set_id),
            JUDGMENTS.c.rater == checked_rater(rater),
            JUDGMENTS.c.source != ADJUDICATION,
            JUDGMENTS.c.withdrawn_at.is_(None),
        )
        newest = votes.order_by(JUDGMENTS.c.given_at.desc(), JUDGMENTS.c.id.desc()).limit(1)
        with self._judging(set_id) as (connection, _):
            row = connection.execute(newest).mappings().first()
            return None if row is None else _withdraw(connection, row, as_utc(now))

    def withdraw(self, set_id: int, judgment_id: int, *, now: datetime | None = None) -> Judgment:
        """Withdraw one judgment, a vote or a decision; it stays in the store."""
        judgment = select(JUDGMENTS).where(
            JUDGMENTS.c.id == clamp_id(judgment_id), JUDGMENTS.c.set_id == set_id
        )
        with self._judging(set_id) as (connection, _):
            row = connection.execute(judgment).mappings().first()
            if row is None:
                raise NotStoredError(f"no judgment {judgment_id} in label set {set_id}")
            if row["withdrawn_at"] is not None:
                raise UsageError(f"judgment {judgment_id} was withdrawn before")
            return _withdraw(connection, row, as_utc(now))

    def judgments(
        self, set_id: int, *, rater: str | None = None, every: bool = False
    ) -> list[Judgment]:
        """Return the judgments that count, oldest first.

        With ``every``, also return those that were replaced or withdrawn.
        """
        name = None if rater is None else checked_rater(rater)
        statement = select(JUDGMENTS).where(JUDGMENTS.c.set_id == clamp_id(set_id))
        if name is not None:
            # Another rater's decision may replace one of this rater's.
            decided = (JUDGMENTS.c.source == ADJUDICATION) & (not every)
            statement = statement.where((JUDGMENTS.c.rater == name) | decided)
        if not every:
            statement = statement.where(JUDGMENTS.c.withdrawn_at.is_(None))
        # By time, not by id: an import adds what was said earlier elsewhere.
        statement = statement.order_by(JUDGMENTS.c.given_at, JUDGMENTS.c.id)
        with self._database.reading() as connection:
            self._label_set(connection, set_id)
            # Columns have the order of the fields; matching them by name takes twice as long.
            judgments = [Judgment(*row) for row in connection.execute(statement).all()]
        if every:
            return judgments
        newest = {
            (judgment.position, None if judgment.decides else judgment.rater): judgment
            for judgment in judgments
        }
        counting = {judgment.id for judgment in newest.values() if name in (None, judgment.rater)}
        return [judgment for judgment in judgments if judgment.id in counting]

    @contextmanager
    def _judging(self, set_id: int) -> Iterator[tuple[Connection, int]]:
        """Begin a transaction on the judgments of a set; yield it with the size of the set.

        Others who change judgments of the set wait here. The stamp stays, since no report shows
        judgments.
        """
        with self._database.writing(create=False, marks=False) as connection:
            yield connection, self._label_set(connection, set_id, locked=True).size

    def _label_set(self, connection: Connection, id: int, *, locked: bool = False) -> LabelSet:
        """Return one set; ``locked`` keeps others from changing what belongs to it."""
        statement = select(LABEL_SETS).where(LABEL_SETS.c.id == clamp_id(id))
        if locked:
            statement = statement.with_for_update()
        row = connection.execute(statement).mappings().first()
        if row is None:
            where = self._database.address.name
            raise NotStoredError(f"no label set {id} in {where}; karat labels list shows them")
        return LabelSet(**row)


def _check_positions(name: int | str, judgments: Sequence[NewJudgment], size: int) -> None:
    for position in (judgment.position for judgment in judgments):
        is_index = isinstance(position, int) and not isinstance(position, bool)
        if not is_index or not 0 <= position < size:
            raise UsageError(f"label set {name} has no position {position}; it has 0 to {size - 1}")


def _moved_to_set(
    connection: Connection,
    set_id: int,
    items: Sequence[LabelItem],
    judgments: Sequence[NewJudgment],
) -> list[NewJudgment]:
    """Return judgments of items at the positions of a set that has them in another order."""
    columns = LABEL_ITEMS.c.query_id, LABEL_ITEMS.c.item_id, LABEL_ITEMS.c.position
    rows = connection.execute(select(*columns).where(LABEL_ITEMS.c.set_id == set_id))
    positions = {(query_id, item_id): position for query_id, item_id, position in rows}
    moved = [positions[item.query_id, item.item_id] for item in items]
    return [replace(judgment, position=moved[judgment.position]) for judgment in judgments]


def _judgment_row(set_id: int, judgment: NewJudgment, now: datetime) -> dict[str, Any]:
    given_at, withdrawn_at = judgment.given_at, judgment.withdrawn_at
    return {
        "set_id": set_id,
        "position": judgment.position,
        "rater": checked_rater(judgment.rater),
        "grade": checked_grade(judgment.grade),
        "rationale": storable_text(judgment.rationale),
        "source": printable_name("source", judgment.source),
        "given_at": now if given_at is None else _past("given_at", given_at, now),
        "withdrawn_at": withdrawn_at and _past("withdrawn_at", withdrawn_at, now),
    }


def _past(name: str, moment: datetime, now: datetime) -> datetime:
    moment = as_utc(moment)
    if too_late(moment, now):
        raise UsageError(f"{name} is {moment.isoformat()}, which is still to come; check the clock")
    return moment


def _add_new_judgments(
    connection: Connection, set_id: int, judgments: Sequence[NewJudgment], now: datetime
) -> AddedJudgments:
    """Add the judgments that a set does not have yet; the caller holds the set's lock."""
    rows = [_judgment_row(set_id, judgment, now) for judgment in judgments]
    if not rows:
        return AddedJudgments(0, 0)
    stored_judgments = _KnownJudgments(connection, set_id, rows)
    new = [
        row
        for row, judgment in zip(rows, judgments, strict=True)
        if stored_judgments.add(row, timed=judgment.given_at is not None)
    ]
    if new:
        connection.execute(insert(JUDGMENTS), new)
    return AddedJudgments(len(new), len(rows) - len(new))


class _KnownJudgments:
    """Stored judgments that new rows may repeat or replace."""

    def __init__(self, connection: Connection, set_id: int, rows: Sequence[Any]) -> None:
        # Whose newest judgment counts: a rater's votes on an item, or all decisions on it.
        self._counting: dict[tuple[str | None, int], Any] = {}
        self._ever: set[tuple[Any, ...]] = set()
        positions = [row["position"] for row in rows]
        statement = select(JUDGMENTS).where(
            JUDGMENTS.c.set_id == set_id,
            JUDGMENTS.c.position.between(min(positions), max(positions)),
        )
        raters = {row["rater"] for row in rows}
        if len(raters) == 1:
            decided = JUDGMENTS.c.source == ADJUDICATION
            statement = statement.where(JUDGMENTS.c.rater.in_(raters) | decided)
        for row in connection.execute(statement.order_by(JUDGMENTS.c.id)).mappings():
            self._note(row)

    def counting(self, row: Any) -> Any:
        """Return the judgment that a row would replace, or None."""
        return self._counting.get(_whose(row))

    def add(self, row: dict[str, Any], *, timed: bool) -> bool:
        """Add a row unless it is known, and return whether it was new.

        A row that is not ``timed`` by its source gets a time after what it replaces.
        """
        before = self.counting(row)
        if timed:
            is_known = _event(row) in self._ever
        else:
            is_known = before is not None and _content(before) == _content(row)
        if not is_known:
            if before is not None and not timed and row["withdrawn_at"] is None:
                row["given_at"] = not_before(before["given_at"], row["given_at"])
            self._note(row)
        return not is_known

    def _note(self, row: Any) -> None:
        self._ever.add(_event(row))
        before = self.counting(row)
        newest = before is None or before["given_at"] <= row["given_at"]
        if row["withdrawn_at"] is None and newest:
            self._counting[_whose(row)] = row


def _whose(row: Any) -> tuple[str | None, int]:
    return None if row["source"] == ADJUDICATION else row["rater"], row["position"]


def _content(row: Any) -> tuple[str, float | None, str]:
    return row["rater"], row["grade"], row["rationale"]


def _event(row: Any) -> tuple[Any, ...]:
    return (*_whose(row), *_content(row), row["given_at"])


def _withdraw(connection: Connection, row: Any, moment: datetime) -> Judgment:
    judgment = update(JUDGMENTS).where(JUDGMENTS.c.id == row["id"])
    connection.execute(judgment.values(withdrawn_at=moment))
    return Judgment(**{**row, "withdrawn_at": moment})
