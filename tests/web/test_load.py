"""A short form of bench/load.py: many at once read and write judgments, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from karat.store import LabelItem, Store
from karat.web.server import create_app
from karat.web.settings import Settings

from .bench_load import checks, stage

CLIENTS, SECONDS, SIZE = 32, 3.0, 60


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "history.db")
        return
    with stage.postgres() as url:
        yield url


def plan(port: int, name: str, seconds: float = SECONDS) -> dict[str, object]:
    return {
        "port": port,
        "token": stage.TOKEN,
        "clients": CLIENTS,
        "seconds": seconds,
        "size": SIZE,
        "evaluations": [1, 2],
        "queries": stage.QUERIES,
        "words": stage.WORDS,
        "runs": False,
        "leaving": 2,
        "slow": 1,
        "round": name,
    }


def test_nothing_fails_and_nothing_is_lost_with_many_at_once(where, tmp_path):
    stage.lay(tmp_path, SIZE, 1, where)
    with stage.served(tmp_path, where) as server:
        found = stage.found_by(stage.clients(plan(server.port, "busy")))
        assert found["failures"] == []
        assert checks.wrong_in_the_store(where, found["said"], found["unanswered"]) == []
        assert checks.wrong_in_the_agreement(agreement(server.port), where) == []
        assert len(found["said"]) > 5
        # Told to end in the middle of it: what was answered by then is kept.
        ended = stage.ended_under_load(server, plan(server.port, "last", 60), where, writes=20)
    assert ended.code == 0
    assert ended.seconds < 20
    last = ended.found
    assert last["said"]
    assert checks.wrong_in_the_store(where, last["said"], last["unanswered"]) == []


def agreement(port: int) -> dict[str, object]:
    headers = {"Authorization": f"Bearer {stage.TOKEN}"}
    address = f"http://127.0.0.1:{port}/api/label-sets/1/agreement"
    return httpx.get(address, headers=headers, timeout=60).json()


def test_a_check_notices_what_is_lost_doubled_or_changed(tmp_path):
    where = str(tmp_path / "history.db")
    said = {
        "a": [["judge", 0, 1, "a 1"], ["judge", 1, 2, "a 2"], ["undo", 1, None, "a 2"]],
        "b": [["judge", 0, None, "b 1"]],
    }
    with Store.open(where) as store:
        store.add_label_set("one", [LabelItem(f"q{at}", "d", "?", "!") for at in range(3)])
        store.judge(1, 0, "a", 1, rationale="a 1")
        store.judge(1, 1, "a", 2, rationale="a 2")
        store.take_back(1, "a")
        store.judge(1, 0, "b", None, rationale="b 1")
        assert checks.wrong_in_the_store(where, said, {}) == []
        lost = {**said, "b": [*said["b"], ["judge", 1, 3, "b 2"]]}
        assert any("is there 0 times" in one for one in checks.wrong_in_the_store(where, lost, {}))
        store.judge(1, 0, "b", None, rationale="b 1")
        assert any("is there 2 times" in one for one in checks.wrong_in_the_store(where, said, {}))
        twice = checks.wrong_in_the_store(where, {"a": said["a"]}, {"b": said["b"]})
        assert twice == ["'b 1' was not answered and is there twice"]
        changed = {"a": [["judge", 0, 3, "a 1"], *said["a"][1:]]}
        assert any("is kept as" in one for one in checks.wrong_in_the_store(where, changed, {}))
        kept = {"a": said["a"][:2]}
        assert any("undone is False" in one for one in checks.wrong_in_the_store(where, kept, {}))


@contextmanager
def labelling(tmp_path: Path) -> Iterator[TestClient]:
    """A workbench with a set of three items, for a program."""
    where = str(tmp_path / "history.db")
    with Store.open(where) as store:
        store.add_label_set("one", [LabelItem(f"q{at}", "d", "?", "!") for at in range(3)])
    headers = {"Authorization": "Bearer secret-of-this-test"}
    app = create_app(Settings(store=where, token="secret-of-this-test"))
    with TestClient(app, base_url="http://127.0.0.1:8000", headers=headers) as client:
        yield client


def test_the_same_judgment_sent_again_while_the_first_is_under_way_is_kept_once(tmp_path):
    body = {"rater": "ana", "position": 0, "grade": 2, "rationale": "once"}
    with labelling(tmp_path) as client, ThreadPoolExecutor(12) as windows:
        answers = windows.map(
            lambda _: client.post("/api/label-sets/1/judgments", json=body), range(24)
        )
        assert {answer.status_code for answer in answers} == {200}
        assert len(client.app.state.store.judgments(1, every=True)) == 1
        # So one undo takes it back for good.
        told = client.post("/api/label-sets/1/undo", json={"rater": "ana"}).json()
        assert told["judged"] == 0
