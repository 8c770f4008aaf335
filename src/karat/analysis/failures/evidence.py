"""What puts a miss into its class, as plain facts and as one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from karat.analysis.failures.case import Case
from karat.analysis.failures.gold_index import attributes, names_of, relevant_rows
from karat.analysis.failures.rules import passed_over, taken_out
from karat.analysis.sources import JOINED, source_names
from karat.analysis.staged import ORIGINAL, RAW
from karat.measures.ranked import Ints

# No list came back for these.
UNANSWERED = ("failed_call", "not_in_run")

Facts = dict[str, Any]
# What a class adds to the facts of each of its queries, and why they are in it.
Told = Iterator[tuple[Facts, str]]
Teller = Callable[[Case, Sequence[int]], Told]


def evidence_of(case: Case, kind: str, rows: Sequence[int]) -> Iterator[tuple[Facts, str]]:
    """The facts and the sentence for every query of one class, in the order of its rows."""
    told = _TELLERS[kind](case, rows)
    ranks: Iterator[Facts] = ({} for _ in rows) if kind in UNANSWERED else _ranks(case, rows)
    names = names_of(case.staged.gold, _judged_by(case)[rows].tolist())
    for query, name, own, (more, because) in zip(rows, names, ranks, told, strict=True):
        n = len(relevant_rows(case.staged.gold, query))
        yield {"gold": name, "gold_items": n, **own, **more}, because


def _ranks(case: Case, rows: Sequence[int]) -> Iterator[Facts]:
    """Where the best-placed gold of a query stands in every list that was logged."""
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
    """The judgment of the gold that came furthest; of gold in no list, the best grade's."""
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
        yield facts, f"{because} not within {case.lines.miss}"


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
    """The version of each query's best-placed gold, as the first list says it."""
    first = case.way.first
    rows: list[int] = np.flatnonzero(first.hit >= 0).tolist()
    told = first.facts["version"].gather(first.hit[rows]).to_list()
    return {row: version for row, version in zip(rows, told, strict=True) if version is not None}


def _sieve(case: Case, stage: str) -> Callable[[int], tuple[Facts, str] | None]:
    """What a sieve did to a query: where gold stood before it; None if it took out none."""
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
    """The last list before the cut, and where gold stood in it."""
    last = case.way.last
    if last.at[query] < 0:
        return {"before": "final", "before_rank": _rank(case.way.final.rank[query])}
    return {"before": case.way.names[last.at[query]], "before_rank": _rank(last.rank[query])}


def _threshold_exclusion(case: Case, rows: Sequence[int]) -> Told:
    by_stage, scores = _sieve(case, "threshold"), case.way.first.number("score")
    for query in rows:
        score = None if np.isnan(scores[query]) else float(scores[query])
        facts: Facts = {"score": score, "threshold": case.lines.score}
        if told := by_stage(query):
            yield {**facts, **told[0]}, told[1]
        else:
            below = f"its score, {score:.4g}, is below {case.lines.score:g}"
            yield facts, f"{below}, and it was not returned"


def _beyond_depth(case: Case, rows: Sequence[int]) -> Told:
    depth = case.staged.depth(case.staged.raw).known
    for _ in rows:
        told = f"not in the top {depth:,}, where the lists were cut: it may stand lower or nowhere"
        yield {"looked_at": depth}, told


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
            "looked_at": min(case.lines.deep, depth.known),
            "depth_from": "longest list" if depth.asked is None else "log",
            "retrieved": int(way.first.returned[query]),
            "deeper_rank": deeper,
        }
        beside = {name: _rank(best.rank[query]) for name, best in case.beside.items()}
        if found := {name: rank for name, rank in beside.items() if rank is not None}:
            facts["beside"] = found
        yield facts, _missed(facts, case.lines.deep)


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
        shown = min(int(case.way.final.returned[query]), case.lines.miss)
        taken = f"at rank {facts['before_rank']}; {len(items)} of the top {shown}"
        yield facts, f"{taken} are items that stand above the gold of many queries"


def _low_rank(case: Case, rows: Sequence[int]) -> Told:
    for query in rows:
        rank = _rank(case.way.final.rank[query])
        yield {}, f"returned at rank {rank}, below the top {case.lines.miss}"


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
