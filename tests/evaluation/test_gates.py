from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from gated import gates_of, hits, lower_end, only, ranks, smallest_passing

import karat
from karat.errors import UsageError
from karat.evaluation.gate_files import read_gate_file
from karat.evaluation.gates import Gate, Gating, check_segments, judge, measures_of
from karat.evaluation.segments import By
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measure

EXAMPLES = Path(__file__).parents[2] / "examples" / "gates"


# The worked example of seed 001, section 10


def course(portuguese: float) -> tuple[karat.Run, karat.Gold, karat.Queries]:
    """120 queries in three languages with five gold chunks each, of five documents.

    Every list is perfect, except that the given share of Portuguese ones finds nothing.
    """
    languages = ["pt-BR", "es-AR", "en"]
    hits, calls, gold, queries = [], [], {}, {}
    for i in range(120):
        language = languages[i % 3]
        own = [f"doc{i}-{j}#1" for j in range(5)]
        lost = language == "pt-BR" and i // 3 < portuguese * 40
        listed = [f"other{j}#1" for j in range(5)] if lost else own
        hits += [(f"q{i}", item, rank) for rank, item in enumerate(listed, 1)]
        calls.append((f"q{i}", 40.0 + i % 20, 30.0 + i % 10))
        gold[f"q{i}"] = own
        queries[f"q{i}"] = {"text": f"question {i}", "language": language}
    run = karat.Run.from_frame(
        pl.DataFrame(hits, schema=["query_id", "item_id", "rank"], orient="row"),
        calls=pl.DataFrame(
            calls, schema=["query_id", "latency.retrieve", "latency.rerank"], orient="row"
        ),
    )
    return run, karat.Gold.from_dict(gold), karat.Queries.from_dict(queries)


def judged(example: str, portuguese: float) -> Gating:
    found = read_gate_file(EXAMPLES / example, conventions=conventions_of("rag"))
    gates, left_out = found.gates, found.left_out
    run, gold, queries = course(portuguese)
    check_segments(gates, queries, gold.query_ids)
    scores = karat.evaluate(run, gold, measures_of(gates), profile="rag", queries=queries)
    return judge(gates, scores, queries, system="s", left_out=left_out)


@pytest.mark.parametrize("example", ["rag.yaml", "ci_gates.yaml"])
def test_the_worked_example_passes(example):
    gating = judged(example, portuguese=0)
    assert gating.verdict == "pass", [result.because for result in gating.results]


@pytest.mark.parametrize("example", ["rag.yaml", "ci_gates.yaml"])
def test_the_worked_example_fails_for_portuguese_alone_when_portuguese_drops(example):
    # 3 of 40 lost: 37/40 has the lower bound 0.80, 117/120 overall has 0.93.
    gating = judged(example, portuguese=3 / 40)
    failed = [result for result in gating.results if result.verdict != "pass"]
    assert [(one.measure, one.segment) for one in failed] == [("R@5", {"language": "pt-BR"})]
    assert failed[0].value == pytest.approx(lower_end(37, 40), abs=0.006)
    assert gating.verdict == "fail"


def test_the_courses_file_lists_what_is_not_about_retrieval():
    assert judged("ci_gates.yaml", portuguese=0).left_out == (
        "generation.true_success",
        "generation.citation_correctness",
        "generation.no_answer_false_rate_max",
    )


def test_the_memory_systems_targets_say_first_that_one_is_out_of_reach():
    gates = read_gate_file(EXAMPLES / "memory.yaml").gates
    quality = [gate for gate in gates if gate.measure.name not in {"latency", "Sim"}]
    gold = karat.Gold.from_dict({f"q{i}": [f"m{i}"] for i in range(50)})
    run = karat.Run.from_dict({f"q{i}": [f"m{i}"] for i in range(50)})
    whole = {"short_lists": "complete"}
    corpus = karat.Corpus.from_dict({f"m{i}": f"memory {i}" for i in range(50)})
    scores = karat.evaluate(run, gold, measures_of(quality), settings=whole, corpus=corpus)
    gating = judge(quality, scores, None, system="s")
    first, *rest = gating.results
    assert first.unreachable
    assert first.verdict == "fail"
    assert first.because == "P@5: no ranking can exceed 0.70: the ceiling on this gold is 0.2"
    assert {result.verdict for result in rest} == {"pass"}
    assert not any(result.unreachable for result in rest)


def test_the_story_tools_threshold_is_strict():
    (gate,) = read_gate_file(EXAMPLES / "story.yaml").gates
    assert (gate.min, gate.strict, gate.on) == (0.6, True, "mean")
    # (1 + 1/5) / 2 = 0.6
    assert only(ranks(1, 5, lines=["mean RR > 0.6"])).verdict == "fail"
    assert only(ranks(1, 4, lines=["mean RR > 0.6"])).verdict == "pass"


# Segments


QUERIES = karat.Queries.from_dict(
    {f"q{i}": {"text": "t", "language": ["pt-BR", "en"][i % 2], "hard": i < 20} for i in range(40)}
)


def test_a_gate_by_a_column_is_judged_in_every_segment():
    gating = ranks(*[1, None] * 20, lines=["mean Hit@5 [language] >= 0.5"], queries=QUERIES)
    found = [(one.segment, one.mean, one.verdict) for one in gating.results]
    assert found == [
        ({"language": "en"}, 0.0, "fail"),
        ({"language": "pt-BR"}, 1.0, "pass"),
    ]


def test_segments_may_be_crossed_and_named():
    lines = ["mean Hit@5 [language*hard=pt-BR * true] >= 0.5"]
    result = only(ranks(*[1, None] * 20, lines=lines, queries=QUERIES))
    assert result.segment == {"language": "pt-BR", "hard": "true"}
    assert (result.n, result.mean) == (10, 1.0)
    assert result.because.startswith("Hit@5 in language pt-BR, hard true needs")


def test_a_value_named_twice_is_judged_once():
    gate = replace(gates_of("RR [language=en] > 0")[0], values=("en", "en"))
    scores = karat.evaluate(
        karat.Run.from_dict({"q1": ["a"]}), karat.Gold.from_dict({"q1": ["a"]}), "RR"
    )
    assert len(judge([gate], scores, QUERIES, system="s").results) == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("RR [langage=en] > 0", "gates.yaml: gate 1: unknown column 'langage'"),
        (
            "RR [language=pt-RB] > 0",
            "gate 1: unknown value of language 'pt-RB'; did you mean pt-BR?",
        ),
        ("RR [language=ptBR] > 0", "unknown value of language 'ptBR'; did you mean pt-BR?"),
        ("RR [text=x] > 0", "unknown column 'text'"),
    ],
)
def test_a_column_or_value_that_is_not_there_is_refused_before_scoring(line, told):
    with pytest.raises(UsageError) as refused:
        check_segments(gates_of(line), QUERIES, QUERIES.frame["query_id"])
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_segment_needs_the_queries():
    with pytest.raises(UsageError, match="gate 1: by 'language' needs the queries' attributes"):
        check_segments(gates_of("RR [language=en] > 0"), None, ["q1"])


def test_a_measure_that_was_not_scored_is_refused():
    scores = karat.evaluate(
        karat.Run.from_dict({"q1": ["a"]}), karat.Gold.from_dict({"q1": ["a"]}), "RR"
    )
    with pytest.raises(UsageError, match=r"gate 1: R@5 was not scored; add it to the measures"):
        judge(gates_of("R@5 >= 0.9"), scores, None, system="s")


def test_spellings_are_matched_only_where_one_value_fits():
    gate = Gate(parse_measure("RR"), min=0.0, by=By(("hard",)), values=("T-R-U-E",))
    with pytest.raises(UsageError, match="unknown value of hard"):
        check_segments([gate], QUERIES, QUERIES.frame["query_id"])
    check_segments([replace(gate, any_spelling=True)], QUERIES, QUERIES.frame["query_id"])


# What a gate is, and what it says


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({}, "neither min nor max"),
        ({"min": 0.1, "max": 0.2}, "both min and max"),
        ({"min": math.nan}, "give a number"),
        ({"max": math.inf}, "give a number"),
        ({"min": 0.1, "values": ("en",)}, "by: the column"),
        ({"min": 0.1, "by": By(("language",)), "values": ()}, "at least one value"),
    ],
)
def test_a_gate_that_means_nothing_is_refused(limits, told):
    with pytest.raises(UsageError, match=told):
        Gate(parse_measure("RR"), **limits)


def test_the_measures_to_score_are_named_once():
    gates = gates_of("RR > 0.1", "R@5 >= 0.9", "mean RR < 0.9")
    assert [str(measure) for measure in measures_of(gates)] == ["RR", "R@5"]


def test_the_report_entry_has_the_one_limit_that_the_gate_has():
    entry = hits(95, 100, "Hit@5 >= 0.85").to_dict()
    assert entry == {
        "system": "s",
        "measure": "Hit@5",
        "segment": None,
        "on": "ci_low",
        "min": 0.85,
        "strict": False,
        "value": entry["ci"][0],
        "mean": 0.95,
        "ci": entry["ci"],
        "n": 100,
        "needed": pytest.approx(smallest_passing(0.85, 100), abs=0.011),
        "ceiling": 1.0,
        "unreachable": False,
        "verdict": "pass",
        "because": entry["because"],
    }
    below = hits(95, 100, "FPR@1 < 0.2").to_dict()
    assert "min" not in below
    assert (below["max"], below["strict"]) == (0.2, True)


def test_every_reason_is_one_sentence_with_its_figures():
    assert hits(209, 225, "R@5 >= 0.90").because == (
        "R@5 needs a lower bound of at least 0.90; measured 0.93 (95 % interval 0.89 to 0.96)."
        " With 225 queries, a mean of 0.95 would pass"
    )
    assert hits(225, 225, "R@5 >= 0.90").because == (
        "R@5 needs a lower bound of at least 0.90; measured 1.00 (95 % interval 0.98 to 1.00)."
        " With 225 queries, a mean of 0.95 is enough"
    )
    mean = hits(9, 10, "mean R@5 > 0.9").because
    assert mean.startswith("R@5 needs a mean above 0.90; measured 0.90 ")
    assert mean.endswith(", 10 queries")


def test_a_reason_shows_enough_digits_to_tell_a_bound_from_its_limit():
    # 216 of 225 has the lower bound 0.9260.
    near = hits(216, 225, "R@5 >= 0.93").because
    assert "at least 0.930;" in near
    assert "interval 0.926 to" in near
    nearer = hits(216, 225, "R@5 >= 0.9261").because
    assert "at least 0.9261;" in nearer
    assert "interval 0.9260 to" in nearer


def test_what_is_printed_as_needed_passes():
    # 207/225 = 0.92 would be printed as 0.92; a larger k/n is rounded up, never down.
    for limit in (0.5, 0.61, 0.77, 0.9):
        result = hits(10, 225, f"R@5 >= {limit}")
        printed = float(result.because.partition("a mean of ")[2].partition(" ")[0])
        assert printed >= result.needed - 1e-9
