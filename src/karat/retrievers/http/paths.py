"""JMESPath expressions as a karat.yaml has them: compiled, applied, and explained when in vain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karat.errors import CallError, missing_extra, unknown

_MOST_KEYS, _DEEPEST, _LONGEST = 12, 4, 400


@dataclass(frozen=True, eq=False)
class Path:
    """An expression that is looked up in an answer or in a hit.

    ``keys`` are its steps if it is nothing but keys: those are followed without the
    interpreter, which would cost more than the call for a list of a hundred hits.
    ``flat`` stands for a ``[]`` at the end: without it a null keeps its place and is seen.
    """

    text: str
    tree: Mapping[str, Any]
    keys: Sequence[str] | None
    flat: bool = False

    @classmethod
    def of(cls, text: str) -> Path:
        """The expression; one that cannot be read raises ValueError."""
        tree = _library().compile(text).parsed
        _check_functions(tree)
        inner = _flattened(tree)
        return cls(text, inner or tree, _keys(inner or tree), inner is not None)

    def find(self, value: Any) -> Any:
        """What the expression finds in a value, or None."""
        if self.keys is None:
            return _evaluated(self.tree, value, self.text)
        for key in self.keys:
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return _flat(value) if self.flat and isinstance(value, list) else value

    def lacking(self, value: Any, *, nulls: bool = True) -> str | None:
        """The first key that a value does not have, or, where ``nulls`` count, that is null."""
        return _lacking(self.tree, value, nulls)


def shape(value: Any, depth: int = 0) -> str:
    """What a JSON value is made of, without what it says.

    >>> shape({"query": "pie", "results": [{"id": "a", "score": 1.5}] * 3})
    '{query: text, results: [3 × {id: text, score: number}]}'
    """
    if isinstance(value, dict) and value and depth < _DEEPEST:
        shown = [
            f"{_cut(str(key), 40)}: {shape(inner, depth + 1)}"
            for key, inner in list(value.items())[:_MOST_KEYS]
        ]
        told = ", ".join([*shown, "…"] if len(value) > _MOST_KEYS else shown)
        return _cut(f"{{{told}}}", _LONGEST)
    if isinstance(value, list) and value and depth < _DEEPEST:
        return f"[{len(value):,} × {shape(value[0], depth + 1)}]"
    return kind(value)


def kind(value: Any) -> str:
    """The kind of a JSON value in a word."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "list" if value else "[]"
    return "object" if value else "{}"


def _library() -> Any:
    try:
        import jmespath
    except ImportError:
        raise missing_extra("retriever http", "jmespath", "http") from None
    return jmespath


def _evaluated(tree: Mapping[str, Any], value: Any, text: str) -> Any:
    from jmespath.exceptions import JMESPathError
    from jmespath.parser import ParsedResult

    parsed: Any = tree
    try:
        return ParsedResult(text, parsed).search(value)
    except JMESPathError as error:
        raise CallError(f"{text}: {' '.join(str(error).split())}") from None


def _check_functions(tree: Mapping[str, Any]) -> None:
    """Refuse a function that does not exist; the library notices only when it is called."""
    from jmespath.functions import Functions

    if tree["type"] == "function_expression" and tree["value"] not in Functions.FUNCTION_TABLE:
        raise ValueError(str(unknown("function", tree["value"], Functions.FUNCTION_TABLE)))
    for child in tree["children"]:
        if isinstance(child, Mapping):
            _check_functions(child)


def _flattened(tree: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What is flattened by an expression such as ``hits[]``, if that is nothing but keys."""
    if tree["type"] == "projection" and tree["children"][1]["type"] == "identity":
        inner: Mapping[str, Any] = tree["children"][0]
        if inner["type"] == "flatten" and _keys(inner["children"][0]) is not None:
            found: Mapping[str, Any] = inner["children"][0]
            return found
    return None


def _flat(values: list[Any]) -> list[Any]:
    if not any(isinstance(value, list) for value in values):
        return values
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def _keys(tree: Mapping[str, Any]) -> list[str] | None:
    if tree["type"] == "field":
        return [tree["value"]]
    if tree["type"] == "subexpression":
        steps = [_keys(child) for child in tree["children"]]
        return [key for step in steps for key in step or ()] if all(steps) else None
    return None


def _lacking(tree: Mapping[str, Any], value: Any, nulls: bool) -> str | None:
    sort, children = tree["type"], tree["children"]
    if sort == "field":
        return _lacking_key(tree["value"], value, nulls)
    if sort == "index" and isinstance(value, list):
        return f"there is no [{tree['value']}] in a list of {len(value)}"
    if sort in _STEPS:
        for step in children:
            found = _evaluated(step, value, "")
            if found is None:
                return _lacking(step, value, nulls)
            value = found
    if sort in _FROM_A_LIST:
        inside = _lacking(children[0], value, nulls)
        found = _evaluated(children[0], value, "")
        if inside is None and not isinstance(found, list):
            return f"{kind(found)} stands where a list is expected"
        return inside
    for child in children if sort == "function_expression" else ():
        inside = _lacking(child, value, nulls)
        if inside is not None:
            return inside
    return None


_STEPS = ("subexpression", "index_expression", "pipe")
_FROM_A_LIST = ("projection", "filter_projection", "flatten")


def _lacking_key(key: str, value: Any, nulls: bool) -> str | None:
    if not isinstance(value, dict):
        return f"{key!r} is looked for in {kind(value)}"
    if key not in value:
        return f"there is no key {key!r}"
    return f"{key!r} is null" if nulls and value[key] is None else None


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
