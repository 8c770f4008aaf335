"""``karat chunks``: chunkings compared on span gold, chunks written, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "chunks"
N = 24


@pytest.fixture
def garden(tmp_path, monkeypatch):
    """The example's documents and queries in the current folder."""
    shutil.copytree(EXAMPLE, tmp_path / "garden")
    monkeypatch.chdir(tmp_path / "garden")
    return tmp_path / "garden"


@pytest.fixture
def facts(tmp_path, monkeypatch):
    """Documents of one long sentence each, every one of which is what a query asks for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    asked = []
    for number in range(N):
        text = f"Fact {number} says that " + " ".join(f"w{number}x{at}" for at in range(30)) + "."
        (tmp_path / "docs" / f"f{number:02}.txt").write_text(text)
        span = f"f{number:02}.txt:0-{len(text)}"
        asked.append({"query_id": f"q{number}", "question": text, "gold_evidence": [span]})
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    (tmp_path / "queries.jsonl").write_text(lines)
    return tmp_path


def report_of(result):
    document = json.loads(result.out)
    return {system["name"]: system for system in document["systems"]}, document


def test_the_three_chunkers_are_compared_unless_others_are_named(garden, run):
    result = run("chunks", "docs", "--queries", "queries.jsonl")
    assert result.code == 0
    for name in ("fixed:1200/200", "sentence:1200/200", "heading:1200/200"):
        assert name in result.out
    assert "sentence:1200/200 against fixed:1200/200" in result.out
    assert "index bytes" in result.out
    for measure in ("R@5", "DistinctDocs@5"):
        assert measure in result.out
    assert "level span" in result.out


def test_the_report_holds_intervals_comparisons_and_what_the_chunks_are_like(garden, run):
    words = ["--chunker", "fixed:size=400,overlap=60", "--chunker", "heading:300/0"]
    result = run("chunks", "docs", "--queries", "queries.jsonl", *words, "--json")
    systems, document = report_of(result)
    assert list(systems) == ["fixed:400/60", "heading:300/0"]
    for system in systems.values():
        assert set(system["measures"]) == {"R@5", "DistinctDocs@5"}
        assert all(one["ci"] is not None and one["n"] == 17 for one in system["measures"].values())
    (first, second) = document["comparisons"]
    assert (first["baseline"], first["system"], first["measure"]) == (*systems, "R@5")
    assert second["measure"] == "DistinctDocs@5"
    meta = systems["fixed:400/60"]["meta"]
    assert meta["chunker"] == {"algo": "fixed", "size": 400, "overlap": 60, "unit": "chars"}
    texts = [file.read_text() for file in sorted((garden / "docs").iterdir())]
    # Each chunk but a document's last brings 340 characters that are not in the next.
    lengths = [
        min(400, len(text) - start)
        for text in texts
        for start in range(0, max(1, len(text) - 60), 340)
    ]
    chunks = meta["chunks"]
    assert chunks["chunks"] == len(lengths)
    assert chunks["mean_chars"] == pytest.approx(sum(lengths) / len(lengths))
    assert (chunks["max_chars"], chunks["documents"], chunks["empty_documents"]) == (400, 4, 0)
    assert chunks["index_bytes"] > 0


def test_the_same_question_is_answered_by_search_and_eval(garden, run):
    """The written chunks, indexed as they are, and the log evaluated on them."""
    asked = ("--queries", "queries.jsonl", "-m", "R@3,RR@10,DistinctDocs@5,R@100tok")
    here, _ = report_of(run("chunks", "docs", *asked, "--chunker", "sentence:300/60", "--json"))
    assert run("chunks", "docs", "--chunker", "sentence:300/60", "--write", "c.jsonl").code == 0
    (garden / "karat.yaml").write_text(
        "queries: queries.jsonl\ncorpus: c.jsonl\nsystems: {s: {retriever: bm25}}\n"
    )
    assert run("search").code == 0
    there, _ = report_of(
        run(
            *("eval", "runs/s.jsonl", "--gold", "queries.jsonl", "--corpus", "c.jsonl", "--json"),
            *("--set", "level=span", "-m", asked[-1]),
        )
    )
    assert here["sentence:300/60"]["measures"] == there["s"]["measures"]


def test_a_system_with_a_chunker_gives_the_same_list_as_its_written_chunks(garden, run):
    run("chunks", "docs", "--chunker", "heading:300/0", "--write", "c.jsonl")
    docs = [
        {"doc_id": file.name, "text": file.read_text()}
        for file in sorted((garden / "docs").iterdir())
    ]
    (garden / "docs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in docs))
    logs = []
    for corpus, chunker in (
        ("c.jsonl", ""),
        ("docs.jsonl", ", chunker: {algo: heading, size: 300, overlap: 0}"),
    ):
        system = f"{{retriever: bm25{chunker}}}"
        (garden / "karat.yaml").write_text(
            f"queries: queries.jsonl\ncorpus: {corpus}\nsystems: {{s: {system}}}\n"
        )
        assert run("search", "--restart").code == 0
        lines = (garden / "runs" / "s.jsonl").read_text().splitlines()
        logs.append([json.loads(line) for line in lines])
    lists = [[[hit["chunk_id"] for hit in one["topk"]] for one in log] for log in logs]
    assert lists[0] == lists[1]
    assert {"algo": "heading", "size": 300, "overlap": 0}.items() <= logs[1][0]["chunker"].items()


def test_a_chunking_that_is_confirmed_worse_exits_with_1(facts, run):
    chunkings = ("--chunker", "fixed:400/0", "--chunker", "fixed:12/0")
    result = run("chunks", "docs", "--queries", "queries.jsonl", *chunkings, "-m", "R@5")
    assert result.code == 1
    assert "WORSE" in result.out
    swapped = ("--chunker", "fixed:12/0", "--chunker", "fixed:400/0")
    result = run("chunks", "docs", "--queries", "queries.jsonl", *swapped, "-m", "R@5")
    assert result.code == 0
    assert "BETTER" in result.out


def test_one_chunking_alone_is_scored_without_a_comparison(facts, run):
    result = run(
        "chunks", "docs", "--queries", "queries.jsonl", "--chunker", "fixed:400/0", "--json"
    )
    systems, document = report_of(result)
    assert result.code == 0
    assert "comparisons" not in document
    assert systems["fixed:400/0"]["measures"]["R@5"]["mean"] == 1.0


def test_how_much_of_a_span_must_be_covered_can_be_set(facts, run):
    """A window of 60 characters is a quarter of a document; all windows are the whole of it."""

    def recall(cover, k):
        words = ("--chunker", "fixed:60/0", "--set", f"cover={cover}", "-m", f"R@{k}", "--json")
        result = run("chunks", "docs", "--queries", "queries.jsonl", *words)
        return report_of(result)[0]["fixed:60/0"]["measures"][f"R@{k}"]["mean"]

    assert recall(1, 10) == 1.0
    assert recall(0.2, 1) == 1.0
    assert recall(1, 1) == 0.0


def test_not_one_query_to_score_exits_with_3(facts, run):
    zero = {"chunk_id": "f00.txt:0-9", "grade": 0}
    record = {"query_id": "q", "question": "fact", "gold_evidence": [zero]}
    (facts / "none.jsonl").write_text(json.dumps(record) + "\n")
    result = run("chunks", "docs", "--queries", "none.jsonl", "-m", "R@5")
    assert result.code == 3
    assert "cannot tell" in result.err


def test_the_gold_may_be_a_file_of_its_own(facts, run):
    asked = [json.loads(line) for line in (facts / "queries.jsonl").read_text().splitlines()]
    (facts / "q.tsv").write_text(
        "".join(f"{one['query_id']}\t{one['question']}\n" for one in asked)
    )
    (facts / "gold.tsv").write_text(
        "".join(f"{one['query_id']}\t{one['gold_evidence'][0]}\t1\n" for one in asked)
    )
    words = ("--chunker", "fixed:400/0", "--json")
    result = run("chunks", "docs", "--queries", "q.tsv", "--gold", "gold.tsv", *words)
    assert report_of(result)[0]["fixed:400/0"]["measures"]["R@5"]["mean"] == 1.0


def test_outputs_are_written_and_equal_runs_are_equal_bytes(garden, run):
    words = ["chunks", "docs", "--queries", "queries.jsonl", "--seed", "7", "--quiet"]
    for name in ("one", "two"):
        outputs = (f"{name}.json", f"{name}.md", f"junit:{name}.xml", f"{name}.csv")
        result = run(*words, *(word for out in outputs for word in ("-o", out)))
        assert (result.code, result.out, result.err) == (0, "", "")
    for ending in ("json", "md", "xml", "csv"):
        first, second = ((garden / f"{name}.{ending}").read_bytes() for name in ("one", "two"))
        assert first == second
    document = json.loads((garden / "one.json").read_text())
    assert document["conventions"]["seed"] == 7
    assert document["inputs"]["corpus"]["name"] == "docs"
    assert len(document["inputs"]["corpus"]["sha256"]) == 64


def test_a_folder_is_read_as_documents_named_after_their_files(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "b.md": "\ufeffBees hum.\r\nYes.",
        "a.txt": "",
        "more/c.MD": "Cats. ünï",
        "blank.md": " \n",
        ".git/d.md": "hidden",
        "image.png": "no text",
    }.items():
        path = tmp_path / "docs" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(text.encode())
    result = run("chunks", "docs", "--chunker", "fixed", "--write", "out/c.jsonl")
    assert result.code == 0
    assert "2 of 4 documents without text" in result.out
    rows = [json.loads(line) for line in (tmp_path / "out/c.jsonl").read_text().splitlines()]
    assert rows == [
        {"item_id": "b.md#00000", "doc_id": "b.md", "text": "Bees hum.\r\nYes.", "start": 0}
        | {"end": 15},
        {"item_id": "more/c.MD#00000", "doc_id": "more/c.MD", "text": "Cats. ünï", "start": 0}
        | {"end": 9},
    ]


@pytest.mark.parametrize("name", ["c.jsonl", "c.csv", "c.tsv", "c.parquet", "c.jsonl.gz"])
def test_written_chunks_are_a_corpus_with_places(garden, run, name):
    import karat

    assert run("chunks", "docs", "--chunker", "heading:300/0", "--write", name).code == 0
    chunks = karat.read_corpus(garden / name).frame
    texts = {file.name: file.read_text() for file in (garden / "docs").iterdir()}
    for doc, text, start, end in chunks.select("doc_id", "text", "start", "end").rows():
        assert text == texts[doc][start:end]
    assert chunks.filter(pl.col("text").str.contains("Scrape"))["section"].to_list() == [
        "Bees > Near the hives > If you are stung"
    ]


def test_chunks_can_go_to_standard_output(garden, run):
    result = run("chunks", "docs", "--chunker", "fixed:500/0", "--write", "-")
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert {row["doc_id"] for row in rows} == {one.name for one in (garden / "docs").iterdir()}


def test_the_figures_of_chunks_alone_can_be_json(garden, run):
    result = run("chunks", "docs", "--chunker", "fixed:500/0", "--write", "c.jsonl", "--json")
    (told,) = json.loads(result.out)
    assert told["max_chars"] == 500
    assert told["documents"] == 4


def test_documents_may_be_any_corpus_and_standard_input(garden, spawn, run):
    docs = [{"id": "bees.md", "text": (garden / "docs/bees.md").read_text(), "version": "v1"}]
    lines = "".join(json.dumps(one) + "\n" for one in docs)
    spec = ("--chunker", "fixed:500/0", "--write", "c.jsonl")
    result = spawn("chunks", "-", *spec, stdin=lines.encode())
    assert result.code == 0
    rows = [json.loads(line) for line in (garden / "c.jsonl").read_text().splitlines()]
    assert {row["version"] for row in rows} == {"v1"}
    assert "".join(row["text"] for row in rows) == docs[0]["text"]


@pytest.mark.parametrize(
    ("gold", "told"),
    [
        ("bees.md#00001", "'bees.md#00001' is not a span; write each as doc_id:start-end"),
        ("wasps.md:0-9", "document 'wasps.md' is not in docs, whose documents are called"),
        ("bees.md:1-99999", "the span bees.md:1-99999 ends after its document, which has 1,440"),
        ("bees.md:9-9", "'bees.md:9-9' is not a span"),
    ],
)
def test_gold_that_lies_nowhere_is_refused_with_what_to_do(garden, run, gold, told):
    record = {"query_id": "q", "question": "bees", "gold_evidence": [gold]}
    (garden / "bad.jsonl").write_text(json.dumps(record) + "\n")
    result = run("chunks", "docs", "--queries", "bad.jsonl")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("karat: bad.jsonl: ")
    assert told in result.err


Q = ("--queries", "queries.jsonl")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["docs"], "give queries to compare chunkings, or write to save the chunks of one"),
        (["nowhere", *Q], "nowhere: no such file"),
        (["empty", *Q], "empty: is a folder without corpus.jsonl, and holds no file that"),
        (["docs", *Q, "--chunker", "fixd"], "unknown chunker 'fixd'; did you mean fixed?"),
        (["docs", *Q, "--chunker", "fixed:5/5"], "overlap is 5 and size is 5"),
        (["docs", *Q, "--chunker", "fixed:size=0"], "size is 0; it must be a whole number from 1"),
        (
            ["docs", *Q, "--retriever", "bm52"],
            "unknown retriever of chunks 'bm52'; did you mean bm25",
        ),
        (["docs", *Q, "--retriever", "http"], "unknown retriever of chunks 'http'; known: bm25"),
        (["docs", *Q, "--set", "level=item"], "level=span cannot be changed"),
        (["docs", *Q, "--set", "seed=1", "--seed", "2"], "contradict each other"),
        (["docs", *Q, "-m", "ndgc@5"], "did you mean nDCG?"),
        (["docs", *Q, "-o", "report.docx"], "report.docx"),
        (["docs", "--write", "c.jsonl"], "write saves the chunks of one chunker"),
        (["docs", *Q, "--write", "c.jsonl"], "write saves the chunks of one chunker"),
        (["docs", "--chunker", "fixed", "--write", "c.docx"], "does not determine a format"),
        (["docs", "--chunker", "fixed", "--write", "c.json"], "written to .jsonl, .csv"),
        (["docs", "--chunker", "fixed", "--write", "-", "--json"], "both go to standard output"),
        (
            ["docs", "--chunker", "fixed", "--write", "c.jsonl", "-m", "R@5"],
            "give queries to compare",
        ),
        (["docs", *Q, "--chunker", "fixed", "--write", "queries.jsonl"], "is also an input"),
        (["docs", *Q, "--chunker", "fixed", "--write", "c.csv", "-o", "c.csv"], "an input"),
        (["docs", "--queries", "-"], "only one input can be standard input"),
        (["docs", "--queries", "plain.jsonl"], "holds queries without gold"),
        (["docs", "--queries", "nogold.jsonl"], "holds no span"),
        (["chunks.jsonl", *Q], "its items have 'start', so they are chunks already"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(garden, run, words, told):
    (garden / "empty").mkdir()
    (garden / "plain.jsonl").write_text('{"query_id": "q", "text": "bees"}\n')
    (garden / "nogold.jsonl").write_text(
        '{"query_id": "q", "question": "b", "gold_evidence": []}\n'
    )
    chunk = {"id": "bees.md#0", "text": "Bees", "start": 0, "end": 4}
    (garden / "chunks.jsonl").write_text(json.dumps(chunk) + "\n")
    before = sorted(garden.rglob("*"))
    result = run("chunks", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert told in result.err
    assert sorted(garden.rglob("*")) == before


def test_examples_print_what_the_page_says(garden):
    spec = importlib.util.spec_from_file_location("examples", ROOT / "docs" / "examples.py")
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    page = (ROOT / "docs" / "compare-chunkings.md").read_text(encoding="utf-8")
    assert page == examples.refreshed_in(garden, page)


def test_the_example_s_spans_are_whole_sentences_or_clauses(garden):
    for line in (garden / "queries.jsonl").read_text().splitlines():
        for span in json.loads(line)["gold_evidence"]:
            doc, _, place = span.rpartition(":")
            start, end = map(int, place.split("-"))
            text = (garden / "docs" / doc).read_text()
            assert text[start - 1].isspace()
            assert text[start].isupper()
            assert not text[end - 1 : end + 1].isalpha()
