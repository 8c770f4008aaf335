"""Calibration: how far a judge can be trusted, and what its shares would be if it never erred."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.errors import InputError, UsageError, unknown
from karat.judging.corrected import (
    ONLY_SHARES,
    Estimate,
    cells_of,
    estimate,
    kinds_of,
    units_of,
)
from karat.judging.labels import Labels
from karat.judging.rater_agreement import raters_agreement
from karat.judging.raters import OneGrade, People, Truth, one_grade
from karat.judging.side_by_side import SideBySide, Top, side_by_side
from karat.measures.conventions import Conventions
from karat.stats.agreement import cross_table, kappa
from karat.stats.calibration import METHODS, Confusion, Counted, Interval, Method
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
    ``estimate`` is the corrected share. ``unjudged`` counts what belongs to the share and nobody
    judged.
    """

    pairs: Mapping[str, int]
    grades: tuple[float, ...]
    table: NDArray[np.int64]
    judge: Confusion
    counted: Counted
    unjudged: int
    queries: int
    estimate: Estimate
    confidence: float

    @property
    def value(self) -> float | None:
        """The corrected share; None where there is none."""
        return self.estimate.value

    @property
    def interval(self) -> Interval | None:
        """Its interval by draws or resamples; None where there is none of that kind."""
        return self.estimate.interval

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
            "corrected": {**self.estimate.document(), "only": ONLY_SHARES},
            "prediction_powered": self.estimate.powered_document(),
        }

    def _rate(self, good: int, n: int) -> dict[str, Any]:
        ends = list(wilson(good / n, n, confidence=self.confidence)) if n else None
        return {"value": good / n if n else None, "ci": ends, "n": n, "few": n < FEW}


@dataclass(frozen=True, eq=False)
class Calibration:
    """A judge held against people, over all pairs and segment by segment.

    ``grouped`` says that queries of one conversation are resampled together. ``agreement`` is
    how far people agree with each other, and ``people`` how their one grade a pair came about.
    ``not_judged`` counts the judge's labels below 0.
    """

    overall: Figures
    method: Method
    rel: float
    people: OneGrade
    agreement: Mapping[str, Any]
    top: Top | None = None
    raters: tuple[str, ...] = ()
    grouped: bool = False
    not_judged: int = 0
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
            "not_judged": self.not_judged,
            "raters_agreement": {**self.agreement, "truth": self.people.document()},
            "run": None if self.top is None else self.top.document(),
            "segments": {
                by: {value: one.document() for value, one in parts.items()}
                for by, parts in self.segments.items()
            },
        }


def calibrate(
    judged: Labels,
    human: Gold | People,
    *,
    top: Top | None = None,
    queries: Queries | None = None,
    segments: Parts | None = None,
    conventions: Conventions | None = None,
    method: Method = "cluster",
    truth: Truth = "majority",
) -> Calibration:
    """Hold a judge's labels against people's on the pairs that both have.

    Several people make one grade a pair by ``truth``; one alone is believed.

    An item is relevant from the grade ``rel`` of the conventions on. The share that is corrected
    is that of everything judged, or of the top k of a run; there, what the run's gold judges
    counts as the gold says. ``queries`` says which queries count and which belong to one
    conversation; ``segments`` names the queries of each segment by column and value.
    """
    conventions = conventions or Conventions()
    if method not in METHODS:
        raise unknown("interval", method, METHODS)
    only = None if queries is None else queries.frame["query_id"].to_list()
    people = human if isinstance(human, People) else People.of(human)
    settled = one_grade(people, truth)
    pairs = side_by_side(judged, settled.gold, top=top, only=only)
    reader = _Reader(conventions, method, _groups(queries, conventions), top)
    overall = reader.figures(pairs)
    _check(overall, judged, top, queries)
    return Calibration(
        overall,
        method,
        conventions.rel,
        settled,
        raters_agreement(people.of_queries(only), pairs.frame),
        top,
        tuple(judged.raters),
        bool(reader.groups),
        judged.not_judged,
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
        rows = pairs.frame.select("query_id", "judge", "human", **kinds_of(self.conventions.rel))
        cells = cells_of(rows, units_of(rows["query_id"].to_list(), self.groups))
        both = rows.drop_nulls(("judge", "human"))
        grades = _grades(both)
        where = "here" if self.top is None else f"in the top {self.top.k}"
        return Figures(
            pairs=pairs.counts(),
            grades=grades,
            table=cross_table(both["human"].to_numpy(), both["judge"].to_numpy(), grades),
            judge=cells.judge,
            counted=cells.counted,
            unjudged=int(rows["unjudged"].sum()),
            queries=rows.filter(pl.col("judged") | pl.col("known"))["query_id"].n_unique(),
            estimate=estimate(cells, self.method, self.conventions, where),
            confidence=self.conventions.ci,
        )


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


def _plain(grade: float) -> float | int:
    return int(grade) if grade.is_integer() else grade
