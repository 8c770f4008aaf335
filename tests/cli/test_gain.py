"""A bare nDCG under a profile is the same number in every command."""

from __future__ import annotations

import json
import math

import pytest

# b at rank 1 and a at rank 3 of each list; the ideal has a first
EXPONENTIAL = (1 + 3 / 2) / (3 + 1 / math.log2(3))
LINEAR = (1 + 2 / 2) / (2 + 1 / math.log2(3))
RAG = ("--gold", "gold.qrels", "--profile", "rag")


@pytest.fixture
def lists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    queries = [f"q{number}" for number in range(12)]
    gold = [
        f"{query} 0 {item} {grade}" for query in queries for item, grade in (("a", 2), ("b", 1))
    ]
    (tmp_path / "gold.qrels").write_text("\n".join(gold) + "\n")
    for name in ("one", "two"):
        calls = [
            {
                "query_id": query,
                "system": name,
                "topk": [{"rank": at, "chunk_id": item} for at, item in enumerate("bxa", start=1)],
                "raw": [{"rank": at, "chunk_id": item} for at, item in enumerate("xba", start=1)],
            }
            for query in queries
        ]
        lines = "".join(json.dumps(call) + "\n" for call in calls)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    return tmp_path


def found(run, *words):
    done = run(*words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_every_command_has_the_gain_of_the_profile(run, lists):
    cut = {"nDCG@3": pytest.approx(EXPONENTIAL)}
    (system,) = found(run, "eval", "one.jsonl", *RAG, "-m", "nDCG@3")["systems"]
    assert {name: cell["mean"] for name, cell in system["measures"].items()} == cut
    (system,) = found(run, "sweep", "one.jsonl", *RAG, "--k", "1,3")["systems"]
    points = {point["k"]: point["mean"] for point in system["measures"]["nDCG"]["points"]}
    assert points == {1: pytest.approx(1 / 3), 3: pytest.approx(EXPONENTIAL)}
    (system,) = found(run, "stages", "one.jsonl", *RAG, "-k", "3")["systems"]
    (row,) = [row for row in system["effect"]["comparisons"] if row["measure"] == "nDCG@3"]
    assert row["system_mean"] == pytest.approx(EXPONENTIAL)
    (system,) = found(run, "diagnose", "one.jsonl", *RAG, "-k", "3")["systems"]
    (fall,) = [one for one in system["waterfalls"] if one["measure"] == "nDCG@3"]
    lost = sum(part["lost"] for part in fall["parts"])
    assert fall["ceiling"] - lost == pytest.approx(EXPONENTIAL)
    comparison = found(run, "compare", "one.jsonl", "two.jsonl", *RAG, "-m", "nDCG@3")
    assert comparison["comparisons"][0]["baseline_mean"] == pytest.approx(EXPONENTIAL)


def test_a_gates_file_that_writes_the_gain_means_the_same_measure(run, lists):
    (lists / "gates.yaml").write_text("gates: [\"mean nDCG(gain='exp')@3 >= 0.68\"]\n")
    document = found(run, "eval", "one.jsonl", *RAG, "-m", "nDCG@3", "--gates", "gates.yaml")
    (gate,) = document["gates"]
    assert gate["measure"] == "nDCG@3"
    assert list(document["systems"][0]["measures"]) == ["nDCG@3"]


def test_the_gain_is_set_and_printed(run, lists):
    words = ("eval", "one.jsonl", *RAG, "-m", "nDCG@3", "--set", "gain=linear")
    document = found(run, *words)
    assert document["conventions"]["gain"] == "linear"
    assert document["systems"][0]["measures"]["nDCG@3"]["mean"] == pytest.approx(LINEAR)
    assert "gain linear" in run(*words).out
    assert "gain" not in run("eval", "one.jsonl", *RAG, "-m", "R@3").out


def test_trec_eval_s_name_is_for_its_linear_gain_only(run, lists):
    words = ("eval", "one.jsonl", *RAG, "-m", "nDCG@3,nDCG(gain='linear')@3", "--quiet")
    done = run(*words, "-o", "trec:-")
    means = {line.split()[0]: float(line.split()[2]) for line in done.out.splitlines()[-2:]}
    assert means == {"nDCG(gain='exp')@3": round(EXPONENTIAL, 4), "ndcg_cut_3": round(LINEAR, 4)}


def test_a_stored_baseline_with_another_gain_is_not_compared(run, lists):
    assert run("eval", "one.jsonl", *RAG, "-m", "nDCG@3", "--save", "--tag", "base").code == 0
    same = ("compare", "two.jsonl", *RAG, "-m", "nDCG@3", "--baseline", "base")
    assert run(*same).code == 0
    refused = run(*same, "--set", "gain=linear")
    assert refused.code == 2
    assert "gain is exp for one and linear for the other" in refused.err
