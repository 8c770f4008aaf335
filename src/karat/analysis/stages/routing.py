"""Steps before the search: routing, rewriting, entity linking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis.stages.effects import (
    LINKING,
    Cuts,
    cells,
    compare_stages,
    comparison_document,
    cut_at,
    cuts_to,
    effect_sentence,
    fair_cut,
    fair_cuts,
    only_where,
    used_depth,
)
from karat.data.tables import Queries
from karat.evaluation.stages import ORIGINAL, Staged
from karat.evaluation.top_lists import share_of
from karat.formats.json_records import from_text
from karat.measure.names import Measure
from karat.measure.prepare import entity_sets
from karat.measure.ranked import Mask
from karat.stats.distributions import clopper_pearson

JOINED = "+"
REWRITTEN = "rewritten"
# The number of queries hurt by rewriting to list.
MOST = 5

NO_CHOICE = (
    "the log does not say where each query was sent; log each call's source, one name or several"
    " joined by +"
)
NO_RIGHT = (
    "the right source of each query is unknown; give --queries with a column source, or --corpus"
    " with the source of each item"
)
NO_TEXTS = "the log has no rewritten queries; log each call's query and rewritten"
NO_LISTS = (
    "the log has no list for the original query; set rewrite: {call: ..., both: true} in"
    " karat.yaml, or log it as original under stages"
)
NO_LINKS = "EL_F1 needs the entities that the system linked; log each call's entities"

Names = tuple[str, ...]


def source_names(value: Any) -> Names:
    """Return sources given as a list, as one text, or as several joined by +.

    >>> source_names("docs + tickets"), source_names(["docs"]), source_names("c++")
    (('docs', 'tickets'), ('docs',), ('c++',))
    """
    value = from_text(value)
    if isinstance(value, list):
        return tuple(dict.fromkeys(str(name) for name in value if name not in (None, "")))
    if value is None or value == "":
        return ()
    parts = [part.strip() for part in str(value).split(JOINED)]
    # A name may have a + of its own, as c++ does.
    return tuple(dict.fromkeys(parts)) if all(parts) else (str(value),)


def routing_of(staged: Staged, queries: Queries | None, recall: Measure) -> dict[str, Any] | None:
    """Return the figures of a router; None if neither calls nor hits have a source.

    ``recall`` is one of the measures that the run was scored by, with a cut-off. ``n`` counts the
    queries of which both the chosen and the right source are known, ``left_out`` the others by
    the reason, ``chosen`` how often each source was asked. ``hits`` has the sources of the top k,
    ``by_source`` what the queries that belong to each source got.
    """
    k = recall.k if isinstance(recall.k, int) else staged.final.conventions.k
    chosen, hits = chosen_sources(staged), _hit_sources(staged, k)
    if not any(chosen) and hits is None:
        return None
    named, right = right_sources(staged, queries)
    failed, called = _outcomes(staged)
    answered = np.flatnonzero(called & ~failed).tolist()
    sent = [row for row in answered if chosen[row]]
    judged = [row for row in np.flatnonzero(~failed).tolist() if right[row] and chosen[row]]
    covered = {row: bool({*right[row]} & {*chosen[row]}) for row in judged}
    calls = Counter(name for row in sent for name in chosen[row])
    final = staged.final
    fair = used_depth(staged, [final], k)
    final = cut_at(final, staged.gold, cuts_to([recall], fair.used))
    ids, by_source = staged.gold.query_ids, {}
    for name in sorted({name for names in right for name in names}):
        mask = np.array([name in names for names in right], dtype=bool)
        coverage = _coverage(staged, {row: covered[row] for row in judged if mask[row]})
        by_source[name] = {"queries": int(mask.sum()), "coverage": coverage, **cells(final, mask)}
    pairs = [tuple(JOINED.join(sorted(names[row])) for names in (right, chosen)) for row in judged]
    confusion: dict[str, dict[str, int]] = {}
    for (right_names, chosen_names), n in sorted(Counter(pairs).items()):
        confusion.setdefault(right_names, {})[chosen_names] = n
    return {
        "n": len(judged),
        "coverage": _coverage(staged, covered) if judged else None,
        "misroutes": [
            {"query_id": ids[row], "right": [*right[row]], "chosen": [*chosen[row]]}
            for row in judged
            if not covered[row]
        ],
        "confusion": confusion,
        "over_asked": sum(len(chosen[row]) > 1 and len(right[row]) == 1 for row in judged),
        "chosen": {name: {"n": n, "share": n / len(sent)} for name, n in sorted(calls.items())},
        "never_right": sorted({*calls}.difference(*(right[row] for row in judged)))
        if judged
        else [],
        "left_out": {
            "failed": int(failed.sum()),
            "not_called": int((~called).sum()),
            "without_choice": len(answered) - len(sent),
            "without_right": sum(not right[row] for row in sent),
        },
        "right_from": dict(
            Counter(
                "queries" if names else "corpus"
                for names, sources in zip(named, right, strict=True)
                if sources
            )
        ),
        "by_source": by_source,
        "hits": hits,
    }


def missing_for_routing(routing: Mapping[str, Any] | None) -> str | None:
    """Return the inputs that the evaluation of a router lacks."""
    if routing is None or not routing["chosen"]:
        return NO_CHOICE
    return None if routing["n"] else NO_RIGHT


def chosen_sources(staged: Staged) -> list[Names]:
    """Return the sources that each query was sent to, in the order of the score table."""
    return _by_query(staged, staged.calls, "source")


def right_sources(staged: Staged, queries: Queries | None) -> tuple[list[Names], list[Names]]:
    """Return the sources that the queries name, and these or else those of each query's gold."""
    named = _by_query(staged, None if queries is None else queries.frame, "source")
    of_gold = named if all(named) else _gold_sources(staged)
    return named, [names or others for names, others in zip(named, of_gold, strict=True)]


def _by_query(staged: Staged, frame: pl.DataFrame | None, column: str) -> list[Names]:
    names: list[Names] = [()] * len(staged.gold.query_ids)
    if frame is None or column not in frame.columns:
        return names
    codes = staged.gold.code_of(frame["query_id"]).tolist()
    for code, value in zip(codes, frame[column].to_list(), strict=True):
        if code >= 0:
            names[code] = source_names(value)
    return names


def _gold_sources(staged: Staged) -> list[Names]:
    """Return the sources of each query's gold items or documents, as the corpus has them."""
    gold = staged.gold
    names: list[Names] = [()] * len(gold.query_ids)
    if gold.corpus is None or "source" not in gold.corpus.columns:
        return names
    relevant = gold.rows.filter(pl.col("grade") >= gold.conventions.rel)
    ids = relevant["item_id"].unique().implode()
    rows = gold.corpus.filter(pl.col("item_id").is_in(ids) | pl.col("doc_id").is_in(ids))
    items: dict[str, Names] = {}
    docs: dict[str, Names] = {}
    for item, doc, source in rows.select("item_id", "doc_id", "source").iter_rows():
        if source:
            items[item] = tuple(map(str, source)) if isinstance(source, list) else (str(source),)
            docs[doc] = tuple(dict.fromkeys((*docs.get(doc, ()), *items[item])))
    sources = docs | items
    for code, item in relevant.select("code", "item_id").iter_rows():
        names[code] = tuple(dict.fromkeys((*names[code], *sources.get(item, ()))))
    return names


def _outcomes(staged: Staged) -> tuple[Mask, Mask]:
    """Return which queries' calls failed, and which were called at all."""
    n = len(staged.gold.query_ids)
    failed, called = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    if staged.calls is None:
        return failed, ~called
    codes = staged.gold.code_of(staged.calls["query_id"])
    called[codes[codes >= 0]] = True
    if "error" in staged.calls.columns:
        wrong = staged.calls["error"].is_not_null().to_numpy() & (codes >= 0)
        failed[codes[wrong]] = True
    return failed, called


def _coverage(staged: Staged, covered: Mapping[int, bool]) -> dict[str, Any]:
    """Return the share of queries that reached a right source, with Clopper and Pearson's interval.

    Queries of one conversation are drawn together instead.
    """
    n, scores = len(covered), staged.final
    if not n:
        return {"mean": None, "ci": None, "n": 0}
    values = np.array(list(covered.values()), dtype=np.float64)
    if scores.groups is not None:
        return share_of(values, scores, np.array(list(covered)))
    ci = None
    if n > 1 and scores.conventions.interval != "none":
        ci = list(clopper_pearson(int(values.sum()), n, confidence=scores.conventions.ci))
    return {"mean": float(values.sum() / n), "ci": ci, "n": n}


def _hit_sources(staged: Staged, k: int) -> dict[str, Any] | None:
    """Return the sources of the top k, by the log, else by the corpus."""
    lists, corpus = staged.final.lists, staged.gold.corpus
    if lists is None:
        return None
    top = lists.filter(pl.col("rank") <= k)
    values = [pl.col("source")] if "source" in top.columns else []
    if corpus is not None and "source" in corpus.columns:
        item_sources = corpus.select("item_id", _source=pl.col("source").cast(pl.String))
        top = top.join(item_sources, on="item_id", how="left", maintain_order="left")
        values.append(pl.col("_source"))
    sources = top.select(source=pl.coalesce(*values, pl.lit(None, pl.String)))["source"]
    if sources.is_null().all():
        return None
    counts = Counter(sources.drop_nulls().to_list())
    shares = {name: n / len(sources) for name, n in sorted(counts.items())}
    return {"k": k, "n": len(sources), "unknown": sources.null_count(), "shares": shares}


def rewriting_of(
    staged: Staged, cuts: Cuts, queries: Queries | None = None
) -> dict[str, Any] | None:
    """Compare original with rewritten queries; None if the log has neither texts nor lists.

    ``told`` counts the queries whose rewritten text is logged, ``changed`` those it differs for.
    ``left_out`` counts queries whose text changed and that have no list for the original.
    """
    texts = {name: pair for name, pair in _texts_of(staged, queries).items() if pair[1] is not None}
    listed = ORIGINAL in staged.beside
    if not texts and not listed:
        return None
    changed = {name for name, (old, new) in texts.items() if old is not None and old != new}
    counts = {
        "told": len(texts),
        "changed": len(changed),
        "original_unknown": sum(old is None for old, _ in texts.values()),
    }
    if not listed:
        return {**counts, "comparisons": None}
    ids = staged.gold.query_ids
    has = np.array([name in staged.logged.get(ORIGINAL, ()) for name in ids], dtype=bool)
    # The same text gives the same list, whether that was logged twice or not.
    unchanged = {name for name, (old, new) in texts.items() if old == new}
    same = np.array([name in unchanged for name in ids], dtype=bool) & ~has
    fair = fair_cuts(staged, cuts)
    new = cut_at(staged.final, staged.gold, fair)
    old = cut_at(staged.beside[ORIGINAL], staged.gold, fair)
    columns = {name: np.where(same, new.columns[name], old.columns[name]) for name in old.columns}
    old = replace(old, columns=columns)
    compared = has | same
    comparisons = compare_stages(
        (ORIGINAL, REWRITTEN),
        (only_where(old, compared), only_where(new, compared)),
        k=fair_cut(staged, cuts.k).used,
        queries=queries,
    )
    row = comparisons.of(REWRITTEN)
    hurt: list[dict[str, Any]] = []
    for query in comparisons.moved:
        if query["change"] == "worse" and len(hurt) < MOST:
            text, rewritten = texts.get(query["query_id"], (None, None))
            values = {"original": query["baseline_value"], "rewritten": query["system_value"]}
            facts = {"query_id": query["query_id"], "measure": query["measure"], **values}
            hurt.append({**facts, "query": text, "rewritten_text": rewritten})
    return {
        **counts,
        **comparison_document(comparisons),
        "n": row.n,
        "left_out": sum(name in changed and not compared[at] for at, name in enumerate(ids)),
        "says": effect_sentence("rewriting", row),
        "hurt": hurt,
    }


def missing_for_rewriting(rewriting: Mapping[str, Any] | None) -> str | None:
    """Return the log entries that the evaluation of rewriting lacks."""
    if rewriting is None:
        return NO_TEXTS
    return NO_LISTS if rewriting["comparisons"] is None else None


def _texts_of(staged: Staged, queries: Queries | None) -> dict[str, tuple[str | None, str | None]]:
    """Return the text asked and the text searched for, of every call that went well."""
    calls = staged.calls
    if calls is None:
        return {}
    texts = {} if queries is None else dict(queries.frame.select("query_id", "text").iter_rows())
    names = {*staged.gold.query_ids}
    pairs: dict[str, tuple[str | None, str | None]] = {}
    for call in calls.iter_rows(named=True):
        name, text = call["query_id"], call.get("query")
        if call.get("error") is None and name in names:
            pairs[name] = (texts.get(name) if text is None else text, call.get("rewritten"))
    return pairs


def linking_of(staged: Staged) -> tuple[dict[str, Any] | None, str | None]:
    """Return how well entities were linked, or what is missing to say so.

    ``right`` links are in both the gold and the log, ``wrong`` ones only the system made,
    ``missed`` ones it did not. A failed call linked nothing.
    """
    name, final, calls = str(LINKING), staged.final, staged.calls
    lacks, values = final.lacks.get(name), final.values(name)
    if lacks is None and (calls is None or "entities" not in calls.columns):
        lacks = NO_LINKS
    if calls is None or lacks is not None or np.isnan(values).all():
        return None, lacks or "EL_F1 needs each query's entities: give --queries with them"
    fine = calls if "error" not in calls.columns else calls.filter(pl.col("error").is_null())
    codes = staged.gold.code_of(fine["query_id"]).tolist()
    linked = dict(zip(codes, entity_sets(fine["entities"]), strict=True))
    right = wrong = missed = 0
    for code, gold in enumerate(staged.gold.entities):
        if gold is not None and not np.isnan(values[code]):
            expected, links = {*gold}, {*(linked.get(code) or ())}
            right += len(expected & links)
            wrong += len(links - expected)
            missed += len(expected - links)
    document = {
        **cells(cut_at(final, staged.gold, {LINKING: LINKING})),
        "right": right,
        "wrong": wrong,
        "missed": missed,
        "precision": right / (right + wrong) if right + wrong else None,
        "recall": right / (right + missed) if right + missed else None,
    }
    return document, None
