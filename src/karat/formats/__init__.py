"""Files in and out: one module a format, each with read_x and write_x.

``read_gold``, ``read_run``, ``scan_run``, ``read_queries`` and ``read_corpus`` pick the
format by suffix and content; ``FORMATS`` lists what there is. Importing this package
loads nothing; a format's module is loaded when a file of it is met.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "FORMATS": "karat.formats.registry",
    "Format": "karat.formats.registry",
    "detect_format": "karat.formats.detect",
    "queries_beside": "karat.formats.doors",
    "read_corpus": "karat.formats.doors",
    "read_eval_set": "karat.formats.doors",
    "read_gold": "karat.formats.doors",
    "read_queries": "karat.formats.doors",
    "read_run": "karat.formats.doors",
    "replacing": "karat.formats.files",
    "scan_run": "karat.formats.doors",
    "write_corpus": "karat.formats.doors",
    "write_eval_set": "karat.formats.doors",
    "write_gold": "karat.formats.doors",
    "write_queries": "karat.formats.doors",
    "write_run": "karat.formats.doors",
}

__all__ = [
    "FORMATS",
    "Format",
    "detect_format",
    "queries_beside",
    "read_corpus",
    "read_eval_set",
    "read_gold",
    "read_queries",
    "read_run",
    "replacing",
    "scan_run",
    "write_corpus",
    "write_eval_set",
    "write_gold",
    "write_queries",
    "write_run",
]

if TYPE_CHECKING:
    from karat.formats.detect import detect_format
    from karat.formats.doors import (
        queries_beside,
        read_corpus,
        read_eval_set,
        read_gold,
        read_queries,
        read_run,
        scan_run,
        write_corpus,
        write_eval_set,
        write_gold,
        write_queries,
        write_run,
    )
    from karat.formats.files import replacing
    from karat.formats.registry import FORMATS, Format


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'karat.formats' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
