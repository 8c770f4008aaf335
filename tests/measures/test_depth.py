"""Lists that were cut say nothing of what lies below: measures that look there have no value."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import karat
from karat.measure.conventions import PROFILES, conventions_of
from karat.measure.evaluate_measure import cut_depth

NEVER = ("trec", "trec10", "story", "ab", "minimal")
ASKING = ("karat", "rag", "memory")


def lists(lengths, **meta):
    """A run of lists of these lengths whose second item is gold, and its gold."""
    run = {f"q{at:02}": [f"d{rank}" for rank in range(n)] for at, n in enumerate(lengths)}
    gold = karat.Gold.from_dict({query: ["d1", "d7"] for query in run})
    made = karat.Run.from_dict(run)
    return karat.Run(made.hits, calls=made.calls, meta=meta, order="rank"), gold


def test_every_profile_says_whether_short_lists_are_asked_about():
    assert {*NEVER, *ASKING} == {*PROFILES}
    for name in NEVER:
        assert cut_depth(np.full(50, 5), conventions_of(name), logged=5) is None
    for name in ASKING:
        assert cut_depth(np.full(50, 5), conventions_of(name), logged=5).depth == 5


@pytest.mark.parametrize(
    ("lengths", "logged", "corpus", "depth"),
    [
        ([5] * 10, None, None, 5),
        ([5] * 9, None, None, None),
        # A query without a list has none that could be shorter.
        ([5] * 10 + [0], None, None, 5),
        ([5] * 9 + [0], None, None, None),
        ([5] * 20 + [4], None, None, None),
        ([5] * 20, None, 6, 5),
        ([5] * 20, None, 5, None),
        ([5, 5], 5, None, 5),
        ([5, 3, 0], 5, None, 5),
        ([5] * 20, 20, None, 20),
        ([5, 4], 20, None, 20),
        ([0, 0], 20, None, 20),
        ([5] * 20, 20, 20, None),
        # Lists that go on below what the log tells were not cut there.
        ([8] * 20, 5, None, 8),
        ([8, 6, 7], 5, None, None),
        ([5] * 20, True, None, 5),
        ([5] * 20, "5", None, 5),
        ([5] * 20, 0, None, 5),
        ([], None, None, None),
    ],
)
def test_where_lists_were_cut(lengths, logged, corpus, depth):
    found = cut_depth(
        np.array(lengths, dtype=np.int64),
        conventions_of("karat"),
        logged=logged,
        corpus_items=corpus,
    )
    assert (None if found is None else found.depth) == depth


def test_lists_that_karat_itself_ends_do_not_count_as_cut():
    conventions = conventions_of("karat", {"depth": 5})
    assert cut_depth(np.full(20, 5), conventions) is None
    assert cut_depth(np.full(20, 4), conventions).depth == 4


# By hand: gold d1 stands at rank 2, d7 at rank 8 and so below the fifth.
WITHIN = {"R@5": 0.5, "P@5": 0.2, "Hit@3": 1.0, "RR@5": 0.5, "RR": 0.5, "AP": 0.25}
BEYOND = ("R@6", "P@10", "RR@10", "nDCG@10", "AUC@20", "Hit@20", "Judged@6", "Coverage@10")


@pytest.mark.parametrize("meta", [{}, {"k": 5}])
def test_measures_beyond_the_cut_have_no_value_and_say_why(meta):
    run, gold = lists([5] * 12, **meta)
    scores = karat.evaluate(run, gold, [*WITHIN, *BEYOND])
    means = scores.means()
    assert {name: means[name] for name in WITHIN} == pytest.approx(WITHIN)
    assert {name: means[name] for name in BEYOND} == dict.fromkeys(BEYOND)
    assert scores.table.select(BEYOND).null_count().row(0) == (12,) * len(BEYOND)
    assert scores.cut.depth == 5
    assert scores.cut.beyond == BEYOND
    assert set(scores.lacks) == set(BEYOND)
    for name, summary in scores.summaries.items():
        assert ("cut at 5" in (summary.lacks or "")) == (name in BEYOND)


@pytest.mark.parametrize(("of", "mean"), [("gold", 1), ("items", 12 / 14), ("corpus", 1)])
def test_coverage_beyond_the_cut_has_no_value_either(of, mean):
    gold = karat.Gold.from_dict({f"q{at}": {f"i{at}": 1} for at in range(12)})
    lists = {f"q{at}": {f"i{at}": 3.0, "x": 2.0, "y": 1.0} for at in range(12)}
    items = ["x", "y", *(f"i{at}" for at in range(12))]
    corpus = karat.Corpus.from_dict(dict.fromkeys(items, ""))
    names = [f"Coverage(of='{of}')@{k}" for k in (3, 5)]
    scores = karat.evaluate(karat.Run.from_dict(lists), gold, names, corpus=corpus)
    within, beyond = scores.summaries.values()
    assert (within.mean, within.n) == (mean, 12)
    assert (beyond.mean, beyond.n) == (None, 0)
    assert "the lists were cut at 3" in str(beyond.lacks)


def test_every_other_short_list_is_complete():
    for run, gold in (lists([5] * 9), lists([5] * 12 + [4])):
        scores = karat.evaluate(run, gold, ["R@10", "P@10", "AP@100"])
        assert scores.cut is None
        # P@k divides by k, whatever came back.
        assert scores.means() == pytest.approx({"R@10": 0.5, "P@10": 0.1, "AP@100": 0.25})


@pytest.mark.parametrize("profile", NEVER)
def test_other_profiles_take_short_lists_as_they_are(profile):
    run, gold = lists([5] * 12, k=5)
    settings = {} if PROFILES[profile].conventions.order == "rank" else {"order": "rank"}
    scores = karat.evaluate(run, gold, ["R@10", "P@10"], profile=profile, settings=settings)
    assert scores.means() == pytest.approx({"R@10": 0.5, "P@10": 0.1})
    assert scores.cut is None


def test_a_corpus_that_is_as_long_as_the_lists_leaves_nothing_below():
    run, gold = lists([8] * 12, k=8)
    small = karat.Corpus.from_dict({f"d{at}": "x" for at in range(8)})
    assert karat.evaluate(run, gold, ["R@10"], corpus=small).means() == {"R@10": 1.0}
    large = karat.Corpus.from_dict({f"d{at}": "x" for at in range(9)})
    assert karat.evaluate(run, gold, ["R@10"], corpus=large).means() == {"R@10": None}


def test_lists_that_are_known_to_be_whole_are_set_so():
    run, gold = lists([5] * 12)
    scores = karat.evaluate(run, gold, ["R@10"], settings={"short_lists": "complete"})
    assert scores.means() == {"R@10": 0.5}
    assert scores.conventions.document()["short_lists"] == "complete"
    assert "short_lists" not in conventions_of("karat").document()
    with pytest.raises(karat.UsageError, match="it can be complete"):
        conventions_of("trec", {"short_lists": "cut"})


def test_a_query_that_asks_for_more_than_was_returned_has_no_value_either():
    run, gold = lists([5] * 12)
    ids = [f"q{at:02}" for at in range(12)]
    frame = pl.DataFrame({"query_id": ids, "text": ids, "k": [3] * 11 + [9]})
    queries = karat.Queries.from_frame(frame)
    assert karat.evaluate(run, gold, ["R@k"], queries=queries).means() == {"R@k": None}
    queries = karat.Queries.from_frame(frame.with_columns(k=pl.Series([3] * 11 + [5])))
    assert karat.evaluate(run, gold, ["R@k"], queries=queries).means() == {"R@k": 0.5}


def test_a_budget_of_tokens_needs_lists_that_fill_it():
    run, gold = lists([5] * 12)
    corpus = karat.Corpus.from_dict({f"d{at}": "one two three four" for at in range(30)})
    # Five items take 20 tokens and fill 20; of 21 there is one left for what lies below.
    means = karat.evaluate(run, gold, ["R@16tok", "R@20tok", "R@21tok"], corpus=corpus).means()
    assert means == {"R@16tok": 0.5, "R@20tok": 0.5, "R@21tok": None}
    ragged, gold = lists([5] * 12 + [4])
    means = karat.evaluate(ragged, gold, ["R@99tok"], corpus=corpus).means()
    assert means == {"R@99tok": 0.5}


def test_gates_beyond_the_cut_are_unmeasurable_and_comparisons_are_not_made():
    run, gold = lists([5] * 12)
    longer, _ = lists([20] * 12)
    scores = karat.evaluate(run, gold, ["R@5", "R@10"])
    gating = karat.gate(scores, ["R@10 >= 0.1", "R@5 >= 0.1"])
    assert [one.verdict for one in gating.results] == ["unmeasurable", "pass"]
    assert "cut at 5" in gating.results[0].because
    found = karat.compare([longer, run], gold, ["R@10", "R@5"], primary="R@10")
    row = found.rows[0]
    assert (row.measure, row.delta, row.p, row.verdict) == ("R@10", None, None, "unclear")
    assert "cut at 5" in row.because
    assert found.rows[1].delta == 0


def test_through_the_command(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    lines = [
        {"query_id": f"q{at}", "k": 5, "topk": [f"d{rank}" for rank in range(5)]} for at in range(4)
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    (tmp_path / "gold.txt").write_text("".join(f"q{at} 0 d1 1\n" for at in range(4)))
    done = run("eval", "log.jsonl", "--gold", "gold.txt", "-m", "R@5,R@10", "-o", "r.json")
    assert done.code == 0
    assert "not measured: R@10" in done.out
    [system] = json.loads((tmp_path / "r.json").read_text())["systems"]
    told = {name: (one["mean"], one["n"]) for name, one in system["measures"].items()}
    assert told == {"R@5": (1.0, 4), "R@10": (None, 0)}
    assert (system["cut_at"], system["beyond_log"]) == (5, ["R@10"])
    for form in ("r.md", "r.html", "r.csv"):
        out = run("eval", "log.jsonl", "--gold", "gold.txt", "-m", "R@5,R@10", "-o", form)
        assert out.code == 0
    assert "cut at 5" in (tmp_path / "r.md").read_text()
    assert "cut at 5" in (tmp_path / "r.html").read_text()
