"""Exact search among vectors: against other libraries, and bit for bit against itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import model_folders
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from karat.data.tables import Corpus
from karat.errors import CallError, InputError, KaratError, UsageError
from karat.formats.settings import Place
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.system import build_system
from karat.retrieve.system_config import parse_systems
from karat.retrieve.vectors import ExactIndex

TEXTS = {
    "storm": "A storm gathers over the open sea.",
    "harbour": "Fishing boats lie in the calm harbour.",
    "tax": "The tax return is due at the end of March.",
    "bread": "Bread dough rises in a warm kitchen.",
}


def build(folder: Path, corpus, **spec):
    """The system of a karat.yaml in this folder."""
    spec = {"retriever": "dense", **spec}
    system_config = parse_systems({"dense": spec}, Place("karat.yaml"))["dense"]
    table = corpus if isinstance(corpus, Corpus) else Corpus.from_dict(corpus)
    context = BuildContext(corpus=lambda: table, folder=folder, cache=folder / ".karat")
    return build_system(system_config, context)


def with_vectors(folder, rows, queries=None, **spec):
    """A system of kept vectors: items d0, d1, … and, where given, queries q0, q1, …."""
    np.save(folder / "items.npy", rows)
    spec["vectors"] = "items.npy"
    if queries is not None:
        ids = np.array([f"q{number}" for number in range(len(queries))])
        np.savez(folder / "queries.npz", ids=ids, vectors=queries)
        spec["query_vectors"] = "queries.npz"
    return build(folder, {f"d{number}": "text" for number in range(len(rows))}, **spec)


def asked(count: int) -> list[Query]:
    return [Query(f"q{number}", "anything") for number in range(count)]


def ids(answer):
    return [hit.item_id for hit in answer.hits]


@pytest.fixture
def numbers():
    return np.random.default_rng(7)


def test_cosines_are_those_of_scikit_learn(tmp_path, numbers):
    from sklearn.metrics.pairwise import cosine_similarity

    rows, queries = numbers.normal(size=(500, 24)), numbers.normal(size=(9, 24))
    system = with_vectors(tmp_path, rows, queries)
    cosines = cosine_similarity(queries, rows)
    for answer, expected in zip(system.find(asked(9), 500), cosines, strict=True):
        assert ids(answer) == [f"d{row}" for row in np.argsort(-expected)]
        scores = [hit.score for hit in answer.hits]
        np.testing.assert_allclose(scores, np.sort(expected)[::-1], atol=2e-7)
        assert scores == [hit.similarity for hit in answer.hits]


def test_dot_products_keep_lengths_and_similarity_is_still_the_cosine(tmp_path, numbers):
    from sklearn.metrics.pairwise import cosine_similarity

    rows = numbers.normal(size=(300, 16)) * numbers.uniform(0.1, 10, size=(300, 1))
    queries = numbers.normal(size=(4, 16))
    rows, queries = rows.astype(np.float32), queries.astype(np.float32)
    system = with_vectors(tmp_path, rows, queries, metric="dot")
    products = queries.astype(float) @ rows.astype(float).T
    cosines = cosine_similarity(queries.astype(float), rows.astype(float))
    for answer, dots, near in zip(system.find(asked(4), 20), products, cosines, strict=True):
        order = np.argsort(-dots)[:20]
        assert ids(answer) == [f"d{row}" for row in order]
        np.testing.assert_allclose([hit.score for hit in answer.hits], dots[order], rtol=1e-12)
        np.testing.assert_allclose([hit.similarity for hit in answer.hits], near[order], rtol=1e-12)


def test_ties_are_in_corpus_order_wherever_they_lie(tmp_path, numbers):
    row = numbers.normal(size=384).astype(np.float32)
    rows = np.tile(row, (257, 1))
    rows[::2] *= 4  # of other lengths, in the same direction
    system = with_vectors(tmp_path, rows, row[None])
    (answer,) = system.find(asked(1), 100)
    assert ids(answer) == [f"d{number}" for number in range(100)]
    assert {hit.score for hit in answer.hits} == {answer.hits[0].score}
    assert 1 - 1e-7 < answer.hits[0].score <= 1


def test_a_query_has_the_same_bits_alone_as_among_others(tmp_path, numbers):
    rows, queries = numbers.normal(size=(999, 384)), numbers.normal(size=(70, 384))
    system = with_vectors(tmp_path, rows, queries)
    together = system.find(asked(70), 30)
    alone = [system.find([query], 30)[0] for query in asked(70)]
    in_sevens = [one for at in range(0, 70, 7) for one in system.find(asked(70)[at : at + 7], 30)]
    assert [one.hits for one in together] == [one.hits for one in alone]
    assert [one.hits for one in together] == [one.hits for one in in_sevens]


def test_single_precision_never_costs_a_hit(numbers):
    # Scores so near each other that their order in single precision is luck.
    base = numbers.normal(size=64)
    rows = (base + numbers.normal(size=(4000, 64)) * 1e-6).astype(np.float32)
    query = numbers.normal(size=(1, 64)).astype(np.float32)
    (found,) = ExactIndex(rows, "dot").top(query, 50)
    dots = (rows.astype(np.float64) * query[0].astype(np.float64)).sum(axis=1)
    assert found.rows.tolist() == np.argsort(-dots, kind="stable")[:50].tolist()


@given(
    rows=arrays(np.float32, (12, 3), elements=st.floats(-4, 4, width=16)),
    query=arrays(np.float32, (1, 3), elements=st.floats(-4, 4, width=16)),
    k=st.integers(1, 15),
)
def test_the_top_is_the_top_of_all(rows, query, k):
    for metric in ("dot", "cosine"):
        (found,) = ExactIndex(rows, metric).top(query, k)
        (everything,) = ExactIndex(rows, metric).top(query, 12)
        assert found.rows.tolist() == everything.rows.tolist()[:k]
        assert found.scores.tolist() == everything.scores.tolist()[:k]
        assert sorted(everything.rows.tolist()) == list(range(12))
        assert (np.diff(everything.scores) <= 0).all()
        assert (np.abs(everything.cosines) <= 1).all()


def test_vectors_of_zeros_are_near_nothing(tmp_path):
    rows = np.array([[0, 0], [1, 0], [-1, 0]], dtype=np.float32)
    system = with_vectors(tmp_path, rows, np.array([[2, 0], [0, 0]]))
    first, second = system.find(asked(2), 5)
    assert [(hit.item_id, hit.score) for hit in first.hits] == [("d1", 1), ("d0", 0), ("d2", -1)]
    assert [(hit.item_id, hit.score) for hit in second.hits] == [("d0", 0), ("d1", 0), ("d2", 0)]


def test_many_items_go_through_in_portions(monkeypatch, numbers):
    rows, queries = numbers.normal(size=(200, 8)), numbers.normal(size=(11, 8))
    whole = ExactIndex(rows.astype(np.float32), "cosine").top(queries.astype(np.float32), 5)
    monkeypatch.setattr("karat.retrieve.vectors._MOST_SCORES", 600)
    parts = ExactIndex(rows.astype(np.float32), "cosine").top(queries.astype(np.float32), 5)
    assert [one.rows.tolist() for one in whole] == [one.rows.tolist() for one in parts]


def test_a_real_model_finds_what_is_meant(minilm, tmp_path):
    system = build(tmp_path, TEXTS, model=model_folders.MINILM, path=str(minilm))
    queries = [Query("1", "rough weather on the ocean"), Query("2", "baking")]
    first, second = system.find(queries, 4)
    assert ids(first)[0] == "storm"
    assert ids(second)[0] == "bread"
    assert first.latency["embed"] > 0
    assert first.latency["search"] > 0
    assert first.cost["query_tokens"] == 7
    assert first.hits[0].similarity == first.hits[0].score
    assert system.meta["embedding_updates"] == 4
    assert system.meta["index_bytes"] == 4 * 384 * 4
    assert system.meta["embedding_model"]["dim"] == 384
    assert set(system.meta["libraries"]) == {"fastembed", "onnxruntime"}


def test_a_second_build_embeds_only_new_texts(minilm, tmp_path):
    options = {"model": model_folders.MINILM, "path": str(minilm)}
    first = build(tmp_path, TEXTS, **options)
    again = build(tmp_path, TEXTS, **options)
    more = build(tmp_path, {"new": "A lighthouse.", **TEXTS}, **options)
    shorter = build(tmp_path, TEXTS, **options, max_length=6)
    updates = [one.meta["embedding_updates"] for one in (first, again, more, shorter)]
    assert updates == [4, 0, 1, 4]
    query = [Query("1", "rough weather on the ocean")]
    assert first.find(query, 4)[0].hits == again.find(query, 4)[0].hits
    assert (tmp_path / ".karat" / "vectors" / ".gitignore").read_text() == "*\n"


def test_titles_stand_before_texts_unless_left_out(minilm, tmp_path):
    corpus = {
        "a": {"title": "Lighthouse", "text": "It stands on the cape."},
        "b": {"title": "", "text": "It stands in the yard."},
    }
    joined = {"a": "Lighthouse It stands on the cape.", "b": "It stands in the yard."}
    bare = {"a": "It stands on the cape.", "b": "It stands in the yard."}
    options = {"model": model_folders.MINILM, "path": str(minilm)}
    query = [Query("1", "beacon for ships")]

    def scores(corpus, **more):
        hits = build(tmp_path, corpus, **options, **more).find(query, 2)[0].hits
        return {hit.item_id: hit.score for hit in hits}

    assert scores(corpus) == scores(joined)
    assert scores(corpus, title=False) == scores(bare)
    assert scores(corpus)["a"] > scores(bare)["a"]


def test_kept_vectors_of_items_go_with_a_model_for_queries(minilm, tmp_path):
    options = {"model": model_folders.MINILM, "path": str(minilm)}
    whole = build(tmp_path, TEXTS, **options)
    np.savez(
        tmp_path / "v.npz", ids=np.array(list(TEXTS)[::-1]), vectors=whole.finder._index.rows[::-1]
    )
    kept = build(tmp_path, TEXTS, **options, vectors="v.npz")
    query = [Query("1", "rough weather on the ocean")]
    expected = [(hit.item_id, pytest.approx(hit.score)) for hit in whole.find(query, 4)[0].hits]
    assert [(hit.item_id, hit.score) for hit in kept.find(query, 4)[0].hits] == expected
    assert kept.meta["embedding_updates"] == 0
    assert kept.meta["vectors"]["name"] == "v.npz"


def test_kept_vectors_alone_need_no_model_and_no_library(tmp_path, numbers, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastembed", None)
    system = with_vectors(tmp_path, numbers.normal(size=(5, 3)), numbers.normal(size=(2, 3)))
    answer = system.find(asked(2), 2)[1]
    assert len(answer.hits) == 2
    assert "embed" not in answer.latency
    assert "query_tokens" not in answer.cost
    assert "embedding_model" not in system.meta
    assert system.meta["query_vectors"]["name"] == "queries.npz"
    assert not (tmp_path / ".karat").exists()


def test_a_query_without_a_kept_vector_is_a_failed_call(tmp_path, numbers):
    system = with_vectors(tmp_path, numbers.normal(size=(5, 3)), numbers.normal(size=(2, 3)))
    with pytest.raises(CallError, match="has no vector for query 'q7'"):
        system.find([Query("q0", ""), Query("q7", "")], 2)


def test_a_callable_with_dot_keeps_its_lengths(tmp_path):
    (tmp_path / "own.py").write_text(
        "def embed(texts):\n    return [[float(len(text)), 1.0] for text in texts]\n"
    )
    corpus = {"short": "a", "long": "aaaaaaaa"}
    query = [Query("1", "aa")]
    dot = build(tmp_path, corpus, embed="own.py:embed", metric="dot").find(query, 2)[0].hits
    assert [(hit.item_id, hit.score) for hit in dot] == [("long", 17), ("short", 3)]
    cosine = build(tmp_path, corpus, embed="own.py:embed").find(query, 2)[0].hits
    assert [hit.item_id for hit in cosine] == ["short", "long"]
    assert cosine[0].score == pytest.approx(3 / (5 * 2) ** 0.5, abs=1e-7)
    assert cosine[1].score == pytest.approx(17 / (5 * 65) ** 0.5, abs=1e-7)


KEPT = {"vectors": "items.npy", "query_vectors": "q.npz"}
OWN = {"embed": "own.py:embed"}


@pytest.mark.parametrize(
    ("spec", "error", "told"),
    [
        ({}, UsageError, "items have no vectors; give model, embed or vectors"),
        ({"vectors": "items.npy"}, UsageError, "queries have no vectors; give model, embed or que"),
        (KEPT | {"vectors": "none.npy"}, InputError, "none.npy: no such file"),
        (KEPT | {"vectors": "short.npy"}, InputError, "2 vectors for 4 items"),
        (KEPT | {"query_vectors": "items.npy"}, InputError, "holds no ids"),
        (KEPT | {"query_vectors": "wide.npz"}, InputError, "2 numbers and those of queries 3"),
        (KEPT | {"model": "x"}, UsageError, "model has no effect"),
        (KEPT | {"title": True}, UsageError, "title has no effect"),
        (KEPT | {"batch_size": 2}, UsageError, "batch_size has no effect"),
        (OWN | {"query_vectors": "q.npz", "query_prefix": ">"}, UsageError, "query_prefix has no"),
        (OWN | {"vectors": "items.npy", "item_prefix": ">"}, UsageError, "item_prefix has no"),
        (OWN | {"vectors": "items.npy"}, InputError, "2 numbers and those of queries 3"),
        (OWN | {"query_vectors": "q.npz"}, InputError, "3 numbers and those of queries 2"),
        (OWN | {"metric": "euclid"}, InputError, "metric is 'euclid'; it must be cosine or dot"),
        ({"modle": "x"}, InputError, "unknown key 'modle'"),
    ],
)
def test_what_cannot_work_is_refused_before_any_query(tmp_path, spec, error, told):
    np.save(tmp_path / "items.npy", np.ones((4, 2)))
    np.save(tmp_path / "short.npy", np.ones((2, 2)))
    np.savez(tmp_path / "q.npz", ids=np.array(["1"]), vectors=np.ones((1, 2)))
    np.savez(tmp_path / "wide.npz", ids=np.array(["1"]), vectors=np.ones((1, 3)))
    (tmp_path / "own.py").write_text("def embed(texts):\n    return [[1, 2, 3]] * len(texts)\n")
    with pytest.raises(error) as caught:
        build(tmp_path, TEXTS, **spec)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, KaratError)


def test_every_example_of_the_page_is_a_system():
    page = (Path(__file__).parents[2] / "docs" / "use-embeddings.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    kinds = set()
    for block in blocks:
        data = yaml.safe_load(textwrap.dedent(block))
        systems = parse_systems(data.get("systems", data), Place("use-embeddings.md"))
        kinds |= {system.kind for system in systems.values()}
    assert len(blocks) >= 7
    assert kinds == {"dense", "sparse", "bm25"}


CONFIG = """
queries: queries.jsonl
corpus: corpus.jsonl
systems:
  dense: {retriever: dense, model: %s, path: model, k: 2}
"""


def _search(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "karat", "search", *options],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_from_the_command_line(minilm, tmp_path):
    (tmp_path / "model").symlink_to(minilm)
    (tmp_path / "karat.yaml").write_text(CONFIG % model_folders.MINILM)
    lines = [json.dumps({"id": name, "text": text}) for name, text in TEXTS.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    (tmp_path / "queries.jsonl").write_text('{"id": "1", "text": "rough weather"}\n')
    done = _search(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads((tmp_path / "runs" / "dense.jsonl").read_text())
    assert record["topk"][0]["chunk_id"] == "storm"
    assert record["embedding_updates"] == 4
    assert record["latency_ms"].keys() >= {"embed", "search", "retrieve", "total"}
    (tmp_path / "model").unlink()
    refused = _search(tmp_path, "--restart")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "no such folder" in refused.stderr
