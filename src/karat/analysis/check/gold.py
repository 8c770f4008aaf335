"""The eval set under check, the issues that it can have, and the checks of its gold."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from karat.data.columns import doc_of, join_spans, mapping_hint
from karat.data.tables import Corpus, Gold, Queries
from karat.measure.conventions import ANY_GRADE, Conventions
from karat.measure.kernels.lists import in_time
from karat.measure.misfits import spelling_difference
from karat.measure.prepare import Prepared
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
        "no_common_queries": "Check that both files belong together and spell ids alike.",
        "no_gold": f"Give the judgments, or {mapping_hint('gold', what='the column of them')}.",
        "same_text_different_gold": "Settle what the right answers are, then keep one of the"
        " queries or merge their gold.",
        "empty_query": "Write the query's text, or leave the query out.",
        "unknown_gold": "Correct the ids, add the items to the corpus, or drop the judgments.",
        "span_beyond_text": "Mark the spans again on the documents as they are in the corpus.",
        "no_answer_with_gold": "Drop the mark or the gold.",
        "only_negatives": "Judge until something is relevant, set no_answer, or lower rel with"
        " --set rel=….",
        "relevant_negative": "Give it the grade 0, or take it out of the negatives.",
        "unreachable_target": "Lower the gate below its ceiling, or gate another measure.",
    },
    "warning": {
        "empty_gold": "Judge the queries, or set no_answer; until then they are part of no mean.",
        "unknown_queries": "Add the queries to the queries file, or drop their judgments.",
        "repeated_query": "Keep one of the queries.",
        "near_duplicate_queries": "Keep one of each pair, or put the pairs into one group, so that"
        " intervals account for it.",
        "twin_of_gold": "Judge the twins, or take them out of the corpus.",
        "twins_judged_differently": "Look at both and judge them alike, or note how they differ.",
        "leak": "Ask as a user would who has not seen the answer.",
        "gold_without_text": "Restore the texts, or drop the items and their judgments.",
        "gold_newer_than_query": "Judge the version that was there at as_of, or move as_of.",
        "small_gated_segment": "Collect more queries for it, or gate a coarser segment.",
        "gate_needs_more": "Collect the queries, lower the gate, or gate on: mean and take the"
        " risk.",
        "idle_gate": "Settle which of the two is meant, and keep that one.",
        "cutoff_beyond_corpus": "Use a smaller cut-off, or the whole corpus.",
    },
    "note": {
        "unknown_judged": "Nothing, unless the ids were meant to be of this corpus.",
        "one_grade": "Nothing, or grade what answers only in part lower.",
        "mixed_grades_in_doc": "Nothing, if that is what is meant.",
        "near_duplicate_items": "Take out the duplicates, if the index need not hold them.",
        "empty_items": "Take them out, or look at what lost their texts.",
        "one_item_for_many": "Add queries on other subjects, or read the result as one about this"
        " item.",
        "freshness_untested": "Nothing, or add newer versions to the corpus.",
        "small_segment": "Do not read much into its numbers.",
        "low_ceiling": "Read it against its ceiling, and set targets below that.",
    },
}
KINDS: Mapping[str, IssueKind] = {
    name: IssueKind(level, do)
    for level, kinds in _KINDS_BY_LEVEL.items()
    for name, do in kinds.items()
}


@dataclass(frozen=True, eq=False)
class Issue:
    """Something wrong with an eval set: its kind (see ``KINDS``), how often, and some examples."""

    kind: str
    count: int
    what: str
    examples: Sequence[Example] = ()

    @property
    def level(self) -> Level:
        """How bad it is."""
        return KINDS[self.kind].level

    def to_dict(self) -> dict[str, Any]:
        """Return the issue as plain data."""
        return {
            "kind": self.kind,
            "level": self.level,
            "count": self.count,
            "what": self.what,
            "do": KINDS[self.kind].do,
            "examples": [dict(example) for example in self.examples[:MOST_EXAMPLES]],
        }


class Fine(NamedTuple):
    """What was looked for and not found, in one line."""

    what: str


class Unchecked(NamedTuple):
    """What could not be looked for, and what that would need."""

    what: str


Results = Iterator[Issue | Fine | Unchecked]


@dataclass(frozen=True, eq=False)
class CheckedSet:
    """An eval set to be checked. The queries file, where there is one, says which queries count.

    ``attributes`` are the queries with everything that can make segments.
    """

    gold: Gold
    queries: Queries | None
    corpus: Corpus | None
    prepared: Prepared
    attributes: Queries | None

    @property
    def conventions(self) -> Conventions:
        """How measures and gold are read."""
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


def as_text(column: pl.Series) -> pl.Series:
    """Return a column of a user's file as text, whatever it holds; what is empty is null."""
    if column.dtype.is_nested() or column.dtype == pl.Object:
        values = [None if value is None else str(value) for value in column.to_list()]
        column = pl.Series(column.name, values, dtype=pl.String)
    return column.cast(pl.String).replace("", None)


def count_queries(n: int, has: str = "", have: str = "") -> str:
    """Return a number of queries, with the verb that fits it.

    >>> count_queries(1, "has", "have"), count_queries(1200)
    ('1 query has', '1,200 queries')
    """
    return plural(n, f"query {has}".rstrip(), f"queries {have}".rstrip())


# Is the gold sound: judgments that contradict themselves, ids that nothing answers to.

# An item that answers this share of at least so many queries is noted.
_POPULAR_SHARE, _POPULAR_QUERIES = 0.2, 20
# Ids are compared with so many neighbours in alphabetical order.
_NEIGHBOURS = 500
_MOST_VERSIONS = 100_000


def gold_checks(subject: CheckedSet) -> Results:
    """Check the judgments, without their texts."""
    yield from _queries_of_gold(subject)
    yield from _answers(subject)
    yield from _grades(subject)
    if subject.corpus is None:
        yield Unchecked("gold that the corpus lacks, near-duplicate items and leaks: give --corpus")
    elif subject.conventions.level == "span":
        yield from _known_spans(subject, subject.corpus)
    else:
        yield from _known_items(subject, subject.corpus)
    yield from _popular_items(subject)
    yield from _versions(subject)


def _queries_of_gold(subject: CheckedSet) -> Results:
    if subject.queries is None:
        return
    known, judged = subject.prepared.numbers, subject.gold.query_ids
    unknown = sorted(query_id for query_id in judged if query_id not in known)
    file = subject.queries.source.name
    if unknown and len(unknown) == len(judged):
        pair = {"gold": unknown[0], "queries": subject.prepared.query_ids[0]}
        what = f"The gold and {file} share no query id."
        yield Issue("no_common_queries", len(unknown), what, [pair])
    elif unknown:
        what = (
            f"{count_queries(len(unknown))} of the gold cannot be found in {file} and will never be"
        )
        examples = [{"query": query_id} for query_id in unknown[:MOST_EXAMPLES]]
        yield Issue("unknown_queries", len(unknown), f"{what} scored.", examples)
    else:
        yield Fine(f"{count_queries(len(judged))} of the gold, all of them in the queries file")


def _answers(subject: CheckedSet) -> Results:
    """Yield queries whose gold contradicts their attributes."""
    relevant = np.bincount(subject.relevant["code"].to_numpy(), minlength=subject.n) > 0
    judged = np.bincount(subject.judged["code"].to_numpy(), minlength=subject.n) > 0
    none = subject.prepared.no_answer

    def issue(kind: str, codes: Iterable[int], what: str) -> Issue:
        ids = sorted(subject.prepared.query_ids[code] for code in codes)
        examples = [
            subject.example(name, relevant=list(subject.answers.get(name, {}))[:MOST_EXAMPLES])
            for name in ids[:MOST_EXAMPLES]
        ]
        return Issue(kind, len(ids), what, examples)

    wrong = np.flatnonzero(none & relevant)
    if len(wrong):
        what = count_queries(len(wrong), "marked no_answer has", "marked no_answer have")
        yield issue("no_answer_with_gold", wrong, f"{what} relevant gold.")
    negative = np.flatnonzero(~none & judged & ~relevant)
    if len(negative):
        what = f"{count_queries(len(negative), 'has', 'have')} no relevant judgment"
        yield issue("only_negatives", negative, what + _why_not_relevant(subject))
    empty = np.flatnonzero(~none & ~judged)
    if len(empty):
        kind = "empty_gold" if judged[~none].any() else "no_gold"
        yield issue(kind, empty, f"{count_queries(len(empty), 'has', 'have')} no judgment at all.")
    if not len(wrong) + len(negative) + len(empty):
        marked = f", {int(none.sum()):,} of them marked no_answer" if none.any() else ""
        yield Fine(f"gold as expected for {count_queries(subject.n)}{marked}")


def _why_not_relevant(subject: CheckedSet) -> str:
    """Return the end of the sentence: why nothing is relevant, where one reason holds for all."""
    highest, rel = subject.judged["grade"].max(), subject.conventions.rel
    if isinstance(highest, float) and highest < rel:
        need = "above 0" if rel == ANY_GRADE else f"{rel:g}"
        return f": relevant is a grade of {need}, and the highest of all is {highest:g}."
    return "."


def _grades(subject: CheckedSet) -> Results:
    grades = subject.relevant["grade"].unique().sort().to_list()
    if len(grades) == 1:
        n = subject.relevant.height
        what = plural(n, "relevant judgment has", "relevant judgments have")
        yield Issue("one_grade", n, f"{what} the grade {grades[0]:g}; there is no other.")
    elif grades:
        yield Fine(f"{len(grades)} relevant grades, from {grades[0]:g} to {grades[-1]:g}")
    frame = subject.gold.frame
    if "negative" in frame.columns:
        marked = pl.col("negative").cast(pl.Boolean) & (pl.col("grade") >= subject.conventions.rel)
        wrong = frame.filter(marked).sort("query_id", "item_id")
        if wrong.height:
            what = plural(wrong.height, "hard negative has", "hard negatives have")
            examples = some_rows(wrong, query="query_id", item="item_id", grade="grade")
            yield Issue("relevant_negative", wrong.height, f"{what} a relevant grade.", examples)
    if subject.conventions.level == "doc":
        yield from _grades_in_docs(subject)


def _grades_in_docs(subject: CheckedSet) -> Results:
    rows = subject.gold.frame.with_columns(doc=doc_of(pl.col("item_id")))
    if subject.corpus is not None:
        chunks = subject.corpus.frame.select("item_id", "doc_id")
        rows = rows.join(chunks, on="item_id", how="left", maintain_order="left")
        rows = rows.with_columns(doc=pl.coalesce("doc_id", "doc"))
    each = rows.group_by("query_id", "doc").agg(
        grades=pl.col("grade").n_unique(), low=pl.col("grade").min(), high=pl.col("grade").max()
    )
    mixed = each.filter(pl.col("grades") > 1).sort("query_id", "doc")
    if mixed.height:
        what = plural(mixed.height, "document has", "documents have")
        what += " parts of different grades for one query; the highest counts."
        examples = some_rows(mixed, query="query_id", doc="doc", lowest="low", highest="high")
        yield Issue("mixed_grades_in_doc", mixed.height, what, examples)


def _known_items(subject: CheckedSet, corpus: Corpus) -> Results:
    """Yield judged items or documents that the corpus lacks."""
    column = "doc_id" if subject.conventions.level == "doc" else "item_id"
    known = corpus.frame[column].unique()
    unknown = subject.judged.filter(~pl.col("item_id").is_in(known.implode()))
    unknown = unknown.sort("query_id", "item_id")
    is_relevant = pl.col("grade") >= subject.conventions.rel
    relevant, others = unknown.filter(is_relevant), unknown.filter(~is_relevant)
    if relevant.height:
        yield _unknown_gold(subject, relevant, known, corpus)
    else:
        n = subject.relevant["item_id"].n_unique()
        kind = "documents" if column == "doc_id" else "items"
        yield Fine(f"{n:,} relevant {kind}, all of them in the corpus")
    if others.height:
        what = f"{plural(others.height, 'item')} judged as not relevant"
        what += f" {'is' if others.height == 1 else 'are'} not in the corpus."
        examples = some_rows(others, query="query_id", item="item_id")
        yield Issue("unknown_judged", others.height, what, examples)


def _unknown_gold(
    subject: CheckedSet, unknown: pl.DataFrame, known: pl.Series, corpus: Corpus
) -> Issue:
    pair = ["query_id", "item_id"]
    others = subject.relevant.join(unknown.select(pair), on=pair, how="anti")
    affected = unknown["query_id"].n_unique()
    hopeless = affected - unknown.join(others, on="query_id", how="semi")["query_id"].n_unique()
    what = plural(unknown.height, "relevant judgment names", "relevant judgments name")
    what += f" what the corpus lacks, for {count_queries(affected)}"
    if unknown.height == subject.relevant.height:
        what += "; not one relevant id is in the corpus"
        spelling = spelling_difference(unknown["item_id"], known)
        what += "" if spelling is None else f"; the ids differ by {spelling.difference}"
    elif hopeless:
        what += f"; {count_queries(hopeless, 'has', 'have')} no other gold"
    docs = int(unknown["item_id"].is_in(corpus.frame["doc_id"].unique().implode()).sum())
    if docs and subject.conventions.level == "item":
        what += f"; {docs:,} of the ids are documents, which --set level=doc would score"
    examples = some_rows(unknown, query="query_id", item="item_id")
    near = nearest_id(examples[0]["item"], known)
    if near is not None:
        examples[0]["nearest"] = near
    return Issue("unknown_gold", unknown.height, f"{what}.", examples)


def nearest_id(name: str, known: pl.Series) -> str | None:
    """Return the known id that looks most like this one, if any does.

    >>> nearest_id("Doc-07", pl.Series(["doc_06", "doc_07", "doc_08"]))
    'doc_07'
    """
    letters = pl.Series([name]).str.to_lowercase().str.replace_all(r"[\W_]", "")[0]
    alike = known.filter(known.str.to_lowercase().str.replace_all(r"[\W_]", "") == letters).sort()
    if len(alike):
        return str(alike[0])
    names = known.sort().to_list()
    at = bisect_left(names, name)
    around = names[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS]
    near = difflib.get_close_matches(name, around, n=1, cutoff=0.75)
    return near[0] if near else None


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
    whole = pl.len().over("doc_id") == 1
    return frame.select(
        doc="doc_id",
        start=pl.when(whole).then(0),
        end=pl.when(whole).then(pl.col("text").str.len_chars().cast(pl.Int64)),
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
    if beyond.height:
        what = f"{plural(beyond.height, 'span ends', 'spans end')} after the end of the document."
        names = {"query": "query_id", "doc": "item_id", "end": "end", "length": "length"}
        yield Issue("span_beyond_text", beyond.height, what, some_rows(beyond, **names))
    if not unknown.height and not beyond.height:
        yield Fine(f"{spans.height:,} relevant spans, all of them within their documents")


def _popular_items(subject: CheckedSet) -> Results:
    answered = subject.relevant["query_id"].n_unique()
    if answered < _POPULAR_QUERIES:
        return
    counts = subject.relevant.group_by("item_id").agg(n=pl.col("query_id").n_unique())
    popular = counts.filter(pl.col("n") >= _POPULAR_SHARE * answered)
    popular = popular.sort("n", "item_id", descending=[True, False])
    if popular.height:
        item, n = popular.row(0)
        what = f"{item} is relevant for {n:,} of {answered:,} queries: always returning it pays."
        examples = some_rows(popular, item="item_id", queries="n")
        yield Issue("one_item_for_many", popular.height, what, examples)


def _versions(subject: CheckedSet) -> Results:
    """Yield gold from after the question was asked."""
    as_of, rows, order = subject.prepared.as_of, subject.relevant, subject.conventions.versions
    if subject.conventions.level != "item" or not as_of:
        return
    items = None if subject.corpus is None else subject.corpus.frame
    versions = (
        None if items is None or "version" not in items.columns else as_text(items["version"])
    )
    if "version" not in rows.columns:
        if items is None or versions is None:
            return
        known = items.select("item_id", versions)
        rows = rows.join(known, on="item_id", how="left", maintain_order="left")
    late = []
    for row in rows.sort("query_id", "item_id").iter_rows(named=True):
        asked, version = as_of[row["code"]], row["version"]
        if asked and version is not None and in_time(str(version), asked, order) == 0:
            facts = {"as_of": asked, "item": row["item_id"], "version": str(version)}
            late.append(subject.example(row["query_id"], **facts))
    if late:
        what = f"{plural(len(late), 'relevant item is', 'relevant items are')} newer than as_of."
        yield Issue("gold_newer_than_query", len(late), what, late[:MOST_EXAMPLES])
    else:
        yield Fine("no relevant item is newer than its query's as_of")
    if versions is None:
        return
    made, times = versions.drop_nulls().unique().to_list(), {time for time in as_of if time}
    if len(made) * len(times) > _MOST_VERSIONS:
        return
    ages = {in_time(version, time, order) for version in made for time in times}
    if 1 in ages and 0 not in ages:
        what = (
            f"All {plural(len(made), 'version')} in the corpus are as old as every as_of or older."
        )
        yield Issue("freshness_untested", len(made), what)
