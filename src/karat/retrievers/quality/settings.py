"""The YAML of an A/B harness read: which of its settings are honoured, and which are only said.

A config is written for a whole engine, of which retrieving is a part. Settings that change
nothing here are told one by one, with their line; none is passed over in silence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from karat.errors import InputError, unknown
from karat.formats.files import open_input
from karat.formats.forms import Form, expectations, fill
from karat.formats.yamls import Place, parse_yaml, shown
from karat.retrievers.quality.forms import (
    FUSES,
    AliasingForm,
    DiversityForm,
    EngineForm,
    FusionForm,
    LexicalForm,
    MetricsForm,
    NormalizerForm,
    PerfForm,
    QualityForm,
    RankingForm,
    RetrievalForm,
    Settings,
)

UNKNOWN_DIGEST = "unknown"

_Path = tuple[str, ...]
# Where a setting stands that changes nothing, and what there is to say.
_Note = tuple[Place, str]


_QUALITY: _Path = ("t2", "quality")
# Where each form stands in the file, by the name that it has in Settings.
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
    """A config as it stands in its file: the path as given, what it says, and its digest."""

    path: str
    data: Mapping[str, Any]
    digest: str
    place: Place


@dataclass(frozen=True)
class Config:
    """A config that was understood, and what there is to say about it."""

    document: Document
    settings: Settings
    notes: tuple[str, ...]


def read_document(path: str) -> Document:
    """Read a config's YAML; the digest is of what it says, not of how it is laid out."""
    file = open_input(path)
    text = file.text()
    # Keys twice, loops and what is no plain data are refused here, and lines noted.
    place = parse_yaml(text, file.name).place
    try:
        # Plain words are read as PyYAML has them, so that digests agree with those published.
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        told = " ".join(str(error).split())
        raise InputError(f"is not valid YAML: {shown(told)}", where=file.name) from None
    if not isinstance(data, dict):
        raise place.error(f"{shown(data)} stands here; a mapping of settings is expected")
    return Document(path, data, digest_of(data), place)


def digest_of(data: Mapping[str, Any]) -> str:
    """The sha256 of what a config says; ``unknown`` where JSON cannot say it.

    >>> digest_of({"k": 1})[:12]
    'a0da1fce57d0'
    """
    try:
        spelled = json.dumps(data, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError):
        return UNKNOWN_DIGEST
    return hashlib.sha256(spelled.encode()).hexdigest()


def read_config(path: str) -> Config:
    """Read a config and say what of it changes nothing."""
    return understood(read_document(path))


def understood(document: Document) -> Config:
    """The settings of a config that are honoured, and a note for every other one."""
    forms: dict[str, Form] = {name: form() for name, form in _SECTIONS.values()}
    notes: list[_Note] = []
    _read_section(document.data, (), document.place, forms, notes)
    settings = Settings(**forms)  # type: ignore[arg-type]
    notes.extend(_without_effect(settings, document.place))
    if document.digest == UNKNOWN_DIGEST:
        notes.append((document.place, f"JSON cannot hold it, so its digest is {UNKNOWN_DIGEST!r}"))
    notes.sort(key=lambda note: note[0].line or 0)
    return Config(document, settings, tuple(f"{place}: {told}" for place, told in notes))


def _read_section(
    data: Mapping[Any, Any], path: _Path, place: Place, forms: dict[str, Form], notes: list[_Note]
) -> None:
    name, form = _SECTIONS[path]
    own: dict[str, Any] = {}
    for key, value in data.items():
        inner = (*path, str(key))
        if inner in _SECTIONS:
            if isinstance(value, Mapping):
                _read_section(value, inner, place, forms, notes)
            elif value is not None:
                what = f"{'.'.join(inner)} is {shown(value)}; a mapping is expected"
                raise place.at(*inner).error(what)
        elif key in expectations(form):
            # A setting without a value is as good as one that is not there.
            own |= {} if value is None else {key: value}
        elif not _done_anyway(inner, value):
            notes.append((place.at(*inner), _told(inner, form)))
    forms[name] = fill(form, own, place.at(*path))


def _done_anyway(path: _Path, value: Any) -> bool:
    name = ".".join(path)
    return name in _DONE_ANYWAY and bool(_DONE_ANYWAY[name] == value)


def _told(path: _Path, form: type[Form]) -> str:
    """Why a setting changes nothing: the harness has no use for it, or nobody knows it."""
    name = ".".join(path)
    if name in _NOT_HONOURED:
        return f"{name} changes nothing here: {_NOT_HONOURED[name]}"
    around = path[:-1]
    known = [*expectations(form), *(one[-1] for one in _SECTIONS if one and one[:-1] == around)]
    told = str(unknown("setting", path[-1], known, inside=name))
    return f"{told}{'' if told.endswith('?') else ';'} it changes nothing"


def _without_effect(settings: Settings, place: Place) -> Iterator[_Note]:
    """Values of known settings that do nothing, told like settings that do nothing."""
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
