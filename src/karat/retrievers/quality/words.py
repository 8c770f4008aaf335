"""Texts as the words that an A/B harness compares: normalised, stopped, and with aliases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from karat.retrievers.forms import NormaliseForm
from karat.retrievers.quality.forms import Settings
from karat.retrievers.texts import normalised, read_aliases

STOP_WORDS: Mapping[str, frozenset[str]] = {
    "en-basic": frozenset(("a", "an", "the", "of", "to", "in", "and", "or")),
    "none": frozenset(),
}
_BETWEEN_WORDS = re.compile(r"[^0-9A-Za-z]+")
# What an alias stands for may be a name with underscores, which stay.
_BETWEEN_MEANINGS = re.compile(r"[^0-9A-Za-z_]+")
_ALIKE = NormaliseForm(unicode="NFKC", case="lower")


@dataclass(frozen=True)
class WordRules:
    """How a text becomes words, queries and items alike.

    ``letters`` cuts at everything but the letters a to z and digits, else texts are cut at
    spaces only.

    >>> WordRules(aliases={"llm": ("large", "language", "model")}).words("An LLM, in_short")
    ['large', 'language', 'model', 'short']
    """

    letters: bool = True
    stop: frozenset[str] = STOP_WORDS["en-basic"]
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def words(self, text: str) -> list[str]:
        """The words of a text in their order; each alias is followed once."""
        found: list[str] = []
        for word in self._plain(text):
            found.extend(self.aliases.get(word, (word,)))
        return found

    def _plain(self, text: str) -> list[str]:
        alike = made_alike(text)
        parts = _BETWEEN_WORDS.split(alike) if self.letters else alike.split()
        return [part for part in parts if part and part not in self.stop]

    def unreachable(self) -> list[str]:
        """The aliases that no text can hold, for no text has such a word."""
        return [word for word in self.aliases if self._plain(word) != [word]]

    def notes(self) -> list[str]:
        """A line for each such alias."""
        return [
            f"alias {word!r} matches nothing: no text has such a word"
            for word in self.unreachable()
        ]


def word_rules(settings: Settings, folder: Path) -> WordRules:
    """The rules of a config; the file of aliases, seen from a folder, is read if it is of use."""
    named = settings.alias_file
    aliases = {} if named is None else read_aliases(folder / named)
    return WordRules(
        letters=settings.normalizer.enabled,
        stop=STOP_WORDS[settings.lexical.stopwords],
        aliases={word: _meaning(to) for word, to in aliases.items()},
    )


def made_alike(text: str) -> str:
    """The text in one Unicode form, lower case and with single spaces.

    >>> made_alike("  Apple   TART ")
    'apple tart'
    """
    return normalised(text, _ALIKE)


def _meaning(text: str) -> tuple[str, ...]:
    return tuple(word for word in _BETWEEN_MEANINGS.split(made_alike(text)) if word)
