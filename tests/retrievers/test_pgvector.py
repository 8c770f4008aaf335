from __future__ import annotations

import gc
import json
import socket
import time

import numpy as np
import pytest
import small_corpus
from small_corpus import BEST, TEXTS, ask, by_cosine, cosine, embed, ids
from store_servers import fill_table, free_port

from karat.errors import CallError, InputError, KaratError
from karat.retrievers.protocol import Query
from karat.retrievers.runner import Failed, Limits, Runner

TABLE = "table: items, id: item, embedding: place"


@pytest.fixture
def made(pg, tmp_path):
    """A system on a table of the small corpus."""
    fill_table(pg, TEXTS)
    small_corpus.write_embed(tmp_path)

    def make(more: str = TABLE, embedded: str | None = "embed.py:embed", **shop):
        model = "" if embedded is None else f', embed: "{embedded}"'
        shop.setdefault("environment", {"DATABASE_URL": pg.dsn})
        spec = f'{{retriever: pgvector, dsn: "${{DATABASE_URL}}", {more}{model}}}'
        return small_corpus.system(small_corpus.workshop(tmp_path, **shop), spec)

    return make


@pytest.mark.parametrize("text", BEST)
def test_cosine_ranks_and_scores_as_numpy_does(made, text):
    hits = ask(made(), text)
    assert ids(hits) == by_cosine(text)
    expected = [cosine(embed(text), embed(TEXTS[item])) for item in ids(hits)]
    assert [hit.score for hit in hits] == pytest.approx(expected, abs=1e-6)
    assert [hit.similarity for hit in hits] == [hit.score for hit in hits]


@pytest.mark.parametrize("text", BEST)
def test_l2_is_the_negative_distance_between_the_vectors_as_they_are(made, text):
    hits = ask(made(f"{TABLE}, metric: l2"), text)
    distances = {item: np.linalg.norm(embed(text) - embed(body)) for item, body in TEXTS.items()}
    assert [hit.score for hit in hits] == pytest.approx(
        sorted(-d for d in distances.values())[::-1]
    )
    assert hits[0].similarity is None


@pytest.mark.parametrize("text", BEST)
def test_dot_is_the_inner_product(made, text):
    hits = ask(made(f"{TABLE}, metric: dot"), text)
    products = {item: float(embed(text) @ embed(body)) for item, body in TEXTS.items()}
    assert {hit.item_id: hit.score for hit in hits} == pytest.approx(products)
    assert [hit.score for hit in hits] == sorted(products.values(), reverse=True)


def test_columns_bring_text_and_version(made):
    hit = ask(made(f"{TABLE}, text: body, version: made, source: lang, doc_id: item"), "gravel")[0]
    assert (hit.text, hit.version, hit.source, hit.doc_id) == (
        TEXTS[hit.item_id], "2024-05-01", "en", hit.item_id,
    )  # fmt: skip


def test_where_takes_the_query_s_attributes(made):
    found = made(f"{TABLE}, where: \"lang = %(language)s AND body NOT LIKE 'Apple%%'\"")
    assert ids(ask(found, "gravel roads", language="en")) == ["plain-4"]
    with pytest.raises(CallError, match=r"%\(language\)s is not an attribute of query 'q1'"):
        ask(found, "gravel roads")


def test_a_value_is_never_sql(made):
    found = made(f'{TABLE}, where: "lang = %(language)s"')
    assert ask(found, "x", language="en'; DROP TABLE items; --") == []
    assert len(ask(found, "x", language="en")) == 1


def test_names_are_quoted(made, pg):
    pg.execute('CREATE TABLE "odd "";--" ("the %% id" INT, "select" vector(64))')
    pg.execute(f"""INSERT INTO "odd "";--" VALUES (7, '{embed("gravel").tolist()}')""")
    more = "table: 'odd \";--', id: 'the %% id', embedding: select"
    assert ids(ask(made(more), "gravel")) == ["7"]


def test_a_table_can_be_in_a_schema(made, pg):
    schema = pg.execute("SELECT current_schema()").fetchone()[0]
    assert len(ask(made(f"table: {schema}.items, id: item, embedding: place"), "gravel")) == 6


HYBRID = """
sql: |
  SELECT item AS item_id, body AS text,
         (1 - (place <=> %(vector)s)) + ts_rank(to_tsvector('simple', body),
          websearch_to_tsquery('simple', %(query)s)) AS score
  FROM items WHERE body NOT LIKE '%%spam%%' ORDER BY score DESC, item_id LIMIT %(k)s
"""


def built(pg, tmp_path, more: str, embed_key: str = "embed: embed.py:embed\n", **shop):
    spec = f"retriever: pgvector\ndsn: ${{DATABASE_URL}}\n{embed_key}{more.strip()}\n"
    indented = "".join(f"    {line}\n" for line in spec.splitlines())
    shop.setdefault("environment", {"DATABASE_URL": pg.dsn})
    return small_corpus.built(
        small_corpus.workshop(tmp_path, **shop), f"systems:\n  one:\n{indented}"
    )


def test_sql_of_one_s_own_can_be_hybrid(made, pg, tmp_path):
    hits = ask(built(pg, tmp_path, HYBRID), "gravel roads", 3)
    assert len(hits) == 3
    assert hits[0].item_id == "plain-4"
    assert hits[0].score > cosine(embed("gravel roads"), embed(TEXTS["plain-4"]))
    assert hits[0].text == TEXTS["plain-4"]
    assert "naïve#3" not in ids(ask(built(pg, tmp_path, HYBRID), "spam", 10))


def test_sql_without_a_vector_needs_no_model(made, pg, tmp_path):
    words = (
        "sql: SELECT item AS id FROM items WHERE body ILIKE '%%' || %(query)s || '%%' "
        "ORDER BY item LIMIT %(k)s"
    )
    found = built(pg, tmp_path, words, embed_key="")
    hits = ask(found, "spam")
    assert [(hit.item_id, hit.score) for hit in hits] == [("naïve#3", None)]
    assert "embedding_model" not in found.meta


def test_rows_of_sql_stay_as_they_come_duplicates_and_all(made, pg, tmp_path):
    words = "sql: SELECT x AS id FROM unnest(ARRAY['b','a','b']) AS t(x) WHERE %(query)s <> ''"
    found = built(pg, tmp_path, words, embed_key="")
    assert ids(ask(found, "x")) == ["b", "a", "b"]
    assert ids(ask(found, "x", 2)) == ["b", "a"]


def test_rows_without_a_direction_are_not_near_anything(made, pg):
    zeros = str([0.0] * small_corpus.SIZE)
    pg.execute("INSERT INTO items VALUES ('zero', '', NULL, '', %s), ('none', '', NULL, '', NULL)",
               (zeros,))  # fmt: skip
    assert sorted(ids(ask(made(), "gravel roads"))) == sorted(TEXTS)
    assert ask(made(), "") == []
    assert "zero" in ids(ask(made(f"{TABLE}, metric: l2"), "gravel roads"))


def test_what_is_equally_near_is_in_the_order_of_ids(made, pg):
    pg.execute("CREATE TABLE ties (item INT, place vector(64))")
    near = str(embed("gravel").tolist())
    for item in (3, 1, 2):
        pg.execute("INSERT INTO ties VALUES (%s, %s)", (item, near))
    found = made("table: ties, id: item, embedding: place")
    assert ids(ask(found, "gravel")) == ["1", "2", "3"]


def test_an_index_is_used(made, pg):
    pg.execute("CREATE INDEX ON items USING hnsw (place vector_cosine_ops)")
    from karat.retrievers.pgvector_sql import statement_of

    statement = statement_of("items", {"item_id": "item"}, "place", "cosine", None)
    pg.execute("SET enable_seqscan = off")
    values = {"vector": str(embed("gravel").tolist()), "k": 2}
    plan = pg.execute(b"EXPLAIN " + statement.as_bytes(pg), values).fetchall()
    assert any("Index Scan" in row[0] for row in plan)


def test_nothing_can_be_changed_through_it(made, pg, tmp_path):
    words = (
        "sql: WITH gone AS (DELETE FROM items RETURNING item) SELECT item AS id FROM gone "
        "WHERE %(query)s <> ''"
    )
    with pytest.raises(CallError, match="read-only transaction; karat only reads"):
        ask(built(pg, tmp_path, words, embed_key=""), "x")
    assert pg.execute("SELECT count(*) FROM items").fetchone()[0] == len(TEXTS)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("table: gone, id: item, embedding: place", 'relation "gone" does not exist; check table'),
        ("table: items, id: uid, embedding: place", 'column "uid" does not exist; check id'),
        ("table: items, id: item, embedding: body", "operator does not exist: text <=>"),
        (f"{TABLE}, where: 'lang ='", "syntax error"),
        ("table: small, id: item, embedding: place", "different vector dimensions 3 and 64; the "),
    ],
)
def test_what_does_not_fit_is_one_line_that_says_what_to_do(made, pg, more, told):
    pg.execute("CREATE TABLE small (item INT, place vector(3))")
    pg.execute("INSERT INTO small VALUES (1, '[1,2,3]')")
    found = made(more)
    with pytest.raises(CallError) as caught:
        ask(found, "x")
    assert told in str(caught.value)
    assert str(caught.value).startswith("PostgreSQL: ")
    assert "\n" not in str(caught.value)
    assert not caught.value.may_pass


def test_a_missing_extension_is_told(made, pg_server):
    pg_server.psql("CREATE DATABASE bare;")
    bare = pg_server.get_uri().replace("/postgres?", "/bare?")
    import psycopg

    with psycopg.connect(bare, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (item TEXT, place REAL[])")
    found = made(environment={"DATABASE_URL": bare})
    with pytest.raises(CallError, match=r"is the extension vector there \(CREATE EXTENSION vector"):
        ask(found, "x")


def test_a_lost_connection_may_pass_and_is_replaced(made, pg):
    found = made()
    assert len(ask(found, "x")) == 6
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'karat'"
    assert pg.execute(kill).fetchall()
    with pytest.raises(CallError, match="terminating connection") as caught:
        ask(found, "x")
    assert caught.value.may_pass
    assert len(ask(found, "x")) == 6


def test_connections_are_kept_and_closed_with_the_system(made, pg):
    gc.collect()
    until(lambda: connections(pg) == 0)
    found = made()
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


def test_calls_at_once_have_a_connection_each(made):
    found = made()
    assert found.concurrency > 1
    queries = [Query(f"q{at}", text) for at, text in enumerate([*BEST] * 5)]
    runner = Runner(found, 3, Limits(concurrency=found.concurrency, retries=0))
    for query, outcome in runner.outcomes(queries):
        assert not isinstance(outcome, Failed)
        assert ids(outcome.hits) == by_cosine(query.text)[:3]


def test_a_query_that_takes_too_long_is_stopped_by_the_server(made, pg, tmp_path):
    words = "sql: SELECT 'a' AS id, pg_sleep(20) WHERE %(query)s <> ''"
    found = built(pg, tmp_path, words, embed_key="", timeout=0.3)
    with pytest.raises(CallError, match=r"PostgreSQL took longer than 0\.3 s") as caught:
        ask(found, "x")
    assert caught.value.may_pass
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query ~ 'pg_sleep'"
    assert pg.execute(running).fetchone()[0] == 1  # this one


def test_texts_that_postgresql_cannot_hold_fail_alone(made, pg, tmp_path):
    words = "sql: SELECT item AS id FROM items WHERE body = %(query)s"
    found = built(pg, tmp_path, words, embed_key="")
    for text in ("a\0b", "a\ud800b"):
        with pytest.raises(CallError) as caught:
            ask(found, text)
        assert not caught.value.may_pass
    assert ids(ask(found, TEXTS["plain-4"])) == ["plain-4"]


DOWN = "postgresql://ann:s3cret-w0rd@127.0.0.1:{port}/db"


def test_a_server_that_is_down_may_be_up_later(made):
    found = made(environment={"DATABASE_URL": DOWN.format(port=free_port())})
    with pytest.raises(CallError, match="Connection refused") as caught:
        ask(found, "x")
    assert caught.value.may_pass
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in json.dumps(dict(found.meta))


def test_a_database_that_is_not_there_will_not_be_there_later(made, pg_server):
    gone = pg_server.get_uri().replace("/postgres?", "/gone?")
    with pytest.raises(CallError, match='database "gone" does not exist') as caught:
        ask(made(environment={"DATABASE_URL": gone}), "x")
    assert not caught.value.may_pass


def test_a_server_that_says_nothing_is_given_up(made):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = DOWN.format(port=silent.getsockname()[1])
        found = made(environment={"DATABASE_URL": url}, timeout=0.3)
        with pytest.raises(CallError, match=r"took longer|timeout") as caught:
            ask(found, "x")
    assert caught.value.may_pass


def test_a_password_never_shows_even_where_the_server_repeats_it(made, pg):
    url = pg.dsn.replace("postgres:@", "postgres:s3cret-w0rd@")
    more = f"{TABLE}, where: \"1 = 's3cret-w0rd'::int\""
    with pytest.raises(CallError) as caught:
        ask(made(more, environment={"DATABASE_URL": url}), "x")
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
    shop = small_corpus.workshop(folder, environment)
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
        ("sql: 'SELECT %(query)s', metric: l2", None, "metric is for a table; with sql leave it"),
        ("sql: 'SELECT %(query)s'", "embed.py:embed", "embed is for a vector, and sql has no"),
        ("sql: 'SELECT %(vector)s'", None, "neither model nor embed is given"),
        ("sql: \"SELECT %(query)s LIKE 'a%'\"", None, "a per cent sign %%"),
        ("sql: 'SELECT %s'", None, "placeholders are written %(name)s"),
        (f"{TABLE}, where: 'a % 2 = 0'", "embed.py:embed", "where holds %"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_call(made, more, embedded, told):
    with pytest.raises(KaratError) as caught:
        made(more, embedded)
    assert told in str(caught.value)


def test_a_wrong_metric_is_refused_with_its_line(made):
    with pytest.raises(InputError, match="metric is 'cosinus'; it must be cosine, l2 or dot"):
        made(f"{TABLE}, metric: cosinus")
