"""Evaluate one measure on ranked lists: its arguments, its values, and how deep it looks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from karat.measure.aggregates import Values
from karat.measure.conventions import Conventions, Gain, gain_of_setting
from karat.measure.kernels.ranks import nodes_of_area
from karat.measure.names import Measure, follows_gain
from karat.measure.prepare import Prepared
from karat.measure.ranked import Ints, Mask, Ranked, Target, is_budget
from karat.measure.registry import MEASURES, RANGES


def arguments_of(measure: Measure, conventions: Conventions) -> dict[str, Any]:
    """Return the arguments of a measure's function: its parameters, and the conventions."""
    takes = measure.definition.parameters
    defaults: dict[str, Any] = {
        "rel": conventions.rel,
        "recall_point": conventions.recall_point,
        "versions": conventions.versions,
    }
    if conventions.gain != "linear" and follows_gain(measure):
        defaults["gain"] = gain_of_setting(conventions.gain)
    return {key: value for key, value in defaults.items() if key in takes} | measure.arguments


def gain_of(measure: Measure, conventions: Conventions) -> Gain:
    """Return the gain of a measure: its own parameter, else that of the conventions."""
    gain: Gain = arguments_of(measure, conventions).get("gain", "linear")
    return gain


def values_of(measure: Measure, ranked: Ranked, gold: Prepared) -> Values:
    """Return a measure's value for each list; NaN where a query without gold is kept apart."""
    arguments = arguments_of(measure, gold.conventions)
    values = np.asarray(measure.definition.function(ranked, measure.k, **arguments))
    if gold.conventions.empty_gold == "zero":
        return values
    return np.where(_without_gold(measure, ranked.target, gold), np.nan, values)


def _without_gold(measure: Measure, target: Target, gold: Prepared) -> Mask:
    """Return which queries have no gold that this measure could count."""
    need = gold_for(measure)
    if need == "none":
        return np.zeros(target.n, dtype=bool)
    if need == "graded":
        return np.equal(np.bincount(target.ideal.query, minlength=target.n), 0)
    rel = gold.conventions.rel
    if need == "relevant":
        rel = measure.arguments.get("rel", rel)
    return np.equal(target.relevant(rel), 0)


def gold_for(measure: Measure) -> str:
    """Return which gold a query must have; parameters may ask for other gold than usual."""
    of, gain = measure.arguments.get("of"), measure.arguments.get("gain")
    if of == "corpus":
        return "none"
    if measure.name == "AUC" and of is not None:
        return MEASURES[of].gold
    return "graded" if measure.name == "RBP" and gain == "linear" else measure.definition.gold


def worst_of(measure: Measure, empty: Ranked, gold: Prepared) -> Values:
    """Return the value of queries without an answer: 0, or 1 for a rate that should be low."""
    definition = measure.definition
    if definition.name == "FalseEvidence":
        return np.where(empty.target.no_answer, np.inf, np.nan)
    if definition.better == "none":
        # A description of lists has no worst value: an empty list is described as it is.
        return np.full(empty.n, np.nan) if definition.needs else values_of(measure, empty, gold)
    apart = gold.conventions.empty_gold == "apart"
    nothing = _without_gold(measure, empty.target, gold) & apart
    # What an answer is compared with, where queries bring it.
    columns = {"Fresh": empty.target.as_of, "EL_F1": empty.target.entities}
    column: Sequence[object] = columns.get(measure.name) or [True] * empty.n
    absent = np.array([value is None or value == "" for value in column], dtype=bool)
    return np.where(nothing | absent, np.nan, definition.worst)


def tie_sensitive(measure: Measure, conventions: Conventions) -> bool:
    """Return whether the order of tied hits can change a measure, and relevant first is best."""
    definition = measure.definition
    plain = not definition.needs and definition.evidence is None and not is_budget(measure.k)
    # A map may value a lower grade more, and infAP rewards what was pooled and never judged.
    if isinstance(gain_of(measure, conventions), Mapping) or measure.name == "infAP":
        return False
    return plain and gold_for(measure) in {"relevant", "graded"} and definition.better != "none"


# --- Whether a measure has a range over unjudged items -----------------------------------------

# A scale with more steps is not a rating scale.
_MOST_STEPS = 100.0


def possible_grades(gold: Prepared) -> Values:
    """Return the possible grades of an item: whole grades up to the highest, and any in use.

    The gold of every query counts, since raters judge all of them on one scale. Of a scale with
    more than 100 steps only grades in use are possible.
    """
    used = gold.grade[gold.grade > 0]
    top = used.max(initial=max(1.0, gold.top_grade))
    whole = np.arange(0.0, np.floor(min(top, _MOST_STEPS)) + 1)
    # Without np.unique, which would load NumPy's masked arrays.
    grades = np.sort(np.concatenate((whole, used, [top])))
    return grades[np.diff(grades, prepend=-1) > 0]


def why_unbounded(measure: Measure, gold: Prepared) -> str | None:
    """Return why a measure has no range, as a sentence; None where it has one."""
    conventions = gold.conventions
    if conventions.level != "item":
        return f"bounds need judgments of items; these are of level {conventions.level}"
    definition, arguments = measure.definition, arguments_of(measure, conventions)
    if definition.unjudged == "area":
        node = nodes_of_area(measure.k, **arguments)[0]
        definition, arguments = node.definition, dict(node.arguments)
    if definition.unjudged not in RANGES:
        return definition.unjudged.format(measure)
    if is_budget(measure.k):
        return f"{measure} cuts lists by tokens; bounds need a cut-off that counts items"
    # The measure would refuse this label.
    settings = {**definition.parameters, **arguments}
    if "max" in settings and settings.get("gain", "linear") == "linear":
        highest, top = settings["max"], possible_grades(gold).max()
        if top > highest:
            return (
                f"an unjudged item could be of grade {top:g}, above the max={highest:g} of"
                f" {measure}"
            )
    return None


# --- How deep lists go -------------------------------------------------------------------------
#
# A list that was cut says nothing of what lies below its end. Every other short list is all that
# the system had to return.

# This many lists of one length are not a coincidence.
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
        """The evidence that the lists were cut."""
        if self.logged:
            return f"the lists were cut at {self.depth:,}, as the log says"
        return f"the lists were cut at {self.depth:,}: all {self.lists:,} have that length"


def cut_depth(
    lengths: Ints,
    conventions: Conventions,
    *,
    logged: object = None,
    corpus_items: int | None = None,
) -> CutDepth | None:
    """Return the depth at which the lists of a run were cut, None where they are complete.

    ``lengths`` counts the items of each query's list, ``logged`` is the depth that the log
    states. A list that is longer than that was not cut there.

    >>> from karat.measure.conventions import conventions_of
    >>> cut_depth(np.full(12, 5), conventions_of("karat")).depth
    5
    >>> cut_depth(np.full(9, 5), conventions_of("karat")) is None
    True
    """
    if conventions.short_lists == "complete":
        return None
    lists = lengths[lengths > 0]
    depth = int(lists.max(initial=0))
    depth_in_log = logged if isinstance(logged, int) and not isinstance(logged, bool) else 0
    in_log = depth_in_log >= max(depth, 1)
    if in_log:
        depth = depth_in_log
    elif len(lists) < ENOUGH_LISTS or int(lists.min()) < depth:
        return None
    elif conventions.depth is not None and depth >= conventions.depth:
        # karat itself ended the lists, so that their common length tells nothing of the run.
        return None
    if corpus_items is not None and depth >= corpus_items > 0:
        return None
    return CutDepth(depth, logged=in_log, lists=len(lists))


def last_ranks(k: str, ranked: Ranked) -> Ints:
    """Return the last rank within a cut-off in which queries differ, for each list.

    Of a budget of tokens that a list does not fill, it is the rank after the list's end.
    """
    last = ranked.limit(k)
    if not is_budget(k):
        return last
    one_less = f"{int(k.removesuffix('tok')) - 1}tok"
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
