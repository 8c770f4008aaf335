from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

RUNS = ("bm25.trec", "dense.jsonl")
TEXTS = ("--queries", "queries.jsonl", "--corpus", "corpus.jsonl")
GOLD = ("--gold", "qrels.txt")
DOCS = Path(__file__).parents[2] / "docs"


def lines(path: str = "pool.jsonl") -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def body(run, *arguments) -> dict:
    done = run("pool", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_a_pool_is_written_with_texts_and_told_about(run, files):
    done = run("pool", *RUNS, *GOLD, *TEXTS, "--depth", "5", "-o", "pool.jsonl")
    assert (done.code, done.err) == (0, "")
    told = done.out.splitlines()
    assert told[0] == "the top 5 of 2 runs hold 71 pairs, 21 of them judged"
    assert told[1] == "the pool: 50 pairs of 11 queries"
    assert "dense: 1 failed call" in told
    assert "bm25: 3 queries missing from the run" in told
    pairs = lines()
    assert len(pairs) == 50
    texts = {one["item_id"]: one["text"] for one in lines("corpus.jsonl")}
    asked = {one["query_id"]: one["text"] for one in lines("queries.jsonl")}
    judged = {tuple(line.split()[::2]) for line in Path("qrels.txt").read_text().splitlines()}
    for pair in pairs:
        assert set(pair) == {
            *("query_id", "item_id", "query", "text", "doc_id", "version", "as_of")
        }
        assert pair["text"] == texts[pair["item_id"]]
        assert pair["query"] == asked[pair["query_id"]]
        assert (pair["query_id"], pair["item_id"]) not in judged


def test_the_numbers_are_those_of_the_files(run, files):
    """Every list of the demo, read without karat."""
    tops: dict[str, set] = {"bm25": set(), "dense": set()}
    for line in Path("bm25.trec").read_text().splitlines():
        query, _, item, rank, *_ = line.split()
        if int(rank) <= 3:
            tops["bm25"].add((query, item))
    for call in lines("dense.jsonl"):
        tops["dense"] |= {(call["query_id"], hit["chunk_id"]) for hit in call.get("topk", [])[:3]}
    judged = {tuple(line.split()[::2]) for line in Path("qrels.txt").read_text().splitlines()}
    document = body(run, *RUNS, *GOLD, "--queries", "queries.jsonl", "--depth", "3")
    assert document["union"] == len(tops["bm25"] | tops["dense"])
    assert document["pairs"] == len((tops["bm25"] | tops["dense"]) - judged)
    for system, other in zip(document["systems"], ("dense", "bm25"), strict=True):
        own = tops[system["name"]]
        assert system["items"] == len(own)
        assert system["judged_share"] == len(own & judged) / len(own)
        assert system["in_pool"] == len(own - judged)
        assert system["alone"] == len(own - judged - tops[other])
    assert [one["name"] for one in document["inputs"]["runs"]] == list(RUNS)
    assert document["inputs"]["gold"][0]["name"] == "qrels.txt"


def test_the_same_seed_writes_the_same_bytes(run, files):
    for name, runs, seed in (
        ("one.jsonl", RUNS, "4"),
        ("two.jsonl", RUNS[::-1], "4"),
        ("three.jsonl", RUNS, "5"),
    ):
        assert run("pool", *runs, *TEXTS, "--seed", seed, "-o", name, "--quiet").out == ""
    one, two, three = (Path(f"{name}.jsonl").read_bytes() for name in ("one", "two", "three"))
    assert one == two != three
    assert sorted(one.splitlines()) == sorted(three.splitlines())


def test_a_sample_may_hold_what_is_judged(run, files):
    sample = ("--sample", "70", "-o", "pool.jsonl")
    done = run("pool", *RUNS, *GOLD, *TEXTS, "--depth", "5", *sample)
    assert "the sample of 70 is the whole pool, 50 pairs" in done.out
    done = run("pool", *RUNS, *GOLD, *TEXTS, "--depth", "5", *sample, "--include-judged")
    assert "drawn from 71, including judged" in done.out
    assert len(lines()) == 70


def test_a_pool_without_texts_is_refused_with_the_remedy(run, files):
    for given, remedy in (((), "--queries"), (TEXTS[:2], "--corpus")):
        done = run("pool", *RUNS, *given, "-o", "pool.jsonl")
        assert done.code == 2
        assert remedy in done.err
        assert "--without-texts" in done.err
        assert not Path("pool.jsonl").exists()
    done = run("pool", *RUNS, "--without-texts", "-o", "pool.jsonl")
    assert done.code == 0
    # Every item of the corpus is in the top 10 of one of them, for 11 queries.
    assert "without a text: 11 queries · 30 items" in done.out
    assert set(lines()[0]) == {"query_id", "item_id"}


def test_a_corpus_that_lacks_an_item_is_named(run, files):
    kept = Path("corpus.jsonl").read_text().splitlines(keepends=True)
    Path("corpus.jsonl").write_text("".join(line for line in kept if '"refunds#2"' not in line))
    done = run("pool", *RUNS, *TEXTS, "-o", "pool.jsonl")
    assert done.code == 2
    assert "corpus.jsonl: 1 of 30 items (such as 'refunds#2') of the pool have no text" in done.err


def test_without_an_output_nothing_is_written_and_texts_are_not_needed(run, files):
    before = sorted(Path().iterdir())
    assert run("pool", *RUNS, *GOLD).code == 0
    assert sorted(Path().iterdir()) == before


def test_a_pool_can_be_piped_and_packed(run, files):
    done = run("pool", *RUNS, *TEXTS, "-o", "pool:-", "-o", "pool.jsonl.gz", "-o", "said.json")
    piped = done.out.encode()
    assert gzip.decompress(Path("pool.jsonl.gz").read_bytes()) == piped
    assert json.loads(Path("said.json").read_text())["pairs"] == len(piped.splitlines())
    assert run("pool", *RUNS, *TEXTS, "-o", "pool.md").code == 0
    assert Path("pool.md").read_text().startswith("# A pool to judge\n")


def test_labels_are_judgments_and_failures_are_not(run, files):
    base = (*RUNS, *TEXTS, "--depth", "2")
    assert run("pool", *base, "-o", "pool.jsonl").code == 0
    first, second, *rest = lines()
    labels = [
        {"query_id": first["query_id"], "item_id": first["item_id"], "grade": 0},
        {"query_id": second["query_id"], "item_id": second["item_id"], "error": "no answer"},
        # a label of an item that no run has takes nothing away
        {"query_id": first["query_id"], "chunk_id": "unheard of", "relevance": 2},
    ]
    Path("labels.jsonl").write_text("".join(json.dumps(one) + "\n" for one in labels))
    document = body(run, *base, *GOLD, "--gold", "labels.jsonl")
    alone = body(run, *base, "--gold", "labels.jsonl")
    assert alone["pairs"] == 1 + len(rest)
    gold = body(run, *base, *GOLD)
    known = {tuple(line.split()[::2]) for line in Path("qrels.txt").read_text().splitlines()}
    new = (first["query_id"], first["item_id"]) not in known
    assert document["pairs"] == gold["pairs"] - new


def test_everything_judged_leaves_an_empty_pool(run, files):
    Path("run.trec").write_text("q01 Q0 refunds#1 1 1 x\n")
    done = run("pool", "run.trec", *GOLD, *TEXTS, "-o", "pool.jsonl")
    assert done.code == 0
    assert "nothing is left to judge" in done.out
    assert Path("pool.jsonl").read_bytes() == b""


def test_runs_of_one_name_are_told_apart(run, files):
    Path("other").mkdir()
    Path("other/bm25.trec").write_bytes(Path("bm25.trec").read_bytes())
    document = body(run, "bm25.trec", "other/bm25.trec")
    assert [one["name"] for one in document["systems"]] == ["bm25", "bm25-2"]
    assert [one["alone"] for one in document["systems"]] == [0, 0]


def test_ties_are_broken_as_the_profile_says(run, files):
    Path("tied.trec").write_text("q01 Q0 a 1 1.0 x\nq01 Q0 b 2 1.0 x\n")
    arguments = ("pool", "tied.trec", "--depth", "1", "--without-texts", "-o", "pool:-")
    assert json.loads(run(*arguments).out)["item_id"] == "a"
    for more in (("--profile", "trec"), ("--set", "ties=id-desc")):
        assert json.loads(run(*arguments, *more).out)["item_id"] == "b"


def test_a_run_from_standard_input(spawn, files):
    done = spawn("pool", "-", "dense.jsonl", "--json", stdin=Path("bm25.trec").read_bytes())
    assert [one["name"] for one in json.loads(done.out)["systems"]] == ["stdin", "dense"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--depth", "0"), "--depth is '0'; give a whole number"),
        (("--depth", "ten"), "--depth is 'ten'"),
        (("--sample", "-1"), "--sample is '-1'"),
        (("--seed", "x"), "seed is 'x'"),
        (("--seed", "1", "--set", "seed=2"), "contradict each other"),
        (
            ("--set", "rel=2"),
            "--set rel: a pool does not depend on it, only on order, ties, repeats, seed",
        ),
        (("--set", "tie=given"), "unknown setting 'tie'; did you mean ties?"),
        (("--gold", "nowhere.txt"), "nowhere.txt: no such file"),
        (("--gold", "empty.txt"), "empty.txt: is empty"),
        (("--queries", "empty.txt"), "empty.txt: is empty"),
        (("--corpus", "empty.txt"), "empty.txt: is empty"),
        (("-o", "pool.csv"), "output 'pool.csv': use .json, .md, .jsonl"),
        (("-o", "queries.jsonl", "--queries", "queries.jsonl"), "is also an input"),
        (("-o", "pool:-", "--json"), "only one report can go to standard output"),
        (("--gold", "-", "--queries", "-"), "only one input can be standard input"),
        (("--bias",), "--bias asks whether gold is fair to the runs; give it with --gold"),
        (("-m", "AP"), "-m names the measures of --bias; a pool alone has no scores"),
        (("--bias", "--gold", "qrels.txt", "-m", "ndgc@10"), "did you mean nDCG?"),
        (("--bias", "--gold", "qrels.txt", "-m", "NumRet"), "NumRet does not measure the ranks"),
        (("--bias", "--gold", "qrels.txt", "--set", "boot=500"), "the bias of a pool does not"),
        (("--bias", "--gold", "qrels.txt", "--set", "level=doc"), "the bias of a pool does not"),
    ],
)
def test_bad_input_is_refused_in_a_line(run, files, arguments, told):
    Path("empty.txt").write_text("")
    done = run("pool", "bm25.trec", *arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert done.err.count("\n") == 1


BIASED = (*RUNS, *GOLD, "--depth", "5", "--bias")


def test_the_bias_is_in_the_document_the_page_and_the_markdown(run, files):
    arguments = ("pool", *BIASED, "-o", "said.json", "-o", "said.md")
    done = run(*arguments)
    assert (done.code, done.err) == (0, "")
    bias = json.loads(Path("said.json").read_text())["bias"]
    assert (bias["fair"], bias["measures"]) == (False, ["nDCG@10", "AP", "RBP"])
    assert bias["thresholds"] == {
        "change": 0.05,
        "coverage": 0.5,
        "uneven": 0.1,
        "elsewhere": 0.2,
    }
    for sentence in bias["sentences"]:
        assert sentence in " ".join(done.out.split())
        assert sentence in Path("said.md").read_text().replace("\\", "")
    for title in (
        "Without what only one run has",
        "RBP and what it leaves open",
        "Condensed lists",
    ):
        assert title in done.out.splitlines()
        assert f"## {title}" in Path("said.md").read_text().splitlines()
    once = Path("said.json").read_bytes()
    assert run(*arguments, "--quiet").out == ""
    assert Path("said.json").read_bytes() == once


def test_judgments_that_no_given_run_brought_leave_it_open_whether_gold_is_fair(run, files):
    Path("others.txt").write_text("".join(f"q01 0 other{at} 1\n" for at in range(99)))
    done = run("pool", *BIASED, "--gold", "others.txt", "-o", "said.json")
    assert done.code == 0
    bias = json.loads(Path("said.json").read_text())["bias"]
    assert (bias["fair"], bias["gold"]["in_no_list"] >= 99) == (None, True)
    told = " ".join(done.out.split())
    assert "cannot tell whether the gold is fair to these runs" in told
    assert "its own" not in told
    assert "would look worse" not in told


def test_values_of_a_bias_are_those_of_an_evaluation(run, files):
    bias = body(run, *BIASED, "--queries", "queries.jsonl", "-m", "nDCG@10", "-m", "R@5, RBP")[
        "bias"
    ]
    done = run(
        *("eval", *RUNS, *GOLD, "--queries", "queries.jsonl", "--json"),
        *("-m", "nDCG@10, R@5, RBP, RBPres, Bpref"),
    )
    for ours, theirs in zip(bias["systems"], json.loads(done.out)["systems"], strict=True):
        means = {name: one["mean"] for name, one in theirs["measures"].items()}
        for name in ("nDCG@10", "R@5", "RBP"):
            assert ours["left_out"]["measures"][name]["value"] == means[name]
        assert ours["condensed"]["Bpref"]["value"] == means["Bpref"]
        residual = ours["residual"]["RBP"]
        assert residual["low"] == means["RBP"]
        assert residual["high"] == pytest.approx(means["RBP"] + means["RBPres"])


def test_a_setting_changes_the_bias_where_it_decides(run, files):
    base = body(run, *BIASED, "-m", "P@5")
    strict = body(run, *BIASED, "-m", "P@5", "--set", "rel=2")
    assert strict["conventions"]["rel"] == 2
    assert strict["bias"]["gold"]["relevant"] < base["bias"]["gold"]["relevant"]
    trec = body(run, *BIASED, "-m", "P@5", "--profile", "trec")
    assert trec["conventions"]["missing"] == "skip"
    # What a pool holds is not decided by what counts as relevant.
    assert strict["pairs"] == base["pairs"]


def test_the_bias_of_one_run_says_what_it_cannot(run, files):
    done = run("pool", "bm25.trec", *GOLD, "--bias")
    assert done.code == 0
    assert "leave-one-run-out needs two runs or more" in done.out
    assert "Without what only one run has" not in done.out
    assert "Condensed lists" in done.out


def test_a_bias_does_not_change_the_pool(run, files):
    assert run("pool", *RUNS, *GOLD, *TEXTS, "-o", "plain.jsonl").code == 0
    assert run("pool", *RUNS, *GOLD, *TEXTS, "--bias", "-o", "biased.jsonl").code == 0
    assert Path("plain.jsonl").read_bytes() == Path("biased.jsonl").read_bytes()
    assert "bias" not in body(run, *RUNS, *GOLD)


def test_the_bias_reads_a_run_from_standard_input(spawn, files):
    plain = spawn("pool", "bm25.trec", *BIASED[1:], "--json")
    piped = spawn("pool", "-", *BIASED[1:], "--json", stdin=Path("bm25.trec").read_bytes())
    ours, theirs = (json.loads(one.out)["bias"]["systems"] for one in (plain, piped))
    assert theirs[0]["name"] == "stdin"
    assert ours[0]["residual"] == theirs[0]["residual"]
    assert ours[1] | {"left_out": None} == theirs[1] | {"left_out": None}


def test_grades_that_differ_between_files_are_told(run, files):
    Path("more.txt").write_text("q01 0 refunds#1 0\nq01 0 billing#1 -1\n")
    done = run("pool", *BIASED, "--gold", "more.txt")
    assert "pairs graded differently in several files: 1; the first file counts" in done.out
    assert "grades below 0 (pooled, not judged): 1" in done.out


def test_an_empty_run_and_one_of_other_queries_are_refused(run, files):
    Path("empty.trec").write_text("")
    assert "empty.trec: is empty" in run("pool", "empty.trec").err
    Path("other.trec").write_text("z9 Q0 a 1 1.0 x\n")
    done = run("pool", "other.trec", "--queries", "queries.jsonl")
    assert done.code == 2
    assert "other.trec: shares no query with the queries: it has 'z9'" in done.err


def test_help_needs_neither_polars_nor_numpy():
    code = (
        "import sys; from karat.cli.main import main; main(['pool', '--help']);"
        "sys.exit(bool({'polars', 'numpy', 'pydantic', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_examples_of_the_page_print_what_it_says():
    spec = importlib.util.spec_from_file_location("examples", DOCS / "examples.py")
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    page = (DOCS / "pool-judgments.md").read_text(encoding="utf-8")
    assert page == examples.refreshed(page), "run: python docs/examples.py docs/pool-judgments.md"
