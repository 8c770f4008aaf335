from __future__ import annotations

import doctest
import importlib.util
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scipy.stats import binomtest

DOCS = Path(__file__).parents[2] / "docs"


def written(path: str, rows) -> str:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def label(query: str, item: str, grade: int, **more) -> dict:
    return {"query_id": query, "item_id": item, "grade": grade, **more}


@pytest.fixture
def world(tmp_path, monkeypatch) -> tuple[str, ...]:
    """The worked example: a run of 1,000 judged items, and 1,000 others that people judged too."""
    monkeypatch.chdir(tmp_path)
    kinds = [(1, 2)] * 360 + [(0, 1)] * 40 + [(0, 0)] * 460 + [(2, 0)] * 140
    random.Random(3).shuffle(kinds)
    both = [(f"p{at // 10}", f"d{at}", *kind) for at, kind in enumerate(kinds)]
    top = [(f"r{at % 100}", f"e{at}", int(at < 740)) for at in range(1000)]
    written(
        "judged.jsonl",
        [
            *(label(query, item, says, rater="model") for query, item, says, _ in both),
            *(label(*row, rationale="because") for row in top),
        ],
    )
    written("people.jsonl", [label(query, item, truth) for query, item, _, truth in both])
    Path("run.trec").write_text(
        "".join(f"{query} Q0 {item} 0 {at} mine\n" for at, (query, item, _) in enumerate(top))
    )
    written(
        "queries.jsonl",
        [
            {"query_id": name, "text": "?", "language": "en" if at % 2 else "es"}
            for at, name in enumerate(dict.fromkeys(row[0] for row in [*both, *top]))
        ],
    )
    return ("judged.jsonl", "--human", "people.jsonl")


TOP = ("--run", "run.trec", "-k", "10")


def body(run, *arguments) -> dict:
    done = run("calibrate", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_the_worked_example(run, world):
    document = body(run, *world, *TOP)
    assert document["relevant"] == {"tp": 360, "fn": 40, "tn": 460, "fp": 140}
    assert document["sensitivity"]["value"] == 0.9
    assert document["share"]["value"] == 0.74
    assert document["corrected"]["value"] == pytest.approx(0.76, abs=1e-12)
    for name, good, n in (("sensitivity", 360, 400), ("specificity", 460, 600)):
        theirs = binomtest(good, n).proportion_ci(method="wilson")
        assert document[name]["ci"] == pytest.approx(list(theirs), abs=1e-12)
    assert document["table"] == [[460, 0, 140], [40, 0, 0], [0, 360, 0]]


def test_the_page_says_it_in_words(run, world):
    done = run("calibrate", *world, *TOP)
    assert (done.code, done.err) == (0, "")
    told = done.out.splitlines()
    assert told[0].startswith("corrected P@10 of run: 0.7600 [0.")
    assert told[0].endswith("; uncorrected 0.7400")
    assert "740 of 1,000 items judged relevant, over 100 queries" in told
    assert any("nDCG, RR and other ranked measures cannot be corrected" in line for line in told)
    assert any(line.startswith("95 % interval cluster: 2,000 resamples") for line in told)


def test_without_a_run_the_share_is_of_all_that_was_judged(run, world):
    document = body(run, *world)
    assert document["share"]["judged"] == 2000
    assert document["share"]["judged_relevant"] == 740 + 500
    # (0.62 + 460/600 - 1)/(0.9 + 460/600 - 1) = (232/600)/(400/600)
    assert document["corrected"]["value"] == pytest.approx(0.58, abs=1e-12)


def test_intervals_go_by_their_names(run, world):
    cluster, beta = (
        body(run, *world, *TOP, "--interval", name)["corrected"] for name in ("cluster", "beta")
    )
    assert (cluster["draws"], beta["draws"]) == (2000, 5000)
    assert cluster["ci"] != beta["ci"]
    # The delta method: q, s and t each with its own variance.
    s, t, q = 0.9, 460 / 600, 0.74
    j = s + t - 1
    variance = (
        q * (1 - q) / 1000 + (0.76**2) * s * (1 - s) / 400 + (0.24**2) * t * (1 - t) / 600
    ) / j**2
    reach = 1.96 * variance**0.5
    assert beta["ci"] == pytest.approx([0.76 - reach, 0.76 + reach], abs=0.005)
    narrow = body(run, *world, *TOP, "--set", "ci=0.5", "--set", "boot=400")["corrected"]
    assert narrow["draws"] == 400
    assert narrow["ci"][1] - narrow["ci"][0] < 0.6 * (cluster["ci"][1] - cluster["ci"][0])


def test_the_seed_is_all_that_chance_depends_on(run, world):
    once, again, other = (body(run, *world, "--seed", seed) for seed in ("1", "1", "2"))
    assert once == again
    assert once["corrected"]["ci"] != other["corrected"]["ci"]
    assert once["corrected"]["value"] == other["corrected"]["value"]


def test_a_judge_no_better_than_chance_is_said_and_not_corrected(run, world):
    done = run("calibrate", *world, "--rel", "2", "--json")
    assert done.code == 3
    assert done.err.startswith("karat: cannot tell: the judge is no better than chance")
    document = json.loads(done.out)
    assert document["relevant"] == {"tp": 0, "fn": 360, "tn": 500, "fp": 140}
    assert document["corrected"]["value"] is None
    assert document["corrected"]["ci"] is None
    shown = run("calibrate", *world, "--rel", "2").out
    assert shown.startswith("no corrected precision of all that was judged: the judge is no better")


def test_segments_stand_below(run, world):
    by = ("--queries", "queries.jsonl", "--by", "language")
    document = body(run, *world, *TOP, *by)
    own = document["segments"]["language"]
    assert list(own) == ["en", "es"]
    assert sum(one["pairs"]["both"] for one in own.values()) == 1000
    assert sum(one["share"]["judged"] for one in own.values()) == 1000
    for one in own.values():
        s, t, q = (one[name]["value"] for name in ("sensitivity", "specificity", "share"))
        assert one["corrected"]["value"] == pytest.approx((q + t - 1) / (s + t - 1), abs=1e-12)
    assert "By language" in run("calibrate", *world, *TOP, *by).out


def test_gold_counts_before_the_judge_does(run, world):
    Path("qrels.txt").write_text("".join(f"r{at} 0 e{at} {at % 2}\n" for at in range(100)))
    document = body(run, *world, *TOP, "--gold", "qrels.txt")
    share = document["share"]
    # e0 to e99 are known, half of them relevant; 640 of the other 900 are judged relevant.
    assert (share["known"], share["known_relevant"]) == (100, 50)
    assert (share["judged"], share["judged_relevant"]) == (900, 640)
    judged = (640 / 900 + 460 / 600 - 1) / (400 / 600)
    assert document["corrected"]["value"] == pytest.approx((900 * judged + 50) / 1000, abs=1e-12)


def test_what_is_lacking_is_counted_and_said(run, world):
    rows = [json.loads(line) for line in Path("judged.jsonl").read_text().splitlines()]
    for row in rows[1000:1005]:
        del row["grade"], row["rationale"]
        row["error"] = "no answer"
    written("judged.jsonl", rows[:1500])
    written("more.jsonl", [label("unheard", "of", 1), *(json.loads(line) for line in people())])
    done = run("calibrate", "judged.jsonl", "--human", "more.jsonl", *TOP)
    assert done.code == 0
    assert (
        "1 judged by people only · 495 by the judge only · 5 failed, which is no grade" in done.out
    )
    assert "505 items in the top 10 that nobody judged, left out" in done.out


def people() -> list[str]:
    return Path("people.jsonl").read_text().splitlines()


def test_few_labels_make_a_wide_interval_and_it_says_so(run, world):
    Path("few.jsonl").write_text("\n".join(people()[:50]) + "\n")
    done = run("calibrate", "judged.jsonl", "--human", "few.jsonl", *TOP)
    assert done.code == 0
    relevant = sum(json.loads(line)["grade"] > 0 for line in people()[:50])
    assert f"people call only {relevant} pairs relevant: sensitivity is hardly known" in done.out


def test_people_may_speak_in_any_gold_format(run, world):
    rows = [json.loads(line) for line in people()]
    lines = (f"{row['query_id']} 0 {row['item_id']} {row['grade']}\n" for row in rows)
    Path("people.qrels").write_text("".join(lines))
    plain, other = (
        body(run, "judged.jsonl", "--human", name) for name in ("people.jsonl", "people.qrels")
    )
    assert plain["corrected"] == other["corrected"]
    assert plain["table"] == other["table"]


def test_pages_and_documents_are_written(run, world):
    done = run("calibrate", *world, "-o", "out.md", "-o", "out.json", "--quiet")
    assert (done.code, done.out) == (0, "")
    assert Path("out.md").read_text().startswith("# How far the judge can be trusted\n")
    document = json.loads(Path("out.json").read_text())
    assert document["inputs"]["judged"]["name"] == "judged.jsonl"
    assert document["conventions"]["unit"] == "query"


def test_labels_from_standard_input(spawn, world):
    done = spawn(
        "calibrate", "-", "--human", "people.jsonl", stdin=Path("judged.jsonl").read_bytes()
    )
    assert done.code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-k", "5"), "-k is for the top of a run; name one with --run"),
        (("--gold", "people.jsonl"), "--gold is for the top of a run"),
        (("--run", "run.trec", "-k", "0"), "-k is '0'"),
        (("--rel", "0"), "rel is '0'; it must be a number above 0"),
        (("--rel", "good"), "rel is 'good'"),
        (("--interval", "betta"), "unknown interval 'betta'; did you mean beta?"),
        (("--interval", "beta", "--set", "boot=100"), "--set boot: this calibration does not"),
        (("--set", "ties=given"), "--set ties: this calibration does not depend on it"),
        (("--by", "language"), "needs the queries' attributes"),
        (("--queries", "queries.jsonl", "--by", "langage"), "did you mean language?"),
        (("--run", "empty.jsonl"), "empty.jsonl: is empty"),
        (("--queries", "other.jsonl"), "is of a query in other.jsonl"),
        (("-o", "people.jsonl"), "output 'people.jsonl': use .json, .md"),
    ],
)
def test_bad_options_are_refused_in_a_line(run, world, arguments, told):
    Path("empty.jsonl").write_text("")
    written("other.jsonl", [{"query_id": "z", "text": "?"}])
    done = run("calibrate", *world, *arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("judged", "human", "told"),
    [
        ([], [label("q", "a", 1)], "judged.jsonl: is empty"),
        ([label("q", "a", 1)], [], "people.jsonl: is empty"),
        ([label("q", "a", 3)], [label("q", "a", 1)], "judged.jsonl:1: grade is 3"),
        ([label("q", "a", 1)], [label("q", "b", 1)], "no pair in common with people.jsonl"),
        ([label("q", "a", 1)], [label("z", "a", 1)], "query 'q' with item 'a'"),
        (
            [{"query_id": "q", "item_id": "a", "error": "no answer"}],
            [label("q", "a", 1)],
            "holds no grade",
        ),
        (
            [label("q", "a", 1, rater="x"), label("q", "a", 2, rater="y")],
            [label("q", "a", 1)],
            "one judge at a time",
        ),
        (
            [label("q", "a", 1)],
            [label("q", "a", 1, rater="x"), label("q", "a", 2, rater="y")],
            "people.jsonl:2: query 'q', item 'a' is judged 2 here and 1 in line 1",
        ),
        ([{"query_id": "q", "item_id": "a"}], [label("q", "a", 1)], "judged.jsonl:1: no grade"),
    ],
)
def test_bad_labels_are_refused_in_a_line(run, tmp_path, monkeypatch, judged, human, told):
    monkeypatch.chdir(tmp_path)
    written("judged.jsonl", judged)
    written("people.jsonl", human)
    done = run("calibrate", "judged.jsonl", "--human", "people.jsonl")
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert done.err.count("\n") == 1


def test_a_judge_is_not_calibrated_on_itself(run, world):
    done = run("calibrate", "judged.jsonl", "--human", "./judged.jsonl")
    assert done.code == 2
    assert "are the same file" in done.err


def test_help_needs_neither_polars_nor_numpy():
    code = (
        "import sys; from karat.cli.main import main; main(['calibrate', '--help']);"
        "sys.exit(bool({'polars', 'numpy', 'pydantic', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_examples_of_the_page_print_what_it_says():
    spec = importlib.util.spec_from_file_location("examples", DOCS / "examples.py")
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    page = (DOCS / "calibrate-a-judge.md").read_text(encoding="utf-8")
    assert page == examples.refreshed(page), (
        "run: python docs/examples.py docs/calibrate-a-judge.md"
    )


def test_python_examples_of_the_page_are_true():
    text = (DOCS / "calibrate-a-judge.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```pycon\n(.*?)```", text, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(code, {}, "page", "calibrate-a-judge.md", 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
