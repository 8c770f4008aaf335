"""What a save and a tag add to the store's tables, in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, CursorResult, func, insert, select, update

from karat.errors import UsageError
from karat.store.packing import Packed
from karat.store.rows import after, kept_name
from karat.store.schema import EVALUATIONS, MEASURES, PARTS, REPORTS, SCORES, TAGS


def add_report(connection: Connection, document: str, parts: Sequence[Mapping[str, Any]]) -> int:
    """A report and the parts of its page; the id is what its evaluations share."""
    id = new_id(connection.execute(insert(REPORTS).values(document=document)))
    if parts:
        connection.execute(insert(PARTS), [{"report_id": id, **one} for one in parts])
    return id


def part_rows(parts: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """One row a part."""
    for name, data in parts.items():
        if not isinstance(data, bytes):
            raise UsageError(f"the part {name!r} is {type(data).__name__}; give bytes")
    return [{"name": kept_name("part", name), "data": data} for name, data in parts.items()]


def add_evaluation(
    connection: Connection,
    row: Mapping[str, Any],
    measures: Sequence[Mapping[str, Any]],
    packed: Packed,
    tags: Sequence[str],
    tagged_at: datetime,
) -> int:
    """One system with its summaries, values and tags."""
    id = new_id(connection.execute(insert(EVALUATIONS).values(row)))
    own = {"evaluation_id": id}
    connection.execute(insert(MEASURES), [{**one, **own} for one in measures])
    values = {"queries": packed.queries, "evidence": packed.evidence}
    connection.execute(insert(SCORES).values({**own, **values}))
    give_tags(connection, id, tags, tagged_at)
    return id


def new_id(added: CursorResult[Any]) -> int:
    """The id of the row that was added."""
    return int(added.inserted_primary_key[0])  # type: ignore[index]  # one row, one key


def after_others(connection: Connection, tags: Sequence[str], now: datetime) -> datetime:
    """When tags that are given now are given: after all who had them, by whatever clock."""
    newest = select(func.max(TAGS.c.tagged_at)).where(TAGS.c.tag.in_(tags))
    return after(connection.execute(newest).scalar(), now) if tags else now


def give_tags(connection: Connection, id: int, tags: Sequence[str], moment: datetime) -> None:
    """Give an evaluation tags, or give them anew."""
    for tag in tags:
        own = (TAGS.c.evaluation_id == id) & (TAGS.c.tag == tag)
        if not connection.execute(update(TAGS).where(own).values(tagged_at=moment)).rowcount:
            row = {"evaluation_id": id, "tag": tag, "tagged_at": moment}
            connection.execute(insert(TAGS).values(row))
