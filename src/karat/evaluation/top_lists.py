"""Lists and gold for analyses: the top hits, facts from the corpus, means and shares.

Nothing is scored here again: a measure's value is the one that the run was scored by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.columns import doc_of_text, join_spans
from karat.data.tables import Queries
from karat.errors import MissingInputError, UsageError
from karat.measure.aggregates import Values
from karat.measure.aggregates import mean as exact_mean
from karat.measure.names import parse_measure
from karat.measure.prepare import Prepared, doc_of_hits
from karat.measure.ranked import Ranked
from karat.measure.scores import Scores, plan_of
from karat.stats.means import mean_intervals

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

# How many items, documents or queries a document names; the rest is counted.
MOST = 20
_LONGEST = 200
# A page shows fewer rows than a document holds.
SHOWN_ROWS = 10
_SHOWN_NAMES = 3

Row = Mapping[str, Any]


def ranked_of(scores: Scores) -> Ranked:
    """Return the ranks of a run's judged hits; scores from a store lack them."""
    if scores.trace is None:
        raise UsageError(f"the scores of {scores.system!r} have no lists; score the run itself")
    return scores.trace.ranked


def assessed(scores: Scores) -> Mask:
    """Return the queries whose gold is not empty."""
    return np.isin(scores.status, ["scored", "missing", "failed"])


def unanswered(scores: Scores) -> Mask:
    """Return the queries that the run lacks, or whose call failed."""
    return np.isin(scores.status, ["missing", "failed"])


def judged_by(gold: Prepared) -> str:
    """Return the corpus column with the judged ids."""
    return "item_id" if gold.conventions.level == "item" else "doc_id"


def kept_lists(scores: Scores, k: int) -> pl.DataFrame:
    """Return the first k hits of every query, by row and rank, as they were kept."""
    if scores.lists is None:
        raise UsageError(f"this needs the top {k} of every list; score the run with keep={k}")
    lists = scores.lists.filter(pl.col("rank") <= k)
    returned = ranked_of(scores).returned
    counts = np.bincount(lists["row"].to_numpy(), minlength=len(returned))
    if (counts < np.minimum(returned, k)).any():
        raise UsageError(f"fewer than the top {k} were kept; score the run with keep={k} or more")
    return lists.sort("row", "rank")


def top_lists(scores: Scores, gold: Prepared, k: int) -> pl.DataFrame:
    """Return the first k hits of every query: item_id, doc_id, grade and what was logged.

    ``row`` is the query's place in the score table. ``grade`` is null where nobody judged the
    item; a further chunk of a document that is judged has that document's grade.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise UsageError(f"k is {k!r}; a whole number above 0 is expected")
    lists = kept_lists(scores, k)
    hits = ranked_of(scores).hits
    grades = hits.grade if hits.best is None else hits.best
    judged = pl.DataFrame({"row": hits.query, "rank": hits.rank, "grade": grades})
    lists = lists.drop("grade").join(judged, on=["row", "rank"], how="left", maintain_order="left")
    return lists.with_columns(doc_of_hits(lists, gold.corpus))


def measured(scores: Scores, name: str) -> dict[str, Any]:
    """Return a measure over all queries as in a document, equal to the report's.

    Raises MissingInputError if an input that the measure needs was not given.
    """
    measure = parse_measure(name, conventions=scores.conventions)
    if measure not in scores.measures:
        raise UsageError(f"this needs {measure}; score the run by it")
    if (lacks := scores.lacks.get(str(measure))) is not None:
        raise MissingInputError(lacks)
    summary = replace(scores, measures=(measure,)).summaries[str(measure)]
    return {
        "measure": str(measure),
        "mean": summary.mean,
        "ci": None if summary.ci is None else list(summary.ci),
        "n": summary.n,
        "ceiling": summary.ceiling,
    }


def share_of(
    values: Values, scores: Scores, rows: Ints, *, most: float | None = 1.0
) -> dict[str, Any]:
    """Return the mean of values from 0 to ``most``, one for each of these rows, with interval."""
    mean = exact_mean(values)
    ends: Sequence[float] = [math.nan, math.nan]
    if len(values) > 1 and scores.conventions.interval != "none":
        groups = None if scores.groups is None else scores.groups[rows]
        plan = plan_of(scores.conventions)
        ranges = None if most is None else [(0.0, most)]
        ends = mean_intervals(values[:, None], plan, ranges=ranges, groups=groups)[0].tolist()
    return {
        "mean": mean,
        "ci": None if math.isnan(ends[0]) else list(ends),
        "n": len(values),
    }


def query_texts(calls: pl.DataFrame | None, queries: Queries | None) -> dict[str, str]:
    """Return the text of each query: that of the queries, else of the log."""
    texts = logged_texts(calls, "query")
    if queries is not None:
        rows = queries.frame.select("query_id", "text").iter_rows()
        texts |= {query_id: text for query_id, text in rows if text}
    return {query_id: text for query_id, text in texts.items() if text.strip()}


def logged_texts(calls: pl.DataFrame | None, name: str) -> dict[str, str]:
    """Return a column of the logged calls by query id, without blanks."""
    if calls is None or name not in calls.columns:
        return {}
    rows = calls.select("query_id", name).iter_rows()
    return {query_id: str(value) for query_id, value in rows if str(value or "").strip()}


def shown_texts(items: pl.Series, gold: Prepared) -> list[str | None]:
    """Return the beginning of each item's text; None where it is not known."""
    return [shown(text) for text in texts_of(items, gold)]


def texts_of(items: pl.Series, gold: Prepared) -> pl.Series:
    """Return the text of each item; null where the corpus lacks the item or its text is blank."""
    if gold.corpus is None:
        return pl.Series("text", [None] * len(items), dtype=pl.String)
    corpus = gold.corpus.select("item_id", "text")
    frame = pl.DataFrame({"item_id": items})
    texts = frame.join(corpus, on="item_id", how="left", maintain_order="left")["text"]
    blank = texts.str.strip_chars() == ""
    return texts.set(blank.fill_null(value=False), None)


def shown(text: str | None) -> str | None:
    """Return the beginning of a text, on one line."""
    if text is None:
        return None
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1].rstrip() + "…"


def some_names(ids: Sequence[str]) -> str:
    """Return the first few ids as a page shows them, and how many more there are."""
    more = len(ids) - _SHOWN_NAMES
    return ", ".join(ids[:_SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")


class CorpusLookup(Protocol):
    """Looks up some items or documents in a corpus, in its order."""

    def rows(self, ids: Sequence[str], *, by: str = "item_id") -> pl.DataFrame: ...


class RelevantItem(NamedTuple):
    """One relevant item, document or span of a query; ``judgment`` is its row in the gold.

    ``in_corpus`` is None where there is no corpus to look in.
    """

    judgment: int
    item_id: str
    doc_id: str
    grade: float
    text: str | None = None
    section: str | None = None
    version: str | None = None
    in_corpus: bool | None = None


def corpus_rows(
    items: CorpusLookup | None, ids: Sequence[str], by: str = "item_id"
) -> Iterator[Row]:
    """Yield the corpus rows of some items or documents; nothing without a corpus."""
    if items is not None and ids:
        yield from items.rows(list(dict.fromkeys(ids)), by=by).iter_rows(named=True)


def gold_of(
    gold: Prepared, rows: Sequence[int], items: CorpusLookup | None
) -> dict[int, tuple[RelevantItem, ...]]:
    """Return the relevant gold of some queries, best grade first."""
    target = gold.target(np.array(rows, dtype=np.int64))
    relevant = gold.relevant[target.rows]
    judged, place = target.rows[relevant], target.query[relevant]
    frame = gold.rows[judged]
    by = judged_by(gold)
    parts: dict[str, list[Row]] = {}
    for part in corpus_rows(items, frame["item_id"].to_list(), by):
        parts.setdefault(part[by], []).append(part)
    names = join_spans(frame)["item_id"].to_list()
    by_row: dict[int, list[RelevantItem]] = {row: [] for row in rows}
    for at, (judgment, unit) in enumerate(zip(judged, frame.iter_rows(named=True), strict=True)):
        item_parts = parts.get(unit["item_id"], [])
        in_corpus = None if items is None else bool(item_parts)
        facts = _corpus_facts(unit, item_parts, by) | {"in_corpus": in_corpus}
        item = RelevantItem(int(judgment), names[at], grade=float(unit["grade"]), **facts)
        by_row[rows[place[at]]].append(item)
    return {row: tuple(items) for row, items in by_row.items()}


def _corpus_facts(unit: Row, parts: Sequence[Row], by: str) -> dict[str, Any]:
    """Return the corpus facts of a unit, from its one or several parts."""
    doc_id = unit["item_id"] if by == "doc_id" else doc_of_text(unit["item_id"])
    if not parts:
        return {"doc_id": doc_id, "version": _joined([unit.get("version")])}
    start, end = unit.get("start"), unit.get("end")
    text: str | None = "\n".join(part["text"] for part in parts)
    if start is not None and end is not None:
        parts = [part for part in parts if _place(part)[0] < end and _place(part)[1] > start]
        text = _cut(parts, start, end) if parts else None
    of_parts = [part.get("version") for part in parts]
    return {
        "doc_id": str(parts[0]["doc_id"]) if parts else doc_id,
        "text": text,
        "section": _joined([part.get("section") for part in parts]),
        "version": _joined([unit.get("version")]) or _joined(of_parts),
    }


def _joined(values: Sequence[Any]) -> str | None:
    """Return different values joined as text."""
    present = [value for value in values if value not in (None, "", [])]
    texts = [
        " > ".join(map(str, value)) if isinstance(value, list) else str(value) for value in present
    ]
    return ", ".join(dict.fromkeys(texts)) or None


def _place(part: Row) -> tuple[int, int]:
    """Return the place of a part in its document; without one, the whole document."""
    start, end = part.get("start"), part.get("end")
    if isinstance(start, int) and isinstance(end, int):
        return start, end
    return 0, len(part["text"])


def _cut(parts: Sequence[Row], start: int, end: int) -> str:
    """Return the characters of a span, put together from the parts that hold some of them."""
    pieces: list[str] = []
    at = start
    for part in sorted(parts, key=_place):
        first, last = _place(part)
        if last > at:
            pieces += [" … "] if first > at else []
            pieces.append(part["text"][max(at, first) - first : end - first])
            at = last
    return "".join(pieces)
