"""The page of a triage: how many queries miss, then each query beside its gold and lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from karat.evaluation.sentences import conventions_lines, nothing_found
from karat.pages.formatting import NOTHING, figure, label, plural
from karat.pages.page import Column, Columns, Entry, Grid, Page, Section

# Longer texts are cut: no terminal line shows more.
_LONGEST = 2_000
# Words that are named; the rest is in the JSON.
_MOST_WORDS = 12
_COMMANDS = {"again": "reproduce", "ask again": "ask_again"}
_EMPTY_LISTS = {"failed": "the call failed", "missing": "not in the run"}

Case = Mapping[str, Any]
Results = Mapping[str, Any]


def triage_page(results: Results) -> Page:
    """Return the page; queries that were asked for by id are shown whole."""
    whole = results["worst"] is None
    queries = results["queries"]
    notes = []
    if queries:
        notes.append("* gold · - judged, not relevant")
        if not whole and "reproduce" in queries[0]:
            notes.append(f"in full: {queries[0]['reproduce']}")
    return Page(
        "Triage",
        _headlines(results),
        [*_segment_sections(results), *(_query_block(case, results, whole) for case in queries)],
        [*notes, *_notes(results)],
    )


def _headlines(results: Results) -> list[str]:
    """Return how many queries miss, why, and what there is to find in it."""
    failures = results["failures"]
    misses, assessed, k = failures["misses"], failures["assessed"], failures["miss_at"]
    classes = [f"{name} {_count(n)}" for name, n in failures["classes"].items() if n != 0]
    if not assessed:
        text = "not one query has gold: nothing can be missed"
    elif not misses:
        everyone = "the only one has" if assessed == 1 else f"all {assessed:,} have"
        text = f"no query misses: {everyone} gold in the top {k}"
    else:
        verb = "misses" if misses == 1 else "miss"
        of = plural(assessed, "query", "queries")
        text = f"{misses:,} of {of} {verb}: no gold in the top {k}"
    return [text, *([" · ".join(classes)] if classes else []), *results["findings"]]


def _count(n: int | None) -> str:
    """Return a number of queries; none if lists were cut too early to count them."""
    return NOTHING if n is None else f"{n:,}"


def _segment_sections(results: Results) -> Iterator[Section]:
    """Yield how many queries of each segment miss, by class."""
    for column, segments in results["segments"].items():
        kinds = [name for name, n in results["failures"]["classes"].items() if n != 0]
        grid: Grid = [[label(column), "queries", "misses", *kinds]]
        for value, segment in segments.items():
            counts = [_count(segment["classes"].get(name, 0)) for name in kinds]
            grid.append([label(value), str(segment["queries"]), str(segment["misses"]), *counts])
        yield Section("", grid)


def _query_lines(case: Case) -> list[str]:
    """Return what is known of a query."""
    lines = [one_line(case["text"]) if case["text"] else "(the query's text is not known)"]
    if case["because"]:
        lines.append(one_line(case["because"]))
    elif case["error"]:
        lines.append(f"the call failed: {one_line(case['error'])}")
    shown = {name: value for name, value in case["attributes"].items() if value is not False}
    attributes = [f"{name} {_spelled(value)}" for name, value in shown.items()]
    lines += [one_line(" · ".join(attributes))] if attributes else []
    lines += [f"note: {one_line(str(case['note']))}"] if case["note"] else []
    return [*lines, *_words(case["terms"])]


def _words(terms: Mapping[str, Any] | None) -> list[str]:
    """Return the words that the query shares with its gold and with the first hit."""
    if terms is None or terms["gold"] is None:
        return []
    text = f"words: none of {terms['query']} in any gold"
    if terms["gold"]:
        shared = _some(terms["gold_words"])
        text = f"words: {terms['gold']} of {terms['query']} in {terms['gold_item']} ({shared})"
        text += f" · in no gold: {_some(terms['missing'])}" if terms["missing"] else ""
    if terms["top"] is not None:
        text += f" · in the first hit: {terms['top']}"
        text += f" ({_some(terms['top_words'])})" if terms["top"] else ""
    return [one_line(text)]


def _some(words: Sequence[str]) -> str:
    rest = len(words) - _MOST_WORDS
    named = ", ".join(words[:_MOST_WORDS])
    return f"{named} and {rest} more" if rest > 0 else named


def _places(gold: Mapping[str, Any]) -> str:
    """Return the rank of a gold item in each list, and whether the corpus lacks it."""
    ranks = gold["ranks"]
    named = {"final": ranks["final"], **ranks["stages"]}
    named |= {"BM25": ranks["bm25"]} if "bm25" in ranks else {}
    text = " · ".join(f"{label(name)} {_rank(rank)}" for name, rank in named.items())
    return f"not in the corpus · {text}" if gold["in_corpus"] is False else text


def _rank(rank: int | None) -> str:
    return NOTHING if rank is None else str(rank)


def _hit_name(hit: Mapping[str, Any]) -> str:
    """Return the item of a hit, marked if the list has it higher up already."""
    return label(hit["item_id"]) + (" (again)" if hit.get("repeat") else "")


def _grade(grade: float | None) -> str:
    """Return a grade without needless decimals; empty if nobody judged."""
    return "" if grade is None else f"{grade:g}"


def _spelled(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_spelled, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def one_line(text: str, longest: int | None = _LONGEST) -> str:
    """Return the beginning of a text on one line, without control characters."""
    line = " ".join(text[:longest].split())
    return line if line.isprintable() else label(line)


def _notes(results: Results) -> list[str]:
    """Return how deep the lists were searched, what is unknown, and the conventions."""
    depth = results["depth"]
    seen = {results["system"]: depth["final"], **depth["stages"]}
    lacks = results["bm25"].get("lacks")
    seen |= {} if lacks else {"BM25": results["bm25"]["depth"]}
    lines = [f"searched for gold in the first {_depths(seen)}; {NOTHING} means not found there"]
    lines += [f"not shown: {lacks}"] if lacks else []
    unchecked = results["failures"]["unchecked"]
    if unchecked and results["failures"]["misses"]:
        lines.append(f"not checked: {', '.join(unchecked)} (--json says what each needs)")
    if results.get("nothing_found"):
        lines.append(nothing_found(results["nothing_found"]))
    made = {**results, "systems": [{"measures": {results["measure"]: {}}}]}
    return [*lines, conventions_lines(made)[0]]


def _depths(seen: Mapping[str, int]) -> str:
    return ", ".join(f"{depth:,} of {label(name)}" for name, depth in seen.items())


def _query_block(case: Case, results: Results, whole: bool) -> Columns:
    """Return one query: what is known of it, then gold, the run's list and BM25's."""
    value = f"{results['measure']} {figure(case['value'])}"
    title = "  ".join(part for part in (case["query_id"], value, case["class"]) if part)
    lines = _query_lines(case)
    again = [f"{name}: {case[key]}" for name, key in _COMMANDS.items() if key in case]
    grid: Grid = [["item", "grade", "what", "text"]]
    for gold in case["gold"]:
        cells = [label(gold["item_id"]), _grade(gold["grade"]), _places(gold)]
        grid.append([*cells, one_line(gold["text"] or "")])
    longest = None if whole else _LONGEST
    gold_column = Column(
        "gold", [_gold_entry(gold, longest) for gold in case["gold"]], "none", True
    )
    columns, sections = [gold_column], [Section(title, grid, [*lines, *again])]
    empty = _EMPTY_LISTS.get(case["status"], "nothing")
    lists = (
        (results["system"], case["top"], empty),
        ("BM25", case["bm25"], "no item shares a word"),
    )
    for name, hits, nothing in lists:
        if hits is not None:
            columns.append(Column(label(name), [_hit_entry(hit, longest) for hit in hits], nothing))
            sections.append(Section(f"{case['query_id']}: {name}", _list_grid(hits)))
    return Columns(title, lines, columns, sections, again if whole else (), whole)


def _gold_entry(gold: Mapping[str, Any], longest: int | None) -> Entry:
    known = [part for part in (gold["section"], gold["version"]) if part]
    where = f"[{one_line(', '.join(known))}] " if known else ""
    text = one_line(gold["text"] or "", longest)
    return Entry(
        label(gold["item_id"]),
        head="* ",
        suffix=f" ({_grade(gold['grade'])})",
        detail=f"  {where}{label(_places(gold))}",
        notes=[label(_places(gold)), where + text[:_LONGEST]],
        text=text,
        marked=True,
    )


def _hit_entry(hit: Mapping[str, Any], longest: int | None) -> Entry:
    mark = "*" if hit["gold"] else "-" if hit["grade"] is not None else " "
    score = "" if hit["score"] is None else f"  {figure(hit['score'])}"
    return Entry(
        _hit_name(hit),
        head=f"{hit['rank']:>2} {mark} ",
        suffix="" if hit["grade"] is None else f" ({_grade(hit['grade'])})",
        detail=score,
        text=one_line(hit["text"] or "", longest),
        marked=hit["gold"],
    )


def _list_grid(hits: Sequence[Mapping[str, Any]]) -> Grid:
    grid: Grid = [["rank", "item", "grade", "score", "text"]]
    for hit in hits:
        mark = "* " if hit["gold"] else ""
        cells = [str(hit["rank"]), mark + _hit_name(hit), _grade(hit["grade"])]
        grid.append([*cells, figure(hit["score"]), one_line(hit["text"] or "")])
    return grid
