"""Reports from an Evaluation: its runs scored, compared, checked by gates, and explained.

``report_runs`` is what ``karat eval`` shows, ``report_comparison`` what ``karat compare`` and
``karat run`` show. What a report holds is in ``document``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from karat.errors import UsageError
from karat.evaluation.baseline import with_baseline
from karat.evaluation.comparison import DEPTH, Comparisons, check_boundable
from karat.evaluation.evaluation import Evaluation, ScoredRuns
from karat.evaluation.systems import compared_systems
from karat.evaluation.thresholds import thresholds_of
from karat.evaluation.unjudged_ranges import WHOLE_LISTS
from karat.evaluation.verdict import Comparison, Rule
from karat.measures.names import Measure
from karat.measures.scores import Scores
from karat.parallel import parallel_map
from karat.report.document import Report, System, build_report
from karat.report.outputs import Form

if TYPE_CHECKING:
    from karat.analysis.findings import Finding
    from karat.data.columns import Source
    from karat.evaluation.stages import Staged
    from karat.label.corrected import Corrector


@dataclass(frozen=True, kw_only=True)
class Details:
    """What a report tells beside scores.

    ``full`` adds the curve over k, failures, latencies and findings. ``bounds`` adds what judging
    the unjudged items could change, by default for small runs; ``strict_bounds`` decides only
    what that cannot change. ``correction`` corrects a judge's precision. ``forms`` are the
    outputs, which may need whole lists.
    """

    full: bool = False
    bounds: bool | None = None
    strict_bounds: bool = False
    correction: Correction | None = None
    forms: Sequence[Form] = ()


def report_runs(
    evaluation: Evaluation, runs: Sequence[Any], details: Details | None = None
) -> Report:
    """Score runs, hold each against the gates of the evaluation, and report it all."""
    details = details or Details()
    scored = _score(evaluation, runs, details)
    report = _report(scored, details.correction, _findings(scored))
    gatings = scored.gatings([system.name for system in report.systems])
    return replace(report, gatings=tuple(gatings))


def report_comparison(
    evaluation: Evaluation,
    runs: Sequence[Any],
    rule: Rule,
    details: Details | None = None,
    *,
    replicates: bool = False,
    baseline: str | None = None,
    store: str | None = None,
) -> Report:
    """Score runs, compare them with the first, and hold all but the first against the gates.

    ``baseline`` names a stored evaluation that takes the place of the first run.
    """
    details = details or Details()
    check_comparison(len(runs), rule, details, replicates=replicates, baseline=baseline)
    scored = _score(evaluation, runs, details, keep=DEPTH)
    everyone = scored
    if baseline is not None:
        scores = with_baseline(baseline, scored, store=store, primary=rule.primary)
        everyone = replace(scored, scores=scores)
    findings = _findings(scored)
    report = _report(everyone, details.correction, findings)
    names = [system.name for system in report.systems]
    compared = everyone.compared()
    systems = compared_systems(compared, replicates=replicates, names=names)
    comparisons = everyone.compare(rule, systems=systems)
    if details.correction is not None and not replicates:
        by_name = dict(zip(names, everyone.scores, strict=True))
        comparisons = details.correction.compared(comparisons, by_name)
    first = {name for name, one in zip(names, compared, strict=True) if one in systems[0].runs}
    # A stored baseline stands before the runs, which may have measures that it lacks.
    gatings = scored.gatings(names[-len(scored.scores) :], skip=first)
    report = replace(report, gatings=tuple(gatings), comparisons=comparisons)
    if findings is None:
        return report
    from karat.analysis.findings import to_fix

    # Segments that the last system hurts come first.
    pair = systems[0].name, systems[-1].name
    decisions = (
        decision
        for decision in comparisons.decisions
        if (decision.baseline, decision.system) == pair
    )
    return replace(report, findings=tuple(to_fix(findings, next(decisions, None))))


def check_comparison(
    runs: int,
    rule: Rule,
    details: Details,
    *,
    replicates: bool = False,
    baseline: str | None = None,
) -> None:
    """Refuse a comparison that could not be made, before anything is scored."""
    if details.strict_bounds:
        check_boundable(rule, replicates=replicates)
        if baseline is not None:
            raise UsageError("--strict-bounds: a stored baseline has no lists; give its run")
    if runs + (baseline is not None) < 2:
        raise UsageError("compare needs two runs at least: the baseline first, then the others")
    whole = next((form.name for form in details.forms if form.lists != "none"), None)
    if baseline is not None and whole is not None:
        raise UsageError(
            f"output {whole}: needs every list, and a stored baseline has none; give its run"
        )


def _score(
    evaluation: Evaluation, runs: Sequence[Any], details: Details, *, keep: int = 0
) -> ScoredRuns:
    needed = {form.lists for form in details.forms}
    if "all" in needed:
        keep = WHOLE_LISTS
    elif "k" in needed:
        keep = max(keep, int(evaluation.prepared.own_k.max(initial=0)))
    if details.correction is not None:
        keep = max(keep, details.correction.depth)
    return evaluation.score_runs(
        runs,
        keep=keep,
        stages=details.full,
        bounds=details.bounds,
        strict_bounds=details.strict_bounds,
    )


def _report(
    scored: ScoredRuns, correction: Correction | None, findings: tuple[Finding, ...] | None
) -> Report:
    """Return the report on all systems, with the segments of the evaluation."""
    evaluation = scored.evaluation
    report = build_report(
        scored.scores,
        gold=evaluation.gold,
        queries=evaluation.queries,
        corpus=evaluation.corpus,
        by=evaluation.by,
    )
    systems = _with_details(report.systems, scored)
    systems = _with_labels(systems, scored, correction)
    # A stored baseline stands first and has no ranges.
    first = len(systems) - len(scored.ranges)
    ranged = [
        replace(system, open=ranges)
        for system, ranges in zip(systems[first:], scored.ranges, strict=True)
    ]
    return replace(
        report,
        gates=evaluation.gates_file,
        fields=evaluation.fields.given,
        systems=(*systems[:first], *ranged),
        labelled=evaluation.labelled,
        index=evaluation.index,
        findings=None if findings is None else tuple(finding.sentence for finding in findings),
        bounds_left_out=scored.why_no_ranges,
        people=() if correction is None else correction.people,
    )


def _findings(scored: ScoredRuns) -> tuple[Finding, ...] | None:
    """Return what to fix next in the last system, the one that may be shipped."""
    if not scored.staged:
        return None
    from karat.analysis.findings import findings

    staged, evaluation = scored.staged[-1], scored.evaluation
    lines = thresholds_of(staged.final.conventions.profile)
    return findings(staged, evaluation.queries, thresholds=lines, by=evaluation.by).findings


def _with_details(systems: tuple[System, ...], scored: ScoredRuns) -> tuple[System, ...]:
    """Return the systems with curves, failures and latencies; a stored baseline has none."""
    if not scored.staged:
        return systems
    from karat.analysis.diagnosis import diagnostics, failures_of

    first = len(systems) - len(scored.staged)
    queries, by = scored.evaluation.queries, scored.evaluation.by

    def detailed(pair: tuple[System, Staged]) -> System:
        system, staged = pair
        failures = failures_of(staged, queries)
        found = diagnostics(staged, queries, by, failures)
        return replace(system, diagnostics=found, staged=staged, failures=failures)

    pairs = list(zip(systems[first:], scored.staged, strict=True))
    return (*systems[:first], *parallel_map(detailed, pairs))


def _with_labels(
    systems: tuple[System, ...], scored: ScoredRuns, correction: Correction | None
) -> tuple[System, ...]:
    """Return the systems with what a judge's labels change; a stored baseline has none."""
    if not scored.labelled:
        return systems
    from karat.evaluation.judged_labels import label_bounds, of_the_same_queries

    first = len(systems) - len(scored.labelled)
    labelled = []
    for system, scores in zip(systems[first:], scored.labelled, strict=True):
        bounds = label_bounds(system.summaries, of_the_same_queries(scores, system.scores))
        for name, value in ({} if correction is None else correction.system(system.scores)).items():
            if name in bounds:
                bounds[name] = bounds[name] | {"corrected": value}
        labelled.append(replace(system, bounds=bounds))
    return (*systems[:first], *labelled)


@dataclass(frozen=True, eq=False)
class Correction:
    """Corrects a judge's P@k by the judgments of people, for the systems of a report."""

    corrector: Corrector
    measures: tuple[Measure, ...]
    people: tuple[Source, ...]

    @property
    def depth(self) -> int:
        """How many of the top items of each query are looked at."""
        return max(measure.k for measure in self.measures if isinstance(measure.k, int))

    def system(self, scores: Scores) -> dict[str, dict[str, Any]]:
        """Return each P@k of a system, corrected."""
        return {
            str(measure): self.corrector.precision(scores, measure) for measure in self.measures
        }

    def compared(self, found: Comparisons, scores: Mapping[str, Scores]) -> Comparisons:
        """Return every comparison by P@k with the corrected difference of its two systems.

        ``scores`` are by the names of the systems; those of a stored baseline have no lists.
        """
        whole = {name for name, own in scores.items() if own.lists is not None}
        measures = {str(measure) for measure in self.measures}

        def corrected(row: Comparison) -> Comparison:
            listed = {row.baseline, row.system} <= whole
            if row.segment is not None or row.measure not in measures or not listed:
                return row
            pair = scores[row.baseline], scores[row.system]
            return replace(row, corrected=self.corrector.difference(*pair, row.measure))

        return replace(found, rows=tuple(map(corrected, found.rows)))


def correction_of(
    evaluation: Evaluation, judged: str | None, human: Sequence[str]
) -> Correction | None:
    """Read the files of a judge and of people; None if no people are named."""
    if not human:
        return None
    if judged is None:
        raise UsageError("--human corrects the labels of a judge; name them with --judged")
    if "-" in human:
        raise UsageError("--human cannot be standard input; name a file")
    people = [os.path.realpath(name) for name in human]
    if os.path.realpath(judged) in people:
        raise UsageError("--judged and --human are the same file; a judge cannot correct itself")
    if len(set(people)) < len(people):
        raise UsageError("--human names a file twice; name each file once")
    from karat.label.corrected import Corrector, correctable
    from karat.label.labels import read_labels
    from karat.label.raters import read_people

    compared = (
        measure for measure in evaluation.measures if measure not in evaluation.not_compared
    )
    wanted = tuple(one for one in compared if correctable(one) and isinstance(one.k, int))
    if not wanted:
        raise UsageError("--human corrects P@k only; name one with -m, such as P@5")
    read = read_people(human)
    return Correction(Corrector.of(read_labels(judged), read), wanted, tuple(read.sources))
