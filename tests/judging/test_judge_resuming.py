"""Judging again: the cache, and going on after any stop."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from judge_servers import (
    Server,
    by_number,
    completion,
    endpoint,
    graded,
    judged,
    labels,
    number,
    pairs,
    wait_for,
)

from karat.errors import InputError, UsageError
from karat.label.judge import InterruptedJudging, judge

# Ctrl-C does not wait for calls in flight: their connections end with their threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*unclosed <socket:ResourceWarning")


def test_a_second_run_over_a_larger_pool_asks_only_for_what_is_new(tmp_path):
    cache = tmp_path / "cache"
    with Server(by_number) as server:
        judged(server.url, 6, tmp_path / "a.jsonl", cache=cache)
        assert len(server.requests) == 6
        done = judged(server.url, 9, tmp_path / "b.jsonl", cache=cache)
        assert sorted(map(number, server.requests[6:])) == [6, 7, 8]
        assert (done.tally.cached, done.tally.asked) == (6, 3)
        again = judged(server.url, 9, tmp_path / "c.jsonl", cache=cache)
        assert len(server.requests) == 9
        # Another model has judged nothing yet.
        judged(server.url, 9, tmp_path / "d.jsonl", cache=cache, access={"model": "n"})
        assert len(server.requests) == 18
    assert (again.tally.cached, again.tally.asked) == (9, 0)
    assert again.to_dict()["tokens"] == {"prompt": 0, "completion": 0}
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "c.jsonl").read_bytes()
    kept = (cache / "judgments.jsonl").read_text()
    assert "question" not in kept
    assert "text 0" not in kept


def test_what_failed_is_not_in_the_cache(tmp_path):
    with Server(graded(7)) as server:
        judged(server.url, 2, tmp_path / "a.jsonl", cache=tmp_path, max_failures=1)
        judged(server.url, 2, tmp_path / "a.jsonl", cache=tmp_path, max_failures=1)
    assert len(server.requests) == 4
    assert not (tmp_path / "judgments.jsonl").exists()


def test_a_damaged_cache_is_told_and_asked_again_never_believed(tmp_path, caplog):
    with Server(by_number) as server:
        judged(server.url, 3, tmp_path / "a.jsonl", cache=tmp_path, concurrency=1)
        file = tmp_path / "judgments.jsonl"
        first, second, third = file.read_bytes().splitlines(keepends=True)
        wrong = json.loads(second) | {"grade": 7}
        file.write_bytes(first + json.dumps(wrong).encode() + b"\n" + third[:20])
        done = judged(server.url, 3, tmp_path / "b.jsonl", cache=tmp_path, concurrency=1)
        assert (done.tally.cached, done.tally.asked) == (1, 2)
        assert "2 damaged lines are left out" in caplog.text
        assert judged(server.url, 3, tmp_path / "c.jsonl", cache=tmp_path).tally.cached == 3
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_cache_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    told = r"judgments\.jsonl: cannot be .*--cache"
    with Server(graded()) as server, pytest.raises(InputError, match=told):
        judged(server.url, 1, tmp_path / "a.jsonl", cache=tmp_path / "file")


class Stopping:
    """A stand-in for Ctrl-C: the interrupt comes after so many pairs."""

    def __init__(self, after: int) -> None:
        self.left = after + 1

    def __call__(self, pairs: int) -> None:
        self.left -= 1
        if self.left <= 0:
            raise KeyboardInterrupt


def advancing(advance):
    """Progress that is reported to a function."""
    return lambda rater, number: nullcontext(SimpleNamespace(advance=advance))


@pytest.mark.parametrize("stops", [[5], [1, 4, 2]])
def test_going_on_after_an_interrupt_gives_the_bytes_of_an_uninterrupted_run(tmp_path, stops):
    def act(got, connection):
        return completion("prose") if number(got) % 7 == 3 else by_number(got, connection)

    with Server(act) as server:
        judged(server.url, 20, tmp_path / "whole.jsonl", max_failures=1)
        for after in stops:
            with pytest.raises(InterruptedJudging, match=r"interrupted; \d+ of 20 pairs are kept"):
                judge(
                    pairs(20),
                    tmp_path / "cut.jsonl",
                    judge=endpoint(server.url),
                    resume=True,
                    progress=advancing(Stopping(after)),
                )
        assert not (tmp_path / "cut.jsonl").exists()
        kept = len(labels(tmp_path / "cut.jsonl.part"))
        assert kept == sum(stops)
    with Server(act) as server:
        done = judged(server.url, 20, tmp_path / "cut.jsonl", resume=True, max_failures=1)
    assert sorted(map(number, server.requests)) == list(range(kept, 20))
    assert done.kept == kept
    assert (done.pairs, done.failed) == (20, 3)
    assert done.reasons == {"the answer is not JSON": 3}
    assert (tmp_path / "cut.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_an_interrupt_loses_no_judgment_that_was_made_out_of_order(tmp_path):
    slow, cache = threading.Event(), tmp_path / "cache"

    def first_waits(got, connection):
        if number(got) == 1:
            slow.wait(20)
        return by_number(got, connection)

    with Server(first_waits) as server:
        kept = cache / "judgments.jsonl"

        def stop_when_the_others_are_in(pairs: int) -> None:
            if pairs:
                wait_for(lambda: kept.exists() and len(labels(kept)) == 7)
                raise KeyboardInterrupt

        with pytest.raises(InterruptedJudging, match="1 of 8 pairs"):
            judge(
                pairs(8),
                tmp_path / "l.jsonl",
                judge=endpoint(server.url),
                cache=cache,
                progress=advancing(stop_when_the_others_are_in),
            )
        slow.set()
        done = judged(server.url, 8, tmp_path / "l.jsonl", cache=cache, resume=True)
    # The call that was in flight is made again.
    assert len(server.requests) == 9
    assert (done.kept, done.tally.cached, done.tally.asked) == (1, 6, 1)


def test_an_interrupted_file_is_neither_lost_nor_mixed(tmp_path):
    path = tmp_path / "l.jsonl"
    with Server(by_number) as server:
        judged(server.url, 6, tmp_path / "whole.jsonl")
        whole = (tmp_path / "whole.jsonl").read_bytes()
        first, second, third, *_ = whole.splitlines(keepends=True)
        half = first + second + third[:30]
        (tmp_path / "l.jsonl.part").write_bytes(half)
        with pytest.raises(UsageError, match=r"holds 2 judgments .* --resume, or .* --restart"):
            judged(server.url, 6, path)
        for other in ({"model": "n"}, {"more": {"top_p": 0.5}}):
            with pytest.raises(UsageError, match="is of another run: the pool, the model, the"):
                judged(server.url, 6, path, access=other, resume=True)
        assert (tmp_path / "l.jsonl.part").read_bytes() == half
        judged(server.url, 6, path, access={"model": "n"}, restart=True)
        assert labels(path)[0]["rater"].startswith("n@")
        (tmp_path / "l.jsonl.part").write_bytes(half)
        judged(server.url, 6, path, resume=True)
    # The torn third line was judged again.
    assert path.read_bytes() == whole


def test_failed_pairs_of_a_finished_file_are_asked_again(tmp_path):
    well = threading.Event()

    def act(got, connection):
        return by_number(got, connection) if well.is_set() or number(got) % 2 else graded(9)

    with Server(act) as server:
        first = judged(server.url, 6, tmp_path / "l.jsonl", max_failures=1)
        assert first.failed == 3
        well.set()
        done = judged(server.url, 6, tmp_path / "l.jsonl", resume=True)
        assert sorted(map(number, server.requests[6:])) == [0, 2, 4]
        judged(server.url, 6, tmp_path / "fresh.jsonl")
        with pytest.raises(UsageError, match=r"is of another run.*or use --restart"):
            judged(server.url, 6, tmp_path / "l.jsonl", access={"model": "n"}, resume=True)
    assert (done.kept, done.failed, done.tally.asked) == (3, 0, 3)
    assert (tmp_path / "l.jsonl").read_bytes() == (tmp_path / "fresh.jsonl").read_bytes()


def test_a_finished_file_of_another_run_is_not_replaced_unless_told_so(tmp_path):
    path = tmp_path / "l.jsonl"
    with Server(by_number) as server:
        judged(server.url, 4, path)
        before = path.read_bytes()
        told = r"l\.jsonl holds labels of another run; .*"
        with pytest.raises(UsageError, match=told + "name, or replace them with --restart"):
            judged(server.url, 4, path, access={"model": "n"})
        # Fewer pairs: two of the four judgments would be lost.
        with pytest.raises(UsageError, match=told + "resume it with --resume, or replace them"):
            judged(server.url, 2, path)
        assert len(server.requests) == 4
        assert path.read_bytes() == before
        judged(server.url, 4, path, access={"model": "n"}, restart=True)
        assert {line["rater"].partition("@")[0] for line in labels(path)} == {"n"}
        assert len(server.requests) == 8
    assert not (tmp_path / "l.jsonl.part").exists()


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize(
    "line",
    [
        b'{"query_id": "q", "item_id": "d", "grade": 2, "rater": "ada", "source": "human"}',
        b"by hand, no JSON",
    ],
)
def test_what_people_wrote_is_not_replaced_by_a_model(tmp_path, line, end):
    path = tmp_path / "l.jsonl"
    path.write_bytes(line + end)
    with Server(by_number) as server:
        for resume in (False, True):
            with pytest.raises(UsageError, match="--restart"):
                judged(server.url, 2, path, resume=resume)
        assert path.read_bytes() == line + end
        judged(server.url, 2, path, restart=True)
    assert len(labels(path)) == len(server.requests) == 2


def test_a_finished_file_of_this_run_is_made_again_or_grows(tmp_path):
    path = tmp_path / "l.jsonl"
    with Server(by_number) as server:
        judged(server.url, 3, path)
        before = path.read_bytes()
        assert judged(server.url, 3, path).kept == 0
        assert path.read_bytes() == before
        assert judged(server.url, 5, path, resume=True).kept == 3
        assert path.read_bytes().startswith(before)
        assert len(labels(path)) == 5
    assert len(server.requests) == 3 + 3 + 2


def test_an_empty_pool_makes_an_empty_file_that_can_grow(tmp_path):
    path = tmp_path / "l.jsonl"
    with Server(by_number) as server:
        for again in ({}, {}, {"resume": True}, {"restart": True}):
            done = judged(server.url, 0, path, **again)
            assert (done.pairs, done.failed, done.partial) == (0, 0, False)
            assert path.read_bytes() == b""
        assert server.requests == []
        assert judged(server.url, 2, path, resume=True).pairs == 2
        # Judgments that are there are not lost to a pool that has become empty.
        for resume in (False, True):
            with pytest.raises(UsageError, match="--restart"):
                judged(server.url, 0, path, resume=resume)
    assert len(labels(path)) == 2


def test_a_text_that_changed_is_judged_again(tmp_path):
    with Server(by_number) as server:
        judged(server.url, 4, tmp_path / "l.jsonl")
        changed = pairs(4)
        changed[2] = changed[2]._replace(text="text 77")
        judge(changed, tmp_path / "l.jsonl", judge=endpoint(server.url), resume=True)
    assert [number(got) for got in server.requests[4:]] == [77]
    assert [line["rationale"] for line in labels(tmp_path / "l.jsonl")][2] == "pair 77"


def test_two_runs_do_not_write_one_file(tmp_path):
    inside, let_go = threading.Event(), threading.Event()

    def held(got, connection):
        if number(got) == 1:
            inside.set()
            let_go.wait(20)
        return graded()

    with Server(held) as server:
        path = tmp_path / "l.jsonl"
        first = threading.Thread(
            target=judged, args=(server.url, 2, path), kwargs={"concurrency": 1}
        )
        first.start()
        assert inside.wait(20)
        part = tmp_path / "l.jsonl.part"
        wait_for(lambda: part.exists() and part.stat().st_size > 0)
        with pytest.raises(UsageError, match="is being written by another karat"):
            judged(server.url, 2, path, restart=True)
        let_go.set()
        first.join(20)
    assert len(labels(path)) == 2
