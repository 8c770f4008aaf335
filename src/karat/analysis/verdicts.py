"""From figures to a verdict: better, worse, same or unclear, with the sentence that explains it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from karat.analysis.limits import same
from karat.errors import UsageError

if TYPE_CHECKING:
    from karat.analysis.comparison import Comparison

# A single query has no spread, and so neither an interval nor a test.
FEWEST = 2

Verdict = Literal["better", "worse", "same", "unclear"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides a comparison.

    ``margin`` is the difference that does not matter: a share of the baseline's mean, or
    absolute. ``margin_on`` says what must lie below it for a regression: the whole interval,
    or the difference itself. ``detect`` is the difference that a user wants to be able to see.
    """

    primary: str | None = None
    margin: float = 0.02
    margin_kind: Literal["relative", "absolute"] = "relative"
    margin_on: Literal["interval", "mean"] = "interval"
    pairs: Literal["baseline", "all"] = "baseline"
    correction: Literal["holm", "bh"] = "holm"
    detect: float | None = None

    def __post_init__(self) -> None:
        _one_of("margin_kind", self.margin_kind, ("relative", "absolute"))
        _one_of("margin_on", self.margin_on, ("interval", "mean"))
        _one_of("pairs", self.pairs, ("baseline", "all"))
        _one_of("correction", self.correction, ("holm", "bh"))
        if self.pairs == "all" and self.correction == "bh":
            raise UsageError("pairs=all brings its own correction; leave correction=bh out")
        if self.margin_kind == "relative" and not 0 <= self.margin <= 1:
            raise UsageError(
                f"margin is {self.margin:g}; it is a share from 0 to 1, such as 0.02 for 2 %"
            )
        if not 0 <= self.margin < 1e9:
            raise UsageError(f"margin is {self.margin:g}; it is a difference of 0 or more")
        if self.detect is not None and not 0 < self.detect < 1e9:
            raise UsageError(f"detect is {self.detect:g}; it is a difference above 0, such as 0.02")

    def margin_for(self, baseline_mean: float) -> float:
        """The margin in the measure's own unit."""
        return abs(self.margin * (baseline_mean if self.margin_kind == "relative" else 1.0))


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} is {value!r}; it can be {', '.join(known)}")


def judged(row: Comparison, rule: Rule, *, alpha: float, identical: bool) -> Comparison:
    """The comparison with its verdict, whether it confirms a regression, and why."""
    if row.better == "none":
        because = f"{row.measure} is neither better high nor low, so there is no verdict"
        return replace(row, because=because)
    up = -1.0 if row.better == "lower" else 1.0
    verdict = _verdict(row, up, alpha, identical=identical)
    beyond = _beyond_margin(row, rule, up, alpha)
    because = _because(row, verdict, rule, identical=identical, beyond=beyond)
    regression = beyond or (row.primary and verdict == "worse")
    return replace(row, verdict=verdict, regression=regression, because=because)


def _verdict(row: Comparison, up: float, alpha: float, *, identical: bool) -> Verdict:
    if identical:
        return "same"
    if row.p_adjusted is not None and row.p_adjusted < alpha and row.delta:
        return "better" if up * row.delta > 0 else "worse"
    within = row.ci_same is not None and max(map(abs, row.ci_same)) < row.margin
    return "same" if within else "unclear"


def _beyond_margin(row: Comparison, rule: Rule, up: float, alpha: float) -> bool:
    """Whether the measure got worse by more than the margin; a rounding error decides nothing.

    By the interval only where the test of this measure, taken by itself, can see it as well:
    with five queries it never can.
    """
    if row.delta is None:
        return False
    if rule.margin_on == "mean":
        lost = -up * row.delta
        return lost > row.margin and not same(lost, row.margin)
    if row.ci is None or row.p is None or row.p >= alpha:
        return False
    return max(up * end for end in row.ci) < -row.margin


def _because(
    row: Comparison, verdict: Verdict, rule: Rule, *, identical: bool, beyond: bool
) -> str:
    if identical:
        return f"both runs return the same lists, so {row.measure} is the same"
    if row.delta is None:
        return f"{row.measure} has no value that both systems share"
    moved = "rose" if row.delta > 0 else "fell" if row.delta < 0 else "did not move"
    by = f" by {_short(abs(row.delta))}" if row.delta else ""
    interval = "" if row.ci is None else f" [{_short(row.ci[0])}, {_short(row.ci[1])}]"
    told = f"{row.measure} {moved}{by}{interval}"
    if row.p_adjusted is not None:
        told += f", p {_p(row.p_adjusted)}"
    over = f" over {row.n} {'query' if row.n == 1 else 'queries'}"
    if beyond and rule.margin_on == "mean":
        # What the number alone decides is not called undecided in the same breath.
        return f"{told}{over}; that is more than the margin of {_short(row.margin)}"
    if beyond and verdict not in {"worse", "better"}:
        return f"{told}: the whole interval lies beyond the margin of {_short(row.margin)}"
    if verdict == "unclear":
        return told + _unclear(row)
    if verdict == "same":
        return f"{told}: within ±{_short(row.margin)}, so the two are the same for this purpose"
    return told + over


def _unclear(row: Comparison) -> str:
    if row.ci is None and row.n < FEWEST:
        return f": {row.n} {'query is' if row.n == 1 else 'queries are'} too few to tell"
    if row.ci is None:
        return ": without an interval sameness cannot be shown"
    told = f": neither a difference nor sameness within ±{_short(row.margin)} is shown"
    if row.detectable is not None:
        told += f"; {row.n} queries can detect {_short(row.detectable)}"
    if row.needed is not None and row.needed > row.n:
        told += f", {row.needed:,} would be needed for {_short(row.wanted)}"
    return told


def _short(value: float) -> str:
    """Three significant digits, never an exponent where a reader expects none."""
    return f"{value:.3g}" if abs(value) >= 0.0001 or value == 0 else f"{value:.1g}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.2g}"
