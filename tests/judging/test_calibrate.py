"""A judge held against people: counts by hand and by a plain loop, and what is refused."""

from __future__ import annotations

import random
from dataclasses import replace

import polars as pl
import pytest

from karat.data.columns import Source
from karat.data.tables import Gold, Queries, Run
from karat.errors import InputError, UsageError
from karat.label.calibrate import calibrate
from karat.label.corrected import side_by_side
from karat.label.labels import Labels
from karat.measure.conventions import conventions_of


def labels_of(grades, *, failed=(), rater="judge") -> Labels:
    """From ``{(query, item): grade}``."""
    rows = [(query, item, grade, rater) for (query, item), grade in grades.items()]
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Int64, "rater": pl.String}
    lost = dict.fromkeys(("query_id", "item_id", "error"), pl.String)
    return Labels(
        pl.DataFrame(rows, schema=schema, orient="row"),
        pl.DataFrame([(*pair, "no answer") for pair in failed], schema=lost, orient="row"),
        Source("judged.jsonl"),
    )


def gold_of(grades) -> Gold:
    rows = [(query, item, float(grade)) for (query, item), grade in grades.items()]
    frame = pl.DataFrame(rows, schema=["query_id", "item_id", "grade"], orient="row")
    return Gold.from_frame(frame, source=Source("people.jsonl"))


def cells(tp: int, fn: int, tn: int, fp: int, per_query: int = 10):
    """A judge and people who meet so often in each way, ten pairs a query."""
    kinds = [(1, 1)] * tp + [(0, 1)] * fn + [(0, 0)] * tn + [(1, 0)] * fp
    random.Random(4).shuffle(kinds)
    pairs = [(f"q{at // per_query:03}", f"d{at}") for at in range(len(kinds))]
    judge = {pair: says for pair, (says, _) in zip(pairs, kinds, strict=True)}
    people = {pair: truth for pair, (_, truth) in zip(pairs, kinds, strict=True)}
    return judge, people


def test_the_worked_example():
    """740 of 1,000 judged relevant; of 1,000 others people know 360, 40, 460 and 140."""
    judge, people = cells(360, 40, 460, 140)
    more = {(f"r{at // 10:03}", f"e{at}"): int(at < 740) for at in range(1000)}
    run = Run.from_dict(
        {f"r{at:03}": [f"e{at * 10 + place}" for place in range(10)] for at in range(100)}
    )
    for method in ("cluster", "beta"):
        found = calibrate(labels_of(judge | more), gold_of(people), run=run, k=10, interval=method)
        document = found.to_dict()
        assert document["share"]["value"] == 0.74
        assert document["sensitivity"]["value"] == 0.9
        assert document["specificity"]["value"] == pytest.approx(0.7667, abs=5e-5)
        assert document["corrected"]["value"] == pytest.approx(0.76, abs=1e-12)
        low, high = document["corrected"]["ci"]
        assert low < 0.76 < high


def graded(seed: int, pairs: int = 80):
    chance = random.Random(seed)
    every = [(f"q{chance.randrange(9)}", f"d{at}") for at in range(pairs)]
    judge = {pair: chance.choice([0, 0, 1, 2]) for pair in every if chance.random() < 0.8}
    people = {
        pair: judge[pair] if pair in judge and chance.random() < 0.6 else chance.randrange(3)
        for pair in every
        if chance.random() < 0.7
    }
    return judge, people


@pytest.mark.parametrize("rel", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_counts_are_those_of_a_plain_loop(seed, rel):
    from sklearn.metrics import cohen_kappa_score

    judge, people = graded(seed)
    conventions = conventions_of("karat", {"rel": rel})
    found = calibrate(labels_of(judge), gold_of(people), profile=conventions).to_dict()
    both = sorted(judge.keys() & people.keys())
    table = [[0] * 3 for _ in range(3)]
    for pair in both:
        table[people[pair]][judge[pair]] += 1
    assert (found["grades"], found["table"]) == ([0, 1, 2], table)
    says, truth = ([one[pair] >= rel for pair in both] for one in (judge, people))
    hits = [f"{a}{b}" for a, b in zip(says, truth, strict=True)]
    assert found["relevant"] == {
        "tp": hits.count("TrueTrue"),
        "fn": hits.count("FalseTrue"),
        "tn": hits.count("FalseFalse"),
        "fp": hits.count("TrueFalse"),
    }
    assert found["pairs"] == {
        "both": len(both),
        "human_only": len(people.keys() - judge.keys()),
        "judge_only": len(judge.keys() - people.keys()),
        "judge_failed": 0,
        "human_but_failed": 0,
        "left_out": 0,
    }
    ours, theirs = ([one[pair] for pair in both] for one in (judge, people))
    for name, weights in (("none", None), ("linear", "linear"), ("quadratic", "quadratic")):
        expected = cohen_kappa_score(ours, theirs, weights=weights)
        assert found["kappa"][name] == pytest.approx(expected, abs=1e-12)
    assert found["kappa"]["relevant"] == pytest.approx(cohen_kappa_score(says, truth), abs=1e-12)
    relevant = sum(grade >= rel for grade in judge.values())
    assert found["share"]["value"] == relevant / len(judge)


def test_the_top_of_a_run_is_known_judged_or_left_out():
    judge, people = cells(9, 1, 9, 1, per_query=5)
    run = Run.from_dict({"a": ["1", "2", "3", "4"], "b": ["1", "2"], "c": ["9"]})
    judge |= {("a", "1"): 2, ("a", "2"): 0, ("b", "1"): 1, ("b", "7"): 1}
    known = gold_of({("a", "2"): 2, ("a", "3"): 0, ("c", "8"): 1})
    known = replace(known, query_ids=("a", "b", "c", "d"))
    labels = labels_of(judge, failed=[("b", "2")])
    found = calibrate(labels, gold_of(people), run=run, k=3, gold=known).to_dict()
    # a: 1 is judged, 2 and 3 are known, 4 is below the cut; b: 1 is judged, 2 failed; c: neither.
    assert found["share"] == {
        "value": 3 / 4,
        "judged": 2,
        "judged_relevant": 2,
        "known": 2,
        "known_relevant": 1,
        "unjudged": 2,
        "queries": 2,
    }
    # Both rates are 0.9: 1.0 judged is (1 - 0.1)/0.8, clamped to 1; with the gold (2 + 1)/4.
    assert found["corrected"]["value"] == 0.75
    assert (found["system"], found["k"]) == ("run", 3)
    assert found["run"]["missing"] == 1
    # a has three places filled, b two, c one.
    assert found["run"]["empty"] == 3
    assert found["pairs"]["judge_failed"] == 1


def test_a_failed_pair_is_no_grade():
    judge, people = cells(8, 2, 8, 2)
    failed = list(judge)[:4]
    graded = {pair: grade for pair, grade in judge.items() if pair not in failed}
    found = calibrate(labels_of(graded, failed=failed), gold_of(people)).to_dict()
    assert found["pairs"]["both"] == 16
    assert found["pairs"]["judge_failed"] == found["pairs"]["human_but_failed"] == 4
    assert found["share"]["judged"] == 16
    # A pair that failed once and was graded later is graded.
    found = calibrate(labels_of(judge, failed=failed), gold_of(people)).to_dict()
    assert (found["pairs"]["both"], found["pairs"]["judge_failed"]) == (20, 0)


def test_a_judge_no_better_than_chance_has_no_corrected_number():
    judge, people = cells(10, 10, 10, 10)
    found = calibrate(labels_of(judge), gold_of(people)).to_dict()
    assert found["corrected"]["value"] is found["corrected"]["ci"] is None
    assert "no better than chance" in found["corrected"]["because"]
    assert found["share"]["value"] == 0.5


@pytest.mark.parametrize(("grade", "rate"), [(1, "specificity"), (0, "sensitivity")])
def test_people_who_say_one_thing_only_leave_a_rate_unknown(grade, rate):
    judge, _ = cells(10, 10, 10, 10)
    found = calibrate(labels_of(judge), gold_of(dict.fromkeys(judge, grade))).to_dict()
    assert found[rate] == {"value": None, "ci": None, "n": 0, "few": True}
    assert f"its {rate} is unknown" in found["corrected"]["because"]


def test_few_labels_of_a_class_are_marked():
    judge, people = cells(29, 0, 20, 10)
    found = calibrate(labels_of(judge), gold_of(people)).to_dict()
    assert (found["sensitivity"]["few"], found["specificity"]["few"]) == (True, False)


def test_segments_have_their_own_rates():
    good, people = cells(18, 2, 18, 2)
    bad = {(f"x{query}", item): grade for (query, item), grade in good.items()}
    judge = good | {pair: 1 - grade for pair, grade in bad.items()}
    people |= {(f"x{query}", item): grade for (query, item), grade in people.items()}
    kinds = {query: "plain" for query, _ in good} | {query: "odd" for query, _ in bad}
    kinds["unheard of"] = "nobody"
    queries = Queries.from_dict({name: {"text": "?", "kind": kind} for name, kind in kinds.items()})
    found = calibrate(labels_of(judge), gold_of(people), queries=queries, by=["kind"]).to_dict()
    own = found["segments"]["kind"]
    assert list(own) == ["odd", "plain"]
    assert own["plain"]["relevant"] == {"tp": 18, "fn": 2, "tn": 18, "fp": 2}
    assert own["odd"]["relevant"] == {"tp": 2, "fn": 18, "tn": 2, "fp": 18}
    assert own["plain"]["corrected"]["value"] == pytest.approx(0.5, abs=1e-12)
    assert own["odd"]["corrected"]["value"] is None


def test_queries_say_which_pairs_count():
    judge, people = cells(18, 2, 18, 2)
    queries = Queries.from_dict({"q000": "?", "q001": "?"})
    found = calibrate(labels_of(judge), gold_of(people), queries=queries).to_dict()
    assert found["pairs"]["both"] == 20
    assert found["pairs"]["left_out"] == 20
    with pytest.raises(InputError, match="no pair judged by both"):
        calibrate(labels_of(judge), gold_of(people), queries=Queries.from_dict({"z": "?"}))


def width(found) -> float:
    low, high = found.to_dict()["corrected"]["ci"]
    return high - low


def test_conversations_are_resampled_whole():
    """Queries of a conversation that say the same are worth no more than one of them."""
    judge, people = cells(40, 10, 40, 10)
    alike = {f"q{at:03}": {"text": "?", "group": "x" if at < 5 else "y"} for at in range(10)}
    apart = {f"q{at:03}": {"text": "?", "group": None} for at in range(10)}
    judged, human = labels_of(judge), gold_of(people)
    whole = calibrate(judged, human, queries=Queries.from_dict(alike))
    single = calibrate(judged, human, queries=Queries.from_dict(apart))
    told = conventions_of("karat", {"unit": "query"})
    forced = calibrate(judged, human, queries=Queries.from_dict(alike), profile=told)
    assert width(forced) == width(single) != width(whole)
    with pytest.raises(UsageError, match="unit=group needs"):
        calibrate(judged, human, profile=conventions_of("karat", {"unit": "group"}))


def test_the_order_of_the_labels_changes_nothing():
    judge, people = graded(3)
    turned = [dict(reversed(list(one.items()))) for one in (judge, people)]
    once = calibrate(labels_of(judge), gold_of(people)).to_dict()
    assert calibrate(labels_of(turned[0]), gold_of(turned[1])).to_dict() == once


def test_labels_of_other_pairs_are_refused_with_an_example_of_each():
    with pytest.raises(InputError, match=r"judged.jsonl: no pair in common with people.jsonl"):
        side_by_side(labels_of({("q1", "a"): 1}), gold_of({("q1", "b"): 1}))


def test_a_judge_that_failed_everywhere_is_refused():
    with pytest.raises(InputError, match="holds no grade: 2 labels failed"):
        side_by_side(labels_of({}, failed=[("q", "a"), ("q", "b")]), gold_of({("q", "a"): 1}))


def test_two_judges_are_refused_whether_they_disagree_or_judge_other_pairs():
    one, other = labels_of({("q", "a"): 1}), labels_of({("q", "a"): 2}, rater="other")
    torn = Labels(pl.concat([one.frame, other.frame]), one.failed, one.source)
    with pytest.raises(InputError, match="one judge at a time"):
        side_by_side(torn, gold_of({("q", "a"): 1}))
    apart = labels_of({("q", "b"): 2}, rater="other")
    both = Labels(pl.concat([one.frame, apart.frame]), one.failed, one.source)
    with pytest.raises(InputError, match=r"several raters: 'judge', 'other'; calibrate one"):
        side_by_side(both, gold_of({("q", "a"): 1}))


def test_a_run_whose_top_nobody_judged_is_refused():
    judge, people = cells(8, 2, 8, 2)
    run = Run.from_dict({"q000": ["elsewhere"]}, name="run")
    with pytest.raises(InputError, match="no label is of an item in the top 5"):
        calibrate(labels_of(judge), gold_of(people), run=run)


def test_spans_and_endless_grades_are_refused():
    spans = pl.DataFrame({"query_id": "q", "item_id": "a", "grade": 1, "start": 0, "end": 5})
    with pytest.raises(InputError, match="character spans"):
        side_by_side(labels_of({("q", "a"): 1}), Gold.from_frame(spans))
    judge = {("q", f"d{at}"): 1 for at in range(60)}
    with pytest.raises(UsageError, match="different grades"):
        calibrate(labels_of(judge), gold_of({pair: at / 7 for at, pair in enumerate(judge)}))


def test_an_interval_goes_by_its_name():
    judge, people = cells(8, 2, 8, 2)
    with pytest.raises(UsageError, match="unknown interval"):
        calibrate(labels_of(judge), gold_of(people), interval="betta")
