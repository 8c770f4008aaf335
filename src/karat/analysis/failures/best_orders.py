"""What lists are worth as they are, and what they could be worth in the best order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from karat.errors import UsageError
from karat.measures import numbers
from karat.measures.kernels.ranks import best_first
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.prepare import Prepared
from karat.measures.ranked import Entries, Mask, Ranked, in_best_order, is_budget
from karat.measures.valuing import gain_of, values_of

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
        and definition.number is numbers.mean
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
    """The measure of lists whose gold stands in the best order.

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
    """The measure of the best list of some of the gold: the judgments marked."""
    ideal = ranked.target.ideal
    some = ideal if ideal.row is None else ideal.where(known[ideal.row])
    returned = np.bincount(some.query, minlength=ranked.n)
    if (depth := gold.conventions.depth) is not None:
        some = some.where(some.so_far(np.ones(len(some.rank), dtype=bool)) <= depth)
    return best_values(measure, Ranked(ranked.target, some, some, returned), gold)
