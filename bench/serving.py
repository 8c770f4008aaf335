"""Time karat serve over a store of 1,000 evaluations and write bench/SERVING.md.

    python bench/serving.py          about a minute on a quiet machine

The server is a process of its own; this one asks it over connections that stay open, the next
request as soon as an answer is there. Ends with 1 when a target is missed.
"""

import asyncio
import itertools
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from contenders import HERE, KARAT
from results import Section, Target, document, finish, machine

OUT = HERE / "SERVING.md"
EVALUATIONS, QUERIES, SYSTEMS = 1_000, 100, 8
MEASURES = "nDCG@10, R@{1,5,10}, P@{1,5}, RR@10, AP"
CONNECTIONS, SECONDS, ASKED = 4, 5.0, 200
READY = re.compile(r"karat serves http://127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class Pace:
    """The rate of responses, and the time of one."""

    name: str
    per_second: float
    typical: float
    slowest: float


def store_in(folder: Path) -> str:
    """Create a store with many evaluations of some systems, each slightly different."""
    from karat.data.tables import Gold, Run
    from karat.evaluation.api import evaluate
    from karat.reports.document import Report
    from karat.store import Store

    gold = Gold.from_dict({f"q{q}": [f"d{q}"] for q in range(QUERIES)})
    made = []
    for system in range(SYSTEMS):
        lists = {
            f"q{q}": [f"x{at}" for at in range((q + system) % 7)] + [f"d{q}"]
            for q in range(QUERIES)
        }
        scores = evaluate(Run.from_dict(lists, name=f"system-{system}"), gold, MEASURES)
        document = Report.of([scores], gold=gold).to_dict()
        made.append((scores, document, scores.summaries))
    where = str(folder / "history.db")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with Store.open(where) as store:
        for at in range(EVALUATIONS):
            scores, document, summaries = made[at % SYSTEMS]
            store.save(
                [scores],
                document,
                tags=[f"build-{at}", "nightly"],
                revision=f"{at:040x}",
                now=start + timedelta(hours=at),
                summaries=[summaries],
            )
    return where


@contextmanager
def served(where: str) -> Iterator[int]:
    """Yield the port of a server over the store."""
    command = [KARAT, "serve", "--store", where, "--port", "0", "--no-token"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        told = READY.search(process.stderr.readline())
        if told is None:
            sys.exit("karat serve did not start")
        yield int(told[1])
    finally:
        process.terminate()
        process.wait(30)


async def ask(port: int, addresses: Iterator[str], until: float, times: list[float]) -> None:
    """Send requests over one connection, each as soon as the last is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        start = time.perf_counter()
        writer.write(f"GET {next(addresses)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            sys.exit(f"an answer was {head.splitlines()[0].decode()}")
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
        await reader.readexactly(length)
        times.append(time.perf_counter() - start)
    writer.close()


def pace(name: str, port: int, addresses: Iterator[str]) -> Pace:
    """Measure the server, without the first request for each page."""

    async def drive(seconds: float) -> list[float]:
        times: list[float] = []
        until = time.perf_counter() + seconds
        await asyncio.gather(*(ask(port, addresses, until, times) for _ in range(CONNECTIONS)))
        return times

    asyncio.run(drive(1.0))
    start = time.perf_counter()
    times = asyncio.run(drive(SECONDS))
    took = time.perf_counter() - start
    print(f"{name}: {len(times) / took:,.0f} requests/s", file=sys.stderr)
    return Pace(name, len(times) / took, 1e3 * median(times), 1e3 * max(times))


@contextmanager
def changing(where: str, seconds: float = 1.0) -> Iterator[None]:
    """Tag an evaluation every second in the background."""
    from karat.store import Store

    end = threading.Event()

    def work() -> None:
        with Store.open(where) as store:
            for at in itertools.count():
                if end.wait(seconds):
                    return
                store.tag(1 + at % EVALUATIONS, [f"seen-{at}"])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def measured() -> Section:
    pages = EVALUATIONS // 50
    turned = [f"/api/evaluations?page={page}" for page in range(1, pages + 1)]
    with tempfile.TemporaryDirectory() as folder:
        where = store_in(Path(folder))
        with served(where) as port:
            api = pace("GET /api/evaluations?page=…", port, itertools.cycle(turned))
            home = pace("GET /", port, itertools.cycle(["/"]))
            each = (
                f"/api/evaluations?page={1 + at % pages}&search=system" + "+" * (at % 100)
                for at in itertools.count()
            )
            anew = pace("the same, each answer made anew", port, each)
            with changing(where):
                tagged = pace(
                    "GET /, the store changing every second", port, itertools.cycle(["/"])
                )
    paces = (api, home, anew, tagged)
    return Section(
        f"the list of {EVALUATIONS:,} evaluations, 50 a page, {CONNECTIONS} connections",
        ["", "requests/s", "median ms", "slowest ms"],
        [(p.name, f"{p.per_second:,.0f}", f"{p.typical:.1f}", f"{p.slowest:.0f}") for p in paces],
        note="One process answers, another asks, on the same machine.",
        targets=[
            Target.at_least("serve: the list as JSON", ASKED, api.per_second, "requests/s"),
            Target.at_least("serve: the first page", ASKED, home.per_second, "requests/s"),
        ],
    )


def main() -> None:
    where = machine()
    section = measured()
    text = document(
        [section],
        where,
        "python bench/serving.py",
        about="A server and a client, each a process of its own.",
        packages=("karat", "fastapi", "uvicorn", "jinja2", "SQLAlchemy"),
    )
    finish([section], text, OUT)


if __name__ == "__main__":
    main()
