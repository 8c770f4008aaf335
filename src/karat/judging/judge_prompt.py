"""The prompt of a judge: the one that ships with karat, or one of your own."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from karat.errors import InputError
from karat.formats.files import open_input
from karat.judging.judge_pairs import Pair

SHIPPED = Path(__file__).with_name("prompt.md")
_FILLED = ("query", "text")
# Braces around anything but a plain word are JSON, as in {"relevance": 2}.
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Prompt:
    """A template with ``{query}`` and ``{text}`` in it."""

    template: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the template: another prompt is another judge."""
        return hashlib.sha256(self.template.encode()).hexdigest()

    def filled(self, pair: Pair) -> str:
        """The prompt for one pair; braces inside its texts stay as they are."""
        texts = {"query": pair.query, "text": pair.text}
        return _PLACEHOLDER.sub(lambda found: texts[found[1]], self.template)


def read_prompt(path: str | Path | None = None) -> Prompt:
    """Read a prompt, or the shipped one; it must have both placeholders and no other."""
    file = open_input(SHIPPED if path is None else path)
    template = file.text()
    found = {match[1]: match.start() for match in _PLACEHOLDER.finditer(template)}
    lacking = [name for name in _FILLED if name not in found]
    if lacking:
        raise InputError(
            f"has no {{{lacking[0]}}}; a prompt says with {{query}} and {{text}} where they stand",
            where=file.name,
        )
    other = next((name for name in found if name not in _FILLED), None)
    if other is not None:
        raise InputError(
            f"{{{other}}} stands for nothing; {{query}} and {{text}} are filled in",
            where=file.name,
            line=template.count("\n", 0, found[other]) + 1,
        )
    return Prompt(template)
