"""karat measures retrieval quality. The public names; importing costs little and does nothing."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from karat.version import __version__ as __version__

# name -> the module that holds it; loaded at first use, so that ``import karat`` is cheap.
_HOMES = {
    "CallError": "karat.errors",
    "Comparisons": "karat.evaluation.comparison",
    "Corpus": "karat.data.tables",
    "Evaluation": "karat.evaluation.evaluation",
    "Gold": "karat.data.tables",
    "InputError": "karat.errors",
    "KaratError": "karat.errors",
    "LabelSets": "karat.label.label_store",
    "MissingInputError": "karat.errors",
    "Project": "karat.project.project",
    "Queries": "karat.data.tables",
    "Report": "karat.reports.document",
    "Retriever": "karat.retrieve.protocol",
    "Rule": "karat.evaluation.verdict",
    "Run": "karat.data.tables",
    "Scores": "karat.measure.scores",
    "SearchOptions": "karat.retrieve.search",
    "SearchResult": "karat.retrieve.search",
    "Store": "karat.store",
    "UsageError": "karat.errors",
    "WrittenRecipe": "karat.project.recipes",
    "ab": "karat.compat.ab",
    "calibrate": "karat.label.calibrate",
    "check_eval_set": "karat.project.project",
    "compare": "karat.evaluation.api",
    "convert": "karat.formats.readers",
    "evaluate": "karat.evaluation.api",
    "gate": "karat.evaluation.api",
    "init": "karat.project.recipes",
    "judge": "karat.label.judge",
    "measures": "karat.measure.names",
    "next_judgments": "karat.label.next_judgments",
    "parse_measure": "karat.measure.names",
    "pool": "karat.label.pool",
    "read_corpus": "karat.formats.readers",
    "read_gold": "karat.formats.readers",
    "read_queries": "karat.formats.readers",
    "read_run": "karat.formats.readers",
    "read_systems": "karat.project.systems",
    "recipes": "karat.project.recipes",
    "report": "karat.reports.assembly",
    "run": "karat.project.project",
    "save": "karat.reports.assembly",
    "schema": "karat.formats.runlog_schema",
    "search": "karat.retrieve.search",
    "story": "karat.compat.story",
}

# Every module of karat.analysis holds the function of its name.
_HOMES |= {
    name: f"karat.analysis.{name}"
    # pathlib would take a third of the time that importing karat takes.
    for file in os.listdir(f"{__path__[0]}/analysis")  # noqa: PTH208
    if (name := file.removesuffix(".py"))[0].isalpha()
}

__all__ = sorted([*_HOMES, "__version__"])

if TYPE_CHECKING:
    from karat.analysis.check import check as check
    from karat.analysis.chunks import chunks as chunks
    from karat.analysis.diagnose import diagnose as diagnose
    from karat.analysis.failures import failures as failures
    from karat.analysis.stages import stages as stages
    from karat.analysis.stress import stress as stress
    from karat.analysis.sweep import sweep as sweep
    from karat.analysis.triage import triage as triage
    from karat.compat.ab import ab as ab
    from karat.compat.story import story as story
    from karat.data.tables import Corpus as Corpus
    from karat.data.tables import Gold as Gold
    from karat.data.tables import Queries as Queries
    from karat.data.tables import Run as Run
    from karat.errors import CallError as CallError
    from karat.errors import InputError as InputError
    from karat.errors import KaratError as KaratError
    from karat.errors import MissingInputError as MissingInputError
    from karat.errors import UsageError as UsageError
    from karat.evaluation.api import compare as compare
    from karat.evaluation.api import evaluate as evaluate
    from karat.evaluation.api import gate as gate
    from karat.evaluation.comparison import Comparisons as Comparisons
    from karat.evaluation.evaluation import Evaluation as Evaluation
    from karat.evaluation.verdict import Rule as Rule
    from karat.formats.readers import convert as convert
    from karat.formats.readers import read_corpus as read_corpus
    from karat.formats.readers import read_gold as read_gold
    from karat.formats.readers import read_queries as read_queries
    from karat.formats.readers import read_run as read_run
    from karat.formats.runlog_schema import schema as schema
    from karat.label.calibrate import calibrate as calibrate
    from karat.label.judge import judge as judge
    from karat.label.label_store import LabelSets as LabelSets
    from karat.label.next_judgments import next_judgments as next_judgments
    from karat.label.pool import pool as pool
    from karat.measure.names import measures as measures
    from karat.measure.names import parse_measure as parse_measure
    from karat.measure.scores import Scores as Scores
    from karat.project.project import Project as Project
    from karat.project.project import check_eval_set as check_eval_set
    from karat.project.project import run as run
    from karat.project.recipes import WrittenRecipe as WrittenRecipe
    from karat.project.recipes import init as init
    from karat.project.recipes import recipes as recipes
    from karat.project.systems import read_systems as read_systems
    from karat.reports.assembly import report as report
    from karat.reports.assembly import save as save
    from karat.reports.document import Report as Report
    from karat.retrieve.protocol import Retriever as Retriever
    from karat.retrieve.search import SearchOptions as SearchOptions
    from karat.retrieve.search import SearchResult as SearchResult
    from karat.retrieve.search import search as search
    from karat.store import Store as Store


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'karat' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
