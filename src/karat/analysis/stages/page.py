"""What each stage is worth, as a page: the sentence first, then a table for each part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from karat.evaluation.sentences import conventions_lines, counts_lines
from karat.evaluation.tables import compared_segments, comparison_tables, moved_tables
from karat.pages.formatting import (
    NOTHING,
    PART,
    change,
    figure,
    interval,
    label,
    measured,
    percent,
    plural,
    verdict_words,
)
from karat.pages.page import Grid, Page, Section

# More misroutes than these are in the document.
MOST = 10

_RULE = (
    "* decides · margin 2 % of the mean before · p corrected (holm)"
    " · +/=/− queries better, equal, worse"
)
_LEFT_OUT = {
    "failed": ("failed call", "failed calls"),
    "not_called": ("query not called", "queries not called"),
    "without_choice": ("call without a source", "calls without a source"),
    "without_right": ("query without a right source", "queries without a right source"),
}

System = Mapping[str, Any]


def stages_page(results: Mapping[str, Any]) -> Page:
    """Return the page on the stages of some runs."""
    systems = results["systems"]
    alone = len(systems) == 1
    first: list[str] = []
    sections: list[Section] = []
    last: list[str] = []
    for system in systems:
        named = "" if alone else f"{system['name']}: "
        first += [f"{named}{line}" for line in _headlines(system)]
        sections += [
            Section(f"{named}{one.title}", one.grid, one.lines) for one in _sections(system)
        ]
        last += [
            f"{named}not measured: {part} ({told})"
            for part, told in system["lacks"].items()
            if part != "raw"
        ]
    made = {
        "conventions": results["conventions"],
        "systems": [{"measures": {}}],
        "comparisons": [],
    }
    last += [*counts_lines(results), *conventions_lines(made)]
    return Page("What each stage is worth", first, sections, last)


def _headlines(system: System) -> list[str]:
    """Return what there is to say, each once: the whole way may be one step."""
    effect, router, rewriting = (system[part] for part in ("effect", "router", "rewriting"))
    lines = [system["lacks"]["raw"]] if effect is None else [effect["says"], *effect["hurts"]]
    for step in system["stages"]:
        row = _primary(step["change"])
        if row is not None and row["verdict"] == "worse":
            lines.append(step["says"])
    if router is not None and router["coverage"] is not None:
        lines.append(_coverage(router))
    if rewriting is not None and rewriting["comparisons"] is not None:
        lines.append(rewriting["says"])
    return list(dict.fromkeys(lines))


def _coverage(router: Mapping[str, Any]) -> str:
    coverage = router["coverage"]
    wrong = plural(len(router["misroutes"]), "misroute")
    ends = f" {interval(coverage['ci'])}" if coverage["ci"] else ""
    of = plural(router["n"], "query", "queries")
    return f"the router sends {figure(coverage['mean'])}{ends} of {of} to a right source, {wrong}"


def _sections(system: System) -> Iterator[Section]:
    if system["raw"] is not None:
        yield _raw(system)
    if system["effect"] is not None:
        yield from _effect(system["effect"], system["depth"])
    yield from _line(system["stages"])
    if system["parts"] is not None:
        yield _parts(system["parts"])
    if system["router"] is not None:
        yield from _router(system["router"])
    if system["rewriting"] is not None:
        yield from _rewriting(system["rewriting"])
    if system["entities"] is not None:
        yield _entities(system["entities"])


def _raw(system: System) -> Section:
    depth = system["depth"]
    grid = [["measure", "mean", "n"]]
    grid += [[name, measured(one), str(one["n"])] for name, one in system["raw"].items()]
    lines = []
    if depth["beyond_log"]:
        lines.append(
            f"asked for the first {depth['asked']:,}, but the raw lists end at {depth['used']:,}:"
            " what lies below is beyond the log"
        )
    if depth["without_raw"]:
        lines.append(
            f"{plural(depth['without_raw'], 'query has', 'queries have')} no raw list;"
            " the next list that is logged stands for it"
        )
    return Section("raw retriever", grid, lines)


def _effect(effect: Mapping[str, Any], depth: Mapping[str, Any]) -> Iterator[Section]:
    for grid in comparison_tables(effect).values():
        yield Section("from raw to final", grid, [_RULE, *_cut_lines(effect["k"], depth)])
    for title, grid in compared_segments(effect).items():
        yield Section(title, grid)
    for grid in moved_tables(effect).values():
        yield Section("moved most from raw to final", grid)


def _cut_lines(k: Mapping[str, Any], depth: Mapping[str, Any]) -> list[str]:
    if not k["beyond_log"]:
        return []
    if k["used"] < k["asked"]:
        end, asked = f"{k['used']:,}", f"{k['asked']:,}"
        return [f"the final lists end at {end}, so both are compared there and not at {asked}"]
    return [f"no list goes to {k['asked']:,}; below {depth['final']:,} nothing counts as found"]


def _line(stages: Sequence[Mapping[str, Any]]) -> Iterator[Section]:
    names = list(dict.fromkeys(name for stage in stages for name in stage["measures"]))
    grid = [["stage", *names]]
    for one in stages:
        first, *others = (one["measures"].get(name) for name in names)
        grid.append([label(one["stage"]), _mean(first), *map(_mean_alone, others)])
    cells = [cell for stage in stages for cell in stage["measures"].values()]
    beyond = any(cell.get("beyond_log") and cell["mean"] is None for cell in cells)
    yield Section("stage by stage", grid, [f"{NOTHING} below the end of the lists"] * beyond)
    moves = [stage for stage in stages if stage["change"]]
    if len(moves) > 1:
        yield _moves(moves)


def _moves(moves: Sequence[Mapping[str, Any]]) -> Section:
    """Return what each stage changed in the lists of the one before."""
    names = list(dict.fromkeys(name for move in moves for name in move["change"]))
    grid = [["stage", "verdict", *names]]
    for one in moves:
        row = _primary(one["change"])
        word = NOTHING if row is None else verdict_words(row)
        deltas = [_delta(one["change"].get(name)) for name in names]
        grid.append([label(one["stage"]), word, *deltas])
    text = f"verdict by {names[0]}, corrected for the {len(moves)} stages (holm)"
    return Section("change from the stage before", grid, [text])


def _primary(rows: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((row for row in rows.values() if row["primary"]), None)


def _mean(cell: Mapping[str, Any] | None) -> str:
    return NOTHING if cell is None or cell["mean"] is None else measured(cell)


def _mean_alone(cell: Mapping[str, Any] | None) -> str:
    return figure(None if cell is None else cell["mean"])


def _delta(row: Mapping[str, Any] | None) -> str:
    if row is None or row["delta"] is None:
        return NOTHING
    return f"{change(row['delta'])}{PART}{interval(row['ci'])}"


def _parts(parts: Mapping[str, Any]) -> Section:
    names = list(parts["fused"]["measures"])
    grid = [["part", "n", *names, "gold", "alone"]]
    for name, one in [*parts["parts"].items(), ("fused", parts["fused"])]:
        cells = [
            (_mean if measure in (names[0], names[-1]) else _mean_alone)(
                one["measures"].get(measure)
            )
            for measure in names
        ]
        alone = "" if one["alone"] is None else str(one["alone"])
        grid.append([label(name), str(one["queries"]), *cells, str(one["found"]), alone])
    depth = parts["depth"]
    text = (
        f"gold in the first {depth['used']:,}: {parts['gold']:,} in all,"
        f" {parts['together']:,} in some part, {parts['fused']['found']:,} in the fused list,"
        f" {parts['lost']:,} lost by fusing; alone: in no other part"
    )
    lines = [text]
    if depth["beyond_log"]:
        lines.append(f"asked for the first {depth['asked']:,}; a list ends at {depth['used']:,}")
    return Section("parts of the fusion", grid, lines)


def _router(router: Mapping[str, Any]) -> Iterator[Section]:
    title = "router" if router["chosen"] else "by source"
    yield Section(title, _sources(router), _router_lines(router))
    table = router["confusion"]
    if table:
        chosen = sorted({name for row in table.values() for name in row})
        grid = [["right source", *(f"sent to {label(name)}" for name in chosen)]]
        grid += [
            [label(right), *(str(row.get(name, "")) for name in chosen)]
            for right, row in table.items()
        ]
        yield Section("where queries of each source were sent", grid)
    wrong = router["misroutes"]
    if wrong:
        grid = [["query", "right source", "sent to"]]
        grid += [
            [
                label(misroute["query_id"]),
                label("+".join(misroute["right"])),
                label("+".join(misroute["chosen"])),
            ]
            for misroute in wrong[:MOST]
        ]
        more = len(wrong) - MOST
        yield Section("misroutes", grid, [f"and {more:,} more"] if more > 0 else [])


def _sources(router: Mapping[str, Any]) -> Grid:
    """Return a row for each source that queries belong to, were sent to, or that hits are of."""
    own, chosen, hits = (router[part] for part in ("by_source", "chosen", "hits"))
    shares = {} if hits is None else hits["shares"]
    recalls = [name for one in own.values() for name in one if name.startswith("R@")][:1]
    sent, asked = (["sent there"], ["asked"]) if chosen else ([], [])
    top = [] if hits is None else [f"of the top {hits['k']}"]
    grid = [["source", "queries", *sent, *recalls, *asked, *top]]
    for name in sorted({*own, *chosen, *shares}):
        one = own.get(name, {})
        row = [label(name), str(one.get("queries", 0)), *(_mean(one.get("coverage")) for _ in sent)]
        row += [_mean(one.get(recall)) for recall in recalls]
        row += [_percent(chosen.get(name, {}).get("share")) for _ in asked]
        grid.append([*row, *(_percent(shares.get(name)) for _ in top)])
    return grid


def _percent(share: float | None) -> str:
    return NOTHING if share is None else percent(share)


def _router_lines(router: Mapping[str, Any]) -> list[str]:
    lines = []
    if router["over_asked"]:
        of = plural(router["over_asked"], "query", "queries")
        lines.append(f"{of} asked several sources where one is right")
    told = [
        plural(n, *_LEFT_OUT[why]) for why, n in router["left_out"].items() if n and router["n"]
    ]
    if told:
        lines.append(f"left out: {', '.join(told)}")
    if router["never_right"]:
        names = ", ".join(router["never_right"])
        lines.append(f"chosen, but right for no query: {names}")
    if router["hits"] and router["hits"]["unknown"]:
        lines.append(f"{plural(router['hits']['unknown'], 'hit')} of unknown source")
    return lines


def _rewriting(rewriting: Mapping[str, Any]) -> Iterator[Section]:
    told = plural(rewriting["told"], "rewritten query", "rewritten queries")
    lines = [f"{told}, {rewriting['changed']:,} with another text"]
    if rewriting["original_unknown"]:
        lines[0] += f", {rewriting['original_unknown']:,} without the original text"
    if rewriting["comparisons"] is None:
        yield Section("rewriting", None, lines)
        return
    if rewriting["left_out"]:
        of = plural(rewriting["left_out"], "query", "queries")
        lines.append(f"{of} with another text left out: no list for the original")
    for grid in comparison_tables(rewriting).values():
        yield Section("from original to rewritten", grid, [_RULE, *lines])
    if rewriting["hurt"]:
        grid = [["query", rewriting["hurt"][0]["measure"], "text"]]
        for query in rewriting["hurt"]:
            values = f"{figure(query['original'])}{PART}→ {figure(query['rewritten'])}"
            text = f"{query['query'] or ''} → {query['rewritten_text'] or ''}"
            grid.append([label(query["query_id"]), values, label(text)])
        yield Section("hurt most by rewriting", grid)


def _entities(entities: Mapping[str, Any]) -> Section:
    f1 = entities["EL_F1"]
    right, wrong, missed = (entities[name] for name in ("right", "wrong", "missed"))
    grid = [
        ["measure", "mean", "n"],
        ["EL_F1", measured(f1), str(f1["n"])],
        ["precision", figure(entities["precision"]), f"{right + wrong:,} links"],
        ["recall", figure(entities["recall"]), f"{right + missed:,} entities"],
    ]
    text = "EL_F1 is the mean over queries; precision and recall are of all links together"
    return Section("entity linking", grid, [text])
