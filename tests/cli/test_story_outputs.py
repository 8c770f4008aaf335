"""``-o story:`` of eval, compare and run: the object of ``karat story``, and when it is skipped."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_sets import read_eval_set
from karat.cli.main import main
from karat.compat.story import report_to_json
from karat.data.tables import Run
from karat.errors import UsageError
from karat.formats.readers import read_corpus
from karat.formats.settings import Place
from karat.measure.conventions import conventions_of
from karat.measure.names import parse_measures
from karat.measure.prepare import prepare
from karat.measure.score_builder import score
from karat.reports.document import Report
from karat.retrieve.build_context import BuildContext
from karat.retrieve.system import build_system
from karat.retrieve.system_config import parse_systems

SCENES = {
    "Sc9": "The storm takes the boat.",
    "Sc1": "Anna finds a silver key on the boat.",
    "Sc2": "Anna hides.",
    "Sc3": "The harbor is calm before the storm.",
    "Sc4": "",
    "Sc5": "Marcus sells the boat and the key.",
    "Sc6": "The key opens the lighthouse.",
}
QUERIES: list[Any] = [
    {"id": "storm", "query": "the storm", "relevant": ["Sc3", "Sc9"], "topK": 2},
    {"query": " silver key ", "relevant_ids": ["Sc1"]},
    {"id": "gone", "q": "who hides", "answers": ["Sc2", "Sc77"], "k": 1},
    {"id": "never", "query": "a dragon", "relevant": ["Sc88"]},
    {"id": "blank", "query": "  "},
    "an old friend",
    {"id": "same", "text": "the storm", "relevant": ["Sc4"], "topK": 100},
]
SYSTEMS = ("vsa", "bow")


def put(queries: Any, *, k: int = 100, more: str = "", compare: str = "false") -> None:
    lines = []
    for name, text in SCENES.items():
        told = [f'{name} describes "{text}"'] if text else []
        lines += [f"{name} group begin", *told, f"{name} group end"]
    Path("story.cnl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("queries.json").write_text(json.dumps(queries), encoding="utf-8")
    systems = "".join(f"  {name}: {{retriever: {name}, k: {k}}}\n" for name in SYSTEMS)
    Path("karat.yaml").write_text(
        "queries: queries.json\ncorpus: story.cnl\nprofile: story\n"
        f"outputs: ['story:out/rq.{{system}}.json', out/report.md]\ncompare: {compare}\n"
        f"systems:\n{systems}{more}",
        encoding="utf-8",
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(QUERIES)


def told(run: Any, system: str, *options: str) -> bytes:
    """What ``karat story`` writes."""
    names = ["story", "story.cnl", "--queries", "queries.json", "--profile", system]
    run(*names, *options, "-o", "told.json", "--quiet")
    return Path("told.json").read_bytes()


def written(name: str) -> dict[str, Any]:
    return json.loads(Path(name).read_bytes())


@pytest.mark.parametrize("system", SYSTEMS)
def test_run_eval_and_compare_write_what_karat_story_writes(run, system):
    expected = told(run, system)
    assert run("run", "--quiet").code == 0
    assert Path(f"out/rq.{system}.json").read_bytes() == expected
    reading = ["--gold", "queries.json", "--profile", "story", "--quiet"]
    run("eval", f"runs/{system}.jsonl", *reading, "-o", "story:one.json")
    assert Path("one.json").read_bytes() == expected
    runs = ["runs/bow.jsonl", "runs/vsa.jsonl"]
    run("compare", *runs, *reading, "--corpus", "story.cnl", "-o", "story:c.{system}.json")
    assert Path(f"c.{system}.json").read_bytes() == expected
    run("eval", f"runs/{system}.jsonl", *reading, "-m", "P@1", "--set", "k=2", "-o", "story:k.json")
    assert Path("k.json").read_bytes() == told(run, system, "--top-k", "2") != expected


def test_every_query_is_counted_and_those_without_gold_are_named(run):
    run("run", "--quiet")
    details = written("out/rq.bow.json")["details"]
    assert (details["labeled_queries"], details["total_queries"]) == (5, 7)
    rows = {row["id"]: row for row in details["per_query"]}
    assert list(rows) == ["storm", "q_2", "gone", "never", "q_6", "same"]
    assert rows["q_6"]["reason"] == "no_ground_truth"
    # no scene is called so: found nowhere, and that is known
    assert (rows["never"]["reciprocal_rank"], rows["never"]["first_relevant_rank"]) == (0.0, None)
    assert rows["gone"]["recall_at_k"] == 0.5


WORDS = st.lists(st.sampled_from(["anna", "sea", "storm", "key", "Été"]), max_size=4).map(" ".join)
NAMES = st.sampled_from([f"Sc{number}" for number in range(8)])
ENTRIES = st.fixed_dictionaries(
    {"query": WORDS, "relevant": st.lists(NAMES, max_size=4)},
    optional={"topK": st.integers(-1, 12)},
)


@settings(max_examples=40)
@given(
    st.dictionaries(NAMES, WORDS, min_size=1),
    st.lists(ENTRIES, min_size=1, max_size=6),
    st.sampled_from(SYSTEMS),
)
def test_the_bytes_are_those_of_karat_story_for_any_story(texts, queries, name):
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / file) for file in ("story.cnl", "q.json", "out.json")]
        groups = [
            f'{n} group begin\n{n} describes "{t}"\n{n} group end\n' for n, t in texts.items()
        ]
        Path(paths[0]).write_text("".join(groups), encoding="utf-8")
        Path(paths[1]).write_text(json.dumps(queries), encoding="utf-8")
        main(
            ["story", paths[0], "--queries", paths[1], "--profile", name, "-o", paths[2], "--quiet"]
        )
        expected = Path(paths[2]).read_bytes()
        corpus, (asked, gold) = read_corpus(paths[0]), read_eval_set(paths[1])
    system_config = parse_systems({"s": {"retriever": name}}, Place("karat.yaml"))["s"]
    found = build_system(system_config, BuildContext(corpus=lambda: corpus)).search(
        asked, corpus.frame.height
    )
    ready = prepare(gold, conventions_of("story"), queries=asked)
    scores = score(found, ready, parse_measures(["RR"]), keep=100)
    report = Report.of([scores], gold=gold, queries=asked, corpus=corpus)
    assert report_to_json(report) == expected


def test_a_log_that_ends_before_the_first_relevant_scene_is_refused(run):
    put([{"q": "the storm", "relevant": ["Sc2"]}], k=2)
    done = run("run", "--quiet", "--system", "bow")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "karat: output story: the list of bow for query 'q_1' ends after 2 scenes without Sc2; "
        "search again with its k 7 or more\n"
    )
    assert not Path("out").exists()
    log = ["runs/bow.jsonl", "--gold", "queries.json", "--profile", "story"]
    refused = run("eval", *log, "-o", "story:x.json")
    assert refused.code == 2
    assert "its k above the number of scenes; --corpus names the scenes" in refused.err


def test_a_log_that_ends_before_a_query_s_own_k_is_refused_if_gold_is_left(run):
    put([{"q": "the storm", "relevant": ["Sc9", "Sc2"]}], k=3)
    assert "ends after 3 scenes without Sc2" in run("run", "--quiet").err


@pytest.mark.parametrize(
    ("entry", "ranks"),
    [
        # All gold is in the list, whatever follows.
        ({"q": "the storm", "relevant": ["Sc9", "Sc3"]}, [1]),
        # Sc88 is no scene, so no longer list would find it.
        ({"q": "the storm", "relevant": ["Sc88"]}, [None]),
        # The rest of the gold is beyond what this query looks at.
        ({"q": "the storm", "relevant": ["Sc9", "Sc2"], "topK": 2}, [1]),
    ],
)
def test_a_short_log_is_enough_where_nothing_depends_on_its_end(run, entry, ranks):
    put([entry], k=3)
    assert run("run", "--quiet").code in (0, 1)
    rows = written("out/rq.bow.json")["details"]["per_query"]
    assert [row["first_relevant_rank"] for row in rows] == ranks
    whole = json.loads(told(run, "bow"))["details"]["per_query"]
    numbers = ("reciprocal_rank", "first_relevant_rank", "recall_at_k")
    assert [[row[key] for key in numbers] for row in rows] == [
        [row[key] for key in numbers] for row in whole
    ]


def test_a_system_that_returned_all_it_would_has_no_longer_list(run):
    # the threshold leaves out what shares no word: Sc2 is not found at any k
    put([{"q": "storm", "relevant": ["Sc2"]}])
    text = Path("karat.yaml").read_text(encoding="utf-8")
    text = text.replace("retriever: bow,", "retriever: bow, threshold: 0.001,")
    Path("karat.yaml").write_text(text, encoding="utf-8")
    assert run("run", "--quiet", "--system", "bow").code == 0
    (row,) = written("out/rq.bow.json")["details"]["per_query"]
    assert (row["reciprocal_rank"], len(row["top_results"])) == (0.0, 2)


def log_of(*lines: dict[str, Any]) -> list[str]:
    text = "".join(json.dumps({"system": "s", **line}) + "\n" for line in lines)
    Path("run.jsonl").write_text(text, encoding="utf-8")
    return ["run.jsonl", "--gold", "queries.json", "--profile", "story", "--corpus", "story.cnl"]


def hits(*names: str) -> list[dict[str, Any]]:
    return [{"chunk_id": name, "rank": at, "score": 1 / at} for at, name in enumerate(names, 1)]


def test_calls_that_failed_and_queries_that_were_not_asked_say_so(run):
    put([{"id": name, "q": "storm", "relevant": ["Sc9"]} for name in ("a", "b", "c")])
    log = log_of({"query_id": "a", "topk": hits("Sc9")}, {"query_id": "b", "error": "timeout"})
    run("eval", *log, "--quiet", "-o", "story:out.json")
    result = written("out.json")
    assert result["value"] == pytest.approx(1 / 3)
    rows = result["details"]["per_query"]
    assert [row.get("status") for row in rows] == [None, "failed", "missing"]
    assert [row["reciprocal_rank"] for row in rows] == [1.0, 0.0, 0.0]
    run("eval", *log, "--quiet", "--set", "missing=skip", "-o", "story:out.json")
    result = written("out.json")
    assert (result["value"], result["details"]["labeled_queries"]) == (1.0, 1)
    rows = result["details"]["per_query"]
    assert rows[1] == {"id": "b", "query": "storm", "status": "skipped", "reason": "failed"}


def test_two_queries_of_one_text_have_lists_of_their_own(run):
    put([{"id": name, "q": "storm", "relevant": ["Sc9"], "k": 1} for name in ("a", "b")])
    lists = {"a": hits("Sc9", "Sc1"), "b": hits("Sc1", "Sc9")}
    log = log_of(*({"query_id": name, "topk": found} for name, found in lists.items()))
    run("eval", *log, "--quiet", "-o", "story:out.json")
    rows = written("out.json")["details"]["per_query"]
    assert [row["first_relevant_rank"] for row in rows] == [1, 2]


SAID = "karat: gold of 1 query without text is left out\n"


def test_queries_without_text_are_left_out_and_that_is_said(run):
    put([{"q": "storm", "relevant": ["Sc9"]}, {"q": " ", "relevant": ["Sc1"]}])
    done = run("run", "--quiet")
    assert done.err == SAID
    assert Path("out/rq.vsa.json").read_bytes() == told(run, "vsa")
    details = written("out/rq.vsa.json")["details"]
    assert (details["labeled_queries"], details["total_queries"]) == (1, 2)
    report = json.loads(run("run", "--json").out)
    assert [one["measures"]["RR"]["n"] for one in report["systems"]] == [1, 1]


def test_a_query_without_text_moves_neither_the_gate_nor_the_object(run):
    # An empty text is like no scene, and Sc6 is the last of seven: (1 + 1/7) / 2 is not 0.6.
    put([{"q": "silver", "relevant": ["Sc1"]}, {"q": "", "relevant": ["Sc6"]}], more=GATES)
    done = run("run", "--system", "bow")
    result = written("out/rq.bow.json")
    assert (done.code, result["value"], result["pass"]) == (0, 1.0, True)
    assert done.out.startswith("PASS")
    put([{"q": "silver", "relevant": ["Sc6"]}, {"q": "", "relevant": ["Sc9"]}], more=GATES)
    done = run("run", "--system", "bow")
    result = written("out/rq.bow.json")
    # The empty text would have found Sc9 at once: (1/7 + 1) / 2.
    assert (done.code, result["pass"]) == (1, False)
    assert result["value"] == pytest.approx(1 / 7)
    assert "mean RR > 0.6  fail     0.1429" in done.out
    log = ["runs/bow.jsonl", "--gold", "queries.json", "--profile", "story", "--json"]
    (system,) = json.loads(run("eval", *log).out)["systems"]
    assert system["measures"]["RR"]["mean"] == pytest.approx(1 / 7)


def test_gold_of_queries_without_text_alone_is_no_gold(run):
    put([{"q": " ", "relevant": ["Sc9"]}, {"q": "storm"}], more=GATES)
    done = run("run", "--quiet")
    assert (done.code, done.err) == (0, f"{SAID}karat: skipped: {WHY['no_labeled_queries']}\n")
    assert written("out/rq.bow.json")["details"]["reason"] == "no_labeled_queries"
    assert Path("out/rq.bow.json").read_bytes() == told(run, "bow")


def test_other_profiles_score_what_has_no_text(run):
    put([{"q": "storm", "relevant": ["Sc9"]}, {"q": " ", "relevant": ["Sc1"]}])
    run("run", "--quiet")
    done = run("eval", "runs/bow.jsonl", "--gold", "queries.json", "-m", "RR", "--json")
    (system,) = json.loads(done.out)["systems"]
    assert (system["measures"]["RR"]["n"], done.err) == (2, "")


@pytest.mark.parametrize("setting", ["level=doc", "empty_gold=zero", "depth=3"])
def test_settings_that_the_metric_does_not_have_are_refused(run, setting):
    run("run", "--quiet")
    log = ["runs/bow.jsonl", "--gold", "queries.json", "--profile", "story", "--set", setting]
    refused = run("eval", *log, "-o", "story:x.json")
    assert (refused.code, Path("x.json").exists()) == (2, False)
    assert refused.err == f"karat: output story: has no {setting}; leave out that setting\n"


def test_texts_that_are_not_there_are_asked_for(run):
    run("run", "--quiet")
    Path("qrels.txt").write_text("storm 0 Sc9 1\n", encoding="utf-8")
    log = ["runs/bow.jsonl", "--gold", "qrels.txt", "--profile", "story", "-o", "story:x.json"]
    refused = run("eval", *log)
    assert refused.code == 2
    assert "--queries queries.json" in refused.err
    assert run("eval", *log, "--queries", "queries.json", "--quiet").code == 0
    assert written("x.json")["details"]["labeled_queries"] == 1


GATES = "gates: ['mean RR > 0.6']\n"
NOTHING = {
    "no_labeled_queries": [["storm", "key"], [{"q": "storm", "relevant": []}, {"q": ""}]],
    "missing_retrieval_queries": [
        [],
        {"retrieval_queries": []},
        {"corpora": {"retrievalQueries": []}},
    ],
}
WHY = {
    "no_labeled_queries": "no query says which scenes are relevant",
    "missing_retrieval_queries": "there are no queries",
}


@pytest.mark.parametrize(
    ("reason", "queries"), [(why, one) for why, some in NOTHING.items() for one in some]
)
@pytest.mark.parametrize("compare", ["false", "true"])
def test_a_run_without_labels_is_skipped_which_is_no_failure(run, reason, queries, compare):
    put(queries, more=GATES, compare=compare)
    done = run("run", "--quiet")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"karat: skipped: {WHY[reason]}\n"
    for system in SYSTEMS:
        result = written(f"out/rq.{system}.json")
        assert (result["value"], result["pass"], result["threshold"]) == (None, None, 0.6)
        assert result["details"] == {"status": "skipped", "reason": reason}
        assert Path(f"out/rq.{system}.json").read_bytes() == told(run, system)
    assert "RR" in Path("out/report.md").read_text(encoding="utf-8")
    report = json.loads(run("run", "--json").out)
    assert [one["measures"]["RR"]["mean"] for one in report["systems"]] == [None, None]


@pytest.mark.parametrize("compare", ["false", "true"])
def test_a_karat_yaml_without_queries_is_skipped_too(run, compare):
    put([], more=GATES, compare=compare)
    text = Path("karat.yaml").read_text(encoding="utf-8")
    Path("karat.yaml").write_text(text.removeprefix("queries: queries.json\n"), encoding="utf-8")
    done = run("run", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "karat: skipped: there are no queries\n")
    for system in SYSTEMS:
        details = written(f"out/rq.{system}.json")["details"]
        assert details == {"status": "skipped", "reason": "missing_retrieval_queries"}
        assert Path(f"out/rq.{system}.json").read_bytes() == told(run, system)
    report = json.loads(run("run", "--json").out)
    assert [one["measures"]["RR"]["mean"] for one in report["systems"]] == [None, None]
    Path("karat.yaml").write_text("profile: story\ncorpus: story.cnl\n", encoding="utf-8")
    assert "has no systems" in run("run").err


def test_the_reason_stands_below_the_report(run):
    put(["storm"], more=GATES)
    done = run("run")
    assert done.err.splitlines()[-1] == "karat: skipped: no query says which scenes are relevant"
    assert "0 of 1 queries scored" in done.out


@pytest.mark.parametrize(
    ("gate", "code"), [("latency.total.p50 <= 0.000001", 1), ("latency.rerank.p50 <= 5", 3)]
)
def test_other_gates_still_decide_where_the_metric_is_skipped(run, gate, code):
    put(["storm"], more=f"gates: ['mean RR > 0.6', 'mean {gate}']\n")
    assert run("run", "--quiet").code == code


def test_only_a_story_is_skipped(run):
    put(["storm"], more=GATES)
    text = (
        Path("karat.yaml").read_text(encoding="utf-8").replace("profile: story", "profile: karat")
    )
    Path("karat.yaml").write_text(text.replace("'story:out/rq.{system}.json', ", ""), "utf-8")
    assert run("run", "--quiet").code == 3
    Path("queries.json").write_text("[]", encoding="utf-8")
    done = run("run", "--quiet")
    assert (done.code, done.err) == (
        2,
        "karat: queries.json: is empty; a file with queries is expected\n",
    )


def test_eval_and_compare_skip_too(run):
    put(["storm"])
    run("run", "--quiet")
    reading = ["--gold", "queries.json", "--profile", "story", "--quiet"]
    for command in (["eval", "runs/bow.jsonl"], ["compare", "runs/bow.jsonl", "runs/vsa.jsonl"]):
        done = run(*command, *reading)
        assert (done.code, done.err) == (
            0,
            "karat: skipped: no query says which scenes are relevant\n",
        )


def test_a_story_that_cannot_be_read_is_refused_even_if_nothing_is_asked(run):
    put([])
    Path("story.cnl").write_text("Sc1 group begin\n", encoding="utf-8")
    done = run("run", "--quiet")
    assert (done.code, done.err) == (2, "karat: story.cnl:1: group 'Sc1' is not closed\n")
    assert not Path("out").exists()


def test_an_unknown_system_is_refused_even_if_nothing_is_asked(run):
    put([])
    done = run("run", "--system", "vas")
    assert (done.code, done.err) == (2, "karat: unknown system 'vas'; did you mean vsa?\n")


def test_the_form_holds_one_system_with_its_queries(run):
    put(QUERIES)
    words = ("compare", "a", "b", "--gold", "queries.json", "--profile", "story")
    refused = run(*words, "-o", "story:out.json")
    assert "write story:out.{system}.json" in refused.err
    asked, gold = read_eval_set("queries.json")
    ready = prepare(gold, conventions_of("story"), queries=asked)
    scores = score(Run.from_dict({"storm": {"Sc9": 1.0}}), ready, parse_measures(["RR"]))
    report = Report.of([scores, scores], gold=gold, queries=asked)
    for wrong in (report, replace(report, systems=report.systems[:1], read_tables=None)):
        with pytest.raises(UsageError, match="holds one system, with the queries"):
            report_to_json(wrong)
