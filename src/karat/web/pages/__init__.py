"""The workbench's pages."""

from __future__ import annotations

from karat.web.pages import comparison, evaluation, explore, files, home, labels, login, runs

__all__ = ["comparison", "evaluation", "explore", "files", "home", "labels", "login", "runs"]
