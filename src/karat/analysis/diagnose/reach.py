"""Reach: gold, items and documents that a run never returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from karat.analysis import SystemAnalysis, counted_lines, first_rows, judgments_met
from karat.data.tables import Blocks, Run
from karat.errors import MissingInputError
from karat.evaluation.stages import KEEP, Staged
from karat.evaluation.top_lists import (
    MOST,
    Ints,
    Mask,
    judged_by,
    measured,
    shown,
    shown_texts,
    some_names,
    top_lists,
    unanswered,
)
from karat.measure.prepare import Prepared
from karat.measure.scores import Scores
from karat.pages.formatting import label, percent
from karat.pages.page import Section, TableColumns, table
from karat.stats.distributions import share_interval

# The words for each count that is not 0, singular and plural.
_GOLD_NOTES = {
    "not_asked": (
        "relevant item belongs only to queries whose call failed or that the run lacks",
        "relevant items belong only to queries whose call failed or that the run lacks",
    ),
    "not_in_corpus": (
        "relevant item is not in the corpus, so nothing can find it",
        "relevant items are not in the corpus, so nothing can find them",
    ),
}
_CORPUS_NOTES = {
    "never_gold": ("item of the gold is never returned", "items of the gold are never returned"),
    "unreachable_gold": (
        "document with gold is never returned: check that it is indexed",
        "documents with gold are never returned: check that they are indexed",
    ),
    "unknown": ("returned item is not in the corpus", "returned items are not in the corpus"),
}


def reach_measures(k: int = KEEP) -> list[str]:
    """Return what the run must be scored by."""
    return [f"Coverage@{k}", f"Coverage(of='corpus')@{k}"]


def reach(staged: Staged, run: Run | Blocks | None = None, *, k: int = KEEP) -> SystemAnalysis:
    """Return how much of the gold and of the corpus was ever returned.

    Of the gold (items, documents or spans, each once) the share found for a query whose gold it is:
    in the ``top`` k, in the ``final`` lists and in ``any`` list of any stage, to their depth.
    ``lost`` names the gold in no list; ``not_asked`` counts gold only of queries whose call failed
    or that the run lacks. ``corpus`` is None where none was given, and ``lacks`` says so; with
    ``run``, its items are sought in whole lists.
    """
    document: dict[str, Any] = {"k": k, "gold": _gold(staged, k), "corpus": None, "lacks": []}
    try:
        document["corpus"] = _corpus(staged, run, k)
    except MissingInputError as error:
        document["lacks"] = [str(error)]
    return SystemAnalysis(document, reach_sections)


def _gold(staged: Staged, k: int) -> dict[str, Any]:
    """Return the gold by how far down it was found, and examples of what no list holds."""
    scores, gold = staged.final, staged.gold
    coverage = measured(scores, f"Coverage@{k}")
    counted = ~np.isnan(scores.values(coverage["measure"]))
    target = gold.target(np.arange(len(gold.query_ids)))
    relevant = gold.relevant & counted[target.query]
    lists = [scores, *staged.line.values(), *staged.beside.values()]
    units = np.unique(target.unit[relevant])
    met = {
        "top": judgments_met(scores, k),
        "final": judgments_met(scores),
        "any": np.concatenate([judgments_met(hits) for hits in lists]),
    }
    matched = {name: np.unique(target.unit[rows[relevant[rows]]]) for name, rows in met.items()}
    lost = np.setdiff1d(units, matched["any"])
    independent = min(len(units), len(np.unique(target.query[relevant])))
    return {
        "units": len(units),
        "coverage": coverage,
        "stages": ["final", *staged.line, *staged.beside],
        "depth": {
            "final": staged.depth(scores).longest,
            "any": max(staged.depth(hits).longest for hits in lists),
        },
        **{
            name: _share(len(matches), len(units), scores, independent)
            for name, matches in matched.items()
        },
        **_lost(gold, relevant, lost, ~unanswered(scores)[target.query]),
    }


def _share(
    found: int, whole: int, scores: Scores, independent: int | None = None
) -> dict[str, Any]:
    """Return a share of things that each count once, with Clopper and Pearson's interval."""
    ends = None
    if whole > 1 and len(scores.query_ids) > 1 and scores.conventions.interval != "none":
        rests_on = whole if independent is None else independent
        ends = list(share_interval(found, whole, rests_on, confidence=scores.conventions.ci))
    return {
        "found": found,
        "never": whole - found,
        "share": found / whole if whole else None,
        "ci": ends,
    }


def _lost(gold: Prepared, relevant: Mask, lost: Ints, answered: Mask) -> dict[str, Any]:
    """Return the gold that no list holds; that of the most queries first."""
    rows = gold.rows.with_columns(unit=gold.unit, answered=answered).filter(relevant)
    rows = rows.filter(pl.col("unit").is_in(lost.tolist()))
    missing = ~_in_corpus(rows.unique("unit")["item_id"], gold)
    rows = rows.filter("answered")
    span = [name for name in ("start", "end") if name in rows.columns]
    units = rows.group_by("unit").agg(
        pl.col("item_id", *span).first(),
        pl.col("grade").max(),
        queries=pl.len(),
        codes=pl.col("code").sort().head(MOST),
    )
    units = units.with_columns(in_corpus=_in_corpus(units["item_id"], gold))
    order = ["queries", "grade", "item_id", *span]
    best = units.sort(order, descending=[True, True, False, *[False] * len(span)]).head(MOST)
    texts: list[str | None] = [None] * best.height
    if gold.conventions.level == "item":
        texts = shown_texts(best["item_id"], gold)
    return {
        "not_asked": len(lost) - units.height,
        "not_in_corpus": None if gold.corpus is None else int(missing.sum()),
        "lost": [
            {
                **{key: value for key, value in row.items() if key not in ("unit", "codes")},
                "query_ids": [gold.query_ids[code] for code in row["codes"]],
                "text": text,
            }
            for row, text in zip(best.iter_rows(named=True), texts, strict=True)
        ],
    }


def _in_corpus(units: pl.Series, gold: Prepared) -> pl.Series:
    """Return whether the corpus holds what is judged; null where there is no corpus."""
    if gold.corpus is None:
        return pl.Series([None] * len(units), dtype=pl.Boolean)
    return units.is_in(gold.corpus[judged_by(gold)].unique().implode())


def _corpus(staged: Staged, run: Run | Blocks | None, k: int) -> dict[str, Any]:
    """Return the items of the corpus and their documents, by whether they were ever returned."""
    scores, gold = staged.final, staged.gold
    if gold.corpus is None:
        raise MissingInputError("items that are never returned need --corpus, all items")
    coverage = measured(scores, f"Coverage(of='corpus')@{k}")
    top = top_lists(scores, gold, k)
    ever = top["item_id"].unique()
    if run is not None:
        of_gold = pl.col("query_id").is_in(pl.Series(gold.query_ids, dtype=pl.String).implode())
        ever = run.read().hits.filter(of_gold)["item_id"].unique()
    relevant = gold.rows.filter(gold.relevant)["item_id"].unique()
    items = gold.corpus.select(
        "item_id",
        "doc_id",
        "text",
        top=pl.col("item_id").is_in(top["item_id"].unique().implode()),
        ever=pl.col("item_id").is_in(ever.implode()),
        gold=pl.col(judged_by(gold)).is_in(relevant.implode()),
    )
    ever_returned = int(items["ever"].sum())
    never = items.filter(~pl.col("ever")).sort("gold", descending=True, maintain_order=True)
    return {
        "items": items.height,
        "most": min(1.0, top.height / items.height) if items.height else None,
        "coverage": coverage,
        "looked": "top" if run is None else "lists",
        "top": _share(int(items["top"].sum()), items.height, scores),
        "ever": _share(ever_returned, items.height, scores),
        "never_gold": int(never["gold"].sum()),
        "unknown": len(ever) - ever_returned,
        "never": [
            row | {"text": shown(row["text"])}
            for row in never.head(MOST).drop("top", "ever").iter_rows(named=True)
        ],
        "docs": _docs(items, scores),
    }


def _docs(items: pl.DataFrame, scores: Scores) -> dict[str, Any]:
    """Return documents that no list returns, and those that lose the most items."""
    docs = items.group_by("doc_id").agg(
        items=pl.len(), never=(~pl.col("ever")).sum(), gold=pl.col("gold").sum()
    )
    unreached = pl.col("never") == pl.col("items")
    partly = docs.filter(~unreached & (pl.col("never") > 0))
    partly = partly.sort("never", "doc_id", descending=[True, False])
    none = docs.filter(unreached).sort("gold", "items", "doc_id", descending=[True, True, False])
    return {
        "all": docs.height,
        "reached": _share(docs.height - none.height, docs.height, scores),
        "unreachable_gold": int((none["gold"] > 0).sum()),
        "unreachable": none.head(MOST).drop("never").to_dicts(),
        "partly": partly.head(MOST).to_dicts(),
        "more_partly": max(0, partly.height - MOST),
    }


def reach_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return gold, items and documents that were never returned."""
    gold, k, corpus = document["gold"], document["k"], document["corpus"]
    shares = {
        f"gold, top {k}": gold["top"],
        f"gold, final lists (to {gold['depth']['final']:,})": gold["final"],
    }
    if len(gold["stages"]) > 1:
        shares[f"gold, any stage (to {gold['depth']['any']:,})"] = gold["any"]
    if corpus is not None:
        shares[f"corpus, top {k}"] = corpus["top"]
        if corpus["looked"] == "lists":
            shares["corpus, any list"] = corpus["ever"]
        shares["documents"] = corpus["docs"]["reached"]
    grid = table(
        [
            {**share, "what": what, "share": {"mean": share["share"], "ci": share["ci"]}}
            for what, share in shares.items()
        ],
        {name: name for name in ("what", "found", "never", "share")},
    )
    lines = [label(line) for line in document["lacks"]]
    lines += counted_lines(gold, _GOLD_NOTES)
    if corpus is not None:
        lines += counted_lines(corpus | corpus["docs"], _CORPUS_NOTES)
        if corpus["most"] is not None and corpus["most"] < 1:
            lines.append(f"the top {k} has room for {percent(corpus['most'])} of the corpus")
    sections = [Section("Reach: what is ever returned", grid, lines)]
    columns: TableColumns = {
        "item": _unit_name,
        "query": lambda unit: some_names(unit["query_ids"]),
        "grade": lambda unit: f"{unit['grade']:g}",
        "in corpus": "in_corpus",
        "text": "text",
    }
    sections += first_rows("Gold in no list", gold["lost"], columns)
    if corpus is not None:
        columns = {"doc": "doc_id", "items": "items", "gold": "gold"}
        rows = corpus["docs"]["unreachable"]
        sections += first_rows("Documents that no list returns", rows, columns)
    return sections


def _unit_name(unit: Mapping[str, Any]) -> str:
    span = f":{unit['start']}-{unit['end']}" if "start" in unit else ""
    return f"{unit['item_id']}{span}"
