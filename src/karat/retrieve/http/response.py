"""Responses: status, JSON and the ranked hits in it, or why there are none.

The order in which hits stand in the answer is their rank, whatever their scores say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from karat.data.columns import ITEM_NAMES, NUL_IN_ID
from karat.errors import CallError, unknown
from karat.formats.settings import preview
from karat.jobs.rate_limit import retry_after
from karat.retrieve.http.connection import Response
from karat.retrieve.protocol import Answer, Hit
from karat.retrieve.user_code import import_library

if TYPE_CHECKING:
    from karat.retrieve.http.service import Options


_MOST_KEYS, _DEEPEST, _LONGEST_SHAPE = 12, 4, 400


@dataclass(frozen=True, eq=False)
class JsonPath:
    """A JMESPath expression that is looked up in an answer or a hit.

    ``keys`` are its steps if it is nothing but keys: those are followed without the
    interpreter, which would cost more than the call for a list of a hundred hits.
    ``flat`` stands for a ``[]`` at the end: without it a null keeps its place and is seen.
    """

    text: str
    tree: Mapping[str, Any]
    keys: Sequence[str] | None
    flat: bool = False

    @classmethod
    def of(cls, text: str) -> JsonPath:
        """Compile an expression; raises ValueError if it is none."""
        tree = _library().compile(text).parsed
        _check_functions(tree)
        inner = _flattened(tree)
        return cls(text, inner or tree, _keys(inner or tree), inner is not None)

    def find(self, value: Any) -> Any:
        """Return what the expression finds in a value, or None."""
        if self.keys is None:
            return _evaluated(self.tree, value, self.text)
        for key in self.keys:
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return _flat(value) if self.flat and isinstance(value, list) else value

    def lacking(self, value: Any, *, nulls: bool = True) -> str | None:
        """Return the first key that a value lacks or, if ``nulls`` count, that is null."""
        return _lacking(self.tree, value, nulls)


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
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "list" if value else "[]"
    return "object" if value else "{}"


def _library() -> Any:
    return import_library("jmespath", "retriever http", "jmespath", "http")


def _evaluated(tree: Mapping[str, Any], value: Any, text: str) -> Any:
    from jmespath.exceptions import JMESPathError
    from jmespath.parser import ParsedResult

    parsed: Any = tree
    try:
        return ParsedResult(text, parsed).search(value)
    except JMESPathError as error:
        raise CallError(f"{text}: {' '.join(str(error).split())}") from None


def _check_functions(tree: Mapping[str, Any]) -> None:
    """Refuse unknown functions, which the library notices only when it calls them."""
    from jmespath.functions import Functions

    if tree["type"] == "function_expression" and tree["value"] not in Functions.FUNCTION_TABLE:
        raise ValueError(str(unknown("function", tree["value"], Functions.FUNCTION_TABLE)))
    for child in tree["children"]:
        if isinstance(child, Mapping):
            _check_functions(child)


def _flattened(tree: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what an expression such as ``hits[]`` flattens, if that is only keys."""
    if tree["type"] == "projection" and tree["children"][1]["type"] == "identity":
        inner: Mapping[str, Any] = tree["children"][0]
        if inner["type"] == "flatten" and _keys(inner["children"][0]) is not None:
            flattened: Mapping[str, Any] = inner["children"][0]
            return flattened
    return None


def _flat(values: list[Any]) -> list[Any]:
    if not any(isinstance(value, list) for value in values):
        return values
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def _keys(tree: Mapping[str, Any]) -> list[str] | None:
    if tree["type"] == "field":
        return [tree["value"]]
    if tree["type"] == "subexpression":
        steps = [_keys(child) for child in tree["children"]]
        return [key for step in steps for key in step or ()] if all(steps) else None
    return None


def _lacking(tree: Mapping[str, Any], value: Any, nulls: bool) -> str | None:
    node_type, children = tree["type"], tree["children"]
    if node_type == "field":
        return _lacking_key(tree["value"], value, nulls)
    if node_type == "index" and isinstance(value, list):
        return f"there is no [{tree['value']}] in a list of {len(value)}"
    if node_type in _STEPS:
        for step in children:
            result = _evaluated(step, value, "")
            if result is None:
                return _lacking(step, value, nulls)
            value = result
    if node_type in _FROM_A_LIST:
        missing = _lacking(children[0], value, nulls)
        result = _evaluated(children[0], value, "")
        if missing is None and not isinstance(result, list):
            return f"found {json_kind(result)} where a list is expected"
        return missing
    for child in children if node_type == "function_expression" else ():
        missing = _lacking(child, value, nulls)
        if missing is not None:
            return missing
    return None


_STEPS = ("subexpression", "index_expression", "pipe")
_FROM_A_LIST = ("projection", "filter_projection", "flatten")


def _lacking_key(key: str, value: Any, nulls: bool) -> str | None:
    if not isinstance(value, dict):
        return f"{key!r} is looked for in {json_kind(value)}"
    if key not in value:
        return f"there is no key {key!r}"
    return f"{key!r} is null" if nulls and value[key] is None else None


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


_DETAILS = ("doc_id", "version", "source", "text")
# Too early, too many, or timed out over there: the same call may pass later.
_MAY_PASS = (408, 425, 429)
_REASONS = ("detail", "message", "reason", "error", "errors", "msg", "title", "description")
_LONGEST, _LONGEST_VALUE, _DEEPEST_REASON = 300, 20, 6

Redact = Callable[[str], str]


class Reader:
    """Finds the hits of an answer by the expressions of a karat.yaml."""

    def __init__(self, options: Options, redact: Redact) -> None:
        self._redact = redact
        self._hits = JsonPath.of(options.hits)
        self._id = None if options.item_id is None else JsonPath.of(options.item_id)
        self._score = None if options.score is None else JsonPath.of(options.score)
        expressions = {name: getattr(options, name) for name in _DETAILS}
        self._details = {
            name: None if text is None else JsonPath.of(text) for name, text in expressions.items()
        }
        self._latency = {name: JsonPath.of(text) for name, text in options.latency.items()}
        self._cost = {name: JsonPath.of(text) for name, text in options.cost.items()}

    def answer(self, response: Response, k: int) -> Answer:
        """Return the first k hits, in the order returned."""
        check_status(response, self._redact)
        data = parsed(response, self._redact)
        hits_found = self._hits.find(data)
        if hits_found is None:
            raise CallError(self._no_hits(data))
        if not isinstance(hits_found, list):
            raise CallError(
                f"hits: {self._hits.text} is {json_kind(hits_found)}, and a list is expected; "
                f"the answer is {json_shape(data)}"
            )
        hits = self._read(hits_found[:k])
        return Answer(hits, self._numbers("latency", data), self._numbers("cost", data))

    def _no_hits(self, data: Any) -> str:
        why = self._hits.lacking(data)
        reason = _reason_in(data)
        return (
            f"hits: {self._hits.text} finds nothing"
            + (f": {why}" if why else "")
            + f"; the answer is {json_shape(data)}"
            + (f" and says: {quoted(reason, self._redact)}" if reason else "")
        )

    def _read(self, values: list[Any]) -> list[Hit]:
        """Return the hits; the first one decides which key holds the ids."""
        if not values:
            return []
        id_path = self._id or _usual_id(values[0])
        scores = [self._score_of(hit, rank) for rank, hit in enumerate(values, 1)]
        self._check_scores(values, scores)
        expressions = self._details
        # The usual id may be the doc's own.
        is_doc = id_path.text == "doc_id" and expressions["doc_id"] is None
        return [
            Hit(
                _id_of(id_path, hit, rank),
                scores[rank - 1],
                None if is_doc else _detail(expressions, "doc_id", hit, rank),
                version=_detail(expressions, "version", hit, rank),
                source=_detail(expressions, "source", hit, rank),
                text=_detail(expressions, "text", hit, rank),
            )
            for rank, hit in enumerate(values, 1)
        ]

    def _score_of(self, hit: Any, rank: int) -> float | None:
        if self._score is not None:
            return _number(self._score.find(hit), f"hit {rank}: score")
        return _number(hit.get("score"), f"hit {rank}: score") if isinstance(hit, dict) else None

    def _check_scores(self, values: list[Any], scores: list[float | None]) -> None:
        """Refuse an expression that fits no hit; single scores may be null."""
        if self._score is None or any(score is not None for score in scores):
            return
        why = self._score.lacking(values[0], nulls=False)
        if why is not None:
            raise CallError(
                f"score: {self._score.text} finds nothing: {why}; a hit is {json_shape(values[0])}"
            )

    def _numbers(self, what: str, data: Any) -> dict[str, float]:
        """Return times or costs that the answer reports; null ones are left out."""
        numbers = {}
        for name, path in (self._latency if what == "latency" else self._cost).items():
            value = path.find(data)
            why = path.lacking(data, nulls=False) if value is None else None
            if why is not None:
                raise CallError(
                    f"{what}: {name}: {path.text} finds nothing: {why}; "
                    f"the answer is {json_shape(data)}"
                )
            number = _number(value, f"{what}: {name}")
            if number is not None and number < 0:
                raise CallError(f"{what}: {name} is {number:g}; a number from 0 is expected")
            if number is not None:
                numbers[name] = number
        return numbers


def check_status(response: Response, redact: Redact) -> None:
    """Raise CallError for any status other than success."""
    status = response.status
    if 200 <= status < 300:
        return
    message = f"answered {status} {_phrase(status)}".rstrip()
    if 300 <= status < 400:
        to = _redirect(response.headers.get("location", ""), redact)
        raise CallError(f"{message}{to}; redirects are not followed, give the final url")
    reason = quoted(_reason_of(response), redact)
    reason = "" if message.endswith(f" {reason}") else reason
    may_pass = status >= 500 or status in _MAY_PASS
    wait = retry_after(response.headers) if may_pass else None
    raise CallError(f"{message}: {reason}" if reason else message, may_pass=may_pass, wait=wait)


def parsed(response: Response, redact: Redact) -> Any:
    """Return the JSON of an answer."""
    content = response.content
    media = response.headers.get("content-type", "").partition(";")[0].strip()
    if not content.strip():
        raise CallError("returned nothing; JSON is expected")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        begins = quoted(content[:1000].decode("utf-8", "replace"), redact, most=60)
        if "json" in media:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise CallError(
                f"returned {media} that is not valid and begins {begins!r}: {redact(why)}"
            ) from None
        what = media or "something without a content type"
        raise CallError(f"returned {what} that begins {begins!r}; JSON is expected") from None


def quoted(text: str, redact: Redact, *, most: int = _LONGEST) -> str:
    """Return what a service said in one line, without secrets, cut if it is long."""
    # Secrets first: half of one, cut off at the end, would not be recognised.
    line = " ".join(redact(text).split())
    return line if len(line) <= most else f"{line[:most].rstrip()}…"


def _reason_of(response: Response) -> str:
    text = response.content.decode("utf-8", "replace")
    try:
        return _reason_in(json.loads(text)) or text
    except (ValueError, RecursionError):
        return text


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


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


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
    key = next((name for name in present if hit[name] is not None), present[0])
    return JsonPath(key, {"type": "field", "value": key, "children": []}, [key])


def _id_of(path: JsonPath, hit: Any, rank: int) -> str:
    value = path.find(hit)
    if isinstance(value, str) and "\0" in value:
        raise CallError(f"hit {rank}: its id {NUL_IN_ID}")
    if isinstance(value, str) and value and (value.isascii() or _is_text(value)):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    why = path.lacking(hit) if value is None else None
    if why is not None:
        raise CallError(
            f"hit {rank}: item_id: {path.text} finds nothing: {why}; the hit is {json_shape(hit)}"
        )
    raise CallError(f"hit {rank}: its id is {_as_json(value)}; ids are text or whole numbers")


def _detail(
    expressions: Mapping[str, JsonPath | None], name: str, hit: Any, rank: int
) -> str | None:
    """Return another field of a hit; one that was not configured counts if it is text."""
    path = expressions[name]
    value = path.find(hit) if path else hit.get(name) if isinstance(hit, dict) else None
    if value is None or isinstance(value, str):
        return value
    is_number = isinstance(value, int) or (name == "version" and isinstance(value, float))
    if is_number and not isinstance(value, bool):
        return str(value)
    if path is None:
        return None
    raise CallError(f"hit {rank}: {name}: {path.text} is {json_kind(value)}, and text is expected")


def _number(value: Any, what: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CallError(f"{what} is {_as_json(value)}; a number is expected")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CallError(f"{what} is {value!r:.20}; a finite number is expected")
    return number


def _is_text(value: str) -> bool:
    """Return whether a log can hold it: a lone surrogate is no character."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _as_json(value: Any) -> str:
    """Return a value as JSON for a message."""
    if isinstance(value, (Mapping, list)):
        return json_kind(value)
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return "a longer text"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return preview(value)
