"""The systems of a page side by side: every measure, the differences between them, and segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from karat.errors import UsageError
from karat.evaluation.report_text import (
    distribution_table,
    lacks_lines,
    measure_table,
    nothing_found_lines,
    overlap_lines,
    rule_line,
    tests_line,
)
from karat.evaluation.segments import CROSS, SMALL
from karat.evaluation.verdict import reversal_facts
from karat.measure.names import definition_named
from karat.pages.formatting import figure, interval, p_value, verdict_words
from karat.pages.page import VERDICT_TONES
from karat.reports.html.elements import (
    LONGEST_SENTENCE,
    Bar,
    Context,
    Document,
    around_zero,
    baseline_name,
    limit_of,
    measure_names,
    primary_name,
    segment_link,
    sentences,
    short,
    shown_names,
    signed_change,
    signed_interval,
    split_bar,
    system_names,
    with_minus,
)

# More pairs than these are folded.
MOST_OPEN = 3
# Of more values of a segment column, the worst are shown first and the rest is folded.
MOST_VALUES = 40
MOST_REVERSALS = 5
# Reversals of fewer queries are left out if they may be chance.
FEWEST = 5
# Widths of the drawings of a difference, and of wins and losses.
_DELTA, _SPLIT = 105.0, 90.0

# What the cell of a measure may show; ``own`` is the mean over all queries of the system, where
# the one shown is over fewer.
_CELL = {"mean": figure(None), "ends": "", "lacks": "", "ties": "", "own": ""}

# Comparisons and gates by the segment that they are about: its columns and its values.
Rows = Mapping[tuple[str, ...], Document]


def systems_of(document: Document, head: Document | None) -> Context:
    """Return measures as rows, the one that decides first: all systems, then each pair.

    ``alone`` is true where one pair says all that there is to say.
    """
    names = system_names(document)
    compared: Rows = {
        (row["baseline"], row["system"], row["measure"]): row
        for row in document.get("comparisons", ())
        if not row["segment"]
    }
    reach = _reach(compared)
    rows = _rows(document, head, compared, reach)
    pairs = _pairs(document, rows, compared, reach)
    rule = [rule_line(document), tests_line(document)] if pairs else []
    notes = [*nothing_found_lines(document), *rule]
    notes += [*overlap_lines(document), *lacks_lines(document)]
    compared_names = {name for pair in pairs for name in (pair["baseline"], pair["system"])}
    return {
        "names": names,
        "baseline": shown_names(document).get(baseline_name(document) or "", ""),
        "rows": rows,
        "pairs": pairs,
        "alone": len(pairs) == 1 and compared_names == set(names),
        "opened": len(pairs) <= MOST_OPEN,
        "columns": [key for key in ("quartiles", "ceiling") if any(row[key] for row in rows)],
        "notes": sentences(notes),
        "spread": [[short(cell) for cell in row] for row in distribution_table(document)],
        "meanings": _meanings([row["measure"] for row in rows]),
    }


def _reach(compared: Rows) -> dict[str, float]:
    """Return how far the scale of each measure's differences goes; shares have a common one.

    A measure of few queries has so wide an interval that beside it nothing else would be seen.
    """
    rows = [row for row in compared.values() if row["delta"] is not None]
    most = max((row["n"] for row in rows), default=0)
    scales: dict[str, float] = {}
    separate = set()
    for row in rows:
        name = row["measure"]
        ends = [row["delta"], row["margin"] or 0.0, *(row["ci"] or ())]
        scales[name] = max([scales.get(name, 0.0), *map(abs, ends)])
        means = (row["baseline_mean"], row["system_mean"])
        if 2 * row["n"] < most or not all(mean is not None and 0 <= mean <= 1 for mean in means):
            separate.add(name)
    together = [name for name in scales if name not in separate]
    return scales | dict.fromkeys(together, max((scales[name] for name in together), default=0.0))


def _delta(row: Document | None, reach: Mapping[str, float]) -> Context | None:
    """Return the difference of a measure as it is shown; None if nothing was compared."""
    if row is None or not row["n"]:
        return None
    wins, equal, losses = row["wins"], row["ties"], row["losses"]
    counts = f"{wins:,} queries better, {equal:,} equal, {losses:,} worse"
    return {
        "change": signed_change(row["delta"]),
        "ends": signed_interval(row["ci"]),
        "p": p_value(row["p_adjusted"]),
        "word": _word(row),
        "tone": _tone(row),
        "counts": f"{wins:,} / {equal:,} / {losses:,}",
        "split": split_bar([("wins", wins), ("equal", equal), ("losses", losses)], counts, _SPLIT),
        "n": f"{row['n']:,}",
        "detects": figure(row["detectable"]),
        "bar": _delta_bar(row, reach),
    }


def _word(row: Document) -> str:
    return verdict_words(row) if row["verdict"] else "not judged"


def _tone(row: Document) -> str:
    """Return whether a verdict is good or bad news; "same" is neither."""
    return "bad" if row.get("caution") else VERDICT_TONES.get(row["verdict"] or "", "")


def _delta_bar(row: Document, reach: Mapping[str, float]) -> Bar:
    """Return a difference and its interval around 0, with the margin."""
    scale = around_zero(reach.get(row["measure"], 0.0), _DELTA)
    margin = row["margin"] or 0.0
    marks = [
        *(scale.stretch("margin", (-margin, margin)) if margin else ()),
        *scale.track(),
        *scale.point("zero", 0.0),
        *scale.stretch("interval", row["ci"]),
        *scale.point("value", row["delta"]),
    ]
    delta = f"{signed_change(row['delta'])} {signed_interval(row['ci'])}".strip()
    return Bar(f"{row['measure']} changes by {delta}", _DELTA, marks, _tone(row))


def _rows(
    document: Document, head: Document | None, compared: Rows, reach: Mapping[str, float]
) -> list[Context]:
    """Return a row per measure, with a cell and a difference from the baseline per system."""
    primary = primary_name(document, head)
    header, *lines = measure_table(document)
    table = {line[0]: dict(zip(header, line, strict=True)) for line in lines}
    baseline = baseline_name(document) or ""
    systems = [system["name"] for system in document["systems"]]
    rows = []
    for name in sorted(measure_names(document, head), key=lambda name: name != primary):
        cells = [system["measures"].get(name) for system in document["systems"]]
        known = [cell for cell in cells if cell is not None]
        ns = sorted({cell["n"] for cell in known})
        # A system may have the name of one of these columns.
        quartiles, ceiling = (
            "" if key in systems else table.get(name, {}).get(key, "")
            for key in ("quartiles", "ceiling")
        )
        rows.append(
            {
                "measure": name,
                "decides": document.get("rule", {}).get("primary") == name,
                "lower": any(cell["better"] == "lower" for cell in known),
                "cells": [_cell(cell) for cell in cells],
                "deltas": [
                    _delta(compared.get((baseline, system, name)), reach) for system in systems
                ],
                "quartiles": quartiles,
                "n": " to ".join(f"{n:,}" for n in dict.fromkeys([ns[0], ns[-1]])),
                "ceiling": ceiling,
            }
        )
    return rows


def _cell(cell: Document | None) -> Context:
    """Return a measure of one system; ``lacks`` says why it has no value."""
    if cell is None:
        return _CELL | {"lacks": "not measured"}
    ties = cell.get("ties")
    tied = ties is not None and figure(ties[0]) != figure(ties[1])
    return _CELL | {
        "mean": figure(cell["mean"]),
        "ends": interval(cell["ci"]),
        "lacks": short(cell.get("lacks", ""), LONGEST_SENTENCE),
        "ties": interval(ties) if tied else "",
    }


def _pairs(
    document: Document, rows: Sequence[Context], compared: Rows, reach: Mapping[str, float]
) -> list[Context]:
    """Return every compared pair, in the order of the comparison: both means and the difference.

    ``fewer`` is true where some means are over the queries that both have, and not over all.
    """
    systems = {system["name"]: system for system in document["systems"]}
    shown = shown_names(document)
    # Repeated runs are separate systems in the table of all, but one here.
    unknown: Document = {"mean": None, "ci": None}
    pairs = []
    for pair in dict.fromkeys(key[:2] for key in compared):
        pair_rows: list[Context] = []
        for row in rows:
            name = row["measure"]
            comparison = compared.get((*pair, name))
            cells = [
                systems[system]["measures"].get(name) if system in systems else unknown
                for system in pair
            ]
            first, second = _pair_cells(comparison, cells)
            delta = _delta(comparison, reach)
            pair_rows.append({**row, "baseline": first, "system": second, "delta": delta})
        baseline, system = (shown.get(name, short(name)) for name in pair)
        fewer = any(row[side]["own"] for row in pair_rows for side in ("baseline", "system"))
        pairs.append({"baseline": baseline, "system": system, "rows": pair_rows, "fewer": fewer})
    return pairs


def _pair_cells(row: Document | None, cells: Sequence[Document | None]) -> list[Context]:
    """Return both means of a row: over the shared queries where they differ from the systems' own.

    A system that failed on some queries, or was not asked them, has a mean over fewer.
    """
    if row is None or row["baseline_mean"] is None or row["system_mean"] is None:
        return [_cell(cell) for cell in cells]
    pairs = list(zip(cells, [row["baseline_mean"], row["system_mean"]], strict=True))
    differ = any(
        cell is not None and cell["mean"] is not None and figure(cell["mean"]) != figure(shared)
        for cell, shared in pairs
    )
    shown = []
    for cell, shared in pairs:
        if cell is None or cell["mean"] is None:
            shown.append(_CELL | {"mean": figure(shared)})
        elif differ:
            # The system's own interval does not apply to the shared mean.
            own = f"{figure(cell['mean'])} {interval(cell['ci'])}".strip()
            own += f" over all {cell['n']:,} queries of its own"
            shown.append(_CELL | {"mean": figure(shared), "own": own})
        else:
            shown.append(_cell(cell))
    return shown


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
    """Return a heat-map for every segment column, and the warnings of the comparison.

    Certain warnings come first, then those that may be chance; ``few`` is how many were left
    out, as of too few queries to say anything.
    """
    certain, chances, few = list[str](), list[str](), 0
    for sentence in document.get("reversals", ()):
        n, sure = reversal_facts(sentence)
        if not sure and n is not None and n < FEWEST:
            few += 1
            continue
        text = with_minus(short(sentence, LONGEST_SENTENCE))
        (certain if sure else chances).append(text)
    columns = dict.fromkeys(
        column for system in document["systems"] for column in system.get("segments", {})
    )
    return {
        "reversals": certain[:MOST_REVERSALS],
        "more_reversals": certain[MOST_REVERSALS:],
        "chances": chances,
        "few": few,
        "warned": bool(certain or chances),
        "maps": [_heat_map(document, head, column) for column in columns],
    }


def _by_segment(rows: Sequence[Document], column: str, *keys: str) -> Rows:
    """Return the first row for each value of a segment column and the keys."""
    found: dict[tuple[str, ...], Document] = {}
    for row in rows:
        if row["segment"] and CROSS.join(row["segment"]) == column:
            value = CROSS.join(row["segment"].values())
            found.setdefault((value, *(row[key] for key in keys)), row)
    return found


def _heat_map(document: Document, head: Document | None, column: str) -> Context:
    """Return one segment column: the values shown at once, the others, and what colours mean."""
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
    measures = [
        name
        for name in names
        if name is not None
        and any(name in cells for values in segments for cells in values.values())
    ]
    linked = column in (head or {}).get("columns", ())
    lines: list[Context] = []
    for value in dict.fromkeys(value for values in segments for value in values):
        cells = []
        for name in measures:
            gate = limits.get((value, name)) or overall.get(name)
            for system, values in zip(systems, segments, strict=True):
                cell = values.get(value, {}).get(name)
                delta = deltas.get((value, name, system["name"]))
                measure = system["measures"].get(name)
                cells.append(None if cell is None else _heat(cell, measure, gate, delta))
        ns = sorted({cell["n"] for cell in cells if cell is not None})
        line = {
            "value": short(value),
            "n": " to ".join(f"{n:,}" for n in dict.fromkeys([*ns[:1], *ns[-1:]])),
            "cells": cells,
            "link": segment_link(column, value) if linked else "",
        }
        lines.append(line)
    if len(lines) > MOST_VALUES:
        lines.sort(key=lambda line: _worst(line["cells"][: len(systems)]))
    return {
        "column": short(column),
        "measures": [(name, _against(limits, overall.get(name), name)) for name in measures],
        "names": system_names(document),
        "lines": lines[:MOST_VALUES],
        "more": lines[MOST_VALUES:],
        "compared": any(cell and cell["delta"] for line in lines for cell in line["cells"]),
    }


def _against(limits: Rows, overall: Document | None, measure: str) -> str:
    """Return what the colours of a measure mean."""
    own = sorted({_limit_text(gate) for (_, name), gate in limits.items() if name == measure})
    if not own and overall is None:
        return "against the system's own mean over all queries"
    texts = [f"the gate of each segment ({', '.join(own)})"] if own else []
    texts += [] if overall is None else [f"the gate {_limit_text(overall)}"]
    return f"against {', else '.join(texts)}"


def _limit_text(gate: Document) -> str:
    sign = ("<" if gate.get("min") is None else ">") + ("" if gate["strict"] else "=")
    on = "mean " if gate["on"] == "mean" else ""
    return f"{on}{sign} {limit_of(gate):.10g}"


def _heat(
    cell: Document, overall: Document | None, gate: Document | None, row: Document | None
) -> Context:
    """Return a cell: its figures, how they compare with the limit, and the comparison.

    ``order`` puts the worst first: the end of the interval that is nearer to being good.
    """
    if gate is not None:
        lower, tone = gate.get("min") is None, tone_of_gate(cell, gate)
    else:
        lower = overall is not None and overall["better"] == "lower"
        tone = tone_of_mean(cell, None if overall is None else overall["mean"], lower=lower)
    heat = {
        "mean": figure(cell["mean"]),
        "ends": interval(cell["ci"]),
        "word": _heat_word(cell, tone, "overall" if gate is None else "limit", lower=lower),
        "tone": tone,
        "small": bool(cell.get("small", cell["n"] < SMALL)),
        "n": cell["n"],
        "order": _order(cell, lower=lower),
        "delta": "",
    }
    if row is not None:
        delta = f"{signed_change(row['delta'])} {signed_interval(row['ci'])}".strip()
        heat |= {"delta": delta, "delta_word": _word(row), "delta_tone": _tone(row)}
    return heat


def _heat_word(cell: Document, tone: str, what: str, *, lower: bool) -> str:
    """Return where a cell stands, for readers who do not see its colour."""
    if cell["mean"] is None:
        return "no value"
    if tone not in ("good", "bad"):
        return "no interval" if cell["ci"] is None else f"around {what}"
    return f"above {what}" if (tone == "good") != lower else f"below {what}"


def tone_of_gate(cell: Document, gate: Document) -> str:
    """Return whether the interval lies beyond the limit, short of it, or around it.

    Also where the gate is on the mean: a colour means the same in every cell.

    >>> gate = {"min": 0.8, "strict": False}
    >>> ends = [[0.8, 0.9], [0.6, 0.7], [0.7, 0.9], None]
    >>> [tone_of_gate({"mean": 0.8, "ci": interval}, gate) for interval in ends]
    ['good', 'bad', 'unsure', 'unsure']
    >>> tone_of_gate({"mean": 0.8, "ci": [0.7, 0.9]}, {"max": 0.5, "strict": False})
    'bad'
    """
    if cell["mean"] is None:
        return ""
    ends = cell["ci"]
    if ends is None:
        return "unsure"
    limit = limit_of(gate)
    # With the sign changed, "at most" is "at least".
    upper = gate.get("min") is None
    low, high, line = (-ends[1], -ends[0], -limit) if upper else (*ends, limit)
    if low > line or (low == line and not gate["strict"]):
        return "good"
    return "bad" if high < line or (high == line and gate["strict"]) else "unsure"


def tone_of_mean(cell: Document, mean: float | None, *, lower: bool) -> str:
    """Return whether the interval lies above or below the mean of all queries; empty if around it.

    >>> cell = {"mean": 0.3, "ci": [0.2, 0.4]}
    >>> [tone_of_mean(cell, mean, lower=False) for mean in (0.1, 0.3, 0.5)]
    ['good', '', 'bad']
    """
    if mean is None or cell["mean"] is None or cell["ci"] is None:
        return ""
    low, high = cell["ci"]
    if low > mean:
        return "bad" if lower else "good"
    return ("good" if lower else "bad") if high < mean else ""


def _order(cell: Document, *, lower: bool) -> tuple[int, float, float]:
    """Return a sort key that puts the worst first, and cells without an interval or value last."""
    if cell["mean"] is None:
        return (2, 0.0, 0.0)
    sign = -1.0 if lower else 1.0
    if cell["ci"] is None:
        return (1, sign * cell["mean"], 0.0)
    return (0, sign * cell["ci"][0 if lower else 1], sign * cell["mean"])


def _worst(cells: Sequence[Context | None]) -> tuple[int, float, float]:
    """Return the sort key of the worst system."""
    return min((cell["order"] for cell in cells if cell is not None), default=(3, 0.0, 0.0))
