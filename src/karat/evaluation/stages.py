"""A run stage by stage: every list that its log holds, scored on the same gold.

The retriever gives ``raw``; filters, an as_of and a threshold take items out; a reranker and
the like give another order; the cut at k gives the final list. Parts of a fusion and the list
for the ``original`` query stand beside that line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Blocks, Order, Run, with_ranks
from karat.errors import UsageError
from karat.measure.aggregates import NOTHING
from karat.measure.depth import beyond_cut, last_ranks
from karat.measure.evaluate_measure import values_of
from karat.measure.misfits import ids_of_stages
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.ranked import Cut, ideal_of
from karat.measure.score_builder import score
from karat.measure.scores import Scores

RAW, ORIGINAL = "raw", "original"
# The name under which a log tells how deep the lists before the final ones go.
DEPTH_OF_STAGES = "k_raw"
# What takes items out, in the order in which it runs, and what puts them in another order.
SIEVES = ("filter", "as_of", "threshold")
REORDERING = ("rerank", "distinct_docs", "mmr")
LINE = (RAW, *SIEVES, *REORDERING)
# How many of the top items of every query are kept to look at.
KEEP = 10


@dataclass(frozen=True, slots=True)
class Depth:
    """How far down the lists of a stage can be judged.

    ``cut_at`` is where all lists were cut, None where they are complete. ``asked`` is the
    number of hits that a call asked for, as the log tells. ``everything`` holds where lists
    are as long as the corpus.
    """

    longest: int
    asked: int | None = None
    everything: bool = False
    cut_at: int | None = None

    @property
    def known(self) -> int:
        """Return the last rank of which anything was logged, or was asked for."""
        return max(self.longest, self.asked or 0) if self.cut_at is None else self.cut_at

    def reaches(self, k: int) -> bool:
        """Return whether a value at this cut-off was measured."""
        return self.cut_at is None or k <= self.cut_at


@dataclass(frozen=True, eq=False)
class Staged:
    """A run's final lists, and those of every stage that its log has beside them.

    ``line`` holds the stages that lead to the final list, in their order, ``beside`` the others:
    parts of a fusion, the ``original`` query's list. A stage that logged nothing for a query
    passed on what the next one shows; ``logged`` names the queries for which each stage has a
    list of its own that is not empty. ``calls`` is what the log says of each call, and ``run``
    the run itself, where it has lists of earlier stages.
    """

    final: Scores
    gold: Prepared
    line: Mapping[str, Scores] = field(default_factory=dict)
    beside: Mapping[str, Scores] = field(default_factory=dict)
    calls: pl.DataFrame | None = None
    logged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    run: Run | None = field(default=None, repr=False)

    @property
    def raw(self) -> Scores:
        """Return the retriever's own lists; the final ones where the log has no others."""
        return self.line.get(RAW, self.final)

    def depth(self, scores: Scores) -> Depth:
        """Return how far down some of these lists can be judged."""
        returned = np.zeros(0) if scores.trace is None else scores.trace.ranked.returned
        longest = int(returned.max(initial=0))
        asked = whole_in(scores.meta, "k" if scores is self.final else DEPTH_OF_STAGES)
        size = None if self.gold.corpus is None else self.gold.corpus.height
        everything = size is not None and longest >= size > 0
        return Depth(longest, asked, everything, None if scores.cut is None else scores.cut.depth)

    def ends_above(self, k: Cut) -> int | None:
        """Return where the final lists end, if that is above a cut-off; else None."""
        depth = self.depth(self.final)
        return depth.known if isinstance(k, int) and not depth.reaches(k) else None


def whole_in(meta: Mapping[str, Any], name: str) -> int | None:
    """Return a whole number that a log tells of itself; None where it tells none."""
    told = meta.get(name)
    return told if isinstance(told, int) and not isinstance(told, bool) else None


def score_stages(
    run: Run | Blocks,
    gold: Prepared,
    measures: Sequence[Measure],
    *,
    lenient: Collection[Measure] = (),
    keep: int = 0,
    of_stages: Sequence[Measure] | None = None,
) -> Staged:
    """Score a run's final lists and those of each stage, by the same measures unless said.

    Lists of any stage that do not fit the gold are refused, whatever the others found.
    """
    if not run.staged:
        final = score(run, gold, measures, lenient=lenient, keep=keep)
        return Staged(final, gold, calls=run.calls if isinstance(run, Run) else None)
    whole = run.read()

    earlier = measures if of_stages is None else of_stages

    def all_ids() -> pl.DataFrame:
        return ids_of_stages(whole)

    def scored(own: Run, stage: str = "final", *, derived: bool = False) -> Scores:
        return score(
            own,
            gold,
            earlier,
            lenient=lenient,
            keep=keep,
            derived=derived,
            depth_in_log=DEPTH_OF_STAGES,
            stage=stage,
            all_ids=all_ids,
        )

    names = stage_names(whole)
    line = [name for name in LINE if name in names]
    logged = {name: _queries_at(whole, name) for name in (*names, "final")}
    queries = frozenset[str]().union(*logged.values())

    def in_line(name: str, later: Sequence[str]) -> Scores:
        if logged[name] == queries:
            return scored(whole.at(name), name)
        # Lists that are passed on would hide that its own do not fit.
        score(whole.at(name), gold, (), stage=name, all_ids=all_ids)
        return scored(passed_on(whole, later), derived=True)

    return Staged(
        score(whole, gold, measures, lenient=lenient, keep=keep),
        gold,
        line={name: in_line(name, line[at:]) for at, name in enumerate(line)},
        beside={name: scored(whole.at(name), name) for name in names if name not in LINE},
        calls=whole.calls,
        logged=logged,
        run=whole if names else None,
    )


def stage_names(run: Run) -> list[str]:
    """Return the stages before the final one that a run in memory holds, in the log's order."""
    if not run.staged:
        return []
    names: list[str] = run.hits["stage"].unique(maintain_order=True).to_list()
    return [name for name in names if name != "final"]


def with_raw(final: Run, raw: Run) -> Run:
    """Return a run with the lists of another, from before its reranker, as its raw stage.

    Calls and what the log says of itself are those of the final run; its ``k_raw`` is the depth
    to which the raw one was asked.
    """
    both = [final.at("final"), raw.at("final")]
    order: Order = final.order if final.order == both[1].order else "rank"
    lists = [
        (
            one.hits if one.order == order else with_ranks(one.hits.drop("rank", strict=False))
        ).with_columns(stage=pl.lit(stage))
        for one, stage in zip(both, ("final", RAW), strict=True)
    ]
    depth = whole_in(raw.meta, "k")
    meta = {**final.meta, DEPTH_OF_STAGES: depth} if depth is not None else final.meta
    return replace(final, hits=pl.concat(lists, how="diagonal_relaxed"), order=order, meta=meta)


def _queries_at(run: Run, stage: str) -> frozenset[str]:
    return frozenset(run.at(stage).hits["query_id"].unique().to_list())


def passed_on(run: Run, stages: Sequence[str]) -> Run:
    """Return the lists of the first of some stages; of a query that it lacks, those of the next."""
    order = [*stages, "final"]
    place = pl.col("stage").replace_strict(
        {name: at for at, name in enumerate(order)}, default=None, return_dtype=pl.Int64
    )
    hits = run.hits.with_columns(_place=place).drop_nulls("_place")
    first = pl.col("_place").min().over("query_id")
    return replace(run, hits=hits.filter(pl.col("_place") == first).drop("_place", "stage"))


def rescore_stages(staged: Staged, measures: Sequence[Measure]) -> Scores:
    """Return the final lists scored by measures that look at nothing but judged hits."""
    final, gold = staged.final, staged.gold
    if final.trace is None:
        raise UsageError(f"the scores of {final.system} come without lists; score the run again")
    for measure in measures:
        if measure.definition.needs or measure.definition.evidence is not None:
            raise UsageError(f"{measure} looks at more than judged hits; score the run by it")
    ranked = final.trace.ranked
    ideal = ideal_of(ranked.target, gold.conventions.depth)
    left_out = ~_answered(staged) & (gold.conventions.missing == "skip")
    columns = {
        str(one): np.where(left_out, np.nan, values_of(one, ranked, gold)) for one in measures
    }
    ranks = {one: own for one in measures if (own := last_ranks(one, ranked)) is not None}
    cut = final.cut
    beyond = () if cut is None else tuple(map(str, beyond_cut(measures, cut.depth, ranks)))
    columns |= {name: np.full(ranked.n, np.nan) for name in beyond}
    series = [
        pl.Series(name, values, dtype=pl.Float64, nan_to_null=True)
        for name, values in columns.items()
    ]
    return replace(
        final,
        measures=tuple(measures),
        table=final.table.select("query_id").with_columns(series),
        ceilings={
            str(one): (values_of(one, ideal, gold), NOTHING)
            for one in measures
            if one.definition.ceiling == "ideal"
        },
        tied={},
        evidence={},
        lacks={} if cut is None else dict.fromkeys(beyond, cut.because),
        cut=None if cut is None else replace(cut, beyond=beyond),
    )


def _answered(staged: Staged) -> NDArray[np.bool_]:
    """Which queries the run answers, be it with nothing."""
    final = staged.final
    returned = np.zeros(0) if final.trace is None else final.trace.ranked.returned
    answered = (final.status == "scored").to_numpy() | (returned > 0)
    if staged.calls is not None:
        calls = staged.calls
        if "error" in calls.columns:
            calls = calls.filter(pl.col("error").is_null())
        codes = staged.gold.code_of(calls["query_id"])
        answered[codes[codes >= 0]] = True
    return answered
