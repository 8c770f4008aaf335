"""The store: evaluations saved whole, listed, followed over time and brought back as scores."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, CursorResult, Engine, insert, select, update

from karat.errors import InputError, UsageError
from karat.measures.results import Scores, Summary
from karat.revision import Revision
from karat.store import lookups, rows, schema
from karat.store.differences import breaks
from karat.store.packing import Packed, jsonable, pack, unpack
from karat.store.place import Place, check_file, check_writable, engine_of, make_room, place_of
from karat.store.records import Evaluation, Point, Stored
from karat.store.schema import EVALUATIONS, MEASURES, REPORTS, SCORES, TAGS
from karat.store.tags import checked_tags
from karat.store.troubles import one_line

_HIGHEST_ID = 2**31 - 1


class Store:
    """A history of evaluations; open it with ``Store.open`` and close it, or use ``with``.

    Nothing is made before the first save, and reading what is not there is an error.
    """

    def __init__(self, place: Place, engine: Engine) -> None:
        self._place, self._engine = place, engine

    @classmethod
    def open(cls, where: str | os.PathLike[str] | None = None) -> Store:
        """A store by path or SQLAlchemy URL; default: ``$KARAT_STORE``, else .karat/history.db."""
        place = place_of(where)
        return cls(place, engine_of(place))

    @property
    def name(self) -> str:
        """Where the store is, without user and password."""
        return self._place.shown

    @property
    def lasting(self) -> bool:
        """Whether what is saved outlives the process, which it does not in memory."""
        return not self._place.in_memory

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

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
        path = self._place.path
        if path is not None:
            check_writable(path)
        if path is None or path.exists():
            with one_line(self._place), self._engine.connect() as connection:
                schema.version_of(connection, self.name)

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
    ) -> list[int]:
        """Save one evaluation a system, all of them or none, and give their ids.

        ``report`` is the document that they are part of; it tells the digests of the inputs.
        ``summaries`` spares computing them again.
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
        with self._writing() as connection:
            together = _id(connection.execute(insert(REPORTS).values(document=document)))
            return [
                _insert(connection, {"report_id": together, **row}, some, own, tags)
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
        order = (EVALUATIONS.c.saved_at, EVALUATIONS.c.id)
        chosen = lookups.chosen(system=system, tag=tag, gold=gold).order_by(
            *(one.desc() if newest_first else one for one in order)
        )
        with self._reading() as connection:
            return lookups.evaluations(connection, chosen.limit(limit))

    def baseline(self, tag_or_id: str, *, system: str | None = None) -> Stored:
        """The evaluation of an id, or the one that got a tag last.

        Of systems that were saved together ``TAG:SYSTEM`` names one, as ``system`` does.
        """
        tag, _, named = tag_or_id.partition(":")
        with self._reading() as connection:
            if tag_or_id.isdecimal():
                # Longer than any id, and too long for some a number to be read.
                id = int(tag_or_id) if len(tag_or_id) < 10 else _HIGHEST_ID
                found = self._by_id(connection, id)
            else:
                found = lookups.by_tag(connection, tag, named or system)
            return self._restored(connection, found)

    def trend(
        self, measure: str, *, system: str | None = None, tag: str | None = None
    ) -> list[Point]:
        """One measure over time, system by system, from old to new."""
        chosen = lookups.chosen(system=system, tag=tag)
        with self._reading() as connection:
            known = connection.execute(select(MEASURES.c.measure).distinct()).scalars()
            name = rows.known_as(measure, sorted(known))
            found = lookups.evaluations(connection, chosen)
        # Sorted here, since databases differ in what they take for the order of letters.
        own = [one for one in found if name in one.summaries]
        return _points(sorted(own, key=lambda one: (one.system, one.saved_at, one.id)), name)

    def tag(self, id: int, tags: Sequence[str], *, now: datetime | None = None) -> None:
        """Give an evaluation tags; from now on it is what they stand for."""
        tags, moment = checked_tags(tags), rows.utc(now)
        # Only a save makes a store.
        with self._reading() as connection:
            self._by_id(connection, id)
        with self._writing() as connection:
            _tag(connection, id, tags, moment)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with one_line(self._place):
            if self._place.path is not None:
                make_room(self._place.path)
            with self._engine.execution_options(writes=True).begin() as connection:
                schema.upgrade(connection, self.name)
                yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        nothing = InputError("no history here; begin one with karat eval … --save", where=self.name)
        with one_line(self._place):
            if self._place.path is not None:
                check_file(self._place.path)
                if not self._place.path.exists():
                    raise nothing
            with self._engine.begin() as connection:
                version = schema.version_of(connection, self.name)
                if version == schema.newest():
                    yield connection
                    return
            if version == 0:
                raise nothing
            with self._writing() as connection:
                yield connection

    def _by_id(self, connection: Connection, id: int) -> Evaluation:
        chosen = select(EVALUATIONS).where(EVALUATIONS.c.id == min(id, _HIGHEST_ID))
        found = lookups.evaluations(connection, chosen)
        if not found:
            raise UsageError(f"no evaluation {id} in {self.name}; karat history lists them")
        return found[0]

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


def _insert(
    connection: Connection,
    row: Mapping[str, Any],
    measures: Sequence[Mapping[str, Any]],
    packed: Packed,
    tags: Sequence[str],
) -> int:
    id = _id(connection.execute(insert(EVALUATIONS).values(row)))
    own = {"evaluation_id": id}
    connection.execute(insert(MEASURES), [{**one, **own} for one in measures])
    values = {"queries": packed.queries, "evidence": packed.evidence}
    connection.execute(insert(SCORES).values({**own, **values}))
    _tag(connection, id, tags, row["saved_at"])
    return id


def _id(added: CursorResult[Any]) -> int:
    return int(added.inserted_primary_key[0])  # type: ignore[index]  # one row, one key


def _tag(connection: Connection, id: int, tags: Sequence[str], moment: datetime) -> None:
    for tag in tags:
        own = (TAGS.c.evaluation_id == id) & (TAGS.c.tag == tag)
        if not connection.execute(update(TAGS).where(own).values(tagged_at=moment)).rowcount:
            row = {"evaluation_id": id, "tag": tag, "tagged_at": moment}
            connection.execute(insert(TAGS).values(row))


def _points(evaluations: Sequence[Evaluation], measure: str) -> list[Point]:
    points: list[Point] = []
    before: Evaluation | None = None
    for one in evaluations:
        summary = one.summaries[measure]
        point = Point(
            measure=measure,
            id=one.id,
            saved_at=one.saved_at,
            system=one.system,
            mean=summary.mean,
            n=summary.n,
            ci=summary.ci,
            revision=one.revision,
            gold=one.gold,
            tags=one.tags,
        )
        if before is not None and before.system == one.system:
            point = _after(point, points[-1], breaks(before, one))
        points.append(point)
        before = one
    return points


def _after(point: Point, before: Point, broken: tuple[str, ...]) -> Point:
    if broken or point.mean is None or before.mean is None:
        return replace(point, breaks=broken)
    return replace(point, change=point.mean - before.mean)
