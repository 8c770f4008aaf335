"""The gold of a few queries with what the corpus says of it: items, documents or spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl

from karat.columns import doc_of_text
from karat.formats.spans import join_spans
from karat.measures.prepare import Prepared

_TOLD = ("item_id", "doc_id", "text", "section", "version", "start", "end")
# Between pieces of a span that chunks leave a gap in.
_GAP = " … "

Row = Mapping[str, Any]


class Items(Protocol):
    """Whatever knows a corpus: all that it says of some items or documents, in its order."""

    def rows(self, ids: Sequence[str], *, by: str = "item_id") -> pl.DataFrame: ...


@dataclass(frozen=True, slots=True)
class GoldItem:
    """One relevant item, document or span of a query; ``judgment`` is its row in the gold.

    ``in_corpus`` is None where there is no corpus to look in.
    """

    judgment: int
    item_id: str
    doc_id: str
    grade: float
    text: str | None = None
    section: str | None = None
    version: str | None = None
    in_corpus: bool | None = None


def known_items(items: Items | None, ids: Sequence[str], by: str = "item_id") -> list[Row]:
    """What the corpus says of some items or documents; nothing where there is none."""
    if items is None or not ids:
        return []
    frame = items.rows(list(dict.fromkeys(ids)), by=by)
    return list(frame.select(name for name in _TOLD if name in frame.columns).iter_rows(named=True))


def gold_of(
    gold: Prepared, rows: Sequence[int], items: Items | None
) -> dict[int, tuple[GoldItem, ...]]:
    """The relevant gold of some queries, best grade first."""
    judged, place = gold.rows_of(np.array(rows, dtype=np.int64))
    relevant = gold.grade[judged] >= gold.conventions.rel
    judged, place = judged[relevant], place[relevant]
    frame = gold.rows[judged]
    by = "item_id" if gold.conventions.level == "item" else "doc_id"
    parts: dict[str, list[Row]] = {}
    for one in known_items(items, frame["item_id"].to_list(), by):
        parts.setdefault(one[by], []).append(one)
    spelled = join_spans(frame)["item_id"].to_list()
    found: dict[int, list[GoldItem]] = {row: [] for row in rows}
    for at, (judgment, unit) in enumerate(zip(judged, frame.iter_rows(named=True), strict=True)):
        known = parts.get(unit["item_id"], [])
        there = None if items is None else bool(known)
        told = _told(unit, known, by) | {"in_corpus": there}
        item = GoldItem(int(judgment), spelled[at], grade=float(unit["grade"]), **told)
        found[rows[place[at]]].append(item)
    return {row: tuple(own) for row, own in found.items()}


def _told(unit: Row, parts: Sequence[Row], by: str) -> dict[str, Any]:
    """What the corpus says of a unit that it has in one part or several."""
    if unit.get("start") is not None:
        parts = [part for part in parts if _meet(part, unit)]
    own = _spelled([unit.get("version")])
    doc_id = unit["item_id"] if by == "doc_id" else doc_of_text(unit["item_id"])
    return {
        "doc_id": str(parts[0]["doc_id"]) if parts else doc_id,
        "text": _text(unit, parts),
        "section": _spelled([part.get("section") for part in parts]),
        "version": own or _spelled([part.get("version") for part in parts]),
    }


def _spelled(values: Sequence[Any]) -> str | None:
    """Different values one after the other, as text."""
    known = [value for value in values if value not in (None, "", [])]
    told = [" > ".join(map(str, one)) if isinstance(one, list) else str(one) for one in known]
    return ", ".join(dict.fromkeys(told)) or None


def _text(unit: Row, parts: Sequence[Row]) -> str | None:
    if not parts:
        return None
    if unit.get("start") is None:
        return "\n".join(part["text"] for part in parts)
    return _cut(parts, unit["start"], unit["end"])


def _place(part: Row) -> tuple[int, int]:
    """Where a part lies in its document; one that does not say is all of it."""
    start, end = part.get("start"), part.get("end")
    if isinstance(start, int) and isinstance(end, int):
        return start, end
    return 0, len(part["text"])


def _meet(part: Row, span: Row) -> bool:
    start, end = _place(part)
    return start < int(span["end"]) and end > int(span["start"])


def _cut(parts: Sequence[Row], start: int, end: int) -> str:
    """The characters of a span, put together from the parts that hold some of them."""
    pieces: list[str] = []
    at = start
    for part in sorted(parts, key=_place):
        first, last = _place(part)
        if last <= at:
            continue
        pieces += [_GAP] if first > at else []
        pieces.append(part["text"][max(at, first) - first : end - first])
        at = last
    return "".join(pieces)
