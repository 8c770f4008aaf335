"""Two that write to one place at once: both are there in the end, or one is refused; no mixture."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from karat.store import Store

from .killing import FULL
from .services import Service
from .worlds import lay_pool, lay_runs, write_lines

CALLS = 30
# The first to be asked about this word waits until the test lets it go on.
HELD = "word9"
SLOW = f"""\
import time
from pathlib import Path


def search(text, k):
    while text == "{HELD}" and Path("held").exists():
        time.sleep(0.01)
    return [f"{{text}}-{{at}}" for at in range(k)]
"""
BUSY = "is being written by another karat process; wait until it is done"


def lay_search(folder: Path) -> Path:
    folder.mkdir()
    asked = [{"id": f"q{at:02}", "query": f"word{at}"} for at in range(CALLS)]
    write_lines(folder / "queries.jsonl", map(json.dumps, asked))
    (folder / "slow.py").write_text(SLOW)
    system = "{retriever: python, call: 'slow.py:search', k: 5, concurrency: 1}"
    (folder / "karat.yaml").write_text(f"queries: queries.jsonl\nsystems:\n  live: {system}\n")
    return folder


SEARCH = ("search", "--no-latency", "--quiet")


def test_two_searches_to_one_log(run, start, tmp_path, monkeypatch, times, told):
    """Whatever the second wants with the log, it is the first one's while it writes."""
    folder = lay_search(tmp_path / "files")
    log, part = folder / "runs" / "live.jsonl", folder / "runs" / "live.jsonl.part"
    monkeypatch.chdir(folder)
    assert run(*SEARCH).code == 0
    whole = log.read_bytes()
    for turn in range(times(1, 30)):
        log.unlink()
        Path("held").touch()
        first = start(*SEARCH, cwd=folder)
        assert first.wait_for(part.exists)
        for more in ([], ["--resume"], ["--restart"])[: times(1, 3)]:
            second = run(*SEARCH, *more)
            assert (second.code, second.err) == (2, f"karat: {part} {BUSY}\n")
        other = start(*SEARCH, cwd=folder) if turn % 2 else None
        Path("held").unlink()
        first.wait()
        # Who comes as the first is about to finish is refused, or asks everything again.
        assert other is None or other.wait(None).code in (0, 2)
        assert log.read_bytes() == whole
        assert not part.exists()
    told("two writers", "search to one log", times(1, 30), "the second is refused")


def test_two_judges_to_one_file_of_labels(run, start, tmp_path, monkeypatch, times, told):
    folder = lay_pool(tmp_path / "files", CALLS)
    (folder / "prompt.md").write_text("{query}\n{text}\n")
    labels, part = folder / "labels.jsonl", folder / "labels.jsonl.part"
    monkeypatch.chdir(folder)
    go_on = threading.Event()

    def hold(about: str, turn: int) -> None:
        if HELD in about:
            go_on.wait(60)

    with Service(hold) as service:
        words = ("judge", "pool.jsonl", "--model", "m", "--prompt", "prompt.md", "--quiet")
        words = (*words, "--url", f"{service.url}/v1", "--concurrency", "2")
        go_on.set()
        assert run(*words, "-o", "labels.jsonl").code == 0
        whole = labels.read_bytes()
        cache = folder / ".karat" / "judgments.jsonl"
        for _ in range(times(1, 20)):
            labels.unlink()
            cache.unlink()
            go_on.clear()
            first = start(*words, "-o", "labels.jsonl", cwd=folder)
            assert first.wait_for(part.exists)
            second = run(*words, "-o", "labels.jsonl", "--restart")
            assert (second.code, second.err) == (2, f"karat: {part.name} {BUSY}\n")
            # One that writes elsewhere shares what is kept of judgments, at the same time.
            other = start(*words, "-o", "more.jsonl", cwd=folder)
            go_on.set()
            first.wait()
            other.wait()
            assert labels.read_bytes() == whole
            assert (folder / "more.jsonl").read_bytes() == whole
            (folder / "more.jsonl").unlink()
            kept = [json.loads(line) for line in cache.read_text().splitlines()]
            assert len({one["key"] for one in kept}) == CALLS
    told("two writers", "judge to one file of labels", times(1, 20), "the second is refused")


def test_two_that_save_to_one_store(start, tmp_path, times, told):
    """Into a store that neither has made; each evaluation of each is whole."""
    folder = lay_runs(tmp_path / "files", queries=20)
    saving = ("eval", "old.trec", "new.trec", "--gold", "qrels.txt", "--save", "--quiet")
    adding = ("labels", "import", "qrels.txt", "--rater", "Ana", "--name", "all", "--quiet")
    for turn in range(times(1, 20)):
        store = str(folder / f"{turn}.db")
        going = [start(*words, "--store", store, cwd=folder) for words in (saving, saving, adding)]
        ids = [one.wait().err for one in going]
        assert sorted(ids[:2]) == [f"saved as {some} in {store}\n" for some in ("1, 2", "3, 4")]
        with Store.open(store) as opened:
            scores = [opened.baseline(str(id)).scores for id in (1, 2, 3, 4)]
            assert [one.system for one in scores] == ["old", "new"] * 2
            assert scores[0].means() == scores[2].means()
            assert len(opened.judgments(1)) == (folder / "qrels.txt").read_text().count("\n")
    told("two writers", "eval --save, labels import", times(1, 20), "all of it is there")


def test_two_reports_to_one_file(run, start, tmp_path, monkeypatch, times, told):
    folder = lay_runs(tmp_path / "files", queries=20)
    monkeypatch.chdir(folder)
    words = {
        name: ("eval", f"{name}.trec", "--gold", "qrels.txt", "--quiet", "-o", "out.json")
        for name in ("old", "new")
    }
    whole = []
    for one in words.values():
        assert run(*one).code == 0
        whole.append((folder / "out.json").read_bytes())
    files = sorted(path.name for path in folder.iterdir())
    for _ in range(times(1, 30)):
        for going in [start(*one, cwd=folder) for one in words.values()]:
            going.wait()
        assert (folder / "out.json").read_bytes() in whole
        assert sorted(path.name for path in folder.iterdir()) == files
    told("two writers", "eval -o to one file", times(1, 30), "the whole report of one of them")


@pytest.mark.parametrize("raters", [("Ana", "Ana"), ("Ana", "Ben")][: 2 if FULL else 1])
def test_two_workbenches_on_one_store(start, tmp_path, times, told, raters):
    """What was answered as kept is there, from different people or from one at two tables."""
    folder = lay_pool(tmp_path / "files", CALLS)
    words = ("serve", "--pool", "pool.jsonl", "--store", "h.db", "--port", "0", "--token", "t" * 20)
    going = [start(*words, cwd=folder)]
    assert going[0].wait_for(lambda: "karat serves " in going[0].err)
    going.append(start(*words, cwd=folder))
    assert going[1].wait_for(lambda: "karat serves " in going[1].err)
    urls = [one.err.partition("karat serves ")[2].split()[0].rstrip("/") for one in going]

    headers = {"Authorization": f"Bearer {'t' * 20}"}
    tables = [httpx.Client(base_url=url, headers=headers, timeout=60) for url in urls]

    def judge(table: int, position: int) -> tuple[str, int, int]:
        body = {"rater": raters[table], "position": position, "grade": (position + table) % 3}
        answer = tables[table].post("/api/label-sets/1/judgments", json=body)
        assert answer.status_code == 200, answer.text
        return raters[table], position, body["grade"]

    todo = [(table, at) for at in range(times(10, CALLS)) for table in (0, 1)]
    with tables[0], tables[1], ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda one: judge(*one), todo))
    with Store.open(folder / "h.db") as store:
        every = store.judgments(1, every=True)
        counts = store.judgments(1)
    given = Counter((one.rater, one.position, one.grade) for one in every)
    assert given == Counter(said)
    assert len(counts) == len({one[:2] for one in said})
    told("two writers", f"two workbenches, {' and '.join(raters)}", len(todo), "each judgment once")
