from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from karat.analysis.check import Check
from karat.analysis.check import check as check_evaluation
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import UsageError
from karat.evaluation.api import evaluate
from karat.evaluation.evaluation import Evaluation
from karat.evaluation.gate_files import parse_gates
from karat.stats.paired import randomisation


def one_each(n: int) -> Gold:
    """A set in which every query has one relevant item."""
    return Gold.from_dict({f"q{at:03}": {f"d{at}": 1 + at % 2} for at in range(n)})


def check(gold: Gold, *gates: Any, profile: str = "karat", settings=None, **more: Any) -> Check:
    parsed, _ = parse_gates(list(gates), "gates.yaml")
    more.setdefault("measures", ["nDCG@10"])
    own = {name: more.pop(name) for name in ("by", "spread") if name in more}
    runs = more.pop("runs", ())
    evaluation = Evaluation(gold, profile=profile, settings=settings, **more)
    return check_evaluation(evaluation, *runs, gates=parsed, **own)


def detectable(gold: Gold, **more: Any) -> dict[str, Any]:
    return check(gold, **more).to_dict()["detectable"]


def found(result: Check, kind: str) -> Any:
    return next((one for one in result.findings if one.kind == kind), None)


def test_a_gate_above_its_ceiling_is_an_error():
    # one relevant item in five places: P@5 is 0.2 at best
    result = check(one_each(40), "P@5 >= 0.3")
    one = found(result, "unreachable_target")
    assert one.level == "error"
    assert one.examples[0]["ceiling"] == pytest.approx(0.2)
    assert "the ceiling on this gold is 0.2" in one.examples[0]["because"]


def test_a_gate_that_the_ideal_ranking_passes_is_fine():
    result = check(one_each(40), "R@5 >= 0.9")
    assert "1 gate, all passed by the ideal ranking" in result.body["fine"]
    assert found(result, "gate_needs_more") is None


def test_a_gate_on_the_interval_needs_enough_queries_for_a_perfect_result():
    # a perfect column's lower bound is 0.025^(1/n): 0.9 takes 36 queries
    assert found(check(one_each(35), "R@5 >= 0.9"), "gate_needs_more").count == 1
    assert found(check(one_each(36), "R@5 >= 0.9"), "gate_needs_more") is None
    assert found(check(one_each(34), "mean R@5 >= 0.9"), "gate_needs_more") is None


def test_gates_on_what_no_ranking_decides_are_left_alone():
    result = check(one_each(40), "latency.retrieve.p50 <= 60", "R@5 <= 0.5")
    assert found(result, "unreachable_target") is None
    assert found(result, "gate_needs_more") is None


@pytest.mark.parametrize("profile", ["karat", "trec", "ab", "minimal"])
def test_ceilings_are_those_of_an_evaluation(profile):
    gold = Gold.from_dict({"q1": {"a": 1, "b": 2, "c": 1}, "q2": {"a": 1}, "q3": {}})
    measures = ["P@5", "R@1", "R@2", "Hit@1"]
    result = check(gold, profile=profile, measures=measures)
    # every query is answered, so that none is left out of the means
    hits = {
        "query_id": ["q1", "q2", "q3"],
        "item_id": ["x"] * 3,
        "score": [1.0] * 3,
        "rank": [1] * 3,
    }
    run = Run.from_frame(pl.DataFrame(hits))
    scores = evaluate(run, gold, measures, profile=profile)
    expected = {
        name: summary.ceiling for name, summary in scores.summaries.items() if summary.ceiling < 1
    }
    told = {one["measure"]: one["ceiling"] for one in found(result, "low_ceiling").examples}
    assert told == expected
    assert "R@1" in told


def test_segments_below_twenty_queries_with_gold_are_small():
    texts = {f"q{at:03}": {"text": f"word{at}", "language": "en"} for at in range(40)}
    for at in range(19):
        texts[f"q{at:03}"]["language"] = "es"
    queries = Queries.from_dict(texts)
    result = check(one_each(40), queries=queries, by=["language"])
    assert found(result, "small_segment").examples == [
        {"segment": {"language": "es"}, "queries": 19},
    ]
    gate = {"measure": "R@5", "by": "language", "values": ["es"], "min": 0.1}
    assert found(check(one_each(40), gate, queries=queries), "small_gated_segment").count == 1
    gate["values"] = ["en"]
    assert found(check(one_each(40), gate, queries=queries), "small_gated_segment") is None


def test_versions_of_the_gold_make_segments_without_a_queries_file():
    corpus = Corpus.from_dict(
        {f"d{at}": {"text": f"text {at}", "version": f"v{at % 2}"} for at in range(30)}
    )
    result = check(one_each(30), corpus=corpus, by=["version"])
    assert [one["queries"] for one in found(result, "small_segment").examples] == [15, 15]
    assert found(result, "empty_query") is None


def test_a_cut_off_as_deep_as_the_corpus_is_won_by_returning_everything():
    corpus = Corpus.from_dict({f"d{at}": f"text {at}" for at in range(10)})
    result = check(one_each(10), corpus=corpus, measures=["R@9", "R@10", "P@10", "nDCG@10"])
    assert found(result, "cutoff_beyond_corpus").examples == [{"measure": "R@10", "corpus": 10}]


def test_an_assumed_spread_is_said_to_be_assumed():
    told = detectable(one_each(100))
    assert (told["basis"], told["sd"], told["n"]) == ("assumed", 0.35, 100)
    # about (1.96 + 0.84) * 0.35 / sqrt(100), and ((1.96 + 0.84) * 0.35 / d)² queries
    assert told["difference"] == pytest.approx(2.8016 * 0.35 / 10, rel=0.05)
    assert dict(told["needed"]) == {
        "0.02": pytest.approx(2404, rel=0.01),
        "0.05": pytest.approx(385, rel=0.03),
    }
    assert detectable(one_each(100), spread=0.7)["difference"] == pytest.approx(
        2 * told["difference"]
    )


def two_runs(n: int) -> tuple[Run, Run]:
    one = {f"q{at:03}": [f"d{at}", "x"] for at in range(n)}
    other = {f"q{at:03}": [f"d{at}", "x"] if at % 4 else ["x", f"d{at}"] for at in range(n)}
    return Run.from_dict(one, name="one"), Run.from_dict(other, name="other")


def test_two_runs_tell_the_spread():
    # RR differs by 1/2 in 10 of 40 queries: variance 10 * 30 / 40 / 39 / 4
    scores = [evaluate(run, one_each(40), ["RR", "R@1"]) for run in two_runs(40)]
    told = detectable(one_each(40), runs=scores)
    assert (told["basis"], told["measure"], told["runs"]) == ("runs", "RR", ["one", "other"])
    assert told["sd"] == pytest.approx(math.sqrt(10 * 30 / 40 / 39 / 4))
    # so many of the 10 that the randomisation test finds it in 80 % of sets or more
    rng = np.random.default_rng(0)
    sizes = np.where(rng.random((40, 2000)) < 0.25, 0.5, 0.0)
    up = (1 + told["difference"] / 0.125) / 2
    ps = randomisation(np.where(rng.random(sizes.shape) < up, sizes, -sizes), resamples=500)
    assert np.mean(ps < 0.05) >= 0.8 - 0.03


def test_queries_in_groups_are_worth_less():
    # four queries each; in every fourth group all of them differ, in the others none
    texts = {f"q{at:03}": {"text": f"word{at}", "group": f"g{at % 40}"} for at in range(160)}
    queries = Queries.from_dict(texts)
    scores = [evaluate(run, one_each(160), ["RR"], queries=queries) for run in two_runs(160)]
    grouped = detectable(one_each(160), queries=queries, runs=scores)
    plain = detectable(
        one_each(160), runs=[evaluate(run, one_each(160), ["RR"]) for run in two_runs(160)]
    )
    assert grouped["groups"] == 40
    assert grouped["difference"] > 1.5 * plain["difference"]


def test_two_runs_that_hardly_differ_tell_nothing_and_why():
    scores = [evaluate(run, one_each(36), ["RR"]) for run in two_runs(36)]
    told = detectable(one_each(36), runs=scores)
    assert (told["difference"], dict(told["needed"])) == (None, {"0.02": None, "0.05": None})
    assert "only 9 of 36 queries differ" in told["because"]


def test_two_equal_runs_tell_nothing_and_the_spread_is_assumed():
    one, _ = two_runs(40)
    scores = [evaluate(one, one_each(40), ["RR"])] * 2
    told = detectable(one_each(40), runs=scores)
    assert (told["basis"], told["sd"], told["runs"]) == ("assumed", 0.35, ["one", "one"])
    assert told["difference"] == detectable(one_each(40))["difference"]


@pytest.mark.parametrize("n", [0, 1])
def test_a_set_without_two_queries_detects_nothing(n):
    gold = Gold.from_dict({"q0": {"a": 1}} if n else {"q0": {}})
    told = detectable(gold)
    assert (told["n"], told["difference"]) == (n, None)


@pytest.mark.parametrize("spread", [0, -1, math.nan, math.inf])
def test_a_spread_that_is_none_is_refused(spread):
    with pytest.raises(UsageError, match="spread"):
        check(one_each(3), spread=spread)


def test_runs_scored_on_other_queries_are_refused():
    one, other = (evaluate(two_runs(n)[0], one_each(n), ["RR"]) for n in (4, 5))
    with pytest.raises(UsageError, match="different queries"):
        check(one_each(4), runs=[one, other])
    with pytest.raises(UsageError, match="two runs"):
        check(one_each(4), runs=[one])


def test_nothing_in_the_result_depends_on_the_order_of_the_gold():
    rng = np.random.default_rng(0)
    frame = one_each(30).frame
    mixed = Gold.from_frame(frame[rng.permutation(frame.height).tolist()])
    results = [check(gold, "P@5 >= 0.3").results() for gold in (one_each(30), mixed)]
    assert results[0] == results[1]
