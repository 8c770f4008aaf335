"""An endpoint on loopback that answers as a test tells it, and counts what it is asked."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from karat.label.judge import Judged, judge
from karat.label.judges import Endpoint, Prompt
from karat.label.labels import Pair

KEY = "sk-very-secret-0123456789"
PROMPT = Prompt("Q={query}\nT={text}\n")


@dataclass(frozen=True)
class Got:
    """One request, and which one it is."""

    number: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        return self.body["messages"][0]["content"]


@dataclass(frozen=True)
class Say:
    """What to answer."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


Act = Callable[[Got, socket.socket], Say | None]


def completion(content: Any, *, ended: str = "stop", usage: bool = True, **message: Any) -> Say:
    """A chat completion with this content."""
    record: dict[str, Any] = {
        "id": "x",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "finish_reason": ended,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
    }
    if usage:
        record["usage"] = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    return Say(json.dumps(record).encode())


def graded(relevance: Any = 2, rationale: Any = "because") -> Say:
    """A judgment as it should be."""
    return completion(json.dumps({"rationale": rationale, "relevance": relevance}))


def trouble(status: int, message: str = "no", **headers: str) -> Say:
    """An error as endpoints tell it."""
    body = json.dumps({"error": {"message": message}}).encode()
    return Say(body, status, headers={name.replace("_", "-"): v for name, v in headers.items()})


class Server:
    """Serves until the with block ends; an act that returns None has written its own bytes."""

    def __init__(self, act: Act | Say) -> None:
        self.act: Act = act if callable(act) else lambda got, connection: act
        self.requests: list[Got] = []
        self.times: list[float] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Server:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._handle(self)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("content-length", 0))
        body = json.loads(handler.rfile.read(length))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            got = Got(len(self.requests), handler.path, headers, body)
            self.requests.append(got)
            self.times.append(time.monotonic())
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            say = self.act(got, handler.connection)
        finally:
            with self._lock:
                self._at_once -= 1
        if say is None:
            handler.close_connection = True
            return
        handler.send_response(say.status)
        handler.send_header("Content-Length", str(len(say.body)))
        if say.kind:
            handler.send_header("Content-Type", say.kind)
        for name, value in say.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(say.body)


def reset(connection: socket.socket) -> None:
    """Tear a connection down so that the other side sees a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def endpoint(url: str, *, key: str | None = None, **access: Any) -> Endpoint:
    """A judge at this address."""
    environment = {} if key is None else {"OPENAI_API_KEY": key}
    settings = {"model": "m", "timeout": 5.0, **access}
    return Endpoint(PROMPT, environment, url=url, **settings)


def pairs(number: int) -> list[Pair]:
    """So many pairs, three items a query."""
    return [
        Pair(f"q{at // 3}", f"d{at}", f"question {at // 3}", f"text {at}") for at in range(number)
    ]


def write_pool(path: Path, given: Sequence[Pair]) -> Path:
    lines = [json.dumps(pair._asdict() | {"runs": ["a", "b"]}) for pair in given]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def labels(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def number(got: Got) -> int:
    """Which pair a request is about."""
    return int(got.prompt.split("T=text ")[1])


def by_number(got: Got, connection: socket.socket) -> Say:
    """Grades pair 0 with 0, 1 with 1, 2 with 2, 3 with 0, and so on."""
    return graded(number(got) % 3, f"pair {number(got)}")


def judged(
    url: str, n: int, path: Path, *, access: Any = None, cache: Path | None = None, **settings: Any
) -> Judged:
    """Have so many pairs judged at this address."""
    return judge(pairs(n), path, judge=endpoint(url, **(access or {})), cache=cache, **settings)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)
