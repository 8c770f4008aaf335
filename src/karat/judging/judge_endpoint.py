"""A model behind an OpenAI-compatible endpoint as a judge: temperature 0, strict JSON answers."""

from __future__ import annotations

import email.utils
import hashlib
import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from karat.errors import UsageError
from karat.judging.judge_answers import JudgeGoneError, Judgment, Reader, Reply, Unjudged
from karat.judging.judge_client import Client, address, library
from karat.judging.judge_pairs import Pair
from karat.judging.judge_prompt import Prompt
from karat.judging.judge_secrets import USUAL, key_from, redactor
from karat.pacing import Pace

if TYPE_CHECKING:
    import openai

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
# What makes an endpoint answer in JSON, from the strictest; the prompt asks for it anyway.
_FORMS: tuple[dict[str, Any] | None, ...] = (
    {
        "type": "json_schema",
        "json_schema": {"name": "relevance", "strict": True, "schema": _SCHEMA},
    },
    {"type": "json_object"},
    None,
)
_SETTINGS: dict[str, Any] = {"temperature": 0, "seed": 0, "max_tokens": 400}
_OURS = ("model", "messages", "stream", "n", "response_format")
# Of the whole account or endpoint, not of one pair.
_FOR_ALL = {
    401: "check the key in {key}",
    402: "the account has no credit",
    404: "check --url and --model",
}
_NEWER = "max_completion_tokens"
_PASSING = (408, 409, 425, 429)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Where a model is and how it may be called."""

    url: str
    model: str
    key_env: str | None = None
    timeout: float = 60.0
    rate: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else every request says, such as ``{"cache_prompt": false}``; null takes away."""


class Endpoint:
    """Asks a model for the grade of a pair."""

    def __init__(self, access: Access, prompt: Prompt, environment: Mapping[str, str]) -> None:
        if not access.model.strip():
            raise UsageError("--model is empty; name the model as the endpoint calls it")
        taken = next((name for name in _OURS if name in access.more), None)
        if taken is not None:
            raise UsageError(f"--body sets {taken!r}, which karat sets itself")
        self.url = address(access.url)
        key = key_from(environment, access.key_env)
        self._reader = Reader(redactor(key, access.key_env))
        self._access, self._prompt = access, prompt
        settings = {**_SETTINGS, **access.more}
        self._settings = {name: value for name, value in settings.items() if value is not None}
        self._sends = self._settings
        self._client = Client(self.url, key, access.timeout)
        self._pace = Pace(access.rate)
        self._lock = threading.Lock()
        self._form = 0
        self._proven = False

    @property
    def rater(self) -> str:
        """The model and the start of its prompt's digest."""
        return f"{self._access.model}@{self._prompt.digest[:12]}"

    def key(self, pair: Pair) -> str:
        """The digest of all that a grade depends on."""
        told = [self._access.model, self._prompt.digest, self._settings, pair.query, pair.text]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def ask(self, pair: Pair) -> Reply:
        """One try; how the endpoint wants to be asked is found out once, by the first."""
        if not self._proven:
            with self._lock:
                if not self._proven:
                    return self._first(pair)
        return self._sent(pair, self._form)

    def close(self) -> None:
        """Hang up, and keep nobody waiting."""
        self._pace.stop.set()
        self._client.close()

    def _first(self, pair: Pair) -> Reply:
        """Ask in the strictest form, then in laxer ones; the first that is taken is kept."""
        refusal: Reply | None = None
        for form in range(self._form, len(_FORMS)):
            reply = self._sent(pair, form)
            if self._renamed(reply):
                reply = self._sent(pair, form)
            if not _is_bad_request(reply):
                if _is_answer(reply):
                    self._form, self._proven = form, True
                return reply
            refusal = refusal or reply
        return refusal or reply

    def _renamed(self, reply: Reply) -> bool:
        """Whether the endpoint wants the limit of tokens under its newer name."""
        told = reply.outcome.detail if isinstance(reply.outcome, Unjudged) else ""
        if not _is_bad_request(reply) or _NEWER not in told or "max_tokens" not in self._sends:
            return False
        self._sends = {
            (_NEWER if name == "max_tokens" else name): value for name, value in self._sends.items()
        }
        return True

    def _sent(self, pair: Pair, form: int) -> Reply:
        self._pace.wait()
        try:
            body, kind = self._client.send(self._request(pair, form))
        except library().OpenAIError as error:
            return Reply(replace(self._failure(error), where=self.url))
        return self._reader.reply(body, kind)

    def _request(self, pair: Pair, form: int) -> dict[str, Any]:
        wanted = _FORMS[form]
        return {
            "model": self._access.model,
            "messages": [{"role": "user", "content": self._prompt.filled(pair)}],
            **self._sends,
            **({} if wanted is None else {"response_format": wanted}),
        }

    def _failure(self, error: openai.OpenAIError) -> Unjudged:
        package = library()
        if isinstance(error, package.APITimeoutError):
            return Unjudged(f"no answer within {self._access.timeout:g} s", may_pass=True)
        if isinstance(error, package.APIStatusError):
            return self._refusal(error)
        # Older clients wrap what was raised while the answer was read.
        cause = error.__cause__ or error
        if isinstance(error, package.APIConnectionError) and not _is_own(cause, package):
            told = self._reader.shown(str(cause))
            return Unjudged("the connection failed", told, may_pass=True)
        return Unjudged(self._reader.shown(str(cause)))

    def _refusal(self, error: openai.APIStatusError) -> Unjudged:
        status, said = error.status_code, self._reader.shown(_said(error.response.text))
        quota = status == 429 and "insufficient_quota" in error.response.text
        if status in _FOR_ALL or quota:
            todo = _FOR_ALL.get(status, "the account has no credit")
            todo = todo.format(key=self._access.key_env or USUAL)
            raise JudgeGoneError(f"{self.url} answered {status}{said and f': {said}'}; {todo}")
        passing = status in _PASSING or status >= 500
        return Unjudged(
            f"the endpoint answered {status}",
            said,
            may_pass=passing,
            wait=asked_wait(error.response.headers, time.time()) if passing else None,
            status=status,
        )


def _is_bad_request(reply: Reply) -> bool:
    return isinstance(reply.outcome, Unjudged) and reply.outcome.status in (400, 422, 501)


def _is_own(cause: BaseException, package: Any) -> bool:
    """Whether karat refused an answer while it came in."""
    return type(cause) is package.OpenAIError


def _is_answer(reply: Reply) -> bool:
    """Whether the endpoint took the request, whatever it made of it."""
    outcome = reply.outcome
    return isinstance(outcome, Judgment) or (outcome.status is None and not outcome.may_pass)


def _said(body: str) -> str:
    """The message inside an error's body, else the body."""
    try:
        told = json.loads(body)
    except ValueError:
        return body
    inner = told.get("error", told) if isinstance(told, dict) else told
    message = inner.get("message", inner) if isinstance(inner, dict) else inner
    return message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)


def asked_wait(headers: Mapping[str, str], now: float) -> float | None:
    """How many seconds a Retry-After asks for, given as a number or as a date.

    A date is by the clock of the endpoint, which may differ from the one here: ``now``.

    >>> asked_wait({"retry-after": "1.5"}, 0)
    1.5
    >>> asked_wait({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 20)
    40.0
    >>> day = "Fri, 02 Jan 1970 00:{}:00 GMT"
    >>> asked_wait({"retry-after": day.format("03"), "date": day.format("01")}, 20)
    120.0
    """
    told = headers.get("retry-after", "").strip()
    try:
        seconds = float(told)
    except ValueError:
        try:
            seconds = _moment(told) - now
        except (TypeError, ValueError):
            return None
        with suppress(TypeError, ValueError):
            seconds += now - _moment(headers.get("date", ""))
    return seconds if 0 <= seconds < float("inf") else None


def _moment(text: str) -> float:
    return email.utils.parsedate_to_datetime(text).timestamp()
