"""``--judged`` with ``--human``: precision without the errors of a judge, in eval and compare."""

from __future__ import annotations

import json

import pytest

# Eight pairs, all in the top 2 and none in the gold. People call five relevant; the judge finds
# four of these, and calls one of the three others relevant too.
PEOPLE = dict(zip("abcdefgh", (1, 1, 1, 1, 1, 0, 0, 0), strict=True))
JUDGE = dict(zip("abcdefgh", (1, 1, 1, 1, 0, 1, 0, 0), strict=True))
LISTS = {"q1": "af", "q2": "bg", "q3": "ch", "q4": "de"}
TURNED = {"q1": "a", "q2": "b", "q3": "c", "q4": "d"}


def labels(grades, rater):
    lines = (
        {"query_id": query, "item_id": item, "grade": grades[item], "rater": rater}
        for query, items in LISTS.items()
        for item in items
    )
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lists in (("full", LISTS), ("half", TURNED)):
        (tmp_path / f"{name}.trec").write_text(
            "".join(
                f"{query} Q0 {item} {rank} {9 - rank} t\n"
                for query, items in lists.items()
                for rank, item in enumerate(items, 1)
            )
        )
    (tmp_path / "qrels.txt").write_text("".join(f"{query} 0 gold 1\n" for query in LISTS))
    (tmp_path / "judge.jsonl").write_text(labels(JUDGE, "judge"))
    (tmp_path / "people.jsonl").write_text(labels(PEOPLE, "ana"))
    return tmp_path


def call(run, *words):
    both = ("--judged", "judge.jsonl", "--human", "people.jsonl")
    return run(*words, "--gold", "qrels.txt", "-m", "P@2", *both, "--json")


def test_precision_is_corrected_for_what_the_judge_gets_wrong(run):
    found = json.loads(call(run, "eval", "full.trec").out)
    cell = found["systems"][0]["bounds"]["P@2"]
    assert cell["gold"]["mean"] == 0
    assert cell["gold_and_judge"]["mean"] == 5 / 8
    own = cell["corrected"]
    assert own["sensitivity"] == pytest.approx(4 / 5)
    assert own["specificity"] == pytest.approx(2 / 3)
    assert own["value"] == pytest.approx((5 / 8 + 2 / 3 - 1) / (4 / 5 + 2 / 3 - 1))
    assert "P@k only" in own["only"]
    assert [one["name"] for one in found["inputs"]["human"]] == ["people.jsonl"]


def test_a_difference_of_precision_is_corrected_too(run):
    found = json.loads(call(run, "compare", "full.trec", "half.trec").out)
    (row,) = found["comparisons"]
    # Of half.trec the judge calls every item relevant, and every second place is empty.
    informed = 4 / 5 + 2 / 3 - 1
    full, half = (5 / 8 + 2 / 3 - 1) / informed, min((1 + 2 / 3 - 1) / informed, 1) / 2
    assert row["corrected"]["value"] == pytest.approx(half - full)


def test_the_page_says_what_is_corrected_and_what_is_not(run):
    both = ("--judged", "judge.jsonl", "--human", "people.jsonl")
    out = run("eval", "full.trec", "--gold", "qrels.txt", "-m", "P@2,nDCG@2", *both).out
    assert "sensitivity 0.8000, specificity 0.6667 on 8 pairs that people judged too" in out
    assert "P@k only: nDCG, RR and other ranked measures cannot be corrected this way" in out


def test_a_judge_no_better_than_chance_has_no_corrected_number(run, files):
    turned = {item: 1 - grade for item, grade in PEOPLE.items()}
    (files / "judge.jsonl").write_text(labels(turned, "judge"))
    found = call(run, "eval", "full.trec")
    assert found.code == 0
    own = json.loads(found.out)["systems"][0]["bounds"]["P@2"]["corrected"]
    assert own["value"] is None
    assert own["ci"] is None
    assert "no better than chance" in own["because"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--human", "people.jsonl"), "name them with --judged"),
        (("--judged", "judge.jsonl", "--human", "judge.jsonl"), "the same file"),
        (("--judged", "judge.jsonl", "--human", "-"), "standard input"),
        (("--judged", "judge.jsonl", *("--human", "people.jsonl") * 2), "names a file twice"),
        (("--judged", "judge.jsonl", "--human", "people.jsonl", "-m", "nDCG@2"), "P@k only"),
        (("--judged", "judge.jsonl", "--human", "nobody.jsonl"), "no such file"),
    ],
)
def test_what_cannot_be_corrected_is_refused(run, words, says):
    measures = () if "-m" in words else ("-m", "P@2")
    found = run("eval", "full.trec", "--gold", "qrels.txt", *measures, *words)
    assert found.code == 2
    assert says in found.err


def test_a_config_names_judge_people_and_strictness(run, files):
    config = """
queries: queries.jsonl
gold: qrels.txt
corpus: corpus.jsonl
judged: judge.jsonl
human: [people.jsonl]
strict_bounds: true
measures: [P@2]
settings: {missing_ids: allow}
systems: {bow: {retriever: bow, k: 2}}
gates: [{measure: P@2, min: 0.4, on: mean}]
"""
    (files / "karat.yaml").write_text(config)
    queries = ({"query_id": query, "text": " ".join(items)} for query, items in LISTS.items())
    (files / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in queries))
    items = ({"item_id": item, "text": item} for item in PEOPLE)
    (files / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in items))
    found = run("run", "--json")
    told = json.loads(found.out)
    # Nothing is in the gold and everything may be relevant: P@2 lies between 0 and 1.
    assert found.code == 3, found.err
    assert told["gates"][0]["verdict"] == "unmeasurable"
    assert told["systems"][0]["bounds"]["P@2"]["corrected"]["value"] == pytest.approx(5 / 8)
