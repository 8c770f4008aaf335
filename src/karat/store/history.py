"""Store: evaluations saved over time, listed, compared with later ones, and their labels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, select

from karat.data.revision import Revision
from karat.errors import UsageError, unknown
from karat.measures.scores import Scores, Summary
from karat.store import rows, statements
from karat.store.differences import trend_points
from karat.store.labels import LabelStore
from karat.store.records import (
    EvaluationPage,
    NotStoredError,
    RestoredEvaluation,
    SavedEvaluation,
    StoredNames,
    TrendPoint,
    checked_tags,
)
from karat.store.schema import (
    EVALUATIONS,
    FIRST_WITH_LABELS,
    MEASURES,
    PARTS,
    REPORTS,
    SCORES,
    clamp_id,
)
from karat.store.transactions import Access

# Stands for numbers that are longer than any id, and may be too long for int().
_NO_ID = 2**31 - 1


class Store(LabelStore):
    """A history of evaluations and judgments in SQLite or PostgreSQL.

    Open it with ``Store.open`` and close it, or use ``with``. The first save creates the store;
    reading one that does not exist raises NoHistoryError. Reading changes nothing: a store of an
    older karat is upgraded by the first write. One store serves any number of threads, and
    notices when its file is replaced.

    >>> from karat.store import LabelItem
    >>> with Store.open("sqlite://") as store:
    ...     labels = store.add_label_set("pilot", [LabelItem("q1", "d1", "a query", "a text")])
    ...     judgment = store.judge(labels.id, 0, "Ana", 2)
    ...     [(one.rater, one.grade) for one in store.judgments(labels.id)]
    [('Ana', 2.0)]
    """

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str] | None = None,
        *,
        patience: float | None = None,
        waiting: Callable[[str], None] | None = None,
        saving: float | None = None,
    ) -> Store:
        """Open a store by path or SQLAlchemy URL; default: $KARAT_STORE or .karat/history.db.

        ``patience`` is how many seconds to wait while another process holds the store; by
        default a minute for a file, and as long as a server waits. ``saving`` is the patience of
        writes, if it differs. ``waiting`` is called with the store's name, from another thread,
        when a write waits for more than two seconds.
        """
        return cls(Access(where, patience=patience, waiting=waiting, saving=saving))

    @property
    def name(self) -> str:
        """Return where the store is, without user and password."""
        return self._access.name

    @property
    def lasting(self) -> bool:
        """Return whether the store outlives the process; one in memory does not."""
        return not self._access.place.in_memory

    def close(self) -> None:
        """Close all connections."""
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
        """Save one evaluation per system, all of them or none, and return their ids.

        ``report`` is the document that they are part of, with the digests of the inputs.
        ``summaries`` saves computing them again; ``parts`` are those of the report's page.
        """
        if not scores:
            raise UsageError("nothing to save; give the scores of at least one system")
        tags, moment = checked_tags(tags), rows.as_utc(now)
        commit = Revision(revision) if isinstance(revision, str) else revision
        summaries = [one.summaries for one in scores] if summaries is None else summaries
        systems = []
        for system, of_system in zip(scores, summaries, strict=True):
            packed = rows.pack(system)
            row = rows.evaluation_row(system, packed, report, commit, note, moment)
            systems.append((row, rows.measure_rows(of_system), packed))
        document = json.dumps(rows.jsonable(report), sort_keys=True)
        part_rows = rows.part_rows(parts or {})
        with self._access.writing() as connection:
            report_id = statements.add_report(connection, document, part_rows)
            tagged_at = moment if now else statements.tag_time(connection, tags, moment)
            return [
                statements.add_evaluation(
                    connection, {"report_id": report_id, **row}, measures, packed, tags, tagged_at
                )
                for row, measures, packed in systems
            ]

    def evaluations(
        self,
        *,
        system: str | None = None,
        tag: str | None = None,
        gold: str | None = None,
        limit: int | None = None,
        newest_first: bool = True,
    ) -> list[SavedEvaluation]:
        """Return evaluations, if given of one system, tag, or beginning of the gold's SHA-256."""
        chosen = statements.filtered(system=system, tag=tag, gold=gold)
        chosen = statements.by_time(chosen, newest_first=newest_first)
        with self._access.reading() as (connection, _):
            return statements.evaluations(connection, chosen.limit(limit))

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
    ) -> EvaluationPage:
        """Return a page of evaluations, newest first, and the total number.

        ``search`` is words in any case; each must occur in the system, the note, the run's name,
        the commit or a tag.
        """
        if limit < 1 or offset < 0:
            raise UsageError(f"limit is {limit} and offset {offset}; begin at 1 and at 0")
        chosen = statements.filtered(
            system=system, tag=tag, gold=gold, verdict=verdict, search=search
        )
        page = statements.by_time(chosen).limit(clamp_id(limit)).offset(clamp_id(offset))
        with self._access.reading() as (connection, _):
            total = statements.count(connection, chosen)
            return EvaluationPage(statements.evaluations(connection, page), total)

    def names(self) -> StoredNames:
        """Return every system, tag, measure and verdict in the store."""
        with self._access.reading() as (connection, _):
            return statements.names(connection)

    def stamp(self) -> str:
        """Return a text that changes with every evaluation, tag and label set.

        Judgments have their own, ``judgments_stamp``.
        """
        with self._access.reading() as (connection, version):
            return statements.stamp(connection, version)

    def evaluation(self, id: int) -> SavedEvaluation:
        """Return one evaluation, without its scores."""
        with self._access.reading() as (connection, _):
            return self._by_id(connection, id)

    def together(self, report_id: int) -> list[SavedEvaluation]:
        """Return the evaluations that were saved with one report, in their order."""
        chosen = select(EVALUATIONS).where(EVALUATIONS.c.report_id == clamp_id(report_id))
        with self._access.reading() as (connection, _):
            found = statements.evaluations(connection, chosen.order_by(EVALUATIONS.c.id))
        if not found:
            raise NotStoredError(f"no report {report_id} in {self.name}")
        return found

    def report(self, report_id: int) -> dict[str, Any]:
        """Return the document that evaluations were saved with."""
        chosen = select(REPORTS.c.document).where(REPORTS.c.id == clamp_id(report_id))
        with self._access.reading() as (connection, _):
            document = connection.execute(chosen).scalar()
            if document is None:
                raise NotStoredError(f"no report {report_id} in {self.name}")
            return dict(json.loads(document))

    def part(self, report_id: int, name: str) -> bytes | None:
        """Return a part of the report's page, or None if it was saved without."""
        chosen = select(PARTS.c.data).where(
            PARTS.c.report_id == clamp_id(report_id), PARTS.c.name == rows.storable_text(name)
        )
        with self._access.reading() as (connection, version):
            if version < FIRST_WITH_LABELS:
                return None
            data = connection.execute(chosen).scalar()
        return None if data is None else bytes(data)

    def baseline(self, tag_or_id: str, *, system: str | None = None) -> RestoredEvaluation:
        """Return an evaluation by id, or the one that got a tag last, with its scores.

        ``TAG:SYSTEM``, or ``system``, chooses among systems that were saved together.
        """
        tag, _, tagged_system = tag_or_id.partition(":")
        with self._access.reading() as (connection, _):
            if tag_or_id.isdecimal():
                id = int(tag_or_id) if len(tag_or_id) < 10 else _NO_ID
                saved = self._by_id(connection, id)
            else:
                saved = statements.latest_with_tag(connection, tag, tagged_system or system)
            return self._restored(connection, saved)

    def trend(
        self, measure: str, *, system: str | None = None, tag: str | None = None
    ) -> list[TrendPoint]:
        """Return one measure over time, system by system, oldest first."""
        chosen = statements.filtered(system=system, tag=tag)
        with self._access.reading() as (connection, _):
            known = connection.execute(select(MEASURES.c.measure).distinct()).scalars()
            name = rows.stored_measure_name(measure, sorted(known))
            found = statements.evaluations(connection, chosen, measure=name)
        return trend_points(found, name)

    def tag(self, id: int, tags: Sequence[str], *, now: datetime | None = None) -> None:
        """Tag an evaluation; from now on the tags name this one."""
        tags, moment = checked_tags(tags), rows.as_utc(now)
        # Locked: two processes that give the same tags do so one after the other.
        own = select(EVALUATIONS.c.id).where(EVALUATIONS.c.id == clamp_id(id)).with_for_update()
        with self._access.writing(create=False) as connection:
            if connection.execute(own).first() is None:
                raise self._no_evaluation(id)
            tagged_at = moment if now else statements.tag_time(connection, tags, moment)
            statements.add_tags(connection, id, tags, tagged_at)

    def no_match(self, *, system: str | None = None, tag: str | None = None) -> UsageError:
        """Return the error for filters that no evaluation meets, with the nearest known name."""
        known = self.names()
        if system is not None and system not in known.systems:
            return unknown("system", system, known.systems)
        if tag is not None and tag not in known.tags:
            nothing_tagged = UsageError("nothing has a tag yet")
            return unknown("tag", tag, known.tags) if known.tags else nothing_tagged
        return UsageError("no saved evaluation is all of that; ask for less")

    def _by_id(self, connection: Connection, id: int) -> SavedEvaluation:
        chosen = select(EVALUATIONS).where(EVALUATIONS.c.id == clamp_id(id))
        found = statements.evaluations(connection, chosen)
        if not found:
            raise self._no_evaluation(id)
        return found[0]

    def _no_evaluation(self, id: int) -> NotStoredError:
        return NotStoredError(f"no evaluation {id} in {self.name}; karat history lists them")

    def _restored(self, connection: Connection, saved: SavedEvaluation) -> RestoredEvaluation:
        chosen = (
            select(SCORES.c.queries, SCORES.c.evidence, EVALUATIONS.c.about, REPORTS.c.document)
            .join(EVALUATIONS, EVALUATIONS.c.id == SCORES.c.evaluation_id)
            .join(REPORTS, REPORTS.c.id == EVALUATIONS.c.report_id)
            .where(SCORES.c.evaluation_id == saved.id)
        )
        queries, evidence, about, document = connection.execute(chosen).one()
        packed = rows.PackedScores(queries, evidence, about)
        where = f"{self.name}: evaluation {saved.id}"
        scores = rows.unpack(packed, system=saved.system, source=saved.run, where=where)
        return RestoredEvaluation(saved, scores, json.loads(document))
