"""The workbench's JSON: parse, one library call, render."""

from __future__ import annotations

from karat.web.api import comparisons, evaluations, labels, reports, runs, systems

__all__ = ["comparisons", "evaluations", "labels", "reports", "runs", "systems"]
