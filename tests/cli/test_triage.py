from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

GOLD = ("--gold", "qrels.txt")
ALL = (*GOLD, "--queries", "queries.jsonl", "--corpus", "corpus.jsonl")


def written(path: str, rows) -> str:
    Path(path).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def read(path: str = "out.json"):
    return json.loads(Path(path).read_text())


def body(run, *arguments):
    done = run("triage", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Three queries: one that is answered, one that finds its gold late, one that never does."""
    monkeypatch.chdir(tmp_path)
    written(
        "eval.jsonl",
        [
            {
                "query_id": "q1",
                "query": "red door",
                "relevant_chunk_ids": ["a#1"],
                "language": "en",
            },
            {
                "query_id": "q2",
                "query": "blue gate",
                "relevant_chunk_ids": ["b#1"],
                "language": "es",
            },
            {
                "query_id": "q3",
                "query": "a tall wall",
                "relevant_chunk_ids": ["c#1", "nowhere"],
                "language": "es",
                "notes": "asked by a mason",
            },
        ],
    )
    written(
        "corpus.jsonl",
        [
            {"item_id": "a#1", "text": "the red door", "meta": {"section": "Doors"}},
            {"item_id": "b#1", "text": "a gate that is blue", "meta": {"section": "Gates"}},
            {"item_id": "c#1", "text": "walls", "meta": {"section": "Walls"}},
            *({"item_id": f"x#{at}", "text": f"something else {at}"} for at in range(12)),
        ],
    )
    others = [f"x#{at}" for at in range(12)]
    written(
        "run.jsonl",
        [
            {"query_id": "q1", "system": "mine", "topk": ["a#1", *others[:4]]},
            {"query_id": "q2", "system": "mine", "topk": [*others[:11], "b#1"]},
            {"query_id": "q3", "system": "mine", "topk": others[:5]},
        ],
    )
    return ("run.jsonl", "--gold", "eval.jsonl", "--corpus", "corpus.jsonl")


def test_the_worst_queries_stand_beside_their_gold_and_bm25(run, world):
    document = body(run, *world)
    assert document["measure"] == "nDCG@10"
    assert document["worst"] == 20
    # q2 and q3 are at 0; the gold of q3 is nowhere, that of q2 at rank 12.
    assert [case["query_id"] for case in document["queries"]] == ["q3", "q2", "q1"]
    late = document["queries"][1]
    assert late["text"] == "blue gate"
    assert late["attributes"] == {"language": "es"}
    assert len(late["top"]) == 10
    [gold] = late["gold"]
    assert gold["ranks"] == {"final": 12, "stages": {}, "bm25": 1}
    assert (gold["section"], gold["in_corpus"], gold["doc_id"]) == ("Gates", True, "b")
    assert late["bm25"] == [
        {
            "rank": 1,
            "item_id": "b#1",
            "score": late["bm25"][0]["score"],
            "grade": 1.0,
            "gold": True,
            "text": "a gate that is blue",
        }
    ]
    assert late["terms"]["gold_words"] == ["blue", "gate"]
    never = document["queries"][0]
    assert never["note"] == "asked by a mason"
    assert [(one["item_id"], one["in_corpus"]) for one in never["gold"]] == [
        ("c#1", True),
        ("nowhere", False),
    ]
    assert never["terms"]["missing"] == ["a", "tall", "wall"]
    assert document["queries"][2]["class"] is None


def test_misses_stand_with_their_class_and_what_speaks_for_it(run, world):
    document = body(run, *world)
    classes = {case["query_id"]: case["class"] for case in document["queries"]}
    assert classes == {"q1": None, "q2": "low_rank", "q3": "complete_miss"}
    assert all(case["because"] and case["evidence"] for case in document["queries"][:2])
    assert document["failures"]["misses"] == 2
    assert document["failures"]["classes"]["low_rank"] == 1
    assert document["lines"]["miss"] == 10


def test_bm25_finds_as_the_retriever_does(run, files):
    config = (
        "queries: queries.jsonl\ncorpus: corpus.jsonl\nsystems: {bm25: {retriever: bm25, k: 10}}\n"
    )
    Path("karat.yaml").write_text(config)
    assert run("search", "karat.yaml", "-o", "own.jsonl", "--quiet").code == 0
    logged = {
        row["query_id"]: [(hit["chunk_id"], hit["score"]) for hit in row["topk"]]
        for row in map(json.loads, Path("own.jsonl").read_text().splitlines())
    }
    for case in body(run, "dense.jsonl", *ALL)["queries"]:
        shown = [(hit["item_id"], hit["score"]) for hit in case["bm25"]]
        assert shown == logged[case["query_id"]]


def test_the_page_shows_columns_side_by_side(run, world, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    done = run("triage", *world, "--worst", "2")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "2 of 3 queries miss: no gold in the top 10"
    assert lines[1] == "complete_miss 1 · low_rank 1"
    *_, heads = (line for line in lines if line.startswith("rank"))
    assert heads.split() == ["rank", "item", "grade", "score", "BM25", "text"]
    assert "note: asked by a mason" in lines
    assert any(line.split()[:2] == ["1", "x#0"] and "* b#1" in line for line in lines)
    assert "not in the corpus" in done.out
    assert "q1" not in done.out


def test_gold_is_marked_in_every_list(run, world):
    done = run("triage", *world, "--query", "q2")
    assert " 1 * b#1 (1)" in done.out
    assert " 1   x#0" in done.out


def test_a_query_by_name_is_shown_in_full(run, world):
    long = " ".join(f"word{at}" for at in range(300))
    with Path("corpus.jsonl").open("a") as file:
        file.write(json.dumps({"item_id": "long#1", "text": long}) + "\n")
    rows = [json.loads(line) for line in Path("run.jsonl").read_text().splitlines()]
    rows[2]["topk"].insert(0, "long#1")
    written("run.jsonl", rows)
    assert long not in run("triage", *world).out
    done = run("triage", *world, "--query", "q3")
    assert long in done.out
    assert "q2" not in done.out
    assert "reproduce: karat triage run.jsonl" in done.out


HOSTILE = (
    "\x1b[31mred\x1b[0m [bold]markup[/bold] :smile: \x07\r\n\u202egnihtyreve"
    " <script>x</script> | `a` *b*"
)


def test_hostile_texts_stay_text(run, world):
    written("corpus.jsonl", [{"item_id": f"{i}#1", "text": HOSTILE} for i in "abc"])
    written(
        "eval.jsonl",
        [
            {
                "query_id": "q[1]\x1b[2J",
                "query": HOSTILE,
                "relevant_chunk_ids": ["a#1", "b\x1b[1m"],
                "notes": HOSTILE,
                "tag\x1b": [HOSTILE],
            }
        ],
    )
    hits = [{"chunk_id": "c#1", "score": 1}, {"chunk_id": "\x1b[31m[red]", "score": 0.5}]
    written("run.jsonl", [{"query_id": "q[1]\x1b[2J", "system": "\x1b[5m", "topk": hits}])
    for more in ((), ("--query", "q[1]\x1b[2J"), ("-o", "out.md")):
        done = run("triage", *world, *more)
        assert done.code == 0
        assert not any(sign in done.out for sign in ("\x1b", "\x07", "\r", "\u202e"))
        assert "[bold]markup" in done.out
        assert ":smile:" in done.out
    page = Path("out.md").read_text()
    assert "<script>" not in page
    assert "\x1b" not in page
    case = body(run, *world)["queries"][0]
    assert case["text"] == HOSTILE


def test_a_text_of_a_megabyte_is_cut(run, world, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    huge = "x" * 1_000_000
    written("corpus.jsonl", [{"item_id": i, "text": huge} for i in ("c#1", "x#0")])
    done = run("triage", *world, "-o", "out.md", "-o", "out.json")
    assert done.code == 0
    assert len(done.out) < 20_000
    assert len(Path("out.md").read_text()) < 20_000
    assert read()["queries"][0]["top"][0]["text"] == huge


def test_the_command_that_shows_a_query_again_does(run, world, tmp_path):
    odd = "it's q;1 $HOME"
    for name in ("eval.jsonl", "run.jsonl"):
        Path(name).write_text(Path(name).read_text().replace('"q2"', json.dumps(odd)))
    shutil.move("run.jsonl", "my run.jsonl")
    given = ("my run.jsonl", *world[1:], "-m", "R@5", "--line", "miss=3", "--set", "rel=1")
    case = next(one for one in body(run, *given)["queries"] if one["query_id"] == odd)
    program, *words = shlex.split(case["reproduce"])
    assert program == "karat"
    assert words[:2] == ["triage", "my run.jsonl"]
    again = json.loads(run(*words, "--json").out)
    assert again["queries"] == [case]
    assert again["measure"] == "R@5"
    assert again["worst"] is None
    assert again["lines"]["miss"] == 3


def test_a_query_can_be_asked_again_where_its_karat_yaml_is(run, files):
    config = (
        "queries: queries.jsonl\ncorpus: corpus.jsonl\nsystems: {mine: {retriever: bm25, k: 5}}\n"
    )
    Path("karat.yaml").write_text(config)
    assert run("search", "--quiet").code == 0
    case = body(run, "runs/mine.jsonl", *ALL, "--query", "q09")["queries"][0]
    assert case["ask_again"] == (
        "karat search karat.yaml --system mine --filter query_id=q09 -o q09.jsonl"
    )
    assert run(*shlex.split(case["ask_again"])[1:], "--quiet").code == 0
    [asked] = map(json.loads, Path("q09.jsonl").read_text().splitlines())
    logged = map(json.loads, Path("runs/mine.jsonl").read_text().splitlines())
    before = next(row for row in logged if row["query_id"] == "q09")
    assert asked["topk"] == before["topk"]
    Path("karat.yaml").unlink()
    assert "ask_again" not in body(run, "runs/mine.jsonl", *ALL)["queries"][0]


def test_a_run_that_karat_did_not_make_cannot_be_asked_again(run, files):
    assert all("ask_again" not in case for case in body(run, "dense.jsonl", *ALL)["queries"])


def test_misses_are_written_by_themselves(run, world):
    done = run("triage", *world, "-o", "misses:out/misses.json", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    text = Path("out/misses.json").read_text()
    assert text.startswith('[\n  {\n    "query": "blue gate",\n    "retrieved": [\n')
    assert json.loads(text) == [
        {"query": "blue gate", "retrieved": [f"x#{at}" for at in range(10)], "relevant": ["b#1"]},
        {
            "query": "a tall wall",
            "retrieved": [f"x#{at}" for at in range(5)],
            "relevant": ["c#1", "nowhere"],
        },
    ]


def test_a_minimal_loop_looks_at_five(run, world):
    for more, k in (((), 5), (("--line", "miss=11"), 11)):
        run("triage", *world, "--profile", "minimal", *more, "-o", "misses:m.json")
        assert read("m.json")[0]["retrieved"] == [f"x#{at}" for at in range(k)]
    document = body(run, *world, "--profile", "minimal")
    assert document["measure"] == "Hit@k"
    assert document["lines"]["miss"] == 5


def test_questions_outside_the_knowledge_base_are_no_misses(run, world):
    with Path("eval.jsonl").open("a") as file:
        file.write('{"query_id": "q4", "query": "off topic", "relevant_chunk_ids": []}\n')
    document = body(run, *world, "-o", "misses:m.json")
    assert [one["query"] for one in read("m.json")] == ["blue gate", "a tall wall"]
    assert "q4" not in [case["query_id"] for case in document["queries"]]
    assert body(run, *world, "--query", "q4")["queries"][0]["gold"] == []


def test_failed_calls_are_misses_with_their_error(run, world):
    rows = [
        {"query_id": "q1", "error": "timed out"},
        {"query_id": "q2", "error": {"code": 503}},
        {"query_id": "q3", "error": "timed out"},
    ]
    written("run.jsonl", rows)
    refused = run("triage", *world, "-o", "misses:m.json", "--json")
    assert (refused.code, refused.out) == (2, "")
    assert "3 of 3 calls of run.jsonl failed: timed out" in refused.err
    allowed = ("--set", "missing_ids=allow")
    asked = run("triage", *world, *allowed, "-o", "misses:m.json", "--json")
    assert (asked.code, asked.err) == (3, "karat: cannot tell: no query could be scored\n")
    document = json.loads(asked.out)
    assert [case["error"] for case in document["queries"]] == [
        "timed out",
        '{"code": 503}',
        "timed out",
    ]
    assert {case["class"] for case in document["queries"]} == {"failed_call"}
    misses = read("m.json")
    assert all(one["retrieved"] == [] and one["error"] for one in misses)
    done = run("triage", *world, *allowed)
    assert "the call failed" in done.out
    assert "3 of 3 queries miss" in done.out


def test_no_miss_at_all_is_said(run, world):
    rows = [
        {"query_id": name, "topk": [item]}
        for name, item in {"q1": "a#1", "q2": "b#1", "q3": "c#1"}.items()
    ]
    written("run.jsonl", rows)
    done = run("triage", *world, "-o", "misses:m.json")
    assert done.code == 0
    assert done.out.startswith("0 of 3 queries miss: no gold in the top 10\n")
    assert Path("m.json").read_text() == "[]\n"


def test_no_gold_at_all_is_said(run, world):
    Path("zero.txt").write_text("q1 0 a#1 0\n")
    done = run("triage", "run.jsonl", "--gold", "zero.txt")
    assert done.code == 0
    assert done.out.startswith("No query has gold.\n")


def test_without_a_corpus_there_are_no_texts_and_no_bm25(run, world):
    document = body(run, *world[:3])
    assert document["bm25"] == {"lacks": "BM25's list needs the items' texts: give --corpus"}
    case = document["queries"][0]
    assert case["bm25"] is None
    assert {hit["text"] for hit in case["top"]} == {None}
    assert [one["in_corpus"] for one in case["gold"]] == [None, None]
    done = run("triage", *world[:3])
    assert "not shown: BM25's list needs the items' texts: give --corpus" in done.out


def test_without_the_queries_texts_there_is_no_bm25(run, files):
    document = body(run, "bm25.trec", *GOLD, "--corpus", "corpus.jsonl")
    assert document["bm25"] == {"lacks": "BM25's list needs the queries' texts: give --queries"}
    assert document["queries"][0]["text"] is None
    run("triage", "bm25.trec", *GOLD, "-o", "misses:m.json")
    assert {one["query"] for one in read("m.json")} <= {f"q{at:02d}" for at in range(1, 13)}


def test_a_query_without_a_text_among_others_has_no_bm25_list(run, world):
    written("queries.jsonl", [{"query_id": "q1", "text": "red"}, {"query_id": "q2", "text": ""}])
    document = body(run, *world, "--queries", "queries.jsonl")
    lists = {case["query_id"]: case["bm25"] for case in document["queries"]}
    assert lists["q2"] is None
    assert lists["q1"][0]["item_id"] == "a#1"
    done = run("triage", *world, "--queries", "queries.jsonl")
    assert "(the query's text is not known)" in done.out


def test_the_index_is_kept_where_it_is_asked_for(run, world):
    run("triage", *world, "--cache", "kept")
    assert len(list(Path("kept/index").glob("*-*.npz"))) == 1
    run("triage", *world)
    assert len(list(Path(".karat/index").glob("*-*.npz"))) == 1


def test_segments_count_their_misses(run, world):
    document = body(run, *world, "--by", "language")
    assert document["segments"]["language"]["es"]["misses"] == 2
    assert document["segments"]["language"]["en"] == {"queries": 1, "misses": 0, "classes": {}}
    done = run("triage", *world, "--by", "language")
    assert ["es", "2", "2", "1", "1"] in [line.split() for line in done.out.splitlines()]


def test_the_same_inputs_give_the_same_bytes_anywhere(run, files, tmp_path, monkeypatch):
    arguments = ("triage", "dense.jsonl", *ALL, "-o", "a.json", "-o", "a.md", "-o", "misses:m.json")
    written = []
    for place in (files, tmp_path / "elsewhere"):
        if not place.exists():
            shutil.copytree(files, place, ignore=shutil.ignore_patterns(".karat", "a.*", "m.*"))
        monkeypatch.chdir(place)
        for _ in range(2):
            assert run(*arguments).code == 0
            written.append([Path(name).read_bytes() for name in ("a.json", "a.md", "m.json")])
    assert all(one == written[0] for one in written)
    assert str(tmp_path).encode() not in b"".join(written[0])
    assert json.loads(written[0][0])["inputs"]["corpus"]["sha256"]


def test_markdown_holds_every_list(run, world):
    run("triage", *world, "--query", "q2", "-o", "out.md", "--quiet")
    page = Path("out.md").read_text()
    assert page.startswith("# Triage\n\n2 of 3 queries miss: no gold in the top 10\n")
    assert "- \\* b\\#1 (1)" in page
    assert "BM25" in page
    run("triage", *world, "-o", "out.md", "--quiet")
    assert "| item | grade | what | text |" in Path("out.md").read_text()


def test_a_trec_run_has_ranks_and_scores(run, files):
    document = body(run, "bm25.trec", *ALL)
    assert document["queries"][0]["top"] is not None
    first = body(run, "bm25.trec", *ALL, "--query", "q01")["queries"][0]["top"][0]
    assert (first["item_id"], first["score"]) == ("refunds#2", 5.5302)


def test_a_run_can_come_through_stdin(spawn, world):
    text = Path("run.jsonl").read_bytes()
    piped = spawn("triage", "-", *world[1:], stdin=text)
    assert piped.code == 0
    assert piped.out.startswith("2 of 3 queries miss")
    assert "in full: karat triage - --gold eval.jsonl" in piped.out


def test_stages_say_where_gold_was_lost(run, world):
    rows = [json.loads(line) for line in Path("run.jsonl").read_text().splitlines()]
    rows[2] |= {"raw": [*rows[2]["topk"], "c#1"], "stages": {"rerank": ["x#1", "c#1"]}}
    written("run.jsonl", rows)
    case = body(run, *world, "--query", "q3")["queries"][0]
    assert case["gold"][0]["ranks"]["stages"] == {"raw": 6, "rerank": 2}
    assert "raw 6 · rerank 2" in run("triage", *world, "--query", "q3").out


def test_documents_are_the_units_where_they_are_judged(run, world):
    Path("docs.txt").write_text("q1 0 a 1\nq2 0 b 1\nq3 0 c 1\n")
    given = ("run.jsonl", "--gold", "docs.txt", "--queries", "eval.jsonl", *world[3:])
    document = body(run, *given, "--set", "level=doc")
    late = next(case for case in document["queries"] if case["query_id"] == "q2")
    assert late["gold"][0]["item_id"] == "b"
    assert late["gold"][0]["ranks"] == {"final": 12, "stages": {}, "bm25": 1}


def test_spans_are_the_units_where_they_are_judged(run, world):
    text = "one red door and a blue gate"
    rows = [
        {"item_id": "d#0", "text": text[:12], "start": 0, "end": 12},
        {"item_id": "d#1", "text": text[12:], "start": 12, "end": 28},
    ]
    written("corpus.jsonl", rows)
    Path("spans.txt").write_text("q1 0 d:4-12 1\nq2 0 d:19-28 1\n")
    written("run.jsonl", [{"query_id": q, "topk": ["d#0", "d#1"]} for q in ("q1", "q2")])
    given = ("run.jsonl", "--gold", "spans.txt", *world[3:], "--queries", "eval.jsonl")
    document = body(run, *given, "--set", "level=span", "--query", "q2", "--query", "q1")
    late, early = document["queries"]
    assert (late["gold"][0]["item_id"], late["gold"][0]["text"]) == ("d:19-28", "blue gate")
    assert late["gold"][0]["ranks"] == {"final": 2, "stages": {}, "bm25": 1}
    assert early["gold"][0]["ranks"]["final"] == 1


def test_spans_without_places_have_no_bm25_and_say_why(run, world):
    Path("spans.txt").write_text("q1 0 a:4-12 1\n")
    written("run.jsonl", [{"query_id": "q1", "topk": ["a:0-12"]}])
    document = body(
        run, "run.jsonl", "--gold", "spans.txt", *world[3:], "--queries", "eval.jsonl",
        "--set", "level=span",
    )  # fmt: skip
    assert "where item" in document["bm25"]["lacks"]


def test_an_item_returned_twice_is_shown_at_both_places_and_counts_once(run, world):
    rows = [{"query_id": "q2", "topk": ["x#1", "x#1", "b#1"]}]
    written("run.jsonl", rows)
    case = body(run, *world, "--query", "q2")["queries"][0]
    assert [hit["item_id"] for hit in case["top"]] == ["x#1", "x#1", "b#1"]
    assert [hit.get("repeat", False) for hit in case["top"]] == [False, True, False]
    assert case["top"][1]["grade"] is None
    assert "x#1 (again)" in run("triage", *world, "--query", "q2").out
    assert run("triage", *world, "--strict").code == 2


def test_another_measure_makes_other_queries_bad(run, world):
    document = body(run, *world, "-m", "R@20", "--worst", "2")
    # Both q1 and q2 find all of their gold; that of q2 lies deeper.
    assert [(case["query_id"], case["value"]) for case in document["queries"]] == [
        ("q3", 0.0),
        ("q2", 1.0),
    ]


def test_measures_of_texts_and_of_tokens_have_what_they_need(run, world):
    """The same values as an evaluation over the corpus itself."""
    for measure in ("Novelty@5", "R@40tok", "Coverage(of='corpus')@5"):
        run("eval", *world, "-m", measure, "-o", "values.csv", "--quiet")
        expected = dict(pl.read_csv("values.csv").select("query_id", measure).rows())
        document = body(run, *world, "-m", measure)
        assert {case["query_id"]: case["value"] for case in document["queries"]} == expected


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--query", "q22"), "unknown query 'q22'; did you mean q2?"),
        (("--query", "zebra"), "unknown query 'zebra'; known: q1, q2, q3"),
        (("--worst", "0"), "--worst is '0'; give a whole number from 1 to 1,000,000"),
        (("--worst", "many"), "--worst is 'many'; give a whole number from 1 to 1,000,000"),
        (("--worst", "-3"), "--worst is '-3'; give a whole number from 1 to 1,000,000"),
        (("run.jsonl",), "triage takes one run, not 2"),
        (("-m", "R@5,P@5"), "one measure selects the bad queries, not 2"),
        (("-m", "ndgc@5"), "did you mean nDCG?"),
        (("-m", "Sim@5"), "Sim@5 ranks no query as worse"),
        (("-m", "latency.total.p50"), "latency"),
        (("--line", "mis=5"), "did you mean miss?"),
        (("--line", "miss=0"), "miss is '0'"),
        (("--by", "langage"), "did you mean language?"),
        (("-o", "out.csv"), "output 'out.csv': use .json, .md, misses:"),
        (("-o", "misses:"), "has no file name"),
        (("-o", "run.jsonl.md", "-o", "run.jsonl.md"), "is named twice"),
        (("-o", "misses:run.jsonl"), "is also an input"),
        (("--corpus", "nowhere.jsonl"), "--corpus is given twice"),
    ],
)
def test_what_cannot_be_meant_is_refused(run, world, arguments, told):
    done = run("triage", *world, *arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert done.err.count("\n") == 1


def test_what_is_not_there_is_told(run, world):
    assert "no such file" in run("triage", "run.jsonl", "--gold", "none.txt").err
    assert "no such file" in run("triage", *world[:3], "--corpus", "none.jsonl").err
    Path("other.txt").write_text("p1 0 a#1 1\n")
    assert "share no query id" in run("triage", "run.jsonl", "--gold", "other.txt").err
    twice = run("triage", "-", "--gold", "-")
    assert "only one input" in twice.err


def test_findings_stand_first(run, files):
    """One call of the demo's log failed, which is the first thing to know."""
    asked = ("triage", "dense.jsonl", *ALL)
    (first, *_) = json.loads(run(*asked, "--json").out)["findings"]
    assert first.startswith("1 of 12 calls failed")
    page = run(*asked).out
    assert page.index("1 of 12 calls failed") < page.index("nDCG@10")


def test_with_the_index_there_nothing_heavy_is_loaded(run, world):
    run("triage", *world)
    program = (
        "import sys; from karat.cli.main import main; "
        f"main({['triage', *world, '--quiet']!r}); "
        "print(sorted({'bm25s', 'numba', 'scipy', 'pydantic', 'fastembed'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_long_indexing_is_told_once(run, world, monkeypatch):
    monkeypatch.setattr("karat.evaluation.inputs._LONG_BYTES", 1)
    assert run("triage", *world).err == "indexing corpus.jsonl, which is done once\n"
    assert run("triage", *world).err == ""
    with Path("corpus.jsonl").open("a") as file:
        file.write('{"item_id": "new", "text": "x"}\n')
    assert run("triage", *world, "--quiet").err == ""


def test_the_examples_of_the_page_print_what_it_says():
    place = Path(__file__).parents[2] / "docs"
    spec = importlib.util.spec_from_file_location("examples", place / "examples.py")
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    page = (place / "find-out-why-it-missed.md").read_text(encoding="utf-8")
    assert page == examples.refreshed(page), (
        "run: python docs/examples.py docs/find-out-why-it-missed.md"
    )
