"""What the http retriever refuses in a karat.yaml, and how it keeps secrets."""

from __future__ import annotations

import base64
import json
import logging
import sys
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from servers import Raw, always, asked, built, hits, karat, logged, reply, sent, write_queries

from karat.errors import CallError, KaratError


def refused(yaml, **environment):
    with pytest.raises(KaratError) as error:
        built(yaml, **environment)
    return str(error.value)


@pytest.mark.parametrize(
    ("yaml", "told"),
    [
        ("url: http://x\nhits: 'hits['", "k.yaml:4: 'hits[' is not a JMESPath expression"),
        ("url: http://x\n\nitem_id: chunk-id", "k.yaml:5: 'chunk-id' is not a JMESPath expression"),
        (
            "url: http://x\nscore: foo(@)",
            "k.yaml:4: 'foo(@)' is not a JMESPath expression: Unknown function",
        ),
        ("url: http://x\ncost: {a: '['}", "k.yaml:4: '[' is not a JMESPath expression"),
        ("url: localhost:8000/s", "k.yaml:3: url: localhost:8000/s is not an address; it needs"),
        ("url: http://x\nbody: {a: 1}\nform: {b: 2}", "body and form are two bodies"),
        ("url: http://x\nbody: 5", "k.yaml:4: body is 5; it must be a mapping or list"),
        ("url: http://x\nlatency: {total: took}", "latency: total is what karat measures"),
        (
            "url: http://x\nhit: a",
            "k.yaml:4: unknown key 'hit' in 'retriever: http'; did you mean hits?",
        ),
        ("body: {}", "url is missing"),
        ("url: http:///s", "k.yaml:3: url: http:///s is not an address"),
        ("url: http://x:99999/s", "k.yaml:3: url: http://x:99999/s is not an address"),
        ("url: http://{query}.org/s", "has a placeholder in its host"),
        ("url: 'http://[::1/s'", "k.yaml:3: url is 'http://[::1/s'; it must be the address"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(yaml, told):
    assert told in refused(f"retriever: http\n{yaml}")


@pytest.mark.parametrize(
    "yaml",
    [
        "headers: {Authorization: Bearer s3cr3t}",
        "headers: {cookie: s3cr3t}",
        "headers: {X-TYPESENSE-API-KEY: s3cr3t}",
        "headers: {X-Auth-Token: s3cr3t, X: 5}",
        "headers: {Client_Secret: s3cr3t}",
        "headers: {X-Password: 's3cr3t{query}'}",
        "params: {api_key: s3cr3t}",
        "body: {auth: [{password: s3cr3t}]}",
        "form: {access_token: s3cr3t}",
        "url: http://user:s3cr3t@x/s",
        "url: http://s3cr3t@x/s",
        "url: 'http://${USER}:s3cr3t@x/s'",
        "url: http://x/s?apikey=s3cr3t",
    ],
)
def test_a_credential_in_the_file_is_refused_and_not_repeated(yaml):
    yaml = yaml if yaml.startswith("url") else f"url: http://x\n{yaml}"
    told = refused(f"retriever: http\n{yaml}", USER="u")
    assert "environment variable" in told
    assert told.startswith("k.yaml:")
    assert "s3cr3t" not in told


def test_yaml_braces_without_quotation_marks_are_not_mistaken_for_a_mapping():
    assert refused("retriever: http\nurl: http://x\nbody: {query: '{query}', top_k: {k}}") == (
        'k.yaml:4: {k} lacks quotation marks; write "{k}"'
    )


@pytest.mark.parametrize("library", ["httpcore", "jmespath"])
def test_a_library_that_is_not_installed_is_named_with_its_command(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    told = refused("retriever: http\nurl: http://x")
    assert f"retriever http needs {library}; install it with: pip install 'karat[http]'" in told


def test_what_is_no_credential_is_let_through():
    system = built(
        "retriever: http\nurl: http://x/s?page_token=1\n"
        "headers: {X-Request-Id: a}\nbody: {max_tokens: 5, token: pie}"
    )
    assert system.meta["endpoint"] == "http://x/s?page_token=1"


# secrets


def test_secrets_come_from_the_environment_wherever_they_stand():
    got = sent(
        'url: "URL/${INDEX}/s?key=${KEY}"\nheaders: {Authorization: "Bearer ${KEY}"}\n'
        'params: {k2: "${KEY}"}\nbody: {inner: ["${KEY}"], q: "{query}"}',
        environment={"KEY": "a+b/c&{query}", "INDEX": "books"},
    )
    key = "a+b/c&{query}"
    assert urlsplit(got.target).path == "/books/s"
    assert parse_qs(urlsplit(got.target).query) == {"key": [key], "k2": [key]}
    assert got.headers["authorization"] == f"Bearer {key}"
    assert got.json == {"inner": [key], "q": "pie"}


def test_a_url_from_the_environment_that_is_none_is_refused_without_being_shown():
    for wrong in ("ftp://s3cr3t", "s3cr3t:8000", "http://s3cr3t:99999"):
        told = refused("retriever: http\nurl: ${SERVICE}/s", SERVICE=wrong)
        assert "url: ${SERVICE}/s is not an address" in told
        assert "s3cr3t" not in told


def test_a_url_from_the_environment_may_hold_user_and_password():
    with Raw(always(reply(hits("a")))) as server:
        url = server.url.replace("http://", "http://me:p%40ss@")
        system = built("retriever: http\nurl: ${SERVICE}/s", SERVICE=url)
        asked(system)
        assert (
            server.requests[0].headers["authorization"]
            == "Basic " + base64.b64encode(b"me:p@ss").decode()
        )
        assert server.requests[0].headers["host"] == f"127.0.0.1:{server.port}"
    assert system.meta["endpoint"] == "${SERVICE}/s"


def test_an_environment_variable_that_is_missing_is_named():
    told = refused('retriever: http\nurl: http://x\nheaders: {Authorization: "Bearer ${NO_KEY}"}')
    assert "environment variable NO_KEY is not set" in told


SECRET = 'sk/Ab+9=é"x y'


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower().replace("sk%2fab%2b", "sk%2fAb%2b"),
        SECRET.replace(" ", "+")
        .replace("/", "%2F")
        .replace("+9", "%2B9")
        .replace("=", "%3D")
        .replace("é", "%C3%A9")
        .replace('"', "%22"),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
        json.dumps(SECRET)[1:-1],
        "x" * 290 + SECRET,
    ],
)
@pytest.mark.parametrize("status", ["401 Unauthorized", "200 OK", "302 Found"])
def test_a_secret_that_comes_back_is_never_shown(spelling, status):
    response = reply(f"bad key {spelling}", status=status, kind="text/plain", Location="/x")
    if status.startswith("302"):
        response = reply("", status=status, Location=quote(f"/login?k={spelling}", safe="/?=%+"))
    with Raw(always(response)) as server:
        system = built(
            f'retriever: http\nurl: {server.url}\nbody: {{api_key: "${{KEY}}"}}', KEY=SECRET
        )
        with pytest.raises(CallError) as error:
            asked(system)
    told = str(error.value)
    assert "Ab" not in told.replace("${KEY}", "")
    assert error.value.__suppress_context__
    if len(spelling) < 100:
        assert "${KEY}" in told or status == "302 Found"


def test_the_password_behind_basic_authentication_is_never_shown():
    packed = base64.b64encode(b"me:hunter2!").decode()
    with Raw(
        always(reply({"detail": "no user me with hunter2!"}, status="403 Forbidden"))
    ) as server:
        system = built(
            f'retriever: http\nurl: {server.url}\nheaders: {{Authorization: "Basic ${{P}}"}}',
            P=packed,
        )
        with pytest.raises(CallError, match=r"answered 403 Forbidden: no user me with \$\{P\}"):
            asked(system)


def test_nothing_is_written_to_pythons_own_logs(caplog):
    caplog.set_level(logging.DEBUG)
    sent('url: "URL/s?key=${KEY}"\nheaders: {X-Api-Key: "${KEY}"}', environment={"KEY": "s3cr3t"})
    assert "s3cr3t" not in caplog.text


def test_secrets_are_in_no_file_and_no_output(tmp_path):
    secret = "sk-verysecret"
    act = always(
        reply({"error": {"message": f"key {secret} is spent"}}, status="402 Payment Required")
    )
    with Raw(act) as server:
        (tmp_path / "karat.yaml").write_text(
            "queries: queries.jsonl\nsystems:\n  live:\n    retriever: http\n"
            f'    url: "{server.url}/s?api_key=${{KEY}}"\n'
            '    headers: {Authorization: "Bearer ${KEY}"}\n'
        )
        write_queries(tmp_path, 3)
        done = karat("search", folder=tmp_path, KEY=secret)
        assert server.requests[0].headers["authorization"] == f"Bearer {secret}"
    assert done.returncode == 2
    assert "answered 402 Payment Required: key ${KEY} is spent" in done.stdout
    shown = done.stdout + done.stderr
    shown += "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    assert secret not in shown
    log = logged(tmp_path / "runs" / "live.jsonl")
    assert [line["error"] for line in log] == [
        "answered 402 Payment Required: key ${KEY} is spent"
    ] * 3
    assert log[0]["endpoint"] == f"{server.url}/s?api_key=${{KEY}}"


def echoing(connection, got):
    """A service that puts what it was sent into its hits, as a debugging one may."""
    key = got.headers["authorization"].removeprefix("Bearer ")
    packed = base64.b64encode(key.encode()).decode()
    found = [
        {"id": f"a#{key}", "doc_id": f"doc {key}", "version": key, "source": f"by {packed}"},
        {"id": quote(key, safe=""), "text": key, "metadata": {"auth": key}},
        {"id": "help-centre#1", "doc_id": "help-centre"},
    ]
    scored = [{**hit, "score": 1 / rank} for rank, hit in enumerate(found, 1)]
    connection.sendall(reply({"hits": scored}))
    return True


def test_a_secret_that_a_service_echoes_in_hits_is_in_no_file_and_no_output(tmp_path):
    secret = "sk/very-secret"
    with Raw(echoing) as server:
        (tmp_path / "karat.yaml").write_text(
            "queries: queries.jsonl\nsystems:\n  live:\n    retriever: http\n"
            f'    url: "{server.url}/${{INDEX}}"\n    doc_id: doc_id\n    version: version\n'
            '    source: source\n    headers: {Authorization: "Bearer ${LETMEIN}"}\n    k_raw: 50\n'
        )
        write_queries(tmp_path, 2)
        done = karat("search", folder=tmp_path, LETMEIN=secret, INDEX="help-centre")
    assert done.returncode == 0, done.stderr
    kept = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    for spelling in (secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode()):
        assert spelling not in kept + done.stdout + done.stderr
    first, second, third = logged(tmp_path / "runs" / "live.jsonl")[0]["topk"]
    assert first["chunk_id"] == "a#${LETMEIN}"
    assert first["doc_id"] == "doc ${LETMEIN}"
    assert first["doc_version"] == "${LETMEIN}"
    assert first["source"] == "by ${LETMEIN}"
    assert second["chunk_id"] == "${LETMEIN}"
    # A setting is no secret, and ids that hold it are still the gold's.
    assert (third["chunk_id"], third["doc_id"]) == ("help-centre#1", "help-centre")


def test_a_secret_is_hidden_from_every_stage_and_from_a_part():
    with Raw(echoing) as server:
        key = 'headers: {Authorization: "Bearer ${K}"}'
        yaml = f'retriever: fuse\nof: [{{retriever: http, url: "{server.url}", {key}}}]'
        answer = asked(built(f"{yaml}\ndistinct_docs: 1", K="sk-very-secret"))
    told = [answer.hits, *answer.lists.values()]
    assert len(told) >= 3
    assert "sk-very-secret" not in str(told)
    assert "a#${K}" in str(told)
