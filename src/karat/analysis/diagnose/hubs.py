"""Hubs: items in the top k of many queries that they do not answer.

In spaces of many dimensions some items lie near everything. How often an item is in the
top k of a query is its k-occurrence; hubs show as a long right tail of it, a high skewness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from karat.analysis import SystemAnalysis
from karat.evaluation.stages import KEEP, Staged, Thresholds
from karat.evaluation.top_lists import MOST, SHOWN_ROWS, shown_texts, top_lists
from karat.measure.aggregates import Values
from karat.measure.lists import without_repeats
from karat.measure.prepare import Prepared
from karat.pages.formatting import figure, percent, plural
from karat.pages.page import Section, table
from karat.stats.distributions import tail


def hubs(staged: Staged, *, k: int = KEEP, thresholds: Thresholds | None = None) -> SystemAnalysis:
    """Return the items that are in the top k of many queries that they do not answer.

    A hub is returned for at least ``needed`` queries whose gold it is not, and for more of them
    than chance would explain if every item were as likely to be returned as any other (``alpha``,
    corrected for the number of items). ``share`` is that of all ``places`` which the hubs take,
    ``unrelated_share`` where they are not gold. ``skewness`` is of the k-occurrences of all
    ``items``, ``by_chance`` its value if all items were equally likely; without a corpus both are
    of items that were returned at least once, since nobody knows how many were not.
    """
    from scipy.special import betainc

    limits, scores, gold = thresholds or Thresholds(), staged.final, staged.gold
    top = top_lists(scores, gold, k).with_columns(
        answers=(pl.col("grade") >= gold.conventions.rel).fill_null(value=False)
    )
    queries, occurring = top["row"].n_unique(), _occurrences(top)
    items = occurring.height
    if gold.corpus is not None:
        items += gold.corpus.join(occurring, on="item_id", how="anti").height
    needed = max(1, limits.dominant_queries, math.ceil(round(limits.dominant_share * queries, 9)))
    chance = top.height / (queries * items) if items else 0.0
    alpha = 2 * tail(scores.conventions.ci)
    crowds = occurring.filter(pl.col("unrelated") >= needed)
    tries, count = queries - crowds["gold"].to_numpy(), crowds["unrelated"].to_numpy()
    # Lists of different length spread less than the binomial says, so p is not too small.
    p = np.asarray(betainc(count, tries - count + 1, chance))
    crowds = crowds.with_columns(p=np.minimum(p * items, 1.0)).filter(pl.col("p") < alpha)
    crowds = crowds.sort("unrelated", "item_id", descending=[True, False])
    counts = np.zeros(items)
    counts[: occurring.height] = occurring["queries"].to_numpy()
    in_hubs, unrelated = (int(crowds[name].sum()) for name in ("queries", "unrelated"))
    by_chance = _truncated_skewness if gold.corpus is None else _binomial_skewness
    document = {
        "k": k,
        "queries": queries,
        "items": items,
        "of": "returned" if gold.corpus is None else "corpus",
        "places": top.height,
        "needed": needed,
        "alpha": alpha,
        "expected": queries * chance,
        "skewness": _skewness(counts),
        "by_chance": by_chance(queries, chance),
        "count": crowds.height,
        "hub_places": in_hubs,
        "unrelated_places": unrelated,
        "share": in_hubs / top.height if top.height else None,
        "unrelated_share": unrelated / top.height if top.height else None,
        "hubs": _described(crowds.head(MOST), top, gold),
    }
    return SystemAnalysis(document, hub_sections)


def _occurrences(top: pl.DataFrame) -> pl.DataFrame:
    """Return how many top ks hold each item: as gold, judged as no answer, and not judged."""
    wrong = (~pl.col("answers") & (pl.col("grade") >= 0)).fill_null(value=False)
    return (
        without_repeats(top)
        .group_by("item_id", maintain_order=True)
        .agg(
            pl.col("doc_id").first(),
            queries=pl.len().cast(pl.Int64),
            gold=pl.col("answers").sum().cast(pl.Int64),
            not_relevant=wrong.sum().cast(pl.Int64),
        )
        .with_columns(unrelated=pl.col("queries") - pl.col("gold"))
        .with_columns(unjudged=pl.col("unrelated") - pl.col("not_relevant"))
    )


def _skewness(values: Values, weights: Values | None = None) -> float | None:
    """Return the third central moment over the cube of the standard deviation."""
    if not len(values):
        return None
    deviations = values - np.average(values, weights=weights)
    spread = float(np.average(deviations**2, weights=weights))
    return float(np.average(deviations**3, weights=weights)) / spread**1.5 if spread > 0 else None


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

    def too_many(p: float) -> float:
        at_least_one = -math.expm1(queries * math.log1p(-p)) if p < 1 else 1.0
        return queries * p / at_least_one - mean

    # An item in one list is by chance in fewer than queries x p others: these ends hold it.
    p = brentq(too_many, (mean - 1) / queries, min(1.0, chance * (1 + 1e-9)))
    counts = np.arange(1.0, queries + 1)
    ways = gammaln(queries + 1) - gammaln(counts + 1) - gammaln(queries - counts + 1)
    return _skewness(counts, np.exp(ways + xlogy(counts, p) + xlog1py(queries - counts, -p)))


def _described(crowds: pl.DataFrame, top: pl.DataFrame, gold: Prepared) -> list[dict[str, Any]]:
    """Return the hubs with their texts, and how many different things their queries ask for.

    Queries that share gold, directly or through others, are of one topic.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(gold.query_ids)
    code, unit = gold.rows["code"].to_numpy()[gold.relevant], gold.unit[gold.relevant]
    size = n + int(unit.max(initial=0)) + 1
    links = coo_array((np.ones(len(code)), (code, n + unit)), shape=(size, size))
    topic = connected_components(links, directed=False)[1][:n]
    topics = pl.DataFrame({"row": np.arange(n), "topic": topic})
    unanswered = top.filter(~pl.col("answers")).join(topics, on="row")
    counts = dict(unanswered.group_by("item_id").agg(pl.col("topic").n_unique()).iter_rows())
    texts = shown_texts(crowds["item_id"], gold)
    return [
        {**hub, "topics": counts.get(hub["item_id"], 0), "text": text}
        for hub, text in zip(crowds.iter_rows(named=True), texts, strict=True)
    ]


def hub_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the hubs, and how uneven the returns are."""
    columns = {
        "item": "item_id",
        "queries": "queries",
        "gold": "gold",
        "not relevant": "not_relevant",
        "unjudged": "unjudged",
        "topics": "topics",
        "text": "text",
    }
    rows = document["hubs"][:SHOWN_ROWS]
    grid = table(rows, columns) if rows else None
    return [Section(f"Hubs in the top {document['k']}", grid, _hub_notes(document))]


def _hub_notes(document: Mapping[str, Any]) -> list[str]:
    queries = plural(document["queries"], "query", "queries")
    needed, count = document["needed"], document["count"]
    text = f"lists of only {queries}: too few to tell, since a hub is in {needed:,} or more"
    if needed <= document["queries"]:
        items = plural(count, "item") if count else "no item"
        text = f"{items} in the top {document['k']} of {needed:,} or more of {queries}"
        text += " without being their gold, and more often than by chance"
    lines = [text]
    if count:
        lines.append(
            f"they take {percent(document['share'])} of {plural(document['places'], 'place')},"
            f" {percent(document['unrelated_share'])} where they are not gold"
        )
    if count > SHOWN_ROWS:
        lines.append(f"the {SHOWN_ROWS} most frequent are shown")
    if document["skewness"] is not None:
        of = "items of the corpus" if document["of"] == "corpus" else "items returned"
        lines.append(
            f"skewness of the returns over {document['items']:,} {of}:"
            f" {figure(document['skewness'])};"
            f" {figure(document['by_chance'])} if all were equally likely"
        )
    return lines
