"""Corrected scores: P@k without the errors of a judge, estimated from people's labels.

A unit is what is resampled together: a query, or a conversation. Only shares, such as precision,
can be corrected: measures of ranks depend on which items are relevant, and error rates do not
tell that. What the gold judges counts as the gold says; an empty rank of a short list is not
relevant; what the judge judges is corrected by its rates; unjudged items are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from karat.data.tables import Gold
from karat.errors import UsageError, unknown
from karat.label.inputs import PAIR
from karat.label.labels import Labels
from karat.label.pool import TopHits
from karat.label.raters import People, Truth, one_grade
from karat.label.side_by_side import RunTop, side_by_side
from karat.measure.aggregates import Values
from karat.measure.conventions import Conventions
from karat.measure.lists import without_repeats
from karat.measure.names import Measure, parse_measure
from karat.measure.ranked import is_budget
from karat.measure.scores import Scores
from karat.stats.calibration import (
    COLUMNS,
    METHODS,
    Confusion,
    Counted,
    Interval,
    Method,
    PredictionPowered,
    beta_interval,
    cluster_difference,
    cluster_interval,
    corrected,
    prediction_powered,
    prediction_powered_difference,
)
from karat.stats.means import Resampling

ONLY_SHARES = "P@k only: nDCG, RR and other ranked measures cannot be corrected this way"
# The judge beside people on the pairs of the share that the gold does not judge.
_OWN = tuple(f"own_{name}" for name in COLUMNS[4:])


@dataclass(frozen=True, eq=False)
class Cells:
    """The counts of every unit: ``groups`` in the columns of a calibration, one row per unit.

    ``own`` is the same, with only those labels of people that are of pairs of the share.
    """

    units: tuple[str, ...]
    groups: Values
    own: Values

    @property
    def judge(self) -> Confusion:
        """The judge beside people, on all pairs that both judged."""
        return Confusion(*(int(one) for one in self.groups[:, 4:].sum(axis=0)))

    @property
    def counted(self) -> Counted:
        """What the share is made of."""
        return Counted(*(int(one) for one in self.groups[:, :4].sum(axis=0)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A corrected share with its interval, or the reason why there is none (``because``).

    ``powered`` is the prediction-powered share if that method was chosen. It exists even if the
    judge is no better than chance, and then rests on people's labels alone.
    """

    value: float | None
    because: str | None
    ci: tuple[float, float] | None = None
    interval: Interval | None = None
    powered: PredictionPowered | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        ends = None if self.ci is None else list(self.ci)
        result: dict[str, Any] = {"value": self.value, "because": self.because, "ci": ends}
        if self.interval is not None:
            result |= {name: getattr(self.interval, name) for name in ("mean", "draws", "skipped")}
            result["drawn"] = list(self.interval.drawn)
        return result

    def powered_dict(self) -> dict[str, Any] | None:
        """Return the prediction-powered share; None if there is none."""
        share = self.powered
        if share is None:
            return None
        return {
            "value": share.value,
            "ci": None if share.low is None or share.high is None else [share.low, share.high],
            "weight": share.weight,
            "labels": share.labels,
            "units": share.groups,
        }


def kinds_of(rel: float) -> dict[str, pl.Expr]:
    """Return what each pair of a side by side counts for, as expressions."""
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
    """Return the counts of pairs, summed by unit."""
    names = [*COLUMNS, *_OWN]
    table = rows.select(pl.col(names).cast(pl.Int64), unit=pl.Series(units, dtype=pl.String))
    table = table.group_by("unit").agg(pl.col(names).sum()).sort("unit")
    counts = table.select(names).to_numpy().astype(np.float64)
    own = np.hstack([counts[:, :4], counts[:, len(COLUMNS) :]])
    return Cells(tuple(table["unit"].to_list()), counts[:, : len(COLUMNS)], own)


def units_of(query_ids: Sequence[str], groups: Mapping[str, str]) -> list[str]:
    """Return the unit of each query: its conversation, or itself."""
    return [groups.get(query_id, f"query {query_id}") for query_id in query_ids]


def estimate(cells: Cells, method: Method, conventions: Conventions, where: str) -> Estimate:
    """Return the corrected share; ``where`` names the pairs in messages."""
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
    """Return the share by Rogan and Gladen's formula, without an interval."""
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
        because_ = f"people judged none of the pairs {where} that the judge judges"
        return Estimate(None, f"{because_}; a uniform sample of these is needed")
    if judge.informed is not None and judge.informed <= 0:
        return Estimate(None, because(counted, judge, where), powered=found)
    ci = None if found.low is None or found.high is None else (found.low, found.high)
    return Estimate(found.value, None, ci, powered=found)


def because(counted: Counted, judge: Confusion, where: str) -> str:
    """Return why there is no corrected number."""
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


def correctable(measure: Measure) -> bool:
    """Return whether a measure can be corrected: P with a cut-off in items.

    >>> [correctable(parse_measure(name)) for name in ("P@5", "nDCG@5", "R@5")]
    [True, False, False]
    """
    return measure.name == "P" and measure.k is not None and not is_budget(measure.k)


@dataclass(frozen=True, eq=False)
class Corrector:
    """A judge's labels and people's, which correct P@k of any number of systems.

    ``human`` has one grade per pair. Scores are those on the gold alone, with the top k of every
    list kept (``score(..., keep=k)``).
    """

    judged: Labels
    human: Gold
    method: Method = "cluster"

    @classmethod
    def of(
        cls,
        judged: Labels,
        human: Gold | People,
        *,
        method: Method = "cluster",
        truth: Truth = "majority",
    ) -> Corrector:
        """Return a corrector; several people make one grade per pair by ``truth``."""
        people = human if isinstance(human, People) else People.of(human)
        return cls(judged, one_grade(people, truth).gold, method)

    def precision(self, scores: Scores, measure: str | Measure) -> dict[str, Any]:
        """Return a system's P@k without the judge's errors, as plain data."""
        wanted = _checked(scores, measure)
        counted = _counted(scores, ~np.isnan(scores.values(str(wanted))))
        rows = self._rows(scores, wanted, counted)
        cells = cells_of(rows, rows["unit"].to_list())
        where = f"in the top {wanted.k}"
        found = estimate(cells, self.method, scores.conventions, where)
        return {**self._document(found), **_share_counts(rows, cells)}

    def difference(self, first: Scores, second: Scores, measure: str | Measure) -> dict[str, Any]:
        """Return the second system's corrected P@k less the first's, over their common queries.

        Both use the same judge and the same resamples of queries, so what they owe to these
        cancels. ``beta`` does not compare shares, so ``cluster`` is used instead.
        """
        if first.fingerprint != second.fingerprint:
            raise UsageError(
                "the two systems were scored on different gold or queries; score both on the same"
            )
        wanted = _checked(first, measure)
        both = ~np.isnan(first.values(str(wanted))) & ~np.isnan(second.values(str(wanted)))
        counted = _counted(first, both)
        rows = [self._rows(one, wanted, counted) for one in (first, second)]
        cells = [cells_of(one, one["unit"].to_list()) for one in _aligned(*rows)]
        conventions, where = first.conventions, f"in the top {wanted.k}"
        ends = [
            estimate(one, "ppi", conventions, where)
            if self.method == "ppi"
            else rogan_gladen_of(one, where)
            for one in cells
        ]
        lacking = next((one for one in ends if one.value is None), None)
        if lacking is not None:
            return self._document(lacking, difference=True)
        ci = _difference_interval(cells[0], cells[1], self.method, conventions)
        values = [end.value for end in ends if end.value is not None]
        value = values[1] - values[0] if len(values) == 2 else None
        return self._document(Estimate(value, None, ci), difference=True)

    def _rows(self, scores: Scores, measure: Measure, counted: pl.DataFrame) -> pl.DataFrame:
        """Return what every pair and every empty rank counts for, with its unit."""
        k, rel = _cut(measure), float(measure.arguments.get("rel", scores.conventions.rel))
        hits = _hits(scores, k, counted)
        gold = hits.drop_nulls("grade").filter(pl.col("grade") >= 0)
        top = RunTop(
            scores.system,
            TopHits(scores.source, hits.select(*PAIR, "rank"), counted.height),
            k,
            Gold.from_frame(gold.select(*PAIR, "grade")),
        )
        pairs = side_by_side(self.judged, self.human, top=top).frame
        rows = pairs.select("query_id", **kinds_of(rel)).with_columns(empty=pl.lit(value=False))
        rows = pl.concat([rows, _empty_ranks(rows, hits, counted, k)], how="diagonal")
        rows = rows.join(_units(scores), on="query_id", how="left", maintain_order="left")
        return rows.with_columns(pl.col("unit").fill_null(pl.format("query {}", "query_id")))

    def _document(self, found: Estimate, *, difference: bool = False) -> dict[str, Any]:
        powered = self.method == "ppi"
        joint = "ppi" if powered else "cluster"
        result = found.to_dict()
        return {
            **{name: result[name] for name in ("value", "ci", "because")},
            "method": joint if difference else self.method,
            "only": ONLY_SHARES,
            **({} if difference else {"prediction_powered": found.powered_dict()}),
        }


def corrected_precision(
    scores: Scores,
    measure: str | Measure,
    judged: Labels,
    human: Gold | People,
    *,
    method: Method = "cluster",
    truth: Truth = "majority",
) -> dict[str, Any]:
    """Return one system's P@k without the errors of a judge; see ``Corrector.precision``."""
    return Corrector.of(judged, human, method=method, truth=truth).precision(scores, measure)


def corrected_difference(
    first: Scores,
    second: Scores,
    measure: str | Measure,
    judged: Labels,
    human: Gold | People,
    *,
    method: Method = "cluster",
    truth: Truth = "majority",
) -> dict[str, Any]:
    """Return the second system's corrected P@k less the first's; see ``Corrector``."""
    corrector = Corrector.of(judged, human, method=method, truth=truth)
    return corrector.difference(first, second, measure)


def _checked(scores: Scores, measure: str | Measure) -> Measure:
    wanted = parse_measure(measure, conventions=scores.conventions)
    if not correctable(wanted):
        raise UsageError(f"{wanted} cannot be corrected for a judge's errors; only P@k can")
    if scores.conventions.level != "item":
        raise UsageError(
            f"a judge judges items, and level={scores.conventions.level} counts others;"
            " nothing can be corrected"
        )
    if scores.lists is None:
        raise UsageError(f"the scores of {scores.system} come without lists; score it again")
    return wanted


def _cut(measure: Measure) -> int:
    return int(measure.k) if isinstance(measure.k, int) else 0


def _counted(scores: Scores, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> pl.DataFrame:
    """Return the queries that count in the mean, and their rows."""
    rows = pl.DataFrame(
        {"row": np.arange(scores.table.height), "query_id": scores.table["query_id"]}
    )
    return rows.filter(pl.Series(mask))


def _hits(scores: Scores, k: int, counted: pl.DataFrame) -> pl.DataFrame:
    """Return the top k of the counted queries, each with the gold's grade."""
    lists = scores.lists
    if lists is None:
        raise UsageError(f"the scores of {scores.system} come without lists; score it again")
    # A repeat keeps its rank and is not relevant, like an empty rank.
    top = without_repeats(lists).filter(pl.col("rank") <= k)
    top = top.with_columns(pl.col("row").cast(pl.Int64))
    return top.join(counted, on="row", how="inner").select(
        *PAIR, pl.col("rank").cast(pl.Int64), pl.col("grade").cast(pl.Float64)
    )


def _empty_ranks(
    rows: pl.DataFrame, hits: pl.DataFrame, counted: pl.DataFrame, k: int
) -> pl.DataFrame:
    """Return a row for every rank that a short list leaves empty: known, and not relevant."""
    listed = hits.group_by("query_id").len("listed")
    short = counted.join(listed, on="query_id", how="left", maintain_order="left").with_columns(
        lacking=k - pl.col("listed").fill_null(0).cast(pl.Int64)
    )
    places = short.select(pl.col("query_id").repeat_by("lacking").explode()).drop_nulls()
    nothing = {
        name: pl.lit(name in ("known", "empty")) for name in rows.columns if name != "query_id"
    }
    return places.select("query_id", **nothing)


def _units(scores: Scores) -> pl.DataFrame:
    """Return the unit of each query."""
    ids = scores.table["query_id"]
    if scores.groups is None:
        return pl.DataFrame({"query_id": ids, "unit": ids}).with_columns(
            unit=pl.format("query {}", "unit")
        )
    return pl.DataFrame({"query_id": ids, "unit": [f"group {group}" for group in scores.groups]})


def _aligned(first: pl.DataFrame, second: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return both with a row for every unit, which counts nothing where one has none."""
    every = pl.concat([first.select("query_id", "unit"), second.select("query_id", "unit")])
    nothing = every.unique("unit", maintain_order=True)
    one, other = (
        pl.concat([rows, nothing], how="diagonal").with_columns(
            pl.col(pl.Boolean).fill_null(value=False)
        )
        for rows in (first, second)
    )
    return one, other


def _difference_interval(
    first: Cells, second: Cells, method: Method, conventions: Conventions
) -> tuple[float, float] | None:
    if method == "ppi":
        found = prediction_powered_difference(first.own, second.own, confidence=conventions.ci)
        return None if found is None else found[1]
    plan = Resampling(confidence=conventions.ci, resamples=conventions.boot, seed=conventions.seed)
    ends = cluster_difference(first.groups, second.groups, plan)
    return None if ends is None else (ends.low, ends.high)


def _share_counts(rows: pl.DataFrame, cells: Cells) -> dict[str, Any]:
    """Return the counts that the share is made of."""
    counted, judge = cells.counted, cells.judge
    empty = int(rows["empty"].sum())
    own: Values = cells.own[:, 4:]
    return {
        "judged": counted.judged,
        "judged_relevant": counted.judged_relevant,
        "known": counted.known - empty,
        "known_relevant": counted.known_relevant,
        "empty": empty,
        "unjudged": int(rows["unjudged"].sum()),
        "uncorrected": counted.raw,
        "labels": {
            "all": judge.relevant + judge.others,
            "of_the_share": int(own.sum()),
        },
        "sensitivity": judge.sensitivity,
        "specificity": judge.specificity,
        "queries": rows.filter(pl.col("judged") | pl.col("known"))["query_id"].n_unique(),
    }
