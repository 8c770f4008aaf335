"""The page on what to judge next: whether a verdict can still change, and what would change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from karat.reports.figures import (
    NOTHING,
    between,
    change,
    figure,
    interval,
    label,
    p_value,
    percent,
    several,
)
from karat.reports.grids import Grid
from karat.reports.notes import counts_lines
from karat.reports.pages import Page, Section

Results = Mapping[str, Any]
_WITHOUT_GOLD = "queries without relevant gold count"


def next_page(results: Results) -> Page:
    """The page on the results part of a document of ``karat next``."""
    sections = [Section("What labels could change", _grid_of_state(results))]
    if results["next"]:
        sections.append(Section("To judge next", _grid_of_pairs(results)))
    return Page("What to judge next", [*_headlines(results)], sections, [*_last(results)])


def _headlines(results: Results) -> Iterator[str]:
    many = several(results["unjudged"], "unjudged pair")
    if "comparison" in results:
        yield results["comparison"]["because"]
    if results["cannot_tell"] is not None:
        yield f"cannot tell: {results['cannot_tell']}; mend that first, then ask what to judge"
        return
    if not results["unjudged"]:
        yield f"nothing is left to judge: {_final(results)}"
    elif results["settled"]:
        yield f"stop: {_final(results)} whatever the {_others(results['unjudged'])}"
    elif results["next"]:
        these = "this one" if len(results["next"]) == 1 else f"these {len(results['next']):,}"
        yield f"judge {these} next, of {many}: {_open(results)}"
    else:
        depth = results["depth"]
        where = "" if depth is None else f" among the first {depth:,} of a list"
        yield f"no single judgment{where} would change anything: {_open(results)}"


def _others(unjudged: int) -> str:
    return "other one is" if unjudged == 1 else f"other {unjudged:,} are"


def _final(results: Results) -> str:
    if "comparison" in results:
        return f"the verdict is {results['now'] or 'none'}"
    told = results["range"]
    if told["mean"] is None:
        return f"{results['measure']} has no value"
    ends = between(figure(told["low"]), figure(told["high"]))
    return f"{results['measure']} is {ends}"


def _open(results: Results) -> str:
    if "comparison" in results:
        if results["now"] == results["at_worst"] == results["at_best"]:
            return str(results["because"])
        ends = f"{results['at_worst']} under the worst labels, {results['at_best']} under the best"
        return f"the verdict could still be {ends}"
    ends = between(figure(results["range"]["low"]), figure(results["range"]["high"]))
    return f"{results['measure']} could still be {ends}"


def _grid_of_state(results: Results) -> Grid:
    if "comparison" not in results:
        told = results["range"]
        heads = ["system", results["measure"], "lowest", "highest", "unjudged", "can matter"]
        cells = [figure(told[name]) for name in ("mean", "low", "high")]
        return [heads, [label(results["systems"][0]["name"]), *cells, *_counts(results)]]
    row = results["comparison"]
    low, high = results["delta"] or (None, None)
    heads = ["", f"Δ {results['measure']}", "p", "verdict", "unjudged", "can matter"]
    now = f"{change(row['delta'])} {interval(row['ci'])}".strip()
    # The worst end is the low one, unless low is better.
    ends = [("at worst", low, results["at_worst"]), ("at best", high, results["at_best"])]
    if results["better"] == "lower":
        ends = [("at worst", high, results["at_worst"]), ("at best", low, results["at_best"])]
    return [
        heads,
        ["now", now, p_value(row["p"]), results["now"] or NOTHING, *_counts(results)],
        *([name, change(end), "", verdict or NOTHING, "", ""] for name, end, verdict in ends),
    ]


def _counts(results: Results) -> list[str]:
    return [f"{results[name]:,}" for name in ("unjudged", "can_matter")]


def _grid_of_pairs(results: Results) -> Grid:
    two = "comparison" in results
    systems = [label(one["name"]) for one in results["systems"]]
    ranks = ["first_rank", "second_rank"] if two else ["first_rank"]
    heads = ["query", "item", *systems, "chance", "if relevant", "expected"]
    grid: Grid = [heads]
    for row in results["next"]:
        grid.append(
            [
                label(row["query_id"]),
                label(row["item_id"]),
                *(NOTHING if row[name] is None else f"{row[name]:,}" for name in ranks),
                percent(row["chance"]),
                _small(row["effect"]),
                _small(row["expected"], signed=False),
            ]
        )
    return grid


def _small(value: float, *, signed: bool = True) -> str:
    """Five decimals: one judgment of many moves a mean by little."""
    sign = "+" if signed and value > 0 else ""
    return f"{sign}{value:.5f}"


def _last(results: Results) -> Iterator[str]:
    yield from counts_lines(results)
    if results["without_gold"]:
        many = results["without_gold"]
        queries = several(many, "query without relevant gold counts", _WITHOUT_GOLD)
        yield f"{queries} as having none, since a judgment may bring some"
    if results["judged_again"]:
        again = several(results["judged_again"], "pair")
        other = results["judged_differently"]
        told = f", {other:,} of them differently" if other else ""
        yield f"{again} judged again by a later file{told}: the first judgment counts"
    if not results["exact"]:
        yield "the ends are safe: no labels lead beyond them, and they may be out of reach"
    if results["next"]:
        yield (
            "ranks by system · chance to be relevant · what the mean changes by if it is"
            " · chance times the size of that change"
        )
    conventions = results["conventions"]
    yield (
        f"profile {conventions['profile']} · ties {conventions['ties']} · a file of pairs is"
        f" shuffled, seed {conventions['seed']}"
    )
