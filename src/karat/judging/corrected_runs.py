"""P@k of evaluated systems without the errors of a judge, and of two of them the difference.

For places that the gold judges it is the gold's; a place that a short list leaves empty is not
relevant; what the judge judges is corrected by its rates; what nobody judges is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.errors import UsageError
from karat.judging.corrected import (
    ONLY_SHARES,
    Cells,
    Estimate,
    cells_of,
    estimate,
    kinds_of,
    rogan_gladen_of,
)
from karat.judging.labels import Labels
from karat.judging.raters import People, Truth, one_grade
from karat.judging.side_by_side import Top, side_by_side
from karat.judging.tops import PAIR, Tops
from karat.measures.conventions import Conventions
from karat.measures.listing import without_repeats
from karat.measures.names import Measure, parse_measure
from karat.measures.ranked import is_budget
from karat.measures.scores import Scores
from karat.stats.bootstrap import Resampling
from karat.stats.calibration import Method, cluster_difference
from karat.stats.exact import Values
from karat.stats.prediction_powered import prediction_powered_difference
from karat.tables import Gold


def correctable(measure: Measure) -> bool:
    """Whether a measure is a share that can be corrected: P with a whole cut-off.

    >>> [correctable(parse_measure(one)) for one in ("P@5", "nDCG@5", "R@5")]
    [True, False, False]
    """
    return measure.name == "P" and measure.k is not None and not is_budget(measure.k)


@dataclass(frozen=True, eq=False)
class Corrector:
    """A judge's labels and people's, with which P@k of any number of systems is corrected.

    ``human`` has one grade a pair. Scores are those on the gold alone, with the top k of every
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
        """From labels of one person or several, who make one grade a pair by ``truth``."""
        people = human if isinstance(human, People) else People.of(human)
        return cls(judged, one_grade(people, truth).gold, method)

    def precision(self, scores: Scores, measure: str | Measure) -> dict[str, Any]:
        """One system's P@k as it would be if the judge never erred, as plain data."""
        wanted = _checked(scores, measure)
        counted = _counted(scores, ~np.isnan(scores.values(str(wanted))))
        rows = self._rows(scores, wanted, counted)
        cells = cells_of(rows, rows["unit"].to_list())
        where = f"in the top {wanted.k}"
        found = estimate(cells, self.method, scores.conventions, where)
        return {**self._document(found), **_made_of(rows, cells)}

    def difference(self, first: Scores, second: Scores, measure: str | Measure) -> dict[str, Any]:
        """The second system's corrected P@k less the first's, over the queries that both have.

        Both are corrected by the same judge over the same resamples of queries, so what they
        owe to the same queries and to the judge's rates cancels. ``beta`` knows no pairs of
        shares, and is answered by ``cluster``.
        """
        if first.fingerprint != second.fingerprint:
            raise UsageError("two systems are compared on the same gold and queries; these differ")
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
        apart = _apart(cells[0], cells[1], self.method, conventions)
        one, other = (end.value for end in ends)
        value = None if one is None or other is None else other - one
        return self._document(Estimate(value, None, apart), difference=True)

    def _rows(self, scores: Scores, measure: Measure, counted: pl.DataFrame) -> pl.DataFrame:
        """The kinds of every pair and of every empty place, with the unit of each."""
        k, rel = _cut(measure), float(measure.arguments.get("rel", scores.conventions.rel))
        hits = _hits(scores, k, counted)
        gold = hits.drop_nulls("grade").filter(pl.col("grade") >= 0)
        top = Top(
            scores.system,
            Tops(scores.source, hits.select(*PAIR, "rank"), counted.height, 0, 0, 0, 0, 0),
            k,
            Gold.from_frame(gold.select(*PAIR, "grade")),
        )
        pairs = side_by_side(self.judged, self.human, top=top).frame
        rows = pairs.select("query_id", **kinds_of(rel)).with_columns(empty=pl.lit(value=False))
        rows = pl.concat([rows, _empty_places(rows, hits, counted, k)], how="diagonal")
        rows = rows.join(_units(scores), on="query_id", how="left", maintain_order="left")
        return rows.with_columns(pl.col("unit").fill_null(pl.format("query {}", "query_id")))

    def _document(self, found: Estimate, *, difference: bool = False) -> dict[str, Any]:
        powered = self.method == "ppi"
        joint = "ppi" if powered else "cluster"
        told = found.document()
        return {
            **{name: told[name] for name in ("value", "ci", "because")},
            "method": joint if difference else self.method,
            "only": ONLY_SHARES,
            **({} if difference else {"prediction_powered": found.powered_document()}),
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
    """One system's P@k without the errors of a judge; see ``Corrector.precision``."""
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
    """What the second system's corrected P@k is above the first's; see ``Corrector``."""
    corrector = Corrector.of(judged, human, method=method, truth=truth)
    return corrector.difference(first, second, measure)


def _checked(scores: Scores, measure: str | Measure) -> Measure:
    wanted = parse_measure(measure, conventions=scores.conventions)
    if not correctable(wanted):
        raise UsageError(
            f"{wanted} cannot be corrected: a judge's errors are taken out of P@k only"
        )
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
    """The queries that the mean is of, and their rows."""
    rows = pl.DataFrame(
        {"row": np.arange(scores.table.height), "query_id": scores.table["query_id"]}
    )
    return rows.filter(pl.Series(mask))


def _hits(scores: Scores, k: int, counted: pl.DataFrame) -> pl.DataFrame:
    """The top k of the counted queries, each with the gold's grade."""
    lists = scores.lists
    if lists is None:
        raise UsageError(f"the scores of {scores.system} come without lists; score it again")
    # A repeat holds its place and is not relevant, like an empty one.
    top = without_repeats(lists).filter(pl.col("rank") <= k)
    top = top.with_columns(pl.col("row").cast(pl.Int64))
    return top.join(counted, on="row", how="inner").select(
        *PAIR, pl.col("rank").cast(pl.Int64), pl.col("grade").cast(pl.Float64)
    )


def _empty_places(
    rows: pl.DataFrame, hits: pl.DataFrame, counted: pl.DataFrame, k: int
) -> pl.DataFrame:
    """A row for every place that a short list leaves empty: known, and not relevant."""
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
    """What is drawn together with each query."""
    ids = scores.table["query_id"]
    if scores.groups is None:
        return pl.DataFrame({"query_id": ids, "unit": ids}).with_columns(
            unit=pl.format("query {}", "unit")
        )
    return pl.DataFrame({"query_id": ids, "unit": [f"group {one}" for one in scores.groups]})


def _aligned(first: pl.DataFrame, second: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both with a row of every unit, which counts nothing where one of them has none."""
    every = pl.concat([first.select("query_id", "unit"), second.select("query_id", "unit")])
    nothing = every.unique("unit", maintain_order=True)
    one, other = (
        pl.concat([rows, nothing], how="diagonal").with_columns(
            pl.col(pl.Boolean).fill_null(value=False)
        )
        for rows in (first, second)
    )
    return one, other


def _apart(
    first: Cells, second: Cells, method: Method, conventions: Conventions
) -> tuple[float, float] | None:
    if method == "ppi":
        found = prediction_powered_difference(first.own, second.own, confidence=conventions.ci)
        return None if found is None else found[1]
    plan = Resampling(confidence=conventions.ci, resamples=conventions.boot, seed=conventions.seed)
    ends = cluster_difference(first.groups, second.groups, plan)
    return None if ends is None else (ends.low, ends.high)


def _made_of(rows: pl.DataFrame, cells: Cells) -> dict[str, Any]:
    """What the share is made of, in numbers."""
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
