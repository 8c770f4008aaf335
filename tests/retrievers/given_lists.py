"""Finders for tests: lists that are given, parts that fail, and hits in short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from karat.errors import CallError
from karat.retrieve.protocol import Answer, Hit, Hits, Query


def hits(*pairs: Any) -> Hits:
    """Hits of ids and scores in turn: ``hits("a", 2.0, "b", 1.0)``."""
    return [Hit(pairs[at], pairs[at + 1]) for at in range(0, len(pairs), 2)]


def ids(found: Sequence[Hit]) -> list[str]:
    return [hit.item_id for hit in found]


class Given:
    """Answers every query with the same list, and keeps what it was asked."""

    def __init__(
        self,
        found: Hits,
        *,
        batch: int = 1,
        concurrency: int = 1,
        deep: bool = True,
        meta: Mapping[str, Any] | None = None,
        **told: Any,
    ) -> None:
        self.found = found
        self.batch = batch
        self.concurrency = concurrency
        self.deep = deep
        self.meta: Mapping[str, Any] = meta or {}
        self.told = told
        self.asked: list[tuple[list[str], int]] = []

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        self.asked.append(([query.query_id for query in queries], k))
        told = {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in self.told.items()
        }
        return [Answer(self.found[:k], **told) for _ in queries]


class Failing(Given):
    """Fails every call with the error it was given."""

    def __init__(self, error: CallError) -> None:
        super().__init__([])
        self.error = error

    def find(self, queries: Sequence[Query], k: int) -> list[Answer]:
        raise self.error
