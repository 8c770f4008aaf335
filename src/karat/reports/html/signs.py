"""Differences as a page writes them: with a minus that is as wide as a plus, and read aloud."""

from __future__ import annotations

import re
from collections.abc import Sequence

from karat.reports.figures import change, interval

MINUS = "\u2212"
# A number with decimals after a space or a bracket; a hyphen within a name is none.
_NEGATIVE = re.compile(r"(?<=[ \[])-(?=\d+\.\d)")


def changed(value: float | None) -> str:
    """A difference, with its sign; one that is too small to be seen has none.

    >>> changed(0.03), changed(-0.4), changed(-1e-9), changed(None)
    ('+0.0300', '−0.4000', '0.0000', '-')
    """
    nothing = value is not None and not round(value, 4)
    told = change(0.0 if nothing else value)
    return f"{MINUS}{told[1:]}" if told.startswith("-") and len(told) > 1 else told


def spread(ends: Sequence[float] | None) -> str:
    """The interval of a difference.

    >>> spread([-0.3, 0.1]), spread(None)
    ('[−0.30, 0.10]', '')
    """
    return interval(ends).replace("-", MINUS)


def signed(sentence: str) -> str:
    """A sentence of karat's own, its negative numbers written as the page writes them.

    >>> signed("run-2 fell by -0.100 [-0.184, 0.032] where language = pt-BR")
    'run-2 fell by −0.100 [−0.184, 0.032] where language = pt-BR'
    """
    return _NEGATIVE.sub(MINUS, sentence)
