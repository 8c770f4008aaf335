"""Where the names of points stand so that none covers another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

# A plot as narrow as a phone shows it; a wider one only leaves more room.
_WIDTH, _HEIGHT = 240.0, 250.0
_LETTER, _LINE, _POINT, _AWAY = 7.0, 13.0, 6.0, 5.0
# Of a longer name a label has the beginning; so much fits on one side of any point.
_LONGEST = 16


class Place(NamedTuple):
    """A point and its name."""

    x: float
    y: float
    name: str


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other: _Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.bottom <= other.top or other.bottom <= self.top)

    @property
    def inside(self) -> bool:
        return self.left >= 0 and self.right <= _WIDTH


Ends = Sequence[float]


def placed(
    points: Sequence[Place], across: Ends, upright: Ends, *, by_ratio: bool = False
) -> list[dict[str, Any]]:
    """For each point its name and where it stands; no name where every corner is taken.

    ``across`` and ``upright`` are the ends of the axes.
    """
    dots = [
        (
            _WIDTH * _share(point.x, across, by_ratio=by_ratio),
            _HEIGHT * (1 - _share(point.y, upright)),
        )
        for point in points
    ]
    taken = [_Box(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y in dots]
    found = []
    for point, (x, y) in zip(points, dots, strict=True):
        name = point.name if len(point.name) <= _LONGEST else f"{point.name[: _LONGEST - 1]}…"
        free: dict[str, Any] = {"name": None, "align": "left", "dx": 0, "dy": 0}
        for corner, box in _corners(x, y, _LETTER * len(name)):
            if box.inside and not any(box.covers(other) for other in taken):
                taken.append(box)
                free = {"name": name, **corner}
                break
        found.append(free)
    return found


def _share(value: float, ends: Ends, *, by_ratio: bool = False) -> float:
    """How far along an axis a value lies."""
    at, low, high = (math.log(one) if by_ratio else one for one in (value, *ends))
    return (at - low) / (high - low)


def _corners(x: float, y: float, width: float) -> Iterator[tuple[dict[str, Any], _Box]]:
    """Off the four corners, since lines run across and upright: above first, right first."""
    for down in (-1, 1):
        for right in (1, -1):
            near = x + right * _AWAY
            middle = y + down * _LINE
            left = near if right > 0 else near - width
            box = _Box(left, middle - _LINE / 2, left + width, middle + _LINE / 2)
            align = "left" if right > 0 else "right"
            yield {"align": align, "dx": right * _AWAY, "dy": down * _LINE}, box
