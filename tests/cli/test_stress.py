"""``karat stress``: the drops of a run's lists, what is said of them, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path

import pytest
import pytrec_eval

ROOT = Path(__file__).parents[2]
MEASURES = {"nDCG@5": "ndcg_cut_5", "R@5": "recall_5", "RR@10": "recip_rank"}
N = 150


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run in three forms, and an eval set in which every query has its own negatives."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(2)
    items = [f"d{at:02}" for at in range(40)]
    cases, lists = [], {}
    for at in range(N):
        judged = rng.sample(items, 7)
        name = f"q{at:03}"
        cases.append(
            {
                "query_id": name,
                "question": f"what is {at}",
                "gold_evidence": judged[:3],
                "negatives": judged[3:],
                "language": rng.choice(["pt", "es"]),
            }
        )
        lists[name] = rng.sample(items, 10)
    write(tmp_path / "eval.jsonl", cases)
    write(
        tmp_path / "run.jsonl",
        [{"query_id": q, "topk": [{"chunk_id": item} for item in own]} for q, own in lists.items()],
    )
    lines = [
        f"{q} Q0 {item} {rank} {100 - rank} tag\n"
        for q, own in lists.items()
        for rank, item in enumerate(own, 1)
    ]
    (tmp_path / "run.trec").write_text("".join(lines))
    return tmp_path, cases, lists


def stress(run, *arguments, code=0):
    said = run("stress", *arguments, "--json")
    assert said.code == code
    return json.loads(said.out)


def values(lists, cases):
    gold = {case["query_id"]: dict.fromkeys(case["gold_evidence"], 1) for case in cases}
    run = {name: {item: -float(at) for at, item in enumerate(own)} for name, own in lists.items()}
    evaluator = pytrec_eval.RelevanceEvaluator(gold, {"ndcg_cut.5", "recall.5", "recip_rank"})
    return evaluator.evaluate(run)


def mean(found, name, among):
    return sum(found[q][name] for q in among) / len(among)


@pytest.mark.parametrize("file", ["run.jsonl", "run.trec"])
def test_a_runs_lists_are_edited_as_they_are(run, folder, file):
    _, cases, lists = folder
    document = stress(run, file, "--gold", "eval.jsonl")
    (system,) = document["systems"]
    assert system["how"] == "list edited"
    assert system["because"] == (
        "a log cannot run its reranker again; the figure is computed from the list alone"
    )
    assert (system["reranker"], system["lists_from"]) == (None, "run")
    (scenario,) = system["scenarios"]
    assert (scenario["scenario"], scenario["how"]) == ("insert 3 at 1,2,3", "list edited")
    assert (scenario["edited"], scenario["short"], scenario["inserted"]) == (N, 0, 3 * N)
    negatives = {case["query_id"]: case["negatives"][:3] for case in cases}
    assert scenario["moved"] == sum(
        item in lists[q] for q, own in negatives.items() for item in own
    )
    edited = {
        q: [*negatives[q], *(item for item in own if item not in negatives[q])][:10]
        for q, own in lists.items()
    }
    # No measure here looks below rank 10, which lists now reach beyond.
    before, after = values(lists, cases), values(edited, cases)
    for name, theirs in MEASURES.items():
        fall = scenario["measures"][name]
        assert fall["before"] == pytest.approx(mean(before, theirs, lists))
        assert fall["after"] == pytest.approx(mean(after, theirs, lists))
        drop = mean(before, theirs, lists) - mean(after, theirs, lists)
        assert fall["drop"] == pytest.approx(drop)
        assert fall["n"] == N == fall["worse"] + fall["same"] + fall["better"]
        assert fall["ci"][0] <= fall["drop"] <= fall["ci"][1]
    assert scenario["negatives"]["in_top"] == 1.0
    assert scenario["negatives"]["mean_rank"] == 2.0


def test_every_kind_of_damage_is_a_scenario_of_its_own(run, folder):
    _, cases, lists = folder
    damage = ["--insert", "2", "--drop", "3", "--drop", "gold", "--shuffle", "--truncate", "4"]
    document = stress(run, "run.trec", "--gold", "eval.jsonl", *damage)
    scenarios = {one["scenario"]: one for one in document["systems"][0]["scenarios"]}
    assert list(scenarios) == ["insert 2 at 1,2", "drop 3", "drop gold", "shuffle", "truncate 4"]
    gold = {case["query_id"]: case["gold_evidence"] for case in cases}
    edited = {
        "drop 3": {q: own[3:] for q, own in lists.items()},
        "truncate 4": {q: own[:4] for q, own in lists.items()},
        "drop gold": {
            q: [item for item in own if item != next((one for one in own if one in gold[q]), None)]
            for q, own in lists.items()
        },
    }
    before = values(lists, cases)
    for name, own in edited.items():
        after = values(own, cases)
        for measure, theirs in MEASURES.items():
            drop = mean(before, theirs, lists) - mean(after, theirs, lists)
            assert scenarios[name]["measures"][measure]["drop"] == pytest.approx(drop)
    holding = sum(any(item in gold[q] for item in own) for q, own in lists.items())
    assert (scenarios["drop gold"]["edited"], scenarios["drop gold"]["short"]) == (
        holding,
        N - holding,
    )
    assert "negatives" not in scenarios["shuffle"]


def test_where_a_log_says_how_many_it_returns_edited_lists_are_no_longer(run, folder):
    place, cases, lists = folder
    write(
        place / "k.jsonl",
        [{"query_id": q, "k": 10, "topk": own} for q, own in lists.items()],
    )
    measures = ["-m", "R@20"]
    grown = stress(run, "run.jsonl", "--gold", "eval.jsonl", *measures)
    cut = stress(run, "k.jsonl", "--gold", "eval.jsonl", *measures)
    drops = [one["systems"][0]["scenarios"][0]["measures"]["R@20"] for one in (grown, cut)]
    assert drops[0]["drop"] == 0
    negatives = {case["query_id"]: case["negatives"][:3] for case in cases}
    edited = {
        q: [*negatives[q], *(item for item in own if item not in negatives[q])][:10]
        for q, own in lists.items()
    }
    gold = {case["query_id"]: case["gold_evidence"] for case in cases}
    lost = [sum(item in gold[q] for item in lists[q]) - sum(item in gold[q] for item in edited[q])
            for q in lists]  # fmt: skip
    assert drops[1]["drop"] == pytest.approx(sum(lost) / 3 / N)
    assert sum(lost) > 0


def test_negatives_are_mined_from_the_corpus(run, files):
    document = stress(
        run,
        *("bm25.trec", "--gold", "qrels.txt", "--queries", "queries.jsonl"),
        *("--corpus", "corpus.jsonl", "--negatives", "bm25", "--at", "1"),
    )
    (system,) = document["systems"]
    assert system["negatives"]["source"] == "bm25"
    assert system["scenarios"][0]["gold_refused"] == 0
    assert system["scenarios"][0]["negatives"]["in_top"] == 1.0
    # Judgments of grade 0 are negatives of the eval set, and come first unless asked otherwise.
    own = stress(run, "bm25.trec", "--gold", "qrels.txt")
    assert own["systems"][0]["negatives"]["source"] == "own"


def test_a_set_without_negatives_is_mined_by_itself(run, files):
    (files / "plain.txt").write_text("q01 0 refunds#1 1\nq02 0 refunds#2 1\n")
    more = ("--queries", "queries.jsonl", "--corpus", "corpus.jsonl")
    document = stress(run, "bm25.trec", "--gold", "plain.txt", *more)
    assert document["systems"][0]["negatives"]["source"] == "bm25"
    assert document["with_gold"] == 2


def test_missing_and_failed_queries_are_told_apart_and_left_out(run, files):
    (system,) = stress(run, "dense.jsonl", "--gold", "qrels.txt", "--shuffle")["systems"]
    assert system["queries"] == {"sampled": 11, "missing": 0, "failed": 1}
    (reason,) = system["failures"]
    assert reason in (files / "dense.jsonl").read_text()
    assert system["scenarios"][0]["measures"]["R@5"]["n"] == 10
    (system,) = stress(run, "bm25.trec", "--gold", "qrels.txt", "--shuffle")["systems"]
    assert system["queries"] == {"sampled": 11, "missing": 3, "failed": 0}
    assert system["scenarios"][0]["measures"]["R@5"]["n"] == 8


def test_a_sample_is_drawn_by_the_seed(run, folder):
    def drawn(*more):
        document = stress(run, "run.jsonl", "--gold", "eval.jsonl", "--sample", "30", *more)
        assert document["sampled"] == 30
        return document["systems"][0]["scenarios"][0]["measures"]["nDCG@5"]["before"]

    assert drawn() == drawn("--seed", "0")
    assert drawn() != drawn("--seed", "1")
    everyone = stress(run, "run.jsonl", "--gold", "eval.jsonl", "--sample", "all")
    assert everyone["sampled"] == everyone["with_gold"] == N


def test_a_karat_yaml_is_asked_a_hundred_queries(run, folder):
    place = folder[0]
    items = [{"item_id": f"d{at:02}", "text": f"what {at}"} for at in range(40)]
    write(place / "corpus.jsonl", items)
    config = {
        "queries": "eval.jsonl",
        "corpus": "corpus.jsonl",
        "profile": "rag",
        "seed": 7,
        "systems": {"a": {"retriever": "bm25"}, "b": {"retriever": "bow"}},
    }
    (place / "karat.yaml").write_text(json.dumps(config))
    document = stress(run)
    assert (document["sampled"], document["with_gold"]) == (100, N)
    assert [system["name"] for system in document["systems"]] == ["a", "b"]
    assert document["primary"] == "nDCG@5"
    assert document["conventions"]["seed"] == 7
    assert document["inputs"]["config"]["name"] == "karat.yaml"
    assert document["inputs"]["runs"] == []
    document = stress(run, "--system", "b", "--sample", "5", "--seed", "1", "--profile", "karat")
    assert (document["sampled"], document["primary"]) == (5, "nDCG@5")
    assert [system["name"] for system in document["systems"]] == ["b"]
    assert document["conventions"]["seed"] == 1


def test_the_same_request_gives_the_same_bytes(run, folder):
    call = ("run.jsonl", "--gold", "eval.jsonl", "--shuffle", "--insert", "3", "--by", "language")
    first = run("stress", *call, "-o", "a.json", "-o", "a.md")
    second = run("stress", *call, "-o", "b.json", "-o", "b.md")
    assert (first.code, first.out) == (0, second.out)
    place = folder[0]
    assert (place / "a.json").read_bytes() == (place / "b.json").read_bytes()
    assert (place / "a.md").read_bytes() == (place / "b.md").read_bytes()
    text = (place / "a.json").read_text()
    assert str(place) not in text
    assert "NaN" not in text


def test_the_order_of_the_queries_plays_no_role(run, folder):
    place = folder[0]
    for name in ("eval.jsonl", "run.jsonl"):
        lines = (place / name).read_text().splitlines()
        (place / f"back-{name}").write_text("\n".join(lines[::-1]) + "\n")
    damage = ("--shuffle", "--sample", "60")
    one = stress(run, "run.jsonl", "--gold", "eval.jsonl", *damage)
    two = stress(run, "back-run.jsonl", "--gold", "back-eval.jsonl", *damage)
    ours, theirs = (each["systems"][0]["scenarios"][0]["measures"] for each in (one, two))
    for name, fall in ours.items():
        for key in ("before", "after", "drop", "worse", "same"):
            assert fall[key] == pytest.approx(theirs[name][key])


def test_segments_have_drops_of_their_own(run, folder):
    document = stress(run, "run.jsonl", "--gold", "eval.jsonl", "--by", "language")
    (scenario,) = document["systems"][0]["scenarios"]
    segments = scenario["segments"]["language"]
    assert set(segments) == {"pt", "es"}
    assert sum(falls["R@5"]["n"] for falls in segments.values()) == N
    weighed = sum(falls["R@5"]["drop"] * falls["R@5"]["n"] for falls in segments.values()) / N
    assert weighed == pytest.approx(scenario["measures"]["R@5"]["drop"])


def test_the_page_says_what_dropped_and_how_it_was_measured(run, folder):
    said = run("stress", "run.jsonl", "--gold", "eval.jsonl", "--by", "language", "-o", "out.md")
    assert said.code == 0
    assert said.out.startswith("insert 3 at 1,2,3: nDCG@5 drops by ")
    for words in (
        "run: list edited",
        "a log cannot run its reranker again",
        f"{3 * N} negatives of the eval set",
        "run, insert 3 at 1,2,3: nDCG@5 by language",
        f"{N} of {N} queries with gold",
        "profile karat",
    ):
        assert words in said.out
    page = (folder[0] / "out.md").read_text()
    assert page.startswith("# What damage costs")
    assert "| scenario | measure |" in page


def test_a_log_of_karat_search_says_how_to_rerank_for_real(run, files):
    assert run("search", "--quiet", "--system", "hybrid").code == 0
    told = ("--gold", "qrels.txt")
    said = run("stress", "runs/hybrid.jsonl", *told)
    assert (
        "to run its later stages on the edited lists: karat stress karat.yaml --system hybrid"
        in said.out
    )
    (system,) = stress(run, "runs/hybrid.jsonl", *told)["systems"]
    assert system["for_real"] == "karat stress karat.yaml --system hybrid"
    (files / "karat.yaml").unlink()
    assert "for_real" not in stress(run, "runs/hybrid.jsonl", *told)["systems"][0]
    assert "karat stress" not in run("stress", "dense.jsonl", *told).out


def test_documents_count_where_the_conventions_say_so(run, tmp_path, monkeypatch):
    """A chunk of a gold document is gold, so it is never put in as a negative."""
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path / "eval.jsonl",
        [{"query_id": "1", "question": "?", "gold_evidence": ["a#1"], "negatives": ["a#2", "b#1"]}],
    )
    write(tmp_path / "run.jsonl", [{"query_id": "1", "topk": ["a#1", "c#1"]}])
    one = ("run.jsonl", "--gold", "eval.jsonl", "--at", "1,2")
    (scenario,) = stress(run, *one, "--set", "level=doc")["systems"][0]["scenarios"]
    assert (scenario["gold_refused"], scenario["inserted"], scenario["short"]) == (1, 1, 1)
    (scenario,) = stress(run, *one)["systems"][0]["scenarios"]
    assert (scenario["gold_refused"], scenario["inserted"], scenario["short"]) == (0, 2, 0)


def test_a_run_is_edited_in_the_order_that_a_profile_gives_it(run, tmp_path, monkeypatch):
    """Under trec equal scores go by falling id, so z is on top and its loss counts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qrels.txt").write_text("1 0 z 1\n2 0 z 1\n")
    (tmp_path / "run.trec").write_text(
        "".join(f"{q} Q0 {item} 1 0.5 t\n" for q in (1, 2) for item in ("a", "z"))
    )
    one = ("run.trec", "--gold", "qrels.txt", "--drop", "1", "-m", "RR")
    (scenario,) = stress(run, *one, "--profile", "trec")["systems"][0]["scenarios"]
    assert (scenario["measures"]["RR"]["before"], scenario["measures"]["RR"]["after"]) == (1.0, 0.0)
    (scenario,) = stress(run, *one)["systems"][0]["scenarios"]
    assert (scenario["measures"]["RR"]["before"], scenario["measures"]["RR"]["after"]) == (0.5, 1.0)


def test_a_negative_stands_at_the_end_of_a_list_too_short_for_its_rank(run, folder):
    said = run("stress", "run.jsonl", "--gold", "eval.jsonl", "--at", "1,20")
    assert f"{N} negatives are at the end of their lists" in said.out


LOG = ("stress", "run.jsonl", "--gold", "eval.jsonl")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*LOG, "--at", "0"), ("--at is '0'", "from 1")),
        ((*LOG, "--at", "1,1"), ("different ranks",)),
        ((*LOG, "--at", "1,x"), ("--at is '1,x'",)),
        ((*LOG, "--at", ""), ("--at is ''",)),
        ((*LOG, "--insert", "2", "--at", "1,2,3"), ("--insert 2 contradicts", "3 ranks")),
        ((*LOG, "--insert", "0"), ("--insert is '0'", "whole number from 1")),
        ((*LOG, "--insert", "-1"), ("--insert is '-1'",)),
        ((*LOG, "--drop", "best"), ("--drop is 'best'", "or gold")),
        ((*LOG, "--drop", "2", "--drop", "2"), ("--drop 2 is given twice",)),
        ((*LOG, "--truncate", "1.5"), ("--truncate is '1.5'",)),
        ((*LOG, "--sample", "0"), ("--sample is '0'", "or all")),
        ((*LOG, "--negatives", "hard"), ("--negatives", "known: own, bm25")),
        ((*LOG, "--shuffle", "--negatives", "own"), ("--insert",)),
        ((*LOG, "--system", "a"), ("--system names a system of a karat.yaml",)),
        (("stress", "run.jsonl"), ("--gold",)),
        ((*LOG, "-m", "ndgc"), ("did you mean nDCG",)),
        ((*LOG, "-o", "out.csv"), (".json, .md",)),
        ((*LOG, "--json", "-o", "json:-"), ("standard output",)),
        ((*LOG, "-o", "json:eval.jsonl"), ("also an input",)),
        ((*LOG, "--negatives", "bm25"), ("needs a corpus", "--corpus")),
        (("stress", "run.trec", "--gold", "plain.txt"), ("no negatives of its own", "a corpus")),
        (
            ("stress", "run.trec", "--gold", "plain.txt", "--negatives", "own"),
            ("plain.txt: holds no negatives", "--negatives bm25"),
        ),
        (("stress", "run.trec", "--gold", "nothing.txt"), ("no query has gold",)),
        (("stress", "karat.yaml", "--system", "bm26"), ("did you mean bm25",)),
        (("stress", "karat.yaml", "--gold", "eval.jsonl"), ("--gold is for a run",)),
        (("stress", "karat.yaml", "--run-format", "trec"), ("--run-format is for a run",)),
        (("stress", "karat.yaml", "-o", "json:eval.jsonl"), ("also an input",)),
        (("stress", "bare.yaml"), ("texts.jsonl: holds queries without gold",)),
        (("stress", "none.jsonl", "--gold", "eval.jsonl"), ("no such file",)),
        (("stress", "none.yaml"), ("none.yaml",)),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(run, folder, arguments, words):
    place = folder[0]
    (place / "plain.txt").write_text("q000 0 d01 1\nq001 0 d02 1\n")
    (place / "nothing.txt").write_text("q000 0 d01 0\n")
    systems = {"bm25": {"retriever": "bm25"}}
    (place / "karat.yaml").write_text(json.dumps({"queries": "eval.jsonl", "systems": systems}))
    write(place / "texts.jsonl", [{"query_id": "q000", "text": "a"}])
    (place / "bare.yaml").write_text(
        json.dumps({"queries": "texts.jsonl", "corpus": "texts.jsonl", "systems": systems})
    )
    before = sorted(place.iterdir())
    said = run(*arguments)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("karat: ")
    assert said.err.count("\n") == 1
    for word in words:
        assert word in said.err
    assert sorted(place.iterdir()) == before


def test_the_examples_of_the_page_print_what_it_says():
    spec = importlib.util.spec_from_file_location("examples", ROOT / "docs" / "examples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "stress-a-reranker.md").read_text(encoding="utf-8")
    assert page == module.refreshed(page), "run: python docs/examples.py docs/stress-a-reranker.md"
