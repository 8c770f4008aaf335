"""Calibration: how far a judge can be trusted, and what its shares would be if it never erred."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.errors import InputError, UsageError, unknown
from karat.judging.labels import Labels
from karat.judging.side_by_side import SideBySide, Top, side_by_side
from karat.measures.conventions import Conventions
from karat.stats.agreement import cross_table, kappa
from karat.stats.bootstrap import Resampling
from karat.stats.calibration import (
    METHODS,
    Confusion,
    Counted,
    Interval,
    Method,
    beta_interval,
    cluster_interval,
    corrected,
)
from karat.stats.proportions import wilson
from karat.tables import Gold, Queries

# With fewer labels of a class than this, its rate is hardly known.
FEW = 30
# A table of more different grades than this is no table that anyone reads.
_MOST_GRADES = 50

Parts = Mapping[str, Mapping[str, Collection[str]]]


@dataclass(frozen=True, eq=False)
class Figures:
    """A judge on some pairs: its agreement with people, and the share that it would correct.

    ``table`` has a row for each grade that people gave and a column for each of the judge's.
    ``value`` is the corrected share, None ``because`` of something. ``unjudged`` counts what
    belongs to the share and nobody judged.
    """

    pairs: Mapping[str, int]
    grades: tuple[float, ...]
    table: NDArray[np.int64]
    judge: Confusion
    counted: Counted
    unjudged: int
    queries: int
    value: float | None
    because: str | None
    interval: Interval | None
    confidence: float

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        judge, counted = self.judge, self.counted
        binary = np.array([[judge.tn, judge.fp], [judge.fn, judge.tp]])
        return {
            "pairs": dict(self.pairs),
            "grades": [_plain(one) for one in self.grades],
            "table": self.table.tolist(),
            "relevant": {"tp": judge.tp, "fn": judge.fn, "tn": judge.tn, "fp": judge.fp},
            "sensitivity": self._rate(judge.tp, judge.relevant),
            "specificity": self._rate(judge.tn, judge.others),
            "kappa": {
                **{
                    weights: kappa(self.table, weights=weights, grades=self.grades)
                    for weights in ("none", "linear", "quadratic")
                },
                "relevant": kappa(binary),
            },
            "share": {
                "value": counted.raw,
                "judged": counted.judged,
                "judged_relevant": counted.judged_relevant,
                "known": counted.known,
                "known_relevant": counted.known_relevant,
                "unjudged": self.unjudged,
                "queries": self.queries,
            },
            "corrected": {"value": self.value, "because": self.because, **self._interval()},
        }

    def _rate(self, good: int, n: int) -> dict[str, Any]:
        ends = list(wilson(good / n, n, confidence=self.confidence)) if n else None
        return {"value": good / n if n else None, "ci": ends, "n": n, "few": n < FEW}

    def _interval(self) -> dict[str, Any]:
        one = self.interval
        if one is None:
            return {"ci": None}
        return {
            "ci": [one.low, one.high],
            "mean": one.mean,
            "draws": one.draws,
            "skipped": one.skipped,
            "drawn": list(one.drawn),
        }


@dataclass(frozen=True, eq=False)
class Calibration:
    """A judge held against people, over all pairs and segment by segment.

    ``grouped`` says that queries of one conversation are resampled together.
    """

    overall: Figures
    method: Method
    rel: float
    top: Top | None = None
    raters: tuple[str, ...] = ()
    grouped: bool = False
    segments: Mapping[str, Mapping[str, Figures]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        return {
            "rel": self.rel,
            "system": None if self.top is None else self.top.name,
            "k": None if self.top is None else self.top.k,
            "interval": self.method,
            "raters": list(self.raters),
            **self.overall.document(),
            "run": None if self.top is None else self.top.document(),
            "segments": {
                by: {value: one.document() for value, one in parts.items()}
                for by, parts in self.segments.items()
            },
        }


def calibrate(
    judged: Labels,
    human: Gold,
    *,
    top: Top | None = None,
    queries: Queries | None = None,
    segments: Parts | None = None,
    conventions: Conventions | None = None,
    method: Method = "cluster",
) -> Calibration:
    """Hold a judge's labels against people's on the pairs that both have.

    An item is relevant from the grade ``rel`` of the conventions on. The share that is corrected
    is that of everything judged, or of the top k of a run; there, what the run's gold judges
    counts as the gold says. ``queries`` says which queries count and which belong to one
    conversation; ``segments`` names the queries of each segment by column and value.
    """
    conventions = conventions or Conventions()
    if method not in METHODS:
        raise unknown("interval", method, METHODS)
    only = None if queries is None else queries.frame["query_id"].to_list()
    pairs = side_by_side(judged, human, top=top, only=only)
    reader = _Reader(conventions, method, _groups(queries, conventions), top)
    overall = reader.figures(pairs)
    _check(overall, judged, top, queries)
    return Calibration(
        overall,
        method,
        conventions.rel,
        top,
        tuple(judged.frame["rater"].unique().sort().to_list()),
        bool(reader.groups),
        {
            by: {
                value: reader.figures(part)
                for value, ids in parts.items()
                if (part := pairs.of(ids)).frame.height
            }
            for by, parts in (segments or {}).items()
        },
    )


def _check(figures: Figures, judged: Labels, top: Top | None, queries: Queries | None) -> None:
    """Refuse what has no pair to go by, and say what is wrong with the files."""
    if queries is not None and not figures.pairs["both"]:
        raise InputError(
            f"no pair that judge and people share is of a query in {queries.source.name}",
            where=judged.source.name,
        )
    if top is not None and not figures.counted.judged:
        told = f"no label of the top {top.k} of {top.tops.source.name}"
        more = "" if not figures.counted.known else ", beyond what the gold judges"
        raise InputError(
            f"holds {told}{more}; pool that run and judge it", where=judged.source.name
        )


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads the figures off pairs, always in the same way."""

    conventions: Conventions
    method: Method
    groups: Mapping[str, str]
    top: Top | None

    def figures(self, pairs: SideBySide) -> Figures:
        """The figures of some pairs."""
        rows = pairs.frame.select("query_id", "judge", "human", **_kinds(self.conventions.rel))
        total = rows.select(pl.exclude("query_id", "judge", "human").sum())
        sums: dict[str, int] = total.row(0, named=True)
        judge = Confusion(*(sums[name] for name in ("tp", "fn", "tn", "fp")))
        names = ("judged", "judged_relevant", "known", "known_relevant")
        counted = Counted(*(sums[name] for name in names))
        both = rows.drop_nulls(("judge", "human"))
        grades = _grades(both)
        value, because = corrected(counted, judge), None
        if value is None:
            because = _because(counted, judge, self.top)
        return Figures(
            pairs=pairs.counts(),
            grades=grades,
            table=cross_table(both["human"].to_numpy(), both["judge"].to_numpy(), grades),
            judge=judge,
            counted=counted,
            unjudged=sums["unjudged"],
            queries=rows.filter(pl.col("judged") | pl.col("known"))["query_id"].n_unique(),
            value=value,
            because=because,
            interval=None if value is None else self._interval(rows, counted, judge),
            confidence=self.conventions.ci,
        )

    def _interval(self, rows: pl.DataFrame, counted: Counted, judge: Confusion) -> Interval | None:
        ci, seed = self.conventions.ci, self.conventions.seed
        if self.method == "beta":
            return beta_interval(counted, judge, confidence=ci, seed=seed)
        names = ("judged", "judged_relevant", "known", "known_relevant", "tp", "fn", "tn", "fp")
        units = [self.groups.get(one, f"query {one}") for one in rows["query_id"].to_list()]
        table = rows.with_columns(unit=pl.Series(units, dtype=pl.String))
        table = table.group_by("unit").agg(pl.col(names).sum()).sort("unit")
        plan = Resampling(confidence=ci, resamples=self.conventions.boot, seed=seed)
        return cluster_interval(table.select(names).to_numpy().astype(np.float64), plan)


def _kinds(rel: float) -> dict[str, pl.Expr]:
    """What each pair counts for."""
    judge, human, known = (pl.col(name) for name in ("judge", "human", "known"))
    says, is_so = judge >= rel, human >= rel
    to_judge = pl.col("shown") & known.is_null()
    kinds = {
        "judged": to_judge & judge.is_not_null(),
        "judged_relevant": to_judge & says,
        "known": pl.col("shown") & known.is_not_null(),
        "known_relevant": pl.col("shown") & (known >= rel),
        "unjudged": to_judge & judge.is_null(),
        "tp": says & is_so,
        "fn": ~says & is_so,
        "tn": ~says & ~is_so,
        "fp": says & ~is_so,
    }
    return {name: kind.fill_null(value=False) for name, kind in kinds.items()}


def _grades(both: pl.DataFrame) -> tuple[float, ...]:
    grades = tuple(sorted({*both["human"].to_list(), *both["judge"].to_list()}))
    if len(grades) > _MOST_GRADES:
        raise UsageError(
            f"people and the judge gave {len(grades):,} different grades; a judge is calibrated"
            f" on at most {_MOST_GRADES}"
        )
    return grades


def _groups(queries: Queries | None, conventions: Conventions) -> dict[str, str]:
    """The conversation of each query that belongs to one."""
    groups = {}
    if queries is not None and "group" in queries.frame.columns:
        own = queries.frame.select("query_id", "group").iter_rows()
        groups = {query_id: f"group {group}" for query_id, group in own if group is not None}
    if conventions.unit == "group" and not groups:
        raise UsageError("unit=group needs queries with a column group: the conversation of each")
    return {} if conventions.unit == "query" else groups


def _because(counted: Counted, judge: Confusion, top: Top | None) -> str:
    """Why there is no corrected number."""
    if not counted.judged:
        where = "here" if top is None else f"in the top {top.k}"
        return f"the judge judged nothing {where}"
    if judge.sensitivity is None or judge.specificity is None:
        lacking, rate = ("relevant", "sensitivity")
        if judge.sensitivity is not None:
            lacking, rate = ("not relevant", "specificity")
        return f"people call no pair {lacking} that the judge judged, so its {rate} is not known"
    return (
        f"the judge is no better than chance: sensitivity {judge.sensitivity:.4f} and specificity"
        f" {judge.specificity:.4f} make {judge.sensitivity + judge.specificity:.4f}, and more than"
        " 1 is needed"
    )


def _plain(grade: float) -> float | int:
    return int(grade) if grade.is_integer() else grade
