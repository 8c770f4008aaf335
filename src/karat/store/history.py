"""Store: evaluations saved over time, listed and compared with later ones, and their labels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    bindparam,
    func,
    insert,
    or_,
    select,
    update,
)

from karat.data.revision import Revision
from karat.errors import UsageError, unknown
from karat.measure.conventions import DECISIVE
from karat.measure.scores import Scores, Summary
from karat.store.database import Database
from karat.store.labels import LabelStore
from karat.store.records import (
    EvaluationPage,
    NotStoredError,
    RestoredEvaluation,
    SavedEvaluation,
    StoredNames,
    TrendPoint,
    as_utc,
    checked_tags,
    not_before,
    storable_name,
    storable_text,
)
from karat.store.rows import (
    evaluation_of,
    evaluation_row,
    jsonable,
    measure_rows,
    pack,
    stored_measure_name,
    summary_of,
    unpack,
)
from karat.store.schema import (
    EVALUATIONS,
    HIGHEST_ID,
    MEASURES,
    PARTS,
    REPORTS,
    SCORES,
    TAGS,
    VERSIONS,
    clamp_id,
    new_id,
)

_TAGS_LISTED = 20
_LONGEST_SEARCH = 200
_SEARCHED = (
    EVALUATIONS.c.system,
    EVALUATIONS.c.note,
    EVALUATIONS.c.run_name,
    EVALUATIONS.c.revision,
)
# Read by ids, so that what is saved meanwhile changes nothing.
_IDS_AT_ONCE = 500
_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_SUMMARIES = (
    select(MEASURES).where(MEASURES.c.evaluation_id.in_(_IDS)).order_by(MEASURES.c.position)
)
_TAGS = select(TAGS.c.evaluation_id, TAGS.c.tag).where(TAGS.c.evaluation_id.in_(_IDS))


class Store(LabelStore):
    """A history of evaluations and judgments in SQLite or PostgreSQL.

    Open it with ``Store.open`` and close it, or use ``with``. The first save creates the store;
    reading one that does not exist raises NoHistoryError. A store of an older karat is upgraded
    at its first use. One store serves any number of threads, and notices when its file is
    replaced.

    >>> from karat.store import LabelItem
    >>> with Store.open("sqlite://") as store:
    ...     labels = store.add_label_set("pilot", [LabelItem("q1", "d1", "a query", "a text")])
    ...     judgment = store.judge(labels.id, 0, "Ana", 2)
    ...     [(judgment.rater, judgment.grade) for judgment in store.judgments(labels.id)]
    [('Ana', 2.0)]
    """

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str] | None = None,
        *,
        patience: float | None = None,
        waiting: Callable[[str], None] | None = None,
    ) -> Store:
        """Open a store by path or SQLAlchemy URL; default: $KARAT_STORE or .karat/history.db.

        ``patience`` is how many seconds to wait while another process holds the store; by
        default a minute for a file, and as long as a server waits. ``waiting`` is called with the
        store's name, from another thread, when a write waits for more than two seconds.
        """
        return cls(Database(where, patience=patience, waiting=waiting))

    @property
    def name(self) -> str:
        """Return where the store is, without user and password."""
        return self._database.address.name

    @property
    def lasting(self) -> bool:
        """Return whether the store outlives the process; one in memory does not."""
        return not self._database.address.in_memory

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Refuse now, before any work, what a save would refuse later."""
        self._database.check()

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
        tags, moment = checked_tags(tags), as_utc(now)
        commit = Revision(revision) if isinstance(revision, str) else revision
        summaries = [system.summaries for system in scores] if summaries is None else summaries
        systems = []
        for system, of_system in zip(scores, summaries, strict=True):
            packed = pack(system)
            row = evaluation_row(system, report, commit, note, moment)
            systems.append((row | {"about": packed.pop("about")}, measure_rows(of_system), packed))
        document = json.dumps(jsonable(report), sort_keys=True)
        parts = {storable_name("part", name): data for name, data in (parts or {}).items()}
        with self._database.writing() as connection:
            report_id = new_id(connection.execute(insert(REPORTS).values(document=document)))
            for name, data in parts.items():
                part = {"report_id": report_id, "name": name, "data": data}
                connection.execute(insert(PARTS).values(part))
            ids = []
            for row, measures, packed in systems:
                values = {"report_id": report_id, **row}
                id = new_id(connection.execute(insert(EVALUATIONS).values(values)))
                rows = [{"evaluation_id": id, **measure} for measure in measures]
                connection.execute(insert(MEASURES), rows)
                connection.execute(insert(SCORES).values(evaluation_id=id, **packed))
                ids.append(id)
            _add_tags(connection, ids, tags, moment, exact=now is not None)
            return ids

    def evaluations(
        self,
        *,
        system: str | None = None,
        tag: str | None = None,
        gold: str | None = None,
        limit: int | None = None,
    ) -> list[SavedEvaluation]:
        """Return evaluations, newest first; ``gold`` is the beginning of the gold's SHA-256."""
        most = HIGHEST_ID if limit is None else limit
        return self.listed(system=system, tag=tag, gold=gold, limit=most).evaluations

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
        chosen = _filtered(system=system, tag=tag, gold=gold, verdict=verdict, search=search)
        newest_first = chosen.order_by(EVALUATIONS.c.saved_at.desc(), EVALUATIONS.c.id.desc())
        page = newest_first.limit(clamp_id(limit)).offset(clamp_id(offset))
        # count(*) would drop the table from the statement.
        counted = chosen.with_only_columns(func.count(EVALUATIONS.c.id))
        with self._database.reading() as connection:
            total = connection.execute(counted).scalar_one()
            return EvaluationPage(_evaluations(connection, page), int(total))

    def names(self) -> StoredNames:
        """Return every system, tag, measure and verdict in the store."""
        columns = (EVALUATIONS.c.system, TAGS.c.tag, MEASURES.c.measure, EVALUATIONS.c.verdict)
        with self._database.reading() as connection:
            names = [
                connection.execute(select(column).where(column.is_not(None)).distinct()).scalars()
                for column in columns
            ]
            # Sorted here, since databases differ in the order of letters.
            return StoredNames(*map(sorted, names))

    def stamp(self) -> str:
        """Return a text that changes with every evaluation, tag and label set."""
        with self._database.reading() as connection:
            return str(connection.execute(select(VERSIONS.c.stamp)).scalar_one())

    def evaluation(self, id: int) -> SavedEvaluation:
        """Return one evaluation, without its scores."""
        with self._database.reading() as connection:
            return self._by_id(connection, id)

    def together(self, report_id: int) -> list[SavedEvaluation]:
        """Return the evaluations that were saved with one report, in their order."""
        chosen = select(EVALUATIONS).where(EVALUATIONS.c.report_id == clamp_id(report_id))
        with self._database.reading() as connection:
            evaluations = _evaluations(connection, chosen.order_by(EVALUATIONS.c.id))
        if not evaluations:
            raise NotStoredError(f"no report {report_id} in {self.name}")
        return evaluations

    def report(self, report_id: int) -> dict[str, Any]:
        """Return the document that evaluations were saved with."""
        chosen = select(REPORTS.c.document).where(REPORTS.c.id == clamp_id(report_id))
        with self._database.reading() as connection:
            document = connection.execute(chosen).scalar()
            if document is None:
                raise NotStoredError(f"no report {report_id} in {self.name}")
            return dict(json.loads(document))

    def part(self, report_id: int, name: str) -> bytes | None:
        """Return a part of the report's page, or None if it was saved without."""
        chosen = select(PARTS.c.data).where(
            PARTS.c.report_id == clamp_id(report_id), PARTS.c.name == storable_text(name)
        )
        with self._database.reading() as connection:
            data = connection.execute(chosen).scalar()
        return None if data is None else bytes(data)

    def baseline(self, tag_or_id: str, *, system: str | None = None) -> RestoredEvaluation:
        """Return an evaluation by id, or the one that got a tag last, with its scores.

        ``TAG:SYSTEM``, or ``system``, chooses among systems that were saved together.
        """
        tag, _, tagged_system = tag_or_id.partition(":")
        with self._database.reading() as connection:
            if tag_or_id.isdecimal():
                # A longer number is the id of nothing, and may be too long for int().
                id = int(tag_or_id) if len(tag_or_id) < 10 else HIGHEST_ID
                saved = self._by_id(connection, id)
            else:
                saved = _latest_with_tag(connection, tag, tagged_system or system)
            chosen = (
                select(SCORES.c.queries, SCORES.c.evidence, EVALUATIONS.c.about, REPORTS.c.document)
                .join(EVALUATIONS, EVALUATIONS.c.id == SCORES.c.evaluation_id)
                .join(REPORTS, REPORTS.c.id == EVALUATIONS.c.report_id)
                .where(SCORES.c.evaluation_id == saved.id)
            )
            row = connection.execute(chosen).mappings().one()
        where = f"{self.name}: evaluation {saved.id}"
        scores = unpack(row, system=saved.system, source=saved.run, where=where)
        return RestoredEvaluation(saved, scores, json.loads(row["document"]))

    def trend(
        self,
        measure: str,
        *,
        system: str | None = None,
        tag: str | None = None,
        limit: int | None = None,
    ) -> list[TrendPoint]:
        """Return one measure over time, system by system, oldest first.

        With ``limit`` the last so many of each system.
        """
        chosen = _filtered(system=system, tag=tag)
        with self._database.reading() as connection:
            stored = connection.execute(select(MEASURES.c.measure).distinct()).scalars()
            name = stored_measure_name(measure, sorted(stored))
            evaluations = _evaluations(connection, chosen, measure=name)
        points = groupby(_trend_points(evaluations, name), key=lambda point: point.saved.system)
        return [point for _, series in points for point in list(series)[-(limit or 0) :]]

    def tag(self, id: int, tags: Sequence[str], *, now: datetime | None = None) -> None:
        """Tag an evaluation; from now on the tags name this one."""
        tags, moment = checked_tags(tags), as_utc(now)
        # Locked: two processes that give the same tags do so one after the other.
        row = select(EVALUATIONS.c.id).where(EVALUATIONS.c.id == clamp_id(id)).with_for_update()
        with self._database.writing(create=False) as connection:
            self._by_id(connection, id)
            connection.execute(row)
            _add_tags(connection, [id], tags, moment, exact=now is not None)

    def no_match(self, *, system: str | None = None, tag: str | None = None) -> UsageError:
        """Return the error for filters that no evaluation meets, with the nearest known name."""
        names = self.names()
        for kind, name, known in (("system", system, names.systems), ("tag", tag, names.tags)):
            if name is not None and name not in known:
                return unknown(kind, name, known or ["none yet"])
        return UsageError("no saved evaluation is all of that; ask for less")

    def _by_id(self, connection: Connection, id: int) -> SavedEvaluation:
        chosen = select(EVALUATIONS).where(EVALUATIONS.c.id == clamp_id(id))
        evaluations = _evaluations(connection, chosen)
        if not evaluations:
            raise NotStoredError(f"no evaluation {id} in {self.name}; karat history lists them")
        return evaluations[0]


def _filtered(
    *,
    system: str | None = None,
    tag: str | None = None,
    gold: str | None = None,
    verdict: str | None = None,
    search: str | None = None,
) -> Select[Any]:
    """Select evaluations that meet every filter given; ``gold`` is the beginning of a digest."""
    conditions = []
    for column, name in ((EVALUATIONS.c.system, system), (EVALUATIONS.c.verdict, verdict)):
        if name is not None:
            conditions.append(column == storable_text(name))
    if tag is not None:
        conditions.append(_tagged(TAGS.c.tag == storable_text(tag)))
    if gold is not None:
        digest = storable_text(gold).lower()
        conditions.append(EVALUATIONS.c.gold_sha256.startswith(digest, autoescape=True))
    if search is not None and len(search) > _LONGEST_SEARCH:
        raise UsageError(f"the search has {len(search):,} characters; give at most 200")
    for word in dict.fromkeys(storable_text(search or "").split()):
        columns = [column.icontains(word, autoescape=True) for column in _SEARCHED]
        conditions.append(or_(*columns, _tagged(TAGS.c.tag.icontains(word, autoescape=True))))
    return select(EVALUATIONS).where(*conditions)


def _tagged(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return EVALUATIONS.c.id.in_(select(TAGS.c.evaluation_id).where(condition))


def _evaluations(
    connection: Connection, statement: Select[Any], *, measure: str | None = None
) -> list[SavedEvaluation]:
    """Return selected evaluations with tags and summaries, or the summary of one ``measure``."""
    rows = connection.execute(statement).mappings().all()
    summaries: dict[int, dict[str, Summary]] = {row["id"]: {} for row in rows}
    tags: dict[int, list[str]] = {row["id"]: [] for row in rows}
    measures = _SUMMARIES if measure is None else _SUMMARIES.where(MEASURES.c.measure == measure)
    ids = list(summaries)
    for start in range(0, len(ids), _IDS_AT_ONCE):
        batch = {"ids": ids[start : start + _IDS_AT_ONCE]}
        for row in connection.execute(measures, batch).all():
            summaries[row.evaluation_id][row.measure] = summary_of(row)
        for id, tag in connection.execute(_TAGS, batch).all():
            tags[id].append(tag)
    return [evaluation_of(row, summaries[row["id"]], tags[row["id"]]) for row in rows]


def _latest_with_tag(connection: Connection, tag: str, system: str | None) -> SavedEvaluation:
    """Return the evaluation that got the tag last; refuse to choose between systems."""
    with_tag = (TAGS.c.evaluation_id == EVALUATIONS.c.id) & (TAGS.c.tag == storable_text(tag))
    newest_first = (
        _filtered(system=system)
        .join(TAGS, with_tag)
        .add_columns(TAGS.c.tagged_at)
        .order_by(TAGS.c.tagged_at.desc(), EVALUATIONS.c.id.desc())
    )
    rows = connection.execute(newest_first).mappings().all()
    if not rows:
        tags = connection.execute(select(TAGS.c.tag).distinct()).scalars().all()
        if tag in tags:
            raise UsageError(f"no evaluation of {system!r} has the tag {tag!r}")
        raise unknown("tag", tag, sorted(tags)[:_TAGS_LISTED] or ["none yet"])
    last = rows[0]
    event = last["report_id"], last["tagged_at"]
    tagged_at_once = [row for row in rows if (row["report_id"], row["tagged_at"]) == event]
    if len(tagged_at_once) > 1:
        choices = ", ".join(f"{tag}:{row['system']}" for row in reversed(tagged_at_once))
        raise UsageError(
            f"{tag!r} is the tag of several systems saved at once; take one: {choices}"
        )
    return _evaluations(connection, select(EVALUATIONS).where(EVALUATIONS.c.id == last["id"]))[0]


def _add_tags(
    connection: Connection,
    ids: Sequence[int],
    tags: Sequence[str],
    moment: datetime,
    *,
    exact: bool,
) -> None:
    """Give evaluations tags, or give them anew.

    Unless the time is ``exact``, it is after the tags were given last, even by a clock that was
    ahead.
    """
    if not exact and tags:
        newest = select(func.max(TAGS.c.tagged_at)).where(TAGS.c.tag.in_(tags))
        moment = not_before(connection.execute(newest).scalar(), moment)
    for id in ids:
        for tag in tags:
            same = (TAGS.c.evaluation_id == id) & (TAGS.c.tag == tag)
            if not connection.execute(update(TAGS).where(same).values(tagged_at=moment)).rowcount:
                row = {"evaluation_id": id, "tag": tag, "tagged_at": moment}
                connection.execute(insert(TAGS).values(row))


def _trend_points(evaluations: Sequence[SavedEvaluation], measure: str) -> list[TrendPoint]:
    """Return one point per evaluation, system by system, oldest first."""
    points: list[TrendPoint] = []
    measured = [saved for saved in evaluations if measure in saved.summaries]
    # Sorted here, since databases differ in the order of letters.
    for saved in sorted(measured, key=lambda saved: (saved.system, saved.saved_at, saved.id)):
        before = points[-1].saved if points else None
        if before is None or before.system != saved.system:
            points.append(TrendPoint(measure, saved))
            continue
        breaks, change = _trend_breaks(before, saved), None
        mean, previous = saved.summaries[measure].mean, before.summaries[measure].mean
        if not breaks and mean is not None and previous is not None:
            change = mean - previous
        points.append(TrendPoint(measure, saved, breaks, change))
    return points


def _trend_breaks(before: SavedEvaluation, after: SavedEvaluation) -> tuple[str, ...]:
    """Return what changed between two evaluations so that they cannot be compared."""
    same_file = before.gold.sha256 == after.gold.sha256
    breaks = []
    if before.fingerprint != after.fingerprint:
        breaks = ["queries" if same_file and before.gold.sha256 is not None else "gold"]
    if any(before.conventions.get(key) != after.conventions.get(key) for key in DECISIVE):
        # The same file read at another level is other gold; the conventions are the reason.
        breaks = [*(change for change in breaks if change == "gold"), "conventions"]
    return tuple(breaks)
