"""The view of a report: every query with the results of each system, as plain data for a page.

The ``head`` is small, ``rows`` hold the data of the query table, and ``blocks`` the details of
queries, in groups, so that a page reads only those that it shows.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.failures import CLASSES
from karat.analysis.failures.case import best_gold
from karat.analysis.triage import BM25_DEPTH, bm25_lists
from karat.data.columns import Source
from karat.data.tables import Queries
from karat.evaluation.segments import By, segments_by
from karat.evaluation.stages import KEEP, Staged, thresholds_of
from karat.evaluation.top_lists import RelevantItem, gold_of, logged_texts, query_texts
from karat.evaluation.verdict import Rule
from karat.evaluation.verdict import primary_of as primary_measure
from karat.measure.conventions import SETTABLE, conventions_of
from karat.measure.ranked import Ints
from karat.measure.scores import Scores
from karat.pages.formatting import plural
from karat.reports.document import Report, System
from karat.retrieve.corpus_index import CorpusIndex

Row = Mapping[str, Any]
# An item, its score and its grade; None where unknown.
Hit = tuple[str, float | None, float | None]

# The most queries to search with BM25, fewer in a large corpus, so that this stays faster than
# evaluating.
MOST_BM25, MOST_SCORES = 500, 50_000_000
# The most gold items to list, best first.
MOST_GOLD = 50
_NOTES = ("notes", "note")
_LONGEST_VALUE = 500

STATUSES = ("scored", "missing", "failed", "no_answer", "empty_gold")
# Control characters, except tab and line feed.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def readable(text: str) -> str:
    r"""Return a text with line feeds as line ends, and a mark for characters that cannot be shown.

    >>> readable("a\r\nb\x07")
    'a\nb�'
    """
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


@dataclass(frozen=True, eq=False)
class ReportQueries:
    """The queries of a report in the order of its score tables, each with its own k."""

    ids: Sequence[str]
    texts: Sequence[str | None]
    own_k: Ints
    gold: Sequence[int]
    queries: Queries | None

    @classmethod
    def of(cls, report: Report) -> ReportQueries:
        """Return the queries of a report."""
        first = report.systems[0].scores
        ids = first.query_ids
        queries = None if report.tables is None else report.tables.queries
        staged = _first_staged(report)
        if staged is None:
            own_k, gold = np.full(len(ids), first.conventions.k), [0] * len(ids)
        else:
            own_k = staged.gold.own_k
            everyone = staged.gold.target(np.arange(len(ids)))
            gold = everyone.relevant(staged.gold.conventions.rel).astype(int).tolist()
        known: dict[str, str] = {}
        for system in reversed(report.systems):
            known |= logged_texts(system.scores.calls, "query")
        known |= query_texts(None, queries)
        texts = [readable(known[query_id]) if query_id in known else None for query_id in ids]
        return cls(ids, texts, own_k, gold, queries)


def _first_staged(report: Report) -> Staged | None:
    return next((system.staged for system in report.systems if system.staged is not None), None)


def rows_of(systems: Sequence[System], queries: ReportQueries) -> dict[str, Any]:
    """Return every column of the query table; those of systems are lists in their order."""
    names = dict.fromkeys(str(measure) for system in systems for measure in system.scores.measures)
    unmeasured = [None] * len(queries.ids)
    return {
        "query_id": list(queries.ids),
        "text": list(queries.texts),
        "gold": list(queries.gold),
        "status": [
            [STATUSES.index(status) for status in system.scores.status.tolist()]
            for system in systems
        ],
        "values": {
            name: [
                scores.table[name].to_list() if name in scores.columns else unmeasured
                for scores in (system.scores for system in systems)
            ]
            for name in names
        },
        "rank": [_ranks(system) for system in systems],
        "class": [_classes(system) for system in systems],
        "unjudged": [_unjudged(system, queries)[1].tolist() for system in systems],
        "different": _different(systems, queries),
        "segments": segments_of(systems, queries),
    }


def segments_of(systems: Sequence[System], queries: ReportQueries) -> dict[str, Any]:
    """Return the segments of each query, for every column that the report is split by."""
    columns = dict.fromkeys(name for system in systems for name in system.segments)
    ids = pl.Series("query_id", queries.ids, dtype=pl.String)
    columns_of: dict[str, Any] = {}
    for column in columns:
        segments = list(segments_by(ids, queries.queries, By.parse(column)))
        membership: list[list[int]] = [[] for _ in queries.ids]
        for number, segment in enumerate(segments):
            for row in np.flatnonzero(segment.mask).tolist():
                membership[row].append(number)
        columns_of[column] = {"names": [segment.name for segment in segments], "of": membership}
    return columns_of


def unjudged_of(system: System, queries: ReportQueries) -> dict[str, int]:
    """Return how many items are in the top k of scored queries, and how many are unjudged."""
    hits, unjudged = _unjudged(system, queries)
    scored = system.scores.status == "scored"
    return {"hits": int(hits[scored].sum()), "unjudged": int(unjudged[scored].sum())}


def _ranks(system: System) -> list[int | None]:
    """Return the rank of the first relevant item in the final list."""
    if system.staged is None:
        return [None] * len(system.scores.query_ids)
    ranks = best_gold(system.staged.final, system.staged.gold).rank
    return [int(rank) if np.isfinite(rank) else None for rank in ranks.tolist()]


def _classes(system: System) -> list[int]:
    classes = np.full(len(system.scores.query_ids), -1)
    if system.failures is not None:
        for miss in system.failures.queries:
            classes[miss.row] = CLASSES.index(miss.kind)
    return classes.tolist()


def _unjudged(system: System, queries: ReportQueries) -> tuple[Ints, Ints]:
    """Return for each query the number of items in its top k, and of unjudged ones."""
    n = len(queries.ids)
    if system.staged is None or system.scores.trace is None:
        return np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    ranked = system.scores.trace.ranked
    hits = np.minimum(ranked.returned, queries.own_k)
    within = ranked.hits.rank <= queries.own_k[ranked.hits.query]
    # An item that holds several spans is judged once for each of them.
    places = np.stack((ranked.hits.query[within], ranked.hits.rank[within]))
    judged = np.bincount(np.unique(places, axis=1)[0], minlength=n)
    return hits, hits - judged - ranked.repeated("k").astype(np.int64)


def _different(systems: Sequence[System], queries: ReportQueries) -> list[int]:
    """Return for each query whether the top lists of the systems differ, as far as kept."""
    rows = range(len(queries.ids))
    if len(systems) < 2:
        return [0] * len(rows)
    last = pl.Series("last", np.minimum(queries.own_k, KEEP))
    tops: list[dict[int, list[str]]] = []
    for system in systems:
        if system.scores.lists is not None:
            top = system.scores.lists.select("row", "rank", "item_id").sort("row", "rank")
            top = top.filter(top["rank"] <= last.gather(top["row"]))
            grouped = top.group_by("row", maintain_order=True).agg("item_id")
            tops.append(dict(grouped.iter_rows()))
    return [int(any(top.get(row) != tops[0].get(row) for top in tops[1:])) for row in rows]


def by_priority(rows: Row, primary: str) -> Ints:
    """Return the queries by priority: misses first, then by how much systems differ.

    Among equals their order in the table decides.
    """
    misses = (np.array(rows["class"]) >= 0).any(axis=0)
    values = np.array(rows["values"][primary], dtype=np.float64)
    spread = np.nan_to_num(values.max(axis=0) - values.min(axis=0))
    return np.lexsort((-spread, ~misses))


@dataclass(frozen=True, eq=False)
class QueryDetails:
    """Every query in full, without texts, by row of the score tables.

    ``bm25_depth`` is how deep BM25 was searched, None if it was not; ``bm25_note`` is on what is
    left out.
    """

    queries: list[dict[str, Any]]
    gold: Mapping[int, Sequence[RelevantItem]]
    bm25_depth: int | None
    bm25_note: str | None


def details_of(report: Report, queries: ReportQueries, worth: Ints) -> QueryDetails:
    """Return the queries of a report; ``worth`` orders those for which BM25 is searched."""
    staged = _first_staged(report)
    bm25, note = _bm25(report, queries, worth, staged)
    bm25_hits, bm25_ranks = ({}, {}) if bm25 is None else (_hits(bm25), _places(bm25))
    rows = range(len(queries.ids))
    gold = {} if staged is None else gold_of(staged.gold, rows, report.index)
    results = [_results(system) for system in report.systems]
    # The ranks of judged items in the lists of each stage, the final ones first.
    ranks: list[dict[str, dict[int, int]]] = []
    for stages in (system.staged for system in report.systems):
        lists = {} if stages is None else {"final": stages.final, **stages.line, **stages.beside}
        ranks.append({name: _places(scores) for name, scores in lists.items()})
    negatives, attributes = _negatives(report), dict[str, Row]()
    if queries.queries is not None:
        frame = queries.queries.frame.drop("text")
        attributes = _plain_rows(frame, silent=(None, "", [], False))

    def judged(item: RelevantItem) -> dict[str, Any]:
        places = [
            {name: stage[item.judgment] for name, stage in stages.items() if item.judgment in stage}
            for stages in ranks
        ]
        return {
            "item_id": item.item_id,
            "doc_id": item.doc_id,
            "grade": item.grade,
            "in_corpus": item.in_corpus,
            "version": item.version,
            "section": item.section,
            "ranks": places,
            "bm25": bm25_ranks.get(item.judgment),
        }

    def detail(row: int) -> dict[str, Any]:
        query_attributes = dict(attributes.get(queries.ids[row], {}))
        notes = [query_attributes.pop(name, None) for name in _NOTES]
        items = gold.get(row, ())
        return {
            "index": row,
            "query_id": queries.ids[row],
            "text": queries.texts[row],
            "note": next((note for note in notes if note), None),
            "attributes": query_attributes,
            "gold": [judged(item) for item in items[:MOST_GOLD]],
            "gold_left_out": max(len(items) - MOST_GOLD, 0),
            "systems": [system[row] for system in results],
            "bm25": bm25_hits.get(row),
            "negatives": negatives.get(queries.ids[row], []),
        }

    depth = None if bm25 is None else BM25_DEPTH
    return QueryDetails([detail(row) for row in rows], gold, depth, note)


def _results(system: System) -> list[dict[str, Any]]:
    """Return the results of a system by query; only the statuses if it is from a store."""
    scores, staged = system.scores, system.staged
    hits, calls = _hits(scores), _calls(scores, staged)
    failures = () if system.failures is None else system.failures.queries
    misses = {miss.row: (miss.kind, miss.because) for miss in failures}
    searched = None if staged is None else staged.depth(staged.final).known
    results = []
    ids = scores.query_ids
    for row, (query_id, status) in enumerate(zip(ids, scores.status.tolist(), strict=True)):
        kind, because = misses.get(row, (None, None))
        call = calls.get(query_id, {})
        result = {
            "status": status,
            "error": call.get("error"),
            "class": kind,
            "because": because,
            "searched": searched,
            "hits": hits.get(row, []),
            "calls": {name: value for name, value in call.items() if name != "error"},
        }
        results.append(result)
    return results


def _hits(scores: Scores) -> dict[int, list[Hit]]:
    """Return the top of every list, as far as the runs hold it."""
    lists = scores.lists
    if lists is None:
        return {}
    score = pl.col("score") if "score" in lists.columns else pl.lit(None, pl.Float64)
    top = lists.filter(pl.col("rank") <= KEEP).sort("row", "rank")
    # Seven digits are enough to see that two scores differ.
    finite = pl.when(score.is_finite()).then(score.round_sig_figs(7)).alias("score")
    hits: list[Hit] = top.select("item_id", finite, "grade").rows()
    rows, starts = np.unique(top["row"].to_numpy(), return_index=True)
    parts = pairwise([*starts.tolist(), len(hits)])
    return {row: hits[slice(*part)] for row, part in zip(rows.tolist(), parts, strict=True)}


def _places(scores: Scores) -> dict[int, int]:
    """Return the best rank of each judgment, by its row in the gold."""
    matches = None if scores.trace is None else scores.trace.ranked.found
    if matches is None or matches.row is None:
        return {}
    # Sorted by rank within a query, so the best rank of a judgment wins.
    return dict(zip(matches.row[::-1].tolist(), matches.rank[::-1].tolist(), strict=True))


def _calls(scores: Scores, staged: Staged | None) -> dict[str, Row]:
    """Return the times, costs and errors of each call in a log."""
    calls = scores.calls if staged is None or staged.calls is None else staged.calls
    if calls is None:
        return {}
    plain = [name for name, kind in calls.schema.items() if not kind.is_nested()]
    return _plain_rows(calls.select(name for name in plain if name != "query"))


def _plain_rows(frame: pl.DataFrame, silent: Sequence[Any] = (None, "")) -> dict[str, Row]:
    """Return the values of a table by query, without the ``silent`` ones."""
    return {
        row.pop("query_id"): {
            name: _plain_value(value)
            for name, value in row.items()
            if value not in silent and not (isinstance(value, float) and not np.isfinite(value))
        }
        for row in frame.iter_rows(named=True)
    }


def _plain_value(value: Any) -> Any:
    """Return a value from a file as JSON, cut if it is long."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [_plain_value(element) for element in value[:20]]
    text = readable(str(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _negatives(report: Report) -> dict[str, list[str]]:
    """Return the items that are marked as hard negatives of each query."""
    gold = None if report.tables is None else report.tables.gold.frame
    if gold is None or "negative" not in gold.columns:
        return {}
    grouped = gold.filter("negative").group_by("query_id", maintain_order=True).agg("item_id")
    return dict(grouped.iter_rows())


def _bm25(
    report: Report, queries: ReportQueries, worth: Ints, staged: Staged | None
) -> tuple[Scores | None, str | None]:
    """Return BM25's lists for the queries of highest priority, and a note on the others."""
    if staged is None:
        return None, "BM25's list needs the runs, which the store does not have"
    items = 1 if report.index is None else max(len(report.index), 1)
    chosen = sorted(worth[: min(MOST_BM25, max(MOST_SCORES // items, 1))].tolist())
    texts = {row: text for row in chosen if (text := queries.texts[row]) is not None}
    scores, lacks = bm25_lists(report.index, staged.gold, texts, BM25_DEPTH)
    if scores is None:
        return None, lacks
    many = plural(len(texts), "query", "queries")
    note = f"BM25 was searched for {many}: those that miss or differ most"
    return scores, note if len(chosen) < len(queries.ids) else None


def items_in(detail: Row) -> list[str]:
    """Return the ids of all items of a query, gold first, each list from its top."""
    lists = [system["hits"] for system in detail["systems"]] + [detail["bm25"] or ()]
    gold = [item["item_id"] for item in detail["gold"]]
    return list(dict.fromkeys([*gold, *(hit[0] for hits in lists for hit in hits)]))


# The most characters of texts in a file, to keep it at a few megabytes: in total and per text.
ROOM, LONGEST = 5_000_000, 2_000


def blocks_of(
    details: QueryDetails, index: CorpusIndex | None, worth: Ints, size: int
) -> tuple[list[Row], str | None]:
    """Return the queries in blocks with the texts of their items, and a note on missing texts.

    The queries of highest priority get their texts first.
    """
    starts = range(0, len(details.queries), size)
    texts: list[dict[str, Row]] = [{} for _ in starts]
    blocks: list[Row] = [
        {"queries": details.queries[start : start + size], "texts": block_texts}
        for start, block_texts in zip(starts, texts, strict=True)
    ]
    if index is None:
        return blocks, "no texts, because there is no corpus; give --corpus"
    # The items and the block of each query, by priority.
    shown = [(items_in(details.queries[row]), row // size) for row in worth.tolist()]
    texts_by_item = _texts_of(details, index, {item for items, _ in shown for item in items})
    room, served = ROOM, 0
    for items, block in shown:
        # A text is in the file once per block.
        new = [item for item in items if item in texts_by_item and item not in texts[block]]
        cost = sum(min(len(texts_by_item[item]["text"]), LONGEST) for item in new)
        if cost > room:
            break
        room, served = room - cost, served + 1
        for item in new:
            text = texts_by_item[item]["text"]
            cut = {"text": readable(text[:LONGEST]), "cut": len(text) > LONGEST}
            texts[block][item] = cut | {"title": texts_by_item[item]["title"]}
    note = None
    if served < len(shown):
        note = (
            f"this file has texts for {served:,} of {len(shown):,} queries: those that miss or "
            f"differ most, up to {LONGEST:,} characters each; more would make it too large"
        )
    return blocks, note


def _texts_of(details: QueryDetails, index: CorpusIndex, items: set[str]) -> dict[str, Row]:
    """Return the texts of items from the corpus; from the gold for spans and documents."""
    gold = (item for judged in details.gold.values() for item in judged)
    gold_texts = {
        item.item_id: {"text": item.text, "title": None} for item in gold if item.text is not None
    }
    frame = index.rows(sorted(items))
    title = pl.col("title") if "title" in frame.columns else pl.lit(None, pl.String)
    columns = frame.select("item_id", "text", title.cast(pl.String).alias("title"))
    return gold_texts | {row["item_id"]: row for row in columns.iter_rows(named=True)}


# Stands for the id of a query.
QUERY = "{query}"


def _command(report: Report, system: System) -> str | None:
    """Return a command that shows a query of a system again; None if it has no file."""
    run, conventions = system.scores.source, system.scores.conventions
    if run.path is None or report.gold.path is None:
        return None
    words = ["karat", "triage", _name(run), "--gold", _name(report.gold)]
    for option, source in (("--queries", report.queries), ("--corpus", report.corpus)):
        if source is not None and source.path is not None and source.path != report.gold.path:
            words += [option, _name(source)]
    if conventions.profile != "karat":
        words += ["--profile", conventions.profile]
    settings, usual = asdict(conventions), asdict(conventions_of(conventions.profile))
    # Order and unit come from the file, unless given.
    for name in (name for name in SETTABLE if name not in ("order", "unit")):
        value = settings[name]
        if value not in (usual.get(name), None, ()):
            words += ["--set", f"{name}={'<'.join(value) if isinstance(value, tuple) else value}"]
    for key, column in report.fields.items():
        words += ["--field", f"{key}={column}"]
    return f"{shlex.join(words)} --query {QUERY}"


def _name(source: Source) -> str:
    """Return a file's path relative to here, or its name if it is elsewhere."""
    if source.path is None:
        return source.name
    path = os.path.relpath(source.path)
    return source.name if path.startswith(os.pardir) else Path(path).as_posix()


VERSION = 1
# Queries per block: small enough to read one quickly, large enough to compress well.
BLOCK = 100
# A higher level takes twice the time for a file that is 4 % smaller.
_LEVEL = 4


@dataclass(frozen=True, eq=False)
class View:
    """The queries of a page, as plain data."""

    head: Mapping[str, Any]
    rows: Mapping[str, Any]
    blocks: Sequence[Mapping[str, Any]]

    def parts(self) -> dict[str, bytes]:
        """Return all parts by name as gzipped JSON: head, rows, block-0, block-1 …"""
        blocks = {f"block-{number}": block for number, block in enumerate(self.blocks)}
        packed = {}
        for name, part in {"head": self.head, "rows": self.rows, **blocks}.items():
            text = json.dumps(part, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            packed[name] = gzip.compress(text.encode("utf-8", "replace"), _LEVEL, mtime=0)
        return packed


def view_of(report: Report) -> View:
    """Return the view of a report whose systems were scored in full."""
    queries = ReportQueries.of(report)
    rows = rows_of(report.systems, queries)
    worth = by_priority(rows, primary_of(report))
    details = details_of(report, queries, worth)
    blocks, note = blocks_of(details, report.index, worth, BLOCK)
    return View(_head(report, queries, rows, details, note), rows, blocks)


def primary_of(report: Report) -> str:
    """Return the primary measure: the comparison's, else the default."""
    if report.comparisons is not None:
        return report.comparisons.primary.measure
    scores = report.systems[0].scores
    if all(measure.definition.better == "none" for measure in scores.measures):
        return str(scores.measures[0])
    return primary_measure(Rule(), scores.measures, scores.conventions).measure


def _head(
    report: Report,
    queries: ReportQueries,
    rows: Mapping[str, Any],
    details: QueryDetails,
    texts_note: str | None,
) -> dict[str, Any]:
    conventions = report.systems[0].scores.conventions
    better = {str(m): m.definition.better for of in report.systems for m in of.scores.measures}
    valued = [
        name
        for name, columns in rows["values"].items()
        if any(value is not None for column in columns for value in column)
    ]
    return {
        "version": VERSION,
        "systems": [system.name for system in report.systems],
        "baseline": 0,
        # Measures with a value in any system; all if none has one.
        "measures": [{"name": name, "better": better[name]} for name in valued or better],
        "primary": primary_of(report),
        "k": conventions.k,
        "miss_at": thresholds_of(conventions.profile).miss,
        "rel": conventions.rel,
        "level": conventions.level,
        "own_k": bool((queries.own_k != conventions.k).any()),
        "queries": len(queries.ids),
        "block": BLOCK,
        "kept": KEEP,
        "classes": list(CLASSES),
        "statuses": list(STATUSES),
        "columns": list(segments_of(report.systems, queries)),
        "unjudged": [unjudged_of(system, queries) for system in report.systems],
        "bm25": details.bm25_note,
        "bm25_depth": details.bm25_depth,
        "texts": texts_note,
        "commands": [_command(report, system) for system in report.systems],
    }
