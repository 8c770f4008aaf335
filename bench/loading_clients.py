"""The clients of bench/load.py: raters and readers, each over one connection, in one process.

    python bench/loading_clients.py '{"port": 8000, "token": "…", "clients": 64, …}'

Prints a line when all have begun, then one JSON document: how long every answer took, what
failed, and what every rater was told is saved. Standard library only and no parsing that is not
needed, so that the clients are not what is measured; how late their own event loop was is part of
the document.
"""

import asyncio
import json
import random
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from loading_talk import LOST, Connection, Diary, Plan

# What a client does next, and how often: about a third of all requests write.
ACTIONS = {
    "label": 55,
    "undo": 6,
    "progress": 5,
    "sets": 2,
    "agreement": 1,
    "list": 6,
    "home": 5,
    "evaluation": 6,
    "query": 6,
    "comparison": 4,
    "explore": 2,
    "suggestions": 4,
    "search": 4,
    "watch": 2,
}
WRITING = ("label", "undo")
# A judgment that corrects an earlier one of the same rater.
CORRECTED = 0.1
SECONDS_TO_ANSWER, SECONDS_WATCHED = 60.0, 3.0


class Client:
    """One person at the workbench: a rater who also looks around."""

    def __init__(self, at: int, plan: Plan, diary: Diary) -> None:
        self.plan, self.diary = plan, diary
        self.rater = f"{plan.round} {at:02}"
        self.spelled = self.rater.replace(" ", "+")
        self.chance = random.Random(f"{plan.seed} {plan.round} {at}")
        self.connection = Connection(plan)
        self.given = 0
        # What counts, the newest last: positions and rationales.
        self.live: list[tuple[int, str]] = []

    async def work(self, until: float) -> None:
        chosen = {n: w for n, w in ACTIONS.items() if self.plan.writes or n not in WRITING}
        names, weights = list(chosen), list(chosen.values())
        while self.diary.goes_on(until):
            (name,) = self.chance.choices(names, weights)
            await self.step(name)
            if self.plan.think:
                # The server lets go of who says nothing for ten seconds.
                await asyncio.sleep(min(5.0, self.chance.expovariate(1 / self.plan.think)))
        self.connection.close()

    async def step(self, name: str) -> None:
        try:
            await getattr(self, name)()
        except LOST as error:
            self.diary.note(name, error)
            self.connection.close()
            await asyncio.sleep(0.2)

    async def warm_up(self) -> None:
        """Everything once, so that what is loaded at its first use is loaded."""
        for name in ACTIONS:
            if self.plan.writes or name not in WRITING:
                await self.step(name)
        self.connection.close()

    async def ask(self, kind: str, path: str, body: object = None) -> Any:
        """The answer as data, timed; None where it is an error, which is noted."""
        start = time.perf_counter()
        async with asyncio.timeout(SECONDS_TO_ANSWER):
            status, answer = await self.connection.ask(path, body)
        self.diary.times[kind].append(time.perf_counter() - start)
        if status >= 300:
            told = answer[:200].decode("utf-8", "replace")
            self.diary.failures.append(f"{kind}: {status} {told}")
            return None
        return answer

    async def label(self) -> None:
        told = await self.ask("GET next", f"/api/label-sets/1/next?rater={self.spelled}")
        if told is None:
            return
        item = json.loads(told)["item"]
        again = self.live and (item is None or self.chance.random() < CORRECTED)
        position = self.chance.choice(self.live)[0] if again else item["position"]
        await self.judge(position)

    async def judge(self, position: int) -> None:
        self.given += 1
        grade = self.chance.choice([0, 1, 2, 3, None])
        # Names this very judgment, so that it can be found in the store.
        rationale = f"{self.rater} says no. {self.given}"
        event = ["judge", position, grade, rationale]
        body = {"rater": self.rater, "position": position, "grade": grade, "rationale": rationale}
        if await self.written("POST judgment", "judgments", body, event) is not None:
            self.diary.said[self.rater].append(event)
            self.live.append((position, rationale))

    async def undo(self) -> None:
        if not self.live:
            return
        position, rationale = self.live[-1]
        event = ["undo", position, None, rationale]
        told = await self.written("POST undo", "undo", {"rater": self.rater}, event)
        if told is None:
            return
        self.diary.said[self.rater].append(event)
        self.live.pop()
        taken = json.loads(told)["judgment"]
        if taken is None or taken["rationale"] != rationale:
            self.diary.failures.append(f"undo took back {taken}, not {rationale!r}")

    async def written(self, kind: str, place: str, body: object, event: list[Any]) -> Any:
        """A write, of which it is known whether it was answered."""
        try:
            told = await self.ask(kind, f"/api/label-sets/1/{place}", body)
        except BaseException:
            self.diary.unanswered[self.rater].append(event)
            raise
        if told is None:
            self.diary.unanswered[self.rater].append(event)
        return told

    async def progress(self) -> None:
        told = await self.ask("GET progress", f"/api/label-sets/1?rater={self.spelled}")
        own = json.loads(told)["own"]["judged"] if told else None
        if told and own != len({position for position, _ in self.live}):
            self.diary.failures.append(f"progress of {self.rater} is {own}, not what it said")

    async def sets(self) -> None:
        await self.ask("GET sets (page)", "/label")

    async def agreement(self) -> None:
        await self.ask("GET agreement", "/api/label-sets/1/agreement")

    async def list(self) -> None:
        await self.ask("GET list", f"/api/evaluations?page={self.chance.randint(1, 2)}&size=10")

    async def home(self) -> None:
        await self.ask("GET first page", "/")

    async def evaluation(self) -> None:
        chosen = self.chance.choice(self.plan.evaluations)
        await self.ask("GET evaluation (page)", f"/evaluations/{chosen}")

    async def query(self) -> None:
        at = self.chance.randrange(self.plan.queries)
        await self.ask("GET query", f"/api/reports/1/queries/{at}")

    async def comparison(self) -> None:
        one, *others = self.plan.evaluations
        await self.ask("GET comparison", f"/api/comparisons?ids={one},{self.chance.choice(others)}")

    async def explore(self) -> None:
        await self.ask("GET explorer (page)", "/explore")

    async def suggestions(self) -> None:
        word = self.chance.choice(self.plan.words)
        await self.ask("GET suggestions", f"/api/queries?search={word}")

    async def search(self) -> None:
        text = " ".join(self.chance.choices(self.plan.words, k=3))
        await self.ask("POST search", "/api/search", {"system": "bm25", "text": text, "k": 5})

    async def watch(self) -> None:
        """Follow an evaluation for some seconds, then leave in the middle, as people do."""
        if not self.plan.runs:
            return
        told = await self.ask("GET runs", "/api/runs")
        runs = json.loads(told)["runs"] if told else []
        going = [run for run in runs if run["state"] == "running"]
        if not going:
            return
        until = time.perf_counter() + SECONDS_WATCHED
        last = 0
        while time.perf_counter() < until:
            told = await self.ask("GET run", f"/api/runs/{going[0]['id']}?after={last}")
            if told is None or json.loads(told)["state"] != "running":
                return
            last = json.loads(told)["last"]
            await asyncio.sleep(0.5)


class Leaver(Client):
    """Somebody whose connection breaks: in the middle of a judgment, or before the answer."""

    async def work(self, until: float) -> None:
        while self.diary.goes_on(until):
            at = self.given % self.plan.size
            self.given += 1
            rationale = f"{self.rater} says no. {self.given}"
            body = {"rater": self.rater, "position": at, "grade": 2, "rationale": rationale}
            with suppress(OSError):
                await self.leave(body, whole=self.given % 3 > 0)
            event = ["judge", at, 2, rationale]
            if self.given % 3 == 1:
                # As a page does that got no answer: the same once more.
                await self.again(body, event)
            else:
                self.diary.unanswered[self.rater].append(event)
            await asyncio.sleep(self.chance.uniform(0, 0.2))
        self.connection.close()

    async def again(self, body: object, event: list[Any]) -> None:
        try:
            told = await self.written("POST judgment again", "judgments", body, event)
        except LOST as error:
            self.diary.note("again", error)
            self.connection.close()
            return
        if told is not None:
            self.diary.said[self.rater].append(event)

    async def leave(self, body: object, *, whole: bool) -> None:
        """Send a judgment, or half of it, and be gone."""
        apart = Connection(self.plan)
        await apart.send("/api/label-sets/1/judgments", body, whole=whole)
        await apart.writer.drain()
        await asyncio.sleep(self.chance.uniform(0, 0.05))
        # No goodbye: as a cable that is pulled, the server learns of it when it answers.
        apart.writer.transport.abort()


async def read_slowly(plan: Plan, diary: Diary, until: float) -> None:
    """Ask for a page and read next to nothing of it, until the server lets go."""
    while diary.goes_on(until):
        slow = Connection(plan)
        with suppress(OSError, EOFError):
            with socket.socket() as narrow:
                narrow.setblocking(False)
                narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                await asyncio.get_running_loop().sock_connect(narrow, ("127.0.0.1", plan.port))
                opened = await asyncio.open_connection(sock=narrow.dup(), limit=1024)
            slow.reader, slow.writer = opened
            await slow.send("/evaluations/1")
            while diary.goes_on(until) and await slow.reader.read(10):
                await asyncio.sleep(0.5)
        slow.close()


async def lateness(diary: Diary) -> None:
    """How late this process is by itself: whoever sleeps 50 ms should wake after 50 ms."""
    while True:
        start = time.perf_counter()
        await asyncio.sleep(0.05)
        diary.late.append(time.perf_counter() - start - 0.05)


async def starting_runs(plan: Plan, diary: Diary, until: float) -> None:
    """One more who starts an evaluation, waits for its end, and starts another."""
    connection = Connection(plan)
    try:
        while diary.goes_on(until):
            status, told = await connection.ask("/api/runs", {"systems": ["slow"], "fresh": True})
            if status not in (201, 409):
                diary.failures.append(f"POST runs: {status} {told[:200]!r}")
            while diary.goes_on(until):
                await asyncio.sleep(1.0)
                status, told = await connection.ask("/api/runs")
                if not any(run["state"] == "running" for run in json.loads(told)["runs"]):
                    break
    except LOST as error:
        diary.note("runs", error)
    finally:
        connection.close()


async def drive(plan: Plan) -> dict[str, Any]:
    """All clients at once, from the same moment; what comes before it is not timed."""
    diary = Diary()
    if plan.warm:
        await Client(200, plan, diary).warm_up()
        diary.times.clear()
    print("begun", flush=True)
    watching = asyncio.create_task(lateness(diary))
    start = time.perf_counter()
    until = start + plan.seconds
    clients = [Client(at, plan, diary).work(until) for at in range(plan.clients)]
    more = [starting_runs(plan, diary, until)] if plan.runs else []
    more += [Leaver(100 + at, plan, diary).work(until) for at in range(plan.leaving)]
    more += [read_slowly(plan, diary, until) for _ in range(plan.slow)]
    await asyncio.gather(*clients, *more)
    watching.cancel()
    return diary.document(time.perf_counter() - start)


if __name__ == "__main__":
    json.dump(asyncio.run(drive(Plan(**json.loads(sys.argv[1])))), sys.stdout)
