"""Measures written as sums over relevant items, so that their extremes can be searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from karat.measures.bounds.range_gains import Levels, best_grade
from karat.measures.bounds.range_sums import Below, Bring, Part
from karat.measures.bounds.unjudged import Listed, judged_more, possible_grades
from karat.measures.kernels.ranks import nodes_up_to
from karat.measures.kernels.trec import EPSILON
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import UNLIMITED, Ints
from karat.measures.valuing import gain_of, values_of


def argument(measure: Measure, name: str, gold: Prepared) -> Any:
    """A parameter as the measure is called with it, None where it takes none of this name."""
    if name == "rel" and "rel" not in measure.arguments:
        return gold.conventions.rel
    return measure.arguments.get(name, measure.definition.parameters.get(name))


def area_of(measure: Measure, gold: Prepared) -> list[tuple[Measure, float]]:
    """The measures whose weighted sum an AUC is, with their weights."""
    k = int(measure.k or 0)
    nodes = nodes_up_to(k)
    edges = [nodes[0], *nodes, nodes[-1]]
    weights = [(right - left) / 2 / (k - 1) for left, right in zip(edges, edges[2:], strict=False)]
    name = argument(measure, "of", gold)
    takes = Measure(name).definition.parameters
    params = tuple(one for one in measure.params if one[0] == "gain")
    params += (("rel", argument(measure, "rel", gold)),) if "rel" in takes else ()
    return [(Measure(name, at, params), w) for at, w in zip(nodes, weights, strict=True)]


def parts_of(measure: Measure, one: Listed, gold: Prepared) -> list[Part]:
    """The sums that make up a measure."""
    if measure.name == "AUC":
        return [_part(node, one, gold, weight) for node, weight in area_of(measure, gold)]
    return [_part(measure, one, gold)]


def labelled(measure: Measure, one: Listed, gold: Prepared, grade: Values) -> Values:
    """A measure's values once every unjudged item has a grade."""
    # To all but two measures an item of grade 0 is like one that nobody judged.
    kept = np.full(len(grade), True) if counts_judging(measure) else grade > 0
    where = one.unjudged.query[kept], one.unjudged.rank[kept]
    more = judged_more(one.ranked, np.arange(one.ranked.n), *where, grade[kept])
    return values_of(measure, more, gold)


def counts_judging(measure: Measure) -> bool:
    """Whether an item judged not relevant counts otherwise than one that nobody judged."""
    return measure.name in {"Bpref", "infAP"}


@dataclass(frozen=True, eq=False)
class _Shape:
    """What a relevant item brings, and what that is held against; see Part."""

    own: Bring
    bottom: Below
    shared: Bring | None = None


def _part(measure: Measure, one: Listed, gold: Prepared, weight: float = 1.0) -> Part:
    shape = _SHAPES[measure.name](measure, one, gold)
    none, everyone = np.zeros((one.ranked.n, 1), dtype=np.int64), np.arange(one.ranked.n)
    now = np.nan_to_num(labelled(measure, one, gold, np.zeros(len(one.unjudged.query))))
    now = now * shape.bottom(everyone, none)[:, 0]
    limit = one.ranked.limit(measure.k)
    return Part(limit, now, shape.own, shape.bottom, shape.shared, weight)


def _recall(measure: Measure, one: Listed, gold: Prepared) -> _Shape:
    count = _count(measure, one, gold)
    return _Shape(np.ones_like, lambda query, more: count[query, None] + more)


def _f_measure(measure: Measure, one: Listed, gold: Prepared) -> _Shape:
    count, limit = _count(measure, one, gold), one.ranked.limit(measure.k)
    square = argument(measure, "beta", gold) ** 2
    return _Shape(
        lambda rank: np.full_like(rank, 1 + square),
        lambda query, more: square * (count[query, None] + more) + limit[query, None],
    )


def _weighted_recall(measure: Measure, one: Listed, gold: Prepared) -> _Shape:
    ideal, top = one.ranked.target.ideal, possible_grades(gold).max()
    grades = ideal.sum(ideal.grade > 0, ideal.grade)
    return _Shape(
        lambda rank: np.full_like(rank, top),
        lambda query, more: grades[query, None] + top * more,
    )


def _average_precision(measure: Measure, one: Listed, gold: Prepared) -> _Shape:
    count, most = _count(measure, one, gold), np.full(one.ranked.n, UNLIMITED)
    if argument(measure, "norm", gold) == "k":
        most = one.ranked.ideal_limit(measure.k)
    return _Shape(
        np.reciprocal,
        lambda query, more: np.minimum(count[query, None] + more, most[query, None]),
        np.reciprocal,
    )


def _inferred_ap(measure: Measure, one: Listed, gold: Prepared) -> _Shape:
    count = _count(measure, one, gold)
    return _Shape(
        lambda rank: 1 / rank + EPSILON * _inferred(rank),
        lambda query, more: count[query, None] + more,
        _inferred,
    )


def _inferred(rank: Values) -> Values:
    """What a relevant item above adds to the expected precision where everything is judged."""
    return (rank - 1) / (rank * (rank - 1 + 2 * EPSILON))


def _ndcg(measure: Measure, one: Listed, gold: Prepared) -> _Shape:
    grades, gain = possible_grades(gold), gain_of(measure, gold.conventions)
    levels, limit = Levels.of(one.ranked.target, grades, gain), one.ranked.ideal_limit(measure.k)
    _, worth = best_grade(grades, gain)
    return _Shape(
        lambda rank: worth / np.log2(rank + 1),
        lambda query, more: levels.ideal(query, more, limit),
    )


def _count(measure: Measure, one: Listed, gold: Prepared) -> Ints:
    """|G| as things stand."""
    return one.ranked.target.relevant(argument(measure, "rel", gold)).astype(np.int64)


_SHAPES: Mapping[str, Callable[[Measure, Listed, Prepared], _Shape]] = {
    "R": _recall,
    "F": _f_measure,
    "WR": _weighted_recall,
    "AP": _average_precision,
    "GMAP": _average_precision,
    "infAP": _inferred_ap,
    "nDCG": _ndcg,
}
