"""The loss waterfall: from a measure's ceiling to its value, part by part.

Per query, with V the measure of a list and U its measure in the best order of its own gold:
the parts are the cost of failed ``calls``, gold that the ``index`` lacks, gold that the
``retriever`` did not find (up to U of its list), gold that ``filters`` removed (U before, U
after), gold too low or cut off (``cut_off``: U - V of the filtered list, and V before the cut
less V of the final list), and what the ``reranker`` lost, or won back (V before, V after).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from karat.analysis import SystemAnalysis
from karat.analysis.failures.case import Way, in_index, kept_order
from karat.errors import UsageError
from karat.evaluation.stages import Staged
from karat.evaluation.top_lists import ranked_of, unanswered
from karat.measure import aggregates
from karat.measure.aggregates import Values
from karat.measure.evaluate_measure import gain_of, values_of
from karat.measure.kernels.ranks import best_first
from karat.measure.names import Measure, parse_measure
from karat.measure.prepare import Prepared
from karat.measure.ranked import Entries, Ints, Mask, Ranked, in_best_order, is_budget
from karat.measure.scores import Scores, plan_of
from karat.pages.formatting import NOTHING, change, figure, interval
from karat.pages.page import Section, table
from karat.stats.means import mean_intervals

PARTS: Mapping[str, str] = {
    "calls": "calls that failed or were not made",
    "index": "gold that the index lacks",
    "retriever": "gold that was not retrieved",
    "filters": "gold that filters took out",
    "cut_off": "gold too low, or cut off",
    "reranker": "gold moved by the reranker",
}
# These cannot win anything back, so their intervals end at 0.
_NEVER_BELOW = ("calls", "index", "retriever")
# The rounding difference of sums in another order.
_ROUNDING, _UNTOUCHED = 1e-14, 1e-9
# These look at how much else was returned, which no order of the gold can change.
_OF_SETS = ("SetP", "SetF")
# These count every chunk of a document, of which a corpus may have any number.
_OF_CHUNKS = ("P", "F")


def waterfall(staged: Staged, measure: Measure | str) -> SystemAnalysis:
    """Break a measure's loss down by cause; the run must be scored by the measure.

    ``ceiling`` less the sum of what the ``parts`` lost is ``value``. ``unknown`` names what each
    part that could not be measured needs; its loss is in others. ``ends_at`` is where the final
    lists end, if that is above the measure's cut-off: ranks below it were not measured.
    Raises UsageError for a measure that is not one of the ranks of gold.
    """
    scores = staged.final
    measure = parse_measure(measure, conventions=scores.conventions)
    _check_by_ranks(measure, scores.conventions.level)
    if measure not in scores.measures:
        raise UsageError(f"{measure} is broken down; score the run by it")
    columns, unknown = query_losses(staged, measure)
    values, ceiling = scores.values(str(measure)), scores.ceilings[str(measure)][0]
    has_value = ~np.isnan(values)
    top = float(np.max(ceiling[has_value], initial=0.0))
    document = {
        "measure": str(measure),
        "ceiling": aggregates.mean(ceiling[has_value]),
        "value": aggregates.mean(values),
        "n": int(has_value.sum()),
        "parts": _parts(columns, unknown, scores, has_value, top),
        "unknown": unknown,
        "ends_at": staged.ends_above(measure.k),
    }
    return SystemAnalysis(document, lambda document: [waterfall_section(document)])


def _check_by_ranks(measure: Measure, level: str) -> None:
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


def query_losses(staged: Staged, measure: Measure) -> tuple[dict[str, Values], dict[str, str]]:
    """Return each query's loss by part, and what the parts that cannot be measured need.

    A loss is NaN where the query takes no part.
    """
    scores, gold = staged.final, staged.gold
    values, ceiling = scores.values(str(measure)), scores.ceilings[str(measure)][0]
    unknown: dict[str, str] = {}
    reachable, findable = ceiling, in_index(staged)
    if findable is None:
        unknown["index"] = "needs a corpus: --corpus"
    elif not findable.all():
        best = _ideal_values(measure, ranked_of(scores), gold, findable)
        lacking = np.bincount(gold.rows["code"].to_numpy()[~findable], minlength=len(values)) > 0
        reachable = np.where(lacking, np.minimum(best, ceiling), ceiling)
    if not staged.line:
        unknown |= dict.fromkeys(("filters", "reranker"), "needs the raw lists in the log")
    best, filters, cut_off, reranker = _after_retrieving(staged, measure, values)
    no_answer = unanswered(scores)
    lost = {
        "calls": np.where(no_answer, ceiling - values, 0.0),
        "index": ceiling - reachable,
        "retriever": reachable - best,
        "filters": filters,
        "cut_off": cut_off,
        "reranker": reranker,
    }
    small = _ROUNDING * np.maximum(ceiling, 1.0)
    for name, column in lost.items():
        if name != "calls":
            column = np.where(no_answer | (np.abs(column) <= small), 0.0, column)
        lost[name] = np.where(np.isnan(values), np.nan, column)
    return lost, unknown


def _after_retrieving(
    staged: Staged, measure: Measure, values: Values
) -> tuple[Values, Values, Values, Values]:
    """Return the best value of the retriever's lists, and the losses from there to the value.

    The losses are those of filters, of cutting off and of reranking.
    """
    way, gold = Way.of(staged), staged.gold
    lists = [ranked_of(scores) for scores in (*staged.line.values(), staged.final)]
    best = np.stack([_best_values(measure, hits, gold) for hits in lists])
    plain = np.stack([*(values_of(measure, hits, gold) for hits in lists[:-1]), values])
    query = np.arange(len(values))
    # A list that was not logged equals the next logged one.
    sieved = np.where(way.sieved.logged, way.sieved.at, 0)
    reordered = np.where(way.reordered.logged, way.reordered.at, sieved)
    best_sieved, sieved_value = best[sieved, query], plain[sieved, query]
    before_cut = plain[reordered, query]
    filters = best[0] - best_sieved
    cut_off = best_sieved - sieved_value + before_cut - values
    reranker = sieved_value - before_cut
    alike = (best_sieved == best[-1]) & (sieved_value == values)
    unlogged = ~way.reordered.logged & ~np.isnan(values) & ~alike
    same_order, lowest = kept_order(staged, way, unlogged)
    in_order, changed = unlogged & same_order, unlogged & ~same_order
    remaining_value = _left_after_sieves(lists, measure, gold, way, sieved, lowest)
    filters = np.where(in_order, best[0] - remaining_value, filters)
    cut_off = np.where(in_order, remaining_value - values, cut_off)
    cut_off = np.where(changed, best_sieved - sieved_value, cut_off)
    reranker = np.where(changed, sieved_value - values, reranker)
    return best[0], filters, cut_off, reranker


def _left_after_sieves(
    lists: Sequence[Ranked],
    measure: Measure,
    gold: Prepared,
    way: Way,
    sieved: Ints,
    lowest: Ints,
) -> Values:
    """Return the best value of lists without the gold that an unlogged stage removed.

    Gold that stood above an item of the final list, in a list whose order was kept, was removed;
    gold below all of them was cut off.
    """
    # A cut leaves at least one item: an empty list was filtered.
    first = np.where(way.final.returned == 0, np.inf, lowest)
    remaining = np.zeros(len(lowest))
    for at, ranked in enumerate(lists):
        at_stage = sieved == at
        if at_stage.any():
            passed = _found_from(lists[-1], np.zeros(len(lowest))) | _found_from(ranked, first)
            remaining = np.where(at_stage, _best_values(measure, ranked, gold, passed), remaining)
    return remaining


def _found_from(ranked: Ranked, first: Values) -> Mask:
    """Return the judgments of gold at a rank or below it, in any of its chunks."""
    rows = np.zeros(len(ranked.target.grade), dtype=bool)
    for entries in (ranked.hits, ranked.found):
        if entries.row is not None:
            rows[entries.row[entries.rank >= first[entries.query]]] = True
    return rows


def _best_values(
    measure: Measure, ranked: Ranked, gold: Prepared, keep: Mask | None = None
) -> Values:
    """Return the measure of lists with their gold in the best order.

    ``keep`` takes only some of the gold: the judgments that it marks.
    """

    def marked(entries: Entries) -> Mask | None:
        return None if keep is None or entries.row is None else keep[entries.row]

    best = in_best_order(ranked, marked(ranked.found))
    if ranked.target.joined:
        # A chunk that touches a span is a hit before enough of the span is covered, and one
        # chunk may cover them all.
        touched = in_best_order(replace(ranked, found=ranked.hits), marked(ranked.hits))
        first = replace(best.found, rank=np.ones_like(best.found.rank))
        best = replace(best, found=first, hits=touched.hits)
    gain = gain_of(measure, gold.conventions)
    if isinstance(gain, Mapping):
        best = replace(best, hits=best_first(best.hits, gain)[0])
    return values_of(measure, best, gold)


def _ideal_values(measure: Measure, ranked: Ranked, gold: Prepared, findable: Mask) -> Values:
    """Return the measure of the best list of some of the gold: the judgments marked."""
    ideal = ranked.target.ideal
    some = ideal if ideal.row is None else ideal.where(findable[ideal.row])
    returned = np.bincount(some.query, minlength=ranked.n)
    if (depth := gold.conventions.depth) is not None:
        some = some.where(some.so_far(np.ones(len(some.rank), dtype=bool)) <= depth)
    return _best_values(measure, Ranked(ranked.target, some, some, returned), gold)


def _parts(
    columns: Mapping[str, Values],
    unknown: Mapping[str, str],
    scores: Scores,
    known: Mask,
    top: float,
) -> list[dict[str, Any]]:
    """Return each part's mean loss, its interval, and the queries that it affects.

    All intervals are from the same resamples of queries.
    """
    values, n = {name: columns[name][known] for name in PARTS}, int(known.sum())
    # If no query wins or loses anything, nothing shows how much one might.
    estimated = {
        name: losses
        for name, losses in values.items()
        if name not in unknown and (name in _NEVER_BELOW or losses.any())
    }
    intervals: dict[str, list[float]] = {}
    if scores.conventions.interval != "none" and n > 1 and estimated:
        ranges = [
            (0.0 if name in _NEVER_BELOW and losses.min() >= 0 else -top, top)
            if np.abs(losses).max() <= top
            else None
            for name, losses in estimated.items()
        ]
        groups = None if scores.groups is None else scores.groups[known]
        plan = plan_of(scores.conventions)
        ends = mean_intervals(
            np.stack([*estimated.values()], axis=1), plan, ranges=ranges, groups=groups
        )
        intervals = dict(zip(estimated, ends.tolist(), strict=True))
    parts = []
    for name, losses in values.items():
        touched = int((np.abs(losses) > _UNTOUCHED * max(top, 1.0)).sum())
        low, high = intervals.get(name, (math.nan, math.nan))
        ci = None if math.isnan(low) else (low, high)
        facts = {"lost": aggregates.mean(columns[name]), "ci": ci, "queries": touched}
        parts.append({"part": name, **facts, "share": touched / n if n else None})
    return parts


def waterfall_section(document: Mapping[str, Any]) -> Section:
    """Return the steps from a measure's ceiling to its value.

    A part's change is below 0 if it loses, above if it wins back.
    """
    title = f"{document['measure']}: from its ceiling to its value"
    lines = short_lists_lines(document, document["measure"].rpartition("@")[2])
    if document["value"] is None:
        return Section(title, lines=lines or ["No query has a value."])
    lines += [f"not known: {part} {reason}" for part, reason in document["unknown"].items()]
    total = {"queries": document["n"], "interval": "", "what": ""}
    rows = [{"part": "ceiling", "change": figure(document["ceiling"]), **total}]
    for part in document["parts"]:
        name, ci = part["part"], part["ci"]
        cells = {"change": NOTHING, "interval": "", "queries": ""}
        if name not in document["unknown"]:
            cells = {
                "change": change(-part["lost"] if round(part["lost"], 4) else 0.0),
                "interval": interval(None if ci is None else [-ci[1] + 0.0, -ci[0] + 0.0]),
                "queries": part["queries"],
            }
        rows.append({"part": name, "what": PARTS[name], **cells})
    rows.append({"part": "value", "change": figure(document["value"]), **total})
    columns = {
        "part": "part",
        document["measure"]: "change",
        **{name: name for name in ("interval", "queries", "what")},
    }
    return Section(title, table(rows, columns), lines)


def short_lists_lines(document: Mapping[str, Any], k: int | str) -> list[str]:
    """Return a note if lists end above a cut-off."""
    ends = document["ends_at"]
    if ends is None:
        return []
    return [f"the lists were cut at {ends}: gold between there and {k} was not searched for"]
