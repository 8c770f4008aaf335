"""The recipe ``minimal``: the service really started, its answers scored a second time by hand."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import yaml
from scipy import stats

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "src" / "karat" / "recipes" / "minimal"
PAGE = ROOT / "docs" / "seed-minimal.md"
K = 5


def shell(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command as a reader types it, with karat's Python first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The recipe in a folder, once run, and what karat said."""
    folder = tmp_path_factory.mktemp("recipe") / "minimal"
    shutil.copytree(RECIPE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    said = shell("karat run", folder)
    assert said.returncode == 0, said.stderr
    return folder, said


@pytest.fixture
def folder(done) -> Path:
    return done[0]


@pytest.fixture(scope="module")
def told(done) -> subprocess.CompletedProcess[str]:
    """What karat says when it is run again for all that it knows."""
    return shell("karat run --json", done[0])


@pytest.fixture
def report(told) -> dict:
    return json.loads(told.stdout)


@pytest.fixture
def karat(folder, run, monkeypatch):
    """Call karat in the folder, without a process of its own."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    return lambda words: run(*shlex.split(words))


@pytest.fixture
def items(folder) -> list[dict]:
    return jsonl(folder / "eval_set.jsonl")


@pytest.fixture
def answers(folder) -> dict[str, list[str]]:
    """What the service returned, as the log has it."""
    log = jsonl(folder / "runs" / "live.jsonl")
    return {row["query_id"]: [hit["chunk_id"] for hit in row["topk"]] for row in log}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """The service of the recipe by itself, as a user would start it."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "search_service.py", "corpus.jsonl", "--port", str(port)],
        cwd=RECIPE,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 60
        while True:
            try:
                httpx.get(url)
                break
            except httpx.TransportError:
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
        yield f"{url}/search"
    finally:
        process.terminate()
        process.wait(20)


# the loop


def test_the_four_steps_leave_their_files(done):
    folder, said = done
    assert said.stderr == (
        "live: 43 calls → runs/live.jsonl\n"
        "report → output/metrics.json, output/misses.json, output/report.md\n"
    )
    for name in ("Hit@k", "R@k", "P@k", "RR@k"):
        assert re.search(rf"^{name} +0\.\d{{4}} \[", said.stdout, re.MULTILINE)
    written = sorted(path.name for path in (folder / "output").iterdir())
    assert written == ["metrics.json", "misses.json", "report.md"]


def test_the_four_metrics_are_those_of_the_documents_formulas(folder, items, answers):
    recalls, precisions, hits, reciprocals = [], [], [], []
    for item in items:
        relevant = set(item["relevant_chunk_ids"])
        if not relevant:
            continue
        top = answers[item["id"]][:K]
        found = relevant & set(top)
        recalls.append(len(found) / len(relevant))
        precisions.append(len(found) / K)
        hits.append(1 if len(found) > 0 else 0)
        rank = min((place for place, one in enumerate(top, 1) if one in relevant), default=math.inf)
        reciprocals.append(0 if math.isinf(rank) else 1 / rank)

    def mean(values):
        return sum(values) / len(values)

    metrics = json.loads((folder / "output" / "metrics.json").read_text())
    assert metrics == pytest.approx(
        {
            "recall_at_k": mean(recalls),
            "k": K,
            "hit_rate": mean(hits),
            "precision_at_k": mean(precisions),
            "mrr": mean(reciprocals),
            "n": len(hits),
            "n_misses": hits.count(0),
            "n_failed": 0,
            "n_out_of_kb": len(items) - len(hits),
        }
    )
    # The service is honest: it misses a few, and the numbers are four different ones.
    assert 0.6 < metrics["hit_rate"] < 0.95
    assert len({metrics[key] for key in ("recall_at_k", "hit_rate", "precision_at_k", "mrr")}) == 4


def test_misses_are_the_questions_with_gold_and_no_hit(folder, items, answers):
    expected = [
        {
            "query": item["query"],
            "retrieved": answers[item["id"]][:K],
            "relevant": sorted(item["relevant_chunk_ids"]),
        }
        for item in items
        if item["relevant_chunk_ids"]
        and not set(item["relevant_chunk_ids"]) & set(answers[item["id"]][:K])
    ]
    assert len(expected) >= 3
    assert json.loads((folder / "output" / "misses.json").read_text()) == expected


def test_files_are_indented_by_two_and_begin_with_the_documents_keys(folder):
    metrics = (folder / "output" / "metrics.json").read_text()
    assert metrics.startswith('{\n  "recall_at_k": ')
    assert list(json.loads(metrics))[:2] == ["recall_at_k", "k"]
    misses = (folder / "output" / "misses.json").read_text()
    assert misses.startswith('[\n  {\n    "query": ')
    assert {tuple(one) for one in json.loads(misses)} == {("query", "retrieved", "relevant")}


def test_running_it_again_gives_the_same_bytes(folder):
    first = {path.name: path.read_bytes() for path in (folder / "output").glob("*.json")}
    assert shell("karat run --quiet", folder).returncode == 0
    assert {path.name: path.read_bytes() for path in (folder / "output").glob("*.json")} == first


def test_json_holds_the_whole_report(folder, told, report):
    assert (told.returncode, told.stderr) == (0, "")
    metrics = json.loads((folder / "output" / "metrics.json").read_text())
    means = {name: one["mean"] for name, one in report["systems"][0]["measures"].items()}
    assert means == {
        "Hit@k": metrics["hit_rate"],
        "R@k": metrics["recall_at_k"],
        "P@k": metrics["precision_at_k"],
        "RR@k": metrics["mrr"],
    }


def test_the_report_has_the_digest_of_the_eval_set(folder, report):
    digest = hashlib.sha256((folder / "eval_set.jsonl").read_bytes()).hexdigest()
    assert report["inputs"]["gold"] == {"name": "eval_set.jsonl", "sha256": digest}
    assert report["inputs"]["queries"] == report["inputs"]["gold"]


def test_the_interval_of_the_hit_rate_is_that_of_a_share(report, items):
    hit = report["systems"][0]["measures"]["Hit@k"]
    n = sum(bool(item["relevant_chunk_ids"]) for item in items)
    hits = round(hit["mean"] * n)
    low, high = stats.binomtest(hits, n).proportion_ci(0.95, method="exact")
    # Clopper and Pearson's, but for the error of 2,000 random weights.
    assert hit["ci"] == pytest.approx([low, high], abs=0.01)


def test_precision_stands_beside_the_ceiling_that_the_gold_allows(report, items):
    golds = [len(item["relevant_chunk_ids"]) for item in items if item["relevant_chunk_ids"]]
    ceiling = sum(min(own, K) / K for own in golds) / len(golds)
    assert report["systems"][0]["measures"]["P@k"]["ceiling"] == pytest.approx(ceiling)
    assert ceiling < 0.25


def test_no_service_is_left_running(folder):
    shell("karat run --quiet", folder)
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert [line for line in listed.splitlines() if str(folder) in line] == []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            assert path.resolve() != folder
        except OSError:
            continue


def test_a_missing_library_is_told_in_one_line(done, tmp_path):
    folder = tmp_path / "minimal"
    shutil.copytree(RECIPE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    # What Python finds first is a fastapi that is not there.
    (folder / "fastapi.py").write_text("raise ImportError('no', name='fastapi')\n")
    said = shell("karat run", folder)
    assert said.returncode == 2
    assert len(said.stderr.splitlines()) == 1
    assert "search_service.py needs fastapi; install it with: pip install 'karat[http,web]'" in (
        said.stderr
    )
    assert said.stderr.startswith("karat: karat.yaml:8: system 'live': start: the service ended")


def test_the_extra_that_the_service_names_brings_what_it_imports():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {re.split("[<>=]", one)[0] for one in extras["optional-dependencies"]["web"]}
    assert named == {"anyio", "fastapi", "karat[store]", "uvicorn"}


# the eval set


def test_the_eval_set_has_the_three_kinds_of_questions(items):
    kinds = [item["kind"] for item in items]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "easy": 25,
        "near_duplicate": 10,
        "out_of_kb": 8,
    }
    chunks = {row["chunk_id"]: row["text"] for row in jsonl(RECIPE / "corpus.jsonl")}
    assert len(chunks) >= 40
    assert all(re.fullmatch(r"[a-z]+#\d{3}", chunk) for chunk in chunks)
    for item in items:
        assert item["query"].strip()
        assert set(item["relevant_chunk_ids"]) <= set(chunks)
        outside = item["kind"] == "out_of_kb"
        assert bool(item["relevant_chunk_ids"]) != outside
        assert item.get("no_answer", False) == outside
    assert any(len(item["relevant_chunk_ids"]) > 1 for item in items)
    assert sum("note" in item for item in items) >= 10
    assert len({item["query"] for item in items}) == len(items)


def test_near_duplicates_are_told_before_anything_is_asked(karat):
    said = karat("check --json")
    assert said.code == 0
    found = {one["kind"]: one for one in json.loads(said.out)["findings"]}
    pairs = [set(one["items"]) for one in found["near_duplicate_items"]["examples"]]
    assert pairs == [{"backups#001", "backups#002"}, {"upgrade#001", "upgrade#002"}]
    # Jaccard similarity of the words, worked out here.
    words = {
        row["chunk_id"]: set(re.findall(r"\w+", row["text"].lower()))
        for row in jsonl(RECIPE / "corpus.jsonl")
    }
    near = [
        {one, other}
        for one in words
        for other in words
        if one < other and len(words[one] & words[other]) >= 0.8 * len(words[one] | words[other])
    ]
    assert pairs == near
    assert "twin_of_gold" in found
    assert "near_duplicate_queries" in found


def test_check_says_what_difference_so_many_questions_can_detect(karat, items):
    said = json.loads(karat("check --json").out)["detectable"]
    n = sum(bool(item["relevant_chunk_ids"]) for item in items)
    assert (said["n"], said["power"], said["confidence"]) == (n, 0.8, 0.95)
    # About as often as a paired t-test finds a difference of that size.
    line, shift = stats.t.ppf(0.975, n - 1), said["difference"] / said["sd"] * n**0.5
    power = stats.nct.sf(line, n - 1, shift) + stats.nct.cdf(-line, n - 1, shift)
    assert power == pytest.approx(0.8, abs=0.1)


def test_each_kind_has_its_own_means(report, items, answers):
    segments = report["systems"][0]["segments"]["kind"]
    for kind in ("easy", "near_duplicate"):
        own = [item for item in items if item["kind"] == kind]
        hits = [
            bool(set(item["relevant_chunk_ids"]) & set(answers[item["id"]][:K])) for item in own
        ]
        assert segments[kind]["Hit@k"]["mean"] == pytest.approx(sum(hits) / len(own))
    assert segments["out_of_kb"]["Hit@k"]["mean"] is None


def test_out_of_kb_questions_are_held_apart_and_their_scores_looked_at(folder, karat, items):
    said = karat("diagnose runs/live.jsonl --gold eval_set.jsonl --profile minimal --json")
    panel = json.loads(said.out)["systems"][0]["no_answer"]
    log = {row["query_id"]: row["topk"] for row in jsonl(folder / "runs" / "live.jsonl")}
    outside = [item["id"] for item in items if item["kind"] == "out_of_kb"]
    tops = [log[one][0]["score"] for one in outside]
    golds = [
        max((hit["score"] for hit in log[item["id"]] if hit["chunk_id"] in relevant), default=None)
        for item in items
        if (relevant := set(item["relevant_chunk_ids"]))
    ]
    found = [score for score in golds if score is not None]
    # The service has something for each of the eight, and any threshold is a trade.
    assert panel["without"]["false_evidence"]["mean"] == 1.0
    line = panel["best"]["threshold"]
    passing = sum(score >= line for score in tops) / 8
    kept = sum(score >= line for score in found) / len(found)
    assert panel["best"]["false_evidence"]["mean"] == pytest.approx(passing)
    assert panel["best"]["kept"]["mean"] == pytest.approx(kept)
    assert 0 < passing < 1
    # No threshold does better: the one that is chosen has the largest gap between the two.
    gaps = [
        sum(one >= other for one in found) / len(found) - sum(one >= other for one in tops) / 8
        for other in {*tops, *found}
    ]
    assert kept - passing == pytest.approx(max(gaps))
    # Pairs in which the gold scores above what the other question got; a tie is half a pair.
    pairs = [(one > other) + (one == other) / 2 for one in found for other in tops]
    assert panel["area"] == pytest.approx(sum(pairs) / len(pairs))


def test_notes_are_shown_beside_the_misses(karat, items):
    [item] = [one for one in items if one["id"] == "q10"]
    said = karat(
        "triage runs/live.jsonl --gold eval_set.jsonl --corpus corpus.jsonl "
        "--profile minimal --query q10"
    )
    assert item["note"] in said.out


def test_triage_writes_the_same_misses(folder, karat):
    said = karat(
        "triage runs/live.jsonl --gold eval_set.jsonl --profile minimal --quiet "
        "-o misses:triage.json"
    )
    assert said.code == 0, said.err
    assert (folder / "triage.json").read_bytes() == (folder / "output/misses.json").read_bytes()


def test_documents_can_be_expected_instead_of_chunks(folder, karat, items, answers):
    rows = [
        {
            "id": item["id"],
            "query": item["query"],
            "relevant_doc_ids": sorted(
                {one.partition("#")[0] for one in item["relevant_chunk_ids"]}
            ),
        }
        for item in items
    ]
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = karat(
        "eval runs/live.jsonl --gold docs.jsonl --profile minimal --set level=doc "
        "--quiet -o minimal:-"
    )
    hits = [
        any(one.partition("#")[0] in row["relevant_doc_ids"] for one in answers[row["id"]][:K])
        for row in rows
        if row["relevant_doc_ids"]
    ]
    assert json.loads(said.out)["hit_rate"] == pytest.approx(sum(hits) / len(hits))


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """The recipe with an eval set of the document's own two keys, one of them optional."""
    folder = tmp_path_factory.mktemp("recipe") / "bare"
    items = jsonl(RECIPE / "eval_set.jsonl")
    shutil.copytree(RECIPE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    bare = [
        {"query": one["query"], "relevant_chunk_ids": one["relevant_chunk_ids"]}
        if one["relevant_chunk_ids"]
        else {"query": one["query"]}
        for one in items
    ]
    # Blank lines between them mean nothing.
    (folder / "eval_set.jsonl").write_text("\n".join(json.dumps(row) + "\n" for row in bare))
    config = yaml.safe_load((folder / "karat.yaml").read_text())
    del config["by"]
    (folder / "karat.yaml").write_text(yaml.safe_dump(config))
    return folder


def test_the_script_reads_the_bare_format_too(bare, folder):
    said = shell("python eval_loop.py", bare)
    assert said.returncode == 0, said.stderr
    assert said.stdout == shell("python eval_loop.py", folder).stdout


def test_blank_lines_are_skipped_and_broken_ones_refused_with_their_line(bare):
    lines = (bare / "eval_set.jsonl").read_text().splitlines()
    assert lines[1] == ""
    (bare / "broken.jsonl").write_text("\n".join([*lines[:3], "", lines[2][:-1]]) + "\n")
    said = shell("karat check --gold broken.jsonl --queries broken.jsonl", bare)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith("karat: broken.jsonl:5: not valid JSON")


def test_the_bare_format_of_the_document_goes_through_the_loop(bare, items, answers):
    said = shell("karat run --quiet", bare)
    assert said.returncode == 0, said.stderr
    metrics = json.loads((bare / "output" / "metrics.json").read_text())
    assert (metrics["n"], metrics["n_out_of_kb"]) == (35, 8)
    hits = [
        bool(set(one["relevant_chunk_ids"]) & set(answers[one["id"]][:K]))
        for one in items
        if one["relevant_chunk_ids"]
    ]
    assert metrics["hit_rate"] == pytest.approx(sum(hits) / len(hits))


# the service


def test_hits_come_best_first_with_all_fields(service):
    found = httpx.post(service, json={"query": "roll back a release", "top_k": 3}).json()
    assert found["query"] == "roll back a release"
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    first = found["hits"][0]
    assert set(first) == {"doc_id", "chunk_id", "score", "text", "metadata"}
    assert (first["chunk_id"], first["doc_id"]) == ("deploy#004", "deploy")
    assert first["metadata"] == {"source": "runbook", "version": "3"}


def test_top_k_is_5_unless_said(service):
    assert len(httpx.post(service, json={"query": "the"}).json()["hits"]) == 5


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": ""},
        {"query": 5},
        {"query": "a", "top_k": 0},
        {"query": "a", "top_k": 51},
        {"query": "a", "top_k": "many"},
        {"query": "a", "filters": ["source"]},
    ],
)
def test_what_is_invalid_is_answered_with_422(service, body):
    assert httpx.post(service, json=body).status_code == 422


def test_top_k_goes_up_to_50(service):
    assert httpx.post(service, json={"query": "the", "top_k": 50}).status_code == 200


def test_filters_keep_what_is_equal(service):
    def ids(filters):
        body = {"query": "upgrade to version 2, a day", "top_k": 50, "filters": filters}
        return [hit["chunk_id"] for hit in httpx.post(service, json=body).json()["hits"]]

    everything = ids(None)
    chunks = jsonl(RECIPE / "corpus.jsonl")
    source = {row["chunk_id"]: row["source"] for row in chunks}
    assert ids({"version": "2"}) == ["upgrade#001"]
    tickets = [one for one in everything if source[one] == "tickets"]
    assert ids({"source": "tickets"}) == tickets
    assert tickets
    assert ids({"doc_id": "upgrade"}) == ["upgrade#001", "upgrade#002"]
    assert ids({"source": "Tickets"}) == []
    assert ids({"source": "docs", "version": "2"}) == ["upgrade#001"]


def test_a_list_is_ranked_by_the_share_of_shared_words(service):
    query = "How do I deploy to staging?"
    asked = re.findall(r"\w+", query.lower())
    expected = []
    for row in jsonl(RECIPE / "corpus.jsonl"):
        own = set(re.findall(r"\w+", row["text"].lower()))
        expected.append((row["chunk_id"], sum(word in own for word in asked) / len(asked)))
    expected = [one for one in sorted(expected, key=lambda one: -one[1]) if one[1] > 0][:5]
    hits = httpx.post(service, json={"query": query}).json()["hits"]
    found = [(hit["chunk_id"], hit["score"]) for hit in hits]
    assert [one for one, _ in found] == [one for one, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected])


# the change


def test_one_change_is_held_against_the_baseline(tmp_path, items):
    folder = tmp_path / "minimal"
    shutil.copytree(RECIPE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    said = shell("karat run change.yaml --json", folder)
    assert said.returncode == 0, said.stderr
    report = json.loads(said.stdout)
    ranks = {}
    for name in ("live", "rare"):
        log = jsonl(folder / "runs" / f"{name}.jsonl")
        lists = {row["query_id"]: [hit["chunk_id"] for hit in row["topk"]] for row in log}
        ranks[name] = [
            next((1 / at for at, hit in enumerate(lists[one["id"]][:K], 1)
                  if hit in one["relevant_chunk_ids"]), 0)
            for one in items if one["relevant_chunk_ids"]
        ]  # fmt: skip
    [row] = [one for one in report["comparisons"] if one["measure"] == "RR@k"]
    rise = sum(ranks["rare"]) / 35 - sum(ranks["live"]) / 35
    assert row["delta"] == pytest.approx(rise)
    assert rise > 0.1
    assert report["verdict"] == "better"
    [hit] = [one for one in report["comparisons"] if one["measure"] == "Hit@k"]
    assert hit["verdict"] == "unclear"


def test_the_change_taken_back_is_a_regression(tmp_path):
    folder = tmp_path / "minimal"
    shutil.copytree(RECIPE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    config = yaml.safe_load((folder / "change.yaml").read_text())
    config["systems"] = dict(reversed(config["systems"].items()))
    assert list(config["systems"]) == ["rare", "live"]
    (folder / "back.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    said = shell("karat run back.yaml", folder)
    assert said.returncode == 1, said.stderr
    assert said.stdout.startswith("WORSE  live worsens RR@k by 0.19 (")


def test_the_baseline_is_the_system_of_the_recipe():
    first = yaml.safe_load((RECIPE / "change.yaml").read_text())["systems"]
    live = yaml.safe_load((RECIPE / "karat.yaml").read_text())["systems"]["live"]
    rare = first["rare"]
    assert all(live[key] == value for key, value in first["live"].items())
    assert rare["start"] == [*live["start"], "--rare"]
    assert {key: rare[key] for key in rare if key != "start"} == {
        key: first["live"][key] for key in first["live"] if key != "start"
    }


# the script


def script(items: list[dict], answers: dict[str, list[str]]) -> tuple[float, list[str]]:
    """The document's own loop: any relevant id counts as 1, an empty set as 0 and as a miss."""
    scores, misses = [], []
    for item in items:
        relevant = set(item.get("relevant_chunk_ids", []))
        hit = 1.0 if relevant and any(one in relevant for one in answers[item["id"]]) else 0.0
        scores.append(hit)
        if hit == 0.0:
            misses.append(item["query"])
    return sum(scores) / max(len(scores), 1), misses


def test_the_scripts_recall_is_karats_hit_with_empty_gold_as_zero(folder, items, answers):
    own, misses = script(items, answers)
    said = shell("python eval_loop.py", folder)
    assert said.returncode == 0, said.stderr
    first, second, third = said.stdout.splitlines()
    assert first == f"script {{'recall_at_k': {round(own, 4)}, 'k': 5, 'n': 43}}"
    metrics = json.loads((folder / "output" / "metrics.json").read_text())
    assert f"'Hit@k': {round(metrics['hit_rate'], 4)}" in second
    assert f"'R@k': {round(metrics['recall_at_k'], 4)}" in second
    assert second.endswith("n 35")
    assert f"'Hit@k': {round(own, 4)}" in third
    assert third.endswith("n 43")
    # Half of what the script calls misses is out of the knowledge base.
    saved = [one["query"] for one in json.loads((folder / "output/misses.json").read_text())]
    outside = [item["query"] for item in items if not item["relevant_chunk_ids"]]
    assert sorted(misses) == sorted([*saved, *outside])


def test_the_page_shows_the_script_of_the_recipe():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks == [(RECIPE / "eval_loop.py").read_text(encoding="utf-8")]


def test_the_page_shows_what_karat_prints(examples):
    page = PAGE.read_text(encoding="utf-8")
    assert page == examples.refreshed(page), "run: python docs/examples.py docs/seed-minimal.md"


def test_every_section_of_the_document_has_its_place():
    page = PAGE.read_text(encoding="utf-8")
    for heading in (
        "## Overview",
        "## Definitions",
        "## Metric definitions (more formal)",
        "### Recall@k",
        "### Precision@k",
        "### Hit rate (a.k.a. success@k)",
        "### MRR (Mean Reciprocal Rank)",
        "## Worked example (k=5)",
        "## How to build an eval set",
        "## Minimal eval artifact format",
        "## Minimal evaluation script (shape)",
    ):
        assert f"\n{heading}\n" in page


def test_the_readme_names_every_file_and_the_counts_are_true(items):
    text = (RECIPE / "README.md").read_text(encoding="utf-8")
    for path in RECIPE.iterdir():
        if path.is_file() and path.name != "README.md":
            assert f"`{path.name}`" in text
    chunks = jsonl(RECIPE / "corpus.jsonl")
    documents = {row["chunk_id"].partition("#")[0] for row in chunks}
    assert f"{len(chunks)} chunks of {len(documents)} documents" in text
    assert f"{len(items)} questions: 25 `easy`, 10 about" in text
