"""Charts as Vega-Lite specifications, and their drawing as PNG and SVG without a network.

Drawing needs the extra ``charts``; the specifications are plain data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from karat.errors import missing_extra
from karat.pages.formatting import change, figure, label
from karat.pages.page import Page
from karat.process_limits import check_limits

Spec = dict[str, Any]
Document = Mapping[str, Any]

# Okabe and Ito's colours, safe for colour-blind readers; without yellow, which fades on paper.
# Shapes repeat the distinction.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")
GOOD, BAD, PLAIN = COLOURS[2], COLOURS[1], "#999999"
WIDTH, HEIGHT, LOW_HEIGHT = 340, 220, 150

# An axis of words, such as parts or stages.
WORD_AXIS: Spec = {"title": None, "domain": False, "ticks": False, "labelPadding": 6}
WORD_AXIS |= {"labelLimit": 110}

_VERSION = "5.20"
# The height of a bar of a waterfall, and the room for the figure beside the longest one.
_STEP, _ROOM = 26, 1.3
_STEPS = 5
# The bands of more lines than these would hide each other.
_FEW_BANDS = 3
# Keys of a whole chart, which a panel of one does not have.
_OUTER = ("$schema", "config", "padding")
_CONFIG: Spec = {
    "background": "white",
    "font": "sans-serif",
    "axis": {"labelFontSize": 11, "titleFontSize": 12, "gridColor": "#E8E8E8", "titlePadding": 8},
    "legend": {"labelFontSize": 11, "titleFontSize": 11, "symbolStrokeWidth": 2, "labelLimit": 220},
    "title": {"fontSize": 13, "anchor": "start", "offset": 8, "subtitleFontSize": 11},
    "view": {"stroke": "#BBBBBB"},
}


def check_charts() -> None:
    """Raise MissingExtraError if charts cannot be drawn here."""
    if find_spec("vl_convert") is None:
        raise missing_extra("a chart", "vl-convert-python", "charts")
    check_limits(charts=True)


def png(spec: Spec) -> bytes:
    """Return the chart as a PNG, at twice the size for sharp print."""
    check_charts()
    import vl_convert

    picture: bytes = vl_convert.vegalite_to_png(
        spec, vl_version=_VERSION, scale=2, allowed_base_urls=[]
    )
    return picture


def svg(spec: Spec) -> bytes:
    """Return the chart as an SVG; the same specification gives the same bytes."""
    check_charts()
    import vl_convert

    drawing: str = vl_convert.vegalite_to_svg(spec, vl_version=_VERSION, allowed_base_urls=[])
    return drawing.encode()


def waterfall_chart(document: Document) -> Spec:
    """Return the waterfall of its document: from the ceiling down to the value, part by part."""
    whose = f"{label(document['system'])}, " if "system" in document else ""
    title = f"{whose}{label(document['measure'])}: from the ceiling to what is measured"
    return chart_spec({"title": title, "width": WIDTH, **waterfall_panel(waterfall_rows(document))})


def waterfall_rows(
    document: Document, colours: Sequence[str] = (PLAIN, GOOD, BAD, COLOURS[0])
) -> list[dict[str, Any]]:
    """Return a row per bar: the ceiling, each part below the one before it, and the value.

    ``level`` is where the next bar begins. ``colours`` are those of the ceiling, of gains, of
    losses and of the value.
    """
    best, gain, loss, mean = colours
    level, value = document["ceiling"], document["value"]
    rows = [_bar("ceiling", (0.0, level), level, figure(level), best)]
    for part in document["parts"]:
        lost = part["lost"] or 0.0
        is_measured = part["part"] not in document["unknown"] and part["lost"] is not None
        # Rounding errors count as nothing.
        text = change(-lost if round(lost, 4) else 0.0) if is_measured else "?"
        ends, level = (level, level - lost), level - lost
        rows.append(_bar(label(part["part"]), ends, level, text, gain if lost < 0 else loss))
    return [*rows, _bar("value", (0.0, value), value, figure(value), mean)]


def _bar(
    part: str, ends: tuple[float, float], level: float, name: str, colour: str
) -> dict[str, Any]:
    bar = {"part": part, "low": min(ends), "high": max(ends), "level": level}
    return bar | {"name": name, "colour": colour}


def waterfall_panel(rows: Sequence[Document], **encoding: Spec) -> Spec:
    """Return bars with their figures, joined by thin lines; ``encoding`` goes to the bars too."""
    y: Spec = {"field": "part", "type": "nominal", "sort": [row["part"] for row in rows]}
    y |= {"axis": WORD_AXIS}
    highest = max(row["high"] for row in rows)
    low = min(0.0, *(row["low"] for row in rows))
    scale = {"domain": [low, _ROOM * highest or 1.0], "nice": False}
    ticks = {"title": None, "values": even_ticks(highest), "format": "~g"}
    x = {"type": "quantitative", "scale": scale, "axis": ticks | {"labelOverlap": "greedy"}}
    joins = [
        {"part": upper["part"], "next": lower["part"], "level": upper["level"]}
        for upper, lower in pairwise(rows)
    ]
    colour = {"field": "colour", "type": "nominal", "scale": None}
    bars = {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour}
    names = {"x": x | {"field": "high"}, "y": y, "text": {"field": "name"}}
    layers = [
        {
            "mark": {"type": "rule", "color": rows[0]["colour"], "opacity": 0.6},
            "encoding": {"x": x | {"field": "level"}, "y": y, "y2": {"field": "next"}},
            "data": {"values": joins},
        },
        {"mark": {"type": "bar", "size": 16}, "encoding": bars | encoding},
        {
            "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 5},
            "encoding": names,
        },
    ]
    return {"height": _STEP * len(rows), "data": {"values": list(rows)}, "layer": layers}


def even_ticks(high: float) -> list[float]:
    """Return at most five even steps from 0 up to the highest value.

    >>> even_ticks(1.0), even_ticks(0.37), even_ticks(0.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 0.1, 0.2, 0.3], [0.0])
    """
    if high <= 0:
        return [0.0]
    power = math.floor(math.log10(high))
    sizes = [float(f"{step}e{power - 1}") for step in (1, 2, 5, 10, 20, 50)]
    step = next(size for size in sizes if high / size <= _STEPS + 1e-9)
    return [round(at * step, 12) for at in range(math.floor(high / step + 1e-9) + 1)]


def pareto_chart(document: Document) -> Spec:
    """Return quality over latency for a ``Pareto`` document; a line joins the unbeaten systems."""
    points = [
        {
            "system": label(system["system"]),
            "latency": system["latency"]["value"],
            "quality": system["quality"]["value"],
            "front": system["system"] in document["front"],
        }
        for system in document["systems"]
    ]
    x: Spec = {"field": "latency", "type": "quantitative"}
    x |= {"title": f"{label(document['latency'])} (ms)", "scale": {"padding": 12}}
    y: Spec = {"field": "quality", "type": "quantitative", "scale": {"zero": False, "padding": 12}}
    y |= {"title": label(document["measure"])}
    who = {"field": "system", "type": "nominal", "title": None}
    marked = marks_of([point["system"] for point in points])
    layers: list[Spec] = [
        {
            "transform": [{"filter": "datum.front"}],
            "mark": {"type": "line", "interpolate": "step-after", "color": PLAIN},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
            "encoding": {channel: who | {"scale": scale} for channel, scale in marked.items()},
        },
    ]
    title = {
        "text": "Quality against latency",
        "subtitle": "on the line: no system is better in both",
    }
    panel = {"title": title, "width": WIDTH, "height": HEIGHT, "encoding": {"x": x, "y": y}}
    return chart_spec(panel | {"data": {"values": points}, "layer": layers})


def k_axis(places: Sequence[int], others: Sequence[int] = (), *, title: str) -> Spec:
    """Return an axis that holds cut-offs and ``others``, on a log scale unless steps are even."""
    low, high = min([*places, *others]), max([*places, *others])
    even = len({right - left for left, right in pairwise(places)}) <= 1
    scale = {"type": "log" if high >= 10 * low and not even else "linear", "nice": False}
    # A single cut-off is in the middle.
    ends = [low, high] if low < high else [low / 2, 1.5 * high]
    return {
        "type": "quantitative",
        "title": title,
        "scale": scale | {"domain": ends, "padding": 10},
        "axis": {
            "values": sorted({*places, *others}),
            "format": ",d",
            "labelOverlap": "greedy",
            "labelSeparation": 4,
        },
    }


def line_layers(
    rows: Sequence[Mapping[str, Any]],
    group: str,
    colour: Spec,
    *,
    points: Spec,
    axes: Spec | None = None,
) -> list[Spec]:
    """Return lines with their intervals: bands below lines below rings below points.

    Rows have ``mean``, ``low``, ``high`` and, where a line is to be ringed, ``knee``; ``group``
    is the column that names their line. ``colour`` encodes every layer, ``points`` the points
    besides. ``axes`` are x and y, unless the panel around the layers has them.
    """
    axes = axes or {}
    lines = len({row[group] for row in rows})
    band: Spec = {"type": "area", "opacity": 0.15 if lines <= _FEW_BANDS else 0.06}
    if lines == len(rows):
        band = {"type": "rule", "strokeWidth": 2, "opacity": 0.5}
    low = axes.get("y", {"type": "quantitative"}) | {"field": "low"}
    ring = {"type": "point", "size": 250, "shape": "circle", "strokeWidth": 2, "opacity": 1}
    point = {"type": "point", "filled": True, "size": 50, "opacity": 1}
    return [
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": band,
            "encoding": {**axes, **colour, "y": low, "y2": {"field": "high"}},
        },
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {**axes, **colour}},
        {
            "transform": [{"filter": "datum.knee"}],
            "mark": ring,
            "encoding": {**axes, **colour},
        },
        {"mark": point, "encoding": {**axes, **colour, **points}},
    ]


def marks_of(names: Sequence[str]) -> dict[str, Spec]:
    """Return a colour and a shape for each name; a combination repeats after 49 names."""
    places = range(len(names))
    colours = [COLOURS[at % len(COLOURS)] for at in places]
    shapes = [SHAPES[(at + at // len(COLOURS)) % len(SHAPES)] for at in places]
    domain = list(names)
    return {
        "color": {"domain": domain, "range": colours},
        "shape": {"domain": domain, "range": shapes},
    }


def stacked(charts: Sequence[Spec]) -> Spec:
    """Return several charts as one, below each other."""
    panels = [{key: value for key, value in chart.items() if key not in _OUTER} for chart in charts]
    separate = dict.fromkeys(("color", "shape"), "independent")
    return chart_spec(
        {"vconcat": panels, "spacing": 30, "resolve": {"scale": separate, "legend": separate}}
    )


def page_chart(page: Page) -> Spec:
    """Return all charts of a page as one, below each other."""
    charts = [dict(chart.spec) for chart in page.charts]
    return charts[0] if len(charts) == 1 else stacked(charts)


def chart_spec(panels: Spec) -> Spec:
    """Return a whole chart made of panels, with karat's fonts and lines."""
    schema = "https://vega.github.io/schema/vega-lite/v5.json"
    return {"$schema": schema, "config": _CONFIG, "padding": 12, **panels}
