"""Curves over k: the values of an evaluation, areas, segments, depth, and those of a report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from swept import staged_of, world

import karat
from karat.analysis.sweep.curves import (
    DEFAULT_KS,
    DEFAULT_MEASURES,
    default_sweep,
    sweep_system,
)
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import MissingInputError
from karat.evaluation.segments import segments_by
from karat.formats.runlog import run_of_records


def numbers(summary, *names):
    """The numbers of a summary as a document has them."""
    ci = None if summary.ci is None else list(summary.ci)
    return {"ci": ci} | {name: getattr(summary, name) for name in names or ("mean", "n", "ceiling")}


@pytest.mark.parametrize("level", ["item", "doc"])
@pytest.mark.parametrize("profile", ["karat", "trec", "rag"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_value_is_that_of_an_evaluation_to_the_last_bit(seed, profile, level):
    run, gold = world(seed)
    settings = {"level": level, "order": "score"}
    names = [*DEFAULT_MEASURES, "RR", "P", "AP", "Judged"]
    staged, curves = staged_of(run, gold, names, DEFAULT_KS, profile=profile, **settings)
    found = sweep_system(staged, curves)
    for curve in curves:
        measures = [str(one) for one in curve.at.values()]
        known = karat.evaluate(run, gold, measures, profile=profile, settings=settings).summaries
        for point, name in zip(found["measures"][curve.name]["points"], measures, strict=True):
            assert point.items() >= numbers(known[name]).items()


@pytest.mark.parametrize("level", ["item", "doc"])
@pytest.mark.parametrize("name", ["R", "nDCG", "P", "RR"])
def test_the_area_over_the_usual_nodes_is_that_of_auc_to_the_last_bit(name, level):
    run, gold = world(3)
    staged, curves = staged_of(run, gold, [name], DEFAULT_KS, level=level)
    area = sweep_system(staged, curves)["measures"][name]["area"]
    auc = f"AUC(of='{name}')@20"
    known = karat.evaluate(run, gold, [auc], settings={"level": level}).summaries
    (summary,) = known.values()
    assert area == {"from": 1, "to": 20, **numbers(summary, "mean", "n")}


def test_the_area_of_two_measured_points_is_their_middle():
    gold = Gold.from_dict({"q1": ["A", "B"]})
    run = run_of_records([{"query_id": "q1", "k": 3, "topk": ["A", "X", "B"]}], name="log")
    staged, curves = staged_of(run, gold, ["R"], (1, 3, 10))
    line = sweep_system(staged, curves)["measures"]["R"]
    assert line["area"] == {"from": 1, "to": 3, "mean": 0.75, "ci": None, "n": 1}


def test_a_share_of_the_set_has_an_area_of_its_means_and_no_interval():
    gold = Gold.from_dict({"q1": ["A", "B"], "q2": ["A", "C"]})
    run = Run.from_dict({"q1": ["A", "X", "B"], "q2": ["X", "Y", "Z"]})
    staged, curves = staged_of(run, gold, ["Coverage"], (1, 2, 3))
    line = sweep_system(staged, curves)["measures"]["Coverage"]
    assert [point["mean"] for point in line["points"]] == [1 / 3, 1 / 3, 2 / 3]
    assert line["area"]["mean"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert line["area"]["ci"] is None


def test_segments_have_the_values_of_their_queries_alone():
    run, gold = world(4)
    language = {f"q{n}": {"text": "", "language": "pt" if n % 3 else "en"} for n in range(30)}
    queries = Queries.from_dict(language)
    staged, curves = staged_of(run, gold, ["R", "nDCG"], DEFAULT_KS, queries=queries)
    by = {"language": segments_by(staged.final.table["query_id"], queries, "language")}
    found = sweep_system(staged, curves, segments=by)
    for value in ("en", "pt"):
        own = Queries(queries.frame.filter(queries.frame["language"] == value))
        known = karat.evaluate(run, gold, ["nDCG@10"], queries=own).summaries["nDCG@10"]
        (point,) = (
            p for p in found["segments"]["language"][value]["nDCG"]["points"] if p["k"] == 10
        )
        assert point.items() >= numbers(known, "mean", "n").items()
        alone, _ = staged_of(run, gold, ["R", "nDCG"], DEFAULT_KS, queries=own)
        rest = sweep_system(alone, curves)["measures"]["nDCG"]
        assert rest["points"] == found["segments"]["language"][value]["nDCG"]["points"]
    document = found["segments"]["language"]
    assert "small" in document["en"]["R"]
    assert "small" not in document["pt"]["R"]


def test_beyond_the_lists_nothing_is_measured():
    run, gold = world(6, depth=3)
    staged, curves = staged_of(run, gold, ["R"], DEFAULT_KS)
    found = sweep_system(staged, curves)
    points = found["measures"]["R"]["points"]
    assert [point["beyond_log"] for point in points] == [False, False, True, True, True]
    for point in points[2:]:
        assert (point["mean"], point["ci"], point["headroom"]) == (None, None, None)
    assert found["depth"]["final"]["longest"] == 3
    assert found["measures"]["R"]["area"]["to"] == 3
    assert "2 cut-offs were measured" in found["measures"]["R"]["knee_because"]


def test_a_log_that_says_what_it_asked_for_goes_that_deep():
    gold = Gold.from_dict({"q1": ["A"], "q2": ["A"]})
    calls = [{"query_id": name, "k": 10, "topk": ["X", "A"]} for name in ("q1", "q2")]
    staged, curves = staged_of(run_of_records(calls, name="log"), gold, ["R"], (1, 10, 11))
    assert [p["beyond_log"] for p in sweep_system(staged, curves)["measures"]["R"]["points"]] == [
        False,
        False,
        True,
    ]


def test_lists_as_long_as_the_corpus_have_nothing_below_them():
    gold = Gold.from_dict({"q1": ["A"]})
    corpus = Corpus.from_dict({"A": "a", "B": "b"})
    run = Run.from_dict({"q1": ["B", "A"]})
    staged, curves = staged_of(run, gold, ["R"], (1, 2, 20), corpus=corpus)
    assert not any(
        point["beyond_log"] for point in sweep_system(staged, curves)["measures"]["R"]["points"]
    )


def test_a_depth_that_was_set_ends_the_lists_whatever_the_log_asked_for():
    gold = Gold.from_dict({"q1": ["A", "B", "C", "D"]})
    log = {"query_id": "q1", "k": 10, "topk": ["X", "A", "B", "C"]}
    run = run_of_records([log], name="log")
    staged, curves = staged_of(run, gold, ["R"], (1, 3, 4), depth=3)
    points = sweep_system(staged, curves)["measures"]["R"]["points"]
    assert [(p["mean"], p["ceiling"]) for p in points] == [(0.0, 0.25), (0.5, 0.75), (None, 0.75)]
    assert [point["beyond_log"] for point in points] == [False, False, True]
    told = default_sweep(staged)["measures"]["R"]["points"]
    # The log asked for ten.
    assert [point["ceiling"] for point in told] == [0.25, 0.75, 0.75, 0.75, None]


def test_a_run_that_returned_nothing_has_no_value_anywhere():
    gold = Gold.from_dict({"q1": ["A"]})
    run = run_of_records([{"query_id": "q1", "topk": []}], name="log")
    staged, curves = staged_of(run, gold, ["R", "nDCG"], DEFAULT_KS)
    found = sweep_system(staged, curves)
    assert all(p["mean"] is None for line in found["measures"].values() for p in line["points"])
    assert found["measures"]["R"]["area"] is None


def test_a_measure_that_lacks_its_input_is_refused_by_what_it_needs():
    run, gold = world(9)
    staged, curves = staged_of(run, gold, ["Sim"], (1, 2))
    with pytest.raises(MissingInputError, match="Sim needs each hit's similarity"):
        sweep_system(staged, curves)


@pytest.mark.parametrize("profile", ["karat", "rag", "trec", "ab", "minimal"])
@pytest.mark.parametrize("level", ["item", "doc"])
def test_the_curves_of_a_report_are_those_of_an_evaluation(profile, level):
    run, gold = world(10)
    run = replace(run, order="score")
    settings = {"level": level, "order": "score"}
    staged, _ = staged_of(run, gold, ["RR"], (5,), profile=profile, **settings)
    found = default_sweep(staged)
    assert found["ks"] == [1, 3, 5, 10, 20]
    assert list(found["measures"]) == list(DEFAULT_MEASURES)
    for name, line in found["measures"].items():
        wanted = [f"{name}@{k}" for k in found["ks"]]
        known = karat.evaluate(run, gold, wanted, profile=profile, settings=settings).summaries
        for point, summary in zip(line["points"], known.values(), strict=True):
            assert point.items() >= numbers(summary).items()


@pytest.mark.parametrize("missing", ["zero", "skip"])
@pytest.mark.parametrize("empty_gold", ["apart", "zero"])
def test_the_curves_of_a_report_treat_gaps_as_an_evaluation_does(missing, empty_gold):
    gold = Gold.from_dict({"q1": ["A"], "q2": {}, "q3": {}, "q4": ["B"], "q5": ["B"], "q6": {}})
    calls = [
        {"query_id": "q1", "topk": ["X", "A"]},
        {"query_id": "q2", "topk": []},
        {"query_id": "q4", "topk": [], "error": "timeout"},
        {"query_id": "q6", "topk": ["A"], "error": "timeout"},
    ]
    logged = run_of_records(calls, name="log")
    bare = Run.from_dict({"q1": ["X", "A"], "q2": ["X"]})
    settings = {"missing": missing, "empty_gold": empty_gold}
    for run in (logged, bare):
        staged, _ = staged_of(run, gold, ["RR"], (5,), **settings)
        known = karat.evaluate(run, gold, ["R@1"], settings=settings).summaries["R@1"]
        point = default_sweep(staged)["measures"]["R"]["points"][0]
        assert (point["mean"], point["n"]) == (known.mean, known.n)
