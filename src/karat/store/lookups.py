"""The store's questions to its tables, in SQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    bindparam,
    func,
    or_,
    select,
)

from karat.errors import UsageError, unknown
from karat.measures.results import Summary
from karat.store import rows
from karat.store.records import Evaluation, Names
from karat.store.rows import kept_text
from karat.store.schema import EVALUATIONS, MEASURES, TAGS, VERSIONS, WITH_LABELS

_TAGS_TOLD = 20
_LONGEST_SEARCH = 200
_SEARCHED = (
    EVALUATIONS.c.system,
    EVALUATIONS.c.note,
    EVALUATIONS.c.run_name,
    EVALUATIONS.c.revision,
)
_STAMP = select(VERSIONS.c.stamp)
# By ids that are known, so that what was saved since the first question changes no answer.
_AT_ONCE = 500
_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_SUMMARIES = (
    select(MEASURES.c.evaluation_id, MEASURES.c.measure, *rows.SUMMARY)
    .where(MEASURES.c.evaluation_id.in_(_IDS))
    .order_by(MEASURES.c.position)
)
_TAGS = select(TAGS.c.evaluation_id, TAGS.c.tag).where(TAGS.c.evaluation_id.in_(_IDS))


def chosen(
    *,
    system: str | None = None,
    tag: str | None = None,
    gold: str | None = None,
    verdict: str | None = None,
    search: str | None = None,
) -> Select[Any]:
    """The evaluations of a system, with a tag, on gold whose digest begins so, of a verdict.

    ``search`` are words: each is in the system, the note, the run's name, the commit or a tag.
    """
    found = select(EVALUATIONS)
    if system is not None:
        found = found.where(EVALUATIONS.c.system == kept_text(system))
    if tag is not None:
        tagged = select(TAGS.c.evaluation_id).where(TAGS.c.tag == kept_text(tag))
        found = found.where(EVALUATIONS.c.id.in_(tagged))
    if gold is not None:
        begins = kept_text(gold).lower()
        found = found.where(EVALUATIONS.c.gold_sha256.startswith(begins, autoescape=True))
    if verdict is not None:
        found = found.where(EVALUATIONS.c.verdict == kept_text(verdict))
    return found.where(*(_holds(word) for word in _words(search or "")))


def _words(search: str) -> list[str]:
    if len(search) > _LONGEST_SEARCH:
        raise UsageError(f"the search has {len(search):,} characters; give at most 200")
    return list(dict.fromkeys(kept_text(search).split()))


def _holds(word: str) -> ColumnElement[bool]:
    tagged = select(TAGS.c.evaluation_id).where(TAGS.c.tag.icontains(word, autoescape=True))
    return or_(
        *(column.icontains(word, autoescape=True) for column in _SEARCHED),
        EVALUATIONS.c.id.in_(tagged),
    )


def in_time(which: Select[Any], *, newest_first: bool = True) -> Select[Any]:
    """In the order in which they were saved."""
    order = (EVALUATIONS.c.saved_at, EVALUATIONS.c.id)
    return which.order_by(*(one.desc() if newest_first else one for one in order))


def evaluations(
    connection: Connection, which: Select[Any], *, measure: str | None = None
) -> list[Evaluation]:
    """The chosen ones with their tags and summaries, or the summary of one ``measure`` alone."""
    found = connection.execute(which).mappings().all()
    summaries: dict[int, dict[str, Summary]] = {row["id"]: {} for row in found}
    tags: dict[int, list[str]] = {row["id"]: [] for row in found}
    measures = _SUMMARIES if measure is None else _SUMMARIES.where(MEASURES.c.measure == measure)
    ids = list(summaries)
    for start in range(0, len(ids), _AT_ONCE):
        some = {"ids": ids[start : start + _AT_ONCE]}
        for id, name, *numbers in connection.execute(measures, some).all():
            summaries[id][name] = rows.summary_of(*numbers)
        for id, tag in connection.execute(_TAGS, some).all():
            tags[id].append(tag)
    return [rows.evaluation_of(row, summaries[row["id"]], tags[row["id"]]) for row in found]


def count(connection: Connection, which: Select[Any]) -> int:
    """How many are chosen."""
    # Named, since a count of nothing in particular loses the table that it is of.
    counted = which.with_only_columns(func.count(EVALUATIONS.c.id))
    return int(connection.execute(counted).scalar_one())


def names(connection: Connection) -> Names:
    """Every name there is; sorted here, since databases differ in the order of letters."""
    columns = (EVALUATIONS.c.system, TAGS.c.tag, MEASURES.c.measure, EVALUATIONS.c.verdict)
    found = [connection.execute(select(column).distinct()).scalars() for column in columns]
    return Names(*(sorted(name for name in some if name is not None) for some in found))


def stamp(connection: Connection, version: int) -> str:
    """What is another after every change; a store of version 1 has none of its own."""
    if version >= WITH_LABELS:
        return str(connection.execute(_STAMP).scalar_one())
    last = select(func.max(EVALUATIONS.c.id)).scalar_subquery()
    row = connection.execute(select(last, func.count(), func.max(TAGS.c.tagged_at))).one()
    return "-".join(str(one) for one in (version, *row))


def by_tag(connection: Connection, tag: str, system: str | None) -> Evaluation:
    """The evaluation that got the tag last; of systems saved together, the one that is named."""
    tagged = (
        chosen(system=system)
        .join(TAGS, (TAGS.c.evaluation_id == EVALUATIONS.c.id) & (TAGS.c.tag == kept_text(tag)))
        .add_columns(TAGS.c.tagged_at)
        .order_by(TAGS.c.tagged_at.desc(), EVALUATIONS.c.id.desc())
    )
    found = connection.execute(tagged).mappings().all()
    if not found:
        raise _unknown_tag(connection, tag, system)
    last = found[0]
    same = ("report_id", "tagged_at")
    together = [row for row in found if all(row[key] == last[key] for key in same)]
    if len(together) > 1:
        told = ", ".join(f"{tag}:{row['system']}" for row in reversed(together))
        raise UsageError(f"{tag!r} is the tag of several systems saved at once; take one: {told}")
    own = select(EVALUATIONS).where(EVALUATIONS.c.id == last["id"])
    return evaluations(connection, own)[0]


def _unknown_tag(connection: Connection, tag: str, system: str | None) -> UsageError:
    by_age = select(TAGS.c.tag, TAGS.c.tagged_at).order_by(TAGS.c.tagged_at.desc())
    known = list(dict.fromkeys(row.tag for row in connection.execute(by_age)))
    if tag in known:
        return UsageError(f"no evaluation of {system!r} has the tag {tag!r}")
    if not known:
        return UsageError(f"unknown tag {tag!r}; no evaluation has one yet")
    return unknown("tag", tag, known[:_TAGS_TOLD])
