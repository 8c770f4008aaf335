"""The base ranking of an A/B harness: likeness of hashed texts, recency and importance.

The vector of a text is a hash of it: equal texts are alike, all others are by chance. It
stands where an engine would have an embedding, is the same everywhere, and means nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from karat.errors import InputError
from karat.formats.yamls import shown
from karat.retrievers.quality.forms import Settings
from karat.tables import Corpus

Floats = npt.NDArray[np.float64]

_HORIZON_DAYS = 365.0
_USUAL_IMPORTANCE = 0.5
_LARGEST = np.float32(0xFFFFFFFF)


def vectors_of(texts: Iterable[str], dimensions: int) -> npt.NDArray[np.float32]:
    """One unit vector a text, from the SHAKE-256 of its bytes."""
    digests = [hashlib.shake_256(text.encode()).digest(4 * dimensions) for text in texts]
    whole = np.frombuffer(b"".join(digests), dtype="<u4").reshape(len(digests), dimensions)
    spread = (whole.astype(np.float32) / _LARGEST) * np.float32(2) - np.float32(1)
    lengths = np.sqrt(_row_sums(spread.astype(np.float64) ** 2))
    return np.asarray(spread / np.where(lengths > 0, lengths, 1.0)[:, None], dtype=np.float32)


class Base:
    """Every item's likeness to a query and its base score."""

    def __init__(self, corpus: Corpus, settings: Settings) -> None:
        weights = settings.ranking
        self._alpha = weights.alpha_sim
        self._vectors = vectors_of(corpus.frame["text"].to_list(), settings.engine.k_surface)
        self._recency = weights.beta_recency * _recency(corpus)
        self._importance = weights.gamma_importance * _importance(corpus)

    @property
    def nbytes(self) -> int:
        """How much memory the numbers take."""
        return self._vectors.nbytes + self._recency.nbytes + self._importance.nbytes

    def cosines(self, text: str) -> Floats:
        """The cosine of each item's vector with the query's."""
        asked = vectors_of([text.strip()], self._vectors.shape[1])[0].astype(np.float64)
        return _row_sums(self._vectors * asked)

    def scores(self, cosines: Floats) -> Floats:
        """The base score of each item."""
        return self._alpha * ((cosines + 1.0) / 2.0) + self._recency + self._importance


def _row_sums(table: npt.NDArray[Any]) -> Floats:
    """Sums from left to right: a matrix product may add up in another order elsewhere."""
    total = np.zeros(len(table))
    for column in table.T:
        total += column
    return total


def _recency(corpus: Corpus) -> Floats:
    """1 for the newest item of the corpus, 0 for one a year older or of unknown age."""
    if "ts" not in corpus.frame.columns:
        return np.zeros(corpus.frame.height)
    times = [
        None if told is None else _time(told, item_id, corpus)
        for item_id, told in corpus.frame.select("item_id", "ts").iter_rows()
    ]
    newest = max((time for time in times if time is not None), default=None)
    if newest is None:
        return np.zeros(len(times))
    days = [None if time is None else (newest - time).total_seconds() / 86_400 for time in times]
    return np.array([0.0 if age is None else max(0.0, 1.0 - age / _HORIZON_DAYS) for age in days])


def _time(told: Any, item_id: str, corpus: Corpus) -> datetime:
    try:
        time = datetime.fromisoformat(told)
    except (TypeError, ValueError):
        raise _wrong(corpus, item_id, "ts", told, "a time such as 2025-09-01T10:00:00Z") from None
    # Without a zone it is taken as UTC: the reader's own zone must not change a ranking.
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def _importance(corpus: Corpus) -> Floats:
    """The importance that items bring in ``aux``, from 0 to 1."""
    if "aux" not in corpus.frame.columns:
        return np.full(corpus.frame.height, _USUAL_IMPORTANCE)
    rows: Sequence[tuple[str, Any]] = corpus.frame.select("item_id", "aux").rows()
    return np.array([_important(told, item_id, corpus) for item_id, told in rows])


def _important(told: Any, item_id: str, corpus: Corpus) -> float:
    try:
        aux = {} if told is None else json.loads(told)
        value = aux.get("importance", _USUAL_IMPORTANCE) + 0.0
        return float(min(1.0, max(0.0, value)))
    except (AttributeError, TypeError, ValueError):
        expected = "an object with importance, a number"
        raise _wrong(corpus, item_id, "aux", told, expected) from None


def _wrong(corpus: Corpus, item_id: str, key: str, told: Any, expected: str) -> InputError:
    what = f"item {item_id!r}: {key} is {shown(told)}; {expected} is expected"
    return InputError(what, where=corpus.source.name)
