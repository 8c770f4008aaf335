"""A judge's answers: a grade with its rationale, or the reason why there is none.

Text around an answer (a thought, a sentence, a Markdown fence) is removed. Only what is clearly a
grade counts as one; everything else is a failure, never a grade of 0. ``Overlap`` is a stand-in
for a judge, for tests and for work without a model.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, Field, ValidationError

from karat.errors import CallError, InputError, KaratError
from karat.formats.json_records import parse_json
from karat.label.labels import GRADES, Pair

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
            reason = "the endpoint's answer is no chat completion"
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
            return FailedAnswer(_CUT if cut else "the answer is no JSON", self.excerpt(shown))
        if not isinstance(answer, dict):
            return FailedAnswer("the answer is no JSON object", self.excerpt(content))
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
        """Return the grade at once."""
        return Reply(_overlap(pair), Tokens())

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _overlap(pair: Pair) -> Outcome:
    """Return 2 if two thirds of the query's words are in the text, 1 if a third are, else 0.

    >>> _overlap(Pair("q", "d", "red garden door", "The door is RED, or nearly."))
    GradedAnswer(grade=2, rationale="2 of 3 words of the query are in the text: 'door', 'red'")
    """
    words = _words(pair.query)
    if not words:
        return FailedAnswer("the query has no word")
    shared = sorted(words & _words(pair.text))
    twelfths = len(shared) * _OF
    grade = 2 if twelfths >= _TWO * len(words) else 1 if twelfths >= _ONE * len(words) else 0
    listed = f": {', '.join(map(repr, shared))}" if shared else ""
    noun = "word" if len(words) == 1 else "words"
    counted = f"{len(shared)} of {len(words)} {noun} of the query"
    return GradedAnswer(
        grade, f"{counted} {'is' if len(shared) == 1 else 'are'} in the text{listed}"
    )


def _words(text: str) -> set[str]:
    return set(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))
