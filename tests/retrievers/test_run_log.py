"""The journal: what stands in it stays, what failed is asked again, and nothing is mixed."""

from __future__ import annotations

import json

import pytest

from karat.errors import UsageError
from karat.retrieve.run_log import RunLog, is_complete, meta_of

IDS = ["q1", "q2", "q3"]


def line(query_id, *, error=None, digest="d"):
    record = {"query_id": query_id, "system": "s", "run_digest": digest, "topk": []}
    record |= {} if error is None else {"error": error}
    return (json.dumps(record) + "\n").encode()


def test_nothing_is_touched_before_the_first_line(tmp_path):
    path = tmp_path / "new" / "log.jsonl"
    journal = RunLog(path, "d", IDS, resume=False)
    assert not path.parent.exists()
    journal.write(line("q1"))
    assert (tmp_path / "new" / "log.jsonl.part").read_bytes() == line("q1")
    assert not path.exists()
    journal.finish()
    assert path.read_bytes() == line("q1")


def test_failed_calls_of_a_finished_log_are_asked_again_and_the_others_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(line("q1") + line("q2", error="busy") + line("q3"))
    journal = RunLog(path, "d", IDS, resume=True)
    assert journal.kept.get("q1") == line("q1")
    assert journal.kept.get("q2") is None
    assert journal.kept.get("q3") == line("q3")
    assert journal.meta == {"system": "s", "run_digest": "d"}


def test_a_second_stop_while_failed_calls_are_asked_again_loses_nothing(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(line("q1", error="busy") + line("q2") + line("q3"))
    first = RunLog(path, "d", IDS, resume=True)
    first.write(line("q1"))
    first.close()
    second = RunLog(path, "d", IDS, resume=True)
    assert second.done == [("q1", False)]
    assert second.kept.get("q2") == line("q2")
    second.write(line("q2"))
    second.write(line("q3"))
    second.finish()
    assert path.read_bytes() == line("q1") + line("q2") + line("q3")


def test_a_finished_log_of_another_run_is_not_gone_on_with(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(line("q1", digest="other"))
    with pytest.raises(UsageError, match="another run"):
        RunLog(path, "d", IDS, resume=True)
    RunLog(path, "d", IDS, resume=False)
    assert path.read_bytes() == line("q1", digest="other")


def test_lines_that_are_not_the_next_querys_are_asked_again(tmp_path):
    part = tmp_path / "log.jsonl.part"
    for lines, kept in (
        (["q1", "q1", "q2"], ["q1"]),
        (["q1", "q3"], ["q1"]),
        (["q2", "q1"], []),
        (["q1", "q2", "q3", "q4"], IDS),
    ):
        part.write_bytes(b"".join(line(one) for one in lines))
        journal = RunLog(tmp_path / "log.jsonl", "d", IDS, resume=True)
        assert [query_id for query_id, _ in journal.done] == kept
        journal.close()


def test_two_writers_do_not_meet_in_one_log(tmp_path):
    path = tmp_path / "log.jsonl"
    first = RunLog(path, "d", IDS, resume=False)
    first.write(line("q1"))
    for how in ({"resume": True}, {"resume": False, "restart": True}):
        with pytest.raises(UsageError, match="another karat"):
            RunLog(path, "d", IDS, **how)
    late = RunLog(tmp_path / "other.jsonl", "d", IDS, resume=False)
    first.finish()
    assert path.read_bytes() == line("q1")
    late.write(line("q1"))
    late.close()
    again = RunLog(tmp_path / "other.jsonl", "d", IDS, resume=True)
    assert again.done == [("q1", False)]
    again.close()


def test_an_old_finished_log_is_not_in_the_way_of_a_new_part(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(line("q1", digest="old"))
    (tmp_path / "log.jsonl.part").write_bytes(line("q1"))
    journal = RunLog(path, "d", IDS, resume=True)
    assert journal.done == [("q1", False)]
    assert journal.kept.get("q2") is None
    journal.close()


@pytest.mark.parametrize("torn", [b'{"query_id": "q2", "to', b"\0\0\0\n", b"[1]\n", b"null\n"])
def test_whatever_is_not_a_whole_record_ends_what_is_kept(tmp_path, torn):
    (tmp_path / "log.jsonl.part").write_bytes(line("q1") + torn)
    journal = RunLog(tmp_path / "log.jsonl", "d", IDS, resume=True)
    journal.write(line("q2"))
    journal.finish()
    assert (tmp_path / "log.jsonl").read_bytes() == line("q1") + line("q2")


def test_a_log_is_complete_only_with_these_queries_this_digest_and_no_failure(tmp_path):
    path = tmp_path / "log.jsonl"
    assert not is_complete(path, "d", ["q1"])
    path.write_bytes(line("q1") + line("q2"))
    assert is_complete(path, "d", ["q1", "q2"])
    assert not is_complete(path, "d", ["q1"])
    assert not is_complete(path, "d", ["q1", "q2", "q3"])
    assert not is_complete(path, "d", ["q2", "q1"])
    assert not is_complete(path, "e", ["q1", "q2"])
    path.write_bytes(line("q1") + line("q2", error="busy"))
    assert not is_complete(path, "d", ["q1", "q2"])


def test_the_meta_of_a_record_is_what_is_not_about_its_call():
    record = {"query_id": "q", "system": "s", "k_raw": 5, "topk": [], "raw": [], "error": "x"}
    assert meta_of(record) == {"system": "s", "k_raw": 5}
