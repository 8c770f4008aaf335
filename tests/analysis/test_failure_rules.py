"""The rules of the failure classes, each on both sides of its line, by hand."""

from __future__ import annotations

import random

import polars as pl
import pytest
from failing import failures_of, fillers, with_gold

from karat.data.tables import Corpus, Gold
from karat.errors import InputError
from karat.evaluation.stages import Thresholds


def test_a_query_with_gold_at_the_line_does_not_miss_and_one_below_it_does():
    gold = {"q1": ["g"], "q2": ["g"]}
    records = [
        {"query_id": "q1", "topk": with_gold(3)},
        {"query_id": "q2", "topk": with_gold(4)},
    ]
    found = failures_of(records, gold, lines=Thresholds(miss=3))
    assert [(one.query_id, one.kind) for one in found.queries] == [("q2", "low_rank")]


def test_queries_without_gold_are_no_misses():
    gold = {"q1": {"g": 0}, "q2": [], "q3": {"g": 1}}
    records = [{"query_id": f"q{i}", "topk": fillers(5)} for i in (1, 2, 3)]
    found = failures_of(records, gold)
    assert (found.assessed, found.misses) == (1, 1)


def test_grades_below_rel_are_no_gold():
    gold = {"q1": {"a": 1, "b": 2}}
    records = [{"query_id": "q1", "topk": ["a", *fillers(10), "b"]}]
    assert failures_of(records, gold).misses == 0
    (one,) = failures_of(records, gold, rel=2).queries
    assert (one.kind, one.evidence["gold"], one.evidence["final_rank"]) == ("low_rank", "b", 12)


def test_missing_queries_are_classed_whether_they_are_scored_or_skipped():
    gold = {"q1": ["g"], "q2": ["g"], "q3": ["g"]}
    records = [{"query_id": "q1", "topk": ["g"]}, {"query_id": "q2", "error": "503", "topk": []}]
    for missing in ("zero", "skip"):
        found = failures_of(records, gold, missing=missing)
        assert [one.kind for one in found.queries] == ["failed_call", "not_in_run"]


def test_the_best_placed_gold_decides():
    # One gold item was filtered out, the other was returned, only too low.
    raw = ["g", *fillers(14), "h", *fillers(4, "y")]
    records = [{"query_id": "q", "raw": raw, "stages": {"filter": raw[1:]}, "topk": raw[1:]}]
    (one,) = failures_of(records, {"q": ["g", "h"]}).queries
    assert one.kind == "low_rank"
    assert one.evidence["gold"] == "h"
    assert one.evidence["ranks"] == {"filter": 15}


def test_gold_in_a_list_is_in_the_index_whatever_the_corpus_file_says():
    corpus = {name: name for name in fillers(30)}
    records = [{"query_id": "q", "raw": with_gold(30, 40), "topk": with_gold(30, 40)[:10]}]
    (one,) = failures_of(records, {"q": ["g"]}, corpus=corpus).queries
    assert one.kind == "cut_by_k"
    records[0]["raw"] = records[0]["topk"]
    (one,) = failures_of(records, {"q": ["g"]}, corpus=corpus).queries
    assert one.kind == "not_in_index"


def test_a_deeper_list_tells_where_gold_stands_beyond_the_depth_looked_at():
    records = [{"query_id": "q", "k_raw": 300, "raw": with_gold(137, 300), "topk": fillers(10)}]
    (one,) = failures_of(records, {"q": ["g"]}).queries
    assert one.kind == "complete_miss"
    assert one.because == "not in the top 100; its best rank is 137"
    assert one.evidence["raw_rank"] == 137
    assert one.evidence["looked_at"] == 100
    (one,) = failures_of(records, {"q": ["g"]}, lines=Thresholds(deep=137)).queries
    assert one.kind == "cut_by_k"


def test_without_a_word_of_the_log_the_longest_list_tells_the_depth():
    records = [
        {"query_id": "p", "topk": ["g", *fillers(30)]},
        {"query_id": "q", "topk": fillers(7)},
        {"query_id": "r", "topk": []},
    ]
    found = failures_of(records, {"p": ["g"], "q": ["g"], "r": ["g"]})
    one, other = found.queries
    assert one.because == "not in the top 31, where the longest list ends"
    assert one.evidence["depth_from"] == "longest list"
    assert one.evidence["retrieved"] == 7
    assert other.because == "nothing was retrieved"


def test_parts_of_a_fusion_that_have_the_gold_are_named():
    stages = {"bm25": with_gold(4), "dense": fillers(20)}
    records = [{"query_id": "q", "raw": fillers(20), "stages": stages, "topk": fillers(10)}]
    (one,) = failures_of(records, {"q": ["g"]}).queries
    assert one.kind == "complete_miss"
    assert one.evidence["beside"] == {"bm25": 4}
    assert one.because.endswith("; bm25 has it at rank 4")


def test_a_list_of_which_nothing_was_returned_was_filtered_and_not_cut():
    records = [{"query_id": "q", "raw": with_gold(4), "topk": []}]
    (one,) = failures_of(records, {"q": ["g"]}).queries
    assert one.kind == "filtered_out"
    assert one.because == "at rank 4 of raw, from which nothing was returned"


def test_a_score_line_explains_what_a_bare_log_does_not():
    raw = [{"chunk_id": item, "score": (20 - at) / 20} for at, item in enumerate(with_gold(12))]
    records = [{"query_id": "q", "raw": raw, "topk": raw[:8]}]
    (one,) = failures_of(records, {"q": ["g"]}).queries
    assert one.kind == "cut_by_k"
    lines = Thresholds(score=0.46)
    (one,) = failures_of(records, {"q": ["g"]}, lines=lines).queries
    assert one.kind == "threshold_exclusion"
    assert one.because == "its score, 0.45, is below 0.46, and it was not returned"
    records[0]["topk"] = []
    (one,) = failures_of(records, {"q": ["g"]}, lines=lines).queries
    assert one.kind == "threshold_exclusion"
    (one,) = failures_of(records, {"q": ["g"]}, lines=Thresholds(score=0.45)).queries
    assert one.kind == "filtered_out"


def test_a_reranked_list_in_which_gold_rose_is_no_demotion():
    raw = with_gold(40, 50)
    rose, fell = with_gold(15, 50), with_gold(45, 50)
    base = {"query_id": "q", "raw": raw}
    for after, kind in ((rose, "cut_by_k"), (fell, "rerank_demotion"), (raw, "cut_by_k")):
        records = [{**base, "stages": {"rerank": after}, "topk": after[:10]}]
        (one,) = failures_of(records, {"q": ["g"]}).queries
        assert one.kind == kind


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, "cut_by_k"),
        ({"latency_ms": {"rerank": 4.0}}, "rerank_demotion"),
        ({"reranker_model": {"name": "some"}}, "rerank_demotion"),
        ({"topk": fillers(10)[::-1]}, "rerank_demotion"),
    ],
)
def test_what_shows_that_a_list_was_reordered(more, kind):
    records = [{"query_id": "q", "raw": with_gold(15), "topk": fillers(10), **more}]
    (one,) = failures_of(records, {"q": ["g"]}).queries
    assert one.kind == kind


def test_gold_that_the_reranker_leaves_low_was_low_before():
    # Below the line before and after: what is wrong is not what the reranker did.
    records = [{"query_id": "q", "raw": with_gold(12), "stages": {"rerank": with_gold(18)}}]
    records[0]["topk"] = with_gold(18)
    (one,) = failures_of(records, {"q": ["g"]}).queries
    assert one.kind == "low_rank"


def test_a_list_that_a_later_stage_drops_the_gold_from_was_reordered_away():
    stages = {"rerank": with_gold(5), "mmr": fillers(10)}
    records = [{"query_id": "q", "stages": stages, "topk": fillers(10)}]
    (one,) = failures_of(records, {"q": ["g"]}).queries
    assert (one.kind, one.because) == ("rerank_demotion", "at rank 5 of rerank, not in mmr")


def test_a_stage_that_logged_nothing_for_a_query_is_not_blamed():
    raw = with_gold(4)
    other = {"query_id": "p", "raw": raw, "stages": {"filter": raw[:9]}, "topk": raw[:9]}
    records = [other, {"query_id": "q", "raw": raw, "topk": raw[4:14]}]
    (one,) = failures_of(records, {"p": ["g"], "q": ["g"]}).queries
    assert one.because == "at rank 4 of raw, above items that were returned, and not returned"


def test_a_sieve_that_lets_nothing_pass_is_the_one_that_did_it():
    raw = with_gold(4)
    stages = {"filter": raw[1:], "as_of": [], "threshold": []}
    other = {"query_id": "p", "raw": raw, "stages": {"as_of": raw, "threshold": raw}, "topk": raw}
    records = [other, {"query_id": "q", "raw": raw, "stages": stages, "topk": []}]
    (one,) = failures_of(records, {"p": ["g"], "q": ["g"]}).queries
    assert one.kind == "freshness_filtered"
    assert one.because == "at rank 3 of filter, taken out by as_of"


@pytest.mark.parametrize(
    ("chosen", "source", "kind"),
    [
        ("docs", "mails", "routed_away"),
        ("docs+mails", "mails", "complete_miss"),
        (["docs", "mails"], "mails", "complete_miss"),
        ("docs", ["mails", "wiki"], "routed_away"),
        ("wiki", ["mails", "wiki"], "complete_miss"),
        ("docs", None, "complete_miss"),
    ],
)
def test_one_of_the_right_sources_is_enough(chosen, source, kind):
    corpus = {"g": {"text": "g", "source": source}, "x0": {"text": "x", "source": source}}
    records = [{"query_id": "q", "source": chosen, "topk": ["x0"]}]
    (one,) = failures_of(records, {"q": ["g"]}, corpus=corpus).queries
    assert one.kind == kind


def test_versions_in_a_declared_order_tell_what_is_too_new():
    corpus = {"g": {"text": "g", "version": "v3"}}
    corpus |= {name: {"text": name, "version": "v1"} for name in fillers(10)}
    queries = {"q": {"text": "q", "as_of": "v2"}}
    records = [{"query_id": "q", "topk": fillers(10)}]
    options = {"queries": queries, "corpus": corpus}
    (one,) = failures_of(records, {"q": ["g"]}, versions="v1<v2<v3", **options).queries
    assert one.kind == "freshness_filtered"
    (one,) = failures_of(records, {"q": ["g"]}, **options).queries
    assert one.kind == "complete_miss"
    corpus["x4"]["version"] = "v3"
    (one,) = failures_of(records, {"q": ["g"]}, versions="v1<v2<v3", **options).queries
    assert one.kind == "complete_miss", "something newer was returned, so nothing filters"


def test_scores_that_are_cosines_stand_in_for_similarities():
    raw = [{"chunk_id": item, "score": 0.9 - at / 20} for at, item in enumerate(with_gold(14))]
    records = [{"query_id": "q", "raw": raw, "topk": raw[:10]}]
    assert failures_of(records, {"q": ["g"]}).queries[0].kind == "cut_by_k"
    records[0]["score_kind"] = "cosine"
    (one,) = failures_of(records, {"q": ["g"]}).queries
    assert one.kind == "embedding_mismatch"
    assert one.evidence["similarity"] == pytest.approx(0.25)
    (one,) = failures_of(records, {"q": ["g"]}, lines=Thresholds(similarity=0.2)).queries
    assert one.kind == "cut_by_k"


def test_a_least_similarity_that_is_no_number_is_refused():
    queries = {"q": {"text": "q", "min_similarity": "high"}}
    hit = [{"chunk_id": item, "similarity": 0.5} for item in with_gold(14)]
    with pytest.raises(InputError, match="min_similarity"):
        failures_of([{"query_id": "q", "topk": hit}], {"q": ["g"]}, queries=queries)


def test_how_many_queries_an_item_must_spoil_grows_with_their_number():
    def records(n, spoilt):
        for i in range(n):
            top = fillers(9, f"own{i}-")
            yield {"query_id": f"q{i}", "topk": [*(["hub"] if i < spoilt else []), *top, "g"]}

    def dominant(n, spoilt):
        gold = {f"q{i}": ["g"] for i in range(n)}
        return failures_of(records(n, spoilt), gold, lines=Thresholds(miss=3)).dominant

    assert dominant(100, 2) == ()
    assert dominant(100, 3) == (("hub", 3),)
    assert dominant(201, 4) == ()
    assert dominant(201, 5) == (("hub", 5),)


def test_a_share_of_the_queries_is_not_rounded_up_by_floating_point():
    # 7 % of 100 are 7, although 0.07 * 100 is a little more.
    gold = {f"q{i}": ["g"] for i in range(100)}
    records = [
        {"query_id": f"q{i}", "topk": [*(["hub"] if i < 7 else []), f"own{i}"]} for i in range(100)
    ]
    lines = Thresholds(dominant_share=0.07)
    assert failures_of(records, gold, lines=lines).dominant == (("hub", 7),)


def test_an_item_below_gold_does_not_dominate():
    records = [{"query_id": f"q{i}", "topk": ["g", "hub"]} for i in range(5)]
    assert failures_of(records, {f"q{i}": ["g"] for i in range(5)}).dominant == ()


def test_documents_are_judged_by_their_first_chunk():
    corpus = {f"d{i}#{j}": f"text {i} {j}" for i in range(30) for j in range(2)}
    lists = [f"d{i}#0" for i in range(29)]
    lists[12:12] = ["d29#1", "d29#0"]
    records = [{"query_id": "q", "raw": lists, "topk": lists[:20]}]
    options = {"corpus": corpus, "level": "doc"}
    (one,) = failures_of(records, {"q": ["d29#0"]}, **options).queries
    assert (one.kind, one.evidence["gold"], one.evidence["final_rank"]) == ("low_rank", "d29", 13)
    (one,) = failures_of(records, {"q": ["e1#0"]}, **options).queries
    assert (one.kind, one.because) == ("not_in_index", "its gold is not in the corpus")
    (one,) = failures_of([{"query_id": "q", "topk": []}], {"q": ["d29#7"]}, **options).queries
    assert one.kind == "complete_miss", "another chunk of the document is in the corpus"


def test_spans_are_found_where_enough_of_them_is_covered():
    gold = Gold.from_frame(
        pl.DataFrame(
            {"query_id": ["q", "p"], "item_id": ["doc", "gone"], "start": [0, 0], "end": [100, 9]}
        )
    )
    others = [f"doc:{100 * i}-{100 * i + 100}" for i in range(2, 14)]
    chunks = ["doc:0-40", *others, "doc:40-90"]
    corpus = Corpus.from_frame(
        pl.DataFrame({"item_id": chunks, "text": "", "doc_id": "doc"}).with_columns(
            start=pl.col("item_id").str.extract(r":(\d+)-").cast(pl.Int64),
            end=pl.col("item_id").str.extract(r"-(\d+)$").cast(pl.Int64),
        )
    )
    records = [{"query_id": name, "raw": chunks, "topk": chunks} for name in ("q", "p")]
    found = failures_of(records, gold, corpus=corpus, level="span")
    one, other = found.queries
    # 40 of 100 characters are in the first chunk, the other 50 in the 14th.
    assert (one.kind, one.evidence["final_rank"]) == ("low_rank", 14)
    assert one.evidence["gold"] == "doc:0-100"
    assert other.kind == "not_in_index"


def test_scored_lists_are_judged_in_the_order_of_their_scores():
    # Logged ranks say one thing and scores another: the convention decides which is raw's order.
    hits = [{"chunk_id": item, "score": 0.1 * at} for at, item in enumerate(with_gold(3, 14))]
    final = [hit for hit in hits if hit["chunk_id"] != "g"]
    records = [{"query_id": "q", "raw": hits, "topk": final[:8]}]
    assert failures_of(records, {"q": ["g"]}).queries[0].kind == "filtered_out"
    # By score the eight that are kept stand below others that are not, and above the gold.
    (one,) = failures_of(records, {"q": ["g"]}, order="score").queries
    assert one.evidence["raw_rank"] == 12
    assert one.kind == "filtered_out"
    records[0]["topk"] = final[5:]
    (one,) = failures_of(records, {"q": ["g"]}, order="score").queries
    assert one.kind == "cut_by_k"


def test_an_item_that_a_list_returns_again_keeps_its_place():
    raw = ["a", "a", "g", "b", "c"]
    records = [{"query_id": "q", "raw": raw, "topk": ["a", "b"]}]
    (one,) = failures_of(records, {"q": ["g"]}).queries
    assert (one.kind, one.evidence["raw_rank"]) == ("filtered_out", 3)


def test_a_depth_bounds_what_is_looked_at():
    raw = with_gold(12)
    records = [{"query_id": "q", "raw": raw, "topk": raw[:11] + raw[12:]}]
    assert failures_of(records, {"q": ["g"]}).queries[0].kind == "filtered_out"
    assert failures_of(records, {"q": ["g"]}, depth=11).queries[0].kind == "complete_miss"


def test_whether_an_order_was_kept_does_not_depend_on_the_depth():
    raw = with_gold(3)
    records = [{"query_id": "q", "raw": raw, "topk": [raw[0], *raw[5:15]]}]
    assert failures_of(records, {"q": ["g"]}, depth=5).queries[0].kind == "filtered_out"


@pytest.mark.parametrize(
    ("chosen", "right", "away"),
    [
        ("c++", "c++", False),
        ("a + b", "b", False),
        (["a", "b"], "b", False),
        ("a", ["b", "a"], False),
        ("c++", "c", True),
        (["a"], "b", True),
    ],
)
def test_sources_are_spelled_as_for_a_router(chosen, right, away):
    gold = {"q": ["g"]}
    queries = {"q": {"text": "?", "source": right}}
    record = {"query_id": "q", "topk": fillers(10), "source": chosen}
    found = failures_of([record], gold, queries=queries)
    assert found.queries[0].kind == ("routed_away" if away else "complete_miss")


def test_in_a_small_corpus_nothing_dominates_by_chance():
    """200 items, 100 queries, random lists: gold below the top is low, and no item to blame."""
    rng = random.Random(5)
    items = [f"i{n}" for n in range(200)]
    gold, records = {}, []
    for n in range(100):
        topk = rng.sample(items, 100)
        gold[f"q{n}"] = [rng.choice(topk[10:])]
        records.append({"query_id": f"q{n}", "k": 100, "topk": topk})
    found = failures_of(records, gold)
    assert found.counts["low_rank"] == found.misses == 100


def test_a_call_without_a_raw_list_was_looked_into_as_far_as_its_own_goes():
    records = [
        {"query_id": "q1", "k": 8, "k_raw": 20, "topk": fillers(8), "raw": fillers(20)},
        {"query_id": "q2", "k": 8, "k_raw": 20, "topk": fillers(8)},
    ]
    found = failures_of(records, {"q1": ["g"], "q2": ["g"]})
    # The first list ends where lists were cut, the second one has nothing more.
    assert [one.kind for one in found.queries] == ["beyond_depth", "complete_miss"]
    assert [one.evidence["looked_at"] for one in found.queries] == [20, 8]


def test_counts_that_need_longer_lists_are_unknown():
    """Gold at rank 12 of lists of 20, at rank 40 of none, and in no list at all."""
    gold = {f"q{n:02}": ["g"] for n in range(30)}
    places = dict.fromkeys(list(gold)[:24], 1) | dict.fromkeys(list(gold)[24:27], 12)
    places |= dict.fromkeys(list(gold)[27:29], 40)

    def counted(length, **told):
        records = [
            {"query_id": name, "topk": with_gold(places[name], length), **told}
            if name in places and places[name] <= length
            else {"query_id": name, "topk": fillers(length), **told}
            for name in gold
        ]
        return failures_of(records, gold).to_dict()

    whole = counted(100)
    known = {"complete_miss": 1, "low_rank": 5, "false_positive_dominance": 0}
    assert {name: whole["failures_by_category"][name] for name in known} == known
    assert "beyond_depth" not in whole["classes"]
    for cut in (counted(20), counted(20, k=20)):
        assert cut["misses"] == 6
        assert cut["classes"]["beyond_depth"] == cut["not_counted"]["beyond_depth"] == 3
        for name in ("complete_miss", "low_rank", "embedding_mismatch"):
            assert cut["classes"][name] is None
            assert cut["failures_by_category"][name] is None
        assert cut["failures_by_category"]["threshold_exclusion"] == 0
    # What was asked for and not returned is not there.
    asked = counted(20, k=100)
    assert asked["failures_by_category"]["complete_miss"] == 3
    shortest = counted(5)
    assert (shortest["miss_at"], shortest["ends_at"], shortest["misses"]) == (5, 5, 6)
