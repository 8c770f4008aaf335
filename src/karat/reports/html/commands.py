"""The command that shows a query of a report again, for each of its systems."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from karat.columns import Source
from karat.measures.conventions import SETTABLE, Conventions, conventions_of
from karat.reports.document import Report

# Where a page puts the id of a query.
QUERY = "{query}"


def commands_of(report: Report) -> list[str | None]:
    """A command for each system with the place of a query in it; None where it has no file."""
    return [
        _command(report, system.scores.source, system.scores.conventions)
        for system in report.systems
    ]


def _command(report: Report, run: Source, conventions: Conventions) -> str | None:
    if run.path is None or report.gold.path is None:
        return None
    words = ["karat", "triage", _name(run), "--gold", _name(report.gold)]
    for option, source in (("--queries", report.queries), ("--corpus", report.corpus)):
        if source is not None and source.path is not None and source.path != report.gold.path:
            words += [option, _name(source)]
    if conventions.profile != "karat":
        words += ["--profile", conventions.profile]
    words += [word for one in _settings(conventions) for word in ("--set", one)]
    for key, column in report.fields.items():
        words += ["--field", f"{key}={column}"]
    return f"{shlex.join(words)} --query {QUERY}"


def _name(source: Source) -> str:
    """A file as seen from here; one elsewhere by its name, since a page may travel."""
    if source.path is None:
        return source.name
    path = os.path.relpath(source.path)
    return source.name if path.startswith(os.pardir) else Path(path).as_posix()


def _settings(conventions: Conventions) -> list[str]:
    """What differs from the profile, as ``--set`` takes it."""
    usual = asdict(conventions_of(conventions.profile))
    own = asdict(conventions)
    return [
        f"{key}={_spelled(own[key])}"
        for key in SETTABLE
        if own[key] != usual.get(key)
        and own[key] not in (None, ())
        # The file decides it, unless somebody did.
        and key not in ("order", "unit")
    ]


def _spelled(value: Any) -> str:
    return "<".join(value) if isinstance(value, tuple) else str(value)
