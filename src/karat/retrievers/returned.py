"""What someone else's code returned, as hits: ids, pairs, mappings or Hit objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from datetime import date
from inspect import iscoroutine
from itertools import islice
from math import isfinite
from numbers import Integral
from typing import Any
from uuid import UUID

from karat.columns import ITEM_NAMES, NUL_IN_ID
from karat.errors import CallError
from karat.formats.yamls import shown
from karat.retrievers.protocol import Hit, Hits

EXPECTED = "a list of ids, (id, score) pairs, mappings with item_id and score, or Hit objects"


def hits_of(returned: Any, k: int, name: str, *, id_key: str | None = None) -> Hits:
    """The first k hits, in the order returned; ``{id: score}`` is ranked by score.

    ``name`` is what messages call the code that returned them, ``id_key`` the key of a
    mapping that holds the id if it is none of the usual ones.

    >>> [hit.item_id for hit in hits_of({"a": 0.2, "b": 0.9}, 10, "search")]
    ['b', 'a']
    """
    if isinstance(returned, Mapping):
        pairs = [Hit(id_of(one, name), _score(score, one, name)) for one, score in returned.items()]
        return sorted(pairs, key=lambda hit: -(hit.score or 0.0))[:k]
    _refuse(returned, name)
    return [_hit(one, name, id_key) for one in islice(returned, k)]


def id_of(value: Any, name: str) -> str:
    """An id as text; whole numbers are spelled."""
    if isinstance(value, str) and "\0" in value:
        raise CallError(f"{name} returned an id that {NUL_IN_ID}")
    if isinstance(value, str) and value:
        return str(value)
    if isinstance(value, UUID) or (isinstance(value, Integral) and not isinstance(value, bool)):
        return str(value)
    raise CallError(f"{name} returned the id {shown(value)}; ids must be text or whole numbers")


def text_of(value: Any) -> str | None:
    """A version, a document's id or the like as text; a date as it is written down."""
    if value is None:
        return None
    return value.isoformat() if isinstance(value, date) else str(value)


def _refuse(returned: Any, name: str) -> None:
    """Whatever is no ranked list, although one could walk through some of it."""
    if iscoroutine(returned):
        returned.close()
        raise CallError(f"{name} is async; wrap it in a function that calls asyncio.run")
    if isinstance(returned, Set):
        raise CallError(f"{name} returned a set, which has no order; return a list")
    table = hasattr(returned, "columns")
    if table or isinstance(returned, str | bytes | Hit) or not isinstance(returned, Iterable):
        told = type(returned).__name__ if table else shown(returned)
        raise CallError(f"{name} returned {told}; {EXPECTED} is expected")


def _hit(one: Any, name: str, id_key: str | None) -> Hit:
    if isinstance(one, Hit):
        return one._replace(
            item_id=id_of(one.item_id, name),
            score=_optional(one.score, one.item_id, name),
            doc_id=text_of(one.doc_id),
            version=text_of(one.version),
            source=text_of(one.source),
            similarity=_optional(one.similarity, one.item_id, name),
            start=_place(one.start, one.item_id, name),
            end=_place(one.end, one.item_id, name),
        )
    if isinstance(one, Mapping):
        return _of_mapping(one, name, id_key)
    if isinstance(one, tuple | list):
        if len(one) != 2:
            raise CallError(
                f"{name} returned {shown(one)}, which has {len(one)} parts; {EXPECTED} is expected"
            )
        return Hit(id_of(one[0], name), _score(one[1], one[0], name))
    if isinstance(one, str | UUID | Integral):
        return Hit(id_of(one, name))
    raise CallError(f"{name} returned {shown(one)} as a hit; {EXPECTED} is expected")


def _of_mapping(one: Mapping[Any, Any], name: str, id_key: str | None) -> Hit:
    names = ITEM_NAMES if id_key is None else (id_key,)
    item = next((one[key] for key in names if one.get(key) is not None), None)
    if item is None:
        # A key may hold anything, and the message is one line.
        keys = ", ".join(repr(key).strip("'") for key in one) or "none"
        raise CallError(
            f"{name} returned a hit without an id: its keys are {keys}; "
            f"one of {', '.join(names)} is expected"
        )
    version = one.get("version")
    return Hit(
        id_of(item, name),
        _optional(one.get("score"), item, name),
        text_of(one.get("doc_id")),
        text_of(one.get("doc_version") if version is None else version),
        text_of(one.get("source")),
        _optional(one.get("similarity"), item, name),
        text_of(one.get("text")),
        _place(one.get("start"), item, name),
        _place(one.get("end"), item, name),
    )


def _place(value: Any, item: Any, name: str) -> int | None:
    """Where a chunk begins or ends in its document."""
    if value is None:
        return None
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0:
        return int(value)
    raise CallError(
        f"{name} returned {shown(value)} as a place in the document of item {item!r}; "
        "start and end must be whole numbers from 0"
    )


def _optional(score: Any, item: Any, name: str) -> float | None:
    return None if score is None else _score(score, item, name)


def _score(score: Any, item: Any, name: str) -> float:
    """A finite number; text that spells one is not a number."""
    try:
        number = float("nan") if isinstance(score, bool | str | bytes) else float(score)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if isfinite(number):
        return number
    raise CallError(
        f"{name} returned the score {shown(score)} for item {item!r}; a finite number is expected"
    )
