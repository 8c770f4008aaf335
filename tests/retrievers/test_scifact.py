"""SciFact, the whole test set: what karat retrieves is as good as what is published.

Abstracts come with vectors that were made elsewhere, in full precision; scripts/scifact.py
embeds them too.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import model_folders
import numpy as np
import pytest

import karat
from karat.data.tables import Queries
from karat.formats.settings import Place
from karat.retrieve.build_context import BuildContext
from karat.retrieve.models import Embedder, ModelOptions
from karat.retrieve.system import build_system
from karat.retrieve.system_config import parse_systems

DATA = Path(__file__).parents[2] / "../shared/data/scifact"
MADE = DATA / "runs_made_here"
BM25 = {"retriever": "bm25", "stemmer": "english", "stopwords": "english"}
DENSE = {"retriever": "dense", "vectors": "docs.npy", "query_vectors": "queries.npz"}

SYSTEMS = {"bm25": BM25, "dense": DENSE, "fused": {"retriever": "fuse", "of": ["bm25", "dense"]}}


def claims() -> Queries:
    with gzip.open(DATA / "topics.beir-v1.0.0-scifact.test.tsv.gz", "rt") as topics:
        return Queries.from_dict(dict(line.rstrip("\n").split("\t") for line in topics))


def context(folder: Path, model: Path, queries: Queries) -> BuildContext:
    """A folder with the kept vectors of abstracts, and those of claims made by the model."""
    (folder / "docs.npy").symlink_to((MADE / "all-MiniLM-L6-v2.docs.float16.npy").resolve())
    form = ModelOptions(model=model_folders.MINILM, path=str(model), max_length=256)
    ids, texts = (queries.frame[name].to_list() for name in ("query_id", "text"))
    vectors = Embedder(form, BuildContext()).queries(texts)
    np.savez(folder / "queries.npz", ids=np.array(ids), vectors=vectors)
    corpus = karat.read_corpus(str(DATA / "corpus.beir-layout.jsonl.gz"))
    return BuildContext(corpus=lambda: corpus, folder=folder)


# One test, since the collection is read and the claims are embedded once for all of it.
@pytest.mark.skipif(not DATA.is_dir(), reason="needs SciFact beside the project")
def test_bm25_and_minilm_are_as_good_as_published_and_better_together(minilm, tmp_path):
    queries = claims()
    shop = context(tmp_path, minilm, queries)
    system_configs = parse_systems(SYSTEMS, Place("karat.yaml"))
    runs = {
        name: build_system(one, shop).search(queries, 100) for name, one in system_configs.items()
    }
    gold = karat.read_gold(str(DATA / "qrels.beir-v1.0.0-scifact.test.txt"))
    ndcg, recall = (
        {name: karat.evaluate(run, gold, [measure]).means()[measure] for name, run in runs.items()}
        for measure in ("nDCG@10", "R@100")
    )
    # Anserini's BM25, and MiniLM in full precision.
    assert ndcg["bm25"] == pytest.approx(0.6789, abs=0.02)
    assert recall["bm25"] == pytest.approx(0.9253, abs=0.02)
    assert ndcg["dense"] == pytest.approx(0.6451, abs=0.01)
    assert ndcg["fused"] > max(ndcg["bm25"], ndcg["dense"]) + 0.01
    published = karat.read_run(str(MADE / "all-MiniLM-L6-v2.cosine.top100.run.gz"))
    ours, theirs = _tops(runs["dense"].hits), _tops(published.hits)
    assert ours.keys() == theirs.keys()
    assert np.mean([len(ours[query] & theirs[query]) / 10 for query in theirs]) > 0.9


def _tops(hits) -> dict[str, set[str]]:
    """The ten best items of each query."""
    ranked = hits.sort(["rank"] if "rank" in hits.columns else ["score"], maintain_order=True)
    if "rank" not in hits.columns:
        ranked = ranked.reverse()
    tops: dict[str, list[str]] = {}
    for query, item in ranked.select("query_id", "item_id").iter_rows():
        tops.setdefault(query, []).append(item)
    return {query: set(items[:10]) for query, items in tops.items()}
