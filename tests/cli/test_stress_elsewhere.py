"""``karat stress`` on a karat.yaml in another folder: its files are those beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

WORDS = ["apple", "bread", "cider", "dates", "endive", "figs", "grape", "honey"]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A folder with everything that its karat.yaml names, seen from the one beside it."""
    project = tmp_path / "project"
    for name in ("project", "elsewhere"):
        (tmp_path / name).mkdir()
    items = [{"id": f"d-{word}", "text": word} for word in WORDS]
    asked = [
        {"id": f"q-{word}", "query": word, "relevant_chunk_ids": [f"d-{word}"]} for word in WORDS
    ]
    for name, rows in (("corpus", items), ("eval", asked)):
        (project / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    config = "queries: eval.jsonl\ncorpus: corpus.jsonl\nsystems:\n  words: {retriever: bm25}\n"
    (project / "karat.yaml").write_text(config)
    monkeypatch.chdir(tmp_path / "elsewhere")
    return project


@pytest.mark.parametrize("absolute", [True, False])
def test_a_karat_yaml_in_another_folder_is_stressed_from_here(project, run, absolute):
    named = str(project / "karat.yaml") if absolute else "../project/karat.yaml"
    said = run("stress", named, "--shuffle", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert [(one["name"], one["queries"]["failed"]) for one in found["systems"]] == [("words", 0)]
    digest = hashlib.sha256((project / "karat.yaml").read_bytes()).hexdigest()
    assert found["inputs"]["config"] == {"name": "karat.yaml", "sha256": digest}
