"""karat serve, killed while people label: what was answered is in the store, and once only."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter

import httpx
import pytest

from karat.store import LabelItem, Store

RATERS = ("Ana", "Ben", "Cem")
ITEMS = 4000
READY = re.compile(r"karat serves (http://\S+)")


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path) -> str:
    """Where the store is that judgments go to."""
    if request.param == "sqlite":
        return str(tmp_path / "history.db")
    return request.getfixturevalue("postgres")


class Rater(threading.Thread):
    """Judges item after item over HTTP until nobody answers; knows what was answered."""

    def __init__(self, address: str, name: str, first: int) -> None:
        super().__init__(name=name)
        self._address, self._first = address, first
        self.answered: dict[int, int] = {}

    def run(self) -> None:
        with httpx.Client(base_url=self._address, timeout=60) as client:
            try:
                csrf = re.search(r'data-csrf="([^"]+)"', client.get("/explore").text)[1]
                for position in range(self._first, ITEMS):
                    told = {"rater": self.name, "position": position, "grade": position % 4}
                    answer = client.post(
                        "/api/label-sets/1/judgments", json=told, headers={"X-Karat-CSRF": csrf}
                    )
                    assert answer.is_success, answer.text
                    self.answered[position] = position % 4
            except httpx.TransportError:
                return


def test_every_judgment_that_was_answered_is_kept_once(start, where, request, times, told):
    kind = request.node.callspec.params["where"]
    number = times(2, 50) if kind == "sqlite" else times(1, 10)
    answered = {name: {} for name in RATERS}
    with Store.open(where) as store:
        store.add_label_set("all", [LabelItem(f"q{i}", "d", "?", "!") for i in range(ITEMS)])
    chance = random.Random(8)
    for _ in range(number):
        serving = start("serve", "--store", where, "--port", "0", "--no-token")
        assert serving.wait_for(lambda serving=serving: READY.search(serving.err) is not None)
        address = READY.search(serving.err)[1].rstrip("/")
        firsts = {name: max(said, default=-1) + 1 for name, said in answered.items()}
        raters = [Rater(address, name, first) for name, first in firsts.items()]
        for rater in raters:
            rater.start()
        assert serving.wait_for(lambda raters=raters: any(one.answered for one in raters))
        time.sleep(chance.random() * 0.5)
        assert serving.kill()
        for rater in raters:
            rater.join(60)
            answered[rater.name] |= rater.answered
        check(where, answered)
    count = sum(map(len, answered.values()))
    outcome = f"{count:,} judgments answered, 0 lost, 0 twice"
    name = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[kind]
    told("kill -9", f"karat serve, three raters, {name}", number, outcome)


def check(where: str, answered: dict[str, dict[int, int]]) -> None:
    """What was answered is there; what was not may be; nothing is there twice."""
    with Store.open(where) as store:
        every = store.judgments(1, every=True)
    assert max(Counter((one.rater, one.position) for one in every).values()) == 1
    kept = {(one.rater, one.position): one.grade for one in every}
    for name, said in answered.items():
        assert all(kept.get((name, position)) == grade for position, grade in said.items())
    assert all(grade == position % 4 for (_, position), grade in kept.items())
