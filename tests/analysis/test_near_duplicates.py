from __future__ import annotations

import re
import time
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.analysis.diagnose import near_duplicates as module
from karat.analysis.diagnose.near_duplicates import folded, near_duplicates, words_of
from karat.errors import UsageError

# Few words, so that texts often meet, and a case and a comma that must not matter.
WORDS = ["a", "b", "B", "c", "d", "e", "f", "g", "h", "i", "j,", "k"]
TEXTS = st.lists(
    st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), min_size=0, max_size=25
)
THRESHOLDS = st.sampled_from([0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.9, 1.0])


def found(texts: list[str], threshold: float = 0.8, **more: object) -> dict[tuple[int, int], float]:
    """All pairs, those of the same words written out."""
    near = near_duplicates(pl.Series(texts, dtype=pl.String), threshold=threshold, **more)
    assert near.complete
    members: dict[int, list[int]] = {}
    for row, first in enumerate(near.same.tolist()):
        members.setdefault(first, []).append(row)
    pairs = {
        (one, other): 1.0
        for rows in members.values()
        for one in rows
        for other in rows
        if one < other
    }
    for left, right, similarity in zip(near.left, near.right, near.similarity, strict=True):
        for one in members[int(left)]:
            for other in members[int(right)]:
                pairs[min(one, other), max(one, other)] = float(similarity)
    return pairs


def by_brute_force(texts: list[str], threshold: float) -> dict[tuple[int, int], float]:
    words = [set(re.findall(r"\w+", text.casefold())) for text in texts]
    plain = [" ".join(text.casefold().split()) for text in texts]
    pairs = {}
    for other in range(len(texts)):
        for one in range(other):
            short = min(len(words[one]), len(words[other])) < 3
            if short:
                near = plain[one] == plain[other] != ""
                similarity = Fraction(1)
            else:
                both = words[one] & words[other]
                similarity = Fraction(len(both), len(words[one] | words[other]))
                near = similarity >= Fraction(threshold).limit_denominator(1000)
            if near:
                pairs[one, other] = float(similarity)
    return pairs


@settings(deadline=None)
@given(TEXTS, THRESHOLDS)
def test_the_join_finds_what_comparing_all_with_all_finds(texts, threshold):
    assert found(texts, threshold) == by_brute_force(texts, threshold)


@settings(deadline=None)
@given(TEXTS, THRESHOLDS, st.integers(1, 5), st.integers(1, 6))
def test_the_size_of_blocks_changes_nothing(texts, threshold, rows, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS_AT_ONCE", rows)
        patch.setattr(module, "_BLOCK", block)
        assert found(texts, threshold) == by_brute_force(texts, threshold)


def test_long_texts_are_compared_by_all_of_their_words():
    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 400, 150)) for _ in range(60)]
    texts += [" ".join([*text.split()[:140], "x", "y"]) for text in texts[:20]]
    assert found(texts, 0.7) == by_brute_force(texts, 0.7)
    assert len(found(texts, 0.7)) == 20


def test_four_words_of_five_are_near_and_three_of_four_are_not():
    # 4/5 = 0.8 exactly; 3/4 = 0.75
    assert found(["pay by card now", "pay by card now please"]) == {(0, 1): 0.8}
    assert found(["pay by card", "pay by card now"]) == {}


def test_word_order_and_case_and_accents_typed_apart_do_not_matter():
    assert found(["Café near the river", "the river near cafe\u0301"]) == {(0, 1): 1.0}


def test_texts_of_few_words_are_near_only_if_they_are_the_same():
    texts = ["C++", "C#", "c++", "York New", "New York", "", "  ", "new  york"]
    assert found(texts) == {(0, 2): 1.0, (4, 7): 1.0}


def test_a_character_is_a_word_where_the_script_has_no_spaces():
    assert words_of(pl.Series(["我要退款 now"])).to_list() == [["我", "要", "退", "款", "now"]]
    assert words_of(pl.Series(["हिन्दी में"])).to_list() == [["हिन्दी", "में"]]
    assert found(["我要申请退款", "我要申请退款吗"]) == {(0, 1): 6 / 7}


def test_folding_keeps_everything_but_case_width_and_space():
    assert folded(pl.Series(["  Ｐａｙ\tBY   Straße? "])).to_list() == ["pay by strasse?"]


def test_a_million_of_the_same_text_are_no_work_and_no_pairs():
    near = near_duplicates(pl.Series(["not available at all"] * 50_000))
    assert len(near.left) == 0
    assert near.taking_part().all()
    assert next(near.pairs()) == (0, 1, 1.0)


def test_too_much_to_compare_is_said_and_ends():
    texts = pl.Series([f"report of day {n} for the main hall in town" for n in range(300)])
    whole = near_duplicates(texts)
    assert whole.complete
    assert len(whole.left) == 300 * 299 // 2
    cut = near_duplicates(texts, most_pairs=100)
    assert not cut.complete
    assert len(cut.left) == 100
    assert not near_duplicates(texts, most_candidates=100).complete


def test_sets_are_read_once_for_several_comparisons():
    read = pl.Series(["a b c d", "a b c d e", "a b c x y"])
    assert near_duplicates(read, threshold=0.8).left.tolist() == [0]
    assert near_duplicates(read, threshold=0.5).near() == {0: [1, 2], 1: [0], 2: [0]}


@pytest.mark.parametrize("threshold", [0.49, 1.01, float("nan"), -1.0])
def test_a_threshold_that_makes_no_sense_is_refused(threshold):
    with pytest.raises(UsageError, match="threshold"):
        near_duplicates(pl.Series(["a b c"]), threshold=threshold)


@settings(deadline=None)
@given(TEXTS, THRESHOLDS, st.integers(2, 8))
def test_texts_that_must_share_several_rare_words_are_joined_exactly(texts, threshold, one_in):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ONE_IN", one_in)
        assert found(texts, threshold) == by_brute_force(texts, threshold)


def test_two_very_long_texts_are_compared_in_a_moment():
    n = 50_000
    texts = [" ".join(f"w{at}" for at in range(start, start + n)) for start in (0, n // 20, n // 5)]
    began = time.perf_counter()
    near = near_duplicates(pl.Series(texts))
    assert time.perf_counter() - began < 5
    assert near.complete
    # Of 50,000 words 47,500 are shared by the first two and 42,500 by the last two.
    assert list(near.pairs()) == [(0, 1, 47_500 / 52_500)]


def test_too_many_long_texts_are_said_and_end():
    texts = pl.Series(
        [" ".join(f"w{at}" for at in range(start, start + 600)) for start in range(40)]
    )
    assert near_duplicates(texts).complete
    assert len(near_duplicates(texts).left) == 40 * 39 // 2
    assert not near_duplicates(texts, most_candidates=100).complete
    cut = near_duplicates(texts, most_pairs=100)
    assert (cut.complete, len(cut.left)) == (False, 100)
