"""The cache of JSON lines: values survive, damaged lines are left out, processes share it."""

from __future__ import annotations

import pytest

from karat.errors import InputError
from karat.jobs.cache import JsonlCache


def opened(path):
    return JsonlCache(path, lambda grade: {"grade": grade}, lambda record: int(record["grade"]))


def test_what_is_put_is_there_for_the_next_one(tmp_path):
    path = tmp_path / "new" / "grades.jsonl"
    cache = opened(path)
    assert cache.get("a") is None
    cache.put("a", 2)
    cache.close()
    assert opened(path).get("a") == 2


def test_two_writers_share_one_file(tmp_path):
    path = tmp_path / "grades.jsonl"
    one, other = opened(path), opened(path)
    one.put("a", 1)
    other.put("b", 2)
    one.put("c", 0)
    both = opened(path)
    assert [both.get(key) for key in "abc"] == [1, 2, 0]


def test_damaged_lines_are_left_out_with_a_warning(tmp_path, caplog):
    path = tmp_path / "grades.jsonl"
    path.write_bytes(b'{"key": "a", "grade": 1}\n{"key": 5, "grade": 1}\n{"key": "b"}\nhalf')
    cache = opened(path)
    assert cache.get("a") == 1
    assert "3 damaged lines" in caplog.text
    cache.put("c", 2)
    cache.close()
    assert opened(path).get("c") == 2


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        opened(tmp_path)
