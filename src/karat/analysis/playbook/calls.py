"""Rules of the playbook that look at calls and stages: failures, sources, rewrites, reranking."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from karat.analysis.playbook.case import NO_LISTS, Case, Cut, Finding, mean, short
from karat.analysis.rescored import rescored
from karat.analysis.staged import ORIGINAL, RAW, SIEVES, Staged
from karat.analysis.stages.routing import missing_for_routing, routing_of
from karat.errors import MissingInputError
from karat.measures.names import Measure

# So many examples of a kind are named.
EXAMPLES = 3


def failed_calls(case: Case) -> list[Finding]:
    """Calls that failed, so that nothing can be said of what they would have found."""
    failed, queries = case.staged.final.counts.failed_calls, case.staged.final.counts.queries
    if not failed:
        return []
    errors = _errors(case.staged)
    often = "most often with " if len(errors) > 1 else ""
    why = f" ({often}{next(iter(errors))!r})" if errors else ""
    look_at = "the errors in the log"
    sentence = (
        f"{failed} of {queries} calls failed{why}: nothing else that is said here counts them;"
        f" look at {look_at}"
    )
    some = dict(list(errors.items())[:EXAMPLES])
    figures = {"failed": failed, "queries": queries, "errors": some}
    return [Finding("failed_calls", sentence, figures, look_at)]


def _errors(staged: Staged) -> dict[str, int]:
    """What failed calls say, the most frequent first."""
    if staged.calls is None or "error" not in staged.calls.columns:
        return {}
    asked = pl.Series(staged.gold.code_of(staged.calls["query_id"]) >= 0)
    texts = staged.calls["error"].filter(asked).drop_nulls().cast(pl.String).to_list()
    counts = {text: texts.count(text) for text in sorted(set(texts))}
    return dict(sorted(counts.items(), key=lambda one: -one[1]))


def gold_not_in_corpus(case: Case) -> list[Finding]:
    """Relevant gold that the corpus lacks: nothing can find it."""
    gold = case.staged.gold
    if gold.corpus is None:
        raise MissingInputError("needs the corpus")
    column = "item_id" if gold.conventions.level == "item" else "doc_id"
    relevant = gold.rows.filter(pl.col("grade") >= gold.conventions.rel)
    lost = relevant.filter(~pl.col("item_id").is_in(gold.corpus[column].unique().implode()))
    if not lost.height:
        return []
    hurt = lost["code"].n_unique()
    names = lost["item_id"].unique().sort().head(EXAMPLES).to_list()
    look_at = "the ids in the gold, or what was left out of the corpus"
    sentence = (
        f"{lost.height} of {relevant.height} relevant judgments ({hurt}"
        f" {'query' if hurt == 1 else 'queries'}) name what the corpus lacks, such as"
        f" {names[0]!r}: no system can find it; look at {look_at}"
    )
    figures = {"lost": lost.height, "of": relevant.height, "queries": hurt, "examples": names}
    return [Finding("gold_not_in_corpus", sentence, figures, look_at)]


def wrong_source(case: Case) -> list[Finding]:
    """Queries that were sent elsewhere than to the source that is right for them."""
    if case.staged.final.trace is None:
        raise MissingInputError(NO_LISTS)
    recall = Measure("R", case.lines.near)
    final = rescored(case.staged, [recall])
    found = routing_of(replace(case.staged, final=final), case.queries, recall)
    lacks = missing_for_routing(found)
    if found is None or lacks is not None:
        raise MissingInputError(lacks or "needs the source of each call")
    both, wrong = found.judged, [one.query_id for one in found.judged if not one.covered]
    if not wrong:
        return []
    look_at = "the router's rules, and the recall of each source"
    share = len(wrong) / len(both)
    sentence = (
        f"{len(wrong)} of {len(both)} queries ({short(share)}) went to a wrong source, such as"
        f" {wrong[0]!r}; look at {look_at}"
    )
    figures = {"wrong": len(wrong), "n": len(both), "share": share, "examples": wrong[:EXAMPLES]}
    return [Finding("wrong_source", sentence, figures, look_at)]


def rewrite_hurts(case: Case) -> list[Finding]:
    """The lists for the rewritten queries hold less gold than those for the original ones."""
    original = case.staged.beside.get(ORIGINAL)
    if original is None:
        raise MissingInputError("needs the list for the original query: stages.original in the log")
    near = case.near
    logged = case.staged.logged.get(ORIGINAL, frozenset())
    here = np.array([query_id in logged for query_id in case.staged.gold.query_ids], dtype=bool)
    before = np.where(here, case.values("R", Cut(original, near.k)), np.nan)
    after = np.where(here, case.values("R", near), np.nan)
    delta = after - before
    old, new, p = mean(before), mean(after), case.p_of(delta)
    if new >= old or p >= case.alpha:
        return []
    look_at = "the rewriter: what it drops or adds where the original finds more"
    k = near.k
    sentence = (
        f"R@{k} {short(new)} with rewritten queries but {short(old)} with the original ones:"
        f" rewriting loses evidence; look at {look_at}"
    )
    figures = {f"R@{k}": new, "original": old, "worse": int((delta < 0).sum()), "p": p}
    n = int((~np.isnan(delta)).sum())
    return [Finding("rewrite_hurts", sentence, {**figures, "n": n}, look_at)]


def reranker_hurts(case: Case) -> list[Finding]:
    """The final order is worse than the one that the reranker was given."""
    given = [name for name in (RAW, *SIEVES) if name in case.staged.line]
    if not given:
        raise MissingInputError("needs the raw list: raw in the log")
    near = case.near
    before = case.values("nDCG", case.within(case.staged.line[given[-1]], near.k, given[-1]))
    after = case.values("nDCG", near)
    old, new, p = mean(before), mean(after), case.p_of(after - before)
    if new >= old or p >= case.alpha:
        return []
    look_at = "the reranker: its model, its input, its language"
    k = near.k
    sentence = (
        f"nDCG@{k} {short(new)} in the final list but {short(old)} in the one before"
        f" ({given[-1]}): reranking makes the order worse; look at {look_at}"
    )
    figures = {f"nDCG@{k}": new, given[-1]: old, "worse": int((after < before).sum())}
    return [Finding("reranker_hurts", sentence, {**figures, "p": p, "n": case.n}, look_at)]
