"""Judgments that came into the store another way, as the workbench sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from karat.store import LabelItem, NewJudgment, Store
from karat.web.server import create_app
from karat.web.settings import Settings

TOKEN = "a-token-of-these-tests"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Two sets of two pairs, one without texts; Ana and Ben differ on the first of the other."""
    with Store.open(tmp_path / "history.db") as opened:
        pairs = [("q", "d0"), ("q", "d1")]
        opened.add_label_set("read", [LabelItem(*pair, "why?", "so") for pair in pairs])
        opened.add_label_set("bare", [LabelItem(*pair, "", "") for pair in pairs])
        said = [NewJudgment(0, "Ana", 2), NewJudgment(0, "Ben", 0), NewJudgment(1, "Ana", 1)]
        opened.judge_many(1, said)
        yield opened


@pytest.fixture
def client(store: Store, tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(store=str(tmp_path / "history.db"), token=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(create_app(settings), "http://127.0.0.1", headers=headers) as opened:
        yield opened


def test_a_decision_is_in_the_qrels_and_is_nobody_s_progress(client, store):
    assert client.get("/api/label-sets/1/export?form=qrels").text == "q 0 d1 1\n"
    store.judge(1, 0, "Cleo", 1, source="adjudication")
    store.judge(1, 0, "Ana", 1, source="adjudication")
    answer = client.get("/api/label-sets/1/export?form=qrels")
    assert answer.text == "q 0 d0 1\nq 0 d1 1\n"
    assert answer.headers["x-karat-ties"] == "0"
    raters = client.get("/api/label-sets/1").json()["raters"]
    assert [(one["rater"], one["judged"]) for one in raters] == [("Ana", 2), ("Ben", 1)]
    assert client.get("/api/label-sets/1/next?rater=Cleo").json()["item"]["position"] == 0
    assert client.get("/api/label-sets/1/next?rater=Ana").json() == {"item": None, "judged": 2}
    assert client.get("/label/1/results").status_code == 200


def test_every_judgment_is_downloaded_and_one_rater_s_file_is_still_gold(client, store):
    store.judge(1, 0, "Ana", 1, source="adjudication")
    every = client.get("/api/label-sets/1/export?form=jsonl").text.splitlines()
    assert sum('"source": "adjudication"' in line for line in every) == 1
    assert all('"given_at": "' in line for line in every)
    own = client.get("/api/label-sets/1/export?form=jsonl&rater=Ana").text.splitlines()
    assert len(own) == 2
    assert not any("adjudication" in line for line in own)


def test_undo_takes_back_a_label_and_no_decision(client, store):
    store.judge(1, 0, "Ana", 1, source="adjudication")
    for position in (1, 0):
        taken = client.post("/api/label-sets/1/undo", json={"rater": "Ana"}).json()
        assert taken["judgment"]["position"] == position
    assert client.post("/api/label-sets/1/undo", json={"rater": "Ana"}).json()["judgment"] is None
    assert [(one.rater, one.source) for one in store.judgments(1)] == [
        ("Ben", "human"),
        ("Ana", "adjudication"),
    ]


def test_a_set_without_texts_says_that_it_cannot_be_labelled_by_hand(client):
    answer = client.get("/api/label-sets/2/next?rater=Ana")
    assert answer.status_code == 400
    assert "have no texts to read" in answer.json()["error"]
    assert client.get("/label/2").status_code == 200
