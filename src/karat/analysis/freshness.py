"""Items newer than the question: which ones, and what a run is worth without them.

A query's as_of says what there was to know. What is newer was not there yet, so that finding it
is no merit; a run that returns it ignores as_of, or its labels do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.top_lists import MOST, SHOWN_ROWS, measured, some_names, top_lists
from karat.data.tables import Blocks, Run
from karat.errors import MissingInputError
from karat.evaluation.comparison import compare_scores
from karat.evaluation.stages import KEEP, Staged
from karat.evaluation.systems import ComparedSystem
from karat.evaluation.verdict import Rule
from karat.measure.kernels.lists import in_time
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.pages.formatting import PART, change, figure, interval, label, p_value, plural
from karat.pages.page import Section
from karat.pages.serialize import Record

AS_IT_IS, ENFORCED = "as it is", "as_of enforced"
_SHOWN = (
    *("measure", "better", "n", "baseline_mean", "system_mean", "delta", "ci"),
    *("p", "p_adjusted", "wins", "ties", "losses"),
)


@dataclass(frozen=True, eq=False)
class Freshness(Record):
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


def freshness_measures(k: int = KEEP) -> list[str]:
    """Return what the run must be scored by; other measures of relevance are scored too."""
    return [f"Fresh@{k}", f"R@{k}", f"nDCG@{k}"]


def freshness(
    staged: Staged, run: Run | Blocks, *, k: int = KEEP, strict: bool = False
) -> Freshness:
    """Return how much of the top k is newer than as_of, and the measures without it."""
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
    values = [pl.col("version").cast(pl.String)] if "version" in hits.columns else []
    frame = hits.select("query_id", "item_id", rows.set(rows < 0, None), *values)
    versions = _corpus_versions(gold)
    if versions is not None:
        frame = frame.join(versions, on="item_id", how="left", maintain_order="left")
        values.append(pl.col("corpus_version"))
    return frame.with_columns(version=pl.coalesce(*values, pl.lit(None, pl.String)))


def _corpus_versions(gold: Prepared) -> pl.DataFrame | None:
    if gold.corpus is None or "version" not in gold.corpus.columns:
        return None
    return gold.corpus.select("item_id", pl.col("version").cast(pl.String).alias("corpus_version"))


def _filtered(run: Run, hits: pl.DataFrame, *, strict: bool) -> Run:
    """Return the run without what is newer; ranks close up when it is scored.

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
    """Return each measure with the filter against without it, query by query."""
    if not measures:
        return []
    before = replace(before, measures=tuple(measures), lists=None)
    sides = [ComparedSystem(AS_IT_IS, (before,)), ComparedSystem(ENFORCED, (after,))]
    rows = [row.to_dict() for row in compare_scores(sides, Rule()).rows]
    names = {"baseline_mean": "as_it_is", "system_mean": "enforced"}
    return [{names.get(key, key): _plain(row[key]) for key in _SHOWN} for row in rows]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _by_document(late: pl.DataFrame) -> list[dict[str, Any]]:
    """Return newer documents, those of the most queries first."""
    counted = late.group_by("doc_id", "version").agg(
        items=pl.col("item_id").n_unique(), hits=pl.len(), queries=pl.col("row").n_unique()
    )
    order = ["queries", "hits", "doc_id", "version"]
    return counted.sort(order, descending=[True, True, False, False]).to_dicts()


def _worst(late: pl.DataFrame, gold: Prepared) -> list[dict[str, Any]]:
    """Return the queries with the most newer items, which stand in the order of their ranks."""
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
    values = [pl.col("version").cast(pl.String)] if "version" in rows.columns else []
    rows = rows.select("row", "item_id", *values)
    logged = hits.drop_nulls("version").unique("item_id", keep="first", maintain_order=True)
    logged = logged.select("item_id", logged_version="version")
    rows = rows.join(logged, on="item_id", how="left", maintain_order="left")
    versions = _corpus_versions(gold)
    if versions is not None:
        rows = rows.join(versions, on="item_id", how="left", maintain_order="left")
        values.append(pl.col("corpus_version"))
    rows = rows.with_columns(version=pl.coalesce(*values, "logged_version"))
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


def freshness_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the sections: freshness of the top k, and the measures without newer items."""
    grid = None
    if document["rescored"]:
        grid = [["measure", "as it is", "enforced", "Δ", "p", "+/=/−", "n"]]
        for row in document["rescored"]:
            delta = f"{change(row['delta'])}{PART}{interval(row['ci'])}"
            moved = f"{row['wins']}/{row['ties']}/{row['losses']}"
            cells = [figure(row["as_it_is"]), figure(row["enforced"]), delta]
            grid.append(
                [row["measure"], *cells, p_value(row["p_adjusted"]), moved, f"{row['n']:,}"]
            )
    sections = [Section("Freshness: as_of enforced", grid, _freshness_notes(document))]
    if document["documents"]:
        sections.append(_newer_documents(document))
    if document["worst"]:
        grid = [["query", "newer", "item"]]
        for query in document["worst"][:SHOWN_ROWS]:
            grid.append([label(query["query_id"]), str(query["newer"]), some_names(query["items"])])
        sections.append(Section("Queries with the most newer items", grid))
    return sections


def _freshness_notes(document: Mapping[str, Any]) -> list[str]:
    fresh, places, queries = document["fresh"], document["places"], document["queries"]
    value = f"{figure(fresh['mean'])} {interval(fresh['ci'])}".rstrip()
    late = f"{places['newer']:,} of {places['all']:,} places hold an item newer than as_of"
    where = f"in {queries['newer']:,} of {plural(queries['all'], 'list')}"
    lines = [f"{fresh['measure']} {value} · {late}, {where}"]
    if places["unknown"]:
        fate = "taken out too" if document["strict"] else "left in"
        lines.append(f"{plural(places['unknown'], 'place')} of unknown version, {fate}")
    if document["taken_out"]:
        lines.append(f"{plural(document['taken_out'], 'hit')} taken out of whole lists")
    else:
        lines.append("nothing had to be taken out")
    if document["shortened"]:
        lists = plural(document["shortened"], "list ends", "lists end")
        lines.append(
            f"{lists} before the top {document['k']} is full again: a filter inside the retriever"
            " would fill it up, so the loss here is the largest there can be"
        )
    gold = document["gold"]
    if gold["newer"]:
        late = plural(gold["newer"], "relevant item is", "relevant items are")
        lines.append(f"{late} newer than as_of: the labels are outdated, or as_of is wrong")
    return lines


def _newer_documents(document: Mapping[str, Any]) -> Section:
    grid = [["doc", "version", "queries", "hits", "items"]]
    for one in document["documents"][:SHOWN_ROWS]:
        counts = [f"{one[name]:,}" for name in ("queries", "hits", "items")]
        grid.append([label(one["doc_id"]), label(one["version"]), *counts])
    more = len(document["documents"]) + document["more_documents"] - SHOWN_ROWS
    return Section("Newer documents in the top", grid, [f"and {more:,} more"] if more > 0 else [])
