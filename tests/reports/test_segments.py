from __future__ import annotations

import pytest

from karat.data.tables import Queries
from karat.errors import UsageError
from karat.evaluation.api import evaluate
from karat.evaluation.segments import segment_means


@pytest.fixture
def scores(runs, gold, queries):
    return evaluate(runs[0], gold, ["RR", "R@2"], queries=queries)


def test_means_by_value_with_the_queries_without_one_last(scores, queries):
    segments = segment_means(scores, queries, "language")
    assert list(segments) == ["en", "pt-BR", "(none)"]
    assert segments["en"]["RR"].n == 1
    assert segments["pt-BR"]["RR"].mean == 1.0


def test_a_list_puts_a_query_into_several_segments(scores, queries):
    segments = segment_means(scores, queries, "tags")
    assert {name: one["RR"].n for name, one in segments.items()} == {"x": 1, "y": 2, "(none)": 1}


def test_truth_and_numbers_are_segments_too(scores, queries):
    assert list(segment_means(scores, queries, "hard")) == ["false", "true", "(none)"]
    assert list(segment_means(scores, queries, "level")) == ["2", "10", "(none)"]


def test_an_unknown_column_is_answered_with_the_nearest_and_all(scores, queries):
    with pytest.raises(UsageError, match=r"did you mean language\? \(known: language, tags, hard"):
        segment_means(scores, queries, "langage")


def test_no_queries_no_segments(scores):
    with pytest.raises(UsageError, match="give a queries file"):
        segment_means(scores, None, "language")


def test_queries_without_attributes_say_so(scores):
    bare = Queries.from_dict({"q1": "one"})
    with pytest.raises(UsageError, match="no attributes"):
        segment_means(scores, bare, "language")
