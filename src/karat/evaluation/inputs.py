"""Reading the inputs of an evaluation: gold, queries, corpus and runs.

``evaluation`` uses them. A story's inputs have rules of their own: a query without text is
ignored, and a story without labelled queries is skipped, not failed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np
import polars as pl

from karat.data.columns import Duplicates
from karat.data.tables import Blocks, Corpus, Gold, Queries, Run
from karat.errors import UsageError
from karat.formats.field_mapping import Fields
from karat.formats.readers import (
    load,
    queries_in_gold,
    read_corpus,
    read_gold,
    read_queries,
    scan_run,
)
from karat.formats.registry import Kind
from karat.measure.names import Measure
from karat.measure.scores import Scores

if TYPE_CHECKING:
    from karat.retrieve.corpus_index import CorpusIndex


T = TypeVar("T", Gold, Queries, Corpus)

# A smaller corpus is indexed before anyone could read that it is.
_LONG_BYTES = 5_000_000


def is_file(value: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether an input is the name of a file."""
    return isinstance(value, str | os.PathLike)


def is_spark(value: object) -> bool:
    """Return whether an input is a DataFrame of Spark, which need not be installed."""
    return hasattr(value, "sparkSession")


def gold_of(
    gold: Any,
    queries: Any = None,
    *,
    duplicates: Duplicates = "agree",
    format: str | None = None,
    fields: Fields,
) -> Gold:
    """Read gold from a file, a mapping or a frame; a Gold is returned as it is."""
    if not is_file(gold):
        return _table("gold", gold, Gold, fields=fields, duplicates=duplicates)
    name = os.fspath(gold)
    if is_file(queries) and os.fspath(queries) == name:
        fields = fields.together()
    return read_gold(name, format=format, duplicates=duplicates, fields=fields)


def _table(kind: Kind, value: Any, table_type: type[T], **options: Any) -> T:
    """Return a mapping, a frame or a table as a table."""
    table = load(kind, value, **options)
    if not isinstance(table, table_type):
        raise UsageError(
            f"{kind}: a {table_type.__name__}, a mapping, a frame or the name of a file is"
            f" expected, not {type(value).__name__}"
        )
    return table


def queries_of(
    queries: Any,
    gold: Any,
    *,
    gold_format: str | None = None,
    fields: Fields,
    for_spark: bool = False,
) -> Queries | None:
    """Read the queries, or those that the gold file itself carries."""
    if is_file(queries):
        together = is_file(gold) and os.fspath(gold) == os.fspath(queries)
        fields = fields.together() if together else fields
        return read_queries(os.fspath(queries), fields=fields)
    if queries is not None:
        return _table("queries", queries, Queries, fields=fields)
    if not is_file(gold):
        return None
    path = Path(gold)
    # A pipe can be read only once, and the gold was read from it. A folder may hold Spark's files.
    is_folder = path.is_dir() and (not for_spark or (path / "qrels").is_dir())
    if not is_folder and not path.is_file():
        return None
    return queries_in_gold(os.fspath(gold), format=gold_format, fields=fields)


def corpus_of(
    corpus: Any,
    measures: Iterable[Measure],
    *,
    fields: Fields,
    index_cache: Path | None = None,
    notify: Callable[[str], None],
) -> tuple[Corpus, CorpusIndex | None]:
    """Read the corpus; with ``index_cache`` open its index there, or build and keep one.

    From an index the texts are read only if a measure needs them.
    """
    if not is_file(corpus):
        return _table("corpus", corpus, Corpus, fields=fields), None
    name = os.fspath(corpus)
    if index_cache is None:
        return read_corpus(name, fields=fields), None
    from karat.retrieve.corpus_index import open_index

    def building() -> None:
        if Path(name).stat().st_size >= _LONG_BYTES:
            notify(f"indexing {name}, which is done once")

    index = open_index(name, index_cache, building=building, fields=fields)
    needs_texts = any("texts" in measure.definition.needs for measure in measures)
    return (index.corpus() if needs_texts else index.without_texts()), index


def open_run(
    run: Any, *, format: str | None = None, strict: bool = False, fields: Fields
) -> Run | Blocks:
    """Open a run; a file is read in blocks when it is scored."""
    if is_file(run):
        return scan_run(os.fspath(run), format=format, strict=strict, fields=fields)
    opened: Run | Blocks = load("run", run, fields=fields)
    if not hasattr(opened, "blocks"):
        kind = "None" if run is None else type(run).__name__
        raise UsageError(
            f"a run is expected, not {kind}; give a Run, the name of its file, a mapping of"
            " queries to items, or a frame"
        )
    return opened


STORY = "story"
# Why nothing could be measured, as a story tool calls it and in words.
SKIPPED = {
    "missing_retrieval_queries": "there are no queries",
    "no_labeled_queries": "no query says which scenes are relevant",
}


def why_skipped(scores: Scores) -> str | None:
    """Return why a story's run has no metric; None if it has one, or for other runs."""
    counts = scores.counts
    with_gold = counts.queries - counts.empty_gold - counts.no_answer
    if with_gold or scores.conventions.profile != STORY:
        return None
    return SKIPPED["no_labeled_queries" if counts.queries else "missing_retrieval_queries"]


def without_grades(scores: Scores) -> str | None:
    """Return why measures of high grades have no value; None unless that goes for all."""
    names = list(map(str, scores.measures))
    grades = [m.arguments["rel"] for m in scores.measures if "rel" in m.arguments]
    if not grades or len(grades) < len(names) or scores.lacks or not scores.counts.scored:
        return None
    if not all(np.isnan(scores.values(name)).all() for name in names):
        return None
    return f"no query has gold of grade {min(grades):g} or more for {', '.join(names)}"


def without_blank(gold: Gold, queries: Queries) -> tuple[Gold, int]:
    """Return the gold without that of queries that have no text, and how many had some."""
    blank = queries.frame.filter(pl.col("text").str.strip_chars() == "")["query_id"]
    is_blank = pl.col("query_id").is_in(blank.implode())
    labelled = gold.frame.filter(is_blank & (pl.col("grade") > 0))["query_id"].n_unique()
    return replace(gold, frame=gold.frame.filter(~is_blank)), labelled
