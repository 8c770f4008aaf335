"""System configs: what a karat.yaml says of its systems, checked before anything is built."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import BeforeValidator, Field, model_validator

from karat.errors import KaratError, UsageError, unknown
from karat.formats.settings import ConfigModel, Place, custom_error, expectations, preview, validate
from karat.jobs.cache import file_sha256
from karat.retrieve.build_context import BuildContext
from karat.retrieve.chunking import Chunker
from karat.retrieve.protocol import Finder, Query
from karat.retrieve.text_rules import NormaliseOptions, TextRules, read_aliases, text_rules
from karat.retrieve.user_code import error_line
from karat.version import __version__

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(pattern=r"\S")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Scalar = str | int | Finite | bool
# Settings that several kinds of retrievers have.
Title = Annotated[bool, Field(description="true to put an item's title before its text, or false")]
ModelName = Annotated[Text | None, Field(description="the name of a fastembed model")]
ModelFolder = Annotated[
    Text | None, Field(description="a folder that holds the model's files; nothing is fetched then")
]
EmbedCall = Annotated[
    Text | None,
    Field(description="file.py:callable or module:callable that makes vectors of texts"),
]
MaxLength = Annotated[
    Count | None,
    Field(description="how many tokens of a text are read, from 1; the model's limit if absent"),
]
Threads = Annotated[Count | None, Field(description="how many threads the model may use, from 1")]
BatchSize = Annotated[
    Count, Field(description="how many texts go through the model at once, from 1")
]
QueryPrefix = Annotated[str, Field(description="text to put before every query")]
# How a corpus was cut: a log says it, so it says something.
Cutting = Annotated[dict[Text, Scalar], Field(min_length=1)]
# A system's name, a retriever's name, or a mapping with a retriever of its own.
Spec = str | dict[str, Any]


class RewriteOptions(ConfigModel):
    """A callable that rewrites the query before the search."""

    call: Text = Field(description="module:callable or file.py:callable")
    both: bool = Field(False, description="true to search for the original text as well")


class LocalModelOptions(ConfigModel):
    """A model that runs on this machine."""

    model: ModelName = None
    path: ModelFolder = None
    max_length: MaxLength = None
    threads: Threads = None


class RerankOptions(LocalModelOptions):
    """A model or a callable that scores the top of the list again."""

    call: Text | None = Field(
        None, description="module:callable or file.py:callable, instead of a model"
    )
    kind: Literal["cross", "bi"] = Field("cross", description="cross or bi")
    top: Count | None = Field(
        None, description="how many hits to rerank, from 1; all of k_raw if absent"
    )

    @model_validator(mode="after")
    def _agree(self) -> RerankOptions:
        set_keys = self.model_fields_set
        if (self.model is None) == (self.call is None):
            both = "both are given" if self.model is not None else "neither is given"
            raise custom_error(f"rerank takes either a model or a call, and {both}")
        of_models = [key for key in ("path", "kind", "max_length", "threads") if key in set_keys]
        if self.call is not None and of_models:
            raise custom_error(f"{of_models[0]} is for a model; leave it out beside call")
        return self


class MmrOptions(ConfigModel):
    """Diversification: relevance against similarity to the hits chosen already."""

    weight: Share = Field(
        0.5,
        alias="lambda",
        description="a share from 0 to 1: of relevance, or with variant ab of diversity",
    )
    variant: Literal["textbook", "ab"] = Field("textbook", description="textbook or ab")
    top: Count | None = Field(
        None, description="how many places to fill this way, from 1; all if absent"
    )


def refuse(*whys: str | bool | None) -> None:
    """Refuse a form for the first of some reasons that is a text."""
    for why in whys:
        if isinstance(why, str) and why:
            raise custom_error(why)


def _one_or_mapping(value: Any) -> Any:
    return {"call": value} if isinstance(value, str) else value


def _true_or_mapping(value: Any) -> Any:
    return {} if value is True else None if value is False else value


class StagesOptions(ConfigModel):
    """What happens before and after retrieving, in order."""

    k: Count | None = Field(
        None, description="how many hits to return, a whole number from 1; 50 if absent"
    )
    k_raw: Count | None = Field(
        None, description="how many hits to retrieve before later stages, from 1"
    )
    normalise: Annotated[NormaliseOptions | None, BeforeValidator(_true_or_mapping)] = Field(
        None, description="true, or a mapping with unicode and case"
    )
    aliases: dict[str, str] | Text | None = Field(
        None, description="a mapping of words to what they stand for, or a YAML file of one"
    )
    rewrite: Annotated[RewriteOptions | None, BeforeValidator(_one_or_mapping)] = Field(
        None, description="module:callable, or a mapping with call and both"
    )
    filter: dict[str, Scalar | list[Scalar]] = Field(
        default_factory=dict,
        description="a mapping of attributes to values, lists of values or {column} of the query",
    )
    as_of: bool | Literal["strict"] = Field(
        False, description="true, or strict to drop items of unknown version too"
    )
    threshold: Finite | None = Field(None, description="the lowest score that is kept, a number")
    rerank: RerankOptions | None = Field(None, description="a mapping with a model or a call")
    distinct_docs: Finite | None = Field(
        None, description="what the first item of each document gains, a number such as 0.2"
    )
    mmr: Annotated[MmrOptions | None, BeforeValidator(_true_or_mapping)] = Field(
        None, description="true, or a mapping with lambda and variant"
    )


class CallsOptions(ConfigModel):
    """How a system is called, and what the log says of it."""

    concurrency: Annotated[int, Field(ge=1, le=256)] | None = Field(
        None, description="how many calls may run at once, from 1 to 256"
    )
    batch: Count | None = Field(None, description="how many queries to search for at once, from 1")
    rate: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description="the highest number of calls per second, above 0"
    )
    timeout: Seconds = Field(30.0, description="seconds that one call may take, above 0")
    retries: Annotated[int, Field(ge=0, le=100)] = Field(
        3, description="how often to try again what may pass later, from 0 to 100"
    )
    max_failures: Share = Field(
        0.05, description="the share of failed calls past which the run is partial"
    )
    index_version: Text | None = Field(None, description="the version of the index, as text")
    chunker: Cutting | None = Field(
        None, description="a mapping with algo, such as {algo: fixed, size: 1200, overlap: 200}"
    )
    chunked: Cutting | None = Field(
        None,
        description="a mapping that says how the corpus was cut before, for the log: names with "
        "texts, finite numbers or true and false",
    )


GROUP = "karat.retrievers"


class Kind(NamedTuple):
    """What a kind of retriever is; a live one depends on something that no digest covers."""

    about: str
    live: bool = False


# Each is the module of its name in this package.
KINDS: dict[str, Kind] = {
    "bm25": Kind("words, ranked by BM25 (bm25s)"),
    "bow": Kind("words, ranked by the cosine of their counts"),
    "vsa": Kind("hypervectors of words, ranked by cosine"),
    "dense": Kind("embeddings, searched exactly (fastembed)"),
    "sparse": Kind("sparse embeddings (fastembed)"),
    "fuse": Kind("several retrievers' lists made one"),
    "route": Kind("one of several retrievers, chosen query by query"),
    "quality": Kind("a config of karat ab's engine"),
    "http": Kind("any search service over HTTP", live=True),
    "python": Kind("a callable of yours", live=True),
    "langchain": Kind("a LangChain retriever", live=True),
    "qdrant": Kind("a Qdrant collection", live=True),
    "pgvector": Kind("a table of pgvector", live=True),
    "chroma": Kind("a Chroma collection", live=True),
}


class Maker(Protocol):
    """What the module of a kind offers."""

    Options: type[ConfigModel]

    def make(self, options: Any, context: BuildContext, parts: Mapping[str, Finder]) -> Finder: ...


def is_live(name: str) -> bool:
    """Return whether a kind asks something outside karat; a plugin's kind may."""
    return name not in KINDS or KINDS[name].live


@cache
def known_kinds() -> tuple[str, ...]:
    """Return the names of all kinds, those of plugins last."""
    plugins = sorted(entry.name for entry in entry_points(group=GROUP))
    return (*KINDS, *(name for name in plugins if name not in KINDS))


def maker(name: str) -> Maker:
    """Return the module of a kind."""
    if name in KINDS:
        built_in: Any = importlib.import_module(f"karat.retrieve.{name}")
        return built_in  # type: ignore[no-any-return]
    entry = next(iter(entry_points(group=GROUP, name=name)), None)
    if entry is None:
        raise unknown("retriever", name, known_kinds())
    try:
        loaded: Any = entry.load()
    except Exception as error:
        raise UsageError(
            f"retriever {name!r} ({entry.value}) fails: {error_line(error)}"
        ) from error
    for needed in ("Options", "make"):
        if not hasattr(loaded, needed):
            raise UsageError(
                f"retriever {name!r} ({entry.value}) has no {needed}; it is not a karat retriever"
            )
    return loaded  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class SystemConfig:
    """One system, or one part of one: its retriever, its stages and its limits."""

    name: str
    kind: str
    options: ConfigModel
    stages: StagesOptions
    calls: CallsOptions
    parts: Mapping[str, SystemConfig]
    spec: Mapping[str, Any]
    place: Place

    @property
    def live(self) -> bool:
        """Whether it depends on something that no digest covers."""
        return is_live(self.kind) or any(part.live for part in self.parts.values())

    @property
    def chunker(self) -> Mapping[str, Any] | None:
        """How the corpus is chunked for it; a live system's chunker is for the log only."""
        return None if is_live(self.kind) else self.calls.chunker

    def meaning(self) -> dict[str, Any]:
        """Return the settings, with systems that are named in them written out."""
        if not self.parts:
            return dict(self.spec)
        return {**self.spec, "parts": {name: part.meaning() for name, part in self.parts.items()}}

    @property
    def digest(self) -> str:
        """The sha256 of the meaning; it holds no secrets."""
        meaning = json.dumps(self.meaning(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(meaning.encode()).hexdigest()


def parse_systems(systems: Mapping[str, Any], place: Place) -> dict[str, SystemConfig]:
    """Check every system of a karat.yaml; errors carry the line."""
    reader = _Reader(systems, place)
    return {name: reader.system(name, ()) for name in systems}


@dataclass(frozen=True)
class _Reader:
    systems: Mapping[str, Any]
    place: Place

    def system(self, name: str, around: tuple[str, ...]) -> SystemConfig:
        if name in around:
            chain = " → ".join((*around, name))
            raise self.place.at(around[0]).error(f"system {around[0]!r} contains itself: {chain}")
        return self.read(name, self.systems[name], self.place.at(name), (*around, name))

    def part(self, name: str, spec: Spec, place: Place, around: tuple[str, ...]) -> SystemConfig:
        """A part by name (of a system, else of a kind) or as a mapping."""
        if not isinstance(spec, str):
            part_config = self.read(name, spec, place, around)
            for key in part_config.spec:
                if key in CallsOptions.model_fields and key not in ("chunker", "chunked"):
                    raise place.at(key).error(
                        f"{key} names a system; give it to the system, not to a part"
                    )
            return part_config
        # A system may be called like the kind that it uses.
        if spec in self.systems and (spec != around[-1] or spec not in known_kinds()):
            return self.system(spec, around)
        return self.read(name, {"retriever": spec}, place, around)

    def read(self, name: str, spec: Any, place: Place, around: tuple[str, ...]) -> SystemConfig:
        if not isinstance(spec, dict):
            raise place.error(
                f"{name} is {preview(spec)}; a mapping is expected, such as {{retriever: bm25}}"
            )
        kind = spec.get("retriever")
        if not isinstance(kind, str):
            raise place.at("retriever").error(
                f"{name} has no retriever; name one of {', '.join(known_kinds())}"
            )
        if kind not in known_kinds() and kind in self.systems:
            return self._wrapped(name, kind, spec, place, around)
        try:
            made_by = maker(kind)
        except KaratError as error:
            raise place.at("retriever").error(str(error)) from None
        stages, calls, settings = _split(spec)
        _refuse_unknown(settings, expectations(made_by.Options), kind, place)
        options = validate(made_by.Options, settings, place)
        listed = isinstance(settings.get("of"), list)
        parts_of: Any = getattr(made_by, "parts", lambda options: {})
        parts = {
            part: self.part(part, part_spec, place.at("of", at if listed else part), around)
            for at, (part, part_spec) in enumerate(parts_of(options).items())
        }
        called = validate(CallsOptions, calls, place)
        stage_options = validate(StagesOptions, stages, place)
        if stage_options.k and stage_options.k_raw and stage_options.k_raw < stage_options.k:
            values = f"k_raw is {stage_options.k_raw} and k {stage_options.k}"
            raise place.at("k_raw").error(f"{values}; k_raw is what k is cut from")
        if called.chunker is not None and not is_live(kind):
            Chunker.of(called.chunker, place.at("chunker"))
        if called.chunker is not None and called.chunked is not None:
            raise place.at("chunked").error(
                "chunked says how the corpus was cut before, and chunker cuts it; keep one"
            )
        return SystemConfig(name, kind, options, stage_options, called, parts, spec, place)

    def _wrapped(
        self, name: str, inner: str, spec: Mapping[str, Any], place: Place, around: tuple[str, ...]
    ) -> SystemConfig:
        """Stages around another system: ``retriever`` is its name."""
        _refuse_unknown(_split(spec)[2], (), inner, place)
        # Limits such as a rate apply to whatever calls the inner system.
        of_inner = self.systems[inner] if isinstance(self.systems[inner], dict) else {}
        limits = {key: value for key, value in of_inner.items() if key in CallsOptions.model_fields}
        alone = {**limits, **spec, "retriever": "fuse", "of": [inner]}
        return self.read(name, alone, place, around)


_OF_STAGES, _OF_CALLS = expectations(StagesOptions), expectations(CallsOptions)


def _refuse_unknown(
    settings: Mapping[str, Any], known: Iterable[str], kind: str, place: Place
) -> None:
    """Refuse a key that is neither the retriever's own nor one of every system."""
    names = [*known, *_OF_STAGES, *_OF_CALLS]
    for key in settings:
        if key not in names:
            raise place.at(key).error(str(unknown("key", key, names, inside=f"retriever: {kind}")))


def _split(spec: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Split a system's keys into those of its stages, its calls and its retriever."""
    settings = {
        key: value for key, value in spec.items() if key != "retriever" and value is not None
    }
    stages = {key: settings.pop(key) for key in _OF_STAGES if key in settings}
    calls = {key: settings.pop(key) for key in _OF_CALLS if key in settings}
    return stages, calls, settings


# Larger files are identified by size and time: no model is that large, a store may be.
_LARGEST = 2_000_000_000
# Counts up when the same files would be read differently.
_READING = 2


def run_digest(
    config: SystemConfig, context: BuildContext, queries: Sequence[Query], *, k: int
) -> str:
    """Return the sha256 of all that a log depends on; ``k`` is for a system that sets none."""
    cutoff = config.stages.k or k
    digest = hashlib.sha256(f"karat {__version__}\0{_READING}\0{cutoff}\0{config.digest}".encode())
    for name in sorted(_files(config, context)):
        digest.update(f"\0{name}\0{_state(context.path(name))}".encode())
    reading = json.dumps(dict(context.reading), sort_keys=True)
    corpus = context.corpus_source
    corpus_digest = None if corpus is None else corpus.digest()
    digest.update(f"\0{corpus_digest}\0{reading}\0".encode())
    for query in queries:
        facts = [query.query_id, query.text, dict(query.attributes)]
        digest.update(json.dumps(facts, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def rules_of(config: SystemConfig, context: BuildContext) -> TextRules:
    """Return the rules for texts of a system's own settings."""
    setting = config.stages.aliases
    aliases = read_aliases(context.path(setting)) if isinstance(setting, str) else setting or {}
    try:
        return text_rules(config.stages.normalise, aliases)
    except UsageError as error:
        where = f"{config.place}: system {config.name!r}"
        raise UsageError(f"{where}: {error}") from None


def check_files(config: SystemConfig, context: BuildContext) -> None:
    """Refuse files of a system that cannot be read, without building it."""
    _files(config, context)
    rules_of(config, context)
    for part in config.parts.values():
        check_files(part, context)


def files_of(config: SystemConfig, context: BuildContext) -> set[Path]:
    """Return the files and folders that a system reads."""
    return {context.path(name) for name in _files(config, context) | _stores(config)}


def _files(config: SystemConfig, context: BuildContext) -> set[str]:
    """Return the names of the files that decide what a system returns."""
    lead_to = getattr(maker(config.kind), "files", lambda options, context: ())
    names = {*_texts(config.spec), *lead_to(config.options, context)}
    sources = {_source(name, context) for name in names}
    inner = [_files(part, context) for part in config.parts.values()]
    # Path.exists fails for a text that is too long for a file name.
    existing = {name for name in sources if os.path.exists(context.path(name))}  # noqa: PTH110
    existing = existing.union(*inner)
    return existing - _stores(config)


def _source(name: str, context: BuildContext) -> str:
    """Return the file of ``file.py:callable`` or ``module:callable``; any other name as it is."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not attribute.isidentifier():
        return name
    if place.endswith(".py"):
        return place
    steps = place.replace(".", "/")
    for beside in (f"{steps}.py", f"{steps}/__init__.py"):
        if context.path(beside).is_file():
            return beside
    try:
        spec = find_spec(place)
    except (ImportError, ValueError):
        spec = None
    return name if spec is None or spec.origin is None else spec.origin


def _stores(config: SystemConfig) -> set[str]:
    """Return folders of live stores, whose files change by being read."""
    keys = getattr(maker(config.kind), "STORES", ())
    folders = {config.spec[key] for key in keys if isinstance(config.spec.get(key), str)}
    return folders.union(*(_stores(part) for part in config.parts.values()))


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a setting that may name a file."""
    if isinstance(value, str):
        if value and not any(sign in value for sign in ("\n", "\0", "://")):
            yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


def _state(path: Path) -> str:
    """Return what a file holds, or the files of a folder and of a model's ``onnx`` folder in it."""
    if path.is_file():
        return _content(path)
    files = [*path.iterdir(), *(path / "onnx").glob("*")]
    return repr(
        sorted(
            (file.name, _content(file))
            for file in files
            if file.is_file() and not file.name.startswith(".")
        )
    )


def _content(path: Path) -> str:
    """Return the sha256 of a file; of a very large one its size and time."""
    stat = path.stat()
    if stat.st_size > _LARGEST:
        return f"{stat.st_size} {stat.st_mtime_ns}"
    return file_sha256(path)
