"""Two configs side by side, in the JSON and CSV of an A/B harness: its keys, its bytes."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from karat.compat.minimal_output import refuse_short
from karat.data.columns import Source
from karat.errors import InputError, UsageError
from karat.measure.conventions import PROFILES
from karat.measure.names import parse_measures
from karat.measure.scores import Scores
from karat.pages.formatting import utf8
from karat.pages.serialize import csv_cell
from karat.reports.document import Report

METRICS = ("recall", "mrr", "ndcg")
SCHEMA_VERSION = 1
PROFILE = "ab"
ABSENT, UNKNOWN = "absent", "unknown"
# Keys of a system of kind quality that leave its lists as its config makes them.
_CONFIG_ALONE = frozenset(("retriever", "config", "k", "k_raw"))


@dataclass(frozen=True)
class QueryRow:
    """One query under one config; ``hits`` are the returned items that have a judgment."""

    qid: str
    values: Mapping[str, float]
    hits: Sequence[str]

    def document(self) -> dict[str, Any]:
        """Return the row as it is in the JSON."""
        return {"qid": self.qid, **self.values, "hits": list(self.hits)}


@dataclass(frozen=True)
class Side:
    """One of the two configs: its means and one row per query."""

    config_path: str
    config_digest: str
    macro: Mapping[str, float]
    rows: Sequence[QueryRow]

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
                {
                    "qid": one.qid,
                    "A": one.document(),
                    "B": other.document(),
                    "delta": _delta(one.values, other.values),
                }
                for one, other in zip(self.a.rows, self.b.rows, strict=True)
            ],
        }


def _delta(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
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
            values = [f"{row.values[name]:.6f}" for name in METRICS]
            hits = csv_cell(",".join(row.hits))
            writer.writerow([csv_cell(row.qid), system, *values, hits])
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
    _refuse_own_k(report, a.conventions.k)
    for scores in (a, b):
        refuse_short("ab", scores, report.tables and report.tables.corpus)
    return AbReport(
        k=a.conventions.k,
        corpus_digest=_digest_or_absent(report.corpus),
        queries_digest=_digest_or_absent(report.queries),
        qrels_digest=digest_of_bytes(report.gold),
        a=side_of(a, *_config_of(a)),
        b=side_of(b, *_config_of(b)),
    )


def side_of(scores: Scores, config_path: str, config_digest: str) -> Side:
    """Return the result of one config: its scores under the profile ab, with the top k of lists."""
    own = parse_measures(PROFILES[PROFILE].measures, conventions=scores.conventions)
    names = [str(measure) for measure in own]
    means = scores.means()
    macro = [mean for mean in (means[name] for name in names) if mean is not None]
    hits = _judged_hits(scores)
    rows = []
    for at, (query_id, *values) in enumerate(scores.table.select("query_id", *names).rows()):
        if None in values:
            raise UsageError(
                f"output ab: has a number for every query, and {query_id!r} has none; leave "
                "missing and empty_gold as the profile ab has them"
            )
        rows.append(QueryRow(query_id, dict(zip(METRICS, values, strict=True)), hits[at]))
    return Side(config_path, config_digest, dict(zip(METRICS, macro, strict=True)), rows)


def digest_of_bytes(source: Source) -> str:
    """Return the sha256 of an input; the harness needs one even if it is not a file."""
    digest = source.digest()
    if digest is None:
        raise InputError("is no file whose bytes could be digested; give a file", where=source.name)
    return digest


def _digest_or_absent(source: Source | None) -> str:
    return ABSENT if source is None else digest_of_bytes(source)


def _judged_hits(scores: Scores) -> dict[int, list[str]]:
    """Return the judged items that each query got back, relevant or not."""
    hits: dict[int, list[str]] = defaultdict(list)
    if scores.lists is not None:
        top = scores.lists.filter(pl.col("rank") <= scores.conventions.k)
        judged = top.filter(pl.col("grade").is_not_null()).sort("row", "rank")
        for row, item_id in judged.select("row", "item_id").rows():
            hits[row].append(item_id)
    return hits


def _config_of(scores: Scores) -> tuple[str, str]:
    """Return the config of a run and its digest: the harness's own, else what the log has."""
    meta = scores.meta
    said = meta.get("config")
    alone = isinstance(said, Mapping) and said.keys() <= _CONFIG_ALONE
    if meta.get("retriever") == "quality" and alone:
        return str(meta.get("config_path")), str(meta.get("settings_digest"))
    return utf8(scores.source.name), str(meta.get("config_digest", UNKNOWN))


def _refuse_own_k(report: Report, k: int) -> None:
    """Refuse queries with their own k, since the harness has one k for all."""
    queries = None if report.tables is None else report.tables.queries
    if queries is None or "k" not in queries.frame.columns:
        return
    others = queries.frame["k"].drop_nulls()
    if any(other != k for other in others):
        raise UsageError(
            f"output ab: has one k for all queries, here {k}; {queries.source.name} brings others"
        )
