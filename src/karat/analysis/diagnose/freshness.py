"""Items newer than the query's as_of, and a run's scores without them.

Newer items did not exist at a query's as_of, so finding them
is not a success: the run ignores as_of, or the labels are outdated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis import SystemAnalysis, first_rows
from karat.analysis.failures.case import with_ages
from karat.data.tables import Blocks, Run
from karat.errors import MissingInputError
from karat.evaluation.comparison import compare_scores
from karat.evaluation.stages import KEEP, Staged
from karat.evaluation.systems import ComparedSystem
from karat.evaluation.top_lists import MOST, measured, ranked_of, some_names, top_lists
from karat.evaluation.verdict import Rule
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.pages.formatting import PART, change, figure, interval, p_value, plural
from karat.pages.page import Section, TableColumns, table

AS_IT_IS, ENFORCED = "as it is", "as_of enforced"
_SHOWN = (
    *("measure", "better", "n", "baseline_mean", "system_mean", "delta", "ci"),
    *("p", "p_adjusted", "wins", "ties", "losses"),
)


def freshness_measures(k: int = KEEP) -> list[str]:
    """Return what the run must be scored by; other measures of relevance are scored too."""
    return [f"Fresh@{k}", f"R@{k}", f"nDCG@{k}"]


def freshness(
    staged: Staged, run: Run | Blocks, *, k: int = KEEP, strict: bool = False
) -> SystemAnalysis:
    """Return the items in the top k that are newer than as_of, and the measures without them.

    ``places`` counts the places in the top k of queries with an as_of: ``newer`` ones, those
    of ``unknown`` version, and all. ``rescored`` holds each measure as it is and with the
    filter enforced; ``strict`` takes out unknown versions too. ``shortened`` lists had nothing
    further down to fill their top k up again.
    """
    scores, gold = staged.final, staged.gold
    if not any(gold.as_of):
        raise MissingInputError("Fresh needs an as_of for each query: give --queries with it")
    fresh = measured(scores, f"Fresh@{k}")
    run = run.read().at("final")
    top = with_ages(top_lists(scores, gold, k), gold).filter(pl.col("as_of").is_not_null())
    newer = top.filter(pl.col("in_time") == 0)
    documents = newer.group_by("doc_id", "version").agg(
        items=pl.col("item_id").n_unique(), hits=pl.len(), queries=pl.col("row").n_unique()
    )
    order = ["queries", "hits", "doc_id", "version"]
    documents = documents.sort(order, descending=[True, True, False, False])
    worst = newer.group_by("row", maintain_order=True).agg(
        pl.col("as_of").first(), newer=pl.len(), items=pl.col("item_id")
    )
    worst = worst.sort("newer", "row", descending=[True, False]).head(MOST)
    rows = pl.Series("row", gold.code_of(run.hits["query_id"]))
    hits = run.hits.with_columns(rows.set(rows < 0, None))
    hits = with_ages(_with_versions(hits, gold), gold)
    filtered = _filtered(run, hits, strict=strict)
    taken_out = run.hits.height - filtered.hits.height
    rescored, shortened = [], 0
    if taken_out:
        chosen = [measure for measure in scores.measures if _of_relevance(measure, scores)]
        enforced = score(filtered, gold, chosen, derived=True)
        rescored = _compared(scores, enforced, chosen)
        lengths = [np.minimum(ranked_of(side).returned, k) for side in (scores, enforced)]
        shortened = int((lengths[1] < lengths[0]).sum())
    document = {
        "k": k,
        "strict": strict,
        "fresh": fresh,
        "places": {
            "all": top.height,
            "newer": newer.height,
            "unknown": int(top["in_time"].null_count()),
        },
        "queries": {"all": top["row"].n_unique(), "newer": newer["row"].n_unique()},
        "documents": documents.head(MOST).to_dicts(),
        "more_documents": max(0, documents.height - MOST),
        "worst": _with_query_ids(worst, gold),
        "gold": _newer_gold(hits, gold),
        "taken_out": taken_out,
        "shortened": shortened,
        "rescored": rescored,
    }
    return SystemAnalysis(document, freshness_sections)


def _with_versions(rows: pl.DataFrame, gold: Prepared, *others: pl.DataFrame) -> pl.DataFrame:
    """Return row and item_id with a version: their own, the corpus's, else that of ``others``."""
    sources = list(others)
    if gold.corpus is not None and "version" in gold.corpus.columns:
        sources.insert(0, gold.corpus)
    version_columns = ["version"] if "version" in rows.columns else []
    rows = rows.select("row", "item_id", *version_columns)
    for number, source in enumerate(sources):
        version_columns.append(f"version_{number}")
        versions = source.select("item_id", pl.col("version").alias(version_columns[-1]))
        rows = rows.join(versions, on="item_id", how="left", maintain_order="left")
    values = [pl.col(name).cast(pl.String) for name in version_columns]
    return rows.with_columns(version=pl.coalesce(*values, pl.lit(None, pl.String)))


def _filtered(run: Run, hits: pl.DataFrame, *, strict: bool) -> Run:
    """Return the run without newer items; ranks close up when it is scored.

    A query that loses all its hits was answered with nothing: its call says so.
    """
    newer = hits["in_time"] == 0
    if strict:
        newer |= hits["in_time"].is_null() & hits["as_of"].is_not_null()
    remaining = run.hits.filter(~newer.fill_null(value=False))
    emptied = run.hits.select("query_id").unique().join(remaining, on="query_id", how="anti")
    calls = [] if run.calls is None else [run.calls]
    if run.calls is not None:
        emptied = emptied.join(run.calls, on="query_id", how="anti")
    if emptied.height:
        calls.append(emptied.sort("query_id"))
    return replace(run, hits=remaining, calls=pl.concat(calls, how="diagonal") if calls else None)


def _of_relevance(measure: Measure, scores: Scores) -> bool:
    """Return whether a measure rewards found gold, so that newer items can raise it."""
    definition = measure.definition
    plain = definition.evidence is None and definition.cutoff != "path"
    directed = definition.better != "none" and str(measure) not in scores.lacks
    return plain and directed and definition.gold in {"relevant", "graded"}


def _compared(
    before: Scores, after: Scores, measures: Sequence[Measure]
) -> list[Mapping[str, Any]]:
    """Return each measure with the filter against without it, query by query."""
    if not measures:
        return []
    before = replace(before, measures=tuple(measures), lists=None)
    sides = [ComparedSystem(AS_IT_IS, (before,)), ComparedSystem(ENFORCED, (after,))]
    rows = [row.to_dict() for row in compare_scores(sides, Rule()).rows]
    names = {"baseline_mean": "as_it_is", "system_mean": "enforced"}
    return [{names.get(key, key): row[key] for key in _SHOWN} for row in rows]


def _newer_gold(hits: pl.DataFrame, gold: Prepared) -> dict[str, Any]:
    """Return the relevant gold that is newer than its query: there the labels are outdated.

    Its version is the gold's own, else the corpus's, else what the run says of the item.
    """
    rows = gold.rows.filter(gold.relevant).rename({"code": "row"})
    if gold.conventions.level != "item":
        return {"items": rows.height, "newer": None, "unknown": None, "examples": []}
    logged = hits.drop_nulls("version").unique("item_id", keep="first", maintain_order=True)
    rows = with_ages(_with_versions(rows, gold, logged), gold)
    rows = rows.filter(pl.col("as_of").is_not_null())
    newer = rows.filter(pl.col("in_time") == 0).sort("row", "item_id")
    examples = newer.head(MOST).select("row", "item_id", "version", "as_of")
    return {
        "items": rows.height,
        "newer": newer.height,
        "unknown": int(rows["in_time"].null_count()),
        "examples": _with_query_ids(examples, gold),
    }


def _with_query_ids(rows: pl.DataFrame, gold: Prepared) -> list[dict[str, Any]]:
    return [{"query_id": gold.query_ids[row.pop("row")], **row} for row in rows.to_dicts()]


def freshness_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the sections: freshness of the top k, and the measures without newer items."""
    columns: TableColumns = {
        "measure": "measure",
        "as it is": "as_it_is",
        "enforced": "enforced",
        "Δ": lambda row: f"{change(row['delta'])}{PART}{interval(row['ci'])}",
        "p": lambda row: p_value(row["p_adjusted"]),
        "+/=/−": lambda row: f"{row['wins']}/{row['ties']}/{row['losses']}",
        "n": "n",
    }
    rescored = document["rescored"]
    grid = table(rescored, columns) if rescored else None
    sections = [Section("Freshness: as_of enforced", grid, _freshness_notes(document))]
    documents = document["documents"]
    total = len(documents) + document["more_documents"]
    columns = {"doc": "doc_id", **{n: n for n in ("version", "queries", "hits", "items")}}
    sections += first_rows("Newer documents in the top", documents, columns, total=total)
    columns = {
        "query": "query_id",
        "newer": "newer",
        "item": lambda query: some_names(query["items"]),
    }
    return sections + first_rows("Queries with the most newer items", document["worst"], columns)


def _freshness_notes(document: Mapping[str, Any]) -> list[str]:
    fresh, places, queries = document["fresh"], document["places"], document["queries"]
    value = f"{figure(fresh['mean'])} {interval(fresh['ci'])}".rstrip()
    newer = f"{places['newer']:,} of {places['all']:,} places hold an item newer than as_of"
    lists = f"{queries['newer']:,} of {plural(queries['all'], 'list')}"
    lines = [f"{fresh['measure']} {value} · {newer}, in {lists}"]
    if places["unknown"]:
        fate = "taken out too" if document["strict"] else "left in"
        lines.append(f"{plural(places['unknown'], 'place')} of unknown version, {fate}")
    lines.append(f"{plural(document['taken_out'], 'hit')} taken out of whole lists")
    if document["shortened"]:
        lists = plural(document["shortened"], "list ends", "lists end")
        lines.append(
            f"{lists} before the top {document['k']} is full again: a filter inside the retriever"
            " would fill it up, so the loss here is the largest there can be"
        )
    if document["gold"]["newer"]:
        items = plural(document["gold"]["newer"], "relevant item is", "relevant items are")
        lines.append(f"{items} newer than as_of: the labels are outdated, or as_of is wrong")
    return lines
