"""Every format there is: what it carries, how its files end, where its code lives."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from karat.errors import UsageError, unknown

Kind = Literal["gold", "run", "queries", "corpus"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Format:
    """One format; ``carries`` is what it is read and written for."""

    name: str
    about: str
    carries: tuple[Kind, ...]
    suffixes: tuple[str, ...]
    module: str
    keeps: str
    """What survives being written, in the words of the documentation."""

    def reader(self, kind: Kind) -> Callable[..., Any]:
        """The function that reads this kind from an open file."""
        return self._function("read", kind)

    def writer(self, kind: Kind) -> Callable[..., None]:
        """The function that writes this kind to a path."""
        return self._function("write", kind)

    def scanner(self) -> Callable[..., Any] | None:
        """The function that streams a run, where the format allows it."""
        found: Callable[..., Any] | None = getattr(self._home(), "scan_run", None)
        return found

    def both(self) -> bool:
        """Whether one file carries queries and their gold."""
        return "gold" in self.carries and "queries" in self.carries and self.name in _TOGETHER

    def column_names(self) -> Callable[..., list[str]] | None:
        """The function that tells a table's columns, where the format is one."""
        found: Callable[..., list[str]] | None = getattr(self._home(), "column_names", None)
        return found

    def writer_of_both(self) -> Callable[..., None]:
        """The function that writes queries and their gold together."""
        if not self.both():
            raise UsageError(
                f"format {self.name!r} does not hold queries and gold together; "
                f"these do: {', '.join(sorted(_TOGETHER))}"
            )
        function: Callable[..., None] = self._home().write_eval_set
        return function

    def _home(self) -> Any:
        return importlib.import_module(f"karat.formats.{self.module}")

    def _function(self, verb: str, kind: Kind) -> Callable[..., Any]:
        if kind not in self.carries:
            others = ", ".join(f.name for f in FORMATS.values() if kind in f.carries)
            raise UsageError(f"format {self.name!r} carries no {kind}; these do: {others}")
        function: Callable[..., Any] = getattr(self._home(), f"{verb}_{kind}")
        return function


# Formats whose one file holds the questions and the answers.
_TOGETHER = frozenset({"beir", "dataset", "evalset", "memory", "story"})

FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format(
            "trec",
            "TREC run (query Q0 item rank score tag) and qrels (query iteration item grade)",
            ("gold", "run"),
            (".trec", ".run", ".qrels", ".txt"),
            "trec",
            "ids, grades, scores and ranks of the final stage; ids must hold no white space",
        ),
        Format(
            "beir",
            "BEIR folder: corpus.jsonl, queries.jsonl, qrels/*.tsv",
            ("gold", "queries", "corpus"),
            (),
            "beir",
            "everything but spans' columns, which are spelled doc:start-end",
        ),
        Format(
            "tsv",
            "two columns of queries or three of gold, parted by tabs, no header",
            ("gold", "queries"),
            (".tsv",),
            "tsv",
            "ids, texts and grades; neither may hold a tab or a line end",
        ),
        Format(
            "evalset",
            "JSONL eval set: query, relevant_chunk_ids",
            ("gold", "queries"),
            (".jsonl",),
            "evalset",
            "everything; grades other than 1 go to a key of their own",
        ),
        Format(
            "dataset",
            "JSONL dataset: query_id, question, gold_evidence, negatives, as_of, …",
            ("gold", "queries"),
            (".jsonl",),
            "dataset",
            "everything",
        ),
        Format(
            "labels",
            "JSONL labels, one judgment a line: query_id, item_id, grade, rationale, rater",
            ("gold",),
            (".jsonl",),
            "labels",
            "ids and grades; not queries without gold, nor which negatives are hard",
        ),
        Format(
            "runlog",
            "JSONL run log: query_id, system, topk, latency_ms, …",
            ("run",),
            (".jsonl",),
            "runlog",
            "everything, failed calls and latencies too; ranked by rank",
        ),
        Format(
            "memory",
            "JSON test suite of memories with generated queries (format_version 2.0)",
            ("gold", "queries", "corpus"),
            (".json",),
            "memory",
            "one memory a query; queries get their ids from their place",
        ),
        Format(
            "story",
            "retrieval_queries JSON, and CNL stories as a corpus of scenes",
            ("gold", "queries", "corpus"),
            (".cnl", ".json"),
            "story",
            "ids, texts, k and which items are relevant; a CNL keeps scene ids and texts",
        ),
        Format(
            "dict",
            "JSON of {query: {item: score or grade}}, as ranx and pytrec_eval take it",
            ("gold", "run"),
            (".json",),
            "dicts",
            "ids, grades and scores; failed calls are left out",
        ),
        Format(
            "jsonl",
            "JSONL objects with an id and a text",
            ("queries", "corpus"),
            (".jsonl",),
            "jsonl",
            "everything",
        ),
        Format(
            "csv",
            "comma-separated values with named columns",
            ("gold", "run", "queries", "corpus"),
            (".csv",),
            "csvs",
            "every column; not calls, nor queries without gold",
        ),
        Format(
            "tsv-with-header",
            "tab-separated values with named columns",
            ("gold", "run", "queries", "corpus"),
            (".tsv",),
            "tsvs",
            "every column; not calls, nor queries without gold",
        ),
        Format(
            "parquet",
            "Parquet with named columns",
            ("gold", "run", "queries", "corpus"),
            (".parquet",),
            "parquet",
            "every column with its type; not calls, nor queries without gold",
        ),
    )
}


def format_named(name: str) -> Format:
    """The format of that name; an unknown one is answered with the nearest."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    return FORMATS[name]
