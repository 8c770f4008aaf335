"""The curves of one run: measures at several cut-offs, their knees and areas, and what k costs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.errors import MissingInputError, UsageError
from karat.evaluation.segments import SMALL, Segment
from karat.evaluation.stages import Staged, rescore_stages
from karat.measure import aggregates
from karat.measure.aggregates import Values, mean
from karat.measure.conventions import Conventions
from karat.measure.evaluate_measure import gain_of, gold_for, values_of
from karat.measure.names import Measure, parse_measure
from karat.measure.ranked import Entries, Ranked, Target, in_best_order, is_budget
from karat.measure.registry import MEASURES, Definition
from karat.measure.scores import Scores, Summary, number_of, plan_of
from karat.stats.means import mean_intervals

# A cut-off: a rank, or a budget such as 500tok.
K = int | str
# Each cut-off is scored and resampled.
MOST_KS = 200
# The curves and cut-offs of a sweep that names none.
DEFAULT_MEASURES = ("R", "nDCG")
DEFAULT_KS = (1, 3, 5, 10, 20)
# What a larger k may still add, as a share of the curve's highest value.
FLAT = 0.02
TOKENS: Literal["tokens"] = "tokens"
# What a cut-off costs: tokens, or the latency of a stage.
Budget = Measure | Literal["tokens"] | None

_Mask = NDArray[np.bool_]
Better = Literal["higher", "lower", "none"]

# Commas and blanks that stand outside of brackets.
_BETWEEN = re.compile(r"[\s,]+(?![^({]*[)}])")
# Two points are a line: whether it has flattened takes a third.
_FEWEST = 3
# Sums of the same values may differ in their last bits.
_ROUNDING = 1e-12
# These count every chunk of a document, of which the best order has one.
_BY_CHUNK = {"P", "F"}


@dataclass(frozen=True, slots=True)
class Curve:
    """A measure without its cut-off, and at each of several, from the smallest."""

    name: str
    at: Mapping[K, Measure]

    @property
    def bare(self) -> Measure:
        """The measure without a cut-off."""
        return replace(next(iter(self.at.values())), k=None)


def size_of(k: K) -> int:
    """Return the number in a cut-off.

    >>> size_of(10), size_of("500tok")
    (10, 500)
    """
    return k if isinstance(k, int) else int(k.removesuffix("tok"))


def parse_ks(text: str) -> tuple[K, ...]:
    """Return cut-offs from the smallest to the largest: all ranks, or all budgets of tokens.

    >>> parse_ks("10, 1, 5"), parse_ks("1000tok,500tok")
    ((1, 5, 10), ('500tok', '1000tok'))
    >>> parse_ks("1,1.5")
    Traceback (most recent call last):
    karat.errors.UsageError: k is '1.5'; it is a whole number above 0, or a budget such as 500tok
    """
    ks: list[K] = []
    for part in re.split(r"[\s,]+", text.strip()):
        number = re.fullmatch(r"([0-9]{1,12})(tok)?", part.casefold())
        if part and (number is None or int(number[1]) < 1):
            raise UsageError(
                f"k is {part!r}; it is a whole number above 0, or a budget such as 500tok"
            )
        if number is not None:
            k: K = f"{int(number[1])}tok" if number[2] else int(number[1])
            if k in ks:
                raise UsageError(f"k has {k} twice; name each cut-off once")
            ks.append(k)
    if not ks:
        raise UsageError("no k is named; give some, such as 1,3,5,10,20")
    if len(ks) > MOST_KS:
        raise UsageError(f"{len(ks):,} cut-offs are too many; name at most {MOST_KS}")
    kinds = {type(k): k for k in ks}
    if len(kinds) > 1:
        raise UsageError(
            f"k mixes ranks ({kinds[int]}) and budgets of tokens ({kinds[str]}); sweep one kind"
            " at a time"
        )
    return tuple(sorted(ks, key=size_of))


def parse_curves(
    texts: Sequence[str], ks: Sequence[K], *, conventions: Conventions | None = None
) -> list[Curve]:
    """Return measures written without a cut-off, such as ``R, nDCG(gain='exp')``, at every k.

    >>> [str(measure) for measure in parse_curves(["R"], (1, 5))[0].at.values()]
    ['R@1', 'R@5']
    """
    names = [name for text in texts for name in _BETWEEN.split(text.strip()) if name]
    if not names:
        raise UsageError("no measure named; give one without a cut-off, such as R")
    curves: dict[str, Curve] = {}
    for name in names:
        _check_has_curve(name)
        at = {k: parse_measure(f"{name}@{k}", conventions=conventions) for k in ks}
        first = at[ks[0]]
        bare = str(replace(first, k=None))
        if any(measure.k != k for k, measure in at.items()):
            raise _cut_off_refused(name, bare, str(first.k))
        curves.setdefault(bare, Curve(bare, at))
    return list(curves.values())


def _check_has_curve(text: str) -> None:
    """Refuse a measure that names a cut-off, since the sweep chooses it, or that takes none."""
    if "@" in text:
        name, _, cut = text.partition("@")
        raise _cut_off_refused(text, name, cut.strip("{}"))
    definition = _definition_named(text)
    if definition is None:
        measure = parse_measure(text)
        if measure.k is not None:
            raise _cut_off_refused(text, str(replace(measure, k=None)), str(measure.k))
        definition = measure.definition
    if definition.cutoff == "path":
        other = "; --budget latency.total shows it beside a curve"
        message = f"{text} is measured once per call and has no curve over k"
        raise UsageError(message + (other if definition.name == "latency" else ""))
    if definition.cutoff == "recall":
        raise UsageError(f"{definition.name} is taken at points of recall, not at cut-offs")
    if definition.cutoff == "none":
        raise UsageError(f"{definition.name} takes no cut-off, so it has no curve over k; try R")


def _cut_off_refused(text: str, name: str, cut: str) -> UsageError:
    return UsageError(f"{text!r} has a cut-off, which a sweep chooses; write {name}, and --k {cut}")


def _definition_named(text: str) -> Definition | None:
    """Return the measure of a name in any spelling, with or without parameters."""
    name = text.partition("(")[0].strip().casefold()
    for definition in MEASURES.values():
        if name in {alias.casefold() for alias in (definition.name, *definition.aliases)}:
            return definition
    return None


def knee_of(
    values: Sequence[float], *, better: Better = "higher", flat: float = FLAT
) -> tuple[int | None, str | None]:
    """Return the place of the first value that no later one beats by more than ``flat``.

    ``flat`` is a share of the highest value. Without a knee, the second value says why.

    >>> knee_of([0.40, 0.60, 0.70, 0.71]), knee_of([0.4, 0.5, 0.6])
    ((2, None), (None, 'it has not flattened yet'))
    """
    if better == "none":
        return None, "neither high nor low is better"
    if len(values) < _FEWEST:
        many = "1 cut-off was" if len(values) == 1 else f"{len(values) or 'no'} cut-offs were"
        return None, f"{many} measured, and it takes {_FEWEST} to see a curve flatten"
    highest = max(map(abs, values))
    if not highest:
        return None, "it is 0 throughout"
    good = np.array(values) if better == "higher" else -np.array(values)
    best_after = np.maximum.accumulate(good[::-1])[::-1]
    first = int(np.argmax(best_after - good <= flat * highest + _ROUNDING))
    # The last value is always such.
    return (None, "it has not flattened yet") if first == len(values) - 1 else (first, None)


def area_under(heights: Sequence[Values], places: Sequence[int]) -> Values:
    """Return the area of each query's curve by trapezoids over its width; NaN if a value is.

    >>> area_under([np.array([0.0]), np.array([1.0]), np.array([1.0])], [1, 3, 5])
    array([0.75])
    """
    total = np.zeros(len(heights[0]))
    for low, high, left, right in zip(places, places[1:], heights, heights[1:], strict=False):
        total = total + (high - low) * (left + right) / 2
    return np.asarray(total / (places[-1] - places[0]))


def sweep_system(
    staged: Staged,
    curves: Sequence[Curve],
    *,
    flat: float = FLAT,
    segments: Mapping[str, Sequence[Segment]] | None = None,
    budget: Budget = None,
) -> dict[str, Any]:
    """Return the curves of a run that was scored at all of their cut-offs, as plain data.

    For a ``budget`` of tokens the run must be scored with ``keep`` at the largest k; another
    budget is a latency that it was scored by.
    """
    final = staged.final
    beyond = () if final.cut is None else final.cut.beyond
    for measure in (measure for curve in curves for measure in curve.at.values()):
        if str(measure) in final.lacks and str(measure) not in beyond:
            raise MissingInputError(final.lacks[str(measure)])
    depth, deepest = staged.depth(final), final.conventions.depth
    # If every list is empty, there is no curve.
    measured = [
        k
        for k in curves[0].at
        if depth.longest
        and not any(str(curve.at[k]) in beyond for curve in curves)
        and (deepest is None or isinstance(k, str) or k <= deepest)
    ]
    latency = [budget] if isinstance(budget, Measure) else []
    scores = _with_areas(final, curves, measured, latency)
    best = best_values(staged, curves, measured)

    def lines_of(mask: _Mask, summaries: Mapping[str, Summary]) -> dict[str, Any]:
        return {
            curve.name: _line(curve, measured, scores, best, mask, summaries, flat)
            for curve in curves
        }

    everyone = np.ones(final.table.height, dtype=bool)
    summaries = scores.summarise(everyone)
    by_segment: dict[str, dict[str, Any]] = {}
    for column, values in (segments or {}).items():
        by_segment[column] = {}
        for segment in values:
            lines = lines_of(segment.mask, scores.summarise(segment.mask))
            for line in lines.values():
                if max(point["n"] for point in line["points"]) < SMALL:
                    line["small"] = True
            by_segment[column][segment.name] = lines
    raw_depth = None if staged.raw is final else asdict(staged.depth(staged.raw))
    return {
        "measures": lines_of(everyone, summaries),
        "segments": by_segment,
        "budget": _cost(staged, curves, measured, budget, summaries),
        "depth": {"final": asdict(depth), "raw": raw_depth},
    }


def default_sweep(staged: Staged, *, flat: float = FLAT) -> dict[str, Any]:
    """Return the curves that every report holds: R and nDCG, without scoring the run again."""
    conventions = staged.final.conventions
    curves = parse_curves(DEFAULT_MEASURES, DEFAULT_KS, conventions=conventions)
    measures = [measure for curve in curves for measure in curve.at.values()]
    again = replace(staged, final=rescore_stages(staged, measures))
    system = sweep_system(again, curves, flat=flat)
    shown = {key: system[key] for key in ("measures", "depth")}
    return {"ks": list(DEFAULT_KS), "flat": flat, **shown}


def _line(
    curve: Curve,
    measured: Sequence[K],
    scores: Scores,
    best: Mapping[str, Values],
    mask: _Mask,
    summaries: Mapping[str, Summary],
    flat: float,
) -> dict[str, Any]:
    """Return one curve over the marked queries: its points, knee and area.

    ``beyond_log`` says that the lists end before a cut-off. ``headroom`` is what the measure
    would gain if the gold that the run has stood at the top.
    """
    points = []
    for k, measure in curve.at.items():
        summary = summaries[str(measure)]
        point: dict[str, Any] = {"k": k, "n": summary.n, "mean": None, "ci": None}
        point |= {"ceiling": summary.ceiling, "headroom": None, "beyond_log": k not in measured}
        if k in measured:
            point |= {"mean": summary.mean, "ci": summary.ci and list(summary.ci)}
            point["headroom"] = _headroom(str(measure), scores, best, mask, summary.mean)
        points.append(point)
    known = [point for point in points if point["mean"] is not None]
    values = [point["mean"] for point in known]
    knee, because = knee_of(values, better=curve.bare.definition.better, flat=flat)
    return {
        "points": points,
        "knee": None if knee is None else known[knee]["k"],
        "knee_because": because,
        "area": _area(known, summaries.get(str(curve.bare))),
    }


def _headroom(
    name: str, scores: Scores, best: Mapping[str, Values], mask: _Mask, value: float | None
) -> float | None:
    if name not in best or value is None:
        return None
    highest = mean(best[name][mask & ~np.isnan(scores.values(name))])
    if highest is None:
        return None
    # The same sum in two orders may differ in its last bits.
    return 0.0 if math.isclose(highest, value, abs_tol=_ROUNDING) else highest - value


def _area(known: Sequence[Mapping[str, Any]], summary: Summary | None) -> dict[str, Any] | None:
    """Return the area divided by its width, from the first cut-off measured to the last."""
    if len(known) < 2:
        return None
    ends = {"from": known[0]["k"], "to": known[-1]["k"]}
    if summary is None:
        heights = [np.array([point["mean"]]) for point in known]
        (area,) = area_under(heights, [size_of(point["k"]) for point in known])
        n = min(point["n"] for point in known)
        return ends | {"mean": float(area), "ci": None, "n": n}
    if summary.mean is None:
        return None
    return ends | {"mean": summary.mean, "ci": summary.ci and list(summary.ci), "n": summary.n}


def _with_areas(
    scores: Scores, curves: Sequence[Curve], measured: Sequence[K], more: Sequence[Measure]
) -> Scores:
    """Return the scores with each query's area as a measure of its own, to get its interval."""
    areas, columns, ceilings = [], [], dict(scores.ceilings)
    for curve in curves:
        names = [str(measure) for k, measure in curve.at.items() if k in measured]
        if len(names) < 2 or number_of(curve.bare) is not mean:
            continue
        places = [size_of(k) for k in curve.at if k in measured]
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
    best = _best_order(staged)
    if best is None:
        return {}
    conventions = staged.gold.conventions
    return {
        str(curve.at[k]): values_of(curve.at[k], best, staged.gold)
        for curve in curves
        for k in ks
        if _order_decides(curve.at[k], best.target, conventions)
    }


def _best_order(staged: Staged) -> Ranked | None:
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
    curves: Sequence[Curve],
    measured: Sequence[K],
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
    return _token_costs(staged, [k for k in curves[0].at if isinstance(k, int)], measured)


def _token_costs(staged: Staged, ks: Sequence[int], measured: Sequence[K]) -> dict[str, Any] | None:
    """Return the tokens of the first k items at each k; None if no item's length is known.

    ``unknown_items`` were returned and have no known length. ``counted`` is ``words`` where the
    corpus has no token counts.
    """
    lists, corpus = staged.final.lists, staged.gold.corpus
    if lists is None or "tokens" not in lists.columns or lists["tokens"].is_null().all():
        return None
    top = lists.filter(pl.col("rank") <= max([k for k in ks if k in measured], default=0))
    points = []
    for k in ks:
        point: dict[str, Any] = {"k": k, "mean": None, "ci": None, "n": 0, "beyond_log": True}
        if k in measured:
            point |= {**_tokens_at(staged.final, top, k), "beyond_log": False}
        points.append(point)
    counted = "tokens" if corpus is None or "tokens" in corpus.columns else "words"
    unknown = top.filter(pl.col("tokens").is_null())["item_id"].n_unique()
    return {"kind": TOKENS, "points": points, "counted": counted, "unknown_items": unknown}


def _tokens_at(scores: Scores, lists: pl.DataFrame, k: int) -> dict[str, Any]:
    """Return the mean length of the first k items of queries whose items all have a length."""
    top = lists.filter(pl.col("rank") <= k)
    tokens = top["tokens"].fill_null(float("nan")).to_numpy()
    rows = top["row"].to_numpy()
    values: Values = np.bincount(rows, weights=tokens, minlength=scores.table.height).astype(float)
    answered = (scores.status == "scored").to_numpy()
    answered[lists["row"].unique().to_numpy()] = True
    known = answered & ~np.isnan(values)
    ends = [math.nan]
    if scores.conventions.interval != "none":
        groups = None if scores.groups is None else scores.groups[known]
        plan = plan_of(scores.conventions)
        ends = mean_intervals(values[known][:, None], plan, groups=groups)[0].tolist()
    ci = None if math.isnan(ends[0]) else ends
    return {"mean": mean(values[known]), "ci": ci, "n": int(known.sum())}
