"""Traces of ``karat ab``: one line per query in ``rq_traces.jsonl``, if three settings allow it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from karat.retrieve.quality import Ranked, made_alike
from karat.retrieve.quality_config import Settings

FILE = "rq_traces.jsonl"
REVISION = "CLEMATIS_GIT_SHA"
REDACTED = "[REDACTED]"
_SCHEMA_VERSION = 1
_FOLDER = "logs/quality"


def trace_of(
    settings: Settings, text: str, ranked: Ranked, environment: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the trace of one query; None if tracing is off or nothing was fused."""
    details = _told(settings, ranked) if settings.traced else None
    if details is None:
        return None
    meta, items = details
    return {
        "trace_schema_version": _SCHEMA_VERSION,
        "git_sha": environment.get(REVISION, "unknown"),
        "config_digest": gate_digest(settings),
        "clock": 0,
        "seed": 0,
        "query": REDACTED if settings.quality.redact else text.strip(),
        "query_id": query_digest(text),
        "meta": meta,
        "items": items,
    }


def _told(
    settings: Settings, ranked: Ranked
) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]]] | None:
    places = range(1, len(ranked.item_ids) + 1)
    if settings.quality.enabled:
        if not ranked.fused:
            return None
        rows = zip(ranked.item_ids, ranked.base_ranks, places, ranked.fused, strict=True)
        names = ("id", "rank_sem", "rank_fused", "score_fused")
        meta = {
            "k": len(places),
            "reason": "enabled",
            "note": "enabled trace; fused ordering active",
            "alpha": settings.fusion.alpha_semantic,
            "lex_hits": ranked.lexical_hits,
        }
        return meta, [dict(zip(names, row, strict=True)) for row in rows]
    meta = {
        "k": len(places),
        "reason": settings.metrics.trace_reason or "shadow",
        "note": "shadow trace; rankings unchanged",
    }
    scored = zip(ranked.item_ids, ranked.base_scores, strict=True)
    return meta, [{"id": item_id, "score": score} for item_id, score in scored]


def gate_digest(settings: Settings) -> str:
    """Return the sha256 of the five settings that decide about traces."""
    quality = settings.quality
    decisive = {
        "perf": {
            "enabled": settings.perf.enabled,
            "metrics": {"report_memory": settings.metrics.report_memory},
        },
        "t2": {
            "quality": {
                "enabled": quality.enabled,
                "shadow": quality.shadow,
                "redact": quality.redact,
            }
        },
    }
    return hashlib.sha256(_line(decisive).encode()).hexdigest()


def query_digest(text: str) -> str:
    """Return a query's id in traces: the sha1 of its normalised text.

    >>> query_digest("  Apple   TART ") == query_digest("apple tart")
    True
    """
    return hashlib.sha1(made_alike(text).encode(), usedforsecurity=False).hexdigest()


def trace_folder(settings: Settings) -> Path:
    """Return the folder of a config's traces."""
    return Path(settings.metrics.trace_dir or settings.quality.trace_dir or _FOLDER)


def append_traces(folder: Path, traces: Sequence[Mapping[str, Any]]) -> str | None:
    """Append traces to the folder's file; return what went wrong, since traces never stop a run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / FILE).open("a+b") as file:
            # A stop in the middle of a line must not spoil the next one.
            if file.tell() and _last_byte(file) != b"\n":
                file.write(b"\n")
            file.writelines(f"{_line(trace)}\n".encode() for trace in traces)
    except OSError as error:
        return f"{folder / FILE}: traces cannot be written: {error.strerror or error}"
    return None


def _last_byte(file: IO[bytes]) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read()


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
