"""Gates: what a system must reach before it ships, held against what was measured.

Files of gates are read by ``gate_files``; the chance of blocking a good system is worked
out by ``blocking``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from karat.analysis.blocking import Blocking, chance_of_blocking, hurdle_of
from karat.analysis.limits import Held, Limit, same
from karat.analysis.segments import CROSS, By, Segment, segment_names, segments_by
from karat.analysis.skipped import why_skipped
from karat.errors import UsageError, unknown
from karat.measures.intervals import has_interval, plan_of
from karat.measures.names import Measure
from karat.measures.numbers import mean
from karat.measures.overall import number_of
from karat.measures.scores import Scores, Summary
from karat.tables import Queries

_UNJUDGED = ("unmeasurable", "skipped")
Verdict = Literal["pass", "fail", "unmeasurable", "skipped"]


@dataclass(frozen=True)
class Gate:
    """A limit on a measure: at least ``min`` or at most ``max``, beyond it if ``strict``.

    It is held against the end of the measure's interval that is nearer to failing, or with
    ``on="mean"`` against the number itself. The gate gives the direction, so any measure can
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
        """The number to reach, and from which side."""
        if self.max is not None:
            return Limit(self.max, upper=True, strict=self.strict)
        return Limit(self.min or 0.0, strict=self.strict)


@dataclass(frozen=True)
class GateResult:
    """How one gate came out for one system, in one segment if it has any.

    ``value`` is what was held against the limit (``on`` says which number that is);
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
        """The result as it stands in a report, with the one limit that the gate has."""
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
        """The worst of all gates: ``fail``, else ``unmeasurable``, ``skipped``, ``pass``."""
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
    """Hold a system's scores against every gate, in every segment that a gate names."""
    gates = [_with_column(gate, queries, scores.table["query_id"]) for gate in gates]
    summaries: dict[tuple[By | None, bytes], dict[str, Summary]] = {}
    results, hurdles = [], []
    for gate in gates:
        if str(gate.measure) not in scores.table.columns:
            raise _refused(gate, f"{gate.measure} was not scored; add it to the measures")
        for segment in _segments(gate, queries, scores.table["query_id"]):
            key = gate.by, segment.mask.tobytes()
            if key not in summaries:
                alike = measures_of(one for one in gates if one.by == gate.by)
                summaries[key] = replace(scores, measures=tuple(alike)).summarise(segment.mask)
            held = Held(
                gate.limit,
                gate.on == "mean" or not has_interval(gate.measure),
                gate.measure,
                scores,
                segment.mask,
                summaries[key][str(gate.measure)],
            )
            result = _result(held, segment, system)
            results.append(result)
            if result.verdict not in _UNJUDGED and not result.unreachable:
                hurdles.append(hurdle_of(held))
    blocking = chance_of_blocking(
        hurdles,
        plan_of(scores.conventions),
        groups=scores.groups,
        left_out=len(results) - len(hurdles),
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
    """Where a gate is judged: everywhere, or in the segments that it names."""
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
    """The names that a value stands for: itself, else spelled or ordered otherwise.

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


def _result(held: Held, segment: Segment, system: str) -> GateResult:
    summary, limit = held.summary, held.limit
    where = ", ".join(f"{column} {value}" for column, value in segment.where.items())
    subject = f"{held.measure} in {where}" if where else str(held.measure)
    unreachable = summary.mean is not None and held.unreachable
    verdict, because = _verdict(held, subject)
    return GateResult(
        system=system,
        measure=str(held.measure),
        segment=dict(segment.where) or None,
        on="mean" if held.on_mean else "ci_high" if limit.upper else "ci_low",
        min=None if limit.upper else limit.number,
        max=limit.number if limit.upper else None,
        strict=limit.strict,
        value=held.value,
        mean=summary.mean,
        ci=summary.ci,
        n=summary.n,
        needed=None if unreachable or verdict in _UNJUDGED else held.needed,
        ceiling=summary.ceiling,
        unreachable=unreachable,
        verdict=verdict,
        because=because,
    )


def _verdict(held: Held, subject: str) -> tuple[Verdict, str]:
    """The verdict and why, from what outranks everything to the plain comparison."""
    limit, measured, value = held.limit, held.summary.mean, held.value
    if measured is None:
        reason = why_skipped(held.scores)
        if reason is not None and held.summary.lacks is None:
            return "skipped", f"{subject} is skipped: {reason}"
        lacks = held.summary.lacks or "no query here has a value for it"
        return "unmeasurable", f"{subject} cannot be measured: {lacks}"
    if held.unreachable:
        return "fail", _out_of_reach(held, subject)
    if value is None:
        return "unmeasurable", f"{_figures(held, subject)}: {_no_interval(held)}"
    if limit.met_by(value):
        return "pass", f"{_figures(held, subject)}: {_comparison(held, value, passes=True)}"
    perfect = held.perfect if limit.met_by(measured) else None
    if perfect is not None and not limit.met_by(perfect):
        return "unmeasurable", f"{_figures(held, subject)}: {_too_few(held, perfect)}"
    short = _comparison(held, value, passes=False)
    return "fail", f"{_figures(held, subject)}: {short}{_in_hits(held)}"


def _in_hits(held: Held) -> str:
    """A limit on FPR@1 in the words of Hit@1, on which there may be another, weaker one."""
    limit = held.limit
    if held.measure.name != "FPR" or not limit.upper:
        return ""
    beyond = "above" if limit.strict else "of at least"
    return f"; it is 1 - Hit@1, so this asks for a Hit@1 {beyond} {1 - limit.number:.6g}"


def _out_of_reach(held: Held, subject: str) -> str:
    limit, best = held.limit, 0.0 if held.best is None else held.best
    number = _show(held, limit.number)
    if limit.met_by(best):
        end = "upper" if limit.upper else "lower"
        return f"{subject}: the {end} bound of an interval never reaches {number}; use on: mean"
    if limit.upper:
        beyond = "get below" if limit.strict else "get down to"
        return f"{subject}: no system can {beyond} {number}: there is nothing below 0"
    beyond = "exceed" if limit.strict else "reach"
    return f"{subject}: no ranking can {beyond} {number}: the ceiling on this gold is {best:.4g}"


def _no_interval(held: Held) -> str:
    if held.scores.conventions.interval == "none":
        return "intervals are switched off; set interval=gaffke, or gate on: mean"
    least = held.queries_for_interval()
    if held.summary.n < least:
        return f"an interval needs at least {least} queries"
    whole = "gold items" if held.scores.groups is None else "groups of queries"
    return f"an interval needs at least 2 {whole}"


def _too_few(held: Held, perfect: float) -> str:
    enough = held.queries_for_perfect()
    needed = "more" if enough is None else f"{enough:,}"
    return (
        f"even a perfect result would give {_show(held, perfect)} with n = {held.summary.n:,};"
        f" {needed} queries are needed"
    )


def _comparison(held: Held, value: float, *, passes: bool) -> str:
    limit = held.limit
    words = {
        # upper, strict: what passes, what fails
        (False, False): ("is at least", "is below"),
        (False, True): ("is above", "is not above"),
        (True, False): ("is at most", "is above"),
        (True, True): ("is below", "is not below"),
    }[limit.upper, limit.strict]
    verb, number = words[0 if passes else 1], _show(held, limit.number)
    if held.on_mean:
        return f"that {verb} {number}"
    end = "upper" if limit.upper else "lower"
    compared = f"its {end} bound {_show(held, value)} {verb} {number}"
    what = "mean" if number_of(held.measure) is mean else "value"
    if held.needed is None:
        return f"{compared}; no {what} would pass at this n"
    tail = "is enough" if passes else "would pass"
    number = _show(held, held.needed, safe=True)
    if held.share_of is not None:
        return f"{compared}; a {what} of {number} {tail} at this n"
    return f"{compared}; with this spread a {what} of about {number} {tail} at this n"


def _figures(held: Held, subject: str) -> str:
    """What was measured: ``R@5 is 0.93 [0.89, 0.96], n = 225``."""
    summary = held.summary
    measured = "unknown" if summary.mean is None else _show(held, summary.mean)
    ends = "" if summary.ci is None else ", ".join(_show(held, end) for end in summary.ci)
    return f"{subject} is {measured}{f' [{ends}]' if ends else ''}, n = {summary.n:,}"


def _show(held: Held, number: float, *, safe: bool = False) -> str:
    """A number with as many digits as tell what was held against the limit from the limit.

    ``safe`` rounds to the side that passes: who reaches what is printed must not fail.
    """
    limit, value = held.limit.number, held.value
    digits = max(2 if abs(limit) < 10 else 1, len(f"{limit:.6f}".rstrip("0").partition(".")[2]))
    while value is not None and not same(value, limit) and digits < 12:
        if f"{value:.{digits}f}" != f"{limit:.{digits}f}":
            break
        digits += 1
    if safe:
        whole = number * 10**digits
        number = math.floor(whole + 1e-6) if held.limit.upper else math.ceil(whole - 1e-6)
        number /= 10**digits
    return f"{number:.{digits}f}"
