"""Ids that never meet stop every command that scores a run, with the same words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

STEMS = ["tax-02", "tax-07", "law-11", "law-12"]


def lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gold with a prefix, a run without it, and a run that fits."""
    monkeypatch.chdir(tmp_path)
    gold = [
        {"query_id": f"q{at}", "query": f"what of {stem}", "relevant_chunk_ids": [f"doc_{stem}"]}
        for at, stem in enumerate(STEMS)
    ]
    Path("gold.jsonl").write_text(lines(gold))
    for name, start in (("bad", ""), ("good", "doc_")):
        rows = [
            {
                "query_id": f"q{at}",
                "query": f"what of {stem}",
                "system": name,
                "topk": [{"chunk_id": f"{start}{stem}", "score": 1.0}],
            }
            for at, stem in enumerate(STEMS)
        ]
        Path(f"{name}.jsonl").write_text(lines(rows))
    return tmp_path


COMMANDS = {
    "eval": ("eval", "bad.jsonl", "--gold", "gold.jsonl"),
    "compare": ("compare", "good.jsonl", "bad.jsonl", "--gold", "gold.jsonl"),
    "sweep": ("sweep", "bad.jsonl", "--gold", "gold.jsonl"),
    "triage": ("triage", "bad.jsonl", "--gold", "gold.jsonl"),
    "diagnose": ("diagnose", "bad.jsonl", "--gold", "gold.jsonl"),
    "stages": ("stages", "bad.jsonl", "--gold", "gold.jsonl"),
    "check": ("check", "--gold", "gold.jsonl", "--run", "good.jsonl", "--run", "bad.jsonl"),
    "next": ("next", "good.jsonl", "bad.jsonl", "--gold", "gold.jsonl"),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("more", [(), ("--quiet",), ("--json",)])
def test_every_command_stops(run, command, more):
    done = run(*command, *more)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "karat: no relevant item occurs in bad.jsonl, so every score would be 0.\n"
        "  gold.jsonl has  doc_law-11, doc_law-12, …\n"
        "  bad.jsonl has   law-11, law-12, …\n"
        '  The ids differ by the prefix "doc_". Rename one side, or allow it with '
        "--set missing_ids=allow (settings={'missing_ids': 'allow'} in Python).\n"
    )


def staged(raw: str, final: str) -> str:
    """A log of both lists; each is the run that it names."""
    lists = [
        [json.loads(line)["topk"] for line in Path(f"{one}.jsonl").read_text().splitlines()]
        for one in (raw, final)
    ]
    return lines(
        {"query_id": f"q{at}", "raw": first, "topk": last}
        for at, (first, last) in enumerate(zip(*lists, strict=True))
    )


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ["stages", "diagnose"])
@pytest.mark.parametrize(
    ("raw", "final", "named"), [("bad", "good", "raw"), ("good", "bad", "final")]
)
def test_each_stage_of_a_log_is_checked_by_itself(run, command, raw, final, named):
    Path("log.jsonl").write_text(staged(raw, final))
    done = run(command, "log.jsonl", "--gold", "gold.jsonl")
    assert (done.code, done.out) == (2, "")
    assert f"no relevant item occurs in stage {named} of log.jsonl" in done.err
    assert 'prefix "doc_"' in done.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("raw", "final", "told"),
    [
        ("bad", "good", "no relevant item occurs in bad.jsonl"),
        ("good", "bad", "no relevant item occurs in stage final of bad.jsonl"),
        ("empty", "good", "4 of 4 answers of empty.jsonl were empty"),
        ("good", "empty", "4 of 4 answers of stage final of empty.jsonl were empty"),
    ],
)
def test_so_is_each_of_two_files_of_stages(run, raw, final, told):
    empty = [{"query_id": f"q{at}", "topk": []} for at in range(len(STEMS))]
    Path("empty.jsonl").write_text(lines(empty))
    done = run("stages", f"{raw}.jsonl", f"{final}.jsonl", "--gold", "gold.jsonl")
    assert (done.code, done.out) == (2, "")
    assert told in done.err


@pytest.mark.usefixtures("folder")
def test_nothing_is_written(run):
    assert run(*COMMANDS["eval"], "-o", "out.json", "-o", "out.html").code == 2
    assert not Path("out.json").exists()
    assert not Path("out.html").exists()


@pytest.mark.usefixtures("folder")
def test_what_is_allowed_is_printed_with_a_note(run):
    allowed = (*COMMANDS["eval"], "-m", "R@5", "--set", "missing_ids=allow")
    done = run(*allowed, "-o", "out.md", "-o", "out.html", "-o", "out.json")
    note = "No relevant item was found for any of the 4 queries."
    assert done.code == 0
    assert note in done.out
    assert "missing_ids allow" in done.out
    assert note in Path("out.md").read_text()
    assert note in Path("out.html").read_text()
    document = json.loads(Path("out.json").read_text())
    assert document["conventions"]["missing_ids"] == "allow"
    assert document["systems"][0]["nothing_found"] == 4


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("profile", ["ab", "story", "minimal"])
def test_profiles_that_allow_it_print_the_note(run, profile):
    done = run(*COMMANDS["eval"], "--profile", profile)
    assert done.code in (0, 1)
    assert "No relevant item was found for any of the 4 queries." in done.out


@pytest.mark.usefixtures("folder")
def test_a_real_zero_is_printed_with_the_note_and_leaves_with_0(run):
    Path("other.trec").write_text("".join(f"q{n} Q0 x{n} 1 1.0 t\n" for n in range(4)))
    done = run("eval", "other.trec", "--gold", "gold.jsonl", "-m", "R@5")
    assert done.code == 0
    assert "No relevant item was found for any of the 4 queries." in done.out
    assert "missing_ids" not in done.out


@pytest.mark.usefixtures("folder")
def test_a_run_stops_before_it_searches_a_corpus_that_is_not_that_of_the_gold(run):
    Path("corpus.jsonl").write_text(lines({"item_id": s, "text": f"of {s}"} for s in STEMS))
    Path("karat.yaml").write_text(
        "queries: gold.jsonl\ncorpus: corpus.jsonl\nsystems: {bm25: {retriever: bm25}}\n"
    )
    done = run("run", "--quiet")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "karat: 0 of 4 relevant items of gold.jsonl occur in corpus.jsonl.\n"
    )
    assert 'The ids differ by the prefix "doc_".' in done.err
    assert not list(Path().rglob("bm25.jsonl"))
    checked = run("check")
    assert checked.code == 1
    assert 'the ids differ by the prefix "doc_"' in checked.out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_a_system_that_fails_every_call_is_refused_with_the_reason(run, quiet):
    Path("broken.py").write_text("def find(text, k):\n    raise ValueError('no index here')\n")
    Path("karat.yaml").write_text(
        "queries: gold.jsonl\nsystems: {mine: {retriever: python, call: 'broken:find'}}\n"
    )
    done = run("run", *quiet)
    assert (done.code, done.out) == (2, "")
    assert "mine: all 4 calls failed" in done.err
    assert "no index here" in done.err


@pytest.mark.usefixtures("folder")
def test_a_system_that_answers_nothing_is_refused(run):
    Path("silent.py").write_text("def find(text, k):\n    return []\n")
    Path("karat.yaml").write_text(
        "queries: gold.jsonl\nsystems: {mine: {retriever: python, call: 'silent:find'}}\n"
    )
    done = run("run", "--quiet")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("karat: 4 of 4 answers of mine.jsonl were empty.\n")


@pytest.mark.usefixtures("folder")
def test_ids_that_steer_a_terminal_are_shown_and_not_obeyed(run):
    Path("gold.json").write_text(json.dumps({"q0": {"\x1b[31mA": 1}}))
    Path("run.json").write_text(json.dumps({"q0": {"\x1b[31ma": 1.0}}))
    done = run("eval", "run.json", "--gold", "gold.json", "-m", "RR")
    assert done.code == 2
    assert "\x1b" not in done.err
    assert "upper and lower case" in done.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ["eval", "sweep", "stages", "diagnose", "triage"])
def test_a_real_zero_is_said_in_words(run, command):
    rows = [{"query_id": f"q{at}", "topk": [{"chunk_id": "other"}]} for at in range(len(STEMS))]
    Path("zero.jsonl").write_text(lines(rows))
    done = run(command, "zero.jsonl", "--gold", "gold.jsonl")
    assert done.code == 0
    assert "No relevant item was found for any of the 4 queries." in done.out
