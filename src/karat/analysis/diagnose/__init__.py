"""What to fix next: findings, failures, losses and the other analyses of a run's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from karat.analysis import Analysis, StagedRuns, stage_runs, system_blocks
from karat.analysis.diagnose.diversity import diversity, diversity_measures, diversity_sections
from karat.analysis.diagnose.findings import findings, findings_sections
from karat.analysis.diagnose.freshness import freshness, freshness_measures, freshness_sections
from karat.analysis.diagnose.hubs import hub_sections, hubs
from karat.analysis.diagnose.latency import latencies, latency_sections, pareto, pareto_sections
from karat.analysis.diagnose.no_answer import no_answer, no_answer_measures, no_answer_sections
from karat.analysis.diagnose.reach import reach, reach_measures, reach_sections
from karat.analysis.failures import (
    QueryFailures,
    classify,
    failure_sections,
    missed_line,
    waterfall,
    waterfall_charts,
    waterfall_section,
)
from karat.analysis.failures import system_sections as failure_system_sections
from karat.analysis.sweep import curve_section, default_sweep
from karat.data.tables import Queries
from karat.errors import MissingInputError
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.report_text import conventions_lines, counts_lines
from karat.evaluation.segments import By
from karat.evaluation.stages import KEEP, Staged, Thresholds, rescore_stages, thresholds_from
from karat.measure.names import Measure, parse_measure, parse_measures
from karat.pages.charts import pareto_chart
from karat.pages.formatting import label, plural
from karat.pages.page import Chart, Page, Section

Document = Mapping[str, Any]

_SECTIONS: Mapping[str, Callable[[Document], Sequence[Section]]] = {
    "failures": failure_sections,
    "no_answer": no_answer_sections,
    "freshness": freshness_sections,
    "diversity": diversity_sections,
    "hubs": hub_sections,
    "reach": reach_sections,
    "latency": latency_sections,
}


class Diagnosis(Analysis):
    """What to fix next in one or several systems, and the analyses that show it."""


def diagnose(
    evaluation: Evaluation,
    *runs: Any,
    measures: Sequence[str] | None = None,
    k: int = KEEP,
    thresholds: Thresholds | Sequence[str] = (),
    baseline: Any = None,
) -> Diagnosis:
    """Diagnose every run: its findings, and each analysis that its inputs allow.

    The loss of each of ``measures`` from its ceiling is broken down by cause; nDCG@k and R@k
    unless named. An analysis that lacks an input is left out, and ``lacks`` says what it needs.
    ``baseline`` is an earlier run, to find what became slower.

    >>> result = karat.diagnose(karat.Evaluation("qrels.txt"), "dense.jsonl").to_dict()
    >>> result["systems"][0]["findings"][0]["rule"]
    'failed_calls'
    """
    conventions = evaluation.prepared.conventions
    thresholds = thresholds_from(thresholds, conventions.profile)
    lost = parse_measures(measures or [f"nDCG@{k}", f"R@{k}"], conventions=conventions)
    needed = [*no_answer_measures(k), *freshness_measures(k), *diversity_measures(k)]
    needed += reach_measures(k)
    scored = list(dict.fromkeys([*lost, *parse_measures(needed, conventions=conventions)]))
    keep = max(k, thresholds.miss, thresholds.far)
    staged_runs = stage_runs(evaluation, runs, scored, keep=keep, of_stages=[])
    earlier = None if baseline is None else evaluation.stages(baseline, lost, keep=keep)
    if earlier is not None:
        staged_runs = replace(staged_runs, more_inputs={"baseline": earlier.final.source})
    systems = [
        _diagnose_system(name, staged_runs, lost, k, thresholds, baseline=earlier)
        for name in staged_runs.systems
    ]
    body: dict[str, Any] = {"k": k, "lines": thresholds.to_dict(), "systems": systems}
    if len(systems) > 1:
        body["pareto"] = pareto(staged_runs.systems, lost[0]).to_dict()
    return staged_runs.result(Diagnosis, body, diagnosis_page)


def _diagnose_system(
    name: str,
    staged_runs: StagedRuns,
    lost: Sequence[Measure],
    k: int,
    thresholds: Thresholds,
    *,
    baseline: Staged | None,
) -> dict[str, Any]:
    staged, run = staged_runs.systems[name], staged_runs.opened[name]
    queries, by = staged_runs.evaluation.queries, staged_runs.evaluation.by
    analyses: dict[str, Callable[[], Document]] = {
        "failures": lambda: classify(staged, queries, thresholds=thresholds).to_dict(queries=False),
        "no_answer": lambda: no_answer(staged, k=k).to_dict(),
        "freshness": lambda: freshness(staged, run, k=k).to_dict(),
        "diversity": lambda: diversity(staged, k=k).to_dict(),
        "hubs": lambda: hubs(staged, k=k, thresholds=thresholds).to_dict(),
        "reach": lambda: reach(staged, run, k=k).to_dict(),
        "latency": lambda: latencies(staged, queries, by=by).to_dict(),
    }
    system: dict[str, Any] = {
        "name": name,
        **findings(staged, queries, thresholds=thresholds, baseline=baseline, by=by).to_dict(),
        "waterfalls": [waterfall(staged, measure).to_dict() for measure in lost],
        "lacks": {},
    }
    for analysis, run_analysis in analyses.items():
        try:
            system[analysis] = run_analysis()
        except MissingInputError as error:
            system["lacks"][analysis] = str(error)
    return system


def diagnosis_page(results: Document) -> Page:
    """Return the page: what to fix next first, then the analyses, system by system."""
    systems = results["systems"]
    blocks: list[Section | Chart] = [*system_blocks(systems, _system_sections)]
    charts = waterfall_charts(systems)
    if "pareto" in results:
        blocks += pareto_sections(results["pareto"])
        if results["pareto"]["systems"]:
            charts.append(Chart("Quality against latency", pareto_chart(results["pareto"])))
    return Page(
        f"What to fix next: {', '.join(label(system['name']) for system in systems)}",
        [_headline(system) for system in systems],
        [*blocks, *charts],
        [*counts_lines(results), *conventions_lines(results)],
    )


def _headline(system: Document) -> str:
    n = len(system["findings"])
    count = plural(n, "finding") if n else "no finding"
    return f"{label(system['name'])}: {count} · {missed_line(system['failures'])}"


def _system_sections(system: Document) -> Iterator[Section]:
    yield from findings_sections(system)
    for analysis, sections_of in _SECTIONS.items():
        if analysis in system:
            yield from sections_of(system[analysis])
        if analysis == "failures":
            yield from map(waterfall_section, system["waterfalls"])
    if lacks := system["lacks"]:
        lines = [f"{analysis}: {label(reason)}" for analysis, reason in lacks.items()]
        yield Section("Left out", lines=lines)


def diagnostics(
    staged: Staged, queries: Queries | None, by: Sequence[By], failures: QueryFailures
) -> Document:
    """Return what every report holds: curves over k, failures, losses, latencies if logged."""
    conventions, miss = staged.gold.conventions, failures.thresholds.miss
    lost = [parse_measure(f"{name}@{miss}", conventions=conventions) for name in ("nDCG", "R")]
    again = replace(staged, final=rescore_stages(staged, lost))
    document: dict[str, Any] = {
        "sweep": default_sweep(staged),
        "failures": failures.to_dict(queries=False),
        "waterfalls": [waterfall(again, measure).to_dict() for measure in lost],
    }
    with suppress(MissingInputError):
        document["latency"] = latencies(staged, queries, by=by).to_dict()
    return document


def diagnostics_sections(results: Document) -> Iterator[Section]:
    """Yield the sections of ``diagnostics``: curves side by side, the rest system by system."""
    systems = [system for system in results["systems"] if "sweep" in system]
    if not systems:
        return
    curves = [{**system["sweep"], "name": system["name"]} for system in systems]
    for measure in curves[0]["measures"]:
        yield curve_section(measure, curves)
    yield from system_blocks(systems, _report_sections)


def _report_sections(system: Document) -> Iterator[Section]:
    yield from failure_system_sections(system)
    if "latency" in system:
        yield from latency_sections(system["latency"])
