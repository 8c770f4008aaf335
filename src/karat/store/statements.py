"""The SQL statements of the store on evaluations: filters, reads and inserts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    CursorResult,
    Select,
    bindparam,
    func,
    insert,
    or_,
    select,
    update,
)

from karat.errors import UsageError, unknown
from karat.measures.scores import Summary
from karat.store import rows
from karat.store.records import SavedEvaluation, StoredNames
from karat.store.rows import PackedScores, not_before, storable_text
from karat.store.schema import (
    EVALUATIONS,
    FIRST_WITH_LABELS,
    MEASURES,
    PARTS,
    REPORTS,
    SCORES,
    TAGS,
    VERSIONS,
)

_TAGS_LISTED = 20
_LONGEST_SEARCH = 200
_SEARCHED = (
    EVALUATIONS.c.system,
    EVALUATIONS.c.note,
    EVALUATIONS.c.run_name,
    EVALUATIONS.c.revision,
)
# Read by known ids, so that what is saved meanwhile changes nothing.
_IDS_AT_ONCE = 500
_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_SUMMARIES = (
    select(MEASURES.c.evaluation_id, MEASURES.c.measure, *rows.SUMMARY)
    .where(MEASURES.c.evaluation_id.in_(_IDS))
    .order_by(MEASURES.c.position)
)
_TAGS = select(TAGS.c.evaluation_id, TAGS.c.tag).where(TAGS.c.evaluation_id.in_(_IDS))


def filtered(
    *,
    system: str | None = None,
    tag: str | None = None,
    gold: str | None = None,
    verdict: str | None = None,
    search: str | None = None,
) -> Select[Any]:
    """Select evaluations that meet every filter given; ``gold`` is the beginning of a digest."""
    statement = select(EVALUATIONS)
    if system is not None:
        statement = statement.where(EVALUATIONS.c.system == storable_text(system))
    if tag is not None:
        tagged = select(TAGS.c.evaluation_id).where(TAGS.c.tag == storable_text(tag))
        statement = statement.where(EVALUATIONS.c.id.in_(tagged))
    if gold is not None:
        digest = storable_text(gold).lower()
        statement = statement.where(EVALUATIONS.c.gold_sha256.startswith(digest, autoescape=True))
    if verdict is not None:
        statement = statement.where(EVALUATIONS.c.verdict == storable_text(verdict))
    if search is not None and len(search) > _LONGEST_SEARCH:
        raise UsageError(f"the search has {len(search):,} characters; give at most 200")
    words = dict.fromkeys(storable_text(search or "").split())
    return statement.where(*(_contains(word) for word in words))


def _contains(word: str) -> ColumnElement[bool]:
    tagged = select(TAGS.c.evaluation_id).where(TAGS.c.tag.icontains(word, autoescape=True))
    return or_(
        *(column.icontains(word, autoescape=True) for column in _SEARCHED),
        EVALUATIONS.c.id.in_(tagged),
    )


def by_time(statement: Select[Any], *, newest_first: bool = True) -> Select[Any]:
    """Order evaluations by the time they were saved."""
    order = (EVALUATIONS.c.saved_at, EVALUATIONS.c.id)
    return statement.order_by(*(column.desc() if newest_first else column for column in order))


def evaluations(
    connection: Connection, statement: Select[Any], *, measure: str | None = None
) -> list[SavedEvaluation]:
    """Return selected evaluations with tags and summaries, or the summary of one ``measure``."""
    found = connection.execute(statement).mappings().all()
    summaries: dict[int, dict[str, Summary]] = {row["id"]: {} for row in found}
    tags: dict[int, list[str]] = {row["id"]: [] for row in found}
    measures = _SUMMARIES if measure is None else _SUMMARIES.where(MEASURES.c.measure == measure)
    ids = list(summaries)
    for start in range(0, len(ids), _IDS_AT_ONCE):
        batch = {"ids": ids[start : start + _IDS_AT_ONCE]}
        for id, name, *numbers in connection.execute(measures, batch).all():
            summaries[id][name] = rows.summary_of(*numbers)
        for id, tag in connection.execute(_TAGS, batch).all():
            tags[id].append(tag)
    return [rows.evaluation_of(row, summaries[row["id"]], tags[row["id"]]) for row in found]


def count(connection: Connection, statement: Select[Any]) -> int:
    """Return how many evaluations are selected."""
    # count(*) would drop the table from the statement.
    counted = statement.with_only_columns(func.count(EVALUATIONS.c.id))
    return int(connection.execute(counted).scalar_one())


def names(connection: Connection) -> StoredNames:
    """Return every name; sorted here, since databases differ in the order of letters."""
    columns = (EVALUATIONS.c.system, TAGS.c.tag, MEASURES.c.measure, EVALUATIONS.c.verdict)
    found = [connection.execute(select(column).distinct()).scalars() for column in columns]
    return StoredNames(*(sorted(name for name in some if name is not None) for some in found))


def stamp(connection: Connection, version: int) -> str:
    """Return a text that changes with every write; a store of version 1 has none of its own."""
    if version >= FIRST_WITH_LABELS:
        return str(connection.execute(select(VERSIONS.c.stamp)).scalar_one())
    last = select(func.max(EVALUATIONS.c.id)).scalar_subquery()
    row = connection.execute(select(last, func.count(), func.max(TAGS.c.tagged_at))).one()
    return "-".join(map(str, (version, *row)))


def latest_with_tag(connection: Connection, tag: str, system: str | None) -> SavedEvaluation:
    """Return the evaluation that got the tag last; refuse to choose between systems."""
    with_tag = (TAGS.c.evaluation_id == EVALUATIONS.c.id) & (TAGS.c.tag == storable_text(tag))
    newest_first = (
        filtered(system=system)
        .join(TAGS, with_tag)
        .add_columns(TAGS.c.tagged_at)
        .order_by(TAGS.c.tagged_at.desc(), EVALUATIONS.c.id.desc())
    )
    found = connection.execute(newest_first).mappings().all()
    if not found:
        raise _unknown_tag(connection, tag, system)
    last = found[0]
    together = [
        row
        for row in found
        if (row["report_id"], row["tagged_at"]) == (last["report_id"], last["tagged_at"])
    ]
    if len(together) > 1:
        choices = ", ".join(f"{tag}:{row['system']}" for row in reversed(together))
        raise UsageError(
            f"{tag!r} is the tag of several systems saved at once; take one: {choices}"
        )
    return evaluations(connection, select(EVALUATIONS).where(EVALUATIONS.c.id == last["id"]))[0]


def _unknown_tag(connection: Connection, tag: str, system: str | None) -> UsageError:
    newest_first = select(TAGS.c.tag, TAGS.c.tagged_at).order_by(TAGS.c.tagged_at.desc())
    known = list(dict.fromkeys(row.tag for row in connection.execute(newest_first)))
    if tag in known:
        return UsageError(f"no evaluation of {system!r} has the tag {tag!r}")
    if not known:
        return UsageError(f"unknown tag {tag!r}; no evaluation has one yet")
    return unknown("tag", tag, known[:_TAGS_LISTED])


def add_report(connection: Connection, document: str, parts: Sequence[Mapping[str, Any]]) -> int:
    """Add a report and the parts of its page; return its id."""
    id = new_id(connection.execute(insert(REPORTS).values(document=document)))
    if parts:
        connection.execute(insert(PARTS), [{"report_id": id, **part} for part in parts])
    return id


def add_evaluation(
    connection: Connection,
    row: Mapping[str, Any],
    measures: Sequence[Mapping[str, Any]],
    packed: PackedScores,
    tags: Sequence[str],
    tagged_at: datetime,
) -> int:
    """Add one system with its summaries, scores and tags; return its id."""
    id = new_id(connection.execute(insert(EVALUATIONS).values(row)))
    connection.execute(insert(MEASURES), [{**one, "evaluation_id": id} for one in measures])
    scores = {"evaluation_id": id, "queries": packed.queries, "evidence": packed.evidence}
    connection.execute(insert(SCORES).values(scores))
    add_tags(connection, id, tags, tagged_at)
    return id


def new_id(result: CursorResult[Any]) -> int:
    """Return the id of the row that was inserted."""
    return int(result.inserted_primary_key[0])  # type: ignore[index]  # one row, one key


def tag_time(connection: Connection, tags: Sequence[str], now: datetime) -> datetime:
    """Return now, or the moment after the tags were given last if that clock was ahead."""
    newest = select(func.max(TAGS.c.tagged_at)).where(TAGS.c.tag.in_(tags))
    return not_before(connection.execute(newest).scalar(), now) if tags else now


def add_tags(connection: Connection, id: int, tags: Sequence[str], moment: datetime) -> None:
    """Give an evaluation tags, or give them anew."""
    for tag in tags:
        same = (TAGS.c.evaluation_id == id) & (TAGS.c.tag == tag)
        if not connection.execute(update(TAGS).where(same).values(tagged_at=moment)).rowcount:
            row = {"evaluation_id": id, "tag": tag, "tagged_at": moment}
            connection.execute(insert(TAGS).values(row))
