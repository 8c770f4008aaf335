"""The arithmetic of fusion: ranked lists in, one ranked list out.

In every list the first of equal ids counts. A fused hit has the fused score, and each other
fact from the first list that knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum, inf
from statistics import fmean, pstdev
from typing import Any, Literal

from karat.retrievers.protocol import Hit, Hits

Scale = Literal["minmax", "none", "zscore"]


def by_reciprocal_rank(
    lists: Sequence[Hits], weights: Sequence[float], constant: float = 60
) -> Hits:
    """Each item's score is the sum of ``weight / (constant + rank)`` over the lists that have it.

    Equal scores go by the rank in the first list, then in the second, and so on.
    """
    found = [_firsts(hits) for hits in lists]
    shares = [
        {item: weight / (constant + rank) for rank, item in enumerate(hits, 1)}
        for hits, weight in zip(found, weights, strict=True)
    ]
    # fsum rounds once, so that the same ranks in another order are a tie.
    scores = {item: fsum(share.get(item, 0.0) for share in shares) for item in _all(found)}
    return _in_order(scores, found)


def by_weighted_score(lists: Sequence[Hits], weights: Sequence[float], scale: Scale) -> Hits:
    """Each item's score is the weighted sum of its scores, made comparable list by list.

    An item that a list lacks has the least scaled score of that list. Equal sums go by the
    rank in the first list, then in the second, and so on.
    """
    found = [_firsts(hits) for hits in lists]
    scaled = [_scaled(hits, scale) for hits in found]
    least = [0.0 if scale == "minmax" else min(scores.values(), default=0.0) for scores in scaled]
    scores = {
        item: fsum(
            weight * scores.get(item, low)
            for weight, scores, low in zip(weights, scaled, least, strict=True)
        )
        for item in _all(found)
    }
    return _in_order(scores, found)


def by_interpolation(first: Hits, second: Hits, alpha: float, constant: float = 60) -> Hits:
    """``alpha`` of the first list's reciprocal rank and the rest of the second's.

    Ranks are those by falling score, then by id; so is the fused list. A list that lacks an
    item gives it nothing.
    """
    found = [_firsts(first), _firsts(second)]
    one, other = ({item: 1 / (constant + at) for at, item in _by_score(hits)} for hits in found)
    scores = {
        item: alpha * one.get(item, 0.0) + (1 - alpha) * other.get(item, 0.0)
        for item in _all(found)
    }
    order = sorted(scores, key=lambda item: (-scores[item], item))
    return [_merged(item, scores[item], found) for item in order]


def _firsts(hits: Hits) -> dict[str, Hit]:
    """The hits by id, in their order."""
    kept: dict[str, Hit] = {}
    for hit in hits:
        kept.setdefault(hit.item_id, hit)
    return kept


def _all(found: Sequence[Mapping[str, Hit]]) -> list[str]:
    return list(dict.fromkeys(item for hits in found for item in hits))


def _scaled(hits: Mapping[str, Hit], scale: Scale) -> dict[str, float]:
    scores = {item: _score(hit) for item, hit in hits.items()}
    if scale == "none" or not scores:
        return scores
    into = _to_unit(scores) if scale == "minmax" else _to_deviations(scores)
    return {item: into(score) for item, score in scores.items()}


def _to_unit(scores: Mapping[str, float]) -> Callable[[float], float]:
    """From 0 for the least to 1 for the best; where all are equal, all are the best."""
    low, high = min(scores.values()), max(scores.values())
    return lambda score: 1.0 if high == low else (score - low) / (high - low)


def _to_deviations(scores: Mapping[str, float]) -> Callable[[float], float]:
    """How many standard deviations above the mean; 0 where all are equal."""
    mean, spread = fmean(scores.values()), pstdev(scores.values())
    return lambda score: 0.0 if not spread else (score - mean) / spread


def _by_score(hits: Mapping[str, Hit]) -> list[tuple[int, str]]:
    order = sorted(hits, key=lambda item: (-_score(hits[item]), item))
    return list(enumerate(order, 1))


def _score(hit: Hit) -> float:
    if hit.score is None:
        raise ValueError(f"item {hit.item_id!r} has no score")
    return hit.score


def _in_order(scores: Mapping[str, float], found: Sequence[Mapping[str, Hit]]) -> Hits:
    ranks = [{item: rank for rank, item in enumerate(hits)} for hits in found]
    order = sorted(scores, key=lambda item: (-scores[item], [one.get(item, inf) for one in ranks]))
    return [_merged(item, scores[item], found) for item in order]


def _merged(item: str, score: float, found: Sequence[Mapping[str, Hit]]) -> Hit:
    first, *others = (hits[item] for hits in found if item in hits)
    merged = first._replace(score=score)
    for hit in others:
        if None in merged:
            told = zip(Hit._fields, merged, hit, strict=True)
            facts: dict[str, Any] = {name: its for name, own, its in told if own is None}
            merged = merged._replace(**facts)
    return merged
