"""Detect the format of a file: by its first bytes, and by its suffix where they fit several."""

from __future__ import annotations

import json
import re
from pathlib import Path

from karat.data.columns import GOLD_NAMES, ITEM_NAMES, QUERY_NAMES, TEXT_NAMES, mapping_hint
from karat.errors import InputError, UsageError
from karat.formats.files import Input, check_path, decode, layout_suffix, open_input
from karat.formats.registry import FORMATS, Format, Kind, format_named

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.I | re.A)
_KEY = re.compile(r'"([^"\\]{1,60})"\s*:')
_GROUP = re.compile(r"^\s*\S.*\sgroup\s+begin\s*$", re.M)
_EVALSET_KEYS = {"relevant_chunk_ids", "relevant_doc_ids"}
_LABEL_KEYS = {"grade", "relevance", "error"}
_STORY_GOLD = {"relevant", "relevant_ids", "relevantIds", "answers", "ground_truth"}
_MOST_SHOWN = 10
_CONTENTS: dict[Kind, str] = {
    "gold": "judgments",
    "run": "the hits of a run",
    "queries": "queries",
    "corpus": "the items of a corpus",
}
# The field that a file of each kind most likely names differently.
_MAPPED_FIELD: dict[Kind, str] = {
    "gold": "item_id",
    "run": "hits",
    "queries": "text",
    "corpus": "item_id",
}
# The format that a suffix stands for when a file is written.
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
# The columns that identify a table: one of each group.
_NEEDS: dict[Kind, tuple[tuple[tuple[str, ...], ...], ...]] = {
    "gold": (
        (QUERY_NAMES, ITEM_NAMES),
        ((*QUERY_NAMES, *TEXT_NAMES), GOLD_NAMES),
    ),
    "run": ((QUERY_NAMES, ITEM_NAMES, ("score", "rank")),),
    "queries": ((QUERY_NAMES, TEXT_NAMES), (TEXT_NAMES, GOLD_NAMES)),
    "corpus": ((ITEM_NAMES, TEXT_NAMES),),
}


def detect_format(path: str | Path, kind: Kind) -> Format:
    """Return the format of a file that should hold ``kind``; raise InputError if unknown."""
    check_path(path)
    if str(path) != "-" and Path(path).is_dir():
        return _carrying("beir", kind, str(path))
    return detect_input(open_input(path), kind)


def detect_input(file: Input, kind: Kind) -> Format:
    """Return the format of an open file."""
    head = file.head()
    if head.startswith(b"PAR1"):
        return _carrying("parquet", kind, file.name)
    refuse_binary(file, head)
    text = head.decode("utf-8", "replace")
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines or "".join(text.split()) == "[]":
        raise InputError(f"is empty; a file with {_CONTENTS[kind]} is expected", where=file.name)
    if text.lstrip()[0] in "{[":
        name = _json_format(text.strip(), lines[0].strip(), kind, file)
    else:
        name = _text_format(lines, kind, file)
        if name is None and kind == "corpus" and (file.suffix == ".cnl" or _GROUP.search(text)):
            name = "story"
        if name is None and file.suffix == ".csv":
            # Its reader reports which columns are missing.
            name = "csv"
    if name is None:
        raise _unknown_format(file.name, kind, text)
    return _carrying(name, kind, file.name)


def refuse_binary(file: Input, head: bytes) -> None:
    """Raise InputError for a file that cannot be text."""
    if b"\0" in head:
        decode(head, file)


def _carrying(name: str, kind: Kind, where: str) -> Format:
    form = FORMATS[name]
    if kind not in form.carries:
        holds = " and ".join(form.carries)
        raise InputError(
            f"looks like {form.name} ({form.about}), which holds {holds}; "
            f"{_CONTENTS[kind]} are expected, or name another format",
            where=where,
        )
    return form


def _json_format(text: str, first: str, kind: Kind, file: Input) -> str | None:
    record = _parse(first)
    if record is None:
        record = _parse(text)
    if isinstance(record, list) or (record is None and text[0] == "["):
        return "story"
    if isinstance(record, dict):
        if file.mapping is not None:
            record = file.mapping.record(record)
        nested = all(isinstance(value, (dict, list)) for value in record.values())
        form = "dict" if kind in ("gold", "run") and nested else None
        return _record_format(set(record), kind, file.suffix) or form
    keys = set(file.rename_keys(_KEY.findall(text)))
    return _record_format(keys, kind, file.suffix) or ("dict" if kind in ("gold", "run") else None)


def _parse(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


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
    """Return the format of queries, of their gold, or of both in one record."""
    if "gold_evidence" in keys:
        return "dataset"
    # The queries of a story may also call their gold relevant_ids, but in JSON, not JSONL.
    if keys & _EVALSET_KEYS or (suffix != ".json" and keys & set(GOLD_NAMES)):
        return "evalset"
    # One pair per record; a pooled pair has no grade yet, which the reader reports.
    is_label = "item_id" in keys or ("chunk_id" in keys and keys & _LABEL_KEYS)
    if kind == "gold" and "query_id" in keys and is_label:
        return "labels"
    if "question" in keys and "query_id" in keys:
        return "dataset"
    asks = keys & {"query", "question"}
    if asks and (kind == "gold" or not keys & set(QUERY_NAMES)):
        return "story" if keys & _STORY_GOLD and suffix == ".json" else "evalset"
    if not keys & set(TEXT_NAMES):
        return None
    # Queries where gold is expected: their reader reports what looks like gold.
    return "jsonl" if kind == "queries" else "evalset"


def _text_format(lines: list[str], kind: Kind, file: Input) -> str | None:
    suffix = file.suffix
    table_format = _table_format(lines[0], kind, file)
    if table_format:
        return table_format
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


def _table_format(header: str, kind: Kind, file: Input) -> str | None:
    for separator, name in (("\t", "tsv-with-header"), (",", "csv")):
        fields = [field.strip().strip('"') for field in header.split(separator)]
        names = set(file.rename_keys(fields))
        if len(names) > 1 and any(
            all(names & set(group) for group in groups) for groups in _NEEDS[kind]
        ):
            return name
    return None


def _unknown_format(where: str, kind: Kind, text: str) -> InputError:
    names = ", ".join(form.name for form in FORMATS.values() if kind in form.carries)
    record = _parse(text.lstrip().partition("\n")[0])
    advice = f"name the format, one of {names}"
    if isinstance(record, dict) and record:
        keys = ", ".join(list(record)[:_MOST_SHOWN])
        advice = (
            f"{mapping_hint(_MAPPED_FIELD[kind], 'KEY', what=f'its keys ({keys})')}, or {advice}"
        )
    return InputError(f"unknown format; {advice}", where=where)


def format_for_writing(path: str | Path, kind: Kind, format: str | None) -> Format:
    """Return the format to write: the given one, else that of the suffix."""
    check_path(path)
    if format is not None:
        return format_named(format)
    suffix = layout_suffix(Path(path).name)
    name = _BY_SUFFIX[kind].get(suffix)
    if name is None:
        *suffixes, last = _BY_SUFFIX[kind]
        raise UsageError(
            f"the suffix of {str(path)!r} shows no format for {kind}; "
            f"end it in {', '.join(suffixes)} or {last} or name its format"
        )
    return FORMATS[name]
