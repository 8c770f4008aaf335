"""The store's questions to its tables, in SQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, select

from karat.errors import UsageError, unknown
from karat.measures.results import Summary
from karat.store import rows
from karat.store.records import Evaluation
from karat.store.schema import EVALUATIONS, MEASURES, TAGS

_TAGS_TOLD = 20


def chosen(
    *, system: str | None = None, tag: str | None = None, gold: str | None = None
) -> Select[Any]:
    """The evaluations of a system, with a tag, on gold whose digest begins so."""
    found = select(EVALUATIONS)
    if system is not None:
        found = found.where(EVALUATIONS.c.system == system)
    if tag is not None:
        tagged = select(TAGS.c.evaluation_id).where(TAGS.c.tag == tag)
        found = found.where(EVALUATIONS.c.id.in_(tagged))
    if gold is not None:
        found = found.where(EVALUATIONS.c.gold_sha256.startswith(gold.lower(), autoescape=True))
    return found


def evaluations(connection: Connection, which: Select[Any]) -> list[Evaluation]:
    """The chosen ones with summaries and tags: three questions, however many there are."""
    found = connection.execute(which).mappings().all()
    ids = which.with_only_columns(EVALUATIONS.c.id).subquery()
    measures = (
        select(MEASURES)
        .join(ids, ids.c.id == MEASURES.c.evaluation_id)
        .order_by(MEASURES.c.evaluation_id, MEASURES.c.position)
    )
    summaries: dict[int, dict[str, Summary]] = {}
    for row in connection.execute(measures).mappings():
        summaries.setdefault(row["evaluation_id"], {})[row["measure"]] = rows.summary_of(row)
    tags: dict[int, list[str]] = {}
    tagged = select(TAGS).join(ids, ids.c.id == TAGS.c.evaluation_id)
    for row in connection.execute(tagged).mappings():
        tags.setdefault(row["evaluation_id"], []).append(row["tag"])
    return [
        rows.evaluation_of(row, summaries.get(row["id"], {}), sorted(tags.get(row["id"], ())))
        for row in found
    ]


def by_tag(connection: Connection, tag: str, system: str | None) -> Evaluation:
    """The evaluation that got the tag last; of systems saved together, the one that is named."""
    tagged = (
        chosen(system=system)
        .join(TAGS, (TAGS.c.evaluation_id == EVALUATIONS.c.id) & (TAGS.c.tag == tag))
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
    return evaluations(connection, select(EVALUATIONS).where(EVALUATIONS.c.id == last["id"]))[0]


def _unknown_tag(connection: Connection, tag: str, system: str | None) -> UsageError:
    by_age = select(TAGS.c.tag, TAGS.c.tagged_at).order_by(TAGS.c.tagged_at.desc())
    known = list(dict.fromkeys(row.tag for row in connection.execute(by_age)))
    if tag in known:
        return UsageError(f"no evaluation of {system!r} has the tag {tag!r}")
    if not known:
        return UsageError(f"unknown tag {tag!r}; no evaluation has one yet")
    return unknown("tag", tag, known[:_TAGS_TOLD])
