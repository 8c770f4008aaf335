"""The segments of a page as heat-maps: every value of a column against the limit that applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from karat.analysis.reversals import told_of
from karat.analysis.segments import CROSS, SMALL
from karat.reports.figures import figure, interval
from karat.reports.html.deltas import tone_of, word_of
from karat.reports.html.links import segment_link
from karat.reports.html.names import (
    LONGEST_SENTENCE,
    Document,
    primary_name,
    short,
    system_names,
)
from karat.reports.html.signs import changed, signed, spread
from karat.reports.html.verdict import limit_of

Row = Mapping[str, Any]

# So many values of a column are seen at once; of more, the worst.
MOST_VALUES = 40
MOST_REVERSALS = 5
# What so few queries do says nothing; a page leaves out those that may be chance.
FEWEST = 5


@dataclass(frozen=True, slots=True)
class Heat:
    """One cell: the figures, how they stand to the limit in a word, and what was compared.

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
class Line:
    """One value of a segment column, with a cell for each measure and system.

    ``link`` leads to its queries, where the page has them.
    """

    value: str
    n: str
    cells: tuple[Heat | None, ...]
    link: str = ""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One segment column: its lines, those shown at once and the others, and what colours mean."""

    column: str
    measures: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    lines: tuple[Line, ...]
    more: tuple[Line, ...]
    compared: bool
    small: bool


@dataclass(frozen=True, slots=True)
class Segments:
    """What the section shows: the warnings first, and of these what is beyond chance.

    ``few`` is how many were left out, as of too few queries to say anything.
    """

    reversals: tuple[str, ...]
    more_reversals: tuple[str, ...]
    chances: tuple[str, ...]
    few: int
    maps: tuple[HeatMap, ...]

    @property
    def warned(self) -> bool:
        """Whether anything goes up overall and down in a segment."""
        return bool(self.reversals or self.chances)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is needed for every cell, looked up once."""

    document: Document
    gates: Mapping[tuple[str, str | None, str | None], Row]
    compared: Mapping[tuple[str, str, str, str], Row]
    linked: frozenset[str]

    def gate(self, measure: str, column: str, value: str) -> Row | None:
        """The gate on this segment, else the one on all queries."""
        own = self.gates.get((measure, column, value))
        return own or self.gates.get((measure, None, None))


def segments_of(document: Document, head: Document | None) -> Segments:
    """A heat-map for every column; the warnings are of the comparison."""
    certain, chances, few = _reversals(document.get("reversals", ()))
    linked = frozenset((head or {}).get("columns", ()))
    known = _Known(document, _gates(document), _compared(document), linked)
    columns = dict.fromkeys(
        column for system in document["systems"] for column in system.get("segments", {})
    )
    return Segments(
        reversals=certain[:MOST_REVERSALS],
        more_reversals=certain[MOST_REVERSALS:],
        chances=chances,
        few=few,
        maps=tuple(_map(known, column, primary_name(document, head)) for column in columns),
    )


def _reversals(sentences: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """The warnings beyond chance, those that may be chance, and how many are of too few queries."""
    certain, chances, few = [], [], 0
    for sentence in sentences:
        n, sure = told_of(sentence)
        shown = signed(short(sentence, LONGEST_SENTENCE))
        if sure:
            certain.append(shown)
        elif n is not None and n < FEWEST:
            few += 1
        else:
            chances.append(shown)
    return tuple(certain), tuple(chances), few


def _gates(document: Document) -> dict[tuple[str, str | None, str | None], Row]:
    """The gates by measure and segment. What one system must reach is a line for all of them."""
    found: dict[tuple[str, str | None, str | None], Row] = {}
    for gate in document.get("gates", ()):
        segment = gate["segment"] or {}
        place = (CROSS.join(segment), CROSS.join(segment.values())) if segment else (None, None)
        found.setdefault((gate["measure"], *place), gate)
    return found


def _compared(document: Document) -> dict[tuple[str, str, str, str], Row]:
    """The comparisons within segments; against the first baseline, where there are several."""
    found: dict[tuple[str, str, str, str], Row] = {}
    for row in document.get("comparisons", ()):
        if row["segment"] and row["n"]:
            segment = row["segment"]
            key = (CROSS.join(segment), CROSS.join(segment.values()))
            found.setdefault((row["system"], row["measure"], *key), row)
    return found


def _map(known: _Known, column: str, primary: str | None) -> HeatMap:
    systems = known.document["systems"]
    measures = [
        name
        for name in dict.fromkeys([primary, *_gated_by(known, column)])
        if name is not None and any(_has(system, column, name) for system in systems)
    ]
    values = dict.fromkeys(
        value for system in systems for value in system.get("segments", {}).get(column, {})
    )
    lines = [_line(known, column, value, measures) for value in values]
    cells = [cell for line in lines for cell in line.cells if cell is not None]
    if len(lines) > MOST_VALUES:
        lines.sort(key=lambda line: _worst(line, len(systems)))
    return HeatMap(
        column=short(column),
        measures=tuple((name, _against(known, column, name)) for name in measures),
        names=tuple(system_names(known.document)),
        lines=tuple(lines[:MOST_VALUES]),
        more=tuple(lines[MOST_VALUES:]),
        compared=any(cell.delta for cell in cells),
        small=any(cell.small for cell in cells),
    )


def _gated_by(known: _Known, column: str) -> list[str]:
    return [measure for measure, by, _ in known.gates if by == column]


def _has(system: Row, column: str, measure: str) -> bool:
    cells = system.get("segments", {}).get(column, {}).values()
    return any(measure in one for one in cells)


def _against(known: _Known, column: str, measure: str) -> str:
    """What the colours of a measure mean, in words."""
    own = [gate for (name, by, _), gate in known.gates.items() if name == measure and by == column]
    whole = known.gates.get((measure, None, None))
    if not own and whole is None:
        return "against the system's own mean over all queries"
    limits = sorted({_limit_text(gate) for gate in own})
    told = [f"the gate of each segment ({', '.join(limits)})"] if own else []
    if whole is not None:
        told.append(f"the gate {_limit_text(whole)}")
    return f"against {', else '.join(told)}"


def _limit_text(gate: Row) -> str:
    sign = ("<" if gate.get("min") is None else ">") + ("" if gate["strict"] else "=")
    held = "mean " if gate["on"] == "mean" else ""
    return f"{held}{sign} {limit_of(gate):.10g}"


def _line(known: _Known, column: str, value: str, measures: Sequence[str]) -> Line:
    cells = [
        _heat(known, system, column, value, name)
        for name in measures
        for system in known.document["systems"]
    ]
    ns = sorted({int(cell.n.replace(",", "")) for cell in cells if cell is not None})
    n = " to ".join(f"{one:,}" for one in dict.fromkeys([*ns[:1], *ns[-1:]]))
    link = segment_link(column, value) if column in known.linked else ""
    return Line(short(value), n, tuple(cells), link)


def _heat(known: _Known, system: Row, column: str, value: str, measure: str) -> Heat | None:
    cell = system.get("segments", {}).get(column, {}).get(value, {}).get(measure)
    if cell is None:
        return None
    whole = system["measures"].get(measure)
    gate = known.gate(measure, column, value)
    lower = whole is not None and whole["better"] == "lower"
    if gate is not None:
        lower = gate.get("min") is None
        tone = held_against(cell, gate)
    else:
        tone = beside(cell, None if whole is None else whole["mean"], lower=lower)
    heat = Heat(
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
    row = known.compared.get((system["name"], measure, column, value))
    if row is None:
        return heat
    delta = f"{changed(row['delta'])} {spread(row['ci'])}".strip()
    return replace(heat, delta=delta, delta_word=word_of(row), delta_tone=tone_of(row))


def _word(cell: Row, tone: str, what: str, *, lower: bool) -> str:
    """Where a cell stands, so that nobody needs its colour to tell."""
    if cell["mean"] is None:
        return "no value"
    if cell["ci"] is None and tone not in ("good", "bad"):
        return "no interval"
    if tone not in ("good", "bad"):
        return f"around {what}"
    return f"above {what}" if (tone == "good") != lower else f"below {what}"


def held_against(cell: Row, gate: Row) -> str:
    """Whether the interval lies beyond the limit, short of it, or on both sides of it.

    Also where the gate holds the mean: a colour means the same in every cell.

    >>> gate = {"min": 0.8, "strict": False}
    >>> ends = [[0.8, 0.9], [0.6, 0.7], [0.7, 0.9], None]
    >>> [held_against({"mean": 0.8, "ci": one}, gate) for one in ends]
    ['good', 'bad', 'unsure', 'unsure']
    >>> held_against({"mean": 0.8, "ci": [0.7, 0.9]}, {"max": 0.5, "strict": False})
    'bad'
    """
    if cell["mean"] is None:
        return ""
    ends = cell["ci"]
    if ends is None:
        return "unsure"
    upper = gate.get("min") is None
    limit = limit_of(gate)
    # Turned round, "at most" is "at least".
    low, high, line = (-ends[1], -ends[0], -limit) if upper else (*ends, limit)
    if low > line or (low == line and not gate["strict"]):
        return "good"
    return "bad" if high < line or (high == line and gate["strict"]) else "unsure"


def beside(cell: Row, mean: float | None, *, lower: bool) -> str:
    """Whether the interval lies above or below the mean of all queries; nothing if around it.

    >>> cell = {"mean": 0.3, "ci": [0.2, 0.4]}
    >>> [beside(cell, mean, lower=False) for mean in (0.1, 0.3, 0.5)]
    ['good', '', 'bad']
    """
    if mean is None or cell["mean"] is None or cell["ci"] is None:
        return ""
    low, high = cell["ci"]
    if low > mean:
        return "bad" if lower else "good"
    return ("good" if lower else "bad") if high < mean else ""


def _order(cell: Row, *, lower: bool) -> tuple[int, float, float]:
    """The worst first; what has no interval, then what has no value, comes last."""
    if cell["mean"] is None:
        return (2, 0.0, 0.0)
    sign = -1.0 if lower else 1.0
    if cell["ci"] is None:
        return (1, sign * cell["mean"], 0.0)
    return (0, sign * cell["ci"][0 if lower else 1], sign * cell["mean"])


def _worst(line: Line, systems: int) -> tuple[int, float, float]:
    """How bad it is for the system that fares worst, by the first measure."""
    cells = line.cells[:systems]
    return min((cell.order for cell in cells if cell is not None), default=(3, 0.0, 0.0))
