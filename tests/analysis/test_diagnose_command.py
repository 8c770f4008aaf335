"""The planted set as files, through the commands: what they say is what was planted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import planted_failures
import pytest

from karat.cli.main import main

WORLD = planted_failures.world()
LINES = {
    "run.jsonl": WORLD.records,
    "queries.jsonl": [{"query_id": q, **told} for q, told in WORLD.texts.items()],
    "corpus.jsonl": [{"item_id": item, **told} for item, told in WORLD.items.items()],
}
EVERYTHING = ("--queries", "queries.jsonl", "--corpus", "corpus.jsonl")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, records in LINES.items():
        Path(name).write_text("".join(json.dumps(one) + "\n" for one in records))
    judged = [f"{q} 0 {item} 1\n" for q, items in WORLD.judged.items() for item in items]
    Path("qrels.txt").write_text("".join(judged))
    return tmp_path


@pytest.fixture
def karat(capfd: pytest.CaptureFixture[str]):
    def call(*arguments: str, code: int = 0):
        capfd.readouterr()
        got = main(arguments)
        out, err = capfd.readouterr()
        assert got == code, err
        return out if code == 0 else err

    return call


def diagnosed(karat, *arguments):
    told = karat("diagnose", "run.jsonl", "--gold", "qrels.txt", "--json", *arguments)
    return json.loads(told)


def test_classes_and_losses_are_those_that_were_planted(files, karat):
    (system,) = diagnosed(karat, *EVERYTHING)["systems"]
    assert system["failures"]["classes"] == WORLD.expected
    recall = next(one for one in system["waterfalls"] if one["measure"] == "R@10")
    lost = {part["part"]: part["lost"] for part in recall["parts"]}
    for part, amount in WORLD.losses.items():
        assert lost[part] == pytest.approx(float(amount / WORLD.n), abs=1e-12)
    assert recall["ceiling"] - math.fsum(lost.values()) == pytest.approx(recall["value"], abs=1e-12)


def test_every_report_as_json_has_the_same_failures(files, karat):
    report = json.loads(karat("eval", "run.jsonl", "--gold", "qrels.txt", *EVERYTHING, "--json"))
    (system,) = report["systems"]
    assert system["failures"]["classes"] == WORLD.expected
    assert system["sweep"]["ks"] == [1, 3, 5, 10, 20]
    points = {one["k"]: one for one in system["sweep"]["measures"]["R"]["points"]}
    assert points[10]["mean"] == system["measures"]["R@10"]["mean"]
    assert points[10]["ci"] == system["measures"]["R@10"]["ci"]
    assert system["latency"]["stages"]["retrieve"]["p50"]["value"] == 5.0


def test_tables_alone_cost_no_second_look(files, karat, monkeypatch):
    def look(*arguments: object, **options: object) -> None:
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr("karat.analysis.diagnose.diagnostics", look)
    assert "R@10" in karat("eval", "run.jsonl", "--gold", "qrels.txt")


def test_what_is_missing_is_named(files, karat):
    (bare,) = diagnosed(karat)["systems"]
    assert "--corpus" in bare["failures"]["unchecked"]["not_in_index"]
    assert "no_answer" in bare["lacks"]["no_answer"]
    assert "as_of" in bare["lacks"]["freshness"]
    assert "--corpus" in bare["waterfalls"][0]["unknown"]["index"]
    assert bare["failures"]["classes"]["not_in_index"] == 0
    assert bare["failures"]["misses"] == sum(WORLD.expected.values())


def test_a_trec_run_is_looked_into_as_far_as_it_goes(files, karat):
    karat("convert", "run.jsonl", "run.trec", "--kind", "run")
    told = json.loads(karat("diagnose", "run.trec", "--gold", "qrels.txt", "--json"))
    (system,) = told["systems"]
    assert "latency" in system["lacks"]
    assert "raw" in system["failures"]["unchecked"]["rerank_demotion"]


def test_the_page_names_every_planted_class(files, karat):
    page = karat("diagnose", "run.jsonl", "--gold", "qrels.txt", *EVERYTHING)
    rows = {tuple(line.split()[:2]) for line in page.splitlines()}
    for name, count in WORLD.expected.items():
        assert (name, str(count)) in rows


def test_two_runs_are_held_against_each_other(files, karat):
    slow = [
        record | {"system": "slow", "latency_ms": {"retrieve": 50.0}} for record in WORLD.records
    ]
    Path("slow.jsonl").write_text("".join(json.dumps(one) + "\n" for one in slow))
    arguments = ("run.jsonl", "slow.jsonl", "--gold", "qrels.txt", *EVERYTHING)
    told = json.loads(karat("diagnose", *arguments, "--json"))
    assert [one["name"] for one in told["systems"]] == ["run", "slow"]
    assert told["pareto"]["front"] == ["run"]
    later = json.loads(
        karat("diagnose", "slow.jsonl", *arguments[2:], "--baseline", "run.jsonl", "--json")
    )
    assert "slower" in [one["rule"] for one in later["systems"][0]["findings"]]
    assert later["inputs"]["baseline"]["name"] == "run.jsonl"


def test_lines_move_what_counts_as_a_miss(files, karat):
    (all_of_them,) = diagnosed(karat, *EVERYTHING, "--line", "miss=100", "--line", "deep=100")[
        "systems"
    ]
    # The log says that the lists were cut at 20, so nobody can look for gold below.
    failures = all_of_them["failures"]
    assert (failures["miss_at"], failures["ends_at"]) == (20, 20)
    assert failures["lines"]["miss"] == 100
    assert failures["misses"] < sum(WORLD.expected.values())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-k", "0"), "-k is '0'; give a whole number from 1"),
        (("-k", "ten"), "-k is 'ten'"),
        (("--line", "mis=3"), "did you mean miss?"),
        (("-m", "latency.total.p50"), "latency.total.p50"),
        (("--baseline", "gone.jsonl"), "gone.jsonl"),
        (("-o", "out.docx"), "out.docx"),
        (("--by", "colour"), "colour"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(files, karat, arguments, told):
    line = karat("diagnose", "run.jsonl", "--gold", "qrels.txt", *arguments, code=2)
    assert told in line
    assert line.count("\n") == 1


def test_files_are_the_same_bytes_again(files, karat):
    outputs = ("-o", "one.json", "-o", "one.md", "--quiet")
    again = ("-o", "two.json", "-o", "two.md", "--quiet")
    for chosen in (outputs, again):
        karat("diagnose", "run.jsonl", "--gold", "qrels.txt", *EVERYTHING, *chosen)
    for form in ("json", "md"):
        assert Path(f"one.{form}").read_bytes() == Path(f"two.{form}").read_bytes()
