from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The worlds that hold something for every measure.
sys.path.append(str(Path(__file__).parents[1] / "measures"))


@pytest.fixture(scope="session")
def spark():
    """One session for all tests; a command finds it active and leaves it running."""
    from karat.spark.session import session

    made = session("local[2,4]")
    # Of runs whose length is not known, so many blocks; Spark's 200 of these few rows take seconds.
    made.conf.set("spark.sql.shuffle.partitions", "8")
    yield made
    made.stop()


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that there are many, and some without a query."""
    from karat.spark import engine

    monkeypatch.setattr(engine, "BLOCK_ROWS", 40)
