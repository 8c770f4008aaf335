"""Responses: status, JSON and the ranked hits in it, or why there are none.

The order in which hits stand in the answer is their rank, whatever their scores say.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from http.client import responses
from typing import Any
from urllib.parse import unquote, urlsplit

from karat.data.columns import ITEM_NAMES, NUL_IN_ID
from karat.errors import CallError
from karat.formats.settings import preview
from karat.jobs.calls import retry_after
from karat.retrieve.http_connection import Response
from karat.retrieve.protocol import Answer, Hit
from karat.retrieve.user_code import import_library

Redact = Callable[[str], str]

# Keys and nothing else, such as data.hits[].
_KEYS = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\[\])?", re.ASCII)
_MOST_KEYS, _DEEPEST, _LONGEST_SHAPE = 12, 4, 400
_DETAILS = ("doc_id", "version", "source", "text")
# Too early, too many, or timed out over there: the same call may pass later.
_MAY_PASS = (408, 425, 429)
_REASONS = ("detail", "message", "reason", "error", "errors", "msg", "title", "description")
_LONGEST, _DEEPEST_REASON = 300, 6


class JsonPath:
    """A JMESPath expression that is looked up in an answer or a hit; ValueError if it is none.

    One of nothing but keys is followed without the interpreter, which would cost more than
    the call for a list of a hundred hits.
    """

    def __init__(self, text: str) -> None:
        library = import_library("jmespath", "retriever http", "jmespath", "http")
        self.text = text
        keys = _KEYS.fullmatch(text)
        # Among the usual names of ids are some that stand in quotation marks in JMESPath.
        self._keys = [text] if text in ITEM_NAMES else None if keys is None else keys[1].split(".")
        self._compiled = library.compile(f'"{text}"' if text in ITEM_NAMES else text)
        # Unknown functions are noticed only when they are called.
        self._search(None)

    def find(self, value: Any) -> Any:
        """Return what the expression finds in a value, or None."""
        if self._keys is None:
            return self._search(value)
        result = value
        for key in self._keys:
            if not isinstance(result, dict):
                return None
            result = result.get(key)
        nested = isinstance(result, list) and any(isinstance(item, list) for item in result)
        return self._search(value) if nested else result

    def _search(self, value: Any) -> Any:
        from jmespath.exceptions import JMESPathError, UnknownFunctionError

        try:
            return self._compiled.search(value)
        except UnknownFunctionError:
            raise
        except JMESPathError as error:
            if value is None:
                return None
            raise CallError(f"{self.text}: {' '.join(str(error).split())}") from None

    def lacking(self, value: Any) -> str | None:
        """Return which of its keys a value lacks, as far as the expression is only keys."""
        for key in self._keys or ():
            if not isinstance(value, dict):
                return f"{key!r} is looked for in {json_kind(value)}"
            if key not in value:
                return f"there is no key {key!r}"
            value = value[key]
        return None


def json_shape(value: Any, depth: int = 0) -> str:
    """Return the structure of a JSON value, without its contents.

    >>> json_shape({"query": "pie", "results": [{"id": "a", "score": 1.5}] * 3})
    '{query: text, results: [3 × {id: text, score: number}]}'
    """
    if isinstance(value, dict) and value and depth < _DEEPEST:
        pairs = [
            f"{_cut(str(key), 40)}: {json_shape(inner, depth + 1)}"
            for key, inner in list(value.items())[:_MOST_KEYS]
        ]
        keys = ", ".join([*pairs, "…"] if len(value) > _MOST_KEYS else pairs)
        return _cut(f"{{{keys}}}", _LONGEST_SHAPE)
    if isinstance(value, list) and value and depth < _DEEPEST:
        return f"[{len(value):,} × {json_shape(value[0], depth + 1)}]"
    return json_kind(value)


def json_kind(value: Any) -> str:
    """Return the kind of a JSON value in a word."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "list" if value else "[]"
    return "object" if value else "{}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most].rstrip()}…"


class Reader:
    """Finds the hits of an answer by the expressions of a karat.yaml.

    ``expressions`` holds the options ``hits``, ``item_id``, ``score``, ``doc_id``, ``version``,
    ``source``, ``text``, ``latency`` and ``cost``.
    """

    def __init__(self, expressions: Mapping[str, Any], redact: Redact) -> None:
        self._redact = redact
        self._hits = JsonPath(expressions["hits"])
        self._fields = {
            name: JsonPath(expressions[name])
            for name in ("item_id", "score", *_DETAILS)
            if expressions[name] is not None
        }
        self._numbers = {
            label: {name: JsonPath(text) for name, text in expressions[label].items()}
            for label in ("latency", "cost")
        }

    def answer(self, response: Response, k: int) -> Answer:
        """Return the first k hits, in the order returned."""
        check_status(response, self._redact)
        data = parsed(response, self._redact)
        values = self._hits.find(data)
        if not isinstance(values, list):
            raise CallError(self._no_hits(values, data))
        hits = self._read(values[:k])
        return Answer(hits, self._measured("latency", data), self._measured("cost", data))

    def _no_hits(self, value: Any, data: Any) -> str:
        shape = f"; the answer is {json_shape(data)}"
        if value is not None:
            return f"hits: {self._hits.text} is {json_kind(value)}, and a list is expected{shape}"
        why = self._hits.lacking(data)
        reason = _reason_in(data)
        return (
            f"hits: {self._hits.text} finds nothing"
            + (f": {why}" if why else "")
            + shape
            + (f" and says: {quoted(reason, self._redact)}" if reason else "")
        )

    def _read(self, values: list[Any]) -> list[Hit]:
        """Return the hits; the first one decides which key holds the ids."""
        if not values:
            return []
        id_path = self._fields.get("item_id") or _usual_id(values[0])
        score_path = self._fields.get("score")
        # The usual id may be the doc's own.
        is_doc = id_path.text == "doc_id" and "doc_id" not in self._fields
        hits = []
        for rank, value in enumerate(values, 1):
            score = score_path.find(value) if score_path else _by_key(value, "score")
            hits.append(
                Hit(
                    _id_of(id_path, value, rank),
                    _number(score, f"hit {rank}: score"),
                    None if is_doc else self._detail("doc_id", value, rank),
                    version=self._detail("version", value, rank),
                    source=self._detail("source", value, rank),
                    text=self._detail("text", value, rank),
                )
            )
        # Single scores may be null; an expression that fits no hit is a mistake.
        unscored = all(hit.score is None for hit in hits)
        why = score_path.lacking(values[0]) if score_path and unscored else None
        if why is not None:
            raise CallError(
                f"score: {self._fields['score'].text} finds nothing: {why}; "
                f"a hit is {json_shape(values[0])}"
            )
        return hits

    def _detail(self, name: str, hit: Any, rank: int) -> str | None:
        """Return another field of a hit; one that was not configured counts if it is text."""
        path = self._fields.get(name)
        value = path.find(hit) if path else _by_key(hit, name)
        if value is None or isinstance(value, str):
            return value
        is_number = isinstance(value, int) or (name == "version" and isinstance(value, float))
        if is_number and not isinstance(value, bool):
            return str(value)
        if path is None:
            return None
        raise CallError(
            f"hit {rank}: {name}: {path.text} is {json_kind(value)}, and text is expected"
        )

    def _measured(self, label: str, data: Any) -> dict[str, float]:
        """Return times or costs that the answer reports; null ones are left out."""
        numbers = {}
        for name, path in self._numbers[label].items():
            value = path.find(data)
            if value is None and (why := path.lacking(data)) is not None:
                raise CallError(
                    f"{label}: {name}: {path.text} finds nothing: {why}; "
                    f"the answer is {json_shape(data)}"
                )
            number = _number(value, f"{label}: {name}")
            if number is not None and number < 0:
                raise CallError(f"{label}: {name} is {number:g}; a number from 0 is expected")
            if number is not None:
                numbers[name] = number
        return numbers


def check_status(response: Response, redact: Redact) -> None:
    """Raise CallError for any status other than success."""
    status = response.status
    if 200 <= status < 300:
        return
    message = f"answered {status} {responses.get(status, '')}".rstrip()
    if 300 <= status < 400:
        to = _redirect(response.headers.get("location", ""), redact)
        raise CallError(f"{message}{to}; redirects are not followed, give the final url")
    text = response.content.decode("utf-8", "replace")
    try:
        reason = quoted(_reason_in(json.loads(text)) or text, redact)
    except (ValueError, RecursionError):
        reason = quoted(text, redact)
    may_pass = status >= 500 or status in _MAY_PASS
    wait = retry_after(response.headers) if may_pass else None
    if reason and not message.endswith(f" {reason}"):
        message = f"{message}: {reason}"
    raise CallError(message, may_pass=may_pass, wait=wait)


def parsed(response: Response, redact: Redact) -> Any:
    """Return the JSON of an answer."""
    content = response.content
    if not content.strip():
        raise CallError("returned nothing; JSON is expected")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        media = response.headers.get("content-type", "").partition(";")[0].strip()
        begins = quoted(content[:1000].decode("utf-8", "replace"), redact, most=60)
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CallError(
            f"returned {media or 'something without a content type'} that begins {begins!r}; "
            "JSON is expected" + (f": {redact(why)}" if "json" in media else "")
        ) from None


def quoted(text: str, redact: Redact, *, most: int = _LONGEST) -> str:
    """Return what a service said in one line, without secrets, cut if it is long."""
    # Secrets first: half of one, cut off at the end, would not be recognised.
    return _cut(" ".join(redact(text).split()), most)


def _reason_in(data: Any, depth: int = 0) -> str:
    """Return the reason in an error's JSON, in the forms that services use."""
    if isinstance(data, str):
        return data
    if depth > _DEEPEST_REASON:
        return ""
    if isinstance(data, list):
        return "; ".join(filter(None, (_reason_in(item, depth + 1) for item in data[:3])))
    if not isinstance(data, dict):
        return ""
    reasons = (_reason_in(data[key], depth + 1) for key in _REASONS if key in data)
    reason = next(filter(None, reasons), "")
    place = data.get("loc")
    return (
        f"{'.'.join(map(str, place))}: {reason}" if isinstance(place, list) and reason else reason
    )


def _redirect(location: str, redact: Redact) -> str:
    """Return where a redirect leads, without its query, which may repeat keys."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return ""
    where = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return f" to {quoted(unquote(where), redact)}" if where else ""


def _usual_id(hit: Any) -> JsonPath:
    """Return where the first hit has its id."""
    if not isinstance(hit, dict):
        plain = json_kind(hit) in ("text", "number")
        raise CallError(
            f"hit 1 is {json_kind(hit)}, and an object is expected"
            + ("; if it is the id itself, say item_id: '@'" if plain else "")
        )
    present = [name for name in ITEM_NAMES if name in hit]
    if not present:
        raise CallError(
            f"hit 1 has none of {', '.join(ITEM_NAMES)}; say item_id: <key>; "
            f"a hit is {json_shape(hit)}"
        )
    # A null is no id, unless nothing else could be one: then the message says so.
    return JsonPath(next((name for name in present if hit[name] is not None), present[0]))


def _id_of(path: JsonPath, hit: Any, rank: int) -> str:
    value = path.find(hit)
    if isinstance(value, str) and "\0" in value:
        raise CallError(f"hit {rank}: its id {NUL_IN_ID}")
    # No log can hold a lone surrogate.
    if isinstance(value, str) and value and value.encode(errors="replace").decode() == value:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    why = path.lacking(hit) if value is None else None
    if why is not None:
        raise CallError(
            f"hit {rank}: item_id: {path.text} finds nothing: {why}; the hit is {json_shape(hit)}"
        )
    raise CallError(f"hit {rank}: its id is {_shown(value)}; ids are text or whole numbers")


def _by_key(hit: Any, name: str) -> Any:
    return hit.get(name) if isinstance(hit, dict) else None


def _number(value: Any, label: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CallError(f"{label} is {_shown(value)}; a number is expected")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CallError(f"{label} is {value!r:.20}; a finite number is expected")
    return number


def _shown(value: Any) -> str:
    """Return a value of JSON for a message."""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return preview(value) if plain else json_kind(value)
