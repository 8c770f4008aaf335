"""How the http retriever reads answers: the order returned, ids, scores, expressions."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from servers import Raw, always, asked, built, hits, karat, logged, one_reply, reply, write_queries

from karat import read_run
from karat.errors import CallError
from karat.retrieve.protocol import Hit


def test_the_order_returned_is_the_rank_whatever_the_scores(tmp_path):
    scores = [1, 578730123365187705, 578730123365187704, None, -5.5]
    found = [{"id": f"d{i}", "score": score} for i, score in enumerate(scores)]
    with Raw(always(reply({"hits": found}))) as server:
        (tmp_path / "karat.yaml").write_text(
            f"queries: queries.jsonl\nsystems: {{live: {{retriever: http, url: '{server.url}'}}}}"
        )
        write_queries(tmp_path, 1)
        done = karat("search", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "runs" / "live.jsonl")
    assert run.order == "rank"
    assert run.hits.sort("rank")["item_id"].to_list() == ["d0", "d1", "d2", "d3", "d4"]
    entries = logged(tmp_path / "runs" / "live.jsonl")[0]["topk"]
    assert [entry.get("score") for entry in entries] == [1.0, *map(float, scores[1:3]), None, -5.5]


def test_ids_are_text_and_duplicates_stay():
    answer = one_reply({"hits": [{"id": 7}, {"id": "7"}, {"id": "ü#1"}, {"id": 10**20}]})
    assert [hit.item_id for hit in answer.hits] == ["7", "7", "ü#1", "100000000000000000000"]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"id": 1.5}, "hit 2: the service returned the id 1.5; ids must be text or whole"),
        ({"id": True}, "the id True"),
        ({"id": ""}, "the id ''"),
        ({"id": {"a": 1}}, "the id {'a': 1}"),
        ({"id": None}, "hit 2: item_id: id finds nothing in {id: null}"),
        ({"key": "a"}, "hit 2: item_id: id finds nothing in {key: text}"),
        (None, "hit 2 is null"),
        ({"id": "b", "score": "high"}, "score 'high' for item 'b'; a finite number is expected"),
        ({"id": "b", "score": "x" * 99}, f"score '{'x' * 12}..."),
        ({"id": "b", "score": True}, "score True"),
        ({"id": "b", "score": float("nan")}, "score nan"),
        ({"id": "b", "score": float("inf")}, "score inf"),
        ({"id": "b", "score": 10**400}, "score 1000000000"),
    ],
)
def test_a_hit_that_cannot_be_one_fails_the_call_and_is_named(found, told):
    with pytest.raises(CallError) as error:
        one_reply({"hits": [{"id": "a"}, found]})
    assert told in str(error.value)
    assert not error.value.may_pass


def test_usual_ids_are_found_by_the_first_hit():
    assert one_reply({"hits": [{"doc_id": "d", "id": "i", "chunk_id": "c"}]}).hits == [
        Hit("c", None, "d")
    ]
    assert one_reply({"hits": [{"doc_id": "d", "_id": "u"}]}).hits == [Hit("u", None, "d")]
    assert one_reply({"hits": [{"doc_id": "d"}]}).hits == [Hit("d")]
    with pytest.raises(CallError, match="hit 2: item_id: chunk_id finds nothing"):
        one_reply({"hits": [{"chunk_id": "c"}, {"doc_id": "d"}]})
    with pytest.raises(CallError, match=r"has none of item_id, chunk_id, .*, doc_id; say item_id"):
        one_reply({"hits": [{"key": "c"}]})


def test_hits_may_be_ids_themselves():
    with pytest.raises(CallError, match=r"hit 1 is text, .* item_id: '@'"):
        one_reply({"hits": ["a", "b"]})
    answer = one_reply({"ids": ["a", 2]}, "hits: ids\nitem_id: '@'")
    assert answer.hits == [Hit("a"), Hit("2")]


def test_hits_past_k_are_cut_and_fewer_are_fine():
    many = hits(*range(20))
    assert [hit.item_id for hit in one_reply(many, k=3).hits] == ["0", "1", "2"]
    assert len(one_reply(many, k=100).hits) == 20
    assert one_reply({"hits": []}).hits == []


def test_expressions_look_up_everything_a_hit_has():
    found = {
        "out": {
            "docs": [
                [
                    {
                        "meta": {"key": 5, "doc": "d", "v": 2.5, "where": "wiki"},
                        "points": "3.25",
                        "body": "Pie",
                    }
                ],
                [{"meta": {"key": 6}}],
            ]
        },
        "usage": {"total": 12, "none": None},
        "took": 3,
    }
    yaml = """\
hits: out.docs[]
item_id: meta.key
score: to_number(points)
text: body
doc_id: meta.doc
version: meta.v
source: meta."where"
latency: {service: took}
cost: {tokens: usage.total, free: usage.none}"""
    answer = one_reply(found, yaml)
    assert answer.hits == [
        Hit("5", 3.25, "d", "2.5", "wiki", None, "Pie"),
        Hit("6"),
    ]
    assert answer.latency["service"] == 3
    assert answer.cost == {"tokens": 12}


@pytest.mark.parametrize("expression", ["@", "[]", "[*]"])
def test_an_answer_may_be_the_list_itself(expression):
    answer = one_reply([{"id": "a"}, {"id": "b"}], f"hits: '{expression}'")
    assert answer.hits == [Hit("a"), Hit("b")]


def test_filters_and_pipes_of_jmespath_work():
    found = {"hits": [{"id": "a", "ok": False}, {"id": "b", "ok": True}]}
    assert one_reply(found, 'hits: "hits[?ok] | [0:5]"').hits == [Hit("b")]


def test_details_that_were_not_asked_for_are_taken_only_if_they_are_text():
    found = {"hits": [{"id": "a", "source": {"title": "x"}, "version": 3, "text": ["x"]}]}
    assert one_reply(found).hits == [Hit("a", None, None, "3")]
    with pytest.raises(CallError, match=r"hit 1: source: source is {title: text}; text"):
        one_reply(found, "source: source")


def test_what_an_expression_does_not_find_is_left_out():
    assert one_reply(hits("a", "b"), "score: points").hits == [Hit("a"), Hit("b")]
    some = {"hits": [{"id": "a", "points": None}, {"id": "b", "points": 2}]}
    assert one_reply(some, "score: points").hits == [Hit("a"), Hit("b", 2.0)]
    assert "tokens" not in one_reply(hits("a"), "cost: {tokens: usage.total}").cost
    with pytest.raises(CallError, match=r"cost: tokens: usage\.total finds no number"):
        one_reply({**hits("a"), "usage": {"total": "many"}}, "cost: {tokens: usage.total}")


@pytest.mark.parametrize("pack", ["gzip", "deflate"])
def test_packed_answers_are_unpacked(pack):
    body = json.dumps(hits(*range(50))).encode()
    packed = gzip.compress(body) if pack == "gzip" else zlib.compress(body)
    with Raw(always(reply(packed, Content_Encoding=pack))) as server:
        answer = asked(built(f"retriever: http\nurl: {server.url}"), k=100)
        assert "gzip" in server.requests[0].headers["accept-encoding"]
    assert len(answer.hits) == 50


def test_times_that_the_answer_tells_can_be_measured(tmp_path):
    with Raw(always(reply(hits("a", took=12.5)))) as server:
        (tmp_path / "karat.yaml").write_text(
            "queries: queries.jsonl\nsystems:\n"
            f"  live: {{retriever: http, url: '{server.url}', latency: {{service: took}}}}"
        )
        write_queries(tmp_path, 4)
        assert karat("search", folder=tmp_path).returncode == 0
    (tmp_path / "qrels.txt").write_text("q000 0 a 1\n")
    arguments = ["runs/live.jsonl", "--gold", "qrels.txt", "-m", "latency.service.p50", "--json"]
    done = karat("eval", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["systems"][0]["measures"]
    assert measured["latency.service.p50"]["mean"] == 12.5
