"""Evaluations as rows of the store's tables, and rows as evaluations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import RowMapping

from karat.columns import Source
from karat.errors import UsageError, unknown
from karat.measures.results import Scores, Summary
from karat.revision import Revision
from karat.store.packing import Packed
from karat.store.records import Evaluation
from karat.store.schema import LONGEST_NAME

Row = Mapping[str, Any]


def evaluation_row(
    scores: Scores, packed: Packed, report: Row, revision: Revision | None, note: str, now: datetime
) -> dict[str, Any]:
    """What the store notes about one system, besides its values."""
    inputs = report.get("inputs") or {}
    verdict = report.get("verdict")
    return {
        "saved_at": now,
        "system": _name("system", scores.system),
        "revision": revision and _name("revision", revision.commit),
        "dirty": revision and revision.dirty,
        "note": _text(note),
        "verdict": verdict and _text(str(verdict))[:50],
        "karat_version": str((report.get("tool") or {}).get("version", "unknown"))[:50],
        "run_name": _name("run", scores.source.name),
        "run_sha256": scores.source.digest(),
        "gold_name": "in memory",
        **_input("gold", inputs.get("gold")),
        **_input("queries", inputs.get("queries")),
        **_input("corpus", inputs.get("corpus")),
        "about": packed.about,
    }


def measure_rows(summaries: Mapping[str, Summary]) -> list[dict[str, Any]]:
    """One row a measure."""
    return [
        {
            "measure": _name("measure", name),
            "position": position,
            "mean": one.mean,
            "ci_low": one.ci and one.ci[0],
            "ci_high": one.ci and one.ci[1],
            "n": one.n,
            "better": one.better,
            "ceiling": one.ceiling,
            "more": json.dumps({"quantiles": one.quantiles, "ties": one.ties, "lacks": one.lacks}),
        }
        for position, (name, one) in enumerate(summaries.items())
    ]


def evaluation_of(
    row: RowMapping, summaries: Mapping[str, Summary], tags: Sequence[str]
) -> Evaluation:
    """The evaluation that a row is of."""
    about = json.loads(row["about"])
    commit = row["revision"]
    return Evaluation(
        id=row["id"],
        saved_at=row["saved_at"],
        system=row["system"],
        summaries=summaries,
        conventions=about["conventions"],
        version=row["karat_version"],
        run=Source(row["run_name"], sha256=row["run_sha256"]),
        gold=Source(row["gold_name"], sha256=row["gold_sha256"]),
        queries=_source(row, "queries"),
        corpus=_source(row, "corpus"),
        fingerprint=about["fingerprint"],
        tags=tuple(tags),
        revision=None if commit is None else Revision(commit, row["dirty"]),
        note=row["note"],
        verdict=row["verdict"],
        meta=about["meta"],
    )


def summary_of(row: RowMapping) -> Summary:
    """The summary that a row is of."""
    more = json.loads(row["more"])
    low, high = row["ci_low"], row["ci_high"]
    return Summary(
        mean=row["mean"],
        n=row["n"],
        better=row["better"],
        ci=None if low is None or high is None else (low, high),
        ceiling=row["ceiling"],
        quantiles=_tuple(more["quantiles"]),
        ties=_tuple(more["ties"]),
        lacks=more["lacks"],
    )


def utc(now: datetime | None) -> datetime:
    """The moment of a save: now, unless told."""
    if now is None:
        return datetime.now(UTC)
    if now.tzinfo is None:
        raise UsageError("now has no time zone; use datetime.now(UTC)")
    return now.astimezone(UTC)


def known_as(measure: str, known: Sequence[str]) -> str:
    """The stored spelling of a measure."""
    from karat.measures.names import parse_measure

    if measure in known:
        return measure
    name = str(parse_measure(measure))
    if name not in known:
        raise unknown("measure in the store", measure, known)
    return name


def _input(kind: str, told: Row | None) -> dict[str, Any]:
    if not told:
        return {}
    return {f"{kind}_name": _name(kind, told["name"]), f"{kind}_sha256": told["sha256"]}


def _source(row: RowMapping, kind: str) -> Source | None:
    name = row[f"{kind}_name"]
    return None if name is None else Source(name, sha256=row[f"{kind}_sha256"])


def _name(kind: str, name: str) -> str:
    if len(name) > LONGEST_NAME:
        raise UsageError(f"the {kind} {name[:40]!r}… is too long a name; at most {LONGEST_NAME}")
    return _text(name)


def _text(text: str) -> str:
    """What every database takes: no half characters, and none that ends a text in C."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _tuple(values: list[float] | None) -> Any:
    return None if values is None else tuple(values)
