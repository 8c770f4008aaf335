"""The stand-in that counts shared words: the same grades everywhere, under its own name."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.label.judges import FailedAnswer, GradedAnswer, Overlap
from karat.label.labels import Pair


def outcome(query: str, text: str):
    return Overlap().ask(Pair("q", "d", query, text)).outcome


@pytest.mark.parametrize(
    ("query", "text", "grade", "told"),
    [
        ("red door", "A red DOOR.", 2, "2 of 2 words of the query are in the text: 'door', 'red'"),
        ("red garden door", "door, red", 2, "2 of 3 words of the query are in the text"),
        ("red garden door", "a door", 1, "1 of 3 words of the query is in the text: 'door'"),
        ("the old red garden door", "a door", 0, "1 of 5 words of the query is in the text"),
        ("red red door", "red", 1, "1 of 2 words of the query is in the text: 'red'"),
        ("door", "indoor", 0, "0 of 1 word of the query are in the text"),
        ("Straße ﬁne", "STRASSE fine", 2, "2 of 2 words"),
    ],
)
def test_the_grade_goes_by_the_share_of_the_querys_words(query, text, grade, told):
    found = outcome(query, text)
    assert isinstance(found, GradedAnswer)
    assert found.grade == grade
    assert found.rationale.startswith(told)


def test_a_query_without_words_has_no_grade():
    assert outcome("?!", "text") == FailedAnswer("the query has no word")


WORDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8)


@given(WORDS, WORDS)
def test_shares_of_exactly_a_third_and_two_thirds_count(query, text):
    asked = set(query)
    share = Fraction(len([word for word in asked if word in text]), len(asked))
    expected = 2 if share >= Fraction(2, 3) else 1 if share >= Fraction(1, 3) else 0
    assert outcome(" ".join(query), " ".join(text)).grade == expected


def test_it_is_named_as_what_it_is():
    assert re.fullmatch(r"overlap@[0-9a-f]{12}", Overlap.rater)
    one, other = Pair("q", "d", "a", "b"), Pair("q", "d", "ab", "")
    assert Overlap().key(one) != Overlap().key(other)
