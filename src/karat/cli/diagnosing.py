"""From runs to a diagnosis: every analysis asked in turn, and what it lacks said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from karat.analysis.failures.classes import classify
from karat.analysis.failures.waterfall import waterfall
from karat.analysis.latency.latencies import latencies
from karat.analysis.latency.pareto import pareto
from karat.analysis.panels.diversity import diversity, diversity_measures
from karat.analysis.panels.freshness import freshness, freshness_measures
from karat.analysis.panels.hubs import hubs
from karat.analysis.panels.no_answer import no_answer, no_answer_measures
from karat.analysis.panels.reach import reach, reach_measures
from karat.analysis.playbook.findings import findings
from karat.analysis.staged import Staged, score_stages
from karat.analysis.thresholds import Thresholds, parse_thresholds
from karat.cli.analysing import Subject, subject_of
from karat.cli.numbers import whole
from karat.cli.scoring import Request, ready
from karat.errors import MissingInputError, UsageError
from karat.formats import scan_run
from karat.measures.names import Measure, parse_measures
from karat.reports.diagnosis import diagnosis_page
from karat.reports.pages import Paper

Part = Callable[[], Mapping[str, Any]]


def diagnosis_of(
    request: Request,
    measures: Sequence[str] | None,
    *,
    k: str,
    lines: Sequence[str],
    baseline: str | None,
) -> Paper:
    """Every run looked into; what is misspelled is refused before any is read."""
    cut, drawn = whole("-k", k), parse_thresholds(lines, request.profile)
    if baseline == "-" and "-" in request.files():
        raise UsageError("only one input can be standard input (-)")
    given = ready(request)
    conventions = given.prepared.conventions
    lost = parse_measures(measures or [f"nDCG@{cut}", f"R@{cut}"], conventions=conventions)
    wanted = [*no_answer_measures(cut), *freshness_measures(cut), *diversity_measures(cut)]
    every = [*lost, *parse_measures([*wanted, *reach_measures(cut)], conventions=conventions)]
    every = list(dict.fromkeys(every))
    keep = max(cut, drawn.miss, drawn.far)
    subject = subject_of(request, every, keep=keep, given=given, of_stages=[])
    earlier = None
    if baseline is not None:
        scan = scan_run(
            baseline, format=request.run_format, strict=request.strict, fields=request.fields
        )
        earlier = score_stages(scan, given.prepared, lost, lenient=lost, keep=keep)
    source = None if earlier is None else earlier.final.source
    systems = [_system(name, subject, lost, cut, drawn, baseline=earlier) for name in subject.runs]
    body: dict[str, Any] = {"k": cut, "lines": drawn.document(), "systems": systems}
    if len(subject.runs) > 1:
        body["pareto"] = pareto(subject.runs, lost[0]).document()
    return subject.paper(body, diagnosis_page, baseline=source)


def _system(
    name: str,
    subject: Subject,
    lost: Sequence[Measure],
    k: int,
    lines: Thresholds,
    *,
    baseline: Staged | None,
) -> dict[str, Any]:
    staged, scan, given = subject.runs[name], subject.scans[name], subject.given
    found = findings(staged, given.queries, lines=lines, baseline=baseline, by=given.by)
    parts: dict[str, Part] = {
        "failures": lambda: classify(staged, given.queries, lines=lines).document(queries=False),
        "no_answer": lambda: no_answer(staged, k=k).document(),
        "freshness": lambda: freshness(staged, scan, k=k).document(),
        "diversity": lambda: diversity(staged, k=k).document(),
        "hubs": lambda: hubs(staged, k=k, lines=lines).document(),
        "reach": lambda: reach(staged, scan, k=k).document(),
        "latency": lambda: latencies(staged, given.queries, by=given.by).document(),
    }
    told: dict[str, Any] = {
        "name": name,
        **found.document(),
        "waterfalls": [waterfall(staged, one).document() for one in lost],
        "lacks": {},
    }
    for part, look in parts.items():
        try:
            told[part] = look()
        except MissingInputError as error:
            told["lacks"][part] = str(error)
    return told
