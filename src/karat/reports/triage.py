"""Triage in words: what is said of a run and of each query, as a page and as a list of misses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.analysis.triage.triage import Triage
from karat.reports.figures import NOTHING, figure, label, several
from karat.reports.grids import Grid
from karat.reports.notes import conventions_lines, nothing_found
from karat.reports.pages import Page, Paper, Section
from karat.reports.to_minimal import misses_to_json

# As much of a text as a line of any width can show.
_LONGEST = 2_000
# Words that are named; the rest is in the document.
_MOST_WORDS = 12

Case = Mapping[str, Any]
Results = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Triaged:
    """A run that was looked into: what is shown of it, and all that can be asked of it."""

    paper: Paper
    triage: Triage

    def document(self) -> dict[str, Any]:
        """The whole document."""
        return self.paper.document()

    def page(self) -> Page:
        """The page on it."""
        return self.paper.page()


def to_misses(triaged: Triaged) -> bytes:
    """Every miss as JSON: what was asked, what came back, what should have."""
    return misses_to_json(triaged.triage.misses())


def page_of(results: Results) -> Page:
    """The page on it; the lists of a query stand below each other."""
    sections = [*segment_sections(results)]
    for case in results["queries"]:
        sections += _sections(case, results)
    return Page("Triage", headlines(results), sections, last_lines(results))


def headlines(results: Results) -> list[str]:
    """How many queries miss, why, and what there is to find in it."""
    failures = results["failures"]
    misses, assessed, k = failures["misses"], failures["assessed"], failures["miss_at"]
    classes = [f"{name} {_count(n)}" for name, n in failures["classes"].items() if n != 0]
    if not assessed:
        told = "not one query has gold: nothing can be missed"
    elif not misses:
        everyone = "the only one has" if assessed == 1 else f"all {assessed:,} have"
        told = f"no query misses: {everyone} gold in the top {k}"
    else:
        verb = "misses" if misses == 1 else "miss"
        of = several(assessed, "query", "queries")
        told = f"{misses:,} of {of} {verb}: no gold in the top {k}"
    return [told, *([" · ".join(classes)] if classes else []), *results["findings"]]


def _count(n: int | None) -> str:
    """A number of queries; none where lists were cut too early to count them."""
    return NOTHING if n is None else f"{n:,}"


def segment_sections(results: Results) -> Iterator[Section]:
    """How many queries of each segment miss, and why."""
    for column, segments in results["segments"].items():
        kinds = [name for name, n in results["failures"]["classes"].items() if n != 0]
        grid: Grid = [[label(column), "queries", "misses", *kinds]]
        for value, own in segments.items():
            counts = [_count(own["classes"].get(name, 0)) for name in kinds]
            grid.append([label(value), str(own["queries"]), str(own["misses"]), *counts])
        yield Section("", grid)


def title(case: Case, results: Results) -> str:
    """A query with its value and, if it misses, why."""
    value = f"{results['measure']} {figure(case['value'])}"
    return "  ".join(one for one in (case["query_id"], value, case["class"]) if one)


def lines_on(case: Case) -> list[str]:
    """What is known of a query, in sentences."""
    told = [one_line(case["text"]) if case["text"] else "(the query's text is not known)"]
    if case["because"]:
        told.append(one_line(case["because"]))
    elif case["error"]:
        told.append(f"the call failed: {one_line(case['error'])}")
    told_of = {name: value for name, value in case["attributes"].items() if value is not False}
    attributes = [f"{name} {_spelled(value)}" for name, value in told_of.items()]
    told += [one_line(" · ".join(attributes))] if attributes else []
    told += [f"note: {one_line(str(case['note']))}"] if case["note"] else []
    return [*told, *_words(case["terms"])]


def _words(terms: Mapping[str, Any] | None) -> list[str]:
    """Which words the query shares with its gold and with the first hit."""
    if terms is None or terms["gold"] is None:
        return []
    told = f"words: none of {terms['query']} in any gold"
    if terms["gold"]:
        shared = _some(terms["gold_words"])
        told = f"words: {terms['gold']} of {terms['query']} in {terms['gold_item']} ({shared})"
        told += f" · in no gold: {_some(terms['missing'])}" if terms["missing"] else ""
    if terms["top"] is not None:
        told += f" · in the first hit: {terms['top']}"
        told += f" ({_some(terms['top_words'])})" if terms["top"] else ""
    return [one_line(told)]


def _some(words: Sequence[str]) -> str:
    rest = len(words) - _MOST_WORDS
    named = ", ".join(words[:_MOST_WORDS])
    return f"{named} and {rest} more" if rest > 0 else named


def places(gold: Mapping[str, Any]) -> str:
    """Where an item stands in each list, or that it cannot stand anywhere."""
    ranks = gold["ranks"]
    named = {"final": ranks["final"], **ranks["stages"]}
    named |= {"BM25": ranks["bm25"]} if "bm25" in ranks else {}
    told = " · ".join(f"{label(name)} {_rank(rank)}" for name, rank in named.items())
    return f"not in the corpus · {told}" if gold["in_corpus"] is False else told


def _rank(rank: int | None) -> str:
    return NOTHING if rank is None else str(rank)


def hit_name(hit: Mapping[str, Any]) -> str:
    """The item of a hit, and whether the list has it higher up already."""
    return label(hit["item_id"]) + (" (again)" if hit.get("repeat") else "")


def grade_of(grade: float | None) -> str:
    """A grade as people write it; nothing where nobody judged."""
    return "" if grade is None else f"{grade:g}"


def _spelled(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_spelled, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def one_line(text: str, longest: int | None = _LONGEST) -> str:
    """The beginning of a text on one line, with nothing in it that steers a terminal."""
    line = " ".join(text[:longest].split())
    return line if line.isprintable() else label(line)


def last_lines(results: Results) -> list[str]:
    """How far down was looked, what could not be told, and under which conventions."""
    depth = results["depth"]
    seen = {results["system"]: depth["final"], **depth["stages"]}
    lacks = results["bm25"].get("lacks")
    seen |= {} if lacks else {"BM25": results["bm25"]["depth"]}
    told = [f"looked for gold in the first {_depths(seen)}; {NOTHING} is not found there"]
    told += [f"not shown: {lacks}"] if lacks else []
    unchecked = results["failures"]["unchecked"]
    if unchecked and results["failures"]["misses"]:
        told.append(f"not told apart: {', '.join(unchecked)} (--json says what each needs)")
    if results.get("nothing_found"):
        told.append(nothing_found(results["nothing_found"]))
    made = {**results, "systems": [{"measures": {results["measure"]: {}}}]}
    return [*told, conventions_lines(made)[0]]


def _depths(seen: Mapping[str, int]) -> str:
    return ", ".join(f"{depth:,} of {label(name)}" for name, depth in seen.items())


def _sections(case: Case, results: Results) -> Iterator[Section]:
    """A query's gold, the run's list and BM25's."""
    grid: Grid = [["item", "grade", "what", "text"]]
    for one in case["gold"]:
        told = [label(one["item_id"]), grade_of(one["grade"]), places(one)]
        grid.append([*told, one_line(one["text"] or "")])
    again = [f"{name}: {case[key]}" for name, key in _COMMANDS.items() if key in case]
    yield Section(title(case, results), grid, [*lines_on(case), *again])
    for name, hits in ((results["system"], case["top"]), ("BM25", case["bm25"])):
        if hits is not None:
            yield Section(f"{case['query_id']}: {name}", _list_grid(hits))


_COMMANDS = {"again": "reproduce", "ask again": "ask_again"}


def _list_grid(hits: Sequence[Mapping[str, Any]]) -> Grid:
    grid: Grid = [["rank", "item", "grade", "score", "text"]]
    for hit in hits:
        mark = "* " if hit["gold"] else ""
        cells = [str(hit["rank"]), mark + hit_name(hit), grade_of(hit["grade"])]
        grid.append([*cells, figure(hit["score"]), one_line(hit["text"] or "")])
    return grid
