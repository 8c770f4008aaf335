"""Small systems held against gates."""

from __future__ import annotations

import polars as pl
from scipy.stats import binomtest

import karat
from karat.evaluation.gate_files import parse_gates
from karat.evaluation.gates import Gate, GateResult, Gating, judge, measures_of
from karat.measure.prepare import prepare
from karat.measure.score_builder import score


def gates_of(*lines: str) -> list[Gate]:
    return parse_gates(list(lines), "gates.yaml")[0]


def ranks(*places: int | None, lines: list[str], **more) -> Gating:
    """One gold item a query, found at the given place of a list of five, or not at all."""
    gold = karat.Gold.from_dict({f"q{i}": [f"right{i}"] for i in range(len(places))})
    run = {
        f"q{i}": [f"right{i}" if place == at else f"wrong{at}" for at in range(1, 6)]
        for i, place in enumerate(places)
    }
    gates = gates_of(*lines)
    more["settings"] = {"missing_ids": "allow"} | more.get("settings", {})
    scores = karat.evaluate(karat.Run.from_dict(run), gold, measures_of(gates), **more)
    return judge(gates, scores, more.get("queries"), system="s")


def only(gating: Gating) -> GateResult:
    (result,) = gating.results
    return result


def hits(found: int, n: int, line: str, **more) -> GateResult:
    return only(ranks(*[1] * found, *[None] * (n - found), lines=[line], **more))


def timed(latencies: list[float], line: str, stage: str = "retrieve") -> GateResult:
    calls = pl.DataFrame(
        {
            "query_id": [f"q{i}" for i in range(len(latencies))],
            f"latency.{stage}": [float(ms) for ms in latencies],
        }
    )
    frame = calls.select("query_id", item_id=pl.lit("a"), rank=pl.lit(1))
    run = karat.Run.from_frame(frame, calls=calls)
    gold = karat.Gold.from_dict({query_id: ["a"] for query_id in calls["query_id"]})
    gates = gates_of(line)
    prepared = prepare(gold, karat.evaluate(run, gold, "RR").conventions)
    scores = score(run, prepared, measures_of(gates), lenient=measures_of(gates))
    return only(judge(gates, scores, None, system="s"))


def lower_end(k: int, n: int) -> float:
    """By Clopper and Pearson, which Gaffke's interval of a share is but for its random weights."""
    return float(binomtest(k, n).proportion_ci(method="exact").low)


def smallest_passing(limit: float, n: int) -> float:
    return next(k for k in range(n + 1) if lower_end(k, n) >= limit) / n
