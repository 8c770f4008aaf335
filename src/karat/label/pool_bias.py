"""Pool bias: whether gold is fair to the runs it judges.

Leave-one-run-out (Zobel 1998), RBP residuals (Moffat and Zobel 2008), condensed lists (Sakai
2007) and Bpref (Buckley and Voorhees 2004). Nothing here is random.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from karat.data.tables import Blocks, Gold, Queries, Run
from karat.errors import UsageError
from karat.label.inputs import PAIR
from karat.label.judged_runs import (
    SAME,
    JudgedRun,
    judged_queries,
    ranks,
    rbp_differences,
    swaps,
    tau,
    without_judgments,
)
from karat.measure.conventions import Conventions
from karat.measure.names import Measure, parse_measure, parse_measures
from karat.measure.prepare import Prepared, prepare
from karat.measure.ranked import UNLIMITED, Ranked, is_budget
from karat.measure.score_builder import score
from karat.pages.formatting import NOTHING, change, label, percent, plural
from karat.pages.page import Grid, Section, table

MEASURES = ("nDCG@10", "AP", "RBP")
# These measure how much is judged, so gold cannot be unfair by them.
_OF_JUDGMENTS = ("Judged", "Hole", "RBPres")
_BPREF = parse_measure("Bpref")
_WHOLE_LISTS = 1 << 31

# Worth a sentence: a run that changes by a larger share of its value without the judgments that
# only it has; a top of which a smaller share is judged; ranks at which the judged shares of two
# runs differ by more; a larger share of judgments that are in no given run's top.
THRESHOLDS = {"change": 0.05, "coverage": 0.5, "uneven": 0.1, "elsewhere": 0.2}
# A sentence names this many pairs of runs and counts the others.
_NAMED = 3

Body = Mapping[str, Any]


def bias_measures(
    texts: Sequence[str | Measure] | None, *, conventions: Conventions | None = None
) -> list[Measure]:
    """Return measures of ranks with one value per query; others are refused.

    >>> [str(measure) for measure in bias_measures(None)]
    ['nDCG@10', 'AP', 'RBP']
    """
    chosen = parse_measures(list(texts or MEASURES), conventions=conventions)
    for measure in chosen:
        kind = measure.definition
        other = kind.needs or kind.evidence is not None or kind.cutoff == "path"
        if other or is_budget(measure.k) or kind.better == "none" or measure.name in _OF_JUDGMENTS:
            others = f"use measures such as {', '.join(MEASURES)}, R@10 or RR"
            raise UsageError(f"{measure} does not measure the ranks of relevant items; {others}")
    return chosen


def pool_bias(
    runs: Mapping[str, Run | Blocks],
    gold: Sequence[Gold],
    *,
    depth: int,
    measures: Sequence[str | Measure] | None = None,
    queries: Queries | None = None,
    conventions: Conventions | None = None,
) -> dict[str, Any]:
    """Return as plain data whether gold is fair to every run, each pooled to ``depth``.

    Each run is scored without the judgments of items in its top that no other given run has in
    its own: a pool of the other runs would lack them. This needs gold that was pooled from these
    runs. Where many judgments are in no run's top, nothing is concluded; such judgments always
    stay. If several golds judge a pair, the first one counts.

    >>> runs = {"a": Run.from_dict({"q": ["x", "y"]}), "b": Run.from_dict({"q": ["y", "z"]})}
    >>> bias = pool_bias(runs, [Gold.from_dict({"q": {"x": 1, "y": 1}})], depth=2, measures=["AP"])
    >>> bias["systems"][0]["left_out"]["measures"]["AP"]["without"]
    0.5
    """
    conventions = conventions or Conventions()
    chosen = bias_measures(measures, conventions=conventions)
    rbps = [measure for measure in chosen if measure.name == "RBP"] or [parse_measure("RBP")]
    # Of several judgments of a pair the first one counts.
    rows = pl.concat([table.frame.select(*PAIR, "grade") for table in gold])
    disagreeing = rows.group_by(PAIR).agg(pl.col("grade").n_unique()).filter(pl.col("grade") > 1)
    first = rows.unique(subset=PAIR, keep="first", maintain_order=True)
    ids = tuple(dict.fromkeys(query for table in gold for query in table.query_ids))
    merged = Gold(first, ids, source=gold[0].source)
    prepared = prepare(merged, replace(conventions, short_lists="complete"), queries=queries)
    scored = list(dict.fromkeys([*chosen, *rbps, _BPREF]))
    judged = [
        JudgedRun.of(name, score(run, prepared, scored, keep=_WHOLE_LISTS), prepared)
        for name, run in runs.items()
    ]
    left_out = _left_out(judged, chosen, depth)
    lists = [run.condensed() for run in judged]
    condensed = {str(measure): _changes(measure, judged, lists, "condensed") for measure in chosen}
    bpref = [run.value(_BPREF) for run in judged]
    systems = [
        {
            "name": run.name,
            "coverage": run.bands(depth),
            "left_out": left_out[at] if left_out else None,
            "residual": {str(rbp): run.residual(rbp) for rbp in rbps},
            "condensed": {
                "measures": {name: cells[at] for name, cells in condensed.items()},
                "Bpref": {"value": bpref[at], "rank": ranks(bpref)[at]},
            },
        }
        for at, run in enumerate(judged)
    ]
    names = [run.name for run in judged]
    body: dict[str, Any] = {
        "depth": depth,
        "measures": [str(measure) for measure in chosen],
        "gold": _gold_counts(prepared, judged, depth) | {"disagreeing": disagreeing.height},
        "thresholds": dict(THRESHOLDS),
        "systems": systems,
        "taus": {name: _taus(name, left_out, cells) for name, cells in condensed.items()},
        "turned": {
            str(measure): swaps(
                names,
                *_columns(condensed[str(measure)], "condensed"),
                lower=measure.definition.better == "lower",
            )
            for measure in chosen
        },
        "differences": {str(rbp): rbp_differences(rbp, judged, prepared) for rbp in rbps},
    }
    fair, sentences = _conclusion(body)
    return {**body, "fair": fair, "sentences": sentences}


def _gold_counts(gold: Prepared, judged: Sequence[JudgedRun], depth: int) -> dict[str, int]:
    """Count the judgments, and those that no run returned in its top, or at all."""
    unseen = {}
    for name, last in (("in_no_top", depth), ("in_no_list", UNLIMITED)):
        lacking = gold.grade >= 0
        for run in judged:
            lacking[run.contributed(last)] = False
        unseen[name] = int(lacking.sum())
    target = gold.target(np.arange(len(gold.query_ids)))
    relevant = target.relevant(gold.conventions.rel)
    return {
        "queries": len(gold.query_ids),
        "queries_judged": int(judged_queries(target).sum()),
        "queries_with_relevant": int((relevant > 0).sum()),
        "judgments": int((gold.grade >= 0).sum()),
        "relevant": int(relevant.sum()),
        "below_zero": int((gold.grade < 0).sum()),
        **unseen,
    }


def _left_out(
    judged: Sequence[JudgedRun], measures: Sequence[Measure], depth: int
) -> list[dict[str, Any]]:
    """Return each run without its own judgments, all runs scored on the others; none for one run.

    ``queries_emptied`` counts the queries that lose their last relevant item; they stay in every
    mean. ``tau`` and ``turned`` compare the order of all runs on the two golds.
    """
    if len(judged) < 2:
        return []
    tops = [run.contributed(depth) for run in judged]
    # A list holds an item once, so each run meets a judgment at most once.
    times = np.bincount(np.concatenate(tops), minlength=len(judged[0].gold.grade))
    names = [run.name for run in judged]
    target, rel = judged[0].ranked.target, judged[0].gold.conventions.rel
    systems = []
    for at, top in enumerate(tops):
        unique = top[times[top] == 1]
        removed = np.zeros(len(target.query), dtype=bool)
        removed[unique] = True
        smaller = without_judgments(target, removed)
        lists = [run.without(smaller, removed) for run in judged]
        cells = {}
        for measure in measures:
            changes = _changes(measure, judged, lists, "without")
            columns = _columns(changes, "without")
            lower = measure.definition.better == "lower"
            turned = swaps(names, *columns, lower=lower)
            cells[str(measure)] = {**changes[at], "tau": tau(*columns), "turned": turned}
        emptied = (target.relevant(rel) > 0) & (smaller.relevant(rel) == 0)
        systems.append(
            {
                # A pair that was pooled and not judged is removed too, but is no judgment.
                "unique": int((target.grade[unique] >= 0).sum()),
                "unique_relevant": int((target.grade[unique] >= rel).sum()),
                "queries_emptied": int(emptied.sum()),
                "measures": cells,
            }
        )
    return systems


def _changes(
    measure: Measure, judged: Sequence[JudgedRun], lists: Sequence[Ranked], other: str
) -> list[dict[str, Any]]:
    """Return each run's value and rank, now and with the ``other`` lists."""
    better = measure.definition.better
    before = [run.value(measure) for run in judged]
    after = [run.value_on(measure, ranked) for run, ranked in zip(judged, lists, strict=True)]
    places = [ranks(values, lower=better == "lower") for values in (before, after)]
    cells = []
    for value, changed, rank, new_rank in zip(before, after, *places, strict=True):
        delta = None if value is None or changed is None else changed - value
        if delta is not None and abs(delta) <= SAME:
            # A rounding error of the sum.
            delta = 0.0
        cells.append(
            {
                "value": value,
                other: changed,
                "change": delta,
                "share": delta / abs(value) if value and delta is not None else None,
                "rank": rank,
                f"rank_{other}": new_rank,
                "better": better,
            }
        )
    return cells


def _columns(cells: Sequence[Body], other: str) -> tuple[list[float | None], list[float | None]]:
    return [cell["value"] for cell in cells], [cell[other] for cell in cells]


def _taus(
    name: str, left_out: Sequence[Body], condensed: Sequence[Body]
) -> dict[str, float | None]:
    """Return Kendall's tau of the order of the runs by one measure, under each condition.

    ``left_out`` is the lowest of those without one run's own judgments, all runs on the same gold;
    ``each_without_own`` takes every run by its value without its own judgments, so each on other
    gold. None where there is no order.
    """
    cells = [system["measures"][name] for system in left_out]
    taus = [cell["tau"] for cell in cells]
    return {
        # Where one of them leaves no order at all, the lowest of the others claims too much.
        "left_out": None if None in taus else min(taus, default=None),
        "each_without_own": tau(*_columns(cells, "without")),
        "condensed": tau(*_columns(condensed, "condensed")),
    }


def _conclusion(body: Body) -> tuple[bool | None, list[str]]:
    """Return whether the gold is fair to every run, and what the numbers mean, the verdict first.

    None where this is unknown: there is one run, nothing was scored, too little is judged to
    find anything, or many judgments come from outside the tops of these runs.
    """
    systems, shares = body["systems"], {}
    for system in systems:
        if items := sum(band["items"] for band in system["coverage"]):
            shares[system["name"]] = sum(band["judged"] for band in system["coverage"]) / items
    if not any(_is_scored(system) for system in systems):
        return None, ["no conclusion: no query has a relevant item in this gold"]
    if not any(shares.values()):
        nothing = f"no run has a judged item in its top {body['depth']:,}"
        return None, [f"no conclusion: {nothing}; check that gold and runs name the same items"]
    fair, sentences = _fairness(body, shares)
    sentences += _uneven(body)
    for rbp, pairs in body["differences"].items():
        sentences += _orders(rbp, pairs)
    if len(systems) > 1:
        sentences += _condensed_orders(body)
    return fair, sentences


def _fairness(body: Body, shares: Mapping[str, float]) -> tuple[bool | None, list[str]]:
    """Return whether every run keeps its score and place without the judgments only it has."""
    systems, gold, depth = body["systems"], body["gold"], body["depth"]
    if len(systems) < 2:
        return None, ["leave-one-run-out needs two runs or more; give the others that were pooled"]
    low = min(shares, key=shares.__getitem__)
    if gold["in_no_top"] > THRESHOLDS["elsewhere"] * gold["judgments"]:
        unknown = (
            f"cannot tell whether the gold is fair to these runs: {gold['in_no_top']:,} of"
            f" {plural(gold['judgments'], 'judgment')} are in no given run's top {depth:,}, so"
            " leaving out what only one given run has overstates the bias; give every run that was"
            " pooled, and the --depth of the pool"
        )
        loss = (
            "a run that was not pooled loses by its unjudged items: at most"
            f" {percent(1 - shares[low])} of a top {depth:,} ({low})"
        )
        return None, [unknown, loss, *_moves(systems, "")]
    if moves := list(_moves(systems, ": a new run of its kind would look {} than it is")):
        return False, moves
    if shares[low] < THRESHOLDS["coverage"]:
        little = f"only {percent(shares[low])} of the top {depth:,} of {low} is judged"
        least = percent(THRESHOLDS["coverage"])
        says = f"finds no bias, but that says little: {little}, below {least}"
        return None, [f"leave-one-run-out {says}"]
    fair = (
        "the gold is fair to these runs: without the judgments that no other given run has, no"
        f" run changes by more than {percent(THRESHOLDS['change'])} or changes places"
    )
    return all(map(_is_scored, systems)) or None, [fair]


def _moves(systems: Sequence[Body], meaning: str) -> Iterator[str]:
    """Yield how runs change without the judgments that only each of them has."""
    for system in systems:
        name, left_out = system["name"], system["left_out"]
        changes, looks, passed = [], dict[str, None](), dict[str, None]()
        for measure, cell in left_out["measures"].items():
            pairs = [{pair["first"], pair["second"]} for pair in cell["turned"]]
            others = [other for pair in pairs if name in pair for other in pair - {name}]
            delta, share = cell["change"], cell["share"]
            if others or (delta and (share is None or abs(share) > THRESHOLDS["change"])):
                passed |= dict.fromkeys(others)
                percentage = "" if share is None else f" ({percent(abs(share))})"
                changes.append(f"{delta:+.4f} {measure}{percentage}")
                looks["worse" if (delta > 0) is (cell["better"] == "lower") else "better"] = None
        if changes:
            places = f" and changes places with {_first_few(passed)}" if passed else ""
            judgments = f"the {plural(left_out['unique'], 'judgment')} that no other given run has"
            sentence = f"{name} changes by {', '.join(changes)}{places} without {judgments}"
            yield sentence + meaning.format(" or ".join(looks))


def _uneven(body: Body) -> Iterator[str]:
    """Name the first ranks at which unequal shares of two runs are judged."""
    for bands in zip(*(system["coverage"] for system in body["systems"]), strict=True):
        shares = {
            system["name"]: band["share"]
            for system, band in zip(body["systems"], bands, strict=True)
            if band["share"] is not None
        }
        low, high = (end(shares, key=shares.__getitem__, default="") for end in (min, max))
        if shares and shares[high] - shares[low] > THRESHOLDS["uneven"]:
            yield (
                f"at ranks {bands[0]['from']:,} to {bands[0]['to']:,} {percent(shares[low])} of"
                f" {low} is judged and {percent(shares[high])} of {high}: unjudged items count"
                f" against {low} more"
            )
            return


def _orders(rbp: str, pairs: Sequence[Body]) -> Iterator[str]:
    """Name runs that RBP cannot order, then those that only ranks below the end could reverse."""
    by_reason: dict[str | None, list[str]] = {}
    for pair in pairs:
        by_reason.setdefault(pair["open"], []).append(" and ".join(pair["systems"]))
    unordered = [*by_reason.get("unjudged", ()), *by_reason.get("equal", ())]
    if unordered:
        yield f"the unjudged items decide how {rbp} orders {_first_few(unordered)}"
    elif pairs:
        yield f"{rbp} orders every pair of runs, however the unjudged items are judged"
    if beyond := by_reason.get("beyond"):
        yield f"by {rbp} only ranks below the end of lists could reverse {_first_few(beyond)}"


def _condensed_orders(body: Body) -> Iterator[str]:
    """Name pairs of runs whose order depends on whether unjudged items use up ranks."""
    for measure, pairs in body["turned"].items():
        if pairs:
            swapped = _first_few(f"{pair['first']} and {pair['second']}" for pair in pairs)
            yield f"condensed lists reverse by {measure} {swapped}"
    if not any(body["turned"].values()):
        yield "condensed lists do not change the order of the runs"


def _is_scored(system: Body) -> bool:
    return any(cell["value"] is not None for cell in system["condensed"]["measures"].values())


def _first_few(names: Iterable[str]) -> str:
    first = list(names)
    more = f" and {len(first) - _NAMED:,} more" if len(first) > _NAMED else ""
    return ", ".join(first[:_NAMED]) + more


_RESIDUAL_COLUMNS = {
    "system": "name",
    "at least": "low",
    "unjudged": "unjudged",
    "beyond": "beyond",
    "at most": "high",
}
_RESIDUAL = (
    "unjudged: the weight of returned items without a judgment · beyond: the weight of ranks below"
    " the end of a list or below the cut-off"
)


def bias_sections(bias: Body) -> list[Section]:
    """Return the sections on the ``bias`` of a pool."""
    systems = bias["systems"]
    judged = plural(bias["gold"]["queries_judged"], "query", "queries")
    sections = [
        Section("Is the gold fair to every run?", None, bias["sentences"]),
        Section(f"Judged by rank, of {judged} with judgments", _bands(systems), _gold_lines(bias)),
    ]
    if all(system["left_out"] for system in systems):
        lines = [
            f"{label(system['name'])}: {plural(left_out['unique'], 'judgment')} that no other given"
            f" run has, {left_out['unique_relevant']:,} relevant; queries that lose the last"
            f" relevant item (still counted in every mean): {left_out['queries_emptied']:,}"
            for system in systems
            for left_out in [system["left_out"]]
        ]
        lines += _tau_line(bias, "left_out", "the lowest of all runs left out")
        grid = _change_grid(bias, "left_out", "without")
        sections.append(Section("Without what only one run has", grid, lines))
    nothing = dict.fromkeys(("low", "unjudged", "beyond", "high"))
    for rbp in bias["differences"]:
        rows = [{"name": each["name"], **(each["residual"][rbp] or nothing)} for each in systems]
        grid = table(rows, _RESIDUAL_COLUMNS)
        sections.append(Section(f"{rbp} and what it leaves open", grid, [_RESIDUAL]))
    grid = _change_grid(bias, "condensed", "condensed")
    lines = _tau_line(bias, "condensed", "now and condensed")
    return [*sections, Section("Condensed lists", grid, lines)]


def _bands(systems: Sequence[Body]) -> Grid:
    grid = [["system", *(f"{band['from']}-{band['to']}" for band in systems[0]["coverage"])]]
    for system in systems:
        shares = [band["share"] for band in system["coverage"]]
        cells = [NOTHING if share is None else percent(share) for share in shares]
        grid.append([label(system["name"]), *cells])
    return grid


def _gold_lines(bias: Body) -> list[str]:
    gold = bias["gold"]
    queries = plural(gold["queries_with_relevant"], "query", "queries")
    judgments = f"{plural(gold['judgments'], 'judgment')}, {gold['relevant']:,} relevant"
    lines = [
        f"the gold: {judgments}, of {queries} with a relevant item",
        f"never left out, since in no given run's top: {gold['in_no_top']:,}",
    ]
    if gold["below_zero"]:
        lines.append(f"grades below 0 (pooled, not judged): {gold['below_zero']:,}")
    if gold["disagreeing"]:
        pairs = f"pairs graded differently in several files: {gold['disagreeing']:,}"
        lines.append(f"{pairs}; the first file counts")
    return lines


def _change_grid(bias: Body, kind: str, other: str) -> Grid:
    """Return measures and systems as rows: the value now and otherwise, and the rank each time."""

    def ranks_of(row: Body) -> str | None:
        before, after = row["rank"], row[f"rank_{other}"]
        if before is None or after is None:
            return None
        return f"{before}" if before == after else f"{before} → {after}"

    def share_of(row: Body) -> str | None:
        share = row["share"]
        return None if share is None else f"{100 * share:+.1f} %" if share else "0.0 %"

    rows = [
        {"measure": name, "system": system["name"], **system[kind]["measures"][name]}
        for name in bias["measures"]
        for system in bias["systems"]
    ]
    if kind == "condensed" and "Bpref" not in bias["measures"]:
        # It uses judged items only, so condensing changes nothing.
        for system in bias["systems"]:
            value, rank = system["condensed"]["Bpref"].values()
            cells = {"value": value, other: value, "rank": rank, f"rank_{other}": rank}
            names = {"measure": "Bpref", "system": system["name"]}
            rows.append({**names, **cells, "change": None, "share": None})
    return table(
        rows,
        {
            "measure": "measure",
            "system": "system",
            "now": "value",
            other: other,
            "Δ": lambda row: change(row["change"]),
            "share": share_of,
            "rank": ranks_of,
        },
    )


def _tau_line(bias: Body, kind: str, name: str) -> list[str]:
    taus = {measure: tau[kind] for measure, tau in bias["taus"].items() if tau[kind] is not None}
    values = " · ".join(f"{measure} {value:.2f}" for measure, value in taus.items())
    return [f"Kendall's tau of the order of the runs, {name}: {values}"] if taus else []
