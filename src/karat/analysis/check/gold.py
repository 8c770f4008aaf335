"""Is the gold sound: judgments that contradict themselves, ids that nothing answers to."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable

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
from karat.data.columns import doc_of
from karat.data.tables import Corpus
from karat.measures.conventions import ANY_GRADE
from karat.measures.kernels.lists import in_time as in_time
from karat.measures.spellings import spelling_difference

# An item that answers so large a share of at least so many queries is worth a word.
_POPULAR_SHARE, _POPULAR_QUERIES = 0.2, 20
# Ids are compared with so many neighbours in alphabetical order.
_NEIGHBOURS = 500
_MOST_VERSIONS = 100_000


def gold_checks(subject: EvalSet) -> Results:
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


def _queries_of_gold(subject: EvalSet) -> Results:
    if subject.queries is None:
        return
    known, asked = subject.prepared.numbers, subject.gold.query_ids
    strangers = sorted(query_id for query_id in asked if query_id not in known)
    if strangers and len(strangers) == len(asked):
        pair = {"gold": strangers[0], "queries": subject.prepared.query_ids[0]}
        what = f"The gold and {subject.queries.source.name} share no query id."
        yield Finding("no_common_queries", len(strangers), what, (pair,))
    elif strangers:
        what = f"{many(len(strangers), 'query', 'queries')} of the gold"
        what += f" cannot be found in {subject.queries.source.name} and will never be scored."
        examples = [{"query": query_id} for query_id in strangers[:MOST_EXAMPLES]]
        yield Finding("unknown_queries", len(strangers), what, tuple(examples))
    else:
        asked_for = many(len(asked), "query", "queries")
        yield Fine(f"{asked_for} of the gold, all of them in the queries file")


def _answers(subject: EvalSet) -> Results:
    """Yield queries whose gold contradicts their attributes."""
    relevant = np.bincount(subject.relevant["code"].to_numpy(), minlength=subject.n) > 0
    judged = np.bincount(subject.judged["code"].to_numpy(), minlength=subject.n) > 0
    none = subject.prepared.no_answer
    wrong = np.flatnonzero(none & relevant)
    if len(wrong):
        what = f"{many(len(wrong), 'query', 'queries')} marked no_answer"
        what += f" {'has' if len(wrong) == 1 else 'have'} relevant gold."
        yield _of_queries(subject, "no_answer_with_gold", wrong, what)
    negative = np.flatnonzero(~none & judged & ~relevant)
    if len(negative):
        what = f"{many(len(negative), 'query has', 'queries have')} no relevant judgment"
        yield _of_queries(subject, "only_negatives", negative, what + _highest(subject))
    empty = np.flatnonzero(~none & ~judged)
    if len(empty):
        what = f"{many(len(empty), 'query has', 'queries have')} no judgment at all."
        kind = "empty_gold" if judged[~none].any() else "no_gold"
        yield _of_queries(subject, kind, empty, what)
    if not len(wrong) + len(negative) + len(empty):
        marked = f", {int(none.sum()):,} of them marked no_answer" if none.any() else ""
        yield Fine(f"gold as expected for {many(subject.n, 'query', 'queries')}{marked}")


def _of_queries(subject: EvalSet, kind: str, codes: Iterable[int], what: str) -> Finding:
    ids = sorted(subject.prepared.query_ids[code] for code in codes)
    examples = [
        subject.example(query_id, relevant=list(subject.answers.get(query_id, {}))[:MOST_EXAMPLES])
        for query_id in ids[:MOST_EXAMPLES]
    ]
    return Finding(kind, len(ids), what, tuple(examples))


def _highest(subject: EvalSet) -> str:
    """Return what ends the sentence: why nothing is relevant, where one reason holds for all."""
    highest = subject.judged["grade"].max()
    rel = subject.conventions.rel
    if isinstance(highest, float) and highest < rel:
        need = "above 0" if rel == ANY_GRADE else f"{rel:g}"
        return f": relevant is a grade of {need}, and the highest of all is {highest:g}."
    return "."


def _grades(subject: EvalSet) -> Results:
    grades = subject.relevant["grade"].unique().sort().to_list()
    if len(grades) == 1:
        n = subject.relevant.height
        what = f"{many(n, 'relevant judgment has', 'relevant judgments have')}"
        yield Finding("one_grade", n, f"{what} the grade {grades[0]:g}; there is no other.")
    elif grades:
        yield Fine(f"{len(grades)} relevant grades, from {grades[0]:g} to {grades[-1]:g}")
    frame = subject.gold.frame
    if "negative" in frame.columns:
        marked = pl.col("negative").cast(pl.Boolean) & (pl.col("grade") >= subject.conventions.rel)
        wrong = frame.filter(marked).sort("query_id", "item_id")
        if wrong.height:
            what = f"{many(wrong.height, 'hard negative has', 'hard negatives have')}"
            examples = rows_of(wrong, query="query_id", item="item_id", grade="grade")
            yield Finding(
                "relevant_negative", wrong.height, f"{what} a relevant grade.", tuple(examples)
            )
    if subject.conventions.level == "doc":
        yield from _grades_in_docs(subject)


def _grades_in_docs(subject: EvalSet) -> Results:
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
        what = f"{many(mixed.height, 'document has', 'documents have')} parts of different grades"
        examples = rows_of(mixed, query="query_id", doc="doc", lowest="low", highest="high")
        what += " for one query; the highest counts."
        yield Finding("mixed_grades_in_doc", mixed.height, what, tuple(examples))


def _known_items(subject: EvalSet, corpus: Corpus) -> Results:
    """Yield judged items or documents that the corpus lacks."""
    column = "doc_id" if subject.conventions.level == "doc" else "item_id"
    known = corpus.frame.select(pl.col(column).unique()).to_series()
    lost = subject.judged.filter(~pl.col("item_id").is_in(known.implode()))
    lost = lost.sort("query_id", "item_id")
    relevant = lost.filter(pl.col("grade") >= subject.conventions.rel)
    if relevant.height:
        yield _lost(subject, relevant, known, corpus)
    else:
        n = subject.relevant["item_id"].n_unique()
        kind = "documents" if column == "doc_id" else "items"
        yield Fine(f"{n:,} relevant {kind}, all of them in the corpus")
    others = lost.height - relevant.height
    if others:
        rest = lost.filter(pl.col("grade") < subject.conventions.rel)
        what = f"{many(others, 'item', 'items')} judged as not relevant"
        what += f" {'is' if others == 1 else 'are'} not in the corpus."
        examples = rows_of(rest, query="query_id", item="item_id")
        yield Finding("unknown_judged", others, what, tuple(examples))


def _lost(subject: EvalSet, lost: pl.DataFrame, known: pl.Series, corpus: Corpus) -> Finding:
    affected = lost["query_id"].n_unique()
    found = subject.relevant.join(
        lost.select("query_id", "item_id"), on=["query_id", "item_id"], how="anti"
    )
    hopeless = affected - lost.join(found, on="query_id", how="semi")["query_id"].n_unique()
    what = f"{many(lost.height, 'relevant judgment names', 'relevant judgments name')} what the"
    what += f" corpus lacks, for {many(affected, 'query', 'queries')}"
    if lost.height == subject.relevant.height:
        what += "; not one relevant id is in the corpus"
        spelling = spelling_difference(lost["item_id"], known)
        what += "" if spelling is None else f"; the ids differ by {spelling.difference}"
    elif hopeless:
        what += f"; {many(hopeless, 'query has', 'queries have')} no other gold"
    docs = int(lost["item_id"].is_in(corpus.frame["doc_id"].unique().implode()).sum())
    if docs and subject.conventions.level == "item":
        what += f"; {docs:,} of the ids are documents, which --set level=doc would score"
    examples = rows_of(lost, query="query_id", item="item_id")
    near = nearest_id(examples[0]["item"], known)
    if near is not None:
        examples[0]["nearest"] = near
    return Finding("unknown_gold", lost.height, what + ".", tuple(examples))


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
    """Where each item lies: ``doc``, ``start``, ``end``, in the corpus's order; null if unknown."""
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


def _known_spans(subject: EvalSet, corpus: Corpus) -> Results:
    # With one end unknown the document may be longer than the others tell.
    length = pl.when(pl.col("end").null_count() == 0).then(pl.col("end").max())
    ends = places(corpus).group_by("doc").agg(length=length)
    spans = subject.relevant.join(
        ends, left_on="item_id", right_on="doc", how="left", maintain_order="left"
    ).sort("query_id", "item_id", "start")
    known = ends["doc"]
    lost = spans.filter(~pl.col("item_id").is_in(known.implode()))
    if lost.height:
        yield _lost(subject, lost, known, corpus)
    beyond = spans.filter(pl.col("end") > pl.col("length"))
    if beyond.height:
        what = f"{many(beyond.height, 'span ends', 'spans end')} after the end of the document."
        names = {"query": "query_id", "doc": "item_id", "end": "end", "length": "length"}
        yield Finding("span_beyond_text", beyond.height, what, tuple(rows_of(beyond, **names)))
    if not lost.height and not beyond.height:
        yield Fine(f"{spans.height:,} relevant spans, all of them within their documents")


def _popular_items(subject: EvalSet) -> Results:
    answered = subject.relevant["query_id"].n_unique()
    if answered < _POPULAR_QUERIES:
        return
    counts = subject.relevant.group_by("item_id").agg(n=pl.col("query_id").n_unique())
    popular = counts.filter(pl.col("n") >= _POPULAR_SHARE * answered)
    popular = popular.sort("n", "item_id", descending=[True, False])
    if popular.height:
        item, n = popular.row(0)
        what = f"{item} is relevant for {n:,} of {answered:,} queries: always returning it pays."
        examples = rows_of(popular, item="item_id", queries="n")
        yield Finding("one_item_for_many", popular.height, what, tuple(examples))


def _versions(subject: EvalSet) -> Results:
    """Yield gold from after the question was asked."""
    as_of, rows = subject.prepared.as_of, subject.relevant
    if subject.conventions.level != "item" or not as_of:
        return
    if "version" not in rows.columns:
        if subject.corpus is None or "version" not in subject.corpus.frame.columns:
            return
        frame = subject.corpus.frame
        versions = frame.select("item_id", as_text(frame["version"]))
        rows = rows.join(versions, on="item_id", how="left", maintain_order="left")
    order = subject.conventions.versions
    late = []
    for row in rows.sort("query_id", "item_id").iter_rows(named=True):
        asked, version = as_of[row["code"]], row["version"]
        if asked and version is not None and in_time(str(version), asked, order) == 0:
            late.append(
                subject.example(
                    row["query_id"], as_of=asked, item=row["item_id"], version=str(version)
                )
            )
    if late:
        what = f"{many(len(late), 'relevant item is', 'relevant items are')} newer than as_of."
        yield Finding("gold_newer_than_query", len(late), what, tuple(late[:MOST_EXAMPLES]))
    else:
        yield Fine("no relevant item is newer than its query's as_of")
    yield from _freshness(subject, order)


def _freshness(subject: EvalSet, order: tuple[str, ...]) -> Results:
    if subject.corpus is None or "version" not in subject.corpus.frame.columns:
        return
    made = as_text(subject.corpus.frame["version"]).drop_nulls().unique().to_list()
    asked = {one for one in subject.prepared.as_of if one}
    if len(made) * len(asked) > _MOST_VERSIONS:
        return
    ages = [in_time(version, one, order) for version in made for one in asked]
    if any(age == 1 for age in ages) and not any(age == 0 for age in ages):
        what = f"All {many(len(made), 'version')} in the corpus are as old as every as_of or older."
        yield Finding("freshness_untested", len(made), what)
