"""Measures of the ranks at which gold is found: hits, recall, precision, cascades, areas.

A measure is one function and its registration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from karat.errors import InputError, UsageError
from karat.measure.aggregates import Values, geometric_mean
from karat.measure.conventions import Gain
from karat.measure.kernels.gains import HIGHEST_GRADE, gains
from karat.measure.ranked import (
    Cut,
    Entries,
    Mask,
    Ranked,
    add_up,
    is_budget,
    ratio,
    table_of,
)
from karat.measure.registry import COUNTS_JUDGMENTS, MEASURES, Definition, measure


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
    return ratio(r.found.count(r.top_found(k) & r.found.relevant(rel)), r.target.relevant(rel))


@measure("All", cutoff="must", unjudged="rising")
def all_found(r: Ranked, k: Cut, *, rel: float = 1) -> Values:
    """1 if every relevant item is in the top k, else 0; Hit asks for any of them."""
    gold = r.target.relevant(rel)
    found = r.found.count(r.top_found(k) & r.found.relevant(rel))
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
    found = r.found.sum(r.top_found(k), r.found.gain)
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
        gold = np.minimum(gold, r.ideal_limit(k))
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
    weight = table_of(p, int(r.hits.rank.max(initial=0)))[r.hits.rank]
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
    weight = table_of(p, int(r.hits.rank.max(initial=0)))[r.hits.rank]
    settled = r.hits.sum(mask, weight)
    if r.repeats is not None:
        rank = r.repeats.rank
        inside = rank <= r.limit(k)[r.repeats.query]
        weight = table_of(p, int(rank.max(initial=0)))[rank]
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
