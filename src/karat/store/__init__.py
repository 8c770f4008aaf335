"""Evaluations and judgments saved over time in SQL: SQLite by default, PostgreSQL for teams.

``Store`` is the public class; it is also ``karat.Store``. Only this package reads the clock.
Needs SQLAlchemy, which ``karat[store]`` installs.
"""

from __future__ import annotations

from karat.errors import missing_extra
from karat.store.records import (
    AddedJudgments,
    AddedLabelSet,
    EvaluationPage,
    Judgment,
    LabelItem,
    LabelSet,
    NameTakenError,
    NewJudgment,
    NoHistoryError,
    NotStoredError,
    RestoredEvaluation,
    SavedEvaluation,
    TrendPoint,
    checked_tags,
)

# Whoever imports any part of the store gets a sentence instead of a traceback.
try:
    from karat.store.history import Store
except ModuleNotFoundError as error:
    if error.name != "sqlalchemy":
        raise
    raise missing_extra("history", "SQLAlchemy", "store") from None

__all__ = [
    "AddedJudgments",
    "AddedLabelSet",
    "EvaluationPage",
    "Judgment",
    "LabelItem",
    "LabelSet",
    "NameTakenError",
    "NewJudgment",
    "NoHistoryError",
    "NotStoredError",
    "RestoredEvaluation",
    "SavedEvaluation",
    "Store",
    "TrendPoint",
    "checked_tags",
]
