"""A pool as a file for raters, and the page on it: what is to be judged, who brought it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from karat.judging.pool import Pool
from karat.measures.conventions import ANY_GRADE
from karat.reports.figures import NOTHING, label, percent, several
from karat.reports.grids import Grid
from karat.reports.pages import Page, Section
from karat.reports.pool_bias import bias_sections
from karat.reports.sheets import Sheet

Results = Mapping[str, Any]

# Each count in words, for one and for more.
_GAPS = {
    "missing": ("query missing from the run", "queries missing from the run"),
    "failed_calls": ("failed call", "failed calls"),
    "not_asked": ("query in the run but not asked", "queries in the run but not asked"),
    "repeats": ("repeated hit", "repeated hits"),
    "order_conflicts": ("rank against its score", "ranks against their scores"),
}


@dataclass(frozen=True, eq=False)
class Pooled:
    """A pool, and what is said of it."""

    pool: Pool
    sheet: Sheet

    def document(self) -> dict[str, Any]:
        """Everything but the pairs."""
        return self.sheet.document()

    def page(self) -> Page:
        """The page on it."""
        return self.sheet.page()


def to_jsonl(pooled: Pooled) -> bytes:
    """One pair a line, as a rater may see it: no key tells which system brought it, or where."""
    lines = (json.dumps(record, ensure_ascii=False) for record in pooled.pool.records())
    return "".join(f"{line}\n" for line in lines).encode()


def pool_page(results: Results) -> Page:
    """The page on the results part of a document of ``karat pool``."""
    gaps = [line for system in results["systems"] for line in _gaps(system)]
    section = Section(f"Judged of the top {results['depth']:,}", _grid(results), gaps)
    more = bias_sections(results["bias"]) if "bias" in results else []
    sections = [section, *more]
    return Page("A pool to judge", list(_headlines(results)), sections, list(_last(results)))


def _headlines(results: Results) -> Iterator[str]:
    runs = several(len(results["systems"]), "run holds", "runs hold")
    pairs = f"the top {results['depth']:,} of {runs} {several(results['union'], 'pair')}"
    judged = "" if not results["judged"] else f", {results['judged']:,} of them judged"
    yield f"{pairs}{judged}"
    queries = several(results["pooled_queries"], "query", "queries")
    drawn = f"{several(results['pairs'], 'pair')} of {queries}"
    if not results["pairs"]:
        yield "nothing is left to judge"
    elif results["sample"] is None:
        kept = " (judged ones too)" if results["include_judged"] else ""
        yield f"the pool: {drawn}{kept}"
    elif results["pairs"] < results["sample"]:
        yield f"the sample of {results['sample']:,} is the whole pool, {drawn}: there are no more"
    else:
        kept = ", judged ones too" if results["include_judged"] else ""
        yield f"the sample: {drawn}, drawn from {results['to_judge']:,}{kept}"


def _grid(results: Results) -> Grid:
    grid = [["system", "items", "judged", "share", "in the pool", "alone"]]
    for system in results["systems"]:
        share = system["judged_share"]
        grid.append(
            [
                label(system["name"]),
                *(f"{system[name]:,}" for name in ("items", "judged")),
                NOTHING if share is None else percent(share),
                *(f"{system[name]:,}" for name in ("in_pool", "alone")),
            ]
        )
    return grid


def _gaps(system: Results) -> Iterator[str]:
    told = [several(system[name], *words) for name, words in _GAPS.items() if system[name]]
    if told:
        yield f"{label(system['name'])}: {' · '.join(told)}"


def _last(results: Results) -> Iterator[str]:
    lacking = [
        several(results[f"{what}_without_text"], one, what)
        for one, what in (("query", "queries"), ("item", "items"))
        if results[f"{what}_without_text"]
    ]
    if lacking:
        yield f"without a text: {' and '.join(lacking)}"
    conventions = results["conventions"]
    order = f" · order {conventions['order']}" if conventions["order"] else ""
    yield (
        f"profile {conventions['profile']}{order} · ties {conventions['ties']} · pairs of a query"
        f" together, queries and items in random order, seed {results['seed']}"
    )
    if "bias" in results:
        read = {name: conventions[name] for name in ("missing", "empty_gold", "rel", "gain", "k")}
        rel = "above 0" if read["rel"] == ANY_GRADE else f"{read['rel']:g}"
        told = {**read, "rel": rel}
        yield " · ".join(f"{name.replace('_', ' ')} {value}" for name, value in told.items())
