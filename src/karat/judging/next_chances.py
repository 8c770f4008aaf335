"""How likely an unjudged item is to be relevant: by its rank, and by how many runs return it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from karat.measures.bounds.unjudged import ABSENT
from karat.measures.numbers import Values
from karat.measures.ranked import Ints, Mask
from karat.measures.scores import Scores

# The last rank of each band but the last, and how likely an item of each band is to be relevant
# as long as nobody has judged any.
BANDS = (1, 3, 5, 10, 20, 50)
PRIOR = (0.4, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02)
# So many judgments weigh as much as what was thought before.
STRENGTH = 4.0


@dataclass(frozen=True, eq=False)
class Judged:
    """The judged items of one or two runs: their ranks (ABSENT where a list lacks one)."""

    first: Ints
    second: Ints
    relevant: Mask


def judged_in(scores: Sequence[Scores], rel: float) -> Judged:
    """What is judged in the lists of one or two runs, each pair once."""
    sides = []
    for name, one in zip(("first", "second"), scores, strict=False):
        lists = one.lists if one.lists is not None else pl.DataFrame(schema=_LISTS)
        kept = lists.filter(pl.col("grade") >= 0)
        sides.append(kept.select("row", "item_id", "grade", pl.col("rank").alias(name)))
    pair = ["row", "item_id", "grade"]
    both = sides[0]
    if len(sides) > 1:
        both = both.join(sides[1], on=pair, how="full", coalesce=True)
    else:
        both = both.with_columns(second=pl.lit(None, pl.Int64))
    both = both.sort("row", "item_id")
    first, second = (
        both[name].cast(pl.Int64).fill_null(ABSENT).to_numpy() for name in ("first", "second")
    )
    return Judged(first, second, both["grade"].to_numpy() >= rel)


_LISTS = {"row": pl.Int64, "item_id": pl.String, "grade": pl.Float64, "rank": pl.Int64}


def chances(first: Ints, second: Ints, judged: Judged) -> Values:
    """The chance of each item to be relevant, from what was judged at such ranks.

    Items are taken together by the band of their better rank and by whether both runs return
    them. A group's chance is its share of relevant items among the judged, with a prior that
    falls with the rank and weighs as much as four judgments. Gold that holds nothing but
    relevant items tells nothing of chances, so the prior stands alone.

    >>> nothing = Judged(*(np.empty(0, dtype=np.int64),) * 2, np.empty(0, dtype=bool))
    >>> chances(np.array([1, 2, 60]), np.array([1, ABSENT, ABSENT]), nothing).tolist()
    [0.4, 0.3, 0.02]
    """
    prior = np.repeat(PRIOR, 2)
    if judged.relevant.all():
        return prior[_groups(first, second)]
    groups = _groups(judged.first, judged.second)
    seen = np.bincount(groups, minlength=len(prior))
    relevant = np.bincount(groups[judged.relevant], minlength=len(prior))
    share: Values = (relevant + STRENGTH * prior) / (seen + STRENGTH)
    return share[_groups(first, second)]


def _groups(first: Ints, second: Ints) -> Ints:
    """The number of each item's group: two a band, for one run and for both."""
    band = np.searchsorted(BANDS, np.minimum(first, second))
    return 2 * band + (np.maximum(first, second) < ABSENT)
