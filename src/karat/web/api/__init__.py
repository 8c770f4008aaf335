"""The JSON API of the workbench: parse, one library call, render."""

from __future__ import annotations

from karat.web.api import evaluations, labels, runs, systems

__all__ = ["evaluations", "labels", "runs", "systems"]
