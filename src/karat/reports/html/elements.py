"""What the sections of a page share: names, signed differences, links, and small drawings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from karat.pages.formatting import change

Document = Mapping[str, Any]
# The values of a section that templates read.
Context = dict[str, Any]


def limit_of(gate: Document) -> float:
    """Return the limit of a gate."""
    return float(gate["max"] if gate.get("min") is None else gate["min"])


def system_names(document: Document) -> list[str]:
    """Return the names of the systems."""
    return [system["name"] for system in document["systems"]]


def measure_names(document: Document) -> list[str]:
    """Return the measures of all systems."""
    return list(dict.fromkeys(name for of in document["systems"] for name in of["measures"]))


def primary_name(document: Document, head: Document | None) -> str | None:
    """Return the primary measure: the rule's, else the view's, else the first."""
    names = measure_names(document)
    deciding = (document.get("rule", {}).get("primary"), (head or {}).get("primary"))
    return next((name for name in deciding if name in names), names[0] if names else None)


def baseline_name(document: Document) -> str | None:
    """Return the system that the others are compared with, if any."""
    rows = document.get("comparisons", ())
    return rows[0]["baseline"] if rows else None


MINUS = "\u2212"
# A number with decimals that begins a text or follows a space or a bracket.
_NEGATIVE = re.compile(r"(?<![^ \[])-(?=\d+\.\d)")


def with_minus(text: str) -> str:
    """Return a text with a true minus before its negative numbers.

    >>> with_minus("run-2 fell by -0.100 [-0.184, 0.032] where language = pt-BR")
    'run-2 fell by −0.100 [−0.184, 0.032] where language = pt-BR'
    """
    return _NEGATIVE.sub(MINUS, text)


def signed_change(value: float | None) -> str:
    """Return a difference with its sign and a true minus; no sign if it rounds to 0.

    >>> signed_change(0.03), signed_change(-0.4), signed_change(-1e-9), signed_change(None)
    ('+0.0300', '−0.4000', '0.0000', '-')
    """
    nothing = value is not None and not round(value, 4)
    return with_minus(change(0.0 if nothing else value))


def link_to(**filters: str) -> str:
    """Return the link to the query table with these filters.

    >>> link_to(**{"class": "low_rank", "system": "a & b"})
    '#class=low_rank&system=a+%26+b'
    """
    return f"#{urlencode(filters)}"


def query_links(document: Document, head: Document | None) -> dict[str, str]:
    """Return the links for the missed queries and the classes of a report, by name.

    Without the ``head`` of a view the page has no queries to lead to.
    """
    if head is None:
        return {}
    links: dict[str, str] = {}
    for system in document["systems"]:
        for miss in system.get("failures", {}).get("missed", ()):
            links[miss["query_id"]] = link_to(q=miss["query_id"])
    whose = document.get("findings_of") or document["systems"][-1]["name"]
    classes = (kind for kind in head.get("classes", ()) if "_" in kind)
    return links | {kind: link_to(**{"class": kind, "system": whose}) for kind in classes}


def link_names(sentence: str, links: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return a sentence in pieces, each with its link or none.

    Names of queries and of a class of misses become links.

    >>> link_names("2 miss (q_1, q_2 …) by low_rank", {"q_1": "#q=q_1"})
    [('2 miss (', ''), ('q_1', '#q=q_1'), (', q_2 …) by low_rank', '')]
    """
    names = "|".join(map(re.escape, sorted(links, key=len, reverse=True)))
    # Queries are listed in brackets, as in "(q_051, q_052 …)"; classes have an underscore.
    listed = rf"(?:(?<=\()|(?<=, ))(?:{names})(?=,|\)| …)|\b(?=[a-z]+_)(?:{names})\b"
    pieces = re.split(f"({listed})", sentence) if links else [sentence]
    return [(with_minus(piece), links.get(piece, "")) for piece in pieces if piece]


# Space for half a mark at both ends.
_EDGE = 5.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark of a bar: a stretch, or a line or point (of no width)."""

    kind: str
    x: float
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing of one line, and its description for screen readers."""

    says: str
    width: float
    marks: Sequence[Mark]
    tone: str = ""


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
        return [] if value is None else [Mark(kind, self.at(value))]

    def stretch(self, kind: str, ends: Sequence[float | None] | None) -> list[Mark]:
        """Return a mark between two values; none if an end is unknown."""
        if ends is None or ends[0] is None or ends[1] is None:
            return []
        start, end = self.at(ends[0]), self.at(ends[1])
        return [Mark(kind, start, round(max(end - start, 1.0), 1))]

    def track(self) -> list[Mark]:
        """Return the line below the other marks."""
        return self.stretch("track", (self.low, self.high))


def scale_of(values: Iterable[float | None], width: float) -> Scale:
    """Return a scale from 0 to 1 if all values are shares, else one that holds all of them.

    >>> scale_of([0.2, None, 1.0], 100), scale_of([0.2, 60.0], 100)
    (Scale(low=0.0, high=1.0, width=100), Scale(low=0.0, high=63.0, width=100))
    """
    known_values = [value for value in values if value is not None]
    low, high = min([0.0, *known_values]), max([0.0, *known_values])
    if low >= 0 and high <= 1:
        return Scale(0.0, 1.0, width)
    room = 0.05 * (high - low)
    return Scale(low and low - room, high + room, width)


def split_bar(
    parts: Sequence[tuple[str, int]], width: float, text: str = "", *, total: int | None = None
) -> Drawing:
    """Return a bar of adjacent parts, out of their sum or ``total``; no part is too small to see.

    >>> bar = split_bar([("wins", 3), ("losses", 1)], 80)
    >>> [(mark.kind, mark.x, mark.width) for mark in bar.marks]
    [('wins', 0.0, 60.0), ('losses', 60.0, 20.0)]
    """
    whole = total or sum(count for _, count in parts)
    marks, start = [], 0.0
    for kind, count in parts:
        if count:
            size = max(width * count / whole, 2.0)
            marks.append(Mark(kind, round(start, 1), round(size, 1)))
            start += size
    return Drawing(text, width, marks)
