"""Where systems are built: what their parts share, and how names and secrets are looked up."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from karat.errors import InputError, KaratError, MissingExtraError, UsageError
from karat.retrievers.blueprints import Blueprint
from karat.retrievers.items import Items
from karat.retrievers.kinds import maker
from karat.retrievers.protocol import Finder
from karat.retrievers.texts import TextRules, read_aliases, text_rules
from karat.tables import Corpus

if TYPE_CHECKING:
    from karat.retrievers.system import System

_SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

# Larger files are told apart by their size and time: no model is that large, a store may be.
_LARGEST = 2_000_000_000

# Told what is being built and how much of it is done; for a progress bar.
Progress = Callable[[str, int, int], None]


@dataclass(eq=False)
class Workshop:
    """What a system is built with.

    ``corpus`` gives the items when a retriever first needs them, ``folder`` is where the
    names in the karat.yaml begin, ``cache`` is where vectors are kept. ``chunker`` and
    ``rules`` are those of the system being built.
    """

    corpus: Callable[[], Corpus] | None = None
    folder: Path = field(default_factory=Path)
    cache: Path = Path(".karat")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    progress: Progress = lambda what, done, total: None
    timeout: float = 30.0
    timeout_given: float | None = None
    rules: TextRules = field(default_factory=TextRules)
    secrets: dict[str, str] = field(default_factory=dict)
    _chunked: dict[str, Items] = field(default_factory=dict)
    _chunker: Mapping[str, Any] | None = None

    @cached_property
    def _whole(self) -> Corpus:
        if self.corpus is None:
            raise UsageError("a corpus is needed; name one in karat.yaml: corpus: items.jsonl")
        return self.corpus()

    @property
    def has_corpus(self) -> bool:
        """Whether items can be looked up at all."""
        return self.corpus is not None

    @property
    def corpus_digest(self) -> str | None:
        """The sha256 of the corpus's file."""
        return self._whole.source.digest() if self.has_corpus else None

    @property
    def items(self) -> Items:
        """The items of the corpus, cut into chunks if the system has a chunker."""
        key = repr(sorted((self._chunker or {}).items()))
        if key not in self._chunked:
            corpus = self._whole
            if self._chunker is not None:
                from karat.retrievers.chunkers import chunk_corpus

                corpus = chunk_corpus(corpus, self._chunker)
            self._chunked[key] = Items(corpus)
        return self._chunked[key]

    def path(self, name: str) -> Path:
        """A file that a karat.yaml names, as seen from here."""
        return self.folder / name

    def expand(self, text: str) -> str:
        """The text with each ``${NAME}`` replaced by that environment variable."""
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
        """The text with every secret that was looked up replaced by its name."""
        for name, value in sorted(self.secrets.items(), key=lambda one: -len(one[1])):
            text = text.replace(value, f"${{{name}}}")
        return text

    def build(self, blueprint: Blueprint) -> System:
        """The system of a blueprint, ready to be asked; its parts are built first."""
        from karat.retrievers.system import System

        before = self._chunker, self.rules, self.timeout
        if blueprint.calls.chunker is not None:
            self._chunker = blueprint.calls.chunker
        if "timeout" in blueprint.spec or self.timeout_given is not None:
            self.timeout = self.timeout_given or blueprint.calls.timeout
        try:
            own = self._rules(blueprint)
            self.rules = own.after(self.rules)
            parts: dict[str, Finder] = {
                name: self.build(part) for name, part in blueprint.parts.items()
            }
            finder = maker(blueprint.kind).make(blueprint.options, self, parts)
            return System.of(blueprint, finder, self, own)
        except (InputError, MissingExtraError):
            raise
        except KaratError as error:
            raise type(error)(f"{blueprint.place}: system {blueprint.name!r}: {error}") from None
        finally:
            self._chunker, self.rules, self.timeout = before

    def _rules(self, blueprint: Blueprint) -> TextRules:
        given = blueprint.stages.aliases
        aliases = read_aliases(self.path(given)) if isinstance(given, str) else given or {}
        return text_rules(blueprint.stages.normalise, aliases)

    def digest(self, blueprint: Blueprint) -> str:
        """The sha256 of what the system is and of every file that it names."""
        digest = hashlib.sha256(blueprint.digest.encode())
        for path in sorted(self._files(blueprint)):
            digest.update(f"\0{path}\0{_state(self.path(path))}".encode())
        return digest.hexdigest()

    def _files(self, blueprint: Blueprint) -> set[str]:
        named = {value for value in _texts(blueprint.spec) if _may_be_path(value)}
        found = {name.partition(":")[0] if ".py:" in name else name for name in named}
        inner = [self._files(part) for part in blueprint.parts.values()]
        there = {name for name in found if self.path(name).exists()}.union(*inner)
        return there - _stores(blueprint)


def _stores(blueprint: Blueprint) -> set[str]:
    """Folders of live stores, whose files change by being read: a kind names their keys."""
    keys = getattr(maker(blueprint.kind), "STORES", ())
    own = {blueprint.spec[key] for key in keys if isinstance(blueprint.spec.get(key), str)}
    return own.union(*(_stores(part) for part in blueprint.parts.values()))


def _texts(value: Any) -> list[str]:
    """Every text anywhere in a setting."""
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, Mapping) else value
    if not isinstance(value, (Mapping, list)):
        return []
    return [text for one in inside for text in _texts(one)]


def _may_be_path(text: str) -> bool:
    return 0 < len(text) < 1000 and "\n" not in text and "\0" not in text and "://" not in text


def _state(path: Path) -> str:
    """What a file holds, or the files of a folder and of a model's ``onnx`` folder in it."""
    if path.is_file():
        return _content(path)
    files = [*path.iterdir(), *(path / "onnx").glob("*")]
    return repr(
        sorted(
            (one.name, _content(one))
            for one in files
            if one.is_file() and not one.name.startswith(".")
        )
    )


def _content(path: Path) -> str:
    """The sha256 of a file, or of a very large one its size and time."""
    stat = path.stat()
    if stat.st_size > _LARGEST:
        return f"{stat.st_size} {stat.st_mtime_ns}"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
