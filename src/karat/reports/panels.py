"""What a run returns, beyond its relevance, as sections of a page.

Each function takes the document of one analysis: of queries without an answer, freshness,
diversity, hubs and reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from karat.reports.figures import (
    NOTHING,
    PART,
    change,
    figure,
    interval,
    label,
    measured,
    p_value,
    percent,
    several,
)
from karat.reports.grids import Grid
from karat.reports.pages import Section

# A page shows fewer rows than a document holds.
_ROWS = 10
_ITEMS = 3

Document = Mapping[str, Any]


def no_answer_sections(document: Document) -> list[Section]:
    """False evidence and kept answers: without a threshold, at the best one, over a sweep."""
    best, keep = document["best"], document["keep"]
    grid = [["what", "threshold", "false evidence", "kept", "answered"]]
    grid.append(_cut("no threshold", {"threshold": None, **document["without"]}))
    grid.append(_cut("best", best))
    new = [f"{figure(best[name]['corrected'])}{PART}" for name in ("false_evidence", "kept")]
    grid.append(["  corrected", "", *new, ""])
    grid.append(_cut(f"keeps {percent(keep['share'])} of gold", keep))
    sections = [Section("Queries without an answer", grid, _no_answer_lines(document))]
    if len(document["sweep"]) > 1:
        sections.append(Section("False evidence by threshold", _sweep_grid(document)))
    return sections


def _cut(name: str, cut: Document) -> list[str]:
    cells = [measured(cut[key]) for key in ("false_evidence", "kept", "answered")]
    return [name, f"{figure(cut['threshold'])}{PART}{interval(cut.get('ci'))}", *cells]


def _no_answer_lines(document: Document) -> list[str]:
    counts, best = document["counts"], document["best"]
    asked = several(counts["no_answer"], "query", "queries")
    asked += f" without an answer · {counts['answerable']:,} with one, {counts['found']:,} of them"
    area = f"in {percent(document['area'])} of all pairs of the two kinds of queries the best gold"
    lines = [
        f"{asked} with gold in the top {document['k']}",
        f"{area} scores above what the query without an answer got",
    ]
    low = "" if best["above"] is None else f"above {figure(best['above'])} and "
    lines.append(f"any threshold {low}up to {figure(best['up_to'])} does the same as the best")
    return [*lines, *document["notes"]]


def _sweep_grid(document: Document) -> Grid:
    named = {document["best"]["threshold"], document["keep"]["threshold"]}
    points = document["sweep"]
    shown = {round(n * (len(points) - 1) / (_ROWS - 1)) for n in range(_ROWS)}
    grid = [["threshold", "false evidence", "kept", "answered"]]
    for at, point in enumerate(points):
        if at in shown or point["threshold"] in named:
            grid.append([figure(point[name]) for name in _SWEPT])
    return grid


_SWEPT = ("threshold", "false_evidence", "kept", "answered")


def freshness_sections(document: Document) -> list[Section]:
    """How fresh the top k is, what the measures are without newer items, and which those are."""
    grid = None
    if document["rescored"]:
        grid = [["measure", "as it is", "enforced", "Δ", "p", "+/=/−", "n"]]
        for row in document["rescored"]:
            delta = f"{change(row['delta'])}{PART}{interval(row['ci'])}"
            moved = f"{row['wins']}/{row['ties']}/{row['losses']}"
            cells = [figure(row["as_it_is"]), figure(row["enforced"]), delta]
            grid.append(
                [row["measure"], *cells, p_value(row["p_adjusted"]), moved, f"{row['n']:,}"]
            )
    sections = [Section("Freshness: as_of enforced", grid, _freshness_lines(document))]
    if document["documents"]:
        sections.append(_newer_documents(document))
    if document["worst"]:
        grid = [["query", "newer", "item"]]
        for one in document["worst"][:_ROWS]:
            grid.append([label(one["query_id"]), str(one["newer"]), _named(one["items"])])
        sections.append(Section("Queries with the most newer items", grid))
    return sections


def _freshness_lines(document: Document) -> list[str]:
    fresh, places, queries = document["fresh"], document["places"], document["queries"]
    value = f"{figure(fresh['mean'])} {interval(fresh['ci'])}".rstrip()
    late = f"{places['newer']:,} of {places['all']:,} places hold an item newer than as_of"
    where = f"in {queries['newer']:,} of {several(queries['all'], 'list')}"
    lines = [f"{fresh['measure']} {value} · {late}, {where}"]
    if places["unknown"]:
        fate = "taken out too" if document["strict"] else "left in"
        lines.append(f"{several(places['unknown'], 'place')} of unknown version, {fate}")
    if document["taken_out"]:
        lines.append(f"{several(document['taken_out'], 'hit')} taken out of whole lists")
    else:
        lines.append("nothing had to be taken out")
    if document["shortened"]:
        lists = several(document["shortened"], "list ends", "lists end")
        lines.append(
            f"{lists} before the top {document['k']} is full again: a filter inside the retriever"
            " would fill it up, so the loss here is the largest there can be"
        )
    gold = document["gold"]
    if gold["newer"]:
        late = several(gold["newer"], "relevant item is", "relevant items are")
        lines.append(f"{late} newer than as_of: the labels are outdated, or as_of is wrong")
    return lines


def _newer_documents(document: Document) -> Section:
    grid = [["doc", "version", "queries", "hits", "items"]]
    for one in document["documents"][:_ROWS]:
        counts = [f"{one[name]:,}" for name in ("queries", "hits", "items")]
        grid.append([label(one["doc_id"]), label(one["version"]), *counts])
    more = len(document["documents"]) + document["more_documents"] - _ROWS
    return Section("Newer documents in the top", grid, [f"and {more:,} more"] if more > 0 else [])


def diversity_sections(document: Document) -> list[Section]:
    """The measures of diversity, and near-duplicates within the lists."""
    grid = [["measure", "mean", "n"]]
    for one in document["measures"]:
        grid.append([one["measure"], measured(one), f"{one['n']:,}"])
    near, lines = document["near"], [label(line) for line in document["lacks"]]
    title = f"Diversity of the top {document['k']}"
    if near is None:
        return [Section(title, grid, lines)]
    grid.append(["near-duplicates", measured(near["share"]), f"{near['share']['n']:,}"])
    lines += _near_lines(near, document["overlap"])
    sections = [Section(title, grid, lines)]
    if near["largest"]:
        rows = [["query", "size", "ranks", "text"]]
        for one in near["largest"][:_ROWS]:
            ranks = ", ".join(map(str, one["ranks"]))
            rows.append([label(one["query_id"]), str(one["size"]), ranks, label(one["text"] or "")])
        sections.append(Section("Largest clusters of near-duplicates", rows))
    if near["pairs"]:
        rows = [["item", "item", "queries", "overlap", "text"]]
        for one in near["pairs"][:_ROWS]:
            items = [label(item) for item in one["items"]]
            rows.append(
                [*items, f"{one['queries']:,}", figure(one["similarity"]), label(one["texts"][0])]
            )
        sections.append(Section("Near-duplicates returned together", rows))
    return sections


def _near_lines(near: Document, overlap: float) -> list[str]:
    again = f"{near['repeats']:,} of {several(near['places'], 'place')} repeat a higher one"
    where = f"in {several(near['queries'], 'list')}"
    lines = [f"{again} (overlap of words {overlap:g} or more), {where}"]
    if near["without_text"]:
        lines.append(f"{several(near['without_text'], 'place')} without a text took no part")
    if not near["complete"]:
        lines.append("there was too much to compare, and some near-duplicates are missing")
    return lines


def hub_sections(document: Document) -> list[Section]:
    """The hubs, and how uneven the returns are."""
    grid = None
    if document["hubs"]:
        texts = any(one["text"] for one in document["hubs"])
        grid = [["item", "queries", "gold", "not relevant", "unjudged", "topics", "text"]]
        for one in document["hubs"][:_ROWS]:
            names = ("queries", "gold", "not_relevant", "unjudged", "topics")
            counts = [f"{one[name]:,}" for name in names]
            grid.append([label(one["item_id"]), *counts, label(one["text"] or "")])
        if not texts:
            grid = [row[:-1] for row in grid]
    return [Section(f"Hubs in the top {document['k']}", grid, _hub_lines(document))]


def _hub_lines(document: Document) -> list[str]:
    asked = several(document["queries"], "query", "queries")
    what = f"in the top {document['k']} of {document['needed']:,} or more of {asked}"
    found = several(document["count"], "item") if document["count"] else "no item"
    lines = [f"{found} {what} without being their gold, and more often than by chance"]
    if document["needed"] > document["queries"]:
        needed = f"a hub is in {document['needed']:,} or more"
        lines = [f"lists of only {asked}: too few to tell, since {needed}"]
    if document["count"]:
        lines.append(
            f"they take {percent(document['share'])} of {several(document['places'], 'place')},"
            f" {percent(document['unrelated_share'])} where they are not gold"
        )
    if document["count"] > _ROWS:
        lines.append(f"the {_ROWS} most frequent are shown")
    if document["skewness"] is not None:
        of = "items of the corpus" if document["of"] == "corpus" else "items returned"
        chance = figure(document["by_chance"])
        lines.append(
            f"skewness of the returns over {document['items']:,} {of}:"
            f" {figure(document['skewness'])}; {chance} if all were equally likely"
        )
    return lines


def reach_sections(document: Document) -> list[Section]:
    """Gold, items and documents that were never returned."""
    gold, k = document["gold"], document["k"]
    grid = [["what", "found", "never", "share"]]
    grid.append(_reached(f"gold, top {k}", gold["top"]))
    grid.append(_reached(f"gold, final lists (to {gold['depth']['final']:,})", gold["final"]))
    if len(gold["stages"]) > 1:
        grid.append(_reached(f"gold, any stage (to {gold['depth']['any']:,})", gold["any"]))
    corpus = document["corpus"]
    if corpus is not None:
        grid.append(_reached(f"corpus, top {k}", corpus["top"]))
        if corpus["looked"] == "lists":
            grid.append(_reached("corpus, any list", corpus["ever"]))
        grid.append(_reached("documents", corpus["docs"]["reached"]))
    sections = [Section("Reach: what is ever returned", grid, _reach_lines(document))]
    if gold["lost"]:
        sections.append(_lost(gold))
    if corpus is not None and corpus["docs"]["unreachable"]:
        rows = [["doc", "items", "gold"]]
        for one in corpus["docs"]["unreachable"][:_ROWS]:
            rows.append([label(one["doc_id"]), f"{one['items']:,}", f"{one['gold']:,}"])
        sections.append(Section("Documents that nothing leads to", rows))
    return sections


def _reached(name: str, share: Document) -> list[str]:
    cell = f"{figure(share['share'])}{PART}{interval(share['ci'])}"
    return [name, f"{share['found']:,}", f"{share['never']:,}", cell]


def _reach_lines(document: Document) -> list[str]:
    gold, corpus = document["gold"], document["corpus"]
    lines = [label(line) for line in document["lacks"]]
    if gold["not_asked"]:
        lost = several(gold["not_asked"], "relevant item belongs", "relevant items belong")
        lines.append(
            f"{lost} only to queries whose call failed or that the run lacks: never found here,"
            " but not looked for either"
        )
    if gold["not_in_corpus"]:
        lost = several(gold["not_in_corpus"], "relevant item is", "relevant items are")
        lines.append(f"{lost} not in the corpus, so that nothing can find what was meant")
    if corpus is None:
        return lines
    if corpus["most"] is not None and corpus["most"] < 1:
        lines.append(
            f"the lists have room for {percent(corpus['most'])} of the corpus, so the top"
            f" {document['k']} cannot hold more of it"
        )
    if corpus["never_gold"]:
        lost = several(corpus["never_gold"], "item is", "items are")
        lines.append(f"{lost} never returned, and yet gold of a query")
    if corpus["docs"]["unreachable_gold"]:
        many = several(corpus["docs"]["unreachable_gold"], "document")
        lines.append(f"{many} with gold that nothing leads to: look whether they are indexed")
    if corpus["unknown"]:
        lines.append(f"{several(corpus['unknown'], 'item')} returned that the corpus lacks")
    return lines


def _lost(gold: Document) -> Section:
    grid = [["item", "query", "grade", "in corpus", "text"]]
    for one in gold["lost"][:_ROWS]:
        known = NOTHING if one["in_corpus"] is None else "yes" if one["in_corpus"] else "no"
        span = f":{one['start']}-{one['end']}" if "start" in one else ""
        cells = [_named(one["query_ids"]), f"{one['grade']:g}", known, label(one["text"] or "")]
        grid.append([label(one["item_id"]) + span, *cells])
    if not any(one["text"] for one in gold["lost"]):
        grid = [row[:-1] for row in grid]
    return Section("Gold in no list", grid)


def _named(ids: Sequence[str]) -> str:
    """The first of some ids, and how many more there are."""
    shown = ", ".join(label(one) for one in ids[:_ITEMS])
    return f"{shown} and {len(ids) - _ITEMS:,} more" if len(ids) > _ITEMS else shown
