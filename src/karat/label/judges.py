"""Judges: a model behind an OpenAI-compatible endpoint, or a stand-in that counts shared words.

The openai client makes the calls, at temperature 0 and for strict JSON. Its own retries are off,
since karat counts its own; answers are limited in size and time; and nothing of the environment
but the key goes to the endpoint. Only what is clearly a grade counts as one; everything else is a
failure, never a grade of 0.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pydantic import BaseModel, Field, ValidationError

from karat.errors import CallError, InputError, KaratError, UsageError
from karat.formats.files import open_input
from karat.formats.json_records import parse_json
from karat.jobs.calls import RateLimit, retry_after
from karat.jobs.redaction import redactor
from karat.label.labels import GRADES, Pair
from karat.pages.formatting import plural
from karat.retrieve.http_connection import parse_url
from karat.retrieve.user_code import import_library

if TYPE_CHECKING:
    import openai

_SHOWN = 160
_CUT = "the answer was cut off"

_THOUGHT = re.compile("<think>", re.IGNORECASE)
_END_OF_THOUGHT = re.compile("</think>", re.IGNORECASE)
_IN_DOUBT = re.compile(r"[][{}]|```|</?think>", re.IGNORECASE)
# One object in a fence, and no other brace or fence beside it: two answers count as none.
_FENCED = re.compile(r"[^{}`]*```(?:json)?\s*(\{.*\})\s*```[^{}`]*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """A grade and why."""

    grade: int
    rationale: str


@dataclass(frozen=True, slots=True)
class FailedAnswer:
    """Why a pair has no grade: failures are counted by ``reason``; ``detail`` is of this one."""

    reason: str
    detail: str = ""

    @property
    def error(self) -> str:
        """The reason with its detail, as a label file keeps it."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


Outcome = GradedAnswer | FailedAnswer


class Tokens(NamedTuple):
    """The tokens that an answer reports."""

    prompt: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a judge; ``tokens`` is None if it does not report them."""

    outcome: Outcome
    tokens: Tokens | None = None


class Judge(Protocol):
    """Anything that grades a pair, from several threads at once."""

    @property
    def rater(self) -> str: ...
    def key(self, pair: Pair) -> str: ...
    def ask(self, pair: Pair) -> Reply: ...
    def close(self) -> None: ...


class JudgeCallError(CallError):
    """A call was not answered; ``status`` is that of a refusal, ``where`` the endpoint."""

    def __init__(
        self, what: str, *, where: str = "", status: int | None = None, **retry: Any
    ) -> None:
        super().__init__(what, **retry)
        self.where, self.status = where, status


class JudgeGoneError(KaratError):
    """Every further call would fail too, so no more are made."""


class _Message(BaseModel):
    content: str | None = None
    refusal: Any = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: Any = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: Any = None


@dataclass(frozen=True)
class AnswerReader:
    """Reads answers; what is shown or kept of them goes through ``redact`` first."""

    redact: Callable[[str], str] = str

    def reply(self, body: bytes, kind: str) -> Reply:
        """Return the reply of a chat completion."""
        text = body.decode("utf-8", "replace")
        try:
            completion = _Completion.model_validate(parse_json(text, "the answer", None))
        except InputError:
            detail = self.excerpt(f"{kind or 'no content type'}: {text}")
            return Reply(FailedAnswer("the endpoint did not answer with JSON", detail))
        except ValidationError:
            reason = "the endpoint's answer is not a chat completion"
            return Reply(FailedAnswer(reason, self.excerpt(text)))
        return Reply(self._outcome(completion.choices[0]), _tokens(completion.usage))

    def excerpt(self, text: str) -> str:
        """Return the beginning of a text on one line, for a message."""
        line = " ".join(self.redact(text).split())
        return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"

    def _outcome(self, choice: _Choice) -> Outcome:
        if choice.message.refusal:
            return FailedAnswer("the model refused", self.excerpt(str(choice.message.refusal)))
        if choice.finish_reason == "content_filter":
            return FailedAnswer("the endpoint's content filter blocked the answer")
        return self.judgment(choice.message.content or "", cut=choice.finish_reason == "length")

    def judgment(self, content: str, *, cut: bool = False) -> Outcome:
        """Return the judgment in one JSON object with ``relevance`` 0, 1 or 2 and a ``rationale``.

        It may be in a fence, after a thought or among sentences, and its grade in quotes.
        """
        text = _answer_in(content)
        if not text:
            return FailedAnswer(_CUT if cut else "the answer is empty")
        try:
            answer = parse_json(text, "the answer", None)
        except InputError:
            # Half a character cannot be shown as it is.
            shown = content.encode("utf-8", "backslashreplace").decode()
            return FailedAnswer(_CUT if cut else "the answer is not JSON", self.excerpt(shown))
        if not isinstance(answer, dict):
            return FailedAnswer("the answer is not a JSON object", self.excerpt(content))
        grade, rationale = _grade(answer.get("relevance")), answer.get("rationale")
        if grade is None:
            return FailedAnswer("relevance is not 0, 1 or 2", self.excerpt(content))
        if not isinstance(rationale, str):
            return FailedAnswer("the answer has no rationale", self.excerpt(content))
        return GradedAnswer(grade, self.redact(rationale).strip())


def _answer_in(content: str) -> str:
    """Return the answer without the thought before it and the fence around it.

    >>> _answer_in('<think>It fits.</think>```json {"relevance": 2} ```')
    '{"relevance": 2}'
    """
    answer = content.strip()
    ends = list(_END_OF_THOUGHT.finditer(answer))
    if _THOUGHT.match(answer):
        answer = answer[ends[0].end() :].strip() if ends else answer
    elif ends and not answer.startswith(("{", "```")):
        # Some servers leave out where a thought begins.
        answer = answer[ends[-1].end() :].strip()
    fenced = _FENCED.fullmatch(answer)
    return _object_in(answer) if fenced is None else fenced[1]


def _object_in(text: str) -> str:
    """Return the one JSON object in a text; a text without one, or in doubt which, as it is.

    >>> _object_in('Sure. {"relevance": 2} Done.'), _object_in("{1} or {2}")
    ('{"relevance": 2}', '{1} or {2}')
    """
    start = text.find("{")
    if start < 0:
        return text
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return text
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return text
    around = (text[:start], text[end:])
    # A thought is no answer, and an object in a list or an unclosed fence is not alone.
    doubt = any(_IN_DOUBT.search(part) for part in around)
    return text if doubt else text[start:end]


def _grade(relevance: Any) -> int | None:
    """Return a grade, also one such as "1" or 1.0; None for anything else."""
    if isinstance(relevance, str):
        return {str(grade): grade for grade in GRADES}.get(relevance.strip())
    # True is a whole number to Python.
    is_number = isinstance(relevance, int | float) and not isinstance(relevance, bool)
    return int(relevance) if is_number and relevance in GRADES else None


def _tokens(usage: Any) -> Tokens | None:
    """Return the tokens that an answer reports; None if they are no numbers from 0."""
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(prompt) is not int or type(completion) is not int or min(prompt, completion) < 0:
        return None
    return Tokens(prompt, completion)


# In twelfths, so that a share of exactly a third or two thirds counts.
_TWO, _ONE, _OF = 8, 4, 12
_RULE = (
    "share of the query's different words (NFKC, case folded, runs of word characters) "
    f"that are in the text: 2 from {_TWO}/{_OF}, 1 from {_ONE}/{_OF}, else 0"
)
_WORD = re.compile(r"\w+")


class Overlap:
    """A stand-in for a judge: grades a pair by how many of the query's words are in the text.

    It understands nothing, so no number made from its labels says anything about a system.
    """

    rater = f"overlap@{hashlib.sha256(_RULE.encode()).hexdigest()[:12]}"

    def key(self, pair: Pair) -> str:
        """Return the digest of everything that the grade depends on."""
        inputs = [self.rater, pair.query, pair.text]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()

    def ask(self, pair: Pair) -> Reply:
        """Return 2 if two thirds of the query's words are in the text, 1 if a third are, else 0.

        >>> Overlap().ask(Pair("q", "d", "red garden door", "The door is RED, nearly.")).outcome
        GradedAnswer(grade=2, rationale="2 of 3 words of the query are in the text: 'door', 'red'")
        """
        words = _words(pair.query)
        if not words:
            return Reply(FailedAnswer("the query has no word"), Tokens())
        shared = sorted(words & _words(pair.text))
        twelfths = len(shared) * _OF
        grade = 2 if twelfths >= _TWO * len(words) else 1 if twelfths >= _ONE * len(words) else 0
        listed = f": {', '.join(map(repr, shared))}" if shared else ""
        counted = f"{len(shared):,} of {plural(len(words), 'word')} of the query"
        rationale = f"{counted} {'is' if len(shared) == 1 else 'are'} in the text{listed}"
        return Reply(GradedAnswer(grade, rationale), Tokens())

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _words(text: str) -> set[str]:
    return set(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


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
        left_out = [] if key else ["Authorization"]
        if not f".{parse_url(self.url)[0].host}".endswith(".openai.com"):
            # What the environment holds for openai.com is for no other endpoint.
            left_out += ["OpenAI-Organization", "OpenAI-Project"]
        self._headers = dict.fromkeys(left_out, library().Omit())
        self._headers |= {"Accept-Encoding": "identity"}
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
        reason = f"{{{stray[0]}}} is not a placeholder" if stray else f"has no {{{lacking[0]}}}"
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
