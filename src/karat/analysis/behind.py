"""What lies behind a system's figures, in brief, as every report has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from karat.analysis.failures.classes import Failures, classify
from karat.analysis.failures.waterfall import waterfall
from karat.analysis.latency.latencies import latencies
from karat.analysis.rescored import rescored
from karat.analysis.segments import By
from karat.analysis.staged import Staged
from karat.analysis.sweeps.sweep import default_sweep
from karat.analysis.thresholds import lines_of
from karat.errors import MissingInputError
from karat.measures.names import parse_measure
from karat.tables import Queries


def failures_of(staged: Staged, queries: Queries | None) -> Failures:
    """Why queries miss, by the lines of the profile."""
    return classify(staged, queries, lines=lines_of(staged.final.conventions.profile))


def behind(
    staged: Staged, queries: Queries | None, by: Sequence[By], failures: Failures
) -> Mapping[str, Any]:
    """The curve over k, failures by class, losses by part, and latencies where they are logged."""
    told: dict[str, Any] = {"sweep": default_sweep(staged)}
    told["failures"] = failures.document(queries=False)
    conventions = staged.gold.conventions
    miss = failures.lines.miss
    lost = [parse_measure(f"{name}@{miss}", conventions=conventions) for name in ("nDCG", "R")]
    again = replace(staged, final=rescored(staged, lost))
    told["waterfalls"] = [waterfall(again, one).document() for one in lost]
    with suppress(MissingInputError):
        told["latency"] = latencies(staged, queries, by=by).document()
    return told
