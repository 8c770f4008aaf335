"""From figures to a verdict: which measure decides, what each row says, and what all say together.

Everything here is a pure function of results. ``judged`` gives one row its verdict, ``decide``
gives a pair of systems theirs; every command, page and report shows what these return.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from karat.errors import UsageError, unknown
from karat.evaluation.gate_measurement import nearly_equal
from karat.evaluation.segments import CROSS
from karat.measures.conventions import PROFILES, Conventions
from karat.measures.names import Measure, parse_measure
from karat.measures.scores import Interval

# A single query has no spread, and so neither an interval nor a test.
FEWEST = 2

Verdict = Literal["better", "worse", "same", "unclear"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What decides a comparison.

    ``primary`` is the measure that decides: the profile's unless named. ``margin`` is the
    difference that does not matter: a share of the baseline's mean, or absolute. ``margin_on``
    says what must lie beyond it: the whole interval, or the difference itself.
    ``no_regression`` says which measures may not get worse: ``primary``, or ``all``; the
    profile's unless named. ``detect`` is the difference that a user wants to be able to see.
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
        _one_of("margin_kind", self.margin_kind, ("relative", "absolute"))
        _one_of("margin_on", self.margin_on, ("interval", "mean"))
        _one_of("pairs", self.pairs, ("baseline", "all"))
        _one_of("correction", self.correction, ("holm", "bh"))
        if self.no_regression is not None:
            _one_of("no_regression", self.no_regression, ("primary", "all"))
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
        """Return the margin in the measure's own unit."""
        return abs(self.margin * (baseline_mean if self.margin_kind == "relative" else 1.0))


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} is {value!r}; it can be {', '.join(known)}")


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
        """Return the comparison as it stands in a report."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Primary:
    """The measure that decides, and who chose it: the user, the profile, or the measures' order.

    ``note`` says why where it is not what a reader would expect.
    """

    measure: str
    source: Literal["named", "profile", "measures"]
    note: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the choice as it stands in a report."""
        return {"measure": self.measure, "source": self.source, "note": self.note}


def primary_of(rule: Rule, measures: Sequence[Measure], conventions: Conventions) -> Primary:
    """Return the measure that decides: the one named, else the profile's, else the first.

    The first is the first that is better high or low.
    """
    directed = [str(one) for one in measures if one.definition.better != "none"]
    if rule.primary is not None:
        wanted = str(parse_measure(rule.primary, conventions=conventions))
        if wanted not in map(str, measures):
            raise unknown("primary measure", wanted, [str(one) for one in measures])
        if wanted not in directed:
            raise UsageError(f"{wanted} is neither better high nor low, so it cannot decide")
        return Primary(wanted, "named")
    own = str(parse_measure(PROFILES[conventions.profile].primary, conventions=conventions))
    if own in directed:
        return Primary(own, "profile")
    if not directed:
        raise UsageError("no measure here is better high or low; name another one to decide")
    note = (
        f"{directed[0]} decides, as the first of the measures: {own}, which decides under the"
        f" profile {conventions.profile}, is not among them"
    )
    return Primary(directed[0], "measures", note)


def complete_rule(
    rule: Rule, measures: Sequence[Measure], conventions: Conventions
) -> tuple[Rule, Primary]:
    """Return the rule with what it leaves to the profile filled in, and who chose its measure."""
    primary = primary_of(rule, measures, conventions)
    strict = rule.no_regression or PROFILES[conventions.profile].no_regression
    return replace(rule, primary=primary.measure, no_regression=strict), primary


def judge_row(row: Comparison, rule: Rule, *, alpha: float, identical: bool) -> Comparison:
    """The row with its verdict, whether it is a caution or a confirmed regression, and why."""
    if row.better == "none":
        because = f"{row.measure} is neither better high nor low, so there is no verdict"
        return replace(row, because=because)
    # Of equal lists without a value nothing is known either.
    identical = identical and row.delta is not None
    up = -1.0 if row.better == "lower" else 1.0
    overall = row.segment is None
    beyond = overall and _beyond_margin(row, rule, up, alpha)
    verdict = _verdict(row, up, alpha, identical=identical)
    if row.primary and beyond and rule.margin_on == "mean":
        verdict = "worse"
    # The primary measure warns of segments, the others of what the verdict does not see.
    caution = beyond and not row.primary if overall else row.primary and verdict == "worse"
    regression = overall and row.primary and verdict == "worse"
    regression = regression or (overall and caution and rule.no_regression == "all")
    found = replace(row, verdict=verdict, regression=regression, caution=caution)
    told = _because(found, rule, alpha=alpha, identical=identical, beyond=beyond)
    return replace(found, because=told)


def _verdict(row: Comparison, up: float, alpha: float, *, identical: bool) -> Verdict:
    if identical:
        return "same"
    if row.p_adjusted is not None and row.p_adjusted < alpha and row.delta:
        return "better" if up * row.delta > 0 else "worse"
    within = row.ci_same is not None and max(map(abs, row.ci_same)) < row.margin
    return "same" if within else "unclear"


def _beyond_margin(row: Comparison, rule: Rule, up: float, alpha: float) -> bool:
    """Whether the measure got worse by more than the margin; a rounding error decides nothing.

    By the interval only where the test of this measure, taken by itself, can see it as well.
    """
    if row.delta is None:
        return False
    if rule.margin_on == "mean":
        lost = -up * row.delta
        return lost > row.margin and not nearly_equal(lost, row.margin)
    if row.ci is None or row.p is None or row.p >= alpha:
        return False
    return max(up * end for end in row.ci) < -row.margin


@dataclass(frozen=True, slots=True)
class Caution:
    """What got worse beside the verdict: another measure, or the primary one in a segment.

    ``regression`` says that it stops the change, as no measure may get worse.
    """

    measure: str
    segment: Mapping[str, str] | None
    delta: float | None
    ci: tuple[float, float] | None
    p: float | None
    p_adjusted: float | None
    n: int
    regression: bool
    because: str

    def document(self) -> dict[str, Any]:
        """Return the caution as it stands in a report."""
        told = {name: getattr(self, name) for name in self.__slots__}
        segment = None if self.segment is None else dict(self.segment)
        return told | {"ci": None if self.ci is None else list(self.ci), "segment": segment}


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on one system and its baseline, by the primary measure alone.

    ``cautions`` are what got worse beside it. ``bounds`` says what unjudged items could change
    about it, where they can.
    """

    baseline: str
    system: str
    measure: str
    verdict: Verdict
    regression: bool
    because: str
    bounds: str | None = None
    cautions: tuple[Caution, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the decision as it stands in a report."""
        told = {name: getattr(self, name) for name in self.__slots__}
        return told | {"cautions": [one.document() for one in self.cautions]}


def decide(rows: Sequence[Comparison]) -> Decision:
    """Return the verdict that the judged rows of one pair of systems give together.

    The primary measure over all queries is the verdict, and a regression if it is worse. The
    rows that warn are cautions: they are a regression only where no measure may get worse.
    """
    overall = [row for row in rows if row.segment is None]
    primary = next(row for row in overall if row.primary)
    cautions = [_caution(row) for row in rows if row.caution]
    # What stops the change first, and segments that lose by what decides before other measures.
    cautions.sort(key=lambda one: (not one.regression, one.segment is None))
    return Decision(
        primary.baseline,
        primary.system,
        primary.measure,
        primary.verdict or "unclear",
        regression=primary.regression or any(one.regression for one in cautions),
        because=_decisive(primary),
        cautions=tuple(cautions),
    )


def _caution(row: Comparison) -> Caution:
    return Caution(
        row.measure,
        row.segment,
        row.delta,
        row.ci,
        row.p,
        row.p_adjusted,
        row.n,
        row.regression,
        row.because,
    )


_VERBS = {"better": "improves", "worse": "worsens"}


def _decisive(row: Comparison) -> str:
    """The sentence on the row that decides; the system is its subject where one is better."""
    verb = _VERBS.get(row.verdict or "")
    moved = f"{row.measure} {_moved(row.delta)} by "
    if verb is None or not row.because.startswith(moved):
        return row.because
    return f"{row.system} {verb} {row.measure} by {row.because.removeprefix(moved)}"


def _because(row: Comparison, rule: Rule, *, alpha: float, identical: bool, beyond: bool) -> str:
    """Return the sentence behind the verdict on one row."""
    if identical:
        return f"both runs return the same lists, so {row.measure} is the same"
    if row.delta is None:
        return f"{row.measure} has no value that both systems share"
    told = _change(row, alpha)
    if beyond and rule.margin_on == "mean":
        # What the number alone decides is not called undecided in the same breath.
        return f"{told}; that is more than the margin of {_short(row.margin)}"
    if row.verdict == "unclear" and not row.caution:
        return told + _unclear(row, alpha)
    if row.verdict == "same":
        return f"{told}; that is within the margin of ±{_short(row.margin)}"
    return told


def _change(row: Comparison, alpha: float) -> str:
    """Return how far a measure moved, where, and how sure that is."""
    ends = () if row.ci is None else row.ci
    digits = _digits(row.delta or 0.0, *ends)
    by = f" by {abs(row.delta):.{digits}f}" if row.delta else ""
    where = " and ".join(f"{column} {value}" for column, value in (row.segment or {}).items())
    facts = []
    if row.ci is not None:
        low, high = (f"{round(end, digits) + 0.0:.{digits}f}" for end in row.ci)
        facts.append(f"{100 * (1 - alpha):.4g} % interval {low} to {high}")
    if row.p_adjusted is not None:
        several = is_corrected_away(row.p, row.p_adjusted, alpha)
        how = f" after correction for {row.tests} tests" if several else ""
        facts.append(f"p {_p(row.p_adjusted)}{how}")
    facts.append(f"{row.n:,} {'query' if row.n == 1 else 'queries'}")
    if row.better == "lower":
        facts.append("lower is better")
    inside = f" in {where}" if where else ""
    return f"{row.measure} {_moved(row.delta)}{by}{inside} ({', '.join(facts)})"


def _moved(delta: float | None) -> str:
    return "rose" if (delta or 0) > 0 else "fell" if (delta or 0) < 0 else "did not change"


def is_corrected_away(p: float | None, p_adjusted: float | None, alpha: float) -> bool:
    """Whether a test alone sees a difference, and its correction for several tests does not."""
    return p is not None and p_adjusted is not None and p < alpha <= p_adjusted


def _unclear(row: Comparison, alpha: float) -> str:
    if row.ci is None and row.n < FEWEST:
        return f": {row.n} {'query is' if row.n == 1 else 'queries are'} too few to tell"
    if row.p is None and row.power_because is not None:
        return f": {row.power_because}"
    if row.ci is None:
        return ": without an interval sameness cannot be shown"
    if is_corrected_away(row.p, row.p_adjusted, alpha):
        return ": unclear, though its interval, which is not corrected, excludes 0"
    told = ": too close to call"
    if row.detectable is not None:
        told += f". {row.n:,} queries can show a change of {_short(row.detectable)} or more"
    if row.needed is not None and row.needed > row.n:
        told += "; " if row.detectable is not None else ". "
        told += f"a change of {_short(row.wanted)} needs about {_about(row.needed)}"
    if row.power_because is not None:
        told += f"; {row.power_because}"
    return told


def _digits(first: float, *others: float) -> int:
    """So many decimals that the first value has two digits, and that none reads as 0 but 0."""
    size = abs(first) or max(map(abs, others), default=0.0)
    digits = 0
    while digits < 6 and (
        (size and size < 10 ** (1 - digits))
        or any(value and not round(value, digits) for value in (first, *others))
    ):
        digits += 1
    return digits


def _short(value: float) -> str:
    """Return two significant digits, or all that stand before the point; never an exponent."""
    return f"{value:.{_digits(value)}f}"


def _about(count: int) -> str:
    """Return two significant digits of a large number."""
    rounded = round(count, 2 - len(str(count)))
    return f"{max(rounded, 1):,}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.2g}"


_SURE, _CHANCE = "beyond chance", "though that may be chance"
# How every sentence ends, whatever the names in it are.
_END = re.compile(rf"\(n = (\d+)\), ({_SURE}|{_CHANCE}(?: after correction for [\d,]+ tests)?)$")


def reversals_in(rows: Sequence[Comparison], alpha: float) -> Iterator[str]:
    """Return a sentence for each segment that goes down while all queries together go up.

    A segment counts when it is worse beyond chance, corrected for the segments of its column,
    or when it lost more than the margin; which of the two it is, is part of the sentence.
    So is that a correction decided, where the interval, which has none, excludes 0.
    """
    overall = {(row.baseline, row.system, row.measure): row for row in rows if row.segment is None}
    for row in rows:
        whole = overall[row.baseline, row.system, row.measure]
        if row.segment is None or row.better == "none" or whole.delta is None or row.delta is None:
            continue
        up = -1.0 if row.better == "lower" else 1.0
        if up * whole.delta <= 0 or up * row.delta >= 0:
            continue
        certain = row.verdict == "worse"
        if certain or up * row.delta < -row.margin:
            yield _sentence(row, whole, alpha, certain=certain)


def reversal_facts(sentence: str) -> tuple[int | None, bool]:
    """Over how many queries a reversal is, and whether it is beyond chance.

    A sentence that does not say is taken to be.

    >>> reversal_facts("b changes R@5 by +0.1 overall but by -0.2 where a b (n = 3), beyond chance")
    (3, True)
    >>> reversal_facts("in the words of a later version")
    (None, True)
    """
    found = _END.search(sentence)
    return (None, True) if found is None else (int(found[1]), found[2] == _SURE)


def _sentence(row: Comparison, whole: Comparison, alpha: float, *, certain: bool) -> str:
    where = CROSS.join(f"{column} {value}" for column, value in (row.segment or {}).items())
    sure = _SURE if certain else _CHANCE
    if not certain and is_corrected_away(row.p, row.p_adjusted, alpha):
        sure += f" after correction for {row.tests:,} tests"
    interval = "" if row.ci is None else f" [{row.ci[0]:.3f}, {row.ci[1]:.3f}]"
    return (
        f"{row.system} changes {row.measure} by {whole.delta:+.3f} overall but by {row.delta:+.3f}"
        f"{interval} where {where} (n = {row.n}), {sure}"
    )
