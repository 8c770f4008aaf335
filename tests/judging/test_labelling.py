"""Labelling by hand: what is next, who agrees, and what the exported files say."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import combinations, product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from said import ITEMS, Item, Said, all_of

from karat.data.tables import Corpus, Queries
from karat.errors import InputError, UsageError
from karat.formats.files import open_input
from karat.formats.labels import count_failed
from karat.formats.readers import read_gold
from karat.label.label_sets import pairs_to_label, read_pool, unjudged_pairs
from karat.label.labels import read_labels
from karat.label.raters import (
    SCALE,
    agreement,
    label_lines,
    next_item,
    progress,
    qrels_lines,
    rater_name,
    resolve,
)


def test_a_rater_sees_the_first_item_that_only_others_have_judged():
    said = [*all_of("ana", 2, 0), *all_of("bo", 1)]
    assert next_item(ITEMS, said, "ana").position == 2
    assert next_item(ITEMS, said, "bo").position == 1
    assert next_item(ITEMS, said, "new").position == 0


def test_what_cannot_be_told_is_judged_and_does_not_come_again():
    assert next_item(ITEMS, all_of("ana", None, None), "ana").position == 2


def test_the_item_after_the_one_on_the_screen_can_be_had_beforehand():
    said = all_of("ana", 2, 0)
    assert next_item(ITEMS, said, "ana", besides=2).position == 3
    assert next_item(ITEMS, all_of("ana", 1, 1, 1, 1, 1), "ana", besides=5) is None


def test_an_item_that_was_taken_back_comes_first_again():
    said = [one for one in all_of("ana", 2, 0, 1, 1) if one.position != 1]
    assert next_item(reversed(ITEMS), said, "ana").position == 1


def test_nothing_is_next_when_all_is_judged():
    assert next_item(ITEMS, all_of("ana", 0, 1, 2, 3, None, 0), "ana") is None


def test_progress_counts_each_rater_and_what_could_not_be_told():
    said = [*all_of("bo", 1, None), *all_of("ana", 0, 1, 2, None, None, 3)]
    assert progress(6, said) == [
        {"rater": "ana", "judged": 6, "cannot_tell": 2, "of": 6, "finished": True},
        {"rater": "bo", "judged": 2, "cannot_tell": 1, "of": 6, "finished": False},
    ]


GRADES = st.sampled_from([0, 1, 2, 3, None])


@given(st.lists(st.tuples(GRADES, GRADES), min_size=10, max_size=60))
def test_agreement_is_that_of_scikit_learn_on_what_both_graded(pairs):
    from sklearn.metrics import cohen_kappa_score

    said = [*all_of("ana", *(a for a, _ in pairs)), *all_of("bo", *(b for _, b in pairs))]
    (found,) = agreement(said)
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    assert found["raters"] == ["ana", "bo"]
    assert found["n"] == len(both)
    assert found["same"] == sum(a == b for a, b in both)
    if len(both) < 10:
        assert found["share"] is found["kappa"] is found["kappa_linear"] is None
        assert found["because"] == f"not enough: {len(both)} of at least 10 items that both graded"
        return
    assert found["share"] == pytest.approx(np.mean([a == b for a, b in both]))
    if len({grade for pair in both for grade in pair}) == 1:
        assert found["kappa"] is None
        assert found["because"] == "no kappa: both gave one and the same grade throughout"
        return
    first, second = zip(*both, strict=True)
    assert found["because"] is None
    assert found["kappa"] == pytest.approx(cohen_kappa_score(first, second))
    expected = cohen_kappa_score(first, second, weights="linear", labels=[0, 1, 2, 3])
    assert found["kappa_linear"] == pytest.approx(expected)


def test_each_two_raters_are_compared_once_and_one_alone_with_nobody():
    said = [one for name in ("cy", "ana", "bo") for one in all_of(name, 1, 2)]
    assert [one["raters"] for one in agreement(said)] == [
        ["ana", "bo"],
        ["ana", "cy"],
        ["bo", "cy"],
    ]
    assert agreement(all_of("ana", 1, 2)) == []


def test_many_raters_of_any_grades_agree_as_each_two_of_them_do():
    """Those of six raters, one of whom could tell nothing, are what scikit-learn says of two."""
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(5)
    scale = [0, 0.5, 1, 2, 3, 40, None]
    given = {f"r{at}": [scale[one] for one in rng.integers(0, 7, 60)] for at in range(5)}
    given["r5"] = [None] * 60
    found = agreement([one for name, own in given.items() for one in all_of(name, *own)])
    assert [tuple(one["raters"]) for one in found] == list(combinations(given, 2))
    for one in found:
        first, second = (given[name] for name in one["raters"])
        both = [two for two in zip(first, second, strict=True) if None not in two]
        assert (one["n"], one["same"]) == (len(both), sum(a == b for a, b in both))
        if not both:
            assert one["because"] == "not enough: 0 of at least 10 items that both graded"
            continue
        # scikit-learn takes classes; the places of grades on a scale of halves are their distances.
        halves = [[int(2 * grade) for grade in side] for side in zip(*both, strict=True)]
        assert one["kappa"] == pytest.approx(cohen_kappa_score(*halves), abs=1e-12)
        linear = cohen_kappa_score(*halves, weights="linear", labels=range(81))
        assert one["kappa_linear"] == pytest.approx(linear, abs=1e-12)


def test_nobody_who_could_tell_anything_agrees_on_nothing():
    (found,) = agreement([*all_of("ana", None, None), *all_of("bo", None)])
    assert (found["n"], found["same"], found["kappa"]) == (0, 0, None)


def test_the_majority_takes_the_grade_that_most_gave_and_lists_ties():
    said = [
        *all_of("ana", 2, 3, 1, None, None),
        *all_of("bo", 2, 0, 1, None, 2),
        *all_of("cy", 1, 3, 0, None, None),
        *all_of("di", 0, 0, 0),
    ]
    found = resolve(ITEMS, said)
    # d0: 2 2 1 0 · d1: 3 0 3 0 · d2: 1 1 0 0 · d3: nobody can tell · d4: 2 · d5: nobody
    assert [(item.item_id, grade) for item, grade in found.grades] == [("d0", 2), ("d4", 2)]
    assert found.ties == [
        {"query_id": "q0", "item_id": "d1", "grades": {"ana": 3, "bo": 0, "cy": 3, "di": 0}},
        {"query_id": "q1", "item_id": "d2", "grades": {"ana": 1, "bo": 1, "cy": 0, "di": 0}},
    ]
    assert found.counts() == {"graded": 2, "ties": 2, "cannot_tell": 1, "unjudged": 1}


@given(st.lists(st.lists(GRADES, min_size=6, max_size=6), max_size=5))
def test_every_item_is_graded_tied_not_told_or_unjudged(tables):
    said = [one for at, grades in enumerate(tables) for one in all_of(f"r{at}", *grades)]
    found = resolve(ITEMS, said)
    assert sum(found.counts().values()) == len(ITEMS)
    for item, grade in found.grades:
        votes = [one.grade for one in said if one.position == item.position]
        # brute force: no other grade has as many votes
        rivals = [votes.count(other) for other in SCALE if other != grade]
        assert votes.count(grade) > max(rivals)


def test_a_decision_outranks_every_vote_and_is_none_itself():
    said = [*all_of("ana", 2, 0, 1), *all_of("bo", 2, 3, 1)]
    told = [Said(1, "ana", 1, source="adjudication"), Said(2, "cy", None, source="adjudication")]
    found = resolve(ITEMS, [*said, *told])
    assert [(item.item_id, grade) for item, grade in found.grades] == [("d0", 2), ("d1", 1)]
    assert (found.ties, found.adjudicated) == ([], 2)
    assert found.counts() == {"graded": 2, "ties": 0, "cannot_tell": 1, "unjudged": 3}
    assert [one["rater"] for one in progress(6, [*said, *told])] == ["ana", "bo"]
    assert agreement([*said, *told]) == agreement(said)
    assert next_item(ITEMS, [*said, *told], "cy").position == 0


def test_a_label_line_says_when_and_whence_to_the_microsecond():
    paris = timezone(timedelta(hours=2))
    later = datetime(2026, 5, 4, 12, tzinfo=paris)
    said = [
        Said(0, "ana", 1, source="adjudication"),
        replace(Said(0, "ana", 2, source="judge"), given_at=later, withdrawn_at=later),
    ]
    first, second = map(json.loads, label_lines(ITEMS, said))
    assert (first["source"], first["given_at"]) == ("adjudication", "2026-05-04T09:30:00.000120Z")
    assert "withdrawn_at" not in first
    assert (second["source"], second["given_at"]) == ("judge", "2026-05-04T10:00:00Z")
    assert second["withdrawn_at"] == "2026-05-04T10:00:00Z"


def put(path: Path, lines) -> Path:
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_an_exported_label_file_is_read_back_by_rater(tmp_path):
    said = [
        Said(0, "ana", 3, "says it: “24 h” عربي"),
        Said(0, "bo", 2),
        Said(1, "ana", None, "which year?"),
        Said(3, "bo", 0),
    ]
    path = put(tmp_path / "labels.jsonl", label_lines(ITEMS, said))
    read = read_labels(path)
    assert read.frame.rows() == [
        ("q0", "d0", 3, "ana"),
        ("q0", "d0", 2, "bo"),
        ("q1", "d3", 0, "bo"),
    ]
    assert read.failed.rows() == [("q0", "d1", "can't tell")]
    assert [json.loads(line).get("rationale") for line in path.read_text().splitlines()] == [
        "says it: “24 h” عربي",
        None,
        "which year?",
        None,
    ]


def test_labels_of_one_rater_are_gold_and_what_could_not_be_told_is_no_zero(tmp_path):
    path = put(tmp_path / "ana.jsonl", label_lines(ITEMS, all_of("ana", 3, None, 0)))
    gold = read_gold(path)
    assert gold.frame.rows() == [("q0", "d0", 3.0), ("q1", "d2", 0.0)]
    assert count_failed(open_input(path)) == 1


def test_exported_qrels_are_read_back_as_the_majority(tmp_path):
    said = [*all_of("ana", 3, 1, 0), *all_of("bo", 3, 2, 0), *all_of("cy", 3)]
    path = put(tmp_path / "qrels.txt", qrels_lines(resolve(ITEMS, said)))
    assert path.read_text() == "q0 0 d0 3\nq1 0 d2 0\n"
    assert read_gold(path).frame.rows() == [("q0", "d0", 3.0), ("q1", "d2", 0.0)]


@pytest.mark.parametrize(("query", "item"), [("a b", "d"), ("q", "d\u00a0e"), ("#q", "d")])
def test_an_id_that_qrels_cannot_hold_is_refused_by_name(query, item):
    found = resolve([Item(0, query, item)], [Said(0, "ana", 1)])
    with pytest.raises(InputError, match="export the labels as JSONL"):
        list(qrels_lines(found))


def test_a_rater_has_a_name_that_can_be_written_down():
    assert rater_name("\tAna  Luz\n") == "Ana Luz"
    for name in (" \n", "a" * 101, "ana\u202ebo"):
        with pytest.raises(UsageError, match="printable characters"):
            rater_name(name)


POOL = [
    {"query_id": "q2", "item_id": "b#1", "query": "Wie lange?", "text": "Ein Jahr.", "title": " "},
    {
        "query_id": "q1",
        "item_id": "a#1",
        "query": "since when",
        "text": "since May",
        "doc_id": "a",
        "version": "2025-05-01",
        "as_of": "2025-06-15",
    },
]


@pytest.mark.parametrize("packed", [False, True])
def test_a_pool_file_keeps_its_order_and_what_helps_to_judge(tmp_path, packed):
    data = "".join(json.dumps(one) + "\n" for one in POOL).encode()
    path = tmp_path / ("pool.jsonl.gz" if packed else "pool.jsonl")
    path.write_bytes(gzip.compress(data) if packed else data)
    first, second = read_pool(path)
    assert (first.query_id, first.item_id) == ("q2", "b#1")
    assert (first.query, first.text, first.facts) == ("Wie lange?", "Ein Jahr.", {})
    assert second.facts == {"as_of": "2025-06-15", "doc_id": "a", "version": "2025-05-01"}


def test_a_pool_without_pairs_has_nothing_to_label(tmp_path):
    path = tmp_path / "pool.jsonl"
    path.write_text("")
    with pytest.raises(InputError, match=r"^pool.jsonl: holds no pair"):
        read_pool(path)


HEAD = {"systems": ["bm25", "secret-system"], "kept": 3}


def query(name: str, first: list, second: list, *, text: str | None = "a question", **more):
    hits = [[[item, 0.5, grade] for item, grade in one] for one in (first, second)]
    return {"query_id": name, "text": text, "systems": [{"hits": one} for one in hits], **more}


def text_of(*items: str, **more) -> dict:
    return {one: {"text": f"text of {one}", "cut": False, "title": None} | more for one in items}


BLOCKS = [
    {
        "queries": [
            query(
                "q1",
                [("a", 2.0), ("b", None), ("c", None)],
                [("b", None), ("d", None), ("e", 0.0)],
                attributes={"as_of": "2026-01-01", "difficulty": "hard"},
            ),
            query("q2", [], [("a", None), ("x", None)]),
        ],
        "texts": text_of("a", "b", "c", "e") | text_of("d", cut=True, title="The d"),
    },
    {
        "queries": [
            query("q3", [("f", None), ("g", None)], [("g", None), ("f", None)]),
            query("q4", [("f", None)], [("f", None)], text=None),
        ],
        "texts": text_of("f", "g"),
    },
]


def pairs(found) -> list[tuple[str, str]]:
    return [(one.query_id, one.item_id) for one in found.items]


def test_what_nobody_judged_in_any_top_is_to_be_labelled_once():
    found = unjudged_pairs(HEAD, BLOCKS, depth=2)
    # c is third, a has a grade in q1, x has no text, q4 has none
    wanted = [("q1", "b"), ("q1", "d"), ("q2", "a"), ("q3", "f"), ("q3", "g")]
    assert sorted(pairs(found)) == wanted
    assert found.without_text == 2
    by_pair = {(one.query_id, one.item_id): one for one in found.items}
    assert by_pair["q1", "d"].facts == {
        "as_of": "2026-01-01",
        "title": "The d",
        "text": "only its beginning is kept here",
    }
    assert by_pair["q2", "a"].text == "text of a"
    assert found.about == (
        "Unjudged items in the top 2 of 2 systems, 2 left out because they or their query have no"
        " text, 1 with only the beginning of their text."
    )


def test_items_of_a_query_stand_together_and_tell_no_rank():
    wide = {"systems": ["one"], "kept": 8}
    hits = [[f"d{at}", 1.0, None] for at in range(8)]
    queries = [
        {"query_id": f"q{at:02d}", "text": "t", "systems": [{"hits": hits}]} for at in range(40)
    ]
    block = {"queries": queries, "texts": text_of(*(f"d{at}" for at in range(8)))}
    found = unjudged_pairs(wide, [block], depth=8, seed=3)
    names = [one.query_id for one in found.items]
    assert [names[at] for at in range(0, 320, 8)] == list(dict.fromkeys(names))
    assert names != sorted(names)
    # Were ranks to shine through, some item would come first more often than chance lets it.
    first = Counter(found.items[at].item_id for at in range(0, 320, 8))
    assert max(first.values()) <= 14
    assert pairs(found) == pairs(unjudged_pairs(wide, [block], depth=8, seed=3))
    assert pairs(found) != pairs(unjudged_pairs(wide, [block], depth=8, seed=4))


def test_the_order_does_not_depend_on_which_system_returned_an_item():
    swapped = [
        {**block, "queries": [{**q, "systems": q["systems"][::-1]} for q in block["queries"]]}
        for block in BLOCKS
    ]
    for depth, seed in product((1, 2, 3), range(3)):
        one, other = (unjudged_pairs(HEAD, x, depth=depth, seed=seed) for x in (BLOCKS, swapped))
        assert pairs(one) == pairs(other)


@pytest.mark.parametrize("depth", [0, 4])
def test_a_depth_that_the_report_does_not_keep_is_refused(depth):
    with pytest.raises(UsageError, match=rf"depth is {depth}; .* it is from 1 to 3"):
        unjudged_pairs(HEAD, BLOCKS, depth=depth)


def test_pairs_become_a_set_with_texts_or_without_any():
    pairs = [("q1", "a"), ("q2", "b"), ("q1", "c"), ("q1", "a")]
    bare = pairs_to_label(pairs)
    assert sorted((one.query_id, one.item_id) for one in bare) == sorted(set(pairs))
    assert {(one.query, one.text) for one in bare} == {("", "")}
    assert [one.query_id for one in bare] in (["q1", "q1", "q2"], ["q2", "q1", "q1"])
    assert bare == pairs_to_label(pairs[::-1])
    queries = Queries.from_dict({"q1": {"text": "why", "as_of": "2026"}, "q2": "when"})
    items = [{"item_id": name, "text": f"text {name}", "title": name.upper()} for name in "abc"]
    told = pairs_to_label(pairs, queries=queries, corpus=Corpus.from_frame(pl.DataFrame(items)))
    assert {(one.item_id, one.query, one.text) for one in told} == {
        ("a", "why", "text a"),
        ("b", "when", "text b"),
        ("c", "why", "text c"),
    }
    facts = {one.item_id: one.facts for one in told}
    assert facts["a"] == {"as_of": "2026", "title": "A", "doc_id": "a"}
    for lacking, what in ((("q1", "x"), "the item"), (("q9", "a"), "the query")):
        with pytest.raises(InputError, match=rf"{lacking[0]}.*{lacking[1]}.*{what} has no text"):
            pairs_to_label(
                [*pairs, lacking], queries=queries, corpus=Corpus.from_frame(pl.DataFrame(items))
            )


def test_a_pool_with_nothing_to_read_is_refused(tmp_path):
    path = tmp_path / "pool.jsonl"
    pair = {"query_id": "q", "item_id": "a", "query": "why", "text": " \n"}
    path.write_text(json.dumps(pair) + "\n")
    with pytest.raises(InputError, match=r"pool\.jsonl:1: an empty text"):
        read_pool(path)
