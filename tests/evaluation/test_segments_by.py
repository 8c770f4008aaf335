"""Segments: one column, two crossed, lists, versions of gold, and what is refused."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import karat
from karat.data.tables import Corpus, Gold, Queries, Run
from karat.errors import UsageError
from karat.evaluation.segments import By, segment_means, segments_by, with_versions

IDS = pl.Series("query_id", ["q1", "q2", "q3", "q4"])
QUERIES = Queries.from_dict(
    {
        "q1": {"text": "a", "language": "pt", "level": 2, "tags": ["x", "y"]},
        "q2": {"text": "b", "language": "en", "level": 10, "tags": ["y"]},
        "q3": {"text": "c", "language": "pt", "level": 10, "tags": []},
        "q4": {"text": "d", "language": None, "level": 2, "tags": None},
    }
)


def rows(segments):
    return {segment.name: np.flatnonzero(segment.mask).tolist() for segment in segments}


def test_values_come_in_reading_order_and_queries_without_one_last():
    assert rows(segments_by(IDS, QUERIES, By.parse("language"))) == {
        "en": [1],
        "pt": [0, 2],
        "(none)": [3],
    }
    assert list(rows(segments_by(IDS, QUERIES, By.parse("level")))) == ["2", "10"]


def test_a_list_puts_a_query_into_several_segments():
    found = rows(segments_by(IDS, QUERIES, By.parse("tags")))
    assert found == {"x": [0], "y": [0, 1], "(none)": [2, 3]}


def test_two_columns_crossed_hold_the_queries_that_share_both_values():
    segments = segments_by(IDS, QUERIES, By.parse("language*level"))
    assert rows(segments) == {
        "en × 10": [1],
        "pt × 2": [0],
        "pt × 10": [2],
        "(none) × 2": [3],
    }
    assert segments[0].where == {"language": "en", "level": "10"}


@pytest.mark.parametrize("text", ["", "a*b*c", "a*", "a*a"])
def test_what_is_no_column_or_pair_of_columns_is_refused(text):
    with pytest.raises(UsageError, match="name one column, or two to cross"):
        By.parse(text)


def test_a_column_with_a_value_for_every_query_is_no_segment_column():
    ids = pl.Series("query_id", [f"q{i}" for i in range(10_000)])
    queries = Queries.from_frame(
        pl.DataFrame({"query_id": ids, "text": "", "hash": [f"h{i}" for i in range(10_000)]})
    )
    with pytest.raises(UsageError, match="'hash': 10,000 different values"):
        segments_by(ids, queries, By.parse("hash"))


def test_each_segment_has_its_own_interval():
    gold = Gold.from_dict({f"q{i}": ["a"] for i in range(1, 5)})
    run = Run.from_dict({"q1": ["a"], "q2": ["a"], "q3": ["x", "a"], "q4": ["a"]})
    scores = karat.evaluate(run, gold, ["Hit@1"], queries=QUERIES)
    found = segment_means(scores, QUERIES, By.parse("language"))
    assert found["en"]["Hit@1"].ci is None
    low, high = found["pt"]["Hit@1"].ci
    # Clopper and Pearson for 1 of 2: 1 - (1 - low)² = 0.025.
    expected = 1 - 0.975**0.5
    assert (low, high) == pytest.approx((expected, 1 - expected), abs=0.01)


def test_the_version_of_the_gold_is_a_segment_column():
    gold = Gold.from_dict({"q1": {"a": 1, "b": 1}, "q2": {"b": 1}, "q3": {"c": 1}})
    corpus = Corpus.from_dict(
        {
            "a": {"text": "", "version": "2024-01-01"},
            "b": {"text": "", "version": "2025-06-01"},
            "c": {"text": ""},
        }
    )
    by = By.parse("version")
    queries = with_versions(None, gold, corpus, [by])
    found = rows(segments_by(pl.Series(["q1", "q2", "q3"]), queries, by))
    assert found == {"2024-01-01": [0], "2025-06-01": [0, 1], "(none)": [2]}
    assert with_versions(None, gold, corpus, [By.parse("language")]) is None
    assert with_versions(None, gold, None, [by]) is None
