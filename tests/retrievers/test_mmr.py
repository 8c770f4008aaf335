"""Diversification: by hand, against a brute-force twin, and at the size that runs have."""

from __future__ import annotations

import random
import time

import pytest
from given_lists import hits, ids
from hypothesis import given
from hypothesis import strategies as st

from karat.data.tables import Corpus
from karat.errors import CallError, InputError
from karat.formats.settings import Place, validate
from karat.retrieve.build_context import Items
from karat.retrieve.protocol import Hit, Query
from karat.retrieve.stages import Jaccard, Mmr, ab_order, ab_words, textbook_order
from karat.retrieve.system_config import MmrOptions

ASKED = Query("q1", "tart")


def stage(items=None, **form):
    return Mmr(validate(MmrOptions, form, Place("karat.yaml")), items)


def texts(**given):
    """Hits with texts: ``texts(a=(0.9, "apple tart"))``."""
    return [Hit(item, score, text=text) for item, (score, text) in given.items()]


def jaccard(one, other):
    return 1.0 if not one and not other else len(one & other) / len(one | other)


def brute_textbook(relevance, sets, weight, top):
    low, high = min(relevance), max(relevance)
    rel = [1.0 if high == low else (one - low) / (high - low) for one in relevance]
    left, chosen = list(range(len(sets))), []
    while left and len(chosen) < top:
        worth = {
            at: weight * rel[at]
            - (1 - weight) * max((jaccard(sets[at], sets[one]) for one in chosen), default=0.0)
            for at in left
        }
        best = min(left, key=lambda at: (-worth[at], at))
        chosen.append(best)
        left.remove(best)
    return chosen + left


def brute_ab(names, relevance, sets, weight, top):
    left = sorted(range(len(sets)), key=lambda at: (-relevance[at], names[at]))
    chosen = []
    while left and len(chosen) < top:
        worth = {}
        for at in left:
            far = max((1.0 - jaccard(sets[at], sets[one]) for one in chosen), default=None)
            worth[at] = (
                relevance[at] if far is None else weight * far + (1.0 - weight) * relevance[at]
            )
        best = min(left, key=lambda at: (-worth[at], names[at]))
        chosen.append(best)
        left.remove(best)
    return chosen + left


def test_textbook_by_hand():
    # Scaled relevance 1, 0.75, 0.5, 0; b repeats a, c shares one word of three with a.
    found = texts(
        a=(10.0, "apple tart"), b=(8.0, "tart apple"), c=(6.0, "apple pie"), d=(2.0, "rye bread")
    )
    # After a: b .375 - .5 = -.125, c .25 - 1/6 = .083, d 0 - 0 = 0. After c: d 0, b -.125.
    assert ids(stage().apply(ASKED, found)) == ["a", "c", "d", "b"]


def test_lambda_one_is_relevance_alone_and_lambda_zero_difference_alone():
    found = texts(a=(3.0, "x y"), b=(2.0, "x y"), c=(1.0, "z"))
    assert ids(stage(**{"lambda": 1.0}).apply(ASKED, found)) == ["a", "b", "c"]
    assert ids(stage(**{"lambda": 0.0}).apply(ASKED, found)) == ["a", "c", "b"]


def test_textbook_ties_keep_their_order():
    found = texts(z=(1.0, "p"), m=(1.0, "q"), a=(1.0, "r"))
    assert ids(stage().apply(ASKED, found)) == ["z", "m", "a"]


def test_textbook_fills_so_many_places_and_leaves_the_rest_in_order():
    found = texts(
        a=(4.0, "x"), b=(3.0, "x"), c=(2.0, "x"), d=(1.0, "y"), e=(0.5, "x"), f=(0.0, "w")
    )
    assert ids(stage(top=2, **{"lambda": 0.2}).apply(ASKED, found)) == list("adbcef")


def test_ab_by_hand():
    # lambda weighs diversity: after a, b has .5*0 + .5*.9, c .5*(2/3) + .5*.2, d .5*1 + .5*.1.
    found = texts(
        a=(1.0, "apple tart"), b=(0.9, "Apple, tart!"), c=(0.2, "apple pie"), d=(0.1, "rye")
    )
    assert ids(stage(variant="ab").apply(ASKED, found)) == ["a", "d", "b", "c"]


def test_ab_takes_the_greatest_distance_to_any_chosen_one():
    # Once d stands in the list, b is as far from it as can be, though it repeats a.
    found = texts(a=(0.5, "p q"), b=(0.4, "p q"), c=(0.1, "q r"), d=(0.3, "z"))
    assert ids(stage(variant="ab").apply(ASKED, found)) == ["a", "d", "b", "c"]
    # The textbook takes the nearest, so that b comes last.
    assert ids(stage(**{"lambda": 0.2}).apply(ASKED, found)) == ["a", "d", "c", "b"]


def test_ab_chooses_the_first_by_score_even_when_lambda_is_one():
    found = texts(b=(0.5, "x"), a=(0.4, "x"), c=(0.9, "x"))
    assert ids(stage(variant="ab", **{"lambda": 1.0}).apply(ASKED, found)) == ["c", "a", "b"]


def test_ab_ties_go_by_id():
    found = texts(z=(1.0, "p"), m=(1.0, "q"), a=(1.0, "r"))
    assert ids(stage(variant="ab").apply(ASKED, found)) == ["a", "m", "z"]


def test_ab_appends_what_follows_the_head_by_score_then_id():
    found = texts(
        e=(0.1, "p"), a=(0.9, "p"), d=(0.4, "p"), c=(0.4, "p"), b=(0.2, "z"), f=(0.3, "p")
    )
    assert ids(stage(variant="ab", top=2).apply(ASKED, found)) == ["a", "b", "c", "d", "f", "e"]


def test_ab_words_are_ascii_without_stop_words_after_unicode_is_made_alike():
    text = "Ａpple_tart ①: The best OF an été, in-house"
    assert ab_words(text) == {"apple", "tart", "1", "best", "t", "house"}


def test_textbook_words_are_of_any_script():
    found = texts(a=(1.0, "сырный пирог"), b=(0.9, "Пирог сырный"), c=(0.1, "ржаной хлеб"))
    assert ids(stage().apply(ASKED, found)) == ["a", "c", "b"]


def test_two_texts_without_words_are_alike():
    found = texts(a=(1.0, "..."), b=(0.9, "!"), c=(0.0, "word"))
    assert ids(stage(**{"lambda": 0.4}).apply(ASKED, found)) == ["a", "c", "b"]


def test_scores_and_facts_stay_with_their_hits():
    found = texts(a=(3.0, "x"), b=(2.0, "x"), c=(1.0, "y"))
    again = stage(**{"lambda": 0.2}).apply(ASKED, found)
    assert ids(again) == ["a", "c", "b"]
    assert sorted(again) == sorted(found)


def test_lists_of_no_hit_and_of_one_stay():
    for variant in ("textbook", "ab"):
        assert stage(variant=variant).apply(ASKED, []) == []
        one = texts(a=(3.0, "x"))
        assert stage(variant=variant).apply(ASKED, one) == one


def test_texts_come_from_the_corpus_where_hits_have_none():
    corpus = Corpus.from_dict({"a": "x y", "b": "x y", "c": "z"})
    found = hits("a", 3.0, "b", 2.0, "c", 1.0)
    assert ids(stage(Items(corpus), **{"lambda": 0.3}).apply(ASKED, found)) == ["a", "c", "b"]


def test_a_hit_whose_text_is_unknown_says_what_is_needed():
    message = r"item 'a' has no text, and mmr needs one: name a corpus that holds it, or let"
    with pytest.raises(CallError, match=message):
        stage().apply(ASKED, hits("a", 1.0))
    with pytest.raises(CallError, match=message):
        stage(Items(Corpus.from_dict({"b": "x"}))).apply(ASKED, hits("a", 1.0))


@pytest.mark.parametrize("variant", ["textbook", "ab"])
def test_a_hit_without_a_score_is_refused(variant):
    with pytest.raises(CallError, match="item 'a' has no score, and mmr needs one"):
        stage(variant=variant).apply(ASKED, [Hit("a", text="x")])


worlds = st.integers(0, 12).flatmap(
    lambda n: st.tuples(
        st.permutations([f"d{at:02}" for at in range(n)]),
        st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, -2.0]), min_size=n, max_size=n),
        st.lists(st.frozensets(st.sampled_from("pqrstu"), max_size=4), min_size=n, max_size=n),
    )
)


@given(worlds, st.sampled_from([0.0, 0.1, 0.5, 0.7, 1.0]), st.integers(1, 13))
def test_both_variants_agree_with_brute_force(world, weight, top):
    names, relevance, sets = world
    if names:
        expected = brute_textbook(relevance, sets, weight, top)
        assert textbook_order(relevance, Jaccard(sets).to, weight, top) == expected
    assert ab_order(names, relevance, Jaccard(sets).to, weight, top) == brute_ab(
        names, relevance, sets, weight, top
    )


def test_a_hundred_long_texts_take_milliseconds():
    chance = random.Random(3)
    words = [f"w{number}" for number in range(5000)]
    found = [Hit(f"d{at}", 100.0 - at, text=" ".join(chance.choices(words, k=300)))
             for at in range(100)]  # fmt: skip
    for variant in ("textbook", "ab"):
        mmr = stage(variant=variant)
        mmr.apply(ASKED, found)
        start = time.perf_counter()
        assert len(mmr.apply(ASKED, found)) == 100
        # About 20 ms here; a cubic loop in Python takes seconds.
        assert time.perf_counter() - start < 0.5


def test_a_form_that_cannot_be_meant_is_refused_by_its_key():
    with pytest.raises(InputError, match=r"lambda is 1\.5; it must be a share from 0 to 1"):
        stage(**{"lambda": 1.5})
    with pytest.raises(InputError, match="unknown key 'lamda'; did you mean lambda"):
        stage(lamda=0.5)
