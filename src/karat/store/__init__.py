"""Evaluations kept over time in SQL: SQLite by default, PostgreSQL for teams.

The one place in karat with a clock. Needs SQLAlchemy, which ``karat[store]`` installs.
"""

from __future__ import annotations

from karat.errors import missing_extra
from karat.revision import Revision, revision_here
from karat.store.differences import Difference, differs, same_run, shared, stale
from karat.store.records import (
    Evaluation,
    Listed,
    Names,
    NameTakenError,
    NoHistoryError,
    NotStoredError,
    Point,
    Stored,
)
from karat.store.reordering import in_order_of
from karat.store.tags import checked_tags

# Told here, once: whoever imports any part of the store gets a sentence instead of a traceback.
try:
    from karat.store.history import Store
    from karat.store.label_records import (
        Added,
        AddedSet,
        Judgment,
        LabelItem,
        LabelSet,
        NewJudgment,
        Tally,
    )
except ModuleNotFoundError as error:
    if error.name != "sqlalchemy":
        raise
    raise missing_extra("history", "SQLAlchemy", "store") from None

__all__ = [
    "Added",
    "AddedSet",
    "Difference",
    "Evaluation",
    "Judgment",
    "LabelItem",
    "LabelSet",
    "Listed",
    "NameTakenError",
    "Names",
    "NewJudgment",
    "NoHistoryError",
    "NotStoredError",
    "Point",
    "Revision",
    "Store",
    "Stored",
    "Tally",
    "checked_tags",
    "differs",
    "in_order_of",
    "revision_here",
    "same_run",
    "shared",
    "stale",
]
