"""The style sheets and scripts of the pages: a fixed table, read at the start."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

from karat.web.vega_script import SCRIPT

# The library and what draws with it, as one script: they are of no use without each other.
VEGA, CHARTS = "vega.js", "charts.js"
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
_SHORT = 16


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the pages; ``body`` is None for Vega, which is large and made when asked for."""

    kind: str
    digest: str
    body: bytes | None


@cache
def table() -> Mapping[str, Asset]:
    """Every asset by its name: no other name is served, and no name is a path."""
    found = dict(_all())
    try:
        library = version("vl-convert-python")
    except PackageNotFoundError:
        return found
    return found | {VEGA: Asset(_KINDS[".js"], f"{library}-{found[CHARTS].digest}", None)}


def address(name: str) -> str:
    """Where a page finds an asset; another content has another address."""
    return f"/assets/{name}?v={table()[name].digest}"


def body_of(asset: Asset) -> bytes:
    """What is sent of an asset."""
    if asset.body is not None:
        return asset.body
    return b"\n".join([SCRIPT.made(), table()[CHARTS].body or b""])


def _all() -> Iterator[tuple[str, Asset]]:
    for package in ("karat.reports.html", "karat.web"):
        folder = files(package).joinpath("assets")
        for file in sorted(folder.iterdir(), key=lambda one: one.name):
            kind = next((kind for end, kind in _KINDS.items() if file.name.endswith(end)), None)
            if kind is not None:
                body = file.read_bytes()
                yield file.name, Asset(kind, hashlib.sha256(body).hexdigest()[:_SHORT], body)
