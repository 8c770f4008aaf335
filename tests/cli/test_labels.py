"""Judgments kept on the command line: brought in, listed, settled, exported, and taken back."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from karat.formats.readers import read_gold, read_queries
from karat.formats.registry import FORMATS
from karat.store import Store

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = ("list", "new", "import", "conflicts", "adjudicate", "withdraw", "agreement", "export")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and no store of the user's."""
    monkeypatch.delenv("KARAT_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, *records: dict) -> str:
    text = "".join(json.dumps(one) + "\n" for one in records)
    Path(name).write_text(text, encoding="utf-8")
    return name


def pool(count: int = 4) -> str:
    rows = [
        {"query_id": f"q{at // 2}", "item_id": f"d{at}", "query": f"why {at // 2}", "text": "so"}
        for at in range(count)
    ]
    return write("pool.jsonl", *rows)


def said(rater: str, *grades: float | None, **more: object) -> list[dict]:
    """What a rater says of d0, d1, …; None is can't tell."""
    lines = []
    for at, grade in enumerate(grades):
        told = {"error": "can't tell"} if grade is None else {"grade": grade}
        pair = {"query_id": f"q{at // 2}", "item_id": f"d{at}"}
        lines.append({**pair, **told, "rater": rater, "rationale": f"{rater} {at}", **more})
    return lines


@pytest.fixture
def labelled(run, place: Path) -> Path:
    """Ana, Ben and a model on four pairs: agreed, two to one, three ways, and one vote."""
    run("labels", "new", pool(), "--name", "returns")
    write("people.jsonl", *said("Ana", 2, 2, 0, None), *said("Ben", 2, 0, 1))
    write("judged.jsonl", *said("model", 2, 2, 2, 1, source="judge"))
    done = run("labels", "import", "people.jsonl", "judged.jsonl")
    assert (done.code, done.err) == (0, "")
    return place


def told(run, *words: str) -> dict:
    done = run("labels", *words, "--json")
    assert (done.code, done.err) == (0, ""), done.err
    return json.loads(done.out)


def refused(run, *words: str) -> str:
    done = run("labels", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    return done.err


def gold(path: str, format: str | None = None) -> dict[str, float]:
    return dict(read_gold(path, format=format).frame.select("item_id", "grade").rows())


def test_the_list_says_how_much_is_judged_and_who_is_how_far(run, labelled):
    (one,) = told(run)["sets"]
    assert (one["id"], one["name"], one["size"], one["judged"]) == (1, "returns", 4, 4)
    assert (one["conflicts"], one["open"], one["decided"]) == (2, 2, 0)
    far = {rater["rater"]: (rater["judged"], rater["cannot_tell"]) for rater in one["raters"]}
    assert far == {"Ana": (4, 1), "Ben": (3, 0), "model": (4, 0)}
    assert one["sources"] == {"import": 7, "judge": 4}
    assert told(run, "list") == told(run)
    lines = [line.split() for line in run("labels").out.splitlines()]
    assert ["1", "returns", "4", "4", "2", "0"] in lines
    assert ["Ana", "4", "4", "1"] in lines


def test_a_pool_is_one_set_however_often_it_is_brought(run, place):
    assert told(run, "new", pool()) == {"set": {"id": 1, "name": "pool", "size": 4}, "new": True}
    assert told(run, "new", "pool.jsonl", "--name", "again")["new"] is False
    assert [one["name"] for one in told(run)["sets"]] == ["pool"]


def test_the_same_file_again_adds_nothing(run, labelled):
    for _ in range(2):
        done = told(run, "import", "people.jsonl", "judged.jsonl")
        assert (done["added"], done["known"], done["cannot_tell"]) == (0, 11, 1)
    assert told(run, "log")["total"] == 11
    write("changed.jsonl", *said("Ben", 2, 1, 1))
    assert told(run, "import", "changed.jsonl")["added"] == 1
    states = [one["state"] for one in told(run, "log", "--rater", "Ben")["judgments"]]
    assert sorted(states) == ["counts", "counts", "counts", "replaced"]


def test_conflicts_show_every_word_and_the_widest_apart_first(run, labelled):
    found = told(run, "conflicts")
    assert (found["total"], found["open"]) == (2, 2)
    first, second = found["conflicts"]
    # d2: 0, 1 and 2, d1: 2, 0 and 2; both apart by 2, so in the order of the set
    assert (first["item_id"], first["spread"], first["query"]) == ("d1", 2, "why 0")
    assert [(one["rater"], one["grade"]) for one in second["judgments"]] == [
        ("Ana", 0),
        ("Ben", 1),
        ("model", 2),
    ]
    assert second["judgments"][1]["rationale"] == "Ben 2"
    out = run("labels", "conflicts", "--limit", "1").out
    assert "q0 · d1 · why 0" in out
    assert "1 of 2 shown" in out


def test_a_decision_outranks_votes_until_it_is_withdrawn(run, labelled):
    pair = ["--query", "q1", "--item", "d2", "--rater", "Cleo"]
    done = told(run, "adjudicate", *pair, "--grade", "1", "--rationale", "half")
    assert done["judgment"]["source"] == "adjudication"
    assert told(run, "conflicts")["open"] == 1
    listed = told(run, "conflicts", "--all")["conflicts"]
    assert [one["decision"] and one["decision"]["grade"] for one in listed] == [None, 1]
    expected = {"majority": {"d0": 2, "d1": 2, "d2": 1, "d3": 1}, "adjudicated": {"d2": 1}}
    for how, grades in expected.items():
        run("labels", "export", "--resolve", how, "-o", "out.csv")
        assert gold("out.csv") == grades
    run("labels", "export", "--resolve", "dawid-skene", "-o", "out.csv")
    assert gold("out.csv")["d2"] == 1
    done = told(run, "withdraw", *pair)
    assert done["judgment"]["withdrawn_at"] is not None
    assert "Cleo has no judgment that counts" in refused(run, "withdraw", *pair)
    run("labels", "export", "--resolve", "majority", "-o", "out.csv")
    assert gold("out.csv") == {"d0": 2, "d1": 2, "d3": 1}
    newest = told(run, "log")["judgments"][0]
    assert (newest["rater"], newest["state"]) == ("Cleo", "withdrawn")


def test_a_decision_may_be_that_there_is_no_grade(run, labelled):
    run("labels", "adjudicate", "--query=q0", "--item=d0", "--grade=none", "--rater=Cleo")
    done = told(run, "export", "--resolve", "majority", "-o", "out.csv")
    assert (done["cannot_tell"], done["adjudicated"]) == (1, 1)
    assert "d0" not in gold("out.csv")


def test_withdrawing_a_vote_brings_back_the_one_before(run, labelled):
    write("changed.jsonl", *said("Ben", 0))
    run("labels", "import", "changed.jsonl")
    assert told(run, "conflicts")["total"] == 3
    run("labels", "withdraw", "--query", "q0", "--item", "d0", "--rater", "Ben")
    assert told(run, "conflicts")["total"] == 2


def test_ties_are_told_and_left_out_or_refused(run, labelled):
    done = run("labels", "export", "--resolve", "majority", "-o", "qrels.txt")
    assert done.code == 0
    assert "1 tie is not written, the first on q1 · d2" in done.out
    assert Path("qrels.txt").read_text() == "q0 0 d0 2\nq0 0 d1 2\nq1 0 d3 1\n"
    Path("qrels.txt").unlink()
    err = refused(run, "export", "--resolve", "majority", "--strict", "-o", "qrels.txt")
    assert "1 tie by majority, the first on query 'q1', item 'd2'" in err
    assert not Path("qrels.txt").exists()
    found = told(run, "export", "--resolve", "majority", "-o", "qrels.txt")
    grades = {"Ana": 0, "Ben": 1, "model": 2}
    assert found["ties"] == [{"query_id": "q1", "item_id": "d2", "grades": grades}]


@pytest.mark.parametrize("name", [one.name for one in FORMATS.values() if "gold" in one.carries])
def test_gold_is_exported_in_every_format_that_there_is(run, labelled, name):
    done = run("labels", "export", "--resolve", "majority", "-o", f"{name}:out")
    assert done.err == ""
    assert done.code == 0
    assert gold("out", name) == {"d0": 2, "d1": 2, "d3": 1}
    if FORMATS[name].together and name != "memory":
        texts = read_queries("out", format=name).frame.select("query_id", "text").rows()
        assert sorted(texts) == [("q0", "why 0"), ("q1", "why 1")]


def test_one_rater_s_gold_is_what_that_rater_said(run, labelled):
    run("labels", "export", "--resolve", "majority", "--rater", "Ana", "-o", "ana.txt")
    assert gold("ana.txt") == {"d0": 2, "d1": 2, "d2": 0}
    assert "Eve has not judged anything" in refused(
        run, "export", "--resolve", "majority", "--rater", "Eve", "-o", "eve.txt"
    )


def test_gold_can_go_to_standard_output_alone(run, labelled):
    done = run("labels", "export", "--resolve", "majority", "-o", "trec:-")
    assert done.out == "q0 0 d0 2\nq0 0 d1 2\nq1 0 d3 1\n"
    assert "1 tie is not written" in done.err
    words = ("export", "--resolve", "majority", "-o", "trec:-", "--json")
    assert "both go to standard output" in refused(run, *words)


def everything(store: str) -> list[tuple]:
    with Store.open(store) as opened:
        items = opened.label_items(1)
        return [
            (
                items[one.position].query_id,
                items[one.position].item_id,
                *(getattr(one, name) for name in ("rater", "grade", "rationale", "source")),
                one.given_at,
                one.withdrawn_at,
            )
            for one in opened.judgments(1, every=True)
        ]


@pytest.mark.parametrize("how", ["every", "log"])
def test_every_judgment_is_exported_and_imported_without_a_loss(run, labelled, how):
    pair = ["--query", "q1", "--item", "d2", "--rater", "Ana"]
    run("labels", "adjudicate", *pair, "--grade", "1", "--rationale", "“half” عربي\nright")
    if how == "log":
        run("labels", "adjudicate", *pair[:4], "--rater", "Dan", "--grade", "2")
        write("changed.jsonl", *said("Ben", 0))
        run("labels", "import", "changed.jsonl")
        run("labels", "withdraw", "--query", "q0", "--item", "d1", "--rater", "Ben")
    run("labels", "export", "--resolve", how, "-o", "all.jsonl.gz")
    there = ["--store", "there.db"]
    run("labels", "new", "pool.jsonl", *there)
    assert told(run, "import", "all.jsonl.gz", *there)["known"] == 0
    here = everything(".karat/history.db")
    assert Counter(everything("there.db")) == Counter(here)
    for name in ("here", "there"):
        more = there if name == "there" else []
        run("labels", "export", "--resolve", "adjudicated", "-o", f"{name}.csv", *more)
    assert gold("here.csv") == gold("there.csv") == {"d2": 2 if how == "log" else 1}
    assert told(run, "import", "all.jsonl.gz", *there)["added"] == 0


def test_gold_makes_a_set_of_its_own_pairs(run, files):
    err = refused(run, "import", "qrels.txt", "--name", "gold")
    assert "qrels.txt is gold, which names no rater" in err
    assert not Path(".karat").exists()
    done = told(run, "import", "qrels.txt", "--name", "gold", "--rater", "Ana", "--source", "May")
    judged = read_gold("qrels.txt").frame
    assert (done["added"], done["new"], done["set"]["size"]) == (judged.height, True, judged.height)
    again = told(run, "import", "qrels.txt", "--name", "gold", "--rater", "Ana")
    assert (again["added"], again["new"]) == (0, False)
    assert "2 gold" not in run("labels").out
    assert "1 gold has no texts: it cannot be labelled by hand" in run("labels").out
    run("labels", "export", "--resolve", "majority", "-o", "back.txt")
    assert sorted(read_gold("back.txt").frame.rows()) == sorted(judged.rows())


def test_a_set_of_gold_has_texts_where_files_bring_them(run, files):
    words = ["import", "qrels.txt", "--name", "gold", "--rater", "Ana"]
    texts = ["--queries", "queries.jsonl", "--corpus", "corpus.jsonl"]
    assert "give those of the items with --corpus" in refused(run, *words, *texts[:2])
    assert "give the queries' with --queries" in refused(run, *words, *texts[2:])
    assert told(run, *words, *texts)["new"]
    assert told(run)["sets"][0]["readable"]
    with Store.open(".karat/history.db") as store:
        assert all(one.query and one.text for one in store.label_items(1))
    Path("corpus.jsonl").write_text('{"id": "other", "text": "nothing"}\n')
    assert "the item has no text" in refused(run, *words, *texts)


def test_pairs_that_a_set_lacks_are_refused_and_nothing_is_added(run, labelled):
    write("more.jsonl", *said("Eve", 1, 1, 1, 1, 1, 1))
    err = refused(run, "import", "more.jsonl")
    assert (
        "more.jsonl:5: 2 pairs are not in label set 1 (returns), the first query 'q2', item 'd4'"
        in err
    )
    assert "leave such pairs out" in err
    write("more.jsonl", *said("Eve", 1, 1, 1, 1, 1))
    err = refused(run, "import", "more.jsonl")
    assert "1 pair is not in label set 1 (returns), the first query 'q2', item 'd4'; leave" in err
    assert "Eve" not in run("labels").out


def test_failed_pairs_are_counted_and_are_no_zero(run, labelled):
    failed = {"query_id": "q0", "item_id": "d0", "error": "HTTP 500", "rater": "m2"}
    write("failed.jsonl", *said("m2", 1)[:0], failed, *said("m2", 0, 1)[1:])
    done = told(run, "import", "failed.jsonl")
    assert (done["added"], done["failed"]) == (1, 1)
    assert [one["item_id"] for one in told(run, "log", "--rater", "m2")["judgments"]] == ["d1"]


def test_agreement_is_of_every_two_and_of_all(run, place):
    run("labels", "new", pool(10))
    first, second = [0] * 6 + [3] * 4, [0] * 4 + [3] * 6
    run("labels", "import", write("both.jsonl", *said("Ana", *first), *said("Ben", *second)))
    found = told(run, "agreement")
    # Eight of ten alike, by chance 0.6·0.4 + 0.4·0.6 would be
    (pair,) = found["pairs"]
    assert (pair["n"], pair["share"]) == (10, 0.8)
    assert pair["kappa"] == pytest.approx((0.8 - 0.48) / (1 - 0.48))
    # Of 20 values ten are 0 and ten are 3; four ordered pairs of 20 differ
    assert found["alpha"]["nominal"] == pytest.approx(1 - 19 * 4 / (2 * 10 * 10))
    assert found["majority"]["ties"] == 2
    assert "80 %" in run("labels", "agreement").out


def test_agreement_takes_two(run, place):
    run("labels", "new", pool())
    assert "nobody has judged" in run("labels", "agreement").out
    run("labels", "import", write("one.jsonl", *said("Ana", 1)))
    assert "only one rater" in run("labels", "agreement").out
    assert told(run, "agreement")["alpha"] == dict.fromkeys(("nominal", "ordinal", "interval"))


def test_the_log_is_cut_for_people_and_whole_for_programs(run, place):
    run("labels", "new", pool(30))
    run("labels", "import", write("one.jsonl", *said("Ana", *[1] * 30)))
    assert "20 of 30 shown; --limit 30 shows all" in run("labels", "log").out
    assert len(told(run, "log")["judgments"]) == 30
    assert len(told(run, "log", "--limit", "5")["judgments"]) == 5


def test_a_set_is_chosen_by_id_or_name(run, labelled):
    run("labels", "new", pool(2), "--name", "other")
    run("labels", "new", pool(6), "--name", "third")
    words = ("conflicts", "--set")
    assert told(run, *words, "1") == told(run, *words, "returns")
    assert told(run, *words, "3")["set"]["size"] == 6
    # As an older karat let them be.
    with closing(sqlite3.connect(".karat/history.db")) as connection, connection:
        connection.execute("UPDATE karat_label_sets SET name = 'other' WHERE id = 3")
    assert (
        "2 label sets to choose from; name one with --set and its id: 3 (other), 2 (other)"
        in refused(run, *words, "other")
    )
    assert "did you mean returns?" in refused(run, *words, "retruns")
    assert "there are 3 label sets to choose from" in refused(run, "conflicts")


def test_a_name_that_a_set_has_is_not_given_to_another(run, labelled):
    expected = (
        "karat: label set 1 is called 'returns' already, and has other pairs or texts; give this"
        " one another name with --name, or add judgments to that set: karat labels import … --set\n"
    )
    assert refused(run, "new", pool(2), "--name", "returns") == expected
    write("more.jsonl", *said("Eve", 1, 1))
    assert refused(run, "import", "more.jsonl", "--name", "returns") == expected
    # Without a name it is the file's.
    Path("pool.jsonl").rename("returns.jsonl")
    assert refused(run, "new", "returns.jsonl") == expected
    assert [one["id"] for one in told(run)["sets"]] == [1]
    assert told(run, "import", "more.jsonl", "--set", "returns")["added"] == 2


def test_a_decision_decides_whoever_decided_before_and_whatever_their_clock_said(run, labelled):
    ahead = (datetime.now(UTC) + timedelta(hours=20)).isoformat()
    pair = {"query_id": "q1", "item_id": "d2", "rater": "Dan"}
    old = pair | {"grade": 2, "source": "adjudication", "given_at": ahead}
    run("labels", "import", write("old.jsonl", old))
    run("labels", "adjudicate", "--query=q1", "--item=d2", "--grade=0", "--rater=Cleo")
    run("labels", "export", "--resolve", "adjudicated", "-o", "out.csv")
    assert gold("out.csv") == {"d2": 0}
    newest, before = told(run, "log")["judgments"][:2]
    assert (newest["rater"], newest["state"]) == ("Cleo", "counts")
    assert (before["rater"], before["state"]) == ("Dan", "replaced")
    assert told(run, "log", "--rater", "Dan")["judgments"][0]["state"] == "replaced"
    assert "Dan has no judgment that counts" in refused(
        run, "withdraw", "--query=q1", "--item=d2", "--rater=Dan"
    )


@pytest.mark.parametrize("key", ["given_at", "withdrawn_at"])
def test_what_was_said_in_the_future_is_refused_with_its_line(run, labelled, key):
    before = everything(".karat/history.db")
    times = {"given_at": "2026-01-01T00:00:00Z", key: "9999-12-31T23:59:59Z"}
    write("late.jsonl", *said("Eve", 1), *said("Fay", 1, **times))
    err = refused(run, "import", "late.jsonl")
    assert err.startswith(f"karat: late.jsonl:2: {key} is 9999-12-31T23:59:59+00:00, which is")
    assert everything(".karat/history.db") == before


@pytest.mark.parametrize("beside", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("given", ["option", "variable", "default", "link", "url"])
def test_an_export_onto_the_store_is_refused(run, labelled, monkeypatch, given, beside):
    store = Path(".karat/history.db").absolute()
    more = ["--store", str(store)] if given == "option" else []
    if given == "variable":
        monkeypatch.setenv("KARAT_STORE", str(store))
    if given == "url":
        more = ["--store", f"sqlite:///{store}"]
    if given == "link":
        Path("link.db").symlink_to(store)
        more = ["--store", "link.db"]
    before = store.read_bytes()
    words = ["export", "--resolve", "majority", "-o", "first.txt"]
    err = refused(run, *words, "-o", f"trec:.karat/history.db{beside}", *more)
    assert "is the store itself; choose another name" in err
    assert store.read_bytes() == before
    assert not Path("first.txt").exists()


def test_an_export_onto_another_store_is_refused(run, labelled):
    run("labels", "new", "pool.jsonl", "--store", "other.db")
    before = Path("other.db").read_bytes()
    for name in ("other.db", "other.db-wal"):
        err = refused(run, "export", "--resolve", "log", "-o", f"labels:{name}")
        assert "is a SQLite database, as a store of karat's is; choose another name" in err
    assert Path("other.db").read_bytes() == before


def test_a_store_that_is_held_for_long_is_told_of_meanwhile(run, labelled, monkeypatch):
    monkeypatch.setattr("karat.store.database._NOTICE_SECONDS", 0.1)
    words = ["adjudicate", "--query=q0", "--item=d0", "--grade=1", "--rater=C"]
    with closing(
        sqlite3.connect(".karat/history.db", isolation_level=None, check_same_thread=False)
    ) as connection:
        connection.execute("BEGIN IMMEDIATE")
        later = threading.Timer(0.7, connection.execute, ["ROLLBACK"])
        later.start()
        done = run("labels", *words)
        later.join()
    assert done.err == "karat: .karat/history.db is in use by another process; waiting for it\n"
    assert "decided 1 by C" in done.out
    assert run("labels", *words).err == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["adjudicate", "--query=q9", "--item=d0", "--grade=1", "--rater=C"], "unknown query in"),
        (["adjudicate", "--query=q0", "--item=d9", "--grade=1", "--rater=C"], "unknown item of"),
        (["adjudicate", "--query=q0", "--item=d0", "--grade=x", "--rater=C"], "--grade is 'x'"),
        (["adjudicate", "--query=q0", "--item=d0", "--grade=101", "--rater=C"], "0 to 100"),
        (["adjudicate", "--query=q0", "--item=d0", "--grade=nan", "--rater=C"], "0 to 100"),
        (["adjudicate", "--query=q0", "--item=d0", "--grade=1", "--rater=C\x07"], "printable char"),
        (["adjudicate", "--query=q0", "--item=d0", "--rater=C"], "--grade is missing"),
        (["adjudicate", "--query=q0", "--item=d0", "--grade=1_0", "--rater=C"], "'1_0'; give a"),
        (["adjudicate", "--query=q0", "--item=d0", "--grade= 1", "--rater=C"], "--grade is ' 1'"),
        (["adjudicate", "--query=q0", "--item=d0", "--grade=٢", "--rater=C"], "--grade is '٢'"),
        (["withdraw", "--query=q0", "--item=d0", "--rater=Eve"], "Eve has no judgment"),
        (["export", "--resolve=majority"], "name a file with -o"),
        (["export", "--resolve=most", "-o", "x.txt"], "unknown way to resolve 'most'"),
        (["export", "--resolve=majority", "-o", "-"], "name its format"),
        (["export", "--resolve=majority", "-o", "x.pdf"], "does not determine a format for gold"),
        (["export", "--resolve=majority", "-o", "runlog:x"], "carries no gold"),
        (["export", "--resolve=majority", "-o", "x.txt", "-o", "x.txt"], "given twice"),
        (["export", "--resolve=majority", "-o", "x.txt", "-o", "./x.txt"], "given twice"),
        (["export", "--resolve=every", "-o", "x.csv"], "written as label lines"),
        (["export", "--resolve=every", "--strict", "-o", "x.jsonl"], "--strict is for ties"),
        (["export", "--resolve=adjudicated", "-o", "x.txt"], "no pair of label set 1"),
        (["import", "people.jsonl", "--set=1", "--name=x"], "give one of them"),
        (["import", "people.jsonl", "--corpus=c.jsonl"], "name it with --name"),
        (["import", "people.jsonl", "--rater=Eve"], "leave --rater out"),
        (["import", "people.jsonl", "--source=\x07"], "printable characters"),
        (["import", "people.jsonl", "./people.jsonl"], "is given twice; give each file once"),
        (["import", "people.jsonl", "--name="], "a label set needs a name"),
        (["import", "people.jsonl", "--name=1"], "whole numbers are the ids of sets"),
        (["new", "pool.jsonl", "--name="], "a label set needs a name"),
        (["new", "pool.jsonl", "--name=1"], "whole numbers are the ids of sets"),
        (["list", "--store="], "the store has an empty name"),
        (["import", "-", "-"], "only one input can be standard input"),
        (["import", "nothing.jsonl"], "no such file"),
        (["log", "--rater=Eve"], "Eve has not judged"),
        (["log", "--limit=0"], "--limit is '0'"),
        (["--quiet", "list"], "unexpected argument 'list'"),
        (["list", "--store=a", "--store=b"], "--store is given twice"),
        (["lsit"], "did you mean list"),
        (["new", "people.jsonl"], "no query"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_changes_nothing(run, labelled, words, expected):
    before = everything(".karat/history.db")
    assert expected in refused(run, *words)
    assert everything(".karat/history.db") == before


def test_a_file_without_a_judgment_is_refused(run, labelled):
    Path("empty.jsonl").write_text("")
    assert "is empty" in refused(run, "import", "empty.jsonl")
    write("failed.jsonl", {"query_id": "q0", "item_id": "d0", "error": "no", "rater": "m"})
    assert "each of its 1 lines failed" in refused(run, "import", "failed.jsonl")


def test_a_store_that_is_not_there_is_told_in_the_words_of_labels(run, place):
    for command in ([], ["list"], ["conflicts"], ["agreement"], ["log"]):
        assert "no judgments are kept here; make a set with karat labels new" in refused(
            run, *command
        )
    assert not Path(".karat").exists()
    assert "an in-memory store saves nothing" in refused(run, "new", pool(), "--store", "sqlite://")
    with Store.open(".karat/history.db") as store, store._database.writing():
        pass
    assert "no label set yet" in run("labels").out
    assert "there is no label set in" in refused(run, "conflicts")


def test_a_store_of_a_newer_karat_or_in_use_is_refused(run, labelled, monkeypatch):
    monkeypatch.setattr("karat.store.database.PATIENCE", 0.1)
    words = ["adjudicate", "--query=q0", "--item=d0", "--grade=1", "--rater=C"]
    connection = sqlite3.connect(".karat/history.db", isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        assert "is in use by another process; try again" in refused(run, *words)
        assert told(run)["sets"]
        connection.execute("ROLLBACK")
        connection.execute("UPDATE karat_store SET version = 99")
    finally:
        connection.close()
    for command in (["list"], words, ["import", "people.jsonl"]):
        assert "was made by a newer karat" in refused(run, *command)


def test_quiet_says_nothing(run, labelled):
    for words in (["list"], ["conflicts"], ["export", "--resolve", "majority", "-o", "x.txt"]):
        done = run("labels", *words, "--quiet")
        assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize("command", [*COMMANDS, "log"])
def test_every_command_has_help_with_an_example(run, command):
    done = run("labels", command, "--help")
    assert done.code == 0
    assert f"  karat labels {command}" in done.out
    assert "--store URL" in done.out
    assert "--json" in done.out


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from karat.cli.main import main; main(['labels', '--help']);"
        "main(['labels', 'export', '--help']);"
        "heavy = {'polars', 'numpy', 'rich', 'sqlalchemy', 'pydantic'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_page_shows_what_is_printed():
    spec = importlib.util.spec_from_file_location("examples", DOCS / "examples.py")
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    page = (DOCS / "keep-judgments.md").read_text(encoding="utf-8")
    assert page == examples.refreshed(page), "run: python docs/examples.py docs/keep-judgments.md"
