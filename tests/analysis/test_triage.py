"""Triage on worlds small enough to be worked out by hand."""

from __future__ import annotations

import json
import random
from collections import Counter

import polars as pl
import pytest

import karat
from karat.analysis.failures import classify
from karat.analysis.triage import QueryInspector, shared_terms, terms_of
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import MissingInputError, UsageError
from karat.evaluation.segments import By
from karat.evaluation.stages import Thresholds, score_stages
from karat.evaluation.top_lists import gold_of
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measure
from karat.measure.prepare import prepare
from karat.measure.score_builder import score

GOLD = Gold.from_dict(
    {
        "first": {"a": 1},
        "third": {"b": 2, "c": 0},
        "nowhere": {"d": 1},
        "also nowhere": {"e": 1},
        "failed": {"a": 1},
        "absent": {"a": 1},
        "no gold": {"x": 0},
    }
)
LOG = [
    {"query_id": "first", "topk": ["a", "x", "y"]},
    {"query_id": "third", "topk": ["x", "c", "b"]},
    {"query_id": "nowhere", "topk": ["x", "y", "z"], "raw": ["x", "y", "z", "w", "d"]},
    {"query_id": "also nowhere", "topk": ["x", "y", "z"], "query": "as the log has it"},
    {"query_id": "failed", "error": "timed out", "topk": []},
    {"query_id": "no gold", "topk": ["x"]},
]


class Whole:
    """A corpus in memory, as an index would show it."""

    def __init__(self, corpus: Corpus) -> None:
        self.frame = corpus.frame

    def rows(self, ids, *, by="item_id"):
        return self.frame.filter(pl.col(by).is_in(list(ids)))


def looked_at(
    log=None, gold=GOLD, *, measure="RR", queries=None, corpus=None, lines=None, keep=10, **settings
):
    run = log if isinstance(log, Run) else run_of_records(LOG if log is None else log, name="s")
    conventions = conventions_of("karat", {"missing_ids": "allow"} | settings)
    chosen = parse_measure(measure)
    prepared = prepare(gold, conventions, queries=queries, corpus=corpus)
    staged = score_stages(run, prepared, [chosen], lenient=[chosen], keep=keep)
    failures = classify(staged, queries, thresholds=lines or Thresholds(miss=2, deep=100))
    return QueryInspector(staged, chosen, failures, queries)


def names(triage, rows):
    return [triage.staged.gold.query_ids[row] for row in rows]


def case_of(triage, query_id, **more):
    [case] = triage.inspect(triage.chosen([query_id]), **more)
    return case


def test_the_worst_come_first_and_queries_without_gold_not_at_all():
    triage = looked_at()
    # Equal values of 0 stand as in the table; RR is 1/3 for "third" and 1 for "first".
    worst = ["nowhere", "also nowhere", "failed", "absent", "third", "first"]
    assert names(triage, triage.worst(100)) == worst
    assert names(triage, triage.worst(2)) == worst[:2]


def test_of_equal_values_the_deepest_gold_comes_first():
    gold = Gold.from_dict({"one": {"a": 1}, "two": {"a": 1}, "three": {"a": 1}})
    lists = {"one": ["x", "a"], "two": ["x", "y", "z", "a"], "three": ["x", "y", "a"]}
    triage = looked_at(Run.from_dict(lists), gold, measure="Hit@1")
    assert names(triage, triage.worst(3)) == ["two", "three", "one"]


def test_what_should_be_low_is_worst_when_it_is_high():
    log = [
        {"query_id": "first", "topk": ["a"], "latency_ms": 5},
        {"query_id": "third", "topk": ["b"], "latency_ms": 50},
    ]
    triage = looked_at(
        log, Gold.from_dict({"first": ["a"], "third": ["b"]}), measure="latency.total.mean"
    )
    assert names(triage, triage.worst(1)) == ["third"]


def test_queries_that_were_left_out_come_before_all_others():
    triage = looked_at(missing="skip")
    assert names(triage, triage.worst(3)) == ["failed", "absent", "nowhere"]
    assert case_of(triage, "failed")["value"] is None


def test_a_measure_without_a_direction_is_refused():
    with pytest.raises(UsageError, match="ranks no query as worse"):
        looked_at(measure="Sim@5").worst(1)


def test_a_measure_that_lacks_its_input_says_what():
    with pytest.raises(MissingInputError, match="--corpus"):
        looked_at(measure="Novelty@5").worst(1)


def test_an_unknown_query_is_answered_with_the_nearest():
    triage = looked_at()
    with pytest.raises(UsageError, match="unknown query 'thrid'; did you mean third"):
        triage.chosen(["thrid"])
    assert names(triage, triage.chosen(["third", "first", "third"])) == ["third", "first"]


def test_of_many_queries_none_of_which_is_near_a_few_are_named():
    gold = Gold.from_dict({f"query-{at}": ["a"] for at in range(500)})
    triage = looked_at(Run.from_dict({"query-0": ["a"]}), gold)
    with pytest.raises(UsageError) as told:
        triage.chosen(["zzz"])
    assert str(told.value).startswith("unknown query 'zzz'; known: query-0, query-1, query-2, ")
    assert str(told.value).endswith("query-99, …")


def test_a_query_stands_with_its_lists_its_gold_and_its_ranks():
    log = [
        {
            "query_id": "third",
            "topk": [
                {"chunk_id": "x", "score": 9},
                {"chunk_id": "c", "score": 8.5},
                {"chunk_id": "b", "score": 7},
            ],
        }
    ]
    case = case_of(looked_at(log, Gold.from_dict({"third": {"b": 2, "c": 0}})), "third")
    assert case["value"] == 1 / 3
    assert case["status"] == "scored"
    assert case["top"] == [
        {"rank": 1, "item_id": "x", "score": 9.0, "grade": None, "gold": False, "text": None},
        {"rank": 2, "item_id": "c", "score": 8.5, "grade": 0.0, "gold": False, "text": None},
        {"rank": 3, "item_id": "b", "score": 7.0, "grade": 2.0, "gold": True, "text": None},
    ]
    [gold] = case["gold"]
    assert (gold["item_id"], gold["grade"], gold["in_corpus"]) == ("b", 2.0, None)
    assert gold["ranks"] == {"final": 3, "stages": {}}
    assert (case["miss"], case["class"]) == (True, "low_rank")
    assert case["because"]


def test_a_run_without_scores_has_none_to_show():
    assert [hit["score"] for hit in case_of(looked_at(), "first")["top"]] == [None, None, None]


def test_a_stage_says_where_gold_was():
    gold = case_of(looked_at(), "nowhere")["gold"][0]
    assert gold["ranks"] == {"final": None, "stages": {"raw": 5}}


def test_no_miss_no_class():
    case = case_of(looked_at(), "first")
    assert [case[key] for key in ("miss", "class", "because", "evidence")] == [
        False,
        None,
        None,
        None,
    ]


def test_a_query_without_gold_can_be_looked_at_by_its_name():
    case = case_of(looked_at(), "no gold")
    assert (case["gold"], case["miss"], case["status"]) == ([], False, "empty_gold")


def test_a_failed_call_stands_with_its_error():
    case = case_of(looked_at(), "failed")
    assert (case["status"], case["error"], case["top"]) == ("failed", "timed out", [])
    assert case["class"] == "failed_call"


QUERIES = Queries.from_dict(
    {
        "first": {"text": "where", "language": "en", "notes": "an easy one", "tags": ["a", "b"]},
        "third": {"text": "Where is the KEY, the key?", "language": "es"},
        "nowhere": {"text": "", "language": "es"},
        "also nowhere": {"text": " ", "language": "en"},
        "failed": {"text": "when", "language": "en"},
        "absent": {"text": "who", "language": "en"},
        "no gold": {"text": "why", "language": "es"},
    }
)
CORPUS = Corpus.from_dict(
    {
        "a": {"text": "alpha", "section": "Intro", "version": "v1"},
        "b": {"text": "The key hangs there", "section": "Keys", "version": "v2"},
        "x": {"text": "Is where it is", "section": None, "version": None},
    }
)


def test_a_query_stands_with_what_the_eval_set_says_of_it():
    triage = looked_at(queries=QUERIES)
    case = case_of(triage, "first")
    assert (case["text"], case["note"]) == ("where", "an easy one")
    assert case["attributes"] == {"language": "en", "tags": ["a", "b"]}
    assert case_of(triage, "third")["note"] is None


def test_without_a_text_the_log_may_know_it():
    triage = looked_at(queries=QUERIES)
    rows = triage.chosen(["nowhere", "also nowhere"])
    assert [triage.text(row) for row in rows] == [None, None]
    bare = looked_at()
    assert [bare.text(row) for row in rows] == [None, "as the log has it"]


def test_the_corpus_tells_texts_sections_and_versions():
    case = case_of(looked_at(queries=QUERIES, corpus=CORPUS), "third", items=Whole(CORPUS))
    [gold] = case["gold"]
    told = {key: gold[key] for key in ("text", "section", "version", "doc_id", "in_corpus")}
    assert told == {
        "text": "The key hangs there",
        "section": "Keys",
        "version": "v2",
        "doc_id": "b",
        "in_corpus": True,
    }
    assert [hit["text"] for hit in case["top"]] == ["Is where it is", None, "The key hangs there"]


def test_gold_that_the_corpus_lacks_is_said_to_be_lacking():
    case = case_of(looked_at(corpus=CORPUS), "nowhere", items=Whole(CORPUS))
    assert [(one["in_corpus"], one["text"]) for one in case["gold"]] == [(False, None)]


def test_words_are_counted_whatever_their_case():
    case = case_of(looked_at(queries=QUERIES, corpus=CORPUS), "third", items=Whole(CORPUS))
    # The query's words are where, is, the, key.
    assert case["terms"] == {
        "query": 4,
        "query_words": ["where", "is", "the", "key"],
        "gold": 2,
        "gold_words": ["the", "key"],
        "gold_item": "b",
        "share": 0.5,
        "missing": ["where", "is"],
        "top": 2,
        "top_words": ["where", "is"],
    }


def test_words_that_cannot_be_told_are_not_counted_as_none():
    assert case_of(looked_at(), "nowhere")["terms"] is None
    terms = case_of(looked_at(queries=QUERIES), "third")["terms"]
    assert (terms["query"], terms["gold"], terms["missing"], terms["top"]) == (4, None, None, None)


def test_the_gold_that_shares_most_words_counts_and_missing_is_what_none_has():
    texts = {"p": "red", "q": "red and blue", "r": "green", "s": None}
    terms = shared_terms("Red, blue, green, YELLOW", texts, "yellow yellow")
    assert (terms["gold_item"], terms["gold_words"]) == ("q", ["red", "blue"])
    assert terms["missing"] == terms["top_words"] == ["yellow"]
    assert shared_terms("?!", {"p": "red"}, None)["share"] is None


def test_words_are_folded_as_unicode_does():
    assert terms_of("Straße STRASSE ΣΊΣΥΦΟΣ σίσυφος") == ("strasse", "σίσυφοσ")


def test_every_miss_is_listed_with_what_came_back():
    gold = Gold.from_dict({"first": {"a": 1}, "nowhere": {"e": 1, "d": 2, "x": 0}})
    log = [
        {"query_id": "first", "topk": ["x", "y", "a"]},
        {"query_id": "nowhere", "topk": ["x", "y", "z"]},
    ]
    assert looked_at(log, gold).misses() == [
        {"query": "first", "retrieved": ["x", "y"], "relevant": ["a"]},
        {"query": "nowhere", "retrieved": ["x", "y"], "relevant": ["d", "e"]},
    ]


def test_misses_are_named_by_their_texts_and_failed_calls_by_their_error():
    misses = looked_at(queries=QUERIES).misses()
    assert [one["query"] for one in misses] == [
        "Where is the KEY, the key?",
        "nowhere",
        "also nowhere",
        "when",
        "who",
    ]
    by_query = {one["query"]: one for one in misses}
    assert by_query["when"] == {
        "query": "when",
        "retrieved": [],
        "relevant": ["a"],
        "error": "timed out",
    }
    assert by_query["who"] == {
        "query": "who",
        "retrieved": [],
        "relevant": ["a"],
        "error": "the run has no answer for it",
    }


def test_misses_deeper_than_what_is_shown_are_listed_to_their_depth():
    gold = Gold.from_dict({"q": {"gold": 1}})
    items = [f"i{at}" for at in range(30)]
    log = [{"query_id": "q", "topk": items}]
    lines = Thresholds(miss=15)
    triage = looked_at(log, gold, lines=lines, keep=15)
    assert triage.misses()[0]["retrieved"] == items[:15]
    assert len(case_of(triage, "q")["top"]) == 10


def test_lists_that_were_not_kept_deep_enough_are_refused():
    log = [{"query_id": "q", "topk": [f"i{at}" for at in range(30)]}]
    triage = looked_at(log, Gold.from_dict({"q": {"gold": 1}}), keep=5)
    with pytest.raises(UsageError, match="score the run with keep=10 or more"):
        triage.inspect([0])


def test_segments_count_their_misses_by_class():
    found = looked_at(queries=QUERIES).by_segment(By.parse("language"))
    assert {name: (own["queries"], own["misses"]) for name, own in found.items()} == {
        "en": (4, 3),
        "es": (2, 2),
    }
    kinds = {one.query_id: one.kind for one in looked_at(queries=QUERIES).failures.queries}
    assert kinds["failed"] == "failed_call"
    assert found["en"]["classes"]["failed_call"] == 1
    assert found["en"]["classes"]["not_in_run"] == 1
    assert found["es"]["classes"] == Counter([kinds["third"], kinds["nowhere"]])


def test_documents_are_found_by_any_of_their_chunks():
    gold = Gold.from_dict({"q": {"faq": 1, "terms": 1}})
    corpus = Corpus.from_dict({"faq#1": "one", "faq#2": "two", "blog#1": "three"})
    log = [{"query_id": "q", "topk": ["blog#1", "faq#2", "faq#1"]}]
    triage = looked_at(log, gold, corpus=corpus, level="doc")
    case = case_of(triage, "q", items=Whole(corpus))
    assert [hit["gold"] for hit in case["top"]] == [False, True, True]
    known, lacking = case["gold"]
    assert (known["item_id"], known["doc_id"], known["text"]) == ("faq", "faq", "one\ntwo")
    assert known["ranks"]["final"] == 2
    assert (lacking["in_corpus"], lacking["ranks"]["final"]) == (False, None)


DOC = "The quick brown fox jumps over the lazy dog."
CHUNKS = Corpus.from_frame(
    pl.DataFrame(
        {
            "item_id": ["d#0", "d#1", "d#2", "e#0"],
            "doc_id": ["d", "d", "d", "e"],
            "text": [DOC[0:20], DOC[10:30], DOC[35:44], "other"],
            "start": [0, 10, 35, 0],
            "end": [20, 30, 44, 5],
        }
    )
)


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (4, 15, DOC[4:15]),
        (4, 28, DOC[4:28]),
        (12, 18, DOC[12:18]),
        (25, 40, DOC[25:30] + " … " + DOC[35:40]),
        (0, 44, DOC[0:30] + " … " + DOC[35:44]),
    ],
)
def test_a_span_is_put_together_from_its_chunks(start, end, text):
    frame = pl.DataFrame(
        {"query_id": ["q"], "item_id": ["d"], "grade": [1.0], "start": [start], "end": [end]}
    )
    prepared = prepare(
        Gold.from_frame(frame), conventions_of("karat", {"level": "span"}), corpus=CHUNKS
    )
    [gold] = gold_of(prepared, [0], Whole(CHUNKS))[0]
    assert (gold.item_id, gold.doc_id, gold.text) == (f"d:{start}-{end}", "d", text)
    assert gold.in_corpus is True


def test_a_span_of_a_whole_document_is_cut_out_of_it():
    frame = pl.DataFrame(
        {"query_id": ["q"], "item_id": ["d"], "grade": [1.0], "start": [4], "end": [9]}
    )
    whole = Corpus.from_dict({"d": DOC})
    prepared = prepare(Gold.from_frame(frame), conventions_of("karat", {"level": "span"}))
    [gold] = gold_of(prepared, [0], Whole(whole))[0]
    assert gold.text == "quick"


def test_spans_are_found_where_enough_of_them_is_covered():
    frame = pl.DataFrame(
        {"query_id": ["q"], "item_id": ["d"], "grade": [1.0], "start": [0], "end": [30]}
    )
    log = [{"query_id": "q", "topk": ["e#0", "d#2", "d#1", "d#0"]}]
    triage = looked_at(log, Gold.from_frame(frame), corpus=CHUNKS, level="span")
    case = case_of(triage, "q", items=Whole(CHUNKS))
    # d#2 lies outside, d#1 covers 20 of 30 characters, and half is enough.
    assert case["gold"][0]["ranks"]["final"] == 3
    assert [hit["gold"] for hit in case["top"]] == [False, False, True, True]
    assert triage.misses() == [
        {"query": "q", "retrieved": ["e#0", "d#2"], "relevant": ["d:0-30"]},
    ]


def test_bm25_stands_beside_the_run_and_a_stage_of_that_name():
    log = [
        {
            "query_id": "q",
            "query": "which",
            "topk": ["x", "y"],
            "raw": ["x", "y", "g"],
            "stages": {"bm25": ["z", "g"], "dense": ["x"]},
        }
    ]
    triage = looked_at(log, Gold.from_dict({"q": {"g": 1}}))
    own = Run.from_dict({"q": ["a", "b", "c", "g"]})
    bm25 = score(own, triage.staged.gold, [], keep=10)
    case = case_of(triage, "q", bm25=bm25)
    assert case["gold"][0]["ranks"] == {
        "final": None,
        "stages": {"raw": 3, "bm25": 2, "dense": None},
        "bm25": 4,
    }
    assert [hit["item_id"] for hit in case["bm25"]] == ["a", "b", "c", "g"]
    assert case_of(triage, "q")["bm25"] is None


def test_how_far_each_list_can_be_seen_is_told():
    log = [{"query_id": "first", "topk": ["a", "b"], "raw": ["a", "b", "c"], "k": 2, "k_raw": 50}]
    result = karat.triage(karat.Evaluation({"first": ["a"]}), run_of_records(log, name="s"))
    assert result.to_dict()["depth"] == {"final": 2, "stages": {"raw": 50}}


def test_everything_is_plain_data():
    triage = looked_at(queries=QUERIES, corpus=CORPUS)
    cases = triage.inspect(triage.worst(10), items=Whole(CORPUS))
    assert json.loads(json.dumps(cases)) == cases


def test_when_every_call_failed_each_query_says_so():
    log = [{"query_id": "first", "error": "down"}, {"query_id": "third", "error": "down"}]
    triage = looked_at(log, Gold.from_dict({"first": ["a"], "third": ["b"]}))
    cases = triage.inspect(triage.worst(5))
    assert [(case["error"], case["top"]) for case in cases] == [("down", []), ("down", [])]
    assert [one["error"] for one in triage.misses()] == ["down", "down"]


@pytest.mark.parametrize("seed", range(5))
def test_order_ranks_and_misses_are_those_of_a_plain_search(seed):
    draw = random.Random(seed)
    items = [f"i{at}" for at in range(30)]
    gold = {f"q{at}": draw.sample(items, draw.randrange(1, 4)) for at in range(40)}
    lists = {name: draw.sample(items, draw.randrange(1, 25)) for name in gold}
    triage = looked_at(
        [{"query_id": name, "topk": own} for name, own in lists.items()],
        Gold.from_dict(gold),
        measure="R@5",
        lines=Thresholds(miss=5),
    )

    def recall(name):
        return sum(item in lists[name][:5] for item in gold[name]) / len(gold[name])

    def first(name):
        return min(
            (lists[name].index(item) for item in gold[name] if item in lists[name]), default=99
        )

    expected = sorted(gold, key=lambda name: (recall(name), -first(name)))
    rows = triage.worst(100)
    assert names(triage, rows) == expected
    for case in triage.inspect(rows):
        own = lists[case["query_id"]]
        assert case["value"] == pytest.approx(recall(case["query_id"]))
        for one in case["gold"]:
            item = one["item_id"]
            assert one["ranks"]["final"] == (own.index(item) + 1 if item in own else None)
        assert [hit["item_id"] for hit in case["top"]] == own[:10]
    missed = [name for name in gold if first(name) >= 5]
    assert [one["query"] for one in triage.misses()] == missed
