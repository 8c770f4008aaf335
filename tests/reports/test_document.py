from __future__ import annotations

import json
import math

import pytest

import karat
from karat.data.tables import Gold, Run
from karat.errors import UsageError
from karat.evaluation.api import evaluate
from karat.evaluation.systems import distinct_names
from karat.pages.result import to_json
from karat.reports.document import Report


def test_the_document_has_the_keys_of_the_schema(report):
    document = report.to_dict()
    assert sorted(document) == [
        "conventions",
        "counts",
        "inputs",
        "schema_version",
        "systems",
        "tool",
    ]
    assert document["tool"] == {"name": "karat", "version": karat.__version__}
    assert document["inputs"]["corpus"] is None


def test_a_measure_tells_mean_n_ceiling_direction_and_quantiles(report):
    measure = report.to_dict()["systems"][0]["measures"]["P@5"]
    assert measure["better"] == "higher"
    assert measure["n"] == 3
    assert measure["mean"] == pytest.approx((0.4 + 0.2 + 0.2) / 3)
    assert measure["ceiling"] == pytest.approx((0.4 + 0.2 + 0.2) / 3)
    assert len(measure["quantiles"]) == 5


def test_tied_hits_show_the_range_of_the_mean(report):
    good, poor = report.to_dict()["systems"]
    low, high = good["measures"]["R@2"]["ties"]
    assert low < high
    assert low <= good["measures"]["R@2"]["mean"] <= high
    assert "ties" not in poor["measures"]["R@2"]


def test_counts_of_several_systems_are_of_the_set_or_add_up(report):
    document = report.to_dict()
    assert document["counts"]["queries"] == 4
    assert document["counts"]["empty_gold"] == 1
    assert document["counts"]["missing"] == 1
    assert document["counts"]["not_in_gold"] == 1
    assert document["systems"][0]["counts"]["missing"] == 0
    assert document["counts"]["scored"] == min(
        one["counts"]["scored"] for one in document["systems"]
    )


def test_nothing_is_reported_that_nobody_computed(report):
    text = to_json(report).decode()
    for absent in ('"verdict"', '"gates"', '"comparisons"', '"moved"', "NaN", "Infinity"):
        assert absent not in text


def test_an_interval_is_two_numbers_around_the_mean_or_null(report):
    systems = report.to_dict()["systems"]
    for cell in (cell for system in systems for cell in system["measures"].values()):
        low, high = cell["ci"]
        assert low <= cell["mean"] <= high
    alone = systems[0]["segments"]["language"]["pt-BR"].values()
    assert [(cell["n"], cell["ci"]) for cell in alone] == [(1, None)] * len(systems[0]["measures"])


def test_segments_of_fewer_than_20_queries_are_marked(change):
    segments = change.to_dict()["systems"][1]["segments"]["language"]
    assert segments["pt"]["RR"]["small"]
    assert "small" not in segments["en"]["RR"]


def test_a_comparison_and_gates_stand_in_the_document(change):
    document = change.to_dict()
    assert [gate["verdict"] for gate in document["gates"]].count("fail") == 2
    assert document["verdict"] == "fail"
    assert document["rule"]["primary"] == "RR"
    assert {row["measure"] for row in document["comparisons"] if row["segment"] is None} == set(
        document["systems"][0]["measures"]
    )
    assert json.loads(to_json(change))["decisions"][0]["verdict"] == "better"


def test_json_is_sorted_and_ends_with_a_newline(report):
    text = to_json(report).decode()
    assert text.endswith("}\n")
    assert text == json.dumps(json.loads(text), sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def test_floats_survive_a_round_trip(report):
    document = json.loads(to_json(report))
    for system, own in zip(document["systems"], report.systems, strict=True):
        for name, summary in own.summaries.items():
            assert system["measures"][name]["mean"] == summary.mean


def test_what_could_not_be_measured_is_null():
    gold = Gold.from_dict({"q1": {"a": 0}})
    report = Report.of([evaluate(Run.from_dict({"q1": {"a": 1.0}}), gold, ["RR"])], gold=gold)
    measure = json.loads(to_json(report))["systems"][0]["measures"]["RR"]
    assert measure["mean"] is None
    assert measure["n"] == 0


def test_conventions_that_differ_stand_with_their_system(gold):
    by_score = Run.from_dict({"q1": {"a": 1.0}}, name="scored")
    by_rank = Run.from_dict({"q1": ["a", "b"]}, name="ranked")
    scores = [evaluate(run, gold, ["RR"]) for run in (by_score, by_rank)]
    document = Report.of(scores, gold=gold).to_dict()
    assert document["conventions"]["order"] is None
    assert [one["conventions"] for one in document["systems"]] == [
        {"order": "score"},
        {"order": "rank"},
    ]


def test_as_of_range_spans_the_queries_dates(gold, runs):
    queries = karat.Queries.from_dict(
        {
            "q1": {"text": "one", "as_of": "2025-02-01"},
            "q2": {"text": "two", "as_of": "2024-12-31"},
            "q10": {"text": "ten", "as_of": None},
        }
    )
    scores = [evaluate(runs[0], gold, ["RR"], queries=queries)]
    document = Report.of(scores, gold=gold, queries=queries).to_dict()
    assert document["inputs"]["as_of_range"] == ["2024-12-31", "2025-02-01"]


def test_names_are_told_apart_without_taking_another_s_name():
    assert distinct_names(["a", "a-2", "a", "a"]) == ["a", "a-2", "a-3", "a-4"]
    assert distinct_names([]) == []


def test_a_report_of_nothing_is_refused(gold):
    with pytest.raises(UsageError, match="at least one run"):
        Report.of([], gold=gold)


def test_means_are_finite_or_null(report):
    for system in report.to_dict()["systems"]:
        for measure in system["measures"].values():
            assert measure["mean"] is None or math.isfinite(measure["mean"])
