"""Triage: the worst queries of a run joined back to their texts, their gold and other lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.analysis.failures.case import ASSESSED
from karat.analysis.failures.classes import CLASSES, Failures, told_of
from karat.analysis.failures.gold_ranks import best_in
from karat.analysis.segments import By, segments_by
from karat.analysis.staged import KEEP, Staged
from karat.analysis.triage.gold_texts import GoldItem, Items, gold_of, known_items
from karat.analysis.triage.lists import listed, ranked_in
from karat.analysis.triage.misses import misses_of
from karat.analysis.triage.terms import overlap_of
from karat.errors import MissingInputError, UsageError, unknown
from karat.measures.names import Measure
from karat.measures.results import Scores
from karat.tables import Queries

Mask = NDArray[np.bool_]
Row = Mapping[str, Any]
# For a judgment, by its row in the gold, the rank at which a list has it.
Ranks = Mapping[int, int]

# How far down BM25's list gold is looked for.
BM25_DEPTH = 1000
# Columns in which an eval set says something of a query to whoever reads it.
_NOTES = ("notes", "note")
_MANY = 10


@dataclass(frozen=True, eq=False)
class Triage:
    """A run to be looked into, what makes its queries bad, and why those that miss do."""

    staged: Staged
    measure: Measure
    failures: Failures
    queries: Queries | None = None

    def worst(self, n: int) -> list[int]:
        """The rows of the n worst queries that have gold, worst first.

        Of equal values the one whose gold lies deepest comes first, then the one further up in
        the table. A query without a value was not answered, and comes before all others.
        """
        final = self.staged.final
        better = self.measure.definition.better
        if better == "none":
            raise UsageError(f"{self.measure} has no better and worse; choose another measure")
        if (lacks := final.lacks.get(str(self.measure))) is not None:
            beyond = () if final.cut is None else final.cut.beyond
            told = f"{self.measure} is not measured: {lacks}; name another measure"
            raise MissingInputError(told if str(self.measure) in beyond else lacks)
        values = final.values(str(self.measure)) * (1 if better == "higher" else -1)
        values = np.where(np.isnan(values), -np.inf, values)
        deepest = -best_in(final, self.staged.gold).rank
        order = np.lexsort((deepest, values))
        return [row for row in order.tolist() if self.with_gold[row]][:n]

    def chosen(self, query_ids: Sequence[str]) -> list[int]:
        """The rows of some queries; an unknown one is answered with the nearest."""
        numbers = self.staged.gold.numbers
        for query_id in query_ids:
            if query_id not in numbers:
                raise _unknown(query_id, list(numbers))
        return [numbers[query_id] for query_id in dict.fromkeys(query_ids)]

    @cached_property
    def with_gold(self) -> Mask:
        """Which queries have gold that can be missed."""
        return self.staged.final.status.is_in(ASSESSED).to_numpy()

    def text(self, row: int) -> str | None:
        """A query's text: that of the queries, else what the log says was asked."""
        text = self._asked(row).get("text") or self._calls.get(self._id(row), {}).get("query")
        return text if isinstance(text, str) and text.strip() else None

    def error(self, row: int) -> str | None:
        """Why a query's call failed, where it did."""
        error = self._calls.get(self._id(row), {}).get("error")
        return None if error in (None, False, "") else str(error)

    def misses(self) -> list[dict[str, Any]]:
        """Every miss: what was asked, the top k that came back, and what should have."""
        gold = self.staged.gold
        last = np.full(len(gold.query_ids), self.failures.lines.miss)
        return misses_of(self.staged.final, gold, self.queries, last)

    def cases(
        self, rows: Sequence[int], *, items: Items | None = None, bm25: Scores | None = None
    ) -> list[dict[str, Any]]:
        """Some queries in full, as they stand in a document.

        ``items`` knows the corpus; ``bm25`` are the scores of BM25's own lists.
        """
        prepared = self.staged.gold
        lists = {"top": listed(self.staged.final, prepared, rows, KEEP)}
        if bm25 is not None:
            lists["bm25"] = listed(bm25, prepared, rows, KEEP)
        ids = [hit["item_id"] for own in lists.values() for hits in own.values() for hit in hits]
        texts = {one["item_id"]: one["text"] for one in known_items(items, ids)}
        gold = gold_of(prepared, rows, items)
        ranks = {name: _ranks(scores, rows) for name, scores in self._lists(bm25).items()}
        return [
            self._case(row)
            | {name: [_with_text(hit, texts) for hit in own[row]] for name, own in lists.items()}
            | ({} if bm25 is not None and self.text(row) is not None else {"bm25": None})
            | {"gold": [_gold(item, ranks) for item in gold[row]]}
            | {"terms": self._terms(row, gold[row], lists["top"][row], texts)}
            for row in rows
        ]

    def _case(self, row: int) -> dict[str, Any]:
        asked = dict(self._asked(row))
        asked.pop("query_id", None)
        asked.pop("text", None)
        notes = [asked.pop(name, None) for name in _NOTES]
        value = float(self.staged.final.values(str(self.measure))[row])
        why = self.failures.by_query.get(self._id(row))
        return {
            "query_id": self._id(row),
            "text": self.text(row),
            "note": next((note for note in notes if note), None),
            "attributes": {name: told for name, told in asked.items() if told is not None},
            "status": self.staged.final.status[row],
            "error": self.error(row),
            "value": None if np.isnan(value) else value,
            "miss": why is not None,
            "class": None if why is None else why.kind,
            "because": None if why is None else why.because,
            "evidence": None if why is None else dict(why.evidence),
        }

    def _terms(
        self, row: int, gold: Sequence[GoldItem], top: Sequence[Row], texts: Mapping[str, str]
    ) -> dict[str, Any] | None:
        asked = self.text(row)
        if asked is None:
            return None
        first = texts.get(top[0]["item_id"]) if top else None
        return overlap_of(asked, {item.item_id: item.text for item in gold}, first).document()

    def by_segment(self, by: By) -> dict[str, dict[str, Any]]:
        """How many queries of each segment miss, and why."""
        segments = {}
        for one in segments_by(self.staged.final.table["query_id"], self.queries, by):
            kinds = [miss.kind for miss in self.failures.queries if one.mask[miss.row]]
            segments[one.name] = {
                "queries": int((one.mask & self.with_gold).sum()),
                "misses": len(kinds),
                "classes": told_of({name: kinds.count(name) for name in CLASSES if name in kinds}),
            }
        return segments

    def depths(self) -> dict[str, Any]:
        """How far down each list can be seen."""
        staged = self.staged
        stages = {**staged.line, **staged.beside}
        return {
            "final": staged.depth(staged.final).known,
            "stages": {name: staged.depth(scores).known for name, scores in stages.items()},
        }

    def _lists(self, bm25: Scores | None) -> dict[tuple[str, ...], Scores]:
        """Every list that gold is looked for in, by where its rank stands in a document."""
        stages = {**self.staged.line, **self.staged.beside}
        return {
            ("final",): self.staged.final,
            **{("stages", name): scores for name, scores in stages.items()},
            **({} if bm25 is None else {("bm25",): bm25}),
        }

    def _id(self, row: int) -> str:
        return self.staged.gold.query_ids[row]

    def _asked(self, row: int) -> Row:
        """What the queries file says of a query."""
        number = self._numbers.get(self._id(row))
        if number is None or self.queries is None:
            return {}
        return self.queries.frame.row(number, named=True)

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        ids = [] if self.queries is None else self.queries.frame["query_id"].to_list()
        return {query_id: number for number, query_id in enumerate(ids)}

    @cached_property
    def _calls(self) -> Mapping[str, Row]:
        """What was asked and what went wrong, by query id, as far as it is logged."""
        calls = self.staged.calls
        if calls is None:
            return {}
        told = calls.select("query_id", *(n for n in ("query", "error") if n in calls.columns))
        return {row["query_id"]: row for row in told.iter_rows(named=True)}


def _ranks(scores: Scores, rows: Sequence[int]) -> Ranks:
    """Where a list first has each judgment of some queries."""
    found = ranked_in(scores).found
    own = np.isin(found.query, np.array(rows, dtype=np.int64))
    if found.row is None or not own.any():
        return {}
    pairs = zip(found.row[own].tolist(), found.rank[own].tolist(), strict=True)
    # By rank within a query: of several the first one stays.
    return dict(reversed(list(pairs)))


def _with_text(hit: Row, texts: Mapping[str, str]) -> dict[str, Any]:
    return {**hit, "text": texts.get(hit["item_id"])}


def _gold(item: GoldItem, ranks: Mapping[tuple[str, ...], Ranks]) -> dict[str, Any]:
    """A gold item with its rank in every list; None where the list does not have it."""
    told = asdict(item)
    judgment = told.pop("judgment")
    places: dict[str, Any] = {"stages": {}}
    for (first, *rest), own in ranks.items():
        inside = places[first] if rest else places
        inside[rest[0] if rest else first] = own.get(judgment)
    return {**told, "ranks": places}


def _unknown(query_id: str, known: Sequence[str]) -> UsageError:
    """The nearest of all queries; a few of them where none is near."""
    error = unknown("query", query_id, known)
    if "did you mean" in str(error) or len(known) <= _MANY:
        return error
    return UsageError(
        f"unknown query {query_id!r}; there are {len(known):,}, such as {', '.join(known[:3])}"
    )
