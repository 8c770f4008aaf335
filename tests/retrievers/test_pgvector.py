from __future__ import annotations

import numpy as np
import pytest
import small_corpus
from pg_systems import TABLE, by_sql
from small_corpus import BEST, TEXTS, ask, by_cosine, cosine, embed, ids

from karat.errors import CallError


@pytest.mark.parametrize("text", BEST)
def test_cosine_ranks_and_scores_as_numpy_does(on_table, text):
    hits = ask(on_table(), text)
    assert ids(hits) == by_cosine(text)
    expected = [cosine(embed(text), embed(TEXTS[item])) for item in ids(hits)]
    assert [hit.score for hit in hits] == pytest.approx(expected, abs=1e-6)
    assert [hit.similarity for hit in hits] == [hit.score for hit in hits]


@pytest.mark.parametrize("text", BEST)
def test_l2_is_the_negative_distance_between_the_vectors_as_they_are(on_table, text):
    hits = ask(on_table(f"{TABLE}, metric: l2"), text)
    distances = {item: np.linalg.norm(embed(text) - embed(body)) for item, body in TEXTS.items()}
    assert [hit.score for hit in hits] == pytest.approx(
        sorted(-d for d in distances.values())[::-1]
    )
    assert hits[0].similarity is None


@pytest.mark.parametrize("text", BEST)
def test_dot_is_the_inner_product(on_table, text):
    hits = ask(on_table(f"{TABLE}, metric: dot"), text)
    products = {item: float(embed(text) @ embed(body)) for item, body in TEXTS.items()}
    assert {hit.item_id: hit.score for hit in hits} == pytest.approx(products)
    assert [hit.score for hit in hits] == sorted(products.values(), reverse=True)


def test_columns_bring_text_and_version(on_table):
    hit = ask(
        on_table(f"{TABLE}, text: body, version: made, source: lang, doc_id: item"), "gravel"
    )[0]
    assert (hit.text, hit.version, hit.source, hit.doc_id) == (
        TEXTS[hit.item_id], "2024-05-01", "en", hit.item_id,
    )  # fmt: skip


def test_where_takes_the_query_s_attributes(on_table):
    found = on_table(f"{TABLE}, where: \"lang = %(language)s AND body NOT LIKE 'Apple%%'\"")
    assert ids(ask(found, "gravel roads", language="en")) == ["plain-4"]
    with pytest.raises(CallError, match=r"\{language\} is neither query, k nor an attribute"):
        ask(found, "gravel roads")


def test_a_value_is_never_sql(on_table):
    found = on_table(f'{TABLE}, where: "lang = %(language)s"')
    assert ask(found, "x", language="en'; DROP TABLE items; --") == []
    assert len(ask(found, "x", language="en")) == 1


def test_names_are_quoted(on_table, pg):
    pg.execute('CREATE TABLE "odd "";--" ("the %% id" INT, "select" vector(64))')
    pg.execute(f"""INSERT INTO "odd "";--" VALUES (7, '{embed("gravel").tolist()}')""")
    more = "table: 'odd \";--', id: 'the %% id', embedding: select"
    assert ids(ask(on_table(more), "gravel")) == ["7"]


def test_a_table_can_be_in_a_schema(on_table, pg):
    schema = pg.execute("SELECT current_schema()").fetchone()[0]
    assert len(ask(on_table(f"table: {schema}.items, id: item, embedding: place"), "gravel")) == 6


HYBRID = """
sql: |
  SELECT item AS item_id, body AS text,
         (1 - (place <=> %(vector)s)) + ts_rank(to_tsvector('simple', body),
          websearch_to_tsquery('simple', %(query)s)) AS score
  FROM items WHERE body NOT LIKE '%%spam%%' ORDER BY score DESC, item_id LIMIT %(k)s
"""


def test_sql_of_one_s_own_can_be_hybrid(on_table, pg, tmp_path):
    hits = ask(by_sql(pg, tmp_path, HYBRID), "gravel roads", 3)
    assert len(hits) == 3
    assert hits[0].item_id == "plain-4"
    assert hits[0].score > cosine(embed("gravel roads"), embed(TEXTS["plain-4"]))
    assert hits[0].text == TEXTS["plain-4"]
    assert "naïve#3" not in ids(ask(by_sql(pg, tmp_path, HYBRID), "spam", 10))


def test_sql_without_a_vector_needs_no_model(on_table, pg, tmp_path):
    words = (
        "sql: SELECT item AS id FROM items WHERE body ILIKE '%%' || %(query)s || '%%' "
        "ORDER BY item LIMIT %(k)s"
    )
    found = by_sql(pg, tmp_path, words, embed_key="")
    hits = ask(found, "spam")
    assert [(hit.item_id, hit.score) for hit in hits] == [("naïve#3", None)]
    assert "embedding_model" not in found.meta


def test_rows_of_sql_stay_as_they_come_duplicates_and_all(on_table, pg, tmp_path):
    words = "sql: SELECT x AS id FROM unnest(ARRAY['b','a','b']) AS t(x) WHERE %(query)s <> ''"
    found = by_sql(pg, tmp_path, words, embed_key="")
    assert ids(ask(found, "x")) == ["b", "a", "b"]
    assert ids(ask(found, "x", 2)) == ["b", "a"]


def test_rows_without_a_direction_are_not_near_anything(on_table, pg):
    zeros = str([0.0] * small_corpus.SIZE)
    pg.execute("INSERT INTO items VALUES ('zero', '', NULL, '', %s), ('none', '', NULL, '', NULL)",
               (zeros,))  # fmt: skip
    assert sorted(ids(ask(on_table(), "gravel roads"))) == sorted(TEXTS)
    assert ask(on_table(), "") == []
    assert "zero" in ids(ask(on_table(f"{TABLE}, metric: l2"), "gravel roads"))


def test_what_is_equally_near_is_in_the_order_of_ids(on_table, pg):
    pg.execute("CREATE TABLE ties (item INT, place vector(64))")
    near = str(embed("gravel").tolist())
    for item in (3, 1, 2):
        pg.execute("INSERT INTO ties VALUES (%s, %s)", (item, near))
    found = on_table("table: ties, id: item, embedding: place")
    assert ids(ask(found, "gravel")) == ["1", "2", "3"]


def test_an_index_is_used(on_table, pg):
    pg.execute("CREATE INDEX ON items USING hnsw (place vector_cosine_ops)")
    from karat.retrieve.pgvector import PgvectorOptions, statement_of

    table = {"dsn": "postgresql://", "table": "items", "id": "item", "embedding": "place"}
    statement = statement_of(PgvectorOptions.model_validate({**table, "embed": "x.py:embed"}))
    pg.execute("SET enable_seqscan = off")
    values = {"vector": str(embed("gravel").tolist()), "k": 2}
    plan = pg.execute(b"EXPLAIN " + statement.as_bytes(pg), values).fetchall()
    assert any("Index Scan" in row[0] for row in plan)


def test_nothing_can_be_changed_through_it(on_table, pg, tmp_path):
    words = (
        "sql: WITH gone AS (DELETE FROM items RETURNING item) SELECT item AS id FROM gone "
        "WHERE %(query)s <> ''"
    )
    with pytest.raises(CallError, match="read-only transaction; karat only reads"):
        ask(by_sql(pg, tmp_path, words, embed_key=""), "x")
    assert pg.execute("SELECT count(*) FROM items").fetchone()[0] == len(TEXTS)
