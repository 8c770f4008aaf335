"""Small drawings beside figures: where the marks of a bar stand; the templates draw them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HEIGHT = 18.0
# Room for half a mark at both ends.
_EDGE = 5.0
# The top and height of each kind of mark.
_KINDS = {
    "track": (8.5, 1.0),
    "open": (2.5, 13.0),
    "passing": (2.0, 14.0),
    "margin": (2.0, 14.0),
    "ties": (4.5, 9.0),
    "interval": (7.0, 4.0),
    "limit": (0.0, 18.0),
    "ceiling": (2.0, 14.0),
    "zero": (0.0, 18.0),
    "value": (9.0, 0.0),
    "judged": (9.0, 0.0),
    "wins": (4.0, 10.0),
    "equal": (4.0, 10.0),
    "losses": (4.0, 10.0),
    "count": (4.0, 10.0),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark of a bar: a stretch, a line, or a point (of no width)."""

    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A drawing of one line, and its description for screen readers."""

    says: str
    width: float
    marks: tuple[Mark, ...]
    tone: str = ""
    height: float = HEIGHT


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to positions on a line of a given width."""

    low: float
    high: float
    width: float

    def at(self, value: float) -> float:
        """Return the position of a value; values beyond the ends are at the ends.

        >>> [Scale(0, 1, 110).at(value) for value in (0, 0.5, 2)]
        [5.0, 55.0, 105.0]
        """
        share = (value - self.low) / (self.high - self.low)
        return round(_EDGE + min(max(share, 0.0), 1.0) * (self.width - 2 * _EDGE), 1)

    def point(self, kind: str, value: float | None) -> list[Mark]:
        """Return a mark at a value; none without a value."""
        if value is None:
            return []
        y, height = _KINDS[kind]
        return [Mark(kind, self.at(value), y, 0.0, height)]

    def stretch(self, kind: str, ends: Sequence[float | None] | None) -> list[Mark]:
        """Return a mark between two values; none if an end is unknown."""
        if ends is None or ends[0] is None or ends[1] is None:
            return []
        start, end = self.at(ends[0]), self.at(ends[1])
        y, height = _KINDS[kind]
        return [Mark(kind, start, y, round(max(end - start, 1.0), 1), height)]

    def track(self) -> list[Mark]:
        """Return the line that the other marks stand on."""
        return self.stretch("track", (self.low, self.high))


def scale_of(values: Iterable[float | None], width: float) -> Scale:
    """Return a scale from 0 to 1 if all values are shares, else one that holds all of them.

    >>> scale_of([0.2, None, 1.0], 100), scale_of([0.2, 60.0], 100)
    (Scale(low=0.0, high=1.0, width=100), Scale(low=0.0, high=63.0, width=100))
    """
    known = [value for value in values if value is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    if low >= 0 and high <= 1:
        return Scale(0.0, 1.0, width)
    room = 0.05 * (high - low)
    return Scale(low and low - room, high + room, width)


def around_zero(reach: float, width: float) -> Scale:
    """Return a scale that reaches as far below 0 as above it."""
    reach = 1.05 * reach or 1.0
    return Scale(-reach, reach, width)


def split_bar(parts: Sequence[tuple[str, int]], text: str, width: float) -> Bar:
    """Return a bar of parts side by side that make up a whole.

    >>> bar = split_bar([("wins", 3), ("losses", 1)], "", 80)
    >>> [(one.kind, one.x, one.width) for one in bar.marks]
    [('wins', 0.0, 60.0), ('losses', 60.0, 20.0)]
    """
    total = sum(count for _, count in parts)
    marks, start = [], 0.0
    for kind, count in parts:
        y, height = _KINDS[kind]
        size = width * count / total if total else 0.0
        if count:
            marks.append(Mark(kind, round(start, 1), y, round(size, 1), height))
        start += size
    return Bar(text, width, tuple(marks))


def count_bar(count: int, most: int, width: float) -> Bar:
    """Return a count as a length; any count above 0 is visible."""
    y, height = _KINDS["count"]
    size = round(max(width * count / most, 2.0), 1) if count and most else 0.0
    return Bar("", width, (Mark("count", 0.0, y, size, height),) if size else ())
