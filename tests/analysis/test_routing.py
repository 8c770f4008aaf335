from __future__ import annotations

import pytest
from scipy.stats import binomtest
from staged_runs import cuts_of, staged_of

from karat.analysis.stages.routing import missing_for_routing, routing_of
from karat.data.tables import Corpus, Queries

CUTS = cuts_of(k=2)
GOLD = {"q1": ["a"], "q2": ["b"], "q3": ["c"], "q4": ["d"], "q5": ["e"], "q6": ["f"]}


def queries_of(sources):
    return Queries.from_dict({name: {"text": name, "source": sources.get(name)} for name in GOLD})


def routed(records, sources=None, *, corpus=None, gold=GOLD, **settings):
    queries = None if sources is None else queries_of(sources)
    staged = staged_of(records, gold, cuts=CUTS, queries=queries, corpus=corpus, **settings)
    return routing_of(staged, queries, CUTS.recall)


def exact(k, n):
    return tuple(binomtest(k, n).proportion_ci(method="exact"))


SOURCES = {"q1": "docs", "q2": "docs", "q3": "mail", "q4": "mail", "q6": "docs"}
RECORDS = [
    {"query_id": "q1", "source": "docs", "topk": ["a", "x"]},
    {"query_id": "q2", "source": "mail", "topk": ["x", "y"]},
    {"query_id": "q3", "source": "docs+mail", "topk": ["x", "c"]},
    {"query_id": "q4", "source": "wiki", "topk": ["x", "y"]},
    {"query_id": "q5", "source": "docs", "topk": ["e"]},
    {"query_id": "q6", "source": "mail", "topk": [], "error": "timeout"},
]


def test_a_router_by_hand():
    told = routed(RECORDS, SOURCES)
    # q1 and q3 got to the right source, q2 and q4 did not; q5 has none, q6 failed.
    assert told["coverage"]["mean"] == 0.5
    assert told["coverage"]["n"] == told["n"] == 4
    assert told["coverage"]["ci"] == pytest.approx(exact(2, 4))
    assert told["misroutes"] == [
        {"query_id": "q2", "right": ["docs"], "chosen": ["mail"]},
        {"query_id": "q4", "right": ["mail"], "chosen": ["wiki"]},
    ]
    assert told["confusion"] == {
        "docs": {"docs": 1, "mail": 1},
        "mail": {"docs+mail": 1, "wiki": 1},
    }
    assert told["over_asked"] == 1
    assert told["left_out"] == {
        "failed": 1,
        "not_called": 0,
        "without_choice": 0,
        "without_right": 1,
    }


def test_how_often_each_source_is_asked_counts_calls_that_went_well():
    told = routed(RECORDS, SOURCES)
    assert told["chosen"] == {
        "docs": {"n": 3, "share": 3 / 5},
        "mail": {"n": 2, "share": 2 / 5},
        "wiki": {"n": 1, "share": 1 / 5},
    }
    assert told["never_right"] == ["wiki"]


def test_recall_is_told_for_the_queries_of_each_source():
    told = routed(RECORDS, SOURCES)["by_source"]
    # docs: q1 found, q2 not, q6 failed; mail: q3 found, q4 not.
    assert told["docs"]["R@2"]["mean"] == pytest.approx(1 / 3)
    assert told["mail"]["R@2"]["mean"] == pytest.approx(1 / 2)
    assert told["docs"]["queries"] == 3
    assert told["docs"]["coverage"]["mean"] == 0.5
    assert told["docs"]["coverage"]["n"] == 2


@pytest.mark.parametrize(
    ("source", "chosen"),
    [
        ("docs+mail", ["docs", "mail"]),
        (["docs", "mail"], ["docs", "mail"]),
        (["docs", "docs"], ["docs"]),
        ("c++", ["c++"]),
        (7, ["7"]),
        (["a+b"], ["a+b"]),
    ],
)
def test_sources_are_one_name_a_list_or_joined(source, chosen):
    records = [{"query_id": "q1", "source": source, "topk": ["a"]}]
    (wrong,) = routed(records, {"q1": "nowhere"})["misroutes"]
    assert wrong["chosen"] == chosen


def test_one_log_may_have_names_and_lists():
    records = [
        {"query_id": "q1", "source": ["docs", "mail"], "topk": ["a"]},
        {"query_id": "q2", "source": "mail", "topk": ["b"]},
    ]
    told = routed(records, {"q1": "mail", "q2": "docs"})
    assert told["confusion"] == {"docs": {"mail": 1}, "mail": {"docs+mail": 1}}


def test_several_right_sources_are_reached_by_one():
    queries = Queries.from_dict({"q1": {"text": "", "source": ["docs", "mail"]}})
    records = [{"query_id": "q1", "source": "mail", "topk": ["a"]}]
    staged = staged_of(records, {"q1": ["a"]}, cuts=CUTS, queries=queries)
    told = routing_of(staged, queries, CUTS.recall)
    assert told["coverage"]["mean"] == 1.0
    assert told["coverage"]["ci"] is None
    assert told["over_asked"] == 0


def test_the_corpus_says_where_gold_is():
    corpus = Corpus.from_dict(
        {
            "a": {"text": "", "source": "docs"},
            "b": {"text": "", "source": "mail"},
            "x": {"text": "", "source": "mail"},
        }
    )
    told = routed(RECORDS[:3], corpus=corpus)
    assert told["right_from"] == {"corpus": 2}
    assert told["confusion"] == {"docs": {"docs": 1}, "mail": {"mail": 1}}
    # c is in no source that the corpus tells; q4, q5 and q6 were never called.
    assert told["left_out"]["without_right"] == 1
    assert told["left_out"]["not_called"] == 3
    # Hits a, x, x, y, x, c: of y and c nobody knows.
    assert told["hits"] == {
        "k": 2,
        "n": 6,
        "unknown": 2,
        "shares": {"docs": 1 / 6, "mail": 3 / 6},
    }


def test_what_the_queries_say_comes_before_the_corpus():
    corpus = Corpus.from_dict(
        {"a": {"text": "", "source": "docs"}, "b": {"text": "", "source": "docs"}}
    )
    told = routed(RECORDS[:2], {"q1": "mail"}, corpus=corpus)
    assert told["right_from"] == {"queries": 1, "corpus": 1}
    assert [one["right"] for one in told["misroutes"]] == [["mail"], ["docs"]]


def test_documents_have_the_sources_of_their_chunks():
    corpus = Corpus.from_dict(
        {
            "a#1": {"text": "", "source": "docs"},
            "a#2": {"text": "", "source": "mail"},
            "b#1": {"text": "", "source": "mail"},
        }
    )
    records = [
        {"query_id": "q1", "source": "mail", "topk": ["a#1"]},
        {"query_id": "q2", "source": "docs", "topk": ["b#1"]},
    ]
    told = routed(records, corpus=corpus, level="doc")
    assert told["confusion"] == {"docs+mail": {"mail": 1}, "mail": {"docs": 1}}
    assert told["by_source"]["docs"]["R@2"]["mean"] == 1.0


def test_hits_bring_their_own_source():
    hits = [{"chunk_id": "a", "source": "docs"}, {"chunk_id": "x"}, {"chunk_id": "y"}]
    told = routed([{"query_id": "q1", "topk": hits}])
    assert told["hits"] == {"k": 2, "n": 2, "unknown": 1, "shares": {"docs": 0.5}}
    assert told["coverage"] is None
    assert told["chosen"] == {}


def test_conversations_are_drawn_together():
    """Ten queries in two conversations say less than ten by themselves."""
    names = {f"q{i}": ["a"] for i in range(10)}
    records = [
        {"query_id": name, "source": "docs" if i < 7 else "mail", "topk": ["a"]}
        for i, name in enumerate(names)
    ]
    ends = []
    for group in (lambda i: i // 5, lambda i: None):
        queries = Queries.from_dict(
            {
                name: {"text": "", "source": "docs", "group": group(i)}
                for i, name in enumerate(names)
            }
        )
        staged = staged_of(records, names, cuts=CUTS, queries=queries)
        ends.append(routing_of(staged, queries, CUTS.recall)["coverage"]["ci"])
    assert ends[1] == pytest.approx(exact(7, 10))
    assert ends[0] != ends[1]


def test_recall_is_not_told_below_the_end_of_the_lists():
    queries = queries_of(SOURCES)
    cuts = cuts_of(k=9)
    records = [{**one, "k": 2} for one in RECORDS]
    found = routing_of(staged_of(records, GOLD, cuts=cuts, queries=queries), queries, cuts.recall)
    told = found["by_source"]["docs"]
    assert told["R@2"]["mean"] == pytest.approx(1 / 3)
    assert "R@9" not in told


def test_what_is_missing_is_named():
    plain = [{"query_id": "q1", "topk": ["a"]}]
    assert routed(plain) is None
    assert "log each call's source" in missing_for_routing(routed(plain))
    assert "column source" in missing_for_routing(routed(RECORDS))
    assert missing_for_routing(routed(RECORDS, SOURCES)) is None


def test_calls_that_do_not_tell_are_left_out():
    records = [*RECORDS[:1], {"query_id": "q2", "topk": ["b"]}]
    told = routed(records, SOURCES)
    assert told["n"] == 1
    assert told["left_out"] == {
        "failed": 0,
        "not_called": 4,
        "without_choice": 1,
        "without_right": 0,
    }
