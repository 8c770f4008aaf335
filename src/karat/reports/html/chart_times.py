"""Latency by stage as a chart of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from karat.reports.figures import label, percent
from karat.reports.grids import Grid
from karat.reports.html.chart_parts import (
    NAMED,
    Chart,
    Document,
    Spec,
    amounts,
    keys_of,
    marked,
    shown,
    tooltip,
)
from karat.reports.latencies import ms

TOTAL = "total"
# The figures that a stage is drawn by, and those that its table has besides.
_DRAWN = ("p50", "p95")
_SHOWN = ("mean", "p50", "p90", "p95", "p99")
# The height of a line, and of a stage at least.
_STEP, _LEAST = 15, 34

Row = Mapping[str, Any]


def latency_charts(document: Document) -> Iterator[Chart]:
    """One chart of all stages of all systems: from the median to the 95th percentile."""
    rows = [row for at, one in enumerate(document["systems"]) for row in _stages(at, one)]
    if not rows:
        return
    names = {row["at"]: row["system"] for row in rows}
    yield Chart(
        id="latency",
        section="latency",
        title="From the median (p50) to p95 of each stage, in ms",
        about=_about(rows),
        spec=_spec(rows),
        table=_table(document),
        keys=keys_of(names),
    )


def _stages(at: int, system: Document) -> Iterator[dict[str, Any]]:
    """The stages of a system that have a median; not all have enough calls for a p95."""
    for stage, own in system.get("latency", {"stages": {}})["stages"].items():
        middle, high = (own[name]["value"] for name in _DRAWN)
        if middle is None:
            continue
        name = label(system["name"])
        told = f"{name}, {label(stage)}: p50 {ms(middle)} ms"
        told += ("" if high is None else f", p95 {ms(high)} ms") + f", n = {own['n']:,}"
        row = {"at": at, "system": name, "stage": label(stage), "p50": middle, "p95": high}
        yield row | {"share": own.get("share"), "told": told}


def _about(rows: Sequence[Row]) -> str:
    """The whole call where it was timed, else whatever was."""
    stage = TOTAL if any(row["stage"] == TOTAL for row in rows) else rows[0]["stage"]
    whole = sorted((row for row in rows if row["stage"] == stage), key=lambda row: row["p50"])
    what = "a call" if stage == TOTAL else stage
    if len(whole) > NAMED:
        fast, slow = whole[0], whole[-1]
        ends = f"{ms(fast['p50'])} ms with {shown(fast['system'])}, the fastest of {len(whole)}"
        ends += f" systems, to {ms(slow['p50'])} ms with {shown(slow['system'])}, the slowest"
        return f"The median of {what} goes from {ends}{_longest(rows, slow)}."
    several = len({row["at"] for row in rows}) > 1
    told = []
    for row in whole:
        whose = f" with {shown(row['system'])}" if several else ""
        times = f"{ms(row['p50'])} ms at the median"
        times += "" if row["p95"] is None else f" and {ms(row['p95'])} ms at p95"
        told.append(f"{times}{whose}{_longest(rows, row)}")
    return f"{what[0].upper()}{what[1:]} takes {'; '.join(told)}."


def _longest(rows: Sequence[Row], whole: Row) -> str:
    """Where most of the time of a system goes, if its stages say."""
    parts = [row for row in rows if row["at"] == whole["at"] and row["share"] is not None]
    if not parts or whole["stage"] != TOTAL:
        return ""
    most = max(parts, key=lambda row: row["share"])
    return f", {percent(most['share'])} of it in {shown(most['stage'])}"


def _spec(rows: Sequence[Row]) -> Spec:
    stages = _ordered([row["stage"] for row in rows])
    places = sorted({row["at"] for row in rows})
    axis = {"title": None, "domain": False, "ticks": False, "labelPadding": 6, "labelLimit": 110}
    y = {"field": "stage", "type": "nominal", "sort": stages, "axis": axis}
    y |= {"scale": {"paddingInner": 0.25, "paddingOuter": 0.15}}
    # Within a stage the systems stand in the order of the report.
    offset = {"field": "at", "type": "nominal", "sort": places, "scale": {"domain": places}}
    times = [row[name] for row in rows for name in _DRAWN if row[name] is not None]
    x = amounts("p50", times, "ms")
    here = {"y": y, "yOffset": offset}
    colour = marked(places)
    tick = {"type": "tick", "thickness": 2, "size": 11, "opacity": 1}
    point = {"type": "point", "filled": True, "size": 64, "opacity": 1}
    timed = [{"filter": "isValid(datum.p95)"}]
    shape = marked(places, shaped=True)
    return {
        "height": len(stages) * max(_STEP * len(places), _LEAST),
        "data": {"values": list(rows)},
        "layer": [
            {
                "transform": timed,
                "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.45},
                "encoding": {"x": x, "x2": {"field": "p95"}, **here, **colour},
            },
            {
                "transform": timed,
                "mark": tick,
                "encoding": {"x": x | {"field": "p95"}, **here, **colour, "tooltip": tooltip()},
            },
            {"mark": point, "encoding": {"x": x, **here, **shape, "tooltip": tooltip()}},
        ],
    }


def _ordered(stages: Sequence[str]) -> list[str]:
    """As the logs have them, the whole call last."""
    return sorted(dict.fromkeys(stages), key=lambda stage: stage == TOTAL)


def _table(document: Document) -> Grid:
    grid: Grid = [["stage", "system", "n", *_SHOWN]]
    timed = [one for one in document["systems"] if "latency" in one]
    for stage in _ordered([stage for one in timed for stage in one["latency"]["stages"]]):
        for system in timed:
            if own := system["latency"]["stages"].get(stage):
                cells = [ms(own[name]["value"]) for name in _SHOWN]
                grid.append([label(stage), label(system["name"]), f"{own['n']:,}", *cells])
    return grid
