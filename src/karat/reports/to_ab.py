"""Two configs side by side, in the JSON and CSV of an A/B harness: its keys, its bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

METRICS = ("recall", "mrr", "ndcg")
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class QueryRow:
    """One query under one config; ``hits`` are the returned items that anyone judged."""

    qid: str
    values: Mapping[str, float]
    hits: Sequence[str]

    def document(self) -> dict[str, Any]:
        """The row as it stands in the JSON."""
        return {"qid": self.qid, **self.values, "hits": list(self.hits)}


@dataclass(frozen=True)
class Side:
    """One of the two configs, and what came of it: the means and one row a query."""

    config_path: str
    config_digest: str
    macro: Mapping[str, float]
    rows: Sequence[QueryRow]

    def document(self) -> dict[str, Any]:
        """The side without its rows."""
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

    def document(self) -> dict[str, Any]:
        """The report as plain data."""
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
    """The report as JSON, stable to the byte; no line end closes it."""
    text = json.dumps(
        report.document(), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def to_csv(report: AbReport) -> bytes:
    """Two rows a query, A and B, with six decimals."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(["qid", "system", *METRICS, "hits"])
    for pair in zip(report.a.rows, report.b.rows, strict=True):
        for system, row in zip("AB", pair, strict=True):
            values = [f"{row.values[name]:.6f}" for name in METRICS]
            writer.writerow([row.qid, system, *values, ",".join(row.hits)])
    return buffer.getvalue().encode()


def macro_grid(report: AbReport) -> list[list[str]]:
    """The means side by side, for a terminal."""
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
