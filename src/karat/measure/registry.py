"""The registry of measures: a measure is a name, its documentation and one pure function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from karat.measure.aggregates import Evidence, Values, mean
from karat.measure.unjudged import NO_RANGE, Behaviour

Better = Literal["higher", "lower", "none"]
Need = Literal["list", "docs", "texts", "versions"]


@dataclass(frozen=True, slots=True)
class Definition:
    """A measure as it is registered.

    ``cutoff`` says whether ``@k`` must, may or must not follow the name, or is a point of
    recall. ``ceiling`` is ``ideal`` where the ideal list's value is the best possible, ``k``, a
    number where that is known, else None. ``bounded`` says that values lie between 0 and 1,
    which intervals near an end need to know. ``number`` makes one number of the queries' values,
    a mean unless told otherwise; ``evidence`` gathers what it needs besides them, and
    ``settle`` makes values final once all evidence is there. ``needs`` names what the
    function reads besides the judged hits. ``unjudged`` says how judging further items can
    change the value, or why that cannot be said: a sentence with {} for the measure.
    """

    name: str
    function: Callable[..., Values]
    better: Better
    cutoff: Literal["must", "may", "none", "recall", "path"]
    ceiling: Literal["ideal", "k"] | float | None
    needs: tuple[Need, ...]
    gold: Literal["relevant", "graded", "any", "none"]
    number: Callable[[Values, Evidence], float | None]
    evidence: Callable[..., Evidence] | None
    settle: Callable[..., Values] | None
    parameters: Mapping[str, Any]
    aliases: tuple[str, ...]
    bounded: bool
    unjudged: Behaviour | str

    @property
    def about(self) -> str:
        """The function's documentation: what the number means."""
        return inspect.getdoc(self.function) or ""

    @property
    def worst(self) -> float:
        """What a query gets that the run does not answer."""
        return 1.0 if self.better == "lower" else 0.0


_MEASURES: dict[str, Definition] = {}
MEASURES: Mapping[str, Definition] = MappingProxyType(_MEASURES)


def measure(
    name: str,
    *,
    better: Better = "higher",
    cutoff: Literal["must", "may", "none", "recall", "path"] = "may",
    ceiling: Literal["ideal", "k"] | float | None = "ideal",
    needs: tuple[Need, ...] = (),
    gold: Literal["relevant", "graded", "any", "none"] = "relevant",
    number: Callable[[Values, Evidence], float | None] = mean,
    evidence: Callable[..., Evidence] | None = None,
    settle: Callable[..., Values] | None = None,
    aliases: tuple[str, ...] = (),
    bounded: bool = True,
    unjudged: Behaviour | str = NO_RANGE,
) -> Callable[[Callable[..., Values]], Callable[..., Values]]:
    """Register a function of ``(ranked, k, *, parameters)`` as a measure.

    ``gold`` says which gold a query must have for a value: ``relevant`` items at the
    threshold, ``graded`` ones of any positive grade, ``any`` that makes it answerable, or
    ``none`` at all. See ``Definition`` for the rest, and ``unjudged`` (the module) for what a
    measure can declare about unjudged items; without it the measure has no bounds.
    """

    def register(function: Callable[..., Values]) -> Callable[..., Values]:
        parameters = {
            parameter.name: parameter.default
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        _MEASURES[name] = Definition(
            name=name,
            function=function,
            better=better,
            cutoff=cutoff,
            ceiling=ceiling,
            needs=needs,
            gold=gold,
            number=number,
            evidence=evidence,
            settle=settle,
            parameters=MappingProxyType(parameters),
            aliases=aliases,
            bounded=bounded,
            unjudged=unjudged,
        )
        return function

    return register
