"""The YAML config of ``karat ab``: which settings have an effect, and notes on all others.

A config is written for a whole engine, of which retrieving is a part. Settings that change
nothing here are listed one by one, with their line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from karat.errors import InputError
from karat.formats.files import open_input
from karat.formats.settings import Form, Place, expectations, explain_error, parse_yaml, preview
from karat.retrieve.system_config import Count, Finite, Share, Text

FUSES = "score_interp"


def _at(path: str, default: Any, description: str) -> Any:
    return Field(default, alias=path, description=description)


class QualitySettings(Form):
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


@dataclass(frozen=True)
class QualityConfig:
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
        mode = f"t2.quality.fusion.mode {settings.fusion_mode!r}"
        notes.append(
            (
                document.place.at("t2", "quality", "fusion", "mode"),
                f"{mode} does nothing; {FUSES} is what fuses",
            )
        )
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
