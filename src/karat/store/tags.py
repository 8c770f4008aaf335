"""What a tag may be."""

from __future__ import annotations

import re
from collections.abc import Sequence

from karat.errors import UsageError

_TAG = re.compile(r"[^\s,:]{1,100}")


def checked_tags(tags: Sequence[str]) -> list[str]:
    """The tags, each once; refuses what could be taken for an id or for two tags.

    >>> checked_tags(["12"])
    Traceback (most recent call last):
    karat.errors.UsageError: tag '12' would read as an id; begin it with a letter
    """
    for tag in tags:
        if not isinstance(tag, str) or not _TAG.fullmatch(tag) or not tag.isprintable():
            raise UsageError(f"tag {tag!r}: use 1 to 100 characters, no blank, comma or colon")
        if tag.isdecimal():
            raise UsageError(f"tag {tag!r} would read as an id; begin it with a letter")
    return list(dict.fromkeys(tags))
