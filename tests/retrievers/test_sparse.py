"""Sparse embeddings: worked out by hand, and against Qdrant on the same vectors."""

from __future__ import annotations

import logging
import math
import sys
from importlib.metadata import version

import model_folders
import numpy as np
import pytest

from karat.data.tables import Corpus
from karat.errors import InputError, MissingExtraError, UsageError
from karat.formats.settings import Place
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.sparse import TERMS
from karat.retrieve.system import build_system
from karat.retrieve.system_config import parse_systems
from karat.retrieve.vectors import VectorCache

# Tokens of the words: storm 4040, sea 2712, calm 5475, wind 3612.
TEXTS = {
    "both": "storm sea",
    "sea": "sea",
    "calm": "calm",
    "storms": "storm storm storm",
    "nothing": "",
}


def build(folder, corpus, **spec):
    spec = {"retriever": "sparse", **spec}
    system_config = parse_systems({"sparse": spec}, Place("karat.yaml"))["sparse"]
    table = Corpus.from_dict(corpus)
    return build_system(
        system_config, BuildContext(corpus=lambda: table, folder=folder, cache=folder / ".karat")
    )


def found(system, text, k=10):
    (answer,) = system.find([Query("1", text)], k)
    return [(hit.item_id, hit.score) for hit in answer.hits]


@pytest.fixture
def system(splade, tmp_path):
    return build(tmp_path, TEXTS, model=model_folders.SPLADE, path=str(splade))


def test_scores_are_sums_over_shared_terms(system):
    # A token t weighs log(1 + 1 + t % 5), its neighbour t + 1 log(1.5): see model_folders.
    storm, beside = math.log(2), math.log(1.5)
    assert found(system, "storm") == [
        ("both", pytest.approx(storm**2 + beside**2)),
        ("storms", pytest.approx(storm**2 + beside**2)),
    ]
    sea = math.log(4)
    assert found(system, "storm sea") == [
        ("both", pytest.approx(storm**2 + sea**2 + 2 * beside**2)),
        ("sea", pytest.approx(sea**2 + beside**2)),
        ("storms", pytest.approx(storm**2 + beside**2)),
    ]


def test_items_that_share_nothing_are_left_out_and_ties_are_in_corpus_order(system):
    assert [item for item, _ in found(system, "storm")] == ["both", "storms"]
    assert found(system, "harbour") == []
    assert found(system, "") == []
    assert found(system, "storm", k=1) == found(system, "storm")[:1]


def test_what_a_call_took_is_told(system):
    (answer,) = system.find([Query("1", "storm sea")], 5)
    assert answer.cost["query_tokens"] == 4
    assert answer.latency["embed"] > 0
    assert answer.latency["search"] > 0
    assert system.meta["embedding_model"]["name"] == model_folders.SPLADE
    assert system.meta["libraries"]["fastembed"] == version("fastembed")
    assert system.meta["embedding_updates"] == 5
    assert system.meta["index_bytes"] > 0


def test_a_second_build_embeds_only_new_texts(splade, tmp_path):
    options = {"model": model_folders.SPLADE, "path": str(splade)}
    first = build(tmp_path, TEXTS, **options)
    again = build(tmp_path, TEXTS | {"new": "wind"}, **options)
    assert again.meta["embedding_updates"] == 1
    assert found(first, "storm sea") == found(again, "storm sea")
    shorter = build(tmp_path, TEXTS, **options, max_length=5)
    assert shorter.meta["embedding_updates"] == 5


def test_a_damaged_cache_is_made_again(splade, tmp_path, caplog):
    options = {"model": model_folders.SPLADE, "path": str(splade)}
    expected = found(build(tmp_path, TEXTS, **options), "storm sea")
    (part,) = tmp_path.glob(".karat/vectors/*/*.npz")
    part.write_bytes(part.read_bytes()[:-30])
    with caplog.at_level(logging.WARNING, logger="karat"):
        again = build(tmp_path, TEXTS, **options)
    assert "is damaged" in caplog.text
    assert again.meta["embedding_updates"] == 5
    assert found(again, "storm sea") == expected


def _terms(*weights: tuple[int, float]) -> np.ndarray:
    return np.array(list(weights), dtype=TERMS)


def test_vectors_come_back_from_a_file_as_they_were(tmp_path):
    vectors = {"a": _terms((3, 0.5), (2**31, 1.5)), "b": _terms(), "c": _terms((1, 2.0))}

    def filled() -> tuple[dict[int, list], int]:
        rows: dict[int, list] = {}
        computed = VectorCache(tmp_path, "m").fill(
            list(vectors),
            lambda texts: [vectors[text] for text in texts],
            lambda places, vector: rows.update({place: vector.tolist() for place in places}),
            step=2,
            progress=lambda *progress: None,
        )
        return rows, computed

    expected = dict(enumerate(vector.tolist() for vector in vectors.values()))
    assert filled() == (expected, 3)
    assert filled() == (expected, 0)


WORDS = ("storm", "sea", "calm", "wind", "harbour", "boat", "sail", "mast", "the", "of")


def _corpus(numbers) -> dict[str, str]:
    return {
        f"d{row}": " ".join(numbers.choice(WORDS, size=numbers.integers(1, 12)))
        for row in range(60)
    }


def _in_qdrant(library, corpus, texts, modifier):
    """What Qdrant gives for the same vectors."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")
    params = models.SparseVectorParams(modifier=modifier)
    client.create_collection("c", vectors_config={}, sparse_vectors_config={"s": params})
    points = [
        models.PointStruct(id=row, vector={"s": models.SparseVector(**_plain(one))})
        for row, one in enumerate(library.embed(list(corpus.values()), batch_size=1))
    ]
    client.upsert("c", points)
    scores = []
    for query in library.query_embed(texts):
        asked = models.SparseVector(**_plain(query))
        points = client.query_points("c", query=asked, using="s", limit=len(corpus)).points
        scores.append({list(corpus)[point.id]: point.score for point in points if point.score})
    client.close()
    return scores


def _plain(embedding) -> dict[str, list[float]]:
    return {"indices": embedding.indices.tolist(), "values": embedding.values.tolist()}


def test_qdrant_gives_the_same_scores(splade, tmp_path):
    from fastembed import SparseTextEmbedding

    corpus = _corpus(np.random.default_rng(3))
    texts = ["storm at sea", "calm harbour", "the mast of the boat"]
    system = build(tmp_path, corpus, model=model_folders.SPLADE, path=str(splade))
    library = SparseTextEmbedding(model_folders.SPLADE, specific_model_path=str(splade))
    for text, expected in zip(texts, _in_qdrant(library, corpus, texts, None), strict=True):
        assert dict(found(system, text, k=60)) == pytest.approx(expected, rel=1e-5)


def test_models_that_leave_rarity_to_the_index_have_it_here_too(tmp_path):
    from fastembed import SparseTextEmbedding
    from qdrant_client.models import Modifier

    (tmp_path / "bm25").mkdir()
    (tmp_path / "bm25" / "english.txt").write_text("the\nof\nat\n")
    corpus = _corpus(np.random.default_rng(5))
    texts = ["storm at sea", "calm harbours", "the of at"]
    system = build(tmp_path, corpus, model="Qdrant/bm25", path="bm25")
    library = SparseTextEmbedding("Qdrant/bm25", specific_model_path=str(tmp_path / "bm25"))
    expected = _in_qdrant(library, corpus, texts, Modifier.IDF)
    for text, scores in zip(texts, expected, strict=True):
        assert dict(found(system, text, k=60)) == pytest.approx(scores, rel=1e-5)
    assert found(system, "the of at") == []
    assert len(found(system, "storm at sea", k=60)) > 10


@pytest.mark.parametrize(
    ("spec", "error", "told"),
    [
        ({}, InputError, "model is missing; give the name of a sparse model of fastembed"),
        ({"model": "Qdrant/bm52"}, UsageError, "did you mean Qdrant/bm25?"),
        ({"model": model_folders.MINILM}, UsageError, "unknown model"),
        ({"model": "Qdrant/bm25", "path": "."}, InputError, "holds no english.txt"),
        ({"model": "Qdrant/bm25", "path": "b", "max_length": 9}, UsageError, "reads texts whole"),
        ({"model": model_folders.SPLADE, "path": "."}, InputError, "holds no model.onnx"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, spec, error, told):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "english.txt").write_text("the\n")
    with pytest.raises(error) as caught:
        build(tmp_path, TEXTS, **spec)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_with_some_other_model_is_refused(minilm, tmp_path):
    with pytest.raises(InputError, match="holds another model: it gives 384 numbers, prith"):
        build(tmp_path, TEXTS, model=model_folders.SPLADE, path=str(minilm))


def test_without_the_library_the_command_that_installs_it_is_told(splade, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'karat\[dense\]'"):
        build(tmp_path, TEXTS, model=model_folders.SPLADE, path=str(splade))
