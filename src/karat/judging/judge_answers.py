"""What a judge answers: a grade with its rationale, or why there is none.

What models write around an answer (a thought or a sentence, a fence of Markdown) is taken off.
Nothing that is not clearly a grade is taken for one; above all it is never a 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from karat.errors import InputError, KaratError
from karat.formats.records import parse
from karat.judging.judge_pairs import Pair
from karat.judging.labels import GRADES

_SHOWN = 160
_CUT = "the answer was cut off"
_NO_JSON = "the answer is no JSON"
_EMPTY = "the answer is empty"
# What Python would take for JSON and karat does not: nobody could tell which of two was meant.
_UNREAD = {
    "key ": "the answer has a key twice",
    **dict.fromkeys(("NaN", "Infinity", "-Infinity"), "the answer holds NaN or Infinity"),
    "holds half": "the answer holds half a character",
    "JSON nested": "the answer is nested too deeply",
    "holds a number": "the answer holds a number that is too long",
}


_THOUGHT = re.compile("<think>", re.IGNORECASE)
_END_OF_THOUGHT = re.compile("</think>", re.IGNORECASE)
_IN_DOUBT = re.compile(r"[][{}]|```|</?think>", re.IGNORECASE)
# One object in a fence, and no other brace or fence beside it: of two answers none is taken.
_FENCED = re.compile(r"[^{}`]*```(?:json)?\s*(\{.*\})\s*```[^{}`]*", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Judgment:
    """A grade and why."""

    grade: int
    rationale: str


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Why a pair has no grade.

    ``reason`` is what failures are counted by, ``detail`` what this one said. ``may_pass``
    means that asking again may help, ``wait`` how many seconds the endpoint asked for, and
    ``status`` is that of HTTP where it tells of a failure.
    """

    reason: str
    detail: str = ""
    may_pass: bool = False
    wait: float | None = None
    status: int | None = None
    where: str = field(default="", compare=False)
    """The address of the endpoint, where a call failed."""

    @property
    def error(self) -> str:
        """The reason with its detail, as a label file keeps it."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason

    @property
    def refused(self) -> bool:
        """Whether the endpoint did not want the request itself."""
        return self.status is not None and not self.may_pass


Outcome = Judgment | Unjudged


@dataclass(frozen=True, slots=True)
class Tokens:
    """What an answer says that it took."""

    prompt: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of asking; ``tokens`` is None where the endpoint did not say."""

    outcome: Outcome
    tokens: Tokens | None = None


class Judge(Protocol):
    """Whoever can be asked about a pair, from several threads at once."""

    @property
    def rater(self) -> str: ...
    def key(self, pair: Pair) -> str: ...
    def ask(self, pair: Pair) -> Reply: ...
    def close(self) -> None: ...


class JudgeGoneError(KaratError):
    """Every further call would be refused too, so no more are made."""


@dataclass(frozen=True)
class Reader:
    """Reads answers; whatever of them is shown or kept goes through ``redact`` first."""

    redact: Callable[[str], str] = str

    def reply(self, body: bytes, kind: str) -> Reply:
        """A chat completion as it came over the wire."""
        try:
            record = parse(body.decode("utf-8"), "the answer", None)
        except (UnicodeDecodeError, InputError):
            told = f"{kind or 'no content type'}: {body.decode('utf-8', 'replace')}"
            return Reply(Unjudged("the endpoint did not answer with JSON", self.shown(told)))
        if not isinstance(record, dict):
            what = "the endpoint's answer is no chat completion"
            return Reply(Unjudged(what, self.shown(str(record))))
        return Reply(self._outcome(record), _tokens(record.get("usage")))

    def shown(self, text: str) -> str:
        """The beginning of a text on one line, for a message."""
        line = " ".join(self.redact(text).split())
        return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"

    def _outcome(self, record: Mapping[str, Any]) -> Outcome:
        choices = record.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            told = record.get("error")
            return Unjudged("the answer holds no choice", self.shown(str(told)) if told else "")
        message, ended = choices[0].get("message"), choices[0].get("finish_reason")
        if not isinstance(message, dict):
            return Unjudged("the answer holds no message")
        if message.get("refusal"):
            return Unjudged("the model refused", self.shown(str(message["refusal"])))
        if ended == "content_filter":
            return Unjudged("the endpoint's filter held the answer back")
        content = message.get("content")
        if content is None or content == "":
            return Unjudged(_CUT if ended == "length" else _EMPTY)
        if not isinstance(content, str):
            return Unjudged("the answer is no text", self.shown(str(content)))
        return self.judgment(content, cut=ended == "length")

    def judgment(self, content: str, *, cut: bool = False) -> Outcome:
        """What a model wrote: one JSON object with ``relevance`` 0, 1 or 2 and a ``rationale``.

        It may stand in a fence, after a thought or among sentences, and its grade in quotes.
        """
        answered = _answer_in(content)
        if not answered:
            return Unjudged(_CUT if cut else _EMPTY)
        try:
            answer = parse(answered, "the answer", None)
        except InputError as error:
            # Half a character cannot be shown as it is.
            told = self.shown(content.encode("utf-8", "backslashreplace").decode())
            return Unjudged(_CUT if cut else _why_unread(error.what), told)
        if not isinstance(answer, dict):
            return Unjudged("the answer is no JSON object", self.shown(content))
        grade, rationale = _grade(answer.get("relevance")), answer.get("rationale")
        # True is a whole number to Python.
        if type(grade) is not int or grade not in GRADES:
            return Unjudged("relevance is not 0, 1 or 2", self.shown(content))
        if not isinstance(rationale, str):
            return Unjudged("the answer has no rationale", self.shown(content))
        return Judgment(grade, self.redact(rationale).strip())


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
    if start < 0 or _is_json(text):
        return text
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return text
    around = (text[:start], text[end:])
    # A thought is no answer, and an object in a list or an unclosed fence is not alone.
    doubt = any(_IN_DOUBT.search(one) for one in around)
    return text if doubt else text[start:end]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _grade(relevance: Any) -> Any:
    """Return a grade in quotes, or such as 1.0, as the number it is, anything else as it came."""
    if isinstance(relevance, float) and relevance.is_integer():
        return int(relevance)
    spelled = {str(grade): grade for grade in GRADES}
    return spelled.get(relevance.strip(), relevance) if isinstance(relevance, str) else relevance


def _why_unread(what: str) -> str:
    """Why an answer is not taken, from what reading it said; keys of its own are not repeated."""
    return next((told for sign, told in _UNREAD.items() if what.startswith(sign)), _NO_JSON)


def _tokens(usage: Any) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(prompt) is not int or prompt < 0 or type(completion) is not int or completion < 0:
        return None
    return Tokens(prompt, completion)
