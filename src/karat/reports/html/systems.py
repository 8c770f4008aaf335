"""The systems of a page side by side: every measure, the differences between them, and segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from karat.errors import UsageError
from karat.evaluation.report_text import (
    distribution_table,
    lacks_lines,
    nothing_found,
    overlap_lines,
    rule_line,
    tests_line,
)
from karat.evaluation.segments import CROSS, SMALL
from karat.measure.names import definition_named
from karat.pages.formatting import (
    figure,
    interval,
    label,
    number_range,
    p_value,
    verdict_words,
)
from karat.pages.page import VERDICT_TONES
from karat.reports.html.elements import (
    Context,
    Document,
    Drawing,
    Scale,
    baseline_name,
    limit_of,
    link_to,
    measure_names,
    primary_name,
    signed_change,
    split_bar,
    system_names,
    with_minus,
)

# Further pairs are collapsed.
MOST_OPEN = 3
# Widths of the bars of a difference, and of wins and losses.
_DELTA, _SPLIT = 105.0, 90.0

# Comparisons and gates by segment: its columns and values.
Rows = Mapping[tuple[str, ...], Document]


def systems_of(document: Document, head: Document | None) -> Context:
    """Return measures as rows, the primary one first: all systems, then each pair.

    ``alone`` is true if the table of one pair shows everything.
    """
    names = system_names(document)
    compared: Rows = {
        (row["baseline"], row["system"], row["measure"]): row
        for row in document.get("comparisons", ())
        if not row["segment"]
    }
    rows = _rows(document, head, compared)
    pairs = _pairs(document, rows, compared)
    notes = [
        f"{label(system['name'])}: {nothing_found(system['nothing_found'])}"
        for system in document["systems"]
        if system.get("nothing_found")
    ]
    notes += [rule_line(document), tests_line(document)] if pairs else []
    notes += [*overlap_lines(document), *lacks_lines(document)]
    compared_names = {name for pair in pairs for name in (pair["baseline"], pair["system"])}
    return {
        "names": names,
        "baseline": baseline_name(document),
        "rows": rows,
        "pairs": pairs,
        "alone": len(pairs) == 1 and compared_names == set(names),
        "opened": len(pairs) <= MOST_OPEN,
        "ceilings": any(row["ceiling"] for row in rows),
        "notes": notes,
        "spread": distribution_table(document),
        "meanings": _meanings([row["measure"] for row in rows]),
    }


def _delta(row: Document | None) -> Context | None:
    """Return the difference of a measure for display; None if it was not compared."""
    if row is None or not row["n"]:
        return None
    wins, equal, losses = row["wins"], row["ties"], row["losses"]
    counts = f"{wins:,} queries better, {equal:,} equal, {losses:,} worse"
    return {
        "change": signed_change(row["delta"]),
        "ends": with_minus(interval(row["ci"])),
        "p": p_value(row["p_adjusted"]),
        "word": _word(row),
        "tone": _tone(row),
        "counts": f"{wins:,} / {equal:,} / {losses:,}",
        "split": split_bar([("wins", wins), ("equal", equal), ("losses", losses)], _SPLIT, counts),
        "n": f"{row['n']:,}",
        "detects": figure(row["detectable"]),
        "bar": _delta_bar(row),
    }


def _word(row: Document) -> str:
    return verdict_words(row) if row["verdict"] else "not judged"


def _tone(row: Document) -> str:
    """Return whether a verdict is good or bad news; "same" is neither."""
    return "bad" if row.get("caution") else VERDICT_TONES.get(row["verdict"] or "", "")


def _delta_bar(row: Document) -> Drawing:
    """Return a difference and its interval around 0, with the margin."""
    margin = row["margin"] or 0.0
    reach = 1.05 * max(map(abs, [row["delta"], margin, *(row["ci"] or ())])) or 1.0
    scale = Scale(-reach, reach, _DELTA)
    marks = [
        *(scale.stretch("margin", (-margin, margin)) if margin else ()),
        *scale.track(),
        *scale.point("zero", 0.0),
        *scale.stretch("interval", row["ci"]),
        *scale.point("value", row["delta"]),
    ]
    return Drawing(f"{row['measure']} changes by {_difference(row)}", _DELTA, marks, _tone(row))


def _difference(row: Document) -> str:
    return f"{signed_change(row['delta'])} {with_minus(interval(row['ci']))}".strip()


def _rows(document: Document, head: Document | None, compared: Rows) -> list[Context]:
    """Return a row per measure, with a cell and a difference from the baseline per system."""
    primary = primary_name(document, head)
    baseline = baseline_name(document) or ""
    systems = system_names(document)
    rows = []
    for name in sorted(measure_names(document), key=lambda name: name != primary):
        cells = [system["measures"].get(name) for system in document["systems"]]
        filled_cells = [cell for cell in cells if cell is not None]
        # The best reachable value, if it is below 1.
        below = [cell["ceiling"] for cell in filled_cells if cell["better"] == "higher"]
        below = [ceiling for ceiling in below if ceiling not in (None, 1.0)]
        rows.append(
            {
                "measure": name,
                "decides": document.get("rule", {}).get("primary") == name,
                "lower": any(cell["better"] == "lower" for cell in filled_cells),
                "cells": [_cell(cell) for cell in cells],
                "deltas": [_delta(compared.get((baseline, system, name))) for system in systems],
                "n": _range_of_n(filled_cells),
                "ceiling": number_range(figure(min(below)), figure(max(below))) if below else "",
            }
        )
    return rows


def _range_of_n(cells: Sequence[Document]) -> str:
    """Return the number of queries of the cells: one number, or a range."""
    ns = [cell["n"] for cell in cells]
    return " to ".join(f"{n:,}" for n in dict.fromkeys([min(ns), max(ns)]))


def _cell(cell: Document | None) -> Context:
    """Return a measure of one system; ``lacks`` says why it has no value."""
    if cell is None:
        return {"mean": figure(None), "ends": "", "lacks": "not measured", "ties": ""}
    ties = cell.get("ties")
    tied = ties is not None and figure(ties[0]) != figure(ties[1])
    return {
        "mean": figure(cell["mean"]),
        "ends": interval(cell["ci"]),
        "lacks": cell.get("lacks", ""),
        "ties": interval(ties) if tied else "",
    }


def _pairs(document: Document, rows: Sequence[Context], compared: Rows) -> list[Context]:
    """Return every compared pair, in the order of the comparison: both means and the difference."""
    systems = {system["name"]: system["measures"] for system in document["systems"]}
    pairs = []
    for pair in dict.fromkeys(key[:2] for key in compared):
        pair_rows = []
        for row in rows:
            comparison = compared.get((*pair, row["measure"]))
            first, second = (
                _pair_cell(systems.get(name, {}).get(row["measure"]), comparison, key)
                for name, key in zip(pair, ("baseline_mean", "system_mean"), strict=True)
            )
            delta = _delta(comparison)
            pair_rows.append({**row, "baseline": first, "system": second, "delta": delta})
        pairs.append({"baseline": pair[0], "system": pair[1], "rows": pair_rows})
    return pairs


def _pair_cell(cell: Document | None, comparison: Document | None, key: str) -> Context:
    """Return a mean of a comparison: over the queries that both systems have.

    The interval of a system's own mean is shown only where the means are the same.
    """
    mean = None if comparison is None else comparison[key]
    if mean is None or (cell is not None and figure(cell["mean"]) == figure(mean)):
        return _cell(cell)
    return {"mean": figure(mean), "ends": "", "lacks": "", "ties": ""}


def _meanings(measures: Sequence[str]) -> list[tuple[str, str]]:
    """Return the first line of each measure's documentation."""
    meanings = []
    for name in measures:
        try:
            about = definition_named(name).about
        except UsageError:
            # A document of a later version may have measures that this one does not know.
            continue
        meanings.append((name, about.partition("\n")[0].replace("``", "")))
    return meanings


def segments_of(document: Document, head: Document | None) -> Context:
    """Return a heat-map for every segment column, and segments that contradict the overall result.

    Significant ones come first.
    """
    reversals = sorted(
        map(with_minus, document.get("reversals", ())),
        key=lambda sentence: not sentence.endswith("beyond chance"),
    )
    columns = dict.fromkeys(
        column for system in document["systems"] for column in system.get("segments", {})
    )
    return {
        "reversals": reversals,
        "maps": [_heat_map(document, head, column) for column in columns],
    }


def _by_segment(rows: Sequence[Document], column: str, *keys: str) -> Rows:
    """Return the first row for each value of a segment column and the keys."""
    by_value: dict[tuple[str, ...], Document] = {}
    for row in rows:
        if row["segment"] and CROSS.join(row["segment"]) == column:
            value = CROSS.join(row["segment"].values())
            by_value.setdefault((value, *(row[key] for key in keys)), row)
    return by_value


def _heat_map(document: Document, head: Document | None, column: str) -> Context:
    """Return one segment column: a row for each value, and the meaning of the colours."""
    systems = document["systems"]
    gates = document.get("gates", ())
    # A gate on one system is a limit for all.
    overall: dict[str, Document] = {}
    for gate in gates:
        if not gate["segment"]:
            overall.setdefault(gate["measure"], gate)
    limits = _by_segment(gates, column, "measure")
    compared = [row for row in document.get("comparisons", ()) if row["n"]]
    deltas = _by_segment(compared, column, "measure", "system")
    segments = [system.get("segments", {}).get(column, {}) for system in systems]
    names = dict.fromkeys([primary_name(document, head), *(name for _, name in limits)])
    gated = {*overall, *(name for _, name in limits)}
    measures = [
        name
        for name in names
        if name is not None
        and any(name in cells for values in segments for cells in values.values())
    ]
    linked = column in (head or {}).get("columns", ())
    lines: list[Context] = []
    for value in dict.fromkeys(value for values in segments for value in values):
        cells, known_values = list[Context | None](), []
        for name in measures:
            gate = limits.get((value, name)) or overall.get(name)
            for system, values in zip(systems, segments, strict=True):
                cell = values.get(value, {}).get(name)
                if cell is None:
                    cells.append(None)
                    continue
                delta = deltas.get((value, name, system["name"]))
                cells.append(_heat(cell, system["measures"].get(name), gate, delta))
                known_values.append(cell)
        link = link_to(**{f"in.{column}": value}) if linked else ""
        n = _range_of_n(known_values) if known_values else ""
        lines.append({"value": value, "n": n, "cells": cells, "link": link})
    return {
        "column": column,
        "measures": [
            (name, "its gates" if name in gated else "the system's own mean over all queries")
            for name in measures
        ],
        "names": system_names(document),
        "lines": lines,
        "compared": any(cell and cell["delta"] for line in lines for cell in line["cells"]),
    }


def _heat(
    cell: Document, overall: Document | None, gate: Document | None, row: Document | None
) -> Context:
    """Return a cell: its figures, how they compare with the limit, and the comparison.

    The limit is that of the gate, also where the gate is on the mean, else the mean over all
    queries.
    """
    if gate is not None:
        lower, limit, against = gate.get("min") is None, limit_of(gate), "limit"
        tone = tone_of(cell, limit, lower=lower, closed=not gate["strict"])
        tone = tone or ("" if cell["mean"] is None else "unsure")
    else:
        lower, against = overall is not None and overall["better"] == "lower", "overall"
        tone = tone_of(cell, None if overall is None else overall["mean"], lower=lower)
    heat = {
        "mean": figure(cell["mean"]),
        "ends": interval(cell["ci"]),
        "word": _heat_word(cell, tone, against, lower=lower),
        "tone": tone,
        "small": bool(cell.get("small", cell["n"] < SMALL)),
        "delta": "",
    }
    if row is not None:
        heat |= {"delta": _difference(row), "delta_word": _word(row), "delta_tone": _tone(row)}
    return heat


def _heat_word(cell: Document, tone: str, against: str, *, lower: bool) -> str:
    """Return the state of a cell as a word, for readers who cannot see its colour."""
    if cell["mean"] is None:
        return "no value"
    if tone not in ("good", "bad"):
        return "no interval" if cell["ci"] is None else f"around {against}"
    return f"above {against}" if (tone == "good") != lower else f"below {against}"


def tone_of(cell: Document, limit: float | None, *, lower: bool, closed: bool = False) -> str:
    """Return whether the interval is good or bad: wholly on one side of the limit; else nothing.

    ``closed`` says that the limit itself is good.

    >>> ends = [[0.8, 0.9], [0.6, 0.7], [0.7, 0.9], None]
    >>> cells = [{"mean": 0.8, "ci": interval} for interval in ends]
    >>> [tone_of(cell, 0.8, lower=False, closed=True) for cell in cells]
    ['good', 'bad', '', '']
    >>> tone_of(cells[2], 0.5, lower=True)
    'bad'
    """
    if limit is None or cell["mean"] is None or cell["ci"] is None:
        return ""
    low, high = cell["ci"]
    # With the sign changed, "at most" is "at least".
    low, high, limit = (-high, -low, -limit) if lower else (low, high, limit)
    if low > limit or (closed and low == limit):
        return "good"
    return "bad" if high < limit else ""
