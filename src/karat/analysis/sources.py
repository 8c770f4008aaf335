"""The sources that a call was sent to or a query belongs to, as logs and queries spell them."""

from __future__ import annotations

from typing import Any

from karat.formats.records import unspell

Names = tuple[str, ...]

JOINED = "+"


def source_names(value: Any) -> Names:
    """Sources given as a list, as one text, or as several joined by +.

    >>> source_names("docs + tickets"), source_names(["docs"]), source_names("c++")
    (('docs', 'tickets'), ('docs',), ('c++',))
    """
    value = unspell(value)
    if isinstance(value, list):
        return tuple(dict.fromkeys(str(one) for one in value if one not in (None, "")))
    if value is None or value == "":
        return ()
    parts = [part.strip() for part in str(value).split(JOINED)]
    # A name may have a + of its own, as c++ does.
    return tuple(dict.fromkeys(parts)) if all(parts) else (str(value),)
