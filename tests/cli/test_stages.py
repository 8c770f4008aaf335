"""``karat stages``: the document, the page, what is missing and what is refused."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
from pathlib import Path

import pytest

import karat

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "stages"
ASKED = ("--gold", "queries.jsonl", "--queries", "queries.jsonl")


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """The example's log and queries in the current folder."""
    shutil.copytree(EXAMPLE, tmp_path / "desk")
    monkeypatch.chdir(tmp_path / "desk")
    return tmp_path / "desk"


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Write a log and its gold into the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(records, gold, name="run.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(one) + "\n" for one in records))
        rows = [
            {"query_id": query, "question": query, "gold_evidence": items}
            for query, items in gold.items()
        ]
        (tmp_path / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))

    return write


def systems_of(result):
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out)["systems"]


def records_of(folder):
    lines = (folder / "run.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def gold_of(folder):
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return {one["query_id"]: one for one in map(json.loads, lines)}


def test_the_document_has_every_part(desk, run):
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "--json"))
    assert system["name"] == "run"
    assert set(system) == {
        *("name", "depth", "raw", "effect", "stages", "parts", "router", "rewriting"),
        *("entities", "counts", "lacks"),
    }
    assert system["parts"] is None
    assert set(system["lacks"]) == {"parts"}
    assert [stage["stage"] for stage in system["stages"]] == ["raw", "rerank", "final"]
    assert system["counts"]["failed_calls"] == 1


def test_raw_recall_is_that_of_the_logged_lists(desk, run):
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "--json", "--depth", "10"))
    gold = gold_of(desk)
    found = 0.0
    for record in records_of(desk):
        wanted = gold[record["query_id"]]["gold_evidence"]
        found += len(set(wanted) & set(record.get("raw", [])[:10])) / len(wanted)
    assert system["raw"]["R@10"]["mean"] == pytest.approx(found / len(gold))
    assert system["depth"]["beyond_log"] is False


def test_raw_lists_of_ten_are_not_measured_fifty_deep(desk, run):
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "--json"))
    assert set(system["raw"]) == {"R@10", "RR@10"}
    assert system["raw"]["R@10"]["asked"] == 50
    assert system["raw"]["R@10"]["beyond_log"] is True
    page = run("stages", "run.jsonl", *ASKED).out
    assert "asked for the first 50, but the raw lists end at 10" in page
    assert "R@50" not in page


def test_the_router_is_counted_as_the_log_says(desk, run):
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "--json"))
    gold = gold_of(desk)
    fine = [one for one in records_of(desk) if "error" not in one]
    wrong = [
        one["query_id"]
        for one in fine
        if gold[one["query_id"]]["source"] not in one["source"].split("+")
    ]
    router = system["router"]
    assert [one["query_id"] for one in router["misroutes"]] == wrong
    assert router["coverage"]["mean"] == pytest.approx(1 - len(wrong) / len(fine))
    assert router["left_out"]["failed"] == 1
    assert router["over_asked"] == sum("+" in one["source"] for one in fine)


def test_rewriting_is_compared_over_calls_that_went_well(desk, run):
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "--json"))
    fine = [one for one in records_of(desk) if "error" not in one]
    changed = sum(one["query"] != one["rewritten"] for one in fine)
    rewriting = system["rewriting"]
    assert (rewriting["told"], rewriting["changed"]) == (len(fine), changed)
    assert {row["n"] for row in rewriting["comparisons"]} == {len(fine)}


def test_segments_show_whom_the_reranker_hurts(desk, run):
    result = run("stages", "run.jsonl", *ASKED, "--by", "language")
    assert "where language is pt, the reranker takes nDCG@5 from" in result.out
    (line,) = (line for line in result.out.splitlines() if line.startswith("where language"))
    assert line.endswith("; it hurts")


def test_the_profile_for_rag_has_exponential_gains(desk, run):
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "--json", "--profile", "rag"))
    measures = [row["measure"] for row in system["effect"]["comparisons"]]
    assert measures == ["nDCG@5", "P@5", "R@5", "RR@5"]


def test_measures_can_be_named_and_the_first_decides(desk, run):
    words = ("-m", "P@3", "-m", "nDCG@3", "--json")
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, *words))
    rows = system["effect"]["comparisons"]
    assert [(row["measure"], row["primary"]) for row in rows] == [("P@3", True), ("nDCG@3", False)]
    assert system["effect"]["says"].startswith("the reranker takes P@3 from ")


def test_a_measure_that_cannot_be_had_is_named(desk, run):
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "-m", "RR@5,Novelty@5", "--json"))
    assert "Novelty@5" in system["lacks"]


def test_several_runs_are_several_parts(desk, run):
    shutil.copy("run.jsonl", "other.jsonl")
    systems = systems_of(run("stages", "run.jsonl", "other.jsonl", *ASKED, "--json"))
    assert [system["name"] for system in systems] == ["run", "other"]
    assert {**systems[0], "name": ""} == {**systems[1], "name": ""}
    page = run("stages", "run.jsonl", "other.jsonl", *ASKED).out
    assert "other: the reranker takes nDCG@5" in page


def test_a_run_without_stages_says_what_to_log(desk, run):
    assert run("convert", "run.jsonl", "run.trec").code == 0
    (system,) = systems_of(run("stages", "run.trec", *ASKED, "--json"))
    assert (system["raw"], system["effect"], system["router"]) == (None, None, None)
    assert "as raw" in system["lacks"]["raw"]
    (final,) = system["stages"]
    gold, asked = karat.read_gold("queries.jsonl"), karat.read_queries("queries.jsonl")
    scores = karat.evaluate(karat.read_run("run.trec"), gold, ["nDCG@5"], queries=asked)
    expected = scores.summaries["nDCG@5"]
    assert final["measures"]["nDCG@5"]["mean"] == expected.mean
    assert final["measures"]["nDCG@5"]["ci"] == list(expected.ci)
    page = run("stages", "run.trec", *ASKED).out
    assert page.startswith("the log has no list before the later stages")


def test_a_log_of_final_lists_still_tells_of_its_router(log, run):
    log([{"query_id": "q1", "topk": ["a"], "source": "docs"}], {"q1": ["a"]})
    rows = [{"query_id": "q1", "question": "", "source": "mail", "gold_evidence": ["a"]}]
    Path("queries.jsonl").write_text(json.dumps(rows[0]) + "\n")
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "--json"))
    assert system["effect"] is None
    assert len(system["router"]["misroutes"]) == 1


def test_a_part_of_the_queries_may_have_no_raw_list(log, run):
    records = [
        {"query_id": "q1", "raw": ["x", "a"], "topk": ["a"]},
        {"query_id": "q2", "topk": ["x", "b"]},
    ]
    log(records, {"q1": ["a"], "q2": ["b"]})
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "-k", "1", "--json"))
    assert system["depth"]["without_raw"] == 1
    assert system["raw"]["R@50"]["mean"] == 1.0
    page = run("stages", "run.jsonl", *ASKED).out
    assert "1 query has no raw list" in page


def test_k_beyond_the_final_lists_is_told(desk, run):
    page = run("stages", "run.jsonl", *ASKED, "-k", "8").out
    assert "asked for the first 8, but both are compared where the lists end, at 5" in page


def test_all_calls_may_have_failed(log, run):
    log([{"query_id": "q1", "topk": [], "error": "down"}], {"q1": ["a"]})
    assert run("stages", "run.jsonl", *ASKED).code == 2
    result = run("stages", "run.jsonl", *ASKED, "--set", "missing_ids=allow")
    assert result.code == 3
    assert "no query could be scored" in result.err
    assert "1 failed call" in result.out


def test_queries_without_gold_are_no_reason_to_stop(log, run):
    log([{"query_id": "q1", "topk": ["a"], "raw": ["a", "b"]}], {"q1": []})
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "--json"))
    assert system["raw"]["R@50"] == {"mean": None, "ci": None, "n": 0}
    assert run("stages", "run.jsonl", *ASKED).code == 0


def test_the_parts_of_a_fusion_stand_beside_it(log, run):
    records = [
        {
            "query_id": "q1",
            "topk": ["a", "b"],
            "raw": ["a", "b"],
            "stages": {"bm25": ["a", "x"], "dense": ["b", "x"]},
        }
    ]
    log(records, {"q1": ["a", "b"]})
    result = run("stages", "run.jsonl", *ASKED, "--depth", "2", "-m", "R@2")
    assert result.code == 0
    assert "parts of the fusion" in result.out
    assert "2 in all, 2 in some part, 2 in the fused list, 0 lost by fusing" in result.out


def test_the_same_input_gives_the_same_bytes(desk, run):
    for name in ("one", "two"):
        outputs = ("-o", f"{name}.json", "-o", f"{name}.md", "--quiet")
        result = run("stages", "run.jsonl", *ASKED, "--by", "language", "--seed", "7", *outputs)
        assert (result.code, result.out, result.err) == (0, "", "")
    for ending in ("json", "md"):
        first, second = ((desk / f"{name}.{ending}").read_bytes() for name in ("one", "two"))
        assert first == second
    document = json.loads((desk / "one.json").read_text())
    assert document["conventions"]["seed"] == 7
    assert document["inputs"]["runs"][0]["name"] == "run.jsonl"
    page = (desk / "one.md").read_text()
    assert page.startswith("# What each stage is worth\n")
    assert "## from raw to final" in page


def test_a_log_may_come_from_standard_input(desk, spawn):
    lines = Path("run.jsonl").read_bytes()
    result = spawn("stages", "-", *ASKED, "--json", stdin=lines)
    assert systems_of(result)[0]["counts"]["queries"] == 26


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-k", "0"), "-k is '0'; give a whole number from 1"),
        (("--depth", "ten"), "--depth is 'ten'; give a whole number from 1"),
        (("-m", "ndgc@5"), "did you mean nDCG?"),
        (("--by", "langage"), "did you mean language?"),
        (("-o", "out.csv"), "output 'out.csv': use .json, .md"),
        (("-o", "run.jsonl.json", "-o", "run.jsonl.json"), "is named twice"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(desk, run, words, told):
    result = run("stages", "run.jsonl", *ASKED, *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert told in result.err


def test_examples_print_what_the_page_says(desk):
    spec = importlib.util.spec_from_file_location("examples", ROOT / "docs" / "examples.py")
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    page = (ROOT / "docs" / "evaluate-each-stage.md").read_text(encoding="utf-8")
    assert page == examples.refreshed_in(desk, page)


def test_two_logs_are_the_raw_and_the_final_lists_of_one_system(log, tmp_path, run):
    """The reranker lifts gold from rank 4 to 1 in ten queries and drops it from 1 to 5 in two."""
    fillers = [f"x{n}" for n in range(50)]
    gold, raw, final = {}, [], []
    for n in range(12):
        query, item = f"q{n:02}", f"gold{n}"
        gold[query] = [item]
        at = 3 if n < 10 else 0
        raw.append({"query_id": query, "k": 50, "topk": [*fillers[:at], item, *fillers[at:49]]})
        top = [item, *fillers[:4]] if n < 10 else [*fillers[:4], item]
        final.append({"query_id": query, "k": 5, "system": "reranked", "topk": top})
    log(raw, gold, "raw.jsonl")
    log(final, gold, "final.jsonl")
    both = [{**one, "raw": two["topk"], "k_raw": 50} for one, two in zip(final, raw, strict=True)]
    log(both, gold, "both.jsonl")
    (two,) = systems_of(run("stages", "raw.jsonl", "final.jsonl", *ASKED, "--json"))
    (one,) = systems_of(run("stages", "both.jsonl", *ASKED, "--json"))
    # By hand: nDCG@5 of the raw lists is 1/log2(5) ten times and 1 twice, then 1 and 1/log2(6).
    [row] = [row for row in two["effect"]["comparisons"] if row["measure"] == "nDCG@5"]
    assert row["baseline_mean"] == pytest.approx((10 / math.log2(5) + 2) / 12)
    assert row["system_mean"] == pytest.approx((10 + 2 / math.log2(6)) / 12)
    assert (row["wins"], row["losses"]) == (10, 2)
    assert two["depth"]["raw"] == 50
    assert [step["stage"] for step in two["stages"]] == ["raw", "final"]
    for part in ("depth", "raw", "effect", "stages"):
        assert json.loads(json.dumps(two[part]).replace("final.jsonl", "both.jsonl")) == one[part]
    inputs = json.loads(run("stages", "raw.jsonl", "final.jsonl", *ASKED, "--json").out)["inputs"]
    assert inputs["raw"]["name"] == "raw.jsonl"
    assert [one["name"] for one in inputs["runs"]] == ["final.jsonl"]


def test_raw_lists_may_be_a_file_of_scores(log, tmp_path, run):
    gold = {f"q{n}": ["a"] for n in range(3)}
    log([{"query_id": name, "topk": ["a", "b"]} for name in gold], gold, "final.jsonl")
    rows = [
        f"{name} Q0 {item} 9 {score} x" for name in gold for item, score in (("a", 1), ("b", 2))
    ]
    (tmp_path / "raw.trec").write_text("\n".join(rows) + "\n")
    (system,) = systems_of(run("stages", "raw.trec", "final.jsonl", *ASKED, "--json"))
    [row] = [row for row in system["effect"]["comparisons"] if row["measure"] == "RR@5"]
    assert (row["baseline_mean"], row["system_mean"]) == (0.5, 1.0)


def test_two_logs_with_stages_are_two_systems(desk, run):
    shutil.copy("run.jsonl", "other.jsonl")
    found = systems_of(run("stages", "run.jsonl", "other.jsonl", *ASKED, "--json"))
    assert [one["name"] for one in found] == ["run", "other"]


def test_the_routers_table_says_which_side_is_right(tmp_path, monkeypatch, run):
    """Three queries belong to docs; of those two went to mail. One of mail went to docs."""
    monkeypatch.chdir(tmp_path)
    right = {"q1": "docs", "q2": "docs", "q3": "docs", "q4": "mail"}
    sent = {"q1": "docs", "q2": "mail", "q3": "mail", "q4": "docs"}
    rows = [
        {"query_id": name, "question": "x", "gold_evidence": ["a"], "source": source}
        for name, source in right.items()
    ]
    logged = [{"query_id": name, "source": source, "topk": ["a"]} for name, source in sent.items()]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(one) + "\n" for one in logged))
    (system,) = systems_of(run("stages", "run.jsonl", *ASKED, "--json"))
    assert system["router"]["confusion"] == {"docs": {"docs": 1, "mail": 2}, "mail": {"docs": 1}}
    assert run("stages", "run.jsonl", *ASKED, "-o", "page.md", "--quiet").code == 0
    lines = (tmp_path / "page.md").read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if "sent to docs" in line)
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[at : at + 4]]
    assert table[0] == ["right source", "sent to docs", "sent to mail"]
    assert table[2:] == [["docs", "1", "2"], ["mail", "1", ""]]


def test_a_stage_that_only_the_correction_leaves_open_says_so(log, run):
    records, gold = [], {}
    for at in range(20):
        raw = [f"{name}{at}" for name in "xab"]
        # The filter helps six queries: p = 2/64 by itself, and twice that beside the other stages.
        kept = raw[1:] if at < 6 else raw
        top = [kept[1], kept[0], kept[2]] if at == 10 else kept
        stages = {"filter": kept, "rerank": top}
        records.append({"query_id": f"q{at:02}", "raw": raw, "stages": stages, "topk": top})
        gold[f"q{at:02}"] = [f"a{at}"]
    log(records, gold)
    shown = run("stages", "run.jsonl", *ASKED).out
    rows = shown.split("change from the stage before")[1].splitlines()
    (row,) = [line for line in rows if line.startswith("filter  unclear")]
    assert "unclear after correction for 3 tests" in row
