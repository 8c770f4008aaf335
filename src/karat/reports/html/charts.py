"""Charts of a page: measures over k, losses by stage, latency, and quality against latency.

Their tables are those of the analyses. Colours are names of CSS custom properties, so that a
drawn chart follows the theme and turns dark on white for print without being drawn again.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from karat.analysis.diagnose.latency import DEFAULT_PATH, TOTAL, ms, pareto_sections
from karat.analysis.failures import PARTS, waterfall_section
from karat.analysis.sweep import curve_section
from karat.evaluation.systems import distinct_names
from karat.pages.charts import (
    SHAPES,
    WORD_AXIS,
    k_axis,
    line_layers,
    waterfall_panel,
    waterfall_rows,
)
from karat.pages.formatting import figure, interval, label
from karat.pages.page import Section, table, word_columns
from karat.reports.html.elements import MINUS, Document, primary_name, system_names

Spec = dict[str, Any]
Row = dict[str, Any]
# The systems of a report by the names that charts have for them: safe to show, each once.
Systems = Mapping[str, Document]

MUTED, LINE = "var(--muted)", "var(--line)"
GOOD, BAD, VALUE = "var(--good)", "var(--bad)", "var(--accent)"
DASHES = [4, 4]
# The number of line colours in charts.css.
SERIES = 7
# The most systems that a sentence names.
NAMED = 3
HEIGHT = 250
# From this ratio on, small values would be indistinguishable on a linear scale.
_FAR = 20.0
# The least that an axis of values spans, as a share of the highest.
_SPAN = 0.2
# The encoding of a mark's tooltip.
TOOLTIP: Spec = {"field": "told", "type": "nominal"}
# Plain numbers from 0.05 to 20,000: never powers of ten.
PLAIN = ",.6~f"
# Less than this is the rounding of sums.
_NOTHING = 1e-9
# The figures in the drawing of a stage, and those in its table.
_DRAWN = ("p50", "p95")
_SHOWN = ("mean", "p50", "p90", "p95", "p99")
# The height of a line, and of a stage at least.
_STEP, _LEAST = 15, 34


@dataclass(frozen=True)
class ReportChart:
    """One chart of a page.

    ``about`` describes it in a sentence, ``table`` holds the same figures, ``spec`` is
    Vega-Lite without width, fonts or colours of a theme.
    """

    id: str
    section: str
    title: str
    about: str
    spec: Spec
    table: Section

    @property
    def words(self) -> set[int]:
        """The columns of the table that hold words."""
        return word_columns(self.table.grid or [[]])


def charts_of(document: Document, head: Document | None = None) -> list[ReportChart]:
    """Return all charts that a report has figures for, in the order of its sections."""
    names = distinct_names([label(name) for name in system_names(document)])
    systems = dict(zip(names, document["systems"], strict=True))
    measure = primary_name(document, head)
    return [
        *_curve_charts(systems, document["conventions"]),
        *_loss_charts(systems),
        *_latency_charts(systems),
        *_trade_charts(systems, measure),
    ]


def _curve_charts(systems: Systems, conventions: Document) -> Iterator[ReportChart]:
    """Yield a chart for each measure of the sweep, with every system that has it."""
    swept = {name: of["sweep"]["measures"] for name, of in systems.items() if "sweep" in of}
    for number, measure in enumerate(dict.fromkeys(chain.from_iterable(swept.values()))):
        lines = {name: curves[measure] for name, curves in swept.items() if measure in curves}
        rows = [row for name, line in lines.items() for row in _curve_rows(name, line)]
        if not rows:
            continue
        ks = sorted({row["k"] for row in rows})
        # If the k of the report was not measured, the largest that was.
        at = conventions["k"] if conventions["k"] in ks else ks[-1]
        best = _best(lines)
        yield ReportChart(
            id=f"curve-{number}",
            section="curves",
            title=f"{label(measure)} over k",
            about=_curve_sentence(measure, at, rows, conventions["ci"], drawn_ceiling=bool(best)),
            spec=_curve_spec(systems, rows, best, conventions["k"]),
            table=curve_section(
                label(measure),
                [{"name": name, "measures": {label(measure): of}} for name, of in lines.items()],
            ),
        )


def _curve_rows(name: str, line: Document) -> Iterator[Row]:
    for point in line["points"]:
        if point["mean"] is None:
            continue
        low, high = point["ci"] or (None, None)
        knee = point["k"] == line["knee"]
        value = f"{figure(point['mean'])} {interval(point['ci'])}".rstrip()
        told = f"{name}: {value} at k = {point['k']}, n = {point['n']:,}"
        told += "; levels off here" if knee else ""
        row = {"system": name, "k": point["k"], "mean": point["mean"], "low": low, "high": high}
        yield row | {"knee": knee, "value": value, "told": told}


def _best(lines: Mapping[str, Document]) -> list[Row]:
    """Return the best reachable value at each k; nothing where that is 1 (or 0) throughout."""
    best: dict[int, float] = {}
    for point in chain.from_iterable(line["points"] for line in lines.values()):
        if point["mean"] is not None and point["ceiling"] is not None:
            best[point["k"]] = max(point["ceiling"], best.get(point["k"], 0.0))
    rows = [{"k": k, "mean": ceiling} for k, ceiling in sorted(best.items())]
    return [] if set(best.values()) <= {0.0, 1.0} else rows


def _curve_sentence(
    measure: str, k: int, rows: Sequence[Row], share: float | None, *, drawn_ceiling: bool
) -> str:
    """Return a sentence with the values at one k, best first, and the meaning of the marks."""
    at_k = sorted((row for row in rows if row["k"] == k), key=lambda row: -row["mean"])
    values = [f"{row['value']} for {shown(row['system'])}" for row in at_k]
    marks = []
    if any(row["low"] is not None for row in rows):
        level = "" if share is None else f"{100 * share:g} % "
        marks.append(f"the bands are {level}intervals")
    marks += ["a ring is where a curve levels off"] if any(row["knee"] for row in rows) else []
    marks += ["the dashed curve is the best reachable"] if drawn_ceiling else []
    sentence = f"{label(measure)} at k = {k} is {first_few(values)}."
    return f"{sentence} In the chart, {first_few(marks)}." if marks else sentence


def _curve_spec(systems: Systems, rows: Sequence[Row], best: Sequence[Row], k: int | None) -> Spec:
    ks = sorted({row["k"] for row in rows})
    x = k_axis(ks, title="k") | {"field": "k"}
    ends = [row[name] for row in rows for name in ("mean", "low", "high") if row[name] is not None]
    scale = scale_of([*ends, *(row["mean"] for row in best)])
    y: Spec = {"field": "mean", "type": "quantitative", "title": None, "scale": scale}
    points = {**marked(systems, rows, shaped=True), "tooltip": TOOLTIP}
    layers = []
    if k is not None and ks[0] <= k <= ks[-1]:
        # The k of the report, with its name above.
        data = {"data": {"values": [{"k": k, "name": f"k = {k}"}]}}
        text = {"type": "text", "color": MUTED, "baseline": "bottom", "dy": -4}
        layers += [
            layer({"type": "rule", "color": MUTED, "strokeDash": DASHES}, x=x) | data,
            layer(text, x=x, y={"value": 0}, text={"field": "name"}) | data,
        ]
    if best:
        line = {"type": "line", "color": MUTED, "strokeDash": DASHES, "strokeWidth": 1.5}
        # A single point is no line.
        tick = {"type": "tick", "orient": "horizontal", "color": MUTED}
        mark = line if len(best) > 1 else tick
        layers.append(layer(mark, x=x, y=y) | {"data": {"values": list(best)}})
    axes = {"x": x, "y": y}
    layers += line_layers(rows, "system", marked(systems, rows), points=points, axes=axes)
    return {"height": HEIGHT, "data": {"values": list(rows)}, "layer": layers}


def _loss_charts(systems: Systems) -> Iterator[ReportChart]:
    """Yield a waterfall for each system and measure that has a value."""
    for at, (name, system) in enumerate(systems.items()):
        whose = f"{shown(name)}: " if len(systems) > 1 else ""
        for number, fall in enumerate(system.get("waterfalls", [])):
            if fall["value"] is None or fall["ceiling"] is None:
                continue
            rows = waterfall_rows(fall, (MUTED, GOOD, BAD, VALUE))
            for row in rows:
                why = fall["unknown"].get(row["part"], PARTS.get(row["part"], ""))
                row["name"] = row["name"].replace("-", MINUS)
                row["told"] = f"{row['part']} {row['name']}" + (f": {label(why)}" if why else "")
            yield ReportChart(
                id=f"loss-{at}-{number}",
                section="losses",
                title=f"{whose}{label(fall['measure'])}",
                about=_loss_sentence(fall),
                spec=waterfall_panel(rows, tooltip=TOOLTIP),
                table=waterfall_section(fall),
            )


def _loss_sentence(fall: Document) -> str:
    figures_known = [
        part
        for part in fall["parts"]
        if part["part"] not in fall["unknown"] and part["lost"] > _NOTHING
    ]
    figures_known.sort(key=lambda part: -part["lost"])
    lost = [f"{figure(part['lost'])} in {label(part['part'])}" for part in figures_known]
    ends = f"From its ceiling {figure(fall['ceiling'])} to its value {figure(fall['value'])}"
    return f"{ends}, {label(fall['measure'])} loses {first_few(lost) if lost else 'nothing'}."


def _latency_charts(systems: Systems) -> Iterator[ReportChart]:
    """Yield one chart of all stages of all systems: from the median to the 95th percentile."""
    stages: list[Row] = [
        {"system": name, "stage": label(stage), "n": times["n"]}
        | {ending: times[ending]["value"] for ending in _SHOWN}
        for name, system in systems.items()
        for stage, times in _stages(system).items()
    ]
    # As logged, the whole call last; few calls have no p95.
    order = sorted(dict.fromkeys(row["stage"] for row in stages), key=lambda stage: stage == TOTAL)
    stages.sort(key=lambda row: order.index(row["stage"]))
    rows = [row for row in stages if row["p50"] is not None]
    if not rows:
        return
    for row in rows:
        high = "" if row["p95"] is None else f", p95 {ms(row['p95'])} ms"
        row["told"] = f"{row['system']}, {row['stage']}: p50 {ms(row['p50'])} ms{high}"
    stage = TOTAL if any(row["stage"] == TOTAL for row in rows) else rows[0]["stage"]
    calls = sorted((row for row in rows if row["stage"] == stage), key=lambda row: row["p50"])
    medians = [f"{ms(row['p50'])} ms with {shown(row['system'])}" for row in calls]
    stage_name = "A call" if stage == TOTAL else f"{stage[0].upper()}{stage[1:]}"
    cells = [row | {ending: ms(row[ending]) for ending in _SHOWN} for row in stages]
    columns = {name: name for name in ("stage", "system", "n", *_SHOWN)}
    title = "From the median (p50) to p95 of each stage, in ms"
    yield ReportChart(
        id="latency",
        section="latency",
        title=title,
        about=f"{stage_name} takes {first_few(medians)} at the median.",
        spec=_latency_spec(systems, rows),
        table=Section(title, table(cells, columns)),
    )


def _stages(system: Document) -> Mapping[str, Any]:
    stages: Mapping[str, Any] = system.get("latency", {"stages": {}})["stages"]
    return stages


def _latency_spec(systems: Systems, rows: Sequence[Row]) -> Spec:
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    names = [name for name in systems if any(row["system"] == name for row in rows)]
    y: Spec = {"field": "stage", "type": "nominal", "sort": stages, "axis": WORD_AXIS}
    y |= {"scale": {"paddingInner": 0.25, "paddingOuter": 0.15}}
    # Within a stage the systems are in the order of the report.
    offset = {"field": "system", "type": "nominal", "sort": names, "scale": {"domain": names}}
    x = amounts("p50", [row[key] for row in rows for key in _DRAWN if row[key] is not None], "ms")
    colour, shape = marked(systems, rows), marked(systems, rows, shaped=True)
    rule = {"type": "rule", "strokeWidth": 3, "opacity": 0.45}
    tick = {"type": "tick", "thickness": 2, "size": 11, "opacity": 1}
    point = {"type": "point", "filled": True, "size": 64, "opacity": 1}
    timed, slow = "isValid(datum.p95)", x | {"field": "p95"}
    layers = [
        layer(rule, timed, x=x, x2={"field": "p95"}, y=y, yOffset=offset, **colour),
        layer(tick, timed, x=slow, y=y, yOffset=offset, **colour, tooltip=TOOLTIP),
        layer(point, x=x, y=y, yOffset=offset, **shape, tooltip=TOOLTIP),
    ]
    height = len(stages) * max(_STEP * len(names), _LEAST)
    return {"height": height, "data": {"values": list(rows)}, "layer": layers}


def _trade_charts(systems: Systems, measure: str | None) -> Iterator[ReportChart]:
    """Yield the deciding measure over the median of a whole call, for systems with both."""
    places: list[Row] = []
    unplaced = {}
    for name, system in systems.items():
        quality = system["measures"].get(measure, {"mean": None})
        median = _stages(system).get(TOTAL, {"p50": {"value": None}})["p50"]
        if quality["mean"] is None or median["value"] is None:
            lacks = measure if quality["mean"] is None else "latency"
            unplaced[name] = f"has no {label(str(lacks))}"
            continue
        if quality["better"] == "none":
            return
        up = quality["mean"] if quality["better"] == "higher" else -quality["mean"]
        place = {"system": name, "quality": {"value": quality["mean"], "ci": quality["ci"]}}
        places.append(place | {"latency": median, "up": up})
    if measure is None or not places:
        return
    places.sort(key=lambda place: place["latency"]["value"])
    for place in places:
        place["beaten_by"] = [other["system"] for other in places if _beats(other, place)]
    front = [
        f"{shown(place['system'])} ({figure(place['quality']['value'])} at"
        f" {ms(place['latency']['value'])} ms)"
        for place in places
        if not place["beaten_by"]
    ]
    about = f"No system beats {first_few(front)} in both {label(measure)} and latency."
    comparison = {"measure": label(measure), "latency": DEFAULT_PATH, "systems": places}
    yield ReportChart(
        id="trade",
        section="trade",
        title=f"{label(measure)} against the median of a whole call",
        about=f"{about} The dashed line joins them." if len(front) > 1 else about,
        spec=_trade_spec(systems, places, measure),
        table=pareto_sections(comparison | {"unplaced": unplaced})[0],
    )


def _beats(other: Document, place: Document) -> bool:
    """Return whether a system is at least as good in both and better in one."""
    first, second = ((of["up"], -of["latency"]["value"]) for of in (other, place))
    return first != second and all(a >= b for a, b in zip(first, second, strict=True))


def _trade_spec(systems: Systems, places: Sequence[Row], measure: str) -> Spec:
    """Return points with their intervals, and a step line along the Pareto front."""
    rows: list[Row] = []
    for place in places:
        quality, latency = place["quality"], place["latency"]
        low, high = quality["ci"] or (None, None)
        early, late = latency["ci"] or (None, None)
        value = f"{figure(quality['value'])} {interval(quality['ci'])}".rstrip()
        row = {"system": place["system"], "front": not place["beaten_by"]}
        row |= {"quality": quality["value"], "low": low, "high": high}
        row |= {"latency": latency["value"], "early": early, "late": late}
        told = f"{place['system']}: {value} at {ms(latency['value'])} ms"
        rows.append(row | {"told": told})

    def known(*names: str) -> list[float]:
        return [row[name] for row in rows for name in names if row[name] is not None]

    x = amounts("latency", known("latency", "early", "late"), "median of a whole call, ms")
    y: Spec = {"field": "quality", "type": "quantitative", "title": label(measure)}
    y |= {"scale": scale_of(known("quality", "low", "high"))}
    colour, shape = marked(systems, rows), marked(systems, rows, shaped=True)
    rule = {"type": "rule", "strokeWidth": 1.5, "opacity": 0.5}
    point = {"type": "point", "filled": True, "size": 90, "opacity": 1}
    step = {"type": "line", "interpolate": "step-after", "color": MUTED, "strokeDash": DASHES}
    upright = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}}
    across = {"x": x | {"field": "early"}, "x2": {"field": "late"}, "y": y}
    layers = [
        layer(step, "datum.front", x=x, y=y),
        layer(rule, "isValid(datum.low)", **upright, **colour),
        layer(rule, "isValid(datum.early)", **across, **colour),
        layer(point, x=x, y=y, **shape, tooltip=TOOLTIP),
    ]
    return {"height": HEIGHT, "data": {"values": rows}, "layer": layers}


def marked(systems: Systems, rows: Sequence[Row], *, shaped: bool = False) -> Spec:
    """Return the encoding of colour (and shape) by the place of a system in the report.

    Colour and shape repeat after 49 systems. A single system needs no legend.
    """
    drawn = {row["system"] for row in rows}
    places = {name: at for at, name in enumerate(systems) if name in drawn}
    who: Spec = {"field": "system", "type": "nominal", "title": None}
    # Legend marks would otherwise be as pale as the bands.
    who["legend"] = {"symbolOpacity": 1} if len(systems) > 1 else None
    colours = [f"var(--series-{at % SERIES + 1})" for at in places.values()]
    shapes = [SHAPES[(at + at // SERIES) % len(SHAPES)] for at in places.values()]
    encoding = {"color": who | {"scale": {"domain": list(places), "range": colours}}}
    if shaped:
        encoding["shape"] = who | {"scale": {"domain": list(places), "range": shapes}}
    return encoding


def layer(mark: Spec, where: str | None = None, **encoding: Spec) -> Spec:
    """Return a layer of a chart, of the rows for which a condition is true."""
    filtered = {} if where is None else {"transform": [{"filter": where}]}
    return {**filtered, "mark": mark, "encoding": encoding}


def amounts(field: str, values: Sequence[float], title: str) -> Spec:
    """Return a time axis: logarithmic for a large range, else from 0."""
    low, high = min(values), max(values)
    by_ratio = low > 0 and high >= _FAR * low
    if by_ratio:
        scale: Spec = {"type": "log", "domain": [0.85 * low, 1.15 * high], "nice": False}
        ticks: Spec = {"values": decades(*scale["domain"])}
    else:
        scale = {"type": "linear", "domain": [0.0, high or 1.0], "nice": True}
        ticks = {"tickCount": 5}
    return {
        "field": field,
        "type": "quantitative",
        "title": f"{title}, log scale" if by_ratio else title,
        "scale": scale,
        "axis": {"labelOverlap": "greedy", "labelSeparation": 4, "format": PLAIN, **ticks},
    }


def decades(low: float, high: float) -> list[float]:
    """Return the ticks of a log scale: 1, 2 and 5 of each power of ten.

    >>> decades(0.15, 30)
    [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{power}") for power in powers for step in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]


def scale_of(values: Sequence[float]) -> Spec:
    """Return a scale from the lowest value to the highest, wide enough that noise stays small."""
    low, high = min(values), max(values)
    lacking = max(_SPAN * max(abs(low), abs(high)) - (high - low), 0.0)
    # Values that are never negative have no axis below 0.
    floor = low - lacking if low < 0 else max(low - lacking, 0.0)
    return {"domain": [floor, high if high > floor else floor + 1.0], "nice": True}


def shown(name: str) -> str:
    """Return a name for use in a sentence, isolated if it is written right to left.

    >>> shown("bm25"), shown("\u05d0") == "\u2068\u05d0\u2069"
    ('bm25', True)
    """
    turning = any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in name)
    return f"\u2068{name}\u2069" if turning else name


def first_few(parts: Sequence[str]) -> str:
    """Return the first items as part of a sentence, and the number of further ones.

    >>> first_few(["a"]), first_few(["a", "b"]), first_few(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    more = len(parts) - NAMED
    *first, last = [*parts[:NAMED], *([f"{more} more"] if more > 0 else [])]
    return f"{', '.join(first)} and {last}" if first else last
