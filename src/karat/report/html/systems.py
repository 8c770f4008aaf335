"""The systems of a page side by side: every measure, and the differences between systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.errors import UsageError
from karat.evaluation.sentences import (
    lacks_lines,
    nothing_found_lines,
    overlap_lines,
    rule_line,
    tests_line,
)
from karat.evaluation.tables import distribution_table, measure_table
from karat.pages.formatting import figure, interval, p_value, verdict_words
from karat.pages.page import VERDICT_TONES, Grid
from karat.report.glossary import named
from karat.report.html.bars import Bar, around_zero, split_bar
from karat.report.html.names import (
    LONGEST_SENTENCE,
    Document,
    baseline_name,
    measure_names,
    primary_name,
    short,
    shown_names,
    signed_change,
    signed_interval,
    system_names,
)

Row = Mapping[str, Any]

# More pairs than these are folded.
MOST_OPEN = 3
_UNKNOWN: Row = {"mean": None, "ci": None}
_OPTIONAL = ("quartiles", "n", "ceiling")
# Widths of the drawings of a difference, and of wins and losses.
_DELTA, _SPLIT = 105.0, 90.0


@dataclass(frozen=True, slots=True)
class Delta:
    """A comparison of one measure: its difference, how certain it is, and wins and losses."""

    change: str
    ends: str
    p: str
    wins: int
    equal: int
    losses: int
    word: str
    tone: str
    n: str
    detects: str
    bar: Bar
    split: Bar


def overall_rows(document: Document) -> dict[tuple[str, str, str], Row]:
    """Return the comparisons over all queries, by baseline, system and measure."""
    return {
        (row["baseline"], row["system"], row["measure"]): row
        for row in document.get("comparisons", ())
        if not row["segment"]
    }


def delta_scales(document: Document) -> dict[str, float]:
    """Return how far the scale of each measure's differences goes; shares have a common one.

    A measure of few queries has so wide an interval that beside it nothing else would be seen.
    """
    rows = [row for row in overall_rows(document).values() if row["delta"] is not None]
    most = max((row["n"] for row in rows), default=0)
    scales: dict[str, float] = {}
    separate = set()
    for row in rows:
        name = row["measure"]
        ends = [row["delta"], row["margin"] or 0.0, *(row["ci"] or ())]
        scales[name] = max([scales.get(name, 0.0), *map(abs, ends)])
        if 2 * row["n"] < most or not _is_share(row["baseline_mean"], row["system_mean"]):
            separate.add(name)
    together = [name for name in scales if name not in separate]
    return scales | dict.fromkeys(together, max((scales[name] for name in together), default=0.0))


def _is_share(*means: float | None) -> bool:
    return all(mean is not None and 0 <= mean <= 1 for mean in means)


def delta_of(row: Row | None, reach: Mapping[str, float]) -> Delta | None:
    """Return a comparison as it is shown; None if nothing was compared."""
    if row is None or not row["n"]:
        return None
    word, tone = word_of(row), tone_of(row)
    wins, equal, losses = row["wins"], row["ties"], row["losses"]
    parts = [("wins", wins), ("equal", equal), ("losses", losses)]
    counts_text = f"{wins:,} queries better, {equal:,} equal, {losses:,} worse"
    return Delta(
        change=signed_change(row["delta"]),
        ends=signed_interval(row["ci"]),
        p=p_value(row["p_adjusted"]),
        wins=wins,
        equal=equal,
        losses=losses,
        word=word,
        tone=tone,
        n=f"{row['n']:,}",
        detects=figure(row["detectable"]),
        bar=_bar(row, reach, tone),
        split=split_bar(parts, counts_text, _SPLIT),
    )


def word_of(row: Row) -> str:
    """Return the verdict on one comparison, the same in every table."""
    return verdict_words(row) if row["verdict"] else "not judged"


def tone_of(row: Row) -> str:
    """Return whether a verdict is good or bad news; "same" is neither."""
    return "bad" if row.get("caution") else VERDICT_TONES.get(row["verdict"] or "", "")


def _bar(row: Row, reach: Mapping[str, float], tone: str) -> Bar:
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
    return Bar(f"{row['measure']} changes by {delta}", _DELTA, tuple(marks), tone)


@dataclass(frozen=True, slots=True)
class Cell:
    """A measure of one system; ``lacks`` says why it has no value.

    ``own`` is what it is over all of the system's queries, where this is over fewer.
    """

    mean: str
    ends: str = ""
    lacks: str = ""
    ties: str = ""
    own: str = ""


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """A measure of all systems; ``deltas`` compare with the baseline, None without one."""

    measure: str
    decides: bool
    lower: bool
    cells: tuple[Cell, ...]
    deltas: tuple[Delta | None, ...]
    quartiles: str
    n: str
    ceiling: str


@dataclass(frozen=True, slots=True)
class PairRow:
    """A measure of two systems, and their difference."""

    measure: str
    decides: bool
    lower: bool
    baseline: Cell
    system: Cell
    delta: Delta | None
    ceiling: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two systems: for each measure both means and their difference.

    ``fewer`` is true where some means are over the queries that both have, and not over all.
    """

    baseline: str
    system: str
    rows: tuple[PairRow, ...]
    fewer: bool


@dataclass(frozen=True, slots=True)
class Systems:
    """What the section shows: the table of all systems, then one of each pair.

    ``alone`` is true where one pair says all that there is to say.
    """

    names: tuple[str, ...]
    baseline: str
    rows: tuple[MeasureRow, ...]
    pairs: tuple[Pair, ...]
    alone: bool
    opened: bool
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    spread: Grid
    meanings: tuple[tuple[str, str], ...]


def systems_of(document: Document, head: Document | None) -> Systems:
    """Return measures as rows, the one that decides first."""
    names = tuple(system_names(document))
    rows = tuple(_rows(document, head))
    pairs = tuple(_pairs(document, rows))
    compared = [rule_line(document), tests_line(document)] if pairs else []
    lines = [*nothing_found_lines(document), *compared]
    lines += [*overlap_lines(document), *lacks_lines(document)]
    compared_names = {name for pair in pairs for name in (pair.baseline, pair.system)}
    return Systems(
        names=names,
        baseline=shown_names(document).get(baseline_name(document) or "", ""),
        rows=rows,
        pairs=pairs,
        alone=len(pairs) == 1 and compared_names == set(names),
        opened=len(pairs) <= MOST_OPEN,
        columns=tuple(name for name in _OPTIONAL if any(getattr(row, name) for row in rows)),
        notes=tuple(short(line, LONGEST_SENTENCE) for line in lines),
        spread=[[short(cell) for cell in row] for row in distribution_table(document)],
        meanings=tuple(_meanings([row.measure for row in rows])),
    )


def _rows(document: Document, head: Document | None) -> list[MeasureRow]:
    primary = primary_name(document, head)
    names = sorted(measure_names(document, head), key=lambda name: name != primary)
    heads, *lines = measure_table(document)
    table_cells = {line[0]: dict(zip(heads, line, strict=True)) for line in lines}
    compared, reach = overall_rows(document), delta_scales(document)
    baseline = baseline_name(document) or ""
    rows = []
    for name in names:
        deltas = tuple(
            delta_of(compared.get((baseline, system["name"], name)), reach)
            for system in document["systems"]
        )
        rows.append(_row(document, name, deltas, table_cells.get(name, {})))
    return rows


def _row(
    document: Document, name: str, deltas: tuple[Delta | None, ...], table_cells: Mapping[str, str]
) -> MeasureRow:
    cells = [system["measures"].get(name) for system in document["systems"]]
    known = [cell for cell in cells if cell is not None]
    ns = sorted({cell["n"] for cell in known})
    # A system may have the name of one of these columns.
    taken = {system["name"] for system in document["systems"]}
    quartiles, ceiling = (
        "" if key in taken else table_cells.get(key, "") for key in _OPTIONAL[::2]
    )
    return MeasureRow(
        measure=name,
        decides=document.get("rule", {}).get("primary") == name,
        lower=any(cell["better"] == "lower" for cell in known),
        cells=tuple(map(_cell, cells)),
        deltas=deltas,
        quartiles=quartiles,
        n=" to ".join(f"{n:,}" for n in dict.fromkeys([ns[0], ns[-1]])),
        ceiling=ceiling,
    )


def _cell(cell: Row | None) -> Cell:
    if cell is None:
        return Cell(figure(None), lacks="not measured")
    ties = cell.get("ties")
    tied = ties is not None and figure(ties[0]) != figure(ties[1])
    lacks = short(cell.get("lacks", ""), LONGEST_SENTENCE)
    return Cell(figure(cell["mean"]), interval(cell["ci"]), lacks, interval(ties) if tied else "")


def _pairs(document: Document, rows: Sequence[MeasureRow]) -> list[Pair]:
    """Return every compared pair, in the order of the comparison."""
    compared, reach = overall_rows(document), delta_scales(document)
    systems = {system["name"]: system for system in document["systems"]}
    shown = shown_names(document)
    pairs = []
    for pair in dict.fromkeys(key[:2] for key in compared):
        pair_rows = []
        for row in rows:
            comparison = compared.get((*pair, row.measure))
            cells = [
                # Repeated runs are separate systems in the table of all, but one here.
                systems[name]["measures"].get(row.measure) if name in systems else _UNKNOWN
                for name in pair
            ]
            first, second = _pair_cells(comparison, cells)
            measure = (row.measure, row.decides, row.lower)
            pair_rows.append(
                PairRow(*measure, first, second, delta_of(comparison, reach), row.ceiling)
            )
        baseline, system = (shown.get(name, short(name)) for name in pair)
        fewer = any(cell.own for row in pair_rows for cell in (row.baseline, row.system))
        pairs.append(Pair(baseline, system, tuple(pair_rows), fewer))
    return pairs


def _pair_cells(comparison: Row | None, cells: Sequence[Row | None]) -> list[Cell]:
    """Return both means of a row: over the shared queries where they differ from the systems' own.

    A system that failed on some queries, or was not asked them, has a mean over fewer.
    """
    if (
        comparison is None
        or comparison["baseline_mean"] is None
        or comparison["system_mean"] is None
    ):
        return [_cell(cell) for cell in cells]
    paired = [float(comparison[side]) for side in ("baseline_mean", "system_mean")]
    own_means = [None if cell is None else cell["mean"] for cell in cells]
    differ = any(
        mean is not None and figure(mean) != figure(shared_mean)
        for mean, shared_mean in zip(own_means, paired, strict=True)
    )
    return [
        _paired(cell, mean) if differ or cell is None or cell["mean"] is None else _cell(cell)
        for cell, mean in zip(cells, paired, strict=True)
    ]


def _paired(cell: Row | None, mean: float) -> Cell:
    """Return a mean over shared queries; the system's own interval does not apply to it."""
    if cell is None or cell["mean"] is None:
        return Cell(figure(mean))
    own_mean = f"{figure(cell['mean'])} {interval(cell['ci'])}".strip()
    return Cell(figure(mean), own=f"{own_mean} over all {cell['n']:,} queries of its own")


def _meanings(measures: Sequence[str]) -> list[tuple[str, str]]:
    """Return the first line of each measure's documentation."""
    meanings = []
    for name in measures:
        try:
            meanings.append((name, named(name).about.partition("\n")[0].replace("``", "")))
        except UsageError:
            # A document of a later version may have measures that this one does not know.
            continue
    return meanings
