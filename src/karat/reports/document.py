"""The report as one plain document: what was scored, under which conventions, with what result.

Every form a report takes renders this document or the per-query tables beside it. No
clock, no absolute path, no order that depends on chance: same inputs, same document.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import karat
from karat.analysis.segments import Segments, segment_means
from karat.columns import Source
from karat.errors import UsageError
from karat.measures.scores import Scores, Summary
from karat.tables import Corpus, Gold, Queries

SCHEMA_VERSION = 1


@dataclass(frozen=True, eq=False)
class System:
    """One system of a report: its name there, its scores, and its means by segment."""

    name: str
    scores: Scores
    summaries: Mapping[str, Summary]
    segments: Mapping[str, Segments] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Report:
    """What was scored: the systems and the inputs they were scored with."""

    systems: tuple[System, ...]
    gold: Source
    queries: Source | None = None
    corpus: Source | None = None
    as_of_range: tuple[str, str] | None = None

    def results(self) -> dict[str, Any]:
        """The document without its inputs, whose digests take a pass over every file."""
        different = _different_conventions(self.systems)
        first = self.systems[0].scores.conventions.document()
        return {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "karat", "version": karat.__version__},
            "conventions": first | dict.fromkeys(different),
            "counts": _common_counts([system.scores.counts.document() for system in self.systems]),
            "systems": [_system(system, different) for system in self.systems],
        }

    def document(self) -> dict[str, Any]:
        """The whole document, with the digest of every input."""
        inputs: dict[str, Any] = {
            "gold": _input(self.gold),
            "runs": [_input(system.scores.source) for system in self.systems],
            "queries": self.queries and _input(self.queries),
            "corpus": self.corpus and _input(self.corpus),
        }
        if self.as_of_range is not None:
            inputs["as_of_range"] = list(self.as_of_range)
        return {**self.results(), "inputs": inputs}


def build_report(
    scores: Sequence[Scores],
    *,
    gold: Gold,
    queries: Queries | None = None,
    corpus: Corpus | None = None,
    by: Sequence[str] = (),
) -> Report:
    """A report on one or many systems, with means by each of the columns ``by``."""
    if not scores:
        raise UsageError("a report needs the scores of at least one run")
    names = distinct_names([_utf8(one.system) for one in scores])
    systems = tuple(
        System(
            name,
            one,
            summaries=one.summaries,
            segments={column: segment_means(one, queries, column) for column in by},
        )
        for name, one in zip(names, scores, strict=True)
    )
    return Report(
        systems,
        gold=gold.source,
        queries=None if queries is None else queries.source,
        corpus=None if corpus is None else corpus.source,
        as_of_range=None if queries is None else _as_of_range(queries),
    )


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names in order, each once: a repeated one gets a number that is still free.

    >>> distinct_names(["bm25", "bm25", "dense", "bm25"])
    ['bm25', 'bm25-2', 'dense', 'bm25-3']
    """
    taken = set(names)
    seen: set[str] = set()
    distinct = []
    for name in names:
        number, candidate = 2, name
        while candidate in seen or (candidate != name and candidate in taken):
            number, candidate = number + 1, f"{name}-{number}"
        seen.add(candidate)
        distinct.append(candidate)
    return distinct


def _different_conventions(systems: Sequence[System]) -> list[str]:
    """The conventions that are not the same for all systems, such as what ranks each run."""
    documents = [system.scores.conventions.document() for system in systems]
    return [key for key in documents[0] if any(one[key] != documents[0][key] for one in documents)]


def _common_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The counts of one system; of several, the worst of each: least scored, most missing."""
    worst = {name: max(one[name] for one in counts) for name in counts[0]}
    return worst | {"scored": min(one["scored"] for one in counts)}


def _system(system: System, different: Sequence[str]) -> dict[str, Any]:
    scores = system.scores
    document: dict[str, Any] = {
        "name": system.name,
        "measures": {name: _measure(summary) for name, summary in system.summaries.items()},
        "counts": scores.counts.document(),
    }
    if system.segments:
        document["segments"] = {
            column: {
                value: {name: _short(summary) for name, summary in summaries.items()}
                for value, summaries in segments.items()
            }
            for column, segments in system.segments.items()
        }
    if different:
        own = scores.conventions.document()
        document["conventions"] = {key: own[key] for key in different}
    if scores.meta:
        document["meta"] = dict(scores.meta)
    return document


def _measure(summary: Summary) -> dict[str, Any]:
    document = _short(summary) | {"better": summary.better}
    if summary.quantiles is not None:
        document["quantiles"] = [_number(value) for value in summary.quantiles]
    if summary.ties is not None:
        document["ties"] = [_number(value) for value in summary.ties]
    if summary.lacks is not None:
        document["lacks"] = summary.lacks
    return document


def _short(summary: Summary) -> dict[str, Any]:
    return {
        "mean": _number(summary.mean),
        "n": summary.n,
        "ceiling": _number(summary.ceiling),
    }


def _number(value: float | None) -> float | None:
    """JSON knows no NaN: what could not be measured is null."""
    return None if value is None or math.isnan(value) else float(value)


def _input(source: Source) -> dict[str, Any]:
    return {"name": _utf8(source.name), "sha256": source.digest()}


def _utf8(name: str) -> str:
    """A file may have a name that is no text; what cannot be written down is a question mark."""
    return name.encode("utf-8", "replace").decode()


def _as_of_range(queries: Queries) -> tuple[str, str] | None:
    if "as_of" not in queries.frame.columns:
        return None
    dates = sorted(str(value) for value in queries.frame["as_of"].drop_nulls())
    return (dates[0], dates[-1]) if dates else None
