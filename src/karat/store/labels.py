"""Label sets and judgments in the store; nothing that a rater said is ever deleted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    RowMapping,
    Text,
    cast,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from karat.errors import UsageError
from karat.formats.labels import ADJUDICATION, HUMAN
from karat.store.label_records import (
    AddedJudgments,
    AddedLabelSet,
    Judgment,
    LabelItem,
    LabelSet,
    NewJudgment,
    Tally,
    checked_grade,
    checked_items,
    checked_rater,
    checked_set_name,
    checked_source,
    digest_of,
    too_late,
)
from karat.store.records import NameTakenError, NotStoredError
from karat.store.rows import as_utc, not_before, storable_text
from karat.store.schema import (
    FIRST_WITH_LABELS,
    FIRST_WITH_SOURCES,
    JUDGMENTS,
    LABEL_ITEMS,
    LABEL_SETS,
    VERSIONS,
    clamp_id,
)
from karat.store.statements import new_id
from karat.store.transactions import Access

Row = dict[str, Any]
_SETS_LISTED = 20


class LabelStore:
    """The label sets of a store, and what raters say of their items.

    Of several judgments of a rater on an item, the newest counts. A judgment whose source is
    ``adjudication`` is a decision: it is no vote, counts beside the votes, and replaces all
    earlier decisions on the item, whoever made them.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

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
        items = checked_items(items)
        for judgment in judgments:
            _check_position(checked_set_name(name), judgment.position, len(items))
        digest, moment = digest_of(items), as_utc(now)
        row: Row = {
            "name": checked_set_name(name),
            "made_at": moment,
            "about": storable_text(about),
            "digest": digest,
            "size": len(items),
        }
        same_items = select(LABEL_SETS).where(LABEL_SETS.c.digest == digest)
        with self._access.writing() as connection:
            # Others who add a set at the same time wait here, and then find the name taken.
            connection.execute(select(VERSIONS.c.id).with_for_update())
            new = False
            if connection.execute(same_items).first() is None:
                _check_name_free(connection, row["name"])
                # An older karat does not wait, and may add the same items at this moment.
                with suppress(IntegrityError), connection.begin_nested():
                    _insert_set(connection, row, items)
                    new = True
            locked = connection.execute(same_items.with_for_update()).mappings().one()
            label_set = LabelSet(**locked)
            if not new:
                judgments = _moved_to_set(connection, label_set.id, items, judgments)
            rows = _judgment_rows(label_set.id, judgments, moment)
            added = _add_new_judgments(connection, label_set.id, rows)
            return AddedLabelSet(label_set, new, added)

    def label_sets(self) -> list[LabelSet]:
        """Return all label sets, newest first."""
        with self._access.reading() as (connection, version):
            if version < FIRST_WITH_LABELS:
                return []
            newest_first = select(LABEL_SETS).order_by(LABEL_SETS.c.id.desc())
            return [LabelSet(**row) for row in connection.execute(newest_first).mappings()]

    def label_set(self, id: int) -> LabelSet:
        """Return one label set."""
        with self._access.reading() as (connection, version):
            return self._label_set(connection, id, version)

    def label_items(self, set_id: int) -> list[LabelItem]:
        """Return the items of a label set, in their order."""
        in_set = select(LABEL_ITEMS).where(LABEL_ITEMS.c.set_id == clamp_id(set_id))
        with self._access.reading() as (connection, version):
            self._label_set(connection, set_id, version)
            rows = connection.execute(in_set.order_by(LABEL_ITEMS.c.position)).mappings().all()
        return [_item_of(row) for row in rows]

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
        (row,) = _judgment_rows(set_id, [judgment], as_utc(now))
        del row["timed"]
        with self._judging() as connection:
            _check_position(set_id, position, self._label_set(connection, set_id).size)
            if now is None:
                row["given_at"] = _after_replaced(connection, row)
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
        rows = _judgment_rows(set_id, judgments, as_utc(now))
        with self._judging() as connection:
            # Others who add the same at the same time wait here, and then find it there.
            size = self._label_set(connection, set_id, locked=True).size
            for row in rows:
                _check_position(set_id, row["position"], size)
            return _add_new_judgments(connection, set_id, rows)

    def take_back(self, set_id: int, rater: str, *, now: datetime | None = None) -> Judgment | None:
        """Withdraw the rater's newest vote that counts; return None if there is none.

        The rater's vote before it counts again.
        """
        rater, moment = checked_rater(rater), as_utc(now)
        with self._judging() as connection:
            # Whoever takes back at the same time waits here, and takes back the one before.
            self._label_set(connection, set_id, locked=True)
            votes = _select_judgments(set_id, rater).where(
                JUDGMENTS.c.source != ADJUDICATION, JUDGMENTS.c.withdrawn_at.is_(None)
            )
            newest = votes.order_by(JUDGMENTS.c.given_at.desc(), JUDGMENTS.c.id.desc()).limit(1)
            row = connection.execute(newest).mappings().first()
            return None if row is None else _withdraw(connection, row, moment)

    def withdraw(self, set_id: int, judgment_id: int, *, now: datetime | None = None) -> Judgment:
        """Withdraw one judgment, a vote or a decision; it stays in the store."""
        moment = as_utc(now)
        judgment = select(JUDGMENTS).where(
            JUDGMENTS.c.id == clamp_id(judgment_id), JUDGMENTS.c.set_id == set_id
        )
        with self._judging() as connection:
            self._label_set(connection, set_id, locked=True)
            row = connection.execute(judgment).mappings().first()
            if row is None:
                raise NotStoredError(f"no judgment {judgment_id} in label set {set_id}")
            if row["withdrawn_at"] is not None:
                raise UsageError(f"judgment {judgment_id} was withdrawn before")
            return _withdraw(connection, row, moment)

    def judgments(
        self, set_id: int, *, rater: str | None = None, every: bool = False
    ) -> list[Judgment]:
        """Return the judgments that count, oldest first.

        With ``every``, also return those that were replaced or withdrawn.
        """
        name = None if rater is None else checked_rater(rater)
        with self._access.reading() as (connection, version):
            self._label_set(connection, set_id, version)
            # Another rater's decision may replace one of this rater's.
            decisions = name is not None and not every and version >= FIRST_WITH_SOURCES
            statement = _select_judgments(set_id, name, version, decisions=decisions)
            if not every:
                statement = statement.where(JUDGMENTS.c.withdrawn_at.is_(None))
            # By time, not by id: an import adds what was said earlier elsewhere.
            statement = statement.order_by(JUDGMENTS.c.given_at, JUDGMENTS.c.id)
            # Columns have the order of the fields; matching them by name takes twice as long.
            found = [Judgment(*row) for row in connection.execute(statement).all()]
        if every:
            return found
        newest = {(one.position, None if one.decides else one.rater): one for one in found}
        counting = {one.id for one in newest.values() if name is None or one.rater == name}
        return [judgment for judgment in found if judgment.id in counting]

    def judgments_stamp(self, set_id: int) -> str:
        """Return a text that changes with every judgment and withdrawal in a set.

        It is a digest of all judgments: another store may have been put in place of this one.
        """
        with self._access.reading() as (connection, version):
            label_set = self._label_set(connection, set_id, version)
            row: ColumnElement[str] = literal("")
            for column in _judgment_columns(version):
                if column.name not in ("set_id", "rationale"):
                    row = row + "\t" + func.coalesce(cast(column, Text), "")
            rows = select(func.aggregate_strings(row, "\n"))
            content = connection.execute(rows.where(JUDGMENTS.c.set_id == clamp_id(set_id)))
            return sha256(f"{label_set}\n{content.scalar()}".encode()).hexdigest()

    def tallies(self, set_id: int) -> list[Tally]:
        """Return how many items each rater has judged, by name; decisions are not counted.

        Equals counting ``judgments``, without reading them all.
        """
        newest = func.row_number().over(
            partition_by=(JUDGMENTS.c.rater, JUDGMENTS.c.position),
            order_by=(JUDGMENTS.c.given_at.desc(), JUDGMENTS.c.id.desc()),
        )
        with self._access.reading() as (connection, version):
            self._label_set(connection, set_id, version)
            votes = select(JUDGMENTS.c.rater, JUDGMENTS.c.grade, newest.label("place")).where(
                JUDGMENTS.c.set_id == clamp_id(set_id), JUDGMENTS.c.withdrawn_at.is_(None)
            )
            if version >= FIRST_WITH_SOURCES:
                votes = votes.where(JUDGMENTS.c.source != ADJUDICATION)
            table = votes.subquery()
            judged = func.count()
            statement = (
                select(table.c.rater, judged, judged - func.count(table.c.grade))
                .where(table.c.place == 1)
                .group_by(table.c.rater)
            )
            rows = connection.execute(statement).all()
        # Sorted here, since databases differ in the order of letters.
        return sorted((Tally(*row) for row in rows), key=lambda tally: tally.rater)

    def _judging(self) -> AbstractContextManager[Connection]:
        """Begin a transaction on judgments; it leaves the stamp, since no report shows them."""
        return self._access.writing(create=False, marks=False)

    def _label_set(
        self,
        connection: Connection,
        id: int,
        version: int = FIRST_WITH_LABELS,
        *,
        locked: bool = False,
    ) -> LabelSet:
        """Return one set; ``locked`` keeps others from changing what belongs to it."""
        if version < FIRST_WITH_LABELS:
            raise NotStoredError(f"no label set {id} in {self._access.name}; there is none yet")
        statement = select(LABEL_SETS).where(LABEL_SETS.c.id == clamp_id(id))
        if locked:
            statement = statement.with_for_update()
        row = connection.execute(statement).mappings().first()
        if row is not None:
            return LabelSet(**row)
        newest = select(LABEL_SETS.c.id).order_by(LABEL_SETS.c.id.desc()).limit(_SETS_LISTED)
        known = ", ".join(map(str, sorted(connection.execute(newest).scalars())))
        hint = f"known: {known}" if known else "there is none yet"
        raise NotStoredError(f"no label set {id} in {self._access.name}; {hint}")


def _check_position(set_id: int | str, position: int, size: int) -> None:
    whole = isinstance(position, int) and not isinstance(position, bool)
    if not whole or not 0 <= position < size:
        raise UsageError(f"label set {set_id} has no position {position}; it has 0 to {size - 1}")


def _check_name_free(connection: Connection, name: str) -> None:
    same_name = select(LABEL_SETS.c.id).where(LABEL_SETS.c.name == name)
    taken = connection.execute(same_name.order_by(LABEL_SETS.c.id)).scalar()
    if taken is not None:
        raise NameTakenError(
            f"label set {taken} is called {name!r} already, and has other pairs or texts; give"
            " this one another name"
        )


def _insert_set(connection: Connection, row: Row, items: Sequence[LabelItem]) -> None:
    id = new_id(connection.execute(insert(LABEL_SETS).values(row)))
    rows = [{"set_id": id, **asdict(item), "facts": json.dumps(item.facts)} for item in items]
    connection.execute(insert(LABEL_ITEMS), rows)


def _item_of(row: RowMapping) -> LabelItem:
    fields = {name: value for name, value in row.items() if name not in ("set_id", "facts")}
    return LabelItem(**fields, facts=json.loads(row["facts"]))


def _moved_to_set(
    connection: Connection,
    set_id: int,
    items: Sequence[LabelItem],
    judgments: Sequence[NewJudgment],
) -> list[NewJudgment]:
    """Return judgments of items at the positions of a set that has them in another order."""
    if not judgments:
        return []
    columns = LABEL_ITEMS.c.query_id, LABEL_ITEMS.c.item_id, LABEL_ITEMS.c.position
    rows = connection.execute(select(*columns).where(LABEL_ITEMS.c.set_id == set_id))
    positions = {(query_id, item_id): position for query_id, item_id, position in rows}
    moved = [positions[item.query_id, item.item_id] for item in items]
    return [replace(judgment, position=moved[judgment.position]) for judgment in judgments]


def _judgment_rows(set_id: int, judgments: Iterable[NewJudgment], now: datetime) -> list[Row]:
    """Return judgments as rows; ``timed`` says that one has a time of its own."""
    return [
        {
            "set_id": set_id,
            "position": one.position,
            "rater": checked_rater(one.rater),
            "grade": checked_grade(one.grade),
            "rationale": storable_text(one.rationale),
            "source": checked_source(one.source),
            "given_at": now if one.given_at is None else _past("given_at", one.given_at, now),
            "withdrawn_at": one.withdrawn_at and _past("withdrawn_at", one.withdrawn_at, now),
            "timed": one.given_at is not None,
        }
        for one in judgments
    ]


def _past(name: str, moment: datetime, now: datetime) -> datetime:
    moment = as_utc(moment)
    if too_late(moment, now):
        raise UsageError(f"{name} is {moment.isoformat()}, which is still to come; check the clock")
    return moment


def _after_replaced(connection: Connection, row: Row) -> datetime:
    """Return the row's time, or the moment after what it replaces if that clock was ahead."""
    if row["source"] == ADJUDICATION:
        replaced = JUDGMENTS.c.source == ADJUDICATION
    else:
        replaced = (JUDGMENTS.c.rater == row["rater"]) & (JUDGMENTS.c.source != ADJUDICATION)
    newest = select(func.max(JUDGMENTS.c.given_at)).where(
        JUDGMENTS.c.set_id == row["set_id"],
        JUDGMENTS.c.position == row["position"],
        JUDGMENTS.c.withdrawn_at.is_(None),
        replaced,
    )
    return not_before(connection.execute(newest).scalar(), row["given_at"])


def _add_new_judgments(connection: Connection, set_id: int, rows: Sequence[Row]) -> AddedJudgments:
    """Add the rows of one set that it does not have yet; the caller holds the set's lock."""
    if not rows:
        return AddedJudgments(0, 0)
    known = _KnownJudgments(connection, set_id, rows)
    new = [row for row in rows if known.add(row)]
    if new:
        columns = [{name: row[name] for name in row if name != "timed"} for row in new]
        connection.execute(insert(JUDGMENTS), columns)
    return AddedJudgments(len(new), len(rows) - len(new))


class _KnownJudgments:
    """Stored judgments that new rows may repeat or replace."""

    def __init__(self, connection: Connection, set_id: int, rows: Sequence[Row]) -> None:
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

    def add(self, row: Row) -> bool:
        """Add a row unless it is known, and return whether it was new.

        A row without a time of its own gets one after what it replaces.
        """
        before = self._counting.get(_key(row))
        if row["timed"]:
            known = _event(row) in self._ever
        else:
            known = before is not None and _content(before) == _content(row)
        if not known:
            if before is not None and not row["timed"] and row["withdrawn_at"] is None:
                row["given_at"] = not_before(before["given_at"], row["given_at"])
            self._note(row)
        return not known

    def _note(self, row: Any) -> None:
        self._ever.add(_event(row))
        before = self._counting.get(_key(row))
        newest = before is None or before["given_at"] <= row["given_at"]
        if row["withdrawn_at"] is None and newest:
            self._counting[_key(row)] = row


def _key(row: Any) -> tuple[str | None, int]:
    return None if row["source"] == ADJUDICATION else row["rater"], row["position"]


def _content(row: Any) -> tuple[str, float | None, str]:
    return row["rater"], row["grade"], row["rationale"]


def _event(row: Any) -> tuple[Any, ...]:
    return (*_key(row), *_content(row), row["given_at"])


def _select_judgments(
    set_id: int, rater: str | None, version: int = FIRST_WITH_SOURCES, *, decisions: bool = False
) -> Any:
    """Select judgments of a set, of one rater or all; ``decisions`` adds everybody's decisions."""
    statement = select(*_judgment_columns(version)).where(JUDGMENTS.c.set_id == clamp_id(set_id))
    if rater is None:
        return statement
    by_rater = JUDGMENTS.c.rater == rater
    decided = JUDGMENTS.c.source == ADJUDICATION
    return statement.where(by_rater | decided if decisions else by_rater)


def _judgment_columns(version: int) -> list[Column[Any]]:
    return [
        column for column in JUDGMENTS.c if version >= FIRST_WITH_SOURCES or column.name != "source"
    ]


def _withdraw(connection: Connection, row: Any, moment: datetime) -> Judgment:
    judgment = update(JUDGMENTS).where(JUDGMENTS.c.id == row["id"])
    connection.execute(judgment.values(withdrawn_at=moment))
    return Judgment(**{**row, "withdrawn_at": moment})
