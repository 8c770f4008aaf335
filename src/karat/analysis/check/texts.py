"""Are the texts sound: queries and items that are there twice, and queries that give it away."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

import numpy as np
import polars as pl

from karat.analysis.check.gold import (
    MOST_EXAMPLES,
    CheckedSet,
    Example,
    Fine,
    Issue,
    Results,
    Unchecked,
    as_text,
    count_queries,
    places,
    some_rows,
)
from karat.analysis.near_duplicates import (
    UNSPACED,
    NearDuplicates,
    folded,
    near_duplicates,
    word_sets,
    words_of,
)
from karat.data.tables import Corpus, Queries
from karat.pages.formatting import plural

# A query of fewer words may well stand in its gold; so may one of few unspaced characters.
LEAK_WORDS = 4
_CHARACTERS_PER_WORD = 3
_UNSPACED = re.compile(f"[{UNSPACED}]")


def text_checks(subject: CheckedSet, threshold: float) -> Results:
    """Check the texts of queries and items; texts alike to the threshold are near-duplicates."""
    if subject.queries is None:
        yield Unchecked("query texts, no_answer marks, duplicates and leaks: give --queries")
    else:
        yield from _query_texts(subject, subject.queries, threshold)
    if subject.corpus is not None:
        if subject.queries is not None:
            yield from _leaks(subject, subject.queries, subject.corpus)
        yield from _items(subject, subject.corpus, threshold)


def _query_texts(subject: CheckedSet, queries: Queries, threshold: float) -> Results:
    frame = queries.frame.with_columns(folded=folded(queries.frame["text"]))
    empty = frame.filter(pl.col("folded") == "").sort("query_id")
    if empty.height:
        what = f"{count_queries(empty.height, 'has', 'have')} no text."
        yield Issue("empty_query", empty.height, what, some_rows(empty, query="query_id"))
    asked = frame.filter(pl.col("folded") != "")
    yield from _same_texts(subject, asked)
    different = asked.unique("folded", keep="first", maintain_order=True)
    yield from _near_queries(subject, different, threshold)


def _same_texts(subject: CheckedSet, asked: pl.DataFrame) -> Results:
    """Yield texts asked twice: at one time in one conversation they must have the same gold."""
    context = [name for name in ("as_of", "group") if name in asked.columns]
    twice = asked.filter(pl.col("folded").is_duplicated()).sort("query_id")
    twice = twice.with_columns(as_text(twice[name]) for name in context).with_columns(
        # Without a value of its own, a query means what the only other one says.
        pl.when(pl.col(name).drop_nulls().n_unique().over("folded") == 1)
        .then(pl.col(name).max().over("folded"))
        .otherwise(pl.col(name))
        for name in context
    )
    twice = twice.filter(pl.struct("folded", *context).is_duplicated())
    differ: list[Example] = []
    agree: list[Example] = []
    for _, rows in twice.group_by("folded", *context, maintain_order=True):
        answers = {query_id: subject.answers.get(query_id, {}) for query_id in rows["query_id"]}
        shown = {query_id: list(own)[:MOST_EXAMPLES] for query_id, own in answers.items()}
        same = len({frozenset(own.items()) for own in answers.values()}) == 1
        (agree if same else differ).append({"text": rows["text"][0], "queries": shown})
    if differ:
        what = f"{plural(len(differ), 'text is', 'texts are')} asked more than once with different"
        what += " gold: at least one of the answers is wrong."
        yield Issue("same_text_different_gold", len(differ), what, differ)
    if agree:
        extra = sum(len(example["queries"]) - 1 for example in agree)
        what = f"{plural(len(agree), 'text is', 'texts are')} asked more than once with the same"
        what += f" gold: {count_queries(extra, 'counts', 'count')} again."
        yield Issue("repeated_query", len(agree), what, agree)
    if not differ and not agree:
        yield Fine(f"no text is asked twice among {count_queries(asked.height)}")


def _near_queries(subject: CheckedSet, asked: pl.DataFrame, threshold: float) -> Results:
    near = near_duplicates(asked["text"], threshold=threshold)
    if not near.count:
        yield _none_found(near, f"near-duplicate queries among {plural(asked.height, 'text')}")
        return
    rows = asked.select("query_id", "text").rows()
    examples: list[Example] = []
    different = 0
    for one, other, similarity in near.pairs():
        ids, texts = zip(rows[one], rows[other], strict=True)
        same = subject.answers.get(ids[0], {}) == subject.answers.get(ids[1], {})
        different += not same
        if len(examples) < MOST_EXAMPLES:
            pair = {"queries": list(ids), "texts": list(texts)}
            examples.append({**pair, "similarity": similarity, "same_gold": same})
    what = f"{_at_least(near)}{plural(near.count, 'pair')} of queries with nearly the same words"
    what += f", {different:,} of them with different gold."
    yield Issue("near_duplicate_queries", near.count, what, examples)


def _leaks(subject: CheckedSet, queries: Queries, corpus: Corpus) -> Results:
    asked = queries.frame.select("query_id", "text", words=words_of(queries.frame["text"]))
    long = [_word_count(words) >= LEAK_WORDS for words in asked["words"]]
    asked = asked.filter(pl.Series(long, dtype=pl.Boolean)).with_columns(_joined("words"))
    gold = _gold_items(subject, corpus)
    rows = gold.join(asked, on="query_id", how="inner", maintain_order="left")
    items = corpus.frame.select("item_id", item_text="text")
    items = items.join(rows.select("item_id").unique(), on="item_id", how="semi")
    items = items.with_columns(inside=words_of(items["item_text"])).with_columns(_joined("inside"))
    rows = rows.join(items, on="item_id", how="inner", maintain_order="left")
    leaks = rows.filter(pl.col("inside").str.contains(pl.col("words"), literal=True))
    leaks = leaks.unique(["query_id", "item_id"]).sort("query_id", "item_id")
    n = leaks["query_id"].n_unique()
    if n:
        what = f"{count_queries(n, 'stands', 'stand')} word for word in the text of relevant gold."
        examples = some_rows(leaks, query="query_id", text="text", item="item_id")
        yield Issue("leak", n, what, examples)
    else:
        checked = f"{count_queries(rows['query_id'].n_unique())} of {LEAK_WORDS} words or more"
        yield Fine(f"no query's text stands in its gold among {checked}")


def _word_count(words: list[str]) -> float:
    """Return how many words a text is worth: an unspaced character is only a part of one."""
    characters = sum(1 for word in words if _UNSPACED.fullmatch(word))
    return len(words) - characters + characters / _CHARACTERS_PER_WORD


def _joined(name: str) -> pl.Expr:
    return (pl.lit(" ") + pl.col(name).list.join(" ") + pl.lit(" ")).alias(name)


def _gold_items(subject: CheckedSet, corpus: Corpus) -> pl.DataFrame:
    """Return the items of each query's gold: themselves, those of a document, or of a span."""
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


def _items(subject: CheckedSet, corpus: Corpus, threshold: float) -> Results:
    frame, relevant = corpus.frame, _gold_items(subject, corpus)
    yield from _empty_items(frame.filter(frame["text"].str.strip_chars() == ""), relevant)
    sets = word_sets(frame["text"])
    if subject.conventions.level == "span":
        yield Unchecked("near-duplicates of gold: spans are compared with nothing")
    else:
        probes = frame["item_id"].is_in(relevant["item_id"].unique().implode()).to_numpy()
        near = near_duplicates(sets, threshold=threshold, probes=probes)
        yield from _twins_of_gold(subject, corpus, near)
    near = near_duplicates(sets, threshold=threshold)
    if not near.count:
        yield _none_found(near, f"near-duplicate items among {frame.height:,}")
        return
    ids, texts = frame["item_id"], frame["text"]
    what = f"{_at_least(near)}{plural(near.count, 'pair')} of items with nearly the same words,"
    what += (
        f" which {int(near.taking_part().sum()):,} of {plural(frame.height, 'item')} are part of."
    )
    examples = [
        {"items": [ids[a], ids[b]], "texts": [texts[a], texts[b]], "similarity": similarity}
        for a, b, similarity in islice(near.pairs(), MOST_EXAMPLES)
    ]
    yield Issue("near_duplicate_items", near.count, what, examples)


def _empty_items(empty: pl.DataFrame, relevant: pl.DataFrame) -> Results:
    gold = relevant.join(empty, on="item_id", how="semi").sort("query_id", "item_id")
    if gold.height:
        what = f"{plural(gold.height, 'relevant item has', 'relevant items have')} no text."
        examples = some_rows(gold, query="query_id", item="item_id")
        yield Issue("gold_without_text", gold.height, what, examples)
    if empty.height:
        what = plural(empty.height, "item of the corpus has", "items of the corpus have")
        examples = some_rows(empty.sort("item_id"), item="item_id")
        yield Issue("empty_items", empty.height, f"{what} no text.", examples)
    else:
        yield Fine("no item without a text")


def _twins_of_gold(subject: CheckedSet, corpus: Corpus, near: NearDuplicates) -> Results:
    """Yield near-duplicates of gold that a query's judgments leave out or contradict."""
    twins = _Twins(near, corpus, by_doc=subject.conventions.level == "doc")
    judged: dict[str, dict[str, bool]] = {}
    rows = subject.judged.select("query_id", "item_id", pl.col("grade") >= subject.conventions.rel)
    for query, unit, relevant in rows.iter_rows():
        judged.setdefault(query, {})[unit] = relevant
    alone: list[tuple[str, int, int]] = []
    apart: list[tuple[str, int, int]] = []
    for query, unit in subject.relevant.select("query_id", "item_id").sort(pl.all()).iter_rows():
        for row in twins.rows.get(unit, ()):
            if (twin := twins.unjudged(row, judged[query])) is not None:
                alone.append((query, row, twin))
            if (twin := twins.judged_otherwise(row, judged[query])) is not None:
                apart.append((query, row, twin))
    ids, texts = corpus.frame["item_id"], corpus.frame["text"]
    for kind, cases, which in (
        ("twin_of_gold", alone, "in the corpus that nobody judged"),
        ("twins_judged_differently", apart, "that is judged as not relevant"),
    ):
        if cases:
            what = plural(len(cases), "relevant item has", "relevant items have")
            what = f"{_at_least(near)}{what} a near-duplicate {which} for the query."
            examples = [
                {
                    **subject.example(query),
                    "item": ids[row],
                    "twin": ids[twin],
                    "texts": [texts[row], texts[twin]],
                }
                for query, row, twin in cases[:MOST_EXAMPLES]
            ]
            yield Issue(kind, len(cases), what, examples)
    if not alone and not apart:
        yield _none_found(near, "near-duplicate of relevant gold is unjudged or judged otherwise")


class _Twins:
    """Near-duplicates by row of the corpus: ``units`` are judged, and have ``rows``."""

    def __init__(self, near: NearDuplicates, corpus: Corpus, *, by_doc: bool) -> None:
        self.same, self.neighbours = near.same, near.near()
        self.units = corpus.frame["doc_id" if by_doc else "item_id"].to_list()
        self.rows: dict[str, list[int]] = {}
        self.members: dict[int, list[int]] = {}
        for row in np.flatnonzero(near.taking_part()).tolist():
            self.rows.setdefault(self.units[row], []).append(row)
            self.members.setdefault(int(near.same[row]), []).append(row)

    def _near(self, row: int) -> list[int]:
        """Return the firsts whose members are near: its own, and those that differ a little."""
        first = int(self.same[row])
        return [first, *self.neighbours.get(first, ())]

    def unjudged(self, row: int, judged: Mapping[str, bool]) -> int | None:
        """Return a near-duplicate that is not judged."""
        twins = (twin for first in self._near(row) for twin in self.members[first])
        return next((twin for twin in twins if self.units[twin] not in judged), None)

    def judged_otherwise(self, row: int, judged: Mapping[str, bool]) -> int | None:
        """Return a near-duplicate that is judged as not relevant."""
        near = set(self._near(row))
        units = (unit for unit, relevant in judged.items() if not relevant)
        twins = (twin for unit in units for twin in self.rows.get(unit, ()))
        return next((twin for twin in twins if int(self.same[twin]) in near), None)


def _none_found(near: NearDuplicates, what: str) -> Fine | Unchecked:
    if near.complete:
        return Fine(f"no {what}")
    return Unchecked(f"no {what}, as far as was looked: there is too much to compare")


def _at_least(near: NearDuplicates) -> str:
    return "" if near.complete else "At least "
