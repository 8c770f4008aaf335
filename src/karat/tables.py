"""The four tables that everything else works on: Queries, Gold, Run, Corpus.

Frozen and columnar, with one spelling for each column. What comes in is checked
here once; after this door ids are strings, scores and grades are finite numbers,
and nothing is null that must not be. Files are the business of ``karat.formats``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl

from karat.columns import (
    GRADE_NAMES,
    IN_MEMORY,
    ITEM_NAMES,
    QUERY_NAMES,
    TEXT_NAMES,
    Duplicates,
    Source,
    check_lists,
    doc_of,
    finite,
    first_of,
    frame_of_rows,
    ids_as_text,
    map_with,
    numbers,
    one_judgment_each,
    text_series,
    to_polars,
    whole,
    with_texts,
)
from karat.errors import InputError, NoColumnError, UsageError

Order = Literal["score", "rank"]

BLOCK_ROWS = 1_000_000
HIGHEST_GRADE = 1e100


@dataclass(frozen=True, eq=False)
class Queries:
    """What is asked: ``query_id``, ``text`` and any attribute that makes segments.

    >>> Queries.from_dict({"q1": "apple tart"}).frame.rows()
    [('q1', 'apple tart')]
    """

    frame: pl.DataFrame
    source: Source = IN_MEMORY

    @classmethod
    def from_dict(cls, texts: Mapping[str, str | Mapping[str, Any]]) -> Queries:
        """From ``{query_id: text}`` or ``{query_id: {"text": …, "language": …}}``."""
        rows = [
            {"query_id": query_id, **({"text": value} if isinstance(value, str) else value)}
            for query_id, value in texts.items()
        ]
        return cls.from_frame(frame_of_rows(rows, ("query_id", "text")))

    @classmethod
    def from_frame(cls, frame: object, *, source: Source = IN_MEMORY) -> Queries:
        """From a Polars, pandas or Arrow table; other tools' column names are understood."""
        table = to_polars(frame, source)
        renames = {
            first_of(table, QUERY_NAMES, "query id", source): "query_id",
            first_of(table, TEXT_NAMES, "query text", source): "text",
        }
        table = ids_as_text(table.rename(renames), ("query_id",), source)
        table = with_texts(table, "text", source)
        twice = table.filter(pl.col("query_id").is_duplicated())
        if twice.height:
            name = twice["query_id"][0]
            raise InputError(f"query id {name!r} occurs twice; ids must differ", where=source.name)
        front = ["query_id", "text"]
        return cls(table.select(*front, pl.exclude(front)), source=source)

    @property
    def segments(self) -> list[str]:
        """The columns that a ``--by`` can name."""
        own = {"query_id", "text", "as_of", "no_answer", "k", "group", "rewritten", "entities"}
        return [name for name in self.frame.columns if name not in own]


@dataclass(frozen=True, eq=False)
class Gold:
    """What is right: one row a judgment, ``query_id``, ``item_id``, ``grade``.

    ``query_ids`` also holds queries that have no judgment at all. A hard negative is
    a judgment of grade 0 with ``negative`` set. Spans have ``start`` and ``end``.

    >>> gold = Gold.from_dict({"q1": {"d1": 2, "d2": 0}, "q2": {}})
    >>> gold.frame.rows(), gold.query_ids
    ([('q1', 'd1', 2.0), ('q1', 'd2', 0.0)], ('q1', 'q2'))
    """

    frame: pl.DataFrame
    query_ids: tuple[str, ...]
    source: Source = IN_MEMORY

    @classmethod
    def from_dict(cls, grades: Mapping[str, Mapping[str, float] | Iterable[str]]) -> Gold:
        """From ``{query_id: {item_id: grade}}``, or a set of items, each of grade 1."""
        check_lists(grades, "gold")
        rows = [
            (query_id, item_id, grade)
            for query_id, items in grades.items()
            for item_id, grade in (
                items.items() if isinstance(items, Mapping) else zip(items, repeat(1.0))
            )
        ]
        columns = {
            "query_id": text_series("query_id", [row[0] for row in rows]),
            "item_id": text_series("item_id", [row[1] for row in rows]),
            "grade": numbers("grade", [row[2] for row in rows]),
        }
        ids = text_series("query_id", list(grades)).to_list()
        return cls.from_frame(pl.DataFrame(columns), query_ids=ids)

    @classmethod
    def from_frame(
        cls,
        frame: object,
        *,
        query_ids: Sequence[str] | None = None,
        duplicates: Duplicates = "agree",
        lines: pl.Series | None = None,
        source: Source = IN_MEMORY,
    ) -> Gold:
        """From a table of judgments; no grade column means that every row is of grade 1.

        ``duplicates`` says what the same pair twice is: ``agree`` takes equal grades as
        one and refuses others, ``last`` lets the last win, ``refuse`` takes none.
        ``lines`` gives each row's line in its file, for error messages.
        """
        table = to_polars(frame, source)
        query = first_of(table, QUERY_NAMES, "query id", source)
        item = first_of(table, ITEM_NAMES, "item id", source, beside=query)
        grade = next((name for name in GRADE_NAMES if name in table.columns), None)
        table = table.rename(
            {query: "query_id", item: "item_id"} | ({grade: "grade"} if grade else {})
        )
        if grade is None:
            table = table.with_columns(grade=pl.lit(1.0))
        table = ids_as_text(table, ("query_id", "item_id"), source, lines)
        table = finite(table, "grade", "a judgment needs a finite grade", source, lines)
        if (table["grade"].abs() > HIGHEST_GRADE).any():
            raise InputError(
                f"a grade lies beyond {HIGHEST_GRADE:g}; grades that large cannot be added up",
                where=source.name,
            )
        table = one_judgment_each(table, duplicates, lines, source)
        extras = [name for name in ("negative", "start", "end", "version") if name in table.columns]
        table = table.select("query_id", "item_id", "grade", *extras)
        ids = table["query_id"].unique(maintain_order=True).to_list()
        if query_ids is not None:
            ids = list(dict.fromkeys([*query_ids, *ids]))
        return cls(table, tuple(ids), source=source)


class InterleavedError(Exception):
    """A query's hits turned up again after another query's: the run must be parted by query.

    A signal between a reader and the evaluation, never shown to a user.
    """


class Blocks(Protocol):
    """Anything that gives a run block by block, each block holding whole queries.

    ``staged`` says that there may be lists of earlier stages, which reading it whole gives.
    Where ``blocks`` raises ``InterleavedError``, ``parted`` gives other blocks of whole queries.
    """

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> Source: ...
    @property
    def staged(self) -> bool: ...
    def blocks(self) -> Iterator[Run]: ...
    def parted(self) -> Iterator[Run]: ...
    def read(self) -> Run: ...


@dataclass(frozen=True, eq=False)
class Run:
    """What a system returned: ``hits`` (one row a hit) and ``calls`` (one row a query).

    ``order`` says what ranks the hits: their ``score`` (TREC files, dicts, tables) or
    their ``rank`` (run logs). A call with an ``error`` is a failed call, never zero
    results. Without ``calls`` every query that has hits was called and succeeded.

    >>> Run.from_dict({"q1": {"d1": 0.9, "d2": 0.4}}).hits.rows()
    [('q1', 'd1', 0.9), ('q1', 'd2', 0.4)]
    """

    hits: pl.DataFrame
    calls: pl.DataFrame | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    order: Order = "score"
    name: str = "run"
    source: Source = IN_MEMORY

    @classmethod
    def from_dict(
        cls, scores: Mapping[str, Mapping[str, float] | Sequence[str]], *, name: str = "run"
    ) -> Run:
        """From ``{query_id: {item_id: score}}``, or ranked lists ``{query_id: [item_id, …]}``."""
        check_lists(scores, "a run")
        for query_id, ranking in scores.items():
            if isinstance(ranking, AbstractSet):
                raise UsageError(f"query {query_id!r} holds a set, which has no order; give a list")
        lengths = [len(items) for items in scores.values()]
        queries = text_series("query_id", list(scores))
        lists = [not isinstance(items, Mapping) for items in scores.values() if len(items)]
        if any(lists) and not all(lists):
            raise UsageError(
                "a run is either all {item: score} or all ranked lists; this one mixes"
            )
        # Empty lists are lists too where nothing else says how the run is ranked.
        ranked = any(lists or [not isinstance(items, Mapping) for items in scores.values()])
        items = text_series("item_id", list(chain.from_iterable(scores.values())))
        columns: dict[str, Any] = {
            "query_id": queries.gather(np.repeat(np.arange(len(lengths)), lengths)),
            "item_id": items,
        }
        if ranked:
            columns["rank"] = list(chain.from_iterable(range(1, n + 1) for n in lengths))
        else:
            full = (items for items in scores.values() if isinstance(items, Mapping))
            values = list(chain.from_iterable(items.values() for items in full))
            columns["score"] = numbers("score", values)
        calls = pl.DataFrame({"query_id": queries}) if 0 in lengths else None
        order: Order = "rank" if ranked else "score"
        return cls.from_frame(pl.DataFrame(columns), calls=calls, name=name, order=order)

    @classmethod
    def from_frame(
        cls,
        frame: object,
        *,
        calls: object | None = None,
        meta: Mapping[str, Any] | None = None,
        order: Order | None = None,
        name: str = "run",
        lines: pl.Series | None = None,
        source: Source = IN_MEMORY,
    ) -> Run:
        """From a table of hits; ranked by ``score`` where there is one, else by ``rank``."""
        table = to_polars(frame, source)
        query = first_of(table, QUERY_NAMES, "query id", source)
        item = first_of(table, ITEM_NAMES, "item id", source, beside=query)
        table = table.rename({query: "query_id", item: "item_id"})
        table = ids_as_text(table, ("query_id", "item_id"), source, lines)
        scored, ranked = "score" in table.columns, "rank" in table.columns
        if not scored and not ranked:
            raise NoColumnError(
                "no column score or rank",
                table.columns,
                f"a run needs one: {map_with('score')}",
                where=source.name,
            )
        if scored:
            table = finite(table, "score", "a run needs finite scores", source, lines)
        if ranked:
            table = whole(table, "rank", source, lines)
        if calls is not None:
            calls = ids_as_text(to_polars(calls, source), ("query_id",), source)
        return cls(
            table,
            calls=calls,
            meta=dict(meta or {}),
            order=order or ("score" if scored else "rank"),
            name=name,
            source=source,
        )

    @property
    def staged(self) -> bool:
        """Whether it holds lists of stages before the final one."""
        return "stage" in self.hits.columns

    def blocks(self) -> Iterator[Run]:
        """The run in pieces of whole queries, small enough for the processor's cache."""
        if self.hits.height <= BLOCK_ROWS or self.calls is not None:
            yield self
            return
        lengths = self.hits["query_id"].rle().struct.unnest()
        if lengths["value"].is_duplicated().any():
            yield self
            return
        start = end = 0
        for length in lengths["len"].to_list():
            end += length
            if end - start >= BLOCK_ROWS:
                yield replace(self, hits=self.hits.slice(start, end - start))
                start = end
        if end > start:
            yield replace(self, hits=self.hits.slice(start, end - start))

    def parted(self) -> Iterator[Run]:
        """Itself as one piece: what is in memory is there whole."""
        yield self

    def read(self) -> Run:
        """Itself: a run in memory has been read."""
        return self

    def at(self, stage: str) -> Run:
        """The hits of one stage: ``final``, ``raw`` or another that the log has."""
        if "stage" not in self.hits.columns:
            if stage != "final":
                raise UsageError(
                    f"run {self.name!r} has no stage {stage!r}; it logs only final lists"
                )
            return self
        known = self.hits["stage"].unique().sort().to_list()
        if stage not in known and stage != "final":
            raise UsageError(
                f"run {self.name!r} has no stage {stage!r}; it has {', '.join(map(str, known))}"
            )
        return replace(self, hits=self.hits.filter(pl.col("stage") == stage).drop("stage"))


@dataclass(frozen=True, eq=False)
class Corpus:
    """What can be found: ``item_id``, ``doc_id``, ``text`` and attributes.

    >>> Corpus.from_dict({"faq#1": "How to pay"}).frame.rows()
    [('faq#1', 'faq', 'How to pay')]
    """

    frame: pl.DataFrame
    source: Source = IN_MEMORY

    @classmethod
    def from_dict(cls, texts: Mapping[str, str | Mapping[str, Any]]) -> Corpus:
        """From ``{item_id: text}`` or ``{item_id: {"text": …, "version": …}}``."""
        rows = [
            {"item_id": item_id, **({"text": value} if isinstance(value, str) else value)}
            for item_id, value in texts.items()
        ]
        return cls.from_frame(frame_of_rows(rows, ("item_id", "text")))

    @classmethod
    def from_frame(cls, frame: object, *, source: Source = IN_MEMORY) -> Corpus:
        """From a table of items; without a ``doc_id`` it is the id's part before the last ``#``."""
        table = to_polars(frame, source)
        renames = {
            first_of(table, ITEM_NAMES, "item id", source): "item_id",
            first_of(table, TEXT_NAMES, "text", source): "text",
        }
        table = ids_as_text(table.rename(renames), ("item_id",), source)
        table = with_texts(table, "text", source)
        twice = table.filter(pl.col("item_id").is_duplicated())
        if twice.height:
            name = twice["item_id"][0]
            raise InputError(f"item id {name!r} occurs twice; ids must differ", where=source.name)
        if "doc_id" in table.columns:
            own = pl.col("doc_id").cast(pl.String)
            table = table.with_columns(doc_id=pl.coalesce(own, doc_of(pl.col("item_id"))))
        else:
            table = table.with_columns(doc_id=doc_of(pl.col("item_id")))
        front = ["item_id", "doc_id", "text"]
        return cls(table.select(*front, pl.exclude(front)), source=source)
