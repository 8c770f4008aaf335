"""TREC runs and qrels: lines separated by white space, as trec_eval reads them.

Lines that begin with ``#`` are comments, blank lines are skipped, and a line of a run may have
more than six columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from karat.data.columns import Duplicates, join_spans, split_spans
from karat.data.tables import Gold, Run, with_ranks, with_scores
from karat.errors import InputError
from karat.formats.blocks import StreamedRun
from karat.formats.files import Input, decode, write_frame

# This many bytes fit in the fastest cache of the processor.
_WINDOW = 1 << 18
_FEED, _SPACE, _MARK = b"\n #"
# How many chunks are parsed ahead; more would only take memory.
_AHEAD = 2
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


@dataclass(frozen=True)
class Layout:
    """The names of the fields of a line, which of them to keep, and which is the number."""

    names: tuple[str, ...]
    keep: tuple[str, ...]
    number: str
    need: str
    """What a message says is needed of the number."""
    expected: str
    extra_allowed: bool = False

    @property
    def pattern(self) -> bytes:
        """A first line that sets how many fields Polars looks for.

        It has one field more than a line may have, so that a line with too many is noticed.
        """
        return b" ".join([b"0"] * (len(self.names) + 1)) + b"\n"

    def schema(self) -> dict[str, type[pl.DataType]]:
        kinds: dict[str, type[pl.DataType]] = dict.fromkeys(self.names, pl.String)
        kinds[self.number] = pl.Float64
        if "rank" in kinds:
            kinds["rank"] = pl.Int64
        return kinds


RUN = Layout(
    names=("query_id", "iteration", "item_id", "rank", "score", "tag"),
    keep=("query_id", "item_id", "rank", "score"),
    number="score",
    need="a run needs finite scores",
    expected="6: query Q0 item rank score tag",
    extra_allowed=True,
)
GOLD = Layout(
    names=("query_id", "iteration", "item_id", "grade"),
    keep=("query_id", "item_id", "grade"),
    number="grade",
    need="a judgment needs a finite grade",
    expected="4: query iteration item grade",
)


def read_run(file: Input, *, name: str, strict: bool = False) -> Run:
    """Read a TREC run into memory."""
    return scan_run(file, name=name, strict=strict).read()


def scan_run(file: Input, *, name: str, strict: bool = False) -> StreamedRun:
    """Open a TREC run that is read block by block."""

    def batches() -> Iterator[pl.DataFrame]:
        empty = True
        for frame in read_fields(file, RUN, numbered=strict):
            if frame.height:
                empty = False
                yield frame
        if empty:
            raise InputError("holds no hits; expected lines of " + RUN.expected, where=file.name)

    return StreamedRun(name, file.source, batches, meta=_meta(file), strict=strict)


def _meta(file: Input) -> dict[str, str]:
    """Return the run tag: the sixth column of the first line."""
    for line in file.head().split(b"\n"):
        fields = line.strip(b" \t\r").replace(b"\t", b" ").split()
        if fields and not fields[0].startswith(b"#"):
            return {"tag": fields[5].decode("utf-8", "replace")} if len(fields) > 5 else {}
    return {}


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """Read TREC qrels; the second column is ignored."""
    table = pl.concat(read_fields(file, GOLD))
    if not table.height:
        raise InputError("holds no judgments; expected lines of " + GOLD.expected, where=file.name)
    lines = table["line"]
    table = split_spans(table.drop("line"))
    return Gold.from_frame(table, duplicates=duplicates, lines=lines, source=file.source)


def read_fields(
    file: Input, layout: Layout, *, numbered: bool = True, careful: bool = False
) -> Iterator[pl.DataFrame]:
    """Yield checked columns chunk by chunk, with each row's ``line`` if ``numbered``."""

    def parse(chunk: bytes) -> tuple[pl.DataFrame, int]:
        frame = None if careful else parse_regular(chunk, layout)
        if frame is None:
            frame, lines = parse_any(chunk.removeprefix(layout.pattern), layout, file)
            return (frame if numbered else frame.drop("line")), lines
        lines = frame.height
        if numbered:
            frame = frame.insert_column(0, pl.int_range(1, lines + 1, eager=True).alias("line"))
        return frame, lines

    line = 0
    for parsed in _ahead(file.chunks(lead=layout.pattern), parse):
        try:
            frame, lines = parsed.result()
        except InputError as error:
            place = None if error.line is None else error.line + line
            raise InputError(error.what, where=error.where, line=place) from None
        yield frame.with_columns(pl.col("line") + line) if numbered else frame
        line += lines


def _ahead(
    chunks: Iterator[bytes], parse: Callable[[bytes], tuple[pl.DataFrame, int]]
) -> Iterator[Future[tuple[pl.DataFrame, int]]]:
    """Yield parsed chunks, some ahead of the consumer; reading has its own thread."""
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(_AHEAD) as pool:
        waiting: deque[Future[tuple[pl.DataFrame, int]]] = deque()
        next_chunk = reader.submit(next, chunks, None)
        while (chunk := next_chunk.result()) is not None:
            next_chunk = reader.submit(next, chunks, None)
            waiting.append(pool.submit(parse, chunk))
            if len(waiting) > _AHEAD:
                yield waiting.popleft()
        yield from waiting


def parse_regular(chunk: bytes, layout: Layout) -> pl.DataFrame | None:
    """Return the kept columns of regular lines after the layout's pattern; None if in doubt."""
    blanks = _count_blanks(chunk)
    if blanks is None:
        return None
    try:
        frame = (
            pl.scan_csv(
                chunk,
                separator=" ",
                has_header=False,
                quote_char=None,
                glob=False,
                schema={**layout.schema(), "more": pl.String},
            )
            .select(*layout.keep, "more")
            .collect()
            .slice(1)
        )
    except pl.exceptions.PolarsError:
        return None
    # No line has too many fields and the number of blanks is right, so none has too few.
    exact = blanks == len(layout.names) * (frame.height + 1) + 1
    if not exact or frame["more"].null_count() < frame.height:
        return None
    frame = frame.drop("more")
    if any(column.null_count() for column in frame):
        return None
    return frame if frame[layout.number].is_finite().all() else None


def _count_blanks(chunk: bytes) -> int | None:
    """Return the number of blanks between and after fields; None if any are doubled or odd."""
    if any(byte in chunk for byte in (b"\t", b"\r", b"\0")):
        return None
    codes = np.frombuffer(chunk, np.uint8)
    if b"#" in chunk and _has_comment(codes):
        return None
    count, after_blank = 0, True
    for start in range(0, len(codes), _WINDOW):
        blank = codes[start : start + _WINDOW] <= _SPACE
        if (after_blank and blank[0]) or bool((blank[1:] & blank[:-1]).any()):
            return None
        count += int(np.count_nonzero(blank))
        after_blank = bool(blank[-1])
    return count + (len(codes) > 0 and codes[-1] != _FEED)


def _has_comment(codes: NDArray[np.uint8]) -> bool:
    """Return True if a ``#`` stands at the start of a line."""
    marks = np.flatnonzero(codes == _MARK)
    # What comes before the first byte of a chunk is unknown: treat it as a line start.
    return bool(marks[0] == 0) or bool((codes[marks - 1] == _FEED).any())


def parse_any(chunk: bytes, layout: Layout, file: Input) -> tuple[pl.DataFrame, int]:
    """Return the kept columns of any lines with their line numbers, and the number of lines."""
    ends = chunk.count(b"\n") if chunk.isspace() else 0
    # Millions of blank lines would become millions of rows first.
    chunk = b"" if ends else chunk
    decode(chunk, file)
    lines = pl.scan_lines(chunk, name="text", row_index_name="line", row_index_offset=1).collect()
    return _split(lines, layout, file), ends or lines.height


def _split(lines: pl.DataFrame, layout: Layout, file: Input) -> pl.DataFrame:
    text = pl.col("text").str.strip_chars(" \t\r")
    lines = lines.with_columns(text).filter(
        (pl.col("text") != "") & ~pl.col("text").str.starts_with("#")
    )
    _refuse(
        lines,
        lines["text"].str.contains("\r", literal=True),
        "the line contains a carriage return; end lines with a line feed",
        file,
    )
    count = len(layout.names)
    columns = (
        lines["text"].str.replace_all("[ \t]+", " ").str.splitn(" ", count + 1).struct.unnest()
    )
    columns.columns = [*layout.names, "more"]
    short = columns[layout.names[-1]].is_null()
    long = columns["more"].is_not_null()
    wrong = short if layout.extra_allowed else short | long
    if wrong.any():
        fields = lines["text"][int(wrong.arg_true()[0])].split()
        _refuse(lines, wrong, f"{len(fields)} columns; expected {layout.expected}", file)
    table = columns.select(*layout.keep).insert_column(0, lines["line"].cast(pl.Int64))
    return _numbers(table, layout, file)


def _numbers(table: pl.DataFrame, layout: Layout, file: Input) -> pl.DataFrame:
    raw = table[layout.number]
    values = raw.cast(pl.Float64, strict=False)
    wrong = ~raw.str.contains(_NUMBER) | values.is_null() | ~values.is_finite()
    if wrong.any():
        value = raw[int(wrong.arg_true()[0])]
        _refuse(table, wrong, f"{layout.number} is {value!r}; {layout.need}", file)
    table = table.with_columns(values)
    if "rank" in layout.keep:
        ranks = table["rank"].cast(pl.Int64, strict=False)
        table = table.drop("rank") if ranks.null_count() else table.with_columns(ranks)
    return table


def _refuse(table: pl.DataFrame, wrong: pl.Series, what: str, file: Input) -> None:
    if wrong.any():
        line = int(table["line"][int(wrong.arg_true()[0])])
        raise InputError(what, where=file.name, line=line)


def write_run(run: Run, path: str | Path) -> None:
    """Write the final hits in file order; latencies, sources and other columns are dropped."""
    hits = with_ranks(with_scores(run.at("final")))
    tag = str(run.meta.get("tag") or run.name)
    lines = hits.select(
        "query_id", pl.lit("Q0").alias("Q0"), "item_id", "rank", "score", tag=pl.lit(one_word(tag))
    )
    _refuse_blanks(lines, ("query_id", "item_id"), str(path))
    write_frame(lines, path, separator=" ", header=False)


def write_gold(gold: Gold, path: str | Path) -> None:
    """Write judgments; queries without any, and the mark of hard negatives, are dropped."""
    lines = join_spans(gold.frame).select(
        "query_id", pl.lit("0").alias("iteration"), "item_id", _plain(pl.col("grade"))
    )
    _refuse_blanks(lines, ("query_id", "item_id"), str(path))
    write_frame(lines, path, separator=" ", header=False)


def _plain(grade: pl.Expr) -> pl.Expr:
    """Format grades for trec_eval: whole numbers without a fraction."""
    whole = (grade == grade.round()) & (grade.abs() < 2**53)
    return (
        pl.when(whole)
        .then(grade.cast(pl.Int64, strict=False).cast(pl.String))
        .otherwise(grade.cast(pl.String))
        .alias("grade")
    )


def one_word(tag: str) -> str:
    """Return a run's tag as one word."""
    return "_".join(tag.split()) or "run"


def _refuse_blanks(lines: pl.DataFrame, names: tuple[str, ...], where: str) -> None:
    for name in names:
        bad = unfit_for_columns(lines[name]).arg_true()
        if len(bad):
            raise InputError(
                f"{name} {lines[name][bad[0]]!r} holds white space, which a TREC file cannot "
                "carry; write csv, jsonl or parquet",
                where=where,
            )
    marked = lines["query_id"].str.starts_with("#").arg_true()
    if len(marked):
        raise InputError(
            f"query_id {lines['query_id'][marked[0]]!r} begins with '#', which is a comment in a "
            "TREC file; write csv, jsonl or parquet",
            where=where,
        )


def unfit_for_columns(ids: pl.Series) -> pl.Series:
    """Return which ids contain white space, and would be read back as two columns or lines."""
    return ids.str.contains(r"[\s\x00\x{feff}]")
