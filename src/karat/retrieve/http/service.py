"""The http retriever: its options, and one templated call per query."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from karat.data.columns import ITEM_NAMES
from karat.errors import CallError
from karat.formats.settings import Form, custom_error
from karat.retrieve.build_context import BuildContext
from karat.retrieve.http.connection import Connection, ServiceProcess, free_port, start_service
from karat.retrieve.http.request import Template, has_open_port, with_port, wrong_address
from karat.retrieve.http.response import JsonPath, Reader
from karat.retrieve.placeholders import (
    ENVIRONMENT_VARIABLE,
    as_text,
    literal_in_headers,
    literal_in_url,
    literal_inside,
)
from karat.retrieve.protocol import Answer, Finder, Query
from karat.retrieve.system_config import Scalar, Seconds, Text

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_URL = re.compile(r"(?:https?://|\$\{)\S")
# Times that karat takes itself.
_OWN_TIMES = ("retrieve", "total")


def _expression(text: str) -> str:
    try:
        JsonPath.of(text)
    except ValueError as error:
        raise custom_error(
            f"{text!r} is no JMESPath expression: {_first_line(error)}; keys with other signs "
            "than letters, digits and _ stand in double quotation marks"
        ) from None
    return text


def _first_line(error: ValueError) -> str:
    line = str(error).partition("\n")[0].rstrip(":. ")
    return re.sub(r"^(?:Bad|Invalid) jmespath expression: ", "", line)


def _checked_url(value: Any) -> Any:
    if isinstance(value, str):
        _refuse(literal_in_url(value))
        if not _URL.match(value):
            raise custom_error(f"url is {value[:60]!r}; it must begin with http:// or https://")
        if not ENVIRONMENT_VARIABLE.search(value):
            _refuse(wrong_address(with_port(value, 1)))
    return value


def _checked_start(words_given: Any) -> Any:
    """Check the words of a command; numbers need no quotation marks."""
    if not isinstance(words_given, list):
        return words_given
    _refuse(_unquoted(words_given, ("port", "python")))
    words = [as_text(item) if isinstance(item, int | float) else item for item in words_given]
    texts = [item for item in words if isinstance(item, str)]
    for word, after in zip(texts, [*texts[1:], "-"], strict=True):
        name, equals, value = word.partition("=")
        value = value if equals else after
        is_option = word.startswith("-") and not name.endswith(("file", "path"))
        if is_option and not value.startswith("-"):
            _refuse(literal_inside({name.lstrip("-"): value}, "start"))
    return words


def _checked_headers(value: Any) -> Any:
    if isinstance(value, dict):
        _refuse(literal_in_headers(value))
        wrong = next((name for name in value if not _HEADER.fullmatch(str(name))), None)
        _refuse(None if wrong is None else f"headers: {wrong!r} is no name of a header")
    return value


def _checked_values(value: Any) -> Any:
    _refuse(literal_inside(value, "a value"))
    _refuse(_unquoted(value))
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise custom_error("holds a number that JSON cannot: not a number, or infinite") from None
    return value


def _unquoted(value: Any, names: Sequence[str] = ("query", "k", "query_id")) -> str | None:
    """Refuse ``top_k: {k}`` without quotation marks, which YAML reads as a mapping."""
    if isinstance(value, list):
        return next(filter(None, (_unquoted(inner, names) for inner in value)), None)
    if not isinstance(value, dict):
        return None
    name = next(iter(value), None)
    if len(value) == 1 and name in names and value[name] is None:
        return f'{{{name}}} stands without quotation marks; write "{{{name}}}"'
    return next(filter(None, (_unquoted(inner, names) for inner in value.values())), None)


def _refuse(why: str | None) -> None:
    if why is not None:
        raise custom_error(why)


Expression = Annotated[Text, AfterValidator(_expression)]
Values = Annotated[dict[str, Scalar | list[Scalar]], BeforeValidator(_checked_values)]


class HttpOptions(Form):
    """What to send to the service, and where its answer holds the hits."""

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
    def _agree(self) -> HttpOptions:
        if self.body is not None and self.form is not None:
            raise custom_error("body and form are two bodies; keep one of them")
        reserved = next((name for name in self.latency if name in _OWN_TIMES), None)
        _refuse(
            None if reserved is None else f"latency: {reserved} is what karat measures; rename it"
        )
        _refuse(self._wrong_start())
        return self

    def _wrong_start(self) -> str | None:
        """Return why start and url do not fit together."""
        is_open = has_open_port(self.url)
        if self.start is None:
            if "start_timeout" in self.model_fields_set:
                return "start_timeout is for a service that karat starts; give start too"
            message = "url has {port}, which is for a service that karat starts; give start too"
            return message if is_open else None
        if is_open and not any("{port}" in word for word in self.start):
            return "url has {port} and start has not; the service must be told its port"
        return None


Options = HttpOptions


def make(options: HttpOptions, context: BuildContext, parts: Mapping[str, Finder]) -> Http:
    """Return the service, started if needed; nothing is sent yet."""
    return Http(options, context)


class Http:
    """Calls a service once per query; hits keep the order of the answer."""

    batch = 1
    concurrency = 8
    deep = False

    def __init__(self, options: HttpOptions, context: BuildContext) -> None:
        self.meta: Mapping[str, Any] = {"endpoint": options.url}
        if has_open_port(options.url):
            options = options.model_copy(update={"url": with_port(options.url, free_port())})
        self._template = Template.of(options, context)
        self._redact = context.redact
        self._reader = Reader(options, self._redact)
        address = self._template.address
        self._wire = Connection(address, context.timeout)
        self._service: ServiceProcess | None = None
        if options.start is not None:
            self._service = start_service(options.start, address, options.start_timeout, context)

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        """Make one call per query."""
        return [self._call(query, k) for query in queries]

    def _call(self, query: Query, k: int) -> Answer:
        try:
            response = self._wire.send(self._template.filled(query, k))
            return self._reader.answer(response, k)
        except CallError as error:
            ended = None if self._service is None else self._service.ended()
            if ended is not None:
                raise CallError(ended) from None
            raise error.saying(self._redact(str(error))) from None
