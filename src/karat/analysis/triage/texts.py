"""The gold of a few queries with what the corpus says of it: items, documents or spans."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl

from karat.data.columns import doc_of_text, join_spans
from karat.errors import UsageError
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ranked
from karat.measures.scores import Scores

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
    """Return what the corpus says of some items or documents; nothing where there is none."""
    if items is None or not ids:
        return []
    frame = items.rows(list(dict.fromkeys(ids)), by=by)
    return list(frame.select(name for name in _TOLD if name in frame.columns).iter_rows(named=True))


def gold_of(
    gold: Prepared, rows: Sequence[int], items: Items | None
) -> dict[int, tuple[GoldItem, ...]]:
    """Return the relevant gold of some queries, best grade first."""
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
        facts = _told(unit, known, by) | {"in_corpus": there}
        item = GoldItem(int(judgment), spelled[at], grade=float(unit["grade"]), **facts)
        found[rows[place[at]]].append(item)
    return {row: tuple(own) for row, own in found.items()}


def _told(unit: Row, parts: Sequence[Row], by: str) -> dict[str, Any]:
    """Return what the corpus says of a unit that it has in one part or several."""
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
    """Return different values joined as text."""
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
    """Return where a part lies in its document; one that does not say is all of it."""
    start, end = part.get("start"), part.get("end")
    if isinstance(start, int) and isinstance(end, int):
        return start, end
    return 0, len(part["text"])


def _meet(part: Row, span: Row) -> bool:
    start, end = _place(part)
    return start < int(span["end"]) and end > int(span["start"])


def _cut(parts: Sequence[Row], start: int, end: int) -> str:
    """Return the characters of a span, put together from the parts that hold some of them."""
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


def ranked_in(scores: Scores) -> Ranked:
    """Return the lists as they met their gold."""
    if scores.trace is None:
        raise UsageError("scores from a store do not say where items stood; score the run itself")
    return scores.trace.ranked


def listed(
    scores: Scores, gold: Prepared, rows: Sequence[int], k: int
) -> dict[int, list[dict[str, Any]]]:
    """Return the first k hits of some queries, each with its judgment."""
    ranked = ranked_in(scores)
    found: dict[int, list[dict[str, Any]]] = {row: [] for row in rows}
    grades = _grades(ranked, rows)
    for hit in _hits(scores, rows, k):
        row, again = hit.pop("row"), hit.pop("repeat")
        grade = grades.get((row, hit["rank"]))
        right = grade is not None and grade >= gold.conventions.rel
        facts = {"score": None, **hit, "grade": grade, "gold": right}
        found[row].append({**facts, "repeat": True} if again else facts)
    if any(len(hits) < min(k, ranked.returned[row]) for row, hits in found.items()):
        raise UsageError(f"fewer than the top {k} were kept; score the run with keep={k} or more")
    return found


def _hits(scores: Scores, rows: Sequence[int], k: int) -> Iterator[dict[str, Any]]:
    """Yield what was kept of the first k hits of some queries, by row and rank."""
    if scores.lists is not None:
        own = pl.col("row").is_in(list(rows)) & (pl.col("rank") <= k)
        values = [
            name
            for name in ("row", "rank", "item_id", "score", "repeat")
            if name in scores.lists.columns
        ]
        yield from scores.lists.filter(own).select(values).sort("row", "rank").iter_rows(named=True)


def _grades(ranked: Ranked, rows: Sequence[int]) -> dict[tuple[int, int], float]:
    """Return the grade of each judged hit of some queries, by row and rank.

    A further chunk of a document that is judged has that document's grade.
    """
    hits = ranked.hits
    own = hits.where(np.isin(hits.query, np.array(rows, dtype=np.int64)))
    grade = own.grade if own.best is None else own.best
    places = zip(own.query.tolist(), own.rank.tolist(), strict=True)
    return dict(zip(places, grade.tolist(), strict=True))


_WORD = re.compile(r"\w+")


def terms_of(text: str) -> tuple[str, ...]:
    """Return the different words of a text, whatever their case, in their order.

    >>> terms_of("Café opening: CAFÉ, 9 am")
    ('café', 'opening', '9', 'am')
    """
    return tuple(dict.fromkeys(_WORD.findall(text.casefold())))


@dataclass(frozen=True, slots=True)
class Overlap:
    """The words of a query beside those of its gold and of the first hit.

    ``gold`` are the words that it shares with the gold item that shares most, ``item_id``;
    ``missing`` are those that no gold has; ``top`` those of the first hit. What cannot be told
    for want of a text is None.
    """

    query: tuple[str, ...]
    item_id: str | None
    gold: tuple[str, ...] | None
    missing: tuple[str, ...] | None
    top: tuple[str, ...] | None

    def to_dict(self) -> dict[str, Any]:
        """Return how many words, and which."""
        share = None if self.gold is None or not self.query else len(self.gold) / len(self.query)
        return {
            "query": len(self.query),
            "query_words": list(self.query),
            "gold": None if self.gold is None else len(self.gold),
            "gold_words": None if self.gold is None else list(self.gold),
            "gold_item": self.item_id,
            "share": share,
            "missing": None if self.missing is None else list(self.missing),
            "top": None if self.top is None else len(self.top),
            "top_words": None if self.top is None else list(self.top),
        }


def overlap_of(query: str, gold: Mapping[str, str | None], top: str | None) -> Overlap:
    """The overlap of a query with the texts of its gold, by item, and with that of the first hit.

    >>> found = overlap_of("When will my refund arrive", {"a": "Refunds", "b": "a refund"}, None)
    >>> found.gold, found.missing
    (('refund',), ('when', 'will', 'my', 'arrive'))
    """
    asked = terms_of(query)
    words = {item: frozenset(terms_of(text)) for item, text in gold.items() if text is not None}
    shared = {item: _within(asked, own) for item, own in words.items()}
    best = max(shared, key=lambda item: len(shared[item]), default=None)
    anywhere = frozenset[str]().union(*words.values())
    return Overlap(
        query=asked,
        item_id=best,
        gold=None if best is None else shared[best],
        missing=None if best is None else tuple(word for word in asked if word not in anywhere),
        top=None if top is None else _within(asked, frozenset(terms_of(top))),
    )


def _within(words: Sequence[str], text: frozenset[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word in text)
