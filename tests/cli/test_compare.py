"""``karat compare`` and gates on the command line: verdicts, exit codes, refusals, same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

N = 40


def write_run(path, ranks):
    lines = []
    for i, rank in enumerate(ranks):
        items = [f"x{j}" for j in range(5)]
        items.insert(rank - 1, "a")
        lines += [f"q{i:02} Q0 {item} {at} {10 - at} t" for at, item in enumerate(items, 1)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def files(tmp_path):
    """A baseline, a better, a worse and an equal run, gold, and queries in two languages."""
    write_run(tmp_path / "base.trec", [2] * N)
    write_run(tmp_path / "better.trec", [1] * N)
    write_run(tmp_path / "worse.trec", [4] * N)
    write_run(tmp_path / "same.trec", [2] * N)
    write_run(tmp_path / "unsure.trec", [1, 3] * 4 + [2] * (N - 8))
    (tmp_path / "qrels.txt").write_text("".join(f"q{i:02} 0 a 1\n" for i in range(N)))
    queries = [
        {"query_id": f"q{i:02}", "text": f"text {i}", "language": "pt" if i < 10 else "en"}
        for i in range(N)
    ]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)) + "\n")
    return tmp_path


@pytest.fixture
def compare(files, run):
    def call(*systems, **options):
        words = [word for key, value in options.items() for word in _words(key, value)]
        names = [str(files / f"{one}.trec") for one in systems]
        return run("compare", *names, "--gold", str(files / "qrels.txt"), *words)

    return call


def _words(key, value):
    name = "-m" if key == "m" else "--" + key.replace("_", "-")
    return [name] if value is True else [name, str(value)]


def test_better_exits_with_0_and_worse_with_1(compare):
    better = compare("base", "better", m="RR")
    assert better.code == 0
    assert better.out.startswith("BETTER  better improves RR by 0.50 (")
    worse = compare("base", "worse", m="RR")
    assert worse.code == 1
    assert worse.out.startswith("WORSE  worse worsens RR by 0.25")


def test_unclear_exits_with_3_only_when_a_verdict_is_required(compare):
    assert compare("base", "unsure", m="RR").code == 0
    assert compare("base", "unsure", m="RR", require_verdict=True).code == 3


def test_a_failure_outranks_a_doubt(compare):
    assert compare("base", "unsure", "worse", m="RR", require_verdict=True).code == 1


def test_the_same_run_twice_is_the_same(compare):
    found = json.loads(compare("base", "same", m="RR", json=True).out)
    (row,) = found["comparisons"]
    assert (row["verdict"], row["p"], row["delta"]) == ("same", 1.0, 0.0)
    assert found["verdict"] == "same"


def test_the_report_has_the_keys_of_the_design(compare):
    found = json.loads(compare("base", "better", m="RR", json=True).out)
    row = found["comparisons"][0]
    asked = "baseline system measure delta ci p p_adjusted wins ties losses effect detectable"
    assert {*asked.split(), "verdict"} <= set(row)
    assert {"ci": 0.95, "boot": 2000, "seed": 0}.items() <= found["conventions"].items()
    assert found["systems"][0]["measures"]["RR"]["ci"] is not None


def test_the_margin_is_relative_unless_it_is_said_to_be_absolute(compare):
    def margin(**options):
        found = json.loads(compare("base", "better", m="RR", json=True, **options).out)
        return found["comparisons"][0]["margin"]

    assert margin() == pytest.approx(0.01)
    assert margin(margin="0.1") == pytest.approx(0.05)
    assert margin(margin="0.1", margin_kind="absolute") == 0.1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"margin": "-1"}, "--margin is '-1'"),
        ({"margin": "2"}, "give a share from 0 to 1"),
        ({"margin": "two"}, "--margin is 'two'; a number"),
        ({"margin": "nan"}, "--margin is 'nan'"),
        ({"margin_kind": "both"}, "margin_kind is 'both'; it can be relative, absolute"),
        ({"margin_on": "median"}, "margin_on is 'median'"),
        ({"pairs": "some"}, "pairs is 'some'; it can be baseline, all"),
        ({"correction": "none"}, "correction is 'none'; it can be holm, bh"),
        ({"detect": "0"}, "detect is 0"),
        ({"primary": "ndgc@10"}, "unknown measure 'ndgc'"),
        ({"seed": "-1"}, "seed is '-1'"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"set": "interval=t"}, "interval is 't'; it can be gaffke, percentile, none"),
        ({"set": "interval=bca"}, "it can be gaffke"),
        ({"set": "ci=1.5"}, "ci is '1.5'"),
        ({"set": "boot=5"}, "boot is '5'"),
        ({"by": "language"}, "needs the queries' attributes"),
        ({"replicates": True}, "no system has repeated runs"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(compare, options, said):
    result = compare("base", "better", m="RR", **options)
    assert result.code == 2
    assert said in result.err
    assert result.err.count("\n") == 1


def test_one_run_is_not_a_comparison(compare):
    result = compare("base", m="RR")
    assert (result.code, result.out) == (2, "")
    assert "compare needs at least two runs" in result.err


def test_a_primary_measure_is_scored_even_if_it_was_not_asked_for(compare):
    found = json.loads(compare("base", "better", m="RR", primary="Hit@1", json=True).out)
    assert found["rule"]["primary"] == "Hit@1"
    assert {row["measure"] for row in found["comparisons"]} == {"RR", "Hit@1"}


def test_segments_are_compared_and_one_that_lost_is_a_caution(files, compare):
    write_run(files / "mixed.trec", [3] * 10 + [1] * 30)
    result = compare("base", "mixed", m="RR", by="language", queries=files / "queries.jsonl")
    assert result.code == 0
    assert result.out.splitlines()[0].startswith("BETTER  mixed improves RR by 0.33 (")
    assert result.out.splitlines()[1].startswith("  but RR fell by 0.17 in language pt (")
    assert "overall but by" not in result.out


def test_gates_hold_for_every_system_but_the_baseline(files, compare):
    (files / "gates.yaml").write_text("- RR >= 0.6\n")
    found = json.loads(compare("base", "better", m="RR", gates=files / "gates.yaml", json=True).out)
    assert [(gate["system"], gate["verdict"]) for gate in found["gates"]] == [("better", "pass")]
    assert found["verdict"] == "pass"
    failed = compare("base", "unsure", m="RR", gates=files / "gates.yaml")
    assert failed.code == 1


def test_the_same_inputs_give_the_same_bytes_on_any_number_of_threads(files):
    names = [str(files / f"{name}.trec") for name in ("base", "unsure", "better")]
    command = [sys.executable, "-m", "karat", "compare", *names, "--gold"]
    command += [str(files / "qrels.txt"), "-m", "RR,nDCG@5,P@5", "--pairs", "all", "--json"]
    outputs = set()
    for threads in ("1", "2", "4"):
        count = dict.fromkeys(("OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), threads)
        done = subprocess.run(command, env={**os.environ, **count}, capture_output=True, check=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_an_option_that_takes_one_value_is_refused_twice(files, run):
    gold = str(files / "qrels.txt")
    base = str(files / "base.trec")
    done = run("eval", base, "--gold", "nowhere.txt", f"--gold={gold}", "-m", "RR")
    assert (done.code, done.err) == (2, "karat: --gold is given twice; it takes one value\n")
    assert run("eval", base, "--gold", gold, "-m", "RR", "-m", "R@5").code == 0


def test_a_system_that_failed_everywhere_cannot_be_told(files, run):
    calls = [{"query_id": f"q{i:02}", "error": "timed out", "topk": []} for i in range(N)]
    (files / "failed.jsonl").write_text("\n".join(map(json.dumps, calls)) + "\n")
    failed, base = str(files / "failed.jsonl"), str(files / "base.trec")
    gold = ("--gold", str(files / "qrels.txt"), "-m", "RR")
    refused = run("compare", base, failed, *gold)
    assert refused.code == 2
    assert f"{N} of {N} calls of failed.jsonl failed: timed out" in refused.err
    gold += ("--set", "missing_ids=allow")
    alone = run("eval", failed, *gold)
    assert (alone.code, alone.err) == (3, "karat: cannot tell: no query could be scored\n")
    assert run("eval", failed, base, *gold).code == 0
    for pair in ((base, failed), (failed, base), (failed, failed)):
        done = run("compare", *pair, *gold)
        assert done.code == 3
        assert "no query of failed" in done.err


def test_a_reader_that_goes_away_is_no_failed_gate(files):
    command = f"{sys.executable} -m karat compare base.trec better.trec --gold qrels.txt -m RR"
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"],
        cwd=files,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() in {"0", "141"}


@pytest.mark.parametrize("name", ["latency", "cost", "cost@5"])
def test_a_latency_or_cost_of_nothing_is_refused(compare, name):
    for options in ({"m": name}, {"m": "RR", "primary": name}):
        done = compare("base", "better", **options)
        assert done.code == 2
        assert "lacks of=" in done.err


def test_an_absolute_margin_may_be_any_difference(compare):
    found = compare("base", "better", m="RR", margin="5", margin_kind="absolute", json=True)
    assert json.loads(found.out)["comparisons"][0]["margin"] == 5.0
    assert compare("base", "better", m="RR", margin="1e-300").code == 0
    assert compare("base", "better", m="RR", detect="1e-300").code == 0


def test_only_one_measure_decides(compare):
    done = compare("base", "better", m="RR", primary="RR,R@5")
    assert done.code == 2


def test_gates_can_come_through_stdin(files, spawn):
    words = ("eval", str(files / "better.trec"), "--gold", str(files / "qrels.txt"), "-m", "RR")
    assert spawn(*words, "--gates", "-", stdin=b"- RR >= 0.5\n").code == 0
    assert spawn(*words, "--gates", "-", stdin=b"- mean RR >= 0.5\n- RR >= 0.99\n").code == 3


def test_what_only_a_gate_names_is_held_against_its_limit_and_not_compared(files, compare):
    (files / "gates.yaml").write_text("- RR >= 0.1\n- P@5 >= 0.1\n")
    found = json.loads(compare("base", "better", m="RR", gates=files / "gates.yaml", json=True).out)
    assert {row["measure"] for row in found["comparisons"]} == {"RR"}
    assert {gate["measure"] for gate in found["gates"]} == {"RR", "P@5"}
    assert "P@5" in found["systems"][1]["measures"]
