"""Stored evaluations compared: their report document, and the view of single queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from karat.analysis.failures import CLASSES
from karat.data.tables import Queries
from karat.errors import InputError, UsageError
from karat.evaluation.comparison import compare_scores
from karat.evaluation.segments import CROSS, NONE, By
from karat.evaluation.systems import ComparedSystem, differences
from karat.evaluation.verdict import Primary, Rule
from karat.measure.scores import Scores
from karat.reports.document import Report, System
from karat.reports.html.queries import STATUSES
from karat.store import (
    RestoredEvaluation,
    SavedEvaluation,
    reorder_like,
    staleness_warnings,
    with_common_measures,
)

Document = Mapping[str, Any]

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
# Inputs that a comparison keeps if all reports share them.
_COMMON = ("as_of_range", "dataset_version", "code_version", "config_digest")


@dataclass(frozen=True, eq=False)
class Entry:
    """One evaluation of a comparison: its name there, and its index in its own report.

    ``place`` is None where the report does not tell which of its systems it is.
    """

    name: str
    stored: RestoredEvaluation
    scores: Scores
    place: int | None

    @property
    def title(self) -> str:
        """Its name, and its id if the name does not hold it."""
        id = self.evaluation.id
        return self.name if self.name.endswith(f"@{id}") else f"{self.name} ({id})"

    @property
    def evaluation(self) -> SavedEvaluation:
        """What was saved."""
        return self.stored.evaluation


def align(stored: Sequence[RestoredEvaluation]) -> tuple[list[Entry], list[str]]:
    """Align stored evaluations with the first one; refuse those scored in another way.

    Returns entries with the same measures and the same queries in the same order, the baseline
    first, and warnings.
    """
    if len(stored) < 2:
        raise UsageError("a comparison needs at least two evaluations: a baseline and another")
    entries = _entries(stored)
    warnings = [*_left_out(entries), *_stale(entries)]
    common = with_common_measures(entries[0].scores, [entry.scores for entry in entries[1:]])
    entries = [replace(entry, scores=own) for entry, own in zip(entries, common, strict=True)]
    first, *others = entries
    refusals = [
        f"{other.title} with {first.title}: {', '.join(different)}"
        for other in others
        if (different := differences(first.scores, other.scores))
    ]
    if refusals:
        raise UsageError(
            f"cannot compare {'; nor '.join(refusals)}; score them alike and save them"
        )
    return entries, warnings


def rule_of(
    stored: Sequence[RestoredEvaluation], *, primary: str | None = None, margin: float | None = None
) -> Rule:
    """Return the rule that decides: as given, else that of the reports if they agree."""
    rules = [evaluation.report["rule"] for evaluation in stored if evaluation.report.get("rule")]
    agreed = bool(rules) and all(rule == rules[0] for rule in rules)
    rule = replace(Rule(**rules[0]), pairs="baseline") if agreed else Rule()
    known = all(
        rule.primary in [str(m) for m in evaluation.scores.measures] for evaluation in stored
    )
    deciding = primary or (rule.primary if known else None)
    return replace(rule, primary=deciding, margin=rule.margin if margin is None else margin)


def compare_stored(
    entries: Sequence[Entry], rule: Rule, *, segments: Document | None = None
) -> dict[str, Any]:
    """Return the report document on the comparison of aligned evaluations.

    ``segments`` maps each column to the segments of queries.
    """
    first = entries[0]
    queries, by = _grouped(first.scores, segments or {})
    reports = [entry.stored.report for entry in entries]
    left_out = _only_gated(reports) - {str(rule.primary)}
    measures = first.scores.measures
    compared = tuple(measure for measure in measures if str(measure) not in left_out) or measures
    systems = [
        ComparedSystem(entry.name, (replace(entry.scores, measures=compared),)) for entry in entries
    ]
    comparisons = compare_scores(systems, rule, queries=queries, by=by)
    # How the deciding measure was chosen is what the reports say, if they agree on it.
    primaries = [report["primary"] for report in reports if report.get("primary")]
    agreed = bool(primaries) and all(primary == primaries[0] for primary in primaries)
    if agreed and primaries[0]["measure"] == comparisons.primary.measure:
        comparisons = replace(comparisons, primary=Primary(**primaries[0]))
    report = Report(
        tuple(map(_system, entries)),
        gold=first.evaluation.gold,
        queries=first.evaluation.queries,
        corpus=first.evaluation.corpus,
        comparisons=comparisons,
        **_in_common(reports),
    )
    return report.to_dict()


def place_in(document: Document, evaluation: SavedEvaluation) -> int | None:
    """Return the index of an evaluation in its report: by name, else by the run's digest."""
    names = [system.get("name") for system in document.get("systems", ())]
    if names.count(evaluation.system) == 1:
        return names.index(evaluation.system)
    runs = (document.get("inputs") or {}).get("runs") or ()
    digests = [run.get("sha256") for run in runs]
    digest = evaluation.run.sha256
    if digest is not None and digests.count(digest) == 1 and len(digests) == len(names):
        return digests.index(digest)
    return None


def _entries(stored: Sequence[RestoredEvaluation]) -> list[Entry]:
    """Return each evaluation aligned with the first one's queries; equal names get their id."""
    ids = [evaluation.evaluation.id for evaluation in stored]
    twice = next((id for id in ids if ids.count(id) > 1), None)
    if twice is not None:
        raise UsageError(f"evaluation {twice} is named twice; compare it with another")
    count = Counter(evaluation.evaluation.system for evaluation in stored)
    entries = []
    for restored in stored:
        saved = restored.evaluation
        name = saved.system if count[saved.system] == 1 else f"{saved.system}@{saved.id}"
        scores = replace(reorder_like(restored.scores, stored[0].scores), system=name)
        entries.append(Entry(name, restored, scores, place_in(restored.report, saved)))
    return entries


def _only_gated(documents: Sequence[Document]) -> set[str]:
    """Return the measures that only gates use, which are not compared."""
    gated: set[str] = set()
    for document in documents:
        compared = {row["measure"] for row in document.get("comparisons", ())}
        if compared:
            gated |= {gate["measure"] for gate in document.get("gates", ())} - compared
    return gated


def _left_out(entries: Sequence[Entry]) -> list[str]:
    """Return a sentence for each measure that some evaluations lack."""
    known = dict.fromkeys(str(measure) for entry in entries for measure in entry.scores.measures)
    sentences = []
    for measure in known:
        lacking = [
            entry.name for entry in entries if measure not in map(str, entry.scores.measures)
        ]
        if lacking:
            sentences.append(f"{measure} is left out: {', '.join(lacking)} did not measure it")
    return sentences


def _stale(entries: Sequence[Entry]) -> list[str]:
    """Return what changed between saving the baseline and the others."""
    first = entries[0]
    sentences = []
    for other in entries[1:]:
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


def _system(entry: Entry) -> System:
    names = [str(measure) for measure in entry.scores.measures]
    summaries = {name: entry.evaluation.summaries[name] for name in names}
    saved = {} if entry.place is None else entry.stored.report["systems"][entry.place]
    diagnostics = {key: saved[key] for key in _DIAGNOSTICS if key in saved}
    return System(entry.name, entry.scores, summaries, diagnostics=diagnostics)


def _in_common(reports: Sequence[Document]) -> dict[str, Any]:
    """Return the inputs that all reports share."""
    first, *others = (report.get("inputs") or {} for report in reports)
    common = {
        key: first[key]
        for key in _COMMON
        if key in first and all(inputs.get(key) == first[key] for inputs in others)
    }
    if "as_of_range" in common:
        common["as_of_range"] = tuple(common["as_of_range"])
    return common


def _grouped(scores: Scores, segments: Document) -> tuple[Queries | None, list[By]]:
    """Return the queries with their segment columns, and the columns to group by."""
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
    if not by:
        return None, []
    ids = scores.table["query_id"]
    return Queries(pl.DataFrame([ids, pl.Series("text", [""] * len(ids)), *columns])), by


# A part of a report's view, unpacked: by the report's id and its own name; None where the
# report was saved without.
Parts = Callable[[int, str], Any]


@dataclass(frozen=True, eq=False)
class MergedSystem:
    """One system of a comparison, with the view of the report that it was saved in."""

    entry: Entry
    parts: Parts

    @cached_property
    def head(self) -> Document:
        """The head of its view; empty if no single queries were saved."""
        return {} if self.entry.place is None else self.part("head") or {}

    @cached_property
    def rows(self) -> Document:
        """The rows of its view; empty if no single queries were saved."""
        return self.part("rows") or {} if self.head else {}

    @cached_property
    def order(self) -> list[int]:
        """The row of each query of the comparison in its own view."""
        places = {query_id: at for at, query_id in enumerate(self.rows["query_id"])}
        return [places[query_id] for query_id in self.entry.scores.table["query_id"].to_list()]

    def part(self, name: str) -> Any:
        """Return a part of the view of its report."""
        return self.parts(self.entry.evaluation.report_id, name)

    def column(self, name: str, otherwise: Any) -> list[Any]:
        """Return a column of its rows, for the queries of the comparison."""
        if not self.rows:
            return [otherwise] * self.entry.scores.table.height
        values = self.rows[name][self.entry.place]
        return [values[at] for at in self.order]

    def detail(self, index: int) -> tuple[Document, Document] | None:
        """Return one query in its own view, and the texts beside it."""
        if not self.head:
            return None
        at, size = self.order[index], self.head["block"]
        block = self.block(at // size)
        return block["queries"][at % size], block["texts"]

    def block(self, number: int) -> Document:
        """Return a block of queries; InputError if it is missing."""
        block: Document | None = self.part(f"block-{number}")
        if block is None:
            where = f"report {self.entry.evaluation.report_id}"
            raise InputError("is damaged: some of its queries are gone", where=where)
        return block

    def tops(self) -> list[list[str]]:
        """Return the top items of its list for each query; reads every block once."""
        queries, size, k = (self.head[key] for key in ("queries", "block", "k"))
        blocks = map(self.block, range(-(-queries // size)))
        tops = [
            [hit[0] for hit in query["systems"][self.entry.place]["hits"][:k]]
            for block in blocks
            for query in block["queries"]
        ]
        return [tops[at] for at in self.order]


@dataclass(frozen=True, eq=False)
class MergedView:
    """The view of a comparison: head, rows, and single queries."""

    sides: Sequence[MergedSystem]

    @property
    def entries(self) -> list[Entry]:
        """The compared evaluations, the baseline first."""
        return [side.entry for side in self.sides]

    @cached_property
    def known(self) -> list[MergedSystem]:
        """The sides that were saved with single queries."""
        return [side for side in self.sides if side.rows]

    def head(self, primary: str) -> dict[str, Any] | None:
        """Return the head; None if no side was saved with its queries."""
        if not self.known:
            return None
        measures = self.sides[0].entry.scores.measures
        return {
            **self.known[0].head,
            "systems": [side.entry.name for side in self.sides],
            "baseline": 0,
            "measures": [
                {"name": str(measure), "better": measure.definition.better} for measure in measures
            ],
            "primary": primary,
            "queries": self.sides[0].entry.scores.table.height,
            "classes": list(CLASSES),
            "statuses": list(STATUSES),
            "columns": list(self.segments),
            "unjudged": self._own("unjudged", {"hits": 0, "unjudged": 0}),
            "commands": self._own("commands", None),
            "texts": self._texts(),
        }

    @cached_property
    def rows(self) -> dict[str, Any]:
        """The rows; values and statuses come from the scores, which every side has."""
        first = self.known[0]
        scores = [side.entry.scores for side in self.sides]
        places = {status: at for at, status in enumerate(STATUSES)}
        return {
            "query_id": scores[0].table["query_id"].to_list(),
            "text": [first.rows["text"][at] for at in first.order],
            "gold": [first.rows["gold"][at] for at in first.order],
            "status": [[places[status] for status in own.status.to_list()] for own in scores],
            "values": {
                name: [own.table[name].fill_nan(None).to_list() for own in scores]
                for name in map(str, scores[0].measures)
            },
            "rank": [side.column("rank", None) for side in self.sides],
            "class": [self._classes(side) for side in self.sides],
            "unjudged": [side.column("unjudged", 0) for side in self.sides],
            "different": self._different(),
            "segments": self.segments,
        }

    @cached_property
    def segments(self) -> dict[str, Any]:
        """The segments of each query, for every column of any side."""
        segments: dict[str, Any] = {}
        for side in self.known:
            for name, segment in side.rows["segments"].items():
                positions = [segment["of"][at] for at in side.order]
                segments.setdefault(name, {"names": segment["names"], "of": positions})
        return segments

    def query(self, index: int) -> dict[str, Any]:
        """Return one query in full: every system's list beside the gold, with texts."""
        details = [side.detail(index) for side in self.sides]
        first = next(part[0] for part in details if part is not None)
        texts: dict[str, Any] = {}
        for part in reversed(details):
            texts |= {} if part is None else part[1]
        detail = {
            **first,
            "index": index,
            "gold": [self._gold(item, details) for item in first["gold"]],
            "systems": [
                self._system(side, index, part)
                for side, part in zip(self.sides, details, strict=True)
            ],
            "bm25": next((part[0]["bm25"] for part in details if part and part[0]["bm25"]), None),
        }
        return with_texts(detail, texts)

    def _own(self, key: str, otherwise: Any) -> list[Any]:
        """Return a key of each side's own head."""
        return [side.head[key][side.entry.place] if side.head else otherwise for side in self.sides]

    def _texts(self) -> str | None:
        """Return which texts and queries are missing, and why."""
        notes = [side.head.get("texts") for side in self.known]
        lacking = [side.entry.name for side in self.sides if not side.rows]
        if lacking:
            notes.append(f"{', '.join(lacking)}: saved without single queries")
        return "; ".join(dict.fromkeys(filter(None, notes))) or None

    def _classes(self, side: MergedSystem) -> list[int]:
        """Return classes by today's numbers; a saved view may have used others."""
        names = side.head.get("classes", [])
        numbers = {at: CLASSES.index(name) for at, name in enumerate(names) if name in CLASSES}
        return [numbers.get(at, -1) for at in side.column("class", -1)]

    def _different(self) -> list[int]:
        """Return for each query whether the top lists differ; reads every block."""
        n = self.sides[0].entry.scores.table.height
        if len(self.known) < 2:
            return [0] * n
        tops = [side.tops() for side in self.known]
        return [int(any(top[at] != tops[0][at] for top in tops[1:])) for at in range(n)]

    def _gold(
        self, item: Document, details: Sequence[tuple[Document, Document] | None]
    ) -> dict[str, Any]:
        """Return a judged item with its ranks in each system's own lists."""
        ranks = []
        for side, part in zip(self.sides, details, strict=True):
            judged = () if part is None else part[0]["gold"]
            same = [own for own in judged if own["item_id"] == item["item_id"]]
            ranks.append(same[0]["ranks"][side.entry.place] if same else {})
        return {**item, "ranks": ranks}

    def _system(
        self, side: MergedSystem, index: int, part: tuple[Document, Document] | None
    ) -> Document:
        if part is not None:
            saved: Document = part[0]["systems"][side.entry.place]
            return saved
        return {
            "status": side.entry.scores.status[index],
            "error": None,
            "class": None,
            "because": "saved without its lists",
            "searched": None,
            "hits": [],
            "calls": {},
        }


@dataclass(frozen=True, eq=False)
class ComparedView:
    """Everything that the page of a comparison needs."""

    document: dict[str, Any]
    head: dict[str, Any] | None
    warnings: Sequence[str]
    view: MergedView


def compare_views(stored: Sequence[RestoredEvaluation], rule: Rule, parts: Parts) -> ComparedView:
    """Compare stored evaluations with the first of them, down to single queries."""
    entries, warnings = align(stored)
    view = MergedView([MergedSystem(entry, parts) for entry in entries])
    document = compare_stored(entries, rule, segments=view.segments)
    lacking = [side.entry.title for side in view.sides if not side.rows]
    notes = [f"{name} was saved without its lists: only its values are known" for name in lacking]
    head = view.head(document["rule"]["primary"])
    return ComparedView(document, head, [*warnings, *notes], view)


def with_texts(detail: Document, texts: Document) -> dict[str, Any]:
    """Return the details of a query with the texts of its items."""
    items = [item["item_id"] for item in detail["gold"]]
    items += [hit[0] for system in detail["systems"] for hit in system["hits"]]
    items += [hit[0] for hit in detail["bm25"] or ()]
    own_texts = {item: texts[item] for item in dict.fromkeys(items) if item in texts}
    return {**detail, "texts": own_texts}
