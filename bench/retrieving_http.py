"""What the runner adds to a call: karat's search over HTTP against bare loops.

All send the same requests to the same loopback server, 16 at once, in turns: a loop with
httpx, one with httpcore (which karat uses, and httpx itself), and karat, which also fills
templates, checks answers, keeps the order and writes the log. Prints the milliseconds that
it adds to a call; run it as: python bench/retrieving_http.py [CALLS] [ROUNDS]
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpcore
import httpx

from karat.formats.settings import parse_yaml
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.search import SearchOptions, search_system
from karat.retrieve.system_config import parse_systems

CONCURRENCY, K = 16, 10
HITS = [
    {"chunk_id": f"doc{i}#00001", "doc_id": f"doc{i}", "score": 1 / (1 + i), "text": "words " * 40}
    for i in range(K)
]


class Server(asyncio.Protocol):
    """Answers every request with the same ten hits, and keeps the connection open."""

    body = json.dumps({"query": "", "hits": HITS}).encode()
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.waiting = b""

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        while b"\r\n\r\n" in self.waiting:
            head, _, rest = self.waiting.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            if len(rest) < length:
                return
            self.waiting = rest[length:]
            self.transport.write(self.answer)  # type: ignore[attr-defined]


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def with_httpx(url: str, queries: list[Query]) -> float:
    """Seconds for the loop that anyone would write."""
    limits = httpx.Limits(max_connections=CONCURRENCY, max_keepalive_connections=CONCURRENCY)

    def call(query: Query) -> list[str]:
        answer = client.post(url, json={"query": query.text, "top_k": K})
        answer.raise_for_status()
        return [hit["chunk_id"] for hit in answer.json()["hits"]]

    start = time.perf_counter()
    with httpx.Client(limits=limits) as client, ThreadPoolExecutor(CONCURRENCY) as pool:
        assert len(list(pool.map(call, queries))) == len(queries)
    return time.perf_counter() - start


def with_httpcore(url: str, queries: list[Query]) -> float:
    """Seconds for the same loop one layer below."""
    headers = {"Content-Type": "application/json"}

    def call(query: Query) -> list[str]:
        body = json.dumps({"query": query.text, "top_k": K}).encode()
        answer = client.request("POST", url, headers=headers, content=body)
        return [hit["chunk_id"] for hit in json.loads(answer.content)["hits"]]

    start = time.perf_counter()
    limits = {"max_connections": CONCURRENCY}
    with httpcore.ConnectionPool(**limits) as client, ThreadPoolExecutor(CONCURRENCY) as pool:
        assert len(list(pool.map(call, queries))) == len(queries)
    return time.perf_counter() - start


def with_karat(url: str, queries: list[Query], folder: Path) -> float:
    """Seconds for karat from the karat.yaml to the finished log."""
    yaml = f"""live: {{retriever: http, url: "{url}", k: {K},
      body: {{query: "{{query}}", top_k: "{{k}}"}}}}"""
    start = time.perf_counter()
    systems = parse_yaml(yaml, "karat.yaml")
    system_config = parse_systems(systems.data, systems.place)["live"]
    done = search_system(
        system_config,
        BuildContext(folder=folder),
        queries,
        folder / "run.jsonl",
        options=SearchOptions(concurrency=CONCURRENCY),
    )
    assert not done.failed
    return time.perf_counter() - start


def main() -> None:
    calls, rounds = (int(word) for word in [*sys.argv[1:], *("2000", "7")[len(sys.argv) - 1 :]])
    samples = measure(calls, rounds)
    print(f"{calls:,} calls, {CONCURRENCY} at once, {K} hits each; medians of {rounds} rounds")
    for name in ("httpx", "httpcore", "karat"):
        print(f"  {name:9} {statistics.median(one[name] for one in samples):7.3f} ms a call")
    for name in ("httpx", "httpcore"):
        added = sorted(one["karat"] - one[name] for one in samples)
        print(
            f"karat adds {statistics.median(added):+.3f} ms to a call over bare {name} "
            f"({added[0]:+.3f} to {added[-1]:+.3f})"
        )


def measure(calls: int = 2000, rounds: int = 7) -> list[dict[str, float]]:
    """Milliseconds a call of each contender, round by round."""
    queries = [Query(f"q{i}", f"what is the answer to question {i}") for i in range(calls)]
    process = subprocess.Popen(
        [sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/search"
        with tempfile.TemporaryDirectory() as folder:
            return [race(url, queries, Path(folder), turn) for turn in range(-1, rounds)][1:]
    finally:
        process.terminate()
        process.wait()


def race(url: str, queries: list[Query], folder: Path, turn: int) -> dict[str, float]:
    """One round: milliseconds a call, and another one begins each time."""
    contenders = {
        "httpx": lambda: with_httpx(url, queries),
        "httpcore": lambda: with_httpcore(url, queries),
        "karat": lambda: with_karat(url, queries, folder),
    }
    names = list(contenders)
    order = names[turn % 3 :] + names[: turn % 3]
    return {name: contenders[name]() * 1000 / len(queries) for name in order}


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        main()
