"""Comparisons of stored evaluations: refused with reasons, else as good as from the files."""

from __future__ import annotations

import json

import pytest

from karat.cli.main import main

from .conftest import LANGUAGES, RANKS, client_of, items, rr

QUERIES = list(RANKS["old"])


def got(client, path, status=200):
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_comparison_of_stored_ones_is_that_of_their_files(client, saved, tmp_path):
    words = [str(saved / f"{name}.jsonl") for name in ("old", "new")]
    words += ["--gold", str(saved / "gold.json"), "--queries", str(saved / "queries.jsonl")]
    words += ["--corpus", str(saved / "corpus.jsonl"), "--by", "language", "--quiet"]
    words += ["-m", "RR", "-m", "R@1"]
    assert main(["compare", *words, "-o", str(tmp_path / "report.json")]) in (0, 1)
    expected = json.loads((tmp_path / "report.json").read_text())
    for row in (*expected["comparisons"], *expected["decisions"]):
        assert row["bounds"] is not None
    found = got(client, "/api/comparisons?ids=1,2")
    assert [one["name"] for one in found["systems"]] == ["old", "new"]
    for key in ("comparisons", "decisions", "rule", "verdict", "reversals"):
        assert found[key] == expected[key]
    for ours, theirs in zip(found["systems"], expected["systems"], strict=True):
        for key in ("measures", "segments", "counts", "failures", "sweep"):
            assert ours[key] == theirs[key]
    assert found["inputs"]["gold"] == expected["inputs"]["gold"]
    assert found["inputs"]["runs"] == expected["inputs"]["runs"]


def test_evaluations_of_two_reports_are_joined_by_the_ids_of_their_queries(client):
    rows = got(client, "/api/comparisons/rows?ids=2,3")
    assert rows["query_id"] == QUERIES
    for at, system in enumerate(("new", "late")):
        assert rows["values"]["RR"][at] == pytest.approx([rr(system, one) for one in QUERIES])
        assert rows["rank"][at] == [RANKS[system][one] or None for one in QUERIES]
    assert rows["text"][1:] == [f"question {one}" for one in QUERIES[1:]]
    assert rows["gold"] == [1] * 6
    differ = [int(items("new", one) != items("late", one)) for one in QUERIES]
    assert 0 < sum(differ) < 6
    assert rows["different"] == differ
    own = rows["segments"]["language"]
    told = [[own["names"][at] for at in of] for of in own["of"]]
    assert told == [[LANGUAGES[one]] for one in QUERIES]


def test_the_order_of_the_first_one_is_that_of_the_comparison(client):
    rows = got(client, "/api/comparisons/rows?ids=3,2")
    assert rows["query_id"] == QUERIES[::-1]
    assert rows["values"]["RR"][1] == pytest.approx([rr("new", one) for one in QUERIES[::-1]])
    assert rows["rank"][0] == [RANKS["late"][one] or None for one in QUERIES[::-1]]


@pytest.mark.parametrize("ids", [(2, 3), (3, 2), (3, 1, 2)])
def test_a_query_has_every_systems_own_list(client, ids):
    names = {1: "old", 2: "new", 3: "late"}
    asked = ",".join(map(str, ids))
    rows = got(client, f"/api/comparisons/rows?ids={asked}")
    for index, query in enumerate(rows["query_id"]):
        detail = got(client, f"/api/comparisons/queries/{index}?ids={asked}")
        assert (detail["index"], detail["query_id"]) == (index, query)
        (gold,) = detail["gold"]
        assert gold["item_id"] == f"d-{query}"
        for id, told, ranks in zip(ids, detail["systems"], gold["ranks"], strict=True):
            assert [hit[0] for hit in told["hits"]] == items(names[id], query)
            assert ranks.get("final") == (RANKS[names[id]][query] or None)
        assert detail["texts"][f"d-{query}"]["text"] == f"{query} <b>{query}</b>"


def test_each_systems_class_of_failure_stays_its_own(client):
    rows = got(client, "/api/comparisons/rows?ids=1,3")
    for at, system in enumerate(("old", "late")):
        missed = [number >= 0 for number in rows["class"][at]]
        assert missed[QUERIES.index("q5")]
        assert not missed[QUERIES.index("q4")]
        assert RANKS[system]["q5"] == 0


def test_the_baseline_can_be_named(client):
    first = got(client, "/api/comparisons?ids=2,1")
    named = got(client, "/api/comparisons?ids=1,2&baseline=2")
    assert first == named
    assert named["comparisons"][0]["baseline"] == "new"


def test_namesakes_are_told_apart_by_their_ids(client):
    found = got(client, "/api/comparisons?ids=1,5")
    assert [one["name"] for one in found["systems"]] == ["old@1", "old@5"]
    assert found["verdict"] in ("same", "unclear")


def test_the_deciding_measure_and_the_margin_can_be_chosen(client):
    found = got(client, "/api/comparisons?ids=1,2&primary=R@1&margin=0.1")
    assert found["rule"]["primary"] == "R@1"
    assert found["rule"]["margin"] == 0.1
    assert "RR" in got(client, "/api/comparisons?ids=1,2&primary=nDCG@9", 400)["error"]
    assert "margin" in got(client, "/api/comparisons?ids=1,2&margin=7", 400)["error"]


def test_other_gold_is_refused_with_the_reason(client):
    told = got(client, "/api/comparisons?ids=2,4", 400)["error"]
    assert "old and new" in told or "new and old" in told
    assert "gold differs" in told


@pytest.mark.parametrize(
    ("asked", "says", "status"),
    [
        ("ids=1", "two evaluations", 400),
        ("ids=", "two evaluations", 400),
        ("ids=1,1", "two evaluations", 400),
        ("", "ids", 400),
        ("ids=1,99", "99", 404),
        ("ids=1,two", "'two'", 400),
        ("ids=1,-2", "'-2'", 400),
        ("ids=1,2&baseline=3", "baseline 3", 400),
        ("ids=1,2&order=up", "order", 400),
        ("ids=" + ",".join(map(str, range(1, 40))), "too many", 400),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(client, asked, says, status):
    assert says in got(client, f"/api/comparisons?{asked}", status)["error"]


@pytest.mark.parametrize("ids", ["3,6", "5,6"])
def test_where_one_was_saved_without_its_queries_only_values_are_compared(client, ids):
    found = got(client, f"/api/comparisons?ids={ids}")
    assert found["comparisons"]
    assert any("new (6)" in told and "without" in told for told in found["warnings"])
    for path in ("rows", "queries/0"):
        assert "not all" in got(client, f"/api/comparisons/{path}?ids={ids}", 404)["error"]


def test_a_query_beyond_the_last_is_not_there(client):
    assert "6 queries" in got(client, "/api/comparisons/queries/6?ids=1,2", 404)["error"]


def test_what_changed_between_two_is_to_be_minded(client):
    """The same judgments from another file, and queries in another file."""
    told = got(client, "/api/comparisons?ids=1,3")["warnings"]
    assert any("queries" in one for one in told)
    assert not any("gold" in one for one in told)


def test_what_decided_in_the_reports_decides_between_them_too(tmp_path, saved):
    """A margin of half the mean, saved with two reports, and a gate that nobody compared by."""
    store = tmp_path / "ruled.db"
    gates = tmp_path / "gates.yaml"
    gates.write_text("gates: ['mean P@1 >= 0.1']\n")
    files = ["--gold", str(saved / "gold.json"), "--gates", str(gates), "--quiet"]
    for names in (("old", "new"), ("old", "late")):
        runs = [str(saved / f"{name}.jsonl") for name in names]
        words = ["compare", *runs, *files, "-m", "R@1", "-m", "RR", "--primary", "RR"]
        words += ["--margin", "0.5", "--save", "--store", str(store)]
        assert main(words) in (0, 1)
    with client_of(store=str(store)) as client:
        found = got(client, "/api/comparisons?ids=2,4")
        assert (found["rule"]["primary"], found["rule"]["margin"]) == ("RR", 0.5)
        assert {row["measure"] for row in found["comparisons"]} == {"R@1", "RR"}
        assert "P@1" in found["systems"][0]["measures"]
        chosen = got(client, "/api/comparisons?ids=2,4&margin=0.1&primary=R@1")
        assert (chosen["rule"]["primary"], chosen["rule"]["margin"]) == ("R@1", 0.1)
