"""Rules of the playbook that look at calls: failed, missing, empty, sent elsewhere, rewritten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from karat.analysis.failures.gold_index import in_index, known_to_corpus
from karat.analysis.playbook.case import NO_LISTS, Case, Cut, Finding, Mask, mean, short
from karat.analysis.rescored import rescored
from karat.analysis.staged import ORIGINAL, Staged
from karat.analysis.stages.routing import missing_for_routing, routing_of
from karat.errors import MissingInputError
from karat.measures.names import Measure

# So many examples of a kind are named.
EXAMPLES = 3


def failed_calls(case: Case) -> list[Finding]:
    """Calls that failed, so that nothing can be said of what they would have found."""
    failed = case.staged.final.counts.failed_calls
    if not failed:
        return []
    made = _calls_made(case.staged)
    errors = _errors(case.staged)
    often = "most often with " if len(errors) > 1 else ""
    why = f" ({often}{next(iter(errors))!r})" if errors else ""
    look_at = "the errors in the log"
    sentence = (
        f"{failed} of {made} {'call' if made == 1 else 'calls'} failed{why}: no other finding"
        f" counts them; look at {look_at}"
    )
    some = dict(list(errors.items())[:EXAMPLES])
    figures = {"failed": failed, "calls": made, "errors": some}
    return [Finding("failed_calls", sentence, figures, look_at)]


def _calls_made(staged: Staged) -> int:
    """How many of the queries were asked at all."""
    counts = staged.final.counts
    if staged.calls is None:
        return counts.queries - counts.missing
    called = np.unique(staged.gold.code_of(staged.calls["query_id"]))
    return int((called >= 0).sum())


def _errors(staged: Staged) -> dict[str, int]:
    """What failed calls say, the most frequent first."""
    if staged.calls is None or "error" not in staged.calls.columns:
        return {}
    asked = pl.Series(staged.gold.code_of(staged.calls["query_id"]) >= 0)
    texts = staged.calls["error"].filter(asked).drop_nulls().cast(pl.String).to_list()
    counts = {text: texts.count(text) for text in sorted(set(texts))}
    return dict(sorted(counts.items(), key=lambda one: -one[1]))


def not_in_run(case: Case) -> list[Finding]:
    """Queries with gold that the run has no answer to, not even an empty one."""
    final = case.staged.final
    absent = (final.status == "missing").to_numpy()
    missing = int(absent.sum())
    if not missing:
        return []
    counts = final.counts
    asked = counts.queries - counts.empty_gold - counts.no_answer
    whose = "queries" if asked == counts.queries else "queries with gold"
    names = [case.staged.gold.query_ids[at] for at in np.flatnonzero(absent)[:EXAMPLES]]
    how = "count them as 0" if final.conventions.missing == "zero" else "leave them out"
    look_at = "whether the run is complete"
    sentence = (
        f"{missing} of {asked} {whose} {'is' if missing == 1 else 'are'} not in the run, such as"
        f" {names[0]!r}: the measures {how}, and no other finding counts them; look at {look_at}"
    )
    figures = {"missing": missing, "queries": asked, "examples": names}
    return [Finding("not_in_run", sentence, figures, look_at)]


def nothing_returned(case: Case) -> list[Finding]:
    """Calls for queries with gold that did not fail and returned no item."""
    trace = case.staged.final.trace
    if trace is None:
        raise MissingInputError(NO_LISTS)
    empty = case.answered & (trace.ranked.returned == 0)
    if not empty.any():
        return []
    names = [case.staged.gold.query_ids[at] for at in np.flatnonzero(empty)[:EXAMPLES]]
    count, look_at = int(empty.sum()), "filters, thresholds, and the index"
    sentence = (
        f"{count} of {case.n} answered {'query' if case.n == 1 else 'queries'} got no item at all,"
        f" such as {names[0]!r}; look at {look_at}"
    )
    return [
        Finding(
            "nothing_returned",
            sentence,
            {"empty": count, "n": case.n, "examples": names},
            look_at,
        )
    ]


def gold_not_in_corpus(case: Case) -> list[Finding]:
    """Relevant gold that the corpus lacks and no list holds: nothing can find it."""
    gold = case.staged.gold
    known = _can_be_found(case.staged)
    if known is None:
        raise MissingInputError("needs the corpus")
    counts = pl.col("grade") >= gold.conventions.rel
    relevant = gold.rows.filter(counts)
    lost = gold.rows.filter(counts & ~pl.Series(known))
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


def _can_be_found(staged: Staged) -> Mask | None:
    """Which judgments the corpus has or any list holds; None without a corpus."""
    every = (staged.final, *staged.line.values(), *staged.beside.values())
    if any(scores.trace is None for scores in every):
        return known_to_corpus(staged.gold)
    return in_index(staged)


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
        f"{len(wrong)} of {len(both)} queries went to a wrong source, such as {wrong[0]!r};"
        f" look at {look_at}"
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
