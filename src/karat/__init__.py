"""karat measures retrieval quality. The public names; importing costs little and does nothing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from karat.version import __version__

# name -> the module that holds it; loaded at first use, so that ``import karat`` is cheap.
_HOMES = {
    "CallError": "karat.errors",
    "Comparisons": "karat.analysis.compare",
    "Corpus": "karat.tables",
    "Gold": "karat.tables",
    "InputError": "karat.errors",
    "KaratError": "karat.errors",
    "MissingInputError": "karat.errors",
    "Queries": "karat.tables",
    "Retriever": "karat.retrievers.protocol",
    "Rule": "karat.analysis.verdicts",
    "Run": "karat.tables",
    "Scores": "karat.measures.scores",
    "UsageError": "karat.errors",
    "check_set": "karat.analysis.soundness",
    "compare": "karat.analysis.compare",
    "evaluate": "karat.engines.evaluating",
    "gate": "karat.analysis.gate_files",
    "parse_measure": "karat.measures.names",
    "read_corpus": "karat.formats",
    "read_gold": "karat.formats",
    "read_queries": "karat.formats",
    "read_run": "karat.formats",
    "read_systems": "karat.systems",
}

__all__ = [
    "CallError",
    "Comparisons",
    "Corpus",
    "Gold",
    "InputError",
    "KaratError",
    "MissingInputError",
    "Queries",
    "Retriever",
    "Rule",
    "Run",
    "Scores",
    "UsageError",
    "__version__",
    "check_set",
    "compare",
    "evaluate",
    "gate",
    "parse_measure",
    "read_corpus",
    "read_gold",
    "read_queries",
    "read_run",
    "read_systems",
]

if TYPE_CHECKING:
    from karat.analysis.compare import Comparisons, compare
    from karat.analysis.gate_files import gate
    from karat.analysis.soundness import check_set
    from karat.analysis.verdicts import Rule
    from karat.engines.evaluating import evaluate
    from karat.errors import CallError, InputError, KaratError, MissingInputError, UsageError
    from karat.formats import read_corpus, read_gold, read_queries, read_run
    from karat.measures.names import parse_measure
    from karat.measures.scores import Scores
    from karat.retrievers.protocol import Retriever
    from karat.systems import read_systems
    from karat.tables import Corpus, Gold, Queries, Run


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'karat' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
