from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import random
import re
import shlex
import shutil
from pathlib import Path

import pytest

from .ab_folder import (
    BASE,
    CONFIGS,
    EXAMPLE,
    FUSED,
    GATED,
    GIVEN,
    QRELS,
    ROOT,
    SEARCHED,
    TABLES,
    document,
    lay_down,
    refused,
    sha256,
    write,
)

SCIFACT = ROOT / ".." / "shared" / "data" / "scifact"
QRELS_OF_SCIFACT = SCIFACT / "qrels.beir-v1.0.0-scifact.test.txt"


REQUIRED = ("--queries", "--truth", "--configA", "--configB", "--out")


def without(flag: str) -> tuple[str, ...]:
    """The command without one of its options."""
    at = SEARCHED.index(flag)
    return (*SEARCHED[:at], *SEARCHED[at + 2 :])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files of :mod:`ab_folder`, as current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEMATIS_GIT_SHA", raising=False)
    lay_down()
    return tmp_path


# What is written


def test_the_document_has_the_harness_s_keys_and_nothing_else(run, folder):
    assert run(*SEARCHED, "--k", "3").code == 0
    data = document()
    assert data.keys() == {
        *("schema_version", "k", "corpus_digest", "queries_digest", "qrels_digest"),
        *("systems", "delta", "per_query"),
    }
    assert (data["schema_version"], data["k"]) == (1, 3)
    assert data["systems"].keys() == {"A", "B"}
    for system in data["systems"].values():
        assert system.keys() == {"config_path", "config_digest", "metrics"}
        assert system["metrics"].keys() == {"macro"}
        assert system["metrics"]["macro"].keys() == {"recall", "mrr", "ndcg"}
    assert data["delta"].keys() == {"macro"}
    assert [row["qid"] for row in data["per_query"]] == ["q1", "q2", "q3", "q4", "q5"]
    for row in data["per_query"]:
        assert row.keys() == {"qid", "A", "B", "delta"}
        for side in "AB":
            assert row[side].keys() == {"qid", "recall", "mrr", "ndcg", "hits"}
            assert row[side]["qid"] == row["qid"]
        assert row["delta"] == {
            name: row["B"][name] - row["A"][name] for name in ("recall", "mrr", "ndcg")
        }


def test_the_document_s_bytes_are_sorted_indented_and_unrounded(run, folder):
    write("queries.tsv", "é\tapple tart\n")
    write("qrels.tsv", "é\td1\t1\né\td2\t1\né\td3\t1\n")
    assert run(*SEARCHED, "--k", "1").code == 0
    data = Path("out/ab.json").read_bytes()
    expected = json.dumps(json.loads(data), sort_keys=True, indent=2, ensure_ascii=False)
    assert data == expected.encode()
    assert b'"qid": "\xc3\xa9"' in data
    assert b"0.3333333333333333" in data


def test_digests_are_of_bytes_and_a_path_is_as_given(run, folder):
    Path("sub").mkdir()
    write("sub/a.yaml", BASE)
    done = run(*[word.replace("a.yaml", "./sub/../sub/a.yaml") for word in SEARCHED])
    assert done.code == 0
    data = document()
    golden = "bba5d2e10fa93c808981f9f6134337893e0cd49cb44c98fee109562db985df22"
    assert data["corpus_digest"] == sha256("corpus.jsonl") == golden
    assert data["queries_digest"] == sha256("queries.tsv")
    assert data["qrels_digest"] == sha256("qrels.tsv")
    assert data["systems"]["A"]["config_path"] == "./sub/../sub/a.yaml"
    spelled = '{"t2":{"quality":{"enabled":false}}}'
    assert data["systems"]["A"]["config_digest"] == hashlib.sha256(spelled.encode()).hexdigest()


def test_the_table_s_bytes_are_worked_out_by_hand(run, folder):
    write("queries.tsv", 'q2\tx\nq1\ty\n"q, 3"\tz\n')
    write("qrels.tsv", 'q1\td1\t2\nq1\td9\t1\nq1\td0\t0\n"q, 3"\td5\t1\n')
    write("a.trec", "q1 Q0 d9 1 3 a\nq1 Q0 dx 2 2 a\nq1 Q0 d1 3 1 a\nq2 Q0 d1 1 1 a\n")
    write("b.trec", "q1 Q0 d0 1 3 b\nq1 Q0 d1 2 2 b\n")
    done = run(*GIVEN, "--csv", "deep/er/ab.csv", "--k", "3")
    assert done.code == 0
    # A: gains 1 at rank 1 and 3 at rank 3 of the ideal 3 + 1 / log2(3); B: 3 at rank 2.
    ideal = 3 + 1 / math.log2(3)
    ndcg = [f"{(1 + 3 / 2) / ideal:.6f}", f"{3 / math.log2(3) / ideal:.6f}"]
    assert ndcg == ["0.688529", "0.521296"]
    assert Path("deep/er/ab.csv").read_bytes().decode() == (
        "qid,system,recall,mrr,ndcg,hits\r\n"
        "q2,A,0.000000,0.000000,0.000000,\r\n"
        "q2,B,0.000000,0.000000,0.000000,\r\n"
        'q1,A,1.000000,1.000000,0.688529,"d9,d1"\r\n'
        'q1,B,0.500000,0.500000,0.521296,"d0,d1"\r\n'
        '"""q, 3""",A,0.000000,0.000000,0.000000,\r\n'
        '"""q, 3""",B,0.000000,0.000000,0.000000,\r\n'
    )


def test_the_same_inputs_give_the_same_bytes(run, folder):
    assert run(*SEARCHED, "--csv", "x.csv").code == 0
    first = Path("out/ab.json").read_bytes(), Path("x.csv").read_bytes()
    assert run(*SEARCHED, "--csv", "x.csv").code == 0
    assert (Path("out/ab.json").read_bytes(), Path("x.csv").read_bytes()) == first


def test_what_was_written_is_said_first_and_then_the_means(run, folder):
    done = run(*SEARCHED, "--csv", "out/ab.csv", "--k", "1")
    lines = done.out.splitlines()
    assert lines[0] == "Wrote JSON to out/ab.json and CSV to out/ab.csv"
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert rows["mean"] == ["mean", "A", "B", "B", "−", "A"]
    assert {"recall@1", "mrr@1", "ndcg@1"} < set(rows)
    macro = document()["systems"]["B"]["metrics"]["macro"]
    assert rows["recall@1"][2] == f"{macro['recall']:.4f}"
    assert done.err == ""


def test_quiet_says_only_what_was_written(run, folder):
    assert run(*SEARCHED, "--quiet").out == "Wrote JSON to out/ab.json\n"


def test_json_prints_the_same_document(run, folder):
    done = run(*SEARCHED, "--json")
    assert done.out.encode() == Path("out/ab.json").read_bytes() + b"\n"


def test_a_dash_prints_the_document_and_nothing_else(run, folder):
    done = run(*SEARCHED[:-1], "-", "--csv", "ab.csv")
    assert json.loads(done.out)["schema_version"] == 1
    assert Path("ab.csv").exists()


# Metrics


def plain_metrics(ranked: list[str], gains: dict[str, float], k: int) -> list[float]:
    """Recall, MRR and nDCG as the harness's page defines them."""
    top = ranked[:k]
    relevant = {item for item, gain in gains.items() if gain > 0}
    recall = len(set(top) & relevant) / len(relevant) if relevant else 0.0
    mrr = next((1 / rank for rank, item in enumerate(top, 1) if item in relevant), 0.0)

    def dcg(items: list[str]) -> float:
        return sum(
            (2 ** gains[item] - 1) / math.log2(rank + 1)
            for rank, item in enumerate(items, 1)
            if gains.get(item, 0) > 0
        )

    ideal = dcg(sorted(relevant, key=lambda item: (-gains[item], item))[:k])
    return [recall, mrr, dcg(top) / ideal if ideal else 0.0]


def test_the_golden_ndcg(run, folder):
    write("qrels.tsv", "q1\td1\t2\nq1\td2\t1\n")
    write("queries.tsv", "q1\tx\n")
    write("a.trec", "q1 Q0 d3 1 3 a\nq1 Q0 d2 2 2 a\nq1 Q0 d1 3 1 a\n")
    assert run(*GIVEN, "--k", "3").code == 0
    row = document("ab.json")["per_query"][0]["A"]
    assert (row["recall"], row["mrr"], round(row["ndcg"], 5)) == (1.0, 0.5, 0.58688)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_metrics_agree_with_the_definitions(run, folder, k):
    chance = random.Random(k)
    items = [f"d{at:02}" for at in range(20)]
    ids = [f"q{at}" for at in range(40)]
    gains = {
        query: {
            item: chance.choice([-1, 0, 0.25, 1, 1.5, 2, 3])
            for item in chance.sample(items, chance.randint(0, 6))
        }
        for query in [*ids, "unasked"]
    }
    runs = [{query: chance.sample(items, chance.randint(0, 15)) for query in ids} for _ in "AB"]
    write("queries.tsv", "".join(f"{query}\ttext\n\n" for query in ids))
    write(
        "qrels.tsv",
        "".join(f"{q}\t{d}\t{rel}\r\n" for q, row in gains.items() for d, rel in row.items()),
    )
    for name, lists in zip(("a.trec", "b.trec"), runs, strict=True):
        lines = (
            f"{query} Q0 {item} {rank} {-rank} x\n"
            for query, ranked in lists.items()
            for rank, item in enumerate(ranked, 1)
        )
        write(name, "".join(lines))
    assert run(*GIVEN, "--k", str(k), "--csv", "ab.csv").code == 0
    data = document("ab.json")
    assert [row["qid"] for row in data["per_query"]] == ids
    for side, lists in zip("AB", runs, strict=True):
        expected = [plain_metrics(lists[query], gains[query], k) for query in ids]
        found = [[row[side][n] for n in ("recall", "mrr", "ndcg")] for row in data["per_query"]]
        assert found == [pytest.approx(values, rel=1e-12) for values in expected]
        means = [sum(column) / len(ids) for column in zip(*expected, strict=True)]
        macro = data["systems"][side]["metrics"]["macro"]
        assert [macro[name] for name in ("recall", "mrr", "ndcg")] == pytest.approx(means)
        for row in data["per_query"]:
            query = row["qid"]
            assert row[side]["hits"] == [d for d in lists[query][:k] if d in gains[query]]
    table = list(csv.DictReader(io.StringIO(Path("ab.csv").read_bytes().decode(), newline="")))
    assert [row["qid"] + row["system"] for row in table] == [q + side for q in ids for side in "AB"]


def test_eval_gives_the_same_numbers_under_the_same_profile(run, folder):
    write("a.trec", "q1 Q0 d2 1 2 a\nq1 Q0 d1 2 2 a\nq3 Q0 d5 1 2 a\n")
    assert run(*GIVEN).code == 0
    macro = document("ab.json")["systems"]["A"]["metrics"]["macro"]
    done = run("eval", "a.trec", "--gold", "qrels.tsv", *TABLES[:2], "--profile", "ab", "--json")
    (system,) = json.loads(done.out)["systems"]
    means = [measure["mean"] for measure in system["measures"].values()]
    assert sorted(means) == sorted(macro.values())


@pytest.mark.skipif(not SCIFACT.is_dir(), reason="the data lies beside the project")
def test_two_runs_of_scifact_score_as_published(run, folder):
    judged = (line.split() for line in QRELS_OF_SCIFACT.read_text().splitlines())
    write("qrels.tsv", "".join(f"{query}\t{item}\t{grade}\n" for query, _, item, grade in judged))
    bm25, dense = (
        SCIFACT / "runs_made_here" / f"{name}.run.gz"
        for name in ("anserini-0.22.1.bm25-flat.top1000", "all-MiniLM-L6-v2.cosine.top100")
    )
    topics = SCIFACT / "topics.beir-v1.0.0-scifact.test.tsv.gz"
    names = {"queries.tsv": topics, "a.trec": bm25, "b.trec": dense}
    assert run(*[str(names.get(word, word)) for word in GIVEN]).code == 0
    systems = document("ab.json")["systems"]
    ndcg = [systems[side]["metrics"]["macro"]["ndcg"] for side in "AB"]
    # The grades of SciFact are 0 and 1, where both gains are the same.
    assert ndcg == pytest.approx([0.6789, 0.6451], abs=5e-5)


# Searching


def test_both_configs_search_the_corpus(run, folder):
    assert run(*SEARCHED, "--k", "5").code == 0
    data = document()
    for side in "AB":
        assert data["systems"][side]["metrics"]["macro"]["recall"] == 1.0
    assert run(*SEARCHED, "--k", "1").code == 0
    delta = document()["delta"]["macro"]
    assert delta["recall"] > 0


def test_words_alone_find_what_has_them(run, folder):
    write("a.yaml", "t2: {quality: {enabled: true, fusion: {alpha_semantic: 0}}}\n")
    write(
        "b.yaml",
        "t2: {quality: {enabled: true, fusion: {alpha_semantic: 0},"
        " aliasing: {map_path: words.yaml}}}\n",
    )
    write("words.yaml", "tutorial: introduction\n")
    write("queries.tsv", "q4\ttutorial\nq3\tzebra\n")
    assert run(*SEARCHED, "--k", "1").code == 0
    rows = document()["per_query"]
    assert [row["A"]["hits"] for row in rows] == [[], ["d5"]]
    assert [row["B"]["hits"] for row in rows] == [["d3"], ["d5"]]


def test_settings_that_change_nothing_are_told_one_by_one_and_named(run, folder):
    write("a.yaml", "t2:\n  hybrid: {enabled: true}\n  quality: {enabled: false, shadwo: true}\n")
    write("b.yaml", FUSED.replace("score_interp", "rank"))
    done = run(*SEARCHED, "--quiet")
    assert done.code == 0
    assert done.err.splitlines() == [
        "karat: config A: a.yaml:2: t2.hybrid changes nothing here",
        (
            "karat: config A: a.yaml:3: t2.quality.shadwo changes nothing here;"
            " did you mean t2.quality.shadow?"
        ),
        (
            "karat: config B: b.yaml:1: t2.quality.fusion.mode 'rank' does nothing;"
            " score_interp is what fuses"
        ),
    ]
    assert "shadwo" not in Path("out/ab.json").read_text()


def test_what_a_config_can_do_nothing_with_is_told(run, folder):
    write("a.yaml", "t2: {sim_threshold: 0.99}\n")
    write("b.yaml", "t2: {quality: {enabled: true, aliasing: {map_path: words.yaml}}}\n")
    write("words.yaml", "LLM: large language model\n")
    write("queries.tsv", "q1\tяблоко\nq9\tapple\n")
    write("qrels.tsv", "q1\td1\t1\nq1\td77\t1\nq5\td78\t1\n")
    done = run(*SEARCHED)
    assert done.code == 0
    assert done.err.splitlines() == [
        "karat: config A: queries without a candidate above sim_threshold 0.99: 2",
        "karat: config A: No relevant item was found for the only query.",
        "karat: config B: alias 'LLM' matches nothing: no text has such a word",
        "karat: config B: queries without a word, whose lexical ranking is by id: 1",
        "karat: relevant items that are not in the corpus: 1",
        "karat: queries without judgments, which score 0: 1",
        "karat: judged queries that are not in the queries file, which are left out: 1",
    ]
    assert document()["systems"]["A"]["metrics"]["macro"] == {"recall": 0, "mrr": 0, "ndcg": 0}


# Runs that are given


def test_given_runs_leave_the_corpus_absent(run, folder):
    done = run(*GIVEN)
    assert done.code == 0
    assert document("ab.json")["corpus_digest"] == "absent"
    assert done.err.splitlines() == [
        "karat: runs are given, so the configs are recorded and have no effect",
        "karat: run A: missing queries, which score 0: 4",
        "karat: run B: missing queries, which score 0: 4",
        "karat: config B: No relevant item was found for any of the 5 queries.",
    ]


def test_a_run_may_have_any_format_and_is_cut_at_k(run, folder):
    write("b.json", json.dumps({"q1": {"d1": 1.0, "d2": 2.0}}))
    write("a.trec", "q1 Q0 d2 1 2 a\nq1 Q0 d1 2 2 a\nq1 Q0 d1 3 1 a\n")
    done = run(*[word.replace("b.trec", "b.json") for word in GIVEN], "--k", "1")
    assert done.code == 0
    first = document("ab.json")["per_query"][0]
    # Equal scores go by id; of an item that is there twice the first counts.
    assert first["A"]["hits"] == ["d1"]
    assert first["B"]["hits"] == []
    assert "run A: repeated hits, which earn nothing: 1" in done.err


def test_a_log_is_taken_in_the_order_that_it_logs(run, folder):
    hits = [
        {"rank": 2, "chunk_id": "d2", "score": 0.9},
        {"rank": 1, "chunk_id": "d1", "score": 0.1},
    ]
    write("b.jsonl", json.dumps({"query_id": "q1", "topk": hits}) + "\n")
    assert run(*[word.replace("b.trec", "b.jsonl") for word in GIVEN], "--k", "1").code == 0
    assert document("ab.json")["per_query"][0]["B"]["hits"] == ["d1"]


# Traces


def test_traces_are_written_where_the_gate_is_open(run, folder, monkeypatch):
    monkeypatch.setenv("CLEMATIS_GIT_SHA", "abc123")
    write("a.yaml", GATED)
    write("b.yaml", GATED.replace("enabled: true, fusion", "shadow: true, fusion"))
    assert run(*SEARCHED, "--k", "2").code == 0
    assert not Path("logs").exists()
    done = run(*SEARCHED, "--k", "2", "--emit-traces")
    assert done.code == 0
    assert done.err == ""
    lines = Path("logs/quality/rq_traces.jsonl").read_text().splitlines()
    traces = [json.loads(line) for line in lines]
    assert [trace["meta"]["reason"] for trace in traces] == ["enabled"] * 5 + ["shadow"] * 5
    assert {trace["git_sha"] for trace in traces} == {"abc123"}
    assert [trace["query_id"] for trace in traces[:5]] == [
        trace["query_id"] for trace in traces[5:]
    ]
    assert lines[0] == json.dumps(traces[0], sort_keys=True, separators=(",", ":"))
    hits = [row["A"]["hits"] for row in document()["per_query"]]
    asked = [set(line.split("\t")[1:2]) for line in QRELS.splitlines()]
    for trace, found, judged in zip(traces, hits, asked, strict=False):
        assert [item["id"] for item in trace["items"] if item["id"] in judged] == found
    assert run(*SEARCHED, "--k", "2", "--emit-traces").code == 0
    assert Path("logs/quality/rq_traces.jsonl").read_text().splitlines() == lines * 2


def test_a_shut_gate_is_told(run, folder):
    write("a.yaml", "perf: {enabled: true}\n" + BASE)
    done = run(*SEARCHED, "--emit-traces")
    assert done.code == 0
    shut, memory = "no traces: tracing is off; set", "perf.metrics.report_memory"
    assert done.err.splitlines() == [
        f"karat: config A: {shut} {memory} and t2.quality.enabled (or .shadow) to true",
        f"karat: config B: {shut} perf.enabled and {memory} to true",
    ]
    assert not Path("logs").exists()


def test_a_config_that_fuses_nothing_has_no_traces_and_says_so(run, folder):
    write("a.yaml", GATED)
    write("b.yaml", GATED.replace("score_interp", "rank"))
    done = run(*SEARCHED, "--emit-traces")
    assert "config B: no traces: only fused lists are traced, and fusion.mode 'rank'" in done.err
    assert len(Path("logs/quality/rq_traces.jsonl").read_text().splitlines()) == 5


def test_the_trace_folder_can_be_chosen(run, folder):
    write("a.yaml", GATED)
    write("b.yaml", GATED)
    assert run(*SEARCHED, "--emit-traces", "--trace-dir", "my/traces").code == 0
    assert len(Path("my/traces/rq_traces.jsonl").read_text().splitlines()) == 10
    assert not Path("logs").exists()


def test_traces_that_cannot_be_written_stop_nothing(run, folder):
    write("b.yaml", GATED)
    write("logs", "a file in the way")
    done = run(*SEARCHED, "--emit-traces")
    assert done.code == 0
    assert "rq_traces.jsonl: traces cannot be written" in done.err
    assert document()["schema_version"] == 1


# What is refused


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "queries.tsv",
            "q1\ta\tb\n",
            ("Expected 2 tab-separated columns on line 1 of queries.tsv, got 3",),
        ),
        (
            "queries.tsv",
            "\nq1\n",
            ("Expected 2 tab-separated columns on line 2 of queries.tsv, got 1",),
        ),
        (
            "qrels.tsv",
            "q1\td1\t1\nq1 d1 1\n",
            ("Expected 3 tab-separated columns on line 2 of qrels",),
        ),
        ("qrels.tsv", "\r\nq1\td1\thigh\n", ("qrels.tsv:2: grade is 'high'", "finite")),
        ("qrels.tsv", "q1\td1\tnan\n", ("qrels.tsv:1: grade is 'nan'",)),
        (
            "qrels.tsv",
            "q1\td1\t1\n\nq1\td1\t2\n",
            ("qrels.tsv:3:", "judged 2 here and 1 in line 1"),
        ),
        ("queries.tsv", "q1\ta\n\nq1\tb\n", ("queries.tsv:3: query id 'q1' occurs twice",)),
        ("queries.tsv", "\ta\n", ("queries.tsv:1: query_id is empty",)),
        ("queries.tsv", "QID\tquery_text\nq1\ta\n", ("queries.tsv:1: is a header", "delete")),
        ("queries.tsv", "\n\n", ("queries.tsv: holds no queries",)),
        ("queries.tsv", "", ("queries.tsv: is empty",)),
        ("qrels.tsv", "\n", ("qrels.tsv: holds no judgments",)),
        ("qrels.tsv", "x1\td1\t1\n", ("qrels.tsv: judges no query of queries.tsv",)),
        ("qrels.tsv", "q1\td1\t2000\n", ("2000", "too high")),
        ("corpus.jsonl", '{"id": "d1"}\n', ("corpus.jsonl:1: no text",)),
        ("corpus.jsonl", '{"text": "a"}\n', ("corpus.jsonl:1: no item_id",)),
        ("corpus.jsonl", '{"id": "d1", "text": 5}\n', ("corpus.jsonl:1:",)),
        ("corpus.jsonl", '{"id": "d1", "text": "x"\n', ("corpus.jsonl:1: not valid JSON",)),
        ("a.yaml", "t2: [", ("config A: a.yaml:1: is not valid YAML",)),
        (
            "b.yaml",
            "t2:\n  quality: {enabled: maybe}\n",
            ("config B: b.yaml:2: t2.quality.enabled is 'maybe'",),
        ),
        (
            "b.yaml",
            "t2: {quality: {enabled: true, aliasing: {map_path: none.yaml}}}\n",
            ("config B: none.yaml: no such file",),
        ),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(run, folder, name, text, words):
    write(name, text)
    refused(run(*SEARCHED, "--csv", "out/ab.csv", "--emit-traces"), *words)
    assert not Path("out").exists()
    assert not Path("logs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*SEARCHED, "--k", "0"), ("--k is '0'", "whole number from 1")),
        ((*SEARCHED, "--k", "-3"), ("--k is '-3'",)),
        ((*SEARCHED, "--k", "2.5"), ("--k is '2.5'",)),
        ((*SEARCHED, "--k", "ten"), ("--k is 'ten'",)),
        *((without(flag), (f"{flag} is missing",)) for flag in REQUIRED),
        ((*SEARCHED, "--runA", "a.trec"), ("--corpus", "--runA")),
        ((*GIVEN, "--corpus", "corpus.jsonl"), ("--corpus",)),
        (("ab", *TABLES, *CONFIGS, "--out", "ab.json"), ("--corpus", "--runA and --runB")),
        ((*GIVEN[:-4], "--out", "ab.json"), ("both --runA and --runB",)),
        ((*GIVEN, "--emit-traces"), ("--emit-traces needs --corpus",)),
        ((*SEARCHED, "--trace-dir", "t"), ("needs --emit-traces",)),
        ((*SEARCHED, "--emit-traces", "--trace-dir", ""), ("--trace-dir names",)),
        ((*SEARCHED, "--csv", "out/ab.json"), ("named twice",)),
        ((*SEARCHED, "--csv", "qrels.tsv"), ("also an input",)),
        ((*SEARCHED, "--csv", "."), ("folder",)),
        ((*SEARCHED, "--json", "--csv", "-"), ("standard output",)),
        (tuple(word.replace("corpus.jsonl", "none.jsonl") for word in SEARCHED), ("no such file",)),
        (tuple(word.replace("a.yaml", "none.yaml") for word in SEARCHED), ("none.yaml: no such",)),
        (tuple(word.replace("queries.tsv", "none.tsv") for word in SEARCHED), ("no such file",)),
        (tuple(word.replace("b.trec", "none.trec") for word in GIVEN), ("none.trec: no such",)),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(run, folder, arguments, words):
    before = sorted(Path().iterdir())
    refused(run(*arguments), *words)
    assert sorted(Path().iterdir()) == before


def test_a_run_of_other_queries_is_refused(run, folder):
    write("b.trec", "x1 Q0 d2 1 0.5 b\n")
    refused(run(*GIVEN), "share no query id", "'x1'")


def test_what_was_written_before_survives_a_failure(run, folder):
    assert run(*SEARCHED, "--csv", "out/ab.csv").code == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    write("file", "no folder")
    refused(run(*SEARCHED, "--k", "1", "--csv", "file/ab.csv"), "'file' is a file, not a folder")
    write("corpus.jsonl", '{"id": "d1", "text": "apple"}\n{"id": "d2"\n')
    refused(run(*SEARCHED, "--k", "1", "--csv", "out/ab.csv"), "corpus.jsonl:2: not valid JSON")
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


def test_two_configs_of_one_name_are_told_apart(run, folder):
    for name in ("one", "two"):
        Path(name).mkdir()
    write("one/c.yaml", BASE)
    write("two/c.yaml", FUSED.replace("score_interp", "rank"))
    configs = ("--configA", "one/c.yaml", "--configB", "two/c.yaml", "--out", "ab.json")
    done = run("ab", "--corpus", "corpus.jsonl", *TABLES, *configs)
    assert done.err.startswith("karat: config B: c.yaml:1: t2.quality.fusion.mode 'rank' does")
    write("one/c.yaml", "t2: 5\n")
    refused(run("ab", "--corpus", "corpus.jsonl", *TABLES, *configs), "config A: c.yaml:1: t2 is 5")
    write("one/c.yaml", "- 5\n")
    refused(run(*GIVEN[:5], *configs, *GIVEN[-6:-2]), "config A: c.yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_existing_output_survives_a_failure(run, folder):
    Path("locked").mkdir(mode=0o500)
    write("keep.json", "precious")
    refused(run(*SEARCHED[:-1], "keep.json", "--csv", "locked/ab.csv"), "written")
    assert Path("keep.json").read_text() == "precious"


# The page and its example


def test_the_page_s_examples_print_what_it_says(run, tmp_path, monkeypatch):
    shutil.copytree(EXAMPLE, tmp_path / "ab")
    monkeypatch.chdir(tmp_path / "ab")
    monkeypatch.delenv("CLEMATIS_GIT_SHA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    page = (ROOT / "docs" / "compare-two-configs.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n\$ (.*?)```", page, re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        command, _, printed = re.sub(r" \\\n\s*", " ", block).partition("\n")
        assert command.startswith("karat ab ")
        done = run(*shlex.split(command)[1:])
        shown = (line.rstrip() for line in (done.err + done.out).splitlines())
        assert "\n".join(shown).strip() == printed.strip(), command


def test_the_example_s_two_configs_are_understood_and_traced(run, tmp_path, monkeypatch):
    shutil.copytree(EXAMPLE, tmp_path / "ab")
    monkeypatch.chdir(tmp_path / "ab")
    names = (
        "--corpus",
        "corpus.jsonl",
        *TABLES,
        "--configA",
        "base.yaml",
        "--configB",
        "fused.yaml",
    )
    done = run("ab", *names, "--k", "5", "--out", "ab.json", "--emit-traces")
    assert (done.code, done.err) == (0, "")
    traces = Path("logs/quality/rq_traces.jsonl").read_text().splitlines()
    assert len(traces) == 2 * len(Path("queries.tsv").read_text().splitlines())
