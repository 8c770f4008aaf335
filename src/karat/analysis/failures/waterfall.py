"""The loss waterfall: what lies between a measure's ceiling and its value, part by part.

Per query, with V the measure of a list and U its measure in the best order of its own gold:
from the ceiling are taken what failed ``calls`` cost, what the ``index`` lacks, what the
``retriever`` did not find (up to U of its list), what ``filters`` took out (U before, U after),
what lies too low or was cut off (``cut_off``: U - V of the filtered list, and V before the cut
less V of the final list), and what the ``reranker`` lost, or won back (V before, V after).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from karat.analysis.failures.case import in_index
from karat.analysis.failures.gold_ranks import Kept, Way, kept_by, ranked_of, way_of
from karat.errors import UsageError
from karat.evaluation.stages import Staged
from karat.measures import aggregates
from karat.measures.aggregates import Values
from karat.measures.evaluate_measure import gain_of, values_of
from karat.measures.kernels.gains import best_first
from karat.measures.names import Measure, parse_measure
from karat.measures.prepare import Prepared
from karat.measures.ranked import Entries, Ints, Mask, Ranked, in_best_order, is_budget
from karat.measures.scores import Interval, Scores, plan_of
from karat.pages.serialize import Record
from karat.stats.means import mean_intervals

# These look at how much else was returned, which no order of the gold can change.
_OF_SETS = ("SetP", "SetF")
# These count every chunk of a document, of which a corpus may have any number.
_OF_CHUNKS = ("P", "F")


def check_by_ranks(measure: Measure, level: str) -> None:
    """Refuse a measure whose loss cannot be followed through the lists."""
    definition, of = measure.definition, measure.arguments.get("of")
    by_ranks = (
        definition.better == "higher"
        and definition.ceiling == "ideal"
        and definition.number is aggregates.mean
        and not definition.needs
        and definition.evidence is None
        and not is_budget(measure.k)
        and measure.name not in _OF_SETS
    )
    if not by_ranks:
        raise UsageError(
            f"the loss of {measure} cannot be broken down; take a measure of the ranks of gold,"
            " such as R@10, nDCG@10 or RR"
        )
    if level != "item" and (measure.name in _OF_CHUNKS or of in _OF_CHUNKS):
        raise UsageError(
            f"the loss of {measure} cannot be broken down with level={level}, where it counts"
            " every chunk; take R@k or nDCG@k"
        )


def best_values(
    measure: Measure, ranked: Ranked, gold: Prepared, keep: Mask | None = None
) -> Values:
    """Return the measure of lists whose gold stands in the best order.

    ``keep`` takes only some of the gold: the judgments that it marks.
    """
    return values_of(measure, _best(measure, ranked, gold, keep), gold)


def _best(measure: Measure, ranked: Ranked, gold: Prepared, keep: Mask | None) -> Ranked:
    best = in_best_order(ranked, _marked(ranked.found, keep))
    if ranked.target.joined:
        # A chunk that touches a span is a hit before enough of the span is covered, and one
        # chunk may cover them all.
        touched = in_best_order(replace(ranked, found=ranked.hits), _marked(ranked.hits, keep))
        best = replace(best, found=replace(best.found, rank=np.ones_like(best.found.rank)))
        best = replace(best, hits=touched.hits)
    gain = gain_of(measure, gold.conventions)
    if isinstance(gain, Mapping):
        best = replace(best, hits=best_first(best.hits, gain)[0])
    return best


def _marked(entries: Entries, keep: Mask | None) -> Mask | None:
    return None if keep is None or entries.row is None else keep[entries.row]


def ideal_values(measure: Measure, ranked: Ranked, gold: Prepared, known: Mask) -> Values:
    """Return the measure of the best list of some of the gold: the judgments marked."""
    ideal = ranked.target.ideal
    some = ideal if ideal.row is None else ideal.where(known[ideal.row])
    returned = np.bincount(some.query, minlength=ranked.n)
    if (depth := gold.conventions.depth) is not None:
        some = some.where(some.so_far(np.ones(len(some.rank), dtype=bool)) <= depth)
    return best_values(measure, Ranked(ranked.target, some, some, returned), gold)


PARTS = ("calls", "index", "retriever", "filters", "cut_off", "reranker")
# These cannot win anything back, so their intervals end at 0.
_NEVER_BELOW = ("calls", "index", "retriever")
# The same grades added in two orders differ by about so much.
_ROUNDING, _NOTHING = 1e-14, 1e-9


@dataclass(frozen=True, slots=True)
class Part(Record):
    """What one part of a system costs: the mean loss, its interval, and the queries it touches."""

    part: str
    lost: float | None
    ci: Interval
    queries: int
    share: float | None


@dataclass(frozen=True, eq=False)
class Waterfall:
    """The losses of one measure: ``ceiling`` less the sum of the parts is ``value``.

    ``unknown`` says of a part that could not be told what it needs; its loss is in others.
    ``columns`` holds each query's losses, NaN where it takes no part. ``ends_at`` is where the
    final lists end, if that is above the measure's cut-off: what lies below was not measured.
    """

    measure: str
    ceiling: float | None
    value: float | None
    n: int
    parts: tuple[Part, ...]
    unknown: Mapping[str, str]
    columns: Mapping[str, Values] = field(repr=False)
    ends_at: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the waterfall as plain data."""
        return {
            "measure": self.measure,
            "ceiling": self.ceiling,
            "value": self.value,
            "n": self.n,
            "parts": [part.to_dict() for part in self.parts],
            "unknown": dict(self.unknown),
            "ends_at": self.ends_at,
        }


def waterfall(staged: Staged, measure: Measure | str) -> Waterfall:
    """Break a measure's loss down by what caused it; the run must be scored by the measure.

    Measures of ranks only.
    """
    scores = staged.final
    wanted = parse_measure(measure, conventions=scores.conventions)
    check_by_ranks(wanted, scores.conventions.level)
    if wanted not in scores.measures:
        raise UsageError(f"{wanted} is broken down; score the run by it")
    columns, unknown = _losses(staged, wanted)
    values = scores.values(str(wanted))
    known = ~np.isnan(values)
    return Waterfall(
        str(wanted),
        ceiling=aggregates.mean(_ceiling(scores, wanted)[known]),
        value=aggregates.mean(values),
        n=int(known.sum()),
        parts=_parts(columns, unknown, scores, wanted),
        unknown=unknown,
        columns=columns,
        ends_at=staged.ends_above(wanted.k),
    )


def _ceiling(scores: Scores, measure: Measure) -> Values:
    return scores.ceilings[str(measure)][0]


def _losses(staged: Staged, measure: Measure) -> tuple[dict[str, Values], dict[str, str]]:
    """Each query's loss by part, and what would be needed for the parts that cannot be told."""
    scores, gold = staged.final, staged.gold
    values, ceiling = scores.values(str(measure)), _ceiling(scores, measure)
    unknown: dict[str, str] = {}
    reachable, known = ceiling, in_index(staged)
    if known is None:
        unknown["index"] = "needs a corpus: --corpus"
    elif not known.all():
        some = ideal_values(measure, ranked_of(scores), gold, known)
        lacking = np.bincount(gold.rows["code"].to_numpy()[~known], minlength=len(values)) > 0
        reachable = np.where(lacking, np.minimum(some, ceiling), ceiling)
    if not staged.line:
        unknown |= dict.fromkeys(("filters", "reranker"), "needs the raw lists in the log")
    best, filters, cut_off, reranker = _after_retrieving(staged, measure, values)
    unanswered = scores.status.is_in(["missing", "failed"]).to_numpy()
    lost = {
        "calls": np.where(unanswered, ceiling - values, 0.0),
        "index": ceiling - reachable,
        "retriever": reachable - best,
        "filters": filters,
        "cut_off": cut_off,
        "reranker": reranker,
    }
    small = _ROUNDING * np.maximum(ceiling, 1.0)
    for name, column in lost.items():
        if name != "calls":
            column = np.where(unanswered | (np.abs(column) <= small), 0.0, column)
        lost[name] = np.where(np.isnan(values), np.nan, column)
    return lost, unknown


def _after_retrieving(
    staged: Staged, measure: Measure, values: Values
) -> tuple[Values, Values, Values, Values]:
    """What the retriever's lists could be worth, and what is lost from there to the value."""
    way, gold = way_of(staged), staged.gold
    lists = [ranked_of(scores) for scores in (*staged.line.values(), staged.final)]
    best = np.stack([best_values(measure, hits, gold) for hits in lists])
    plain = np.stack([*(values_of(measure, hits, gold) for hits in lists[:-1]), values])
    query = np.arange(len(values))
    # A list that was not logged is the next one that was.
    sieved = np.where(way.sieved.there, way.sieved.at, 0)
    reordered = np.where(way.reordered.there, way.reordered.at, sieved)
    best_sieved, sieved_value = best[sieved, query], plain[sieved, query]
    before_cut = plain[reordered, query]
    filters = best[0] - best_sieved
    cut_off = best_sieved - sieved_value + before_cut - values
    reranker = sieved_value - before_cut
    alike = (best_sieved == best[-1]) & (sieved_value == values)
    untold = ~way.reordered.there & ~np.isnan(values) & ~alike
    kept = kept_by(staged, way, untold)
    in_order = untold & kept.in_order
    left = _left_after_sieves(staged, measure, way, sieved, kept)
    filters = np.where(in_order, best[0] - left, filters)
    cut_off = np.where(in_order, left - values, cut_off)
    cut_off = np.where(untold & ~in_order, best_sieved - sieved_value, cut_off)
    reranker = np.where(untold & ~in_order, sieved_value - values, reranker)
    return best[0], filters, cut_off, reranker


def _left_after_sieves(
    staged: Staged, measure: Measure, way: Way, sieved: Ints, kept: Kept
) -> Values:
    """Return what lists could be worth without the gold that something took out unlogged.

    Gold that stood above an item of the final list, in a list whose order was kept, was taken
    out; gold below all of them was cut off.
    """
    final = ranked_of(staged.final)
    # A cut leaves something: where nothing is left, everything was taken out.
    above = np.where(way.final.returned == 0, np.inf, kept.above)
    left = np.zeros(final.n)
    for at, scores in enumerate((*staged.line.values(), staged.final)):
        here = sieved == at
        if here.any():
            ranked = ranked_of(scores)
            passed = _rows(final, np.zeros(final.n)) | _rows(ranked, above)
            values = best_values(measure, ranked, staged.gold, passed)
            left = np.where(here, values, left)
    return left


def _rows(ranked: Ranked, above: Values) -> Mask:
    """Return the judgments of gold that stands below a rank, in any of its chunks."""
    rows = np.zeros(len(ranked.target.grade), dtype=bool)
    for entries in (ranked.hits, ranked.found):
        if entries.row is not None:
            rows[entries.row[entries.rank > above[entries.query]]] = True
    return rows


def _parts(
    columns: Mapping[str, Values], unknown: Mapping[str, str], scores: Scores, measure: Measure
) -> tuple[Part, ...]:
    known = ~np.isnan(scores.values(str(measure)))
    top = float(np.max(_ceiling(scores, measure)[known], initial=0.0))
    intervals = _intervals({name: columns[name][known] for name in PARTS}, top, scores, known)
    parts = []
    for name in PARTS:
        # Of what neither won nor lost anything, nothing says how much it might.
        untouched = name not in _NEVER_BELOW and not columns[name][known].any()
        touched = int((np.abs(columns[name][known]) > _NOTHING * max(top, 1.0)).sum())
        parts.append(
            Part(
                name,
                aggregates.mean(columns[name]),
                None if name in unknown or untouched else intervals[name],
                touched,
                touched / int(known.sum()) if known.any() else None,
            )
        )
    return tuple(parts)


def _intervals(
    columns: Mapping[str, Values], top: float, scores: Scores, known: Mask
) -> dict[str, Interval]:
    """Return the interval of each part's mean, all from the same resamples of queries."""
    if scores.conventions.interval == "none" or known.sum() < 2:
        return dict.fromkeys(columns)
    ranges = [
        (0.0 if name in _NEVER_BELOW and values.min() >= 0 else -top, top)
        if np.abs(values).max() <= top
        else None
        for name, values in columns.items()
    ]
    ends = mean_intervals(
        np.stack(list(columns.values()), axis=1),
        plan_of(scores.conventions),
        ranges=ranges,
        groups=None if scores.groups is None else scores.groups[known],
    )
    return {
        name: None if math.isnan(low) else (low, high)
        for name, (low, high) in zip(columns, ends.tolist(), strict=True)
    }
