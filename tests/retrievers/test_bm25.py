"""BM25: the library's scores, ties in corpus order, and texts without words."""

from __future__ import annotations

import bm25s
import numpy as np
import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from karat.data.tables import Corpus
from karat.errors import UsageError
from karat.retrieve.bm25 import Options, make, query_words, stemmer_of, stop_words
from karat.retrieve.build_context import BuildContext
from karat.retrieve.protocol import Query
from karat.retrieve.text_rules import TextRules, text_rules
from karat.retrieve.vectors import top_rows

TEXTS = [
    "the cat sat on the mat",
    "the dog sat",
    "cats and dogs",
    "",
    "a b c",
    "o gato sentou no tapete azul",
    "cat cat cat",
]
WORDS = st.sampled_from(["cat", "cats", "dog", "sat", "the", "on", "a", "été", "42", "x-y", "MAT"])
SENTENCE = st.lists(WORDS, max_size=6).map(" ".join)


def retriever(texts, rules=None, **options):
    corpus = Corpus.from_dict({f"d{at}": text for at, text in enumerate(texts)})
    context = BuildContext(corpus=lambda: corpus, rules=rules or TextRules())
    return make(Options(**options), context, {})


def found(texts, text, k=10, **options):
    [answer] = retriever(texts, **options).find([Query("q", text)], k)
    return [(hit.item_id, hit.score) for hit in answer.hits]


@pytest.mark.parametrize("method", ["lucene", "robertson", "atire", "bm25l", "bm25+"])
@given(texts=st.lists(SENTENCE, min_size=1, max_size=8), query=SENTENCE)
def test_scores_are_those_of_the_library_and_only_items_with_a_common_word(method, texts, query):
    ours = dict(found(texts, query, method=method))
    words = bm25s.tokenize(texts, stopwords=None, show_progress=False)
    if not any(word for word in words.vocab):
        assert ours == {}
        return
    index = bm25s.BM25(method=method)
    index.index(words, show_progress=False)
    [asked] = bm25s.tokenize([query], stopwords=None, return_ids=False, show_progress=False)
    known = [word for word in asked if word in index.vocab_dict and word]
    scores = index.get_scores(known) if known else np.zeros(len(texts))
    for at, text in enumerate(texts):
        shares = set(known) & set(
            bm25s.tokenize([text], stopwords=None, return_ids=False, show_progress=False)[0]
        )
        if f"d{at}" in ours:
            assert ours[f"d{at}"] == pytest.approx(float(scores[at]))
            assert shares
        elif method == "lucene":
            assert not shares


@given(query=SENTENCE)
def test_queries_are_cut_into_the_words_that_the_library_cuts(query):
    for stopwords, stemmer in (("none", "none"), ("english", "english")):
        ours = query_words(query, stop_words(stopwords), stemmer_of(stemmer))
        [theirs] = bm25s.tokenize(
            [query],
            stopwords=None if stopwords == "none" else "english",
            stemmer=None if stemmer == "none" else Stemmer.Stemmer("english"),
            return_ids=False,
            show_progress=False,
        )
        assert ours == [word for word in theirs if word]


def test_equal_scores_stay_in_corpus_order():
    texts = ["same words", "other", "same words", "same words"]
    assert [item for item, _ in found(texts, "same")] == ["d0", "d2", "d3"]
    assert [item for item, _ in found(texts, "same", k=2)] == ["d0", "d2"]


def test_stemming_and_stopwords_do_what_they_say():
    assert [item for item, _ in found(TEXTS, "dogs")] == ["d2"]
    assert {item for item, _ in found(TEXTS, "dogs", stemmer="english")} == {"d1", "d2"}
    assert found(TEXTS, "the", stopwords="english") == []
    assert found(TEXTS, "cat", stopwords=["cat"]) == []


def test_rules_apply_to_items_and_to_queries_alike():
    rules = TextRules(None, {"mat": "rug"})
    [answer] = retriever(TEXTS, rules).find([Query("q", rules.apply("mat"))], 3)
    assert [hit.item_id for hit in answer.hits] == ["d0"]


def test_texts_without_a_word_and_queries_without_one_give_nothing():
    assert found(["", "a", "!"], "cat") == []
    assert found(TEXTS, "") == []
    assert found(TEXTS, "!? ñ") == []


def test_a_million_characters_are_no_trouble():
    assert [item for item, _ in found(["word " * 200_000, "other"], "word")] == ["d0"]


def test_what_it_does_not_know_is_refused():
    with pytest.raises(UsageError, match="stopwords"):
        retriever(TEXTS, stopwords="klingon")
    with pytest.raises(UsageError, match="unknown stemmer"):
        retriever(TEXTS, stemmer="klingon")


@pytest.mark.parametrize("method", ["bm25l", "bm25+"])
def test_k1_of_0_is_refused_where_scores_would_be_nan_or_all_alike(method):
    with pytest.raises(UsageError) as caught:
        retriever(TEXTS, method=method, k1=0)
    assert str(caught.value) == (
        f"k1 is 0, and method {method} needs more; give k1 above 0, or method lucene"
    )
    assert [item for item, _ in found(TEXTS, "cat", method=method, k1=0.01)] == ["d6", "d0"]


@pytest.mark.parametrize("method", ["lucene", "robertson", "atire"])
def test_k1_of_0_counts_each_word_once_where_that_is_defined(method):
    (_, first), (_, second) = found(TEXTS, "cat", method=method, k1=0)
    assert first == second > 0


def test_aliases_reach_items_whatever_their_case():
    rules = text_rules(None, {"llm": "language model"})
    texts = ["An LLM at work", "Another model", "something else"]
    [answer] = retriever(texts, rules).find([Query("q", rules.apply("llm"))], 3)
    assert [hit.item_id for hit in answer.hits] == ["d0", "d1"]


def test_the_log_names_the_library():
    assert retriever(TEXTS).meta["libraries"] == {"bm25s": bm25s.__version__}


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=30),
    st.integers(1, 40),
)
def test_top_rows_are_the_first_of_a_stable_sort(scores, k):
    array = np.array(scores, dtype=float)
    expected = sorted(range(len(scores)), key=lambda at: (-scores[at], at))[:k]
    assert top_rows(array, k).tolist() == expected
