"""The quality path of an A/B harness: candidates, BM25 over them, fusion and diversity.

What a config leaves out is left out: without the quality path the base ranking stands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from karat.errors import InputError
from karat.retrievers.quality.forms import Settings
from karat.retrievers.quality.lexicon import Floats, Lexicon, Mask, Rows
from karat.retrievers.quality.likeness import Base
from karat.retrievers.quality.words import WordRules, word_rules
from karat.tables import Corpus

# The smoothing of reciprocal ranks.
_RANKS_FROM = 60


@dataclass(frozen=True)
class Ranked:
    """A ranked list, best first, and where each item of it comes from.

    ``base_ranks`` are the places in the base ranking, ``fused`` the scores of the fusion or
    None where there was none; ``lexical_hits`` counts the query's words over all candidates.
    """

    item_ids: list[str]
    base_ranks: list[int]
    base_scores: list[float]
    fused: list[float] | None
    candidates: int
    lexical_hits: int


class Quality:
    """A config's retriever over a corpus."""

    def __init__(self, corpus: Corpus, settings: Settings) -> None:
        if not corpus.frame.height:
            raise InputError("holds no items; there is nothing to search", where=corpus.source.name)
        self.settings = settings
        self.rules: WordRules = word_rules(settings)
        self.ids: list[str] = corpus.frame["item_id"].to_list()
        self._by_id = places(sorted(range(len(self.ids)), key=self.ids.__getitem__))
        self._base = Base(corpus, settings)
        self._lexicon: Lexicon | None = None
        if settings.fuses or settings.diversifies:
            texts: list[str] = corpus.frame["text"].to_list()
            self._lexicon = Lexicon([self.rules.words(text) for text in texts])

    def rank(self, text: str, k: int) -> Ranked:
        """The best items for a query, at most k."""
        cosines = self._base.cosines(text)
        scores = self._base.scores(cosines)
        rows = best_first(scores, self._by_id, self._candidates(cosines))
        place = np.zeros(len(self.ids), dtype=np.int64)
        place[rows] = np.arange(1, len(rows) + 1)
        fused, found = self._fused(text, rows, place)
        order = rows if fused is None else best_first(fused, self._by_id, rows)
        order = self._diverse(order, fused, place, k)[:k]
        return Ranked(
            item_ids=[self.ids[row] for row in order],
            base_ranks=place[order].tolist(),
            base_scores=scores[order].tolist(),
            fused=None if fused is None else fused[order].tolist(),
            candidates=len(rows),
            lexical_hits=found,
        )

    def _candidates(self, cosines: Floats) -> Rows:
        """Every item, or those that are like enough and the most alike of them."""
        limits = self.settings.retrieval
        rows = np.arange(len(cosines))
        if limits.sim_threshold is not None:
            rows = rows[cosines >= limits.sim_threshold]
        if limits.k_retrieval is not None:
            rows = best_first(cosines, self._by_id, rows)[: limits.k_retrieval]
        return rows

    def _fused(self, text: str, rows: Rows, place: Rows) -> tuple[Floats | None, int]:
        if self._lexicon is None or not self.settings.fuses:
            return None, 0
        among: Mask = np.zeros(len(self.ids), dtype=bool)
        among[rows] = True
        form = self.settings.lexical
        lexical = self._lexicon.bm25(
            self.rules.words(text.strip()), among, k1=form.bm25_k1, b=form.bm25_b
        )
        by_words = np.zeros(len(self.ids), dtype=np.int64)
        by_words[best_first(lexical.scores, self._by_id, rows)] = np.arange(1, len(rows) + 1)
        fused = interpolated(place, by_words, self.settings.fusion.alpha_semantic)
        return fused, int(lexical.hits.sum())

    def _diverse(self, order: Rows, fused: Floats | None, place: Rows, k: int) -> Rows:
        if self._lexicon is None or not self.settings.diversifies:
            return order
        # Without fused scores the base ranking counts down from the number of candidates.
        relevance = (len(order) + 1 - place).astype(np.float64) if fused is None else fused
        form = self.settings.mmr
        # Choices past k would be cut off again.
        head = k if form.k is None or form.k < 1 else min(form.k, k)
        return diversified(
            order, relevance, self._lexicon, self._by_id, weight=form.weight, head=head
        )


def places(order: npt.ArrayLike) -> Rows:
    """The place of each row in an order of all rows.

    >>> places([2, 0, 1]).tolist()
    [1, 2, 0]
    """
    rows = np.asarray(order, dtype=np.intp)
    found = np.empty(len(rows), dtype=np.intp)
    found[rows] = np.arange(len(rows))
    return found


def best_first(scores: Floats, by_id: Rows, rows: Rows) -> Rows:
    """Rows by falling score; ``by_id`` says where each row's id stands among ids, for ties.

    >>> best_first(np.array([0.5, 0.9, 0.5]), np.array([1, 2, 0]), np.array([0, 1, 2])).tolist()
    [1, 2, 0]
    """
    return rows[np.lexsort((by_id[rows], -scores[rows]))]


def interpolated(first: Rows, second: Rows, alpha: float) -> Floats:
    """Two rankings as one score: alpha of the first one's reciprocal rank, the rest the second's.

    >>> interpolated(np.array([1, 2]), np.array([2, 1]), 0.75).round(6).tolist()
    [0.016327, 0.016195]
    """
    return alpha * (1.0 / (_RANKS_FROM + first)) + (1.0 - alpha) * (1.0 / (_RANKS_FROM + second))


def diversified(
    rows: Rows, relevance: Floats, lexicon: Lexicon, by_id: Rows, *, weight: float, head: int
) -> Rows:
    """Rows with a head that is chosen one by one for relevance and difference.

    ``weight`` is that of difference, which is the largest distance to anything chosen
    before. The first choice is by relevance alone, and so is everything after the head.
    """
    left = best_first(relevance, by_id, rows)
    chosen: list[int] = []
    farthest = np.zeros(len(relevance))
    while len(left) and len(chosen) < head:
        worth = weight * farthest + (1.0 - weight) * relevance if chosen else relevance
        best = left[worth[left] == worth[left].max()]
        pick = int(best[np.argmin(by_id[best])])
        chosen.append(pick)
        left = left[left != pick]
        farthest = np.maximum(farthest, lexicon.distances(pick))
    return np.concatenate((np.array(chosen, dtype=np.intp), left))
