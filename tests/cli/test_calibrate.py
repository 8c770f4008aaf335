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


def test_beta_is_the_worked_example_too(run, world):
    document = body(run, *world, *TOP, "--interval", "beta")
    assert document["corrected"]["value"] == pytest.approx(0.76, abs=1e-12)
    assert document["prediction_powered"] is None
    told = run("calibrate", *world, *TOP, "--interval", "beta").out
    assert told.startswith("corrected P@10 of run: 0.7600 [0.")


def test_the_correction_says_that_it_is_for_precision_only(run, world):
    document = body(run, *world, *TOP)
    assert document["corrected"]["only"].startswith("P@k only: nDCG, RR and other ranked measures")
    assert "the correction is for P@k only" in run("calibrate", *world, *TOP).out
    assert "P@k only" in run("calibrate", *world, *TOP, "--json").out


def test_a_uniform_sample_powers_the_judge(run, world):
    """Every item of the share was judged by people, so it is what they say: 400 of 1,000."""
    Path("own.jsonl").write_text("".join(f"{line}\n" for line in judged()[:1000]))
    document = body(run, "own.jsonl", "--human", "people.jsonl", "--interval", "ppi")
    assert document["interval"] == "ppi"
    powered = document["prediction_powered"]
    assert powered["value"] == document["corrected"]["value"] == pytest.approx(0.4, abs=1e-12)
    assert (powered["labels"], powered["units"]) == (1000, 100)
    theirs = binomtest(400, 1000).proportion_ci(method="wilson")
    # Items were dealt to queries at random, so queries tell no more than items do.
    assert powered["ci"] == pytest.approx(list(theirs), abs=0.008)
    told = run("calibrate", "own.jsonl", "--human", "people.jsonl", "--interval", "ppi").out
    assert "95 % interval ppi: 1,000 labels of people in 100 queries" in told
    assert "it holds only if people judged a uniform sample of these items" in told


def judged() -> list[str]:
    return Path("judged.jsonl").read_text().splitlines()


def test_a_sample_of_the_pool_corrects_all_of_it(run, world):
    """People judged 1,000 of 2,000 pairs. The judge says 740 of the others, and errs alike."""
    document = body(run, *world, "--interval", "ppi")
    powered = document["prediction_powered"]
    weight = powered["weight"]
    # 400 of 1,000 are relevant; the judge says 500 of these and 1,240 of all 2,000.
    assert powered["value"] == pytest.approx(0.4 + weight * (0.62 - 0.5), abs=1e-12)
    assert 0 < weight < 1


def test_labels_of_other_items_power_nothing(run, world):
    done = run("calibrate", *world, *TOP, "--interval", "ppi", "--json")
    assert done.code == 3
    assert "people judged none of the pairs in the top 10" in done.err
    assert json.loads(done.out)["prediction_powered"] is None


def test_segments_are_powered_one_by_one(run, world):
    by = ("--queries", "queries.jsonl", "--by", "language", "--interval", "ppi")
    own = body(run, *world, *by)["segments"]["language"]
    whole = body(run, *world, "--interval", "ppi")["prediction_powered"]
    assert sum(one["prediction_powered"]["labels"] for one in own.values()) == whole["labels"]
    for one in own.values():
        assert one["corrected"]["value"] == one["prediction_powered"]["value"]


def test_people_speak_where_the_judge_is_worth_nothing(run, world):
    done = run("calibrate", *world, "--rel", "2", "--interval", "ppi")
    assert done.code == 3
    assert "no better than chance" in done.out.splitlines()[0]
    # 360 of the 1,000 pairs that people judged have a grade of 2.
    assert "people's sample alone gives 0.3600 [0.33, 0.39]" in done.out
    document = json.loads(run("calibrate", *world, "--rel", "2", "--interval", "ppi", "--json").out)
    assert document["corrected"]["value"] is None
    assert document["prediction_powered"]["weight"] == 0


@pytest.fixture
def three(world) -> tuple[str, ...]:
    """What people said, by three of them: two in one file, and one who errs in another."""
    rows = [json.loads(line) for line in people()]
    chance = random.Random(7)
    team = [row | {"rater": name} for row in rows for name in ("ana", "ben")]
    for row in team[:40:2]:
        del row["grade"]
        row["error"] = "can't tell"
    written("team.jsonl", team)
    written("cat.jsonl", [row | {"grade": chance.randrange(3)} for row in rows[:500]])
    return ("judged.jsonl", "--human", "team.jsonl", "--human", "cat.jsonl")


def test_several_people_become_one(run, world, three):
    document = body(run, *three, *TOP)
    told = document["raters_agreement"]
    assert [one["name"] for one in told["raters"]] == ["ana", "ben", "cat"]
    assert [one["judgments"] for one in told["raters"]] == [980, 1000, 500]
    assert [one["cannot_tell"] for one in told["raters"]] == [20, 0, 0]
    assert told["kappas"][0] == {
        "raters": ["ana", "ben"],
        "pairs": 980,
        "none": 1,
        "linear": 1,
        "quadratic": 1,
    }
    assert abs(told["kappas"][1]["none"]) < 0.1
    assert (
        set(told["alpha"]) == set(told["with_judge"]["alpha"]) == {"nominal", "ordinal", "interval"}
    )
    # On the first twenty pairs ben meets cat alone, and where they differ nobody decides.
    ties = told["truth"]["ties"]
    assert 0 < ties <= 20
    assert document["pairs"]["both"] == 1000 - ties
    assert document["inputs"]["human"][1]["name"] == "cat.jsonl"
    page = run("calibrate", *three, *TOP).out
    assert "People among themselves on 1,000 pairs that several judged" in page
    assert "ana and the judge" in page
    assert (
        f"the grade of a pair is the one that most of its raters gave · {ties} pairs tied, left out"
        in page
    )
    assert "Krippendorff's alpha of people: nominal 0." in page


def test_dawid_and_skene_believe_those_who_agree(run, world, three):
    document = body(run, *three, *TOP, "--truth", "dawid-skene")
    truth = document["raters_agreement"]["truth"]
    assert (truth["method"], truth["ties"], truth["converged"]) == ("dawid-skene", 0, True)
    # cat guesses, so what ana and ben say stands, and the worked example with it.
    assert document["relevant"] == {"tp": 360, "fn": 40, "tn": 460, "fp": 140}
    page = run("calibrate", *three, *TOP, "--truth", "dawid-skene").out
    assert "the grade of a pair is the most likely one by Dawid and Skene's model" in page


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
    assert shown.startswith("no corrected precision of everything judged: the judge is no better")


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
        "1 judged by people only · 495 by the judge only · 5 failed, so without a grade" in done.out
    )
    assert "505 items in the top 10 that nobody judged, left out" in done.out


def people() -> list[str]:
    return Path("people.jsonl").read_text().splitlines()


def test_few_labels_make_a_wide_interval_and_it_says_so(run, world):
    Path("few.jsonl").write_text("\n".join(people()[:50]) + "\n")
    done = run("calibrate", "judged.jsonl", "--human", "few.jsonl", *TOP)
    assert done.code == 0
    relevant = sum(json.loads(line)["grade"] > 0 for line in people()[:50])
    assert f"people call only {relevant} pairs relevant: sensitivity is uncertain" in done.out


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
        (("--interval", "ppi", "--set", "boot=100"), "--set boot: this calibration does not"),
        (("--interval", "ppi", "--seed", "4"), "--set seed: this calibration does not"),
        (("--truth", "majorty"), "unknown truth 'majorty'; did you mean majority?"),
        (("--human", "people.jsonl"), "people.jsonl is given twice"),
        (("--human", "judged.jsonl"), "judged.jsonl is given twice"),
        (("--set", "ties=given"), "--set ties: this calibration does not depend on it"),
        (("--by", "language"), "needs the queries' attributes"),
        (("--queries", "queries.jsonl", "--by", "langage"), "did you mean language?"),
        (("--run", "empty.jsonl"), "empty.jsonl: is empty"),
        (("--queries", "other.jsonl"), "has a query in other.jsonl"),
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
        ([label("q", "a", 101)], [label("q", "a", 1)], "judged.jsonl:1: grade is 101"),
        (
            [label("q", "a", -1), label("q", "b", -1)],
            [label("q", "a", 1)],
            "judged.jsonl: holds no grade: 2 labels below 0 (pooled, not judged)",
        ),
        (
            [label("q", "a", 1)],
            [label("q", "a", -1)],
            "people.jsonl: holds no grade: 1 label below 0 (pooled, not judged)",
        ),
        (
            [label("q", "a", 1, rater="x"), label("q", "b", 2, rater="y")],
            [label("q", "a", 1)],
            "judged.jsonl: holds labels of several raters: 'x', 'y'; calibrate one judge at a",
        ),
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
            [label("q", "a", 1), label("q", "a", 2)],
            "people.jsonl:2: query 'q', item 'a' is judged 2 here and 1 in people.jsonl:1",
        ),
        (
            [label("q", "a", 1)],
            [label("q", "a", 1, rater="x"), label("q", "a", 2, rater="x")],
            "here and 1 in people.jsonl:1 by the same rater 'x'",
        ),
        (
            [label("q", "a", 1)],
            [label("q", "a", 1, rater="x"), label("q", "a", 2, rater="y")],
            "people.jsonl: leaves no pair with one grade: 1 tied",
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


def test_one_judge_of_several_in_a_file_is_chosen_by_name(run, world):
    """Two judges on different pairs are not one; each is what a file of its own would be."""
    rows = [json.loads(line) for line in Path("judged.jsonl").read_text().splitlines()]
    halves = {"a": rows[:500], "b": rows[500:1000]}
    named = [row | {"rater": name} for name, half in halves.items() for row in half]
    written("both.jsonl", named)
    refused = run("calibrate", "both.jsonl", *world[1:])
    assert refused.code == 2
    assert "several raters: 'a', 'b'" in refused.err
    assert "--rater" in refused.err
    for name in halves:
        written("alone.jsonl", [row for row in named if row["rater"] == name])
        chosen = body(run, "both.jsonl", *world[1:], "--rater", name)
        alone = body(run, "alone.jsonl", *world[1:])
        for document in (chosen, alone):
            document.pop("inputs")
        assert chosen == alone
        assert chosen["raters"] == [name]
        assert chosen["pairs"]["both"] == 500
    assert "its raters are 'a', 'b'" in run("calibrate", "both.jsonl", *world[1:], "--rater=z").err


def test_a_grade_below_0_is_said_to_be_no_judgment_whoever_gave_it(run, world):
    before = body(run, *world)
    for name, count in (("judged.jsonl", 2), ("people.jsonl", 1)):
        with Path(name).open("a") as file:
            for at in range(count):
                file.write(json.dumps(label("p0", f"pooled{at}", -1)) + "\n")
    after = body(run, *world, "-o", "page.md")
    assert after["not_judged"] == 2
    assert after["raters_agreement"]["not_judged"] == 1
    for name in ("pairs", "table", "share", "corrected"):
        assert after[name] == before[name]
    assert after["raters_agreement"]["truth"] == before["raters_agreement"]["truth"]
    page = Path("page.md").read_text()
    assert "2 labels of the judge below 0: pooled, not judged" in page
    assert "1 pair below 0, pooled and not judged" in page
    assert "nobody could tell" not in page


def test_judges_and_people_may_grade_on_any_scale_to_100(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grades = [(100, 90), (80, 7.5), (0, 0), (55, 60)]
    written("judged.jsonl", [label("q", str(at), one) for at, (one, _) in enumerate(grades)])
    written("people.jsonl", [label("q", str(at), other) for at, (_, other) in enumerate(grades)])
    document = body(run, "judged.jsonl", "--human", "people.jsonl", "--rel", "50")
    assert document["relevant"] == {"tp": 2, "fn": 0, "tn": 1, "fp": 1}


def test_a_setting_is_heeded_or_refused(run, world):
    assert run("calibrate", *world, "--set", "rel=1", "--quiet").code == 0
    done = run("calibrate", *world, "--set", "permutations=9", "--quiet")
    assert done.code == 2
    assert "permutations" in done.err


def test_a_judge_is_not_calibrated_on_itself(run, world):
    done = run("calibrate", "judged.jsonl", "--human", "./judged.jsonl")
    assert done.code == 2
    assert "is given twice" in done.err


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
