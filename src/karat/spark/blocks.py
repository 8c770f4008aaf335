"""A block of queries on a worker: rows packed and unpacked, read as a run and gold, and scored."""

from __future__ import annotations

import io
import pickle
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from karat.formats.named_columns import gold_from, run_from
from karat.formats.registry import format_named
from karat.measures.conventions import Conventions
from karat.measures.misfits import Meeting, ids_of_stages, returned_ids
from karat.measures.names import Measure
from karat.measures.prepare import Prepared, prepare
from karat.measures.score_builder import PartialScores, ScoreBuilder
from karat.measures.scores import Counts

# Columns that karat adds: a line, its query's id, and the number of the file that a row is in.
QUERY, LINE, FILE = "_karat_query", "_karat_line", "_karat_file"
_SHOWN = 120
# As what is judged twice says where it was judged before.
_OTHER_LINE = re.compile(r"\bin line (\d+)\b")


@dataclass(frozen=True)
class Form:
    """How a worker reads rows: as columns, or as lines of a format.

    ``query`` is the column of the query's id. ``header`` is the first line of every file,
    where the format has one.
    """

    name: str
    query: str
    format: str | None = None
    header: str | None = None

    def run(self, frame: pl.DataFrame, *, strict: bool) -> Run | None:
        """Return the run of some rows, in the order of their files; None where there is no row."""
        if not frame.height:
            return None
        try:
            if self.format is None:
                return self._columns(frame, strict).read()
            file = self._file(frame)
            run: Run = format_named(self.format).reader("run")(file, name="run", strict=strict)
        except InputError as error:
            raise self._with_text(error, frame) from None
        return run

    def _columns(self, frame: pl.DataFrame, strict: bool) -> StreamedRun:
        source = Source(self.name)
        rows = pl.int_range(1, frame.height + 1, eager=True)

        def batches() -> Iterator[pl.DataFrame]:
            return run_from(iter([(frame, rows)]), Input(source, data=b""), strict)

        order: Order = "score" if "score" in frame.columns else "rank"
        return StreamedRun("run", source, batches, order=order, strict=strict)

    def gold(self, frame: pl.DataFrame, *, duplicates: Duplicates) -> Gold | None:
        """Return the judgments of some rows; None where there is none."""
        if not frame.height:
            return None
        try:
            if self.format is None:
                lines = pl.int_range(1, frame.height + 1, eager=True)
                return gold_from(frame, lines, Input(Source(self.name), data=b""), duplicates)
            file = self._file(frame)
            if self.format == "labels" and all(one.grade is None for one in read_label_lines(file)):
                return None
            gold: Gold = format_named(self.format).reader("gold")(file, duplicates=duplicates)
        except InputError as error:
            raise self._with_text(error, frame) from None
        return gold

    def _file(self, frame: pl.DataFrame) -> Input:
        """Return the lines as a file of their own."""
        lines = frame[LINE].to_list()
        if self.header is not None:
            lines.insert(0, self.header)
        return Input(Source(self.name), data="\n".join([*lines, ""]).encode())

    def _with_text(self, error: InputError, frame: pl.DataFrame) -> InputError:
        """Return a line's number among those of a block says nothing; its text does."""
        what = _OTHER_LINE.sub(lambda found: self._where(int(found[1]), frame), error.what)
        shown = self._shown(error.line or 0, frame)
        told = f"{what} (in the line {shown})" if shown else what
        return InputError(told, where=error.where)

    def _where(self, line: int, frame: pl.DataFrame) -> str:
        shown = self._shown(line, frame)
        return f"in the line {shown}" if shown else "in another row"

    def _shown(self, line: int, frame: pl.DataFrame) -> str:
        """Return the text of a line, quoted; nothing where there is none of that number."""
        at = line - 1 - (self.header is not None)
        if LINE not in frame.columns or not 0 <= at < frame.height:
            return ""
        text = frame[LINE][at]
        return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def without_spans(gold: Gold) -> Gold:
    """Judgments of ids as they are spelled: whether all are spans is not for a block to say."""
    return replace(gold, frame=join_spans(gold.frame))


# A piece: of which block, whether of the run or the gold, where its rows were, and where the
# bytes are that they were packed into: here, or in a file that all workers see.
SCHEMA = "block int, side int, partition int, part int, rows binary, file string, start long"
RUN, GOLD = 0, 1
# So many rows are shared out at a time, more where there are many blocks: a piece costs something.
_ROWS = 1_000_000
_ROWS_A_PIECE = 500


@dataclass(frozen=True)
class Sharing:
    """How the rows of one side are shared out among ``blocks``.

    On one machine pieces need not go through Spark: they lie in files of ``folder``, and Spark
    moves where they are.
    """

    form: Form
    side: int
    blocks: int
    folder: str | None = None

    def pieces(self, batches: Iterable[Any], partition: int) -> Iterator[Any]:
        """Batches of Arrow, or frames, as pieces of blocks, in the order of their rows."""
        enough = max(_ROWS, _ROWS_A_PIECE * self.blocks)
        waiting: list[pl.DataFrame] = []
        rows = part = 0
        for batch in batches:
            frame = batch if isinstance(batch, pl.DataFrame) else pl.DataFrame(batch)
            waiting.append(frame)
            rows += frame.height
            if rows >= enough:
                yield self._packed(waiting, partition, part)
                waiting, rows, part = [], 0, part + 1
        if rows:
            yield self._packed(waiting, partition, part)

    def _packed(self, frames: list[pl.DataFrame], partition: int, part: int) -> Any:
        import pyarrow as pa

        # Files may keep the same column as other kinds of numbers.
        frame = pl.concat(frames, how="vertical_relaxed")
        of_row = self._block_of(frame)
        order = np.argsort(of_row, kind="stable")
        frame = frame[order]
        there, starts = np.unique(of_row[order], return_index=True)
        ends = [*starts[1:].tolist(), frame.height]
        spans = zip(starts.tolist(), ends, strict=True)
        packed = [_packed_rows(frame[start:end], self.form.query) for start, end in spans]
        n = len(there)
        columns = {
            "block": pa.array(there.astype(np.int32)),
            "side": pa.array(np.full(n, self.side, dtype=np.int32)),
            "partition": pa.array(np.full(n, partition, dtype=np.int32)),
            "part": pa.array(np.full(n, part, dtype=np.int32)),
            **self._kept(packed),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _kept(self, packed: list[bytes]) -> dict[str, Any]:
        """The packed rows themselves, or the file that they are in and where in it each begins."""
        import pyarrow as pa

        if self.folder is None:
            nowhere = [None] * len(packed)
            file, start = pa.array(nowhere, pa.string()), pa.array(nowhere, pa.int64())
            return {"rows": pa.array(packed, pa.binary()), "file": file, "start": start}
        # Of a task that is tried again every attempt has its own file.
        path = Path(self.folder) / secrets.token_hex(8)
        path.write_bytes(b"".join(packed))
        ends = np.cumsum([len(one) for one in packed])
        return {
            "rows": pa.array([b""] * len(packed), pa.binary()),
            "file": pa.array([str(path)] * len(packed), pa.string()),
            "start": pa.array(ends - [len(one) for one in packed], pa.int64()),
        }

    def _block_of(self, frame: pl.DataFrame) -> NDArray[np.unsignedinteger[Any]]:
        """Return the block of each row: by its query's id, as text, whatever column that is in."""
        ids = frame[self.form.query].cast(pl.String).fill_null("")
        runs = ids.rle().struct.unnest()
        names = runs["value"].unique()
        hashed = [zlib.crc32(name.encode()) % self.blocks for name in names.to_list()]
        # Numbers below 65,536 are sorted by counting.
        kind = pl.UInt16 if self.blocks <= 1 << 16 else pl.UInt32
        blocks = runs["value"].replace_strict(names, hashed, return_dtype=kind)
        return np.repeat(blocks.to_numpy(), runs["len"].to_numpy())


def _packed_rows(frame: pl.DataFrame, query: str) -> bytes:
    """Rows as bytes; the query's id once for all of its rows that follow each other."""
    runs = frame[query].rle().struct.unnest()
    return pickle.dumps([_as_stream(one) for one in (runs, frame.drop(query))], protocol=5)


def _as_stream(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="uncompressed")
    return buffer.getvalue()


def _unpacked_rows(rows: bytes, file: str | None, start: int | None, *, query: str) -> pl.DataFrame:
    """Return the rows of a piece, wherever they were packed into."""
    # Nobody but our own workers packs them, within one job.
    if file is None:
        packed = pickle.loads(rows)  # noqa: S301
    else:
        with Path(file).open("rb") as opened:
            opened.seek(start or 0)
            packed = pickle.load(opened)  # noqa: S301
    runs, rest = map(pl.read_ipc_stream, packed)
    row = np.repeat(np.arange(runs.height), runs["len"].to_numpy())
    return rest.with_columns(runs["value"].gather(row).alias(query))


def unpacked(pieces: Any, side: int, query: str) -> pl.DataFrame:
    """Return the rows of one side of a block, in the order of their files."""
    own = pl.DataFrame(pl.from_arrow(pieces)).filter(pl.col("side") == side)
    if not own.height:
        return pl.DataFrame()
    pieces = own.sort("partition", "part").select("rows", "file", "start").iter_rows()
    every = [_unpacked_rows(*where, query=query) for where in pieces]
    frame = pl.concat(every, how="vertical_relaxed")
    if FILE in frame.columns:
        frame = frame.sort(FILE, maintain_order=True).drop(FILE)
    return frame


RESULT = "result binary"


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that every worker needs beside its rows.

    ``queries`` are all that are asked, where a file says so; else those of the gold are, also
    the ``unjudged`` ones, of which it holds no judgment.
    """

    run: Form
    gold: Form
    measures: Sequence[Measure]
    conventions: Conventions
    queries: Queries | None = None
    unjudged: frozenset[str] = frozenset()
    corpus: Corpus | None = None
    keep: int = 0
    strict: bool = False

    def packed(self, pieces: Any) -> bytes:
        """Return the result of a block as bytes; what is wrong with its rows is a result too."""
        try:
            hits = unpacked(pieces, RUN, self.run.query)
            judgments = unpacked(pieces, GOLD, self.gold.query)
            found: Result | KaratError = self.done(hits, judgments)
        except KaratError as error:
            found = error
        return pickle.dumps(found, protocol=5)

    def done(self, hits: pl.DataFrame, judgments: pl.DataFrame) -> Result:
        """Score a block."""
        run = self.run.run(hits, strict=self.strict)
        gold = self.gold.gold(judgments, duplicates=self.conventions.duplicates)
        spans = None if gold is None else "start" in gold.frame.columns
        if gold is not None and spans and self.conventions.level != "span":
            gold = without_spans(gold)
        asked = self._asked([] if gold is None else list(gold.query_ids), run)
        if not len(asked):
            return Result.of(_without_scored_queries(run), run, spans)
        prepared = self._prepared(gold, asked)
        builder = ScoreBuilder(prepared, self.measures, self.keep)
        if run is not None:
            builder.add(run)
        part = replace(builder.partial(), units=_units(prepared, self.measures))
        return Result.of(part, run, spans)

    def _asked(self, judged: list[str], run: Run | None) -> list[str]:
        """Return the queries of this block that are to be scored."""
        if self.queries is None:
            return [*judged, *(one for one in _called(run) if one in self.unjudged)]
        ours = [*judged, *_called(run)]
        known = self.queries.frame["query_id"]
        return known.filter(known.is_in(ours)).to_list()

    def _prepared(self, gold: Gold | None, asked: list[str]) -> Prepared:
        if gold is None:
            nothing = pl.DataFrame(schema=_NO_GOLD)
            gold = Gold(nothing, (), source=Source(self.gold.name))
        gold = replace(gold, query_ids=tuple(asked))
        queries = self._queries_of(asked)
        return prepare(gold, self.conventions, queries=queries, corpus=self.corpus)

    def _queries_of(self, asked: list[str]) -> Queries | None:
        if self.queries is None:
            return None
        rows = self.queries.frame.filter(pl.col("query_id").is_in(asked))
        return replace(self.queries, frame=rows)


@dataclass(frozen=True, eq=False)
class Result:
    """The scores of a block, and what can be said of all blocks together only.

    ``spans`` is whether all of its gold is character spans, ``returned`` whether the run has
    any row in it. ``stages`` has the ids that each stage returned, where nothing was found.
    """

    part: PartialScores
    spans: bool | None = None
    returned: bool = False
    stages: Meeting = field(default_factory=Meeting)

    @classmethod
    def of(cls, part: PartialScores, run: Run | None, spans: bool | None) -> Result:
        """What came of a block's rows."""
        stages = Meeting(found=part.meeting.found)
        if run is not None and not stages.found:
            stages += Meeting(returned=ids_of_stages(run))
        return cls(part, spans, run is not None, stages)


_NO_GOLD = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Float64}


def _called(run: Run | None) -> list[str]:
    """Return the queries of a run."""
    if run is None:
        return []
    calls = [] if run.calls is None else run.calls["query_id"].to_list()
    return list(dict.fromkeys([*run.hits["query_id"].unique().sort().to_list(), *calls]))


def _without_scored_queries(run: Run | None) -> PartialScores:
    """Return a block none of whose queries is to be scored."""
    if run is None:
        return PartialScores()
    final = run.at("final")
    names = final.hits["query_id"].unique().sort().to_list()
    return PartialScores(
        counts=Counts(not_in_gold=len(names)),
        unknown_queries=names[:2],
        meeting=Meeting(returned=returned_ids(final)),
        meta=run.meta,
        order=run.order,
    )


def _units(gold: Prepared, measures: Sequence[Measure]) -> list[str] | None:
    """What each number of a gold unit stands for, where evidence is about these."""
    if not any(measure.name == "Coverage" for measure in measures):
        return None
    names = [name for name in ("item_id", "start", "end") if name in gold.rows.columns]
    spelled = gold.rows.select(pl.concat_str(names, separator="\0"))[:, 0].to_list()
    units = [""] * (int(gold.unit.max(initial=0)) + 1)
    for unit, name in zip(gold.unit.tolist(), spelled, strict=True):
        units[unit] = name
    return units
