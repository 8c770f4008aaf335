"""Prepared gold: queries numbered, judgments sorted, built once for many runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from karat.data.columns import IN_MEMORY, Source, doc_of
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import InputError, UsageError
from karat.measure.aggregates import Values
from karat.measure.conventions import Conventions
from karat.measure.ranked import Ints, Mask, Target

# Up to so many ids are looked up one by one; a table of all ids pays off for more.
_FEW = 100_000
_LARGEST_K = 10**12


@dataclass(frozen=True, eq=False)
class Prepared:
    """The queries to be scored, numbered, each with its judgments, best grade first.

    The judgments of query c are those from ``first[c]`` to ``first[c + 1]``; ``spans`` are the
    start and the end of each, where gold is character spans. ``top_grade`` is the highest that a
    judge may give, where that is more than any here, and ``corpus_size`` how many items, or
    documents, there are to be found, where a corpus tells.
    """

    query_ids: tuple[str, ...]
    item_ids: pl.Series | tuple[str, ...]
    grade: Values
    first: Ints
    own_k: Ints
    no_answer: Mask
    as_of: tuple[str | None, ...]
    entities: tuple[tuple[str, ...] | None, ...]
    numbers: Mapping[str, int]
    corpus: pl.DataFrame | None
    corpus_size: int | None
    conventions: Conventions
    spans: tuple[Ints, Ints] | None = None
    group: Ints | None = None
    not_asked: int = 0
    top_grade: float = 0.0
    source_of_queries: str | None = None
    source: Source = IN_MEMORY
    corpus_source: Source = IN_MEMORY

    @cached_property
    def digests(self) -> list[bytes]:
        """A digest of each query's judgments, independent of the order of lines."""
        items, numbers = list(self.item_ids), [np.ascontiguousarray(self.grade)]
        if self.spans is not None:
            # Spans of one document and grade stand as they came.
            rows = self.rows.sort("code", -pl.col("grade"), "item_id", "start", "end")
            items = rows["item_id"].to_list()
            columns = (rows[name].to_numpy() for name in ("grade", "start", "end"))
            numbers = [np.ascontiguousarray(column) for column in columns]
        ends = self.first.tolist()
        digests = []
        for start, end in pairwise(ends):
            texts = "\n".join(items[start:end]).encode("utf-8", "surrogatepass")
            parts = [texts, *(column[start:end].tobytes() for column in numbers)]
            digests.append(hashlib.sha256(b"\0".join(parts)).digest())
        return digests

    @property
    def fingerprint(self) -> str:
        """A digest of all queries and their judgments."""
        return fingerprint_of(self.query_ids, self.digests)

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The judgments: code (the query's number), item_id, grade; of spans also start and end."""
        counts = np.diff(self.first)
        columns: dict[str, Any] = {"code": np.repeat(np.arange(len(counts)), counts)}
        columns |= {"item_id": self.item_ids, "grade": self.grade}
        if self.spans is not None:
            columns |= {"start": self.spans[0], "end": self.spans[1]}
        return pl.DataFrame(columns)

    @cached_property
    def unit(self) -> Ints:
        """A number for each judged unit, the same for all its judgments."""
        if isinstance(self.item_ids, tuple):
            items = np.array(self.item_ids, dtype=object)
            return np.unique(items, return_inverse=True)[1] + 1
        names = [name for name in ("item_id", "start", "end") if name in self.rows.columns]
        numbers = self.rows.select(pl.struct(names).rank("dense"))[:, 0]
        return numbers.cast(pl.Int64).to_numpy()

    @cached_property
    def likely(self) -> Mask:
        """The hashes of judged ids, so that most hits are passed over without comparing strings.

        A bitmap over their leading bits, about 1/16 full.
        """
        items = self.rows["item_id"].unique()
        bits = min(26, max(12, (16 * max(len(items), 1)).bit_length()))
        likely = np.zeros(1 << bits, dtype=bool)
        likely[short_hash(items) >> (32 - bits)] = True
        return likely

    @cached_property
    def relevant(self) -> Mask:
        """The judgments whose grade counts as relevant."""
        return self.grade >= self.conventions.rel

    def code_of(self, query_ids: pl.Series) -> Ints:
        """Return the number of each query, -1 where it is not among those to be scored."""
        if len(query_ids) < _FEW:
            numbers = [self.numbers.get(query_id, -1) for query_id in query_ids.to_list()]
            return np.array(numbers, dtype=np.int64)
        kind = pl.Enum(list(self.query_ids))
        codes = query_ids.cast(kind, strict=False).to_physical().cast(pl.Int64)
        return codes.fill_null(-1).to_numpy()

    def target(self, codes: Ints) -> Target:
        """Return the gold of some queries."""
        counts = self.first[codes + 1] - self.first[codes]
        place = np.repeat(np.arange(len(codes)), counts)
        before = np.cumsum(counts) - counts
        rows = np.arange(len(place)) + (self.first[codes] - before)[place]
        return Target(
            n=len(codes),
            query=place,
            grade=self.grade[rows],
            unit=self.unit[rows],
            own_k=self.own_k[codes],
            no_answer=self.no_answer[codes],
            rows=rows,
            shared=self.conventions.level != "item",
            joined=self.conventions.level == "span",
            corpus_size=self.corpus_size,
            as_of=tuple(self.as_of[code] for code in codes.tolist()) if self.as_of else (),
            entities=tuple(self.entities[c] for c in codes.tolist()) if self.entities else (),
        )


def fingerprint_of(query_ids: Sequence[str], digests: Sequence[bytes]) -> str:
    """Return a digest of the queries and their judgments: equal ones make scores comparable.

    The order of the queries makes no difference, nor does that of a file's lines.
    """
    whole = hashlib.sha256()
    for query_id, digest in sorted(zip(query_ids, digests, strict=True)):
        whole.update(query_id.encode("utf-8", "surrogatepass") + b"\0" + digest)
    return whole.hexdigest()


def prepare(
    gold: Gold,
    conventions: Conventions,
    *,
    queries: Queries | None = None,
    corpus: Corpus | None = None,
) -> Prepared:
    """Number the queries and sort their judgments; the queries file decides which there are."""
    ids = gold.query_ids if queries is None else tuple(queries.frame["query_id"].to_list())
    if not ids:
        raise InputError("holds no query; there is nothing to score", where=gold.source.name)
    codes = pl.Enum(list(ids))
    rows = gold.frame.with_columns(
        code=pl.col("query_id").cast(codes, strict=False).to_physical().cast(pl.Int64)
    ).drop_nulls("code")
    if conventions.whole_grades:
        grade = pl.col("grade")
        rows = rows.with_columns(pl.when(grade < 0).then(grade.ceil()).otherwise(grade.floor()))
    if conventions.level != "item" or "start" in rows.columns:
        rows = _at_level(rows, conventions, gold, corpus)
    rows = rows.sort(["code", "grade", "item_id"], descending=[False, True, False])
    counts = np.bincount(rows["code"].to_numpy(), minlength=len(ids))
    if queries is None and conventions.unit == "group":
        raise _no_groups()
    corpus_size = None
    if corpus is not None and conventions.level != "span":
        docs = conventions.level == "doc"
        corpus_size = corpus.frame["doc_id"].n_unique() if docs else corpus.frame.height
    return Prepared(
        query_ids=ids,
        item_ids=rows["item_id"],
        grade=rows["grade"].to_numpy(),
        first=np.concatenate(([0], np.cumsum(counts))),
        spans=(rows["start"].to_numpy(), rows["end"].to_numpy()) if "start" in rows else None,
        own_k=np.full(len(ids), conventions.k) if queries is None else _own_k(queries, conventions),
        no_answer=np.zeros(len(ids), dtype=bool) if queries is None else _flags(queries),
        as_of=() if queries is None else _moments(queries),
        entities=() if queries is None else _entities(queries),
        numbers={query_id: number for number, query_id in enumerate(ids)},
        corpus=None if corpus is None else corpus.frame,
        corpus_size=corpus_size,
        conventions=conventions,
        group=None if queries is None else _groups(queries, conventions),
        not_asked=len(set(gold.query_ids).difference(ids)),
        source_of_queries=None if queries is None else f"queries of {queries.source.name}",
        source=gold.source,
        corpus_source=IN_MEMORY if corpus is None else corpus.source,
    )


def _at_level(
    rows: pl.DataFrame, conventions: Conventions, gold: Gold, corpus: Corpus | None
) -> pl.DataFrame:
    """Return judgments of documents where documents count: a chunk's judgment is its document's."""
    spans = "start" in rows.columns
    if conventions.level == "span":
        if not spans:
            raise InputError(
                "level=span needs gold with character spans (doc_id:start-end)",
                where=gold.source.name,
            )
        return rows
    if spans:
        raise InputError(
            "this gold holds character spans; score it with --set level=span "
            "(settings: {level: span} in karat.yaml)",
            where=gold.source.name,
        )
    docs = doc_of(pl.col("item_id"))
    if corpus is not None:
        chunks = corpus.frame.select("item_id", "doc_id")
        rows = rows.join(chunks, on="item_id", how="left", maintain_order="left")
        is_doc = pl.col("item_id").is_in(chunks["doc_id"].unique().implode())
        docs = pl.when(is_doc).then("item_id").otherwise(pl.coalesce("doc_id", docs))
    by_doc = rows.with_columns(item_id=docs)
    return by_doc.group_by("code", "item_id").agg(pl.col("grade").max())


def short_hash(items: pl.Series) -> Ints:
    """32 bits of a hash of each id: enough to skip ids that differ."""
    return (items.hash().to_numpy() >> np.uint64(32)).view(np.int64)


def _column(queries: Queries, name: str, expected: str) -> pl.Series | None:
    """Return a column of the queries, None where they have none; one value in each row."""
    column: pl.Series | None = queries.frame.get_column(name, default=None)
    if column is None or column.null_count() == len(column):
        return None
    if column.dtype.is_nested():
        value = column.drop_nulls().to_list()[0]
        raise InputError(f"{name} is {value!r}; {expected} is expected", where=queries.source.name)
    return column


def _own_k(queries: Queries, conventions: Conventions) -> Ints:
    """Return what the letter k means for each query."""
    expected = "a whole number above 0"
    column = _column(queries, "k", expected)
    if column is None:
        return np.full(queries.frame.height, conventions.k)
    k = column.cast(pl.Float64, strict=False)
    wrong = column.is_not_null() & (k.is_null() | (k < 1) | (k > _LARGEST_K) | (k != k.floor()))
    if wrong.any():
        raise InputError(
            f"a query's k is {column.filter(wrong)[0]!r}; {expected} is expected",
            where=queries.source.name,
        )
    return k.fill_null(conventions.k).cast(pl.Int64).to_numpy()


def _flags(queries: Queries) -> Mask:
    """Return which queries have no answer."""
    expected = "true or false"
    column = _column(queries, "no_answer", expected)
    if column is None:
        return np.zeros(queries.frame.height, dtype=bool)
    if column.dtype == pl.String:
        words = column.str.to_lowercase()
        unknown = words.filter(~words.is_in(["true", "1", "yes", "false", "0", "no", ""]))
        if len(unknown):
            raise InputError(
                f"no_answer is {unknown[0]!r}; {expected} is expected", where=queries.source.name
            )
        column = words.is_in(["true", "1", "yes"])
    return column.cast(pl.Boolean).fill_null(value=False).to_numpy()


def _groups(queries: Queries, conventions: Conventions) -> Ints | None:
    """Return the conversation of each query, numbered; a query without one stands for itself."""
    column = queries.frame.get_column("group", default=None)
    if column is None or column.null_count() == len(column) or conventions.unit == "query":
        if conventions.unit == "group":
            raise _no_groups()
        return None
    numbers: dict[object, int] = {}
    groups = [(at,) if value is None else value for at, value in enumerate(column.to_list())]
    return np.array([numbers.setdefault(str(group), len(numbers)) for group in groups])


def _no_groups() -> UsageError:
    return UsageError("unit=group needs queries with a column group: the conversation of each")


def _moments(queries: Queries) -> tuple[str | None, ...]:
    """Return each query's as_of; nothing if no query has one."""
    column = _column(queries, "as_of", "text such as 2026-03-31")
    texts = [] if column is None else column.cast(pl.String).to_list()
    return tuple(texts) if any(texts) else ()


def _entities(queries: Queries) -> tuple[tuple[str, ...] | None, ...]:
    """Return the entities that each query is about; nothing where no query has any."""
    if "entities" not in queries.frame.columns:
        return ()
    sets = entity_sets(queries.frame["entities"])
    return tuple(sets) if any(entities is not None for entities in sets) else ()


def entity_sets(column: pl.Series) -> list[tuple[str, ...] | None]:
    """Return entities as tuples of text; a text column holds them separated by commas or bars."""
    if column.dtype == pl.String:
        column = (
            column.str.split("|") if column.str.contains(r"\|").any() else column.str.split(",")
        )
        return [None if v is None else tuple(e.strip() for e in v if e.strip()) for v in column]
    return [None if value is None else tuple(str(entity) for entity in value) for value in column]


def doc_of_hits(hits: pl.DataFrame, corpus: pl.DataFrame | None) -> pl.Series:
    """Return the document of each hit: the run's word, the corpus's, else the id's."""
    doc_columns = [pl.col("doc_id").cast(pl.String)] if "doc_id" in hits.columns else []
    if corpus is not None:
        docs = corpus.select("item_id", corpus_doc="doc_id")
        hits = hits.join(docs, on="item_id", how="left", maintain_order="left")
        doc_columns.append(pl.col("corpus_doc"))
    return hits.select(doc_id=pl.coalesce(*doc_columns, doc_of(pl.col("item_id"))))["doc_id"]
