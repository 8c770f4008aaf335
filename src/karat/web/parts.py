"""What lies behind single queries of a stored report, read from the store and kept a while."""

from __future__ import annotations

import gzip
from typing import Any

from fastapi import FastAPI

from karat.errors import InputError
from karat.reports.html.view import unpacked
from karat.web.errors import NoSuchThingError


def part_of(app: FastAPI, report_id: int, name: str) -> Any:
    """A part of a report's view as plain data; None where the report was saved without."""
    return app.state.parts.get((report_id, name), lambda: _read(app, report_id, name))


def text_of(app: FastAPI, report_id: int, name: str) -> bytes:
    """A part as the JSON text that it is, for whoever passes it on."""
    packed = app.state.store.part(report_id, name)
    if packed is None:
        raise without(report_id)
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError):
        raise damaged(app, report_id) from None


def without(report_id: int) -> NoSuchThingError:
    """What is said of a report that was saved by its figures alone."""
    return NoSuchThingError(
        f"report {report_id} was saved without what lies behind single queries;"
        " save it again with this karat"
    )


def _read(app: FastAPI, report_id: int, name: str) -> Any:
    packed = app.state.store.part(report_id, name)
    try:
        return None if packed is None else unpacked(packed)
    except (OSError, EOFError, ValueError):
        raise damaged(app, report_id) from None


def damaged(app: FastAPI, report_id: int) -> InputError:
    """What is said of a report whose parts are not what was saved."""
    where = f"{app.state.store.name}: report {report_id}"
    return InputError("is damaged: what lies behind its queries cannot be read", where=where)
