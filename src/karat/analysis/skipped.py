"""Why nothing was measured: no gold, which is no failure of a story, or none of a high grade."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from karat.measures.scores import Scores
from karat.tables import Gold, Queries

PROFILE = "story"
# Why nothing could be measured, as a story tool calls it and in words.
SKIPPED = {
    "missing_retrieval_queries": "there are no queries",
    "no_labeled_queries": "no query says which scenes are relevant",
}


def why_skipped(scores: Scores) -> str | None:
    """Why a story's run has no metric, in words; None where it has one, or is no story's."""
    counts = scores.counts
    asked = counts.queries - counts.empty_gold - counts.no_answer
    if asked or scores.conventions.profile != PROFILE:
        return None
    return SKIPPED["no_labeled_queries" if counts.queries else "missing_retrieval_queries"]


def without_grades(scores: Scores) -> str | None:
    """Why measures that ask for high grades have no value; None unless that goes for all."""
    names = [str(one) for one in scores.measures]
    grades = [one.arguments["rel"] for one in scores.measures if "rel" in one.arguments]
    if not grades or len(grades) < len(names) or scores.lacks or not scores.counts.scored:
        return None
    if not all(np.isnan(scores.values(name)).all() for name in names):
        return None
    return f"no query has gold of grade {min(grades):g} or more for {', '.join(names)}"


def without_blank(gold: Gold, queries: Queries) -> tuple[Gold, int]:
    """The gold without that of queries that have no text, and how many had some."""
    asked = queries.frame.select("query_id", "text").iter_rows()
    blank = {query_id for query_id, text in asked if not text.strip()}
    theirs = pl.col("query_id").is_in(list(blank))
    labelled = gold.frame.filter(theirs & (pl.col("grade") > 0))["query_id"].n_unique()
    return (replace(gold, frame=gold.frame.filter(~theirs)), labelled) if blank else (gold, 0)
