"""The quality path of an A/B harness: candidates, BM25 over them, fusion and diversity.

What a config leaves out is left out: without the quality path the base ranking stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from karat.errors import InputError
from karat.retrievers.quality.forms import Settings
from karat.retrievers.quality.lexicon import Floats, Lexical, Lexicon, Mask, Rows
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


class Ranking(NamedTuple):
    """Rows of the corpus, best first, and the score of every row there is."""

    rows: Rows
    scores: Floats


@dataclass(frozen=True)
class Trail:
    """How a list came about: the whole rankings that it is made of, and its rows, cut at k.

    ``lexical`` and ``fused`` are None where nothing was fused.
    """

    base: Ranking
    lexical: Ranking | None
    fused: Ranking | None
    rows: Rows
    lexical_hits: int


class Quality:
    """A config's retriever over a corpus; ``folder`` is where the name of its alias file begins."""

    def __init__(self, corpus: Corpus, settings: Settings, *, folder: Path = Path()) -> None:
        if not corpus.frame.height:
            raise InputError("holds no items; there is nothing to search", where=corpus.source.name)
        self.settings = settings
        self.rules: WordRules = word_rules(settings, folder)
        self.ids: list[str] = corpus.frame["item_id"].to_list()
        self._by_id = places(sorted(range(len(self.ids)), key=self.ids.__getitem__))
        self._base = Base(corpus, settings)
        self._lexicon: Lexicon | None = None
        if settings.fuses or settings.diversifies:
            texts: list[str] = corpus.frame["text"].to_list()
            self._lexicon = Lexicon([self.rules.words(text) for text in texts])

    def rank(self, text: str, k: int) -> Ranked:
        """The best items for a query, at most k."""
        trail = self.trail(text, k)
        rows, base, fused = trail.rows, trail.base, trail.fused
        return Ranked(
            item_ids=[self.ids[row] for row in rows],
            base_ranks=self._places(base)[rows].tolist(),
            base_scores=base.scores[rows].tolist(),
            fused=None if fused is None else fused.scores[rows].tolist(),
            candidates=len(base.rows),
            lexical_hits=trail.lexical_hits,
        )

    def trail(self, text: str, k: int) -> Trail:
        """The same list with the rankings that led to it."""
        cosines = self._base.cosines(text)
        base = self._ranking(self._base.scores(cosines), self._candidates(cosines))
        words = self._bm25(text, base.rows)
        lexical = fused = None
        if words is not None:
            lexical = self._ranking(words.scores, base.rows)
            share = self.settings.fusion.alpha_semantic
            together = interpolated(self._places(base), self._places(lexical), share)
            fused = self._ranking(together, base.rows)
        return Trail(
            base=base,
            lexical=lexical,
            fused=fused,
            rows=self._diverse(base, fused, k)[:k],
            lexical_hits=0 if words is None else int(words.hits.sum()),
        )

    @property
    def index_bytes(self) -> int:
        """The size of the index."""
        return self._base.nbytes + (0 if self._lexicon is None else self._lexicon.nbytes)

    def _ranking(self, scores: Floats, rows: Rows) -> Ranking:
        return Ranking(best_first(scores, self._by_id, rows), scores)

    def _places(self, ranking: Ranking) -> Rows:
        """The place of each row in a ranking, from 1; 0 for what is not in it."""
        place = np.zeros(len(self.ids), dtype=np.int64)
        place[ranking.rows] = np.arange(1, len(ranking.rows) + 1)
        return place

    def _candidates(self, cosines: Floats) -> Rows:
        """Every item, or those that are like enough and the most alike of them."""
        limits = self.settings.retrieval
        rows = np.arange(len(cosines))
        if limits.sim_threshold is not None:
            rows = rows[cosines >= limits.sim_threshold]
        if limits.k_retrieval is not None:
            rows = best_first(cosines, self._by_id, rows)[: limits.k_retrieval]
        return rows

    def _bm25(self, text: str, rows: Rows) -> Lexical | None:
        """BM25 among some rows, where words have a say."""
        if self._lexicon is None or not self.settings.fuses:
            return None
        among: Mask = np.zeros(len(self.ids), dtype=bool)
        among[rows] = True
        form = self.settings.lexical
        asked = self.rules.words(text.strip())
        return self._lexicon.bm25(asked, among, k1=form.bm25_k1, b=form.bm25_b)

    def _diverse(self, base: Ranking, fused: Ranking | None, k: int) -> Rows:
        """The rows of the ranking in force, with a head that differs where that is asked for."""
        if self._lexicon is None or not self.settings.diversifies:
            return base.rows if fused is None else fused.rows
        form = self.settings.mmr
        if fused is None:
            # The base ranking counts down from the number of candidates.
            relevance = (len(base.rows) + 1 - self._places(base)).astype(np.float64)
        else:
            relevance = fused.scores
        # Choices past k would be cut off again.
        head = k if form.k is None or form.k < 1 else min(form.k, k)
        return diversified(
            base.rows, relevance, self._lexicon, self._by_id, weight=form.weight, head=head
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
