"""The http retriever: one call per query, made from the templates of a karat.yaml.

A service can be started for the run; it is stopped after it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from tempfile import TemporaryFile
from typing import Annotated, Any
from urllib.parse import quote, quote_plus, urlencode

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from karat.data.columns import ITEM_NAMES
from karat.errors import CallError, UsageError
from karat.formats.settings import ConfigModel, custom_error
from karat.jobs.signals import stop_on_signals
from karat.retrieve.build_context import BuildContext
from karat.retrieve.http_connection import Address, Connection, JsonPath, Reader, parse_url
from karat.retrieve.placeholders import (
    ENVIRONMENT_VARIABLE,
    as_text,
    fill_placeholders,
    literal_in_headers,
    literal_in_url,
    literal_inside,
    map_texts,
)
from karat.retrieve.protocol import Answer, Finder, Query, QueryFinder
from karat.retrieve.system_config import Scalar, Seconds, Text, refuse
from karat.retrieve.user_code import UserCode
from karat.version import __version__

_PLACE = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
# Only behind the host: in a path it is an attribute of the query.
_OPEN_PORT = re.compile(r"([^/?#]*//[^/?#]*):\{port\}(?=[/?#]|$)")
# Characters that need no encoding in a path and query; % begins an encoded one.
_SAFE = "/?:@!$&'()*+,;=-._~%"
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_IN_START = re.compile(r"(?<!\$)\{(?:port|python)\}")
# Seconds between two looks at a service that starts, and those that it has to end by itself.
_PAUSE, _GRACE = 0.05, 5.0
# Of its output, how many bytes are read, and how many lines and characters an error shows.
_KEPT_BYTES, _LINES, _LONGEST = 64_000, 5, 600
# Times that karat takes itself.
_TIMES = {"retrieve", "total"}


def _expression(text: str) -> str:
    try:
        JsonPath(text)
    except ValueError as error:
        line = str(error).partition("\n")[0].rstrip(":. ")
        raise custom_error(
            f"{text!r} is not a JMESPath expression: {line}; keys with other signs than letters, "
            "digits and _ need double quotation marks"
        ) from None
    return text


def _checked_url(value: Any) -> Any:
    if isinstance(value, str):
        refuse(literal_in_url(value))
        if not ENVIRONMENT_VARIABLE.search(value):
            try:
                _parts(with_port(value, 1), value)
            except UsageError as error:
                raise custom_error(str(error)) from None
    return value


def _checked_start(words: Any) -> Any:
    """Check the words of a command; numbers need no quotation marks."""
    if not isinstance(words, list):
        return words
    refuse(_unquoted(words, ("port", "python")))
    words = [as_text(item) if isinstance(item, int | float) else item for item in words]
    texts = [item for item in words if isinstance(item, str)]
    for word, after in pairwise([*texts, "-"]):
        name, equals, value = word.partition("=")
        value = value if equals else after
        is_option = word.startswith("-") and not name.endswith(("file", "path"))
        if is_option and not value.startswith("-"):
            refuse(literal_inside({name.lstrip("-"): value}, "start: "))
    return words


def _checked_headers(value: Any) -> Any:
    if isinstance(value, dict):
        refuse(literal_in_headers(value))
    return value


def _checked_values(value: Any) -> Any:
    refuse(literal_inside(value, "a value: "), _unquoted(value))
    return value


def _unquoted(value: Any, names: Sequence[str] = ("query", "k", "query_id")) -> str | None:
    """Refuse ``top_k: {k}`` without quotation marks, which YAML reads as a mapping."""
    if isinstance(value, dict):
        name = next(iter(value), None)
        if len(value) == 1 and name in names and value[name] is None:
            return f'{{{name}}} lacks quotation marks; write "{{{name}}}"'
        value = list(value.values())
    inside = value if isinstance(value, list) else ()
    return next(filter(None, (_unquoted(inner, names) for inner in inside)), None)


Expression = Annotated[Text, AfterValidator(_expression)]
Values = Annotated[dict[str, Scalar | list[Scalar]], BeforeValidator(_checked_values)]


def _of_hit(key: str, what: str) -> Any:
    return Field(None, description=f"a JMESPath expression for a hit's {what}; {key} if absent")


class HttpOptions(ConfigModel):
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
    score: Expression | None = _of_hit("score", "score")
    text: Expression | None = _of_hit("text", "text")
    doc_id: Expression | None = _of_hit("doc_id", "document")
    version: Expression | None = _of_hit("version", "version")
    source: Expression | None = _of_hit("source", "source")
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
        has_port = _OPEN_PORT.match(self.url) is not None
        is_told = self.start is None or any("{port}" in word for word in self.start)
        idle = "start_timeout" if "start_timeout" in self.model_fields_set else ""
        idle = idle or ("{port} in url" if has_port else "")
        both = self.body is not None and self.form is not None
        refuse(
            both and "body and form are two bodies; keep one of them",
            *(f"latency: {n} is what karat measures; rename it" for n in _TIMES & {*self.latency}),
            self.start is None and idle and f"{idle} is for a service that karat starts",
            has_port and not is_told and "{port} is in url, but not in start",
        )
        return self


Options = HttpOptions


def make(options: HttpOptions, context: BuildContext, parts: Mapping[str, Finder]) -> QueryFinder:
    """Return a finder that calls a service once per query; hits keep the order of the answer.

    The service is started if needed; nothing is sent before the first query.
    """
    meta = {"endpoint": options.url}
    if _OPEN_PORT.match(options.url):
        options = options.model_copy(update={"url": with_port(options.url, free_port())})
    template = Template(options, context)
    reader = Reader(options.model_dump(), context.redact)
    address = template.address
    # The time limit is for a call as a whole; a step that takes longer is of no more use.
    code = UserCode(str(address), context.timeout, context.redact, again=True)
    connection = Connection(address, context.timeout + 1)
    service: ServiceProcess | None = None
    if options.start is not None:
        service = ServiceProcess(options.start, address, context)
        service.wait(options.start_timeout)

    def search(query: Query, k: int) -> Answer:
        request = template.filled(query, k)
        try:
            return reader.answer(code.call(lambda: connection.send(*request)), k)
        except CallError as error:
            ending = None if service is None else service.ended()
            if ending is not None:
                raise CallError(ending) from None
            raise error.saying(code.redact(str(error))) from None

    return QueryFinder(search, meta, concurrency=8, deep=False)


class Template:
    """A request with its secrets filled in and its placeholders open."""

    def __init__(self, options: HttpOptions, context: BuildContext) -> None:
        url = _expanded_url(options.url, context)
        self.address, self.path, user_info = _parts(url, options.url)
        has_body = options.body is not None or options.form is not None
        self.method = (options.method or ("POST" if has_body else "GET")).upper()
        self.params = _expanded(options.params, context)
        self.body = _expanded(options.body, context)
        self.form = _expanded(options.form, context)
        headers = {
            "Host": str(self.address),
            "Accept": _JSON,
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": f"karat/{__version__}",
        }
        if options.form is not None:
            headers["Content-Type"] = _FORM
        elif isinstance(self.body, str) and not self.body.lstrip().startswith(("{", "[")):
            headers["Content-Type"] = "text/plain; charset=utf-8"
        elif self.body is not None:
            headers["Content-Type"] = _JSON
        if user_info:
            packed = base64.b64encode(user_info.encode()).decode()
            context.secrets["url"] = packed
            headers["Authorization"] = f"Basic {packed}"
        replaced = {name.lower() for name in options.headers}
        self.headers = {
            name: text for name, text in headers.items() if name.lower() not in replaced
        }
        for name, text in options.headers.items():
            self.headers[name] = _expanded(as_text(text), context)

    def filled(
        self, query: Query, k: int
    ) -> tuple[str, str, list[tuple[bytes, bytes]], bytes | None]:
        """Return the method, target, headers and content of the call for one query."""

        def fill(template: Any, quoting: Callable[[Any], str] = as_text) -> Any:
            return fill_placeholders(template, query, {"k": k}, quoting)

        try:
            path = quote(fill(self.path, lambda value: quote(as_text(value), "")), safe=_SAFE)
            if self.params:
                joint = "" if path.endswith(("?", "&")) else "&" if "?" in path else "?"
                path += joint + urlencode(_pairs(fill(self.params)), quote_via=quote)
            headers = []
            for name, template in self.headers.items():
                text = as_text(fill(template)).strip()
                if not text.isascii() or not text.isprintable():
                    raise CallError(
                        f"header {name} would hold a character that headers cannot carry; "
                        "put the query into params or body"
                    )
                headers.append((name.encode(), text.encode()))
            return self.method, path, headers, self._content(fill)
        except ValueError as error:
            raise CallError(f"query {query.query_id!r} cannot be sent: {error}") from None

    def _content(self, fill: Callable[..., Any]) -> bytes | None:
        if self.form is not None:
            return urlencode(_pairs(fill(self.form)), quote_via=quote_plus).encode()
        if isinstance(self.body, str):
            headers = {name.lower(): text.lower() for name, text in self.headers.items()}
            kind = headers["content-type"]
            in_json = "json" in kind or "graphql" in kind
            text = as_text(fill(self.body, _inside_json if in_json else as_text))
            if kind.startswith(_JSON):
                json.loads(text)
            return text.encode()
        if self.body is not None:
            return json.dumps(fill(self.body), allow_nan=False, default=str).encode()
        return b"" if self.method in ("POST", "PUT", "PATCH") else None


def with_port(url: str, port: int) -> str:
    """Return a URL with a number in place of the port ``{port}``.

    >>> with_port("http://127.0.0.1:{port}/search?from={port}", 8000)
    'http://127.0.0.1:8000/search?from={port}'
    """
    return _OPEN_PORT.sub(rf"\g<1>:{port}", url)


def _inside_json(value: Any) -> str:
    """Return a value for use inside JSON text, without quotation marks."""
    text = json.dumps(value, default=str)
    return text[1:-1] if isinstance(value, str) else text


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and values for a query string; a list repeats its name."""
    return [
        (name, as_text(item))
        for name, value in values.items()
        for item in (value if isinstance(value, list) else [value])
    ]


def _expanded(value: Any, context: BuildContext) -> Any:
    """Fill in environment variables; braces in their values are no placeholders."""

    def put(name: re.Match[str]) -> str:
        return _without_placeholders(context.expand(name[0]))

    return map_texts(value, lambda text: ENVIRONMENT_VARIABLE.sub(put, text))


def _expanded_url(url: str, context: BuildContext) -> str:
    """Fill in environment variables, percent-encoded where they are values."""
    start = url.find("?") if "?" in url else len(url)
    authority = re.match(r"[^/?#]*//[^/?#]*@", url)

    def put(name: re.Match[str]) -> str:
        value = context.expand(name[0])
        is_value = name.start() > start or (authority and name.end() < authority.end())
        return _without_placeholders(quote(value, safe="") if is_value else value.strip())

    return ENVIRONMENT_VARIABLE.sub(put, url)


def _without_placeholders(text: str) -> str:
    return _PLACE.sub(lambda place: f"{{{place[0]}}}", text)


def _parts(url: str, shown: str) -> tuple[Address, str, str]:
    """Return the address, the path with query, and user:password of a URL."""
    try:
        address, path, user_info = parse_url(url)
    except ValueError:
        raise UsageError(
            f"url: {shown} is not an address; it needs http:// or https://, and a host"
        ) from None
    if _PLACE.search(address.host):
        raise UsageError(f"url: {shown} has a placeholder in its host; give each system one host")
    return address, path, user_info


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class ServiceProcess:
    """A service that karat starts for a run: a process and its children, in a process group.

    ``stop`` ends them all. Its output goes to a temporary file, and errors show the end of it.
    """

    def __init__(self, command: Sequence[str], address: Address, context: BuildContext) -> None:
        if not hasattr(os, "killpg"):
            raise UsageError(
                "start: this system has no groups of processes; start the service yourself"
            )
        if not address.is_local:
            raise UsageError(
                f"start: a service at {address} is not on this machine; start it there"
            )
        if _listens(address):
            raise UsageError(
                f"start: something listens at {address} already, which would be asked instead; "
                'stop it, or have a free port chosen: "{port}" in start and in url'
            )
        context.ending.enter_context(stop_on_signals())
        known = {"{port}": str(address.port), "{python}": sys.executable}
        command = [_IN_START.sub(lambda place: known[place[0]], word) for word in command]
        self._command, self._redact, self._address = shlex.join(command), context.redact, address
        environment = {**os.environ, **context.environment, "PYTHONUNBUFFERED": "1"}
        self._output = TemporaryFile()  # noqa: SIM115 - open as long as the process
        weakref.finalize(self, self._output.close)
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
                [context.expand(word) for word in command],
                cwd=context.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise UsageError(f"start: {self._command} cannot be run: {why}") from None
        self._process = process
        # Stopped at the latest before the interpreter ends.
        self.stop = weakref.finalize(self, _end, process)
        context.ending.callback(self.stop)

    def wait(self, timeout: float) -> None:
        """Return once it listens; errors include its last output."""
        end = time.monotonic() + timeout
        listens = False
        while not listens:
            listens = _listens(self._address)
            # Looked at last, since another process may have been quicker at the same port.
            if (ending := self.ended()) is not None:
                raise UsageError(
                    f"start: {ending}; it must stay in the foreground; "
                    f"try it yourself: {self._command}"
                )
            if time.monotonic() > end and not listens:
                raise UsageError(
                    f"start: the service does not listen at {self._address} after {timeout:g} s"
                    f"{self._last_output()}; check its host and port, or give it longer with "
                    "start_timeout"
                )
            time.sleep(0 if listens else _PAUSE)

    def ended(self) -> str | None:
        """Return how it ended, with its last output; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        # Its process id may soon be reused, so its children are stopped now.
        self.stop()
        return f"the service ended with exit code {code}{self._last_output()}"

    def _last_output(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        end = os.pread(self._output.fileno(), _KEPT_BYTES, max(0, size - _KEPT_BYTES))
        # Secrets first: half of one, cut off, would not be recognised.
        output = self._redact(end.decode("utf-8", "replace"))
        lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
        text = " | ".join(lines[-_LINES:])
        return f" and printed: {text[-_LONGEST:]}" if text else " and printed nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the process group to end, then kill it; also on a second Ctrl-C."""
    # The group may have ended, or its number may belong to another user by now.
    gone = suppress(ProcessLookupError, PermissionError)
    try:
        with gone:
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    finally:
        with gone:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _listens(address: Address) -> bool:
    try:
        with socket.create_connection((address.host, address.port), timeout=1.0) as connection:
            # Where no one listens, a connection can meet itself.
            return bool(connection.getsockname() != connection.getpeername())
    except OSError:
        return False
