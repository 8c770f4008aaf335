"""A sweep as a page, as a long table and as a picture; works on its document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from karat.reports.csv_cells import csv_table
from karat.reports.figures import (
    NOTHING,
    PART,
    between,
    figure,
    interval,
    label,
    measured,
    several,
)
from karat.reports.grids import Grid
from karat.reports.notes import conventions_lines, counts_lines
from karat.reports.outputs import PAGE_FORMS, Form, forms_of
from karat.reports.pages import Page, Paper, Section
from karat.reports.sparklines import sparkline

FORMS = forms_of(
    *PAGE_FORMS.values(),
    Form("csv", ".csv", "one row a system, segment, measure and k", "sweeps.to_csv"),
    Form("png", ".png", "the curves as a picture", "sweeps.to_png"),
    Form("svg", ".svg", "the curves as a drawing", "sweeps.to_svg"),
)

Document = Mapping[str, Any]

_COLUMNS: dict[str, type[pl.DataType]] = {
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


def sweep_page(results: Document) -> Page:
    """The curves as tables, each with where it flattens, then segments and what k costs."""
    systems = results["systems"]
    names = ", ".join(label(system["name"]) for system in systems)
    sections = [curve_section(name, results) for name in systems[0]["measures"]]
    for system in systems:
        sections += _segment_sections(system, several_systems=len(systems) > 1)
    return Page(
        title=f"Curves over k: {names}",
        first=[_headline(name, systems) for name in systems[0]["measures"]],
        sections=[*sections, *_budget_sections(systems)],
        last=[
            _rule_line(results["flat"]),
            *_depth_lines(results),
            *counts_lines(results),
            *conventions_lines(results),
        ],
    )


def _rule_line(flat: float) -> str:
    most = f"{100 * flat:g} % of the highest value"
    return f"flat: from the smallest k on that no larger one betters by more than {most}"


def _headline(name: str, systems: Sequence[Document]) -> str:
    lines = {label(system["name"]): system["measures"][name] for system in systems}
    if len(lines) == 1:
        (line,) = lines.values()
        return f"{name} {_flattens(line)}"
    told = (f"{system} {_flattens(line)}" for system, line in lines.items())
    return f"{name}: {'; '.join(told)}"


def _flattens(line: Document) -> str:
    if line["knee"] is None:
        return f"has no knee: {line['knee_because']}"
    return f"flattens at k = {line['knee']}"


def curve_section(name: str, results: Document) -> Section:
    """One measure: a row for each k, the systems side by side, then what order could add."""
    systems = results["systems"]
    lines = [system["measures"][name] for system in systems]
    names = [label(system["name"]) for system in systems]
    grid = [["k", *names, *_headroom_heads(lines, names), "ceiling"]]
    for points in zip(*(line["points"] for line in lines), strict=True):
        room = [figure(p["headroom"]) for p, line in zip(points, lines, strict=True) if _room(line)]
        row = [str(points[0]["k"]), *(measured(point) for point in points), *room]
        grid.append([*row, _ceiling(points)])
    if not any(row[-1] for row in grid[1:]):
        grid = [row[:-1] for row in grid]
    own = names if len(lines) > 1 else [""]
    told = [_line_on(line, one) for one, line in zip(own, lines, strict=True)]
    return Section(f"{name} over k", grid, told)


def _headroom_heads(lines: Sequence[Document], names: Sequence[str]) -> list[str]:
    if len(lines) == 1:
        return ["headroom"] if _room(lines[0]) else []
    return [f"headroom {one}" for one, line in zip(names, lines, strict=True) if _room(line)]


def _room(line: Document) -> bool:
    return any(point["headroom"] is not None for point in line["points"])


def _ceiling(points: Sequence[Document]) -> str:
    """The best reachable value, where it is below what a reader takes for granted."""
    ceilings = [one["ceiling"] for one in points if one["ceiling"] not in (None, 0.0, 1.0)]
    return between(figure(min(ceilings)), figure(max(ceilings))) if ceilings else ""


def _line_on(line: Document, name: str) -> str:
    """The curve, drawn; the knee with its value; and the area below."""
    parts = ["no knee"]
    if line["knee"] is not None:
        (knee,) = (point for point in line["points"] if point["k"] == line["knee"])
        parts = [f"knee at k = {line['knee']} ({figure(knee['mean'])})"]
    if area := line["area"]:
        told = f"area {figure(area['mean'])} {interval(area['ci'])}".rstrip()
        parts.append(f"{told} from k = {area['from']} to {area['to']}")
    drawn = sparkline([point["mean"] for point in line["points"]]).rstrip()
    return " ".join(word for word in (name and f"{name}:", drawn, " · ".join(parts)) if word)


def _segment_sections(system: Document, *, several_systems: bool) -> Iterator[Section]:
    """Segments as rows: how large, where each flattens, and its values."""
    for column, values in system["segments"].items():
        for name, first in next(iter(values.values()), {}).items():
            ks = [str(point["k"]) for point in first["points"]]
            grid: Grid = [[label(column), "n", "knee", *(f"k = {k}" for k in ks)]]
            for value, lines in values.items():
                line = lines[name]
                n = max(point["n"] for point in line["points"])
                knee = NOTHING if line["knee"] is None else str(line["knee"])
                cells = [f"{n} small" if line.get("small") else str(n), knee]
                grid.append([label(value), *cells, *map(measured, line["points"])])
            whose = f", {label(system['name'])}" if several_systems else ""
            yield Section(f"{name} by {label(column)}{whose}", grid)


def _budget_sections(systems: Sequence[Document]) -> Iterator[Section]:
    budgets = {label(one["name"]): one["budget"] for one in systems if one["budget"] is not None}
    tokens = {name: one for name, one in budgets.items() if one["kind"] == "tokens"}
    if tokens:
        grid: Grid = [["k", *tokens]]
        for points in zip(*(one["points"] for one in tokens.values()), strict=True):
            grid.append([str(points[0]["k"]), *map(_tokens, points)])
        yield Section("tokens of the top k", grid, list(_token_lines(tokens)))
    elif budgets:
        yield Section(lines=list(_latency_lines(budgets)))


def _tokens(point: Document) -> str:
    if point["mean"] is None:
        return NOTHING
    low, high = point["ci"] or (None, None)
    ends = "" if low is None else f"[{low:.1f}, {high:.1f}]"
    return f"{point['mean']:.1f}{PART}{ends}"


def _token_lines(tokens: Mapping[str, Document]) -> Iterator[str]:
    if any(one["counted"] == "words" for one in tokens.values()):
        yield "words, since the corpus has no token counts"
    for name, one in tokens.items():
        if unknown := one["unknown_items"]:
            items = several(unknown, "item")
            yield f"{name} returns {items} of unknown length: queries with one are left out"


def _latency_lines(budgets: Mapping[str, Document]) -> Iterator[str]:
    for name, one in budgets.items():
        if one["because"]:
            yield f"{name}: {one['because']}"
            continue
        told = f"{figure(one['mean'])} ms {interval(one['ci'])}".rstrip()
        yield f"{name}: {one['kind']} {told} at k = {one['k']}, the one k that its log times"


def _depth_lines(results: Document) -> Iterator[str]:
    """How deep the lists go, where that is less far than was asked for."""
    for system in results["systems"]:
        points = next(iter(system["measures"].values()))["points"]
        beyond = [str(point["k"]) for point in points if point["beyond_log"]]
        depth, most = system["depth"]["final"], results["conventions"]["depth"]
        if not beyond:
            continue
        known = [one for one in (depth["cut_at"], most) if one is not None]
        last = min(known, default=depth["longest"])
        in_tokens = isinstance(points[0]["k"], str)
        why = f"lists that end at rank {last} leave room" if in_tokens else f"lists end at {last}"
        told = f"k = {', '.join(beyond)} {'lies' if len(beyond) == 1 else 'lie'} beyond"
        yield f"{label(system['name'])}: {why}; {told}, not measured ({NOTHING})"


def to_csv(paper: Paper) -> bytes:
    """One row a system, segment, measure and k; what was not measured is empty."""
    rows = list(_rows(paper.results()))
    return csv_table(pl.DataFrame(rows, schema=_COLUMNS))


def _rows(results: Document) -> Iterator[dict[str, Any]]:
    for system in results["systems"]:
        parts = [(None, None, system["measures"])]
        for column, values in system["segments"].items():
            parts += [(column, value, lines) for value, lines in values.items()]
        for column, value, lines in parts:
            where = {"system": system["name"], "segment": column, "value": value}
            for name, line in lines.items():
                yield from (where | _row(name, point) for point in line["points"])
        if budget := system["budget"]:
            points = budget.get("points", [budget])
            yield from ({"system": system["name"]} | _row(budget["kind"], one) for one in points)


def _row(name: str, point: Document) -> dict[str, Any]:
    low, high = point["ci"] or (None, None)
    told = {key: point.get(key) for key in ("mean", "n", "ceiling", "headroom")}
    ends = {"k": str(point["k"]), "ci_low": low, "ci_high": high}
    return {"measure": name, **ends, **told, "beyond_log": point.get("beyond_log", False)}


def to_png(paper: Paper) -> bytes:
    """The curves as a picture."""
    from karat.reports.charts import png
    from karat.reports.curve_charts import sweep_chart

    return png(sweep_chart(paper.results()))


def to_svg(paper: Paper) -> bytes:
    """The curves as a drawing, the same bytes for the same document."""
    from karat.reports.charts import svg
    from karat.reports.curve_charts import sweep_chart

    return svg(sweep_chart(paper.results()))
