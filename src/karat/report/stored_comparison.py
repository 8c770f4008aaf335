"""Stored evaluations compared: their report document, and the view of single queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
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
from karat.measures.scores import Scores
from karat.report.document import Report, System
from karat.report.html.rows import STATUSES
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


@dataclass(frozen=True, eq=False)
class Aligned:
    """Evaluations that can be compared, the baseline first, with warnings.

    Their scores have the same measures, and the same queries in the same order.
    """

    entries: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class StoredComparison:
    """The document of a comparison, as a report has it, and the measure that decided."""

    document: dict[str, Any]
    primary: str


def align(stored: Sequence[RestoredEvaluation]) -> Aligned:
    """Align stored evaluations with the first one; refuse those scored in another way."""
    if len(stored) < 2:
        raise UsageError("a comparison needs at least two evaluations: a baseline and another")
    entries = _entries(stored)
    warnings = [*_left_out(entries), *_stale(entries)]
    common = with_common_measures(entries[0].scores, [entry.scores for entry in entries[1:]])
    entries = [
        replace(entry, scores=aligned) for entry, aligned in zip(entries, common, strict=True)
    ]
    _check_alike(entries)
    return Aligned(tuple(entries), tuple(warnings))


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
) -> StoredComparison:
    """Compare aligned evaluations; ``segments`` maps each column to the segments of queries."""
    queries, by = _grouped(entries[0].scores, segments or {})
    left_out = _only_gated([entry.stored.report for entry in entries])
    if rule.primary is not None:
        left_out.discard(rule.primary)
    comparisons = compare_scores(_contenders(entries, left_out), rule, queries=queries, by=by)
    comparisons = replace(
        comparisons,
        primary=_chosen([entry.stored.report for entry in entries], comparisons.primary),
    )
    first = entries[0].evaluation
    report = Report(
        tuple(map(_system, entries)),
        gold=first.gold,
        queries=first.queries,
        corpus=first.corpus,
        comparisons=comparisons,
        **_in_common([entry.stored.report for entry in entries]),
    )
    return StoredComparison(report.to_dict(), str(comparisons.rule.primary))


def _chosen(documents: Sequence[Document], primary: Primary) -> Primary:
    """Return how the deciding measure was chosen: as the reports say, if they agree on it."""
    primaries = [document["primary"] for document in documents if document.get("primary")]
    same = bool(primaries) and all(choice == primaries[0] for choice in primaries)
    return (
        Primary(**primaries[0]) if same and primaries[0]["measure"] == primary.measure else primary
    )


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


def _check_alike(entries: Sequence[Entry]) -> None:
    """Refuse evaluations that were not scored alike, and list all differences."""
    first, refusals = entries[0], []
    for other in entries[1:]:
        if different := differences(first.scores, other.scores):
            refusals.append(f"{other.title} with {first.title}: {', '.join(different)}")
    if refusals:
        raise UsageError(
            f"cannot compare {'; nor '.join(refusals)}; score them alike and save them"
        )


def _contenders(entries: Sequence[Entry], left_out: Collection[str]) -> list[ComparedSystem]:
    """Return the systems with the measures to compare."""
    measures = entries[0].scores.measures
    compared = tuple(measure for measure in measures if str(measure) not in left_out) or measures
    return [
        ComparedSystem(entry.name, (replace(entry.scores, measures=compared),)) for entry in entries
    ]


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


def _in_common(documents: Sequence[Document]) -> dict[str, Any]:
    """Return the inputs that all reports share."""
    inputs = [document.get("inputs") or {} for document in documents]
    common = {
        key: inputs[0][key]
        for key in _COMMON
        if key in inputs[0]
        and all(report_inputs.get(key) == inputs[0][key] for report_inputs in inputs)
    }
    if "as_of_range" in common:
        common["as_of_range"] = tuple(common["as_of_range"])
    return common


def _grouped(scores: Scores, segments: Document) -> tuple[Queries | None, list[By]]:
    """Return the queries with their segment columns, and the columns to group by."""
    single = {name: _values(grouping) for name, grouping in segments.items() if CROSS not in name}
    by = [By.parse(name) for name in segments]
    known = [grouping for grouping in by if all(column in single for column in grouping.columns)]
    if not known:
        return None, []
    ids = scores.table["query_id"]
    columns = [
        pl.Series(name, grouping, dtype=pl.List(pl.String)) for name, grouping in single.items()
    ]
    return Queries(pl.DataFrame([ids, pl.Series("text", [""] * len(ids)), *columns])), known


def _values(segment: Document) -> list[list[str]]:
    """Return the values that each query has in one column."""
    names = segment["names"]
    return [[names[at] for at in positions if names[at] != NONE] for positions in segment["of"]]


Row = Mapping[str, Any]
# A part of a report's view, unpacked: by the report's id and its own name; None where the
# report was saved without.
Parts = Callable[[int, str], Any]


@dataclass(frozen=True, eq=False)
class MergedSystem:
    """One system of a comparison, with the view of the report that it was saved in."""

    entry: Entry
    parts: Parts

    @cached_property
    def head(self) -> Row | None:
        """The head of its view; None if no single queries were saved."""
        head: Row | None = None if self.entry.place is None else self.part("head")
        return head

    @cached_property
    def rows(self) -> Row | None:
        """The rows of its view."""
        found: Row | None = None if self.head is None else self.part("rows")
        return found

    @cached_property
    def order(self) -> list[int]:
        """The row of each query of the comparison in its own view."""
        places = {query_id: at for at, query_id in enumerate((self.rows or {})["query_id"])}
        return [places[query_id] for query_id in self.entry.scores.table["query_id"].to_list()]

    def part(self, name: str) -> Any:
        """Return a part of the view of its report."""
        return self.parts(self.entry.evaluation.report_id, name)

    def column(self, name: str, otherwise: Any) -> list[Any]:
        """Return a column of its rows, for the queries of the comparison."""
        if self.rows is None:
            return [otherwise] * self.entry.scores.table.height
        values = self.rows[name][self.entry.place]
        return [values[at] for at in self.order]

    def detail(self, index: int) -> tuple[Row, Row] | None:
        """Return one query in its own view, and the texts beside it."""
        if self.head is None:
            return None
        at, size = self.order[index], self.head["block"]
        block = self.block(at // size)
        return block["queries"][at % size], block["texts"]

    def block(self, number: int) -> Row:
        """Return a block of queries; InputError if it is missing."""
        block: Row | None = self.part(f"block-{number}")
        if block is None:
            where = f"report {self.entry.evaluation.report_id}"
            raise InputError("is damaged: some of its queries are gone", where=where)
        return block

    def tops(self) -> list[list[str]]:
        """Return the top items of its list for each query; reads every block once."""
        head = self.head or {}
        blocks = map(self.block, range(-(-head["queries"] // head["block"])))
        tops = [
            [hit[0] for hit in query["systems"][self.entry.place]["hits"][: head["k"]]]
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
        return [side for side in self.sides if side.rows is not None]

    def head(self, primary: str) -> dict[str, Any] | None:
        """Return the head; None if no side was saved with its queries."""
        if not self.known:
            return None
        first = self.known[0].head or {}
        measures = self.sides[0].entry.scores.measures
        return {
            **first,
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
        scores = [side.entry.scores for side in self.sides]
        places = {status: at for at, status in enumerate(STATUSES)}
        return {
            "query_id": scores[0].table["query_id"].to_list(),
            "text": self._first("text", None),
            "gold": self._first("gold", 0),
            "status": [
                [places[one] for one in run_scores.status.to_list()] for run_scores in scores
            ],
            "values": {
                str(measure): [
                    run_scores.table[str(measure)].fill_nan(None).to_list() for run_scores in scores
                ]
                for measure in scores[0].measures
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
            for name, segment in (side.rows or {})["segments"].items():
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
        return [
            otherwise if side.head is None else side.head[key][side.entry.place]
            for side in self.sides
        ]

    def _texts(self) -> str | None:
        """Return which texts and queries are missing, and why."""
        notes = [(side.head or {}).get("texts") for side in self.known]
        lacking = [side.entry.name for side in self.sides if side.rows is None]
        if lacking:
            notes.append(f"{', '.join(lacking)}: saved without single queries")
        return "; ".join(dict.fromkeys(filter(None, notes))) or None

    def _first(self, name: str, otherwise: Any) -> list[Any]:
        """Return a column that is the same for all systems, from the first view that has it."""
        side = self.known[0] if self.known else None
        if side is None or side.rows is None:
            return [otherwise] * self.sides[0].entry.scores.table.height
        return [side.rows[name][at] for at in side.order]

    def _classes(self, side: MergedSystem) -> list[int]:
        """Return classes by today's numbers; a saved view may have used others."""
        names = (side.head or {}).get("classes", [])
        numbers = {at: CLASSES.index(name) for at, name in enumerate(names) if name in CLASSES}
        return [numbers.get(at, -1) for at in side.column("class", -1)]

    def _different(self) -> list[int]:
        """Return for each query whether the top lists differ; reads every block."""
        n = self.sides[0].entry.scores.table.height
        if len(self.known) < 2:
            return [0] * n
        tops = [side.tops() for side in self.known]
        return [int(any(top[at] != tops[0][at] for top in tops[1:])) for at in range(n)]

    def _gold(self, item: Row, details: Sequence[tuple[Row, Row] | None]) -> dict[str, Any]:
        """Return a judged item with its ranks in each system's own lists."""
        ranks = []
        for side, part in zip(self.sides, details, strict=True):
            same = None if part is None else _same_item(part[0]["gold"], item)
            place = side.entry.place
            ranks.append({} if same is None or place is None else same["ranks"][place])
        return {**item, "ranks": ranks}

    def _system(self, side: MergedSystem, index: int, part: tuple[Row, Row] | None) -> Row:
        if part is not None and side.entry.place is not None:
            saved: Row = part[0]["systems"][side.entry.place]
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
    warnings: tuple[str, ...]
    view: MergedView


def compare_views(stored: Sequence[RestoredEvaluation], rule: Rule, parts: Parts) -> ComparedView:
    """Compare stored evaluations with the first of them, down to single queries."""
    lineup = align(stored)
    view = MergedView([MergedSystem(entry, parts) for entry in lineup.entries])
    comparison = compare_stored(lineup.entries, rule, segments=view.segments)
    lacking = [side.entry.title for side in view.sides if side.rows is None]
    notes = [f"{name} was saved without its lists: only its values are known" for name in lacking]
    return ComparedView(
        comparison.document, view.head(comparison.primary), (*lineup.warnings, *notes), view
    )


def with_texts(detail: Row, texts: Row) -> dict[str, Any]:
    """Return the details of a query with the texts of its items."""
    items = [item["item_id"] for item in detail["gold"]]
    items += [hit[0] for system in detail["systems"] for hit in system["hits"]]
    items += [hit[0] for hit in detail["bm25"] or ()]
    own_texts = {item: texts[item] for item in dict.fromkeys(items) if item in texts}
    return {**detail, "texts": own_texts}


def _same_item(gold: Sequence[Row], item: Row) -> Row | None:
    return next((judged for judged in gold if judged["item_id"] == item["item_id"]), None)
