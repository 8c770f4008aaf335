"""Read and write files: one module per format, each with ``read_*`` and ``write_*`` functions.

``read_gold``, ``read_run``, ``scan_run``, ``read_queries`` and ``read_corpus`` pick the format by
content and suffix; ``FORMATS`` lists all formats. Importing this package loads nothing; the module
of a format is loaded when a file of that format is read or written.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = [
    "FORMATS",
    "Conversion",
    "Format",
    "atomic_write",
    "convert",
    "detect_format",
    "queries_in_gold",
    "read_corpus",
    "read_gold",
    "read_queries",
    "read_run",
    "scan_run",
    "write_corpus",
    "write_eval_set",
    "write_gold",
    "write_queries",
    "write_run",
]

if TYPE_CHECKING:
    from karat.formats.files import atomic_write
    from karat.formats.readers import (
        Conversion,
        convert,
        queries_in_gold,
        read_corpus,
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
    from karat.formats.registry import FORMATS, Format, detect_format

# The modules of the names above that are not in ``readers``.
_MODULES = {
    "FORMATS": "registry",
    "Format": "registry",
    "atomic_write": "files",
    "detect_format": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'karat.formats' has no attribute {name!r}")
    module = importlib.import_module(f"karat.formats.{_MODULES.get(name, 'readers')}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
