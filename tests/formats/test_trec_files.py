"""TREC runs and qrels: what is read, how fast lines and odd lines agree, what is refused."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karat.data.columns import Source
from karat.data.tables import Gold, InterleavedError, Run
from karat.errors import InputError
from karat.formats.blocks import memory_budget
from karat.formats.files import Input
from karat.formats.readers import read_gold, read_run, scan_run, write_gold, write_run
from karat.formats.trec import GOLD, RUN, LineFields, parse_regular, read_fields

DATA = Path(__file__).parents[3] / "shared" / "data"
GOOD = "q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1.5 tag\nq2 Q0 d1 1 0.5 tag\n"


def put(folder: Path, content: str | bytes, name: str = "run.trec") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        read_run(path, **options)  # type: ignore[arg-type]
    return str(caught.value)


def in_memory(data: bytes) -> Input:
    return Input(Source("run"), data=data)


def test_a_run_has_its_hits_tag_and_name(tmp_path: Path) -> None:
    run = read_run(put(tmp_path, GOOD, "my.bm25.trec"))
    assert run.hits.rows()[0] == ("q1", "d1", 1, 2.5)
    assert (run.name, run.meta, run.order) == ("my.bm25", {"tag": "tag"}, "score")


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (GOOD.replace(" ", "\t"), "tabs"),
        (GOOD.replace(" ", "  \t "), "runs of blanks"),
        (GOOD.replace("\n", "\r\n"), "CRLF"),
        ("\ufeff" + GOOD, "byte order mark"),
        ("\n\n" + GOOD.replace("\n", "\n\n"), "blank lines"),
        ("# a comment\n" + GOOD + "  # another", "comments"),
        (GOOD.replace("\n", "  \n").replace("q", " q"), "outer blanks"),
        (GOOD.replace("tag\n", "tag more junk\n"), "trailing text"),
        (GOOD.rstrip("\n"), "no last line end"),
    ],
)
def test_odd_layouts_read_as_the_plain_one(odd: str, why: str, tmp_path: Path) -> None:
    plain = read_run(put(tmp_path, GOOD))
    assert read_run(put(tmp_path, odd, "odd.trec")).hits.equals(plain.hits), why


def test_ids_may_hold_number_signs_quotes_and_leading_zeros(tmp_path: Path) -> None:
    run = read_run(put(tmp_path, '007 Q0 a#1 1 1 t\n007 Q0 "b 2 0.5 t\n'))
    assert run.hits["item_id"].to_list() == ["a#1", '"b']
    assert run.hits["query_id"].to_list() == ["007", "007"]


def test_ranks_that_are_no_whole_numbers_are_dropped(tmp_path: Path) -> None:
    assert read_run(put(tmp_path, GOOD.replace(" 2 1.5", " x 1.5"))).hits.columns == [
        "query_id",
        "item_id",
        "score",
    ]


def test_ranks_may_be_missing_from_a_later_chunk(tmp_path: Path) -> None:
    scan = scan_run(put(tmp_path, "q Q0 a 1 2 t\nr Q0 a 1 2 t\nr Q0 b x 1 t"))
    assert [block.hits.height for block in scan.blocks()] == [1, 2]
    assert scan.read().hits.columns == ["query_id", "item_id", "score"]


@pytest.mark.parametrize(
    "score",
    ["nan", "NaN", "inf", "-inf", "infinity", "1e400", "1_000", "0x10", "1.5d", "1,5", "x", "--1"],
)
def test_scores_that_are_no_finite_numbers_are_refused(score: str, tmp_path: Path) -> None:
    path = put(tmp_path, GOOD + f"q2 Q0 d9 2 {score} tag\n")
    assert refusal(path) == f"run.trec:4: score is '{score}'; a run needs finite scores"


@pytest.mark.parametrize("score", ["1", "+1", "-0", "1.", ".5", "1e-5", "1E+5", "00012", "1e-400"])
def test_plain_numbers_are_scores(score: str, tmp_path: Path) -> None:
    assert read_run(put(tmp_path, f"q Q0 d 1 {score} t\n")).hits["score"][0] == float(score)


def test_short_lines_are_refused_even_beside_long_ones(tmp_path: Path) -> None:
    path = put(tmp_path, GOOD + "q2 Q0 d5 1 0.5 tag extra\nq2 Q0 d6 2 0.4\n")
    assert refusal(path) == "run.trec:5: 5 columns; expected 6: query Q0 item rank score tag"


def test_a_lone_carriage_return_is_refused(tmp_path: Path) -> None:
    told = refusal(put(tmp_path, GOOD.replace("\n", "\r")))
    assert told.startswith("run.trec:1: the line contains a carriage return")


def test_line_numbers_count_comments_and_hold_over_chunks(tmp_path: Path) -> None:
    lines = [f"q{i // 10} Q0 d{i} 1 0.5 tag" for i in range(400_000)]
    lines[5] = "# comment"
    lines[399_990] = "q Q0 d 1 nan tag"
    told = refusal(put(tmp_path, "\n".join(lines)))
    assert told == "run.trec:399991: score is 'nan'; a run needs finite scores"


WORD = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=6
)
ROW = st.tuples(
    # A comment, and the byte order mark of the file, are no part of a row.
    WORD.filter(lambda word: not word.startswith(("#", "\ufeff"))),
    st.just("Q0"),
    WORD,
    st.integers(-5, 10**6).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    WORD,
)


@given(st.lists(ROW, min_size=1, max_size=30))
@settings(max_examples=80, deadline=None)
def test_the_fast_way_agrees_with_the_careful_way(rows: list[tuple[str, ...]]) -> None:
    data = "".join(" ".join(row) + "\n" for row in rows).encode()
    assert parse_regular(data, RUN) is not None
    quick = pl.concat(read_fields(in_memory(data), RUN))
    slow = pl.concat(read_fields(in_memory(data), RUN, careful=True))
    assert quick.equals(slow)
    assert quick["score"].to_list() == [float(row[4]) for row in rows]


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_byte_order_mark_amid_a_file_is_part_of_an_id(tmp_path: Path, end: str) -> None:
    # A last line without its end is a chunk of its own.
    lines = f"q1 Q0 d1 1 2.5 tag\n\ufeffq2 Q0 d1 1 0.5 tag{end}"
    assert read_run(put(tmp_path, lines)).hits["query_id"].to_list() == ["q1", "\ufeffq2"]
    rows = f"query_id,item_id,score\nq1,d1,2.5\n\ufeffq2,d1,0.5{end}"
    table = read_run(put(tmp_path, rows, "run.csv"))
    assert table.hits["query_id"].to_list() == ["q1", "\ufeffq2"]


@given(st.binary(max_size=60) | st.text("q d1.\t\r\n#-e", max_size=60).map(str.encode))
@settings(max_examples=150, deadline=None)
def test_any_bytes_give_rows_or_a_refusal_and_both_ways_agree(data: bytes) -> None:
    def outcome(layout: LineFields, careful: bool) -> object:
        try:
            frames = read_fields(in_memory(data), layout, careful=careful)
            return [row for frame in frames for row in frame.rows()]
        except InputError as error:
            return str(error)

    for layout in (RUN, GOLD):
        assert outcome(layout, False) == outcome(layout, True)


def many(queries: int, depth: int) -> str:
    return "".join(
        f"q{q} Q0 d{q}_{r} {r + 1} {depth - r} t\n" for q in range(queries) for r in range(depth)
    )


@pytest.mark.parametrize("size", [50, 700, 5000, 10**7])
def test_blocks_hold_whole_queries_and_join_to_the_run(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Input.chunks, "__defaults__", (size,))
    budget = memory_budget()._replace(block_rows=1)
    monkeypatch.setattr("karat.formats.blocks.memory_budget", lambda: budget)
    scan = scan_run(put(tmp_path, many(40, 7)))
    blocks = [block.hits for block in scan.blocks()]
    assert pl.concat(blocks).equals(scan.read().hits)
    names = [set(block["query_id"]) for block in blocks]
    assert sum(map(len, names)) == 40
    assert size > 700 or len(blocks) > 5


def test_interleaved_queries_are_noticed_and_read_whole(tmp_path: Path) -> None:
    scan = scan_run(put(tmp_path, GOOD + "q1 Q0 d9 3 0.1 tag\n"))
    with pytest.raises(InterleavedError):
        list(scan.blocks())
    assert scan.read().hits.height == 4


def test_interleaving_across_chunks_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Input.chunks, "__defaults__", (60,))
    scan = scan_run(put(tmp_path, many(30, 2) + "q3 Q0 d9 3 0.1 t\n"))
    with pytest.raises(InterleavedError):
        list(scan.blocks())


def test_strict_refuses_the_same_item_twice_with_its_line(tmp_path: Path) -> None:
    path = put(tmp_path, "# c\n" + GOOD + "q2 Q0 d1 2 0.4 tag\n")
    told = "run.trec:5: query 'q2' has item 'd1' twice; --strict wants every item once"
    assert refusal(path, strict=True) == told
    with pytest.raises(InputError, match=r"run\.trec:5"):
        list(scan_run(path, strict=True).blocks())
    assert read_run(path).hits.height == 4
    assert (
        read_run(put(tmp_path, GOOD), strict=True).hits.columns
        == read_run(put(tmp_path, GOOD)).hits.columns
    )


def test_names_with_brackets_are_no_patterns(tmp_path: Path) -> None:
    assert read_run(put(tmp_path, GOOD, "run[1].trec")).hits.height == 3


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_packed_runs_are_read_and_written(packing: str, tmp_path: Path) -> None:
    run = read_run(put(tmp_path, many(50, 3), "plain.trec"))
    path = tmp_path / f"run.trec{packing}"
    write_run(run, path)
    assert path.read_bytes()[:2] in (b"\x1f\x8b", b"\x28\xb5")
    again = read_run(path)
    assert again.hits.equals(run.hits)
    assert again.name == "run"


def test_packed_with_carriage_returns_and_no_suffix(tmp_path: Path) -> None:
    path = put(tmp_path, gzip.compress(GOOD.replace("\n", "\r\n").encode()), "run")
    assert read_run(path).hits.height == 3


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_cut_off_packed_runs_are_refused(packing: str, tmp_path: Path) -> None:
    path = tmp_path / f"run.trec{packing}"
    write_run(read_run(put(tmp_path, many(3000, 3), "plain.trec")), path)
    path.write_bytes(path.read_bytes()[:-9])
    assert "the file ends early: the compressed data is cut off" in refusal(path)


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(many(3000, 3).encode()))
    data[len(data) // 2 : len(data) // 2 + 40] = b"\0" * 40
    told = refusal(put(tmp_path, bytes(data), "run.trec.gz"))
    assert "damaged" in told or "ends early" in told


def test_qrels_take_fractions_negatives_and_comments(tmp_path: Path) -> None:
    gold = read_gold(put(tmp_path, "#c\nq1 0 d#1 2.5\nq1\t0\td2   -1\n", "qrels.txt"))
    assert gold.frame.rows() == [("q1", "d#1", 2.5), ("q1", "d2", -1.0)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("q1 0 d1", "3 columns; expected 4: query iteration item grade"),
        ("q1 Q0 d1 1 0.5 tag", "6 columns; expected 4: query iteration item grade"),
        ("q1 0 d1 high", "grade is 'high'; a judgment needs a finite grade"),
        (
            "q1 0 d0 2",
            "query 'q1', item 'd0' is judged 2 here and 1 in line 1; keep one of the two",
        ),
    ],
)
def test_bad_qrels_are_refused_with_their_line(line: str, told: str, tmp_path: Path) -> None:
    path = put(tmp_path, f"q1 0 d0 1\n\n{line}\n", "qrels.txt")
    with pytest.raises(InputError) as caught:
        read_gold(path)
    assert str(caught.value) == f"qrels.txt:3: {told}"


def test_duplicates_may_let_the_last_win(tmp_path: Path) -> None:
    path = put(tmp_path, "q 0 d 1\nq 0 d 2\n", "qrels.txt")
    assert read_gold(path, duplicates="last").frame["grade"].to_list() == [2.0]


@pytest.mark.parametrize("name", ["a b", "tab\t", "new\nline"])
def test_ids_with_white_space_are_not_written(name: str, tmp_path: Path) -> None:
    for write, table in (
        (write_run, Run.from_dict({"q": {name: 1.0}})),
        (write_gold, Gold.from_dict({name: {"d": 1}})),
    ):
        with pytest.raises(InputError, match="white space, which a TREC file cannot carry"):
            write(table, tmp_path / "out.trec")  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []


def test_whole_grades_are_written_whole(tmp_path: Path) -> None:
    write_gold(Gold.from_dict({"q": {"a": 2, "b": 0.5, "c": -1}}), tmp_path / "q.qrels")
    assert (tmp_path / "q.qrels").read_text() == "q 0 a 2\nq 0 b 0.5\nq 0 c -1\n"


def test_standard_input_and_output_are_a_dash(tmp_path: Path) -> None:
    code = "import karat.formats.readers as f; f.write_run(f.read_run('-'), '-', format='trec')"
    done = subprocess.run([sys.executable, "-c", code], input=GOOD.encode(), capture_output=True)
    assert done.stdout.decode() == GOOD, done.stderr
    packed = subprocess.run(
        [sys.executable, "-c", code], input=gzip.compress(GOOD.encode()), capture_output=True
    )
    assert packed.stdout.decode() == GOOD, packed.stderr


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")
def test_the_files_of_trec_eval_are_read() -> None:
    folder = DATA / "trec_eval-test" / "v10"
    assert read_run(folder / "results.trunc").hits.height == 584
    assert any("#" in item for item in read_run(folder / "results.comment.test").hits["item_id"])
    assert read_gold(folder / "qrels.rel_level").frame["grade"].min() == -1
    assert read_gold(folder / "qrels.test.with-comments").frame.height > 3000


def test_double_blanks_are_seen_everywhere() -> None:
    assert parse_regular(GOOD.encode(), RUN) is not None
    for place in [i for i, letter in enumerate(GOOD) if letter in " \n"]:
        assert parse_regular((GOOD[:place] + " " + GOOD[place:]).encode(), RUN) is None
