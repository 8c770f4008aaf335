"""Reports from an Evaluation: its runs scored, compared, checked by gates, and explained.

``report`` is ``karat.report``, and what ``karat eval``, ``compare`` and ``run`` show. What a report
holds is in ``document``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from karat.errors import UsageError
from karat.evaluation.evaluation import Evaluation, ScoredRuns
from karat.evaluation.systems import (
    DEPTH,
    WHOLE_LISTS,
    compared_systems,
    distinct_names,
    with_baseline,
)
from karat.evaluation.verdict import Comparison, Rule, check_boundable, rule_from
from karat.measure.names import Measure
from karat.measure.scores import Scores
from karat.parallel import parallel_map
from karat.reports.document import Report, System, Tables

if TYPE_CHECKING:
    from karat.analysis.diagnose.findings import Finding
    from karat.data.columns import Source
    from karat.evaluation.bounds import ScoreRanges
    from karat.evaluation.comparison import Comparisons
    from karat.evaluation.stages import Staged
    from karat.label.corrected import Corrector
    from karat.reports.outputs import Form


@dataclass(frozen=True, kw_only=True)
class _Details:
    """What a report tells beside scores, as the arguments of ``report`` say."""

    full: bool = True
    bounds: bool | None = None
    strict_bounds: bool = False
    correction: Correction | None = None
    forms: Sequence[Form] = ()


def report(
    evaluation: Evaluation,
    *systems: Any,
    compare: bool = True,
    rule: Rule | None = None,
    full: bool = True,
    bounds: bool | None = None,
    strict_bounds: bool = False,
    human: Sequence[str] | Correction = (),
    forms: Sequence[str | Form] = (),
    replicates: bool = False,
    baseline: str | None = None,
    store: str | None = None,
    **decided_by: Any,
) -> Report:
    """Return one document on the systems of an evaluation, with its gates.

    Takes runs, or scores of this evaluation. Scores without a run, such as those of a store, are
    not diagnosed: they have no curves over k, failures and findings. Unless ``compare`` is false,
    several systems are compared with the first one, or with ``baseline``, an evaluation in the
    ``store``. What decides is a ``Rule``, or its parts by name, as in ``Evaluation.compare``. All
    systems but the first of a comparison are checked by the gates.

    ``full`` adds the curve over k, failures, latencies and findings. ``bounds`` adds what judging
    the unjudged items could change, by default for small runs; ``strict_bounds`` decides only
    what that cannot change. ``human`` are files of people's judgments, which correct the P@k of
    the evaluation's judge. ``forms`` are names of forms such as ``misses``, where the report is
    to be saved in one that shows whole lists.

    >>> evaluation = Evaluation({"q1": {"a": 1}, "q2": {"b": 1}}, measures=["RR"])
    >>> bm25 = evaluation.score({"q1": ["x", "a"], "q2": ["b"]}, name="bm25")
    >>> report(evaluation, bm25).to_dict()["systems"][0]["measures"]["RR"]["mean"]
    0.75
    """
    if human and not isinstance(human, Correction):
        human = correction_of(evaluation, human)
    if any(isinstance(form, str) for form in forms):
        from karat.reports.outputs import form_named

        forms = [form_named(form) if isinstance(form, str) else form for form in forms]
    details = _Details(
        full=full,
        bounds=bounds,
        strict_bounds=strict_bounds,
        correction=human if isinstance(human, Correction) else None,
        forms=cast("Sequence[Form]", forms),
    )
    compare = compare and (len(systems) > 1 or baseline is not None)
    if compare or decided_by:
        rule = rule_from(rule, decided_by)
        _check_comparison(rule, details, replicates=replicates, baseline=baseline)
    systems = tuple(
        evaluation.open(system) if isinstance(system, Scores) and system.run is not None else system
        for system in systems
    )
    scores = [system for system in systems if isinstance(system, Scores)]
    if scores and len(scores) < len(systems):
        raise UsageError("report takes runs, or scores without runs; not a mixture")
    if scores:
        scored = ScoredRuns(evaluation, scores)
        # Scores without runs may have fewer items of each list.
        details = replace(details, forms=())
    else:
        scored = _score(evaluation, systems, details, keep=DEPTH if compare else 0)
    if rule is None or not compare:
        new_report = _report(scored, details, _findings(scored) if scored.staged else None)
        names = [system.name for system in new_report.systems]
        gatings = scored.gatings(names) if evaluation.gates else []
        return replace(new_report, gatings=tuple(gatings))
    everyone = scored
    if baseline is not None:
        with_stored = with_baseline(
            baseline,
            scored.scores,
            gold=evaluation.gold,
            queries=evaluation.queries,
            corpus=evaluation.corpus,
            notify=evaluation.notify,
            store=store,
            primary=rule.primary,
        )
        everyone = replace(scored, scores=with_stored)
    return _compared(scored, rule, details, everyone=everyone, replicates=replicates)


def _check_comparison(
    rule: Rule, details: _Details, *, replicates: bool, baseline: str | None
) -> None:
    """Refuse a comparison that could not be made, before anything is scored."""
    if details.strict_bounds:
        check_boundable(rule, replicates=replicates)
        if baseline is not None:
            raise UsageError("--strict-bounds: a stored baseline has no lists; give its run")
    with_lists = next((form.name for form in details.forms if form.lists != "none"), None)
    if baseline is not None and with_lists is not None:
        raise UsageError(
            f"output {with_lists}: needs every list, and a stored baseline has none; give its run"
        )


def _compared(
    scored: ScoredRuns,
    rule: Rule,
    details: _Details,
    *,
    everyone: ScoredRuns,
    replicates: bool,
) -> Report:
    """Return the report on scored runs and their comparison.

    ``everyone`` are the scored runs with a stored baseline before them, if there is one.
    """
    findings = _findings(scored) if scored.staged else None
    new_report = _report(everyone, details, findings)
    names = [system.name for system in new_report.systems]
    compared = everyone.compared()
    systems = compared_systems(compared, replicates=replicates, names=names)
    comparisons = everyone.compare(rule, systems)
    if details.correction is not None and not replicates:
        by_name = dict(zip(names, everyone.scores, strict=True))
        comparisons = details.correction.compared(comparisons, by_name)
    runs = zip(names, compared, strict=True)
    first = {name for name, run_scores in runs if run_scores in systems[0].runs}
    # A stored baseline comes before the runs, which may have measures that it lacks.
    names_of_runs = names[-len(scored.scores) :]
    gatings = scored.gatings(names_of_runs, skip=first) if everyone.evaluation.gates else []
    new_report = replace(new_report, gatings=tuple(gatings), comparisons=comparisons)
    if findings is None:
        return new_report
    from karat.analysis.diagnose.findings import to_fix

    # Segments that the last system hurts come first.
    pair = systems[0].name, systems[-1].name
    decisions = (
        decision
        for decision in comparisons.decisions
        if (decision.baseline, decision.system) == pair
    )
    return replace(new_report, findings=tuple(to_fix(findings, next(decisions, None))))


def _score(
    evaluation: Evaluation, runs: Sequence[Any], details: _Details, *, keep: int = 0
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


def _report(scored: ScoredRuns, details: _Details, findings: tuple[Finding, ...] | None) -> Report:
    """Return the report on all systems, with the segments of the evaluation."""
    evaluation, correction = scored.evaluation, details.correction
    system_report = Report.of(
        scored.scores,
        gold=evaluation.prepared.source,
        queries=evaluation.queries,
        corpus=evaluation.corpus,
        by=evaluation.by,
        read_tables=lambda: Tables(evaluation.gold, evaluation.queries, evaluation.corpus),
    )

    def described(
        parts: tuple[System, Staged | None, Scores | None, ScoreRanges | None],
    ) -> System:
        """Return the system with diagnostics, what a judge's labels change, and ranges."""
        system, staged, labelled, ranges = parts
        system = replace(system, open=ranges)
        if staged is not None:
            from karat.analysis.diagnose import diagnostics
            from karat.analysis.failures import classify

            failures = classify(staged, evaluation.queries)
            body = diagnostics(staged, evaluation.queries, evaluation.by, failures)
            system = replace(system, diagnostics=body, staged=staged, failures=failures)
        if labelled is None:
            return system
        from karat.evaluation.judged_labels import label_bounds, of_the_same_queries

        bounds = label_bounds(system.summaries, of_the_same_queries(labelled, system.scores))
        for name, value in ({} if correction is None else correction.system(system.scores)).items():
            if name in bounds:
                bounds[name] = bounds[name] | {"corrected": value}
        return replace(system, bounds=bounds)

    parts = (scored.staged, scored.labelled, scored.ranges)
    # A stored baseline comes first and has none of these.
    columns = [(None,) * (len(system_report.systems) - len(part)) + tuple(part) for part in parts]
    systems = parallel_map(described, list(zip(system_report.systems, *columns, strict=True)))
    return replace(
        system_report,
        gates=evaluation.gates_file,
        fields=evaluation.fields.given,
        systems=tuple(systems),
        labelled=evaluation.labelled,
        index=evaluation.index,
        findings=None if findings is None else tuple(finding.sentence for finding in findings),
        bounds_left_out=scored.why_no_ranges,
        people=() if correction is None else correction.people,
        forms=tuple(details.forms),
    )


def _findings(scored: ScoredRuns) -> tuple[Finding, ...]:
    """Return what to fix next in the last system, the one that may be shipped."""
    from karat.analysis.diagnose.findings import findings
    from karat.evaluation.stages import thresholds_of

    staged, evaluation = scored.staged[-1], scored.evaluation
    thresholds = thresholds_of(staged.final.conventions.profile)
    return findings(staged, evaluation.queries, thresholds=thresholds, by=evaluation.by).findings


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

    def compared(self, comparisons: Comparisons, scores: Mapping[str, Scores]) -> Comparisons:
        """Return every comparison by P@k with the corrected difference of its two systems.

        ``scores`` are by the names of the systems; those of a stored baseline have no lists.
        """
        with_lists = {name for name, run_scores in scores.items() if run_scores.lists is not None}
        measures = {str(measure) for measure in self.measures}

        def corrected(row: Comparison) -> Comparison:
            listed = {row.baseline, row.system} <= with_lists
            if row.segment is not None or row.measure not in measures or not listed:
                return row
            pair = scores[row.baseline], scores[row.system]
            return replace(row, corrected=self.corrector.difference(*pair, row.measure))

        return replace(comparisons, rows=tuple(map(corrected, comparisons.rows)))


def correction_of(evaluation: Evaluation, human: Sequence[str]) -> Correction:
    """Read the files of the evaluation's judge and of people."""
    judged = evaluation.judged
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
    from karat.label.labels import read_labels, read_people

    compared = (
        measure for measure in evaluation.measures if measure not in evaluation.not_compared
    )
    precisions = tuple(m for m in compared if correctable(m) and isinstance(m.k, int))
    if not precisions:
        raise UsageError("--human corrects P@k only; name one with -m, such as P@5")
    labels = read_people(human)
    corrector = Corrector.of(read_labels(judged), labels)
    return Correction(corrector, precisions, tuple(labels.sources))


def save(
    report: Report,
    store: str | None = None,
    tags: Sequence[str] = (),
    *,
    skip: str | None = None,
    waiting: Callable[[str], None] | None = None,
) -> tuple[str, list[int]]:
    """Save every system of a report but ``skip`` in a store; return its name and their ids.

    There are no ids if no query could be scored: then nothing is saved. ``waiting`` is
    called with the store's name while another process holds it.

    >>> report = karat.report(karat.Evaluation("qrels.txt"), "bm25.trec")
    >>> karat.save(report, "history.db", ["main"])
    ('history.db', [1])
    """
    from karat.data.revision import revision_here
    from karat.reports.html.view import view_of
    from karat.store import Store

    systems = [system for system in report.systems if system.name != skip]
    with Store.open(store, waiting=waiting) as opened:
        if not any(summary.n for system in systems for summary in system.summaries.values()):
            return opened.name, []
        # A baseline that is not saved again leaves its name to the system compared with it.
        names = distinct_names([system.scores.system for system in systems])
        ids = opened.save(
            [
                replace(system.scores, system=name)
                for system, name in zip(systems, names, strict=True)
            ],
            report.to_dict(),
            tags=tags,
            revision=revision_here(),
            summaries=[system.summaries for system in systems],
            parts=view_of(report).parts(),
        )
        return opened.name, list(ids)
