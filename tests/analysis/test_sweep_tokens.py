"""What a cut-off costs in tokens or time, and which budgets a log can fill."""

from __future__ import annotations

import polars as pl
from swept import staged_of, world

from karat.analysis.sweep.curves import TOKENS, parse_ks, sweep_system
from karat.data.tables import Corpus, Gold, Run
from karat.formats.runlog import run_of_records
from karat.measure.names import parse_measure
from karat.measure.ranked import UNLIMITED

LENGTHS = {"A": 10, "B": 20, "C": 30, "X": 100}
TEXTS = {item: {"text": "w " * n, "tokens": n} for item, n in LENGTHS.items()}


def test_tokens_are_those_of_the_first_items():
    # The second has no gold and is answered, the third has some and is not.
    gold = Gold.from_dict({"q1": ["A"], "q2": {}, "q3": ["C"]})
    run = Run.from_dict({"q1": ["A", "B", "C"], "q2": ["X", "A"]})
    staged, curves = staged_of(
        run, gold, ["R"], (1, 2, 3, 9), corpus=Corpus.from_dict(TEXTS), keep=9
    )
    budget = sweep_system(staged, curves, budget=TOKENS)["budget"]
    points = budget["points"]
    # Lists that nothing says were cut are complete: nine cost no more than three.
    assert [point["mean"] for point in points] == [55.0, 70.0, 85.0, 85.0]
    assert [point["n"] for point in points] == [2, 2, 2, 2]
    assert not any(point["beyond_log"] for point in points)
    low, high = points[0]["ci"]
    assert 10 <= low < 55 < high <= 100
    assert (budget["counted"], budget["unknown_items"]) == ("tokens", 0)


def test_words_are_counted_where_there_are_no_token_counts():
    gold = Gold.from_dict({"q1": ["A"]})
    corpus = Corpus.from_dict({"A": "one two three", "B": "four"})
    run = Run.from_dict({"q1": ["A", "B"]})
    staged, curves = staged_of(run, gold, ["R"], (1, 2), corpus=corpus, keep=2)
    budget = sweep_system(staged, curves, budget=TOKENS)["budget"]
    assert [point["mean"] for point in budget["points"]] == [3.0, 4.0]
    assert budget["counted"] == "words"


def test_a_query_with_an_item_of_unknown_length_is_left_out_and_the_item_counted():
    gold = Gold.from_dict({"q1": ["A"], "q2": ["B"]})
    run = Run.from_dict({"q1": ["A", "unheard"], "q2": ["B", "C"]})
    staged, curves = staged_of(run, gold, ["R"], (1, 2), corpus=Corpus.from_dict(TEXTS), keep=2)
    budget = sweep_system(staged, curves, budget=TOKENS)["budget"]
    assert [(p["mean"], p["n"]) for p in budget["points"]] == [(15.0, 2), (50.0, 1)]
    assert budget["unknown_items"] == 1


def test_a_run_may_bring_the_lengths_itself():
    rows = {"query_id": ["q1", "q1"], "item_id": ["A", "B"], "rank": [1, 2], "tokens": ["7", "9"]}
    run = Run.from_frame(pl.DataFrame(rows))
    staged, curves = staged_of(run, Gold.from_dict({"q1": ["A"]}), ["R"], (1, 2), keep=2)
    budget = sweep_system(staged, curves, budget=TOKENS)["budget"]
    assert [point["mean"] for point in budget["points"]] == [7.0, 16.0]


def test_without_any_length_there_is_no_line_of_tokens():
    run, gold = world(8)
    staged, curves = staged_of(run, gold, ["R"], (1, 2), keep=2)
    assert sweep_system(staged, curves, budget=TOKENS)["budget"] is None


def test_a_budget_is_measured_as_long_as_no_list_was_cut_before_it_was_full():
    gold = Gold.from_dict({"q1": ["C"], "q2": ["A"]})
    corpus = Corpus.from_dict({**TEXTS, "Y": "y"})
    ks = parse_ks("20tok, 30tok, 31tok, 51tok")

    def points(**lists):
        log = [{"query_id": name, "k": 2, "topk": items} for name, items in lists.items()]
        run = run_of_records(log, name="log")
        staged, curves = staged_of(run, gold, ["R"], ks, corpus=corpus, keep=UNLIMITED)
        return sweep_system(staged, curves)["measures"]["R"]["points"]

    # Both lists are cut at two items: of 30 and of 50 tokens.
    found = points(q1=["A", "B"], q2=["C", "B"])
    assert [point["beyond_log"] for point in found] == [False, False, True, True]
    assert all(point["headroom"] is None for point in found)
    # A list that ended by itself, shorter than the others, holds all there was.
    found = points(q1=["A"], q2=["C", "B"])
    assert [point["beyond_log"] for point in found] == [False, False, False, True]
    assert [point["mean"] for point in found] == [0.0, 0.0, 0.0, None]


def test_a_latency_is_one_point_at_the_k_of_the_log():
    gold = Gold.from_dict({f"q{n}": ["A"] for n in range(12)})
    calls = [
        {"query_id": f"q{n}", "topk": ["A", "B"], "latency_ms": {"retrieve": 10 + n, "rerank": 5}}
        for n in range(12)
    ]
    run = run_of_records(calls, name="log")
    p50 = parse_measure("latency.total.p50")
    staged, curves = staged_of(run, gold, ["R"], (1, 2), more=[p50])
    budget = sweep_system(staged, curves, budget=p50)["budget"]
    assert (budget["kind"], budget["k"], budget["n"]) == ("latency.total.p50", 2, 12)
    assert budget["mean"] == 20.5
    assert budget["because"] is None
    other = parse_measure("latency.embed.p50")
    staged, curves = staged_of(run, gold, ["R"], (1, 2), more=[other])
    budget = sweep_system(staged, curves, budget=other)["budget"]
    assert budget["mean"] is None
    assert "latency.embed is not in the run; it logs latency.retrieve" in budget["because"]
