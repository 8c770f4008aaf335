"""The http retriever against services that are down, slow or break off: each trouble one line."""

from __future__ import annotations

import gzip
import json
import socket
import time

import pytest
from servers import Raw, always, asked, built, failure, free_port, hits, reply

from karat.errors import CallError
from karat.retrieve.protocol import Query
from karat.retrieve.search import CallRunner, FailedCall

# nobody there, or nobody who finishes


def test_a_service_that_is_down_may_come_back():
    port = free_port()
    with pytest.raises(CallError) as error:
        asked(built(f"retriever: http\nurl: http://127.0.0.1:{port}"))
    assert str(error.value) == (
        f"cannot connect to 127.0.0.1:{port}: Connection refused; is the service running there?"
    )
    assert error.value.may_pass


def test_a_host_without_an_address_is_named():
    with pytest.raises(
        CallError, match=r"cannot connect to nowhere\.invalid: Name or service"
    ) as e:
        asked(built("retriever: http\nurl: http://nowhere.invalid/s"))
    assert e.value.may_pass


def test_a_service_that_hangs_up_may_do_better_next_time():
    told, error = failure(lambda connection, got: None)
    assert told == "127.0.0.1:PORT closed the connection before its answer was complete"
    assert error.may_pass


def test_a_connection_that_is_reset_may_do_better_next_time():
    def act(connection, got):
        # Closing with a zero linger sends a reset instead of a farewell.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    told, error = failure(act)
    assert told == "127.0.0.1:PORT closed the connection before its answer was complete"
    assert error.may_pass


@pytest.mark.parametrize(
    "half",
    [
        reply(hits("a"))[:-5],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
        reply(gzip.compress(json.dumps(hits(*range(99))).encode()), Content_Encoding="gzip")[:-20],
    ],
)
def test_half_an_answer_is_no_answer(half):
    told, error = failure(lambda connection, got: connection.sendall(half) or None)
    assert told == "127.0.0.1:PORT closed the connection before its answer was complete"
    assert error.may_pass


def test_packed_bytes_that_end_early_are_half_an_answer_too():
    packed = gzip.compress(json.dumps(hits(*range(99))).encode())[:-20]
    told, error = failure(always(reply(packed, Content_Encoding="gzip")))
    assert told == "the compressed answer is incomplete"
    assert error.may_pass
    told, error = failure(always(reply(b"no gzip", Content_Encoding="gzip")))
    assert "cannot be unpacked" in told
    told, error = failure(always(reply(b"br?", Content_Encoding="br")))
    assert "packed as 'br', cannot be unpacked" in told


def test_what_is_not_http_is_no_answer():
    told, error = failure(lambda connection, got: connection.sendall(b"220 smtp ready\r\n\r\n"))
    assert told == "127.0.0.1:PORT closed the connection before its answer was complete"
    assert error.may_pass


def slow(connection, got):
    time.sleep(1.2)
    connection.sendall(reply(hits("a")))


def dribbled(response):
    """A server that sends a byte every now and then, each in time for a limit on one read."""

    def act(connection, got):
        for byte in response:
            connection.sendall(bytes([byte]))
            time.sleep(0.03)

    return act


@pytest.mark.parametrize(
    "act",
    [
        slow,
        dribbled(reply(hits("a"))),
        lambda connection, got: (
            connection.sendall(reply(hits("a"))[:-19])
            or dribbled(reply(hits("a"))[-19:])(connection, got)
        ),
    ],
    ids=["silent", "dribbles the head", "dribbles the body"],
)
def test_the_time_limit_is_for_the_whole_call(act):
    start = time.monotonic()
    got, error = failure(act, timeout=0.3)
    assert "127.0.0.1:PORT took longer than 0.3 s" in got
    assert error.may_pass
    # The server's own thread is joined before the clock is read.
    assert time.monotonic() - start < 3


def test_a_call_is_given_up_when_its_time_is_over_and_not_a_read_later():
    with Raw(dribbled(reply(hits("a")))) as server:
        system = built(f"retriever: http\nurl: {server.url}", timeout=0.4)
        start = time.monotonic()
        with pytest.raises(CallError):
            asked(system)
        assert 0.4 <= time.monotonic() - start < 1.5


def test_the_time_limit_of_one_thread_is_not_that_of_another():
    def act(connection, got):
        time.sleep(1.3 if got.json["q"] == "text 0" else 0)
        connection.sendall(reply(hits("a")))
        return True

    with Raw(act) as server:
        system = built(f'retriever: http\nurl: {server.url}\nbody: {{q: "{{query}}"}}', timeout=1.0)
        runner = CallRunner(system.find, 10, concurrency=4, retries=0)
        got = list(runner.outcomes([Query(f"q{i}", f"text {i}") for i in range(40)]))
    assert [query.query_id for query, outcome in got if isinstance(outcome, FailedCall)] == ["q0"]
