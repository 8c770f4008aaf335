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
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from karat.compat.report_outputs import refuse_short
from karat.data.columns import Source
from karat.errors import InputError, UsageError
from karat.measure.conventions import PROFILES
from karat.measure.names import parse_measures
from karat.measure.scores import Scores
from karat.pages.formatting import utf8
from karat.pages.serialize import csv_cell, dumps
from karat.reports.document import Report
from karat.retrieve.quality import QualitySettings, RankedItems, made_alike

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


class Side(NamedTuple):
    """One of the two configs as in the JSON, and its row for each query."""

    system: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


def ab_document(
    a: Side, b: Side, *, k: int, corpus_digest: str, queries_digest: str, qrels_digest: str
) -> dict[str, Any]:
    """Return both sides over the same queries, in the order of the queries file."""
    return {
        "schema_version": SCHEMA_VERSION,
        "k": k,
        "corpus_digest": corpus_digest,
        "queries_digest": queries_digest,
        "qrels_digest": qrels_digest,
        "systems": {"A": a.system, "B": b.system},
        "delta": {"macro": _delta(a.system["metrics"]["macro"], b.system["metrics"]["macro"])},
        "per_query": [
            {"qid": row_a["qid"], "A": row_a, "B": row_b, "delta": _delta(row_a, row_b)}
            for row_a, row_b in zip(a.rows, b.rows, strict=True)
        ],
    }


def _delta(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, float]:
    return {name: b[name] - a[name] for name in METRICS}


def to_json(document: Mapping[str, Any]) -> bytes:
    """Return the report as JSON, stable to the byte, without a newline at the end."""
    return dumps(document).removesuffix(b"\n")


def to_csv(document: Mapping[str, Any]) -> bytes:
    """Return two rows per query, A and B, with six decimals."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(["qid", "system", *METRICS, "hits"])
    for query in document["per_query"]:
        for system in "AB":
            row = query[system]
            values = [f"{row[name]:.6f}" for name in METRICS]
            hits = csv_cell(",".join(row["hits"]))
            writer.writerow([csv_cell(row["qid"]), system, *values, hits])
    return buffer.getvalue().encode()


def macro_grid(document: Mapping[str, Any]) -> list[list[str]]:
    """Return the means side by side, for a terminal."""
    a, b = (document["systems"][name]["metrics"]["macro"] for name in "AB")
    grid = [["mean", "A", "B", "B − A"]]
    for name, delta in document["delta"]["macro"].items():
        # A change too small to be seen has no sign.
        change = f"{round(delta, 4) + 0.0:+.4f}"
        grid.append([f"{name}@{document['k']}", f"{a[name]:.4f}", f"{b[name]:.4f}", change])
    return grid


def report_to_json(report: Report) -> bytes:
    """Return a report on two systems, the first of them A, as JSON."""
    return to_json(ab_report(report))


def report_to_csv(report: Report) -> bytes:
    """Return a report on two systems, the first of them A, as CSV."""
    return to_csv(ab_report(report))


def ab_report(report: Report) -> dict[str, Any]:
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
    return ab_document(
        side_of(a, *_config_of(a)),
        side_of(b, *_config_of(b)),
        k=k,
        corpus_digest=ABSENT if report.corpus is None else digest_of_bytes(report.corpus),
        queries_digest=ABSENT if report.queries is None else digest_of_bytes(report.queries),
        qrels_digest=digest_of_bytes(report.gold),
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
    metrics = {"macro": dict(zip(METRICS, macro, strict=True))}
    system = {"config_path": config_path, "config_digest": config_digest, "metrics": metrics}
    return Side(system, rows)


def digest_of_bytes(source: Source) -> str:
    """Return the sha256 of an input; the harness needs one even if it is not a file."""
    digest = source.digest()
    if digest is None:
        raise InputError("is no file whose bytes could be digested; give a file", where=source.name)
    return digest


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
    k = len(ranked.item_ids)
    names: tuple[str, ...] = ("id", "score")
    columns: tuple[Sequence[Any], ...] = (ranked.item_ids, ranked.base_scores)
    if settings.quality_enabled:
        names = ("id", "rank_sem", "rank_fused", "score_fused")
        columns = (ranked.item_ids, ranked.base_ranks, range(1, k + 1), ranked.fused or ())
        meta = {
            "reason": "enabled",
            "note": "enabled trace; fused ordering active",
            "alpha": settings.alpha_semantic,
            "lex_hits": ranked.lexical_hits,
        }
    else:
        note = "shadow trace; rankings unchanged"
        meta = {"reason": settings.trace_reason or "shadow", "note": note}
    return {
        "trace_schema_version": _TRACE_VERSION,
        "git_sha": environment.get(REVISION, "unknown"),
        "config_digest": gate_digest(settings),
        "clock": 0,
        "seed": 0,
        "query": REDACTED if settings.redact else text.strip(),
        "query_id": query_digest(text),
        "meta": {"k": k, **meta},
        "items": [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)],
    }


def gate_digest(settings: QualitySettings) -> str:
    """Return the sha256 of the five settings that decide about traces."""
    metrics = {"report_memory": settings.report_memory}
    quality = {
        "enabled": settings.quality_enabled,
        "shadow": settings.shadow,
        "redact": settings.redact,
    }
    perf = {"enabled": settings.perf_enabled, "metrics": metrics}
    decisive = {"perf": perf, "t2": {"quality": quality}}
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
            if file.tell():
                file.seek(-1, os.SEEK_END)
                file.write(b"" if file.read() == b"\n" else b"\n")
            file.writelines(f"{_line(trace)}\n".encode() for trace in traces)
    except OSError as error:
        return f"{folder / TRACES}: traces cannot be written: {error.strerror or error}"
    return None


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
