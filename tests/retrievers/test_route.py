"""Routes: by column, rules or callable, to one retriever or several."""

from __future__ import annotations

import pytest
from given_lists import Failing, Given, hits, ids

from karat.errors import CallError, InputError
from karat.formats.settings import Place, parse_yaml, validate
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Hit, Query
from karat.retrieve.route import Options, make, parts

DOCS = hits("d1", 3.0, "d2", 2.0)
TICKETS = hits("t1", 0.9, "d2", 0.4)


@pytest.fixture
def sources():
    return {"docs": Given(DOCS), "tickets": Given(TICKETS)}


def options(**given):
    of = {"docs": "bm25", "tickets": {"retriever": "bm25"}}
    return validate(Options, {"of": of, **given}, Place("karat.yaml"))


def route(sources, folder=None, **given):
    context = BuildContext() if folder is None else BuildContext(folder=folder)
    return make(options(**given), context, sources)


def ask(finder, text="where is it", **attributes):
    return finder.find([Query("q1", text, attributes)], 10)[0]


def test_a_column_names_the_retriever(sources):
    answer = ask(route(sources, column="area"), area="tickets")
    assert answer.source == "tickets"
    assert ids(answer.hits) == ["t1", "d2"]
    assert [hit.score for hit in answer.hits] == [0.9, 0.4]
    assert sources["docs"].asked == []


def test_hits_without_a_source_get_the_chosen_one(sources):
    sources["docs"].found = [Hit("d1", 3.0), Hit("d2", 2.0, source="wiki")]
    answer = ask(route(sources, column="area"), area="docs")
    assert [hit.source for hit in answer.hits] == ["docs", "wiki"]


def test_the_log_has_the_chosen_list_and_the_times_of_choosing_and_asking(sources):
    answer = ask(route(sources, column="area"), area="docs")
    assert ids(answer.lists["docs"]) == ["d1", "d2"]
    assert list(answer.lists) == ["docs"]
    assert set(answer.latency) == {"route", "docs"}


def test_several_names_are_fused_by_reciprocal_rank(sources):
    answer = ask(route(sources, column="area"), area=["tickets", "docs", "tickets"])
    assert answer.source == "tickets+docs"
    assert ids(answer.hits) == ["d2", "t1", "d1"]
    assert answer.hits[0].score == pytest.approx(1 / 62 + 1 / 62)
    assert [hit.source for hit in answer.hits] == ["tickets", "tickets", "docs"]
    assert set(answer.lists) == {"tickets", "docs"}


def test_the_first_rule_that_matches_wins(sources):
    rules = [{"match": r"(?i)\bticket", "to": "tickets"}, {"match": "it", "to": "docs"}]
    finder = route(sources, rules=rules)
    assert ask(finder, "Ticket about it").source == "tickets"
    assert ask(finder, "is it here").source == "docs"
    with pytest.raises(CallError, match=r"chose .*; one or more of docs, t.* a default"):
        ask(finder, "hello")


def test_what_no_rule_matches_goes_to_the_default(sources):
    finder = route(sources, rules=[{"match": "x", "to": "tickets"}], default="docs")
    assert ask(finder, "hello").source == "docs"


def test_a_query_without_the_column_goes_to_the_default_or_fails(sources):
    assert ask(route(sources, column="area", default="docs")).source == "docs"
    with pytest.raises(CallError, match="a default"):
        ask(route(sources, column="area"))


def test_an_unknown_name_fails_even_with_a_default(sources):
    with pytest.raises(CallError, match=r"chose .*wiki.*; one or more of docs, tickets are"):
        ask(route(sources, column="area", default="docs"), area="wiki")


def test_queries_that_go_the_same_way_are_asked_together(sources):
    finder = route(sources, column="area")
    areas = ["docs", "tickets", "docs", "docs", "tickets"]
    asked = [Query(f"q{at}", "x", {"area": area}) for at, area in enumerate(areas)]
    answers = finder.find(asked, 10)
    assert [answer.source for answer in answers] == areas
    assert sources["docs"].asked == [(["q0", "q2", "q3"], 10)]
    assert sources["tickets"].asked == [(["q1", "q4"], 10)]


ROUTER = """
from karat.retrieve.protocol import Query

def by_text(text):
    return {"a": "docs", "b": ["docs", "tickets"], "c": None, "d": [], "e": 5, "f": [5]}[text]

def by_query(query: Query):
    return query.attributes["area"]

def broken(text):
    raise ValueError("no idea\\nwhere")

def offline(text):
    raise TimeoutError
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "router.py").write_text(ROUTER)
    return tmp_path


def test_a_callable_gets_the_text_and_names_one_or_several(sources, folder):
    finder = route(sources, folder, by="router.py:by_text", default="tickets")
    chosen = [ask(finder, text).source for text in "abcd"]
    assert chosen == ["docs", "docs+tickets", "tickets", "tickets"]


@pytest.mark.parametrize("text", ["e", "f"])
def test_a_callable_that_names_nothing_sensible_fails_the_call(sources, folder, text):
    finder = route(sources, folder, by="router.py:by_text", default="docs")
    with pytest.raises(CallError, match=r"route chose .*; one or more of docs, tickets are"):
        ask(finder, text)


def test_a_callable_whose_argument_is_a_query_gets_it_whole(sources, folder):
    assert ask(route(sources, folder, by="router.py:by_query"), area="docs").source == "docs"


def test_a_callable_that_raises_fails_the_call_in_one_line(sources, folder):
    with pytest.raises(CallError, match=r"broken raised ValueError: no idea where") as caught:
        ask(route(sources, folder, by="router.py:broken"))
    assert not caught.value.may_pass
    with pytest.raises(CallError) as caught:
        ask(route(sources, folder, by="router.py:offline"))
    assert caught.value.may_pass


def test_a_part_that_fails_is_named(sources):
    sources["docs"] = Failing(CallError("is down", may_pass=True, wait=3))
    with pytest.raises(CallError, match="part 'docs': is down") as caught:
        ask(route(sources, column="area"), area="docs")
    assert (caught.value.may_pass, caught.value.wait) == (True, 3)


def test_its_parts_and_their_sizes_are_told(sources):
    assert list(parts(options(column="area"))) == ["docs", "tickets"]
    sources["docs"].meta = {"index_bytes": 4}
    sources["tickets"].meta = {"index_bytes": 6}
    meta = route(sources, column="area").meta
    assert meta == {
        "parts": {"docs": {"index_bytes": 4}, "tickets": {"index_bytes": 6}},
        "index_bytes": 10,
    }


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({}, "needs one of by, column and rules; this one has none of them"),
        ({"by": "a:b", "column": "area"}, "this one has by and column"),
        ({"column": "area", "default": "doc"}, "unknown retriever of the route 'doc'.*mean docs"),
        ({"rules": [{"match": "x", "to": "tiket"}]}, "'tiket'; did you mean tickets"),
        ({"rules": [{"match": "(", "to": "docs"}]}, r"match is '\(', not a regular expression"),
        ({"rules": [{"mach": "x", "to": "docs"}]}, "unknown key 'mach'; did you mean match"),
        ({"rules": []}, "rules is empty"),
        ({"rules": "x"}, "rules is 'x'; it must be a list of rules"),
        ({"of": {}, "column": "area"}, "of is empty"),
        ({"of": ["bm25"], "column": "area"}, "it must be a mapping of names to retrievers"),
        ({"of": {"final": "bm25"}, "column": "area"}, "a part cannot be called 'final'"),
    ],
)
def test_what_cannot_be_meant_is_refused(given_options, message):
    with pytest.raises(InputError, match=message):
        options(**given_options)


def test_a_wrong_rule_is_told_with_its_line():
    text = "of: {docs: bm25}\nrules:\n  - {match: a, to: docs}\n  - to: docs\n    match: '['\n"
    file = parse_yaml(text, "karat.yaml")
    with pytest.raises(InputError, match=r"^karat\.yaml:5: match is"):
        validate(Options, file.data, file.place)
