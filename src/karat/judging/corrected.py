"""Corrected shares: what pairs count for, unit by unit, and what the share would be without error.

A unit is what is drawn together: a query, or a conversation. Only shares can be corrected, that
is precision: measures of ranks depend on which items are relevant, and no rate tells that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.errors import unknown
from karat.measures.conventions import Conventions
from karat.stats.bootstrap import Resampling
from karat.stats.calibration import (
    COLUMNS,
    METHODS,
    Confusion,
    Counted,
    Interval,
    Method,
    beta_interval,
    cluster_interval,
    corrected,
)
from karat.stats.exact import Values
from karat.stats.prediction_powered import PredictionPowered, prediction_powered

ONLY_SHARES = "P@k only: nDCG, RR and other ranked measures cannot be corrected this way"
# How the judge meets people on the share's own pairs, where the gold does not know them.
_OWN = tuple(f"own_{name}" for name in COLUMNS[4:])


@dataclass(frozen=True, eq=False)
class Cells:
    """The counts of every unit: ``groups`` in the columns of a calibration, one row a unit.

    ``own`` is the same, with only those labels of people that are of pairs of the share.
    """

    units: tuple[str, ...]
    groups: Values
    own: Values

    @property
    def judge(self) -> Confusion:
        """How the judge meets people, on all pairs that both judged."""
        return Confusion(*(int(one) for one in self.groups[:, 4:].sum(axis=0)))

    @property
    def counted(self) -> Counted:
        """What the share is made of."""
        return Counted(*(int(one) for one in self.groups[:, :4].sum(axis=0)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A corrected share with its ends, or ``because`` of what there is none.

    ``powered`` is the prediction-powered share where that was asked for. It is there even with
    a judge no better than chance, and is then people's word alone.
    """

    value: float | None
    because: str | None
    ci: tuple[float, float] | None = None
    interval: Interval | None = None
    powered: PredictionPowered | None = None

    def document(self) -> dict[str, Any]:
        """The plain data of it."""
        one = self.interval
        told = (
            {}
            if one is None
            else {
                "mean": one.mean,
                "draws": one.draws,
                "skipped": one.skipped,
                "drawn": list(one.drawn),
            }
        )
        ends = None if self.ci is None else list(self.ci)
        return {"value": self.value, "because": self.because, "ci": ends, **told}

    def powered_document(self) -> dict[str, Any] | None:
        """The prediction-powered share, None where it was not asked for or cannot be told."""
        one = self.powered
        if one is None:
            return None
        return {
            "value": one.value,
            "ci": None if one.low is None or one.high is None else [one.low, one.high],
            "weight": one.weight,
            "labels": one.labels,
            "units": one.groups,
        }


def kinds_of(rel: float) -> dict[str, pl.Expr]:
    """What each pair of a side by side counts for."""
    judge, human, known = (pl.col(name) for name in ("judge", "human", "known"))
    says, is_so = judge >= rel, human >= rel
    to_judge = pl.col("shown") & known.is_null()
    met = {"tp": says & is_so, "fn": ~says & is_so, "tn": ~says & ~is_so, "fp": says & ~is_so}
    kinds = {
        "judged": to_judge & judge.is_not_null(),
        "judged_relevant": to_judge & says,
        "known": pl.col("shown") & known.is_not_null(),
        "known_relevant": pl.col("shown") & (known >= rel),
        "unjudged": to_judge & judge.is_null(),
        **met,
        **{f"own_{name}": to_judge & kind for name, kind in met.items()},
    }
    return {name: kind.fill_null(value=False) for name, kind in kinds.items()}


def cells_of(rows: pl.DataFrame, units: Sequence[str]) -> Cells:
    """The counts of pairs whose kinds are known, summed over the unit of each."""
    names = [*COLUMNS, *_OWN]
    table = rows.select(pl.col(names).cast(pl.Int64), unit=pl.Series(units, dtype=pl.String))
    table = table.group_by("unit").agg(pl.col(names).sum()).sort("unit")
    counts = table.select(names).to_numpy().astype(np.float64)
    own = np.hstack([counts[:, :4], counts[:, len(COLUMNS) :]])
    return Cells(tuple(table["unit"].to_list()), counts[:, : len(COLUMNS)], own)


def units_of(query_ids: Sequence[str], groups: Mapping[str, str]) -> list[str]:
    """The unit of each query: its conversation, or itself."""
    return [groups.get(one, f"query {one}") for one in query_ids]


def estimate(cells: Cells, method: Method, conventions: Conventions, where: str) -> Estimate:
    """The corrected share of what was counted; ``where`` names that, for messages."""
    if method not in METHODS:
        raise unknown("interval", method, METHODS)
    if method == "ppi":
        return _powered(cells, conventions, where)
    found = rogan_gladen_of(cells, where)
    drawn = None if found.value is None else _interval(cells, method, conventions)
    if drawn is None:
        return found
    return replace(found, ci=(drawn.low, drawn.high), interval=drawn)


def rogan_gladen_of(cells: Cells, where: str) -> Estimate:
    """The share by Rogan and Gladen's formula, without an interval."""
    value = corrected(cells.counted, cells.judge)
    why = because(cells.counted, cells.judge, where) if value is None else None
    return Estimate(value, why)


def _interval(cells: Cells, method: Method, conventions: Conventions) -> Interval | None:
    ci, seed = conventions.ci, conventions.seed
    if method == "beta":
        return beta_interval(cells.counted, cells.judge, confidence=ci, seed=seed)
    plan = Resampling(confidence=ci, resamples=conventions.boot, seed=seed)
    return cluster_interval(cells.groups, plan)


def _powered(cells: Cells, conventions: Conventions, where: str) -> Estimate:
    counted, judge = cells.counted, cells.judge
    if not counted.judged:
        return Estimate(None, because(counted, judge, where))
    holding = cells.own[cells.own[:, 0] + cells.own[:, 2] > 0]
    found = prediction_powered(holding, confidence=conventions.ci)
    if found is None:
        told = f"people judged no pair {where} that the judge has to judge"
        return Estimate(None, f"{told}, and a uniform sample of these is needed")
    if judge.informed is not None and judge.informed <= 0:
        return Estimate(None, because(counted, judge, where), powered=found)
    ci = None if found.low is None or found.high is None else (found.low, found.high)
    return Estimate(found.value, None, ci, powered=found)


def because(counted: Counted, judge: Confusion, where: str) -> str:
    """Why there is no corrected number."""
    if not counted.judged:
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
