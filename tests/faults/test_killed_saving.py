"""The store, its writers killed: it opens, is sound, and holds each thing whole or not at all."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from karat.store import Store

from .killing import killing, state, usual
from .worlds import lay_pool, lay_runs, write_lines

QUERIES, PAIRS = 30, 2000
EVAL = ("eval", "old.trec", "new.trec", "--gold", "qrels.txt", "-m", "RR", "--save", "--quiet")


class Saved:
    """The store of a folder, looked at without karat where that can be."""

    def __init__(self, start, folder: Path, *words: str) -> None:
        self._start, self._words, self.folder = start, words, folder
        self.path = folder / ".karat" / "history.db"
        self._before: object = None

    def begin(self):
        self._before = self._state()
        return self._start(*self._words, cwd=self.folder)

    def changing(self) -> bool:
        """Whether the command that was begun has begun to write."""
        return self._state() != self._before

    def _state(self) -> object:
        return state(self.path, self.path.with_name("history.db-wal"))

    def forget(self) -> None:
        """Have no store; the next one makes it anew."""
        for path in (self.folder / ".karat").glob("history.db*"):
            path.unlink()

    def ids(self) -> list[int]:
        """The evaluations that are there, after a look at whether the database is sound."""
        with closing(sqlite3.connect(self.path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
            if not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
                return []
        with Store.open(self.path) as store:
            return sorted(one.id for one in store.evaluations())


def test_an_evaluation_is_saved_whole_or_not_at_all(start, tmp_path, times, told):
    number, known, reported = times(2, 50), [], 0
    saved = Saved(start, lay_runs(tmp_path / "files", QUERIES), *EVAL)
    seconds = usual(saved.begin(), saved.changing)
    wanted = values(saved, saved.ids())
    saved.forget()
    endings = killing(saved.begin, times=number, within=seconds, seed=6, after=saved.changing)
    for at, ended in enumerate(endings):
        now = saved.ids()
        said = re.search(r"saved as (\d+), (\d+) in", ended.err)
        own = [int(id) for id in said.groups()] if said else []
        reported += len(own)
        assert set(now) >= {*known, *own}, "what was saved is gone"
        assert len(now) - len(known) in ((2,) if own else (0, 2)), "half of it is there"
        assert values(saved, now) == wanted * (len(now) // 2)
        known = now
        if at % 5 == 4:
            saved.forget()
            known = []
    saved.begin().wait()
    assert values(saved, saved.ids()[-2:]) == wanted
    outcome = f"the store sound each time, evaluations whole or absent, 0 of {reported} lost"
    told("kill -9 while the store is written", "karat eval --save", number, outcome)


def values(saved: Saved, ids: list[int]) -> list[object]:
    """The system and the values of evaluations, query by query."""
    if not ids:
        return []
    with Store.open(saved.path) as store:
        scores = [store.baseline(str(id)).scores for id in ids]
    assert all(len(one.query_ids) == QUERIES for one in scores)
    return [(one.system, one.table.to_dict(as_series=False)) for one in scores]


def test_labels_are_imported_all_or_none(start, run, monkeypatch, tmp_path, times, told):
    number = times(2, 50)
    folder = lay_pool(tmp_path / "files", PAIRS)
    pool = [json.loads(line) for line in (folder / "pool.jsonl").read_text().splitlines()]
    keys = ("query_id", "item_id")
    labels = [{key: one[key] for key in keys} | {"grade": 1, "rater": "Ana"} for one in pool]
    write_lines(folder / "said.jsonl", map(json.dumps, labels))
    words = ("labels", "import", "said.jsonl", "--name", "all", "--json")
    saved = Saved(start, folder, *words)
    seconds = usual(saved.begin(), saved.changing)
    saved.forget()
    for ended in killing(saved.begin, times=number, within=seconds, seed=7, after=saved.changing):
        assert saved.ids() == []
        here = judged(saved)
        assert here in (0, PAIRS)
        assert rows(saved, "label_items") == here, "a set is there without its judgments"
        assert here == PAIRS or not ended.out, "what was reported is gone"
        # Over what the last one left, and where there is nothing.
        if here:
            saved.forget()
    for _ in range(2):
        monkeypatch.chdir(folder)
        assert run(*words).code == 0
        assert judged(saved) == PAIRS, "something is missing, or there twice"
    outcome = f"all of {PAIRS:,} judgments or none, none twice; the store sound each time"
    told("kill -9 while the store is written", "karat labels import", number, outcome)


def judged(saved: Saved) -> int:
    """How many judgments there are, of any kind."""
    return rows(saved, "judgments")


def rows(saved: Saved, table: str) -> int:
    """How many rows a table has; none where it is not made yet."""
    with closing(sqlite3.connect(saved.path)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if f"karat_{table}" not in tables:
            return 0
        (count,) = connection.execute(f"SELECT count(*) FROM karat_{table}").fetchone()
        return int(count)
