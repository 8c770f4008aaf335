"""What was saved, listed and shown; and what --save and --baseline do with it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from karat.cli.options import SavingOptions
from karat.data.revision import Revision
from karat.errors import KaratError, UsageError
from karat.evaluation.api import evaluate
from karat.evaluation.systems import with_baseline
from karat.formats.readers import read_gold, read_run
from karat.reports.document import Report
from karat.store import Store

JANUARY = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)


def saving(**options):
    return SavingOptions(**({"save": True, "tag": None, "store": None} | options))


@pytest.fixture(autouse=True)
def no_store_of_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KARAT_STORE", raising=False)


def report_on(*runs: str, measures: str = "nDCG@5, RR", gold: str = "qrels.txt", **more) -> Report:
    judged = read_gold(gold)
    scores = [evaluate(read_run(run), judged, measures, **more) for run in runs]
    return Report.of(scores, gold=judged)


def saved(report: Report, day: int = 0, **more) -> list[int]:
    with Store.open() as store:
        scores = [system.scores for system in report.systems]
        return store.save(scores, report.to_dict(), now=JANUARY + timedelta(days=day), **more)


@pytest.fixture
def history(files: Path) -> Path:
    """Two systems on a first day, bm25 again on two more, the last on other gold."""
    both = report_on("bm25.trec", "dense.jsonl")
    saved(both, revision=Revision("0123456789", dirty=True), tags=["first"])
    saved(report_on("bm25.trec"), 1, tags=["main"])
    lines = (files / "qrels.txt").read_text().splitlines(keepends=True)
    (files / "fewer.txt").write_text("".join(lines[:10]))
    saved(report_on("bm25.trec", gold="fewer.txt"), 2)
    return files


def test_the_list_begins_with_the_newest(run, history):
    done = run("history")
    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines() if line[:1].isdecimal()]
    assert [line[0] for line in lines] == ["4", "3", "2", "1"]
    assert lines[1] == ["3", "2026-01-02", "09:30", "bm25", "main", "0.5277", "0.6212"]
    assert lines[3] == [
        "1",
        "2026-01-01",
        "09:30",
        "bm25",
        "first",
        "0123456*",
        "0.5277",
        "0.6212",
    ]


def test_the_list_can_be_cut_down(run, history):
    for options, ids in (
        (["--system", "dense"], [2]),
        (["--tag", "main"], [3]),
        (["--limit", "2"], [4, 3]),
    ):
        done = run("history", "--json", *options)
        assert [one["id"] for one in json.loads(done.out)["evaluations"]] == ids


def test_the_list_as_json_says_what_each_was_made_of(run, history):
    one = json.loads(run("history", "--json", "--tag", "first").out)["evaluations"][1]
    assert one["saved_at"] == "2026-01-01T09:30:00Z"
    assert one["revision"] == {"commit": "0123456789", "dirty": True}
    assert one["inputs"]["gold"]["name"] == "qrels.txt"
    assert len(one["inputs"]["run"]["sha256"]) == 64
    assert one["measures"]["RR"]["n"] == 11


@pytest.mark.parametrize("columns", ["80", "100", "200"])
def test_a_trend_shows_intervals_changes_and_breaks(run, history, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    done = run("history", "--trend", "mrr")
    lines = done.out.splitlines()
    assert lines[0].split() == ["bm25", "RR", "▁▁█"]
    assert any(line.startswith("dense  RR") for line in lines)
    rows = [line.split() for line in lines if line.startswith(("2026", "~"))]
    assert rows[0][:7] == ["2026-01-01", "09:30", "1", "0123456*", "11", "0.6212", rows[0][6]]
    assert rows[1][-1] == "+0.0000"
    assert rows[2] == ["~", "other", "gold"]
    assert max(map(len, lines)) <= int(columns)


def test_a_trend_without_unicode_is_drawn_in_ascii(spawn, history):
    done = spawn("history", "--trend", "RR", "--system", "bm25", PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "?" not in done.out
    assert done.out.isascii()


def test_a_trend_as_json(run, history):
    found = json.loads(run("history", "--trend", "mrr", "--system", "bm25", "--json").out)
    assert found["measure"] == "RR"
    assert [point["id"] for point in found["points"]] == [1, 3, 4]
    assert [point["breaks"] for point in found["points"]] == [[], [], ["gold"]]
    assert [point["change"] for point in found["points"]] == [None, 0.0, None]
    assert len(found["points"][0]["ci"]) == 2
    last = json.loads(run("history", "--trend", "RR", "--limit", "1", "--json").out)["points"]
    assert [point["id"] for point in last] == [4, 2]


def test_one_evaluation_is_shown_by_id_or_tag(run, history):
    done = run("history", "--show", "main")
    assert done.out.startswith("evaluation 3: bm25, saved 2026-01-02 09:30 UTC\ntags: main\n")
    assert "gold: qrels.txt (" in done.out
    assert "nDCG@5" in done.out
    assert "profile karat" in done.out
    assert run("history", "--show", "3").out == done.out
    assert "with uncommitted changes" in run("history", "--show", "first:bm25").out
    document = json.loads(run("history", "--show", "3", "--json").out)
    assert document["evaluation"]["tags"] == ["main"]
    assert document["report"]["systems"][0]["name"] == "bm25"


def test_an_evaluation_can_get_a_tag_later(run, history):
    done = run("history", "--show", "2", "--tag-as", "main")
    assert "tags: first, main" in done.out
    assert run("history", "--show", "main").out.startswith("evaluation 2: dense")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--show", "mian"], "unknown tag 'mian'; did you mean main?"),
        (["--show", "9"], "no evaluation 9 in .karat/history.db; karat history lists them"),
        (["--show", "first"], "several systems saved at once; take one: first:bm25, first:dense"),
        (["--system", "bm52"], "unknown system 'bm52'; did you mean bm25?"),
        (["--tag", "firts"], "unknown tag 'firts'; did you mean first?"),
        (["--tag", "main", "--system", "dense"], "no saved evaluation is all of that"),
        (["--trend", "RR", "--system", "bm52"], "unknown system 'bm52'; did you mean bm25?"),
        (["--trend", "R@5"], "unknown measure in the store 'R@5'; known: RR, nDCG@5"),
        (["--trend", "RR", "--show", "1"], "--trend and --show"),
        (["--tag-as", "x"], "--tag-as needs --show"),
        (["--show", "1", "--tag-as", "7"], "tag '7' would read as an id"),
        (["--show", "1", "--tag-as", ""], "tag '': use 1 to 100 characters"),
        (["--tag-as", ""], "--tag-as needs --show"),
        (["--show", ""], "unknown tag ''"),
        (["--trend", "", "--show", ""], "--trend and --show"),
        (["--store", "."], ".: is a folder; name a file in it"),
        (["--limit", "0"], "--limit is '0'; give a whole number from 1"),
        (["--limit", "x"], "--limit is 'x'; give a whole number from 1"),
        (["--store", "other.db"], "other.db: no history here; begin one with karat eval"),
        (["--store", "qrels.txt"], "qrels.txt: is no SQLite database"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(run, history, options, told):
    done = run("history", *options)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert done.err.count("\n") == 1


def test_help_imports_neither_sqlalchemy_nor_polars():
    code = (
        "import sys; from karat.cli.main import main; main(['history', '--help']);"
        "heavy = {'sqlalchemy', 'polars', 'numpy', 'rich'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "  karat history --trend" in done.stdout


def test_without_sqlalchemy_one_line_says_what_to_install(files):
    code = (
        "import sys; sys.modules['sqlalchemy'] = None;"
        "from karat.cli.main import main; sys.exit(main(['history']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    told = "history needs SQLAlchemy; install it with: pip install 'karat[store]'"
    assert done.stderr == f"karat: {told}\n"


def test_saving_says_as_what(files, capfd, monkeypatch):
    monkeypatch.setenv("GITHUB_SHA", "abc123")
    monkeypatch.setenv("PATH", "")
    saving(tag=["main"]).keep(report_on("bm25.trec", "dense.jsonl"))
    out, err = capfd.readouterr()
    assert (out, err) == ("", "saved as 1, 2 in .karat/history.db\n")
    with Store.open() as store:
        found = store.evaluations()
    assert [one.system for one in found] == ["dense", "bm25"]
    assert found[0].tags == ("main",)
    assert found[0].revision == Revision("abc123")


def test_two_runs_of_one_name_are_saved_under_two(files):
    (files / "other").mkdir()
    (files / "other" / "bm25.trec").write_bytes((files / "bm25.trec").read_bytes())
    saving(store="s.db").keep(report_on("bm25.trec", "other/bm25.trec"))
    with Store.open("s.db") as store:
        assert [one.system for one in store.evaluations()] == ["bm25-2", "bm25"]


def test_nothing_is_saved_where_nothing_was_scored(files, capfd):
    (files / "none.txt").write_text("q01 0 nothing 0\n")
    saving().keep(report_on("bm25.trec", gold="none.txt"))
    assert capfd.readouterr().err.startswith("karat: warning: nothing was saved")
    assert not (files / ".karat").exists()


def test_what_could_not_be_saved_is_refused_before_any_work(files):
    saving(save=False, store="qrels.txt").files()
    saving(tag=["main"]).files()
    assert not (files / ".karat").exists()
    for options, told in (
        ({"save": False, "store": None, "tag": ["main"]}, "--tag is for what is saved; add"),
        ({"save": True, "store": None, "tag": ["a b"]}, "tag 'a b'"),
        ({"save": True, "store": "qrels.txt", "tag": []}, "is no SQLite database"),
        ({"save": True, "store": "sqlite://", "tag": []}, "an in-memory store saves nothing"),
        ({"save": True, "store": "sqlite:///:memory:", "tag": []}, "in-memory store saves nothing"),
        ({"save": True, "store": "qrels.txt/s.db", "tag": []}, "qrels.txt is no folder"),
        ({"save": True, "store": "postgresql://127.0.0.1:1/x", "tag": []}, "cannot be used"),
    ):
        with pytest.raises(KaratError, match=told):
            saving(**options).files()


def stored_before(ref, runs, *, store, gold, primary=None):
    """Put a stored baseline before runs that were scored on the gold."""
    return with_baseline(
        ref,
        runs,
        gold=SimpleNamespace(source=gold),
        queries=None,
        corpus=None,
        notify=lambda message: print(message, file=sys.stderr),
        store=store,
        primary=primary,
    )


def test_a_stored_baseline_takes_the_first_place(history, capfd):
    report = report_on("dense.jsonl", measures="RR, P@5")
    runs = [system.scores for system in report.systems]
    both = stored_before("main", runs, store=None, gold=report.gold)
    assert [one.system for one in both] == ["bm25@main", "dense"]
    assert [[str(measure) for measure in one.measures] for one in both] == [["RR"], ["RR"]]
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "karat: warning: baseline main: it was not scored by P@5\n"


def test_a_stale_baseline_is_warned_of(history, capfd):
    with (history / "bm25.trec").open("a") as file:
        file.write("\n")
    report = report_on("dense.jsonl")
    runs = [system.scores for system in report.systems]
    stored_before("first:bm25", runs, store=None, gold=report.gold)
    told = "karat: warning: baseline first:bm25: "
    assert capfd.readouterr().err.splitlines() == [
        f"{told}its run bm25.trec has changed since; the stored values are of the old one",
        f"{told}it was saved with uncommitted changes (after 0123456789)",
    ]


def test_a_baseline_on_other_gold_is_refused(history):
    report = report_on("dense.jsonl")
    runs = [system.scores for system in report.systems]
    with pytest.raises(UsageError, match=r"the baseline 4 cannot be compared .*only one of them"):
        stored_before("4", runs, store=None, gold=report.gold)
    strict = report_on("dense.jsonl", settings={"rel": 2}).systems[0].scores
    with pytest.raises(
        UsageError, match=r"rel is 1\.0 for one and 2\.0 for the other; score it again and save it"
    ):
        stored_before("main", [strict], store=None, gold=report.gold)


def compared(run, *options: str, gold: str = "qrels.txt", of: str = "dense.jsonl") -> dict:
    done = run("compare", of, "--gold", gold, "--baseline", "main", "--json", *options)
    assert done.code in (0, 1), done.err
    return json.loads(done.out)


def test_the_order_of_measures_is_that_of_the_command_line(run, history):
    rows = compared(run, "-m", "RR,nDCG@5")["comparisons"]
    assert [(row["measure"], row["primary"]) for row in rows] == [("RR", True), ("nDCG@5", False)]


def test_a_baseline_without_the_measure_that_decides_is_refused(run, history):
    done = run(
        "compare", "dense.jsonl", "--gold", "qrels.txt", "-m", "P@5,RR", "--baseline", "main"
    )
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "karat: the baseline main was not scored by P@5, the measure that decides;"
        " name another with --primary, or score it again and save it\n"
    )
    report = report_on("dense.jsonl", measures="NumRel, P@5, RR")
    runs = [system.scores for system in report.systems]
    both = stored_before("main", runs, store=None, gold=report.gold, primary="mrr")
    assert [str(measure) for measure in both[0].measures] == ["RR"]
    for primary in (None, "P@5"):
        with pytest.raises(UsageError, match=r"was not scored by P@5, .*; name another"):
            stored_before("main", runs, store=None, gold=report.gold, primary=primary)


@pytest.fixture
def turned(files: Path) -> str:
    """The demo's judgments, the last line first."""
    lines = (files / "qrels.txt").read_text().splitlines(keepends=True)
    (files / "turned.txt").write_text("".join(reversed(lines)))
    return "turned.txt"


def test_gold_in_another_order_can_be_compared_with(run, history, turned):
    measures = ("-m", "nDCG@5,RR")
    before, after = compared(run, *measures), compared(run, *measures, gold=turned)
    exact = ("measure", "delta", "wins", "losses", "ties", "verdict", "p")
    for old, new in zip(before["comparisons"], after["comparisons"], strict=True):
        assert [new[key] for key in exact] == [old[key] for key in exact]
    done = run("compare", "bm25.trec", "dense.jsonl", "--gold", turned, *measures, "--json")
    for old, new in zip(json.loads(done.out)["comparisons"], after["comparisons"], strict=True):
        # A stored baseline has no lists, and so no bounds.
        assert {**old, "baseline": "bm25@main", "bounds": None} == new


def test_gold_in_another_order_breaks_no_trend_and_is_not_stale(run, history, turned):
    saved(report_on("bm25.trec", gold="qrels.txt"), 3)
    saved(report_on("bm25.trec", gold=turned), 4)
    points = json.loads(run("history", "--trend", "RR", "--system", "bm25", "--json").out)["points"]
    assert (points[-1]["breaks"], points[-1]["change"]) == ([], 0.0)
    options = ("--gold", turned, "-m", "RR", "--baseline", "main")
    assert run("compare", "dense.jsonl", *options).err == ""


def test_a_run_against_its_own_stored_self_is_identical(run, history, turned):
    for gold in ("qrels.txt", turned):
        done = run("compare", "bm25.trec", "--gold", gold, "-m", "RR", "--baseline", "main")
        assert "bm25.trec is the run that it was made of: nothing to compare" in done.err
        found = compared(run, "-m", "RR", gold=gold, of="bm25.trec")
        assert found["overlap"][0]["identical"]
        assert found["comparisons"][0]["verdict"] == "same"


def test_a_run_ranked_by_something_else_need_not_be_identical(history):
    lists = pl.DataFrame({"row": [0], "rank": [1], "item_id": ["a"]})
    for order, expected in (("score", lists), ("rank", None)):
        report = report_on("bm25.trec", settings={"order": order})
        runs = [replace(system.scores, lists=lists) for system in report.systems]
        baseline = stored_before("main", runs, store=None, gold=report.gold)[0]
        assert baseline.lists is expected


def test_a_baseline_is_not_saved_again(history, capfd):
    report = report_on("bm25.trec")
    runs = [system.scores for system in report.systems]
    both = stored_before("main", runs, store=None, gold=report.gold)
    compared = Report.of(both, gold=read_gold("qrels.txt"))
    saving().keep(compared, skip=compared.systems[0].name)
    assert capfd.readouterr().err.splitlines()[-1] == "saved as 5 in .karat/history.db"
    with Store.open() as store:
        assert store.evaluations()[0].system == "bm25"
