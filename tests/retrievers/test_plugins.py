"""A kind of retriever that a package brings: found by its entry point, checked like our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PLUGIN = """
from karat.formats.settings import ConfigModel
from karat.retrieve.protocol import Answer, Hit
from pydantic import Field

class Options(ConfigModel):
    prefix: str = Field(description="what every id begins with")

class Echo:
    batch, concurrency, deep, meta = 1, 1, False, {"index_version": "echo-1"}
    def __init__(self, prefix):
        self.prefix = prefix
    def find(self, queries, k):
        return [Answer([Hit(self.prefix + query.text, 1.0)]) for query in queries]

def make(options, context, parts):
    return Echo(options.prefix)
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "echoing.py").write_text(PLUGIN)
    about = tmp_path / "echoing-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: echoing\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[karat.retrievers]\necho = echoing\nhollow = json\n")
    (tmp_path / "q.tsv").write_text("q1\tapple\n")
    return tmp_path


def search(place, system):
    (place / "karat.yaml").write_text(f"queries: q.tsv\nsystems: {{mine: {system}}}\n")
    return subprocess.run(
        [sys.executable, "-m", "karat", "search"],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
    )


def test_a_kind_of_a_package_is_used_like_a_built_in_one(place):
    assert search(place, "{retriever: echo, prefix: x-}").returncode == 0
    [record] = [
        json.loads(line) for line in (place / "runs" / "mine.jsonl").read_text().splitlines()
    ]
    assert record["topk"] == [{"rank": 1, "chunk_id": "x-apple", "score": 1.0}]
    assert record["index_version"] == "echo-1"


@pytest.mark.parametrize(
    ("system", "told"),
    [
        ("{retriever: echo}", "prefix is missing; give what every id begins with"),
        ("{retriever: echo, prefixes: x}", "did you mean prefix?"),
        ("{retriever: ecco}", "did you mean echo?"),
        ("{retriever: hollow}", "has no Options"),
    ],
)
def test_its_settings_are_checked_like_our_own(place, system, told):
    done = search(place, system)
    assert done.returncode == 2
    assert told in done.stderr
