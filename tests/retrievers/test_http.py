"""The http retriever against services that behave: a search service, and what is sent."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import Raw, always, asked, built, example, hits, karat, logged, reply, sent, served

from karat.errors import CallError
from karat.retrieve.protocol import Hit

CORPUS = [
    {"chunk_id": "pies#00000", "text": "Apple pie with cream", "source": "docs", "version": "2"},
    {"chunk_id": "pies#00001", "text": "Cherry pie", "source": "tickets"},
    {"chunk_id": "tarts#00000", "text": "Apple tart with cherry and cream", "source": "docs"},
    {"chunk_id": "soup#00000", "text": "Leek soup", "source": "docs"},
]
FOUR_LINES = """\
retriever: http
url: {url}/search
body: {{query: "{{query}}", top_k: "{{k}}"}}
k: 5"""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    corpus = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, CORPUS)), encoding="utf-8")
    with served(example().service(corpus)) as url:
        yield url


# the search service of the recipe minimal


def test_four_lines_of_yaml_call_a_search_service(service):
    answer = asked(built(FOUR_LINES.format(url=service)), "apple pie")
    # Two words asked for: the first chunk has both, the next two one each, in corpus order.
    assert answer.hits == [
        Hit("pies#00000", 1.0, "pies", text="Apple pie with cream"),
        Hit("pies#00001", 0.5, "pies", text="Cherry pie"),
        Hit("tarts#00000", 0.5, "tarts", text="Apple tart with cherry and cream"),
    ]


def test_metadata_become_version_and_source_and_filters_reach_the_service(service):
    yaml = (
        FOUR_LINES.format(url=service)
        .replace("}}", "}")
        .replace('"{k}"}', '"{k}", filters: {source: "{wanted}"}}')
    )
    yaml += "\nversion: metadata.version\nsource: metadata.source"
    answer = asked(built(yaml), "apple pie", wanted="docs")
    assert [(hit.item_id, hit.version, hit.source) for hit in answer.hits] == [
        ("pies#00000", "2", "docs"),
        ("tarts#00000", None, "docs"),
    ]


def test_what_the_service_finds_invalid_is_told_in_its_words(service):
    system = built(FOUR_LINES.format(url=service).replace("k: 5", "k: 51"))
    with pytest.raises(CallError, match="less than or equal to 50") as error:
        asked(system)
    assert str(error.value).startswith("answered 422 ")
    assert "body.top_k: " in str(error.value)
    assert not error.value.may_pass


def test_a_search_from_the_command_line_logs_every_call(service, tmp_path):
    (tmp_path / "karat.yaml").write_text(
        "queries: queries.jsonl\nsystems:\n  live:\n    "
        + FOUR_LINES.format(url=service).replace("\n", "\n    ")
    )
    lines = [{"query_id": "q1", "text": "apple pie"}, {"query_id": "q2", "text": "zebra"}]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = karat("search", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "live: 2 calls, 2 with fewer hits than k" in done.stdout
    first, second = logged(tmp_path / "runs" / "live.jsonl")
    assert first["endpoint"] == f"{service}/search"
    assert first["topk"][1] == {
        "rank": 2,
        "chunk_id": "pies#00001",
        "score": 0.5,
        "doc_id": "pies",
    }
    assert set(first["latency_ms"]) == {"retrieve", "total"}
    assert second["topk"] == []
    assert "error" not in second


# requests


def test_a_body_is_posted_as_json_and_a_lone_placeholder_keeps_its_type():
    got = sent(
        'body: {q: "{query}", n: "{k}", id: "{query_id}", tags: "{tags}", sum: "{k} of {tags}",'
        ' flag: true, deep: [{language: "{language}"}]}',
        text='say "pie"\n',
        k=7,
        tags=["a", "b"],
        language="pt-BR",
    )
    assert (got.method, got.headers["content-type"]) == ("POST", "application/json")
    assert got.json == {
        "q": 'say "pie"\n',
        "n": 7,
        "id": "q1",
        "tags": ["a", "b"],
        "sum": '7 of ["a", "b"]',
        "flag": True,
        "deep": [{"language": "pt-BR"}],
    }


def test_without_a_body_it_is_a_get_and_any_method_can_be_named():
    assert sent('params: {q: "{query}"}').method == "GET"
    assert sent("method: put\nbody: {a: 1}").method == "PUT"
    got = sent('method: GET\nbody: {q: "{query}"}')
    assert (got.method, got.json) == ("GET", {"q": "pie"})
    assert sent("method: POST").headers["content-length"] == "0"


def test_params_join_those_of_the_url_and_lists_repeat_their_name():
    got = sent(
        'url: "URL/s?a=1&lang={language}"\nparams: {q: "{query}", f: [x, "{k}"], g: true}',
        text="ä & b=c",
        language="de/at",
    )
    assert got.target.startswith("/s?a=1&lang=de%2Fat&q=%C3%A4%20%26%20b%3Dc")
    assert parse_qs(urlsplit(got.target).query) == {
        "a": ["1"],
        "lang": ["de/at"],
        "q": ["ä & b=c"],
        "f": ["x", "10"],
        "g": ["true"],
    }


def test_headers_are_filled_and_replace_the_usual_ones_whatever_their_case():
    got = sent("headers: {X-Query: 'id {query_id}', ACCEPT: text/json, X-N: 3, X-B: true}")
    assert got.headers["x-query"] == "id q1"
    assert got.headers["accept"] == "text/json"
    assert (got.headers["x-n"], got.headers["x-b"]) == ("3", "true")
    assert got.headers["user-agent"].startswith("karat/")


def test_what_headers_cannot_carry_is_refused_before_it_is_sent():
    for text in ("füße", "two\nlines"):
        with pytest.raises(CallError, match="header X-Q would hold a character"):
            sent("headers: {X-Q: '{query}'}", text=text)


def test_braces_stay_where_they_are_doubled_or_hold_no_name():
    got = sent("body: {graphql: 'query { Get { A {{title}} } } {query}', set: '{1} {} {a b}'}")
    assert got.json == {"graphql": "query { Get { A {title} } } pie", "set": "{1} {} {a b}"}


def test_an_unknown_placeholder_says_which_ones_there_are():
    with pytest.raises(
        CallError, match=r"\{lang\} is neither .* it has k, language, query, query_id"
    ):
        sent("body: {q: '{lang}'}", language="de")


anything = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(anything)
def test_any_query_arrives_as_it_is_in_whatever_it_is_sent_in(echo, text):
    server, systems = echo
    for system in systems.values():
        asked(system, text)
    path, params, form, body, raw, plain = server.requests[-6:]
    assert unquote(urlsplit(path.target).path.removeprefix("/s/")) == text
    assert parse_qs(urlsplit(params.target).query, keep_blank_values=True) == {"q": [text]}
    assert parse_qs(form.body.decode(), keep_blank_values=True) == {"q": [text]}
    assert form.headers["content-type"] == "application/x-www-form-urlencoded"
    assert body.json == {"q": text}
    assert raw.json == {"q": text, "n": 10, "s": f"<{text}>"}
    assert plain.body.decode() == f"find {text}"


@pytest.fixture(scope="module")
def echo():
    with Raw(always(reply(hits("a")))) as server:
        parts = {
            "path": f'url: "{server.url}/s/{{query}}"',
            "params": f'url: {server.url}/s\nparams: {{q: "{{query}}"}}',
            "form": f'url: {server.url}/s\nform: {{q: "{{query}}"}}',
            "body": f'url: {server.url}/s\nbody: {{q: "{{query}}"}}',
            "raw": f"url: {server.url}/s\n"
            """body: '{"q": "{query}", "n": {k}, "s": "<{query}>"}'""",
            "plain": f"url: {server.url}/s\nbody: 'find {{query}}'",
        }
        yield server, {name: built(f"retriever: http\n{yaml}") for name, yaml in parts.items()}


def test_text_that_looks_like_json_must_be_json_once_it_is_filled():
    with pytest.raises(CallError, match="query 'q1' cannot be sent: Expecting"):
        sent("""body: '{"q": {query}}'""")


def test_other_content_types_are_sent_as_they_are_written():
    got = sent("body: '<q>{query}</q>'\nheaders: {content-type: application/xml}")
    assert (got.body, got.headers["content-type"]) == (b"<q>pie</q>", "application/xml")
    lines = sent(
        """body: "{}\\n{\\"q\\": \\"{query}\\"}\\n"\n"""
        "headers: {Content-Type: application/x-ndjson}",
        text='a "b"',
    )
    assert lines.body == b'{}\n{"q": "a \\"b\\""}\n'


def test_half_a_character_is_a_failed_call_and_no_traceback():
    with pytest.raises(CallError, match="surrogates not allowed"):
        sent("params: {q: '{query}'}", text="a\ud800")
