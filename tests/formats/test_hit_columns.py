"""Lists of hits read as columns: the same as JSON objects, or left to the JSON reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from karat.errors import InputError
from karat.formats import runlog
from karat.formats.files import Input, open_input
from karat.formats.hit_columns import HitColumns, read_calls
from karat.formats.json_records import JsonRecord, read_records

Reader = Callable[[Input], Iterator[JsonRecord]]

# Usual values of each key, and odd ones, as they are written in JSON.
KEYS = {
    "rank": (["1", "2", "3"], ["1.0", "0", "-1", "true", "null", '"1"', "01", "1e2", str(2**63)]),
    "chunk_id": (
        ['"a"', '"b#2"', '"doc:1-5"', '"é, x"', '"\ufeff"'],
        ['"x]"', '"}"', '"a}, {"', r'"\u00e9"', r'"\ud800"', "7", '""', "null", '"\t"'],
    ),
    "score": (
        [
            "1.5",
            "17",
            "-0.25",
            "3e-2",
            "0",
            "-0.0",
            "0.1234567890123456789",
            "12345678901234567890",
        ],
        ["-0", "1e400", "NaN", "Infinity", "null", "true", '"3"', "+1", "1.", ".5", "00", "[1]"],
    ),
    "doc_version": (['"v1"', '"2025-01-01"'], ["null", '""', "3", '{"a": 1}']),
    "end": (["0", "12"], ["-0", "1.5", "-3", "99999999999999999999"]),
    "other": (["1"], ['"x"']),
}
SPACES = [(", ", ": ", ""), (",", ":", ""), (" ,  ", " : ", " "), (",\t", ":", "")]
REST = [
    '"latency_ms": {"retrieve": 3.5}',
    '"error": "NaN"',
    '"error": NaN',
    '"query": "what [{is}] this"',
    r'"query": "\ud83d\ude00 \"topk\": [{"',
    '"entities": [{"chunk_id": "a"}]',
    '"entities": ["e"]',
    '"stages": {"fused": [{"rank": 1, "chunk_id": "s"}], "all": []}',
    '"stages": {"raw": [{"rank": 1, "chunk_id": "s"}]}',
    '"raw": [{"chunk_id": "a", "score": 1.5}, {"chunk_id": "b", "score": 1}]',
    '"raw": null',
    '"topk": []',
    '"k_raw": 50',
    '"k_raw": "50"',
    '"chunker": {"steps": [{"chunk_id": "a"}]}',
    '"system": "s"',
    '"cost": {"tokens": null}',
]


@st.composite
def hits(draw: st.DrawFn) -> str:
    """A list of hits that are mostly written alike."""
    comma, colon, edge = draw(st.sampled_from(SPACES))
    keys = draw(st.lists(st.sampled_from(list(KEYS)[:-1]), unique=True, min_size=1))
    keys += [] if "chunk_id" in keys else ["chunk_id"]
    entries = []
    for rank in range(1, draw(st.integers(1, 4)) + 1):
        written = list(keys)
        if draw(st.integers(0, 30)) == 0:
            change = draw(st.sampled_from(["more", "less", "turned"]))
            written += [draw(st.sampled_from(list(KEYS)))] * (change == "more")
            written = written[1:] if change == "less" else written
            written = written[::-1] if change == "turned" else written
        fields = []
        for key in written:
            usual, odd = KEYS[key]
            value = draw(st.sampled_from(odd if draw(st.integers(0, 30)) == 0 else usual))
            if key == "rank" and value in usual and draw(st.booleans()):
                value = str(rank)
            fields.append(f'"{key}"{colon}{value}')
        entries.append(f"{{{edge}{comma.join(fields)}{edge}}}")
    if draw(st.integers(0, 30)) == 0:
        entries.append(draw(st.sampled_from(['"a"', "[]", "{}", "null", "{", '{"chunk_id": "z"}'])))
    return f"[{comma.join(entries)}]"


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A log of a few calls, of which some are odd, with a few bytes changed."""
    lines = []
    for number in range(draw(st.integers(1, 4))):
        parts = [f'"query_id": "q{number}"', '"system": "s"', f'"topk": {draw(hits())}']
        if draw(st.integers(0, 3)) == 0:
            parts += draw(st.lists(st.sampled_from(REST), max_size=2))
        line = "{" + ", ".join(draw(st.permutations(parts))) + "}"
        lines.append(
            line + draw(st.sampled_from(["", "", "", "\r", "\n", " ", *("x" * (number == 3))]))
        )
    log = bytearray("\n".join(lines).encode())
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2]))):
        at, new = (
            draw(st.integers(0, len(log))),
            draw(st.sampled_from(b' "{}[],:\\\n\r\t\0\xff01.-eN')),
        )
        log[at : at + draw(st.integers(0, 1))] = bytes([new])
    return draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\n"])) + bytes(log)


def outcome(path: Path, read: Reader, *, strict: bool, blocks: bool) -> Any:
    """What a log gives, in a form that can be compared, or the message of its error."""
    log = runlog.read_run(open_input(path), name="log", strict=strict)
    try:
        with patch.object(runlog, "read_calls", read):
            runs = list(log.blocks()) if blocks else [log.read()]
    except InputError as error:
        return str(error)
    # Of -0.0 and 0.0 the texts differ.
    return [
        (run.hits.schema, str(run.hits.rows()), str(run.calls.rows(named=True)), dict(run.meta))
        for run in runs
        if run.calls is not None
    ]


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=logs(), strict=st.booleans(), blocks=st.booleans())
def test_columns_are_what_json_would_be(
    data: bytes, strict: bool, blocks: bool, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(data)
    expected = outcome(path, read_records, strict=strict, blocks=blocks)
    assert outcome(path, read_calls, strict=strict, blocks=blocks) == expected


@pytest.mark.parametrize(
    ("key", "odd"), [(key, value) for key, (_, values) in KEYS.items() for value in values]
)
def test_an_odd_value_is_left_to_json(key: str, odd: str, tmp_path: Path) -> None:
    usual = {name: values[0][0] for name, values in KEYS.items() if name != "other"}
    lines = []
    for number in range(3):
        entries = [dict(usual), dict(usual), dict(usual)]
        if number == 1:
            entries[1][key] = odd
        written = (", ".join(f'"{k}": {v}' for k, v in entry.items()) for entry in entries)
        lines.append(f'{{"query_id": "q{number}", "topk": [{{{"}, {".join(written)}}}]}}\n')
    path = tmp_path / "log.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    expected = outcome(path, read_records, strict=False, blocks=False)
    assert outcome(path, read_calls, strict=False, blocks=False) == expected
    # Nothing that needs a second look was in columns.
    if not isinstance(expected, str):
        assert not isinstance(list(read_calls(open_input(path)))[1].value["topk"], HitColumns)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(scores=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_keep_every_bit(scores: list[float], tmp_path: Path) -> None:
    entries = [{"chunk_id": f"d{i}", "score": score} for i, score in enumerate(scores)]
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"query_id": "q", "topk": entries}) + "\n")
    (record,) = read_calls(open_input(path))
    assert isinstance(record.value["topk"], HitColumns)
    read = record.value["topk"].rows()["score"].to_numpy()
    assert read.tobytes() == np.array(scores).tobytes()


def call(number: int, hits: int = 300) -> dict[str, Any]:
    topk = [
        {"rank": rank, "chunk_id": f"d{rank * number}", "score": 1 / rank, "doc_id": f"é:{rank}"}
        for rank in range(1, hits + 1)
    ]
    raw = [{"chunk_id": f"r{rank}", "score": 400 - rank} for rank in range(hits)]
    return {"query_id": f"q{number}", "system": "s", "topk": topk, "raw": raw}


@pytest.mark.parametrize("separators", [None, (",", ":")])
def test_regular_lists_are_read_as_columns(
    separators: tuple[str, str] | None, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    calls = [call(number) for number in range(1, 40)]
    calls[7] = {"query_id": "q8", "error": "timeout"}
    text = (json.dumps(value, ensure_ascii=False, separators=separators) for value in calls)
    path.write_text("\n".join(text), encoding="utf-8")
    for record, value in zip(read_calls(open_input(path)), calls, strict=True):
        assert record.value.keys() == value.keys()
        for key in {"topk", "raw"} & value.keys():
            columns = record.value[key]
            assert isinstance(columns, HitColumns)
            names = {"chunk_id": "item_id"}
            expected = [
                {"rank": rank} | {names.get(k, k): v for k, v in hit.items()}
                for rank, hit in enumerate(value[key], 1)
            ]
            assert columns.rows().to_dicts() == expected
    results = [outcome(path, read, strict=True, blocks=True) for read in (read_calls, read_records)]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"score": 0.5,', '"score": 1e999,', "log.jsonl:290: score is Infinity; a finite number"),
        ('"score": 0.5,', '"score": 0.5,, ', "log.jsonl:290: not valid JSON: Expecting property"),
        ('"rank": 2,', '"rank": 2.0,', "log.jsonl:290: rank is 2.0; a whole number from 1"),
        ('"rank": 2,', '"rank": 2, "rank": 2,', "log.jsonl:290: key 'rank' occurs twice"),
        ('"chunk_id": "d', r'"chunk_id": "\ud800d', "log.jsonl:290: holds half of a surrogate"),
    ],
)
def test_a_damaged_line_late_in_a_large_log_is_named(
    old: str, new: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps(call(number), ensure_ascii=False) + "\n" for number in range(1, 301)]
    lines[289] = lines[289].replace(old, new, 1)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    # Chunks of 1 MiB, as with little memory.
    monkeypatch.setenv("KARAT_MEMORY", "250MB")
    chunks = list(open_input(path).chunks())
    assert len(chunks) > 5
    log = runlog.read_run(open_input(path), name="log")
    for read in (log.read, lambda: list(log.blocks())):
        with pytest.raises(InputError) as caught:
            read()
        assert str(caught.value).startswith(told)
    # The lines before it were columns.
    first = next(iter(read_calls(open_input(path))))
    assert isinstance(first.value["topk"], HitColumns)
