"""Inputs of the labelling questions: runs, gold, queries and corpus, given as files or tables."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from karat.data.columns import Duplicates
from karat.data.tables import Blocks, Corpus, Gold, Queries, Run
from karat.errors import InputError, UsageError
from karat.evaluation import inputs
from karat.evaluation.systems import distinct_names
from karat.formats.field_mapping import Fields
from karat.measure.conventions import SETTABLE, Conventions, conventions_of
from karat.pages.formatting import utf8

# A pair of a query and an item is what gets judged.
PAIR = ("query_id", "item_id")

File = str | os.PathLike[str]
RunLike = Run | Blocks | File | Mapping[str, Any]
GoldLike = Gold | File | Mapping[str, Mapping[str, float]]
QueriesLike = Queries | File
CorpusLike = Corpus | File
Settings = Mapping[str, Any]


def conventions_for(
    profile: str | Conventions, settings: Settings | None, allowed: Collection[str], purpose: str
) -> Conventions:
    """Return a profile's conventions with some settings changed.

    Raises UsageError for a setting that has no effect on ``purpose``.
    """
    if isinstance(profile, Conventions):
        return profile
    for key in settings or {}:
        if key in SETTABLE and key not in allowed:
            names = ", ".join(allowed)
            raise UsageError(f"--set {key}: {purpose} does not depend on it, only on {names}")
    return conventions_of(profile, dict(settings or {}))


def refuse_two_pipes(*names: Any) -> None:
    """Raise UsageError if standard input is named more than once."""
    if sum(isinstance(name, str) and name == "-" for name in names) > 1:
        raise UsageError("only one input can be standard input (-)")


def refuse_repeats(option: str, files: Iterable[Any]) -> None:
    """Raise UsageError if an option names a file twice."""
    places = set()
    for file in files:
        if inputs.is_file(file) and str(file) != "-":
            place = os.path.realpath(file)
            if place in places:
                raise UsageError(f"{option}{file} is given twice; give each file once")
            places.add(place)


def as_list(value: Any) -> list[Any]:
    """Return several values as a list; one value is a list of one, None an empty list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def runs_by_name(
    runs: Mapping[str, RunLike] | Sequence[RunLike] | RunLike,
    *,
    format: str | None = None,
    strict: bool = False,
) -> dict[str, Run | Blocks]:
    """Return runs by their name, in order; runs of the same name get a number.

    A mapping names its runs itself. A file is called as the run that it holds.
    """
    if isinstance(runs, Mapping):
        return {name: open_run(run, format=format, strict=strict) for name, run in runs.items()}
    tables = [open_run(run, format=format, strict=strict) for run in as_list(runs)]
    names = distinct_names([utf8(run.name) for run in tables])
    return dict(zip(names, tables, strict=True))


def open_run(run: RunLike, *, format: str | None = None, strict: bool = False) -> Run | Blocks:
    """Return a run; a file is opened to be read in blocks, standard input is read here."""
    opened = inputs.open_run(run, format=format, strict=strict, fields=Fields())
    return opened.read() if run == "-" else opened


def gold_tables(
    gold: GoldLike | Iterable[GoldLike] | None,
    *,
    format: str | None = None,
    duplicates: Duplicates = "agree",
) -> list[Gold]:
    """Return the judgments of every file or table."""
    return [
        inputs.gold_of(source, format=format, duplicates=duplicates, fields=Fields())
        for source in as_list(gold)
    ]


def queries_table(
    queries: QueriesLike | None, gold: Any = (), *, gold_format: str | None = None
) -> Queries | None:
    """Return the queries, else those that a gold file carries itself."""
    for source in as_list(gold) or [None]:
        table = inputs.queries_of(queries, source, gold_format=gold_format, fields=Fields())
        if table is not None:
            return table
    return None


def corpus_table(corpus: CorpusLike | None) -> Corpus | None:
    """Return the corpus."""
    if corpus is None:
        return None
    return inputs.corpus_of(corpus, (), fields=Fields(), notify=lambda message: None)[0]


def refuse_spans(gold: Gold) -> None:
    """Raise InputError for gold of character spans, which judge no item."""
    if "start" in gold.frame.columns:
        message = "holds character spans, which judge no item; give judgments of items"
        raise InputError(message, where=gold.source.name)


def judged_pairs(gold: Gold) -> pl.DataFrame:
    """Return the judgments of items; a grade below 0 marks a pair that nobody judged."""
    refuse_spans(gold)
    return gold.frame.filter(pl.col("grade") >= 0)
