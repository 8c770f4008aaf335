"""Whether gold is fair: against worked examples, plain sets, pytrec_eval and scipy."""

from __future__ import annotations

import math
import random
import warnings

import polars as pl
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, rankdata

import karat
import karat.data.tables
from karat.data.tables import Gold, Queries, Run
from karat.errors import InputError, UsageError
from karat.label.judged_runs import ranks, swaps, tau
from karat.label.pool_bias import bias_measures, pool_bias
from karat.measure.conventions import Conventions, conventions_of

# Two queries; n was judged and no run returns it, z and w were never judged.
LISTS = {
    "a": {"q1": ["x", "y", "z"], "q2": ["u", "v"]},
    "b": {"q1": ["y", "w"], "q2": ["v", "u"]},
}
JUDGED = {"q1": {"x": 1, "y": 1, "n": 1}, "q2": {"u": 1, "v": 0}}


def bias_of(lists, judged, **more):
    runs = {name: Run.from_dict(own) for name, own in lists.items()}
    golds = judged if isinstance(judged, list) else [judged]
    more = {"depth": 2, **more}
    return pool_bias(runs, [Gold.from_dict(one) for one in golds], **more)


def system(document, name):
    return next(one for one in document["systems"] if one["name"] == name)


def test_a_run_without_its_own_judgments_by_hand():
    document = bias_of(LISTS, JUDGED, measures=["AP", "R@2"])
    a, b = (system(document, name)["left_out"] for name in "ab")
    # Only a has x in its top 2. w is b's alone, and no judgment.
    assert (a["unique"], a["unique_relevant"], b["unique"]) == (1, 1, 0)
    # q1: x and y lead, 2 of 3 found: (1 + 1)/3; without x: y at rank 2, of y and n: (1/2)/2.
    ap = a["measures"]["AP"]
    assert ap["value"] == pytest.approx((2 / 3 + 1) / 2)
    assert ap["without"] == pytest.approx((1 / 4 + 1) / 2)
    assert ap["change"] == pytest.approx(-5 / 24)
    assert ap["share"] == pytest.approx(-1 / 4)
    # n stays: recall falls from 2/3 to 1/2, not to 1.
    assert a["measures"]["R@2"]["without"] == pytest.approx((1 / 2 + 1) / 2)
    assert (b["measures"]["AP"]["value"], b["measures"]["AP"]["change"]) == (
        pytest.approx((1 / 3 + 1 / 2) / 2),
        0.0,
    )
    assert document["gold"] == {
        "queries": 2,
        "queries_judged": 2,
        "queries_with_relevant": 2,
        "judgments": 5,
        "relevant": 4,
        "below_zero": 0,
        "in_no_top": 1,
        "in_no_list": 1,
        "disagreeing": 0,
    }


def test_the_residual_of_rbp_by_hand():
    residual = system(bias_of(LISTS, JUDGED), "a")["residual"]["RBP"]
    # Weights .2, .16, .128: q1 has x, y and an unjudged z, q2 has u and v, of which u is relevant.
    assert residual["low"] == pytest.approx((0.36 + 0.2) / 2)
    assert residual["unjudged"] == pytest.approx(0.128 / 2)
    assert residual["beyond"] == pytest.approx((0.8**3 + 0.8**2) / 2)
    assert residual["high"] == pytest.approx((1 + (1 - 0.16)) / 2)


def test_the_residual_takes_p_and_the_cut_off_of_the_measure():
    document = bias_of(LISTS, JUDGED, measures=["RBP(p=0.5)@1", "AP"])
    residual = system(document, "a")["residual"]
    assert list(residual) == ["RBP(p=0.5)@1"]
    assert residual["RBP(p=0.5)@1"] == {
        "low": pytest.approx(0.5),
        "high": pytest.approx(1.0),
        "unjudged": 0.0,
        "beyond": pytest.approx(0.5),
    }


def test_the_residual_is_of_the_queries_that_rbp_counts():
    """Grade 1 is not enough by the conventions, and is by the measure."""
    document = bias_of(
        {"a": {"q": ["n", "x"]}},
        {"q": {"n": 0, "x": 1}},
        measures=["RBP(rel=1)"],
        conventions=conventions_of("karat", {"rel": 2}),
    )
    residual = document["systems"][0]["residual"]["RBP(rel=1)"]
    assert (residual["low"], residual["unjudged"]) == (pytest.approx(0.16), 0.0)
    assert residual["beyond"] == pytest.approx(0.64)


def test_the_residual_is_that_of_a_plain_sum():
    chance = random.Random(3)
    judged, lists = chaos(chance, queries=6, runs=1, length=9)
    p = 0.6
    for grades in judged.values():
        grades["sure"] = 1
    document = bias_of(lists, judged, measures=[f"RBP(p={p})"])
    low = high = 0.0
    for query, grades in judged.items():
        items = lists["run0"][query]
        weights = {item: (1 - p) * p**at for at, item in enumerate(items)}
        low += sum(w for item, w in weights.items() if grades.get(item, 0) >= 1)
        high += 1 - sum(w for item, w in weights.items() if grades.get(item) == 0)
    residual = document["systems"][0]["residual"][f"RBP(p={p})"]
    assert residual["low"] == pytest.approx(low / 6)
    assert residual["high"] == pytest.approx(high / 6)


def chaos(chance: random.Random, *, queries: int, runs: int, length: int = 8):
    """Gold and lists without any plan; grades -1 to 2, and most items unjudged."""
    items = [f"d{at:02}" for at in range(16)]
    judged, lists = {}, {f"run{at}": {} for at in range(runs)}
    for at in range(queries):
        known = chance.sample(items, chance.randint(1, 9))
        judged[f"q{at}"] = {item: chance.choice([-1, 0, 0, 1, 2]) for item in known}
        for own in lists.values():
            own[f"q{at}"] = chance.sample(items, chance.randint(1, length))
    return judged, lists


def as_run(lists):
    return {
        query: {item: float(-at) for at, item in enumerate(items)} for query, items in lists.items()
    }


def tops(lists, depth):
    return {(query, item) for query, items in lists.items() for item in items[:depth]}


@pytest.mark.parametrize("seed", range(12))
def test_leaving_a_run_out_is_scoring_on_the_gold_without_what_it_alone_has(seed):
    judged, lists = chaos(random.Random(seed), queries=4, runs=3)
    measures, depth = ["nDCG@10", "AP", "RBP", "Bpref", "RR@3"], 3
    document = bias_of(lists, judged, depth=depth, measures=measures)
    now = {
        name: karat.evaluate(Run.from_dict(own), Gold.from_dict(judged), measures).means()
        for name, own in lists.items()
    }
    scored = [query for query, grades in judged.items() if max(grades.values()) >= 1]
    for left, own in lists.items():
        others = set().union(*(tops(lists[name], depth) for name in lists if name != left))
        alone = tops(own, depth) - others
        known = {pair for pair in alone if judged[pair[0]].get(pair[1], -1) >= 0}
        fewer = {
            query: {item: grade for item, grade in grades.items() if (query, item) not in alone}
            for query, grades in judged.items()
        }
        then = {}
        for name, ranking in lists.items():
            table = karat.evaluate(
                Run.from_dict(ranking),
                Gold.from_dict(fewer),
                measures,
                settings={"empty_gold": "zero"},
            ).table.filter(pl.col("query_id").is_in(scored))
            then[name] = {measure: table[measure].mean() for measure in measures}
        told = system(document, left)["left_out"]
        emptied = [query for query in scored if max(fewer[query].values(), default=0) < 1]
        assert (told["unique"], told["queries_emptied"]) == (len(known), len(emptied))
        for measure in measures:
            cell = told["measures"][measure]
            assert cell["value"] == pytest.approx(now[left][measure])
            assert cell["without"] == pytest.approx(then[left][measure], abs=1e-12)
            columns = [
                [round(values[name][measure], 10) for name in lists] for values in (now, then)
            ]
            assert cell["tau"] == scipy_tau(*columns)
            place = [rankdata([-value for value in column], "min") for column in columns]
            at = list(lists).index(left)
            assert (cell["rank"], cell["rank_without"]) == (place[0][at], place[1][at])
    each = [
        [system(document, name)["left_out"]["measures"]["AP"][key] for name in lists]
        for key in ("value", "without")
    ]
    assert document["taus"]["AP"]["each_without_own"] == scipy_tau(*each)
    lowest = [system(document, name)["left_out"]["measures"]["AP"]["tau"] for name in lists]
    assert document["taus"]["AP"]["left_out"] == min(
        (one for one in lowest if one is not None), default=None
    )


def scipy_tau(before, after):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = kendalltau(before, after).statistic
    return None if math.isnan(value) else pytest.approx(value)


@pytest.mark.parametrize("seed", range(8))
def test_condensed_lists_are_those_of_a_run_without_unjudged_items(seed):
    judged, lists = chaos(random.Random(seed), queries=5, runs=3)
    for grades in judged.values():
        grades["sure"] = 1
    document = bias_of(lists, judged, depth=4, measures=["AP", "nDCG@5", "P@5", "RR", "SetP"])
    names = {"map": "AP", "ndcg_cut_5": "nDCG@5", "P_5": "P@5", "recip_rank": "RR", "set_P": "SetP"}
    judge = pytrec_eval.RelevanceEvaluator(
        judged, {"map", "ndcg_cut.5", "P.5", "recip_rank", "set_P", "bpref"}
    )
    values = {name: {} for name in lists}
    for name, own in lists.items():
        short = {
            query: [item for item in items if judged[query].get(item, -1) >= 0]
            for query, items in own.items()
        }
        for key, run in (("value", as_run(own)), ("condensed", as_run(short))):
            by_query = judge.evaluate({query: hits for query, hits in run.items() if hits})
            for theirs, ours in names.items():
                mean = sum(one[theirs] for one in by_query.values()) / len(judged)
                values[name][ours, key] = mean
            values[name]["Bpref"] = sum(one["bpref"] for one in by_query.values()) / len(judged)
        told = system(document, name)["condensed"]
        for ours in names.values():
            cell = told["measures"][ours]
            for key in ("value", "condensed"):
                assert cell[key] == pytest.approx(values[name][ours, key], abs=1e-6)
            assert cell["change"] == pytest.approx(cell["condensed"] - cell["value"], abs=1e-12)
        assert told["Bpref"]["value"] == pytest.approx(values[name]["Bpref"], abs=1e-6)
    for ours in names.values():
        columns = [
            [round(values[name][ours, key], 9) for name in lists] for key in ("value", "condensed")
        ]
        assert document["taus"][ours]["condensed"] == scipy_tau(*columns)


def test_coverage_by_rank_is_counted_in_bands_up_to_the_depth():
    chance = random.Random(5)
    items = [f"d{at}" for at in range(60)]
    lists = {"a": {"q1": chance.sample(items, 40), "q2": chance.sample(items, 8)}}
    judged = {query: dict.fromkeys(chance.sample(items, 30), 1) for query in ("q1", "q2")}
    judged["q2"][lists["a"]["q2"][0]] = -1
    # A query without any judgment is none that gold could treat unfairly.
    lists["a"]["q3"] = items[:5]
    judged["q3"] = {}
    (told,) = bias_of(lists, judged, depth=30)["systems"]
    expected = []
    for first, last in ((1, 5), (6, 10), (11, 20), (21, 30)):
        here = [
            (query, item) for query in ("q1", "q2") for item in lists["a"][query][first - 1 : last]
        ]
        known = sum(judged[query].get(item, -1) >= 0 for query, item in here)
        share = known / len(here)
        expected.append(
            {"from": first, "to": last, "items": len(here), "judged": known, "share": share}
        )
    assert told["coverage"] == expected


def test_bands_end_at_the_depth_and_an_empty_one_has_no_share():
    (told,) = bias_of({"a": {"q": ["x"]}}, {"q": {"x": 1}}, depth=7)["systems"]
    assert [(one["from"], one["to"], one["share"]) for one in told["coverage"]] == [
        (1, 5, 1.0),
        (6, 7, None),
    ]


def test_a_query_that_loses_its_last_relevant_item_stays_in_the_mean():
    lists = {"a": {"q1": ["x"], "q2": ["y"]}, "b": {"q1": ["w"], "q2": ["y"]}}
    document = bias_of(lists, {"q1": {"x": 1}, "q2": {"y": 1}}, measures=["RR", "FPR@1"])
    left = system(document, "a")["left_out"]
    assert left["queries_emptied"] == 1
    assert (left["measures"]["RR"]["value"], left["measures"]["RR"]["without"]) == (1.0, 0.5)
    # Where lower is better the worst stands in its place.
    assert (left["measures"]["FPR@1"]["value"], left["measures"]["FPR@1"]["without"]) == (0.0, 0.5)


def test_what_another_run_has_below_the_depth_is_still_the_first_ones_own():
    lists = {"a": {"q": ["x", "y"]}, "b": {"q": ["y", "x"]}}
    judged = {"q": {"x": 1, "y": 1}}
    shallow, deep = (
        [one["left_out"]["unique"] for one in bias_of(lists, judged, depth=depth)["systems"]]
        for depth in (1, 2)
    )
    assert (shallow, deep) == ([1, 1], [0, 0])


def test_gaps_count_as_the_conventions_say():
    lists = {"a": {"q1": ["x"]}, "b": {"q1": ["y"], "q2": ["y"]}}
    judged = {"q1": {"x": 1}, "q2": {"y": 1}}
    zero = bias_of(lists, judged, measures=["RR"])
    assert system(zero, "a")["condensed"]["measures"]["RR"]["value"] == 0.5
    skip = bias_of(
        lists, judged, measures=["RR"], conventions=conventions_of("karat", {"missing": "skip"})
    )
    a = system(skip, "a")
    assert a["condensed"]["measures"]["RR"]["value"] == 1.0
    assert a["left_out"]["measures"]["RR"]["without"] == 0.0
    # Judgments of a query that the run does not have change nothing of it.
    assert system(skip, "b")["left_out"]["measures"]["RR"]["value"] == 0.5


def test_queries_say_which_count():
    queries = Queries.from_dict({"q2": "?"})
    document = bias_of(LISTS, JUDGED, measures=["AP"], queries=queries)
    assert document["gold"]["queries"] == 1
    assert system(document, "a")["left_out"]["measures"]["AP"]["value"] == 1.0


def test_of_several_golds_the_first_counts_and_differences_are_told():
    golds = [{"q": {"x": 1}}, {"q": {"x": 0, "y": 1}}]
    document = bias_of({"a": {"q": ["x", "y"]}}, golds, measures=["P@2"])
    assert document["systems"][0]["condensed"]["measures"]["P@2"]["value"] == 1.0
    assert (document["gold"]["judgments"], document["gold"]["disagreeing"]) == (2, 1)


def test_a_grade_below_0_is_no_judgment():
    document = bias_of({"a": {"q": ["x", "y"]}, "b": {"q": ["y"]}}, {"q": {"x": -1, "y": 1}})
    assert document["gold"]["below_zero"] == 1
    a = system(document, "a")
    assert a["left_out"]["unique"] == 0
    assert a["coverage"][0]["judged"] == 1
    assert a["condensed"]["measures"]["AP"]["condensed"] == 1.0


VALUES = st.lists(st.tuples(*[st.sampled_from([0.1, 0.2, 0.3, 0.4])] * 2), min_size=2, max_size=7)


@settings(deadline=None)
@given(VALUES)
def test_orders_agree_with_scipy(pairs):
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    assert tau(before, after) == scipy_tau(before, after)
    assert ranks(before) == rankdata([-one for one in before], "min").tolist()
    assert ranks(before, lower=True) == rankdata(before, "min").tolist()
    names = [f"s{at}" for at in range(len(pairs))]
    swapped = {frozenset((one["first"], one["second"])) for one in swaps(names, before, after)}
    assert swapped == {
        frozenset((names[i], names[j]))
        for i in range(len(pairs))
        for j in range(i)
        if (before[i] - before[j]) * (after[i] - after[j]) < 0
    }


def test_a_pair_that_turns_names_the_better_one_first():
    (one,) = swaps(["a", "b"], [0.1, 0.3], [0.5, 0.4])
    assert one == {
        "first": "b",
        "second": "a",
        "before": pytest.approx(0.2),
        "after": pytest.approx(-0.1),
    }
    (low,) = swaps(["a", "b"], [0.1, 0.3], [0.5, 0.4], lower=True)
    assert (low["first"], low["before"]) == ("a", pytest.approx(-0.2))
    assert swaps(["a", "b"], [0.1, None], [0.5, 0.4]) == []
    assert (tau([0.1], [0.2]), tau([0.1, None], [0.2, 0.3])) == (None, None)


def test_fair_gold_is_called_fair_with_the_largest_change():
    items = [f"d{at}" for at in range(10)]
    lists = {"a": {"q": items}, "b": {"q": items[1:] + items[:1]}}
    document = bias_of(lists, {"q": dict.fromkeys(items, 0) | {"d1": 1, "d0": 1}}, depth=10)
    assert document["fair"] is True
    verdict = document["sentences"][0]
    assert all(words in verdict for words in ("the gold is fair", "no run changes", "5 %"))


def test_a_run_that_lives_on_what_it_alone_has_is_named_with_its_loss():
    document = bias_of(LISTS, JUDGED, measures=["AP"])
    assert document["fair"] is False
    # 5/24 of 5/6 is a quarter.
    assert document["sentences"][0] == (
        "a changes by -0.2083 AP (25 %) without the 1 judgment that no other given run has: a new"
        " run of its kind would look worse than it is"
    )


def test_a_run_that_falls_behind_is_named_with_the_other():
    lists = {"a": {"q": ["x", "z"]}, "b": {"q": ["w", "y"]}}
    document = bias_of(lists, {"q": {"x": 1, "y": 1}}, measures=["RR"])
    # 1 against 1/2; without x 0 against 1/2.
    assert "RR (100 %) and changes places with b without" in document["sentences"][0]
    cell = system(document, "a")["left_out"]["measures"]["RR"]
    assert (cell["rank"], cell["rank_without"], cell["tau"]) == (1, 2, -1.0)


def test_of_many_places_three_are_named():
    others = {f"b{at}": {"q": ["w", "y"]} for at in range(4)}
    document = bias_of({"a": {"q": ["x", "z"]}, **others}, {"q": {"x": 1, "y": 1}}, measures=["RR"])
    # 1 against four times 1/2, then 0 against them.
    assert "a changes by" in document["sentences"][0]
    assert "changes places with b0, b1, b2 and 1 more" in document["sentences"][0]


def test_an_order_that_condensed_lists_turn_is_named():
    # b's first relevant item stands at rank 3, below two that nobody judged.
    lists = {"a": {"q": ["n", "x"]}, "b": {"q": ["v", "w", "x"]}}
    document = bias_of(lists, {"q": {"x": 1, "n": 0}}, depth=3, measures=["RR"])
    assert document["turned"]["RR"] == [
        {"first": "a", "second": "b", "before": pytest.approx(1 / 6), "after": -0.5}
    ]
    assert "condensed lists reverse by RR a and b" in document["sentences"]
    uneven = "at ranks 1 to 3 33 % of b is judged and 100 % of a"
    assert any(one.startswith(uneven) for one in document["sentences"])


def test_a_rate_that_should_be_low_is_read_the_other_way_round():
    document = bias_of(LISTS, JUDGED, measures=["FPR@1"])
    # 0 now; without x the first item of q1 is no hit, which is half of the queries.
    cell = system(document, "a")["left_out"]["measures"]["FPR@1"]
    assert (cell["value"], cell["without"], cell["share"]) == (0.0, 0.5, None)
    assert document["sentences"][0] == (
        "a changes by +0.5000 FPR@1 without the 1 judgment that no other given run has: a new run"
        " of its kind would look worse than it is"
    )


def test_little_that_is_judged_is_no_proof_of_fairness():
    lists = {"a": {"q": ["x", "v", "w"]}, "b": {"q": ["x", "s", "t"]}}
    document = bias_of(lists, {"q": {"x": 1}}, depth=3)
    assert document["fair"] is None
    verdict = document["sentences"][0]
    assert "finds no bias" in verdict
    assert "only 33 % of the top 3 of a is judged, below 50 %" in verdict


def test_one_run_cannot_be_left_out():
    document = bias_of({"a": LISTS["a"]}, JUDGED)
    assert (document["fair"], document["systems"][0]["left_out"]) == (None, None)
    assert document["taus"]["AP"] == dict.fromkeys(("left_out", "each_without_own", "condensed"))
    assert len(document["sentences"]) == 1
    assert document["sentences"][0].startswith("leave-one-run-out needs two runs or more")


def test_gold_without_anything_relevant_tells_nothing():
    document = bias_of(LISTS, {"q1": {"x": 0}, "q2": {}})
    assert document["fair"] is None
    assert document["sentences"] == ["no conclusion: no query has a relevant item in this gold"]
    assert system(document, "a")["residual"]["RBP"] is None
    assert system(document, "a")["left_out"]["measures"]["AP"] == {
        "value": None,
        "without": None,
        "change": None,
        "share": None,
        "rank": None,
        "rank_without": None,
        "better": "higher",
        "tau": None,
        "turned": [],
    }


def test_gold_of_documents_is_refused_for_runs_of_chunks():
    with pytest.raises(InputError, match="names documents"):
        bias_of({"a": {"q": ["faq#1"]}, "b": {"q": ["faq#2"]}}, {"q": {"faq": 1}})


def test_a_run_without_any_answer_is_refused():
    with pytest.raises(InputError, match="1 of 1 answers"):
        bias_of({"a": {"q": []}, "b": {"q": ["x"]}}, {"q": {"x": 1}})


def test_the_order_of_runs_and_of_lines_changes_nothing():
    judged, lists = chaos(random.Random(1), queries=5, runs=3)
    once = bias_of(lists, judged, depth=4)
    back = {name: dict(reversed(own.items())) for name, own in reversed(lists.items())}
    again = bias_of(back, dict(reversed(judged.items())), depth=4)
    for name in lists:
        assert system(once, name) == {
            **system(again, name),
            "left_out": {
                **system(again, name)["left_out"],
                "measures": {
                    measure: {
                        **cell,
                        "turned": system(once, name)["left_out"]["measures"][measure]["turned"],
                    }
                    for measure, cell in system(again, name)["left_out"]["measures"].items()
                },
            },
        }
    assert once["taus"] == again["taus"]


@pytest.mark.parametrize(
    "name", ["Coverage@10", "latency.total.p50", "NumRet", "Judged@10", "Novelty@5", "R@200tok"]
)
def test_what_is_no_measure_of_ranks_is_refused(name):
    with pytest.raises(UsageError, match="not measure the ranks"):
        bias_measures([name])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depth": 0}, "depth is 0"),
        ({"runs": {}}, "at least one"),
        ({"gold": []}, "--gold"),
        ({"profile": Conventions(level="doc")}, "level=doc"),
    ],
)
def test_what_has_no_bias_is_refused(wrong, message):
    arguments = {"runs": {"a": {"q": ["x"]}}, "gold": {"q": {"x": 1}}, "depth": 1, "bias": True}
    with pytest.raises(UsageError, match=message):
        karat.pool(**{**arguments, **wrong})


def test_spans_are_refused():
    spans = pl.DataFrame({"query_id": "q", "item_id": "a", "grade": 1, "start": 0, "end": 5})
    with pytest.raises(InputError, match="character spans"):
        karat.pool({"a": {"q": ["a"]}}, gold=Gold.from_frame(spans), depth=1, bias=True)


def test_lists_of_many_blocks_are_told_as_one(monkeypatch):
    judged, lists = chaos(random.Random(7), queries=9, runs=2)
    frames = {
        name: pl.DataFrame(
            [
                {"query_id": query, "item_id": item, "score": float(-at)}
                for query, items in own.items()
                for at, item in enumerate(items)
            ]
        )
        for name, own in lists.items()
    }
    told = []
    for rows in (10**6, 3):
        monkeypatch.setattr(karat.data.tables, "BLOCK_ROWS", rows)
        runs = {name: Run.from_frame(frame) for name, frame in frames.items()}
        told.append(pool_bias(runs, [Gold.from_dict(judged)], depth=4))
    assert told[0] == told[1]
