"""The report as JSON, stable to the byte: sorted keys, shortest floats, a newline at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol


class Documented(Protocol):
    """Whatever is finished and plain: a report, or another analysis."""

    def document(self) -> dict[str, Any]: ...


def to_json(report: Documented) -> bytes:
    """The whole document; same inputs, same bytes."""
    return dumps(report.document())


def dumps(document: Mapping[str, Any]) -> bytes:
    """A document of plain data as bytes."""
    # What a run logged about itself may hold dates: those are spelled out.
    text = json.dumps(
        document,
        sort_keys=True,
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
        default=str,
    )
    return (text + "\n").encode()
