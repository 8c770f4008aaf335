"""Examples that can be worked by hand, from a lesson on retrieval metrics, through the commands."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from karat.cli.main import main


@pytest.fixture
def karat(tmp_path, monkeypatch, capfd):
    """Calls karat in an empty folder; gives the document that it prints."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str):
        capfd.readouterr()
        code = main([*arguments, "--json"])
        out, err = capfd.readouterr()
        assert code == 0, err
        return json.loads(out)

    return call


def write(records, gold, queries=None):
    """A run log, qrels, and queries where they have attributes."""
    lines = {"run.jsonl": records, "queries.jsonl": queries or []}
    for name, rows in lines.items():
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = (f"{query} 0 {item} {grade}\n" for query, item, grade in gold)
    Path("qrels.txt").write_text("".join(judged))


def filled(query, length, **places):
    at = {rank: item for item, rank in places.items()}
    return [at.get(rank, f"{query}x{rank}") for rank in range(1, length + 1)]


def at_ranks(ranks, length=50):
    """One query for each rank at which its only gold item stands; None: nowhere."""
    records, gold = [], []
    for n, rank in enumerate(ranks):
        places = {} if rank is None else {f"gold{n}": rank}
        query = f"q{n:03}"
        records.append({"query_id": query, "k": length, "topk": filled(query, length, **places)})
        gold.append((query, f"gold{n}", 1))
    return records, gold


ASKED = ("run.jsonl", "--gold", "qrels.txt")


def test_relevant_a_and_b_in_the_list_x_a_y_z_w(karat):
    """R = {A, B}, L = [X, A, Y, Z, W]: R@5 = 1/2, P@5 = 1/5, Hit@5 = 1."""
    record = {"query_id": "q", "k": 5, "topk": ["X", "A", "Y", "Z", "W"]}
    write([record], [("q", "A", 1), ("q", "B", 1)])
    told = karat("sweep", *ASKED, "-m", "R", "-m", "P", "-m", "Hit", "--k", "1,2,5")
    lines = told["systems"][0]["measures"]
    assert [point["mean"] for point in lines["R"]["points"]] == [0, 0.5, 0.5]
    assert [point["mean"] for point in lines["P"]["points"]] == [0, 0.5, 0.2]
    assert [point["mean"] for point in lines["Hit"]["points"]] == [0, 1, 1]


def test_r_at_50_of_93_but_r_at_5_of_61(karat):
    """Of 100 queries 61 have their gold in the top 5, 32 below, 7 nowhere."""
    write(
        *at_ranks(
            [1 + n % 5 for n in range(61)] + [20 + n for n in range(30)] + [6, 7] + [None] * 7,
            length=100,
        )
    )
    (system,) = karat("diagnose", *ASKED)["systems"]
    found = {one["rule"]: one for one in system["findings"]}
    sentence = found["ranked_too_low"]["sentence"]
    assert sentence.startswith("R@50 0.93 but R@5 0.61: the evidence is found and ranked too low")
    assert "reranker" in sentence
    classes = system["failures"]["classes"]
    assert (classes["low_rank"], classes["complete_miss"]) == (30, 7)
    assert sum(classes.values()) == 37


def test_a_curve_at_1_3_5_10_20_flattens_where_nothing_more_is_found(karat):
    """Of 100 queries 50 at rank 1, 30 at 2, 15 at 4, 1 at 15, 4 nowhere."""
    write(*at_ranks([1] * 50 + [2] * 30 + [4] * 15 + [15] + [None] * 4))
    told = karat("sweep", *ASKED, "-m", "R", "--k", "1,3,5,10,20")
    line = told["systems"][0]["measures"]["R"]
    means = [point["mean"] for point in line["points"]]
    assert means == [0.5, 0.8, 0.95, 0.95, 0.96]
    # 0.96 betters 0.95 by 1 %, and 0.95 betters 0.8 by 16 %.
    assert line["knee"] == 5
    area = (2 * (0.5 + 0.8) + 2 * (0.8 + 0.95) + 5 * (0.95 + 0.95) + 10 * (0.95 + 0.96)) / 2 / 19
    assert line["area"]["mean"] == pytest.approx(area, abs=1e-12)
    # A perfect order of the 20 items would have all that was found at the top.
    assert line["points"][0]["headroom"] == pytest.approx(0.96 - 0.5, abs=1e-12)


def test_raw_top_50_against_reranked_top_5(karat):
    """The reranker lifts gold from rank 4 to 1 in ten queries and drops it from 1 in two."""
    records, gold = [], []
    for n in range(12):
        query, item = f"q{n:02}", f"gold{n}"
        raw = filled(query, 50, **{item: 4 if n < 10 else 1})
        top = [item, *(one for one in raw if one != item)][:5]
        final = top if n < 10 else [one for one in raw if one != item][:5]
        records.append({"query_id": query, "k": 5, "k_raw": 50, "raw": raw, "topk": final})
        gold.append((query, item, 1))
    write(records, gold)
    (system,) = karat("stages", *ASKED, "-k", "5")["systems"]
    assert system["raw"]["R@50"]["mean"] == 1
    rows = {row["measure"]: row for row in system["effect"]["comparisons"]}
    raw = (10 / math.log2(5) + 2) / 12
    assert rows["nDCG@5"]["baseline_mean"] == pytest.approx(raw, abs=1e-12)
    assert rows["nDCG@5"]["delta"] == pytest.approx(10 / 12 - raw, abs=1e-12)
    assert rows["P@5"]["delta"] == pytest.approx(10 / 60 - 12 / 60, abs=1e-12)


def test_three_hard_negatives_at_ranks_1_to_3(karat):
    """Gold at rank 1 falls to rank 4: nDCG@5 from 1 to 1 / log2(5)."""
    records = [
        {"query_id": f"q{n}", "k": 10, "topk": filled(f"q{n}", 10, gold=1)} for n in range(4)
    ]
    gold = [(f"q{n}", "gold", 1) for n in range(4)]
    gold += [(f"q{n}", f"negative{m}", 0) for n in range(4) for m in range(3)]
    write(records, gold)
    told = karat("stress", *ASKED, "--insert", "3", "--at", "1,2,3", "-m", "nDCG@5")
    (scenario,) = told["systems"][0]["scenarios"]
    cell = scenario["measures"]["nDCG@5"]
    assert cell["before"] == 1
    assert cell["drop"] == pytest.approx(1 - 1 / math.log2(5), abs=1e-12)
    assert scenario["how"] == "list edited"


def test_newer_documents_are_taken_out_and_the_rest_is_scored_again(karat):
    """In three of four queries the gold is a newer document at rank 1; without it nothing is."""
    records, gold, queries = [], [], []
    for n in range(4):
        new = n < 3
        hits = [
            {"chunk_id": f"g{n}", "doc_version": "2025-08-01" if new else "2025-01-01"},
            {"chunk_id": f"x{n}", "doc_version": "2025-01-01"},
        ]
        records.append({"query_id": f"q{n}", "k": 2, "topk": hits})
        gold.append((f"q{n}", f"g{n}", 1))
        queries.append({"query_id": f"q{n}", "text": "?", "as_of": "2025-06-30"})
    write(records, gold, queries)
    told = karat("diagnose", *ASKED, "--queries", "queries.jsonl", "-k", "2")
    freshness = told["systems"][0]["freshness"]
    assert freshness["places"] == {"all": 8, "newer": 3, "unknown": 0}
    recall = next(one for one in freshness["rescored"] if one["measure"] == "R@2")
    assert (recall["as_it_is"], recall["enforced"]) == (1, 0.25)


def test_failures_are_counted_under_five_keys(karat):
    """5 not found, 4 at rank 15, 3 behind the same ten wrong items, and 88 at rank 1."""
    records, gold = at_ranks([None] * 5 + [15] * 4 + [1] * 88, length=100)
    for n in range(3):
        crowd = [f"wrong{m}" for m in range(10)]
        topk = [*crowd, f"late{n}", *filled(f"z{n}", 89)]
        records.append({"query_id": f"z{n}", "k": 100, "topk": topk})
        gold.append((f"z{n}", f"late{n}", 1))
    write(records, gold)
    told = karat("eval", *ASKED)["systems"][0]["failures"]
    assert told["failures_by_category"] == {
        "complete_miss": 5,
        "low_rank": 4,
        "false_positive_dominance": 3,
        "threshold_exclusion": 0,
        "embedding_mismatch": 0,
    }
