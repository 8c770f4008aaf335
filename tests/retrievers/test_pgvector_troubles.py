from __future__ import annotations

import gc
import json
import socket
import time

import pytest
import small_corpus
from pg_systems import TABLE, by_sql
from small_corpus import BEST, TEXTS, ask, by_cosine, ids
from store_servers import free_port

from karat.errors import CallError, InputError, KaratError
from karat.retrieve.protocol import Query
from karat.retrieve.search import CallRunner, FailedCall


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("table: gone, id: item, embedding: place", 'relation "gone" does not exist; check table'),
        ("table: items, id: uid, embedding: place", 'column "uid" does not exist; check'),
        ("table: items, id: item, embedding: body", "operator does not exist: text <=>"),
        (f"{TABLE}, where: 'lang ='", "syntax error"),
        (
            "table: small, id: item, embedding: place",
            "dimensions 3 and 64; use the ",
        ),
    ],
)
def test_what_does_not_fit_is_one_line_that_says_what_to_do(on_table, pg, more, told):
    pg.execute("CREATE TABLE small (item INT, place vector(3))")
    pg.execute("INSERT INTO small VALUES (1, '[1,2,3]')")
    found = on_table(more)
    with pytest.raises(CallError) as caught:
        ask(found, "x")
    assert told in str(caught.value)
    assert str(caught.value).startswith("PostgreSQL: ")
    assert "\n" not in str(caught.value)
    assert not caught.value.may_pass


def test_a_missing_extension_is_told(on_table, pg_server):
    pg_server.psql("CREATE DATABASE bare;")
    bare = pg_server.get_uri().replace("/postgres?", "/bare?")
    import psycopg

    with psycopg.connect(bare, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (item TEXT, place REAL[])")
    found = on_table(environment={"DATABASE_URL": bare})
    with pytest.raises(CallError, match=r"is the extension vector there \(CREATE EXTENSION vector"):
        ask(found, "x")


def test_a_lost_connection_may_pass_and_is_replaced(on_table, pg):
    found = on_table()
    assert len(ask(found, "x")) == 6
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'karat'"
    assert pg.execute(kill).fetchall()
    with pytest.raises(CallError, match="terminating connection") as caught:
        ask(found, "x")
    assert caught.value.may_pass
    assert len(ask(found, "x")) == 6


def test_connections_are_kept_and_closed_with_the_system(on_table, pg):
    gc.collect()
    until(lambda: connections(pg) == 0)
    found = on_table()
    for _ in range(5):
        ask(found, "x")
    assert connections(pg) == 1
    del found
    until(lambda: connections(pg) == 0)


def connections(pg) -> int:
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'karat'"
    return pg.execute(count).fetchone()[0]


def until(true) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_calls_at_once_have_a_connection_each(on_table):
    found = on_table()
    assert found.concurrency > 1
    queries = [Query(f"q{at}", text) for at, text in enumerate([*BEST] * 5)]
    runner = CallRunner(found.find, 3, concurrency=found.concurrency, retries=0)
    for query, outcome in runner.outcomes(queries):
        assert not isinstance(outcome, FailedCall)
        assert ids(outcome.hits) == by_cosine(query.text)[:3]


def test_a_query_that_takes_too_long_is_stopped_by_the_server(on_table, pg, tmp_path):
    words = "sql: SELECT 'a' AS id, pg_sleep(20) WHERE %(query)s <> ''"
    found = by_sql(pg, tmp_path, words, embed_key="", timeout=0.3)
    with pytest.raises(CallError, match=r"PostgreSQL took longer than 0\.3 s") as caught:
        ask(found, "x")
    assert caught.value.may_pass
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query ~ 'pg_sleep'"
    assert pg.execute(running).fetchone()[0] == 1  # this one


def test_texts_that_postgresql_cannot_hold_fail_alone(on_table, pg, tmp_path):
    words = "sql: SELECT item AS id FROM items WHERE body = %(query)s"
    found = by_sql(pg, tmp_path, words, embed_key="")
    for text in ("a\0b", "a\ud800b"):
        with pytest.raises(CallError) as caught:
            ask(found, text)
        assert not caught.value.may_pass
    assert ids(ask(found, TEXTS["plain-4"])) == ["plain-4"]


DOWN = "postgresql://ann:s3cret-w0rd@127.0.0.1:{port}/db"


def test_a_server_that_is_down_may_be_up_later(on_table):
    found = on_table(environment={"DATABASE_URL": DOWN.format(port=free_port())})
    with pytest.raises(CallError, match="Connection refused") as caught:
        ask(found, "x")
    assert caught.value.may_pass
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in json.dumps(dict(found.meta))


def test_a_database_that_is_not_there_will_not_be_there_later(on_table, pg_server):
    gone = pg_server.get_uri().replace("/postgres?", "/gone?")
    with pytest.raises(CallError, match='database "gone" does not exist') as caught:
        ask(on_table(environment={"DATABASE_URL": gone}), "x")
    assert not caught.value.may_pass


def test_a_server_that_says_nothing_is_given_up(on_table):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = DOWN.format(port=silent.getsockname()[1])
        found = on_table(environment={"DATABASE_URL": url}, timeout=0.3)
        with pytest.raises(CallError, match=r"took longer|timeout") as caught:
            ask(found, "x")
    assert caught.value.may_pass


def test_a_password_never_shows_even_where_the_server_repeats_it(on_table, pg):
    url = pg.dsn.replace("postgres:@", "postgres:s3cret-w0rd@")
    more = f"{TABLE}, where: \"1 = 's3cret-w0rd'::int\""
    with pytest.raises(CallError) as caught:
        ask(on_table(more, environment={"DATABASE_URL": url}), "x")
    assert "s3cret" not in str(caught.value)
    assert "${DATABASE_URL:password}" in str(caught.value)


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        ("postgresql://ann:s3cret@host/db", "dsn has a password written out"),
        ("postgresql://ann@host/db?password=s3cret", "dsn has a password written out"),
        ("host=a user=ann password=s3cret", "dsn has a password written out"),
        ("host=a user=ann password = 's3cret'", "dsn has a password written out"),
        ("postgresql://ann:pre${GOOD}@host/db", "dsn has a password written out"),
        ("${NOPE}", "environment variable NOPE is not set"),
        ("${ALCHEMY}", "dsn cannot be read; postgresql://user@host/database is expected"),
        ("${AT}", "in a password write @ as %40"),
        ("${SLASH}", "in a password write @ as %40"),
    ],
)
def test_a_connection_string_is_checked_without_repeating_it(tmp_path, dsn, told):
    environment = {
        "GOOD": "s3cret",
        "ALCHEMY": "postgresql+psycopg://ann:s3cret@host/db",
        "AT": "postgresql://ann:p@s3cret@host/db",
        "SLASH": "postgresql://ann:s3cret/s3cret@host/db",
    }
    with pytest.raises(KaratError) as caught:
        with_dsn(dsn, tmp_path, environment)
    assert told in str(caught.value)
    assert "s3cret" not in str(caught.value)


def with_dsn(dsn, folder, environment):
    small_corpus.write_embed(folder)
    shop = small_corpus.context(folder, environment)
    small_corpus.system(
        shop, f'{{retriever: pgvector, dsn: "{dsn}", {TABLE}, embed: "embed.py:embed"}}'
    )
    return shop


@pytest.mark.parametrize(
    "dsn", ["postgresql://${USER}:${PASSWORD}@host/db", "host=a password=${PASSWORD}", "host=a"]
)
def test_a_password_by_name_is_fine_and_hidden(tmp_path, dsn):
    shop = with_dsn(dsn, tmp_path, {"USER": "ann", "PASSWORD": "s3cret"})
    assert ("s3cret" in shop.redact("the s3cret")) == ("PASSWORD" not in dsn)


@pytest.mark.parametrize(
    ("more", "embedded", "told"),
    [
        ("metric: l2", "embed.py:embed", "give table, with id and embedding, or sql"),
        ("table: a, sql: b", "embed.py:embed", "give table, with id and embedding, or sql"),
        ("table: a", "embed.py:embed", "id is missing; name the column of table a"),
        ("table: a, id: b", "embed.py:embed", "embedding is missing"),
        ("table: a., id: b, embedding: c", "embed.py:embed", "it must be a name, or schema.table"),
        ("sql: 'SELECT 1'", "embed.py:embed", "has neither %(vector)s nor %(query)s"),
        ("sql: 'SELECT %(query)s', metric: l2", None, "metric has no effect on this sql; leave it"),
        ("sql: 'SELECT %(query)s'", "embed.py:embed", "embed has no effect on this sql"),
        ("sql: 'SELECT %(vector)s'", None, "neither model nor embed is given"),
        ("sql: \"SELECT %(query)s LIKE 'a%'\"", None, "a per cent sign %%"),
        ("sql: 'SELECT %s'", None, "placeholders are written %(name)s"),
        (f"{TABLE}, where: 'a % 2 = 0'", "embed.py:embed", "where holds %"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_call(on_table, more, embedded, told):
    with pytest.raises(KaratError) as caught:
        on_table(more, embedded)
    assert told in str(caught.value)


def test_a_wrong_metric_is_refused_with_its_line(on_table):
    with pytest.raises(InputError, match="metric is 'cosinus'; it must be cosine, l2 or dot"):
        on_table(f"{TABLE}, metric: cosinus")
