"""Gates: limits that a system must meet before it ships, and the result of each gate.

``judge`` compares scores with gates; ``gate_files`` reads gates. All gates must pass, so a bad
system passes no more often than its strictest gate alone; but every gate raises the chance of
blocking a good system, which ``Gating.blocking`` gives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl

from karat.data.tables import Queries
from karat.errors import UsageError, unknown
from karat.evaluation.bounds import ScoreRanges, would_enter
from karat.evaluation.inputs import why_skipped
from karat.evaluation.segments import CROSS, By, Segment, segment_names, segments_by
from karat.evaluation.verdict import nearly_equal
from karat.measure import aggregates
from karat.measure.aggregates import NOTHING, Evidence, Values
from karat.measure.names import Measure
from karat.measure.scores import Scores, Summary, has_interval, number_of, percentile_of, plan_of
from karat.pages.formatting import figure, plural
from karat.pages.page import Page
from karat.pages.result import ENVELOPE, Result, record_frame
from karat.pages.serialize import Record
from karat.stats.distributions import clopper_pearson, tail
from karat.stats.means import mean_intervals, percentile_interval, rows_for_perfect
from karat.stats.power import MeanThreshold, chance_of_missing

GateVerdict = Literal["pass", "fail", "unmeasurable", "skipped"]

# The steps of the search for a passing mean, and how many are tried at a time.
_STEPS, _AT_ONCE = 1024, 32


@dataclass(frozen=True)
class Gate:
    """A limit on a measure: at least ``min`` or at most ``max``, beyond it if ``strict``.

    It is compared with the end of the measure's interval that is nearer to failing, or with
    ``on="mean"`` with the number itself. The gate gives the direction, so any measure can
    have one. With ``by`` it is judged in each segment, or in those that ``values`` names as a
    report does (``pt-BR``, ``pt-BR × hard``); ``any_spelling`` lets ``ptBR`` and ``BR-pt`` name
    pt-BR too, and looks for the values in another column than ``by`` where one other has them all.
    ``where`` is the gate's place in its file, for messages.
    """

    measure: Measure
    min: float | None = None
    max: float | None = None
    strict: bool = False
    on: Literal["interval", "mean"] = "interval"
    by: By | None = None
    values: tuple[str, ...] | None = None
    any_spelling: bool = False
    where: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if (self.min is None) == (self.max is None):
            both = "both min and max; write two gates" if self.upper else "neither min nor max"
            raise UsageError(f"the gate on {self.measure} has {both}; give one")
        if not math.isfinite(self.limit):
            raise UsageError(
                f"the gate on {self.measure} has the limit {self.limit}; give a number"
            )
        if self.values is not None and (self.by is None or not self.values):
            needs = "at least one value" if self.by else "by: the column that the values are of"
            raise UsageError(f"values of the gate on {self.measure} need {needs}")

    @property
    def upper(self) -> bool:
        """Return whether the limit is an upper one."""
        return self.max is not None

    @property
    def limit(self) -> float:
        """Return the limit."""
        return self.max if self.max is not None else self.min or 0.0

    def met_by(self, value: float) -> bool:
        """Return whether a value meets the limit, up to rounding."""
        if nearly_equal(value, self.limit):
            return not self.strict
        return value < self.limit if self.upper else value > self.limit

    def end_of(self, ci: tuple[float, float]) -> float:
        """Return the end of an interval that must meet the limit."""
        return ci[1] if self.upper else ci[0]

    def error(self, problem: str) -> UsageError:
        """Return an error about this gate, with its place."""
        return UsageError(f"{self.where or f'gate on {self.measure}'}: {problem}")


@dataclass(frozen=True)
class GateResult(Record):
    """The result of one gate for one system, in one segment if it has any.

    ``value`` is what was compared with the limit (``on`` says which number that is);
    ``needed`` is the mean that passes at this n, None where none does. ``unreachable`` means
    that no system could pass on this gold. ``because`` explains the result in one sentence.
    """

    system: str
    measure: str
    segment: Mapping[str, str] | None
    on: Literal["ci_low", "ci_high", "mean"]
    min: float | None
    max: float | None
    strict: bool
    value: float | None
    mean: float | None
    ci: tuple[float, float] | None
    n: int
    needed: float | None
    ceiling: float | None
    unreachable: bool
    verdict: GateVerdict
    because: str

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data, with the one limit that the gate has."""
        unused = "max" if self.max is None else "min"
        return {name: value for name, value in super().to_dict().items() if name != unused}


@dataclass(frozen=True, repr=False)
class Gating(Result):
    """All gates of one system; those that it can never pass come first.

    ``blocking`` is the chance that at least one gate blocks a system: one whose true values lie
    exactly on every limit (``at_limits``), and one whose true values are those measured
    (``as_measured``). Gates that cannot be judged or reached do not count; None where no other is.
    ``left_out`` names what a gate file asks for that is not about retrieval. A ``partial`` run, of
    which too many calls failed, cannot be judged as a whole.
    """

    results: tuple[GateResult, ...]
    blocking: Mapping[str, float] | None
    left_out: tuple[str, ...] = ()
    partial: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the gates as in a report."""
        return {
            **ENVELOPE,
            "verdict": self.verdict,
            "gates": [result.to_dict() for result in self.results],
            "blocking": {result.system: self.blocking for result in self.results[:1]},
            "gates_left_out": sorted(self.left_out),
        }

    def to_frame(self) -> pl.DataFrame:
        """Return one row per gate and segment."""
        return record_frame(result.to_dict() for result in self.results)

    def page(self) -> Page:
        """Return the page that people read: the verdict, then every gate."""
        from karat.evaluation.report_text import decided_sections, verdict_sentences

        results = self.to_dict()
        return Page("Gates", verdict_sentences(results), [*decided_sections(results)])

    @property
    def verdict(self) -> GateVerdict:
        """Return the worst of all gates: ``fail``, else ``unmeasurable``, ``skipped``, ``pass``."""
        if self.partial:
            return "unmeasurable"
        verdicts = {result.verdict for result in self.results}
        worst: tuple[GateVerdict, ...] = ("fail", "unmeasurable", "skipped")
        return next((verdict for verdict in worst if verdict in verdicts), "pass")


def judge(
    gates: Sequence[Gate],
    scores: Scores,
    queries: Queries | None,
    *,
    system: str,
    left_out: Iterable[str] = (),
) -> Gating:
    """Compare a system's scores with every gate, in every segment that a gate names."""
    results, thresholds = [], []
    for measured in _measured(gates, scores, queries):
        result = measured.result(system)
        results.append(result)
        if result.verdict in ("pass", "fail") and not result.unreachable:
            thresholds.append(measured.threshold())
    chances = chance_of_missing(thresholds, plan_of(scores.conventions), groups=scores.groups)
    results.sort(key=lambda result: not result.unreachable)
    blocking = chances and dict(zip(("at_limits", "as_measured"), chances, strict=True))
    return Gating(tuple(results), blocking, tuple(left_out), scores.partial)


def judge_strictly(
    gating: Gating, gates: Sequence[Gate], ranges: ScoreRanges, queries: Queries | None
) -> Gating:
    """Return the gates that pass or fail under any labels of unjudged items.

    A gate passes if it does so where judgments make the measure worst, and fails if it does so
    where they make it best: no end of an interval falls when a value rises, so what holds at both
    holds for all labels between. Else it cannot be judged yet. A measure without a range is judged
    as before. While a judgment could bring a query into the mean that has no relevant gold yet, no
    gate can be judged.
    """
    low, high = (
        {_key(end.result("")): end for end in _measured(gates, scores, queries)}
        for scores in (ranges.at("low"), ranges.at("high"))
    )

    def strict(result: GateResult) -> GateResult:
        if result.measure not in ranges.ranges or result.verdict not in ("pass", "fail"):
            return result
        mask = low[_key(result)].segment.mask
        ends = [end[_key(result)].result("") for end in (low, high)]
        unreachable = result.unreachable
        if entering := int((ranges.entering(result.measure) & mask).sum()):
            why = f"{would_enter(entering)}: judge what was returned there"
        elif not ranges.unjudged:
            return result
        elif all(end.verdict == result.verdict for end in ends):
            return replace(result, because=f"{result.because}, whatever judgments are missing")
        else:
            unreachable = unreachable and all(end.unreachable for end in ends)
            means = " to ".join(figure(end.mean) for end in ends)
            why = (
                f"{ranges.unjudged:,} of its items have no judgment; judging them could give"
                f" {means}: judge more"
            )
        because = f"{result.because}; but {why}"
        return replace(result, verdict="unmeasurable", because=because, unreachable=unreachable)

    return replace(gating, results=tuple(map(strict, gating.results)))


def _key(result: GateResult) -> tuple[Any, ...]:
    where = tuple(sorted((result.segment or {}).items()))
    return result.measure, where, result.on, result.min, result.max, result.strict


def _measured(
    gates: Sequence[Gate], scores: Scores, queries: Queries | None
) -> Iterator[_MeasuredGate]:
    """Yield every gate with what was measured in each of its segments."""
    ids = scores.table["query_id"]
    for gate in gates:
        if str(gate.measure) not in scores.columns:
            raise gate.error(f"{gate.measure} was not scored; add it to the measures")
    gated = replace(scores, measures=tuple(measures_of(gates)))
    summaries: dict[bytes, dict[str, Summary]] = {}
    for gate in (_with_column(gate, queries, ids) for gate in gates):
        for segment in _segments(gate, queries, ids):
            key = segment.mask.tobytes()
            if key not in summaries:
                summaries[key] = gated.summarise(segment.mask)
            yield _MeasuredGate(gate, scores, segment, summaries[key][str(gate.measure)])


def measures_of(gates: Iterable[Gate]) -> list[Measure]:
    """Return what must be scored before these gates can be judged, each once."""
    return list(dict.fromkeys(gate.measure for gate in gates))


def check_segments(
    gates: Iterable[Gate], queries: Queries | None, query_ids: Iterable[str]
) -> None:
    """Refuse a missing column or value before any run is scored."""
    ids = pl.Series("query_id", list(query_ids), dtype=pl.String)
    for gate in gates:
        _segments(_with_column(gate, queries, ids), queries, ids)


def _with_column(gate: Gate, queries: Queries | None, query_ids: pl.Series) -> Gate:
    """Return the gate with the column of its values: its own, else the only other with all."""
    if not gate.any_spelling or queries is None or gate.values is None:
        return gate
    names = {column: segment_names(query_ids, queries, column) for column in queries.segments}
    fitting = [
        column
        for column, values in names.items()
        if all(_alike(value, values) for value in gate.values)
    ]
    if gate.by is not None and gate.by.columns[0] in fitting:
        return gate
    if len(fitting) == 1:
        return replace(gate, by=By((fitting[0],)))
    if fitting:
        many = f"{', '.join(fitting)} all have these values; write [{fitting[0]}=VALUE]"
        raise gate.error(f"the segments {', '.join(gate.values)} are ambiguous: {many}")
    every = list(dict.fromkeys(value for values in names.values() for value in values))
    missing = next((value for value in gate.values if value not in every), gate.values[0])
    raise gate.error(str(unknown("segment", missing, every)))


def _segments(gate: Gate, queries: Queries | None, query_ids: pl.Series) -> list[Segment]:
    """Return where a gate is judged: everywhere, or in the segments that it names."""
    if gate.by is None:
        return [Segment({}, np.ones(len(query_ids), dtype=np.bool_))]
    try:
        segments = {segment.name: segment for segment in segments_by(query_ids, queries, gate.by)}
    except UsageError as error:
        raise gate.error(str(error)) from None
    if gate.values is None:
        return list(segments.values())
    chosen = {}
    for value in gate.values:
        if len(gate.by.columns) > 1:
            value = CROSS.join(part.strip() for part in value.replace("×", "*").split("*"))
        names = _alike(value, segments) if gate.any_spelling else [value]
        if len(names) != 1 or names[0] not in segments:
            raise gate.error(str(unknown(f"value of {gate.by}", value, segments)))
        chosen[names[0]] = segments[names[0]]
    return list(chosen.values())


def _alike(value: str, known: Iterable[str]) -> list[str]:
    """Return the names that match a value: itself, else other spellings or orders.

    >>> _alike("ptBR", ["pt-BR", "en"]), _alike("BR-pt", ["pt-BR", "en"]), _alike("en", ["en"])
    (['pt-BR'], ['pt-BR'], ['en'])
    """
    names = list(known)
    if value in names:
        return [value]
    words = re.findall(r"[^\W_]+", value.casefold())
    parts = {name: re.findall(r"[^\W_]+", name.casefold()) for name in names}
    spelled = [name for name in names if "".join(parts[name]) == "".join(words)]
    return spelled or [name for name in names if sorted(parts[name]) == sorted(words)]


class _MeasuredGate:
    """A gate and its measurement in one segment: the value, the needed mean, the verdict."""

    def __init__(self, gate: Gate, scores: Scores, segment: Segment, summary: Summary) -> None:
        self.gate, self.scores, self.segment, self.summary = gate, scores, segment, summary
        self.name, self.number = str(gate.measure), number_of(gate.measure)
        self.values = scores.values(self.name)
        # The queries that have a value.
        self.rows = segment.mask & ~np.isnan(self.values)
        self.range = scores.range_of(gate.measure, self.rows)
        self.evidence = scores.evidence.get(self.name, NOTHING)
        self.counts_keys = self.number is aggregates.share_of_keys
        # The number itself, or the end of its interval, is compared with the limit.
        self.on_mean = gate.on == "mean" or not has_interval(gate.measure)
        end = None if summary.ci is None else gate.end_of(summary.ci)
        self.value = summary.mean if self.on_mean else end
        # The highest value that any of these queries could have, up to 1.
        self.top = 1.0
        if self.name in scores.ceilings and not self.counts_keys and self.rows.any():
            ceilings = scores.ceilings[self.name][0][self.rows]
            self.top = float(np.nanmax(ceilings, initial=0.0)) or 1.0
        # The best that any system could reach on these queries, where that is known.
        definition = gate.measure.definition
        self.best = summary.ceiling if definition.better == "higher" else None
        if definition.better == "lower" and definition.bounded:
            self.best = 1.0
        if gate.upper and definition.better != "none":
            self.best = 0.0
        # The number of things of which the mean is a share, None where it is not: a mean of
        # values that are all 0 or ``top`` is a share times ``top``.
        self.share_of: int | None = None
        values = self.values[self.rows]
        plain = scores.groups is None and scores.conventions.interval != "percentile"
        if self.counts_keys:
            self.share_of = aggregates.independent_keys(self.evidence.of(self.rows))
        elif plain and definition.bounded and self.number is aggregates.mean:
            self.share_of = len(values) if np.isin(values, (0, self.top)).all() else None

    def result(self, system: str) -> GateResult:
        """Return the result of the gate."""
        gate, summary = self.gate, self.summary
        unreachable = summary.mean is not None and self.unreachable
        verdict, because = self._verdict()
        return GateResult(
            system=system,
            measure=self.name,
            segment=dict(self.segment.where) or None,
            on="mean" if self.on_mean else "ci_high" if gate.upper else "ci_low",
            min=gate.min,
            max=gate.max,
            strict=gate.strict,
            value=self.value,
            mean=summary.mean,
            ci=summary.ci,
            n=summary.n,
            needed=self.needed if verdict in ("pass", "fail") and not unreachable else None,
            ceiling=summary.ceiling,
            unreachable=unreachable,
            verdict=verdict,
            because=because,
        )

    @property
    def unreachable(self) -> bool:
        """Return whether no system passes on this gold, however many queries like these."""
        if self.best is None:
            return False
        if not self.gate.met_by(self.best):
            return True
        # Even a perfect result has an interval, which ends short of the best value at any n.
        on_the_edge = not self.on_mean and nearly_equal(self.gate.limit, self.best)
        return on_the_edge and self.perfect is not None and not self.gate.met_by(self.perfect)

    @cached_property
    def perfect(self) -> float | None:
        """Return the end of the interval if every query had its best value."""
        ideal = self._ideal()
        if ideal is None:
            return None
        scores = replace(
            self.scores,
            measures=(self.gate.measure,),
            columns={self.name: np.where(self.rows, ideal[0], np.nan)},
            evidence={self.name: ideal[1]},
            tied={},
        )
        ci = scores.summarise(self.segment.mask)[self.name].ci
        return None if ci is None else self.gate.end_of(ci)

    def _ideal(self) -> tuple[Values, Evidence] | None:
        """Return the best value of every query, with its evidence."""
        if self.best is None:
            return None
        if self.gate.upper:
            nothing = np.zeros(len(self.evidence.value))
            return np.zeros(len(self.rows)), replace(self.evidence, value=nothing)
        if self.name in self.scores.ceilings:
            return self.scores.ceilings[self.name]
        return np.full(len(self.rows), self.best), self.evidence

    @property
    def needed(self) -> float | None:
        """Return the mean that would pass at this n; None where that is beyond the best."""
        if self.passing is None or self.best is None:
            return self.passing
        beyond = self.passing < self.best if self.gate.upper else self.passing > self.best
        return None if beyond and not nearly_equal(self.passing, self.best) else self.passing

    @cached_property
    def passing(self) -> float | None:
        """Return the mean that would just pass; None where not even the best values would.

        For a share it is counted out. Any other mean is found by moving the measured values in
        equal proportion: towards the best that each query could have, or where they pass
        already, towards the worst. A number without bounds moves in proportion to itself.
        """
        gate, mean, value = self.gate, self.summary.mean, self.value
        if self.on_mean:
            return gate.limit
        if mean is None or value is None:
            return None
        if self.share_of is not None and (self.counts_keys or self.range is not None):
            return self._passing_share(self.share_of)
        if self.range is None or self.number is not aggregates.mean:
            if value * gate.limit > 0:
                return mean * gate.limit / value
            return gate.limit + (mean - value)
        values, ideal = self.values[self.rows], self._ideal()
        least, greatest = (np.full(len(values), end) for end in self.range)
        best, worst = (least, greatest) if gate.upper else (greatest, least)
        best = best if ideal is None else ideal[0][self.rows]
        best = np.minimum(values, best) if gate.upper else np.maximum(values, best)
        start, end = (worst, values) if gate.met_by(value) else (values, best)

        def column(step: int) -> Values:
            return np.asarray(start + (end - start) * (step / _STEPS))

        first = _first(_STEPS, lambda steps: self._pass([column(step) for step in steps]))
        return None if first is None else aggregates.mean(column(first))

    def _passing_share(self, n: int) -> float | None:
        """Return the smallest share of n that passes, or the largest where less is better."""
        upper, confidence = self.gate.upper, self.scores.conventions.ci

        def passes(steps: list[int]) -> list[bool]:
            counts = [n - step if upper else step for step in steps]
            if self.counts_keys:
                ends = [clopper_pearson(k, n, confidence=confidence) for k in counts]
                return [self.gate.met_by(self.gate.end_of(ci)) for ci in ends]
            return self._pass([np.where(np.arange(n) < k, self.top, 0.0) for k in counts])

        first = _first(n, passes)
        return None if first is None else (n - first if upper else first) / n * self.top

    def _pass(self, columns: list[Values]) -> list[bool]:
        """Return whether each of these columns would pass in the place of the measured values."""
        groups = self.scores.groups
        ends = mean_intervals(
            np.stack(columns, axis=1),
            plan_of(self.scores.conventions),
            ranges=[self.range] * len(columns),
            groups=None if groups is None else groups[self.rows],
        )
        return [self.gate.met_by(self.gate.end_of((low, high))) for low, high in ends.tolist()]

    def _verdict(self) -> tuple[GateVerdict, str]:
        """Return the verdict and its reason, the strongest reason first."""
        gate, mean, value = self.gate, self.summary.mean, self.value
        where = ", ".join(f"{column} {name}" for column, name in self.segment.where.items())
        subject = f"{self.name} in {where}" if where else self.name
        if mean is None:
            skipped = why_skipped(self.scores)
            if skipped is not None and self.summary.lacks is None:
                return "skipped", f"{subject} is skipped: {skipped}"
            lacks = self.summary.lacks or "no query here has a value for it"
            return "unmeasurable", f"{subject} cannot be measured: {lacks}"
        if self.unreachable:
            return "fail", f"{subject}: {self._why_unreachable()}"
        compared = f"{subject} {self._compared(mean)}"
        n = plural(self.summary.n, "query", "queries")
        if value is None:
            return "unmeasurable", f"{compared} ({n}): {self._why_no_interval()}"
        passes, perfect = gate.met_by(value), self.perfect
        if not passes and gate.met_by(mean) and perfect is not None and not gate.met_by(perfect):
            could = f"With {n}, even a perfect result would give {self._show(perfect)}"
            return "unmeasurable", f"{compared}. {could}; {self._enough()} queries are needed"
        if self.on_mean:
            compared += f", {n}"
        elif self.needed is None:
            compared += f". With {n}, no {self._word} would pass"
        else:
            # Of a share it is known, of another mean it depends on the spread.
            about = "" if self.share_of is not None else "about "
            needed = f"a {self._word} of {about}{self._show(self.needed, safe=True)}"
            compared += f". With {n}, {needed} {'is enough' if passes else 'would pass'}"
        return "pass" if passes else "fail", compared

    def _why_unreachable(self) -> str:
        gate, best = self.gate, self.best or 0.0
        number = self._show(gate.limit)
        if gate.met_by(best):
            end = "upper" if gate.upper else "lower"
            return f"the {end} bound of an interval never reaches {number}; use on: mean"
        if gate.upper:
            return f"no ranking can get {'below' if gate.strict else 'down to'} {number}"
        beyond = "exceed" if gate.strict else "reach"
        return f"no ranking can {beyond} {number}: the ceiling on this gold is {best:.4g}"

    def _why_no_interval(self) -> str:
        conventions = self.scores.conventions
        if conventions.interval == "none":
            return "intervals are switched off; set interval=gaffke, or gate on: mean"
        share, least = percentile_of(self.gate.measure), 2
        if share is not None:
            least = math.ceil(math.log(tail(conventions.ci)) / math.log(max(share, 1 - share)))
        if self.summary.n < least:
            return f"an interval needs at least {least} queries"
        units = "gold items" if self.scores.groups is None else "groups of queries"
        return f"an interval needs at least 2 {units}"

    def _enough(self) -> str:
        """Return how many queries a perfect result needs to pass, where a formula tells."""
        ideal = self._ideal()
        if ideal is None or self.scores.groups is not None or self.counts_keys:
            return "more"
        share = self.gate.limit / self.top
        share = 1 - share if self.gate.upper else share
        needed = rows_for_perfect(share, plan_of(self.scores.conventions))
        return "more" if needed is None or np.ptp(ideal[0][self.rows]) > 0 else f"{needed:,}"

    def _compared(self, mean: float) -> str:
        """Return ``needs a lower bound of at least 0.90; measured 0.93 (95 % interval …)``."""
        gate, ci = self.gate, self.summary.ci
        beyond, up_to = ("below", "of at most") if gate.upper else ("above", "of at least")
        end = "an upper bound" if gate.upper else "a lower bound"
        end = f"a {self._word}" if self.on_mean else end
        needs = f"needs {end} {beyond if gate.strict else up_to} {self._show(gate.limit)}"
        measured = f"{needs}; measured {self._show(mean)}"
        if ci is None:
            return measured
        share = 100 * self.scores.conventions.ci
        return f"{measured} ({share:g} % interval {self._show(ci[0])} to {self._show(ci[1])})"

    @property
    def _word(self) -> str:
        return "mean" if self.number is aggregates.mean else "value"

    def _show(self, number: float, *, safe: bool = False) -> str:
        """Return a number with enough digits to distinguish the measured value from the limit.

        ``safe`` rounds to the side that passes: whoever reaches the printed number must not fail.
        """
        limit, value = self.gate.limit, self.value
        digits = max(2 if abs(limit) < 10 else 1, len(f"{limit:.6f}".rstrip("0").partition(".")[2]))
        while value is not None and not nearly_equal(value, limit) and digits < 12:
            if f"{value:.{digits}f}" != f"{limit:.{digits}f}":
                break
            digits += 1
        if safe:
            scaled = number * 10**digits
            number = math.floor(scaled + 1e-6) if self.gate.upper else math.ceil(scaled - 1e-6)
            number /= 10**digits
        return f"{number:.{digits}f}"

    def threshold(self) -> MeanThreshold:
        """Return the gate as a mean to reach; where less is better, all signs are turned."""
        gate, n = self.gate, int(self.rows.sum())
        values = np.where(self.rows, self.values, np.nan)
        share = percentile_of(gate.measure)
        if share is not None:
            return self._share_threshold(values, share, n)
        points = np.array([self.summary.mean, gate.limit, self.passing], dtype=np.float64)
        if self.number is aggregates.geometric_mean:
            values = np.log(np.maximum(values, aggregates.SMALLEST))
            points = np.log(np.maximum(points, aggregates.SMALLEST))
        elif self.number is aggregates.total:
            points = points / n
        elif self.counts_keys:
            # Items are what is counted there, so no query says anything about the share.
            values = np.full(len(values), np.nan)
        elif self.share_of is not None:
            values, points = values / self.top, points / self.top
        if gate.upper:
            total = 0.0 if self.share_of is None else 1.0
            values, points = total - values, total - points
        measured, limit, needed = points.tolist()
        needed = math.inf if self.passing is None else needed
        beyond = gate.strict and self.on_mean
        return MeanThreshold(values, measured, limit, needed, beyond, self.share_of)

    def _share_threshold(self, values: Values, share: float, n: int) -> MeanThreshold:
        """Return a percentile as a threshold: the share of values that must be within the limit."""
        gate, confidence = self.gate, self.scores.conventions.ci
        met = [gate.met_by(value) for value in values[self.rows].tolist()]
        values[self.rows] = met
        limit = share if gate.upper else 1 - share
        # Of values 1 to n an interval gives the ranks of its ends.
        ranks = percentile_interval(np.arange(1.0, n + 1), share, confidence=confidence)
        if self.on_mean or ranks is None:
            needed = (n - 1) * limit + 1
        else:
            needed = ranks[1] if gate.upper else n + 1 - ranks[0]
        size = n if self.scores.groups is None else None
        return MeanThreshold(values, sum(met) / n, limit, needed / n, size=size)


def _first(last: int, passes: Callable[[list[int]], list[bool]]) -> int | None:
    """Return the first of the steps 0 to ``last`` that passes, where all after it do too."""
    low, high = -1, last + 1
    while high - low > 1:
        stride = max(1, (high - low) // _AT_ONCE)
        steps = list(range(low + stride, high, stride))
        passed = passes(steps)
        at = passed.index(True) if True in passed else len(steps)
        low, high = (steps[at - 1] if at else low), (steps[at] if at < len(steps) else high)
    return None if high > last else high
