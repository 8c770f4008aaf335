"""The loss waterfalls as charts of a page: from a measure's ceiling down to its value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from karat.analysis.failures.page import PARTS
from karat.pages.formatting import NOTHING, figure, label, plural
from karat.pages.page import Grid
from karat.report.html.charts import (
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
from karat.report.html.names import signed_change, signed_interval

_STEP = 26
# Room for the figure beside the longest bar, as a share of it.
_ROOM = 1.3
# Less than this is the rounding of sums.
_NOTHING = 1e-9

Row = Mapping[str, Any]


def loss_charts(document: Document) -> Iterator[Chart]:
    """Yield a waterfall for each system and measure that has a value."""
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
        sentence = f"Between {ends}, {most}"
    else:
        sentence = f"No part loses anything between {ends}"
    if won:
        back = [f"{label(one['part'])} wins {figure(-one['lost'])} back" for one in won]
        sentence += f"; {listed(back)}"
    if fall["unknown"]:
        sentence += f"; the loss of {listed([label(part) for part in fall['unknown']])} is unknown"
    if fall.get("ends_at"):
        sentence += f"; the lists end at rank {fall['ends_at']}; nothing below it was measured"
    return f"{sentence}."


def _known(fall: Document) -> list[Document]:
    parts = fall["parts"]
    return [
        part for part in parts if part["part"] not in fall["unknown"] and part["lost"] is not None
    ]


def _rows(fall: Document) -> Iterator[dict[str, Any]]:
    """Yield where each bar begins and ends; ``level`` is where the next one continues."""
    level = fall["ceiling"]
    queries = f"{plural(fall['n'], 'query', 'queries')}"
    yield _row("ceiling", (0.0, level), level, figure(level), MUTED, f"the best over {queries}")
    known = [known_part["part"] for known_part in _known(fall)]
    for part in fall["parts"]:
        name, lost = part["part"], part["lost"] or 0.0
        below = level - lost
        ends = (min(level, below), max(level, below))
        change_text = signed_change(_changed(lost)) if name in known else "?"
        why = fall["unknown"].get(name) or PARTS.get(name, "")
        yield _row(label(name), ends, below, change_text, GOOD if lost < 0 else BAD, label(why))
        level = below
    value = fall["value"]
    yield _row("value", (0.0, value), value, figure(value), VALUE, f"the mean of {queries}")


def _row(
    part: str, ends: tuple[float, float], level: float, name: str, colour: str, why: str
) -> dict[str, Any]:
    text = f"{part} {name}" + (f": {why}" if why else "")
    bar = {"part": part, "low": ends[0], "high": ends[1], "level": level}
    return bar | {"name": name, "colour": colour, "told": text}


def _changed(lost: float) -> float:
    """Return what a part changes; rounding errors count as nothing."""
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
    """Return thin lines from the end of each bar to the beginning of the next."""
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
    """Return a row for each part: negative if it loses, positive if it gains."""
    n = f"{fall['n']:,}"
    grid: Grid = [["part", label(fall["measure"]), "interval", "queries", "what"]]
    grid.append(["ceiling", figure(fall["ceiling"]), "", n, ""])
    known = [known_part["part"] for known_part in _known(fall)]
    for part in fall["parts"]:
        name = part["part"]
        if name in known:
            ends = None if part["ci"] is None else [-part["ci"][1] + 0.0, -part["ci"][0] + 0.0]
            cells = [
                signed_change(_changed(part["lost"])),
                signed_interval(ends),
                f"{part['queries']:,}",
            ]
            grid.append([label(name), *cells, PARTS.get(name, "")])
        else:
            grid.append([label(name), NOTHING, "", "", label(fall["unknown"].get(name, "unknown"))])
    grid.append(["value", figure(fall["value"]), "", n, ""])
    return grid
