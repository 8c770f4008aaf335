"""Vega for pages: the library as one script, where the extra ``charts`` is installed."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from karat.errors import KaratError
from karat.formats.files import replacing

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
    found = kept()
    return _made() if found is None else found


def kept() -> str | None:
    """What an earlier process left in the user's cache; None where there is none, or it is damaged.

    To make it takes more than a second, and it is the same every time.
    """
    try:
        place = _place()
        if not place.is_file():
            return None
        digest, _, script = place.read_bytes().partition(b"\n")
        return script.decode() if script and digest == _digest(script) else None
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None


def _made() -> str:
    import vl_convert

    script: str = vl_convert.javascript_bundle(_NAMES, _VERSION)
    data = script.encode()
    # Where it cannot be kept, whoever comes next makes it again.
    with suppress(KaratError, OSError, RuntimeError):
        place = _place()
        if place.is_file() or not place.exists():
            with replacing(place) as file:
                file.write_bytes(_digest(data) + b"\n" + data)
    return script


def _place() -> Path:
    """The file of this bundle; RuntimeError where the user has no home."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = chosen if chosen.is_absolute() else Path.home() / ".cache"
    if not folder.is_absolute():
        raise RuntimeError("the home is relative to wherever one happens to be")
    of = f"{version('vl-convert-python')} {_VERSION} {_NAMES}"
    return folder / "karat" / f"vega-{sha256(of.encode()).hexdigest()[:16]}.js"


def _digest(data: bytes) -> bytes:
    return sha256(data).hexdigest().encode()
