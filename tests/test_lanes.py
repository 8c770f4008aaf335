"""Every entry of the lanes names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lanes import FAST, SLOW, is_slow, is_wholly_slow

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("entry", [*SLOW, *FAST])
def test_an_entry_names_something(entry: str):
    path, _, test = entry.partition("::")
    assert (ROOT / path).exists()
    if test:
        name = re.escape(test.partition("[")[0])
        assert re.search(rf"^def {name}", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("entry", FAST)
def test_an_exception_is_from_something_slow(entry: str):
    assert entry.startswith(SLOW)
    assert not is_slow(entry)


def test_a_file_with_a_fast_test_is_not_left_out():
    assert is_wholly_slow("tests/browser/test_charts.py")
    assert not is_wholly_slow("tests/browser/test_report_file.py")
    assert not is_wholly_slow("tests/cli/test_search.py")
