"""Scoring with Spark: queries are shared out by a hash of their ids, and scores come back."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql import functions as fn

from karat.data.columns import ITEM_NAMES, Duplicates
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import InputError, KaratError
from karat.formats import read_gold
from karat.formats.detect import detect_format
from karat.formats.registry import format_named
from karat.formats.runlog import SAME_IN_ALL_LINES
from karat.measures.lists import ListNeeds
from karat.measures.misfits import Meeting
from karat.measures.names import Measure
from karat.measures.prepare import prepare
from karat.measures.score_builder import PartialScores, ScoreBuilder, merge_scores
from karat.measures.scores import Scores
from karat.spark.blocks import (
    FILE,
    GOLD,
    LINE,
    QUERY,
    RESULT,
    RUN,
    SCHEMA,
    Form,
    Result,
    Sharing,
    Task,
)
from karat.spark.engine import quietly
from karat.spark.inputs import (
    READ,
    Rows,
    first_rows,
    first_seen,
    is_one_file,
    on_one_machine,
    open_rows,
    read_groups,
    row_groups,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from karat.measures.prepare import Prepared

# So many hits make a block: enough to keep a worker busy, few enough for its memory.
BLOCK_ROWS = 2_000_000
MOST_BLOCKS = 100_000
_AT = "_karat_at"
# Of gold so many rows show which columns there are.
_SAMPLE = 100


@dataclass(frozen=True, eq=False)
class SparkGold:
    """Gold whose judgments stay with Spark; ``header`` has its queries, and no judgment.

    ``unjudged`` are the queries of which it holds none.
    """

    rows: Rows
    header: Gold
    unjudged: frozenset[str] = frozenset()


def open_gold(
    spark: SparkSession, path: str, *, format: str | None, duplicates: Duplicates
) -> SparkGold:
    """Gold that Spark reads; a format that only karat reads is read here and handed over."""
    if is_one_file(path) or _is_beir(path):
        form = format_named(format) if format else detect_format(path, "gold")
        if form.name not in READ["gold"]:
            return of_gold(spark, read_gold(path, format=format, duplicates=duplicates))
    rows = open_rows(spark, path, "gold", format)
    return of_rows(rows, duplicates)


def _is_beir(path: str) -> bool:
    return (Path(path) / "qrels").is_dir()


def of_rows(rows: Rows, duplicates: Duplicates) -> SparkGold:
    """Gold by the queries that Spark finds in it, in the order of their first judgments."""
    name = rows.source.name
    with quietly(f"{name}: cannot be read"):
        if rows.files:
            ids, sample = first_seen(rows.files, rows.form.query), first_rows(rows.files, _SAMPLE)
        else:
            ids, sample = _first_seen(rows), pl.DataFrame(rows.frame.limit(_SAMPLE).toArrow())
    if not len(ids):
        raise InputError("holds no judgments; at least one is expected", where=name)
    if ids.null_count():
        raise InputError("query_id is empty; every row needs one", where=name)
    seen = rows.form.gold(sample, duplicates=duplicates)
    schema = {} if seen is None else seen.frame.clear().schema
    header = Gold(pl.DataFrame(schema=schema), tuple(ids.to_list()), source=rows.source)
    return SparkGold(rows, header)


def _first_seen(rows: Rows) -> pl.Series:
    """Return the ids of all queries, in the order of their first rows."""
    places = [FILE] if FILE in rows.frame.columns else []
    numbered = rows.frame.withColumn(_AT, fn.monotonically_increasing_id())
    first = fn.min(fn.struct(*places, _AT)).alias("first")
    query = fn.col(f"`{rows.form.query}`").cast("string").alias(QUERY)
    found = numbered.groupBy(query).agg(first).select(QUERY, "first.*").toArrow()
    return pl.DataFrame(found).sort(*places, _AT)[QUERY]


def of_gold(spark: SparkSession, gold: Gold) -> SparkGold:
    """Gold in memory, handed to Spark."""
    with quietly("the gold cannot be handed to Spark"):
        table = gold.frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        frame = spark.createDataFrame(_plain(table))
    form = Form(gold.source.name, "query_id")
    rows = Rows(frame, form, gold.source, "gold", gold.frame.height)
    header = Gold(gold.frame.clear(), gold.query_ids, source=gold.source)
    judged = gold.frame["query_id"].unique().to_list()
    return SparkGold(rows, header, frozenset(gold.query_ids).difference(judged))


def _plain(table: Any) -> Any:
    """Return an Arrow table with the kinds of columns that Spark has."""
    import pyarrow as pa

    kinds = {pa.large_string(): pa.string()}
    fields = [pa.field(one.name, kinds.get(one.type, one.type)) for one in table.schema]
    return table.cast(pa.schema(fields))


def score(
    run: Rows,
    gold: SparkGold,
    prepared: Prepared,
    measures: Sequence[Measure],
    *,
    lenient: Collection[Measure] = (),
    queries: Queries | None = None,
    corpus: Corpus | None = None,
    keep: int = 0,
    strict: bool = False,
) -> Scores:
    """Score a run; ``prepared`` is made of the gold's header and tells what is asked."""
    task = Task(
        run.form,
        gold.rows.form,
        tuple(measures),
        prepared.conventions,
        queries=None if queries is None else replace(queries, frame=_needed(queries.frame)),
        unjudged=gold.unjudged,
        corpus=corpus,
        keep=keep,
        strict=strict,
    )
    results = _results(run, gold.rows, task)
    parts = _Parts(results, prepared.query_ids, task, gold, run)
    named = Run(pl.DataFrame(), name=run.name, source=run.source)
    scores = merge_scores(
        parts.all(),
        prepared,
        measures,
        lenient=lenient,
        run=named,
        all_ids=lambda: parts.stages.returned,
    )
    lists = None if scores.lists is None else scores.lists.sort("row", "rank")
    return replace(scores, lists=lists)


def _needed(frame: pl.DataFrame) -> pl.DataFrame:
    """What workers need of queries; texts can be large."""
    return frame.with_columns(text=pl.lit(""))


def _results(run: Rows, gold: Rows, task: Task) -> Iterator[Result | KaratError]:
    """What came of every block, one after the other."""
    spark = run.frame.sparkSession
    n = _blocks(run, spark)
    shared = spark.sparkContext.broadcast(task)

    def work(pieces: Any) -> Any:
        import pyarrow as pa

        return pa.table({"result": pa.array([shared.value.packed(pieces)], pa.binary())})

    with quietly(f"{run.source.name}: Spark could not score it"), _folder(spark) as folder:
        needed = _needed_of(run.frame, run.form, task)
        hits = _pieces(run, needed, Sharing(run.form, RUN, n, folder))
        judgments = _pieces(gold, gold.frame, Sharing(gold.form, GOLD, n, folder))
        pieces = hits.unionAll(judgments)
        by_block = pieces.repartition(n, "block").groupBy("block")
        found = by_block.applyInArrow(work, RESULT).toArrow()
        shared.destroy()
    for packed in found["result"]:
        yield pickle.loads(packed.as_py())  # noqa: S301 - our own workers wrote it


@contextmanager
def _folder(spark: SparkSession) -> Iterator[str | None]:
    """Return a folder for pieces, where all workers are on this machine."""
    if not on_one_machine(spark):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="karat-spark-") as folder:
        yield folder


def _pieces(rows: Rows, needed: DataFrame, sharing: Sharing) -> DataFrame:
    """The columns that are needed in pieces; workers that see the files read these themselves."""
    if not rows.files:
        return _shared_out(needed, sharing)
    columns = [name for name in needed.columns if name != FILE]
    groups = row_groups(rows.frame.sparkSession, rows.files, columns, slices=sharing.blocks)
    return _shared_out(groups, sharing, read_groups)


def _shared_out(
    frame: DataFrame,
    sharing: Sharing,
    reader: Callable[[Iterator[Any]], Iterator[Any]] = iter,
) -> DataFrame:
    def share(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        yield from sharing.pieces(reader(batches), partition)

    return frame.mapInArrow(share, SCHEMA)


def _needed_of(frame: DataFrame, form: Form, task: Task) -> DataFrame:
    """Return the columns that the measures look at, where these are the ranks of items alone."""
    plain = not ListNeeds.of(task.measures).needs and not task.keep
    if form.format is not None or not plain or task.conventions.level != "item":
        return frame
    names = [form.query, *ITEM_NAMES, "score", "rank", "stage", FILE]
    return frame.select([f"`{name}`" for name in frame.columns if name in names])


def _blocks(run: Rows, spark: SparkSession) -> int:
    """Into how many blocks the queries are shared out."""
    least = max(spark.sparkContext.defaultParallelism, 1)
    if run.rows is None:
        return max(4 * least, int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200))
    return min(max(least, -(-run.rows // BLOCK_ROWS)), MOST_BLOCKS)


class _Parts:
    """The parts of all blocks, and what can be said of them together only."""

    def __init__(
        self,
        results: Iterator[Result | KaratError],
        query_ids: Sequence[str],
        task: Task,
        gold: SparkGold,
        run: Rows,
    ) -> None:
        self.results, self.query_ids, self.task = results, query_ids, task
        self.gold, self.run = gold, run
        self.metas: list[dict[str, Any]] = []
        self.spans: set[bool | None] = set()
        self.returned = False
        self.stages = Meeting()

    def all(self) -> Iterator[PartialScores]:
        """Every part, one for the queries of which Spark saw nothing, one for all of the run."""
        refused: list[KaratError] = []
        seen: set[str] = set()
        for result in self.results:
            if isinstance(result, KaratError):
                refused.append(result)
                continue
            self.spans.add(result.spans)
            self.returned |= result.returned
            self.stages += result.stages
            self.metas.append(dict(result.part.meta))
            seen.update(result.part.query_ids)
            yield replace(result.part, meta={})
        if refused:
            # Blocks end in any order; the same input is refused in the same words.
            raise min(refused, key=str)
        if not self.returned:
            where = self.run.source.name
            raise InputError("holds no hits; at least one row is expected", where=where)
        if self.spans - {None} == {True} and self.task.conventions.level != "span":
            raise InputError(
                "this gold holds character spans; score it with --set level=span "
                "(settings: {level: span} in karat.yaml)",
                where=self.gold.header.source.name,
            )
        left = [query_id for query_id in self.query_ids if query_id not in seen]
        if left:
            yield self._of(left)
        # What the run says of itself, the same in whatever order blocks end.
        yield PartialScores(meta=self._meta())

    def _of(self, left: list[str]) -> PartialScores:
        """Queries that have neither hits nor judgments."""
        nothing = replace(self.gold.header, query_ids=tuple(left))
        queries = self.task.queries
        if queries is not None:
            rows = queries.frame.filter(pl.col("query_id").is_in(left))
            queries = replace(queries, frame=rows)
        own = prepare(nothing, self.task.conventions, queries=queries, corpus=self.task.corpus)
        return ScoreBuilder(own, self.task.measures).partial()

    def _meta(self) -> dict[str, Any]:
        """What the run says of itself: its first lines, then what any other adds."""
        metas = [self._of_head(), *self.metas]
        for key in ("system", *SAME_IN_ALL_LINES) if self.run.form.format == "runlog" else ():
            told = {repr(meta[key]): meta[key] for meta in metas if key in meta}
            if len(told) > 1:
                one, other = sorted(told)[:2]
                raise InputError(
                    f"{key} is {one} in one line and {other} in another; a log is of one system "
                    "and one set of queries: keep each in a file of its own",
                    where=self.run.source.name,
                )
        whole: dict[str, Any] = {}
        for meta in reversed(metas):
            whole |= meta
        return whole

    def _of_head(self) -> dict[str, Any]:
        """Of lines, the first ones are karat's to read too; columns say nothing."""
        if self.run.form.format is None or not self.run.head:
            return {}
        first = self.run.form.run(pl.DataFrame({LINE: self._head_lines()}), strict=False)
        return {} if first is None else dict(first.meta)

    def _head_lines(self) -> list[str]:
        lines = self.run.head.decode("utf-8", "replace").split("\n")
        kept = [line for line in lines if line.strip()]
        return kept[1:] if self.run.form.header is not None else kept
