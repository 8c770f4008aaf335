"""The top of every list, as analyses of what a run returns look at it, and shares with intervals.

Nothing is scored here again: a measure's value is the one that the run was scored by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.errors import MissingInputError, UsageError
from karat.measures.aggregates import Values
from karat.measures.aggregates import mean as exact_mean
from karat.measures.names import parse_measure
from karat.measures.prepare import Prepared, doc_of_hits
from karat.measures.scores import Scores, plan_of
from karat.pages.formatting import label
from karat.stats.means import mean_intervals

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

# So many items, documents or queries a document names; what is left out is counted.
MOST = 20
_LONGEST = 200
# A page shows fewer rows than a document holds.
SHOWN_ROWS = 10
_SHOWN_NAMES = 3


def top_lists(scores: Scores, gold: Prepared, k: int) -> pl.DataFrame:
    """The first k hits of every query, by row and rank: item_id, doc_id, grade and what was logged.

    ``row`` is the query's place in the score table. ``grade`` is null where nobody judged the
    item; a further chunk of a document that is judged has that document's grade.
    """
    check_cut(k)
    if scores.lists is None or scores.trace is None:
        raise UsageError(f"this needs the top {k} of every list; score the run with keep={k}")
    ranked = scores.trace.ranked
    lists = scores.lists.filter(pl.col("rank") <= k).sort("row", "rank")
    kept = np.bincount(lists["row"].to_numpy(), minlength=ranked.n)
    if (kept < np.minimum(ranked.returned, k)).any():
        raise UsageError(f"fewer than the top {k} were kept; score the run with keep={k} or more")
    hits = ranked.hits
    judged = pl.DataFrame(
        {
            "row": hits.query,
            "rank": hits.rank,
            "grade": hits.grade if hits.best is None else hits.best,
        }
    )
    lists = lists.drop("grade").join(judged, on=["row", "rank"], how="left", maintain_order="left")
    return lists.with_columns(doc_of_hits(lists, gold).alias("doc_id"))


def check_cut(k: int) -> None:
    """Refuse a cut-off that is none."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise UsageError(f"k is {k!r}; a whole number above 0 is expected")


def measured(scores: Scores, name: str) -> dict[str, Any]:
    """Return a measure over all queries as it stands in a document, equal to the report's.

    What the measure would have needed and did not get is raised.
    """
    measure = parse_measure(name, conventions=scores.conventions)
    if measure not in scores.measures:
        raise UsageError(f"this needs {measure}; score the run by it")
    if (lacks := scores.lacks.get(str(measure))) is not None:
        raise MissingInputError(lacks)
    found = replace(scores, measures=(measure,)).summaries[str(measure)]
    return {
        "measure": str(measure),
        "mean": found.mean,
        "ci": None if found.ci is None else list(found.ci),
        "n": found.n,
        "ceiling": found.ceiling,
    }


def share_of(values: Values, scores: Scores, rows: Ints) -> dict[str, Any]:
    """Return the mean of values between 0 and 1, one for each of these rows, and its interval."""
    mean = exact_mean(values)
    ends: Sequence[float] = [math.nan, math.nan]
    if len(values) > 1 and scores.conventions.interval != "none":
        groups = None if scores.groups is None else scores.groups[rows]
        plan = plan_of(scores.conventions)
        ends = mean_intervals(values[:, None], plan, ranges=[(0.0, 1.0)], groups=groups)[0].tolist()
    return {
        "mean": mean,
        "ci": None if math.isnan(ends[0]) else list(ends),
        "n": len(values),
    }


def texts_of(items: pl.Series, gold: Prepared) -> pl.Series:
    """Return the text of each item; null where the corpus lacks the item or its text is blank."""
    if gold.corpus is None:
        raise MissingInputError("this needs the items' texts: give --corpus")
    known = gold.corpus.select("item_id", "text")
    frame = pl.DataFrame({"item_id": items})
    texts = frame.join(known, on="item_id", how="left", maintain_order="left")["text"]
    blank = texts.str.strip_chars() == ""
    return texts.set(blank.fill_null(value=False), None)


def shown(text: str | None) -> str | None:
    """Return the beginning of a text, on one line."""
    if text is None:
        return None
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1].rstrip() + "…"


def some_names(ids: Sequence[str]) -> str:
    """Return the first few ids as a page shows them, and how many more there are."""
    first = ", ".join(label(name) for name in ids[:_SHOWN_NAMES])
    more = len(ids) - _SHOWN_NAMES
    return f"{first} and {more:,} more" if more > 0 else first
