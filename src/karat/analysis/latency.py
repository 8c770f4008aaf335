"""How long calls took, stage by stage and segment by segment, what they cost, and the trade-off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Queries, Run
from karat.errors import MissingInputError, UsageError, unknown
from karat.evaluation.segments import SMALL, By, segments_by
from karat.evaluation.stages import Staged, whole_in
from karat.evaluation.systems import check_comparable, compared_systems
from karat.measure import aggregates
from karat.measure.aggregates import Values
from karat.measure.kernels.lists import check_path
from karat.measure.names import Measure, parse_measure
from karat.measure.score_builder import score
from karat.measure.scores import Scores, Summary
from karat.pages.formatting import NOTHING, PART, label, measured, percent, plural
from karat.pages.page import Grid, Section
from karat.pages.serialize import Record

TOTAL = "total"
# The latency that systems are compared by, unless another is named.
DEFAULT_PATH = "total.p50"
PERCENTILES = ("p50", "p90", "p95", "p99")
# So many of the slowest queries are listed.
SLOWEST = 10
_FIGURES = ("mean", *PERCENTILES)
# What a segment shows of its total; the document has the rest.
_OF_SEGMENTS = ("p50", "p90")

Document = Mapping[str, Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Latencies(Record):
    """Where the time of a system's calls goes, and what they cost.

    ``stages`` has for each stage the number of calls, the mean and percentiles of its
    milliseconds, and its median ``share`` of a call's total; ``cost`` the mean and sum of what
    was spent; ``segments`` both for each column and each of its values. ``failed`` are the calls
    that no other figure counts. ``index_bytes`` and ``embedding_updates`` are what the log says
    of the index.
    """

    stages: Document
    cost: Document
    segments: Mapping[str, Document]
    slowest: Sequence[Document]
    failed: Document
    index_bytes: int | None
    embedding_updates: int | None


def latencies(
    staged: Staged, queries: Queries | None = None, *, by: Sequence[By | str] = ()
) -> Latencies:
    """Return the time of each stage that the log has, and of all together, and the calls' cost.

    The figures are those of the measures ``latency.<stage>.p50``, ``cost.<what>`` and the like:
    failed calls are separate. A log without ``latency_ms`` is refused.
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
        return {
            "stages": stages,
            "cost": {name: _amount(summaries, named) for name, named in costs.items()},
        }

    segments: dict[str, dict[str, Any]] = {}
    for column in map(By.parse, by):
        segments[str(column)] = {}
        for segment in segments_by(scores.table["query_id"], queries, column):
            n = int((segment.mask & ~np.isnan(total)).sum())
            facts = {"n": n, "small": n < SMALL, **spent(segment.mask)}
            segments[str(column)][segment.name] = facts
    return Latencies(
        **spent(np.ones(len(total), dtype=bool)),
        segments=segments,
        slowest=_slowest(scores, list(times), _texts(staged, queries)),
        failed=_failed(staged),
        index_bytes=whole_in(staged.final.meta, "index_bytes"),
        embedding_updates=whole_in(staged.final.meta, "embedding_updates"),
    )


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
    kinds = {
        **dict.fromkeys(("query_id", "item_id"), pl.String),
        **dict.fromkeys(("rank", "start", "end"), pl.Int64),
        "score": pl.Float64,
    }
    final = staged.final
    run = Run(
        pl.DataFrame(schema=kinds),
        calls=staged.calls,
        meta=final.meta,
        order="rank",
        name=final.system,
        source=final.source,
    )
    return score(run, staged.gold, measures, derived=True)


def _logged(staged: Staged, family: str) -> list[str]:
    columns = [] if staged.calls is None else staged.calls.columns
    return [name.partition(".")[2] for name in columns if name.startswith(f"{family}.")]


def _times(scores: Scores, stage: str) -> Values:
    return scores.values(str(latency_of(stage, "mean")))


def _amount(summaries: Mapping[str, Summary], named: Mapping[str, Measure]) -> dict[str, Any]:
    """Return how many calls tell something, and each figure with its interval."""
    figures = {name: summaries[str(measure)] for name, measure in named.items()}
    return {
        "n": figures["mean"].n,
        **{name: {"value": one.mean, "ci": one.ci} for name, one in figures.items()},
    }


def _share(times: Values, total: Values, mask: Mask) -> float | None:
    """Return the median share of its total that a stage takes in these calls."""
    timed = mask & (total > 0)
    # A total next to nothing, logged beside a stage that is not, has no share to speak of.
    with np.errstate(over="ignore"):
        shares = times[timed] / total[timed]
    return aggregates.percentile(shares[np.isfinite(shares)], 0.5)


def _slowest(
    scores: Scores, stages: Sequence[str], texts: Mapping[str, str]
) -> list[dict[str, Any]]:
    ids = scores.table["query_id"].to_list()
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


def _texts(staged: Staged, queries: Queries | None) -> dict[str, str]:
    """Return the text of each query: the one that the log has, else that of the queries."""
    calls = staged.calls
    frames = [] if queries is None else [queries.frame.select("query_id", "text")]
    if calls is not None and "query" in calls.columns:
        frames.append(calls.select("query_id", text=pl.col("query").cast(pl.String)))
    return {query_id: text for frame in frames for query_id, text in frame.iter_rows() if text}


def _failed(staged: Staged) -> dict[str, Any]:
    """Return how many calls failed, and how long they took."""
    calls = staged.calls
    if calls is None or "error" not in calls.columns:
        return {"calls": 0, "timed": 0, "p50": None, "longest": None}
    asked = pl.Series(staged.gold.code_of(calls["query_id"]) >= 0)
    failed = calls.filter(asked & calls["error"].is_not_null())
    # Without the error, so that their times are read as all others are.
    as_calls = replace(staged, calls=failed.drop("error"))
    times = _times(score_calls(as_calls, [latency_of(TOTAL, "mean")]), TOTAL)
    known = times[~np.isnan(times)]
    longest = float(known.max()) if len(known) else None
    median = aggregates.percentile(known, 0.5)
    return {"calls": failed.height, "timed": len(known), "p50": median, "longest": longest}


@dataclass(frozen=True, eq=False)
class Pareto(Record):
    """Quality against latency: the systems from the fastest to the slowest.

    No other system beats those of the ``front``: a system beats another if it is not worse in
    either and better in one. ``unplaced`` says what further systems lack.
    """

    measure: str
    latency: str
    front: Sequence[str]
    systems: Sequence[Document]
    unplaced: Mapping[str, str]


def pareto(
    systems: Mapping[str, Staged], measure: str | Measure, latency: str = DEFAULT_PATH
) -> Pareto:
    """Compare the quality of systems with their latency.

    ``measure`` is one that all of them were scored by, ``latency`` a stage and its percentile or
    mean, such as ``total.p90``. The figures alone decide: whether a difference is more than
    chance is for a comparison to tell.
    """
    if not systems:
        raise UsageError("quality against latency needs at least one system")
    scores = [staged.final for staged in systems.values()]
    quality = parse_measure(measure, conventions=scores[0].conventions)
    path = latency.removeprefix("latency.")
    check_path("latency", path)
    if quality.definition.better == "none":
        raise UsageError(f"{quality} is neither better high nor low; name another measure")
    for own in scores:
        if quality not in own.measures:
            raise unknown("measure", str(quality), map(str, own.measures))
    check_comparable(compared_systems(scores))
    places: list[dict[str, Any]] = []
    unplaced = {}
    for name, staged in systems.items():
        try:
            figures = {"quality": _quality(staged, quality), "latency": _latency(staged, path)}
            places.append({"system": name, **figures})
        except MissingInputError as error:
            unplaced[name] = str(error)
    up = -1.0 if quality.definition.better == "lower" else 1.0

    def rank(place: Document) -> tuple[float, float]:
        return -place["latency"]["value"], up * place["quality"]["value"]

    places.sort(key=lambda place: (*(-value for value in rank(place)), place["system"]))
    for place in places:
        beaten_by = [
            other
            for other in places
            if rank(other) != rank(place)
            and all(a >= b for a, b in zip(rank(other), rank(place), strict=True))
        ]
        beaten_by.sort(key=lambda other: (other["latency"]["value"], other["system"]))
        place |= {"front": not beaten_by, "beaten_by": [other["system"] for other in beaten_by]}
    front = [place["system"] for place in places if place["front"]]
    return Pareto(str(quality), f"latency.{path}", front, places, unplaced)


def _quality(staged: Staged, measure: Measure) -> dict[str, Any]:
    summary = staged.final.summaries[str(measure)]
    if summary.mean is None:
        raise MissingInputError(summary.lacks or f"{measure} has no value for any query")
    return {"value": summary.mean, "ci": summary.ci}


def _latency(staged: Staged, path: str) -> dict[str, Any]:
    stage, _, ending = path.rpartition(".")
    known = stages_of(staged)
    if stage not in known:
        raise MissingInputError(f"latency.{stage} is not in its log, which has {', '.join(known)}")
    measure = latency_of(stage, ending)
    summary = score_calls(staged, [measure]).summaries[str(measure)]
    if summary.mean is None:
        raise MissingInputError(f"no call has a latency of {stage} in its log")
    return {"value": summary.mean, "ci": summary.ci}


def latency_sections(latency: Document) -> list[Section]:
    """Return the sections of ``Latencies``: stages, segments, the slowest queries, cost."""
    grid: Grid = [["stage", "n", *_FIGURES, "share"]]
    for name, stage in latency["stages"].items():
        share = percent(stage["share"]) if "share" in stage else ""
        cells = [_figure(stage[figure]) for figure in _FIGURES]
        grid.append([label(name), f"{stage['n']:,}", *cells, share])
    sections = [Section("Latency in ms", grid, list(_notes(latency)))]
    for by, segments in latency["segments"].items():
        totals = {value: segment["stages"][TOTAL] for value, segment in segments.items()}
        grid = _segment_grid(by, segments, totals, _OF_SEGMENTS)
        sections.append(Section(f"Total latency in ms by {label(by)}", grid))
    if latency["slowest"]:
        sections.append(Section("The slowest queries", _slowest_grid(latency["slowest"])))
    if latency["cost"]:
        grid = [["what", "n", "mean", "sum"]]
        for name, cost in latency["cost"].items():
            cells = [_figure(cost["mean"]), _figure(cost["sum"])]
            grid.append([label(name), f"{cost['n']:,}", *cells])
        sections.append(Section("Cost", grid))
        for by, segments in latency["segments"].items():
            means = {
                value: {name: cost["mean"] for name, cost in segment["cost"].items()}
                for value, segment in segments.items()
            }
            grid = _segment_grid(by, segments, means, list(latency["cost"]))
            sections.append(Section(f"Mean cost by {label(by)}", grid))
    return sections


def _segment_grid(
    by: str, segments: Document, figures: Mapping[str, Document], names: Sequence[str]
) -> Grid:
    grid = [[label(by), "n", *map(label, names)]]
    for value, segment in segments.items():
        n = f"{segment['n']:,}" + (" small" if segment["small"] else "")
        grid.append([label(value), n, *(_figure(figures[value][name]) for name in names)])
    return grid


def _slowest_grid(slowest: Sequence[Document]) -> Grid:
    stages = list(dict.fromkeys(name for slow in slowest for name in slow["stages"]))
    grid = [["query", "total", *map(label, stages), "text"]]
    for slow in slowest:
        times = [ms(slow["total"]), *(ms(slow["stages"].get(name)) for name in stages)]
        grid.append([label(slow["query_id"]), *times, label(slow["text"] or "")])
    return grid if any(slow["text"] for slow in slowest) else [row[:-1] for row in grid]


def _notes(latency: Document) -> Iterator[str]:
    failed = latency["failed"]
    if calls := failed["calls"]:
        text = f"{plural(calls, 'call')} failed and {'is' if calls == 1 else 'are'} not in these"
        if failed["timed"]:
            text += f"; the median of those timed is {ms(failed['p50'])} ms"
            text += f", the longest {ms(failed['longest'])} ms"
        yield text + "."
    if latency["index_bytes"] is not None:
        yield f"The index takes {latency['index_bytes']:,} bytes."
    if latency["embedding_updates"] is not None:
        updates = plural(latency["embedding_updates"], "embedding was", "embeddings were")
        yield f"{updates} made for it."


def pareto_sections(pareto: Document) -> list[Section]:
    """Return the section of ``Pareto``: every system with what beats it, the fastest first."""
    grid: Grid = [["system", pareto["measure"], f"{pareto['latency']} ms", "verdict"]]
    for place in pareto["systems"]:
        quality = {"mean": place["quality"]["value"], "ci": place["quality"]["ci"]}
        beaten = ", ".join(label(name) for name in place["beaten_by"])
        verdict = f"beaten by {beaten}" if beaten else "front"
        cells = [measured(quality), _figure(place["latency"]), verdict]
        grid.append([label(place["system"]), *cells])
    lacking = [f"{label(name)}: {why}" for name, why in pareto["unplaced"].items()]
    shown = grid if pareto["systems"] else None
    return [Section(f"{pareto['measure']} against {pareto['latency']}", shown, lacking)]


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
