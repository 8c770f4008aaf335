"""``minimal:`` and ``misses:``: what is written, held against formulas worked out here."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.compat.report_outputs import to_metrics, to_misses
from karat.data.tables import Gold, Queries
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.score_builder import score
from karat.reports.document import Report

MEASURES = ["Hit@k", "R@k", "P@k", "RR@k"]


def written(name: str, rows) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def read(name: str):
    return json.loads(Path(name).read_text())


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A question of each kind: hit, miss, gold too low, failed, not asked, nothing, outside."""
    monkeypatch.chdir(tmp_path)
    rows = [
        ("low", ["z", "y"], {}),
        ("hit", ["a"], {}),
        ("miss", ["b"], {}),
        ("failed", ["a"], {}),
        ("absent", ["a"], {}),
        ("silent", ["a"], {}),
        ("outside", [], {"no_answer": True}),
        ("unlabelled", [], {}),
    ]
    written(
        "eval.jsonl",
        [
            {"id": name, "query": f"what of {name}", "relevant_chunk_ids": ids, **more}
            for name, ids, more in rows
        ],
    )
    others = [f"x{at}" for at in range(12)]
    written(
        "run.jsonl",
        [
            {"query_id": "hit", "topk": [*others[:4], "a"]},
            {"query_id": "low", "topk": [*others[:5], "y", *others[5:]]},
            {"query_id": "miss", "topk": others},
            {"query_id": "failed", "error": "timed out"},
            {"query_id": "silent", "topk": []},
            {"query_id": "outside", "topk": others[:3]},
            {"query_id": "unlabelled", "topk": others[:3]},
        ],
    )
    return ("run.jsonl", "--gold", "eval.jsonl", "--quiet")


def test_the_worked_example_at_five(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written("eval.jsonl", [{"query": "q", "relevant_chunk_ids": ["A", "B"], "id": "q"}])
    written("run.jsonl", [{"query_id": "q", "topk": ["X", "A", "Y", "Z", "W"]}])
    out = ("-o", "minimal:m.json", "-o", "misses:miss.json")
    assert run("eval", "run.jsonl", "--gold", "eval.jsonl", "--profile", "minimal", *out).code == 0
    assert Path("m.json").read_text() == (
        '{\n  "recall_at_k": 0.5,\n  "k": 5,\n  "hit_rate": 1.0,\n  "precision_at_k": 0.2,\n'
        '  "mrr": 0.5,\n  "n": 1,\n  "n_misses": 0,\n  "n_failed": 0,\n  "n_out_of_kb": 0\n}\n'
    )
    assert Path("miss.json").read_text() == "[]\n"


def test_metrics_count_what_they_are_over(run, world):
    run("eval", *world, "--profile", "minimal", "-o", "minimal:m.json")
    # Of six questions with gold one is hit, at rank 5: 1/6, and 1/5 of that for P and RR.
    expected = {
        "recall_at_k": 1 / 6,
        "k": 5,
        "hit_rate": 1 / 6,
        "precision_at_k": 1 / 30,
        "mrr": 1 / 30,
        "n": 6,
        "n_misses": 5,
        "n_failed": 1,
        "n_out_of_kb": 2,
    }
    found = read("m.json")
    assert list(found) == list(expected)
    assert found == pytest.approx(expected)


def test_misses_stand_in_the_order_of_the_eval_set_with_their_reasons(run, world):
    run("eval", *world, "--profile", "minimal", "-o", "misses:m.json")
    five = [f"x{at}" for at in range(5)]
    assert read("m.json") == [
        {"query": "what of low", "retrieved": five, "relevant": ["y", "z"]},
        {"query": "what of miss", "retrieved": five, "relevant": ["b"]},
        {
            "query": "what of failed",
            "retrieved": [],
            "relevant": ["a"],
            "error": "timed out",
        },
        {
            "query": "what of absent",
            "retrieved": [],
            "relevant": ["a"],
            "error": "the run has no answer for it",
        },
        # An empty answer is an answer.
        {"query": "what of silent", "retrieved": [], "relevant": ["a"]},
    ]


def test_questions_outside_the_knowledge_base_are_no_misses(run, world):
    run("eval", *world, "--profile", "minimal", "-o", "misses:m.json")
    assert not {"what of outside", "what of unlabelled"} & {one["query"] for one in read("m.json")}


def test_any_profile_lists_its_misses_at_its_own_k(run, world):
    run("eval", *world, "-o", "misses:m.json")
    found = read("m.json")
    # In the ten places of the profile karat the gold of "low" is there, at rank 6.
    assert [one["query"].split()[-1] for one in found] == ["miss", "failed", "absent", "silent"]
    assert found[0]["retrieved"] == [f"x{at}" for at in range(10)]
    run("eval", *world, "--set", "k=3", "-o", "misses:m.json")
    assert [one["query"].split()[-1] for one in read("m.json")][:2] == ["low", "hit"]


def test_the_order_of_the_answer_is_the_rank_whatever_the_scores(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written("eval.jsonl", [{"id": "q", "query": "q", "relevant_chunk_ids": ["c6"]}])
    hits = [{"chunk_id": f"c{at}", "score": at / 10} for at in range(1, 9)]
    written("run.jsonl", [{"query_id": "q", "topk": hits}])
    arguments = ("eval", "run.jsonl", "--gold", "eval.jsonl", "--profile", "minimal", "--quiet")
    run(*arguments, "-o", "minimal:m.json", "-o", "misses:miss.json")
    # By score the answer would be third; as returned it is sixth, and cut off.
    assert (read("m.json")["hit_rate"], read("m.json")["mrr"]) == (0.0, 0.0)
    assert read("miss.json")[0]["retrieved"] == ["c1", "c2", "c3", "c4", "c5"]
    run(*arguments, "--set", "k=6", "-o", "minimal:m.json")
    assert read("m.json")["mrr"] == pytest.approx(1 / 6)


@pytest.mark.parametrize("k", [1, 4, 5, 6, 12])
def test_eval_and_triage_list_the_same_misses_at_the_same_k(run, world, k):
    run("eval", *world, "--set", f"k={k}", "-o", "misses:eval.json")
    run("triage", *world, "--line", f"miss={k}", "-o", "misses:triage.json")
    assert Path("eval.json").read_bytes() == Path("triage.json").read_bytes()
    minimal = ("--profile", "minimal")
    run("eval", *world, *minimal, "-o", "misses:eval.json")
    run("triage", *world, *minimal, "-o", "misses:triage.json")
    assert Path("eval.json").read_bytes() == Path("triage.json").read_bytes()


def test_a_question_may_have_a_k_of_its_own(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": "two", "query": "two", "relevant_chunk_ids": ["c"], "k": 2},
        {"id": "three", "query": "three", "relevant_chunk_ids": ["c"], "k": 3},
    ]
    written("eval.jsonl", rows)
    lists = [{"query_id": name, "topk": ["a", "b", "c", "d"]} for name in ("two", "three")]
    written("run.jsonl", lists)
    arguments = ("eval", "run.jsonl", "--gold", "eval.jsonl", "--profile", "minimal", "--quiet")
    run(*arguments, "-o", "minimal:m.json", "-o", "misses:miss.json")
    metrics = read("m.json")
    # Two cut-offs are no one number.
    assert (metrics["k"], metrics["hit_rate"], metrics["n_misses"]) == (None, 0.5, 1)
    assert metrics["precision_at_k"] == pytest.approx((0 + 1 / 3) / 2)
    assert read("miss.json") == [{"query": "two", "retrieved": ["a", "b"], "relevant": ["c"]}]
    written("eval.jsonl", [{**row, "k": 3} for row in rows])
    run(*arguments, "-o", "minimal:m.json")
    assert read("m.json")["k"] == 3


def test_what_cannot_be_measured_is_null(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written("eval.jsonl", [{"id": "q", "query": "q", "relevant_chunk_ids": [], "no_answer": True}])
    written("run.jsonl", [{"query_id": "q", "topk": ["a"]}])
    arguments = ("eval", "run.jsonl", "--gold", "eval.jsonl", "--profile", "minimal")
    done = run(*arguments, "-o", "minimal:m.json", "-o", "misses:miss.json")
    assert done.code == 3
    metrics = read("m.json")
    assert [metrics[key] for key in ("recall_at_k", "hit_rate", "precision_at_k", "mrr")] == [
        None,
        None,
        None,
        None,
    ]
    assert (metrics["n"], metrics["n_misses"], metrics["n_out_of_kb"]) == (0, 0, 1)
    assert read("miss.json") == []


def test_an_item_that_comes_twice_counts_once(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": "q1", "query": "one", "relevant_chunk_ids": ["A", "B"]},
        {"id": "q2", "query": "two", "relevant_chunk_ids": ["C"]},
    ]
    written("eval.jsonl", rows)
    written(
        "run.jsonl",
        [
            {"query_id": "q1", "topk": ["A", "A", "X", "X", "X", "B"]},
            {"query_id": "q2", "topk": ["X", "X", "Y"]},
        ],
    )
    arguments = ("eval", "run.jsonl", "--gold", "eval.jsonl", "--profile", "minimal", "--quiet")
    run(*arguments, "-o", "minimal:m.json", "-o", "misses:miss.json")
    metrics = read("m.json")
    # Of A and B only A is within five places, of which the repeats take three.
    assert metrics["recall_at_k"] == pytest.approx((1 / 2 + 0) / 2)
    assert metrics["precision_at_k"] == pytest.approx((1 / 5 + 0) / 2)
    assert read("miss.json") == [{"query": "two", "retrieved": ["X", "X", "Y"], "relevant": ["C"]}]


def test_relevant_chunks_stand_best_grade_first_then_by_id(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = {
        "id": "q",
        "query": "q",
        "relevant_chunk_ids": ["d", "b", "c", "a"],
        "grades": {"c": 2, "d": 2},
        "negatives": ["e"],
    }
    written("eval.jsonl", [row])
    written("run.jsonl", [{"query_id": "q", "topk": ["x"]}])
    run("eval", "run.jsonl", "--gold", "eval.jsonl", "-o", "misses:m.json")
    assert read("m.json")[0]["relevant"] == ["c", "d", "a", "b"]


def test_texts_come_from_the_log_where_no_file_has_them(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("qrels.txt").write_text("q1 0 a 1\nq2 0 a 1\n")
    written("run.jsonl", [{"query_id": "q1", "query": "as asked", "topk": ["x"]}])
    run("eval", "run.jsonl", "--gold", "qrels.txt", "-o", "misses:m.json")
    assert [one["query"] for one in read("m.json")] == ["as asked", "q2"]
    run("triage", "run.jsonl", "--gold", "qrels.txt", "-o", "misses:t.json")
    assert read("t.json") == read("m.json")


def test_gold_on_documents_lists_chunks_beside_documents(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": "q1", "query": "one", "relevant_doc_ids": ["a"]},
        {"id": "q2", "query": "two", "relevant_doc_ids": ["b"]},
    ]
    written("eval.jsonl", rows)
    lists = [{"query_id": name, "topk": ["x#1", "a#2"]} for name in ("q1", "q2")]
    written("run.jsonl", lists)
    arguments = ("eval", "run.jsonl", "--gold", "eval.jsonl", "--profile", "minimal", "--quiet")
    run(*arguments, "--set", "level=doc", "-o", "misses:m.json", "-o", "minimal:metrics.json")
    assert read("m.json") == [{"query": "two", "retrieved": ["x#1", "a#2"], "relevant": ["b"]}]
    assert read("metrics.json")["hit_rate"] == 0.5


SHORT = """
queries: eval.jsonl
gold: eval.jsonl
corpus: corpus.jsonl
profile: minimal
systems: {words: {retriever: bow, k: %d}}
"""


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """Six chunks, one question whose answer is the fourth, and a system of some k."""
    monkeypatch.chdir(tmp_path)
    texts = ["one two three", "one two", "one", "one four five six seven", "eight", "nine"]
    written("corpus.jsonl", [{"id": f"c#{at}", "text": text} for at, text in enumerate(texts)])
    written("eval.jsonl", [{"id": "q", "query": "one two three", "relevant_chunk_ids": ["c#3"]}])

    def put(k: int) -> None:
        Path("karat.yaml").write_text(SHORT % k)

    return put


@pytest.mark.parametrize("form", ["minimal", "misses"])
def test_a_log_that_ends_above_k_is_refused(run, searched, form):
    searched(3)
    done = run("run", "--quiet", "-o", f"{form}:out.json")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"karat: output {form}: words was asked for 3 hits per query, and 'q' is measured at 5; "
        "set the system's k to 5 and search again, or measure at 3: settings: {k: 3}, --set k=3\n"
    )
    assert not Path("out.json").exists()
    log = ("runs/words.jsonl", "--gold", "eval.jsonl", "--profile", "minimal", "--quiet")
    assert run("eval", *log, "--set", "k=3", "-o", f"{form}:out.json").code == 0
    searched(5)
    assert run("run", "--quiet", "-o", "minimal:out.json").code == 0
    # With room for it, the answer is found at the fourth place.
    assert read("out.json")["mrr"] == 0.25


def test_the_k_of_a_question_may_be_too_much_for_a_log(run, searched):
    row = {"id": "q", "query": "one two three", "relevant_chunk_ids": ["c#3"], "k": 4}
    written("eval.jsonl", [row])
    searched(3)
    done = run("run", "--quiet", "-o", "minimal:out.json")
    assert "'q' is measured at 4 (the k of the query); set the system's k to 4" in done.err


def test_a_list_that_ends_by_itself_is_as_long_as_it_gets(run, searched):
    # Four chunks share a word with the question, and the threshold leaves out the others.
    Path("karat.yaml").write_text(SHORT.replace("k: %d", "threshold: 0.001, k: 5"))
    assert run("run", "--quiet", "-o", "minimal:out.json").code == 0
    log = ("runs/words.jsonl", "--gold", "eval.jsonl", "--profile", "minimal", "--quiet")
    assert run("eval", *log, "--set", "k=10", "-o", "minimal:out.json").code == 0
    assert (read("out.json")["k"], read("out.json")["mrr"]) == (10, 0.25)


def test_other_measures_on_the_table_change_nothing_in_the_file(run, world):
    run("eval", *world, "--profile", "minimal", "-o", "minimal:a.json")
    run("eval", *world, "--profile", "minimal", "-m", "nDCG@3", "-o", "minimal:b.json")
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()


def test_it_is_written_under_its_own_reading_only(run, world):
    done = run("eval", *world, "-o", "minimal:m.json")
    assert done.code == 2
    assert "is written under the profile minimal" in done.err


def test_of_several_systems_each_has_its_file(run, world):
    written("other.jsonl", [{"query_id": "hit", "topk": ["a"]}])
    done = run(
        "eval", "run.jsonl", "other.jsonl", *world[1:], "--profile", "minimal",
        "-o", "minimal:{system}.metrics.json", "-o", "misses:{system}.misses.json",
    )  # fmt: skip
    assert done.code == 0
    assert read("other.metrics.json")["hit_rate"] == pytest.approx(1 / 6)
    assert [one["query"] for one in read("other.misses.json")][:2] == [
        "what of low",
        "what of miss",
    ]
    assert {one.get("error") for one in read("other.misses.json")} == {
        "the run has no answer for it"
    }


def test_the_same_inputs_give_the_same_bytes(run, world):
    for name in ("a", "b"):
        out = ("-o", f"minimal:{name}.json", "-o", f"misses:{name}.misses.json")
        run("eval", *world, "--profile", "minimal", *out)
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    assert Path("a.misses.json").read_bytes() == Path("b.misses.json").read_bytes()


# A second implementation: the formulas of the document, on sets and lists.

ITEMS = st.sampled_from("ABCDEFGH")


@given(
    st.lists(
        st.tuples(st.sets(ITEMS, max_size=4), st.lists(ITEMS, max_size=8, unique=True)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 7),
)
def test_every_number_is_that_of_the_formulas(questions, k):
    gold = Gold.from_dict({f"q{at}": sorted(own) for at, (own, _) in enumerate(questions) if own})
    if not gold.query_ids:
        return
    log = [{"query_id": f"q{at}", "topk": found} for at, (_, found) in enumerate(questions)]
    run = run_of_records(log, name="s")
    queries = Queries.from_dict({f"q{at}": f"text {at}" for at in range(len(questions))})
    prepared = prepare(gold, conventions_of("minimal", {"k": k}), queries=queries)
    scores = score(run, prepared, parse_measures(MEASURES), keep=k)
    report = Report.of([scores], gold=gold, queries=queries)
    metrics, misses = json.loads(to_metrics(report)), json.loads(to_misses(report))

    recalls, precisions, hits, ranks, missed = [], [], [], [], []
    for at, (relevant, found) in enumerate(questions):
        if not relevant:
            continue
        inside = relevant & set(found[:k])
        recalls.append(len(inside) / len(relevant))
        precisions.append(len(inside) / k)
        hits.append(1 if inside else 0)
        places = [place for place, one in enumerate(found[:k], 1) if one in relevant]
        ranks.append(1 / places[0] if places else 0)
        if not inside:
            told = {"query": f"text {at}", "retrieved": found[:k], "relevant": sorted(relevant)}
            missed.append(told)

    def mean(values):
        return math.fsum(values) / len(values)

    assert metrics == pytest.approx(
        {
            "recall_at_k": mean(recalls),
            "k": k,
            "hit_rate": mean(hits),
            "precision_at_k": mean(precisions),
            "mrr": mean(ranks),
            "n": len(hits),
            "n_misses": len(missed),
            "n_failed": 0,
            "n_out_of_kb": len(questions) - len(hits),
        }
    )
    assert misses == missed


def test_where_every_call_failed_nothing_was_measured(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gold.json").write_text('{"q1": {"a": 1}, "q2": {"b": 1}}')
    Path("run.jsonl").write_text(
        '{"query_id": "q1", "error": "down"}\n{"query_id": "q2", "error": "down"}\n'
    )
    words = ("run.jsonl", "--gold", "gold.json", "--profile", "minimal", "-o", "minimal:m.json")
    assert run("eval", *words, "--quiet").code == 3
    found = json.loads(Path("m.json").read_text())
    assert [found[key] for key in ("recall_at_k", "hit_rate", "precision_at_k", "mrr")] == [
        None
    ] * 4
    assert (found["n_failed"], found["n_misses"]) == (2, 2)


def test_forms_without_a_place_for_failed_calls_have_them_told(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gold.json").write_text('{"q1": {"a": 1}, "q2": {"b": 1}}')
    Path("run.jsonl").write_text(
        '{"query_id": "q1", "topk": [{"chunk_id": "a", "score": 1}]}\n'
        '{"query_id": "q2", "error": "down"}\n'
    )
    words = ("run.jsonl", "--gold", "gold.json", "--profile", "memory", "-o", "memory:m.json")
    done = run("eval", *words, "--quiet")
    assert done.err == "karat: 1 failed call of run counted as 0 in memory\n"
