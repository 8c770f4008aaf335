"""Single queries in full: their gold, every system's list beside it, and BM25's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.staged import KEEP, Staged
from karat.analysis.triage.gold_texts import GoldItem, gold_of
from karat.analysis.triage.triage import BM25_DEPTH
from karat.measures.ranked import Ints
from karat.measures.results import Scores
from karat.reports.bm25_lists import bm25_lists
from karat.reports.document import Report, System
from karat.reports.figures import several
from karat.reports.html.rows import Asked
from karat.reports.html.shown import shown
from karat.reports.html.worth import first
from karat.retrievers.corpus_index import CorpusIndex

Row = Mapping[str, Any]
# An item, its score and its grade, each None where nobody says.
Hit = tuple[str, float | None, float | None]

# So many queries get BM25's list, fewer where so many scores of items would have to be worked
# out; gold is looked for in it as deep as ``karat triage`` does, and less deep for many queries:
# more would take longer than the evaluation.
MOST_BM25, MOST_SCORES = 2_000, 50_000_000
FEW_BM25, LESS_DEEP = 500, 100
# A query with more gold than this is listed with its best.
MOST_GOLD = 50
_NOTES = ("notes", "note")
_LONGEST_VALUE = 500


@dataclass(frozen=True, eq=False)
class Cases:
    """All that is known of every query, by row of the score tables."""

    asked: Asked
    columns: Sequence[_Column]
    gold: Mapping[int, Sequence[GoldItem]]
    negatives: Mapping[int, Sequence[str]]
    attributes: Sequence[Row]
    index: CorpusIndex | None
    bm25: _Column | None
    bm25_lacks: str | None

    @classmethod
    def of(cls, report: Report, asked: Asked, worth: Ints) -> Cases:
        """Those of a report; ``worth`` says for which queries BM25 is asked, if not for all."""
        staged = next((one.staged for one in report.systems if one.staged is not None), None)
        rows = range(len(asked.ids))
        bm25, lacks = _bm25(report, asked, worth, staged)
        return cls(
            asked=asked,
            columns=[_Column.of(system) for system in report.systems],
            gold={} if staged is None else gold_of(staged.gold, rows, report.index),
            negatives=_negatives(report, asked),
            attributes=_attributes(asked),
            index=report.index,
            bm25=bm25,
            bm25_lacks=lacks,
        )

    def blocks(self, size: int) -> list[list[dict[str, Any]]]:
        """Every query in full, so many at a time."""
        rows = range(len(self.asked.ids))
        return [[self.detail(row) for row in rows[at : at + size]] for at in rows[::size]]

    def detail(self, row: int) -> dict[str, Any]:
        """One query in full, without texts."""
        told = dict(self.attributes[row])
        notes = [told.pop(name, None) for name in _NOTES]
        gold = self.gold.get(row, ())
        return {
            "index": row,
            "query_id": self.asked.ids[row],
            "text": self.asked.texts[row],
            "note": next((note for note in notes if note), None),
            "attributes": told,
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
class _Column:
    """One system's lists: the top of each query, where judged items stand, and its calls."""

    statuses: Sequence[str]
    hits: Mapping[int, list[Hit]]
    places: Mapping[str, Mapping[int, int]]
    searched: int | None
    misses: Mapping[int, tuple[str, str]]
    calls: Mapping[str, Row]
    ids: Sequence[str]

    @classmethod
    def of(cls, system: System) -> _Column:
        """What is known of a system; of a stored one little more than its statuses."""
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
        """What the system made of one query."""
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
        """At which rank each list of the system has a judged item, where it has it."""
        found = {name: places.get(judgment) for name, places in self.places.items()}
        return {name: rank for name, rank in found.items() if rank is not None}


def _hits(scores: Scores) -> dict[int, list[Hit]]:
    """The top of every list, as far as it was kept."""
    lists = scores.lists
    if lists is None:
        return {}
    score = pl.col("score") if "score" in lists.columns else pl.lit(None, pl.Float64)
    top = lists.filter(pl.col("rank") <= KEEP).sort("row", "rank")
    # Seven digits tell any two scores apart that a reader would.
    told = top.select("row", "item_id", score.round_sig_figs(7).alias("score"), "grade")
    found: dict[int, list[Hit]] = {}
    for row, *hit in told.iter_rows():
        found.setdefault(row, []).append((hit[0], _finite(hit[1]), hit[2]))
    return found


def _finite(score: float | None) -> float | None:
    return score if score is not None and np.isfinite(score) else None


def _stages(staged: Staged) -> dict[str, dict[int, int]]:
    """Where the lists of each stage have judged items, the final ones first."""
    lists = {"final": staged.final, **staged.line, **staged.beside}
    return {name: _places(scores) for name, scores in lists.items()}


def _places(scores: Scores) -> dict[int, int]:
    """The rank at which a list first has each judgment, by the judgment's row in the gold."""
    found = None if scores.trace is None else scores.trace.ranked.found
    if found is None or found.row is None:
        return {}
    # By rank within a query: of several the first one stays.
    return dict(zip(found.row[::-1].tolist(), found.rank[::-1].tolist(), strict=True))


def _calls(scores: Scores, staged: Staged | None) -> dict[str, Row]:
    """What a log says of each call besides its lists: times, costs, errors, other words."""
    calls = scores.calls if staged is None or staged.calls is None else staged.calls
    if calls is None:
        return {}
    plain = [name for name, kind in calls.schema.items() if not kind.is_nested()]
    told = calls.select(name for name in plain if name != "query")
    return {
        row.pop("query_id"): {name: _told(value) for name, value in row.items() if _says(value)}
        for row in told.iter_rows(named=True)
    }


def _says(value: Any) -> bool:
    return value not in (None, "") and not (isinstance(value, float) and not np.isfinite(value))


def _told(value: Any) -> Any:
    """A value of a file as JSON holds it, cut where nobody would read on."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [_told(one) for one in value[:20]]
    text = shown(str(value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _attributes(asked: Asked) -> list[Row]:
    """What the queries file says of each query besides its text, in the order of the table."""
    if asked.queries is None:
        return [{}] * len(asked.ids)
    frame = asked.queries.frame.drop("text")
    own = {row.pop("query_id"): _plain(row) for row in frame.iter_rows(named=True)}
    return [own.get(query_id, {}) for query_id in asked.ids]


def _plain(row: Mapping[str, Any]) -> Row:
    return {name: _told(value) for name, value in row.items() if value not in (None, "", [], False)}


def _negatives(report: Report, asked: Asked) -> dict[int, list[str]]:
    """The items that somebody marked as hard to tell from gold."""
    gold = None if report.tables is None else report.tables.gold.frame
    if gold is None or "negative" not in gold.columns:
        return {}
    numbers = {query_id: row for row, query_id in enumerate(asked.ids)}
    found: dict[int, list[str]] = {}
    for query_id, item_id in gold.filter("negative").select("query_id", "item_id").iter_rows():
        if query_id in numbers:
            found.setdefault(numbers[query_id], []).append(item_id)
    return found


def _bm25(
    report: Report, asked: Asked, worth: Ints, staged: Staged | None
) -> tuple[_Column | None, str | None]:
    """BM25's lists for the queries that are worth most, and what is to be said of that."""
    if staged is None:
        return None, "BM25's list needs the runs, and these scores come from a store"
    items = 1 if report.index is None else max(len(report.index), 1)
    chosen = first(worth, min(MOST_BM25, max(MOST_SCORES // items, 1)))
    texts = {row: text for row in chosen if (text := asked.texts[row]) is not None}
    depth = BM25_DEPTH if len(texts) <= FEW_BM25 else LESS_DEEP
    scores, lacks = bm25_lists(report.index, staged.gold, texts, depth)
    if scores is None:
        return None, lacks
    column = _Column(
        statuses=(),
        hits=_hits(scores),
        places={"final": _places(scores)},
        searched=depth,
        misses={},
        calls={},
        ids=(),
    )
    left_out = len(asked.ids) - len(texts)
    many = several(len(texts), "query", "queries")
    told = f"BM25's list is here for {many}: those that miss or differ most"
    return column, told if left_out and len(chosen) < len(asked.ids) else None


def items_in(details: Sequence[Row]) -> Iterator[str]:
    """The ids of all items in some queries, gold first, each list from its top."""
    for detail in details:
        yield from (item["item_id"] for item in detail["gold"])
        for system in detail["systems"]:
            yield from (hit[0] for hit in system["hits"])
        yield from (hit[0] for hit in detail["bm25"] or ())
