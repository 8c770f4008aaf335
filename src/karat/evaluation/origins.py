"""What numbers are of: the dataset, its dates and the code, as the logs of the runs tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from karat.data.columns import date_range
from karat.data.tables import Queries

_VERSIONS = ("dataset_version", "code_version")
_RANGE = "as_of_range"

Meta = Mapping[str, Any]


def origin_of(metas: Sequence[Meta], queries: Queries | None) -> dict[str, Any]:
    """The dataset version, code version and as_of range of a report, None where unknown.

    A version is that of all runs; where one does not say it, or says another, there is none.
    The queries themselves know their dates better than a log does.
    """
    origin = {key: _common([_version(one, key) for one in metas]) for key in _VERSIONS}
    return origin | {_RANGE: _dates(queries) or _common([_range(one) for one in metas])}


def origin_inputs(metas: Sequence[Meta], queries: Queries | None) -> dict[str, Any]:
    """The same among the inputs of a document: only what is known."""
    known = {key: told for key, told in origin_of(metas, queries).items() if told is not None}
    return {key: list(told) if key == _RANGE else told for key, told in known.items()}


def differing(metas: Mapping[str, Meta]) -> dict[str, dict[str, str]]:
    """What the runs that say it do not agree on: by key, what each says."""
    found = {}
    for key in (*_VERSIONS, _RANGE):
        told = {name: _told(meta, key) for name, meta in metas.items()}
        known = {name: value for name, value in told.items() if value is not None}
        if len(set(known.values())) > 1:
            found[key] = known
    return found


def _told(meta: Meta, key: str) -> str | None:
    if key != _RANGE:
        return _version(meta, key)
    ends = _range(meta)
    return None if ends is None else " to ".join(ends)


def _version(meta: Meta, key: str) -> str | None:
    value = meta.get(key)
    plain = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return str(value) if plain and value != "" else None


def _range(meta: Meta) -> tuple[str, str] | None:
    """A run that was made in Python may say anything."""
    value = meta.get(_RANGE)
    if not isinstance(value, (list, tuple)) or [type(one) for one in value] != [str, str]:
        return None
    return value[0], value[1]


def _common(told: Sequence[Any]) -> Any:
    return told[0] if told and all(one == told[0] for one in told) else None


def _dates(queries: Queries | None) -> tuple[str, str] | None:
    if queries is None or "as_of" not in queries.frame.columns:
        return None
    return date_range(queries.frame["as_of"])
