"""Are the texts sound: queries and items that are there twice, and queries that give it away."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.check.findings import (
    MOST_EXAMPLES,
    EvalSet,
    Finding,
    Fine,
    Results,
    Unchecked,
    as_text,
    many,
    rows_of,
)
from karat.analysis.check.gold import places
from karat.analysis.near_duplicates import (
    THRESHOLD,
    UNSPACED,
    NearDuplicates,
    folded,
    near_duplicates,
    word_sets,
    words_of,
)
from karat.data.tables import Corpus, Queries

# A query of fewer words may well stand in its gold; so may one of few unspaced characters.
LEAK_WORDS = 4
_CHARACTERS_A_WORD = 3
_UNSPACED = re.compile(f"[{UNSPACED}]")


def text_checks(subject: EvalSet, threshold: float = THRESHOLD) -> Results:
    """Check the texts of queries and items."""
    if subject.queries is None:
        yield Unchecked("query texts, no_answer marks, duplicates and leaks: give --queries")
    else:
        yield from _queries(subject, subject.queries, threshold)
    if subject.corpus is not None:
        if subject.queries is not None:
            yield from _leaks(subject, subject.queries, subject.corpus)
        yield from _items(subject, subject.corpus, threshold)


def _queries(subject: EvalSet, queries: Queries, threshold: float) -> Results:
    frame = queries.frame.with_columns(folded=folded(queries.frame["text"]))
    empty = frame.filter(pl.col("folded") == "").sort("query_id")
    if empty.height:
        what = f"{many(empty.height, 'query has', 'queries have')} no text."
        yield Finding("empty_query", empty.height, what, tuple(rows_of(empty, query="query_id")))
    asked = frame.filter(pl.col("folded") != "")
    yield from _same_texts(subject, asked)
    yield from _near_queries(
        subject, asked.unique("folded", keep="first", maintain_order=True), threshold
    )


def _same_texts(subject: EvalSet, asked: pl.DataFrame) -> Results:
    """Yield the same text at the same time in the same conversation must have the same gold."""
    key = ["folded", *(name for name in ("as_of", "group") if name in asked.columns)]
    twice = asked.filter(pl.col("folded").is_duplicated()).sort("query_id")
    twice = twice.with_columns(as_text(twice[name]) for name in key[1:]).with_columns(
        # Who says nothing of it means what the only other one says.
        pl.when(pl.col(name).drop_nulls().n_unique().over("folded") == 1)
        .then(pl.col(name).max().over("folded"))
        .otherwise(pl.col(name))
        for name in key[1:]
    )
    twice = twice.filter(pl.struct(key).is_duplicated())
    differ: list[dict[str, Any]] = []
    agree: list[dict[str, Any]] = []
    for _, rows in twice.group_by(*key, maintain_order=True):
        ids = rows["query_id"].to_list()
        golds = {frozenset(subject.answers.get(query_id, {}).items()) for query_id in ids}
        shown = {one: list(subject.answers.get(one, {}))[:MOST_EXAMPLES] for one in ids}
        example = {"text": rows["text"][0], "queries": shown}
        (differ if len(golds) > 1 else agree).append(example)
    if differ:
        what = f"{many(len(differ), 'text is', 'texts are')} asked more than once with different"
        what += " gold: at least one of the answers is wrong."
        yield Finding("same_text_different_gold", len(differ), what, _first(differ))
    if agree:
        extra = sum(len(example["queries"]) - 1 for example in agree)
        what = f"{many(len(agree), 'text is', 'texts are')} asked more than once with the same"
        what += f" gold: {many(extra, 'query counts', 'queries count')} again."
        yield Finding("repeated_query", len(agree), what, _first(agree))
    if not differ and not agree:
        yield Fine(f"no text is asked twice among {many(asked.height, 'query', 'queries')}")


def _near_queries(subject: EvalSet, asked: pl.DataFrame, threshold: float) -> Results:
    near = near_duplicates(asked["text"], threshold=threshold)
    ids, texts = asked["query_id"].to_list(), asked["text"].to_list()
    examples: list[dict[str, Any]] = []
    different = 0
    for one, other, similarity in near.pairs():
        golds = [subject.answers.get(ids[at], {}) for at in (one, other)]
        different += golds[0] != golds[1]
        if len(examples) < MOST_EXAMPLES:
            examples.append(
                {
                    "queries": [ids[one], ids[other]],
                    "texts": [texts[one], texts[other]],
                    "similarity": similarity,
                    "same_gold": golds[0] == golds[1],
                }
            )
    if not near.count:
        yield _none_found(near, f"near-duplicate queries among {many(asked.height, 'text')}")
        return
    what = f"{_at_least(near)}{many(near.count, 'pair')} of queries with nearly the same words"
    what += f", {different:,} of them with different gold."
    yield Finding("near_duplicate_queries", near.count, what, tuple(examples))


def _leaks(subject: EvalSet, queries: Queries, corpus: Corpus) -> Results:
    asked = queries.frame.select("query_id", "text").with_columns(
        words=words_of(queries.frame["text"])
    )
    long = pl.Series([_weight(words) >= LEAK_WORDS for words in asked["words"]], dtype=pl.Boolean)
    asked = asked.filter(long).with_columns(words=_joined("words"))
    rows = _gold_items(subject, corpus).join(
        asked, on="query_id", how="inner", maintain_order="left"
    )
    items = corpus.frame.select("item_id", item_text="text")
    items = items.join(rows.select("item_id").unique(), on="item_id", how="semi")
    items = items.with_columns(inside=words_of(items["item_text"])).with_columns(_joined("inside"))
    rows = rows.join(items, on="item_id", how="inner", maintain_order="left")
    leaks = rows.filter(pl.col("inside").str.contains(pl.col("words"), literal=True))
    leaks = leaks.unique(["query_id", "item_id"]).sort("query_id", "item_id")
    n = leaks["query_id"].n_unique()
    if not n:
        checked = many(rows["query_id"].n_unique(), "query", "queries")
        yield Fine(
            f"no query's text stands in its gold among {checked} of {LEAK_WORDS} words or more"
        )
        return
    what = f"{many(n, 'query stands', 'queries stand')} word for word in the text of relevant gold."
    yield Finding(
        "leak", n, what, tuple(rows_of(leaks, query="query_id", text="text", item="item_id"))
    )


def _weight(words: list[str]) -> float:
    """How many words a text is worth: a character that is taken for a word is not quite one."""
    characters = sum(1 for word in words if _UNSPACED.fullmatch(word))
    return len(words) - characters + characters / _CHARACTERS_A_WORD


def _joined(name: str) -> pl.Expr:
    return (pl.lit(" ") + pl.col(name).list.join(" ") + pl.lit(" ")).alias(name)


def _gold_items(subject: EvalSet, corpus: Corpus) -> pl.DataFrame:
    """The items of each query's gold: themselves, those of a document, or those of a span."""
    level, relevant = subject.conventions.level, subject.relevant
    if level == "item":
        return relevant.select("query_id", "item_id")
    if level == "doc":
        chunks = corpus.frame.select("item_id", doc="doc_id")
        gold = relevant.select("query_id", doc="item_id")
        return gold.join(chunks, on="doc", maintain_order="left").select("query_id", "item_id")
    chunks = places(corpus).with_columns(corpus.frame["item_id"])
    gold = relevant.select("query_id", doc="item_id", first="start", last="end")
    rows = gold.join(chunks, on="doc", maintain_order="left")
    touched = (pl.col("start") < pl.col("last")) & (pl.col("end") > pl.col("first"))
    return rows.filter(touched).select("query_id", "item_id")


def _items(subject: EvalSet, corpus: Corpus, threshold: float) -> Results:
    frame = corpus.frame
    blank = frame["text"].str.strip_chars() == ""
    relevant = _gold_items(subject, corpus)
    yield from _empty_items(frame.filter(blank), relevant)
    sets = word_sets(frame["text"])
    probes = frame["item_id"].is_in(relevant["item_id"].unique().implode()).to_numpy()
    if subject.conventions.level == "span":
        yield Unchecked("near-duplicates of gold: spans are compared with nothing")
    else:
        near = near_duplicates(sets, threshold=threshold, probes=probes)
        yield from _twins(subject, corpus, near)
    near = near_duplicates(sets, threshold=threshold)
    if not near.count:
        yield _none_found(near, f"near-duplicate items among {frame.height:,}")
        return
    ids, texts = frame["item_id"], frame["text"]
    what = f"{_at_least(near)}{many(near.count, 'pair')} of items with nearly the same words, which"
    what += f" {int(near.taking_part().sum()):,} of {many(frame.height, 'item')} are part of."
    examples = [
        {"items": [ids[a], ids[b]], "texts": [texts[a], texts[b]], "similarity": similarity}
        for a, b, similarity in islice(near.pairs(), MOST_EXAMPLES)
    ]
    yield Finding("near_duplicate_items", near.count, what, tuple(examples))


def _empty_items(empty: pl.DataFrame, relevant: pl.DataFrame) -> Results:
    gold = relevant.join(empty, on="item_id", how="semi").sort("query_id", "item_id")
    if gold.height:
        what = f"{many(gold.height, 'relevant item has', 'relevant items have')} no text."
        examples = rows_of(gold, query="query_id", item="item_id")
        yield Finding("gold_without_text", gold.height, what, tuple(examples))
    if empty.height:
        what = (
            f"{many(empty.height, 'item of the corpus has', 'items of the corpus have')} no text."
        )
        examples = rows_of(empty.sort("item_id"), item="item_id")
        yield Finding("empty_items", empty.height, what, tuple(examples))
    else:
        yield Fine("no item without a text")


def _twins(subject: EvalSet, corpus: Corpus, near: NearDuplicates) -> Results:
    """Yield near-duplicates of gold, by query."""
    alone, apart = [], []
    look = _Look.over(corpus, near, by_doc=subject.conventions.level == "doc")
    judged: dict[str, dict[str, bool]] = {}
    rows = subject.judged.select("query_id", "item_id", pl.col("grade") >= subject.conventions.rel)
    for query, unit, relevant in rows.iter_rows():
        judged.setdefault(query, {})[unit] = relevant
    for query, unit in subject.relevant.select("query_id", "item_id").sort(pl.all()).iter_rows():
        for row in look.rows.get(unit, ()):
            if (twin := look.unjudged(row, judged[query])) is not None:
                alone.append((query, row, twin))
            if (twin := look.judged_otherwise(row, judged[query])) is not None:
                apart.append((query, row, twin))
    start = _at_least(near)
    if alone:
        what = f"{start}{many(len(alone), 'relevant item has', 'relevant items have')} a"
        what += " near-duplicate in the corpus that nobody judged for the query."
        yield Finding("twin_of_gold", len(alone), what, look.examples(subject, alone))
    if apart:
        what = f"{start}{many(len(apart), 'relevant item has', 'relevant items have')} a"
        what += " near-duplicate that is judged as not relevant for the query."
        yield Finding("twins_judged_differently", len(apart), what, look.examples(subject, apart))
    if not alone and not apart:
        yield _none_found(near, "near-duplicate of relevant gold is unjudged or judged otherwise")


@dataclass(frozen=True, eq=False)
class _Look:
    """Near-duplicates by row: ``units`` are judged (items or documents), and have ``rows``."""

    near: NearDuplicates
    items: pl.Series
    texts: pl.Series
    units: list[str]
    rows: Mapping[str, list[int]]
    members: Mapping[int, list[int]]
    neighbours: Mapping[int, list[int]]

    @classmethod
    def over(cls, corpus: Corpus, near: NearDuplicates, *, by_doc: bool) -> _Look:
        frame = corpus.frame
        units = frame["doc_id" if by_doc else "item_id"].to_list()
        rows: dict[str, list[int]] = {}
        members: dict[int, list[int]] = {}
        for row in np.flatnonzero(near.taking_part()).tolist():
            rows.setdefault(units[row], []).append(row)
            members.setdefault(int(near.same[row]), []).append(row)
        return cls(near, frame["item_id"], frame["text"], units, rows, members, near.near())

    def _near(self, row: int) -> list[int]:
        """Return the firsts whose members are near: its own, and those that differ a little."""
        own = int(self.near.same[row])
        return [own, *self.neighbours.get(own, ())]

    def unjudged(self, row: int, judged: Mapping[str, bool]) -> int | None:
        """A near-duplicate that is not judged: found after as many steps as there are judged."""
        for first in self._near(row):
            for twin in self.members[first]:
                if self.units[twin] not in judged:
                    return twin
        return None

    def judged_otherwise(self, row: int, judged: Mapping[str, bool]) -> int | None:
        """Return a near-duplicate that is judged as not relevant."""
        near = set(self._near(row))
        for unit, relevant in judged.items():
            for twin in () if relevant else self.rows.get(unit, ()):
                if int(self.near.same[twin]) in near:
                    return twin
        return None

    def examples(
        self, subject: EvalSet, cases: list[tuple[str, int, int]]
    ) -> tuple[dict[str, Any], ...]:
        """Return some of the cases with ids and texts."""
        return tuple(
            {
                **subject.example(query),
                "item": self.items[row],
                "twin": self.items[twin],
                "texts": [self.texts[row], self.texts[twin]],
            }
            for query, row, twin in cases[:MOST_EXAMPLES]
        )


def _none_found(near: NearDuplicates, what: str) -> Fine | Unchecked:
    if near.complete:
        return Fine(f"no {what}")
    return Unchecked(f"no {what}, as far as was looked: there is too much to compare")


def _at_least(near: NearDuplicates) -> str:
    return "" if near.complete else "At least "


def _first(examples: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    return tuple(examples[:MOST_EXAMPLES])
