from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import karat
from karat.pytest_plugin import Karat, Lines
from runner_commands import commands

pytest_plugins = ("pytester",)

WORLD = """
import pytest

@pytest.fixture(scope="session")
def gold(karat):
    return karat.Gold.from_dict({f"q{i}": ["a", "b"] for i in range(30)})

def answers(karat, name, good):
    lists = {f"q{i}": [*("ab" if i < good else "xy"), *"stuvwz123"] for i in range(30)}
    return karat.Run.from_dict(lists, name=name)

@pytest.fixture(scope="session")
def best(karat):
    return answers(karat, "best", 30)

@pytest.fixture(scope="session")
def poor(karat):
    return answers(karat, "poor", 10)
"""


@pytest.fixture(scope="module", autouse=True)
def imported():
    """A pytest inside this one forgets what it imports, and numpy can be imported only once."""
    gold = karat.Gold.from_dict({f"q{i}": ["a"] for i in range(4)})
    runs = [karat.Run.from_dict({f"q{i}": ["a"] for i in range(n)}) for n in (4, 1)]
    Karat(Lines()).gate(runs[1], ["mean RR >= 0", "R@5 >= 0"], gold=gold)
    Karat(Lines()).no_regression(runs[::-1], gold, "RR")


@pytest.fixture
def session(pytester: pytest.Pytester):
    """Run a test file in a pytest of its own, with the fixtures of a small world."""
    pytester.makeconftest(WORLD)

    def run(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        call = pytester.runpytest_subprocess if "-n" in arguments else pytester.runpytest_inprocess
        return call("-p", "no:cacheprovider", *arguments)

    return run


def test_a_gate_that_holds_passes_and_is_told_in_the_summary(session):
    done = session("def test_it(karat, best, gold): karat.gate(best, 'R@5 >= 0.8', gold=gold)")
    done.assert_outcomes(passed=1)
    done.stdout.re_match_lines(
        [
            r"=+ karat =+",
            r"PASS  best: R@5 needs .* measured 1\.00 \(95 % interval 0\.8\d to 1\.00\).*",
        ]
    )


def test_a_gate_that_fails_says_why_and_shows_no_traceback(session):
    done = session(
        "def test_it(karat, poor, gold):\n"
        "    karat.gate(poor, ['R@5 >= 0.9', 'mean R@5 >= 0.3'], gold=gold)\n"
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["1 of 2 gates did not pass:", "  FAIL  poor: R@5 needs * measured 0.33 *"]
    )
    done.stdout.fnmatch_lines(["*= karat =*", "FAIL  poor: *", "PASS  poor: *"])
    done.stdout.no_fnmatch_line("*pytest_plugin.py*")
    done.stdout.no_fnmatch_line("*def test_it*")


def test_a_gate_that_cannot_be_judged_does_not_pass(session):
    done = session(
        "def test_it(karat, best, gold): karat.gate(best, 'latency.retrieve.p50 <= 60', gold=gold)"
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["1 of 1 gate did not pass:", "  CANNOT BE JUDGED  best: latency*"])


def test_gates_may_be_mappings_or_a_file_and_scores_may_be_ready(session, pytester):
    pytester.makefile(".yaml", gates="gates:\n- {measure: R@2, min: 0.8}\n- mean RR > 0.9\n")
    done = session(
        "from pathlib import Path\n"
        "def test_it(karat, best, gold):\n"
        "    scores = karat.evaluate(best, gold, ['R@2', 'RR'])\n"
        "    for gates in ('gates.yaml', Path('gates.yaml')):\n"
        "        found = karat.gate(scores, gates)\n"
        "        assert [one.verdict for one in found.results] == ['pass', 'pass']\n"
        "    assert karat.gate(scores, {'measure': 'RR', 'min': 0.8}).verdict == 'pass'\n"
        "    both = karat.gate(scores, [{'measure': 'RR', 'min': 0.8}, 'RR > 0'])\n"
        "    assert len(both.results) == 2\n"
    )
    done.assert_outcomes(passed=1)


def test_files_are_read_and_segments_come_from_the_queries(session, pytester):
    pytester.makefile(".txt", qrels="".join(f"q{i} 0 a 1\n" for i in range(30)))
    pytester.makefile(
        ".jsonl",
        queries="".join(
            f'{{"query_id": "q{i}", "text": "t", "language": "{"es" if i < 10 else "en"}"}}\n'
            for i in range(30)
        ),
    )
    hits = "".join(f"q{i} Q0 {'a' if i < 20 else 'x'} 1 0.5 run\n" for i in range(30))
    pytester.makefile(".trec", run=hits)
    done = session(
        "def test_it(karat):\n"
        "    gates = ['R@1 [language=es] >= 0.6', 'mean R@1 [language=en] >= 0.4']\n"
        "    found = karat.gate('run.trec', gates, gold='qrels.txt', queries='queries.jsonl')\n"
        "    assert [one.mean for one in found.results] == [1.0, 0.5]\n"
    )
    done.assert_outcomes(passed=1)


def test_a_confirmed_regression_fails_and_the_way_back_passes(session):
    done = session(
        "def test_down(karat, best, poor, gold): karat.no_regression([best, poor], gold, 'RR')\n"
        "def test_up(karat, best, poor, gold):\n"
        "    assert karat.no_regression([poor, best], gold, 'RR').verdict == 'better'\n"
    )
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "1 of 1 comparison did not pass:",
            "  WORSE  poor against best: poor worsens RR by *",
            "*= karat =*",
            "WORSE  poor against best: *",
            "BETTER  best against poor: *",
        ]
    )


def test_what_is_unclear_passes_unless_a_verdict_is_required(session):
    done = session(
        "def runs(karat):\n"
        "    def lists(odd): return {f'q{i}': ['x' if i == odd else 'a'] for i in range(30)}\n"
        "    return [karat.Run.from_dict(lists(odd), name=f'r{odd}') for odd in (0, 1)]\n"
        "def test_lenient(karat, gold): karat.no_regression(runs(karat), gold, 'RR')\n"
        "def test_strict(karat, gold):\n"
        "    karat.no_regression(runs(karat), gold, 'RR', require_verdict=True)\n"
    )
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["  UNCLEAR  r1 against r0: *"])


def test_a_gate_in_a_fixture_is_told_whenever_it_is_judged(session):
    done = session(
        "import pytest\n"
        "@pytest.fixture\n"
        "def first(karat, poor, gold): karat.gate(poor, 'R@5 >= 0.9', gold=gold)\n"
        "@pytest.fixture\n"
        "def last(karat, best, gold):\n"
        "    yield\n"
        "    karat.gate(best, 'R@5 >= 0.8', gold=gold)\n"
        "def test_before(first): pass\n"
        "def test_after(last): pass\n"
    )
    done.assert_outcomes(errors=1, passed=1)
    done.stdout.fnmatch_lines(["*= karat =*", "FAIL  poor: *", "PASS  best: *"])


def test_workers_of_xdist_hand_their_lines_to_the_summary(session):
    done = session(
        "import pytest\n"
        "@pytest.mark.parametrize('limit', [0.1, 0.2, 0.3, 0.95])\n"
        "def test_it(karat, poor, gold, limit):\n"
        "    karat.gate(poor, f'mean R@5 >= {limit}', gold=gold)\n",
        "-n",
        "2",
    )
    done.assert_outcomes(passed=3, failed=1)
    summary = done.stdout.str().partition("= karat =")[2].splitlines()
    lines = [line for line in summary if line.startswith(("PASS  ", "FAIL  "))]
    assert sorted(line[:4] for line in lines) == ["FAIL", "PASS", "PASS", "PASS"]


def test_the_lines_are_properties_in_pytest_s_own_junit_file(session, pytester):
    session(
        "def test_it(karat, best, gold): karat.gate(best, 'R@5 >= 0.8', gold=gold)",
        "--junitxml=junit.xml",
    )
    text = (pytester.path / "junit.xml").read_text()
    assert '<property name="karat" value="PASS  best: R@5 needs' in text


def test_a_session_that_does_not_use_it_is_left_alone(session):
    done = session("def test_it(): pass")
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*= karat =*")


def test_a_run_without_gold_is_refused(session):
    done = session("def test_it(karat, best): karat.gate(best, 'R@5 >= 0.8')")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*UsageError: a run needs gold*"])


def test_no_gate_and_no_run_are_refused(session):
    done = session(
        "def test_no_gate(karat, best, gold): karat.gate(best, [], gold=gold)\n"
        "def test_no_run(karat, gold): karat.gate(None, 'R@5 >= 0.8', gold=gold)\n"
        "def test_no_runs(karat, best, gold): karat.no_regression([best, None], gold, 'RR')\n"
    )
    done.assert_outcomes(failed=3)
    done.stdout.fnmatch_lines(["*UsageError: gates: holds no gate on retrieval*"])
    done.stdout.fnmatch_lines(["*UsageError: a run is expected, not None*"] * 2)


def test_loading_the_plugin_costs_nothing():
    code = (
        "import sys; import pytest; before = set(sys.modules); import karat.pytest_plugin;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['karat', 'karat.pytest_plugin', 'karat.version']"


def test_the_example_in_the_documentation_runs(session, pytester):
    page = (Path(__file__).parents[1] / "docs" / "gates-in-pytest.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for folder in ("runs", "eval"):
        pytester.mkdir(folder)
    hits = "".join(f"q{i} Q0 a 1 0.5 run\n" for i in range(60)) + "q0 Q0 x 2 0.4 run\n"
    files = {
        "runs/base.jsonl": hits,
        "runs/head.jsonl": hits,
        "eval/qrels.txt": "".join(f"q{i} 0 a 1\n" for i in range(60)),
        "eval/queries.jsonl": "".join(f'{{"query_id": "q{i}", "text": "t"}}\n' for i in range(60)),
        "eval/gates.yaml": "- R@5 >= 0.90\n",
    }
    for name, text in files.items():
        (pytester.path / name).write_text(text)
    done = session(example)
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["*= karat =*", "PASS  head: *", "SAME  head against base: *"])


def test_no_name_in_the_summary_is_a_command_of_a_github_workflow(session, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    source = (
        "def test_it(karat, gold):\n"
        "    run = karat.Run.from_dict({'q0': ['a']}, name='##[error]x')\n"
        "    karat.gate(run, 'R@5 >= 0.8', gold=gold)\n"
    )
    done = session(source)
    done.assert_outcomes(failed=1)
    assert "##\\u005berror]x" in done.stdout.str()
    assert commands(done.stdout.str().encode()) == []


def test_ids_that_never_meet_are_an_error_and_no_failed_gate():
    gold = karat.Gold.from_dict({"q1": ["doc_a"], "q2": ["doc_b"]})
    good = karat.Run.from_dict({"q1": ["doc_a"], "q2": ["doc_b"]}, name="good")
    bad = karat.Run.from_dict({"q1": ["a"], "q2": ["b"]}, name="bad")
    with pytest.raises(karat.InputError, match=r"run 'bad'.*the prefix \"doc_\""):
        Karat(Lines()).gate(bad, "R@5 >= 0.5", gold=gold)
    with pytest.raises(karat.InputError, match=r"run 'bad'.*the prefix \"doc_\""):
        Karat(Lines()).no_regression([good, bad], gold, "RR")


@pytest.mark.parametrize("style", ["auto", "native", "line"])
def test_an_error_on_data_forms_no_workflow_command(session, monkeypatch, style):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = session(
        "def test_it(karat, gold):\n"
        "    name = '#' + '#[error]q'\n"
        "    karat.gate(karat.Run.from_dict({name: ['a']}), 'R@5 >= 0.8', gold=gold)\n",
        f"--tb={style}",
    )
    done.assert_outcomes(failed=1)
    assert "InputError" in done.stdout.str()
    assert commands(done.stdout.str().encode()) == []
