"""fuse: asks several retrievers and fuses their lists into one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import fsum, inf
from statistics import fmean, pstdev
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from karat.errors import CallError
from karat.formats.settings import ConfigModel, custom_error
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Answer, Finder, Hit, Hits, Query, shares
from karat.retrieve.system_config import Share, Spec, refuse

Scale = Literal["minmax", "none", "zscore"]


def by_reciprocal_rank(
    lists: Sequence[Hits], weights: Sequence[float], constant: float = 60
) -> Hits:
    """Score each item by the sum of ``weight / (constant + rank)`` over its lists.

    Equal scores go by the rank in the first list, then in the second, and so on.
    """
    by_id = [_firsts(hits) for hits in lists]
    shares = [
        {item: weight / (constant + rank) for rank, item in enumerate(hits, 1)}
        for hits, weight in zip(by_id, weights, strict=True)
    ]
    # fsum rounds once, so that the same ranks in another order are a tie.
    scores = {item: fsum(share.get(item, 0.0) for share in shares) for item in _all(by_id)}
    return _in_order(scores, by_id)


def by_weighted_score(lists: Sequence[Hits], weights: Sequence[float], scale: Scale) -> Hits:
    """Score each item by the weighted sum of its scores, scaled list by list.

    An item that a list lacks has the least scaled score of that list. Equal sums go by the
    rank in the first list, then in the second, and so on.
    """
    by_id = [_firsts(hits) for hits in lists]
    scaled = [_scaled(hits, scale) for hits in by_id]
    least = [0.0 if scale == "minmax" else min(scores.values(), default=0.0) for scores in scaled]
    scores = {
        item: fsum(
            weight * scores.get(item, low)
            for weight, scores, low in zip(weights, scaled, least, strict=True)
        )
        for item in _all(by_id)
    }
    return _in_order(scores, by_id)


def by_interpolation(first: Hits, second: Hits, alpha: float, constant: float = 60) -> Hits:
    """Score by ``alpha`` of the first list's reciprocal rank and the rest of the second's.

    Ranks are those by falling score, then by id; so is the fused list. A list that lacks an
    item gives it nothing.
    """
    by_id = [_firsts(first), _firsts(second)]
    first_shares, second_shares = (
        {
            item: 1 / (constant + rank)
            for rank, item in enumerate(
                sorted(hits, key=lambda item: (-_score(hits[item]), item)), 1
            )
        }
        for hits in by_id
    )
    scores = {
        item: alpha * first_shares.get(item, 0.0) + (1 - alpha) * second_shares.get(item, 0.0)
        for item in _all(by_id)
    }
    order = sorted(scores, key=lambda item: (-scores[item], item))
    return [_merged(item, scores[item], by_id) for item in order]


def _firsts(hits: Hits) -> dict[str, Hit]:
    firsts: dict[str, Hit] = {}
    for hit in hits:
        firsts.setdefault(hit.item_id, hit)
    return firsts


def _all(by_id: Sequence[Mapping[str, Hit]]) -> list[str]:
    return list(dict.fromkeys(item for hits in by_id for item in hits))


def _scaled(hits: Mapping[str, Hit], scale: Scale) -> dict[str, float]:
    """Return the scores; minmax: from 0 to 1 (all equal: 1); zscore: deviations (all equal: 0)."""
    scores = {item: _score(hit) for item, hit in hits.items()}
    if scale == "none" or not scores:
        return scores
    values = scores.values()
    if scale == "minmax":
        low, spread, if_equal = min(values), max(values) - min(values), 1.0
    else:
        low, spread, if_equal = fmean(values), pstdev(values), 0.0
    return {item: (score - low) / spread if spread else if_equal for item, score in scores.items()}


def _score(hit: Hit) -> float:
    if hit.score is None:
        raise ValueError(f"item {hit.item_id!r} has no score")
    return hit.score


def _in_order(scores: Mapping[str, float], by_id: Sequence[Mapping[str, Hit]]) -> Hits:
    ranks = [{item: rank for rank, item in enumerate(hits)} for hits in by_id]
    order = sorted(
        scores, key=lambda item: (-scores[item], [positions.get(item, inf) for positions in ranks])
    )
    return [_merged(item, scores[item], by_id) for item in order]


def _merged(item: str, score: float, by_id: Sequence[Mapping[str, Hit]]) -> Hit:
    first, *others = (hits[item] for hits in by_id if item in hits)
    merged = first._replace(score=score)
    for hit in others:
        if None in merged:
            fields = zip(Hit._fields, merged, hit, strict=True)
            facts: dict[str, Any] = {name: value for name, known, value in fields if known is None}
            merged = merged._replace(**facts)
    return merged


# Names of the log's own lists and times.
_RESERVED = (
    *("raw", "final", "original", "total", "retrieve", "rewrite", "route", "filter", "as_of"),
    *("threshold", "rerank", "distinct_docs", "mmr"),
)
_SIZES = ("index_bytes", "embedding_updates")

Parts = list[Spec] | dict[str, Spec]


def parts_by_name(specs: Parts) -> dict[str, Spec]:
    """Return the retrievers by name: keys of a mapping; in a list system or kind names."""
    if isinstance(specs, dict):
        return specs
    names: dict[str, Spec] = {}
    for spec in specs:
        base = spec if isinstance(spec, str) else str(spec.get("retriever"))
        name, number = base, 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names[name] = spec
    return names


def check_part_names(of: Any) -> Any:
    """Refuse parts whose names the log needs for its own lists."""
    if not of:
        raise custom_error("of is empty; name at least one retriever")
    for name in parts_by_name(of):
        if name in _RESERVED or not name.strip():
            raise custom_error(f"a part cannot be called {name!r}; the log needs that name itself")
    return of


# Options that only some methods use.
_METHODS_WITH = {
    "rank_constant": ("rrf", "interpolate"),
    "weights": ("rrf", "weighted"),
    "scale": ("weighted",),
    "alpha": ("interpolate",),
}


class FuseOptions(ConfigModel):
    """What to fuse, and how."""

    of: Annotated[Parts, AfterValidator(check_part_names)] = Field(
        description="a list of retrievers (names or mappings), or a mapping of names to them"
    )
    method: Literal["rrf", "weighted", "interpolate"] = Field(
        "rrf", description="rrf, weighted or interpolate"
    )
    rank_constant: Annotated[float, Field(ge=0, le=1e6)] = Field(
        60, description="what is added to each rank, a number from 0"
    )
    weights: list[Annotated[float, Field(ge=0, le=1e6)]] = Field(
        default_factory=list, description="a list of numbers from 0, one for each retriever"
    )
    scale: Scale = Field("minmax", description="minmax, none or zscore")
    alpha: Share = Field(
        0.5, description="the share of the first of the two retrievers, from 0 to 1"
    )

    @model_validator(mode="after")
    def _agree(self) -> FuseOptions:
        count, has_weights = len(self.of), "weights" in self.model_fields_set
        for key, methods in _METHODS_WITH.items():
            if key in self.model_fields_set and self.method not in methods:
                raise custom_error(
                    f"{key} goes with method {' or '.join(methods)}, not {self.method}"
                )
        refuse(
            self.method == "interpolate"
            and count != 2
            and f"method interpolate takes two retrievers; of has {count}",
            has_weights
            and len(self.weights) != count
            and f"weights has {len(self.weights)} numbers for {count} retrievers; give each one",
            has_weights
            and not any(self.weights)
            and "weights are all 0; one at least must be above 0",
        )
        return self


Options = FuseOptions


def parts(options: FuseOptions) -> dict[str, Spec]:
    """Return the retrievers by the names that their lists have in the log."""
    return parts_by_name(options.of)


def make(options: FuseOptions, context: BuildContext, parts: Mapping[str, Finder]) -> Fuse:
    """Return the fusion of the parts."""
    return Fuse(options, parts)


class Fuse:
    """Asks every part and fuses the lists; the list of a single part stays as it is.

    ``label`` gives hits without a source the name of their part.
    """

    def __init__(
        self, options: FuseOptions, parts: Mapping[str, Finder], *, label: bool = False
    ) -> None:
        self.options = options
        self.parts = dict(parts)
        self.label = label
        self.batch, self.concurrency = batch_and_concurrency(self.parts)
        self.deep = all(part.deep for part in parts.values())

    @property
    def meta(self) -> Mapping[str, Any]:
        """The meta of the parts, with sizes added up."""
        return meta_of_parts(self.parts)

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Return one fused list per query."""
        answers_by_part = [self._ask(name, queries, k) for name in self.parts]
        return [self._fused_answer(answers, k) for answers in zip(*answers_by_part, strict=True)]

    def _ask(self, name: str, queries: Sequence[Query], k: int) -> list[Answer]:
        """Ask one part; its errors name it, and its lists and times are under its name."""
        part = self.parts[name]
        start = time.perf_counter()
        try:
            answers = part.find(queries, k)
        except CallError as error:
            raise error.saying(f"part {name!r}: {error}") from error
        times = shares((time.perf_counter() - start) * 1000, answers)
        # Tokens are of the list returned, and the system around counts its own.
        if getattr(part, "items", None) is not None:
            for answer in answers:
                answer.cost.pop("tokens", None)
        return [self._named(name, answer, ms) for answer, ms in zip(answers, times, strict=True)]

    def _named(self, name: str, answer: Answer, elapsed: float) -> Answer:
        hits = answer.hits
        if self.label:
            hits = [hit if hit.source is not None else hit._replace(source=name) for hit in hits]
        # A part that only retrieves has no further times.
        inner = answer.latency if answer.latency.keys() - {"retrieve"} else {}
        return Answer(
            hits,
            latency={name: elapsed} | {f"{name}.{stage}": ms for stage, ms in inner.items()},
            cost=answer.cost,
            lists={f"{name}.{stage}": made for stage, made in answer.lists.items()} | {name: hits},
            rewritten=answer.rewritten,
            source=answer.source,
            spent=elapsed,
            aside=answer.aside,
        )

    def _fused_answer(self, answers: Sequence[Answer], k: int) -> Answer:
        costs = dict.fromkeys(key for answer in answers for key in answer.cost)
        return Answer(
            self._fused([answer.hits for answer in answers], k),
            latency={stage: ms for answer in answers for stage, ms in answer.latency.items()},
            cost={key: fsum(answer.cost.get(key, 0) for answer in answers) for key in costs},
            lists={stage: made for answer in answers for stage, made in answer.lists.items()},
            rewritten=_joined(" | ", [answer.rewritten for answer in answers]),
            source=_joined("+", [answer.source for answer in answers]),
            spent=fsum(answer.spent or 0.0 for answer in answers),
            aside=fsum(answer.aside for answer in answers),
        )

    def _fused(self, lists: Sequence[Hits], k: int) -> Hits:
        how = self.options
        if len(lists) == 1:
            return lists[0]
        weights = how.weights or [1.0] * len(lists)
        if how.method == "rrf":
            return by_reciprocal_rank(lists, weights, how.rank_constant)[:k]
        for name, hits in zip(self.parts, lists, strict=True):
            unscored = next((hit.item_id for hit in hits if hit.score is None), None)
            if unscored is not None:
                raise CallError(
                    f"part {name!r}: item {unscored!r} has no score, and method {how.method} "
                    "needs one; method rrf goes by ranks"
                )
        if how.method == "weighted":
            return by_weighted_score(lists, weights, how.scale)[:k]
        return by_interpolation(lists[0], lists[1], how.alpha, how.rank_constant)[:k]


def batch_and_concurrency(parts: Mapping[str, Finder]) -> tuple[int, int]:
    """Return how many queries the parts take at once, and how many calls side by side.

    Parts that are asked one call at a time gain by the largest batch that one of them likes.
    One that can be asked side by side is far away: it is called, paced and called again
    query by query, so there the smallest batch holds.
    """
    near = all(part.concurrency == 1 for part in parts.values())
    batches = [part.batch for part in parts.values()]
    return max(batches) if near else min(batches), min(p.concurrency for p in parts.values())


def meta_of_parts(parts: Mapping[str, Finder]) -> dict[str, Any]:
    """Return the meta of a retriever that is made of others."""
    meta: dict[str, Any] = {"parts": {name: dict(part.meta) for name, part in parts.items()}}
    for size in _SIZES:
        part_sizes = [part[size] for part in meta["parts"].values() if size in part]
        if part_sizes:
            meta[size] = sum(part_sizes)
    return meta


def _joined(by: str, texts: Sequence[str | None]) -> str | None:
    """Join the different texts of the parts; None if there are none."""
    return by.join(dict.fromkeys(text for text in texts if text is not None)) or None
