"""How deep the lists of a run go: whether they were cut off, and which measures need more.

A list that was cut says nothing of what lies below its end. Every other short list is all that
the system had to return.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from karat.measure.conventions import Conventions
from karat.measure.names import Measure
from karat.measure.ranked import Ints, Ranked, is_budget

# So many lists of one length are no chance.
ENOUGH_LISTS = 10


@dataclass(frozen=True, slots=True)
class CutDepth:
    """The rank at which every list of a run was cut.

    ``logged`` is whether the log says so; else all ``lists`` have that length. ``beyond`` names
    the measures that would need longer lists, and so have no value.
    """

    depth: int
    logged: bool
    lists: int
    beyond: tuple[str, ...] = ()

    @property
    def because(self) -> str:
        """How one can tell that the lists were cut."""
        if self.logged:
            return f"the lists were cut at {self.depth:,}, as the log says"
        return f"the lists were cut at {self.depth:,}: all {self.lists:,} have that length"

    def document(self) -> dict[str, Any]:
        """Return the cut as it stands in a report."""
        return {
            "depth": self.depth,
            "logged": self.logged,
            "lists": self.lists,
            "because": self.because,
            "beyond": list(self.beyond),
        }


def cut_depth(
    lengths: Ints,
    conventions: Conventions,
    *,
    logged: object = None,
    corpus_items: int | None = None,
) -> CutDepth | None:
    """Return the depth at which the lists of a run were cut, None where they are complete.

    ``lengths`` counts the items of each query's list, ``logged`` is the depth that the log
    tells. A list that is longer than that was not cut there.

    >>> from karat.measure.conventions import conventions_of
    >>> cut_depth(np.full(12, 5), conventions_of("karat")).depth
    5
    >>> cut_depth(np.full(9, 5), conventions_of("karat")) is None
    True
    """
    if conventions.short_lists == "complete":
        return None
    lists = lengths[lengths > 0]
    longest = int(lists.max(initial=0))
    told = isinstance(logged, int) and not isinstance(logged, bool) and logged >= max(longest, 1)
    depth = logged if told and isinstance(logged, int) else longest
    if corpus_items is not None and depth >= corpus_items > 0:
        return None
    if told:
        return CutDepth(depth, logged=True, lists=len(lists))
    # Where karat itself ends the lists (depth=…), their common length tells nothing of the run.
    shortened = conventions.depth is not None and depth >= conventions.depth
    alike = len(lists) >= ENOUGH_LISTS and int(lists.min()) == longest
    return CutDepth(depth, logged=False, lists=len(lists)) if alike and not shortened else None


def last_ranks(measure: Measure, ranked: Ranked) -> Ints | None:
    """Return the last rank that a measure looks at in each list, where queries differ in it.

    Of a budget of tokens that a list does not fill, it is the rank after the list's end.
    """
    if measure.k is None or not isinstance(measure.k, str):
        return None
    last = ranked.limit(measure.k)
    if not is_budget(measure.k):
        return last
    one_less = f"{int(measure.k.removesuffix('tok')) - 1}tok"
    unfilled = ranked.limit(one_less) >= ranked.returned
    return np.where(unfilled, ranked.returned + 1, last)


def beyond_cut(
    measures: Collection[Measure], depth: int, last: Mapping[Measure, Ints]
) -> list[Measure]:
    """Return the measures whose cut-off lies below the depth at which lists were cut."""
    return [
        measure
        for measure in measures
        if (isinstance(measure.k, int) and measure.k > depth)
        or (measure in last and bool((last[measure] > depth).any()))
    ]


def why_beyond(measure: Measure, cut: CutDepth) -> str:
    """Say why a measure has no value."""
    return f"some lists do not fill it, and {cut.because}" if is_budget(measure.k) else cut.because
