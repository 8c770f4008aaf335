from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.analysis.check import KINDS, Check, Issue
from karat.analysis.check import check as check_evaluation
from karat.data.tables import Corpus, Gold, Queries
from karat.errors import KaratError
from karat.evaluation.evaluation import Evaluation


def check(gold: dict[str, Any] | Gold, queries=None, corpus=None, **more: Any) -> Check:
    changed = {key: more.pop(key) for key in ("level", "rel", "versions") if key in more}
    profile = more.pop("profile", "karat")
    evaluation = Evaluation(
        gold if isinstance(gold, Gold) else Gold.from_dict(gold),
        queries=None if queries is None else Queries.from_dict(queries),
        corpus=None if corpus is None else Corpus.from_dict(corpus),
        profile=profile,
        settings=changed,
        **more,
    )
    return check_evaluation(evaluation)


def found(result: Check, kind: str) -> Issue:
    return next(one for one in result.findings if one.kind == kind)


def kinds(result: Check) -> set[str]:
    return {one.kind for one in result.findings}


def test_a_sound_set_is_sound_and_says_what_was_looked_for():
    result = check(
        {"q1": {"d1": 2}, "q2": {"d2": 1}},
        {"q1": "how to pay", "q2": "where to park"},
        {"d1": "Pay by card or in cash.", "d2": "Leave the bike inside a zone."},
        measures="nDCG@10",
    )
    assert result.findings == ()
    assert result.verdict() == result.verdict(strict=True) == "sound"
    assert "no near-duplicate queries among 2 texts" in result.body["fine"]
    assert "no near-duplicate items among 2" in result.body["fine"]
    assert "2 relevant items, all in the corpus" in result.body["fine"]
    assert result.body["unchecked"] == []


def test_what_could_not_be_checked_is_said():
    assert [one.partition(":")[2] for one in check({"q1": {"d1": 1}}).body["unchecked"]] == [
        " give --corpus",
        " give --queries",
    ]


def test_one_text_with_different_gold_is_an_error():
    texts = {"q1": "Charged  twice", "q2": "charged twice", "q3": "ｃｈａｒｇｅｄ TWICE"}
    result = check({"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"a": 1}}, texts)
    one = found(result, "same_text_different_gold")
    assert (one.level, one.count) == ("error", 1)
    assert one.examples[0]["queries"] == {"q1": ["a"], "q2": ["b"], "q3": ["a"]}
    assert result.verdict() == "unsound"


def test_one_text_with_other_grades_is_different_gold_and_other_negatives_are_not():
    texts = {"q1": "charged twice", "q2": "charged twice"}
    assert "same_text_different_gold" in kinds(check({"q1": {"a": 1}, "q2": {"a": 2}}, texts))
    same = check({"q1": {"a": 1, "b": 0}, "q2": {"a": 1}}, texts)
    assert kinds(same) >= {"repeated_query"}
    assert "same_text_different_gold" not in kinds(same)


@pytest.mark.parametrize("column", ["as_of", "group"])
def test_one_text_at_another_time_or_in_another_conversation_may_have_other_gold(column):
    texts = {
        "q1": {"text": "and the price?", column: "2024-01-01"},
        "q2": {"text": "and the price?", column: "2025-01-01"},
    }
    assert "same_text_different_gold" not in kinds(check({"q1": {"a": 1}, "q2": {"b": 1}}, texts))


def test_a_query_that_does_not_say_when_it_is_asked_is_compared_with_the_one_that_does():
    texts = {"q1": {"text": "and the price?", "as_of": "2024-01-01"}, "q2": "and the price?"}
    assert "same_text_different_gold" in kinds(check({"q1": {"a": 1}, "q2": {"b": 1}}, texts))


def test_near_duplicate_queries_are_told_with_whether_their_gold_agrees():
    texts = {"q1": "pay by card now", "q2": "pay by card now please", "q3": "something else"}
    gold = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1}}
    one = found(check(gold, texts), "near_duplicate_queries")
    assert one.count == 1
    assert "1 of them with different gold" in one.what
    assert one.examples[0]["similarity"] == 0.8
    assert one.examples[0]["same_gold"] is False


def test_the_same_text_is_not_told_again_as_a_near_duplicate():
    texts = {"q1": "pay by card now", "q2": "Pay by card now"}
    assert "near_duplicate_queries" not in kinds(check({"q1": {"a": 1}, "q2": {"a": 1}}, texts))


def test_gold_that_the_corpus_lacks_is_an_error_with_the_nearest_id():
    gold = {"q1": {"doc_07": 1, "doc-08": 1}, "q2": {"doc-08": 2}, "q3": {"doc_09": 1, "x": 0}}
    corpus = {f"doc-{n:02}": f"text number {n}" for n in range(1, 9)}
    result = check(gold, None, corpus)
    one = found(result, "unknown_gold")
    assert one.count == 2
    assert one.examples == [
        {"query": "q1", "item": "doc_07", "nearest": "doc-07"},
        {"query": "q3", "item": "doc_09"},
    ]
    assert "for 2 queries" in one.what
    assert found(result, "unknown_judged").count == 1


def test_gold_of_documents_in_a_corpus_of_chunks_is_pointed_to_its_level():
    corpus = {"faq#1": "how to pay", "faq#2": "where to park"}
    one = found(check({"q1": {"faq": 1}}, None, corpus), "unknown_gold")
    assert "no relevant id is in the corpus" in one.what
    assert "--set level=doc" in one.what
    assert "unknown_gold" not in kinds(check({"q1": {"faq": 1}}, None, corpus, level="doc"))


def test_a_chunk_that_is_gone_is_no_loss_where_documents_count():
    corpus = {"faq#1": "how to pay"}
    assert "unknown_gold" not in kinds(check({"q1": {"faq#9": 1}}, None, corpus, level="doc"))
    assert "unknown_gold" in kinds(check({"q1": {"tips#1": 1}}, None, corpus, level="doc"))


def spans(*rows: tuple[str, str, int, int]) -> Gold:
    names = ["query_id", "item_id", "start", "end"]
    return Gold.from_frame(pl.DataFrame(rows, schema=names, orient="row"))


def test_spans_must_lie_within_a_document_of_the_corpus():
    # "0123456789" has 10 characters
    gold = spans(("q1", "d", 0, 10), ("q2", "d", 5, 11), ("q3", "e", 0, 3))
    result = check(gold, None, {"d": "0123456789"}, level="span")
    assert found(result, "span_beyond_text").examples == [
        {"query": "q2", "doc": "d", "end": 11, "length": 10},
    ]
    assert found(result, "unknown_gold").count == 1


@pytest.mark.parametrize(
    "corpus",
    [
        {"d:0-6": "how to", "d:6-12": " pay it"},
        {
            "a": {"text": "how to", "doc_id": "d", "start": 0, "end": 6},
            "b": {"text": " pay it", "doc_id": "d", "start": 6, "end": 12},
        },
    ],
)
def test_a_document_is_as_long_as_its_last_chunk_says(corpus):
    assert "span_beyond_text" not in kinds(
        check(spans(("q1", "d", 0, 12)), None, corpus, level="span")
    )
    assert "span_beyond_text" in kinds(check(spans(("q1", "d", 0, 13)), None, corpus, level="span"))


def test_a_document_with_an_unknown_end_may_be_as_long_as_it_likes():
    corpus = {
        "a": {"text": "how to", "doc_id": "d", "start": 0, "end": 6},
        "b": {"text": " pay it", "doc_id": "d", "start": 6, "end": None},
    }
    assert "span_beyond_text" not in kinds(
        check(spans(("q1", "d", 0, 13)), None, corpus, level="span")
    )


def test_a_query_with_gold_cannot_be_without_an_answer():
    texts = {"q1": {"text": "dogs", "no_answer": True}, "q2": {"text": "cats", "no_answer": True}}
    one = found(check({"q1": {"a": 1}}, texts), "no_answer_with_gold")
    assert one.examples == [{"query": "q1", "text": "dogs", "relevant": ["a"]}]


def test_only_negatives_are_an_error_and_nothing_at_all_is_a_warning():
    result = check({"q1": {"a": 0}, "q2": {}, "q3": {"b": 1}})
    assert [one["query"] for one in found(result, "only_negatives").examples] == ["q1"]
    assert [one["query"] for one in found(result, "empty_gold").examples] == ["q2"]
    assert found(result, "only_negatives").level == "error"
    assert found(result, "empty_gold").level == "warning"


def test_a_threshold_above_every_grade_is_given_as_the_reason():
    one = found(check({"q1": {"a": 1}, "q2": {"b": 1}}, rel=2), "only_negatives")
    assert "relevant needs grade 2, and the highest grade is 1" in one.what


def test_a_hard_negative_must_not_be_relevant():
    frame = pl.DataFrame(
        {"query_id": ["q1", "q1"], "item_id": ["a", "b"], "grade": [1.0, 1.0],
         "negative": [False, True]}
    )  # fmt: skip
    one = found(check(Gold.from_frame(frame)), "relevant_negative")
    assert one.examples == [{"query": "q1", "item": "b", "grade": 1.0}]


def test_queries_of_the_gold_must_be_in_the_queries_file():
    some = check({"q1": {"a": 1}, "q9": {"a": 1}}, {"q1": "dogs"})
    assert found(some, "unknown_queries").examples == [{"query": "q9"}]
    none = check({"Q1": {"a": 1}}, {"q1": "dogs"})
    assert found(none, "no_common_queries").examples == [{"gold": "Q1", "queries": "q1"}]
    assert none.verdict() == "unsound"


def test_an_empty_query_is_an_error_and_no_duplicate_of_another():
    result = check({"q1": {"a": 1}, "q2": {"b": 1}}, {"q1": " ", "q2": ""})
    assert found(result, "empty_query").count == 2
    assert "same_text_different_gold" not in kinds(result)


@pytest.mark.parametrize(
    ("query", "leaks"),
    [
        ("how can I cancel", True),
        ("How can I CANCEL?", True),
        ("how can I", False),
        ("ow can I cancel", False),
        ("how can I cancel passes", False),
    ],
)
def test_a_query_of_four_words_that_stands_in_its_gold_is_a_leak(query, leaks):
    corpus = {"a": "FAQ. How can I cancel, and when?", "b": query}
    assert ("leak" in kinds(check({"q1": {"a": 1}}, {"q1": query}, corpus))) == leaks


def test_characters_of_an_unspaced_script_are_not_quite_words():
    corpus = {"a": "关于我要申请退款的说明在这里可以查看"}
    short, long = {"q1": "我要申请退款"}, {"q1": "我要申请退款的说明在这里"}
    assert "leak" not in kinds(check({"q1": {"a": 1}}, short, corpus))
    assert "leak" in kinds(check({"q1": {"a": 1}}, long, corpus))


def test_a_leak_through_a_document_or_a_span_is_found_in_its_chunks():
    texts = {"q1": "how can I cancel"}
    chunks = {"d#1": "Something else first.", "d#2": "How can I cancel?"}
    assert found(check({"q1": {"d": 1}}, texts, chunks, level="doc"), "leak").examples == [
        {"query": "q1", "text": "how can I cancel", "item": "d#2"},
    ]
    places = {"d:0-21": "Something else first.", "d:21-38": "How can I cancel?"}
    inside, outside = spans(("q1", "d", 25, 30)), spans(("q1", "d", 0, 5))
    assert "leak" in kinds(check(inside, texts, places, level="span"))
    assert "leak" not in kinds(check(outside, texts, places, level="span"))


TWINS = {
    "a": "you can ask for a refund after a ride",
    "b": "You can ask for a refund after the ride",
    "c": "Parking is elsewhere.",
}


def test_an_unjudged_twin_of_gold_is_told_for_the_query_that_it_matters_to():
    gold = {"q1": {"a": 1}, "q2": {"a": 1, "b": 1}, "q3": {"a": 1, "b": 0}, "q4": {"c": 1}}
    result = check(gold, None, TWINS)
    alone, apart = found(result, "twin_of_gold"), found(result, "twins_judged_differently")
    assert (alone.count, apart.count) == (1, 1)
    assert (alone.examples[0]["query"], alone.examples[0]["twin"]) == ("q1", "b")
    assert (apart.examples[0]["query"], apart.examples[0]["twin"]) == ("q3", "b")
    assert found(result, "near_duplicate_items").count == 1


def test_a_third_twin_that_nobody_judged_is_found_behind_two_that_are():
    corpus = {**TWINS, "d": TWINS["a"].upper(), "e": TWINS["a"] + "!"}
    result = check({"q1": {"a": 1, "b": 1, "d": 1}}, None, corpus)
    assert {one["twin"] for one in found(result, "twin_of_gold").examples} == {"e"}
    assert found(result, "twin_of_gold").count == 3


def test_a_twin_inside_a_judged_document_is_judged():
    corpus = {"x#1": TWINS["a"], "x#2": TWINS["b"], "y#1": "Parking is elsewhere."}
    assert "twin_of_gold" not in kinds(check({"q1": {"x": 1}}, None, corpus, level="doc"))
    assert "twin_of_gold" in kinds(check({"q1": {"x#1": 1}}, None, corpus))


def test_items_without_a_text_are_noted_and_gold_without_one_is_a_warning():
    result = check({"q1": {"a": 1}}, None, {"a": " ", "b": "", "c": "text"})
    assert found(result, "gold_without_text").examples == [{"query": "q1", "item": "a"}]
    assert found(result, "empty_items").count == 2
    assert "near_duplicate_items" not in kinds(result)


def test_gold_from_after_the_question_is_a_warning():
    texts = {
        "q1": {"text": "one", "as_of": "2025-06-15"},
        "q2": {"text": "two", "as_of": "2025-07-01"},
    }
    corpus = {
        "a": {"text": "old", "version": "2025-06-15"},
        "b": {"text": "new", "version": "2025-06-16"},
    }
    result = check({"q1": {"a": 1, "b": 1}, "q2": {"b": 1}}, texts, corpus)
    late = found(result, "gold_newer_than_query")
    assert [(one["query"], one["item"]) for one in late.examples] == [("q1", "b")]


def test_declared_versions_have_an_order_too():
    texts = {"q1": {"text": "one", "as_of": "v1"}}
    corpus = {"a": {"text": "new", "version": "v2"}, "b": {"text": "old", "version": "v1"}}
    assert "gold_newer_than_query" in kinds(
        check({"q1": {"a": 1}}, texts, corpus, versions="v1<v2")
    )


@pytest.mark.parametrize("version", [5, ["v1", "v2"], {"year": 2025}, None])
def test_versions_of_any_kind_are_no_obstacle(version):
    texts = {"q1": {"text": "one", "as_of": "2025-06-15"}}
    corpus = {"a": {"text": "old", "version": version}}
    assert "gold_newer_than_query" not in kinds(check({"q1": {"a": 1}}, texts, corpus))


@pytest.mark.parametrize("ends", [("0", "12"), (0, None), ([0], [12]), ("x", "y")])
def test_places_of_any_kind_are_no_obstacle(ends):
    corpus = {"a": {"text": "how to pay it", "doc_id": "d", "start": ends[0], "end": ends[1]}}
    result = check(spans(("q1", "d", 0, 12)), {"q1": "how to pay it"}, corpus, level="span")
    assert "span_beyond_text" not in kinds(result)


def test_one_grade_is_noted_and_several_are_fine():
    assert found(check({"q1": {"a": 1}, "q2": {"b": 1}}), "one_grade").count == 2
    result = check({"q1": {"a": 1}, "q2": {"b": 3}})
    assert "2 relevant grades, from 1 to 3" in result.body["fine"]


def test_an_item_that_answers_a_fifth_of_twenty_queries_is_noted():
    gold = {f"q{n:02}": {f"d{n}": 1} for n in range(20)}
    assert "one_item_for_many" not in kinds(check(gold))
    popular = {query: items | ({"faq": 1} if n < 4 else {}) for n, (query, items) in
               enumerate(gold.items())}  # fmt: skip
    assert found(check(popular), "one_item_for_many").examples == [{"item": "faq", "queries": 4}]


def test_sizes_count_what_there_is():
    texts = {"q1": "one", "q2": {"text": "two", "no_answer": True}}
    corpus = {"x#1": "some text", "x#2": "other words", "y#1": "more of it"}
    assert check({"q1": {"x#1": 1, "x#2": 0}}, texts, corpus).body["sizes"] == {
        "queries": 2,
        "queries_with_gold": 1,
        "no_answer": 1,
        "judgments": 2,
        "relevant": 1,
        "items": 3,
        "docs": 2,
    }


def test_findings_come_worst_first_with_at_most_five_examples():
    gold = {f"q{n}": {"gone": 1} if n < 9 else {} for n in range(12)}
    document = check(gold, None, {"a": "text"}).to_dict()
    levels = [one["level"] for one in document["findings"]]
    assert levels == sorted(levels, key=["error", "warning", "note"].index)
    first = document["findings"][0]
    assert (first["kind"], first["count"], len(first["examples"])) == ("unknown_gold", 9, 5)
    assert first["do"] == KINDS["unknown_gold"].do


def test_warnings_make_a_set_unsound_only_if_strict():
    result = check({"q1": {"a": 1}, "q2": {}})
    assert (result.verdict(), result.verdict(strict=True)) == ("sound", "unsound")


WORDS = st.lists(st.sampled_from(["pay", "by", "card", "Now", "how", "?", "我", ""]), max_size=6)
IDS = st.sampled_from(["a", "b", "a#1", "a#2", "d:0-4", "x"])
WORLDS = st.fixed_dictionaries(
    {
        "gold": st.dictionaries(
            st.sampled_from(["q1", "q2", "q3", "q9"]),
            st.dictionaries(IDS, st.sampled_from([0, 1, 2, -1, 0.5]), max_size=4),
            min_size=1,
        ),
        "queries": st.none()
        | st.dictionaries(
            st.sampled_from(["q1", "q2", "q3"]),
            st.fixed_dictionaries(
                {
                    "text": WORDS.map(" ".join),
                    "no_answer": st.booleans(),
                    "as_of": st.sampled_from(["2025-01-01", "v1", "", None]),
                    "group": st.sampled_from(["g", None]),
                    "k": st.sampled_from([1, 3, None]),
                    "language": st.sampled_from(["en", "es", None]),
                }
            ),
            min_size=1,
        ),
        "corpus": st.none()
        | st.dictionaries(
            IDS,
            st.fixed_dictionaries(
                {
                    "text": WORDS.map(" ".join),
                    "version": st.sampled_from(["2024-01-01", "2026-01-01", "v1", None]),
                }
            ),
            min_size=1,
        ),
        "profile": st.sampled_from(["karat", "trec", "ab", "rag"]),
        "level": st.sampled_from(["item", "doc"]),
    }
)


@settings(max_examples=50, deadline=None)
@given(WORLDS)
def test_no_world_is_too_strange_to_be_checked(world):
    gold, queries, corpus = (world.pop(key) for key in ("gold", "queries", "corpus"))
    by = [] if queries is None else ["language"]
    try:
        one = check(dict(gold), queries, corpus, by=by, **dict(world))
    except KaratError:
        return
    other = check(dict(reversed(gold.items())), queries, corpus, by=by, **dict(world))
    counts = [(finding.kind, finding.count) for finding in one.findings]
    assert counts == [(finding.kind, finding.count) for finding in other.findings]
    for finding in one.findings:
        assert finding.count > 0
        assert finding.what.endswith(".")
        assert finding.kind in KINDS
