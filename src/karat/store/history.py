"""The store: evaluations saved whole, listed, followed over time and brought back as scores."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, select

from karat.errors import UsageError
from karat.measures.results import Scores, Summary
from karat.revision import Revision
from karat.store import lookups, rows, writes
from karat.store.access import Access
from karat.store.label_records import (
    Added,
    AddedSet,
    Judgment,
    LabelItem,
    LabelSet,
    NewJudgment,
    Tally,
)
from karat.store.labelling import Labels
from karat.store.packing import Packed, jsonable, pack, unpack
from karat.store.records import Evaluation, Listed, Names, NotStoredError, Point, Stored
from karat.store.schema import EVALUATIONS, MEASURES, PARTS, REPORTS, SCORES, WITH_LABELS, within
from karat.store.tags import checked_tags
from karat.store.trends import points

_NO_ID = 2**31 - 1


class Store:
    """A history of evaluations; open it with ``Store.open`` and close it, or use ``with``.

    Nothing is made before the first save, and reading what is not there is an error. Reading
    changes nothing: a store of an older karat is upgraded by the first that writes to it. One
    store serves any number of threads, and notices when its file is replaced.
    """

    def __init__(self, access: Access) -> None:
        self._access, self._labels = access, Labels(access)

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str] | None = None,
        *,
        patience: float | None = None,
        waiting: Callable[[str], None] | None = None,
        saving: float | None = None,
    ) -> Store:
        """A store by path or SQLAlchemy URL; default: ``$KARAT_STORE``, else .karat/history.db.

        ``patience`` is how many seconds to wait while another process holds the store; unless
        given, a minute for a file, and as long as a server lets one wait. ``waiting`` is called
        with the store's name, from another thread, when it takes more than two seconds until a
        file may be written to. ``saving`` is the patience of who saves, if it is another.
        """
        return cls(Access.to(where, patience, waiting, saving))

    @property
    def name(self) -> str:
        """Where the store is, without user and password."""
        return self._access.name

    @property
    def lasting(self) -> bool:
        """Whether what is saved outlives the process, which it does not in memory."""
        return not self._access.place.in_memory

    def close(self) -> None:
        """Let go of all connections."""
        self._access.engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def check(self) -> None:
        """Refuse now, before any work, what a save would refuse later."""
        self._access.check()

    def save(
        self,
        scores: Sequence[Scores],
        report: Mapping[str, Any],
        *,
        tags: Sequence[str] = (),
        revision: Revision | str | None = None,
        note: str = "",
        now: datetime | None = None,
        summaries: Sequence[Mapping[str, Summary]] | None = None,
        parts: Mapping[str, bytes] | None = None,
    ) -> list[int]:
        """Save one evaluation a system, all of them or none, and give their ids.

        ``report`` is the document that they are part of; it tells the digests of the inputs.
        ``summaries`` spares computing them again; ``parts`` are those of the report's page.
        """
        if not scores:
            raise UsageError("nothing to save; give the scores of at least one system")
        tags, moment = checked_tags(tags), rows.utc(now)
        made_at = Revision(revision) if isinstance(revision, str) else revision
        packed = [pack(one) for one in scores]
        notes = [
            rows.evaluation_row(one, own, report, made_at, note, moment)
            for one, own in zip(scores, packed, strict=True)
        ]
        told = [one.summaries for one in scores] if summaries is None else summaries
        measures = [rows.measure_rows(one) for one in told]
        document = json.dumps(jsonable(report), sort_keys=True)
        pages = writes.part_rows(parts or {})
        with self._access.writing() as connection:
            together = writes.add_report(connection, document, pages)
            tagged = moment if now else writes.after_others(connection, tags, moment)
            return [
                writes.add_evaluation(
                    connection, {"report_id": together, **row}, some, own, tags, tagged
                )
                for row, some, own in zip(notes, measures, packed, strict=True)
            ]

    def evaluations(
        self,
        *,
        system: str | None = None,
        tag: str | None = None,
        gold: str | None = None,
        limit: int | None = None,
        newest_first: bool = True,
    ) -> list[Evaluation]:
        """The evaluations of a system, with a tag, on gold whose SHA-256 begins so."""
        chosen = lookups.in_time(
            lookups.chosen(system=system, tag=tag, gold=gold), newest_first=newest_first
        )
        with self._access.reading() as (connection, _):
            return lookups.evaluations(connection, chosen.limit(limit))

    def listed(
        self,
        *,
        system: str | None = None,
        tag: str | None = None,
        gold: str | None = None,
        verdict: str | None = None,
        search: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> Listed:
        """A page of the evaluations chosen, newest first, and how many there are in all.

        ``search`` are words in any case, each part of the system, the note, the run's name, the
        commit or a tag.
        """
        if limit < 1 or offset < 0:
            raise UsageError(f"limit is {limit} and offset {offset}; begin at 1 and at 0")
        chosen = lookups.chosen(system=system, tag=tag, gold=gold, verdict=verdict, search=search)
        page = lookups.in_time(chosen).limit(within(limit)).offset(within(offset))
        with self._access.reading() as (connection, _):
            total = lookups.count(connection, chosen)
            return Listed(lookups.evaluations(connection, page), total)

    def names(self) -> Names:
        """Every system, tag, measure and verdict that evaluations can be chosen by."""
        with self._access.reading() as (connection, _):
            return lookups.names(connection)

    def stamp(self) -> str:
        """A text that is another after every change but those of judgments.

        Equal ones mean that no evaluation, tag or label set has changed. What raters say has
        ``judgments_stamp``.
        """
        with self._access.reading() as (connection, version):
            return lookups.stamp(connection, version)

    def evaluation(self, id: int) -> Evaluation:
        """One evaluation, without its scores."""
        with self._access.reading() as (connection, _):
            return self._by_id(connection, id)

    def together(self, report_id: int) -> list[Evaluation]:
        """The evaluations that were saved with one report, in the order they were saved."""
        chosen = select(EVALUATIONS).where(EVALUATIONS.c.report_id == within(report_id))
        with self._access.reading() as (connection, _):
            found = lookups.evaluations(connection, chosen.order_by(EVALUATIONS.c.id))
        if not found:
            raise NotStoredError(f"no report {report_id} in {self.name}")
        return found

    def report(self, report_id: int) -> dict[str, Any]:
        """The document that evaluations were saved with."""
        chosen = select(REPORTS.c.document).where(REPORTS.c.id == within(report_id))
        with self._access.reading() as (connection, _):
            found = connection.execute(chosen).scalar()
            if found is None:
                raise NotStoredError(f"no report {report_id} in {self.name}")
            return dict(json.loads(found))

    def part(self, report_id: int, name: str) -> bytes | None:
        """A part of the report's page, None where it was saved without."""
        own = (PARTS.c.report_id == within(report_id)) & (PARTS.c.name == rows.kept_text(name))
        with self._access.reading() as (connection, version):
            if version < WITH_LABELS:
                return None
            found = connection.execute(select(PARTS.c.data).where(own)).scalar()
        return None if found is None else bytes(found)

    def baseline(self, tag_or_id: str, *, system: str | None = None) -> Stored:
        """The evaluation of an id, or the one that got a tag last.

        Of systems that were saved together ``TAG:SYSTEM`` names one, as ``system`` does.
        """
        tag, _, named = tag_or_id.partition(":")
        with self._access.reading() as (connection, _):
            if tag_or_id.isdecimal():
                # Longer than any id, and too long for some a number to be read.
                id = int(tag_or_id) if len(tag_or_id) < 10 else _NO_ID
                found = self._by_id(connection, id)
            else:
                found = lookups.by_tag(connection, tag, named or system)
            return self._restored(connection, found)

    def trend(
        self, measure: str, *, system: str | None = None, tag: str | None = None
    ) -> list[Point]:
        """One measure over time, system by system, from old to new."""
        chosen = lookups.chosen(system=system, tag=tag)
        with self._access.reading() as (connection, _):
            known = connection.execute(select(MEASURES.c.measure).distinct()).scalars()
            name = rows.known_as(measure, sorted(known))
            found = lookups.evaluations(connection, chosen, measure=name)
        return points(found, name)

    def tag(self, id: int, tags: Sequence[str], *, now: datetime | None = None) -> None:
        """Give an evaluation tags; from now on it is what they stand for."""
        tags, moment = checked_tags(tags), rows.utc(now)
        # Two that give the same tags at once do so one after the other.
        own = select(EVALUATIONS.c.id).where(EVALUATIONS.c.id == within(id)).with_for_update()
        with self._access.writing(make=False) as connection:
            if connection.execute(own).first() is None:
                raise self._no_evaluation(id)
            tagged = moment if now else writes.after_others(connection, tags, moment)
            writes.give_tags(connection, id, tags, tagged)

    def add_label_set(
        self, name: str, items: Sequence[LabelItem], *, about: str = "", now: datetime | None = None
    ) -> LabelSet:
        """A new set of items to judge, or the one that has the same items, in whatever order.

        The items get their positions from the order they are in. No two sets have one name,
        and none is called by a whole number, which would be another's id.
        """
        return self._labels.add(name, items, about=about, now=now).set

    def add_judged_set(
        self,
        name: str,
        items: Sequence[LabelItem],
        judgments: Sequence[NewJudgment] = (),
        *,
        about: str = "",
        now: datetime | None = None,
    ) -> AddedSet:
        """A set as ``add_label_set`` makes or finds it, with judgments, in one transaction.

        The position of a judgment is that of its item among ``items``. Of several who add the
        same set at once, one is told that it is new.
        """
        return self._labels.add(name, items, judgments, about=about, now=now)

    def label_sets(self) -> list[LabelSet]:
        """All label sets, from new to old."""
        return self._labels.sets()

    def label_set(self, id: int) -> LabelSet:
        """One label set."""
        return self._labels.set(id)

    def label_items(self, set_id: int) -> list[LabelItem]:
        """The items of a label set, in their order."""
        return self._labels.items(set_id)

    def judge(
        self,
        set_id: int,
        position: int,
        rater: str,
        grade: float | None,
        *,
        rationale: str = "",
        source: str = "human",
        now: datetime | None = None,
    ) -> Judgment:
        """Add what a rater says of an item: a grade from 0 to 100, None for "can't tell".

        What the same rater said of it before stays in the store, and counts no more. One whose
        source is ``adjudication`` is a decision, which is no vote, counts beside them, and
        replaces the decisions of everybody before. It is given now, or after what it replaces.
        """
        more = {"rationale": rationale, "source": source}
        return self._labels.judge(set_id, position, rater, grade, **more, now=now)

    def judge_many(
        self, set_id: int, rows: Sequence[NewJudgment], *, now: datetime | None = None
    ) -> Added:
        """Add judgments in one transaction, all of them or none.

        What is there already is not added again: the same grade and rationale as what counts of
        this rater and item, or, where a row has its own time, the same said at that time. A
        time that is more than a day ahead is refused.
        """
        return self._labels.judge_many(set_id, rows, now=now)

    def take_back(self, set_id: int, rater: str, *, now: datetime | None = None) -> Judgment | None:
        """Withdraw the rater's newest vote that counts; None where there is none.

        What the rater had said of the item before counts again.
        """
        return self._labels.take_back(set_id, rater, now=now)

    def withdraw(self, set_id: int, judgment_id: int, *, now: datetime | None = None) -> Judgment:
        """Withdraw one judgment, a vote or a decision; it stays in the store."""
        return self._labels.withdraw(set_id, judgment_id, now=now)

    def judgments(
        self, set_id: int, *, rater: str | None = None, every: bool = False
    ) -> list[Judgment]:
        """What counts, one vote a rater and item, in the order in which they were given.

        The newest decision on an item, whoever's it is, counts beside them. With ``every`` also
        what was replaced or taken back.
        """
        return self._labels.judgments(set_id, rater=rater, every=every)

    def judgments_stamp(self, set_id: int) -> str:
        """A text that is another after every judgment and withdrawal in a set."""
        return self._labels.stamp(set_id)

    def tallies(self, set_id: int) -> list[Tally]:
        """How many items of a label set each rater has judged, by name; decisions are not counted.

        The same as counting what ``judgments`` gives, without reading all of it.
        """
        return self._labels.tallies(set_id)

    def _by_id(self, connection: Connection, id: int) -> Evaluation:
        chosen = select(EVALUATIONS).where(EVALUATIONS.c.id == within(id))
        found = lookups.evaluations(connection, chosen)
        if not found:
            raise self._no_evaluation(id)
        return found[0]

    def _no_evaluation(self, id: int) -> NotStoredError:
        return NotStoredError(f"no evaluation {id} in {self.name}; karat history lists them")

    def _restored(self, connection: Connection, found: Evaluation) -> Stored:
        chosen = (
            select(SCORES.c.queries, SCORES.c.evidence, EVALUATIONS.c.about, REPORTS.c.document)
            .join(EVALUATIONS, EVALUATIONS.c.id == SCORES.c.evaluation_id)
            .join(REPORTS, REPORTS.c.id == EVALUATIONS.c.report_id)
            .where(SCORES.c.evaluation_id == found.id)
        )
        row = connection.execute(chosen).mappings().one()
        packed = Packed(row["queries"], row["evidence"], row["about"])
        where = f"{self.name}: evaluation {found.id}"
        scores = unpack(packed, system=found.system, source=found.run, where=where)
        return Stored(found, scores, json.loads(row["document"]))
