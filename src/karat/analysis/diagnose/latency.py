"""Latency and cost of calls by stage and segment, and quality against latency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from karat.analysis import SystemAnalysis
from karat.data.tables import Queries, Run
from karat.errors import MissingInputError, UsageError, unknown
from karat.evaluation.comparison import compare_numbers
from karat.evaluation.segments import SMALL, By, segments_by
from karat.evaluation.stages import Staged, whole_in
from karat.evaluation.systems import check_comparable, compared_systems
from karat.evaluation.top_lists import Mask, logged_texts, query_texts
from karat.measure import aggregates
from karat.measure.aggregates import Values
from karat.measure.kernels.lists import check_path
from karat.measure.names import Measure, parse_measure
from karat.measure.score_builder import score
from karat.measure.scores import Scores, Summary
from karat.pages.formatting import NOTHING, PART, label, percent, plural
from karat.pages.page import Section, TableColumns, table
from karat.stats.paired import holm

TOTAL = "total"
# The default latency to compare systems by.
DEFAULT_PATH = "total.p50"
PERCENTILES = ("p50", "p90", "p95", "p99")
# The number of slowest queries to list.
SLOWEST = 10
_FIGURES = ("mean", *PERCENTILES)
# The percentiles to compare with a baseline.
_COMPARED = {"p50": 0.5, "p90": 0.9}

Document = Mapping[str, Any]


def latencies(
    staged: Staged, queries: Queries | None = None, *, by: Sequence[By | str] = ()
) -> SystemAnalysis:
    """Return the time of each logged stage, the total time, and the cost of the calls.

    ``stages`` has for each stage the number of calls, the mean and percentiles of its milliseconds,
    and its median ``share`` of a call's total; ``cost`` the mean and sum of what was spent;
    ``segments`` both for each column and each of its values. The figures are those of the measures
    ``latency.<stage>.p50``, ``cost.<what>`` and the like; ``failed`` are the calls that none of
    them counts. ``index_bytes`` and ``embedding_updates`` come from the log. A log without
    ``latency_ms`` is refused.
    """
    times = {
        stage: {end: latency_of(stage, end) for end in _FIGURES} for stage in stages_of(staged)
    }
    costs = {
        name: {"mean": _cost_of(name), "sum": _cost_of(f"{name}.sum")}
        for name in _logged(staged, "cost")
    }
    figures = [*times.values(), *costs.values()]
    scores = score_calls(staged, [measure for named in figures for measure in named.values()])
    total = _times(scores, TOTAL)

    def spent(mask: Mask) -> dict[str, Any]:
        summaries = scores.summarise(mask)
        stages = {stage: _amount(summaries, named) for stage, named in times.items()}
        for stage, amount in stages.items():
            share = _share(_times(scores, stage), total, mask)
            if stage != TOTAL and share is not None:
                amount["share"] = share
        cost = {name: _amount(summaries, named) for name, named in costs.items()}
        return {"stages": stages, "cost": cost}

    segments: dict[str, dict[str, Any]] = {}
    for column in map(By.parse, by):
        segments[str(column)] = {}
        for segment in segments_by(scores.table["query_id"], queries, column):
            n = int((segment.mask & ~np.isnan(total)).sum())
            facts = {"n": n, "small": n < SMALL, **spent(segment.mask)}
            segments[str(column)][segment.name] = facts
    # Shows the text that was searched for, since it took the time.
    texts = query_texts(None, queries) | logged_texts(staged.calls, "query")
    document = {
        **spent(np.ones(len(total), dtype=bool)),
        "segments": segments,
        "slowest": _slowest(scores, list(times), texts),
        "failed": _failed(staged),
        "index_bytes": whole_in(staged.final.meta, "index_bytes"),
        "embedding_updates": whole_in(staged.final.meta, "embedding_updates"),
    }
    return SystemAnalysis(document, latency_sections)


def stages_of(staged: Staged) -> list[str]:
    """Return the stages whose time is logged, in the log's order, and the total as the last."""
    logged = _logged(staged, "latency")
    if not logged:
        raise MissingInputError(
            "latencies need latency_ms in the run log: the milliseconds of each call,"
            ' or of each of its stages, as in {"retrieve": 35, "rerank": 22}'
        )
    return [*(stage for stage in logged if stage != TOTAL), TOTAL]


def latency_of(stage: str, ending: str) -> Measure:
    """Return the measure of a stage's time; the stage may have any name."""
    return Measure("latency", None, (("path", f"{stage}.{ending}"),))


def _cost_of(path: str) -> Measure:
    return Measure("cost", None, (("path", path),))


def score_calls(staged: Staged, measures: Sequence[Measure]) -> Scores:
    """Return the scores of the calls themselves, of a run whose lists were scored before."""
    final = staged.final
    run = Run.from_dict({}, name=final.system)
    run = replace(run, calls=staged.calls, meta=final.meta, order="rank", source=final.source)
    return score(run, staged.gold, measures, derived=True)


def _logged(staged: Staged, family: str) -> list[str]:
    columns = [] if staged.calls is None else staged.calls.columns
    return [name.partition(".")[2] for name in columns if name.startswith(f"{family}.")]


def _times(scores: Scores, stage: str) -> Values:
    return scores.values(str(latency_of(stage, "mean")))


def _amount(summaries: Mapping[str, Summary], named: Mapping[str, Measure]) -> dict[str, Any]:
    """Return the number of calls with a value, and each figure with its interval."""
    figures = {name: summaries[str(measure)] for name, measure in named.items()}
    return {
        "n": figures["mean"].n,
        **{name: {"value": summary.mean, "ci": summary.ci} for name, summary in figures.items()},
    }


def _share(times: Values, total: Values, mask: Mask) -> float | None:
    """Return the median share of its total that a stage takes in these calls."""
    timed = mask & (total > 0)
    # A total near 0 gives no meaningful share.
    with np.errstate(over="ignore"):
        shares = times[timed] / total[timed]
    return aggregates.percentile(shares[np.isfinite(shares)], share=0.5)


def _slowest(
    scores: Scores, stages: Sequence[str], texts: Mapping[str, str]
) -> list[dict[str, Any]]:
    ids = scores.query_ids
    times = {stage: _times(scores, stage) for stage in stages}
    total = times.pop(TOTAL)
    timed = np.flatnonzero(~np.isnan(total)).tolist()
    return [
        {
            "query_id": ids[row],
            "text": texts.get(ids[row]),
            "total": float(total[row]),
            "stages": {
                stage: float(time[row]) for stage, time in times.items() if not np.isnan(time[row])
            },
        }
        for row in sorted(timed, key=lambda row: (-total[row], ids[row]))[:SLOWEST]
    ]


def _failed(staged: Staged) -> dict[str, Any]:
    """Return how many calls failed, and how long they took."""
    calls = staged.calls
    if calls is None or "error" not in calls.columns:
        return {"calls": 0, "timed": 0, "p50": None, "longest": None}
    in_gold = pl.Series(staged.gold.code_of(calls["query_id"]) >= 0)
    failed = calls.filter(in_gold & calls["error"].is_not_null())
    # Without the error, so that their times are read as all others are.
    as_calls = replace(staged, calls=failed.drop("error"))
    times = _times(score_calls(as_calls, [latency_of(TOTAL, "mean")]), TOTAL)
    times = times[~np.isnan(times)]
    return {
        "calls": failed.height,
        "timed": len(times),
        "p50": aggregates.percentile(times, share=0.5),
        "longest": float(times.max()) if len(times) else None,
    }


# The slowdown of calls against a baseline.


def times_of(staged: Staged) -> dict[str, Values]:
    """Return the time of each stage, query by query."""
    measures = {stage: latency_of(stage, "mean") for stage in stages_of(staged)}
    scores = score_calls(staged, list(measures.values()))
    return {stage: scores.values(str(measure)) for stage, measure in measures.items()}


def rise_of(name: str, old: Values | None, new: Values, known: Mask) -> dict[str, Any]:
    """Return a percentile of both logs over the queries that both answered."""
    share = _COMPARED[name]
    before = None if old is None else aggregates.percentile(old[known], share=share)
    return {
        "name": name,
        "baseline": before,
        "system": aggregates.percentile(new[known], share=share),
    }


def growth_of(rise: Mapping[str, Any]) -> float:
    return (rise["system"] or 0.0) - (rise["baseline"] or 0.0)


def rise_text(rise: Mapping[str, Any]) -> str:
    before, after = rise["baseline"], rise["system"]
    if before is None:
        return f"{ms(after)} ms, which the baseline does not log"
    more = f" (+{100 * (after / before - 1):.0f} %)" if before else ""
    return f"from {ms(before)} to {ms(after)} ms{more}"


def total_rises(
    staged: Staged, old: Values, new: Values, known: Mask, least: float
) -> list[dict[str, Any]]:
    """Return the percentiles of the total that rose by ``least`` or more, with corrected p."""
    final = staged.final
    groups = None if final.groups is None else final.groups[known]
    tests = [
        compare_numbers(latency_of(TOTAL, name), old[known], new[known], final.conventions, groups)
        for name in _COMPARED
    ]
    ps = holm([None if test is None else test.p for test in tests])
    rises = []
    for name, test, p in zip(_COMPARED, tests, ps, strict=True):
        if test is None or p is None or p >= final.conventions.alpha:
            continue
        rise = rise_of(name, old, new, known) | {"p": p}
        grown, sure = growth_of(rise), test.ci is None or test.ci[0] > 0
        # Rounding: floats that differ by less are equal.
        if sure and grown > 0 and grown >= least * rise["baseline"] - 1e-9:
            rises.append(rise)
    return rises


def pareto(
    systems: Mapping[str, Staged], measure: str | Measure, latency: str = DEFAULT_PATH
) -> SystemAnalysis:
    """Compare the quality of systems with their latency, from the fastest to the slowest.

    ``measure`` is one that all of them were scored by, ``latency`` a stage and its percentile or
    mean, such as ``total.p90``. No other system beats those of the ``front``: a system beats
    another if it is not worse in either and better in one. ``unplaced`` says what further
    systems lack. Only the figures decide; use a comparison to test whether a difference is more
    than chance.
    """
    if not systems:
        raise UsageError("quality against latency needs at least one system")
    scores = [staged.final for staged in systems.values()]
    quality = parse_measure(measure, conventions=scores[0].conventions)
    path = latency.removeprefix("latency.")
    check_path("latency", path)
    stage, _, ending = path.rpartition(".")
    time = latency_of(stage, ending)
    better = quality.definition.better
    if better == "none":
        raise UsageError(f"neither higher nor lower is better for {quality}; name another measure")
    for system in scores:
        if quality not in system.measures:
            raise unknown("measure", str(quality), map(str, system.measures))
    check_comparable(compared_systems(scores))
    places: list[dict[str, Any]] = []
    unplaced = {}
    for name, staged in systems.items():
        try:
            value, timed_stages = _figure_of(staged.final, quality), stages_of(staged)
            if stage not in timed_stages:
                has = ", ".join(timed_stages)
                raise MissingInputError(f"latency.{stage} is not in its log, which has {has}")
            figures = {"quality": value, "latency": _figure_of(score_calls(staged, [time]), time)}
            places.append({"system": name, **figures})
        except MissingInputError as error:
            unplaced[name] = str(error)
    # Both are lower for a better system.
    sign = 1 if better == "lower" else -1
    ranks = {
        place["system"]: (place["latency"]["value"], sign * place["quality"]["value"])
        for place in places
    }
    places.sort(key=lambda place: (*ranks[place["system"]], place["system"]))
    for place in places:
        rank = ranks[place["system"]]
        beaten_by = [
            name
            for name, other in sorted(ranks.items(), key=lambda place: place[1])
            if other != rank and other[0] <= rank[0] and other[1] <= rank[1]
        ]
        place |= {"front": not beaten_by, "beaten_by": beaten_by}
    document = {
        "measure": str(quality),
        "latency": f"latency.{path}",
        "front": [place["system"] for place in places if place["front"]],
        "systems": places,
        "unplaced": unplaced,
    }
    return SystemAnalysis(document, pareto_sections)


def _figure_of(scores: Scores, measure: Measure) -> dict[str, Any]:
    summary = scores.summaries[str(measure)]
    if summary.mean is None:
        raise MissingInputError(summary.lacks or f"{measure} has no value for any query")
    return {"value": summary.mean, "ci": summary.ci}


def latency_sections(document: Document) -> list[Section]:
    """Return the sections of ``latencies``: stages, segments, the slowest queries, cost."""
    stages = [
        {
            **_cells(stage),
            "stage": name,
            "share": percent(stage["share"]) if "share" in stage else "",
        }
        for name, stage in document["stages"].items()
    ]
    columns = {name: name for name in ("stage", "n", *_FIGURES, "share")}
    sections = [Section("Latency in ms", table(stages, columns), list(_notes(document)))]
    for by, segments in document["segments"].items():
        rows = [
            _cells(segment["stages"][TOTAL], "p50", "p90") | _segment_cells(by, value, segment)
            for value, segment in segments.items()
        ]
        grid = table(rows, {name: name for name in (by, "n", "p50", "p90")})
        sections.append(Section(f"Total latency in ms by {label(by)}", grid))
    if document["slowest"]:
        names = list(dict.fromkeys(name for slow in document["slowest"] for name in slow["stages"]))
        rows = [
            {**slow, "total": ms(slow["total"]), **{n: ms(slow["stages"].get(n)) for n in names}}
            for slow in document["slowest"]
        ]
        columns = {"query": "query_id", **{name: name for name in ("total", *names, "text")}}
        sections.append(Section("The slowest queries", table(rows, columns)))
    if costs := document["cost"]:
        rows = [{**_cells(cost, "mean", "sum"), "what": name} for name, cost in costs.items()]
        grid = table(rows, {name: name for name in ("what", "n", "mean", "sum")})
        sections.append(Section("Cost", grid))
        for by, segments in document["segments"].items():
            rows = [
                _segment_cells(by, value, segment)
                | {name: _cells(cost, "mean")["mean"] for name, cost in segment["cost"].items()}
                for value, segment in segments.items()
            ]
            grid = table(rows, {name: name for name in (by, "n", *costs)})
            sections.append(Section(f"Mean cost by {label(by)}", grid))
    return sections


def _cells(amount: Document, *names: str) -> dict[str, Any]:
    """Return the figures of a stage or cost as text, each with its interval."""
    return {"n": amount["n"], **{name: _figure(amount[name]) for name in names or _FIGURES}}


def _segment_cells(by: str, value: str, segment: Document) -> dict[str, str]:
    return {by: value, "n": f"{segment['n']:,}" + (" small" if segment["small"] else "")}


def _notes(document: Document) -> Iterator[str]:
    failed = document["failed"]
    if calls := failed["calls"]:
        text = f"{plural(calls, 'call')} failed and {'is' if calls == 1 else 'are'} not in these"
        if failed["timed"]:
            text += f"; the median of those timed is {ms(failed['p50'])} ms"
            text += f", the longest {ms(failed['longest'])} ms"
        yield text + "."
    if document["index_bytes"] is not None:
        yield f"The index takes {document['index_bytes']:,} bytes."
    if document["embedding_updates"] is not None:
        updates = plural(document["embedding_updates"], "embedding was", "embeddings were")
        yield f"{updates} made for it."


def pareto_sections(document: Document) -> list[Section]:
    """Return the section of ``pareto``: every system with what beats it, the fastest first."""
    columns: TableColumns = {
        "system": "system",
        document["measure"]: lambda place: {**place["quality"], "mean": place["quality"]["value"]},
        f"{document['latency']} ms": lambda place: _figure(place["latency"]),
        "verdict": lambda place: (
            f"beaten by {', '.join(place['beaten_by'])}" if place["beaten_by"] else "front"
        ),
    }
    grid = table(document["systems"], columns) if document["systems"] else None
    lacking = [f"{label(name)}: {why}" for name, why in document["unplaced"].items()]
    return [Section(f"{document['measure']} against {document['latency']}", grid, lacking)]


def _figure(cell: Mapping[str, Any]) -> str:
    ends = "" if cell["ci"] is None else f"[{', '.join(map(ms, cell['ci']))}]"
    return f"{ms(cell['value'])}{PART}{ends}"


def ms(value: float | None) -> str:
    """Return milliseconds or another amount with three digits, or all of a larger number.

    >>> ms(35.0), ms(0.05231), ms(1234.5), ms(None)
    ('35.0', '0.0523', '1,234', '-')
    """
    if value is None:
        return NOTHING
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    decimals = 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.1 or not size else 4
    return f"{value:.{decimals}f}"
