"""The exercises of the RAG lesson on the recipe's own logs, each worked out again by hand."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from rag_files import LANGUAGES, grades, lines

NDCG = "nDCG"
KS = (1, 3, 5, 10, 20)


@pytest.fixture(scope="module")
def folder(help_centre, tmp_path_factory) -> Path:
    """The recipe after its evaluations."""
    return Path(shutil.copytree(help_centre, tmp_path_factory.mktemp("exercises") / "rag"))


@pytest.fixture
def here(folder, monkeypatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def asked(run, here):
    """A command's JSON."""

    def ask(*words: str) -> dict:
        done = run(*words, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    return ask


@pytest.fixture
def answerable(here) -> list[dict]:
    return [one for one in lines(here / "dataset.jsonl") if not one["no_answer"]]


def listed(path: Path, part: str = "topk") -> dict[str, list[str]]:
    return {one["query_id"]: [hit["chunk_id"] for hit in one[part]] for one in lines(path)}


def recall(found: list[str], gold: dict[str, int], k: int) -> float:
    return len(set(found[:k]) & set(gold)) / len(gold)


def gain(found: list[str], gold: dict[str, int], k: int) -> float:
    """The lesson's nDCG: gains of 2^grade - 1, the ideal list from all of the gold."""

    def dcg(values):
        return sum((2**value - 1) / math.log2(place + 2) for place, value in enumerate(values))

    best = sorted(gold.values(), reverse=True)[:k]
    return dcg(gold.get(item, 0) for item in found[:k]) / dcg(best)


def flat_from(means: list[float], share: float) -> int | None:
    """The first k that none after it betters by more than a share of the highest; not the last."""
    most = max(means)
    for place, k in enumerate(KS[:-1]):
        if max(means[place + 1 :]) - means[place] <= share * most:
            return k
    return None


def test_exercise_1_curves_have_a_knee_in_each_segment(here, asked, answerable):
    told = asked(
        *("sweep", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "--profile", "rag"),
        *("--k", "1,3,5,10,20", "--by", "language", "--flat", "0.1"),
    )
    found = listed(here / "runs" / "reranked.jsonl")
    knees = {}
    for language in LANGUAGES:
        own = [one for one in answerable if one["language"] == language]
        curves = told["systems"][0]["segments"]["language"][language]
        for name, value in (("R", recall), (NDCG, gain)):
            means = [fmean(value(found[q["query_id"]], grades(q), k) for q in own) for k in KS]
            shown = [point["mean"] for point in curves[name]["points"]]
            assert shown == pytest.approx(means, abs=1e-12)
            knees[language, name] = flat_from(means, 0.1)
            assert curves[name]["knee"] == knees[language, name]
    assert None not in knees.values()
    assert len(set(knees.values())) > 1


def test_exercise_2_the_reranker_is_held_against_the_raw_list(here, asked, answerable):
    told = asked("stages", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "--profile", "rag")
    log = here / "runs" / "reranked.jsonl"
    before, after = listed(log, "raw"), listed(log)
    (row,) = (
        one
        for one in told["systems"][0]["effect"]["comparisons"]
        if one["measure"] == "P@5" and one["segment"] is None
    )
    changes = [
        sum(item in own for item in after[query][:5]) / 5
        - sum(item in own for item in before[query][:5]) / 5
        for query, own in ((one["query_id"], grades(one)) for one in answerable)
    ]
    assert row["delta"] == pytest.approx(fmean(changes), abs=1e-12)


def test_exercise_3_chunks_of_twice_the_size_are_compared(asked):
    told = asked(
        *("chunks", "documents.jsonl", "--queries", "spans.jsonl", "-m", "R@5, DistinctDocs@5"),
        *("--chunker", "fixed:300/40", "--chunker", "fixed:600/80"),
    )
    rows = {row["measure"]: row for row in told["comparisons"] if row["segment"] is None}
    assert set(rows) == {"R@5", "DistinctDocs@5"}
    for row in rows.values():
        low, high = row["ci"]
        assert low <= row["delta"] <= high
    # A span of three hundred characters fits into a chunk of six hundred, not into one of three.
    assert rows["R@5"]["verdict"] == "better"


def test_exercise_4_newer_documents_are_taken_out(here, asked, answerable):
    told = asked(
        *("compare", "runs/bm25.jsonl", "runs/exercises/fresh.jsonl", "--gold", "dataset.jsonl"),
        *("--corpus", "corpus.jsonl", "-m", "Fresh@5, R@5", "--profile", "rag"),
    )
    fresh = [system["measures"]["Fresh@5"]["mean"] for system in told["systems"]]
    versions = {one["chunk_id"]: one["version"] for one in lines(here / "corpus.jsonl")}
    found = listed(here / "runs" / "bm25.jsonl")
    shares = [
        fmean(versions[item] <= one["as_of"] for item in found[one["query_id"]][:5])
        for one in answerable
    ]
    assert fresh[0] == pytest.approx(fmean(shares), abs=1e-12)
    assert fresh[0] < 1.0
    assert fresh[1] == 1.0


def test_exercise_5_three_hard_negatives_for_a_hundred_queries(asked):
    told = asked(
        *("stress", "exercises.yaml", "--system", "plain", "--system", "reranked"),
        *("--insert", "3", "--at", "1,2,3", "--sample", "100", "-m", f"{NDCG}@5"),
    )
    for system in told["systems"]:
        (scenario,) = system["scenarios"]
        assert scenario["inserted"] == 300
        cell = scenario["measures"][f"{NDCG}@5"]
        assert cell["n"] == 100
        assert cell["drop"] == pytest.approx(cell["before"] - cell["after"], abs=1e-12)
        low, high = cell["ci"]
        assert low <= cell["drop"] <= high


def test_exercise_5_the_drop_is_what_three_negatives_on_top_cost(here, asked, answerable):
    told = asked(
        *("stress", "runs/bm25.jsonl", "--gold", "dataset.jsonl", "--profile", "rag"),
        *("--insert", "3", "--at", "1,2,3", "--sample", "all", "-m", f"{NDCG}@5"),
    )
    cell = told["systems"][0]["scenarios"][0]["measures"][f"{NDCG}@5"]
    found = listed(here / "runs" / "bm25.jsonl")
    before, after = [], []
    for one in answerable:
        own, wrong = found[one["query_id"]], one["negatives"][:3]
        before.append(gain(own, grades(one), 5))
        damaged = [*wrong, *(item for item in own if item not in wrong)]
        after.append(gain(damaged, grades(one), 5))
    assert cell["n"] == len(answerable)
    assert cell["drop"] == pytest.approx(fmean(before) - fmean(after), abs=1e-12)
    assert cell["drop"] > 0.2


def test_exercise_6_latency_is_gated_in_each_segment(run, here):
    (here / "latency.yaml").write_text(
        "- {measure: latency.retrieve.p50, by: language, values: [en, pt-BR, es-AR], max: 5000}\n"
        "- {measure: latency.rerank.p90, by: language, values: [en, pt-BR, es-AR], max: 0.0001}\n"
    )
    done = run(
        *("eval", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "-m", "R@5"),
        *("--by", "language", "--gates", "latency.yaml", "--json"),
    )
    assert done.code == 1
    verdicts = {
        (gate["measure"], gate["segment"]["language"]): gate["verdict"]
        for gate in json.loads(done.out)["gates"]
    }
    for language in ("en", "pt-BR", "es-AR"):
        assert verdicts["latency.retrieve.p50", language] == "pass"
        assert verdicts["latency.rerank.p90", language] == "fail"
