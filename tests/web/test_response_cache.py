"""What is kept of answers: as long as the stamp stays, and made once however many ask."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from karat.web.responses import ResponseCache


def test_only_what_was_used_last_is_kept():
    kept = ResponseCache[str](2)
    for key in ("a", "b", "a", "c"):
        kept.get(key, lambda: "first")
    assert kept.get("a", lambda: "again") == "first"
    assert kept.get("b", lambda: "again") == "again"


def test_many_who_ask_at_once_have_it_made_once():
    kept, begun, go, made = ResponseCache[int](2), threading.Event(), threading.Event(), []

    def make():
        begun.set()
        assert go.wait(10)
        made.append(1)
        return 7

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(kept.get, "a", make)
        assert begun.wait(10)
        others = [pool.submit(kept.get, "a", make) for _ in range(7)]
        # Another key is not kept waiting by it.
        assert kept.get("b", lambda: 8) == 8
        go.set()
        assert {one.result(10) for one in (first, *others)} == {7}
    assert made == [1]


def test_what_fails_is_not_kept_and_the_next_makes_it():
    kept = ResponseCache[int](2)

    def fail():
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        kept.get("a", fail)
    assert kept.get("a", lambda: 5) == 5
