"""The playbook: each rule in a world in which that one thing is wrong, and on both sides of it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import (
    LINES,
    World,
    everywhere,
    finding,
    fired,
    judged_records,
    neighbour,
    nowhere,
    only,
    perfect,
    with_gold,
)

from karat.analysis.diagnose.findings import RULES, findings, findings_sections


def test_a_perfect_system_gives_no_finding_and_every_rule_was_checked():
    found = World.of(stages=("raw", "filter", "original")).findings()
    assert found.to_dict() == {"findings": [], "quiet": list(RULES), "unchecked": {}}


def test_gold_found_far_down_and_not_at_the_top_is_ranked_too_low():
    found = World.of().change(everywhere([6, 7, 8]), 39).findings()
    figures = only(found, "ranked_too_low")
    assert figures == {"R@50": 1.0, "R@5": 0.61, "fitting": 1.0, "n": 100}
    sentence = found.findings[0].sentence
    assert sentence.startswith("R@50 1 but R@5 0.61: the evidence is found and ranked too low")
    assert "reranker" in found.findings[0].look_at


@pytest.mark.parametrize(("low", "expected"), [(14, []), (15, ["ranked_too_low"])])
def test_a_gap_is_worth_a_sentence_from_its_line_on(low, expected):
    assert fired(World.of().change(everywhere([6, 7, 8]), low).findings()) == expected


def test_a_list_that_cannot_hold_all_gold_is_not_ranked_too_low():
    found = with_gold(60, 20).findings()
    assert "ranked_too_low" in found.quiet
    assert "not_retrieved" in found.quiet


def untimed(one):
    """Nothing in the log of a call says that there is a reranker."""
    return replace(one, call={"source": "faq"})


@pytest.mark.parametrize("stages", [(), ("raw",), ("raw", "filter")])
def test_without_a_reranker_nobody_is_sent_to_look_at_it(stages):
    world = World.of(stages=stages, k=50).change(everywhere([6, 7, 8]), 39)
    expected = {
        True: "the reranker, or a larger k",
        False: "the scoring, a reranker, or a larger k",
    }
    assert finding(world.findings(), "ranked_too_low").look_at == expected[True]
    bare = world.change(untimed, 100)
    assert finding(bare.findings(), "ranked_too_low").look_at == expected[False]
    named = replace(bare, told={"reranker_model": {"name": "cross"}})
    assert finding(named.findings(), "ranked_too_low").look_at == expected[True]


def test_an_order_that_changed_shows_that_there_is_a_reranker():
    # In 60 queries gold rises from rank 8 to the top, in 40 it stays where it was.
    world = World.of(stages=("raw",)).change(everywhere([6, 7, 8]), 100).change(untimed, 100)
    lifted = world.change(lambda one: replace(one, final=perfect(one.number).final), 60)
    assert finding(world.findings(), "ranked_too_low").look_at.startswith("the scoring")
    assert finding(lifted.findings(), "ranked_too_low").look_at.startswith("the reranker")


def filtering(one):
    """A filter takes out all the gold, which stood at the top, and nothing else happens."""
    return replace(one, filtered=one.gold, final={})


def test_filters_that_take_out_gold_are_told_and_the_order_is_not_blamed():
    world = World.of(stages=("raw", "filter")).change(filtering, 23)
    found = world.findings()
    figures = only(found, "filters_take_gold")
    assert figures == {"R@50": 1.0, "after": 0.77, "worse": 23, "n": 100}
    assert found.findings[0].sentence == (
        "filters take out gold: R@50 1 before and 0.77 after them; look at the filter"
    )


@pytest.mark.parametrize(("taken", "expected"), [(14, []), (15, ["filters_take_gold"])])
def test_filters_may_take_out_less_gold_than_their_line(taken, expected):
    world = World.of(stages=("raw", "filter")).change(filtering, taken)
    assert fired(world.findings()) == expected


def test_what_the_filters_left_is_what_the_top_is_held_against():
    world = World.of(stages=("raw", "filter")).change(filtering, 10)
    # 75 of the 90 that the filter left stand in the top 5.
    found = world.change(everywhere([6, 7, 8]), 10, 25).findings()
    figures = only(found, "ranked_too_low")
    assert figures == {"R@50": 0.9, "R@5": 0.75, "fitting": 0.9, "n": 100}
    assert found.findings[0].sentence.startswith("R@50 0.90 after the filters but R@5 0.75: the")
    fewer = world.change(everywhere([6, 7, 8]), 10, 24).findings()
    assert "ranked_too_low" in fewer.quiet


def test_a_query_without_a_list_of_the_filter_was_not_filtered():
    world = World.of(stages=("raw", "filter"), k=5).change(everywhere([6, 7, 8]), 100)
    records = [world.record(one) for one in world.questions]
    for record in records[:50]:
        record["stages"] = {}
    found = judged_records(world, records)
    assert "filters_take_gold" in found.quiet
    assert finding(found, "ranked_too_low").figures["R@50"] == 1.0


def test_what_fits_is_what_a_list_is_held_against():
    ranks = [1, *range(6, 25)]
    found = with_gold(60, 20).change(everywhere(ranks), 60).findings()
    figures = finding(found, "ranked_too_low").figures
    assert figures["R@50"] == 1.0
    assert figures["R@5"] == pytest.approx(1 / 20)
    assert figures["fitting"] == pytest.approx(5 / 20)
    assert "R@5 0.05 of the 0.25 that would fit" in finding(found, "ranked_too_low").sentence


def test_recall_far_down_is_high_where_so_many_places_hold_no_more():
    def sunk(one):
        ranks = {item: rank for rank, item in enumerate(one.gold, 1)}
        return replace(one, raw=ranks, final={}, original={})

    # 50 places hold 50 of 80, which is below 0.8, and all of them are gold.
    world = with_gold(30, 80, k=20).change(sunk, 30)
    found = world.findings(replace(LINES, near=20))
    figures = finding(found, "ranked_too_low").figures
    assert (figures["R@50"], figures["R@20"]) == (50 / 80, 0.0)
    assert figures["fitting"] == 20 / 80


def test_gold_that_is_nowhere_is_not_retrieved():
    found = World.of().change(nowhere, 21).findings()
    figures = only(found, "not_retrieved")
    assert figures["R@50"] == 0.79
    assert figures["documents"] == 0.79
    assert found.findings[0].look_at == "the index or the embeddings"
    assert "chunks_split" in found.quiet


@pytest.mark.parametrize(("lost", "expected"), [(20, []), (21, ["not_retrieved"])])
def test_recall_is_low_below_its_line(lost, expected):
    # With four of five places gold, what is lost leaves precision above its line.
    assert fired(with_gold(100, 4).change(nowhere, lost).findings()) == expected


@pytest.mark.parametrize(("found_of_50", "expected"), [(40, False), (39, True)])
def test_recall_is_held_against_what_so_many_places_can_hold(found_of_50, expected):
    # 100 gold items: 50 places hold half of them, and four fifths of that is high.
    ranks = list(range(1, found_of_50 + 1))
    found = with_gold(40, 100).change(everywhere(ranks), 40).findings()
    # The document is found in any case, so that what is lost is its chunks.
    assert ("chunks_split" in fired(found)) is expected


def test_documents_that_are_found_without_the_gold_chunk_blame_the_chunker():
    found = World.of().change(neighbour, 40).findings()
    figures = only(found, "chunks_split")
    assert figures["R@50"] == 0.6
    assert figures["documents"] == 1.0
    assert "R@50 0.60 but 1 of the documents" in found.findings[0].sentence
    assert found.findings[0].look_at == "the chunker"


@pytest.mark.parametrize(
    ("near_misses", "expected"), [(15, ["chunks_split"]), (14, ["not_retrieved"])]
)
def test_documents_must_be_found_clearly_more_often_than_chunks(near_misses, expected):
    world = World.of().change(nowhere, 30).change(neighbour, near_misses)
    assert fired(world.findings()) == expected


def test_documents_and_chunks_are_each_held_against_what_so_many_places_can_hold():
    # 43 of the 50 that fit for nine in ten queries: 0.774 of what fits, and 0.9 of the documents.
    world = with_gold(40, 100).change(everywhere(range(1, 44)), 40).change(nowhere, 4)
    found = world.findings()
    assert fired(found) == ["not_retrieved"]
    assert found.findings[0].figures["R@50"] == pytest.approx(0.9 * 0.43)
    assert found.findings[0].figures["documents"] == 0.9


def test_documents_that_are_missed_too_give_both_findings():
    world = World.of().change(nowhere, 70).change(neighbour, 20)
    assert fired(world.findings()) == ["not_retrieved", "chunks_split"]


def test_without_ids_that_name_documents_the_chunker_is_not_judged():
    def plainly(one):
        gold = [item.replace("#", "-") for item in one.gold]
        ranks = dict(zip(gold, one.raw.values(), strict=False))
        return replace(one, gold=gold).ranked(ranks)

    found = World.of().change(nowhere, 30).change(plainly, 100).findings()
    assert fired(found) == ["not_retrieved"]
    assert found.findings[0].look_at == "the index, the embeddings or the chunking"
    assert "doc_id" in found.unchecked["chunks_split"]


def test_a_log_without_earlier_stages_is_judged_by_the_items_that_were_kept():
    world = World.of(stages=(), k=50).change(neighbour, 40)
    assert fired(world.findings()) == ["chunks_split"]
    found = replace(world, keep=10).findings()
    assert fired(found) == ["not_retrieved"]
    assert found.unchecked["chunks_split"] == "needs the top 50 items of each list; fewer were kept"


def test_precision_at_its_ceiling_asks_for_fewer_places():
    """Two gold items on top of five places: R@5 is 1, P@5 is 0.4 and can be no more."""
    one = finding(with_gold(60, 2).findings(), "distractors")
    assert (one.figures["R@5"], one.figures["P@5"], one.figures["ceiling"]) == (1, 0.4, 0.4)
    assert one.look_at == "a smaller k"
    assert "only a smaller k" in one.sentence
    assert "R@2 is 1" in one.sentence


@pytest.mark.parametrize(("rank", "look_at"), [(1, "a smaller k"), (5, "the scoring")])
def test_fewer_places_wait_for_a_better_order(rank, look_at):
    found = with_gold(60, 1).change(everywhere([rank]), 60).findings()
    one = finding(found, "distractors")
    assert "only a smaller k" in one.sentence
    assert one.look_at.startswith(look_at)


@pytest.mark.parametrize(("lost", "ceiling"), [(5, True), (6, False)])
def test_precision_is_at_its_ceiling_from_95_percent_of_it_on(lost, ceiling):
    # P@5 is 0.19 and 0.188 of at most 0.2.
    one = finding(with_gold(100, 1).change(nowhere, lost).findings(), "distractors")
    assert ("only a smaller k" in one.sentence) == ceiling


def test_a_ceiling_below_the_line_is_named():
    found = with_gold(100, 1).change(nowhere, 10).findings()
    figures = only(found, "distractors")
    assert figures["P@5"] == pytest.approx(0.18)
    assert figures["ceiling"] == pytest.approx(0.2)
    sentence = found.findings[0].sentence
    assert "R@5 0.90 but P@5 0.18 of at most 0.20 on this gold; R@2 is 0.90" in sentence
    assert found.findings[0].look_at == "a smaller k"


def test_fewer_places_are_no_advice_where_gold_stands_in_the_last_one():
    found = with_gold(100, 1).change(everywhere([5]), 100).change(nowhere, 10).findings()
    one = finding(found, "distractors")
    assert "only a smaller k" not in one.sentence
    assert one.look_at.startswith("the scoring or the reranking")


@pytest.mark.parametrize(("lost", "expected"), [(16, []), (17, ["distractors"])])
def test_precision_is_low_below_its_line(lost, expected):
    # 3 of 5 are gold: 0.6 x 0.84 = 0.504 and 0.6 x 0.83 = 0.498.
    found = World.of().change(nowhere, lost).findings()
    assert fired(found) == expected
    if expected:
        assert "P@5 0.498 of at most 0.60: distractors" in found.findings[0].sentence
        assert "cross-encoder" in found.findings[0].look_at


def test_a_short_list_of_gold_alone_has_no_distractors():
    world = with_gold(60, 2)
    short = [{**world.record(one), "topk": list(one.gold), "k": 10} for one in world.questions]
    assert fired(judged_records(world, short)) == []
    short[0]["topk"] = short[0]["topk"][:1]
    assert fired(judged_records(world, short)) == []
    assert fired(world.change(nowhere, 6).findings()) == ["distractors"]


def test_lists_that_are_empty_have_no_distractors_either():
    world = with_gold(60, 2)
    short = [{**world.record(one), "topk": list(one.gold), "k": 10} for one in world.questions]
    for record in short[:6]:
        record["topk"] = []
    found = judged_records(world, short, thresholds=replace(LINES, low_precision=0.95))
    assert "distractors" in found.quiet


def test_gold_that_is_present_and_not_first_is_buried():
    found = World.of().change(everywhere([2, 3, 4]), 100).findings()
    figures = only(found, "buried")
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    reached = 1 / math.log2(3) + 1 / math.log2(4) + 1 / math.log2(5)
    assert figures["RR@10"] == 0.5
    assert figures["nDCG@10"] == pytest.approx(reached / ideal)
    assert found.findings[0].sentence.startswith(
        "R@10 1 but RR@10 0.50: the evidence is there but buried"
    )


def test_buried_names_both_measures_where_both_are_low():
    found = World.of().change(everywhere([4, 9, 10]), 100).findings()
    assert fired(found) == ["ranked_too_low", "buried"]
    assert "RR@10 0.25 and nDCG@10 0.48" in finding(found, "buried").sentence


@pytest.mark.parametrize(("second", "expected"), [(80, []), (81, ["buried"])])
def test_first_places_are_too_few_below_their_line(second, expected):
    assert fired(World.of().change(everywhere([2, 3, 4]), second).findings()) == expected


def test_gold_that_was_not_found_is_not_buried():
    found = World.of().change(nowhere, 60).findings()
    assert "buried" in found.quiet


def test_short_final_lists_are_judged_where_they_end():
    found = World.of(k=5).change(everywhere([2, 3, 4]), 100).findings()
    assert set(only(found, "buried")) == {"R@5", "RR@5", "nDCG@5", "n"}


def newer(count):
    """So many hits of each query are newer than its as_of."""

    def change(one):
        items = [{"chunk_id": item, "doc_version": "2025-06-30"} for item in one.gold]
        items += [
            {"chunk_id": f"new{one.number}x{at}#0", "doc_version": "2025-07-01"}
            for at in range(count)
        ]
        items += [f"old{one.number}x{at}#0" for at in range(7)]
        return replace(one, call={**one.call, "topk": items[:10]})

    return change


def test_items_newer_than_as_of_are_counted():
    found = World.of().change(newer(1), 25).findings()
    figures = only(found, "newer_than_as_of")
    # Of 25 queries one in four known versions is newer, of 75 none.
    assert figures == {"Fresh@5": pytest.approx(1 - 0.25 * 0.25), "queries": 25, "n": 100}
    assert "Fresh@5 0.94" in found.findings[0].sentence


@pytest.mark.parametrize(("line", "expected"), [(0.9375, []), (0.94, ["newer_than_as_of"])])
def test_freshness_is_held_against_its_line(line, expected):
    world = World.of().change(newer(1), 25)
    assert fired(world.findings(replace(LINES, fresh=line))) == expected


def test_versions_that_cannot_be_told_apart_are_not_judged():
    def undated(one):
        return replace(one, attributes={**one.attributes, "as_of": "spring"})

    assert "versions" in World.of(30).change(undated, 30).findings().unchecked["newer_than_as_of"]


def test_a_short_list_is_as_fresh_as_its_items():
    def late(one):
        hits = [{"chunk_id": one.gold[0], "doc_version": "2025-07-01"}]
        hits += [{"chunk_id": item, "doc_version": "2025-06-30"} for item in one.gold[1:]]
        return replace(one, call={**one.call, "topk": hits})

    figures = finding(World.of(30, k=3).change(late, 30).findings(), "newer_than_as_of").figures
    assert figures["Fresh@3"] == pytest.approx(2 / 3)


def test_a_single_newer_item_is_a_finding():
    found = World.of(200).change(newer(1), 1).findings()
    assert only(found, "newer_than_as_of")["queries"] == 1
    assert "Fresh@5 0.999:" in found.findings[0].sentence


def test_a_log_without_raw_lists_is_judged_as_deep_as_it_goes():
    found = World.of(stages=(), k=10).change(everywhere([6, 7, 8]), 39).findings()
    assert set(only(found, "ranked_too_low")) == {"R@10", "R@5", "fitting", "n"}
    assert "R@10 1 but R@5 0.61" in found.findings[0].sentence


def test_a_list_of_less_than_twice_the_near_cut_off_says_nothing_of_what_lies_deeper():
    found = World.of(stages=(), k=9).change(everywhere([6, 7, 8]), 39).findings()
    assert found.unchecked["ranked_too_low"] == "needs a raw list of 50; the log goes to 9"
    assert found.unchecked["not_retrieved"] == "needs a raw list of 50; the log goes to 9"


def test_lists_that_end_early_do_not_tell_low_ranks_from_what_was_not_retrieved():
    found = World.of(stages=(), k=10).change(nowhere, 39).findings()
    sentence = finding(found, "not_retrieved").sentence
    assert "not retrieved at all" not in sentence
    assert "it may be lower or missing; log lists of 50" in sentence
    assert found.unchecked["ranked_too_low"] == "needs a raw list of 50; the log goes to 10"


def test_a_list_shorter_than_the_near_cut_off_says_nothing_of_it():
    found = World.of(k=3).findings()
    told = "needs a final list of 5; the log goes to 3"
    for rule in ("ranked_too_low", "distractors", "segment_gap", "reranker_hurts"):
        assert found.unchecked[rule] == told


def test_what_a_log_asked_for_counts_also_where_lists_are_shorter():
    world = World.of(40, stages=(), k=4, told={"k": 50})
    assert "ranked_too_low" in world.findings().quiet


def test_a_depth_that_was_set_is_where_lists_end():
    told = {"k": 50, "k_raw": 50}
    world = World.of(40, k=50, told=told, settings={"depth": 8})
    assert (
        world.findings().unchecked["not_retrieved"] == "needs a raw list of 50; the log goes to 8"
    )
    deeper = replace(world, settings={"depth": 10}).change(nowhere, 20)
    assert "R@10" in finding(deeper.findings(), "not_retrieved").figures


def test_what_is_missing_is_named():
    bare = World.of(30, stages=(), corpus=False, attributes=False)
    bare = bare.change(lambda one: replace(one, call={}), 30)
    found = findings(bare.staged(), None)
    assert set(found.unchecked) == {
        "gold_not_in_corpus",
        "newer_than_as_of",
        "wrong_source",
        "rewrite_hurts",
        "filters_take_gold",
        "reranker_hurts",
        "segment_gap",
        "slower",
    }
    assert found.unchecked["gold_not_in_corpus"] == "needs the corpus"
    assert "as_of" in found.unchecked["newer_than_as_of"]
    assert "source" in found.unchecked["wrong_source"]
    assert "original" in found.unchecked["rewrite_hurts"]
    assert "stages.filter" in found.unchecked["filters_take_gold"]
    assert found.unchecked["reranker_hurts"] == "needs the raw list: raw in the log"


def test_documents_as_gold_leave_the_chunker_alone():
    world = World.of(settings={"level": "doc"}).change(nowhere, 40)
    found = world.findings()
    assert "not_retrieved" in fired(found)
    assert "level is doc" in found.unchecked["chunks_split"]


def test_findings_come_in_the_order_of_the_rules():
    def failing(one):
        return replace(one, call={"error": "timeout"})

    world = World.of(lost=("doc50#1",)).change(everywhere([6, 7, 8]), 100).change(failing, 5)
    world = world.change(nowhere, 50, 51)
    order = ["failed_calls", "gold_not_in_corpus", "ranked_too_low", "buried"]
    assert fired(world.findings()) == order


def test_the_rules_are_documented_in_their_order_with_the_lines_as_they_are():
    page = (Path(__file__).parents[2] / "docs" / "read-the-findings.md").read_text("utf-8")
    rules = page.partition("## The rules")[2].partition("## What the rules")[0]
    assert re.findall(r"^\| `(\w+)` \|", rules, re.MULTILINE) == list(RULES)
    lines = page.partition("## Change the thresholds")[2].partition("## What to log")[0]
    told = {}
    for names, values in re.findall(r"^\| (`.*`) \| ([\d., ]+) \|", lines, re.MULTILINE):
        told |= dict(zip(re.findall(r"`(\w+)`", names), values.split(", "), strict=True))
    others = ("deep", "similarity", "score", "dominan")
    lines = LINES.to_dict().items()
    expected = {name: value for name, value in lines if not name.startswith(others)}
    assert {name: float(value) for name, value in told.items()} == expected


def test_the_page_says_what_to_fix_what_is_fine_and_what_was_not_checked():
    world = World.of(stages=(), k=50).change(nowhere, 40)
    found = findings(world.staged(), world.queries)
    fix, fine, unchecked = findings_sections(found.to_dict())
    assert fix.lines == [f"1. {found.findings[0].sentence} (not_retrieved)"]
    assert fine.lines == [", ".join(found.quiet)]
    assert unchecked.grid[0] == ["rule", "because"]
    assert ["slower", "needs a baseline run"] in unchecked.grid
    nothing = findings_sections({"findings": [], "quiet": ["buried"], "unchecked": {}})
    assert [one.lines for one in nothing] == [
        ["No rule that could be checked found a problem."],
        ["buried"],
    ]


parts = st.fixed_dictionaries(
    {
        "gold": st.integers(0, 4),
        "ranks": st.lists(st.integers(1, 60), max_size=4, unique=True),
        "final": st.lists(st.integers(1, 12), max_size=4, unique=True),
        "call": st.sampled_from(
            [
                {},
                {"error": "timeout"},
                {"latency_ms": 5},
                {"latency_ms": {"retrieve": 0, "rerank": 3}, "source": "faq"},
                {"topk": []},
                {"topk": [], "raw": [], "stages": {}},
                {"source": ["faq", "tickets"], "rewritten": "other words"},
            ]
        ),
        "attributes": st.sampled_from(
            [
                {},
                {"language": "pt"},
                {"language": "en", "as_of": "2024-01-01"},
                {"source": "tickets", "tags": ["a", "b"]},
                {"no_answer": True},
                {"group": "c1", "as_of": "soon"},
            ]
        ),
    }
)
options = st.fixed_dictionaries(
    {
        "k": st.sampled_from([1, 5, 10, 50]),
        "k_raw": st.sampled_from([1, 7, 50]),
        "stages": st.sampled_from(
            [(), ("raw",), ("original",), ("filter",), ("raw", "filter"), ("raw", "original")]
        ),
        "corpus": st.booleans(),
        "attributes": st.booleans(),
        "keep": st.sampled_from([0, 3, 50]),
        "settings": st.sampled_from(
            [{}, {"missing": "skip"}, {"level": "doc"}, {"depth": 5}, {"empty_gold": "zero"}]
        ),
    }
)


def random_question(number, part):
    one = perfect(number, gold=part["gold"])
    ranks, final = (dict(zip(one.gold, part[key], strict=False)) for key in ("ranks", "final"))
    changed = replace(one.ranked(ranks), final=final, attributes=part["attributes"])
    return replace(changed, call=part["call"])


@settings(max_examples=60, deadline=None)
@given(st.lists(parts, min_size=1, max_size=45), options, st.booleans())
def test_no_rule_stumbles_over_what_is_missing(chosen, given_options, compared):
    questions = [random_question(number, part) for number, part in enumerate(chosen)]
    world = World(questions, **given_options)
    staged = world.staged()
    found = findings(staged, world.queries, baseline=staged if compared else None)
    seen = [*dict.fromkeys(fired(found)), *found.quiet, *found.unchecked]
    assert sorted(seen) == sorted(RULES)
    json.dumps(found.to_dict(), allow_nan=False)
    assert all(found.unchecked.values())
    assert findings(staged, world.queries, baseline=staged if compared else None).to_dict() == (
        found.to_dict()
    )
