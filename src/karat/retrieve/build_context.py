"""The build context: what systems are built with, and the digest of all that a run depends on."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from karat.data.tables import Corpus
from karat.errors import InputError, KaratError, MissingExtraError, UsageError
from karat.jobs.cache import CACHE_FOLDER
from karat.jobs.redaction import Redact, redactor
from karat.retrieve.chunking import chunk_corpus
from karat.retrieve.items import Items
from karat.retrieve.placeholders import credential_names
from karat.retrieve.protocol import Answer, Finder, Hit, Hits, Query
from karat.retrieve.system import System
from karat.retrieve.system_config import SystemConfig, maker
from karat.retrieve.text_rules import TextRules, read_aliases, text_rules
from karat.version import __version__

_SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

# Shorter words may well occur in ids by chance.
_SHORTEST_IN_HITS = 6

# Told what is being built and how much of it is done; for a progress bar.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class BuildContext:
    """What a system is built with.

    ``corpus`` gives the items when a retriever first needs them, ``reading`` says which of its
    columns have other names, ``folder`` is where the
    names in the karat.yaml begin, ``cache`` is where vectors are kept. ``timeout``,
    ``rules`` and ``chunker`` are those of the system being built.
    """

    corpus: Callable[[], Corpus] | None = None
    reading: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)
    cache: Path = Path(CACHE_FOLDER)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    progress: Progress = lambda what, done, total: None
    timeout: float = 30.0
    timeout_given: float | None = None
    rules: TextRules = field(default_factory=TextRules)
    chunker: Mapping[str, Any] | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    # Callables and objects that stand in for the names that systems call.
    objects: Mapping[str, Any] = field(default_factory=dict)
    # The variables among them that hold credentials, not settings.
    credentials: set[str] = field(default_factory=set)
    # What is read once for all systems: the corpus, and its items under each chunker.
    kept: dict[str, Any] = field(default_factory=dict, repr=False)
    # What a system starts, such as a service, is stopped when this is closed.
    ending: ExitStack = field(default_factory=ExitStack, repr=False)

    @contextmanager
    def open(self) -> Iterator[BuildContext]:
        """Yield the same context; what its systems start is stopped at the end of the block."""
        with ExitStack() as ending:
            yield replace(self, ending=ending)

    @property
    def has_corpus(self) -> bool:
        """Whether there is a corpus."""
        return self.corpus is not None

    @property
    def corpus_digest(self) -> str | None:
        """The sha256 of the corpus file."""
        return self._full_corpus().source.digest() if self.has_corpus else None

    @property
    def corpus_name(self) -> str | None:
        """The name of the corpus file."""
        return self._full_corpus().source.name if self.has_corpus else None

    @property
    def items(self) -> Items:
        """The items of the corpus, chunked if the system has a chunker."""
        key = f"items {sorted((self.chunker or {}).items())}"
        if key not in self.kept:
            whole = self._full_corpus()
            cut = whole if self.chunker is None else chunk_corpus(whole, self.chunker)
            self.kept[key] = Items(cut)
        items: Items = self.kept[key]
        return items

    def _full_corpus(self) -> Corpus:
        if self.corpus is None:
            raise UsageError("a corpus is needed; name one in karat.yaml: corpus: items.jsonl")
        if "corpus" not in self.kept:
            self.kept["corpus"] = self.corpus()
        corpus: Corpus = self.kept["corpus"]
        return corpus

    def path(self, name: str) -> Path:
        """Return the path of a file that a karat.yaml names."""
        return self.folder / name

    def expand(self, text: str) -> str:
        """Return the text with each ``${NAME}`` replaced by that environment variable."""
        return _SECRET.sub(self._secret, text)

    def _secret(self, match: re.Match[str]) -> str:
        name = match[1]
        value = self.environment.get(name)
        if not value:
            raise UsageError(
                f"environment variable {name} is not set; it is needed for ${{{name}}}"
            )
        self.secrets[name] = value
        return value

    def redact(self, text: str) -> str:
        """Return the text with every secret replaced by its name."""
        return redactor(self.secrets)(text)

    def hide(self, answers: Iterable[Answer]) -> None:
        """Replace credentials that a service repeats in its answers by their names."""
        known = {name: self.secrets[name] for name in self.credentials & self.secrets.keys()}
        if known:
            redact = _credential_redactor(tuple(sorted(known.items())))
            for answer in answers:
                _redact_answer(answer, redact)

    def build(self, config: SystemConfig) -> System:
        """Build the system of a config, its parts first."""
        self.credentials.update(credential_names(config.spec))
        try:
            rules = self._rules(config)
            inside = self._for_parts(config, rules)
            parts: dict[str, Finder] = {
                name: inside.build(part) for name, part in config.parts.items()
            }
            finder = maker(config.kind).make(config.options, inside, parts)
            return System.of(config, finder, inside, rules)
        except (InputError, MissingExtraError):
            raise
        except KaratError as error:
            raise type(error)(f"{config.place}: system {config.name!r}: {error}") from None

    def _for_parts(self, config: SystemConfig, rules: TextRules) -> BuildContext:
        timeout = self.timeout_given or (
            config.calls.timeout if "timeout" in config.spec else self.timeout
        )
        chunker = config.chunker or self.chunker
        return replace(self, timeout=timeout, chunker=chunker, rules=rules.after(self.rules))

    def _rules(self, config: SystemConfig) -> TextRules:
        setting = config.stages.aliases
        aliases = read_aliases(self.path(setting)) if isinstance(setting, str) else setting or {}
        return text_rules(config.stages.normalise, aliases)


@lru_cache(maxsize=16)
def _credential_redactor(credentials: tuple[tuple[str, str], ...]) -> Redact:
    return redactor(dict(credentials), shortest=_SHORTEST_IN_HITS)


def _redact_answer(answer: Answer, redact: Redact) -> None:
    """Replace credentials in every text of an answer."""
    answer.hits = _redacted(answer.hits, redact)
    answer.lists = {name: _redacted(hits, redact) for name, hits in answer.lists.items()}
    answer.rewritten = answer.rewritten and redact(answer.rewritten)
    answer.source = answer.source and redact(answer.source)


def _redacted(hits: Hits, redact: Redact) -> Hits:
    return [
        Hit._make(redact(value) if isinstance(value, str) else value for value in hit)
        for hit in hits
    ]


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
    digest.update(f"\0{context.corpus_digest}\0{reading}\0".encode())
    for query in queries:
        facts = [query.query_id, query.text, dict(query.attributes)]
        digest.update(json.dumps(facts, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def check_files(config: SystemConfig, context: BuildContext) -> None:
    """Refuse files of a system that cannot be read, without building it."""
    _files(config, context)
    setting = config.stages.aliases
    aliases = read_aliases(context.path(setting)) if isinstance(setting, str) else setting or {}
    try:
        text_rules(config.stages.normalise, aliases)
    except UsageError as error:
        where = f"{config.place}: system {config.name!r}"
        raise UsageError(f"{where}: {error}") from None
    for part in config.parts.values():
        check_files(part, context)


def files_of(config: SystemConfig, context: BuildContext) -> set[Path]:
    """Return the files and folders that a system reads."""
    named = _files(config, context) | _stores(config)
    return {context.path(name) for name in named}


def _files(config: SystemConfig, context: BuildContext) -> set[str]:
    named = {value for value in _texts(config.spec) if _may_be_path(value)}
    lead_to = getattr(maker(config.kind), "files", lambda options, context: ())
    named |= set(lead_to(config.options, context))
    sources = {_source(name, context) for name in named}
    inner = [_files(part, context) for part in config.parts.values()]
    existing = {name for name in sources if _exists(context.path(name))}.union(*inner)
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


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, Mapping) else value
    if not isinstance(value, (Mapping, list)):
        return []
    return [text for inner in inside for text in _texts(inner)]


def _may_be_path(text: str) -> bool:
    return 0 < len(text) < 1000 and "\n" not in text and "\0" not in text and "://" not in text


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
