"""Report: systems with their scores, comparisons and gates, as one plain document.

The document holds no clock, no absolute path and no random order: same inputs, same document.
Reports are put together from an Evaluation in ``assembly``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from karat.data.columns import Source
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import UsageError
from karat.evaluation.origins import origin_of
from karat.evaluation.segments import SMALL, By, Segments, segment_means
from karat.evaluation.systems import distinct_names
from karat.measures.scores import Scores, Summary
from karat.pages.result import Result, envelope, input_of, utf8
from karat.parallel import parallel_map

if TYPE_CHECKING:
    import polars as pl

    from karat.analysis.failures import Failures
    from karat.evaluation.comparison import Comparisons
    from karat.evaluation.gates import Gating
    from karat.evaluation.judged_labels import Labelled
    from karat.evaluation.stages import Staged
    from karat.evaluation.unjudged_ranges import ScoreRanges
    from karat.pages.page import Page
    from karat.retrieve.corpus_index import CorpusIndex


@dataclass(frozen=True, eq=False)
class System:
    """One system of a report: its name there, its scores, and its means by segment.

    ``diagnostics`` are its curve, failures and latency as plain data.
    ``bounds`` are its measures on gold alone and with a judge's labels, where there are some.
    ``logged_as`` is the name in its log, where no other system of the report has it.
    ``staged`` are its lists and ``failures`` why queries miss, where it was scored in full.
    ``open`` are the ranges that its scores could have if unjudged items were judged.
    """

    name: str
    scores: Scores
    summaries: Mapping[str, Summary]
    segments: Mapping[str, Segments] = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, Any] = field(default_factory=dict)
    logged_as: str | None = None
    staged: Staged | None = None
    failures: Failures | None = None
    open: ScoreRanges | None = None


class Tables(NamedTuple):
    """The inputs of the scores, for forms that show single queries and items."""

    gold: Gold
    queries: Queries | None = None
    corpus: Corpus | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Report(Result):
    """Scored systems, and the inputs that they were scored with.

    ``timestamp`` is given by the caller; only forms that need a time hold it.
    ``index`` is the corpus as a search index, for forms that show single queries.
    ``findings`` are sentences on what to fix next, the most important first.
    ``fields`` maps names of columns to those that the inputs use.
    ``people`` are the label files that correct a judge's labels.
    ``bounds_left_out`` says why the report has no ranges over unjudged items.
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
        """Return the document without its inputs, whose digests read every file once more."""
        different = _different_conventions(self.systems)
        first = self.systems[0].scores.conventions.document()
        return {
            **envelope(),
            "conventions": first | dict.fromkeys(different),
            "counts": _common_counts([system.scores.counts.document() for system in self.systems]),
            "systems": [_system(system, different) for system in self.systems],
            **_judged(self.labelled, self.systems),
            **_compared(self.comparisons),
            **_gated(self.gatings),
            **_findings(self),
            **({} if self.bounds_left_out is None else {"bounds_left_out": self.bounds_left_out}),
            **({} if self.verdict is None else {"verdict": self.verdict}),
        }

    @property
    def verdict(self) -> str | None:
        """The verdict of the gates if there are any, else of the comparison.

        A confirmed regression outranks a gate that passes or cannot be judged; a regression
        of another measure than the primary is "fail". If too many calls failed, the verdict is
        "unmeasurable".
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
        """The names of the systems with too many failed calls."""
        return tuple(system.name for system in self.systems if system.scores.partial)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole document, with the digest of every input."""
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
            inputs["human"] = [input_of(person) for person in self.people]
        for name in ("config_digest", "dataset_version", "code_version"):
            if getattr(self, name) is not None:
                inputs[name] = getattr(self, name)
        return {**self.results(), "inputs": inputs}

    def to_frame(self) -> pl.DataFrame:
        """Return one row per system and query, one column per measure; null if not measured."""
        import polars as pl

        frames = [
            system.scores.table.select(
                pl.lit(system.name).alias("system"),
                "query_id",
                system.scores.status.cast(pl.String).alias("status"),
                pl.exclude("query_id"),
            )
            for system in self.systems
        ]
        return pl.concat(frames, how="diagonal")

    def page(self) -> Page:
        """Return the page that people read."""
        from karat.report.report_page import report_page

        return report_page(self)


def build_report(
    scores: Sequence[Scores],
    *,
    gold: Gold,
    queries: Queries | None = None,
    corpus: Corpus | None = None,
    by: Sequence[By | str] = (),
) -> Report:
    """Return a report on one or many systems, with means by each of the columns ``by``."""
    if not scores:
        raise UsageError("a report needs the scores of at least one run")
    names = distinct_names([utf8(run_scores.system) for run_scores in scores])

    def system(named: tuple[str, str | None, Scores]) -> System:
        name, logged_as, run_scores = named
        segments = {
            str(By.parse(column)): segment_means(run_scores, queries, column) for column in by
        }
        return System(name, run_scores, run_scores.summaries, segments, logged_as=logged_as)

    # In parallel, since intervals take longer than the scores.
    named = list(zip(names, _logged_names(scores), scores, strict=True))
    systems = tuple(parallel_map(system, named))
    return Report(
        systems,
        gold=gold.source,
        queries=None if queries is None else queries.source,
        corpus=None if corpus is None else corpus.source,
        tables=Tables(gold, queries, corpus),
        **origin_of([run_scores.meta for run_scores in scores], queries),
    )


def _logged_names(scores: Sequence[Scores]) -> list[str | None]:
    """Return the name of the system in each log; None if it has none or shares it with another."""
    logged = [run_scores.meta.get("system") for run_scores in scores]
    names = [None if name in (None, "") else utf8(str(name)) for name in logged]
    return [name if names.count(name) == 1 else None for name in names]


def _different_conventions(systems: Sequence[System]) -> list[str]:
    """Return the conventions in which systems differ, such as what ranks each run."""
    documents = [system.scores.conventions.document() for system in systems]
    return [
        key
        for key in documents[0]
        if any(document[key] != documents[0][key] for document in documents)
    ]


def _common_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the worst of each count over all systems: least scored, most missing."""
    worst = {name: max(count[name] for count in counts) for name in counts[0]}
    return worst | {"scored": min(count["scored"] for count in counts)}


def _system(system: System, different: Sequence[str]) -> dict[str, Any]:
    scores = system.scores
    document: dict[str, Any] = {
        "name": system.name,
        "measures": _measures(system),
        "counts": scores.counts.document(),
    }
    if system.open is not None:
        document |= {"unjudged": system.open.unjudged, "unjudged_apart": system.open.apart}
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
    return document | dict(system.diagnostics)


def _measures(system: System) -> dict[str, Any]:
    measures = {name: _measure(summary) for name, summary in system.summaries.items()}
    ranges = {} if system.open is None else system.open.document()
    for name, ends in ranges.items():
        measures[name]["bounds"] = _plain(ends)
    return measures


def _beyond_log(scores: Scores) -> list[str]:
    """Return the measures that look at more hits than the run was asked for."""
    if scores.cut is not None:
        return list(scores.cut.beyond)
    asked = scores.meta.get("k")
    if not isinstance(asked, int) or "run_digest" not in scores.meta:
        return []
    return [
        str(measure)
        for measure in scores.measures
        if isinstance(measure.k, int) and measure.k > asked
    ]


def _judged(labelled: Labelled | None, systems: Sequence[System]) -> dict[str, Any]:
    """Return the counts of a judge's labels, and where they reverse a comparison."""
    if labelled is None:
        return {}
    from karat.evaluation.judged_labels import reversed_by_labels

    bounds = {system.name: system.bounds for system in systems}
    return {"judged": {**labelled.document(), "reversed": reversed_by_labels(bounds)}}


def _compared(comparisons: Comparisons | None) -> dict[str, Any]:
    if comparisons is None:
        return {}
    return {
        "rule": asdict(comparisons.rule),
        "primary": comparisons.primary.document(),
        "comparisons": [_plain(row.document()) for row in comparisons.rows],
        "decisions": [decision.document() for decision in comparisons.decisions],
        "overlap": [_plain(overlap.document()) for overlap in comparisons.overlaps],
        "moved": [_plain(query.document()) for query in comparisons.moved],
        "reversals": list(comparisons.reversals),
        "replicates": dict(comparisons.replicates),
    }


def _findings(report: Report) -> dict[str, Any]:
    """Return what to fix next in the last system, the one that may ship."""
    if report.findings is None:
        return {}
    return {"findings": list(report.findings), "findings_of": report.systems[-1].name}


def _gated(gatings: Sequence[Gating]) -> dict[str, Any]:
    if not gatings:
        return {}
    return {
        "gates": [_plain(result.document()) for gating in gatings for result in gating.results],
        "blocking": {
            gating.results[0].system: None
            if gating.blocking is None
            else gating.blocking.document()
            for gating in gatings
            if gating.results
        },
        "gates_left_out": sorted({name for gating in gatings for name in gating.left_out}),
    }


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with tuples as lists, and null for NaN."""
    return {
        key: [_number(element) for element in value]
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
    """Return the summary of a segment, marked as small by the number of its queries."""
    return _short(summary) | ({"small": True} if summary.n < SMALL else {})


def _number(value: float | None) -> float | None:
    """Return a number as JSON can hold it: null for NaN."""
    return None if value is None or math.isnan(value) else float(value)
