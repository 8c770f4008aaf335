"""A slow stand-in for a model's endpoint, whose grade depends on what it is asked alone."""

from __future__ import annotations

import json
import socket
import threading
import time
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint:
    """Serves until the with block ends; ``asked`` has every whole request, as they came."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[bytes] = []
        self._open, self._changed = 0, threading.Condition()

    def settle(self) -> None:
        """Wait until every connection is over that whoever was killed has left."""
        # Connections are taken in turn: when this one was, so were all before it.
        with socket.create_connection(self._server.server_address, timeout=60) as last:
            last.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert last.recv(1)
        with self._changed:
            assert self._changed.wait_for(lambda: not self._open, timeout=60)

    def __enter__(self) -> Endpoint:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send_error(404)

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:  # Whoever asked was killed in the middle of it.
                    return
                outer.asked.append(body)
                time.sleep(outer.seconds)
                data = json.dumps(answer(body)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            def process_request(self, *connection: Any) -> None:
                outer._count(1)
                super().process_request(*connection)

            def process_request_thread(self, *connection: Any) -> None:
                try:
                    super().process_request_thread(*connection)
                finally:
                    outer._count(-1)

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # Whoever asked may have been killed.
        self._server.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def _count(self, more: int) -> None:
        with self._changed:
            self._open += more
            self._changed.notify_all()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def answer(body: bytes) -> dict[str, Any]:
    """A chat completion with a grade."""
    digest = sha256(body).hexdigest()
    said = {"rationale": f"because {digest[:8]}", "relevance": int(digest, 16) % 3}
    message = {"role": "assistant", "content": json.dumps(said)}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "x", "object": "chat.completion", "choices": [choice]}
