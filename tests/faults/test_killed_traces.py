"""Traces that a killed process left in the middle of a line: those after it stay readable."""

from __future__ import annotations

import json

from karat.compat.ab import TRACES, append_traces


def test_a_torn_line_spoils_no_later_trace(tmp_path):
    assert append_traces(tmp_path, [{"query": "one"}]) is None
    with (tmp_path / TRACES).open("ab") as file:
        file.write(b'{"query": "tw')
    assert append_traces(tmp_path, [{"query": "ünd"}, {"query": "four"}]) is None
    lines = (tmp_path / TRACES).read_bytes().decode().splitlines()
    assert lines.pop(1) == '{"query": "tw'
    assert [json.loads(line)["query"] for line in lines] == ["one", "ünd", "four"]
