"""Latency by stage as a chart of a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from karat.analysis.latency import ms
from karat.pages.formatting import NOTHING, figure, interval, label, percent
from karat.pages.page import Grid
from karat.report.html.charts import (
    DASH,
    HEIGHT,
    MUTED,
    NAMED,
    Chart,
    Document,
    Key,
    Spec,
    amounts,
    keys_of,
    listed,
    marked,
    scale_of,
    shown,
    tooltip,
)

TOTAL = "total"
# The figures that a stage is drawn by, and those that its table has besides.
_DRAWN = ("p50", "p95")
_SHOWN = ("mean", "p50", "p90", "p95", "p99")
# The height of a line, and of a stage at least.
_STEP, _LEAST = 15, 34

Row = Mapping[str, Any]


def latency_charts(document: Document) -> Iterator[Chart]:
    """Yield one chart of all stages of all systems: from the median to the 95th percentile."""
    rows = [row for at, system in enumerate(document["systems"]) for row in _stages(at, system)]
    if not rows:
        return
    names = {row["at"]: row["system"] for row in rows}
    yield Chart(
        id="latency",
        section="latency",
        title="From the median (p50) to p95 of each stage, in ms",
        about=_about(rows),
        spec=_spec(rows),
        table=_table(document),
        keys=keys_of(names),
    )


def _stages(at: int, system: Document) -> Iterator[dict[str, Any]]:
    """Yield the stages of a system that have a median; few calls have no p95."""
    for stage, times in system.get("latency", {"stages": {}})["stages"].items():
        middle, high = (times[name]["value"] for name in _DRAWN)
        if middle is None:
            continue
        name = label(system["name"])
        text = f"{name}, {label(stage)}: p50 {ms(middle)} ms"
        text += ("" if high is None else f", p95 {ms(high)} ms") + f", n = {times['n']:,}"
        row = {"at": at, "system": name, "stage": label(stage), "p50": middle, "p95": high}
        yield row | {"share": times.get("share"), "told": text}


def _about(rows: Sequence[Row]) -> str:
    """Return the chart in a sentence: the whole call if it was timed, else the first stage."""
    stage = TOTAL if any(row["stage"] == TOTAL for row in rows) else rows[0]["stage"]
    calls = sorted((row for row in rows if row["stage"] == stage), key=lambda row: row["p50"])
    what = "a call" if stage == TOTAL else stage
    if len(calls) > NAMED:
        fast, slow = calls[0], calls[-1]
        ends = f"{ms(fast['p50'])} ms with {shown(fast['system'])}, the fastest of {len(calls)}"
        ends += f" systems, to {ms(slow['p50'])} ms with {shown(slow['system'])}, the slowest"
        return f"The median of {what} goes from {ends}{_longest(rows, slow)}."
    several = len({row["at"] for row in rows}) > 1
    parts = []
    for row in calls:
        whose = f" with {shown(row['system'])}" if several else ""
        times = f"{ms(row['p50'])} ms at the median"
        times += "" if row["p95"] is None else f" and {ms(row['p95'])} ms at p95"
        parts.append(f"{times}{whose}{_longest(rows, row)}")
    return f"{what[0].upper()}{what[1:]} takes {'; '.join(parts)}."


def _longest(rows: Sequence[Row], call: Row) -> str:
    """Return where a system spends most of its time, if its stages are timed."""
    parts = [row for row in rows if row["at"] == call["at"] and row["share"] is not None]
    if not parts or call["stage"] != TOTAL:
        return ""
    most = max(parts, key=lambda row: row["share"])
    return f", {percent(most['share'])} of it in {shown(most['stage'])}"


def _spec(rows: Sequence[Row]) -> Spec:
    stages = _ordered([row["stage"] for row in rows])
    places = sorted({row["at"] for row in rows})
    axis = {"title": None, "domain": False, "ticks": False, "labelPadding": 6, "labelLimit": 110}
    y = {"field": "stage", "type": "nominal", "sort": stages, "axis": axis}
    y |= {"scale": {"paddingInner": 0.25, "paddingOuter": 0.15}}
    # Within a stage the systems stand in the order of the report.
    offset = {"field": "at", "type": "nominal", "sort": places, "scale": {"domain": places}}
    times = [row[name] for row in rows for name in _DRAWN if row[name] is not None]
    x = amounts("p50", times, "ms")
    here = {"y": y, "yOffset": offset}
    colour = marked(places)
    tick = {"type": "tick", "thickness": 2, "size": 11, "opacity": 1}
    point = {"type": "point", "filled": True, "size": 64, "opacity": 1}
    timed = [{"filter": "isValid(datum.p95)"}]
    shape = marked(places, shaped=True)
    return {
        "height": len(stages) * max(_STEP * len(places), _LEAST),
        "data": {"values": list(rows)},
        "layer": [
            {
                "transform": timed,
                "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.45},
                "encoding": {"x": x, "x2": {"field": "p95"}, **here, **colour},
            },
            {
                "transform": timed,
                "mark": tick,
                "encoding": {"x": x | {"field": "p95"}, **here, **colour, "tooltip": tooltip()},
            },
            {"mark": point, "encoding": {"x": x, **here, **shape, "tooltip": tooltip()}},
        ],
    }


def _ordered(stages: Sequence[str]) -> list[str]:
    """Return the stages as logged, the whole call last."""
    return sorted(dict.fromkeys(stages), key=lambda stage: stage == TOTAL)


def _table(document: Document) -> Grid:
    grid: Grid = [["stage", "system", "n", *_SHOWN]]
    timed = [system for system in document["systems"] if "latency" in system]
    for stage in _ordered(
        [stage for timed_system in timed for stage in timed_system["latency"]["stages"]]
    ):
        for system in timed:
            if times := system["latency"]["stages"].get(stage):
                cells = [ms(times[name]["value"]) for name in _SHOWN]
                grid.append([label(stage), label(system["name"]), f"{times['n']:,}", *cells])
    return grid


# A plot as narrow as a phone shows it; a wider one only leaves more room.
_WIDTH, _HEIGHT = 240.0, 250.0
_LETTER, _LINE, _POINT, _AWAY = 7.0, 13.0, 6.0, 5.0
# Of a longer name a label has the beginning; so much fits on one side of any point.
_LONGEST = 16


class NamedPoint(NamedTuple):
    """A point and its name."""

    x: float
    y: float
    name: str


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other: _Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.bottom <= other.top or other.bottom <= self.top)

    @property
    def inside(self) -> bool:
        return self.left >= 0 and self.right <= _WIDTH


Ends = Sequence[float]


def place_names(
    points: Sequence[NamedPoint], across: Ends, upright: Ends, *, by_ratio: bool = False
) -> list[dict[str, Any]]:
    """Return for each point its name and position; no name if every corner is taken.

    ``across`` and ``upright`` are the ends of the axes.
    """
    dots = [
        (
            _WIDTH * _share(point.x, across, by_ratio=by_ratio),
            _HEIGHT * (1 - _share(point.y, upright)),
        )
        for point in points
    ]
    taken = [_Box(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y in dots]
    names = []
    for point, (x, y) in zip(points, dots, strict=True):
        name = point.name if len(point.name) <= _LONGEST else f"{point.name[: _LONGEST - 1]}…"
        free: dict[str, Any] = {"name": None, "align": "left", "dx": 0, "dy": 0}
        for corner, box in _corners(x, y, _LETTER * len(name)):
            if box.inside and not any(box.covers(other) for other in taken):
                taken.append(box)
                free = {"name": name, **corner}
                break
        names.append(free)
    return names


def _share(value: float, ends: Ends, *, by_ratio: bool = False) -> float:
    at, low, high = (math.log(number) if by_ratio else number for number in (value, *ends))
    return (at - low) / (high - low)


def _corners(x: float, y: float, width: float) -> Iterator[tuple[dict[str, Any], _Box]]:
    """Yield the four corners of a point, above first, right first."""
    for down in (-1, 1):
        for right in (1, -1):
            near = x + right * _AWAY
            middle = y + down * _LINE
            left = near if right > 0 else near - width
            box = _Box(left, middle - _LINE / 2, left + width, middle + _LINE / 2)
            align = "left" if right > 0 else "right"
            yield {"align": align, "dx": right * _AWAY, "dy": down * _LINE}, box


def trade_charts(document: Document) -> Iterator[Chart]:
    """Yield the deciding measure over the median of a whole call, for systems with both."""
    measure = _deciding(document)
    if measure is None:
        return
    rows = [_point(at, system, measure) for at, system in enumerate(document["systems"])]
    points = [row for row in rows if row is not None]
    if not points:
        return
    lower = any(_lower_is_better(system, measure) for system in document["systems"])
    for row in points:
        row["beaten"] = [point["system"] for point in points if _beats(point, row, lower=lower)]
        row["front"] = not row["beaten"]
    yield Chart(
        id="trade",
        section="trade",
        title=f"{label(measure)} against the median of a whole call",
        about=_trade_sentence(points, measure),
        spec=_trade_spec(points, measure),
        table=_trade_table(document, points, measure),
        keys=_keys(points),
    )


def _keys(points: Sequence[Row]) -> tuple[Key, ...]:
    keys = keys_of({row["at"]: row["system"] for row in points})
    joined = sum(row["front"] for row in points) > 1
    return (*keys, Key("no system beats these in both", MUTED, DASH)) if joined else keys


def _deciding(document: Document) -> str | None:
    """Return the measure that decided, else the first for which a direction is better."""
    for decision in document.get("decisions", ()):
        return str(decision["measure"])
    measures = document["systems"][0]["measures"]
    sided = [name for name, summary in measures.items() if summary["better"] != "none"]
    return next(iter([*sided, *measures]), None)


def _lower_is_better(system: Document, measure: str) -> bool:
    return bool(system["measures"].get(measure, {}).get("better") == "lower")


def _point(at: int, system: Document, measure: str) -> dict[str, Any] | None:
    quality = system["measures"].get(measure, {"mean": None})
    total = system.get("latency", {"stages": {}})["stages"].get(TOTAL)
    if quality["mean"] is None or total is None or total["p50"]["value"] is None:
        return None
    name, median = label(system["name"]), total["p50"]
    low, high = quality["ci"] or (None, None)
    early, late = median["ci"] or (None, None)
    text = f"{name}: {figure(quality['mean'])} {interval(quality['ci'])}".rstrip()
    text += f" at {ms(median['value'])} ms"
    here = {"at": at, "system": name, "quality": quality["mean"], "low": low, "high": high}
    return here | {"latency": median["value"], "early": early, "late": late, "told": text}


def _beats(other: Row, row: Row, *, lower: bool) -> bool:
    """Return whether a system is not worse in either and better in one."""
    up = -1.0 if lower else 1.0
    mine = (up * row["quality"], -row["latency"])
    theirs = (up * other["quality"], -other["latency"])
    return theirs != mine and all(a >= b for a, b in zip(theirs, mine, strict=True))


def _trade_sentence(points: Sequence[Row], measure: str) -> str:
    ranked = sorted(points, key=lambda row: (row["latency"], row["at"]))
    texts = {
        row["at"]: f"{shown(row['system'])} ({figure(row['quality'])} at {ms(row['latency'])} ms)"
        for row in ranked
    }
    if len(points) == 1:
        return f"The {label(measure)} of {texts[ranked[0]['at']]} is the only one with both."
    front = [row for row in ranked if row["front"]]
    named = [texts[row["at"]] for row in front[:NAMED]]
    more = len(front) - len(named)
    named += [f"{more} more"] if more else []
    sentence = f"No system beats {listed(named)} in both {label(measure)} and latency"
    if rest := len(points) - len(front):
        sentence += f"; {rest} of {len(points)} systems {'is' if rest == 1 else 'are'} beaten"
    return f"{sentence}."


def _trade_spec(points: Sequence[Row], measure: str) -> Spec:
    times = [row[name] for row in points for name in ("latency", "early", "late")]
    x = amounts(
        "latency", [time for time in times if time is not None], "median of a whole call, ms"
    )
    values = [row[name] for row in points for name in ("quality", "low", "high")]
    y: Spec = {"field": "quality", "type": "quantitative", "title": label(measure)}
    y |= {"scale": scale_of([value for value in values if value is not None])}
    dots = [NamedPoint(row["latency"], row["quality"], row["system"]) for row in points]
    ends = (axis["scale"]["domain"] for axis in (x, y))
    places = place_names(dots, *ends, by_ratio=x["scale"]["type"] == "log")
    rows = [{**row, **place} for row, place in zip(points, places, strict=True)]
    return {
        "height": HEIGHT,
        "data": {"values": rows},
        "layer": [_front(x, y), *_spreads(rows, x, y), _points(rows, x, y), _labels(x, y)],
    }


def _front(x: Spec, y: Spec) -> Spec:
    """Return a step line along the systems that no other beats."""
    return {
        "transform": [{"filter": "datum.front"}],
        "mark": {"type": "line", "interpolate": "step-after", "color": MUTED, "strokeDash": [4, 4]},
        "encoding": {"x": x, "y": y},
    }


def _spreads(rows: Sequence[Row], x: Spec, y: Spec) -> Iterator[Spec]:
    """Yield the intervals, horizontal and vertical."""
    colour = marked([row["at"] for row in rows])
    rule = {"type": "rule", "strokeWidth": 1.5, "opacity": 0.5}
    yield {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": rule,
        "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, **colour},
    }
    yield {
        "transform": [{"filter": "isValid(datum.early)"}],
        "mark": rule,
        "encoding": {"x": x | {"field": "early"}, "x2": {"field": "late"}, "y": y, **colour},
    }


def _points(rows: Sequence[Row], x: Spec, y: Spec) -> Spec:
    marks = marked([row["at"] for row in rows], shaped=True)
    point = {"type": "point", "filled": True, "size": 90, "opacity": 1}
    return {"mark": point, "encoding": {"x": x, "y": y, **marks, "tooltip": tooltip()}}


def _labels(x: Spec, y: Spec) -> Spec:
    """Return names beside their points, where there is room; the legend has them all."""
    return {
        "transform": [{"filter": "isValid(datum.name)"}],
        "mark": {
            "type": "text",
            "align": {"expr": "datum.align"},
            "dx": {"expr": "datum.dx"},
            "dy": {"expr": "datum.dy"},
        },
        "encoding": {"x": x, "y": y, "text": {"field": "name"}},
    }


def _trade_table(document: Document, points: Sequence[Row], measure: str) -> Grid:
    """Return the systems by latency, then those without a latency or value."""
    grid: Grid = [["system", label(measure), "interval", "p50 ms", "what"]]
    for row in sorted(points, key=lambda row: (row["latency"], row["at"])):
        ends = interval(None if row["low"] is None else [row["low"], row["high"]])
        verdict = "front" if row["front"] else f"beaten by {', '.join(row['beaten'])}"
        grid.append([row["system"], figure(row["quality"]), ends, ms(row["latency"]), verdict])
    drawn = {row["at"] for row in points}
    for at, system in enumerate(document["systems"]):
        if at not in drawn:
            mean = system["measures"].get(measure, {}).get("mean")
            lacks = f"has no {label(measure)}" if mean is None else "has no latency"
            grid.append([label(system["name"]), figure(mean), "", NOTHING, lacks])
    return grid
