"""Several people: who said what, one grade a pair, how far they agree, and what is refused."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import combinations
from pathlib import Path

import krippendorff
import numpy as np
import polars as pl
import pytest

from karat.data.columns import Source
from karat.data.tables import Gold
from karat.errors import InputError, UsageError
from karat.label.calibrate import calibrate
from karat.label.labels import MOST_RATERS, Labels, People, one_grade, raters_agreement, read_people


def written(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def label(query: str, item: str, grade, rater: str | None = None, **more) -> dict:
    told = {"query_id": query, "item_id": item, **more}
    told |= {"error": "can't tell"} if grade is None else {"grade": grade}
    return told if rater is None else told | {"rater": rater}


def people_of(said) -> People:
    """From ``{(rater, item): grade}``; all of one query."""
    rows = [("q", item, rater, grade, False) for (rater, item), grade in said.items()]
    names = ["query_id", "item_id", "rater", "grade", "decided"]
    types = [pl.String, pl.String, pl.String, pl.Float64, pl.Boolean]
    schema = dict(zip(names, types, strict=True))
    return People(pl.DataFrame(rows, schema=schema, orient="row"), (Source("people.jsonl"),))


def grades_of(found) -> dict[str, float]:
    gold, _ = found
    return {item: grade for _, item, grade in gold.frame.select(*PAIR, "grade").rows()}


PAIR = ("query_id", "item_id")


def many(seed: int, raters: str = "abc", items: int = 40):
    chance = random.Random(seed)
    truth = {f"d{at}": chance.randrange(3) for at in range(items)}
    return {
        (rater, item): float(grade if chance.random() < 0.7 else chance.randrange(3))
        for item, grade in truth.items()
        for rater in raters
        if chance.random() < 0.8
    }


@pytest.mark.parametrize("seed", range(4))
def test_the_majority_wins_and_ties_are_left_out_and_counted(seed: int) -> None:
    said = many(seed)
    found = one_grade(people_of(said))
    expected, ties = {}, 0
    for item in {item for _, item in said}:
        votes = Counter(grade for (_, one), grade in said.items() if one == item)
        best = max(votes.values())
        winners = [grade for grade, count in votes.items() if count == best]
        if len(winners) == 1:
            expected[item] = winners[0]
        else:
            ties += 1
    assert grades_of(found) == expected
    assert (found[1]["ties"], found[1]["cannot_tell"]) == (ties, 0)
    assert ties


def test_who_cannot_tell_has_no_vote() -> None:
    said = {("a", "1"): None, ("b", "1"): 2.0, ("a", "2"): None, ("b", "2"): None, ("a", "3"): 0.0}
    found = one_grade(people_of(said))
    assert grades_of(found) == {"1": 2, "3": 0}
    assert (found[1]["ties"], found[1]["cannot_tell"]) == (0, 1)


def test_dawid_and_skene_weigh_the_raters() -> None:
    """Two careful people and three who say the same whatever they see."""
    chance = random.Random(1)
    truth = {f"d{at}": float(chance.random() < 0.5) for at in range(200)}
    said = {}
    for item, grade in truth.items():
        for rater in ("ana", "ben", "cat"):
            said[rater, item] = grade if chance.random() < 0.92 else 1 - grade
        for rater in ("x", "y", "z", "w"):
            said[rater, item] = float(chance.random() < 0.8)
    people = people_of(said)
    model, votes = (grades_of(one_grade(people, how)) for how in ("dawid-skene", "majority"))
    right, by_votes = (
        np.mean([found.get(item) == grade for item, grade in truth.items()])
        for found in (model, votes)
    )
    assert right > 0.95 > 0.9 > by_votes
    _, document = one_grade(people, "dawid-skene")
    assert document["converged"] is True
    assert document["iterations"] > 1
    assert one_grade(people)[1]["iterations"] is None


@pytest.mark.parametrize("method", ["majority", "dawid-skene"])
def test_one_rater_is_believed(method) -> None:
    said = {("a", "1"): 2.0, ("a", "2"): 0.0, ("a", "3"): None}
    found = one_grade(people_of(said), method)
    assert grades_of(found) == {"1": 2, "2": 0}
    assert found[1]["iterations"] is None


@pytest.mark.parametrize("seed", range(3))
def test_alpha_and_kappas_are_those_of_other_packages(seed: int) -> None:
    from sklearn.metrics import cohen_kappa_score

    said = many(seed)
    items = sorted({item for _, item in said})
    judge = {item: float(random.Random(item).randrange(3)) for item in items[::2]}
    word = pl.DataFrame({"query_id": "q", "item_id": list(judge), "judge": list(judge.values())})
    found = raters_agreement(people_of(said), word)
    table = [[said.get((rater, item), np.nan) for item in items] for rater in "abc"]
    both = [*table, [judge.get(item, np.nan) for item in items]]
    for level in ("nominal", "ordinal", "interval"):
        for part, rows in ((found, table), (found["with_judge"], both)):
            theirs = krippendorff.alpha(reliability_data=np.array(rows), level_of_measurement=level)
            assert part["alpha"][level] == pytest.approx(theirs, abs=1e-12)
    several = sum(sum((rater, item) in said for rater in "abc") > 1 for item in items)
    assert found["pairs"] == several
    for told, (one, other) in zip(found["kappas"], combinations("abc", 2), strict=True):
        shared = [item for item in items if (one, item) in said and (other, item) in said]
        mine, theirs = ([said[name, item] for item in shared] for name in (one, other))
        assert (told["raters"], told["pairs"]) == ([one, other], len(shared))
        for name, weights in (("none", None), ("linear", "linear"), ("quadratic", "quadratic")):
            expected = cohen_kappa_score(mine, theirs, weights=weights, labels=[0.0, 1.0, 2.0])
            assert told[name] == pytest.approx(expected, abs=1e-12)
    for told, rater in zip(found["with_judge"]["kappas"], "abc", strict=True):
        shared = [item for item in judge if (rater, item) in said]
        mine = [said[rater, item] for item in shared]
        expected = cohen_kappa_score(mine, [judge[item] for item in shared])
        assert (told["rater"], told["pairs"]) == (rater, len(shared))
        assert told["none"] == pytest.approx(expected, abs=1e-12)


def test_raters_who_never_met_have_no_agreement() -> None:
    word = pl.DataFrame({"query_id": ["q"], "item_id": ["1"], "judge": [1.0]})
    found = raters_agreement(people_of({("a", "1"): 1.0, ("b", "2"): 0.0}), word)
    assert found["alpha"] == {"nominal": None, "ordinal": None, "interval": None}
    assert found["kappas"] == [
        {"raters": ["a", "b"], "pairs": 0, "none": None, "linear": None, "quadratic": None}
    ]


def test_a_crowd_is_not_told_two_by_two() -> None:
    said = {(f"r{at:02}", "1"): float(at % 2) for at in range(MOST_RATERS + 1)}
    word = pl.DataFrame({"query_id": ["q"], "item_id": ["1"], "judge": [1.0]})
    found = raters_agreement(people_of(said), word)
    assert found["kappas"] == found["with_judge"]["kappas"] == []
    assert found["alpha"]["nominal"] is not None


def test_files_name_raters_or_are_raters(tmp_path) -> None:
    named = written(
        tmp_path / "team.jsonl",
        [label("q", "1", 2, "Ana"), label("q", "1", 1, "Ben"), label("q", "2", None, "Ana")],
    )
    plain = written(tmp_path / "eva.jsonl", [label("q", "1", 2)])
    (tmp_path / "old.txt").write_text("q 0 1 0\nq 0 3 -1\n")
    people = read_people([named, plain, tmp_path / "old.txt"])
    assert people.raters == ["Ana", "Ben", "eva", "old"]
    assert [source.name for source in people.sources] == ["team.jsonl", "eva.jsonl", "old.txt"]
    found = one_grade(people)
    assert grades_of(found) == {"1": 2}
    # What Ana could not tell; what was pooled and never judged is counted apart.
    assert (found[1]["cannot_tell"], people.not_judged) == (1, 1)


def test_files_of_one_name_are_two_raters(tmp_path) -> None:
    for folder, grade in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder / "people.jsonl", [label("q", "1", grade)])
    people = read_people([tmp_path / name / "people.jsonl" for name in ("one", "two")])
    assert people.raters == ["one/people", "two/people"]


def test_a_decision_counts_above_votes(tmp_path) -> None:
    rows = [
        label("q", "1", 2, "Ana", source="human"),
        label("q", "1", 0, "Ben", source="human"),
        label("q", "1", 1, "Ana", source="adjudication"),
        label("q", "2", 2, "Ana", source="human"),
        label("q", "2", None, "Ben", source="adjudication"),
    ]
    people = read_people([written(tmp_path / "team.jsonl", rows)])
    found = one_grade(people)
    assert grades_of(found) == {"1": 1}
    assert [found[1][name] for name in ("ties", "cannot_tell", "decided")] == [0, 1, 2]
    word = pl.DataFrame({"query_id": ["q"], "item_id": ["1"], "judge": [1.0]})
    told = raters_agreement(people, word)
    assert [one["judgments"] for one in told["raters"]] == [2, 1]


def test_who_could_not_tell_and_then_could_could(tmp_path) -> None:
    one = written(tmp_path / "a.jsonl", [label("q", "1", None, "Ana"), label("q", "2", 1, "Ana")])
    two = written(tmp_path / "b.jsonl", [label("q", "1", 2, "Ana"), label("q", "2", None, "Ana")])
    for files in ([one, two], [two, one]):
        assert grades_of(one_grade(read_people(files))) == {"1": 2, "2": 1}


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (
            [label("q", "1", 1, "Ana"), label("q", "1", 2, "Ana")],
            [label("q", "9", 1)],
            "a.jsonl:2: query 'q', item '1' is judged 2 here and 1 in a.jsonl:1 by the same rater",
        ),
        (
            [label("q", "1", 1), label("q", "1", 2)],
            [label("q", "9", 1)],
            "a.jsonl:2: query 'q', item '1' is judged 2 here and 1 in a.jsonl:1 by",
        ),
        (
            [label("q", "1", 1, "Ana")],
            [label("q", "1", 2, "Ana")],
            "b.jsonl:1: query 'q', item '1' is judged 2 here and 1 in a.jsonl:1 by the same",
        ),
        ([label("q", "1", None)], [label("q", "1", 2)], "a.jsonl: holds no grade: 1 label failed"),
        ([label("q", "1", -1)], [label("q", "1", 2)], "no grade: 1 label below 0 (pooled, not"),
        ([label("q", "1", 101)], [label("q", "1", 2)], "a.jsonl:1: grade is 101; a grade is from"),
    ],
)
def test_a_rater_says_one_thing(tmp_path, first, second, told) -> None:
    files = [written(tmp_path / "a.jsonl", first), written(tmp_path / "b.jsonl", second)]
    with pytest.raises(InputError) as error:
        read_people(files)
    assert told in str(error.value)


def test_nothing_but_ties_is_refused() -> None:
    with pytest.raises(InputError, match=r"people.jsonl: leaves no pair with one grade: 1 tied"):
        one_grade(people_of({("a", "1"): 1.0, ("b", "1"): 2.0}))
    with pytest.raises(UsageError, match="unknown truth 'most'; did you mean"):
        one_grade(people_of({("a", "1"): 1.0}), "most")
    with pytest.raises(UsageError, match="at least one file"):
        read_people([])


def test_a_judge_is_held_against_the_one_grade_of_several() -> None:
    said = {("a", "1"): 2.0, ("b", "1"): 2.0, ("c", "1"): 0.0, ("a", "2"): 1.0, ("b", "2"): 0.0}
    said |= {("a", "3"): 0.0, ("a", "4"): 0.0}
    rows = [("q", "1", 2, "m"), ("q", "2", 1, "m"), ("q", "3", 1, "m"), ("q", "4", 0, "m")]
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Int64, "rater": pl.String}
    failed = pl.DataFrame(schema=dict.fromkeys(("query_id", "item_id", "error"), pl.String))
    judged = Labels(pl.DataFrame(rows, schema=schema, orient="row"), failed, Source("j.jsonl"))
    found = calibrate(judged, people_of(said)).to_dict()
    assert found["relevant"] == {"tp": 1, "fn": 0, "tn": 1, "fp": 1}
    assert found["raters_agreement"]["truth"]["ties"] == 1
    assert [one["name"] for one in found["raters_agreement"]["raters"]] == ["a", "b", "c"]
    alone = calibrate(judged, Gold.from_dict({"q": {"1": 2, "3": 0}})).to_dict()
    told = alone["raters_agreement"]
    assert (len(told["raters"]), told["kappas"], told["pairs"]) == (1, [], 0)
    # With the judge as the other rater: 2 2, 0 1; chance of 4 grades in pairs 1 - 2/12.
    assert told["with_judge"]["alpha"]["nominal"] == pytest.approx(1 - (2 / 4) / (10 / 12))
