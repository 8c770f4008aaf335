"""What retrieving is made of: query, hit, answer, and the protocols of what gives answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from karat.data.tables import Queries, Run


class Retriever(Protocol):
    """Anything that searches: a table of queries in, a run out.

    >>> class Everything:
    ...     def search(self, queries, k):
    ...         return karat.Run.from_dict(dict.fromkeys(queries.frame["query_id"], ["a", "b"]))
    >>> results = karat.search({"all": Everything()}, {"q1": "one?"})
    >>> results[0].calls, results[0].failed
    (1, 0)
    """

    def search(self, queries: Queries, k: int) -> Run: ...


@dataclass(frozen=True, slots=True)
class Query:
    """One query; ``attributes`` are its other columns."""

    query_id: str
    text: str
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def as_of(self) -> str | None:
        """The point in time that the query asks about, as text."""
        value = self.attributes.get("as_of")
        return None if value is None else str(value)


class Hit(NamedTuple):
    """One item of a ranked list; its position in the list is its rank.

    ``text`` serves later stages, such as a reranker, and is not logged. ``start`` and ``end``
    are where a chunk lies in its document, in characters.
    """

    item_id: str
    score: float | None = None
    doc_id: str | None = None
    version: str | None = None
    source: str | None = None
    similarity: float | None = None
    text: str | None = None
    start: int | None = None
    end: int | None = None


Hits = list[Hit]

# Gets what is being built, how much of it is done and how much there is; for a progress bar.
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Answer:
    """The ranked hits of one call, and how they came about.

    ``latency`` is in milliseconds by stage; ``lists`` holds the list of every stage, in
    the order in which they ran; ``source`` is the source that a router chose. ``spent`` is
    what this answer took by itself, for a batch that is timed together; ``aside`` is time
    for what only the log wanted.
    """

    hits: Hits
    latency: dict[str, float] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    lists: dict[str, Hits] = field(default_factory=dict)
    rewritten: str | None = None
    source: str | None = None
    spent: float | None = None
    aside: float = 0.0


class Finder(Protocol):
    """What a system retrieves with: queries in, one answer for each, in their order.

    ``batch`` is how many queries it likes to be given at once, ``concurrency`` how many
    such calls may run side by side, ``deep`` whether it can be asked for any number of
    hits at little cost. ``meta`` is what the log should say of it: models, index, sizes.
    A call that fails raises CallError.
    """

    @property
    def batch(self) -> int: ...
    @property
    def concurrency(self) -> int: ...
    @property
    def deep(self) -> bool: ...
    @property
    def meta(self) -> Mapping[str, Any]: ...
    def find(self, queries: Sequence[Query], k: int) -> list[Answer]: ...


@dataclass(frozen=True, eq=False)
class QueryFinder:
    """A finder that searches for one query at a time; by default an index in memory."""

    search: Callable[[Query, int], Answer]
    meta: Mapping[str, Any]
    batch: int = 1
    concurrency: int = 1
    deep: bool = True

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return one answer per query."""
        return [self.search(query, k) for query in queries]


def shares(elapsed: float, answers: Sequence[Answer]) -> list[float]:
    """Return the milliseconds of each answer of a batch: its own, and a share of the rest.

    >>> shares(30.0, [Answer([], spent=10.0), Answer([], spent=2.0)])
    [19.0, 11.0]
    """
    spent = [answer.spent or 0.0 for answer in answers]
    shared = max(0.0, elapsed - sum(spent)) / max(1, len(spent))
    return [ms + shared for ms in spent]


def queries_from(queries: Queries) -> list[Query]:
    """Return the queries of a table one by one."""
    return [
        Query(
            str(row.pop("query_id")),
            str(row.pop("text")),
            {name: value for name, value in row.items() if value is not None},
        )
        for row in queries.frame.iter_rows(named=True)
    ]
