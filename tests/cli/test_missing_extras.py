"""Without the libraries of an extra, every feature names the one command that installs them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Those that bring no feature of their own.
FOR_DEVELOPERS = {"check", "fuzz", "release", "retrievers", "test"}

_EMBED = "embed: 'embed.py:embed'"
_JUDGE = ("judge", "pool.jsonl", "--url", "http://127.0.0.1:9/v1", "--model", "m", "-o", "l.jsonl")
_HTTP = "{retriever: http, url: 'http://127.0.0.1:9', hits: 'hits[]', item_id: id}"
_EVAL = ("eval", "run.trec", "--gold", "gold.txt")
_PGVECTOR = "retriever: pgvector, dsn: 'postgresql://127.0.0.1:9/x', table: t, id: i, embedding: v"
_RUN = ("run", "karat.yaml")

# The extra, a library of it as it is imported, the command, and the system that it searches.
CASES: list[tuple[str, str, tuple[str, ...], str]] = [
    ("bm25", "Stemmer", _RUN, "{retriever: bm25, stemmer: english}"),
    ("charts", "vl_convert", ("sweep", "run.trec", "--gold", "gold.txt", "-o", "out.png"), ""),
    ("chroma", "chromadb", _RUN, f"{{retriever: chroma, path: c, collection: faq, {_EMBED}}}"),
    ("dense", "fastembed", _RUN, "{retriever: dense, model: BAAI/bge-small-en-v1.5}"),
    ("http", "certifi", _RUN, _HTTP.replace("http:", "https:")),
    ("http", "httpcore", _RUN, _HTTP),
    ("http", "jmespath", _RUN, _HTTP),
    ("judge", "openai", _JUDGE, ""),
    ("langchain", "langchain_core", _RUN, "{retriever: langchain, call: 'embed.py:make'}"),
    ("pgvector", "psycopg", _RUN, f"{{{_PGVECTOR}, {_EMBED}}}"),
    ("postgres", "psycopg", (*_EVAL, "--save", "--store", "postgresql://127.0.0.1:9/x"), ""),
    ("postgres", "psycopg", ("labels", "--store", "postgresql://127.0.0.1:9/x"), ""),
    ("qdrant", "qdrant_client", _RUN, f"{{retriever: qdrant, path: q, collection: faq, {_EMBED}}}"),
    ("spark", "pyspark", (*_EVAL, "--engine", "spark"), ""),
    ("spark", "py4j", (*_EVAL, "--engine", "spark"), ""),
    ("spark", "pandas", (*_EVAL, "--engine", "spark"), ""),
    ("spark", "pyarrow", (*_EVAL, "--engine", "spark"), ""),
    ("store", "sqlalchemy", ("history",), ""),
    ("store", "sqlalchemy", (*_EVAL, "--save"), ""),
    ("store", "sqlalchemy", ("labels",), ""),
    ("web", "anyio", ("serve", "--port", "0"), ""),
    ("web", "fastapi", ("serve", "--port", "0"), ""),
    ("web", "sqlalchemy", ("serve", "--port", "0"), ""),
    ("web", "uvicorn", ("serve", "--port", "0"), ""),
]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    query = {"query_id": "q1", "query": "late parcel", "relevant_chunk_ids": ["a"]}
    files = {
        "run.trec": "q1 Q0 a 1 1.0 x\nq1 Q0 b 2 0.5 x\n",
        "gold.txt": "q1 0 a 1\n",
        "queries.jsonl": json.dumps(query) + "\n",
        "corpus.jsonl": '{"item_id": "a", "text": "A parcel may be late."}\n',
        "pool.jsonl": json.dumps(query | {"item_id": "a", "text": "A parcel may be late."}) + "\n",
        "embed.py": "def embed(texts):\n    return [[1.0, 0.0] for _ in texts]\n\n"
        "def make():\n    return None\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("extra", "library", "command", "system"),
    CASES,
    ids=[f"{extra}-{library}-{command[0]}" for extra, library, command, _ in CASES],
)
def test_a_missing_library_is_answered_with_its_command(
    spawn, folder, extra, library, command, system
):
    (folder / "hidden").mkdir()
    (folder / "hidden" / "sitecustomize.py").write_text(
        "import sys\nfrom importlib.machinery import PathFinder\n"
        "class Hiding(PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {library!r}:\n"
        "            return None\n"
        "        return super().find_spec(name, path, target)\n"
        "sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding\n"
    )
    systems = f"queries: queries.jsonl\ncorpus: corpus.jsonl\nsystems: {{mine: {system}}}\n"
    (folder / "karat.yaml").write_text(systems)
    done = spawn(*command, PYTHONPATH=str(folder / "hidden"))
    assert done.code == 2, done.err
    lines = done.err.splitlines()
    assert lines[-1].endswith(f"; install it with: pip install 'karat[{extra}]'"), done.err
    assert "Traceback" not in done.err
    assert "bug" not in done.err


def test_a_pyspark_that_cannot_be_imported_is_a_missing_one(spawn, folder):
    (folder / "broken" / "pyspark").mkdir(parents=True)
    (folder / "broken" / "pyspark" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')\n"
    )
    done = spawn(*_EVAL, "--engine", "spark", PYTHONPATH=str(folder / "broken"))
    assert done.code == 2, done.err
    assert done.err.endswith("needs pyspark; install it with: pip install 'karat[spark]'\n")


def test_every_extra_is_tried():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - FOR_DEVELOPERS
    assert {case[0] for case in CASES} == extras
