from __future__ import annotations

import random

import pytest
from staged_runs import cuts_of, staged_of

import karat
from karat.analysis.stages.routing import (
    linking_of,
    missing_for_rewriting,
    rewriting_of,
)
from karat.data.tables import Gold, Queries, Run


def made_up(n=30, seed=0):
    """Original lists have gold anywhere in the top five, rewritten ones mostly higher."""
    chance = random.Random(seed)
    gold = {f"q{i:02}": ["a"] for i in range(n)}
    records = []
    for name in gold:
        lists = []
        for places in (range(6), [0, 0, 1, 2, 5]):
            items = [f"x{i}" for i in range(5)]
            items.insert(chance.choice(places), "a")
            lists.append(items[:5])
        text = f"how about {name}"
        records.append(
            {
                "query_id": name,
                "query": text,
                "rewritten": f"better {text}",
                "topk": lists[1],
                "stages": {"original": lists[0]},
            }
        )
    return gold, records


def judged(records, gold, queries=None, cuts=None):
    staged = staged_of(records, gold, queries=queries, cuts=cuts)
    return rewriting_of(staged, cuts or cuts_of(), queries)


def test_original_and_rewritten_are_compared_like_two_runs():
    gold, records = made_up()
    found = judged(records, gold)["comparisons"]
    runs = [
        Run.from_dict({one["query_id"]: one["stages"]["original"] for one in records}, name="a"),
        Run.from_dict({one["query_id"]: one["topk"] for one in records}, name="b"),
    ]
    expected = karat.compare(runs, Gold.from_dict(gold), ["nDCG@5", "P@5", "R@5", "RR@5"])
    for measure in ("nDCG@5", "R@5"):
        (ours,) = (row for row in found if row["measure"] == measure)
        theirs = expected.of("b", measure).to_dict()
        for name in ("baseline_mean", "system_mean", "delta", "p"):
            assert ours[name] == theirs[name]
        assert ours["ci"] == list(theirs["ci"])


def test_texts_that_changed_are_counted():
    gold, records = made_up(n=6)
    records[0]["rewritten"] = records[0]["query"]
    del records[1]["query"]
    records[2] = {"query_id": "q02", "query": "x", "rewritten": "y", "error": "timeout"}
    told = judged(records, gold)
    # q02 failed; nobody says what q01 was.
    assert (told["told"], told["changed"], told["original_unknown"]) == (5, 3, 1)


def test_the_queries_bring_the_original_text():
    gold, records = made_up(n=3)
    for record in records:
        del record["query"]
    queries = Queries.from_dict({name: f"how about {name}" for name in gold})
    told = judged(records, gold, queries)
    assert (told["changed"], told["original_unknown"]) == (3, 0)


def test_a_query_whose_text_stayed_has_the_same_list():
    gold = {"q1": ["a"], "q2": ["a"], "q3": ["a"]}
    both = {"query": "old", "rewritten": "new"}
    records = [
        {"query_id": "q1", **both, "topk": ["a", "x"], "stages": {"original": ["x", "a"]}},
        {"query_id": "q2", "query": "old", "rewritten": "old", "topk": ["a", "x"]},
        {"query_id": "q3", **both, "topk": ["a", "x"]},
    ]
    told = judged(records, gold)
    row = next(row for row in told["comparisons"] if row["measure"] == "RR@5")
    # q3 changed and has no list for its original: it is left out, not called a miss.
    assert (row["baseline_mean"], row["system_mean"], row["n"]) == (0.75, 1.0, 2)
    assert (told["n"], told["left_out"]) == (2, 1)


def test_the_queries_that_rewriting_hurts_are_listed_with_both_texts():
    gold, records = made_up(n=12)
    for record in records[:7]:
        record["stages"]["original"], record["topk"] = ["a", "x"], ["x", "a"]
    for record in records[7:]:
        record["topk"] = record["stages"]["original"]
    records[6]["topk"] = ["x", "y"]
    told = judged(records, gold)
    assert len(told["hurt"]) == 5
    first = told["hurt"][0]
    assert (first["query_id"], first["original"], first["rewritten"]) == ("q06", 1.0, 0.0)
    assert (first["query"], first["rewritten_text"]) == (
        "how about q06",
        "better how about q06",
    )
    assert told["says"].startswith("rewriting takes nDCG@5 from ")


def test_texts_alone_are_counted_and_the_missing_list_is_named():
    gold, records = made_up(n=4)
    for record in records:
        del record["stages"]
    found = judged(records, gold)
    assert found == {
        "told": 4,
        "changed": 4,
        "original_unknown": 0,
        "comparisons": None,
    }
    assert "both: true" in missing_for_rewriting(found)
    plain = [{"query_id": "q00", "topk": ["a"]}]
    assert judged(plain, gold) is None
    assert "log each call's query and rewritten" in missing_for_rewriting(None)


def entities_of(gold):
    return Queries.from_dict({name: {"text": "", "entities": own} for name, own in gold.items()})


def test_links_are_counted_as_sklearn_counts_labels():
    from sklearn.metrics import precision_recall_fscore_support

    chance = random.Random(1)
    names = ["Ada", "Bee", "Cy", "Dan"]
    wanted = {f"q{i}": chance.sample(names, chance.randrange(1, 4)) for i in range(25)}
    linked = {name: chance.sample(names, chance.randrange(0, 4)) for name in wanted}
    records = [
        {"query_id": name, "topk": ["a"], "entities": own or ["Eve"]}
        for name, own in linked.items()
    ]
    staged = staged_of(records, {name: ["a"] for name in wanted}, queries=entities_of(wanted))
    found, lacks = linking_of(staged)
    labels = [*names, "Eve"]
    true = [[int(one in wanted[name]) for one in labels] for name in wanted]
    guess = [[int(one in (linked[name] or ["Eve"])) for one in labels] for name in wanted]
    told = found
    assert lacks is None
    micro = precision_recall_fscore_support(true, guess, average="micro")
    assert (told["precision"], told["recall"]) == pytest.approx(micro[:2])
    by_query = precision_recall_fscore_support(true, guess, average="samples", zero_division=0)
    assert told["EL_F1"]["mean"] == pytest.approx(by_query[2])
    low, high = told["EL_F1"]["ci"]
    assert low < told["EL_F1"]["mean"] < high


def test_a_failed_call_has_missed_its_entities():
    wanted = {"q1": ["Ada", "Bee"], "q2": ["Cy"], "q3": None}
    records = [
        {"query_id": "q1", "topk": ["a"], "entities": ["Ada", "Dan"]},
        {"query_id": "q2", "topk": [], "entities": ["Cy"], "error": "timeout"},
        {"query_id": "q3", "topk": ["a"], "entities": ["Eve"]},
    ]
    staged = staged_of(records, {name: ["a"] for name in wanted}, queries=entities_of(wanted))
    told = linking_of(staged)[0]
    assert (told["right"], told["wrong"], told["missed"]) == (1, 1, 2)
    assert told["EL_F1"]["mean"] == pytest.approx((0.5 + 0) / 2)
    assert told["EL_F1"]["n"] == 2


def test_what_linking_lacks_is_named():
    gold = {"q1": ["a"]}
    record = {"query_id": "q1", "topk": ["a"]}
    assert linking_of(staged_of([record], gold)) == (
        None,
        "EL_F1 needs each query's entities: give --queries with them",
    )
    queries = entities_of({"q1": ["Ada"]})
    found, lacks = linking_of(staged_of([record], gold, queries=queries))
    assert found is None
    assert "entities that the system linked" in lacks
