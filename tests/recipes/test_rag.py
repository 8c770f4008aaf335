"""The RAG lesson, section by section, on the recipe's own logs."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
OPEN = "unjudged"
PERCENTILES = {"p50": 50, "p90": 90}
PANEL = ("R@1", "R@3", "R@5", "nDCG@5", "P@5", "DistinctDocs@5", "RR")


@pytest.fixture(scope="module")
def folder(help_centre, tmp_path_factory) -> Path:
    """The recipe after ``karat run``, and the systems of its exercises beside it."""
    place = Path(shutil.copytree(help_centre, tmp_path_factory.mktemp("lesson") / "rag"))
    for system in ("fresh", "routed", "rewritten"):
        shutil.copy(place / "runs" / "exercises" / f"{system}.jsonl", place / "runs")
    return place


@pytest.fixture(scope="module")
def report(folder) -> dict:
    return json.loads((folder / "out" / "report.json").read_text())


@pytest.fixture
def here(folder, monkeypatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def asked(run, here):
    """A command's JSON."""

    def ask(*words: str, code: int = 0) -> dict:
        done = run(*words, "--json")
        assert done.code == code, done.err
        return json.loads(done.out)

    return ask


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def evidence(record: dict) -> dict[str, float]:
    """Grades of the gold, by hand."""
    return {
        one if isinstance(one, str) else one["chunk_id"]: 2.0
        if isinstance(one, str)
        else float(one["grade"])
        for one in record.get("gold_evidence", [])
    }


def ndcg(found: list[str], grades: dict[str, float], k: int) -> float:
    """The lesson's nDCG, with gains of 2^grade - 1 and the ideal list of all gold."""

    def gained(values) -> float:
        return sum((2**value - 1) / math.log2(place + 2) for place, value in enumerate(values))

    best = sorted(grades.values(), reverse=True)[:k]
    return gained(grades.get(item, 0) for item in found[:k]) / gained(best)


def test_every_figure_of_the_panel_has_an_interval(report, asked):
    measures = report["systems"][1]["measures"]
    # Latencies differ from run to run, so the report compares none; the profile has them all.
    words = ("eval", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "--profile", "rag")
    latencies = asked(*words)["systems"][0]["measures"]
    stages = [f"latency.{stage}.{part}" for stage in ("retrieve", "rerank") for part in PERCENTILES]
    for name, own in [*((name, measures) for name in PANEL), *((one, latencies) for one in stages)]:
        low, high = own[name]["ci"]
        assert low <= own[name]["mean"] <= high
        assert own[name]["n"] >= 150


def test_percentiles_of_latency_are_those_of_the_log(folder, asked):
    words = ("eval", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "--profile", "rag")
    told = asked(*words)["systems"][0]["measures"]
    calls = records(folder / "runs" / "reranked.jsonl")
    for stage in ("retrieve", "rerank"):
        spent = [call["latency_ms"][stage] for call in calls]
        for part, share in PERCENTILES.items():
            expected = np.percentile(spent, share)
            assert told[f"latency.{stage}.{part}"]["mean"] == pytest.approx(expected)


def test_recall_and_precision_are_those_of_the_lessons_snippets(folder, report):
    gold = {one["query_id"]: set(evidence(one)) for one in records(folder / "dataset.jsonl")}
    recalls, precisions = [], []
    for call in records(folder / "runs" / "reranked.jsonl"):
        if relevant := gold[call["query_id"]]:
            top = [hit["chunk_id"] for hit in call["topk"]][:5]
            recalls.append(len(set(top) & relevant) / max(1, len(relevant)))
            precisions.append(sum(item in relevant for item in top) / 5)
    measures = report["systems"][1]["measures"]
    assert measures["R@5"]["mean"] == pytest.approx(fmean(recalls), abs=1e-12)
    assert measures["P@5"]["mean"] == pytest.approx(fmean(precisions), abs=1e-12)


def test_conversations_are_resampled_as_a_whole(asked):
    words = ("eval", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "-m", "R@5")
    whole = asked(*words)
    single = asked(*words, "--set", "unit=query")
    assert (whole["conventions"]["unit"], single["conventions"]["unit"]) == ("group", "query")
    a, b = (one["systems"][0]["measures"]["R@5"] for one in (whole, single))
    assert a["mean"] == b["mean"]
    assert a["ci"] != b["ci"]


def test_a_chunk_is_correct_if_its_document_is_gold(folder, asked):
    words = ("eval", "runs/bm25.jsonl", "--gold", "dataset.jsonl", "-m", "Hit@5")
    told = asked(*words, "--set", "level=doc")["systems"][0]["measures"]["Hit@5"]["mean"]
    docs = {
        one["query_id"]: {item.partition("#")[0] for item in evidence(one)}
        for one in records(folder / "dataset.jsonl")
    }
    hits = [
        any(hit["chunk_id"].partition("#")[0] in docs[call["query_id"]] for hit in call["topk"][:5])
        for call in records(folder / "runs" / "bm25.jsonl")
        if docs[call["query_id"]]
    ]
    assert told == pytest.approx(fmean(hits), abs=1e-12)


@pytest.fixture
def labels(run, here):
    """What the stand-in judge says of the top 5 of both systems."""
    runs = ("runs/bm25.jsonl", "runs/reranked.jsonl")
    common = ("--gold", "dataset.jsonl", "--corpus", "corpus.jsonl", "--depth", "5")
    assert run("pool", *runs, *common, "-o", "pool.jsonl", "--quiet").code == 0
    judge = ("--judge", "overlap", "-o", "labels.jsonl", "--restart", "--quiet")
    assert run("judge", "pool.jsonl", *judge).code == 0
    return records(here / "labels.jsonl")


def test_a_pool_is_the_union_of_the_tops_less_what_is_judged(here, labels):
    union = {
        (call["query_id"], hit["chunk_id"])
        for name in ("bm25", "reranked")
        for call in records(here / "runs" / f"{name}.jsonl")
        for hit in call["topk"][:5]
    }
    judged = {
        (one["query_id"], item)
        for one in records(here / "dataset.jsonl")
        for item in (*evidence(one), *one.get("negatives", []))
    }
    pool = records(here / "pool.jsonl")
    assert {(one["query_id"], one["item_id"]) for one in pool} == union - judged
    assert len(pool) == len(union - judged)
    assert not {"system", "rank", "score"} & set(pool[0])


def test_a_pool_is_judged_and_its_labels_are_gold(here, labels, asked):
    assert {one["grade"] for one in labels} == {0, 1, 2}
    assert all(one["rater"].startswith("overlap@") and one["rationale"] for one in labels)
    told = asked("eval", "runs/bm25.jsonl", "--gold", "labels.jsonl", "-m", "P@5")
    assert told["counts"]["queries"] == len({one["query_id"] for one in labels})


def test_judged_labels_move_precision_and_ndcg_alone(here, labels, asked):
    name = "nDCG@5"
    told = asked(
        *("eval", "runs/reranked.jsonl", "--gold", "dataset.jsonl"),
        *("-m", f"P@5, {name}, R@5, Hit@5", "--judged", "labels.jsonl", "--profile", "rag"),
    )["systems"][0]
    assert set(told["bounds"]) == {"P@5", name}
    graded: dict[str, dict[str, float]] = {}
    for one in labels:
        graded.setdefault(one["query_id"], {})[one["item_id"]] = one["grade"]
    sides = {"gold": ([], []), "gold_and_judge": ([], [])}
    questions = {one["query_id"]: one for one in records(here / "dataset.jsonl")}
    for call in records(here / "runs" / "reranked.jsonl"):
        question = questions[call["query_id"]]
        if own := evidence(question):
            top = [hit["chunk_id"] for hit in call["topk"][:5]]
            known = dict.fromkeys(question["negatives"], 0.0) | own
            both = graded.get(call["query_id"], {}) | known
            for side, grades in (("gold", known), ("gold_and_judge", both)):
                precisions, gains = sides[side]
                precisions.append(sum(grades.get(item, 0) > 0 for item in top) / 5)
                gains.append(ndcg(top, grades, 5))
    for side, (precisions, gains) in sides.items():
        assert told["bounds"]["P@5"][side]["mean"] == pytest.approx(fmean(precisions), abs=1e-12)
        assert told["bounds"][name][side]["mean"] == pytest.approx(fmean(gains), abs=1e-12)
    assert fmean(sides["gold_and_judge"][0]) > fmean(sides["gold"][0])
    # The pool went down to rank 5, so of the top 5 nothing is left open.
    assert told["bounds"]["P@5"]["unjudged"] == 0


def test_what_the_labels_turn_round_is_told(here, labels, run):
    """The stand-in likes what shares words, as BM25 does; the reranker looks worse by it."""
    words = ("compare", "runs/bm25.jsonl", "runs/reranked.jsonl", "--gold", "dataset.jsonl")
    words = (*words, "-m", "P@5, P@10", "--judged", "labels.jsonl", "-o", "turned.json")
    done = run(*words)
    told = json.loads((here / "turned.json").read_text())
    first, second = (system["bounds"]["P@5"] for system in told["systems"])
    deltas = {side: second[side]["mean"] - first[side]["mean"] for side in first if side != OPEN}
    assert deltas["gold"] > 0 > deltas["gold_and_judge"]
    assert told["judged"]["reversed"][0] == pytest.approx(
        {"measure": "P@5", "baseline": "bm25", "system": "reranked", **deltas}
    )
    assert f"but falls by {-deltas['gold_and_judge']:.4f} with the labels" in done.out
    # Nobody was asked about ranks 6 to 10.
    assert second[OPEN] == 0 < told["systems"][1]["bounds"]["P@10"][OPEN]


def test_a_judge_is_calibrated_against_human_labels(here, asked):
    """A judge that is wrong at known rates, in place of a model."""
    rng = random.Random(5)
    confusion = {True: [0, 0], False: [0, 0]}
    lines = []
    for one in records(here / "dataset.jsonl"):
        pairs = [(item, True) for item in evidence(one)]
        pairs += [(item, False) for item in one.get("negatives", [])]
        for item, relevant in pairs:
            said = rng.random() < (0.9 if relevant else 0.2)
            confusion[relevant][said] += 1
            pair = {"query_id": one["query_id"], "item_id": item}
            lines.append(json.dumps({**pair, "grade": 2 if said else 0, "rater": "noisy"}))
    (here / "noisy.jsonl").write_text("\n".join(lines) + "\n")
    told = asked("calibrate", "noisy.jsonl", "--human", "dataset.jsonl")
    sensitivity = confusion[True][1] / sum(confusion[True])
    specificity = confusion[False][0] / sum(confusion[False])
    assert told["sensitivity"]["value"] == pytest.approx(sensitivity, abs=1e-12)
    assert told["specificity"]["value"] == pytest.approx(specificity, abs=1e-12)
    share = (confusion[True][1] + confusion[False][1]) / len(lines)
    assert told["share"]["value"] == pytest.approx(share, abs=1e-12)
    corrected = (share + specificity - 1) / (sensitivity + specificity - 1)
    assert told["corrected"]["value"] == pytest.approx(corrected, abs=1e-12)
    low, high = told["corrected"]["ci"]
    assert low < corrected < high


def test_every_segment_has_the_figures_of_the_lesson(asked):
    names = ("R@5", "nDCG@5", "P@5", "DistinctDocs@5", "latency.retrieve.p50")
    columns = ("topic", "language", "version", "difficulty", "answer_type")
    by = [word for column in columns for word in ("--by", column)]
    told = asked(
        *("eval", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "--corpus", "corpus.jsonl"),
        *("--queries", "dataset.jsonl", "-m", ", ".join(names), *by),
    )
    segments = told["systems"][0]["segments"]
    assert set(segments) == set(columns)
    assert set(segments["language"]) == {"en", "pt-BR", "es-AR"}
    for column in columns:
        for figures in segments[column].values():
            assert set(names) <= set(figures)


def test_the_logs_keep_the_contract(run, here):
    assert run("schema", "run-log", "--check", *map(str, here.glob("runs/*.jsonl"))).code == 0
    first = records(here / "runs" / "reranked.jsonl")[0]
    wanted = {"query_id", "system", "k_raw", "topk", "latency_ms", "index_version", "chunker"}
    assert wanted <= set(first)
    assert {"rank", "chunk_id", "score", "doc_version"} <= set(first["topk"][0])
    assert {"retrieve", "rerank"} <= set(first["latency_ms"])


def test_the_versions_of_data_and_code_reach_the_report(run, here, folder):
    dates = sorted(one["as_of"] for one in records(folder / "dataset.jsonl") if "as_of" in one)
    config, _, _ = (folder / "karat.yaml").read_text().partition("outputs:")
    config = config.replace("code_version: demo-1 ", "code_version: v7 ")
    config += "runs: versioned\n"
    (here / "versioned.yaml").write_text(config)
    words = ("run", "versioned.yaml", "--system", "bm25", "-o", "versioned.json", "--quiet")
    run(*words)
    from_run = json.loads((here / "versioned.json").read_text())["inputs"]
    done = run("eval", "versioned/bm25.jsonl", "--gold", "dataset.jsonl", "-m", "R@5", "--json")
    from_log = json.loads(done.out)["inputs"]
    for inputs in (from_run, from_log):
        assert inputs["dataset_version"] == "2026.1"
        assert inputs["as_of_range"] == [dates[0], dates[-1]]
        assert inputs["code_version"] == "v7"
    done = run("eval", "versioned/bm25.jsonl", "--gold", "dataset.jsonl", "-m", "R@5")
    said = f"dataset version 2026.1 · as_of range {dates[0]} to {dates[-1]} · code version v7"
    assert done.out.splitlines()[-1] == said


def test_twenty_queries_stand_beside_gold_and_bm25(asked):
    told = asked(
        *("triage", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "--corpus", "corpus.jsonl"),
        *("--profile", "rag"),
    )
    assert len(told["queries"]) == 20
    first = told["queries"][0]
    assert first["gold"]
    assert len(first["top"]) == 10
    assert first["bm25"]


def test_the_report_has_the_layout_of_section_10(report):
    for system in report["systems"]:
        assert set(PANEL) <= set(system["measures"])
        assert {"language", "topic", "difficulty", "answer_type"} <= set(system["segments"])
        assert set(PANEL) <= set(system["segments"]["language"]["pt-BR"])
        ks = [point["k"] for point in next(iter(system["sweep"]["measures"].values()))["points"]]
        assert ks == [1, 3, 5, 10, 20]
        assert system["meta"]["index_version"]
        assert system["meta"]["chunker"]
    assert report["systems"][1]["meta"]["reranker_model"]


def test_the_report_lists_the_misses_with_their_gold(folder, report):
    text = (folder / "out" / "report.md").read_text(encoding="utf-8")
    for system in report["systems"]:
        calls = records(folder / "runs" / f"{system['name']}.jsonl")
        top = {one["query_id"]: {hit["chunk_id"] for hit in one["topk"][:10]} for one in calls}
        missed = {
            one["query_id"]: evidence(one)
            for one in records(folder / "dataset.jsonl")
            if evidence(one) and not top[one["query_id"]] & set(evidence(one))
        }
        told = system["failures"]["missed"]
        assert [one["query_id"] for one in told] == list(missed)
        assert 10 < len(told) == system["failures"]["misses"] <= 20
        for one in told:
            assert set(one["gold"]) == set(missed[one["query_id"]])
            row = f"| {one['query_id']} | {one['class']} | {', '.join(one['gold'])} |"
            assert row.replace("_", "\\_").replace("#", "\\#") in text


def test_losses_are_told_of_the_lessons_own_ndcg(folder, report):
    gold = {one["query_id"]: evidence(one) for one in records(folder / "dataset.jsonl")}
    for system in report["systems"]:
        lists = {
            call["query_id"]: [hit["chunk_id"] for hit in call["topk"]]
            for call in records(folder / "runs" / f"{system['name']}.jsonl")
        }
        value = fmean(ndcg(lists[query], own, 10) for query, own in gold.items() if own)
        fall = system["waterfalls"][0]
        assert fall["measure"] == "nDCG@10"
        assert fall["value"] == pytest.approx(value, abs=1e-12)


def test_the_written_report_says_what_was_measured(folder):
    dates = sorted(one["as_of"] for one in records(folder / "dataset.jsonl"))
    text = (folder / "out" / "report.md").read_text(encoding="utf-8").replace("\\", "")
    assert "| dataset version | 2026.1 |" in text
    assert f"| as_of range | {dates[0]} to {dates[-1]} |" in text
    assert "| code version | demo-1 |" in text
    assert "| system | index version | chunker | reranker model |" in text
    made = "| reranked | help-centre-2026-02 | algo paragraph, target_words 80, overlap 0 |"
    assert f"{made} reranker.py:score, kind call, sha256 " in text


def test_the_gates_are_those_of_the_lesson(report):
    limits = {
        (gate["measure"], json.dumps(gate["segment"]), gate["on"]): gate.get("min", gate.get("max"))
        for gate in report["gates"]
    }
    assert limits == {
        ("R@5", "null", "ci_low"): 0.90,
        ("R@5", '{"language": "pt-BR"}', "ci_low"): 0.85,
        ("R@5", '{"language": "es-AR"}', "ci_low"): 0.85,
        ("nDCG@5", "null", "ci_low"): 0.80,
        ("P@5", "null", "ci_low"): 0.60,
        ("DistinctDocs@5", "null", "mean"): 3.0,
        ("latency.retrieve.p50", "null", "ci_high"): 60,
        ("latency.rerank.p50", "null", "ci_high"): 50,
    }


def test_the_gates_are_read_in_their_own_layout(run, here):
    done = run(
        *("eval", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "--queries", "dataset.jsonl"),
        *("--profile", "rag", "--gates", "ci_gates.yaml", "--json"),
    )
    gates = {
        (gate["measure"], (gate["segment"] or {}).get("language"))
        for gate in json.loads(done.out)["gates"]
    }
    assert {("R@5", None), ("R@5", "pt-BR"), ("R@5", "es-AR"), ("P@5", None)} <= gates
    assert done.code == 1
    assert json.loads(done.out)["gates_left_out"]


def test_a_gate_above_its_ceiling_is_called_unreachable(run, here):
    (here / "high.yaml").write_text("- mean P@5 >= 0.75\n")
    words = ("--gold", "dataset.jsonl", "-m", "P@5", "--gates", "high.yaml")
    assert run("eval", "runs/reranked.jsonl", *words).out.startswith("OUT OF REACH  P@5")


def test_the_page_shows_what_is_printed(examples):
    page = (ROOT / "docs" / "seed-rag.md").read_text(encoding="utf-8")
    assert page == examples.refreshed(page), "run: python docs/examples.py docs/seed-rag.md"
