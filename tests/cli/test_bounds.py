"""Bounds on the command line: what figures and verdicts could be, whatever is unjudged."""

from __future__ import annotations

import json

import pytest

from karat.evaluation import evaluation

# Three queries worked out by hand: x, y, z and w are unjudged.
GOLD = {"q1": {"a": 2, "b": 1}, "q2": {"a": 1, "c": 0}, "q3": {"d": 1}}
A = {"q1": ["a", "x", "b"], "q2": ["y", "a"], "q3": ["z", "d"]}
B = {"q1": ["a", "b", "w"], "q2": ["a", "y"], "q3": ["d", "z"]}
# So many that a difference in each of them is no chance.
MANY = [f"q{at}" for at in range(10)]


def write_run(path, lists):
    path.write_text(
        "".join(
            f"{query} Q0 {item} {rank} {100 - rank} t\n"
            for query, items in lists.items()
            for rank, item in enumerate(items, 1)
        )
    )


def write_gold(path, gold):
    path.write_text(
        "".join(f"{q} 0 {item} {grade}\n" for q, own in gold.items() for item, grade in own.items())
    )


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a.trec", A)
    write_run(tmp_path / "b.trec", B)
    write_gold(tmp_path / "qrels.txt", GOLD)
    return tmp_path


@pytest.fixture
def many(tmp_path, monkeypatch):
    """One system has the gold first; the other has it second, below what nobody judged."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "first.trec", {query: ["a", "x"] for query in MANY})
    write_run(tmp_path / "second.trec", {query: ["x", "a"] for query in MANY})
    write_gold(tmp_path / "qrels.txt", {query: {"a": 1} for query in MANY})
    write_gold(tmp_path / "whole.txt", {query: {"a": 1, "x": 0} for query in MANY})
    return tmp_path


def told(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_every_measure_has_its_lowest_and_highest_value(run, small):
    found = told(run("eval", "a.trec", "--gold", "qrels.txt", "-m", "R@1,P@5,RR", "--json"))
    (system,) = found["systems"]
    assert system["unjudged"] == 3
    ends = {name: cell["bounds"] for name, cell in system["measures"].items()}
    # q1: a of 2 or, if x is relevant, of 3; q2 and q3: nothing, or one of two.
    assert ends["R@1"]["low"] == pytest.approx((1 / 3 + 0 + 0) / 3)
    assert ends["R@1"]["high"] == pytest.approx((1 / 2 + 1 / 2 + 1 / 2) / 3)
    assert ends["P@5"]["low"] == pytest.approx((2 / 5 + 1 / 5 + 1 / 5) / 3)
    assert ends["P@5"]["high"] == pytest.approx((3 / 5 + 2 / 5 + 2 / 5) / 3)
    assert (ends["RR"]["low"], ends["RR"]["high"]) == (pytest.approx(2 / 3), 1.0)
    assert all(one["exact"] for one in ends.values())


def test_a_difference_is_bounded_under_one_common_labelling(run, small):
    words = ("compare", "a.trec", "b.trec", "--gold", "qrels.txt", "-m", "P@5", "--json")
    found = told(run(*words))
    (row,) = found["comparisons"]
    # y and z are in both lists, so they move neither; x is in one list alone, and w in the other.
    low, high = row["bounds"]["delta"]
    assert (low, high) == (pytest.approx(-1 / 15), pytest.approx(1 / 15))
    assert not row["bounds"]["exact"]
    assert row["bounds"]["unjudged"] == 4


def test_the_terminal_says_between_what_a_figure_lies(run, small):
    out = run("eval", "a.trec", "--gold", "qrels.txt", "-m", "P@5").out
    assert "a: 3 unjudged items" in out
    assert "could put P@5 anywhere from 0.2667 to 0.4667" in out


def test_what_is_judged_throughout_has_no_line(run, many):
    out = run("eval", "second.trec", "--gold", "whole.txt", "-m", "RR").out
    assert "unjudged" not in out


@pytest.mark.parametrize(
    ("gate", "code", "word"),
    [
        ("{measure: R@1, min: 0.1, on: mean}", 0, "PASS"),
        ("{measure: R@1, min: 0.3, on: mean}", 3, "CANNOT TELL"),
        ("{measure: R@1, min: 0.6, on: mean}", 1, "FAIL"),
        # Out of reach on this gold, and within reach of more of it.
        ("{measure: P@5, min: 0.3, on: mean}", 3, "CANNOT TELL"),
        ("{measure: FPR@1, max: 0.7, on: mean}", 0, "PASS"),
        ("{measure: FPR@1, max: 0.1, on: mean}", 3, "CANNOT TELL"),
    ],
)
def test_a_strict_gate_decides_what_no_judgment_can_change(run, small, gate, code, word):
    (small / "gates.yaml").write_text(f"gates:\n  - {gate}\n")
    words = ("eval", "a.trec", "--gold", "qrels.txt", "--gates", "gates.yaml", "--strict-bounds")
    found = run(*words)
    assert (found.code, found.out.split("  ")[0]) == (code, word), found.err


def test_without_strict_bounds_unjudged_items_are_not_relevant_at_gates(run, small):
    (small / "gates.yaml").write_text("gates:\n  - {measure: P@5, min: 0.3, on: mean}\n")
    found = run("eval", "a.trec", "--gold", "qrels.txt", "--gates", "gates.yaml")
    assert found.code == 1


def test_a_verdict_that_judgments_could_change_is_unclear_when_strict(run, many):
    words = ("compare", "second.trec", "first.trec", "--gold", "qrels.txt", "-m", "RR")
    plain, strict = run(*words), run(*words, "--strict-bounds")
    assert plain.out.startswith("BETTER  first improves RR by 0.5")
    assert "RR could be anything from 0.0000 to +0.5000" in plain.out
    assert (strict.code, strict.out.split("  ")[0]) == (0, "UNCLEAR")
    assert run(*words, "--strict-bounds", "--require-verdict").code == 3


def test_a_regression_that_judgments_could_undo_is_not_confirmed_when_strict(run, many):
    words = ("compare", "first.trec", "second.trec", "--gold", "qrels.txt", "-m", "RR")
    plain, strict = run(*words), run(*words, "--strict-bounds")
    assert (plain.code, plain.out.split("  ")[0]) == (1, "WORSE")
    assert (strict.code, strict.out.split("  ")[0]) == (0, "UNCLEAR")


@pytest.mark.parametrize(
    ("runs", "code", "word"),
    [(("second", "first"), 0, "BETTER"), (("first", "second"), 1, "WORSE")],
)
def test_a_verdict_that_no_judgment_can_change_stays(run, many, runs, code, word):
    names = [f"{one}.trec" for one in runs]
    found = run("compare", *names, "--gold", "whole.txt", "-m", "RR", "--strict-bounds")
    assert (found.code, found.out.split("  ")[0]) == (code, word)


def test_identical_runs_stay_the_same_whatever_is_unjudged(run, many):
    (many / "again.trec").write_bytes((many / "second.trec").read_bytes())
    words = ("compare", "second.trec", "again.trec", "--gold", "qrels.txt", "--strict-bounds")
    found = run(*words, "-m", "RR")
    assert (found.code, found.out.split("  ")[0]) == (0, "SAME")


def test_bounds_can_be_declined(run, small):
    words = ("compare", "a.trec", "b.trec", "--gold", "qrels.txt", "-m", "P@5", "--json")
    found = told(run(*words, "--no-bounds"))
    assert "unjudged" not in found["systems"][0]
    assert "bounds" not in found["systems"][0]["measures"]["P@5"]
    assert found["comparisons"][0]["bounds"] is None


def test_runs_of_many_hits_are_bounded_only_when_asked(run, small, monkeypatch):
    monkeypatch.setattr(evaluation, "MOST_HITS", 3)
    words = ("eval", "a.trec", "--gold", "qrels.txt", "-m", "P@5", "--json")
    found = told(run(*words))
    assert "unjudged" not in found["systems"][0]
    assert found["bounds_left_out"].endswith("--bounds reports them here too")
    assert told(run(*words, "--bounds"))["systems"][0]["unjudged"] == 3


def test_large_files_are_bounded_only_when_asked(run, small, monkeypatch):
    monkeypatch.setattr(evaluation, "_MOST_RANGE_BYTES", 10)
    words = ("eval", "a.trec", "--gold", "qrels.txt", "-m", "P@5", "--json")
    found = told(run(*words))
    assert "unjudged" not in found["systems"][0]
    assert "--bounds" in found["bounds_left_out"]
    assert told(run(*words, "--bounds"))["systems"][0]["unjudged"] == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--strict-bounds", "--no-bounds"), "leave --no-bounds out"),
        (("--bounds", "--set", "level=doc"), "bounds are over judgments of items"),
        (("--strict-bounds", "--pairs", "all"), "--pairs all"),
        (("--strict-bounds", "--replicates"), "--replicates"),
    ],
)
def test_bounds_that_cannot_be_are_refused(run, small, words, says):
    found = run("compare", "a.trec", "b.trec", "--gold", "qrels.txt", *words)
    assert found.code == 2
    assert says in found.err


def test_gold_of_documents_has_no_bounds_and_scores_as_ever(run, small):
    words = ("eval", "a.trec", "--gold", "qrels.txt", "-m", "P@5", "--set", "level=doc", "--json")
    assert "unjudged" not in told(run(*words))["systems"][0]


def test_a_stored_baseline_cannot_be_bounded(run, small):
    store = ("--store", f"sqlite:///{small}/h.db")
    assert run("eval", "a.trec", "--gold", "qrels.txt", "--save", "--tag", "main", *store).code == 0
    words = ("compare", "b.trec", "--gold", "qrels.txt", "--baseline", "main", *store)
    assert told(run(*words, "--json"))["comparisons"][0]["bounds"] is None
    found = run(*words, "--strict-bounds")
    assert found.code == 2
    assert "a stored baseline has no lists" in found.err


def test_a_gate_that_passes_still_passes_when_a_label_raises_a_value(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"q{at}" for at in range(8)]
    write_run(
        tmp_path / "run.trec",
        {query: ["a"] if at < 4 else ["u", "a"] for at, query in enumerate(names)},
    )
    gold = {query: {"a": 1} for query in names}
    write_gold(tmp_path / "qrels.txt", gold)
    write_gold(tmp_path / "one.txt", gold | {"q7": {"a": 1, "u": 1}})
    (tmp_path / "gates.yaml").write_text("gates:\n  - {measure: RR, min: 0.44}\n")
    words = ("eval", "run.trec", "-m", "RR", "--gates", "gates.yaml")
    assert run(*words, "--gold", "qrels.txt").code == 0
    # Labels of the unjudged items can only raise RR, and the interval never falls with a value.
    assert run(*words, "--gold", "one.txt").code == 0
    assert run(*words, "--gold", "qrels.txt", "--strict-bounds").code == 0


def test_a_margin_moves_with_the_labels_of_the_baseline(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shared = [f"u{at}" for at in range(9)]
    write_run(tmp_path / "a.trec", {f"q{at}": ["a", *shared] for at in range(20)})
    write_run(
        tmp_path / "b.trec",
        {f"q{at}": ["a" if at else "b", *shared] for at in range(20)},
    )
    gold = {f"q{at}": {"a": 1, "b": 0} for at in range(20)}
    write_gold(tmp_path / "qrels.txt", gold)
    full = {query: own | dict.fromkeys(shared, 1) for query, own in gold.items()}
    write_gold(tmp_path / "full.txt", full)
    words = ("compare", "a.trec", "b.trec", "-m", "P@10", "--margin-on", "mean", "--margin", "0.03")
    # Worse by 0.005: more than 3 % of 0.1, less than 3 % of 1.
    assert run(*words, "--gold", "qrels.txt").code == 1
    assert run(*words, "--gold", "full.txt").code == 0
    assert run(*words, "--gold", "qrels.txt", "--strict-bounds").code == 0


def test_segments_wait_for_judgments_as_well(run, many):
    lines = ({"query_id": q, "text": q, "lang": "a" if q < "q5" else "b"} for q in MANY)
    (many / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("compare", "second.trec", "first.trec", "-m", "RR", "--by", "lang", "--json")
    strict = ("--queries", "queries.jsonl", "--strict-bounds")
    for gold, ends in (("qrels.txt", [0.0, 0.5]), ("whole.txt", [0.5, 0.5])):
        found = told(run(*words, "--gold", gold, *strict))
        rows = [row for row in found["comparisons"] if row["segment"] is not None]
        assert len(rows) == 2
        assert [row["bounds"]["delta"] for row in rows] == [ends, ends]


def test_the_grades_of_a_judge_are_possible_too(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run.trec", {"q1": ["a", "u"], "q2": ["a", "u"]})
    write_gold(tmp_path / "qrels.txt", {"q1": {"a": 1}, "q2": {"a": 1}})
    labels = ({"query_id": q, "item_id": "u", "grade": 2, "rater": "m"} for q in ("q1", "q2"))
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(one) + "\n" for one in labels))
    words = ("eval", "run.trec", "--gold", "qrels.txt", "-m", "nDCG@2", "--json")
    alone, judged = told(run(*words)), told(run(*words, "--judged", "labels.jsonl"))
    (before,), (after,) = alone["systems"], judged["systems"]
    both = after["bounds"]["nDCG@2"]["gold_and_judge"]["mean"]
    assert both < before["measures"]["nDCG@2"]["bounds"]["low"]
    assert after["measures"]["nDCG@2"]["bounds"]["low"] == pytest.approx(both)


@pytest.mark.parametrize("measure", ["Judged@2", "NumRet", "Coverage@2"])
def test_a_measure_without_bounds_scores_its_queries_too(run, tmp_path, measure):
    (tmp_path / "qrels.txt").write_text("q1 0 a 1\nq2 0 a 1\n")
    (tmp_path / "run.trec").write_text("q1 Q0 a 1 9 r\nq1 Q0 f 2 8 r\nq2 Q0 a 1 9 r\n")
    files = [str(tmp_path / "run.trec"), "--gold", str(tmp_path / "qrels.txt")]
    (system,) = json.loads(run("eval", *files, "-m", measure, "--json").out)["systems"]
    assert (system["unjudged"], system.get("unjudged_apart", 0)) == (1, 0)


def test_items_of_queries_that_are_not_scored_are_counted_apart(run, small):
    write_gold(small / "less.txt", {"q1": {"a": 2, "b": 1}, "q2": {"c": 0}, "q3": {"d": 1}})
    words = ("eval", "a.trec", "--gold", "less.txt", "-m", "P@5")
    (system,) = told(run(*words, "--json"))["systems"]
    assert (system["unjudged"], system["unjudged_apart"]) == (2, 2)
    assert "2 unjudged items count as not relevant (2 more in queries" in run(*words).out


@pytest.mark.parametrize("grade", ["1e7", "1e99"])
def test_one_huge_grade_is_no_scale(run, small, grade):
    (small / "huge.txt").write_text(f"q1 0 a {grade}\nq2 0 a 1\n")
    words = ("compare", "a.trec", "b.trec", "--gold", "huge.txt", "-m", "nDCG@2,RR")
    assert run(*words).code == 0


def test_a_strict_gate_waits_for_queries_that_a_judgment_could_bring_in(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run.trec", {query: ["a"] for query in MANY} | {"more": ["u"]})
    write_gold(tmp_path / "qrels.txt", {query: {"a": 1} for query in MANY} | {"more": {"v": 0}})
    (tmp_path / "gates.yaml").write_text("- mean RR >= 0.9\n")
    words = ("eval", "run.trec", "--gold", "qrels.txt", "-m", "RR", "--gates", "gates.yaml")
    assert run(*words).code == 0
    strict = run(*words, "--strict-bounds")
    assert strict.code == 3
    assert "but 1 query without relevant gold would count" in strict.out
