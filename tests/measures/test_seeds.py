"""The worked examples of the five documents karat grew from, and their profiles."""

from __future__ import annotations

import math

import polars as pl
import pytest

import karat
from karat.measure.conventions import PROFILES

Gold, Run, Queries = karat.Gold.from_dict, karat.Run.from_dict, karat.Queries.from_dict


def values(scores: karat.Scores, query: str) -> dict[str, float | None]:
    (row,) = scores.table.filter(query_id=query).iter_rows(named=True)
    return {name: value for name, value in row.items() if name != "query_id"}


# 000: a story tool's Retrieval Quality


def test_000_recall_at_5_of_anna_in_danger_is_two_thirds():
    gold = Gold({"anna": ["Scene 3", "Scene 4", "Scene 7"]})
    run = Run({"anna": ["Scene 4", "Scene 8", "Scene 3", "Scene 1", "Scene 2"]})
    means = karat.evaluate(run, gold, "R@5").means()
    assert means["R@5"] == 2 / 3


def test_000_mrr_of_ranks_1_3_and_2_is_061():
    gold = Gold({"1": ["a"], "2": ["a"], "3": ["a"]})
    run = Run({"1": ["a"], "2": ["x", "y", "a"], "3": ["x", "a"]})
    # (1 + 1/3 + 1/2) / 3, printed as 0.61
    assert karat.evaluate(run, gold, "RR").means()["RR"] == pytest.approx(11 / 18, abs=1e-15)


def test_000_first_relevant_is_searched_beyond_k():
    # seven scenes, the relevant one last: outside the top 5, yet RR = 1/7
    run = Run({"q": {f"Sc{n}": 1.0 - n / 10 for n in range(1, 8)}})
    means = karat.evaluate(run, Gold({"q": ["Sc7"]}), profile="story").means()
    assert means == {"RR": 1 / 7, "R@k": 0.0}


def test_000_ties_keep_story_order():
    # all-zero scores: the story's first scene is first, though its id sorts last
    run = Run({"q": {"Sc9": 0.0, "Sc1": 0.0, "Finale": 0.0}})
    assert karat.evaluate(run, Gold({"q": ["Sc9"]}), "RR", profile="story").means() == {"RR": 1.0}


def test_000_k_is_5_unless_a_query_has_its_own():
    run = Run({"a": ["x", "y", "z", "u", "v", "hit"], "b": ["x", "hit"], "c": ["x", "hit"]})
    gold = Gold({"a": ["hit"], "b": ["hit"], "c": ["hit"]})
    queries = Queries(
        {"a": {"text": "a", "k": None}, "b": {"text": "b", "k": 1}, "c": {"text": "c", "k": 2}}
    )
    scores = karat.evaluate(
        run, gold, "R@k", profile="story", settings={"order": "rank"}, queries=queries
    )
    assert scores.table["R@k"].to_list() == [0.0, 0.0, 1.0]


def test_000_worked_queries_of_the_bag_of_words_profile():
    # three labelled queries: ranks 2, 1 and 1 -> value (1/2 + 1 + 1)/3 = .8333; the third has a
    # gold scene that does not exist, so its recall at k=1 is 1/2; two more have no labels
    gold = Gold({"q1": ["Sc2"], "q2": ["Sc1"], "q3": ["Finale", "Sc9"], "q4": [], "q5": []})
    run = Run(
        {
            "q1": {"Sc1": 0.4, "Sc2": 0.3, "Finale": 0.2},
            "q2": {"Sc1": 0.2, "Sc2": 0.0, "Finale": 0.0},
            "q3": {"Sc1": 0.2, "Sc2": 0.0, "Finale": 0.7},
            "q4": {"Sc1": 0.2},
            "q5": {"Sc1": 0.2},
        }
    )
    queries = Queries(
        {q: {"text": q, "k": k} for q, k in zip(gold.query_ids, (2, 5, 1, 5, 5), strict=True)}
    )
    scores = karat.evaluate(run, gold, profile="story", queries=queries)
    assert scores.means()["RR"] == pytest.approx(2.5 / 3)
    assert scores.means()["R@k"] == pytest.approx((1 + 1 + 1 / 2) / 3)
    assert scores.summaries["RR"].n == 3
    assert scores.counts.empty_gold == 2


def test_000_without_labelled_queries_there_is_no_value():
    scores = karat.evaluate(Run({"q": {"Sc1": 1.0}}), Gold({"q": []}), profile="story")
    assert scores.means() == {"RR": None, "R@k": None}


# 001: a course's lesson on retrieval metrics


def recall_at_k(gold, retrieved, k):
    return len(set(retrieved[:k]) & gold) / max(1, len(gold))


def hit_at_k(gold, retrieved, k):
    return 1 if set(retrieved[:k]) & gold else 0


def precision_at_k(relevance, k):
    return sum(relevance[:k]) / max(1, k)


def mrr(relevance, k=None):
    upto = relevance if k is None else relevance[:k]
    return next((1.0 / i for i, r in enumerate(upto, start=1) if r > 0), 0.0)


def dcg(relevance, k):
    return sum((2**rel - 1) / math.log2(i + 1) for i, rel in enumerate(relevance[:k], start=1))


GRADES = {"c1": 2, "c2": 1, "c3": 1, "c4": 0}
RANKING = ["x", "c2", "c4", "c1", "y", "z"]


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 10])
def test_001_snippets_and_karat_agree(k):
    gold = {item for item, grade in GRADES.items() if grade > 0}
    relevance = [GRADES.get(item, 0) for item in RANKING]
    binary = [int(item in gold) for item in RANKING]
    names = [f"{name}@{k}" for name in ("R", "Hit", "P", "RR")] + ["RR", f"DCG@{k}"]
    means = karat.evaluate(Run({"q": RANKING}), Gold({"q": GRADES}), names, profile="rag").means()
    assert means == {
        f"R@{k}": recall_at_k(gold, RANKING, k),
        f"Hit@{k}": hit_at_k(gold, RANKING, k),
        f"P@{k}": precision_at_k(binary, k),
        f"RR@{k}": mrr(binary, k),
        "RR": mrr(binary),
        f"DCG@{k}": pytest.approx(dcg(relevance, k), abs=1e-15),
    }


def test_001_the_ideal_comes_from_all_gold_not_from_what_was_retrieved():
    # the lesson's snippet sorts the retrieved list: [1] is its own ideal, nDCG 1.0 with c1 missing
    means = karat.evaluate(
        Run({"q": ["c2"]}), Gold({"q": GRADES}), "nDCG(gain='exp')@5", profile="rag"
    ).means()
    # 1 over (2^2 - 1)/log2(2) + 1/log2(3) + 1/log2(4)
    ideal = 3 + 1 / math.log2(3) + 0.5
    assert means["nDCG@5"] == pytest.approx(1 / ideal, abs=1e-15)


def test_001_weighted_recall_counts_grades_and_stays_below_1():
    gold = Gold({"q": GRADES})
    # found c2 and c1 of grades 1 and 2, of 2 + 1 + 1 in all
    assert karat.evaluate(Run({"q": RANKING}), gold, "WR@5").means()["WR@5"] == 3 / 4
    everything = Run({"q": [*GRADES, "x", "c1", "c2"]})
    assert karat.evaluate(everything, gold, "WR@20").means()["WR@20"] == 1.0


def test_001_ap_divides_by_all_gold():
    # hits at ranks 2 and 4: (1/2 + 2/4) / 3
    means = karat.evaluate(Run({"q": RANKING}), Gold({"q": GRADES}), "AP@10", profile="rag").means()
    assert means["AP@10"] == pytest.approx(1 / 3, abs=1e-15)


def test_001_run_record_of_section_7():
    # ranks 1 to 3; gold is p5 and an unfound p9; the last version is newer than nothing
    hits = pl.DataFrame(
        {
            "query_id": ["q_000042"] * 3,
            "chunk_id": ["doc_123#p6", "doc_123#p5", "doc_777#p2"],
            "rank": [1, 2, 3],
            "score": [18.4, 17.9, 13.2],
            "version": ["2025-04-01", "2025-04-01", "2024-12-01"],
        }
    )
    calls = pl.DataFrame(
        {"query_id": ["q_000042"], "latency.retrieve": [35.0], "latency.rerank": [22.0]}
    )
    run = karat.Run.from_frame(hits, calls=calls)
    gold = Gold({"q_000042": ["doc_123#p5", "doc_123#p9"]})
    queries = Queries({"q_000042": {"text": "?", "as_of": "2025-01-01"}})
    scores = karat.evaluate(run, gold, profile="rag", queries=queries)
    means = scores.means()
    assert means["Hit@1"] == 0.0
    assert means["R@3"] == 0.5
    assert means["RR"] == 0.5
    assert means["P@5"] == 0.2
    assert means["DistinctDocs@5"] == 2.0
    assert means["Redundancy@5"] == 1 - 2 / 5
    assert means["Fresh@5"] == 1 / 3
    assert means["latency.retrieve.p50"] == 35.0
    assert means["latency.rerank.p90"] == 22.0
    assert scores.summaries["Novelty@5"].lacks == "Novelty needs the items' texts: give --corpus"


def test_001_area_under_the_recall_curve():
    # one gold item at rank 4: R = 0, 0, 1, 1, 1 at 1, 3, 5, 10, 20;
    # trapezoids 2*0 + 2*.5 + 5*1 + 10*1 = 16, over 19
    run = Run({"q": ["x", "y", "z", "hit"]})
    assert karat.evaluate(run, Gold({"q": ["hit"]}), "AUC@20").means()["AUC@20"] == 16 / 19


# 002: a memory system's targets


@pytest.mark.parametrize("rank", [1, 2, 3, 7, 10])
def test_002_with_one_gold_memory_ndcg_is_one_over_log2_of_rank_plus_1(rank):
    run = Run({"q": {f"m{n}": float(-n) for n in range(1, 11)}})
    means = karat.evaluate(run, Gold({"q": [f"m{rank}"]}), "nDCG@10, RR", profile="memory").means()
    assert means["nDCG@10"] == pytest.approx(1 / math.log2(rank + 1), abs=1e-15)
    assert means["RR"] == 1 / rank


def test_002_recall_at_k_is_the_share_of_queries_with_a_hit():
    run = Run({"a": {"m1": 2.0, "m2": 1.0}, "b": {"m1": 2.0, "m2": 1.0}})
    scores = karat.evaluate(run, Gold({"a": ["m1"], "b": ["m2"]}), "Hit@1, Hit@3", profile="memory")
    assert scores.means() == {"Hit@1": 0.5, "Hit@3": 1.0}


def test_002_false_positive_rate_is_1_minus_hit_at_1():
    run = Run({"a": {"m1": 1.0}, "b": {"m1": 2.0, "m2": 1.0}, "c": {}})
    gold = Gold({"a": ["m1"], "b": ["m2"], "c": ["m3"], "d": ["m4"]})
    table = karat.evaluate(run, gold, "FPR@1, Hit@1", profile="memory").table
    assert table["FPR@1"].to_list() == [0.0, 1.0, 1.0, 1.0]
    assert (table["FPR@1"] + table["Hit@1"]).to_list() == [1.0] * 4


def test_002_precision_at_5_above_070_cannot_be_reached_with_one_gold_memory():
    scores = karat.evaluate(
        Run({"q": {"m1": 1.0}}), Gold({"q": ["m1"], "r": ["m2"]}), "P@5", profile="memory"
    )
    assert scores.summaries["P@5"].ceiling == 0.2


def test_002_coverage_is_the_share_of_memories_found_by_a_query_of_theirs():
    # m1 is found for a; m2 is returned only for a, whose gold it is not; m1 counts once for a and c
    gold = Gold({"a": ["m1"], "b": ["m2"], "c": ["m1"], "d": ["m3"]})
    run = Run({"a": {"m1": 2.0, "m2": 1.0}, "b": {"x": 1.0}, "c": {"x": 1.0}, "d": {"m3": 1.0}})
    assert karat.evaluate(run, gold, "Coverage@10", profile="memory").means() == {
        "Coverage@10": 2 / 3
    }


# 003: an A/B harness


def test_003_golden_gains_2_and_1_ranked_third_and_second():
    gold, run = Gold({"q": {"d1": 2, "d2": 1}}), Run({"q": {"d3": 3.0, "d2": 2.0, "d1": 1.0}})
    means = karat.evaluate(run, gold, profile="ab", settings={"k": 3}).means()
    # (1/log2(3) + 3/log2(4)) / (3/log2(2) + 1/log2(3)) = 2.13093 / 3.63093
    assert means["nDCG@k"] == pytest.approx(0.58688, abs=5e-6)
    assert means["R@k"] == 1.0
    assert means["RR@k"] == 0.5


def test_003_a_query_without_truth_counts_0():
    gold, run = (
        Gold({"a": {"d1": 1}, "b": {}, "c": {"d1": 0}}),
        Run({q: {"d1": 1.0} for q in "abc"}),
    )
    scores = karat.evaluate(run, gold, profile="ab")
    assert scores.means() == {"R@k": 1 / 3, "RR@k": 1 / 3, "nDCG@k": 1 / 3}


def test_003_a_query_that_retrieves_nothing_counts_0():
    scores = karat.evaluate(Run({"a": {"d1": 1.0}}), Gold({"a": ["d1"], "b": ["d1"]}), profile="ab")
    assert scores.means()["R@k"] == 0.5


def test_003_any_grade_above_0_is_relevant():
    scores = karat.evaluate(Run({"q": {"d1": 1.0}}), Gold({"q": {"d1": 0.25}}), "R@k", profile="ab")
    assert scores.means() == {"R@k": 1.0}


def test_003_ties_break_by_id():
    scores = karat.evaluate(
        Run({"q": {"d2": 1.0, "d1": 1.0}}), Gold({"q": ["d1"]}), "RR@k", profile="ab"
    )
    assert scores.means() == {"RR@k": 1.0}


def test_003_the_same_document_twice_cannot_lift_ndcg_above_1():
    # the harness counted it twice: 1 + 1/log2(3) = 1.6309
    scores = karat.evaluate(Run({"q": ["d1", "d1"]}), Gold({"q": ["d1"]}), "nDCG(gain='exp')@2")
    assert scores.means() == {"nDCG(gain='exp')@2": 1.0}


# 004: a minimal eval loop


def test_004_worked_example_at_k_5():
    gold, run = Gold({"q": ["A", "B"]}), Run({"q": ["X", "A", "Y", "Z", "W"]})
    means = karat.evaluate(run, gold, profile="minimal").means()
    assert means == {"Hit@k": 1.0, "R@k": 0.5, "P@k": 0.2, "RR@k": 0.5}


def test_004_part_02_numbers_with_four_relevant_chunks():
    gold = Gold({"q": ["r1", "r2", "r3", "r4"]})
    run = Run({"q": ["r1", "r2", "n1", "n2", "n3", "r3", "n4", "n5"]})
    means = karat.evaluate(run, gold, "P@3, R@3, P@8, R@8", profile="minimal").means()
    assert means == {"P@3": 2 / 3, "R@3": 0.5, "P@8": 0.375, "R@8": 0.75}


def test_004_a_question_outside_the_knowledge_base_is_not_a_miss():
    gold = Gold({"in": ["a"], "out": []})
    scores = karat.evaluate(Run({"in": ["a"], "out": ["a", "b"]}), gold, profile="minimal")
    assert scores.means() == {"Hit@k": 1.0, "R@k": 1.0, "P@k": 0.2, "RR@k": 1.0}
    assert scores.summaries["R@k"].n == 1
    assert scores.counts.empty_gold == 1
    assert values(scores, "out") == dict.fromkeys(scores.means())


# The profiles, row by row

TREC = (
    "NumRet NumRel NumRelRet AP GMAP Rprec Bpref RR IPrec@0 IPrec@0.1 IPrec@0.2 IPrec@0.3 IPrec@0.4"
    " IPrec@0.5 IPrec@0.6 IPrec@0.7 IPrec@0.8 IPrec@0.9 IPrec@1 P@5 P@10 P@15 P@20 P@30 P@100 P@200"
    " P@500 P@1000"
)
MEASURES = {
    "karat": "nDCG@10 RR@10 R@1 R@3 R@5 R@10 P@5 AP@100",
    "trec": TREC,
    "trec10": TREC,
    "story": "RR R@k",
    "rag": "Hit@1 Hit@3 Hit@5 Hit@10 Hit@20 R@1 R@3 R@5 R@10 R@20 WR@5 RR nDCG@5 AP@10"
    " P@5 DistinctDocs@5 Redundancy@5 Novelty@5 Fresh@5 AUC@20 latency.retrieve.p50"
    " latency.retrieve.p90 latency.rerank.p50 latency.rerank.p90",
    "memory": "Hit@1 Hit@3 Hit@5 Hit@10 RR nDCG@10 P@5 Sim@10 FPR@1"
    " Coverage(of='items')@10 latency.total.p50 latency.total.p95 latency.total.p99",
    "ab": "R@k RR@k nDCG@k",
    "minimal": "Hit@k R@k P@k RR@k",
}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_reports_its_own_measures(profile):
    gold, run = (
        Gold({"q": ["a"]}),
        karat.Run.from_frame(
            pl.DataFrame({"query_id": ["q"], "item_id": ["a"], "score": [1.0], "rank": [1]})
        ),
    )
    scores = karat.evaluate(run, gold, profile=profile)
    assert list(scores.means()) == MEASURES[profile].split()


# For one relevant item: its RR if order is by score or by rank; with a tie at the top, by ids
# ascending, descending, or as given; the mean when a second query is missing; and when a third
# has no gold and is answered.
ORDER = {
    "karat": "score", "trec": "score", "trec10": "score", "story": "score", "rag": "rank",
    "memory": "score", "ab": "score", "minimal": "rank",
}  # fmt: skip
TIES = {
    "karat": "asc", "trec": "desc", "trec10": "desc", "story": "given", "rag": "asc",
    "memory": "asc", "ab": "asc", "minimal": "asc",
}  # fmt: skip
MISSING = {
    "karat": 0.5, "trec": 1.0, "trec10": 1.0, "story": 0.5, "rag": 0.5, "memory": 0.5, "ab": 0.5,
    "minimal": 0.5,
}  # fmt: skip
EMPTY = {
    "karat": 1.0, "trec": 0.5, "trec10": 0.5, "story": 1.0, "rag": 1.0, "memory": 1.0, "ab": 0.5,
    "minimal": 1.0,
}  # fmt: skip


def frame(items: list[str], scores: list[float], ranks: list[int]) -> karat.Run:
    columns = {"query_id": ["q"] * len(items), "item_id": items, "score": scores, "rank": ranks}
    return karat.Run.from_frame(pl.DataFrame(columns))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_orders_by_score_or_by_rank(profile):
    run = frame(["a", "b"], scores=[1.0, 2.0], ranks=[1, 2])
    scores = karat.evaluate(run, Gold({"q": ["b"]}), "RR", profile=profile)
    assert scores.means()["RR"] == {"score": 1.0, "rank": 0.5}[ORDER[profile]]
    assert scores.counts.order_conflicts == 1


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_has_its_rule_for_ties(profile):
    run = frame(["b", "c", "a"], scores=[1.0] * 3, ranks=[1] * 3)
    gold = Gold({"q": {"a": 1, "b": 2, "c": 3}})
    first = {"asc": 1.0, "desc": 3.0, "given": 2.0}[TIES[profile]]
    assert karat.evaluate(run, gold, "CG@1", profile=profile).means()["CG@1"] == first


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_has_its_reading_of_a_missing_query(profile):
    run, gold = frame(["a"], [1.0], [1]), Gold({"q": ["a"], "gone": ["a"]})
    scores = karat.evaluate(run, gold, "RR", profile=profile)
    assert scores.means()["RR"] == MISSING[profile]
    assert scores.counts.missing == 1


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_has_its_reading_of_empty_gold(profile):
    run = frame(["a", "a"], [1.0, 1.0], [1, 1])
    run = karat.Run.from_frame(run.hits.with_columns(query_id=pl.Series(["q", "void"])))
    scores = karat.evaluate(run, Gold({"q": ["a"], "void": {"a": 0}}), "RR", profile=profile)
    assert scores.means()["RR"] == EMPTY[profile]
    assert scores.counts.empty_gold == 1


@pytest.mark.parametrize("profile", ["trec", "trec10"])
def test_trec_grades_are_whole_numbers(profile):
    means = karat.evaluate(Run({"q": {"a": 1.0}}), Gold({"q": {"a": 2.7}}), "CG", profile=profile)
    assert means.means() == {"CG": 2.0}


def test_trec_9_compares_scores_as_float32_and_version_10_as_float64():
    run, gold = Run({"q": {"a": 1.0 + 1e-9, "b": 1.0}}), Gold({"q": ["a"]})
    assert karat.evaluate(run, gold, "RR", profile="trec").means() == {"RR": 0.5}
    assert karat.evaluate(run, gold, "RR", profile="trec10").means() == {"RR": 1.0}


def test_trec_9_and_10_cut_recall_points_differently():
    # |G| = 4 at recall 0.35: trunc(1.4 + 0.9) = 2 relevant needed, lround(1.4) = 1;
    # hits at ranks 1 and 4: precision 1 at one, 1/2 at two
    run = Run({"q": {"a": 5.0, "x": 4.0, "y": 3.0, "b": 2.0}})
    gold = Gold({"q": ["a", "b", "c", "d"]})
    assert karat.evaluate(run, gold, "IPrec@0.35", profile="trec").means()["IPrec@0.35"] == 0.5
    assert karat.evaluate(run, gold, "IPrec@0.35", profile="trec10").means()["IPrec@0.35"] == 1.0


@pytest.mark.parametrize("profile", ["trec", "trec10"])
def test_trec_ids_are_compared_bytewise(profile):
    run = Run({"q": {"10": 1.0, "9": 1.0}})
    assert karat.evaluate(run, Gold({"q": ["9"]}), "RR", profile=profile).means() == {"RR": 1.0}
