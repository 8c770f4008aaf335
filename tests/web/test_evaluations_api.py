"""Stored evaluations over HTTP: listed, filtered, tagged, followed, and down to a query."""

from __future__ import annotations

import pytest

from .conftest import LANGUAGES, RANKS, SCRIPT, items, rr


def got(client, path, status=200):
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def ids(page):
    return [one["id"] for one in page["evaluations"]]


def test_the_newest_evaluation_comes_first_with_its_means(client):
    page = got(client, "/api/evaluations")
    assert (ids(page), page["total"], page["page"], page["pages"]) == ([6, 5, 4, 3, 2, 1], 6, 1, 1)
    first = page["evaluations"][-1]
    mean = sum(rr("old", query) for query in RANKS["old"]) / 6
    assert first["system"] == "old"
    assert first["measures"]["RR"]["mean"] == pytest.approx(mean)
    assert first["tags"] == ["main"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("system=new", [6, 2]),
        ("tag=main", [2, 1]),
        ("tag=main&system=old", [1]),
        ("search=values", [6, 5]),
        ("search=LATE", [3]),
        ("system=&tag=&verdict=&search=", [6, 5, 4, 3, 2, 1]),
        ("system=nobody", []),
        ("search=%25", []),
    ],
)
def test_filters_leave_what_is_all_of_that(client, asked, found):
    page = got(client, f"/api/evaluations?{asked}")
    assert ids(page) == found
    assert page["total"] == len(found)


def test_pages_hold_each_evaluation_once(client):
    pages = [got(client, f"/api/evaluations?size=4&page={page}") for page in (1, 2, 3)]
    assert [ids(page) for page in pages] == [[6, 5, 4, 3], [2, 1], []]
    assert {page["pages"] for page in pages} == {2}


@pytest.mark.parametrize(
    ("asked", "named"),
    [("page=0", "page"), ("size=1000", "size"), ("page=two", "page"), ("sort=id", "sort")],
)
def test_what_cannot_be_meant_is_refused_by_its_name(client, asked, named):
    assert named in got(client, f"/api/evaluations?{asked}", 400)["error"]


def test_names_are_all_that_can_be_chosen(client):
    names = got(client, "/api/names")
    assert names["systems"] == ["late", "new", "old"]
    assert names["tags"] == ["main"]
    assert names["measures"] == ["R@1", "RR"]


def test_a_trend_tells_where_the_gold_changed(client):
    trend = got(client, "/api/trend?measure=RR&system=old")
    points = trend["points"]
    assert (trend["measure"], [one["id"] for one in points]) == ("RR", [1, 4, 5])
    assert [bool(one["breaks"]) for one in points] == [False, True, True]
    assert got(client, "/api/trend?measure=nDCG@7", 400)["error"].startswith("unknown measure")


def test_one_evaluation_and_none(client):
    assert got(client, "/api/evaluations/3")["system"] == "late"
    assert "99" in got(client, "/api/evaluations/99", 404)["error"]
    assert got(client, "/api/evaluations/99999999999999999999", 400)["error"]


def test_a_tag_is_there_at_once_though_the_list_is_kept(own, post):
    assert ids(got(own, "/api/evaluations?tag=best")) == []
    answer = post(own, "/api/evaluations/3/tags", {"tags": ["best"]})
    assert (answer.status_code, answer.json()["tags"]) == (200, ["best"])
    assert ids(got(own, "/api/evaluations?tag=best")) == [3]
    assert 'href="/?tag=best"' in own.get("/").text


@pytest.mark.parametrize(
    ("id", "body", "status"),
    [
        (3, {"tags": ["12"]}, 400),
        (3, {"tags": ["two words"]}, 400),
        (3, {"tags": []}, 400),
        (3, {"tags": ["x"], "more": 1}, 400),
        (3, {"tags": "x"}, 400),
        (99, {"tags": ["x"]}, 404),
    ],
)
def test_a_tag_that_cannot_be_is_refused_in_a_sentence(own, post, id, body, status):
    answer = post(own, f"/api/evaluations/{id}/tags", body)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_a_report_is_the_document_that_was_saved(client):
    document = got(client, "/api/reports/1")
    assert [system["name"] for system in document["systems"]] == ["old", "new"]
    assert document["comparisons"]
    got(client, "/api/reports/77", 404)


def test_rows_hold_every_query_of_both_systems(client):
    rows = got(client, "/api/reports/1/rows")
    assert rows["query_id"] == list(RANKS["old"])
    for at, system in enumerate(("old", "new")):
        assert rows["values"]["RR"][at] == pytest.approx([rr(system, q) for q in RANKS[system]])
        assert rows["rank"][at] == [RANKS[system][q] or None for q in RANKS[system]]
    assert rows["text"][0] == SCRIPT


def test_a_query_is_told_with_its_lists_and_only_its_own_texts(client):
    for index, query in enumerate(RANKS["old"]):
        detail = got(client, f"/api/reports/1/queries/{index}")
        assert detail["query_id"] == query
        assert [gold["item_id"] for gold in detail["gold"]] == [f"d-{query}"]
        for system, told in zip(("old", "new"), detail["systems"], strict=True):
            assert [hit[0] for hit in told["hits"]] == items(system, query)
        assert detail["attributes"]["language"] == LANGUAGES[query]
        by_words = {hit[0] for hit in detail["bm25"] or ()}
        assert set(detail["texts"]) == {f"d-{query}"} | by_words


@pytest.mark.parametrize("index", ["6", "100", "2147483647"])
def test_a_query_that_is_not_there_is_said_not_to_be(client, index):
    assert "6 queries" in got(client, f"/api/reports/1/queries/{index}", 404)["error"]


def test_what_was_saved_by_its_values_alone_says_so(client):
    report = got(client, "/api/evaluations/5")["report_id"]
    for path in ("rows", "queries/0"):
        assert "without" in got(client, f"/api/reports/{report}/{path}", 404)["error"]


def test_json_holds_nothing_that_begins_a_tag(client):
    paths = ["/api/reports/1/rows", "/api/reports/1/queries/0", "/api/evaluations"]
    for answer in map(client.get, paths):
        assert "<" not in answer.text
        assert "&" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script>" in client.get(paths[0]).json()["text"][0]


def test_the_api_describes_itself_and_its_errors(client):
    described = got(client, "/api/openapi.json")
    paths = described["paths"]
    assert {"/api/evaluations", "/api/comparisons", "/api/reports/{report_id}/rows"} <= set(paths)
    assert not [path for path in paths if not path.startswith("/api/")]
    for path in paths.values():
        for operation in path.values():
            assert "422" not in operation["responses"]
            assert "default" in operation["responses"]
            assert operation["summary"]


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_there_is_no_page_that_needs_scripts_from_elsewhere(client, path):
    assert client.get(path).status_code == 404
