"""The classes of misses: for each its condition, its evidence, its advice and what it needs.

They follow the path of a query through a system; the first that applies wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from karat.analysis.failures.case import Case, LastGold, with_ages
from karat.analysis.stages.routing import JOINED
from karat.evaluation.stages import ORIGINAL, RAW
from karat.evaluation.top_lists import logged_texts
from karat.measure.ranked import Mask

Facts = dict[str, Any]
# The facts behind a query's class, and a sentence made from them.
Evidence = tuple[Facts, str]
Explain = Callable[[int], Evidence]
# Returns which of some misses are in a class, and what explains why one of them is.
Check = Callable[[Case, Mask], tuple[Mask, Explain]]
# Returns the input that a class lacks, if any.
Lacks = Callable[[Case], str | None]

BEYOND = "beyond_depth"
# No list came back for these.
UNANSWERED = ("failed_call", "not_in_run")
NOT_COUNTED = (*UNANSWERED, BEYOND)
# The classes that gold below the end of the lists could belong to.
NEED_DEPTH = ("complete_miss", "embedding_mismatch", "false_positive_dominance", "low_rank")
# The five categories that others report, and the classes that each of them counts.
FIVE: Mapping[str, tuple[str, ...]] = {
    "complete_miss": ("complete_miss", "not_in_index", "routed_away", "rewritten_away"),
    "low_rank": ("low_rank", "rerank_demotion", "cut_by_k"),
    "false_positive_dominance": ("false_positive_dominance",),
    "threshold_exclusion": ("threshold_exclusion", "freshness_filtered", "filtered_out"),
    "embedding_mismatch": ("embedding_mismatch",),
}


class FailureClass(NamedTuple):
    """A class of misses; ``advice`` says what the class means and where to look."""

    advice: str
    check: Check
    lacks: Lacks


TABLE: dict[str, FailureClass] = {}


def failure(advice: str, lacks: Lacks = lambda case: None) -> Callable[[Check], Check]:
    """Add a class of misses after those before it, under the name of its check."""

    def add(check: Check) -> Check:
        TABLE[check.__name__] = FailureClass(advice, check, lacks)
        return check

    return add


def classes_of(case: Case) -> list[tuple[int, str, Explain]]:
    """Return each miss, by its row, with its class and what explains it."""
    classes: dict[int, tuple[str, Explain]] = {}
    unclassified = case.misses.copy()
    for name, failure_class in TABLE.items():
        if not unclassified.any():
            break
        applies, explain = failure_class.check(case, unclassified)
        classes |= dict.fromkeys(np.flatnonzero(unclassified & applies).tolist(), (name, explain))
        unclassified &= ~applies
    return [(row, *classes[row]) for row in sorted(classes)]


def evidence_of(case: Case, kind: str, explain: Explain, query: int, gold: str) -> Evidence:
    """Return the facts and the sentence for a query of a class, based on one of its gold items."""
    facts: Facts = {"gold": gold, "gold_items": len(case.relevant_rows(query))}
    if kind not in UNANSWERED:
        way = case.way
        lists = zip(way.names, way.lists, way.logged, strict=True)
        ranks = {name: _rank(best.rank[query]) for name, best, logged in lists if logged[query]}
        if RAW in ranks:
            facts["raw_rank"] = ranks.pop(RAW)
        if ranks:
            facts["ranks"] = ranks
        facts["final_rank"] = _rank(way.final.rank[query])
        facts["returned"] = int(way.final.returned[query])
    more, because = explain(query)
    return {**facts, **more}, because


def unchecked(case: Case) -> dict[str, str]:
    """Return what is needed for each class that could not be checked, in part or at all."""
    lacks = {name: failure_class.lacks(case) for name, failure_class in TABLE.items()}
    return {name: f"needs {needed}" for name, needed in lacks.items() if needed is not None}


def _rank(rank: float) -> int | None:
    return int(rank) if np.isfinite(rank) else None


def _list_before(step: str) -> Lacks:
    return lambda case: None if case.way.names else f"the list before the {step} in the log: raw"


def _in_run(case: Case, fact: str) -> bool:
    """Return whether the run has this fact for any judged hit."""
    return bool(case.way.first.facts[fact].count())


def _lost_after(case: Case, lists: LastGold, query: int, end: str, **facts: Any) -> Evidence:
    """Return the rank of gold in a query's list, else in its final one, and its fate."""
    name, rank = "final", _rank(case.way.final.rank[query])
    if lists.at[query] >= 0:
        name, rank = case.way.names[lists.at[query]], _rank(lists.rank[query])
    return {**facts, "before": name, "before_rank": rank}, f"at rank {rank} of {name}, {end}"


def _taken_out_by(case: Case, stage: str, query: int, **facts: Any) -> Evidence | None:
    """Return the rank of a miss's gold before a stage removed it; None if it did not."""
    way = case.way
    if not way.taken_out[stage][query]:
        return None
    before = way.before[way.names.index(stage)]
    return _lost_after(case, before, query, f"taken out by {stage}", **facts, stage=stage)


# Calls and the index.


@failure("the call failed: read its error")
def failed_call(case: Case, left: Mask) -> tuple[Mask, Explain]:
    errors = logged_texts(case.staged.calls, "error")

    def explain(query: int) -> Evidence:
        error = errors.get(case.gold.query_ids[query])
        return {"error": error}, "the call failed" + (f": {error}" if error else "")

    return case.status("failed"), explain


@failure("no answer was logged: is the run complete?")
def not_in_run(case: Case, left: Mask) -> tuple[Mask, Explain]:
    return case.status("missing"), lambda query: ({}, "the run has no answer for it")


@failure(
    "gold is not in the corpus: index it, or correct its id",
    lambda case: "a corpus: --corpus" if case.gold.corpus is None else None,
)
def not_in_index(case: Case, left: Mask) -> tuple[Mask, Explain]:
    def explain(query: int) -> Evidence:
        n = len(case.relevant_rows(query))
        gold = "its gold is not" if n == 1 else f"none of its {n} gold items is"
        return {}, f"{gold} in the corpus"

    return np.zeros_like(left) if case.indexed is None else ~case.indexed, explain


# Routing and rewriting.


def _lacks_sources(case: Case) -> str | None:
    lacks = [] if any(case.chosen_sources) else ["the source of each call in the log"]
    if not any(case.right_sources):
        lacks.append("the right source: a column source in --queries or --corpus")
    return ", and ".join(lacks) or None


@failure("sent to the wrong source: look at the router", _lacks_sources)
def routed_away(case: Case, left: Mask) -> tuple[Mask, Explain]:
    """Return the queries sent to a wrong source, for which no gold was retrieved."""
    wrong = [
        bool(chosen and right) and set(right).isdisjoint(chosen)
        for chosen, right in zip(case.chosen_sources, case.right_sources, strict=True)
    ]

    def explain(query: int) -> Evidence:
        right = list(case.right_sources[query])
        chosen = JOINED.join(case.chosen_sources[query])
        because = f"sent to {chosen}, while its gold is in {' and '.join(right)}"
        return {"chosen": chosen, "right": right}, because

    return np.array(wrong, dtype=bool) & ~np.isfinite(case.way.first.rank), explain


@failure(
    "the original query finds it: check the rewriting",
    lambda case: None if ORIGINAL in case.beside else "the original query's list: stages.original",
)
def rewritten_away(case: Case, left: Mask) -> tuple[Mask, Explain]:
    """Return the queries whose original text finds gold at the top."""
    miss, nowhere = case.thresholds.miss, np.full(len(left), np.inf)
    ranks = case.beside[ORIGINAL].rank if ORIGINAL in case.beside else nowhere
    texts = logged_texts(case.staged.calls, "rewritten")

    def explain(query: int) -> Evidence:
        rank, text = _rank(ranks[query]), texts.get(case.gold.query_ids[query])
        facts: Facts = {"original_rank": rank} | ({} if text is None else {"rewritten": text})
        because = f"the original query finds gold at rank {rank}, the rewritten one does not within"
        return facts, f"{because} {miss}"

    return np.less_equal(ranks, miss), explain


# Filters that removed gold from a list.


def _lacks_ages(case: Case) -> str | None:
    if "as_of" in case.way.names[1:]:
        return None
    lacks = [] if case.gold.as_of else ["an as_of for each query: --queries"]
    columns = [] if case.gold.corpus is None else case.gold.corpus.columns
    lacks += [] if "version" in columns else ["a version for each item: --corpus"]
    return ", and ".join([*lacks, *filter(None, [_lacks_lists(case)])]) or None


def _lacks_lists(case: Case) -> str | None:
    return "the top items of each list, which were not kept" if case.tops is None else None


@failure("taken out as too new: look at versions and as_of", _lacks_ages)
def freshness_filtered(case: Case, left: Mask) -> tuple[Mask, Explain]:
    """Return the queries whose gold as_of removed, or is in no list and newer than all hits.

    A list none of whose versions is known does not show that.
    """
    newer, dated = np.zeros_like(left), np.equal(case.way.final.returned, 0)
    if case.gold.as_of and case.tops is not None:
        ages = with_ages(case.gold_versions, case.gold)
        newer[ages["row"]] = True
        newer[ages.filter(pl.col("in_time").ne_missing(0))["row"]] = False
        for best in (case.way.after(0), *(best.rank for best in case.beside.values())):
            newer &= ~np.isfinite(best)
        tops = with_ages(case.tops, case.gold)
        newer[tops.filter(pl.col("in_time") == 0)["row"]] = False
        dated[tops.drop_nulls("in_time")["row"]] = True
    # Of several versions the first one.
    versions = dict(case.gold_versions.reverse().select("judgment", "version").iter_rows())

    def explain(query: int) -> Evidence:
        first = case.way.first
        hit = int(first.hit[query])
        version = first.facts["version"][hit] if hit >= 0 else None
        version = version or versions.get(int(case.judgment[query]))
        as_of = case.gold.as_of[query] if case.gold.as_of else None
        facts = {"version": version, "as_of": as_of}
        because = f"its gold ({version}) is newer than its as_of ({as_of}), and nothing returned is"
        return _taken_out_by(case, "as_of", query, **facts) or (facts, because)

    return case.way.taken_out["as_of"] | (newer & dated), explain


@failure("taken out by a filter: look at its attributes", _list_before("filter"))
def filtered_out(case: Case, left: Mask) -> tuple[Mask, Explain]:
    """Return the queries whose gold was removed by the filter or by an unlogged stage."""

    def explain(query: int) -> Evidence:
        end = "from which nothing was returned"
        if case.passed_over[query]:
            end = "above items that were returned, and not returned"
        by_filter = _taken_out_by(case, "filter", query)
        return by_filter or _lost_after(case, case.way.last, query, end)

    # No cut leaves an empty list.
    emptied = case.way.lost_at_the_end & np.equal(case.way.final.returned, 0) & ~case.below_score
    return case.way.taken_out["filter"] | case.passed_over | emptied, explain


def _lacks_scores(case: Case) -> str | None:
    if "threshold" in case.way.names[1:]:
        return None
    if case.thresholds.score is None:
        return "the threshold's list in the log: stages.threshold, or --line score=S"
    return None if _in_run(case, "score") else "a score for every hit in the log"


@failure("scored below the threshold: lower or calibrate it", _lacks_scores)
def threshold_exclusion(case: Case, left: Mask) -> tuple[Mask, Explain]:
    """Return the queries whose gold scores below the threshold and was not returned."""

    def explain(query: int) -> Evidence:
        score, threshold = case.way.first.number("score")[query], case.thresholds.score
        facts: Facts = {"score": None if np.isnan(score) else float(score), "threshold": threshold}
        because = f"its score, {score:.4g}, is below {threshold}, and it was not returned"
        return _taken_out_by(case, "threshold", query, **facts) or (facts, because)

    below = case.below_score & ~np.isfinite(case.way.final.rank)
    return case.way.taken_out["threshold"] | below, explain


# Retrieval and order.


@failure("not in the lists, which were cut: log longer ones")
def beyond_depth(case: Case, left: Mask) -> tuple[Mask, Explain]:
    """Return the queries without gold in any list, whose list was cut too early to tell."""
    depth = case.staged.depth(case.staged.raw)
    beyond = np.zeros_like(left)
    if depth.cut_at is not None and depth.cut_at < case.thresholds.deep:
        # A list that is shorter than the cut is complete.
        beyond = ~np.isfinite(case.way.after(0)) & (case.way.first.returned >= depth.cut_at)
    end = "where the lists were cut: it may be lower or missing"
    because = f"not in the top {depth.known:,}, {end}"
    return beyond, lambda query: ({"looked_at": depth.known}, because)


@failure("not retrieved: look at retriever, chunks, words")
def complete_miss(case: Case, left: Mask) -> tuple[Mask, Explain]:
    staged, way, deep = case.staged, case.way, case.thresholds.deep
    best_ranks = way.after(0)
    stage, first = next(iter(staged.line.items()), ("final", staged.final))
    logged = staged.logged.get(stage, frozenset(staged.gold.query_ids))

    def explain(query: int) -> Evidence:
        # A call may have logged its final list alone.
        by_first = staged.gold.query_ids[query] in logged or not way.final.returned[query]
        depth = staged.depth(first if by_first else staged.final)
        looked_at, deeper = min(deep, depth.known), _rank(best_ranks[query])
        facts: Facts = {
            "looked_at": looked_at,
            "depth_from": "longest list" if depth.asked is None else "log",
            "retrieved": int(way.first.returned[query]),
            "deeper_rank": deeper,
        }
        ranks = {name: _rank(best.rank[query]) for name, best in case.beside.items()}
        if beside := {name: rank for name, rank in ranks.items() if rank is not None}:
            facts["beside"] = beside
        if not facts["retrieved"]:
            return facts, "nothing was retrieved"
        if deeper is not None:
            return facts, f"not in the top {looked_at}; its best rank is {deeper}"
        ends = f", where the {facts['depth_from']} ends" if looked_at < deep else ""
        others = [f"; {name} has it at rank {rank}" for name, rank in beside.items()]
        return facts, f"not in the top {looked_at}{ends}{''.join(others)}"

    return best_ranks > deep, explain


def _lacks_similarities(case: Case) -> str | None:
    cosine = case.staged.final.meta.get("score_kind") == "cosine"
    if _in_run(case, "similarity") or (cosine and _in_run(case, "score")):
        return None
    return 'a similarity for each hit in the log, or "score_kind": "cosine"'


@failure("embedded far from its query: look at model, chunks", _lacks_similarities)
def embedding_mismatch(case: Case, left: Mask) -> tuple[Mask, Explain]:
    """Return the queries whose best gold ranks low, with a similarity below the threshold."""
    ranks, similarities, least = case.way.first.rank, case.similarity, case.least_similarity

    def explain(query: int) -> Evidence:
        similarity, threshold = float(similarities[query]), float(least[query])
        rank = _rank(ranks[query])
        because = f"at rank {rank} with a similarity of {similarity:.4g}, below {threshold:g}"
        return {"similarity": similarity, "threshold": threshold}, because

    low = np.isfinite(ranks) & (ranks > case.thresholds.miss)
    return low & (similarities < least), explain


@failure("lowered by the reranker: check its model", _list_before("reranker"))
def rerank_demotion(case: Case, left: Mask) -> tuple[Mask, Explain]:
    """Return the queries whose gold a reordering moved down or out."""
    way, sieved, reordered = case.way, case.way.sieved, case.way.reordered
    lost = ~np.isfinite(way.final.rank) | (sieved.rank <= case.thresholds.miss)
    earlier = np.zeros_like(left)
    for at, best in enumerate(way.lists):
        earlier |= way.logged[at] & (at < reordered.at) & np.isfinite(best.rank)
    dropped = earlier & ~np.isfinite(reordered.rank)
    worse = np.isfinite(sieved.rank) & (reordered.rank > sieved.rank)
    by_list = reordered.logged & lost & (worse | dropped)
    by_final = left & ~reordered.logged & lost & np.isfinite(sieved.rank)
    if (by_final & ~case.reranked_queries).any():
        by_final &= case.reranked_queries | ~case.kept[0]

    def explain(query: int) -> Evidence:
        at = int(reordered.at[query])
        before = sieved if np.isfinite(sieved.rank[query]) else way.before[at]
        stage = way.names[at] if at >= 0 else None
        after = _rank((reordered if at >= 0 else way.final).rank[query])
        name = stage or "the final list"
        end = f"not in {name}" if after is None else f"at rank {after} of {name}"
        return _lost_after(case, before, query, end, stage=stage, after_rank=after)

    return by_list | by_final, explain


@failure("the same wrong items rank above it: inspect them", _lacks_lists)
def false_positive_dominance(case: Case, left: Mask) -> tuple[Mask, Explain]:
    """Return the queries whose gold ranks low, below dominant items."""
    way, miss, dominance = case.way, case.thresholds.miss, case.dominance
    if dominance is None:
        return np.zeros_like(left), lambda query: ({}, "")

    def explain(query: int) -> Evidence:
        items, share = dominance.above[query], float(dominance.share[query])
        shown = min(int(way.final.returned[query]), miss)
        end = f"and {len(items)} of the top {shown} rank above the gold of many queries"
        return _lost_after(case, way.last, query, end, dominant=items, share=share)

    ranks = np.where(way.last.logged, way.last.rank, way.final.rank)
    low = np.isfinite(ranks) & (ranks > miss)
    return low & (dominance.share > 0) & (dominance.share >= case.thresholds.dominance), explain


@failure("returned too low: improve the ranking, or rerank")
def low_rank(case: Case, left: Mask) -> tuple[Mask, Explain]:
    def explain(query: int) -> Evidence:
        rank = _rank(case.way.final.rank[query])
        return {}, f"returned at rank {rank}, below the top {case.thresholds.miss}"

    return np.isfinite(case.way.final.rank), explain


@failure("retrieved, then cut off: return more, or rerank", _list_before("cut"))
def cut_by_k(case: Case, left: Mask) -> tuple[Mask, Explain]:
    def explain(query: int) -> Evidence:
        end = f"not in the {int(case.way.final.returned[query]):,} that were returned"
        return _lost_after(case, case.way.last, query, end)

    return case.way.lost_at_the_end, explain


CLASSES = tuple(TABLE)
MEANINGS = {name: row.advice for name, row in TABLE.items()}
