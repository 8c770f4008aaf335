"""The four tables that everything else works on: Queries, Gold, Run, Corpus.

Frozen and columnar, with one name for each column. Input is validated here once: afterwards ids
are strings, scores and grades are finite numbers, and required values are not null.
``karat.formats`` reads and writes files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any, Literal, Protocol

import numpy as np
import polars as pl

from karat.data.columns import (
    GRADE_NAMES,
    IN_MEMORY,
    TEXT_NAMES,
    Duplicates,
    Source,
    check_lists,
    check_numbers,
    doc_of,
    find_column,
    mapping_hint,
    number_series,
    text_series,
    to_polars,
    unique_judgments,
    with_ids,
)
from karat.errors import InputError, NoColumnError, UsageError

Order = Literal["score", "rank"]

BLOCK_ROWS = 1_000_000
HIGHEST_GRADE = 1e100


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries: ``query_id``, ``text`` and attributes, which make segments.

    >>> Queries.from_dict({"q1": "apple tart"}).frame.rows()
    [('q1', 'apple tart')]
    """

    frame: pl.DataFrame
    source: Source = IN_MEMORY

    @classmethod
    def from_dict(cls, texts: Mapping[str, str | Mapping[str, Any]]) -> Queries:
        """Make queries from ``{query_id: text}`` or ``{query_id: {"text": …, "language": …}}``."""
        return cls.from_frame(_frame_of_texts(texts, "query_id"))

    @classmethod
    def from_frame(
        cls, frame: object, *, lines: pl.Series | None = None, source: Source = IN_MEMORY
    ) -> Queries:
        """Make queries from a Polars, pandas or Arrow table; names of other tools are accepted."""
        table = _texts_by_id(to_polars(frame, source), "query_id", source, lines)
        front = ["query_id", "text"]
        return cls(table.select(*front, pl.exclude(front)), source=source)

    @property
    def segments(self) -> list[str]:
        """The columns that ``--by`` can name."""
        reserved = {"query_id", "text", "as_of", "no_answer", "k", "group", "rewritten", "entities"}
        return [name for name in self.frame.columns if name not in reserved]


@dataclass(frozen=True, eq=False)
class Gold:
    """The relevant items: one row per judgment, ``query_id``, ``item_id``, ``grade``.

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
        """Make gold from ``{query_id: {item_id: grade}}``, or sets of items, each of grade 1."""
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
            "grade": number_series("grade", [row[2] for row in rows]),
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
        """Make gold from a table of judgments; without a grade column every row has grade 1.

        ``duplicates`` is for a pair that occurs twice: ``agree`` accepts equal grades only,
        ``last`` keeps the last one, ``refuse`` accepts none. ``lines`` are the rows' lines in their
        file, for error messages.
        """
        table = to_polars(frame, source)
        table = with_ids(table, ("query_id", "item_id"), source, lines)
        grade = next((name for name in GRADE_NAMES if name in table.columns), None)
        grades = pl.lit(1.0) if grade is None else pl.col(grade)
        table = table.with_columns(grade=grades)
        table = check_numbers(table, "grade", "a judgment needs a finite grade", source, lines)
        if (table["grade"].abs() > HIGHEST_GRADE).any():
            raise InputError(
                f"a grade lies beyond {HIGHEST_GRADE:g}; grades that large cannot be added up",
                where=source.name,
            )
        table = unique_judgments(table, duplicates, lines, source)
        extras = [name for name in ("negative", "start", "end", "version") if name in table.columns]
        table = table.select("query_id", "item_id", "grade", *extras)
        ids = table["query_id"].unique(maintain_order=True).to_list()
        if query_ids is not None:
            ids = list(dict.fromkeys([*query_ids, *ids]))
        return cls(table, tuple(ids), source=source)


class InterleavedError(Exception):
    """A query's hits occur again after another's, so that the run must be partitioned by query."""


class Blocks(Protocol):
    """A run that is read block by block, each block holding whole queries.

    ``staged`` means that there may be lists of earlier stages, which ``read`` returns. If
    ``blocks`` raises ``InterleavedError``, ``partitions`` yields other blocks of whole queries.
    """

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> Source: ...
    @property
    def staged(self) -> bool: ...
    def blocks(self) -> Iterator[Run]: ...
    def partitions(self) -> Iterator[Run]: ...
    def read(self) -> Run: ...


@dataclass(frozen=True, eq=False)
class Run:
    """What a system returned: ``hits`` (one row per hit) and ``calls`` (one row per query).

    ``order`` is what ranks the hits: their ``score`` (TREC files, dicts, tables) or
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
        cls, scores: Mapping[str, Mapping[str, float] | Sequence[Any]], *, name: str = "run"
    ) -> Run:
        """Make a run from ``{query_id: {item_id: score}}`` or ``{query_id: [item_id, …]}``.

        A list may also hold pairs of an item and its score, or mappings with the columns of a hit;
        its order ranks them.

        >>> Run.from_dict({"q1": [("a", 0.5), ("b", 0.2)]}).hits.rows()
        [('q1', 1, 'a', 0.5), ('q1', 2, 'b', 0.2)]
        """
        check_lists(scores, "a run")
        hits = chain.from_iterable(
            items for items in scores.values() if not isinstance(items, Mapping | AbstractSet)
        )
        if isinstance(next(hits, ""), tuple | list | Mapping):
            return cls._from_hits(scores, name)
        for query_id, ranking in scores.items():
            if isinstance(ranking, AbstractSet):
                raise UsageError(f"query {query_id!r} holds a set, which has no order; give a list")
        lengths = [len(items) for items in scores.values()]
        queries = text_series("query_id", list(scores))
        lists = [not isinstance(items, Mapping) for items in scores.values() if len(items)]
        if any(lists) and not all(lists):
            raise UsageError(
                "a run is either all {item: score} or all ranked lists; this one mixes both"
            )
        # If all are empty, empty lists make the run one of ranked lists.
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
            columns["score"] = number_series("score", values)
        calls = pl.DataFrame({"query_id": queries}) if 0 in lengths else None
        order: Order = "rank" if ranked else "score"
        return cls.from_frame(pl.DataFrame(columns), calls=calls, name=name, order=order)

    @classmethod
    def _from_hits(cls, lists: Mapping[str, Any], name: str) -> Run:
        """Make a run from lists of pairs or mappings, ranked in their order."""
        rows = []
        for query_id, hits in lists.items():
            for rank, hit in enumerate(hits, 1):
                if isinstance(hit, tuple | list) and len(hit) == 2:
                    row = {"item_id": hit[0], "score": hit[1]}
                elif isinstance(hit, Mapping):
                    row = dict(hit)
                else:
                    raise UsageError(
                        f"query {query_id!r} holds {hit!r}; give all hits as (item, score), or all"
                        " as mappings"
                    )
                rows.append({"query_id": query_id, "rank": rank, **row})
        queries = text_series("query_id", list(lists))
        calls = pl.DataFrame({"query_id": queries}) if not all(map(len, lists.values())) else None
        frame = _frame_of_rows(rows, ("query_id",))
        return cls.from_frame(frame, calls=calls, name=name, order="rank")

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
        """Make a run from a table of hits, ranked by ``score`` if given, else by ``rank``."""
        table = to_polars(frame, source)
        table = with_ids(table, ("query_id", "item_id"), source, lines)
        has_scores, has_ranks = "score" in table.columns, "rank" in table.columns
        if not has_scores and not has_ranks:
            raise NoColumnError(
                "no column score or rank",
                table.columns,
                f"a run needs one: {mapping_hint('score')}",
                where=source.name,
            )
        if has_scores:
            table = check_numbers(table, "score", "a run needs finite scores", source, lines)
        if has_ranks:
            need = "a whole number is expected"
            table = check_numbers(table, "rank", need, source, lines, whole=True)
        if calls is not None:
            calls = with_ids(to_polars(calls, source), ("query_id",), source)
        return cls(
            table,
            calls=calls,
            meta=dict(meta or {}),
            order=order or ("score" if has_scores else "rank"),
            name=name,
            source=source,
        )

    @property
    def staged(self) -> bool:
        """True if it holds lists of stages before the final one."""
        return "stage" in self.hits.columns

    def blocks(self) -> Iterator[Run]:
        """Yield the run in blocks of whole queries, small enough for the processor's cache."""
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

    def partitions(self) -> Iterator[Run]:
        """Yield the run itself: it is in memory."""
        yield self

    def read(self) -> Run:
        """Return the run itself: it is in memory."""
        return self

    def at(self, stage: str) -> Run:
        """Return the hits of one stage: ``final``, ``raw`` or another one of the log."""
        if "stage" not in self.hits.columns:
            if stage != "final":
                raise UsageError(
                    f"run {self.name!r} has no stage {stage!r}; it logs only final lists"
                )
            return self
        stages = self.hits["stage"].unique().sort().to_list()
        if stage not in stages and stage != "final":
            raise UsageError(
                f"run {self.name!r} has no stage {stage!r}; it has {', '.join(map(str, stages))}"
            )
        return replace(self, hits=self.hits.filter(pl.col("stage") == stage).drop("stage"))


@dataclass(frozen=True, eq=False)
class Corpus:
    """The items that can be retrieved: ``item_id``, ``doc_id``, ``text`` and attributes.

    >>> Corpus.from_dict({"faq#1": "How to pay"}).frame.rows()
    [('faq#1', 'faq', 'How to pay')]
    """

    frame: pl.DataFrame
    source: Source = IN_MEMORY

    @classmethod
    def from_dict(cls, texts: Mapping[str, str | Mapping[str, Any]]) -> Corpus:
        """Make a corpus from ``{item_id: text}`` or ``{item_id: {"text": …, "version": …}}``."""
        return cls.from_frame(_frame_of_texts(texts, "item_id"))

    @classmethod
    def from_frame(
        cls, frame: object, *, lines: pl.Series | None = None, source: Source = IN_MEMORY
    ) -> Corpus:
        """Make a corpus from a table; ``doc_id`` defaults to the id before its last ``#``."""
        table = _texts_by_id(to_polars(frame, source), "item_id", source, lines)
        if "doc_id" in table.columns:
            doc = pl.col("doc_id").cast(pl.String)
            table = table.with_columns(doc_id=pl.coalesce(doc, doc_of(pl.col("item_id"))))
        else:
            table = table.with_columns(doc_id=doc_of(pl.col("item_id")))
        front = ["item_id", "doc_id", "text"]
        return cls(table.select(*front, pl.exclude(front)), source=source)


def _frame_of_rows(rows: Sequence[Mapping[str, Any]], required: Sequence[str]) -> pl.DataFrame:
    """Return a frame of all keys of all rows, in order of first appearance."""
    names = dict.fromkeys(chain(required, *rows))
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in names}, strict=False)


def _frame_of_texts(texts: Mapping[str, str | Mapping[str, Any]], key: str) -> pl.DataFrame:
    """Return a frame of ``{id: text}`` or ``{id: {"text": …, attributes}}``."""
    rows = [
        {key: name, **({"text": value} if isinstance(value, str) else value)}
        for name, value in texts.items()
    ]
    return _frame_of_rows(rows, (key, "text"))


def _texts_by_id(
    table: pl.DataFrame, key: str, source: Source, lines: pl.Series | None
) -> pl.DataFrame:
    """Return a table with unique ids under ``key`` and a ``text``, which is empty where null."""
    table = with_ids(table, (key,), source, lines)
    table = table.rename({find_column(table, TEXT_NAMES, "text", source): "text"})
    kind = table.schema["text"]
    if kind.is_nested() or kind in (pl.Binary, pl.Object):
        raise InputError(f"text holds {kind}; text is expected", where=source.name)
    again = (~table[key].is_first_distinct()).arg_true()
    if len(again):
        raise InputError(
            f"{key.replace('_', ' ')} {table[key][again[0]]!r} occurs twice; ids must differ",
            where=source.name,
            line=None if lines is None else int(lines[again[0]]),
        )
    return table.with_columns(pl.col("text").cast(pl.String).fill_null(""))


def with_ranks(hits: pl.DataFrame) -> pl.DataFrame:
    """Return hits with a ``rank``: the given one, else by descending score and ascending id."""
    if "rank" in hits.columns:
        return hits
    order = (
        hits.select("query_id", "item_id", "score")
        .with_row_index("row")
        .sort(
            ["query_id", "score", "item_id"], descending=[False, True, False], maintain_order=True
        )
        .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("query_id"))
        .sort("row")
    )
    return hits.with_columns(order["rank"])


def with_scores(run: Run) -> pl.DataFrame:
    """Return hits with a ``score`` that ranks them as the run does.

    A run that is ranked by rank keeps its scores only if they give the same order; otherwise the
    score is 1/rank, because readers of scored files look at nothing else.
    """
    hits = run.hits
    if run.order == "score":
        return hits
    if "score" in hits.columns and not hits["score"].null_count():
        by_score = with_ranks(hits.drop("rank"))["rank"]
        # Ranks as 1, 2, 3 … within each query, without the gaps of a log.
        ranks = hits.select(pl.col("rank").rank("ordinal").over("query_id").cast(pl.Int64))
        if (by_score == ranks.to_series()).all():
            return hits
    return hits.with_columns(score=1.0 / pl.col("rank"))
