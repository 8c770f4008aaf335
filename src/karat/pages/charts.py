"""Charts as Vega-Lite specifications, and their drawing as PNG and SVG without a network.

Drawing needs the extra ``charts``; the specifications are plain data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from karat.errors import missing_extra
from karat.pages.formatting import label
from karat.pages.page import Page
from karat.process_limits import check_limits_of_charts

Spec = dict[str, Any]
Document = Mapping[str, Any]

# Okabe and Ito's colours, safe for colour-blind readers; without yellow, which fades on paper.
# Shapes repeat the distinction.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")
GOOD, BAD, PLAIN = COLOURS[2], COLOURS[1], "#999999"
WIDTH, HEIGHT, LOW_HEIGHT = 340, 220, 150

_VERSION = "5.20"
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
    check_limits_of_charts()


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
    """Return a waterfall from the ceiling down to the value: what each part costs.

    Takes the document of a waterfall; its ``system``, if any, goes into the title.
    """
    measure = label(document["measure"])
    bars = list(_bars(document))
    order = [bar["part"] for bar in bars]
    x = {"field": "part", "type": "nominal", "sort": order}
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "size": 32},
            "encoding": {
                "x": x | {"axis": {"title": None, "labelAngle": -30, "labelLimit": 160}},
                "y": {"field": "low", "type": "quantitative", "title": measure},
                "y2": {"field": "high"},
                "color": {"field": "colour", "type": "nominal", "scale": None},
            },
        },
        {
            "mark": {"type": "text", "dy": -6, "fontSize": 11, "baseline": "bottom"},
            "encoding": {
                "x": x,
                "y": {"field": "high", "type": "quantitative"},
                "text": {"field": "text"},
            },
        },
    ]
    width = 60 * len(bars)
    whose = f"{label(document['system'])}, " if "system" in document else ""
    title = f"{whose}{measure}: from the ceiling to what is measured"
    panel = {"title": title, "width": width, "height": HEIGHT, "layer": layers}
    return chart_spec(panel | {"data": {"values": bars}})


def _bars(document: Document) -> Iterator[dict[str, Any]]:
    """Yield the ceiling, each part below the one before it, and the value."""
    level = document["ceiling"]
    yield _bar("ceiling", 0.0, level, f"{level:.3f}", PLAIN)
    for part in document["parts"]:
        lost = part["lost"] or 0.0
        below = level - lost
        text = "?" if part["part"] in document["unknown"] else f"{-lost + 0.0:+.3f}"
        colour = BAD if lost >= 0 else GOOD
        yield _bar(label(part["part"]), min(level, below), max(level, below), text, colour)
        level = below
    value = document["value"]
    yield _bar("value", 0.0, value, f"{value:.3f}", COLOURS[0])


def _bar(part: str, low: float, high: float, text: str, colour: str) -> dict[str, Any]:
    return {"part": part, "low": low, "high": high, "text": text, "colour": colour}


def pareto_chart(document: Document) -> Spec:
    """Return quality over latency; a line joins the systems that no other beats in both.

    Takes the document of ``Pareto``.
    """
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
    """Return cut-offs along the bottom, on a log scale unless they have even steps.

    ``others`` are further places that the axis has to hold.
    """
    low, high = min([*places, *others]), max([*places, *others])
    even = len({right - left for left, right in pairwise(places)}) <= 1
    scale = {"type": "log" if high >= 10 * low and not even else "linear", "nice": False}
    # A single cut-off stands in the middle.
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
