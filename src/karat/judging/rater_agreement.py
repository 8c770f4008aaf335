"""How far people agree with each other on the pairs that several judged, and with the judge."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from karat.judging.raters import People
from karat.judging.tops import PAIR
from karat.stats.agreement import Weights, cross_table, kappa
from karat.stats.alpha import LEVELS, krippendorff_alpha

WEIGHTS: tuple[Weights, ...] = ("none", "linear", "quadratic")
# Every two of more raters than this make no table that anyone reads.
MOST_RATERS = 12


def raters_agreement(people: People, judge: pl.DataFrame) -> dict[str, Any]:
    """How far people agree with each other, and each of them with the judge, as plain data.

    ``judge`` has one row a pair: ``query_id``, ``item_id`` and ``judge``, its grade.
    """
    votes = people.votes
    own = votes.select(*PAIR, "rater", "grade")
    word = judge.drop_nulls("judge").select(
        *PAIR, rater=pl.lit(None, pl.String), grade=pl.col("judge").cast(pl.Float64)
    )
    shared = word.join(own, on=PAIR, how="semi", maintain_order="left")
    by_rater = {name: own.filter(pl.col("rater") == name) for name in people.raters}
    few = len(by_rater) <= MOST_RATERS
    unsure = people.frame.filter(~pl.col("decided") & pl.col("grade").is_null())
    return {
        "raters": [
            {
                "name": name,
                "judgments": part.height,
                "cannot_tell": unsure.filter(pl.col("rater") == name).height,
            }
            for name, part in by_rater.items()
        ],
        "not_judged": people.not_judged,
        **_alphas(own),
        "kappas": [
            {"raters": [one, other], **_kappas(by_rater[one], by_rater[other])}
            for one, other in combinations(by_rater, 2)
            if few
        ],
        "with_judge": {
            **_alphas(pl.concat([own, shared])),
            "kappas": [
                {"rater": name, **_kappas(part, word)} for name, part in by_rater.items() if few
            ],
        },
    }


def _alphas(said: pl.DataFrame) -> dict[str, Any]:
    """Krippendorff's alpha at each level, over the pairs that several judged."""
    several = said.filter(pl.len().over(PAIR) > 1)
    pairs = several.select(pl.struct(PAIR).rank("dense").cast(pl.Int64)).to_series().to_numpy()
    grades = several["grade"].to_numpy()
    return {
        "pairs": len(np.unique(pairs)),
        "alpha": {level: krippendorff_alpha(pairs, grades, level=level) for level in LEVELS},
    }


def _kappas(one: pl.DataFrame, other: pl.DataFrame) -> dict[str, Any]:
    """Cohen's kappa of two raters on what both judged."""
    both = one.join(other, on=PAIR, how="inner", suffix="_of_other").sort(PAIR)
    first, second = both["grade"].to_numpy(), both["grade_of_other"].to_numpy()
    grades = np.unique(np.concatenate([first, second])).tolist()
    table = cross_table(first, second, grades)
    told: dict[str, Any] = {"pairs": both.height}
    for weights in WEIGHTS:
        told[weights] = kappa(table, weights=weights, grades=grades)
    return told
