"""What one comparison says, and the two systems that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from karat.analysis.contenders import Contender
from karat.analysis.verdicts import Verdict
from karat.measures.intervals import Interval
from karat.measures.numbers import Values
from karat.measures.scores import Scores

# Differences below this are how floating point writes "none".
NO_DIFFERENCE = 1e-12


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measure of a system against its baseline, over all queries or a segment of them.

    ``delta`` is the system's number minus the baseline's, whichever way is better; wins and
    losses count queries that got better and worse. ``ci_same`` is the narrower interval that
    must lie within the ``margin`` for the two to be the same. ``wanted`` is the difference
    that ``needed`` queries would detect, ``detectable`` what those at hand can; where neither can
    be told, ``power_because`` says why. ``bounds`` is
    the range of the difference over all labels of unjudged items, and the verdict that holds
    in all of it. ``corrected`` is a difference of precision without the errors of a judge.
    ``p_adjusted`` is corrected for ``tests`` tests; intervals are not. ``caution`` marks what got
    worse beside the verdict: another measure beyond the margin, or the primary one in a segment.
    """

    baseline: str
    system: str
    measure: str
    segment: Mapping[str, str] | None
    primary: bool
    better: Literal["higher", "lower", "none"]
    n: int
    baseline_mean: float | None = None
    system_mean: float | None = None
    delta: float | None = None
    ci: Interval = None
    ci_same: Interval = None
    p: float | None = None
    p_adjusted: float | None = None
    tests: int = 1
    t: float | None = None
    wilcoxon: float | None = None
    sign: float | None = None
    wins: int = 0
    ties: int = 0
    losses: int = 0
    effect: float | None = None
    detectable: float | None = None
    wanted: float = 0.0
    needed: int | None = None
    power_because: str | None = None
    margin: float = 0.0
    between_runs: float | None = None
    verdict: Verdict | None = None
    regression: bool = False
    caution: bool = False
    because: str = ""
    bounds: Mapping[str, Any] | None = None
    corrected: Mapping[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """The comparison as it stands in a report."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, eq=False)
class Pair:
    """A system and what it is compared with."""

    baseline: Contender
    system: Contender
    identical: bool = False

    @property
    def names(self) -> tuple[str, str]:
        """The names of both."""
        return self.baseline.name, self.system.name

    @property
    def scores(self) -> tuple[Scores, Scores]:
        """The first run of both."""
        return self.baseline.runs[0], self.system.runs[0]

    @property
    def repeated(self) -> bool:
        """Whether one of them was run more than once."""
        return len(self.baseline.runs) + len(self.system.runs) > 2

    def values(self, measure: str) -> tuple[Values, Values]:
        """One value a query of both."""
        return self.baseline.values(measure), self.system.values(measure)
