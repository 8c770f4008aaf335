"""What Spark reads: runs and gold in files of any number, at any place that Spark reaches."""

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

from karat.data.columns import ITEM_NAMES, QUERY_NAMES, Source, find_column
from karat.errors import InputError, UsageError
from karat.formats.detect import detect_input
from karat.formats.files import HEAD_BYTES, Input, open_input
from karat.formats.parquet_sizes import check_sizes, row_group_sizes
from karat.formats.registry import Format, Kind, format_named
from karat.spark.blocks import FILE, LINE, QUERY, Form
from karat.spark.engine import SparkError, quietly

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# The formats whose rows can be read on their own, wherever they stand.
READ: dict[Kind, tuple[str, ...]] = {
    "run": ("trec", "csv", "tsv-with-header", "parquet", "runlog"),
    "gold": ("trec", "tsv", "csv", "tsv-with-header", "parquet", "labels"),
}
_SEPARATORS = {"csv": ",", "tsv-with-header": "\t", "tsv": "\t"}
_HEAD_LINES = 50
# About how many bytes a hit takes in a file; columns are packed.
_BYTES_A_ROW = {"parquet": 12}
_BYTES_A_LINE = 40
_GZIP = b"\x1f\x8b"
_PATTERN = re.compile(r"[*?\[\]{}]+")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


@dataclass(frozen=True, eq=False)
class Rows:
    """A table of Spark's, and how to read its rows.

    ``rows`` is about how many there are, None where nobody knows. ``files`` are those of Parquet
    that workers can read themselves.
    """

    frame: DataFrame
    form: Form
    source: Source
    name: str
    rows: int | None = None
    head: bytes = b""
    files: tuple[str, ...] = ()


def is_url(path: str) -> bool:
    """Return whether it is for Spark to know what a path means."""
    return _URL.match(path) is not None


def is_one_file(path: str) -> bool:
    """Return whether the readers of karat itself could open it."""
    return not is_url(path) and Path(path).is_file()


def open_rows(spark: SparkSession, path: str, kind: Kind, format: str | None) -> Rows:
    """Open a file, a folder of files, a pattern or a URL; nothing but its beginning is read."""
    _refuse_unreadable(path)
    file = _opened(spark, path)
    form = format_named(format) if format else detect_input(file, kind)
    if form.name not in READ[kind]:
        raise UsageError(
            f"{path}: {form.name} is read by the local engine only; for Spark convert it to one of "
            f"{', '.join(READ[kind])} (karat convert)"
        )
    if form.name == "parquet":
        with quietly(f"{path}: cannot be read as Parquet"):
            return _columns(spark.read.parquet(_reached(spark, path)), path)
    # Whole lines only: whoever reads them could not tell a cut line from a wrong one.
    return _lines(spark, path, form, next(file.chunks(HEAD_BYTES), b""))


def of_frame(frame: DataFrame) -> Rows:
    """Return a table that somebody made with Spark; its order is what Spark says it is."""
    return _of_columns(frame, "Spark", Source("Spark"), "run", None)


def _columns(frame: DataFrame, path: str) -> Rows:
    about = _about(frame, "parquet")
    placed = _with_files(frame, path)
    rows = _of_columns(placed, _name(path), _source(path), _stem(path), about)
    if not seen_by_workers(frame.sparkSession, path):
        return rows
    files = tuple(_local_path(one) for one in sorted(frame.inputFiles()))
    check_files(files)
    return replace(rows, files=files)


def _local_path(url: str) -> str:
    return unquote(urlsplit(url).path)


def _of_columns(frame: DataFrame, where: str, source: Source, name: str, about: int | None) -> Rows:
    """Return the names decide which columns are what, as they do for a table in memory."""
    columns = [one for one in frame.columns if one != FILE]
    empty = pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    query = find_column(empty, QUERY_NAMES, "query id", source)
    find_column(empty, ITEM_NAMES, "item id", source, beside=query)
    return Rows(frame, Form(where, query), source, name, about)


def _lines(spark: SparkSession, path: str, form: Format, head: bytes) -> Rows:
    """Return the lines of text files, each with its query's id."""
    first = head.decode("utf-8", "replace").partition("\n")[0].rstrip("\r")
    header = first if form.name in ("csv", "tsv-with-header") else None
    text = _with_files(spark.read.option("lineSep", "\n").text(_reached(spark, path)), path)
    valid = fn.assert_true(fn.is_valid_utf8("value"), fn.lit("is not UTF-8 text; save it as UTF-8"))
    line = fn.regexp_replace(fn.col("value"), "^\ufeff", "")
    lines = text.withColumn(LINE, fn.coalesce(valid.cast("string"), line)).drop("value")
    lines = lines.withColumn(QUERY, _query_of(fn.col(LINE), form, header))
    if form.name == "trec":
        lines = lines.filter(~fn.ltrim(LINE).startswith("#"))
    if header is None:
        lines = lines.filter(fn.trim(fn.col(LINE), fn.lit(" \t\r")) != "")
    else:
        lines = lines.filter(~fn.rtrim(fn.col(LINE), fn.lit("\r")).isin("", header))
        lines = lines.withColumn(LINE, _in_one_line(fn.col(LINE)))
    if header is not None and FILE in lines.columns:
        lines = _without_headers(lines, form, header)
    if form.name == "labels":
        graded = [
            fn.get_json_object(LINE, f"$.{key}").isNotNull() for key in ("grade", "relevance")
        ]
        failed = fn.get_json_object(LINE, "$.error").isNotNull()
        lines = lines.filter(graded[0] | graded[1] | ~failed)
    about = _about(text, form.name)
    own = Form(_name(path), QUERY, form.name, header)
    return Rows(lines, own, _source(path), _stem(path), about, head)


def _query_of(line: Column, form: Format, header: str | None) -> Column:
    """Return the id of a line's query, as the format's reader finds it."""
    if form.name == "trec":
        return fn.regexp_extract(line, r"^[ \t\r]*([^ \t\r]+)", 1)
    if form.name in ("runlog", "labels"):
        return fn.get_json_object(line, "$.query_id")
    if header is None:
        return fn.substring_index(line, _SEPARATORS[form.name], 1)
    names = _names_in(header, form)
    empty = pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    at = names.index(find_column(empty, QUERY_NAMES, "query id", Source(form.name)))
    return _fields(line, form, len(names))[at]


def _without_headers(lines: DataFrame, form: Format, header: str) -> DataFrame:
    """Without the first lines of other files, however quoted; another order is refused."""
    names = _names_in(header, form)
    fields = fn.array(*_fields(fn.col(LINE), form, len(names)))
    same = fields == fn.array(*map(fn.lit, names))
    others = fn.sort_array(fields) == fn.array(*map(fn.lit, sorted(names)))
    told = f"the columns of a file stand in another order than {header!r}; write them alike"
    alike = fn.assert_true(same | ~others, fn.lit(told)).cast("string")
    return lines.withColumn(LINE, fn.coalesce(alike, fn.col(LINE))).filter(~same)


def _names_in(header: str, form: Format) -> list[str]:
    return next(csv.reader([header], delimiter=_SEPARATORS[form.name]))


def _fields(line: Column, form: Format, many: int) -> list[Column]:
    """Return the fields of a line, no text where it has fewer."""
    schema = ", ".join(f"c{number} string" for number in range(many))
    options = {"sep": _SEPARATORS[form.name], "quote": '"', "escape": '"', "mode": "PERMISSIVE"}
    parsed = fn.from_csv(fn.rtrim(line, fn.lit("\r")), schema, options)
    return [fn.coalesce(parsed[f"c{number}"], fn.lit("")) for number in range(many)]


def _in_one_line(line: Column) -> Column:
    """Return the line, refused where a quoted field goes on in the next."""
    quotes = fn.length(line) - fn.length(fn.replace(line, fn.lit('"'), fn.lit("")))
    told = "a quoted field goes over several lines; for Spark convert it to Parquet (karat convert)"
    return fn.coalesce(fn.assert_true(quotes % 2 == 0, fn.lit(told)).cast("string"), line)


def _with_files(frame: DataFrame, path: str) -> DataFrame:
    """With the number of each row's file, by their names, where there are several."""
    with quietly(f"{path}: cannot be read"):
        files = sorted(frame.inputFiles())
    if len(files) < 2:
        return frame
    numbered = frame.sparkSession.createDataFrame(
        list(enumerate(files)), f"{FILE} int, path string"
    )
    # A path may be spelled with or without the machine that it is on.
    short = fn.regexp_replace("path", "^[a-z]+:/+", "/")
    own = fn.regexp_replace("_metadata.file_path", "^[a-z]+:/+", "/")
    placed = frame.withColumn("_karat_path", own)
    found = placed.join(
        fn.broadcast(numbered.withColumn("path", short)),
        fn.col("_karat_path") == fn.col("path"),
        "left",
    )
    return found.drop("_karat_path", "path")


def _opened(spark: SparkSession, path: str) -> Input:
    """Return the file, or the first lines of the first file that has any."""
    if is_one_file(path) and seen_by_workers(spark, path):
        return open_input(path)
    try:
        with quietly(path):
            reader = spark.read.option("lineSep", "\n")
            files = sorted(reader.text(_reached(spark, path)).inputFiles())
            heads = (reader.text(one).limit(_HEAD_LINES).collect() for one in files)
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
    if path == "-":
        raise UsageError(
            "Spark reads files, not standard input (-); name a file, a folder or a URL"
        )
    if path == "":
        raise UsageError("an empty file name was given; a path is expected")
    if path.endswith(".zst"):
        raise UsageError(f"{path}: Spark does not unpack zstd; use gzip, Parquet or --engine local")
    if is_one_file(path):
        _refuse_name(Path(path))


def _refuse_name(file: Path) -> None:
    """Spark goes by the names of files, where karat's own readers look at what is in them."""
    if file.name.startswith(("_", ".")) or ":" in file.name:
        raise UsageError(
            f"{file}: Spark leaves out files whose names begin with _ or . and cannot read those"
            " with a colon; rename it, or use --engine local"
        )
    try:
        with file.open("rb") as opened:
            packed = opened.read(2) == _GZIP
    except OSError:
        # Who reads it says what is wrong with it.
        return
    if packed != (file.suffix == ".gz"):
        told = "is packed and not called so" if packed else "is called .gz and not packed"
        raise UsageError(f"{file}: {told}, and Spark goes by the name; rename it")


def _reached(spark: SparkSession, path: str) -> str:
    """Return a path as Spark, which has a folder of its own that it works in, reaches it."""
    if not seen_by_workers(spark, path):
        return path
    whole = str(Path(path).absolute())
    # A file whose name looks like a pattern is meant as it is.
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", whole) if is_one_file(path) else whole


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _stem(path: str) -> str:
    """What a run is called: as its file or folder, or the folder of a pattern's files."""
    name = _name(path)
    if _PATTERN.search(name) and not is_one_file(path):
        folder = path.rstrip("/").rpartition("/")[0]
        name = _name(folder) if folder else _PATTERN.sub("", name)
    return Input(Source(name), path=Path(name)).stem or "run"


def _source(path: str) -> Source:
    return Source.of(Path(path)) if is_one_file(path) else Source(_name(path))


def _about(frame: DataFrame, form: str | None) -> int | None:
    """About how many rows there are, by the size of the files."""
    statistics: Any = frame._jdf.queryExecution().optimizedPlan().stats()
    size = int(str(statistics.sizeInBytes()))
    if form is None or size >= 1 << 60:
        return None
    return size // _BYTES_A_ROW.get(form, _BYTES_A_LINE)


SCHEMA = "groups string"
# What a worker reads at a time.
_BATCH_ROWS = 1_000_000


def on_one_machine(spark: SparkSession) -> bool:
    """Return whether all workers are on this machine."""
    return (spark.conf.get("spark.master", "") or "").startswith("local")


def seen_by_workers(spark: SparkSession, path: str) -> bool:
    """Return whether workers are on this machine, and the path is one of it."""
    return on_one_machine(spark) and "://" not in path


def row_groups(
    spark: SparkSession, files: Sequence[str], columns: Sequence[str], *, slices: int
) -> DataFrame:
    """One row for each row group of some files, in order, in so many partitions at most."""
    told = []
    for at, file in enumerate(files):
        own = {"file": file, "at": at if len(files) > 1 else None, "columns": list(columns)}
        with Path(file).open("rb") as opened:
            parts = row_group_sizes(opened, Path(file).name)
        start = 0
        for rows in parts:
            told.append((json.dumps(own | {"start": start, "rows": rows}),))
            start += rows
    groups = spark.sparkContext.parallelize(told, max(min(len(told), slices), 1))
    return spark.createDataFrame(groups, SCHEMA)


def check_files(files: Sequence[str]) -> None:
    """Refuse a damaged file, and one that claims more than a file of its size can hold."""
    for file in files:
        with Path(file).open("rb") as opened:
            check_sizes(opened, Path(file).name)


def first_seen(files: Sequence[str], column: str) -> pl.Series:
    """Return the different values of a column, as text, in the order in which they come first."""
    texts = pl.col(column).cast(pl.String)
    values = pl.concat(pl.scan_parquet(file, glob=False).select(texts) for file in files)
    return values.unique(maintain_order=True).collect()[column]


def first_rows(files: Sequence[str], most: int) -> pl.DataFrame:
    """Return the first rows of the first file that has any."""
    for file in files:
        rows = pl.scan_parquet(file, glob=False).head(most).collect()
        if rows.height:
            return rows
    return rows


def read_groups(batches: Iterable[Any]) -> Iterator[pl.DataFrame]:
    """Return the rows of the row groups that some batches name."""
    for batch in batches:
        for text in batch["groups"].to_pylist():
            told = json.loads(text)
            scan = pl.scan_parquet(told["file"], glob=False).select(told["columns"])
            rows = scan.slice(told["start"], told["rows"])
            for some in rows.collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True):
                if told["at"] is None:
                    yield some
                else:
                    yield some.with_columns(pl.lit(told["at"], pl.Int32).alias(FILE))
