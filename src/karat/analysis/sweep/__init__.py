"""How measures change with the cut-off k: curve, knee, area, headroom and cost.

``curves`` measures one run; the front, the table, the page and the chart are here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from karat.analysis import Analysis, stage_runs
from karat.analysis.sweep.curves import (
    DEFAULT_KS,
    DEFAULT_MEASURES,
    FLAT,
    TOKENS,
    Budget,
    K,
    default_sweep,
    parse_curves,
    parse_ks,
    size_of,
    sweep_system,
)
from karat.errors import MissingInputError, UsageError
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.report_text import conventions_lines, counts_lines
from karat.evaluation.segments import segments_by
from karat.measure.names import Measure, parse_measure
from karat.pages.charts import HEIGHT, WIDTH, Spec, chart_spec, k_axis, line_layers, marks_of
from karat.pages.formatting import (
    NOTHING,
    figure,
    interval,
    label,
    measured,
    number_range,
    plural,
    sparkline,
)
from karat.pages.page import Chart, Grid, Page, Section

__all__ = ["FLAT", "K", "Sweep", "curve_section", "default_sweep", "size_of", "sweep"]

# Further cut-offs of a sweep that names none, if lists go that far.
DEEPER_KS = (50, 100)
_PERCENTILES = ("p50", "p90", "p95", "p99", "mean")
_COLUMNS: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("system", "segment", "value", "measure", "k"), pl.String),
    **dict.fromkeys(("mean", "ci_low", "ci_high"), pl.Float64),
    "n": pl.Int64,
    **dict.fromkeys(("ceiling", "headroom"), pl.Float64),
    "beyond_log": pl.Boolean,
}

Document = Mapping[str, Any]


def sweep(
    evaluation: Evaluation,
    *runs: Any,
    measures: Sequence[str] | None = None,
    ks: str | None = None,
    flat: float = FLAT,
    budget: str | None = None,
) -> Sweep:
    """Measure each run at every cut-off, and find where the curves flatten.

    ``measures`` are written without a cut-off: ``["R", "nDCG"]``. ``ks`` are ranks, ``"1,3,5"``, or
    budgets, ``"500tok,1000tok"``. A curve is flat where no larger k adds more than ``flat`` of its
    highest value. ``budget`` is the cost of k: ``tokens`` (the default with a corpus), or the
    latency of a stage, ``latency.total``. A k beyond the end of the lists is not measured.

    >>> evaluation = karat.Evaluation("qrels.txt")
    >>> result = karat.sweep(evaluation, "dense.jsonl", measures=["R"], ks="1,3,5")
    >>> result.to_frame()["mean"].round(2).to_list()
    [0.41, 0.86, 0.91]
    """
    if not 0 <= flat < 1:
        raise UsageError(f"flat is {flat!r}; it must be a share from 0 to below 1, such as 0.02")
    cost = _parse_budget(budget)
    cutoffs = (*DEFAULT_KS, *DEEPER_KS) if ks is None else parse_ks(ks)
    if isinstance(cutoffs[0], str) and cost == TOKENS:
        raise UsageError("--budget tokens is for ranks; the cut-offs are budgets of tokens already")
    conventions = evaluation.prepared.conventions
    curves = parse_curves(measures or DEFAULT_MEASURES, cutoffs, conventions=conventions)
    if cost is None and evaluation.corpus is not None and isinstance(cutoffs[0], int):
        cost = TOKENS
    scored = [measure for curve in curves for measure in curve.at.values()]
    scored += [cost] if isinstance(cost, Measure) else []
    # Lengths of items are read from the lists that are kept.
    keep = size_of(cutoffs[-1]) if cost == TOKENS else 0
    # Of earlier stages only the gold that they hold matters.
    staged_runs = stage_runs(evaluation, runs, scored, keep=keep, of_stages=())
    if ks is None:
        depths = [staged.depth(staged.final) for staged in staged_runs.systems.values()]
        longest = max((max(depth.longest, depth.asked or 0) for depth in depths), default=0)
        cutoffs = (*DEFAULT_KS, *(k for k in DEEPER_KS if k <= longest))
        curves = [replace(curve, at={k: curve.at[k] for k in cutoffs}) for curve in curves]
    systems: list[dict[str, Any]] = []
    for name, staged in staged_runs.systems.items():
        ids = staged.final.table["query_id"]
        segments = {
            str(column): segments_by(ids, evaluation.queries, column) for column in evaluation.by
        }
        system = sweep_system(staged, curves, flat=flat, segments=segments, budget=cost)
        systems.append({"name": name, **system})
    costs = [system["budget"] for system in systems]
    if budget == TOKENS and not any(costs):
        raise MissingInputError("--budget tokens needs item token counts or texts: give --corpus")
    if isinstance(cost, Measure) and all(known["because"] for known in costs):
        raise MissingInputError(costs[0]["because"])
    body = {"ks": list(cutoffs), "flat": flat, "systems": systems}
    return staged_runs.result(Sweep, body, sweep_page)


def _parse_budget(text: str | None) -> Budget:
    """Return the cost to show for each k; of a latency, its median unless named."""
    if text is None or text == TOKENS:
        return None if text is None else TOKENS
    family, _, stage = text.partition(".")
    if family != "latency" or not stage:
        raise UsageError(
            f"--budget is {text!r}; give tokens, or the latency of a stage, such as latency.total"
        )
    before, _, ending = stage.rpartition(".")
    return parse_measure(text if before and ending in _PERCENTILES else f"{text}.p50")


class Sweep(Analysis):
    """The curves of one or several systems, overall and by segment."""

    def to_frame(self) -> pl.DataFrame:
        """Return one row per system, segment, measure and k; what was not measured is null."""
        points = [point for system in self.body["systems"] for point in _points(system)]
        return pl.DataFrame(points, schema=_COLUMNS)

    @property
    def unmeasured(self) -> str | None:
        """Why nothing was measured; None if anything was."""
        lines = [line for system in self.body["systems"] for line in system["measures"].values()]
        if any(point["mean"] is not None for line in lines for point in line["points"]):
            return super().unmeasured
        return super().unmeasured or "no list is deep enough for any of the cut-offs"


def _points(system: Document) -> Iterator[dict[str, Any]]:
    """Yield every point of every curve, and the cost of each k."""
    groups = [(None, None, system["measures"])]
    for column, values in system["segments"].items():
        groups += [(column, value, lines) for value, lines in values.items()]
    curves = [
        (column, value, name, line)
        for column, value, lines in groups
        for name, line in lines.items()
    ]
    if budget := system["budget"]:
        curves.append((None, None, budget["kind"], {"points": [budget], "knee": None, **budget}))
    for column, value, name, line in curves:
        for point in line["points"]:
            low, high = point["ci"] or (None, None)
            yield {
                "system": system["name"],
                "segment": column,
                "value": value,
                "measure": name,
                **{key: point.get(key) for key in ("mean", "n", "ceiling", "headroom")},
                "k": str(point["k"]),
                "ci_low": low,
                "ci_high": high,
                "beyond_log": point.get("beyond_log", False),
                "knee": point["k"] == line["knee"],
            }


def sweep_page(results: Document) -> Page:
    """Return the page: each curve as a table with its knee, then segments and the cost of k."""
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
    names = [label(system["name"]) for system in systems]
    lines = [system["measures"][name] for system in systems]
    with_headroom = [
        place
        for place, line in enumerate(lines)
        if any(point["headroom"] is not None for point in line["points"])
    ]
    heads = ["headroom"] if len(lines) == 1 else [f"headroom {system}" for system in names]
    grid: Grid = [["k", *names, *(heads[place] for place in with_headroom), "ceiling"]]
    for points in zip(*(line["points"] for line in lines), strict=True):
        headroom = [figure(points[place]["headroom"]) for place in with_headroom]
        # A ceiling of 1 is not shown.
        known = [point["ceiling"] for point in points if point["ceiling"] not in (None, 0.0, 1.0)]
        ceiling = number_range(figure(min(known)), figure(max(known))) if known else ""
        grid.append([str(points[0]["k"]), *map(measured, points), *headroom, ceiling])
    if not any(row[-1] for row in grid[1:]):
        grid = [row[:-1] for row in grid]
    notes = [_line_note(line) for line in lines]
    if len(lines) > 1:
        notes = [f"{system}: {note}" for system, note in zip(names, notes, strict=True)]
    return Section(f"{name} over k", grid, notes)


def _line_note(line: Document) -> str:
    """Return the knee and area of a curve, and its shape in small."""
    note = "no knee"
    if line["knee"] is not None:
        (knee,) = (point for point in line["points"] if point["k"] == line["knee"])
        note = f"knee at k = {line['knee']} ({figure(knee['mean'])})"
    if area := line["area"]:
        value = f"area {figure(area['mean'])} {interval(area['ci'])}".rstrip()
        note += f" · {value} from k = {area['from']} to {area['to']}"
    return f"{sparkline([point['mean'] for point in line['points']]).rstrip()} {note}".lstrip()


def _segment_sections(system: Document, *, named: bool) -> Iterator[Section]:
    whose = f", {label(system['name'])}" if named else ""
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
            yield Section(f"{name} by {label(column)}{whose}", grid)


def _budget_sections(systems: Sequence[Document]) -> Iterator[Section]:
    budgets = {label(system["name"]): system["budget"] for system in systems if system["budget"]}
    timed = [name for name, budget in budgets.items() if budget["kind"] != TOKENS]
    if timed:
        lines = []
        for name in timed:
            budget = budgets[name]
            value = f"{figure(budget['mean'])} ms {interval(budget['ci'])}".rstrip()
            line = f"{budget['kind']} {value} at k = {budget['k']}, the only k with logged times"
            lines.append(f"{name}: {budget['because'] or line}")
        yield Section(lines=lines)
    elif budgets:
        grid: Grid = [["k", *budgets]]
        for points in zip(*(budget["points"] for budget in budgets.values()), strict=True):
            grid.append([str(points[0]["k"]), *map(measured, points)])
        notes = []
        if any(budget["counted"] == "words" for budget in budgets.values()):
            notes.append("words, since the corpus has no token counts")
        for name, budget in budgets.items():
            if unknown := budget["unknown_items"]:
                items = plural(unknown, "item")
                notes.append(
                    f"{name} returns {items} of unknown length; their queries are left out"
                )
        yield Section("tokens of the top k", grid, notes)


def _depth_notes(results: Document) -> Iterator[str]:
    """Yield how deep the lists go, for systems that were not measured at every k."""
    for system in results["systems"]:
        points = next(iter(system["measures"].values()))["points"]
        beyond = [str(point["k"]) for point in points if point["beyond_log"]]
        depth = system["depth"]["final"]
        ends = [depth["cut_at"], results["conventions"]["depth"]]
        last = min((end for end in ends if end is not None), default=depth["longest"])
        if beyond:
            yield (
                f"{label(system['name'])}: lists end at {last};"
                f" not measured ({NOTHING}): k = {', '.join(beyond)}"
            )


def sweep_chart(document: Document) -> Spec:
    """Return measures over k: a panel each, a line per system with its band; below, what k costs.

    To the right, a column of panels for each system and segment column. The point from which
    a line is flat is ringed; points beyond a log are not drawn.
    """
    # Where every list is empty, a latency has no place on the axis.
    rows = [row for row in _chart_rows(document["systems"]) if row["place"]]
    in_tokens = isinstance(document["ks"][0], str)
    sizes = [size_of(k) for k in document["ks"]]
    places = [] if in_tokens else [row["place"] for row in rows]
    axis = {"field": "place", **k_axis(sizes, places, title="tokens" if in_tokens else "k")}
    columns: dict[str, list[Spec]] = {}
    for group, measure in dict.fromkeys((row["group"], row["measure"]) for row in rows):
        names = list(dict.fromkeys(row["who"] for row in rows if row["group"] == group))
        of_measure = [row for row in rows if row["measure"] == measure and row["mean"] is not None]
        drawn = [row for row in of_measure if row["group"] == group]
        # Panels of one measure have one scale, so that they can be compared.
        ends = [row[end] for row in of_measure for end in ("mean", "low", "high")]
        known = [0.0, *(end for end in ends if end is not None)]
        scale = {"domain": [min(known), max(known)], "nice": True} if any(known) else {"zero": True}
        y = {"field": "mean", "type": "quantitative", "title": label(measure), "scale": scale}
        columns.setdefault(group, []).append(_panel(names, drawn, {"x": axis, "y": y}))
    separate = {"scale": {"color": "independent", "shape": "independent"}}
    panels = [
        {
            "title": {"text": group, "subtitle": "ringed: flat from here on"},
            "vconcat": column,
            "spacing": 20,
            "resolve": {"scale": {"color": "shared", "shape": "shared"}},
        }
        for group, column in columns.items()
    ]
    return chart_spec({"concat": panels, "columns": 3, "spacing": 40, "resolve": separate})


def _chart_rows(systems: Sequence[Document]) -> Iterator[dict[str, Any]]:
    """Yield every point, with the column of panels, the measure and the line it belongs to."""
    for system in systems:
        whose = f", {label(system['name'])}" if len(systems) > 1 else ""
        for point in _points(system):
            column, measure = point["segment"], point["measure"]
            yield {
                "group": "all queries" if column is None else f"by {label(column)}{whose}",
                "measure": f"{measure} (ms)" if measure.startswith("latency.") else measure,
                "who": label(system["name"] if column is None else point["value"]),
                "place": size_of(point["k"]),
                "mean": point["mean"],
                "low": point["ci_low"],
                "high": point["ci_high"],
                "knee": point["knee"],
            }


def _panel(names: Sequence[str], rows: Sequence[Mapping[str, Any]], axes: Spec) -> Spec:
    """Return one panel: lines in the colours of their names, points with shapes besides."""
    # Without this the legend would be as pale as the bands.
    who = {"field": "who", "type": "nominal", "title": None, "legend": {"symbolOpacity": 1}}
    colour, shape = (who | {"scale": scale} for scale in marks_of(names).values())
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "encoding": axes,
        "data": {"values": list(rows)},
        "layer": line_layers(rows, "who", {"color": colour}, points={"shape": shape}),
    }
