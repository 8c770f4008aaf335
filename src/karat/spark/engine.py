"""Spark as the engine of an evaluation.

Queries are divided into blocks by a hash of their ids; workers score the blocks, and the scores
are merged here.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import polars as pl

from karat.data.columns import ITEM_NAMES, Duplicates
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import InputError, KaratError, UsageError
from karat.formats.readers import read_gold
from karat.formats.registry import detect_format, format_named
from karat.formats.runlog import SAME_IN_ALL_LINES
from karat.measure.lists import ListNeeds
from karat.measure.misfits import Meeting
from karat.measure.names import Measure
from karat.measure.prepare import Prepared
from karat.measure.score_builder import PartialScores, ScoreBuilder, merge_scores
from karat.measure.scores import Scores
from karat.spark.blocks import (
    FILE,
    GOLD,
    PIECE_SCHEMA,
    QUERY,
    RESULT_SCHEMA,
    RUN,
    BlockResult,
    BlockTask,
    Divider,
    RowReader,
)
from karat.spark.inputs import (
    READABLE,
    Rows,
    is_one_file,
    on_one_machine,
    open_rows,
    read_row_groups,
    row_groups,
    rows_of_frame,
)
from karat.spark.session import session, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The hits of a block: enough to keep a worker busy, few enough for its memory.
BLOCK_ROWS = 2_000_000
_POSITION = "_karat_position"
# This many rows of gold show which columns it has.
_SAMPLE = 100


def start(master: str | None, *, progress: bool = False) -> SparkEngine:
    """Return an engine on the active session, or on a new one that ends with the engine."""
    from pyspark.sql import SparkSession

    owned = SparkSession.getActiveSession() is None
    return SparkEngine(session(master, progress=progress and sys.stderr.isatty()), owned)


@dataclass(eq=False)
class SparkEngine:
    """A Spark session and the gold that it read; ``owned`` if it ends with the engine."""

    spark: SparkSession
    owned: bool
    gold: SparkGold | None = None

    def read_gold(
        self, gold: Any, *, duplicates: Duplicates = "agree", format: str | None = None
    ) -> Gold:
        """Return the queries of the gold without its judgments, which stay with Spark."""
        if isinstance(gold, Gold):
            self.gold = _send_gold(self.spark, gold)
        elif isinstance(gold, str):
            self.gold = _open_gold(self.spark, gold, format=format, duplicates=duplicates)
        else:
            self.gold = _gold_of_rows(rows_of_frame(gold), duplicates)
        return self.gold.header

    def score(
        self,
        run: Any,
        prepared: Prepared,
        measures: Sequence[Measure],
        *,
        format: str | None = None,
        lenient: Collection[Measure] = (),
        queries: Queries | None = None,
        corpus: Corpus | None = None,
        keep: int = 0,
        strict: bool = False,
    ) -> Scores:
        """Score a run: a file, a folder, a pattern or a URL that Spark reads, or a DataFrame.

        ``prepared`` is made of what ``read_gold`` returned, with the queries to score.
        """
        if self.gold is None:
            raise UsageError("Spark scores runs against gold that it read")
        is_path = isinstance(run, str)
        rows = open_rows(self.spark, run, "run", format) if is_path else rows_of_frame(run)
        if queries is not None:
            # Workers do not need the texts, which can be large.
            queries = replace(queries, frame=queries.frame.with_columns(text=pl.lit("")))
        task = BlockTask(
            rows.reader,
            self.gold.rows.reader,
            tuple(measures),
            prepared.conventions,
            queries=queries,
            unjudged=self.gold.unjudged,
            corpus=corpus,
            keep=keep,
            strict=strict,
        )
        collected = _CollectedResults(task, self.gold, rows)
        scores = merge_scores(
            collected.parts(_results(rows, self.gold.rows, task), prepared.query_ids),
            prepared,
            measures,
            lenient=lenient,
            run=Run(pl.DataFrame(), name=rows.name, source=rows.source),
            all_ids=lambda: pl.DataFrame(collected.stages.returned),
        )
        lists = None if scores.lists is None else scores.lists.sort("row", "rank")
        return replace(scores, lists=lists)

    def close(self) -> None:
        """Stop the session, if the engine started it."""
        if self.owned:
            self.spark.stop()


@dataclass(frozen=True, eq=False)
class SparkGold:
    """Gold whose judgments stay with Spark; ``header`` has its queries and no judgment.

    ``unjudged`` are the queries without a judgment.
    """

    rows: Rows
    header: Gold
    unjudged: frozenset[str] = frozenset()


def _open_gold(
    spark: SparkSession, path: str, *, format: str | None, duplicates: Duplicates
) -> SparkGold:
    """Open gold with Spark; a format that only karat reads is read here and sent to Spark."""
    if is_one_file(path) or (Path(path) / "qrels").is_dir():
        form = format_named(format) if format else detect_format(path, "gold")
        if form.name not in READABLE["gold"]:
            return _send_gold(spark, read_gold(path, format=format, duplicates=duplicates))
    return _gold_of_rows(open_rows(spark, path, "gold", format), duplicates)


def _gold_of_rows(rows: Rows, duplicates: Duplicates) -> SparkGold:
    """Return gold with its queries in the order of their first judgments."""
    name = rows.source.name
    with spark_errors(f"{name}: cannot be read"):
        if rows.files:
            tables = [pl.scan_parquet(file, glob=False) for file in rows.files]
            heads = (table.head(_SAMPLE).collect() for table in tables)
            sample = next((head for head in heads if head.height), pl.DataFrame())
            query = pl.col(rows.reader.query).cast(pl.String).alias(QUERY)
            ids = pl.concat(table.select(query) for table in tables)
            query_ids = ids.unique(maintain_order=True).collect()[QUERY]
        else:
            query_ids = _query_ids(rows)
            sample = pl.DataFrame(rows.frame.limit(_SAMPLE).toArrow())
    if not len(query_ids):
        raise InputError("holds no judgments; at least one is expected", where=name)
    if query_ids.null_count():
        raise InputError("query_id is empty; every row needs one", where=name)
    gold = rows.reader.gold(sample, duplicates=duplicates)
    schema = {} if gold is None else gold.frame.schema
    header = Gold(pl.DataFrame(schema=schema), tuple(query_ids.to_list()), source=rows.source)
    return SparkGold(rows, header)


def _query_ids(rows: Rows) -> pl.Series:
    """Return the ids of all queries, in the order of their first rows."""
    from pyspark.sql import functions as fn

    places = [*([FILE] if FILE in rows.frame.columns else []), _POSITION]
    numbered = rows.frame.withColumn(_POSITION, fn.monotonically_increasing_id())
    query = fn.col(f"`{rows.reader.query}`").cast("string").alias(QUERY)
    first = numbered.groupBy(query).agg(fn.min(fn.struct(*places)).alias("first"))
    return pl.DataFrame(first.select(QUERY, "first.*").toArrow()).sort(places)[QUERY]


def _send_gold(spark: SparkSession, gold: Gold) -> SparkGold:
    """Return gold that is in memory as a table of Spark."""
    import pyarrow as pa

    with spark_errors("the gold cannot be handed to Spark"):
        table = gold.frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        # Spark has one type of text.
        types = {pa.large_string(): pa.string()}
        fields = [pa.field(field.name, types.get(field.type, field.type)) for field in table.schema]
        frame = spark.createDataFrame(table.cast(pa.schema(fields)))
    reader = RowReader(gold.source.name, "query_id")
    rows = Rows(frame, reader, gold.source, "gold", gold.frame.height)
    header = Gold(gold.frame.clear(), gold.query_ids, source=gold.source)
    judged = gold.frame["query_id"].unique().to_list()
    return SparkGold(rows, header, frozenset(gold.query_ids).difference(judged))


def _results(run: Rows, gold: Rows, task: BlockTask) -> Iterator[BlockResult | KaratError]:
    """Yield the result of every block."""
    spark = run.frame.sparkSession
    blocks = max(spark.sparkContext.defaultParallelism, 1)
    if run.rows is None:
        partitions = spark.conf.get("spark.sql.shuffle.partitions", "200")
        blocks = max(4 * blocks, int(partitions or 200))
    else:
        blocks = max(blocks, -(-run.rows // BLOCK_ROWS))
    shared_task = spark.sparkContext.broadcast(task)

    def work(pieces: Any) -> Any:
        import pyarrow as pa

        result = shared_task.value.pickled_result(pieces)
        return pa.table({"result": pa.array([result], pa.binary())})

    with ExitStack() as stack:
        stack.enter_context(spark_errors(f"{run.source.name}: Spark could not score it"))
        # On one machine, Spark need not move the rows: all workers see a folder.
        local = on_one_machine(spark)
        folder = stack.enter_context(TemporaryDirectory(prefix="karat-spark-")) if local else None
        hits = _divide(run, _needed_columns(run, task), Divider(run.reader, RUN, blocks, folder))
        judgments = _divide(gold, gold.frame, Divider(gold.reader, GOLD, blocks, folder))
        by_block = hits.unionAll(judgments).repartition(blocks, "block").groupBy("block")
        results = by_block.applyInArrow(work, RESULT_SCHEMA).toArrow()
        shared_task.destroy()
    for result in results["result"]:
        yield pickle.loads(result.as_py())  # noqa: S301 - our own workers wrote it


def _needed_columns(run: Rows, task: BlockTask) -> DataFrame:
    """Return the columns that the measures use, if these need only the ranks of items."""
    plain = not ListNeeds.of(task.measures).needs and not task.keep
    if run.reader.format is not None or not plain or task.conventions.level != "item":
        return run.frame
    names = [run.reader.query, *ITEM_NAMES, "score", "rank", "stage", FILE]
    return run.frame.select([f"`{name}`" for name in run.frame.columns if name in names])


def _divide(rows: Rows, frame: DataFrame, divider: Divider) -> DataFrame:
    """Return a table as pieces of blocks; workers that see its files read these themselves."""
    read: Callable[[Iterator[Any]], Iterator[Any]] = iter
    if rows.files:
        columns = [name for name in frame.columns if name != FILE]
        frame = row_groups(frame.sparkSession, rows.files, columns, slices=divider.blocks)
        read = read_row_groups

    def divide(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        yield from divider.pieces(read(batches), partition)

    return frame.mapInArrow(divide, PIECE_SCHEMA)


@dataclass(eq=False)
class _CollectedResults:
    """The parts of all blocks, and the checks that need all of them."""

    task: BlockTask
    gold: SparkGold
    run: Rows
    stages: Meeting = field(default_factory=Meeting)

    def parts(
        self, results: Iterator[BlockResult | KaratError], query_ids: Sequence[str]
    ) -> Iterator[PartialScores]:
        """Yield every part, one for queries without any row, and one with the run's meta data."""
        errors: list[KaratError] = []
        metas: list[dict[str, Any]] = []
        spans: set[bool | None] = set()
        seen: set[str] = set()
        returned = False
        for result in results:
            if isinstance(result, KaratError):
                errors.append(result)
                continue
            spans.add(result.spans)
            returned |= result.returned
            self.stages += result.stages
            metas.append(dict(result.part.meta))
            seen.update(result.part.query_ids)
            yield replace(result.part, meta={})
        run_name = self.run.source.name
        if errors:
            # Blocks end in any order; the same input must give the same message.
            raise min(errors, key=str)
        if not returned:
            raise InputError("holds no hits; at least one row is expected", where=run_name)
        if spans - {None} == {True} and self.task.conventions.level != "span":
            raise InputError(
                "this gold holds character spans; score it with --set level=span "
                "(settings: {level: span} in karat.yaml)",
                where=self.gold.header.source.name,
            )
        if without_rows := [query_id for query_id in query_ids if query_id not in seen]:
            prepared = self.task.prepare(self.gold.header, without_rows)
            yield ScoreBuilder(prepared, self.task.measures).partial()
        yield PartialScores(meta=self._meta(metas))

    def _meta(self, metas: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the facts about the run: those of its first lines, then what others add."""
        reader = self.run.reader
        if reader.format is not None and self.run.head:
            first = reader.run(self.run.first_lines(), strict=False)
            metas = [{} if first is None else dict(first.meta), *metas]
        for key in ("system", *SAME_IN_ALL_LINES) if reader.format == "runlog" else ():
            values = sorted({repr(meta[key]) for meta in metas if key in meta})
            if len(values) > 1:
                raise InputError(
                    f"{key} is {values[0]} in one line and {values[1]} in another; a log is of "
                    "one system and one set of queries: keep each in a file of its own",
                    where=self.run.source.name,
                )
        return {key: value for meta in reversed(metas) for key, value in meta.items()}
