"""Systems on the table of the small corpus in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small_corpus
from small_corpus import TEXTS
from store_servers import fill_table

from karat.retrieve.system import SearchSystem

TABLE = "table: items, id: item, embedding: place"


@pytest.fixture
def on_table(pg: Any, tmp_path: Path) -> Callable[..., SearchSystem]:
    """A system on a table of the small corpus."""
    fill_table(pg, TEXTS)
    small_corpus.write_embed(tmp_path)

    def make(
        more: str = TABLE, embedded: str | None = "embed.py:embed", **shop: Any
    ) -> SearchSystem:
        model = "" if embedded is None else f', embed: "{embedded}"'
        shop.setdefault("environment", {"DATABASE_URL": pg.dsn})
        spec = f'{{retriever: pgvector, dsn: "${{DATABASE_URL}}", {more}{model}}}'
        return small_corpus.system(small_corpus.context(tmp_path, **shop), spec)

    return make


def by_sql(
    pg: Any, folder: Path, sql: str, embed_key: str = "embed: embed.py:embed\n", **shop: Any
) -> SearchSystem:
    """A system with SQL of its own."""
    spec = f"retriever: pgvector\ndsn: ${{DATABASE_URL}}\n{embed_key}{sql.strip()}\n"
    indented = "".join(f"    {line}\n" for line in spec.splitlines())
    shop.setdefault("environment", {"DATABASE_URL": pg.dsn})
    return small_corpus.built(small_corpus.context(folder, **shop), f"systems:\n  one:\n{indented}")
