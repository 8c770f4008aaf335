"""Bags of words: hand-worked cosines, scikit-learn as a second source, and the order."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karat.data.tables import Corpus
from karat.errors import InputError
from karat.formats.settings import Place
from karat.retrieve.bow import ascii_words
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.system import SearchSystem, build_system
from karat.retrieve.system_config import parse_systems

STORY = {
    "Sc1": "Anna discovers SilverKey in Village. Anna meets Marcus.",
    "Finale": "Marcus saves Anna because storm.",
    "Empty": "",
}
TEXTS = st.text(alphabet="ab_Z9 .éİ嵐", max_size=30)


def system(texts: dict[str, str], **spec: object) -> SearchSystem:
    system_configs = parse_systems({"s": {"retriever": "bow", **spec}}, Place("karat.yaml"))
    return build_system(system_configs["s"], BuildContext(corpus=lambda: Corpus.from_dict(texts)))


def found(system: SearchSystem, text: str, k: int = 1000) -> list[tuple[str, float]]:
    (answer,) = system.find([Query("q", text)], k)
    return [(hit.item_id, hit.score) for hit in answer.hits]


def test_cosines_worked_by_hand():
    # Finale has 5 words, of which 2 are asked for; Sc1 has Anna twice, and 6 others
    assert found(system(STORY), "who saves anna") == [
        ("Finale", pytest.approx(2 / math.sqrt(3 * 5))),
        ("Sc1", pytest.approx(2 / math.sqrt(3 * 10))),
        ("Empty", 0.0),
    ]


def test_words_count_as_often_as_they_occur_on_both_sides():
    # (2·1 + 1·3) / (√5·√10)
    ranked = found(system({"a": "sea storm storm storm"}), "sea sea storm")
    assert ranked == [("a", pytest.approx(5 / math.sqrt(50)))]


def test_words_that_no_item_holds_lengthen_the_query():
    assert found(system({"a": "storm"}), "storm of words unknown here")[0][1] == pytest.approx(
        1 / math.sqrt(5)
    )


def test_all_items_are_ranked_and_ties_are_in_corpus_order():
    texts = {"z": "calm", "m": "sea", "a": "harbor", "b": "sea"}
    assert found(system(texts), "sea") == [("m", 1.0), ("b", 1.0), ("z", 0.0), ("a", 0.0)]


@pytest.mark.parametrize("text", ["", " ... ", "unknown", "嵐"])
def test_nothing_in_common_is_a_score_of_0_and_the_order_of_the_corpus(text):
    texts = {"z": "calm", "m": "", "a": "harbor"}
    assert found(system(texts), text) == [("z", 0.0), ("m", 0.0), ("a", 0.0)]


def test_a_corpus_without_any_word_can_be_searched():
    assert found(system({"b": "", "a": "…"}), "sea") == [("b", 0.0), ("a", 0.0)]


def test_a_threshold_leaves_out_what_shares_no_word():
    texts = {"z": "calm", "m": "sea", "a": "harbor"}
    assert found(system(texts, threshold=0.001), "sea") == [("m", 1.0)]


def test_no_more_than_k_items_come_back():
    texts = {f"i{number}": "sea" if number % 3 else "storm sea" for number in range(30)}
    asked = system(texts)
    assert found(asked, "storm", 7) == found(asked, "storm")[:7]


def test_words_are_runs_of_ascii_letters_digits_and_underscores():
    assert ascii_words("Scene_3: Anna's  SilverKey, été Straße 4.2") == [
        *("scene_3", "anna", "s", "silverkey", "t", "stra", "e", "4", "2")
    ]


def test_rules_apply_to_items_and_queries():
    rules = {"normalise": True, "aliases": {"tempest": "storm"}}
    assert found(system({"b": "gale", "a": "A  TEMPEST"}, **rules), "a storm")[0] == (
        "a",
        pytest.approx(1.0),
    )


def test_the_log_knows_the_size_of_the_index():
    small = system({"a": "sea", "b": ""}).meta["index_bytes"]
    assert 0 < small < system({"a": "sea storm", "b": "sea"}).meta["index_bytes"]


def test_titles_stand_before_texts_unless_left_out():
    corpus = {"a": {"title": "Storm", "text": "at sea"}, "b": {"title": None, "text": "sea"}}
    # two of two words against two of three, one of two against one
    assert found(system(corpus), "storm sea") == [
        ("a", pytest.approx(2 / math.sqrt(2 * 3))),
        ("b", pytest.approx(1 / math.sqrt(2))),
    ]
    assert found(system(corpus, title=False), "storm sea") == [
        ("b", pytest.approx(1 / math.sqrt(2))),
        ("a", pytest.approx(1 / math.sqrt(2 * 2))),
    ]


def test_rules_apply_to_titles_too():
    corpus = {"b": {"title": "calm", "text": ""}, "a": {"title": "TEMPEST", "text": ""}}
    ranked = found(system(corpus, aliases={"tempest": "storm"}), "Tempest")
    assert ranked == [("a", pytest.approx(1.0)), ("b", 0.0)]


def test_options_that_it_does_not_have_are_refused():
    with pytest.raises(InputError, match=re.escape("unknown key 'dim' in 'retriever: bow'")):
        system(STORY, dim=3)


@given(st.lists(TEXTS, min_size=1, max_size=8), TEXTS)
def test_scores_are_dots_over_norms_to_the_last_bit(texts, asked):
    bags = [Counter(re.findall(r"[a-z0-9_]+", text.lower())) for text in [asked, *texts]]
    query, *items = bags

    def cosine(item: Counter[str]) -> float:
        norms = [math.sqrt(sum(n * n for n in bag.values())) for bag in (query, item)]
        dot = sum(count * item[word] for word, count in query.items())
        return dot / (norms[0] * norms[1]) if all(norms) else 0.0

    expected = [(str(row), cosine(item)) for row, item in enumerate(items)]
    expected.sort(key=lambda one: -one[1])
    assert found(system({str(row): text for row, text in enumerate(texts)}), asked) == expected


def test_ten_thousand_items_score_as_in_scikit_learn():
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.metrics.pairwise import cosine_similarity

    vocabulary = [f"w{number}" for number in range(2000)]
    texts = {
        str(row): " ".join(vocabulary[(row * 7 + step * step) % 2000] for step in range(row % 40))
        for row in range(10_000)
    }
    asked = "w7 w14 w7 W21 unknown w1999"
    counts = CountVectorizer(token_pattern=r"(?a)\w+")
    matrix = counts.fit_transform([asked, *texts.values()])
    theirs = cosine_similarity(matrix[:1], matrix[1:])[0]
    ranked = found(system(texts), asked, 10_000)
    assert len(ranked) == 10_000
    assert dict(ranked) == pytest.approx(
        {str(row): score for row, score in enumerate(theirs)}, abs=1e-12
    )
