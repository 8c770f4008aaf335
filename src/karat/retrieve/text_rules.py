"""Text rules: Unicode form, case and aliases, applied to queries and by word-based retrievers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from karat.errors import UsageError
from karat.formats.settings import ConfigModel, preview, read_yaml

_WORD = re.compile(r"\w+")


class NormaliseOptions(ConfigModel):
    """How texts are normalised before words are compared."""

    unicode: Literal["NFC", "NFKC", "none"] = Field("NFKC", description="NFC, NFKC or none")
    case: Literal["lower", "fold", "none"] = Field("lower", description="lower, fold or none")


_SPACES_ONLY = NormaliseOptions(unicode="none", case="none")


@dataclass(frozen=True)
class TextRules:
    """What is done to queries, and to items by retrievers that compare words.

    Aliases are in lower case, as :func:`text_rules` makes them, and match words whatever their
    case, unless ``normalise`` says ``case: none``.

    >>> TextRules(NormaliseOptions(), {"llm": "large language model"}).apply("An  LLM")
    'an large language model'
    >>> TextRules(aliases={"llm": "large language model"}).apply("An  LLM")
    'An  large language model'
    """

    normalise: NormaliseOptions | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    before: TextRules | None = None

    @property
    def empty(self) -> bool:
        """Whether every text stays as it is."""
        unchanged = self.normalise is None and not self.aliases
        return unchanged and (self.before is None or self.before.empty)

    def after(self, outer: TextRules) -> TextRules:
        """Return these rules behind those of the system around."""
        return self if outer.empty else replace(self, before=outer)

    def apply(self, text: str) -> str:
        """Return the normalised text with each alias replaced once."""
        if self.before is not None:
            text = self.before.apply(text)
        if self.normalise is not None:
            text = normalised(text, self.normalise)
        return self._pattern.sub(self._meaning, text) if self.aliases else text

    def apply_all(self, texts: list[str]) -> list[str]:
        """Apply the rules to many texts."""
        return texts if self.empty else [self.apply(text) for text in texts]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Match phrases and words such as C++, the longest first, then plain words."""
        phrases = [word for word in self.aliases if not _WORD.fullmatch(word)]
        spelled = [
            r"\s+".join(map(re.escape, phrase.split()))
            for phrase in sorted(phrases, key=len, reverse=True)
        ]
        # One group of bare phrases: the expression then looks at no more than their beginnings.
        among = [rf"(?<!\w)(?:{'|'.join(spelled)})(?!\w)"] if spelled else []
        together = "|".join([*among, r"\w+"])
        if self.normalise is not None:
            return re.compile(together)
        # The one capital that is two signs in lower case is not found by those two.
        return re.compile(together.replace("i\u0307", "(?:i\u0307|\u0130)"), re.IGNORECASE)

    def _meaning(self, match: re.Match[str]) -> str:
        return self.aliases.get(_key(match[0], self.normalise), match[0])


def normalised(text: str, how: NormaliseOptions) -> str:
    """Return the text in one Unicode form and case, with single spaces."""
    if how.unicode != "none":
        text = unicodedata.normalize(how.unicode, text)
    if how.case != "none":
        text = text.lower() if how.case == "lower" else text.casefold()
    return " ".join(text.split())


def read_aliases(path: str | Path) -> dict[str, str]:
    """Read a YAML file of aliases, such as ``llm: large language model``."""
    file = read_yaml(path)
    if not isinstance(file.data, dict):
        raise file.place.error(f"a mapping of words to words is expected, not {preview(file.data)}")
    for word, meaning in file.data.items():
        if not isinstance(meaning, str) or not meaning.strip():
            raise file.place.at(word).error(
                f"{word} stands for {preview(meaning)}; text is expected"
            )
    return dict(file.data)


def text_rules(normalise: NormaliseOptions | None, aliases: Mapping[str, str]) -> TextRules:
    """Return the rules, with both sides of every alias normalised like the texts.

    Where texts are not normalised, what an alias stands for keeps its case.
    """
    normalised_aliases: dict[str, str] = {}
    for word, meaning in aliases.items():
        key, to = (normalised(text, normalise or _SPACES_ONLY) for text in (word, meaning))
        key = _key(key, normalise)
        if not key or not to:
            raise UsageError(f"aliases: {word!r} stands for {meaning!r}; both must be text")
        if normalised_aliases.setdefault(key, to) != to:
            raise UsageError(
                f"aliases: {key!r} stands for {normalised_aliases[key]!r} and for {to!r}; keep one"
            )
    return TextRules(normalise, normalised_aliases)


def _key(text: str, normalise: NormaliseOptions | None) -> str:
    """Return what an alias is looked up by: in lower case where case is not normalised."""
    spaced = " ".join(text.split())
    return spaced.lower() if normalise is None else spaced
