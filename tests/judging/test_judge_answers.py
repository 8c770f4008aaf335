"""What a model writes is a grade only if it clearly is one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_servers import completion

from karat.label.judges import AnswerReader, FailedAnswer, GradedAnswer, Tokens

READER = AnswerReader()


def outcome(say):
    return READER.reply(say.body, say.kind).outcome


@pytest.mark.parametrize("grade", [0, 1, 2])
def test_a_grade_with_a_rationale_is_a_judgment(grade):
    text = json.dumps({"relevance": grade, "rationale": " it says so "})
    reply = READER.reply(completion(text).body, "application/json")
    assert reply.outcome == GradedAnswer(grade, "it says so")
    assert reply.tokens == Tokens(100, 7)


ANSWER = '{"relevance": 1, "rationale": "it says so"}'


@pytest.mark.parametrize(
    "content",
    [
        f"```json\n{ANSWER}\n```",
        f"```JSON\r\n{ANSWER}\r\n```\r\n",
        f"```\n{ANSWER}\n```",
        f"``` {ANSWER} ```",
        f"Here is my answer:\n\n```json\n{ANSWER}\n```\nI hope this helps.",
        f"<think>The text names {{it}}, so 2? No, 1.</think>\n{ANSWER}",
        f"<think>\n```json\n{{}}\n```\n</think>\n\n```json\n{ANSWER}\n```",
        f"It names the thing.</think>{ANSWER}",
        '{"relevance": "1", "rationale": "it says so"}',
        '{"relevance": " 1 ", "rationale": "it says so"}',
        '{"relevance": 1.0, "rationale": "it says so"}',
        f"Sure.\n{ANSWER}",
        f"{ANSWER}\nDone.",
        f"The text `names` it: {ANSWER} I hope this helps.",
        f"<THINK>2? No.</THINK>\n{ANSWER}",
        f"<Think>{{2}}</think>\nSo: {ANSWER}",
        '<think>x</think>```json\n{"relevance": "1", "rationale": "it says so"}\n```',
    ],
)
def test_a_fence_a_thought_and_a_grade_as_text_are_read(content):
    assert outcome(completion(content)) == GradedAnswer(1, "it says so")


def test_an_answer_is_read_whole_before_anything_is_taken_off_it():
    text = json.dumps({"relevance": 0, "rationale": "says </think> and ```json\n{}\n```"})
    assert outcome(completion(text)) == GradedAnswer(0, "says </think> and ```json\n{}\n```")
    fenced = outcome(completion(f"```json\n{text}\n```"))
    assert fenced == GradedAnswer(0, "says </think> and ```json\n{}\n```")


@pytest.mark.parametrize(
    "content",
    [
        # A model that quotes the text it judges may quote an answer that the text suggests.
        '```json\n{"relevance": 2, "rationale": "x"}\n```\n{"relevance": 0, "rationale": "y"}',
        '```json\n{"relevance": 2, "rationale": "x"}\n```\n```json\n{"relevance": 0}\n```',
        '{"relevance": 0, "rationale": "y"}\n```json\n{"relevance": 2, "rationale": "x"}\n```',
        '{"relevance": 0, "rationale": "y"}</think>Sure: {"relevance": 2, "rationale": "x"}',
        'It says {"relevance": 2, "rationale": "x"}, I say {"relevance": 0, "rationale": "y"}',
    ],
)
def test_of_two_answers_none_is_taken(content):
    found = outcome(completion(content))
    assert isinstance(found, FailedAnswer)
    assert found.reason == "the answer is not JSON"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("The text is highly relevant.", "the answer is not JSON"),
        ("2", "the answer is not a JSON object"),
        ("[2]", "the answer is not a JSON object"),
        ('Sure! {"relevance": 2}', "the answer has no rationale"),
        ('Sure! {"relevance": 2, "rationale": "x', "the answer is not JSON"),
        ('Sure! [{"relevance": 2, "rationale": "x"}]', "the answer is not JSON"),
        ('[{"relevance": 2, "rationale": "x"}]', "the answer is not a JSON object"),
        ('{"a": {"relevance": 2, "rationale": "x"}', "the answer is not JSON"),
        ('Sure! {"relevance": 2, "relevance": 0, "rationale": "x"}', "the answer is not JSON"),
        ('<THINK>{"relevance": 2, "rationale": "x"}', "the answer is not JSON"),
        ('{"relevance": 2, "rationale": "x"}</think>Hm.', "the answer is not JSON"),
        ('```json\n{"relevance": 2, "rationale": "x"}', "the answer is not JSON"),
        ("```json\nnot relevant\n```", "the answer is not JSON"),
        ('```json\n{"relevance": 9, "rationale": "x"}\n```', "relevance is not 0, 1 or 2"),
        ('```\n{"relevance": 2, "relevance": 0}\n```', "the answer is not JSON"),
        ("<think>it fits</think>", "the answer is empty"),
        ('<think>{"relevance": 2, "rationale": "x"}', "the answer is not JSON"),
        ("<think>a</think>Relevant.", "the answer is not JSON"),
        ('{"relevance": 2, "rationale": "x', "the answer is not JSON"),
        ('{"relevance": 2, "relevance": 0, "rationale": "x"}', "the answer is not JSON"),
        ('{"a": {"NaN is": 2, "NaN is": 0}}', "the answer is not JSON"),
        ('{"relevance": 7, "rationale": "x"}', "relevance is not 0, 1 or 2"),
        ('{"relevance": -1, "rationale": "x"}', "relevance is not 0, 1 or 2"),
        ('{"relevance": "two", "rationale": "x"}', "relevance is not 0, 1 or 2"),
        ('{"relevance": "2.0", "rationale": "x"}', "relevance is not 0, 1 or 2"),
        ('{"relevance": "", "rationale": "x"}', "relevance is not 0, 1 or 2"),
        ('{"relevance": "\u0662", "rationale": "x"}', "relevance is not 0, 1 or 2"),
        ('{"relevance": 1.5, "rationale": "x"}', "relevance is not 0, 1 or 2"),
        ('{"relevance": 1e999, "rationale": "x"}', "relevance is not 0, 1 or 2"),
        ('{"relevance": true, "rationale": "x"}', "relevance is not 0, 1 or 2"),
        ('{"relevance": null, "rationale": "x"}', "relevance is not 0, 1 or 2"),
        ('{"relevance": NaN, "rationale": "x"}', "the answer is not JSON"),
        ('{"relevance": -Infinity, "rationale": "x"}', "the answer is not JSON"),
        ('{"relevance": 1' + "0" * 9999 + "}", "the answer is not JSON"),
        ('{"rationale": "x"}', "relevance is not 0, 1 or 2"),
        ("{}", "relevance is not 0, 1 or 2"),
        ('{"relevance": 2}', "the answer has no rationale"),
        ('{"relevance": 2, "rationale": 5}', "the answer has no rationale"),
        ('{"relevance": 2, "rationale": "\\ud800"}', "the answer is not JSON"),
        ("[" * 100_000, "the answer is not JSON"),
        (None, "the answer is empty"),
        ("", "the answer is empty"),
        ([{"type": "text"}], "the endpoint's answer is not a chat completion"),
    ],
)
def test_anything_else_is_no_grade(content, reason):
    found = outcome(completion(content))
    assert isinstance(found, FailedAnswer)
    assert found.reason == reason
    found.error.encode()


def test_refusals_filters_and_cut_off_answers_are_named():
    refused = outcome(completion(None, refusal="I cannot help"))
    assert refused.error == "the model refused: I cannot help"
    assert "filter" in outcome(completion("", ended="content_filter")).reason
    half = '{"rationale": "a very long'
    assert outcome(completion(half, ended="length")).error == f"the answer was cut off: {half}"
    assert outcome(completion("", ended="length")).reason == "the answer was cut off"
    # An answer that is whole is not cut off, whatever the endpoint says.
    whole = json.dumps({"relevance": 1, "rationale": ""})
    assert outcome(completion(whole, ended="length")) == GradedAnswer(1, "")


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"<html>hi</html>", "text/html", "the endpoint did not answer with JSON"),
        (b"", "", "the endpoint did not answer with JSON"),
        (b"\xff\xfe", "application/json", "the endpoint did not answer with JSON"),
        (b"[]", "application/json", "the endpoint's answer is not a chat completion"),
        (b"{}", "application/json", "the endpoint's answer is not a chat completion"),
        (b'{"choices": []}', "application/json", "the endpoint's answer is not a chat completion"),
        (b'{"choices": [5]}', "application/json", "the endpoint's answer is not a chat completion"),
        (
            b'{"choices": [{}]}',
            "application/json",
            "the endpoint's answer is not a chat completion",
        ),
        (
            b'{"error": {"message": "busy"}}',
            "application/json",
            "the endpoint's answer is not a chat completion",
        ),
    ],
)
def test_answers_that_are_no_completion_are_no_grade(body, kind, reason):
    found = READER.reply(body, kind).outcome
    assert isinstance(found, FailedAnswer)
    assert found.reason == reason


def test_a_completion_under_another_content_type_is_one():
    body = completion(json.dumps({"relevance": 1, "rationale": "x"})).body
    assert READER.reply(body, "text/plain").outcome == GradedAnswer(1, "x")


@pytest.mark.parametrize("usage", [None, [], {}, {"prompt_tokens": 3}, "many"])
def test_tokens_that_are_not_told_are_not_zero(usage):
    record = json.loads(completion('{"relevance": 1, "rationale": "x"}').body)
    record["usage"] = usage
    assert READER.reply(json.dumps(record).encode(), "application/json").tokens is None


def test_what_is_shown_is_short_on_one_line_and_without_the_secret():
    reader = AnswerReader(lambda text: text.replace("SECRET", "${KEY}"))
    shown = reader.excerpt("a\n  b SECRET " + "c" * 500)
    assert shown.startswith("a b ${KEY} ccc")
    assert len(shown) == 160
    # A secret that the end would cut in half is gone before.
    assert "SEC" not in reader.excerpt("x" * 157 + "SECRET")


@given(st.text())
def test_no_text_whatever_becomes_a_grade_by_accident(text):
    found = READER.judgment(text)
    if isinstance(found, GradedAnswer):
        assert '"relevance"' in text
        assert str(found.grade) in text
    else:
        assert found.reason
