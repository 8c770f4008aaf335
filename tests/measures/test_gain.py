"""Gain as a convention: the profile says what a grade is worth unless a measure does."""

from __future__ import annotations

import math

import pytest

import karat
from karat.measure.conventions import PROFILES, conventions_of
from karat.measure.names import parse_measure, parse_measures

GOLD = {"q": {"a": 2, "b": 1}}
RANKING = {"q": {"b": 3.0, "x": 2.0, "a": 1.0}}
# b at rank 1, a at rank 3; the ideal has a first and b second
LINEAR = (1 + 2 / 2) / (2 + 1 / math.log2(3))
EXPONENTIAL = (1 + 3 / 2) / (3 + 1 / math.log2(3))
MAPPED = (1 + 5 / 2) / (5 + 1 / math.log2(3))


def means(measures, profile="karat", **settings):
    order = {"order": "score"} | settings
    run, gold = karat.Run.from_dict(RANKING), karat.Gold.from_dict(GOLD)
    return karat.evaluate(run, gold, measures, profile=profile, settings=order).means()


@pytest.mark.parametrize("profile", PROFILES)
def test_a_bare_ndcg_has_the_gain_of_the_profile(profile):
    expected = EXPONENTIAL if profile in {"rag", "ab"} else LINEAR
    assert means("nDCG@3", profile) == {"nDCG@3": pytest.approx(expected, abs=1e-15)}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_written_gain_wins_and_the_profile_s_own_is_not_printed(profile):
    named = means(["nDCG(gain='linear')@3", "nDCG(gain='exp')@3"], profile)
    exponential = profile in {"rag", "ab"}
    linear = "nDCG(gain='linear')@3" if exponential else "nDCG@3"
    other = "nDCG@3" if exponential else "nDCG(gain='exp')@3"
    assert named == {linear: pytest.approx(LINEAR), other: pytest.approx(EXPONENTIAL)}


def test_gain_is_a_setting_and_may_be_a_map_of_grades():
    assert means("nDCG@3", gain="exp") == {"nDCG@3": pytest.approx(EXPONENTIAL)}
    assert means("nDCG@3", "rag", gain="linear") == {"nDCG@3": pytest.approx(LINEAR)}
    for gain in ({1: 1, 2: 5}, "{1: 1, 2: 5}", "{2: 5.0}"):
        assert means("nDCG@3", gain=gain) == {"nDCG@3": pytest.approx(MAPPED)}
    named = means(["nDCG(gain={2: 5, 1: 1})@3", "nDCG(gain='linear')@3"], gain="{1: 1, 2: 5}")
    assert named == {
        "nDCG@3": pytest.approx(MAPPED),
        "nDCG(gain='linear')@3": pytest.approx(LINEAR),
    }


@pytest.mark.parametrize("gain", ["cubic", "{}", "{1: -1}", "[1, 2]", 3, None, "{1: True}"])
def test_a_gain_that_is_none_is_refused(gain):
    with pytest.raises(karat.UsageError, match=r"gain .* such as \{1: 1, 2: 5\}"):
        conventions_of("karat", {"gain": gain})


def test_dcg_cg_and_areas_follow():
    # DCG@3 = 1 + 3/2, CG = 1 + 3; nDCG@1 = 1/3, and the area is one trapezoid from 1 to 3
    found = means(["DCG@3", "CG@3", "AUC(of='nDCG')@3", "AUC(of='R')@3"], "rag")
    assert found == {
        "DCG@3": pytest.approx(2.5),
        "CG@3": pytest.approx(4.0),
        "AUC(of='nDCG')@3": pytest.approx((1 / 3 + EXPONENTIAL) / 2),
        "AUC@3": pytest.approx((0.5 + 1.0) / 2),
    }
    linear = means(["AUC(of='nDCG', gain='linear')@3"], "rag")
    assert linear == {"AUC(of='nDCG', gain='linear')@3": pytest.approx((1 / 2 + LINEAR) / 2)}


def test_rbp_has_a_gain_of_its_own():
    assert means("RBP(p=0.5)@3", "rag") == means("RBP(p=0.5)@3", "karat")


def test_an_area_under_a_measure_without_gains_takes_none():
    with pytest.raises(karat.UsageError, match="R takes no gain"):
        parse_measure("AUC(of='R', gain='exp')@5")


def test_reading_a_measure_leaves_an_unwritten_gain_open_and_keeps_a_written_one():
    assert parse_measure("nDCG@5").params == ()
    assert str(parse_measure("nDCG(gain='linear')@5")) == "nDCG(gain='linear')@5"
    for profile, name in (("karat", "nDCG@5"), ("rag", "nDCG(gain='linear')@5")):
        conventions = conventions_of(profile)
        written = parse_measure("nDCG(gain='linear')@5")
        assert str(parse_measure(written, conventions=conventions)) == name
        assert [str(one) for one in parse_measures([written], conventions=conventions)] == [name]


def test_results_with_other_gains_are_not_compared():
    run, gold = karat.Run.from_dict(RANKING), karat.Gold.from_dict(GOLD)
    scores = [
        karat.evaluate(run, gold, "nDCG@3", settings={"gain": gain}) for gain in ("linear", "exp")
    ]
    with pytest.raises(karat.UsageError, match="gain is linear for one and exp for the other"):
        karat.compare(scores)


def test_the_gain_is_printed_with_the_conventions():
    assert conventions_of("rag").document()["gain"] == "exp"
    assert conventions_of("karat").document()["gain"] == "linear"
