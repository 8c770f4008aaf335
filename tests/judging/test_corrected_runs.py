"""Corrected P@k of evaluated systems: by hand, against the truth, and what is refused."""

from __future__ import annotations

import random

import polars as pl
import pytest

from karat.data.columns import Source
from karat.data.tables import Gold, Queries, Run
from karat.errors import InputError, UsageError
from karat.label.corrected import Corrector
from karat.label.labels import Labels, People
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.score_builder import score


def labels_of(grades) -> Labels:
    """From ``{(query, item): grade}``."""
    rows = [(query, item, int(grade), "judge") for (query, item), grade in grades.items()]
    schema = {"query_id": pl.String, "item_id": pl.String, "grade": pl.Int64, "rater": pl.String}
    lost = pl.DataFrame(schema=dict.fromkeys(("query_id", "item_id", "error"), pl.String))
    return Labels(pl.DataFrame(rows, schema=schema, orient="row"), lost, Source("judged.jsonl"))


def gold_of(grades) -> Gold:
    rows = [(query, item, float(grade)) for (query, item), grade in grades.items()]
    frame = pl.DataFrame(rows, schema=["query_id", "item_id", "grade"], orient="row")
    return Gold.from_frame(frame, source=Source("people.jsonl"))


def corrected_precision(scores, measure, judged, human, **settings):
    return Corrector.of(judged, human, **settings).precision(scores, measure)


def scored(
    run, gold: Gold, measures="P@5", *, queries=None, keep: int = 10, name="run", **settings
):
    conventions = conventions_of("karat", settings)
    prepared = prepare(gold, conventions, queries=queries)
    chosen = parse_measures(measures, conventions=conventions)
    return score(Run.from_dict(run, name=name), prepared, chosen, keep=keep)


class World:
    """80 queries with one item each in the gold, and lists of five of which more is relevant."""

    def __init__(self, seed: int = 1, *, right=(0.9, 0.75), sampled: float = 0.5) -> None:
        chance = random.Random(seed)
        ids = [f"q{at:02}" for at in range(80)]
        self.truth = {(q, f"{q}-{d}"): int(chance.random() < 0.5) for q in ids for d in range(12)}
        self.gold = {(q, f"{q}-0"): 1 for q in ids}
        self.truth |= self.gold
        say = {1: right[0], 0: 1 - right[1]}
        self.says = {pair: int(chance.random() < say[true]) for pair, true in self.truth.items()}
        left = [pair for pair in self.truth if pair not in self.gold]
        self.people = {pair: self.truth[pair] for pair in left if chance.random() < sampled}
        self.lists = {}
        for q in ids:
            items = [f"{q}-{d}" for d in range(12)]
            chance.shuffle(items)
            self.lists[q] = items[:5]

    def better(self) -> dict[str, list[str]]:
        """Lists of the same queries that hold more of what is relevant."""
        found = {}
        for q in self.lists:
            items = sorted((f"{q}-{d}" for d in range(12)), key=lambda one: -self.truth[q, one])
            found[q] = items[:2] + [one for one in self.lists[q] if one not in items[:2]][:3]
        return found

    def precision(self, lists) -> float:
        return sum(self.truth[q, d] for q, items in lists.items() for d in items) / (5 * len(lists))


def test_the_corrected_precision_by_hand():
    """Of five places the gold knows one, the judge has two and one is empty; one has nobody."""
    gold = gold_of({("a", "1"): 1, ("b", "1"): 1, ("b", "2"): 0})
    run = {"a": ["1", "2", "3", "4"], "b": ["2", "5", "6", "7", "8"]}
    judged = {("a", "2"): 1, ("a", "3"): 0, ("b", "5"): 1, ("b", "6"): 1}
    # Both rates are 0.8 on twenty pairs of other queries.
    others = {(f"o{at}", "x"): int(at < 10) for at in range(20)}
    word = {
        pair: 1 - true if pair[0] in ("o0", "o1", "o18", "o19") else true
        for pair, true in others.items()
    }
    found = corrected_precision(scored(run, gold), "P@5", labels_of(judged | word), gold_of(others))
    # The judge calls 3 of 4 relevant: (0.75 - 0.2)/0.6. The gold has 1 of 2, one place is empty.
    assert found["value"] == pytest.approx((4 * (0.55 / 0.6) + 1) / 7, abs=1e-12)
    assert found["uncorrected"] == pytest.approx((3 + 1) / 7, abs=1e-12)
    names = ("judged", "judged_relevant", "known", "known_relevant", "empty", "unjudged")
    assert [found[name] for name in names] == [4, 3, 2, 1, 1, 3]
    assert (found["labels"], found["queries"]) == ({"all": 20, "of_the_share": 0}, 2)
    assert (found["sensitivity"], found["specificity"]) == (0.8, 0.8)
    assert found["ci"][0] < found["value"] <= found["ci"][1]
    assert found["only"].startswith("P@k only")


@pytest.mark.parametrize("method", ["cluster", "beta", "ppi"])
def test_the_truth_is_within_the_interval_where_the_judges_word_is_not(method):
    world = World(right=(0.95, 0.6))
    scores = scored(world.lists, gold_of(world.gold))
    found = corrected_precision(
        scores, "P@5", labels_of(world.says), gold_of(world.people), method=method
    )
    truth = world.precision(world.lists)
    low, high = found["ci"]
    assert low <= truth <= high < found["uncorrected"]
    assert found["method"] == method
    assert (found["prediction_powered"] is None) == (method != "ppi")


def test_a_judge_who_never_errs_gives_the_mean_of_the_measure():
    world = World(right=(1.0, 1.0))
    lists = {q: items[: 1 + at % 5] for at, (q, items) in enumerate(world.lists.items())}
    with_all = scored(lists, gold_of(world.truth)).means()["P@5"]
    found = corrected_precision(
        scored(lists, gold_of(world.gold)), "P@5", labels_of(world.says), gold_of(world.people)
    )
    assert found["value"] == pytest.approx(with_all, abs=1e-12)


def test_only_queries_with_a_value_count():
    world = World()
    gold = {pair: grade for pair, grade in world.gold.items() if pair[0] < "q40"}
    named = Queries.from_dict(dict.fromkeys(world.lists, "?"))
    scores = scored(world.lists, gold_of(gold), queries=named)
    found = corrected_precision(scores, "P@5", labels_of(world.says), gold_of(world.people))
    assert found["queries"] == scores.summaries["P@5"].n == 40


def test_the_measures_own_line_is_drawn_for_judge_and_people():
    world = World()
    grades = {pair: 2 * true for pair, true in world.truth.items()}
    says = {pair: 2 * word for pair, word in world.says.items()}
    people = {pair: grades[pair] for pair in world.people}
    gold = dict.fromkeys(world.gold, 2)
    by_two = scored(world.lists, gold_of(gold), ["P(rel=2)@5"])
    plain = scored(world.lists, gold_of(world.gold))
    high = corrected_precision(by_two, "P(rel=2)@5", labels_of(says), gold_of(people))
    low = corrected_precision(plain, "P@5", labels_of(world.says), gold_of(world.people))
    assert high == low
    lenient = {pair: max(grade, 1) for pair, grade in says.items()}
    same = corrected_precision(by_two, "P(rel=2)@5", labels_of(lenient), gold_of(people))
    assert same["value"] == low["value"]


@pytest.mark.parametrize("method", ["cluster", "ppi"])
def test_the_difference_of_two_systems(method):
    world = World(seed=3, sampled=0.6)
    gold = gold_of(world.gold)
    lists = (world.lists, world.better())
    first, second = (scored(one, gold, name=str(at)) for at, one in enumerate(lists))
    corrector = Corrector.of(labels_of(world.says), gold_of(world.people), method=method)
    found = corrector.difference(first, second, "P@5")
    ends = [corrector.precision(one, "P@5") for one in (first, second)]
    assert found["value"] == pytest.approx(ends[1]["value"] - ends[0]["value"], abs=1e-12)
    truth = world.precision(lists[1]) - world.precision(lists[0])
    low, high = found["ci"]
    assert low <= truth <= high
    widths = [one["ci"][1] - one["ci"][0] for one in ends]
    assert high - low < sum(widths)
    turned = corrector.difference(second, first, "P@5")
    assert turned["value"] == pytest.approx(-found["value"], abs=1e-12)
    same = corrector.difference(first, first, "P@5")
    assert (same["value"], same["ci"]) == (0, [0, 0])


def test_conversations_are_drawn_together():
    world = World()
    rows = {q: {"text": "?", "group": f"g{int(q[1:]) // 10}"} for q in world.lists}
    queries = Queries.from_dict(rows)
    whole, single = (
        corrected_precision(
            scored(world.lists, gold_of(world.gold), queries=queries, **settings),
            "P@5",
            labels_of(world.says),
            gold_of(world.people),
        )
        for settings in ({}, {"unit": "query"})
    )
    assert whole["value"] == single["value"]
    assert whole["ci"] != single["ci"]


def test_a_judge_no_better_than_chance_gives_no_number():
    world = World(right=(0.3, 0.3))
    scores = scored(world.lists, gold_of(world.gold))
    for method in ("cluster", "beta", "ppi"):
        corrector = Corrector.of(labels_of(world.says), gold_of(world.people), method=method)
        for found in (
            corrector.precision(scores, "P@5"),
            corrector.difference(scores, scores, "P@5"),
        ):
            assert found["value"] is found["ci"] is None
            assert "no better than chance" in found["because"]
    people = corrector.precision(scores, "P@5")["prediction_powered"]
    assert people["weight"] == 0
    assert people["ci"][0] <= world.precision(world.lists) <= people["ci"][1]


def test_a_sample_of_other_pairs_powers_nothing():
    world = World()
    elsewhere = {
        pair: true for pair, true in world.people.items() if pair[1] not in world.lists[pair[0]]
    }
    found = corrected_precision(
        scored(world.lists, gold_of(world.gold)),
        "P@5",
        labels_of(world.says),
        gold_of(elsewhere),
        method="ppi",
    )
    assert found["value"] is None
    assert "people judged none of the pairs in the top 5" in found["because"]


def test_what_cannot_be_corrected_is_refused():
    world = World()
    gold = gold_of(world.gold)
    labels, people = labels_of(world.says), gold_of(world.people)
    scores = scored(world.lists, gold, ["P@5", "nDCG@5"])
    with pytest.raises(UsageError, match="nDCG@5 cannot be corrected"):
        corrected_precision(scores, "nDCG@5", labels, people)
    with pytest.raises(UsageError, match="come without lists"):
        corrected_precision(scored(world.lists, gold, keep=0), "P@5", labels, people)
    by_doc = scored(world.lists, gold, level="doc")
    with pytest.raises(UsageError, match="level=doc"):
        corrected_precision(by_doc, "P@5", labels, people)
    with pytest.raises(InputError, match="no pair in common"):
        corrected_precision(scores, "P@5", labels, gold_of({("z", "z"): 1}))
    other = scored(world.lists, gold_of({**world.gold, ("q00", "q00-3"): 1}))
    with pytest.raises(UsageError, match="different gold or queries"):
        Corrector.of(labels, people).difference(scores, other, "P@5")


def test_several_people_may_be_given():
    world = World()
    frames = [People.of(gold_of(world.people), rater=name).frame for name in ("ana", "ben")]
    both = People(pl.concat(frames), (Source("people.jsonl"),))
    scores = scored(world.lists, gold_of(world.gold))
    labels = labels_of(world.says)
    alone = corrected_precision(scores, "P@5", labels, gold_of(world.people))
    for truth in ("majority", "dawid-skene"):
        assert corrected_precision(scores, "P@5", labels, both, truth=truth) == alone
