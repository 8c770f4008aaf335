"""What a judge and what people say of the same pairs, and which pairs a share is made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from karat.errors import InputError
from karat.formats.labels import no_grade
from karat.judging.labels import Labels
from karat.judging.tops import PAIR, Tops
from karat.tables import Gold


@dataclass(frozen=True, eq=False)
class Top:
    """The top k of a run, and the gold that counts there before the judge does."""

    name: str
    tops: Tops
    k: int
    gold: Gold | None = None

    def document(self) -> dict[str, int]:
        """What became of its queries, and how many places were left empty."""
        return {
            **self.tops.gaps(),
            "empty": self.k * self.tops.answered - self.tops.hits.height,
        }


@dataclass(frozen=True, eq=False)
class SideBySide:
    """One row a pair: ``judge`` and ``human`` grades, ``shown`` and ``known``; null is unknown.

    ``shown`` marks what the share is made of: everything judged, or the top of a run. ``known``
    is the grade that the gold of that run gives. ``failed`` marks what the judge could not judge.
    """

    frame: pl.DataFrame
    left_out: int = 0

    def of(self, query_ids: Collection[str]) -> SideBySide:
        """The pairs of some queries."""
        wanted = pl.Series("query_id", sorted(query_ids), dtype=pl.String)
        return SideBySide(self.frame.filter(pl.col("query_id").is_in(wanted.implode())))

    def counts(self) -> dict[str, int]:
        """How many pairs there are of each kind."""
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
    top: Top | None = None,
    only: Collection[str] | None = None,
) -> SideBySide:
    """Lay a judge's labels beside people's; ``only`` leaves out the pairs of other queries."""
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
# So many names are enough to tell what is wrong.
_SHOWN = 5


def _with_top(frame: pl.DataFrame, top: Top) -> pl.DataFrame:
    frame = _marked(frame, top.tops.hits.select(PAIR), "shown")
    if top.gold is None:
        return frame.with_columns(known=_NOTHING)
    return frame.join(_grades(top.gold, "known"), on=PAIR, how="left", maintain_order="left")


def _marked(frame: pl.DataFrame, pairs: pl.DataFrame, name: str) -> pl.DataFrame:
    """The frame with some pairs marked, which come in where they were not there."""
    marks = pairs.with_columns(pl.lit(value=True).alias(name))
    joined = frame.join(marks, on=PAIR, how="full", coalesce=True)
    flags = [one for one in ("failed", "shown") if one in joined.columns]
    return joined.with_columns(pl.col(flags).fill_null(value=False))


def _grades(gold: Gold, name: str) -> pl.DataFrame:
    if "start" in gold.frame.columns:
        raise InputError(
            "holds character spans, which judge no item; give judgments of items",
            where=gold.source.name,
        )
    # A grade below 0 is of a pair that was pooled and not judged.
    judged = gold.frame.filter(pl.col("grade") >= 0)
    return judged.select(*PAIR, pl.col("grade").alias(name))


def _one_each(judged: Labels) -> pl.DataFrame:
    """One grade a pair; a judge is calibrated by itself, not together with another."""
    raters = judged.raters
    if len(raters) > 1:
        more = f" and {len(raters) - _SHOWN:,} more" if len(raters) > _SHOWN else ""
        raise InputError(
            f"holds labels of several raters: {', '.join(map(repr, raters[:_SHOWN]))}{more};"
            " calibrate one judge at a time, from a file of its own or chosen by karat calibrate"
            " --rater NAME",
            where=judged.source.name,
        )
    each = judged.frame.select(*PAIR, "grade").unique(maintain_order=True)
    torn = each.filter(each.select(PAIR).is_duplicated())
    if torn.height:
        query, item, grade = torn.row(0)
        raise InputError(
            f"query {query!r}, item {item!r} is judged {grade:g} and otherwise; keep one grade",
            where=judged.source.name,
        )
    return each


def _check_common(judge: pl.DataFrame, people: pl.DataFrame, judged: Labels, human: Gold) -> None:
    if not judge.height:
        failed, below = judged.failed.height, judged.not_judged
        raise no_grade(judged.source.name, failed=failed, not_judged=below)
    if judge.join(people, on=PAIR, how="semi").height:
        return
    ours, theirs = (_example(one) for one in (judge, people))
    raise InputError(
        f"no pair in common with {human.source.name}: the judge has {ours}, people have {theirs};"
        " people must judge some of the same pairs, as drawn by karat pool --sample",
        where=judged.source.name,
    )


def _example(frame: pl.DataFrame) -> str:
    if not frame.height:
        return "none"
    query, item = frame.select(PAIR).row(0)
    return f"query {query!r} with item {item!r}"
