"""Judging a whole pool: order, limits, retries, cost, and endpoints that give up."""

from __future__ import annotations

import base64
import json
import threading
import time
from urllib.parse import quote

import pytest
from judge_servers import (
    Server,
    by_number,
    completion,
    endpoint,
    graded,
    judged,
    labels,
    number,
    pairs,
    trouble,
)

from karat.errors import InputError
from karat.jobs.calls import retry_wait
from karat.label.judge import Runner, judge
from karat.label.judges import JudgeCallError, JudgeGoneError


@pytest.fixture
def quick(monkeypatch):
    """Retries that do not wait half a second."""
    monkeypatch.setattr("karat.jobs.calls._FIRST_WAIT", 0.01)


def test_labels_stand_in_the_order_of_the_pool_whatever_order_answers_come_in(tmp_path):
    def slow_first(got, connection):
        time.sleep(0.05 if number(got) % 4 == 0 else 0.0)
        return by_number(got, connection)

    with Server(slow_first) as server:
        done = judged(server.url, 24, tmp_path / "l.jsonl", concurrency=8)
    lines = labels(tmp_path / "l.jsonl")
    assert [line["item_id"] for line in lines] == [f"d{at}" for at in range(24)]
    assert [line["grade"] for line in lines] == [at % 3 for at in range(24)]
    assert [line["rationale"] for line in lines] == [f"pair {at}" for at in range(24)]
    assert list(lines[0]) == [
        "query_id",
        "item_id",
        "grade",
        "rationale",
        "rater",
        "source",
        "digest",
    ]
    assert lines[0]["source"] == "judge"
    assert lines[0]["rater"] == done.rater
    assert not list(tmp_path.glob("*.part"))


def test_calls_run_side_by_side_as_many_as_allowed(tmp_path):
    together = threading.Barrier(3, timeout=20)
    first = threading.Event()

    def meet(got, connection):
        # The first call is alone; the rest answer only when three are there at once.
        if not first.is_set():
            first.set()
        else:
            together.wait()
        return graded()

    with Server(meet) as server:
        done = judged(server.url, 7, tmp_path / "l.jsonl", concurrency=3)
    assert done.grades[2] == 7
    assert server.most_at_once == 3


def test_the_rate_is_kept_with_retries_counted(tmp_path, quick):
    def busy_once(got, connection):
        return trouble(503) if got.number == 2 else graded()

    begun = time.monotonic()
    with Server(busy_once) as server:
        done = judged(server.url, 9, tmp_path / "l.jsonl", concurrency=4, access={"rate": 20.0})
    assert (done.tally.asked, done.tally.retried) == (9, 1)
    assert len(server.times) == 10
    # Calls begin a twentieth of a second apart, or later.
    for at, arrived in enumerate(sorted(server.times)):
        assert arrived - begun >= at * 0.05 - 0.005


def test_what_passes_is_tried_again_and_what_does_not_is_not(tmp_path, quick):
    seen: dict[int, int] = {}

    def act(got, connection):
        at = number(got)
        seen[at] = seen.get(at, 0) + 1
        if at == 1 and seen[at] <= 2:
            return trouble(429, "slow down", Retry_After="0.02")
        if at == 2:
            return trouble(429, "for ever")
        if at == 3:
            return trouble(500, "broken")
        return completion("prose") if at == 4 else graded()

    with Server(act) as server:
        done = judged(server.url, 6, tmp_path / "l.jsonl", retries=3, max_failures=0.5)
    assert seen == {0: 1, 1: 3, 2: 4, 3: 4, 4: 1, 5: 1}
    lines = labels(tmp_path / "l.jsonl")
    assert [line.get("grade") for line in lines] == [2, 2, None, None, None, 2]
    assert [line.get("error") for line in lines if "error" in line] == [
        "the endpoint answered 429: for ever",
        "the endpoint answered 500: broken",
        "the answer is not JSON: prose",
    ]
    assert not any("grade" in line or "rationale" in line for line in lines if "error" in line)
    document = done.to_dict()
    assert document["grades"] == {"2": 3, "1": 0, "0": 0}
    assert document["reasons"] == {
        "the answer is not JSON": 1,
        "the endpoint answered 429": 1,
        "the endpoint answered 500": 1,
    }
    assert (document["pairs"], document["failed"], document["partial"]) == (6, 3, False)
    assert (document["asked"], document["retried"]) == (6, 2 + 3 + 3)
    # Three judgments and the prose were answers, of 100 and 7 tokens each.
    assert document["tokens"] == {"prompt": 400, "completion": 28}


def test_waits_double_up_to_a_limit_and_are_as_long_as_was_asked_for():
    assert [retry_wait(tries) for tries in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert retry_wait(0, 12.5) == 12.5
    assert retry_wait(3, 1.0) == 4


@pytest.mark.parametrize("retries", [0, 3])
def test_whoever_asks_for_a_day_is_not_asked_again(tmp_path, retries):
    """No call waits for it, no other is made, and what was judged before is kept."""

    def tired(got, connection):
        return graded() if number(got) < 2 else trouble(429, "quota", Retry_After="86400")

    begun = time.monotonic()
    with Server(tired) as server, pytest.raises(JudgeGoneError) as caught:
        judged(server.url, 12, tmp_path / "l.jsonl", concurrency=1, retries=retries)
    assert time.monotonic() - begun < 20
    assert len(server.requests) == 3
    told = str(caught.value)
    assert told.startswith("the endpoint answered 429: quota; it asks to wait 86,400 s")
    assert "2 of 12 pairs are kept in" in told
    assert "resume with --resume" in told


def test_a_long_wait_is_told_once_for_all_that_wait():
    told = []
    runner = Runner(None, report_wait=lambda seconds, why: told.append((seconds, why)))
    for seconds in (2.0, 60.0, 60.0, 8.0, 120.0):
        runner._before_wait(JudgeCallError("busy"), seconds)
    assert told == [(60.0, "busy"), (120.0, "busy")]


def test_a_wait_that_was_asked_for_is_kept(tmp_path):
    def busy(got, connection):
        return trouble(429, Retry_After="0.8") if got.number == 0 else graded()

    with Server(busy) as server:
        judged(server.url, 1, tmp_path / "l.jsonl")
    assert server.times[1] - server.times[0] >= 0.8


def test_labels_are_partial_when_more_failed_than_allowed(tmp_path):
    def two_bad(got, connection):
        return graded("x") if number(got) < 2 else graded()

    with Server(two_bad) as server:
        assert judged(server.url, 10, tmp_path / "a.jsonl", max_failures=0.1).partial
        assert not judged(server.url, 10, tmp_path / "b.jsonl", max_failures=0.2).partial


def test_cost_is_told_from_tokens_and_prices_or_not_at_all(tmp_path):
    with Server(graded()) as server:
        done = judged(server.url, 4, tmp_path / "a.jsonl", price_in=0.5, price_out=2.0)
        free = judged(server.url, 4, tmp_path / "b.jsonl")
    # 4 x 100 at 0.5 and 4 x 7 at 2, each a million.
    assert done.cost == pytest.approx((400 * 0.5 + 28 * 2.0) / 1e6)
    assert free.cost is None
    silent = completion(json.dumps({"relevance": 1, "rationale": "x"}), usage=False)
    with Server(silent) as server:
        untold = judged(server.url, 4, tmp_path / "c.jsonl", price_in=0.5, price_out=2.0)
    assert untold.cost is None
    assert untold.to_dict()["without_tokens"] == 4


def test_a_key_that_stops_working_ends_the_run_and_keeps_what_is_there(tmp_path):
    def expires(got, connection):
        return trouble(401, "expired") if number(got) >= 3 else graded()

    with Server(expires) as server:
        with pytest.raises(JudgeGoneError) as caught:
            judged(server.url, 40, tmp_path / "l.jsonl", concurrency=1)
        assert "401: expired; check the key in OPENAI_API_KEY" in str(caught.value)
        assert "3 of 40 pairs are kept" in str(caught.value)
        assert len(server.requests) == 4
    assert [line["grade"] for line in labels(tmp_path / "l.jsonl.part")] == [2, 2, 2]


def test_an_endpoint_that_refuses_everything_is_not_asked_for_ever(tmp_path):
    refusing = Server(trouble(400, "temperature must be 1"))
    with refusing as server, pytest.raises(JudgeGoneError) as caught:
        judged(server.url, 100, tmp_path / "l.jsonl", concurrency=1)
    told = "the first 5 calls were all refused: the endpoint answered 400: temperature must be 1"
    assert str(caught.value).startswith(told)
    # Each of five in the three forms that there are.
    assert len(server.requests) == 15


def test_an_endpoint_that_is_gone_is_tried_once_a_pair(tmp_path, quick):
    with Server(trouble(503, "down")) as server, pytest.raises(JudgeGoneError) as caught:
        judged(server.url, 40, tmp_path / "l.jsonl", concurrency=1, max_failures=1)
    told = f"no call succeeded: {server.url}: the endpoint answered 503: down"
    assert str(caught.value).startswith(told)
    assert not list(tmp_path.iterdir())
    # Five pairs are tried four times, which makes twenty in a row; then once each.
    assert len(server.requests) == 20 + 35


@pytest.mark.parametrize("how", [{}, {"restart": True}, {"resume": True}])
def test_failures_alone_never_replace_labels(tmp_path, quick, how):
    path = tmp_path / "l.jsonl"
    with Server(by_number) as server:
        judged(server.url, 6, path)
    before = path.read_bytes()
    if how.get("resume"):
        # Every pair has its grade already, so that nothing is asked.
        assert judged(server.url, 6, path, retries=0, **how).tally.asked == 0
    else:
        with pytest.raises(JudgeGoneError, match="is unchanged"):
            judged(server.url, 6, path, retries=0, **how)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["l.jsonl"]


def test_blank_texts_are_not_asked_about(tmp_path):
    given = pairs(3)
    given[0] = given[0]._replace(text="  ")
    given[1] = given[1]._replace(query="\n")
    with Server(graded()) as server:
        done = judge(given, tmp_path / "l.jsonl", judge=endpoint(server.url))
    assert done.reasons == {"the item's text is blank": 1, "the query is blank": 1}
    assert len(server.requests) == 1


def test_labels_go_to_a_jsonl_file(tmp_path):
    with pytest.raises(InputError, match=r"a label file ends in \.jsonl"):
        judged("http://127.0.0.1:1/v1", 1, tmp_path / "l.csv")
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        judged("http://127.0.0.1:1/v1", 1, tmp_path / "d.jsonl")


def test_a_key_that_an_endpoint_echoes_is_in_no_file(tmp_path):
    key = "sk/very-secret"

    def echo(got, connection):
        sent = got.headers["authorization"]
        packed = base64.b64encode(key.encode()).decode()
        if number(got) % 2:
            return trouble(400, f"{sent} {packed}")
        return graded(2, f"{sent} {quote(key, safe='')} {packed}")

    with Server(echo) as server:
        judged(server.url, 4, tmp_path / "labels.jsonl", access={"key": key}, cache=tmp_path / "c")
        assert server.requests[0].headers["authorization"] == f"Bearer {key}"
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    kept = "".join(file.read_text() for file in files)
    assert kept.count("Bearer ${OPENAI_API_KEY} ${OPENAI_API_KEY}") >= 4
    for spelling in (key, quote(key, safe=""), base64.b64encode(key.encode()).decode()):
        assert spelling not in kept
