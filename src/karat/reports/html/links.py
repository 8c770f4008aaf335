"""Links from what a page says to the queries that it says it of: addresses of the query table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from karat.reports.html.names import LONGEST_SENTENCE, Document, short
from karat.reports.html.signs import signed

# Names of queries stand in brackets, as in "(q_051, q_052 …)"; names of classes have a dash below.
_NAMED = re.compile(r"\([^()]+\)|\b[a-z]+(?:_[a-z]+)+\b")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a sentence; ``link`` is where it leads, or nothing."""

    text: str
    link: str = ""


def class_link(kind: str, system: str) -> str:
    """The misses of a system that are in a class.

    >>> class_link("low_rank", "a & b")
    '#class=low_rank&system=a+%26+b'
    """
    return f"#{urlencode({'class': kind, 'system': system})}"


def segment_link(column: str, value: str) -> str:
    """The queries of a segment.

    >>> segment_link("language", "pt-BR")
    '#in.language=pt-BR'
    """
    return f"#{urlencode({f'in.{column}': value})}"


def query_link(query_id: str) -> str:
    """One query, opened."""
    return f"#{urlencode({'q': query_id})}"


def query_links(document: Document, head: Document | None) -> dict[str, str]:
    """Where the missed queries and the classes of a report lead, by their names.

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


def pieces_of(sentence: str, links: Mapping[str, str]) -> tuple[Piece, ...]:
    """A sentence with links where it names queries or a class of misses.

    >>> [one.text for one in pieces_of("2 miss (q_1, q_2 …) by low_rank", {"q_1": "#q=q_1"})]
    ['2 miss (', 'q_1', ', q_2 …) by low_rank']
    """
    if len(sentence) > LONGEST_SENTENCE:
        return (Piece(signed(short(sentence, LONGEST_SENTENCE))),)
    found: list[Piece] = []
    for text, link in _pieces(sentence, links):
        if not link and found and not found[-1].link:
            found[-1] = Piece(found[-1].text + text)
        elif text:
            found.append(Piece(text, link))
    return tuple(Piece(signed(short(one.text, LONGEST_SENTENCE)), one.link) for one in found)


def _pieces(sentence: str, links: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    at = 0
    for match in _NAMED.finditer(sentence):
        yield sentence[at : match.start()], ""
        yield from _listed(match[0], links)
        at = match.end()
    yield sentence[at:], ""


def _listed(text: str, links: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """A class by itself, or a list in brackets, of which every name that is known is linked."""
    if not text.startswith("("):
        yield text, links.get(text, "")
        return
    for part in re.split(r"(\(|\)|, | …)", text):
        yield part, links.get(part, "")
