"""A stand-in for a judge, for tests and for trying things offline: it counts shared words.

It reads nothing and understands nothing. Its labels show how the parts work together; no
number made from them says anything about a system.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata

from karat.judging.judge_answers import Judgment, Outcome, Reply, Tokens, Unjudged
from karat.judging.judge_pairs import Pair

# In twelfths, so that a share of exactly a third or two thirds counts.
_TWO, _ONE, _OF = 8, 4, 12
_RULE = (
    "share of the query's different words (NFKC, case folded, runs of word characters) "
    f"that are in the text: 2 from {_TWO}/{_OF}, 1 from {_ONE}/{_OF}, else 0"
)
_WORD = re.compile(r"\w+")


class Overlap:
    """Grades a pair by how many of the query's words are in the text."""

    rater = f"overlap@{hashlib.sha256(_RULE.encode()).hexdigest()[:12]}"

    def key(self, pair: Pair) -> str:
        """The digest of all that the grade depends on."""
        told = [self.rater, pair.query, pair.text]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def ask(self, pair: Pair) -> Reply:
        """The grade, at once."""
        return Reply(_judged(pair), Tokens())

    def close(self) -> None:
        """There is nothing to close."""


def _judged(pair: Pair) -> Outcome:
    """2 if two thirds of the query's words are in the text, 1 if a third are, else 0.

    >>> _judged(Pair("q", "d", "red garden door", "The door is RED, or nearly."))
    Judgment(grade=2, rationale="2 of 3 words of the query are in the text: 'door', 'red'")
    """
    asked, there = _words(pair.query), _words(pair.text)
    if not asked:
        return Unjudged("the query has no word")
    shared = sorted(asked & there)
    twelfths = len(shared) * _OF
    grade = 2 if twelfths >= _TWO * len(asked) else 1 if twelfths >= _ONE * len(asked) else 0
    told = f": {', '.join(map(repr, shared))}" if shared else ""
    words = "word" if len(asked) == 1 else "words"
    counted = f"{len(shared)} of {len(asked)} {words} of the query"
    return Judgment(grade, f"{counted} {'is' if len(shared) == 1 else 'are'} in the text{told}")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))
