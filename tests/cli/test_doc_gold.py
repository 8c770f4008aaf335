"""Gold that names documents beside runs of chunks: refused where every score would be 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

HITS = {"q1": ["deploy#001", "auth#002"], "q2": ["limits#001", "auth#001"]}
SAYS = (
    "karat: gold.jsonl names documents, and run.jsonl returned chunks of them, so no relevant item"
    " is found.\n"
)
REMEDY = (
    "  Count documents: --set level=doc (settings: {level: doc} in karat.yaml, "
    "settings={'level': 'doc'} in Python).\n"
)


def is_refused(done) -> bool:
    return done.code == 2 and done.err.startswith(SAYS) and done.err.endswith(REMEDY)


GOLD = {
    "doc_id": {"doc_id": "auth"},
    "relevant_doc_ids": {"relevant_doc_ids": ["auth", "other"]},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("run.jsonl", [{"query_id": name, "topk": hits} for name, hits in HITS.items()])


def put(name: str, rows: list[dict]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def gold_of(**own: object) -> None:
    put("gold.jsonl", [{"id": name, "query": f"what of {name}", **own} for name in HITS])


def evaluated(run, *more: str):
    return run("eval", "run.jsonl", "--gold", "gold.jsonl", "-m", "Hit@5", "--json", *more)


def hit_rate(done) -> float:
    return json.loads(done.out)["systems"][0]["measures"]["Hit@5"]["mean"]


@pytest.mark.parametrize("own", GOLD.values(), ids=GOLD)
@pytest.mark.parametrize("profile", ["karat", "minimal"])
def test_documents_where_chunks_are_returned_are_refused_with_the_remedy(run, own, profile):
    gold_of(**own)
    done = evaluated(run, "--profile", profile)
    assert is_refused(done)
    assert done.out == ""
    assert "  gold.jsonl has  auth" in done.err
    assert "  run.jsonl has   auth#001, auth#002, …" in done.err
    told = evaluated(run, "--profile", profile, "--set", "level=doc")
    assert (told.code, hit_rate(told)) == (0, 1.0)


def test_it_is_refused_on_the_way_to_a_table_and_to_a_comparison_too(run):
    gold_of(doc_id="auth")
    put("other.jsonl", [{"query_id": name, "topk": ["auth"]} for name in HITS])
    assert is_refused(run("eval", "run.jsonl", "--gold", "gold.jsonl"))
    assert is_refused(run("compare", "other.jsonl", "run.jsonl", "--gold", "gold.jsonl"))


def test_the_corpus_may_know_the_documents(run):
    gold_of(doc_id="security")
    chunks = {one for hits in HITS.values() for one in hits}
    docs = {one: "security" if "auth" in one else "other" for one in chunks}
    rows = [{"chunk_id": one, "doc_id": docs[one], "text": one} for one in sorted(docs)]
    put("corpus.jsonl", rows)
    done = evaluated(run, "--corpus", "corpus.jsonl")
    assert done.code == 2
    assert "  gold.jsonl has  security\n" in done.err


@pytest.mark.parametrize(
    "own",
    [
        # A chunk that was not found, of a document that was.
        {"relevant_chunk_ids": ["auth#009"]},
        # A document of which nothing was found.
        {"doc_id": "billing"},
        # A document, judged not to be relevant, and a chunk that was not found.
        {"relevant_chunk_ids": ["billing#001"], "negatives": ["auth"]},
    ],
)
def test_a_run_that_finds_nothing_is_not_refused(run, own):
    gold_of(**own)
    done = evaluated(run)
    assert (done.code, done.err, hit_rate(done)) == (0, "", 0.0)


def test_items_that_the_corpus_knows_are_no_documents(run):
    # Both items are chunks of one document, and the other one was returned.
    put("run.jsonl", [{"query_id": name, "topk": ["c2"]} for name in HITS])
    put("corpus.jsonl", [{"chunk_id": one, "doc_id": "d", "text": one} for one in ("c1", "c2")])
    gold_of(relevant_chunk_ids=["c1"])
    done = evaluated(run, "--corpus", "corpus.jsonl")
    assert (done.code, hit_rate(done)) == (0, 0.0)


def test_a_run_that_found_one_of_them_is_taken_at_its_word(run):
    rows = [
        {"id": "q1", "query": "one", "doc_id": "auth"},
        {"id": "q2", "query": "two", "relevant_chunk_ids": ["limits#001"]},
    ]
    put("gold.jsonl", rows)
    done = evaluated(run)
    assert (done.code, hit_rate(done)) == (0, 0.5)


def test_a_run_that_returned_nothing_is_refused_for_that(run):
    gold_of(doc_id="auth")
    put("run.jsonl", [{"query_id": name, "topk": []} for name in HITS])
    done = evaluated(run)
    assert done.code == 2
    assert done.err.startswith("karat: 2 of 2 answers of run.jsonl were empty.\n")
