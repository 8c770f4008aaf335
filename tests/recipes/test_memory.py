"""The recipe ``memory``, held against what its suite and a plain search in the test give."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import karat
from karat.cli.main import main
from karat.evaluation.gate_files import read_gate_file
from karat.evaluation.gates import judge
from karat.project.config import read_config

PAGE = Path(__file__).parents[2] / "docs" / "seed-memory.md"
RECIPE = Path(__file__).parents[2] / "src" / "karat" / "recipes" / "memory"
SUITE = json.loads((RECIPE / "suite.json").read_text(encoding="utf-8"))
SIX = ["direct", "paraphrased", "technical", "casual", "implicit", "edge_cases"]
QUALITY = "Hit@1, Hit@3, Hit@5, Hit@10, RR, nDCG@10, P@5, Sim@10, FPR@1, Coverage(of='items')@10"


@pytest.fixture(autouse=True)
def own_store_and_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KARAT_STORE", "SOURCE_DATE_EPOCH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def memory(laid) -> Path:
    return laid("memory")


def asked() -> list[tuple[str, dict]]:
    """Every query with the memory that it stands under."""
    return [
        (str(case["memory_id"]), query)
        for case in SUITE["test_cases"]
        for query in case["generated_queries"]
    ]


def kind_of(query: dict) -> str:
    """The category in the file; what has none there is an edge case, by its length."""
    words = len(query["query"].split())
    assert "category" in query or words < 3 or words > 20
    return query.get("category", "edge_cases")


def test_the_suite_says_of_itself_what_is_true():
    stats, queries = SUITE["metadata"]["generation_stats"], [query for _, query in asked()]
    assert SUITE["metadata"]["format_version"] == "2.0"
    assert stats["total_memories"] == stats["processed"] == len(SUITE["test_cases"]) >= 40
    assert stats["total_queries_generated"] == len(queries) >= 160
    assert stats["queries_per_category"] == dict(Counter(map(kind_of, queries)))
    assert list(stats["queries_per_category"]) == SIX
    assert stats["queries_per_difficulty"] == dict(Counter(q["difficulty"] for q in queries))
    assert len(stats["queries_per_difficulty"]) == 3


def test_every_memory_and_query_has_the_fields_of_the_format():
    for case in SUITE["test_cases"]:
        assert list(case) == [
            "memory_id",
            "content",
            "category",
            "feedback_type",
            "severity",
            "context",
            "generated_queries",
        ]
    rest = {"query", "difficulty", "expected_rank", "min_similarity"}
    assert {frozenset(query) - {"category"} for _, query in asked()} == {frozenset(rest)}
    ids = [case["memory_id"] for case in SUITE["test_cases"]]
    assert len(set(ids)) == len(ids)


def test_some_edge_cases_are_short_and_some_long_and_some_texts_stand_under_two_memories():
    edges = [len(q["query"].split()) for _, q in asked() if "category" not in q]
    assert min(edges) == 1
    assert max(edges) > 20
    texts = Counter(query["query"] for _, query in asked())
    assert sum(count == 2 for count in texts.values()) == 3


# A search written anew: the cosine of word counts, ties by the memory's id.


def counted(text: str) -> Counter[str]:
    return Counter(re.findall(r"[a-z0-9_]+", text.lower()))


def cosine(a: Counter[str], b: Counter[str]) -> float:
    shared = sum(count * b[word] for word, count in a.items())
    lengths = [math.sqrt(sum(count * count for count in one.values())) for one in (a, b)]
    return shared / (lengths[0] * lengths[1]) if shared else 0.0


def searched(threshold: float) -> list[tuple[str, int | None, float]]:
    """Of each query its category, the rank of its memory, and their likeness."""
    items = {str(case["memory_id"]): counted(case["content"]) for case in SUITE["test_cases"]}
    found = []
    for memory_id, query in asked():
        scores = {name: cosine(counted(query["query"]), bag) for name, bag in items.items()}
        kept = [name for name, score in scores.items() if score >= threshold]
        order = sorted(kept, key=lambda name: (-round(scores[name], 12), name))
        rank = order.index(memory_id) + 1 if memory_id in order else None
        found.append((kind_of(query), rank, scores[memory_id]))
    return found


def shares(ranks: list[int | None]) -> tuple[float, float]:
    inverse = [0.0 if rank is None else 1 / rank for rank in ranks]
    return ranks.count(1) / len(ranks), math.fsum(inverse) / len(ranks)


@pytest.mark.parametrize(("system", "threshold"), [("baseline_v1", 0.0), ("threshold_v2", 0.15)])
def test_the_reports_hold_what_a_plain_search_gives(memory, capfd, system, threshold):
    assert main(["run", "--quiet", "--system", system]) == 1
    report = json.loads((memory / "out" / f"{system}.json").read_text())
    found = searched(threshold)
    ranks = [rank for _, rank, _ in found]
    metrics = report["metrics"]
    assert (metrics["recall_at_1"], metrics["mrr"]) == pytest.approx(shares(ranks))
    assert metrics["recall_at_10"] == pytest.approx(
        sum(rank is not None and rank <= 10 for rank in ranks) / len(ranks)
    )
    alike = [likeness for _, rank, likeness in found if rank is not None and rank <= 10]
    assert metrics["mean_similarity"] == pytest.approx(math.fsum(alike) / len(alike))
    for name, own in report["query_category_breakdown"].items():
        told = shares([rank for kind, rank, _ in found if kind == name])
        assert (own["recall_at_1"], own["mrr"]) == pytest.approx(told)
    assert list(report["query_category_breakdown"]) == SIX
    assert (report["total_queries"], report["total_memories"]) == (243, 54)
    missed = sum(rank is None or rank > 10 for rank in ranks)
    counts = report["failures_by_category"]
    assert sum(count or 0 for count in counts.values()) == missed
    # A log without a threshold's lists does not tell whether there was one.
    excluded = sum(likeness < threshold for _, _, likeness in found) if threshold else None
    assert counts["threshold_exclusion"] == excluded
    assert None not in {count for name, count in counts.items() if name != "threshold_exclusion"}
    assert metrics["latency_p50_ms"] > 0
    assert metrics["latency_p95_ms"] >= metrics["latency_p50_ms"]


# The targets


def test_the_gates_are_the_documents_targets():
    gates = read_config(RECIPE / "karat.yaml").gates
    told = {
        str(gate.measure): (gate.min if gate.max is None else gate.max, gate.max is not None)
        for gate in gates
    }
    assert told == {
        "Hit@1": (0.80, False),
        "Hit@3": (0.90, False),
        "Hit@5": (0.95, False),
        "Hit@10": (0.98, False),
        "RR": (0.85, False),
        "nDCG@10": (0.90, False),
        "P@5": (0.70, False),
        "Sim@10": (0.65, False),
        "FPR@1": (0.05, True),
        "latency.total.p50": (50, True),
        "latency.total.p95": (100, True),
        "latency.total.p99": (200, True),
        "Coverage(of='items')@10": (1.0, False),
    }
    assert {gate.on for gate in gates} == {"mean"}
    assert {str(gate.measure) for gate in gates if not gate.strict} == {"Coverage(of='items')@10"}


@pytest.mark.parametrize(
    ("measure", "found", "verdict"),
    [
        ("Hit@1", 16, "fail"),
        ("Hit@1", 17, "pass"),
        ("Hit@3", 18, "fail"),
        ("Hit@5", 19, "fail"),
        ("Hit@5", 20, "pass"),
        ("RR", 17, "fail"),
        ("nDCG@10", 18, "fail"),
        ("nDCG@10", 19, "pass"),
        ("FPR@1", 19, "fail"),
        ("FPR@1", 20, "pass"),
        ("Coverage(of='items')@10", 19, "fail"),
        ("Coverage(of='items')@10", 20, "pass"),
    ],
)
def test_a_number_exactly_at_its_target_misses_it_but_for_full_coverage(measure, found, verdict):
    # of 20 queries so many find their memory first, the others find nothing: 16 is 80 %
    gold = karat.Gold.from_dict({f"q{at}": [f"m{at}"] for at in range(20)})
    lists = {f"q{at}": {f"m{at}" if at < found else "x": 1.0} for at in range(20)}
    corpus = karat.Corpus.from_dict({f"m{at}": {"text": "a memory"} for at in range(20)})
    run, whole = karat.Run.from_dict(lists), {"short_lists": "complete"}
    scores = karat.evaluate(run, gold, [measure], profile="memory", settings=whole, corpus=corpus)
    gates = read_config(RECIPE / "karat.yaml").gates
    (own,) = [gate for gate in gates if str(gate.measure) == measure]
    assert judge([own], scores, None, system="s").verdict == verdict


def test_the_gate_file_that_ships_has_the_same_targets():
    example = read_gate_file(Path(__file__).parents[2] / "examples" / "gates" / "memory.yaml").gates
    own = read_config(RECIPE / "karat.yaml").gates
    facts = [(str(g.measure), g.min, g.max, g.strict, g.on) for g in own]
    assert [(str(g.measure), g.min, g.max, g.strict, g.on) for g in example] == facts


def test_a_run_says_first_which_target_nobody_can_reach(memory, capfd):
    assert main(["run", "--system", "hybrid_v3"]) == 1
    first = capfd.readouterr().out.splitlines()[0]
    assert first == "OUT OF REACH  P@5: no ranking can exceed 0.70: the ceiling on this gold is 0.2"


def test_a_check_finds_the_targets_and_the_shared_texts_before_any_run(memory, capfd):
    assert main(["check", "karat.yaml", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)["findings"]
    by_kind = {one["kind"]: one for one in found}
    assert [one["measure"] for one in by_kind["unreachable_target"]["examples"]] == ["P@5"]
    assert by_kind["same_text_different_gold"]["count"] == 3
    assert not (memory / "runs").exists()


# The protocol


def test_a_change_is_compared_with_the_stored_baseline_and_what_fell_is_named(memory, capfd):
    assert main(["run", "--quiet"]) == 1
    assert main(["run", "--quiet", "--system", "baseline_v1", "--save", "--tag", "baseline"]) == 1
    (memory / "runs" / "baseline_v1.jsonl").unlink()
    files = ["--gold", "suite.json", "--corpus", "suite.json"]
    told = [*files, "--profile", "memory", "--baseline", "baseline"]
    rule = ["--margin", "0.02", "--margin-on", "mean", "--json"]
    capfd.readouterr()
    assert main(["compare", "runs/threshold_v2.jsonl", *told, *rule, "-m", QUALITY]) == 1
    rows = json.loads(capfd.readouterr().out)["comparisons"]
    fallen = {row["measure"] for row in rows if row["regression"]}
    by_hand = [[rank for _, rank, _ in searched(threshold)] for threshold in (0.0, 0.15)]
    worse = set()
    for k in (1, 3, 5, 10):
        before, after = (sum(r is not None and r <= k for r in ranks) for ranks in by_hand)
        worse |= {f"Hit@{k}"} if after < 0.98 * before else set()
    misses = [sum(rank != 1 for rank in ranks) for ranks in by_hand]
    worse |= {"FPR@1"} if misses[1] > 1.02 * misses[0] else set()
    assert fallen & {"Hit@1", "Hit@3", "Hit@5", "Hit@10", "FPR@1"} == worse
    assert "FPR@1" not in worse
    assert {"Hit@1", "Hit@10"} <= worse


def test_an_ab_test_is_decided_by_its_p(memory, capfd):
    assert main(["run", "--quiet"]) == 1
    capfd.readouterr()
    runs = ["runs/baseline_v1.jsonl", "runs/hybrid_v3.jsonl"]
    files = ["--gold", "suite.json", "--corpus", "suite.json"]
    told = [*files, "--profile", "memory", "-m", QUALITY, "--primary", "RR"]
    assert main(["compare", *runs, *told, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    (row,) = [one for one in found["comparisons"] if one["measure"] == "RR"]
    assert found["verdict"] == row["verdict"] == "better"
    assert row["p_adjusted"] < 0.05
    assert row["p_adjusted"] == pytest.approx(permuted(memory), abs=0.01)


def permuted(folder: Path) -> float:
    """The share of random swaps of the two systems that differ in MRR as much."""
    columns = []
    for system in ("baseline_v1", "hybrid_v3"):
        ranks = []
        for line in (folder / "runs" / f"{system}.jsonl").read_text().splitlines():
            record = json.loads(line)
            order = sorted(record["topk"], key=lambda hit: (-hit["score"], hit["chunk_id"]))
            names = [hit["chunk_id"] for hit in order]
            ranks.append(names.index(record["query_id"].partition("/")[0]) + 1)
        columns.append(1 / np.array(ranks))
    delta = columns[1] - columns[0]
    signs = np.random.default_rng(1).choice([-1, 1], size=(20_000, len(delta)))
    return float((np.abs(signs @ delta) >= abs(delta.sum()) - 1e-12).mean())


# No metric may get worse by more than 2 %: planted runs


HALF = 1_000
# The gold of half of the queries is found; in the change some others are, and some no more.
GAINED = 100


def change(folder: Path, percent: float) -> None:
    """A baseline and a change by so many per cent, down in recall and up in FPR and latency."""
    lost = GAINED + round(HALF * percent / 100)
    sides = {
        "base": (set(range(HALF)), 100.0),
        "new": (set(range(lost, HALF + GAINED)), 100.0 + percent),
    }
    cases = []
    for at in range(2 * HALF):
        asked = [{"query": f"what do we know of number {at}"}]
        cases.append({"memory_id": at, "content": "x", "generated_queries": asked})
    (folder / "suite.json").write_text(json.dumps({"test_cases": cases}))
    for name, (found, time) in sides.items():
        with (folder / f"{name}.jsonl").open("w") as log:
            for at in range(2 * HALF):
                hit = {"chunk_id": str(at) if at in found else "x", "score": 0.5, "similarity": 0.5}
                record = {"query_id": f"{at}/1", "system": name, "k": 10, "topk": [hit]}
                log.write(json.dumps({**record, "latency_ms": {"total": time}}) + "\n")


def regressions(capfd, *more: str) -> tuple[int, set[str]]:
    files = ["--gold", "suite.json", "--corpus", "suite.json"]
    told = ["base.jsonl", "new.jsonl", *files, "--profile", "memory", "--json"]
    few = ["--set", "boot=100", "--set", "permutations=1000"]
    code = main(["compare", *told, "--margin", "0.02", "--margin-on", "mean", *few, *more])
    rows = json.loads(capfd.readouterr().out)["comparisons"]
    return code, {row["measure"] for row in rows if row["regression"]}


EVERY = {
    *(f"Hit@{k}" for k in (1, 3, 5, 10)),
    *("RR", "nDCG@10", "P@5", "FPR@1", "Coverage(of='items')@10"),
    *(f"latency.total.p{share}" for share in (50, 95, 99)),
}


@pytest.mark.parametrize(
    ("percent", "code", "worse"),
    [(1.9, 0, set()), (2.0, 0, set()), (2.1, 1, EVERY), (3.0, 1, EVERY), (-3.0, 0, set())],
)
def test_a_metric_that_gets_worse_by_more_than_2_per_cent_is_a_regression(
    tmp_path, monkeypatch, capfd, percent, code, worse
):
    monkeypatch.chdir(tmp_path)
    change(tmp_path, percent)
    assert regressions(capfd) == (code, worse)


def test_fewer_false_positives_are_no_regression_and_more_of_them_are(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    change(tmp_path, 3.0)
    assert regressions(capfd, "-m", "FPR@1") == (1, {"FPR@1"})
    change(tmp_path, -3.0)
    assert regressions(capfd, "-m", "FPR@1") == (0, set())


def test_the_planted_change_is_what_it_says(tmp_path):
    change(tmp_path, 2.1)
    gold = karat.read_gold(tmp_path / "suite.json")
    base, new = (
        karat.evaluate(karat.read_run(tmp_path / f"{name}.jsonl"), gold, profile="memory").means()
        for name in ("base", "new")
    )
    assert np.isclose(new["Hit@1"] / base["Hit@1"], 0.979)
    assert np.isclose(new["FPR@1"] / base["FPR@1"], 1.021)
    assert np.isclose(new["latency.total.p95"] / base["latency.total.p95"], 1.021)


def test_the_page_shows_what_is_printed(examples):
    page = PAGE.read_text(encoding="utf-8")
    assert page == examples.refreshed(page), "run: python docs/examples.py docs/seed-memory.md"
