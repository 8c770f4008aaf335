"""The RAG lesson, section by section, on the recipe's own logs."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from statistics import fmean

import pytest

ROOT = Path(__file__).parents[2]
PANEL = ("R@1", "R@3", "R@5", "nDCG(gain='exp')@5", "P@5", "DistinctDocs@5", "RR")


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


def test_every_figure_of_the_panel_has_an_interval(report):
    measures = report["systems"][1]["measures"]
    for name in (*PANEL, "latency.retrieve.p50", "latency.rerank.p50"):
        low, high = measures[name]["ci"]
        assert low <= measures[name]["mean"] <= high
        assert measures[name]["n"] >= 150


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
    name = "nDCG(gain='exp')@5"
    told = asked(
        *("eval", "runs/reranked.jsonl", "--gold", "dataset.jsonl"),
        *("-m", f"P@5, {name}, R@5, Hit@5", "--judged", "labels.jsonl"),
    )["systems"][0]
    assert set(told["bounds"]) == {"P@5", name}
    graded = {(one["query_id"], one["item_id"]): one["grade"] for one in labels}
    lower, upper = [], []
    gold = {one["query_id"]: one for one in records(here / "dataset.jsonl")}
    for call in records(here / "runs" / "reranked.jsonl"):
        own = evidence(gold[call["query_id"]])
        if own:
            top = [hit["chunk_id"] for hit in call["topk"][:5]]
            lower.append(sum(item in own for item in top) / 5)
            both = [item in own or graded.get((call["query_id"], item), 0) > 0 for item in top]
            upper.append(sum(both) / 5)
    bounds = told["bounds"]["P@5"]
    assert bounds["gold"]["mean"] == pytest.approx(fmean(lower), abs=1e-12)
    assert bounds["gold_and_judge"]["mean"] == pytest.approx(fmean(upper), abs=1e-12)
    assert fmean(upper) > fmean(lower)


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
    text = json.dumps(told)
    assert f"{sensitivity:.6f}" in text.replace(" ", "") or _holds(told, sensitivity)
    assert _holds(told, specificity)
    share = (confusion[True][1] + confusion[False][1]) / len(lines)
    assert _holds(told, (share + specificity - 1) / (sensitivity + specificity - 1))


def _holds(document: object, number: float) -> bool:
    """Whether a number stands anywhere in a document."""
    if isinstance(document, dict):
        return any(_holds(one, number) for one in document.values())
    if isinstance(document, list):
        return any(_holds(one, number) for one in document)
    return isinstance(document, float) and document == pytest.approx(number, abs=1e-12)


def test_every_segment_has_the_figures_of_the_lesson(asked):
    names = ("R@5", "nDCG(gain='exp')@5", "P@5", "DistinctDocs@5", "latency.retrieve.p50")
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
    config += "code_version: v7\nruns: versioned\n"
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
        assert [point["k"] for point in next(iter(system["sweep"]["measures"].values()))["points"]]
        assert system["failures"]["miss_at"] == 10
        assert system["meta"]["index_version"]
        assert system["meta"]["chunker"]
    assert report["systems"][1]["meta"]["reranker_model"]


def test_the_gates_are_those_of_the_lesson(report):
    limits = {
        (gate["measure"], json.dumps(gate["segment"]), gate["on"]): gate.get("min", gate.get("max"))
        for gate in report["gates"]
    }
    assert limits == {
        ("R@5", "null", "ci_low"): 0.90,
        ("R@5", '{"language": "pt-BR"}', "ci_low"): 0.85,
        ("R@5", '{"language": "es-AR"}', "ci_low"): 0.85,
        ("nDCG(gain='exp')@5", "null", "ci_low"): 0.80,
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


def test_exercise_1_curves_have_a_knee_in_each_segment(asked):
    told = asked(
        *("sweep", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "--profile", "rag"),
        *("--k", "1,3,5,10,20", "--by", "language", "--flat", "0.1"),
    )
    text = json.dumps(told["systems"][0]["segments"]["language"])
    for language in ("en", "pt-BR", "es-AR"):
        assert language in told["systems"][0]["segments"]["language"]
    assert text.count('"knee"') >= 6


def test_exercise_2_the_reranker_is_held_against_the_raw_list(here, asked):
    told = asked("stages", "runs/reranked.jsonl", "--gold", "dataset.jsonl", "--profile", "rag")
    gold = {one["query_id"]: set(evidence(one)) for one in records(here / "dataset.jsonl")}
    changes = [
        (
            sum(hit["chunk_id"] in own for hit in call["topk"][:5])
            - sum(hit["chunk_id"] in own for hit in call["raw"][:5])
        )
        / 5
        for call in records(here / "runs" / "reranked.jsonl")
        if (own := gold[call["query_id"]])
    ]
    assert _holds(told, fmean(changes))


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


def test_exercise_4_newer_documents_are_taken_out(here, asked):
    told = asked(
        *("compare", "runs/bm25.jsonl", "runs/fresh.jsonl", "--gold", "dataset.jsonl"),
        *("--corpus", "corpus.jsonl", "-m", "Fresh@5, R@5", "--profile", "rag"),
    )
    fresh = [system["measures"]["Fresh@5"]["mean"] for system in told["systems"]]
    versions = {one["chunk_id"]: one["version"] for one in records(here / "corpus.jsonl")}
    dates = {one["query_id"]: one.get("as_of") for one in records(here / "dataset.jsonl")}
    asked_with_gold = {one["query_id"] for one in records(here / "dataset.jsonl")}
    shares = [
        fmean(versions[hit["chunk_id"]] <= dates[call["query_id"]] for hit in call["topk"][:5])
        for call in records(here / "runs" / "bm25.jsonl")
        if call["query_id"] in asked_with_gold and dates[call["query_id"]] and call["topk"]
    ]
    assert fresh[0] == pytest.approx(fmean(shares), abs=0.02)
    assert fresh[0] < 1.0
    assert fresh[1] == 1.0


def test_exercise_5_three_hard_negatives_for_a_hundred_queries(asked):
    told = asked(
        *("stress", "karat.yaml", "--system", "reranked", "--insert", "3", "--at", "1,2,3"),
        *("--sample", "100", "-m", "nDCG(gain='exp')@5"),
    )
    text = json.dumps(told)
    assert '"n": 100' in text
    assert '"drop"' in text


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


def test_the_page_shows_what_is_printed(examples):
    page = (ROOT / "docs" / "seed-rag.md").read_text(encoding="utf-8")
    assert page == examples.refreshed(page), "run: python docs/examples.py docs/seed-rag.md"
