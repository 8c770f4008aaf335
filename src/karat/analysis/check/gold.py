"""The eval set under check, the issues that it can have, and the checks of its gold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from karat.data.columns import join_spans, mapping_hint
from karat.data.tables import Corpus, Gold, Queries
from karat.measure.conventions import ANY_GRADE, Conventions
from karat.measure.kernels.lists import in_time
from karat.measure.prepare import Prepared
from karat.measure.spelling import spelling_difference
from karat.pages.formatting import plural

Level = Literal["error", "warning", "note"]
Example = Mapping[str, Any]
MOST_EXAMPLES = 5


class IssueKind(NamedTuple):
    """A kind of issue: how bad it is and what to do about it."""

    level: Level
    do: str


# By level, the worst first; docs/check-an-eval-set.md says what each of them means.
_KINDS_BY_LEVEL: Mapping[Level, Mapping[str, str]] = {
    "error": {
        "no_common_queries": "Check that both files belong together and spell ids the same way.",
        "no_gold": f"Give the judgments, or {mapping_hint('gold', what='their column')}.",
        "same_text_different_gold": "Decide which answers are right, then keep one of the"
        " queries or merge their gold.",
        "empty_query": "Write the query's text, or leave the query out.",
        "unknown_gold": "Correct the ids, add the items to the corpus, or drop the judgments.",
        "span_beyond_text": "Mark the spans again on the documents as they are in the corpus.",
        "no_answer_with_gold": "Drop the mark or the gold.",
        "only_negatives": "Judge until something is relevant, set no_answer, or lower rel with"
        " --set rel=….",
        "relevant_negative": "Grade it 0, or remove it from the negatives.",
        "unreachable_target": "Lower the gate below its ceiling, or gate another measure.",
    },
    "warning": {
        "empty_gold": "Judge the queries, or set no_answer; until then no mean includes them.",
        "unknown_queries": "Add the queries to the queries file, or drop their judgments.",
        "repeated_query": "Keep one of the queries.",
        "near_duplicate_queries": "Keep one of each pair, or put both queries into one group for"
        " the intervals.",
        "twin_of_gold": "Judge the twins, or remove them from the corpus.",
        "twins_judged_differently": "Judge both the same, or note how they differ.",
        "leak": "Rewrite the query as a user who has not seen the answer would.",
        "gold_without_text": "Restore the texts, or drop the items and their judgments.",
        "gold_newer_than_query": "Judge the version that existed at as_of, or move as_of.",
        "small_gated_segment": "Collect more queries for it, or gate a coarser segment.",
        "gate_needs_more": "Collect the queries, lower the gate, or gate on: mean and take the"
        " risk.",
        "cutoff_beyond_corpus": "Use a smaller cut-off, or the whole corpus.",
    },
    "note": {
        "unknown_judged": "Nothing, unless the ids should be in this corpus.",
        "one_grade": "Nothing, or give partial answers a lower grade.",
        "near_duplicate_items": "Remove the duplicates if the index does not need them.",
        "empty_items": "Remove them, or find out what lost their texts.",
        "one_item_for_many": "Add queries on other subjects, or read the result as one about this"
        " item.",
        "small_segment": "Do not read much into its numbers.",
        "low_ceiling": "Compare it with its ceiling, and set targets below the ceiling.",
    },
}
# What each of them says. Of two forms in braces, the first is for one and the second for more.
_SENTENCES: Mapping[str, str] = {
    "no_common_queries": "The gold and {file} share no query id.",
    "no_gold": "{n} {query has|queries have} no judgment at all.",
    "same_text_different_gold": "{n} {text occurs|texts occur} more than once with different gold:"
    " some answer is wrong.",
    "empty_query": "{n} {query has|queries have} no text.",
    "unknown_gold": "{n} relevant {judgment|judgments} of items missing from the corpus, for "
    "{details}.",
    "span_beyond_text": "{n} {span ends|spans end} after the end of the document.",
    "no_answer_with_gold": "{n} {query|queries} marked no_answer {has|have} relevant gold.",
    "only_negatives": "{n} {query has|queries have} no relevant judgment{why}.",
    "relevant_negative": "{n} hard {negative has|negatives have} a relevant grade.",
    "unreachable_target": "{n} {gate|gates} cannot be passed by any ranking of any system.",
    "empty_gold": "{n} {query has|queries have} no judgment at all.",
    "unknown_queries": "{n} {query|queries} of the gold cannot be found in {file} and will never "
    "be scored.",
    "repeated_query": "{n} {text occurs|texts occur} more than once with the same gold: {extra} "
    "again.",
    "near_duplicate_queries": "{least}{n} {pair|pairs} of queries with nearly the same words, "
    "{different:,} of them with different gold.",
    "twin_of_gold": "{least}{n} relevant {item has|items have} a near-duplicate that the query "
    "does not judge.",
    "twins_judged_differently": "{least}{n} relevant {item has|items have} a near-duplicate "
    "judged as not relevant.",
    "leak": "{n} {query occurs|queries occur} word for word in the text of relevant gold.",
    "gold_without_text": "{n} relevant {item has|items have} no text.",
    "gold_newer_than_query": "{n} relevant {item is|items are} newer than as_of.",
    "small_gated_segment": "{n} gated {segment has|segments have} fewer than {small} queries "
    "with gold.",
    "gate_needs_more": "Even the ideal ranking does not pass {n} {gate|gates}.",
    "cutoff_beyond_corpus": "{n} {measure looks|measures look} as deep as the corpus of {size}.",
    "unknown_judged": "{n} {item|items} judged as not relevant {is|are} not in the corpus.",
    "one_grade": "All {n} relevant {judgment has|judgments have} the grade {grade:g}.",
    "near_duplicate_items": "{least}{n} {pair|pairs} of items with nearly the same words, "
    "involving {part:,} of {items}.",
    "empty_items": "{n} {item of the corpus has|items of the corpus have} no text.",
    "one_item_for_many": "{item} is relevant for {answers:,} of {queries:,} queries: a system "
    "that always returns it scores well.",
    "small_segment": "{n} of {segments} by {column} have fewer than {small} queries with gold.",
    "low_ceiling": "{n} {measure|measures} cannot reach 1 on this gold, however good the ranking.",
}
KINDS: Mapping[str, IssueKind] = {
    name: IssueKind(level, do)
    for level, kinds in _KINDS_BY_LEVEL.items()
    for name, do in kinds.items()
}
_FORMS = re.compile(r"\{([^{}|]*)\|([^{}|]*)\}")


class Issue:
    """Something wrong with an eval set: its kind (see ``KINDS``), how often, and some examples.

    ``facts`` fill the sentence of its kind.
    """

    def __init__(
        self, kind: str, count: int, examples: Sequence[Example] = (), **facts: object
    ) -> None:
        self.kind, self.count, self.level = kind, count, KINDS[kind].level
        self.examples = [dict(example) for example in examples[:MOST_EXAMPLES]]
        sentence = _FORMS.sub(lambda forms: forms[1 if count == 1 else 2], _SENTENCES[kind])
        self.what = sentence.format(n=f"{count:,}", **facts)

    def to_dict(self) -> dict[str, Any]:
        """Return the issue as plain data."""
        return {
            "kind": self.kind,
            "level": self.level,
            "count": self.count,
            "what": self.what,
            "do": KINDS[self.kind].do,
            "examples": self.examples,
        }


class Fine(NamedTuple):
    """A passed check, in one line."""

    what: str


class Unchecked(NamedTuple):
    """A check that could not run, and the input that it needs."""

    what: str


Results = Iterator[Issue | Fine | Unchecked]


@dataclass(frozen=True, eq=False)
class CheckedSet:
    """An eval set to be checked. The queries file, if any, defines which queries count.

    ``attributes`` are the queries with everything that can make segments.
    """

    gold: Gold
    queries: Queries | None
    corpus: Corpus | None
    prepared: Prepared
    attributes: Queries | None

    @property
    def conventions(self) -> Conventions:
        """The conventions for measures and gold."""
        return self.prepared.conventions

    @property
    def n(self) -> int:
        """The number of queries."""
        return len(self.prepared.query_ids)

    @cached_property
    def judged(self) -> pl.DataFrame:
        """The judgments that count: ``query_id``, ``item_id`` (or the document's) and ``grade``."""
        ids = pl.Series("query_id", self.prepared.query_ids, dtype=pl.String)
        rows = self.prepared.rows
        return rows.with_columns(query_id=ids.gather(rows["code"]))

    @cached_property
    def relevant(self) -> pl.DataFrame:
        """The relevant judgments."""
        return self.judged.filter(pl.col("grade") >= self.conventions.rel)

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text of each query, where there is a queries file."""
        if self.queries is None:
            return {}
        return dict(self.queries.frame.select("query_id", "text").iter_rows())

    def example(self, query_id: str, **more: Any) -> dict[str, Any]:
        """Return a query as an example, with its text if that is known."""
        text = {"text": self.texts[query_id]} if query_id in self.texts else {}
        return {"query": query_id, **text, **more}

    @cached_property
    def answers(self) -> dict[str, dict[str, float]]:
        """The relevant gold of each query that has any, with its grades, by item."""
        answers: dict[str, dict[str, float]] = {}
        rows = join_spans(self.relevant).select("query_id", "item_id", "grade").sort("item_id")
        for query_id, item, grade in rows.iter_rows():
            answers.setdefault(query_id, {})[item] = grade
        return answers


def some_rows(frame: pl.DataFrame, **columns: str) -> list[dict[str, Any]]:
    """Return the first rows as examples, with these names for columns."""
    return frame.head(MOST_EXAMPLES).select(**columns).to_dicts()


def issue_of_rows(kind: str, rows: pl.DataFrame, **columns: str) -> Results:
    """Yield an issue of as many cases as there are rows, if there are any."""
    if rows.height:
        yield Issue(kind, rows.height, some_rows(rows, **columns))


def as_text(column: pl.Series) -> pl.Series:
    """Return a column of a user's file as text of any type; empty values are null."""
    if column.dtype.is_nested() or column.dtype == pl.Object:
        values = [None if value is None else str(value) for value in column.to_list()]
        column = pl.Series(column.name, values, dtype=pl.String)
    return column.cast(pl.String).replace("", None)


def count_queries(n: int) -> str:
    """Return a number of queries in words."""
    return plural(n, "query", "queries")


# Checks of the gold: contradicting judgments and unknown ids.

# An item that answers this share of at least so many queries is noted.
_POPULAR_SHARE, _POPULAR_QUERIES = 0.2, 20


def gold_checks(subject: CheckedSet) -> Results:
    """Check the judgments, without their texts."""
    yield from _queries_of_gold(subject)
    yield from _answers(subject)
    yield from _grades(subject)
    if subject.corpus is None:
        yield Unchecked("missing gold, near-duplicate items and leaks: give --corpus")
    elif subject.conventions.level == "span":
        yield from _known_spans(subject, subject.corpus)
    else:
        yield from _known_items(subject, subject.corpus)
    yield from _popular_items(subject)
    yield from _versions(subject)


def _queries_of_gold(subject: CheckedSet) -> Results:
    if subject.queries is None:
        return
    query_numbers, judged = subject.prepared.numbers, subject.gold.query_ids
    unknown = sorted(query_id for query_id in judged if query_id not in query_numbers)
    file = subject.queries.source.name
    if unknown and len(unknown) == len(judged):
        pair = {"gold": unknown[0], "queries": subject.prepared.query_ids[0]}
        yield Issue("no_common_queries", len(unknown), [pair], file=file)
    elif unknown:
        examples = [{"query": query_id} for query_id in unknown]
        yield Issue("unknown_queries", len(unknown), examples, file=file)
    else:
        yield Fine(f"{count_queries(len(judged))} of the gold, all in the queries file")


def _answers(subject: CheckedSet) -> Results:
    """Yield queries whose gold contradicts their attributes."""
    relevant = np.bincount(subject.relevant["code"].to_numpy(), minlength=subject.n) > 0
    judged = np.bincount(subject.judged["code"].to_numpy(), minlength=subject.n) > 0
    none = subject.prepared.no_answer
    highest, rel = subject.judged["grade"].max(), subject.conventions.rel
    why = ""
    if isinstance(highest, float) and highest < rel:
        need = "above 0" if rel == ANY_GRADE else f"{rel:g}"
        why = f": relevant needs grade {need}, and the highest grade is {highest:g}"
    masks = {
        "no_answer_with_gold": none & relevant,
        "only_negatives": ~none & judged & ~relevant,
        "empty_gold" if judged[~none].any() else "no_gold": ~none & ~judged,
    }
    for kind, mask in masks.items():
        ids = sorted(subject.prepared.query_ids[code] for code in np.flatnonzero(mask))
        examples = [
            subject.example(name, relevant=list(subject.answers.get(name, {}))[:MOST_EXAMPLES])
            for name in ids[:MOST_EXAMPLES]
        ]
        if ids:
            yield Issue(kind, len(ids), examples, why=why)
    if not any(mask.any() for mask in masks.values()):
        marked = f", {int(none.sum()):,} of them marked no_answer" if none.any() else ""
        yield Fine(f"gold as expected for {count_queries(subject.n)}{marked}")


def _grades(subject: CheckedSet) -> Results:
    grades = subject.relevant["grade"].unique().sort().to_list()
    if len(grades) == 1:
        yield Issue("one_grade", subject.relevant.height, grade=grades[0])
    elif grades:
        yield Fine(f"{len(grades)} relevant grades, from {grades[0]:g} to {grades[-1]:g}")
    frame = subject.gold.frame
    if "negative" in frame.columns:
        marked = pl.col("negative").cast(pl.Boolean) & (pl.col("grade") >= subject.conventions.rel)
        wrong = frame.filter(marked).sort("query_id", "item_id")
        yield from issue_of_rows(
            "relevant_negative", wrong, query="query_id", item="item_id", grade="grade"
        )


def _known_items(subject: CheckedSet, corpus: Corpus) -> Results:
    """Yield judged items or documents that the corpus lacks."""
    column = "doc_id" if subject.conventions.level == "doc" else "item_id"
    corpus_ids = corpus.frame[column].unique()
    unknown = subject.judged.filter(~pl.col("item_id").is_in(corpus_ids.implode()))
    unknown = unknown.sort("query_id", "item_id")
    is_relevant = pl.col("grade") >= subject.conventions.rel
    relevant = unknown.filter(is_relevant)
    if relevant.height:
        yield _unknown_gold(subject, relevant, corpus_ids, corpus)
    else:
        n = subject.relevant["item_id"].n_unique()
        kind = "documents" if column == "doc_id" else "items"
        yield Fine(f"{n:,} relevant {kind}, all in the corpus")
    others = unknown.filter(~is_relevant)
    yield from issue_of_rows("unknown_judged", others, query="query_id", item="item_id")


def _unknown_gold(
    subject: CheckedSet, unknown: pl.DataFrame, known: pl.Series, corpus: Corpus
) -> Issue:
    details = count_queries(unknown["query_id"].n_unique())
    if unknown.height == subject.relevant.height:
        details += "; no relevant id is in the corpus"
        spelling = spelling_difference(unknown["item_id"], known)
        details += "" if spelling is None else f"; the ids differ by {spelling.difference}"
    docs = int(unknown["item_id"].is_in(corpus.frame["doc_id"].unique().implode()).sum())
    if docs and subject.conventions.level == "item":
        details += f"; {docs:,} ids are documents; --set level=doc scores documents"
    examples = some_rows(unknown, query="query_id", item="item_id")
    near = spelled_alike(examples[0]["item"], known)
    if near is not None:
        examples[0]["nearest"] = near
    return Issue("unknown_gold", unknown.height, examples, details=details)


def spelled_alike(name: str, known: pl.Series) -> str | None:
    """Return the first known id that differs in case and punctuation only, if there is one.

    >>> spelled_alike("Doc-07", pl.Series(["doc_06", "doc_07", "doc_08"]))
    'doc_07'
    """
    letters, known_letters = (
        names.str.to_lowercase().str.replace_all(r"[\W_]", "")
        for names in (pl.Series([name]), known)
    )
    alike = known.filter(known_letters == letters[0])
    return str(alike.sort()[0]) if len(alike) else None


def places(corpus: Corpus) -> pl.DataFrame:
    """Return where each item lies, in the corpus's order: ``doc``, ``start``, ``end`` or null."""
    frame = corpus.frame
    if {"start", "end"} <= set(frame.columns):
        ends = (as_text(frame[name]).cast(pl.Int64, strict=False) for name in ("start", "end"))
        return frame.select(*ends, doc="doc_id")
    parts = pl.col("item_id").str.extract_groups(
        r"^(?s)(?<doc>.+):(?<start>\d{1,18})-(?<end>\d{1,18})$"
    )
    spans = frame.select(parts.alias("_")).unnest("_")
    if not spans["doc"].null_count() and frame.height:
        return spans.with_columns(pl.col("start", "end").cast(pl.Int64))
    alone = pl.len().over("doc_id") == 1
    return frame.select(
        doc="doc_id",
        start=pl.when(alone).then(0),
        end=pl.when(alone).then(pl.col("text").str.len_chars().cast(pl.Int64)),
    )


def _known_spans(subject: CheckedSet, corpus: Corpus) -> Results:
    # With one end unknown the document may be longer than the others show.
    length = pl.when(pl.col("end").null_count() == 0).then(pl.col("end").max())
    ends = places(corpus).group_by("doc").agg(length=length)
    spans = subject.relevant.join(
        ends, left_on="item_id", right_on="doc", how="left", maintain_order="left"
    ).sort("query_id", "item_id", "start")
    unknown = spans.filter(~pl.col("item_id").is_in(ends["doc"].implode()))
    if unknown.height:
        yield _unknown_gold(subject, unknown, ends["doc"], corpus)
    beyond = spans.filter(pl.col("end") > pl.col("length"))
    columns = {"query": "query_id", "doc": "item_id", "end": "end", "length": "length"}
    yield from issue_of_rows("span_beyond_text", beyond, **columns)
    if not unknown.height and not beyond.height:
        yield Fine(f"{spans.height:,} relevant spans, all within their documents")


def _popular_items(subject: CheckedSet) -> Results:
    answered = subject.relevant["query_id"].n_unique()
    if answered < _POPULAR_QUERIES:
        return
    counts = subject.relevant.group_by("item_id").agg(n=pl.col("query_id").n_unique())
    popular = counts.filter(pl.col("n") >= _POPULAR_SHARE * answered)
    popular = popular.sort("n", "item_id", descending=[True, False])
    if popular.height:
        item, n = popular.row(0)
        examples = some_rows(popular, item="item_id", queries="n")
        facts = {"item": item, "answers": n, "queries": answered}
        yield Issue("one_item_for_many", popular.height, examples, **facts)


def _versions(subject: CheckedSet) -> Results:
    """Yield gold that is newer than its query's as_of."""
    as_of, rows, order = subject.prepared.as_of, subject.relevant, subject.conventions.versions
    if subject.conventions.level != "item" or not as_of:
        return
    if "version" not in rows.columns:
        if subject.corpus is None or "version" not in subject.corpus.frame.columns:
            return
        items = subject.corpus.frame
        item_versions = items.select("item_id", as_text(items["version"]))
        rows = rows.join(item_versions, on="item_id", how="left", maintain_order="left")
    late = []
    for row in rows.sort("query_id", "item_id").iter_rows(named=True):
        as_of_query, version = as_of[row["code"]], row["version"]
        if as_of_query and version is not None and in_time(str(version), as_of_query, order) == 0:
            facts = {"as_of": as_of_query, "item": row["item_id"], "version": str(version)}
            late.append(subject.example(row["query_id"], **facts))
    if late:
        yield Issue("gold_newer_than_query", len(late), late)
    else:
        yield Fine("no relevant item is newer than its query's as_of")
