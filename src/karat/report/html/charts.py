"""What the charts of a page share: their shape, marks, scales and legends.

Colours are names of CSS custom properties, so that a drawn chart follows the theme and turns
dark on white for print without being drawn again.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.pages.charts import SHAPES
from karat.pages.formatting import label
from karat.pages.page import Grid, word_columns

Document = Mapping[str, Any]
Spec = dict[str, Any]

INK, MUTED, LINE = "var(--ink)", "var(--muted)", "var(--line)"
GOOD, BAD, VALUE = "var(--good)", "var(--bad)", "var(--accent)"
# As many as charts.css has colours of lines.
SERIES = 7
# A sentence names no more systems than these.
NAMED = 3
HEIGHT = 250
# From this ratio on, small values would fall together on a linear scale.
_FAR = 20.0
# The least that an axis of values spans, as a share of the highest.
_SPAN = 0.2
_STEPS = 5
# Numbers as people write them, from 0.05 to 20,000: never as powers of ten.
PLAIN = ",.6~f"

# The marks of a legend, in a box from -6 to 6, as Vega draws them.
_OUTLINES: Mapping[str, str] = {
    "circle": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "square": "M-4-4h8v8h-8z",
    "triangle-up": "M0-4.6L5 4.2H-5z",
    "diamond": "M0-5.5L4.5 0L0 5.5L-4.5 0z",
    "triangle-down": "M0 4.6L5-4.2H-5z",
    "cross": "M-1.7-5h3.4v3.3h3.3v3.4h-3.3v3.3h-3.4v-3.3h-3.3v-3.4h3.3z",
    "triangle-right": "M4.6 0L-4.2 5V-5z",
}
# Marks that belong to no system: a dashed line, a ring, a patch of a band.
DASH = "M-6-.8h4.5v1.6h-4.5zM1.5-.8h4.5v1.6h-4.5z"
RING = (
    "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0zM-4.1 0a4.1 4.1 0 1 1 8.2 0a4.1 4.1 0 1 1-8.2 0z"
)
PATCH = "M-6-3.5h12v7h-12z"


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: a name and its mark."""

    name: str
    colour: str
    outline: str


@dataclass(frozen=True)
class Chart:
    """One chart of a page.

    ``about`` says in a sentence what it shows, ``table`` holds the same figures, ``spec`` is
    Vega-Lite without width, fonts or colours of a theme.
    """

    id: str
    section: str
    title: str
    about: str
    spec: Spec
    table: Grid
    keys: tuple[Key, ...] = ()

    @property
    def words(self) -> set[int]:
        """The columns of the table that hold words."""
        return word_columns(self.table) | {0}


def colour_of(at: int) -> str:
    """Return the colour of a system, by its index in the report."""
    return f"var(--series-{at % SERIES + 1})"


def shape_of(at: int) -> str:
    """Return the shape of a system's points; colour and shape repeat after 49 systems."""
    return SHAPES[(at + at // SERIES) % len(SHAPES)]


def keys_of(names: Mapping[int, str]) -> tuple[Key, ...]:
    """Return a legend of systems; a single system needs none."""
    if len(names) < 2:
        return ()
    return tuple(Key(name, colour_of(at), _OUTLINES[shape_of(at)]) for at, name in names.items())


def marked(places: Sequence[int], *, shaped: bool = False) -> Spec:
    """Return the encoding of colour (and shape) by the index of a system in the report."""
    who: Spec = {"field": "at", "type": "nominal", "legend": None}
    domain = list(places)
    encoding = {"color": who | {"scale": {"domain": domain, "range": [*map(colour_of, domain)]}}}
    if shaped:
        encoding["shape"] = who | {"scale": {"domain": domain, "range": [*map(shape_of, domain)]}}
    return encoding


def amounts(field: str, values: Sequence[float], title: str) -> Spec:
    """Return an axis of times: logarithmic if they differ by a lot, else from 0."""
    low, high = min(values), max(values)
    by_ratio = low > 0 and high >= _FAR * low
    if by_ratio:
        scale: Spec = {"type": "log", "domain": [0.85 * low, 1.15 * high], "nice": False}
        ticks: Spec = {"values": decades(*scale["domain"])}
    else:
        scale = {"type": "linear", "domain": [0.0, high or 1.0], "nice": True}
        ticks = {"tickCount": 5}
    return {
        "field": field,
        "type": "quantitative",
        "title": f"{title}, log scale" if by_ratio else title,
        "scale": scale,
        "axis": {"labelOverlap": "greedy", "labelSeparation": 4, "format": PLAIN, **ticks},
    }


def decades(low: float, high: float) -> list[float]:
    """Return the ticks of a log scale: 1, 2 and 5 of each power of ten.

    >>> decades(0.15, 30)
    [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{power}") for power in powers for step in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]


def even_ticks(high: float) -> list[float]:
    """Return at most five even steps from 0 up to the highest value.

    >>> even_ticks(1.0), even_ticks(0.37), even_ticks(0.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 0.1, 0.2, 0.3], [0.0])
    """
    if high <= 0:
        return [0.0]
    power = math.floor(math.log10(high))
    sizes = [float(f"{step}e{power - 1}") for step in (1, 2, 5, 10, 20, 50)]
    step = next(size for size in sizes if high / size <= _STEPS + 1e-9)
    return [round(at * step, 12) for at in range(math.floor(high / step + 1e-9) + 1)]


def scale_of(values: Sequence[float]) -> Spec:
    """Return a scale from the lowest value to the highest, wide enough that noise stays small."""
    low, high = min(values), max(values)
    lacking = max(_SPAN * max(abs(low), abs(high)) - (high - low), 0.0)
    # Values that are never negative have no axis below 0.
    floor = low - lacking if low < 0 else max(low - lacking, 0.0)
    return {"domain": [floor, high if high > floor else floor + 1.0], "nice": True}


def shown(name: str) -> str:
    """Return a name from a file for use in a sentence, isolated if it is written right to left.

    >>> shown("bm25"), shown("\u05d0") == "\u2068\u05d0\u2069"
    ('bm25', True)
    """
    safe = label(name)
    turning = any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in safe)
    return f"\u2068{safe}\u2069" if turning else safe


def listed(parts: Sequence[str]) -> str:
    """Return several things as part of a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def tooltip() -> Spec:
    """Return the encoding of a mark's tooltip."""
    return {"field": "told", "type": "nominal"}
