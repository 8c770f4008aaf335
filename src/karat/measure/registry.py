"""The registry of measures: a measure is a name, its documentation and one pure function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from karat.measure.aggregates import Evidence, Values, mean

Better = Literal["higher", "lower", "none"]
Cutoff = Literal["must", "may", "none", "recall", "path"]
NeededGold = Literal["relevant", "graded", "any", "none"]
Need = Literal["list", "docs", "texts", "versions"]

# What judging further items can do to a measure. "rising": a relevant item within the cut-off
# never makes it worse, any other never better. "sum": it also is a sum over relevant items, divided
# by what the gold allows. "gold": it looks at the gold only, and rises with it. "ndcg", "ap" and
# "area" have a search of their own in ``ranges``.
RANGES = ("rising", "sum", "gold", "ndcg", "ap", "area")
# Any other declaration is the reason why there is no range, with {} for the measure.
NO_RANGE = "no bounds are known for {}"
COUNTS_JUDGMENTS = "{} counts which items are judged, so that judging changes what it measures"
IGNORES_RELEVANCE = "{} does not depend on which items are relevant"


@dataclass(frozen=True, slots=True)
class Definition:
    """A measure as it is registered.

    ``cutoff`` says whether ``@k`` must, may or must not follow the name, or is a point of
    recall. ``gold`` says which gold a query must have for a value: ``relevant`` items at the
    threshold, ``graded`` ones of any positive grade, ``any`` that makes it answerable, or
    ``none`` at all. ``ceiling`` is ``ideal`` where the ideal list's value is the best possible,
    ``k``, a number where that is known, else None. ``bounded`` says that values lie between 0
    and 1, which intervals near an end need to know. ``number`` makes one number of the queries'
    values; ``evidence`` gathers what it needs besides them, and ``settle`` makes values final
    once all evidence is there. ``needs`` names what the function reads besides the judged hits.
    ``unjudged`` is one of ``RANGES``, or says why the measure has no range over unjudged items.
    """

    name: str
    function: Callable[..., Values]
    parameters: Mapping[str, Any]
    better: Better = "higher"
    cutoff: Cutoff = "may"
    ceiling: Literal["ideal", "k"] | float | None = "ideal"
    needs: tuple[Need, ...] = ()
    gold: NeededGold = "relevant"
    number: Callable[[Values, Evidence], float | None] = mean
    evidence: Callable[..., Evidence] | None = None
    settle: Callable[..., Values] | None = None
    aliases: tuple[str, ...] = ()
    bounded: bool = True
    unjudged: str = NO_RANGE

    def __post_init__(self) -> None:
        """Refuse a declaration with a word that nobody would read."""
        for field, words in (("better", Better), ("cutoff", Cutoff), ("gold", NeededGold)):
            if getattr(self, field) not in get_args(words):
                self._refuse(field, get_args(words))
        if unknown := set(self.needs) - set(get_args(Need)):
            self._refuse("needs", get_args(Need), f"{sorted(unknown)}")
        if self.unjudged not in RANGES and "{}" not in self.unjudged:
            self._refuse("unjudged", (*RANGES, "a reason with {} for the measure"))
        if self.needs and self.unjudged in RANGES:
            raise TypeError(
                f"{self.name}: a range is computed from judged hits alone; with needs={self.needs},"
                " unjudged= says why there is none"
            )

    def _refuse(self, field: str, words: tuple[str, ...], value: str | None = None) -> None:
        value = value or repr(getattr(self, field))
        raise TypeError(f"{self.name}: {field} is {value}; it can be {', '.join(words)}")

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


def measure(name: str, **fields: Any) -> Callable[[Callable[..., Values]], Callable[..., Values]]:
    """Register a function of ``(ranked, k, *, parameters)`` as a measure.

    ``fields`` are those of its ``Definition`` that differ from their defaults. The profile gives
    ``rel`` its value, so that a default other than 1 would be read by nobody: it is refused.
    """

    def register(function: Callable[..., Values]) -> Callable[..., Values]:
        parameters = {
            parameter.name: parameter.default
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        }
        if parameters.get("rel", 1) != 1:
            raise TypeError(
                f"{name}: rel comes from the profile; call a threshold of its own grade"
            )
        if name in _MEASURES:
            raise TypeError(f"the measure {name} is registered twice")
        _MEASURES[name] = Definition(name, function, MappingProxyType(parameters), **fields)
        return function

    return register
