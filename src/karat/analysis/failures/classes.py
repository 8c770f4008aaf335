"""The classes of misses: for each its condition, its evidence, its advice and what it needs.

They follow the path of a query through a system; the first that applies wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from karat.analysis.failures.case import Case, LastGold
from karat.analysis.stages.routing import JOINED, source_names
from karat.evaluation.stages import ORIGINAL, RAW
from karat.measure.ranked import Ints, Mask

Facts = dict[str, Any]
# The facts that put a query into its class, and the sentence made of them.
Evidence = tuple[Facts, str]

BEYOND = "beyond_depth"


class FailureClass(NamedTuple):
    """A class of misses.

    ``advice`` says what the class means and where to look. ``applies`` returns which of the
    queries left over are in it, ``explain`` why one of them is. ``lacks`` returns what is missing
    to check it, if anything is.
    """

    advice: str
    applies: Callable[[Case, Mask], Mask]
    explain: Callable[[Case, int], Evidence]
    lacks: Callable[[Case], str | None] = lambda case: None


def classes_of(case: Case) -> Ints:
    """Return the place of each query's class in CLASSES: the first that applies; -1 for no miss."""
    places = np.full(len(case.misses), -1)
    for at, failure_class in enumerate(TABLE.values()):
        left = case.misses & (places < 0)
        if not left.any():
            break
        places[left & failure_class.applies(case, left)] = at
    return places


def evidence_of(case: Case, kind: str, query: int, gold: str) -> Evidence:
    """Return the facts and the sentence for a query of a class, judged by one of its gold items."""
    facts: Facts = {"gold": gold, "gold_items": len(case.relevant_rows(query))}
    if kind not in UNANSWERED:
        way = case.way
        lists = zip(way.names, way.lists, way.own, strict=True)
        ranks = {name: _rank(best.rank[query]) for name, best, own in lists if own[query]}
        if RAW in ranks:
            facts["raw_rank"] = ranks.pop(RAW)
        if ranks:
            facts["ranks"] = ranks
        facts["final_rank"] = _rank(way.final.rank[query])
        facts["returned"] = int(way.final.returned[query])
    more, because = TABLE[kind].explain(case, query)
    return {**facts, **more}, because


def unchecked(case: Case) -> dict[str, str]:
    """Return what is needed for each class that could not be checked, in part or at all."""
    lacks = {name: failure_class.lacks(case) for name, failure_class in TABLE.items()}
    return {name: f"needs {what}" for name, what in lacks.items() if what is not None}


def _rank(rank: float) -> int | None:
    return int(rank) if np.isfinite(rank) else None


def _list_before(what: str) -> Callable[[Case], str | None]:
    return lambda case: None if case.way.names else f"the list before the {what} in the log: raw"


_LISTS = "the top items of each list, which were not kept"


# Calls and the index.


def _why_failed(case: Case, query: int) -> Evidence:
    error = case.call(query, "error")
    error = None if error is None else str(error)
    return {"error": error}, "the call failed" + ("" if error is None else f": {error}")


def _why_not_indexed(case: Case, query: int) -> Evidence:
    n = len(case.relevant_rows(query))
    return (
        {},
        "its gold is not in the corpus"
        if n == 1
        else f"none of its {n} gold items is in the corpus",
    )


# Routing and rewriting.


def _misrouted(case: Case, left: Mask) -> Mask:
    """Return the queries sent to a wrong source, for which no gold was retrieved."""
    routed = np.zeros_like(left)
    for query in np.flatnonzero(left & ~np.isfinite(case.way.first.rank)).tolist():
        chosen = case.call(query, "source")
        if chosen is not None and (right := case.right_sources(query)):
            routed[query] = set(right).isdisjoint(source_names(chosen))
    return routed


def _why_misrouted(case: Case, query: int) -> Evidence:
    right = case.right_sources(query)
    chosen = JOINED.join(source_names(case.call(query, "source")))
    because = f"sent to {chosen}, while its gold is in {' and '.join(right)}"
    return {"chosen": chosen, "right": right}, because


def _lacks_sources(case: Case) -> str | None:
    corpus = case.gold.corpus
    in_corpus = corpus is not None and "source" in corpus.columns
    lacks = [] if case.logs("source") else ["the source of each call in the log"]
    if not in_corpus and case.query_column("source") is None:
        lacks.append("the right source: a column source in --queries or --corpus")
    return ", and ".join(lacks) or None


def _lost_by_rewriting(case: Case, left: Mask) -> Mask:
    """Return the queries whose original text finds gold at the top."""
    original = case.beside.get(ORIGINAL)
    return left & (original is not None and original.rank <= case.thresholds.miss)


def _why_lost_by_rewriting(case: Case, query: int) -> Evidence:
    rank, text = _rank(case.beside[ORIGINAL].rank[query]), case.call(query, "rewritten")
    facts: Facts = {"original_rank": rank} | ({} if text is None else {"rewritten": str(text)})
    found = f"the original query finds gold at rank {rank}, the rewritten one does not within"
    return facts, f"{found} {case.thresholds.miss}"


# Filters: what took gold out of a list.


def _place_in(case: Case, lists: LastGold, query: int) -> Facts:
    """Return the name of a query's list and the rank of gold in it; the final one if none."""
    if lists.at[query] < 0:
        return {"before": "final", "before_rank": _rank(case.way.final.rank[query])}
    return {"before": case.way.names[lists.at[query]], "before_rank": _rank(lists.rank[query])}


def _lost_after(case: Case, lists: LastGold, query: int, end: str, **facts: Any) -> Evidence:
    """Return where gold stood in a list, and what became of it."""
    facts |= _place_in(case, lists, query)
    return facts, f"at rank {facts['before_rank']} of {facts['before']}, {end}"


def _taken_out_by(case: Case, stage: str, query: int, **facts: Any) -> Evidence | None:
    """Return where a miss's gold stood before a stage took it out; None if it did not."""
    way = case.way
    if not way.taken_out[stage][query]:
        return None
    before = way.before[way.names.index(stage)]
    return _lost_after(case, before, query, f"taken out by {stage}", **facts, stage=stage)


def _too_new(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold as_of took out, or is in no list and newer than all hits.

    A list none of whose versions is known does not show that.
    """
    taken_out = case.way.taken_out["as_of"]
    nowhere = left & ~np.isfinite(case.way.after(0))
    for best in case.beside.values():
        nowhere &= ~np.isfinite(best.rank)
    if not case.gold.as_of or case.tops is None:
        return taken_out
    newer = np.zeros_like(left)
    for query in np.flatnonzero(nowhere).tolist():
        versions = [
            version for row in case.relevant_rows(query) for version in _versions(case, row)
        ]
        newer[query] = bool(versions) and all(case.in_time(v, query) == 0 for v in versions)
    aged: Mask = np.equal(case.way.final.returned, 0)
    shown = case.tops.filter(newer[case.tops["row"].to_numpy()])
    for row, version in shown.select("row", "version").iter_rows():
        age = case.in_time(version, row)
        aged[row] |= not np.isnan(age)
        newer[row] &= age != 0
    return taken_out | (newer & aged)


def _versions(case: Case, judgment: int) -> Sequence[str]:
    return case.corpus_facts["version"].get(judgment, ())


def _why_too_new(case: Case, query: int) -> Evidence:
    first = case.way.first
    hit = int(first.hit[query])
    version = first.facts["version"][hit] if hit >= 0 else None
    version = version or next(iter(_versions(case, int(case.judgment[query]))), None)
    as_of = case.gold.as_of[query] if case.gold.as_of else None
    because = f"its gold ({version}) is newer than its as_of ({as_of}), and nothing returned is"
    facts = {"version": version, "as_of": as_of}
    return _taken_out_by(case, "as_of", query, **facts) or (facts, because)


def _lacks_ages(case: Case) -> str | None:
    if "as_of" in case.way.names[1:]:
        return None
    corpus = case.gold.corpus
    lacks = [] if case.gold.as_of else ["an as_of for each query: --queries"]
    if corpus is None or "version" not in corpus.columns:
        lacks.append("a version for each item: --corpus")
    if case.tops is None:
        lacks.append(_LISTS)
    return ", and ".join(lacks) or None


def _filtered(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold was removed by the filter or by an unlogged stage."""
    # No cut leaves an empty list.
    emptied = case.way.lost_at_the_end & np.equal(case.way.final.returned, 0) & ~case.below_score
    return case.way.taken_out["filter"] | case.passed_over | emptied


def _why_filtered(case: Case, query: int) -> Evidence:
    end = "of which nothing was returned"
    if case.passed_over[query]:
        end = "above items that were returned, and not returned"
    by_filter = _taken_out_by(case, "filter", query)
    return by_filter or _lost_after(case, case.way.last, query, end)


def _below_threshold(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold scores below the threshold and was not returned."""
    return case.way.taken_out["threshold"] | (case.below_score & ~np.isfinite(case.way.final.rank))


def _why_below_threshold(case: Case, query: int) -> Evidence:
    logged, threshold = case.way.first.number("score")[query], case.thresholds.score
    facts: Facts = {"score": None if np.isnan(logged) else float(logged), "threshold": threshold}
    because = f"its score, {logged:.4g}, is below {threshold}, and it was not returned"
    return _taken_out_by(case, "threshold", query, **facts) or (facts, because)


def _lacks_scores(case: Case) -> str | None:
    if "threshold" in case.way.names[1:]:
        return None
    if case.thresholds.score is None:
        return "the threshold's list in the log: stages.threshold, or --line score=S"
    return None if _logged(case, "score") else "a score for every hit in the log"


def _logged(case: Case, fact: str) -> bool:
    """Return whether the run says anything of the kind about any judged hit."""
    return bool(case.way.first.facts[fact].count())


# Retrieval and order.


def _beyond_depth(case: Case, left: Mask) -> Mask:
    """Return the queries without gold in any list, whose list was cut too early to tell."""
    cut_at = case.staged.depth(case.staged.raw).cut_at
    if cut_at is None or cut_at >= case.thresholds.deep:
        return np.zeros_like(left)
    # A list that is shorter than the cut is complete.
    return ~np.isfinite(case.way.after(0)) & (case.way.first.returned >= cut_at)


def _why_beyond_depth(case: Case, query: int) -> Evidence:
    depth = case.staged.depth(case.staged.raw).known
    because = f"not in the top {depth:,}, where the lists were cut: it may stand lower or nowhere"
    return {"looked_at": depth}, because


def _why_nowhere(case: Case, query: int) -> Evidence:
    staged, way, deep = case.staged, case.way, case.thresholds.deep
    stage, first = next(iter(staged.line.items()), ("final", staged.final))
    # A call may have logged its final list alone.
    queries = staged.logged.get(stage)
    logged = queries is None or staged.gold.query_ids[query] in queries
    depth = staged.depth(first if logged or not way.final.returned[query] else staged.final)
    looked_at, deeper = min(deep, depth.known), _rank(way.after(0)[query])
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


def _mismatched(case: Case, left: Mask) -> Mask:
    """Return the queries whose best gold ranks low, with a similarity below the threshold."""
    rank = case.way.first.rank
    low = np.isfinite(rank) & (rank > case.thresholds.miss)
    return low & (case.similarity < case.least_similarity)


def _why_mismatched(case: Case, query: int) -> Evidence:
    similarity, least = float(case.similarity[query]), float(case.least_similarity[query])
    rank = _rank(case.way.first.rank[query])
    because = f"at rank {rank} with a similarity of {similarity:.4g}, below {least:g}"
    return {"similarity": similarity, "threshold": least}, because


def _lacks_similarities(case: Case) -> str | None:
    cosine = case.staged.final.meta.get("score_kind") == "cosine"
    if _logged(case, "similarity") or (cosine and _logged(case, "score")):
        return None
    return 'a similarity for each hit in the log, or "score_kind": "cosine"'


def _demoted(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold a reordering moved down or out."""
    way, sieved, reordered = case.way, case.way.sieved, case.way.reordered
    lost = ~np.isfinite(way.final.rank) | (sieved.rank <= case.thresholds.miss)
    earlier = np.zeros_like(left)
    for at, best in enumerate(way.lists):
        earlier |= way.own[at] & (at < reordered.at) & np.isfinite(best.rank)
    dropped = earlier & ~np.isfinite(reordered.rank)
    worse = np.isfinite(sieved.rank) & (reordered.rank > sieved.rank)
    by_list = reordered.logged & lost & (worse | dropped)
    by_final = left & ~reordered.logged & lost & np.isfinite(sieved.rank)
    if (by_final & ~case.reranked_queries).any():
        by_final &= case.reranked_queries | ~case.kept.in_order
    return by_list | by_final


def _why_demoted(case: Case, query: int) -> Evidence:
    way = case.way
    at = int(way.reordered.at[query])
    before = way.sieved if np.isfinite(way.sieved.rank[query]) else way.before[at]
    stage = way.names[at] if at >= 0 else None
    after = _rank((way.reordered if at >= 0 else way.final).rank[query])
    list_name = stage or "the final list"
    end = f"not in {list_name}" if after is None else f"at rank {after} of {list_name}"
    return _lost_after(case, before, query, end, stage=stage, after_rank=after)


def _dominated(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold ranks low, below dominant items."""
    if case.dominance is None:
        return np.zeros_like(left)
    rank = np.where(case.way.last.logged, case.way.last.rank, case.way.final.rank)
    low = np.isfinite(rank) & (rank > case.thresholds.miss)
    share = case.dominance.share
    return low & (share > 0) & (share >= case.thresholds.dominance)


def _why_dominated(case: Case, query: int) -> Evidence:
    dominance = case.dominance
    items = [] if dominance is None else dominance.above[query]
    share = 0.0 if dominance is None else float(dominance.share[query])
    shown = min(int(case.way.final.returned[query]), case.thresholds.miss)
    end = f"and {len(items)} of the top {shown} stand above the gold of many queries"
    return _lost_after(case, case.way.last, query, end, dominant=items, share=share)


def _why_low(case: Case, query: int) -> Evidence:
    rank = _rank(case.way.final.rank[query])
    return {}, f"returned at rank {rank}, below the top {case.thresholds.miss}"


def _why_cut(case: Case, query: int) -> Evidence:
    returned = int(case.way.final.returned[query])
    return _lost_after(case, case.way.last, query, f"not in the {returned:,} that were returned")


TABLE: Mapping[str, FailureClass] = {
    "failed_call": FailureClass(
        "the call failed: read its error", lambda case, left: case.status("failed"), _why_failed
    ),
    "not_in_run": FailureClass(
        "no answer was logged: is the run complete?",
        lambda case, left: case.status("missing"),
        lambda case, query: ({}, "the run has no answer to it"),
    ),
    "not_in_index": FailureClass(
        "gold is not in the corpus: index it, or correct its id",
        lambda case, left: np.zeros_like(left) if case.indexed is None else ~case.indexed,
        _why_not_indexed,
        lambda case: "a corpus: --corpus" if case.gold.corpus is None else None,
    ),
    "routed_away": FailureClass(
        "sent to the wrong source: look at the router", _misrouted, _why_misrouted, _lacks_sources
    ),
    "rewritten_away": FailureClass(
        "the query as asked finds it: look at the rewriting",
        _lost_by_rewriting,
        _why_lost_by_rewriting,
        lambda case: (
            None
            if ORIGINAL in case.beside
            else "the list for the original query in the log: stages.original"
        ),
    ),
    "freshness_filtered": FailureClass(
        "taken out as too new: look at versions and as_of", _too_new, _why_too_new, _lacks_ages
    ),
    "filtered_out": FailureClass(
        "taken out by a filter: look at its attributes",
        _filtered,
        _why_filtered,
        _list_before("filter"),
    ),
    "threshold_exclusion": FailureClass(
        "scored below the threshold: lower or calibrate it",
        _below_threshold,
        _why_below_threshold,
        _lacks_scores,
    ),
    BEYOND: FailureClass(
        "not in the lists, which were cut: log longer ones", _beyond_depth, _why_beyond_depth
    ),
    "complete_miss": FailureClass(
        "not retrieved: look at retriever, chunks, words",
        lambda case, left: case.way.after(0) > case.thresholds.deep,
        _why_nowhere,
    ),
    "embedding_mismatch": FailureClass(
        "embedded far from its query: look at model, chunks",
        _mismatched,
        _why_mismatched,
        _lacks_similarities,
    ),
    "rerank_demotion": FailureClass(
        "put lower by the reranker: look at its model",
        _demoted,
        _why_demoted,
        _list_before("reranker"),
    ),
    "false_positive_dominance": FailureClass(
        "the same wrong items stand above it: look at them",
        _dominated,
        _why_dominated,
        lambda case: _LISTS if case.tops is None else None,
    ),
    "low_rank": FailureClass(
        "returned too low: improve the ranking, or rerank",
        lambda case, left: np.isfinite(case.way.final.rank),
        _why_low,
    ),
    "cut_by_k": FailureClass(
        "retrieved, then cut off: return more, or rerank",
        lambda case, left: case.way.lost_at_the_end,
        _why_cut,
        _list_before("cut"),
    ),
}
CLASSES = tuple(TABLE)
MEANINGS = {name: row.advice for name, row in TABLE.items()}
# The five categories that others report, and the classes that each of them counts.
FIVE: Mapping[str, tuple[str, ...]] = {
    "complete_miss": ("complete_miss", "not_in_index", "routed_away", "rewritten_away"),
    "low_rank": ("low_rank", "rerank_demotion", "cut_by_k"),
    "false_positive_dominance": ("false_positive_dominance",),
    "threshold_exclusion": ("threshold_exclusion", "freshness_filtered", "filtered_out"),
    "embedding_mismatch": ("embedding_mismatch",),
}
# No list came back for these.
UNANSWERED = ("failed_call", "not_in_run")
NOT_COUNTED = (*UNANSWERED, BEYOND)
# Where gold below the end of the lists would belong, if it could be seen.
NEED_DEPTH = ("complete_miss", "embedding_mismatch", "false_positive_dominance", "low_rank")
