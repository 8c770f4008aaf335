"""Which words a query shares with a text: what a search for words has to go by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_WORD = re.compile(r"\w+")


def terms_of(text: str) -> tuple[str, ...]:
    """The different words of a text, whatever their case, in their order.

    >>> terms_of("Café opening: CAFÉ, 9 am")
    ('café', 'opening', '9', 'am')
    """
    return tuple(dict.fromkeys(_WORD.findall(text.casefold())))


@dataclass(frozen=True, slots=True)
class Overlap:
    """The words of a query beside those of its gold and of the first hit.

    ``gold`` are the words that it shares with the gold item that shares most, ``item_id``;
    ``missing`` are those that no gold has; ``top`` those of the first hit. What cannot be told
    for want of a text is None.
    """

    query: tuple[str, ...]
    item_id: str | None
    gold: tuple[str, ...] | None
    missing: tuple[str, ...] | None
    top: tuple[str, ...] | None

    def document(self) -> dict[str, Any]:
        """How many words, and which."""
        share = None if self.gold is None or not self.query else len(self.gold) / len(self.query)
        return {
            "query": len(self.query),
            "query_words": list(self.query),
            "gold": None if self.gold is None else len(self.gold),
            "gold_words": None if self.gold is None else list(self.gold),
            "gold_item": self.item_id,
            "share": share,
            "missing": None if self.missing is None else list(self.missing),
            "top": None if self.top is None else len(self.top),
            "top_words": None if self.top is None else list(self.top),
        }


def overlap_of(query: str, gold: Mapping[str, str | None], top: str | None) -> Overlap:
    """The overlap of a query with the texts of its gold, by item, and with that of the first hit.

    >>> found = overlap_of("When will my refund arrive", {"a": "Refunds", "b": "a refund"}, None)
    >>> found.gold, found.missing
    (('refund',), ('when', 'will', 'my', 'arrive'))
    """
    asked = terms_of(query)
    words = {item: frozenset(terms_of(text)) for item, text in gold.items() if text is not None}
    shared = {item: _within(asked, own) for item, own in words.items()}
    best = max(shared, key=lambda item: len(shared[item]), default=None)
    anywhere = frozenset[str]().union(*words.values())
    return Overlap(
        query=asked,
        item_id=best,
        gold=None if best is None else shared[best],
        missing=None if best is None else tuple(word for word in asked if word not in anywhere),
        top=None if top is None else _within(asked, frozenset(terms_of(top))),
    )


def _within(words: Sequence[str], text: frozenset[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word in text)
