"""The journal: complete lines stay whatever stops it, and a second writer is refused."""

from __future__ import annotations

import pytest

from karat.errors import InputError, UsageError
from karat.jobs.journal import Journal, json_lines, part_of


def test_lines_go_to_a_part_that_gets_its_name_at_the_end(tmp_path):
    journal = Journal(tmp_path / "new" / "log.jsonl")
    assert not (tmp_path / "new").exists()
    journal.write(b"{}\n")
    assert journal.part.read_bytes() == b"{}\n"
    assert not journal.path.exists()
    journal.finish()
    assert journal.path.read_bytes() == b"{}\n"
    assert not journal.part.exists()


def test_kept_lines_are_continued_and_the_rest_is_cut_off(tmp_path):
    path = tmp_path / "log.jsonl"
    part_of(path).write_bytes(b'{"n": 1}\n{"n": 2}\n{"n"')
    journal = Journal(path)
    journal.lock()
    journal.keep(b'{"n": 1}\n')
    journal.write(b'{"n": 3}\n')
    assert journal.lines == 2
    journal.finish()
    assert path.read_bytes() == b'{"n": 1}\n{"n": 3}\n'


def test_a_second_writer_is_refused(tmp_path):
    first = Journal(tmp_path / "log.jsonl")
    first.write(b"{}\n")
    with pytest.raises(UsageError, match="another karat"):
        Journal(tmp_path / "log.jsonl").write(b"{}\n")
    first.close()


def test_without_a_line_nothing_is_left(tmp_path):
    path = tmp_path / "log.jsonl"
    part_of(path).write_bytes(b"half a line")
    journal = Journal(path)
    journal.lock()
    journal.write(b"")
    journal._written = 0
    journal.close()
    assert not part_of(path).exists()


def test_discarding_leaves_a_finished_file(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"old\n")
    journal = Journal(path)
    journal.write(b"new\n")
    journal.discard()
    assert path.read_bytes() == b"old\n"
    assert not part_of(path).exists()


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        Journal(tmp_path)


def test_an_interruption_names_what_is_kept_and_the_way_to_resume(tmp_path):
    journal = Journal(tmp_path / "log.jsonl", remedy="run it again", noun="judgment")
    assert "before the first judgment" in journal.interrupted(3)
    journal.write(b"{}\n")
    told = journal.interrupted(3)
    assert "1 of 3 judgments" in told
    assert told.endswith("run it again")
    journal.close()


@pytest.mark.parametrize("bad", [b'{"n": 2}', b"{\n", b"[1]\n", b"\xff\n"])
def test_reading_stops_at_the_first_line_that_is_no_object(tmp_path, bad):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"n": 1}\n' + bad)
    assert [record for _, record in json_lines(path)] == [{"n": 1}]
