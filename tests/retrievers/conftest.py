"""Model folders and vector stores, made once a test process."""

from __future__ import annotations

import model_folders
import pytest
from pg_systems import on_table
from store_servers import chroma_server, pg, pg_server, told

__all__ = [
    "chroma_server",
    "cross_encoder",
    "minilm",
    "on_table",
    "pg",
    "pg_server",
    "splade",
    "told",
]


@pytest.fixture(scope="session")
def minilm(tmp_path_factory):
    return model_folders.minilm(tmp_path_factory.mktemp("minilm"))


@pytest.fixture(scope="session")
def splade(tmp_path_factory):
    return model_folders.splade(tmp_path_factory.mktemp("splade"))


@pytest.fixture(scope="session")
def cross_encoder(tmp_path_factory):
    return model_folders.cross_encoder(tmp_path_factory.mktemp("cross"))
