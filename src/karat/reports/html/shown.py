"""Texts of files as a page can show them."""

from __future__ import annotations

import re

# Everything that steers a device instead of being read, except tab and line feed.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def shown(text: str) -> str:
    r"""A text with its line ends as line feeds, and a mark for what cannot be shown.

    >>> shown("a\r\nb\x07")
    'a\nb�'
    """
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))
