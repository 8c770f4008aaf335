"""Two runs by RBP under one labelling, and gold that other runs were pooled for."""

from __future__ import annotations

import random
from itertools import product

import pytest

from karat.data.tables import Gold, Run
from karat.label.pool_bias import pool_bias
from karat.measure.conventions import conventions_of

# Nobody judged u, v and w; s and n are wrong, x and y right.
GRADES = {"x": 1, "y": 1, "n": 0, "s": 0}
# Thirty-eight wrong ranks more: what lies below them weighs .8^40, some 0.0001.
REST = [f"wrong{at:02}" for at in range(38)]


def bias_of(lists, judged, **more):
    runs = {name: Run.from_dict(own) for name, own in lists.items()}
    return pool_bias(runs, [Gold.from_dict(judged)], **{"depth": 2, **more})


def long_lists(**tops):
    """Lists of one query that begin otherwise and end alike."""
    judged = {"q": {**GRADES, **dict.fromkeys(REST, 0)}}
    return {name: {"q": [*top, *REST]} for name, top in tops.items()}, judged


def only_pair(document, rbp="RBP"):
    (pair,) = document["differences"][rbp]
    return pair


def about_rbp(document):
    return [one for one in document["sentences"] if "RBP" in one and "changes by" not in one]


def test_an_unjudged_item_that_both_return_does_not_leave_their_order_open():
    # u at rank 1 of both has one grade. Rank 2 weighs .16: right for b, wrong for a.
    document = bias_of(*long_lists(a=["u", "n"], b=["u", "x"]), measures=["AP"])
    a, b = (one["residual"]["RBP"] for one in document["systems"])
    assert (a["low"], b["low"]) == (0.0, pytest.approx(0.16))
    assert a["unjudged"] == b["unjudged"] == pytest.approx(0.2)
    # The intervals overlap, and the difference is one number.
    assert a["high"] > b["low"]
    pair = only_pair(document)
    assert pair["systems"] == ["a", "b"]
    assert pair["delta"] == pytest.approx(0.16)
    assert pair["range"] == pytest.approx([0.16, 0.16])
    assert pair["range_beyond"] == pytest.approx([0.16 - 0.8**40, 0.16 + 0.8**40])
    assert (pair["open"], pair["queries"]) == (None, 1)
    assert about_rbp(document) == [
        "RBP orders every pair of runs, however the unjudged items are judged"
    ]


def test_unjudged_items_of_one_run_leave_the_order_open():
    # Now b leads by .16. u at rank 1 of a could take .2 of that away, v at rank 1 of b add .2.
    document = bias_of(*long_lists(a=["u", "n"], b=["v", "x"]), measures=["AP"])
    pair = only_pair(document)
    assert pair["range"] == pytest.approx([0.16 - 0.2, 0.16 + 0.2])
    assert pair["open"] == "unjudged"
    assert about_rbp(document) == ["the unjudged items decide how RBP orders a and b"]


def test_an_item_at_two_ranks_moves_both_runs_at_once():
    # u: rank 1 of a and rank 2 of b, so it moves b less a by .16 - .2 only; x the other way round.
    document = bias_of(*long_lists(a=["u", "x"], b=["x", "u"]), measures=["AP"])
    pair = only_pair(document)
    assert pair["range"] == pytest.approx([0.0, 0.04])
    # b leads now. Judgments could make them equal and never turn them; ranks below 40 could.
    assert (pair["delta"], pair["open"]) == (pytest.approx(0.04), "beyond")
    assert about_rbp(document)[0].startswith("RBP orders every pair of runs")


def test_ranks_below_the_end_are_told_apart_from_unjudged_items():
    lists = {"a": {"q": ["u", "n"]}, "b": {"q": ["u", "x"]}}
    document = bias_of(lists, {"q": {"x": 1, "n": 0}}, measures=["AP"])
    # Below rank 2 lie .64 of either.
    pair = only_pair(document)
    assert pair["range"] == pytest.approx([0.16, 0.16])
    assert pair["range_beyond"] == pytest.approx([0.16 - 0.64, 0.16 + 0.64])
    assert pair["open"] == "beyond"
    assert about_rbp(document) == [
        "RBP orders every pair of runs, however the unjudged items are judged",
        "by RBP only ranks below the end of lists could reverse a and b",
    ]


def test_runs_that_are_equal_now_have_no_order():
    twins = bias_of(*long_lists(a=["u", "x"], b=["u", "x"]), measures=["AP"])
    assert (only_pair(twins)["range"], only_pair(twins)["open"]) == ([0.0, 0.0], "equal")
    # u at rank 1 of b can only lift b.
    document = bias_of(*long_lists(a=["n", "x"], b=["u", "x"]), measures=["AP"])
    assert only_pair(document)["range"] == pytest.approx([0.0, 0.2])
    assert about_rbp(document) == ["the unjudged items decide how RBP orders a and b"]


def test_many_pairs_are_counted():
    # Four runs with an unjudged item each at rank 1 and the right one at rank 2 or 3.
    tops = {"a": "unx", "b": "vxn", "c": "wnx", "d": "txn"}
    document = bias_of(*long_lists(**tops), measures=["AP"])
    (sentence,) = about_rbp(document)
    assert sentence.startswith("the unjudged items decide how RBP orders a and b, ")
    assert sentence.endswith(" and 3 more")
    assert [pair["open"] for pair in document["differences"]["RBP"]].count("equal") == 2
    ends = bias_of({name: {"q": list(top[1:])} for name, top in tops.items()}, {"q": GRADES})
    (sentence,) = (one for one in ends["sentences"] if "below the end of lists" in one)
    assert sentence.endswith(" and 1 more")


def test_a_difference_is_over_the_queries_that_both_have():
    lists = {"a": {"q1": ["x"], "q2": ["n"]}, "b": {"q1": ["n"]}, "c": {"q2": ["x"]}}
    judged = {"q1": GRADES, "q2": GRADES}
    skip = conventions_of("karat", {"missing": "skip"})
    found = bias_of(lists, judged, depth=1, conventions=skip)["differences"]["RBP"]
    # b and c have no query in common.
    assert [one["systems"] for one in found] == [["a", "b"], ["a", "c"]]
    assert [one["delta"] for one in found] == pytest.approx([-0.2, 0.2])
    assert [one["queries"] for one in found] == [1, 1]
    found = bias_of(lists, judged, depth=1)["differences"]["RBP"]
    # A query that a run lacks is 0, and all of its weight lies below the end.
    assert found[2]["systems"] == ["b", "c"]
    assert (found[2]["delta"], found[2]["queries"]) == (pytest.approx((0.2 + 0) / 2), 2)
    assert found[2]["range_beyond"] == pytest.approx([0.1 - 0.9, 0.1 + 0.9])


def rbp_of(items, grades, p, k):
    return sum((1 - p) * p**at for at, item in enumerate(items[:k]) if grades.get(item, 0) >= 1)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("p", "k"), [(0.5, None), (0.9, 3)])
def test_the_range_is_that_of_every_labelling_tried(seed, p, k):
    chance = random.Random(seed)
    items = [f"d{at}" for at in range(8)]
    lists = {name: {q: chance.sample(items, 5) for q in ("q1", "q2")} for name in "ab"}
    judged = {
        q: {item: chance.choice([-1, 0, 1, 2]) for item in chance.sample(items, 4)} | {"sure": 1}
        for q in ("q1", "q2")
    }
    low = high = 0.0
    for q, grades in judged.items():
        known = {item: grade for item, grade in grades.items() if grade >= 0}
        unknown = sorted({*lists["a"][q], *lists["b"][q]} - {*known})
        tried = [
            rbp_of(lists["b"][q], label, p, k) - rbp_of(lists["a"][q], label, p, k)
            for labels in product((0, 1), repeat=len(unknown))
            for label in [known | dict(zip(unknown, labels, strict=True))]
        ]
        low, high = low + min(tried) / 2, high + max(tried) / 2
    rbp = f"RBP(p={p})" + ("" if k is None else f"@{k}")
    pair = only_pair(bias_of(lists, judged, measures=[rbp]), rbp)
    assert pair["range"] == pytest.approx([low, high])
    beyond = p ** (5 if k is None else k)
    assert pair["range_beyond"] == pytest.approx([low - beyond, high + beyond])


def test_lists_longer_than_what_weighs_are_bounded_as_whole_ones():
    chance = random.Random(4)
    items = [f"d{at}" for at in range(90)]
    lists = {name: {"q": chance.sample(items, 80)} for name in "ab"}
    judged = {"q": {item: chance.choice([0, 1]) for item in items[::3]}}
    # RBP adds up, so each unjudged item is right where that helps, by itself.
    gain = {}
    for item in items:
        ranks = [own["q"].index(item) if item in own["q"] else None for own in lists.values()]
        a, b = (0.0 if at is None else 0.5 ** (at + 1) for at in ranks)
        gain[item] = b - a
    now = sum(gain[item] for item, grade in judged["q"].items() if grade)
    free = [gain[item] for item in items if item not in judged["q"]]
    pair = only_pair(bias_of(lists, judged, measures=["RBP(p=0.5)"]), "RBP(p=0.5)")
    low, high = (now + sum(end(one, 0.0) for one in free) for end in (min, max))
    assert pair["range"] == pytest.approx([low, high], abs=1e-14)


# Two runs that came after the gold: others brought most of what is judged.
LATER = {"a": {"q": ["x", "n"]}, "b": {"q": ["y", "n"]}}


def pooled_elsewhere(others, **more):
    judged = {"q": {"x": 1, "y": 1, "n": 0} | {f"other{at}": 1 for at in range(others)}}
    return bias_of(LATER, judged, **{"measures": ["P@2"], **more})


def test_gold_that_other_runs_contributed_to_accuses_no_run():
    document = pooled_elsewhere(17)
    assert (document["gold"]["in_no_top"], document["gold"]["in_no_list"]) == (17, 17)
    assert document["thresholds"]["elsewhere"] == 0.2
    assert document["fair"] is None
    assert document["sentences"][0].startswith(
        "cannot tell whether the gold is fair to these runs: 17 of 20 judgments are in no given"
        " run's top 2"
    )
    assert document["sentences"][1:4] == [
        ("a run that was not pooled loses by its unjudged items: at most 0 % of a top 2 (a)"),
        # x is half of what a has in its top 2, and all that is right there.
        "a changes by -0.5000 P@2 (100 %) without the 1 judgment that no other given run has",
        "b changes by -0.5000 P@2 (100 %) without the 1 judgment that no other given run has",
    ]
    told = " ".join(document["sentences"])
    for word in ("its own", "a new run of its kind", "changes places", "the gold is fair"):
        assert word not in told.replace("whether the gold is fair", "")


def test_the_line_is_a_fifth_of_all_judgments():
    # With 2 of 5 in no top nothing can be told, and with none the runs are what the pool is of.
    many, none = pooled_elsewhere(2), pooled_elsewhere(0)
    assert "2 of 5 judgments" in many["sentences"][0]
    assert (many["fair"], none["fair"]) == (None, False)
    assert "a new run of its kind would look worse" in none["sentences"][0]
    # 1 of 4 is above a fifth, and 1 of 5 is not.
    assert pooled_elsewhere(1)["fair"] is None
    judged = {"q": {"x": 1, "y": 1, "n": 0, "m": 0, "other": 1}}
    lists = {"a": {"q": ["x", "n", "m"]}, "b": {"q": ["y", "n", "m"]}}
    assert bias_of(lists, judged, depth=3, measures=["P@3"])["fair"] is False


def test_gold_that_other_runs_contributed_to_is_not_called_fair_either():
    lists = {"a": {"q": ["x", "n"]}, "b": {"q": ["n", "x"]}}
    judged = {"q": {"x": 1, "n": 0, "other": 1}}
    document = bias_of(lists, judged, measures=["P@2"])
    # Both have the same items, so that nothing is taken out and nothing changes.
    assert [one["left_out"]["unique"] for one in document["systems"]] == [0, 0]
    assert document["fair"] is None
    assert document["sentences"][0].startswith("cannot tell whether the gold is fair")


def test_a_depth_that_is_less_than_the_pools_is_named():
    # All that is judged is returned, and most of it below rank 1.
    lists = {"a": {"q": ["x", "n", "y", "s"]}, "b": {"q": ["x", "s", "y", "n"]}}
    document = bias_of(lists, {"q": GRADES}, depth=1)
    assert (document["gold"]["in_no_top"], document["gold"]["in_no_list"]) == (3, 0)
    assert document["fair"] is None
    assert "the --depth of the pool" in document["sentences"][0]
    assert bias_of(lists, {"q": GRADES}, depth=4)["fair"] is True


def test_what_nobody_judged_is_the_largest_of_all_tops():
    lists = {"a": {"q": ["x", "u", "v", "w"]}, "b": {"q": ["x", "n", "y", "w"]}}
    judged = {"q": GRADES | {f"other{at}": 0 for at in range(9)}}
    document = bias_of(lists, judged, depth=4)
    assert document["sentences"][1].endswith("at most 75 % of a top 4 (a)")
