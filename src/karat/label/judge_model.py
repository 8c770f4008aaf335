"""A model behind an OpenAI-compatible endpoint as a judge: temperature 0, strict JSON answers.

The openai client makes the calls. Its own retries are off, since karat counts its own; answers are
limited in size and time; and nothing of the environment but the key goes to the endpoint.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from karat.errors import InputError, KaratError, UsageError
from karat.formats.files import open_input
from karat.jobs.calls import RateLimit, retry_after
from karat.jobs.redaction import redactor
from karat.label.judge_answers import (
    AnswerReader,
    FailedAnswer,
    JudgeCallError,
    JudgeGoneError,
    Reply,
)
from karat.label.labels import Pair
from karat.retrieve.http_connection import parse_url
from karat.retrieve.user_code import import_library

if TYPE_CHECKING:
    import openai

DEFAULT_KEY_ENV = "OPENAI_API_KEY"
_SCHEMA = {
    "type": "object",
    "properties": {
        # The reason before the grade: a model then grades what it has just said.
        "rationale": {"type": "string"},
        "relevance": {"type": "integer", "enum": [0, 1, 2]},
    },
    "required": ["rationale", "relevance"],
    "additionalProperties": False,
}
# Ways to make an endpoint answer in JSON, the strictest first. The prompt asks for it anyway.
_FORMS: tuple[dict[str, Any] | None, ...] = (
    {
        "type": "json_schema",
        "json_schema": {"name": "relevance", "strict": True, "schema": _SCHEMA},
    },
    {"type": "json_object"},
    None,
)
_SETTINGS: dict[str, Any] = {"temperature": 0, "seed": 0, "max_tokens": 400}
_RESERVED = ("model", "messages", "stream", "n", "response_format")
# These concern the whole account or endpoint, not one pair.
_FATAL = {
    401: "check the key in {key}",
    402: "the account has no credit",
    404: "check --url and --model",
}
_NEW_LIMIT_NAME = "max_completion_tokens"
_RETRIED = (408, 409, 425, 429)
_BAD_REQUEST = (400, 422, 501)
MAX_ANSWER_BYTES = 1_000_000
_CALL = "/chat/completions"
DEFAULT_PROMPT = Path(__file__).with_name("prompt.md")
_PLACEHOLDERS = ("query", "text")
# Braces around anything but a plain word are JSON, as in {"relevance": 2}.
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Endpoint:
    """Asks the model at ``url`` for the grade of a pair, at most ``rate`` times per second.

    ``more`` are further fields of every request, such as ``{"cache_prompt": false}``; null
    removes one.
    """

    def __init__(
        self,
        prompt: Prompt,
        environment: Mapping[str, str],
        *,
        url: str,
        model: str,
        key_env: str | None = None,
        timeout: float = 60.0,
        rate: float | None = None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        if not model.strip():
            raise UsageError("--model is empty; name the model as the endpoint calls it")
        reserved = next((name for name in _RESERVED if name in more), None)
        if reserved is not None:
            raise UsageError(f"--body sets {reserved!r}, which karat sets itself")
        self.url, self._model, self._timeout = address(url), model, timeout
        self._key_env = key_env or DEFAULT_KEY_ENV
        key = key_from(environment, key_env)
        secrets = {} if key is None else {self._key_env: key}
        # A short key such as "none" is no secret, and may occur inside other words.
        redact = redactor(secrets, whole_words_below=8, ignore_case=True)
        self._reader = AnswerReader(redact)
        self._prompt = prompt
        settings = {**_SETTINGS, **more}
        self._settings = {name: value for name, value in settings.items() if value is not None}
        self._fields = self._settings
        self._client = _client(self.url, key, timeout)
        self._headers = _headers(self.url, key)
        self._rate_limit = RateLimit(rate)
        self._lock = threading.Lock()
        self._form = 0
        self._proven = False

    @property
    def rater(self) -> str:
        """The model, and the start of its prompt's digest."""
        return f"{self._model}@{self._prompt.digest[:12]}"

    def key(self, pair: Pair) -> str:
        """Return the digest of everything that a grade depends on."""
        inputs = [self._model, self._prompt.digest, self._settings, pair.query, pair.text]
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()

    def ask(self, pair: Pair) -> Reply:
        """Ask once; the first call finds out which form of request the endpoint accepts."""
        if not self._proven:
            with self._lock:
                if not self._proven:
                    return self._first(pair)
        return self._send(pair, self._form)

    def close(self) -> None:
        """Close the connection and end all waits."""
        self._rate_limit.stop.set()
        self._client.close()

    def _first(self, pair: Pair) -> Reply:
        """Ask in the strictest form, then in laxer ones; keep the first that is accepted."""
        refusal: JudgeCallError | None = None
        for form in range(len(_FORMS)):
            try:
                reply = self._send_renamed(pair, form)
            except JudgeCallError as error:
                if error.status not in _BAD_REQUEST:
                    raise
                refusal = refusal or error
            else:
                self._form, self._proven = form, True
                return reply
        raise refusal or AssertionError("there are forms to try")

    def _send_renamed(self, pair: Pair, form: int) -> Reply:
        """Ask, and again with the newer name of the token limit if the endpoint wants it."""
        try:
            return self._send(pair, form)
        except JudgeCallError as error:
            if _NEW_LIMIT_NAME not in str(error) or "max_tokens" not in self._fields:
                raise
        most = {_NEW_LIMIT_NAME: self._fields["max_tokens"]}
        self._fields = {k: v for k, v in self._fields.items() if k != "max_tokens"} | most
        return self._send(pair, form)

    def _send(self, pair: Pair, form: int) -> Reply:
        self._rate_limit.wait()
        body = dict(self._fields)
        if (response_format := _FORMS[form]) is not None:
            body["response_format"] = response_format
        package = library()
        try:
            answer = self._client.chat.completions.with_raw_response.create(
                model=self._model,
                messages=[{"role": "user", "content": self._prompt.filled(pair)}],
                extra_body=body,
                extra_headers=self._headers,
            ).http_response
            return self._reader.reply(answer.content, answer.headers.get("content-type", ""))
        except package.APIStatusError as error:
            raise self._refusal(error) from None
        except package.OpenAIError as error:
            # The client wraps what was raised while the answer was read.
            cause = error.__cause__ or error
            if package.APITimeoutError in (type(error), type(cause)):
                reason = f"no answer within {self._timeout:g} s"
            elif type(cause) is package.OpenAIError:
                return Reply(FailedAnswer(self._reader.excerpt(str(cause))))
            else:
                reason = f"the connection failed: {self._reader.excerpt(str(cause))}"
            raise JudgeCallError(reason, where=self.url, may_pass=True) from None

    def _refusal(self, error: openai.APIStatusError) -> KaratError:
        """Return the error for an answer with a status other than success."""
        status, text = error.status_code, error.response.text
        message = self._reader.excerpt(_error_message(text))
        detail = f": {message}" if message else ""
        no_credit = status == 429 and "insufficient_quota" in text
        if remedy := _FATAL.get(402 if no_credit else status):
            remedy = remedy.format(key=self._key_env)
            return JudgeGoneError(f"{self.url} answered {status}{detail}; {remedy}")
        may_pass = status in _RETRIED or status >= 500
        return JudgeCallError(
            f"the endpoint answered {status}{detail}",
            where=self.url,
            status=status,
            may_pass=may_pass,
            wait=retry_after(error.response.headers) if may_pass else None,
        )


def _error_message(body: str) -> str:
    """Return the message inside an error's body, else the body."""
    with suppress(ValueError):
        record = json.loads(body)
        for name in ("error", "message"):
            record = record.get(name, record) if isinstance(record, dict) else record
        return record if isinstance(record, str) else json.dumps(record, ensure_ascii=False)
    return body


def key_from(environment: Mapping[str, str], name: str | None) -> str | None:
    """Return the key in a variable; a variable that was named must be set."""
    if name is not None and not name.strip():
        raise UsageError("--key-env is empty; name the variable that holds the key")
    key = environment.get(name or DEFAULT_KEY_ENV, "").strip()
    if key:
        if not (key.isascii() and key.isprintable()):
            variable = name or DEFAULT_KEY_ENV
            raise UsageError(f"the key in {variable} holds characters that a key cannot have")
        return key
    if name is not None:
        raise UsageError(f"--key-env names {name}, which is not set; export the key under it")
    return None


@dataclass(frozen=True)
class Prompt:
    """A template with ``{query}`` and ``{text}`` in it."""

    template: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the template: another prompt makes another judge."""
        return hashlib.sha256(self.template.encode()).hexdigest()

    def filled(self, pair: Pair) -> str:
        """Return the prompt for one pair; braces inside its texts stay as they are."""
        texts = {"query": pair.query, "text": pair.text}
        return _PLACEHOLDER.sub(lambda match: texts[match[1]], self.template)


def read_prompt(path: str | Path | None = None) -> Prompt:
    """Read a prompt, by default karat's own; it must have both placeholders and no other."""
    file = open_input(DEFAULT_PROMPT if path is None else path)
    template = file.text()
    places = {match[1]: match.start() for match in _PLACEHOLDER.finditer(template)}
    lacking = [name for name in _PLACEHOLDERS if name not in places]
    stray = [name for name in places if name not in _PLACEHOLDERS]
    if lacking or stray:
        line = template.count("\n", 0, places[stray[0]]) + 1 if stray else None
        reason = f"{{{stray[0]}}} is no placeholder" if stray else f"has no {{{lacking[0]}}}"
        raise InputError(
            f"{reason}; a prompt holds {{query}} and {{text}} where they belong",
            where=file.name,
            line=line,
        )
    return Prompt(template)


def address(url: str) -> str:
    """Return the base of an endpoint, without what the client adds."""
    base = url.strip()
    try:
        user_info = parse_url(base)[2]
    except ValueError:
        user_info = "?"
    if user_info or "?" in base or "#" in base:
        # The address is not shown: it may hold a secret.
        base = "the base of an endpoint, without a user, a password, ? or #"
        raise UsageError(f"--url must be {base}; the key comes from the environment")
    return base.rstrip("/").removesuffix(_CALL)


def library() -> Any:
    """Return the openai package; raise with the install command if it is missing."""
    return import_library("openai", "karat judge", "the openai client", "judge")


def _client(url: str, key: str | None, timeout: float) -> openai.OpenAI:
    """Return a client of one endpoint, which any number of threads may use."""
    package = library()
    place, _, _ = parse_url(url)

    def read_limited(response: Any) -> None:
        """Read an answer whole, unless it is too large or too slow."""
        if response.headers.get("content-encoding", "identity") != "identity":
            # It could be of any size when it is unpacked.
            raise package.OpenAIError("the answer is compressed; karat did not accept that")
        end, content = time.monotonic() + timeout, b""
        for chunk in response.stream:
            content += chunk
            if len(content) > MAX_ANSWER_BYTES:
                raise package.OpenAIError(f"the answer is larger than {MAX_ANSWER_BYTES:,} bytes")
            if time.monotonic() > end:
                raise package.APITimeoutError(response.request)
        response.stream.close()
        response.stream = type(response)(response.status_code, content=content).stream

    client: openai.OpenAI = package.OpenAI(
        # The client requires a key; without one no header is sent.
        api_key=key or "none",
        base_url=url,
        max_retries=0,
        timeout=timeout,
        http_client=package.DefaultHttpxClient(
            timeout=timeout,
            follow_redirects=False,
            # A proxy could not reach this machine.
            mounts={f"all://{place}": None} if place.is_local else {},
            event_hooks={"response": [read_limited]},
        ),
    )
    return client


def _headers(url: str, key: str | None) -> dict[str, Any]:
    """Return the headers of every call: what the environment holds for openai.com stays here."""
    left_out = [] if key else ["Authorization"]
    if not f".{parse_url(url)[0].host}".endswith(".openai.com"):
        left_out += ["OpenAI-Organization", "OpenAI-Project"]
    omit = library().Omit()
    return {"Accept-Encoding": "identity", **dict.fromkeys(left_out, omit)}
