"""Quality against latency: the front, who beats whom, ties, and systems without latencies."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.analysis.diagnose.latency import pareto, pareto_sections
from karat.data.tables import Gold
from karat.errors import UsageError
from karat.evaluation.stages import score_stages
from karat.formats.runlog import run_of_records
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare

N = 10


def system(right, ms, *, n=N, measures=("R@5", "FPR@1", "Sim@5"), stage="total"):
    """A system that finds the gold of so many queries and takes so long for each."""
    records = [
        {
            "query_id": f"q{at}",
            "topk": [{"chunk_id": "a" if at < right else "x", "similarity": 0.5}],
            "latency_ms": None if ms is None else {stage: ms},
        }
        for at in range(n)
    ]
    conventions = conventions_of("karat", {"short_lists": "complete"})
    gold = prepare(Gold.from_dict({f"q{at}": ["a"] for at in range(n)}), conventions)
    return score_stages(run_of_records(records, name="s"), gold, parse_measures(list(measures)))


def places(found):
    return {place["system"]: place["beaten_by"] for place in found["systems"]}


def test_a_system_that_another_beats_in_both_is_not_on_the_front():
    found = pareto({"slow": system(9, 80), "fast": system(5, 10), "poor": system(4, 50)}, "R@5")
    assert found["front"] == ["fast", "slow"]
    assert places(found) == {"fast": [], "poor": ["fast"], "slow": []}
    assert (found["measure"], found["latency"]) == ("R@5", "latency.total.p50")


def test_figures_are_those_of_the_measures():
    one = system(7, 30)
    place = pareto({"one": one}, "R@5")["systems"][0]
    summary = one.final.summaries["R@5"]
    assert place["quality"] == {"value": summary.mean, "ci": summary.ci}
    # Ten calls that all took 30 ms.
    assert place["latency"] == {"value": 30.0, "ci": (30.0, 30.0)}


def test_equal_in_one_and_better_in_the_other_is_beaten():
    found = pareto({"a": system(5, 10), "b": system(5, 20), "c": system(4, 10)}, "R@5")
    assert places(found) == {"a": [], "c": ["a"], "b": ["a"]}


def test_systems_that_are_equal_in_both_share_the_front():
    found = pareto({"b": system(5, 10), "a": system(5, 10)}, "R@5")
    assert found["front"] == ["a", "b"]


def test_a_measure_that_is_better_low_turns_the_front_round():
    systems = {"good": system(9, 80), "fast": system(5, 10), "poor": system(4, 50)}
    assert pareto(systems, "FPR@1")["front"] == ["fast", "good"]


def test_systems_without_a_latency_are_listed_with_what_they_lack():
    systems = {"silent": system(10, None), "timed": system(5, 10), "other": system(5, 9, stage="x")}
    found = pareto(systems, "R@5")
    assert found["front"] == ["other"]
    assert list(found["unplaced"]) == ["silent"]
    assert "latency_ms" in found["unplaced"]["silent"]
    staged = pareto(systems, "R@5", "x.p90")
    assert staged["front"] == ["other"]
    assert "latency.x is not in its log, which has total" in staged["unplaced"]["timed"]


def test_the_latency_may_be_any_of_a_stage():
    systems = {"a": system(5, 10)}
    assert pareto(systems, "R@5", "total.mean")["latency"] == "latency.total.mean"
    assert pareto(systems, "R@5", "latency.total.p90")["latency"] == "latency.total.p90"
    with pytest.raises(UsageError, match="p95"):
        pareto(systems, "R@5", "total.p75")


def test_what_cannot_be_held_against_each_other_is_refused():
    with pytest.raises(UsageError, match="did you mean R@5"):
        pareto({"a": system(5, 10)}, "R@50")
    with pytest.raises(UsageError, match="neither higher nor lower is better"):
        pareto({"a": system(5, 10)}, "Sim@5")
    with pytest.raises(UsageError, match="cannot be compared"):
        pareto({"a": system(5, 10), "b": system(5, 10, n=9)}, "R@5")
    with pytest.raises(UsageError, match="at least one system"):
        pareto({}, "R@5")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=6))
def test_the_front_is_what_a_search_over_all_pairs_finds(drawn):
    systems = {f"s{at}": system(right, ms, n=4) for at, (right, ms) in enumerate(drawn)}
    found = pareto(systems, "R@5")
    points = np.array(drawn)
    for at, (right, ms) in enumerate(drawn):
        as_good = (points[:, 0] >= right) & (points[:, 1] <= ms)
        different = (points != points[at]).any(axis=1)
        beating = {f"s{other}" for other in np.flatnonzero(as_good & different)}
        assert set(places(found)[f"s{at}"]) == beating
    assert found["front"]
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_page_names_the_front_and_who_beats_whom():
    systems = {"fast": system(5, 10), "poor": system(4, 50), "silent": system(4, None)}
    (section,) = pareto_sections(pareto(systems, "R@5").to_dict())
    assert section.title == "R@5 against latency.total.p50"
    assert section.grid[0] == ["system", "R@5", "latency.total.p50 ms", "verdict"]
    assert [(row[0], row[-1]) for row in section.grid[1:]] == [
        ("fast", "front"),
        ("poor", "beaten by fast"),
    ]
    assert section.lines[0].startswith("silent: latencies need latency_ms")
