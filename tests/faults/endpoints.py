"""A slow stand-in for a model's endpoint, whose grade depends on what it is asked alone."""

from __future__ import annotations

import json
import threading
import time
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint:
    """Serves until the with block ends; ``asked`` has every request, in the order they came."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[bytes] = []

    def __enter__(self) -> Endpoint:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.asked.append(body)
                time.sleep(outer.seconds)
                data = json.dumps(answer(body)).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # Whoever asked may have been killed.
        self._server.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

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
