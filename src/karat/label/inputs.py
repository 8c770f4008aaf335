"""Inputs of the labelling questions: runs, gold, queries and corpus, given as files or tables."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from karat.data.columns import Duplicates
from karat.data.tables import Blocks, Corpus, Gold, Queries, Run
from karat.errors import UsageError
from karat.evaluation.systems import distinct_names
from karat.formats import queries_in_gold, read_corpus, read_gold, read_queries, scan_run
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
    profile: str | Conventions, settings: Settings | None, allowed: Collection[str], what: str
) -> Conventions:
    """Return a profile's conventions with some settings changed.

    Raises UsageError for a setting that has no effect on ``what``.
    """
    if isinstance(profile, Conventions):
        return profile
    for key in settings or {}:
        if key in SETTABLE and key not in allowed:
            *most, last = allowed
            names = f"{', '.join(most)} and {last}"
            raise UsageError(f"--set {key}: {what} does not depend on it, only on {names}")
    return conventions_of(profile, dict(settings or {}))


def refuse_two_pipes(*names: Any) -> None:
    """Raise UsageError if standard input is named more than once."""
    if sum(isinstance(name, str) and name == "-" for name in names) > 1:
        raise UsageError("only one input can be standard input (-)")


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
    if isinstance(run, str | os.PathLike):
        blocks = scan_run(os.fspath(run), format=format, strict=strict)
        return blocks.read() if str(run) == "-" else blocks
    return Run.from_dict(dict(run)) if isinstance(run, Mapping) else run


def gold_tables(
    gold: GoldLike | Iterable[GoldLike] | None,
    *,
    format: str | None = None,
    duplicates: Duplicates = "agree",
) -> list[Gold]:
    """Return the judgments of every file or table."""
    return [gold_table(source, format=format, duplicates=duplicates) for source in as_list(gold)]


def gold_table(
    gold: GoldLike, *, format: str | None = None, duplicates: Duplicates = "agree"
) -> Gold:
    """Return one table of judgments."""
    if isinstance(gold, str | os.PathLike):
        return read_gold(os.fspath(gold), format=format, duplicates=duplicates)
    return Gold.from_dict(gold) if isinstance(gold, Mapping) else gold


def queries_table(
    queries: QueriesLike | None, gold: Any = (), *, gold_format: str | None = None
) -> Queries | None:
    """Return the queries, else those that a gold file carries itself."""
    if isinstance(queries, str | os.PathLike):
        return read_queries(os.fspath(queries))
    if queries is not None:
        return queries
    files = (source for source in as_list(gold) if isinstance(source, str | os.PathLike))
    for file in files:
        # A pipe can be read only once, and the gold has been read from it.
        if Path(file).is_file() or Path(file).is_dir():
            carried = queries_in_gold(os.fspath(file), format=gold_format)
            if carried is not None:
                return carried
    return None


def corpus_table(corpus: CorpusLike | None) -> Corpus | None:
    """Return the corpus."""
    return read_corpus(os.fspath(corpus)) if isinstance(corpus, str | os.PathLike) else corpus
