"""quality: the engine of ``karat ab`` as a retriever: base ranking, BM25, fusion, diversity.

Its YAML config is written for a whole engine, of which retrieving is a part. Missing settings
switch a part off: without the quality path the base ranking is final. Settings that change nothing
here are listed one by one, with their line.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import yaml
from pydantic import Field, ValidationError

from karat.data.columns import Source
from karat.data.tables import Corpus
from karat.errors import InputError
from karat.formats.files import open_input
from karat.formats.settings import (
    ConfigModel,
    Place,
    expectations,
    explain_error,
    parse_yaml,
    preview,
)
from karat.retrieve.bow import WordIndex, word_bags
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Answer, Finder, Query, QueryFinder
from karat.retrieve.stages import BASIC_STOP_WORDS, Jaccard, ab_order
from karat.retrieve.system_config import Count, Finite, Share, Text
from karat.retrieve.text_rules import NormaliseOptions, normalised, read_aliases

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

FUSES = "score_interp"


def _at(path: str, default: Any, description: str) -> Any:
    return Field(default, alias=path, description=description)


class QualitySettings(ConfigModel):
    """The settings that have an effect, each under its path in the file."""

    k_surface: Annotated[int, Field(ge=1, le=4096)] = Field(
        32, description="the number of dimensions of a text's vector, from 1 to 4096"
    )
    # The two switches of traces, and where they go.
    perf_enabled: bool = _at("perf.enabled", False, "true or false")
    report_memory: bool = _at("perf.metrics.report_memory", False, "true or false")
    metrics_trace_dir: Text | None = _at("perf.metrics.trace_dir", None, "a folder for traces")
    trace_reason: Text | None = _at(
        "perf.metrics.trace_reason", None, "the reason that shadow traces give"
    )
    # Which items are candidates; without limits every item is one.
    k_retrieval: Count | None = _at("t2.k_retrieval", None, "how many candidates, from 1")
    sim_threshold: Annotated[float, Field(ge=-1, le=1)] | None = _at(
        "t2.sim_threshold", None, "the lowest cosine of a candidate, from -1 to 1"
    )
    # The weights of the base score.
    alpha_sim: Finite = _at("t2.ranking.alpha_sim", 0.75, "the weight of likeness, a number")
    beta_recency: Finite = _at("t2.ranking.beta_recency", 0.2, "the weight of recency, a number")
    gamma_importance: Finite = _at(
        "t2.ranking.gamma_importance", 0.05, "the weight of importance, a number"
    )
    # Whether the quality path is on, and how it is traced.
    quality_enabled: bool = _at("t2.quality.enabled", False, "true or false")
    shadow: bool = _at("t2.quality.shadow", False, "true or false")
    redact: bool = _at("t2.quality.redact", True, "true or false")
    trace_dir: Text | None = _at("t2.quality.trace_dir", None, "a folder for traces")
    # BM25 over the candidates.
    bm25_k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = _at(
        "t2.quality.lexical.bm25_k1", 1.2, "a number from 0"
    )
    bm25_b: Share = _at("t2.quality.lexical.bm25_b", 0.75, "a share from 0 to 1")
    stopwords: Literal["en-basic", "none"] = _at(
        "t2.quality.lexical.stopwords", "en-basic", "en-basic or none"
    )
    # How the base and the lexical ranking are fused.
    fusion_mode: Text = _at("t2.quality.fusion.mode", FUSES, f"{FUSES}, the one mode that fuses")
    alpha_semantic: Share = _at(
        "t2.quality.fusion.alpha_semantic", 0.6, "the base ranking's share, from 0 to 1"
    )
    # How texts become words.
    normalizer_enabled: bool = _at("t2.quality.normalizer.enabled", True, "true or false")
    map_path: str | None = _at(
        "t2.quality.aliasing.map_path", None, "a YAML file of words and their meanings"
    )
    # Diversification of the list.
    mmr_enabled: bool = _at("t2.quality.mmr.enabled", False, "true or false")
    mmr_weight: Share = _at("t2.quality.mmr.lambda", 0.5, "diversity's share, from 0 to 1")
    mmr_k: int | None = _at(
        "t2.quality.mmr.k", None, "how many places to fill this way, a whole number"
    )

    @property
    def traced(self) -> bool:
        """Whether all three switches of traces are on."""
        return self.perf_enabled and self.report_memory and (self.shadow or self.quality_enabled)

    @property
    def fuses(self) -> bool:
        """Whether the lexical ranking is fused in."""
        return self.quality_enabled and self.fusion_mode == FUSES

    @property
    def diversifies(self) -> bool:
        """Whether the list is diversified."""
        return self.quality_enabled and self.mmr_enabled

    @property
    def alias_file(self) -> Path | None:
        """The alias file, if it has a use."""
        return Path(self.map_path).expanduser() if self.quality_enabled and self.map_path else None


# A setting without effect by its place, and the note on it.
_Note = tuple[Place, str]

_KNOWN = expectations(QualitySettings)
# The mappings that settings stand in, such as t2.quality.
_SECTIONS = {name.rsplit(".", n)[0] for name in _KNOWN for n in range(1, name.count(".") + 1)}
# No note: these values ask for what is done anyway.
_DONE_ANYWAY: Mapping[str, Any] = {
    "t2.backend": "inmemory",
    "t2.owner_scope": "any",
    "t2.hybrid": {"enabled": False},
    "t2.quality.lexical.enabled": True,
    "t2.quality.fusion.enabled": True,
    "t2.quality.normalizer.case": "lower",
    "t2.quality.normalizer.unicode": "NFKC",
}


@dataclass(frozen=True)
class Document:
    """A config file: its path, content and digest."""

    path: str
    data: Mapping[str, Any]
    digest: str
    place: Place


class QualityConfig(NamedTuple):
    """A config's settings, and notes on those without effect."""

    document: Document
    settings: QualitySettings
    notes: tuple[str, ...]


def read_document(path: str) -> Document:
    """Read a config's YAML; the digest is of its content, not of its layout."""
    file = open_input(path)
    text = file.text()
    # Keys twice, loops and what is no plain data are refused here, and lines noted.
    place = parse_yaml(text, file.name).place
    try:
        # Plain words are read as PyYAML has them, so that digests agree with those published.
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"is not valid YAML: {preview(reason)}", where=file.name) from None
    if not isinstance(data, dict):
        raise place.error(f"found {preview(data)}; a mapping of settings is expected")
    return Document(path, data, digest_of(data), place)


def digest_of(data: Mapping[str, Any]) -> str:
    """Return the sha256 of a config's content; ``unknown`` if JSON cannot hold it.

    >>> digest_of({"k": 1})[:12]
    'a0da1fce57d0'
    """
    try:
        spelled = json.dumps(data, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError):
        return "unknown"
    return hashlib.sha256(spelled.encode()).hexdigest()


def read_config(path: str) -> QualityConfig:
    """Read a config, with notes on settings without effect."""
    document = read_document(path)
    flat: dict[str, Any] = {}
    notes = list(_flatten(document.data, (), document.place, flat))
    try:
        settings = QualitySettings.model_validate(flat)
    except ValidationError as error:
        key, message = explain_error(error, flat, _KNOWN)
        raise document.place.at(*key.split(".")).error(message) from None
    if settings.quality_enabled and settings.fusion_mode != FUSES:
        mode = f"t2.quality.fusion.mode {settings.fusion_mode!r} does nothing"
        place = document.place.at("t2", "quality", "fusion", "mode")
        notes.append((place, f"{mode}; {FUSES} is what fuses"))
    notes.sort(key=lambda note: note[0].line or 0)
    return QualityConfig(document, settings, tuple(f"{place}: {text}" for place, text in notes))


def _flatten(
    data: Mapping[Any, Any], path: tuple[str, ...], place: Place, flat: dict[str, Any]
) -> Iterator[_Note]:
    """Collect the settings by their paths; yield a note on each that has no effect."""
    for key, value in data.items():
        inner = (*path, str(key))
        name = ".".join(inner)
        if name in _SECTIONS:
            if isinstance(value, Mapping):
                yield from _flatten(value, inner, place, flat)
            elif value is not None:
                message = f"{name} is {preview(value)}; a mapping is expected"
                raise place.at(*inner).error(message)
        elif name in _KNOWN:
            # A setting without a value is as good as one that is not there.
            flat |= {} if value is None else {name: value}
        elif name not in _DONE_ANYWAY or _DONE_ANYWAY[name] != value:
            near = get_close_matches(name, [*_KNOWN, *_SECTIONS], n=1, cutoff=0.9)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield place.at(*inner), f"{name} changes nothing here{hint}"


_HORIZON_DAYS = 365.0
_USUAL_IMPORTANCE = 0.5
_LARGEST = np.float32(0xFFFFFFFF)


def vectors_of(texts: Iterable[str], dimensions: int) -> npt.NDArray[np.float32]:
    """Return one unit vector per text, from the SHAKE-256 of its bytes."""
    digests = [hashlib.shake_256(text.encode()).digest(4 * dimensions) for text in texts]
    integers = np.frombuffer(b"".join(digests), dtype="<u4").reshape(len(digests), dimensions)
    spread = (integers.astype(np.float32) / _LARGEST) * np.float32(2) - np.float32(1)
    lengths = np.sqrt(_row_sums(spread.astype(np.float64) ** 2))
    return np.asarray(spread / np.where(lengths > 0, lengths, 1.0)[:, None], dtype=np.float32)


def _row_sums(table: npt.NDArray[Any]) -> Floats:
    """Sum from left to right: a matrix product may add in another order elsewhere."""
    total = np.zeros(len(table))
    for column in table.T:
        total += column
    return total


def _recency(corpus: Corpus) -> Floats:
    """Return 1 for the newest item, 0 for one that is a year older or of unknown age."""
    recency = np.zeros(corpus.frame.height)
    if "ts" not in corpus.frame.columns:
        return recency
    times: dict[int, datetime] = {}
    for row, (item_id, value) in enumerate(corpus.frame.select("item_id", "ts").iter_rows()):
        try:
            time = None if value is None else datetime.fromisoformat(value)
        except (TypeError, ValueError):
            expected = "a time such as 2025-09-01T10:00:00Z"
            raise _bad_value(corpus, item_id, "ts", value, expected) from None
        if time is not None:
            # Without a zone it is taken as UTC: the reader's own zone must not change a ranking.
            times[row] = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    newest = max(times.values(), default=None)
    for row, time in times.items():
        days = 0.0 if newest is None else (newest - time).total_seconds() / 86_400
        recency[row] = max(0.0, 1.0 - days / _HORIZON_DAYS)
    return recency


def _importance(corpus: Corpus) -> Floats:
    """Return the importance that items have in ``aux``, from 0 to 1."""
    if "aux" not in corpus.frame.columns:
        return np.full(corpus.frame.height, _USUAL_IMPORTANCE)
    values = np.empty(corpus.frame.height)
    for row, (item_id, value) in enumerate(corpus.frame.select("item_id", "aux").iter_rows()):
        try:
            aux = {} if value is None else json.loads(value)
            values[row] = min(1.0, max(0.0, aux.get("importance", _USUAL_IMPORTANCE) + 0.0))
        except (AttributeError, TypeError, ValueError):
            expected = "an object with importance, a number"
            raise _bad_value(corpus, item_id, "aux", value, expected) from None
    return values


def _bad_value(corpus: Corpus, item_id: str, key: str, value: Any, expected: str) -> InputError:
    message = f"item {item_id!r}: {key} is {preview(value)}; {expected} is expected"
    return InputError(message, where=corpus.source.name)


# Keeps the logarithm finite where every candidate has a word.
_NEVER_ZERO = 1e-9


class Lexicon:
    """An index from words to items."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self._index = WordIndex(word_bags(texts))
        self._lengths = np.array([len(words) for words in texts], dtype=np.float64)
        self.nbytes = self._index.nbytes + self._lengths.nbytes

    def bm25(
        self, query_words: Sequence[str], among: Mask, *, k1: float, b: float
    ) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return each item's BM25 and distinct query words, counted over marked items only.

        A word that more than half of them have counts against an item; a word that the
        query repeats counts as often.
        """
        scores = np.zeros(len(among))
        hits = np.zeros(len(among), dtype=np.int64)
        number = int(among.sum())
        mean = float(self._lengths[among].sum()) / max(1, number) or 1.0
        for at, word in enumerate(query_words):
            rows, counts = self._index.entries(word)
            marked = among[rows]
            rows, counts = rows[marked], counts[marked]
            if not len(rows):
                continue
            rarity = math.log((number - len(rows) + 0.5) / (len(rows) + 0.5) + _NEVER_ZERO)
            length = k1 * (1 - b + b * (self._lengths[rows] / mean))
            scores[rows] += rarity * ((counts * (k1 + 1.0)) / (counts + length))
            hits[rows] += word not in query_words[:at]
        return scores, hits


STOP_WORDS: Mapping[str, frozenset[str]] = {
    "en-basic": BASIC_STOP_WORDS,
    "none": frozenset(),
}
_BETWEEN_WORDS = re.compile(r"[^0-9A-Za-z]+")
# What an alias stands for may be a name with underscores, which stay.
_BETWEEN_MEANINGS = re.compile(r"[^0-9A-Za-z_]+")
_ALIKE = NormaliseOptions(unicode="NFKC", case="lower")


@dataclass(frozen=True)
class WordRules:
    """How texts become words, for queries and items alike.

    ``letters`` cuts at everything but the letters a to z and digits, else texts are cut at
    spaces only.

    >>> WordRules(aliases={"llm": ("large", "language", "model")}).words("An LLM, in_short")
    ['large', 'language', 'model', 'short']
    """

    letters: bool = True
    stop: frozenset[str] = STOP_WORDS["en-basic"]
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def words(self, text: str) -> list[str]:
        """Return the words of a text in order; each alias is replaced once."""
        words: list[str] = []
        for word in self._plain(text):
            words.extend(self.aliases.get(word, (word,)))
        return words

    def _plain(self, text: str) -> list[str]:
        normalised_text = made_alike(text)
        parts = _BETWEEN_WORDS.split(normalised_text) if self.letters else normalised_text.split()
        return [part for part in parts if part and part not in self.stop]

    def notes(self) -> list[str]:
        """Return a note for each alias that no text can match."""
        return [
            f"alias {word!r} matches nothing: no text has such a word"
            for word in self.aliases
            if self._plain(word) != [word]
        ]


def word_rules(settings: QualitySettings, folder: Path) -> WordRules:
    """Return the rules of a config; its alias file is read if it has a use."""
    named = settings.alias_file
    aliases = {} if named is None else read_aliases(folder / named)
    return WordRules(
        letters=settings.normalizer_enabled,
        stop=STOP_WORDS[settings.stopwords],
        aliases={
            word: tuple(filter(None, _BETWEEN_MEANINGS.split(made_alike(to))))
            for word, to in aliases.items()
        },
    )


def made_alike(text: str) -> str:
    """Return the text in NFKC, lower case and with single spaces.

    >>> made_alike("  Apple   TART ")
    'apple tart'
    """
    return normalised(text, _ALIKE)


# The smoothing of reciprocal ranks.
_RANKS_FROM = 60


class Ranking(NamedTuple):
    """Rows of the corpus, best first, and the score of every row."""

    rows: Rows
    scores: Floats


@dataclass(frozen=True)
class RankedItems:
    """A ranked list, best first, and where each item of it comes from.

    ``base_ranks`` are the places in the base ranking, ``fused`` the scores of the fusion or
    None where there was none; ``lexical_hits`` counts the query's words over all candidates.
    ``rankings`` are the whole rankings that the list is made of, ``rows`` its items' rows.
    """

    item_ids: list[str]
    base_ranks: list[int]
    base_scores: list[float]
    fused: list[float] | None
    candidates: int
    lexical_hits: int
    rows: Rows = field(compare=False)
    rankings: Mapping[str, Ranking] = field(compare=False)


class QualityEngine:
    """A config's retriever over a corpus; alias files are relative to ``folder``."""

    def __init__(self, corpus: Corpus, settings: QualitySettings, *, folder: Path = Path()) -> None:
        if not corpus.frame.height:
            raise InputError("holds no items; there is nothing to search", where=corpus.source.name)
        self.settings = settings
        self.rules: WordRules = word_rules(settings, folder)
        self.ids: list[str] = corpus.frame["item_id"].to_list()
        self._by_id = np.argsort(sorted(range(len(self.ids)), key=self.ids.__getitem__))
        texts: list[str] = corpus.frame["text"].to_list()
        self._vectors = vectors_of(texts, settings.k_surface)
        self._recency = settings.beta_recency * _recency(corpus)
        self._importance = settings.gamma_importance * _importance(corpus)
        reads_words = settings.fuses or settings.diversifies
        words = [self.rules.words(text) for text in texts] if reads_words else []
        self._lexicon = Lexicon(words)
        self._similarity = Jaccard(map(frozenset, words))

    def rank(self, text: str, k: int) -> RankedItems:
        """Return the best items for a query, at most k."""
        settings = self.settings
        query = vectors_of([text.strip()], settings.k_surface)[0].astype(np.float64)
        cosines = _row_sums(self._vectors * query)
        scores = settings.alpha_sim * ((cosines + 1.0) / 2.0) + self._recency + self._importance
        base = self._ranking(scores, self._candidates(cosines))
        rankings = {"base": base}
        fused = None
        lexical_hits = 0
        if settings.fuses:
            among: Mask = np.zeros(len(self.ids), dtype=bool)
            among[base.rows] = True
            words = self.rules.words(text.strip())
            bm25, hits = self._lexicon.bm25(words, among, k1=settings.bm25_k1, b=settings.bm25_b)
            lexical_hits = int(hits.sum())
            lexical = rankings["lexical"] = self._ranking(bm25, base.rows)
            share = settings.alpha_semantic
            together = interpolated(self._places(base), self._places(lexical), share)
            fused = self._ranking(together, base.rows)
        rows = self._diverse(base, fused, k)[:k]
        return RankedItems(
            item_ids=[self.ids[row] for row in rows],
            base_ranks=self._places(base)[rows].tolist(),
            base_scores=base.scores[rows].tolist(),
            fused=None if fused is None else fused.scores[rows].tolist(),
            candidates=len(base.rows),
            lexical_hits=lexical_hits,
            rows=rows,
            rankings=rankings,
        )

    @property
    def index_bytes(self) -> int:
        """The size of the index."""
        arrays = (self._vectors, self._recency, self._importance)
        words = self._lexicon.nbytes + self._similarity.nbytes
        return words + sum(array.nbytes for array in arrays)

    def _ranking(self, scores: Floats, rows: Rows) -> Ranking:
        return Ranking(best_first(scores, self._by_id, rows), scores)

    def _places(self, ranking: Ranking) -> Rows:
        """Return the rank of each row in a ranking, 0 for rows that are not in it."""
        place = np.zeros(len(self.ids), dtype=np.int64)
        place[ranking.rows] = np.arange(1, len(ranking.rows) + 1)
        return place

    def _candidates(self, cosines: Floats) -> Rows:
        """Return every item, or the most similar ones within the limits."""
        limits = self.settings
        rows = np.arange(len(cosines))
        if limits.sim_threshold is not None:
            rows = rows[cosines >= limits.sim_threshold]
        if limits.k_retrieval is not None:
            rows = best_first(cosines, self._by_id, rows)[: limits.k_retrieval]
        return rows

    def _diverse(self, base: Ranking, fused: Ranking | None, k: int) -> Rows:
        """Return the rows of the fused or base ranking, diversified if the config says so."""
        settings, rows = self.settings, base.rows
        if not settings.diversifies:
            return rows if fused is None else fused.rows
        # The base ranking counts down from the number of candidates.
        countdown = np.arange(len(rows), 0, -1, dtype=np.float64)
        order = ab_order(
            [self.ids[row] for row in rows],
            (countdown if fused is None else fused.scores[rows]).tolist(),
            lambda at: self._similarity.to(int(rows[at]))[rows],
            settings.mmr_weight,
            # Choices past k would be cut off again.
            k if settings.mmr_k is None or settings.mmr_k < 1 else min(settings.mmr_k, k),
        )
        return rows[np.array(order, dtype=np.intp)]


def best_first(scores: Floats, by_id: Rows, rows: Rows) -> Rows:
    """Return rows by falling score; ties go by the position of the row's id in ``by_id``.

    >>> best_first(np.array([0.5, 0.9, 0.5]), np.array([1, 2, 0]), np.array([0, 1, 2])).tolist()
    [1, 2, 0]
    """
    return rows[np.lexsort((by_id[rows], -scores[rows]))]


def interpolated(first: Rows, second: Rows, alpha: float) -> Floats:
    """Return ``alpha`` of the first reciprocal rank and the rest of the second.

    >>> interpolated(np.array([1, 2]), np.array([2, 1]), 0.75).round(6).tolist()
    [0.016327, 0.016195]
    """
    return alpha * (1.0 / (_RANKS_FROM + first)) + (1.0 - alpha) * (1.0 / (_RANKS_FROM + second))


class QualityOptions(ConfigModel):
    """Which config to search with."""

    config: Text = Field(description="a YAML file with t2.quality settings, as karat ab takes it")


Options = QualityOptions


def files(options: QualityOptions, context: BuildContext) -> list[str]:
    """Return the alias file that the config names."""
    settings = read_config(str(context.path(options.config))).settings
    # Bad aliases are refused before any system is asked.
    word_rules(settings, context.folder)
    named = settings.alias_file
    return [] if named is None else [str(named)]


def make(
    options: QualityOptions, context: BuildContext, parts: Mapping[str, Finder]
) -> QueryFinder:
    """Return the engine as a finder.

    A list that was made diverse is in no order of any score, so its hits count 1/rank. The
    rankings that a list is made of are logged as ``base`` and ``lexical``.
    """
    config = read_config(str(context.path(options.config)))
    settings, items = config.settings, context.items
    texts = pl.Series("text", context.rules.apply_all(items.texts), dtype=pl.String)
    corpus = Corpus(items.frame.with_columns(texts), context.corpus_source or Source("corpus"))
    engine = QualityEngine(corpus, settings, folder=context.folder)

    def search(query: Query, k: int) -> Answer:
        ranked = engine.rank(query.text, k)
        scores = np.array(ranked.base_scores if ranked.fused is None else ranked.fused)
        if settings.diversifies:
            scores = 1.0 / np.arange(1, len(ranked.rows) + 1)
        rankings = ranked.rankings if settings.fuses or settings.diversifies else {}
        lists = {
            name: items.hits(ranking.rows[:k], ranking.scores[ranking.rows[:k]])
            for name, ranking in rankings.items()
        }
        return Answer(items.hits(ranked.rows, scores), lists=lists)

    notes = [*config.notes, *engine.rules.notes()]
    meta = {"config_path": options.config, "settings_digest": config.document.digest}
    with_notes = {"notes": notes} if notes else {}
    return QueryFinder(search, {**meta, **with_notes, "index_bytes": engine.index_bytes})
