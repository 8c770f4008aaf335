"""A story's metric that is skipped, since nothing that was asked has gold: that is no failure."""

from __future__ import annotations

from karat.measures.scores import Scores

PROFILE = "story"
# Why nothing could be measured, as a story tool calls it and in words.
SKIPPED = {
    "missing_retrieval_queries": "the file holds no queries",
    "no_labeled_queries": "no query says which scenes are relevant",
}


def why_skipped(scores: Scores) -> str | None:
    """Why a story's run has no metric, in words; None where it has one, or is no story's."""
    counts = scores.counts
    asked = counts.queries - counts.empty_gold - counts.no_answer
    if asked or scores.conventions.profile != PROFILE:
        return None
    return SKIPPED["no_labeled_queries" if counts.queries else "missing_retrieval_queries"]
