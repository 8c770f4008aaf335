"""The registry of formats: one entry per format, with the module that reads and writes it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

from karat.errors import UsageError, unknown

Kind = Literal["gold", "run", "queries", "corpus"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Format:
    """One format; ``carries`` lists the kinds of tables that it can hold."""

    name: str
    about: str
    carries: tuple[Kind, ...]
    suffixes: tuple[str, ...]
    module: str
    keeps: str
    """What a written file keeps, in the words of the documentation."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Keyword arguments for every function of the module."""

    def reader(self, kind: Kind) -> Callable[..., Any]:
        """Return the function that reads this kind from an open file."""
        return self._carrying("read", kind)

    def writer(self, kind: Kind) -> Callable[..., None]:
        """Return the function that writes this kind to a path."""
        return self._carrying("write", kind)

    def scanner(self) -> Callable[..., Any] | None:
        """Return the function that streams a run, or None if the format cannot."""
        return self._optional("scan_run")

    def both(self) -> bool:
        """Return True if one file holds queries and their gold."""
        return "gold" in self.carries and "queries" in self.carries and self.name in _TOGETHER

    def column_names(self) -> Callable[..., list[str]] | None:
        """Return the function that lists the columns of a table, or None for other formats."""
        return self._optional("column_names")

    def writer_of_both(self) -> Callable[..., None]:
        """Return the function that writes queries and their gold to one file."""
        if not self.both():
            raise UsageError(
                f"format {self.name!r} does not hold queries and gold together; "
                f"these do: {', '.join(sorted(_TOGETHER))}"
            )
        function: Callable[..., None] = self._module().write_eval_set
        return function

    def _module(self) -> Any:
        return importlib.import_module(f"karat.formats.{self.module}")

    def _optional(self, name: str) -> Callable[..., Any] | None:
        function: Callable[..., Any] | None = getattr(self._module(), name, None)
        return None if function is None else partial(function, **self.options)

    def _carrying(self, verb: str, kind: Kind) -> Callable[..., Any]:
        if kind not in self.carries:
            others = ", ".join(f.name for f in FORMATS.values() if kind in f.carries)
            raise UsageError(f"format {self.name!r} carries no {kind}; these do: {others}")
        module = self._module()
        if kind in ("gold", "queries") and hasattr(module, "read_judged_queries"):
            judged_queries = importlib.import_module("karat.formats.judged_queries")
            return partial(getattr(judged_queries, f"{verb}_{kind}"), module)
        return partial(getattr(module, f"{verb}_{kind}"), **self.options)


# Formats in which one file holds queries and their gold.
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
            "everything but spans' columns, which are written as doc:start-end",
        ),
        Format(
            "tsv",
            "two columns of queries or three of gold, separated by tabs, no header",
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
            "JSONL labels, one judgment per line: query_id, item_id, grade, rationale, rater",
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
            "one memory per query; queries get their ids from their position",
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
            "csvs",
            "every column; not calls, nor queries without gold",
            {"separator": "\t"},
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
    """Return the format with that name; raise UsageError with the nearest name if unknown."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    return FORMATS[name]
