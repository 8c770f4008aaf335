"""The pages: what they show, what they make of odd texts, and what of a store in trouble."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from karat.data.tables import Gold, Run
from karat.evaluation.api import evaluate
from karat.reports.document import Report
from karat.store import Store

from .conftest import RANKS, SCRIPT, client_of, rr


class _Reader(HTMLParser):
    """The texts of a page as a browser has them, tags apart."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        if self._open[-1:] not in (["script"], ["style"]):
            self.texts.append(data)


def read(client, path, status=200):
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = _Reader()
    page.feed(answer.text)
    return page


def text_of(page):
    return " ".join(" ".join(page.texts).split())


def boxes(page):
    return [int(a["value"]) for tag, a in page.tags if tag == "input" and a.get("name") == "ids"]


# The first page


def test_the_list_shows_each_evaluation_with_its_figures(client):
    page = read(client, "/")
    assert boxes(page) == [6, 5, 4, 3, 2, 1]
    text = text_of(page)
    assert "6 evaluations" in text
    mean = sum(rr("late", query) for query in RANKS["late"]) / 6
    assert f"{mean:.4f}" in text
    links = [a.get("href") for tag, a in page.tags if tag == "a"]
    assert {"/evaluations/3", "/?tag=main"} <= set(links)


def test_a_filter_narrows_the_list_and_stays_chosen(client):
    page = read(client, "/?system=new&tag=&verdict=&search=&measure=RR")
    assert boxes(page) == [6, 2]
    chosen = [a["value"] for tag, a in page.tags if tag == "option" and "selected" in a]
    assert chosen == ["new", "RR"]


def test_a_filter_that_leaves_nothing_says_so(client):
    assert "No evaluations match these filters" in text_of(read(client, "/?search=nowhere"))


def test_the_list_is_turned_page_by_page(client):
    first, last = read(client, "/?size=4"), read(client, "/?size=4&page=2")
    assert (boxes(first), boxes(last)) == ([6, 5, 4, 3], [2, 1])
    turns = [a["href"] for tag, a in first.tags if a.get("rel") == "next"]
    assert turns == ["/?size=4&page=2"]
    assert "There is no page 9" in text_of(read(client, "/?size=4&page=9"))


def test_filters_are_kept_when_a_page_is_turned(client):
    page = read(client, "/?size=1&system=old&search=old")
    (turn,) = [a["href"] for tag, a in page.tags if a.get("rel") == "next"]
    assert boxes(read(client, turn)) == [4]


def test_a_trend_is_broken_where_the_gold_changed(client):
    page = read(client, "/?system=old&measure=RR")
    breaks = [a for tag, a in page.tags if tag == "line" and a.get("class") == "break"]
    assert len(breaks) == 2
    assert "other gold" in text_of(page)
    dots = [a for tag, a in page.tags if tag == "circle"]
    assert len(dots) == 3
    # A line is drawn between points that can be compared, and here no two of them can.
    assert not [a for tag, a in page.tags if a.get("class") == "line"]


def test_a_measure_that_was_never_scored_is_refused(client):
    assert "nDCG@3" in text_of(read(client, "/?measure=nDCG@3", 400))


def test_texts_from_files_are_only_text(client):
    answer = client.get("/")
    assert "by its values alone <b>not bold</b>" in text_of(read(client, "/"))
    assert "<b>not" not in answer.text


def test_the_page_is_made_anew_when_something_is_saved(own, saved):
    assert boxes(read(own, "/")) == [6, 5, 4, 3, 2, 1]
    with Store.open(own.app.state.settings.store) as store:
        old = store.baseline("1")
        store.save([old.scores], old.report, tags=["added"])
    assert boxes(read(own, "/")) == [7, 6, 5, 4, 3, 2, 1]


# A store in trouble


def test_where_nothing_was_saved_a_page_says_how_to_begin(tmp_path):
    with client_of(store=str(tmp_path / "none" / "history.db")) as client:
        assert "karat run --save" in text_of(read(client, "/"))
        assert "no history here" in client.get("/api/evaluations").json()["error"]
        assert client.get("/api/evaluations").status_code == 503
        assert not (tmp_path / "none").exists()


def test_what_is_saved_first_is_shown_at_once(tmp_path):
    store = str(tmp_path / "history.db")
    with client_of(store=store) as client:
        read(client, "/")
        _save(store, 1)
        assert boxes(read(client, "/")) == [1]


def test_a_store_of_a_newer_karat_is_said_to_be_one(own):
    _change(own, "UPDATE karat_store SET version = 99")
    for path in ("/", "/evaluations/1", "/compare?ids=1,2", "/label"):
        assert "newer karat" in text_of(read(own, path, 503))
    assert own.get("/api/evaluations").status_code == 503


def test_a_damaged_store_is_said_to_be_one(tmp_path):
    store = tmp_path / "history.db"
    store.write_bytes(b"this is no database at all, however long it is" * 100)
    with client_of(store=str(store)) as client:
        assert "no SQLite database" in text_of(read(client, "/", 503))


def test_damaged_queries_of_a_report_are_said_to_be_so(own):
    _change(own, "UPDATE karat_parts SET data = x'00ff00' WHERE name LIKE 'block%'")
    read(own, "/evaluations/1")
    answer = own.get("/api/reports/1/queries/0")
    assert (answer.status_code, "damaged" in answer.json()["error"]) == (503, True)
    _change(own, "UPDATE karat_parts SET name = 'gone' WHERE name = 'block-0'")
    answer = own.get("/api/reports/1/queries/0")
    assert (answer.status_code, "evaluate it again" in answer.json()["error"]) == (404, True)
    answer = own.get("/api/comparisons/rows?ids=1,3")
    assert answer.status_code >= 400
    assert "damaged" in answer.json()["error"]


def test_a_store_that_another_process_holds_is_said_to_be_in_use(own):
    store = own.app.state.settings.store
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE karat_store SET version = version")
        begun = datetime.now(UTC)
        told = text_of(read(own, "/", 503))
        assert "in use by another process" in told
        assert datetime.now(UTC) - begun < timedelta(seconds=20)
        other.execute("ROLLBACK")
    assert boxes(read(own, "/")) == [6, 5, 4, 3, 2, 1]


def test_a_folder_in_place_of_a_store_is_said_to_be_one(tmp_path):
    with client_of(store=str(tmp_path)) as client:
        assert "is a folder" in text_of(read(client, "/", 503))


# An evaluation


def test_an_evaluation_is_the_page_of_its_report(client):
    page = read(client, "/evaluations/2")
    text = text_of(page)
    assert "Evaluation 2" in text
    assert "new against old" in text
    (body,) = [a for tag, a in page.tags if tag == "body"]
    assert body["data-rows"] == "/api/reports/1/rows"
    assert body["data-query"] == "/api/reports/1/queries/{index}"
    assert client.get(body["data-query"].replace("{index}", "5")).status_code == 200
    ids = {a.get("id") for _, a in page.tags}
    assert {
        "verdict",
        "systems",
        "counts",
        "segments",
        "queries",
        "query-table",
        "karat-head",
    } <= ids


def test_the_queries_are_asked_for_and_not_part_of_the_page(client):
    answer = client.get("/evaluations/2")
    assert "karat-rows" not in answer.text
    assert "karat-block" not in answer.text
    assert SCRIPT not in answer.text


def test_one_saved_without_its_queries_says_so_where_they_would_be(client):
    page = read(client, "/evaluations/5")
    assert "saved without details" in text_of(page)
    assert "query-table" not in {a.get("id") for _, a in page.tags}


@pytest.mark.parametrize("path", ["/evaluations/99", "/compare?ids=1,99", "/nothing", "/assets/no"])
def test_what_is_not_there_has_a_page_that_leads_back(client, path):
    page = read(client, path, 404)
    assert ("a", {"href": "/"}) in page.tags


# A comparison


def test_a_comparison_shows_both_and_offers_the_other_baseline(client):
    page = read(client, "/compare?ids=2,3")
    text = text_of(page)
    assert "late against new" in text
    links = [a.get("href") for tag, a in page.tags if tag == "a"]
    assert {"/evaluations/2", "/evaluations/3", "/compare?ids=3,2"} <= set(links)
    (body,) = [a for tag, a in page.tags if tag == "body"]
    assert client.get(body["data-rows"]).status_code == 200
    assert client.get(body["data-query"].replace("{index}", "0")).status_code == 200


def test_boxes_of_the_list_compare_the_oldest_with_the_others(client):
    text = text_of(read(client, "/compare?ids=3&ids=2&ids=1"))
    assert "new against old" in text
    assert "late against old" in text


def test_the_rule_goes_along_to_the_queries(client):
    page = read(client, "/compare?ids=1,2&primary=R@1&margin=0.1")
    (body,) = [a for tag, a in page.tags if tag == "body"]
    assert body["data-rows"] == "/api/comparisons/rows?ids=1,2&primary=R%401&margin=0.1"


def test_what_cannot_be_compared_is_said_with_the_reason(client):
    assert "gold differs" in text_of(read(client, "/compare?ids=1,4", 400))
    assert "two evaluations" in text_of(read(client, "/compare?ids=1", 400))


def test_what_is_to_be_minded_stands_above_the_comparison(client):
    assert "Warnings:" in text_of(read(client, "/compare?ids=1,3"))


# Odd names


def test_odd_names_stay_text_on_every_page(tmp_path):
    store = str(tmp_path / "history.db")
    name = '"><img src=x onerror=alert(1)>\u202e{{ 7*7 }}'
    _save(store, 2, name=name, tag="<u>&tag")
    with client_of(store=store) as client:
        for path in (
            "/",
            "/evaluations/1",
            "/compare?ids=1,2",
            "/?system=" + "x%22%3E%3Cimg%20src=x",
        ):
            page = read(client, path)
            assert not [tag for tag, _ in page.tags if tag in ("img", "u")]
            assert not [a for _, a in page.tags if any(key.startswith("on") for key in a)]
        assert "{{ 7*7 }}" in text_of(read(client, "/"))
        page = read(client, "/")
        assert "/?tag=%3Cu%3E%26tag" in [a.get("href") for tag, a in page.tags if tag == "a"]
        assert boxes(read(client, "/?tag=%3Cu%3E%26tag")) == [2, 1]


def _save(store, times, *, name="plain", tag=None):
    gold = Gold.from_dict({f"q{at}": ["a"] for at in range(4)})
    run = Run.from_dict({f"q{at}": ["x", "a"][at % 2 :] for at in range(4)}, name=name)
    scores = [evaluate(run, gold, ["RR"])]
    document = Report.of(scores, gold=gold).to_dict()
    with Store.open(store) as opened:
        for at in range(times):
            now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=at)
            opened.save(scores, document, tags=[] if tag is None else [tag], now=now)


def _change(client, statement):
    with closing(sqlite3.connect(client.app.state.settings.store)) as connection:
        changed = connection.execute(statement).rowcount
        connection.commit()
    assert changed > 0
    assert re.match("UPDATE", statement)
