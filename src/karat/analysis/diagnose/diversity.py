"""Diversity of the top k: distinct documents, novel texts and near-duplicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from karat.analysis import SystemAnalysis, first_rows
from karat.analysis.diagnose.near_duplicates import THRESHOLD, NearDuplicates, near_duplicates
from karat.errors import MissingInputError
from karat.evaluation.stages import KEEP, Staged
from karat.evaluation.top_lists import MOST, measured, share_of, shown, texts_of, top_lists
from karat.pages.formatting import label, plural
from karat.pages.page import Section, TableColumns, table


def diversity_measures(k: int = KEEP) -> list[str]:
    """Return what the run must be scored by."""
    return [f"DistinctDocs@{k}", f"Redundancy@{k}", f"Novelty@{k}"]


def diversity(staged: Staged, *, k: int = KEEP, overlap: float = THRESHOLD) -> SystemAnalysis:
    """Return the measures of diversity at k, and the near-duplicates within the lists.

    ``near`` is None where there are no texts, and ``lacks`` says what to give. Two texts are
    near-duplicates if their sets of words overlap (Jaccard) by at least ``overlap``.
    """
    measures, lacks = [], []
    for name in diversity_measures(k):
        try:
            measures.append(measured(staged.final, name))
        except MissingInputError as error:
            lacks.append(str(error))
    near = None if staged.gold.corpus is None else _near(staged, k, overlap)
    if near is None and not lacks:
        lacks.append("near-duplicates need the items' texts: give --corpus")
    document = {"k": k, "overlap": overlap, "measures": measures, "near": near, "lacks": lacks}
    return SystemAnalysis(document, diversity_sections)


def _near(staged: Staged, k: int, overlap: float) -> dict[str, Any]:
    """Return near-duplicates within the lists: shares, clusters and pairs."""
    scores = staged.final
    top = top_lists(scores, staged.gold, k).select("row", "rank", "item_id")
    items = top["item_id"].unique()
    known = pl.DataFrame({"item_id": items, "text": texts_of(items, staged.gold)})
    known = known.drop_nulls().sort("item_id").with_row_index("number")
    near = near_duplicates(known["text"], threshold=overlap)
    top = top.join(known, on="item_id", how="left", maintain_order="left").with_row_index("place")
    links = _links(top, near)
    clusters = _clusters(links, top.height)
    repeats = links.unique("lower")["row"].to_numpy()
    with_text = top.drop_nulls("text")["row"].to_numpy()
    lengths, again = (
        np.bincount(rows, minlength=len(scores.query_ids)) for rows in (with_text, repeats)
    )
    rows = np.flatnonzero(lengths)
    return {
        "places": top.height,
        "without_text": top["text"].null_count(),
        "repeats": len(repeats),
        "share": share_of(again[rows] / lengths[rows], scores, rows),
        "clusters": len(clusters),
        "queries": links["row"].n_unique(),
        "largest": [
            {
                "query_id": staged.gold.query_ids[top["row"][places[0]]],
                "size": len(places),
                "ranks": top["rank"][places].to_list(),
                "items": top["item_id"][places].to_list(),
                "text": shown(top["text"][places[0]]),
            }
            for places in clusters.head(MOST).to_list()
        ],
        "pairs": _pairs(links, known),
        "complete": near.complete,
    }


def _links(top: pl.DataFrame, near: NearDuplicates) -> pl.DataFrame:
    """Return the pairs of places in one list that hold near-duplicates, the upper one first."""
    firsts = np.unique(near.same)
    neighbours = pl.DataFrame(
        {
            "first": np.concatenate((firsts, near.left, near.right)),
            "other": np.concatenate((firsts, near.right, near.left)),
            "similarity": np.concatenate((np.ones(len(firsts)), near.similarity, near.similarity)),
        }
    )
    texts = pl.DataFrame({"first": near.same}).with_row_index("number")
    upper = top.join(texts, on="number").select("row", "number", "first", upper="place")
    lower = upper.select("row", number_lower="number", other="first", lower="upper")
    links = upper.join(neighbours, on="first").join(lower, on=["row", "other"])
    return links.filter(pl.col("upper") < pl.col("lower"))


def _clusters(links: pl.DataFrame, places: int) -> pl.Series:
    """Return the linked places by cluster and rank; the largest first, then in the lists' order."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = links.select("upper", "lower").to_numpy().astype(np.int64)
    graph = coo_array((np.ones(len(ends)), tuple(ends.T)), shape=(places, places))
    linked = np.unique(ends)
    cluster = connected_components(graph, directed=False)[1][linked]
    members = pl.DataFrame({"cluster": cluster, "places": linked}).group_by("cluster").agg("places")
    size, first = pl.col("places").list.len(), pl.col("places").list.first()
    return members.sort(size, first, descending=[True, False])["places"]


def _pairs(links: pl.DataFrame, known: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the near-duplicates that occur together in the most lists."""
    # Texts are numbered in the order of their ids.
    together = links.group_by(
        low=pl.min_horizontal("number", "number_lower"),
        high=pl.max_horizontal("number", "number_lower"),
    ).agg(pl.col("similarity").first(), queries=pl.len())
    together = together.sort("queries", "low", "high", descending=[True, False, False]).head(MOST)
    items, texts = known["item_id"], known["text"]
    return [
        {
            "items": [items[number] for number in (low, high)],
            "queries": queries,
            "similarity": similarity,
            "texts": [shown(texts[number]) for number in (low, high)],
        }
        for low, high, similarity, queries in together.iter_rows()
    ]


def diversity_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the measures of diversity, and near-duplicates within the lists."""
    rows = [{**measure, "value": measure} for measure in document["measures"]]
    near, lines = document["near"], [label(line) for line in document["lacks"]]
    if near is not None:
        share = near["share"]
        rows.append({"measure": "near-duplicates", "value": share, "n": share["n"]})
        lines += _near_notes(near, document["overlap"])
    grid = table(rows, {"measure": "measure", "mean": "value", "n": "n"})
    sections = [Section(f"Diversity of the top {document['k']}", grid, lines)]
    if near is not None:
        columns: TableColumns = {
            "query": "query_id",
            "size": "size",
            "ranks": lambda cluster: ", ".join(map(str, cluster["ranks"])),
            "text": "text",
        }
        sections += first_rows("Largest clusters of near-duplicates", near["largest"], columns)
        columns = {
            "item": lambda pair: pair["items"][0],
            "near-duplicate": lambda pair: pair["items"][1],
            "queries": "queries",
            "overlap": "similarity",
            "text": lambda pair: pair["texts"][0],
        }
        sections += first_rows("Near-duplicates returned together", near["pairs"], columns)
    return sections


def _near_notes(near: Mapping[str, Any], overlap: float) -> list[str]:
    repeats = f"{near['repeats']:,} of {plural(near['places'], 'place')} repeat a higher one"
    lists = plural(near["queries"], "list")
    lines = [f"{repeats} (overlap of words {overlap:g} or more), in {lists}"]
    if near["without_text"]:
        lines.append(f"{plural(near['without_text'], 'place')} without text not compared")
    if not near["complete"]:
        lines.append("too much to compare: some near-duplicates are missing")
    return lines
