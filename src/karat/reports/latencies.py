"""Latencies, costs and quality against latency as the sections of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from karat.reports.figures import NOTHING, PART, label, measured, percent, several
from karat.reports.grids import Grid
from karat.reports.pages import Section

_SHOWN = ("mean", "p50", "p90", "p95", "p99")
# What a segment shows of its total; the document has the rest.
_OF_SEGMENTS = ("p50", "p90")


def latency_sections(latency: Mapping[str, Any]) -> list[Section]:
    """The document of ``Latencies``: stages, segments, the slowest queries, cost."""
    sections = [Section("Latency in ms", _stage_grid(latency["stages"]), _notes(latency))]
    for by, segments in latency["segments"].items():
        sections.append(Section(f"Total latency in ms by {label(by)}", _segments(by, segments)))
    if latency["slowest"]:
        sections.append(Section("The slowest queries", _slowest_grid(latency["slowest"])))
    if latency["cost"]:
        sections.append(Section("Cost", _cost_grid(latency["cost"])))
        for by, segments in latency["segments"].items():
            sections.append(Section(f"Mean cost by {label(by)}", _costs_by(by, segments)))
    return sections


def pareto_sections(pareto: Mapping[str, Any]) -> list[Section]:
    """The document of ``Pareto``: every system with what beats it, the fastest first."""
    grid: Grid = [["system", pareto["measure"], f"{pareto['latency']} ms", "verdict"]]
    for place in pareto["systems"]:
        quality = {"mean": place["quality"]["value"], "ci": place["quality"]["ci"]}
        beaten = ", ".join(label(name) for name in place["beaten_by"])
        verdict = f"beaten by {beaten}" if beaten else "front"
        cells = [measured(quality), _figure(place["latency"]), verdict]
        grid.append([label(place["system"]), *cells])
    lacking = [f"{label(name)}: {why}" for name, why in pareto["unplaced"].items()]
    shown = grid if pareto["systems"] else None
    return [Section(f"{pareto['measure']} against {pareto['latency']}", shown, lacking)]


def _stage_grid(stages: Mapping[str, Any]) -> Grid:
    grid = [["stage", "n", *_SHOWN, "share"]]
    for name, own in stages.items():
        share = percent(own["share"]) if "share" in own else ""
        cells = [_figure(own[figure]) for figure in _SHOWN]
        grid.append([label(name), f"{own['n']:,}", *cells, share])
    return grid


def _segments(by: str, segments: Mapping[str, Any]) -> Grid:
    grid = [[label(by), "n", *_OF_SEGMENTS]]
    for value, own in segments.items():
        cells = [_figure(own["stages"]["total"][figure]) for figure in _OF_SEGMENTS]
        grid.append([label(value), _n(own), *cells])
    return grid


def _costs_by(by: str, segments: Mapping[str, Any]) -> Grid:
    names = list(next(iter(segments.values()), {"cost": {}})["cost"])
    grid = [[label(by), "n", *map(label, names)]]
    for value, own in segments.items():
        cells = [_figure(own["cost"][name]["mean"]) for name in names]
        grid.append([label(value), _n(own), *cells])
    return grid


def _n(segment: Mapping[str, Any]) -> str:
    return f"{segment['n']:,}" + (" small" if segment["small"] else "")


def _slowest_grid(slowest: Sequence[Mapping[str, Any]]) -> Grid:
    stages = list(dict.fromkeys(name for slow in slowest for name in slow["stages"]))
    texts = any(slow["text"] for slow in slowest)
    grid = [["query", "total", *map(label, stages), *(["text"] if texts else [])]]
    for slow in slowest:
        times = [ms(slow["total"]), *(ms(slow["stages"].get(name)) for name in stages)]
        text = [label(slow["text"] or "")] if texts else []
        grid.append([label(slow["query_id"]), *times, *text])
    return grid


def _cost_grid(cost: Mapping[str, Any]) -> Grid:
    grid = [["what", "n", "mean", "sum"]]
    for name, own in cost.items():
        cells = [_figure(own["mean"]), _figure(own["sum"])]
        grid.append([label(name), f"{own['n']:,}", *cells])
    return grid


def _notes(latency: Mapping[str, Any]) -> list[str]:
    notes = []
    failed = latency["failed"]
    if failed["calls"]:
        told = f"{several(failed['calls'], 'call')} failed and {_are(failed['calls'])} not in these"
        if failed["timed"]:
            told += f"; the median of those timed is {ms(failed['p50'])} ms"
            told += f", the longest {ms(failed['longest'])} ms"
        notes.append(told + ".")
    if latency["index_bytes"] is not None:
        notes.append(f"The index takes {latency['index_bytes']:,} bytes.")
    if latency["embedding_updates"] is not None:
        updates = several(latency["embedding_updates"], "embedding was", "embeddings were")
        notes.append(f"{updates} made for it.")
    return notes


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _figure(cell: Mapping[str, Any]) -> str:
    ends = "" if cell["ci"] is None else f"[{', '.join(map(ms, cell['ci']))}]"
    return f"{ms(cell['value'])}{PART}{ends}"


def ms(value: float | None) -> str:
    """Milliseconds, or another amount: three digits, and all of a larger number.

    >>> ms(35.0), ms(0.05231), ms(1234.5), ms(None)
    ('35.0', '0.0523', '1,234', '-')
    """
    if value is None:
        return NOTHING
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    decimals = 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.1 or not size else 4
    return f"{value:.{decimals}f}"
