"""Effect of each stage of a system: retriever, reranker, fusion, router, rewriting, linking.

``effects`` compares stages, ``routing`` has routers, rewriting and entity linking; the front, the
parts of a fusion and the page are here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from karat.analysis import (
    Analysis,
    counted_lines,
    first_rows,
    judgments_met,
    stage_runs,
    system_blocks,
)
from karat.analysis.stages.effects import (
    LINKING,
    Cuts,
    cells,
    cut_at,
    cuts_to,
    effect_of,
    fair_cut,
    only_where,
    raw_of,
    steps_of,
    used_depth,
)
from karat.analysis.stages.routing import (
    chosen_sources,
    linking_of,
    missing_for_rewriting,
    missing_for_routing,
    rewriting_of,
    routing_of,
)
from karat.data.columns import Source
from karat.errors import UsageError
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.report_text import (
    compared_segments,
    comparison_tables,
    conventions_lines,
    counts_lines,
    moved_tables,
)
from karat.evaluation.stages import KEEP, ORIGINAL, RAW, Staged, stage_names, with_raw
from karat.measure.names import Measure, parse_measures
from karat.measure.ranked import Ints, Mask
from karat.measure.score_builder import score
from karat.measure.scores import Scores
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
from karat.pages.page import Grid, Page, Section, TableColumns, table

NO_RAW = (
    "the log has no list before the later stages, or only empty ones; log the retriever's own list"
    " as raw, and those of other stages under stages"
)
NO_PARTS = "the log has no part's list; a fusion logs each part's under stages, by its name"
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

_UNMEASURED = {"mean": None, "delta": None, "ci": None}

Document = Mapping[str, Any]


class Stages(Analysis):
    """The effect of each stage of one or several systems."""


def stages(
    evaluation: Evaluation,
    *runs: Any,
    measures: Sequence[str] | None = None,
    k: int = 5,
    depth: int = 50,
) -> Stages:
    """Compare each stage that a log holds with the one before, query by query.

    By ``measures``, the first of which decides; nDCG, P, R and RR at ``k`` unless named. Raw lists
    are searched for gold to ``depth``. Of two runs, the second of which logs no earlier lists, the
    first is taken for the raw lists of the second.

    >>> result = karat.stages(karat.Evaluation("qrels.txt"), "bm25.trec", "dense.jsonl").to_dict()
    >>> result["systems"][0]["name"]
    'dense'
    """
    conventions = evaluation.prepared.conventions
    chosen = [Measure(name, k) for name in ("nDCG", "P", "R", "RR")]
    if measures:
        chosen = parse_measures(list(measures), conventions=conventions)
    for measure in chosen:
        if measure.definition.cutoff == "path" or measure.name == "EL_F1":
            raise UsageError(f"{measure} measures calls, not lists; leave it out")
    top = max([measure.k for measure in chosen if isinstance(measure.k, int)], default=k)
    cuts = Cuts(tuple(chosen), top, depth)
    raw_input: dict[str, Source] = {}
    if len(runs) == 2:
        raw, final = opened = [evaluation.open(run).read() for run in runs]
        runs = tuple(opened)
        if not stage_names(final):
            # Raw lists that do not fit the gold are refused under the name of their own file.
            score(raw, evaluation.prepared, ())
            raw_input, runs = {"raw": raw.source}, (with_raw(final, raw),)
    staged_runs = stage_runs(evaluation, runs, cuts.every, keep=max(top, KEEP))
    staged_runs = replace(staged_runs, more_inputs=raw_input)
    systems = [
        {"name": name, **_system(staged, cuts, evaluation)}
        for name, staged in staged_runs.systems.items()
    ]
    return staged_runs.result(Stages, {"systems": systems}, stages_page)


def _system(staged: Staged, cuts: Cuts, evaluation: Evaluation) -> dict[str, Any]:
    queries, final = evaluation.queries, staged.final
    parts = parts_of(staged, cuts)
    routing = routing_of(staged, queries, cuts.recall)
    rewriting = rewriting_of(staged, cuts, queries)
    linking, unlinked = linking_of(staged)
    has_raw, gold_ids = RAW in staged.line, staged.gold.query_ids
    answered, with_list = (staged.logged.get(stage, frozenset()) for stage in ("final", RAW))
    # Measures that only lack longer lists are reported with the depth.
    left_out_measures = {str(LINKING), *(() if final.cut is None else final.cut.beyond)}
    lacks = {
        RAW: None if has_raw else NO_RAW,
        "parts": None if parts is not None else NO_PARTS,
        "router": missing_for_routing(routing),
        "rewriting": missing_for_rewriting(rewriting),
        "entities": unlinked,
        **{name: reason for name, reason in final.lacks.items() if name not in left_out_measures},
    }
    return {
        "depth": {
            **used_depth(staged, [staged.raw], cuts.depth).to_dict(),
            "raw": staged.depth(staged.raw).longest if has_raw else None,
            "final": staged.depth(final).longest,
            "without_raw": len((answered - with_list) & {*gold_ids}) if has_raw else None,
            "k": fair_cut(staged, cuts.k).to_dict(),
        },
        "raw": raw_of(staged, cuts),
        "effect": effect_of(staged, cuts, queries=queries, by=evaluation.by),
        "stages": steps_of(staged, cuts),
        "parts": parts,
        "router": routing,
        "rewriting": rewriting,
        "entities": linking,
        "lacks": {name: reason for name, reason in lacks.items() if reason is not None},
    }


def parts_of(staged: Staged, cuts: Cuts) -> dict[str, Any] | None:
    """Return each part of a fusion beside the fused list; None where the log has none.

    All are looked at equally deep. ``gold`` counts all gold, ``together`` the gold in any part,
    ``lost`` gold in a part but not in the fused list. Of a part, ``found`` counts
    the gold that it holds and ``alone`` what no other holds, of the queries that several parts
    were asked; ``within`` names the part that it is a list of.
    """
    lists = {name: part for name, part in staged.beside.items() if name != ORIGINAL}
    if not lists:
        return None
    outer = [name for name in lists if _within(name, lists) is None]
    depth = used_depth(staged, [staged.raw, *(lists[name] for name in outer)], cuts.depth)
    searched = {name: _asked(staged, name, lists) for name in lists}
    codes = staged.gold.rows["code"].to_numpy()
    held = {name: judgments_met(part, depth.used) for name, part in lists.items()}
    held = {name: rows[searched[name][codes[rows]]] for name, rows in held.items()}
    in_fused = judgments_met(staged.raw, depth.used)
    in_parts, times = np.unique(np.concatenate([held[name] for name in outer]), return_counts=True)
    several = np.sum([searched[name] for name in outer], axis=0) > 1
    # Gold that only one part holds, for queries sent to several parts.
    alone = in_parts[(times == 1) & several[codes[in_parts]]]
    measures = {measure: measure for measure in cuts.chosen} | cuts_to(cuts.deep[:1], depth.used)

    def part_of(
        scores: Scores, mask: Mask, gold: Ints, within: str | None = None, alone: int | None = None
    ) -> dict[str, Any]:
        cut = only_where(cut_at(scores, staged.gold, measures), mask)
        facts = {"measures": cells(cut), "queries": int(mask.sum()), "found": len(gold)}
        return {**facts, "within": within, "alone": alone}

    parts = {}
    for name, scores in lists.items():
        within, gold = _within(name, lists), held[name]
        in_no_other = len(np.intersect1d(gold, alone)) if within is None else None
        parts[name] = part_of(scores, searched[name], gold, within, in_no_other)
    return {
        "depth": depth.to_dict(),
        "fused": part_of(staged.raw, staged.raw.everyone, in_fused),
        "parts": parts,
        "gold": int((staged.gold.grade >= staged.gold.conventions.rel).sum()),
        "together": len(in_parts),
        "lost": len(np.setdiff1d(in_parts, in_fused)),
    }


def _within(name: str, lists: Collection[str]) -> str | None:
    """Return the part that a list belongs to: ``hybrid.bm25`` to ``hybrid``."""
    around = [other for other in lists if name.startswith(f"{other}.")]
    return max(around, key=len, default=None)


def _asked(staged: Staged, name: str, lists: Collection[str]) -> Mask:
    """Return the queries sent to a part: all, unless a router chose among the parts."""
    around = _within(name, lists)
    start = "" if around is None else f"{around}."
    short = name.removeprefix(start)
    siblings = {other.removeprefix(start) for other in lists if _within(other, lists) == around}
    chosen = chosen_sources(staged)
    searched = np.array([short in names or not siblings & {*names} for names in chosen], dtype=bool)
    return searched if around is None else searched & _asked(staged, around, lists)


def stages_page(results: Document) -> Page:
    """Return the page: the sentences first, then a table for each part."""
    systems = results["systems"]
    headline: list[str] = []
    notes: list[str] = []
    for system in systems:
        whose = "" if len(systems) == 1 else f"{label(system['name'])}: "
        headline += [f"{whose}{line}" for line in _headlines(system)]
        notes += [
            f"{whose}not measured: {part} ({reason})"
            for part, reason in system["lacks"].items()
            if part != RAW
        ]
    conventions = {**results, "systems": [{"measures": {}}], "comparisons": []}
    notes += [*counts_lines(results), *conventions_lines(conventions)]
    blocks = list(system_blocks(systems, _sections))
    return Page("What each stage is worth", headline, blocks, notes)


def _headlines(system: Document) -> list[str]:
    """Return the headline sentences, each once: the whole way may be one step."""
    effect, router, rewriting = (system[part] for part in ("effect", "router", "rewriting"))
    lines = [system["lacks"][RAW]] if effect is None else [effect["says"], *effect["hurts"]]
    for step in system["stages"]:
        row = _primary(step["change"])
        if row is not None and row["verdict"] == "worse":
            lines.append(step["says"])
    if router is not None and (coverage := router["coverage"]) is not None:
        share = f"{figure(coverage['mean'])} {interval(coverage['ci'])}".rstrip()
        queries = plural(router["n"], "query", "queries")
        wrong = plural(len(router["misroutes"]), "misroute")
        lines.append(f"the router sends {share} of {queries} to a right source, {wrong}")
    if rewriting is not None and rewriting["comparisons"] is not None:
        lines.append(rewriting["says"])
    return list(dict.fromkeys(lines))


def _sections(system: Document) -> Iterator[Section]:
    depth = system["depth"]
    if system["raw"] is not None:
        yield _raw_section(system["raw"], depth)
    if system["effect"] is not None:
        yield from _effect_sections(system["effect"])
    yield from _step_sections(system["stages"])
    if system["parts"] is not None:
        yield _parts_section(system["parts"])
    if system["router"] is not None:
        yield from _router_sections(system["router"])
    if system["rewriting"] is not None:
        yield from _rewriting_sections(system["rewriting"])
    if system["entities"] is not None:
        yield _entities_section(system["entities"])


def _raw_section(raw: Document, depth: Document) -> Section:
    grid = [["measure", "mean", "n"]]
    grid += [[name, measured(cell), str(cell["n"])] for name, cell in raw.items()]
    lines = _end_lines(depth, "the raw lists end")
    if depth["without_raw"]:
        queries = plural(depth["without_raw"], "query has", "queries have")
        lines.append(f"{queries} no raw list; the next logged list replaces it")
    return Section("raw retriever", grid, lines)


def _end_lines(depth: Document, ends: str) -> list[str]:
    """Return a note if lists end above the depth that was asked for."""
    line = f"asked for the first {depth['asked']:,}, but {ends} at {depth['used']:,}"
    return [line] if depth["used"] < depth["asked"] else []


def _effect_sections(effect: Document) -> Iterator[Section]:
    lines = [_RULE, *_end_lines(effect["k"], "both are compared where the lists end,")]
    for grid in comparison_tables(effect).values():
        yield Section("from raw to final", grid, lines)
    for title, grid in compared_segments(effect).items():
        yield Section(title, grid)
    for grid in moved_tables(effect).values():
        yield Section("moved most from raw to final", grid)


def _step_sections(steps: Sequence[Document]) -> Iterator[Section]:
    names = list(dict.fromkeys(name for step in steps for name in step["measures"]))
    grid = [["stage", *names]]
    for step in steps:
        grid.append([label(step["stage"]), *_means(step["measures"], names, names[:1])])
    cells = [cell for step in steps for cell in step["measures"].values()]
    unmeasured = any(cell.get("beyond_log") and cell["mean"] is None for cell in cells)
    lines = [f"{NOTHING} below the end of the lists"] if unmeasured else []
    yield Section("stage by stage", grid, lines)
    moves = [step for step in steps if step["change"]]
    if len(moves) > 1:
        names = list(dict.fromkeys(name for move in moves for name in move["change"]))
        grid = [["stage", "verdict", *names]]
        for move in moves:
            row = _primary(move["change"])
            word = NOTHING if row is None else verdict_words(row)
            rows = [move["change"].get(name, _UNMEASURED) for name in names]
            deltas = [f"{change(row['delta'])}{PART}{interval(row['ci'])}" for row in rows]
            grid.append([label(move["stage"]), word, *deltas])
        text = f"verdict by {names[0]}, corrected for the {len(moves)} stages (holm)"
        yield Section("change from the stage before", grid, [text])


def _primary(rows: Document) -> Document | None:
    return next((row for row in rows.values() if row["primary"]), None)


def _means(cells: Document, names: Sequence[str], in_full: Sequence[str]) -> list[str]:
    """Return the means of some measures, those ``in_full`` with their intervals."""
    known = {name: cells.get(name, _UNMEASURED) for name in names}
    return [
        measured(cell) if name in in_full else figure(cell["mean"]) for name, cell in known.items()
    ]


def _parts_section(parts: Document) -> Section:
    names = list(parts["fused"]["measures"])
    grid = [["part", "n", *names, "gold", "alone"]]
    for part_name, part in [*parts["parts"].items(), ("fused", parts["fused"])]:
        row = _means(part["measures"], names, (names[0], names[-1]))
        alone = "" if part["alone"] is None else str(part["alone"])
        grid.append([label(part_name), str(part["queries"]), *row, str(part["found"]), alone])
    depth = parts["depth"]
    fused = f"{parts['fused']['found']:,} in the fused list, {parts['lost']:,} lost by fusing"
    gold = f"{parts['gold']:,} in all, {parts['together']:,} in some part, {fused}"
    line = f"gold in the first {depth['used']:,}: {gold}; alone: in no other part"
    return Section("parts of the fusion", grid, [line, *_end_lines(depth, "a list ends")])


def _router_sections(router: Document) -> Iterator[Section]:
    title = "router" if router["chosen"] else "by source"
    yield Section(title, _source_grid(router), list(_router_lines(router)))
    if confusion := router["confusion"]:
        chosen = sorted({name for row in confusion.values() for name in row})
        grid = [["right source", *(f"sent to {label(name)}" for name in chosen)]]
        for right, row in confusion.items():
            grid.append([label(right), *(str(row.get(name, "")) for name in chosen)])
        yield Section("where queries of each source were sent", grid)
    columns: TableColumns = {
        "query": "query_id",
        "right source": lambda row: "+".join(row["right"]),
        "sent to": lambda row: "+".join(row["chosen"]),
    }
    wrong = router["misroutes"]
    yield from first_rows("misroutes", wrong, columns, total=len(wrong))


def _source_grid(router: Document) -> Grid:
    """Return a row for each source that queries belong to, were sent to, or that hits are of."""
    by_source, chosen, hits = (router[part] for part in ("by_source", "chosen", "hits"))
    shares = {} if hits is None else hits["shares"]
    recall = next((name for row in by_source.values() for name in row if name[:2] == "R@"), None)
    columns: dict[str, str] = {"source": "source", "queries": "queries"}
    columns |= {"sent there": "coverage"} if chosen else {}
    columns |= {} if recall is None else {recall: recall}
    columns |= {"asked": "asked"} if chosen else {}
    columns |= {} if hits is None else {f"of the top {hits['k']}": "top"}
    rows = []
    for name in sorted({*by_source, *chosen, *shares}):
        row = {"source": name, "queries": 0, "coverage": None, "asked": None, "top": None}
        row |= {} if recall is None else {recall: None}
        row |= {"asked": percent(chosen[name]["share"])} if name in chosen else {}
        row |= {"top": percent(shares[name])} if name in shares else {}
        rows.append(row | by_source.get(name, {}))
    return table(rows, columns)


def _router_lines(router: Document) -> Iterator[str]:
    if router["over_asked"]:
        queries = plural(router["over_asked"], "query", "queries")
        yield f"{queries} searched several sources where one is right"
    left_out = counted_lines(router["left_out"], _LEFT_OUT)
    if left_out and router["n"]:
        yield f"left out: {', '.join(left_out)}"
    if router["never_right"]:
        yield f"chosen, but right for no query: {', '.join(router['never_right'])}"
    if router["hits"] and router["hits"]["unknown"]:
        yield f"{plural(router['hits']['unknown'], 'hit')} of unknown source"


def _rewriting_sections(rewriting: Document) -> Iterator[Section]:
    queries = plural(rewriting["told"], "rewritten query", "rewritten queries")
    lines = [f"{queries}, {rewriting['changed']:,} with another text"]
    if rewriting["original_unknown"]:
        lines[0] += f", {rewriting['original_unknown']:,} without the original text"
    if rewriting["comparisons"] is None:
        yield Section("rewriting", None, lines)
        return
    if rewriting["left_out"]:
        queries = plural(rewriting["left_out"], "query", "queries")
        lines.append(f"{queries} with another text left out: no list for the original")
    for grid in comparison_tables(rewriting).values():
        yield Section("from original to rewritten", grid, [_RULE, *lines])
    if hurt := rewriting["hurt"]:
        columns: TableColumns = {
            "query": "query_id",
            hurt[0]["measure"]: lambda row: (
                f"{figure(row['original'])}{PART}→ {figure(row['rewritten'])}"
            ),
            "text": lambda row: f"{row['query'] or ''} → {row['rewritten_text'] or ''}",
        }
        yield Section("hurt most by rewriting", table(hurt, columns))


def _entities_section(entities: Document) -> Section:
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
