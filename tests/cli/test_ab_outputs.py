"""The document of ``karat ab`` from karat eval, compare and run: ``-o ab:FILE``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from .ab_folder import (
    EXAMPLE,
    FUSED,
    GIVEN,
    QUERIES,
    ROOT,
    SEARCHED,
    TABLES,
    document,
    lay_down,
    refused,
    sha256,
    write,
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files of :mod:`ab_folder`, as current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEMATIS_GIT_SHA", raising=False)
    lay_down()
    return tmp_path


def by_compare(*more: str) -> tuple[str, ...]:
    return ("compare", "a.trec", "b.trec", "--gold", "qrels.tsv", *TABLES[:2], "--quiet", *more)


AS_AB = ("--profile", "ab")
KARAT_YAML = """
queries: queries.tsv
gold: qrels.tsv
corpus: corpus.jsonl
profile: ab
settings: {k: 3}
systems:
  one: {retriever: quality, config: a.yaml}
  two: {retriever: quality, config: b.yaml}
outputs: ["ab:run.json", "ab:run.csv"]
"""


@pytest.mark.parametrize("mmr", ["", ", mmr: {enabled: true, lambda: 0.3, k: 2}"])
def test_run_writes_the_bytes_that_ab_writes(run, folder, mmr):
    write("b.yaml", FUSED.replace("0.6}", f"0.6}}{mmr}"))
    write("karat.yaml", KARAT_YAML)
    assert run("run", "--quiet").code == 0
    assert run(*SEARCHED, "--k", "3", "--csv", "out/ab.csv").code == 0
    assert Path("run.json").read_bytes() == Path("out/ab.json").read_bytes()
    assert Path("run.csv").read_bytes() == Path("out/ab.csv").read_bytes()


def test_logs_of_a_run_give_the_same_bytes_to_eval_and_compare(run, folder):
    write("karat.yaml", KARAT_YAML)
    assert run("run", "--quiet").code == 0
    logs = ("runs/one.jsonl", "runs/two.jsonl")
    given = ("--gold", "qrels.tsv", *TABLES[:2], "--corpus", "corpus.jsonl", *AS_AB, "--quiet")
    for command in ("eval", "compare"):
        done = run(command, *logs, *given, "--set", "k=3", "-m", "R@1", "-o", f"ab:{command}.json")
        assert done.code in (0, 1)
        assert Path(f"{command}.json").read_bytes() == Path("run.json").read_bytes()


def test_runs_of_others_have_their_file_s_name_and_no_digest(run, folder):
    write("a.trec", "q1 Q0 d2 1 3 a\nq1 Q0 d1 2 2 a\nq3 Q0 d5 1 2 a\n")
    assert run(*by_compare(*AS_AB, "-o", "ab:x.json", "-o", "ab:x.csv")).code in (0, 1)
    assert run(*GIVEN, "--csv", "ab.csv").code == 0
    ours, theirs = document("x.json"), document("ab.json")
    assert Path("x.csv").read_bytes() == Path("ab.csv").read_bytes()
    for system, name in (("A", "a.trec"), ("B", "b.trec")):
        assert ours["systems"][system].pop("config_path") == name
        assert ours["systems"][system].pop("config_digest") == "unknown"
        del theirs["systems"][system]["config_path"], theirs["systems"][system]["config_digest"]
    assert ours == theirs
    assert ours["corpus_digest"] == "absent"


def test_a_log_tells_the_digest_of_its_config(run, folder):
    hit = {"rank": 1, "chunk_id": "d1", "score": 1.0}
    record = {"query_id": "q1", "retriever": "bm25", "config_digest": "c0ffee", "topk": [hit]}
    write("log.jsonl", json.dumps(record) + "\n")
    words = [word.replace("a.trec", "log.jsonl") for word in by_compare(*AS_AB, "-o", "ab:x.json")]
    assert run(*words).code in (0, 1)
    side = document("x.json")["systems"]["A"]
    assert (side["config_path"], side["config_digest"]) == ("log.jsonl", "c0ffee")


def test_a_config_with_stages_around_it_does_not_pass_for_the_config(run, folder):
    write("karat.yaml", KARAT_YAML.replace("config: b.yaml", "config: b.yaml, threshold: 0"))
    assert run("run", "--quiet").code == 0
    a, b = (document("run.json")["systems"][side] for side in "AB")
    assert a["config_path"] == "a.yaml"
    assert b["config_path"] == "two.jsonl"
    log = json.loads(Path("runs/two.jsonl").read_text().splitlines()[0])
    assert b["config_digest"] == log["config_digest"] != log["settings_digest"]


def test_queries_stand_in_their_file_s_order_and_without_one_its_digest_is_absent(run, folder):
    write("queries.tsv", "".join(sorted(QUERIES.splitlines(keepends=True), reverse=True)))
    assert run(*by_compare(*AS_AB, "-o", "ab:x.json")).code in (0, 1)
    data = document("x.json")
    assert [row["qid"] for row in data["per_query"]] == ["q5", "q4", "q3", "q2", "q1"]
    assert data["queries_digest"] == sha256("queries.tsv")
    done = run("eval", "a.trec", "b.trec", "--gold", "qrels.tsv", *AS_AB, "-o", "ab:y.json")
    assert done.code == 0
    assert document("y.json")["queries_digest"] == "absent"


def test_hits_end_at_k_however_deep_the_lists_are_looked_at(run, folder):
    write("qrels.tsv", "q1\td1\t1\nq1\td2\t0\nq1\td3\t-1\nq1\td4\t2\n")
    lines = (f"q1 Q0 d{at} {at} {9 - at} a\n" for at in (5, 2, 3, 4, 1))
    write("a.trec", "".join(lines))
    assert run(*by_compare(*AS_AB, "--set", "k=3", "-o", "ab:x.json")).code in (0, 1)
    data = document("x.json")
    assert data["k"] == 3
    # By score d1, d2, d3, d4, d5: what was judged 0 or below is shown, d4 is past the cut.
    assert data["per_query"][0]["A"]["hits"] == ["d1", "d2", "d3"]
    assert data["per_query"][0]["A"]["recall"] == 0.5


def test_a_log_goes_by_score_under_the_profile_and_by_rank_when_told(run, folder):
    hits = [
        {"rank": 1, "chunk_id": "d1", "score": 0.1},
        {"rank": 2, "chunk_id": "d2", "score": 0.9},
    ]
    write("log.jsonl", json.dumps({"query_id": "q1", "topk": hits}) + "\n")
    words = [word.replace("a.trec", "log.jsonl") for word in by_compare(*AS_AB)]
    by_rank = ("--set", "order=rank", "--set", "k=1")
    assert run(*words, "--set", "k=1", "-o", "ab:score.json").code in (0, 1)
    assert run(*words, *by_rank, "-o", "ab:rank.json").code in (0, 1)
    found = [document(name)["per_query"][0]["A"]["hits"] for name in ("score.json", "rank.json")]
    assert found == [[], ["d1"]]


def test_a_failed_call_counts_0_and_is_told_by_the_report(run, folder):
    good = {"query_id": "q1", "topk": [{"rank": 1, "chunk_id": "d1", "score": 1.0}]}
    bad = {"query_id": "q2", "topk": [], "error": "timed out"}
    write("log.jsonl", f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    words = [word.replace("a.trec", "log.jsonl") for word in by_compare(*AS_AB, "-o", "ab:x.json")]
    words.remove("--quiet")
    done = run(*words)
    rows = document("x.json")["per_query"]
    assert [row["A"]["recall"] for row in rows] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert document("x.json")["systems"]["A"]["metrics"]["macro"]["recall"] == 0.2
    assert re.search(r"1 failed|failed.*1", done.out)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (by_compare("-o", "ab:x.json"), ("ab:", "profile ab", "--profile ab")),
        (
            ("eval", "a.trec", "--gold", "qrels.tsv", *AS_AB, "-o", "ab:x.json"),
            ("ab:x.json holds two systems, not 1",),
        ),
        (by_compare(*AS_AB, "--set", "missing=skip", "-o", "ab:x.json"), ("'q2' has none", "ab")),
        (by_compare(*AS_AB, "-o", "ab:x.json", "-o", "ab:x.json"), ("named twice",)),
    ],
)
def test_what_the_harness_cannot_hold_is_refused(run, folder, arguments, words):
    refused(run(*arguments), *words)
    assert not Path("x.json").exists()


def test_queries_without_gold_are_said_to_count_where_they_do(run, folder):
    write("qrels.tsv", "q1\td1\t2\nq2\td2\t0\n")
    write("two.tsv", "q1\tone\nq2\ttwo\n")
    given = ("eval", "a.trec", "--gold", "qrels.tsv", "--queries", "two.tsv", "-m", "R@3")
    told = "1 of 2 queries scored · 1 without relevant gold"
    # q1 finds its item, and q2 has none: the mean is of both, or of the one.
    both, one = run(*given, *AS_AB).out, run(*given).out
    assert f"{told} (counted as 0)\n" in both
    assert "R@3      0.5000" in both
    assert f"{told}\n" in one
    assert "R@3      1.0000" in one
    zero = run(*given, "--set", "empty_gold=zero").out
    assert f"{told} (counted as 0)\n" in zero


def test_a_log_that_ends_above_k_is_refused(run, folder):
    # Both lists are two long, and what stood at the third place nobody knows.
    write("karat.yaml", KARAT_YAML.replace(".yaml}", ".yaml, k: 2}"))
    refused(
        run("run", "--quiet"),
        "output ab: one was asked for 2 hits per query, and 'q1' is measured at 3;",
        "set the system's k to 3 and search again",
        "settings: {k: 2}, --set k=2",
    )
    assert not Path("run.json").exists()
    given = ("--gold", "qrels.tsv", *TABLES[:2], *AS_AB, "--quiet", "-o", "ab:x.json")
    logs = ("runs/one.jsonl", "runs/two.jsonl")
    assert run("eval", *logs, *given, "--set", "k=2").code == 0
    assert run(*SEARCHED, "--k", "2").code == 0
    assert document("x.json")["systems"]["A"]["metrics"] == (document()["systems"]["A"]["metrics"])


def test_a_log_that_holds_the_whole_corpus_reaches_any_k(run, folder):
    text = KARAT_YAML.replace("{k: 3}", "{k: 9}").replace(".yaml}", ".yaml, k: 5}")
    write("karat.yaml", text)
    assert run("run", "--quiet").code == 0
    assert run(*SEARCHED, "--k", "9").code == 0
    assert Path("run.json").read_bytes() == Path("out/ab.json").read_bytes()


def test_queries_with_a_k_of_their_own_are_refused(run, folder):
    lines = (json.dumps({"query_id": f"q{at}", "text": "x", "k": at}) for at in range(1, 6))
    write("queries.jsonl", "\n".join(lines))
    words = [word.replace("queries.tsv", "queries.jsonl") for word in by_compare(*AS_AB)]
    refused(run(*words, "-o", "ab:x.json"), "one k for all queries", "queries.jsonl brings others")


def test_the_page_s_karat_yaml_writes_what_ab_writes(run, tmp_path, monkeypatch):
    shutil.copytree(EXAMPLE, tmp_path / "ab")
    monkeypatch.chdir(tmp_path / "ab")
    page = (ROOT / "docs" / "compare-two-configs.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(queries:.*?)```", page, re.DOTALL)
    write("karat.yaml", block)
    assert run("run", "--quiet").code in (0, 1)
    files = ("--corpus", "corpus.jsonl", *TABLES)
    configs = ("--configA", "base.yaml", "--configB", "fused.yaml")
    assert run("ab", *files, *configs, "--k", "5", "--out", "x.json", "--csv", "x.csv").code == 0
    assert Path("out/ab.json").read_bytes() == Path("x.json").read_bytes()
    assert Path("out/ab.csv").read_bytes() == Path("x.csv").read_bytes()
