"""Checks of texts: duplicate queries and items, and queries that leak their answer."""

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
    issue_of_rows,
    places,
    some_rows,
)
from karat.analysis.diagnose.near_duplicates import (
    UNSPACED,
    NearDuplicates,
    folded,
    near_duplicates,
    words_of,
)
from karat.data.tables import Corpus, Queries
from karat.pages.formatting import plural

# A query of fewer words or unspaced characters may occur in its gold by chance.
LEAK_WORDS = 4
_CHARACTERS_PER_WORD = 3
_UNSPACED = re.compile(f"[{UNSPACED}]")


def text_checks(subject: CheckedSet, threshold: float) -> Results:
    """Check the texts of queries and items; texts alike to the threshold are near-duplicates."""
    if subject.queries is None:
        yield Unchecked("query texts, no_answer marks, duplicates and leaks: give --queries")
    else:
        frame = subject.queries.frame.with_columns(folded=folded(subject.queries.frame["text"]))
        empty = frame.filter(pl.col("folded") == "").sort("query_id")
        yield from issue_of_rows("empty_query", empty, query="query_id")
        rows_with_text = frame.filter(pl.col("folded") != "")
        yield from _same_texts(subject, rows_with_text)
        different = rows_with_text.unique("folded", keep="first", maintain_order=True)
        yield from _near_queries(subject, different, threshold)
    if subject.corpus is not None:
        if subject.queries is not None:
            yield from _leaks(subject, subject.queries, subject.corpus)
        yield from _items(subject, subject.corpus, threshold)


def _same_texts(subject: CheckedSet, rows_with_text: pl.DataFrame) -> Results:
    """Yield duplicate queries: at one time in one conversation they must have the same gold."""
    context = [name for name in ("as_of", "group") if name in rows_with_text.columns]
    twice = rows_with_text.filter(pl.col("folded").is_duplicated()).sort("query_id")
    twice = twice.with_columns(as_text(twice[name]) for name in context).with_columns(
        # A query without a value takes that of the only other one.
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
        shown = {query_id: list(gold)[:MOST_EXAMPLES] for query_id, gold in answers.items()}
        same = len({frozenset(gold.items()) for gold in answers.values()}) == 1
        (agree if same else differ).append({"text": rows["text"][0], "queries": shown})
    if differ:
        yield Issue("same_text_different_gold", len(differ), differ)
    if agree:
        extra = sum(len(example["queries"]) - 1 for example in agree)
        more = plural(extra, "query counts", "queries count")
        yield Issue("repeated_query", len(agree), agree, extra=more)
    if not differ and not agree:
        yield Fine(f"no duplicate texts among {count_queries(rows_with_text.height)}")


def _near_queries(subject: CheckedSet, rows_with_text: pl.DataFrame, threshold: float) -> Results:
    near = near_duplicates(rows_with_text["text"], threshold=threshold)
    if not near.count:
        yield _none_found(
            near, f"near-duplicate queries among {plural(rows_with_text.height, 'text')}"
        )
        return
    rows = rows_with_text.select("query_id", "text").rows()
    examples: list[Example] = []
    different = 0
    for first, second, similarity in near.pairs():
        ids, texts = zip(rows[first], rows[second], strict=True)
        same = subject.answers.get(ids[0], {}) == subject.answers.get(ids[1], {})
        different += not same
        if len(examples) < MOST_EXAMPLES:
            pair = {"queries": list(ids), "texts": list(texts)}
            examples.append({**pair, "similarity": similarity, "same_gold": same})
    facts = {"least": _at_least(near), "different": different}
    yield Issue("near_duplicate_queries", near.count, examples, **facts)


def _leaks(subject: CheckedSet, queries: Queries, corpus: Corpus) -> Results:
    rows_with_text = queries.frame.select("query_id", "text", words=words_of(queries.frame["text"]))
    long = [_word_count(words) >= LEAK_WORDS for words in rows_with_text["words"]]
    rows_with_text = rows_with_text.filter(pl.Series(long, dtype=pl.Boolean)).with_columns(
        _joined("words")
    )
    gold = _gold_items(subject, corpus)
    rows = gold.join(rows_with_text, on="query_id", how="inner", maintain_order="left")
    items = corpus.frame.select("item_id", item_text="text")
    items = items.join(rows.select("item_id").unique(), on="item_id", how="semi")
    items = items.with_columns(inside=words_of(items["item_text"])).with_columns(_joined("inside"))
    rows = rows.join(items, on="item_id", how="inner", maintain_order="left")
    leaks = rows.filter(pl.col("inside").str.contains(pl.col("words"), literal=True))
    leaks = leaks.unique(["query_id", "item_id"]).sort("query_id", "item_id")
    n = leaks["query_id"].n_unique()
    if n:
        yield Issue("leak", n, some_rows(leaks, query="query_id", text="text", item="item_id"))
    else:
        checked = f"{count_queries(rows['query_id'].n_unique())} of {LEAK_WORDS} words or more"
        yield Fine(f"no query's text occurs in its gold among {checked}")


def _word_count(words: list[str]) -> float:
    """Return the number of words of a text; an unspaced character counts as part of a word."""
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
    empty = frame.filter(frame["text"].str.strip_chars() == "").sort("item_id")
    gold = relevant.join(empty, on="item_id", how="semi").sort("query_id", "item_id")
    yield from issue_of_rows("gold_without_text", gold, query="query_id", item="item_id")
    yield from issue_of_rows("empty_items", empty, item="item_id")
    if not empty.height:
        yield Fine("no item without a text")
    near = near_duplicates(frame["text"], threshold=threshold)
    if subject.conventions.level == "span":
        yield Unchecked("near-duplicates of gold: spans are not compared")
    else:
        yield from _twins_of_gold(subject, corpus, near)
    if not near.count:
        yield _none_found(near, f"near-duplicate items among {frame.height:,}")
        return
    ids, texts = frame["item_id"], frame["text"]
    examples = [
        {"items": [ids[a], ids[b]], "texts": [texts[a], texts[b]], "similarity": similarity}
        for a, b, similarity in islice(near.pairs(), MOST_EXAMPLES)
    ]
    part, items = int(near.taking_part().sum()), plural(frame.height, "item")
    facts = {"least": _at_least(near), "part": part, "items": items}
    yield Issue("near_duplicate_items", near.count, examples, **facts)


def _twins_of_gold(subject: CheckedSet, corpus: Corpus, near: NearDuplicates) -> Results:
    """Yield near-duplicates of gold that are unjudged or judged differently."""
    ids, texts = corpus.frame["item_id"], corpus.frame["text"]
    units = corpus.frame["doc_id" if subject.conventions.level == "doc" else "item_id"].to_list()
    rows_of: dict[str, list[int]] = {}
    alike: dict[int, list[int]] = {}
    for row in np.flatnonzero(near.taking_part()).tolist():
        rows_of.setdefault(units[row], []).append(row)
        alike.setdefault(int(near.same[row]), []).append(row)
    neighbours = near.near()
    judged: dict[str, dict[str, bool]] = {}
    rows = subject.judged.select("query_id", "item_id", pl.col("grade") >= subject.conventions.rel)
    for query, unit, relevant in rows.iter_rows():
        judged.setdefault(query, {})[unit] = relevant

    def twin_of(row: int, grades: Mapping[str, bool], grade: bool | None) -> int | None:
        """Return a near-duplicate with this judgment, or without one."""
        first = int(near.same[row])
        twins = (twin for group in (first, *neighbours.get(first, ())) for twin in alike[group])
        return next((twin for twin in twins if grades.get(units[twin]) is grade), None)

    cases: dict[str, list[tuple[str, int, int]]] = {}
    for query, unit in subject.relevant.select("query_id", "item_id").sort(pl.all()).iter_rows():
        for row in rows_of.get(unit, ()):
            for kind, grade in (("twin_of_gold", None), ("twins_judged_differently", False)):
                twin = twin_of(row, judged[query], grade)
                if twin is not None:
                    cases.setdefault(kind, []).append((query, row, twin))
    for kind, triples in cases.items():
        examples = [
            {
                **subject.example(query),
                "item": ids[row],
                "twin": ids[twin],
                "texts": [texts[row], texts[twin]],
            }
            for query, row, twin in triples[:MOST_EXAMPLES]
        ]
        yield Issue(kind, len(triples), examples, least=_at_least(near))
    if not cases:
        yield _none_found(near, "near-duplicate of relevant gold is unjudged or judged differently")


def _none_found(near: NearDuplicates, message: str) -> Fine | Unchecked:
    if near.complete:
        return Fine(f"no {message}")
    return Unchecked(f"no {message}in the part that was compared; the whole is too large")


def _at_least(near: NearDuplicates) -> str:
    return "" if near.complete else "At least "
