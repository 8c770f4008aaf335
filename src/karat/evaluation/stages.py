"""A run stage by stage: every list in its log, scored on the same gold.

The retriever gives ``raw``; filters, an as_of and a threshold remove items; a reranker and the
like reorder them; the cut at k gives the final list. Parts of a fusion and the list
for the ``original`` query are beside that line. The thresholds of the analyses are here too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.tables import Blocks, Order, Run, with_ranks
from karat.errors import UsageError, unknown
from karat.measure.aggregates import NOTHING
from karat.measure.evaluate_measure import beyond_cut, last_ranks, values_of
from karat.measure.misfits import ids_of_stages
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.ranked import Cut, ideal_of
from karat.measure.score_builder import score
from karat.measure.scores import Scores
from karat.pages.serialize import Record

RAW, ORIGINAL = "raw", "original"
# The key of a log for the depth of the lists before the final ones.
DEPTH_OF_STAGES = "k_raw"
# The stages that remove items, in their order, and those that reorder.
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
        """Return the last rank that was logged or requested."""
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
    list of its own that is not empty. ``calls`` has the logged facts of each call, and ``run``
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
    """Return a whole number from a log's metadata; None if absent."""
    value = meta.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


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
    log = run.read()
    names = stage_names(log)
    line = [name for name in LINE if name in names]
    logged = {
        name: frozenset(log.at(name).hits["query_id"].unique().to_list())
        for name in (*names, "final")
    }
    queries = frozenset[str]().union(*logged.values())
    score_stage = partial(
        score,
        gold=gold,
        measures=measures if of_stages is None else of_stages,
        lenient=lenient,
        keep=keep,
        depth_in_log=DEPTH_OF_STAGES,
        all_ids=lambda: ids_of_stages(log),
    )
    # The final lists first: what a user reads first is about them.
    final = score(log, gold, measures, lenient=lenient, keep=keep)
    scores = {}
    for name in names:
        if name not in LINE or logged[name] == queries:
            scores[name] = score_stage(log.at(name), stage=name)
            continue
        # Lists that are passed on would hide that its own do not fit.
        score_stage(log.at(name), measures=(), stage=name)
        lists = passed_on(log, line[line.index(name) :])
        scores[name] = score_stage(lists, derived=True)
    return Staged(
        final,
        gold,
        line={name: scores[name] for name in line},
        beside={name: scores[name] for name in names if name not in LINE},
        calls=log.calls,
        logged=logged,
        run=log if names else None,
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
    order: Order = final.order if final.order == raw.order else "rank"
    lists = []
    for run, stage in ((final, "final"), (raw, RAW)):
        hits = run.at("final").hits
        if run.order != order:
            hits = with_ranks(hits.drop("rank", strict=False))
        lists.append(hits.with_columns(stage=pl.lit(stage)))
    depth = whole_in(raw.meta, "k")
    meta = {**final.meta, DEPTH_OF_STAGES: depth} if depth is not None else final.meta
    return replace(final, hits=pl.concat(lists, how="diagonal_relaxed"), order=order, meta=meta)


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
    """Return the final lists scored by measures that use judged hits only."""
    final, gold = staged.final, staged.gold
    if final.trace is None:
        raise UsageError(f"the scores of {final.system} come without lists; score the run again")
    for measure in measures:
        if measure.definition.needs or measure.definition.evidence is not None:
            raise UsageError(f"{measure} looks at more than judged hits; score the run by it")
    ranked = final.trace.ranked
    ideal = ideal_of(ranked.target, gold.conventions.depth)
    left_out = ~_answered(staged) & (gold.conventions.missing == "skip")
    columns = {str(m): np.where(left_out, np.nan, values_of(m, ranked, gold)) for m in measures}
    ranks = {m: last_ranks(m.k, ranked) for m in measures if isinstance(m.k, str)}
    cut = final.cut
    beyond = () if cut is None else tuple(map(str, beyond_cut(measures, cut.depth, ranks)))
    columns |= {name: np.full(ranked.n, np.nan) for name in beyond}
    return replace(
        final,
        measures=tuple(measures),
        columns=columns,
        ceilings={
            str(measure): (values_of(measure, ideal, gold), NOTHING)
            for measure in measures
            if measure.definition.ceiling == "ideal"
        },
        tied={},
        evidence={},
        lacks={} if cut is None else dict.fromkeys(beyond, cut.because),
        cut=None if cut is None else replace(cut, beyond=beyond),
    )


def _answered(staged: Staged) -> NDArray[np.bool_]:
    """Return which queries the run answers, even with an empty list."""
    final = staged.final
    returned = np.zeros(0) if final.trace is None else final.trace.ranked.returned
    answered: NDArray[np.bool_] = (final.status == "scored") | (returned > 0)
    if staged.calls is not None:
        calls = staged.calls
        if "error" in calls.columns:
            calls = calls.filter(pl.col("error").is_null())
        codes = staged.gold.code_of(calls["query_id"])
        answered[codes[codes >= 0]] = True
    return answered


@dataclass(frozen=True, slots=True)
class Thresholds(Record):
    """The thresholds, each of which can be set (``--line miss=5``).

    A query misses if no gold is in its top ``miss``; gold that is not in the top ``deep`` of
    any list was missed completely. ``similarity`` below which relevant gold is embedded badly;
    ``score`` is the system's own score threshold, where its log does not show what it took out.
    An item dominates that ranks above the gold of at least ``dominant_queries`` queries and of
    the share ``dominant_share`` of all, and ``dominant_lift`` times as many as if every item were
    equally likely; a query is dominated if such items take the share
    ``dominance`` of its top ``miss``.

    The rest belongs to the playbook: ``near`` and ``far`` are the two cut-offs at which recall
    is compared, ``high`` is a recall that is good, ``gap`` a difference that is
    worth a sentence, ``low_precision`` and ``buried`` the values of P and of nDCG or RR below
    which the top of the list is poor, ``segment_gap`` how far a segment may lie below the rest,
    ``fresh`` the share of items that must not be newer than the query's as_of, ``slower`` how
    much more time (a share) a call may take than the baseline's.
    """

    miss: int = 10
    deep: int = 100
    similarity: float = 0.3
    score: float | None = None
    dominant_queries: int = 3
    dominant_share: float = 0.02
    dominant_lift: float = 2.0
    dominance: float = 0.5
    near: int = 5
    far: int = 50
    high: float = 0.8
    gap: float = 0.15
    low_precision: float = 0.5
    buried: float = 0.6
    segment_gap: float = 0.1
    fresh: float = 1.0
    slower: float = 0.1


# The allowed values of each kind of threshold: in words, least and most.
_WHOLE = ("a whole number above 0", 1, 1e9)
_SHARE = ("a share from 0 to 1", 0, 1)
_KINDS: dict[str, tuple[str, float, float]] = {
    **dict.fromkeys(("miss", "deep", "dominant_queries", "near", "far"), _WHOLE),
    **dict.fromkeys(("similarity", "score"), ("a number", -math.inf, math.inf)),
    **dict.fromkeys(("slower", "dominant_lift"), ("a number from 0", 0, 1e6)),
}


def thresholds_of(profile: str) -> Thresholds:
    """Return the thresholds of a profile."""
    # A minimal eval loop looks at five places, and so do its misses.
    return Thresholds(miss=5) if profile == "minimal" else Thresholds()


def thresholds_from(lines: Thresholds | Sequence[str], profile: str = "karat") -> Thresholds:
    """Return thresholds as they are, or those of a profile with some changed by ``KEY=VALUE``.

    >>> thresholds_from(["miss=5", "similarity=0.4"]).miss
    5
    >>> thresholds_from(["mis=5"])
    Traceback (most recent call last):
    karat.errors.UsageError: unknown line 'mis'; did you mean miss?
    """
    if isinstance(lines, Thresholds):
        return lines
    names = [field.name for field in fields(Thresholds)]
    values: dict[str, Any] = {}
    for line in lines:
        key, _, text = (part.strip() for part in line.partition("="))
        if not text:
            raise UsageError(f"--line takes KEY=VALUE, not {line!r}; known: {', '.join(names)}")
        if key not in names:
            raise unknown("line", key, names)
        if key in values:
            raise UsageError(f"--line {key} is given twice")
        expected, least, most = kind = _KINDS.get(key, _SHARE)
        try:
            number = math.nan if "_" in text else float(text)
        except ValueError:
            number = math.nan
        fits = math.isfinite(number) and least <= number <= most
        if not fits or (kind is _WHOLE and not number.is_integer()):
            raise UsageError(f"{key} is {text!r}; {expected} is expected")
        values[key] = int(number) if kind is _WHOLE else number
    thresholds = replace(thresholds_of(profile), **values)
    if thresholds.near >= thresholds.far or thresholds.miss > thresholds.deep:
        raise UsageError("near must be smaller than far, and miss no larger than deep")
    return thresholds
