"""The http retriever against services that refuse, or answer what is not a list of hits."""

from __future__ import annotations

import gzip
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from servers import Raw, always, built, failure, hits, reply

from karat.retrieve.protocol import Query
from karat.retrieve.search import CallRunner


def test_too_many_requests_waits_as_long_as_it_is_told_and_then_succeeds():
    times = []

    def act(connection, got):
        times.append(time.monotonic())
        too_many = reply("", status="429 Too Many Requests", Retry_After="1")
        connection.sendall(too_many if len(times) == 1 else reply(hits("a")))
        return True

    with Raw(act) as server:
        runner = CallRunner(built(f"retriever: http\nurl: {server.url}").find, 10)
        [(_, answer)] = runner.outcomes([Query("q1", "x")])
    assert [hit.item_id for hit in answer.hits] == ["a"]
    assert runner.tally.retried == 1
    assert 1.0 <= times[1] - times[0] < 10


@pytest.mark.parametrize(
    ("status", "after", "least", "most"),
    [
        ("429 Too Many Requests", "7", 7, 7),
        ("503 Service Unavailable", "0", 0, 0),
        ("503 Service Unavailable", timedelta(hours=1), 3500, 3600),
        ("503 Service Unavailable", timedelta(hours=-1), 0, 0),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(status, after, least, most):
    told = after if isinstance(after, str) else format_datetime(datetime.now(UTC) + after)
    got, error = failure(always(reply("", status=status, Retry_After=told)))
    assert got == f"answered {status}"
    assert error.may_pass
    assert least <= error.wait <= most


@pytest.mark.parametrize("after", ["soon", "", "-5"])
def test_retry_after_that_says_nothing_leaves_the_wait_to_the_runner(after):
    _, error = failure(always(reply("", status="429 Too Many Requests", Retry_After=after)))
    assert error.may_pass
    assert error.wait is None


@pytest.mark.parametrize(
    ("status", "body", "told", "may_pass"),
    [
        (
            "500 Internal Server Error",
            "boom\n  at line 1",
            "Internal Server Error: boom at line 1",
            True,
        ),
        ("502 Bad Gateway", "<html>…</html>", "Bad Gateway: <html>…</html>", True),
        ("405 Method Not Allowed", {"detail": "Method Not Allowed"}, "Method Not Allowed", False),
        ("408 Request Timeout", "", "Request Timeout", True),
        ("404 Not Found", {"message": "Not found."}, "Not Found: Not found.", False),
        ("401 Unauthorized", {"error": "no key"}, "Unauthorized: no key", False),
        (
            "400 Bad Request",
            {
                "error": {"root_cause": [], "type": "parsing_exception", "reason": "no [x]"},
                "status": 400,
            },
            "Bad Request: no [x]",
            False,
        ),
        (
            "400 Bad Request",
            {"error": [{"message": "one"}, {"message": "two"}]},
            "Bad Request: one",
            False,
        ),
        ("418 I'm a teapot", {"a": 1}, """I'm a Teapot: {"a": 1}""", False),
        ("499 Gone Away", "x" * 1000, " " + "x" * 300 + "…", False),
    ],
)
def test_other_statuses_are_told_with_what_the_service_says(status, body, told, may_pass):
    got, error = failure(always(reply(body, status=status)))
    code = status.split()[0]
    expected = f"answered {code} {told}" if code != "499" else f"answered 499:{told}"
    assert got == expected
    assert error.may_pass == may_pass


def test_a_redirect_is_not_followed_with_the_headers_of_the_request():
    with Raw(always(reply(hits("a")))) as other:
        away = f"http://user:pw@127.0.0.1:{other.port}/login?key=1"
        moved = reply("", status="307 Temporary Redirect", Location=away)
        told, error = failure(always(moved))
        assert other.requests == []
    assert told == (
        f"answered 307 Temporary Redirect to http://127.0.0.1:{other.port}/login; "
        "redirects are not followed, give the final url"
    )
    assert not error.may_pass


# answers


@pytest.mark.parametrize(
    ("response", "told"),
    [
        (
            reply("<html>\n<h1>Log in</h1></html>", kind="text/html; charset=utf-8"),
            "returned text/html that begins '<html> <h1>Log in</h1></html>'; JSON is expected",
        ),
        (
            reply("pong", kind=""),
            "returned something that begins 'pong'; JSON is expected",
        ),
        (reply(" \n"), "that begins ''; JSON is expected"),
        (reply("", status="204 No Content"), "that begins ''; JSON is expected"),
        (
            reply('{"hits": [}'),
            "that begins '{\"hits\": [}'; JSON is expected",
        ),
        (reply(b"\xff\xfe\x00"), "returned application/json that begins"),
        (reply("[" * 100_000), "JSON is expected"),
        (reply("9" * 5000), "returned application/json that begins"),
    ],
)
def test_what_is_not_json_is_told_by_how_it_begins(response, told):
    got, error = failure(always(response))
    assert told in got
    assert len(got) < 400
    assert "\n" not in got
    assert not error.may_pass


NOTHING = "hits: hits[] finds no list; the answer is "


@pytest.mark.parametrize(
    ("yaml", "data", "told"),
    [
        (
            "",
            {"query": "pie", "results": [{"id": "a", "score": 1}] * 3},
            (f"{NOTHING}{{query: text, results: [3 × {{id: text, score: number}}]}}"),
        ),
        (
            "hits: data.Get.Pie",
            {"data": {"Get": None}, "errors": [{"message": "no class Pie"}]},
            (
                "hits: data.Get.Pie finds no list; the answer is "
                "{data: {Get: null}, errors: [1 × {message: text}]} and says: no class Pie"
            ),
        ),
        (
            "hits: results[2].hits[]",
            {"results": [{"hits": []}, {}]},
            ("hits: results[2].hits[] finds no list; the answer is {results: [2 × {hits: []}]}"),
        ),
        (
            "",
            {"hits": {"total": 1, "hits": []}},
            ("hits: hits[] finds no list; the answer is {hits: {total: number, hits: []}}"),
        ),
        (
            "hits: 'hits[?a]'",
            {"hits": {"a": 1}},
            ("hits: hits[?a] finds no list; the answer is {hits: {a: number}}"),
        ),
        (
            "hits: hits",
            {"hits": "a"},
            "hits: hits finds no list; the answer is {hits: text}",
        ),
        ("", [1, True], f"{NOTHING}[2 × number]"),
        ("", None, f"{NOTHING}null"),
        ("", {}, f"{NOTHING}{{}}"),
    ],
)
def test_an_expression_that_finds_nothing_says_what_is_missing_and_what_is_there(yaml, data, told):
    got, error = failure(always(reply(data)), yaml)
    assert got == told
    assert not error.may_pass


def test_an_id_with_a_nul_is_a_failed_call():
    told, error = failure(always(reply({"hits": [{"id": "a"}, {"id": "a\0b"}]})))
    assert (
        told == "hit 2: the service returned an id that holds a NUL character; leave it out of ids"
    )
    assert not error.may_pass


def test_a_function_of_an_expression_that_cannot_be_applied_is_a_failed_call():
    told, error = failure(always(reply({"n": 5})), "hits: 'join(n, n)'")
    assert told.startswith("join(n, n): In function join(), invalid type for value: 5")
    assert not error.may_pass


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
def test_a_reason_that_is_nested_deeply_is_no_traceback(status):
    deep = '{"error": ' * 900 + '"x"' + "}" * 900
    told, _ = failure(always(reply(deep, status=status)))
    assert len(told) < 600


def test_the_shape_of_a_large_answer_stays_short():
    wide = {f"key{i}" * 30: {"a": [{"b": {"c": {"d": 1}}}]} for i in range(500)}
    got, _ = failure(always(reply(wide)))
    assert len(got) < 600


def test_an_answer_that_does_not_end_is_cut_off():
    def act(connection, got):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        while True:
            connection.sendall(chunk)

    told, error = failure(act, timeout=60)
    assert told == "the answer is larger than 100 MB; ask for less"
    assert not error.may_pass


def test_a_small_packet_that_unpacks_without_end_is_cut_off():
    bomb = gzip.compress(b" " * 150_000_000, 1)
    told, _ = failure(always(reply(bomb, Content_Encoding="gzip")), timeout=60)
    assert told == "the answer is larger than 100 MB; ask for less"


def test_the_reason_of_a_refusal_is_not_read_to_its_end():
    def act(connection, got):
        connection.sendall(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"10000\r\n" + b"no " * 21845 + b"!\r\n")

    told, error = failure(act)
    assert told.startswith("answered 500 Internal Server Error: no no no")
    assert error.may_pass
