"""Items newer than the question: which ones, and what a run is worth without them.

A query's as_of says what there was to know. What is newer was not there yet, so that finding it
is no merit; a run that returns it either ignores as_of or is held against labels that did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.compare import compare_scores
from karat.analysis.contenders import Contender
from karat.analysis.panels.top_lists import MOST, measured, top_lists
from karat.analysis.staged import KEEP, Staged
from karat.analysis.verdicts import Rule
from karat.errors import MissingInputError
from karat.measures.kernels.lists import in_time
from karat.measures.names import Measure
from karat.measures.prepare import Prepared
from karat.measures.results import Scores
from karat.measures.scores import score
from karat.tables import Blocks, Run

AS_IT_IS, ENFORCED = "as it is", "as_of enforced"
_SHOWN = (
    *("measure", "better", "n", "baseline_mean", "system_mean", "delta", "ci"),
    *("p", "p_adjusted", "wins", "ties", "losses"),
)


@dataclass(frozen=True, eq=False)
class Freshness:
    """What is newer than its query's as_of, in the top k and in the gold.

    ``places`` counts the places in the top k of queries with an as_of: ``newer`` ones, those
    of ``unknown`` version, and all. ``rescored`` holds each measure as it is and with the
    filter enforced; ``strict`` takes out unknown versions too. ``shortened`` lists had nothing
    further down to fill their top k up again.
    """

    k: int
    strict: bool
    fresh: Mapping[str, Any]
    places: Mapping[str, int]
    queries: Mapping[str, int]
    documents: Sequence[Mapping[str, Any]]
    more_documents: int
    worst: Sequence[Mapping[str, Any]]
    gold: Mapping[str, Any]
    taken_out: int
    shortened: int
    rescored: Sequence[Mapping[str, Any]]

    def document(self) -> dict[str, Any]:
        """The analysis as it stands in a report."""
        return {
            "k": self.k,
            "strict": self.strict,
            "fresh": dict(self.fresh),
            "places": dict(self.places),
            "queries": dict(self.queries),
            "documents": [dict(one) for one in self.documents],
            "more_documents": self.more_documents,
            "worst": [dict(one) for one in self.worst],
            "gold": dict(self.gold),
            "taken_out": self.taken_out,
            "shortened": self.shortened,
            "rescored": [dict(one) for one in self.rescored],
        }


def freshness_measures(k: int = KEEP) -> list[str]:
    """What the run must be scored by; every other measure of relevance is scored again too."""
    return [f"Fresh@{k}", f"R@{k}", f"nDCG@{k}"]


def freshness(
    staged: Staged, run: Run | Blocks, *, k: int = KEEP, strict: bool = False
) -> Freshness:
    """How much of the top k is newer than as_of, and the run's measures without what is newer."""
    scores, gold = staged.final, staged.gold
    if not any(gold.as_of):
        raise MissingInputError("Fresh needs an as_of for each query: give --queries with it")
    fresh = measured(scores, f"Fresh@{k}")
    whole = run.read().at("final")
    top = _with_ages(top_lists(scores, gold, k), gold).filter(pl.col("as_of").is_not_null())
    late = top.filter(pl.col("in_time") == 0)
    documents = _by_document(late)
    hits = _with_ages(_placed(whole.hits, gold), gold)
    filtered = _filtered(whole, hits, strict=strict)
    taken_out = whole.hits.height - filtered.hits.height
    chosen = [measure for measure in scores.measures if _of_relevance(measure, scores)]
    again = score(filtered, gold, chosen, derived=True) if taken_out else scores
    return Freshness(
        k=k,
        strict=strict,
        fresh=fresh,
        places={
            "all": top.height,
            "newer": late.height,
            "unknown": int(top["in_time"].null_count()),
        },
        queries={"all": top["row"].n_unique(), "newer": late["row"].n_unique()},
        documents=documents[:MOST],
        more_documents=max(0, len(documents) - MOST),
        worst=_worst(late, gold),
        gold=_newer_gold(hits, gold),
        taken_out=taken_out,
        shortened=_shortened(scores, again, k),
        rescored=_compared(scores, again, chosen) if taken_out else [],
    )


def _with_ages(hits: pl.DataFrame, gold: Prepared) -> pl.DataFrame:
    """Hits (by row and version) with the query's as_of and in_time: 1, 0 newer, null unknown."""
    asked = pl.Series([one or None for one in gold.as_of], dtype=pl.String)
    version = pl.col("version").cast(pl.String)
    hits = hits.with_columns(version, as_of=asked.gather(hits["row"]))
    pairs = hits.select("version", "as_of").drop_nulls().unique()
    order = gold.conventions.versions
    ages = [in_time(version, as_of, order) for version, as_of in pairs.iter_rows()]
    known = pairs.with_columns(in_time=pl.Series(ages, dtype=pl.Float64).fill_nan(None))
    return hits.join(known, on=["version", "as_of"], how="left", maintain_order="left")


def _placed(hits: pl.DataFrame, gold: Prepared) -> pl.DataFrame:
    """All hits, each with its query's row (none of a query that nobody asks for) and version."""
    rows = pl.Series("row", gold.code_of(hits["query_id"]))
    told = [pl.col("version").cast(pl.String)] if "version" in hits.columns else []
    frame = hits.select("query_id", "item_id", rows.set(rows < 0, None), *told)
    versions = _corpus_versions(gold)
    if versions is not None:
        frame = frame.join(versions, on="item_id", how="left", maintain_order="left")
        told.append(pl.col("corpus_version"))
    return frame.with_columns(version=pl.coalesce(*told, pl.lit(None, pl.String)))


def _corpus_versions(gold: Prepared) -> pl.DataFrame | None:
    if gold.corpus is None or "version" not in gold.corpus.columns:
        return None
    return gold.corpus.select("item_id", pl.col("version").cast(pl.String).alias("corpus_version"))


def _filtered(run: Run, hits: pl.DataFrame, *, strict: bool) -> Run:
    """The run without what is newer; ranks close up when it is scored.

    A query that loses all its hits was answered with nothing: its call says so.
    """
    late = hits["in_time"] == 0
    if strict:
        late |= hits["in_time"].is_null() & hits["as_of"].is_not_null()
    kept = run.hits.filter(~late.fill_null(value=False))
    left, calls = kept["query_id"].unique().implode(), run.calls
    emptied = run.hits.select(pl.col("query_id").filter(~pl.col("query_id").is_in(left)).unique())
    if calls is not None:
        known = calls["query_id"].implode()
        emptied = emptied.filter(~pl.col("query_id").is_in(known))
        calls = pl.concat([calls, emptied.sort("query_id")], how="diagonal")
    elif emptied.height:
        calls = emptied.sort("query_id")
    return replace(run, hits=kept, calls=calls)


def _of_relevance(measure: Measure, scores: Scores) -> bool:
    """Whether a measure weighs gold that was found: those that newer items can win something in."""
    definition = measure.definition
    plain = definition.evidence is None and definition.cutoff != "path"
    directed = definition.better != "none" and str(measure) not in scores.lacks
    return plain and directed and definition.gold in {"relevant", "graded"}


def _shortened(before: Scores, after: Scores, k: int) -> int:
    if before.trace is None or after.trace is None:
        return 0
    lengths = [np.minimum(one.trace.ranked.returned, k) for one in (before, after) if one.trace]
    return int((lengths[1] < lengths[0]).sum())


def _compared(
    before: Scores, after: Scores, measures: Sequence[Measure]
) -> list[Mapping[str, Any]]:
    """Each measure with the filter against without it, query by query."""
    if not measures:
        return []
    before = replace(before, measures=tuple(measures), lists=None)
    sides = [Contender(AS_IT_IS, (before,)), Contender(ENFORCED, (after,))]
    rows = [row.document() for row in compare_scores(sides, Rule()).rows]
    names = {"baseline_mean": "as_it_is", "system_mean": "enforced"}
    return [{names.get(key, key): _plain(row[key]) for key in _SHOWN} for row in rows]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _by_document(late: pl.DataFrame) -> list[dict[str, Any]]:
    """Newer documents, those of the most queries first."""
    counted = late.group_by("doc_id", "version").agg(
        items=pl.col("item_id").n_unique(), hits=pl.len(), queries=pl.col("row").n_unique()
    )
    order = ["queries", "hits", "doc_id", "version"]
    return counted.sort(order, descending=[True, True, False, False]).to_dicts()


def _worst(late: pl.DataFrame, gold: Prepared) -> list[dict[str, Any]]:
    """The queries with the most newer items, which stand in the order of their ranks."""
    queries = late.group_by("row", maintain_order=True).agg(
        pl.col("as_of").first(), newer=pl.len(), items=pl.col("item_id")
    )
    queries = queries.sort("newer", "row", descending=[True, False]).head(MOST)
    return [
        {"query_id": gold.query_ids[row.pop("row")], **row} for row in queries.iter_rows(named=True)
    ]


def _newer_gold(hits: pl.DataFrame, gold: Prepared) -> dict[str, Any]:
    """Relevant gold that is newer than its own query: the labels are what is outdated.

    Its version is the gold's own, else the corpus's, else what the run says of the item.
    """
    rows = gold.rows.filter(pl.col("grade") >= gold.conventions.rel).rename({"code": "row"})
    if gold.conventions.level != "item":
        return {"items": rows.height, "newer": None, "unknown": None, "examples": []}
    told = [pl.col("version").cast(pl.String)] if "version" in rows.columns else []
    rows = rows.select("row", "item_id", *told)
    logged = hits.drop_nulls("version").unique("item_id", keep="first", maintain_order=True)
    logged = logged.select("item_id", logged_version="version")
    rows = rows.join(logged, on="item_id", how="left", maintain_order="left")
    versions = _corpus_versions(gold)
    if versions is not None:
        rows = rows.join(versions, on="item_id", how="left", maintain_order="left")
        told.append(pl.col("corpus_version"))
    rows = rows.with_columns(version=pl.coalesce(*told, "logged_version"))
    rows = _with_ages(rows, gold).filter(pl.col("as_of").is_not_null())
    late = rows.filter(pl.col("in_time") == 0).sort("row", "item_id")
    return {
        "items": rows.height,
        "newer": late.height,
        "unknown": int(rows["in_time"].null_count()),
        "examples": [
            {"query_id": gold.query_ids[row], "item_id": item, "version": version, "as_of": as_of}
            for row, item, version, as_of in late.head(MOST)
            .select("row", "item_id", "version", "as_of")
            .iter_rows()
        ],
    }
