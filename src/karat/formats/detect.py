"""Which format a file has: its first bytes decide, its ending helps where they cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from karat.columns import GOLD_NAMES, ITEM_NAMES, QUERY_NAMES, TEXT_NAMES, map_with
from karat.errors import InputError, UsageError
from karat.formats.files import Input, decode, layout_suffix, open_input, refuse_no_path
from karat.formats.registry import FORMATS, Format, Kind, format_named

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.I | re.A)
_KEY = re.compile(r'"([^"\\]{1,60})"\s*:')
_EVALSET = {"relevant_chunk_ids", "relevant_doc_ids"}
_LABEL = {"grade", "relevance", "error"}
_STORY_GOLD = {"relevant", "relevant_ids", "relevantIds", "answers", "ground_truth"}
_GROUP = re.compile(r"^\s*\S.*\sgroup\s+begin\s*$", re.M)

_MOST_SHOWN = 10
# The field that a file lacks first.
_MAPPED: dict[Kind, str] = {
    "gold": "item_id",
    "run": "hits",
    "queries": "text",
    "corpus": "item_id",
}

# What a file is written as when only its ending is known.
_BY_SUFFIX: dict[Kind, dict[str, str]] = {
    "gold": {
        ".trec": "trec",
        ".qrels": "trec",
        ".txt": "trec",
        ".tsv": "tsv",
        ".jsonl": "evalset",
        ".json": "dict",
        ".csv": "csv",
        ".parquet": "parquet",
    },
    "run": {
        ".trec": "trec",
        ".run": "trec",
        ".txt": "trec",
        ".jsonl": "runlog",
        ".json": "dict",
        ".csv": "csv",
        ".tsv": "tsv-with-header",
        ".parquet": "parquet",
    },
    "queries": {
        ".tsv": "tsv",
        ".txt": "tsv",
        ".jsonl": "jsonl",
        ".json": "story",
        ".csv": "csv",
        ".parquet": "parquet",
    },
    "corpus": {
        ".jsonl": "jsonl",
        ".csv": "csv",
        ".tsv": "tsv-with-header",
        ".parquet": "parquet",
        ".cnl": "story",
        ".json": "memory",
    },
}


def detect_format(path: str | Path, kind: Kind) -> Format:
    """The format of a file that should hold ``kind``; refuses what it does not know."""
    refuse_no_path(path)
    if str(path) != "-" and Path(path).is_dir():
        return _carrying("beir", kind, str(path))
    return detect_input(open_input(path), kind)


def detect_input(file: Input, kind: Kind) -> Format:
    """The format of an open file."""
    head = file.head()
    if head.startswith(b"PAR1"):
        return _carrying("parquet", kind, file.name)
    refuse_binary(file, head)
    text = head.decode("utf-8", "replace")
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines or "".join(text.split()) == "[]":
        raise InputError(f"is empty; a file with {_what(kind)} is expected", where=file.name)
    if text.lstrip()[0] in "{[":
        name = _json_format(text.strip(), lines[0].strip(), kind, file)
    else:
        name = _text_format(lines, kind, file) or _story_format(text, kind, file.suffix)
        if name is None and file.suffix == ".csv":
            # Its reader says which columns it lacks.
            name = "csv"
    if name is None:
        raise _unknown(file.name, kind, text)
    return _carrying(name, kind, file.name)


def refuse_binary(file: Input, head: bytes) -> None:
    """Refuse what cannot be text, before a reader takes it for some."""
    if b"\0" in head:
        decode(head, file)


def format_for_writing(path: str | Path, kind: Kind, format: str | None) -> Format:
    """The format to write: the one asked for, else the one that the ending stands for."""
    refuse_no_path(path)
    if format is not None:
        return format_named(format)
    suffix = layout_suffix(Path(path).name)
    name = _BY_SUFFIX[kind].get(suffix)
    if name is None:
        told = f"{str(path)!r} does not tell a format for {kind}"
        raise UsageError(f"{told}; end it in {_any(_BY_SUFFIX[kind])} or name its format")
    return FORMATS[name]


def _json_format(text: str, first: str, kind: Kind, file: Input) -> str | None:
    record = _parsed(first)
    if record is None:
        record = _parsed(text)
    if isinstance(record, list) or (record is None and text[0] == "["):
        return "story"
    if isinstance(record, dict):
        if file.renamed is not None:
            record = file.renamed.record(record)
        return _record_format(set(record), kind, file.suffix) or _dict_format(record, kind)
    keys = set(_under_our_names(_KEY.findall(text), file))
    return _record_format(keys, kind, file.suffix) or ("dict" if kind in ("gold", "run") else None)


def _under_our_names(names: list[str], file: Input) -> list[str]:
    return names if file.renamed is None else file.renamed.keys(names)


def _record_format(keys: set[str], kind: Kind, suffix: str) -> str | None:
    if "test_cases" in keys:
        return "memory"
    if keys & {"retrieval_queries", "retrievalQueries", "corpora"}:
        return "story"
    if kind == "run":
        logged = "topk" in keys or ("query_id" in keys and keys & {"system", "error", "latency_ms"})
        return "runlog" if logged else None
    if kind == "corpus":
        return "jsonl" if keys & set(ITEM_NAMES) and keys & set(TEXT_NAMES) else None
    return _set_format(keys, kind, suffix)


def _set_format(keys: set[str], kind: Kind, suffix: str) -> str | None:
    """The format of queries, of their gold, or of both in one record."""
    if "gold_evidence" in keys:
        return "dataset"
    # A story's queries may call their gold relevant_ids too, in JSON that is no JSONL.
    if keys & _EVALSET or (suffix != ".json" and keys & set(GOLD_NAMES)):
        return "evalset"
    if kind == "gold" and _is_label(keys):
        return "labels"
    if "question" in keys and "query_id" in keys:
        return "dataset"
    asks = keys & {"query", "question"}
    if asks and (kind == "gold" or not keys & set(QUERY_NAMES)):
        return "story" if keys & _STORY_GOLD and suffix == ".json" else "evalset"
    if not keys & set(TEXT_NAMES):
        return None
    # Queries where gold is expected: their reader says what looks like gold.
    return "jsonl" if kind == "queries" else "evalset"


def _is_label(keys: set[str]) -> bool:
    """One pair a record; a pair of a pool has no grade yet, which the reader says."""
    graded = "chunk_id" in keys and keys & _LABEL
    return "query_id" in keys and ("item_id" in keys or bool(graded))


def _dict_format(record: dict[str, Any], kind: Kind) -> str | None:
    values = list(record.values())
    plausible = kind in ("gold", "run") and all(isinstance(v, (dict, list)) for v in values)
    return "dict" if plausible else None


def _parsed(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _text_format(lines: list[str], kind: Kind, file: Input) -> str | None:
    suffix = file.suffix
    named = _named_columns(lines[0], kind, file)
    if named:
        return named
    if kind == "corpus":
        return None
    data = next((line for line in lines if not line.lstrip().startswith("#")), lines[0])
    data = data.strip("\r\n")
    tabs, fields = data.count("\t"), data.split()
    if kind == "queries":
        return "tsv" if tabs or suffix == ".tsv" else None
    if kind == "run":
        scored = len(fields) >= 6 and _NUMBER.fullmatch(fields[4])
        return "trec" if scored or suffix in FORMATS["trec"].suffixes else None
    judged = len(fields) == 4 and _NUMBER.fullmatch(fields[3])
    if tabs == 2 and (suffix == ".tsv" or not judged):
        return "tsv"
    if judged or suffix in FORMATS["trec"].suffixes:
        return "trec"
    return "tsv" if suffix == ".tsv" else None


# Columns that tell what a table holds; of each group one.
_NEEDS: dict[Kind, tuple[tuple[tuple[str, ...], ...], ...]] = {
    "gold": (
        (QUERY_NAMES, ITEM_NAMES),
        ((*QUERY_NAMES, *TEXT_NAMES), GOLD_NAMES),
    ),
    "run": ((QUERY_NAMES, ITEM_NAMES, ("score", "rank")),),
    "queries": ((QUERY_NAMES, TEXT_NAMES), (TEXT_NAMES, GOLD_NAMES)),
    "corpus": ((ITEM_NAMES, TEXT_NAMES),),
}


def _named_columns(header: str, kind: Kind, file: Input) -> str | None:
    for separator, name in (("\t", "tsv-with-header"), (",", "csv")):
        fields = [field.strip().strip('"') for field in header.split(separator)]
        names = set(_under_our_names(fields, file))
        if len(names) > 1 and any(
            all(names & set(group) for group in groups) for groups in _NEEDS[kind]
        ):
            return name
    return None


def _story_format(text: str, kind: Kind, suffix: str) -> str | None:
    return "story" if kind == "corpus" and (suffix == ".cnl" or _GROUP.search(text)) else None


def _carrying(name: str, kind: Kind, where: str) -> Format:
    form = FORMATS[name]
    if kind not in form.carries:
        holds = " and ".join(form.carries)
        raise InputError(
            f"looks like {form.name} ({form.about}), which holds {holds}; "
            f"{_what(kind)} are expected, or name another format",
            where=where,
        )
    return form


def _what(kind: Kind) -> str:
    return {
        "gold": "judgments",
        "run": "the hits of a run",
        "queries": "queries",
        "corpus": "the items of a corpus",
    }[kind]


def _any(names: dict[str, str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"


def _unknown(where: str, kind: Kind, text: str) -> InputError:
    names = ", ".join(form.name for form in FORMATS.values() if kind in form.carries)
    record = _parsed(text.lstrip().partition("\n")[0])
    todo = f"name the format, one of {names}"
    if isinstance(record, dict) and record:
        keys = ", ".join(list(record)[:_MOST_SHOWN])
        todo = f"{map_with(_MAPPED[kind], 'KEY', what=f'its keys ({keys})')}, or {todo}"
    return InputError(f"its format cannot be told; {todo}", where=where)
