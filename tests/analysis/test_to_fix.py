"""One problem is one finding: a segment that the change hurts is told once."""

from __future__ import annotations

from karat.analysis.diagnose.findings import Finding, to_fix
from karat.evaluation.verdict import Comparison, Decision


def gap(column, segment):
    figures = {"column": column, "segment": segment, "R@5": 0.63, "rest": 0.81, "n_rest": 107}
    sentence = f"R@5 0.63 where {column} = {segment}"
    return Finding("segment_gap", sentence, figures, "normalisation there")


def caution(measure, segment):
    because = f"{measure} fell by 0.10"
    return Comparison(
        "old", "new", measure, segment, segment is not None, "higher", 51, because=because
    )


def decision(*cautions):
    return Decision("old", "new", "nDCG@5", "better", False, "", cautions=cautions)


def test_a_segment_that_is_hurt_and_lags_behind_is_one_finding():
    found = [Finding("buried", "buried", {}, ""), gap("language", "pt"), gap("topic", "fees")]
    hurt = caution("nDCG@5", {"language": "pt"})
    told = to_fix(found, decision(caution("P@5", None), hurt))
    assert len(told) == 3
    assert told[0].startswith("new hurts language pt: nDCG@5 fell by 0.10")
    assert "R@5 is 0.63 there and 0.81 for the other 107" in told[0]
    assert told[1:] == ["buried", "R@5 0.63 where topic = fees"]


def test_a_crossed_segment_is_another_one():
    hurt = caution("nDCG@5", {"language": "pt", "topic": "fees"})
    told = to_fix([gap("language", "pt"), gap("language × topic", "pt × fees")], decision(hurt))
    assert told[1:] == ["R@5 0.63 where language = pt"]
    assert told[0].startswith("new hurts language pt and topic fees: ")


def test_without_a_comparison_every_finding_is_told():
    found = [gap("language", "pt"), gap("topic", "fees")]
    assert to_fix(found, None) == [one.sentence for one in found]
