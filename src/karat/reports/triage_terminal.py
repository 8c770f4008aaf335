"""Triage on a terminal: gold, the run's top and BM25's top side by side, as wide as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from karat.reports.figures import figure, label, several
from karat.reports.terminal import say, show_grid
from karat.reports.triage import (
    grade_of,
    headlines,
    hit_name,
    last_lines,
    lines_on,
    one_line,
    places,
    segment_sections,
    title,
)

# Columns narrower than this stand below each other.
_NARROWEST = 24
_GAP = 2
# What fits beside ten hits.
_MOST_GOLD, _GOLD_LINES = 3, 2
_GOLD, _JUDGED = "*", "-"
_LEGEND = "* gold · - judged, not relevant"
_MORE = "…"

Case = Mapping[str, Any]
Results = Mapping[str, Any]
# What stands in a column: a text and how it is shown.
Line = tuple[str, str]


def show_triage(results: Results, console: Console) -> None:
    """Print what is said of the run, then each query; those asked for by name in full."""
    for line in headlines(results):
        say(label(line), console, style="bold")
    console.print()
    for section in segment_sections(results):
        if section.grid is not None:
            show_grid(section.grid, console)
    in_full = results["worst"] is None
    for case in results["queries"]:
        lines = [[(label(title(case, results)), "bold")], *([(one, "")] for one in lines_on(case))]
        lines += _in_full(case, results) if in_full else _columns(case, results, console.width)
        # One text for all lines: printing takes longer than making them.
        block = Text("\n").join(Text.assemble(*parts) for parts in lines)
        console.print(block, soft_wrap=True)
        console.print()
    for line in (*_last(results, in_full=in_full), *last_lines(results)):
        say(label(line), console, style="dim")


def _last(results: Results, *, in_full: bool) -> list[str]:
    """What the marks mean, and how to see more."""
    if not results["queries"]:
        return []
    more = [] if in_full else [f"in full: {results['queries'][0]['reproduce']}"]
    return [_LEGEND, *more]


def _columns(case: Case, results: Results, width: int) -> Iterator[list[Line]]:
    """The gold and the lists side by side, or below each other where there is no room."""
    lists = _lists(case, results)
    own = (width - _GAP * len(lists)) // (1 + len(lists))
    beside = own >= _NARROWEST
    room = own if beside else width
    columns = [[("gold", "bold"), *_gold_lines(case["gold"], room)]]
    columns += [
        [(name, "bold"), *_hit_lines(hits, room), *_nothing(hits, empty)]
        for name, hits, empty in lists
    ]
    columns = [[(cut(text, room), style) for text, style in column] for column in columns]
    if not beside:
        return ([line] for column in columns for line in column)
    return (_side_by_side(parts, room) for parts in zip_longest(*columns, fillvalue=("", "")))


def _lists(case: Case, results: Results) -> list[tuple[str, Sequence[Mapping[str, Any]], str]]:
    """The run's list and BM25's, if there is one, and what an empty one means."""
    empty = {"failed": "the call failed", "missing": "not in the run"}
    lists = [(label(results["system"]), case["top"], empty.get(case["status"], "nothing"))]
    if case["bm25"] is not None:
        lists.append(("BM25", case["bm25"], "no item shares a word"))
    return lists


def _side_by_side(parts: Sequence[Line], width: int) -> list[Line]:
    """One line of every column; nothing stands behind the last one that says something."""
    told = [at for at, (text, _) in enumerate(parts) if text]
    last = max(told, default=0)
    padded = [(set_cell_size(text, width + _GAP), style) for text, style in parts[:last]]
    return [*padded, parts[last]]


def _gold_lines(gold: Sequence[Mapping[str, Any]], width: int) -> Iterator[Line]:
    """Each gold item: its id and grade, where it stands, and the beginning of its text."""
    for one in gold[:_MOST_GOLD]:
        grade = f" ({grade_of(one['grade'])})"
        yield f"{_end_of(one['item_id'], width - len(grade))}{grade}", "green"
        for told in (label(places(one)), _where(one) + one_line(one["text"] or "", 4 * width)):
            yield from ((line, "") for line in wrapped(told, width, most=_GOLD_LINES))
    if len(gold) > _MOST_GOLD:
        yield f"and {several(len(gold) - _MOST_GOLD, 'gold item')} more", "dim"
    yield from _nothing(gold, "none")


def _nothing(found: Sequence[object], told: str) -> list[Line]:
    return [] if found else [(told, "dim")]


def _where(gold: Mapping[str, Any]) -> str:
    told = [one for one in (gold["section"], gold["version"]) if one]
    return f"[{one_line(', '.join(told))}] " if told else ""


def _hit_lines(hits: Sequence[Mapping[str, Any]], width: int) -> Iterator[Line]:
    """Each hit: its rank, whether it is gold, its id and the beginning of its text."""
    longest = max((cell_len(hit_name(hit)) for hit in hits), default=0)
    for hit in hits:
        head = f"{hit['rank']:>2} {_mark(hit)} "
        rest = width - len(head)
        item = set_cell_size(
            _end_of(hit_name(hit), rest // 2 if hit["text"] else rest),
            min(longest, rest // 2) if hit["text"] else rest,
        )
        line = f"{head}{item} {one_line(hit['text'] or '', 4 * width)}".rstrip()
        yield line, "green" if hit["gold"] else ""


def _mark(hit: Mapping[str, Any]) -> str:
    return _GOLD if hit["gold"] else _JUDGED if hit["grade"] is not None else " "


def cut(text: str, width: int) -> str:
    """A text in so many cells; a longer one says that there is more.

    >>> cut("refunds", 7), cut("refunds", 4)
    ('refunds', 'ref…')
    """
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + _MORE


def wrapped(text: str, width: int, *, most: int) -> list[str]:
    """The first lines of a text, parted at blanks; the last one says if there is more.

    >>> wrapped("one two three four", 9, most=2)
    ['one two', 'three fo…']
    """
    lines: list[str] = []
    rest = text[: 2 * width * most].strip()
    while rest and len(lines) < most - 1:
        head = set_cell_size(rest, width).rstrip() if cell_len(rest) > width else rest
        blank = head.rfind(" ")
        if len(head) < len(rest) and not rest[len(head)].isspace() and blank > 0:
            head = head[:blank]
        lines.append(head.rstrip())
        rest = rest[len(head) :].lstrip()
    return [*lines, cut(rest, width)] if rest else lines


def _end_of(item_id: str, width: int) -> str:
    """An id in so many cells; of a long one the end, which tells its chunk from the others."""
    shown = label(item_id)
    if cell_len(shown) <= width:
        return shown
    shown = shown[-width:]
    while cell_len(shown) > max(width - 1, 0):
        shown = shown[1:]
    return f"{_MORE}{shown}"


def _in_full(case: Case, results: Results) -> Iterator[list[Line]]:
    """Every list with whole texts, one below the other, and what shows them again."""
    yield [("gold", "bold")]
    for one in case["gold"]:
        head = f"{_GOLD} {label(one['item_id'])} ({grade_of(one['grade'])})"
        yield from _item(f"{head}  {_where(one)}{label(places(one))}", one["text"], "green")
    for name, hits, empty in _lists(case, results):
        yield [(name, "bold")]
        for hit in hits:
            grade = f" ({grade_of(hit['grade'])})" if hit["grade"] is not None else ""
            score = "" if hit["score"] is None else f"  {figure(hit['score'])}"
            head = f"{hit['rank']:>2} {_mark(hit)} {hit_name(hit)}{grade}{score}"
            yield from _item(head, hit["text"], "green" if hit["gold"] else "")
        yield from ([line] for line in _nothing(hits, empty))
    yield [(f"again: {label(case['reproduce'])}", "dim")]
    if "ask_again" in case:
        yield [(f"ask again: {label(case['ask_again'])}", "dim")]


def _item(head: str, text: str | None, style: str) -> Iterator[list[Line]]:
    yield [(head, style)]
    if text:
        yield [(f"   {one_line(text, None)}", "")]
