"""The worst queries of a run beside their gold, BM25's list and the class of each failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.analysis.failures import CLASSES, Failures, classify, told_of
from karat.analysis.failures.case import ASSESSED
from karat.analysis.failures.gold_ranks import best_in
from karat.analysis.findings import findings
from karat.analysis.runs import Analysis, counts_of, stage_runs
from karat.analysis.triage.page import triage_page
from karat.analysis.triage.texts import (
    GoldItem,
    Items,
    gold_of,
    known_items,
    listed,
    overlap_of,
    ranked_in,
)
from karat.data.tables import Queries, Run
from karat.errors import MissingInputError, UsageError, unknown
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.segments import By, segments_by
from karat.evaluation.stages import KEEP, Staged, rescore_stages
from karat.evaluation.thresholds import Thresholds, thresholds_of
from karat.measures.names import Measure, parse_measures
from karat.measures.prepare import Prepared
from karat.measures.ranked import Ints
from karat.measures.score_builder import score
from karat.measures.scores import Scores
from karat.pages.serialize import dumps

if TYPE_CHECKING:
    from karat.retrieve.corpus_index import CorpusIndex

# How many queries are shown, and how far down BM25's list gold is searched for.
WORST, BM25_DEPTH = 20, 1000

Mask = NDArray[np.bool_]
Row = Mapping[str, Any]
# The rank of each judgment in a list, by its row in the gold.
Ranks = Mapping[int, int]

# Columns in which an eval set has notes on a query for its readers.
_NOTES = ("notes", "note")
_MANY = 10
# Why there is no list, where the log gives no reason; an empty answer has none.
_UNANSWERED = {"failed": "the call failed", "missing": "the run has no answer to it"}


@dataclass(frozen=True, eq=False, repr=False)
class Triage(Analysis):
    """The worst queries of a run; ``inspector`` looks up any other query."""

    inspector: QueryInspector | None = None

    @property
    def unmeasured(self) -> str | None:
        """Why the result says nothing; None if it does."""
        return replace(self, body={**self.body, "name": self.body["system"]})._doubt()

    def _doubt(self) -> str | None:
        return super().unmeasured


def to_misses(result: Triage) -> bytes:
    """Return every miss as JSON: the query, what came back, and the gold."""
    return dumps([] if result.inspector is None else result.inspector.misses(), sort_keys=False)


def triage(
    evaluation: Evaluation,
    run: Any,
    *,
    measure: str | None = None,
    worst: int = WORST,
    query_ids: Sequence[str] = (),
    thresholds: Thresholds | None = None,
    commands: Callable[[str, Mapping[str, Any]], dict[str, str]] | None = None,
) -> Triage:
    """Show the ``worst`` queries of a run by a measure, or those of some ids.

    Without ``measure`` the first of the evaluation counts. ``commands`` gives the shell commands
    that show and ask a query again, by its id and what the run's log says about itself.
    """
    conventions = evaluation.prepared.conventions
    thresholds = thresholds or thresholds_of(conventions.profile)
    chosen = _measure(evaluation, measure)
    keep = max(KEEP, thresholds.miss, thresholds.far)
    staged_runs = stage_runs(evaluation, [run], [chosen], keep=keep, of_stages=[])
    ((name, staged),) = staged_runs.systems.items()
    if measure is None:
        staged, chosen = _within_lists(staged, chosen)
    queries, index = evaluation.queries, evaluation.index
    failures = classify(staged, queries, thresholds=thresholds)
    inspector = QueryInspector(staged, chosen, failures, queries)
    found = findings(staged, queries, thresholds=thresholds, by=evaluation.by)
    rows = inspector.chosen(query_ids) if query_ids else inspector.worst(worst)
    asked = {row: text for row in rows if (text := inspector.text(row)) is not None}
    bm25, lacks = bm25_lists(index, staged.gold, asked, BM25_DEPTH)
    meta = staged.final.meta
    body = {
        "measure": str(chosen),
        "system": name,
        **counts_of(staged),
        "worst": None if query_ids else worst,
        "queries": [
            case | ({} if commands is None else commands(case["query_id"], meta))
            for case in inspector.cases(rows, items=index, bm25=bm25)
        ],
        "depth": inspector.depths(),
        "bm25": {"lacks": lacks} if bm25 is None else {"depth": BM25_DEPTH},
        "failures": failures.to_dict(),
        "segments": {str(by): inspector.by_segment(by) for by in evaluation.by},
        "lines": thresholds.document(),
        "findings": [finding.sentence for finding in found.findings],
    }
    return replace(staged_runs.result(Triage, body, triage_page), inspector=inspector)


def _measure(evaluation: Evaluation, name: str | None) -> Measure:
    if name is None:
        return next(
            measure for measure in evaluation.measures if measure.definition.better != "none"
        )
    named = parse_measures([name], conventions=evaluation.prepared.conventions)
    if len(named) > 1:
        raise UsageError(f"one measure makes queries bad, not {len(named)}; give -m one of them")
    return named[0]


def _within_lists(staged: Staged, measure: Measure) -> tuple[Staged, Measure]:
    """Return the run by a default measure at a k that its lists reach."""
    cut = staged.final.cut
    if cut is None or str(measure) not in cut.beyond or not cut.depth:
        return staged, measure
    nearer = replace(measure, k=cut.depth)
    return replace(staged, final=rescore_stages(staged, [nearer])), nearer


@dataclass(frozen=True, eq=False)
class QueryInspector:
    """Looks up the queries of one run: the worst by ``measure``, and all that is known of each."""

    staged: Staged
    measure: Measure
    failures: Failures
    queries: Queries | None = None

    def worst(self, n: int) -> list[int]:
        """Return the rows of the n worst queries that have gold, worst first.

        Of equal values the one whose gold lies deepest comes first, then the one further up in
        the table. A query without a value was not answered, and comes before all others.
        """
        final = self.staged.final
        better = self.measure.definition.better
        if better == "none":
            raise UsageError(f"{self.measure} has no better and worse; choose another measure")
        if (lacks := final.lacks.get(str(self.measure))) is not None:
            beyond = () if final.cut is None else final.cut.beyond
            text = f"{self.measure} is not measured: {lacks}; name another measure"
            raise MissingInputError(text if str(self.measure) in beyond else lacks)
        values = final.values(str(self.measure)) * (1 if better == "higher" else -1)
        values = np.where(np.isnan(values), -np.inf, values)
        deepest = -best_in(final, self.staged.gold).rank
        order = np.lexsort((deepest, values))
        return [row for row in order.tolist() if self.with_gold[row]][:n]

    def chosen(self, query_ids: Sequence[str]) -> list[int]:
        """Return the rows of some queries; for an unknown id the error names the nearest."""
        numbers = self.staged.gold.numbers
        for query_id in query_ids:
            if query_id not in numbers:
                raise _unknown(query_id, list(numbers))
        return [numbers[query_id] for query_id in dict.fromkeys(query_ids)]

    @cached_property
    def with_gold(self) -> Mask:
        """The queries that have gold."""
        return self.staged.final.status.is_in(ASSESSED).to_numpy()

    def text(self, row: int) -> str | None:
        """Return a query's text: that of the queries, else of the log."""
        text = self._asked(row).get("text") or self._calls.get(self._id(row), {}).get("query")
        return text if isinstance(text, str) and text.strip() else None

    def error(self, row: int) -> str | None:
        """Return the error of a query's call, if it failed."""
        error = self._calls.get(self._id(row), {}).get("error")
        return None if error in (None, False, "") else str(error)

    def misses(self) -> list[dict[str, Any]]:
        """Return every miss: the query, the top k that came back, and the gold."""
        gold = self.staged.gold
        last = np.full(len(gold.query_ids), self.failures.thresholds.miss)
        return misses_of(self.staged.final, gold, self.queries, last)

    def cases(
        self, rows: Sequence[int], *, items: Items | None = None, bm25: Scores | None = None
    ) -> list[dict[str, Any]]:
        """Return some queries as plain data: gold, lists, terms, failure class.

        ``items`` knows the corpus; ``bm25`` are the scores of BM25's own lists.
        """
        prepared = self.staged.gold
        lists = {"top": listed(self.staged.final, prepared, rows, KEEP)}
        if bm25 is not None:
            lists["bm25"] = listed(bm25, prepared, rows, KEEP)
        ids = [hit["item_id"] for own in lists.values() for hits in own.values() for hit in hits]
        texts = {one["item_id"]: one["text"] for one in known_items(items, ids)}
        gold = gold_of(prepared, rows, items)
        ranks = {name: _ranks(scores, rows) for name, scores in self._lists(bm25).items()}
        return [
            self._case(row)
            | {name: [_with_text(hit, texts) for hit in own[row]] for name, own in lists.items()}
            | ({} if bm25 is not None and self.text(row) is not None else {"bm25": None})
            | {"gold": [_gold(item, ranks) for item in gold[row]]}
            | {"terms": self._terms(row, gold[row], lists["top"][row], texts)}
            for row in rows
        ]

    def _case(self, row: int) -> dict[str, Any]:
        asked = dict(self._asked(row))
        asked.pop("query_id", None)
        asked.pop("text", None)
        notes = [asked.pop(name, None) for name in _NOTES]
        value = float(self.staged.final.values(str(self.measure))[row])
        why = self.failures.by_query.get(self._id(row))
        return {
            "query_id": self._id(row),
            "text": self.text(row),
            "note": next((note for note in notes if note), None),
            "attributes": {name: told for name, told in asked.items() if told is not None},
            "status": self.staged.final.status[row],
            "error": self.error(row),
            "value": None if np.isnan(value) else value,
            "miss": why is not None,
            "class": None if why is None else why.kind,
            "because": None if why is None else why.because,
            "evidence": None if why is None else dict(why.evidence),
        }

    def _terms(
        self, row: int, gold: Sequence[GoldItem], top: Sequence[Row], texts: Mapping[str, str]
    ) -> dict[str, Any] | None:
        asked = self.text(row)
        if asked is None:
            return None
        first = texts.get(top[0]["item_id"]) if top else None
        return overlap_of(asked, {item.item_id: item.text for item in gold}, first).to_dict()

    def by_segment(self, by: By) -> dict[str, dict[str, Any]]:
        """Return how many queries of each segment miss, by class."""
        segments = {}
        for one in segments_by(self.staged.final.table["query_id"], self.queries, by):
            kinds = [miss.kind for miss in self.failures.queries if one.mask[miss.row]]
            segments[one.name] = {
                "queries": int((one.mask & self.with_gold).sum()),
                "misses": len(kinds),
                "classes": told_of({name: kinds.count(name) for name in CLASSES if name in kinds}),
            }
        return segments

    def depths(self) -> dict[str, Any]:
        """Return how far down each list goes."""
        staged = self.staged
        stages = {**staged.line, **staged.beside}
        return {
            "final": staged.depth(staged.final).known,
            "stages": {name: staged.depth(scores).known for name, scores in stages.items()},
        }

    def _lists(self, bm25: Scores | None) -> dict[tuple[str, ...], Scores]:
        """Return every list that is searched for gold, by the place of its rank in the data."""
        stages = {**self.staged.line, **self.staged.beside}
        return {
            ("final",): self.staged.final,
            **{("stages", name): scores for name, scores in stages.items()},
            **({} if bm25 is None else {("bm25",): bm25}),
        }

    def _id(self, row: int) -> str:
        return self.staged.gold.query_ids[row]

    def _asked(self, row: int) -> Row:
        """Return what the queries file says about a query."""
        number = self._numbers.get(self._id(row))
        if number is None or self.queries is None:
            return {}
        return self.queries.frame.row(number, named=True)

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        ids = [] if self.queries is None else self.queries.frame["query_id"].to_list()
        return {query_id: number for number, query_id in enumerate(ids)}

    @cached_property
    def _calls(self) -> Mapping[str, Row]:
        """The logged query and error of each call, by query id."""
        calls = self.staged.calls
        if calls is None:
            return {}
        told = calls.select("query_id", *(n for n in ("query", "error") if n in calls.columns))
        return {row["query_id"]: row for row in told.iter_rows(named=True)}


def _ranks(scores: Scores, rows: Sequence[int]) -> Ranks:
    """Return the first rank of each judgment of some queries."""
    found = ranked_in(scores).found
    own = np.isin(found.query, np.array(rows, dtype=np.int64))
    if found.row is None or not own.any():
        return {}
    pairs = zip(found.row[own].tolist(), found.rank[own].tolist(), strict=True)
    # By rank within a query: of several the first one stays.
    return dict(reversed(list(pairs)))


def _with_text(hit: Row, texts: Mapping[str, str]) -> dict[str, Any]:
    return {**hit, "text": texts.get(hit["item_id"])}


def _gold(item: GoldItem, ranks: Mapping[tuple[str, ...], Ranks]) -> dict[str, Any]:
    """Return a gold item with its rank in every list; None if the list does not have it."""
    told = asdict(item)
    judgment = told.pop("judgment")
    places: dict[str, Any] = {"stages": {}}
    for (first, *rest), rank in ranks.items():
        inside = places[first] if rest else places
        inside[rest[0] if rest else first] = rank.get(judgment)
    return {**told, "ranks": places}


def _unknown(query_id: str, known: Sequence[str]) -> UsageError:
    """Return an error that names the nearest query, or a few if none is near."""
    error = unknown("query", query_id, known)
    if "did you mean" in str(error) or len(known) <= _MANY:
        return error
    return UsageError(
        f"unknown query {query_id!r}; there are {len(known):,}, such as {', '.join(known[:3])}"
    )


def misses_of(
    scores: Scores, gold: Prepared, queries: Queries | None, last: Ints
) -> list[dict[str, Any]]:
    """Return every query that has gold, and none of it up to rank ``last``.

    Queries and ``last`` are in the order of the score table, gold is best grade first. The run
    must be scored with ``keep`` at least as deep.
    """
    assessed = scores.status.is_in(ASSESSED).to_numpy()
    rows: list[int] = np.flatnonzero(assessed & (best_in(scores, gold).rank > last)).tolist()
    if not rows:
        return []
    lists = listed(scores, gold, rows, int(last[rows].max()))
    relevant = gold_of(gold, rows, None)
    texts = _texts(scores, queries)
    errors = _told(scores, "error")
    misses = []
    for row in rows:
        query_id, status = gold.query_ids[row], scores.status[row]
        wanted = sorted(relevant[row], key=lambda item: (-item.grade, item.item_id))
        miss: dict[str, Any] = {
            "query": texts.get(query_id, query_id),
            "retrieved": [hit["item_id"] for hit in lists[row] if hit["rank"] <= last[row]],
            "relevant": [item.item_id for item in wanted],
        }
        if status in _UNANSWERED:
            miss["error"] = errors.get(query_id, _UNANSWERED[status])
        misses.append(miss)
    return misses


def _texts(scores: Scores, queries: Queries | None) -> dict[str, str]:
    """Return the text of each query: that of the queries, else of the log."""
    texts = _told(scores, "query")
    if queries is not None:
        asked = queries.frame.select("query_id", "text").iter_rows()
        texts |= {query_id: text for query_id, text in asked if text}
    return {query_id: text for query_id, text in texts.items() if text.strip()}


def _told(scores: Scores, name: str) -> dict[str, str]:
    """Return a column of the logged calls by query id, without blanks."""
    calls = scores.calls
    if calls is None or name not in calls.columns:
        return {}
    told = calls.select("query_id", name).iter_rows()
    return {query_id: str(value) for query_id, value in told if str(value or "").strip()}


def bm25_lists(
    index: CorpusIndex | None, gold: Prepared, asked: Mapping[int, str], depth: int
) -> tuple[Scores | None, str | None]:
    """Return BM25's lists for queries by their row, scored as the run is.

    If something is lacking, the lists are None and the reason is returned.
    """
    if index is None:
        return None, "BM25's list needs the items' texts: give --corpus"
    if index.lacks is not None:
        return None, index.lacks
    if not asked:
        return None, "BM25's list needs the queries' texts: give --queries"
    ids = [gold.query_ids[row] for row in asked]
    found = index.bm25(list(asked.values()), depth)
    names = pl.Series("query_id", ids, dtype=pl.String).gather(found["query"])
    hits = found.drop("query").with_columns(names)
    run = Run(hits, calls=pl.DataFrame({"query_id": ids}), order="rank", name="bm25")
    try:
        return score(run, gold, [], keep=KEEP, derived=True), None
    except MissingInputError as error:
        return None, str(error)
