"""A set in which every class of failure and every loss is planted in a known number of queries.

``world()`` builds the same set every time: a corpus with versions and sources, queries with
as_of, source and min_similarity, gold, and the records of a run log with raw lists, stages,
final lists, similarities and latencies. ``expected`` counts the queries of each class,
``classes`` names the class of each miss, and ``losses`` what each part costs in R@10, added up
over all ``n`` queries that take part.

A call retrieves 50 items and returns 20. Every list is filled up with items of its own, so that
no item but the planted hubs stands in the lists of two queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from karat.data.tables import Corpus, Gold, Queries, Run
from karat.evaluation.stages import Staged, score_stages
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare

RAW, K = 50, 20
# So many were asked for: the raw lists are all that there was.
DEEP = 100
OLD, AS_OF, NEW = "2024-01-01", "2025-06-30", "2026-01-01"
HUBS = [f"hub#{i}" for i in range(6)]

# How many queries of each class; all numbers differ, so that no two can be mixed up unseen.
COUNTS = {
    "failed_call": 2,
    "not_in_run": 3,
    "not_in_index": 4,
    "routed_away": 5,
    "rewritten_away": 6,
    "freshness_filtered": 7,
    "filtered_out": 8,
    "threshold_exclusion": 9,
    "complete_miss": 10,
    "embedding_mismatch": 11,
    "rerank_demotion": 12,
    "false_positive_dominance": 13,
    "low_rank": 14,
    "cut_by_k": 15,
}
FOUND, LIFTED, HALVES, NO_ANSWER = 30, 4, 2, 3


@dataclass
class World:
    """The set as it grows, query by query."""

    texts: dict[str, dict[str, Any]] = field(default_factory=dict)
    judged: dict[str, list[str]] = field(default_factory=dict)
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    classes: dict[str, str] = field(default_factory=dict)
    losses: dict[str, Fraction] = field(default_factory=dict)
    ceiling: Fraction = Fraction(0)

    @property
    def expected(self) -> dict[str, int]:
        return dict(COUNTS)

    @property
    def n(self) -> int:
        """The queries with gold."""
        return sum(bool(items) for items in self.judged.values())

    @property
    def queries(self) -> Queries:
        return Queries.from_dict(self.texts)

    @property
    def gold(self) -> Gold:
        return Gold.from_dict(self.judged)

    @property
    def corpus(self) -> Corpus:
        return Corpus.from_dict(self.items)

    def run(self) -> Run:
        return run_of_records(self.records, name="planted")

    def staged(
        self, measures: str = "R@10", *, corpus: bool = True, queries: bool = True, **settings: Any
    ) -> Staged:
        """The run scored stage by stage."""
        gold = prepare(
            self.gold,
            conventions_of("karat", settings),
            queries=self.queries if queries else None,
            corpus=self.corpus if corpus else None,
        )
        return score_stages(self.run(), gold, parse_measures(measures), keep=10)

    def asks(self, name: str, gold: Sequence[str], **attributes: Any) -> str:
        """A new query with its gold; what is old and among the docs unless ``has`` said so."""
        query_id = f"{name}-{len(self.texts):03}"
        self.texts[query_id] = {"text": f"about {query_id}", "as_of": AS_OF, **attributes}
        self.judged[query_id] = [f"{query_id}-{item}" for item in gold]
        self.ceiling += min(Fraction(10, max(len(gold), 1)), Fraction(bool(gold)))
        return query_id

    def has(self, item_id: str, *, version: str = OLD, source: str = "docs") -> str:
        """An item of the corpus."""
        self.items.setdefault(
            item_id, {"text": f"text of {item_id}", "version": version, "source": source}
        )
        return item_id

    def filled(
        self, query_id: str, places: Mapping[str, int], similarity: float = 0.7, length: int = RAW
    ) -> list[dict[str, Any]]:
        """A list with some items at their ranks, and others of the corpus around them."""
        at = {rank: item for item, rank in places.items()}
        hits = []
        for rank in range(1, length + 1):
            item = at.get(rank) or self.has(f"{query_id}-filler{rank}")
            own = similarity if rank in at and item not in HUBS else 0.7
            version = self.items[item]["version"]
            hits.append({"chunk_id": item, "score": 1 / rank, "similarity": own})
            hits[-1]["doc_version"] = version
        return hits

    def logs(
        self,
        query_id: str,
        raw: Sequence[Mapping[str, Any]],
        final: Sequence[Mapping[str, Any]] | None = None,
        *,
        stages: Mapping[str, Any] | None = None,
        **call: Any,
    ) -> None:
        """The call of a query; without a final list the raw one is cut."""
        record = {"query_id": query_id, "system": "planted", "k": K, "k_raw": DEEP}
        record |= {"raw": list(raw), "topk": list(raw if final is None else final)[:K]}
        record |= {"source": "docs", "latency_ms": {"retrieve": 5.0}, **call}
        if stages:
            record["stages"] = {name: list(hits) for name, hits in stages.items()}
        self.records.append(record)

    def loses(self, part: str, amount: Fraction | int = 1) -> None:
        self.losses[part] = self.losses.get(part, Fraction(0)) + amount


def without(hits: Sequence[Mapping[str, Any]], item: str) -> list[Mapping[str, Any]]:
    return [hit for hit in hits if hit["chunk_id"] != item]


def moved(hits: Sequence[Mapping[str, Any]], item: str, rank: int) -> list[Mapping[str, Any]]:
    """The list with one item at another rank."""
    rest = without(hits, item)
    (own,) = (hit for hit in hits if hit["chunk_id"] == item)
    return [*rest[: rank - 1], own, *rest[rank - 1 :]]


def _never_answered(world: World, kind: str, i: int) -> None:
    query = world.asks(kind, ["g"])
    world.has(f"{query}-g")
    world.classes[query] = kind
    world.loses("calls")
    if kind == "failed_call":
        record = {"query_id": query, "system": "planted", "error": f"timeout {i}", "topk": []}
        world.records.append(record)


def _never_retrieved(world: World, kind: str, i: int) -> None:
    by_column = kind == "routed_away" and i % 2
    query = world.asks(kind, ["g"], **({"source": ["tickets", "mails"]} if by_column else {}))
    world.classes[query] = kind
    if kind == "not_in_index":
        world.loses("index")
    else:
        world.loses("retriever")
        source = "tickets" if kind == "routed_away" and not by_column else "docs"
        world.has(f"{query}-g", source=source)
    raw = world.filled(query, {})
    chosen = "docs+wiki" if kind == "routed_away" and i == 0 else "docs"
    if kind != "rewritten_away":
        return world.logs(query, raw, source=chosen)
    original = world.filled(query, {f"{query}-g": i + 1}, length=K)
    return world.logs(query, raw, stages={"original": original}, rewritten="something else")


def _sieved(world: World, kind: str, i: int) -> None:
    """Gold taken out by a logged stage, or kept from all lists, or taken out unlogged."""
    stage = {"freshness_filtered": "as_of", "filtered_out": "filter"}.get(kind, "threshold")
    unlogged = i < 3 and stage != "threshold"
    query = world.asks(kind, ["g"])
    gold = world.has(f"{query}-g", version=NEW if stage == "as_of" else OLD)
    world.classes[query] = kind
    if unlogged and stage == "as_of":
        world.loses("retriever")
        return world.logs(query, world.filled(query, {}))
    world.loses("filters")
    raw = world.filled(query, {gold: 2 + i})
    left = without(raw, gold)
    return world.logs(query, raw, left, stages=None if unlogged else {stage: left})


def _low(world: World, kind: str, i: int) -> None:
    """Gold that was retrieved, below the top 10 or put there."""
    own_line = kind == "embedding_mismatch" and i % 2
    query = world.asks(kind, ["g"], **({"min_similarity": 0.6} if own_line else {}))
    gold = world.has(f"{query}-g")
    world.classes[query] = kind
    world.loses("reranker" if kind == "rerank_demotion" else "cut_off")
    if kind == "rerank_demotion":
        raw = world.filled(query, {gold: 1 + i % 9})
        # The others change places too, or it would look as if the gold had been filtered out.
        after = moved(raw[::-1], gold, 25 if i % 2 else 14)
        if i % 3:
            return world.logs(query, raw, after, stages={"rerank": after})
        # The list after the reranker is not logged, but its order shows.
        return world.logs(query, raw, after, latency_ms={"retrieve": 5.0, "rerank": 9.0})
    rank = {"low_rank": 11 + i % 9, "cut_by_k": 21 + i, "false_positive_dominance": 11 + 2 * i}
    places = {gold: rank.get(kind, 11 + 3 * i)}
    if kind == "false_positive_dominance":
        places |= {world.has(hub): 2 + at for at, hub in enumerate(HUBS[: 5 + i % 2])}
    low = 0.7 if kind != "embedding_mismatch" else 0.5 if own_line else 0.2
    return world.logs(query, world.filled(query, places, similarity=low))


def _found(world: World) -> None:
    """Queries that do not miss: found, lifted by the reranker, one of twelve items too many."""
    for i in range(FOUND):
        query = world.asks("found", ["g"])
        world.logs(query, world.filled(query, {world.has(f"{query}-g"): 1 + i % 10}))
    for i in range(LIFTED):
        query = world.asks("lifted", ["g"])
        gold = world.has(f"{query}-g")
        raw = world.filled(query, {gold: 15 + i})
        after = moved(raw, gold, 2)
        world.logs(query, raw, after, stages={"rerank": after})
        world.loses("cut_off")
        world.loses("reranker", -1)
    query = world.asks("many", [f"g{i}" for i in range(12)])
    golds = [world.has(item) for item in world.judged[query]]
    world.logs(query, world.filled(query, {gold: rank for rank, gold in enumerate(golds, 1)}))


def _halves(world: World) -> None:
    """Queries with two gold items, the first of them found, the other lost in one place each."""
    for part in ("index", "retriever", "filters", "cut_off", "reranker"):
        for _ in range(HALVES):
            query = world.asks(f"half-{part}", ["a", "b"])
            first, second = world.judged[query]
            world.has(first)
            if part != "index":
                world.has(second)
            places = {first: 2} | ({second: 5} if part in ("filters", "reranker") else {})
            raw = world.filled(query, places | ({second: 33} if part == "cut_off" else {}))
            stages: dict[str, Any] = {}
            if part == "filters":
                stages["filter"] = without(raw, second)
            if part == "reranker":
                stages["rerank"] = moved(raw, second, 12)
            final = next(iter(stages.values()), raw)
            world.logs(query, raw, final, stages=stages)
            world.loses(part, Fraction(1, 2))


PLANTERS = {
    **dict.fromkeys(("failed_call", "not_in_run"), _never_answered),
    **dict.fromkeys(
        ("not_in_index", "routed_away", "rewritten_away", "complete_miss"), _never_retrieved
    ),
    **dict.fromkeys(("freshness_filtered", "filtered_out", "threshold_exclusion"), _sieved),
    **dict.fromkeys(
        (
            "embedding_mismatch",
            "rerank_demotion",
            "false_positive_dominance",
            "low_rank",
            "cut_by_k",
        ),
        _low,
    ),
}


def world() -> World:
    """The whole set."""
    made = World()
    for kind, count in COUNTS.items():
        for i in range(count):
            PLANTERS[kind](made, kind, i)
    _found(made)
    _halves(made)
    for _ in range(NO_ANSWER):
        query = made.asks("no-answer", [], no_answer=True)
        made.logs(query, made.filled(query, {}))
    return made
