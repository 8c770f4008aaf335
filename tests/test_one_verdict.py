"""The same inputs have the same verdict and cautions in every command, page and report.

Each of 30 queries has a gold item of grade 2 and one of grade 1. The old system has them at ranks
2 and 3, the new one has the first at rank 1 and lost the other: nDCG@10 goes from
(2/log2 3 + 1/2) / (2 + 1/log2 3) = 0.67 to 2 / (2 + 1/log2 3) = 0.76, and R@5 from 1 to 0.5.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import karat
from karat.cli.main import main
from karat.pytest_plugin import Karat, Lines
from karat.reports.github import annotation_lines
from karat.reports.stored_comparison import compare_stored
from karat.store import Store

N = 30
LISTS = {"old": ["x", "a", "b", "y"], "new": ["a", "x", "y", "z"]}
IDEAL = 2 + 1 / math.log2(3)
DELTA = (2 - 2 / math.log2(3) - 1 / 2) / IDEAL
MEASURES = "R@5, nDCG@10, RR"


def items(system: str, at: int) -> list[str]:
    """Lists of different lengths, so that none of them was cut."""
    return [f"{name}{at}" for name in [*LISTS[system], *(f"f{j}" for j in range(9 + at % 3))]]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in LISTS:
        with Path(f"{name}.trec").open("w") as file:
            for at in range(N):
                for rank, item in enumerate(items(name, at), 1):
                    file.write(f"q{at:02} Q0 {item} {rank} {100 - rank} {name}\n")
    lines = [f"q{at:02} 0 a{at} 2\nq{at:02} 0 b{at} 1\n" for at in range(N)]
    Path("qrels.txt").write_text("".join(lines))
    texts = [{"query_id": f"q{at:02}", "text": f"question {at}"} for at in range(N)]
    Path("queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in texts))
    source = (
        "LISTS = {lists!r}\n\n\n"
        "def answer(system, text):\n"
        "    at = int(text.split()[1])\n"
        "    names = [*LISTS[system], *(f'f{{j}}' for j in range(9 + at % 3))]\n"
        "    return [f'{{name}}{{at}}' for name in names]\n\n\n"
        "def old(text, k):\n    return answer('old', text)\n\n\n"
        "def new(text, k):\n    return answer('new', text)\n"
    )
    Path("mine.py").write_text(source.format(lists=LISTS))
    return tmp_path


def words(*more: str) -> list[str]:
    return ["compare", "old.trec", "new.trec", "--gold", "qrels.txt", "--no-bounds", *more]


def told(decision: dict) -> tuple:
    """What a decision says, whoever says it."""
    cautions = [(one["measure"], one["regression"]) for one in decision["cautions"]]
    return decision["measure"], decision["verdict"], decision["regression"], cautions


def test_every_shell_has_the_same_verdict(folder, capfd, monkeypatch):
    expected = ("nDCG@10", "better", False, [("R@5", False)])
    gold = karat.read_gold("qrels.txt")
    runs = [karat.read_run(f"{name}.trec", name=name) for name in LISTS]
    (decision,) = karat.compare(runs, gold, MEASURES).decisions
    assert told(decision.to_dict()) == expected
    assert f"new improves nDCG@10 by {DELTA:.3f} (" in decision.because

    outputs = ["-o", "r.json", "-o", "r.md", "-o", "r.html", "-o", "junit:r.xml"]
    assert main(words("-m", MEASURES, "--save", "--store", "s.db", *outputs)) == 0
    printed = capfd.readouterr().out
    report = json.loads(Path("r.json").read_text())
    assert [told(one) for one in report["decisions"]] == [expected]
    assert report["verdict"] == "better"
    assert report["primary"] == {"measure": "nDCG@10", "source": "profile", "note": None}
    sentence, caution = decision.because, decision.cautions[0].because
    assert printed.splitlines()[:2] == [f"BETTER  {sentence}", f"  but {caution}"]
    page = Path("r.html").read_text()
    for text in (Path("r.md").read_text().replace("\u2060", ""), page):
        assert sentence.replace("<", "&lt;") in text.replace("\\", "").replace("−", "-").replace(
            "p <", "p &lt;"
        )
        assert "R@5 fell by 0.50" in text
        assert not re.search(r"\bregression\b", re.sub(r"(?s)<script.*?</script>", "", text))
    assert not list(ET.parse("r.xml").getroot().iter("failure"))
    (line,) = annotation_lines(report)
    assert line.startswith("::warning title=caution")

    found = Karat(Lines()).no_regression(runs, gold, MEASURES)
    assert told(found.decisions[0].to_dict()) == expected

    with Store.open("s.db") as store:
        stored = [store.baseline(str(one)) for one in (1, 2)]
        assert [one.evaluation.verdict for one in stored] == [None, "better"]
    again = compare_stored(stored).document
    assert [told(one) for one in again["decisions"]] == [expected]
    assert again["decisions"][0]["because"] == sentence

    systems = "".join(
        f"  {name}: {{retriever: python, call: 'mine.py:{name}', k: 50}}\n" for name in LISTS
    )
    Path("karat.yaml").write_text(
        f"queries: queries.jsonl\ngold: qrels.txt\nsystems:\n{systems}"
        "measures: [R@5, nDCG@10, RR]\nsettings: {order: rank}\nbounds: false\n"
    )
    assert main(["run", "--quiet", "-o", "run.json"]) == 0
    ran = json.loads(Path("run.json").read_text())
    assert [told(one) for one in ran["decisions"]] == [expected]
    assert ran["decisions"][0]["because"] == sentence


def test_no_regression_all_stops_the_change_and_keeps_the_verdict(folder, capfd):
    options = ("-m", MEASURES, "--no-regression", "all")
    assert main(words(*options, "-o", "r.json", "-o", "junit:r.xml")) == 1
    printed = capfd.readouterr().out.splitlines()
    assert printed[0].startswith("FAIL  new against old: 1 measure got worse")
    assert any(line.startswith("BETTER  new improves nDCG@10") for line in printed)
    report = json.loads(Path("r.json").read_text())
    (decision,) = report["decisions"]
    assert told(decision) == ("nDCG@10", "better", True, [("R@5", True)])
    assert report["verdict"] == "fail"
    assert len(list(ET.parse("r.xml").getroot().iter("failure"))) == 1
    assert annotation_lines(report)[0].startswith("::error title=worse%3A R@5")
    assert main(words(*options, "--require-verdict", "--quiet")) == 1
    runs = ["old.trec", "new.trec"]
    with pytest.raises(pytest.fail.Exception):
        Karat(Lines()).no_regression(runs, "qrels.txt", MEASURES, no_regression="all")
    assert main(words("-m", MEASURES, "--no-regression", "some")) == 2


def test_the_profile_memory_lets_no_measure_get_worse(folder, capfd):
    assert main(words("-m", "Hit@1, R@5", "--profile", "memory", "--json")) == 1
    report = json.loads(capfd.readouterr().out)
    assert told(report["decisions"][0]) == ("Hit@1", "better", True, [("R@5", True)])
    relaxed = ("--profile", "memory", "--no-regression", "primary", "--quiet")
    assert main(words("-m", "Hit@1, R@5", *relaxed)) == 0


def test_without_the_profiles_measure_every_form_says_which_one_decides(folder, capfd):
    assert main(words("-m", "R@5, RR", "-o", "r.json", "-o", "r.md", "-o", "r.html")) == 1
    printed = capfd.readouterr().out
    report = json.loads(Path("r.json").read_text())
    assert report["primary"]["source"] == "measures"
    assert report["decisions"][0]["verdict"] == "worse"
    note = report["primary"]["note"]
    assert note.startswith("R@5 decides, as the first of the measures: nDCG@10,")
    for text in (printed, Path("r.md").read_text(), Path("r.html").read_text()):
        assert note in text.replace("\u2060", "").replace("\\", "")


def test_a_primary_measure_that_the_profile_does_not_report_is_scored_too(folder, capfd):
    assert main(words("--primary", "R@4", "--json")) == 1
    report = json.loads(capfd.readouterr().out)
    assert report["primary"] == {"measure": "R@4", "source": "named", "note": None}


def test_karat_ab_tells_the_verdict_and_exits_with_0(folder, capfd):
    Path("queries.tsv").write_text("".join(f"q{at:02}\tquestion {at}\n" for at in range(N)))
    rows = (f"q{at:02}\ta{at}\t2\nq{at:02}\tb{at}\t1\n" for at in range(N))
    Path("truth.tsv").write_text("".join(rows))
    Path("c.yaml").write_text("t2: {quality: {enabled: false}}\n")
    tables = ["--queries", "queries.tsv", "--truth", "truth.tsv", "--out", "ab.json"]
    configs = ["--configA", "c.yaml", "--configB", "c.yaml"]
    assert main(["ab", *tables, *configs, "--runA", "old.trec", "--runB", "new.trec"]) == 0
    better = capfd.readouterr().out
    assert main(["ab", *tables, *configs, "--runA", "new.trec", "--runB", "old.trec"]) == 0
    worse = capfd.readouterr().out
    # Grades 2 and 1 gain 3 and 1: from (3/log2 3 + 1/2) to 3 of 3 + 1/log2 3.
    rise = (3 - 3 / math.log2(3) - 1 / 2) / (3 + 1 / math.log2(3))
    assert f"BETTER  B improves nDCG@k by {rise:.2f} (" in better
    assert "  but R@k fell by 0.50 (" in better
    assert f"WORSE  B worsens nDCG@k by {rise:.2f} (" in worse
    report = karat.compare(
        [karat.read_run(f"{name}.trec", name=name) for name in LISTS],
        karat.read_gold("qrels.txt"),
        profile="ab",
    )
    assert (report.verdict, report.rule.primary) == ("better", "nDCG@k")


def test_report_and_diagnosis_tell_the_same_of_the_same_system(folder, capfd):
    """Under rag a gain is exponential and segments are corrected by their column, everywhere."""
    with Path("set.jsonl").open("w") as file:
        for at in range(80):
            grades = {f"a{at}": 2, f"b{at}": 1}
            evidence = [{"chunk_id": item, "grade": grade} for item, grade in grades.items()]
            told_of = {"language": "pt" if at % 2 else "en", "topic": f"t{at % 3}"}
            row = {"query_id": f"q{at:02}", "question": f"question {at}", **told_of}
            file.write(json.dumps({**row, "gold_evidence": evidence}) + "\n")
    for name in ("base", "head"):
        with Path(f"{name}.jsonl").open("w") as file:
            for at in range(80):
                lost = at % 2 and at % 5 < 3 and name == "head"
                found = ["x", "y", "z"] if lost else [f"b{at}", f"a{at}", "x"]
                padded = [*found, *(f"f{j}" for j in range(20 + at % 2))]
                hits = [{"rank": r, "chunk_id": item} for r, item in enumerate(padded, 1)]
                row = {"query_id": f"q{at:02}", "system": name, "topk": hits}
                file.write(json.dumps(row) + "\n")
    asked = ["--gold", "set.jsonl", "--profile", "rag"]
    words = ["compare", "base.jsonl", "head.jsonl", *asked, "--by", "topic", "-o", "r.json"]
    assert main(words) == 1
    main(["diagnose", "head.jsonl", *asked, "-o", "d.json"])
    capfd.readouterr()
    report = json.loads(Path("r.json").read_text())
    (diagnosed,) = json.loads(Path("d.json").read_text())["systems"]
    assert diagnosed["waterfalls"] == report["systems"][1]["waterfalls"]
    assert diagnosed["findings"]
    main(["diagnose", "head.jsonl", *asked, "--by", "language", "-o", "e.json"])
    (named,) = json.loads(Path("e.json").read_text())["systems"]
    of = [
        [one for one in told_["findings"] if one["rule"] == "segment_gap"]
        for told_ in (diagnosed, named)
    ]
    assert of[0] == of[1] != []


@pytest.mark.parametrize("strict", [False, True])
def test_the_workbench_shows_the_ranges_and_the_verdict_that_were_saved(folder, capfd, strict):
    """Of 12 items per list and query one or two are judged: judgments could change the verdict."""
    options = ["--strict-bounds"] if strict else []
    runs = ["compare", "old.trec", "new.trec", "--gold", "qrels.txt", "-m", MEASURES, "--bounds"]
    saved = ["--queries", "queries.jsonl", "--save", "--store", "s.db", "--json"]
    assert main([*runs, *options, *saved]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["verdict"] == ("unclear" if strict else "better")
    with Store.open("s.db") as store:
        stored = [store.baseline(str(one)) for one in (1, 2)]
    assert compare_stored(stored).document == report
    # Another margin or direction is another question, which needs the lists for its ranges.
    for other in (compare_stored(stored, margin=0.5), compare_stored(stored[::-1])):
        document = other.document
        assert {row["bounds"] for row in document["comparisons"]} == {None}
        assert document["bounds_left_out"].startswith("bounds need the lists")


def test_python_says_what_the_options_of_compare_say(folder, capfd):
    """Each option of a report is an argument of karat.report or of karat.Evaluation."""
    with Path("judge.jsonl").open("w") as labels, Path("people.txt").open("w") as people:
        for at in range(N):
            for item, grade in ((f"x{at}", 1), (f"y{at}", 0), (f"z{at}", at % 2)):
                pair = {"query_id": f"q{at:02}", "item_id": item, "grade": grade}
                labels.write(json.dumps(pair) + "\n")
                if at < 20:
                    people.write(f"q{at:02} 0 {item} {grade if at % 5 else 1 - grade}\n")
    runs, measures = ["old.trec", "new.trec"], ["nDCG@10", "P@5"]
    options = ["--gold", "qrels.txt", "-m", "nDCG@10,P@5", "--json"]
    human = ["--judged", "judge.jsonl", "--human", "people.txt"]
    judged = karat.Evaluation("qrels.txt", measures=measures, judged="judge.jsonl")
    plain = karat.Evaluation("qrels.txt", measures=measures)
    for words, evaluation, arguments in (
        (human, judged, {"human": ["people.txt"]}),
        (["--strict-bounds"], plain, {"strict_bounds": True}),
        (["--no-bounds"], plain, {"bounds": False}),
    ):
        main(["compare", *runs, *options, *words])
        printed = json.loads(capfd.readouterr().out)
        assert karat.report(evaluation, *runs, **arguments).to_dict() == printed


def test_python_writes_every_form_that_the_command_line_writes(folder, capfd):
    evaluation = karat.Evaluation("qrels.txt", profile="ab")
    report = karat.report(evaluation, "old.trec", "new.trec", forms=["ab", "misses"])
    outputs = ["ab:a.json", "misses:a.{system}.json", "junit:a.xml", "trec:a.txt"]
    words = [word for output in outputs for word in ("-o", output)]
    main(["compare", "old.trec", "new.trec", "--gold", "qrels.txt", "--profile", "ab", *words])
    for output in outputs:
        report.save(output.replace(":a.", ":b."))
    for name in ("json", "old.json", "new.json", "xml", "txt"):
        assert Path(f"a.{name}").read_bytes() == Path(f"b.{name}").read_bytes()
    without = karat.report(evaluation, "old.trec", "new.trec")
    with pytest.raises(karat.UsageError, match="forms="):
        without.save("ab:c.json")
    with pytest.raises(karat.UsageError, match="profile memory"):
        without.save("memory:c.json")
    with pytest.raises(karat.UsageError, match="misses"):
        karat.report(evaluation, "old.trec", forms=["miss"])


@pytest.mark.parametrize(("allowed", "verdict", "code"), [(0.5, "better", 0), (0.05, None, 3)])
def test_a_run_with_too_many_failed_calls_is_judged_nowhere(folder, capfd, allowed, verdict, code):
    """3 of 30 calls failed: a tenth, where the log allows half or a twentieth."""
    with Path("new.jsonl").open("w") as file:
        for at in range(N):
            found = enumerate(items("new", at), 1)
            hits = [{"rank": rank, "chunk_id": item} for rank, item in found]
            outcome = {"topk": [], "error": "timeout"} if at < 3 else {"topk": hits}
            row = {"query_id": f"q{at:02}", "system": "new", "max_failures": allowed, **outcome}
            file.write(json.dumps(row) + "\n")
    runs, settings = ["old.trec", "new.jsonl"], {"order": "rank"}
    words = ["--gold", "qrels.txt", "-m", "RR", "--set", "order=rank", "--json"]
    assert main(["compare", *runs, *words]) == code
    report = json.loads(capfd.readouterr().out)
    assert report["verdict"] == (verdict or "unmeasurable")
    compared = karat.compare(runs, "qrels.txt", "RR", settings=settings)
    gating = karat.gate("new.jsonl", "RR >= 0.5", gold="qrels.txt")
    assert (compared.verdict, gating.verdict) == (
        (verdict, "pass") if verdict else ("unmeasurable", "unmeasurable")
    )
    plugin = Karat(Lines())
    for call in (
        lambda: plugin.no_regression(runs, "qrels.txt", "RR", settings=settings),
        lambda: plugin.gate("new.jsonl", "RR >= 0.5", gold="qrels.txt"),
    ):
        if verdict:
            call()
        else:
            with pytest.raises(pytest.fail.Exception, match="new: too many calls failed"):
                call()


def test_python_reads_a_history_as_the_command_does(folder, capfd):
    for name in ("old", "new", "old"):
        words = [f"{name}.trec", "--gold", "qrels.txt", "-m", "RR", "--save", "--store", "s.db"]
        assert main(["eval", *words, "--quiet"]) == 0
    capfd.readouterr()
    assert main(["history", "--store", "s.db", "--trend", "RR", "--limit", "1", "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert [point["system"] for point in printed["points"]] == ["new", "old"]
    with Store.open("s.db") as store:
        points = [point.document() for point in store.trend("RR", limit=1)]
        assert points == printed["points"]
        assert len(store.trend("RR")) == 3


def test_python_triages_as_the_command_does(folder, capfd):
    with Path("corpus.jsonl").open("w") as file:
        for at in range(N):
            for name in "abxyz":
                text = f"answer {name} to question {at}"
                file.write(json.dumps({"item_id": f"{name}{at}", "text": text}) + "\n")
    words = ["--gold", "qrels.txt", "--queries", "queries.jsonl", "--corpus", "corpus.jsonl"]
    assert main(["triage", "new.trec", *words, "--worst", "2", "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    inputs = {"queries": "queries.jsonl", "corpus": "corpus.jsonl"}
    indexed = karat.Evaluation("qrels.txt", index_cache=Path(".karat"), **inputs)
    document = json.loads(json.dumps(karat.triage(indexed, "new.trec", worst=2).to_dict()))
    for query in printed["queries"]:
        # Only the command knows how it was given.
        del query["reproduce"]
    assert document == printed
    plain = karat.triage(karat.Evaluation("qrels.txt", **inputs), "new.trec", worst=2)
    assert "index_cache" in plain.to_dict()["bm25"]["lacks"]
