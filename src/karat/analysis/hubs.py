"""Hubs: items that stand in the top k of many queries which they do not answer.

In spaces of many dimensions some items lie near everything. How often an item stands in the
top k of a query is its k-occurrence; hubs show as a long right tail of it, a high skewness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.top_lists import MOST, SHOWN_ROWS, Ints, shown, texts_of, top_lists
from karat.evaluation.stages import KEEP, Staged, Thresholds
from karat.measure.aggregates import Values
from karat.measure.lists import without_repeats
from karat.measure.prepare import Prepared
from karat.pages.formatting import figure, label, percent, plural
from karat.pages.page import Section
from karat.pages.serialize import Record
from karat.stats.distributions import tail


@dataclass(frozen=True, eq=False)
class Hubs(Record):
    """The items that are returned where they do not belong, and how uneven the returns are.

    A hub is returned for at least ``needed`` queries whose gold it is not, and for more of them
    than chance would explain if every item were as likely to be returned as any other
    (``alpha``, corrected for the number of items). ``share`` is that of all ``places`` which the
    hubs take, ``unrelated_share`` where they are not gold. ``skewness`` is of the k-occurrences
    of all ``items``, ``by_chance`` what it would be then; without a corpus both are of items that
    were returned at least once, since nobody knows how many were not.
    """

    k: int
    queries: int
    items: int
    of: str
    places: int
    needed: int
    alpha: float
    expected: float
    skewness: float | None
    by_chance: float | None
    count: int
    hub_places: int
    unrelated_places: int
    share: float | None
    unrelated_share: float | None
    hubs: Sequence[Mapping[str, Any]]


def hubs(staged: Staged, *, k: int = KEEP, thresholds: Thresholds | None = None) -> Hubs:
    """Return which items are returned in the top k of many queries that they do not answer."""
    limits, scores, gold = thresholds or Thresholds(), staged.final, staged.gold
    top = top_lists(scores, gold, k)
    queries, occurring = top["row"].n_unique(), _occurrences(top, gold)
    whole = gold.corpus is not None
    items = occurring.height
    if gold.corpus is not None:
        items += gold.corpus.join(occurring, on="item_id", how="anti").height
    needed = max(1, limits.dominant_queries, math.ceil(round(limits.dominant_share * queries, 9)))
    chance = top.height / (queries * items) if items else 0.0
    alpha = 2 * tail(scores.conventions.ci)
    found = occurring.filter(pl.col("unrelated") >= needed)
    found = found.with_columns(p=np.minimum(_p_values(found, queries, chance) * items, 1.0))
    found = found.filter(pl.col("p") < alpha)
    found = found.sort("unrelated", "item_id", descending=[True, False])
    counts = np.zeros(items)
    counts[: occurring.height] = occurring["queries"].to_numpy()
    in_hubs, unrelated = (int(found[name].sum()) for name in ("queries", "unrelated"))
    return Hubs(
        k=k,
        queries=queries,
        items=items,
        of="corpus" if whole else "returned",
        places=top.height,
        needed=needed,
        alpha=alpha,
        expected=queries * chance,
        skewness=_skewness(counts),
        by_chance=(_binomial_skewness if whole else _truncated_skewness)(queries, chance),
        count=found.height,
        hub_places=in_hubs,
        unrelated_places=unrelated,
        share=in_hubs / top.height if top.height else None,
        unrelated_share=unrelated / top.height if top.height else None,
        hubs=_described(found.head(MOST), top, gold),
    )


def _occurrences(top: pl.DataFrame, gold: Prepared) -> pl.DataFrame:
    """For each item returned: in how many top ks, as gold, judged as no answer, not judged."""
    top = without_repeats(top)
    grade = pl.col("grade")
    right = (grade >= gold.conventions.rel).fill_null(value=False)
    wrong = (grade.is_between(0, gold.conventions.rel, closed="left")).fill_null(value=False)
    return (
        top.group_by("item_id", maintain_order=True)
        .agg(
            pl.col("doc_id").first(),
            queries=pl.len().cast(pl.Int64),
            gold=right.sum().cast(pl.Int64),
            not_relevant=wrong.sum().cast(pl.Int64),
        )
        .with_columns(unrelated=pl.col("queries") - pl.col("gold"))
        .with_columns(unjudged=pl.col("unrelated") - pl.col("not_relevant"))
    )


def _p_values(found: pl.DataFrame, queries: int, chance: float) -> Values:
    """Return the chance of so many top ks among the queries whose gold the item is not.

    Lists of different length spread less than the binomial says, so this is not too small.
    """
    from scipy.special import betainc

    tries, count = queries - found["gold"].to_numpy(), found["unrelated"].to_numpy()
    return np.asarray(betainc(count, tries - count + 1, chance))


def _skewness(values: Values, weights: Values | None = None) -> float | None:
    """Return the third central moment over the cube of the standard deviation."""
    if not len(values):
        return None
    apart = values - np.average(values, weights=weights)
    spread = float(np.average(apart**2, weights=weights))
    return float(np.average(apart**3, weights=weights)) / spread**1.5 if spread > 0 else None


def _binomial_skewness(queries: int, chance: float) -> float | None:
    spread = queries * chance * (1 - chance)
    return (1 - 2 * chance) / math.sqrt(spread) if spread > 0 else None


def _truncated_skewness(queries: int, chance: float) -> float | None:
    """Return the skewness of a binomial without its zeros, with the mean of the items returned."""
    from scipy.optimize import brentq
    from scipy.special import gammaln, xlog1py, xlogy

    mean = queries * chance
    if mean <= 1 or chance >= 1:
        return None

    def too_many(own: float) -> float:
        at_least_one = -math.expm1(queries * math.log1p(-own)) if own < 1 else 1.0
        return queries * own / at_least_one - mean

    # An item in one list is by chance in fewer than queries x own others: these ends hold it.
    own = brentq(too_many, (mean - 1) / queries, min(1.0, chance * (1 + 1e-9)))
    counts = np.arange(1.0, queries + 1)
    ways = gammaln(queries + 1) - gammaln(counts + 1) - gammaln(queries - counts + 1)
    return _skewness(counts, np.exp(ways + xlogy(counts, own) + xlog1py(queries - counts, -own)))


def _described(found: pl.DataFrame, top: pl.DataFrame, gold: Prepared) -> list[dict[str, Any]]:
    """Return the hubs with their texts, and how many different things their queries ask for."""
    texts: Sequence[str | None] = [None] * found.height
    if gold.corpus is not None:
        texts = texts_of(found["item_id"], gold).to_list()
    topics = pl.DataFrame({"row": np.arange(len(gold.query_ids)), "topic": _topics(gold)})
    where = top.filter(~(pl.col("grade") >= gold.conventions.rel).fill_null(value=False))
    where = where.join(found.select("item_id"), on="item_id", how="semi").join(topics, on="row")
    asked = dict(where.group_by("item_id").agg(pl.col("topic").n_unique()).iter_rows())
    return [
        {**hub, "topics": asked.get(hub["item_id"], 0), "text": shown(text)}
        for hub, text in zip(found.iter_rows(named=True), texts, strict=True)
    ]


def _topics(gold: Prepared) -> Ints:
    """A number for each query, the same for queries that share gold, directly or through others."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, relevant = len(gold.query_ids), gold.grade >= gold.conventions.rel
    code, unit = gold.rows["code"].to_numpy()[relevant], gold.unit[relevant]
    size = n + int(unit.max(initial=0)) + 1
    links = coo_array((np.ones(len(code)), (code, n + unit)), shape=(size, size))
    return connected_components(links, directed=False)[1][:n].astype(np.int64)


def hub_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the hubs, and how uneven the returns are."""
    grid = None
    if document["hubs"]:
        names = ("queries", "gold", "not_relevant", "unjudged", "topics")
        grid = [["item", *(name.replace("_", " ") for name in names), "text"]]
        for hub in document["hubs"][:SHOWN_ROWS]:
            counts = [f"{hub[name]:,}" for name in names]
            grid.append([label(hub["item_id"]), *counts, label(hub["text"] or "")])
        if not any(hub["text"] for hub in document["hubs"]):
            grid = [row[:-1] for row in grid]
    return [Section(f"Hubs in the top {document['k']}", grid, _hub_notes(document))]


def _hub_notes(document: Mapping[str, Any]) -> list[str]:
    asked = plural(document["queries"], "query", "queries")
    what = f"in the top {document['k']} of {document['needed']:,} or more of {asked}"
    found = plural(document["count"], "item") if document["count"] else "no item"
    lines = [f"{found} {what} without being their gold, and more often than by chance"]
    if document["needed"] > document["queries"]:
        needed = f"a hub is in {document['needed']:,} or more"
        lines = [f"lists of only {asked}: too few to tell, since {needed}"]
    if document["count"]:
        lines.append(
            f"they take {percent(document['share'])} of {plural(document['places'], 'place')},"
            f" {percent(document['unrelated_share'])} where they are not gold"
        )
    if document["count"] > SHOWN_ROWS:
        lines.append(f"the {SHOWN_ROWS} most frequent are shown")
    if document["skewness"] is not None:
        of = "items of the corpus" if document["of"] == "corpus" else "items returned"
        chance = figure(document["by_chance"])
        lines.append(
            f"skewness of the returns over {document['items']:,} {of}:"
            f" {figure(document['skewness'])}; {chance} if all were equally likely"
        )
    return lines
