"""The report as one plain document: what was scored, under which conventions, with what result.

Every form a report takes renders this document or the per-query tables beside it. No
clock, no absolute path, no order that depends on chance: same inputs, same document.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from karat.abreast import abreast
from karat.analysis.contenders import distinct_names
from karat.analysis.segments import SMALL, By, Segments, segment_means
from karat.columns import Source
from karat.errors import UsageError
from karat.measures.scores import Scores, Summary
from karat.reports.origins import origin_of
from karat.tables import Corpus, Gold, Queries
from karat.version import __version__

if TYPE_CHECKING:
    from karat.analysis.bounds import Labelled
    from karat.analysis.compare import Comparisons
    from karat.analysis.failures.classes import Failures
    from karat.analysis.gates import Gating
    from karat.analysis.staged import Staged
    from karat.analysis.unjudged import Open
    from karat.retrievers.corpus_index import CorpusIndex

SCHEMA_VERSION = 2


@dataclass(frozen=True, eq=False)
class System:
    """One system of a report: its name there, its scores, and its means by segment.

    ``behind`` is what lies behind its figures, as plain data: curve, failures, latency.
    ``bounds`` are its measures on gold alone and with a judge's labels, where there are some.
    ``logged_as`` is what its log calls it, where no other system of the report is called so.
    ``staged`` are its lists and ``failures`` why queries miss, where it was scored in full.
    ``open`` is what its figures could be, whatever the items are that nobody judged.
    """

    name: str
    scores: Scores
    summaries: Mapping[str, Summary]
    segments: Mapping[str, Segments] = field(default_factory=dict)
    behind: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, Any] = field(default_factory=dict)
    logged_as: str | None = None
    staged: Staged | None = None
    failures: Failures | None = None
    open: Open | None = None


class Tables(NamedTuple):
    """What the systems were scored with, for forms that speak of single queries and items."""

    gold: Gold
    queries: Queries | None = None
    corpus: Corpus | None = None


@dataclass(frozen=True, eq=False)
class Report:
    """What was scored: the systems and the inputs they were scored with.

    ``timestamp`` is a time that the caller gave; only forms that must have one hold it.
    ``index`` is the corpus as one that is searched, for forms that show single queries.
    ``findings`` are sentences on what to fix next, the most important first.
    ``fields`` are columns of the inputs that are read under other names.
    ``people`` are those whose judgments correct a judge's.
    ``bounds_left_out`` says why nothing is told of what unjudged items could change.
    """

    systems: tuple[System, ...]
    gold: Source
    queries: Source | None = None
    corpus: Source | None = None
    as_of_range: tuple[str, str] | None = None
    comparisons: Comparisons | None = None
    gatings: tuple[Gating, ...] = ()
    gates: Source | None = None
    config_digest: str | None = None
    dataset_version: str | None = None
    code_version: str | None = None
    tables: Tables | None = None
    timestamp: str | None = None
    labelled: Labelled | None = None
    index: CorpusIndex | None = None
    findings: tuple[str, ...] | None = None
    bounds_left_out: str | None = None
    people: tuple[Source, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    def results(self) -> dict[str, Any]:
        """The document without its inputs, whose digests take a pass over every file."""
        different = _different_conventions(self.systems)
        first = self.systems[0].scores.conventions.document()
        return {
            "schema_version": SCHEMA_VERSION,
            "tool": {"name": "karat", "version": __version__},
            "conventions": first | dict.fromkeys(different),
            "counts": _common_counts([system.scores.counts.document() for system in self.systems]),
            "systems": [_system(system, different) for system in self.systems],
            **_judged(self.labelled, self.systems),
            **_compared(self.comparisons),
            **_gated(self.gatings),
            **_found(self),
            **({} if self.bounds_left_out is None else {"bounds_left_out": self.bounds_left_out}),
            **({} if self.verdict is None else {"verdict": self.verdict}),
        }

    @property
    def verdict(self) -> str | None:
        """One word for the whole: of the gates where there are some, else of the comparison.

        A confirmed regression is worse than a gate that passes or cannot be judged; one of
        another measure than the primary is a rule that failed. Where too many calls failed,
        neither says anything.
        """
        if self.partial:
            return "unmeasurable"
        gates = {gating.verdict for gating in self.gatings}
        if "fail" in gates:
            return "fail"
        compared = self.comparisons
        if compared is not None and compared.regression:
            return "worse" if compared.verdict == "worse" else "fail"
        if compared is not None and not gates:
            return compared.verdict
        return next((word for word in ("unmeasurable", "skipped", "pass") if word in gates), None)

    @property
    def partial(self) -> tuple[str, ...]:
        """The systems too many of whose calls failed."""
        return tuple(system.name for system in self.systems if system.scores.partial)

    def document(self) -> dict[str, Any]:
        """The whole document, with the digest of every input."""
        inputs: dict[str, Any] = {
            "gold": input_of(self.gold),
            "runs": [input_of(system.scores.source) for system in self.systems],
            "queries": self.queries and input_of(self.queries),
            "corpus": self.corpus and input_of(self.corpus),
        }
        if self.as_of_range is not None:
            inputs["as_of_range"] = list(self.as_of_range)
        if self.fields:
            inputs["fields"] = dict(self.fields)
        if self.gates is not None:
            inputs["gates"] = input_of(self.gates)
        if self.labelled is not None:
            inputs["judged"] = input_of(self.labelled.labels)
        if self.people:
            inputs["human"] = [input_of(one) for one in self.people]
        for name in ("config_digest", "dataset_version", "code_version"):
            if getattr(self, name) is not None:
                inputs[name] = getattr(self, name)
        return {**self.results(), "inputs": inputs}


def build_report(
    scores: Sequence[Scores],
    *,
    gold: Gold,
    queries: Queries | None = None,
    corpus: Corpus | None = None,
    by: Sequence[By | str] = (),
) -> Report:
    """A report on one or many systems, with means by each of the columns ``by``."""
    if not scores:
        raise UsageError("a report needs the scores of at least one run")
    names = distinct_names([utf8(one.system) for one in scores])

    def system(name: str, logged: str | None, scored: Scores) -> System:
        return System(
            name,
            scored,
            summaries=scored.summaries,
            segments={str(By.parse(one)): segment_means(scored, queries, one) for one in by},
            logged_as=logged,
        )

    told = list(zip(names, _logged_names(scores), scores, strict=True))
    # Intervals take longer than the scores did.
    systems = tuple(abreast(lambda one: system(*one), told))
    return Report(
        systems,
        gold=gold.source,
        queries=None if queries is None else queries.source,
        corpus=None if corpus is None else corpus.source,
        tables=Tables(gold, queries, corpus),
        **origin_of([one.meta for one in scores], queries),
    )


def _logged_names(scores: Sequence[Scores]) -> list[str | None]:
    """What each log calls its system; None where it does not say, or another says the same."""
    told = [one.meta.get("system") for one in scores]
    names = [None if name is None or name == "" else utf8(str(name)) for name in told]
    return [name if names.count(name) == 1 else None for name in names]


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
        **_open(system.open),
    }
    for name, ends in ({} if system.open is None else system.open.document()).items():
        document["measures"][name]["bounds"] = _plain(ends)
    if system.segments:
        document["segments"] = {
            column: {
                value: {name: _in_segment(summary) for name, summary in summaries.items()}
                for value, summaries in segments.items()
            }
            for column, segments in system.segments.items()
        }
    if system.bounds:
        document["bounds"] = dict(system.bounds)
    if different:
        own = scores.conventions.document()
        document["conventions"] = {key: own[key] for key in different}
    if scores.partial:
        document["partial"] = True
    if scores.nothing_found:
        document["nothing_found"] = scores.nothing_found
    if scores.cut is not None:
        document["cut_at"] = scores.cut.depth
    if deeper := _beyond_log(scores):
        document["beyond_log"] = deeper
    if scores.meta:
        document["meta"] = dict(scores.meta)
    return document | dict(system.behind)


def _open(own: Open | None) -> dict[str, Any]:
    """How many items nobody judged, where that was looked at."""
    return {} if own is None else {"unjudged": own.unjudged, "unjudged_apart": own.apart}


def _beyond_log(scores: Scores) -> list[str]:
    """The measures that look at more hits than the run was asked for."""
    if scores.cut is not None:
        return list(scores.cut.beyond)
    asked = scores.meta.get("k")
    if not isinstance(asked, int) or "run_digest" not in scores.meta:
        return []
    return [str(one) for one in scores.measures if isinstance(one.k, int) and one.k > asked]


def _judged(labelled: Labelled | None, systems: Sequence[System]) -> dict[str, Any]:
    """How many labels there are, and where they say the opposite of the gold."""
    if labelled is None:
        return {}
    from karat.analysis.bounds import turned

    bounds = {system.name: system.bounds for system in systems}
    return {"judged": {**labelled.document(), "reversed": turned(bounds)}}


def _compared(comparisons: Comparisons | None) -> dict[str, Any]:
    if comparisons is None:
        return {}
    return {
        "rule": asdict(comparisons.rule),
        "primary": comparisons.primary.document(),
        "comparisons": [_plain(row.document()) for row in comparisons.rows],
        "decisions": [decision.document() for decision in comparisons.decisions],
        "overlap": [_plain(one.document()) for one in comparisons.overlaps],
        "moved": [_plain(one.document()) for one in comparisons.moved],
        "reversals": list(comparisons.reversals),
        "replicates": dict(comparisons.replicates),
    }


def _found(report: Report) -> dict[str, Any]:
    """What to fix next, and in which system: the last, which may be shipped."""
    if report.findings is None:
        return {}
    return {"findings": list(report.findings), "findings_of": report.systems[-1].name}


def _gated(gatings: Sequence[Gating]) -> dict[str, Any]:
    if not gatings:
        return {}
    return {
        "gates": [_plain(result.document()) for one in gatings for result in one.results],
        "blocking": {
            one.results[0].system: None if one.blocking is None else one.blocking.document()
            for one in gatings
            if one.results
        },
        "gates_left_out": sorted({name for one in gatings for name in one.left_out}),
    }


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Tuples as lists, and null for what is no number."""
    return {
        key: [_number(one) for one in value]
        if isinstance(value, tuple)
        else _number(value)
        if isinstance(value, float)
        else value
        for key, value in document.items()
    }


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
        "ci": None if summary.ci is None else [_number(end) for end in summary.ci],
        "n": summary.n,
        "ceiling": _number(summary.ceiling),
    }


def _in_segment(summary: Summary) -> dict[str, Any]:
    """A segment is small by the queries that took part, whatever the measure made of them."""
    return _short(summary) | ({"small": True} if summary.n < SMALL else {})


def _number(value: float | None) -> float | None:
    """JSON knows no NaN: what could not be measured is null."""
    return None if value is None or math.isnan(value) else float(value)


def input_of(source: Source) -> dict[str, Any]:
    """An input as it stands in a report: its name and the digest of its bytes."""
    return {"name": utf8(source.name), "sha256": source.digest()}


def utf8(name: str) -> str:
    """A file may have a name that is no text; what cannot be written down is a question mark."""
    return name.encode("utf-8", "replace").decode()
