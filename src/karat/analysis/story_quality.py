"""Retrieval quality of a story: where its scenes come when queries about them are asked.

How scenes are ranked is the caller's affair; ``story_scores`` takes them from a scored run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from karat.analysis.skipped import SKIPPED
from karat.formats.story import Asked

THRESHOLD = 0.6
DEFAULT_K = 5

# All scenes in the order of their scores for a query, best first; a run may have no scores.
Ranking = Sequence[tuple[str, float | None]]


@dataclass(frozen=True)
class Found:
    """What came of one query; one without gold has only its id and text.

    ``rank`` is that of the first relevant scene in the whole ranking, ``recall`` the share
    of the relevant scenes that are among the first ``k``. ``trouble`` says why there is no
    ranking: the call ``failed``, or the query is ``missing`` in the run.
    """

    query_id: str
    text: str
    k: int | None = None
    rank: int | None = None
    recall: float | None = None
    top: Ranking = ()
    trouble: str | None = None

    @property
    def reciprocal_rank(self) -> float | None:
        """1 / rank, and 0 where no relevant scene exists; None without gold."""
        if self.recall is None:
            return None
        return 0.0 if self.rank is None else 1 / self.rank


@dataclass(frozen=True)
class Quality:
    """The queries that ask something, and how many entries there were with the blank ones."""

    queries: tuple[Found, ...]
    total: int

    @property
    def labelled(self) -> list[Found]:
        """The queries that have gold."""
        return [one for one in self.queries if one.recall is not None]

    @property
    def value(self) -> float | None:
        """The mean reciprocal rank of the queries that have gold; None if there is none."""
        return _mean(one.reciprocal_rank for one in self.labelled)

    @property
    def recall(self) -> float | None:
        """The mean recall at each query's k."""
        return _mean(one.recall for one in self.labelled)

    @property
    def passed(self) -> bool | None:
        """Whether the value is above the threshold; None if nothing could be measured."""
        return None if self.value is None else self.value > THRESHOLD

    @property
    def reason(self) -> str | None:
        """Why nothing could be measured."""
        if not self.total:
            return "missing_retrieval_queries"
        return None if self.labelled else "no_labeled_queries"

    @property
    def why_skipped(self) -> str | None:
        """The same in words."""
        return None if self.reason is None else SKIPPED[self.reason]


def story_quality(
    asked: Sequence[Asked], rank: Callable[[Asked], Ranking], *, k: int = DEFAULT_K
) -> Quality:
    """Ask every query that has a text and gold; ``k`` is for those without their own."""
    queries = tuple(_found(one, rank, one.k or k) for one in asked if one.text)
    return Quality(queries, len(asked))


def _found(one: Asked, rank: Callable[[Asked], Ranking], k: int) -> Found:
    if not one.relevant:
        return Found(one.query_id, one.text)
    ranking = rank(one)
    places = [place for place, (scene, _) in enumerate(ranking, 1) if scene in one.relevant]
    return Found(
        one.query_id,
        one.text,
        k,
        rank=places[0] if places else None,
        recall=sum(place <= k for place in places) / len(one.relevant),
        top=tuple(ranking[:k]),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    """The exact mean, rounded once, as everywhere in karat."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
