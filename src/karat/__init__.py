"""karat measures retrieval quality. The public names; importing costs little and does nothing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from karat.version import __version__

# name -> the module that holds it; loaded at first use, so that ``import karat`` is cheap.
_HOMES = {
    "CallError": "karat.errors",
    "Comparisons": "karat.evaluation.comparison",
    "Corpus": "karat.data.tables",
    "Evaluation": "karat.evaluation.evaluation",
    "Gold": "karat.data.tables",
    "InputError": "karat.errors",
    "KaratError": "karat.errors",
    "MissingInputError": "karat.errors",
    "Project": "karat.project.project",
    "Queries": "karat.data.tables",
    "Retriever": "karat.retrieve.protocol",
    "Rule": "karat.evaluation.verdict",
    "Run": "karat.data.tables",
    "Scores": "karat.measure.scores",
    "Store": "karat.store",
    "UsageError": "karat.errors",
    "ab": "karat.compat.ab",
    "calibrate": "karat.label.calibrate",
    "check": "karat.analysis.check",
    "chunks": "karat.analysis.chunks",
    "compare": "karat.evaluation.api",
    "convert": "karat.formats",
    "diagnose": "karat.analysis.diagnosis",
    "evaluate": "karat.evaluation.api",
    "failures": "karat.analysis.failures",
    "gate": "karat.evaluation.api",
    "judge": "karat.label.judge",
    "measures": "karat.measure.names",
    "next_judgments": "karat.label.next_judgments",
    "parse_measure": "karat.measure.names",
    "pool": "karat.label.pool",
    "read_corpus": "karat.formats",
    "read_gold": "karat.formats",
    "read_queries": "karat.formats",
    "read_run": "karat.formats",
    "read_systems": "karat.project.systems",
    "report": "karat.reports.assembly",
    "run": "karat.project.project",
    "schema": "karat.formats.runlog_schema",
    "search": "karat.retrieve.search",
    "stages": "karat.analysis.stages",
    "story": "karat.compat.story",
    "stress": "karat.analysis.stress",
    "sweep": "karat.analysis.sweep",
    "triage": "karat.analysis.triage",
}

__all__ = [
    "CallError",
    "Comparisons",
    "Corpus",
    "Evaluation",
    "Gold",
    "InputError",
    "KaratError",
    "MissingInputError",
    "Project",
    "Queries",
    "Retriever",
    "Rule",
    "Run",
    "Scores",
    "Store",
    "UsageError",
    "__version__",
    "ab",
    "calibrate",
    "check",
    "chunks",
    "compare",
    "convert",
    "diagnose",
    "evaluate",
    "failures",
    "gate",
    "judge",
    "measures",
    "next_judgments",
    "parse_measure",
    "pool",
    "read_corpus",
    "read_gold",
    "read_queries",
    "read_run",
    "read_systems",
    "report",
    "run",
    "schema",
    "search",
    "stages",
    "story",
    "stress",
    "sweep",
    "triage",
]

if TYPE_CHECKING:
    from karat.analysis.check import check
    from karat.analysis.chunks import chunks
    from karat.analysis.diagnosis import diagnose
    from karat.analysis.failures import failures
    from karat.analysis.stages import stages
    from karat.analysis.stress import stress
    from karat.analysis.sweep import sweep
    from karat.analysis.triage import triage
    from karat.compat.ab import ab
    from karat.compat.story import story
    from karat.data.tables import Corpus, Gold, Queries, Run
    from karat.errors import CallError, InputError, KaratError, MissingInputError, UsageError
    from karat.evaluation.api import compare, evaluate, gate
    from karat.evaluation.comparison import Comparisons
    from karat.evaluation.evaluation import Evaluation
    from karat.evaluation.verdict import Rule
    from karat.formats import convert, read_corpus, read_gold, read_queries, read_run
    from karat.formats.runlog_schema import schema
    from karat.label.calibrate import calibrate
    from karat.label.judge import judge
    from karat.label.next_judgments import next_judgments
    from karat.label.pool import pool
    from karat.measure.names import measures, parse_measure
    from karat.measure.scores import Scores
    from karat.project.project import Project, run
    from karat.project.systems import read_systems
    from karat.reports.assembly import report
    from karat.retrieve.protocol import Retriever
    from karat.retrieve.search import search
    from karat.store import Store


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'karat' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
