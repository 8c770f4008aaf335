"""Charts of a page: what they share, measures over k, and where a measure is lost.

Colours are names of CSS custom properties, so that a drawn chart follows the theme and turns
dark on white for print without being drawn again.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.analysis.failures import PARTS
from karat.analysis.sweep import K, size_of
from karat.pages.charts import SHAPES, k_axis, line_layers, waterfall_panel, waterfall_rows
from karat.pages.formatting import NOTHING, figure, interval, label, measured, plural
from karat.pages.page import Grid, word_columns
from karat.reports.html.elements import MINUS, Document, signed_interval

Spec = dict[str, Any]

MUTED, LINE = "var(--muted)", "var(--line)"
GOOD, BAD, VALUE = "var(--good)", "var(--bad)", "var(--accent)"
# As many as charts.css has colours of lines.
SERIES = 7
# A sentence names no more systems than these.
NAMED = 3
HEIGHT = 250
# From this ratio on, small values would fall together on a linear scale.
_FAR = 20.0
# The least that an axis of values spans, as a share of the highest.
_SPAN = 0.2
# The encoding of a mark's tooltip.
TOOLTIP: Spec = {"field": "told", "type": "nominal"}
# Numbers as people write them, from 0.05 to 20,000: never as powers of ten.
PLAIN = ",.6~f"

# The marks of a legend, in a box from -6 to 6, as Vega draws them.
_OUTLINES: Mapping[str, str] = {
    "circle": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "square": "M-4-4h8v8h-8z",
    "triangle-up": "M0-4.6L5 4.2H-5z",
    "diamond": "M0-5.5L4.5 0L0 5.5L-4.5 0z",
    "triangle-down": "M0 4.6L5-4.2H-5z",
    "cross": "M-1.7-5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
    "triangle-right": "M4.6 0L-4.2 5V-5z",
}
# Marks that belong to no system: a dashed line, a ring, a patch of a band.
DASH = "M-6-.8h4.5v1.6h-4.5zM1.5-.8h4.5v1.6h-4.5z"
RING = (
    "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0zM-4.1 0a4.1 4.1 0 1 1 8.2 0a4.1 4.1 0 1 1-8.2 0z"
)
PATCH = "M-6-3.5h12v7h-12z"


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: a name and its mark."""

    name: str
    colour: str
    outline: str


@dataclass(frozen=True)
class ReportChart:
    """One chart of a page.

    ``about`` says in a sentence what it shows, ``table`` holds the same figures, ``spec`` is
    Vega-Lite without width, fonts or colours of a theme.
    """

    id: str
    section: str
    title: str
    about: str
    spec: Spec
    table: Grid
    keys: tuple[Key, ...] = ()

    @property
    def words(self) -> set[int]:
        """The columns of the table that hold words."""
        return word_columns(self.table) | {0}


def colour_of(at: int) -> str:
    """Return the colour of a system, by its index in the report."""
    return f"var(--series-{at % SERIES + 1})"


def shape_of(at: int) -> str:
    """Return the shape of a system's points; colour and shape repeat after 49 systems."""
    return SHAPES[(at + at // SERIES) % len(SHAPES)]


def keys_of(names: Mapping[int, str]) -> tuple[Key, ...]:
    """Return a legend of systems; a single system needs none."""
    if len(names) < 2:
        return ()
    return tuple(Key(name, colour_of(at), _OUTLINES[shape_of(at)]) for at, name in names.items())


def marked(places: Sequence[int], *, shaped: bool = False) -> Spec:
    """Return the encoding of colour (and shape) by the index of a system in the report."""
    who: Spec = {"field": "at", "type": "nominal", "legend": None}
    domain = list(places)
    encoding = {"color": who | {"scale": {"domain": domain, "range": [*map(colour_of, domain)]}}}
    if shaped:
        encoding["shape"] = who | {"scale": {"domain": domain, "range": [*map(shape_of, domain)]}}
    return encoding


def layer(mark: Spec, where: str | None = None, **encoding: Spec) -> Spec:
    """Return a layer of a chart, of the rows for which a condition is true."""
    filtered = {} if where is None else {"transform": [{"filter": where}]}
    return {**filtered, "mark": mark, "encoding": encoding}


def amounts(field: str, values: Sequence[float], title: str) -> Spec:
    """Return an axis of times: logarithmic if they differ by a lot, else from 0."""
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
    """Return a name from a file for use in a sentence, isolated if it is written right to left.

    >>> shown("bm25"), shown("\u05d0") == "\u2068\u05d0\u2069"
    ('bm25', True)
    """
    safe = label(name)
    turning = any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in safe)
    return f"\u2068{safe}\u2069" if turning else safe


def listed(parts: Sequence[str]) -> str:
    """Return several things as part of a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def first_few(parts: Sequence[str]) -> str:
    """Return the first things as part of a sentence, and how many more there are.

    >>> first_few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = len(parts) - NAMED
    return listed([*parts[:NAMED], *([f"{more} more"] if more > 0 else [])])


_DASHES = [4, 4]


def curve_charts(document: Document) -> Iterator[ReportChart]:
    """Yield a chart for each measure of the sweep, with every system that has it."""
    systems = {at: system for at, system in enumerate(document["systems"]) if "sweep" in system}
    measures = dict.fromkeys(
        name for system in systems.values() for name in system["sweep"]["measures"]
    )
    for number, measure in enumerate(measures):
        swept = {at: system["sweep"]["measures"].get(measure) for at, system in systems.items()}
        lines = {at: line for at, line in swept.items() if line is not None}
        curves = _Curves(measure, {at: label(systems[at]["name"]) for at in lines}, lines)
        measured_ks = [k for k in curves.ks if curves.at(k)]
        if not measured_ks:
            continue
        k, share = (document["conventions"].get(name) for name in ("k", "ci"))
        yield ReportChart(
            id=f"curve-{number}",
            section="curves",
            title=f"{label(measure)} over k",
            # If the k of the report was not measured, the largest that was.
            about=_curve_sentence(curves, k if k in measured_ks else measured_ks[-1]),
            spec=_curve_spec(curves, k),
            table=_curve_table(curves),
            keys=(*keys_of(curves.names), *_other_keys(curves, share)),
        )


@dataclass(frozen=True)
class _Curves:
    """One measure of the systems that have it, by their index in the report."""

    measure: str
    names: Mapping[int, str]
    lines: Mapping[int, Document]

    @property
    def ks(self) -> list[K]:
        ks = {point["k"] for line in self.lines.values() for point in line["points"]}
        return sorted(ks, key=lambda k: (size_of(k), str(k)))

    def at(self, k: K, *, measured: bool = True) -> dict[int, Document]:
        """Return the points of the systems at a cut-off, by default those with a value."""
        return {
            at: point
            for at, line in self.lines.items()
            for point in line["points"]
            if point["k"] == k and not (measured and point["mean"] is None)
        }

    @property
    def ceilings(self) -> dict[K, float]:
        """The best reachable value at each k; nothing where that is 1 (or 0) throughout."""
        found = {k: [point["ceiling"] for point in self.at(k).values()] for k in self.ks}
        known = {k: [end for end in ends if end is not None] for k, ends in found.items()}
        ceilings = {k: max(ends) for k, ends in known.items() if ends}
        return {} if set(ceilings.values()) <= {0.0, 1.0} else ceilings


def _other_keys(curves: _Curves, share: float | None) -> Iterator[Key]:
    """Yield legend entries for bands, rings and the ceiling."""
    if any(point["ci"] is not None for k in curves.ks for point in curves.at(k).values()):
        yield Key("interval" if share is None else f"{100 * share:g} % interval", LINE, PATCH)
    if any(line["knee"] is not None for line in curves.lines.values()):
        yield Key("levels off here", MUTED, RING)
    if curves.ceilings:
        yield Key("best reachable", MUTED, DASH)


def _curve_sentence(curves: _Curves, k: K) -> str:
    points = sorted(curves.at(k).items(), key=lambda pair: -pair[1]["mean"])
    values = [f"{_value(point)} for {shown(curves.names[at])}" for at, point in points]
    return f"{label(curves.measure)} at k = {k} is {first_few(values)}."


def _value(point: Document) -> str:
    return f"{figure(point['mean'])} {interval(point['ci'])}".rstrip()


def _curve_table(curves: _Curves) -> Grid:
    """Return a row for each k, the systems side by side, and where each levels off."""
    ceilings = curves.ceilings
    grid: Grid = [["k", *curves.names.values(), *(["best reachable"] if ceilings else [])]]
    for k in curves.ks:
        points = curves.at(k, measured=False)
        cells = [measured(points[at]) if at in points else NOTHING for at in curves.lines]
        grid.append([str(k), *cells, *([figure(ceilings.get(k))] if ceilings else [])])
    knees = [line["knee"] for line in curves.lines.values()]
    if any(knee is not None for knee in knees):
        cells = [NOTHING if knee is None else str(knee) for knee in knees]
        grid.append(["levels off at", *cells, *([""] if ceilings else [])])
    return grid


def _curve_spec(curves: _Curves, k: int | None) -> Spec:
    rows = [
        _curve_row(curves, at, cutoff, point)
        for cutoff in curves.ks
        for at, point in curves.at(cutoff).items()
    ]
    sizes = [size_of(cutoff) for cutoff in curves.ks]
    in_tokens = isinstance(curves.ks[0], str)
    x = k_axis(sizes, title="tokens" if in_tokens else "k") | {"field": "k"}
    best = [{"k": size_of(cutoff), "mean": value} for cutoff, value in curves.ceilings.items()]
    ends = [row[name] for row in rows for name in ("mean", "low", "high") if row[name] is not None]
    scale = scale_of([*ends, *(row["mean"] for row in best)])
    y: Spec = {"field": "mean", "type": "quantitative", "title": None, "scale": scale}
    places = sorted({row["at"] for row in rows})
    marks = {**marked(places, shaped=True), "tooltip": TOOLTIP}
    lines = line_layers(rows, "at", marked(places), points=marks, axes={"x": x, "y": y})
    layers = [*_ceiling(best, x, y), *lines]
    if not in_tokens and k is not None and min(sizes) <= k <= max(sizes):
        layers = [*_mark_of(k, x), *layers]
    return {"height": HEIGHT, "data": {"values": rows}, "layer": layers}


def _curve_row(curves: _Curves, at: int, k: K, point: Document) -> Spec:
    low, high = point["ci"] or (None, None)
    knee = k == curves.lines[at]["knee"]
    text = f"{curves.names[at]}: {_value(point)} at k = {k}, n = {point['n']:,}"
    text += "; levels off here" if knee else ""
    place = {"at": at, "k": size_of(k), "mean": point["mean"], "low": low, "high": high}
    return place | {"knee": knee, "told": text}


def _mark_of(k: int, x: Spec) -> Iterator[Spec]:
    """Yield a dashed line at the k of the report, with its name above."""
    data = {"data": {"values": [{"k": k, "name": f"k = {k}"}]}}
    yield layer({"type": "rule", "color": MUTED, "strokeDash": _DASHES}, x=x) | data
    text = {"type": "text", "color": MUTED, "baseline": "bottom", "dy": -4}
    yield layer(text, x=x, y={"value": 0}, text={"field": "name"}) | data


def _ceiling(best: Sequence[Document], x: Spec, y: Spec) -> Iterator[Spec]:
    if best:
        line = {"type": "line", "color": MUTED, "strokeDash": _DASHES, "strokeWidth": 1.5}
        # A single point is no line.
        alone = {"type": "tick", "orient": "horizontal", "color": MUTED}
        yield layer(line if len(best) > 1 else alone, x=x, y=y) | {"data": {"values": list(best)}}


# Less than this is the rounding of sums.
_NOTHING = 1e-9


def loss_charts(document: Document) -> Iterator[ReportChart]:
    """Yield a waterfall for each system and measure that has a value."""
    systems = document["systems"]
    for at, system in enumerate(systems):
        whose = f"{shown(system['name'])}: " if len(systems) > 1 else ""
        for number, fall in enumerate(system.get("waterfalls", [])):
            if fall["value"] is None or fall["ceiling"] is None:
                continue
            rows, table = _loss_rows(fall)
            yield ReportChart(
                id=f"loss-{at}-{number}",
                section="losses",
                title=f"{whose}{label(fall['measure'])}",
                about=_loss_sentence(fall),
                spec=waterfall_panel(rows, tooltip=TOOLTIP),
                table=table,
            )


def _loss_sentence(fall: Document) -> str:
    known = [
        part
        for part in fall["parts"]
        if part["part"] not in fall["unknown"] and (part["lost"] or 0.0) > _NOTHING
    ]
    known.sort(key=lambda part: -part["lost"])
    lost = [f"{figure(part['lost'])} in {label(part['part'])}" for part in known]
    ends = f"From its ceiling {figure(fall['ceiling'])} to its value {figure(fall['value'])}"
    return f"{ends}, {label(fall['measure'])} loses {first_few(lost) if lost else 'nothing'}."


def _loss_rows(fall: Document) -> tuple[list[Spec], Grid]:
    """Return a bar per part, and the same as a table: losses negative, gains positive."""
    best, *bars, mean = waterfall_rows(fall, (MUTED, GOOD, BAD, VALUE))
    queries = plural(fall["n"], "query", "queries")
    rows = [best | {"told": f"ceiling {best['name']}: the best over {queries}"}]
    table = [["part", label(fall["measure"]), "interval", "queries", "what"]]
    table.append(["ceiling", best["name"], "", f"{fall['n']:,}", ""])
    for bar, part in zip(bars, fall["parts"], strict=True):
        change = bar["name"].replace("-", MINUS)
        if change == "?":
            why = label(fall["unknown"].get(part["part"], "unknown"))
            table.append([bar["part"], NOTHING, "", "", why])
        else:
            why = PARTS.get(part["part"], "")
            # The interval of a loss is that of the change with its ends swapped.
            ends = signed_interval(part["ci"] and [0.0 - end for end in reversed(part["ci"])])
            table.append([bar["part"], change, ends, f"{part['queries']:,}", why])
        told = f"{bar['part']} {change}" + (f": {why}" if why else "")
        rows.append(bar | {"name": change, "told": told})
    rows.append(mean | {"told": f"value {mean['name']}: the mean of {queries}"})
    table.append(["value", mean["name"], "", f"{fall['n']:,}", ""])
    return rows, table
