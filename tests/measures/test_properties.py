"""What holds for every registered measure; a new one is covered by being registered."""

from __future__ import annotations

import itertools
import math
import os
import random
import subprocess
import sys
from functools import cache

import polars as pl
import pytest
import worlds

import karat
import karat.data.tables
from karat.formats.readers import scan_run
from karat.measure.registry import MEASURES
from karat.measure.scores import Summary

SEEDS = range(12)
NAMES = list(MEASURES)
SETTINGS = {
    "default": {},
    "level=doc": {"level": "doc"},
    "empty_gold=zero": {"empty_gold": "zero"},
    "rel=2": {"rel": 2},
    "depth=3": {"depth": 3},
    "missing=skip": {"missing": "skip"},
}


@cache
def scores(seed: int, setting: str = "default") -> karat.Scores:
    return worlds.world(seed).score(worlds.every(), **SETTINGS[setting])


@cache
def summaries(seed: int, setting: str = "default") -> dict[str, Summary]:
    return scores(seed, setting).summaries


def columns(name: str) -> list[str]:
    return [str(karat.parse_measure(spelling)) for spelling in worlds.ALL[name]]


def known(values: pl.Series) -> list[float]:
    return values.drop_nulls().to_list()


# Everything else is a share and lies in [0, 1].
AT_MOST = {
    "DCG": math.inf,
    "CG": math.inf,
    "NumRet": math.inf,
    "NumRel": math.inf,
    "NumRelRet": math.inf,
    "DistinctDocs": math.inf,
    "Coverage": math.inf,
    "latency": math.inf,
    "cost": math.inf,
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", NAMES)
def test_values_stay_within_bounds(name, setting):
    seen = 0
    for seed in SEEDS:
        for column in columns(name):
            for value in known(scores(seed, setting).table[column]):
                assert 0 <= value <= AT_MOST.get(name, 1.0), (
                    f"{column} is {value}; a measure that can exceed 1 says bounded=False and"
                    " stands in AT_MOST"
                )
                seen += 1
    assert seen > 0


@pytest.mark.parametrize("name", ["Coverage", "GMAP"])
def test_the_one_number_of_a_set_is_a_share(name):
    for seed, column in itertools.product(SEEDS, columns(name)):
        assert 0 <= summaries(seed)[column].mean <= 1
        assert summaries(seed)[column].quantiles is None, "it is no middle of queries' values"


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_input_rows_changes_no_bit(seed, setting):
    given = scores(seed, setting)
    other = worlds.world(seed).shuffled(seed).score(worlds.every(), **SETTINGS[setting])
    assert other.table.sort("query_id").rows() == given.table.sort("query_id").rows()
    assert other.means() == given.means()
    assert other.counts == given.counts


def spans(seed: int) -> tuple[karat.Run, karat.Gold]:
    """Chunks of two documents, by score with ties, against spans that may overlap."""
    chance = random.Random(seed)
    gold, hits = [], []
    for query in ("q", "r", "s"):
        for start in chance.sample(range(0, 80, 5), 4):
            end = start + chance.choice([5, 10, 20])
            gold.append((query, chance.choice("AB"), chance.choice([0, 1, 1, 2, 3]), start, end))
        for start in chance.sample(range(0, 90, 7), 8):
            chunk = f"{chance.choice('AB')}:{start}-{start + chance.choice([3, 7, 15])}"
            hits.append((query, chunk, float(chance.randint(0, 5))))
    judged = pl.DataFrame(
        gold, schema=["query_id", "item_id", "grade", "start", "end"], orient="row"
    ).unique(["query_id", "item_id", "start", "end"], keep="first", maintain_order=True)
    run = pl.DataFrame(hits, schema=["query_id", "item_id", "score"], orient="row")
    return karat.Run.from_frame(run), karat.Gold.from_frame(judged)


SPANNED = [
    name
    for name in MEASURES
    if not MEASURES[name].needs and name not in {"latency", "cost", "EL_F1"}
]


@pytest.mark.parametrize("seed", range(20))
def test_spans_keep_bounds_ceilings_and_order(seed):
    run, gold = spans(seed)
    measures = [
        spelling
        for name in SPANNED
        for spelling in worlds.ALL[name]
        if not any(word in spelling for word in ("tok", "corpus", "items"))
    ]
    given = karat.evaluate(run, gold, measures, settings={"level": "span"})
    for name, summary in given.summaries.items():
        values = known(given.table[name])
        family = karat.parse_measure(name).name
        assert all(0 <= value <= AT_MOST.get(family, 1.0) for value in values), (
            f"{name} is {max(values)}: one chunk can hold several gold spans, so that the top k"
            " of r.found can be more than k; r.hits counts chunks"
        )
        if summary.better == "higher" and summary.mean is not None:
            assert summary.mean <= summary.ceiling + 1e-12, name
    mixed = karat.Run.from_frame(run.hits.sample(fraction=1.0, shuffle=True, seed=seed))
    other = karat.evaluate(mixed, gold, measures, settings={"level": "span"})
    assert other.table.rows() == given.table.rows()


def needs_the_others(spelling: str) -> bool:
    """FalseEvidence with keep takes its threshold from the other queries."""
    return spelling.startswith("FalseEvidence") and "threshold" not in spelling


@pytest.mark.parametrize("seed", SEEDS)
def test_other_queries_change_no_bit_of_a_querys_value(seed):
    measures = [spelling for spelling in worlds.every() if not needs_the_others(spelling)]
    # A world of one query that has no as_of or entities lacks them altogether.
    poor = [m for m in measures if not m.startswith(("Fresh", "EL_F1"))]
    world = worlds.world(seed)
    together = {row["query_id"]: row for row in scores(seed).table.iter_rows(named=True)}
    for query in worlds.QUERIES:
        alone = world.only(query).score(poor if query == "bare" else measures)
        (row,) = alone.table.iter_rows(named=True)
        assert row == {column: together[query][column] for column in row}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", NAMES)
def test_no_value_beats_its_ceiling(name, setting):
    for seed, column in itertools.product(SEEDS, columns(name)):
        summary = summaries(seed, setting)[column]
        if summary.ceiling is None or summary.mean is None:
            continue
        if summary.better == "higher":
            assert summary.mean <= summary.ceiling + 1e-12, column
        else:
            assert summary.mean >= summary.ceiling, column


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_query_beats_its_own_ceiling(setting):
    compared = 0
    for seed in SEEDS:
        result = scores(seed, setting)
        for column, (best, _) in result.ceilings.items():
            rows = zip(result.table["query_id"], result.table[column], best.tolist(), strict=True)
            for query, value, ceiling in rows:
                if value is not None:
                    compared += 1
                    assert value <= ceiling + 1e-12, (
                        f"seed {seed}, query {query}: {column} is {value}, above {ceiling}, what"
                        " the function gives the ideal list (r.is_ideal), which no budget of"
                        " tokens cuts: see cut_of_gold"
                    )
    assert compared > 1000


NO_CEILING = {"Sim", "NumRet", "NumRel", "NumRelRet", "latency", "cost", "EL_F1"}


@pytest.mark.parametrize("name", NAMES)
def test_a_ceiling_is_given_wherever_one_is_defined(name):
    for column in columns(name):
        plain = "tok" not in column and "corpus" not in column and "@k" not in column
        if plain and summaries(0)[column].n:
            assert (summaries(0)[column].ceiling is None) == (name in NO_CEILING)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_query_gets_the_worst_value(name):
    better = MEASURES[name].better
    for seed, column in itertools.product(SEEDS, columns(name)):
        table = scores(seed).table
        value = table.filter(query_id="gone")[column].item()
        if name in {"latency", "cost"} or name == "Sim":
            assert value is None
        elif name == "NumRel":
            assert value > 0
        elif name == "FalseEvidence":
            assert value is None
        else:
            worst = 1.0 if better == "lower" else 0.0
            assert value == worst, f"{column} of a query that the run lacks is {value}, not {worst}"


def test_a_missing_no_answer_query_counts_as_false_evidence():
    world = worlds.world(3)
    hits = world.run.hits.filter(pl.col("query_id") != "none")
    gone = worlds.replace(world, run=karat.Run.from_frame(hits))
    table = gone.score(["FalseEvidence(threshold=1)@3"]).table
    assert table.filter(query_id="none")["FalseEvidence(threshold=1)@3"].item() == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_missing_skip_leaves_the_query_out(name):
    for column in columns(name):
        assert scores(0, "missing=skip").table.filter(query_id="gone")[column].item() is None


def bits(result: karat.Scores) -> object:
    return result.table.rows(), result.means(), result.counts, result.status.tolist()


@pytest.mark.parametrize("rows", [1, 2, 5, 17])
@pytest.mark.parametrize("seed", range(6))
def test_block_size_changes_no_bit(monkeypatch, seed, rows):
    world = worlds.world(seed, calls=False)
    measures = worlds.every(without_calls=True)
    whole = bits(world.score(measures))
    monkeypatch.setattr(karat.data.tables, "BLOCK_ROWS", rows)
    assert len(list(world.run.blocks())) > 1 or rows > 5
    assert bits(world.score(measures)) == whole


@pytest.mark.parametrize("interleaved", [False, True], ids=["by query", "interleaved"])
def test_block_size_changes_no_bit_of_a_file_read_in_blocks(monkeypatch, tmp_path, interleaved):
    chance = random.Random(5)
    rows = [
        f"q{query} Q0 d{item} 1 {chance.choice([chance.random(), 0.5])} tag\n"
        for query in range(80)
        for item in range(chance.randint(1, 60))
    ]
    if interleaved:
        chance.shuffle(rows)
    (tmp_path / "run.trec").write_text("".join(rows))
    gold = karat.Gold.from_dict(
        {f"q{query}": {f"d{item}": item % 4 for item in range(0, 60, 7)} for query in range(80)}
    )
    measures = ["nDCG@10", "AP", "RR", "ERR@10", "RBP", "infAP", "Bpref", "R@20", "Judged@10"]
    whole = karat.evaluate(karat.read_run(tmp_path / "run.trec"), gold, measures)
    monkeypatch.setattr(karat.data.tables, "BLOCK_ROWS", 50)
    parts = karat.evaluate(scan_run(tmp_path / "run.trec"), gold, measures)
    assert bits(parts) == bits(whole)


def test_the_number_of_threads_changes_no_bit():
    program = """
import hashlib, random
import karat, polars
chance = random.Random(7)
items = [f"d{number}" for number in range(200)]
run = {
    f"q{number}": {item: chance.choice([chance.random(), 0.5]) for item in items}
    for number in range(300)
}
gold = {query: {item: place % 4 for place, item in enumerate(items[::7])} for query in run}
names = "nDCG@10, nDCG, AP, RR, ERR, RBP, infAP, Bpref, GMAP, AUC@20"
scores = karat.evaluate(karat.Run.from_dict(run), karat.Gold.from_dict(gold), names)
text = repr(scores.table.rows()) + repr(scores.summaries)
print(polars.thread_pool_size(), hashlib.sha256(text.encode()).hexdigest())
"""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "POLARS_MAX_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for threads in ("1", "2")
    ]
    assert [threads for threads, _ in outputs] == ["1", "2"]
    assert outputs[0][1] == outputs[1][1]


def has_range(name: str) -> bool:
    """Measures of whole lists or sets have none, nor do those where relevant first is not best."""
    whole = name.startswith(("Judged", "Hole", "RBPres", "Coverage", "NumRelRet"))
    return not (whole or name.startswith("infAP") or "gain={" in name)


@pytest.mark.parametrize("seed", range(25))
def test_the_range_of_ties_is_that_of_all_orders(seed):
    chance = random.Random(seed)
    items = ["a", "b", "c", "d", "e", "f"]
    # grades below 0 are pooled but not judged, which only infAP and Bpref tell apart
    grades = {item: chance.choice([-1, 0, 1, 1, 2, 3]) for item in items[:5]} | {"g": 2}
    gold = karat.Gold.from_dict({"q": grades})
    scores_of = {item: float(chance.randint(0, 2)) for item in items}
    measures = [
        spelling
        for spelling in worlds.every(without_calls=True)
        if not MEASURES[karat.parse_measure(spelling).name].needs
        and "tok" not in spelling
        and "corpus" not in spelling
        and "items" not in spelling
    ]
    reported = karat.evaluate(karat.Run.from_dict({"q": scores_of}), gold, measures).summaries
    orders = [
        order
        for order in itertools.permutations(items)
        if all(scores_of[a] >= scores_of[b] for a, b in itertools.pairwise(order))
    ]
    every_order = {str(number): list(order) for number, order in enumerate(orders)}
    golds = karat.Gold.from_dict(dict.fromkeys(every_order, grades))
    whole = {"short_lists": "complete"}
    lists = karat.Run.from_dict(every_order)
    table = karat.evaluate(lists, golds, measures, settings=whole).table
    for name, summary in reported.items():
        low, high = summary.ties or (summary.mean, summary.mean)
        if not has_range(name):
            assert summary.ties is None, name
        elif summary.mean is not None:
            least = 1e-5 if name.startswith("GMAP") else 0.0
            assert low == pytest.approx(max(table[name].min(), least), abs=1e-12), name
            assert high == pytest.approx(max(table[name].max(), least), abs=1e-12), name


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["score", "grade"])
def test_nan_and_infinity_are_refused_with_their_row(bad, where):
    column = {"score": karat.Run, "grade": karat.Gold}[where]
    frame = pl.DataFrame({"query_id": ["q", "q"], "item_id": ["a", "b"], where: [1.0, bad]})
    with pytest.raises(karat.InputError, match=rf"in memory:2: {where} is .*finite"):
        column.from_frame(frame)


@pytest.mark.parametrize("name", NAMES)
def test_every_measure_says_what_it_means(name):
    first = MEASURES[name].about.split("\n\n")[0]
    assert len(first.split()) >= 5
    assert first[0].isupper() or not first[0].isalpha()


@pytest.mark.parametrize("spelling", worlds.every())
def test_a_measure_prints_as_what_it_is_read_from(spelling):
    measure = karat.parse_measure(spelling)
    again = karat.parse_measure(str(measure))
    assert again == measure
    assert hash(again) == hash(measure)
    assert str(again) == str(measure)
    assert karat.parse_measure(measure) is measure
