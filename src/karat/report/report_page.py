"""The page of a report: the verdict first, then gates, comparisons, measures and segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from karat.evaluation.sentences import (
    blocking_lines,
    conventions_lines,
    counts_lines,
    headlines,
    lacks_lines,
    left_out_lines,
    origin_lines,
    other_reversals,
    overlap_lines,
    rule_line,
    tests_line,
    unreachable,
)
from karat.evaluation.tables import (
    compared_segments,
    comparison_tables,
    gate_table,
    measure_table,
    moved_tables,
    segment_table,
    transposed,
)
from karat.pages.formatting import label
from karat.pages.page import Page, Section, Sentence
from karat.pages.sparklines import histogram
from karat.report.bounds import bounds_lines, bounds_table, unjudged_lines
from karat.report.document import Report

# More systems than this read better below each other than side by side.
SIDE_BY_SIDE = 4

_ORIGIN = ("dataset_version", "as_of_range", "code_version")

Results = Mapping[str, Any]


def report_page(report: Report) -> Page:
    """Return the page of a report on one or several systems."""
    results = report.results()
    origin = {name: getattr(report, name) for name in _ORIGIN}
    return Page(
        title="Retrieval quality: " + ", ".join(label(system.name) for system in report.systems),
        headline=[*_verdict(results)],
        blocks=[*_sections(results, _spreads(report))],
        notes=[*conventions_lines(results), *origin_lines(origin)],
    )


def _verdict(results: Results) -> Iterator[Sentence]:
    for line in unreachable(results):
        yield Sentence(f"OUT OF REACH  {line}", "bad")
    several_pairs = len(results.get("decisions", [])) > 1
    for headline in headlines(results):
        about, reasons = headline.about, headline.because
        if headline.pair:
            about = f"{about}: {reasons[0]}" if several_pairs else reasons[0]
            reasons = reasons[1:]
        yield Sentence(f"{headline.word}  {about}", headline.tone, reasons)


def _sections(results: Results, spreads: Mapping[str, str]) -> Iterator[Section]:
    yield from _gates(results)
    yield from _comparisons(results)
    measures = measure_table(results, spreads)
    if len(results["systems"]) > SIDE_BY_SIDE:
        measures = transposed(measures)
        measures[0][0] = "system"
    yield Section("", measures)
    if bounds := bounds_table(results):
        yield Section("", bounds, bounds_lines(results))
    if "comparisons" in results:
        yield from (Section(title, grid) for title, grid in compared_segments(results).items())
    for system in results["systems"]:
        title = label(system["name"]) if len(results["systems"]) > 1 else ""
        for column, segments in system.get("segments", {}).items():
            yield Section(title, segment_table(segments, column))
    if reversals := other_reversals(results):
        yield Section(lines=reversals, tone="unsure")
    if overlap := overlap_lines(results):
        yield Section(lines=overlap)
    for title, grid in moved_tables(results).items():
        yield Section(f"moved most: {title}", grid)
    yield Section(lines=[*counts_lines(results), *unjudged_lines(results), *lacks_lines(results)])


def _gates(results: Results) -> Iterator[Section]:
    grid = gate_table(results) if results.get("gates") else None
    lines = [*blocking_lines(results), *left_out_lines(results)]
    if grid or lines:
        yield Section("", grid, lines)


def _comparisons(results: Results) -> Iterator[Section]:
    if "comparisons" in results and (compared := comparison_tables(results)):
        yield from (Section(title, grid) for title, grid in compared.items())
        yield Section(lines=[f"{rule_line(results)} · {tests_line(results)}"])


def _spreads(report: Report) -> dict[str, str]:
    """Return a histogram of the queries' values per measure, where there is one system only."""
    if len(report.systems) > 1:
        return {}
    (system,) = report.systems
    spreads = {}
    for measure in system.scores.measures:
        name, summary = str(measure), system.summaries.get(str(measure))
        if summary is not None and summary.quantiles is not None:
            top = summary.ceiling if measure.definition.ceiling == "k" else None
            top = 1.0 if measure.definition.bounded else top
            spreads[name] = histogram(system.scores.values(name), top)
    return spreads
