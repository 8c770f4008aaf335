"""Label files: judgments by rater, pairs that failed, and both as gold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from karat.errors import InputError
from karat.formats.files import open_input
from karat.formats.labels import count_failed
from karat.formats.readers import read_gold
from karat.formats.registry import detect_format
from karat.label.labels import read_labels


def put(folder: Path, *lines: object, name: str = "labels.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


GOOD = {
    "query_id": "q1",
    "item_id": "d1",
    "grade": 2,
    "rationale": "says it",
    "rater": "ada",
    "source": "human",
}


def test_labels_are_read_by_rater_in_the_order_of_the_file(tmp_path):
    path = put(
        tmp_path,
        GOOD,
        {"query_id": "q1", "chunk_id": "d2", "relevance": 0, "rater": "ada"},
        {"query_id": "q1", "item_id": "d1", "grade": 1, "rater": "bob"},
        {"query_id": 7, "item_id": 8, "grade": 1},
    )
    labels = read_labels(path)
    assert labels.frame.columns == ["query_id", "item_id", "grade", "rater"]
    assert labels.frame.rows() == [
        ("q1", "d1", 2, "ada"),
        ("q1", "d2", 0, "ada"),
        ("q1", "d1", 1, "bob"),
        ("7", "8", 1, "labels"),
    ]
    assert labels.failed.columns == ["query_id", "item_id", "error"]
    assert labels.failed.height == 0
    assert labels.source.name == "labels.jsonl"


def test_a_decision_takes_the_place_of_what_its_maker_had_said(tmp_path):
    decided = GOOD | {"grade": 0, "source": "adjudication"}
    other = GOOD | {"grade": 1, "rater": "bob"}
    for lines in ((GOOD, other, decided), (decided, other, GOOD)):
        grades = dict(read_labels(put(tmp_path, *lines)).frame.select("rater", "grade").rows())
        assert grades == {GOOD["rater"]: 0, "bob": 1}


def test_both_names_of_an_item_may_stand_in_a_line_where_they_agree(tmp_path):
    path = put(
        tmp_path,
        GOOD | {"chunk_id": "d1"},
        GOOD | {"item_id": 7, "chunk_id": "7"},
        GOOD | {"item_id": None, "chunk_id": "d3"},
        GOOD | {"item_id": "d4", "chunk_id": None},
    )
    items = ["d1", "7", "d3", "d4"]
    assert read_gold(path).frame["item_id"].to_list() == items
    assert read_labels(path).frame["item_id"].to_list() == items


def test_what_could_not_be_judged_is_kept_apart_and_never_a_grade(tmp_path):
    failed = {"query_id": "q1", "item_id": "d2", "error": "no answer", "rater": "m@1"}
    path = put(tmp_path, GOOD, failed, failed | {"query_id": "q2"})
    labels = read_labels(path)
    assert labels.frame["item_id"].to_list() == ["d1"]
    assert labels.failed.rows() == [("q1", "d2", "no answer"), ("q2", "d2", "no answer")]
    gold = read_gold(path)
    assert gold.frame.rows() == [("q1", "d1", 2.0)]
    # A query of which nothing could be judged has no gold; it is not one with nothing relevant.
    assert gold.query_ids == ("q1",)
    assert count_failed(open_input(path)) == 2


def test_a_file_of_failures_alone_has_labels_but_is_no_gold(tmp_path):
    path = put(tmp_path, {"query_id": "q", "item_id": "d", "error": "no answer"})
    assert read_labels(path).failed.height == 1
    with pytest.raises(InputError, match="holds no grade: 1 label failed; judge its pairs again"):
        read_gold(path)


def test_label_files_are_told_from_other_gold(tmp_path):
    assert detect_format(put(tmp_path, GOOD), "gold").name == "labels"
    chunk = {"query_id": "q", "query": "text", "chunk_id": "c", "relevance": 1}
    assert detect_format(put(tmp_path, chunk), "gold").name == "labels"
    single = {"id": "q", "query": "text", "chunk_id": "c"}
    assert detect_format(put(tmp_path, single), "gold").name == "evalset"


def test_raters_who_agree_are_one_judgment_of_gold(tmp_path):
    path = put(tmp_path, GOOD, GOOD | {"rater": "bob"})
    assert read_gold(path).frame.rows() == [("q1", "d1", 2.0)]
    assert read_labels(path).frame.height == 2


def test_raters_who_disagree_are_refused_as_gold_with_both_lines(tmp_path):
    path = put(tmp_path, GOOD, GOOD | {"item_id": "x"}, GOOD | {"rater": "bob", "grade": 0})
    with pytest.raises(InputError) as caught:
        read_gold(path)
    told = "labels.jsonl:3: query 'q1', item 'd1' is judged 0 here and 2 in line 1"
    assert str(caught.value).startswith(told)
    assert read_labels(path).frame.height == 3


def test_a_rater_judges_a_pair_once(tmp_path):
    assert read_labels(put(tmp_path, GOOD, GOOD)).frame.height == 1
    with pytest.raises(InputError) as caught:
        read_labels(put(tmp_path, GOOD, GOOD | {"grade": 1}))
    assert "labels.jsonl:2: " in str(caught.value)
    assert "2 in labels.jsonl:1 by the same rater 'ada'" in str(caught.value)


@pytest.mark.parametrize("grade", [0, 0.5, 7, 100])
def test_a_label_has_a_grade_from_0_to_100(grade, tmp_path):
    path = put(tmp_path, GOOD | {"item_id": "other"}, GOOD | {"grade": grade})
    assert read_labels(path).frame["grade"].to_list() == [2.0, grade]


@pytest.mark.parametrize("grade", [100.5, 1e99])
def test_a_scale_beyond_100_is_gold_but_no_label(grade, tmp_path):
    path = put(tmp_path, GOOD | {"item_id": "other"}, GOOD | {"grade": grade})
    with pytest.raises(InputError) as caught:
        read_labels(path)
    told = f"labels.jsonl:2: grade is {grade:g}; a grade is from 0 to 100"
    assert str(caught.value) == told
    assert read_gold(path).frame["grade"].to_list() == [2.0, grade]


def test_a_grade_below_0_is_no_judgment_and_no_failure(tmp_path):
    """Not even of what a rater decided: there is nothing to take the place of."""
    below = GOOD | {"grade": -1}
    path = put(tmp_path, below, below | {"item_id": "d2"}, below | {"source": "adjudication"}, GOOD)
    labels = read_labels(path)
    assert labels.frame.rows() == [("q1", "d1", 2.0, "ada")]
    assert (labels.not_judged, labels.failed.height) == (3, 0)


def test_one_of_several_raters_is_taken_by_name(tmp_path):
    bob = GOOD | {"rater": "bob"}
    failed = {"query_id": "q1", "item_id": "d3", "error": "no answer", "rater": "bob"}
    nameless = {"query_id": "q9", "item_id": "d9", "grade": 1}
    path = put(tmp_path, GOOD, bob | {"grade": 0}, bob | {"item_id": "d2"}, failed, nameless)
    assert read_labels(path).raters == ["ada", "bob", "labels"]
    own = read_labels(path, rater="bob")
    assert own.frame.rows() == [("q1", "d1", 0.0, "bob"), ("q1", "d2", 2.0, "bob")]
    assert own.failed.height == 1
    assert read_labels(path, rater="ada").failed.height == 0
    with pytest.raises(InputError, match="no label of 'eve'; its raters are 'ada', 'bob', 'labels"):
        read_labels(path, rater="eve")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (GOOD | {"grade": "2"}, 'grade is "2"; a finite number is expected'),
        (GOOD | {"grade": True}, "grade is true; a finite number is expected"),
        (GOOD | {"grade": None}, 'no grade; a label has "grade", or "error" where'),
        (GOOD | {"error": "why"}, "has grade and error; keep one"),
        (GOOD | {"relevance": 2}, "has grade and relevance; keep one"),
        (GOOD | {"grade": None, "error": 5}, "error is not text; the reason is expected"),
        (GOOD | {"grade": None, "error": " "}, "error is not text"),
        (GOOD | {"item_id": None}, "item_id is null; ids are text or whole numbers"),
        (GOOD | {"chunk_id": "d2"}, "item_id is 'd1' and chunk_id is 'd2'; a pair is of one item"),
        (GOOD | {"item_id": 7, "chunk_id": "8"}, "item_id is '7' and chunk_id is '8'; a pair is"),
        (GOOD | {"chunk_id": ["d1"]}, 'chunk_id is ["d1"]; ids are text or whole numbers'),
        (GOOD | {"query_id": ""}, 'query_id is ""; ids are text'),
        (GOOD | {"rater": ["a"]}, 'rater is ["a"]; ids are text'),
        ([1], "the line holds a JSON array; an object is expected"),
    ],
)
def test_bad_lines_are_refused_with_their_number(line, told, tmp_path):
    path = put(tmp_path, GOOD | {"item_id": "other"}, line)
    for read in (read_gold, read_labels):
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value).startswith(f"labels.jsonl:2: {told}")


def test_a_pool_is_no_gold_and_says_so(tmp_path):
    pair = {"query_id": "q", "item_id": "d", "query": "what", "text": "that"}
    with pytest.raises(InputError, match=r"labels\.jsonl:1: no grade"):
        read_gold(put(tmp_path, pair))


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "labels.jsonl").write_text("\n")
    with pytest.raises(InputError, match="holds no label"):
        read_labels(tmp_path / "labels.jsonl")
    for text in ("", "\n"):
        (tmp_path / "labels.jsonl").write_text(text)
        with pytest.raises(InputError, match=r"labels\.jsonl: "):
            read_gold(tmp_path / "labels.jsonl")
