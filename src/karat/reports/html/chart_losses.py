"""The loss waterfalls as charts of a page: from a measure's ceiling down to its value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from karat.reports.failures import PARTS
from karat.reports.figures import NOTHING, figure, label, several
from karat.reports.grids import Grid
from karat.reports.html.chart_parts import (
    BAD,
    GOOD,
    MUTED,
    VALUE,
    Chart,
    Document,
    Spec,
    even_ticks,
    listed,
    shown,
    tooltip,
)
from karat.reports.html.signs import changed, spread

_STEP = 26
# Room for the figure beside the longest bar, as a share of it.
_ROOM = 1.3
# Less than this is the rounding of sums.
_NOTHING = 1e-9

Row = Mapping[str, Any]


def loss_charts(document: Document) -> Iterator[Chart]:
    """A waterfall for each system and measure; one without a value has nothing to show."""
    systems = document["systems"]
    for at, system in enumerate(systems):
        whose = f"{shown(system['name'])}: " if len(systems) > 1 else ""
        for number, fall in enumerate(system.get("waterfalls", [])):
            if fall["value"] is None or fall["ceiling"] is None:
                continue
            rows = list(_rows(fall))
            yield Chart(
                id=f"loss-{at}-{number}",
                section="losses",
                title=f"{whose}{label(fall['measure'])}",
                about=_about(fall),
                spec=_spec(rows),
                table=_table(fall),
            )


def _about(fall: Document) -> str:
    ceiling, value = fall["ceiling"], fall["value"]
    ends = f"its ceiling {figure(ceiling)} and its value {figure(value)}"
    known = [one for one in _known(fall) if abs(one["lost"]) > _NOTHING]
    lost = sorted((one for one in known if one["lost"] > 0), key=lambda one: -one["lost"])
    won = [one for one in known if one["lost"] < 0]
    if lost:
        most = f"{label(lost[0]['part'])} loses the most, {figure(lost[0]['lost'])}"
        told = f"Between {ends}, {most}"
    else:
        told = f"No part is seen to lose anything between {ends}"
    if won:
        back = [f"{label(one['part'])} wins {figure(-one['lost'])} back" for one in won]
        told += f"; {listed(back)}"
    if fall["unknown"]:
        told += f"; what {listed([label(part) for part in fall['unknown']])} lost could not be told"
    if fall.get("ends_at"):
        told += f"; the lists end at rank {fall['ends_at']}, and nothing below was measured"
    return f"{told}."


def _known(fall: Document) -> list[Document]:
    parts = fall["parts"]
    return [one for one in parts if one["part"] not in fall["unknown"] and one["lost"] is not None]


def _rows(fall: Document) -> Iterator[dict[str, Any]]:
    """Where each bar begins and ends; ``level`` is where the next one goes on."""
    level = fall["ceiling"]
    of = f"{several(fall['n'], 'query', 'queries')}"
    yield _row("ceiling", (0.0, level), level, figure(level), MUTED, f"the best over {of}")
    known = [one["part"] for one in _known(fall)]
    for part in fall["parts"]:
        name, lost = part["part"], part["lost"] or 0.0
        below = level - lost
        ends = (min(level, below), max(level, below))
        told = changed(_changed(lost)) if name in known else "?"
        why = fall["unknown"].get(name) or PARTS.get(name, "")
        yield _row(label(name), ends, below, told, GOOD if lost < 0 else BAD, label(why))
        level = below
    value = fall["value"]
    yield _row("value", (0.0, value), value, figure(value), VALUE, f"the mean of {of}")


def _row(
    part: str, ends: tuple[float, float], level: float, name: str, colour: str, why: str
) -> dict[str, Any]:
    told = f"{part} {name}" + (f": {why}" if why else "")
    bar = {"part": part, "low": ends[0], "high": ends[1], "level": level}
    return bar | {"name": name, "colour": colour, "told": told}


def _changed(lost: float) -> float:
    """What a part changes; what only rounding makes of it is nothing."""
    return -lost if round(lost, 4) else 0.0


def _spec(rows: Sequence[Row]) -> Spec:
    order = [row["part"] for row in rows]
    axis = {"title": None, "domain": False, "ticks": False, "labelPadding": 6, "labelLimit": 110}
    y = {"field": "part", "type": "nominal", "sort": order, "axis": axis}
    top = _ROOM * max(row["high"] for row in rows) or 1.0
    low = min(0.0, *(row["low"] for row in rows))
    scale = {"domain": [low, top], "nice": False}
    values = even_ticks(max(row["high"] for row in rows))
    ticks = {"title": None, "values": values, "format": "~g", "labelOverlap": "greedy"}
    x = {"type": "quantitative", "scale": scale, "axis": ticks}
    joins = [
        {"part": upper["part"], "next": lower["part"], "level": upper["level"]}
        for upper, lower in pairwise(rows)
    ]
    return {
        "height": _STEP * len(rows),
        "data": {"values": list(rows)},
        "layer": [_joins(joins, x, y), _bars(x, y), _figures(x, y)],
    }


def _joins(joins: Sequence[Row], x: Spec, y: Spec) -> Spec:
    """Thin lines from the end of each bar to the beginning of the next."""
    return {
        "data": {"values": list(joins)},
        "mark": {"type": "rule", "color": MUTED, "opacity": 0.6},
        "encoding": {"x": x | {"field": "level"}, "y": y, "y2": {"field": "next"}},
    }


def _bars(x: Spec, y: Spec) -> Spec:
    return {
        "mark": {"type": "bar", "size": 16},
        "encoding": {
            "x": x | {"field": "low"},
            "x2": {"field": "high"},
            "y": y,
            "color": {"field": "colour", "type": "nominal", "scale": None},
            "tooltip": tooltip(),
        },
    }


def _figures(x: Spec, y: Spec) -> Spec:
    return {
        "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 5},
        "encoding": {"x": x | {"field": "high"}, "y": y, "text": {"field": "name"}},
    }


def _table(fall: Document) -> Grid:
    """A row for each part; below 0 what it loses, above what it wins back."""
    n = f"{fall['n']:,}"
    grid: Grid = [["part", label(fall["measure"]), "interval", "queries", "what"]]
    grid.append(["ceiling", figure(fall["ceiling"]), "", n, ""])
    known = [one["part"] for one in _known(fall)]
    for part in fall["parts"]:
        name = part["part"]
        if name in known:
            ends = None if part["ci"] is None else [-part["ci"][1] + 0.0, -part["ci"][0] + 0.0]
            cells = [changed(_changed(part["lost"])), spread(ends), f"{part['queries']:,}"]
            grid.append([label(name), *cells, PARTS.get(name, "")])
        else:
            grid.append([label(name), NOTHING, "", "", label(fall["unknown"].get(name, "unknown"))])
    grid.append(["value", figure(fall["value"]), "", n, ""])
    return grid
