"""Gates: what a system must reach before it ships, and the verdict on what was measured.

Files of gates are read in ``gate_files``; what would pass, and the chance that gates block a good
system, are worked out in ``gate_measurement``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from karat.data.tables import Queries
from karat.errors import UsageError, unknown
from karat.evaluation.gate_measurement import (
    Blocking,
    GateMeasurement,
    Limit,
    chance_of_blocking,
    nearly_equal,
    simulation_of,
)
from karat.evaluation.inputs import why_skipped
from karat.evaluation.segments import CROSS, By, Segment, segment_names, segments_by
from karat.evaluation.unjudged_ranges import ScoreRanges, would_enter
from karat.measures.aggregates import mean
from karat.measures.names import Measure
from karat.measures.scores import Scores, Summary, has_interval, number_of, plan_of

_UNJUDGED = ("unmeasurable", "skipped")
Verdict = Literal["pass", "fail", "unmeasurable", "skipped"]


@dataclass(frozen=True)
class Gate:
    """A limit on a measure: at least ``min`` or at most ``max``, beyond it if ``strict``.

    It is compared with the end of the measure's interval that is nearer to failing, or with
    ``on="mean"`` with the number itself. The gate gives the direction, so any measure can
    have one. With ``by`` it is judged in each segment, or in those that ``values`` names as a
    report does (``pt-BR``, ``pt-BR × hard``); ``any_spelling`` lets ``ptBR`` and ``BR-pt`` name
    pt-BR too, and ``any_column`` looks for the values in another column than ``by``, where one
    other has them all.
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
    any_column: bool = False
    where: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        given = [limit for limit in (self.min, self.max) if limit is not None]
        if len(given) != 1:
            both = "both min and max; write two gates" if given else "neither min nor max; give one"
            raise UsageError(f"the gate on {self.measure} has {both}")
        if not math.isfinite(given[0]):
            raise UsageError(f"the gate on {self.measure} has the limit {given[0]}; give a number")
        if self.on not in ("interval", "mean"):
            raise UsageError(f"on is {self.on!r}; it can be interval or mean")
        if self.values is not None and (self.by is None or not self.values):
            needs = "at least one value" if self.by else "by: the column that the values are of"
            raise UsageError(f"values of the gate on {self.measure} need {needs}")

    @property
    def limit(self) -> Limit:
        """Return the number to reach, and from which side."""
        if self.max is not None:
            return Limit(self.max, upper=True, strict=self.strict)
        return Limit(self.min or 0.0, strict=self.strict)


@dataclass(frozen=True)
class GateResult:
    """How one gate came out for one system, in one segment if it has any.

    ``value`` is what was compared with the limit (``on`` says which number that is);
    ``needed`` is the mean that passes at this n, None where none does. ``unreachable`` means
    that no system could pass on this gold. ``because`` says it all in one sentence.
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
    verdict: Verdict
    because: str

    def document(self) -> dict[str, Any]:
        """Return the result as it stands in a report, with the one limit that the gate has."""
        unused = "max" if self.max is None else "min"
        values = {name: value for name, value in vars(self).items() if name != unused}
        return values | {
            "segment": None if self.segment is None else dict(self.segment),
            "ci": None if self.ci is None else list(self.ci),
        }


@dataclass(frozen=True)
class Gating:
    """All gates of one system; those that it can never pass come first.

    ``left_out`` names what a gate file asks for that is not about retrieval.
    """

    results: tuple[GateResult, ...]
    blocking: Blocking | None
    left_out: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Return the worst of all gates: ``fail``, else ``unmeasurable``, ``skipped``, ``pass``."""
        found = {result.verdict for result in self.results}
        worst: tuple[Verdict, ...] = ("fail", "unmeasurable", "skipped")
        return next((verdict for verdict in worst if verdict in found), "pass")


def judge(
    gates: Sequence[Gate],
    scores: Scores,
    queries: Queries | None,
    *,
    system: str,
    left_out: Iterable[str] = (),
) -> Gating:
    """Compare a system's scores with every gate, in every segment that a gate names."""
    gates = [_with_column(gate, queries, scores.table["query_id"]) for gate in gates]
    summaries: dict[tuple[By | None, bytes], dict[str, Summary]] = {}
    results, simulations = [], []
    for gate in gates:
        if str(gate.measure) not in scores.table.columns:
            raise _refused(gate, f"{gate.measure} was not scored; add it to the measures")
        for segment in _segments(gate, queries, scores.table["query_id"]):
            key = gate.by, segment.mask.tobytes()
            if key not in summaries:
                alike = measures_of(one for one in gates if one.by == gate.by)
                summaries[key] = replace(scores, measures=tuple(alike)).summarise(segment.mask)
            measurement = GateMeasurement(
                gate.limit,
                gate.on == "mean" or not has_interval(gate.measure),
                gate.measure,
                scores,
                segment.mask,
                summaries[key][str(gate.measure)],
            )
            result = _result(measurement, segment, system)
            results.append(result)
            if result.verdict not in _UNJUDGED and not result.unreachable:
                simulations.append(simulation_of(measurement))
    blocking = chance_of_blocking(
        simulations,
        plan_of(scores.conventions),
        groups=scores.groups,
        left_out=len(results) - len(simulations),
    )
    first = sorted(results, key=lambda result: not result.unreachable)
    return Gating(tuple(first), blocking, tuple(left_out))


def measures_of(gates: Iterable[Gate]) -> list[Measure]:
    """What must be scored before these gates can be judged, each once."""
    return list(dict.fromkeys(gate.measure for gate in gates))


def check_segments(
    gates: Iterable[Gate], queries: Queries | None, query_ids: Iterable[str]
) -> None:
    """Refuse a column or value that is not there: worth asking before any run is scored."""
    ids = pl.Series("query_id", list(query_ids), dtype=pl.String)
    for gate in gates:
        _segments(_with_column(gate, queries, ids), queries, ids)


def _with_column(gate: Gate, queries: Queries | None, query_ids: pl.Series) -> Gate:
    """The gate by the column that has its values: its own, else the one other that has them all."""
    if not gate.any_column or queries is None or gate.values is None:
        return gate
    names = {column: segment_names(query_ids, queries, column) for column in queries.segments}
    fitting = [
        column
        for column, known in names.items()
        if all(_alike(value, known) for value in gate.values)
    ]
    if gate.by is not None and gate.by.columns[0] in fitting:
        return gate
    if len(fitting) == 1:
        return replace(gate, by=By((fitting[0],)))
    if len(fitting) > 1:
        many = f"{', '.join(fitting)} all have these values; write [{fitting[0]}=VALUE]"
        raise _refused(gate, f"the segments {', '.join(gate.values)} are not clear: {many}")
    every = list(dict.fromkeys(one for known in names.values() for one in known))
    missing = next((one for one in gate.values if not _alike(one, every)), gate.values[0])
    raise _refused(gate, str(unknown("segment", missing, every)))


def _segments(gate: Gate, queries: Queries | None, query_ids: pl.Series) -> list[Segment]:
    """Return where a gate is judged: everywhere, or in the segments that it names."""
    if gate.by is None:
        return [Segment({}, np.ones(len(query_ids), dtype=np.bool_))]
    try:
        segments = segments_by(query_ids, queries, gate.by)
    except UsageError as error:
        raise _refused(gate, str(error)) from None
    if gate.values is None:
        return segments
    known = {segment.name: segment for segment in segments}
    names = [_known_name(gate, value, known) for value in gate.values]
    return [known[name] for name in dict.fromkeys(names)]


def _known_name(gate: Gate, value: str, known: Mapping[str, Segment]) -> str:
    if gate.by is not None and len(gate.by.columns) > 1:
        value = CROSS.join(part.strip() for part in value.replace("×", "*").split("*"))
    if value in known:
        return value
    alike = _alike(value, known) if gate.any_spelling else []
    if len(alike) == 1:
        return alike[0]
    raise _refused(gate, str(unknown(f"value of {gate.by}", value, known)))


def _alike(value: str, known: Iterable[str]) -> list[str]:
    """Return the names that a value stands for: itself, else spelled or ordered otherwise.

    >>> _alike("ptBR", ["pt-BR", "en"]), _alike("BR-pt", ["pt-BR", "en"]), _alike("en", ["en"])
    (['pt-BR'], ['pt-BR'], ['en'])
    """
    names = list(known)
    if value in names:
        return [value]
    spelled = [name for name in names if _letters(name) == _letters(value)]
    return spelled or [name for name in names if _parts(name) == _parts(value)]


def _parts(name: str) -> list[str]:
    return sorted(re.findall(r"[^\W_]+", name.casefold()))


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())


def _refused(gate: Gate, what: str) -> UsageError:
    return UsageError(f"{gate.where}: {what}" if gate.where else f"gate on {gate.measure}: {what}")


def _result(measurement: GateMeasurement, segment: Segment, system: str) -> GateResult:
    summary, limit = measurement.summary, measurement.limit
    where = ", ".join(f"{column} {value}" for column, value in segment.where.items())
    subject = f"{measurement.measure} in {where}" if where else str(measurement.measure)
    unreachable = summary.mean is not None and measurement.unreachable
    verdict, because = _verdict(measurement, subject)
    return GateResult(
        system=system,
        measure=str(measurement.measure),
        segment=dict(segment.where) or None,
        on="mean" if measurement.on_mean else "ci_high" if limit.upper else "ci_low",
        min=None if limit.upper else limit.number,
        max=limit.number if limit.upper else None,
        strict=limit.strict,
        value=measurement.value,
        mean=summary.mean,
        ci=summary.ci,
        n=summary.n,
        needed=None if unreachable or verdict in _UNJUDGED else measurement.needed,
        ceiling=summary.ceiling,
        unreachable=unreachable,
        verdict=verdict,
        because=because,
    )


def _verdict(measurement: GateMeasurement, subject: str) -> tuple[Verdict, str]:
    """Return the verdict and why, from what outranks everything to the plain comparison."""
    limit, mean_value, value = measurement.limit, measurement.summary.mean, measurement.value
    if mean_value is None:
        reason = why_skipped(measurement.scores)
        if reason is not None and measurement.summary.lacks is None:
            return "skipped", f"{subject} is skipped: {reason}"
        lacks = measurement.summary.lacks or "no query here has a value for it"
        return "unmeasurable", f"{subject} cannot be measured: {lacks}"
    if measurement.unreachable:
        return "fail", _out_of_reach(measurement, subject)
    compared = f"{subject} {_requirement(measurement)}; {_figures(measurement)}"
    if value is None:
        return "unmeasurable", f"{compared} ({_queries(measurement)}): {_no_interval(measurement)}"
    if limit.met_by(value):
        return "pass", f"{compared}{_what_passes(measurement, passes=True)}"
    perfect = measurement.perfect if limit.met_by(mean_value) else None
    if perfect is not None and not limit.met_by(perfect):
        return "unmeasurable", f"{compared}. {_too_few(measurement, perfect)}"
    passing = _what_passes(measurement, passes=False)
    return "fail", f"{compared}{passing}{_in_hits(measurement)}"


def _in_hits(measurement: GateMeasurement) -> str:
    """Return a limit on FPR@1 in the words of Hit@1, which may have a weaker limit of its own."""
    limit = measurement.limit
    if measurement.measure.name != "FPR" or not limit.upper:
        return ""
    beyond = "above" if limit.strict else "of at least"
    return f"; it is 1 - Hit@1, so this asks for a Hit@1 {beyond} {1 - limit.number:.6g}"


def _out_of_reach(measurement: GateMeasurement, subject: str) -> str:
    limit, best = measurement.limit, 0.0 if measurement.best is None else measurement.best
    number = _show(measurement, limit.number)
    if limit.met_by(best):
        end = "upper" if limit.upper else "lower"
        return f"{subject}: the {end} bound of an interval never reaches {number}; use on: mean"
    if limit.upper:
        beyond = "get below" if limit.strict else "get down to"
        return f"{subject}: no system can {beyond} {number}: there is nothing below 0"
    beyond = "exceed" if limit.strict else "reach"
    return f"{subject}: no ranking can {beyond} {number}: the ceiling on this gold is {best:.4g}"


def _no_interval(measurement: GateMeasurement) -> str:
    if measurement.scores.conventions.interval == "none":
        return "intervals are switched off; set interval=gaffke, or gate on: mean"
    least = measurement.queries_for_interval()
    if measurement.summary.n < least:
        return f"an interval needs at least {least} queries"
    whole = "gold items" if measurement.scores.groups is None else "groups of queries"
    return f"an interval needs at least 2 {whole}"


def _too_few(measurement: GateMeasurement, perfect: float) -> str:
    enough = measurement.queries_for_perfect()
    needed = "more" if enough is None else f"{enough:,}"
    return (
        f"With {_queries(measurement)}, even a perfect result would give"
        f" {_show(measurement, perfect)}; {needed} queries are needed"
    )


def _requirement(measurement: GateMeasurement) -> str:
    """Return what the gate asks for: ``needs a lower bound of at least 0.90``."""
    limit = measurement.limit
    words = {
        # upper, strict
        (False, False): "of at least",
        (False, True): "above",
        (True, False): "of at most",
        (True, True): "below",
    }[limit.upper, limit.strict]
    if measurement.on_mean:
        end = "mean" if number_of(measurement.measure) is mean else "value"
    else:
        end = "upper bound" if limit.upper else "lower bound"
    article = "an" if end.startswith("u") else "a"
    return f"needs {article} {end} {words} {_show(measurement, limit.number)}"


def _figures(measurement: GateMeasurement) -> str:
    """Return what was measured: ``measured 0.93 (95 % interval 0.89 to 0.96)``."""
    summary = measurement.summary
    value = "nothing" if summary.mean is None else _show(measurement, summary.mean)
    if summary.ci is None:
        return f"measured {value}"
    low, high = (_show(measurement, end) for end in summary.ci)
    share = 100 * measurement.scores.conventions.ci
    return f"measured {value} ({share:g} % interval {low} to {high})"


def _queries(measurement: GateMeasurement) -> str:
    n = measurement.summary.n
    return "1 query" if n == 1 else f"{n:,} queries"


def _what_passes(measurement: GateMeasurement, *, passes: bool) -> str:
    """Return the mean that passes with so many queries, where the interval counts."""
    if measurement.on_mean:
        return f", {_queries(measurement)}"
    what = "mean" if number_of(measurement.measure) is mean else "value"
    start = f". With {_queries(measurement)},"
    if measurement.needed is None:
        return f"{start} no {what} would pass"
    tail = "is enough" if passes else "would pass"
    number = _show(measurement, measurement.needed, safe=True)
    # Of a share it is known, of another mean it depends on the spread.
    about = "" if measurement.share_of is not None else "about "
    return f"{start} a {what} of {about}{number} {tail}"


def _show(measurement: GateMeasurement, number: float, *, safe: bool = False) -> str:
    """Return a number with enough digits to tell the measured value from the limit.

    ``safe`` rounds to the side that passes: whoever reaches the printed number must not fail.
    """
    limit, value = measurement.limit.number, measurement.value
    digits = max(2 if abs(limit) < 10 else 1, len(f"{limit:.6f}".rstrip("0").partition(".")[2]))
    while value is not None and not nearly_equal(value, limit) and digits < 12:
        if f"{value:.{digits}f}" != f"{limit:.{digits}f}":
            break
        digits += 1
    if safe:
        whole = number * 10**digits
        number = math.floor(whole + 1e-6) if measurement.limit.upper else math.ceil(whole - 1e-6)
        number /= 10**digits
    return f"{number:.{digits}f}"


def judge_strictly(
    gating: Gating, gates: Sequence[Gate], ranges: ScoreRanges, queries: Queries | None
) -> Gating:
    """Return the gates as they come out whatever the unjudged items are.

    A gate passes if it does so where judgments make the measure worst, and fails if it does so
    where they make it best: no end of an interval falls when a value rises, so what holds at both
    holds for all labels between. Else it cannot be judged yet. A measure without a range is judged
    as before. While a judgment could bring a query into the mean that has no relevant gold yet, no
    gate can be judged.
    """
    ends = [
        {_key(result): result for result in judge(gates, scores, queries, system="").results}
        for scores in (ranges.at("low"), ranges.at("high"))
    ]

    def strict(result: GateResult) -> GateResult:
        if result.measure not in ranges.ranges or result.verdict not in ("pass", "fail"):
            return result
        entering = _entering(result, ranges, queries)
        if entering:
            why = f"{would_enter(entering)}: judge what was returned there"
            return replace(result, verdict="unmeasurable", because=f"{result.because}; but {why}")
        if not ranges.unjudged:
            return result
        worst, best = (end[_key(result)] for end in ends)
        if worst.verdict == best.verdict == result.verdict:
            because = f"{result.because}; whatever its unjudged items are"
            return replace(result, because=because)
        low, high = ("nothing" if end.mean is None else f"{end.mean:.4f}" for end in (worst, best))
        why = (
            f"{ranges.unjudged:,} of its items have no judgment; judging them could give"
            f" {low} to {high}: judge more"
        )
        unreachable = result.unreachable and worst.unreachable and best.unreachable
        return replace(
            result,
            verdict="unmeasurable",
            because=f"{result.because}; but {why}",
            unreachable=unreachable,
        )

    return replace(gating, results=tuple(map(strict, gating.results)))


def _entering(result: GateResult, ranges: ScoreRanges, queries: Queries | None) -> int:
    """Return how many queries of the gate's segment a judgment could bring into its mean."""
    entering = ranges.entering(result.measure)
    if result.segment is None:
        return int(entering.sum())
    ids = ranges.scores.table["query_id"]
    segments = segments_by(ids, queries, By(tuple(result.segment)))
    mask = next(one.mask for one in segments if dict(one.where) == dict(result.segment))
    return int((entering & mask).sum())


def _key(result: GateResult) -> tuple[Any, ...]:
    where = None if result.segment is None else tuple(sorted(result.segment.items()))
    return result.measure, where, result.on, result.min, result.max, result.strict
