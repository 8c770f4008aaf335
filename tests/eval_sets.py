"""Read a file that holds queries and their gold."""

from __future__ import annotations

from pathlib import Path

from karat.data.tables import Gold, Queries
from karat.formats.readers import read_gold, read_queries


def read_eval_set(path: str | Path, *, format: str | None = None) -> tuple[Queries, Gold]:
    return read_queries(path, format=format), read_gold(path, format=format)
