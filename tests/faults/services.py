"""A search service and a judge on loopback that fail as a test tells them, call by call."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# What a service does with one call: answer, or one of the ways not to.
FAULTS = ("dies mid-answer", "resets", "stalls", "answers half a JSON", "closes at once", "is busy")
# Long enough that a call which no fault befalls is answered in it on the busiest machine.
TIMEOUT = 8


class Service:
    """Serves while the with block lasts; ``fault`` says what befalls the call about a text."""

    def __init__(self, fault: Callable[[str, int], str | None] = lambda about, turn: None) -> None:
        self.fault = fault
        self.asked: Counter[str] = Counter()
        self._ending = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Service:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                outer._answer(self, json.loads(self.rfile.read(length)))

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        about, answer = judged(body) if "messages" in body else found(body)
        with self._lock:
            self.asked[about] += 1
            turn = self.asked[about]
        fault = self.fault(about, turn)
        if fault is None:
            send(handler, json.dumps(answer).encode())
        else:
            self._fail(handler, fault, json.dumps(answer).encode())

    def _fail(self, handler: BaseHTTPRequestHandler, fault: str, answer: bytes) -> None:
        handler.close_connection = True
        if fault == "stalls":
            self._ending.wait(3 * TIMEOUT)
        elif fault == "answers half a JSON":
            send(handler, answer[: len(answer) // 2])
        elif fault == "dies mid-answer":
            send(handler, answer, only=len(answer) // 2)
        elif fault == "resets":
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.close()
        elif fault == "is busy":
            # By its own clock, which is a day ahead of everybody else's.
            ahead = time.time() + 86_400
            when = {"Date": ahead, "Retry-After": ahead + 1}
            dates = {name: handler.date_time_string(one) for name, one in when.items()}
            send(handler, b"{}", status=503, headers=dates)


def send(
    handler: BaseHTTPRequestHandler,
    body: bytes,
    *,
    status: int = 200,
    only: int | None = None,
    headers: dict[str, str] | None = None,
) -> None:
    """An answer, or the beginning of one that was to be longer."""
    handler.send_response_only(status)
    for name, text in (headers or {}).items():
        handler.send_header(name, text)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    if handler.close_connection:
        # Else another call might be sent over it, and fail without a fault of its own.
        handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(body[:only])
    handler.wfile.flush()


def found(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What is asked, and hits that depend on nothing else."""
    asked = body["query"]
    hits = [{"id": f"{asked}-{at}", "score": 1 / (at + 1)} for at in range(body["k"])]
    return asked, {"hits": hits}


def judged(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Which pair is asked about, by the last line of the prompt, and its grade."""
    pair = body["messages"][-1]["content"].strip().splitlines()[-1]
    said = json.dumps({"rationale": f"of {pair}", "relevance": sum(pair.encode()) % 3})
    message = {"role": "assistant", "content": said}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return pair, {"id": "x", "object": "chat.completion", "choices": [choice]}
