"""Blocks of queries on a worker: rows packed and unpacked, read as a run and gold, and scored."""

from __future__ import annotations

import io
import pickle
import re
import secrets
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.columns import Duplicates, Source, join_spans
from karat.data.tables import Corpus, Gold, Order, Queries, Run
from karat.errors import InputError, KaratError
from karat.formats.blocks import StreamedRun
from karat.formats.files import Input
from karat.formats.labels import read_label_lines
from karat.formats.named_columns import gold_of_table, hits_of_batches
from karat.formats.registry import format_named
from karat.measure.conventions import Conventions
from karat.measure.misfits import Meeting, ids_of_stages, returned_ids
from karat.measure.names import Measure
from karat.measure.prepare import Prepared, prepare
from karat.measure.score_builder import PartialScores, ScoreBuilder

# Columns that karat adds: a line, the id of its query, and the number of its file.
QUERY, LINE, FILE = "_karat_query", "_karat_line", "_karat_file"
_LONGEST_SHOWN = 120
# How a message refers to an earlier line.
_OTHER_LINE = re.compile(r"\bin line (\d+)\b")
_NO_GOLD = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}


@dataclass(frozen=True)
class RowReader:
    """Reads rows as columns, or as lines of a ``format``.

    ``query`` is the column with the query's id, ``header`` the first line of every file, if the
    format has one.
    """

    name: str
    query: str
    format: str | None = None
    header: str | None = None

    def run(self, frame: pl.DataFrame, *, strict: bool) -> Run | None:
        """Return the run of some rows in file order; None without any row."""
        if not frame.height:
            return None
        with self._lines_quoted(frame):
            if self.format is not None:
                read = format_named(self.format).reader("run")
                run: StreamedRun = read(self._file(frame), name="run", strict=strict)
                return run.read()
            file, rows = self._table(frame)
            order: Order = "score" if "score" in frame.columns else "rank"

            def batches() -> Iterator[pl.DataFrame]:
                return hits_of_batches(iter([(frame, rows)]), file, strict)

            return StreamedRun("run", file.source, batches, order=order, strict=strict).read()

    def gold(self, frame: pl.DataFrame, *, duplicates: Duplicates) -> Gold | None:
        """Return the judgments of some rows; None without any."""
        if not frame.height:
            return None
        with self._lines_quoted(frame):
            if self.format is None:
                file, rows = self._table(frame)
                return gold_of_table(frame, rows, file, duplicates)
            file = self._file(frame)
            is_labels = self.format == "labels"
            if is_labels and all(label.grade is None for label in read_label_lines(file)):
                return None
            gold: Gold = format_named(self.format).reader("gold")(file, duplicates=duplicates)
            return gold

    def _table(self, frame: pl.DataFrame) -> tuple[Input, pl.Series]:
        """Return the file that errors name, and the numbers of the rows."""
        rows = pl.int_range(1, frame.height + 1, eager=True)
        return Input(Source(self.name), data=b""), rows

    def _file(self, frame: pl.DataFrame) -> Input:
        """Return the lines as a file."""
        lines = frame[LINE].to_list()
        if self.header is not None:
            lines.insert(0, self.header)
        return Input(Source(self.name), data="\n".join([*lines, ""]).encode())

    @contextmanager
    def _lines_quoted(self, frame: pl.DataFrame) -> Iterator[None]:
        """Quote the line that an error names, whose number in a block means nothing."""

        def quoted(line: int) -> str:
            row = line - 1 - (self.header is not None)
            if LINE not in frame.columns or not 0 <= row < frame.height:
                return ""
            text = frame[LINE][row]
            shown = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
            return f"in the line {shown!r}"

        try:
            yield
        except InputError as error:
            problem = _OTHER_LINE.sub(
                lambda match: quoted(int(match[1])) or "in another row", error.what
            )
            text = quoted(error.line or 0)
            message = f"{problem} ({text})" if text else problem
            raise InputError(message, where=error.where) from None


# A piece holds packed rows of one block: of the run or the gold, from which partition and which
# part of it, and the rows, or the file (which all workers see) that holds them and where.
PIECE_SCHEMA = "block int, side int, partition int, part int, rows binary, file string, start long"
RUN, GOLD = 0, 1
# How many rows are divided at a time; more if there are many blocks, because a piece has a cost.
_ROWS = 1_000_000
_ROWS_PER_PIECE = 500


@dataclass(frozen=True)
class Divider:
    """Divides the rows of a run or of gold among ``blocks``.

    On one machine, pieces lie in files of ``folder``, and Spark moves only where they are.
    """

    reader: RowReader
    side: int
    blocks: int
    folder: str | None = None

    def pieces(self, batches: Iterable[Any], partition: int) -> Iterator[Any]:
        """Yield Arrow batches or frames as pieces of blocks, in the order of their rows."""
        enough = max(_ROWS, _ROWS_PER_PIECE * self.blocks)
        waiting: list[pl.DataFrame] = []
        rows = part = 0
        for batch in batches:
            frame = batch if isinstance(batch, pl.DataFrame) else pl.DataFrame(batch)
            waiting.append(frame)
            rows += frame.height
            if rows >= enough:
                yield self._pack(waiting, partition, part)
                waiting, rows, part = [], 0, part + 1
        if rows:
            yield self._pack(waiting, partition, part)

    def _pack(self, frames: list[pl.DataFrame], partition: int, part: int) -> Any:
        import pyarrow as pa

        # A column may have different number types in different files.
        frame = pl.concat(frames, how="vertical_relaxed")
        block_of_row = self._block_of_row(frame)
        order = np.argsort(block_of_row, kind="stable")
        frame = frame[order]
        blocks, starts = np.unique(block_of_row[order], return_index=True)
        bounds = [*starts.tolist(), frame.height]
        packed = [
            _pack_rows(frame[start:end], self.reader.query) for start, end in pairwise(bounds)
        ]
        count = len(blocks)
        rows = packed
        file: list[str | None] = [None] * count
        place: list[int | None] = [None] * count
        if self.folder is not None:
            # Every attempt of a task writes a file of its own.
            path = Path(self.folder) / secrets.token_hex(8)
            path.write_bytes(b"".join(packed))
            sizes = [len(piece) for piece in packed]
            rows, file = [b""] * count, [str(path)] * count
            place = (np.cumsum(sizes) - sizes).tolist()
        columns = {
            "block": pa.array(blocks.astype(np.int32)),
            "side": pa.array([self.side] * count, pa.int32()),
            "partition": pa.array([partition] * count, pa.int32()),
            "part": pa.array([part] * count, pa.int32()),
            "rows": pa.array(rows, pa.binary()),
            "file": pa.array(file, pa.string()),
            "start": pa.array(place, pa.int64()),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _block_of_row(self, frame: pl.DataFrame) -> NDArray[np.unsignedinteger[Any]]:
        """Return the block of each row, by the text of its query's id."""
        ids = frame[self.reader.query].cast(pl.String).fill_null("")
        runs = ids.rle().struct.unnest()
        names = runs["value"].unique()
        hashes = [zlib.crc32(name.encode()) % self.blocks for name in names.to_list()]
        # Numbers below 65,536 are sorted by counting.
        kind = pl.UInt16 if self.blocks <= 1 << 16 else pl.UInt32
        blocks = runs["value"].replace_strict(names, hashes, return_dtype=kind)
        return np.repeat(blocks.to_numpy(), runs["len"].to_numpy())


def _pack_rows(frame: pl.DataFrame, query: str) -> bytes:
    """Return rows as bytes, with the query's id once for consecutive rows."""
    streams = []
    for table in (frame[query].rle().struct.unnest(), frame.drop(query)):
        buffer = io.BytesIO()
        table.write_ipc_stream(buffer, compression="uncompressed")
        streams.append(buffer.getvalue())
    return pickle.dumps(streams, protocol=5)


def _unpack_rows(rows: bytes, file: str | None, start: int | None, query: str) -> pl.DataFrame:
    # Only karat's own workers write these bytes, within one job.
    if file is None:
        streams = pickle.loads(rows)  # noqa: S301
    else:
        with Path(file).open("rb") as opened:
            opened.seek(start or 0)
            streams = pickle.load(opened)  # noqa: S301
    runs, columns = map(pl.read_ipc_stream, streams)
    row = np.repeat(np.arange(runs.height), runs["len"].to_numpy())
    return columns.with_columns(runs["value"].gather(row).alias(query))


def _rows_of(pieces: Any, side: int, query: str) -> pl.DataFrame:
    """Return the rows of a block's run or gold, in file order."""
    packed = pl.DataFrame(pl.from_arrow(pieces)).filter(pl.col("side") == side)
    if not packed.height:
        return pl.DataFrame()
    places = packed.sort("partition", "part").select("rows", "file", "start").iter_rows()
    frames = [_unpack_rows(rows, file, start, query) for rows, file, start in places]
    frame = pl.concat(frames, how="vertical_relaxed")
    if FILE in frame.columns:
        frame = frame.sort(FILE, maintain_order=True).drop(FILE)
    return frame


RESULT_SCHEMA = "result binary"


@dataclass(frozen=True, eq=False)
class BlockTask:
    """Everything that a worker needs besides its rows.

    ``queries`` are all queries to score, if they were given; otherwise those of the gold are
    scored, including the ``unjudged`` ones, for which it has no judgment.
    """

    run: RowReader
    gold: RowReader
    measures: Sequence[Measure]
    conventions: Conventions
    queries: Queries | None = None
    unjudged: frozenset[str] = frozenset()
    corpus: Corpus | None = None
    keep: int = 0
    strict: bool = False

    def pickled_result(self, pieces: Any) -> bytes:
        """Return the pickled result of a block, or the error in its rows."""
        try:
            hits = _rows_of(pieces, RUN, self.run.query)
            judgments = _rows_of(pieces, GOLD, self.gold.query)
            result: BlockResult | KaratError = self._score(hits, judgments)
        except KaratError as error:
            result = error
        return pickle.dumps(result, protocol=5)

    def _score(self, hits: pl.DataFrame, judgments: pl.DataFrame) -> BlockResult:
        run = self.run.run(hits, strict=self.strict)
        gold = self.gold.gold(judgments, duplicates=self.conventions.duplicates)
        spans = None if gold is None else "start" in gold.frame.columns
        if gold is not None and spans and self.conventions.level != "span":
            # One block cannot know whether all gold is spans.
            gold = replace(gold, frame=join_spans(gold.frame))
        query_ids = self._queries_to_score([] if gold is None else list(gold.query_ids), run)
        if not query_ids:
            return BlockResult.of(_without_scored_queries(run), run, spans)
        prepared = self.prepare(gold, query_ids)
        builder = ScoreBuilder(prepared, self.measures, self.keep)
        if run is not None:
            builder.add(run)
        part = replace(builder.partial(), units=_gold_units(prepared, self.measures))
        return BlockResult.of(part, run, spans)

    def _queries_to_score(self, judged: list[str], run: Run | None) -> list[str]:
        called = [] if run is None else run.hits["query_id"].unique().sort().to_list()
        if run is not None and run.calls is not None:
            called = list(dict.fromkeys([*called, *run.calls["query_id"].to_list()]))
        if self.queries is None:
            return [*judged, *(query_id for query_id in called if query_id in self.unjudged)]
        query_ids = self.queries.frame["query_id"]
        return query_ids.filter(query_ids.is_in([*judged, *called])).to_list()

    def prepare(self, gold: Gold | None, query_ids: Sequence[str]) -> Prepared:
        """Return the gold of some queries, ready for scoring."""
        if gold is None:
            gold = Gold(pl.DataFrame(schema=_NO_GOLD), (), source=Source(self.gold.name))
        queries = self.queries
        if queries is not None:
            rows = queries.frame.filter(pl.col("query_id").is_in(query_ids))
            queries = replace(queries, frame=rows)
        gold = replace(gold, query_ids=tuple(query_ids))
        return prepare(gold, self.conventions, queries=queries, corpus=self.corpus)


@dataclass(frozen=True, eq=False)
class BlockResult:
    """The scores of a block, and what is decided when all blocks are together.

    ``spans`` is True if all its gold is character spans, ``returned`` if the run has rows in it.
    ``stages`` has the ids that each stage returned, if no relevant item was found.
    """

    part: PartialScores
    spans: bool | None = None
    returned: bool = False
    stages: Meeting = field(default_factory=Meeting)

    @classmethod
    def of(cls, part: PartialScores, run: Run | None, spans: bool | None) -> BlockResult:
        """Return the result of a block with this run."""
        stages = Meeting(found=part.meeting.found)
        if run is not None and not stages.found:
            stages += Meeting(returned=ids_of_stages(run))
        return cls(part, spans, run is not None, stages)


def _without_scored_queries(run: Run | None) -> PartialScores:
    """Return the scores of a block none of whose queries is to be scored."""
    if run is None:
        return PartialScores()
    final = run.at("final")
    query_ids = final.hits["query_id"].unique().sort().to_list()
    return PartialScores(
        counts=Counter(not_in_gold=len(query_ids)),
        unknown_queries=query_ids[:2],
        meeting=Meeting(returned=returned_ids(final)),
        meta=run.meta,
        order=run.order,
    )


def _gold_units(gold: Prepared, measures: Sequence[Measure]) -> list[str] | None:
    """Return the name of each numbered gold unit, if a measure's evidence refers to them."""
    if not any(measure.name == "Coverage" for measure in measures):
        return None
    columns = [name for name in ("item_id", "start", "end") if name in gold.rows.columns]
    names = gold.rows.select(pl.concat_str(columns, separator="\0"))[:, 0].to_list()
    units = [""] * (int(gold.unit.max(initial=0)) + 1)
    for unit, name in zip(gold.unit.tolist(), names, strict=True):
        units[unit] = name
    return units
