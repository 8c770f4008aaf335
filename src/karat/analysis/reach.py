"""What a run never returns: gold that no query got, items and documents that nothing leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.top_lists import (
    MOST,
    SHOWN_ROWS,
    Ints,
    Mask,
    measured,
    shown,
    some_names,
    texts_of,
    top_lists,
)
from karat.data.tables import Blocks, Run
from karat.errors import MissingInputError
from karat.evaluation.stages import KEEP, Staged
from karat.measure.prepare import Prepared
from karat.measure.scores import Scores
from karat.pages.formatting import NOTHING, PART, figure, interval, label, percent, plural
from karat.pages.page import Section
from karat.pages.serialize import Record
from karat.stats.distributions import share_interval


@dataclass(frozen=True, eq=False)
class Reach(Record):
    """How much of the gold and of the corpus was ever returned.

    Of the gold (items, documents or spans, each once) the share found for a query whose gold
    it is: in the ``top`` k, in the ``final`` lists and in ``any`` list of any stage, to their
    depth. Of what no list holds, ``lost`` names what was looked for; ``not_asked`` counts what is
    gold only of queries whose call failed or that the run lacks. ``corpus`` is None where none
    was given, and ``lacks`` says so.
    """

    k: int
    gold: Mapping[str, Any]
    corpus: Mapping[str, Any] | None
    lacks: Sequence[str] = ()


def reach_measures(k: int = KEEP) -> list[str]:
    """Return what the run must be scored by."""
    return [f"Coverage@{k}", f"Coverage(of='corpus')@{k}"]


def reach(staged: Staged, run: Run | Blocks | None = None, *, k: int = KEEP) -> Reach:
    """Gold and items that were never returned; with ``run`` items are sought in whole lists."""
    gold = _gold(staged, k)
    try:
        return Reach(k, gold, _corpus(staged, run, k))
    except MissingInputError as error:
        return Reach(k, gold, None, [str(error)])


def _gold(staged: Staged, k: int) -> dict[str, Any]:
    """Return the gold by how far down it was found, and examples of what no list holds."""
    scores, gold = staged.final, staged.gold
    coverage = measured(scores, f"Coverage@{k}")
    counted = ~np.isnan(scores.values(coverage["measure"]))
    target = gold.target(np.arange(len(gold.query_ids)))
    wanted = (target.grade >= scores.conventions.rel) & counted[target.query]
    lists = [scores, *staged.line.values(), *staged.beside.values()]
    met = [_met(hits, len(wanted)) for hits in lists]
    units = np.unique(target.unit[wanted])
    found = {
        "top": np.unique(target.unit[wanted & _met(scores, len(wanted), k)]),
        "final": np.unique(target.unit[wanted & met[0]]),
        "any": np.unique(target.unit[wanted & np.logical_or.reduce(met)]),
    }
    lost = np.setdiff1d(units, found["any"])
    independent = min(len(units), len(np.unique(target.query[wanted])))
    return {
        "units": len(units),
        "coverage": coverage,
        "stages": ["final", *staged.line, *staged.beside],
        "depth": {
            "final": _deepest(scores),
            "any": max(map(_deepest, lists)),
        },
        **{name: _share(len(own), len(units), scores, independent) for name, own in found.items()},
        **_lost(staged, wanted, lost, _answered(scores)[target.query]),
    }


def _answered(scores: Scores) -> Mask:
    """Return the queries that the run answered, be it with an empty list."""
    return ~scores.status.is_in(["missing", "failed"]).to_numpy()


def _met(scores: Scores, size: int, k: int | None = None) -> Mask:
    """Return which judgments the lists meet with relevant items, down to k or to their end."""
    met = np.zeros(size, dtype=np.bool_)
    if scores.trace is not None:
        ranked = scores.trace.ranked
        inside = ranked.top_found(k) & ranked.found.relevant(scores.conventions.rel)
        if ranked.found.row is not None:
            met[ranked.found.row[inside]] = True
    return met


def _deepest(scores: Scores) -> int:
    return 0 if scores.trace is None else int(scores.trace.ranked.returned.max(initial=0))


def _share(
    found: int, whole: int, scores: Scores, independent: int | None = None
) -> dict[str, Any]:
    """Return a share of things that each count once, with Clopper and Pearson's interval."""
    several = whole > 1 and scores.table.height > 1 and scores.conventions.interval != "none"
    rests_on = whole if independent is None else independent
    confidence = scores.conventions.ci
    ends = share_interval(found, whole, rests_on, confidence=confidence) if several else None
    return {
        "found": found,
        "never": whole - found,
        "share": found / whole if whole else None,
        "ci": None if ends is None else list(ends),
    }


def _lost(staged: Staged, wanted: Mask, lost: Ints, answered: Mask) -> dict[str, Any]:
    """Return what is in no list at all though it was looked for: that of the most queries first."""
    gold = staged.gold
    rows = gold.rows.with_columns(unit=gold.unit, answered=answered).filter(wanted)
    rows = rows.filter(pl.col("unit").is_in(lost.tolist()))
    missing = ~_in_corpus(rows.unique("unit")["item_id"], gold)
    rows = rows.filter("answered")
    span = [pl.col(name).first() for name in ("start", "end") if name in rows.columns]
    units = rows.group_by("unit").agg(
        pl.col("item_id").first(),
        *span,
        pl.col("grade").max(),
        queries=pl.len(),
        codes=pl.col("code").sort().head(MOST),
    )
    units = units.with_columns(in_corpus=_in_corpus(units["item_id"], gold))
    order = ["queries", "grade", "item_id", *(name for name in ("start", "end") if span)]
    best = units.sort(order, descending=[True, True, *[False] * (len(order) - 2)]).head(MOST)
    texts: Sequence[str | None] = [None] * best.height
    if gold.corpus is not None and gold.conventions.level == "item":
        texts = texts_of(best["item_id"], gold).to_list()
    return {
        "not_asked": len(lost) - units.height,
        "not_in_corpus": None if gold.corpus is None else int(missing.sum()),
        "lost": [
            {
                **{key: value for key, value in row.items() if key not in ("unit", "codes")},
                "query_ids": [gold.query_ids[code] for code in row["codes"]],
                "text": shown(text),
            }
            for row, text in zip(best.iter_rows(named=True), texts, strict=True)
        ],
    }


def _in_corpus(units: pl.Series, gold: Prepared) -> pl.Series:
    """Return whether the corpus holds what is judged; null where there is no corpus."""
    if gold.corpus is None:
        return pl.Series([None] * len(units), dtype=pl.Boolean)
    column = "item_id" if gold.conventions.level == "item" else "doc_id"
    return units.is_in(gold.corpus[column].unique().implode())


def _corpus(staged: Staged, run: Run | Blocks | None, k: int) -> dict[str, Any]:
    """Return the items of the corpus and their documents, by whether they were ever returned."""
    scores, gold = staged.final, staged.gold
    if gold.corpus is None:
        raise MissingInputError("items that were never returned need --corpus: all there are")
    coverage = measured(scores, f"Coverage(of='corpus')@{k}")
    top = top_lists(scores, gold, k)
    ever = top["item_id"].unique() if run is None else _returned(run, gold)
    right = gold.rows.filter(pl.col("grade") >= scores.conventions.rel)["item_id"].unique()
    by = "item_id" if gold.conventions.level == "item" else "doc_id"
    items = gold.corpus.select(
        "item_id",
        "doc_id",
        "text",
        top=pl.col("item_id").is_in(top["item_id"].unique().implode()),
        ever=pl.col("item_id").is_in(ever.implode()),
        gold=pl.col(by).is_in(right.implode()),
    )
    known = int(items["ever"].sum())
    never = items.filter(~pl.col("ever")).sort("gold", descending=True, maintain_order=True)
    return {
        "items": items.height,
        "most": min(1.0, top.height / items.height) if items.height else None,
        "coverage": coverage,
        "looked": "top" if run is None else "lists",
        "top": _share(int(items["top"].sum()), items.height, scores),
        "ever": _share(known, items.height, scores),
        "never_gold": int(never["gold"].sum()),
        "unknown": len(ever) - known,
        "never": [
            {"item_id": item, "doc_id": doc, "gold": is_gold, "text": shown(text)}
            for item, doc, is_gold, text in never.head(MOST)
            .select("item_id", "doc_id", "gold", "text")
            .iter_rows()
        ],
        "docs": _docs(items, scores),
    }


def _returned(run: Run | Blocks, gold: Prepared) -> pl.Series:
    """Return the items that any list of any stage holds, for a query that is asked for."""
    hits = run.read().hits
    asked = pl.Series(list(gold.query_ids), dtype=pl.String).implode()
    return hits.filter(pl.col("query_id").is_in(asked))["item_id"].unique()


def _docs(items: pl.DataFrame, scores: Scores) -> dict[str, Any]:
    """Return documents that nothing leads to, and those that lose the most items."""
    docs = items.group_by("doc_id").agg(
        items=pl.len(),
        never=(~pl.col("ever")).sum(),
        gold=pl.col("gold").sum(),
    )
    whole = pl.col("never") == pl.col("items")
    most = ["never", "doc_id"]
    partly = docs.filter(~whole & (pl.col("never") > 0)).sort(most, descending=[True, False])
    none = docs.filter(whole).sort("gold", "items", "doc_id", descending=[True, True, False])
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
    gold, k = document["gold"], document["k"]
    grid = [["what", "found", "never", "share"]]
    grid.append(_reach_row(f"gold, top {k}", gold["top"]))
    grid.append(_reach_row(f"gold, final lists (to {gold['depth']['final']:,})", gold["final"]))
    if len(gold["stages"]) > 1:
        grid.append(_reach_row(f"gold, any stage (to {gold['depth']['any']:,})", gold["any"]))
    corpus = document["corpus"]
    if corpus is not None:
        grid.append(_reach_row(f"corpus, top {k}", corpus["top"]))
        if corpus["looked"] == "lists":
            grid.append(_reach_row("corpus, any list", corpus["ever"]))
        grid.append(_reach_row("documents", corpus["docs"]["reached"]))
    sections = [Section("Reach: what is ever returned", grid, _reach_notes(document))]
    if gold["lost"]:
        sections.append(_lost_section(gold))
    if corpus is not None and corpus["docs"]["unreachable"]:
        rows = [["doc", "items", "gold"]]
        for doc in corpus["docs"]["unreachable"][:SHOWN_ROWS]:
            rows.append([label(doc["doc_id"]), f"{doc['items']:,}", f"{doc['gold']:,}"])
        sections.append(Section("Mapping[str, Any]s that nothing leads to", rows))
    return sections


def _reach_row(name: str, share: Mapping[str, Any]) -> list[str]:
    cell = f"{figure(share['share'])}{PART}{interval(share['ci'])}"
    return [name, f"{share['found']:,}", f"{share['never']:,}", cell]


def _reach_notes(document: Mapping[str, Any]) -> list[str]:
    gold, corpus = document["gold"], document["corpus"]
    lines = [label(line) for line in document["lacks"]]
    if gold["not_asked"]:
        lost = plural(gold["not_asked"], "relevant item belongs", "relevant items belong")
        lines.append(
            f"{lost} only to queries whose call failed or that the run lacks: never found here,"
            " but not searched for either"
        )
    if gold["not_in_corpus"]:
        lost = plural(gold["not_in_corpus"], "relevant item is", "relevant items are")
        lines.append(f"{lost} not in the corpus, so that nothing can find what was meant")
    if corpus is None:
        return lines
    if corpus["most"] is not None and corpus["most"] < 1:
        lines.append(
            f"the lists have room for {percent(corpus['most'])} of the corpus, so the top"
            f" {document['k']} cannot hold more of it"
        )
    if corpus["never_gold"]:
        lost = plural(corpus["never_gold"], "item is", "items are")
        lines.append(f"{lost} never returned, and yet gold of a query")
    if corpus["docs"]["unreachable_gold"]:
        many = plural(corpus["docs"]["unreachable_gold"], "document")
        lines.append(f"{many} with gold that nothing leads to: look whether they are indexed")
    if corpus["unknown"]:
        lines.append(f"{plural(corpus['unknown'], 'item')} returned that the corpus lacks")
    return lines


def _lost_section(gold: Mapping[str, Any]) -> Section:
    grid = [["item", "query", "grade", "in corpus", "text"]]
    for one in gold["lost"][:SHOWN_ROWS]:
        known = NOTHING if one["in_corpus"] is None else "yes" if one["in_corpus"] else "no"
        span = f":{one['start']}-{one['end']}" if "start" in one else ""
        cells = [some_names(one["query_ids"]), f"{one['grade']:g}", known, label(one["text"] or "")]
        grid.append([label(one["item_id"]) + span, *cells])
    if not any(item["text"] for item in gold["lost"]):
        grid = [row[:-1] for row in grid]
    return Section("Gold in no list", grid)
