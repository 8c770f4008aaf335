"""Stages that follow retrieving and look at one list at a time: sieves, a bonus, a cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from karat.columns import doc_of_text
from karat.errors import CallError, UsageError, unknown
from karat.measures.kernels.lists import in_time
from karat.retrievers.items import Items
from karat.retrievers.protocol import Hit, Hits, Query
from karat.retrievers.templates import filled

# What a hit can tell of itself, with or without a corpus.
_OWN = ("item_id", "doc_id", "version", "source")


class Sieve(Protocol):
    """A stage that keeps or drops each hit by itself.

    ``ends`` says that after such a hit, in a list by falling score, none is kept.
    """

    @property
    def name(self) -> str: ...
    def keeps(self, query: Query, hit: Hit) -> bool: ...
    def ends(self, hit: Hit) -> bool: ...


class Stage(Protocol):
    """A stage that makes a new list of a list."""

    @property
    def name(self) -> str: ...
    def apply(self, query: Query, hits: Hits) -> Hits: ...


class Filter:
    """Keeps items whose attributes are those asked for; a value ``{column}`` is the query's."""

    name = "filter"

    def __init__(self, wanted: Mapping[str, Any], items: Items | None) -> None:
        self._wanted = {name: _listed(value) for name, value in wanted.items()}
        self._facts = _Facts(items)
        self._last: tuple[Query | None, dict[str, set[str]]] = None, {}
        for name, values in self._wanted.items():
            if name not in self._facts.names:
                raise unknown("attribute of the items", name, self._facts.names, inside="filter")
            if not values:
                raise UsageError(f"filter has no value for {name}, so nothing would pass it")

    def keeps(self, query: Query, hit: Hit) -> bool:
        """Whether every attribute has one of the values wanted, compared as text."""
        for name, wanted in self._wanted_by(query).items():
            has = self._facts.of(hit, name)
            if has not in wanted if isinstance(has, str) else wanted.isdisjoint(_spelled(has)):
                return False
        return True

    def _wanted_by(self, query: Query) -> dict[str, set[str]]:
        """The values as texts; those of the last query are kept, since its hits come in a row."""
        last, wanted = self._last
        if last is not query:
            wanted = {
                name: {text for one in values for text in _spelled(filled(one, query, {}))}
                for name, values in self._wanted.items()
            }
            self._last = query, wanted
        return wanted

    def ends(self, hit: Hit) -> bool:
        """No hit does: what it is about is not in the order of scores."""
        return False


class AsOf:
    """Keeps items no newer than the query's as_of; ``strict`` drops unknown versions too."""

    name = "as_of"

    def __init__(self, strict: bool, items: Items | None) -> None:
        self._strict = strict
        self._facts = _Facts(items)

    def keeps(self, query: Query, hit: Hit) -> bool:
        """Whether the item was there at the query's time; without a time every item was."""
        if query.as_of is None:
            return True
        if not _is_time(query.as_of):
            raise CallError(f"as_of is {query.as_of!r}; a date such as 2026-03-31 is expected")
        version = self._facts.of(hit, "version")
        age = in_time(None if version is None else str(version), query.as_of, ())
        return age == 1 if self._strict else age != 0

    def ends(self, hit: Hit) -> bool:
        """No hit does: what it is about is not in the order of scores."""
        return False


@dataclass(frozen=True)
class Threshold:
    """Keeps hits of at least this score; a hit without a score cannot be judged."""

    least: float
    name: str = "threshold"

    def keeps(self, query: Query, hit: Hit) -> bool:
        """Whether the score is high enough."""
        if hit.score is None:
            raise CallError(f"item {hit.item_id!r} has no score, and threshold needs one")
        return hit.score >= self.least

    def ends(self, hit: Hit) -> bool:
        """Whether the score is too low."""
        return hit.score is not None and hit.score < self.least


class DistinctDocs:
    """Adds a bonus to the first item of each document, then ranks by the new scores."""

    name = "distinct_docs"

    def __init__(self, bonus: float, items: Items | None) -> None:
        self._bonus = bonus
        self._facts = _Facts(items)

    def apply(self, query: Query, hits: Hits) -> Hits:
        """The list after the bonus; equal scores keep their order."""
        seen: set[str] = set()
        scored: list[tuple[float, Hit]] = []
        for hit in hits:
            if hit.score is None:
                raise CallError(f"item {hit.item_id!r} has no score, and distinct_docs needs one")
            doc = str(self._facts.of(hit, "doc_id"))
            score = hit.score if doc in seen else hit.score + self._bonus
            seen.add(doc)
            scored.append((score, hit))
        scored.sort(key=lambda one: -one[0])
        return [hit._replace(score=score) for score, hit in scored]


class _Facts:
    """What is known of hits: what they brought themselves, else what the corpus says."""

    def __init__(self, items: Items | None) -> None:
        self._items = items
        self._columns: dict[str, list[Any]] = {}
        columns = [] if items is None else items.frame.columns
        self.names = tuple(dict.fromkeys((*columns, *_OWN)))

    def of(self, hit: Hit, name: str) -> Any:
        """One fact of a hit, None if it is not known."""
        own = getattr(hit, name) if name in _OWN else None
        told = own if own is not None else self._in_corpus(hit.item_id, name)
        return doc_of_text(hit.item_id) if told is None and name == "doc_id" else told

    def _in_corpus(self, item_id: str, name: str) -> Any:
        row = None if self._items is None else self._items.rows.get(item_id)
        if self._items is None or row is None:
            return None
        if name not in self._columns:
            has = name in self._items.frame.columns
            self._columns[name] = self._items.frame[name].to_list() if has else []
        return self._columns[name][row] if self._columns[name] else None


@lru_cache(maxsize=1024)
def _is_time(text: str) -> bool:
    return in_time(text, text, ()) == 1


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _spelled(value: Any) -> set[str]:
    """A value, or each of several, as text: a number matches the text that spells it."""
    return {_text(one) for one in _listed(value) if one is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
