"""The eval set of a karat.yaml as the explorer needs it: questions to offer, and their gold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from karat.columns import doc_of_text
from karat.config import Config
from karat.errors import KaratError
from karat.formats import read_gold, read_queries
from karat.retrievers.protocol import Hit, Query, queries_from

_GOLD_SHOWN = 50


@dataclass(frozen=True, eq=False)
class EvalSet:
    """The queries by their text, and what is right for each; ``note`` says what is lacking."""

    queries: list[Query] = field(default_factory=list)
    grades: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    by_doc: bool = False
    note: str | None = None

    def find(self, text: str) -> Query | None:
        """The first query that asks this, blanks around it aside."""
        asked = text.strip()
        return next((query for query in self.queries if query.text.strip() == asked), None)

    def like(self, text: str, limit: int) -> tuple[list[Query], int]:
        """Some queries whose text or id holds all these words, and how many there are."""
        words = text.casefold().split()
        found = [
            query
            for query in self.queries
            if all(word in f"{query.query_id} {query.text}".casefold() for word in words)
        ]
        return found[:limit], len(found)

    def gold_of(self, query: Query | None) -> Mapping[str, float]:
        """Grades by item, or by document where documents count."""
        return {} if query is None else self.grades.get(query.query_id, {})

    def key(self, hit: Hit) -> str:
        """What a hit is judged by."""
        return (hit.doc_id or doc_of_text(hit.item_id)) if self.by_doc else hit.item_id


def read_eval_set_of(config: Config) -> EvalSet:
    """The eval set of a config; one that cannot be read leaves searching possible, and says why."""
    name = config.queries or config.gold
    if name is None:
        return EvalSet(note="the karat.yaml names no queries, so none are offered")
    try:
        queries = queries_from(read_queries(config.path(name), fields=config.for_queries))
    except KaratError as error:
        return EvalSet(note=str(error))
    level = config.conventions.level
    if level == "span":
        return EvalSet(queries, note="the gold is in character spans, which are not marked here")
    try:
        gold = read_gold(
            config.path(config.gold or name),
            duplicates=config.conventions.duplicates,
            fields=config.for_queries if config.gold is None else config.mapping,
        )
    except KaratError as error:
        return EvalSet(queries, note=str(error))
    rows = gold.frame.select("query_id", "item_id", "grade").iter_rows()
    return EvalSet(queries, _grades(rows, by_doc=level == "doc"), by_doc=level == "doc")


def _grades(rows: Iterable[tuple[str, str, float]], *, by_doc: bool) -> dict[str, dict[str, float]]:
    grades: dict[str, dict[str, float]] = {}
    for query_id, item_id, grade in rows:
        of_query = grades.setdefault(query_id, {})
        key = doc_of_text(item_id) if by_doc else item_id
        of_query[key] = max(grade, of_query.get(key, grade))
    return grades


def places(gold: Mapping[str, float], ranks: Mapping[str, int], rel: float) -> list[dict[str, Any]]:
    """What is relevant and at which rank it came, best grade first."""
    relevant = sorted((-grade, item) for item, grade in gold.items() if grade >= rel)
    return [
        {"item_id": item, "grade": -grade, "rank": ranks.get(item)}
        for grade, item in relevant[:_GOLD_SHOWN]
    ]
