"""Why queries miss: the class of each miss with its evidence, and where measures lose.

``failures`` analyses runs; ``classify`` and ``waterfall`` give its two results for one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import polars as pl

from karat.analysis import Analysis, first_rows, stage_runs, system_blocks
from karat.analysis.failures.case import Case
from karat.analysis.failures.classes import (
    BEYOND,
    CLASSES,
    FIVE,
    MEANINGS,
    NEED_DEPTH,
    NOT_COUNTED,
    classes_of,
    evidence_of,
    unchecked,
)
from karat.analysis.failures.waterfall import PARTS, short_lists_lines, waterfall, waterfall_section
from karat.data.columns import join_spans
from karat.data.tables import Queries
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.report_text import conventions_lines, counts_lines
from karat.evaluation.stages import Staged, Thresholds, thresholds_from, thresholds_of
from karat.evaluation.top_lists import MOST, ranked_of
from karat.measure.names import parse_measures
from karat.measure.prepare import Prepared
from karat.pages.charts import waterfall_chart
from karat.pages.formatting import NOTHING, label, percent, plural
from karat.pages.page import Chart, Page, Section, TableColumns, table

__all__ = [
    "CLASSES",
    "FIVE",
    "MEANINGS",
    "NOT_COUNTED",
    "PARTS",
    "Failure",
    "Failures",
    "QueryFailures",
    "classify",
    "failures",
    "waterfall",
    "waterfall_section",
]

Document = Mapping[str, Any]

# How many misses a document lists with their gold, and how many of them a page shows.
LISTED, SHOWN = 1_000, 20


class Failures(Analysis):
    """Why the queries of one or several systems miss, and where their measures lose."""

    def to_frame(self) -> pl.DataFrame:
        """Return one row per miss: system, query, class and reason."""
        columns = ("query_id", "class", "because")
        rows = [
            {"system": system["name"], **{name: miss[name] for name in columns}}
            for system in self.body["systems"]
            for miss in system["failures"]["queries"]
        ]
        return pl.DataFrame(rows, schema=dict.fromkeys(("system", *columns), pl.String))


def failures(
    evaluation: Evaluation,
    *runs: Any,
    measures: Sequence[str] | None = None,
    thresholds: Thresholds | Sequence[str] = (),
) -> Failures:
    """Classify the queries without gold at the top, and break down the losses of measures.

    The loss of each of ``measures`` from its ceiling is broken down by cause: nDCG and R at the
    rank where a query counts as missed unless named.

    >>> evaluation = Evaluation({"q1": ["a"], "q2": ["b"]})
    >>> result = failures(evaluation, {"q1": ["a", "x"], "q2": ["x", "y"]})
    >>> result.to_frame().rows()
    [('run', 'q2', 'complete_miss', 'not in the top 2, where the longest list ends')]
    """
    conventions = evaluation.prepared.conventions
    thresholds = thresholds_from(thresholds, conventions.profile)
    names = measures or [f"nDCG@{thresholds.miss}", f"R@{thresholds.miss}"]
    lost = parse_measures(names, conventions=conventions)
    staged_runs = stage_runs(evaluation, runs, lost, keep=thresholds.miss, of_stages=[])
    systems = [
        {
            "name": name,
            "failures": classify(staged, evaluation.queries, thresholds=thresholds).to_dict(),
            "waterfalls": [waterfall(staged, measure).to_dict() for measure in lost],
        }
        for name, staged in staged_runs.systems.items()
    ]
    body = {"lines": thresholds.to_dict(), "systems": systems}
    return staged_runs.result(Failures, body, _failures_page)


@dataclass(frozen=True, slots=True)
class Failure:
    """A query that misses: its row in the score table, its class, and the evidence."""

    query_id: str
    row: int
    kind: str
    because: str
    evidence: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class QueryFailures:
    """Every query of a run that misses, in the order of the score table.

    ``assessed`` counts the queries whose gold is not empty. ``dominant`` are the items that
    crowd out the gold of many queries, with the number of these. ``unchecked`` says what is
    needed for each class that could not be checked. ``miss_at`` is the rank up to which gold is
    looked for; where lists were cut above the threshold, it is where they end, ``ends_at``.
    ``gold`` holds what the first ``LISTED`` misses should have found, best grade first.
    """

    queries: tuple[Failure, ...]
    assessed: int
    thresholds: Thresholds
    dominant: tuple[tuple[str, int], ...] = ()
    unchecked: Mapping[str, str] = field(default_factory=dict)
    miss_at: int = 0
    ends_at: int | None = None
    gold: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def misses(self) -> int:
        """The number of queries that miss."""
        return len(self.queries)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """The number of queries in each class; ``beyond_depth`` only if there are any."""
        kinds = [query.kind for query in self.queries]
        counts = {name: kinds.count(name) for name in CLASSES}
        return {name: n for name, n in counts.items() if n or name != BEYOND}

    @cached_property
    def by_query(self) -> Mapping[str, Failure]:
        """Each miss by its query's id."""
        return {query.query_id: query for query in self.queries}

    def to_dict(self, *, queries: bool = True) -> dict[str, Any]:
        """Return the failures as plain data, with or without every query."""
        classes = countable(self.counts)
        document: dict[str, Any] = {
            "assessed": self.assessed,
            "misses": self.misses,
            "miss_at": self.miss_at,
            "ends_at": self.ends_at,
            "classes": classes,
            "failures_by_category": {
                category: None
                if any(classes[name] is None for name in names)
                else sum(self.counts[name] for name in names)
                for category, names in FIVE.items()
            },
            "not_counted": {name: n for name, n in self.counts.items() if name in NOT_COUNTED},
            "missed": [
                {"query_id": miss.query_id, "class": miss.kind, "gold": self.gold[miss.query_id]}
                for miss in self.queries[:LISTED]
            ],
            "missed_left_out": max(self.misses - LISTED, 0),
            "dominant": [{"item_id": item, "queries": n} for item, n in self.dominant],
            "unchecked": dict(self.unchecked),
            "lines": self.thresholds.to_dict(),
        }
        if queries:
            document["queries"] = [
                {
                    "query_id": miss.query_id,
                    "class": miss.kind,
                    "because": miss.because,
                    "evidence": dict(miss.evidence),
                }
                for miss in self.queries
            ]
        return document


def countable(counts: Mapping[str, int]) -> dict[str, int | None]:
    """Return the counts by class, None for those that longer lists could change.

    >>> countable({"beyond_depth": 3, "low_rank": 0, "cut_by_k": 1})
    {'beyond_depth': 3, 'low_rank': None, 'cut_by_k': 1}
    """
    cut = bool(counts.get(BEYOND))
    return {name: None if cut and name in NEED_DEPTH else n for name, n in counts.items()}


def classify(
    staged: Staged, queries: Queries | None, *, thresholds: Thresholds | None = None
) -> QueryFailures:
    """Classify each query without gold in the top ``thresholds.miss``.

    The run must have been scored with ``keep`` at least ``thresholds.miss`` to check all classes.
    ``queries`` brings the right source and the least similarity of each query. Where the
    final lists were cut before that rank, queries without gold up to there miss. The thresholds
    are those of the profile unless given.
    """
    thresholds = thresholds or thresholds_of(staged.final.conventions.profile)
    ranked_of(staged.final)
    ends_at = staged.ends_above(thresholds.miss)
    miss_at = thresholds.miss if ends_at is None else ends_at
    case = Case(staged, queries, replace(thresholds, miss=miss_at))
    classes = classes_of(case)
    judged_by = gold_names(staged.gold, case.judgment[[row for row, *_ in classes]])
    misses = []
    for (row, kind, explain), gold in zip(classes, judged_by, strict=True):
        evidence, because = evidence_of(case, kind, explain, row, gold)
        misses.append(Failure(staged.gold.query_ids[row], row, kind, because, evidence))
    of_listed = [case.relevant_rows(miss.row) for miss in misses[:LISTED]]
    judgments = np.fromiter(chain.from_iterable(of_listed), dtype=np.int64)
    names = iter(gold_names(staged.gold, judgments))
    items = () if case.dominance is None else case.dominance.items.head(MOST).rows()
    return QueryFailures(
        tuple(misses),
        assessed=int(case.assessed.sum()),
        thresholds=thresholds,
        dominant=tuple((item, n) for item, n in items),
        unchecked=unchecked(case),
        miss_at=miss_at,
        ends_at=ends_at,
        gold={
            miss.query_id: list(islice(names, len(rows)))
            for miss, rows in zip(misses, of_listed, strict=False)
        },
    )


def gold_names(gold: Prepared, judgments: Any) -> list[str]:
    """Return the judged ids, for a span with its place."""
    return join_spans(gold.rows[judgments])["item_id"].to_list()


def _failures_page(results: Document) -> Page:
    systems = results["systems"]
    return Page(
        f"Why queries miss: {', '.join(label(system['name']) for system in systems)}",
        [f"{label(system['name'])}: {missed_line(system['failures'])}" for system in systems],
        [*system_blocks(systems, system_sections), *waterfall_charts(systems)],
        [*counts_lines(results), *conventions_lines(results)],
    )


def system_sections(system: Document) -> list[Section]:
    """Return why the queries of a system miss, and where its measures lose."""
    return [
        *failure_sections(system["failures"]),
        *missed_sections(system["failures"]),
        *map(waterfall_section, system["waterfalls"]),
    ]


def waterfall_charts(systems: Sequence[Document]) -> list[Chart]:
    """Return a chart for each waterfall of each system."""
    return [
        Chart(f"Losses of {fall['measure']}", waterfall_chart({**fall, "system": system["name"]}))
        for system in systems
        for fall in system["waterfalls"]
        if fall["n"]
    ]


def missed_line(document: Document) -> str:
    """Return how many queries miss, in words."""
    if not document["assessed"]:
        return "No query has gold."
    queries = plural(document["assessed"], "query", "queries")
    return f"{document['misses']:,} of {queries} miss: no gold in the top {document['miss_at']}"


def failure_sections(document: Document) -> list[Section]:
    """Return how many queries miss, by class, and the items that crowd out gold."""
    misses, assessed = document["misses"], document["assessed"]
    if not misses:
        top = f"have gold in the top {document['miss_at']}"
        text = f"All {plural(assessed, 'query', 'queries')} {top}."
        return [Section("Misses", lines=[text if assessed else "No query has gold."])]
    rows = [
        {
            "class": name,
            "queries": count,
            "share": NOTHING if count is None else percent(count / misses),
            "what": MEANINGS[name],
        }
        for name, count in document["classes"].items()
        if count != 0
    ]
    lines = short_lists_lines(document, document["lines"]["miss"])
    lines += [f"not checked: {name} {label(why)}" for name, why in document["unchecked"].items()]
    grid = table(rows, {name: name for name in ("class", "queries", "share", "what")})
    sections = [Section(missed_line(document), grid, lines)]
    title, dominant = "Items ranked above the gold of many queries", document["dominant"]
    columns = {"item": "item_id", "queries": "queries"}
    return sections + first_rows(title, dominant, columns, most=MOST)


def missed_sections(document: Document) -> list[Section]:
    """Return the first queries that miss, and the gold that each should have found."""
    columns: TableColumns = {
        "query": "query_id",
        "class": "class",
        "its gold": lambda miss: ", ".join(miss["gold"]),
    }
    title = f"Queries without gold in the top {document['miss_at']}, and their gold"
    missed, misses = document["missed"], document["misses"]
    return first_rows(title, missed, columns, most=SHOWN, total=misses)
