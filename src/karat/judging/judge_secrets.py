"""The key of an endpoint: where it comes from, and that it is never shown."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, quote_plus

from karat.errors import UsageError

USUAL = "OPENAI_API_KEY"
_SHORT = 8


def key_from(environment: Mapping[str, str], name: str | None) -> str | None:
    """The key that a variable holds; only one that was asked for by name must be there."""
    if name is not None and not name.strip():
        raise UsageError(
            "--key-env is empty; name the variable that holds the key, or leave it out"
        )
    key = environment.get(name or USUAL, "").strip()
    if key:
        if not (key.isascii() and key.isprintable()):
            raise UsageError(f"the key in {name or USUAL} holds characters that no key has")
        return key
    if name is not None:
        raise UsageError(f"--key-env names {name}, which is not set; export the key under it")
    return None


def redactor(key: str | None, name: str | None) -> Callable[[str], str]:
    """What puts the variable's name in place of its key, in whichever spelling it comes back.

    >>> redactor("s3cret/key", "KEY")("Incorrect key s3cret%2Fkey")
    'Incorrect key ${KEY}'
    """
    if key is None:
        return str
    packed = [base64.b64encode(key.encode()), base64.urlsafe_b64encode(key.encode())]
    spellings = {key, quote(key, ""), quote(key), quote_plus(key), html.escape(key)}
    spellings |= {json.dumps(key)[1:-1], repr(key)[1:-1], *(one.decode() for one in packed)}
    spellings |= {one.decode().rstrip("=") for one in packed}
    longest_first = sorted(spellings, key=lambda one: (-len(one), one))
    either = "|".join(map(re.escape, longest_first))
    # A key such as "none" is no secret, and the word may well occur inside others.
    short = len(key) < _SHORT
    pattern = re.compile(rf"(?<!\w)(?:{either})(?!\w)" if short else f"(?i:{either})")
    return lambda text: pattern.sub(lambda _: f"${{{name or USUAL}}}", text)
