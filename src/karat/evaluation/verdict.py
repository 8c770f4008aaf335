"""The verdict: which measure decides, the verdict of each row, and of a pair.

Everything here is a pure function of results. ``judge_row`` gives one row its verdict, ``decide``
gives a pair of systems theirs; every command, page and report shows what these return.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from karat.errors import UsageError, unknown
from karat.evaluation.segments import CROSS
from karat.measure.conventions import PROFILES, Conventions
from karat.measure.names import Measure, parse_measure
from karat.measure.scores import Interval
from karat.pages.formatting import p_in_words, plural
from karat.pages.serialize import Record

Verdict = Literal["better", "worse", "same", "unclear"]

# Smaller differences are rounding errors.
NO_DIFFERENCE = 1e-12


def nearly_equal(a: float, b: float) -> bool:
    """Return whether two numbers differ by no more than the rounding of a sum."""
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of a comparison.

    ``primary`` is the measure that decides: the profile's unless named. ``margin`` is the
    difference that does not matter: a share of the baseline's mean, or absolute. ``margin_on``
    is what must exceed it: the whole interval, or the difference itself.
    ``no_regression`` names the measures that must not get worse: ``primary``, or ``all``; the
    profile's unless named. ``detect`` is the difference that a user wants to be able to see.

    >>> Rule(primary="RR", margin=0.01, margin_kind="absolute").margin_for(0.5)
    0.01
    """

    primary: str | None = None
    margin: float = 0.02
    margin_kind: Literal["relative", "absolute"] = "relative"
    margin_on: Literal["interval", "mean"] = "interval"
    pairs: Literal["baseline", "all"] = "baseline"
    correction: Literal["holm", "bh"] = "holm"
    detect: float | None = None
    no_regression: Literal["primary", "all"] | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                allowed = ", ".join(filter(None, choices))
                raise UsageError(f"{name} is {value!r}; it can be {allowed}")
        if self.pairs == "all" and self.correction == "bh":
            raise UsageError("pairs=all brings its own correction; leave correction=bh out")
        if not 0 <= self.margin <= (1.0 if self.margin_kind == "relative" else 1e9):
            raise UsageError(
                f"margin is {self.margin:g}; give a share from 0 to 1, such as 0.02 for 2 %, or"
                " with margin_kind=absolute a difference of 0 or more"
            )
        if self.detect is not None and not 0 < self.detect < 1e9:
            raise UsageError(f"detect is {self.detect:g}; give a difference above 0, such as 0.02")

    def margin_for(self, baseline_mean: float) -> float:
        """Return the margin in the measure's own unit."""
        return abs(self.margin * (baseline_mean if self.margin_kind == "relative" else 1.0))


_CHOICES: dict[str, tuple[str | None, ...]] = {
    "margin_kind": ("relative", "absolute"),
    "margin_on": ("interval", "mean"),
    "pairs": ("baseline", "all"),
    "correction": ("holm", "bh"),
    "no_regression": ("primary", "all", None),
}


def rule_from(rule: Rule | None, parts: Mapping[str, Any]) -> Rule:
    """Return a rule with some parts replaced; an unknown name is refused."""
    for name in parts:
        if name not in Rule.__slots__:
            raise unknown("argument", name, Rule.__slots__)
    return replace(rule or Rule(), **parts)


def check_boundable(rule: Rule, *, replicates: bool) -> None:
    """Refuse bounds on a difference of more than two runs."""
    needs = "bounds need two runs and their lists"
    if replicates:
        raise UsageError(f"{needs}; leave --replicates (replicates=True) out")
    if rule.pairs == "all":
        raise UsageError(f"{needs}; leave --pairs all out, which decides over all pairs at once")


@dataclass(frozen=True, slots=True)
class Comparison(Record):
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


@dataclass(frozen=True, slots=True)
class Primary(Record):
    """The measure that decides, and who chose it: the user, the profile, or the measures' order.

    ``note`` says why where it is not what a reader would expect.
    """

    measure: str
    source: Literal["named", "profile", "measures"]
    note: str | None = None


def primary_of(rule: Rule, measures: Sequence[Measure], conventions: Conventions) -> Primary:
    """Return the measure that decides: the one named, else the profile's, else the first.

    Measures without a better direction are skipped.
    """
    names = [str(measure) for measure in measures]
    directed = [str(measure) for measure in measures if measure.definition.better != "none"]
    if rule.primary is not None:
        named = str(parse_measure(rule.primary, conventions=conventions))
        if named not in names:
            raise unknown("primary measure", named, names)
        if named not in directed:
            raise UsageError(f"neither higher nor lower is better for {named}, so it cannot decide")
        return Primary(named, "named")
    default = str(parse_measure(PROFILES[conventions.profile].primary, conventions=conventions))
    if default in directed:
        return Primary(default, "profile")
    if not directed:
        raise UsageError("no measure here has a better direction; name another one to decide")
    note = (
        f"{directed[0]} decides, as the first of the measures: {default}, which decides under the"
        f" profile {conventions.profile}, is not among them"
    )
    return Primary(directed[0], "measures", note)


def judge_row(row: Comparison, rule: Rule, *, alpha: float, identical: bool) -> Comparison:
    """Return the row with its verdict, whether it is a caution or a regression, and why."""
    if row.better == "none":
        because = f"neither higher nor lower is better for {row.measure}: no verdict"
        return replace(row, because=because)
    # Equal lists without a value are unknown too.
    identical = identical and row.delta is not None
    up = -1.0 if row.better == "lower" else 1.0
    overall = row.segment is None
    beyond = overall and _beyond_margin(row, rule, up, alpha)
    verdict: Verdict = "unclear"
    if identical:
        verdict = "same"
    elif row.p_adjusted is not None and row.p_adjusted < alpha and row.delta:
        verdict = "better" if up * row.delta > 0 else "worse"
    elif row.ci_same is not None and max(map(abs, row.ci_same)) < row.margin:
        verdict = "same"
    if row.primary and beyond and rule.margin_on == "mean":
        verdict = "worse"
    # The primary measure warns of segments, the others of what the verdict does not see.
    caution = beyond and not row.primary if overall else row.primary and verdict == "worse"
    stops = verdict == "worse" if row.primary else caution and rule.no_regression == "all"
    row = replace(row, verdict=verdict, regression=overall and stops, caution=caution)
    because = _because(row, rule, alpha=alpha, identical=identical, beyond=beyond)
    return replace(row, because=because)


def _because(row: Comparison, rule: Rule, *, alpha: float, identical: bool, beyond: bool) -> str:
    """Return the sentence behind the verdict on one row."""
    if identical:
        return f"both runs return the same lists, so {row.measure} is the same"
    if row.delta is None:
        return f"{row.measure} has no value that both systems share"
    change = _change(row, row.delta, alpha)
    if beyond and rule.margin_on == "mean":
        # A verdict by the number alone does not also read as unclear.
        return f"{change}; that is more than the margin of {_short(row.margin)}"
    if row.verdict == "unclear" and not row.caution:
        return change + _why_unclear(row, alpha)
    if row.verdict == "same":
        return f"{change}; that is within the margin of ±{_short(row.margin)}"
    return change


def _beyond_margin(row: Comparison, rule: Rule, up: float, alpha: float) -> bool:
    """Return whether the measure got worse by more than the margin, beyond rounding errors.

    The interval counts only if this measure's own test agrees.
    """
    if row.delta is None:
        return False
    if rule.margin_on == "mean":
        lost = -up * row.delta
        return lost > row.margin and not nearly_equal(lost, row.margin)
    if row.ci is None or row.p is None or row.p >= alpha:
        return False
    return max(up * end for end in row.ci) < -row.margin


# The fields of a caution in a decision.
_CAUTION = ("measure", "segment", "delta", "ci", "p", "p_adjusted", "n", "regression", "because")


@dataclass(frozen=True, slots=True)
class Decision(Record):
    """The verdict on one system and its baseline, by the primary measure alone.

    ``cautions`` are other regressions: of another measure, or the primary one in a segment; a
    ``regression`` among them stops the change. ``bounds`` says what unjudged items could change.
    """

    baseline: str
    system: str
    measure: str
    verdict: Verdict
    regression: bool
    because: str
    bounds: str | None = None
    cautions: tuple[Comparison, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the most important fields of each caution."""
        document = Record.to_dict(self)
        cautions = [{name: row[name] for name in _CAUTION} for row in document["cautions"]]
        return document | {"cautions": cautions}


_VERBS = {"better": "improves", "worse": "worsens"}


def decide(rows: Sequence[Comparison]) -> Decision:
    """Return the verdict that the judged rows of one pair of systems give together.

    The primary measure over all queries is the verdict, and a regression if it is worse. The
    rows that warn are cautions: they are a regression only where no measure may get worse.
    """
    primary = next(row for row in rows if row.primary and row.segment is None)
    cautions = [row for row in rows if row.caution]
    # What stops the change first, and segments that lose by what decides before other measures.
    cautions.sort(key=lambda caution: (not caution.regression, caution.segment is None))
    # With the system as the subject of the sentence, if it moved.
    because, verb = primary.because, _VERBS.get(primary.verdict or "")
    moved = f"{primary.measure} {_moved(primary.delta)} by "
    if verb is not None and because.startswith(moved):
        because = f"{primary.system} {verb} {primary.measure} by {because.removeprefix(moved)}"
    return Decision(
        primary.baseline,
        primary.system,
        primary.measure,
        primary.verdict or "unclear",
        regression=primary.regression or any(caution.regression for caution in cautions),
        because=because,
        cautions=tuple(cautions),
    )


def _change(row: Comparison, delta: float, alpha: float) -> str:
    """Return the change of a measure, with its segment and certainty."""
    digits = _digits(delta, *(row.ci or ()))
    by = f" by {abs(delta):.{digits}f}" if delta else ""
    where = " and ".join(f"{column} {value}" for column, value in (row.segment or {}).items())
    inside = f" in {where}" if where else ""
    facts = []
    if row.ci is not None:
        low, high = (f"{round(end, digits) + 0.0:.{digits}f}" for end in row.ci)
        facts.append(f"{100 * (1 - alpha):.4g} % interval {low} to {high}")
    if row.p_adjusted is not None:
        p = p_in_words(row.p_adjusted)
        several = _is_corrected_away(row, alpha)
        facts.append(p + (f" after correction for {row.tests} tests" if several else ""))
    facts.append(plural(row.n, "query", "queries"))
    if row.better == "lower":
        facts.append("lower is better")
    return f"{row.measure} {_moved(delta)}{by}{inside} ({', '.join(facts)})"


def _moved(delta: float | None) -> str:
    return "rose" if (delta or 0) > 0 else "fell" if (delta or 0) < 0 else "did not change"


def _is_corrected_away(row: Comparison, alpha: float) -> bool:
    """Return whether a difference is significant alone but not after correction."""
    return row.p is not None and row.p_adjusted is not None and row.p < alpha <= row.p_adjusted


def _why_unclear(row: Comparison, alpha: float) -> str:
    """Return why a comparison is unclear, and how many queries would settle it."""
    if row.ci is None and row.n < 2:
        return f": {plural(row.n, 'query is', 'queries are')} too few to tell"
    if row.ci is None:
        missing = "without an interval, equality cannot be shown"
        return f": {row.power_because if row.p is None and row.power_because else missing}"
    if _is_corrected_away(row, alpha):
        return ": unclear, though its interval, which is not corrected, excludes 0"
    power = []
    if row.detectable is not None:
        power.append(f"{row.n:,} queries can show a change of {_short(row.detectable)} or more")
    if row.needed is not None and row.needed > row.n:
        # Two significant digits.
        about = max(round(row.needed, 2 - len(str(row.needed))), 1)
        power.append(f"a change of {_short(row.wanted)} needs about {about:,}")
    sentence = ": too close to call" + (f". {'; '.join(power)}" if power else "")
    return sentence if row.power_because is None else f"{sentence}; {row.power_because}"


def _digits(first: float, *others: float) -> int:
    """Return how many decimals give the first value two digits, and show only 0 as 0."""
    size = abs(first) or max(map(abs, others), default=0.0)
    digits = 0
    while digits < 6 and (
        (size and size < 10 ** (1 - digits))
        or any(value and not round(value, digits) for value in (first, *others))
    ):
        digits += 1
    return digits


def _short(value: float) -> str:
    """Return two significant digits, or all digits before the point; never an exponent."""
    return f"{value:.{_digits(value)}f}"


# The end of the sentence on a segment that is worse beyond chance.
BEYOND_CHANCE = ", beyond chance"


def reversals_in(rows: Sequence[Comparison], alpha: float) -> Iterator[str]:
    """Return a sentence for each segment that goes down while all queries together go up.

    A segment counts when it is worse beyond chance, corrected for the segments of its column,
    or when it lost more than the margin; which of the two it is, is part of the sentence.
    So is that a correction decided, where the interval, which has none, excludes 0.
    """
    overall = {(row.baseline, row.system, row.measure): row for row in rows if row.segment is None}
    for row in rows:
        change = overall[row.baseline, row.system, row.measure].delta
        if row.segment is None or row.better == "none" or change is None or row.delta is None:
            continue
        up = -1.0 if row.better == "lower" else 1.0
        certain = row.verdict == "worse"
        lost = certain or up * row.delta < -row.margin
        if up * change <= 0 or up * row.delta >= 0 or not lost:
            continue
        sure = BEYOND_CHANCE if certain else ", though that may be chance"
        if not certain and _is_corrected_away(row, alpha):
            sure += f" after correction for {row.tests:,} tests"
        where = CROSS.join(f"{column} {value}" for column, value in row.segment.items())
        interval = "" if row.ci is None else f" [{row.ci[0]:.3f}, {row.ci[1]:.3f}]"
        yield (
            f"{row.system} changes {row.measure} by {change:+.3f} overall but by {row.delta:+.3f}"
            f"{interval} where {where} (n = {row.n}){sure}"
        )
