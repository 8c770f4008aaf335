"""Secrets in texts that come back from services and libraries, replaced by their names."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote, quote_plus

Redact = Callable[[str], str]


def redactor(
    secrets: Mapping[str, str],
    *,
    shortest: int = 1,
    whole_words_below: int = 0,
    ignore_case: bool = False,
) -> Redact:
    """Return a function that replaces secrets by ``${NAME}``, in whichever spelling they occur.

    Spellings of fewer than ``shortest`` characters are left alone; secrets of fewer than
    ``whole_words_below`` characters are replaced only where they stand as a word, in their own
    case. ``ignore_case`` replaces the others in any case.

    >>> redactor({"KEY": "a/b"})("no key a%2Fb or 'a/b'")
    "no key ${KEY} or '${KEY}'"
    >>> redactor({"KEY": "none"}, whole_words_below=8)("none, and nonetheless")
    '${KEY}, and nonetheless'
    """
    names: dict[str, str] = {}
    short: set[str] = set()
    for name, value in secrets.items():
        for spelling in _spellings(value):
            if len(spelling) >= shortest:
                names.setdefault(spelling, name)
                if len(value) < whole_words_below:
                    short.add(spelling)
    if not names:
        return str
    longest_first = sorted(names, key=lambda spelling: (-len(spelling), spelling))
    patterns = []
    for spelling in longest_first:
        pattern = re.escape(spelling)
        if spelling in short:
            pattern = rf"(?<!\w){pattern}(?!\w)"
        elif ignore_case:
            pattern = f"(?i:{pattern})"
        patterns.append(pattern)
    any_secret = re.compile("|".join(patterns))
    folded = {spelling.lower(): name for spelling, name in reversed(names.items())}

    def name_of(match: re.Match[str]) -> str:
        return f"${{{names.get(match[0]) or folded[match[0].lower()]}}}"

    return lambda text: any_secret.sub(name_of, text)


def _spellings(value: str) -> Iterable[str]:
    """Yield a secret as servers and libraries may repeat it."""
    plain = {value, value.strip(), " ".join(value.split()), *_decoded(value)}
    spellings = set(plain)
    for text in plain:
        lone = "surrogatepass"
        encoded = {quote(text, "", errors=lone), quote(text, errors=lone)}
        encoded.add(quote_plus(text, errors=lone))
        lower_hex = {
            re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), spelling)
            for spelling in encoded
        }
        spellings |= encoded | lower_hex
        spellings |= {json.dumps(text)[1:-1], repr(text)[1:-1], html.escape(text)}
        data = text.encode("utf-8", lone)
        for packed in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
            spellings |= {packed.decode(), packed.decode().rstrip("=")}
    return (spelling for spelling in spellings if spelling.strip())


def _decoded(value: str) -> set[str]:
    """Return what a secret in base64 means, as in ``Basic …``: the whole, and its password."""
    try:
        text = base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return set()
    if not text.isprintable() or ":" not in text:
        return set()
    return {text, text.partition(":")[2]}
