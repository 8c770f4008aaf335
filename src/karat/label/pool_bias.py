"""Pool bias: whether gold is fair to the runs it judges.

Leave-one-run-out (Zobel 1998), RBP residuals (Moffat and Zobel 2008), condensed lists (Sakai
2007) and Bpref (Buckley and Voorhees 2004). Nothing here is random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.data.tables import Blocks, Gold, Queries, Run
from karat.errors import InputError, UsageError
from karat.label.inputs import PAIR
from karat.label.judged_runs import (
    SAME,
    Band,
    JudgedRun,
    RBPDifference,
    Residual,
    Swap,
    judged_queries,
    ranks,
    rbp_depth,
    rbp_differences,
    swaps,
    tau,
    without_judgments,
)
from karat.label.pool_bias_page import THRESHOLDS, bias_page, is_fair, sentences
from karat.measure.conventions import Conventions
from karat.measure.names import Measure, parse_measure, parse_measures
from karat.measure.prepare import Prepared, prepare
from karat.measure.ranked import UNLIMITED, is_budget
from karat.measure.score_builder import score
from karat.pages.page import Page
from karat.pages.result import Result

MEASURES = ("nDCG@10", "AP", "RBP")
# These measure how much is judged, so gold cannot be unfair by them.
_OF_JUDGMENTS = ("Judged", "Hole", "RBPres")
_BPREF = parse_measure("Bpref")


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
            raise UsageError(
                f"{measure} does not measure the ranks of relevant items, so gold is neither fair"
                f" nor unfair by it; use measures such as {', '.join(MEASURES)}, R@10 or RR"
            )
    return chosen


def pool_bias(
    runs: Mapping[str, Run | Blocks],
    gold: Sequence[Gold],
    *,
    depth: int,
    measures: Sequence[str | Measure] | None = None,
    queries: Queries | None = None,
    conventions: Conventions | None = None,
) -> PoolBias:
    """Ask whether gold is fair to every run, each pooled to ``depth``.

    Each run is scored without the judgments of items in its top that no other given run has in
    its own: a pool of the other runs would lack them. This needs gold that was pooled from these
    runs. Where many judgments are in no run's top, nothing is concluded; such judgments always
    stay. If several golds judge a pair, the first one counts.

    >>> runs = {"a": Run.from_dict({"q": ["x", "y"]}), "b": Run.from_dict({"q": ["y", "z"]})}
    >>> bias = pool_bias(runs, [Gold.from_dict({"q": {"x": 1, "y": 1}})], depth=2, measures=["AP"])
    >>> bias.systems[0].left_out.measures["AP"].other
    0.5
    """
    conventions = conventions or Conventions()
    _check(runs, gold, depth, conventions)
    chosen = bias_measures(measures, conventions=conventions)
    residuals = [measure for measure in chosen if measure.name == "RBP"] or [parse_measure("RBP")]
    whole, disagreeing = _merged(gold)
    prepared = prepare(whole, replace(conventions, short_lists="complete"), queries=queries)
    scored = list(dict.fromkeys([*chosen, *residuals, _BPREF]))
    keep = rbp_depth(residuals)
    judged = [
        JudgedRun.of(name, score(run, prepared, scored, keep=keep), prepared)
        for name, run in runs.items()
    ]
    left_out, condensed = _left_out(judged, chosen, depth), _condensed(judged, chosen)
    bpref = [run.value(_BPREF) for run in judged]
    bpref_ranks = ranks(bpref)
    systems = tuple(
        SystemBias(
            run.name,
            run.bands(depth),
            left_out[at] if left_out else None,
            {str(rbp): run.residual(rbp) for rbp in residuals},
            {name: changes[at] for name, changes in condensed.items()},
            (bpref[at], bpref_ranks[at]),
        )
        for at, run in enumerate(judged)
    )
    return PoolBias(
        depth,
        tuple(map(str, chosen)),
        _gold_counts(prepared, judged, depth) | {"disagreeing": disagreeing},
        systems,
        {name: _taus(name, left_out, condensed[name]) for name in map(str, chosen)},
        {str(measure): _condensed_swaps(systems, measure) for measure in chosen},
        {str(rbp): rbp_differences(rbp, judged, prepared) for rbp in residuals},
    )


@dataclass(frozen=True, slots=True)
class Change:
    """A value now and under other conditions, with the run's rank among all runs each time."""

    value: float | None
    other: float | None
    rank: int | None
    other_rank: int | None
    better: str

    @property
    def change(self) -> float | None:
        """The other value less the one now; rounding errors of the sum count as 0."""
        if self.value is None or self.other is None:
            return None
        change = self.other - self.value
        return change if abs(change) > SAME else 0.0

    def to_dict(self, other: str) -> dict[str, Any]:
        """Return plain data, with the name of the other condition as a key."""
        share = self.change / abs(self.value) if self.value and self.change is not None else None
        return {
            "value": self.value,
            other: self.other,
            "change": self.change,
            "share": share,
            "rank": self.rank,
            f"rank_{other}": self.other_rank,
            "better": self.better,
        }


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run on gold without the judgments that only it has in its top.

    ``unique`` counts these judgments, ``relevant`` the relevant ones among them, and ``emptied``
    the queries that lose their last relevant item; they stay in every mean. ``taus`` and
    ``swaps`` compare the order of all runs on the whole gold with the one on this gold.
    """

    unique: int
    relevant: int
    emptied: int
    measures: Mapping[str, Change]
    taus: Mapping[str, float | None]
    swaps: Mapping[str, Sequence[Swap]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "unique": self.unique,
            "unique_relevant": self.relevant,
            "queries_emptied": self.emptied,
            "measures": {
                name: {
                    **change.to_dict("without"),
                    "tau": self.taus[name],
                    "turned": [swap.to_dict() for swap in self.swaps[name]],
                }
                for name, change in self.measures.items()
            },
        }


@dataclass(frozen=True, slots=True)
class SystemBias:
    """One run: what is judged by rank, and its values on other gold and other lists."""

    system: str
    bands: Sequence[Band]
    left_out: LeftOut | None
    residual: Mapping[str, Residual | None]
    condensed: Mapping[str, Change]
    bpref: tuple[float | None, int | None]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.system,
            "coverage": [band.to_dict() for band in self.bands],
            "left_out": self.left_out and self.left_out.to_dict(),
            "residual": {
                name: residual and residual.to_dict() for name, residual in self.residual.items()
            },
            "condensed": {
                "measures": {
                    name: change.to_dict("condensed") for name, change in self.condensed.items()
                },
                "Bpref": dict(zip(("value", "rank"), self.bpref, strict=True)),
            },
        }


@dataclass(frozen=True, slots=True)
class Taus:
    """Kendall's tau of the order of the runs by one measure, now and under other conditions.

    ``left_out`` is the lowest of those without one run's own judgments, all runs on the same gold;
    ``each_without_own`` takes every run by its value without its own judgments, so each on other
    gold; ``condensed`` is of condensed lists. None where there is no order.
    """

    left_out: float | None
    each_without_own: float | None
    condensed: float | None


@dataclass(frozen=True, eq=False, repr=False)
class PoolBias(Result):
    """Every run, the orders they are in, and what that means.

    ``swaps`` are the pairs of runs that change places with condensed lists, ``differences`` all
    pairs, with the range of their difference by RBP over all labels.
    """

    depth: int
    measures: tuple[str, ...]
    gold: Mapping[str, int]
    systems: tuple[SystemBias, ...]
    taus: Mapping[str, Taus]
    swaps: Mapping[str, Sequence[Swap]]
    differences: Mapping[str, Sequence[RBPDifference]]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, with the sentences that say what it means."""
        body = {
            "depth": self.depth,
            "measures": list(self.measures),
            "gold": dict(self.gold),
            "thresholds": dict(THRESHOLDS),
            "systems": [system.to_dict() for system in self.systems],
            "taus": {name: asdict(taus) for name, taus in self.taus.items()},
            "turned": {
                name: [swap.to_dict() for swap in swaps] for name, swaps in self.swaps.items()
            },
            "differences": {
                name: [pair.to_dict() for pair in pairs] for name, pairs in self.differences.items()
            },
        }
        return {**body, "fair": is_fair(body), "sentences": sentences(body)}

    def page(self) -> Page:
        """Return the page: what it means, coverage by rank, and each way to look at it."""
        return bias_page(self.to_dict())


def _check(
    runs: Mapping[str, Run | Blocks], gold: Sequence[Gold], depth: int, conventions: Conventions
) -> None:
    if not runs:
        raise UsageError("a pool is made of runs; give at least one")
    if not gold:
        raise UsageError("there is no gold that could be fair or unfair; give at least one")
    if depth < 1:
        raise UsageError(f"depth is {depth}; it must be at least 1")
    if conventions.level != "item":
        raise UsageError(f"level={conventions.level}: a pool holds items only")
    spans = next((table for table in gold if "start" in table.frame.columns), None)
    if spans is not None:
        raise InputError(
            "this gold holds character spans, which judge no item; give the judgments of items",
            where=spans.source.name,
        )


def _merged(gold: Sequence[Gold]) -> tuple[Gold, int]:
    """Return the first judgment of each pair, and how many pairs are judged differently."""
    rows = pl.concat([table.frame.select(*PAIR, "grade") for table in gold])
    differ = rows.group_by(PAIR).agg(pl.col("grade").n_unique()).filter(pl.col("grade") > 1)
    first = rows.unique(subset=PAIR, keep="first", maintain_order=True)
    ids = tuple(dict.fromkeys(query for table in gold for query in table.query_ids))
    return Gold(first, ids, source=gold[0].source), differ.height


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
) -> list[LeftOut]:
    """Return each run without its own judgments, all runs scored on the rest; none for one run."""
    if len(judged) < 2:
        return []
    tops = [run.contributed(depth) for run in judged]
    # A list holds an item once, so each run meets a judgment at most once.
    times = np.bincount(np.concatenate(tops), minlength=len(judged[0].gold.grade))
    now = {measure: [run.value(measure) for run in judged] for measure in measures}
    return [_without_own(at, judged, top[times[top] == 1], now) for at, top in enumerate(tops)]


def _without_own(
    at: int,
    judged: Sequence[JudgedRun],
    own: np.ndarray[Any, np.dtype[np.int64]],
    now: Mapping[Measure, list[float | None]],
) -> LeftOut:
    whole = judged[at].ranked.target
    rel = judged[at].gold.conventions.rel
    removed = np.zeros(len(whole.query), dtype=bool)
    removed[own] = True
    target = without_judgments(whole, removed)
    lists = [run.without(target, removed) for run in judged]
    then = {measure: _values_on(measure, judged, lists) for measure in now}
    names = [run.name for run in judged]
    return LeftOut(
        # A pair that was pooled and not judged is removed too, but is no judgment.
        unique=int((whole.grade[own] >= 0).sum()),
        relevant=int((whole.grade[own] >= rel).sum()),
        emptied=int(((whole.relevant(rel) > 0) & (target.relevant(rel) == 0)).sum()),
        measures={str(m): _changes(m, now[m], then[m])[at] for m in now},
        taus={str(m): tau(now[m], then[m]) for m in now},
        swaps={str(m): swaps(names, now[m], then[m], lower=_lower_is_better(m)) for m in now},
    )


def _condensed(judged: Sequence[JudgedRun], measures: Sequence[Measure]) -> dict[str, list[Change]]:
    """Return each measure on condensed lists, run by run."""
    lists = [run.condensed() for run in judged]
    return {
        str(measure): _changes(
            measure,
            [run.value(measure) for run in judged],
            _values_on(measure, judged, lists),
        )
        for measure in measures
    }


def _values_on(
    measure: Measure, judged: Sequence[JudgedRun], lists: Sequence[Any]
) -> list[float | None]:
    return [run.value_on(measure, ranked) for run, ranked in zip(judged, lists, strict=True)]


def _changes(
    measure: Measure, now: Sequence[float | None], then: Sequence[float | None]
) -> list[Change]:
    places = [ranks(values, lower=_lower_is_better(measure)) for values in (now, then)]
    return [
        Change(value, other, rank, other_rank, measure.definition.better)
        for value, other, rank, other_rank in zip(now, then, *places, strict=True)
    ]


def _lower_is_better(measure: Measure) -> bool:
    return measure.definition.better == "lower"


def _taus(name: str, left_out: Sequence[LeftOut], condensed: Sequence[Change]) -> Taus:
    def tau_of(changes: Sequence[Change]) -> float | None:
        return tau([change.value for change in changes], [change.other for change in changes])

    known = [run.taus[name] for run in left_out]
    numbers = [value for value in known if value is not None]
    return Taus(
        # Where one of them leaves no order at all, the lowest of the others claims too much.
        left_out=min(numbers, default=None) if len(numbers) == len(known) else None,
        each_without_own=tau_of([run.measures[name] for run in left_out]),
        condensed=tau_of(condensed),
    )


def _condensed_swaps(systems: Sequence[SystemBias], measure: Measure) -> list[Swap]:
    changes = [system.condensed[str(measure)] for system in systems]
    return swaps(
        [system.system for system in systems],
        [change.value for change in changes],
        [change.other for change in changes],
        lower=_lower_is_better(measure),
    )
