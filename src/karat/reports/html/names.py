"""What the sections of a page call things: systems, measures and segments, short enough to show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from karat.reports.figures import label

Document = Mapping[str, Any]

# A longer name is cut in its middle: what tells names apart mostly stands at their ends.
LONGEST = 64
# No sentence of karat's own is as long; one that holds a name of some kilobytes is.
LONGEST_SENTENCE = 600


def short(text: str, longest: int = LONGEST) -> str:
    """A name from a file, safe to show and never longer than a line.

    >>> short("bm25"), short("a" * 40 + "b" * 40, 11)
    ('bm25', 'aaaaa…bbbbb')
    """
    safe = label(text)
    if len(safe) <= longest:
        return safe
    half = (longest - 1) // 2
    return f"{safe[: longest - 1 - half]}…{safe[-half:]}"


def system_names(document: Document) -> list[str]:
    """The names of the systems, no two alike even where they had to be cut."""
    names: list[str] = []
    for system in document["systems"]:
        name = wanted = short(system["name"])
        number = 2
        while name in names:
            name, number = f"{wanted} ({number})", number + 1
        names.append(name)
    return names


def shown_names(document: Document) -> dict[str, str]:
    """What each system is called on the page, by its name."""
    full = [system["name"] for system in document["systems"]]
    return dict(zip(full, system_names(document), strict=True))


def cut_names(document: Document) -> list[tuple[str, str]]:
    """The names that had to be cut, and how they read in full."""
    pairs = ((shown, label(name)) for name, shown in shown_names(document).items())
    return [(shown, name) for shown, name in pairs if shown != name]


def measure_names(document: Document, head: Document | None) -> list[str]:
    """The measures in the order of the evaluation; a stored document has them by the alphabet."""
    known = [name for system in document["systems"] for name in system["measures"]]
    told = [one["name"] for one in (head or {}).get("measures", ())]
    compared = [row["measure"] for row in document.get("comparisons", ()) if not row["segment"]]
    return [name for name in dict.fromkeys([*told, *compared, *known]) if name in set(known)]


def primary_name(document: Document, head: Document | None) -> str | None:
    """The measure that decides: the rule's, else the view's, else the first."""
    names = measure_names(document, head)
    wanted = (document.get("rule", {}).get("primary"), (head or {}).get("primary"))
    return next((name for name in wanted if name in names), names[0] if names else None)


def baseline_name(document: Document) -> str | None:
    """What the other systems are compared with, where they are."""
    rows = document.get("comparisons", ())
    return rows[0]["baseline"] if rows else None
