"""The playbook's rule on segments: a gap that is large, tested, and not made by the gold."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from planted import World, finding, fired, nowhere, only, perfect
from scipy import stats

from karat.errors import UsageError


def lost_in(language, count):
    """The first queries of a language lose their gold."""
    wanted = [n for n in range(400) if perfect(n).attributes["language"] == language][:count]
    return lambda one: nowhere(one) if one.number in wanted else one


def welch(lost, n, lost_outside, n_outside):
    """Welch's p for two shares, from their means and spreads."""
    sides = []
    for gone, of in ((lost, n), (lost_outside, n_outside)):
        share = 1 - gone / of
        sides += [share, math.sqrt(share * (1 - share) * of / (of - 1)), of]
    return stats.ttest_ind_from_stats(*sides, equal_var=False).pvalue


def test_a_segment_below_the_rest_is_named_with_its_test():
    found = World.of(200).change(lost_in("pt", 20), 200).change(lost_in("en", 2), 200).findings()
    figures = only(found, "segment_gap")
    assert (figures["column"], figures["segment"]) == ("language", "pt")
    assert (figures["R@5"], figures["rest"]) == (0.8, 0.98)
    assert (figures["n"], figures["n_rest"]) == (100, 100)
    # Two segments were tested, and both of them are this one pair.
    assert figures["p"] == pytest.approx(2 * welch(20, 100, 2, 100))
    assert "R@5 0.80 where language = pt (100 queries) but 0.98 for the other 100" in (
        found.findings[0].sentence
    )


@pytest.mark.parametrize(("lost", "expected"), [(20, ["segment_gap"]), (19, [])])
def test_a_segment_may_lie_below_the_rest_by_less_than_its_line(lost, expected):
    # 200 queries of each language: 0.1 and 0.095.
    assert fired(World.of(400).change(lost_in("pt", lost), 400).findings()) == expected


@pytest.mark.parametrize(("lost", "expected"), [(3, []), (6, ["segment_gap"])])
def test_a_gap_that_may_be_chance_is_no_finding(lost, expected):
    world = World.of(40).change(lost_in("pt", lost), 40)
    assert (2 * welch(lost, 20, 0, 20) < 0.05) == bool(expected)
    assert fired(world.findings()) == expected


def test_segments_of_fewer_than_20_queries_are_not_judged():
    found = World.of(38).change(lost_in("pt", 7), 38).findings()
    assert "20 queries" in found.unchecked["segment_gap"]


def test_the_segments_of_each_column_are_one_family():
    def labelled(one):
        return replace(one, attributes={**one.attributes, "topic": f"t{one.number % 5}"})

    world = World.of(200).change(lost_in("pt", 20), 200).change(labelled, 200)
    found = world.findings()
    raw = welch(20, 100, 0, 100)
    # Two languages were tested, and five topics apart from them.
    assert finding(found, "segment_gap").figures["p"] == pytest.approx(2 * raw)
    alone = world.findings(by=["language"])
    assert finding(alone, "segment_gap").figures["p"] == pytest.approx(2 * raw)


def test_a_segment_with_more_gold_than_places_is_no_worse_for_that():
    def rich(one):
        return perfect(one.number, gold=10) if one.number % 2 else one

    found = World.of(100).change(rich, 100).findings()
    assert "segment_gap" in found.quiet


def test_queries_of_one_conversation_are_not_counted_as_so_many():
    def talking(one):
        return replace(one, attributes={**one.attributes, "group": f"c{one.number // 40}"})

    world = World.of(80).change(lost_in("pt", 8), 80)
    assert fired(world.findings()) == ["segment_gap"]
    assert fired(world.change(talking, 80).findings()) == []


def test_columns_with_too_many_values_make_no_segments_unless_named():
    def one_each(one):
        return replace(one, attributes={"author": f"a{one.number}", "only": "same"})

    found = World.of(60).change(one_each, 60).findings()
    assert "author, only" in found.unchecked["segment_gap"]


def test_a_column_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="did you mean language"):
        World.of(30).findings(by=["langage"])
