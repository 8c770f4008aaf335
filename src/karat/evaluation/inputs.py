"""Reading the inputs of an evaluation: gold, queries, corpus, runs and a judge's labels.

What is done with them is in ``evaluation``. A story's inputs have rules of their own: a query
without text asks nothing, and a story without labelled queries is skipped, not failed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import polars as pl

from karat.data.columns import Duplicates
from karat.data.tables import Blocks, Corpus, Gold, Queries, Run
from karat.errors import InputError, NoGoldError, UsageError
from karat.evaluation.judged_labels import Labelled, with_labels
from karat.formats import read_corpus, read_gold, read_queries, scan_run
from karat.formats.field_mapping import Fields
from karat.formats.readers import load_inputs, load_run, queries_in_gold
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.scores import Scores

if TYPE_CHECKING:
    from karat.retrieve.corpus_index import CorpusIndex


# A smaller corpus is indexed before anyone could read that it is.
_LONG_BYTES = 5_000_000


def is_file(given: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether an input is the name of a file."""
    return isinstance(given, str | os.PathLike)


def is_spark(given: object) -> bool:
    """Return whether an input is a DataFrame of Spark, which need not be installed."""
    kinds = type(given).__mro__
    return any(
        kind.__module__.startswith("pyspark.") and kind.__name__ == "DataFrame" for kind in kinds
    )


def gold_of(
    given: Any,
    *,
    in_queries: bool = False,
    duplicates: Duplicates = "agree",
    format: str | None = None,
    fields: Fields,
) -> Gold:
    """Read gold from a file, a mapping or a frame; a Gold is returned as it is.

    ``in_queries`` says that the same file holds the queries; if it holds no gold, the message
    says so, whatever else can be read there.
    """
    if not is_file(given):
        gold = load_inputs(given, fields=fields, duplicates=duplicates).gold
        if not isinstance(gold, Gold):
            raise UsageError(
                f"gold is expected, not {type(given).__name__}; give a Gold, a mapping, a frame or"
                " the name of a file"
            )
        return gold
    name = os.fspath(given)
    if in_queries:
        fields = fields.together()
    try:
        return read_gold(name, format=format, duplicates=duplicates, fields=fields)
    except NoGoldError:
        raise
    except InputError:
        if not in_queries or not _holds_queries(name, fields):
            raise
    raise InputError(
        "holds queries without gold; name the judgments: gold in karat.yaml, or --gold FILE",
        where=Path(name).name,
    )


def _holds_queries(name: str, fields: Fields) -> bool:
    if not Path(name).exists():
        return False
    try:
        read_queries(name, fields=fields)
    except InputError:
        return False
    return True


def queries_of(
    given: Any, gold: Any, *, gold_format: str | None, fields: Fields, for_spark: bool = False
) -> Queries | None:
    """Read the queries, or those that the gold file itself carries."""
    if is_file(given):
        together = fields.together() if same_file(given, gold) else fields
        return read_queries(os.fspath(given), fields=together)
    if given is not None:
        queries = load_inputs(None, given, fields=fields).queries
        if not isinstance(queries, Queries):
            raise UsageError(f"queries are expected, not {type(given).__name__}")
        return queries
    if not is_file(gold):
        return None
    path = Path(gold)
    # A pipe can be read only once, and the gold was read from it. A folder may hold Spark's files.
    folder = path.is_dir() and not (for_spark and not (path / "qrels").is_dir())
    if not folder and not path.is_file():
        return None
    return queries_in_gold(os.fspath(gold), format=gold_format, fields=fields)


def same_file(first: object, second: object) -> bool:
    """Return whether two inputs are the same file name."""
    return is_file(first) and is_file(second) and os.fspath(first) == os.fspath(second)


def corpus_of(
    given: Any,
    measures: Iterable[Measure],
    *,
    fields: Fields,
    index_cache: Path | None = None,
    notify: Callable[[str], None],
) -> tuple[Corpus | None, CorpusIndex | None]:
    """Read the corpus; with ``index_cache`` open its index there, or build and keep one.

    From an index the texts are read only if a measure needs them.
    """
    if given is None:
        return None, None
    if index_cache is None or not is_file(given):
        corpus = (
            read_corpus(os.fspath(given), fields=fields)
            if is_file(given)
            else load_inputs(None, None, given, fields=fields).corpus
        )
        if not isinstance(corpus, Corpus):
            raise UsageError(f"a corpus is expected, not {type(given).__name__}")
        return corpus, None
    from karat.retrieve.corpus_index import open_index

    name = os.fspath(given)

    def building() -> None:
        if Path(name).stat().st_size >= _LONG_BYTES:
            notify(f"indexing {name}, which is done once")

    index = open_index(name, index_cache, building=building, fields=fields)
    needs_texts = any("texts" in measure.definition.needs for measure in measures)
    return (index.corpus() if needs_texts else index.without_texts()), index


def open_run(
    run: Any,
    *,
    name: str | None = None,
    format: str | None = None,
    strict: bool = False,
    fields: Fields,
) -> Run | Blocks:
    """Open a run; a file is read in blocks when it is scored."""
    if is_file(run):
        return scan_run(os.fspath(run), format=format, name=name, strict=strict, fields=fields)
    opened = load_run(run, fields=fields)
    if not hasattr(opened, "blocks"):
        given = "None" if run is None else type(run).__name__
        raise UsageError(
            f"a run is expected, not {given}; give a Run, the name of its file, a mapping of"
            " queries to items, or a frame"
        )
    return opened


def labels_of(path: str, gold: Gold, prepared: Prepared) -> Labelled:
    """Read a judge's labels and put them into the gold where it has no judgment."""
    from karat.formats.files import open_input
    from karat.formats.labels import count_failed
    from karat.formats.registry import detect_format

    if path == "-":
        raise UsageError("--judged is read twice, so it cannot be standard input; name a file")
    labels = read_gold(path)
    graded = detect_format(path, "gold").name != "labels"
    failed = 0 if graded else count_failed(open_input(path))
    both = with_labels(gold, labels, prepared.conventions, asked=prepared.query_ids)
    if not both.added and not both.known:
        raise InputError(
            "holds no label of a query that has gold; were these queries judged?", where=path
        )
    return replace(both, failed=failed)


STORY = "story"
# Why nothing could be measured, as a story tool calls it and in words.
SKIPPED = {
    "missing_retrieval_queries": "there are no queries",
    "no_labeled_queries": "no query says which scenes are relevant",
}


def why_skipped(scores: Scores) -> str | None:
    """Why a story's run has no metric, in words; None where it has one, or is no story's."""
    counts = scores.counts
    asked = counts.queries - counts.empty_gold - counts.no_answer
    if asked or scores.conventions.profile != STORY:
        return None
    return SKIPPED["no_labeled_queries" if counts.queries else "missing_retrieval_queries"]


def without_grades(scores: Scores) -> str | None:
    """Why measures that ask for high grades have no value; None unless that goes for all."""
    names = [str(one) for one in scores.measures]
    grades = [one.arguments["rel"] for one in scores.measures if "rel" in one.arguments]
    if not grades or len(grades) < len(names) or scores.lacks or not scores.counts.scored:
        return None
    if not all(np.isnan(scores.values(name)).all() for name in names):
        return None
    return f"no query has gold of grade {min(grades):g} or more for {', '.join(names)}"


def without_blank(gold: Gold, queries: Queries) -> tuple[Gold, int]:
    """The gold without that of queries that have no text, and how many had some."""
    asked = queries.frame.select("query_id", "text").iter_rows()
    blank = {query_id for query_id, text in asked if not text.strip()}
    theirs = pl.col("query_id").is_in(list(blank))
    labelled = gold.frame.filter(theirs & (pl.col("grade") > 0))["query_id"].n_unique()
    return (replace(gold, frame=gold.frame.filter(~theirs)), labelled) if blank else (gold, 0)
