"""The YAML config of ``karat ab``: which settings have an effect, and notes on all others.

A config is written for a whole engine, of which retrieving is a part. Settings that change
nothing here are told one by one, with their line; none is passed over in silence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from karat.errors import InputError, unknown
from karat.formats.files import open_input
from karat.formats.settings import Form, Place, expectations, parse_yaml, preview, validate
from karat.retrieve.system_config import Count, Finite, Share, Text

FUSES = "score_interp"


class EngineForm(Form):
    """The top level of a config."""

    k_surface: Annotated[int, Field(ge=1, le=4096)] = Field(
        32, description="the number of dimensions of a text's vector, from 1 to 4096"
    )


class PerfForm(Form):
    """The first switch of traces."""

    enabled: bool = Field(False, description="true or false")


class MetricsForm(Form):
    """The second switch of traces, and where they go."""

    report_memory: bool = Field(False, description="true or false")
    trace_dir: Text | None = Field(None, description="a folder for traces")
    trace_reason: Text | None = Field(None, description="the reason that shadow traces give")


class RetrievalForm(Form):
    """Which items are candidates; without limits every item is one."""

    k_retrieval: Count | None = Field(None, description="how many candidates, from 1")
    sim_threshold: Annotated[float, Field(ge=-1, le=1)] | None = Field(
        None, description="the lowest cosine of a candidate, from -1 to 1"
    )


class RankingForm(Form):
    """The weights of the base score."""

    alpha_sim: Finite = Field(0.75, description="the weight of likeness, a number")
    beta_recency: Finite = Field(0.2, description="the weight of recency, a number")
    gamma_importance: Finite = Field(0.05, description="the weight of importance, a number")


class QualityForm(Form):
    """Whether the quality path is on, and how it is traced."""

    enabled: bool = Field(False, description="true or false")
    shadow: bool = Field(False, description="true or false")
    redact: bool = Field(True, description="true or false")
    trace_dir: Text | None = Field(None, description="a folder for traces")


class LexicalForm(Form):
    """BM25 over the candidates."""

    bm25_k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        1.2, description="a number from 0"
    )
    bm25_b: Share = Field(0.75, description="a share from 0 to 1")
    stopwords: Literal["en-basic", "none"] = Field("en-basic", description="en-basic or none")


class FusionForm(Form):
    """How the base and the lexical ranking are fused."""

    mode: Text = Field(FUSES, description=f"{FUSES}, the one mode that fuses")
    alpha_semantic: Share = Field(0.6, description="the base ranking's share, from 0 to 1")


class NormalizerForm(Form):
    """How texts become words."""

    enabled: bool = Field(True, description="true or false")
    case: str = Field("lower", description="lower")
    unicode: str = Field("NFKC", description="NFKC")


class AliasingForm(Form):
    """Words that stand for others."""

    map_path: str | None = Field(None, description="a YAML file of words and their meanings")


class DiversityForm(Form):
    """Diversification of the list."""

    enabled: bool = Field(False, description="true or false")
    weight: Share = Field(0.5, alias="lambda", description="diversity's share, from 0 to 1")
    k: int | None = Field(None, description="how many places to fill this way, a whole number")


@dataclass(frozen=True)
class Settings:
    """The settings that have an effect."""

    engine: EngineForm
    perf: PerfForm
    metrics: MetricsForm
    retrieval: RetrievalForm
    ranking: RankingForm
    quality: QualityForm
    lexical: LexicalForm
    fusion: FusionForm
    normalizer: NormalizerForm
    aliasing: AliasingForm
    mmr: DiversityForm

    @property
    def traced(self) -> bool:
        """Whether all three switches of traces are on."""
        on = self.quality.shadow or self.quality.enabled
        return self.perf.enabled and self.metrics.report_memory and on

    @property
    def fuses(self) -> bool:
        """Whether the lexical ranking is fused in."""
        return self.quality.enabled and self.fusion.mode == FUSES

    @property
    def diversifies(self) -> bool:
        """Whether the list is diversified."""
        return self.quality.enabled and self.mmr.enabled

    @property
    def alias_file(self) -> Path | None:
        """The alias file, if it has a use."""
        named = self.aliasing.map_path if self.quality.enabled else None
        return Path(named).expanduser() if named else None


UNKNOWN_DIGEST = "unknown"

_Path = tuple[str, ...]
# A setting without effect by its place, and the note on it.
_Note = tuple[Place, str]


_QUALITY: _Path = ("t2", "quality")
# The form of each section of the file, and its name in Settings.
_SECTIONS: Mapping[_Path, tuple[str, type[Form]]] = {
    (): ("engine", EngineForm),
    ("perf",): ("perf", PerfForm),
    ("perf", "metrics"): ("metrics", MetricsForm),
    ("t2",): ("retrieval", RetrievalForm),
    ("t2", "ranking"): ("ranking", RankingForm),
    _QUALITY: ("quality", QualityForm),
    (*_QUALITY, "lexical"): ("lexical", LexicalForm),
    (*_QUALITY, "fusion"): ("fusion", FusionForm),
    (*_QUALITY, "normalizer"): ("normalizer", NormalizerForm),
    (*_QUALITY, "aliasing"): ("aliasing", AliasingForm),
    (*_QUALITY, "mmr"): ("mmr", DiversityForm),
}
_ELSEWHERE = "it belongs to a part of the engine that does not retrieve"
_ONE_INDEX = "every item of the corpus is searched, in memory"
_ALWAYS = "what it would switch is on whenever t2.quality.enabled is"
# Settings of the engine that retrieving over a corpus has no use for, and why.
_NOT_HONOURED: Mapping[str, str] = {
    **dict.fromkeys(("t1", "t3", "t4", "graph", "scheduler", "budgets", "flags"), _ELSEWHERE),
    **dict.fromkeys(("surface_method", "perf.t1", "perf.snapshots", "perf.parallel"), _ELSEWHERE),
    "perf.t2": "stores, caches and readers change no ranking",
    "t2.hybrid": "there is no graph to rerank by",
    **dict.fromkeys(("t2.backend", "t2.tiers", "t2.lancedb", "t2.archive"), _ONE_INDEX),
    **dict.fromkeys(("t2.embed_root", "t2.reader", "t2.reader_batch"), _ONE_INDEX),
    **dict.fromkeys(("t2.exact_recent_days", "t2.clusters_top_m"), _ONE_INDEX),
    "t2.owner_scope": "items have no owner",
    "t2.cache": "nothing is cached",
    "t2.residual_cap_per_turn": _ELSEWHERE,
    "t2.quality.cache": "nothing is cached",
    **dict.fromkeys((f"t2.quality.{part}.enabled" for part in ("lexical", "fusion")), _ALWAYS),
    "t2.quality.aliasing.enabled": "aliases are used whenever map_path names a file",
    "t2.quality.aliasing.max_expansions_per_token": "a word stands for all that its alias says",
    "t2.quality.lexical.bm25": "the parameters are lexical.bm25_k1 and lexical.bm25_b",
    "t2.quality.fusion.score_norm": "ranks are fused, not scores",
    "t2.quality.normalizer.stopwords": "the list is lexical.stopwords",
    "t2.quality.normalizer.stemmer": "words are not stemmed",
    "t2.quality.normalizer.min_token_len": "words of every length count",
    "t2.quality.mmr.lambda_relevance": "the weight is mmr.lambda, of diversity",
    "t2.quality.mmr.k_final": "the size of the head is mmr.k",
    **dict.fromkeys(
        (f"t2.quality.mmr.diversity_by_{what}" for what in ("owner", "token")),
        "likeness is the overlap of words",
    ),
}
# Said nowhere: these values ask for what is done anyway.
_DONE_ANYWAY: Mapping[str, Any] = {
    "t2.backend": "inmemory",
    "t2.owner_scope": "any",
    "t2.hybrid": {"enabled": False},
    "t2.quality.lexical.enabled": True,
    "t2.quality.fusion.enabled": True,
}


@dataclass(frozen=True)
class Document:
    """A config file: its path, content and digest."""

    path: str
    data: Mapping[str, Any]
    digest: str
    place: Place


@dataclass(frozen=True)
class Config:
    """A config's settings, and notes on those without effect."""

    document: Document
    settings: Settings
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
        return UNKNOWN_DIGEST
    return hashlib.sha256(spelled.encode()).hexdigest()


def read_config(path: str) -> Config:
    """Read a config, with notes on settings without effect."""
    return understood(read_document(path))


def understood(document: Document) -> Config:
    """Return the settings with an effect, and a note for every other one."""
    forms: dict[str, Form] = {name: form() for name, form in _SECTIONS.values()}
    notes: list[_Note] = []
    _read_section(document.data, (), document.place, forms, notes)
    settings = Settings(**forms)  # type: ignore[arg-type]
    notes.extend(_without_effect(settings, document.place))
    if document.digest == UNKNOWN_DIGEST:
        notes.append((document.place, f"JSON cannot hold it, so its digest is {UNKNOWN_DIGEST!r}"))
    notes.sort(key=lambda note: note[0].line or 0)
    return Config(document, settings, tuple(f"{place}: {note_text}" for place, note_text in notes))


def _read_section(
    data: Mapping[Any, Any], path: _Path, place: Place, forms: dict[str, Form], notes: list[_Note]
) -> None:
    name, form = _SECTIONS[path]
    settings: dict[str, Any] = {}
    for key, value in data.items():
        inner = (*path, str(key))
        if inner in _SECTIONS:
            if isinstance(value, Mapping):
                _read_section(value, inner, place, forms, notes)
            elif value is not None:
                what = f"{'.'.join(inner)} is {preview(value)}; a mapping is expected"
                raise place.at(*inner).error(what)
        elif key in expectations(form):
            # A setting without a value is as good as one that is not there.
            settings |= {} if value is None else {key: value}
        elif not _done_anyway(inner, value):
            notes.append((place.at(*inner), _why_no_effect(inner, form)))
    forms[name] = validate(form, settings, place.at(*path))


def _done_anyway(path: _Path, value: Any) -> bool:
    name = ".".join(path)
    return name in _DONE_ANYWAY and bool(_DONE_ANYWAY[name] == value)


def _why_no_effect(path: _Path, form: type[Form]) -> str:
    """Return why a setting has no effect."""
    name = ".".join(path)
    if name in _NOT_HONOURED:
        return f"{name} changes nothing here: {_NOT_HONOURED[name]}"
    around = path[:-1]
    known = [
        *expectations(form),
        *(section[-1] for section in _SECTIONS if section and section[:-1] == around),
    ]
    reason = str(unknown("setting", path[-1], known, inside=name))
    return f"{reason}{'' if reason.endswith('?') else ';'} it changes nothing"


def _without_effect(settings: Settings, place: Place) -> Iterator[_Note]:
    """Yield notes on values of known settings that have no effect."""
    if not settings.quality.enabled:
        return
    form = settings.normalizer
    for key, value in {"case": form.case, "unicode": form.unicode}.items():
        done = NormalizerForm.model_fields[key].default
        if value != done:
            at = place.at(*_QUALITY, "normalizer", key)
            yield at, f"t2.quality.normalizer.{key} {value!r} does nothing; texts are made {done}"
    if not settings.fuses:
        at = place.at(*_QUALITY, "fusion", "mode")
        mode = settings.fusion.mode
        yield at, f"t2.quality.fusion.mode {mode!r} does nothing; {FUSES} is what fuses"
