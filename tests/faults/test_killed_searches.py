"""karat search, killed: what was reported is kept, and going on ends in the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

from .killing import FULL, contents, killing, usual

# In full the calls take longer than the start, so that most kills come between them.
CALLS, SECONDS = 60, 0.05 if FULL else 0.02
# Answers depend on the query alone; each says that it was asked.
SLOW = """\
import time
from hashlib import sha256
from pathlib import Path


def search(text, k):
    with Path("asked.txt").open("a") as file:
        file.write(text + "\\n")
    time.sleep(SECONDS)
    order = sorted(range(40), key=lambda i: sha256(f"{text} {i}".encode()).digest())
    return [(f"d{i:02}", 1.0 / (1 + at)) for at, i in enumerate(order)][:k]
"""
CONFIG = """\
queries: eval.jsonl
corpus: corpus.jsonl
measures: [R@5]
systems:
  live: {retriever: python, call: 'slow_calls.py:search', concurrency: 1, k: 20}
  bm25: {retriever: bm25, k: 20}
"""
LOGS = ("runs/live.jsonl", "runs/bm25.jsonl")
SEARCH = ("search", "--no-latency")


def lay(folder: Path) -> Path:
    folder.mkdir()
    asked = [
        {"id": f"q{i:02}", "query": f"word{i} word{i % 7}", "relevant_chunk_ids": [f"d{i % 40:02}"]}
        for i in range(CALLS)
    ]
    texts = [{"id": f"d{i:02}", "text": f"word{i} word{i % 5} word{i % 7}"} for i in range(40)]
    for name, records in (("eval.jsonl", asked), ("corpus.jsonl", texts)):
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in records))
    (folder / "slow_calls.py").write_text(SLOW.replace("SECONDS", str(SECONDS)))
    (folder / "karat.yaml").write_text(CONFIG)
    return folder


def logs(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if name in LOGS}


def reported(said: str) -> dict[str, int]:
    """How many calls of each system were said to be done, for whoever reads along."""
    facts = [json.loads(line) for line in said.splitlines() if line.endswith("}")]
    return {one["system"]: one["done"] for one in facts if one["what"] == "calls"}


def kept(folder: Path, name: str) -> int:
    """Whole lines of a log, under its name or while it is being written."""
    log = folder / name
    found = [path for path in (log, log.with_name(log.name + ".part")) if path.exists()]
    return max((path.read_bytes().count(b"\n") for path in found), default=0)


class Searches:
    """Searches that go on with one another until the logs are whole, then begin elsewhere."""

    def __init__(self, start, folder: Path) -> None:
        self._start, self._base, self._folders = start, folder, 0
        self.wanted: dict[str, bytes] = {}
        self.calls = 0
        self.anew()

    def anew(self) -> None:
        self._folders += 1
        self.folder = lay(self._base / f"folder-{self._folders}")
        self.kept, self.kills, self.said = dict.fromkeys(LOGS, 0), 0, 0

    def begin(self):
        return self._start(*SEARCH, "--resume", cwd=self.folder, KARAT_PROGRESS="json")

    def look(self, killed) -> None:
        """Nothing that was reported, now or before, is gone; what has its name is whole."""
        self.kills += 1
        done = reported(killed.err)
        # What one that goes on tells of holds what those before it had told of.
        before, self.said = self.said, max(self.said, done.get("live", 0))
        self.calls += self.said - before
        for name in LOGS:
            now = kept(self.folder, name)
            assert now >= max(self.kept[name], done.get(Path(name).stem, 0))
            self.kept[name] = now
        for name, data in logs(self.folder).items():
            assert data == self.wanted[name]

    def finish(self) -> None:
        """Go on to the end: the same bytes, and only what was under way is asked twice."""
        self.begin().wait()
        assert logs(self.folder) == self.wanted
        assert not list(self.folder.rglob("runs/*.part"))
        asked = (self.folder / "asked.txt").read_text().splitlines()
        assert len(set(asked)) == CALLS
        assert len(asked) <= CALLS + self.kills


def test_a_killed_search_loses_no_call_that_it_reported(start, tmp_path, times, told):
    searches, number = Searches(start, tmp_path), times(3, 50)
    seconds = usual(searches.begin())
    searches.wanted = logs(searches.folder)
    assert [data.count(b"\n") for data in searches.wanted.values()] == [CALLS, CALLS]
    searches.anew()
    for killed in killing(searches.begin, times=number, within=seconds, seed=1):
        searches.look(killed)
        if not killed.killed or kept(searches.folder, LOGS[1]):
            searches.finish()
            searches.anew()
    searches.finish()
    assert searches.calls, "no kill came after the first report"
    outcome = f"{searches.calls:,} calls reported as done, 0 lost; going on gives the same bytes"
    told("kill -9", "karat search", number, outcome)
