"""Worlds in which one thing is wrong, for the tests of the playbook and of latencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from karat.analysis.diagnose.findings import Findings, findings
from karat.data.tables import Corpus, Gold, Queries
from karat.evaluation.stages import Staged, Thresholds, score_stages
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare

LINES = Thresholds()


def placed(query: int, length: int, places: Mapping[str, int]) -> list[str]:
    """A list of fillers with some items at the ranks given; those beyond its end are cut off."""
    at = {rank: item for item, rank in places.items()}
    return [at.get(rank, f"filler{query}x{rank}#0") for rank in range(1, length + 1)]


@dataclass(frozen=True)
class Question:
    """One query of a world: its gold, and the rank of each item in each list."""

    number: int
    gold: Sequence[str]
    raw: Mapping[str, int]
    final: Mapping[str, int]
    original: Mapping[str, int]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    # What a filter takes out of the raw list, where one is logged.
    filtered: Sequence[str] = ()

    @property
    def name(self) -> str:
        return f"q{self.number:04}"

    def ranked(self, ranks: Mapping[str, int]) -> Question:
        """The same ranks in every list."""
        return replace(self, raw=ranks, final=ranks, original=ranks)


Change = Callable[[Question], Question]


def perfect(number: int, *, gold: int = 3) -> Question:
    """Gold of one document in the first places of every list."""
    items = [f"doc{number}#{part}" for part in range(1, gold + 1)]
    ranks = {item: rank for rank, item in enumerate(items, 1)}
    language = "pt" if number % 2 else "en"
    return Question(
        number,
        items,
        ranks,
        ranks,
        ranks,
        {"language": language, "as_of": "2025-06-30", "source": "faq"},
        {"source": "faq", "latency_ms": {"retrieve": 30 + number % 7, "rerank": 20.0}},
    )


@dataclass(frozen=True)
class World:
    """Queries that a system answers perfectly, until something is changed."""

    questions: Sequence[Question]
    k: int = 10
    k_raw: int = 50
    stages: Sequence[str] = ("raw", "original")
    corpus: bool = True
    attributes: bool = True
    baseline: Staged | None = None
    lost: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    keep: int = 50
    told: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, n: int = 100, *, gold: int = 3, **options: Any) -> World:
        return cls([perfect(number, gold=gold) for number in range(n)], **options)

    def change(self, change: Change, first: int, last: int | None = None) -> World:
        """Queries first to last (not included) changed; one number stands for 0 to it."""
        start, end = (0, first) if last is None else (first, last)
        changed = [change(one) if start <= one.number < end else one for one in self.questions]
        return replace(self, questions=changed)

    def record(self, one: Question) -> dict[str, Any]:
        hits = [
            {"chunk_id": item, "doc_version": "2025-01-01"}
            for item in placed(one.number, self.k, one.final)
        ]
        record: dict[str, Any] = {"query_id": one.name, "topk": hits, **self.told}
        if "raw" in self.stages:
            record["raw"] = placed(one.number, self.k_raw, one.raw)
        record["stages"] = {}
        if "original" in self.stages:
            record["stages"]["original"] = placed(one.number, self.k, one.original)
        if "filter" in self.stages:
            raw = placed(one.number, self.k_raw, one.raw)
            record["stages"]["filter"] = [item for item in raw if item not in one.filtered]
        record.update(one.call)
        if "error" in record:
            record.update(topk=[], raw=[], stages={})
        return record

    @property
    def queries(self) -> Queries | None:
        if not self.attributes:
            return None
        return Queries.from_dict(
            {one.name: {"text": f"text {one.number}", **one.attributes} for one in self.questions}
        )

    def staged(self, *measures: str) -> Staged:
        gold = Gold.from_dict({one.name: list(one.gold) for one in self.questions})
        texts = {item: "text" for one in self.questions for item in one.gold}
        texts = {item: text for item, text in texts.items() if item not in self.lost}
        corpus = Corpus.from_dict({**texts, "other#1": "text"}) if self.corpus else None
        conventions = conventions_of("karat", {"missing_ids": "allow"} | dict(self.settings))
        gold_ready = prepare(gold, conventions, queries=self.queries, corpus=corpus)
        run = run_of_records([self.record(one) for one in self.questions], name="system")
        return score_stages(
            run, gold_ready, parse_measures(list(measures)) if measures else [], keep=self.keep
        )

    def findings(self, lines: Thresholds = LINES, by: Sequence[str] = ()) -> Findings:
        baseline = self.baseline or World(self.questions, attributes=self.attributes).staged()
        return findings(self.staged(), self.queries, thresholds=lines, baseline=baseline, by=by)


def everywhere(ranks: Sequence[int]) -> Change:
    """The gold at these ranks in every list; beyond a list's end it is not found."""
    return lambda one: one.ranked(dict(zip(one.gold, ranks, strict=False)))


def nowhere(one: Question) -> Question:
    """No gold in any list."""
    return one.ranked({})


def neighbour(one: Question) -> Question:
    """Another chunk of the gold's document in every list, and none of the gold."""
    return one.ranked({f"doc{one.number}#9": 1})


def fired(found: Findings) -> list[str]:
    return [finding.rule for finding in found.findings]


def only(found: Findings, rule: str) -> Mapping[str, Any]:
    """The figures of the one finding of a rule, which must be the only rule that fired."""
    assert fired(found) == [rule], [one.sentence for one in found.findings]
    return found.findings[0].figures


def with_gold(n, per_query, **options):
    return World.of(n, gold=per_query, **options)


def finding(found, rule):
    return next(one for one in found.findings if one.rule == rule)


def judged_records(world, records, **options):
    """The findings on records written by hand, on a world's gold and queries."""
    gold = world.staged().gold
    staged = score_stages(run_of_records(records, name="system"), gold, [], keep=50)
    return findings(staged, world.queries, **options)
