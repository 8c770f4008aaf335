"""Single queries in full: their gold, every system's list beside it, and BM25's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.triage import BM25_DEPTH, bm25_lists
from karat.analysis.triage.texts import GoldItem, gold_of
from karat.evaluation.stages import KEEP, Staged
from karat.measures.ranked import Ints
from karat.measures.scores import Scores
from karat.pages.formatting import plural
from karat.report.document import Report, System
from karat.report.html.rows import ReportQueries, first_of, readable
from karat.retrieve.corpus_index import CorpusIndex

Row = Mapping[str, Any]
# An item, its score and its grade; None where unknown.
Hit = tuple[str, float | None, float | None]

# At most this many queries get BM25's list, fewer in a large corpus. Gold is searched as deep as
# ``karat triage`` does, and less deep for many queries; more would take longer than evaluating.
MOST_BM25, MOST_SCORES = 2_000, 50_000_000
FEW_BM25, LESS_DEEP = 500, 100
# Of more gold, the best is listed.
MOST_GOLD = 50
_NOTES = ("notes", "note")
_LONGEST_VALUE = 500


@dataclass(frozen=True, eq=False)
class QueryDetails:
    """Everything known about every query, by row of the score tables."""

    asked: ReportQueries
    columns: Sequence[_SystemLists]
    gold: Mapping[int, Sequence[GoldItem]]
    negatives: Mapping[int, Sequence[str]]
    attributes: Sequence[Row]
    index: CorpusIndex | None
    bm25: _SystemLists | None
    bm25_lacks: str | None

    @classmethod
    def of(cls, report: Report, queries: ReportQueries, worth: Ints) -> QueryDetails:
        """Return those of a report; ``worth`` orders the queries for which BM25 is searched."""
        staged = next(
            (system.staged for system in report.systems if system.staged is not None), None
        )
        rows = range(len(queries.ids))
        bm25, lacks = _bm25(report, queries, worth, staged)
        return cls(
            asked=queries,
            columns=[_SystemLists.of(system) for system in report.systems],
            gold={} if staged is None else gold_of(staged.gold, rows, report.index),
            negatives=_negatives(report, queries),
            attributes=_attributes(queries),
            index=report.index,
            bm25=bm25,
            bm25_lacks=lacks,
        )

    def blocks(self, size: int) -> list[list[dict[str, Any]]]:
        """Return every query in full, in blocks of a size."""
        rows = range(len(self.asked.ids))
        return [[self.detail(row) for row in rows[at : at + size]] for at in rows[::size]]

    def detail(self, row: int) -> dict[str, Any]:
        """Return one query in full, without texts."""
        attributes = dict(self.attributes[row])
        notes = [attributes.pop(name, None) for name in _NOTES]
        gold = self.gold.get(row, ())
        return {
            "index": row,
            "query_id": self.asked.ids[row],
            "text": self.asked.texts[row],
            "note": next((note for note in notes if note), None),
            "attributes": attributes,
            "gold": [self._gold(item) for item in gold[:MOST_GOLD]],
            "gold_left_out": max(len(gold) - MOST_GOLD, 0),
            "systems": [column.detail(row) for column in self.columns],
            "bm25": None if self.bm25 is None else self.bm25.hits.get(row),
            "negatives": self.negatives.get(row, []),
        }

    def _gold(self, item: GoldItem) -> dict[str, Any]:
        return {
            "item_id": item.item_id,
            "doc_id": item.doc_id,
            "grade": item.grade,
            "in_corpus": item.in_corpus,
            "version": item.version,
            "section": item.section,
            "ranks": [column.ranks(item.judgment) for column in self.columns],
            "bm25": None if self.bm25 is None else self.bm25.places["final"].get(item.judgment),
        }


@dataclass(frozen=True, eq=False)
class _SystemLists:
    """One system's lists: the top of each query, the ranks of judged items, and its calls."""

    statuses: Sequence[str]
    hits: Mapping[int, list[Hit]]
    places: Mapping[str, Mapping[int, int]]
    searched: int | None
    misses: Mapping[int, tuple[str, str]]
    calls: Mapping[str, Row]
    ids: Sequence[str]

    @classmethod
    def of(cls, system: System) -> _SystemLists:
        """Return what is known about a system; for a stored one only its statuses."""
        scores, staged = system.scores, system.staged
        failures = () if system.failures is None else system.failures.queries
        return cls(
            statuses=scores.status.to_list(),
            hits=_hits(scores),
            places={} if staged is None else _stages(staged),
            searched=None if staged is None else staged.depth(staged.final).known,
            misses={miss.row: (miss.kind, miss.because) for miss in failures},
            calls=_calls(scores, staged),
            ids=scores.table["query_id"].to_list(),
        )

    def detail(self, row: int) -> dict[str, Any]:
        """Return the result of the system for one query."""
        kind, because = self.misses.get(row, (None, None))
        call = dict(self.calls.get(self.ids[row], {}))
        return {
            "status": self.statuses[row],
            "error": call.pop("error", None),
            "class": kind,
            "because": because,
            "searched": self.searched,
            "hits": self.hits.get(row, []),
            "calls": call,
        }

    def ranks(self, judgment: int) -> dict[str, int]:
        """Return the rank of a judged item in each list of the system that has it."""
        ranks = {name: places.get(judgment) for name, places in self.places.items()}
        return {name: rank for name, rank in ranks.items() if rank is not None}


def _hits(scores: Scores) -> dict[int, list[Hit]]:
    """Return the top of every list, as far as it was kept."""
    lists = scores.lists
    if lists is None:
        return {}
    score = pl.col("score") if "score" in lists.columns else pl.lit(None, pl.Float64)
    top = lists.filter(pl.col("rank") <= KEEP).sort("row", "rank")
    # Seven digits are enough to see that two scores differ.
    columns = top.select("row", "item_id", score.round_sig_figs(7).alias("score"), "grade")
    hits: dict[int, list[Hit]] = {}
    for row, *hit in columns.iter_rows():
        hits.setdefault(row, []).append((hit[0], _finite(hit[1]), hit[2]))
    return hits


def _finite(score: float | None) -> float | None:
    return score if score is not None and np.isfinite(score) else None


def _stages(staged: Staged) -> dict[str, dict[int, int]]:
    """Return the ranks of judged items in the lists of each stage, the final ones first."""
    lists = {"final": staged.final, **staged.line, **staged.beside}
    return {name: _places(scores) for name, scores in lists.items()}


def _places(scores: Scores) -> dict[int, int]:
    """Return the best rank of each judgment, by its row in the gold."""
    matches = None if scores.trace is None else scores.trace.ranked.found
    if matches is None or matches.row is None:
        return {}
    # Sorted by rank within a query, so the best rank of a judgment wins.
    return dict(zip(matches.row[::-1].tolist(), matches.rank[::-1].tolist(), strict=True))


def _calls(scores: Scores, staged: Staged | None) -> dict[str, Row]:
    """Return what a log says about each call besides its lists: times, costs, errors."""
    calls = scores.calls if staged is None or staged.calls is None else staged.calls
    if calls is None:
        return {}
    plain = [name for name, kind in calls.schema.items() if not kind.is_nested()]
    columns = calls.select(name for name in plain if name != "query")
    return {
        row.pop("query_id"): {
            name: _plain_value(value) for name, value in row.items() if _says(value)
        }
        for row in columns.iter_rows(named=True)
    }


def _says(value: Any) -> bool:
    return value not in (None, "") and not (isinstance(value, float) and not np.isfinite(value))


def _plain_value(value: Any) -> Any:
    """Return a value from a file as JSON, cut if it is long."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [_plain_value(element) for element in value[:20]]
    text = readable(str(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _attributes(queries: ReportQueries) -> list[Row]:
    """Return what the queries file says about each query besides its text."""
    if queries.queries is None:
        return [{}] * len(queries.ids)
    frame = queries.queries.frame.drop("text")
    attributes = {row.pop("query_id"): _plain(row) for row in frame.iter_rows(named=True)}
    return [attributes.get(query_id, {}) for query_id in queries.ids]


def _plain(row: Mapping[str, Any]) -> Row:
    return {
        name: _plain_value(value)
        for name, value in row.items()
        if value not in (None, "", [], False)
    }


def _negatives(report: Report, queries: ReportQueries) -> dict[int, list[str]]:
    """Return the items that are marked as hard negatives."""
    gold = None if report.tables is None else report.tables.gold.frame
    if gold is None or "negative" not in gold.columns:
        return {}
    numbers = {query_id: row for row, query_id in enumerate(queries.ids)}
    negatives: dict[int, list[str]] = {}
    for query_id, item_id in gold.filter("negative").select("query_id", "item_id").iter_rows():
        if query_id in numbers:
            negatives.setdefault(numbers[query_id], []).append(item_id)
    return negatives


def _bm25(
    report: Report, queries: ReportQueries, worth: Ints, staged: Staged | None
) -> tuple[_SystemLists | None, str | None]:
    """Return BM25's lists for the queries of highest priority, and a note on what is left out."""
    if staged is None:
        return None, "BM25's list needs the runs, and these scores come from a store"
    items = 1 if report.index is None else max(len(report.index), 1)
    chosen = first_of(worth, min(MOST_BM25, max(MOST_SCORES // items, 1)))
    texts = {row: text for row in chosen if (text := queries.texts[row]) is not None}
    depth = BM25_DEPTH if len(texts) <= FEW_BM25 else LESS_DEEP
    scores, lacks = bm25_lists(report.index, staged.gold, texts, depth)
    if scores is None:
        return None, lacks
    column = _SystemLists(
        statuses=(),
        hits=_hits(scores),
        places={"final": _places(scores)},
        searched=depth,
        misses={},
        calls={},
        ids=(),
    )
    left_out = len(queries.ids) - len(texts)
    many = plural(len(texts), "query", "queries")
    note = f"BM25 was searched for {many}, those that miss or differ most"
    return column, note if left_out and len(chosen) < len(queries.ids) else None


def items_in(details: Sequence[Row]) -> Iterator[str]:
    """Yield the ids of all items in some queries, gold first, each list from its top."""
    for detail in details:
        yield from (item["item_id"] for item in detail["gold"])
        for system in detail["systems"]:
            yield from (hit[0] for hit in system["hits"])
        yield from (hit[0] for hit in detail["bm25"] or ())


# The characters that a file of a few megabytes has room for, and the lengths of a text.
ROOM, LONGEST, SHORTEST = 5_000_000, 2_000, 240


@dataclass(frozen=True, eq=False)
class TextBlocks:
    """The blocks of a view with their texts; ``note`` says what is missing and why."""

    blocks: Sequence[Mapping[str, Any]]
    note: str | None


def add_texts(blocks: Sequence[Sequence[Row]], cases: QueryDetails, worth: Ints) -> TextBlocks:
    """Return the blocks with texts, those of the queries of highest priority first."""
    if cases.index is None:
        bare = [{"queries": list(block), "texts": {}} for block in blocks]
        return TextBlocks(bare, "no texts: the items' texts need a corpus; give --corpus")
    wanted = _items_by_priority(blocks, worth)
    texts_of_items = _texts_of(
        cases, {item for block_queries, _ in wanted for item in block_queries}
    )
    longest = LONGEST if _size(wanted, texts_of_items, LONGEST) <= ROOM else SHORTEST
    texts: list[dict[str, Row]] = [{} for _ in blocks]
    room, served = ROOM, 0
    for items, block in wanted:
        new = [item for item in items if item in texts_of_items and item not in texts[block]]
        cost = sum(min(len(texts_of_items[item]["text"]), longest) for item in new)
        if cost > room:
            break
        room, served = room - cost, served + 1
        texts[block] |= {item: _text(texts_of_items[item], longest) for item in new}
    filled = [
        {"queries": list(block_queries), "texts": block_texts}
        for block_queries, block_texts in zip(blocks, texts, strict=True)
    ]
    return TextBlocks(filled, _missing_texts(served, len(wanted), longest))


def _items_by_priority(blocks: Sequence[Sequence[Row]], worth: Ints) -> list[tuple[list[str], int]]:
    """Return the items and the block of each query, by priority."""
    size = max(len(blocks[0]), 1) if blocks else 1
    return [
        (list(dict.fromkeys(items_in([blocks[row // size][row % size]]))), row // size)
        for row in worth.tolist()
    ]


def _texts_of(cases: QueryDetails, items: set[str]) -> dict[str, Row]:
    """Return what the corpus says about items; the gold's own text for spans and documents."""
    texts: dict[str, Row] = {}
    if cases.index is not None:
        frame = cases.index.rows(sorted(items))
        title = pl.col("title") if "title" in frame.columns else pl.lit(None, pl.String)
        columns = frame.select("item_id", "text", title.cast(pl.String).alias("title"))
        texts = {row["item_id"]: row for row in columns.iter_rows(named=True)}
    for item in (item for judged in cases.gold.values() for item in judged):
        if item.text is not None and item.item_id not in texts:
            texts[item.item_id] = {"text": item.text, "title": None}
    return texts


def _size(wanted: Sequence[tuple[list[str], int]], texts: Mapping[str, Row], longest: int) -> int:
    """Return how many characters all texts take, each counted once per block."""
    pairs = {(block, item) for items, block in wanted for item in items if item in texts}
    return sum(min(len(texts[item]["text"]), longest) for _, item in pairs)


def _text(row: Row, longest: int) -> dict[str, Any]:
    text = row["text"]
    cut = len(text) > longest
    return {"text": readable(text[:longest]), "cut": cut, "title": row["title"]}


def _missing_texts(served: int, queries: int, longest: int) -> str | None:
    if served < queries:
        return (
            f"this file has texts for {served:,} of {queries:,} queries, those that miss or "
            f"differ most, up to {longest:,} characters each; more would make it too large"
        )
    if longest < LONGEST:
        return f"texts are cut after {longest:,} characters to keep this file small"
    return None
