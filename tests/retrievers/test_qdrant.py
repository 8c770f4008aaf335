from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import small_corpus
from small_corpus import BEST, TEXTS, ask, by_cosine, cosine, embed, ids
from store_servers import fill_qdrant

from karat.errors import CallError, InputError, KaratError
from karat.retrieve.protocol import Query
from karat.retrieve.search import CallRunner, FailedCall


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Collections that Qdrant's local mode keeps on disk."""
    from qdrant_client import QdrantClient, models

    place = tmp_path_factory.mktemp("qdrant")
    client = QdrantClient(path=str(place / "kept"))
    fill_qdrant(client, "items")
    size = small_corpus.SIZE
    fill_qdrant(client, "far", size=size, distance=models.Distance.EUCLID)
    fill_qdrant(client, "product", size=size, distance=models.Distance.DOT)
    named = models.VectorParams(size=3, distance=models.Distance.COSINE)
    client.create_collection("named", vectors_config={"small": named, "large": named})
    points = [
        models.PointStruct(id=7, vector={"small": [1, 0, 0]}),
        models.PointStruct(id="12345678-1234-5678-1234-567812345678", vector={"small": [0, 1, 0]}),
    ]
    client.upsert("named", points)
    client.close()
    (place / "kept" / "three.py").write_text("def embed(texts):\n    return [[1, 0.5, 0]]\n")
    small_corpus.write_embed(place)
    return place


@pytest.fixture
def made(folder):
    def make(more: str = "collection: items, embed: embed.py:embed", **shop):
        spec = f"{{retriever: qdrant, {more}}}"
        return small_corpus.system(small_corpus.context(folder, **shop), spec)

    return lambda more="collection: items", embedded="embed.py:embed", **shop: make(
        f'path: kept, {more}, embed: "{embedded}"', **shop
    )


@pytest.mark.parametrize("text", BEST)
def test_local_mode_ranks_as_exact_cosine_does(made, text):
    hits = ask(made(), text)
    assert ids(hits) == by_cosine(text)
    expected = [cosine(embed(text), embed(TEXTS[item])) for item in ids(hits)]
    assert [hit.score for hit in hits] == pytest.approx(expected, abs=1e-6)
    assert [hit.similarity for hit in hits] == [hit.score for hit in hits]


def test_a_distance_becomes_a_score_that_is_high_for_what_is_near(made):
    text = "gravel roads"
    hits = ask(made("collection: far"), text)
    distances = {item: np.linalg.norm(embed(text) - embed(body)) for item, body in TEXTS.items()}
    assert ids(hits) == sorted(distances, key=lambda item: distances[item])
    assert hits[0].score == pytest.approx(-min(distances.values()), rel=1e-6)
    assert hits[0].similarity is None


def test_a_product_is_of_the_vectors_as_they_are(made):
    text = "gravel roads"
    hits = ask(made("collection: product"), text)
    products = {item: float(embed(text) @ embed(body)) for item, body in TEXTS.items()}
    assert hits[0].item_id == max(products, key=lambda item: products[item])
    assert hits[0].score == pytest.approx(max(products.values()), rel=1e-6)


def test_ids_come_from_the_payload_even_from_deep_in_it(made):
    deep = made("collection: items, id: metadata.chunk, version: metadata.version, text: body")
    hit = ask(deep, "gravel roads", 1)[0]
    assert (hit.item_id, hit.version, hit.text) == ("m plain-4", "3", TEXTS["plain-4"])


def test_without_an_id_in_the_payload_the_point_s_own_is_taken(made):
    found = made("collection: named, vector_name: small", "kept/three.py:embed")
    assert ids(ask(found, "x")) == ["7", "12345678-1234-5678-1234-567812345678"]


def test_a_filter_of_qdrant_s_own_takes_the_query_s_attributes(made):
    where = 'where: {must: [{key: lang, match: {value: "{language}"}}]}'
    found = made(f"collection: items, {where}")
    english = {item for item, text in TEXTS.items() if text.isascii()}
    assert set(ids(ask(found, "gravel roads", language="en"))) == english
    assert len(ask(found, "gravel roads", language="other")) == len(TEXTS) - len(english)
    with pytest.raises(CallError, match=r"where is not a filter of Qdrant's: musst"):
        ask(made("collection: items, where: {musst: []}"), "apple", 1)
    with pytest.raises(CallError, match=r"\{language\} is neither query, k nor an attribute"):
        ask(found, "gravel roads")


def test_times_of_embedding_and_searching_are_told_apart(made):
    answer = made().find([Query("q1", "gravel roads")], 3)[0]
    assert answer.latency.keys() >= {"embed", "search", "retrieve"}
    assert answer.latency["embed"] + answer.latency["search"] <= answer.latency["retrieve"]


def test_two_systems_can_share_a_folder(made):
    first, second = made(), made("collection: product")
    assert ids(ask(first, "gravel roads", 1)) == ["plain-4"]
    assert len(ask(second, "gravel roads", 2)) == 2


def test_a_folder_is_free_again_when_the_system_is_gone(made, folder):
    from qdrant_client import QdrantClient

    gc.collect()
    found = made()
    ask(found, "gravel roads", 1)
    del found
    client = QdrantClient(path=str(folder / "kept"))
    assert client.get_collections().collections
    client.close()


def test_a_folder_that_another_thread_is_closing_is_waited_for(made, monkeypatch):
    from qdrant_client import QdrantClient

    gc.collect()
    closing, go_on = threading.Event(), threading.Event()
    close = QdrantClient.close

    def slow_close(client):
        closing.set()
        go_on.wait(30)
        close(client)

    monkeypatch.setattr(QdrantClient, "close", slow_close)
    held = [made()]
    ask(held[0], "gravel roads", 1)
    dropped = threading.Thread(target=held.clear)
    dropped.start()
    assert closing.wait(30)
    threading.Timer(0.2, go_on.set).start()
    assert ids(ask(made(), "gravel roads", 1)) == ["plain-4"]
    dropped.join()


@pytest.fixture
def _collected():
    yield
    gc.collect()


# The library leaves the lock that it did not get to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("_collected")
def test_a_folder_in_use_elsewhere_is_refused(made, folder):
    from qdrant_client import QdrantClient

    gc.collect()
    other = QdrantClient(path=str(folder / "kept"))
    try:
        with pytest.raises(KaratError, match="already accessed by another instance"):
            made()
    finally:
        other.close()


def test_many_calls_at_once_give_what_one_gives(made):
    found = made()
    queries = [Query(f"q{at}", text) for at, text in enumerate([*BEST] * 10)]
    assert found.concurrency == 1
    runner = CallRunner(found.find, 3, concurrency=8, retries=0)
    for query, outcome in runner.outcomes(queries):
        assert not isinstance(outcome, FailedCall)
        assert ids(outcome.hits) == by_cosine(query.text)[:3]


@pytest.mark.parametrize(
    ("more", "embedded", "told"),
    [
        ("collection: gone", "embed.py:embed", "qdrant has no collection 'gone'"),
        ("collection: items", "kept/three.py:embed", "of 64 numbers, and the model makes 3"),
        ("collection: named", "kept/three.py:embed", "has small, large; set vector_name to one"),
        ("collection: named, vector_name: x", "kept/three.py:embed", "set vector_name to one"),
        ("collection: items, vector_name: x", "embed.py:embed", "leave out vector_name"),
        ("collection: items, id: uid", "embed.py:embed", "has a record without 'uid'; it has item"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_a_failed_call_that_says_what_to_do(made, more, embedded, told):
    found = made(more, embedded)
    with pytest.raises(CallError) as caught:
        ask(found, "x")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not caught.value.may_pass


def spec(tmp_path, more: str, **shop):
    small_corpus.write_embed(tmp_path)
    shop = small_corpus.context(tmp_path, **shop)
    return small_corpus.system(shop, f'{{retriever: qdrant, {more}, embed: "embed.py:embed"}}')


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("collection: a", "give url, of a server, or path"),
        ("url: http://h, path: p, collection: a", "give url, of a server, or path"),
        ("path: p, collection: a, api_key: x", "api_key is for a server"),
        ("url: http://h, collection: a, api_key: x", "api_key holds a credential as it is"),
        ("url: http://u:secret@h, collection: a", "url holds a user or password"),
        ("url: h, collection: a", "url must begin with http:// or https://"),
        ("url: 'u:secret@h', collection: a", "url must begin with http:// or https://"),
        ('url: http://h, collection: a, api_key: "${NOPE}"', "variable NOPE is not set"),
        ("url: http://h, collection: a, model: b", "both model and embed are given"),
        ("url: http://h, collection: a, model_path: b", "model_path is for a model"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_call(tmp_path, more, told):
    with pytest.raises(KaratError) as caught:
        spec(tmp_path, more)
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_folder_that_is_not_there_is_refused_and_not_made(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        spec(tmp_path, "path: gone, collection: a")
    assert not (tmp_path / "gone").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no collections"):
        spec(tmp_path, "path: empty, collection: a")
    assert not list((tmp_path / "empty").iterdir())


def test_a_model_that_is_not_there_is_told_by_the_key_of_its_folder(folder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    model = "model: sentence-transformers/all-MiniLM-L6-v2"
    shop = small_corpus.context(folder)
    at = "{retriever: qdrant, path: kept, collection: items, " + model
    with pytest.raises(KaratError, match="name a folder with its files"):
        small_corpus.system(shop, at + "}")
    with pytest.raises(InputError, match="no such folder; it must be a folder with"):
        small_corpus.system(shop, at + ", model_path: gone}")


def test_a_real_model_makes_the_query_s_vector(tmp_path, minilm):
    from fastembed import TextEmbedding
    from model_folders import MINILM
    from qdrant_client import QdrantClient, models

    model = TextEmbedding(MINILM, specific_model_path=str(minilm))
    client = QdrantClient(path=str(tmp_path / "kept"))
    size = models.VectorParams(size=384, distance=models.Distance.COSINE)
    client.create_collection("items", vectors_config=size)
    items = {"pay": "How to pay an invoice", "send": "Sending parcels back", "cat": "Cats purr"}
    rows = model.passage_embed(list(items.values()), batch_size=1)
    points = [
        models.PointStruct(id=at, vector=row.tolist(), payload={"item_id": item})
        for at, (item, row) in enumerate(zip(items, rows, strict=True))
    ]
    client.upsert("items", points)
    client.close()
    found = small_corpus.system(
        small_corpus.context(tmp_path),
        f"{{retriever: qdrant, path: kept, collection: items, model: {MINILM}, "
        f'model_path: "{minilm}"}}',
    )
    assert ids(ask(found, "return a package", 1)) == ["send"]
    answer = found.find([Query("q1", "settle the bill")], 1)[0]
    assert ids(answer.hits) == ["pay"]
    assert answer.cost["query_tokens"] == 5  # with the two that begin and end every text
    assert found.meta["embedding_model"]["name"] == MINILM
