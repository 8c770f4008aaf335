"""Gates as a lesson writes them: sentences of several limits, in a text file or in YAML."""

from __future__ import annotations

import json

import pytest

import karat
from karat.evaluation.gate_files import limits_in, parse_gates, read_gate_file
from karat.evaluation.segments import By

LESSON = """\
Ship if (CI lower bounds):
- Recall@5 ≥ 0.90 overall and ≥ 0.85 in BR-pt and es-AR segments
- nDCG@5 ≥ 0.80 overall
- Precision@5 ≥ 0.60 and Distinct-docs@5 ≥ 3.0 (avg)
- Median retrieval latency ≤ 60 ms; rerank ≤ 50 ms
"""
MEANT = [
    ("R@5", 0.9, None, None),
    ("R@5", 0.85, None, ("BR-pt", "es-AR")),
    ("nDCG@5", 0.8, None, None),
    ("P@5", 0.6, None, None),
    ("DistinctDocs@5", 3.0, None, None),
    ("latency.retrieve.p50", None, 60.0, None),
    ("latency.rerank.p50", None, 50.0, None),
]


def told(gates):
    return [(str(one.measure), one.min, one.max, one.values) for one in gates]


@pytest.mark.parametrize("name", ["gates.txt", "gates.md", "gates.yaml", "gates"])
def test_the_lessons_gates_are_read_as_they_are_written(tmp_path, name):
    (tmp_path / name).write_text(LESSON, encoding="utf-8")
    found = read_gate_file(tmp_path / name)
    gates, left_out = found.gates, found.left_out
    assert told(gates) == MEANT
    assert left_out == ()
    assert {one.on for one in gates} == {"interval"}
    assert not any(one.strict for one in gates)
    assert gates[1].where.endswith(f"{name}:2: gate 1")


def test_one_sentence_a_line_needs_no_bullets(tmp_path):
    lines = [line.removeprefix("- ") for line in LESSON.splitlines()]
    text = "# what we ship by\n```\n" + "\n\n".join(lines) + "\n```\n"
    (tmp_path / "gates.txt").write_text(text, encoding="utf-8")
    assert told(read_gate_file(tmp_path / "gates.txt").gates) == MEANT


def test_ascii_signs_and_other_hyphens_mean_the_same(tmp_path):
    text = LESSON.replace("≥", ">=").replace("≤", "<=").replace("-docs", "\u2011docs")
    (tmp_path / "gates.txt").write_text(text, encoding="utf-8")
    assert told(read_gate_file(tmp_path / "gates.txt").gates) == MEANT


@pytest.mark.parametrize(
    ("sentence", "limits"),
    [
        ("R@5 > 0.9 overall", [("R@5", "min", 0.9, True, None)]),
        ("Recall@5 ≥ 90 % overall.", [("Recall@5", "min", 0.9, False, None)]),
        (
            "MRR >= .5, and P@5 >= 0.3",
            [("MRR", "min", 0.5, False, None), ("P@5", "min", 0.3, False, None)],
        ),
        (
            "R@5 ≥ 0.85 in the pt-BR, es-AR and en segments",
            [("R@5", "min", 0.85, False, ("pt-BR", "es-AR", "en"))],
        ),
        (
            "p90 rerank latency < 50 ms; total ≤ 90 ms",
            [
                ("latency.rerank.p90", "max", 50, True, None),
                ("latency.total.p90", "max", 90, False, None),
            ],
        ),
        (
            "Retrieval latency (p95) ≤ 80 ms",
            [("latency.retrieve.p95", "max", 80, False, None)],
        ),
    ],
)
def test_what_sentences_may_say(sentence, limits):
    forms = [
        {"measure": measure, side: number, "strict": strict, "values": values}
        for measure, side, number, strict, values in limits
    ]
    by_language = {"by": By(("language",)), "any_spelling": True}
    alike = {"any_spelling": True, "by": None}
    assert limits_in(sentence) == [
        form | (alike if form["values"] is None else by_language) for form in forms
    ]


@pytest.mark.parametrize(
    "sentence",
    ["", "Recall@5 is good", "≥ 0.9", "R@5 ≥ 0.9 overall but only on Mondays", "R@5 ≥ x overall"],
)
def test_what_is_no_gate_is_refused_with_its_line(tmp_path, sentence):
    with pytest.raises(karat.UsageError, match="cannot read"):
        limits_in(sentence)
    if sentence:
        (tmp_path / "gates.txt").write_text(f"R@1 >= 0.1\n{sentence}\n", encoding="utf-8")
        with pytest.raises(karat.InputError, match=r"gates\.txt:2: gate 2"):
            read_gate_file(tmp_path / "gates.txt")


def world(column, values):
    gold = karat.Gold.from_dict({f"q{n}": ["a"] for n in range(60)})
    run = karat.Run.from_dict({f"q{n}": ["a", "b", "c", "d", "e"] for n in range(60)})
    queries = karat.Queries.from_dict(
        {f"q{n}": {"text": "t", column: values[n % len(values)]} for n in range(60)}
    )
    return karat.evaluate(run, gold, ["R@5"], queries=queries), queries


@pytest.mark.parametrize(
    "sentence",
    ["Median retrieval latency ≤ 0.06 s", "R@5 ≥ 0.9 and p90 latency < 2 seconds"],
)
def test_a_latency_in_seconds_is_refused_and_the_message_shows_milliseconds(sentence):
    with pytest.raises(karat.UsageError, match=r"cannot read .*latency ≤ 800 ms"):
        limits_in(sentence)


@pytest.mark.parametrize("column", ["language", "locale"])
def test_names_of_segments_are_found_in_any_order_and_column(column):
    scores, queries = world(column, ["pt-BR", "es-AR", "en"])
    sentence = "Recall@5 ≥ 0.80 overall and ≥ 0.75 in BR-pt and esAR segments"
    gating = karat.gate(scores, [sentence], queries=queries)
    segments = [one.segment for one in gating.results]
    assert segments == [None, {column: "pt-BR"}, {column: "es-AR"}]
    assert gating.verdict == "pass"


def test_a_segment_that_is_not_there_is_refused_with_the_nearest_one():
    scores, queries = world("language", ["pt-BR", "es-AR", "en"])
    with pytest.raises(karat.UsageError, match=r"'pt-PR'.*pt-BR"):
        karat.gate(scores, ["R@5 ≥ 0.75 in pt-PR segments"], queries=queries)


def test_a_sentence_stands_in_a_list_beside_other_gates():
    gates, _ = parse_gates(["R@5 >= 0.5", "P@5 ≥ 0.60 and RR ≥ 0.5", {"measure": "RR"}][:2], "g")
    assert [str(one.measure) for one in gates] == ["R@5", "P@5", "RR"]


def test_through_the_command(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gates.txt").write_text(LESSON, encoding="utf-8")
    languages = ["pt-BR", "es-AR", "en"]
    with (tmp_path / "eval.jsonl").open("w") as asked, (tmp_path / "log.jsonl").open("w") as log:
        for n in range(90):
            asked.write(
                json.dumps(
                    {
                        "query_id": f"q{n}",
                        "query": "x",
                        "gold_evidence": [f"d{i}#1" for i in range(4)],
                        "language": languages[n % 3],
                    }
                )
                + "\n"
            )
            # Of Portuguese queries every other list misses half of the gold.
            good = 2 if n % 6 == 0 else 4
            top = [f"d{i}#1" for i in range(good)] + [f"x{i}#1" for i in range(5 - good)]
            record = {"query_id": f"q{n}", "k": 5, "topk": top}
            log.write(json.dumps(record | {"latency_ms": {"retrieve": 30, "rerank": 55}}) + "\n")
    done = run(
        *("eval", "log.jsonl", "--gold", "eval.jsonl", "--profile", "rag"),
        *("--gates", "gates.txt", "-o", "r.json"),
    )
    assert done.code == 1
    gates = json.loads((tmp_path / "r.json").read_text())["gates"]
    found = {(one["measure"], str(one["segment"])): one["verdict"] for one in gates}
    assert len(found) == 8
    assert found["R@5", "{'language': 'pt-BR'}"] == "fail"
    assert found["R@5", "{'language': 'es-AR'}"] == "pass"
    assert found["DistinctDocs@5", "None"] == "pass"
    assert found["latency.retrieve.p50", "None"] == "pass"
    assert found["latency.rerank.p50", "None"] == "fail"
