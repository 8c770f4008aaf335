"""Names, differences and links as a page writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from karat.pages.formatting import change, interval, label

Document = Mapping[str, Any]

# A longer name is cut in its middle, since names mostly differ at their ends.
LONGEST = 64
# Only a sentence with a very long name is longer.
LONGEST_SENTENCE = 600


def short(text: str, longest: int = LONGEST) -> str:
    """Return a name from a file, safe to show and cut in the middle if it is long.

    >>> short("bm25"), short("a" * 40 + "b" * 40, 11)
    ('bm25', 'aaaaa…bbbbb')
    """
    safe = label(text)
    if len(safe) <= longest:
        return safe
    half = (longest - 1) // 2
    return f"{safe[: longest - 1 - half]}…{safe[-half:]}"


def system_names(document: Document) -> list[str]:
    """Return the names of the systems, all different even if they had to be cut."""
    names: list[str] = []
    for system in document["systems"]:
        name = wanted = short(system["name"])
        number = 2
        while name in names:
            name, number = f"{wanted} ({number})", number + 1
        names.append(name)
    return names


def shown_names(document: Document) -> dict[str, str]:
    """Return the shown name of each system, by its full name."""
    full = [system["name"] for system in document["systems"]]
    return dict(zip(full, system_names(document), strict=True))


def cut_names(document: Document) -> list[tuple[str, str]]:
    """Return the names that had to be cut, with the full ones."""
    pairs = ((shown, label(name)) for name, shown in shown_names(document).items())
    return [(shown, name) for shown, name in pairs if shown != name]


def measure_names(document: Document, head: Document | None) -> list[str]:
    """Return the measures in the order of the evaluation; stored documents have them sorted."""
    known = [name for system in document["systems"] for name in system["measures"]]
    in_view = [measure["name"] for measure in (head or {}).get("measures", ())]
    compared = [row["measure"] for row in document.get("comparisons", ()) if not row["segment"]]
    return [name for name in dict.fromkeys([*in_view, *compared, *known]) if name in set(known)]


def primary_name(document: Document, head: Document | None) -> str | None:
    """Return the measure that decides: the rule's, else the view's, else the first."""
    names = measure_names(document, head)
    wanted = (document.get("rule", {}).get("primary"), (head or {}).get("primary"))
    return next((name for name in wanted if name in names), names[0] if names else None)


def baseline_name(document: Document) -> str | None:
    """Return the system that the others are compared with, if any."""
    rows = document.get("comparisons", ())
    return rows[0]["baseline"] if rows else None


MINUS = "\u2212"
# A number with decimals after a space or a bracket, not a hyphen within a name.
_NEGATIVE = re.compile(r"(?<=[ \[])-(?=\d+\.\d)")


def signed_change(value: float | None) -> str:
    """Return a difference with its sign and a true minus; one too small to see has none.

    >>> signed_change(0.03), signed_change(-0.4), signed_change(-1e-9), signed_change(None)
    ('+0.0300', '−0.4000', '0.0000', '-')
    """
    nothing = value is not None and not round(value, 4)
    text = change(0.0 if nothing else value)
    return f"{MINUS}{text[1:]}" if text.startswith("-") and len(text) > 1 else text


def signed_interval(ends: Sequence[float] | None) -> str:
    """Return the interval of a difference, with a true minus.

    >>> signed_interval([-0.3, 0.1]), signed_interval(None)
    ('[−0.30, 0.10]', '')
    """
    return interval(ends).replace("-", MINUS)


def with_minus(sentence: str) -> str:
    """Return a sentence with a true minus before its negative numbers.

    >>> with_minus("run-2 fell by -0.100 [-0.184, 0.032] where language = pt-BR")
    'run-2 fell by −0.100 [−0.184, 0.032] where language = pt-BR'
    """
    return _NEGATIVE.sub(MINUS, sentence)


# Queries are listed in brackets, as in "(q_051, q_052 …)"; classes have an underscore.
_NAMED = re.compile(r"\([^()]+\)|\b[a-z]+(?:_[a-z]+)+\b")


@dataclass(frozen=True, slots=True)
class LinkedText:
    """A part of a sentence; ``link`` is its target, or empty."""

    text: str
    link: str = ""


def class_link(kind: str, system: str) -> str:
    """Return the link to the misses of a system in one class.

    >>> class_link("low_rank", "a & b")
    '#class=low_rank&system=a+%26+b'
    """
    return f"#{urlencode({'class': kind, 'system': system})}"


def segment_link(column: str, value: str) -> str:
    """Return the link to the queries of a segment.

    >>> segment_link("language", "pt-BR")
    '#in.language=pt-BR'
    """
    return f"#{urlencode({f'in.{column}': value})}"


def query_link(query_id: str) -> str:
    """Return the link that opens one query."""
    return f"#{urlencode({'q': query_id})}"


def query_links(document: Document, head: Document | None) -> dict[str, str]:
    """Return the links for the missed queries and the classes of a report, by name.

    Without the ``head`` of a view the page has no queries to lead to.
    """
    if head is None:
        return {}
    links: dict[str, str] = {}
    for system in document["systems"]:
        for miss in system.get("failures", {}).get("missed", ()):
            links[miss["query_id"]] = query_link(miss["query_id"])
    whose = document.get("findings_of") or document["systems"][-1]["name"]
    classes = (kind for kind in head.get("classes", ()) if "_" in kind)
    return links | {kind: class_link(kind, whose) for kind in classes}


def link_names(sentence: str, links: Mapping[str, str]) -> tuple[LinkedText, ...]:
    """Return a sentence in pieces, with links where it names queries or a class of misses.

    >>> [one.text for one in link_names("2 miss (q_1, q_2 …) by low_rank", {"q_1": "#q=q_1"})]
    ['2 miss (', 'q_1', ', q_2 …) by low_rank']
    """
    if len(sentence) > LONGEST_SENTENCE:
        return (LinkedText(with_minus(short(sentence, LONGEST_SENTENCE))),)
    pieces: list[LinkedText] = []
    for text, link in _pieces(sentence, links):
        if not link and pieces and not pieces[-1].link:
            pieces[-1] = LinkedText(pieces[-1].text + text)
        elif text:
            pieces.append(LinkedText(text, link))
    return tuple(
        LinkedText(with_minus(short(piece.text, LONGEST_SENTENCE)), piece.link) for piece in pieces
    )


def _pieces(sentence: str, links: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    at = 0
    for match in _NAMED.finditer(sentence):
        yield sentence[at : match.start()], ""
        yield from _listed(match[0], links)
        at = match.end()
    yield sentence[at:], ""


def _listed(text: str, links: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a class, or the parts of a list in brackets, with the known names linked."""
    if not text.startswith("("):
        yield text, links.get(text, "")
        return
    for part in re.split(r"(\(|\)|, | …)", text):
        yield part, links.get(part, "")
