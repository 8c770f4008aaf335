"""Measures over k as charts of a page: a line with its band for each system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.analysis.sweep.curves import K, size_of
from karat.analysis.sweep.page import k_axis
from karat.pages.formatting import NOTHING, figure, interval, label, measured
from karat.pages.page import Grid
from karat.report.html.charts import (
    DASH,
    HEIGHT,
    LINE,
    MUTED,
    NAMED,
    PATCH,
    RING,
    Chart,
    Document,
    Key,
    Spec,
    keys_of,
    listed,
    marked,
    scale_of,
    shown,
    tooltip,
)

# The bands of more lines than these would overlap.
_FEW = 3
_DASHES = [4, 4]


@dataclass(frozen=True)
class _Curves:
    """One measure of the systems that have it, by their index in the report."""

    measure: str
    names: Mapping[int, str]
    lines: Mapping[int, Document]

    @property
    def ks(self) -> list[K]:
        found = {point["k"] for line in self.lines.values() for point in line["points"]}
        return sorted(found, key=lambda k: (size_of(k), str(k)))

    @property
    def measured(self) -> list[K]:
        """The cut-offs at which any system has a value."""
        return [k for k in self.ks if self.at(k)]

    def at(self, k: K) -> dict[int, Document]:
        """The points of the systems at a cut-off, those with a value."""
        points = {at: self.point(at, k) for at in self.lines}
        return {
            at: point
            for at, point in points.items()
            if point is not None and point["mean"] is not None
        }

    def point(self, at: int, k: K) -> Document | None:
        return next((point for point in self.lines[at]["points"] if point["k"] == k), None)

    @property
    def ceilings(self) -> dict[K, float]:
        """The best reachable value at each k; nothing where that is 1 (or 0) throughout."""
        ceilings: dict[K, float] = {}
        for k in self.ks:
            known = [
                point["ceiling"] for point in self.at(k).values() if point["ceiling"] is not None
            ]
            if known:
                ceilings[k] = max(known)
        return {} if set(ceilings.values()) <= {0.0, 1.0} else ceilings


def curve_charts(document: Document) -> Iterator[Chart]:
    """Yield a chart for each measure of the sweep, with every system that has it."""
    systems = {at: system for at, system in enumerate(document["systems"]) if "sweep" in system}
    measures = dict.fromkeys(
        name for system in systems.values() for name in system["sweep"]["measures"]
    )
    for number, measure in enumerate(measures):
        swept = {at: system["sweep"]["measures"].get(measure) for at, system in systems.items()}
        lines = {at: line for at, line in swept.items() if line is not None}
        names = {at: label(systems[at]["name"]) for at in lines}
        curves = _Curves(measure, names, lines)
        if curves.measured:
            k, share = (document["conventions"].get(name) for name in ("k", "ci"))
            yield _chart(f"curve-{number}", curves, k, share)


def _chart(name: str, curves: _Curves, k: int | None, share: float | None) -> Chart:
    return Chart(
        id=name,
        section="curves",
        title=f"{label(curves.measure)} over k",
        # If the k of the report was not measured, the largest that was.
        about=_about(curves, k if k in curves.measured else curves.measured[-1]),
        spec=_spec(curves, k),
        table=_table(curves),
        keys=(*keys_of(curves.names), *_other_keys(curves, share)),
    )


def _other_keys(curves: _Curves, share: float | None) -> Iterator[Key]:
    """Yield legend entries for bands, rings and the ceiling."""
    points = [point for k in curves.measured for point in curves.at(k).values()]
    if any(point["ci"] is not None for point in points):
        yield Key("interval" if share is None else f"{100 * share:g} % interval", LINE, PATCH)
    if any(line["knee"] is not None for line in curves.lines.values()):
        yield Key("levels off here", MUTED, RING)
    if curves.ceilings:
        yield Key("best reachable", MUTED, DASH)


def _about(curves: _Curves, k: K) -> str:
    points = curves.at(k)
    ranked = sorted(points, key=lambda at: -points[at]["mean"])
    names = {at: shown(curves.names[at]) for at in ranked}
    values_text = {at: _value(points[at]) for at in ranked}
    what = f"{label(curves.measure)} at k = {k}"
    if len(ranked) > NAMED:
        best, worst = ranked[0], ranked[-1]
        ends = f"highest for {names[best]} ({values_text[best]}) and lowest for {names[worst]}"
        return f"{what} of {len(ranked)} systems is {ends} ({values_text[worst]})."
    if len(curves.names) == 1:
        return f"{what} is {values_text[ranked[0]]}; {_knees({'it': curves.lines[ranked[0]]})}."
    values = listed([f"{values_text[at]} for {names[at]}" for at in ranked])
    return f"{what} is {values}; {_knees({names[at]: curves.lines[at] for at in ranked})}."


def _value(point: Document) -> str:
    return f"{figure(point['mean'])} {interval(point['ci'])}".rstrip()


def _knees(lines: Mapping[str, Document]) -> str:
    """Return where the curves level off, systems with the same knee together."""
    knees: dict[K | None, list[str]] = {}
    for who, line in lines.items():
        knees.setdefault(line["knee"], []).append(who)
    flat = [
        f"{listed(names)} {'levels' if len(names) == 1 else 'level'} off at k = {knee}"
        for knee, names in knees.items()
        if knee is not None
    ]
    steep = [f"no knee for {listed(knees[None])}"] if None in knees else []
    return ", ".join(flat + steep)


def _table(curves: _Curves) -> Grid:
    """Return a row for each k, the systems side by side, and where each levels off."""
    ceilings = curves.ceilings
    grid: Grid = [["k", *curves.names.values(), *(["best reachable"] if ceilings else [])]]
    for k in curves.ks:
        cells = [_cell(curves, at, k) for at in curves.lines]
        grid.append([str(k), *cells, *([figure(ceilings.get(k))] if ceilings else [])])
    knees = [line["knee"] for line in curves.lines.values()]
    if any(knee is not None for knee in knees):
        knee_cells = [NOTHING if knee is None else str(knee) for knee in knees]
        grid.append(["levels off at", *knee_cells, *([""] if ceilings else [])])
    return grid


def _cell(curves: _Curves, at: int, k: K) -> str:
    point = curves.point(at, k)
    return NOTHING if point is None else measured(point)


def _rows(curves: _Curves) -> list[dict[str, Any]]:
    rows = []
    for k in curves.measured:
        for at, point in curves.at(k).items():
            low, high = point["ci"] or (None, None)
            knee = k == curves.lines[at]["knee"]
            text = f"{curves.names[at]}: {_value(point)} at k = {k}, n = {point['n']:,}"
            text += "; levels off here" if knee else ""
            place = {"at": at, "k": size_of(k), "mean": point["mean"], "low": low, "high": high}
            rows.append(place | {"knee": knee, "told": text})
    return rows


def _spec(curves: _Curves, k: int | None) -> Spec:
    rows = _rows(curves)
    places = [size_of(cutoff) for cutoff in curves.ks]
    in_tokens = isinstance(curves.ks[0], str)
    x = k_axis(places, title="tokens" if in_tokens else "k") | {"field": "k"}
    best = [{"k": size_of(cutoff), "mean": value} for cutoff, value in curves.ceilings.items()]
    ends = [row[name] for row in rows for name in ("mean", "low", "high") if row[name] is not None]
    scale = scale_of([*ends, *(row["mean"] for row in best)])
    y = {"field": "mean", "type": "quantitative", "title": None, "scale": scale}
    layers = [*_ceiling(best, x, y), *_lines(rows, x, y)]
    if not in_tokens and k is not None and min(places) <= k <= max(places):
        layers = [*_mark_of(k, x), *layers]
    return {"height": HEIGHT, "data": {"values": rows}, "layer": layers}


def _mark_of(k: int, x: Spec) -> Iterator[Spec]:
    """Yield a dashed line at the k of the report, with its name above."""
    at = {"data": {"values": [{"k": k, "name": f"k = {k}"}]}}
    yield at | {
        "mark": {"type": "rule", "color": MUTED, "strokeDash": _DASHES},
        "encoding": {"x": x},
    }
    yield at | {
        "mark": {"type": "text", "color": MUTED, "baseline": "bottom", "dy": -4},
        "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "name"}},
    }


def _ceiling(best: Sequence[Mapping[str, Any]], x: Spec, y: Spec) -> Iterator[Spec]:
    if best:
        mark = {"type": "line", "color": MUTED, "strokeDash": _DASHES, "strokeWidth": 1.5}
        # A single point is no line.
        alone = {"type": "tick", "orient": "horizontal", "color": MUTED}
        shape = mark if len(best) > 1 else alone
        yield {"data": {"values": list(best)}, "mark": shape, "encoding": {"x": x, "y": y}}


def _lines(rows: Sequence[Mapping[str, Any]], x: Spec, y: Spec) -> list[Spec]:
    """Return bands below lines below rings below points; a single k has a rule for a band."""
    places = sorted({row["at"] for row in rows})
    colour = marked(places)
    pale = {"type": "area", "opacity": 0.16 if len(places) <= _FEW else 0.06}
    upright = {"type": "rule", "strokeWidth": 2, "opacity": 0.5}
    ends = {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    one_k = len({row["k"] for row in rows}) == 1
    ring = {"type": "point", "size": 240, "shape": "circle", "strokeWidth": 1.5, "opacity": 1}
    point = {"type": "point", "filled": True, "size": 48, "opacity": 1}
    return [
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": upright if one_k else pale,
            "encoding": {"x": x, **ends, **colour},
        },
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, **colour}},
        {
            "transform": [{"filter": "datum.knee"}],
            "mark": ring,
            "encoding": {"x": x, "y": y, **colour},
        },
        {
            "mark": point,
            "encoding": {"x": x, "y": y, **marked(places, shaped=True), "tooltip": tooltip()},
        },
    ]
