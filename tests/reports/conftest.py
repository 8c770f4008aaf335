"""A small report: two systems, four queries of which one has no relevant gold."""

from __future__ import annotations

import pytest

from karat.measures.scores import evaluate
from karat.reports.document import Report, build_report
from karat.tables import Gold, Queries, Run

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
    return build_report(scores, gold=gold, queries=queries, by=["language"])
