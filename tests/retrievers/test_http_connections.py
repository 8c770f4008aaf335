"""Connections of the http retriever: many at once, through proxies, with certificates."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
import time

import pytest
from servers import Raw, always, asked, built, free_port, hits, reply

from karat.errors import CallError, UsageError
from karat.retrieve.protocol import Hit, Query
from karat.retrieve.search import CallRunner


def test_sixteen_at_once_come_back_in_order_over_kept_connections():
    def act(connection, got):
        number = int(got.json["q"].split()[1])
        time.sleep(0.001 * (number * 7 % 11))
        connection.sendall(reply(hits(f"d{number}")))
        return True

    with Raw(act) as server:
        system = built(f'retriever: http\nurl: {server.url}\nbody: {{q: "{{query}}"}}')
        runner = CallRunner(system.find, 10, concurrency=16)
        queries = [Query(f"q{i}", f"text {i}") for i in range(400)]
        outcomes = list(runner.outcomes(queries))
    assert [(query.query_id, answer.hits[0].item_id) for query, answer in outcomes] == [
        (f"q{i}", f"d{i}") for i in range(400)
    ]
    assert runner.tally.failed == runner.tally.retried == 0
    assert server.connections <= 16


def test_calls_are_really_side_by_side():
    meeting = threading.Barrier(16, timeout=10)

    def act(connection, got):
        meeting.wait()
        connection.sendall(reply(hits("a")))
        return True

    with Raw(act) as server:
        runner = CallRunner(built(f"retriever: http\nurl: {server.url}").find, 10, concurrency=16)
        list(runner.outcomes([Query(f"q{i}", "x") for i in range(32)]))
    assert runner.tally.failed == 0


def test_it_says_how_it_likes_to_be_called():
    system = built("retriever: http\nurl: http://x")
    assert (system.batch, system.concurrency, system.deep) == (1, 8, False)


# proxies and certificates


def test_a_proxy_of_the_environment_is_used_but_not_to_this_machine(monkeypatch):
    with Raw(always(reply(hits("a")))) as proxy, Raw(always(reply(hits("b")))) as here:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://me:pw@"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        far = asked(built("retriever: http\nurl: http://search.test/s?q={query}"))
        near = asked(built(f"retriever: http\nurl: {here.url}"))
        assert proxy.requests[0].target == "http://search.test/s?q=pie"
        assert proxy.requests[0].headers["host"] == "search.test"
        assert "proxy-authorization" in proxy.requests[0].headers
        assert len(proxy.requests) == 1
    assert (far.hits, near.hits) == ([Hit("a")], [Hit("b")])


def test_a_proxy_of_another_kind_is_refused(monkeypatch):
    monkeypatch.setenv("http_proxy", "socks5://me:pw@127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(UsageError, match="proxy for http is not an http:// or https://") as error:
        built("retriever: http\nurl: http://search.test/s")
    assert "pw" not in str(error.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    command += " -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=DNS:search.test,IP:127.0.0.1"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture
def secure(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")

    def act(connection, got):
        connection.sendall(reply(hits("a")))

    with Raw(act, wrap=lambda one: context.wrap_socket(one, server_side=True)) as server:
        yield f"https://127.0.0.1:{server.port}"


def test_certificates_are_checked_against_the_authorities_of_the_environment(
    secure, certificate, monkeypatch
):
    with pytest.raises(
        CallError, match=r"connect to 127\.0\.0\.1:.*certificate.* SSL_CERT_FILE"
    ) as error:
        asked(built(f"retriever: http\nurl: {secure}"))
    assert not error.value.may_pass
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    assert asked(built(f"retriever: http\nurl: {secure}")).hits == [Hit("a")]


def test_https_goes_through_a_proxy_as_through_a_tunnel(secure, certificate, monkeypatch):
    def tunnel(connection, got):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        port = int(secure.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as far:
            back = threading.Thread(target=pump, args=(far, connection), daemon=True)
            back.start()
            pump(connection, far)
            back.join(10)

    def pump(one, other):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)

    with Raw(tunnel) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        system = built("retriever: http\nurl: https://search.test/s")
        assert asked(system).hits == [Hit("a")]
        assert (proxy.requests[0].method, proxy.requests[0].target) == (
            "CONNECT",
            "search.test:443",
        )
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{free_port()}")
        with pytest.raises(CallError, match=r"cannot connect to .* Connection refused"):
            asked(built("retriever: http\nurl: https://search.test/s"))


def test_a_proxy_that_refuses_is_told(monkeypatch):
    with Raw(always(reply("", status="407 Proxy Authentication Required"))) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url.replace("http://", "http://me:pw@"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with pytest.raises(
            CallError, match=r"the request to search\.test cannot be sent: 407"
        ) as e:
            asked(built("retriever: http\nurl: https://search.test/s"))
    assert "pw" not in str(e.value)


def test_https_where_there_is_only_http_is_told():
    def serve():
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        system = built(f"retriever: http\nurl: https://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(CallError, match=r"SSL.* does it support https") as error:
            asked(system)
        thread.join(10)
    assert not error.value.may_pass


def test_an_address_of_the_sixth_version_is_called_by_its_name(monkeypatch):
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with pytest.raises(CallError, match=r"cannot connect to \[::1\]:9"):
        asked(built("retriever: http\nurl: http://[::1]:9/s"))
