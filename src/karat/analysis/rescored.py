"""A run scored by other measures of ranks, from where its judged hits stood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.analysis.staged import Staged
from karat.errors import UsageError
from karat.measures.depth import beyond_cut, last_ranks
from karat.measures.names import Measure
from karat.measures.numbers import NOTHING
from karat.measures.ranked import ideal_of
from karat.measures.scores import Scores
from karat.measures.valuing import values_of


def rescored(staged: Staged, measures: Sequence[Measure]) -> Scores:
    """The final lists scored by measures that look at nothing but judged hits."""
    final, gold = staged.final, staged.gold
    if final.trace is None:
        raise UsageError(f"the scores of {final.system} come without lists; score the run again")
    for measure in measures:
        if measure.definition.needs or measure.definition.evidence is not None:
            raise UsageError(f"{measure} looks at more than judged hits; score the run by it")
    ranked = final.trace.ranked
    ideal = ideal_of(ranked.target, gold.conventions.depth)
    left_out = ~_answered(staged) & (gold.conventions.missing == "skip")
    columns = {
        str(one): np.where(left_out, np.nan, values_of(one, ranked, gold)) for one in measures
    }
    ranks = {one: own for one in measures if (own := last_ranks(one, ranked)) is not None}
    cut = final.cut
    beyond = () if cut is None else tuple(map(str, beyond_cut(measures, cut.depth, ranks)))
    columns |= {name: np.full(ranked.n, np.nan) for name in beyond}
    series = [
        pl.Series(name, values, dtype=pl.Float64, nan_to_null=True)
        for name, values in columns.items()
    ]
    return replace(
        final,
        measures=tuple(measures),
        table=final.table.select("query_id").with_columns(series),
        ceilings={
            str(one): (values_of(one, ideal, gold), NOTHING)
            for one in measures
            if one.definition.ceiling == "ideal"
        },
        tied={},
        evidence={},
        lacks={} if cut is None else dict.fromkeys(beyond, cut.because),
        cut=None if cut is None else replace(cut, beyond=beyond),
    )


def _answered(staged: Staged) -> NDArray[np.bool_]:
    """Which queries the run answers, be it with nothing."""
    final = staged.final
    returned = np.zeros(0) if final.trace is None else final.trace.ranked.returned
    answered = (final.status == "scored").to_numpy() | (returned > 0)
    if staged.calls is not None:
        calls = staged.calls
        if "error" in calls.columns:
            calls = calls.filter(pl.col("error").is_null())
        codes = staged.gold.code_of(calls["query_id"])
        answered[codes[codes >= 0]] = True
    return answered
