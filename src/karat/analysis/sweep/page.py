"""Sweeps as people see them: the page of curves, the rows of its table, and the chart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl

from karat.analysis.sweep.curves import K, size_of
from karat.evaluation.sentences import conventions_lines, counts_lines
from karat.pages.charts import COLOURS, HEIGHT, LOW_HEIGHT, WIDTH, Spec, chart_spec, marks_of
from karat.pages.formatting import (
    NOTHING,
    PART,
    figure,
    interval,
    label,
    measured,
    number_range,
    plural,
)
from karat.pages.page import Chart, Grid, Page, Section
from karat.pages.sparklines import sparkline

Document = Mapping[str, Any]
TOKENS = "tokens"

COLUMNS: dict[str, type[pl.DataType]] = {
    "system": pl.String,
    "segment": pl.String,
    "value": pl.String,
    "measure": pl.String,
    "k": pl.String,
    "mean": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n": pl.Int64,
    "ceiling": pl.Float64,
    "headroom": pl.Float64,
    "beyond_log": pl.Boolean,
}


def frame_rows(systems: Sequence[Document]) -> Iterator[dict[str, Any]]:
    for system in systems:
        groups = [(None, None, system["measures"])]
        for column, values in system["segments"].items():
            groups += [(column, value, lines) for value, lines in values.items()]
        for column, value, lines in groups:
            place = {"system": system["name"], "segment": column, "value": value}
            for name, line in lines.items():
                yield from (place | _frame_row(name, point) for point in line["points"])
        if budget := system["budget"]:
            for point in budget.get("points", [budget]):
                yield {"system": system["name"]} | _frame_row(budget["kind"], point)


def _frame_row(name: str, point: Document) -> dict[str, Any]:
    low, high = point["ci"] or (None, None)
    row = {key: point.get(key) for key in ("mean", "n", "ceiling", "headroom")}
    ends = {"k": str(point["k"]), "ci_low": low, "ci_high": high}
    return {"measure": name, **ends, **row, "beyond_log": point.get("beyond_log", False)}


def sweep_page(results: Document) -> Page:
    """Return the page: each curve as a table with its knee, then segments and what k costs."""
    systems = results["systems"]
    measures = list(systems[0]["measures"])
    sections = [curve_section(name, systems) for name in measures]
    for system in systems:
        sections += _segment_sections(system, named=len(systems) > 1)
    share = f"{100 * results['flat']:g} %"
    return Page(
        title=f"Curves over k: {', '.join(label(system['name']) for system in systems)}",
        headline=[_headline(name, systems) for name in measures],
        blocks=[
            *sections,
            *_budget_sections(systems),
            Chart("Measures over k", sweep_chart(results)),
        ],
        notes=[
            f"knee: the smallest k that no larger k beats by more than {share} of the maximum",
            *_depth_notes(results),
            *counts_lines(results),
            *conventions_lines(results),
        ],
    )


def _headline(name: str, systems: Sequence[Document]) -> str:
    knees = []
    for system in systems:
        line = system["measures"][name]
        knee = f"flattens at k = {line['knee']}"
        if line["knee"] is None:
            knee = f"has no knee: {line['knee_because']}"
        knees.append(f"{label(system['name'])} {knee}" if len(systems) > 1 else knee)
    return f"{name}{':' if len(systems) > 1 else ''} {'; '.join(knees)}"


def curve_section(name: str, systems: Sequence[Document]) -> Section:
    """Return one measure as a table: a row for each k, the systems side by side."""
    lines = [system["measures"][name] for system in systems]
    names = [label(system["name"]) for system in systems]
    with_headroom = [
        place
        for place, line in enumerate(lines)
        if any(point["headroom"] is not None for point in line["points"])
    ]
    heads = ["headroom"] if len(lines) == 1 else [f"headroom {one}" for one in names]
    grid: Grid = [["k", *names, *(heads[place] for place in with_headroom), "ceiling"]]
    for points in zip(*(line["points"] for line in lines), strict=True):
        headroom = [figure(points[place]["headroom"]) for place in with_headroom]
        cells = [str(points[0]["k"]), *map(measured, points), *headroom]
        grid.append([*cells, _ceiling(points)])
    if not any(row[-1] for row in grid[1:]):
        grid = [row[:-1] for row in grid]
    whose = [f"{one}: " if len(lines) > 1 else "" for one in names]
    return Section(f"{name} over k", grid, list(map(_line_note, whose, lines)))


def _ceiling(points: Sequence[Document]) -> str:
    """Return the best reachable value where it is not the obvious 1."""
    ceilings = [point["ceiling"] for point in points if point["ceiling"] not in (None, 0.0, 1.0)]
    return number_range(figure(min(ceilings)), figure(max(ceilings))) if ceilings else ""


def _line_note(whose: str, line: Document) -> str:
    parts = ["no knee"]
    if line["knee"] is not None:
        (knee,) = (point for point in line["points"] if point["k"] == line["knee"])
        parts = [f"knee at k = {line['knee']} ({figure(knee['mean'])})"]
    if area := line["area"]:
        value = f"area {figure(area['mean'])} {interval(area['ci'])}".rstrip()
        parts.append(f"{value} from k = {area['from']} to {area['to']}")
    drawn = sparkline([point["mean"] for point in line["points"]]).rstrip()
    return f"{whose}{f'{drawn} ' if drawn else ''}{' · '.join(parts)}"


def _segment_sections(system: Document, *, named: bool) -> Iterator[Section]:
    for column, values in system["segments"].items():
        for name, first in next(iter(values.values()), {}).items():
            heads = [f"k = {point['k']}" for point in first["points"]]
            grid: Grid = [[label(column), "n", "knee", *heads]]
            for value, lines in values.items():
                line = lines[name]
                n = max(point["n"] for point in line["points"])
                knee = NOTHING if line["knee"] is None else str(line["knee"])
                cells = [f"{n} small" if line.get("small") else str(n), knee]
                grid.append([label(value), *cells, *map(measured, line["points"])])
            whose = f", {label(system['name'])}" if named else ""
            yield Section(f"{name} by {label(column)}{whose}", grid)


def _budget_sections(systems: Sequence[Document]) -> Iterator[Section]:
    budgets = {label(system["name"]): system["budget"] for system in systems if system["budget"]}
    tokens = {name: budget for name, budget in budgets.items() if budget["kind"] == TOKENS}
    if tokens:
        grid: Grid = [["k", *tokens]]
        for points in zip(*(budget["points"] for budget in tokens.values()), strict=True):
            grid.append([str(points[0]["k"]), *map(_token_cell, points)])
        yield Section("tokens of the top k", grid, list(_token_notes(tokens)))
    elif budgets:
        yield Section(lines=[_latency_note(name, budget) for name, budget in budgets.items()])


def _token_cell(point: Document) -> str:
    if point["mean"] is None:
        return NOTHING
    low, high = point["ci"] or (None, None)
    ends = "" if low is None else f"[{low:.1f}, {high:.1f}]"
    return f"{point['mean']:.1f}{PART}{ends}"


def _token_notes(tokens: Mapping[str, Document]) -> Iterator[str]:
    if any(budget["counted"] == "words" for budget in tokens.values()):
        yield "words, since the corpus has no token counts"
    for name, budget in tokens.items():
        if unknown := budget["unknown_items"]:
            items = plural(unknown, "item")
            yield f"{name} returns {items} of unknown length; their queries are left out"


def _latency_note(name: str, budget: Document) -> str:
    if budget["because"]:
        return f"{name}: {budget['because']}"
    value = f"{figure(budget['mean'])} ms {interval(budget['ci'])}".rstrip()
    return f"{name}: {budget['kind']} {value} at k = {budget['k']}, the only k that its log times"


def _depth_notes(results: Document) -> Iterator[str]:
    """Yield how deep the lists go, for systems that were not measured at every k."""
    for system in results["systems"]:
        points = next(iter(system["measures"].values()))["points"]
        beyond = [str(point["k"]) for point in points if point["beyond_log"]]
        if not beyond:
            continue
        depth = system["depth"]["final"]
        ends = [depth["cut_at"], results["conventions"]["depth"]]
        last = min((end for end in ends if end is not None), default=depth["longest"])
        why = f"lists end at {last}"
        if isinstance(points[0]["k"], str):
            why = f"lists end at rank {last}, before the budget is spent"
        yield f"{label(system['name'])}: {why}; not measured ({NOTHING}): k = {', '.join(beyond)}"


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
    return chart_spec(beside | {"resolve": _scales("independent")})


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
    """Return the cut-offs along the bottom, and those that logs were timed at."""
    budgets = [system["budget"] for system in systems if system["budget"] is not None]
    in_tokens = isinstance(ks[0], str)
    timed = [] if in_tokens else [budget["k"] for budget in budgets if budget.get("k")]
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
    """Return one panel per measure, below each other, with one legend."""
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
    """Return as many lines as there are colours: those over most queries."""

    def size(who: str) -> int:
        lines = curves[who].values()
        return max((point["n"] for line in lines for point in line["points"]), default=0)

    largest = set(sorted(curves, key=size, reverse=True)[: len(COLOURS)])
    return {who: lines for who, lines in curves.items() if who in largest}


def _rows(curves: Curves) -> list[dict[str, Any]]:
    """Return the points that were measured."""
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
    """Yield what the cut-offs cost, as one more panel."""
    budgets = {
        label(system["name"]): system["budget"]
        for system in systems
        if system["budget"] is not None
    }
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
    """Return the layers: intervals, lines, rings, points."""
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
    """Return every layer in the colours of its lines; points have shapes besides."""
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
