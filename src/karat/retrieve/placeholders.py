"""Placeholders in settings: ``{query}`` filled in per query, ``${NAME}`` from the environment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from karat.errors import CallError
from karat.retrieve.protocol import Query

ENVIRONMENT_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
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
    """Return why headers are refused that hold a credential as it is."""
    return literal_inside(headers, "header ", _SECRET_HEADER)


def literal_in_url(url: str) -> str | None:
    """Return why a URL is refused that holds a password or a key as it is."""
    user_info = _USER_INFO.match(url)
    if user_info and not ENVIRONMENT_VARIABLE.search(user_info[1].rpartition(":")[2]):
        return (
            "url holds a user or password before its @; take them from environment variables: "
            "https://${USER}:${PASSWORD}@host/path"
        )
    return literal_inside([{key: text} for key, text in parse_qsl(urlsplit(url).query)], "url: ")


def literal_inside(value: Any, where: str, secret: re.Pattern[str] = _SECRET_KEY) -> str | None:
    """Return why a value is refused that holds a credential anywhere inside."""
    if isinstance(value, list):
        return next(filter(None, (literal_inside(item, where, secret) for item in value)), None)
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        is_secret = secret.search(str(name)) and isinstance(inner, str)
        if is_secret and not ENVIRONMENT_VARIABLE.search(inner):
            variable = re.sub(r"\W+", "_", str(name)).strip("_").upper()
            return (
                f"{where}{name} holds a credential as it is; take it from an environment "
                f'variable, such as "${{{variable}}}"'
            )
        if (inside := literal_inside(inner, where, secret)) is not None:
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
            yield from _variables(inner, secret=secret or bool(_CREDENTIAL.search(str(key))))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _variables(inner, secret=secret)
    elif isinstance(value, str):
        user_info = _USER_INFO.match(value)
        for match in ENVIRONMENT_VARIABLE.finditer(value):
            name = match[0][2:-1]
            inside = user_info is not None and match.end() <= user_info.end()
            key_before = _SAID_BEFORE.search(value[: match.start()])
            names = name if key_before is None else f"{key_before[1]} {name}"
            yield name, secret or inside or _CREDENTIAL.search(names) is not None


_NAME = "[A-Za-z_][A-Za-z0-9_]*"
# Doubled braces around a name stand for themselves.
_PLACE = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")


def as_text(value: Any) -> str:
    """Return a value for use inside a longer text: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def fill_placeholders(
    template: Any, query: Query, more: Mapping[str, Any], quote: Callable[[Any], str] = as_text
) -> Any:
    """Return the template with its placeholders filled; a lone one keeps its type.

    ``quote`` makes text of what is filled in. Lists and mappings are filled inside. Braces
    around a name stay if they are doubled: ``{{name}}``.

    >>> fill_placeholders({"q": "{query}", "n": "{k}"}, Query("q1", "apple tart"), {"k": 5})
    {'q': 'apple tart', 'n': 5}
    """

    def put(place: re.Match[str]) -> str:
        if place[1] is not None:
            return f"{{{place[1]}}}"
        return quote(placeholder_value(place[2], query, more))

    def fill(text: str) -> Any:
        lone = _PLACE.fullmatch(text)
        if lone is None or lone[2] is None:
            return _PLACE.sub(put, text)
        value = placeholder_value(lone[2], query, more)
        return quote(value) if isinstance(value, str) else value

    return map_texts(template, fill)


def map_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """Return a setting with every text in it changed, also inside lists and mappings."""
    if isinstance(value, Mapping):
        return {key: map_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [map_texts(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def placeholder_value(name: str, query: Query, more: Mapping[str, Any]) -> Any:
    """Return what a placeholder stands for: query, query_id, an attribute, or one of ``more``."""
    named_values = {**query.attributes, "query": query.text, "query_id": query.query_id, **more}
    if name not in named_values:
        raise CallError(
            f"{{{name}}} is neither query, k nor an attribute of the query; "
            f"it has {', '.join(sorted(named_values))} (braces that should stay are doubled)"
        )
    return named_values[name]
