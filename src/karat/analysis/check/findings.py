"""What a check of an eval set looks at and what it can find: the set, and a catalogue of findings.

The checks themselves live in ``soundness`` and the modules named after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import polars as pl

from karat.data.columns import mapping_hint
from karat.data.tables import Corpus, Gold, Queries
from karat.measures.conventions import Conventions
from karat.measures.prepare import Prepared, prepare

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
MOST_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: how bad it is, what it is about and what is to be done."""

    level: Level
    about: str
    do: str


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "no_common_queries": Kind(
            "error",
            "no query of the gold is in the queries file",
            "Check that both files belong together and spell ids alike.",
        ),
        "no_gold": Kind(
            "error",
            "not one query has a judgment, so that nothing can be measured",
            f"Give the judgments, or {mapping_hint('gold', what='the column that holds them')}.",
        ),
        "same_text_different_gold": Kind(
            "error",
            "one query text with different gold",
            "Settle what the right answers are, then keep one of the queries or merge their gold.",
        ),
        "empty_query": Kind(
            "error", "a query without a text", "Write the query's text, or leave the query out."
        ),
        "unknown_gold": Kind(
            "error",
            "relevant gold that the corpus lacks, so that no system can find it",
            "Correct the ids, add the items to the corpus, or drop the judgments.",
        ),
        "span_beyond_text": Kind(
            "error",
            "a gold span that ends after the end of its document",
            "Mark the spans again on the documents as they are in the corpus.",
        ),
        "no_answer_with_gold": Kind(
            "error",
            "marked as having no answer, and yet with relevant gold",
            "Drop the mark or the gold.",
        ),
        "only_negatives": Kind(
            "error",
            "judged, but no judgment is relevant, and not marked as having no answer",
            "Judge until something is relevant, set no_answer, or lower rel with --set rel=….",
        ),
        "relevant_negative": Kind(
            "error",
            "a hard negative with a relevant grade",
            "Give it the grade 0, or take it out of the negatives.",
        ),
        "unreachable_target": Kind(
            "error",
            "a gate that no ranking can pass on this gold",
            "Lower the gate below its ceiling, or gate another measure.",
        ),
        "empty_gold": Kind(
            "warning",
            "no judgment at all, and not marked as having no answer",
            "Judge the queries, or set no_answer; until then they are part of no mean.",
        ),
        "unknown_queries": Kind(
            "warning",
            "in the gold, but not in the queries file, so never scored",
            "Add the queries to the queries file, or drop their judgments.",
        ),
        "repeated_query": Kind(
            "warning",
            "one query text more than once with the same gold: it counts more than once",
            "Keep one of the queries.",
        ),
        "near_duplicate_queries": Kind(
            "warning",
            "queries of nearly the same words: they are no independent evidence",
            "Keep one of each pair, or put the pairs into one group, so that intervals know.",
        ),
        "twin_of_gold": Kind(
            "warning",
            "an item nearly the same as a relevant one is not judged:"
            " a system is punished for returning the twin",
            "Judge the twins, or take them out of the corpus.",
        ),
        "twins_judged_differently": Kind(
            "warning",
            "of two items that are nearly the same, one is relevant and the other is not",
            "Look at both and judge them alike, or note what tells them apart.",
        ),
        "leak": Kind(
            "warning",
            "the whole query stands word for word in its gold: matching words is enough to find it",
            "Ask as a user would who has not seen the answer.",
        ),
        "gold_without_text": Kind(
            "warning",
            "a relevant item whose text is empty",
            "Restore the texts, or drop the items and their judgments.",
        ),
        "gold_newer_than_query": Kind(
            "warning",
            "a relevant item whose version is newer than the query's as_of",
            "Judge the version that was there at as_of, or move as_of.",
        ),
        "small_gated_segment": Kind(
            "warning",
            "a segment that a gate names holds few queries",
            "Collect more queries for it, or gate a coarser segment.",
        ),
        "gate_needs_more": Kind(
            "warning",
            "a gate that even the ideal ranking does not pass, mostly for want of queries",
            "Collect the queries, lower the gate, or gate on: mean and take the risk.",
        ),
        "idle_gate": Kind(
            "warning",
            "two gates on one number, of which the weaker never decides",
            "Settle which of the two is meant, and keep that one.",
        ),
        "cutoff_beyond_corpus": Kind(
            "warning",
            "a cut-off as deep as the corpus: returning everything is enough",
            "Use a smaller cut-off, or the whole corpus.",
        ),
        "unknown_judged": Kind(
            "note",
            "judged as not relevant, and not in the corpus",
            "Nothing, unless the ids were meant to be of this corpus.",
        ),
        "one_grade": Kind(
            "note",
            "all relevant judgments have one grade: graded measures see no more than binary ones",
            "Nothing, or grade what answers only in part lower.",
        ),
        "mixed_grades_in_doc": Kind(
            "note",
            "parts of one document have different grades: the document has the highest",
            "Nothing, if that is what is meant.",
        ),
        "near_duplicate_items": Kind(
            "note",
            "items of nearly the same words",
            "Take out what is there twice, if the index need not hold it.",
        ),
        "empty_items": Kind(
            "note", "items without a text", "Take them out, or look at what lost their texts."
        ),
        "one_item_for_many": Kind(
            "note",
            "one item is relevant for a large share of the queries",
            "Add queries on other subjects, or read the result as one about this item.",
        ),
        "freshness_untested": Kind(
            "note",
            "no item is newer than any query's as_of: Fresh is 1 for every system",
            "Nothing, or add newer versions to the corpus.",
        ),
        "small_segment": Kind(
            "note",
            "a segment holds few queries, so that its interval is wide",
            "Do not read much into its numbers.",
        ),
        "low_ceiling": Kind(
            "note",
            "a measure that cannot reach 1 on this gold",
            "Read it against its ceiling, and set targets below that.",
        ),
    }
)


@dataclass(frozen=True, eq=False)
class Finding:
    """Something found: its kind (see ``KINDS``), how often, and some of the cases."""

    kind: str
    count: int
    what: str
    examples: tuple[Mapping[str, Any], ...] = ()

    @property
    def level(self) -> Level:
        """How bad it is."""
        return KINDS[self.kind].level

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {
            "kind": self.kind,
            "level": self.level,
            "count": self.count,
            "what": self.what,
            "do": KINDS[self.kind].do,
            "examples": [dict(example) for example in self.examples[:MOST_EXAMPLES]],
        }


def as_text(column: pl.Series) -> pl.Series:
    """Return a column of a user's file as text, whatever it holds; what is empty is null."""
    if column.dtype.is_nested() or column.dtype == pl.Object:
        values = [None if value is None else str(value) for value in column.to_list()]
        column = pl.Series(column.name, values, dtype=pl.String)
    return column.cast(pl.String).replace("", None)


@dataclass(frozen=True, slots=True)
class Fine:
    """What was looked for and not found, in one line."""

    what: str


@dataclass(frozen=True, slots=True)
class Unchecked:
    """What could not be looked for, and what that would need."""

    what: str


def many(n: int, one: str, more: str | None = None) -> str:
    """Return a number with its noun.

    >>> many(1, "query", "queries"), many(1200, "item")
    ('1 query', '1,200 items')
    """
    return f"{n:,} {one if n == 1 else more or one + 's'}"


def rows_of(frame: pl.DataFrame, **names: str) -> list[dict[str, Any]]:
    """Return the first rows as examples, under these names."""
    return (
        frame.head(MOST_EXAMPLES)
        .select(pl.col(own).alias(name) for name, own in names.items())
        .to_dicts()
    )


Results = Iterator[Finding | Fine | Unchecked]


@dataclass(frozen=True, eq=False)
class EvalSet:
    """An eval set to be checked. The queries file, where there is one, says which queries count.

    ``attributes`` are the queries with everything that can make segments.
    """

    gold: Gold
    queries: Queries | None
    corpus: Corpus | None
    conventions: Conventions
    attributes: Queries | None = None

    @cached_property
    def prepared(self) -> Prepared:
        """The gold as runs would meet it; refuses what could not be scored either."""
        return prepare(self.gold, self.conventions, queries=self.queries, corpus=self.corpus)

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
        """Those of them that are relevant."""
        return self.judged.filter(pl.col("grade") >= self.conventions.rel)

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text of each query, where there is a queries file."""
        if self.queries is None:
            return {}
        columns = (self.queries.frame[name].to_list() for name in ("query_id", "text"))
        return dict(zip(*columns, strict=True))

    def example(self, query_id: str, **more: Any) -> dict[str, Any]:
        """Return a query as an example, with its text if that is known."""
        text = {"text": self.texts[query_id]} if query_id in self.texts else {}
        return {"query": query_id, **text, **more}

    @cached_property
    def answers(self) -> dict[str, dict[str, float]]:
        """The relevant gold of each query that has any, with its grades, by item."""
        spelled = pl.col("item_id")
        if "start" in self.relevant.columns:
            spelled = pl.format("{}:{}-{}", "item_id", "start", "end")
        found: dict[str, dict[str, float]] = {}
        rows = self.relevant.select("query_id", spelled.alias("item"), "grade").sort("item")
        for query_id, item, grade in rows.iter_rows():
            found.setdefault(query_id, {})[item] = grade
        return found
