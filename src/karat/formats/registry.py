"""The registry of formats: one entry per format, and how the format of a file is detected.

A format is one module with ``read_*`` and ``write_*`` functions for the kinds that it carries, and
``sniff(head, kind)``, which returns True if a file begins like one of this format. The module is
loaded when a file may be of its format. Formats are tried in the order of the registry: of two
that fit, put the more specific one first. A suffix that several formats have stands for the last
of them, the most general one: a new format in front changes the meaning of no suffix.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial, partialmethod
from pathlib import Path
from typing import Any, Literal, cast

from karat.data.columns import GOLD_NAMES, ITEM_NAMES, QUERY_NAMES, TEXT_NAMES, mapping_hint
from karat.errors import InputError, UsageError, unknown
from karat.formats.field_mapping import KINDS as KINDS
from karat.formats.field_mapping import FileMapping
from karat.formats.field_mapping import Kind as Kind
from karat.formats.files import PARQUET, Input, check_path, layout_suffix, open_input

# What a file begins like: text, one or more JSON objects, a JSON array, or Parquet.
Content = Literal["text", "json", "array", "parquet", "folder"]
_CONTENTS: dict[Kind, str] = {
    "gold": "judgments",
    "run": "the hits of a run",
    "queries": "queries",
    "corpus": "the items of a corpus",
}
# The field that a file of each kind most likely names differently.
_MAPPED_FIELD = {"gold": "item_id", "run": "hits", "queries": "text", "corpus": "item_id"}
# The columns that identify a table: one of each group.
_NEEDS: dict[Kind, tuple[tuple[tuple[str, ...], ...], ...]] = {
    "gold": ((QUERY_NAMES, ITEM_NAMES), ((*QUERY_NAMES, *TEXT_NAMES), GOLD_NAMES)),
    "run": ((QUERY_NAMES, ITEM_NAMES, ("score", "rank")),),
    "queries": ((QUERY_NAMES, TEXT_NAMES), (TEXT_NAMES, GOLD_NAMES)),
    "corpus": ((ITEM_NAMES, TEXT_NAMES),),
}
_KEY = re.compile(r'"([^"\\]{1,60})"\s*:')
_MOST_SHOWN = 10
# The suffixes of a file in a BEIR folder, packed or not.
_PACKED = ("", ".gz", ".zst")


@dataclass(frozen=True)
class Format:
    """One format; ``carries`` lists the kinds of tables that it can hold."""

    name: str
    about: str
    carries: tuple[Kind, ...]
    suffixes: tuple[str, ...]
    keeps: str
    """What a written file keeps, in the words of the documentation."""
    content: tuple[Content, ...] = ("json",)
    keys: tuple[str, ...] = ()
    """A JSON object without any of these keys is not of this format; () if any key will do."""
    together: bool = False
    """Whether one file holds queries and their gold; then the module has ``write_eval_set``."""
    module: str = ""
    """The module that reads and writes it, if it is not called like the format."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Keyword arguments for every function of the module."""

    def writer_of_both(self) -> Callable[..., None]:
        """Return the function that writes queries and their gold to one file."""
        if not self.together:
            names = ", ".join(form.name for form in FORMATS.values() if form.together)
            raise UsageError(
                f"format {self.name!r} does not hold queries and gold together; these do: {names}"
            )
        return partial(self.code.write_eval_set, **self.options)

    def fits(self, head: Head, kind: Kind) -> bool:
        """Return True if a file that begins like this can be of this format."""
        if head.content not in self.content or kind not in self.carries:
            return False
        if head.content == "json" and self.keys and not head.keys & set(self.keys):
            return False
        return bool(self.code.sniff(head, kind, **self.options))

    @cached_property
    def code(self) -> Any:
        """The module of the format."""
        return importlib.import_module(f"karat.formats.{self.module or self.name}")

    def _function(self, verb: str, kind: Kind) -> Callable[..., Any]:
        if kind not in self.carries:
            others = ", ".join(form.name for form in FORMATS.values() if kind in form.carries)
            raise UsageError(f"format {self.name!r} carries no {kind}; these do: {others}")
        if kind in ("gold", "queries") and hasattr(self.code, "read_judged_queries"):
            shared = importlib.import_module("karat.formats.evalset")
            function = getattr(shared, f"{verb}_{kind}_of")
            name = "read_judged_queries" if verb == "read" else "write_eval_set"
            return partial(function, partial(getattr(self.code, name), **self.options))
        return partial(getattr(self.code, f"{verb}_{kind}"), **self.options)

    # The functions that read a kind from an open file, and write it to a path.
    reader = partialmethod(_function, "read")
    writer = partialmethod(_function, "write")


@dataclass(frozen=True)
class Head:
    """The beginning of a file, as ``sniff`` functions see it."""

    content: Content
    text: str
    lines: list[str]
    """The lines that are not blank."""
    suffix: str
    keys: Set[str] = frozenset()
    """The keys of the first JSON object, under karat's names."""
    record: Mapping[str, Any] | None = None
    """The first JSON object; None if it is longer than the head."""
    mapping: FileMapping | None = None

    @classmethod
    def of(cls, file: Input) -> Head:
        """Return the beginning of an open file."""
        text = file.head.decode("utf-8", "replace")
        start, content = text.lstrip(), "text"
        keys: list[str] = []
        record: dict[str, Any] | None = None
        if file.head.startswith(PARQUET):
            content = "parquet"
        elif start.startswith("["):
            content = "array"
        elif start.startswith("{"):
            content = "json"
            keys = _KEY.findall(text)
            for part in (start, start.partition("\n")[0]):
                with suppress(ValueError, RecursionError):
                    record = json.loads(part)
            if file.mapping is not None:
                keys = file.mapping.keys(keys)
                record = record and file.mapping.record(record)
        lines = [line for line in text.split("\n") if line.strip()]
        names = frozenset(keys if record is None else record)
        suffix = layout_suffix(file.name)
        return cls(cast("Content", content), text, lines, suffix, names, record, file.mapping)

    def has_columns(self, kind: Kind, separator: str) -> bool:
        """Return True if the first line is the header of a table that holds this kind."""
        fields = [name.strip().strip('"') for name in self.lines[0].split(separator)]
        names = set(fields if self.mapping is None else self.mapping.keys(fields))
        return len(names) > 1 and any(
            all(names & set(group) for group in groups) for groups in _NEEDS[kind]
        )


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format(
            "trec",
            "TREC run (query Q0 item rank score tag) and qrels (query iteration item grade)",
            ("gold", "run"),
            (".trec", ".run", ".qrels", ".txt"),
            "ids, grades, scores and ranks of the final stage; ids must hold no white space",
            ("text",),
        ),
        Format(
            "beir",
            "BEIR folder: corpus.jsonl, queries.jsonl, qrels/*.tsv",
            ("gold", "queries", "corpus"),
            (),
            "everything but spans' columns, which are written as doc:start-end",
            ("folder",),
            together=True,
            module="jsonl",
            options={"layout": "beir"},
        ),
        Format(
            "tsv",
            "two columns of queries or three of gold, separated by tabs, no header",
            ("gold", "queries"),
            (".tsv",),
            "ids, texts and grades; neither may hold a tab or a line end",
            ("text",),
            module="trec",
            options={"separator": "\t"},
        ),
        Format(
            "csv",
            "comma-separated values with named columns",
            KINDS,
            (".csv",),
            "every column; not calls, nor queries without gold",
            ("text",),
            module="named_columns",
            options={"separator": ","},
        ),
        Format(
            "tsv-with-header",
            "tab-separated values with named columns",
            KINDS,
            (".tsv",),
            "every column; not calls, nor queries without gold",
            ("text",),
            module="named_columns",
            options={"separator": "\t"},
        ),
        Format(
            "parquet",
            "Parquet with named columns",
            KINDS,
            (".parquet",),
            "every column with its type; not calls, nor queries without gold",
            ("parquet",),
            module="named_columns",
        ),
        Format(
            "runlog",
            "JSONL run log: query_id, system, topk, latency_ms, …",
            ("run",),
            (".jsonl",),
            "everything, failed calls and latencies too; ranked by rank",
            keys=("topk", "query_id"),
        ),
        Format(
            "memory",
            "JSON test suite of memories with generated queries (format_version 2.0)",
            ("gold", "queries", "corpus"),
            (".json",),
            "one memory per query; queries get their ids from their position",
            keys=("test_cases",),
            together=True,
        ),
        Format(
            "story",
            "retrieval_queries JSON, and CNL stories as a corpus of scenes",
            ("gold", "queries", "corpus"),
            (".cnl", ".json"),
            "ids, texts, k and which items are relevant; a CNL keeps scene ids and texts",
            ("text", "json", "array"),
            ("retrieval_queries", "retrievalQueries", "corpora"),
            together=True,
        ),
        Format(
            "labels",
            "JSONL labels, one judgment per line: query_id, item_id, grade, rationale, rater",
            ("gold",),
            (".jsonl",),
            "ids and grades; not queries without gold, nor which negatives are hard",
            keys=("item_id", "chunk_id"),
        ),
        Format(
            "dataset",
            "JSONL dataset: query_id, question, gold_evidence, negatives, as_of, …",
            ("gold", "queries"),
            (".jsonl",),
            "everything",
            keys=("gold_evidence", "question"),
            together=True,
            module="evalset",
            options={"style": "dataset"},
        ),
        Format(
            "evalset",
            "JSONL eval set: query, relevant_chunk_ids",
            ("gold", "queries"),
            (".jsonl",),
            "everything; grades other than 1 go to a key of their own",
            together=True,
        ),
        Format(
            "jsonl",
            "JSONL objects with an id and a text",
            ("queries", "corpus"),
            (".jsonl",),
            "everything",
        ),
        Format(
            "dict",
            "JSON of {query: {item: score or grade}}, as ranx and pytrec_eval take it",
            ("gold", "run"),
            (".json",),
            "ids, grades and scores; failed calls are left out",
            module="dicts",
        ),
    )
}


def format_named(name: str) -> Format:
    """Return the format with that name; raise UsageError with the nearest name if unknown."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    return FORMATS[name]


def detect_format(path: str | Path, kind: Kind) -> Format:
    """Return the format of a file that should hold ``kind``; raise InputError if unknown."""
    return open_file(path, kind)[1]


def open_file(
    path: str | Path,
    kind: Kind,
    format: str | None = None,
    mapping: FileMapping | None = None,
) -> tuple[Input, Format]:
    """Open a file, or the file of a BEIR folder, that should hold ``kind``; return its format."""
    check_path(path)
    if str(path) != "-" and Path(path).is_dir():
        if format not in (None, "beir"):
            raise InputError(f"is a folder; {format} is read from a file", where=str(path))
        return open_input(beir_file(Path(path), kind), mapping), FORMATS["beir"]
    file = open_input(path, mapping)
    form = detect_input(file, kind) if format is None else format_named(format)
    if form.name != "parquet":
        _ = file.head  # raises InputError for a binary file
    return file, form


def file_in(folder: Path, name: str) -> Path | None:
    """Return the path of a file in a BEIR folder, packed or not; None if it is not there."""
    paths = (folder / (name + packing) for packing in _PACKED)
    return next((path for path in paths if path.is_file()), None)


def beir_file(folder: Path, kind: Kind) -> Path:
    """Return the file of a BEIR folder that holds this kind; of several qrels, test.tsv."""
    if not (
        file_in(folder, "queries.jsonl")
        or file_in(folder, "corpus.jsonl")
        or (folder / "qrels").is_dir()
    ):
        raise InputError(
            "is a folder without corpus.jsonl, queries.jsonl or qrels; give a file or a "
            "BEIR folder",
            where=str(folder),
        )
    name = "qrels/test.tsv" if kind == "gold" else f"{kind}.jsonl"
    if file := file_in(folder, name):
        return file
    qrels = sorted(path for packing in _PACKED for path in folder.glob(f"qrels/*.tsv{packing}"))
    if kind == "gold" and len(qrels) == 1:
        return qrels[0]
    problem = f"no {name}"
    if kind == "gold" and qrels:
        names = ", ".join(path.name for path in qrels)
        problem = f"several qrels ({names}); give the file, or call one of them test.tsv"
    raise InputError(f"holds {problem}", where=str(folder))


def detect_input(file: Input, kind: Kind) -> Format:
    """Return the format of an open file: by its content, else by its suffix."""
    head = Head.of(file)
    if "".join(head.text.split()) in ("", "[]"):
        raise InputError(f"is empty; a file with {_CONTENTS[kind]} is expected", where=file.name)
    for form in FORMATS.values():
        if form.fits(head, kind):
            return form
    named = FORMATS.get(_names_by_suffix(kind).get(head.suffix, ""))
    if named is not None and head.content == "text" and "text" in named.content:
        # The reader of a format that is known by its suffix reports what is wrong.
        return named
    for form in FORMATS.values():
        if any(form.fits(head, other) for other in form.carries):
            raise InputError(
                f"looks like {form.name} ({form.about}), which holds {' and '.join(form.carries)}; "
                f"{_CONTENTS[kind]} are expected, or name another format",
                where=file.name,
            )
    names = ", ".join(form.name for form in FORMATS.values() if kind in form.carries)
    advice = f"name the format, one of {names}"
    if head.record:
        keys = f"its keys ({', '.join(list(head.record)[:_MOST_SHOWN])})"
        advice = f"{mapping_hint(_MAPPED_FIELD[kind], 'KEY', what=keys)}, or {advice}"
    raise InputError(f"unknown format; {advice}", where=file.name)


# Suffixes that do not stand for the last format of the registry that has them.
_BY_SUFFIX: dict[tuple[Kind, str], str] = {
    ("gold", ".tsv"): "tsv",
    ("queries", ".tsv"): "tsv",
    ("corpus", ".json"): "memory",
}
# Suffixes that are written in another format than they are read, or in none.
_WRITTEN: dict[tuple[Kind, str], str | None] = {
    ("gold", ".run"): None,
    ("run", ".qrels"): None,
    ("queries", ".txt"): "tsv",
}


def _names_by_suffix(kind: Kind) -> dict[str, str]:
    """Return the format that each suffix stands for in files of this kind."""
    names = {
        suffix: form.name
        for form in FORMATS.values()
        if kind in form.carries
        for suffix in form.suffixes
    }
    return names | {suffix: name for (of, suffix), name in _BY_SUFFIX.items() if of == kind}


def format_for_writing(path: str | Path, kind: Kind, format: str | None) -> Format:
    """Return the format to write: the given one, else that of the suffix."""
    check_path(path)
    if format is not None:
        return format_named(format)
    names: dict[str, str | None] = dict(_names_by_suffix(kind))
    names |= {suffix: name for (of, suffix), name in _WRITTEN.items() if of == kind}
    name = names.get(layout_suffix(Path(path).name))
    if name is None:
        *suffixes, last = [suffix for suffix, written in names.items() if written]
        raise UsageError(
            f"the suffix of {str(path)!r} does not determine a format for {kind}; "
            f"end it in {', '.join(suffixes)} or {last} or name its format"
        )
    return FORMATS[name]
