"""How long calls took, stage by stage and segment by segment, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.analysis.latency.figures import Amount, Failed, Figure, Slow, Spent
from karat.analysis.segments import SMALL, By, segments_by
from karat.analysis.staged import Staged, whole_in
from karat.errors import MissingInputError
from karat.measures import numbers
from karat.measures.names import Measure
from karat.measures.numbers import Values
from karat.measures.scores import Scores, score
from karat.tables import Queries, Run

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

    def document(self) -> dict[str, Any]:
        """The latencies as they stand in a report."""
        return {
            **self.spent.document(),
            "segments": {
                by: {
                    value: {"n": n, "small": n < SMALL, **own.document()}
                    for value, (n, own) in segments.items()
                }
                for by, segments in self.segments.items()
            },
            "slowest": [slow.document() for slow in self.slowest],
            "failed": self.failed.document(),
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
    """The stages whose time is logged, in the log's order, and the total as the last."""
    stages = [stage for stage in _logged(staged, "latency") if stage != TOTAL]
    if not stages and TOTAL not in _logged(staged, "latency"):
        raise MissingInputError(
            "latencies need latency_ms in the run log: the milliseconds of each call,"
            ' or of each of its stages, as in {"retrieve": 35, "rerank": 22}'
        )
    return [*stages, TOTAL]


def latency_of(stage: str, ending: str) -> Measure:
    """The measure of a stage's time, whatever the stage is called."""
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
        {stage: amount(own, _share(scores, mask, stage)) for stage, own in times.items()},
        {what: amount(own) for what, own in sums.items()},
    )


def _share(scores: Scores, mask: Mask, stage: str) -> float | None:
    """The share of its total that a stage takes in the middle one of these calls."""
    if stage == TOTAL:
        return None
    own, total = _times(scores, stage), _times(scores, TOTAL)
    timed = mask & (total > 0)
    # A total next to nothing, logged beside a stage that is not, has no share to speak of.
    with np.errstate(over="ignore"):
        shares = own[timed] / total[timed]
    return numbers.percentile(shares[np.isfinite(shares)], 0.5)


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
                stage: float(own[row])
                for stage, own in times.items()
                if stage != TOTAL and not np.isnan(own[row])
            },
        )
        for row in rows
    )


def _texts(staged: Staged, queries: Queries | None) -> Mapping[str, str]:
    """The text of each query: the log's own word, else the queries'."""
    calls = staged.calls
    frames = [] if queries is None else [queries.frame.select("query_id", "text")]
    if calls is not None and "query" in calls.columns:
        frames.append(calls.select("query_id", text=pl.col("query").cast(pl.String)))
    told: dict[str, str] = {}
    for frame in frames:
        told |= {query_id: text for query_id, text in frame.iter_rows() if text}
    return told


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
    return Failed(wrong.height, len(known), numbers.percentile(known, 0.5), longest)
