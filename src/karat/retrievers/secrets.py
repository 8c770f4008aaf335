"""Secrets: that none is written into a karat.yaml, and that none is ever shown."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

from karat.retrievers.protocol import Answer, Hit, Hits

FROM_ENVIRONMENT = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_SECRET_HEADER = re.compile(
    r"authorization|cookie|api[-_]?key|token|secret|password|passwd|credential|^x-auth", re.I
)
# Elsewhere a token may be a word or a page; these names leave no doubt.
_SECRET_KEY = re.compile(
    r"api[-_]?key|secret|password|passwd|(?:access|auth|bearer|id|refresh)[-_]?token", re.I
)
# A credential by the name of its key or of its variable.
_CREDENTIAL = re.compile(
    r"(?:^|[^a-z])(?:auth|authori[sz]ation|bearer|cookie|credentials?|pass|pwd)(?:[^a-z]|$)"
    r"|(?:key|token|secret|password|passwd)s?(?:[^a-z]|$)",
    re.I,
)
# As in a query or a connection string: ...&key=
_SAID_BEFORE = re.compile(r"([\w-]+)=[^&;\s=]*$")
_USER_INFO = re.compile(r"^[^/?#]*//([^/?#]*)@")


def literal_in_headers(headers: Mapping[Any, Any]) -> str | None:
    """The first header that holds a credential as it is, told without the credential."""
    for name, value in headers.items():
        if _SECRET_HEADER.search(str(name)) and not _from_environment(value):
            return _instead(f"header {name}", str(name))
    return None


def literal_in_url(url: str) -> str | None:
    """Whether a URL holds a password or a key as it is."""
    user_info = _USER_INFO.match(url)
    if user_info and not _from_environment(user_info[1].rpartition(":")[2]):
        return (
            "url holds a user or password before its @; take them from environment variables: "
            "https://${USER}:${PASSWORD}@host/path"
        )
    for name, value in parse_qsl(urlsplit(url).query):
        if _SECRET_KEY.search(name) and not _from_environment(value):
            return _instead(f"url: {name}", name)
    return None


def literal_inside(value: Any, what: str) -> str | None:
    """The first key anywhere in params, a form or a body that holds a credential as it is."""
    if isinstance(value, list):
        return next(filter(None, (literal_inside(one, what) for one in value)), None)
    if not isinstance(value, Mapping):
        return None
    for name, inner in value.items():
        is_secret = _SECRET_KEY.search(str(name)) and isinstance(inner, str)
        if is_secret and not _from_environment(inner):
            return _instead(f"{what}: {name}", str(name))
        inside = literal_inside(inner, what)
        if inside is not None:
            return inside
    return None


def credential_names(spec: Any) -> set[str]:
    """Return the variables of a system's settings that hold credentials.

    The others, such as the name of an index, may well occur in ids.

    >>> credential_names({"url": "http://${HOST}/", "headers": {"Authorization": "${MINE}"}})
    {'MINE'}
    """
    return {name for name, secret in _variables(spec, secret=False) if secret}


def _variables(value: Any, *, secret: bool) -> Iterator[tuple[str, bool]]:
    """Yield every variable in a value, and whether it holds a credential."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _variables(inner, secret=secret or _is_secret_key(str(key)))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _variables(inner, secret=secret)
    elif isinstance(value, str):
        user_info = _USER_INFO.match(value)
        for found in FROM_ENVIRONMENT.finditer(value):
            name = found[0][2:-1]
            inside = user_info is not None and found.end() <= user_info.end()
            said = _SAID_BEFORE.search(value[: found.start()])
            told = said is not None and _is_secret_key(said[1])
            yield name, secret or inside or told or _is_secret_key(name)


def _is_secret_key(name: str) -> bool:
    return _CREDENTIAL.search(name) is not None


def hide_in_answer(answer: Answer, hide: Callable[[str], str]) -> None:
    """Put names in place of secrets in whatever text an answer holds."""
    answer.hits = _hidden(answer.hits, hide)
    answer.lists = {name: _hidden(hits, hide) for name, hits in answer.lists.items()}
    answer.rewritten = answer.rewritten and hide(answer.rewritten)
    answer.source = answer.source and hide(answer.source)


def _hidden(hits: Hits, hide: Callable[[str], str]) -> Hits:
    return [
        Hit._make(hide(value) if isinstance(value, str) else value for value in hit) for hit in hits
    ]


def redactor(secrets: Mapping[str, str], *, shortest: int = 1) -> Callable[[str], str]:
    """Return what puts names in place of secrets, in whichever spelling they come back.

    Spellings of fewer than ``shortest`` characters are left.

    >>> redactor({"KEY": "a/b"})("no key a%2Fb or 'a/b'")
    "no key ${KEY} or '${KEY}'"
    """
    names: dict[str, str] = {}
    for name, value in secrets.items():
        for spelling in _spellings(value):
            if len(spelling) >= shortest:
                names.setdefault(spelling, name)
    if not names:
        return str
    longest_first = sorted(names, key=lambda one: (-len(one), one))
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return lambda text: pattern.sub(lambda found: f"${{{names[found[0]]}}}", text)


def _from_environment(value: Any) -> bool:
    return isinstance(value, str) and FROM_ENVIRONMENT.search(value) is not None


def _instead(what: str, name: str) -> str:
    variable = re.sub(r"\W+", "_", name).strip("_").upper()
    return (
        f"{what} holds a credential as it is; take it from an environment variable, "
        f'such as "${{{variable}}}"'
    )


def _spellings(value: str) -> Iterable[str]:
    """A secret as servers and libraries may repeat it."""
    plain = {value, value.strip(), " ".join(value.split()), *_decoded(value)}
    found = set(plain)
    for one in plain:
        lone = "surrogatepass"
        encoded = {quote(one, "", errors=lone), quote(one, errors=lone)}
        encoded.add(quote_plus(one, errors=lone))
        found |= encoded | {_small_hex(text) for text in encoded}
        found |= {json.dumps(one)[1:-1], repr(one)[1:-1], html.escape(one)}
        data = one.encode("utf-8", lone)
        for packed in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
            found |= {packed.decode(), packed.decode().rstrip("=")}
    return (one for one in found if one.strip())


def _small_hex(text: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), text)


def _decoded(value: str) -> set[str]:
    """What a secret in base64 stands for, as in ``Basic …``: the whole, and its password."""
    try:
        text = base64.b64decode(value, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return set()
    if not text.isprintable() or ":" not in text:
        return set()
    return {text, text.partition(":")[2]}
