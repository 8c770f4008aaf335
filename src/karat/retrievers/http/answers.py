"""What a service answered: its status, its JSON, and the ranked hits in it, or why there are none.

The order in which hits stand in the answer is their rank, whatever their scores say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from karat.columns import ITEM_NAMES, NUL_IN_ID
from karat.errors import CallError
from karat.formats.yamls import shown
from karat.retrievers.http.paths import Path, kind, shape
from karat.retrievers.http.wire import Response
from karat.retrievers.protocol import Answer, Hit

if TYPE_CHECKING:
    from karat.retrievers.http.service import Options

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
        self._hits = Path.of(options.hits)
        self._id = None if options.item_id is None else Path.of(options.item_id)
        self._score = None if options.score is None else Path.of(options.score)
        given = {name: getattr(options, name) for name in _DETAILS}
        self._details = {
            name: None if text is None else Path.of(text) for name, text in given.items()
        }
        self._latency = {name: Path.of(text) for name, text in options.latency.items()}
        self._cost = {name: Path.of(text) for name, text in options.cost.items()}

    def answer(self, response: Response, k: int) -> Answer:
        """The first k hits in the order returned."""
        check_status(response, self._redact)
        data = parsed(response, self._redact)
        found = self._hits.find(data)
        if found is None:
            raise CallError(self._nothing(data))
        if not isinstance(found, list):
            raise CallError(
                f"hits: {self._hits.text} is {kind(found)}, and a list is expected; "
                f"the answer is {shape(data)}"
            )
        hits = self._read(found[:k])
        return Answer(hits, self._numbers("latency", data), self._numbers("cost", data))

    def _nothing(self, data: Any) -> str:
        why = self._hits.lacking(data)
        said = _said(data)
        return (
            f"hits: {self._hits.text} finds nothing"
            + (f": {why}" if why else "")
            + f"; the answer is {shape(data)}"
            + (f" and says: {quoted(said, self._redact)}" if said else "")
        )

    def _read(self, found: list[Any]) -> list[Hit]:
        """The hits; all have their id under the key that the first one has it under."""
        if not found:
            return []
        id_path = self._id or _usual_id(found[0])
        scores = [self._score_of(hit, rank) for rank, hit in enumerate(found, 1)]
        self._check_scores(found, scores)
        asked = self._details
        # The usual id may be the doc's own.
        is_doc = id_path.text == "doc_id" and asked["doc_id"] is None
        return [
            Hit(
                _id_of(id_path, hit, rank),
                scores[rank - 1],
                None if is_doc else _detail(asked, "doc_id", hit, rank),
                version=_detail(asked, "version", hit, rank),
                source=_detail(asked, "source", hit, rank),
                text=_detail(asked, "text", hit, rank),
            )
            for rank, hit in enumerate(found, 1)
        ]

    def _score_of(self, hit: Any, rank: int) -> float | None:
        if self._score is not None:
            return _number(self._score.find(hit), f"hit {rank}: score")
        return _number(hit.get("score"), f"hit {rank}: score") if isinstance(hit, dict) else None

    def _check_scores(self, found: list[Any], scores: list[float | None]) -> None:
        """A score may be null, but an expression that fits no hit at all is a mistake."""
        if self._score is None or any(score is not None for score in scores):
            return
        why = self._score.lacking(found[0], nulls=False)
        if why is not None:
            raise CallError(
                f"score: {self._score.text} finds nothing: {why}; a hit is {shape(found[0])}"
            )

    def _numbers(self, what: str, data: Any) -> dict[str, float]:
        """Times or costs that the answer tells of itself; null ones are left out."""
        numbers = {}
        for name, path in (self._latency if what == "latency" else self._cost).items():
            value = path.find(data)
            why = path.lacking(data, nulls=False) if value is None else None
            if why is not None:
                raise CallError(
                    f"{what}: {name}: {path.text} finds nothing: {why}; the answer is {shape(data)}"
                )
            number = _number(value, f"{what}: {name}")
            if number is not None and number < 0:
                raise CallError(f"{what}: {name} is {number:g}; a number from 0 is expected")
            if number is not None:
                numbers[name] = number
        return numbers


def check_status(response: Response, redact: Redact) -> None:
    """Raise what a status other than success means."""
    status = response.status
    if 200 <= status < 300:
        return
    told = f"answered {status} {_phrase(status)}".rstrip()
    if 300 <= status < 400:
        to = _redirect(response.headers.get("location", ""), redact)
        raise CallError(f"{told}{to}; redirects are not followed, give the final url")
    said = quoted(_said_in(response), redact)
    said = "" if told.endswith(f" {said}") else said
    may_pass = status >= 500 or status in _MAY_PASS
    wait = _retry_after(response.headers) if may_pass else None
    raise CallError(f"{told}: {said}" if said else told, may_pass=may_pass, wait=wait)


def parsed(response: Response, redact: Redact) -> Any:
    """The JSON of an answer."""
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
    """What someone else said, in one line, without secrets, and not all of it if it is long."""
    # Secrets first: half of one, cut off at the end, would not be recognised.
    line = " ".join(redact(text).split())
    return line if len(line) <= most else f"{line[:most].rstrip()}…"


def _said_in(response: Response) -> str:
    text = response.content.decode("utf-8", "replace")
    try:
        return _said(json.loads(text)) or text
    except (ValueError, RecursionError):
        return text


def _said(data: Any, depth: int = 0) -> str:
    """The reason that an answer gives, in the forms that services give it."""
    if isinstance(data, str):
        return data
    if depth > _DEEPEST_REASON:
        return ""
    if isinstance(data, list):
        return "; ".join(filter(None, (_said(one, depth + 1) for one in data[:3])))
    if not isinstance(data, dict):
        return ""
    found = (_said(data[key], depth + 1) for key in _REASONS if key in data)
    said = next(filter(None, found), "")
    place = data.get("loc")
    return f"{'.'.join(map(str, place))}: {said}" if isinstance(place, list) and said else said


def _redirect(location: str, redact: Redact) -> str:
    """Where a redirect leads; what is asked there may repeat keys, so it is left out."""
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


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds a service asks to be left alone: a number, or a date to wait for.

    A date is by the clock of the service, which may differ from the one here.
    """
    text = headers.get("retry-after")
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    when = _moment(text)
    now = _moment(headers.get("date", "")) or datetime.now(UTC)
    return None if when is None else max(0.0, (when - now).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _usual_id(hit: Any) -> Path:
    """Where ids usually are, by the first hit."""
    if not isinstance(hit, dict):
        plain = kind(hit) in ("text", "number")
        raise CallError(
            f"hit 1 is {kind(hit)}, and an object is expected"
            + ("; if it is the id itself, say item_id: '@'" if plain else "")
        )
    present = [name for name in ITEM_NAMES if name in hit]
    if not present:
        raise CallError(
            f"hit 1 has none of {', '.join(ITEM_NAMES)}; say item_id: <key>; a hit is {shape(hit)}"
        )
    # A null is no id, unless nothing else could be one: then the message says so.
    key = next((name for name in present if hit[name] is not None), present[0])
    return Path(key, {"type": "field", "value": key, "children": []}, [key])


def _id_of(path: Path, hit: Any, rank: int) -> str:
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
            f"hit {rank}: item_id: {path.text} finds nothing: {why}; the hit is {shape(hit)}"
        )
    raise CallError(f"hit {rank}: its id is {_spelled(value)}; ids are text or whole numbers")


def _detail(asked: Mapping[str, Path | None], name: str, hit: Any, rank: int) -> str | None:
    """What else a hit says of itself; a key that was not asked for counts if it is text."""
    path = asked[name]
    value = path.find(hit) if path else hit.get(name) if isinstance(hit, dict) else None
    if value is None or isinstance(value, str):
        return value
    is_number = isinstance(value, int) or (name == "version" and isinstance(value, float))
    if is_number and not isinstance(value, bool):
        return str(value)
    if path is None:
        return None
    raise CallError(f"hit {rank}: {name}: {path.text} is {kind(value)}, and text is expected")


def _number(value: Any, what: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CallError(f"{what} is {_spelled(value)}; a number is expected")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CallError(f"{what} is {value!r:.20}; a finite number is expected")
    return number


def _is_text(value: str) -> bool:
    """Whether a log can hold it: half of a surrogate pair is no character."""
    return not any("\ud800" <= one <= "\udfff" for one in value)


def _spelled(value: Any) -> str:
    """A value as JSON has it, for a message."""
    if isinstance(value, (Mapping, list)):
        return kind(value)
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return "a longer text"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return shown(value)
