"""The playbook's rules on calls and stages: slower, reranked, rewritten, failed, sent elsewhere."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from planted import World, finding, fired, judged_records, nowhere, only, placed, with_gold

from karat.analysis.diagnose.findings import findings
from karat.analysis.diagnose.latency import latency_of, score_calls
from karat.evaluation.api import compare

MEDIAN = [latency_of("total", "p50")]


def taking(factor, *, rerank=20.0, k_raw=50, n=100):
    """A world whose calls take so many times as long to retrieve, and this long to rerank."""

    def change(one):
        times = {"retrieve": (30 + one.number % 7) * factor, "rerank": rerank}
        return replace(one, call={**one.call, "latency_ms": times})

    return World.of(n, told={"k_raw": k_raw}).change(change, n)


def test_slower_calls_are_told_with_the_stage_that_grew_most():
    world = replace(taking(1.5, rerank=25.0, k_raw=100), baseline=taking(1.0).staged())
    found = world.findings()
    figures = only(found, "slower")
    old = [30 + n % 7 + 20 for n in range(100)]
    new = [1.5 * (30 + n % 7) + 25 for n in range(100)]
    assert figures["latency.total.p50"]["baseline"] == pytest.approx(np.percentile(old, 50))
    assert figures["latency.total.p50"]["system"] == pytest.approx(np.percentile(new, 50))
    assert figures["latency.total.p90"]["system"] == pytest.approx(np.percentile(new, 90))
    assert figures["stage"] == {"name": "retrieve", "baseline": 33.0, "system": 49.5}
    assert figures["k_raw"] == {"baseline": 50, "system": 100}
    sentence = found.findings[0].sentence
    assert "latency.total.p50 from 53.0 to 74.5 ms (+41 %)" in sentence
    assert (
        "most of all retrieve, from 33.0 to 49.5 ms (+50 %); k_raw went from 50 to 100" in sentence
    )


@pytest.mark.parametrize(("factor", "expected"), [(1.1, ["slower"]), (1.09, [])])
def test_calls_may_take_longer_by_less_than_the_line(factor, expected):
    world = replace(taking(factor, rerank=20 * factor), baseline=taking(1.0).staged())
    assert fired(world.findings()) == expected


def test_a_new_stage_grew_from_nothing():
    old = World.of(40).change(lambda one: replace(one, call={"latency_ms": {"retrieve": 30}}), 40)
    new = World.of(40).change(
        lambda one: replace(one, call={"latency_ms": {"retrieve": 30, "rerank": 40}}), 40
    )
    found = replace(new, baseline=old.staged()).findings()
    assert finding(found, "slower").figures["stage"] == {
        "name": "rerank",
        "baseline": None,
        "system": 40.0,
    }
    assert "which the baseline does not log" in finding(found, "slower").sentence


def test_too_few_calls_confirm_nothing():
    # With five queries the smallest p there can be is 2/32.
    world = replace(taking(3.0, n=5), baseline=taking(1.0, n=5).staged())
    assert "slower" in world.findings().quiet


def test_noise_is_not_slower():
    rng = np.random.default_rng(7)
    old, new = rng.lognormal(4, 1, 40), rng.lognormal(4, 1, 40)
    new *= 1.15 * np.median(old) / np.median(new)

    def timed(times):
        return World.of(40).change(
            lambda one: replace(one, call={"latency_ms": float(times[one.number])}), 40
        )

    assert "slower" in replace(timed(new), baseline=timed(old).staged()).findings().quiet


def test_a_median_that_only_its_own_p_confirms_is_not_slower():
    rng = np.random.default_rng(5)
    old = rng.lognormal(4, 0.5, 40).round(1)
    new = (old * rng.lognormal(0.12, 0.35, 40)).round(1)

    def timed(times):
        return World.of(40).change(
            lambda one: replace(one, call={"latency_ms": float(times[one.number])}), 40
        )

    first, second = (score_calls(timed(times).staged(), MEDIAN) for times in (old, new))
    row = compare([replace(first, system="old"), replace(second, system="new")]).of("new")
    assert np.median(new) > 1.1 * np.median(old)
    assert row.p < 0.05
    # With two percentiles tested p must be twice as small.
    assert 2 * row.p > 0.05
    assert "slower" in replace(timed(new), baseline=timed(old).staged()).findings().quiet


def test_without_a_baseline_or_its_latencies_slower_is_not_checked():
    world = World.of(30)
    assert findings(world.staged(), world.queries).unchecked["slower"] == "needs a baseline run"
    silent = World.of(30).change(lambda one: replace(one, call={}), 30)
    found = replace(world, baseline=silent.staged()).findings()
    assert "latency_ms" in found.unchecked["slower"]
    other = replace(world, baseline=World.of(31).staged()).findings()
    assert other.unchecked["slower"] == "needs a baseline with the same queries"


def demoted(one):
    """The reranker puts the first three gold items below two others."""
    return replace(one, final=dict(zip(one.gold, (3, 4, 5), strict=True)))


def test_a_reranker_that_makes_the_order_worse_is_told():
    found = World.of().change(demoted, 10).findings()
    figures = only(found, "reranker_hurts")
    ideal = sum(1 / math.log2(rank + 1) for rank in (1, 2, 3))
    after = sum(1 / math.log2(rank + 1) for rank in (3, 4, 5))
    assert figures["raw"] == 1.0
    assert figures["nDCG@5"] == pytest.approx(0.9 + 0.1 * after / ideal)
    # All ten that moved got worse: of all signs two are as extreme.
    assert figures["p"] == pytest.approx(2 / 2**10)
    assert figures["worse"] == 10


@pytest.mark.parametrize(("moved", "expected"), [(5, []), (6, ["reranker_hurts"])])
def test_a_few_queries_that_got_worse_may_be_chance(moved, expected):
    # 2/2^5 is above 0.05 and 2/2^6 is below.
    assert fired(World.of().change(demoted, moved).findings()) == expected


def test_a_reranker_is_judged_by_the_list_that_it_was_given():
    def filtered(one):
        best, rest = placed_list(one, [1, 2, 3]), placed_list(one, [3, 4, 5])
        return replace(one, final=dict(zip(one.gold, (3, 4, 5), strict=True))), best, rest

    world = World.of(40)
    records = []
    for one in world.questions:
        changed, best, rest = filtered(one)
        records.append({**world.record(changed), "raw": best, "stages": {"filter": rest}})
    # The filter lost the order, and the final list is what it gave.
    assert "reranker_hurts" in judged_records(world, records).quiet


def taken_out(one, *, filtered=True):
    """A list whose gold at ranks 1 and 2 something took out; the rest keeps its order."""
    raw = placed_list(one, [1, 2, 3])
    left = raw[2:]
    stages = {"filter": left} if filtered else {}
    return {"raw": raw, "topk": left[:10], "stages": stages}


@pytest.mark.parametrize("filtered", [True, False])
def test_a_filter_that_only_takes_items_out_is_not_the_reranker(filtered):
    world = World.of(60)
    records = [
        {**world.record(one), **taken_out(one, filtered=filtered)} for one in world.questions
    ]
    found = judged_records(world, records)
    assert "reranker_hurts" in found.quiet
    assert ("filters_take_gold" in fired(found)) is filtered


def test_only_lists_that_got_another_order_are_held_against_the_reranker():
    world = World.of(60).change(demoted, 10)
    records = [world.record(one) for one in world.questions]
    for one, record in zip(world.questions[10:30], records[10:30], strict=True):
        record.update(taken_out(one, filtered=False))
    figures = finding(judged_records(world, records), "reranker_hurts").figures
    # The 20 that lost gold and kept their order are left out.
    assert (figures["worse"], figures["n"], figures["raw"]) == (10, 40, 1.0)
    assert figures["p"] == pytest.approx(2 / 2**10)


@pytest.mark.parametrize(("stage", "named"), [("rerank", "the reranker"), ("mmr", "mmr")])
def test_a_logged_stage_that_reorders_is_named(stage, named):
    world = World.of(40).change(demoted, 40).change(lambda one: replace(one, call={}), 40)
    records = [world.record(one) for one in world.questions]
    for record in records:
        record["stages"] = {stage: [hit["chunk_id"] for hit in record["topk"]]}
    found = judged_records(world, records)
    assert finding(found, "reranker_hurts").look_at.startswith(named)


def placed_list(one, ranks):
    return placed(one.number, 50, dict(zip(one.gold, ranks, strict=True)))


def misplaced(one):
    """The rewritten query loses two of three, the original finds all."""
    ranks = {one.gold[0]: 1}
    return replace(one, raw=ranks, final=ranks)


def test_a_rewrite_that_loses_evidence_is_told():
    found = World.of().change(misplaced, 12).findings()
    figures = only(found, "rewrite_hurts")
    assert figures["original"] == 1.0
    assert figures["R@5"] == pytest.approx(0.88 + 0.12 / 3)
    assert (figures["worse"], figures["n"]) == (12, 100)
    assert figures["p"] == pytest.approx(2 / 2**12)


@pytest.mark.parametrize(("moved", "expected"), [(5, []), (6, ["rewrite_hurts"])])
def test_a_few_rewrites_that_lost_may_be_chance(moved, expected):
    assert fired(World.of().change(misplaced, moved).findings()) == expected


def test_only_queries_with_a_list_for_the_original_take_part():
    world = World.of().change(misplaced, 12)
    records = [world.record(one) for one in world.questions]
    for record in records[40:]:
        record["stages"] = {}
    figures = only(judged_records(world, records), "rewrite_hurts")
    assert figures["original"] == 1.0
    assert figures["R@5"] == pytest.approx(28 / 40 + 12 / 40 / 3)
    assert figures["n"] == 40


def test_failed_calls_come_first_and_take_no_part_in_the_rest():
    def failing(one):
        return replace(one, call={"error": "timeout" if one.number else "no route"})

    found = World.of().change(failing, 30).findings()
    figures = only(found, "failed_calls")
    errors = {"timeout": 29, "no route": 1}
    assert figures == {"failed": 30, "calls": 100, "errors": errors}
    told = "30 of 100 calls failed ('timeout'): no other finding counts them"
    assert found.findings[0].sentence.startswith(told)


def test_failed_calls_are_held_against_the_calls_that_were_made():
    world = World.of(10)
    records = [world.record(one) for one in world.questions[:4]]
    records[0] = {"query_id": "q0000", "topk": [], "error": "timeout"}
    found = judged_records(world, records)
    assert fired(found) == ["failed_calls", "not_in_run"]
    assert found.findings[0].sentence.startswith("1 of 4 calls failed ('timeout')")
    assert found.findings[1].sentence.startswith("6 of 10 queries with gold are not in the run")


@pytest.mark.parametrize(
    ("settings", "told"), [({}, "count them as 0"), ({"missing": "skip"}, "leave them out")]
)
def test_queries_that_are_not_in_the_run_are_told_and_take_no_part_in_the_rest(settings, told):
    world = replace(with_gold(100, 4), settings=settings)
    records = [world.record(one) for one in world.questions[30:]]
    found = judged_records(world, records)
    examples = ["q0000", "q0001", "q0002"]
    assert only(found, "not_in_run") == {"missing": 30, "queries": 100, "examples": examples}
    sentence = found.findings[0].sentence
    assert sentence.startswith("30 of 100 queries with gold are not in the run, such as 'q0000'")
    assert told in sentence
    every = [world.record(one) for one in world.questions]
    assert "not_in_run" in judged_records(world, every).quiet


def test_what_the_run_has_is_judged_by_itself_where_much_is_missing():
    world = with_gold(100, 4).change(nowhere, 60, 100)
    records = [world.record(one) for one in world.questions[50:]]
    found = judged_records(world, records)
    assert fired(found)[0] == "not_in_run"
    # 10 of the 50 that are there have their gold.
    figures = finding(found, "not_retrieved").figures
    assert (figures["R@50"], figures["n"]) == (0.2, 50)


def test_calls_that_returned_nothing_are_told():
    world = with_gold(100, 4)
    records = [world.record(one) for one in world.questions]
    assert "nothing_returned" in judged_records(world, records).quiet
    for record in records[:3]:
        record.update(topk=[], raw=[], stages={})
    found = judged_records(world, records)
    figures = only(found, "nothing_returned")
    assert (figures["empty"], figures["n"]) == (3, 100)
    told = "3 of 100 answered queries got no item at all, such as 'q0000'; look at filters"
    assert found.findings[0].sentence.startswith(told)


def test_a_call_that_failed_did_not_return_nothing():
    world = World.of(30).change(lambda one: replace(one, call={"error": "timeout"}), 5)
    found = world.findings()
    assert "nothing_returned" in found.quiet
    assert "not_in_run" in found.quiet


def test_gold_that_a_list_holds_can_be_found_whatever_the_corpus_says():
    assert "gold_not_in_corpus" in World.of(lost=("doc7#2", "doc8#1")).findings().quiet


def test_gold_that_the_corpus_lacks_is_told():
    found = World.of(lost=("doc7#2", "doc7#3", "doc8#1")).change(nowhere, 7, 9).findings()
    assert only(found, "gold_not_in_corpus") == {
        "lost": 3,
        "of": 300,
        "queries": 2,
        "examples": ["doc7#2", "doc7#3", "doc8#1"],
    }


def test_queries_that_went_to_a_wrong_source_are_counted():
    def astray(one):
        return replace(one, call={**one.call, "source": "tickets"})

    def asked_both(one):
        return replace(one, call={**one.call, "source": "tickets+faq"})

    found = World.of().change(astray, 3).change(asked_both, 3, 6).findings()
    figures = only(found, "wrong_source")
    assert (figures["wrong"], figures["n"], figures["share"]) == (3, 100, 0.03)
    assert figures["examples"] == ["q0000", "q0001", "q0002"]
    told = "3 of 100 queries went to a wrong source, such as 'q0000'; look at"
    assert found.findings[0].sentence.startswith(told)


def test_gold_of_documents_is_sought_among_documents():
    world = World.of(settings={"level": "doc"})
    assert "gold_not_in_corpus" in world.findings().quiet
    lost = tuple(f"doc7#{part}" for part in (1, 2, 3))
    found = replace(world, lost=lost).change(nowhere, 7, 8).findings()
    assert finding(found, "gold_not_in_corpus").figures["examples"] == ["doc7"]
