"""Stored evaluations compared: their report document, and the view of single queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from karat.analysis.failures import CLASSES
from karat.data.tables import Queries
from karat.errors import InputError, UsageError
from karat.evaluation.comparison import compare_scores
from karat.evaluation.segments import CROSS, NONE, By
from karat.evaluation.systems import ComparedSystem, check_comparable
from karat.evaluation.verdict import Primary, Rule, primary_of
from karat.measure.scores import Scores
from karat.reports.document import Report, System
from karat.reports.html.view import STATUSES, items_in
from karat.store import RestoredEvaluation, SavedEvaluation
from karat.store.differences import reorder_like, staleness_warnings, with_common_measures

Document = Mapping[str, Any]
# A part of a report's view, unpacked: by the report's id and the part's name; None where the
# report was saved without.
Parts = Callable[[int, str], Any]

# Keys of a system's own report that a comparison takes over.
_DIAGNOSTICS = (
    "segments",
    "bounds",
    "sweep",
    "failures",
    "waterfalls",
    "latency",
    "partial",
    "beyond_log",
    "meta",
)
_WITHOUT_LISTS = (
    "bounds need the lists: karat compare reports them from the runs, and a comparison of a whole"
    " report under its own rule shows those that were saved"
)
# Inputs that a comparison keeps if all reports share them.
_COMMON = ("as_of_range", "dataset_version", "code_version", "config_digest")


@dataclass(frozen=True, eq=False)
class StoredSystem:
    """One evaluation of a comparison, with the view of the report that it was saved in.

    ``name`` is its name in the comparison. ``scores`` have the baseline's order of queries, and
    the measures that all systems have.
    """

    name: str
    stored: RestoredEvaluation
    scores: Scores
    parts: Parts

    @property
    def evaluation(self) -> SavedEvaluation:
        """Return what was saved."""
        return self.stored.evaluation

    @cached_property
    def place(self) -> int | None:
        """Return its index in its own report."""
        names = [system["name"] for system in self.stored.report.get("systems", ())]
        name = self.evaluation.system
        return names.index(name) if names.count(name) == 1 else None

    @cached_property
    def head(self) -> Document:
        """Return the head of its view; empty if no single queries were saved."""
        return {} if self.place is None else self._part("head") or {}

    @cached_property
    def rows(self) -> Document:
        """Return the rows of its view; empty if no single queries were saved."""
        return self._part("rows") or {} if self.head else {}

    def column(self, values: Sequence[Any]) -> list[Any]:
        """Return a column of its rows in the comparison's order of queries."""
        return [values[at] for at in self._order]

    def of_head(self, key: str) -> Any:
        """Return what the head of its view says about this system."""
        return self.head[key][self.place]

    def of_rows(self, key: str) -> list[Any]:
        """Return a column of its rows that is about this system."""
        return self.column(self.rows[key][self.place])

    def query(self, index: int) -> tuple[Document, Document]:
        """Return one query in its own view, and the texts beside it."""
        at, size = self._order[index], self.head["block"]
        block = self._block(at // size)
        return block["queries"][at % size], block["texts"]

    def tops(self) -> list[list[str]]:
        """Return the top items of its list for each query; reads every block once."""
        queries, size, k = (self.head[key] for key in ("queries", "block", "k"))
        return self.column(
            [
                [hit[0] for hit in query["systems"][self.place]["hits"][:k]]
                for number in range(-(-queries // size))
                for query in self._block(number)["queries"]
            ]
        )

    def report_system(self) -> System:
        """Return it as a system of the comparison's report."""
        summaries = {
            str(name): self.evaluation.summaries[str(name)] for name in self.scores.measures
        }
        saved = {} if self.place is None else self.stored.report["systems"][self.place]
        diagnostics = {key: value for key, value in saved.items() if key in _DIAGNOSTICS}
        return System(self.name, self.scores, summaries, diagnostics=diagnostics)

    @cached_property
    def _order(self) -> list[int]:
        """Return the row of each query of the comparison in its own view."""
        places = {query_id: at for at, query_id in enumerate(self.rows["query_id"])}
        return [places[query_id] for query_id in self.scores.query_ids]

    def _block(self, number: int) -> Document:
        block: Document | None = self._part(f"block-{number}")
        if block is None:
            where = f"report {self.evaluation.report_id}"
            raise InputError("is damaged: some of its queries are gone", where=where)
        return block

    def _part(self, name: str) -> Any:
        return self.parts(self.evaluation.report_id, name)


@dataclass(frozen=True, eq=False)
class StoredComparison:
    """Stored evaluations against the first of them: the report, and the view of single queries.

    Single queries are shown if all evaluations were saved with them.
    """

    systems: Sequence[StoredSystem]
    rule: Rule
    warnings: Sequence[str]

    @cached_property
    def document(self) -> dict[str, Any]:
        """Return the report document, as ``karat compare`` writes it.

        The systems of one report under its own rule are what it says of them. Others are compared
        by their values: ranges over unjudged items need the lists themselves.
        """
        if (saved := self._saved_together()) is not None:
            return saved
        first = self.systems[0]
        texts = first.column(first.rows["text"]) if first.rows else []
        queries, by = _grouped(first.scores, self.segments, texts)
        reports = [system.stored.report for system in self.systems]
        gated = _only_gated(reports) - {str(self.rule.primary)}
        measures = first.scores.measures
        compared = tuple(measure for measure in measures if str(measure) not in gated) or measures
        systems = [
            ComparedSystem(system.name, (replace(system.scores, measures=compared),))
            for system in self.systems
        ]
        comparisons = compare_scores(systems, self.rule, queries=queries, by=by)
        # How the deciding measure was chosen is what the reports say, if they agree on it.
        primary = _agreed([report["primary"] for report in reports if report.get("primary")])
        if primary is not None and primary["measure"] == comparisons.primary.measure:
            comparisons = replace(comparisons, primary=Primary(**primary))
        inputs = [report.get("inputs") or {} for report in reports]
        common: dict[str, Any] = {key: _agreed([of.get(key) for of in inputs]) for key in _COMMON}
        report = Report(
            tuple(system.report_system() for system in self.systems),
            gold=first.evaluation.gold,
            queries=first.evaluation.queries,
            corpus=first.evaluation.corpus,
            comparisons=comparisons,
            bounds_left_out=_WITHOUT_LISTS if any(map(_has_ranges, reports)) else None,
            **common,
        )
        return report.to_dict()

    def _saved_together(self) -> dict[str, Any] | None:
        """Return the document that all systems were saved with, if it compares just these."""
        first = self.systems[0]
        saved = first.stored.report
        if any(
            system.evaluation.report_id != first.evaluation.report_id for system in self.systems
        ):
            return None
        names = [system.evaluation.system for system in self.systems]
        alike = names == [system["name"] for system in saved["systems"]]
        rule = saved.get("rule")
        if not alike or rule is None or saved.get("replicates"):
            return None
        conventions = first.scores.conventions
        primary = primary_of(self.rule, first.scores.measures, conventions).measure
        # Of this rule only the deciding measure may be left open.
        under = replace(self.rule, primary=primary, no_regression=rule["no_regression"])
        return dict(saved) if asdict(under) == rule else None

    @cached_property
    def head(self) -> dict[str, Any] | None:
        """Return the head of the view; None if a system was saved without its queries."""
        if not all(system.rows for system in self.systems):
            return None
        scores = self.systems[0].scores
        notes = dict.fromkeys(filter(None, (system.head.get("texts") for system in self.systems)))
        return {
            **self.systems[0].head,
            "systems": [system.name for system in self.systems],
            "baseline": 0,
            "measures": [
                {"name": str(measure), "better": measure.definition.better}
                for measure in scores.measures
            ],
            "primary": self.document["rule"]["primary"],
            "queries": len(scores.query_ids),
            "classes": list(CLASSES),
            "statuses": list(STATUSES),
            "columns": list(self.segments),
            "unjudged": [system.of_head("unjudged") for system in self.systems],
            "commands": [system.of_head("commands") for system in self.systems],
            "texts": "; ".join(notes) or None,
        }

    @cached_property
    def rows(self) -> dict[str, Any]:
        """Return the rows; values and statuses are those of the scores."""
        first = self.systems[0]
        scores = [system.scores for system in self.systems]
        tops, *other_tops = (system.tops() for system in self.systems)
        return {
            "query_id": scores[0].query_ids,
            "text": first.column(first.rows["text"]),
            "gold": first.column(first.rows["gold"]),
            "status": [list(map(STATUSES.index, run.status.tolist())) for run in scores],
            "values": {
                name: [run.table[name].to_list() for run in scores]
                for name in map(str, scores[0].measures)
            },
            "rank": [system.of_rows("rank") for system in self.systems],
            "class": [_classes(system) for system in self.systems],
            "unjudged": [system.of_rows("unjudged") for system in self.systems],
            "different": [
                int(any(other[at] != top for other in other_tops)) for at, top in enumerate(tops)
            ],
            "segments": self.segments,
        }

    @cached_property
    def segments(self) -> dict[str, Any]:
        """Return the segments of each query, for every column of any system."""
        segments: dict[str, Any] = {}
        for system in self.systems:
            for name, segment in system.rows.get("segments", {}).items():
                of = system.column(segment["of"])
                segments.setdefault(name, {"names": segment["names"], "of": of})
        return segments

    def query(self, index: int) -> dict[str, Any]:
        """Return one query in full: every system's list beside the gold, with texts."""
        details = [system.query(index) for system in self.systems]
        queries, texts = [query for query, _ in details], dict[str, Any]()
        for _, of_system in reversed(details):
            texts |= of_system
        places = [system.place for system in self.systems]
        ranks = [
            {item["item_id"]: item["ranks"][place] for item in query["gold"]}
            for query, place in zip(queries, places, strict=True)
        ]
        detail = {
            **queries[0],
            "index": index,
            "gold": [
                {**item, "ranks": [known.get(item["item_id"], {}) for known in ranks]}
                for item in queries[0]["gold"]
            ],
            "systems": [
                query["systems"][place] for query, place in zip(queries, places, strict=True)
            ],
            "bm25": next((query["bm25"] for query in queries if query["bm25"]), None),
        }
        return with_texts(detail, texts)


def compare_stored(
    stored: Sequence[RestoredEvaluation],
    parts: Parts = lambda report_id, name: None,
    *,
    primary: str | None = None,
    margin: float | None = None,
) -> StoredComparison:
    """Compare stored evaluations with the first one; refuse those scored in another way.

    The rule is that of their reports if they agree, with ``primary`` and ``margin`` if given.
    """
    if len(stored) < 2:
        raise UsageError("a comparison needs at least two evaluations: a baseline and another")
    count = Counter(evaluation.evaluation.system for evaluation in stored)
    systems = []
    for restored in stored:
        saved = restored.evaluation
        name = saved.system if count[saved.system] == 1 else f"{saved.system}@{saved.id}"
        scores = replace(reorder_like(restored.scores, stored[0].scores), system=name)
        systems.append(StoredSystem(name, restored, scores, parts))
    warnings = [*_without_measures(systems), *_stale(systems)]
    first, *others = [system.scores for system in systems]
    systems = [
        replace(system, scores=scores)
        for system, scores in zip(systems, with_common_measures(first, others), strict=True)
    ]
    check_comparable([ComparedSystem(system.name, (system.scores,)) for system in systems])
    warnings += [
        f"{system.name} ({system.evaluation.id}) was saved without its lists: only values are"
        " compared, no single queries are shown"
        for system in systems
        if not system.rows
    ]
    settings = _agreed(
        [restored.report["rule"] for restored in stored if restored.report.get("rule")]
    )
    rule = Rule() if settings is None else replace(Rule(**settings), pairs="baseline")
    all_have_primary = all(rule.primary in restored.scores.columns for restored in stored)
    deciding = primary or (rule.primary if all_have_primary else None)
    margin = rule.margin if margin is None else margin
    return StoredComparison(systems, replace(rule, primary=deciding, margin=margin), warnings)


def with_texts(detail: Document, texts: Document) -> dict[str, Any]:
    """Return the details of a query with the texts of its items."""
    return {**detail, "texts": {item: texts[item] for item in items_in(detail) if item in texts}}


def _agreed(values: Sequence[Any]) -> Any:
    """Return what all reports say; None if they differ or say nothing."""
    return values[0] if values and all(value == values[0] for value in values) else None


def _only_gated(documents: Sequence[Document]) -> set[str]:
    """Return the measures that only gates use, which are not compared."""
    gated: set[str] = set()
    for document in documents:
        compared = {row["measure"] for row in document.get("comparisons", ())}
        if compared:
            gated |= {gate["measure"] for gate in document.get("gates", ())} - compared
    return gated


def _without_measures(systems: Sequence[StoredSystem]) -> list[str]:
    """Return a sentence for each measure that some evaluations lack."""
    sentences = []
    for measure in dict.fromkeys(m for system in systems for m in system.scores.measures):
        lacking = [system.name for system in systems if measure not in system.scores.measures]
        if lacking:
            sentences.append(f"{measure} is left out: {', '.join(lacking)} did not measure it")
    return sentences


def _stale(systems: Sequence[StoredSystem]) -> list[str]:
    """Return what changed between saving the baseline and the others."""
    first = systems[0]
    sentences = []
    for other in systems[1:]:
        now = other.evaluation
        warnings = staleness_warnings(
            replace(first.stored, scores=first.scores),
            gold=now.gold,
            queries=now.queries,
            corpus=now.corpus,
            runs=[other.scores],
            version=now.version,
        )
        sentences += [f"{first.name} against {other.name}: {sentence}" for sentence in warnings]
    return sentences


def _has_ranges(report: Document) -> bool:
    """Return whether a saved report has ranges over unjudged items."""
    return any(row.get("bounds") for row in report.get("comparisons", ()))


def _grouped(
    scores: Scores, segments: Document, texts: Sequence[str]
) -> tuple[Queries | None, list[By]]:
    """Return the queries with texts and segment columns, and the columns to group by."""
    columns = [
        pl.Series(
            name,
            # The values that each query has in this column.
            [
                [segment["names"][at] for at in places if segment["names"][at] != NONE]
                for places in segment["of"]
            ],
            dtype=pl.List(pl.String),
        )
        for name, segment in segments.items()
        if CROSS not in name
    ]
    names = {column.name for column in columns}
    by = [grouping for grouping in map(By.parse, segments) if names.issuperset(grouping.columns)]
    if not by and not any(texts):
        return None, []
    ids = scores.table["query_id"]
    text = pl.Series("text", texts or [""] * len(ids), dtype=pl.String)
    return Queries(pl.DataFrame([ids, text, *columns])), by


def _classes(system: StoredSystem) -> list[int]:
    """Return classes by today's numbers; a saved view may have used others."""
    names = system.head["classes"]
    numbers = {at: CLASSES.index(name) for at, name in enumerate(names) if name in CLASSES}
    return [numbers.get(at, -1) for at in system.of_rows("class")]
