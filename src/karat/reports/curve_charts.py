"""The chart of a sweep: measures over k with their bands, and what k costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from karat.analysis.sweeps.curves import K, size_of
from karat.reports.charts import COLOURS, HEIGHT, LOW_HEIGHT, WIDTH, Spec, marks_of, whole
from karat.reports.figures import label

Document = Mapping[str, Any]
# Who a line is about -> its points, as rows that Vega-Lite takes.
Curves = Mapping[str, Document]

_RING = "ringed: flat from here on"
# The bands of more lines than these would hide each other.
_FEW = 3
# So many columns of panels stand beside each other, the next below them.
_BESIDE = 3


def sweep_chart(document: Document) -> Spec:
    """Measures over k: a panel each, a line with its band for each system; below, what k costs.

    To the right, a column of panels for each system and segment column. The point from which
    a line is flat is ringed; what lies beyond a log is not drawn.
    """
    systems = document["systems"]
    axis = _axis(document["ks"], systems)
    groups = {"all queries": {label(one["name"]): one["measures"] for one in systems}}
    for system in systems:
        whose = f", {label(system['name'])}" if len(systems) > 1 else ""
        for name, segments in system["segments"].items():
            own = {label(value): lines for value, lines in segments.items()}
            groups[f"by {label(name)}{whose}"] = own
    ends = _ends(groups.values())
    columns = [
        _column(title, curves, axis, ends, () if at else _costs(systems))
        for at, (title, curves) in enumerate(groups.items())
    ]
    beside = {"concat": columns, "columns": _BESIDE, "spacing": 40}
    return whole(beside | {"resolve": _scales("independent")})


def _scales(how: str) -> Spec:
    return {"scale": dict.fromkeys(("color", "shape"), how)}


def _ends(groups: Iterable[Mapping[str, Mapping[str, Document]]]) -> dict[str, list[float]]:
    """The lowest and highest value of each measure in any panel, so that panels can be compared."""
    found: dict[str, list[float]] = {}
    for lines in (lines for group in groups for lines in group.values()):
        for name, line in lines.items():
            measured = [point for point in line["points"] if point["mean"] is not None]
            values = [value for one in measured for value in (one["mean"], *(one["ci"] or ()))]
            low, high = found.get(name, [0.0, 0.0])
            found[name] = [min([low, *values]), max([high, *values])]
    return found


def _axis(ks: Sequence[K], systems: Sequence[Document]) -> Spec:
    """The cut-offs along the bottom, and those that logs were timed at."""
    budgets = [one["budget"] for one in systems if one["budget"] is not None]
    in_tokens = isinstance(ks[0], str)
    timed = [] if in_tokens else [one["k"] for one in budgets if one.get("k")]
    axis = k_axis([size_of(k) for k in ks], timed, title="tokens" if in_tokens else "k")
    return {"field": "place", **axis}


def k_axis(places: Sequence[int], others: Sequence[int] = (), *, title: str) -> Spec:
    """Cut-offs along the bottom, by their ratios where these and not the steps are even."""
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


def _column(
    title: str,
    curves: Mapping[str, Mapping[str, Document]],
    axis: Spec,
    ends: Mapping[str, list[float]],
    costs: Iterable[Spec],
) -> Spec:
    """One panel a measure, below each other, with one legend for all."""
    shown = _largest(curves)
    if len(shown) < len(curves):
        title += f": {len(shown)} of {len(curves)}, those of most queries"
    names = next(iter(shown.values()), {})
    panels = []
    for name in names:
        rows = _rows({who: own[name] for who, own in shown.items()})
        panels.append(_panel(name, HEIGHT, axis, _layers(rows), ends[name]))
    for cost in costs:
        rows = [row for row in cost["rows"] if row["who"] in shown]
        panels.append(_panel(cost["title"], LOW_HEIGHT, axis, _layers(rows)))
    return {
        "title": {"text": title, "subtitle": _RING},
        "vconcat": [_coloured(panel, list(shown)) for panel in panels],
        "spacing": 20,
        "resolve": _scales("shared"),
    }


def _largest(
    curves: Mapping[str, Mapping[str, Document]],
) -> dict[str, Mapping[str, Document]]:
    """As many lines as there are colours: those over most queries, in their order."""

    def size(who: str) -> int:
        lines = curves[who].values()
        return max((point["n"] for line in lines for point in line["points"]), default=0)

    largest = set(sorted(curves, key=size, reverse=True)[: len(COLOURS)])
    return {who: lines for who, lines in curves.items() if who in largest}


def _rows(curves: Curves) -> list[dict[str, Any]]:
    """The points that were measured."""
    return [
        _row(who, point) | {"knee": point["k"] == line["knee"]}
        for who, line in curves.items()
        for point in line["points"]
        if point["mean"] is not None
    ]


def _row(who: str, point: Document) -> dict[str, Any]:
    low, high = point["ci"] or (None, None)
    place = size_of(point["k"])
    return {"who": who, "place": place, "mean": point["mean"], "low": low, "high": high}


def _costs(systems: Sequence[Document]) -> Iterator[Spec]:
    """What the cut-offs cost, as one more panel."""
    budgets = {label(one["name"]): one["budget"] for one in systems if one["budget"] is not None}
    rows: dict[str, list[dict[str, Any]]] = {}
    for who, budget in budgets.items():
        for point in budget.get("points", [budget]):
            if point["mean"] is not None and point["k"]:
                rows.setdefault(budget["kind"], []).append(_row(who, point))
    for kind, some in rows.items():
        yield {"title": kind if kind == "tokens" else f"{kind} (ms)", "rows": some}


def _panel(
    title: str, height: int, axis: Spec, layers: Spec, ends: list[float] | None = None
) -> Spec:
    scale = {"zero": True} if ends is None or ends[0] == ends[1] else {"domain": ends, "nice": True}
    y = {"field": "mean", "type": "quantitative", "title": label(title), "scale": scale}
    shared = {"x": axis, "y": y}
    return {"width": WIDTH, "height": height, "encoding": shared, **layers}


def _layers(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Intervals below lines below rings below points."""
    few = len({row["who"] for row in rows}) <= _FEW
    alone = len({row["who"] for row in rows}) == len(rows)
    pale = {"type": "area", "opacity": 0.14 if few else 0.07}
    band = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.5} if alone else pale,
        "encoding": {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
    }
    line = {"mark": {"type": "line", "strokeWidth": 2}}
    ring = {
        "transform": [{"filter": "datum.knee"}],
        "mark": {"type": "point", "size": 260, "shape": "circle", "strokeWidth": 2},
    }
    point = {"mark": {"type": "point", "filled": True, "size": 50, "opacity": 1}}
    return {"data": {"values": list(rows)}, "layer": [band, line, ring, point]}


def _coloured(panel: Spec, names: Sequence[str]) -> Spec:
    """Every layer in the colours of its lines; points have shapes besides."""
    marks = marks_of(names)
    # Without this the legend would be as pale as the bands.
    who = {"field": "who", "type": "nominal", "title": None, "legend": {"symbolOpacity": 1}}
    layers = []
    for layer in panel["layer"]:
        encoding = {"color": who | {"scale": marks["color"]}, **layer.get("encoding", {})}
        if layer["mark"].get("filled"):
            encoding["shape"] = who | {"scale": marks["shape"]}
        layers.append({**layer, "encoding": encoding})
    return panel | {"layer": layers}
