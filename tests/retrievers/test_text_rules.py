"""Texts made alike, words that stand for others, and placeholders."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.errors import CallError, InputError, UsageError
from karat.formats.settings import Place, validate
from karat.retrieve.placeholders import fill_placeholders
from karat.retrieve.protocol import Query
from karat.retrieve.text_rules import (
    NormaliseOptions,
    TextRules,
    normalised,
    read_aliases,
    text_rules,
)


def how(**given):
    return validate(NormaliseOptions, given, Place("karat.yaml"))


@pytest.mark.parametrize(
    ("given_form", "text", "alike"),
    [
        ({}, "  Apple\t\nTART  ", "apple tart"),
        ({}, "ﬁne ＣＵＤＡ① \u00a0x", "fine cuda1 x"),
        ({}, "STRASSE Straße", "strasse straße"),
        ({"case": "fold"}, "STRASSE Straße", "strasse strasse"),
        ({"case": "none"}, "Apple  TART", "Apple TART"),
        ({"unicode": "NFC"}, "e\u0301 ﬁ", "é ﬁ"),
        ({"unicode": "none"}, "E\u0301", "e\u0301"),
        ({}, "", ""),
    ],
)
def test_texts_get_one_unicode_form_one_case_and_single_spaces(given_form, text, alike):
    assert normalised(text, how(**given_form)) == alike


@given(st.text())
def test_normalising_is_nfkc_then_lower_then_single_spaces(text):
    expected = unicodedata.normalize("NFKC", text).lower()
    assert normalised(text, how()).split() == expected.split()
    assert "  " not in normalised(text, how())


def test_words_are_replaced_once_and_whole():
    rules = text_rules(None, {"llm": "large language model", "model": "MODEL", "gpu": "cuda"})
    assert rules.apply("llm model, gpus and a gpu.") == (
        "large language model MODEL, gpus and a cuda."
    )


def test_aliases_are_normalised_as_the_texts_are():
    rules = text_rules(how(), {"LLM": "Large  Language Model"})
    assert rules.apply("An LLM; an llm") == "an large language model; an large language model"
    exact = text_rules(how(case="none"), {"LLM": "X"})
    assert exact.apply("An LLM; an llm") == "An X; an llm"


@pytest.mark.parametrize("spelled", ["llm", "LLM", "Llm"])
def test_aliases_match_whatever_their_case_and_other_words_keep_theirs(spelled):
    rules = text_rules(None, {spelled: "Language Model"})
    assert rules.apply("An LLM;  an llm, OLLM") == "An Language Model;  an Language Model, OLLM"


def test_phrases_match_whatever_their_case():
    rules = text_rules(None, {"new YORK": "NYC", "c++": "cpp", "İZMIR bay": "gulf", "ÄRA": "Era"})
    assert rules.apply("New\n york, C++ and NEW York Times") == "NYC, cpp and NYC Times"
    assert rules.apply("İzmir Bay, ära") == "gulf, Era"


@given(st.text(alphabet="aAbBßẞsSİiıIσΣς ", max_size=12))
def test_any_word_or_phrase_is_found_as_it_is_spelled_and_in_lower_case(spelled):
    if not spelled.split():
        return
    rules = text_rules(None, {spelled: "#"})
    spaced = " ".join(spelled.split())
    assert rules.apply(f"( {spaced} )") == "( # )"
    assert rules.apply(f"( {spaced.lower()} )") == "( # )"
    exact = text_rules(how(unicode="none", case="none"), {spelled: "#"})
    assert exact.apply(f"( {spaced} )") == "( # )"


def test_phrases_and_words_with_signs_are_aliases_too():
    rules = text_rules(how(), {"C++": "cpp", "large language model": "llm", "large": "big",
                               "e-mail": "mail"})  # fmt: skip
    assert rules.apply("C++ and a Large\tlanguage  model by E-Mail, large") == (
        "cpp and a llm by mail, big"
    )
    assert rules.apply("abc++ large languages e-mails") == "abc++ big languages e-mails"


def test_the_longest_phrase_wins():
    rules = text_rules(None, {"new york": "ny", "new york city": "nyc", "new": "fresh"})
    assert rules.apply("new york city, new york, new") == "nyc, ny, fresh"


def test_a_phrase_is_found_across_any_spaces_without_normalising():
    assert text_rules(None, {" New  York ": "NYC"}).apply("in New\n York") == "in NYC"


def test_no_rules_leave_every_text_as_it_is():
    assert TextRules().empty
    assert TextRules().apply("  An  LLM ") == "  An  LLM "
    assert not text_rules(None, {"a": "b"}).empty
    assert not text_rules(how(), {}).empty


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ({"llm": " "}, "'llm' stands for ' '; both must be text"),
        ({" ": "x"}, "' ' stands for 'x'; both must be text"),
        ({"LLM": "a", "llm": "b"}, "'llm' stands for 'a' and for 'b'; keep one"),
    ],
)
def test_aliases_that_cannot_be_meant_are_refused(aliases, message):
    for normalise in (how(), None):
        with pytest.raises(UsageError, match=message):
            text_rules(normalise, aliases)


def test_the_same_alias_spelled_twice_is_one():
    assert text_rules(how(), {"LLM": "a", "llm": "A"}).aliases == {"llm": "a"}
    assert text_rules(None, {"LLM": "A", "llm": "A"}).aliases == {"llm": "A"}


def test_aliases_that_differ_in_case_are_two_where_case_counts():
    rules = text_rules(how(case="none"), {"US": "America", "us": "you and me"})
    assert rules.apply("US and us") == "America and you and me"


def test_aliases_are_read_from_a_yaml_file(tmp_path):
    path = tmp_path / "aliases.yaml"
    path.write_text("cuda: nvidia_cuda\n# a comment\nllm: large language model\nno: number\n")
    assert read_aliases(path) == {
        "cuda": "nvidia_cuda", "llm": "large language model", "no": "number",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a, b]", "a mapping of words to words is expected"),
        ("cuda: x\nllm: [a]\n", r"aliases\.yaml:2: llm stands for \['a'\]; text is expected"),
        ("cuda: x\nllm:\n", r"aliases\.yaml:2: llm stands for nothing; text is expected"),
        ("cuda: 5\n", r"aliases\.yaml:1: cuda stands for 5"),
        ("cuda: x\ncuda: y\n", "'cuda' occurs twice"),
        ("", "is empty"),
    ],
)
def test_a_file_of_aliases_that_is_not_one_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "aliases.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_aliases(path)


def test_a_file_of_aliases_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"aliases\.yaml: no such file"):
        read_aliases(tmp_path / "aliases.yaml")


ASKED = Query("q7", "apple tart", {"language": "pt", "tags": ["a", "b"], "year": 2024})


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{query}", "apple tart"),
        ("{query_id}", "q7"),
        ("{k}", 5),
        ("{year}", 2024),
        ("{tags}", ["a", "b"]),
        ("in {language} since {year}: {query}", "in pt since 2024: apple tart"),
        ("tagged {tags}", 'tagged ["a", "b"]'),
        ("{{query}} is {query}", "{query} is apple tart"),
        ("{{query}}", "{query}"),
        ("{}", "{}"),
        ('{"a": 1}', '{"a": 1}'),
        (7, 7),
        (None, None),
        (True, True),
        ({"q": ["{query}", {"n": "{k}"}]}, {"q": ["apple tart", {"n": 5}]}),
    ],
)
def test_placeholders_are_filled_and_keep_their_type_where_they_stand_alone(template, value):
    assert fill_placeholders(template, ASKED, {"k": 5}) == value


def test_what_is_filled_in_is_not_filled_again():
    assert (
        fill_placeholders("{query}!", Query("q1", "{k} {language}"), {"k": 5}) == "{k} {language}!"
    )


def test_what_is_filled_in_can_be_quoted():
    assert (
        fill_placeholders("a/{query}", ASKED, {}, lambda text: text.replace(" ", "%20"))
        == "a/apple%20tart"
    )
    assert fill_placeholders("{query}", ASKED, {}, str.upper) == "APPLE TART"


def test_an_unknown_placeholder_fails_the_call_with_what_there_is():
    with pytest.raises(CallError, match=r"\{langage\} is neither .*; it has .*language"):
        fill_placeholders("{langage}", ASKED, {"k": 5})
