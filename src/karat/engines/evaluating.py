"""``karat.evaluate``: in memory, or with Spark where the run is one of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from karat.errors import UsageError
from karat.formats.field_mapping import Fields
from karat.formats.given import File, inputs_of, run_of
from karat.measures.conventions import PROFILES, conventions_of
from karat.measures.names import Measure, parse_measures
from karat.measures.prepare import prepare
from karat.measures.scores import Scores
from karat.measures.scores import evaluate as evaluate_here
from karat.tables import Blocks, Corpus, Gold, Queries, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def evaluate(
    run: Run | Blocks | DataFrame | File,
    gold: Gold | DataFrame | File,
    measures: str | Sequence[str | Measure] | None = None,
    *,
    profile: str = "karat",
    settings: Mapping[str, Any] | None = None,
    queries: Queries | File | None = None,
    corpus: Corpus | File | None = None,
    fields: Mapping[str, str] | None = None,
) -> Scores:
    """Score a run against gold; without ``measures`` by those of the profile.

    ``settings`` changes conventions of the profile, as ``--set`` does. ``queries`` decides
    which queries there are and brings their k, as_of and entities; ``corpus`` brings texts,
    versions and documents to the measures that need them. A run that is a Spark DataFrame is
    scored where its rows are, and the gold may be one too. Each input may also be the name of a
    file or a Polars, pandas or Arrow table; ``fields`` then says which columns have other names
    than karat's: ``{"gold": "gold_ids", "run.item_id": "pid"}``.

    >>> from karat.tables import Gold, Run
    >>> gold = Gold.from_dict({"q1": {"A": 1, "B": 1}})
    >>> run = Run.from_dict({"q1": ["X", "A", "Y", "Z", "W"]})
    >>> evaluate(run, gold, ["R@5", "P@5", "Hit@5", "RR"]).means()
    {'R@5': 0.5, 'P@5': 0.2, 'Hit@5': 1.0, 'RR': 0.5}
    """
    mapped = Fields.of(fields)
    duplicates = conventions_of(profile, settings).duplicates
    gold, queries, corpus = inputs_of(gold, queries, corpus, fields=mapped, duplicates=duplicates)
    run = run_of(run, fields=mapped)
    mapped.check()
    options: dict[str, Any] = {"queries": queries, "corpus": corpus}
    if _is_spark(run):
        return _with_spark(run, gold, measures, profile, settings, **options)
    if _is_spark(gold):
        raise UsageError("gold of Spark goes with a run of Spark; make both DataFrames or neither")
    tables: tuple[Any, Any] = (run, gold)
    return evaluate_here(*tables, measures, profile=profile, settings=settings, **options)


def _is_spark(table: object) -> TypeGuard[DataFrame]:
    """Whether it is a DataFrame of Spark, which need not be installed."""
    kinds = type(table).__mro__
    return any(
        one.__module__.startswith("pyspark.") and one.__name__ == "DataFrame" for one in kinds
    )


def _with_spark(
    run: Any,
    gold: Any,
    measures: str | Sequence[str | Measure] | None,
    profile: str,
    settings: Mapping[str, Any] | None,
    *,
    queries: Queries | None,
    corpus: Corpus | None,
) -> Scores:
    from karat.engines.spark.inputs import of_frame
    from karat.engines.spark.scoring import of_gold, of_rows, score

    conventions = conventions_of(profile, settings)
    named = PROFILES[profile].measures if measures is None else measures
    chosen = parse_measures(named, conventions=conventions)
    if _is_spark(gold):
        judged = of_rows(of_frame(gold), conventions.duplicates)
    elif isinstance(gold, Gold):
        judged = of_gold(run.sparkSession, gold)
    else:
        raise UsageError("the gold of a Spark run is a Gold or a Spark DataFrame")
    prepared = prepare(judged.header, conventions, queries=queries, corpus=corpus)
    lenient = chosen if measures is None else ()
    tables: dict[str, Any] = {"queries": queries, "corpus": corpus}
    return score(of_frame(run), judged, prepared, chosen, lenient=lenient, **tables)
