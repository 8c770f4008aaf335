"""Placeholders such as ``{query}``, ``{k}`` and ``{language}``, filled in query by query."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from karat.errors import CallError
from karat.retrievers.protocol import Query

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
# Doubled braces around a name stand for themselves.
_PLACE = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")


def spelled(value: Any) -> str:
    """A value inside of a longer text: text as it is, anything else as JSON has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def filled(
    template: Any, query: Query, more: Mapping[str, Any], quote: Callable[[Any], str] = spelled
) -> Any:
    """The template with its placeholders filled; one that is nothing else keeps its type.

    ``quote`` makes text of what is filled in. Lists and mappings are filled inside. Braces
    around a name stay if they are doubled: ``{{name}}``.

    >>> filled({"q": "{query}", "n": "{k}"}, Query("q1", "apple tart"), {"k": 5})
    {'q': 'apple tart', 'n': 5}
    """
    if isinstance(template, Mapping):
        return {key: filled(value, query, more, quote) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(value, query, more, quote) for value in template]
    if not isinstance(template, str):
        return template

    def put(place: re.Match[str]) -> str:
        if place[1] is not None:
            return f"{{{place[1]}}}"
        return quote(_value(place[2], query, more))

    whole = _PLACE.fullmatch(template)
    if whole is not None and whole[2] is not None:
        value = _value(whole[2], query, more)
        return quote(value) if isinstance(value, str) else value
    return _PLACE.sub(put, template)


def _value(name: str, query: Query, more: Mapping[str, Any]) -> Any:
    known = {**query.attributes, "query": query.text, "query_id": query.query_id, **more}
    if name not in known:
        raise CallError(
            f"{{{name}}} is neither query, k nor an attribute of the query; "
            f"it has {', '.join(sorted(known))} (braces that should stay are doubled)"
        )
    return known[name]
