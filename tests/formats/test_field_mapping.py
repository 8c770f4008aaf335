"""Columns of other names: mapped, they give the tables that the usual names give."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import karat
from karat.data.tables import Gold, Run
from karat.errors import InputError, NoColumnError, UsageError
from karat.formats.field_mapping import FIELDS, Fields
from karat.formats.readers import (
    queries_in_gold,
    read_corpus,
    read_gold,
    read_queries,
    read_run,
    scan_run,
)

Row = dict[str, Any]
FORMS = ("jsonl", "jsonl.gz", "csv", "csv.gz", "parquet")

CORPUS: list[Row] = [
    {"item_id": "c1", "doc_id": "d1", "text": "a tart", "version": "2025-01-01"},
    {"item_id": "c2", "doc_id": "d1", "text": "a pie", "version": "2025-02-01"},
]
QUERIES: list[Row] = [
    {"query_id": "q1", "text": "tart?", "group": "a", "as_of": "2025-03-01"},
    {"query_id": "q2", "text": "pie?", "group": "b", "as_of": "2025-03-02"},
]
JUDGED: list[Row] = [
    {"query_id": "q1", "item_id": "c1", "grade": 2},
    {"query_id": "q2", "item_id": "c2", "grade": 1},
]
HITS: list[Row] = [
    {"query_id": "q1", "item_id": "c1", "score": 0.5, "doc_id": "d1"},
    {"query_id": "q1", "item_id": "c2", "score": 0.25, "doc_id": "d1"},
    {"query_id": "q2", "item_id": "c2", "score": 0.75, "doc_id": "d1"},
]
# No reader knows these.
OTHERS = {
    "query_id": "frage",
    "item_id": "stueck",
    "doc_id": "werk",
    "text": "wortlaut",
    "grade": "note",
    "score": "punkte",
    "version": "stand",
    "group": "gruppe",
    "as_of": "zum",
    "gold": "treffer",
    "hits": "liste",
}


def write(folder: Path, form: str, rows: list[Row]) -> Path:
    path = folder / f"table.{form}"
    name, packed = form.removesuffix(".gz"), form.endswith(".gz")
    if name == "parquet":
        pl.DataFrame(rows).write_parquet(path)
        return path
    data = "".join(json.dumps(row) + "\n" for row in rows)
    if name == "csv":
        cells = [
            {k: json.dumps(v) if isinstance(v, list) else v for k, v in r.items()} for r in rows
        ]
        data = pl.DataFrame(cells).write_csv()
    path.write_bytes(gzip.compress(data.encode()) if packed else data.encode())
    return path


def renamed(rows: list[Row], names: dict[str, str]) -> list[Row]:
    return [{names.get(key, key): value for key, value in row.items()} for row in rows]


def only(rows: list[Row]) -> dict[str, str]:
    return {key: OTHERS[key] for key in rows[0] if key in OTHERS}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("read", "rows"),
    [
        (lambda path, **how: read_corpus(path, **how).frame, CORPUS),
        (lambda path, **how: read_queries(path, **how).frame, QUERIES),
        (lambda path, **how: read_gold(path, **how).frame, JUDGED),
        (lambda path, **how: read_run(path, **how).hits, HITS),
    ],
    ids=["corpus", "queries", "gold", "run"],
)
def test_mapped_columns_give_the_same_table(
    tmp_path: Path, form: str, read: Callable[..., pl.DataFrame], rows: list[Row]
) -> None:
    if rows is HITS and form.startswith("jsonl"):
        # The hits of a log are in the record of their query.
        rows = [{"query_id": "q1", "hits": [{"id": "c1"}, {"id": "c2"}], "error": None}]
        usual = read(write(tmp_path, form, [{**rows[0], "topk": rows[0]["hits"]}]))
    else:
        usual = read(write(tmp_path, form, rows))
    names = only(rows)
    own = write(tmp_path, form, renamed(rows, names))
    with pytest.raises(InputError):
        read(own)
    assert_frame_equal(read(own, fields=names), usual)


@pytest.mark.parametrize("form", FORMS)
def test_a_list_of_gold_in_each_row_is_mapped(tmp_path: Path, form: str) -> None:
    rows = [
        {"query_id": "q1", "text": "tart?", "gold_ids": ["c1", "c2"], "language": "en"},
        {"query_id": "q2", "text": "pie?", "gold_ids": ["c2"], "language": "pt"},
    ]
    path = write(tmp_path, form, rows)
    gold = read_gold(path, fields={"gold": "gold_ids"})
    assert gold.frame.rows() == [("q1", "c1", 1.0), ("q1", "c2", 1.0), ("q2", "c2", 1.0)]
    queries = queries_in_gold(path, fields={"gold": "gold_ids"})
    assert queries is not None
    assert queries.frame.rows(named=True) == [
        {"query_id": "q1", "text": "tart?", "language": "en"},
        {"query_id": "q2", "text": "pie?", "language": "pt"},
    ]


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
@pytest.mark.parametrize(
    "cell",
    ["c0;c12", "c0; c12", "c0|c12", "c0,c12", "c0, c12;", "['c0', 'c12']", "['c0']", "[c0]"],
)
def test_a_list_in_a_cell_that_is_no_json_is_refused(tmp_path: Path, form: str, cell: str) -> None:
    rows = [
        {"query_id": "q1", "text": "tart?", "relevant_ids": "c1"},
        {"query_id": "q2", "text": "pie?", "relevant_ids": cell},
    ]
    with pytest.raises(
        InputError, match=r'write a list as JSON, such as \["c0", "c12"\]'
    ) as caught:
        read_gold(write(tmp_path, form, rows))
    own = [{"id": "q1", "text": "tart?", "expected": cell}]
    with pytest.raises(InputError, match="expected is "):
        read_gold(write(tmp_path, form, own), fields={"gold": "expected"})
    with pytest.raises(InputError, match="relevant_ids is "):
        read_gold(write(tmp_path, form, rows), fields={"gold": "expected"})
    assert caught.value.line == (2 if form == "parquet" else 3)
    assert "one row per relevant item" in caught.value.what


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ('["c0","c12"]', [("c0", 1.0), ("c12", 1.0)]),
        ('["c0;c12"]', [("c0;c12", 1.0)]),
        ("[10,0]", [("10", 1.0), ("0", 1.0)]),
        ('{"c0":2,"c1":1}', [("c0", 2.0), ("c1", 1.0)]),
        ("c0;", [("c0;", 1.0)]),
        ("a title; with words | in it", [("a title; with words | in it", 1.0)]),
    ],
)
def test_a_cell_of_gold_is_json_or_one_id(
    tmp_path: Path, form: str, cell: str, expected: list[tuple[str, float]]
) -> None:
    rows = [
        {"query_id": "q1", "text": "tart?", "expected": "c1"},
        {"query_id": "q2", "text": "pie?", "expected": cell},
    ]
    gold = read_gold(write(tmp_path, form, rows), fields={"gold": "expected"})
    assert gold.frame.select("item_id", "grade").rows() == [("c1", 1.0), *expected]


def test_ids_of_one_row_per_item_may_hold_any_sign(tmp_path: Path) -> None:
    rows = [{"query_id": "q1", "item_id": "c0;c12", "grade": 1}]
    assert read_gold(write(tmp_path, "csv", rows)).frame["item_id"].to_list() == ["c0;c12"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (["c1", "c2"], [("c1", 1.0), ("c2", 1.0)]),
        ("c1", [("c1", 1.0)]),
        (7, [("7", 1.0)]),
        ({"c1": 2, "c2": 0.5}, [("c1", 2.0), ("c2", 0.5)]),
        ([{"id": "c1", "grade": 2}, "c2"], [("c1", 2.0), ("c2", 1.0)]),
        ([{"doc_id": "d", "start": 3, "end": 9}], [("d", 1.0)]),
        ([], []),
        (None, []),
    ],
)
def test_mapped_gold_may_be_ids_objects_or_grades(
    tmp_path: Path, told: Any, expected: list[tuple[str, float]]
) -> None:
    path = write(tmp_path, "jsonl", [{"query": "tart?", "id": "q1", "expected": told}])
    gold = read_gold(path, fields={"gold": "expected"})
    assert gold.frame.select("item_id", "grade").rows() == expected
    assert gold.query_ids == ("q1",)


def test_keys_of_judgments_in_a_list_are_mapped(tmp_path: Path) -> None:
    rows = [{"query": "tart?", "id": "q1", "judged": [{"pid": "c1", "stars": 3}]}]
    names = {"gold": "judged", "item_id": "pid", "grade": "stars"}
    assert read_gold(write(tmp_path, "jsonl", rows), fields=names).frame.rows() == [
        ("q1", "c1", 3.0)
    ]


def test_keys_of_hits_in_a_log_are_mapped(tmp_path: Path) -> None:
    hits = [{"pid": "c1", "s": 0.5, "meta": {"src": "d1"}}, {"pid": "c2", "s": 0.25}]
    rows = [{"q": "q1", "answer": {"results": hits}, "earlier": 1}]
    names = {"query_id": "q", "hits": "answer.results", "item_id": "pid", "score": "s"}
    path = write(tmp_path, "jsonl", rows)
    fields = {**names, "run.doc_id": "meta.src"}
    for run in (read_run(path, fields=fields), next(scan_run(path, fields=fields).blocks())):
        assert run.hits.select("query_id", "item_id", "rank", "score", "doc_id").rows() == [
            ("q1", "c1", 1, 0.5, "d1"),
            ("q1", "c2", 2, 0.25, None),
        ]
    assert run.order == "rank"


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_dotted_name_leads_into_an_object(tmp_path: Path, form: str) -> None:
    rows = [{"query": "tart?", "id": "q1", "meta": {"gold": ["c1"], "language": "en"}}]
    path = write(tmp_path, form, rows)
    assert read_gold(path, fields={"gold": "meta.gold"}).frame.rows() == [("q1", "c1", 1.0)]


def test_a_name_with_a_dot_in_it_comes_before_a_path(tmp_path: Path) -> None:
    rows = [{"query": "tart?", "id": "q1", "meta.gold": ["c1"], "meta": {"gold": ["c2"]}}]
    path = write(tmp_path, "jsonl", rows)
    assert read_gold(path, fields={"gold": "meta.gold"}).frame.rows() == [("q1", "c1", 1.0)]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_mapping_wins_over_names_that_are_known(tmp_path: Path, form: str) -> None:
    rows = [{"item_id": "no", "chunk_id": "no", "uid": "c1", "text": "no", "body": "a tart"}]
    corpus = read_corpus(
        write(tmp_path, form, rows), fields={"item_id": "uid", "text": "body"}
    ).frame
    assert corpus.select("item_id", "text").rows() == [("c1", "a tart")]
    assert corpus["attribute.item_id"].to_list() == ["no"]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_two_columns_can_change_places(tmp_path: Path, form: str) -> None:
    rows = [{"text": "c1", "item_id": "a tart"}]
    corpus = read_corpus(write(tmp_path, form, rows), fields={"item_id": "text", "text": "item_id"})
    assert corpus.frame.select("item_id", "text").rows() == [("c1", "a tart")]


def test_a_prefix_maps_one_input_only(tmp_path: Path) -> None:
    fields = Fields.parse(["item_id=pid", "corpus.item_id=uid"])
    rows = [{"uid": "c1", "pid": "p1", "text": "a tart"}]
    corpus = read_corpus(write(tmp_path, "jsonl", rows), fields=fields)
    assert corpus.frame["item_id"].to_list() == ["c1"]
    hits = [{"query_id": "q", "uid": "c1", "pid": "p1", "score": 1.0}]
    assert read_run(write(tmp_path, "csv", hits), fields=fields).hits["item_id"].to_list() == ["p1"]


def test_a_file_of_queries_and_gold_takes_the_prefix_of_either(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl", [{"q": "tart?", "nr": "q1", "gold_ids": ["c1"]}])
    fields = Fields.parse(["queries.text=q", "gold.gold=gold_ids", "query_id=nr"])
    queries = queries_in_gold(path, fields=fields)
    assert queries is not None
    assert queries.frame.rows() == [("q1", "tart?")]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_column_that_is_nowhere_is_refused_with_the_nearest(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form, CORPUS)
    with pytest.raises(UsageError, match=r"no input has a column 'verzion'.*'version'"):
        read_corpus(path, fields={"source": "verzion"})
    own = write(tmp_path, form, renamed(CORPUS, {"item_id": "uid"}))
    with pytest.raises(InputError, match=r"no column 'uidd'; did you mean 'uid'"):
        read_corpus(own, fields={"item_id": "uidd", "doc_id": "doc"})


def test_a_shared_mapping_is_checked_over_all_inputs(tmp_path: Path) -> None:
    fields = Fields.parse(["item_id=uid"])
    read_gold(write(tmp_path, "csv", JUDGED), fields=fields)
    with pytest.raises(UsageError, match="no input has a column 'uid'"):
        fields.check()
    read_corpus(write(tmp_path, "jsonl", renamed(CORPUS, {"item_id": "uid"})), fields=fields)
    fields.check()


def test_a_mapping_with_a_prefix_is_checked_against_that_input(tmp_path: Path) -> None:
    fields = Fields.parse(["run.item_id=xyzzy", "gold.grade=note", "query_id=frage"])
    judged = renamed(JUDGED, {"query_id": "frage", "grade": "note"})
    read_gold(write(tmp_path, "csv", judged), fields=fields)
    log = [{"frage": "q1", "topk": [{"chunk_id": "c1", "sim": 0.5}]}]
    read_run(write(tmp_path, "jsonl", log), fields=fields)
    with pytest.raises(UsageError, match=r"there are frage, topk, chunk_id, sim$"):
        fields.check()


@pytest.mark.parametrize("kind", ["corpus", "run", "queries"])
def test_a_mapping_of_an_input_that_was_not_given_is_refused(tmp_path: Path, kind: str) -> None:
    fields = Fields.of({f"{kind}.source": "pid"})
    read_gold(write(tmp_path, "csv", JUDGED), fields=fields)
    with pytest.raises(UsageError, match=f"{kind}.source=pid: no input of kind {kind} has"):
        fields.check()


def test_hits_without_a_known_id_are_refused_with_their_keys(tmp_path: Path) -> None:
    log = [{"frage": "q1", "treffer": [{"sim": 0.5, "pid": "c1"}]}]
    path = write(tmp_path, "jsonl", log)
    with pytest.raises(InputError, match=r"its keys sim, pid;.*--field item_id=COLUMN,") as caught:
        read_run(path, fields={"query_id": "frage", "hits": "treffer"})
    assert caught.value.line == 1
    lacking = r"item_id=xyzzy: it has no column 'xyzzy'; there are frage, treffer, sim, pid\)$"
    fields = {"query_id": "frage", "hits": "treffer", "item_id": "xyzzy"}
    with pytest.raises(InputError, match=lacking):
        list(scan_run(path, fields=Fields.of(fields)).blocks())


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_run_without_scores_is_refused_with_its_own_names(tmp_path: Path, form: str) -> None:
    rows = [{"frage": "q1", "treffer": "c1", "sim": 0.5}]
    mapped = {"query_id": "frage", "item_id": "treffer"}
    told = r"no column score or rank among frage, treffer, sim;.*--field score=COLUMN"
    with pytest.raises(InputError, match=told):
        read_run(write(tmp_path, form, rows), fields=mapped)
    with pytest.raises(InputError, match=told):
        list(scan_run(tmp_path / f"table.{form}", fields=mapped).blocks())
    with pytest.raises(InputError, match=told):
        karat.evaluate(pl.DataFrame(rows), Gold.from_dict({"q1": {"c1": 1}}), fields=mapped)


def test_an_error_on_columns_survives_pickling() -> None:
    error = NoColumnError("no column score", ["a"], "a run needs one", where="run.csv")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.among) == (str(error), ("a",))


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["golds=x"], "unknown field 'golds'; did you mean gold?"),
        (["corpus.grade=x"], "unknown field of corpus 'grade'"),
        (["copus.text=x"], "did you mean corpus?"),
        (["gold"], "FIELD=COLUMN"),
        (["gold="], "FIELD=COLUMN"),
        (["gold=a", "gold=b"], "given twice"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(texts: list[str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        Fields.parse(texts)
    assert told in str(caught.value)


def test_fields_must_be_a_mapping_of_names(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", CORPUS)
    for wrong in (5, ["gold"], {"item_id": 3}, {"item_id": ""}):
        with pytest.raises(UsageError, match="field"):
            read_corpus(path, fields=wrong)  # type: ignore[arg-type]


def test_files_larger_than_buffers_are_mapped_in_every_block(tmp_path: Path) -> None:
    n = 300_000
    hits = pl.DataFrame(
        {
            "frage": [f"query-{i // 100:06}" for i in range(n)],
            "stueck": [f"a-rather-long-item-id-{i % 997:04}" for i in range(n)],
            "punkte": [float(n - i) for i in range(n)],
        }
    )
    names = {"query_id": "frage", "item_id": "stueck", "score": "punkte"}
    back = hits.rename({theirs: ours for ours, theirs in names.items()})
    hits.write_csv(tmp_path / "run.csv")
    hits.write_parquet(tmp_path / "run.parquet", row_group_size=10_000)
    for name in ("run.csv", "run.parquet"):
        blocks = list(scan_run(tmp_path / name, fields=names).blocks())
        read = pl.concat(block.hits for block in blocks).select(back.columns)
        assert_frame_equal(read, back)


def test_long_jsonl_is_mapped_to_its_last_line(tmp_path: Path) -> None:
    n = 60_000
    lines = io.StringIO()
    for i in range(n):
        lines.write(json.dumps({"uid": f"c{i:06}", "body": "x" * 150}) + "\n")
    path = tmp_path / "corpus.jsonl"
    path.write_text(lines.getvalue())
    assert path.stat().st_size > 8 << 20
    corpus = read_corpus(path, fields={"item_id": "uid", "text": "body"}).frame
    assert corpus.height == n
    assert corpus["item_id"][-1] == f"c{n - 1:06}"


_names = st.text(st.sampled_from("abcxyz_ .-"), min_size=1, max_size=8).map("x{}y".format)
_ids = st.text(st.sampled_from("abcdef-#:"), min_size=1, max_size=6)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_renaming_and_mapping_back_changes_nothing(
    tmp_path: Path, form: str, data: st.DataObject
) -> None:
    fields = data.draw(
        st.lists(st.sampled_from(FIELDS["corpus"]), unique=True).map(
            lambda some: list(dict.fromkeys(["item_id", "text", *some]))
        )
    )
    fields = data.draw(st.permutations([one for one in fields if one not in ("start", "end")]))
    own = data.draw(st.lists(_names, min_size=len(fields), max_size=len(fields), unique=True))
    names = dict(zip(fields, own, strict=True))
    ids = data.draw(st.lists(_ids, min_size=1, max_size=4, unique=True))
    rows = [
        {name: item if name == "item_id" else f"{name} of {item}" for name in fields}
        for item in ids
    ]
    usual = read_corpus(write(tmp_path, form, rows), format=form).frame
    mapped = read_corpus(
        write(tmp_path, form, renamed(rows, names)), format=form, fields=names
    ).frame
    assert_frame_equal(mapped, usual)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_renamed_gold_and_runs_are_the_same(tmp_path: Path, form: str, data: st.DataObject) -> None:
    ids = st.lists(_ids, min_size=1, max_size=3, unique=True)
    lists = data.draw(st.dictionaries(_ids, ids, min_size=1, max_size=3))
    number = st.integers(0, 3)
    rows = [
        {"query_id": query, "item_id": item, "score": data.draw(number)}
        for query, items in lists.items()
        for item in items
    ]
    own = data.draw(st.lists(_names, min_size=3, max_size=3, unique=True))
    names = dict(zip(("query_id", "item_id", "score"), own, strict=True))
    path = write(tmp_path, form, renamed(rows, names))
    expected = pl.DataFrame(rows)
    hits = read_run(path, format=form, fields=names).hits
    assert_frame_equal(hits, Run.from_frame(expected).hits)
    graded = {("grade" if key == "score" else key): one for key, one in names.items()}
    judged = read_gold(path, format=form, fields=graded).frame
    usual = Gold.from_frame(expected.rename({"score": "grade"})).frame
    assert_frame_equal(judged.select("query_id", "grade"), usual.select("query_id", "grade"))


def test_a_file_that_cannot_be_read_is_not_said_to_lack_a_column(tmp_path: Path) -> None:
    path = tmp_path / "gold.csv"
    path.write_bytes(b"query_id,gold\nq1,\x96\n")
    with pytest.raises(InputError) as refused:
        read_gold(path, fields={"gold": "gold"})
    assert "not UTF-8" in str(refused.value)
    assert "mapping" not in str(refused.value)


def test_ratings_are_grades_beside_a_mapped_query(tmp_path):
    """Quepid's export: a rating of 0 is a judgment, not a relevant item."""
    path = tmp_path / "ratings.csv"
    path.write_text("query,docid,rating\nq1,a,0\nq1,b,3\n")
    gold = karat.read_gold(path, fields={"query_id": "query"})
    assert dict(gold.frame.select("item_id", "grade").iter_rows()) == {"a": 0.0, "b": 3.0}
