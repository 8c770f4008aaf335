"""The rules that put a miss into its class, in the order of a query's path through a system."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from karat.analysis.failures.case import Case, attributes, names_of, relevant_rows
from karat.analysis.stages.routing import JOINED, source_names
from karat.evaluation.stages import ORIGINAL, RAW
from karat.measures.aggregates import Values
from karat.measures.ranked import Ints, Mask

# A rule says of which of the queries left over it holds.
Rule = Callable[[Case, Mask], Mask]


def failed_call(case: Case, left: Mask) -> Mask:
    """Return the queries whose call failed."""
    return case.status("failed")


def not_in_run(case: Case, left: Mask) -> Mask:
    """Return the queries that the run has no answer to."""
    return case.status("missing")


def not_in_index(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold is neither in the corpus nor in any list."""
    return np.zeros_like(left) if case.indexed is None else ~case.indexed


def routed_away(case: Case, left: Mask) -> Mask:
    """Return the queries sent to a wrong source, for which no gold was retrieved."""
    found = np.zeros_like(left)
    chosen = case.chosen
    if chosen is None:
        return found
    lost = np.flatnonzero(left & ~np.isfinite(case.way.first.rank)).tolist()
    for query, right in case.right_sources([q for q in lost if chosen[q] is not None]).items():
        found[query] = bool(right) and set(right).isdisjoint(source_names(chosen[query]))
    return found


def rewritten_away(case: Case, left: Mask) -> Mask:
    """Return the queries whose original text finds gold at the top."""
    if case.original is None:
        return np.zeros_like(left)
    return np.less_equal(case.original.rank, case.thresholds.miss)


def freshness_filtered(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold as_of took out, or is newer than everything returned."""
    return taken_out(case, "as_of") | _kept_from_the_lists(case, left)


def _kept_from_the_lists(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold is in no list and newer than as_of and than all hits."""
    found = np.zeros_like(left)
    gold = case.staged.gold
    nowhere = left & ~np.isfinite(case.way.anywhere)
    for best in case.beside.values():
        nowhere &= ~np.isfinite(best.rank)
    if not gold.as_of or case.tops is None or not nowhere.any():
        return found
    rows = {query: relevant_rows(gold, query) for query in np.flatnonzero(nowhere).tolist()}
    versions = attributes(gold, [row for own in rows.values() for row in own], "version")
    for query, own in rows.items():
        ages = [case.in_time(version, query) for row in own for version in versions.get(row, ())]
        found[query] = bool(ages) and not any(age != 0 for age in ages)
    return found & _nothing_newer(case, found)


def _nothing_newer(case: Case, asked: Mask) -> Mask:
    """Return the queries whose list holds nothing newer, as far as versions are known.

    A list none of whose versions is known says nothing of that.
    """
    fine = asked.copy()
    if case.tops is None or not asked.any():
        return fine
    rows = case.tops["row"].to_numpy()
    shown = case.tops.filter(asked[rows])
    aged = np.zeros(len(asked), dtype=bool)
    for row, version in shown.select("row", "version").rows():
        age = case.in_time(version, row)
        aged[row] |= age == age
        fine[row] &= age != 0
    return fine & (aged | np.equal(case.way.final.returned, 0))


def filtered_out(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold was removed by the filter or by an unlogged stage."""
    return taken_out(case, "filter") | passed_over(case, left) | _emptied(case)


def taken_out(case: Case, stage: str) -> Mask:
    """Return the queries whose gold is in the list before a stage and in none after it."""
    way = case.way
    if stage not in way.names:
        return np.zeros_like(case.misses)
    at = way.names.index(stage)
    return way.own[at] & np.isfinite(way.before(at).rank) & ~np.isfinite(way.after(at))


def _lost_at_the_end(case: Case) -> Mask:
    """Return the queries whose gold is in the last list logged and not in the final one."""
    return np.isfinite(case.way.last.rank) & ~np.isfinite(case.way.final.rank)


def passed_over(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold stood above an item that was returned, in the same order."""
    lost = _lost_at_the_end(case) & left
    if not lost.any():
        return lost
    return lost & case.kept.in_order & (case.way.last.rank <= case.kept.above)


def _emptied(case: Case) -> Mask:
    """Return the queries with gold in the last list and an empty final list: no cut does that."""
    nothing = np.equal(case.way.final.returned, 0)
    return _lost_at_the_end(case) & nothing & ~case.below_score


def threshold_exclusion(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold scores below the threshold and was not returned."""
    gone = ~np.isfinite(case.way.final.rank)
    return taken_out(case, "threshold") | (case.below_score & gone)


def beyond_depth(case: Case, left: Mask) -> Mask:
    """Return the queries without gold in any list, whose list was cut too early to tell."""
    depth = case.staged.depth(case.staged.raw)
    if depth.cut_at is None or depth.cut_at >= case.thresholds.deep:
        return np.zeros_like(left)
    # A list that is shorter than the cut is all that there was.
    return ~np.isfinite(case.way.anywhere) & (case.way.first.returned >= depth.cut_at)


def complete_miss(case: Case, left: Mask) -> Mask:
    """Return the queries without gold in any list, down to the depth searched."""
    return case.way.anywhere > case.thresholds.deep


def embedding_mismatch(case: Case, left: Mask) -> Mask:
    """Return the queries whose best gold ranks low, with a similarity below the threshold."""
    rank = case.way.first.rank
    low = np.isfinite(rank) & (rank > case.thresholds.miss)
    return low & (case.similarity < case.least_similarity)


def rerank_demotion(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold a reordering moved down or out."""
    way, miss = case.way, case.thresholds.miss
    gone = ~np.isfinite(way.final.rank)
    lost = gone | (way.sieved.rank <= miss)
    logged = way.reordered.there
    earlier = np.isfinite(_best_before(case, way.reordered.at))
    dropped = earlier & ~np.isfinite(way.reordered.rank)
    worse = np.isfinite(way.sieved.rank) & (way.reordered.rank > way.sieved.rank)
    by_list = logged & lost & (worse | dropped)
    by_final = left & ~logged & lost & np.isfinite(way.sieved.rank)
    if (by_final & ~case.reranked_queries).any():
        by_final &= case.reranked_queries | ~case.kept.in_order
    return by_list | by_final


def _best_before(case: Case, at: Ints) -> Values:
    """Return the best rank of gold in any list before the stage at each query's place."""
    best = np.full(len(at), np.inf)
    for place, hits in enumerate(case.way.lists):
        here = case.way.own[place] & (place < at)
        best = np.where(here, np.minimum(best, hits.rank), best)
    return best


def false_positive_dominance(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold ranks low, below dominant items."""
    if case.dominance is None:
        return np.zeros_like(left)
    rank = np.where(case.way.last.there, case.way.last.rank, case.way.final.rank)
    low = np.isfinite(rank) & (rank > case.thresholds.miss)
    taken = (case.dominance.share > 0) & (case.dominance.share >= case.thresholds.dominance)
    return low & taken


def low_rank(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold was returned, but too low."""
    return np.isfinite(case.way.final.rank)


def cut_by_k(case: Case, left: Mask) -> Mask:
    """Return the queries whose gold was in the last list before the cut and not returned."""
    return _lost_at_the_end(case)


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        failed_call,
        not_in_run,
        not_in_index,
        routed_away,
        rewritten_away,
        freshness_filtered,
        filtered_out,
        threshold_exclusion,
        beyond_depth,
        complete_miss,
        embedding_mismatch,
        rerank_demotion,
        false_positive_dominance,
        low_rank,
        cut_by_k,
    )
}
CLASSES = tuple(RULES)


def classes_of(case: Case) -> Ints:
    """Return the place of each query's class in CLASSES: the first that applies; -1 for no miss."""
    found = np.full(len(case.misses), -1)
    for at, rule in enumerate(RULES.values()):
        left = case.misses & (found < 0)
        if not left.any():
            break
        found[left & rule(case, left)] = at
    return found


_LISTS = "the top items of each list, which were not kept"


def unchecked(case: Case) -> dict[str, str]:
    """Return what is needed for each class that could not be checked, in part or at all."""
    lacks: dict[str, str | None] = {
        "not_in_index": None if case.staged.gold.corpus is not None else "a corpus: --corpus",
        "routed_away": _of_sources(case),
        "rewritten_away": _of_rewriting(case),
        "freshness_filtered": None if _sieved(case, "as_of") else _of_ages(case),
        "filtered_out": _list_before(case, "filter"),
        "threshold_exclusion": None if _sieved(case, "threshold") else _of_scores(case),
        "embedding_mismatch": _of_similarities(case),
        "rerank_demotion": _list_before(case, "reranker"),
        "false_positive_dominance": None if case.tops is not None else _LISTS,
        "cut_by_k": _list_before(case, "cut"),
    }
    return {name: f"needs {what}" for name, what in lacks.items() if what is not None}


def _sieved(case: Case, stage: str) -> bool:
    """Return whether the log has the lists of a sieve, and those before it."""
    return stage in case.way.names[1:]


def _list_before(case: Case, what: str) -> str | None:
    return None if case.way.names else f"the list before the {what} in the log: raw"


def _of_rewriting(case: Case) -> str | None:
    if case.original is not None:
        return None
    return "the list for the original query in the log: stages.original"


def _of_sources(case: Case) -> str | None:
    """Return what is missing to tell whether a query was sent to the right source."""
    corpus = case.staged.gold.corpus
    known = case.asked("source") is not None or (corpus is not None and "source" in corpus.columns)
    lacks = [] if case.chosen is not None else ["the source of each call in the log"]
    if not known:
        lacks.append("the right source: a column source in --queries or --corpus")
    return ", and ".join(lacks) or None


def _of_ages(case: Case) -> str | None:
    """Return what is missing to tell whether gold is too new."""
    gold = case.staged.gold
    lacks = [] if gold.as_of else ["an as_of for each query: --queries"]
    if gold.corpus is None or "version" not in gold.corpus.columns:
        lacks.append("a version for each item: --corpus")
    if case.tops is None:
        lacks.append(_LISTS)
    return ", and ".join(lacks) or None


def _of_scores(case: Case) -> str | None:
    """Return what is missing to tell whether gold was below the system's threshold."""
    if case.thresholds.score is None:
        return "the threshold's list in the log: stages.threshold, or --line score=S"
    return None if _logged(case, "score") else "a score for every hit in the log"


def _of_similarities(case: Case) -> str | None:
    """Return what is missing to tell whether gold is embedded badly."""
    cosine = case.staged.final.meta.get("score_kind") == "cosine"
    if _logged(case, "similarity") or (cosine and _logged(case, "score")):
        return None
    return 'a similarity for each hit in the log, or "score_kind": "cosine"'


def _logged(case: Case, fact: str) -> bool:
    """Return whether the run says anything of the kind about any judged hit."""
    return bool(case.way.first.facts[fact].count())


# No list came back for these.
UNANSWERED = ("failed_call", "not_in_run")

Facts = dict[str, Any]
# What a class adds to the facts of each of its queries, and why they are in it.
Told = Iterator[tuple[Facts, str]]
Teller = Callable[[Case, Sequence[int]], Told]


def evidence_of(case: Case, kind: str, rows: Sequence[int]) -> Iterator[tuple[Facts, str]]:
    """Yield the facts and the sentence for every query of one class, in the order of its rows."""
    told = _TELLERS[kind](case, rows)
    ranks: Iterator[Facts] = ({} for _ in rows) if kind in UNANSWERED else _ranks(case, rows)
    names = names_of(case.staged.gold, _judged_by(case)[rows].tolist())
    for query, name, own, (more, because) in zip(rows, names, ranks, told, strict=True):
        n = len(relevant_rows(case.staged.gold, query))
        yield {"gold": name, "gold_items": n, **own, **more}, because


def _ranks(case: Case, rows: Sequence[int]) -> Iterator[Facts]:
    """Yield where the best-placed gold of a query stands in every list that was logged."""
    way = case.way
    lists = [*zip(way.names, way.lists, way.own, strict=True)]
    for query in rows:
        facts: Facts = {}
        ranks = {name: _rank(best.rank[query]) for name, best, own in lists if own[query]}
        if RAW in ranks:
            facts["raw_rank"] = ranks.pop(RAW)
        if ranks:
            facts["ranks"] = ranks
        facts["final_rank"] = _rank(way.final.rank[query])
        facts["returned"] = int(way.final.returned[query])
        yield facts


def _judged_by(case: Case) -> Ints:
    """Return the judgment of the gold that came furthest; of gold in no list, the best grade's."""
    row: Ints = case.staged.gold.first[:-1].copy()
    for best in (*case.way.lists, case.way.final):
        row = np.where(best.row >= 0, best.row, row)
    return row


def _rank(rank: float) -> int | None:
    return int(rank) if np.isfinite(rank) else None


def _failed_call(case: Case, rows: Sequence[int]) -> Told:
    errors = case.call("error")
    for query in rows:
        error = None if errors is None else str(errors[query])
        yield {"error": error}, "the call failed" if error is None else f"the call failed: {error}"


def _not_in_run(case: Case, rows: Sequence[int]) -> Told:
    for _ in rows:
        yield {}, "the run has no answer to it"


def _not_in_index(case: Case, rows: Sequence[int]) -> Told:
    what = "items" if case.staged.gold.conventions.level == "item" else "documents"
    for query in rows:
        n = len(relevant_rows(case.staged.gold, query))
        whole = f"none of its {n} gold {what} is" if n > 1 else f"its gold {what[:-1]} is not"
        yield {}, f"{whole} in the corpus"


def _routed_away(case: Case, rows: Sequence[int]) -> Told:
    for query, right in case.right_sources(rows).items():
        chosen = "" if case.chosen is None else JOINED.join(source_names(case.chosen[query]))
        facts = {"chosen": chosen, "right": right}
        yield facts, f"sent to {chosen}, while its gold is in {' and '.join(right)}"


def _rewritten_away(case: Case, rows: Sequence[int]) -> Told:
    texts = case.call("rewritten")
    ranks = case.beside[ORIGINAL].rank
    for query in rows:
        facts: Facts = {"original_rank": _rank(ranks[query])}
        if texts is not None and texts[query] is not None:
            facts["rewritten"] = str(texts[query])
        rank = facts["original_rank"]
        because = f"the query as it was asked finds gold at rank {rank}, the rewritten one does"
        yield facts, f"{because} not within {case.thresholds.miss}"


def _freshness_filtered(case: Case, rows: Sequence[int]) -> Told:
    gold, by_stage = case.staged.gold, _sieve(case, "as_of")
    judged = _judged_by(case)
    versions = attributes(gold, [int(judged[query]) for query in rows], "version")
    logged = _versions_logged(case)
    for query in rows:
        known = logged.get(query) or next(iter(versions.get(int(judged[query]), ())), None)
        facts: Facts = {"version": known, "as_of": gold.as_of[query] if gold.as_of else None}
        if told := by_stage(query):
            yield {**facts, **told[0]}, told[1]
        else:
            newer = f"its gold ({known}) is newer than its as_of ({facts['as_of']})"
            yield facts, f"{newer}, and nothing returned is"


def _versions_logged(case: Case) -> dict[int, str]:
    """Return the version of each query's best-placed gold, as the first list says it."""
    first = case.way.first
    rows: list[int] = np.flatnonzero(first.hit >= 0).tolist()
    told = first.facts["version"].gather(first.hit[rows]).to_list()
    return {row: version for row, version in zip(rows, told, strict=True) if version is not None}


def _sieve(case: Case, stage: str) -> Callable[[int], tuple[Facts, str] | None]:
    """Return what a sieve did to a query: where gold stood before it; None if it took out none."""
    taken = taken_out(case, stage)
    if not taken.any():
        return lambda query: None
    before = case.way.before(case.way.names.index(stage))

    def facts_of(query: int) -> tuple[Facts, str] | None:
        if not taken[query]:
            return None
        rank, name = _rank(before.rank[query]), case.way.names[before.at[query]]
        facts = {"stage": stage, "before": name, "before_rank": rank}
        return facts, f"at rank {rank} of {name}, taken out by {stage}"

    return facts_of


def _filtered_out(case: Case, rows: Sequence[int]) -> Told:
    by_stage, over = _sieve(case, "filter"), passed_over(case, case.misses)
    for query in rows:
        if told := by_stage(query):
            yield told
            continue
        facts = _last_facts(case, query)
        place = f"at rank {facts['before_rank']} of {facts['before']}"
        if over[query]:
            yield facts, f"{place}, above items that were returned, and not returned"
        else:
            yield facts, f"{place}, of which nothing was returned"


def _last_facts(case: Case, query: int) -> Facts:
    """Return the last list before the cut, and where gold stood in it."""
    last = case.way.last
    if last.at[query] < 0:
        return {"before": "final", "before_rank": _rank(case.way.final.rank[query])}
    return {"before": case.way.names[last.at[query]], "before_rank": _rank(last.rank[query])}


def _threshold_exclusion(case: Case, rows: Sequence[int]) -> Told:
    by_stage, scores = _sieve(case, "threshold"), case.way.first.number("score")
    for query in rows:
        score = None if np.isnan(scores[query]) else float(scores[query])
        facts: Facts = {"score": score, "threshold": case.thresholds.score}
        if told := by_stage(query):
            yield {**facts, **told[0]}, told[1]
        else:
            below = f"its score, {score:.4g}, is below {case.thresholds.score:g}"
            yield facts, f"{below}, and it was not returned"


def _beyond_depth(case: Case, rows: Sequence[int]) -> Told:
    depth = case.staged.depth(case.staged.raw).known
    for _ in rows:
        text = f"not in the top {depth:,}, where the lists were cut: it may stand lower or nowhere"
        yield {"looked_at": depth}, text


def _complete_miss(case: Case, rows: Sequence[int]) -> Told:
    staged, way = case.staged, case.way
    stage, first = next(iter(staged.line.items()), ("final", staged.final))
    # A call may have logged its final list alone.
    own = staged.logged.get(stage)
    for query in rows:
        deeper = _rank(way.anywhere[query])
        told = own is None or staged.gold.query_ids[query] in own
        depth = staged.depth(first if told or not way.final.returned[query] else staged.final)
        facts: Facts = {
            "looked_at": min(case.thresholds.deep, depth.known),
            "depth_from": "longest list" if depth.asked is None else "log",
            "retrieved": int(way.first.returned[query]),
            "deeper_rank": deeper,
        }
        beside = {name: _rank(best.rank[query]) for name, best in case.beside.items()}
        if found := {name: rank for name, rank in beside.items() if rank is not None}:
            facts["beside"] = found
        yield facts, _missed(facts, case.thresholds.deep)


def _missed(facts: Facts, deep: int) -> str:
    if not facts["retrieved"]:
        return "nothing was retrieved"
    if facts["deeper_rank"] is not None:
        return f"not in the top {facts['looked_at']}; its best rank is {facts['deeper_rank']}"
    ends = f", where the {facts['depth_from']} ends" if facts["looked_at"] < deep else ""
    beside = [f"; {name} has it at rank {rank}" for name, rank in facts.get("beside", {}).items()]
    return f"not in the top {facts['looked_at']}{ends}{''.join(beside)}"


def _embedding_mismatch(case: Case, rows: Sequence[int]) -> Told:
    for query in rows:
        similarity, least = float(case.similarity[query]), float(case.least_similarity[query])
        rank = _rank(case.way.first.rank[query])
        because = f"at rank {rank} with a similarity of {similarity:.4g}, below {least:g}"
        yield {"similarity": similarity, "threshold": least}, because


def _rerank_demotion(case: Case, rows: Sequence[int]) -> Told:
    way = case.way
    for query in rows:
        at = int(way.reordered.at[query])
        source = way.sieved if np.isfinite(way.sieved.rank[query]) else way.before(at)
        before, name = _rank(source.rank[query]), way.names[source.at[query]]
        facts: Facts = {"stage": None, "before": name, "before_rank": before}
        if at >= 0:
            facts["stage"] = stage = way.names[at]
            after = _rank(way.reordered.rank[query])
            end = f"not in {stage}" if after is None else f"at rank {after} of {stage}"
        else:
            after = _rank(way.final.rank[query])
            gone = f"not in the {way.final.returned[query]:,} that were returned"
            end = gone if after is None else f"returned at rank {after}"
        yield {**facts, "after_rank": after}, f"at rank {before} of {name}, {end}"


def _false_positive_dominance(case: Case, rows: Sequence[int]) -> Told:
    if case.dominance is None:
        return
    above = case.dominance.above(rows)
    for query in rows:
        items, share = above[query], float(case.dominance.share[query])
        facts = {**_last_facts(case, query), "dominant": items, "share": share}
        shown = min(int(case.way.final.returned[query]), case.thresholds.miss)
        taken = f"at rank {facts['before_rank']}; {len(items)} of the top {shown}"
        yield facts, f"{taken} are items that stand above the gold of many queries"


def _low_rank(case: Case, rows: Sequence[int]) -> Told:
    for query in rows:
        rank = _rank(case.way.final.rank[query])
        yield {}, f"returned at rank {rank}, below the top {case.thresholds.miss}"


def _cut_by_k(case: Case, rows: Sequence[int]) -> Told:
    for query in rows:
        facts, shown = _last_facts(case, query), int(case.way.final.returned[query])
        place = f"at rank {facts['before_rank']} of {facts['before']}"
        yield facts, f"{place}, not in the {shown:,} that were returned"


_TELLERS: Mapping[str, Teller] = {
    "failed_call": _failed_call,
    "not_in_run": _not_in_run,
    "not_in_index": _not_in_index,
    "routed_away": _routed_away,
    "rewritten_away": _rewritten_away,
    "freshness_filtered": _freshness_filtered,
    "filtered_out": _filtered_out,
    "threshold_exclusion": _threshold_exclusion,
    "beyond_depth": _beyond_depth,
    "complete_miss": _complete_miss,
    "embedding_mismatch": _embedding_mismatch,
    "rerank_demotion": _rerank_demotion,
    "false_positive_dominance": _false_positive_dominance,
    "low_rank": _low_rank,
    "cut_by_k": _cut_by_k,
}
