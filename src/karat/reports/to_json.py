"""The report as JSON, stable to the byte: sorted keys, shortest floats, a newline at the end."""

from __future__ import annotations

import json

from karat.reports.document import Report


def to_json(report: Report) -> bytes:
    """The whole document; same inputs, same bytes."""
    # What a run logged about itself may hold dates: those are spelled out.
    text = json.dumps(
        report.document(),
        sort_keys=True,
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
        default=str,
    )
    return (text + "\n").encode()
