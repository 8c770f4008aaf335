"""Items and what raters say of them, as plain as the tests of labels need them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

MAY = datetime(2026, 5, 4, 9, 30, 0, 120, tzinfo=UTC)


@dataclass(frozen=True)
class Item:
    position: int
    query_id: str
    item_id: str


@dataclass(frozen=True)
class Said:
    position: int
    rater: str
    grade: float | None
    rationale: str = ""
    source: str = "human"
    given_at: datetime = MAY
    withdrawn_at: datetime | None = None


ITEMS = [Item(at, f"q{at // 2}", f"d{at}") for at in range(6)]


def all_of(rater: str, *grades: float | None) -> list[Said]:
    return [Said(at, rater, grade) for at, grade in enumerate(grades)]
