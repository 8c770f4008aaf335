"""Items and what raters say of them, as plain as the tests of labels need them."""

from __future__ import annotations

from datetime import UTC, datetime

from karat.store import Judgment, LabelItem

MAY = datetime(2026, 5, 4, 9, 30, 0, 120, tzinfo=UTC)


def Item(position: int, query_id: str, item_id: str) -> LabelItem:
    return LabelItem(query_id, item_id, "", "", position)


def Said(
    position: int,
    rater: str,
    grade: float | None,
    rationale: str = "",
    source: str = "human",
    given_at: datetime = MAY,
    withdrawn_at: datetime | None = None,
) -> Judgment:
    return Judgment(0, 1, position, rater, grade, rationale, given_at, withdrawn_at, source)


ITEMS = [Item(at, f"q{at // 2}", f"d{at}") for at in range(6)]


def all_of(rater: str, *grades: float | None) -> list[Judgment]:
    return [Said(at, rater, grade) for at, grade in enumerate(grades)]
