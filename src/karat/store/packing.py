"""Scores as bytes and back, to the bit: Parquet for what is per query, JSON for the rest."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from karat.columns import Source
from karat.errors import InputError
from karat.measures.conventions import PROFILES, Conventions
from karat.measures.depth import CutDepth
from karat.measures.names import Measure
from karat.measures.numbers import Evidence
from karat.measures.registry import MEASURES
from karat.measures.results import Counts, Scores

# Before the colon what a column of the Parquet file is, after it the measure it belongs to.
# What held for every profile before it was a convention.
_ALWAYS = {"gain": "linear", "repeats": "drop", "short_lists": "complete"}
_RENAMED = {"duplicates_dropped": "repeats"}
_VALUE, _CEILING, _LOW, _HIGH = "value:", "ceiling:", "low:", "high:"


@dataclass(frozen=True, slots=True)
class Packed:
    """Scores as the store keeps them: two Parquet files and a JSON text."""

    queries: bytes
    evidence: bytes | None
    about: str


def pack(scores: Scores) -> Packed:
    """Everything that summaries and comparisons are made of."""
    ideal = {name: evidence for name, (_, evidence) in scores.ceilings.items()}
    facts = [*_facts("run", scores.evidence), *_facts("ideal", ideal)]
    about = {
        "measures": [[one.name, one.k, one.params] for one in scores.measures],
        "conventions": dataclasses.asdict(scores.conventions),
        "counts": dataclasses.asdict(scores.counts),
        "meta": jsonable(scores.meta),
        "lacks": dict(scores.lacks),
        "cut": None if scores.cut is None else dataclasses.asdict(scores.cut),
        "fingerprint": scores.fingerprint,
        "totals": {"run": _totals(scores.evidence), "ideal": _totals(ideal)},
    }
    return Packed(
        queries=_parquet(_per_query(scores)),
        evidence=_parquet(pl.concat(facts)) if facts else None,
        about=json.dumps(about),
    )


def unpack(packed: Packed, *, system: str, source: Source, where: str) -> Scores:
    """The scores again; ``where`` names the evaluation in errors."""
    about = json.loads(packed.about)
    frame = _frame(packed.queries, where)
    facts = None if packed.evidence is None else _frame(packed.evidence, where)
    evidence = {
        part: {name: _evidence(facts, part, name, total) for name, total in totals.items()}
        for part, totals in about["totals"].items()
    }
    values = [frame[_VALUE + name].alias(name) for name in _named(frame, _VALUE)]
    return Scores(
        system=system,
        source=source,
        measures=tuple(_measure(one, where) for one in about["measures"]),
        table=pl.DataFrame([frame["query_id"], *values]),
        status=frame["status"],
        counts=Counts(**_known(Counts, _stored_counts(about["counts"]), where)),
        conventions=_conventions(stored_conventions(about), where),
        meta=about["meta"],
        ceilings={
            name: (frame[_CEILING + name].to_numpy(), evidence["ideal"][name])
            for name in _named(frame, _CEILING)
        },
        tied={
            name: (frame[_LOW + name].to_numpy(), frame[_HIGH + name].to_numpy())
            for name in _named(frame, _LOW)
        },
        evidence=evidence["run"],
        lacks=about["lacks"],
        cut=_cut(about.get("cut"), where),
        fingerprint=about["fingerprint"],
        groups=frame["group"].to_numpy() if "group" in frame.columns else None,
    )


def jsonable(value: Any) -> Any:
    """What a run logged about itself, in words that JSON has: dates and infinities as text."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(one) for one in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


def _per_query(scores: Scores) -> pl.DataFrame:
    columns = [scores.table["query_id"], scores.status.alias("status")]
    if scores.groups is not None:
        columns.append(pl.Series("group", scores.groups))
    columns += [column.alias(_VALUE + column.name) for column in scores.table.iter_columns()][1:]
    columns += [pl.Series(_CEILING + name, one) for name, (one, _) in scores.ceilings.items()]
    for name, (low, high) in scores.tied.items():
        columns += [pl.Series(_LOW + name, low), pl.Series(_HIGH + name, high)]
    return pl.DataFrame(columns)


def _facts(part: str, evidence: Mapping[str, Evidence]) -> Iterable[pl.DataFrame]:
    for name, one in evidence.items():
        yield pl.DataFrame(
            {
                "query": one.query.astype(np.int64),
                "key": one.key.astype(np.int64),
                "value": one.value.astype(np.float64),
            }
        ).with_columns(part=pl.lit(part), measure=pl.lit(name))


def _evidence(facts: pl.DataFrame | None, part: str, name: str, total: int | None) -> Evidence:
    if facts is None:
        return Evidence(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), total)
    own = facts.filter((pl.col("part") == part) & (pl.col("measure") == name))
    return Evidence(own["query"].to_numpy(), own["key"].to_numpy(), own["value"].to_numpy(), total)


def _totals(evidence: Mapping[str, Evidence]) -> dict[str, int | None]:
    return {name: None if one.total is None else int(one.total) for name, one in evidence.items()}


def _named(frame: pl.DataFrame, kind: str) -> list[str]:
    return [name.removeprefix(kind) for name in frame.columns if name.startswith(kind)]


def _measure(parts: list[Any], where: str) -> Measure:
    name, k, params = parts
    if name not in MEASURES:
        raise InputError(f"has the measure {name!r}, which this karat does not know", where=where)
    return Measure(name, k, _tuples(params))


def _tuples(value: Any) -> Any:
    """Parameters are hashed, so what JSON made a list is a tuple again."""
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


def stored_conventions(about: Mapping[str, Any]) -> dict[str, Any]:
    """The conventions of a stored evaluation, with those that could not be chosen when it was."""
    own = about["conventions"]
    always = {**_ALWAYS}
    # Without a repeated item either reading of them gives the same.
    if not _stored_counts(about["counts"]).get("repeats", 0) and own["profile"] in PROFILES:
        always["repeats"] = PROFILES[own["profile"]].conventions.repeats
    return {**always, **own}


def _stored_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts of a stored evaluation under the names of today."""
    return {_RENAMED.get(name, name): number for name, number in counts.items()}


def _conventions(values: Mapping[str, Any], where: str) -> Conventions:
    known = _known(Conventions, values, where)
    if known.get("interval") == "bca":
        # Intervals are made anew from the stored values, and bca is made no more.
        known["interval"] = "gaffke"
    return Conventions(**{key: _tuples(value) for key, value in known.items()})


def _cut(values: Mapping[str, Any] | None, where: str) -> CutDepth | None:
    if values is None:
        return None
    known = _known(CutDepth, values, where)
    return CutDepth(**{key: _tuples(value) for key, value in known.items()})


def _known(kind: Any, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a dataclass; one that it does not have came from a newer karat."""
    fields = {field.name for field in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            raise InputError(f"was saved by a newer karat, which knows {key!r}", where=where)
    return dict(values)


def _parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _frame(data: bytes, where: str) -> pl.DataFrame:
    try:
        return pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError):
        raise InputError("is damaged: its values cannot be read", where=where) from None
