"""The code that CONTRIBUTING.md shows is karat's own, or works as it stands there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import karat
from karat.cli.main import load_command

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MEASURE, ANALYSIS, COMMAND = (
    textwrap.dedent(code) for code in re.findall(r"^ *```python\n(.*?)^ *```$", PAGE, re.M | re.S)
)
# The command stands in a module that has these.
IMPORTS = """\
from __future__ import annotations
import karat
from karat.cli.analyze import AnalysedRuns, PageOptions, command
"""


def test_the_measure_is_that_of_the_kernels():
    assert MEASURE in (ROOT / "src/karat/measure/kernels/ranks.py").read_text(encoding="utf-8")


def test_the_analysis_and_its_command_work(tmp_path, monkeypatch, capsys):
    made: dict[str, object] = {"__name__": "karat"}
    exec(ANALYSIS, made)
    exec(IMPORTS, made)
    monkeypatch.setattr(karat, "ties", made["ties"], raising=False)
    (tmp_path / "run.trec").write_text(
        "q1 Q0 a 1 3 x\nq1 Q0 b 2 3 x\nq2 Q0 c 1 3 x\nq2 Q0 b 2 2 x\nq3 Q0 a 1 1 x\n"
    )
    (tmp_path / "qrels.txt").write_text("q1 0 a 1\nq2 0 c 1\nq3 0 a 1\n")
    monkeypatch.chdir(tmp_path)
    (system,) = karat.ties(karat.Evaluation("qrels.txt"), "run.trec").to_dict()["systems"]
    assert (system["queries"], system["tied"]) == (3, 1)
    monkeypatch.setattr("karat.cli.command.COMMANDS", {})
    exec(COMMAND, made)
    assert made["ties"].run("ties", ["run.trec", "--gold", "qrels.txt"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("1 query has a tie at rank 1\n")
    assert "3 of 3 queries scored" in printed


def test_sweep_is_where_the_page_says():
    sweep = load_command("sweep")
    assert sweep.function.__module__ == "karat.cli.analyze"
    assert sweep.examples
