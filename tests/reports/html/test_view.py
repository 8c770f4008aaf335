"""What a page knows of single queries, worked out by hand from the lists of conftest."""

from __future__ import annotations

import gzip
import json
import shlex
from dataclasses import replace

import pytest

from karat.reports.html import view as texts
from karat.reports.html.view import View, view_of


@pytest.fixture
def view(compared) -> View:
    return view_of(compared)


def detail(view: View, query_id: str) -> dict:
    (found,) = [
        one for block in view.blocks for one in block["queries"] if one["query_id"] == query_id
    ]
    return found


def at(view: View, query_id: str) -> int:
    return view.rows["query_id"].index(query_id)


def test_the_head_names_systems_measures_and_the_one_that_decides(view):
    assert view.head["systems"] == ["first", "second"]
    assert [one["name"] for one in view.head["measures"]] == ["R@2", "RR@10"]
    assert view.head["primary"] == "R@2"
    assert view.head["k"] == 3
    assert view.head["columns"] == ["language"]
    assert view.head["queries"] == 4


def test_rows_hold_each_querys_value_rank_and_status(view):
    a, b, e = (at(view, name) for name in "abe")
    assert [own[a] for own in view.rows["values"]["R@2"]] == [1.0, 0.0]
    # first has one of the two gold items of b in its top 2, second both
    assert [own[b] for own in view.rows["values"]["R@2"]] == [0.5, 1.0]
    assert [own[a] for own in view.rows["rank"]] == [1, None]
    assert [own[b] for own in view.rows["rank"]] == [2, 1]
    statuses = view.head["statuses"]
    assert [statuses[own[e]] for own in view.rows["status"]] == ["scored", "failed"]


def test_a_miss_has_its_class_and_a_hit_none(view):
    a, b = at(view, "a"), at(view, "b")
    assert view.rows["class"][0][a] == -1
    assert view.rows["class"][1][a] >= 0
    assert view.rows["class"][1][b] == -1


def test_unjudged_items_are_counted_to_k(view):
    # to rank 3, first: a has d1, d2 unjudged; b none (d9 is judged 0); c d20, d21; e all three
    assert [view.rows["unjudged"][0][at(view, name)] for name in "abce"] == [2, 0, 2, 3]
    assert view.head["unjudged"][0] == {"hits": 12, "unjudged": 7}
    # second: a has three, b none, c two, and e failed: nothing came back
    assert view.head["unjudged"][1] == {"hits": 9, "unjudged": 5}


def test_queries_whose_tops_differ_are_marked(view):
    assert [view.rows["different"][at(view, name)] for name in "abce"] == [1, 1, 0, 1]


def test_a_query_knows_its_segments(view):
    language = view.rows["segments"]["language"]
    assert [[language["names"][n] for n in language["of"][at(view, q)]] for q in "ac"] == [
        ["en"],
        ["pt"],
    ]


def test_gold_has_its_rank_in_every_list_on_the_way(view):
    (gold,) = detail(view, "a")["gold"]
    assert gold["item_id"] == "d37#1"
    assert gold["ranks"] == [{"final": 1}, {"raw": 37}]
    assert gold["in_corpus"] is True


def test_gold_that_the_corpus_lacks_says_so(view):
    (gold,) = detail(view, "e")["gold"]
    assert gold["in_corpus"] is False


def test_hits_come_in_order_with_score_and_grade(view):
    first, second = detail(view, "b")["systems"]
    assert first["hits"] == [("d9#1", 1.0, 0.0), ("d1#1", 0.5, 1.0), ("d2#1", 0.3333333, 1.0)]
    assert [hit[0] for hit in second["hits"]] == ["d1#1", "d2#1", "d9#1"]
    assert detail(view, "a")["systems"][0]["hits"][1][2] is None


def test_a_failed_call_says_why(view):
    failed = detail(view, "e")["systems"][1]
    assert (failed["status"], failed["error"]) == ("failed", "timed out after 3 s")
    assert failed["hits"] == []


def test_bm25_stands_beside_the_systems(view):
    # every item of the corpus has the words "my" and "order"; ties are in corpus order
    own = detail(view, "b")["bm25"]
    assert [hit[0] for hit in own] == [f"d{n}#1" for n in range(1, 11)]
    assert {hit[0]: hit[2] for hit in own}["d2#1"] == 1.0
    assert detail(view, "b")["gold"][0]["bm25"] == 1


def test_texts_are_those_of_the_corpus(view):
    assert view.blocks[0]["texts"]["d37#1"]["text"] == "Item d37#1 on my refund and order."
    assert "gone#1" not in view.blocks[0]["texts"]


def test_the_command_asks_for_the_query_under_the_same_conventions(view):
    words = shlex.split(view.head["commands"][1])
    assert words[:5] == ["karat", "triage", "second.jsonl", "--gold", "qrels.txt"]
    assert words[-2:] == ["--query", "{query}"]
    assert words[words.index("--set") + 1] == "k=3"


def test_the_command_works(view, run):
    words = shlex.split(view.head["commands"][1].replace("{query}", "a"))
    told = run(*words[1:], "--json")
    assert told.code == 0
    (case,) = json.loads(told.out)["queries"]
    assert case["gold"][0]["ranks"]["stages"]["raw"] == 37


def test_parts_are_gzipped_json_and_the_same_every_time(view, compared):
    parts = view.parts()
    assert set(parts) == {"head", "rows", "block-0"}
    assert json.loads(gzip.decompress(parts["rows"])) == json.loads(json.dumps(view.rows))
    assert parts == view_of(compared).parts()
    assert json.loads(gzip.decompress(parts["head"]))["systems"] == ["first", "second"]


def test_without_a_corpus_what_is_missing_is_said(compared):
    bare = view_of(replace(compared, index=None))
    assert "--corpus" in bare.head["bm25"]
    assert "--corpus" in bare.head["texts"]
    assert detail(bare, "a")["bm25"] is None
    assert bare.blocks[0]["texts"] == {}


def test_where_room_is_scarce_queries_that_miss_keep_their_texts(compared, monkeypatch):
    # d37 and what BM25 finds for a take 365 characters, which b and e need nothing beside;
    # only c has two more, and comes last: it is found, and both systems do the same
    monkeypatch.setattr(texts, "ROOM", 370)
    view = view_of(compared)
    assert set(view.blocks[0]["texts"]) == {"d37#1", *(f"d{n}#1" for n in range(1, 11))}
    assert "3 of 4 queries" in view.head["texts"]


def test_where_time_is_scarce_bm25_is_asked_for_what_matters_most(compared, monkeypatch):
    monkeypatch.setattr(texts, "MOST_BM25", 1)
    view = view_of(compared)
    assert detail(view, "a")["bm25"] is not None
    assert detail(view, "c")["bm25"] is None
    assert "searched for 1 query:" in view.head["bm25"]


def test_control_characters_of_texts_are_shown_as_marks(folder, compared):
    queries = compared.tables.queries
    odd = queries.frame.with_columns(text=queries.frame["text"] + "\x1b[31m\x00")
    tables = compared.tables._replace(queries=replace(queries, frame=odd))
    vars(compared)["tables"] = tables
    view = view_of(compared)
    assert view.rows["text"][0] == "why was my refund late�[31m�"
