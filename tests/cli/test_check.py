from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from karat.analysis.check import KINDS

SET = ("--gold", "qrels.txt", "--queries", "queries.jsonl", "--corpus", "corpus.jsonl")
PAGE = Path(__file__).parents[2] / "docs" / "check-an-eval-set.md"


def append(name: str, *lines: str) -> None:
    with Path(name).open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_the_demo_is_sound(run, files):
    done = run("check", *SET)
    assert done.code == 0
    assert done.out.startswith("SOUND  ")
    assert "no near-duplicate queries among 12 texts" in done.out
    assert done.err == ""


def test_an_error_exits_with_1_and_comes_first(run, files):
    append("queries.jsonl", '{"query_id": "q13", "text": "Charged twice"}')
    append("qrels.txt", "q13 0 billing#1 1")
    done = run("check", *SET)
    assert done.code == 1
    assert done.out.startswith("UNSOUND  1 error")
    assert "same_text_different_gold" in done.out
    assert "q03: billing#2 | billing#3; q13: billing#1" in done.out


def test_a_warning_exits_with_1_only_if_strict(run, files):
    append("queries.jsonl", '{"query_id": "q13", "text": "something nobody judged"}')
    assert run("check", *SET).code == 0
    assert run("check", *SET, "--strict").code == 1


def test_json_is_the_same_every_time_and_has_no_path(run, files):
    arguments = ("check", *SET, "--by", "language", "--json")
    first, second = run(*arguments), run(*arguments)
    assert first.out == second.out
    document = json.loads(first.out)
    assert first.out == json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    assert document["schema_version"] == 2
    assert document["verdict"] == "sound"
    assert document["inputs"]["gold"]["name"] == "qrels.txt"
    assert len(document["inputs"]["corpus"]["sha256"]) == 64
    assert document["inputs"]["gates"] is None
    assert document["sizes"]["queries"] == 12
    assert document["detectable"]["basis"] == "assumed"
    assert {one["kind"] for one in document["findings"]} == {"small_segment", "low_ceiling"}
    assert str(files) not in first.out


def test_quiet_prints_nothing(run, files):
    done = run("check", *SET, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_two_runs_tell_what_can_be_detected(run, files):
    done = run("check", *SET, "--run", "bm25.trec", "--run", "dense.jsonl", "-m", "RR", "--json")
    told = json.loads(done.out)["detectable"]
    assert (told["basis"], told["measure"], told["runs"]) == ("runs", "RR", ["bm25", "dense"])
    assert "spread 0.1 ASSUMED" in run("check", *SET, "--spread", "0.1").out


def test_a_gate_out_of_reach_is_an_error(run, files):
    Path("gates.yaml").write_text("- P@5 >= 0.9\n- mean R@5 >= 0.9\n")
    done = run("check", *SET, "--gates", "gates.yaml")
    assert done.code == 1
    assert "unreachable_target" in done.out
    assert "the ceiling on this gold is 0.36" in done.out


CONFIG = """\
queries: queries.jsonl
gold: qrels.txt
corpus: corpus.jsonl
measures: [P@5]
by: [language]
gates:
  - P@5 >= 0.9
"""


def test_a_config_names_everything_and_options_come_first(run, files, tmp_path, monkeypatch):
    Path("karat.yaml").write_text(CONFIG)
    named = run("check", "karat.yaml")
    assert (named.code, named.out) == (run("check").code, run("check").out)
    assert "unreachable_target" in named.out
    assert "2 of 2 segments by language" in named.out
    Path("gates.yaml").write_text("- mean P@5 >= 0.1\n")
    assert run("check", "karat.yaml", "--gates", "gates.yaml").code == 0
    # A config's files lie beside it, wherever it is called from.
    monkeypatch.chdir(tmp_path)
    assert run("check", "demo/karat.yaml").out == named.out


def test_a_file_of_queries_with_gold_stands_for_both(run, files):
    Path("eval.jsonl").write_text('{"query": "how to pay", "relevant_chunk_ids": ["billing#1"]}\n')
    done = run("check", "--gold", "eval.jsonl", "--corpus", "corpus.jsonl")
    assert "no near-duplicate queries among 1 text" in done.out
    assert "1 query · 1 with gold" in done.out
    Path("karat.yaml").write_text("queries: eval.jsonl\n")
    assert "1 query · 1 with gold" in run("check").out


def test_queries_without_gold_are_told_what_is_missing(run, files):
    Path("karat.yaml").write_text("queries: queries.jsonl\n")
    done = run("check")
    assert done.code == 2
    assert done.err.startswith("karat: queries.jsonl: holds queries without gold")
    assert "--gold FILE, or gold in karat.yaml" in done.err
    Path("karat.yaml").write_text("queries: none.jsonl\n")
    assert "none.jsonl: no such file" in run("check").err


def test_runs_that_do_not_differ_tell_nothing(run, files):
    twice = ("--run", "bm25.trec", "--run", "bm25.trec", "-m", "RR")
    told = "(11 queries; spread 0.35 ASSUMED; bm25 and bm25 do not differ from query to query in RR"
    done = run("check", *SET, *twice)
    assert told in done.out
    assert "a difference of 0.02 needs 2,410 queries" in done.out
    assert json.loads(run("check", *SET, *twice, "--json").out)["detectable"]["basis"] == "assumed"


def test_gates_can_be_piped(spawn, files):
    done = spawn("check", *SET, "--gates", "-", "--json", stdin=b"- P@5 >= 0.9\n")
    assert done.code == 1
    assert json.loads(done.out)["inputs"]["gates"]["name"] == "stdin"
    both = spawn("check", "--gold", "-", "--gates", "-", stdin=b"- P@5 >= 0.9\n")
    assert both.err == "karat: only one input can be standard input (-)\n"


def test_gold_alone_is_checked_as_far_as_it_goes(run, files):
    done = run("check", "--gold", "qrels.txt")
    assert done.code == 0
    assert "not checked" in done.out
    assert "give --corpus" in done.out


def test_gold_can_be_piped(spawn, files):
    done = spawn("check", "--gold", "-", stdin=Path("qrels.txt").read_bytes())
    assert done.code == 0
    assert "11 queries · 11 with gold" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a karat.yaml, or give --gold"),
        (("--gold", "none.txt"), "none.txt"),
        (("none.yaml",), "none.yaml"),
        (("qrels.txt",), "qrels.txt"),
        ((*SET, "--run", "bm25.trec"), "--run"),
        ((*SET, "--run", "bm25.trec", "--run", "none.trec"), "none.trec"),
        (
            (*SET, "--run", "bm25.trec", "--run", "dense.jsonl", "--spread", "0.3"),
            "--run or --spread",
        ),
        ((*SET, "--spread", "wide"), "--spread is 'wide'"),
        ((*SET, "--spread", "nan"), "--spread is 'nan'"),
        ((*SET, "--spread", "-1"), "--spread is '-1'"),
        ((*SET, "--by", "langage"), "did you mean language"),
        ((*SET, "-m", "ndgc@10"), "did you mean nDCG"),
        ((*SET, "--profile", "trek"), "did you mean trec"),
        ((*SET, "--set", "rel=many"), "rel is 'many'"),
        ((*SET, "--set", "level=span"), "level=span needs gold with character spans"),
        ((*SET, "--gates", "none.yaml"), "none.yaml"),
        ((*SET, "--gates", "bad.yaml"), "bad.yaml"),
        ((*SET, "--gates", "stranger.yaml"), "klingon"),
        (("--gold", "-", "--queries", "-"), "only one input"),
        (("--gold", "empty.txt"), "empty.txt"),
        ((*SET[:4], "--corpus", "bm25.trec"), "bm25.trec"),
        ((*SET[:4], "--corpus", "broken.jsonl"), "broken.jsonl:2"),
        ((*SET[:4], "--corpus", "binary.jsonl"), "binary.jsonl"),
        (("--gold", "qrels.txt", "--queries", "odd.jsonl"), "odd.jsonl"),
    ],
)
def test_what_cannot_be_checked_is_one_line(run, files, arguments, words):
    Path("karat.yaml").unlink()
    Path("bad.yaml").write_text("- R@5 at least 0.9\n")
    gate = "- {measure: R@5, by: language, values: [klingon], min: 0.5}\n"
    Path("stranger.yaml").write_text(gate)
    Path("empty.txt").write_text("")
    Path("broken.jsonl").write_text('{"item_id": "a", "text": "b"}\n{"item_id": \n')
    Path("binary.jsonl").write_bytes(bytes(range(256)) * 20)
    Path("odd.jsonl").write_text('{"query_id": "q01", "text": "a", "k": -3}\n')
    done = run("check", *arguments)
    assert done.code == 2
    assert done.err.startswith("karat: ")
    assert done.err.count("\n") == 1
    assert words in done.err
    assert done.out == ""


def test_texts_that_steer_a_terminal_are_shown_harmless(run, files):
    append(
        "queries.jsonl", json.dumps({"query_id": "q13\x1b[2J", "text": "\x1b]0;gone\x07 a\u202eb"})
    )
    done = run("check", *SET)
    assert "empty_gold" in done.out
    assert "\x1b" not in done.out
    assert "\x07" not in done.out


def test_help_needs_neither_polars_nor_numpy(spawn, files):
    code = (
        "import sys; from karat.cli.main import main; main(['check', '--help']);"
        "sys.exit(bool({'polars', 'numpy', 'pydantic', 'yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_examples_of_the_page_print_what_it_says():
    page = PAGE.read_text(encoding="utf-8")
    spec = importlib.util.spec_from_file_location("examples", PAGE.parent / "examples.py")
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    assert page == examples.refreshed(page), f"run: python docs/examples.py docs/{PAGE.name}"


def test_every_kind_of_finding_is_in_the_documentation_with_its_level():
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.M))
    assert rows == {name: kind.level for name, kind in KINDS.items()}
