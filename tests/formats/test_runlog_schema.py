"""The contract of run logs: the JSON Schema and the reader say the same of every line.

The schema is read by the package ``jsonschema``, which karat itself does not use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import karat
from karat.errors import InputError, UsageError
from karat.formats.readers import read_run, scan_run, write_run
from karat.formats.runlog import run_of_records
from karat.formats.runlog_schema import FACTS, MOST_SHOWN, check_log, schema

SCHEMA = json.loads(schema("run-log").text())
VALIDATOR = Draft202012Validator(SCHEMA)

FULL: dict[str, Any] = {
    "query_id": "q1",
    "system": "hybrid + reranker",
    "k_raw": 20,
    "topk": [
        {"rank": 1, "chunk_id": "fees#2", "score": 4.5, "doc_version": "2026-01-01"},
        {"rank": 2, "chunk_id": "refunds#1", "score": 4.0, "doc_version": "2025-07-01"},
    ],
    "latency_ms": {"retrieve": 11, "rerank": 7.5},
    "index_version": "2026-02",
    "chunker": {"algo": "sentences", "target_tokens": 300, "overlap": 40},
}
SHORT = {key: value for key, value in FULL.items() if key not in ("k_raw", "chunker")}

# One of every kind of JSON value, and the numbers at which a rule could turn.
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, -1, 0.5, -0.5, 1.5, -0.0, 1e100, 1e101, 1e308, 1e400, -1e400),
    *(
        2**63 - 1,
        2**63,
        10**400,
        "",
        "a",
        "0",
        "50",
        "2026-01-01",
        "a\0b",
        [],
        [None],
        ["a"],
        [1],
        [1.5],
    ),
    *([True], [""], [[]], [{}], ["a", "b"], [1, 2], ["a", ""], ["a", "b", "c"], ["a", None], {}),
    *({"a": 1}, {"a": "b"}, {"a": None}, {"a": -1}, {"a": True}, {"a": []}, {"a": ["b"]}),
    *({"a": [{"chunk_id": "b"}]}, {"a": [5]}, {"raw": []}, {"final": ["b"]}, {"total": 1e101}),
    *([{"chunk_id": "a"}, "b"], [{"chunk_id": "a"}, {"chunk_id": ""}], {"chunk_id": "a"}),
)
KEYS = sorted({*SCHEMA["properties"], "a key of my own"})
NAMES = [one["required"][0] for one in SCHEMA["$defs"]["hit_object"]["anyOf"]]
HIT_KEYS = sorted(SCHEMA["$defs"]["hit_object"]["properties"])


# A schema cannot tell 7.0 from 7; where ids and places stand, the reader can.
IDS = {"query_id"}
HIT_IDS = {*NAMES, "doc_version", "version", "source", "rank", "start", "end"}


def values_for(key: str, ids: set[str]) -> list[Any]:
    """The values to try under a key, without what no schema can say of them."""
    pointed = [one for one in VALUES if isinstance(one, float) and one.is_integer()]
    return [one for one in VALUES if key not in ids or not any(one is other for other in pointed)]


def by_schema(line: Any) -> bool:
    return bool(VALIDATOR.is_valid(line))


def by_reader(*lines: Any) -> bool:
    """What reading says to lines that went through JSON."""
    try:
        run_of_records([json.loads(json.dumps(line)) for line in lines], name="log")
    except InputError:
        return False
    return True


def logged(folder: Path, *lines: Any) -> Path:
    path = folder / "log.jsonl"
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def disagreements(lines: Iterator[Any]) -> tuple[list[Any], set[bool]]:
    """The lines that one accepts and the other refuses, and which verdicts there were at all."""
    wrong, verdicts = [], set()
    for line in lines:
        verdict = by_schema(line)
        verdicts.add(verdict)
        if by_reader(line) != verdict:
            wrong.append(line)
    return wrong, verdicts


def test_the_schema_is_one_of_draft_2020_12() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert SCHEMA["$id"] == "urn:karat:run-log:1"
    assert SCHEMA["title"]


def test_every_key_is_described() -> None:
    hit = SCHEMA["$defs"]["hit_object"]["properties"]
    for name, one in {**SCHEMA["properties"], **hit, **SCHEMA["$defs"]}.items():
        assert one["description"].endswith("."), name


def test_the_examples_of_the_schema_keep_to_it() -> None:
    assert len(SCHEMA["examples"]) >= 3
    for line in SCHEMA["examples"]:
        assert by_schema(line)
        assert by_reader(line)
    told = {
        key: about["examples"] for key, about in SCHEMA["properties"].items() if "examples" in about
    }
    assert len(told) >= 20
    assert all(told.values())
    for key, examples in told.items():
        for example in examples:
            assert by_schema({**FULL, key: example}), key


@pytest.mark.parametrize("line", [FULL, SHORT])
def test_the_lessons_record_is_sound_with_and_without_k_raw_and_chunker(
    line: dict[str, Any], tmp_path: Path
) -> None:
    assert by_schema(line)
    check = check_log(logged(tmp_path, line))
    assert check.sound
    for key in ("k_raw", "chunker"):
        assert check.has[key].word == ("all" if key in line else "none")
    assert check.has["doc_version"].word == check.has["index_version"].word == "all"


@pytest.mark.parametrize("key", KEYS)
def test_schema_and_reader_agree_on_any_value_of_a_key(key: str) -> None:
    values = values_for(key, IDS)
    with_it = ({**FULL, key: value} for value in values)
    alone = ({"query_id": "q1", key: value} for value in values)
    failed = ({"query_id": "q1", "error": "down", key: value} for value in values)
    wrong, verdicts = disagreements(iter([*with_it, *alone, *failed]))
    assert wrong == []
    assert verdicts == {True, False}


@pytest.mark.parametrize("key", HIT_KEYS)
def test_schema_and_reader_agree_on_any_value_of_a_key_of_a_hit(key: str) -> None:
    lines = [
        {"query_id": "q1", "topk": [hit, *others]}
        for value in values_for(key, HIT_IDS)
        for hit in ({"chunk_id": "a", key: value}, {key: value})
        # Hits that are all alike are read another way than mixed ones.
        for others in ([], ["b"], [hit])
    ]
    wrong, verdicts = disagreements(iter(lines))
    assert wrong == []
    assert verdicts == {True, False}


def test_schema_and_reader_agree_on_which_name_of_a_hit_counts() -> None:
    values = (None, "a", "", 7, 1.5, {})
    lines = (
        {"query_id": "q1", "topk": [{first: one, second: other}]}
        for first, second in combinations(NAMES, 2)
        for one, other in product(values, values)
    )
    wrong, verdicts = disagreements(lines)
    assert wrong == []
    assert verdicts == {True, False}


def test_schema_and_reader_agree_on_lines_that_lack_keys() -> None:
    keys = ("query_id", "topk", "raw", "stages", "error")
    full = {"query_id": "q1", "topk": ["a"], "raw": ["a", "b"], "stages": {"x": []}, "error": "no"}
    lines = [
        {key: full[key] for key in chosen}
        for size in range(len(keys) + 1)
        for chosen in combinations(keys, size)
    ]
    wrong, verdicts = disagreements(iter(lines))
    assert wrong == []
    assert verdicts == {True, False}


_numbers = st.one_of(
    st.integers(-3, 60), st.sampled_from([0.5, -0.5, 10**100, 10**101, 10**308, 2**63, 1e400])
)
_plain = st.one_of(st.none(), st.booleans(), _numbers, st.sampled_from(["", "a", "b#1", "final"]))
_any = st.recursive(
    _plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "raw", *HIT_KEYS]), inner, max_size=3),
    ),
    max_leaves=6,
)
_hit = st.one_of(
    st.just("a"),
    st.fixed_dictionaries(
        {"chunk_id": st.one_of(st.just("a"), _any)},
        optional={key: st.one_of(_numbers, _plain) for key in HIT_KEYS if key != "chunk_id"},
    ),
    _any,
)
_more = st.dictionaries(st.sampled_from(KEYS), _any, max_size=2)
_line = st.builds(
    lambda sound, more: {**sound, **more},
    st.fixed_dictionaries(
        {"query_id": st.just("q1"), "topk": st.lists(_hit, max_size=2)},
        optional={
            "raw": st.lists(_hit, max_size=2),
            "stages": st.dictionaries(st.sampled_from(["rerank", "raw"]), _any, max_size=2),
            "latency_ms": st.dictionaries(st.sampled_from(["a", "total"]), _plain, max_size=2),
            "error": _plain,
        },
    ),
    _more,
)


def _is_sayable(line: Any) -> bool:
    """Whether a schema could say all there is: it cannot put dates in order."""
    dates = line.get("as_of_range")
    pair = isinstance(dates, list) and len(dates) == 2 and all(isinstance(d, str) for d in dates)
    return not pair or dates[0] <= dates[1]


@settings(max_examples=600, deadline=None)
@given(_line.filter(_is_sayable))
def test_schema_and_reader_agree_on_made_up_lines(line: dict[str, Any]) -> None:
    assert by_reader(line) == by_schema(line)


TIMES = ["2025-01-31T09:30", "2025-01-31 09:30:00", "2025-01-31T09:30:00.5Z"]
NO_DATES = ["x", "v1", "2025", "2025-01", "20250131", "2025-13-01", "2025-01-32", "2025-00-10"]


@pytest.mark.parametrize("last", ["2025-01-31", *TIMES, "2025-01-31T09:30:00+01:00"])
def test_a_range_is_of_dates_with_or_without_a_time(last: str) -> None:
    line = {**SHORT, "as_of_range": ["2025-01-01", last]}
    assert by_schema(line)
    assert by_reader(line)


@pytest.mark.parametrize("last", [*NO_DATES, "2025-01-31T25:00", "2025-01-31T", "2025-1-1"])
def test_a_range_of_what_is_no_date_is_refused(last: str) -> None:
    line = {**SHORT, "as_of_range": [min("2025-01-01", last), last]}
    assert not by_schema(line)
    assert not by_reader(line)


HIT = '"topk": [{"chunk_id": "a"}]'


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([f'{{"query_id": "q1", {HIT}}}'] * 2, ":2: query 'q1' was already logged in line 1"),
        (
            [f'{{"query_id": "q{n}", "system": "s{n}", {HIT}}}' for n in (1, 2)],
            ":2: system is 's2' here and 's1' above",
        ),
        (
            [f'{{"query_id": "q{n}", "dataset_version": "v{n}", {HIT}}}' for n in (1, 2)],
            ":2: dataset_version is 'v2' here and 'v1' above; a log is of one set of queries",
        ),
        (
            [
                f'{{"query_id": "q{n}", "as_of_range": ["2025-01-31", "202{n}-01-31"], {HIT}}}'
                for n in (6, 7)
            ],
            ":2: as_of_range is ['2025-01-31', '2027-01-31'] here",
        ),
        (
            [f'{{"query_id": "q1", "as_of_range": ["2026-01-31", "2025-01-31"], {HIT}}}'],
            ":1: as_of_range is",
        ),
        (
            [f'{{"query_id": "q1", "as_of_range": ["2025-02-28", "2025-02-30"], {HIT}}}'],
            ":1: as_of_range is",
        ),
        ([f'{{"query_id": 7.0, {HIT}}}'], ":1: query_id is 7.0; ids are text or whole numbers"),
        (['{"query_id": "q", "topk": [{"chunk_id": 7.0}]}'], ":1: chunk_id is 7.0"),
        (['{"query_id": "q", "topk": [{"chunk_id": "a", "rank": 1.0}]}'], ":1: rank is 1.0"),
        (['{"query_id": "q", "topk": [{"chunk_id": "a", "start": 1.0}]}'], ":1: start is 1.0"),
        (['{"query_id": "q", "topk": [{"chunk_id": "a", "doc_id": 1.0}]}'], ":1: doc_id is 1.0"),
        (['{"query_id": "q", "topk": [{"chunk_id": "a", "score": NaN}]}'], ":1: NaN is not JSON"),
        ([f'{{"query_id": "p", "query_id": "q", {HIT}}}'], ":1: key 'query_id' occurs twice"),
        ([f'{{"query_id": "\\ud800", {HIT}}}'], ":1: holds half of a surrogate pair"),
    ],
)
def test_what_a_schema_of_one_line_cannot_say_is_refused_by_the_reader(
    lines: list[str], told: str, tmp_path: Path
) -> None:
    assert all(by_schema(json.loads(line)) for line in lines)
    path = logged(tmp_path, *lines)
    with pytest.raises(InputError) as caught:
        read_run(path, format="runlog")
    assert str(caught.value).startswith(f"log.jsonl{told}")
    check = check_log(path)
    assert [str(one) for one in check.errors] == [f"{path}{str(caught.value)[9:]}"]


def test_whole_numbers_may_be_written_with_a_point_where_they_count() -> None:
    line = {**FULL, "k_raw": 20.0, "schema_version": 1.0}
    assert by_schema(line)
    meta = run_of_records([line], name="log").meta
    assert meta["k_raw"] == 20
    assert isinstance(meta["k_raw"], int)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (2, "schema_version is 2; this karat reads version 1: update karat"),
        (99, "schema_version is 99; this karat reads version 1: update karat"),
        (0, "schema_version is 0; this karat reads version 1: update karat, write 1, or leave"),
        (1.5, "schema_version is 1.5; this karat reads version 1: update karat, write 1"),
        ("1", 'schema_version is "1"; this karat reads version 1: update karat'),
        (True, "schema_version is true; this karat reads version 1: update karat, write 1"),
        ([1], "schema_version is [1]; this karat reads version 1: update karat, write 1"),
    ],
)
def test_another_version_is_refused_before_anything_else(
    version: Any, told: str, tmp_path: Path
) -> None:
    # A later version may have other keys: nothing else is looked at.
    later = {"schema_version": version, "question": "q3"}
    path = logged(tmp_path, {**FULL, "schema_version": 1}, {**FULL, "query_id": "q2"}, later)
    for read in (lambda: read_run(path), lambda: list(scan_run(path).blocks())):
        with pytest.raises(InputError) as caught:
            read()
        assert str(caught.value).startswith(f"log.jsonl:3: {told}")


def test_the_version_is_no_fact_about_the_run(tmp_path: Path) -> None:
    old, new = ({**FULL, "query_id": "q1"}, {**FULL, "query_id": "q2", "schema_version": 1})
    run = read_run(logged(tmp_path, old, new))
    assert "schema_version" not in run.meta
    assert run.hits["query_id"].unique(maintain_order=True).to_list() == ["q1", "q2"]


def test_a_later_line_is_held_to_the_contract_like_the_first() -> None:
    lines = [{"query_id": str(n), "topk": [], "k_raw": k} for n, k in enumerate((1, 1, True))]
    assert by_reader(*lines[:2])
    assert not by_schema(lines[2])
    assert not by_reader(*lines)


def test_what_is_empty_or_null_says_nothing_of_the_run(tmp_path: Path) -> None:
    first = {**FULL, "dataset_version": "", "code_version": None, "k_raw": None}
    second = {**FULL, "query_id": "q2", "dataset_version": "v1", "code_version": "c1"}
    meta = read_run(logged(tmp_path, first, second)).meta
    assert [meta.get(key) for key in ("dataset_version", "code_version", "k_raw")] == [
        "v1",
        "c1",
        20,
    ]


def test_an_empty_version_of_a_document_is_an_unknown_one(tmp_path: Path) -> None:
    """However the other hits look: alike ones are read another way than mixed ones."""
    dated = {"chunk_id": "a", "doc_version": "2026-01-01"}
    for others in ([], ["b"]):
        topk = [dated, {"chunk_id": "c", "doc_version": ""}, *others]
        run = read_run(logged(tmp_path, {"query_id": "q1", "topk": topk}))
        assert run.hits["version"].to_list()[:2] == ["2026-01-01", None]


def test_every_written_line_keeps_to_the_contract(tmp_path: Path) -> None:
    failed = {"query_id": "q2", "system": "hybrid + reranker", "error": {"code": 503}}
    staged = {
        **FULL,
        "query_id": "q3",
        "raw": ["x", "y"],
        "stages": {"bm25": ["x"]},
        "cost": {"tokens": 3},
        "entities": ["e1"],
        "as_of": "2026-01-01",
        "as_of_range": ["2025-01-01", "2026-01-01"],
        "dataset_version": "v1",
        "my own": {"note": [1, 2]},
    }
    runs = {
        "log": read_run(logged(tmp_path, FULL, failed, staged)),
        "dict": karat.Run.from_dict({"q1": {"a": 0.5, "b": 0.25}, "q2": {}}),
        "lists": karat.Run.from_dict({"q1": ["a", "b"], "q2": ["b"]}),
    }
    calls = {"log": ["q1", "q2", "q3"], "dict": ["q1", "q2"], "lists": ["q1", "q2"]}
    for name, run in runs.items():
        path = tmp_path / f"{name}.again.jsonl"
        write_run(run, path)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["query_id"] for line in lines] == calls[name]
        for line in lines:
            VALIDATOR.validate(line)
            assert line["schema_version"] == 1
        assert check_log(path).sound
        write_run(read_run(path), tmp_path / "twice.jsonl")
        assert (tmp_path / "twice.jsonl").read_text() == path.read_text()


def test_a_run_whose_log_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    hits = karat.Run.from_dict({"q1": ["a"]}).hits
    run = karat.Run(hits, meta={"k_raw": "twenty", "schema_version": 9}, order="rank")
    with pytest.raises(InputError, match=r'out\.jsonl: k_raw is "twenty"; a whole number from 0'):
        write_run(run, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
    write_run(karat.Run(hits, meta={"schema_version": 9}, order="rank"), tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text())["schema_version"] == 1


def test_a_check_lists_every_bad_line_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [
        json.dumps(FULL).encode(),
        b"not json",
        b"",
        b'{"query_id": "\xff", "topk": []}',
        b'{"query_id": "q2"}',
        json.dumps({**FULL, "query_id": "q3"}).encode(),
        b"[1]",
    ]
    path.write_bytes(b"\n".join(lines))
    check = check_log(path)
    assert (check.lines, check.bad, check.sound) == (6, 4, False)
    assert [error.line for error in check.errors] == [2, 4, 5, 7]
    assert "byte 0xff is not UTF-8" in check.errors[1].what
    assert check.errors[2].what.startswith("has neither topk nor error; log the hits under topk")
    assert check.to_dict()["has"] is None


def test_a_check_counts_all_bad_lines_and_shows_the_first(tmp_path: Path) -> None:
    check = check_log(logged(tmp_path, *({"query_id": f"q{n}"} for n in range(57))))
    assert check.bad == check.lines == 57
    assert [error.line for error in check.errors] == list(range(1, MOST_SHOWN + 1))


def test_lines_are_numbered_through_a_file_of_many_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from karat.formats.files import Input

    chunks = Input.chunks
    monkeypatch.setattr(Input, "chunks", lambda self, size=64: chunks(self, 64))
    lines = [{"query_id": f"q{n}", **({} if n % 7 == 3 else {"topk": ["a"]})} for n in range(40)]
    check = check_log(logged(tmp_path, *lines))
    assert [error.line for error in check.errors] == [n + 1 for n in range(40) if n % 7 == 3]


def test_a_check_says_what_a_log_has_in_how_many_lines(tmp_path: Path) -> None:
    lines = [
        {**FULL, "raw": ["x"], "dataset_version": "v1", "code_version": "c1"},
        {**FULL, "query_id": "q2", "topk": [*FULL["topk"], "undated"], "latency_ms": 12},
        {**SHORT, "query_id": "q3", "topk": [], "latency_ms": {"total": 5}, "code_version": "c2"},
        {"query_id": "q4", "error": "down", "k_raw": 20, "index_version": ""},
    ]
    check = check_log(logged(tmp_path, *lines))
    assert check.sound
    assert check.failed == 1
    # Counted by hand: a failed call has no lists, and an empty list no versions.
    assert {key: one.word for key, one in check.has.items()} == {
        "k_raw": "3 of 4",
        "raw": "1 of 3",
        "doc_version": "1 of 2",
        "latency_by_stage": "1 of 3",
        "index_version": "3 of 4",
        "chunker": "2 of 4",
        "dataset_version": "1 of 4",
        "as_of_range": "none",
        "code_version": "2 of 4",
    }
    assert set(check.has) == set(FACTS)
    assert tuple(check.differing) == ("code_version",)


def test_a_log_without_a_call_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no calls"):
        check_log(logged(tmp_path, "", " "))


def test_numbers_of_any_size_can_stand_beside_each_other(tmp_path: Path) -> None:
    lines = [{"query_id": str(n), "topk": [], "as_of": n} for n in (10**400, 1.5)]
    run = read_run(logged(tmp_path, *lines))
    assert run.calls is not None
    assert run.calls["as_of"].to_list() == [str(10**400), "1.5"]


def test_an_unknown_schema_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown schema 'runlog'; did you mean run-log"):
        schema("runlog")
