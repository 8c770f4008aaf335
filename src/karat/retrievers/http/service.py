"""Any search service over HTTP: a templated request out, the ranked hits of its answer in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from karat.columns import ITEM_NAMES
from karat.errors import CallError
from karat.formats.forms import Form, refused
from karat.retrievers.forms import Scalar, Seconds, Text
from karat.retrievers.http.answers import Reader
from karat.retrievers.http.paths import Path
from karat.retrievers.http.request import Template, has_open_port, with_port, wrong_address
from karat.retrievers.http.starting import Service, free_port, start
from karat.retrievers.http.wire import Wire
from karat.retrievers.protocol import Answer, Finder, Query
from karat.retrievers.secrets import (
    FROM_ENVIRONMENT,
    literal_in_headers,
    literal_in_url,
    literal_inside,
)
from karat.retrievers.templates import spelled
from karat.retrievers.workshop import Workshop

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_URL = re.compile(r"(?:https?://|\$\{)\S")
# Times that karat takes itself.
_OWN_TIMES = ("retrieve", "total")


def _expression(text: str) -> str:
    try:
        Path.of(text)
    except ValueError as error:
        raise refused(
            f"{text!r} is no JMESPath expression: {_first_line(error)}; keys with other signs "
            "than letters, digits and _ stand in double quotation marks"
        ) from None
    return text


def _first_line(error: ValueError) -> str:
    line = str(error).partition("\n")[0].rstrip(":. ")
    return re.sub(r"^(?:Bad|Invalid) jmespath expression: ", "", line)


def _checked_url(given: Any) -> Any:
    if isinstance(given, str):
        _refuse(literal_in_url(given))
        if not _URL.match(given):
            raise refused(f"url is {given[:60]!r}; it must begin with http:// or https://")
        if not FROM_ENVIRONMENT.search(given):
            _refuse(wrong_address(with_port(given, 1)))
    return given


def _checked_start(given: Any) -> Any:
    """The words of a command; numbers among them need no quotation marks."""
    if not isinstance(given, list):
        return given
    _refuse(_unquoted(given, ("port", "python")))
    words = [spelled(one) if isinstance(one, int | float) else one for one in given]
    told = [one for one in words if isinstance(one, str)]
    for word, after in zip(told, [*told[1:], "-"], strict=True):
        name, equals, value = word.partition("=")
        value = value if equals else after
        is_option = word.startswith("-") and not name.endswith(("file", "path"))
        if is_option and not value.startswith("-"):
            _refuse(literal_inside({name.lstrip("-"): value}, "start"))
    return words


def _checked_headers(given: Any) -> Any:
    if isinstance(given, dict):
        _refuse(literal_in_headers(given))
        wrong = next((name for name in given if not _HEADER.fullmatch(str(name))), None)
        _refuse(None if wrong is None else f"headers: {wrong!r} is no name of a header")
    return given


def _checked_values(given: Any) -> Any:
    _refuse(literal_inside(given, "a value"))
    _refuse(_unquoted(given))
    try:
        json.dumps(given, allow_nan=False)
    except ValueError:
        raise refused("holds a number that JSON cannot: not a number, or infinite") from None
    return given


def _unquoted(value: Any, names: Sequence[str] = ("query", "k", "query_id")) -> str | None:
    """``top_k: {k}`` without quotation marks is a mapping to YAML, and never what is meant."""
    if isinstance(value, list):
        return next(filter(None, (_unquoted(one, names) for one in value)), None)
    if not isinstance(value, dict):
        return None
    name = next(iter(value), None)
    if len(value) == 1 and name in names and value[name] is None:
        return f'{{{name}}} stands without quotation marks; write "{{{name}}}"'
    return next(filter(None, (_unquoted(one, names) for one in value.values())), None)


def _refuse(why: str | None) -> None:
    if why is not None:
        raise refused(why)


Expression = Annotated[Text, AfterValidator(_expression)]
Values = Annotated[dict[str, Scalar | list[Scalar]], BeforeValidator(_checked_values)]


class Options(Form):
    """What to send to the service, and where the hits are in what it answers."""

    url: Annotated[str, BeforeValidator(_checked_url)] = Field(
        description="the address of the service, http://… or https://…, with {query} if it is "
        "there; its port is {port} where start is given one"
    )
    start: Annotated[list[str], Field(min_length=1), BeforeValidator(_checked_start)] | None = (
        Field(
            None,
            description="the command that starts the service here, a list of words; {port} is a "
            "free port, {python} this Python; it is stopped at the end",
        )
    )
    start_timeout: Seconds = Field(
        30.0, description="seconds until a service that is started must listen, above 0"
    )
    method: Annotated[str, Field(pattern="^[A-Za-z]+$")] | None = Field(
        None, description="GET, POST or another method; POST if there is a body or form, else GET"
    )
    params: Values = Field(
        default_factory=dict, description="a mapping of names to values, sent in the URL"
    )
    headers: Annotated[dict[str, Scalar], BeforeValidator(_checked_headers)] = Field(
        default_factory=dict, description="a mapping of headers to texts, secrets as ${NAME}"
    )
    body: Annotated[dict[str, Any] | list[Any] | Text | None, BeforeValidator(_checked_values)] = (
        Field(None, description="a mapping or list, sent as JSON, or the text to send")
    )
    form: Values | None = Field(
        None, description="a mapping of names to values, sent as a form instead of a body"
    )
    hits: Expression = Field("hits[]", description="a JMESPath expression for the list of hits")
    item_id: Expression | None = Field(
        None,
        description="a JMESPath expression for a hit's id; if absent, the first of "
        + ", ".join(ITEM_NAMES),
    )
    score: Expression | None = Field(
        None, description="a JMESPath expression for a hit's score; score if absent"
    )
    text: Expression | None = Field(
        None, description="a JMESPath expression for a hit's text; text if absent"
    )
    doc_id: Expression | None = Field(
        None, description="a JMESPath expression for a hit's document; doc_id if absent"
    )
    version: Expression | None = Field(
        None, description="a JMESPath expression for a hit's version; version if absent"
    )
    source: Expression | None = Field(
        None, description="a JMESPath expression for a hit's source; source if absent"
    )
    latency: dict[str, Expression] = Field(
        default_factory=dict,
        description="a mapping of names to JMESPath expressions for times in ms, such as "
        "{service: took}",
    )
    cost: dict[str, Expression] = Field(
        default_factory=dict,
        description="a mapping of names to JMESPath expressions for numbers, such as "
        "{tokens: usage.total_tokens}",
    )

    @model_validator(mode="after")
    def _agree(self) -> Options:
        if self.body is not None and self.form is not None:
            raise refused("body and form are two bodies; keep one of them")
        own = next((name for name in self.latency if name in _OWN_TIMES), None)
        _refuse(None if own is None else f"latency: {own} is what karat measures; rename it")
        _refuse(self._wrong_start())
        return self

    def _wrong_start(self) -> str | None:
        """Why start and url do not fit together, if that is so."""
        is_open = has_open_port(self.url)
        if self.start is None:
            if "start_timeout" in self.model_fields_set:
                return "start_timeout is for a service that karat starts; give start too"
            told = "url has {port}, which is for a service that karat starts; give start too"
            return told if is_open else None
        if is_open and not any("{port}" in word for word in self.start):
            return "url has {port} and start has not; the service must be told its port"
        return None


def make(options: Options, workshop: Workshop, parts: Mapping[str, Finder]) -> Http:
    """The service, started if it is to be; nothing is sent yet."""
    return Http(options, workshop)


class Http:
    """Calls a service once a query; its list is taken in the order in which it comes."""

    batch = 1
    concurrency = 8
    deep = False

    def __init__(self, options: Options, workshop: Workshop) -> None:
        self.meta: Mapping[str, Any] = {"endpoint": options.url}
        if has_open_port(options.url):
            options = options.model_copy(update={"url": with_port(options.url, free_port())})
        self._template = Template.of(options, workshop)
        self._redact = workshop.redact
        self._reader = Reader(options, self._redact)
        address = self._template.address
        self._wire = Wire(address, workshop.timeout)
        self._service: Service | None = None
        if options.start is not None:
            self._service = start(options.start, address, options.start_timeout, workshop)

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """One call a query."""
        return [self._one(query, k) for query in queries]

    def _one(self, query: Query, k: int) -> Answer:
        try:
            response = self._wire.send(self._template.filled(query, k))
            return self._reader.answer(response, k)
        except CallError as error:
            ended = None if self._service is None else self._service.ended()
            if ended is not None:
                raise CallError(ended) from None
            raise error.saying(self._redact(str(error))) from None
