"""Where raters differ, one grade of what they said, and judgments read back from files."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from said import ITEMS, MAY, Item, Said, all_of

from karat.errors import InputError, UsageError
from karat.label.label_sets import read_judgments, refuse_contradictions
from karat.label.raters import METHODS, alphas, conflicts, gold_of, label_lines, resolve


def test_conflicts_are_listed_with_the_widest_apart_first():
    said = [
        *all_of("ana", 2, 0, 1, 3, None, 1),
        *all_of("bo", 2, 1, None, 0, None, 2),
        *all_of("cy", 2, 0, None, 0, 1, None),
    ]
    found = conflicts(ITEMS, [*said, Said(5, "di", 1, "between", "adjudication")])
    # d3: 3 0 0 · d1: 0 1 0 by three · d5: 1 2 by two, one of whom can't tell
    assert [(one["item_id"], one["spread"]) for one in found] == [("d3", 3), ("d1", 1), ("d5", 1)]
    assert [one["grade"] for one in found[2]["judgments"]] == [1, 2, None]
    assert found[0]["decision"] is None
    assert found[2] == {
        "query_id": "q2",
        "item_id": "d5",
        "spread": 1,
        "judgments": [word("ana", 1), word("bo", 2), word("cy", None)],
        "decision": word("di", 1, "between", "adjudication"),
    }


def word(rater: str, grade: float | None, rationale: str = "", source: str = "human") -> dict:
    told = {"rater": rater, "grade": grade, "rationale": rationale, "source": source}
    return told | {"given_at": "2026-05-04T09:30:00Z"}


GRADES = st.sampled_from([0, 1, 2, None])


@given(st.lists(st.lists(GRADES, min_size=6, max_size=6), max_size=4))
def test_an_item_is_in_conflict_where_two_raters_gave_different_grades(tables):
    said = [one for at, grades in enumerate(tables) for one in all_of(f"r{at}", *grades)]
    expected = {
        a.position
        for a in said
        for b in said
        if a.position == b.position and None not in (a.grade, b.grade) and a.grade < b.grade
    }
    assert {one["item_id"] for one in conflicts(ITEMS, said)} == {f"d{at}" for at in expected}


def test_two_adjudicators_and_the_newest_decision_stands():
    said = [
        *all_of("ana", 0, 0),
        Said(0, "cy", 1, source="adjudication"),
        Said(0, "di", 2, source="adjudication", given_at=MAY + timedelta(hours=1)),
    ]
    for method in ("majority", "adjudicated"):
        assert resolve(ITEMS, said, method).grades[0] == (ITEMS[0], 2)
        assert resolve(ITEMS, said[::-1], method).grades[0] == (ITEMS[0], 2)


def test_only_what_was_decided_is_adjudicated():
    said = [*all_of("ana", 0, 2, 1), *all_of("bo", 2, 2, 0)]
    said += [Said(0, "ana", 1, source="adjudication"), Said(2, "ana", None, source="adjudication")]
    found = resolve(ITEMS, said, "adjudicated")
    assert found.grades == [(ITEMS[0], 1)]
    assert found.counts() == {"graded": 1, "ties": 0, "cannot_tell": 1, "unjudged": 4}


def test_a_careless_rater_loses_to_a_careful_one_by_dawid_and_skene():
    """Three raters; the third errs at random, so where two disagree the careful ones decide."""
    rng = np.random.default_rng(3)
    size = 300
    truth = rng.integers(0, 2, size)
    items = [Item(at, f"q{at}", "d") for at in range(size)]

    def rated(name: str, right: float):
        slips = rng.random(size) > right
        return [Said(at, name, float(truth[at] ^ slips[at])) for at in range(size)]

    said = [*rated("ana", 0.97), *rated("bo", 0.6), *rated("cy", 0.6), *rated("di", 0.6)]
    right = {
        method: sum(
            grade == truth[item.position] for item, grade in resolve(items, said, method).grades
        )
        for method in ("majority", "dawid-skene")
    }
    # By votes of four, 2:2 is a tie; the model knows whom to believe.
    assert right["dawid-skene"] > 0.93 * size > right["majority"]
    decided = Said(0, "ed", 1.0 - truth[0], source="adjudication")
    (item, grade), *_ = resolve(items, [*said, decided], "dawid-skene").grades
    assert (item, grade) == (items[0], 1 - truth[0])


def test_dawid_and_skene_takes_two_raters_who_graded():
    for said, told in (
        (all_of("ana", 1, 2), "one graded anything"),
        (all_of("ana", None), "nobody graded anything"),
    ):
        with pytest.raises(UsageError, match=told):
            resolve(ITEMS, said, "dawid-skene")


def test_where_two_grades_are_as_probable_there_is_a_tie():
    said = [*all_of("ana", 0), *all_of("bo", 1)]
    found = resolve(ITEMS, said, "dawid-skene")
    assert (found.grades, [tie["item_id"] for tie in found.ties]) == ([], ["d0"])


def test_an_unknown_way_to_resolve_is_refused():
    with pytest.raises(UsageError, match="unknown way to resolve 'majorty'; did you mean majority"):
        resolve(ITEMS, [], "majorty")


@given(st.lists(st.lists(GRADES, min_size=6, max_size=6), min_size=2, max_size=4), st.data())
def test_every_item_is_graded_tied_not_told_or_unjudged_and_decisions_stand(tables, data):
    said = [one for at, grades in enumerate(tables) for one in all_of(f"r{at}", *grades)]
    decided = data.draw(st.dictionaries(st.integers(0, 5), GRADES))
    said += [Said(at, "z", grade, source="adjudication") for at, grade in decided.items()]
    graded = Counter(one.rater for one in said if one.grade is not None and one.rater != "z")
    for method in METHODS:
        if method == "dawid-skene" and len(graded) < 2:
            continue
        found = resolve(ITEMS, said, method)
        assert sum(found.counts().values()) == len(ITEMS)
        grades = {item.position: grade for item, grade in found.grades}
        assert {at: grades.get(at) for at in decided} == decided
        assert not {tie["item_id"] for tie in found.ties} & {f"d{at}" for at in decided}
        rows = [(item.query_id, item.item_id, grade) for item, grade in found.grades]
        assert gold_of(found).frame.rows() == rows


def test_alpha_is_of_all_raters_and_what_was_told():
    first = [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None]
    second = [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3]
    found = alphas([*all_of("ana", *first), *all_of("bo", *second)])
    # By hand: 9 units in pairs, 18 values: 1×5 2×7 3×4 4×2; one unit disagrees.
    expected = 1 - 17 * 2 / (18**2 - (25 + 49 + 16 + 4))
    assert found["nominal"] == pytest.approx(expected)
    assert set(found) == {"nominal", "ordinal", "interval"}
    assert alphas(all_of("ana", 1, 2)) == dict.fromkeys(found)


def put(path, *records) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return str(path)


PAIR = {"query_id": "q1", "item_id": "d1"}


@given(
    st.lists(
        st.builds(
            Said,
            st.integers(0, 5),
            st.sampled_from(["Ana Luz", "Zoë", "overlap@12"]),
            st.sampled_from([0, 0.5, 3, 100, None]),
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
            st.sampled_from(["human", "judge", "adjudication", "qrels of May"]),
            st.datetimes(datetime(2000, 1, 1), datetime(2026, 1, 1)).map(
                lambda moment: moment.replace(tzinfo=UTC)
            ),
            st.none() | st.just(MAY),
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda one: (one.position, one.rater, one.given_at),
    )
)
def test_label_lines_are_read_back_as_they_were_said(tmp_path_factory, said):
    path = tmp_path_factory.mktemp("lines") / "labels.jsonl"
    path.write_text("".join(label_lines(ITEMS, said)), encoding="utf-8")
    found = read_judgments(path)
    at = {(item.query_id, item.item_id): item.position for item in ITEMS}
    back = {
        Said(
            at[one.query_id, one.item_id],
            one.rater,
            one.grade,
            one.rationale,
            one.source,
            one.given_at,
            one.withdrawn_at,
        )
        for one in found.judgments
    }
    assert back == set(said)
    refuse_contradictions(found.judgments)


def test_what_a_judge_failed_on_is_left_out_and_counted(tmp_path):
    path = put(
        tmp_path / "judged.jsonl",
        PAIR | {"grade": 1, "rationale": "half", "rater": "m", "source": "judge", "digest": "ab"},
        PAIR | {"item_id": "d2", "error": "HTTP 429", "rater": "m", "source": "judge"},
        PAIR | {"item_id": "d3", "error": "can't tell", "rater": "m"},
    )
    found = read_judgments(path)
    assert [(one.item_id, one.grade, one.source) for one in found.judgments] == [
        ("d1", 1, "judge"),
        ("d3", None, "import"),
    ]
    assert found.failed == 1


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"grade": 1}, "names no rater"),
        ({"grade": -1, "rater": "a"}, "grade is -1; a grade is from 0 to 100"),
        ({"grade": 100.5, "rater": "a"}, "grade is 100.5"),
        ({"grade": 1, "rater": "a\u0007"}, "printable characters"),
        ({"grade": 1, "rater": "a" * 101}, "printable characters"),
        ({"grade": 1, "rater": "a", "rationale": 7}, "rationale is 7; a text"),
        ({"grade": 1, "rater": "a", "source": ["x"]}, "source is .*; a text"),
        ({"grade": 1, "rater": "a", "given_at": "yesterday"}, 'given_at is "yesterday"; a time'),
        ({"grade": 1, "rater": "a", "given_at": "2026-01-01T00:00:00"}, "with its zone"),
        ({"grade": 1, "rater": "a", "given_at": "0001-01-01T00:00:00+05:00"}, "with its zone"),
        ({"grade": 1, "rater": "a", "given_at": "9999-12-31T23:00:00-05:00"}, "with its zone"),
        ({"grade": 1, "rater": "a", "withdrawn_at": 3}, "withdrawn_at is 3"),
        (
            {"grade": 1, "rater": "a", "withdrawn_at": "2026-01-01T00:00:00Z"},
            "has withdrawn_at and no given_at",
        ),
        ({"rater": "a"}, "no grade"),
    ],
)
def test_a_line_that_is_no_judgment_is_refused_with_its_place(tmp_path, record, told):
    path = put(tmp_path / "x.jsonl", PAIR | {"grade": 2, "rater": "b"}, PAIR | record)
    with pytest.raises(InputError, match=rf"^x.jsonl:2: .*{told}"):
        read_judgments(path)


def test_an_option_that_would_change_nothing_or_too_much_is_refused(tmp_path):
    path = put(tmp_path / "x.jsonl", PAIR | {"grade": 2, "rater": "b", "source": "adjudication"})
    with pytest.raises(UsageError, match="names the rater of every line"):
        read_judgments(path, rater="a")
    with pytest.raises(InputError, match="leave --source out"):
        read_judgments(path, source="files")
    mixed = put(tmp_path / "y.jsonl", PAIR | {"grade": 2, "rater": "b"}, PAIR | {"grade": 1})
    found = read_judgments(mixed, rater=" a  c ", source="files").judgments
    assert [(one.rater, one.source) for one in found] == [("b", "files"), ("a c", "files")]


def test_two_grades_of_one_rater_are_refused_unless_time_puts_them_in_order(tmp_path):
    one, other = PAIR | {"grade": 2, "rater": "b"}, PAIR | {"grade": 1, "rater": "b"}
    paths = [put(tmp_path / f"{n}.jsonl", r) for n, r in (("x", one), ("y", other))]
    with pytest.raises(InputError, match=r"2 by 'b' in x.jsonl:1, 1 by 'b' in y.jsonl:1"):
        refuse_contradictions(each for path in paths for each in read_judgments(path).judgments)
    timed = [
        one | {"given_at": "2026-01-01T00:00:00Z"},
        other | {"given_at": "2026-01-02T00:00:00+02:00"},
        other | {"source": "adjudication"},
    ]
    refuse_contradictions(read_judgments(put(tmp_path / "z.jsonl", *timed)).judgments)


def test_two_decisions_are_refused_unless_they_are_the_same_or_time_puts_them_in_order(tmp_path):
    """Of decisions the newest counts, whoever made it; of votes each rater's does."""

    def read(*records: dict) -> list:
        lines = (PAIR | one | {"source": "adjudication"} for one in records)
        return read_judgments(put(tmp_path / "x.jsonl", *lines)).judgments

    first, second = {"grade": 2, "rater": "b"}, {"grade": 1, "rater": "c"}
    told = r"decided twice .* 2 by 'b' in x.jsonl:1, 1 by 'c' in x.jsonl:2; keep one"
    with pytest.raises(InputError, match=told):
        refuse_contradictions(read(first, second))
    refuse_contradictions(read(first, second | {"grade": 2}))
    refuse_contradictions(read(first, second | {"given_at": "2026-01-01T00:00:00Z"}))
    votes = put(tmp_path / "y.jsonl", PAIR | first, PAIR | second)
    refuse_contradictions(read_judgments(votes).judgments)


def test_gold_is_one_rater_s(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text("q1 0 d1 2\nq1 0 d2 0\n")
    with pytest.raises(UsageError, match=r"qrels.txt is gold, .* --rater"):
        read_judgments(path)
    found = read_judgments(path, rater="Ana", source="TREC")
    assert [(one.item_id, one.rater, one.grade, one.source) for one in found.judgments] == [
        ("d1", "Ana", 2, "TREC"),
        ("d2", "Ana", 0, "TREC"),
    ]
    path.write_text("q1 0 d1 2\nq1 0 d2 -1\n")
    with pytest.raises(InputError, match="query 'q1', item 'd2': grade is -1"):
        read_judgments(path, rater="Ana")
