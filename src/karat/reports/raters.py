"""How far several people agree, and how their judgments became one grade a pair, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from karat.reports.figures import NOTHING, label, several
from karat.reports.grids import Grid
from karat.reports.pages import Section

Results = Mapping[str, Any]
_WEIGHTS = {"none": "kappa", "linear": "linear", "quadratic": "quadratic"}
_METHODS = {
    "majority": "what most of its raters say",
    "dawid-skene": "Dawid and Skene's model of what each rater's word is worth",
}


def people_section(agreement: Results) -> Section:
    """The part of a page on people who judged the same pairs."""
    pairs = several(agreement["pairs"], "pair")
    return Section(
        f"People among themselves on {pairs} that several judged",
        _grid(agreement) if agreement["with_judge"]["kappas"] else None,
        [*_alpha_lines(agreement), *truth_lines(agreement)],
    )


def truth_lines(agreement: Results) -> Iterator[str]:
    """How one grade a pair came about, and what has none."""
    truth = agreement["truth"]
    parts = [f"{several(truth['decided'], 'pair')} decided"] if truth["decided"] else []
    if truth["ties"]:
        parts.append(f"{several(truth['ties'], 'tie')} left out")
    if truth["cannot_tell"]:
        pairs = several(truth["cannot_tell"], "pair")
        parts.append(f"{pairs} that nobody could tell, left out")
    if agreement["not_judged"]:
        parts.append(f"{several(agreement['not_judged'], 'label')} below 0: pooled, not judged")
    if len(agreement["raters"]) > 1:
        parts.insert(0, f"the grade of a pair is {_METHODS[truth['method']]}")
    if parts:
        yield " · ".join(parts)
    if truth["converged"] is False:
        yield f"the model was still moving after {truth['iterations']:,} iterations"


def _grid(agreement: Results) -> Grid:
    """Every two raters, then each with the judge."""
    grid = [["raters", "pairs", *_WEIGHTS.values()]]
    for one in agreement["kappas"]:
        grid.append([" and ".join(map(label, one["raters"])), *_kappas(one)])
    for one in agreement["with_judge"]["kappas"]:
        grid.append([f"{label(one['rater'])} and the judge", *_kappas(one)])
    return grid


def _kappas(one: Results) -> list[str]:
    return [f"{one['pairs']:,}", *(_told(one[name]) for name in _WEIGHTS)]


def _alpha_lines(agreement: Results) -> Iterator[str]:
    yield f"Krippendorff's alpha of people: {_alphas(agreement)}"
    both = agreement["with_judge"]
    yield (
        f"with the judge as one more rater, on {several(both['pairs'], 'pair')}: {_alphas(both)}"
    )


def _alphas(part: Results) -> str:
    return " · ".join(f"{level} {_told(value)}" for level, value in part["alpha"].items())


def _told(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"
