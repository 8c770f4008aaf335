"""Where systems are built: what their parts share, and how names and secrets are looked up."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from karat.errors import InputError, KaratError, MissingExtraError, UsageError
from karat.own_folder import OWN_FOLDER
from karat.retrievers.blueprints import Blueprint
from karat.retrievers.chunkers import chunk_corpus
from karat.retrievers.items import Items
from karat.retrievers.kinds import maker
from karat.retrievers.protocol import Answer, Finder
from karat.retrievers.secrets import credential_names, hide_in_answer, redactor
from karat.retrievers.system import System
from karat.retrievers.texts import TextRules, read_aliases, text_rules
from karat.tables import Corpus

_SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

# Shorter words may well occur in ids by chance.
_SHORTEST_IN_HITS = 6

# Told what is being built and how much of it is done; for a progress bar.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Workshop:
    """What a system is built with.

    ``corpus`` gives the items when a retriever first needs them, ``reading`` says which of its
    columns have other names, ``folder`` is where the
    names in the karat.yaml begin, ``cache`` is where vectors are kept. ``timeout``,
    ``rules`` and ``chunker`` are those of the system being built.
    """

    corpus: Callable[[], Corpus] | None = None
    reading: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)
    cache: Path = Path(OWN_FOLDER)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    progress: Progress = lambda what, done, total: None
    timeout: float = 30.0
    timeout_given: float | None = None
    rules: TextRules = field(default_factory=TextRules)
    chunker: Mapping[str, Any] | None = None
    secrets: dict[str, str] = field(default_factory=dict)
    # The variables among them that hold credentials, not settings.
    credentials: set[str] = field(default_factory=set)
    # What is read once for all systems: the corpus, and its items under each chunker.
    kept: dict[str, Any] = field(default_factory=dict, repr=False)
    # What a system starts, such as a service, is stopped when this is closed.
    ending: ExitStack = field(default_factory=ExitStack, repr=False)

    @contextmanager
    def open(self) -> Iterator[Workshop]:
        """The same workshop for a while: what its systems start is stopped at the end."""
        with ExitStack() as ending:
            yield replace(self, ending=ending)

    @property
    def has_corpus(self) -> bool:
        """Whether items can be looked up at all."""
        return self.corpus is not None

    @property
    def corpus_digest(self) -> str | None:
        """The sha256 of the corpus's file."""
        return self._whole().source.digest() if self.has_corpus else None

    @property
    def corpus_name(self) -> str | None:
        """What the corpus's file is called."""
        return self._whole().source.name if self.has_corpus else None

    @property
    def items(self) -> Items:
        """The items of the corpus, cut into chunks if the system has a chunker."""
        key = f"items {sorted((self.chunker or {}).items())}"
        if key not in self.kept:
            whole = self._whole()
            cut = whole if self.chunker is None else chunk_corpus(whole, self.chunker)
            self.kept[key] = Items(cut)
        items: Items = self.kept[key]
        return items

    def _whole(self) -> Corpus:
        if self.corpus is None:
            raise UsageError("a corpus is needed; name one in karat.yaml: corpus: items.jsonl")
        if "corpus" not in self.kept:
            self.kept["corpus"] = self.corpus()
        corpus: Corpus = self.kept["corpus"]
        return corpus

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
        return redactor(self.secrets)(text)

    def hide(self, answers: Iterable[Answer]) -> None:
        """Put names in place of credentials that a service repeats in its answers."""
        known = {name: self.secrets[name] for name in self.credentials & self.secrets.keys()}
        if known:
            hide = _hider(tuple(sorted(known.items())))
            for answer in answers:
                hide_in_answer(answer, hide)

    def build(self, blueprint: Blueprint) -> System:
        """The system of a blueprint, ready to be asked; its parts are built first."""
        self.credentials.update(credential_names(blueprint.spec))
        try:
            own = self._rules(blueprint)
            here = self._inside(blueprint, own)
            parts: dict[str, Finder] = {
                name: here.build(part) for name, part in blueprint.parts.items()
            }
            finder = maker(blueprint.kind).make(blueprint.options, here, parts)
            return System.of(blueprint, finder, here, own)
        except (InputError, MissingExtraError):
            raise
        except KaratError as error:
            raise type(error)(f"{blueprint.place}: system {blueprint.name!r}: {error}") from None

    def _inside(self, blueprint: Blueprint, own: TextRules) -> Workshop:
        """The same workshop with what a system says for itself and its parts."""
        said = self.timeout_given or (
            blueprint.calls.timeout if "timeout" in blueprint.spec else self.timeout
        )
        chunker = blueprint.chunker or self.chunker
        return replace(self, timeout=said, chunker=chunker, rules=own.after(self.rules))

    def _rules(self, blueprint: Blueprint) -> TextRules:
        given = blueprint.stages.aliases
        aliases = read_aliases(self.path(given)) if isinstance(given, str) else given or {}
        return text_rules(blueprint.stages.normalise, aliases)


@lru_cache(maxsize=16)
def _hider(credentials: tuple[tuple[str, str], ...]) -> Callable[[str], str]:
    return redactor(dict(credentials), shortest=_SHORTEST_IN_HITS)
