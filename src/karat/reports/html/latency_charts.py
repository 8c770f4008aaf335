"""Charts of a page about time: latency by stage, and quality against latency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from karat.analysis.diagnose.latency import ms
from karat.pages.charts import WORD_AXIS
from karat.pages.formatting import NOTHING, figure, interval, label
from karat.pages.page import Grid
from karat.reports.html.charts import (
    DASH,
    HEIGHT,
    MUTED,
    TOOLTIP,
    Key,
    ReportChart,
    Spec,
    amounts,
    first_few,
    keys_of,
    layer,
    marked,
    scale_of,
    shown,
)
from karat.reports.html.elements import Document

TOTAL = "total"
# The figures that a stage is drawn by, and those that its table has besides.
_DRAWN = ("p50", "p95")
_SHOWN = ("mean", "p50", "p90", "p95", "p99")
# The height of a line, and of a stage at least.
_STEP, _LEAST = 15, 34


def latency_charts(document: Document) -> Iterator[ReportChart]:
    """Yield one chart of all stages of all systems: from the median to the 95th percentile."""
    rows = [row for at, system in enumerate(document["systems"]) for row in _stages(at, system)]
    if not rows:
        return
    names = {row["at"]: row["system"] for row in rows}
    yield ReportChart(
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


def _about(rows: Sequence[Document]) -> str:
    """Return the chart in a sentence: the whole call if it was timed, else the first stage."""
    stage = TOTAL if any(row["stage"] == TOTAL for row in rows) else rows[0]["stage"]
    calls = sorted((row for row in rows if row["stage"] == stage), key=lambda row: row["p50"])
    medians = [f"{ms(row['p50'])} ms with {shown(row['system'])}" for row in calls]
    what = "A call" if stage == TOTAL else f"{stage[0].upper()}{stage[1:]}"
    return f"{what} takes {first_few(medians)} at the median."


def _spec(rows: Sequence[Document]) -> Spec:
    stages = _ordered([row["stage"] for row in rows])
    places = sorted({row["at"] for row in rows})
    y: Spec = {"field": "stage", "type": "nominal", "sort": stages, "axis": WORD_AXIS}
    y |= {"scale": {"paddingInner": 0.25, "paddingOuter": 0.15}}
    # Within a stage the systems stand in the order of the report.
    offset = {"field": "at", "type": "nominal", "sort": places, "scale": {"domain": places}}
    x = amounts("p50", [row[key] for row in rows for key in _DRAWN if row[key] is not None], "ms")
    colour, shape = marked(places), marked(places, shaped=True)
    rule = {"type": "rule", "strokeWidth": 3, "opacity": 0.45}
    tick = {"type": "tick", "thickness": 2, "size": 11, "opacity": 1}
    point = {"type": "point", "filled": True, "size": 64, "opacity": 1}
    timed, slow = "isValid(datum.p95)", x | {"field": "p95"}
    layers = [
        layer(rule, timed, x=x, x2={"field": "p95"}, y=y, yOffset=offset, **colour),
        layer(tick, timed, x=slow, y=y, yOffset=offset, **colour, tooltip=TOOLTIP),
        layer(point, x=x, y=y, yOffset=offset, **shape, tooltip=TOOLTIP),
    ]
    height = len(stages) * max(_STEP * len(places), _LEAST)
    return {"height": height, "data": {"values": list(rows)}, "layer": layers}


def _ordered(stages: Sequence[str]) -> list[str]:
    """Return the stages as logged, the whole call last."""
    return sorted(dict.fromkeys(stages), key=lambda stage: stage == TOTAL)


def _table(document: Document) -> Grid:
    grid: Grid = [["stage", "system", "n", *_SHOWN]]
    timed = [system for system in document["systems"] if "latency" in system]
    for stage in _ordered([name for system in timed for name in system["latency"]["stages"]]):
        for system in timed:
            if times := system["latency"]["stages"].get(stage):
                cells = [ms(times[name]["value"]) for name in _SHOWN]
                grid.append([label(stage), label(system["name"]), f"{times['n']:,}", *cells])
    return grid


def trade_charts(document: Document) -> Iterator[ReportChart]:
    """Yield the deciding measure over the median of a whole call, for systems with both."""
    measure = _deciding(document)
    if measure is None:
        return
    rows = [_point(at, system, measure) for at, system in enumerate(document["systems"])]
    points = [row for row in rows if row is not None]
    if not points:
        return
    lower = any(
        system["measures"].get(measure, {}).get("better") == "lower"
        for system in document["systems"]
    )
    for row in points:
        row["beaten"] = [point["system"] for point in points if _beats(point, row, lower=lower)]
        row["front"] = not row["beaten"]
    yield ReportChart(
        id="trade",
        section="trade",
        title=f"{label(measure)} against the median of a whole call",
        about=_trade_sentence(points, measure),
        spec=_trade_spec(points, measure),
        table=_trade_table(document, points, measure),
        keys=_keys(points),
    )


def _keys(points: Sequence[Document]) -> tuple[Key, ...]:
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


def _beats(other: Document, row: Document, *, lower: bool) -> bool:
    """Return whether a system is not worse in either and better in one."""
    up = -1.0 if lower else 1.0
    values = (up * row["quality"], -row["latency"])
    others = (up * other["quality"], -other["latency"])
    return others != values and all(a >= b for a, b in zip(others, values, strict=True))


def _trade_sentence(points: Sequence[Document], measure: str) -> str:
    front = sorted(
        (row for row in points if row["front"]), key=lambda row: (row["latency"], row["at"])
    )
    texts = [
        f"{shown(row['system'])} ({figure(row['quality'])} at {ms(row['latency'])} ms)"
        for row in front
    ]
    return f"No system beats {first_few(texts)} in both {label(measure)} and latency."


def _trade_spec(points: Sequence[Document], measure: str) -> Spec:
    """Return points with their intervals, and a step line along those that no other beats."""
    times = [row[name] for row in points for name in ("latency", "early", "late")]
    known = [time for time in times if time is not None]
    x = amounts("latency", known, "median of a whole call, ms")
    values = [row[name] for row in points for name in ("quality", "low", "high")]
    y: Spec = {"field": "quality", "type": "quantitative", "title": label(measure)}
    y |= {"scale": scale_of([value for value in values if value is not None])}
    places = [row["at"] for row in points]
    colour = marked(places)
    rule = {"type": "rule", "strokeWidth": 1.5, "opacity": 0.5}
    point = {"type": "point", "filled": True, "size": 90, "opacity": 1}
    step = {"type": "line", "interpolate": "step-after", "color": MUTED, "strokeDash": [4, 4]}
    layers = [
        layer(step, "datum.front", x=x, y=y),
        layer(
            rule, "isValid(datum.low)", x=x, y=y | {"field": "low"}, y2={"field": "high"}, **colour
        ),
        layer(
            rule,
            "isValid(datum.early)",
            x=x | {"field": "early"},
            x2={"field": "late"},
            y=y,
            **colour,
        ),
        layer(point, x=x, y=y, **marked(places, shaped=True), tooltip=TOOLTIP),
    ]
    return {"height": HEIGHT, "data": {"values": list(points)}, "layer": layers}


def _trade_table(document: Document, points: Sequence[Document], measure: str) -> Grid:
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
