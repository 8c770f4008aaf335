"""karat judge, killed: no judgment that was made is lost, and none is paid for twice."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

from .endpoints import Endpoint
from .killing import FULL, killing, usual
from .worlds import lay_pool

CONCURRENCY = 3


class Judging:
    """Runs that go on with one another until the labels are whole, then begin elsewhere."""

    def __init__(self, start, folder: Path, pairs: int, *words: str) -> None:
        self._start, self._base, self._words, self.pairs = start, folder, words, pairs
        self._folders, self.saved, self.wanted = 0, 0, b""
        self.anew()

    def anew(self) -> None:
        self._folders += 1
        self.folder = lay_pool(self._base / f"folder-{self._folders}", self.pairs)
        self.labels, self.kept = self.folder / "labels.jsonl", 0
        self.part = self.folder / "labels.jsonl.part"

    def begin(self):
        words = ("judge", "pool.jsonl", *self._words, "--resume", "-o", "labels.jsonl")
        return self._start(*words, cwd=self.folder, KARAT_PROGRESS="json")

    def lines(self) -> list[bytes]:
        """The whole lines that are kept, under whichever name."""
        found = [b""]
        # It may get its name in between.
        for path in (self.part, self.labels):
            with suppress(FileNotFoundError):
                found.append(path.read_bytes())
        return max((data.split(b"\n")[:-1] for data in found), key=len)

    def look(self, killed) -> None:
        """Nothing that was reported, now or before, is gone, and it is what it should be."""
        facts = [json.loads(line) for line in killed.err.splitlines() if line.endswith("}")]
        done = max((one["done"] for one in facts), default=0)
        now = self.lines()
        assert len(now) >= max(done, self.kept)
        assert now == self.wanted.split(b"\n")[: len(now)]
        assert not self.labels.exists() or self.labels.read_bytes() == self.wanted
        self.saved += max(0, done - self.kept)
        self.kept = len(now)

    def finish(self) -> None:
        self.begin().wait()
        assert self.labels.read_bytes() == self.wanted
        assert not self.part.exists()

    def cached(self) -> int:
        """How many judgments the cache holds."""
        path = self.folder / ".karat" / "judgments.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_judge_that_is_killed_loses_no_judgment(start, tmp_path, times, told):
    number, lines = times(2, 50), 0
    judging = Judging(start, tmp_path, 2000, "--judge", "overlap")

    def writing() -> bool:
        return len(judging.lines()) > judging.kept

    seconds = usual(judging.begin(), writing)
    judging.wanted = judging.labels.read_bytes()
    judging.anew()
    for killed in killing(judging.begin, times=number, within=seconds, seed=4, after=writing):
        before = judging.kept
        judging.look(killed)
        lines += judging.kept - before
        if not killed.killed or judging.labels.exists():
            judging.finish()
            judging.anew()
    judging.finish()
    assert lines
    outcome = f"{lines:,} judgments written before the kills, 0 lost; going on gives the same bytes"
    told("kill -9", "karat judge --judge overlap", number, outcome)


def test_a_killed_model_run_asks_nothing_again_that_was_answered(start, tmp_path, times, told):
    number, pairs = times(2, 50), 80
    # In full the calls take longer than the start, so that most kills come between them.
    with Endpoint(seconds=0.12 if FULL else 0.05) as endpoint:
        words = ("--url", endpoint.url, "--model", "m", "--concurrency", str(CONCURRENCY))
        judging = Judging(start, tmp_path, pairs, *words)
        seconds = usual(judging.begin())
        judging.wanted = judging.labels.read_bytes()
        assert len(set(endpoint.asked)) == len(endpoint.asked) == pairs
        judging.anew()
        endpoint.asked.clear()
        kills, known = 0, 0
        for killed in killing(judging.begin, times=number, within=seconds, seed=5):
            judging.look(killed)
            kills += 1
            # What is in the labels is in the cache; more may be.
            assert judging.cached() >= max(known, judging.kept)
            known = judging.cached()
            if not killed.killed or judging.labels.exists() or known > pairs * 0.9:
                finish(judging, endpoint, kills)
                judging.anew()
                kills = known = 0
        finish(judging, endpoint, kills)
    assert judging.saved
    outcome = (
        f"{judging.saved:,} judgments reported as done, 0 lost, none that was kept asked again; "
        "going on gives the same bytes"
    )
    told("kill -9", "karat judge, a model over HTTP", number, outcome)


def finish(judging: Judging, endpoint: Endpoint, kills: int) -> None:
    """Only what nobody had answered is asked, and in all only what was under way asked twice."""
    endpoint.settle()
    before, known = len(endpoint.asked), judging.cached()
    judging.finish()
    now = endpoint.asked[before:]
    assert len(set(now)) == len(now) == judging.pairs - known
    asked = Counter(endpoint.asked)
    assert len(asked) == judging.pairs
    assert asked.total() <= judging.pairs + kills * CONCURRENCY
    endpoint.asked.clear()
