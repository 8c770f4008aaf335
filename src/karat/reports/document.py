"""Report: systems with their scores, comparisons and gates, as one plain document.

The document holds no clock, no absolute path and no random order: same inputs, same document.
Reports are put together from an Evaluation in ``assembly``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from karat.data.columns import Source
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import UsageError
from karat.evaluation.inputs import why_skipped, without_grades
from karat.evaluation.report_text import origin_of
from karat.evaluation.segments import SMALL, By, Segments, segment_means
from karat.evaluation.systems import distinct_names
from karat.measure.scores import Scores, Summary
from karat.pages.formatting import histogram, label, plural, utf8
from karat.pages.result import ENVELOPE, Result, input_of
from karat.pages.serialize import plain
from karat.parallel import parallel_map

if TYPE_CHECKING:
    import polars as pl

    from karat.analysis.failures import QueryFailures
    from karat.evaluation.bounds import ScoreRanges
    from karat.evaluation.comparison import Comparisons
    from karat.evaluation.gates import Gating
    from karat.evaluation.judged_labels import Labelled
    from karat.evaluation.stages import Staged
    from karat.pages.page import Page
    from karat.reports.outputs import Form
    from karat.retrieve.corpus_index import CorpusIndex


_UNKNOWN = "cannot tell: {}"
# Forms of other tools that have no place for calls that failed.
_WITHOUT_FAILURES = ("memory", "ab")
_FIGURES = ("mean", "ci", "n", "ceiling")


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
    failures: QueryFailures | None = None
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
    ``forms`` are the forms whose lists it holds.

    >>> report = karat.report(karat.Evaluation("qrels.txt"), "bm25.trec", "dense.jsonl")
    >>> report.verdict, len(report.findings)
    ('unclear', 2)
    >>> report.save("report.md")
    """

    systems: tuple[System, ...]
    gold: Source
    queries: Source | None = None
    corpus: Source | None = None
    as_of_range: Sequence[str] | None = None
    comparisons: Comparisons | None = None
    gatings: tuple[Gating, ...] = ()
    gates: Source | None = None
    config_digest: str | None = None
    dataset_version: str | None = None
    code_version: str | None = None
    read_tables: Callable[[], Tables] | None = None
    timestamp: str | None = None
    labelled: Labelled | None = None
    index: CorpusIndex | None = None
    findings: tuple[str, ...] | None = None
    bounds_left_out: str | None = None
    people: tuple[Source, ...] = ()
    forms: tuple[Form, ...] = ()

    @classmethod
    def of(
        cls,
        scores: Sequence[Scores],
        *,
        gold: Gold | Source,
        queries: Queries | None = None,
        corpus: Corpus | None = None,
        by: Sequence[By | str] = (),
        comparisons: Comparisons | None = None,
        read_tables: Callable[[], Tables] | None = None,
    ) -> Report:
        """Return a report on one or many systems, with means by each of the columns ``by``.

        ``gold`` may be its file alone, with ``read_tables`` to read it once it is needed.
        """
        if not scores:
            raise UsageError("a report needs the scores of at least one run")
        source = gold if isinstance(gold, Source) else gold.source
        if isinstance(gold, Gold):
            read_tables = partial(Tables, gold, queries, corpus)
        names = [utf8(run_scores.system) for run_scores in scores]
        if len(names) > 1:
            names = distinct_names(names)

        def segments_of(run_scores: Scores) -> dict[str, Segments]:
            return {
                str(By.parse(column)): segment_means(run_scores, queries, column) for column in by
            }

        # In parallel, since intervals take longer than the scores.
        summaries = parallel_map(attrgetter("summaries"), scores)
        segments = parallel_map(segments_of, scores) if by else [{}] * len(scores)
        logged = [run_scores.meta.get("system") for run_scores in scores]
        log_names = [None if name in (None, "") else utf8(str(name)) for name in logged]
        # A name in several logs names none of them.
        unique = [name if log_names.count(name) == 1 else None for name in log_names]
        systems = tuple(
            System(name, run_scores, means, by_segment, logged_as=logged_as)
            for name, run_scores, means, by_segment, logged_as in zip(
                names, scores, summaries, segments, unique, strict=True
            )
        )
        return cls(
            systems,
            gold=source,
            queries=None if queries is None else queries.source,
            corpus=None if corpus is None else corpus.source,
            comparisons=comparisons,
            read_tables=read_tables,
            **origin_of([run_scores.meta for run_scores in scores], queries),
        )

    @cached_property
    def tables(self) -> Tables | None:
        """The inputs themselves, for forms that show them."""
        return None if self.read_tables is None else self.read_tables()

    fields: Mapping[str, str] = field(default_factory=dict)

    def results(self) -> dict[str, Any]:
        """Return the document without its inputs, whose digests read every file once more."""
        return dict(self._results)

    @cached_property
    def _results(self) -> dict[str, Any]:
        """The parts of the document, made once for all forms."""
        conventions = [system.scores.conventions.document() for system in self.systems]
        # What systems may differ in, such as what ranks each run.
        first = conventions[0]
        different = [key for key in first if any(other[key] != first[key] for other in conventions)]
        counts = [asdict(system.scores.counts) for system in self.systems]
        # The worst of each count over all systems: least scored, most missing.
        worst = {name: max(count[name] for count in counts) for name in counts[0]}
        document = {
            **ENVELOPE,
            "conventions": first | dict.fromkeys(different),
            "counts": worst | {"scored": min(count["scored"] for count in counts)},
            "systems": [_system(system, different) for system in self.systems],
        }
        if self.labelled is not None:
            from karat.evaluation.judged_labels import reversed_by_labels

            reversed_ = reversed_by_labels({system.name: system.bounds for system in self.systems})
            document["judged"] = {**self.labelled.to_dict(), "reversed": reversed_}
        document |= {} if self.comparisons is None else self.comparisons.to_dict()
        for gating in self.gatings:
            gates = gating.to_dict()
            document.setdefault("gates", []).extend(gates["gates"])
            document.setdefault("blocking", {}).update(gates["blocking"])
            names = {*document.get("gates_left_out", ()), *gates["gates_left_out"]}
            document["gates_left_out"] = sorted(names)
        if self.findings is not None:
            # They are about the last system, the one that may ship.
            findings_of = self.systems[-1].name
            document |= {"findings": list(self.findings), "findings_of": findings_of}
        optional = {"bounds_left_out": self.bounds_left_out, "verdict": self.verdict}
        document |= {key: value for key, value in optional.items() if value is not None}
        return {key: plain(value) for key, value in document.items()}

    @property
    def verdict(self) -> str | None:
        """The verdict of the gates if there are any, else of the comparison.

        A confirmed regression outranks a gate that passes or cannot be judged; a regression
        of another measure than the primary is "fail". If too many calls failed, the verdict is
        "unmeasurable".
        """
        if any(system.scores.partial for system in self.systems):
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

    def outcome(self, *, require_verdict: bool = False) -> tuple[int, list[str]]:
        """Return the exit code that a build should end with, and what to say about it.

        0 is fine, 1 a failed gate or a confirmed regression, 3 cannot tell; with
        ``require_verdict`` an unclear comparison is 3 too.
        """
        compared = self.comparisons
        partial = [label(system.name) for system in self.systems if system.scores.partial]
        skips = [why_skipped(system.scores) for system in self.systems]
        skipped = None not in skips and not partial
        # A system that failed everywhere measured nothing, even if its queries count as 0.
        silent = []
        for system in self.systems:
            counts = system.scores.counts
            answered = counts.scored or counts.missing + counts.failed_calls < counts.queries
            measured = any(summary.n for summary in system.summaries.values())
            if not skipped and not (answered and measured):
                silent.append(label(system.name))
        notes = [f"skipped: {skips[0]}"] if skipped else []
        if silent and (compared is not None or len(silent) == len(self.systems)):
            whose = "" if len(self.systems) == 1 else f" of {', '.join(silent)}"
            # Gold is that of all systems.
            reason = without_grades(self.systems[0].scores)
            return 3, [_UNKNOWN.format(reason or f"no query{whose} could be scored")]
        if partial:
            return 3, [_UNKNOWN.format(f"too many calls of {', '.join(partial)} failed")]
        gates = {gating.verdict for gating in self.gatings}
        if "fail" in gates or (compared is not None and compared.regression):
            return 1, notes
        if compared is None or skipped:
            return 3 if "unmeasurable" in gates else 0, notes
        notes += [
            _UNKNOWN.format(label(reason))
            for reason in dict.fromkeys(row.because or "" for row in compared.unmeasured)
        ]
        unclear = any(decision.verdict == "unclear" for decision in compared.decisions)
        undecided = compared.unmeasured or (require_verdict and unclear)
        return 3 if "unmeasurable" in gates or undecided else 0, notes

    def uncounted_failures(self, forms: Sequence[str]) -> list[str]:
        """Return a line per system with failed calls that other tools' forms count as 0."""
        dialects = ", ".join(form for form in forms if form in _WITHOUT_FAILURES)
        return [
            f"{plural(failed, 'failed call')} of {label(system.name)} counted as 0 in {dialects}"
            for system in self.systems
            if (failed := system.scores.counts.failed_calls) and dialects
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the whole document, with the digest of every input."""
        return {**self._results, "inputs": dict(self._inputs)}

    @cached_property
    def _inputs(self) -> dict[str, Any]:
        """The names and digests of all inputs: each file is read once for all forms."""
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
        return inputs

    def to_frame(self) -> pl.DataFrame:
        """Return one row per system and query, one column per measure; null if not measured."""
        import polars as pl

        frames = [replace(system.scores, system=system.name).to_frame() for system in self.systems]
        return pl.concat(frames, how="diagonal")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a file; its suffix or a prefix picks the form, as with ``-o``."""
        from karat.reports.outputs import parse_outputs, write_outputs

        names = [system.name for system in self.systems]
        outputs = parse_outputs(
            [os.fspath(path)],
            systems=len(names),
            names=names,
            profile=self.systems[0].scores.conventions.profile,
        )
        for form in (output.form for output in outputs):
            if form.lists != "none" and form not in self.forms:
                raise UsageError(
                    f"output {form.name}: shows whole lists, which this report does not hold; make"
                    f' it from runs with karat.report(…, forms=["{form.name}"])'
                )
        write_outputs(outputs, self)

    def page(self) -> Page:
        """Return the page that people read."""
        from karat.reports.report_page import report_page

        origin = ("dataset_version", "as_of_range", "code_version")
        versions = {name: getattr(self, name) for name in origin}
        # A system alone has room for how the values of its queries spread.
        spreads = {}
        first = self.systems[0]
        for measure in first.scores.measures if len(self.systems) == 1 else ():
            name, summary = str(measure), first.summaries.get(str(measure))
            if summary is not None and summary.quantiles is not None:
                top = summary.ceiling if measure.definition.ceiling == "k" else None
                top = 1.0 if measure.definition.bounded else top
                spreads[name] = histogram(first.scores.values(name), top)
        return report_page(self.results(), spreads, versions)


def _system(system: System, different: Sequence[str]) -> dict[str, Any]:
    scores = system.scores
    requested = scores.meta.get("k")
    # The measures that look at more hits than the run was asked for.
    beyond = [] if scores.cut is None else list(scores.cut.beyond)
    if scores.cut is None and isinstance(requested, int) and "run_digest" in scores.meta:
        beyond = [
            str(measure)
            for measure in scores.measures
            if isinstance(measure.k, int) and measure.k > requested
        ]
    measures: dict[str, dict[str, Any]] = {}
    for name, summary in system.summaries.items():
        measures[name] = {key: getattr(summary, key) for key in (*_FIGURES, "better")}
        optional = {key: getattr(summary, key) for key in ("quantiles", "ties", "lacks")}
        measures[name] |= {key: value for key, value in optional.items() if value is not None}
    document: dict[str, Any] = {
        "name": system.name,
        "measures": measures,
        "counts": asdict(scores.counts),
    }
    if system.open is not None:
        document |= {"unjudged": system.open.unjudged, "unjudged_apart": system.open.apart}
        for name, ends in system.open.to_dict().items():
            measures[name]["bounds"] = ends
    for column, segments in system.segments.items():
        cells: dict[str, dict[str, Any]] = {}
        for value, summaries in segments.items():
            cells[value] = {}
            for name, summary in summaries.items():
                small = {"small": True} if summary.n < SMALL else {}
                cells[value][name] = {key: getattr(summary, key) for key in _FIGURES} | small
        document.setdefault("segments", {})[column] = cells
    if different:
        conventions = scores.conventions.document()
        document["conventions"] = {key: conventions[key] for key in different}
    optional = {
        "bounds": dict(system.bounds),
        "partial": scores.partial,
        "nothing_found": scores.nothing_found,
        "beyond_log": beyond,
        "meta": dict(scores.meta),
    }
    document |= {key: value for key, value in optional.items() if value}
    if scores.cut is not None:
        document["cut_at"] = scores.cut.depth
    return document | dict(system.diagnostics)
