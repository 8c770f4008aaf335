"""Measures of the ranks at which gold is found: gains, hits, recall, precision, cascades, areas.

The last of them are those that trec_eval made standard: Rprec, Bpref, infAP, sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from karat.errors import InputError, UsageError
from karat.measure.aggregates import Values, geometric_mean, total
from karat.measure.conventions import Gain
from karat.measure.ranked import (
    Cut,
    Entries,
    Mask,
    Ranked,
    add_up,
    at_ranks,
    cut_of_gold,
    is_budget,
    ratio,
)
from karat.measure.registry import (
    COUNTS_JUDGMENTS,
    IGNORES_RELEVANCE,
    MEASURES,
    Definition,
    measure,
)

# 2 to the power of more than this, added up over a list, may overflow a float.
HIGHEST_GRADE = 900


def gains(entries: Entries, gain: Gain) -> Values:
    """Return what each entry's grade is worth."""
    if gain == "linear":
        return entries.gain
    grades, where = np.unique(entries.gain, return_inverse=True)
    if gain == "exp":
        if grades.max(initial=0.0) > HIGHEST_GRADE:
            raise InputError(
                f"grade {grades.max():g} is too high for gain='exp'; at most {HIGHEST_GRADE}"
            )
        worth = [2.0**grade - 1.0 for grade in grades.tolist()]
    elif isinstance(gain, Mapping):
        worth = [gain.get(grade, grade) if grade > 0 else 0.0 for grade in grades.tolist()]
    else:
        raise UsageError(f"gain is {gain!r}; it can be 'linear', 'exp' or a map of grades")
    return np.array(worth, dtype=np.float64)[where]


def gains_of_grades(grades: Values, gain: Gain) -> Values:
    """Return what grades are worth by themselves."""
    none = np.zeros(len(grades), dtype=np.int64)
    return gains(Entries(1, none, none, grades), gain)


def best_first(entries: Entries, gain: Gain) -> tuple[Entries, Values]:
    """Return entries in the ideal order for a gain, and their gains.

    A map may value a lower grade more.
    """
    worth = gains(entries, gain)
    if not isinstance(gain, Mapping):
        return entries, worth
    order = np.lexsort((-worth, entries.query))
    return Entries(entries.n, entries.query, entries.rank, entries.grade[order]), worth[order]


@measure("DCG", gold="graded", bounded=False, unjudged="sum")
def dcg(r: Ranked, k: Cut, *, gain: Gain = "linear") -> Values:
    """The sum of gain / log2(rank + 1) over the top k."""
    if r.is_ideal:
        return _ideal_dcg(r, k, gain)
    return r.hits.sum(r.top(k), gains(r.hits, gain) / at_ranks("log2", r.hits.rank))


def _ideal_dcg(r: Ranked, k: Cut, gain: Gain) -> Values:
    entries, worth = best_first(r.target.ideal, gain)
    return entries.sum(r.top(cut_of_gold(k), entries), worth / at_ranks("log2", entries.rank))


@measure("nDCG", gold="graded", aliases=("ndcg_cut",), unjudged="ndcg")
def ndcg(r: Ranked, k: Cut, *, gain: Gain = "linear") -> Values:
    """DCG over that of the ideal list, which comes from all gold, cut at k.

    ``gain`` is ``linear`` (the grade), ``exp`` (2^grade - 1) or a map such as {1: 1, 2: 5}, in
    which a grade that is left out is its own gain. Unless written it is that of the profile.
    """
    return ratio(dcg(r, k, gain=gain), _ideal_dcg(r, k, gain))


@measure("CG", gold="graded", bounded=False, unjudged="sum")
def cumulated_gain(r: Ranked, k: Cut, *, gain: Gain = "linear") -> Values:
    """The sum of the gains in the top k."""
    if r.is_ideal:
        entries, worth = best_first(r.target.ideal, gain)
        return entries.sum(r.top(cut_of_gold(k), entries), worth)
    return r.hits.sum(r.top(k), gains(r.hits, gain))


@dataclass(frozen=True, eq=False)
class Node:
    """A measure at one cut-off as part of an area."""

    weight: float
    definition: Definition
    k: Cut
    arguments: Mapping[str, Any]


@measure(
    "Hit",
    cutoff="must",
    aliases=("hit_rate", "success", "hits_at_least_one"),
    unjudged="rising",
)
def hit(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """1 if any of the top k is relevant, else 0 (also known as Success@k)."""
    return np.minimum(r.hits.count(r.top(k) & r.hits.relevant(rel)), 1.0)


@measure("R", cutoff="must", aliases=("recall",), unjudged="sum")
def recall(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """The share of the gold that is in the top k: |L_k ∩ G| / |G|.

    A fraction; the reading of recall as "found at least one" is ``Hit@k``.
    """
    return ratio(r.found.count(r.top(k, r.found) & r.found.relevant(rel)), r.target.relevant(rel))


@measure("All", cutoff="must", unjudged="rising")
def all_found(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """1 if every relevant item is in the top k, else 0; Hit asks for any of them."""
    gold = r.target.relevant(rel)
    found = r.found.count(r.top(k, r.found) & r.found.relevant(rel))
    return np.where((found == gold) & (gold > 0), 1.0, 0.0)


@measure(
    "WR",
    cutoff="must",
    gold="graded",
    aliases=("wrecall", "weighted_recall"),
    unjudged="sum",
)
def weighted_recall(r: Ranked, k: Cut) -> Values:
    """The share of the gold's grades that is in the top k; never above 1."""
    found = r.found.sum(r.top(k, r.found), r.found.gain)
    ideal = r.target.ideal
    # The same grades added in two orders may differ in the last bit.
    return np.minimum(ratio(found, ideal.sum(ideal.grade > 0, ideal.grade)), 1.0)


@measure("P", cutoff="must", aliases=("precision",), unjudged="sum")
def precision(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """The share of the top k that is relevant: |L_k ∩ G| / k; short lists are not forgiven.

    With document-level gold every correct chunk counts.
    """
    if r.is_ideal and (r.target.shared or is_budget(k)):
        return (r.target.relevant(rel) > 0).astype(np.float64)
    return ratio(r.hits.count(r.top(k) & r.hits.correct(rel)), r.limit(k))


@measure("F", cutoff="must", aliases=("f1",), unjudged="sum")
def f_measure(r: Ranked, k: Cut, *, beta: float = 1, rel: float = 1) -> Values:
    """The weighted harmonic mean of P@k and R@k; ``beta`` above 1 favours recall."""
    p, q = precision(r, k, rel=rel), recall(r, k, rel=rel)
    return ratio((1 + beta * beta) * p * q, beta * beta * p + q)


@measure("RR", aliases=("mrr", "recip_rank"), unjudged="rising")
def reciprocal_rank(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """1 / rank of the first relevant item within the cut-off, else 0; its mean is MRR."""
    mask = r.top(k) & r.hits.relevant(rel)
    query, rank = r.hits.query[mask], r.hits.rank[mask]
    values = np.zeros(r.n)
    # Backwards, so that the first relevant item of a query is the last to be written.
    values[query[::-1]] = 1.0 / rank[::-1]
    return values


@measure("AP", aliases=("map", "average_precision"), unjudged="ap")
def average_precision(
    r: Ranked, k: Cut, *, norm: Literal["gold", "k"] = "gold", rel: float = 1
) -> Values:
    """The sum of P@i at each relevant rank i, over |G|; its mean is MAP.

    ``norm='k'`` divides by min(k, |G|) instead, which forgives what cannot fit.
    """
    if norm not in ("gold", "k"):
        raise UsageError(f"norm is {norm!r}; AP takes 'gold' or 'k'")
    mask = r.top(k) & r.hits.relevant(rel)
    precisions = r.hits.so_far(mask) / r.hits.rank
    gold = r.target.relevant(rel)
    if norm == "k":
        gold = np.minimum(gold, r.limit(cut_of_gold(k)))
    return ratio(r.hits.sum(mask, precisions), gold)


@measure(
    "GMAP",
    cutoff="none",
    number=geometric_mean,
    aliases=("gm_map",),
    unjudged="ap",
)
def geometric_map(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """The geometric mean of AP over queries, each at least 1e-5; one number for the set."""
    return average_precision(r, k, rel=rel)


@measure("ERR", gold="graded", unjudged="rising")
def expected_reciprocal_rank(r: Ranked, k: Cut, *, max: float = 4) -> Values:
    """The expected reciprocal rank at which a user who may be satisfied at each item stops.

    An item of grade g satisfies with probability (2^g - 1) / 2^max; a grade above ``max``
    is refused.
    """
    if max > HIGHEST_GRADE:
        raise UsageError(f"ERR(max={max:g}) is out of range; at most {HIGHEST_GRADE}")
    if r.target.grade.max(initial=0.0) > max:
        top = r.target.grade.max()
        raise InputError(f"ERR(max={max:g}) meets grade {top:g}; set max to the highest grade")
    mask = r.top(k) & (r.hits.gain > 0)
    entries = Entries(r.n, r.hits.query[mask], r.hits.rank[mask], r.hits.gain[mask])
    stop = gains(entries, "exp") / 2.0**max
    worth = stop * _still_there(entries, stop) / entries.rank
    return add_up(entries.query, worth, r.n)


def _still_there(entries: Entries, stop: Values) -> Values:
    """Return the probability that a user passes all entries above each one."""
    passing = np.ones(len(stop))
    ordinal = entries.so_far(np.ones(len(stop), dtype=bool))
    # One step a depth, all queries at once: products run in rank order within a query.
    for step in range(2, int(ordinal.max(initial=0)) + 1):
        (here,) = np.nonzero(ordinal == step)
        passing[here] = passing[here - 1] * (1.0 - stop[here - 1])
    return passing


@measure("RBP", aliases=("rank_biased_precision",), unjudged="sum")
def rank_biased_precision(
    r: Ranked,
    k: Cut,
    *,
    p: float = 0.8,
    gain: Literal["binary", "linear"] = "binary",
    max: float = 4,
    rel: float = 1,
) -> Values:
    """(1 - p) Σ p^(rank - 1) over the relevant items of the top k.

    ``gain='linear'`` weighs each item by its grade over ``max``; a grade above it is refused.
    """
    _check_persistence(p)
    weight = at_ranks(p, r.hits.rank)
    if gain == "linear":
        if r.target.grade.max(initial=0.0) > max:
            raise InputError(f"RBP(max={max:g}) meets a higher grade; set max to the highest grade")
        return (1 - p) * r.hits.sum(r.top(k), weight * (r.hits.gain / max))
    if gain != "binary":
        raise UsageError(f"gain is {gain!r}; RBP takes 'binary' or 'linear'")
    return (1 - p) * r.hits.sum(r.top(k) & r.hits.relevant(rel), weight)


@measure("RBPres", better="lower", gold="any", ceiling=0.0, unjudged=COUNTS_JUDGMENTS)
def rbp_residual(r: Ranked, k: Cut, *, p: float = 0.8) -> Values:
    """The weight of the ranks that nobody judged: how much RBP could still grow."""
    _check_persistence(p)
    mask = r.top(k) & (r.hits.grade >= 0)
    weight = at_ranks(p, r.hits.rank)
    settled = r.hits.sum(mask, weight)
    if r.repeats is not None:
        rank = r.repeats.rank
        inside = rank <= r.limit(k)[r.repeats.query]
        weight = at_ranks(p, rank)
        settled = settled + add_up(r.repeats.query[inside], weight[inside], r.n)
    return 1.0 - (1 - p) * settled


def _check_persistence(p: float) -> None:
    if not 0 < p < 1:
        raise UsageError(f"p is {p:g}; the persistence of RBP lies between 0 and 1")


@measure(
    "FPR",
    cutoff="must",
    better="lower",
    ceiling=0.0,
    unjudged="rising",
)
def false_positive_rate(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """1 if the first item is not relevant or nothing came back: 1 - Hit@1."""
    if k != 1:
        raise UsageError("FPR is defined at 1 only: FPR@1; for a deeper look use Hit@k or P@k")
    return 1.0 - hit(r, k, rel=rel)


def nodes_of_area(k: Cut, *, of: str = "R", gain: Gain = "linear", rel: float = 1) -> list[Node]:
    """Return the measures whose weighted sum an area is: trapezoids over the nodes up to k."""
    if not isinstance(k, int) or k < 2:
        raise UsageError(f"AUC needs a whole cut-off of at least 2, such as AUC@20; not {k!r}")
    definition = MEASURES.get(of)
    if definition is None or not _has_curve(definition):
        raise UsageError(
            f"AUC(of={of!r}) is not a measure of ranks with a cut-off, higher is better;"
            " try AUC(of='R')@20"
        )
    takes = definition.parameters
    arguments: dict[str, Any] = {"gain": gain} if takes.get("gain") == "linear" else {}
    if "rel" in takes:
        arguments["rel"] = rel
    nodes = nodes_up_to(k)
    edges = [nodes[0], *nodes, nodes[-1]]
    return [
        Node((right - left) / 2 / (k - 1), definition, node, arguments)
        for node, left, right in zip(nodes, edges, edges[2:], strict=False)
    ]


@measure("AUC", cutoff="must", unjudged="area")
def area(r: Ranked, k: Cut, *, of: str = "R", gain: Gain = "linear", rel: float = 1) -> Values:
    """The area under a measure over k: trapezoids over {1, 3, 5, 10, 20} up to K, over K - 1.

    ``gain`` is that of the measure under which the area lies, where it takes one.
    """
    nodes = nodes_of_area(k, of=of, gain=gain, rel=rel)
    cuts = [int(node.k or 0) for node in nodes]
    heights = [node.definition.function(r, node.k, **node.arguments) for node in nodes]
    total = np.zeros(r.n)
    for low, high, left, right in zip(cuts, cuts[1:], heights, heights[1:], strict=False):
        total = total + (high - low) * (left + right) / 2
    return total / (cuts[-1] - 1)


def nodes_up_to(k: int) -> list[int]:
    """Return the cut-offs at which an area looks at its measure.

    >>> nodes_up_to(7)
    [1, 3, 5, 7]
    """
    return sorted({node for node in (1, 3, 5, 10, 20) if node <= k} | {k})


def _has_curve(definition: Definition) -> bool:
    """Return whether values at growing cut-offs make a curve whose area means something."""
    plain = not definition.needs and definition.evidence is None and definition.name != "AUC"
    return plain and definition.better == "higher" and definition.cutoff in {"must", "may"}


def judged(r: Ranked, k: Cut) -> tuple[Mask, Values]:
    """Return which hits in the top k somebody judged, and how many items were returned there."""
    return r.top(k) & (r.hits.grade >= 0), np.minimum(r.returned, r.limit(k)).astype(np.float64)


@measure("Judged", gold="any", ceiling=1.0, unjudged=COUNTS_JUDGMENTS)
def judged_share(r: Ranked, k: Cut) -> Values:
    """The share of the items returned in the top k that anyone judged."""
    mask, returned = judged(r, k)
    return np.where(returned > 0, ratio(r.hits.count(mask), returned), np.nan)


@measure(
    "Hole",
    better="lower",
    gold="any",
    ceiling=0.0,
    aliases=("unj",),
    unjudged=COUNTS_JUDGMENTS,
)
def unjudged_share(r: Ranked, k: Cut) -> Values:
    """The share of the items returned in the top k that no one judged."""
    mask, returned = judged(r, k)
    holes = returned - r.hits.count(mask) - r.repeated(k)
    return np.where(returned > 0, ratio(holes, returned), np.nan)


EPSILON = 1e-5
RANK_OF_GOLD = "{} looks at the rank that the number of relevant items sets"
FOR_INCOMPLETE_GOLD = "{} is made for incomplete judgments, and looks at judged items only"


@measure(
    "Rprec",
    cutoff="none",
    aliases=("r_precision", "r-precision"),
    unjudged=RANK_OF_GOLD,
)
def r_precision(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """Precision at |G|, where precision and recall are equal."""
    gold = r.target.relevant(rel)
    mask = r.hits.relevant(rel) & (r.hits.rank <= gold[r.hits.query])
    return ratio(r.hits.count(mask), gold)


@measure("Bpref", cutoff="none", unjudged=FOR_INCOMPLETE_GOLD)
def bpref(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """How rarely judged non-relevant items stand above relevant ones; unjudged items are ignored.

    Σ over the relevant retrieved of 1 - min(n, R) / min(N, R), over R: n judged
    non-relevant above it, N in all, R = |G|.
    """
    above = r.hits.so_far(r.hits.judged_nonrelevant(rel)).astype(np.float64)
    gold = r.target.relevant(rel)
    most = np.minimum(r.target.judged_nonrelevant(rel), gold)[r.hits.query]
    worth = 1.0 - ratio(np.minimum(above, gold[r.hits.query]), most)
    return ratio(r.hits.sum(r.hits.relevant(rel), worth), gold)


@measure("infAP", cutoff="none", unjudged=FOR_INCOMPLETE_GOLD)
def inferred_ap(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """AP inferred from a pool of which only a sample was judged.

    A grade below 0 means pooled but not judged; an item that is not in the gold was not
    pooled. As trec_eval computes it.
    """
    relevant, nonrelevant = r.hits.relevant(rel), r.hits.judged_nonrelevant(rel)
    earlier = (r.hits.so_far(relevant) - 1).astype(np.float64)
    rejected = r.hits.so_far(nonrelevant).astype(np.float64)
    pooled = r.hits.so_far(r.hits.grade < 0).astype(np.float64)
    above = (r.hits.rank - 1).astype(np.float64)
    share = (earlier + EPSILON) / (earlier + rejected + 2 * EPSILON)
    seen = ratio(earlier + rejected + pooled, above)
    expected = 1 / r.hits.rank + (above / r.hits.rank) * seen * share
    return ratio(r.hits.sum(relevant, expected), r.target.relevant(rel))


@measure(
    "IPrec",
    cutoff="recall",
    aliases=("iprec_at_recall",),
    unjudged=RANK_OF_GOLD,
)
def interpolated_precision(
    r: Ranked, k: Cut, *, rel: float = 1, recall_point: str = "trunc"
) -> Values:
    """The best precision at any rank where at least this share of the gold has been found."""
    gold = r.target.relevant(rel)
    exact = float(k or 0) * gold
    # Rounded as trec_eval does: version 10 rounds halves away from zero, as C's lround.
    needed = np.trunc(exact + 0.9)
    if recall_point != "trunc":
        needed = np.floor(exact) + (exact - np.floor(exact) >= 0.5)
    mask = r.hits.relevant(rel)
    found = r.hits.so_far(mask)
    mask &= found >= needed[r.hits.query]
    values = np.zeros(r.n)
    np.maximum.at(values, r.hits.query[mask], found[mask] / r.hits.rank[mask])
    return values


@measure("SetP", cutoff="none", aliases=("set_P",), unjudged="sum")
def set_precision(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """The share of everything returned that is relevant."""
    if r.is_ideal:
        return (r.target.relevant(rel) > 0).astype(np.float64)
    return ratio(r.hits.count(r.hits.relevant(rel)), r.returned)


@measure("SetR", cutoff="none", aliases=("set_recall",), unjudged="sum")
def set_recall(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """The share of the gold that was returned at all."""
    return ratio(r.found.count(r.found.relevant(rel)), r.target.relevant(rel))


@measure("SetF", cutoff="none", aliases=("set_F",), unjudged="rising")
def set_f(r: Ranked, k: Cut, *, beta: float = 1, rel: float = 1) -> Values:
    """The weighted harmonic mean of SetP and SetR."""
    p, q = set_precision(r, k, rel=rel), set_recall(r, k, rel=rel)
    return ratio((1 + beta * beta) * p * q, beta * beta * p + q)


@measure(
    "NumRet",
    better="none",
    unjudged=IGNORES_RELEVANCE,
    gold="any",
    ceiling=None,
    number=total,
    aliases=("num_ret",),
    bounded=False,
)
def number_retrieved(r: Ranked, k: Cut) -> Values:
    """How many items were returned; over all queries their sum."""
    return np.minimum(r.returned, r.limit(k)).astype(np.float64)


@measure(
    "NumRel",
    better="none",
    unjudged="gold",
    cutoff="none",
    ceiling=None,
    number=total,
    aliases=("num_rel",),
    bounded=False,
)
def number_relevant(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """How many gold items there are; over all queries their sum."""
    return r.target.relevant(rel)


@measure(
    "NumRelRet",
    better="none",
    unjudged="sum",
    ceiling=None,
    number=total,
    aliases=("num_rel_ret", "hits"),
    bounded=False,
)
def number_relevant_retrieved(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """How many gold items were returned, within the cut-off if there is one; over all their sum."""
    return r.found.count(r.top(k, r.found) & r.found.relevant(rel))
