"""Misses beside which the right document stands: how many of them blame the chunker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planted import World, fired, neighbour, nowhere, only


def test_misses_whose_document_is_at_the_top_blame_the_chunker():
    found = World.of().change(neighbour, 6).findings()
    figures = only(found, "neighbour_found")
    assert (figures["misses"], figures["queries"]) == (6, 6)
    assert figures["n"] == len(World.of().questions)
    assert found.findings[0].look_at == "the chunker"
    assert "6 of the 6 queries without gold in the top 10" in found.findings[0].sentence


@pytest.mark.parametrize(("beside", "expected"), [(5, True), (4, False)])
def test_a_handful_of_them_says_something_and_fewer_do_not(beside, expected):
    found = World.of().change(neighbour, beside).findings()
    assert ("neighbour_found" in fired(found)) is expected


@pytest.mark.parametrize(("elsewhere", "expected"), [(6, True), (7, False)])
def test_at_least_half_of_the_misses_must_have_their_document_at_the_top(elsewhere, expected):
    world = World.of().change(nowhere, 6 + elsewhere).change(neighbour, 6)
    assert ("neighbour_found" in fired(world.findings())) is expected


def test_a_document_below_the_near_cut_off_is_no_neighbour_at_the_top():
    def below(one):
        return one.ranked({f"doc{one.number}#9": 6})

    assert fired(World.of().change(below, 8).findings()) == []


def test_where_much_is_lost_whole_documents_are_spoken_of_instead():
    assert fired(World.of().change(neighbour, 40).findings()) == ["chunks_split"]


def test_without_ids_that_name_documents_it_is_not_checked():
    def plainly(one):
        gold = [item.replace("#", "-") for item in one.gold]
        ranks = dict(zip(gold, one.raw.values(), strict=False))
        return replace(one, gold=gold).ranked(ranks)

    found = World.of().change(plainly, 100).findings()
    assert "doc_id" in found.unchecked["neighbour_found"]
