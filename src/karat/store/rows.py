"""Evaluations as rows of the store's tables, and rows as evaluations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import RowMapping

from karat.columns import Source
from karat.errors import UsageError, unknown
from karat.measures.results import Scores, Summary
from karat.revision import Revision
from karat.store.packing import Packed, stored_conventions
from karat.store.records import Evaluation
from karat.store.schema import LONGEST_NAME, MEASURES

Row = Mapping[str, Any]
_TICK, _END = timedelta(microseconds=1), datetime.max.replace(tzinfo=UTC)
# What a summary is read from, in the order that summary_of takes.
SUMMARY = (
    MEASURES.c.mean,
    MEASURES.c.ci_low,
    MEASURES.c.ci_high,
    MEASURES.c.n,
    MEASURES.c.better,
    MEASURES.c.ceiling,
    MEASURES.c.more,
)


def evaluation_row(
    scores: Scores, packed: Packed, report: Row, revision: Revision | None, note: str, now: datetime
) -> dict[str, Any]:
    """What the store notes about one system, besides its values."""
    inputs = report.get("inputs") or {}
    verdict = own_verdict(report, scores.system)
    return {
        "saved_at": now,
        "system": kept_name("system", scores.system),
        "revision": revision and kept_name("revision", revision.commit),
        "dirty": revision and revision.dirty,
        "note": kept_text(note),
        "verdict": verdict and kept_text(str(verdict))[:50],
        "karat_version": str((report.get("tool") or {}).get("version", "unknown"))[:50],
        "run_name": kept_name("run", scores.source.name),
        "run_sha256": scores.source.digest(),
        "gold_name": "in memory",
        **_input("gold", inputs.get("gold")),
        **_input("queries", inputs.get("queries")),
        **_input("corpus", inputs.get("corpus")),
        "about": packed.about,
    }


def own_verdict(report: Row, system: str) -> str | None:
    """The verdict on one system of a report: a baseline that no gate is held against has none.

    >>> gates = [{"system": "new", "verdict": "fail"}]
    >>> report = {"verdict": "fail", "gates": gates, "systems": [{"name": "old"}, {"name": "new"}]}
    >>> own_verdict(report, "new"), own_verdict(report, "old")
    ('fail', None)
    """
    whole = report.get("verdict")
    names = [one.get("name") for one in report.get("systems") or ()]
    partial = any(one.get("partial") for one in report.get("systems") or ())
    if whole is None or partial or system not in names:
        return None if whole is None else str(whole)
    gates = [one["verdict"] for one in report.get("gates") or () if one["system"] == system]
    decided = [one for one in report.get("decisions") or () if one["system"] == system]
    if "fail" in gates:
        return "fail"
    if any(one["regression"] for one in decided):
        return "worse" if any(one["verdict"] == "worse" for one in decided) else "fail"
    if decided and not gates:
        return str(decided[0]["verdict"])
    if not gates and ("gates" in report or "decisions" in report):
        return None
    return next((word for word in ("unmeasurable", "skipped", "pass") if word in gates), str(whole))


def measure_rows(summaries: Mapping[str, Summary]) -> list[dict[str, Any]]:
    """One row a measure."""
    return [
        {
            "measure": kept_name("measure", name),
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
    about = _about(row["about"])
    commit = row["revision"]
    return Evaluation(
        id=row["id"],
        report_id=row["report_id"],
        saved_at=row["saved_at"],
        system=row["system"],
        summaries=summaries,
        conventions=stored_conventions(about),
        version=row["karat_version"],
        run=Source(row["run_name"], sha256=row["run_sha256"]),
        gold=Source(row["gold_name"], sha256=row["gold_sha256"]),
        queries=_source(row, "queries"),
        corpus=_source(row, "corpus"),
        fingerprint=about["fingerprint"],
        tags=tuple(sorted(tags)),
        revision=None if commit is None else Revision(commit, row["dirty"]),
        note=row["note"],
        verdict=row["verdict"],
        meta=dict(about["meta"]),
    )


# A page shows the same evaluations again and again. Kept by their text, which never gets old.
@lru_cache(maxsize=1024)
def _about(written: str) -> Any:
    return json.loads(written)


@lru_cache(maxsize=16_384)
def summary_of(
    mean: float | None,
    low: float | None,
    high: float | None,
    n: int,
    better: Any,
    ceiling: float | None,
    more: str,
) -> Summary:
    """The summary that the columns of ``SUMMARY`` are of."""
    rest = json.loads(more)
    return Summary(
        mean=mean,
        n=n,
        better=better,
        ci=None if low is None or high is None else (low, high),
        ceiling=ceiling,
        quantiles=_tuple(rest["quantiles"]),
        ties=_tuple(rest["ties"]),
        lacks=rest["lacks"],
    )


def utc(now: datetime | None) -> datetime:
    """The moment of a save: now, unless told."""
    if now is None:
        return datetime.now(UTC)
    if now.tzinfo is None:
        raise UsageError("now has no time zone; use datetime.now(UTC)")
    try:
        return now.astimezone(UTC)
    except OverflowError:
        raise UsageError(f"{now.isoformat()} is no time in UTC; give another") from None


def after(before: datetime | None, now: datetime) -> datetime:
    """Now, or the moment after what was said before, if that was said in the future."""
    if before is None or before < now:
        return now
    return before + _TICK if before < _END else before


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
    return {f"{kind}_name": kept_name(kind, told["name"]), f"{kind}_sha256": told["sha256"]}


def _source(row: RowMapping, kind: str) -> Source | None:
    name = row[f"{kind}_name"]
    return None if name is None else Source(name, sha256=row[f"{kind}_sha256"])


def kept_name(kind: str, given: str) -> str:
    """A name as it is stored; refuses one that is too long."""
    if len(given) > LONGEST_NAME:
        raise UsageError(f"the {kind} {given[:40]!r}… is too long a name; at most {LONGEST_NAME}")
    return kept_text(given)


def kept_text(given: str) -> str:
    """What every database takes: no half characters, and none that ends a text in C."""
    return given.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _tuple(values: list[float] | None) -> Any:
    return None if values is None else tuple(values)
