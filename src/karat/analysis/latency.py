"""How long calls took, stage by stage and segment by segment, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Queries, Run
from karat.errors import MissingInputError, UsageError, unknown
from karat.evaluation.segments import SMALL, By, segments_by
from karat.evaluation.stages import Staged, whole_in
from karat.evaluation.systems import check_comparable, compared_systems
from karat.measures import aggregates
from karat.measures.aggregates import Values
from karat.measures.kernels.lists import check_path
from karat.measures.names import Measure, parse_measure
from karat.measures.score_builder import score
from karat.measures.scores import Interval, Scores
from karat.pages.formatting import NOTHING, PART, label, measured, percent, plural
from karat.pages.page import Grid, Section
from karat.pages.serialize import Record


@dataclass(frozen=True, slots=True)
class Figure(Record):
    """A number over some calls and its interval, which too few calls do not have."""

    value: float | None
    ci: Interval = None


@dataclass(frozen=True, slots=True)
class Amount:
    """What the calls of some queries took of one thing: of a stage's time, or of a cost.

    ``figures`` are the mean and percentiles of a time in milliseconds, the mean and sum of a
    cost; ``share`` is the median share of a call's total that the stage takes.
    """

    n: int
    figures: Mapping[str, Figure]
    share: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the amount as plain data."""
        figures = {name: figure.to_dict() for name, figure in self.figures.items()}
        return {"n": self.n, **figures, **({} if self.share is None else {"share": self.share})}


@dataclass(frozen=True, slots=True)
class Spent(Record):
    """The time and the cost of some calls, by stage and by what was spent."""

    stages: Mapping[str, Amount]
    cost: Mapping[str, Amount]


@dataclass(frozen=True, slots=True)
class Slow(Record):
    """A call that took long: its query, its total and the time of each stage."""

    query_id: str
    text: str | None
    total: float
    stages: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Failed(Record):
    """The calls that failed, which no other figure counts: how many, and how long they took."""

    calls: int
    timed: int
    p50: float | None
    longest: float | None


TOTAL = "total"
PERCENTILES = ("p50", "p90", "p95", "p99")
# What one wants to read, one query at a time.
SLOWEST = 10

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Latencies:
    """Where the time of a system's calls goes, and what they cost.

    ``segments`` has for each column and each of its values the number of timed calls and what
    they took. ``index_bytes`` and ``embedding_updates`` are what the log says of the index.
    """

    spent: Spent
    slowest: tuple[Slow, ...]
    failed: Failed
    segments: Mapping[str, Mapping[str, tuple[int, Spent]]] = field(default_factory=dict)
    index_bytes: int | None = None
    embedding_updates: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the latencies as plain data."""
        return {
            **self.spent.to_dict(),
            "segments": {
                by: {
                    value: {"n": n, "small": n < SMALL, **own.to_dict()}
                    for value, (n, own) in segments.items()
                }
                for by, segments in self.segments.items()
            },
            "slowest": [slow.to_dict() for slow in self.slowest],
            "failed": self.failed.to_dict(),
            "index_bytes": self.index_bytes,
            "embedding_updates": self.embedding_updates,
        }


def latencies(
    staged: Staged, queries: Queries | None = None, *, by: Sequence[By | str] = ()
) -> Latencies:
    """The time of each stage that the log has, and of all together, with what the calls cost.

    The figures are those of the measures ``latency.<stage>.p50``, ``cost.<what>`` and the like:
    failed calls are apart. A log without ``latency_ms`` is refused.
    """
    stages, costs = stages_of(staged), _logged(staged, "cost")
    measures = [latency_of(stage, end) for stage in stages for end in ("mean", *PERCENTILES)]
    measures += [_cost_of(what, end) for what in costs for end in ("", ".sum")]
    scores = score_calls(staged, measures)
    everyone = np.ones(scores.table.height, dtype=bool)
    total = _times(scores, TOTAL)
    return Latencies(
        _spent(scores, everyone, stages, costs),
        slowest=_slowest(scores, stages, _texts(staged, queries)),
        failed=_failed(staged),
        segments={
            str(one): {
                segment.name: (
                    int((segment.mask & ~np.isnan(total)).sum()),
                    _spent(scores, segment.mask, stages, costs),
                )
                for segment in segments_by(scores.table["query_id"], queries, one)
            }
            for one in map(By.parse, by)
        },
        index_bytes=whole_in(staged.final.meta, "index_bytes"),
        embedding_updates=whole_in(staged.final.meta, "embedding_updates"),
    )


def stages_of(staged: Staged) -> list[str]:
    """Return the stages whose time is logged, in the log's order, and the total as the last."""
    stages = [stage for stage in _logged(staged, "latency") if stage != TOTAL]
    if not stages and TOTAL not in _logged(staged, "latency"):
        raise MissingInputError(
            "latencies need latency_ms in the run log: the milliseconds of each call,"
            ' or of each of its stages, as in {"retrieve": 35, "rerank": 22}'
        )
    return [*stages, TOTAL]


def latency_of(stage: str, ending: str) -> Measure:
    """Return the measure of a stage's time, whatever the stage is called."""
    return Measure("latency", None, (("path", f"{stage}.{ending}"),))


def _cost_of(what: str, ending: str) -> Measure:
    return Measure("cost", None, (("path", what + ending),))


def score_calls(staged: Staged, measures: Sequence[Measure]) -> Scores:
    """Measures of the calls themselves, of a run whose lists were scored before."""
    nothing = pl.DataFrame(
        schema={
            "query_id": pl.String,
            "item_id": pl.String,
            "rank": pl.Int64,
            "score": pl.Float64,
            "start": pl.Int64,
            "end": pl.Int64,
        }
    )
    final = staged.final
    run = Run(
        nothing,
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


def _spent(scores: Scores, mask: Mask, stages: Sequence[str], costs: Sequence[str]) -> Spent:
    found = scores.summarise(mask)

    def amount(named: Mapping[str, Measure], share: float | None = None) -> Amount:
        own = {name: found[str(measure)] for name, measure in named.items()}
        figures = {name: Figure(one.mean, one.ci) for name, one in own.items()}
        return Amount(own["mean"].n, figures, share)

    times = {
        stage: {end: latency_of(stage, end) for end in ("mean", *PERCENTILES)} for stage in stages
    }
    sums = {what: {"mean": _cost_of(what, ""), "sum": _cost_of(what, ".sum")} for what in costs}
    return Spent(
        {stage: amount(time, _share(scores, mask, stage)) for stage, time in times.items()},
        {what: amount(own) for what, own in sums.items()},
    )


def _share(scores: Scores, mask: Mask, stage: str) -> float | None:
    """Return the share of its total that a stage takes in the middle one of these calls."""
    if stage == TOTAL:
        return None
    own, total = _times(scores, stage), _times(scores, TOTAL)
    timed = mask & (total > 0)
    # A total next to nothing, logged beside a stage that is not, has no share to speak of.
    with np.errstate(over="ignore"):
        shares = own[timed] / total[timed]
    return aggregates.percentile(shares[np.isfinite(shares)], 0.5)


def _slowest(scores: Scores, stages: Sequence[str], texts: Mapping[str, str]) -> tuple[Slow, ...]:
    ids = scores.table["query_id"].to_list()
    times = {stage: _times(scores, stage) for stage in stages}
    timed = np.flatnonzero(~np.isnan(times[TOTAL])).tolist()
    rows = sorted(timed, key=lambda row: (-times[TOTAL][row], ids[row]))[:SLOWEST]
    return tuple(
        Slow(
            ids[row],
            texts.get(ids[row]),
            float(times[TOTAL][row]),
            {
                stage: float(time[row])
                for stage, time in times.items()
                if stage != TOTAL and not np.isnan(time[row])
            },
        )
        for row in rows
    )


def _texts(staged: Staged, queries: Queries | None) -> Mapping[str, str]:
    """Return the text of each query: the log's own word, else the queries'."""
    calls = staged.calls
    frames = [] if queries is None else [queries.frame.select("query_id", "text")]
    if calls is not None and "query" in calls.columns:
        frames.append(calls.select("query_id", text=pl.col("query").cast(pl.String)))
    facts: dict[str, str] = {}
    for frame in frames:
        facts |= {query_id: text for query_id, text in frame.iter_rows() if text}
    return facts


def _failed(staged: Staged) -> Failed:
    calls = staged.calls
    if calls is None or "error" not in calls.columns:
        return Failed(0, 0, None, None)
    asked = pl.Series(staged.gold.code_of(calls["query_id"]) >= 0)
    wrong = calls.filter(asked & calls["error"].is_not_null())
    # As if they had gone well, so that their times are read as all others are.
    as_calls = replace(staged, calls=wrong.drop("error"))
    times = _times(score_calls(as_calls, [latency_of(TOTAL, "mean")]), TOTAL)
    known = times[~np.isnan(times)]
    longest = float(known.max()) if len(known) else None
    return Failed(wrong.height, len(known), aggregates.percentile(known, 0.5), longest)


PATH = "total.p50"


@dataclass(frozen=True, slots=True)
class Point(Record):
    """A known number, and its interval if it has one."""

    value: float
    ci: Interval = None


@dataclass(frozen=True, slots=True)
class Place:
    """One system: its quality, its latency, and the systems that beat it, if any.

    A system beats another that is not better in either and worse in one; where both are equal,
    neither beats the other.
    """

    system: str
    quality: Point
    latency: Point
    beaten_by: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the place as plain data."""
        return {
            "system": self.system,
            "quality": self.quality.to_dict(),
            "latency": self.latency.to_dict(),
            "front": not self.beaten_by,
            "beaten_by": list(self.beaten_by),
        }


@dataclass(frozen=True, eq=False)
class Pareto:
    """The systems from the fastest to the slowest; ``unplaced`` says what the others lack."""

    measure: str
    latency: str
    places: tuple[Place, ...]
    unplaced: Mapping[str, str] = field(default_factory=dict)

    @property
    def front(self) -> tuple[str, ...]:
        """The systems that no other beats, from the fastest to the slowest."""
        return tuple(place.system for place in self.places if not place.beaten_by)

    def to_dict(self) -> dict[str, Any]:
        """Return the places as plain data."""
        return {
            "measure": self.measure,
            "latency": self.latency,
            "front": list(self.front),
            "systems": [place.to_dict() for place in self.places],
            "unplaced": dict(self.unplaced),
        }


def pareto(systems: Mapping[str, Staged], measure: str | Measure, latency: str = PATH) -> Pareto:
    """Compare the quality of systems with their latency.

    ``measure`` is one that all of them were scored by, ``latency`` a stage and its percentile or
    mean, such as ``total.p90``. By their figures alone: whether a difference is more than chance
    is for a comparison to tell.
    """
    if not systems:
        raise UsageError("quality against latency needs at least one system")
    first = next(iter(systems.values())).final
    wanted = parse_measure(measure, conventions=first.conventions)
    path = latency.removeprefix("latency.")
    check_path("latency", path)
    stage, _, ending = path.rpartition(".")
    if wanted.definition.better == "none":
        raise UsageError(f"{wanted} is neither better high nor low; name another measure")
    _check(systems, wanted)
    found: list[Place] = []
    unplaced = {}
    for name, staged in systems.items():
        try:
            found.append(Place(name, _quality(staged, wanted), _latency(staged, stage, ending)))
        except MissingInputError as error:
            unplaced[name] = str(error)
    up = -1.0 if wanted.definition.better == "lower" else 1.0
    places = [
        Place(one.system, one.quality, one.latency, _beaten_by(one, found, up)) for one in found
    ]
    places.sort(key=lambda one: (one.latency.value, -up * one.quality.value, one.system))
    return Pareto(str(wanted), f"latency.{path}", tuple(places), unplaced)


def _check(systems: Mapping[str, Staged], wanted: Measure) -> None:
    """Refuse systems that cannot be compared."""
    for staged in systems.values():
        if wanted not in staged.final.measures:
            raise unknown("measure", str(wanted), map(str, staged.final.measures))
    check_comparable(compared_systems([staged.final for staged in systems.values()]))


def _quality(staged: Staged, measure: Measure) -> Point:
    found = staged.final.summaries[str(measure)]
    if found.mean is None:
        raise MissingInputError(found.lacks or f"{measure} has no value for any query")
    return Point(found.mean, found.ci)


def _latency(staged: Staged, stage: str, ending: str) -> Point:
    known = stages_of(staged)
    if stage not in known:
        raise MissingInputError(f"latency.{stage} is not in its log, which has {', '.join(known)}")
    own = latency_of(stage, ending)
    found = score_calls(staged, [own]).summaries[str(own)]
    if found.mean is None:
        raise MissingInputError(f"no call has a latency of {stage} in its log")
    return Point(found.mean, found.ci)


def _beaten_by(one: Place, others: Sequence[Place], up: float) -> tuple[str, ...]:
    own = (up * one.quality.value, -one.latency.value)
    beating = []
    for other in others:
        theirs = (up * other.quality.value, -other.latency.value)
        if theirs != own and all(a >= b for a, b in zip(theirs, own, strict=True)):
            beating.append((other.latency.value, other.system))
    return tuple(name for _, name in sorted(beating))


_SHOWN = ("mean", "p50", "p90", "p95", "p99")
# What a segment shows of its total; the document has the rest.
_OF_SEGMENTS = ("p50", "p90")


def latency_sections(latency: Mapping[str, Any]) -> list[Section]:
    """Return the document of ``Latencies``: stages, segments, the slowest queries, cost."""
    sections = [Section("Latency in ms", _stage_grid(latency["stages"]), _notes(latency))]
    for by, segments in latency["segments"].items():
        sections.append(Section(f"Total latency in ms by {label(by)}", _segments(by, segments)))
    if latency["slowest"]:
        sections.append(Section("The slowest queries", _slowest_grid(latency["slowest"])))
    if latency["cost"]:
        sections.append(Section("Cost", _cost_grid(latency["cost"])))
        for by, segments in latency["segments"].items():
            sections.append(Section(f"Mean cost by {label(by)}", _costs_by(by, segments)))
    return sections


def pareto_sections(pareto: Mapping[str, Any]) -> list[Section]:
    """Return the document of ``Pareto``: every system with what beats it, the fastest first."""
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


def _stage_grid(stages: Mapping[str, Any]) -> Grid:
    grid = [["stage", "n", *_SHOWN, "share"]]
    for name, stage in stages.items():
        share = percent(stage["share"]) if "share" in stage else ""
        cells = [_figure(stage[figure]) for figure in _SHOWN]
        grid.append([label(name), f"{stage['n']:,}", *cells, share])
    return grid


def _segments(by: str, segments: Mapping[str, Any]) -> Grid:
    grid = [[label(by), "n", *_OF_SEGMENTS]]
    for value, segment in segments.items():
        cells = [_figure(segment["stages"]["total"][figure]) for figure in _OF_SEGMENTS]
        grid.append([label(value), _n(segment), *cells])
    return grid


def _costs_by(by: str, segments: Mapping[str, Any]) -> Grid:
    names = list(next(iter(segments.values()), {"cost": {}})["cost"])
    grid = [[label(by), "n", *map(label, names)]]
    for value, segment in segments.items():
        cells = [_figure(segment["cost"][name]["mean"]) for name in names]
        grid.append([label(value), _n(segment), *cells])
    return grid


def _n(segment: Mapping[str, Any]) -> str:
    return f"{segment['n']:,}" + (" small" if segment["small"] else "")


def _slowest_grid(slowest: Sequence[Mapping[str, Any]]) -> Grid:
    stages = list(dict.fromkeys(name for slow in slowest for name in slow["stages"]))
    texts = any(slow["text"] for slow in slowest)
    grid = [["query", "total", *map(label, stages), *(["text"] if texts else [])]]
    for slow in slowest:
        times = [ms(slow["total"]), *(ms(slow["stages"].get(name)) for name in stages)]
        text = [label(slow["text"] or "")] if texts else []
        grid.append([label(slow["query_id"]), *times, *text])
    return grid


def _cost_grid(cost: Mapping[str, Any]) -> Grid:
    grid = [["what", "n", "mean", "sum"]]
    for name, own in cost.items():
        cells = [_figure(own["mean"]), _figure(own["sum"])]
        grid.append([label(name), f"{own['n']:,}", *cells])
    return grid


def _notes(latency: Mapping[str, Any]) -> list[str]:
    notes = []
    failed = latency["failed"]
    if failed["calls"]:
        text = f"{plural(failed['calls'], 'call')} failed and {_are(failed['calls'])} not in these"
        if failed["timed"]:
            text += f"; the median of those timed is {ms(failed['p50'])} ms"
            text += f", the longest {ms(failed['longest'])} ms"
        notes.append(text + ".")
    if latency["index_bytes"] is not None:
        notes.append(f"The index takes {latency['index_bytes']:,} bytes.")
    if latency["embedding_updates"] is not None:
        updates = plural(latency["embedding_updates"], "embedding was", "embeddings were")
        notes.append(f"{updates} made for it.")
    return notes


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


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
