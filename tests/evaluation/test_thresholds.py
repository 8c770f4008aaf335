from __future__ import annotations

import pytest

from karat.errors import UsageError
from karat.evaluation.stages import Thresholds, thresholds_from


def test_a_line_is_drawn_where_it_is_asked_for_and_nowhere_else():
    drawn = thresholds_from(["miss=5", "similarity=-0.2", "score=1e-3", "slower=2"])
    told = {"miss": 5, "similarity": -0.2, "score": 0.001, "slower": 2}
    assert drawn.to_dict() == Thresholds().to_dict() | told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("miss", "--line takes KEY=VALUE, not 'miss'"),
        ("miss=", "--line takes KEY=VALUE, not 'miss='"),
        ("mis=5", "unknown line 'mis'; did you mean miss?"),
        ("miss=0", "miss is '0'; a whole number above 0 is expected"),
        ("miss=2.5", "a whole number above 0"),
        ("deep=inf", "a whole number above 0"),
        ("deep=1_0", "a whole number above 0"),
        ("similarity=nan", "similarity is 'nan'; a number is expected"),
        ("high=1.2", "high is '1.2'; a share from 0 to 1 is expected"),
        ("gap=x", "a share from 0 to 1"),
        ("miss=200", "miss no larger than deep"),
        ("near=60", "near must be smaller than far"),
    ],
)
def test_what_is_no_line_is_refused_with_what_to_do(text, told):
    with pytest.raises(UsageError) as refused:
        thresholds_from([text])
    assert told in str(refused.value)


def test_a_line_drawn_twice_is_refused():
    with pytest.raises(UsageError, match="--line miss is given twice"):
        thresholds_from(["miss=5", "miss=6"])
