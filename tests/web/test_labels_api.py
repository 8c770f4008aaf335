"""Labelling over HTTP: blind, for several raters at once, and exported so that karat reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from karat.cli.main import main
from karat.errors import InputError
from karat.formats.readers import read_gold
from karat.label.labels import read_labels
from karat.store import LabelItem, Store
from karat.web.labels import import_pool
from karat.web.server import create_app
from karat.web.settings import Settings

TOKEN = "a-token-of-these-tests"
SIZE = 12
POOL = [
    {
        "query_id": f"q{at // 3}",
        "item_id": f"d#{at}",
        "query": f"question {at // 3}",
        "text": f"text {at} <script>alert(1)</script>",
        **({"as_of": "2026-01-01"} if at % 2 else {}),
    }
    for at in range(SIZE)
]


def lines(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def client(tmp_path: Path, store: Path) -> Iterator[TestClient]:
    pool = lines(tmp_path / "pool.jsonl", POOL)
    app = create_app(Settings(store=str(store), token=TOKEN, pool=pool))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(app, base_url="http://127.0.0.1:8000", headers=headers) as made:
        yield made


def got(client: TestClient, path: str, status: int = 200) -> dict:
    answer = client.get(f"/api/label-sets{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def put(client: TestClient, path: str, body: dict, status: int = 200) -> dict:
    answer = client.post(f"/api/label-sets{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def judge(client: TestClient, rater: str, position: int, grade, **more) -> dict:
    body = {"rater": rater, "position": position, "grade": grade, **more}
    return put(client, "/1/judgments", body)


def test_the_pool_that_was_given_is_a_set_and_the_same_pool_again_is_no_other(client, tmp_path):
    (found,) = got(client, "")["sets"]
    assert (found["id"], found["name"], found["size"]) == (1, "pool", SIZE)
    assert found["raters"] == []
    import_pool(client.app.state.store, tmp_path / "pool.jsonl")
    assert len(got(client, "")["sets"]) == 1


def test_the_next_pool_in_a_file_of_the_same_name_has_a_name_of_its_own(client, tmp_path):
    store = client.app.state.store
    for size, name in ((3, "pool.jsonl"), (2, "pool.jsonl"), (4, "7.jsonl"), (3, "pool.jsonl")):
        import_pool(store, lines(tmp_path / name, POOL[:size]))
    names = {one["id"]: (one["name"], one["size"]) for one in got(client, "")["sets"]}
    assert names == {1: ("pool", SIZE), 2: ("pool 2", 3), 3: ("pool 3", 2), 4: ("pool 7", 4)}


BODIES = {
    '{"rater": "a" "position": 0}': "the body: not valid JSON: Expecting ',' delimiter at column",
    '{"rater": "a",\n "position": }': "the body, line 2: not valid JSON: Expecting value at column",
    '{"rater": "a", "position": 0, "grade": 1, "grade": 2}': "the body: key 'grade' occurs twice",
    '{"rater": "a", "position": 0, "grade": NaN}': "the body: NaN is not JSON",
    '{"rater": "\\ud800", "position": 0, "grade": 1}': "the body: holds half of a surrogate pair",
    "[" * 100_000: "the body: JSON nested too deeply",
    '{"rater": "é", "position": 0, "grade": 1}'.encode("latin-1"): "the body is not UTF-8",
}


@pytest.mark.parametrize("body", BODIES)
def test_a_body_is_read_as_strictly_as_a_file_is(client, body):
    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/label-sets/1/judgments", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(BODIES[body])
    assert client.app.state.store.judgments(1) == []


def test_a_rater_gets_the_items_in_the_order_of_the_pool_each_once(client):
    seen = []
    while (item := got(client, "/1/next?rater=ana")["item"]) is not None:
        seen.append((item["query_id"], item["item_id"], item["text"], item["facts"]))
        answer = judge(client, "ana", item["position"], 1)
        assert answer["judged"] == len(seen)
    assert seen == [
        (one["query_id"], one["item_id"], one["text"], {"as_of": "2026-01-01"} if at % 2 else {})
        for at, one in enumerate(POOL)
    ]
    assert answer["next"] is None


def test_the_item_after_the_one_on_the_screen_is_given_beforehand(client):
    assert got(client, "/1/next?rater=ana&besides=0")["item"]["position"] == 1
    assert judge(client, "ana", 0, 2)["next"] == 1
    assert got(client, "/1/next?rater=ana&besides=1")["item"]["position"] == 2


def test_undo_takes_back_the_last_judgment_and_the_item_comes_again(client):
    judge(client, "ana", 0, 2)
    judge(client, "ana", 1, None, rationale="which year?")
    judge(client, "bo", 0, 3)
    answer = put(client, "/1/undo", {"rater": "ana"})
    kept = {"position": 1, "grade": None, "rationale": "which year?"}
    assert answer == {"judgment": kept, "judged": 1, "next": 1}
    assert put(client, "/1/undo", {"rater": "ana"})["judgment"]["position"] == 0
    assert put(client, "/1/undo", {"rater": "ana"}) == {"judgment": None, "judged": 0, "next": 0}
    assert got(client, "/1?rater=bo")["own"]["judged"] == 1


def test_a_judgment_sent_twice_is_kept_once_and_another_one_corrects_it(client, store):
    for _ in range(2):
        judge(client, "ana", 0, 2)
    assert put(client, "/1/undo", {"rater": "ana"})["judged"] == 0
    judge(client, "ana", 0, 2)
    judge(client, "ana", 0, 1)
    with Store.open(store) as opened:
        assert [one.grade for one in opened.judgments(1)] == [1]


def test_windows_of_one_rater_and_of_another_lose_nothing_and_count_nothing_twice(client, store):
    def label(rater: str) -> None:
        while (item := got(client, f"/1/next?rater={rater}")["item"]) is not None:
            judge(client, rater, item["position"], item["position"] % 4)

    with ThreadPoolExecutor(4) as windows:
        list(windows.map(label, ["ana", "bo", "ana", "bo"]))
    with Store.open(store) as opened:
        said = opened.judgments(1)
    assert sorted((one.rater, one.position) for one in said) == [
        (rater, at) for rater in ("ana", "bo") for at in range(SIZE)
    ]
    assert all(one.grade == one.position % 4 for one in said)


def test_the_same_name_is_the_same_rater_however_it_is_typed(client):
    judge(client, " Ana  Luz ", 0, 2)
    judge(client, "Jose\u0301", 0, 1)
    judge(client, "José", 1, 1)
    raters = got(client, "/1")["raters"]
    assert [(one["rater"], one["judged"]) for one in raters] == [("Ana Luz", 1), ("José", 2)]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"position": 0, "grade": 1}, "rater"),
        ({"rater": "ana", "position": 0}, "grade"),
        ({"rater": "ana", "position": 0, "grade": 4}, "grade"),
        ({"rater": "ana", "position": 0, "grade": -1}, "grade"),
        ({"rater": "ana", "position": 0, "grade": True}, "grade"),
        ({"rater": "ana", "position": 0, "grade": "2"}, "grade"),
        ({"rater": "ana", "position": 0, "grade": 1.5}, "grade"),
        ({"rater": "ana", "position": True, "grade": 1}, "position"),
        ({"rater": "ana", "position": "1", "grade": 1}, "position"),
        ({"rater": " ", "position": 0, "grade": 1}, "printable characters"),
        ({"rater": "a\u202eb", "position": 0, "grade": 1}, "printable characters"),
        ({"rater": "ana", "position": SIZE, "grade": 1}, f"has no position {SIZE}; it has 0 to"),
        ({"rater": "ana", "position": 0, "grade": 1, "rationale": "\x00"}, "control characters"),
        ({"rater": "ana", "position": 0, "grade": 1, "rationale": "x" * 10_001}, "rationale"),
    ],
)
def test_what_is_no_judgment_is_refused_and_not_kept(client, body, says):
    assert says in put(client, "/1/judgments", body, status=400)["error"]
    assert got(client, "/1")["raters"] == []


@pytest.mark.parametrize("path", ["", "/next?rater=ana", "/agreement", "/export"])
def test_a_set_that_is_not_there_is_not_found(client, path):
    assert "7" in got(client, f"/7{path}", status=404)["error"]


def agree(client: TestClient, first: list, second: list) -> None:
    for rater, grades in (("ana", first), ("bo", second)):
        for at, grade in enumerate(grades):
            judge(client, rater, at, grade)


def test_agreement_is_what_hand_counting_gives(client):
    # Ten items both graded, eight alike. By chance 0.6·0.4 + 0.4·0.6 = 0.48 would be alike, so
    # kappa is (0.8 − 0.48)/(1 − 0.48).
    agree(client, [0] * 6 + [3] * 4 + [None], [0] * 4 + [3] * 6 + [1])
    found = got(client, "/1/agreement")
    (pair,) = found["pairs"]
    assert (pair["n"], pair["same"], pair["share"]) == (10, 8, 0.8)
    assert pair["kappa"] == pytest.approx((0.8 - 0.48) / (1 - 0.48))
    assert found["majority"] == {"graded": 9, "ties": 2, "cannot_tell": 0, "unjudged": 1}
    assert found["ties"][0] == {"query_id": "q1", "item_id": "d#4", "grades": {"ana": 0, "bo": 3}}


def test_too_few_items_make_no_agreement(client):
    agree(client, [1, 2, 3], [1, 2, 0])
    (pair,) = got(client, "/1/agreement")["pairs"]
    assert pair["share"] is pair["kappa"] is None
    assert pair["because"] == "not enough: 3 of at least 10 items that both graded"


def test_exported_labels_are_read_by_karat(client, tmp_path):
    agree(client, [3, None, 0], [2, 1])
    judge(client, "bo", 2, 0, rationale="=HYPERLINK(1)")
    answer = client.get("/api/label-sets/1/export?form=jsonl")
    assert answer.headers["content-disposition"] == 'attachment; filename="labels-1.jsonl"'
    path = tmp_path / "labels.jsonl"
    path.write_bytes(answer.content)
    read = read_labels(path)
    assert read.frame.rows() == [
        ("q0", "d#0", 3, "ana"),
        ("q0", "d#0", 2, "bo"),
        ("q0", "d#1", 1, "bo"),
        ("q0", "d#2", 0, "ana"),
        ("q0", "d#2", 0, "bo"),
    ]
    assert read.failed.rows() == [("q0", "d#1", "can't tell")]
    # Two raters who differ are no gold; one of them is.
    with pytest.raises(InputError, match="d#0"):
        read_gold(path)
    path.write_bytes(client.get("/api/label-sets/1/export?form=jsonl&rater=ana").content)
    assert read_gold(path).frame.rows() == [("q0", "d#0", 3.0), ("q0", "d#2", 0.0)]


def test_exported_qrels_hold_the_majority_and_count_what_they_leave_out(client, tmp_path):
    agree(client, [3, None, 0, 1], [2, 1, 0, 1])
    judge(client, "cy", 4, None)
    answer = client.get("/api/label-sets/1/export?form=qrels")
    names = ("graded", "ties", "cannot-tell", "unjudged")
    counts = [answer.headers[f"x-karat-{name}"] for name in names]
    assert counts == ["3", "1", "1", str(SIZE - 5)]
    path = tmp_path / "qrels.txt"
    path.write_bytes(answer.content)
    assert read_gold(path).frame.rows() == [
        ("q0", "d#1", 1.0),
        ("q0", "d#2", 0.0),
        ("q1", "d#3", 1.0),
    ]


def test_there_is_nothing_to_export_before_anybody_labels(client):
    for form in ("jsonl", "qrels"):
        told = got(client, f"/1/export?form={form}", status=400)["error"]
        assert "set 1 has no labels yet" in told
    agree(client, [1], [2])
    told = got(client, "/1/export?form=qrels", status=400)["error"]
    assert "export JSONL" in told


def test_an_exported_file_takes_part_in_an_evaluation_and_in_a_calibration(
    client, tmp_path, capsys
):
    for at in range(SIZE):
        judge(client, "ana", at, at % 4)
        judge(client, "bo", at, (at * 5) % 3)
    for rater in ("ana", "bo"):
        data = client.get(f"/api/label-sets/1/export?rater={rater}").content
        (tmp_path / f"{rater}.jsonl").write_bytes(data)
    gold = tmp_path / "gold.txt"
    gold.write_text("".join(f"q{at} 0 d#{3 * at} 1\n" for at in range(4)))
    run = tmp_path / "mine.trec"
    run.write_text("".join(f"q{at // 3} Q0 d#{at} 0 {-at} mine\n" for at in range(SIZE)))
    judged = ["eval", str(run), "--gold", str(gold), "-m", "P@3", "--judged"]
    assert main([*judged, str(tmp_path / "ana.jsonl")]) == 0
    both = [str(tmp_path / "ana.jsonl"), "--human", str(tmp_path / "bo.jsonl")]
    assert main(["calibrate", *both, "--json"]) in (0, 3)
    # 12 pairs, and the grades of both as they were given
    told = json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))
    assert told["pairs"]["both"] == SIZE


SECRETS = ("secretly-lexical", "secretly-dense")


@pytest.fixture
def report(tmp_path: Path, store: Path) -> int:
    """A stored comparison: of the top 2 of either system, four pairs are unjudged."""
    lines(
        tmp_path / "queries.jsonl",
        [{"query_id": q, "text": f"how about {q}", "as_of": "2026-02-03"} for q in ("q1", "q2")],
    )
    lines(
        tmp_path / "corpus.jsonl",
        [{"item_id": one, "text": f"text of {one}"} for one in ("a", "b", "c", "d", "e")],
    )
    (tmp_path / "gold.txt").write_text("q1 0 a 1\nq2 0 b 2\nq2 0 c 0\n")
    lists = {
        SECRETS[0]: {"q1": "abc", "q2": "bcd"},
        SECRETS[1]: {"q1": "dae", "q2": "eab"},
    }
    runs = []
    for name, answers in lists.items():
        rows = [
            f"{query} Q0 {item} {rank} {77.125 - rank} {name}\n"
            for query, items in answers.items()
            for rank, item in enumerate(items)
        ]
        runs.append(tmp_path / f"{name}.trec")
        runs[-1].write_text("".join(rows))
    words = ["compare", *map(str, runs), "--gold", str(tmp_path / "gold.txt"), "-m", "P@2"]
    words += ["--queries", str(tmp_path / "queries.jsonl")]
    words += ["--corpus", str(tmp_path / "corpus.jsonl"), "--quiet"]
    assert main([*words, "--save", "--store", str(store)]) in (0, 1)
    with Store.open(store) as opened:
        return opened.listed().evaluations[0].report_id


def test_a_set_of_a_report_holds_every_unjudged_item_of_any_top_once(report, client):
    made = put(client, "", {"report_id": report, "depth": 2, "name": "round one"}, status=201)
    assert (made["name"], made["size"]) == ("round one", 4)
    assert made["about"] == "Unjudged items in the top 2 of 2 systems."
    with Store.open(client.app.state.settings.store) as opened:
        items = opened.label_items(made["id"])
    # q1: a b | d a, of which a is judged; q2: b c | e a, of which b and c are.
    pairs = sorted((one.query_id, one.item_id) for one in items)
    assert pairs == [("q1", "b"), ("q1", "d"), ("q2", "a"), ("q2", "e")]
    assert [one.query_id for one in items] in (["q1", "q1", "q2", "q2"], ["q2", "q2", "q1", "q1"])
    assert {one.item_id: one.text for one in items}["e"] == "text of e"


def test_raters_see_no_system_no_rank_no_score_and_nothing_that_others_said(report, client):
    made = put(client, "", {"report_id": report, "depth": 2}, status=201)
    place = f"/{made['id']}"
    for at in range(made["size"]):
        body = {"rater": "bo", "position": at, "grade": 3, "rationale": "bo's reason"}
        put(client, f"{place}/judgments", body)
    seen = [client.get(f"/label/{made['id']}").text]
    for _ in range(made["size"]):
        answer = client.get(f"/api/label-sets{place}/next?rater=ana")
        seen.append(answer.text)
        item = answer.json()["item"]
        assert set(answer.json()) == {"item", "judged"}
        assert set(item) == {"position", "query_id", "item_id", "query", "text", "facts"}
        assert item["facts"] == {"as_of": "2026-02-03"}
        body = {"rater": "ana", "position": item["position"], "grade": 0}
        seen.append(client.post(f"/api/label-sets{place}/judgments", json=body).text)
    for text in seen:
        for secret in (*SECRETS, "77.1", "76.1", "75.1", "score", "rank", "bo's reason"):
            assert secret not in text
        assert '"grade":3' not in text


def test_a_depth_that_the_report_does_not_keep_is_refused(report, client):
    told = put(client, "", {"report_id": report, "depth": 900}, status=400)["error"]
    assert "depth is 900; the report keeps the first" in told


def test_a_report_that_is_not_there_is_not_found(report, client):
    assert "report 99" in put(client, "", {"report_id": 99}, status=404)["error"]


def test_pages_show_the_sets_and_what_came_of_them(report, client):
    agree(client, [0] * 6 + [3] * 4, [0] * 4 + [3] * 6)
    page = client.get("/label")
    assert page.status_code == 200
    assert "/label/1/results" in page.text
    assert f'<option value="{report}">' in page.text
    results = client.get("/label/1/results").text
    # 8 of 10 alike, as above
    assert "80 %" in results
    assert "0.62" in results
    assert client.get("/label/7").status_code == 404
    assert client.get("/label/7/results").status_code == 404


def test_a_workbench_without_a_store_says_how_to_begin(tmp_path):
    app = create_app(Settings(store=str(tmp_path / "none.db")))
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        page = client.get("/label")
        assert page.status_code == 200
        assert "There are no sets yet" in page.text
        assert got(client, "") == {"sets": []}
        assert client.get("/label/1").status_code in (404, 503)
    assert not (tmp_path / "none.db").exists()


def test_names_of_sets_and_raters_are_only_text(client):
    bad = "<img src=x onerror=alert(1)>"
    client.app.state.store.add_label_set(bad, [LabelItem("q", "d", "query", "text")])
    put(client, "/2/judgments", {"rater": bad, "position": 0, "grade": 1})
    for path in ("/label", "/label/2", "/label/2/results"):
        page = client.get(path).text
        assert bad not in page
        assert "&lt;img src=x" in page
