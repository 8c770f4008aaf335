"""May a project under the Apache License 2.0 depend on what karat installs?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import Distribution
from typing import NamedTuple

# Anyone may use, change and pass these on; they ask for their notice to be kept.
FREE = {
    "0BSD", "APACHE-2.0", "BSD-2-CLAUSE", "BSD-3-CLAUSE", "CC0-1.0", "ISC", "MIT", "MIT-0",
    "MIT-CMU", "PSF-2.0", "UNLICENSE", "ZLIB",
}  # fmt: skip
# Changes to these must be passed on under the same terms. karat neither changes nor ships them:
# they are packages of their own, which a user can replace.
KEPT_APART = {"LGPL-2.1", "LGPL-3.0", "MPL-2.0"}

# What authors write where an identifier should stand, as pieces of small letters.
WORDS = (
    ("affero", "AGPL-3.0"),
    ("lesser general public", "LGPL-3.0"),
    ("general public", "GPL-3.0"),
    ("mozilla public license 2.0", "MPL-2.0"),
    ("apache software license", "APACHE-2.0"),
    ("apache license, version 2", "APACHE-2.0"),
    ("apache license 2", "APACHE-2.0"),
    ("apache 2", "APACHE-2.0"),
    ("python software foundation", "PSF-2.0"),
    ("isc license", "ISC"),
    ("mit license", "MIT"),
    ("bsd license", "BSD-3-CLAUSE"),
)
# Packages whose metadata name no licence, and the one that their licence file holds.
READ_BY_HAND = {"py-rust-stemmers": "MIT"}


class Licence(NamedTuple):
    package: str
    version: str
    said: str
    verdict: str  # free, kept apart, or unfit


def licences(packages: dict[str, Distribution | None]) -> list[Licence]:
    """The licence of every package that is installed."""
    return [_licence(name, held) for name, held in packages.items() if held is not None]


def _licence(name: str, held: Distribution) -> Licence:
    said = _said(held) or READ_BY_HAND.get(name, "")
    return Licence(name, held.version, said or "none named", judge(said))


def _said(held: Distribution) -> str:
    """The licence in the package's metadata: an expression, else classifiers, else a short text."""
    fields = held.metadata
    expression = fields.get("License-Expression")
    if expression:
        return str(expression)
    kinds = [str(one).split(" :: ") for one in fields.get_all("Classifier") or []]
    named = [kind[-1] for kind in kinds if kind[0] == "License" and len(kind) > 2]
    text = str(fields.get("License") or "").strip()
    return " AND ".join(named) or (text if "\n" not in text else text.splitlines()[0])


def judge(said: str) -> str:
    """What an expression allows: all of its parts count for AND, the best of them for OR.

    >>> judge("MPL-2.0 AND (Apache-2.0 OR GPL-3.0-only)")
    'kept apart'
    >>> judge("GPL-3.0-only"), judge("Our own terms"), judge("")
    ('unfit', 'unfit', 'unfit')
    """
    flat = re.sub(r"\(([^()]*)\)", lambda part: _best_of(part.group(1)), said)
    return _worst(_verdict(_best_of(part)) for part in re.split(r"(?i)\s+and\s+", flat))


def _best_of(choice: str) -> str:
    """The freest of alternatives."""
    order = ["free", "kept apart", "unfit"]
    parts = re.split(r"(?i)\s+or\s+(?!later)", choice)
    return min(parts, key=lambda part: order.index(_verdict(part)))


def _worst(verdicts: Iterable[str]) -> str:
    found = set(verdicts)
    return next(one for one in ("unfit", "kept apart", "free") if one in found)


def _verdict(said: str) -> str:
    one = _identifier(said)
    return "free" if one in FREE else "kept apart" if one in KEPT_APART else "unfit"


def _identifier(said: str) -> str:
    """The identifier that words about a licence mean, in capitals."""
    short = re.sub(r"-(only|or-later)$", "", said.strip().strip("()"), flags=re.IGNORECASE).upper()
    if short in FREE | KEPT_APART:
        return short
    if re.fullmatch(r"(?i)(new |3-clause |modified )?bsd( license)?", said.strip()):
        return "BSD-3-CLAUSE"
    low = said.casefold()
    return next((one for words, one in WORDS if words in low), short)
