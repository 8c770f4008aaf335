"""A small store whose numbers are known by heart, and the workbench over it."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from karat.cli.main import main
from karat.store import Store
from karat.web.server import create_app
from karat.web.settings import Settings

BASE = "http://127.0.0.1:8000"

# At which rank each system has the one right item of each query; 0: not at all.
RANKS = {
    "old": {"q1": 1, "q2": 2, "q3": 3, "q4": 1, "q5": 0, "q6": 2},
    "new": {"q1": 1, "q2": 1, "q3": 2, "q4": 1, "q5": 3, "q6": 1},
    "late": {"q1": 2, "q2": 1, "q3": 1, "q4": 1, "q5": 0, "q6": 1},
}
LANGUAGES = {"q1": "en", "q2": "en", "q3": "en", "q4": "pt", "q5": "pt", "q6": "pt"}
SCRIPT = "<script>alert('q1')</script> & \u202e=HYPERLINK(1)"


def rr(system: str, query: str) -> float:
    """The reciprocal rank, from the ranks above."""
    rank = RANKS[system][query]
    return 1 / rank if rank else 0.0


def items(system: str, query: str) -> list[str]:
    """A list of four with the right item at its rank."""
    others = [f"x{at}" for at in range(1, 5)]
    rank = RANKS[system][query]
    return others if not rank else [*others[: rank - 1], f"d-{query}", *others[rank - 1 : 3]]


def lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run_file(folder: Path, system: str, order: Sequence[str] | None = None) -> Path:
    calls = [
        {
            "query_id": query,
            "system": system,
            "topk": [
                {"rank": r, "chunk_id": item} for r, item in enumerate(items(system, query), 1)
            ],
        }
        for query in order or RANKS[system]
    ]
    return lines(folder / f"{system}.jsonl", calls)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store; to be read, and left as it is.

    1 and 2 are old and new, compared by language; 3 is late, whose files name the queries in
    another order; 4 is old on other gold; 5 and 6 are old and new by their values alone.
    """
    folder = tmp_path_factory.mktemp("saved")
    store = str(folder / "history.db")
    order = list(RANKS["old"])
    gold = {query: {f"d-{query}": 1} for query in order}
    (folder / "gold.json").write_text(json.dumps(gold))
    turned = {query: gold[query] for query in reversed(order)}
    (folder / "turned.json").write_text(json.dumps(turned))
    (folder / "other.json").write_text(json.dumps(gold | {"q6": {"x1": 1}}))
    # No two share a word, so that BM25 finds each by its own.
    texts = [{"item_id": f"d-{query}", "text": f"{query} <b>{query}</b>"} for query in order]
    corpus = str(lines(folder / "corpus.jsonl", texts))
    asked = [
        {"query_id": q, "text": SCRIPT if q == "q1" else f"question {q}", "language": LANGUAGES[q]}
        for q in order
    ]
    queries = str(lines(folder / "queries.jsonl", asked))
    turned_queries = str(lines(folder / "turned.jsonl", asked[::-1]))
    old, new = str(run_file(folder, "old")), str(run_file(folder, "new"))
    late = str(run_file(folder, "late", order[::-1]))
    common = ["-m", "RR", "-m", "R@1", "--corpus", corpus, "--save", "--store", store, "--quiet"]

    def karat(*words: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            # What karat keeps for the next time belongs beside the files.
            patch.chdir(folder)
            assert main([*words, *common]) in (0, 1)

    by = ["--queries", queries, "--by", "language"]
    karat("compare", old, new, "--gold", str(folder / "gold.json"), *by, "--tag", "main")
    by = ["--queries", turned_queries, "--by", "language"]
    karat("eval", late, "--gold", str(folder / "turned.json"), *by)
    karat("eval", old, "--gold", str(folder / "other.json"))
    with Store.open(store) as opened:
        both = [opened.baseline(str(id)) for id in (1, 2)]
        note = "by its values alone <b>not bold</b>"
        ids = opened.save([one.scores for one in both], both[0].report, note=note)
    assert ids == [5, 6]
    return folder


@contextmanager
def client_of(**settings: Any) -> Iterator[TestClient]:
    """A browser without a window on the workbench."""
    app = create_app(Settings(**settings))
    with TestClient(app, base_url=BASE, follow_redirects=False) as client:
        yield client


@pytest.fixture
def client(saved: Path) -> Iterator[TestClient]:
    with client_of(store=str(saved / "history.db")) as made:
        yield made


@pytest.fixture
def own(saved: Path, tmp_path: Path) -> Iterator[TestClient]:
    """The same over a copy that may be written to."""
    copy = tmp_path / "copy.db"
    with (
        closing(sqlite3.connect(saved / "history.db")) as old,
        closing(sqlite3.connect(copy)) as new,
    ):
        old.backup(new)
    with client_of(store=str(copy)) as made:
        yield made


@pytest.fixture
def post() -> Callable[..., Any]:
    """Write as a page does: with the session's cookie and the token that the page holds."""

    def write(client: TestClient, path: str, body: object, **headers: str) -> Any:
        told = re.search(r'data-csrf="([^"]+)"', client.get("/").text)
        assert told is not None
        return client.post(path, json=body, headers={"X-Karat-CSRF": told[1], **headers})

    return write
