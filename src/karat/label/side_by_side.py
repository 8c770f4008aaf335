"""A judge's and people's grades of the same pairs, and the pairs that a share is made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from karat.data.tables import Gold
from karat.errors import InputError
from karat.formats.labels import no_grades_error
from karat.label.inputs import PAIR, judged_pairs
from karat.label.labels import Labels
from karat.label.pool import TopHits


@dataclass(frozen=True, eq=False)
class RunTop:
    """The top k of a run, and the gold that counts there before the judge does."""

    name: str
    hits: TopHits
    k: int
    gold: Gold | None = None

    def to_dict(self) -> dict[str, int]:
        """Return what happened to its queries, and how many ranks were left empty."""
        empty = self.k * self.hits.answered - self.hits.hits.height
        return {**self.hits.gaps(), "empty": empty}


@dataclass(frozen=True, eq=False)
class SideBySide:
    """One row per pair: ``judge`` and ``human`` grades, ``shown`` and ``known``; null is unknown.

    ``shown`` marks what the share is made of: everything judged, or the top of a run. ``known``
    is the grade that the gold of that run gives. ``failed`` marks what the judge could not judge.
    """

    frame: pl.DataFrame
    left_out: int = 0

    def of(self, query_ids: Collection[str]) -> SideBySide:
        """Return the pairs of some queries."""
        ids = pl.Series("query_id", sorted(query_ids), dtype=pl.String)
        return SideBySide(self.frame.filter(pl.col("query_id").is_in(ids.implode())))

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
    judged: Labels,
    human: Gold,
    *,
    top: RunTop | None = None,
    only: Collection[str] | None = None,
) -> SideBySide:
    """Return a judge's labels beside people's; ``only`` leaves out the pairs of other queries."""
    judge = _one_each(judged).select(*PAIR, judge=pl.col("grade").cast(pl.Float64))
    people = _grades(human, "human")
    _check_common(judge, people, judged, human)
    failed = judged.failed.select(PAIR).unique().join(judge, on=PAIR, how="anti")
    frame = judge.join(people, on=PAIR, how="full", coalesce=True)
    frame = _marked(frame, failed, "failed")
    if top is None:
        frame = frame.with_columns(shown=pl.col("judge").is_not_null(), known=_NOTHING)
    else:
        frame = _with_top(frame, top)
    labelled = frame.filter(pl.any_horizontal(pl.col("judge", "human").is_not_null()))
    if only is None:
        return SideBySide(frame.sort(PAIR))
    kept = SideBySide(frame.sort(PAIR)).of(only)
    inside = SideBySide(labelled).of(only).frame.height
    return SideBySide(kept.frame, left_out=labelled.height - inside)


_NOTHING = pl.lit(None, pl.Float64)
# A message names this many raters.
_SHOWN = 5


def _with_top(frame: pl.DataFrame, top: RunTop) -> pl.DataFrame:
    frame = _marked(frame, top.hits.hits.select(PAIR), "shown")
    if top.gold is None:
        return frame.with_columns(known=_NOTHING)
    return frame.join(_grades(top.gold, "known"), on=PAIR, how="left", maintain_order="left")


def _marked(frame: pl.DataFrame, pairs: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the frame with some pairs marked; pairs that it lacks are added."""
    marks = pairs.with_columns(pl.lit(value=True).alias(name))
    joined = frame.join(marks, on=PAIR, how="full", coalesce=True)
    flags = [flag for flag in ("failed", "shown") if flag in joined.columns]
    return joined.with_columns(pl.col(flags).fill_null(value=False))


def _grades(gold: Gold, name: str) -> pl.DataFrame:
    return judged_pairs(gold).select(*PAIR, pl.col("grade").alias(name))


def _one_each(judged: Labels) -> pl.DataFrame:
    """Return one grade per pair; a judge is calibrated by itself, not together with another."""
    raters = judged.raters
    if len(raters) > 1:
        more = f" and {len(raters) - _SHOWN:,} more" if len(raters) > _SHOWN else ""
        raise InputError(
            f"holds labels of several raters: {', '.join(map(repr, raters[:_SHOWN]))}{more};"
            " calibrate one judge at a time, from a file of its own or chosen by karat calibrate"
            " --rater NAME",
            where=judged.source.name,
        )
    grades = judged.frame.select(*PAIR, "grade").unique(maintain_order=True)
    contradictory = grades.filter(grades.select(PAIR).is_duplicated())
    if contradictory.height:
        query, item, grade = contradictory.row(0)
        raise InputError(
            f"query {query!r}, item {item!r} has the grade {grade:g} and another one; keep one",
            where=judged.source.name,
        )
    return grades


def _check_common(judge: pl.DataFrame, people: pl.DataFrame, judged: Labels, human: Gold) -> None:
    if not judge.height:
        failed, below = judged.failed.height, judged.not_judged
        raise no_grades_error(judged.source.name, failed=failed, not_judged=below)
    if judge.join(people, on=PAIR, how="semi").height:
        return
    ours, theirs = (_example(frame) for frame in (judge, people))
    raise InputError(
        f"no pair in common with {human.source.name}: the judge has {ours}, people have {theirs};"
        " people must judge some of the same pairs; karat pool --sample draws them",
        where=judged.source.name,
    )


def _example(frame: pl.DataFrame) -> str:
    if not frame.height:
        return "none"
    query, item = frame.select(PAIR).row(0)
    return f"query {query!r} with item {item!r}"
