from __future__ import annotations

import json
import os
import shlex
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from karat.project.config import read_config
from karat.project.recipes import RECIPES, recipe_files


def test_every_recipe_of_the_package_is_listed(run):
    there = {one.name for one in (files("karat") / "recipes").iterdir() if one.is_dir()}
    assert there - {"__pycache__"} == set(RECIPES)
    listed = run("init")
    assert listed.code == 0
    for name, about in RECIPES.items():
        assert f"{name} " in listed.out
        assert about in listed.out
    assert json.loads(run("init", "--json").out) == RECIPES


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_laid_down_as_it_ships(run, tmp_path, monkeypatch, recipe):
    monkeypatch.chdir(tmp_path)
    done = run("init", recipe)
    assert done.code == 0
    source = files("karat") / "recipes" / recipe
    for name, data in recipe_files(recipe):
        assert source.joinpath(*name.split("/")).read_bytes() == data
        assert (tmp_path / recipe / name).read_bytes() == data
        assert f"{recipe}/{name}" in done.out
    assert (tmp_path / recipe / "README.md").is_file()
    assert read_config(tmp_path / recipe / "karat.yaml").system_configs
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_folder_of_ones_own_can_be_named(run, tmp_path):
    place = tmp_path / "a" / "b"
    told = json.loads(run("init", "first", str(place), "--json").out)
    assert told["recipe"] == "first"
    assert told["unchanged"] == []
    assert sorted(told["written"]) == sorted(one.name for one in place.iterdir())


def test_doing_it_again_changes_nothing(run, tmp_path):
    run("init", "first", str(tmp_path))
    before = {one: one.stat().st_mtime_ns for one in tmp_path.iterdir()}
    again = json.loads(run("init", "first", str(tmp_path), "--json").out)
    assert again["written"] == []
    assert len(again["unchanged"]) == len(before)
    assert {one: one.stat().st_mtime_ns for one in tmp_path.iterdir()} == before


def test_what_someone_changed_is_not_replaced_unless_by_force(run, tmp_path):
    run("init", "first", str(tmp_path))
    (tmp_path / "karat.yaml").write_text("gold: mine.txt\n")
    (tmp_path / "README.md").unlink()
    refused = run("init", "first", str(tmp_path))
    assert refused.code == 2
    assert refused.err == (
        f"karat: {tmp_path / 'karat.yaml'} would be replaced; name another folder, "
        "or give --force\n"
    )
    assert not (tmp_path / "README.md").exists()
    assert (tmp_path / "karat.yaml").read_text() == "gold: mine.txt\n"
    forced = json.loads(run("init", "first", str(tmp_path), "--force", "--json").out)
    assert sorted(forced["written"]) == ["README.md", "karat.yaml"]
    assert dict(recipe_files("first"))["karat.yaml"] == (tmp_path / "karat.yaml").read_bytes()


def test_an_unknown_recipe_is_answered_with_the_nearest(run):
    refused = run("init", "rga")
    assert (refused.code, refused.out) == (2, "")
    assert "unknown recipe 'rga'; did you mean rag?" in refused.err


def test_places_that_cannot_be_used_are_refused(run, tmp_path):
    (tmp_path / "file").write_text("")
    refused = run("init", "first", str(tmp_path / "file"))
    assert refused.code == 2
    assert f"{tmp_path / 'file' / 'README.md'}: cannot be written" in refused.err
    (tmp_path / "folder" / "karat.yaml").mkdir(parents=True)
    refused = run("init", "first", str(tmp_path / "folder"))
    assert refused.code == 2
    assert f"{tmp_path / 'folder' / 'karat.yaml'} is not a file" in refused.err
    assert [one.name for one in (tmp_path / "folder").iterdir()] == ["karat.yaml"]
    assert "has no name" in run("init", "first", " ").err


def test_quiet_says_nothing(run, tmp_path):
    assert run("init", "--quiet").out == ""
    assert run("init", "first", str(tmp_path), "--quiet").out == ""
    assert (tmp_path / "qrels.txt").is_file()


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("stands", ["file", "pipe"])
def test_a_file_where_a_folder_is_needed_leaves_nothing_behind(run, tmp_path, stands):
    with_folders = next(name for name, _ in recipe_files("ab") if "/" in name)
    there = tmp_path / "d" / with_folders.partition("/")[0]
    there.parent.mkdir()
    if stands == "file":
        there.touch()
    else:
        os.mkfifo(there)
    refused = run("init", "ab", str(tmp_path / "d"), "--force")
    assert (refused.code, refused.out) == (2, "")
    assert f"{there}/" in refused.err
    assert "cannot be written" in refused.err
    assert everything(tmp_path) == ["d", f"d/{there.name}"]


def test_a_file_around_the_folder_is_told(run, tmp_path):
    (tmp_path / "file").touch()
    refused = run("init", "first", str(tmp_path / "file" / "inside" / "deep"))
    assert (refused.code, "cannot be written: Not a directory" in refused.err) == (2, True)


def test_folders_that_were_made_go_when_writing_fails(run, tmp_path, monkeypatch):
    written = Path.write_bytes

    def full(path, data):
        if "karat.yaml" in path.name:
            raise OSError(28, "No space left on device")
        return written(path, data)

    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(Path, "write_bytes", full)
    refused = run("init", "ab", str(tmp_path / "mine" / "a" / "b"))
    assert refused.code == 2
    assert "No space left on device" in refused.err
    assert everything(tmp_path) == ["mine"]


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("stands", ["pipe", "nowhere"])
def test_what_is_no_file_is_neither_read_nor_written_through(spawn, tmp_path, stands, force):
    place = tmp_path / "d"
    place.mkdir()
    if stands == "pipe":
        os.mkfifo(place / "karat.yaml")
    else:
        (place / "karat.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    refused = spawn("init", "first", str(place), *force)
    assert refused.code == 2
    assert f"{place / 'karat.yaml'} is not a file" in refused.err
    assert everything(tmp_path) == ["d", "d/karat.yaml"]


def test_a_link_to_a_file_is_that_file(run, tmp_path):
    (tmp_path / "mine.yaml").write_bytes(dict(recipe_files("first"))["karat.yaml"])
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "karat.yaml").symlink_to(tmp_path / "mine.yaml")
    done = run("init", "first", str(tmp_path / "d"), "--json")
    assert json.loads(done.out)["unchanged"] == ["karat.yaml"]


@pytest.mark.parametrize("name", ["my set", "-x", "a$(touch pwned)b", "it's; x", "plain"])
def test_what_is_said_to_do_next_goes_to_the_folder(run, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    told = run("init", "first", "--", name).out
    (line,) = (line for line in told.splitlines() if line.startswith("next: "))
    going, _, _ = line.removeprefix("next: ").partition(" && karat run")
    assert shlex.split(going)[-1] == name
    went = subprocess.run(["sh", "-c", f"{going} && pwd"], capture_output=True, text=True)
    assert went.stdout == f"{tmp_path / name}\n"
    assert not (tmp_path / "pwned").exists()
