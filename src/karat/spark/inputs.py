"""Runs and gold that Spark reads: any number of files, wherever Spark can reach them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import polars as pl
from pyspark.sql import functions as fn

from karat.data.columns import QUERY_NAMES, Source, find_column, with_ids
from karat.errors import InputError, UsageError
from karat.formats.files import HEAD_BYTES, Input, open_input
from karat.formats.named_columns import scan_parquet
from karat.formats.registry import Format, Kind, detect_input, format_named
from karat.spark.blocks import FILE, LINE, QUERY, RowReader
from karat.spark.session import SparkError, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# The formats whose rows can be read independently of each other.
READABLE: dict[Kind, tuple[str, ...]] = {
    "run": ("trec", "csv", "tsv-with-header", "parquet", "runlog"),
    "gold": ("trec", "tsv", "csv", "tsv-with-header", "parquet", "labels"),
}
_SEPARATORS = {"csv": ",", "tsv-with-header": "\t", "tsv": "\t"}
_HEAD_LINES = 50
# About how many bytes a hit takes in a file; Parquet packs its columns.
_PARQUET_ROW_BYTES, _LINE_BYTES = 12, 40
_GZIP = b"\x1f\x8b"
_WILDCARDS = re.compile(r"[*?\[\]{}]+")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_GROUP_SCHEMA = "groups string"
# How many rows a worker reads at a time.
_BATCH_ROWS = 1_000_000


@dataclass(frozen=True, eq=False)
class Rows:
    """A Spark table and how to read its rows.

    ``rows`` is about how many there are, None if unknown. ``head`` is the beginning of a text
    file, ``files`` are Parquet files that the workers can read themselves.
    """

    frame: DataFrame
    reader: RowReader
    source: Source
    name: str
    rows: int | None = None
    head: bytes = b""
    files: tuple[str, ...] = ()

    def first_lines(self) -> pl.DataFrame:
        """Return the lines in ``head`` as rows, without the header."""
        lines = self.head.decode("utf-8", "replace").split("\n")
        filled = [line for line in lines if line.strip()]
        return pl.DataFrame({LINE: filled[self.reader.header is not None :]})


def is_one_file(path: str) -> bool:
    """Return True if karat's own readers could open the path."""
    return _URL.match(path) is None and Path(path).is_file()


def open_rows(spark: SparkSession, path: str, kind: Kind, format: str | None) -> Rows:
    """Open a file, a folder of files, a pattern or a URL; only its beginning is read."""
    _refuse_unreadable(path)
    file = _open_head(spark, path)
    form = format_named(format) if format else detect_input(file, kind)
    if form.name not in READABLE[kind]:
        raise UsageError(
            f"{path}: {form.name} is read by the local engine only; for Spark convert it to one of "
            f"{', '.join(READABLE[kind])} (karat convert)"
        )
    if form.name == "parquet":
        with spark_errors(f"{path}: cannot be read as Parquet"):
            return _open_parquet(spark.read.parquet(_spark_path(spark, path)), path)
    # Whole lines only, because a cut line looks like a wrong one.
    return _open_lines(spark, path, form, next(file.chunks(HEAD_BYTES), b""))


def rows_of_frame(frame: DataFrame) -> Rows:
    """Return the rows of a user's DataFrame, in Spark's order."""
    return _rows_of_columns(frame, "Spark", Source("Spark"), "run", None)


def _rows_of_columns(
    frame: DataFrame, where: str, source: Source, name: str, rows: int | None
) -> Rows:
    """Return a table whose columns are identified by their names, as in memory."""
    columns = [column for column in frame.columns if column != FILE]
    empty = pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    with_ids(empty, ("query_id", "item_id"), source)
    query = find_column(empty, QUERY_NAMES, "query id", source)
    return Rows(frame, RowReader(where, query), source, name, rows)


def _open_parquet(frame: DataFrame, path: str) -> Rows:
    count = _estimated_rows(frame, _PARQUET_ROW_BYTES)
    numbered = _with_file_numbers(frame, path)
    rows = _rows_of_columns(numbered, _name(path), _source(path), _stem(path), count)
    if not _is_local(frame.sparkSession, path):
        return rows
    files = tuple(unquote(urlsplit(url).path) for url in sorted(frame.inputFiles()))
    for file in files:
        scan_parquet(open_input(file))
    return replace(rows, files=files)


def _open_lines(spark: SparkSession, path: str, form: Format, head: bytes) -> Rows:
    """Return the lines of text files, each with its query's id."""
    first = head.decode("utf-8", "replace").partition("\n")[0].rstrip("\r")
    header = first if form.name in ("csv", "tsv-with-header") else None
    text = _with_file_numbers(
        spark.read.option("lineSep", "\n").text(_spark_path(spark, path)), path
    )
    line = fn.regexp_replace(fn.col("value"), "^\ufeff", "")
    problem = "is not UTF-8 text; save it as UTF-8"
    lines = text.withColumn(LINE, _checked(fn.is_valid_utf8("value"), problem, line)).drop("value")
    lines = lines.withColumn(QUERY, _query_of(fn.col(LINE), form, header))
    if form.name == "trec":
        lines = lines.filter(~fn.ltrim(LINE).startswith("#"))
    if header is None:
        lines = lines.filter(fn.trim(fn.col(LINE), fn.lit(" \t\r")) != "")
    else:
        lines = _without_headers(lines, form, header)
    if form.name == "labels":
        # A pair that could not be judged has no grade.
        has = {key: fn.get_json_object(LINE, f"$.{key}") for key in ("grade", "relevance", "error")}
        graded = has["grade"].isNotNull() | has["relevance"].isNotNull()
        lines = lines.filter(graded | has["error"].isNull())
    reader = RowReader(_name(path), QUERY, form.name, header)
    return Rows(lines, reader, _source(path), _stem(path), _estimated_rows(text, _LINE_BYTES), head)


def _checked(condition: Column, problem: str, value: Column) -> Column:
    """Return a value; Spark raises the problem for a row that does not meet the condition."""
    return fn.coalesce(fn.assert_true(condition, fn.lit(problem)).cast("string"), value)


def _query_of(line: Column, form: Format, header: str | None) -> Column:
    """Return the query's id of a line, as the format's reader finds it."""
    if form.name == "trec":
        return fn.regexp_extract(line, r"^[ \t\r]*([^ \t\r]+)", 1)
    if form.name in ("runlog", "labels"):
        return fn.get_json_object(line, "$.query_id")
    if header is None:
        return fn.substring_index(line, _SEPARATORS[form.name], 1)
    names = _column_names(header, form)
    empty = pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    query = find_column(empty, QUERY_NAMES, "query id", Source(form.name))
    return _fields(line, form, len(names))[names.index(query)]


def _without_headers(lines: DataFrame, form: Format, header: str) -> DataFrame:
    """Drop blank lines and headers; refuse other orders of columns, and fields with line ends."""
    lines = lines.filter(~fn.rtrim(fn.col(LINE), fn.lit("\r")).isin("", header))
    line = fn.col(LINE)
    quotes = fn.length(line) - fn.length(fn.replace(line, fn.lit('"'), fn.lit("")))
    problem = (
        "a quoted field goes over several lines; for Spark convert it to Parquet (karat convert)"
    )
    lines = lines.withColumn(LINE, _checked(quotes % 2 == 0, problem, line))
    if FILE not in lines.columns:
        return lines
    # The headers of other files may be quoted differently.
    names = _column_names(header, form)
    fields = fn.array(*_fields(line, form, len(names)))
    same = fields == fn.array(*map(fn.lit, names))
    permuted = fn.sort_array(fields) == fn.array(*map(fn.lit, sorted(names)))
    problem = f"the columns of a file stand in another order than {header!r}; write them alike"
    return lines.withColumn(LINE, _checked(same | ~permuted, problem, line)).filter(~same)


def _column_names(header: str, form: Format) -> list[str]:
    return next(csv.reader([header], delimiter=_SEPARATORS[form.name]))


def _fields(line: Column, form: Format, count: int) -> list[Column]:
    """Return the fields of a line, empty ones if it has fewer."""
    schema = ", ".join(f"c{number} string" for number in range(count))
    options = {"sep": _SEPARATORS[form.name], "quote": '"', "escape": '"', "mode": "PERMISSIVE"}
    parsed = fn.from_csv(fn.rtrim(line, fn.lit("\r")), schema, options)
    return [fn.coalesce(parsed[f"c{number}"], fn.lit("")) for number in range(count)]


def _with_file_numbers(frame: DataFrame, path: str) -> DataFrame:
    """Return rows with the number of their file, in order of file names, if there are several."""
    with spark_errors(f"{path}: cannot be read"):
        files = sorted(frame.inputFiles())
    if len(files) < 2:
        return frame
    numbers = frame.sparkSession.createDataFrame(list(enumerate(files)), f"{FILE} int, path string")
    # A path may be written with or without its machine.
    machine = "^[a-z]+:/+"
    placed = frame.withColumn("_karat_path", fn.regexp_replace("_metadata.file_path", machine, "/"))
    joined = placed.join(
        fn.broadcast(numbers.withColumn("path", fn.regexp_replace("path", machine, "/"))),
        fn.col("_karat_path") == fn.col("path"),
        "left",
    )
    return joined.drop("_karat_path", "path")


def _open_head(spark: SparkSession, path: str) -> Input:
    """Return the file, or the first lines of the first file that has any."""
    if is_one_file(path) and _is_local(spark, path):
        return open_input(path)
    try:
        with spark_errors(path):
            reader = spark.read.option("lineSep", "\n")
            files = sorted(reader.text(_spark_path(spark, path)).inputFiles())
            heads = (reader.text(file).limit(_HEAD_LINES).collect() for file in files)
            rows: list[Any] = next(filter(None, heads), [])
    except SparkError as error:
        if "PATH_NOT_FOUND" in str(error):
            raise InputError("no such file; check the path", where=path) from None
        raise InputError(f"cannot be read ({error})", where=path) from None
    if not rows:
        raise InputError("is empty; a file with at least one line is expected", where=path)
    lines = "\n".join([*(row[0] for row in rows), ""])
    return Input(Source(_name(path)), data=lines.encode("utf-8", "replace"))


def _refuse_unreadable(path: str) -> None:
    """Raise UsageError for what Spark cannot read; it goes by names, karat's readers by content."""
    if path == "-":
        raise UsageError(
            "Spark reads files, not standard input (-); name a file, a folder or a URL"
        )
    if path == "":
        raise UsageError("an empty file name was given; a path is expected")
    if path.endswith(".zst"):
        raise UsageError(f"{path}: Spark does not unpack zstd; use gzip, Parquet or --engine local")
    if not is_one_file(path):
        return
    file = Path(path)
    if file.name.startswith(("_", ".")) or ":" in file.name:
        raise UsageError(
            f"{file}: Spark leaves out files whose names begin with _ or . and cannot read those"
            " with a colon; rename it, or use --engine local"
        )
    try:
        with file.open("rb") as opened:
            is_packed = opened.read(2) == _GZIP
    except OSError:
        # The reader reports what is wrong with the file.
        return
    if is_packed != (file.suffix == ".gz"):
        problem = "is packed and not called so" if is_packed else "is called .gz and not packed"
        raise UsageError(f"{file}: {problem}, and Spark goes by the name; rename it")


def _spark_path(spark: SparkSession, path: str) -> str:
    """Return a path that does not depend on Spark's working folder."""
    if not _is_local(spark, path):
        return path
    absolute = str(Path(path).absolute())
    # The name of an existing file is no pattern.
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", absolute) if is_one_file(path) else absolute


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _stem(path: str) -> str:
    """Return the name of a run: of its file or folder, or of the folder of a pattern."""
    name = _name(path)
    if _WILDCARDS.search(name) and not is_one_file(path):
        folder = path.rstrip("/").rpartition("/")[0]
        name = _name(folder) if folder else _WILDCARDS.sub("", name)
    return Input(Source(name), path=Path(name)).stem or "run"


def _source(path: str) -> Source:
    return Source.of(Path(path)) if is_one_file(path) else Source(_name(path))


def _estimated_rows(frame: DataFrame, row_bytes: int) -> int | None:
    """Return about how many rows there are, by the size of the files; None if unknown."""
    statistics: Any = frame._jdf.queryExecution().optimizedPlan().stats()
    size = int(str(statistics.sizeInBytes()))
    return None if size >= 1 << 60 else size // row_bytes


def on_one_machine(spark: SparkSession) -> bool:
    """Return True if all workers are on this machine."""
    return (spark.conf.get("spark.master", "") or "").startswith("local")


def _is_local(spark: SparkSession, path: str) -> bool:
    """Return True if the workers are on this machine, and so is the path."""
    return on_one_machine(spark) and "://" not in path


def row_groups(
    spark: SparkSession, files: Sequence[str], columns: Sequence[str], *, slices: int
) -> DataFrame:
    """Return one row for each row group of some Parquet files, in at most ``slices`` partitions."""
    from pyarrow.parquet import ParquetFile

    groups = []
    for number, file in enumerate(files):
        place = {"file": file, "number": number if len(files) > 1 else None, "columns": columns}
        metadata = ParquetFile(file).metadata
        start = 0
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            groups.append((json.dumps(place | {"start": start, "rows": rows}),))
            start += rows
    partitions = spark.sparkContext.parallelize(groups, max(min(len(groups), slices), 1))
    return spark.createDataFrame(partitions, _GROUP_SCHEMA)


def read_row_groups(batches: Iterable[Any]) -> Iterator[pl.DataFrame]:
    """Yield the rows of the row groups that some batches name."""
    for batch in batches:
        for text in batch["groups"].to_pylist():
            group = json.loads(text)
            scan = pl.scan_parquet(group["file"], glob=False).select(group["columns"])
            if group["number"] is not None:
                scan = scan.with_columns(pl.lit(group["number"], pl.Int32).alias(FILE))
            rows = scan.slice(group["start"], group["rows"])
            yield from rows.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True)
