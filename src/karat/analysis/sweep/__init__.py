"""How measures change with the cut-off k: the curve, its knee and area, headroom, what k costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.analysis.runs import Analysis, stage_runs
from karat.analysis.sweep.curves import (
    DEFAULT_MEASURES,
    FLAT,
    Curve,
    K,
    Knee,
    area_under,
    knee_of,
    parse_curves,
    parse_ks,
    size_of,
)
from karat.analysis.sweep.page import COLUMNS, frame_rows, sweep_page
from karat.errors import MissingInputError, UsageError
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.segments import SMALL, Segment, segments_by
from karat.evaluation.stages import Depth, Staged, rescore_stages
from karat.measures import aggregates
from karat.measures.aggregates import Values, mean
from karat.measures.conventions import Conventions
from karat.measures.evaluate_measure import gain_of, gold_for, values_of
from karat.measures.names import Measure, parse_measure
from karat.measures.ranked import Entries, Ranked, Target, in_best_order, is_budget
from karat.measures.scores import Scores, Summary, number_of, plan_of
from karat.pages.serialize import Record
from karat.stats.means import mean_intervals

# The cut-offs of a sweep that names none; the deeper ones where lists go that far.
DEFAULT_KS, DEEPER_KS = (1, 3, 5, 10, 20), (50, 100)
TOKENS: Literal["tokens"] = "tokens"
Budget = Measure | Literal["tokens"] | None

_Mask = NDArray[np.bool_]
_Interval = tuple[float, float] | None

_PERCENTILES = ("p50", "p90", "p95", "p99", "mean")
# These count every chunk of a document, of which the best order has one.
_BY_CHUNK = {"P", "F"}


class Sweep(Analysis):
    """The curves of one or several systems, overall and by segment."""

    def to_frame(self) -> pl.DataFrame:
        """Return one row per system, segment, measure and k; what was not measured is null."""
        return pl.DataFrame(list(frame_rows(self.body["systems"])), schema=COLUMNS)

    @property
    def unmeasured(self) -> str | None:
        """Why the result says nothing; None if anything was measured."""
        lines = [line for system in self.body["systems"] for line in system["measures"].values()]
        if any(point["mean"] is not None for line in lines for point in line["points"]):
            return super().unmeasured
        return super().unmeasured or "no list is deep enough for any of the cut-offs"


def sweep(
    evaluation: Evaluation,
    *runs: Any,
    measures: Sequence[str] | None = None,
    ks: str | None = None,
    flat: float | str = FLAT,
    budget: str | None = None,
) -> Sweep:
    """Measure each run at every cut-off, and find where the curves flatten.

    ``measures`` are written without a cut-off: ``["R", "nDCG"]``. ``ks`` are ranks, ``"1,3,5"``, or
    budgets, ``"500tok,1000tok"``. A curve is flat where no larger k adds more than ``flat`` of its
    highest value. ``budget`` is what k costs: ``tokens`` (the default with a corpus), or the
    latency of a stage, ``latency.total``. A k beyond the end of the lists is not measured.
    """
    options = check_sweep(measures, ks=ks, flat=flat, budget=budget)
    conventions = evaluation.prepared.conventions
    curves = parse_curves(
        options.measures or DEFAULT_MEASURES, options.possible_ks, conventions=conventions
    )
    cost = options.budget
    if cost is None and evaluation.corpus is not None and not options.in_tokens:
        cost = TOKENS
    scored = [measure for curve in curves for measure in curve.at.values()]
    scored += [cost] if isinstance(cost, Measure) else []
    # Lengths of items are read from the lists that are kept.
    keep = max(size_of(k) for k in options.possible_ks) if cost == TOKENS else 0
    # Of earlier stages only the gold that they hold matters.
    staged_runs = stage_runs(evaluation, runs, scored, keep=keep, of_stages=())
    systems = staged_runs.systems
    depths = [staged.depth(staged.final) for staged in systems.values()]
    longest = max((max(depth.longest, depth.asked or 0) for depth in depths), default=0)
    chosen = options.ks or (*DEFAULT_KS, *(k for k in DEEPER_KS if k <= longest))
    curves = [curve.only(chosen) for curve in curves]
    swept: list[dict[str, Any]] = []
    for name, staged in systems.items():
        ids = staged.final.table["query_id"]
        segments = {
            str(column): segments_by(ids, evaluation.queries, column) for column in evaluation.by
        }
        found = sweep_system(staged, curves, flat=options.flat, segments=segments, budget=cost)
        swept.append({"name": name, **found.to_dict()})
    _check_budget(swept, options.budget)
    body = {"ks": list(chosen), "flat": options.flat, "systems": swept}
    return staged_runs.result(Sweep, body, sweep_page)


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Options of a sweep; None where the runs decide."""

    measures: Sequence[str] | None
    ks: tuple[K, ...] | None
    flat: float
    budget: Budget

    @property
    def possible_ks(self) -> tuple[K, ...]:
        """All cut-offs that the sweep may use."""
        return (*DEFAULT_KS, *DEEPER_KS) if self.ks is None else self.ks

    @property
    def in_tokens(self) -> bool:
        """Whether the cut-offs are budgets of tokens."""
        return isinstance(self.possible_ks[0], str)


def check_sweep(
    measures: Sequence[str] | None = None,
    *,
    ks: str | None = None,
    flat: float | str = FLAT,
    budget: str | None = None,
) -> SweepOptions:
    """Parse the options of a sweep; raises UsageError before any file is read."""
    options = SweepOptions(
        measures or None,
        None if ks is None else parse_ks(ks),
        _parse_share(flat),
        None if budget is None else _parse_budget(budget),
    )
    if options.measures is not None:
        parse_curves(options.measures, options.possible_ks)
    if options.in_tokens and options.budget == TOKENS:
        raise UsageError(
            "--budget tokens: the cut-offs are budgets of tokens already; leave it out"
        )
    return options


def _parse_share(text: float | str) -> float:
    try:
        share = math.nan if "_" in str(text) else float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share < 1:
        raise UsageError(f"--flat is {text!r}; it is a share from 0 to below 1, such as 0.02")
    return share


def _parse_budget(text: str) -> Budget:
    if text == TOKENS:
        return TOKENS
    family, _, stage = text.partition(".")
    if family != "latency" or not stage:
        raise UsageError(
            f"--budget is {text!r}; it is tokens, or the latency of a stage, such as latency.total"
        )
    before, _, ending = stage.rpartition(".")
    return parse_measure(text if before and ending in _PERCENTILES else f"{text}.p50")


def _check_budget(systems: Sequence[Mapping[str, Any]], budget: Budget) -> None:
    """Refuse a budget that no run can have."""
    if budget == TOKENS and all(system["budget"] is None for system in systems):
        raise MissingInputError("--budget tokens needs item token counts or texts: give --corpus")
    if isinstance(budget, Measure) and all(system["budget"]["because"] for system in systems):
        raise MissingInputError(systems[0]["budget"]["because"])


@dataclass(frozen=True, slots=True)
class Point(Record):
    """A measure at one cut-off; ``beyond_log`` says that the lists end before it.

    ``headroom`` is what the measure would gain if the gold that the run has stood at the top.
    """

    k: K
    n: int
    mean: float | None = None
    ci: _Interval = None
    ceiling: float | None = None
    headroom: float | None = None
    beyond_log: bool = False


@dataclass(frozen=True, slots=True)
class Area:
    """The area under a curve divided by its width, from the first cut-off measured to the last."""

    first: K
    last: K
    n: int
    mean: float
    ci: _Interval = None

    def to_dict(self) -> dict[str, Any]:
        """Return the area as plain data."""
        ends = {"from": self.first, "to": self.last}
        return ends | {"mean": self.mean, "ci": self.ci and list(self.ci), "n": self.n}


@dataclass(frozen=True, slots=True)
class Line:
    """A measure over all cut-offs: its points, its knee and its area."""

    points: tuple[Point, ...]
    knee: Knee
    area: Area | None = None

    @property
    def measured(self) -> list[K]:
        """The cut-offs that have a value."""
        return [point.k for point in self.points if point.mean is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain data."""
        return {
            "points": [point.to_dict() for point in self.points],
            "knee": None if self.knee.at is None else self.measured[self.knee.at],
            "knee_because": self.knee.because,
            "area": self.area and self.area.to_dict(),
        }


Lines = Mapping[str, Line]


@dataclass(frozen=True, slots=True)
class SystemSweep:
    """One system's curves, overall and by segment, and what its cut-offs cost."""

    lines: Lines
    depth: Depth
    raw_depth: Depth | None = None
    segments: Mapping[str, Mapping[str, Lines]] = field(default_factory=dict)
    budget: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the curves as plain data."""
        return {
            "measures": {name: line.to_dict() for name, line in self.lines.items()},
            "segments": {
                column: {value: _segment_lines(lines) for value, lines in values.items()}
                for column, values in self.segments.items()
            },
            "budget": self.budget,
            "depth": {
                "final": asdict(self.depth),
                "raw": None if self.raw_depth is None else asdict(self.raw_depth),
            },
        }


def _segment_lines(lines: Lines) -> dict[str, Any]:
    """Return the curves of a segment; small segments are marked."""
    small = {
        name: {"small": True} if max(point.n for point in line.points) < SMALL else {}
        for name, line in lines.items()
    }
    return {name: line.to_dict() | small[name] for name, line in lines.items()}


def sweep_system(
    staged: Staged,
    curves: Sequence[Curve],
    *,
    flat: float = FLAT,
    segments: Mapping[str, Sequence[Segment]] | None = None,
    budget: Budget = None,
) -> SystemSweep:
    """Return the curves of a run that was scored at all of their cut-offs.

    For a ``budget`` of tokens the run must be scored with ``keep`` at the largest k; another
    budget is a latency that it was scored by.
    """
    final = staged.final
    beyond = () if final.cut is None else final.cut.beyond
    for measure in (measure for curve in curves for measure in curve.at.values()):
        if str(measure) in final.lacks and str(measure) not in beyond:
            raise MissingInputError(final.lacks[str(measure)])
    ks = list(curves[0].at)
    deepest = final.conventions.depth
    # If every list is empty, there is no curve.
    seen = [
        k
        for k in ks
        if staged.depth(final).longest
        and not any(str(curve.at[k]) in beyond for curve in curves)
        and (deepest is None or isinstance(k, str) or k <= deepest)
    ]
    timed = [budget] if isinstance(budget, Measure) else []
    reader = _LineReader(
        scores=_with_areas(final, curves, seen, timed),
        curves=curves,
        measured=seen,
        best=best_values(staged, curves, seen),
        flat=flat,
    )
    everyone = np.ones(final.table.height, dtype=bool)
    summaries = reader.scores.summarise(everyone)
    return SystemSweep(
        reader.lines(everyone, summaries),
        depth=staged.depth(final),
        raw_depth=None if staged.raw is final else staged.depth(staged.raw),
        segments={
            column: {segment.name: reader.lines(segment.mask) for segment in values}
            for column, values in (segments or {}).items()
        },
        budget=_cost(staged, ks, seen, budget, summaries),
    )


def default_sweep(staged: Staged, *, flat: float = FLAT) -> dict[str, Any]:
    """Return the curves that every report holds: R and nDCG, without scoring the run again."""
    conventions = staged.final.conventions
    curves = parse_curves(DEFAULT_MEASURES, DEFAULT_KS, conventions=conventions)
    measures = [measure for curve in curves for measure in curve.at.values()]
    again = replace(staged, final=rescore_stages(staged, measures))
    found = sweep_system(again, curves, flat=flat).to_dict()
    return {"ks": list(DEFAULT_KS), "flat": flat} | {
        key: found[key] for key in ("measures", "depth")
    }


@dataclass(frozen=True, eq=False)
class _LineReader:
    """Makes lines of the scores at every cut-off; ``best`` are those of the best order."""

    scores: Scores
    curves: Sequence[Curve]
    measured: Sequence[K]
    best: Mapping[str, Values]
    flat: float

    def lines(self, mask: _Mask, summaries: Mapping[str, Summary] | None = None) -> Lines:
        """Return every curve over the marked queries."""
        known = self.scores.summarise(mask) if summaries is None else summaries
        return {curve.name: self._line(curve, mask, known) for curve in self.curves}

    def _line(self, curve: Curve, mask: _Mask, summaries: Mapping[str, Summary]) -> Line:
        points = [
            self._point(k, measure, mask, summaries[str(measure)])
            for k, measure in curve.at.items()
        ]
        values = [point.mean for point in points if point.mean is not None]
        knee = knee_of(values, better=curve.bare.definition.better, flat=self.flat)
        return Line(tuple(points), knee, self._area(curve, points, summaries))

    def _point(self, k: K, measure: Measure, mask: _Mask, summary: Summary) -> Point:
        if k not in self.measured:
            return Point(k, summary.n, ceiling=summary.ceiling, beyond_log=True)
        return Point(
            k,
            summary.n,
            mean=summary.mean,
            ci=summary.ci,
            ceiling=summary.ceiling,
            headroom=self._headroom(str(measure), mask, summary.mean),
        )

    def _headroom(self, name: str, mask: _Mask, value: float | None) -> float | None:
        if name not in self.best or value is None:
            return None
        rows = mask & ~np.isnan(self.scores.values(name))
        best = mean(self.best[name][rows])
        if best is None:
            return None
        # The same sum in two orders may differ in its last bits.
        return 0.0 if math.isclose(best, value, abs_tol=1e-12) else best - value

    def _area(
        self, curve: Curve, points: Sequence[Point], summaries: Mapping[str, Summary]
    ) -> Area | None:
        known = [point for point in points if point.mean is not None]
        if len(known) < 2:
            return None
        first, last = known[0].k, known[-1].k
        summary = summaries.get(str(curve.bare))
        if summary is None:
            heights = [np.array([point.mean]) for point in known]
            (area,) = area_under(heights, [size_of(point.k) for point in known])
            return Area(first, last, min(point.n for point in known), float(area))
        if summary.mean is None:
            return None
        return Area(first, last, summary.n, summary.mean, summary.ci)


def _with_areas(
    scores: Scores, curves: Sequence[Curve], seen: Sequence[K], more: Sequence[Measure]
) -> Scores:
    """Return the scores with each query's area as a measure of its own, to get its interval."""
    areas, columns, ceilings = [], [], dict(scores.ceilings)
    for curve in curves:
        names = [str(measure) for k, measure in curve.at.items() if k in seen]
        if len(names) < 2 or number_of(curve.bare) is not mean:
            continue
        places = [size_of(k) for k in curve.at if k in seen]
        values = area_under([scores.values(name) for name in names], places)
        columns.append(pl.Series(curve.name, values, dtype=pl.Float64, nan_to_null=True))
        areas.append(curve.bare)
        if all(name in ceilings for name in names):
            best = area_under([ceilings[name][0] for name in names], places)
            ceilings[curve.name] = best, aggregates.NOTHING
    measures = [measure for curve in curves for measure in curve.at.values()]
    return replace(
        scores,
        measures=(*measures, *areas, *more),
        table=scores.table.with_columns(columns),
        ceilings=ceilings,
        tied={},
    )


def best_values(staged: Staged, curves: Sequence[Curve], ks: Sequence[K]) -> dict[str, Values]:
    """Return each query's value at these cut-offs if all gold in its lists stood at the top.

    The lists are those of the retriever, before anything was taken out, and the final ones.
    Measures that another order cannot raise, or cannot be computed for, are left out.
    """
    best = best_order(staged)
    if best is None:
        return {}
    conventions = staged.gold.conventions
    return {
        str(curve.at[k]): values_of(curve.at[k], best, staged.gold)
        for curve in curves
        for k in ks
        if _order_decides(curve.at[k], best.target, conventions)
    }


def best_order(staged: Staged) -> Ranked | None:
    """Return the gold that the raw or the final list of each query holds, best grades first."""
    raw, final = staged.raw.trace, staged.final.trace
    if raw is None or final is None:
        return None
    first, last = raw.ranked.found, final.ranked.found
    if raw is final or first.row is None or last.row is None:
        return in_best_order(raw.ranked)
    new = last.where(~np.isin(last.row, first.row))

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(first, name), getattr(new, name)])

    repeat = None if first.repeat is None or new.repeat is None else joined("repeat")
    columns = (joined("query"), joined("rank"), joined("grade"), repeat, joined("row"))
    return in_best_order(replace(raw.ranked, found=Entries(first.n, *columns)))


def _order_decides(measure: Measure, target: Target, conventions: Conventions) -> bool:
    """Return whether the order of relevant items is all that decides a measure's value."""
    definition = measure.definition
    if definition.needs or definition.evidence is not None or definition.better != "higher":
        return False
    # Several chunks may cover a span together, and one chunk may cover several spans.
    if target.joined or is_budget(measure.k):
        return False
    by_chunk = {measure.name, measure.arguments.get("of")} & _BY_CHUNK
    mapped = isinstance(gain_of(measure, conventions), Mapping)
    judged = gold_for(measure) in {"relevant", "graded"}
    return judged and not mapped and not (target.shared and by_chunk)


def _cost(
    staged: Staged,
    ks: Sequence[K],
    seen: Sequence[K],
    budget: Budget,
    summaries: Mapping[str, Summary],
) -> dict[str, Any] | None:
    """Return the tokens of each cut-off, or the latency of a call at the k of the log."""
    if isinstance(budget, Measure):
        summary = summaries[str(budget)]
        return {
            "kind": str(budget),
            "k": staged.depth(staged.final).known,
            "mean": summary.mean,
            "ci": summary.ci and list(summary.ci),
            "n": summary.n,
            "because": summary.lacks,
        }
    if budget is None:
        return None
    ranks, ranks_seen = ([k for k in some if isinstance(k, int)] for some in (ks, seen))
    return _token_costs(staged, ranks, ranks_seen)


def _token_costs(staged: Staged, ks: Sequence[int], seen: Sequence[int]) -> dict[str, Any] | None:
    """Return the tokens of the first k items at each k; None if no item's length is known.

    ``unknown_items`` were returned and have no known length. ``counted`` is ``words`` where the
    corpus has no token counts.
    """
    scores, lists, corpus = staged.final, staged.final.lists, staged.gold.corpus
    if lists is None or "tokens" not in lists.columns:
        return None
    if lists["tokens"].null_count() == lists.height:
        return None
    top = lists.filter(pl.col("rank") <= max(seen, default=0))
    tokens = {k: _tokens_at(scores, top, k) for k in seen}
    ends = _token_intervals(tokens, scores)
    points = []
    for k in ks:
        known = k in tokens
        points.append(
            {
                "k": k,
                "mean": mean(tokens[k]) if known else None,
                "ci": ends[k] if known else None,
                "n": int((~np.isnan(tokens[k])).sum()) if known else 0,
                "beyond_log": not known,
            }
        )
    counted = "tokens" if corpus is None or "tokens" in corpus.columns else "words"
    unknown = top.filter(pl.col("tokens").is_null())["item_id"].n_unique()
    return {"kind": TOKENS, "points": points, "counted": counted, "unknown_items": unknown}


def _tokens_at(scores: Scores, lists: pl.DataFrame, k: int) -> Values:
    """Return the tokens of each query's first k items; NaN if one is unknown or none was asked."""
    top = lists.filter(pl.col("rank") <= k)
    tokens = top["tokens"].fill_null(float("nan")).to_numpy()
    values = np.bincount(top["row"].to_numpy(), weights=tokens, minlength=scores.table.height)
    answered = (scores.status == "scored").to_numpy()
    answered[lists["row"].unique().to_numpy()] = True
    return np.where(answered, values, np.nan)


def _token_intervals(columns: Mapping[int, Values], scores: Scores) -> dict[int, Any]:
    """Return the interval of each mean; columns over the same queries are resampled together."""
    found: dict[int, list[float] | None] = dict.fromkeys(columns)
    if scores.conventions.interval == "none":
        return found
    same_queries: dict[bytes, list[int]] = {}
    for k, values in columns.items():
        same_queries.setdefault(np.isnan(values).tobytes(), []).append(k)
    for ks in same_queries.values():
        rows: _Mask = ~np.isnan(columns[ks[0]])
        ends = mean_intervals(
            np.stack([columns[k][rows] for k in ks], axis=1),
            plan_of(scores.conventions),
            groups=None if scores.groups is None else scores.groups[rows],
        )
        for k, (low, high) in zip(ks, ends.tolist(), strict=True):
            found[k] = None if math.isnan(low) else [low, high]
    return found
