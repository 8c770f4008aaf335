"""What /api/openapi.json promises: every real answer is what is declared for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from jsonschema import Draft202012Validator

from karat.cli.main import main
from karat.web.server import create_app
from karat.web.settings import Settings

from .benches import bench_listening, lay

TOKEN = "a-token-of-these-tests"
BM25 = "bm25: {retriever: bm25}"
BROKEN = 'broken: {retriever: python, call: "calls.py:broken"}'
COMPARED = "/comparisons?ids=1,2"
# A request for every operation, in an order in which each has what it needs.
ASKED: dict[tuple[str, str], tuple[str, object, int]] = {
    ("get", "/evaluations"): ("/evaluations?size=2", None, 200),
    ("get", "/evaluations/{id}"): ("/evaluations/1", None, 200),
    ("post", "/evaluations/{id}/tags"): ("/evaluations/1/tags", {"tags": ["release"]}, 200),
    ("get", "/names"): ("/names", None, 200),
    ("get", "/trend"): ("/trend?measure=RR", None, 200),
    ("get", "/reports/{report_id}"): ("/reports/1", None, 200),
    ("get", "/reports/{report_id}/rows"): ("/reports/1/rows", None, 200),
    ("get", "/reports/{report_id}/queries/{index}"): ("/reports/1/queries/0", None, 200),
    ("get", "/comparisons"): (COMPARED, None, 200),
    ("get", "/comparisons/rows"): ("/comparisons/rows?ids=1,2", None, 200),
    ("get", "/comparisons/queries/{index}"): ("/comparisons/queries/0?ids=1,2", None, 200),
    ("post", "/label-sets"): ("/label-sets", {"report_id": 5}, 201),
    ("get", "/label-sets"): ("/label-sets", None, 200),
    ("get", "/label-sets/{set_id}"): ("/label-sets/1?rater=Ana", None, 200),
    ("get", "/label-sets/{set_id}/next"): ("/label-sets/1/next?rater=Ana", None, 200),
    ("post", "/label-sets/{set_id}/judgments"): (
        "/label-sets/1/judgments", {"rater": "Ana", "position": 0, "grade": 2}, 200,
    ),
    ("post", "/label-sets/{set_id}/undo"): ("/label-sets/1/undo", {"rater": "Ben"}, 200),
    ("get", "/label-sets/{set_id}/agreement"): ("/label-sets/1/agreement", None, 200),
    ("get", "/label-sets/{set_id}/export"): ("/label-sets/1/export", None, 200),
    ("get", "/systems"): ("/systems", None, 200),
    ("get", "/queries"): ("/queries?search=pay", None, 200),
    ("post", "/search"): ("/search", {"system": "bm25", "text": "pay an invoice"}, 200),
    ("post", "/runs"): ("/runs", {"systems": ["bm25"]}, 201),
    ("get", "/runs"): ("/runs", None, 200),
    ("get", "/runs/{id}"): ("/runs/1", None, 200),
    ("post", "/runs/{id}/stop"): ("/runs/1/stop", {}, 200),
}  # fmt: skip
REFUSED = [
    ("get", "/evaluations/{id}", "/evaluations/999", None, 404),
    ("get", "/evaluations/{id}", "/evaluations/x", None, 400),
    ("post", "/evaluations/{id}/tags", "/evaluations/1/tags", {"tags": []}, 400),
    ("post", "/evaluations/{id}/tags", "/evaluations/1/tags", {"tags": [1]}, 400),
    ("get", "/trend", "/trend", None, 400),
    ("get", "/reports/{report_id}", "/reports/999", None, 404),
    ("get", "/reports/{report_id}/queries/{index}", "/reports/1/queries/999", None, 404),
    ("get", "/comparisons", "/comparisons?ids=1,4", None, 400),
    ("get", "/comparisons/rows", "/comparisons/rows?ids=5,6", None, 404),
    ("get", "/label-sets/{set_id}", "/label-sets/99", None, 404),
    ("post", "/label-sets", "/label-sets", {"report_id": 1, "depth": 0}, 400),
    ("get", "/label-sets/{set_id}/export", "/label-sets/1/export?form=csv", None, 400),
    ("post", "/search", "/search", {"system": "broken", "text": "x"}, 502),
    ("post", "/search", "/search", {"system": "nobody", "text": "x"}, 400),
    ("post", "/runs", "/runs", {"systems": ["nobody"]}, 400),
    ("get", "/runs/{id}", "/runs/99", None, 404),
]


@pytest.fixture(scope="module")
def client(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A real server over a copy of the store, asked with the token as a program does."""
    folder = tmp_path_factory.mktemp("openapi")
    store = Path(shutil.copy(saved / "history.db", folder / "history.db"))
    config = lay(folder / "config", BM25, BROKEN)
    evaluated(config.parent, store)
    app = create_app(Settings(store=str(store), config=config, token=TOKEN))
    with bench_listening(app) as bench:
        bench.client.headers["Authorization"] = f"Bearer {TOKEN}"
        yield bench.client


def evaluated(folder: Path, store: Path) -> None:
    """Report 5: a run whose items all have texts, with a gate, so that it can be labelled."""
    run, gold = folder / "run.json", str(folder / "eval.jsonl")
    run.write_text(json.dumps({one: ["pay#1", "ship#1", "ship#2"] for one in ("q1", "q2", "q3")}))
    (folder / "gates.yaml").write_text("- R@1 >= 0.5\n")
    texts = ["--corpus", str(folder / "corpus.jsonl"), "--gates", str(folder / "gates.yaml")]
    words = ["eval", str(run), "--gold", gold, *texts, "--save", "--store", str(store), "--quiet"]
    assert main(words) in (1, 3)


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict:
    return client.get("/api/openapi.json").json()


def ask(client: httpx.Client, method: str, path: str, body: object) -> httpx.Response:
    words = {} if body is None else {"json": body}
    return client.request(method, f"/api{path}", timeout=60, **words)


def declared(document: dict, method: str, path: str, answer: httpx.Response) -> dict:
    """The schema that is declared for an answer's status and content type."""
    responses = document["paths"][f"/api{path}"][method]["responses"]
    said = responses.get(str(answer.status_code)) or responses["default"]
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in said["content"], (answer.status_code, kind, sorted(said["content"]))
    return said["content"][kind]["schema"]


def check(document: dict, method: str, path: str, answer: httpx.Response) -> None:
    schema = declared(document, method, path, answer)
    if answer.headers["content-type"].startswith("application/json"):
        whole = {**schema, "components": document["components"]}
        Draft202012Validator.check_schema(whole)
        Draft202012Validator(whole).validate(answer.json())
    else:
        assert schema == {"type": "string"}


def test_every_operation_is_asked_for_here(document):
    operations = {
        (method, path.removeprefix("/api"))
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert operations == set(ASKED)


def test_no_json_is_declared_as_a_string_or_left_open(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, said in operation["responses"].items():
                told = said.get("content", {}).get("application/json")
                assert told is None or "$ref" in told["schema"], (method, path, status)


def test_every_answer_is_what_is_declared(client, document):
    for (method, path), (asked, body, status) in ASKED.items():
        answer = ask(client, method, asked, body)
        assert answer.status_code == status, (asked, answer.text)
        check(document, method, path, answer)
    run = "/runs/{id}"
    check(document, "get", run, ask(client, "get", "/runs/1", None))
    qrels = ask(client, "get", "/label-sets/1/export?form=qrels", None)
    assert qrels.status_code == 200
    check(document, "get", "/label-sets/{set_id}/export", qrels)


@pytest.mark.parametrize("report", range(1, 6))
def test_every_report_is_what_is_declared(client, document, report):
    path = "/reports/{report_id}"
    check(document, "get", path, ask(client, "get", f"/reports/{report}", None))


@pytest.mark.parametrize(("method", "path", "asked", "body", "status"), REFUSED)
def test_every_refusal_is_what_is_declared(client, document, method, path, asked, body, status):
    answer = ask(client, method, asked, body)
    assert answer.status_code == status, answer.text
    check(document, method, path, answer)
    assert isinstance(answer.json()["error"], str)


def test_the_guard_s_refusals_are_declared_too(client, document):
    with httpx.Client(base_url=client.base_url) as stranger:
        answer = stranger.get("/api/names")
        assert answer.status_code == 401
        check(document, "get", "/names", answer)
    text = client.post("/api/label-sets", content=b"x", headers={"Content-Type": "text/plain"})
    assert text.status_code == 415
    check(document, "post", "/label-sets", text)
    broken = client.post(
        "/api/label-sets", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert broken.status_code == 400
    check(document, "post", "/label-sets", broken)


def test_a_generated_client_knows_how_to_show_the_token(document):
    (scheme,) = document["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert all("security" in one for ms in document["paths"].values() for one in ms.values())
