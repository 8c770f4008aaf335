"""The curves of one run: measures at several cut-offs, their knees, areas and costs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from karat.errors import MissingInputError, UsageError
from karat.evaluation.segments import SMALL, Segment
from karat.evaluation.stages import Staged, rescore_stages
from karat.evaluation.top_lists import share_of
from karat.measure import aggregates
from karat.measure.aggregates import Values, mean
from karat.measure.conventions import Conventions
from karat.measure.evaluate_measure import gain_of, gold_for, values_of
from karat.measure.names import Measure, parse_measure
from karat.measure.ranked import Entries, Mask, Target, in_best_order, is_budget
from karat.measure.scores import Scores, Summary, number_of

# A cut-off: a rank, or a budget such as 500tok.
K = int | str
# Each cut-off is scored and resampled.
MOST_KS = 200
# The curves and cut-offs of a sweep that names none.
DEFAULT_MEASURES = ("R", "nDCG")
DEFAULT_KS = (1, 3, 5, 10, 20)
# The most that a larger k may add to a flat curve, as a share of its highest value.
FLAT = 0.02
TOKENS: Literal["tokens"] = "tokens"
# The cost of a cut-off: tokens, or the latency of a stage.
Budget = Measure | Literal["tokens"] | None

Better = Literal["higher", "lower", "none"]

# Commas and blanks outside brackets.
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
    karat.errors.UsageError: k is '1.5'; give a whole number above 0, or a budget such as 500tok
    """
    ks: set[K] = set()
    for part in filter(None, re.split(r"[\s,]+", text)):
        number = re.fullmatch(r"0*([1-9][0-9]{0,11})(tok)?", part.casefold())
        if number is None:
            raise UsageError(
                f"k is {part!r}; give a whole number above 0, or a budget such as 500tok"
            )
        ks.add(f"{number[1]}tok" if number[2] else int(number[1]))
    if not 1 <= len(ks) <= MOST_KS:
        raise UsageError(f"k has {len(ks)} cut-offs; name 1 to {MOST_KS}, such as 1,3,5,10,20")
    if len({type(k) for k in ks}) > 1:
        raise UsageError("k mixes ranks and budgets of tokens; sweep one kind at a time")
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
        bare, at, cut = name.partition("@")
        if at:
            raise UsageError(f"{name!r} has a cut-off; write {bare}, and --k {cut.strip('{}')}")
        if bare.partition(".")[0] in ("latency", "cost"):
            raise UsageError(
                f"{name} is measured once per call and has no curve over k; --budget {name}"
                " shows a latency beside a curve"
            )
        measures = {k: parse_measure(f"{name}@{k}", conventions=conventions) for k in ks}
        if any(m.k != k or m.definition.cutoff == "recall" for k, m in measures.items()):
            raise UsageError(
                f"{name} has no curve over k; name a measure without its cut-off, such as R"
            )
        bare = str(replace(measures[ks[0]], k=None))
        curves.setdefault(bare, Curve(bare, measures))
    return list(curves.values())


def knee_of(
    values: Sequence[float], *, better: Better = "higher", flat: float = FLAT
) -> tuple[int | None, str | None]:
    """Return the place of the first value that no later one beats by more than ``flat``.

    ``flat`` is a share of the highest value. Without a knee, the second value says why.

    >>> knee_of([0.40, 0.60, 0.70, 0.71]), knee_of([0.4, 0.5, 0.6])
    ((2, None), (None, 'it has not flattened yet'))
    """
    if better == "none":
        return None, "neither higher nor lower is better"
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
    area: Values = np.trapezoid(np.stack(heights), places, axis=0)
    return area / (places[-1] - places[0])


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

    def lines_of(mask: Mask) -> dict[str, Any]:
        summaries = scores.summarise(mask)
        return {
            curve.name: _line(curve, measured, scores, best, mask, summaries, flat)
            for curve in curves
        }

    by_segment: dict[str, dict[str, Any]] = {}
    for column, values in (segments or {}).items():
        by_segment[column] = {segment.name: lines_of(segment.mask) for segment in values}
        for line in (line for lines in by_segment[column].values() for line in lines.values()):
            if max(point["n"] for point in line["points"]) < SMALL:
                line["small"] = True
    everyone = final.everyone
    costs = None
    if isinstance(budget, Measure):
        # The only k that a log times is the one that was asked for.
        summary = scores.summarise(everyone)[str(budget)]
        costs = {"kind": str(budget), "k": depth.known, "mean": summary.mean, "n": summary.n}
        costs |= {"ci": summary.ci and list(summary.ci), "because": summary.lacks}
    elif budget == TOKENS:
        costs = _token_costs(staged, [k for k in curves[0].at if isinstance(k, int)], measured)
    return {
        "measures": lines_of(everyone),
        "segments": by_segment,
        "budget": costs,
        "depth": {
            "final": asdict(depth),
            "raw": None if staged.raw is final else asdict(staged.depth(staged.raw)),
        },
    }


def default_sweep(staged: Staged) -> dict[str, Any]:
    """Return the curves that every report holds: R and nDCG, without scoring the run again."""
    conventions = staged.final.conventions
    curves = parse_curves(DEFAULT_MEASURES, DEFAULT_KS, conventions=conventions)
    measures = [measure for curve in curves for measure in curve.at.values()]
    system = sweep_system(replace(staged, final=rescore_stages(staged, measures)), curves)
    shown = {key: system[key] for key in ("measures", "depth")}
    return {"ks": list(DEFAULT_KS), "flat": FLAT, **shown}


def _line(
    curve: Curve,
    measured: Sequence[K],
    scores: Scores,
    best: Mapping[str, Values],
    mask: Mask,
    summaries: Mapping[str, Summary],
    flat: float,
) -> dict[str, Any]:
    """Return one curve over the marked queries: its points, knee and area.

    ``beyond_log`` says that the lists end before a cut-off. ``headroom`` is the measure's gain
    if all gold of the run ranked at the top.
    """
    points = []
    for k, measure in curve.at.items():
        name = str(measure)
        summary = summaries[name]
        point: dict[str, Any] = {"k": k, "n": summary.n, "mean": None, "ci": None}
        point |= {"ceiling": summary.ceiling, "headroom": None, "beyond_log": k not in measured}
        if k in measured:
            point |= {"mean": summary.mean, "ci": summary.ci and list(summary.ci)}
            if name in best and summary.mean is not None:
                highest = mean(best[name][mask & ~np.isnan(scores.values(name))])
                if highest is not None:
                    # The same sum in two orders counts as equal.
                    equal = math.isclose(highest, summary.mean, abs_tol=_ROUNDING)
                    point["headroom"] = 0.0 if equal else highest - summary.mean
        points.append(point)
    measured_points = [point for point in points if point["mean"] is not None]
    values = [point["mean"] for point in measured_points]
    knee, because = knee_of(values, better=curve.bare.definition.better, flat=flat)
    return {
        "points": points,
        "knee": None if knee is None else measured_points[knee]["k"],
        "knee_because": because,
        "area": _area(measured_points, summaries.get(str(curve.bare))),
    }


def _area(points: Sequence[Mapping[str, Any]], summary: Summary | None) -> dict[str, Any] | None:
    """Return the area divided by its width, from the first cut-off measured to the last."""
    if len(points) < 2:
        return None
    ends = {"from": points[0]["k"], "to": points[-1]["k"]}
    if summary is None:
        heights = [np.array([point["mean"]]) for point in points]
        (area,) = area_under(heights, [size_of(point["k"]) for point in points])
        n = min(point["n"] for point in points)
        return ends | {"mean": float(area), "ci": None, "n": n}
    if summary.mean is None:
        return None
    return ends | {"mean": summary.mean, "ci": summary.ci and list(summary.ci), "n": summary.n}


def _with_areas(
    scores: Scores, curves: Sequence[Curve], measured: Sequence[K], more: Sequence[Measure]
) -> Scores:
    """Return the scores with each query's area as a measure of its own, to get its interval."""
    areas, columns, ceilings = [], dict(scores.columns), dict(scores.ceilings)
    for curve in curves:
        names = [str(measure) for k, measure in curve.at.items() if k in measured]
        if len(names) < 2 or number_of(curve.bare) is not mean:
            continue
        places = [size_of(k) for k in curve.at if k in measured]
        values = area_under([scores.values(name) for name in names], places)
        columns[curve.name] = values
        areas.append(curve.bare)
        if all(name in ceilings for name in names):
            best = area_under([ceilings[name][0] for name in names], places)
            ceilings[curve.name] = best, aggregates.NOTHING
    measures = [measure for curve in curves for measure in curve.at.values()]
    return replace(
        scores,
        measures=(*measures, *areas, *more),
        columns=columns,
        ceilings=ceilings,
        tied={},
    )


def best_values(staged: Staged, curves: Sequence[Curve], ks: Sequence[K]) -> dict[str, Values]:
    """Return each query's value at these cut-offs if all gold in its lists ranked first.

    The lists are those of the retriever, before filters, and the final ones.
    Measures that another order cannot raise, or cannot be computed for, are left out.
    """
    raw, final = staged.raw.trace, staged.final.trace
    if raw is None or final is None:
        return {}
    best = in_best_order(raw.ranked)
    first, last = raw.ranked.found, final.ranked.found
    if raw is not final and first.row is not None and last.row is not None:
        entries = _joined(first, last.where(~np.isin(last.row, first.row)))
        best = in_best_order(replace(raw.ranked, found=entries))
    return {
        str(curve.at[k]): values_of(curve.at[k], best, staged.gold)
        for curve in curves
        for k in ks
        if _order_decides(curve.at[k], best.target, staged.gold.conventions)
    }


def _joined(first: Entries, second: Entries) -> Entries:
    """Return the judged hits of two lists as those of one."""

    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(first, name), getattr(second, name)])

    repeat = None if first.repeat is None or second.repeat is None else column("repeat")
    columns = (column("query"), column("rank"), column("grade"), repeat, column("row"))
    return Entries(first.n, *columns)


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


def _token_costs(staged: Staged, ks: Sequence[int], measured: Sequence[K]) -> dict[str, Any] | None:
    """Return the tokens of the first k items at each k; None if no item's length is known.

    ``unknown_items`` were returned and have no known length. ``counted`` is ``words`` where the
    corpus has no token counts.
    """
    lists, corpus = staged.final.lists, staged.gold.corpus
    if lists is None or "tokens" not in lists.columns or lists["tokens"].is_null().all():
        return None
    top = lists.filter(pl.col("rank") <= max([k for k in ks if k in measured], default=0))
    unmeasured = {"mean": None, "ci": None, "n": 0, "beyond_log": True}
    return {
        "kind": TOKENS,
        "points": [
            {"k": k, **(_tokens_at(staged.final, top, k) if k in measured else unmeasured)}
            for k in ks
        ],
        "counted": "tokens" if corpus is None or "tokens" in corpus.columns else "words",
        "unknown_items": top.filter(pl.col("tokens").is_null())["item_id"].n_unique(),
    }


def _tokens_at(scores: Scores, lists: pl.DataFrame, k: int) -> dict[str, Any]:
    """Return the mean length of the first k items of queries whose items all have a length."""
    top = lists.filter(pl.col("rank") <= k)
    tokens = top["tokens"].fill_null(float("nan")).to_numpy()
    rows = top["row"].to_numpy()
    n = len(scores.query_ids)
    values = np.bincount(rows, weights=tokens, minlength=n).astype(np.float64)
    answered = scores.status == "scored"
    answered[lists["row"].unique().to_numpy()] = True
    known = np.flatnonzero(answered & ~np.isnan(values))
    return {**share_of(values[known], scores, known, most=None), "beyond_log": False}
