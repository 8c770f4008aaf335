"""What was done with each query before it was searched: routing, rewriting, entity linking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from karat.analysis.top_lists import share_of
from karat.data.tables import Queries
from karat.evaluation.comparison import Comparisons
from karat.evaluation.stages import ORIGINAL, Staged
from karat.evaluation.verdict import Rule
from karat.formats.json_records import from_text
from karat.measure.names import Measure
from karat.measure.prepare import entity_sets
from karat.measure.ranked import Mask
from karat.measure.scores import Scores
from karat.stats.distributions import clopper_pearson

JOINED = "+"
REWRITTEN = "rewritten"
# So many queries that rewriting hurt are listed.
MOST = 5

NO_CHOICE = (
    "the log does not say where each query was sent; log each call's source, one name or several"
    " joined by +"
)
NO_RIGHT = (
    "nothing says where each query should go; give --queries with a column source, or --corpus"
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


@dataclass(frozen=True, slots=True)
class RoutedQuery:
    """One query: the sources that hold its answer, and those that it was sent to."""

    row: int
    query_id: str
    right: Names
    chosen: Names

    @property
    def covered(self) -> bool:
        """Whether it reached a right source."""
        return bool({*self.right} & {*self.chosen})


@dataclass(frozen=True, eq=False)
class Routing:
    """Where queries were sent, and where they should have been.

    ``judged`` are the queries of which both is known. In the ``document``, ``left_out`` counts the
    others by why, ``chosen`` how often each source was asked, ``hits`` of which source the
    top k are, and ``by_source`` has what the queries that belong to each source got.
    """

    judged: Sequence[RoutedQuery]
    document: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the routing as plain data."""
        return dict(self.document)


def routing_of(staged: Staged, queries: Queries | None, recall: Measure) -> Routing | None:
    """Return what the log tells of a router; None where neither calls nor hits have a source.

    ``recall`` is one of the measures that the run was scored by, with a cut-off.
    """
    k = recall.k if isinstance(recall.k, int) else staged.final.conventions.k
    chosen, hits = chosen_sources(staged), _hit_sources(staged, k)
    if not any(chosen) and hits is None:
        return None
    named = _by_query(staged, None if queries is None else queries.frame, "source")
    of_gold = named if all(named) else _gold_sources(staged)
    right = [own or other for own, other in zip(named, of_gold, strict=True)]
    failed, called = _outcomes(staged)
    well = np.flatnonzero(called & ~failed).tolist()
    judged = [
        RoutedQuery(row, staged.gold.query_ids[row], right[row], chosen[row])
        for row in np.flatnonzero(~failed).tolist()
        if right[row] and chosen[row]
    ]
    sent = [row for row in well if chosen[row]]
    asked = Counter(name for row in sent for name in chosen[row])
    right_somewhere = {name for query in judged for name in query.right}
    document = {
        "n": len(judged),
        "coverage": _coverage(staged, judged) if judged else None,
        "misroutes": [
            {"query_id": query.query_id, "right": [*query.right], "chosen": [*query.chosen]}
            for query in judged
            if not query.covered
        ],
        "confusion": _confusion(judged),
        "over_asked": sum(len(query.chosen) > 1 and len(query.right) == 1 for query in judged),
        "chosen": {name: {"n": n, "share": n / len(sent)} for name, n in sorted(asked.items())},
        "never_right": sorted({*asked} - right_somewhere) if judged else [],
        "left_out": {
            "failed": int(failed.sum()),
            "not_called": int((~called).sum()),
            "without_choice": len(well) - len(sent),
            "without_right": sum(not right[row] for row in sent),
        },
        "right_from": dict(
            Counter(
                "queries" if own else "corpus"
                for own, other in zip(named, of_gold, strict=True)
                if own or other
            )
        ),
        "by_source": _by_source(staged, right, judged, recall, k),
        "hits": hits,
    }
    return Routing(judged, document)


def missing_for_routing(routing: Routing | None) -> str | None:
    """Return what would have to be there for a router to be judged."""
    if routing is None or not routing.document["chosen"]:
        return NO_CHOICE
    return None if routing.judged else NO_RIGHT


def chosen_sources(staged: Staged) -> list[Names]:
    """Return the sources that each query was sent to, in the order of the score table."""
    return _by_query(staged, staged.calls, "source")


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
    wanted = relevant["item_id"].unique().implode()
    rows = gold.corpus.filter(pl.col("item_id").is_in(wanted) | pl.col("doc_id").is_in(wanted))
    items: dict[str, Names] = {}
    docs: dict[str, Names] = {}
    for item, doc, source in rows.select("item_id", "doc_id", "source").iter_rows():
        if source:
            items[item] = (str(source),)
            docs[doc] = tuple(dict.fromkeys((*docs.get(doc, ()), str(source))))
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


def _confusion(judged: Sequence[RoutedQuery]) -> dict[str, dict[str, int]]:
    """Return how often queries of each source were sent where."""
    pairs = Counter(
        (JOINED.join(sorted(query.right)), JOINED.join(sorted(query.chosen))) for query in judged
    )
    table: dict[str, dict[str, int]] = {}
    for (right, chosen), n in sorted(pairs.items()):
        table.setdefault(right, {})[chosen] = n
    return table


def _coverage(staged: Staged, judged: Sequence[RoutedQuery]) -> dict[str, Any]:
    """Return the share of queries that reached a right source, with Clopper and Pearson's interval.

    Queries of one conversation are drawn together instead.
    """
    n, scores = len(judged), staged.final
    if not n:
        return {"mean": None, "ci": None, "n": 0}
    covered = np.array([query.covered for query in judged], dtype=np.float64)
    if scores.groups is not None:
        return share_of(covered, scores, np.array([query.row for query in judged]))
    ci = None
    if n > 1 and scores.conventions.interval != "none":
        ci = list(clopper_pearson(int(covered.sum()), n, confidence=scores.conventions.ci))
    return {"mean": float(covered.sum() / n), "ci": ci, "n": n}


def _by_source(
    staged: Staged, right: Sequence[Names], judged: Sequence[RoutedQuery], recall: Measure, k: int
) -> dict[str, dict[str, Any]]:
    """Return for each source its queries, how many were sent there, and what was found."""
    depth = used_depth(staged, [staged.final], k)
    final = cut_at(staged.final, staged.gold, cuts_to([recall], depth.used))
    sources = {}
    for name in sorted({name for names in right for name in names}):
        mask = np.array([name in names for names in right], dtype=bool)
        sources[name] = {
            "queries": int(mask.sum()),
            "coverage": _coverage(staged, [query for query in judged if name in query.right]),
            **cells(final, mask),
        }
    return sources


def _hit_sources(staged: Staged, k: int) -> dict[str, Any] | None:
    """Return the sources of the top k, by the log, else by the corpus."""
    lists, corpus = staged.final.lists, staged.gold.corpus
    if lists is None:
        return None
    top = lists.filter(pl.col("rank") <= k)
    values = [pl.col("source")] if "source" in top.columns else []
    if corpus is not None and "source" in corpus.columns:
        known = corpus.select("item_id", _source=pl.col("source").cast(pl.String))
        top = top.join(known, on="item_id", how="left", maintain_order="left")
        values.append(pl.col("_source"))
    sources = top.select(source=pl.coalesce(*values, pl.lit(None, pl.String)))["source"]
    if sources.is_null().all():
        return None
    counts = Counter(sources.drop_nulls().to_list())
    shares = {name: n / len(sources) for name, n in sorted(counts.items())}
    return {"k": k, "n": len(sources), "unknown": sources.null_count(), "shares": shares}


def rewriting_of(
    staged: Staged, cuts: Cuts, rule: Rule, queries: Queries | None = None
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
    old = _filled(cut_at(staged.beside[ORIGINAL], staged.gold, fair), new, same)
    compared = has | same
    found = compare_stages(
        (ORIGINAL, REWRITTEN),
        (only_where(old, compared), only_where(new, compared)),
        rule,
        k=fair_cut(staged, cuts.k).used,
        queries=queries,
    )
    row = found.of(REWRITTEN)
    return {
        **counts,
        **comparison_document(found),
        "n": row.n,
        "left_out": sum(name in changed and not compared[at] for at, name in enumerate(ids)),
        "says": effect_sentence("rewriting", row),
        "hurt": _hurt(found, texts),
    }


def missing_for_rewriting(rewriting: Mapping[str, Any] | None) -> str | None:
    """Return what would have to be logged for rewriting to be judged."""
    if rewriting is None:
        return NO_TEXTS
    return NO_LISTS if rewriting["comparisons"] is None else None


def _hurt(
    found: Comparisons, texts: Mapping[str, tuple[str | None, str | None]]
) -> list[dict[str, Any]]:
    """Return the queries that lost most by being rewritten, with both texts."""
    worse = [query for query in found.moved if query.change == "worse"][:MOST]
    hurt = []
    for query in worse:
        old, new = texts.get(query.query_id, (None, None))
        hurt.append(
            {
                "query_id": query.query_id,
                "measure": query.measure,
                "original": query.baseline_value,
                "rewritten": query.system_value,
                "query": old,
                "rewritten_text": new,
            }
        )
    return hurt


def _filled(old: Scores, new: Scores, mask: Mask) -> Scores:
    """Return the old scores, with the new ones for the marked queries."""
    marked = pl.Series(mask)
    columns = [
        pl.when(marked).then(new.table[name]).otherwise(pl.col(name)).alias(name)
        for name in map(str, old.measures)
    ]
    return replace(old, table=old.table.with_columns(columns))


def _texts_of(staged: Staged, queries: Queries | None) -> dict[str, tuple[str | None, str | None]]:
    """Return the text asked and the text searched for, of every call that went well."""
    calls = staged.calls
    if calls is None:
        return {}
    asked = {} if queries is None else dict(queries.frame.select("query_id", "text").iter_rows())
    known = {*staged.gold.query_ids}
    nothing = [None] * calls.height
    columns = (
        calls[name].to_list() if name in calls.columns else nothing
        for name in ("query_id", "query", "rewritten", "error")
    )
    return {
        name: (asked.get(name) if old is None else old, new)
        for name, old, new, error in zip(*columns, strict=True)
        if error is None and name in known
    }


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
            expected, found = {*gold}, {*(linked.get(code) or ())}
            right += len(expected & found)
            wrong += len(found - expected)
            missed += len(expected - found)
    document = {
        **cells(cut_at(final, staged.gold, {LINKING: LINKING})),
        "right": right,
        "wrong": wrong,
        "missed": missed,
        "precision": right / (right + wrong) if right + wrong else None,
        "recall": right / (right + missed) if right + missed else None,
    }
    return document, None
