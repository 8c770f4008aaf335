"""Plain TREC files are scored without Polars, to the same bits as by the careful path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import karat.evaluation.evaluation as evaluation_module
from karat.errors import KaratError
from karat.evaluation import plain_files
from karat.evaluation.evaluation import Evaluation

MEASURES = "nDCG@10, nDCG, AP, Bpref, infAP, R@5, RR, P@10, Rprec, Coverage@10, GMAP, AUC@20, RBP"
CONVENTIONS: list[dict[str, Any]] = [
    {},
    {"ties": "given"},
    {"ties": "id-desc"},
    {"order": "rank"},
    {"rel": 2},
    {"missing": "skip"},
    {"empty_gold": "zero"},
    {"depth": 3},
    {"short_lists": "complete"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plain")


def outcome(run: Path, gold: Path, **options: Any) -> tuple[Any, ...]:
    """Everything that scoring gives, or the error."""
    try:
        scored = Evaluation(gold, measures=MEASURES, **options).score_runs([run], bounds=True)
    except KaratError as error:
        return type(error), str(error)
    (scores,), (ranges,) = scored.scores, scored.ranges
    trace = scores.trace
    assert trace is not None
    return (
        repr(scores.table.rows()),
        scores.status.tolist(),
        repr(scores.summaries),
        scores.counts,
        scores.conventions,
        scores.fingerprint,
        repr(scores.tied),
        {name: repr(best) for name, best in scores.ceilings.items()},
        {name: repr(facts) for name, facts in scores.evidence.items()},
        (scores.system, scores.source, scores.meta, scores.cut, scores.lacks),
        repr(trace.facts.rows()),
        trace.ranked.hits.rank.tolist(),
        trace.ranked.target.rows.tolist(),
        None if ranges is None else repr(ranges.to_dict()),
        scores.nothing_found,
    )


def careful(run: Path, gold: Path, **options: Any) -> tuple[Any, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation_module, "read_plain_gold", lambda *_: None)
        return outcome(run, gold, **options)


LONG_IDS = ["document", "document1", "document-10", "document-9", "document-" + "0" * 300]
IDS = st.sampled_from(
    [f"d{number}" for number in range(12)] + ["d#1", "é", "x:1-2", "#d", *LONG_IDS]
)
PLAIN_SCORES = ["3", "2.5", "2.50", "0", "-1", "-0.25", "8.123456789", "123456789.5", "7" * 9]
OTHER_SCORES = ["1e0", ".5", "5.", "+1", "nan", "1_0", "-", "1.2.3", "2:5", "12345678.123456789"]
SCORES = st.sampled_from([*PLAIN_SCORES, *OTHER_SCORES, "0.8712345361709595"])
GRADES = st.sampled_from(["0", "1", "1", "2", "3", "-1", "1.5", "x"])


@st.composite
def lines_of_run(draw: st.DrawFn) -> list[list[str]]:
    lines = []
    for query in draw(st.permutations(["q1", "q2", "q3", "other"]))[: draw(st.integers(1, 4))]:
        items = draw(st.lists(IDS, min_size=1, max_size=14))
        if draw(st.booleans()):
            items = list(dict.fromkeys(items))
        plain = draw(st.integers(0, 3)) > 0
        for rank, item in enumerate(items, 1):
            score = str(20 - rank // 2) if plain else draw(SCORES)
            lines.append([query, "Q0", item, str(rank), score, "tag"])
    if draw(st.integers(0, 5)) == 0:
        lines = draw(st.permutations(lines))
    return lines


@st.composite
def lines_of_gold(draw: st.DrawFn) -> list[list[str]]:
    pairs = st.tuples(st.sampled_from(["q1", "q2", "q3"]), IDS)
    plain = draw(st.booleans())
    grades = st.sampled_from(["0", "1", "2"]) if plain else GRADES
    judged = draw(st.dictionaries(pairs, grades, min_size=1, max_size=20))
    lines = [[query, "0", item, grade] for (query, item), grade in judged.items()]
    return lines + lines[: draw(st.integers(0, 1)) * draw(st.integers(0, 1))]


LAYOUT = st.tuples(
    st.sampled_from([" "] * 6 + ["\t", "  ", " \t"]),
    st.sampled_from(["\n"] * 6 + ["\r\n", "\n\n"]),
    st.sampled_from([""] * 6 + ["\ufeff", "# a comment\n", " "]),
    st.booleans(),
)


def write(path: Path, lines: list[list[str]], layout: tuple[str, str, str, bool]) -> None:
    blank, end, lead, ended = layout
    text = lead + end.join(blank.join(fields) for fields in lines) + (end if ended else "")
    path.write_bytes(text.encode())


@settings(max_examples=300, deadline=None)
@given(
    lines_of_run(),
    lines_of_gold(),
    LAYOUT,
    LAYOUT,
    st.sampled_from(CONVENTIONS),
    st.sampled_from(["karat", "karat", "trec", "trec10"]),
    st.sampled_from([1, 40, 200, 1 << 19]),
)
def test_both_paths_give_the_same_bits(
    folder, run, gold, of_run, of_gold, conventions, profile, chunk
):
    write(folder / "run.trec", run, of_run)
    write(folder / "qrels.txt", gold, of_gold)
    paths = folder / "run.trec", folder / "qrels.txt"
    options = {"settings": conventions, "profile": profile}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_files, "_CHUNK_BYTES", chunk)
        assert outcome(*paths, **options) == careful(*paths, **options)


def parsed(texts: list[str]) -> list[str] | None:
    lines = plain_files._Lines.of("\n".join(texts).encode(), 1)
    values = None if lines is None else plain_files._decimals(lines, 0)
    return None if values is None else list(map(repr, values.tolist()))


@given(st.lists(st.from_regex(r"\A-?[0-9]{1,12}(\.[0-9]{0,18})?\Z"), min_size=1))
def test_decimal_numbers_are_those_of_python(texts):
    assert parsed(texts) == [repr(float(text)) for text in texts]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False).map(repr), min_size=1))
def test_printed_numbers_come_back(texts):
    assert parsed(texts) == [repr(float(text)) for text in texts]


@pytest.mark.parametrize(
    "text", ["nan", "inf", "1e999", "1_0", "-", ".", "1.2.3", "0x1", "٣", "1/2"]
)
def test_other_texts_are_no_numbers(text):
    assert parsed(["1.5", text, "2"]) is None


def write_plain_files(folder: Path) -> tuple[Path, Path]:
    queries, items = range(20), [f"d{number}" for number in range(30)]
    run = [
        [f"q{q}", "Q0", d, str(r), str(90 - r), "t"] for q in queries for r, d in enumerate(items)
    ]
    gold = [[f"q{q}", "0", d, str(n % 3)] for q in queries for n, d in enumerate(items[q : q + 6])]
    write(folder / "run.trec", run, (" ", "\n", "", True))
    write(folder / "qrels.txt", gold, (" ", "\n", "", True))
    return folder / "run.trec", folder / "qrels.txt"


def test_plain_files_take_the_fast_path(tmp_path, monkeypatch):
    taken = []
    score = plain_files.score_plain

    def recorded(*inputs, **limits):
        taken.append(score(*inputs, **limits))
        return taken[-1]

    monkeypatch.setattr(evaluation_module, "score_plain", recorded)
    monkeypatch.setattr(plain_files, "_CHUNK_BYTES", 1000)
    paths = write_plain_files(tmp_path)
    assert outcome(*paths) == careful(*paths)
    assert taken[0] is not None


def test_neither_polars_nor_masked_arrays_are_loaded_for_plain_files(tmp_path):
    run, gold = map(str, write_plain_files(tmp_path))
    script = (
        "import sys; from karat.cli.main import main;"
        f"code = main(['eval', {run!r}, '--gold', {gold!r}]);"
        "print({'polars.dataframe', 'numpy.ma'} & set(sys.modules), code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "set() 0"
    assert "nDCG@10" in done.stdout


def test_a_file_above_the_limit_is_read_with_polars(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_files, "MOST_BYTES", 100)
    paths = write_plain_files(tmp_path)
    assert Evaluation(paths[1])._plain is None
    assert outcome(*paths) == careful(*paths)


def test_gold_from_a_pipe_is_read_once(tmp_path):
    run, gold = write_plain_files(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # The writer must stay until the reader is done, as a shell's <(cat qrels.txt) does.
    with subprocess.Popen(["cp", gold, pipe]) as writer:
        scored = Evaluation(pipe, measures=MEASURES).score(run)
        assert writer.wait() == 0
    assert scored.table.rows() == Evaluation(gold, measures=MEASURES).score(run).table.rows()
