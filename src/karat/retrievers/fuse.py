"""Several retrievers asked, and their lists made one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from karat.errors import CallError
from karat.formats.forms import Form, refused
from karat.retrievers.forms import Share, Spec
from karat.retrievers.fusion import (
    Scale,
    by_interpolation,
    by_reciprocal_rank,
    by_weighted_score,
)
from karat.retrievers.protocol import Answer, Finder, Hits, Query, shares
from karat.retrievers.workshop import Workshop

# Names that a log gives to lists and times of its own.
_TAKEN = (
    *("raw", "final", "original", "total", "retrieve", "rewrite", "route", "filter", "as_of"),
    *("threshold", "rerank", "distinct_docs", "mmr"),
)
_SIZES = ("index_bytes", "embedding_updates")

Parts = list[Spec] | dict[str, Spec]


def named(of: Parts) -> dict[str, Spec]:
    """The retrievers by name: the key in a mapping; in a list the system's or the kind's."""
    if isinstance(of, dict):
        return of
    names: dict[str, Spec] = {}
    for spec in of:
        base = spec if isinstance(spec, str) else str(spec.get("retriever"))
        name, number = base, 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names[name] = spec
    return names


def told_apart(of: Any) -> Any:
    """Refuse parts whose lists the log could not tell from its own."""
    if not of:
        raise refused("of is empty; name at least one retriever")
    for name in named(of):
        if name in _TAKEN or not name.strip():
            raise refused(f"a part cannot be called {name!r}; the log needs that name itself")
    return of


def _two_for_interpolation(method: str, info: ValidationInfo) -> str:
    parts = len(info.data.get("of", ()))
    if method == "interpolate" and parts not in (0, 2):
        raise refused(f"method interpolate takes two retrievers; of has {parts}")
    return method


def _one_each(weights: list[float], info: ValidationInfo) -> list[float]:
    parts = len(info.data.get("of", ()))
    if parts and len(weights) != parts:
        raise refused(f"weights has {len(weights)} numbers for {parts} retrievers; give each one")
    if not any(weights):
        raise refused("weights are all 0; one at least must be above 0")
    return weights


def _only_for(*methods: str) -> AfterValidator:
    """Refuse an option where the method would ignore it."""

    def check(value: Any, info: ValidationInfo) -> Any:
        method = info.data.get("method", methods[0])
        if method not in methods:
            raise refused(
                f"{info.field_name} goes with method {' or '.join(methods)}, not {method}"
            )
        return value

    return AfterValidator(check)


class Options(Form):
    """What to fuse, and how."""

    of: Annotated[Parts, AfterValidator(told_apart)] = Field(
        description="a list of retrievers (names or mappings), or a mapping of names to them"
    )
    method: Annotated[
        Literal["rrf", "weighted", "interpolate"], AfterValidator(_two_for_interpolation)
    ] = Field("rrf", description="rrf, weighted or interpolate")
    rank_constant: Annotated[float, Field(ge=0, le=1e6), _only_for("rrf", "interpolate")] = Field(
        60, description="what is added to each rank, a number from 0"
    )
    weights: Annotated[
        list[Annotated[float, Field(ge=0, le=1e6)]],
        AfterValidator(_one_each),
        _only_for("rrf", "weighted"),
    ] = Field(default_factory=list, description="a list of numbers from 0, one for each retriever")
    scale: Annotated[Scale, _only_for("weighted")] = Field(
        "minmax", description="minmax, none or zscore"
    )
    alpha: Annotated[Share, _only_for("interpolate")] = Field(
        0.5, description="the share of the first of the two retrievers, from 0 to 1"
    )


def parts(options: Options) -> dict[str, Spec]:
    """The retrievers by the names that their lists have in the log."""
    return named(options.of)


def make(options: Options, workshop: Workshop, parts: Mapping[str, Finder]) -> Fuse:
    """The fusion of the parts."""
    return Fuse(options, parts)


class Fuse:
    """Asks every part and fuses what they return; the list of a single part stays as it is.

    ``label`` gives hits without a source the name of their part.
    """

    def __init__(
        self, options: Options, parts: Mapping[str, Finder], *, label: bool = False
    ) -> None:
        self.options = options
        self.parts = dict(parts)
        self.label = label
        self.batch, self.concurrency = pace(self.parts)
        self.deep = all(part.deep for part in parts.values())

    @property
    def meta(self) -> Mapping[str, Any]:
        """The parts' own facts, with sizes added up."""
        return facts(self.parts)

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """One list a query, of all parts' lists."""
        asked = [self._asked(name, queries, k) for name in self.parts]
        return [self._together(told, k) for told in zip(*asked, strict=True)]

    def _asked(self, name: str, queries: Sequence[Query], k: int) -> list[Answer]:
        """A part's answers as they stand in the whole's; what fails says whose it is."""
        part = self.parts[name]
        start = time.perf_counter()
        try:
            answers = part.find(queries, k)
        except CallError as error:
            raise error.saying(f"part {name!r}: {error}") from error
        took = shares((time.perf_counter() - start) * 1000, answers)
        # Tokens are of the list returned, and the system around counts its own.
        counted = getattr(part, "items", None) is not None
        without = {"tokens"} if counted else set()
        return [
            self._told(name, answer, each, without)
            for answer, each in zip(answers, took, strict=True)
        ]

    def _told(self, name: str, answer: Answer, each: float, without: set[str]) -> Answer:
        """A part's answer with its lists and times under its name."""
        hits = answer.hits
        if self.label:
            hits = [hit if hit.source is not None else hit._replace(source=name) for hit in hits]
        # A part that only retrieves has no times of its own to tell.
        inner = answer.latency if answer.latency.keys() - {"retrieve"} else {}
        return Answer(
            hits,
            latency={name: each} | {f"{name}.{stage}": ms for stage, ms in inner.items()},
            cost={key: cost for key, cost in answer.cost.items() if key not in without},
            lists={f"{name}.{stage}": made for stage, made in answer.lists.items()} | {name: hits},
            rewritten=answer.rewritten,
            source=answer.source,
            spent=each,
            aside=answer.aside,
        )

    def _together(self, told: Sequence[Answer], k: int) -> Answer:
        costs = dict.fromkeys(key for answer in told for key in answer.cost)
        return Answer(
            self._fused([answer.hits for answer in told], k),
            latency={stage: ms for answer in told for stage, ms in answer.latency.items()},
            cost={key: fsum(answer.cost.get(key, 0) for answer in told) for key in costs},
            lists={stage: made for answer in told for stage, made in answer.lists.items()},
            rewritten=_joined(" | ", [answer.rewritten for answer in told]),
            source=_joined("+", [answer.source for answer in told]),
            spent=fsum(answer.spent or 0.0 for answer in told),
            aside=fsum(answer.aside for answer in told),
        )

    def _fused(self, lists: Sequence[Hits], k: int) -> Hits:
        how = self.options
        if len(lists) == 1:
            return lists[0]
        weights = how.weights or [1.0] * len(lists)
        if how.method == "rrf":
            return by_reciprocal_rank(lists, weights, how.rank_constant)[:k]
        for name, hits in zip(self.parts, lists, strict=True):
            _refuse_unscored(name, hits, how.method)
        if how.method == "weighted":
            return by_weighted_score(lists, weights, how.scale)[:k]
        return by_interpolation(lists[0], lists[1], how.alpha, how.rank_constant)[:k]


def pace(parts: Mapping[str, Finder]) -> tuple[int, int]:
    """How many queries the parts like at once, and how many such calls side by side.

    Parts that are asked one call at a time gain by the largest batch that one of them likes.
    One that can be asked side by side is far away: it is called, paced and called again
    query by query, so there the smallest batch holds.
    """
    near = all(part.concurrency == 1 for part in parts.values())
    batches = [part.batch for part in parts.values()]
    return max(batches) if near else min(batches), min(p.concurrency for p in parts.values())


def facts(parts: Mapping[str, Finder]) -> dict[str, Any]:
    """What a log says of a retriever that is made of others."""
    told: dict[str, Any] = {"parts": {name: dict(part.meta) for name, part in parts.items()}}
    for size in _SIZES:
        known = [part[size] for part in told["parts"].values() if size in part]
        if known:
            told[size] = sum(known)
    return told


def _refuse_unscored(name: str, hits: Hits, method: str) -> None:
    for hit in hits:
        if hit.score is None:
            raise CallError(
                f"part {name!r}: item {hit.item_id!r} has no score, and method {method} needs "
                "one; method rrf goes by ranks"
            )


def _joined(by: str, texts: Sequence[str | None]) -> str | None:
    """The texts that the parts told, each once; None if they told none."""
    return by.join(dict.fromkeys(text for text in texts if text is not None)) or None
