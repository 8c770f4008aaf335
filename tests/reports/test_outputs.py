from __future__ import annotations

from pathlib import Path

import pytest

from karat.errors import KaratError, UsageError
from karat.reports.outputs import FORMS, Output, parse_output, parse_outputs, write_outputs


@pytest.mark.parametrize(
    ("text", "form", "path"),
    [
        ("out.json", "json", "out.json"),
        ("OUT.JSON", "json", "OUT.JSON"),
        ("a/b.csv.gz", "csv", "a/b.csv.gz"),
        ("out.parquet", "parquet", "out.parquet"),
        ("out.md", "md", "out.md"),
        ("trec:out.txt", "trec", "out.txt"),
        ("csv:table.txt", "csv", "table.txt"),
        ("json:a:b.txt", "json", "a:b.txt"),
    ],
)
def test_the_ending_or_a_prefix_picks_the_form(text, form, path):
    output = parse_output(text)
    assert (output.form.name, str(output.path)) == (form, path)


def test_a_dash_is_standard_output():
    assert parse_output("trec:-").path is None


@pytest.mark.parametrize("text", ["-", "", "out", "out.txt", "xml:out.xml", "json:"])
def test_an_unknown_form_is_refused(text):
    with pytest.raises(UsageError):
        parse_output(text)


def test_two_names_of_one_file_are_one_file(tmp_path):
    (tmp_path / "a.json").symlink_to(tmp_path / "b.json")
    with pytest.raises(UsageError, match="twice"):
        parse_outputs([str(tmp_path / "a.json"), str(tmp_path / "b.json")])


def test_all_files_are_written_or_none(report, tmp_path, monkeypatch):
    def fail(report: object) -> bytes:
        raise UsageError("no")

    monkeypatch.setattr("karat.reports.markdown.to_markdown", fail)
    outputs = [parse_output(str(tmp_path / name)) for name in ("a.json", "b.md")]
    with pytest.raises(KaratError):
        write_outputs(outputs, report)
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_takes_the_others_back(report, tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "folder"
    second.mkdir()
    with pytest.raises(KaratError):
        write_outputs([parse_output(str(first)), Output(FORMS["json"], second)], report)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_link_is_followed_and_permissions_stay(report, tmp_path):
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_outputs([parse_output(str(link))], report)
    assert link.is_symlink()
    assert target.read_text().startswith("{")
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_device_is_written_to_and_not_replaced(report):
    write_outputs([parse_output("json:/dev/null")], report)
    assert not Path("/dev/null").is_file()
