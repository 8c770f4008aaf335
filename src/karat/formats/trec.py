"""TREC runs and qrels: white-space separated lines, as trec_eval reads them.

Lines that begin with ``#`` are comments, blank lines are nothing, and a run's line may
have more after its six columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from karat.columns import Duplicates
from karat.errors import InputError
from karat.formats.blocks import Streamed
from karat.formats.fields import Layout, read_fields
from karat.formats.files import Input, write_frame
from karat.formats.ranking import scored, with_ranks
from karat.formats.spans import join_spans, split_spans
from karat.tables import Gold, Run

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


def scan_run(file: Input, *, name: str, strict: bool = False) -> Streamed:
    """A TREC run, block by block."""

    def batches() -> Iterator[pl.DataFrame]:
        empty = True
        for frame in read_fields(file, RUN, numbered=strict):
            if frame.height:
                empty = False
                yield frame
        if empty:
            raise InputError("holds no hits; expected lines of " + RUN.expected, where=file.name)

    return Streamed(name, file.source, batches, meta=_meta(file), strict=strict)


def read_run(file: Input, *, name: str, strict: bool = False) -> Run:
    """A TREC run in memory."""
    return scan_run(file, name=name, strict=strict).read()


def read_gold(file: Input, *, duplicates: Duplicates = "agree") -> Gold:
    """TREC qrels; the second column is ignored."""
    table = pl.concat(read_fields(file, GOLD))
    if not table.height:
        raise InputError("holds no judgments; expected lines of " + GOLD.expected, where=file.name)
    lines = table["line"]
    table = split_spans(table.drop("line"))
    return Gold.from_frame(table, duplicates=duplicates, lines=lines, source=file.source)


def write_run(run: Run, path: str | Path) -> None:
    """The final hits in file order; latencies, sources and other columns are not kept."""
    hits = with_ranks(scored(run.at("final")))
    tag = str(run.meta.get("tag") or run.name)
    lines = hits.select(
        "query_id",
        pl.lit("Q0").alias("iteration"),
        "item_id",
        "rank",
        "score",
        tag=pl.lit(word(tag)),
    )
    _refuse_blanks(lines, ("query_id", "item_id"), str(path))
    write_frame(lines, path, separator=" ", header=False)


def write_gold(gold: Gold, path: str | Path) -> None:
    """Judgments; queries without any, and which negatives are hard, are not kept."""
    lines = join_spans(gold.frame).select(
        "query_id", pl.lit("0").alias("iteration"), "item_id", _plain(pl.col("grade"))
    )
    _refuse_blanks(lines, ("query_id", "item_id"), str(path))
    write_frame(lines, path, separator=" ", header=False)


def _plain(grade: pl.Expr) -> pl.Expr:
    """Grades as trec_eval wants them: whole where they are whole."""
    whole = (grade == grade.round()) & (grade.abs() < 2**53)
    return (
        pl.when(whole)
        .then(grade.cast(pl.Int64, strict=False).cast(pl.String))
        .otherwise(grade.cast(pl.String))
        .alias("grade")
    )


def word(tag: str) -> str:
    """Return a run's tag as one column."""
    return "_".join(tag.split()) or "run"


def unfit_for_columns(ids: pl.Series) -> pl.Series:
    """Return which ids hold white space, and would be read back as two columns or lines."""
    return ids.str.contains(r"[\s\x00\x{feff}]")


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


def _meta(file: Input) -> dict[str, str]:
    """The run tag: the sixth column of the first line."""
    for line in file.head().split(b"\n"):
        fields = line.strip(b" \t\r").replace(b"\t", b" ").split()
        if fields and not fields[0].startswith(b"#"):
            return {"tag": fields[5].decode("utf-8", "replace")} if len(fields) > 5 else {}
    return {}
