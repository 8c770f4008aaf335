"""The page on the fairness of gold: what it means, coverage by rank, and each way to look at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from karat.reports.figures import NOTHING, change, figure, label, percent, several
from karat.reports.grids import Grid
from karat.reports.pages import Section

Results = Mapping[str, Any]


def bias_sections(bias: Results) -> list[Section]:
    """The sections on the ``bias`` of a document of ``karat pool``."""
    sections = [
        Section("Is the gold fair to every run?", None, bias["sentences"]),
        Section(f"Judged by rank, of {_judged_queries(bias)}", _bands(bias), list(_gold(bias))),
    ]
    if all(system["left_out"] for system in bias["systems"]):
        own = list(_own(bias))
        sections.append(Section("Without what one run alone has", _changes(bias, "left_out"), own))
    for rbp in bias["differences"]:
        sections.append(
            Section(f"{rbp} and what it leaves open", _residuals(bias, rbp), [_RESIDUAL])
        )
    grid = [*_changes(bias, "condensed"), *_bpref(bias)]
    sections.append(
        Section("Condensed lists", grid, list(_taus(bias, "condensed", "now and condensed")))
    )
    return sections


_RESIDUAL = (
    "unjudged: the weight of returned items that nobody judged · beyond: that of ranks below the"
    " end of a list or below the cut-off"
)


def _judged_queries(bias: Results) -> str:
    return several(bias["gold"]["queries_judged"], "query", "queries") + " with judgments"


def _bands(bias: Results) -> Grid:
    ranks = [_span(band) for band in bias["systems"][0]["coverage"]]
    grid = [["system", *ranks]]
    for system in bias["systems"]:
        shares = [band["share"] for band in system["coverage"]]
        cells = [NOTHING if share is None else percent(share) for share in shares]
        grid.append([label(system["name"]), *cells])
    return grid


def _span(band: Results) -> str:
    return f"{band['from']}" if band["from"] == band["to"] else f"{band['from']}-{band['to']}"


def _gold(bias: Results) -> Iterator[str]:
    gold = bias["gold"]
    queries = several(gold["queries_with_relevant"], "query", "queries")
    judged = several(gold["judgments"], "judgment")
    yield (
        f"the gold: {judged}, {gold['relevant']:,} relevant, of {queries} with a relevant item;"
        f" {gold['in_no_top']:,} in no given run's top, which stay"
    )
    if gold["below_zero"]:
        grades = several(gold["below_zero"], "grade is", "grades are")
        yield f"{grades} below 0: pooled, and unjudged to every measure"
    if gold["disagreeing"]:
        pairs = several(gold["disagreeing"], "pair is", "pairs are")
        yield f"{pairs} graded differently in several files; the first one counts"


def _changes(bias: Results, what: str) -> Grid:
    """Measures and systems as rows: a number now and otherwise, and the rank each time."""
    other = "without" if what == "left_out" else "condensed"
    grid = [["measure", "system", "now", other, "Δ", "share", "rank"]]
    for name in bias["measures"]:
        for system in bias["systems"]:
            cell = system[what]["measures"][name]
            grid.append(
                [
                    name,
                    label(system["name"]),
                    figure(cell["value"]),
                    figure(cell[other]),
                    change(cell["change"]),
                    _share(cell["share"]),
                    _places(cell["rank"], cell[f"rank_{other}"]),
                ]
            )
    return grid


def _share(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:+.1f} %" if share else "0.0 %"


def _places(now: int | None, then: int | None) -> str:
    if now is None or then is None:
        return NOTHING
    return f"{now}" if now == then else f"{now} → {then}"


def _own(bias: Results) -> Iterator[str]:
    for system in bias["systems"]:
        left = system["left_out"]
        judgments = several(left["unique"], "judgment")
        told = (
            f"{label(system['name'])}: {judgments} that no other given run has,"
            f" {left['unique_relevant']:,} relevant"
        )
        if left["queries_emptied"]:
            lost = several(left["queries_emptied"], "query loses", "queries lose")
            stay = "stays" if left["queries_emptied"] == 1 else "stay"
            told += (
                f"; {lost} the last relevant item and {stay} in every mean, with nothing to find"
            )
        yield told
    yield from _taus(bias, "left_out", "the lowest of all runs left out")


def _taus(bias: Results, what: str, which: str) -> Iterator[str]:
    taus = {name: own[what] for name, own in bias["taus"].items() if own[what] is not None}
    if taus:
        told = " · ".join(f"{name} {tau:.2f}" for name, tau in taus.items())
        yield f"Kendall's tau of the order of the runs, {which}: {told}"


def _residuals(bias: Results, rbp: str) -> Grid:
    grid = [["system", "at least", "unjudged", "beyond", "at most"]]
    for system in bias["systems"]:
        cell = system["residual"][rbp] or {}
        cells = [figure(cell.get(name)) for name in ("low", "unjudged", "beyond", "high")]
        grid.append([label(system["name"]), *cells])
    return grid


def _bpref(bias: Results) -> Grid:
    """Bpref as further rows: it looks at judged items only, so condensing changes nothing."""
    if "Bpref" in bias["measures"]:
        return []
    rows = []
    for system in bias["systems"]:
        cell = system["condensed"]["Bpref"]
        value, rank = figure(cell["value"]), _places(cell["rank"], cell["rank"])
        rows.append(["Bpref", label(system["name"]), value, value, NOTHING, NOTHING, rank])
    return rows
