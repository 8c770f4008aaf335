"""How the clients of bench/load.py talk to the server, and what they note of it."""

import asyncio
import json
import re
import resource
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

# What a connection that is cut, or never answers, looks like.
LOST = (OSError, EOFError, asyncio.IncompleteReadError, TimeoutError)
LENGTH = re.compile(rb"(?i)content-length: (\d+)")


@dataclass(frozen=True)
class Plan:
    """Whom to ask, for how long, and what there is to ask for."""

    port: int
    token: str
    clients: int
    seconds: float
    size: int
    evaluations: list[int]
    queries: int
    words: list[str]
    think: float = 0.0
    seed: int = 0
    # Whether evaluations are started and watched meanwhile.
    runs: bool = True
    # How many more there are who leave in the middle, and who read a byte now and then.
    leaving: int = 0
    slow: int = 0
    # Whether anything is written at all.
    writes: bool = True
    # Whether everything is asked for once before anything is timed.
    warm: bool = True
    # Names no rater of another round has.
    round: str = "r"


class Diary:
    """What happened to all clients."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        self.failures: list[str] = []
        # Of every rater, in order: ["judge", position, grade, rationale] and ["undo", rationale].
        self.said: dict[str, list[list[Any]]] = defaultdict(list)
        # What was sent and never answered.
        self.unanswered: dict[str, list[list[Any]]] = defaultdict(list)
        self.late: list[float] = []
        # Whether the server has ended.
        self.over = False

    def goes_on(self, until: float) -> bool:
        return not self.over and time.perf_counter() < until

    def note(self, what: str, error: BaseException) -> None:
        self.failures.append(f"{what}: {type(error).__name__}: {error}")
        self.over = self.over or isinstance(error, ConnectionRefusedError)

    def document(self, seconds: float) -> dict[str, Any]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "seconds": seconds,
            "times": self.times,
            "failures": self.failures,
            "said": self.said,
            "unanswered": self.unanswered,
            "late_ms": max(self.late, default=0.0) * 1e3,
            "late_typical_ms": sorted(self.late)[len(self.late) // 2] * 1e3 if self.late else 0.0,
            "cpu": used.ru_utime + used.ru_stime,
        }


class Connection:
    """One connection that stays open, as a browser's does."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, path: str, body: object = None) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        await self.send(path, body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        if length is None:
            raise ConnectionError(f"{path}: an answer without a length")
        return int(head[9:12]), await self.reader.readexactly(int(length[1]))

    async def send(self, path: str, body: object = None, *, whole: bool = True) -> None:
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.plan.port)
        sent = b"" if body is None else json.dumps(body).encode()
        words = [
            f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n",
            f"Authorization: Bearer {self.plan.token}\r\n",
            "" if body is None else "Content-Type: application/json\r\n",
            f"Content-Length: {len(sent)}\r\n\r\n",
        ]
        self.writer.write("".join(words).encode() + (sent if whole else sent[: len(sent) // 2]))

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
