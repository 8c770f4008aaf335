"""Quality against latency as a chart of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from karat.reports.figures import NOTHING, figure, interval, label
from karat.reports.grids import Grid
from karat.reports.html.chart_labels import Place, placed
from karat.reports.html.chart_parts import (
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
from karat.reports.html.chart_times import TOTAL
from karat.reports.latencies import ms

Row = Mapping[str, Any]


def trade_charts(document: Document) -> Iterator[Chart]:
    """The measure that decides against the median of a whole call, of systems that have both."""
    measure = _deciding(document)
    if measure is None:
        return
    rows = [_point(at, one, measure) for at, one in enumerate(document["systems"])]
    points = [row for row in rows if row is not None]
    if not points:
        return
    lower = any(_lower_is_better(one, measure) for one in document["systems"])
    for row in points:
        row["beaten"] = [one["system"] for one in points if _beats(one, row, lower=lower)]
        row["front"] = not row["beaten"]
    yield Chart(
        id="trade",
        section="trade",
        title=f"{label(measure)} against the median of a whole call",
        about=_about(points, measure),
        spec=_spec(points, measure),
        table=_table(document, points, measure),
        keys=_keys(points),
    )


def _keys(points: Sequence[Row]) -> tuple[Key, ...]:
    found = keys_of({row["at"]: row["system"] for row in points})
    joined = sum(row["front"] for row in points) > 1
    return (*found, Key("none beats these in both", MUTED, DASH)) if joined else found


def _deciding(document: Document) -> str | None:
    """The measure that a comparison was decided by, else the first that has a better side."""
    for decision in document.get("decisions", ()):
        return str(decision["measure"])
    measures = document["systems"][0]["measures"]
    sided = [name for name, own in measures.items() if own["better"] != "none"]
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
    told = f"{name}: {figure(quality['mean'])} {interval(quality['ci'])}".rstrip()
    told += f" at {ms(median['value'])} ms"
    here = {"at": at, "system": name, "quality": quality["mean"], "low": low, "high": high}
    return here | {"latency": median["value"], "early": early, "late": late, "told": told}


def _beats(other: Row, row: Row, *, lower: bool) -> bool:
    """Not worse in either, and better in one."""
    up = -1.0 if lower else 1.0
    own = (up * row["quality"], -row["latency"])
    theirs = (up * other["quality"], -other["latency"])
    return theirs != own and all(a >= b for a, b in zip(theirs, own, strict=True))


def _about(points: Sequence[Row], measure: str) -> str:
    ranked = sorted(points, key=lambda row: (row["latency"], row["at"]))
    told = {
        row["at"]: f"{shown(row['system'])} ({figure(row['quality'])} at {ms(row['latency'])} ms)"
        for row in ranked
    }
    if len(points) == 1:
        return f"The {label(measure)} of {told[ranked[0]['at']]} stands alone."
    front = [row for row in ranked if row["front"]]
    named = [told[row["at"]] for row in front[:NAMED]]
    more = len(front) - len(named)
    named += [f"{more} more"] if more else []
    sentence = f"None beats {listed(named)} in both {label(measure)} and latency"
    if rest := len(points) - len(front):
        sentence += f"; {rest} of {len(points)} systems {'is' if rest == 1 else 'are'} beaten"
    return f"{sentence}."


def _spec(points: Sequence[Row], measure: str) -> Spec:
    times = [row[name] for row in points for name in ("latency", "early", "late")]
    x = amounts("latency", [one for one in times if one is not None], "median of a whole call, ms")
    values = [row[name] for row in points for name in ("quality", "low", "high")]
    y: Spec = {"field": "quality", "type": "quantitative", "title": label(measure)}
    y |= {"scale": scale_of([one for one in values if one is not None])}
    dots = [Place(row["latency"], row["quality"], row["system"]) for row in points]
    ends = (one["scale"]["domain"] for one in (x, y))
    places = placed(dots, *ends, by_ratio=x["scale"]["type"] == "log")
    rows = [{**row, **place} for row, place in zip(points, places, strict=True)]
    return {
        "height": HEIGHT,
        "data": {"values": rows},
        "layer": [_front(x, y), *_spreads(rows, x, y), _points(rows, x, y), _labels(x, y)],
    }


def _front(x: Spec, y: Spec) -> Spec:
    """Steps along those that none beats."""
    return {
        "transform": [{"filter": "datum.front"}],
        "mark": {"type": "line", "interpolate": "step-after", "color": MUTED, "strokeDash": [4, 4]},
        "encoding": {"x": x, "y": y},
    }


def _spreads(rows: Sequence[Row], x: Spec, y: Spec) -> Iterator[Spec]:
    """The intervals, across and upright."""
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
    """Names beside their points, where there is room; the legend has them all."""
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


def _table(document: Document, points: Sequence[Row], measure: str) -> Grid:
    """The fastest first, then those that lack one of the two."""
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
