"""What the set can show: ceilings, gates that nobody can pass, segments, and differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.analysis.check.findings import EvalSet, Finding, Fine, Results, many
from karat.data.tables import Run
from karat.errors import UsageError
from karat.evaluation.gates import Gate, GateResult, judge
from karat.evaluation.segments import SMALL, By, segments_by
from karat.measures.names import Measure
from karat.measures.score_builder import score
from karat.measures.scores import Scores
from karat.stats.distributions import NORMAL, standard_error
from karat.stats.power import Power

# The spread of differences between two systems that is assumed until two runs tell; a guess,
# and printed as one.
SPREAD = 0.35
POWER = 0.8
DIFFERENCES = (0.02, 0.05)
_WON_BY_RETURNING_ALL = {"R", "Hit", "All", "WR", "Coverage"}


@dataclass(frozen=True, slots=True)
class Detectable:
    """The smallest true difference between two systems that the set shows with 80 % chance.

    ``sd`` is the spread of the difference from query to query: taken from two ``runs`` by
    ``measure``, or ``assumed``, also where runs were given that differ alike on every query.
    ``needed`` says how many queries other differences need. ``because`` says why there is no
    such difference, where there is none.
    """

    basis: Literal["assumed", "runs"]
    n: int
    sd: float
    difference: float | None
    needed: tuple[tuple[float, int | None], ...]
    confidence: float
    power: float = POWER
    measure: str | None = None
    runs: tuple[str, ...] = ()
    groups: int | None = None
    because: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        values = {name: getattr(self, name) for name in self.__slots__}
        needed = {f"{difference:g}": n for difference, n in self.needed}
        return values | {"needed": needed, "runs": list(self.runs)}


def ideal_scores(subject: EvalSet, measures: Sequence[Measure]) -> Scores:
    """What the best ranking that the gold allows would score, where a measure has such a best."""
    # A run without hits has the ceilings of all queries, as long as none of them is left out.
    conventions = replace(subject.conventions, missing="zero", order=None)
    asked = replace(subject.prepared, conventions=conventions)
    scores = score(Run.from_dict({}), asked, measures, lenient=measures, derived=True)
    best = {name: pl.Series(values) for name, (values, _) in scores.ceilings.items()}
    columns = [column.fill_nan(None).alias(name) for name, column in best.items()]
    evidence = {name: own for name, (_, own) in scores.ceilings.items()}
    return replace(
        scores,
        system="the ideal ranking",
        table=scores.table.with_columns(columns),
        evidence=dict(scores.evidence) | evidence,
        tied={},
    )


def target_checks(
    subject: EvalSet, ideal: Scores, *, gates: Sequence[Gate], by: Sequence[By]
) -> Results:
    """Check ceilings, cut-offs, gates and segments."""
    yield from _ceilings(ideal)
    yield from _cutoffs(subject, ideal.measures)
    results = judge(gates, ideal, subject.attributes, system=ideal.system).results if gates else ()
    yield from _gates(ideal, results)
    yield from _idle_gates(gates)
    yield from _gated_segments(subject, gates, results)
    yield from _segments(subject, by)


def _ceilings(ideal: Scores) -> Results:
    quick = replace(ideal, conventions=replace(ideal.conventions, interval="none"))
    reach = {
        str(measure): summary.ceiling
        for measure, summary in zip(quick.measures, quick.summaries.values(), strict=True)
        if measure.definition.better == "higher" and measure.definition.bounded
        if str(measure) in ideal.ceilings and summary.ceiling is not None
    }
    low = [
        {"measure": name, "ceiling": value} for name, value in reach.items() if value < 1 - 1e-12
    ]
    if low:
        what = f"{many(len(low), 'measure')} cannot reach 1 on this gold, however good the ranking."
        yield Finding("low_ceiling", len(low), what, tuple(low))
    elif reach:
        yield Fine(f"{many(len(reach), 'measure')}, all of which an ideal ranking brings to 1")


def _cutoffs(subject: EvalSet, measures: Sequence[Measure]) -> Results:
    """Cut-offs at which a system that returns everything is perfect."""
    if subject.corpus is None or subject.conventions.level == "span":
        return
    by_doc = subject.conventions.level == "doc"
    size = subject.corpus.frame["doc_id" if by_doc else "item_id"].n_unique()
    deep = [
        {"measure": str(measure), "corpus": size}
        for measure in measures
        if measure.name in _WON_BY_RETURNING_ALL
        and isinstance(measure.k, int)
        and measure.k >= size
    ]
    if deep:
        what = f"{many(len(deep), 'measure looks', 'measures look')} as deep as the whole corpus of"
        what += f" {many(size, 'document' if by_doc else 'item')}."
        yield Finding("cutoff_beyond_corpus", len(deep), what, tuple(deep))


def _gates(ideal: Scores, results: Sequence[GateResult]) -> Results:
    """Yield gates that not even the ideal ranking passes."""
    known = [
        result
        for result in results
        if result.unreachable or (result.measure in ideal.ceilings and result.min is not None)
    ]
    never = [_of_gate(one) for one in known if one.unreachable]
    if never:
        what = f"{many(len(never), 'gate')} cannot be passed by any ranking of any system."
        yield Finding("unreachable_target", len(never), what, tuple(never))
    few = [_of_gate(one) for one in known if not one.unreachable and one.verdict != "pass"]
    if few:
        what = f"{many(len(few), 'gate is', 'gates are')} not passed by the ideal ranking either."
        yield Finding("gate_needs_more", len(few), what, tuple(few))
    if known and not never and not few:
        yield Fine(f"{many(len(known), 'gate')}, all of which the ideal ranking passes")


def _idle_gates(gates: Sequence[Gate]) -> Results:
    """FPR@1 is 1 - Hit@1: of a gate on each the weaker never decides."""
    idle = []
    for gate, other in product(gates, gates):
        alike = (gate.by, gate.values, gate.on) == (other.by, other.values, other.on)
        if not alike or gate.max is None or other.min is None:
            continue
        if gate.measure.name != "FPR" or (other.measure.name, other.measure.k) != ("Hit", 1):
            continue
        asked = 1 - gate.max
        weak = gate if asked < other.min else other
        low, high = ("below", "above") if gate.strict else ("of at most", "of at least")
        because = f"FPR@1 is 1 - Hit@1: {low} {gate.max:g} is {high} {asked:.6g} there"
        limit = {"min": weak.min} if weak.max is None else {"max": weak.max}
        idle.append({"measure": str(weak.measure), **limit, "because": because})
    if idle:
        what = f"{many(len(idle), 'gate never decides', 'gates never decide')}, since another asks"
        yield Finding("idle_gate", len(idle), f"{what} for more of the same.", tuple(idle))


def _of_gate(result: GateResult) -> dict[str, Any]:
    limit = {"min": result.min} if result.max is None else {"max": result.max}
    segment = {} if result.segment is None else {"segment": dict(result.segment)}
    reason = {"ceiling": result.ceiling, "n": result.n, "because": result.because}
    return {"measure": result.measure, **segment, **limit, **reason}


def _gated_segments(
    subject: EvalSet, gates: Sequence[Gate], results: Sequence[GateResult]
) -> Results:
    """Yield segments of gates that hold few queries."""
    asked = dict.fromkeys(
        tuple(result.segment.items()) for result in results if result.segment is not None
    )
    held = {
        tuple(segment.where.items()): int(segment.mask.sum())
        for by in dict.fromkeys(gate.by for gate in gates if gate.by is not None)
        for segment in segments_by(_answered(subject), subject.attributes, by)
    }
    small = [
        {"segment": dict(segment), "queries": held.get(segment, 0)}
        for segment in asked
        if held.get(segment, 0) < SMALL
    ]
    if small:
        what = (
            f"{many(len(small), 'segment that a gate names has', 'segments that gates name have')}"
        )
        what += f" fewer than {SMALL} queries with gold."
        yield Finding("small_gated_segment", len(small), what, tuple(small))
    elif asked:
        yield Fine(f"{many(len(asked), 'gated segment')}, all of {SMALL} queries or more")


def _segments(subject: EvalSet, by: Sequence[By]) -> Results:
    for column in by:
        segments = segments_by(_answered(subject), subject.attributes, column)
        small = [
            {"segment": dict(segment.where), "queries": int(segment.mask.sum())}
            for segment in segments
            if segment.mask.sum() < SMALL
        ]
        if small:
            what = f"{len(small):,} of {many(len(segments), 'segment')} by {column} have fewer than"
            yield Finding(
                "small_segment", len(small), f"{what} {SMALL} queries with gold.", tuple(small)
            )
        else:
            yield Fine(
                f"{many(len(segments), 'segment')} by {column}, all of {SMALL} queries or more"
            )


def _answered(subject: EvalSet) -> pl.Series:
    """Return the queries that have relevant gold."""
    return subject.relevant["query_id"].unique(maintain_order=True)


def what_it_detects(
    subject: EvalSet, scores: tuple[Scores, Scores] | None, spread: float | None
) -> Detectable:
    """Return the smallest difference that the set can show, from two runs or an assumed spread."""
    confidence = subject.conventions.ci
    groups = subject.prepared.group if scores is None else scores[0].groups
    facts: dict[str, Any] = {"basis": "assumed"}
    delta, known = np.empty(0), np.empty(0, dtype=np.bool_)
    if scores is not None:
        measure, delta, known = _differences(scores)
        facts = {"basis": "runs", "measure": measure, "runs": tuple(one.system for one in scores)}
        if _tell_nothing(delta):
            facts["basis"] = "assumed"
    if facts["basis"] == "assumed":
        n = len(_answered(subject))
        sd = SPREAD if spread is None else spread
        power = Power(_normal(n, sd), confidence=confidence, power=POWER)
    else:
        n = len(delta)
        own = None if groups is None else groups[known]
        # What one query of so many brings to the error, whether or not queries come in groups.
        sd = standard_error(delta, own)[0] * math.sqrt(n)
        power = Power(delta, own, confidence=confidence, power=POWER)
    return Detectable(
        n=n,
        sd=sd,
        difference=power.detectable(),
        needed=tuple((wanted, power.queries_needed(wanted)) for wanted in DIFFERENCES),
        confidence=confidence,
        groups=None if groups is None else len(np.unique(groups)),
        because=power.why_unknown,
        **facts,
    )


def _normal(n: int, sd: float) -> NDArray[np.float64]:
    """Differences of a normal shape and this spread, where no two runs tell of any."""
    places = (np.arange(n) + 0.5) / max(n, 1)
    scores = np.array([NORMAL.inv_cdf(one) for one in places.tolist()])
    return scores / scores.std() * sd if n > 1 else scores


def _tell_nothing(delta: NDArray[np.float64]) -> bool:
    """Whether two runs are the same, or apart by the same on every query: there is no spread."""
    alike = float(np.ptp(delta)) <= 1e-12
    return alike and (len(delta) > 1 or not delta.any())


def _differences(
    scores: tuple[Scores, Scores],
) -> tuple[str, NDArray[np.float64], NDArray[np.bool_]]:
    """The first measure that both have, the differences in it, and which queries have one."""
    one, other = scores
    if one.table["query_id"].to_list() != other.table["query_id"].to_list():
        raise UsageError("the two runs were scored on different queries; score them alike")
    for measure in one.measures:
        if measure in other.measures:
            delta = other.values(str(measure)) - one.values(str(measure))
            known = ~np.isnan(delta)
            if known.any():
                return str(measure), delta[known], known
    reasons = [*one.lacks.values(), *other.lacks.values()]
    because = f": {reasons[0]}" if reasons else ""
    raise UsageError(
        f"the two runs have no measure in common that any query has a value for{because}"
    )
