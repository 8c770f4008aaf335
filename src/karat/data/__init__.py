"""Queries, Gold, Run and Corpus: frozen tables, validated once when they are made.

Importing this package loads nothing; the tables are loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Corpus", "Gold", "Queries", "Run"]

if TYPE_CHECKING:
    from karat.data.tables import Corpus, Gold, Queries, Run


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'karat.data' has no attribute {name!r}")
    value = getattr(importlib.import_module("karat.data.tables"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
