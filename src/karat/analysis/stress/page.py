"""The page on a stress test: what each kind of damage costs, and where the negatives ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from karat.evaluation.segments import SMALL
from karat.evaluation.sentences import conventions_lines
from karat.pages.formatting import (
    NOTHING,
    PART,
    change,
    figure,
    interval,
    label,
    p_value,
    percent,
    plural,
)
from karat.pages.page import Page, Section

Results = Mapping[str, Any]

_SOURCES = {"own": "of the eval set", "bm25": "mined by BM25, hence not judged"}
_NOTHING_NEW = (
    "every negative stood in the list already; a reranker that scores items one by one sees nothing"
    " new, unless it reads only the top"
)
# Why an edit could not be done in full, by its kind, for one query and for more.
_SHORT = {
    "insert": ("query has fewer negatives, and gets those", "queries have fewer, and get those"),
    "drop": ("list is shorter than that", "lists are shorter than that"),
    "gold": ("list holds no gold", "lists hold no gold"),
    "truncate": ("list is shorter than that", "lists are shorter than that"),
}
_EVENTS = {
    "gold_refused": ("negative is gold and stays out", "negatives are gold and stay out"),
    "at_the_end": (
        "negative stands at the end of a list too short for its rank",
        "negatives stand at the end of lists too short for their ranks",
    ),
    "failed": (
        "query left out: the call for it failed after the edit",
        "queries left out: the calls for them failed after the edit",
    ),
}


def stress_page(results: Results) -> Page:
    """Return the page on the results part of a document of ``karat stress``."""
    sections = []
    for system in results["systems"]:
        sections.append(_section(system))
        for scenario in system["scenarios"]:
            sections += _segment_sections(system, scenario, results["primary"])
    return Page(
        "What damage costs",
        [line for system in results["systems"] for line in _headlines(system, results)],
        sections,
        _last(results),
    )


def _headlines(system: Results, results: Results) -> Iterator[str]:
    """Yield one sentence per scenario, on the measure that decides."""
    name = f"{label(system['name'])}, " if len(results["systems"]) > 1 else ""
    for scenario in system["scenarios"]:
        fall = scenario["measures"][results["primary"]]
        yield f"{name}{scenario['scenario']}: {_told(results['primary'], fall)}"


def _told(measure: str, fall: Results) -> str:
    drop = fall["drop"]
    if drop is None:
        return f"{measure} could not be measured before and after on any query"
    ends = f" {interval(fall['ci'])}" if fall["ci"] else ""
    over = f"over {plural(fall['n'], 'query', 'queries')}"
    if not drop:
        return f"{measure} stays at {figure(fall['before'])}{ends and f', drop{ends}'} {over}"
    moved = "drops" if drop > 0 else "gains"
    return f"{measure} {moved} by {figure(abs(drop))}{_turned(ends, fall, drop)} {over}"


def _turned(ends: str, fall: Results, drop: float) -> str:
    """Return the interval of a gain has the other sign."""
    if drop > 0 or not ends:
        return ends
    low, high = fall["ci"]
    return f" {interval([-high, -low])}"


def _section(system: Results) -> Section:
    return Section(_title(system), _grid(system), list(_lines(system)))


def _title(system: Results) -> str:
    name, model = label(system["name"]), system["reranker"]
    if model is not None:
        return f"{name}: reranked by {label(str(model['name']))} ({model['kind']})"
    if system["how"] == "reordered":
        return f"{name}: put in order again by {', '.join(system['stages'])}"
    return f"{name}: list edited"


def _grid(system: Results) -> list[list[str]]:
    grid = [["scenario", "measure", "before", "after", "drop", "p", "−/=/+", "n"]]
    for scenario in system["scenarios"]:
        name = scenario["scenario"]
        for measure, fall in scenario["measures"].items():
            counts = f"{fall['worse']}/{fall['same']}/{fall['better']}"
            p = p_value(fall["p_adjusted"])
            grid.append([name, measure, *_cells(fall), p, counts, str(fall["n"])])
            name = ""
    return grid


def _cells(fall: Results) -> list[str]:
    drop = f"{change(fall['drop'])}{PART}{interval(fall['ci'])}"
    return [figure(fall["before"]), figure(fall["after"]), drop]


def _lines(system: Results) -> Iterator[str]:
    yield system["because"]
    if "for_real" in system:
        yield f"to run its later stages on the edited lists: {label(system['for_real'])}"
    for scenario in system["scenarios"]:
        if "negatives" in scenario:
            yield f"{scenario['scenario']}: {_fate(scenario, system['negatives'])}"
            if system["reranker"] is not None and scenario["moved"] == scenario["inserted"] > 0:
                yield f"{scenario['scenario']}: {_NOTHING_NEW}"
        if events := _events(scenario):
            yield f"{scenario['scenario']}: {events}"
    if (system["negatives"] or {}).get("source") == "own" and _wanting(system):
        yield "--negatives bm25 mines more from the corpus"
    yield from _left_out(system)


def _fate(scenario: Results, negatives: Results) -> str:
    """Return where the negatives ended up."""
    fate = scenario["negatives"]
    moved = (
        f", {scenario['moved']:,} of which stood in the lists already" if scenario["moved"] else ""
    )
    put = plural(scenario["inserted"], "negative")
    text = f"{put} {_SOURCES[negatives['source']]}{moved}"
    if fate["in_top"] is None:
        return text
    top = f"the top {fate['top']}"
    ends = f" ({' to '.join(map(percent, fate['ci']))})" if fate["ci"] else ""
    text += f"; in {top} end {percent(fate['in_top'])}{ends}"
    text += f", where {percent(fate['before'])} stood before"
    rank = NOTHING if fate["mean_rank"] is None else f"{fate['mean_rank']:.1f}"
    return f"{text}; {percent(fate['returned'])} are returned, at rank {rank} on average"


def _events(scenario: Results) -> str:
    edit = scenario["edit"]
    kind = "gold" if edit.get("count") == "gold" else edit["kind"]
    words = {"short": _SHORT.get(kind, ("", "")), **_EVENTS}
    values = [plural(scenario[name], *words[name]) for name in words if scenario.get(name)]
    if scenario.get("without_negatives"):
        without = plural(scenario["without_negatives"], "query", "queries")
        values.append(f"{without} left out: no negatives")
    return " · ".join(values)


def _wanting(system: Results) -> bool:
    """Return whether more negatives could have been put in."""
    inserts = [scenario for scenario in system["scenarios"] if scenario["edit"]["kind"] == "insert"]
    return any(insert["short"] or insert["without_negatives"] for insert in inserts)


def _left_out(system: Results) -> Iterator[str]:
    """Yield what was not stressed at all, and why."""
    queries = system["queries"]
    if queries["missing"]:
        yield f"{plural(queries['missing'], 'query is', 'queries are')} missing from the run"
    if queries["failed"]:
        failed = plural(queries["failed"], "query", "queries")
        yield f"{failed} left out: the call failed before any edit"
    unknown = (system["negatives"] or {}).get("not_in_corpus")
    if unknown:
        yield f"{plural(unknown, 'negative')} left out: the corpus does not have them"
    for reason, count in system["failures"].items():
        yield f"  {count:,} × {label(reason)}"


def _segment_sections(system: Results, scenario: Results, primary: str) -> Iterator[Section]:
    """Yield the drop of the measure that decides, segment by segment."""
    for column, values in scenario.get("segments", {}).items():
        grid = [[label(column), "n", "before", "after", "drop", "p"]]
        for value, falls in values.items():
            fall = falls[primary]
            n = f"{fall['n']}{' small' if fall['n'] < SMALL else ''}"
            grid.append([label(value), n, *_cells(fall), p_value(fall["p_adjusted"])])
        title = f"{label(system['name'])}, {scenario['scenario']}: {primary} by {label(column)}"
        yield Section(title, grid)


def _last(results: Results) -> list[str]:
    drawn, population = results["sampled"], results["with_gold"]
    text = f"{drawn:,} of {plural(population, 'query', 'queries')} with gold"
    first = results["systems"][0]["scenarios"][0]["measures"]
    plain = {**results, "systems": [{"measures": first}], "comparisons": []}
    note = "drop: how much worse · p corrected (holm) · −/=/+ queries worse, equal, better"
    return [f"{text} · {note}", *conventions_lines(plain)]
