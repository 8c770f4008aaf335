"""Single calls to an endpoint: what is sent, and what a bad answer comes to."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import time

import pytest
from judge_servers import (
    KEY,
    PROMPT,
    Say,
    Server,
    completion,
    endpoint,
    graded,
    pairs,
    reset,
    trouble,
)

from karat.errors import UsageError
from karat.label.judges import Endpoint, FailedAnswer, GradedAnswer, JudgeCallError, JudgeGoneError

[PAIR] = pairs(1)


def asked(act, **access):
    """What comes of one call, and the server that it went to."""
    with Server(act) as server:
        judge = endpoint(server.url, **access)
        try:
            return judge.ask(PAIR), server
        finally:
            judge.close()


def failed(act, **access):
    """The reason of an answer that is no judgment."""
    outcome = asked(act, **access)[0].outcome
    assert isinstance(outcome, FailedAnswer)
    return outcome.reason


def refused(act, **access):
    """What is raised where no answer comes."""
    with pytest.raises(JudgeCallError) as caught:
        asked(act, **access)
    return caught.value


def test_the_model_is_asked_at_temperature_0_with_a_seed_and_a_strict_schema():
    reply, server = asked(graded(1), key=KEY)
    assert reply.outcome == GradedAnswer(1, "because")
    [got] = server.requests
    assert got.path == "/v1/chat/completions"
    assert got.headers["authorization"] == f"Bearer {KEY}"
    assert got.prompt == "Q=question 0\nT=text 0\n"
    assert got.body["model"] == "m"
    assert (got.body["temperature"], got.body["seed"], got.body["max_tokens"]) == (0, 0, 400)
    schema = got.body["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["additionalProperties"] is False
    assert schema["schema"]["properties"]["relevance"] == {"type": "integer", "enum": [0, 1, 2]}
    assert "stream" not in got.body


def test_a_local_endpoint_needs_no_key_and_is_sent_none(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-environment")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-the-environment")
    _, server = asked(graded())
    headers = server.requests[0].headers
    assert "authorization" not in headers
    assert "of-the-environment" not in json.dumps(headers)


def test_this_machine_is_reached_around_any_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert asked(graded(0))[0].outcome == GradedAnswer(0, "because")


def test_what_a_body_adds_is_sent_and_null_takes_away():
    _, server = asked(graded(), more={"cache_prompt": False, "seed": None, "max_tokens": 50})
    body = server.requests[0].body
    assert body["cache_prompt"] is False
    assert "seed" not in body
    assert body["max_tokens"] == 50


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (completion("It is relevant."), "the answer is not JSON"),
        (completion('{"relevance": 2, "rati'), "the answer is not JSON"),
        (graded(7), "relevance is not 0, 1 or 2"),
        (graded("two"), "relevance is not 0, 1 or 2"),
        (Say(b'{"choices": []}'), "the endpoint's answer is not a chat completion"),
        (completion(None), "the answer is empty"),
        (completion(None, refusal="no"), "the model refused"),
        (Say(b"<html>", kind="text/html"), "the endpoint did not answer with JSON"),
        (Say(b"x" * 2_000_000), "the answer is larger than 1,000,000 bytes"),
        (
            Say(gzip.compress(graded().body), headers={"Content-Encoding": "gzip"}),
            "the answer is compressed; karat did not accept that",
        ),
    ],
)
def test_an_answer_that_is_no_judgment_has_its_reason_and_is_not_asked_again(say, reason):
    assert failed(say) == reason


def test_a_server_that_is_busy_may_pass_and_says_for_how_long():
    error = refused(trouble(429, "slow down", Retry_After="7"))
    assert str(error) == "the endpoint answered 429: slow down"
    assert (error.may_pass, error.wait) == (True, 7.0)
    for status in (500, 502, 503, 504, 529):
        error = refused(trouble(status, "oops"))
        assert (str(error), error.may_pass) == (f"the endpoint answered {status}: oops", True)
    error = refused(Say(b"<html>bad gateway</html>", 502, "text/html"))
    assert str(error) == "the endpoint answered 502: <html>bad gateway</html>"


def test_a_huge_error_is_cut_short():
    assert len(failed(Say(b"y" * 2_000_000, 500))) < 300
    assert len(str(refused(Say(b"y" * 900_000, 500)))) < 300


def test_a_server_that_hangs_or_trickles_ends_at_the_time_limit():
    begun = time.monotonic()
    error = refused(lambda got, connection: time.sleep(20), timeout=0.3)
    assert (str(error), error.may_pass) == ("no answer within 0.3 s", True)

    def trickle(got, connection: socket.socket):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(200):
            time.sleep(0.1)
            connection.sendall(b" ")

    error = refused(trickle, timeout=0.5)
    assert (str(error), error.may_pass) == ("no answer within 0.5 s", True)
    assert time.monotonic() - begun < 15


def test_a_connection_that_breaks_may_pass():
    error = refused(lambda got, connection: reset(connection))
    assert str(error).startswith("the connection failed")
    assert error.may_pass

    def halfway(got, connection):
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"cho')

    assert str(refused(halfway)).startswith("the connection failed")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    judge = endpoint(f"http://127.0.0.1:{port}/v1")
    with pytest.raises(JudgeCallError, match=r"the connection failed: .*refused"):
        judge.ask(PAIR)
    judge.close()


def refusing(*kinds: str | None):
    """An endpoint that does not know these response formats."""

    def act(got, connection):
        form = got.body.get("response_format")
        if (form and form["type"]) in kinds:
            return trouble(400, f"'response_format' of type {form['type']!r} is unavailable")
        return graded()

    return act


def test_an_endpoint_that_refuses_the_schema_is_found_out_once_and_remembered():
    with Server(refusing("json_schema", "json_object")) as server:
        judge = endpoint(server.url)
        outcomes = [judge.ask(pair).outcome for pair in pairs(4)]
        judge.close()
    assert outcomes == [GradedAnswer(2, "because")] * 4
    forms = [(got.body.get("response_format") or {}).get("type") for got in server.requests]
    assert forms == ["json_schema", "json_object", None, None, None, None]


def test_an_endpoint_that_knows_json_but_no_schema_is_held_to_json():
    with Server(refusing("json_schema")) as server:
        judge = endpoint(server.url)
        assert [judge.ask(pair).outcome.grade for pair in pairs(2)] == [2, 2]
        judge.close()
    forms = [got.body["response_format"]["type"] for got in server.requests]
    assert forms == ["json_schema", "json_object", "json_object"]


def test_a_bad_request_that_is_not_about_the_form_changes_nothing():
    def too_long(got, connection):
        return trouble(400, "context too long") if "text 0" in got.prompt else graded()

    with Server(too_long) as server:
        judge = endpoint(server.url)
        first, second = pairs(2)
        with pytest.raises(JudgeCallError) as caught:
            judge.ask(first)
        outcome = judge.ask(second).outcome
        judge.close()
    assert str(caught.value) == "the endpoint answered 400: context too long"
    assert (caught.value.status, caught.value.may_pass) == (400, False)
    assert outcome == GradedAnswer(2, "because")
    assert server.requests[-1].body["response_format"]["type"] == "json_schema"


def test_the_newer_name_of_the_limit_of_tokens_is_used_where_it_is_asked_for():
    def newer(got, connection):
        if "max_tokens" in got.body:
            return trouble(400, "'max_tokens' is not supported; use 'max_completion_tokens'")
        return graded()

    with Server(newer) as server:
        judge = endpoint(server.url)
        assert [judge.ask(pair).outcome.grade for pair in pairs(2)] == [2, 2]
        judge.close()
    assert [got.body.get("max_completion_tokens") for got in server.requests] == [None, 400, 400]
    assert all("response_format" in got.body for got in server.requests)


@pytest.mark.parametrize(
    ("say", "told"),
    [
        (trouble(401, "bad key"), "/v1 answered 401: bad key; check the key in OPENAI_API_KEY"),
        (trouble(402, "no money"), "/v1 answered 402: no money; the account has no credit"),
        (trouble(404, "no such model"), "answered 404: no such model; check --url and --model"),
        (
            Say(b'{"error": {"message": "pay", "code": "insufficient_quota"}}', 429),
            "/v1 answered 429: pay; the account has no credit",
        ),
    ],
)
def test_what_every_call_would_meet_ends_the_judging(say, told):
    with pytest.raises(JudgeGoneError) as caught:
        asked(say)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "say",
    [
        trouble(500, f"wrong key: {KEY}"),
        trouble(400, f"Authorization: Bearer {KEY}"),
        Say(f"<p>{KEY}".encode(), 503, "text/html"),
        Say(b"z" * 145 + KEY.encode(), 503, "text/plain"),
        Say(f"<p>{KEY}".encode(), 200, "text/html"),
        completion(f"my key is {KEY}"),
        completion(None, refusal=KEY),
        graded(2, f"because {KEY}"),
        graded(7, KEY.upper()),
    ],
)
def test_a_key_that_comes_back_is_never_shown(say, caplog):
    caplog.set_level(logging.DEBUG)
    try:
        outcome = asked(say, key=KEY)[0].outcome
    except JudgeCallError as error:
        outcome = FailedAnswer(str(error))
    told = outcome.rationale if isinstance(outcome, GradedAnswer) else outcome.error
    assert "secret" not in told.lower()
    assert "secret" not in caplog.text


def test_a_key_in_a_refusal_of_everything_is_never_shown():
    with pytest.raises(JudgeGoneError) as caught:
        asked(trouble(401, f"Incorrect API key provided: {KEY}"), key=KEY)
    assert "Incorrect API key provided: ${OPENAI_API_KEY}; check" in str(caught.value)


def test_a_short_key_is_hidden_without_harm_to_words_that_hold_it():
    reply, _ = asked(graded(1, "none of it, nonetheless"), key="none")
    assert reply.outcome == GradedAnswer(1, "${OPENAI_API_KEY} of it, nonetheless")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("127.0.0.1:8080/v1", "must be the base of an endpoint"),
        ("ftp://host/v1", "must be the base of an endpoint"),
        ("http://", "must be the base of an endpoint"),
        ("http://host:99999/v1", "must be the base of an endpoint"),
        ("https://user:hidden@host/v1", "the key comes from the environment"),
        ("https://host/v1?api_key=hidden", "the base of an endpoint, without"),
    ],
)
def test_an_address_that_is_none_is_refused_without_showing_secrets(url, told):
    with pytest.raises(UsageError) as caught:
        endpoint(url)
    assert told in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_the_whole_address_of_the_call_is_understood():
    with Server(graded()) as server:
        judge = endpoint(f"{server.url}/chat/completions/")
        judge.ask(PAIR)
        judge.close()
    assert server.requests[0].path == "/v1/chat/completions"


def test_the_key_comes_from_the_variable_that_is_named():
    nowhere = {"url": "http://127.0.0.1:1/v1", "model": "m", "key_env": "MY_KEY"}
    with pytest.raises(UsageError, match="--key-env names MY_KEY, which is not set"):
        Endpoint(PROMPT, {"OPENAI_API_KEY": KEY}, **nowhere)
    with pytest.raises(
        UsageError, match="the key in MY_KEY holds characters that a key cannot have"
    ):
        Endpoint(PROMPT, {"MY_KEY": "a\nb"}, **nowhere)
    with Server(graded()) as server:
        keys = {"OPENAI_API_KEY": KEY, "MY_KEY": " other \n"}
        judge = Endpoint(PROMPT, keys, **nowhere | {"url": server.url})
        judge.ask(PAIR)
        judge.close()
    assert server.requests[0].headers["authorization"] == "Bearer other"


def test_what_karat_sets_itself_cannot_be_set_in_the_body():
    for name in ("model", "messages", "stream", "response_format"):
        with pytest.raises(UsageError, match=f"--body sets '{name}', which karat sets itself"):
            endpoint("http://127.0.0.1:1/v1", more={name: 1})
    with pytest.raises(UsageError, match="--model is empty"):
        endpoint("http://127.0.0.1:1/v1", model=" ")


def test_the_rater_is_the_model_and_its_prompt_and_the_key_everything_that_matters():
    judge, other = (endpoint("http://127.0.0.1:1/v1", model=name) for name in ("m", "n"))
    assert judge.rater == f"m@{PROMPT.digest[:12]}"
    first, second = pairs(2)
    warm = endpoint("http://127.0.0.1:1/v1", more={"temperature": 1})
    keys = {
        judge.key(first),
        judge.key(second),
        judge.key(first._replace(query="else")),
        judge.key(first._replace(query="question", text="0text 0")),
        other.key(first),
        warm.key(first),
    }
    assert len(keys) == 6
    # Neither ids nor the address nor the key change what is judged.
    assert judge.key(first) == judge.key(first._replace(query_id="x", item_id="y"))
    elsewhere = endpoint("http://127.0.0.1:2/v1", key=KEY, rate=3.0)
    assert judge.key(first) == elsewhere.key(first)
    for one in (judge, other, warm, elsewhere):
        one.close()
