"""How much of the top k says something new: documents, texts, and near-duplicates of each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.near_duplicates import THRESHOLD, NearDuplicates, near_duplicates
from karat.analysis.top_lists import (
    MOST,
    SHOWN_ROWS,
    Ints,
    Mask,
    measured,
    share_of,
    shown,
    texts_of,
    top_lists,
)
from karat.errors import MissingInputError
from karat.evaluation.stages import KEEP, Staged
from karat.measures.aggregates import Values
from karat.measures.scores import Scores
from karat.pages.formatting import figure, label, plural
from karat.pages.formatting import measured as mean_cell
from karat.pages.page import Section
from karat.pages.serialize import Record


@dataclass(frozen=True, eq=False)
class Diversity(Record):
    """The measures of diversity at k, and the near-duplicates within the lists.

    ``near`` is None where there are no texts, and ``lacks`` says what to give. Two texts are
    near-duplicates if their sets of words overlap (Jaccard) by at least ``overlap``.
    """

    k: int
    overlap: float
    measures: Sequence[Mapping[str, Any]]
    near: Mapping[str, Any] | None
    lacks: Sequence[str] = ()


def diversity_measures(k: int = KEEP) -> list[str]:
    """Return what the run must be scored by."""
    return [f"DistinctDocs@{k}", f"Redundancy@{k}", f"Novelty@{k}"]


def diversity(staged: Staged, *, k: int = KEEP, overlap: float = THRESHOLD) -> Diversity:
    """Return how many documents and how many different texts the top k holds."""
    told, lacks = [], []
    for name in diversity_measures(k):
        try:
            told.append(measured(staged.final, name))
        except MissingInputError as error:
            lacks.append(str(error))
    near = None
    if staged.gold.corpus is not None:
        near = _near(staged, k, overlap)
    elif not lacks:
        lacks.append("near-duplicates need the items' texts: give --corpus")
    return Diversity(k, overlap, told, near, lacks)


@dataclass(frozen=True, eq=False)
class _Places:
    """The places of all lists by row and rank, each with the number of its text, and their links.

    A text that nobody knows has the number -1. ``upper`` and ``lower`` are the places of two
    near-duplicates in one list, the better rank first.
    """

    row: Ints
    rank: Ints
    text: Ints
    items: pl.Series
    upper: Ints
    lower: Ints


def _near(staged: Staged, k: int, overlap: float) -> dict[str, Any]:
    """Return near-duplicates within the lists: shares, clusters and pairs."""
    top = top_lists(staged.final, staged.gold, k)
    items = top["item_id"].unique(maintain_order=True)
    texts = texts_of(items, staged.gold)
    items, texts = items.filter(texts.is_not_null()), texts.drop_nulls()
    found = near_duplicates(texts, threshold=overlap)
    numbers = pl.DataFrame({"item_id": items, "text": np.arange(len(items))})
    joined = top.join(numbers, on="item_id", how="left", maintain_order="left")
    row, rank = top["row"].to_numpy(), top["rank"].to_numpy()
    text = joined["text"].fill_null(-1).to_numpy()
    links = list(_links(row, text, found, k))
    upper, lower = (np.concatenate(side) for side in zip(*links, strict=True))
    places = _Places(row, rank, text, top["item_id"], upper, lower)
    clusters = _clusters(places)
    return {
        "places": len(row),
        "without_text": int((text < 0).sum()),
        "repeats": len(np.unique(lower)),
        "share": _share(places, staged.final),
        "clusters": len(clusters),
        "queries": len(np.unique(row[lower])),
        "largest": [_cluster(cluster, places, staged, texts) for cluster in clusters[:MOST]],
        "pairs": _pairs(places, items, texts, found),
        "complete": found.complete,
    }


def _links(row: Ints, text: Ints, found: NearDuplicates, k: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield places of one list that hold near-duplicates, by how far they stand apart."""
    first = np.where(text < 0, -1, found.same[text]) if len(found.same) else text
    width = len(found.same) + 1
    near = np.sort(found.left * width + found.right)
    yield np.empty(0, np.int64), np.empty(0, np.int64)
    for apart in range(1, min(k, len(row))):
        upper = np.flatnonzero((row[apart:] == row[:-apart]) & (first[apart:] >= 0))
        upper = upper[first[upper] >= 0]
        a, b = first[upper], first[upper + apart]
        linked = (a == b) | _among(np.minimum(a, b) * width + np.maximum(a, b), near)
        yield upper[linked], upper[linked] + apart


def _among(keys: Ints, ordered: Ints) -> Mask:
    """Return which keys are among others that are in order."""
    at = np.searchsorted(ordered, keys)
    found = np.zeros(len(keys), dtype=np.bool_)
    inside = at < len(ordered)
    found[inside] = ordered[at[inside]] == keys[inside]
    return found


def _share(places: _Places, scores: Scores) -> dict[str, Any]:
    """The mean share of a list's places that repeat a higher one, as far as texts are known."""
    known = places.text >= 0
    shown_of = np.bincount(places.row[known], minlength=scores.table.height)
    repeats = np.unique(places.lower)
    again = np.bincount(places.row[repeats], minlength=scores.table.height)
    rows = np.flatnonzero(shown_of)
    values: Values = again[rows] / shown_of[rows]
    return share_of(values, scores, rows)


def _clusters(places: _Places) -> list[Ints]:
    """Places that are linked, each cluster by rank; the largest first, then in the lists' order."""
    if not len(places.upper):
        return []
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    linked = np.unique(np.concatenate((places.upper, places.lower)))
    ends = [np.searchsorted(linked, side) for side in (places.upper, places.lower)]
    links = coo_array((np.ones(len(ends[0])), ends), shape=(len(linked), len(linked)))
    _, member = connected_components(links, directed=False)
    order = np.argsort(member, kind="stable")
    edges = np.flatnonzero(np.diff(member[order])) + 1
    groups = [linked[one] for one in np.split(order, edges)]
    return sorted(groups, key=lambda group: (-len(group), int(group[0])))


def _cluster(group: Ints, places: _Places, staged: Staged, texts: pl.Series) -> dict[str, Any]:
    first = int(group[0])
    return {
        "query_id": staged.gold.query_ids[int(places.row[first])],
        "size": len(group),
        "ranks": places.rank[group].tolist(),
        "items": places.items.gather(group).to_list(),
        "text": shown(texts[int(places.text[first])]),
    }


def _pairs(
    places: _Places, items: pl.Series, texts: pl.Series, found: NearDuplicates
) -> list[dict[str, Any]]:
    """Return the near-duplicates that occur together in the most lists."""
    names = items.to_list()
    one, other = places.text[places.upper], places.text[places.lower]
    together = Counter(
        zip(np.minimum(one, other).tolist(), np.maximum(one, other).tolist(), strict=True)
    )
    order = sorted(together, key=lambda pair: (-together[pair], *sorted(names[at] for at in pair)))
    rows = []
    for pair in order[:MOST]:
        a, b = sorted(int(found.same[at]) for at in pair)
        first, second = sorted(pair, key=names.__getitem__)
        rows.append(
            {
                "items": [names[first], names[second]],
                "queries": together[pair],
                "similarity": _likeness(a, b, found),
                "texts": [shown(texts[first]), shown(texts[second])],
            }
        )
    return rows


def _likeness(one: int, other: int, found: NearDuplicates) -> float:
    """Return how alike two texts are, each told by the first that has its words."""
    if one == other:
        return 1.0
    return float(found.similarity[(found.left == one) & (found.right == other)][0])


def diversity_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the measures of diversity, and near-duplicates within the lists."""
    grid = [["measure", "mean", "n"]]
    for one in document["measures"]:
        grid.append([one["measure"], mean_cell(one), f"{one['n']:,}"])
    near, lines = document["near"], [label(line) for line in document["lacks"]]
    title = f"Diversity of the top {document['k']}"
    if near is None:
        return [Section(title, grid, lines)]
    grid.append(["near-duplicates", mean_cell(near["share"]), f"{near['share']['n']:,}"])
    lines += _near_notes(near, document["overlap"])
    sections = [Section(title, grid, lines)]
    if near["largest"]:
        rows = [["query", "size", "ranks", "text"]]
        for one in near["largest"][:SHOWN_ROWS]:
            ranks = ", ".join(map(str, one["ranks"]))
            rows.append([label(one["query_id"]), str(one["size"]), ranks, label(one["text"] or "")])
        sections.append(Section("Largest clusters of near-duplicates", rows))
    if near["pairs"]:
        rows = [["item", "item", "queries", "overlap", "text"]]
        for one in near["pairs"][:SHOWN_ROWS]:
            items = [label(item) for item in one["items"]]
            rows.append(
                [*items, f"{one['queries']:,}", figure(one["similarity"]), label(one["texts"][0])]
            )
        sections.append(Section("Near-duplicates returned together", rows))
    return sections


def _near_notes(near: Mapping[str, Any], overlap: float) -> list[str]:
    again = f"{near['repeats']:,} of {plural(near['places'], 'place')} repeat a higher one"
    where = f"in {plural(near['queries'], 'list')}"
    lines = [f"{again} (overlap of words {overlap:g} or more), {where}"]
    if near["without_text"]:
        lines.append(f"{plural(near['without_text'], 'place')} without a text took no part")
    if not near["complete"]:
        lines.append("there was too much to compare, and some near-duplicates are missing")
    return lines
