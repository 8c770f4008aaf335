"""A judge's labels beside the gold, against pytrec_eval on both sets of judgments."""

from __future__ import annotations

import json
import math
import random

import polars as pl
import pytest
import pytrec_eval

from karat.data.tables import Gold, Run
from karat.errors import InputError
from karat.evaluation.api import evaluate
from karat.evaluation.judged_labels import of_the_same_queries, with_labels
from karat.measure.conventions import Conventions, conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.score_builder import score

RNG = random.Random(11)
ITEMS = [f"d{n:02}" for n in range(30)]
QUERIES = [f"q{n:02}" for n in range(25)]
RUN = {q: {d: 1.0 / (1 + r) for r, d in enumerate(RNG.sample(ITEMS, 12))} for q in QUERIES}
GOLD = {q: {d: RNG.choice([0, 1, 2, 2]) for d in RNG.sample(ITEMS, 4)} for q in QUERIES}
for grades in GOLD.values():
    grades[next(iter(grades))] = 2
LABELS = {q: {d: RNG.choice([0, 1, 2]) for d in list(RUN[q])[:6]} for q in QUERIES}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gold.json").write_text(json.dumps(GOLD))
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    labels = [
        json.dumps({"query_id": q, "item_id": d, "grade": g, "rater": "model@1"})
        for q, own in LABELS.items()
        for d, g in own.items()
    ]
    (tmp_path / "labels.jsonl").write_text("\n".join(labels) + "\n")
    return tmp_path


def evaluated(run, *more: str) -> dict:
    done = run(
        *("eval", "run.json", "--gold", "gold.json", "-m", "P@5,nDCG@5,R@5,Hit@5"),
        *("--judged", "labels.jsonl", "--json", *more),
    )
    assert done.code == 0, done.err
    return json.loads(done.out)


def peers(judgments: dict, name: str) -> float:
    values = pytrec_eval.RelevanceEvaluator(judgments, {name}).evaluate(RUN)
    return sum(one[name] for one in values.values()) / len(values)


def test_both_sides_are_those_of_pytrec_eval(run, files):
    document = evaluated(run)
    bounds = document["systems"][0]["bounds"]
    # What the gold says comes before what the judge says.
    both = {q: LABELS[q] | GOLD[q] for q in QUERIES}
    for ours, theirs in (("P@5", "P_5"), ("nDCG@5", "ndcg_cut_5")):
        assert bounds[ours]["gold"]["mean"] == pytest.approx(peers(GOLD, theirs), abs=1e-12)
        assert bounds[ours]["gold_and_judge"]["mean"] == pytest.approx(
            peers(both, theirs), abs=1e-12
        )
        low, high = bounds[ours]["gold_and_judge"]["ci"]
        assert low < bounds[ours]["gold_and_judge"]["mean"] < high


def test_hit_and_recall_stay_on_gold(run, files):
    document = evaluated(run)
    assert set(document["systems"][0]["bounds"]) == {"P@5", "nDCG@5"}
    assert document["systems"][0]["measures"]["R@5"]["mean"] == pytest.approx(
        peers({q: {d: int(g > 0) for d, g in own.items()} for q, own in GOLD.items()}, "recall_5")
    )


def test_labels_are_counted_and_their_file_is_an_input(run, files):
    with (files / "labels.jsonl").open("a") as file:
        file.write('{"query_id": "q00", "item_id": "zz", "error": "no answer"}\n')
        file.write('{"query_id": "elsewhere", "item_id": "d01", "grade": 2}\n')
        file.write('{"query_id": "q00", "item_id": "yy", "grade": -1}\n')
    document = evaluated(run)
    known = sum(len(set(LABELS[q]) & set(GOLD[q])) for q in QUERIES)
    assert document["judged"] == {
        "added": sum(map(len, LABELS.values())) - known,
        "known": known,
        "elsewhere": 1,
        "failed": 1,
        "not_judged": 1,
        "reversed": [],
    }
    assert document["inputs"]["judged"]["name"] == "labels.jsonl"


def test_what_nobody_judged_is_a_share_of_the_top(run, files):
    """Labels go down to rank 6, so the top 5 is whole and the top 10 is not."""
    words = ("eval", "run.json", "--gold", "gold.json", "-m", "P@5, P@10, nDCG@10, nDCG")
    told = run(*words, "--judged", "labels.jsonl", "-o", "r.json")
    bounds = json.loads((files / "r.json").read_text())["systems"][0]["bounds"]
    holes = [
        sum(item not in LABELS[q] | GOLD[q] for item in list(RUN[q])[:10]) / 10 for q in QUERIES
    ]
    assert bounds["P@5"]["unjudged"] == 0
    for name in ("P@10", "nDCG@10"):
        assert bounds[name]["unjudged"] == pytest.approx(sum(holes) / len(holes), abs=1e-12)
    assert bounds["nDCG"]["unjudged"] is None
    assert f"{100 * sum(holes) / len(holes):.0f} %" in told.out
    assert "gold + judge covers only judged items" in told.out


def test_of_a_short_list_the_items_that_came_count(run, files):
    (files / "gold.json").write_text('{"q1": {"a": 1}, "q2": {"a": 1}}')
    (files / "run.json").write_text('{"q1": {"a": 3, "b": 2, "c": 1}, "q2": {"x": 1}}')
    (files / "labels.jsonl").write_text('{"query_id": "q1", "item_id": "b", "grade": 0}\n')
    bounds = evaluated(run)["systems"][0]["bounds"]
    # One of three, and one of one.
    assert bounds["P@5"]["unjudged"] == pytest.approx((1 / 3 + 1) / 2)


def test_nothing_is_said_of_unjudged_items_where_there_are_none(run, files):
    told = run("eval", "run.json", "--gold", "gold.json", "-m", "P@5", "--judged", "labels.jsonl")
    assert "covers only judged items" not in told.out


def test_labels_that_turn_two_systems_round_are_told(run, files):
    (files / "gold.json").write_text('{"q1": {"a": 1}, "q2": {"a": 1}}')
    (files / "old.json").write_text('{"q1": ["x", "y"], "q2": ["a", "y"]}')
    (files / "new.json").write_text('{"q1": ["a", "z"], "q2": ["a", "z"]}')
    labels = [
        json.dumps({"query_id": query, "item_id": item, "grade": grade})
        for query in ("q1", "q2")
        for item, grade in (("x", 1), ("y", 1), ("z", 0))
    ]
    (files / "labels.jsonl").write_text("\n".join(labels) + "\n")
    words = ("old.json", "new.json", "--gold", "gold.json", "-m", "P@2, P@1")
    for command in ("compare", "eval"):
        done = run(command, *words, "--judged", "labels.jsonl", "-o", "r.json", "-o", "r.md")
        (told,) = json.loads((files / "r.json").read_text())["judged"]["reversed"]
        # On gold 0.25 and 0.5; with the labels 1 and 0.5. P@1 is 0.5 and 1, then 1 and 1.
        assert told == {
            "measure": "P@2",
            "baseline": "old",
            "system": "new",
            "gold": 0.25,
            "gold_and_judge": -0.5,
        }
        for text in (done.out, (files / "r.md").read_text()):
            assert "P@2 rises by 0.2500 on gold, but falls by 0.5000 with the labels" in text


def test_precision_can_only_rise_and_ndcg_may_fall():
    gold, found = Gold.from_dict({"q": {"a": 2}}), Run.from_dict({"q": ["a"]})
    both = with_labels(gold, Gold.from_dict({"q": {"b": 2}}), Conventions(), query_ids=["q"])
    before, after = (evaluate(found, one, ["P@1", "nDCG@2"]).means() for one in (gold, both.gold))
    assert before == {"P@1": 1.0, "nDCG@2": 1.0}
    assert after["P@1"] == 1.0
    assert after["nDCG@2"] == pytest.approx(1 / (1 + 1 / math.log2(3)))


def test_queries_without_gold_take_no_part_on_either_side():
    gold = Gold.from_dict({"q1": {"a": 1}, "q2": {"b": 0}, "q3": {}})
    labels = Gold.from_dict({"q1": {"x": 1}, "q2": {"x": 2}, "q3": {"x": 2}})
    both = with_labels(gold, labels, Conventions(), query_ids=["q1", "q2", "q3"])
    assert both.gold.frame.filter(item_id="x")["query_id"].to_list() == ["q1"]
    assert (both.counts["added"], both.counts["elsewhere"]) == (1, 2)


def test_a_label_below_0_is_no_judgment(run, files):
    """It is pooled and not judged: nothing is added, the holes stay, and it is said."""
    before = evaluated(run)
    for line in (files / "labels.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["item_id"] not in GOLD[row["query_id"]]:
            break
    kept = [one for one in (files / "labels.jsonl").read_text().splitlines() if one != line]
    (files / "labels.jsonl").write_text("\n".join([*kept, json.dumps(row | {"grade": -1})]) + "\n")
    after = evaluated(run)
    assert after["judged"]["added"] == before["judged"]["added"] - 1
    assert after["judged"]["elsewhere"] == 0
    assert after["judged"]["not_judged"] == 1
    assert after["systems"][0]["bounds"]["P@5"]["unjudged"] == pytest.approx(1 / 5 / len(QUERIES))
    words = ("--gold", "gold.json", "-m", "P@5", "--judged", "labels.jsonl", "-o", "r.md")
    told = "1 below 0: pooled, not judged"
    assert told in run("eval", "run.json", *words).out
    assert told in (files / "r.md").read_text()


def test_a_label_takes_the_place_of_gold_below_0():
    gold = Gold.from_dict({"q": {"a": 1, "b": -1, "c": -1}})
    both = with_labels(gold, Gold.from_dict({"q": {"b": 2}}), Conventions(), query_ids=["q"])
    grades = dict(both.gold.frame.select("item_id", "grade").rows())
    assert grades == {"a": 1, "b": 2, "c": -1}
    assert (both.counts["added"], both.counts["known"]) == (1, 0)


def test_terminal_and_markdown_show_both_sides(run, files):
    words = ("--gold", "gold.json", "-m", "P@5", "--judged", "labels.jsonl", "-o", "r.md")
    done = run("eval", "run.json", *words)
    assert "gold + judge" in done.out
    assert "label" in done.out
    assert "gold + judge" in (files / "r.md").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-m R@5 --judged labels.jsonl", "--judged is for P and nDCG"),
        ("-m P@5 --judged -", "cannot be standard input"),
        ("-m P@5 --judged other.jsonl", "holds no label of a query that has gold"),
        ("-m P@5 --judged missing.jsonl", "missing.jsonl"),
        ("-m P@5 --judged below.jsonl", "no grade: 1 label below 0 (pooled, not judged); judge"),
        ("-m P@5 --judged above.jsonl", "grade is 101; a grade is from 0 to 100"),
    ],
)
def test_what_cannot_be_used_is_refused(run, files, words, told):
    for name, query, grade in (("other", "x", 1), ("below", "q00", -1), ("above", "q00", 101)):
        line = json.dumps({"query_id": query, "item_id": "y", "grade": grade})
        (files / f"{name}.jsonl").write_text(f"{line}\n")
    done = run("eval", "run.json", "--gold", "gold.json", *words.split())
    assert (done.code, done.out) == (2, "")
    assert told in done.err


def test_labels_of_items_do_not_go_with_documents():
    gold = Gold.from_dict({"q": {"a": 1}})
    with pytest.raises(InputError, match="labels are of items"):
        with_labels(gold, gold, conventions_of("karat", {"level": "doc"}), query_ids=["q"])


def test_a_karat_yaml_can_name_the_labels(run, files):
    (files / "corpus.jsonl").write_text('{"item_id": "d01", "text": "one"}\n')
    (files / "queries.jsonl").write_text('{"query_id": "q00", "text": "one"}\n')
    (files / "karat.yaml").write_text(
        "queries: queries.jsonl\ngold: gold.json\ncorpus: corpus.jsonl\njudged: labels.jsonl\n"
        "systems: {bow: {retriever: bow}}\nmeasures: [P@5]\nsettings: {missing_ids: allow}\n"
    )
    document = json.loads(run("run", "--json").out)
    assert set(document["systems"][0]["bounds"]) == {"P@5"}
    assert document["judged"]["elsewhere"] > 0


def both_sides(gold, labels, measures, **settings):
    """Means on gold and labels as karat has them, and on gold that holds the labels anyway."""
    conventions = Conventions(**settings)
    prepared = prepare(gold, conventions)
    run = Run.from_dict({"q1": ["a", "b"], "q2": ["c", "d"]})
    chosen = parse_measures(measures, conventions=conventions)
    labelled = with_labels(gold, labels, conventions, query_ids=prepared.query_ids)
    told = of_the_same_queries(
        score(run, prepare(labelled.gold, conventions), chosen), score(run, prepared, chosen)
    )
    frame = pl.concat([gold.frame, labels.frame.select(gold.frame.columns)])
    whole = Gold.from_frame(frame, query_ids=gold.query_ids)
    return told.means(), score(run, prepare(whole, conventions), chosen).means()


def test_labels_count_where_a_query_without_relevant_gold_counts_as_0():
    gold = Gold.from_dict({"q1": {"a": 1}, "q2": {"x": 0}})
    labels = Gold.from_dict({"q1": {"b": 1}, "q2": {"c": 1, "d": 0}})
    told, whole = both_sides(gold, labels, "P@2, nDCG@2", empty_gold="zero")
    assert told == whole
    assert told["P@2"] == 0.75


def test_labels_count_for_every_measure_that_scores_a_query_and_bring_none_into_a_mean():
    gold = Gold.from_dict({"q1": {"a": 1}, "q2": {"c": 2}})
    labels = Gold.from_dict({"q1": {"b": 2}, "q2": {"d": 2}})
    told, whole = both_sides(gold, labels, "P(rel=1)@2, nDCG@2, P@2", rel=2)
    for name in ("P(rel=1)@2", "nDCG@2"):
        assert told[name] == whole[name]
    # By the grades that it asks for, the first query has no relevant gold; q2 has two.
    assert (told["P@2"], whole["P@2"]) == (1.0, 0.75)
