"""Charts as Vega-Lite specifications, plain data made of a document, and drawn without a network.

A specification is a dict that any Vega-Lite viewer shows; ``png`` and ``svg`` draw it with the
extra ``charts``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from karat.errors import missing_extra
from karat.process_limits import check_limits_of_charts
from karat.reports.figures import label

Spec = dict[str, Any]
Document = Mapping[str, Any]

# Okabe and Ito's colours, which people of any colour vision tell apart; without the yellow,
# which paper swallows. Shapes tell the same apart once more.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")
GOOD, BAD, PLAIN = COLOURS[2], COLOURS[1], "#999999"
WIDTH, HEIGHT, LOW_HEIGHT = 340, 220, 150

_VERSION = "5.20"
# What belongs to a whole chart, and not to a panel of one.
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
    """Refuse to draw where nothing can."""
    if find_spec("vl_convert") is None:
        raise missing_extra("a chart", "vl-convert-python", "charts")
    check_limits_of_charts()


def png(spec: Spec) -> bytes:
    """The chart as a picture, at twice the size for sharp print."""
    check_charts()
    import vl_convert

    picture: bytes = vl_convert.vegalite_to_png(
        spec, vl_version=_VERSION, scale=2, allowed_base_urls=[]
    )
    return picture


def svg(spec: Spec) -> bytes:
    """The chart as a drawing; the same specification gives the same bytes."""
    check_charts()
    import vl_convert

    drawing: str = vl_convert.vegalite_to_svg(spec, vl_version=_VERSION, allowed_base_urls=[])
    return drawing.encode()


def waterfall_chart(document: Document) -> Spec:
    """From the ceiling down to the value: what each part costs.

    Takes the document of a waterfall; ``system`` in it stands before the measure.
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
                "text": {"field": "told"},
            },
        },
    ]
    width = 60 * len(bars)
    whose = f"{label(document['system'])}, " if "system" in document else ""
    title = f"{whose}{measure}: from the ceiling to what is measured"
    panel = {"title": title, "width": width, "height": HEIGHT, "layer": layers}
    return whole(panel | {"data": {"values": bars}})


def _bars(document: Document) -> Iterator[dict[str, Any]]:
    """Where each bar begins and ends: the ceiling, each part below the one before it, the value."""
    level = document["ceiling"]
    yield _bar("ceiling", 0.0, level, f"{level:.3f}", PLAIN)
    for part in document["parts"]:
        lost = part["lost"] or 0.0
        below = level - lost
        told = "?" if part["part"] in document["unknown"] else f"{-lost + 0.0:+.3f}"
        colour = BAD if lost >= 0 else GOOD
        yield _bar(label(part["part"]), min(level, below), max(level, below), told, colour)
        level = below
    value = document["value"]
    yield _bar("value", 0.0, value, f"{value:.3f}", COLOURS[0])


def _bar(part: str, low: float, high: float, told: str, colour: str) -> dict[str, Any]:
    return {"part": part, "low": low, "high": high, "told": told, "colour": colour}


def pareto_chart(document: Document) -> Spec:
    """Quality against latency: systems that none beats in both are joined by a line.

    Takes the document of ``Pareto``.
    """
    points = [
        {
            "system": label(one["system"]),
            "latency": one["latency"]["value"],
            "quality": one["quality"]["value"],
            "front": one["system"] in document["front"],
        }
        for one in document["systems"]
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
        "subtitle": "on the line: none beats it in both",
    }
    panel = {"title": title, "width": WIDTH, "height": HEIGHT, "encoding": {"x": x, "y": y}}
    return whole(panel | {"data": {"values": points}, "layer": layers})


def marks_of(names: Sequence[str]) -> dict[str, Spec]:
    """A colour and a shape for each name; a pair comes back only after 49 names."""
    places = range(len(names))
    colours = [COLOURS[at % len(COLOURS)] for at in places]
    shapes = [SHAPES[(at + at // len(COLOURS)) % len(SHAPES)] for at in places]
    domain = list(names)
    return {
        "color": {"domain": domain, "range": colours},
        "shape": {"domain": domain, "range": shapes},
    }


def below_each_other(charts: Sequence[Spec]) -> Spec:
    """Several charts as one."""
    own = [{key: value for key, value in one.items() if key not in _OUTER} for one in charts]
    apart = dict.fromkeys(("color", "shape"), "independent")
    return whole({"vconcat": own, "spacing": 30, "resolve": {"scale": apart, "legend": apart}})


def whole(panels: Spec) -> Spec:
    """A chart of some panels, with karat's fonts and lines."""
    schema = "https://vega.github.io/schema/vega-lite/v5.json"
    return {"$schema": schema, "config": _CONFIG, "padding": 12, **panels}
