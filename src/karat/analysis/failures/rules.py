"""The rules that put a miss into its class, in the order of a query's path through a system."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from karat.analysis.failures.case import Case
from karat.analysis.failures.gold_index import attributes, relevant_rows
from karat.analysis.sources import source_names
from karat.measures.numbers import Values
from karat.measures.ranked import Ints, Mask

# A rule says of which of the queries left over it holds.
Rule = Callable[[Case, Mask], Mask]


def failed_call(case: Case, left: Mask) -> Mask:
    """The call failed."""
    return case.status("failed")


def not_in_run(case: Case, left: Mask) -> Mask:
    """The run has no answer."""
    return case.status("missing")


def not_in_index(case: Case, left: Mask) -> Mask:
    """None of the gold is in the corpus, and none in any list."""
    return np.zeros_like(left) if case.indexed is None else ~case.indexed


def routed_away(case: Case, left: Mask) -> Mask:
    """The call's source is none of the right ones, and no gold was retrieved."""
    found = np.zeros_like(left)
    chosen = case.chosen
    if chosen is None:
        return found
    lost = np.flatnonzero(left & ~np.isfinite(case.way.first.rank)).tolist()
    for query, right in case.right_sources([q for q in lost if chosen[q] is not None]).items():
        found[query] = bool(right) and set(right).isdisjoint(source_names(chosen[query]))
    return found


def rewritten_away(case: Case, left: Mask) -> Mask:
    """The original query finds gold at the top."""
    if case.original is None:
        return np.zeros_like(left)
    return np.less_equal(case.original.rank, case.lines.miss)


def freshness_filtered(case: Case, left: Mask) -> Mask:
    """The as_of stage took the gold out, or all gold is newer while nothing returned is."""
    return taken_out(case, "as_of") | _kept_from_the_lists(case, left)


def _kept_from_the_lists(case: Case, left: Mask) -> Mask:
    """Gold in no list, all of it newer than as_of, while nothing newer was returned."""
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
    """The queries whose list holds nothing newer, as far as versions are known.

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
    """The filter took the gold out, or something that is not logged did."""
    return taken_out(case, "filter") | passed_over(case, left) | _emptied(case)


def taken_out(case: Case, stage: str) -> Mask:
    """Gold was in the last list logged before a stage, and is in none after it."""
    way = case.way
    if stage not in way.names:
        return np.zeros_like(case.misses)
    at = way.names.index(stage)
    return way.own[at] & np.isfinite(way.before(at).rank) & ~np.isfinite(way.after(at))


def _lost_at_the_end(case: Case) -> Mask:
    """Gold is in the last list logged, and not in the final one."""
    return np.isfinite(case.way.last.rank) & ~np.isfinite(case.way.final.rank)


def passed_over(case: Case, left: Mask) -> Mask:
    """Gold stood above an item that was returned, in a list whose order was kept."""
    lost = _lost_at_the_end(case) & left
    if not lost.any():
        return lost
    return lost & case.kept.in_order & (case.way.last.rank <= case.kept.above)


def _emptied(case: Case) -> Mask:
    """Nothing at all was returned of a list with gold: no cut does that."""
    nothing = np.equal(case.way.final.returned, 0)
    return _lost_at_the_end(case) & nothing & ~case.below_score


def threshold_exclusion(case: Case, left: Mask) -> Mask:
    """The threshold took the gold out, or its score is below the line and it is not returned."""
    gone = ~np.isfinite(case.way.final.rank)
    return taken_out(case, "threshold") | (case.below_score & gone)


def beyond_depth(case: Case, left: Mask) -> Mask:
    """No gold in any list, and the list was cut before the depth looked at."""
    depth = case.staged.depth(case.staged.raw)
    if depth.cut_at is None or depth.cut_at >= case.lines.deep:
        return np.zeros_like(left)
    # A list that is shorter than the cut is all that there was.
    return ~np.isfinite(case.way.anywhere) & (case.way.first.returned >= depth.cut_at)


def complete_miss(case: Case, left: Mask) -> Mask:
    """No gold within the depth looked at, in any list."""
    return case.way.anywhere > case.lines.deep


def embedding_mismatch(case: Case, left: Mask) -> Mask:
    """The best-placed gold retrieved lies low, and its similarity is below the line."""
    rank = case.way.first.rank
    low = np.isfinite(rank) & (rank > case.lines.miss)
    return low & (case.similarity < case.least_similarity)


def rerank_demotion(case: Case, left: Mask) -> Mask:
    """Something put the list in another order, in which the gold stands lower or is gone."""
    way, miss = case.way, case.lines.miss
    gone = ~np.isfinite(way.final.rank)
    lost = gone | (way.sieved.rank <= miss)
    logged = way.reordered.there
    earlier = np.isfinite(_best_before(case, way.reordered.at))
    dropped = earlier & ~np.isfinite(way.reordered.rank)
    worse = np.isfinite(way.sieved.rank) & (way.reordered.rank > way.sieved.rank)
    by_list = logged & lost & (worse | dropped)
    by_final = left & ~logged & lost & np.isfinite(way.sieved.rank)
    if (by_final & ~case.reranked).any():
        by_final &= case.reranked | ~case.kept.in_order
    return by_list | by_final


def _best_before(case: Case, at: Ints) -> Values:
    """The best rank of gold in any list before the stage at each query's place."""
    best = np.full(len(at), np.inf)
    for place, own in enumerate(case.way.lists):
        here = case.way.own[place] & (place < at)
        best = np.where(here, np.minimum(best, own.rank), best)
    return best


def false_positive_dominance(case: Case, left: Mask) -> Mask:
    """Gold lies low in the last list, and dominant items take the places above it."""
    if case.dominance is None:
        return np.zeros_like(left)
    rank = np.where(case.way.last.there, case.way.last.rank, case.way.final.rank)
    low = np.isfinite(rank) & (rank > case.lines.miss)
    taken = (case.dominance.share > 0) & (case.dominance.share >= case.lines.dominance)
    return low & taken


def low_rank(case: Case, left: Mask) -> Mask:
    """Gold was returned, too low."""
    return np.isfinite(case.way.final.rank)


def cut_by_k(case: Case, left: Mask) -> Mask:
    """Gold is in the last list before the cut, and was not returned."""
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
    """The place of each query's class in CLASSES: the first that applies; -1 for no miss."""
    found = np.full(len(case.misses), -1)
    for at, rule in enumerate(RULES.values()):
        left = case.misses & (found < 0)
        if not left.any():
            break
        found[left & rule(case, left)] = at
    return found
