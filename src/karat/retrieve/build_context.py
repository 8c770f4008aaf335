"""The build context: what systems are built with."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from karat.data.tables import Corpus
from karat.errors import UsageError
from karat.jobs.cache import CACHE_FOLDER
from karat.jobs.redaction import Redact, redactor
from karat.retrieve.chunking import chunk_corpus
from karat.retrieve.items import Items
from karat.retrieve.protocol import Answer, Hit, Hits, Progress
from karat.retrieve.text_rules import TextRules

_SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

# Shorter words may well occur in ids by chance.
_SHORTEST_IN_HITS = 6


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
