"""Telling formats apart, refusing what cannot be read, and replacing files whole."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from karat.data.tables import Gold, Run
from karat.errors import InputError, KaratError, UsageError
from karat.formats.blocks import memory_budget
from karat.formats.files import atomic_write
from karat.formats.readers import (
    read_corpus,
    read_gold,
    read_queries,
    read_run,
    scan_run,
    write_gold,
    write_run,
)
from karat.formats.registry import FORMATS, KINDS, detect_format, format_for_writing


def put(folder: Path, content: str | bytes, name: str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("kind", "name", "content", "expected"),
    [
        ("run", "a.txt", "q Q0 d 1 0.5 t\n", "trec"),
        ("run", "noending", "q\tQ0\td\t1\t0.5\tt\n", "trec"),
        ("run", "a.csv", "query_id,item_id,score\nq,d,1\n", "csv"),
        ("run", "a", '"qid","docno","rank"\nq,d,1\n', "csv"),
        ("run", "a.tsv", "qid\tdocno\tscore\nq\td\t1\n", "tsv-with-header"),
        ("run", "a.json", '{"q": {"d": 0.5}}', "dict"),
        ("run", "a.json", '{\n "q": {\n  "d": 0.5}}', "dict"),
        ("run", "a.jsonl", '{"query_id": "q", "topk": []}\n', "runlog"),
        ("gold", "q.txt", "q 0 d 1\n", "trec"),
        ("gold", "q.qrels", "# c\nq 0 d\n", "trec"),
        ("gold", "q.tsv", "q\td\t1\n", "tsv"),
        ("gold", "q.tsv", "query-id\tcorpus-id\tscore\nq\td\t1\n", "tsv-with-header"),
        ("gold", "q.tsv", "q 1\td 2\t1\n", "tsv"),
        ("gold", "q", "q 0\td\t1\n", "trec"),
        ("gold", "q.json", '{"q": {"d": 1}}', "dict"),
        ("gold", "q.jsonl", '{"query": "x", "relevant_chunk_ids": []}\n', "evalset"),
        ("gold", "q.jsonl", '{"query_id": "q", "question": "x", "gold_evidence": []}\n', "dataset"),
        ("queries", "q.tsv", "q1\tapple tart\n", "tsv"),
        ("queries", "q.csv", "id,text\nq1,apple\n", "csv"),
        ("queries", "q.jsonl", '{"_id": "1", "text": "x"}\n', "jsonl"),
        ("queries", "q.json", '["one", "two"]', "story"),
        ("corpus", "c.jsonl", '{"id": "1", "text": "x"}\n', "jsonl"),
        ("corpus", "c.txt", "Sc1 group begin\nSc1 group end\n", "story"),
        ("corpus", "c.json", '{"test_cases": []}', "memory"),
    ],
)
def test_formats_are_told_by_content(
    kind: str, name: str, content: str, expected: str, tmp_path: Path
) -> None:
    assert detect_format(put(tmp_path, content, name), kind).name == expected  # type: ignore[arg-type]


def test_long_first_records_are_told_too(tmp_path: Path) -> None:
    hits = [{"rank": i + 1, "chunk_id": f"d{i}", "score": 1.0} for i in range(5000)]
    record = {"query_id": "q", "system": "s", "topk": hits}
    assert detect_format(put(tmp_path, json.dumps(record), "r.jsonl"), "run").name == "runlog"
    scores = {"q": {f"d{i}": 1.0 for i in range(9000)}}
    assert detect_format(put(tmp_path, json.dumps(scores), "r.json"), "run").name == "dict"


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_names_readers_and_writers_for_its_kinds(kind: str) -> None:
    for form in FORMATS.values():
        if kind in form.carries:
            assert callable(form.reader(kind))  # type: ignore[arg-type]
            assert callable(form.writer(kind))  # type: ignore[arg-type]
        else:
            with pytest.raises(UsageError, match=f"carries no {kind}"):
                form.reader(kind)  # type: ignore[arg-type]
        if form.together:
            assert callable(form.writer_of_both())


def test_a_more_specific_format_takes_no_suffix_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suffixes = sorted({suffix for form in FORMATS.values() for suffix in form.suffixes})

    def named() -> dict[tuple[str, str], str]:
        names = {}
        for kind in KINDS:
            for suffix in suffixes:
                with suppress(UsageError):
                    names[kind, suffix] = format_for_writing(f"f{suffix}", kind, None).name
        return names

    before = named()
    assert before["gold", ".csv"] == "csv"
    assert before["gold", ".tsv"] == before["queries", ".txt"] == "tsv"
    assert before["run", ".tsv"] == "tsv-with-header"
    assert before["gold", ".json"] == before["run", ".json"] == "dict"
    assert before["queries", ".json"] == "story"
    assert before["corpus", ".json"] == "memory"
    assert before["gold", ".jsonl"] == "evalset"
    assert before["queries", ".jsonl"] == before["corpus", ".jsonl"] == "jsonl"
    assert before["run", ".jsonl"] == "runlog"
    assert ("gold", ".run") not in before
    assert ("run", ".qrels") not in before
    changes = {"name": "added", "module": "trec", "carries": KINDS, "suffixes": tuple(suffixes)}
    added = replace(FORMATS["trec"], **changes)  # type: ignore[arg-type]
    monkeypatch.setattr("karat.formats.registry.FORMATS", {"added": added} | FORMATS)
    after = named()
    assert {key: after[key] for key in before} == before
    page = put(tmp_path, "a,b\n", "f.csv")
    monkeypatch.setattr("karat.formats.trec.sniff", lambda head, kind, **options: False)
    assert detect_format(page, "gold").name == "csv"


READERS = [read_gold, read_run, read_queries, read_corpus]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("empty.txt", b"", "empty.txt: is empty; "),
        ("blank.txt", b"\n \n", "blank.txt: is empty; "),
        ("binary.trec", b"q Q0 d\n\x00\x01 1\n", "binary.trec:2: holds a NUL byte"),
        (
            "wide.txt",
            "q Q0 d 1 1 t\n".encode("utf-16"),
            "wide.txt: is UTF-16 text; save it as UTF-8",
        ),
        (
            "page.html",
            b"<html>\n</html>\n",
            "page.html: unknown format; name the format, one of ",
        ),
    ],
)
def test_files_that_hold_nothing_usable_are_refused(
    read: object, name: str, content: bytes, told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        read(put(tmp_path, content, name))  # type: ignore[operator]
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("read", READERS)
def test_missing_files_and_plain_folders_are_refused(read: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.txt: no such file; check the path"):
        read(tmp_path / "nowhere.txt")  # type: ignore[operator]
    with pytest.raises(InputError, match=r"is a folder without corpus\.jsonl"):
        read(tmp_path)  # type: ignore[operator]
    with pytest.raises(InputError, match="is a folder; csv is read from a file"):
        read(tmp_path, format="csv")  # type: ignore[operator]
    with pytest.raises(KaratError):
        read("bad\0name")  # type: ignore[operator]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "q Q0 d 1 1 t\n", "run.trec")
    path.chmod(0)
    with pytest.raises(InputError, match="may not be read; check its permissions"):
        read_run(path)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("run.trec", "q Q0 d 1 0.5 t\nq Q0 \xe9 2 0.4 t\n"),
        ("run.csv", "query_id,item_id,score\nq,\xe9,1\n"),
        ("run.jsonl", '{"query_id": "q", "topk": []}\n{"query_id": "\xe9"}\n'),
    ],
)
def test_latin_text_is_refused_with_its_line(name: str, lines: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_run(put(tmp_path, lines.encode("latin-1"), name))
    assert str(caught.value) == f"{name}:2: byte 0xe9 is not UTF-8; save the file as UTF-8"


def test_a_wrong_kind_says_what_the_file_holds(tmp_path: Path) -> None:
    path = put(tmp_path, '{"query": "x", "relevant_chunk_ids": []}\n', "e.json")
    with pytest.raises(InputError):
        read_run(path)
    suite = put(tmp_path, '{"test_cases": []}', "s.json")
    with pytest.raises(
        InputError, match=r"looks like memory .* which holds gold and queries and corpus"
    ):
        read_run(suite)


def test_unknown_formats_are_answered_with_the_nearest(tmp_path: Path) -> None:
    path = put(tmp_path, "q 0 d 1\n", "q.txt")
    with pytest.raises(UsageError, match="did you mean trec"):
        read_gold(path, format="trek")
    with pytest.raises(UsageError, match=r"does not determine a format for gold; end it in \.trec"):
        write_gold(Gold.from_dict({"q": {"d": 1}}), tmp_path / "out.xyz")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"q": {"d": NaN}}', "NaN is not JSON; a finite number or null is expected"),
        ('{"q": {"d": 1e999}}', "grade is inf; a judgment needs a finite grade"),
        ('{"q": {"d": 1, "d": 2}}', "key 'd' occurs twice in one object"),
        ('{"q": {"d": "high"}}', "grade is 'high'; a judgment needs a finite grade"),
        ('{"q": {"d": "\\ud800"}}', "holds half of a surrogate pair"),
        ('{"q": {"d": 1}', "j.json:1: not valid JSON"),
        ('{"q": "a\nb"}', "Invalid control character at column 9"),
        ('{"": {"d": 1}}', "query_id is empty"),
        ('{"q": 1}', "query 'q' holds 1; give a dict or a list of its items"),
        ("{}", "expected an object of {query: {item: number}}"),
        ('{"q": ' + "[" * 100_000, "JSON"),
        ('{"q": {"d": ' + "9" * 5000 + "}}", "j.json"),
    ],
)
def test_bad_json_is_refused(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_gold(put(tmp_path, text, "j.json"), format="dict")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{bad", "e.jsonl:2: not valid JSON: Expecting property name"),
        ("[1]", "e.jsonl:2: the line holds a JSON array; an object is expected"),
        ('{"query": "x", "id": true}', "e.jsonl:2: id is true; ids are text or whole numbers"),
        ('{"query": "x", "id": 1.5}', "e.jsonl:2: id is 1.5; ids"),
        (
            '{"query": "x", "relevant_chunk_ids": [null]}',
            "e.jsonl:2: an entry of relevant_chunk_ids is null; ids",
        ),
        ('{"query": "x", "relevant_chunk_ids": {"a": "y"}}', "e.jsonl:2: the grade of 'a' is"),
        ('{"relevant_chunk_ids": ["a"]}', 'e.jsonl:2: no query; expected "query" with its text'),
    ],
)
def test_bad_lines_of_json_are_refused_with_their_number(
    line: str, told: str, tmp_path: Path
) -> None:
    good = '{"query": "a", "relevant_chunk_ids": ["x"]}'
    with pytest.raises(InputError) as caught:
        read_gold(put(tmp_path, f"{good}\n{line}\n", "e.jsonl"))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            "query_id,item_id,score\nq,d,1\nq,e,nan\n",
            "r.csv:3: score is 'nan'; a run needs finite scores",
        ),
        (
            "query_id,item_id,score\nq,d,1\n,e,2\n",
            "r.csv:3: query_id is empty; every row needs one",
        ),
        (
            'query_id,item_id,score\nq,"two\nlines",1\nq,e,1_0\n',
            "r.csv:4: score is '1_0'; a run needs",
        ),
        (
            "query_id,item_id,score\nq,d,1\nq,e,2,3\n",
            "r.csv:3: 4 fields; expected 3 as in the header",
        ),
        (
            'query_id,item_id,score\nq,"a\n""b""",1\nq,5" pipe,2\nq,e,3\n',
            "r.csv:4: a lone quote in a field; double it",
        ),
        (
            "query_id,item_id,score\nq,d,1\nq,e\n",
            "r.csv:3: score is missing; a run needs finite scores",
        ),
        ("query_id,item_id,score\n", "r.csv: holds no hits; at least one row is expected"),
        ("query_id,item_id,rank\nq,d,1.5\n", "r.csv:2: rank is '1.5'; a whole number is expected"),
    ],
)
def test_bad_tables_are_refused_with_their_line(content: str, told: str, tmp_path: Path) -> None:
    path = put(tmp_path, content, "r.csv")
    for read in (read_run, lambda p: list(scan_run(p).blocks())):
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value).startswith(told)


def test_tables_take_quotes_blank_lines_and_other_names(tmp_path: Path) -> None:
    path = put(tmp_path, '\ufeffqid,docno,score\r\n"q,1","a ""b""",1\r\n\r\nq2,c,2\r\n', "r.csv")
    assert read_run(path).hits.rows() == [("q,1", 'a "b"', 1.0), ("q2", "c", 2.0)]


def test_a_missing_column_is_named_before_any_row(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("query_id,hits\n,3\nq1,4\n")
    with pytest.raises(InputError, match="no column for the item id among query_id, hits"):
        read_run(path)


@pytest.mark.parametrize("end", ["\n\r", "\r\n\r\n\r", "\n\n\r\n"])
def test_blank_lines_at_the_end_of_a_table_are_no_rows(tmp_path: Path, end: str) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(b"query_id,item_id,score\nq1,d1,1" + end.encode())
    assert read_run(path).hits["item_id"].to_list() == ["d1"]


def test_strict_tables_refuse_the_same_item_twice(tmp_path: Path) -> None:
    path = put(tmp_path, "query_id,item_id,score\nq,d,1\nq,d,2\n", "r.csv")
    with pytest.raises(InputError, match=r"r\.csv:3: query 'q' has item 'd' twice"):
        read_run(path, strict=True)


def test_spans_in_columns_are_gold(tmp_path: Path) -> None:
    path = put(tmp_path, "query_id,doc_id,start,end\nq,d,3,9\nq,d,20,30\n", "g.csv")
    assert read_gold(path).frame.rows() == [("q", "d", 1.0, 3, 9), ("q", "d", 1.0, 20, 30)]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("q1\tapple\nq2\n", "q.tsv:2: 1 column; expected 2 separated by tabs: query_id, text"),
        (
            "q1\tapple\nq2\ta\tb\n",
            "q.tsv:2: 3 columns; expected 2 separated by tabs: query_id, text",
        ),
        ("q1\tapple\n\nq1\tpear\n", "q.tsv:3: query id 'q1' occurs twice; ids must differ"),
        ("q1\tapple\n\tpear\n", "q.tsv:2: query_id is empty; every row needs one"),
    ],
)
def test_bad_tsv_queries_are_refused_with_their_line(
    content: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        read_queries(put(tmp_path, content, "q.tsv"))
    assert str(caught.value) == told


def test_bad_tsv_grades_are_refused_with_their_line(tmp_path: Path) -> None:
    for grade in ("high", "nan", "0x1", ""):
        with pytest.raises(InputError, match=r"g\.tsv:2: grade is "):
            read_gold(put(tmp_path, f"q\td\t1\nq\te\t{grade}\n", "g.tsv"))


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, b"PAR1 not really", "r.parquet")
    for read in (read_run, read_gold, read_corpus, lambda p: list(scan_run(p).blocks())):
        with pytest.raises(InputError, match=r"r\.parquet: the Parquet file is damaged"):
            read(path)


def parquet(folder: Path, **columns: object) -> Path:
    path = folder / "table.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


def test_gold_of_other_types_is_read(tmp_path: Path) -> None:
    numbered = read_gold(parquet(tmp_path, query_id=[1, 2], item_id=[5, 6], grade=[1, 0]))
    assert numbered.frame.rows() == [("1", "5", 1.0), ("2", "6", 0.0)]
    items = pl.Series(["d1", "d2"], dtype=pl.Categorical)
    named = read_gold(parquet(tmp_path, query_id=["q", "q"], item_id=items, grade=[1, 2]))
    assert named.frame.rows() == [("q", "d1", 1.0), ("q", "d2", 2.0)]


def test_columns_that_cannot_be_what_they_are_called_are_refused(tmp_path: Path) -> None:
    for read, columns, told in (
        (read_gold, {"query_id": ["q"], "item_id": [{"a": 1}], "grade": [1]}, "item_id holds Str"),
        (read_gold, {"query_id": ["q"], "item_id": ["d"], "start": [1]}, "has a column start alo"),
        (read_queries, {"query_id": ["q"], "text": [["a"]]}, "text holds List"),
        (read_corpus, {"item_id": ["d"], "text": [b"\xff"]}, "text holds Binary; text is expected"),
        (read_run, {"query_id": ["q"], "item_id": ["d"], "rank": [1.5]}, "rank is 1.5; a whole"),
    ):
        with pytest.raises(InputError, match=told):
            read(parquet(tmp_path, **columns))


def test_packed_parquet_is_told_from_damaged_one(tmp_path: Path) -> None:
    inside = parquet(tmp_path, query_id=["q"], item_id=["d"], score=[1.0]).read_bytes()
    path = put(tmp_path, gzip.compress(inside), "r.parquet.gz")
    with pytest.raises(InputError, match=r"r\.parquet\.gz: is packed around Parquet"):
        read_run(path)


@pytest.mark.parametrize("size", [10, 50, 1_000])
def test_a_line_that_is_too_long_is_refused_wherever_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setenv("KARAT_MAX_LINE", "100")
    budget = memory_budget()._replace(chunk=size)
    monkeypatch.setattr("karat.formats.files.memory_budget", lambda: budget)
    short = "q1 Q0 d1 1 3 t\n" * 7
    for long in (f"q2 Q0 {'y' * 200} 1 3 t\n", f"q2 Q0 {'y' * 200} 1 3 t"):
        path = put(tmp_path, f"{short}{long}", "r.trec")
        with pytest.raises(InputError, match=r"r\.trec: has a line longer than 100 bytes"):
            read_run(path)


def test_only_plain_digits_make_a_span(tmp_path: Path) -> None:
    gold = read_gold(put(tmp_path, "q 0 doc:1-\u0663 1\nq 0 doc:4-9 1\n", "g.qrels"))
    assert gold.frame["item_id"].to_list() == ["doc:1-\u0663", "doc:4-9"]


def test_parquet_of_other_types_is_read(tmp_path: Path) -> None:
    table = pl.DataFrame({"qid": [1, 1], "docno": [7, 8], "score": [1, 2]})
    table.write_parquet(tmp_path / "r[1].parquet")
    assert read_run(tmp_path / "r[1].parquet").hits.rows() == [("1", "7", 1.0), ("1", "8", 2.0)]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = put(tmp_path, "before", "out.txt")

    def fail() -> None:
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_makes_folders_and_follows_links(tmp_path: Path) -> None:
    real = tmp_path / "deep" / "er" / "out.trec"
    write_run(Run.from_dict({"q": {"d": 1.0}}), real)
    link = tmp_path / "link.trec"
    link.symlink_to(real)
    write_run(Run.from_dict({"q": {"e": 1.0}}), link)
    assert link.is_symlink()
    assert "e" in real.read_text()
    assert (real.stat().st_mode & 0o777) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    file = put(tmp_path, "x", "file")
    run = Run.from_dict({"q": {"d": 1.0}})
    with pytest.raises(InputError, match="cannot be written"):
        write_run(run, file / "out.trec")
    with pytest.raises(InputError, match="is a folder; a file name is expected"):
        write_run(run, tmp_path, format="trec")


def test_importing_the_package_loads_nothing() -> None:
    code = "import sys, karat.formats; print('polars' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False False", done.stderr


@pytest.mark.parametrize("bounds", ["x,9", "9,3", "4,4", "3,", "1.5,2"])
def test_bad_spans_are_refused_with_their_line(bounds: str, tmp_path: Path) -> None:
    path = put(tmp_path, f"query_id,doc_id,start,end\nq,d,3,9\nq,e,{bounds}\n", "g.csv")
    with pytest.raises(InputError, match=r"g\.csv:3: start is "):
        read_gold(path)


def test_one_long_line_is_read_in_one_piece(tmp_path: Path) -> None:
    scores = {"q": {f"item{i}": float(i) for i in range(400_000)}}
    path = put(tmp_path, "\ufeff" + json.dumps(scores), "big.json")
    assert read_run(path).hits.height == 400_000


def test_similarity_is_a_number_in_a_table(tmp_path: Path) -> None:
    path = put(tmp_path, "query_id,item_id,score,similarity\nq,d,1,0.5\n", "r.csv")
    assert read_run(path).hits["similarity"].to_list() == [0.5]


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    code = "import sys, karat.formats.readers as f; print(f.read_run(sys.argv[1]).hits.height)"
    command = f"{sys.executable} -c '{code}' <(printf 'q Q0 d 1 0.5 t\\n')"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr


def test_lists_of_a_dict_take_whole_numbers_as_ids(tmp_path: Path) -> None:
    path = put(tmp_path, '{"0": [10, 0], "1": ["a"]}', "a.json")
    pairs = [("0", "10"), ("0", "0"), ("1", "a")]
    assert read_gold(path).frame.select("query_id", "item_id").rows() == pairs
    assert read_run(path).hits.select("query_id", "item_id").rows() == pairs


@pytest.mark.parametrize("item", ["true", "1.5", "null", '""', "[]"])
def test_lists_of_a_dict_take_no_other_values_as_ids(tmp_path: Path, item: str) -> None:
    path = put(tmp_path, f'{{"0": [{item}]}}', "a.json")
    for read in (read_gold, read_run):
        with pytest.raises(InputError, match=r"a\.json: "):
            read(path)
