"""Corrected scores: P@k without the errors of a judge, estimated from people's labels.

A unit is what is resampled together: a query, or a conversation. Only shares, such as precision,
can be corrected: measures of ranks depend on which items are relevant, and error rates do not
tell that. What the gold judges counts as the gold says; an empty rank of a short list is not
relevant; what the judge judges is corrected by its rates; unjudged items are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from karat.data.tables import Gold
from karat.errors import InputError, UsageError
from karat.formats.labels import no_grades_error
from karat.label.inputs import PAIR, judged_pairs
from karat.label.labels import Labels, People, Truth, one_grade
from karat.measure.aggregates import Values
from karat.measure.conventions import Conventions
from karat.measure.lists import without_repeats
from karat.measure.names import Measure, parse_measure
from karat.measure.ranked import Mask, is_budget
from karat.measure.scores import Scores
from karat.stats.calibration import (
    COLUMNS,
    Confusion,
    Counted,
    Method,
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
_UNKNOWN = pl.lit(None, pl.Float64)
# A message names this many raters.
_NAMED = 5


@dataclass(frozen=True, eq=False)
class SideBySide:
    """One row per pair: ``judge`` and ``human`` grades, ``shown`` and ``known``; null is unknown.

    ``shown`` marks what the share is made of: everything judged, or the top of a run. ``known``
    is the grade that the gold of that run gives. ``failed`` marks what the judge could not judge.
    """

    frame: pl.DataFrame
    left_out: int = 0

    def of(self, query_ids: pl.Series) -> SideBySide:
        """Return the pairs of some queries; ``left_out`` counts the graded pairs of others."""
        frame = self.frame.filter(pl.col("query_id").is_in(query_ids.implode()))
        graded = pl.any_horizontal(pl.col("judge", "human").is_not_null())
        left_out = self.frame.filter(graded).height - frame.filter(graded).height
        return SideBySide(frame, left_out)

    def counts(self) -> dict[str, int]:
        """Return the number of pairs of each kind."""
        judge, human = pl.col("judge").is_not_null(), pl.col("human").is_not_null()
        kinds = {
            "both": judge & human,
            "human_only": ~judge & human,
            "judge_only": judge & ~human,
            "judge_failed": pl.col("failed"),
            "human_but_failed": pl.col("failed") & human,
        }
        counted = self.frame.select(**{name: kind.sum() for name, kind in kinds.items()})
        return {**counted.row(0, named=True), "left_out": self.left_out}


def side_by_side(
    judged: Labels, human: Gold, *, top: pl.DataFrame | None = None, known: Gold | None = None
) -> SideBySide:
    """Return a judge's labels beside people's; ``top`` has the pairs of a run, ``known`` its gold.

    Without a top, everything judged is shown.
    """
    # A judge is calibrated by itself, not together with another.
    if len(judged.raters) > 1:
        names = f"several raters: {', '.join(map(repr, judged.raters[:_NAMED]))}"
        advice = "calibrate one judge at a time: karat calibrate --rater NAME"
        raise InputError(f"holds labels of {names}; {advice}", where=judged.source.name)
    if judged.frame.is_empty():
        failed_pairs, below = judged.failed.height, judged.not_judged
        raise no_grades_error(judged.source.name, failed=failed_pairs, not_judged=below)
    judge = judged.frame.select(*PAIR, judge=pl.col("grade").cast(pl.Float64))
    people = _grades(human, "human")
    if not judge.join(people, on=PAIR, how="semi").height:
        examples = []
        for frame in (judge, people):
            query, item = frame.select(PAIR).row(0) if frame.height else ("none", "none")
            examples.append(f"query {query!r} with item {item!r}")
        raise InputError(
            f"no pair in common with {human.source.name}: the judge has {examples[0]}, people have"
            f" {examples[1]}; people must judge some of the same pairs (karat pool --sample)",
            where=judged.source.name,
        )
    frame = judge.join(people, on=PAIR, how="full", coalesce=True)
    failed = judged.failed.select(PAIR).unique().join(judge, on=PAIR, how="anti")
    frame = _marked(frame, failed, "failed")
    if top is None:
        frame = frame.with_columns(shown=pl.col("judge").is_not_null(), known=_UNKNOWN)
    else:
        frame = _marked(frame, top.select(PAIR), "shown")
        if known is None:
            frame = frame.with_columns(known=_UNKNOWN)
        else:
            frame = frame.join(_grades(known, "known"), on=PAIR, how="left", maintain_order="left")
    return SideBySide(frame.sort(PAIR))


def _marked(frame: pl.DataFrame, pairs: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the frame with some pairs marked; pairs that it lacks are added."""
    marks = pairs.with_columns(pl.lit(value=True).alias(name))
    joined = frame.join(marks, on=PAIR, how="full", coalesce=True)
    return joined.with_columns(pl.col(pl.Boolean).fill_null(value=False))


def _grades(gold: Gold, name: str) -> pl.DataFrame:
    return judged_pairs(gold).select(*PAIR, pl.col("grade").alias(name))


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
        return Confusion(*self.groups[:, 4:].sum(axis=0).astype(int).tolist())

    @property
    def counted(self) -> Counted:
        """What the share is made of."""
        return Counted(*self.groups[:, :4].sum(axis=0).astype(int).tolist())


@dataclass(frozen=True, slots=True)
class Estimate:
    """A corrected share with its interval, or the reason why there is none (``because``).

    ``details`` say how the interval was made. ``powered`` is the prediction-powered share as
    plain data if that method was chosen. It exists even if the judge is no better than chance,
    and then rests on people's labels alone.
    """

    value: float | None
    because: str | None = None
    ci: tuple[float, float] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    powered: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        ends = None if self.ci is None else list(self.ci)
        return {"value": self.value, "because": self.because, "ci": ends, **self.details}


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


def cells_of(rows: pl.DataFrame) -> Cells:
    """Return the counts of pairs, summed by ``unit``."""
    names = [*COLUMNS, *_OWN]
    table = rows.select(pl.col(names).cast(pl.Int64), pl.col("unit").cast(pl.String))
    table = table.group_by("unit").agg(pl.col(names).sum()).sort("unit")
    counts = table.select(names).to_numpy().astype(np.float64)
    own_counts = np.hstack([counts[:, :4], counts[:, len(COLUMNS) :]])
    return Cells(tuple(table["unit"].to_list()), counts[:, : len(COLUMNS)], own_counts)


def estimate(cells: Cells, method: Method, conventions: Conventions, place: str) -> Estimate:
    """Return the corrected share; ``place`` names the pairs in messages."""
    if method == "ppi":
        return _powered(cells, conventions, place)
    share = _rogan_gladen(cells, place)
    if share.value is None:
        return share
    if method == "beta":
        interval = beta_interval(
            cells.counted, cells.judge, confidence=conventions.ci, seed=conventions.seed
        )
    else:
        interval = cluster_interval(cells.groups, _resampling(conventions))
    if interval is None:
        return share
    details = {name: getattr(interval, name) for name in ("mean", "draws", "skipped")}
    details["drawn"] = list(interval.drawn)
    return replace(share, ci=(interval.low, interval.high), details=details)


def _resampling(conventions: Conventions) -> Resampling:
    return Resampling(confidence=conventions.ci, resamples=conventions.boot, seed=conventions.seed)


def _rogan_gladen(cells: Cells, place: str) -> Estimate:
    value = corrected(cells.counted, cells.judge)
    return Estimate(value, _because(cells, place) if value is None else None)


def _powered(cells: Cells, conventions: Conventions, place: str) -> Estimate:
    if not cells.counted.judged:
        return Estimate(None, _because(cells, place))
    sampled = cells.own[cells.own[:, 0] + cells.own[:, 2] > 0]
    share = prediction_powered(sampled, confidence=conventions.ci)
    if share is None:
        reason = f"people judged none of the pairs {place} that the judge judges"
        return Estimate(None, f"{reason}; a uniform sample of these is needed")
    ci = None if share.low is None or share.high is None else (share.low, share.high)
    powered = {
        "value": share.value,
        "ci": ci and list(ci),
        "weight": share.weight,
        "labels": share.labels,
        "units": share.groups,
    }
    if cells.judge.informed is not None and cells.judge.informed <= 0:
        return Estimate(None, _because(cells, place), powered=powered)
    return Estimate(share.value, ci=ci, powered=powered)


def _because(cells: Cells, place: str) -> str:
    """Return why there is no corrected number."""
    judge = cells.judge
    if not cells.counted.judged:
        return f"the judge judged nothing {place}"
    if judge.sensitivity is None:
        return "people found none of the judge's pairs relevant: its sensitivity is unknown"
    if judge.specificity is None:
        return "people found all of the judge's pairs relevant: its specificity is unknown"
    rates = f"sensitivity {judge.sensitivity:.4f} and specificity {judge.specificity:.4f}"
    return f"the judge is no better than chance: {rates} must add up to more than 1"


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
        return cls(judged, one_grade(people, truth)[0], method)

    def precision(self, scores: Scores, measure: str | Measure) -> dict[str, Any]:
        """Return a system's P@k without the judge's errors, as plain data."""
        precision = _checked(scores, measure)
        rows = self._rows(scores, precision, ~np.isnan(scores.values(str(precision))))
        cells = cells_of(rows)
        share = estimate(cells, self.method, scores.conventions, f"in the top {precision.k}")
        counted, judge = cells.counted, cells.judge
        empty = int(rows["empty"].sum())
        return {
            **_document(share, self.method),
            "prediction_powered": share.powered,
            "judged": counted.judged,
            "judged_relevant": counted.judged_relevant,
            "known": counted.known - empty,
            "known_relevant": counted.known_relevant,
            "empty": empty,
            "unjudged": int(rows["unjudged"].sum()),
            "uncorrected": counted.raw,
            "labels": {
                "all": judge.relevant + judge.others,
                "of_the_share": int(cells.own[:, 4:].sum()),
            },
            "sensitivity": judge.sensitivity,
            "specificity": judge.specificity,
            "queries": rows.filter(pl.col("judged") | pl.col("known"))["query_id"].n_unique(),
        }

    def difference(self, first: Scores, second: Scores, measure: str | Measure) -> dict[str, Any]:
        """Return the second system's corrected P@k less the first's, over their common queries.

        Both use the same judge and the same resamples of queries, so what they owe to these
        cancels. ``beta`` does not compare shares, so ``cluster`` is used instead.
        """
        if first.fingerprint != second.fingerprint:
            raise UsageError(
                "the two systems were scored on different gold or queries; score both on the same"
            )
        precision = _checked(first, measure)
        name = str(precision)
        common = ~np.isnan(first.values(name)) & ~np.isnan(second.values(name))
        rows = [self._rows(scores, precision, common) for scores in (first, second)]
        # A unit of one side counts nothing on the other.
        units = pl.concat([part.select("query_id", "unit") for part in rows])
        units = units.unique("unit", maintain_order=True)
        flags = pl.col(pl.Boolean).fill_null(value=False)
        before, after = (
            cells_of(pl.concat([part, units], how="diagonal").with_columns(flags)) for part in rows
        )
        conventions, place = first.conventions, f"in the top {precision.k}"
        method: Method = "ppi" if self.method == "ppi" else "cluster"
        ends: list[float] = []
        for cells in (before, after):
            powered = method == "ppi"
            share = _powered(cells, conventions, place) if powered else _rogan_gladen(cells, place)
            if share.value is None:
                return _document(share, method)
            ends.append(share.value)
        ci = None
        if method == "ppi":
            delta = prediction_powered_difference(before.own, after.own, confidence=conventions.ci)
            ci = delta and delta[1]
        elif interval := cluster_difference(before.groups, after.groups, _resampling(conventions)):
            ci = (interval.low, interval.high)
        return _document(Estimate(ends[1] - ends[0], ci=ci), method)

    def _rows(self, scores: Scores, measure: Measure, counted: Mask) -> pl.DataFrame:
        """Return what every pair and every empty rank counts for, with its unit."""
        k = int(measure.k) if isinstance(measure.k, int) else 0
        rel = float(measure.arguments.get("rel", scores.conventions.rel))
        ids = scores.table["query_id"]
        groups = [None] * len(ids) if scores.groups is None else list(scores.groups)
        queries = pl.DataFrame(
            {"row": np.arange(len(ids)), "query_id": ids, "unit": units_of(ids, groups)}
        )
        counted_queries = queries.filter(pl.Series(counted))
        if scores.lists is None:
            raise UsageError(f"the scores of {scores.system} come without lists; score it again")
        # A repeat keeps its rank and is not relevant, like an empty rank.
        top = without_repeats(scores.lists).filter(pl.col("rank") <= k)
        hits = top.select(
            pl.col("row").cast(pl.Int64), "item_id", pl.col("rank", "grade").cast(pl.Float64)
        ).join(counted_queries, on="row", how="inner")
        known = hits.drop_nulls("grade").filter(pl.col("grade") >= 0).select(*PAIR, "grade")
        pairs = side_by_side(self.judged, self.human, top=hits, known=Gold.from_frame(known)).frame
        rows = pairs.select("query_id", **kinds_of(rel))
        # A rank that a short list leaves empty is known, and not relevant.
        listed = pl.concat([hits.select("query_id"), counted_queries.select("query_id")])
        lacking = listed.group_by("query_id", maintain_order=True).agg(lacking=k + 1 - pl.len())
        empty = lacking.select(
            pl.col("query_id").repeat_by("lacking").explode(), known=True, empty=True
        )
        rows = pl.concat([rows, empty.drop_nulls("query_id")], how="diagonal")
        rows = rows.join(queries.drop("row"), on="query_id", how="left", maintain_order="left")
        return rows.with_columns(
            pl.col(pl.Boolean).fill_null(value=False),
            pl.col("unit").fill_null(pl.format("query {}", "query_id")),
        )


def _document(share: Estimate, method: str) -> dict[str, Any]:
    result = share.to_dict()
    document = {name: result[name] for name in ("value", "ci", "because")}
    return {**document, "method": method, "only": ONLY_SHARES}


def units_of(query_ids: Iterable[str], groups: Iterable[Any]) -> list[str]:
    """Return the unit of each query: its conversation, or itself where it has none."""
    return [
        f"query {query_id}" if group is None else f"group {group}"
        for query_id, group in zip(query_ids, groups, strict=True)
    ]


def _checked(scores: Scores, measure: str | Measure) -> Measure:
    precision = parse_measure(measure, conventions=scores.conventions)
    if not correctable(precision):
        raise UsageError(f"{precision} cannot be corrected for a judge's errors; only P@k can")
    if scores.conventions.level != "item":
        level = scores.conventions.level
        raise UsageError(f"level={level} cannot be corrected for a judge's errors; only items can")
    return precision
