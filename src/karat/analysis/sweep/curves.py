"""Curves: measures without a cut-off, to be taken at each of several."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from karat.errors import UsageError
from karat.measures.aggregates import Values
from karat.measures.conventions import Conventions
from karat.measures.names import Measure, parse_measure
from karat.measures.registry import MEASURES, Definition

# A cut-off: a rank, or a budget such as 500tok.
K = int | str
# Each cut-off is scored and resampled.
MOST_KS = 200
# The curves of a sweep that names none.
DEFAULT_MEASURES = ("R", "nDCG")

# Commas and blanks that stand outside of brackets.
_BETWEEN = re.compile(r"[\s,]+(?![^({]*[)}])")


@dataclass(frozen=True, slots=True)
class Curve:
    """A measure without its cut-off, and with each of some, from the smallest."""

    name: str
    at: Mapping[K, Measure]

    @property
    def bare(self) -> Measure:
        """The measure without a cut-off."""
        return replace(next(iter(self.at.values())), k=None)

    def only(self, ks: Collection[K]) -> Curve:
        """Return the same curve at some of its cut-offs."""
        return Curve(self.name, {k: one for k, one in self.at.items() if k in ks})


def size_of(k: K) -> int:
    """Return the number in a cut-off.

    >>> size_of(10), size_of("500tok")
    (10, 500)
    """
    return k if isinstance(k, int) else int(k.removesuffix("tok"))


def parse_ks(text: str) -> tuple[K, ...]:
    """Cut-offs from the smallest to the largest: all ranks, or all budgets of tokens.

    >>> parse_ks("10, 1, 5"), parse_ks("1000tok,500tok")
    ((1, 5, 10), ('500tok', '1000tok'))
    >>> parse_ks("1,1.5")
    Traceback (most recent call last):
    karat.errors.UsageError: k is '1.5'; it is a whole number above 0, or a budget such as 500tok
    """
    ks = [_k(one) for one in re.split(r"[\s,]+", text.strip()) if one]
    if not ks:
        raise UsageError("no k is named; give some, such as 1,3,5,10,20")
    if len(ks) > MOST_KS:
        raise UsageError(f"{len(ks):,} cut-offs are too many; name at most {MOST_KS}")
    twice = next((k for at, k in enumerate(ks) if k in ks[:at]), None)
    if twice is not None:
        raise UsageError(f"k has {twice} twice; name each cut-off once")
    budget = next((k for k in ks if isinstance(k, str)), None)
    rank = next((k for k in ks if isinstance(k, int)), None)
    if budget is not None and rank is not None:
        raise UsageError(
            f"k mixes ranks ({rank}) and budgets of tokens ({budget}); sweep one kind at a time"
        )
    return tuple(sorted(ks, key=size_of))


def _k(text: str) -> K:
    number = re.fullmatch(r"([0-9]{1,12})(tok)?", text.casefold())
    if number is None or int(number[1]) < 1:
        raise UsageError(f"k is {text!r}; it is a whole number above 0, or a budget such as 500tok")
    return f"{int(number[1])}tok" if number[2] else int(number[1])


def parse_curves(
    texts: Sequence[str], ks: Sequence[K], *, conventions: Conventions | None = None
) -> list[Curve]:
    """Measures written without a cut-off, such as ``R, nDCG(gain='exp')``, at every cut-off.

    >>> [str(one) for one in parse_curves(["R"], (1, 5))[0].at.values()]
    ['R@1', 'R@5']
    """
    names = [one for text in texts for one in _BETWEEN.split(text.strip()) if one]
    if not names:
        raise UsageError("no measure named; give one without a cut-off, such as R")
    found: dict[str, Curve] = {}
    for name in names:
        _refuse_what_has_no_curve(name)
        at = {k: parse_measure(f"{name}@{k}", conventions=conventions) for k in ks}
        if any(one.k != k for k, one in at.items()):
            raise _has_a_cut(name, str(replace(at[ks[0]], k=None)), str(at[ks[0]].k))
        curve = Curve(name, at)
        found.setdefault(str(curve.bare), replace(curve, name=str(curve.bare)))
    return list(found.values())


def _refuse_what_has_no_curve(text: str) -> None:
    """Return a sweep chooses the cut-offs: a measure comes without one, and must take one."""
    if "@" in text:
        name, _, cut = text.partition("@")
        raise _has_a_cut(text, name, cut.strip("{}"))
    definition = _defined(text)
    if definition is None:
        measure = parse_measure(text)
        if measure.k is not None:
            raise _has_a_cut(text, str(replace(measure, k=None)), str(measure.k))
        definition = measure.definition
    if definition.cutoff == "path":
        other = "; --budget latency.total shows it beside a curve"
        what = f"{text} is measured once a call and has no curve over k"
        raise UsageError(what + (other if definition.name == "latency" else ""))
    if definition.cutoff == "recall":
        raise UsageError(f"{definition.name} is taken at points of recall, not at cut-offs")
    if definition.cutoff == "none":
        raise UsageError(f"{definition.name} takes no cut-off, so it has no curve over k; try R")


def _has_a_cut(text: str, name: str, cut: str) -> UsageError:
    return UsageError(f"{text!r} has a cut-off, which a sweep chooses; write {name}, and --k {cut}")


def _defined(text: str) -> Definition | None:
    """Return the measure of a name in any spelling; None if the name has parameters."""
    name = text.partition("(")[0].strip().casefold()
    for definition in MEASURES.values():
        if name in {one.casefold() for one in (definition.name, *definition.aliases)}:
            return definition
    return None


# What a larger k may still add, as a share of the curve's highest value.
FLAT = 0.02
# Two points are a line: whether it has flattened takes a third.
FEWEST = 3
# Sums of the same values may differ in their last bits.
_ROUNDING = 1e-12

Better = Literal["higher", "lower", "none"]


@dataclass(frozen=True, slots=True)
class Knee:
    """The place (from 0) from which a curve is flat; if None, ``because`` says why."""

    at: int | None
    because: str | None = None


def knee_of(values: Sequence[float], *, better: Better = "higher", flat: float = FLAT) -> Knee:
    """Return the first value that no later one beats by more than ``flat`` of the highest.

    If only the last value is such, the curve has not flattened yet.

    >>> knee_of([0.40, 0.60, 0.70, 0.71]).at, knee_of([0.4, 0.5, 0.6]).because
    (2, 'it has not flattened yet')
    """
    if better == "none":
        return Knee(None, "neither high nor low is better")
    if len(values) < FEWEST:
        many = "1 cut-off was" if len(values) == 1 else f"{len(values) or 'no'} cut-offs were"
        return Knee(None, f"{many} measured, and it takes {FEWEST} to see a curve flatten")
    highest = max(map(abs, values))
    if not highest:
        return Knee(None, "it is 0 throughout")
    good = np.array(values) if better == "higher" else -np.array(values)
    best_after = np.maximum.accumulate(good[::-1])[::-1]
    flat_from = best_after - good <= flat * highest + _ROUNDING
    first = int(np.argmax(flat_from))
    if first == len(values) - 1:
        return Knee(None, "it has not flattened yet")
    return Knee(first)


def area_under(heights: Sequence[Values], places: Sequence[int]) -> Values:
    """Return the area of each query's curve by trapezoids; NaN if a value is missing.

    >>> area_under([np.array([0.0]), np.array([1.0]), np.array([1.0])], [1, 3, 5])
    array([0.75])
    """
    total = np.zeros(len(heights[0]))
    sides = zip(places, places[1:], heights, heights[1:], strict=False)
    for low, high, left, right in sides:
        total = total + (high - low) * (left + right) / 2
    return np.asarray(total / (places[-1] - places[0]))
