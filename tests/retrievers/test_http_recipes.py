"""The YAML of docs/call-a-service.md: every block is read, and each recipe searches."""

from __future__ import annotations

import re

import pytest
import yaml
from fastapi import FastAPI, Request
from servers import BLOCKS, PAGE, RECIPE, ROOT, asked, built, example, karat, logged, recipe, served

from karat.formats.settings import parse_yaml
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Hit
from karat.retrieve.system import build_system
from karat.retrieve.system_config import parse_systems

FILES = ROOT / "src" / "karat" / "recipes" / "first"
ENVIRONMENT = {
    "SEARCH_KEY": "a",
    "ELASTIC_API_KEY": "b",
    "TYPESENSE_API_KEY": "c",
    "WEAVIATE_API_KEY": "d",
}


@pytest.mark.parametrize("block", BLOCKS, ids=[block.partition(":")[0] for block in BLOCKS])
def test_every_block_of_the_page_can_be_built(block):
    file = parse_yaml(block, "karat.yaml")
    inside = "systems" in file.data
    systems = file.data["systems"] if inside else file.data
    place = file.place.at("systems") if inside else file.place
    system_configs = parse_systems(systems, place)
    assert system_configs
    for name, system_config in system_configs.items():
        with BuildContext(environment=ENVIRONMENT, folder=RECIPE).open() as context:
            system = build_system(system_config, context)
        # The log says where it asked, as the page has it and without a secret.
        assert system.meta["endpoint"] == systems[name]["url"]


def test_the_first_example_runs_as_the_page_has_it(tmp_path):
    for name in ("queries.jsonl", "qrels.txt"):
        (tmp_path / name).write_bytes((FILES / name).read_bytes())
    with served(example().service(FILES / "corpus.jsonl")) as url:
        (tmp_path / "karat.yaml").write_text(BLOCKS[0].replace("http://127.0.0.1:8000", url))
        for line in re.findall(r"^\$ karat (.*)$", PAGE, re.MULTILINE):
            done = karat(*line.split(), folder=tmp_path)
            assert done.returncode == 0, done.stderr
    log = logged(tmp_path / "runs" / "live.jsonl")
    assert log
    assert all(len(line["topk"]) <= 5 and "error" not in line for line in log)


def test_the_example_of_the_page_has_four_lines():
    assert len(yaml.safe_load(BLOCKS[0])["systems"]["live"]) == 4


def test_elasticsearch_is_asked_and_read_in_its_own_form():
    app, requests = FastAPI(), []

    @app.post("/articles/_search")
    async def search(request: Request):
        requests.append((dict(request.query_params), request.headers, await request.json()))
        return {
            "took": 4,
            "timed_out": False,
            "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
            "hits": {
                "total": {"value": 2, "relation": "eq"},
                "max_score": None,
                "hits": [
                    {
                        "_index": "articles",
                        "_id": "pies#1",
                        "_score": 1.25,
                        "_source": {"text": "Apple pie", "doc_id": "pies", "version": 3},
                    },
                    {"_index": "articles", "_id": "pies#2", "_score": None, "_source": {}},
                ],
            },
        }

    with served(app) as url:
        answer = asked(built(recipe("elasticsearch", url), ELASTIC_API_KEY="key"), k=7)
    assert answer.hits == [
        Hit("pies#1", 1.25, "pies", "3", text="Apple pie"),
        Hit("pies#2"),
    ]
    assert answer.latency["service"] == 4
    params, headers, body = requests[0]
    assert params == {"allow_partial_search_results": "false"}
    assert headers["authorization"] == "ApiKey key"
    assert body == {
        "query": {"match": {"text": "pie"}},
        "size": 7,
        "_source": ["text", "doc_id", "version"],
    }


@pytest.fixture
def weaviate():
    app = FastAPI()
    app.state.requests = []
    app.state.answer = {}

    @app.post("/v1/graphql")
    async def graphql(request: Request):
        app.state.requests.append(await request.json())
        return app.state.answer

    with served(app) as url:
        yield app.state, built(recipe("weaviate", url), WEAVIATE_API_KEY="key")


def test_weaviate_is_asked_and_read_in_its_own_form(weaviate):
    state, system = weaviate
    # Weaviate sends scores as text.
    state.answer = {
        "data": {
            "Get": {
                "Article": [
                    {"_additional": {"score": "3.0140665"}, "item_id": "a#1", "text": "Pie"},
                    {"_additional": {"score": "2.8725255"}, "item_id": "b#1", "text": "Tart"},
                ]
            }
        }
    }
    answer = asked(system, 'say "pie" {query}', k=7)
    assert answer.hits == [
        Hit("a#1", 3.0140665, text="Pie"),
        Hit("b#1", 2.8725255, text="Tart"),
    ]
    body = state.requests[0]
    assert body["variables"] == {"q": 'say "pie" {query}', "k": 7}
    assert body["query"].startswith("query($q: String!, $k: Int!) {")
    assert "bm25: {query: $q}, limit: $k" in body["query"]
    assert body["query"].count("{") == body["query"].count("}")


def test_what_graphql_refuses_is_told_in_its_words(weaviate):
    state, system = weaviate
    state.answer = {"data": {"Get": None}, "errors": [{"message": 'Cannot query field "Article"'}]}
    with pytest.raises(Exception, match='says: Cannot query field "Article"'):
        asked(system)
