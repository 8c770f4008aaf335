"""Labels imported by a process that is killed before each thing it has the store do."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from sqlalchemy import MetaData, create_engine

from karat.store import NoHistoryError, Store
from store import version_1

from .killing import FULL
from .worlds import lay_pool, write_lines

FATAL = Path(__file__).with_name("fatal_sql.py")
PAIRS = 50


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "history.db")
    return request.getfixturevalue("postgres")


def held(where: str) -> list[tuple[str, int, int]]:
    """Every set with how many pairs and judgments it has."""
    with Store.open(where) as store:
        try:
            sets = store.label_sets()
        except NoHistoryError:
            return []
        return [(one.name, one.size, len(store.judgments(one.id, every=True))) for one in sets]


def test_an_import_killed_anywhere_leaves_a_whole_set_or_none(start, where, tmp_path, told):
    folder = lay_pool(tmp_path / "files", PAIRS)
    pool = [json.loads(line) for line in (folder / "pool.jsonl").read_text().splitlines()]
    keys = ("query_id", "item_id")
    labels = [{key: one[key] for key in keys} | {"grade": 1, "rater": "Ana"} for one in pool]
    write_lines(folder / "said.jsonl", map(json.dumps, labels))

    def imported(fatal: int, name: str) -> int | None:
        words = ("labels", "import", "said.jsonl", "--store", where, "--name", name, "--quiet")
        program = (str(FATAL), str(fatal), str(tmp_path / "counted"))
        return start(*words, cwd=folder, program=program).wait(None).code

    def relabel(turn: int) -> str:
        """Another set each time: what was imported before is no news."""
        own = [one | {"item_id": f"{one['item_id']}-{turn}"} for one in labels]
        write_lines(folder / "said.jsonl", map(json.dumps, own))
        return f"set {turn}"

    # The first makes the store's tables.
    assert imported(0, relabel(0)) == 0
    assert held(where) == [("set 0", PAIRS, PAIRS)]
    assert imported(0, relabel(1)) == 0
    number = int((tmp_path / "counted").read_text())
    assert number > 5
    # The last ones lie around the judgments and the commit.
    fatal = range(1, number + 1) if FULL else range(number - 3, number + 1)
    for turn in fatal:
        before = held(where)
        name = relabel(turn + 1)
        assert imported(turn, name) == -signal.SIGKILL
        assert held(where) in (before, [(name, PAIRS, PAIRS), *before]), "half of it is there"
        assert imported(0, name) == 0
        assert held(where) == [(name, PAIRS, PAIRS), *before]
    kind = "PostgreSQL" if "://" in where else "SQLite"
    outcome = "the set with all its judgments, or neither; again: all of it, once"
    told(f"kill -9 before each statement to {kind}", "karat labels import", len(fatal), outcome)


def test_an_upgrade_killed_anywhere_leaves_the_old_store_or_the_new(start, where, tmp_path, told):
    (tmp_path / "qrels.txt").write_text("q1 0 a 1\nq1 0 b 0\n")
    on_server = "://" in where
    url = where.replace("postgresql:", "postgresql+psycopg:") if on_server else f"sqlite:///{where}"
    words = ("labels", "import", "qrels.txt", "--rater", "Ana", "--name", "x", "--quiet")

    def imported(fatal: int) -> int | None:
        program = (str(FATAL), str(fatal), str(tmp_path / "counted"))
        return start(*words, "--store", where, program=program).wait(None).code

    def anew() -> None:
        for one in tmp_path.glob("history.db*"):
            one.unlink()
        if on_server:
            emptied(url)
        version_1.make(url)

    anew()
    assert imported(0) == 0
    number = int((tmp_path / "counted").read_text())
    step = number // (2 if on_server else 4)
    fatal = range(1, number + 1) if FULL else range(number // 3, number, step)
    for turn in fatal:
        anew()
        assert imported(turn) == -signal.SIGKILL
        assert held(where) in ([], [("x", 2, 2)])
        with Store.open(where) as store:
            assert [one.id for one in store.evaluations()] == [2, 1]
        assert imported(0) == 0
        assert held(where) == [("x", 2, 2)]
    outcome = "the store of version 1 as it was, or the new one; again: upgraded, all of it there"
    kind = "PostgreSQL" if on_server else "SQLite"
    told(f"kill -9 while a store on {kind} is upgraded", "karat labels import", len(fatal), outcome)


def emptied(url: str) -> None:
    """Take away every table of a schema."""
    engine = create_engine(url)
    metadata = MetaData()
    metadata.reflect(engine)
    metadata.drop_all(engine)
    engine.dispose()
