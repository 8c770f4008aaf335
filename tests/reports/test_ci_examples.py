"""The CI files under examples/: they parse, their scripts are scripts, and their karat is ours."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

import karat
from karat.cli.main import load_command, main
from karat.evaluation.gate_files import parse_gates
from karat.reports.markdown import MARKER

CI = Path(__file__).parents[2] / "examples" / "ci"
FIRST = Path(karat.__file__).parent / "recipes" / "first"
FILES = sorted(path.name for path in CI.iterdir())


def parsed(name: str) -> dict[Any, Any]:
    return yaml.safe_load((CI / name).read_text(encoding="utf-8"))


def steps(name: str = "github.yml") -> list[dict[str, Any]]:
    (job,) = parsed(name)["jobs"].values()
    return job["steps"]


def scripts(name: str) -> list[str]:
    if name == "github.yml":
        return [step["run"] for step in steps(name) if "run" in step]
    (job,) = parsed(name).values()
    return [*job["before_script"], *job["script"]]


def commands(name: str) -> Iterator[list[str]]:
    """The arguments of every call of karat."""
    for script in scripts(name):
        for line in script.replace("\\\n", " ").splitlines():
            if line.strip().startswith("karat "):
                yield shlex.split(line)[1:]


def test_there_is_one_for_github_and_one_for_gitlab():
    assert FILES == ["github.yml", "gitlab.yml"]


@pytest.mark.parametrize("name", FILES)
def test_every_call_of_karat_has_commands_and_options_that_exist(name):
    found = [*commands(name)]
    assert found
    for command, *arguments in found:
        load_command(command).parse(command, list(arguments))


@pytest.mark.parametrize("name", FILES)
def test_every_script_is_one_that_bash_understands(name):
    for script in scripts(name):
        read = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True)
        assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.parametrize("name", FILES)
def test_the_comparison_writes_what_the_file_keeps(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    ((command, *arguments),) = commands(name)
    given = dict(pairwise(arguments))
    shutil.copy(FIRST / "bm25.trec", "base.jsonl")
    shutil.copy(FIRST / "dense.jsonl", "head.jsonl")
    for option, source in (("--gold", "qrels.txt"), ("--queries", "queries.jsonl")):
        Path(given[option]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIRST / source, given[option])
    Path(given["--gates"]).write_text("- mean R@5 >= 0.5\n")
    assert main([command, *arguments]) == 0, capfd.readouterr().err
    assert Path("report.md").read_text(encoding="utf-8").startswith(MARKER)
    for file in ("report.md", "report.json", "junit.xml"):
        assert Path(file).stat().st_size > 0
        assert file in (CI / name).read_text(encoding="utf-8").partition("rtifact")[2]


def test_only_github_s_own_actions_are_used():
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    assert all(action.startswith("actions/") for action in used)


def test_gitlab_reads_the_tests_and_keeps_files_of_a_failed_job():
    (job,) = parsed("gitlab.yml").values()
    assert job["artifacts"]["reports"] == {"junit": "junit.xml"}
    assert job["artifacts"]["when"] == "always"


def test_github_keeps_files_and_comments_after_a_failure():
    late = [step for step in steps() if step.get("name") == "Comment" or "with" in step][-2:]
    assert [step["if"].startswith("${{ !cancelled()") for step in late] == [True, True]


GH = """#!/bin/sh
echo "$*" >> calls.txt
case "$*" in *--paginate*) cat ids.txt ;; esac
"""


@pytest.mark.parametrize(
    ("ids", "call"),
    [
        ("", "--method POST repos/o/r/issues/7/comments -F body=@report.md"),
        ("11\n12\n", "--method PATCH repos/o/r/issues/comments/11 -F body=@report.md"),
    ],
)
def test_the_comment_is_updated_where_there_is_one(tmp_path, ids, call):
    (tmp_path / "report.md").write_text(MARKER)
    (tmp_path / "ids.txt").write_text(ids)
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    (script,) = [step["run"] for step in steps() if step.get("name") == "Comment"]
    environment = os.environ | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_REPOSITORY": "o/r",
        "PULL_REQUEST": "7",
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    subprocess.run(shell, cwd=tmp_path, env=environment, check=True)
    listed, written = (tmp_path / "calls.txt").read_text().split("\napi ")
    assert f'startswith("{MARKER}")' in listed
    assert written.strip() == call


def test_the_page_on_pull_requests_shows_gates_and_a_command_that_are_read():
    page = (CI.parents[1] / "docs" / "gate-a-pull-request.md").read_text(encoding="utf-8")
    (gates,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    found, _ = parse_gates(yaml.safe_load(gates), "gates.yaml")
    assert [(gate.on, gate.by is None) for gate in found] == [
        ("interval", True),
        ("interval", False),
        ("mean", True),
        ("interval", True),
    ]
    (line,) = re.findall(r"^\$ karat (.*)$", page, re.MULTILINE)
    command, *arguments = shlex.split(line)
    load_command(command).parse(command, arguments)
    for name in FILES:
        assert f"(../examples/ci/{name})" in page
