"""The segments of a page as heat-maps: every value of a column against the limit that applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from karat.evaluation.segments import CROSS, SMALL
from karat.evaluation.verdict import reversal_facts
from karat.pages.formatting import figure, interval
from karat.report.html.names import (
    LONGEST_SENTENCE,
    Document,
    primary_name,
    segment_link,
    short,
    signed_change,
    signed_interval,
    system_names,
    with_minus,
)
from karat.report.html.systems import tone_of, word_of
from karat.report.html.verdict import limit_of

Row = Mapping[str, Any]

# Of more values, the worst are shown first and the rest is folded.
MOST_VALUES = 40
MOST_REVERSALS = 5
# Reversals of fewer queries are left out if they may be chance.
FEWEST = 5


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One cell: its figures, how they compare with the limit, and the comparison.

    ``order`` puts the worst first: the end of the interval that is nearer to being good.
    """

    mean: str
    ends: str
    word: str
    tone: str
    small: bool
    n: str
    delta: str
    delta_word: str
    delta_tone: str
    order: tuple[int, float, float]


@dataclass(frozen=True, slots=True)
class HeatLine:
    """One value of a segment column, with a cell for each measure and system.

    ``link`` leads to its queries, where the page has them.
    """

    value: str
    n: str
    cells: tuple[HeatCell | None, ...]
    link: str = ""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One segment column: the values shown at once, the others, and what colours mean."""

    column: str
    measures: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    lines: tuple[HeatLine, ...]
    more: tuple[HeatLine, ...]
    compared: bool
    small: bool


@dataclass(frozen=True, slots=True)
class Segments:
    """What the section shows: certain warnings first, then those that may be chance.

    ``few`` is how many were left out, as of too few queries to say anything.
    """

    reversals: tuple[str, ...]
    more_reversals: tuple[str, ...]
    chances: tuple[str, ...]
    few: int
    maps: tuple[HeatMap, ...]

    @property
    def warned(self) -> bool:
        """Whether a segment goes down while the whole goes up."""
        return bool(self.reversals or self.chances)


@dataclass(frozen=True, slots=True)
class _Known:
    """Everything that cells need, looked up once."""

    document: Document
    gates: Mapping[tuple[str, str | None, str | None], Row]
    compared: Mapping[tuple[str, str, str, str], Row]
    linked: frozenset[str]

    def gate(self, measure: str, column: str, value: str) -> Row | None:
        """Return the gate on this segment, else the one on all queries."""
        segment_gate = self.gates.get((measure, column, value))
        return segment_gate or self.gates.get((measure, None, None))


def segments_of(document: Document, head: Document | None) -> Segments:
    """Return a heat-map for every column, and the warnings of the comparison."""
    certain, chances, few = _reversals(document.get("reversals", ()))
    linked = frozenset((head or {}).get("columns", ()))
    lookup = _Known(document, _gates(document), _compared(document), linked)
    columns = dict.fromkeys(
        column for system in document["systems"] for column in system.get("segments", {})
    )
    return Segments(
        reversals=certain[:MOST_REVERSALS],
        more_reversals=certain[MOST_REVERSALS:],
        chances=chances,
        few=few,
        maps=tuple(_map(lookup, column, primary_name(document, head)) for column in columns),
    )


def _reversals(sentences: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Return the certain warnings, those that may be chance, and how many have too few queries."""
    certain, chances, few = [], [], 0
    for sentence in sentences:
        n, sure = reversal_facts(sentence)
        text = with_minus(short(sentence, LONGEST_SENTENCE))
        if sure:
            certain.append(text)
        elif n is not None and n < FEWEST:
            few += 1
        else:
            chances.append(text)
    return tuple(certain), tuple(chances), few


def _gates(document: Document) -> dict[tuple[str, str | None, str | None], Row]:
    """Return the gates by measure and segment; a gate on one system is a limit for all."""
    gates: dict[tuple[str, str | None, str | None], Row] = {}
    for gate in document.get("gates", ()):
        segment = gate["segment"] or {}
        place = (CROSS.join(segment), CROSS.join(segment.values())) if segment else (None, None)
        gates.setdefault((gate["measure"], *place), gate)
    return gates


def _compared(document: Document) -> dict[tuple[str, str, str, str], Row]:
    """Return the comparisons within segments, with the first baseline."""
    rows: dict[tuple[str, str, str, str], Row] = {}
    for row in document.get("comparisons", ()):
        if row["segment"] and row["n"]:
            segment = row["segment"]
            key = (CROSS.join(segment), CROSS.join(segment.values()))
            rows.setdefault((row["system"], row["measure"], *key), row)
    return rows


def _map(lookup: _Known, column: str, primary: str | None) -> HeatMap:
    systems = lookup.document["systems"]
    measures = [
        name
        for name in dict.fromkeys([primary, *_gated_by(lookup, column)])
        if name is not None and any(_has(system, column, name) for system in systems)
    ]
    values = dict.fromkeys(
        value for system in systems for value in system.get("segments", {}).get(column, {})
    )
    lines = [_line(lookup, column, value, measures) for value in values]
    cells = [cell for line in lines for cell in line.cells if cell is not None]
    if len(lines) > MOST_VALUES:
        lines.sort(key=lambda line: _worst(line, len(systems)))
    return HeatMap(
        column=short(column),
        measures=tuple((name, _against(lookup, column, name)) for name in measures),
        names=tuple(system_names(lookup.document)),
        lines=tuple(lines[:MOST_VALUES]),
        more=tuple(lines[MOST_VALUES:]),
        compared=any(cell.delta for cell in cells),
        small=any(cell.small for cell in cells),
    )


def _gated_by(lookup: _Known, column: str) -> list[str]:
    return [measure for measure, by, _ in lookup.gates if by == column]


def _has(system: Row, column: str, measure: str) -> bool:
    cells = system.get("segments", {}).get(column, {}).values()
    return any(measure in cell for cell in cells)


def _against(lookup: _Known, column: str, measure: str) -> str:
    """Return what the colours of a measure mean."""
    segment_gates = [
        gate for (name, by, _), gate in lookup.gates.items() if name == measure and by == column
    ]
    overall_gate = lookup.gates.get((measure, None, None))
    if not segment_gates and overall_gate is None:
        return "against the system's own mean over all queries"
    limits = sorted({_limit_text(gate) for gate in segment_gates})
    limits_text = [f"the gate of each segment ({', '.join(limits)})"] if segment_gates else []
    if overall_gate is not None:
        limits_text.append(f"the gate {_limit_text(overall_gate)}")
    return f"against {', else '.join(limits_text)}"


def _limit_text(gate: Row) -> str:
    sign = ("<" if gate.get("min") is None else ">") + ("" if gate["strict"] else "=")
    held = "mean " if gate["on"] == "mean" else ""
    return f"{held}{sign} {limit_of(gate):.10g}"


def _line(lookup: _Known, column: str, value: str, measures: Sequence[str]) -> HeatLine:
    cells = [
        _heat(lookup, system, column, value, name)
        for name in measures
        for system in lookup.document["systems"]
    ]
    ns = sorted({int(cell.n.replace(",", "")) for cell in cells if cell is not None})
    n = " to ".join(f"{count:,}" for count in dict.fromkeys([*ns[:1], *ns[-1:]]))
    link = segment_link(column, value) if column in lookup.linked else ""
    return HeatLine(short(value), n, tuple(cells), link)


def _heat(lookup: _Known, system: Row, column: str, value: str, measure: str) -> HeatCell | None:
    cell = system.get("segments", {}).get(column, {}).get(value, {}).get(measure)
    if cell is None:
        return None
    overall = system["measures"].get(measure)
    gate = lookup.gate(measure, column, value)
    lower = overall is not None and overall["better"] == "lower"
    if gate is not None:
        lower = gate.get("min") is None
        tone = tone_of_gate(cell, gate)
    else:
        tone = tone_of_mean(cell, None if overall is None else overall["mean"], lower=lower)
    heat = HeatCell(
        mean=figure(cell["mean"]),
        ends=interval(cell["ci"]),
        word=_word(cell, tone, "overall" if gate is None else "limit", lower=lower),
        tone=tone,
        small=bool(cell.get("small", cell["n"] < SMALL)),
        n=f"{cell['n']:,}",
        delta="",
        delta_word="",
        delta_tone="",
        order=_order(cell, lower=lower),
    )
    row = lookup.compared.get((system["name"], measure, column, value))
    if row is None:
        return heat
    delta = f"{signed_change(row['delta'])} {signed_interval(row['ci'])}".strip()
    return replace(heat, delta=delta, delta_word=word_of(row), delta_tone=tone_of(row))


def _word(cell: Row, tone: str, what: str, *, lower: bool) -> str:
    """Return where a cell stands, for readers who do not see its colour."""
    if cell["mean"] is None:
        return "no value"
    if cell["ci"] is None and tone not in ("good", "bad"):
        return "no interval"
    if tone not in ("good", "bad"):
        return f"around {what}"
    return f"above {what}" if (tone == "good") != lower else f"below {what}"


def tone_of_gate(cell: Row, gate: Row) -> str:
    """Return whether the interval lies beyond the limit, short of it, or around it.

    Also where the gate holds the mean: a colour means the same in every cell.

    >>> gate = {"min": 0.8, "strict": False}
    >>> ends = [[0.8, 0.9], [0.6, 0.7], [0.7, 0.9], None]
    >>> [tone_of_gate({"mean": 0.8, "ci": one}, gate) for one in ends]
    ['good', 'bad', 'unsure', 'unsure']
    >>> tone_of_gate({"mean": 0.8, "ci": [0.7, 0.9]}, {"max": 0.5, "strict": False})
    'bad'
    """
    if cell["mean"] is None:
        return ""
    ends = cell["ci"]
    if ends is None:
        return "unsure"
    upper = gate.get("min") is None
    limit = limit_of(gate)
    # With the sign changed, "at most" is "at least".
    low, high, line = (-ends[1], -ends[0], -limit) if upper else (*ends, limit)
    if low > line or (low == line and not gate["strict"]):
        return "good"
    return "bad" if high < line or (high == line and gate["strict"]) else "unsure"


def tone_of_mean(cell: Row, mean: float | None, *, lower: bool) -> str:
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


def _order(cell: Row, *, lower: bool) -> tuple[int, float, float]:
    """Return a sort key that puts the worst first, and cells without an interval or value last."""
    if cell["mean"] is None:
        return (2, 0.0, 0.0)
    sign = -1.0 if lower else 1.0
    if cell["ci"] is None:
        return (1, sign * cell["mean"], 0.0)
    return (0, sign * cell["ci"][0 if lower else 1], sign * cell["mean"])


def _worst(line: HeatLine, systems: int) -> tuple[int, float, float]:
    """Return the sort key of the worst system, by the first measure."""
    cells = line.cells[:systems]
    return min((cell.order for cell in cells if cell is not None), default=(3, 0.0, 0.0))
