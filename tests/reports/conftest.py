"""A small report of two systems, and a larger one that compares and has gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from karat.data.tables import Gold, Queries, Run
from karat.evaluation.api import evaluate
from karat.evaluation.comparison import compare_scores
from karat.evaluation.gate_files import parse_gates
from karat.evaluation.gates import judge, measures_of
from karat.evaluation.segments import By
from karat.evaluation.systems import DEPTH, compared_systems
from karat.evaluation.verdict import Rule
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.score_builder import score
from karat.reports.document import Report

GRADES = {
    "q1": {"a": 2, "b": 1},
    "q2": {"c": 1},
    "q10": {"d": 1},
    "q4": {"e": 0},
}
MEASURES = ["nDCG@10", "R@2", "P@5", "RR"]


@pytest.fixture
def gold() -> Gold:
    return Gold.from_dict(GRADES)


@pytest.fixture
def queries() -> Queries:
    return Queries.from_dict(
        {
            "q1": {"text": "one", "language": "en", "tags": ["x", "y"], "hard": True, "level": 2},
            "q2": {"text": "two", "language": "pt-BR", "tags": ["y"], "hard": False, "level": 10},
            "q10": {"text": "ten", "language": None, "tags": [], "hard": None, "level": None},
            "q4": {"text": "four", "language": "en", "tags": None, "hard": True, "level": 2},
        }
    )


@pytest.fixture
def runs() -> list[Run]:
    good = {"q1": {"a": 0.9, "z": 0.5, "b": 0.5}, "q2": {"c": 1.0}, "q10": {"d": 0.3, "a": 0.1}}
    poor = {"q1": {"z": 0.9, "b": 0.5}, "q2": {"x": 1.0, "c": 0.5}, "q9": {"a": 1.0}}
    return [Run.from_dict(good, name="good"), Run.from_dict(poor, name="poor")]


@pytest.fixture
def report(runs: list[Run], gold: Gold, queries: Queries) -> Report:
    scores = [evaluate(run, gold, MEASURES, queries=queries) for run in runs]
    return Report.of(scores, gold=gold, queries=queries, by=["language"])


# What a change is held against: two gates hold, one fails, one is out of reach, one lacks data.
GATES = [
    "R@1 >= 0.3",
    {"measure": "R@1", "by": "language", "values": "pt", "min": 0.5},
    "mean RR > 0.4",
    "P@5 >= 0.5",
    "latency.retrieve.p50 <= 60",
]


def world(firsts: dict[str, list[int]]) -> tuple[list[Run], Gold, Queries]:
    """Systems by the rank at which each query's one relevant item comes; the first 12 are pt."""
    n = len(next(iter(firsts.values())))
    ids = [f"q{at:02}" for at in range(n)]
    gold = Gold.from_dict({one: {"a": 1} for one in ids})
    runs = []
    for name, ranks in firsts.items():
        lists = {}
        for one, rank in zip(ids, ranks, strict=True):
            lists[one] = ["x1", "x2", "x3", "x4", "x5"]
            lists[one].insert(rank - 1, "a")
        runs.append(Run.from_dict(lists, name=name))
    queries = Queries.from_dict(
        {
            one: {"text": f"question number {at}", "language": "pt" if at < 12 else "en"}
            for at, one in enumerate(ids)
        }
    )
    return runs, gold, queries


def decided(
    runs: list[Run],
    gold: Gold,
    queries: Queries,
    *,
    measures: Sequence[str] = ("RR", "R@1", "P@5"),
    gates: Sequence[Any] = (),
    compared: bool = True,
    settings: Mapping[str, Any] | None = None,
    **rule: Any,
) -> Report:
    """A report on the runs, with the first as the baseline and the others held against gates."""
    conventions = conventions_of("karat", settings)
    wanted, left_out = parse_gates(list(gates), "gates") if gates else ([], ())
    chosen = parse_measures(list(measures))
    chosen += [one for one in measures_of(wanted) if one not in chosen]
    prepared = prepare(gold, conventions, queries=queries)
    scores = [score(run, prepared, chosen, lenient=chosen, keep=DEPTH) for run in runs]
    by = [By.parse("language")]
    report = Report.of(scores, gold=gold, queries=queries, by=by)
    if compared:
        names = [system.name for system in report.systems]
        contenders = compared_systems(scores, names=names)
        found = compare_scores(contenders, Rule(**rule), queries=queries, by=by)
        report = replace(report, comparisons=found)
    judged = report.systems[1:] if compared else report.systems
    gatings = [
        judge(wanted, one.scores, queries, system=one.name, left_out=left_out) for one in judged
    ]
    return replace(report, gatings=tuple(gatings) if gates else ())


# The change helps the English queries and harms the Portuguese ones.
BASE = [2] * 12 + [4] * 33
HEAD = [3] * 12 + [1] * 28 + [3] * 5


@pytest.fixture
def change() -> Report:
    """A comparison of base with head, and gates on head."""
    return decided(*world({"base": BASE, "head": HEAD}), gates=GATES)
