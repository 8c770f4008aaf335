"""Labels in the store: sets of items to judge, and judgments, of which none is ever deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
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
from karat.store.access import Access
from karat.store.label_records import (
    Added,
    AddedSet,
    Judgment,
    LabelItem,
    LabelSet,
    NewJudgment,
    Tally,
    checked_items,
    checked_rater,
    checked_set_name,
    digest_of,
)
from karat.store.label_writes import (
    add_judgments,
    after_others,
    check_position,
    judgment_rows,
)
from karat.store.records import NameTakenError, NotStoredError
from karat.store.rows import kept_text, utc
from karat.store.schema import (
    JUDGMENTS,
    LABEL_ITEMS,
    LABEL_SETS,
    VERSIONS,
    WITH_LABELS,
    WITH_SOURCES,
    within,
)
from karat.store.writes import new_id

_SETS_TOLD = 20


class Labels:
    """The label sets of a store, and what raters say of their items."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def add(
        self,
        name: str,
        items: Sequence[LabelItem],
        given: Sequence[NewJudgment] = (),
        *,
        about: str = "",
        now: datetime | None = None,
    ) -> AddedSet:
        """A new set, or the one that has the same items, with judgments: all of it or nothing.

        The judgments name items by their places among ``items``.
        """
        kept = checked_items(items)
        for one in given:
            check_position(checked_set_name(name), one.position, len(kept))
        digest, moment = digest_of(kept), utc(now)
        row: dict[str, Any] = {
            "name": checked_set_name(name),
            "made_at": moment,
            "about": kept_text(about),
            "digest": digest,
            "size": len(kept),
        }
        own = select(LABEL_SETS).where(LABEL_SETS.c.digest == digest)
        with self._access.writing() as connection:
            # Whoever makes another set at the same time waits here, and then finds its name taken.
            connection.execute(select(VERSIONS.c.id).with_for_update())
            new = False
            if connection.execute(own).first() is None:
                _refuse_taken(connection, row["name"])
                # An older karat, which does not wait, may add the same items at this very moment.
                with suppress(IntegrityError), connection.begin_nested():
                    _insert(connection, row, kept)
                    new = True
            made = _set_of(connection.execute(own.with_for_update()).mappings().one())
            placed = given if new else _placed_in(connection, made.id, kept, given)
            rows = judgment_rows(made.id, placed, moment)
            return AddedSet(made, new, add_judgments(connection, made.id, rows))

    def sets(self) -> list[LabelSet]:
        """All sets, from new to old."""
        with self._access.reading() as (connection, version):
            if version < WITH_LABELS:
                return []
            chosen = select(LABEL_SETS).order_by(LABEL_SETS.c.id.desc())
            return [_set_of(row) for row in connection.execute(chosen).mappings()]

    def set(self, id: int) -> LabelSet:
        """One set."""
        with self._access.reading() as (connection, version):
            return self._set(connection, id, version)

    def items(self, set_id: int) -> list[LabelItem]:
        """The items of a set, in their order."""
        chosen = select(LABEL_ITEMS).where(LABEL_ITEMS.c.set_id == within(set_id))
        with self._access.reading() as (connection, version):
            self._set(connection, set_id, version)
            found = connection.execute(chosen.order_by(LABEL_ITEMS.c.position)).mappings().all()
            return [_item_of(row) for row in found]

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
        """Add what a rater says of an item; what the same rater said of it before stays."""
        given = NewJudgment(position, rater, grade, rationale, source)
        (row,) = judgment_rows(set_id, [given], utc(now))
        del row["timed"]
        with self._judging() as connection:
            check_position(set_id, position, self._set(connection, set_id).size)
            if now is None:
                row["given_at"] = after_others(connection, row)
            id = new_id(connection.execute(insert(JUDGMENTS).values(row)))
        return Judgment(id=id, **row)

    def judge_many(
        self, set_id: int, given: Sequence[NewJudgment], *, now: datetime | None = None
    ) -> Added:
        """Add judgments, all of them or none; what is there already is not added again."""
        rows = judgment_rows(set_id, given, utc(now))
        with self._judging() as connection:
            # Whoever adds the same at the same time waits here, and then finds it there.
            size = self._set(connection, set_id, locked=True).size
            for row in rows:
                check_position(set_id, row["position"], size)
            return add_judgments(connection, set_id, rows)

    def take_back(self, set_id: int, rater: str, *, now: datetime | None = None) -> Judgment | None:
        """Withdraw the rater's newest vote that counts; None where there is none."""
        rater, moment = checked_rater(rater), utc(now)
        with self._judging() as connection:
            # Whoever takes back at the same time waits here, and takes back the one before.
            self._set(connection, set_id, locked=True)
            votes = _of(set_id, rater).where(JUDGMENTS.c.source != ADJUDICATION)
            counts = votes.where(JUDGMENTS.c.withdrawn_at.is_(None))
            newest = counts.order_by(JUDGMENTS.c.given_at.desc(), JUDGMENTS.c.id.desc()).limit(1)
            row = connection.execute(newest).mappings().first()
            return None if row is None else _withdrawn(connection, row, moment)

    def withdraw(self, set_id: int, id: int, *, now: datetime | None = None) -> Judgment:
        """Withdraw one judgment, a vote or a decision."""
        moment = utc(now)
        own = select(JUDGMENTS).where(JUDGMENTS.c.id == within(id), JUDGMENTS.c.set_id == set_id)
        with self._judging() as connection:
            self._set(connection, set_id, locked=True)
            row = connection.execute(own).mappings().first()
            if row is None:
                raise NotStoredError(f"no judgment {id} in label set {set_id}")
            if row["withdrawn_at"] is not None:
                raise UsageError(f"judgment {id} was withdrawn before")
            return _withdrawn(connection, row, moment)

    def judgments(
        self, set_id: int, *, rater: str | None = None, every: bool = False
    ) -> list[Judgment]:
        """What counts, in the order in which it was said: the newest of a rater on an item.

        Of decisions on an item the newest counts, whoever decided. With ``every`` also what was
        replaced or taken back.
        """
        name = None if rater is None else checked_rater(rater)
        with self._access.reading() as (connection, version):
            self._set(connection, set_id, version)
            # Another's decision replaces one of this rater's.
            beside = name is not None and not every and version >= WITH_SOURCES
            chosen = _of(set_id, name, version, decisions=beside)
            if not every:
                chosen = chosen.where(JUDGMENTS.c.withdrawn_at.is_(None))
            # An import brings what was said before, and elsewhere.
            in_time = chosen.order_by(JUDGMENTS.c.given_at, JUDGMENTS.c.id)
            # Columns stand in the order of the fields; by name it takes twice as long.
            said = [Judgment(*row) for row in connection.execute(in_time).all()]
        if every:
            return said
        last = {(one.position, None if one.decides else one.rater): one for one in said}
        counts = {one.id for one in last.values() if name is None or one.rater == name}
        return [one for one in said if one.id in counts]

    def stamp(self, set_id: int) -> str:
        """A text that is another after every judgment and withdrawal in a set.

        A digest of all that counts: another store may have been put in place of this one.
        """
        with self._access.reading() as (connection, version):
            one = self._set(connection, set_id, version)
            kept = [each for each in _there(version) if each.name not in ("set_id", "rationale")]
            row: ColumnElement[str] = literal("")
            for each in kept:
                row = row + "\t" + func.coalesce(cast(each, Text), "")
            every = select(func.aggregate_strings(row, "\n"))
            said = connection.execute(every.where(JUDGMENTS.c.set_id == within(set_id))).scalar()
        return sha256(f"{one}\n{said}".encode()).hexdigest()

    def tallies(self, set_id: int) -> list[Tally]:
        """How much each rater has judged of a set, by name."""
        with self._access.reading() as (connection, version):
            self._set(connection, set_id, version)
            found = connection.execute(_tallied(set_id, version)).all()
        # Sorted here, since databases differ in the order of letters.
        return sorted((Tally(*row) for row in found), key=lambda one: one.rater)

    def _judging(self) -> AbstractContextManager[Connection]:
        """A transaction that adds or withdraws judgments; no page of evaluations shows any."""
        return self._access.writing(make=False, marks=False)

    def _set(
        self, connection: Connection, id: int, version: int = WITH_LABELS, *, locked: bool = False
    ) -> LabelSet:
        """One set; ``locked`` keeps everybody else from changing what belongs to it."""
        if version < WITH_LABELS:
            raise NotStoredError(f"no label set {id} in {self._access.name}; there is none yet")
        chosen = select(LABEL_SETS).where(LABEL_SETS.c.id == within(id))
        row = connection.execute(chosen.with_for_update() if locked else chosen).mappings().first()
        if row is not None:
            return _set_of(row)
        newest = select(LABEL_SETS.c.id).order_by(LABEL_SETS.c.id.desc()).limit(_SETS_TOLD)
        known = sorted(connection.execute(newest).scalars())
        told = f"known: {', '.join(map(str, known))}" if known else "there is none yet"
        raise NotStoredError(f"no label set {id} in {self._access.name}; {told}")


def _insert(connection: Connection, row: dict[str, Any], items: Sequence[LabelItem]) -> None:
    id = new_id(connection.execute(insert(LABEL_SETS).values(row)))
    added = [{"set_id": id, **one.document(), "facts": json.dumps(one.facts)} for one in items]
    connection.execute(insert(LABEL_ITEMS), added)


def _placed_in(
    connection: Connection, set_id: int, items: Sequence[LabelItem], given: Sequence[NewJudgment]
) -> list[NewJudgment]:
    """Judgments of items as those of a set that has the same items in another order."""
    if not given:
        return []
    names = LABEL_ITEMS.c.query_id, LABEL_ITEMS.c.item_id, LABEL_ITEMS.c.position
    there = connection.execute(select(*names).where(LABEL_ITEMS.c.set_id == set_id))
    places = {(query, item): position for query, item, position in there}
    at = [places[one.query_id, one.item_id] for one in items]
    return [replace(one, position=at[one.position]) for one in given]


def _refuse_taken(connection: Connection, name: str) -> None:
    """A name stands for one set: two of a name could only be told apart by their ids."""
    own = select(LABEL_SETS.c.id).where(LABEL_SETS.c.name == name)
    taken = connection.execute(own.order_by(LABEL_SETS.c.id)).scalar()
    if taken is not None:
        raise NameTakenError(
            f"label set {taken} is called {name!r} already, and has other pairs or texts; give"
            " this one another name"
        )


def _of(
    set_id: int, rater: str | None, version: int = WITH_SOURCES, *, decisions: bool = False
) -> Any:
    """The judgments of a set, of one rater or of all, with the columns that there are.

    With ``decisions`` also those of other raters that are decisions.
    """
    found = select(*_there(version)).where(JUDGMENTS.c.set_id == within(set_id))
    if rater is None:
        return found
    own = JUDGMENTS.c.rater == rater
    return found.where(own | (JUDGMENTS.c.source == ADJUDICATION) if decisions else own)


def _there(version: int) -> list[Column[Any]]:
    """What a store of that version keeps of a judgment."""
    return [one for one in JUDGMENTS.c if version >= WITH_SOURCES or one.name != "source"]


def _tallied(set_id: int, version: int) -> Any:
    """Of what a rater said of an item the newest counts, unless it was taken back."""
    newest = func.row_number().over(
        partition_by=(JUDGMENTS.c.rater, JUDGMENTS.c.position),
        order_by=(JUDGMENTS.c.given_at.desc(), JUDGMENTS.c.id.desc()),
    )
    said = select(JUDGMENTS.c.rater, JUDGMENTS.c.grade, newest.label("place")).where(
        JUDGMENTS.c.set_id == within(set_id), JUDGMENTS.c.withdrawn_at.is_(None)
    )
    if version >= WITH_SOURCES:
        said = said.where(JUDGMENTS.c.source != ADJUDICATION)
    votes = said.subquery()
    judged = func.count()
    return (
        select(votes.c.rater, judged, judged - func.count(votes.c.grade))
        .where(votes.c.place == 1)
        .group_by(votes.c.rater)
    )


def _withdrawn(connection: Connection, row: Any, moment: datetime) -> Judgment:
    own = update(JUDGMENTS).where(JUDGMENTS.c.id == row["id"])
    connection.execute(own.values(withdrawn_at=moment))
    return Judgment(**{**row, "withdrawn_at": moment})


def _set_of(row: RowMapping) -> LabelSet:
    return LabelSet(**row)


def _item_of(row: RowMapping) -> LabelItem:
    kept = {name: value for name, value in row.items() if name not in ("set_id", "facts")}
    return LabelItem(**kept, facts=json.loads(row["facts"]))
