"""Servers for the tests of the http retriever: good ones, and one that does as it is told."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from karat.errors import CallError
from karat.formats.settings import parse_yaml
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.system import SearchSystem, build_system
from karat.retrieve.system_config import parse_systems

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "src" / "karat" / "recipes" / "minimal"
PAGE = (ROOT / "docs" / "call-a-service.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def example() -> Any:
    """The search service of the recipe minimal as a module."""
    spec = importlib.util.spec_from_file_location("search_service", RECIPE / "search_service.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    """An ASGI application under uvicorn on a free port; gives its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", ws="none", lifespan="off", loop="asyncio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


@dataclass(frozen=True)
class Got:
    """One request as it came over the socket."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Act = Callable[[socket.socket, Got], object]


@dataclass
class Raw:
    """A server that reads requests and lets a function write whatever bytes it likes.

    The connection stays open while the function returns a true value.
    """

    act: Act
    wrap: Callable[[socket.socket], socket.socket] | None = None
    requests: list[Got] = field(default_factory=list)
    connections: int = 0
    _open: list[socket.socket] = field(default_factory=list)

    def __enter__(self) -> Raw:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake a thread that waits in accept or recv.
        for one in [self._listening, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _wrapped(self, connection: socket.socket) -> socket.socket:
        return connection if self.wrap is None else self.wrap(connection)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), self._wrapped(connection) as connection:
            file = connection.makefile("rb")
            with file:
                while got := _read(file):
                    self.requests.append(got)
                    if not self.act(connection, got):
                        return


def _read(file: Any) -> Got | None:
    first = file.readline().decode("latin-1")
    if first.count(" ") != 2:
        return None
    method, target, _ = first.split(" ", 2)
    headers = {}
    while line := file.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    length = int(headers.get("content-length", 0))
    body = file.read(length)
    return Got(method, target, headers, body) if len(body) == length else None


def reply(
    content: Any = "",
    *,
    status: str = "200 OK",
    kind: str = "application/json",
    **headers: str,
) -> bytes:
    """A whole response; what is neither text nor bytes is sent as JSON."""
    body = content if isinstance(content, bytes) else _text(content).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {kind}"] if kind else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _text(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def always(response: bytes) -> Act:
    """Answers every request alike and keeps the connection open."""

    def act(connection: socket.socket, got: Got) -> bool:
        connection.sendall(response)
        return True

    return act


def built(yaml: str, *, timeout: float = 5.0, **environment: str) -> SearchSystem:
    """The system of some lines of YAML, as karat.yaml would have them."""
    lines = parse_yaml("live:\n" + "\n".join(f"  {line}" for line in yaml.splitlines()), "k.yaml")
    system_config = parse_systems(lines.data, lines.place)["live"]
    return build_system(system_config, BuildContext(environment=environment, timeout=timeout))


def asked(system: SearchSystem, text: str = "pie", k: int = 10, **attributes: Any) -> Any:
    """The answer to one query."""
    return system.find([Query("q1", text, attributes)], k)[0]


def hits(*ids: Any, **more: Any) -> dict[str, Any]:
    """An answer of the usual form."""
    return {"hits": [{"id": one} for one in ids], **more}


def one_reply(content: Any, yaml: str = "", k: int = 10) -> Any:
    """What is made of one answer."""
    with Raw(always(reply(content))) as server:
        return asked(built(f"retriever: http\nurl: {server.url}/s\n{yaml}"), k=k)


def failure(act: Act, yaml: str = "", timeout: float = 5.0) -> tuple[str, CallError]:
    """What a call to a server comes to that acts like this."""
    with Raw(act) as server:
        system = built(f"retriever: http\nurl: {server.url}/s\n{yaml}", timeout=timeout)
        with pytest.raises(CallError) as error:
            asked(system)
        return str(error.value).replace(f":{server.port}", ":PORT"), error.value


def sent(
    yaml: str, text: str = "pie", k: int = 10, environment: Any = None, **attributes: Any
) -> Got:
    """The request that is sent for a query; URL in the YAML stands for a server."""
    with Raw(always(reply(hits("a")))) as server:
        yaml = yaml if "url:" in yaml else f"url: URL/s\n{yaml}"
        system = built(f"retriever: http\n{yaml.replace('URL', server.url)}", **(environment or {}))
        asked(system, text, k, **attributes)
        return server.requests[0]


def karat(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call karat as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "karat", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def write_queries(folder: Path, n: int) -> None:
    lines = [json.dumps({"query_id": f"q{i:03}", "text": f"text {i}"}) for i in range(n)]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def logged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def recipe(name: str, url: str) -> str:
    """A recipe of docs/call-a-service.md as the page has it, at another host."""
    block = next(block for block in BLOCKS if block.startswith(f"{name}:\n"))
    inside = textwrap.dedent(block.partition("\n")[2])
    return re.sub(r"http://127\.0\.0\.1:\d+", url, inside)
