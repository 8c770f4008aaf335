"""Vega for pages: the library as one script, where the extra ``charts`` is installed."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

# The one that compiles for the Vega of the same bundle: an older one makes it complain.
_VERSION = "6.4"
_NAMES = "window.vegaEmbed = vegaEmbed; window.vega = vega; window.vegaLite = vegaLite;"


@cache
def vega() -> str | None:
    """The library that draws, or None where it is not installed.

    It stands in a page as it is: to escape ``</`` in it would change what it means.
    """
    if find_spec("vl_convert") is None:
        return None
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(_NAMES, _VERSION)
    return bundle
