"""Gates written as people write them: ``Recall@5 ≥ 0.90 overall and ≥ 0.85 in pt-BR segments``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from karat.errors import UsageError

_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_LIMIT = re.compile(
    rf"(?P<subject>[^<>≤≥;]*?)\s*(?P<sign>>=|<=|[<>≤≥])\s*(?P<number>{_NUMBER})"
    r"\s*(?P<unit>ms\b|%)?\s*\.?"
    r"(?P<where>\s*(?:overall|\((?:avg|average|mean)\)|(?:in|for)\s+(?P<names>.+?)\s+segments?))?"
    r"\s*(?:;|,\s*(?:and\b)?|\band\b|\.?\s*$)\s*",
    re.IGNORECASE,
)
_BETWEEN_NAMES = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+", re.IGNORECASE)
_LATENCY = re.compile(
    r"(?P<part>median|p50|p90|p95|p99|mean|average)?\s*(?P<stage>\w+)?\s*latency\s*"
    r"(?:\(?(?P<after>median|p50|p90|p95|p99|mean|average)\)?)?",
    re.IGNORECASE,
)
_SECONDS = re.compile(rf"(?P<number>{_NUMBER})\s*(?:s|sec|secs|seconds?)\b", re.IGNORECASE)
_PARTS = {"median": "p50", "average": "mean"}
# What people call the stages that a log calls otherwise.
_STAGES = {"retrieval": "retrieve", "retriever": "retrieve", "reranker": "rerank"}
_STAGES |= {"reranking": "rerank", "search": "retrieve"}
# A heading such as "Ship if (CI lower bounds):".
HEADING = re.compile(r"\s*(?:[-*]\s*)?ship\s+if\b[^<>≤≥]*:?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a sentence: a measure's name, its sign and number, and where it holds.

    ``segments`` is None for all queries.
    """

    measure: str
    sign: str
    number: float
    segments: tuple[str, ...] | None = None

    @property
    def upper(self) -> bool:
        """Whether it is a limit from above."""
        return self.sign in {"<", "<=", "≤"}

    @property
    def strict(self) -> bool:
        """Whether the number itself does not pass."""
        return self.sign in {"<", ">"}


def limits_in(sentence: str) -> list[Limit]:
    """Return the limits of a sentence; one without a measure is of the measure before it.

    >>> [(one.measure, one.number) for one in limits_in("P@5 ≥ 0.60 and Hit@5 ≥ 0.9")]
    [('P@5', 0.6), ('Hit@5', 0.9)]
    >>> limits_in("R@5 ≥ 0.85 in pt-BR and es-AR segments")[0].segments
    ('pt-BR', 'es-AR')
    """
    text = re.sub("[\u2010-\u2015\u2212]", "-", sentence.replace("\u00a0", " ")).strip()
    found = list(_limits(text, sentence))
    if not found:
        raise _unreadable(sentence)
    return found


def _limits(text: str, sentence: str) -> Iterator[Limit]:
    at, measure = 0, ""
    while at < len(text):
        match = _LIMIT.match(text, at)
        if match is None or match.end() == at:
            raise _unreadable(sentence)
        at = match.end()
        measure = _measure(match["subject"].strip(), measure, in_ms=match["unit"] == "ms")
        if not measure:
            raise _unreadable(sentence)
        names = match["names"]
        segments = None if names is None else tuple(_BETWEEN_NAMES.split(_without_the(names)))
        share = 100 if match["unit"] == "%" else 1
        yield Limit(measure, match["sign"], float(match["number"]) / share, segments)


def _measure(subject: str, before: str, *, in_ms: bool) -> str:
    """Return the name of a measure from what a sentence calls it."""
    subject = _without_the(subject)
    if not subject:
        return before
    latency = _LATENCY.fullmatch(subject)
    if latency is not None:
        part = (latency["part"] or latency["after"] or "median").casefold()
        return _path(latency["stage"] or "total", _PARTS.get(part, part))
    if in_ms and before.startswith("latency.") and re.fullmatch(r"\w+", subject):
        return _path(subject, before.rpartition(".")[2])
    # Names of measures have no hyphen.
    head, at, cut = subject.partition("@")
    return head.replace("-", "") + at + cut if "(" not in head else subject


def _path(stage: str, part: str) -> str:
    name = stage.casefold()
    return f"latency.{_STAGES.get(name, name)}.{part}"


def _without_the(text: str) -> str:
    return re.sub(r"^the\s+", "", text.strip(), flags=re.IGNORECASE)


def _unreadable(sentence: str) -> UsageError:
    seconds = _SECONDS.search(sentence)
    if seconds is not None and "latency" in sentence.casefold():
        return UsageError(
            f"cannot read {sentence.strip()!r}; latencies are in milliseconds: write"
            f" {float(seconds['number']) * 1000:g} ms"
        )
    return UsageError(
        f"cannot read {sentence.strip()!r}; write a gate such as 'R@5 >= 0.90', or 'Recall@5 ≥"
        " 0.90 overall and ≥ 0.85 in pt-BR segments'"
    )
