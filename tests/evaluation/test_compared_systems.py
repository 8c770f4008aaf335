"""Repeated runs of one system, told by the names of their files."""

from __future__ import annotations

import pytest

from karat.data.tables import Gold, Run
from karat.evaluation.api import evaluate
from karat.evaluation.systems import compared_systems


@pytest.mark.parametrize(
    ("names", "system"),
    [
        (("r-1", "r-2"), "r"),
        (("dense-1", "dense-2"), "dense"),
        (("dense.run1", "dense.run2"), "dense"),
        (("dense_seed3", "dense_seed4"), "dense"),
        (("dense_r1", "dense_r2"), "dense"),
    ],
)
def test_names_that_end_in_a_number_are_runs_of_one_system(names, system):
    gold = Gold.from_dict({"q": {"a": 1}})
    runs = [Run.from_dict({"q": {"a": 1.0}}, name=name) for name in (*names, "other")]
    scores = [evaluate(run, gold, ["RR"]) for run in runs]
    first, other = compared_systems(scores, replicates=True, names=[*names, "other"])
    assert (first.name, len(first.runs)) == (system, 2)
    assert (other.name, len(other.runs)) == ("other", 1)
