"""Two configs side by side, in the JSON, CSV and traces of an A/B harness: its keys, its bytes.

A trace is one line per query in ``rq_traces.jsonl``, if three settings allow it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import polars as pl

from karat.compat.report_outputs import refuse_short
from karat.data.columns import Source
from karat.errors import InputError, UsageError
from karat.measure.conventions import PROFILES
from karat.measure.names import parse_measures
from karat.measure.scores import Scores
from karat.pages.formatting import utf8
from karat.pages.serialize import csv_cell
from karat.reports.document import Report
from karat.retrieve.quality import RankedItems, made_alike
from karat.retrieve.quality_config import QualitySettings

METRICS = ("recall", "mrr", "ndcg")
SCHEMA_VERSION = 1
PROFILE = "ab"
ABSENT, UNKNOWN = "absent", "unknown"
TRACES = "rq_traces.jsonl"
REVISION = "CLEMATIS_GIT_SHA"
REDACTED = "[REDACTED]"
_TRACE_VERSION = 1
_TRACE_FOLDER = "logs/quality"
# Keys of a system of kind quality that leave its lists as its config makes them.
_CONFIG_ALONE = frozenset(("retriever", "config", "k", "k_raw"))


@dataclass(frozen=True)
class Side:
    """One of the two configs: its means and one row per query.

    A row is as in the JSON; its ``hits`` are the returned items that have a judgment.
    """

    config_path: str
    config_digest: str
    macro: Mapping[str, float]
    rows: Sequence[Mapping[str, Any]]

    def document(self) -> dict[str, Any]:
        """Return the side without its rows."""
        return {
            "config_path": self.config_path,
            "config_digest": self.config_digest,
            "metrics": {"macro": dict(self.macro)},
        }


@dataclass(frozen=True)
class AbReport:
    """Both sides over the same queries, in the order of the queries file."""

    k: int
    corpus_digest: str
    queries_digest: str
    qrels_digest: str
    a: Side
    b: Side

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "schema_version": SCHEMA_VERSION,
            "k": self.k,
            "corpus_digest": self.corpus_digest,
            "queries_digest": self.queries_digest,
            "qrels_digest": self.qrels_digest,
            "systems": {"A": self.a.document(), "B": self.b.document()},
            "delta": {"macro": _delta(self.a.macro, self.b.macro)},
            "per_query": [
                {"qid": a["qid"], "A": dict(a), "B": dict(b), "delta": _delta(a, b)}
                for a, b in zip(self.a.rows, self.b.rows, strict=True)
            ],
        }


def _delta(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, float]:
    return {name: b[name] - a[name] for name in METRICS}


def to_json(report: AbReport) -> bytes:
    """Return the report as JSON, stable to the byte, without a newline at the end."""
    text = json.dumps(
        report.to_dict(), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def to_csv(report: AbReport) -> bytes:
    """Return two rows per query, A and B, with six decimals."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(["qid", "system", *METRICS, "hits"])
    for pair in zip(report.a.rows, report.b.rows, strict=True):
        for system, row in zip("AB", pair, strict=True):
            values = [f"{row[name]:.6f}" for name in METRICS]
            hits = csv_cell(",".join(row["hits"]))
            writer.writerow([csv_cell(row["qid"]), system, *values, hits])
    return buffer.getvalue().encode()


def macro_grid(report: AbReport) -> list[list[str]]:
    """Return the means side by side, for a terminal."""
    delta = _delta(report.a.macro, report.b.macro)
    rows = [
        [
            f"{name}@{report.k}",
            f"{report.a.macro[name]:.4f}",
            f"{report.b.macro[name]:.4f}",
            # A change too small to be seen has no sign.
            f"{round(delta[name], 4) + 0.0:+.4f}",
        ]
        for name in METRICS
    ]
    return [["mean", "A", "B", "B − A"], *rows]


def report_to_json(report: Report) -> bytes:
    """Return a report on two systems, the first of them A, as JSON."""
    return to_json(ab_report(report))


def report_to_csv(report: Report) -> bytes:
    """Return a report on two systems, the first of them A, as CSV."""
    return to_csv(ab_report(report))


def ab_report(report: Report) -> AbReport:
    """Return the two systems of a report as the harness reports them."""
    a, b = (system.scores for system in report.systems)
    k, queries = a.conventions.k, report.tables and report.tables.queries
    named = queries is not None and "k" in queries.frame.columns
    if queries is not None and named and any(queries.frame["k"].drop_nulls() != k):
        raise UsageError(
            f"output ab: has one k for all queries, here {k}; {queries.source.name} brings others"
        )
    for scores in (a, b):
        refuse_short("ab", scores, report.tables and report.tables.corpus)
    return AbReport(
        k=k,
        corpus_digest=_digest_or_absent(report.corpus),
        queries_digest=_digest_or_absent(report.queries),
        qrels_digest=digest_of_bytes(report.gold),
        a=side_of(a, *_config_of(a)),
        b=side_of(b, *_config_of(b)),
    )


def side_of(scores: Scores, config_path: str, config_digest: str) -> Side:
    """Return the result of one config: its scores under the profile ab, with the top k of lists."""
    measures = parse_measures(PROFILES[PROFILE].measures, conventions=scores.conventions)
    names = [str(measure) for measure in measures]
    means = scores.means()
    macro = [mean for mean in (means[name] for name in names) if mean is not None]
    hits: dict[int, list[str]] = defaultdict(list)
    if scores.lists is not None:
        top = scores.lists.filter(pl.col("rank") <= scores.conventions.k)
        judged = top.filter(pl.col("grade").is_not_null()).sort("row", "rank")
        for row, item_id in judged.select("row", "item_id").rows():
            hits[row].append(item_id)
    rows = []
    for at, (query_id, *values) in enumerate(scores.table.select("query_id", *names).rows()):
        if None in values:
            raise UsageError(
                f"output ab: has a number for every query, and {query_id!r} has none; leave "
                "missing and empty_gold as the profile ab has them"
            )
        numbers = dict(zip(METRICS, values, strict=True))
        rows.append({"qid": query_id, **numbers, "hits": hits[at]})
    return Side(config_path, config_digest, dict(zip(METRICS, macro, strict=True)), rows)


def digest_of_bytes(source: Source) -> str:
    """Return the sha256 of an input; the harness needs one even if it is not a file."""
    digest = source.digest()
    if digest is None:
        raise InputError("is no file whose bytes could be digested; give a file", where=source.name)
    return digest


def _digest_or_absent(source: Source | None) -> str:
    return ABSENT if source is None else digest_of_bytes(source)


def _config_of(scores: Scores) -> tuple[str, str]:
    """Return the config of a run and its digest: the harness's own, else what the log has."""
    meta = scores.meta
    config = meta.get("config")
    alone = isinstance(config, Mapping) and config.keys() <= _CONFIG_ALONE
    if meta.get("retriever") == "quality" and alone:
        return str(meta.get("config_path")), str(meta.get("settings_digest"))
    return utf8(scores.source.name), str(meta.get("config_digest", UNKNOWN))


def trace_of(
    settings: QualitySettings, text: str, ranked: RankedItems, environment: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the trace of one query; None if tracing is off or nothing was fused."""
    if not settings.traced or (settings.quality_enabled and not ranked.fused):
        return None
    places = range(1, len(ranked.item_ids) + 1)
    if settings.quality_enabled:
        rows = zip(ranked.item_ids, ranked.base_ranks, places, ranked.fused or (), strict=True)
        names: tuple[str, ...] = ("id", "rank_sem", "rank_fused", "score_fused")
        items = [dict(zip(names, row, strict=True)) for row in rows]
        meta = {
            "reason": "enabled",
            "note": "enabled trace; fused ordering active",
            "alpha": settings.alpha_semantic,
            "lex_hits": ranked.lexical_hits,
        }
    else:
        scored = zip(ranked.item_ids, ranked.base_scores, strict=True)
        items = [{"id": item_id, "score": score} for item_id, score in scored]
        meta = {
            "reason": settings.trace_reason or "shadow",
            "note": "shadow trace; rankings unchanged",
        }
    return {
        "trace_schema_version": _TRACE_VERSION,
        "git_sha": environment.get(REVISION, "unknown"),
        "config_digest": gate_digest(settings),
        "clock": 0,
        "seed": 0,
        "query": REDACTED if settings.redact else text.strip(),
        "query_id": query_digest(text),
        "meta": {"k": len(places), **meta},
        "items": items,
    }


def gate_digest(settings: QualitySettings) -> str:
    """Return the sha256 of the five settings that decide about traces."""
    decisive = {
        "perf": {
            "enabled": settings.perf_enabled,
            "metrics": {"report_memory": settings.report_memory},
        },
        "t2": {
            "quality": {
                "enabled": settings.quality_enabled,
                "shadow": settings.shadow,
                "redact": settings.redact,
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


def trace_folder(settings: QualitySettings) -> Path:
    """Return the folder of a config's traces."""
    return Path(settings.metrics_trace_dir or settings.trace_dir or _TRACE_FOLDER)


def append_traces(folder: Path, traces: Sequence[Mapping[str, Any]]) -> str | None:
    """Append traces to the folder's file; return what went wrong, since traces never stop a run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / TRACES).open("a+b") as file:
            # A stop in the middle of a line must not spoil the next one.
            if file.tell() and _last_byte(file) != b"\n":
                file.write(b"\n")
            file.writelines(f"{_line(trace)}\n".encode() for trace in traces)
    except OSError as error:
        return f"{folder / TRACES}: traces cannot be written: {error.strerror or error}"
    return None


def _last_byte(file: IO[bytes]) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read()


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
