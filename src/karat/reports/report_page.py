"""The page of a report: the verdict first, then gates, comparisons, measures and segments.

Its tables and sentences on how far scores could change, with a judge's labels or if unjudged
items were judged, are here too: every form of a report shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from karat.evaluation import report_text
from karat.pages.formatting import (
    NOTHING,
    change,
    figure,
    interval,
    label,
    measured,
    pair_name,
    percent,
    plural,
)
from karat.pages.page import Grid, Page, Section

# More systems than this read better below each other than side by side.
SIDE_BY_SIDE = 4

# Labels of a judge that are not added to the gold.
_LEFT_OUT = {
    "known": "judged in the gold already, which takes precedence",
    "elsewhere": "left out: for queries without relevant gold, or not among the queries",
    "failed": "left out: could not be judged",
    "not_judged": "below 0: pooled, not judged",
}

Results = Mapping[str, Any]


def report_page(results: Results, spreads: Mapping[str, str], origin: Mapping[str, Any]) -> Page:
    """Return the page of a report's results.

    ``spreads`` are drawings of how the values of a measure spread over the queries, ``origin``
    the versions of data and code.
    """
    measures = report_text.measure_table(results, spreads)
    if len(results["systems"]) > SIDE_BY_SIDE:
        measures = [list(column) for column in zip(*measures, strict=True)]
        measures[0][0] = "system"
    decided = results.keys() & {"gates", "comparisons"}
    sections = [*report_text.decided_sections(results)] if decided else []
    sections.append(Section("", measures))
    if "judged" in results:
        sections.append(Section("", bounds_table(results), bounds_lines(results)))
    if "comparisons" in results:
        compared = report_text.compared_segments(results)
        sections += [Section(title, grid) for title, grid in compared.items()]
    for system in results["systems"]:
        title = label(system["name"]) if len(results["systems"]) > 1 else ""
        for column, segments in system.get("segments", {}).items():
            sections.append(Section(title, report_text.segment_table(segments, column)))
    if "comparisons" in results:
        if reversals := report_text.other_reversals(results):
            sections.append(Section(lines=reversals, tone="unsure"))
        if overlap := report_text.overlap_lines(results):
            sections.append(Section(lines=overlap))
        for title, grid in report_text.moved_tables(results).items():
            sections.append(Section(f"moved most: {title}", grid))
    names = ", ".join(label(system["name"]) for system in results["systems"])
    has_versions = origin["dataset_version"] or origin["code_version"]
    versions = [report_text.origin_line(origin)] if has_versions else []
    return Page(
        title=f"Retrieval quality: {names}",
        headline=report_text.verdict_sentences(results) if decided else [],
        blocks=[*sections, Section(lines=counts_and_gaps(results))],
        notes=[*report_text.conventions_lines(results), *versions],
    )


def counts_and_gaps(results: Results) -> list[str]:
    """Return what happened to the queries, what is unjudged and what could not be measured.

    Unjudged items come with how far they could move the first measure.
    """
    lines = report_text.counts_lines(results)
    for system in results["systems"]:
        unjudged, unscored = system.get("unjudged", 0), system.get("unjudged_apart", 0)
        if not unjudged and not unscored:
            continue
        more = f" ({unscored:,} more in queries that are not scored)" if unscored else ""
        items = plural(unjudged, "unjudged item counts", "unjudged items count")
        line = f"{label(system['name'])}: {items} as not relevant{more}"
        ranges = {name: open_range(cell) for name, cell in system["measures"].items()}
        measure, ends = next(((m, e) for m, e in ranges.items() if e), ("", None))
        if unjudged and ends:
            low, high = map(figure, ends)
            line += f"; judging them could put {measure} anywhere from {low} to {high}"
        lines.append(line)
    left_out = results.get("bounds_left_out")
    lines += [] if left_out is None else [left_out]
    return [*lines, *report_text.lacks_lines(results)]


def bounds_table(results: Results) -> Grid:
    """Return a row per measure and system, of a report with labels."""
    corrected = any("corrected" in cell for cell in _cells(results))
    extra = ["corrected"] if corrected else []
    grid = [["measure", "system", "gold", "gold + judge", *extra, "unjudged"]]
    for system in results["systems"]:
        for name, cell in system.get("bounds", {}).items():
            row = [name, label(system["name"])]
            row += [measured(cell[side]) for side in ("gold", "gold_and_judge")]
            if corrected:
                known = cell.get("corrected")
                row.append(measured({"mean": known["value"], "ci": known["ci"]}) if known else "")
            share = cell["unjudged"]
            grid.append([*row, NOTHING if share is None else percent(share)])
    return grid


def bounds_lines(results: Results) -> list[str]:
    """Return how many labels there are, what they are used for, and what they change."""
    labels = results["judged"]
    parts = [f"{plural(labels['added'], 'label')} of a judge added to the gold"]
    parts += [f"{labels[key]:,} {about}" for key, about in _LEFT_OUT.items() if labels.get(key)]
    lines = [
        " · ".join(parts),
        "labels count for P and nDCG only; nDCG may fall, since more gold improves the ideal list",
    ]
    if any(cell["unjudged"] for cell in _cells(results)):
        lines.append("gold + judge covers only judged items: an unjudged hit is not relevant here")
    return [*lines, *_corrected_lines(results), *map(_reversal_line, labels["reversed"])]


def range_table(results: Results) -> Grid:
    """Return a row per measure and system that unjudged items can change; else no rows."""
    grid = [["measure", "system", "now", "lowest", "highest"]]
    names = dict.fromkeys(name for system in results["systems"] for name in system["measures"])
    for name in names:
        for system in results["systems"]:
            if ends := open_range(system["measures"].get(name, {})):
                mean = figure(system["measures"][name]["mean"])
                grid.append([name, label(system["name"]), mean, *map(figure, ends)])
    return grid if len(grid) > 1 else []


def inexact_lines(results: Results) -> list[str]:
    """Return which measures have ranges that are wider than the true ones."""
    names = {
        name: None
        for system in results["systems"]
        for name, cell in system["measures"].items()
        if not cell.get("bounds", {"exact": True})["exact"]
    }
    return [f"{', '.join(names)}: the true range may be narrower"] if names else []


def open_range(cell: Results) -> list[float] | None:
    """Return the range that unjudged items leave to a measure, if they can change it."""
    ends = cell.get("bounds")
    if not ends or ends["low"] is None or ends["low"] == ends["high"]:
        return None
    return [ends["low"], ends["high"]]


def _cells(results: Results) -> list[Results]:
    return [cell for system in results["systems"] for cell in system.get("bounds", {}).values()]


def _corrected_lines(results: Results) -> Iterator[str]:
    """Yield what the corrected precision is based on, and the corrected differences."""
    corrected = [cell["corrected"] for cell in _cells(results) if "corrected" in cell]
    reasons = {cell["because"] for cell in corrected if cell["because"] is not None}
    yield from (f"no corrected precision: {reason}" for reason in sorted(reasons))
    first = next((cell for cell in corrected if cell["because"] is None), None)
    if first is not None:
        rates = ", ".join(
            f"{name} {figure(first[name])}" for name in ("sensitivity", "specificity")
        )
        people = f"{plural(first['labels']['all'], 'pair')} that people judged too"
        yield f"corrected for the judge's errors ({rates} on {people}): {first['only']}"
    for row in results.get("comparisons", []):
        difference = row.get("corrected")
        if difference is not None and difference["value"] is not None:
            delta = f"{change(difference['value'])} {interval(difference['ci'])}".rstrip()
            yield f"{pair_name(row)}: corrected {row['measure']} {delta}"


def _reversal_line(reversal: Results) -> str:
    rises, falls = ("rises", "falls") if reversal["gold"] > 0 else ("falls", "rises")
    gold, judged = (figure(abs(reversal[side])) for side in ("gold", "gold_and_judge"))
    measure = f"{reversal['measure']} {rises} by {gold} on gold"
    return f"{pair_name(reversal)}: {measure}, but {falls} by {judged} with the labels"
