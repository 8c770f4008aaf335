"""The page on a calibration: the corrected share first, then how the judge meets people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from karat.judging.calibrate import FEW
from karat.reports.figures import NOTHING, PART, figure, interval, label, percent, several
from karat.reports.grids import Grid
from karat.reports.pages import Page, Section
from karat.reports.raters import people_section, truth_lines

Results = Mapping[str, Any]

# Above this share of draws without a usable judge, those that are left tell too little.
_MANY_SKIPPED = 0.05


def calibration_page(results: Results) -> Page:
    """The page on the results part of a document of ``karat calibrate``."""
    sections = [
        Section(
            f"The judge against people on {several(results['pairs']['both'], 'pair')}",
            _grades_grid(results),
            list(_pair_lines(results)),
        ),
        Section(
            f"Relevant from grade {results['rel']:g} on",
            _rates_grid(results),
            [_kappa_line(results), *_few_lines(results)],
        ),
    ]
    if len(results["raters_agreement"]["raters"]) > 1:
        sections.append(people_section(results["raters_agreement"]))
    for by, segments in results["segments"].items():
        sections.append(Section(f"By {label(by)}", _segments_grid(by, segments)))
    only = f"the correction is for {results['corrected']['only']}"
    last = [*_share_lines(results), only, *_interval_lines(results)]
    return Page("How far the judge can be trusted", [headline(results)], sections, last)


def headline(results: Results) -> str:
    """The corrected share, or why there is none."""
    name = share_name(results)
    fixed, share = results["corrected"], results["share"]
    if fixed["value"] is None:
        return f"no corrected {name}: {fixed['because']}{_people_alone(results)}"
    ends = f" {interval(fixed['ci'])}" if fixed["ci"] else ""
    return f"corrected {name}: {figure(fixed['value'])}{ends}; uncorrected {figure(share['value'])}"


def _people_alone(results: Results) -> str:
    """What people's own sample says where the judge's word is worth nothing."""
    sample = results["prediction_powered"]
    if sample is None or sample["weight"]:
        return ""
    ends = f" {interval(sample['ci'])}" if sample["ci"] else ""
    return f"; people's sample alone says {figure(sample['value'])}{ends}"


def share_name(results: Results) -> str:
    """What the share is of."""
    if results["k"] is None:
        return "precision of all that was judged"
    system, gaps = label(results["system"]), results["run"] or {}
    if any(gaps.get(one) for one in ("empty", "missing", "failed_calls")):
        # P@k counts an empty place as a miss, which is no judge's error to correct.
        return f"precision of what {system} returned in its top {results['k']}"
    return f"P@{results['k']} of {system}"


def _grades_grid(results: Results) -> Grid:
    grid = [["people", *(f"judge {one:g}" for one in results["grades"])]]
    for grade, row in zip(results["grades"], results["table"], strict=True):
        grid.append([f"{grade:g}", *(f"{count:,}" for count in row)])
    return grid


def _pair_lines(results: Results) -> Iterator[str]:
    pairs = results["pairs"]
    told = {
        "human_only": "judged by people only",
        "judge_only": "by the judge only",
        "judge_failed": "failed, which is no grade",
        "left_out": "left out, of queries that are not asked",
    }
    parts = [f"{pairs[name]:,} {words}" for name, words in told.items() if pairs[name]]
    if results["not_judged"]:
        labels = several(results["not_judged"], "label")
        parts.append(f"{labels} of the judge below 0: pooled, not judged")
    if parts:
        yield " · ".join(parts)
    if len(results["raters_agreement"]["raters"]) < 2:
        yield from truth_lines(results["raters_agreement"])


def _rates_grid(results: Results) -> Grid:
    grid = [["what", "rate", "n"]]
    for name in ("sensitivity", "specificity"):
        rate = results[name]
        grid.append([name, _measured(rate), f"{rate['n']:,}{' few' if rate['few'] else ''}"])
    return grid


def _measured(cell: Results) -> str:
    return f"{figure(cell['value'])}{PART}{interval(cell['ci'])}"


def _kappa_line(results: Results) -> str:
    names = {
        "none": "kappa",
        "linear": "linear",
        "quadratic": "quadratic",
        "relevant": "relevant or not",
    }
    return " · ".join(f"{words} {_kappa(results, name)}" for name, words in names.items())


def _kappa(results: Results, name: str) -> str:
    value = results["kappa"][name]
    return NOTHING if value is None else f"{value:.4f}"


def _few_lines(results: Results) -> Iterator[str]:
    for name, class_ in (("sensitivity", "relevant"), ("specificity", "not relevant")):
        n = results[name]["n"]
        if 0 < n < FEW:
            yield (
                f"people call only {several(n, 'pair')} {class_}: {name} is hardly known and the"
                f" interval wide; {FEW} or more would help"
            )


def _segments_grid(by: str, segments: Results) -> Grid:
    grid = [[label(by), "pairs", "sensitivity", "specificity", "uncorrected", "corrected"]]
    if any(own["corrected"]["value"] is None for own in segments.values()):
        grid[0].append("")
    for value, own in segments.items():
        few = own["sensitivity"]["few"] or own["specificity"]["few"]
        grid.append(
            [
                label(value),
                f"{own['pairs']['both']:,}{' few' if few else ''}",
                _measured(own["sensitivity"]),
                _measured(own["specificity"]),
                figure(own["share"]["value"]),
                _measured(own["corrected"]),
                *([own["corrected"]["because"] or ""] if len(grid[0]) > 6 else []),
            ]
        )
    return grid


def _share_lines(results: Results) -> Iterator[str]:
    """What the share is made of, and what is left out of it."""
    share = results["share"]
    told = f"{share['judged_relevant']:,} of {several(share['judged'], 'item')} judged relevant"
    if share["known"]:
        told += f", {share['known_relevant']:,} of {share['known']:,} known from the gold"
    queries = several(share["queries"], "query", "queries")
    yield f"{told}, over {queries}"
    if share["unjudged"]:
        left = several(share["unjudged"], "item")
        yield f"{left} in the top {results['k']} that nobody judged, left out"
    gaps = results["run"] or {}
    if gaps.get("empty"):
        places = several(gaps["empty"], "place is", "places are")
        yield (
            f"{places} empty in the top {results['k']}; the share is of what was returned, and"
            " karat eval --judged --human counts them as P@k does"
        )
    parts = [
        several(gaps[name], *words)
        for name, words in {
            "missing": ("query missing from the run", "queries missing from the run"),
            "failed_calls": ("failed call", "failed calls"),
            "not_asked": ("query in the run but not asked", "queries in the run but not asked"),
            "repeats": ("repeated hit", "repeated hits"),
        }.items()
        if gaps.get(name)
    ]
    if parts:
        yield " · ".join(parts)


def _interval_lines(results: Results) -> Iterator[str]:
    fixed, conventions = results["corrected"], results["conventions"]
    if fixed["value"] is None:
        return
    if fixed["ci"] is None:
        what = "people's labels" if results["interval"] == "ppi" else "judged items"
        yield f"no interval: at least two queries with {what} are needed"
        return
    share = f"{100 * conventions['ci']:.4g} % interval"
    units = "groups of queries" if conventions["unit"] == "group" else "queries"
    if results["interval"] == "ppi":
        yield from _powered_lines(results["prediction_powered"], f"{share} ppi", units)
        return
    seed = f"seed {conventions['seed']}"
    if results["interval"] == "beta":
        yield (
            f"{share} beta: {fixed['draws']:,} draws, items taken as independent of each other,"
            f" {seed}"
        )
    else:
        yield (
            f"{share} cluster: {fixed['draws']:,} resamples of whole {units}, sensitivity and"
            f" specificity with them, {seed}"
        )
        if fixed["drawn"]:
            drawn = " and ".join(fixed["drawn"])
            yield f"drawn from Beta, since too little of it was seen: {drawn}"
    if fixed["skipped"] > _MANY_SKIPPED * fixed["draws"]:
        lost = percent(fixed["skipped"] / fixed["draws"])
        yield (
            f"in {lost} of the draws the judge is no better than chance; the interval leaves them"
            " out and is too short"
        )


def _powered_lines(sample: Results, name: str, units: str) -> Iterator[str]:
    """What a prediction-powered interval stands on, and when it holds."""
    labels = several(sample["labels"], "label")
    yield (
        f"{name}: {labels} of people in {sample['units']:,} {units}; the judge's word on the rest"
        f" has a weight of {sample['weight']:.2f}"
    )
    yield "it holds only if people judged a uniform sample of these items, as karat pool draws one"
