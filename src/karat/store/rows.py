"""Conversion between evaluations and the rows of the store's tables; runs no SQL."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
from sqlalchemy import RowMapping

from karat.data.columns import Source
from karat.data.revision import Revision
from karat.errors import InputError, unknown
from karat.measure.aggregates import Evidence
from karat.measure.conventions import PROFILES, Conventions
from karat.measure.evaluate_measure import CutDepth
from karat.measure.names import Measure, parse_measure
from karat.measure.registry import MEASURES as REGISTRY
from karat.measure.scores import Counts, Scores, Summary
from karat.store.records import SavedEvaluation, storable_name, storable_text

Row = Mapping[str, Any] | RowMapping
# What else a summary has, as JSON.
_MORE = ("quantiles", "ties", "lacks")
# Prefixes of the Parquet columns; the measure follows.
_VALUE, _CEILING, _LOW, _HIGH = "value:", "ceiling:", "low:", "high:"
# What every profile did before it became a convention.
_FORMER_CONVENTIONS = {"gain": "linear", "repeats": "drop", "short_lists": "complete"}
_RENAMED_COUNTS = {"duplicates_dropped": "repeats"}


def evaluation_row(
    scores: Scores,
    report: Row,
    revision: Revision | None,
    note: str,
    now: datetime,
) -> dict[str, Any]:
    """Return the row of one system's evaluation."""
    verdict = verdict_of_system(report, scores.system)
    row = {
        "saved_at": now,
        "system": storable_name("system", scores.system),
        "revision": revision and storable_name("revision", revision.commit),
        "dirty": revision and revision.dirty,
        "note": storable_text(note),
        "verdict": verdict and storable_text(verdict)[:50],
        "karat_version": str((report.get("tool") or {}).get("version", "unknown"))[:50],
        "run_name": storable_name("run", scores.source.name),
        "run_sha256": scores.source.digest(),
        "gold_name": "in memory",
    }
    inputs = report.get("inputs") or {}
    for kind in ("gold", "queries", "corpus"):
        if source := inputs.get(kind):
            row[f"{kind}_name"] = storable_name(kind, source["name"])
            row[f"{kind}_sha256"] = source["sha256"]
    return row


def verdict_of_system(report: Row, system: str) -> str | None:
    """Return the verdict on one system of a report; a baseline without gates has none.

    >>> gates = [{"system": "new", "verdict": "fail"}]
    >>> report = {"verdict": "fail", "gates": gates, "systems": [{"name": "old"}, {"name": "new"}]}
    >>> verdict_of_system(report, "new"), verdict_of_system(report, "old")
    ('fail', None)
    """
    overall = report.get("verdict")
    systems = report.get("systems") or ()
    partial = any(row.get("partial") for row in systems)
    if overall is None or partial or system not in [row.get("name") for row in systems]:
        return None if overall is None else str(overall)
    gates = [gate["verdict"] for gate in report.get("gates") or () if gate["system"] == system]
    decisions = [row for row in report.get("decisions") or () if row["system"] == system]
    if "fail" in gates:
        return "fail"
    if any(decision["regression"] for decision in decisions):
        worse = any(decision["verdict"] == "worse" for decision in decisions)
        return "worse" if worse else "fail"
    if decisions and not gates:
        return str(decisions[0]["verdict"])
    if not gates and ("gates" in report or "decisions" in report):
        return None
    by_weight = ("unmeasurable", "skipped", "pass")
    return next((verdict for verdict in by_weight if verdict in gates), str(overall))


def measure_rows(summaries: Mapping[str, Summary]) -> list[dict[str, Any]]:
    """Return one row per measure."""
    return [
        {
            "measure": storable_name("measure", name),
            "position": position,
            "mean": summary.mean,
            "ci_low": summary.ci and summary.ci[0],
            "ci_high": summary.ci and summary.ci[1],
            "n": summary.n,
            "better": summary.better,
            "ceiling": summary.ceiling,
            "more": json.dumps({name: getattr(summary, name) for name in _MORE}),
        }
        for position, (name, summary) in enumerate(summaries.items())
    ]


def evaluation_of(
    row: RowMapping, summaries: Mapping[str, Summary], tags: Sequence[str]
) -> SavedEvaluation:
    """Return the evaluation of a row."""
    about = json.loads(row["about"])
    sources: dict[str, Any] = {
        kind: Source(row[f"{kind}_name"], sha256=row[f"{kind}_sha256"])
        for kind in ("run", "gold", "queries", "corpus")
        if row[f"{kind}_name"] is not None
    }
    return SavedEvaluation(
        id=row["id"],
        report_id=row["report_id"],
        saved_at=row["saved_at"],
        system=row["system"],
        summaries=summaries,
        conventions=_stored_conventions(about),
        version=row["karat_version"],
        **sources,
        fingerprint=about["fingerprint"],
        tags=tuple(sorted(tags)),
        revision=row["revision"] and Revision(row["revision"], row["dirty"]),
        note=row["note"],
        verdict=row["verdict"],
        meta=dict(about["meta"]),
    )


def summary_of(row: Any) -> Summary:
    """Return the summary of a row of the table of measures."""
    ci = None if row.ci_low is None or row.ci_high is None else (row.ci_low, row.ci_high)
    more = {name: _tuples(value) for name, value in json.loads(row.more).items()}
    return Summary(mean=row.mean, n=row.n, better=row.better, ci=ci, ceiling=row.ceiling, **more)


def stored_measure_name(measure: str, known: Sequence[str]) -> str:
    """Return the stored spelling of a measure."""
    if measure in known:
        return measure
    name = str(parse_measure(measure))
    if name not in known:
        raise unknown("measure in the store", measure, known)
    return name


def pack(scores: Scores) -> dict[str, Any]:
    """Return all that summaries and comparisons are computed from: two Parquet files and JSON."""
    ideal = {name: evidence for name, (_, evidence) in scores.ceilings.items()}
    evidence_by_part = {"run": scores.evidence, "ideal": ideal}
    frames = [
        pl.DataFrame(
            {
                "query": evidence.query.astype(np.int64),
                "key": evidence.key.astype(np.int64),
                "value": evidence.value.astype(np.float64),
            }
        ).with_columns(part=pl.lit(part), measure=pl.lit(name))
        for part, by_measure in evidence_by_part.items()
        for name, evidence in by_measure.items()
    ]
    about = {
        "measures": [[measure.name, measure.k, measure.params] for measure in scores.measures],
        "conventions": dataclasses.asdict(scores.conventions),
        "counts": dataclasses.asdict(scores.counts),
        "meta": jsonable(scores.meta),
        "lacks": dict(scores.lacks),
        "cut": None if scores.cut is None else dataclasses.asdict(scores.cut),
        "fingerprint": scores.fingerprint,
        "totals": {
            part: {
                name: None if evidence.total is None else int(evidence.total)
                for name, evidence in by_measure.items()
            }
            for part, by_measure in evidence_by_part.items()
        },
    }
    return {
        "queries": _to_parquet(_query_frame(scores)),
        "evidence": _to_parquet(pl.concat(frames)) if frames else None,
        "about": json.dumps(about),
    }


def _query_frame(scores: Scores) -> pl.DataFrame:
    status = pl.Series("status", scores.status.tolist(), dtype=pl.String)
    columns = [scores.table["query_id"], status]
    if scores.groups is not None:
        columns.append(pl.Series("group", scores.groups))
    columns += [column.alias(_VALUE + column.name) for column in scores.table.iter_columns()][1:]
    columns += [pl.Series(_CEILING + name, values) for name, (values, _) in scores.ceilings.items()]
    for name, (low, high) in scores.tied.items():
        columns += [pl.Series(_LOW + name, low), pl.Series(_HIGH + name, high)]
    return pl.DataFrame(columns)


def jsonable(value: Any) -> Any:
    """Return what a run logged about itself as JSON has it: dates and infinities as text."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(part) for part in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


def _to_parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def unpack(row: Row, *, system: str, source: Source, where: str) -> Scores:
    """Restore scores of a row with what was packed; ``where`` names the evaluation in errors."""
    about = json.loads(row["about"])
    frame = _from_parquet(row["queries"], where)
    facts = None if row["evidence"] is None else _from_parquet(row["evidence"], where)
    evidence = {
        part: {name: _evidence(facts, part, name, total) for name, total in totals.items()}
        for part, totals in about["totals"].items()
    }
    for name, _, _ in about["measures"]:
        if name not in REGISTRY:
            message = f"has the measure {name!r}, which this karat does not know"
            raise InputError(message, where=where)
    counts, cut = _stored_counts(about["counts"]), about.get("cut")
    conventions = _stored_conventions(about)
    if conventions.get("interval") == "bca":
        # Intervals are computed anew from the stored values, and bca is gone.
        conventions["interval"] = "gaffke"
    return Scores(
        system=system,
        source=source,
        measures=tuple(Measure(name, k, _tuples(params)) for name, k, params in about["measures"]),
        query_ids=tuple(frame["query_id"]),
        columns={name: frame[_VALUE + name].to_numpy() for name in _measures_with(_VALUE, frame)},
        status=np.array(frame["status"].to_list(), dtype=object),
        counts=Counts(**_known_fields(Counts, counts, where)),
        conventions=Conventions(**_known_fields(Conventions, conventions, where)),
        meta=about["meta"],
        ceilings={
            name: (frame[_CEILING + name].to_numpy(), evidence["ideal"][name])
            for name in _measures_with(_CEILING, frame)
        },
        tied={
            name: (frame[_LOW + name].to_numpy(), frame[_HIGH + name].to_numpy())
            for name in _measures_with(_LOW, frame)
        },
        evidence=evidence["run"],
        lacks=about["lacks"],
        cut=None if cut is None else CutDepth(**_known_fields(CutDepth, cut, where)),
        fingerprint=about["fingerprint"],
        groups=frame["group"].to_numpy() if "group" in frame.columns else None,
    )


def _from_parquet(data: bytes, where: str) -> pl.DataFrame:
    try:
        return pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError):
        raise InputError("is damaged: its values cannot be read", where=where) from None


def _evidence(facts: pl.DataFrame | None, part: str, name: str, total: int | None) -> Evidence:
    if facts is None:
        return Evidence(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), total)
    rows = facts.filter((pl.col("part") == part) & (pl.col("measure") == name))
    query, key, value = (rows[column].to_numpy() for column in ("query", "key", "value"))
    return Evidence(query, key, value, total)


def _measures_with(prefix: str, frame: pl.DataFrame) -> list[str]:
    return [name.removeprefix(prefix) for name in frame.columns if name.startswith(prefix)]


def _stored_conventions(about: Row) -> dict[str, Any]:
    """Return the conventions of an evaluation, with those that did not exist when it was made."""
    stored = about["conventions"]
    former = {**_FORMER_CONVENTIONS}
    # Without a repeated item every rule for repeats gives the same scores.
    if not _stored_counts(about["counts"]).get("repeats", 0) and stored["profile"] in PROFILES:
        former["repeats"] = PROFILES[stored["profile"]].conventions.repeats
    return {**former, **stored}


def _stored_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of a stored evaluation under today's names."""
    return {_RENAMED_COUNTS.get(name, name): number for name, number in counts.items()}


def _known_fields(kind: Any, values: Row, where: str) -> dict[str, Any]:
    """Return the fields of a dataclass; an unknown one is from a newer karat."""
    fields = {field.name for field in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            raise InputError(f"was saved by a newer karat, which knows {key!r}", where=where)
    return {key: _tuples(value) for key, value in values.items()}


def _tuples(value: Any) -> Any:
    """Turn JSON's lists into tuples again, which can be hashed."""
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
